#include "onnx.h"
/* ONNX's ops for single elements, and along axes. */

MIRT__LIB bool mirt__onnx_refuse(const mirt__onnx *x, const mirt__node *node) {
    const bool custom = node->id == MIRT__OP_user;
    return mirt__fail(MIRT_E_INVALID, "mirt_save_onnx: %s%s%s %s", node->name ? node->name : "",
                      node->name ? ": " : "", x->graph.ops->name(node->id, &node->a),
                      custom ? "is an op of your own; compose of its class says what it is made of"
                             : "cannot be written as ONNX"),
           false;
}

/* >>one input */

/* x * sigmoid(gate) */
static void mirt__onnx_gated(mirt__onnx *x, const char *out, const char *in, const char *gate) {
    mirt__onnx_node(x, "Mul", out, in, mirt__onnx_node(x, "Sigmoid", NULL, gate, NULL, NULL), NULL);
}

static const char *mirt__onnx_times(mirt__onnx *x, const char *in, double factor) {
    return factor == 1 ? in : mirt__onnx_node(x, "Mul", NULL, in, mirt__onnx_number(x, factor), NULL);
}

static void mirt__onnx_affine(mirt__onnx *x, const char *out, const char *in, double scale, double offset) {
    if (offset == 0) mirt__onnx_node(x, "Mul", out, in, mirt__onnx_number(x, scale), NULL);
    else mirt__onnx_node(x, "Add", out, mirt__onnx_times(x, in, scale), mirt__onnx_number(x, offset), NULL);
}

/* Nothing is cut off at an end that is not finite. */
static void mirt__onnx_clip(mirt__onnx *x, const char *out, const char *in, double least, double most) {
    const char *all[3] = {in, isfinite(least) ? mirt__onnx_number(x, least) : "", NULL};
    if (isfinite(most)) all[2] = mirt__onnx_number(x, most);
    mirt__onnx_end(x, mirt__onnx_begin(x, "Clip", all, isfinite(most) ? 3 : isfinite(least) ? 2 : 1, out));
}

/* An op with the attribute alpha, and another one. */
static void mirt__onnx_alpha(mirt__onnx *x, const char *op, const char *out, const char *in, double alpha,
                            const char *second, double value) {
    const size_t node = mirt__onnx_begin(x, op, &in, 1, out);
    mirt__onnx_float(x, "alpha", alpha);
    if (second) mirt__onnx_float(x, second, value);
    mirt__onnx_end(x, node);
}

/* x * (1 + erf(x / sqrt(2))) / 2 */
static void mirt__onnx_gelu(mirt__onnx *x, const char *out, const char *in) {
    const char *erf = mirt__onnx_node(x, "Erf", NULL, mirt__onnx_times(x, in, sqrt(0.5)), NULL, NULL),
               *sum = mirt__onnx_node(x, "Add", NULL, erf, mirt__onnx_number(x, 1), NULL);
    mirt__onnx_node(x, "Mul", out, in, mirt__onnx_times(x, sum, 0.5), NULL);
}

static void mirt__onnx_gelu_approximate(mirt__onnx *x, const char *out, const char *in) {
    const char *square = mirt__onnx_node(x, "Mul", NULL, in, in, NULL), *slope = mirt__onnx_fresh(x);
    mirt__onnx_affine(x, slope, square, (double)MIRT__GELU_CUBE, (double)MIRT__GELU_SLOPE);
    mirt__onnx_gated(x, out, in, mirt__onnx_node(x, "Mul", NULL, in, slope, NULL));
}

static void mirt__onnx_mish(mirt__onnx *x, const char *out, const char *in) {
    const char *softplus = mirt__onnx_node(x, "Softplus", NULL, in, NULL, NULL);
    mirt__onnx_node(x, "Mul", out, in, mirt__onnx_node(x, "Tanh", NULL, softplus, NULL, NULL), NULL);
}

/* The op of a kind that is one without attributes, or NULL. */
static const char *mirt__onnx_plain(mirt__unary_kind kind) {
    switch (kind) {
    case MIRT__COPY: return "Identity";
    case MIRT__NEGATIVE: return "Neg";
    case MIRT__ACT_RELU: return "Relu";
    case MIRT__ACT_SIGMOID: return "Sigmoid";
    case MIRT__ACT_TANH: return "Tanh";
    case MIRT__EXP: return "Exp";
    case MIRT__LOG: return "Log";
    case MIRT__SQRT: return "Sqrt";
    case MIRT__ABS: return "Abs";
    case MIRT__SIGN: return "Sign";
    case MIRT__FLOOR: return "Floor";
    case MIRT__ACT_HARD_SWISH: return "HardSwish";
    case MIRT__ACT_SOFTPLUS: return "Softplus";
    case MIRT__ACT_SOFTSIGN: return "Softsign";
    default: return NULL;
    }
}

MIRT__LIB bool mirt__onnx_unary(mirt__onnx *x, const mirt__node *node) {
    const mirt__unary_kind kind = (mirt__unary_kind)node->a.kind;
    const double scale = (double)node->a.scale, offset = (double)node->a.offset;
    const mirt__onnx_order order = mirt__onnx_order_of(x, node->in[0]);
    const char *in = mirt__onnx_get(x, node->in[0], order), *out = mirt__onnx_set(x, node->out[0], order);
    if (!in) return false;
    if (mirt__onnx_plain(kind)) return mirt__onnx_node(x, mirt__onnx_plain(kind), out, in, NULL, NULL), true;
    switch (kind) {
    case MIRT__SQUARE: mirt__onnx_node(x, "Mul", out, in, in, NULL); return true;
    case MIRT__RSQRT: mirt__onnx_node(x, "Reciprocal", out, mirt__onnx_node(x, "Sqrt", NULL, in, NULL, NULL), NULL,
                                      NULL); return true;
    case MIRT__AFFINE: mirt__onnx_affine(x, out, in, scale, offset); return true;
    case MIRT__CLIP: mirt__onnx_clip(x, out, in, scale, offset); return true;
    case MIRT__ACT_RELU6: mirt__onnx_clip(x, out, in, 0, 6); return true;
    case MIRT__POWER: mirt__onnx_node(x, "Pow", out, in, mirt__onnx_number(x, scale), NULL); return true;
    case MIRT__ACT_LEAKY_RELU: mirt__onnx_alpha(x, "LeakyRelu", out, in, scale, NULL, 0); return true;
    case MIRT__ACT_ELU: mirt__onnx_alpha(x, "Elu", out, in, scale, NULL, 0); return true;
    case MIRT__ACT_SELU:
        mirt__onnx_alpha(x, "Selu", out, in, (double)MIRT__SELU_ALPHA, "gamma", (double)MIRT__SELU_SCALE);
        return true;
    case MIRT__ACT_HARD_SIGMOID: mirt__onnx_alpha(x, "HardSigmoid", out, in, 1.0 / 6, "beta", 0.5); return true;
    case MIRT__ACT_GELU: mirt__onnx_gelu(x, out, in); return true;
    case MIRT__ACT_GELU_APPROXIMATE: mirt__onnx_gelu_approximate(x, out, in); return true;
    case MIRT__ACT_SILU: mirt__onnx_gated(x, out, in, in); return true;
    case MIRT__ACT_MISH: mirt__onnx_mish(x, out, in); return true;
    default: return mirt__onnx_refuse(x, node);
    }
}

/* >>several inputs */

/* FIRST where an image is so already. */
static mirt__onnx_order mirt__onnx_common_order(const mirt__onnx *x, const mirt__node *node) {
    for (int i = 0; i < node->num_in && node->out[0]->shape.rank == 4; i++) {
        const mirt_tensor *t = node->in[i];
        if (t->shape.rank == 4 && mirt__onnx_order_of(x, t) == MIRT__ONNX_FIRST) return MIRT__ONNX_FIRST;
    }
    return MIRT__ONNX_OWN;
}

/* Whether ONNX Runtime lacks the op for this dtype. */
static bool mirt__onnx_as_integers(const mirt__node *node, const mirt_tensor *t) {
    if (node->id != MIRT__OP_logic) return false;
    const int kind = node->a.kind;
    if (t->dtype == MIRT_BOOL) return kind == MIRT__IS_LESS || kind == MIRT__IS_LESS_EQUAL;
    return t->dtype == MIRT_UINT8 && kind != MIRT__WHERE;
}

/* A node of the same inputs, converted where they have to be; `out` NULL: a fresh name. */
static const char *mirt__onnx_same(mirt__onnx *x, const mirt__node *node, const char *op, const char *out,
                                   mirt__onnx_order order) {
    const char *in[3];
    for (int i = 0; i < node->num_in; i++) {
        mirt_tensor *t = node->in[i];
        in[i] = mirt__onnx_operand(x, t, node->out[0]->shape.rank, order);
        if (!in[i]) return NULL;
        if (mirt__onnx_as_integers(node, t)) in[i] = mirt__onnx_convert(x, in[i], MIRT_INT32, NULL);
        if (i > 0 && node->id == MIRT__OP_logic && node->a.kind == MIRT__WHERE && t->dtype == MIRT_BOOL)
            in[i] = mirt__onnx_convert(x, in[i], MIRT_UINT8, NULL);
    }
    if (!out) out = mirt__onnx_fresh(x);
    mirt__onnx_end(x, mirt__onnx_begin(x, op, in, node->num_in, out));
    return out;
}

MIRT__LIB bool mirt__onnx_binary(mirt__onnx *x, const mirt__node *node) {
    static const char *const op[] = {"Add", "Sub", "Mul", "Div", "Max", "Min"};
    const mirt__onnx_order order = mirt__onnx_common_order(x, node);
    const int kind = node->id == MIRT__OP_bias_add ? MIRT__ADD : node->a.kind;
    if (kind < 0 || kind >= MIRT__COUNT(op)) return mirt__onnx_refuse(x, node);
    return mirt__onnx_same(x, node, op[kind], mirt__onnx_set(x, node->out[0], order), order) != NULL;
}

MIRT__LIB bool mirt__onnx_logic(mirt__onnx *x, const mirt__node *node) {
    static const char *const op[] = {"Equal", "Equal", "Less", "LessOrEqual", "And", "Or", "Not", "Where"};
    const mirt__onnx_order order = mirt__onnx_common_order(x, node);
    if (node->a.kind < 0 || node->a.kind >= MIRT__COUNT(op)) return mirt__onnx_refuse(x, node);
    const bool negated = node->a.kind == MIRT__IS_NOT_EQUAL;
    const bool bytes = node->a.kind == MIRT__WHERE && node->out[0]->dtype == MIRT_BOOL;
    const char *out = mirt__onnx_set(x, node->out[0], order);
    const char *got = mirt__onnx_same(x, node, op[node->a.kind], negated || bytes ? NULL : out, order);
    if (got && negated) mirt__onnx_node(x, "Not", out, got, NULL, NULL);
    if (got && bytes) mirt__onnx_convert(x, got, MIRT_BOOL, out);
    return got != NULL;
}

/* >>along axes */

MIRT__LIB bool mirt__onnx_softmax(mirt__onnx *x, const mirt__node *node) {
    const mirt__onnx_order order = mirt__onnx_order_of(x, node->in[0]);
    const char *in = mirt__onnx_get(x, node->in[0], order), *out = mirt__onnx_set(x, node->out[0], order);
    if (!in) return false;
    const size_t begin = mirt__onnx_begin(x, node->id == MIRT__OP_softmax ? "Softmax" : "LogSoftmax", &in, 1, out);
    mirt__onnx_int(x, "axis", mirt__onnx_axis(order, node->in[0]->shape.rank - 1));
    mirt__onnx_end(x, begin);
    return true;
}

/* Whether what is left after these axes has the same order in both. */
static bool mirt__onnx_keeps_order(unsigned axes, bool keepdims) {
    const unsigned image = 1u << 1 | 1u << 2, channels = 1u << 3;
    return keepdims || (axes & channels) || (axes & image) == image;
}

MIRT__LIB bool mirt__onnx_reduce(mirt__onnx *x, const mirt__node *node) {
    static const char *const op[] = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"};
    const mirt__attrs_reduce *a = MIRT__OF(&node->a, reduce);
    const int rank = node->in[0]->shape.rank;
    int64_t axes[MIRT_MAX_RANK];
    int count = 0;
    mirt__onnx_order order = mirt__onnx_order_of(x, node->in[0]);
    if (node->a.kind < 0 || node->a.kind >= MIRT__COUNT(op)) return mirt__onnx_refuse(x, node);
    if (!mirt__onnx_keeps_order(a->axes, a->keepdims)) order = MIRT__ONNX_OWN;
    for (int i = 0; i < rank; i++) {
        if (a->axes >> i & 1) axes[count++] = mirt__onnx_axis(order, i);
    }
    const char *in[2] = {mirt__onnx_get(x, node->in[0], order), NULL};
    const char *out = mirt__onnx_set(x, node->out[0], a->keepdims ? order : MIRT__ONNX_OWN);
    if (!in[0]) return false;
    if (!count) return mirt__onnx_node(x, "Identity", out, in[0], NULL, NULL), true;
    const bool sum = node->a.kind == MIRT__REDUCE_SUM; /* whose axes are an input since opset 13 */
    if (sum) in[1] = mirt__onnx_list(x, axes, count);
    const size_t begin = mirt__onnx_begin(x, op[node->a.kind], in, sum ? 2 : 1, out);
    if (!sum) mirt__onnx_ints(x, "axes", axes, count);
    mirt__onnx_int(x, "keepdims", a->keepdims);
    mirt__onnx_end(x, begin);
    return true;
}

MIRT__LIB bool mirt__onnx_scan(mirt__onnx *x, const mirt__node *node) {
    const int axis = MIRT__OF(&node->a, axis)->axis;
    const char *in[2] = {mirt__onnx_get(x, node->in[0], MIRT__ONNX_OWN), NULL};
    const char *out = mirt__onnx_set(x, node->out[0], MIRT__ONNX_OWN);
    const bool finds = node->a.kind == MIRT__ARGMAX || node->a.kind == MIRT__ARGMIN;
    if (!in[0]) return false;
    if (!finds && node->a.kind != MIRT__CUMSUM) return mirt__onnx_refuse(x, node);
    if (!finds) {
        const mirt_shape number = mirt_make_shape(0, 0, 0, 0, 0, 0);
        const int32_t value = (int32_t)axis;
        in[1] = mirt__onnx_tensor(x, NULL, MIRT_INT32, &number, &value);
        mirt__onnx_node(x, "CumSum", out, in[0], in[1], NULL);
        return true;
    }
    const char *place = mirt__onnx_fresh(x);
    const size_t begin = mirt__onnx_begin(x, node->a.kind == MIRT__ARGMAX ? "ArgMax" : "ArgMin", in, 1, place);
    mirt__onnx_int(x, "axis", axis);
    mirt__onnx_int(x, "keepdims", 0);
    mirt__onnx_end(x, begin);
    return mirt__onnx_convert(x, place, MIRT_INT32, out) != NULL;
}
