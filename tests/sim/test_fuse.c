/* Sums and products that passes/fuse.c fuses. Weights of a GPU are compared with those of a CPU. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../../mirrortrain.h"
#include "four_devices.h"

enum { ROWS = 6, SIDE = 5, CHANNELS = 12 };
static float pixels[ROWS][SIDE * SIDE * 3];
static uint8_t classes[ROWS];

static mirt_model *build(mirt_strategy *s) {
    const mirt_initializer normal = mirt_random_normal(0, 1);
    mirt_model *m = mirt_model_create(s, "sums");
    mirt_conv2d_desc conv;
    mirt_dense_desc logits;
    memset(&conv, 0, sizeof conv);
    memset(&logits, 0, sizeof logits);
    conv.filters = CHANNELS;
    conv.kernel[0] = 1;
    logits.units = 3;
    mirt_tensor *x = mirt_conv2d(mirt_input(m, MIRT_SHAPE(SIDE, SIDE, 3)), &conv),
                *bias = mirt_variable(m, "bias", MIRT_SHAPE(CHANNELS), normal, true),
                *gate = mirt_variable(m, "gate", MIRT_SHAPE(1, 1, 1, CHANNELS), normal, true);
    mirt_tensor *sum = mirt_add(bias, mirt_multiply(x, mirt_tanh(x)));          /* fused */
    sum = mirt_add(mirt_multiply(gate, bias), sum);                             /* not: the product is repeated */
    mirt_tensor *mean = mirt_reduce_mean(mirt_multiply(x, gate), 6, true),      /* not: so is a factor */
                *mixed = mirt_reduce_mean(mirt_multiply(x, sum), 6, true);      /* fused */
    mirt_tensor *twice = mirt_multiply(x, sum);                                 /* neither: it is read twice */
    sum = mirt_add(twice, mirt_multiply(mean, mirt_reduce_mean(twice, 6, true)));
    mirt_tensor *read = mirt_tanh(sum);                                         /* its gradient: two are repeated */
    read = mirt_multiply(mirt_reduce_mean(read, 2, true), mirt_reduce_mean(read, 12, true));
    mirt_tensor *square = mirt_multiply(x, x);
    mirt_tensor *out = mirt_add(mirt_add(read, mixed), mirt_add(square, square));
    mirt_model_output(m, mirt_dense(mirt_global_average_pool2d(out), &logits));
    mirt_compile_desc c = image_compile(mirt_sgd(0.1f, 0.9f, false));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* All weights after some steps; *added, *reduced, *repeated: nodes of each fusion. */
static float *trained(const char *devices, int steps, size_t *count, int *added, int *reduced, int *repeated) {
    mirt_strategy *s = strategy_on(devices, 2);
    mirt_model *m = s ? build(s) : NULL;
    mirt_data data;
    bool good = m != NULL;
    float *weights = NULL;
    *added = *reduced = *repeated = 0;
    memset(&data, 0, sizeof data);
    for (int step = 0; good && step < steps; step++) { /* the last, smaller batch is not even */
        const int rows = ROWS - step % 2;
        data.x[0] = mirt_make_array(pixels, MIRT_FLOAT32, MIRT_SHAPE(rows, SIDE, SIDE, 3));
        data.y[0] = mirt_make_array(classes, MIRT_UINT8, MIRT_SHAPE(rows));
        good = mirt_train_on_batch(m, &data, NULL) == MIRT_OK;
    }
    if (good) weights = all_weights(m, 0, count);
    else printf("# %s: %s\n", devices, mirt_last_error());
    const mirt__graph *graph = good && steps ? &m->trainer->function[MIRT__TRAIN]->step.program.graph : NULL;
    for (int i = 0; graph && i < graph->count; i++) {
        const mirt__node *node = graph->node[i];
        *added += node->id == MIRT__OP_binary && node->a.residual;
        *reduced += node->id == MIRT__OP_reduce && node->num_in > 1;
        *repeated += node->id == MIRT__OP_broadcast && mirt__shape_equal(&node->in[0]->shape, &node->out[0]->shape);
    }
    mirt_strategy_destroy(s);
    return weights;
}

int main(void) {
    mirt__random random = mirt__random_stream(5, 6);
    size_t count = 0;
    int n[3], own[3];
    for (int i = 0; i < ROWS; i++) {
        classes[i] = (uint8_t)(i % 3);
        for (int k = 0; k < SIDE * SIDE * 3; k++) pixels[i][k] = (float)mirt__random_below(&random, 1000) / 500 - 1;
    }
    float *first = trained("cpu", 0, &count, n, n + 1, n + 2), *want = trained("cpu", 3, &count, own, own + 1, own + 2),
          *have = trained("gpu:0", 3, &count, n, n + 1, n + 2);
    double off = 0, moved = 0;
    for (size_t i = 0; first && want && have && i < count; i++) {
        off += ((double)have[i] - (double)want[i]) * ((double)have[i] - (double)want[i]);
        moved += ((double)want[i] - (double)first[i]) * ((double)want[i] - (double)first[i]);
    }
    ok(moved > 0 && off <= 1e-10 * moved, "3 steps: %.1e of what they change is off", sqrt(off / moved));
    ok(n[0] > 0 && n[1] > 0 && n[2] > 0, "%d sums are added to products, %d are of products, %d repeat", n[0], n[1],
       n[2]);
    ok(own[0] == n[0] && own[1] == n[1] && own[2] == n[2], "on a CPU %d, %d and %d", own[0], own[1], own[2]);
    free(first);
    free(want);
    free(have);
    return done_testing();
}
