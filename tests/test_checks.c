/* Tests checks made before a run: environment, machine, largest batch, common mistakes. */
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
    ok(json && json->type == MIRT__JSON_OBJECT && !strchr(text, '\n'), "the environment is one line of JSON: %s",
       text ? text : mirt_last_error());
    const mirt__json *version = mirt__json_member(json, "mirrortrain"), *kernels = mirt__json_member(json, "kernels");
    ok(version && strcmp(version->string, mirt_version()) == 0, "it holds the version");
    ok(kernels && strcmp(kernels->string, mirt__kernels_best()->name) == 0, "and the kernels that run");
    int64_t devices = 0, replicas = 0;
    ok(mirt__json_get_int(json, "devices", 2, 2, &devices) == MIRT_OK &&
           mirt__json_get_int(json, "replicas", 6, 6, &replicas) == MIRT_OK,
       "and the strategy's numbers");
    const mirt__json *variables = mirt__json_member(json, "variables"),
                     *preload = variables ? mirt__json_member(variables, "LD_PRELOAD") : NULL;
    ok(preload && strcmp(preload->string, "a\"b\\??") == 0, "variables that are no UTF-8 are mended: %s",
       preload ? preload->string : "none");
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
    ok(mirt_machine(&m) == MIRT_OK && m.cores == mirt__cpu_cores() && m.core_limit >= 0,
       "the machine has %d cores, %g for us", m.cores, m.core_limit);
    ok(m.memory_available > 0 && m.memory_available <= m.memory_total && m.memory_limit <= m.memory_total,
       "of %.1f GB %.1f are free, the limit is %.1f", (double)m.memory_total * 1e-9, (double)m.memory_available * 1e-9,
       (double)m.memory_limit * 1e-9);
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
                ok(batch == 0 && mirt_last_status() == MIRT_E_NOMEM && strstr(mirt_last_error(), "not one sample fits"),
                   "%s", mirt_last_error());
                continue;
            }
            mirt_plan_memory(model, batch, &at);
            mirt_plan_memory(model, batch + 1, &beyond);
            ok(batch > 0 && at.total <= limit * (uint64_t)cases[c][0] && beyond.total > limit * (uint64_t)cases[c][0],
               "%d devices, %d replicas, %.4g bytes each: %lld fit in %zu, one more takes %zu", cases[c][0],
               cases[c][1], limits[i], (long long)batch, at.total, beyond.total);
        }
        mirt_strategy_destroy(strategy);
    }
    mirt_strategy *strategy = silent_strategy(NULL, 0);
    mirt_model *model = small_net(strategy, 2);
    ok(mirt_largest_batch(model, 0) > 1000, "what is there is enough for %lld",
       (long long)mirt_largest_batch(model, 0));
    ok(mirt_largest_batch(model, (uint64_t)1 << 50) == (int64_t)1 << 30, "there is an end: 2^30");
    ok(mirt_largest_batch(mirt_model_create(strategy, "raw"), 0) == 0 && mirt_last_status() == MIRT_E_STATE,
       "not compiled: %s", mirt_last_error());
    ok(mirt_largest_batch(NULL, 0) == 0, "no model: %s", mirt_last_error());
    mirt_strategy_destroy(strategy);
}

/* >>traps */

/* All that was logged, warnings and the rest. */
static char warned[4096], told[4096];
static int warnings;

static void hear(mirt_log_level level, const char *text, void *user) {
    char *to = level == MIRT_LOG_WARNING ? warned : told;
    (void)user;
    if (level == MIRT_LOG_WARNING && strstr(text, "core")) return;
    warnings += level == MIRT_LOG_WARNING;
    if (strlen(to) + strlen(text) + 2 < sizeof warned) strcat(strcat(to, text), " | ");
}

/* A program that trains a dense layer; all zeros is right in every way. */
typedef struct program {
    int devices, replicas;
    int64_t batch;
    float scale;       /* of the inputs; 0: 1 */
    bool bytes, rescaled, normalized, centered, same, constant;
    mirt_loss loss;    /* 0: binary cross-entropy */
    bool from_logits, accuracy, linear;
    int fits;
} program;

enum { SAMPLES = 96, FEATURES = 5 };

static mirt_dataset *samples_of(const program *p, int replicas) {
    static float x[SAMPLES][FEATURES], y[SAMPLES][1];
    static uint8_t bytes[SAMPLES][FEATURES];
    const int64_t batch = p->batch ? p->batch : 48, share = p->same ? batch / replicas : SAMPLES;
    for (int64_t i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < FEATURES; k++) {
            const int64_t row = p->constant ? 0 : i % share;
            bytes[i][k] = (uint8_t)((row * 37 + k * 11) % 256);
            x[i][k] = ((float)((row * 37 + k * 11) % 201) / 100 - 1) * (p->scale > 0 ? p->scale : 1);
        }
        y[i][0] = (float)(i % 2);
    }
    mirt_array labels = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, 1));
    mirt_array inputs = p->bytes ? mirt_make_array(bytes, MIRT_UINT8, MIRT_SHAPE(SAMPLES, FEATURES))
                                 : mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, FEATURES));
    return mirt_batch(mirt_arrays(inputs, labels), batch);
}

static mirt_model *compile_program(const program *p, mirt_strategy *strategy) {
    mirt_dense_desc dense;
    mirt_compile_desc compile;
    memset(&dense, 0, sizeof dense);
    memset(&compile, 0, sizeof compile);
    dense.units = 1;
    dense.activation = p->linear || p->from_logits ? MIRT_LINEAR : MIRT_SIGMOID;
    mirt_model *model = mirt_model_create(strategy, "net");
    mirt_normalization_desc constants;
    memset(&constants, 0, sizeof constants);
    constants.mean[0] = 100;
    mirt_tensor *in = mirt_input(model, MIRT_SHAPE(FEATURES));
    if (p->rescaled) in = mirt_rescale(in, 1.0f / 255, 0);
    if (p->normalized) in = mirt_batch_norm(in, NULL);
    if (p->centered)
        in = mirt_reshape(mirt_normalization(mirt_reshape(in, MIRT_SHAPE(FEATURES, 1)), &constants),
                          MIRT_SHAPE(FEATURES));
    mirt_model_output(model, mirt_dense(in, &dense));
    compile.optimizer = mirt_sgd(1e-4f, 0, false);
    compile.loss = p->loss ? p->loss : MIRT_BINARY_CROSSENTROPY;
    compile.from_logits = p->from_logits;
    if (p->accuracy) compile.metrics[0] = MIRT_ACCURACY;
    return mirt_compile(model, &compile) == MIRT_OK ? model : NULL;
}

/* False if it fails; `warned` and `told` hold what it heard. */
static bool run_program(const program *p) {
    char devices[8];
    mirt_strategy_desc desc;
    mirt_fit_desc fit;
    memset(&desc, 0, sizeof desc);
    memset(&fit, 0, sizeof fit);
    snprintf(devices, sizeof devices, "%d", p->devices ? p->devices : 2);
    desc.devices = devices;
    desc.replicas = p->replicas;
    desc.log = hear;
    fit.no_progress = true;
    fit.epochs = 2;
    warned[0] = told[0] = 0;
    warnings = 0;
    mirt_strategy *strategy = mirt_strategy_create(&desc);
    mirt_dataset *data = samples_of(p, mirt_num_replicas(strategy));
    mirt_model *model = compile_program(p, strategy);
    bool good = model != NULL;
    for (int i = 0; i <= p->fits && good; i++) good = mirt_fit(model, data, &fit) != NULL;
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(strategy);
    return good;
}

static void falls_in(const char *what, program p, const char *says) {
    p.fits = 2; /* it is told once all the same */
    bool good = run_program(&p);
    ok(good && warnings == 1 && strstr(warned, says), "%s: %s", what,
       good ? warned[0] ? warned : "nothing is said" : mirt_last_error());
}

static void is_right(const char *what, program p) {
    bool good = run_program(&p);
    ok(good && warnings == 0, "%s: no warning%s%s", what, warned, good ? "" : mirt_last_error());
}

static void test_traps(void) {
    program p;
    memset(&p, 0, sizeof p);
    is_right("a program without mistakes", p);
    ok(strstr(told, "global batch 48 = 2 x 24 (replicas x samples)") && strstr(told, "memory: "),
       "it is told its batch and its memory: %s", told);
    p.replicas = 4, p.batch = 31;
    falls_in("a batch that was meant for each replica", p,
             "31 samples on 4 replicas are 7 each, of which a device makes little use; if 31 were meant for each, a "
             "batch is 124");
    ok(!!strstr(told, "global batch 31 = 3 x 8 + 1 x 7"), "uneven shares: %s", told);
    p.batch = 3;
    falls_in("replicas without samples", p, "0 each or none at all");
    p.batch = 32;
    is_right("8 samples per replica", p);
    p.devices = p.replicas = 1, p.batch = 1;
    is_right("one replica, batches of 1", p);
    ok(!strstr(told, "global batch"), "nothing is dealt, so nothing is told of it");

    memset(&p, 0, sizeof p);
    p.scale = 21;
    falls_in("inputs that are not scaled", p, "the inputs reach 21, and dense of net takes them as they are");
    p.scale = 19;
    is_right("inputs up to 19", p);
    p.bytes = true;
    falls_in("bytes", p, "by mirt_rescale(x, 1.0f / 255, 0) behind mirt_input");
    p.rescaled = true;
    is_right("bytes after mirt_rescale", p);
    p.rescaled = false, p.normalized = true;
    is_right("bytes after batch normalization", p);
    p.normalized = false, p.centered = true;
    is_right("bytes after a normalization by constants", p);

    memset(&p, 0, sizeof p);
    p.same = true, p.replicas = 3;
    falls_in("the same samples for every replica", p, "all 3 replicas get the same 16 samples in the first batch");
    p.constant = true;
    is_right("constant data", p);

    memset(&p, 0, sizeof p);
    p.accuracy = true;
    is_right("binary accuracy of probabilities", p);
    p.from_logits = true;
    falls_in("binary accuracy of logits", p,
             "accuracy counts outputs above 0.5 as ones, but those of dense are logits");
    p.from_logits = false, p.linear = true, p.loss = MIRT_MEAN_SQUARED_ERROR;
    falls_in("binary accuracy of sums", p, "sums of a layer without an activation: give it MIRT_SIGMOID");
    p.accuracy = false;
    is_right("regression", p);
    p.loss = MIRT_BINARY_CROSSENTROPY;
    falls_in("sums for probabilities", p, "takes probabilities, but dense has no activation");
}

/* On pretended cores; `hear` leaves out what names cores, so that tests do not depend on the machine. */
static void hear_cores(mirt_log_level level, const char *text, void *user) {
    (void)user;
    if (strstr(text, "cores")) strcat(level == MIRT_LOG_WARNING ? warned : told, text);
}

static void test_idle_cores(void) {
    static const struct { const char *devices; int threads; const char *warning, *info;
    } cases[] = {
        {"3", 0, "2 of 5 cores stay idle: 3 devices get 1 each", ""},
        {"5", 0, "", ""},
        {NULL, 0, "", ""},
        {"1", 0, "", ""},
        {"2", 1, "", "3 of 5 cores are left to others"},
        {"cpu:0,cpu:3", 0, "", "3 of 5 cores are left to others"},
        {"2", 3, "same results, but not faster", ""},
    };
    setenv("MIRT_CORES", "5", 1);
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        mirt_strategy_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.devices = cases[i].devices;
        desc.threads = cases[i].threads;
        desc.log = hear_cores;
        warned[0] = told[0] = 0;
        mirt_strategy *strategy = mirt_strategy_create(&desc);
        ok(strategy && strstr(warned, cases[i].warning) && !warned[0] == !cases[i].warning[0] &&
               strstr(told, cases[i].info) && !told[0] == !cases[i].info[0],
           "devices %s, threads %d of 5 cores: %s%s", cases[i].devices ? cases[i].devices : "NULL", cases[i].threads,
           warned, told);
        mirt_strategy_destroy(strategy);
    }
    unsetenv("MIRT_CORES");
}

int main(void) {
    test_environment();
    test_machine();
    test_largest_batch();
    test_traps();
    test_idle_cores();
    return done_testing();
}
