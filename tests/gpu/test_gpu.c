/* Training on a real GPU against the CPUs. Weights are the same but for rounding; one GPU and a GPU that is named four
   times give the same bits, as do graphs and single launches; the mixed policies keep the loss. Small enough for
   compute-sanitizer with MIRT_TEST_SMALL, and runs on a simulated device too. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../../mirrortrain.h"
#include "../mirror_util.h"
#include "../tap.h"

enum { DIGITS = 64, PHOTOS = 12 };
static uint8_t digits[DIGITS][28 * 28], photos[PHOTOS][32 * 32 * 3], labels[DIGITS];

static void draw(void) {
    mirt__random random = mirt__random_stream(5, 6);
    for (int i = 0; i < DIGITS; i++) labels[i] = (uint8_t)(i * 7 % 10);
    for (int i = 0; i < DIGITS; i++) {
        for (int k = 0; k < 28 * 28; k++)
            digits[i][k] = (uint8_t)((k / 28 * (labels[i] + 1) + k % 28) % 11 < 4
                                         ? 200 + mirt__random_below(&random, 56)
                                         : mirt__random_below(&random, 60));
    }
    for (int i = 0; i < PHOTOS; i++) {
        for (int k = 0; k < 32 * 32 * 3; k++) photos[i][k] = (uint8_t)mirt__random_below(&random, 256);
    }
}

/* What is trained, and how it is mirrored. */
typedef struct job {
    bool photos, bfloat16;
    const char *devices;
    int replicas, steps;
    mirt_collective collective;
} job;

static mirt_model *model_of(const job *j, mirt_strategy *s) {
    mirt_application_desc d;
    mirt_compile_desc c = image_compile(mirt_sgd(1e-3f, 0, false));
    memset(&d, 0, sizeof d);
    d.alpha = 0.35f;
    d.size = 32;
    d.classes = 10;
    mirt_model *m = j->photos ? mirt_mobilenet_v2(s, &d) : mirt_application(s, "mnist", NULL);
    c.from_logits = !j->photos;
    if (!j->photos) c.optimizer = mirt_adam(1e-3f);
    if (!m || mirt_compile(m, &c) != MIRT_OK || (j->bfloat16 && mirt_set_dtype_policy(m, "mixed_bfloat16") != MIRT_OK))
        return NULL;
    return m;
}

/* The weights after its steps, and the last loss; NULL with a failed check. */
static float *trained(const job *j, size_t *count, double *loss) {
    mirt_strategy_desc d;
    float *weights = NULL;
    const int batch = j->photos ? PHOTOS : 16;
    memset(&d, 0, sizeof d);
    d.devices = j->devices;
    d.replicas = j->replicas;
    d.repeat_devices = true;
    d.collective = j->collective;
    d.seed = 11;
    d.silent = true;
    mirt_strategy *s = mirt_strategy_create(&d);
    mirt_model *m = s ? model_of(j, s) : NULL;
    bool good = m != NULL;
    for (int step = 0; good && step < j->steps; step++) {
        const int first = j->photos ? 0 : step * batch % DIGITS;
        const mirt_array x = j->photos ? mirt_make_array(photos, MIRT_UINT8, MIRT_SHAPE(PHOTOS, 32, 32, 3))
                                       : mirt_make_array(digits[first], MIRT_UINT8, MIRT_SHAPE(batch, 28, 28, 1));
        good = mirt_train_step(m, x, mirt_make_array(labels + first, MIRT_UINT8, MIRT_SHAPE(batch)), loss) == MIRT_OK;
    }
    if (good) good = copies_agree(m);
    if (good) weights = all_weights(m, 0, count);
    ok(good, "%s, %d replicas on %s: %d steps%s%s", j->photos ? "MobileNetV2 0.35" : "MNIST's convnet", j->replicas,
       j->devices, j->steps, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
    return weights;
}

static double apart(const float *a, const float *b, size_t count) {
    double most = 1e-30, worst = 0;
    for (size_t i = 0; i < count; i++) {
        const double off = fabs((double)a[i] - (double)b[i]);
        most = fmax(most, fabs((double)b[i]));
        worst = off > worst || !(off <= worst) ? off : worst;
    }
    return worst / most;
}

static void check(bool of_photos, int steps) {
    const job cpu = {of_photos, false, "cpu", 4, steps, MIRT_COLLECTIVE_AUTO},
              one = {of_photos, false, "gpu:0", 4, steps, MIRT_COLLECTIVE_AUTO};
    const job four = {of_photos, false, "gpu:0,gpu:0,gpu:0,gpu:0", 4, steps, MIRT_COLLECTIVE_AUTO},
              half = {of_photos, true, "gpu:0", 4, steps, MIRT_COLLECTIVE_AUTO};
    size_t count = 0, other = 0;
    double loss[5] = {0}, own = 0;
    /* Normalization over the three images of a replica makes roundings large: how large, the CPUs' own kernels show. */
    setenv("MIRT_CPU", "reference", 1);
    float *e = trained(&cpu, &count, &loss[4]);
    unsetenv("MIRT_CPU");
    float *a = trained(&cpu, &count, &loss[0]), *b = trained(&one, &other, &loss[1]),
          *c = trained(&four, &other, &loss[2]), *d = trained(&half, &other, &loss[3]);
    const char *name = of_photos ? "MobileNetV2 0.35" : "MNIST's convnet";
    if (a && e) own = apart(e, a, count);
    if (a && b)
        ok(apart(b, a, count) < 1e-5 + 5 * own && fabs(loss[1] / loss[0] - 1) < 1e-4 + 5 * fabs(loss[4] / loss[0] - 1),
           "%s: the CPUs' weights but for %.1e (the CPUs' own kernels differ by %.1e), loss %.6g and %.6g", name,
           apart(b, a, count), own, loss[1], loss[0]);
    if (b && c)
        ok(memcmp(b, c, count * sizeof *b) == 0, "%s: four replicas on gpu:0, and on gpu:0 four times: the same bits",
           name);
    if (b && d)
        ok(fabs(loss[3] / loss[1] - 1) < (of_photos ? 0.3 : 0.03), "%s: mixed_bfloat16's loss is %.5g, float32's %.5g",
           name, loss[3], loss[1]);
    free(a);
    free(b);
    free(c);
    free(d);
    free(e);
}

int main(void) {
    if (mirt_devices(NULL, 0) <= mirt__cpu_cores()) {
        skip("there is no GPU");
        return done_testing();
    }
    draw();
    check(false, small_tier() ? 4 : 20);
    check(true, small_tier() ? 1 : 2);
    const job nccl = {false, false, "gpu:0", 2, 4, MIRT_NCCL};
    size_t count;
    double loss;
    free(trained(&nccl, &count, &loss));
    return done_testing();
}
