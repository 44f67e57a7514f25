/* Compares the first 100 steps of the MNIST tutorial with float64 Keras. Its losses are in golden/mnist_losses.h; runs
   on one replica and on two. The files of MNIST are looked for in MIRT_MNIST_DIR. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/mnist_losses.h"
#include "tap.h"

typedef struct parity {
    mirt_model *model;
    int64_t steps;
    double first_ten, all;                /* losses, relative */
    double weight[2], slot[2];            /* after 10 and 100 steps, of each variable's largest value */
    bool good;
} parity;

static const float *variable_values(const mirt_model *m, const char *name, const char *kind) {
    for (int i = 0; i < m->num_variables; i++) {
        if (strcmp(m->variable[i].name, name) != 0) continue;
        const char *block = kind[0] == 'w' ? m->device_weight[m->strategy->num_devices - 1] : m->slot[kind[0] == 'v'];
        return (const float *)(const void *)(block + m->variable[i].offset);
    }
    return NULL;
}

static void compare_state(parity *p, const golden_mnist_state *g) {
    const float *have = variable_values(p->model, g->name, g->kind);
    double worst = have ? 0 : INFINITY, largest = 0;
    for (int i = 0; have && i < GOLDEN_MNIST_SAMPLES; i++) {
        double error = fabs((double)have[g->at[i]] - g->value[i]);
        worst = worse(worst, error);
    }
    for (int32_t i = 0; have && i < g->count; i++) largest = fmax(largest, fabs((double)have[i]));
    worst = worse(worst, fabs(largest - g->largest)) / g->largest;
    double *into = &(g->kind[0] == 'w' ? p->weight : p->slot)[g->step > 10];
    if (!(worst <= *into)) *into = worst;
}

static int after_batch(const mirt_event *event, void *user) {
    parity *p = (parity *)user;
    double loss = NAN;
    for (int i = 0; i < event->logs->count; i++) {
        if (strcmp(event->logs->name[i], "batch_loss") == 0) loss = event->logs->value[i];
    }
    if (p->steps >= GOLDEN_MNIST_STEPS) return 1;
    double error = fabs(loss / golden_mnist_loss[p->steps] - 1);
    if (p->steps < 10 && !(error <= p->first_ten)) p->first_ten = error;
    if (!(error <= p->all)) p->all = error;
    p->steps++;
    for (int i = 0; i < MIRT__COUNT(golden_mnist_states); i++) {
        if (golden_mnist_states[i].step == p->steps) compare_state(p, &golden_mnist_states[i]);
    }
    return 0;
}

static bool set_golden(mirt_model *m, const char *name, unsigned seed, float scale) {
    mirt_weight_info info;
    bool good = false;
    for (int i = 0; i < mirt_num_weights(m); i++) {
        if (mirt_weight(m, i, &info) != MIRT_OK || strcmp(info.name, name) != 0) continue;
        float *values = (float *)malloc((size_t)info.count * sizeof(float));
        for (int64_t k = 0; values && k < info.count; k++) values[k] = golden_uniform(seed, (uint32_t)k) * scale;
        good = values && mirt_set_weight(m, name, values, (size_t)info.count) == MIRT_OK;
        free(values);
    }
    return good;
}

static parity train(const char *directory, const char *devices, int replicas) {
    parity p;
    mirt_strategy_desc s;
    mirt_compile_desc c;
    mirt_callback callback;
    mirt_fit_desc fit;
    memset(&p, 0, sizeof p);
    memset(&s, 0, sizeof s);
    memset(&c, 0, sizeof c);
    memset(&callback, 0, sizeof callback);
    memset(&fit, 0, sizeof fit);
    s.devices = devices;
    s.replicas = replicas;
    s.threads = 1;
    s.silent = true;
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    callback.user = &p;
    callback.batch_end = after_batch;
    fit.callbacks[0] = &callback;
    fit.max_steps = GOLDEN_MNIST_STEPS;
    mirt_strategy *strategy = mirt_strategy_create(&s);
    p.model = mirt_model_by_name(strategy, "mnist");
    mirt_dataset *data = mirt_batch(mirt_mnist(directory, MIRT_TRAIN), GOLDEN_MNIST_BATCH);
    p.good = data && mirt_compile(p.model, &c) == MIRT_OK && set_golden(p.model, "conv2d/kernel", 11, 1.0f / 8) &&
             set_golden(p.model, "dense/kernel", 12, 1.0f / 32) &&
             set_golden(p.model, "dense_1/kernel", 13, 1.0f / 4) && mirt_fit(p.model, data, &fit) &&
             p.steps == GOLDEN_MNIST_STEPS;
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(strategy);
    return p;
}

static void check(const char *directory, const char *devices, int replicas) {
    parity p = train(directory, devices, replicas);
    const char *error = p.good ? "" : mirt_last_error();
    ok(p.good && p.first_ten < 1e-5, "%d replicas on %s devices: first 10 losses within 1e-5 of Keras (%.1e)%s",
       replicas, devices, p.first_ten, error);
    ok(p.good && p.all < 1e-4, "%d replicas on %s devices: first 100 losses within 1e-4 of Keras (%.1e)", replicas,
       devices, p.all);
    for (int i = 0; i < 2; i++) {
        ok(p.good && p.weight[i] < 1e-4,
           "%d replicas on %s devices: weights after %d steps within 1e-4 of the largest (%.1e)", replicas, devices,
           i ? 100 : 10, p.weight[i]);
        ok(p.good && p.slot[i] < 1e-4,
           "%d replicas on %s devices: Adam's slots after %d steps within 1e-4 of the largest (%.1e)", replicas,
           devices, i ? 100 : 10, p.slot[i]);
    }
}

int main(void) {
    const char *directory = getenv("MIRT_MNIST_DIR");
    mirt_dataset *there = directory && *directory ? mirt_mnist(directory, MIRT_TRAIN) : NULL;
    if (!there) {
        skip("MIRT_MNIST_DIR names no directory with the four files of MNIST");
    } else if (small_tier()) {
        skip("100 steps on MNIST are not for the small tier");
    } else {
        check(directory, "1", 1);
        check(directory, "1", 2);
        check(directory, "2", 2);
    }
    mirt_dataset_destroy(there);
    return done_testing();
}
