/* The verdict on tables of seconds made up here: cause, device, speedup and words. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

enum { STEPS = 100 };

/* Seconds of a step, means over devices. */
typedef struct costs {
    double compute, input, update, reduce, meet, callbacks;
} costs;

/* Devices with equal work, rows per replica, one replica per device. */
static mirt_timing table(int devices, double rows, costs c) {
    mirt_timing t;
    memset(&t, 0, sizeof t);
    t.steps = STEPS;
    t.num_devices = t.replicas = devices;
    t.samples = (int64_t)(rows * devices * STEPS);
    t.threads = 1;
    t.cores = 8;
    t.workers = 2;
    t.parallel = t.ahead = true;
    snprintf(t.input, sizeof t.input, "copying samples");
    t.seconds[MIRT_PHASE_FORWARD] = c.compute / 4 * STEPS;
    t.seconds[MIRT_PHASE_BACKWARD] = c.compute * 3 / 4 * STEPS;
    t.seconds[MIRT_PHASE_INPUT] = c.input * STEPS;
    t.seconds[MIRT_PHASE_UPDATE] = c.update * STEPS;
    t.seconds[MIRT_PHASE_REDUCE] = c.reduce * STEPS;
    t.seconds[MIRT_PHASE_IMBALANCE] = c.meet * STEPS;
    t.seconds[MIRT_PHASE_CALLBACKS] = c.callbacks * STEPS;
    for (int p = 0; p < MIRT_PHASE_COUNT; p++) t.wall += t.seconds[p];
    for (int d = 0; d < devices; d++) {
        mirt_device_timing *own = &t.device[d];
        snprintf(own->name, sizeof own->name, "cpu:%d", d);
        memcpy(own->seconds, t.seconds, sizeof own->seconds);
        own->replicas = 1;
        own->samples = t.samples / devices;
        own->least_sample = c.compute / rows;
        own->least_update = c.update;
        own->least_reduce = c.reduce;
    }
    return t;
}

/* The device computes for so many seconds per step, and is the slowest in so many steps. */
static void computes(mirt_timing *t, int device, double seconds, int64_t slowest) {
    t->device[device].seconds[MIRT_PHASE_FORWARD] = 0;
    t->device[device].seconds[MIRT_PHASE_BACKWARD] = seconds * STEPS;
    t->device[device].slowest = slowest;
}

static void expect(mirt_timing *t, mirt_bottleneck kind, const char *words, const char *what) {
    mirt__verdict(t);
    ok(t->bottleneck == kind && strstr(t->verdict, words), "%s: %d, \"%s\"", what, (int)t->bottleneck, t->verdict);
}

static bool near(double a, double b) { return fabs(a - b) < 1e-9 * fmax(1, fabs(b)); }

static void test_too_few(void) {
    mirt_timing t = table(1, 32, (costs){.compute = 1e-2});
    t.steps = 0;
    mirt__verdict(&t);
    ok(!t.verdict[0] && t.bottleneck == MIRT_BALANCED && t.speedup == 1 && t.culprit == -1, "no step: no verdict");
    t.steps = STEPS;
    t.wall = 0;
    mirt__verdict(&t);
    ok(!t.verdict[0] && t.bottleneck == MIRT_BALANCED, "no time: no verdict");
    t.wall = 1;
    t.steps = 1;
    expect(&t, MIRT_BALANCED, "1 step: too few to tell what takes the time, 5 are needed", "one step");
    t.steps = 4;
    expect(&t, MIRT_BALANCED, "4 steps: too few", "four steps");
    t = table(1, 32, (costs){.compute = 9e-3, .update = 1e-3});
    expect(&t, MIRT_BALANCED, "balanced: 90 % of the step is forward and backward", "one device");
    ok(t.speedup == 1 && !strstr(t.verdict, "if fixed"), "nothing is to be fixed");
}

static void test_input(void) {
    const costs half = {.compute = 1e-2, .input = 1e-2};
    mirt_timing t = table(1, 128, half);
    t.ahead = false;
    expect(&t, MIRT_SLOW_INPUT, "input-bound: 50 % of the step waits for copying samples; nothing is made ahead",
           "no prefetch");
    ok(near(t.share, 0.5) && near(t.speedup, 2) && strstr(t.verdict, "; if fixed: x2.0"),
       "half of the time, twice the speed");
    t = table(1, 128, half);
    t.parallel = false;
    expect(&t, MIRT_SLOW_INPUT, "one thread makes the samples, as a stream must", "a stream");
    t = table(1, 128, half);
    expect(&t, MIRT_SLOW_INPUT, "2 workers, which wait for something themselves", "seconds of samples not known");
    t.sample_seconds = 1e-4;
    t.workers = 1;
    expect(&t, MIRT_SLOW_INPUT, "1 worker, 2 would do;", "two of eight cores, all of one worker");
    t.sample_seconds = 1e-3;
    t.workers = 2;
    t.cores = 16;
    expect(&t, MIRT_SLOW_INPUT, "2 workers, 13 would do;", "cores enough");
    t.cores = 4;
    expect(&t, MIRT_SLOW_INPUT, "2 workers, 13 would do, but there are 4 cores: keep", "too few cores");
    t.cores = t.workers = 1;
    expect(&t, MIRT_SLOW_INPUT, "1 worker, 13 would do, but there is 1 core: keep", "one core");
    t = table(1, 128, (costs){.input = 1e-2});
    t.sample_seconds = 1e-3;
    expect(&t, MIRT_SLOW_INPUT, "100 % of the step waits", "nothing but input");
    ok(t.speedup == 1 && strstr(t.verdict, "which wait for something"), "no number of workers can be told");
    t = table(1, 4096, (costs){.compute = 6e-5, .input = 4e-5});
    expect(&t, MIRT_BALANCED, "balanced: 60 %", "less than 50 microseconds of input");
}

static void test_callbacks(void) {
    mirt_timing t = table(1, 64, (costs){.compute = 8e-3, .callbacks = 2e-3});
    expect(&t, MIRT_SLOW_CALLBACKS, "callbacks: 20 % of the step is spent in callbacks; if fixed: x1.2", "a fifth");
    t = table(1, 64, (costs){.compute = 5e-3, .input = 3e-3, .callbacks = 2e-3});
    expect(&t, MIRT_SLOW_INPUT, "input-bound: 30 %", "what holds up more is named");
}

/* >>devices */

static void test_slow_device(void) {
    mirt_timing t = table(2, 64, (costs){.compute = 1.5e-2, .meet = 5e-3});
    computes(&t, 0, 1e-2, 10);
    computes(&t, 1, 2e-2, 90);
    expect(&t, MIRT_SLOW_DEVICE, "device cpu:1 is slow: it takes 2.0 times as long for a sample as the others",
           "twice as slow");
    ok(t.culprit == 1 && near(t.share, 0.5), "by half of the step");
    t.device[1].slowest = 60;
    expect(&t, MIRT_SHARED_CORES, "now for one, now for another: other programs run on their cores", "by turns");
    ok(t.culprit == -1, "nobody is the culprit");
    t = table(3, 64, (costs){.compute = 1.8e-2, .meet = 5e-3});
    computes(&t, 0, 1e-2, 0);
    computes(&t, 1, 2e-2, 70);
    computes(&t, 2, 2.5e-2, 70);
    expect(&t, MIRT_SLOW_DEVICE, "device cpu:2 is slow", "the slower one of two, after the other");
    ok(t.culprit == 2, "is the culprit");
    computes(&t, 0, 2.5e-2, 70);
    computes(&t, 2, 1e-2, 0);
    expect(&t, MIRT_SLOW_DEVICE, "device cpu:0 is slow", "the slower one of two, before the other");
    ok(t.culprit == 0, "is the culprit");
    t = table(2, 64, (costs){.compute = 1.5e-2, .input = 3e-2, .meet = 5e-3});
    computes(&t, 0, 1.2e-2, 0);
    computes(&t, 1, 1.8e-2, 100);
    expect(&t, MIRT_SLOW_INPUT, "input-bound: 60 %", "input that holds up more");
    ok(t.culprit == -1, "has no culprit");
}

/* Devices that cannot be compared, or hardly differ. */
static void test_like_devices(void) {
    mirt_timing t = table(2, 64, (costs){.compute = 1e-2});
    computes(&t, 1, 1e-2, 100);
    t.device[1].samples = 0;
    expect(&t, MIRT_BALANCED, "balanced", "a device without samples");
    t = table(2, 64, (costs){.compute = 1e-2});
    computes(&t, 0, 0, 0);
    computes(&t, 1, 1e-2, 100);
    expect(&t, MIRT_BALANCED, "balanced", "the others compute nothing");
    t = table(2, 64, (costs){.compute = 1e-2});
    computes(&t, 0, 9.3e-3, 0);
    computes(&t, 1, 1.07e-2, 100);
    expect(&t, MIRT_BALANCED, "balanced", "the same samples in hardly more time");
}

static void test_uneven(void) {
    for (int most = 0; most < 2; most++) {
        mirt_timing t = table(2, 96, (costs){.compute = 1.5e-2, .meet = 5e-3});
        t.replicas = 3;
        t.device[most].samples = t.samples * 2 / 3;
        t.device[1 - most].samples = t.samples / 3;
        computes(&t, most, 2e-2, 100);
        computes(&t, 1 - most, 1e-2, 0);
        expect(&t, MIRT_UNEVEN_SHARES,
               most ? "3 replicas on 2 devices leave cpu:1 with 67 % of the samples"
                    : "3 replicas on 2 devices leave cpu:0 with 67 % of the samples",
               "two of three replicas");
        ok(strstr(t.verdict, "replicas should be a multiple of the devices") != NULL, "replicas are to be changed");
        t.replicas = 2;
        expect(&t, MIRT_UNEVEN_SHARES, "the batch should be a multiple of the replicas", "two replicas");
    }
}

static void test_shared_cores(void) {
    mirt_timing t = table(4, 64, (costs){.compute = 1e-2, .meet = 5e-3});
    t.threads = 2;
    t.cores = 4;
    expect(&t, MIRT_SHARED_CORES, "shared cores: 4 devices of 2 threads take turns on 4 cores", "too few cores");
    ok(t.speedup == 1 && !strstr(t.verdict, "if fixed"), "which cannot be fixed");
    t.threads = 1;
    t.cores = 1;
    expect(&t, MIRT_SHARED_CORES, "4 devices of 1 thread take turns on 1 core,", "one core");
    t = table(1, 64, (costs){.compute = 1e-2, .meet = 2e-3});
    expect(&t, MIRT_BALANCED, "balanced", "one device has nobody to meet");
}

static void test_reduce(void) {
    mirt_timing t = table(2, 256, (costs){.compute = 1e-2, .update = 1e-3, .reduce = 9e-3});
    expect(&t, MIRT_SLOW_REDUCE, "all-reduce: 45 % of the step adds up gradients over devices", "a large share");
    t = table(2, 256, (costs){.compute = 1e-2, .update = 5e-3, .reduce = 5e-3});
    expect(&t, MIRT_BALANCED, "balanced: 50 %", "no more than two and a half updates");
    t = table(1, 256, (costs){.compute = 1e-2, .update = 1e-3, .reduce = 9e-3});
    expect(&t, MIRT_BALANCED, "balanced: 50 %", "of one device");
}

/* >>size */

static void test_small_batch(void) {
    mirt_timing t = table(1, 4, (costs){.compute = 1e-3, .update = 2e-3});
    expect(&t, MIRT_SMALL_BATCH, "batch 4 per replica is too small: 67 % of the step", "an update of two thirds");
    t.replicas *= 4;
    expect(&t, MIRT_SMALL_BATCH, "batch 4 per replica is too small", "as much, in one of four processes");
    ok(strstr(t.verdict, "; 128 per replica would spread it; if fixed: x2.8") && t.speedup > 2.8 && t.speedup < 2.85,
       "a power of two with which a tenth is lost");
    t = table(1, 4, (costs){.update = 2e-3});
    t.device[0].least_sample = 1e-5;
    expect(&t, MIRT_SMALL_BATCH, "; 8 per replica would spread it", "no time for computing: twice the batch");
    t = table(1, 100, (costs){.compute = 1e-4, .update = 1e-2});
    t.device[0].least_sample = 2e-6;
    expect(&t, MIRT_SMALL_BATCH, "; 256 per replica", "not more than 256, or twice the batch");
    t = table(1, 8, (costs){.compute = 8e-4, .meet = 5e-4});
    expect(&t, MIRT_SMALL_BATCH, "batch 8 per replica is too small: 38 %", "starting alone, of a brief step");
    t = table(1, 8, (costs){.compute = 8e-4, .meet = 3e-4});
    expect(&t, MIRT_BALANCED, "balanced: 73 %", "of which it takes less than a third");
    t = table(1, 8, (costs){.compute = 8e-3, .meet = 5e-3});
    expect(&t, MIRT_BALANCED, "balanced", "of a step that is not brief");
    t = table(1, 17, (costs){.compute = 8e-4, .meet = 5e-4});
    expect(&t, MIRT_BALANCED, "balanced", "of a batch that is not small");
    t = table(1, 129, (costs){.compute = 1e-3, .update = 2e-3});
    expect(&t, MIRT_BALANCED, "balanced: 33 %", "a large batch, whatever the update takes");
    t = table(1, 512, (costs){.compute = 1e-4, .meet = 1e-4});
    expect(&t, MIRT_SMALL_BATCH, "; 1024 per replica would spread it", "a tiny model on one device: twice the batch");
}

static void test_small_model(void) {
    mirt_timing t = table(2, 64, (costs){.compute = 5e-5, .update = 1e-5, .meet = 2e-4});
    expect(&t, MIRT_SMALL_MODEL, "model too small for 2 devices: each computes for 0.05 ms of a step of 0.26 ms",
           "two devices that meet");
    ok(strstr(t.verdict, "one device would do; if fixed: x2.2") && near(t.speedup, 2.6e-4 / 1.2e-4),
       "take longer than one");
    t = table(2, 64, (costs){.compute = 5e-5, .update = 1e-5, .meet = 2e-6});
    t.seconds[MIRT_PHASE_REDUCE] = 1e-6 * STEPS;
    t.wall += 1e-6 * STEPS;
    expect(&t, MIRT_SMALL_MODEL, "a larger batch gives them more to do", "so little that meeting cannot pay");
    ok(t.speedup == 1, "one device takes no less");
    t = table(2, 128, (costs){.compute = 1e-4, .update = 1e-5});
    expect(&t, MIRT_BALANCED, "balanced", "enough of it to share");
}

int main(void) {
    test_too_few();
    test_input();
    test_callbacks();
    test_slow_device();
    test_like_devices();
    test_uneven();
    test_shared_cores();
    test_reduce();
    test_small_batch();
    test_small_model();
    return done_testing();
}
