#include "ops.h"

MIRT__LIB const mirt__op *mirt__op_get(mirt__op_id id) {
    switch (id) {
#define MIRT__OP_CASE(name) case MIRT__OP_##name: return &mirt__op_##name;
    MIRT__OP_LIST(MIRT__OP_CASE)
#undef MIRT__OP_CASE
    default: return NULL;
    }
}

/* Names of the kinds that have functions of their own, in the order of their enumerations. */
static const char *const mirt__unary_labels[] = {
    "copy", "negative", "square", "relu", "sigmoid", "tanh", "scale", "exp", "log", "sqrt", "rsqrt", "abs", "sign", "floor",
    "clip", "power", "relu6", "leaky_relu", "elu", "gelu", "silu", "hard_sigmoid", "hard_swish", "softplus"};
static const char *const mirt__binary_labels[] = {"add", "subtract", "multiply", "divide", "maximum", "minimum"};
static const char *const mirt__logic_labels[] = {"equal", "not_equal", "less", "less_equal", "logical_and", "logical_or", "logical_not", "where"};
static const char *const mirt__reduce_labels[] = {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min"};
static const char *const mirt__scan_labels[] = {"argmax", "argmin", "cumsum"};

MIRT__LIB const char *mirt__called_name(mirt__op_id id, const mirt__attrs *a) {
    const char *const *names = NULL;
    int count = 0;
    if (!a) return mirt__op_get(id)->name;
    switch ((int)id) {
#define MIRT__OP_LABELS(op) case MIRT__OP_##op: names = mirt__##op##_labels, count = MIRT__COUNT(mirt__##op##_labels); break;
    MIRT__OP_LABELS(unary)
    MIRT__OP_LABELS(binary)
    MIRT__OP_LABELS(logic)
    MIRT__OP_LABELS(reduce)
    MIRT__OP_LABELS(scan)
#undef MIRT__OP_LABELS
    case MIRT__OP_user: return a->user_op->name;
    default: break;
    }
    return a->kind >= 0 && a->kind < count ? names[a->kind] : mirt__op_get(id)->name;
}
