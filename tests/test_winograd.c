/* Tests convolutions and input gradients by Winograd's F(2x2, 3x3). Every reader and epilogue is compared with plain
   double arithmetic; there are the same bits from any team, AVX2 and AVX-512, and for an image in any place; errors
   within the bound that follows from the transforms; direct results where it does not apply. A network trains to the
   same losses with and without. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include "mirror_util.h"
#include "conv_calls.h"

/* SAME, VALID and other paddings; sizes that leave half a tile; the last ones have more blocks and chunks of sums. */
static const shape shapes[] = {
    {2, 5, 6, 24, 33, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},   {3, 9, 7, 33, 17, 1, 3, 3, 1, 1, 1, 1, 0, 0, 0, 0},
    {1, 2, 2, 20, 20, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},   {2, 5, 3, 67, 65, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
    {1, 6, 7, 24, 130, 1, 3, 3, 1, 1, 1, 1, 0, 1, 1, 0},  {2, 6, 5, 25, 31, 1, 3, 3, 1, 1, 1, 1, 2, 2, 2, 2},
    {9, 4, 5, 64, 16, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},   {1, 23, 21, 20, 21, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
    {1, 4, 4, 530, 20, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},  {1, 2, 150, 17, 33, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
    {5, 13, 12, 24, 25, 1, 3, 3, 1, 1, 1, 1, 2, 0, 0, 2}, {7, 12, 12, 40, 31, 1, 3, 3, 1, 1, 1, 1, 0, 0, 0, 0},
    {0, 6, 6, 32, 32, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}};

/* |B^T|, |G| and |A^T|. */
static const double from_source[4][4] = {{1, 0, 1, 0}, {0, 1, 1, 0}, {0, 1, 1, 0}, {0, 1, 0, 1}};
static const double from_taps[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}, {0, 0, 1}};
static const double to_target[2][4] = {{1, 1, 1, 0}, {0, 1, 1, 1}};

/* Sums of the magnitudes of everything that is added up for each output of a plain forward call. Each chain of `ci`
   steps and the ten additions of the transforms round once per step. */
static void magnitudes(const call *c, double *size) {
    const mirt__conv *s = &c->s;
    for (int64_t o = 0; o < c->out.count; o++) {
        const int64_t j = o % s->co, x = o / s->co % s->ow, y = o / (s->co * s->ow) % s->oh,
                      image = o / (s->co * s->ow * s->oh);
        size[o] = 0;
        for (int64_t ci = 0; ci < s->ci; ci++) {
            double d[4][4], row[4][4], t[4][3];
            for (int r = 0; r < 4; r++) {
                for (int q = 0; q < 4; q++) {
                    const int64_t at_y = y / 2 * 2 - s->pad_top + r, at_x = x / 2 * 2 - s->pad_left + q;
                    const bool inside = at_y >= 0 && at_y < s->h && at_x >= 0 && at_x < s->w;
                    d[r][q] = inside ? fabs(at(&c->in, ((image * s->h + at_y) * s->w + at_x) * s->ci + ci)) : 0;
                }
            }
            for (int r = 0; r < 4; r++) {
                for (int q = 0; q < 4; q++) {
                    row[r][q] = 0;
                    for (int i = 0; i < 4; i++) row[r][q] += from_source[r][i] * d[i][q];
                }
                for (int q = 0; q < 3; q++) {
                    t[r][q] = 0;
                    for (int i = 0; i < 3; i++)
                        t[r][q] += from_taps[r][i] * fabs(at(&c->kernel, ((i * 3 + q) * s->ci + ci) * s->co + j));
                }
            }
            for (int r = 0; r < 4; r++) {
                for (int q = 0; q < 4; q++) {
                    double u = 0, v = 0;
                    for (int i = 0; i < 4; i++) u += from_source[q][i] * row[r][i];
                    for (int i = 0; i < 3; i++) v += from_taps[q][i] * t[r][i];
                    size[o] += to_target[y % 2][r] * to_target[x % 2][q] * u * v;
                }
            }
        }
    }
}

static void check_bound(const shape *p, const mirt__kernels *k) {
    enum { PLAIN = 8 };
    call c = call_of(p, &setups[PLAIN], false);
    call_ready(&c);
    double *room = (double *)calloc((size_t)(2 * c.kernel.count + 2 * p->co + c.out.count), sizeof(double)),
           *size = room + 2 * c.kernel.count + 2 * p->co;
    work_out(&c, room, room + c.kernel.count, room + 2 * c.kernel.count, room + 2 * c.kernel.count + p->co);
    const bool applies = mirt__winograd_applies(&c.s, false);
    if (applies) magnitudes(&c, size);
    run(&c, k, NULL, 0);
    /* Without fused multiply and add, products round too. */
    const int roundings = strcmp(k->name, "plain") == 0 ? 2 : 1;
    const double error = applies ? error_of(&c.out, c.want, size) : 0;
    const double bound = (roundings * p->ci + 10) * ldexp(1, -24);
    array result = copy_of(&c.out);
    winograd = false;
    run(&c, k, NULL, 0);
    winograd = true;
    const bool other = !same(&result, &c.out);
    ok(error <= bound && other == applies, "%s, %dx%dx%d to %d: off by %.1e of what is added up, at most %.1e%s",
       k->name, p->h, p->w, p->ci, p->co, error, bound, other ? "" : " (direct)");
    free(result.block);
    free(room);
    call_free(&c);
}

enum { STEPS = 4, BATCH = 24 };
typedef struct trained {
    double loss[STEPS];
    float *weights, predicted[BATCH * IMAGE_CLASSES];
    size_t count;
} trained;

static mirt_tensor *layer(mirt_tensor *x, int filters, mirt_padding padding, bool normalized) {
    mirt_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = filters;
    d.kernel[0] = d.kernel[1] = 3;
    d.padding = padding;
    d.no_bias = normalized;
    x = mirt_conv2d(x, &d);
    return mirt_silu(normalized ? mirt_batch_norm(x, NULL) : x);
}

static mirt_model *network(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "network");
    mirt_compile_desc c = image_compile(mirt_sgd(0.02f, 0.9f, false));
    mirt_dense_desc dense;
    memset(&dense, 0, sizeof dense);
    dense.units = IMAGE_CLASSES;
    mirt_tensor *x =
        layer(mirt_rescale(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1 / 127.5f, -1), 24, MIRT_SAME, true);
    mirt_tensor *sum[2] = {x, layer(x, 24, MIRT_SAME, true)};
    x = layer(layer(mirt_add_layer(sum, 2), 33, MIRT_SAME, true), 40, MIRT_VALID, false);
    mirt_model_output(m, mirt_dense(mirt_global_average_pool2d(x), &dense));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static trained train(bool with, int devices, int threads) {
    trained t;
    mirt_strategy_desc d;
    char text[16];
    memset(&t, 0, sizeof t);
    memset(&d, 0, sizeof d);
    snprintf(text, sizeof text, "%d", devices);
    d.devices = text;
    d.replicas = 2;
    d.threads = threads;
    d.seed = 5;
    d.silent = true;
    d.winograd = with;
    mirt_strategy *s = mirt_strategy_create(&d);
    mirt_model *m = network(s);
    for (int i = 0; i < STEPS; i++) {
        if (!m || mirt_train_step(m, images_x(i * BATCH, BATCH), images_y(i * BATCH, BATCH), &t.loss[i]) != MIRT_OK)
            printf("# %s\n", mirt_last_error());
    }
    if (!m || mirt_predict_arrays(m, images_x(0, BATCH), t.predicted, BATCH * IMAGE_CLASSES) != MIRT_OK)
        printf("# %s\n", mirt_last_error());
    t.weights = all_weights(m, 0, &t.count);
    mirt_strategy_destroy(s);
    return t;
}

static void check_network(void) {
    draw_images();
    trained with = train(true, 1, 1), without = train(false, 1, 1), shared = train(true, 2, 2);
    double loss = 0, predicted = 0;
    for (int i = 0; i < STEPS; i++) loss = worse(loss, fabs(with.loss[i] / without.loss[i] - 1));
    for (int i = 0; i < BATCH * IMAGE_CLASSES; i++)
        predicted = worse(predicted, fabs((double)with.predicted[i] - (double)without.predicted[i]));
    ok(loss < 1e-5 && predicted < 1e-4 && without.loss[STEPS - 1] < without.loss[0],
       "a network trains to the same losses (off by %.1e; predictions by %.1e)", loss, predicted);
    ok(memcmp(with.weights, without.weights, with.count * sizeof(float)) != 0, "with other roundings");
    ok(memcmp(with.weights, shared.weights, with.count * sizeof(float)) == 0 &&
           memcmp(with.loss, shared.loss, sizeof with.loss) == 0 &&
           memcmp(with.predicted, shared.predicted, sizeof with.predicted) == 0,
       "the same bits on two devices of two threads");
    free(with.weights);
    free(without.weights);
    free(shared.weights);
}

int main(void) {
    const shape placed = {7, 7, 5, 48, 66, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1};
    const shape direct[] = {
        {2, 8, 8, 8, 24, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},  {2, 3, 3, 32, 32, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
        {1, 9, 9, 32, 32, 1, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1}, {1, 9, 9, 32, 32, 1, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2},
        {1, 6, 6, 64, 64, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 6, 6, 32, 32, 1, 1, 3, 1, 1, 1, 1, 0, 1, 0, 1}};
    const int count = (int)(sizeof shapes / sizeof *shapes);
    int tables;
    const mirt__kernels *const *k = mirt__kernel_tables(&tables);
    winograd = true;
    check_all(shapes, count, &placed);
    for (int t = 0; t < tables - 1; t++) { /* the last one is the reference */
        for (int i = 0; i < count - 1; i++) check_bound(&shapes[i], k[t]);
        for (int i = 0; i < (int)(sizeof direct / sizeof *direct); i++) check_bound(&direct[i], k[t]);
    }
    check_network();
    return done_testing();
}
