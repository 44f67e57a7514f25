/* Saves models as ONNX for test_onnx.py: onnx_models DIR [NETWORKS]. For each model DIR/NAME.onnx, or DIR/NAME.refused
   with the message, and DIR/NAME.f32: ROWS rows of each input, then of each output as mirrortrain predicts them.
   NETWORKS: "mnist:28 mobilenet_v2:32 ..." (name and size) in place of op_cases.h and the small models below. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "layer_util.h"
#include "op_cases.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 3 };
static const char *directory;
static uint64_t seed = 7;
static int failures;

static void fail(const char *name) {
    printf("%s: %s\n", name, mirt_last_error());
    failures++;
}

/* Numbers as training would leave them: no normalization is neutral, no variance is 0. Branches add little to what they
   are added to, as otherwise a hundred random layers magnify the last bits of their input. */
static bool draw_weights(mirt_model *m, double low, double high) {
    for (int i = 0; i < mirt_num_weights(m); i++) {
        mirt_weight_info w;
        mirt_weight(m, i, &w);
        const bool kernel = strstr(w.name, "kernel") != NULL, variance = strstr(w.name, "variance") != NULL;
        float *values = (float *)malloc((size_t)w.count * sizeof *values);
        bool good = values && mirt_get_weight(m, w.name, 0, values, (size_t)w.count) == MIRT_OK;
        const float branch = strstr(w.name, "project") ? 0.2f : 1;
        for (int64_t k = 0; good && k < w.count && !kernel; k++) {
            const float unit = (float)(low + (high - low) * op_random(&seed));
            values[k] = variance ? 0.5f + fabsf(unit) : strstr(w.name, "gamma") ? branch + 0.25f * branch * unit : unit;
        }
        good = good && mirt_set_weight(m, w.name, values, (size_t)w.count) == MIRT_OK;
        free(values);
        if (!good) return false;
    }
    return true;
}

/* Predicts on random images, and writes them and the outputs. */
static bool write_arrays(mirt_model *m, const char *name, float scale) {
    char path[1024];
    mirt_data batch;
    float *out[MIRT_MAX_OUTPUTS] = {NULL};
    bool good = true;
    memset(&batch, 0, sizeof batch);
    snprintf(path, sizeof path, "%s/%s.f32", directory, name);
    FILE *f = fopen(path, "wb");
    for (int i = 0; good && mirt_input_of(m, i); i++) {
        mirt_shape shape = mirt_tensor_shape(mirt_input_of(m, i));
        shape.dim[0] = ROWS;
        const size_t count = (size_t)mirt__shape_count(&shape);
        float *x = (float *)malloc(count * sizeof *x);
        for (size_t k = 0; x && k < count; k++) x[k] = scale * (float)op_random(&seed);
        good = f && x && fwrite(x, sizeof *x, count, f) == count;
        batch.x[i] = mirt_make_array(x, MIRT_FLOAT32, shape);
    }
    size_t counts[MIRT_MAX_OUTPUTS] = {0};
    for (int i = 0; good && mirt_output_of(m, i); i++) {
        mirt_shape shape = mirt_tensor_shape(mirt_output_of(m, i));
        shape.dim[0] = ROWS;
        counts[i] = (size_t)mirt__shape_count(&shape);
        good = (out[i] = (float *)malloc(counts[i] * sizeof **out)) != NULL;
    }
    good = good && mirt_predict_on_batch(m, &batch, out, counts) == MIRT_OK;
    for (int i = 0; good && out[i]; i++) good = fwrite(out[i], sizeof **out, counts[i], f) == counts[i];
    if (f && fclose(f)) good = false;
    for (int i = 0; i < MIRT_MAX_OUTPUTS; i++) free(out[i]);
    for (int i = 0; i < MIRT_MAX_INPUTS; i++) free((void *)(uintptr_t)batch.x[i].data);
    return good;
}

/* options: 1 channels first, 2 normalization kept. */
static void save(mirt_model *m, const char *name, int options, float scale) {
    char path[1024], full[200];
    mirt_onnx_desc d;
    memset(&d, 0, sizeof d);
    d.channels_first = options & 1;
    d.keep_normalization = (options & 2) != 0;
    snprintf(full, sizeof full, "%s%s%s", name, options & 1 ? "+first" : "", options & 2 ? "+norm" : "");
    for (char *at = full; *at; at++) {
        if (*at == ' ' || *at == '/') *at = '_';
    }
    snprintf(path, sizeof path, "%s/%s.onnx", directory, full);
    if (mirt_save_onnx(m, path, &d) == MIRT_OK) {
        if (!write_arrays(m, full, scale)) fail(full);
        return;
    }
    snprintf(path, sizeof path, "%s/%s.refused", directory, full);
    FILE *f = fopen(path, "w");
    if (f) fprintf(f, "%s\n", mirt_last_error());
    if (!f || fclose(f)) fail(full);
}

/* >>operations: each case of op_cases.h as a model */

static void save_case(mirt_strategy *s, const op_case *c) {
    mirt_model *m = mirt_model_create(s, "case");
    mirt_tensor *v[OP_MAX_OPERANDS], *y = NULL;
    mirt_shape shape = op_shape(c->x_shape[0] ? c->x_shape : (const int64_t[MIRT_MAX_RANK]){1}, false), all;
    char name[16];
    mirt_tensor *x = mirt_input(m, shape);
    for (int i = 0; i < c->operands; i++) {
        snprintf(name, sizeof name, "v%d", i);
        v[i] = mirt_variable(m, name, op_shape(c->shape[i], false), mirt_zeros(), true);
    }
    y = c->record(&m->graph, v, mirt_cast(x, c->x_dtype));
    if (y) {
        y = mirt_cast(y, MIRT_FLOAT32);
        all = mirt_tensor_shape(y);
        if (all.rank == 0 || all.dim[0] != MIRT_ROWS) { /* an output has rows: 0 is added for each */
            mirt_tensor *zero = mirt_scale(mirt_reduce_sum(x, ~1u & ((1u << (shape.rank + 1)) - 1), false), 0, 0);
            mirt_shape ones = all;
            for (int i = 0; i < ones.rank; i++) ones.dim[i] = 1;
            y = all.rank < MIRT_MAX_RANK ? mirt_add(mirt_reshape(zero, ones), y) : NULL;
        }
        if (y) mirt_model_output(m, y);
    }
    const float most = c->x_dtype == MIRT_UINT8 ? 255 : 5;
    if (!y || !draw_weights(m, c->low, c->high)) fail(c->name);
    else
        for (int options = 0; options < 2; options++) save(m, c->name, options, most);
    mirt_model_destroy(m);
}

/* >>small models */

static mirt_tensor *normalized(mirt_tensor *x, int count, int kernel, int stride, mirt_activation_kind activation) {
    mirt_conv2d_desc d = conv(count, kernel, kernel, stride, MIRT_SAME);
    d.no_bias = true;
    return mirt_activation(mirt_batch_norm(mirt_conv2d(x, &d), NULL), activation);
}

static mirt_tensor *gated(mirt_tensor *x, int channels) {
    mirt_tensor *s = mirt_reshape_layer(mirt_global_average_pool2d(x), MIRT_SHAPE(1, 1, channels));
    mirt_conv2d_desc less = conv(2, 1, 1, 1, MIRT_VALID), more = conv(channels, 1, 1, 1, MIRT_VALID);
    less.activation = MIRT_SILU;
    more.activation = MIRT_SIGMOID;
    return mirt_multiply(x, mirt_conv2d(mirt_conv2d(s, &less), &more));
}

static void residual(mirt_model *m) {
    mirt_tensor *x = mirt_rescale(mirt_input(m, MIRT_SHAPE(15, 14, 3)), 2, -1);
    mirt_tensor *a = normalized(x, 8, 3, 2, MIRT_RELU6), *b = normalized(a, 8, 3, 1, MIRT_LINEAR);
    x = mirt_activation(mirt_add(a, gated(b, 8)), MIRT_HARD_SWISH);
    mirt_model_output(m, dense(mirt_dropout(mirt_global_average_pool2d(x), 0.3f), 5, MIRT_SOFTMAX, false));
}

static void padded(mirt_model *m) { /* odd sizes, strides and dilations with both paddings */
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(17, 12, 4)), *y[4];
    mirt_conv2d_desc d = conv(6, 5, 2, 3, MIRT_SAME), dilated = conv(6, 3, 3, 1, MIRT_SAME);
    ZEROED(mirt_depthwise_conv2d_desc, depth);
    dilated.dilation[0] = 2;
    dilated.dilation[1] = 3;
    dilated.groups = 2;
    depth.kernel[0] = 3;
    depth.strides[0] = 2;
    depth.depth_multiplier = 2;
    depth.padding = MIRT_SAME;
    y[0] = mirt_global_average_pool2d(mirt_conv2d(x, &d));
    d.padding = MIRT_VALID;
    y[1] = mirt_global_max_pool2d(mirt_conv2d(x, &d));
    y[2] = mirt_global_average_pool2d(mirt_conv2d(x, &dilated));
    y[3] = mirt_flatten(mirt_batch_norm(mirt_depthwise_conv2d(x, &depth), NULL));
    mirt_model_output(m, mirt_concat(y, 4, 1));
}

static void pooled(mirt_model *m) {
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(11, 13, 3)), *y[4];
    ZEROED(mirt_pool2d_desc, d);
    d.size[0] = 3;
    d.strides[0] = 2;
    d.padding = MIRT_SAME;
    y[0] = mirt_flatten(mirt_max_pool2d(x, &d));
    y[1] = mirt_flatten(mirt_average_pool2d(x, &d));
    d.padding = MIRT_VALID;
    y[2] = mirt_flatten(mirt_average_pool2d(x, &d));
    y[3] = mirt_flatten(mirt_adaptive_average_pool2d(x, 4, 5));
    mirt_model_output(m, mirt_concat(y, 4, 1));
}

static void u_net(mirt_model *m) { /* an image comes out */
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(16, 12, 3)), *up[2];
    mirt_conv2d_desc d = conv(4, 2, 2, 2, MIRT_SAME), odd = conv(4, 3, 3, 2, MIRT_VALID),
                     last = conv(3, 1, 1, 1, MIRT_SAME);
    ZEROED(mirt_up_sampling2d_desc, s);
    mirt_tensor *a = normalized(x, 4, 3, 1, MIRT_RELU), *b = normalized(a, 8, 3, 2, MIRT_RELU);
    s.size[0] = 2;
    up[0] = mirt_concat((mirt_tensor *[]){a, mirt_up_sampling2d(b, &s)}, 2, 3);
    up[1] = mirt_conv2d_transpose(b, &d);
    s.bilinear = true;
    x = mirt_add(up[1], mirt_up_sampling2d(normalized(b, 4, 1, 1, MIRT_GELU), &s));
    x = mirt_concat((mirt_tensor *[]){x, up[0], mirt_cropping2d(mirt_conv2d_transpose(b, &odd), 1, 0, 0, 1)}, 3, 3);
    mirt_model_output(m, mirt_softmax(mirt_conv2d(x, &last)));
}

static void norms(mirt_model *m) {
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(6, 5, 8)), *y[5];
    ZEROED(mirt_group_norm_desc, groups);
    groups.groups = 4;
    y[0] = mirt_flatten(mirt_layer_norm(x, NULL));
    y[1] = mirt_flatten(mirt_group_norm(x, &groups));
    y[2] = mirt_flatten(mirt_unit_normalization(x, -1));
    y[3] = mirt_flatten(mirt_rms_norm(x, NULL));
    y[4] = mirt_flatten(mirt_batch_norm(mirt_relu(mirt_batch_norm(x, NULL)), NULL)); /* after no product */
    mirt_model_output(m, mirt_concat(y, 5, 1));
}

static void moved(mirt_model *m) {
    const int64_t before[4] = {0, 1, 2, 0}, after[4] = {0, 2, 0, 1}, begin[4] = {0, 1, 0, 2}, size[4] = {-1, 3, -1, 4};
    const mirt_conv2d_desc d = conv(6, 1, 1, 1, MIRT_SAME);
    mirt_tensor *x = mirt_conv2d(mirt_input(m, MIRT_SHAPE(6, 5, 3)), &d);
    mirt_tensor *y = mirt_slice(mirt_pad(x, before, after, 0.5f), begin, size);
    y = mirt_transpose(mirt_multiply(y, mirt_reduce_mean(y, 2, true)), (const int[]){0, 3, 2, 1});
    y = mirt_permute(mirt_reshape_layer(y, MIRT_SHAPE(7, 12)), MIRT_SHAPE(2, 1));
    mirt_model_output(m, mirt_cumsum(mirt_softmax(y), 1));
}

static void two_ends(mirt_model *m) { /* several inputs and outputs, one of them twice, one an input */
    mirt_tensor *a = mirt_input(m, MIRT_SHAPE(8, 8, 2)), *b = mirt_input(m, MIRT_SHAPE(5));
    mirt_tensor *image = normalized(a, 3, 3, 1, MIRT_TANH);
    mirt_tensor *c = dense(mirt_global_average_pool2d(image), 5, MIRT_ELU, false);
    mirt_tensor *out[5] = {image, mirt_add(b, c), c, c, b};
    mirt_model_outputs(m, out, 5);
}

static void shared(mirt_model *m) { /* a model called twice */
    mirt_model *part = mirt_model_create(m->strategy, "part");
    mirt_model_output(part, mirt_flatten(normalized(mirt_input(part, MIRT_SHAPE(6, 6, 2)), 3, 3, 2, MIRT_RELU)));
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(6, 6, 2)), *y[2];
    y[0] = mirt_call(part, x, MIRT_TRAINING_AUTO);
    y[1] = mirt_call(part, mirt_negative(x), MIRT_TRAINING_OFF);
    mirt_model_output(m, dense(mirt_concat(y, 2, 1), 2, MIRT_SIGMOID, false));
}

static void prepared(mirt_model *m) { /* layers that are for training alone, and one that also predicts */
    ZEROED(mirt_augmentation, crop);
    ZEROED(mirt_augmentation, resize);
    crop.height = 9;
    crop.width = 8;
    resize.height = 7;
    mirt_tensor *x = mirt_random_flip(mirt_input(m, MIRT_SHAPE(12, 10, 3)), NULL);
    x = mirt_resizing(mirt_center_crop(mirt_gaussian_noise(x, 0.1f), &crop), &resize);
    mirt_model_output(m, dense(mirt_flatten(mirt_spatial_dropout2d(x, 0.2f)), 3, MIRT_GELU, false));
}

static void dense_ranks(mirt_model *m) { /* products of more than two axes */
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(4, 3, 6));
    x = mirt_batch_norm(dense(x, 5, MIRT_LINEAR, true), NULL);
    mirt_model_output(m, dense(mirt_reshape_layer(x, MIRT_SHAPE(12, 5)), 2, MIRT_SOFTSIGN, false));
}

static void spectral(mirt_model *m) { /* a computed kernel */
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(5, 5, 3));
    mirt_tensor *w = mirt_variable(m, "w", MIRT_SHAPE(3, 3, 3, 4), mirt_glorot_uniform(), true);
    mirt__attrs a = window(3, 3, 1, 1, 1, 1, 1, MIRT_SAME);
    mirt_model_output(m, mirt_batch_norm(mirt__conv2d_op(x, mirt_scale(w, 0.5f, 0), &a), NULL));
}

static int cubed(const mirt_op_call *call, void *user) {
    const float *x = (const float *)call->in[0];
    const int64_t count = mirt__shape_count(&call->out_shape);
    (void)user;
    for (int64_t i = 0; i < count; i++) call->out[i] = x[i] * x[i] * x[i] * *(const float *)call->config;
    return 0;
}
static mirt_tensor *composed_cube(mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)num_in;
    (void)user;
    return mirt_scale(mirt_multiply(in[0], mirt_square(in[0])), *(const float *)config, 0);
}

static void composed(mirt_model *m) { /* an op of the user's */
    ZEROED(mirt_op_class, op);
    const float factor = 0.5f;
    op.name = "cubed";
    op.config_size = sizeof factor;
    op.forward = cubed;
    op.compose = composed_cube;
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(4, 4, 2));
    x = normalized(x, 3, 3, 1, MIRT_TANH);
    mirt_model_output(m, mirt_global_average_pool2d(mirt_custom_op(&op, &x, 1, &factor)));
}

/* Numbers from -4 to 4. */
static mirt_tensor *around_zero(mirt_model *m) { return mirt_scale(mirt_input(m, MIRT_SHAPE(7)), 8, -4); }

static void indices(mirt_model *m) { /* negative ones, and some beyond the end */
    mirt_tensor *i = mirt_cast(around_zero(m), MIRT_INT32), *y[3];
    y[0] = mirt_flatten(mirt_one_hot(i, 3));
    y[1] = mirt_flatten(mirt_gather(mirt_variable(m, "table", MIRT_SHAPE(3, 2), mirt_ones(), true), i));
    y[2] = mirt_gather(mirt_variable(m, "list", MIRT_SHAPE(2), mirt_ones(), true), mirt_cast(i, MIRT_UINT8));
    mirt_model_output(m, mirt_concat(y, 3, 1));
}

static void casts(mirt_model *m) { /* numbers that do not fit */
    mirt_tensor *x = mirt_scale(around_zero(m), 1e9f, 0.75f), *y[4];
    y[0] = mirt_scale(mirt_cast(mirt_cast(x, MIRT_INT32), MIRT_FLOAT32), 1e-9f, 0);
    y[1] = mirt_cast(mirt_cast(mirt_scale(x, 1e-7f, 0), MIRT_UINT8), MIRT_FLOAT32);
    y[2] = mirt_cast(mirt_cast(mirt_cast(mirt_scale(x, 1e-7f, 0), MIRT_INT32), MIRT_UINT8), MIRT_FLOAT32);
    y[3] = mirt_cast(mirt_cast(mirt_floor(mirt_scale(x, 1e-9f, 0)), MIRT_BOOL), MIRT_FLOAT32);
    mirt_model_output(m, mirt_concat(y, 4, 1));
}

static void bools(mirt_model *m) {
    mirt_tensor *x = around_zero(m), *a = mirt_less(x, mirt_negative(x));
    mirt_tensor *b = mirt_greater(mirt_square(x), mirt_exp(x));
    mirt_tensor *y[4] = {mirt_less(a, b), mirt_less_equal(a, b), mirt_where(a, b, mirt_logical_not(b)),
                         mirt_equal(a, b)};
    for (int i = 0; i < 4; i++) y[i] = mirt_cast(y[i], MIRT_FLOAT32);
    mirt_model_output(m, mirt_concat(y, 4, 1));
}

static void resized(mirt_model *m) { /* the nearest pixels, whose places are not whole */
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(36, 30, 2)), *y[3];
    y[0] = mirt_flatten(mirt__resize2d_op(x, 10, 48, false));
    y[1] = mirt_flatten(mirt__resize2d_op(x, 16, 10, false));
    y[2] = mirt_flatten(mirt__resize2d_op(x, 72, 90, false));
    mirt_model_output(m, mirt_concat(y, 3, 1));
}

static void named(mirt_model *m) { /* weights with the names that inputs, outputs and nodes would have */
    ZEROED(mirt_dense_desc, d);
    d.units = 3;
    d.name = "output";
    mirt_next_name(m, "scale");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(3));
    mirt_tensor *scale = mirt_variable(m, "scale", MIRT_SHAPE(3), mirt_ones(), true);
    x = mirt_multiply(x, mirt_multiply(scale, mirt_variable(m, "head", MIRT_SHAPE(3), mirt_ones(), true)));
    x = mirt_softmax(mirt_dense(x, &d));
    d.name = "head";
    mirt_tensor *out[2] = {x, mirt_dense(x, &d)};
    mirt_model_outputs(m, out, 2);
}

static const struct {
    const char *name;
    void (*build)(mirt_model *m);
} small_models[] = {{"residual", residual}, {"padded", padded}, {"pooled", pooled}, {"u_net", u_net}, {"norms", norms},
                    {"moved", moved}, {"two_ends", two_ends}, {"shared", shared}, {"prepared", prepared},
                    {"dense_ranks", dense_ranks}, {"spectral", spectral}, {"composed", composed},
                    {"indices", indices}, {"casts", casts}, {"bools", bools}, {"resized", resized}, {"named", named}};

/* Statistics of a batch become the moving ones, so that numbers neither grow nor vanish from layer to layer. */
static bool calibrate(mirt_model *m) {
    enum { BATCH = 4 };
    static const uint8_t labels[BATCH] = {0, 1, 2, 3};
    ZEROED(mirt_compile_desc, c);
    ZEROED(mirt_data, batch);
    mirt_shape shape = mirt_tensor_shape(m->input[0]);
    mirt_logs logs;
    for (int i = 0; i < m->graph.count; i++) {
        mirt__node *node = m->graph.node[i];
        if (node->id == MIRT__OP_batch_norm) MIRT__OF(&node->a, norm)->momentum = 0;
    }
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    c.optimizer = mirt_sgd(1e-30f, 0, false);
    shape.dim[0] = BATCH;
    const size_t count = (size_t)mirt__shape_count(&shape);
    float *pixels = (float *)malloc(count * sizeof *pixels);
    for (size_t k = 0; pixels && k < count; k++) pixels[k] = 255 * (float)op_random(&seed);
    batch.x[0] = mirt_make_array(pixels, MIRT_FLOAT32, shape);
    batch.y[0] = mirt_make_array(labels, MIRT_UINT8, MIRT_SHAPE(BATCH));
    const bool good = pixels && mirt_compile(m, &c) == MIRT_OK && mirt_train_on_batch(m, &batch, &logs) == MIRT_OK;
    free(pixels);
    return good;
}

/* Other outputs of a model. */
static void save_view(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "whole");
    residual(m);
    mirt_tensor *out[2] = {mirt_layer_output(m, "conv2d"), mirt_layer_output(m, "batch_normalization")};
    mirt_model *view = draw_weights(m, -0.5, 0.5) ? mirt_model_view(m, out, 2) : NULL;
    if (view) save(view, "view", 0, 1);
    else fail("view");
    mirt_model_destroy(m);
}

static void save_networks(mirt_strategy *s, const char *list) {
    char name[64];
    int size, used;
    for (; sscanf(list, " %63[^:]:%d%n", name, &size, &used) == 2; list += used) {
        mirt_application_desc d;
        memset(&d, 0, sizeof d);
        d.size = size;
        d.logits = true; /* a softmax of large numbers would magnify their last bits */
        mirt_model *m = mirt_application(s, name, &d);
        if (!m || !draw_weights(m, -0.25, 0.25) || !calibrate(m)) fail(name);
        else
            for (int options = 0; options < 4; options += 3) save(m, name, options, 255);
        if (m) mirt_model_destroy(m);
    }
}

int main(int argc, char **argv) {
    mirt_strategy *s = quiet(0);
    if (argc < 2 || argc > 3 || !s) return fprintf(stderr, "usage: onnx_models DIR [NETWORKS]\n"), 2;
    directory = argv[1];
    if (argc > 2) save_networks(s, argv[2]);
    for (int i = 0; argc == 2 && i < MIRT__COUNT(op_cases); i++) save_case(s, &op_cases[i]);
    for (int i = 0; argc == 2 && i < MIRT__COUNT(small_models); i++) {
        mirt_model *m = mirt_model_create(s, small_models[i].name);
        small_models[i].build(m);
        if (!draw_weights(m, -0.5, 0.5)) fail(small_models[i].name);
        else
            for (int options = 0; options < 4; options++) save(m, small_models[i].name, options, 1);
        mirt_model_destroy(m);
    }
    if (argc == 2) save_view(s);
    mirt_strategy_destroy(s);
    return failures != 0;
}
