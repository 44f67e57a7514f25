/* Failures of GPUs are errors that say what to do. There is never a hang or a crash, and nothing leaks. */
#include "../../mirrortrain.h"
#include "sim.h"
#include "tap.h"

#include <atomic>
#include <cuda_runtime_api.h>
#include <math.h>
#include <string>
#include <time.h>
#include <unistd.h>

enum { ROWS = 24, SIDE = 6 };
static float pixels[ROWS][SIDE * SIDE];
static uint8_t labels[ROWS];
static std::string said;
static double result; /* the expected result, that of a run without failures */

static void keep(mirt_log_level, const char *text, void *) { said += std::string(text) + "\n"; }

static mirt_strategy *strategy(const char *devices, double limit = 0) {
    mirt_strategy_desc d = {};
    said.clear();
    d.devices = devices;
    d.log = keep;
    d.replicas = 2;
    d.timeout_seconds = limit;
    return mirt_strategy_create(&d);
}

static mirt_model *network(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "small");
    mirt_conv2d_desc conv = {};
    mirt_dense_desc dense = {};
    mirt_compile_desc c = {};
    conv.filters = 4;
    conv.kernel[0] = conv.kernel[1] = 3;
    dense.units = 3;
    mirt_tensor *x = mirt_conv2d(mirt_input(m, MIRT_SHAPE(SIDE, SIDE, 1)), &conv);
    x = mirt_activation(mirt_batch_norm(x, NULL), MIRT_RELU);
    mirt_model_output(m, mirt_dense(mirt_flatten(x), &dense));
    c.optimizer = mirt_adam(1e-3f);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static mirt_array some_x(int64_t rows) {
    return mirt_make_array(pixels, MIRT_FLOAT32, MIRT_SHAPE(rows, SIDE, SIDE, 1));
}
static mirt_array some_y(int64_t rows) { return mirt_make_array(labels, MIRT_UINT8, MIRT_SHAPE(rows)); }

/* Makes a strategy and a model, takes two steps, evaluates, reads a weight. */
static bool whole_run(const char *devices) {
    mirt_strategy *s = strategy(devices);
    mirt_model *m = s ? network(s) : NULL;
    double loss;
    float bias[4];
    mirt_logs logs;
    bool good = m != NULL;
    for (int i = 0; i < 3 && good; i++) good = mirt_train_step(m, some_x(9), some_y(9), &loss) == MIRT_OK;
    good = good && mirt_evaluate_arrays(m, some_x(ROWS), some_y(ROWS), &logs) == MIRT_OK &&
           mirt_get_weight(m, "conv2d/bias", 0, bias, 4) == MIRT_OK;
    if (good) result = mirt_logs_value(&logs, "loss") + bias[0];
    mirt_strategy_destroy(s);
    return good;
}

/* A batch with a NaN: the step is run again to find where it comes from, and training stops. */
static bool stopped_run(const char *devices) {
    mirt_strategy *s = strategy(devices);
    mirt_model *m = s ? network(s) : NULL;
    mirt_callback *stop = mirt_terminate_on_nan(MIRT_NAN_STOP);
    mirt_fit_desc fit = {};
    fit.callbacks[0] = stop;
    fit.no_progress = true;
    const float was = pixels[0][0];
    pixels[0][0] = NAN;
    const bool good = m && mirt_fit_arrays(m, some_x(6), some_y(6), &fit) &&
                      said.find("input number 0") != std::string::npos;
    pixels[0][0] = was;
    if (m) result = (double)mirt_step(m);
    mirt_callback_destroy(stop);
    mirt_strategy_destroy(s);
    return good;
}

/* Every call fails once. */
static void check_calls(const char *what, bool (*run)(const char *devices), const char *devices, long stride) {
    mirt_sim::options().fail_call = 0;
    mirt_sim::reset_calls();
    ok(run(devices) && mirt_sim::report_leaks() == 0, "on %s %s, and nothing is left", devices, what);
    const long calls = mirt_sim::calls();
    const double want = result;
    int unnoticed = 0, wrong = 0, silent = 0, leaks = 0, failed = 0;
    std::string first;
    for (long n = 1; n <= calls; n += stride) {
        mirt_sim::reset_calls();
        mirt_sim::options().fail_call = n;
        const bool good = run(devices);
        const char *call = mirt_sim::failed_call();
        mirt_sim::options().fail_call = 0;
        failed += call != NULL;
        unnoticed += good && call;
        wrong += good && result != want;
        if (!good && !*mirt_last_error()) silent++;
        if (mirt_sim::report_leaks()) leaks++;
        if (first.empty() && leaks) first = std::string(call ? call : "?") + " number " + std::to_string(n);
    }
    ok(failed > 5 && silent == 0, "on %s each of %d calls fails once: never without a sentence", devices, failed);
    ok(leaks == 0, "... and nothing is left behind%s%s", leaks ? ", but after " : "", first.c_str());
    ok(wrong == 0, "... %d of them can be done without, and all comes out the same", unnoticed);
}

static void check_memory(void) {
    const size_t before = mirt_sim::options().memory;
    mirt_sim::options().memory = (size_t)48 << 20;
    mirt_strategy *s = strategy("gpu:0");
    mirt_model *m = s ? network(s) : NULL;
    ok(m != NULL, "a small device takes a small model: %s", m ? "yes" : mirt_last_error());
    const int64_t rows = 30000;
    float *x = (float *)calloc((size_t)rows, sizeof pixels[0]);
    uint8_t *y = (uint8_t *)calloc((size_t)rows, 1);
    double loss;
    const mirt_array many = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(rows, SIDE, SIDE, 1)),
                     classes = mirt_make_array(y, MIRT_UINT8, MIRT_SHAPE(rows));
    mirt_status status = m ? mirt_train_step(m, many, classes, &loss) : MIRT_E_STATE;
    const char *part = strstr(mirt_last_error(), "do not fit, of ");
    const int64_t fits = part ? atoll(part + 15) : 0;
    ok(status == MIRT_E_NOMEM && fits > 100 && fits < rows, "too large a batch: \"%s\"", mirt_last_error());
    const mirt_array fitting = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(fits, SIDE, SIDE, 1)),
                     some = mirt_make_array(y, MIRT_UINT8, MIRT_SHAPE(fits));
    status = m && fits > 0 ? mirt_train_step(m, fitting, some, &loss) : MIRT_E_STATE;
    ok(status == MIRT_OK, "and that one does: %s", status == MIRT_OK ? "yes" : mirt_last_error());
    mirt_strategy_destroy(s);
    free(x);
    free(y);
    ok(mirt_sim::report_leaks() == 0, "nothing is left");
    mirt_sim::options().memory = before;
}

/* A callback that loses a device after the second batch. */
typedef struct losing {
    const char *path;
    int device, batches;
} losing;

static int lose(const mirt_event *event, void *user) {
    losing *l = (losing *)user;
    if (++l->batches != 2) return 0;
    if (mirt_save(event->model, l->path, MIRT_SAVE_ALL) != MIRT_OK) return 1;
    mirt_sim::lose_device(l->device, (int)cudaErrorIllegalAddress);
    return 0;
}

static void check_loss(const char *devices, int device) {
    const std::string path = std::string(tap_tmpdir()) + "/mirrortrain-lost-" + std::to_string((long)getpid()) +
                             ".safetensors";
    losing l = {path.c_str(), device, 0};
    mirt_callback callback = {};
    mirt_fit_desc fit = {};
    callback.user = &l;
    callback.batch_end = lose;
    fit.callbacks[0] = &callback;
    fit.epochs = 2;
    fit.batch = 6;
    fit.no_progress = true;
    mirt_strategy *s = strategy(devices, 5);
    mirt_model *m = s ? network(s) : NULL;
    mirt_history *history = m ? mirt_fit_arrays(m, some_x(ROWS), some_y(ROWS), &fit) : NULL;
    ok(m && !history && l.batches >= 2 && (mirt_last_status() == MIRT_E_DEVICE || mirt_last_status() == MIRT_E_TIMEOUT),
       "gpu:%d of %s is lost in mid-run: \"%s\"", device, devices, mirt_last_error());
    double loss;
    const mirt_status status = m ? mirt_train_step(m, some_x(6), some_y(6), &loss) : MIRT_OK;
    ok(status != MIRT_OK && strstr(mirt_last_error(), "cannot be used any more"),
       "later calls say so at once: \"%.120s\"", mirt_last_error());
    mirt_strategy_destroy(s);
    mirt_sim::lose_device(device, 0);
    s = strategy("cpu");
    m = s ? mirt_load(s, path.c_str()) : NULL;
    ok(m && mirt_step(m) == 2, "what was saved before resumes elsewhere: step %d", m ? (int)mirt_step(m) : -1);
    mirt_strategy_destroy(s);
    unlink(path.c_str());
}

/* The library's clock, the system's but for this: the process is suspended for 1000 s, as the clock has it, while a
   device hangs. After some more readings of the clock the device continues. */
static struct {
    std::atomic<int> looks; /* since the device hangs; negative: it does not */
    std::atomic<bool> later;
} suspended = {{-1}, {false}};

extern "C" int hook_clock(clockid_t clock, struct timespec *out) {
    const int code = clock_gettime(clock, out);
    const int looks = suspended.looks >= 0 ? suspended.looks++ : -1;
    if (looks == 20) suspended.later = true;
    if (looks == 60) mirt_sim::hang_device(0, false);
    if (suspended.later && clock == CLOCK_MONOTONIC) out->tv_sec += 1000;
    return code;
}

/* One step has been taken, so that the next one waits for the device only at its end. */
static void check_suspended(void) {
    mirt_strategy *s = strategy("gpu:0", 100);
    mirt_model *m = s ? network(s) : NULL;
    double loss;
    if (!ok(m && mirt_train_step(m, some_x(9), some_y(9), &loss) == MIRT_OK,
            "a step before the process is suspended: %s", mirt_last_error()))
        return;
    mirt_sim::hang_device(0, true);
    suspended.looks = 0;
    const mirt_status status = mirt_train_step(m, some_x(9), some_y(9), &loss);
    ok(status == MIRT_OK && suspended.looks > 60,
       "a step in which the process is suspended for longer than the limit: %s",
       status == MIRT_OK ? "done" : mirt_last_error());
    suspended.looks = -1;
    suspended.later = false;
    mirt_strategy_destroy(s);
}

/* A rank of NCCL's does not come: no strategy in time, what to try, and the next one is as ever. */
static void check_joining(void) {
    mirt_sim::options().never_joins = 1;
    mirt_strategy *s = strategy("gpu:0,gpu:1", 0.5);
    ok(!s && mirt_last_status() == MIRT_E_TIMEOUT &&
           strstr(mirt_last_error(), "rank 0 of 2, joining: nothing came from the others in 0.5 s") &&
           strstr(mirt_last_error(), "NCCL_SOCKET_IFNAME=lo"),
       "GPUs are not joined: \"%s\"", mirt_last_error());
    mirt_sim::options().never_joins = -1;
    ok(mirt_sim::report_leaks() == 0 && whole_run("gpu:0,gpu:1"), "nothing is left of it, and the next ones are");
}

static void check_driver(void) {
    mirt_sim::options().driver = 12040;
    mirt_strategy *s = strategy("gpu:0");
    ok(!s && mirt_last_status() == MIRT_E_DEVICE && strstr(mirt_last_error(), "12.4") &&
           strstr(mirt_last_error(), "driver"),
       "a driver older than the runtime: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
    s = strategy(NULL);
    ok(s && said.find("12.4") != std::string::npos && said.find("CPU device") != std::string::npos,
       "without a wish the cores train, and the log says why: \"%s\"", said.c_str());
    mirt_strategy_destroy(s);
    mirt_sim::options().driver = -1;
    s = strategy("gpu:0");
    ok(!s && strstr(mirt_last_error(), "there is no NVIDIA driver"), "without a driver: \"%s\"", mirt_last_error());
    (void)strategy("nothing");
    s = strategy(NULL);
    ok(s && said.find("no GPU (no NVIDIA driver), 1 CPU device") != std::string::npos &&
           said.find('\n') == said.size() - 1 && strstr(mirt_last_error(), "\"nothing\""),
       "nobody asked for GPUs: one line says what trains, and it is no failure: \"%s\"", said.c_str());
    mirt_strategy_destroy(s);
    mirt_sim::options().driver = 0;
}

/* Wishes that cannot be met, and what is said of them. */
static void check_wishes(void) {
    static const struct {
        const char *devices, *environment, *says;
        int there;
    } wish[] = {
        {"gpu:9", NULL, "there is no device \"gpu:9\"; this machine has cpu:0", 2},
        {"gpu:2", NULL, "and gpu:0 to gpu:1", 2},
        {"GPU:0", NULL, "there is no device \"GPU:0\" (names are as in \"gpu:0,gpu:1\"", 2},
        {"gpu:", NULL, "\"gpu:\" (names are as in", 2},
        {"gpu:0, gpu:1", NULL, "\" gpu:1\" (names are as in", 2},
        {"gpu:0,", NULL, "\"\" (names are as in", 2},
        {"gpu:0,cpu:0", NULL, "a strategy has cores or GPUs, not both", 2},
        {"gpu:1,gpu:1", NULL,
         "device gpu:1 is named twice; for more replicas than devices set the replica count, for several devices on "
         "one GPU repeat_devices",
         2},
        {"gpu:99999999999999999999", NULL, "there is no device", 2},
        {"gpu", NULL, "no GPU is visible", 0},
        {"gpu:0", NULL, "\"gpu:0\" (no GPU is visible)", 0},
        {"cpu:4097", NULL, "there is no device \"cpu:4097\"; this machine has cpu:0", 0},
        {"3", "gpu", "3 GPUs asked for; this machine has 2", 2},
        {"1", "gpu", "MIRT_DEVICES is \"gpu\": there is no device \"gpu\" (no GPU is visible)", 0},
        {NULL, "gpu", "MIRT_DEVICES is \"gpu\": there is no device \"gpu\" (no GPU is visible)", 0},
        {NULL, "GPU", "MIRT_DEVICES is \"GPU\"; it may be \"cpu\" or \"gpu\"", 2},
    };
    const int devices = mirt_sim::options().devices;
    for (const auto &w : wish) {
        mirt_sim::options().devices = w.there;
        if (w.environment) setenv("MIRT_DEVICES", w.environment, 1);
        mirt_strategy *s = strategy(w.devices);
        ok(!s && mirt_last_status() == MIRT_E_DEVICE && strstr(mirt_last_error(), w.says), "\"%s\" of %d GPUs: \"%s\"",
           w.devices ? w.devices : "", w.there, mirt_last_error());
        mirt_strategy_destroy(s);
        unsetenv("MIRT_DEVICES");
    }
    mirt_sim::options().devices = devices;
    setenv("MIRT_DEVICES", "cpu", 1);
    mirt_strategy *s = strategy(NULL);
    ok(s && said.find("CPU device") != std::string::npos, "MIRT_DEVICES=cpu: \"%s\"", said.c_str());
    mirt_strategy_destroy(s);
    setenv("MIRT_DEVICES", "gpu", 1);
    s = strategy("1");
    ok(s && said.find("1 GPU gpu:0") != std::string::npos &&
           said.find("gpu:0 is Simulated GPU 0, sm_90, ") != std::string::npos,
       "MIRT_DEVICES=gpu: \"%s\"", said.c_str());
    mirt_strategy_destroy(s);
    unsetenv("MIRT_DEVICES");
    for (const char *name : {"MIRT_CUDA_BLAS", "MIRT_CUDA_GRAPHS", "MIRT_CUDA_NCCL"}) {
        const char *was = getenv(name);
        const std::string before = was ? was : "";
        setenv(name, "off", 1);
        s = strategy("gpu:0");
        ok(!s && strstr(mirt_last_error(), name) && strstr(mirt_last_error(), "is \"off\"; it may be 0 or 1"),
           "%s=off: \"%s\"", name, mirt_last_error());
        mirt_strategy_destroy(s);
        setenv(name, before.c_str(), 1);
    }
    setenv("MIRT_CUDA_STORE", "some", 1);
    s = strategy("gpu:0");
    ok(!s && strstr(mirt_last_error(), "MIRT_CUDA_STORE is \"some\"; it may be auto, all or none"),
       "MIRT_CUDA_STORE=some: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
    unsetenv("MIRT_CUDA_STORE");
    const size_t memory = mirt_sim::options().memory;
    mirt_sim::options().memory = 1 << 20;
    setenv("MIRT_CUDA_BLAS", "1", 1);
    s = strategy("gpu:0");
    ok(!s && mirt_last_status() == MIRT_E_NOMEM && strncmp(mirt_last_error(), "gpu:0 (", 7) == 0 &&
           strstr(mirt_last_error(), " of 1.0 MB are free; nvidia-smi"),
       "a full GPU: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
    mirt_sim::options().memory = memory;
    unsetenv("MIRT_CUDA_BLAS");
    s = strategy("gpu:0");
    mirt_model *m = s ? mirt_model_create(s, "half") : NULL;
    ok(mirt_set_dtype_policy(m, "float16") != MIRT_OK && strstr(mirt_last_error(), "did you mean \"mixed_float16\""),
       "a policy: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
}

__attribute__((constructor(101))) static void ask_for_devices(void) { setenv("MIRT_SIM_DEVICES", "2", 0); }

int main(void) {
    for (int i = 0; i < ROWS; i++) {
        labels[i] = (uint8_t)(i % 3);
        for (int k = 0; k < SIDE * SIDE; k++) pixels[i][k] = (float)((k * (labels[i] + 2) + i) % 7) / 7;
    }
    check_driver();
    check_wishes();
    check_joining();
    check_suspended();
    const char *const steps = "three steps, an evaluation and a weight";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* a run takes fifty times as long */
    const long few = 7;
#else
    const long few = 1;
#endif
    check_calls(steps, whole_run, "gpu:0", few);
    check_calls(steps, whole_run, "gpu:0,gpu:1", small_tier() ? 7 : few);
    check_calls("a step that is not finite", stopped_run, "gpu:0", small_tier() ? 3 * few : few);
    check_memory();
    check_loss("gpu:0", 0);
    check_loss("gpu:0,gpu:1", 1);
    return done_testing();
}
