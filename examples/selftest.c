// cc -O2 examples/selftest.c -o selftest -lm -lpthread
/* Checks in half a minute whether this machine's GPUs work together correctly. It tests what each copies and computes,
   whether replicas stay equal, and the speed-up of two, three and more GPUs. Compile it with nvcc -O2 -arch=native
   examples/selftest.c mirrortrain_cuda.cu -lcublas -lnccl; without GPUs it tests two devices of half of the cores each.
   Exit status 1 if anything is wrong. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 256, ROUNDS = 3, MOST = 16 };
static uint8_t pixels[MOST * BATCH][28 * 28];
static int32_t labels[MOST * BATCH];

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Trains on `devices` for about `seconds`: images per second of the fastest round, and the weights after `steps` steps
   of 64 images; false after a failure. */
static bool train(const char *devices, int replicas, int count, double seconds, double *rate, float *weights,
                  size_t size) {
    /* the log has the bandwidth */
    mirt_strategy *strategy = mirt_strategy_create(&(mirt_strategy_desc){
        .devices = devices, .replicas = replicas, .seed = 3, .silent = rate || !strchr(devices, ',')});
    mirt_model *model = strategy ? mirt_application(strategy, "mnist", NULL) : NULL;
    bool good = model && mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-3f),
                                                                  .loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY,
                                                                  .from_logits = true}) == MIRT_OK;
    double loss, best = 0;
    for (int step = 0; step < 10 && good && weights; step++) { /* with an equal number of replicas on all devices */
        good = mirt_train_step(model, mirt_make_array(pixels[step * 64], MIRT_UINT8, MIRT_SHAPE(64, 28, 28, 1)),
                               mirt_make_array(labels + step * 64, MIRT_INT32, MIRT_SHAPE(64)), &loss) == MIRT_OK;
    }
    if (good && weights)
        good =
            mirt_check_drift(model) == MIRT_OK && mirt_get_weight(model, "dense/kernel", 0, weights, size) == MIRT_OK;
    for (int round = 0; round <= ROUNDS && good && rate; round++) { /* the first warms up */
        const int64_t rows = (int64_t)BATCH * count;
        const double begin = now();
        int steps = 0;
        while (good && (steps < 4 || now() - begin < seconds / ROUNDS)) {
            good = mirt_train_step(model, mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(rows, 28, 28, 1)),
                                   mirt_make_array(labels, MIRT_INT32, MIRT_SHAPE(rows)), &loss) == MIRT_OK;
            steps++;
        }
        const double each = (double)rows * steps / (now() - begin);
        if (round > 0 && each > best) best = each;
    }
    if (rate) *rate = best;
    if (!good) printf("FAILED %s: %s\n", devices, mirt_last_error());
    mirt_strategy_destroy(strategy);
    return good;
}

int main(void) {
    static mirt_device_info info[4096]; /* cores come first */
    const int found = mirt_devices(info, 4096);
    char list[MOST][32] = {"1", "2"}, all[MOST * 32] = "";
    int devices = 0, failed = 0;
    for (int i = 0; i < found && i < 4096 && devices < MOST; i++) {
        if (strncmp(info[i].name, "gpu", 3) != 0) continue;
        printf("%s: %s\n", info[i].name, info[i].description);
        snprintf(list[devices++], sizeof list[0], "%s", info[i].name);
    }
    const bool cores = devices == 0;
    if (cores)
        printf("this machine has no GPU%s; testing two devices of cores instead\n", found > 0 ? "" : " and no core");
    if (cores) devices = 2;
    srand(1);
    for (int i = 0; i < MOST * BATCH; i++) {
        labels[i] = rand() % 10;
        for (int k = 0; k < 28 * 28; k++)
            pixels[i][k] = (uint8_t)((k / 28 * (labels[i] + 1) + k % 28) % 11 < 4 ? 200 + rand() % 56 : rand() % 60);
    }
    const size_t size = 5408 * 64;
    float *first = malloc(size * sizeof *first), *weights = malloc(size * sizeof *weights);
    double alone = 0, rate = 0;
    if (!first || !weights) return 1;
    for (int n = 1; n <= devices; n++) {
        if (!cores) snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", n > 1 ? "," : "", list[n - 1]);
        const char *names = cores ? list[n - 1] : all;
        /* An equal number of replicas gives bit-identical results on any number of devices. */
        const bool good = train(names, devices, n, 0, NULL, n == 1 ? first : weights, size) &&
                          train(names, n, n, 20.0 / devices, &rate, NULL, 0);
        const bool same = good && (n == 1 || memcmp(first, weights, size * sizeof *first) == 0);
        if (n == 1) alone = rate;
        failed += !good || !same;
        if (good)
            printf("%-6s %d device%s: %.0f images/s, %.2f times one's%s\n", same ? "ok" : "FAILED", n, n > 1 ? "s" : "",
                   rate, rate / alone, same ? "" : "; other weights than one's");
    }
    printf("%s\n", failed ? "something is wrong here: see above" : "replicas are equal");
    free(first);
    free(weights);
    return failed > 0;
}
