#ifndef OPTIMIZER_UTIL_H
#define OPTIMIZER_UTIL_H
/* A small model that takes the golden steps of Keras's optimizers. */

#include "golden/optimizers.h"
#include "tap.h"

/* A dense layer of 3 inputs and 2 units, compiled; its weights are the golden ones. */
TAP_UNUSED static mirt_model *golden_model_of(mirt_strategy *s, mirt_compile_desc c) {
    float start[OPTIMIZER_COUNT];
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = 2;
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    for (uint32_t i = 0; i < OPTIMIZER_COUNT; i++) start[i] = golden_uniform(1, i);
    mirt_model *m = mirt_model_create(s, "golden");
    mirt_model_output(m, mirt_dense(mirt_input(m, MIRT_SHAPE(3)), &d));
    bool good = mirt_compile(m, &c) == MIRT_OK && mirt_set_weight(m, "dense/kernel", start, 6) == MIRT_OK &&
                mirt_set_weight(m, "dense/bias", start + 6, 2) == MIRT_OK;
    return good ? m : NULL;
}

TAP_UNUSED static mirt_model *golden_model(mirt_strategy *s, mirt_optimizer optimizer) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = optimizer;
    return golden_model_of(s, c);
}

/* Steps with the golden gradients, written where mirt_grad leaves its own, from step `first` on. */
TAP_UNUSED static bool golden_steps(mirt_model *m, int first, int count) {
    const float zeros[6] = {0};
    mirt_array x = mirt_make_array(zeros, MIRT_FLOAT32, MIRT_SHAPE(1, 3)),
               y = mirt_make_array(zeros, MIRT_FLOAT32, MIRT_SHAPE(1, 2));
    for (int step = first; step < first + count; step++) {
        if (mirt_scatter(m, x, y) != MIRT_OK || mirt_grad(m, NULL) != MIRT_OK) return false;
        for (int i = 0; i < OPTIMIZER_COUNT; i++) {
            const mirt__variable *v = &m->variable[i >= 6];
            float *g = mirt__gradient_at(&m->trainer->function[MIRT__TRAIN]->step, 0, 0) + v->offset / sizeof(float);
            g[i < 6 ? i : i - 6] = golden_uniform(10 + (uint32_t)step, (uint32_t)i) * (step % 2 ? 4.0f : 1.0f);
        }
        if (mirt_all_reduce(m) != MIRT_OK || mirt_apply(m) != MIRT_OK) return false;
    }
    return true;
}

/* The largest difference, relative to the largest of these numbers; `block` is a weight or slot block. */
TAP_UNUSED static double block_off(const mirt_model *m, const char *block, const double *want) {
    double off = 0, largest = 0;
    for (int i = 0; i < OPTIMIZER_COUNT; i++) {
        const float *values = (const float *)(const void *)(block + m->variable[i >= 6].offset);
        off = worse(off, fabs((double)values[i < 6 ? i : i - 6] - want[i]));
        largest = fmax(largest, fabs(want[i]));
    }
    return largest > 0 ? off / largest : off;
}

TAP_UNUSED static bool same_block(const mirt_model *a, const mirt_model *b, const char *x, const char *y) {
    for (int i = 0; i < a->num_variables; i++) {
        if (memcmp(x + a->variable[i].offset, y + b->variable[i].offset,
                   (size_t)a->variable[i].count * sizeof(float)) != 0)
            return false;
    }
    return true;
}

#endif
