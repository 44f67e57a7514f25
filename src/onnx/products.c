#include "onnx.h"
/* ONNX's convolutions, products of matrices, poolings and normalizations. */

/* >>what follows a product and becomes a part of it */

/* The weights of a product, and the sum that is added to it, by output channel. */
typedef struct mirt__onnx_product {
    float *weights;    /* NULL: they are computed, so no normalization can be folded into them */
    int64_t count;
    int64_t channels;  /* of the output, the last axis of the weights */
    double *bias;
    const mirt__node *bias_leaf; /* the first that is added, or NULL */
    bool folded;       /* the weights are no longer the model's */
} mirt__onnx_product;

static void mirt__onnx_product_free(mirt__onnx_product *p) {
    mirt__free(p->weights);
    mirt__free(p->bias);
}

static bool mirt__onnx_product_begin(mirt__onnx *x, const mirt_tensor *weights, int64_t channels,
                                     mirt__onnx_product *p) {
    memset(p, 0, sizeof *p);
    p->count = mirt__shape_count(&weights->shape);
    p->channels = channels;
    p->bias = (double *)mirt__calloc((size_t)channels, sizeof *p->bias);
    if (p->bias && mirt__onnx_leaf(weights)) p->weights = mirt__onnx_numbers(x, weights);
    if (p->bias && (p->weights || !mirt__onnx_leaf(weights))) return true;
    mirt__onnx_product_free(p);
    return false;
}

static bool mirt__onnx_add_bias(mirt__onnx *x, const mirt__node *node, mirt__onnx_product *p) {
    float *bias = mirt__onnx_numbers(x, node->in[1]);
    for (int64_t i = 0; bias && i < p->channels; i++) p->bias[i] += (double)bias[i];
    if (!p->bias_leaf) p->bias_leaf = mirt__onnx_leaf(node->in[1]);
    mirt__free(bias);
    return bias != NULL;
}

/* y * g / sqrt(variance + epsilon) + (beta - mean * g / sqrt(variance + epsilon)) */
static bool mirt__onnx_add_norm(mirt__onnx *x, const mirt__node *node, mirt__onnx_product *p) {
    const mirt__attrs_scaling *scaling = &MIRT__OF(&node->a, norm)->scaling;
    float *of[4] = {NULL, NULL, NULL, NULL}; /* mean, variance, gamma, beta */
    const bool there[4] = {true, true, scaling->gamma, scaling->beta};
    bool good = true;
    for (int k = 0, in = 1; k < 4; k++) {
        if (there[k]) good = (of[k] = mirt__onnx_numbers(x, node->in[in++])) != NULL && good;
    }
    for (int64_t i = 0; good && i < p->channels; i++) {
        const double gamma = of[2] ? (double)of[2][i] : 1, beta = of[3] ? (double)of[3][i] : 0,
                     scale = gamma / sqrt((double)of[1][i] + (double)scaling->epsilon);
        p->bias[i] = (p->bias[i] - (double)of[0][i]) * scale + beta;
        for (int64_t k = i; k < p->count; k += p->channels) p->weights[k] = (float)((double)p->weights[k] * scale);
    }
    if (!p->bias_leaf && of[3]) p->bias_leaf = mirt__onnx_leaf(node->in[3 + scaling->gamma]);
    for (int k = 0; k < 4; k++) mirt__free(of[k]);
    p->folded = true;
    return good;
}

static bool mirt__onnx_all_leaves(const mirt__node *node) {
    for (int i = 1; i < node->num_in; i++) {
        if (!mirt__onnx_leaf(node->in[i])) return false;
    }
    return true;
}

/* Takes what follows the product alone, as far as it fits; returns what the product then is, or NULL. */
static mirt_tensor *mirt__onnx_take_readers(mirt__onnx *x, mirt_tensor *y, mirt__onnx_product *p) {
    for (;;) {
        const mirt__node *reader = mirt__onnx_value_of(x, y)->reader;
        if (!reader || reader->in[0] != y || reader->num_in < 2 || !mirt__onnx_all_leaves(reader)) return y;
        const bool norm = reader->id == MIRT__OP_normalize && MIRT__OF(&reader->a, norm)->last_axes == 0;
        if (reader->id == MIRT__OP_bias_add && !(x->desc.keep_normalization && p->bias_leaf)) {
            if (!mirt__onnx_add_bias(x, reader, p)) return NULL;
        } else if (norm && p->weights && !x->desc.keep_normalization) {
            if (!mirt__onnx_add_norm(x, reader, p)) return NULL;
        } else {
            return y;
        }
        y = reader->out[0];
        mirt__onnx_value_of(x, y)->taken = true;
    }
}

/* The name of the bias, NULL where there is none. */
static const char *mirt__onnx_bias(mirt__onnx *x, const mirt__onnx_product *p) {
    const mirt_shape shape = mirt_make_shape(p->channels, 0, 0, 0, 0, 0);
    const char *name = NULL;
    if (!p->bias_leaf && !p->folded) return NULL;
    float *bias = (float *)mirt__calloc((size_t)p->channels, sizeof *bias);
    for (int64_t i = 0; bias && i < p->channels; i++) bias[i] = (float)p->bias[i];
    if (bias && p->bias_leaf) name = mirt__onnx_weight(x, p->bias_leaf, &shape, bias);
    else if (bias) name = mirt__onnx_tensor(x, NULL, MIRT_FLOAT32, &shape, bias);
    else x->initializers.failed = true;
    mirt__free(bias);
    return name;
}

/* >>windows */

/* Attributes of a window over an image `h` x `w` whose output has the size `out`. */
static void mirt__onnx_window(mirt__onnx *x, const mirt__attrs_window *w, const int kernel[2], const int64_t in[2],
                              const int64_t out[2], int64_t pads[4]) {
    const bool pools = w->dilation[0] == 0;
    int64_t strides[2], dilation[2], size[2];
    for (int i = 0; i < 2; i++) {
        int64_t same, before;
        strides[i] = w->strides[i];
        dilation[i] = pools ? 1 : w->dilation[i];
        size[i] = kernel[i];
        const int64_t reach = (size[i] - 1) * dilation[i] + 1, all = (out[i] - 1) * strides[i] + reach - in[i];
        mirt__window_out(in[i], kernel[i], (int)strides[i], (int)dilation[i], w->padding, &same, &before);
        pads[i] = before;
        pads[2 + i] = all > before ? all - before : 0;
    }
    mirt__onnx_ints(x, "kernel_shape", size, 2);
    mirt__onnx_ints(x, "strides", strides, 2);
    mirt__onnx_ints(x, "pads", pads, 4);
    if (!pools) mirt__onnx_ints(x, "dilations", dilation, 2);
    if (!pools) mirt__onnx_int(x, "group", w->groups);
}

static const char *mirt__onnx_kernel(mirt__onnx *x, mirt_tensor *kernel, const mirt__onnx_product *p) {
    if (!p->folded) return mirt__onnx_get(x, kernel, MIRT__ONNX_KERNEL);
    const mirt_shape shape = mirt__onnx_shape(&kernel->shape, MIRT__ONNX_KERNEL);
    float *moved = mirt__onnx_moved(x, &kernel->shape, p->weights, MIRT__ONNX_KERNEL);
    const char *name = moved ? mirt__onnx_weight(x, mirt__onnx_leaf(kernel), &shape, moved) : NULL;
    mirt__free(moved);
    return name;
}

MIRT__LIB bool mirt__onnx_conv(mirt__onnx *x, const mirt__node *node) {
    mirt_tensor *image = node->in[0], *kernel = node->in[1];
    const int size[2] = {(int)kernel->shape.dim[0], (int)kernel->shape.dim[1]};
    mirt__onnx_product p;
    int64_t pads[4];
    if (!mirt__onnx_product_begin(x, kernel, kernel->shape.dim[3], &p)) return false;
    mirt_tensor *y = mirt__onnx_take_readers(x, node->out[0], &p);
    const char *in[3] = {NULL, NULL, NULL};
    if (y) in[0] = mirt__onnx_get(x, image, MIRT__ONNX_FIRST);
    if (in[0]) in[1] = mirt__onnx_kernel(x, kernel, &p);
    if (in[1]) in[2] = mirt__onnx_bias(x, &p);
    mirt__onnx_product_free(&p);
    if (!in[1]) return false;
    const size_t begin = mirt__onnx_begin(x, "Conv", in, in[2] ? 3 : 2, mirt__onnx_set(x, y, MIRT__ONNX_FIRST));
    mirt__onnx_window(x, MIRT__OF(&node->a, window), size, &image->shape.dim[1], &node->out[0]->shape.dim[1], pads);
    mirt__onnx_end(x, begin);
    return true;
}

/* The op is the gradient of a convolution's input: the window goes over the output. */
MIRT__LIB bool mirt__onnx_conv_transpose(mirt__onnx *x, const mirt__node *node) {
    const mirt__attrs_window *w = MIRT__OF(&node->a, window);
    const mirt_shape *kernel = &node->in[1]->shape, *from = &node->in[0]->shape, *to = &node->out[0]->shape;
    const int size[2] = {(int)kernel->dim[0], (int)kernel->dim[1]};
    const char *in[2] = {mirt__onnx_get(x, node->in[0], MIRT__ONNX_FIRST),
                         mirt__onnx_get(x, node->in[1], MIRT__ONNX_KERNEL)};
    int64_t pads[4], more[2];
    if (!in[0] || !in[1]) return false;
    const size_t begin = mirt__onnx_begin(x, "ConvTranspose", in, 2, mirt__onnx_set(x, node->out[0], MIRT__ONNX_FIRST));
    mirt__onnx_window(x, w, size, &to->dim[1], &from->dim[1], pads);
    for (int i = 0; i < 2; i++) {
        const int64_t reach = (int64_t)(size[i] - 1) * w->dilation[i] + 1;
        more[i] = to->dim[1 + i] - ((from->dim[1 + i] - 1) * w->strides[i] + reach - pads[i] - pads[2 + i]);
    }
    mirt__onnx_ints(x, "output_padding", more, 2);
    mirt__onnx_end(x, begin);
    return true;
}

MIRT__LIB bool mirt__onnx_pool(mirt__onnx *x, const mirt__node *node) {
    const mirt__attrs_window *w = MIRT__OF(&node->a, window);
    const bool max = node->id == MIRT__OP_max_pool2d;
    const char *in = mirt__onnx_get(x, node->in[0], MIRT__ONNX_FIRST);
    mirt__attrs_window own = *w;
    int64_t pads[4];
    own.dilation[0] = own.dilation[1] = 0;
    if (!in) return false;
    const size_t begin = mirt__onnx_begin(x, max ? "MaxPool" : "AveragePool", &in, 1,
                                          mirt__onnx_set(x, node->out[0], MIRT__ONNX_FIRST));
    mirt__onnx_window(x, &own, w->kernel, &node->in[0]->shape.dim[1], &node->out[0]->shape.dim[1], pads);
    mirt__onnx_end(x, begin);
    return true;
}

/* >>matrices */

/* The matrix that a tensor of any rank is to a product: its last axis against all others. */
static const char *mirt__onnx_matrix(mirt__onnx *x, mirt_tensor *t) {
    const int64_t shape[2] = {-1, mirt__last_dim(t)};
    const char *name = mirt__onnx_get(x, t, MIRT__ONNX_OWN);
    return !name || t->shape.rank == 2 ? name
                                       : mirt__onnx_node(x, "Reshape", NULL, name, mirt__onnx_list(x, shape, 2), NULL);
}

static const char *mirt__onnx_dense_weights(mirt__onnx *x, mirt_tensor *weights, const mirt__onnx_product *p) {
    return p->folded ? mirt__onnx_weight(x, mirt__onnx_leaf(weights), &weights->shape, p->weights)
                     : mirt__onnx_matrix(x, weights);
}

/* Gemm takes matrices alone. */
static void mirt__onnx_gemm(mirt__onnx *x, const mirt__node *node, const char *const *in, mirt_tensor *y) {
    const mirt__attrs_matmul *t = MIRT__OF(&node->a, matmul);
    const bool flat = y->shape.rank == 2;
    const char *out = flat ? mirt__onnx_set(x, y, MIRT__ONNX_OWN) : mirt__onnx_fresh(x);
    const size_t begin = mirt__onnx_begin(x, "Gemm", in, in[2] ? 3 : 2, out);
    if (t->transpose_a) mirt__onnx_int(x, "transA", 1);
    if (t->transpose_b) mirt__onnx_int(x, "transB", 1);
    mirt__onnx_end(x, begin);
    if (!flat)
        mirt__onnx_node(x, "Reshape", mirt__onnx_set(x, y, MIRT__ONNX_OWN), out,
                        mirt__onnx_list(x, y->shape.dim, y->shape.rank), NULL);
}

MIRT__LIB bool mirt__onnx_matmul(mirt__onnx *x, const mirt__node *node) {
    const bool transposed = MIRT__OF(&node->a, matmul)->transpose_b;
    mirt_tensor *weights = node->in[1], *y = node->out[0];
    mirt__onnx_product p;
    const char *in[3] = {mirt__onnx_matrix(x, node->in[0]), NULL, NULL};
    if (!in[0]) return false;
    if (transposed || weights->shape.rank != 2) {
        in[1] = mirt__onnx_matrix(x, weights);
        mirt__onnx_gemm(x, node, in, y);
        return in[1] != NULL;
    }
    if (!mirt__onnx_product_begin(x, weights, weights->shape.dim[1], &p)) return false;
    y = mirt__onnx_take_readers(x, y, &p);
    if (y) in[1] = mirt__onnx_dense_weights(x, weights, &p);
    if (in[1]) in[2] = mirt__onnx_bias(x, &p);
    mirt__onnx_product_free(&p);
    if (in[1]) mirt__onnx_gemm(x, node, in, y);
    return in[1] != NULL;
}

/* >>normalizations */

/* Ones, or zeros, where a normalization lacks gamma or beta. */
static const char *mirt__onnx_filled(mirt__onnx *x, const mirt_shape *shape, float value) {
    const int64_t count = mirt__shape_count(shape);
    float *all = (float *)mirt__calloc((size_t)count, sizeof *all);
    if (!all) x->initializers.failed = true;
    for (int64_t i = 0; all && i < count; i++) all[i] = value;
    const char *name = all ? mirt__onnx_tensor(x, NULL, MIRT_FLOAT32, shape, all) : NULL;
    mirt__free(all);
    return name;
}

/* Gamma and beta of a normalization, in the shape of x's last axes. */
static bool mirt__onnx_scaling(mirt__onnx *x, const mirt__node *node, const char *out[2]) {
    const mirt__attrs_norm *a = MIRT__OF(&node->a, norm);
    const mirt_shape last = mirt__norm_last(&node->in[0]->shape, a->last_axes);
    const int beta = 3 + a->scaling.gamma;
    out[0] = a->scaling.gamma ? mirt__onnx_get(x, node->in[3], MIRT__ONNX_OWN) : mirt__onnx_filled(x, &last, 1);
    out[1] = a->scaling.beta ? mirt__onnx_get(x, node->in[beta], MIRT__ONNX_OWN) : mirt__onnx_filled(x, &last, 0);
    return out[0] && out[1];
}

/* (x - mean) / sqrt(variance + epsilon) * gamma + beta, where the statistics are computed. */
static bool mirt__onnx_composed_norm(mirt__onnx *x, const mirt__node *node) {
    const mirt__attrs_norm *a = MIRT__OF(&node->a, norm);
    const char *in = mirt__onnx_get(x, node->in[0], MIRT__ONNX_OWN), *stat[2], *scaling[2];
    mirt_shape shape = node->in[1]->shape;
    for (int i = 0; i < a->last_axes; i++) shape.dim[shape.rank++] = 1;
    for (int k = 0; k < 2; k++) {
        if (!(stat[k] = mirt__onnx_get(x, node->in[1 + k], MIRT__ONNX_OWN))) return false;
        if (a->last_axes)
            stat[k] = mirt__onnx_node(x, "Reshape", NULL, stat[k], mirt__onnx_list(x, shape.dim, shape.rank), NULL);
    }
    if (!in || !mirt__onnx_scaling(x, node, scaling)) return false;
    const char *epsilon = mirt__onnx_number(x, (double)a->scaling.epsilon);
    const char *sum = mirt__onnx_node(x, "Add", NULL, stat[1], epsilon, NULL),
               *deviation = mirt__onnx_node(x, "Sqrt", NULL, sum, NULL, NULL),
               *centered = mirt__onnx_node(x, "Sub", NULL, in, stat[0], NULL),
               *unit = mirt__onnx_node(x, "Div", NULL, centered, deviation, NULL),
               *scaled = mirt__onnx_node(x, "Mul", NULL, unit, scaling[0], NULL);
    mirt__onnx_node(x, "Add", mirt__onnx_set(x, node->out[0], MIRT__ONNX_OWN), scaled, scaling[1], NULL);
    return true;
}

MIRT__LIB bool mirt__onnx_normalize(mirt__onnx *x, const mirt__node *node) {
    const mirt__attrs_norm *a = MIRT__OF(&node->a, norm);
    const int rank = node->in[0]->shape.rank;
    const mirt__node *stats = node->in[1]->node;
    const bool layer = a->last_axes > 0 && stats->id == MIRT__OP_norm_stats && stats->in[0] == node->in[0];
    const bool batch = a->last_axes == 0 && (rank == 2 || rank == 4) && mirt__onnx_all_leaves(node);
    const mirt__onnx_order order = batch && rank == 4 ? MIRT__ONNX_FIRST : MIRT__ONNX_OWN;
    const char *in[5];
    if (!layer && !batch) return mirt__onnx_composed_norm(x, node);
    in[0] = mirt__onnx_get(x, node->in[0], order);
    if (!in[0] || !mirt__onnx_scaling(x, node, in + 1)) return false;
    for (int k = 0; batch && k < 2; k++) {
        if (!(in[3 + k] = mirt__onnx_get(x, node->in[1 + k], MIRT__ONNX_OWN))) return false;
    }
    const size_t begin = mirt__onnx_begin(x, batch ? "BatchNormalization" : "LayerNormalization", in, batch ? 5 : 3,
                                          mirt__onnx_set(x, node->out[0], order));
    if (layer) mirt__onnx_int(x, "axis", -a->last_axes);
    mirt__onnx_float(x, "epsilon", (double)a->scaling.epsilon);
    mirt__onnx_end(x, begin);
    return true;
}

static const char *mirt__onnx_mean(mirt__onnx *x, const char *in, const int64_t *axes, int count, bool keepdims,
                                   const char *out) {
    if (!out) out = mirt__onnx_fresh(x);
    const size_t begin = mirt__onnx_begin(x, "ReduceMean", &in, 1, out);
    mirt__onnx_ints(x, "axes", axes, count);
    mirt__onnx_int(x, "keepdims", keepdims);
    mirt__onnx_end(x, begin);
    return out;
}

MIRT__LIB bool mirt__onnx_stats(mirt__onnx *x, const mirt__node *node) {
    const int rank = node->in[0]->shape.rank, last = MIRT__OF(&node->a, norm)->last_axes;
    const char *in = mirt__onnx_get(x, node->in[0], MIRT__ONNX_OWN);
    int64_t axes[MIRT_MAX_RANK];
    int count = 0;
    for (int i = last ? rank - last : 0; i < (last ? rank : rank - 1); i++) axes[count++] = i;
    if (!in) return false;
    const char *mean = mirt__onnx_mean(x, in, axes, count, true, NULL),
               *centered = mirt__onnx_node(x, "Sub", NULL, in, mean, NULL),
               *square = mirt__onnx_node(x, "Mul", NULL, centered, centered, NULL);
    mirt__onnx_mean(x, in, axes, count, false, mirt__onnx_set(x, node->out[0], MIRT__ONNX_OWN));
    mirt__onnx_mean(x, square, axes, count, false, mirt__onnx_set(x, node->out[1], MIRT__ONNX_OWN));
    return true;
}
