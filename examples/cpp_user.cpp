// c++ -O2 -std=c++17 examples/cpp_user.cpp -o cpp_user -lm -lpthread
/* C++17: objects with destructors, exceptions for errors, lambdas for the log and callbacks. The implementation may be
   in this file, as here, or in a C file. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

struct Destroy {
    void operator()(mirt_strategy *strategy) const { mirt_strategy_destroy(strategy); }
    void operator()(mirt_dataset *dataset) const { mirt_dataset_destroy(dataset); }
};
using Dataset = std::unique_ptr<mirt_dataset, Destroy>;

/* Every failure of the library becomes an exception with its message. */
template <class T> T *check(T *pointer) {
    if (!pointer) throw std::runtime_error(mirt_last_error());
    return pointer;
}
static void check(mirt_status status) {
    if (status != MIRT_OK) throw std::runtime_error(mirt_last_error());
}

/* A strategy and its log. The log must not throw, because it is called from C. */
class Strategy {
public:
    using Log = std::function<void(mirt_log_level, const std::string &)>;

    explicit Strategy(const char *devices, Log log) : log_(std::make_unique<Log>(std::move(log))) {
        mirt_strategy_desc desc = {};
        desc.devices = devices;
        desc.log = [](mirt_log_level level, const char *text, void *user) { (*static_cast<Log *>(user))(level, text); };
        desc.log_user = log_.get();
        strategy_.reset(check(mirt_strategy_create(&desc)));
    }
    mirt_strategy *get() const { return strategy_.get(); }

private:
    std::unique_ptr<Log> log_; /* destroyed after the strategy, which uses it */
    std::unique_ptr<mirt_strategy, Destroy> strategy_;
};

/* C++ cannot take the address of a compound literal, so a function fills the descriptor. */
static mirt_tensor *dense(mirt_tensor *x, int units, mirt_activation_kind activation = MIRT_LINEAR) {
    mirt_dense_desc desc = {};
    desc.units = units;
    desc.activation = activation;
    return mirt_dense(x, &desc);
}

static double train(mirt_model *model) {
    Dataset digits(check(mirt_batch(mirt_drawn_digits(4000, 0, MIRT_TRAIN), 64)));
    double best = 1e9;
    mirt_callback watch = {};
    watch.user = &best;
    watch.epoch_end = [](const mirt_event *event, void *user) {
        auto &lowest = *static_cast<double *>(user);
        if (event->logs->value[0] < lowest) lowest = event->logs->value[0];
        return 0;
    };
    mirt_fit_desc fit = {};
    fit.epochs = 2;
    fit.no_progress = true;
    fit.callbacks[0] = &watch;
    check(mirt_fit(model, digits.get(), &fit));
    return best;
}

int main() {
    try {
        std::vector<std::string> lines;
        Strategy strategy("1", [&lines](mirt_log_level, const std::string &text) { lines.push_back(text); });

        mirt_model *model = check(mirt_model_create(strategy.get(), "mlp")); /* owned by the strategy */
        mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0);
        mirt_model_output(model, dense(dense(mirt_flatten(x), 64, MIRT_RELU), 10));
        mirt_compile_desc compile = {};
        compile.optimizer = mirt_adam(1e-3f);
        compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
        compile.from_logits = true;
        compile.metrics[0] = MIRT_ACCURACY;
        check(mirt_compile(model, &compile));

        std::printf("lowest loss %.3f, %zu lines of log\n", train(model), lines.size());
        Dataset test(check(mirt_drawn_digits(1000, 0, MIRT_TEST)));
        mirt_logs logs;
        check(mirt_evaluate(model, test.get(), &logs));
        std::printf("%s %.3f\n", logs.name[1], logs.value[1]);
        check(mirt_load(strategy.get(), "no_such_file.safetensors")); /* throws */
    } catch (const std::runtime_error &error) {
        std::printf("caught: %s\n", error.what());
        return 0;
    }
    return 1;
}
