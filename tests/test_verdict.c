/* Tests the table of a fit's time and its verdict. Planted bottlenecks are named, balanced runs are not blamed,
   and the phases add up to the whole. Devices, samples and wake-ups take simulated time (simulated_time.h), so the
   verdict does not depend on the machine. With TIMED (long_verdict.c) they take real time. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "mirror_util.h"
#include "simulated_time.h"

enum { MOST_DEVICES = 4, SAMPLES = 512, SIDE = 6 };
static const double compute = 12e-3; /* seconds per device and step */

#ifdef TIMED
/* Of the time of a fit: a thread may lose its core between two readings of the clock that belong together. */
static const double tolerance = 0.02;
/* Fits until one is judged as it should be: while another program has the cores, "shared cores" is right too. */
static const int most_tries = 5;
#else
static const double tolerance = 1e-6; /* the clock counts nanoseconds */
static const int most_tries = 1;
#endif

/* What is put in: seconds at each kind of point, on each device. */
static double nap[5][MOST_DEVICES];

void hook_point(int kind, int device, int number) {
    (void)number;
    simulated_sleep(nap[kind][device]);
}

static float pixels[SAMPLES][SIDE * SIDE];
static int32_t classes[SAMPLES];
static mirt__random dice;

static int drawn(int from, int to) { return from + (int)mirt__random_below(&dice, (uint64_t)(to - from + 1)); }

static mirt_model *model_of(mirt_strategy *s, int hidden) {
    mirt_model *m = mirt_model_create(s, "net");
    mirt_compile_desc c;
    mirt_dense_desc d;
    mirt_conv2d_desc conv;
    memset(&c, 0, sizeof c);
    memset(&d, 0, sizeof d);
    memset(&conv, 0, sizeof conv);
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(SIDE, SIDE, 1));
    conv.filters = 2;
    conv.kernel[0] = 3;
    if (!hidden) x = mirt_conv2d(x, &conv);
    x = mirt_flatten(x);
    d.units = hidden ? hidden : 8;
    d.activation = MIRT_RELU;
    x = mirt_dense(x, &d);
    d.units = 4;
    d.activation = MIRT_LINEAR;
    mirt_model_output(m, mirt_dense(x, &d));
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    if (drawn(0, 1)) c.optimizer = mirt_sgd(1e-2f, 0, false);
    mirt_compile(m, &c);
    return m;
}

static int slow_map(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in;
    (void)out;
    (void)index;
    simulated_sleep(*(const double *)user);
    return 0;
}

typedef struct run {
    int devices, replicas, rows, steps; /* rows of a replica */
    int hidden;                         /* 0: a convolution */
    double map;                         /* seconds of a sample; 0: no map */
    int workers;
    double wake; /* seconds from a signal until the thread that it wakes runs */
} run;

/* Trains; whether the seconds of all devices make up the time of the fit. */
static bool train(const run *r, mirt_timing *t, char text[2048]) {
    simulated_begin(r->wake, 1);
    mirt_strategy *s = strategy_of(r->devices, r->replicas, 1);
    mirt_model *m = s ? model_of(s, r->hidden) : NULL;
    mirt_fit_desc d;
    mirt_map_desc map;
    memset(&d, 0, sizeof d);
    memset(&map, 0, sizeof map);
    map.fn = slow_map;
    map.user = (void *)&r->map;
    map.name = "smudging";
    mirt_dataset *data = mirt_arrays(mirt_make_array(pixels, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, SIDE, SIDE, 1)),
                                     mirt_make_array(classes, MIRT_INT32, MIRT_SHAPE(SAMPLES)));
    if (r->map > 0) data = mirt_map(data, &map);
    data = mirt_batch(mirt_repeat(mirt_shuffle(data, SAMPLES), 0), (int64_t)r->rows * r->replicas);
    if (r->map > 0) data = mirt_prefetch(data, 3);
    if (r->workers) mirt_dataset_workers(data, r->workers);
    d.steps_per_epoch = (r->steps + 1) / 2;
    d.epochs = 2;
    d.no_progress = true;
    mirt_history *h = m ? mirt_fit(m, data, &d) : NULL;
    memset(t, 0, sizeof *t);
    bool good =
        h && mirt_fit_timing(m, t) == MIRT_OK && h->steps == t->steps && t->samples == t->steps * r->rows * r->replicas;
    double mean = 0;
    for (int i = 0; good && i < MIRT_PHASE_COUNT; i++) mean += t->seconds[i];
    for (int k = 0; good && k < t->num_devices; k++) {
        double sum = 0;
        for (int i = 0; i < MIRT_PHASE_COUNT; i++) {
            good = good && t->device[k].seconds[i] >= 0;
            sum += t->device[k].seconds[i];
        }
        good = good && fabs(sum - h->seconds) <= tolerance * h->seconds;
    }
    good = good && fabs(mean - h->seconds) <= tolerance * h->seconds &&
           fabs(t->wall - h->seconds) <= tolerance * h->seconds;
    const char *table = h ? mirt_timing_text(m) : NULL;
    snprintf(text, 2048, "%s", table ? table : mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    simulated_end();
    return good;
}

/* The verdict must not depend on what a wake-up costs where that is little beside what is put in. */
static double cheap_wake(void) {
#ifdef TIMED
    return 0; /* the machine's come on top */
#else
    static const double seconds[] = {0, 5e-6, 50e-6, 200e-6};
    return seconds[drawn(0, MIRT__COUNT(seconds) - 1)];
#endif
}

/* Some numbers of devices and replicas; every device computes `each` seconds per step. */
static run drawn_run(int least_devices, double each) {
    run r;
    memset(&r, 0, sizeof r);
    memset(nap, 0, sizeof nap);
    r.devices = drawn(least_devices, MOST_DEVICES);
    r.replicas = r.devices * drawn(1, 2);
    r.rows = drawn(3, 20);
    r.steps = 16;
    r.wake = cheap_wake();
    r.hidden = drawn(0, 1) * drawn(4, 24);
    for (int d = 0; d < MOST_DEVICES; d++) nap[MIRT__POINT_REPLAY][d] = each * r.devices / r.replicas;
    return r;
}

static void check(const run *r, mirt_bottleneck wanted, const char *word, const char *what) {
    mirt_timing t;
    char text[2048];
    bool good = false;
    for (int tries = 0; !good && tries < most_tries; tries++) {
        const bool sums = train(r, &t, text);
        good = sums && t.bottleneck == wanted && strstr(t.verdict, word);
    }
    for (char *line = text, *end; !good && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        printf("# %.*s\n", (int)(end - line), line);
    }
    ok(good, "%s, wake-ups of %g us, %d devices, %d replicas of %d rows: %s", what, 1e6 * r->wake, r->devices,
       r->replicas, r->rows, t.verdict);
}

static void slow_input(int severity) {
    static const double share[] = {0.2, 0.4, 0.65};
    run r = drawn_run(1, compute);
    r.workers = drawn(1, 2);
    r.map = compute / (1 - share[severity]) * r.workers / (r.rows * r.replicas);
    check(&r, MIRT_SLOW_INPUT, "of the step waits for smudging; ", "slow input");
}

static void tiny_batch(int severity) {
    run r = drawn_run(1, compute);
    r.rows = 4 >> severity;
    for (int d = 0; d < MOST_DEVICES; d++) {
        nap[MIRT__POINT_REPLAY][d] = r.rows * 2e-3 * r.devices / r.replicas;
        nap[MIRT__POINT_UPDATE][d] = compute;
    }
    check(&r, MIRT_SMALL_BATCH, "per replica is too small: ", "tiny batch");
}

static void slow_reduce(int severity) {
    static const double times[] = {0.35, 1, 2.5};
    run r = drawn_run(2, compute);
    for (int d = 0; d < MOST_DEVICES; d++) nap[MIRT__POINT_COLLECTIVE][d] = times[severity] * compute;
    check(&r, MIRT_SLOW_REDUCE, "all-reduce: ", "slow all-reduce");
}

static void slow_device(int severity) {
    static const double times[] = {1.5, 2, 4};
    char name[64];
    run r = drawn_run(2, compute);
    int d = drawn(0, r.devices - 1);
    nap[MIRT__POINT_REPLAY][d] *= times[severity];
    snprintf(name, sizeof name, "device cpu:%d is slow", d);
    check(&r, MIRT_SLOW_DEVICE, name, "slow device");
}

/* Devices compute for microseconds: whatever a wake-up costs, the model is too small for several devices. */
static void tiny_model(int severity) {
    run r = drawn_run(2, 0);
    r.hidden = 8 >> severity;
#ifdef TIMED
    r.steps = 200;
    check(&r, MIRT_SMALL_MODEL, "model too small for ", "tiny model");
#else
    static const double wakes[] = {1e-6, 10e-6, 60e-6, 300e-6, 2e-3};
    for (int i = 0; i < MIRT__COUNT(wakes); i++) {
        r.wake = wakes[i];
        const double row = drawn(1, 8) * 1e-7 / (1 << severity); /* 256 of them stay below 300 us */
        for (int d = 0; d < MOST_DEVICES; d++) {
            nap[MIRT__POINT_REPLAY][d] = r.rows * row;
            nap[MIRT__POINT_COLLECTIVE][d] = drawn(1, i > 1 ? 30 : 10) * 1e-7; /* little beside the step */
            nap[MIRT__POINT_UPDATE][d] = drawn(5, 20) * 1e-7;
        }
        check(&r, MIRT_SMALL_MODEL, "model too small for ", "tiny model");
    }
#endif
}

static void balanced(int kind) {
    run r = drawn_run(1, compute);
    if (kind % 2) { /* of few samples: the shortest sleep takes its time */
        r.rows = drawn(1, 3);
        r.workers = drawn(1, 2);
        r.map = compute / 8 * r.workers / (r.rows * r.replicas);
    }
    check(&r, MIRT_BALANCED, "balanced: ", "balanced");
}

#ifdef TIMED
/* A network that computes: nothing is put in. */
static void check_network(void) {
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_application(s, "mnist", NULL);
    mirt_compile_desc c;
    mirt_fit_desc d;
    mirt_timing t;
    memset(nap, 0, sizeof nap);
    memset(&c, 0, sizeof c);
    memset(&d, 0, sizeof d);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    d.no_progress = true;
    mirt_dataset *data = mirt_batch(mirt_drawn_digits(640, 1, MIRT_TRAIN), 64);
    bool good = mirt_compile(m, &c) == MIRT_OK;
    for (int tries = 0; good && tries < most_tries; tries++) {
        good = mirt_fit(m, data, &d) && mirt_fit_timing(m, &t) == MIRT_OK;
        if (good && t.bottleneck == MIRT_BALANCED) break;
    }
    ok(good && t.bottleneck == MIRT_BALANCED, "digits in batches of 64: %s", good ? t.verdict : mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}
#endif

static int callback_saw;

static int look(const mirt_event *event, void *user) {
    mirt_timing t;
    (void)user;
    if (mirt_fit_timing(event->model, &t) == MIRT_OK && t.steps == event->step + 1 && t.wall > 0 &&
        t.device[1].samples > 0)
        callback_saw++;
    return 0;
}

static void check_calls(void) {
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0), *other = image_model(s, mirt_adam(1e-3f), 0);
    mirt_timing t;
    mirt_callback c;
    mirt_fit_desc d;
    memset(nap, 0, sizeof nap);
    memset(&c, 0, sizeof c);
    memset(&d, 0, sizeof d);
    c.batch_end = look;
    d.callbacks[0] = &c;
    d.no_progress = true;
    ok(mirt_fit_timing(m, &t) == MIRT_E_STATE && !mirt_timing_text(m), "before a fit: \"%s\"", mirt_last_error());
    ok(mirt_fit_timing(NULL, &t) != MIRT_OK && mirt_fit_timing(m, NULL) == MIRT_E_INVALID && !mirt_timing_text(NULL),
       "without a model: \"%s\"", mirt_last_error());
    ok(mirt_fit_arrays(m, images_x(0, 96), images_y(0, 96), &d) && callback_saw == 3, "a callback may ask");
    ok(mirt_fit_timing(m, &t) == MIRT_OK && t.steps == 3 && t.samples == 96 && t.device[0].samples == 48 &&
           t.device[1].replicas == 1,
       "48 of 96 samples on each device");
    ok(t.device[0].memory > 0 && t.device[0].busy > 0 && t.device[0].busy <= 1, "%zu bytes on a device, %.0f %% busy",
       t.device[0].memory, 100 * t.device[0].busy);
#ifdef __linux__
    ok(t.peak_memory > 1000000, "%zu bytes of the process", t.peak_memory);
#endif
    ok(t.seconds[MIRT_PHASE_FORWARD] > 0 && t.seconds[MIRT_PHASE_BACKWARD] > 0 && t.seconds[MIRT_PHASE_UPDATE] > 0 &&
           t.seconds[MIRT_PHASE_REDUCE] > 0 && t.seconds[MIRT_PHASE_CALLBACKS] > 0,
       "forward, backward, all-reduce, update and callbacks take time");
    ok(mirt_fit_arrays(other, images_x(0, 32), images_y(0, 32), NULL) && mirt_fit_timing(m, &t) == MIRT_E_STATE &&
           mirt_fit_timing(other, &t) == MIRT_OK,
       "only the last fit is told of");
    ok(strcmp(mirt_phase_name(MIRT_PHASE_INPUT), "input wait") == 0 &&
           strcmp(mirt_phase_name((mirt_phase)-1), "no phase") == 0 &&
           strcmp(mirt_phase_name((mirt_phase)99), "no phase") == 0,
       "phases have names");
    mirt_strategy_destroy(s);
}

/* A trace of few slices says how many it leaves out; failures leave no trace. */
static void check_trace(void) {
    char path[256], text[4096];
    mirt_strategy *s = strategy_of(2, 4, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    mirt_fit_desc d;
    memset(nap, 0, sizeof nap);
    memset(&d, 0, sizeof d);
    d.no_progress = true;
    snprintf(path, sizeof path, "%s/trace_%ld.json", tap_tmpdir(), (long)time(NULL) ^ (long)mirt__random_u32(&dice));
    ok(mirt_trace_end(s) == MIRT_E_STATE, "none begun: \"%s\"", mirt_last_error());
    ok(mirt_trace_begin(s, "/nowhere/trace.json", 0) != MIRT_OK, "no directory: \"%s\"", mirt_last_error());
    ok(mirt_trace_begin(NULL, path, 0) != MIRT_OK && mirt_trace_begin(s, "", 0) != MIRT_OK &&
           mirt_trace_begin(s, path, -1) == MIRT_E_INVALID && mirt_trace_end(NULL) != MIRT_OK,
       "\"%s\"", mirt_last_error());
    bool good = mirt_trace_begin(s, path, 20) == MIRT_OK;
    ok(good && mirt_trace_begin(s, path, 0) == MIRT_E_STATE, "twice: \"%s\"", mirt_last_error());
    good = good && mirt_fit_arrays(m, images_x(0, 96), images_y(0, 96), &d) &&
           mirt_evaluate_arrays(m, images_x(0, 30), images_y(0, 30), NULL) == MIRT_OK;
    ok(good && mirt_trace_end(s) == MIRT_OK && !s->timeline[0].slice && !s->timeline[0].names, "a trace of 20 slices");
    mirt__file_peek(path, text, sizeof text);
    int64_t left = 0;
    const char *at = strstr(text, "\"left_out\":");
    int slices = 0;
    if (at) left = strtoll(at + 11, NULL, 10);
    for (const char *p = text; (p = strstr(p, "\"X\"")) != NULL; p++) slices++;
    ok(slices == 20 && left > 100, "has %d, and leaves %lld out", slices, (long long)left);
    remove(path);
    ok(mirt_trace_begin(s, path, 0) == MIRT_OK && mirt_train_step(m, images_x(0, 8), images_y(0, 8), NULL) == MIRT_OK,
       "a second one");
    mirt_strategy_destroy(s);
    ok(!mirt__file_exists(path), "ends without a file when its strategy is destroyed");
}

/* The seconds of a step in milliseconds, by phase, the same on all devices. */
static mirt_timing numbers(int devices, int64_t rows, const double ms[MIRT_PHASE_COUNT]) {
    mirt_timing t;
    memset(&t, 0, sizeof t);
    t.steps = 100;
    t.num_devices = t.replicas = devices;
    t.threads = 1;
    t.cores = 8;
    t.workers = 2;
    t.parallel = t.ahead = true;
    snprintf(t.input, sizeof t.input, "JPEG decoding");
    for (int i = 0; i < MIRT_PHASE_COUNT; i++) {
        t.seconds[i] = ms[i] * 0.1;
        t.wall += t.seconds[i];
        for (int d = 0; d < devices; d++) t.device[d].seconds[i] = t.seconds[i];
    }
    t.samples = 100 * rows * devices;
    for (int d = 0; d < devices; d++) {
        snprintf(t.device[d].name, sizeof t.device[d].name, "cpu:%d", d);
        t.device[d].samples = 100 * rows;
        t.device[d].replicas = 1;
        t.device[d].least_sample = (ms[MIRT_PHASE_FORWARD] + ms[MIRT_PHASE_BACKWARD]) * 1e-3 / (double)rows;
        t.device[d].least_update = ms[MIRT_PHASE_UPDATE] * 1e-3;
        t.device[d].least_reduce = ms[MIRT_PHASE_REDUCE] * 1e-3;
    }
    return t;
}

static void says(mirt_timing *t, mirt_bottleneck wanted, const char *words) {
    mirt__verdict(t);
    ok(t->bottleneck == wanted && strcmp(t->verdict, words) == 0, "%s", t->verdict);
}

static void check_words(void) {
    /*                                        input scatter fwd bwd hidden reduce update imbalance callbacks launch */
    static const double fine[] =             {0.1,  0,      30, 60, 0,     1,     3,     1,        0,        0};
    static const double input[] =            {38,   0,      20, 40, 0,     0,     2,     0,        0,        0};
    static const double update[] =           {0,    0,      2,  4,  0,     1,     4,     0,        0,        0.2};
    static const double reduce[] =           {0,    0,      20, 38, 0,     40,    2,     0,        0,        0};
    static const double tiny[] =             {0,    0,      .01, .01, 0,   .01,   .01,   .2,       0,        .16};
    static const double callbacks[] =        {0,    0,      30, 20, 0,     0,     1,     0,        49,       0};
    static const double waits[] =            {0,    0,      20, 40, 0,     1,     2,     37,       0,        0};
    mirt_timing t = numbers(2, 16, fine);
    says(&t, MIRT_BALANCED, "balanced: 95 % of the step is forward and backward");
    t = numbers(2, 16, input);
    t.sample_seconds = 62e-3 * 4 / 32 - 1e-5;
    says(&t, MIRT_SLOW_INPUT,
         "input-bound: 38 % of the step waits for JPEG decoding; 2 workers, 4 would do; if fixed: x1.6");
    t.cores = 2;
    says(&t, MIRT_SLOW_INPUT,
         "input-bound: 38 % of the step waits for JPEG decoding; 2 workers, 4 would do, but there are 2 cores: keep "
         "what is made in memory (mirt_cache); if fixed: x1.6");
    t.steps = 4;
    says(&t, MIRT_BALANCED, "4 steps: too few to tell what takes the time, 5 are needed");
    t.steps = 100;
    t.ahead = false;
    says(&t, MIRT_SLOW_INPUT,
         "input-bound: 38 % of the step waits for JPEG decoding; nothing is made ahead: mirt_prefetch behind "
         "mirt_batch; if fixed: x1.6");
    t = numbers(2, 8, update);
    says(&t, MIRT_SMALL_BATCH,
         "batch 8 per replica is too small: 46 % of the step takes as long for any batch (update, all-reduce, starting "
         "and waiting); 64 per replica would spread it; if fixed: x1.7");
    t = numbers(4, 32, reduce);
    says(&t, MIRT_SLOW_REDUCE,
         "all-reduce: 40 % of the step adds up gradients over devices; a larger batch needs it less often; if fixed: "
         "x1.7");
    t = numbers(4, 32, tiny);
    says(&t, MIRT_SMALL_MODEL,
         "model too small for 4 devices: each computes for 0.02 ms of a step of 0.4 ms, the rest is updating, starting "
         "and waiting for each other; one device would do; if fixed: x4.0");
    t = numbers(1, 32, callbacks);
    says(&t, MIRT_SLOW_CALLBACKS, "callbacks: 49 % of the step is spent in callbacks; if fixed: x2.0");
    t = numbers(4, 32, waits);
    says(&t, MIRT_SHARED_CORES,
         "shared cores: the devices wait for each other 37 % of the step, now for one, now for another: other programs "
         "run on their cores; if fixed: x1.6");
    t.cores = 2;
    says(&t, MIRT_SHARED_CORES,
         "shared cores: 4 devices of 1 thread take turns on 2 cores, and wait for each other 37 % of the step");
    t = numbers(2, 16, fine);
    t.device[1].seconds[MIRT_PHASE_BACKWARD] = 9; /* and the other waits */
    t.device[0].seconds[MIRT_PHASE_IMBALANCE] += 3;
    t.device[1].slowest = 90;
    t.seconds[MIRT_PHASE_BACKWARD] = 7.5;
    t.seconds[MIRT_PHASE_IMBALANCE] += 1.5;
    t.wall += 3;
    says(&t, MIRT_SLOW_DEVICE, "device cpu:1 is slow: it takes 1.3 times as long for a sample as the others, which "
                               "wait for it 24 % of the step; if fixed: x1.3");
    t.device[1].samples = 2134;
    t.device[0].samples = 3200 - t.device[1].samples;
    t.replicas = 3;
    says(&t, MIRT_UNEVEN_SHARES,
         "uneven: 3 replicas on 2 devices leave cpu:1 with 67 % of the samples, and the others "
         "wait for it 24 % of the step; replicas should be a multiple of the devices; if fixed: x1.3");
    memset(&t, 0, sizeof t);
    says(&t, MIRT_BALANCED, "");
}

int main(void) {
    static void (*const kinds[])(int) = {slow_input, tiny_batch, slow_reduce, slow_device, tiny_model};
    const int draws = small_tier() ? 1 : 2;
    mirt__random seeds = mirt__random_stream((uint64_t)time(NULL), 1);
    const uint64_t seed =
        getenv("MIRT_TEST_SEED") ? strtoull(getenv("MIRT_TEST_SEED"), NULL, 10) : mirt__random_u32(&seeds);
    dice = mirt__random_stream(seed, 2);
    printf("# MIRT_TEST_SEED=%llu\n", (unsigned long long)seed);
    draw_images();
    for (int i = 0; i < SAMPLES; i++) {
        classes[i] = drawn(0, 3);
        for (int k = 0; k < SIDE * SIDE; k++) pixels[i][k] = mirt__random_unit(&dice);
    }
#ifdef TIMED
    check_network();
#else
    check_words();
    check_calls();
    check_trace();
#endif
    for (int draw = 0; draw < draws; draw++) {
        for (int k = 0; k < MIRT__COUNT(kinds); k++) {
            for (int severity = 0; severity < 3; severity++) kinds[k](severity);
        }
        for (int i = 0; i < 4; i++) balanced(i);
    }
    return done_testing();
}
