/* Training leaves no denormal numbers in weights and optimizer slots. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"
#include "denormals.h"

enum { SAMPLES = 4, FEATURES = 8, UNITS = 16 };

/* The gradients of half of the weights vanish after the first step, and Adam's first moments shrink by a tenth a step
   from there on. */
static void test_vanishing(int devices, mirt_optimizer optimizer, const char *name) {
    static float x[SAMPLES][FEATURES], y[SAMPLES][1];
    const int steps = 1200; /* 0.9^830 is the least normal number */
    mirt_strategy_desc desc;
    mirt_dense_desc dense;
    mirt_compile_desc compile;
    char number[16];
    memset(&desc, 0, sizeof desc);
    memset(&dense, 0, sizeof dense);
    memset(&compile, 0, sizeof compile);
    snprintf(number, sizeof number, "%d", devices);
    desc.devices = number;
    desc.replicas = 2;
    desc.silent = true;
    desc.seed = 3;
    mirt_strategy *strategy = mirt_strategy_create(&desc);
    mirt_model *model = mirt_model_create(strategy, "vanishing");
    dense.units = UNITS;
    dense.activation = MIRT_RELU;
    mirt_tensor *h = mirt_dense(mirt_input(model, MIRT_SHAPE(FEATURES)), &dense);
    dense.units = 1;
    dense.activation = MIRT_LINEAR;
    mirt_model_output(model, mirt_dense(h, &dense));
    compile.optimizer = optimizer;
    compile.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_status status = mirt_compile(model, &compile);
    for (int step = 0; step < steps && status == MIRT_OK; step++) {
        for (int i = 0; i < SAMPLES; i++) {
            for (int k = 0; k < FEATURES; k++) x[i][k] = k < FEATURES / 2 || step == 0 ? (float)(i + k + 1) * 0.1f : 0;
            y[i][0] = (float)i;
        }
        status = mirt_train_step(model, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, FEATURES)),
                                 mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, 1)), NULL);
    }
    int64_t zeros = 0;
    const int64_t weights = denormal_weights(model), slots = denormal_slots(model, &zeros);
    ok(status == MIRT_OK && weights == 0, "%s on %d devices, %d steps: no denormal weight: %lld %s", name, devices,
       steps, (long long)weights, mirt_last_error());
    ok(slots == 0 && zeros >= FEATURES / 2 * UNITS, "nor optimizer slot: %lld; %lld have become 0", (long long)slots,
       (long long)zeros);
    mirt_strategy_destroy(strategy);
}

int main(void) {
    for (int devices = 1; devices <= 2; devices++) {
        test_vanishing(devices, mirt_adam(1e-3f), "Adam");
        test_vanishing(devices, mirt_sgd(1e-3f, 0.9f, true), "SGD with momentum");
    }
    return done_testing();
}
