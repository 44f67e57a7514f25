/* What is known before a run: the environment, the machine, the largest batch, the usual traps. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "tap.h"

static mirt_strategy *silent_strategy(const char *devices, int replicas) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = devices;
    desc.replicas = replicas;
    desc.silent = true;
    return mirt_strategy_create(&desc);
}

static void test_environment(void) {
    mirt__pool pool = {NULL};
    mirt_strategy *strategy = silent_strategy("2", 6);
    setenv("LD_PRELOAD", "a\"b\\\xff\n", 1);
    const char *text = mirt_environment(strategy);
    char *copy = text ? mirt__strdup(text) : NULL;
    const mirt__json *json = text ? mirt__json_parse(&pool, text, strlen(text)) : NULL;
    ok(json && json->type == MIRT__JSON_OBJECT && !strchr(text, '\n'), "the environment is one line of JSON: %s", text ? text : mirt_last_error());
    const mirt__json *version = mirt__json_member(json, "mirrortrain"), *kernels = mirt__json_member(json, "kernels");
    ok(version && strcmp(version->string, mirt_version()) == 0, "it holds the version");
    ok(kernels && strcmp(kernels->string, mirt__kernels_best()->name) == 0, "and the kernels that run");
    int64_t devices = 0, replicas = 0;
    ok(mirt__json_get_int(json, "devices", 2, 2, &devices) == MIRT_OK && mirt__json_get_int(json, "replicas", 6, 6, &replicas) == MIRT_OK, "and the strategy's numbers");
    const mirt__json *variables = mirt__json_member(json, "variables"), *preload = variables ? mirt__json_member(variables, "LD_PRELOAD") : NULL;
    ok(preload && strcmp(preload->string, "a\"b\\??") == 0, "variables that are no UTF-8 are mended: %s", preload ? preload->string : "none");
    ok(copy && strcmp(mirt_environment(strategy), copy) == 0, "asked again it says the same");
    unsetenv("LD_PRELOAD");
    mirt__free(copy);
    mirt__pool_free(&pool);
    mirt_strategy_destroy(strategy);
    ok(!mirt_environment(NULL) && mirt_last_status() == MIRT_E_INVALID, "without a strategy: %s", mirt_last_error());
}

static void test_machine(void) {
    mirt_machine_info m;
    memset(&m, 0, sizeof m);
    ok(mirt_machine(&m) == MIRT_OK && m.cores == mirt__cpu_cores() && m.core_limit >= 0, "the machine has %d cores, %g for us", m.cores, m.core_limit);
    ok(m.memory_available > 0 && m.memory_available <= m.memory_total && m.memory_limit <= m.memory_total, "of %.1f GB %.1f are free, the limit is %.1f",
       (double)m.memory_total * 1e-9, (double)m.memory_available * 1e-9, (double)m.memory_limit * 1e-9);
    ok(mirt_machine(NULL) == MIRT_E_INVALID, "no place: %s", mirt_last_error());
}

static mirt_model *small_net(mirt_strategy *strategy, int filters) {
    mirt_conv2d_desc conv;
    mirt_dense_desc dense;
    mirt_compile_desc compile;
    memset(&conv, 0, sizeof conv);
    memset(&dense, 0, sizeof dense);
    memset(&compile, 0, sizeof compile);
    conv.filters = filters;
    conv.kernel[0] = 3;
    conv.activation = MIRT_RELU;
    dense.units = 10;
    mirt_model *model = mirt_model_create(strategy, "net");
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(12, 12, 1)), 1.0f / 255, 0);
    mirt_model_output(model, mirt_dense(mirt_flatten(mirt_conv2d(x, &conv)), &dense));
    compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    compile.from_logits = true;
    return mirt_compile(model, &compile) == MIRT_OK ? model : NULL;
}

static void test_largest_batch(void) {
    static const int cases[][3] = {{1, 1, 1}, {1, 3, 4}, {2, 2, 7}, {3, 7, 16}}; /* devices, replicas, filters */
    static const double limits[] = {1e5, 1.2345e6, 3e7, 2e9};
    for (int c = 0; c < 4; c++) {
        char devices[4];
        snprintf(devices, sizeof devices, "%d", cases[c][0]);
        mirt_strategy *strategy = silent_strategy(devices, cases[c][1]);
        mirt_model *model = small_net(strategy, cases[c][2]);
        for (int i = 0; i < 4; i++) {
            const uint64_t limit = (uint64_t)limits[i];
            mirt_memory one, at, beyond;
            memset(&one, 0, sizeof one);
            memset(&at, 0, sizeof at);
            memset(&beyond, 0, sizeof beyond);
            mirt_plan_memory(model, 1, &one);
            int64_t batch = mirt_largest_batch(model, limit);
            if (one.total > limit * (uint64_t)cases[c][0]) {
                ok(batch == 0 && mirt_last_status() == MIRT_E_NOMEM && strstr(mirt_last_error(), "not one sample fits"), "%s", mirt_last_error());
                continue;
            }
            mirt_plan_memory(model, batch, &at);
            mirt_plan_memory(model, batch + 1, &beyond);
            ok(batch > 0 && at.total <= limit * (uint64_t)cases[c][0] && beyond.total > limit * (uint64_t)cases[c][0],
               "%d devices, %d replicas, %.4g bytes each: %lld fit in %zu, one more takes %zu", cases[c][0], cases[c][1], limits[i], (long long)batch, at.total, beyond.total);
        }
        mirt_strategy_destroy(strategy);
    }
    mirt_strategy *strategy = silent_strategy(NULL, 0);
    mirt_model *model = small_net(strategy, 2);
    ok(mirt_largest_batch(model, 0) > 1000, "what is there is enough for %lld", (long long)mirt_largest_batch(model, 0));
    ok(mirt_largest_batch(model, (uint64_t)1 << 50) == (int64_t)1 << 30, "there is an end: 2^30");
    ok(mirt_largest_batch(mirt_model_create(strategy, "raw"), 0) == 0 && mirt_last_status() == MIRT_E_STATE, "not compiled: %s", mirt_last_error());
    ok(mirt_largest_batch(NULL, 0) == 0, "no model: %s", mirt_last_error());
    mirt_strategy_destroy(strategy);
}

int main(void) {
    test_environment();
    test_machine();
    test_largest_batch();
    return done_testing();
}
