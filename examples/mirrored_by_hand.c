// cc -O2 examples/mirrored_by_hand.c -o mirrored_by_hand -lm -lpthread
/* The mirrored step of fit, by hand, on two devices with one replica each.

   Every device holds a copy of the weights. A step scatters the global batch over the replicas; each computes the
   gradient of its own rows; all-reduce adds the gradients, so that every device has the same sum; each applies it.
   Equal weights with equal updates stay equal: weights are never copied. Averaging weights from time to time, or a
   master copy that the others fetch, are different methods with different results. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 7, IN = 4, KERNEL = IN };

/* Ends the program if something failed. */
static void check(mirt_status status) {
    if (status == MIRT_OK) return;
    fprintf(stderr, "%s\n", mirt_last_error());
    exit(1);
}

static void show(const char *what, const float *v, int device) {
    printf("  %s on device %d: %8.4f %8.4f %8.4f %8.4f\n", what, device, v[0], v[1], v[2], v[3]);
}

int main(void) {
    /* y = 1 x0 - 2 x1 + 3 x2 - 4 x3, learned from seven rows: four for one replica, three for the other. */
    float x[ROWS][IN], y[ROWS][1], copy[2][KERNEL];
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < IN; k++) x[i][k] = (float)((i * (k + 2) + k * k) % 7) / 3 - 1;
        y[i][0] = 1 * x[i][0] - 2 * x[i][1] + 3 * x[i][2] - 4 * x[i][3];
    }
    mirt_array inputs = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(ROWS, IN));
    mirt_array labels = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 1));

    mirt_strategy *strategy = mirt_mirrored("2"); /* also works on one core, with a warning */
    mirt_model *model = mirt_model_create(strategy, "linear");
    mirt_model_output(model, mirt_dense(mirt_input(model, MIRT_SHAPE(IN)), &(mirt_dense_desc){.units = 1}));
    check(mirt_compile(
        model, &(mirt_compile_desc){.optimizer = mirt_sgd(0.2f, 0.5f, false), .loss = MIRT_MEAN_SQUARED_ERROR}));

    for (int step = 0; step < 100; step++) {
        double loss;
        check(mirt_scatter(model, inputs, labels)); /* rows to replicas */
        check(mirt_grad(model, &loss));             /* each replica: forward and backward on its rows */
        if (step == 0) {
            for (int r = 0; r < mirt_num_replicas(strategy); r++) {
                int64_t first, rows = mirt_replica_rows(model, r, &first);
                printf("replica %d got rows %d to %d\n", r, (int)first, (int)(first + rows - 1));
            }
            for (int d = 0; d < 2; d++) {
                check(mirt_get_gradient(model, "dense/kernel", d, copy[d], KERNEL));
                show("own gradient", copy[d], d);
            }
        }
        check(mirt_all_reduce(model)); /* adds gradients on every device in the same order */
        if (step == 0) {
            for (int d = 0; d < 2; d++) {
                check(mirt_get_gradient(model, "dense/kernel", d, copy[d], KERNEL));
                show("sum of all  ", copy[d], d);
            }
        }
        check(mirt_apply(model)); /* each device updates its own copy */
        for (int d = 0; d < 2; d++) check(mirt_get_weight(model, "dense/kernel", d, copy[d], KERNEL));
        if (memcmp(copy[0], copy[1], sizeof copy[0]) != 0) {
            fprintf(stderr, "step %d: the copies differ\n", step);
            return 1;
        }
        if (step % 20 == 0 || step == 99) printf("step %3d: loss %9.6f, both copies equal bit for bit\n", step, loss);
    }
    show("kernel      ", copy[0], 0);
    mirt_strategy_destroy(strategy);
    return 0;
}
