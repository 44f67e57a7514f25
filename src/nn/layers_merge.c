#include "layers.h"
/* Layers that join tensors. */

/* ((in[0] op in[1]) op in[2]) ... */
static mirt_tensor *mirt__merge(mirt__layer *layer, mirt_tensor *x, mirt__binary_kind kind) {
    for (int i = 1; i < layer->num_in; i++) x = mirt__binary_op(kind, x, layer->in[i]);
    return x;
}

#define MIRT__MERGE(name, kind, class_name, min_in, max_in) \
    static mirt_tensor *mirt__##name##_build(mirt__layer *layer, mirt_tensor *x) { \
        return mirt__merge(layer, x, kind); \
    } \
    MIRT__PLAIN_LAYER(name, class_name, #name, min_in, max_in); \
    MIRT_API mirt_tensor *mirt_##name##_layer(mirt_tensor *const *in, int count) { \
        return mirt__layer_add(NULL, &mirt__##name##_layer, in, count, NULL, NULL); \
    }

MIRT__MERGE(add, MIRT__ADD, "Add", 1, MIRT__MAX_IN)
MIRT__MERGE(subtract, MIRT__SUBTRACT, "Subtract", 2, 2)
MIRT__MERGE(multiply, MIRT__MULTIPLY, "Multiply", 1, MIRT__MAX_IN)
MIRT__MERGE(maximum, MIRT__MAXIMUM, "Maximum", 1, MIRT__MAX_IN)
MIRT__MERGE(minimum, MIRT__MINIMUM, "Minimum", 1, MIRT__MAX_IN)
#undef MIRT__MERGE

static mirt_tensor *mirt__average_build(mirt__layer *layer, mirt_tensor *x) {
    return mirt__unary_op(MIRT__AFFINE, mirt__merge(layer, x, MIRT__ADD), 1.0f / (float)layer->num_in, 0);
}

MIRT__PLAIN_LAYER(average, "Average", "average", 1, MIRT__MAX_IN);

MIRT_API mirt_tensor *mirt_average_layer(mirt_tensor *const *in, int count) {
    return mirt__layer_add(NULL, &mirt__average_layer, in, count, NULL, NULL);
}

static mirt_tensor *mirt__concatenate_build(mirt__layer *layer, mirt_tensor *x) {
    (void)x;
    return mirt_concat(layer->in, layer->num_in, *(const int *)layer->desc);
}

static const mirt__field mirt__concatenate_fields[] = {MIRT__ONLY_FIELD("axis", SIGNED)};
MIRT__LAYER(concatenate, "Concatenate", "concatenate", 1, MIRT__MAX_IN, mirt__concatenate_fields, int);

MIRT_API mirt_tensor *mirt_concatenate(mirt_tensor *const *in, int count, int axis) {
    return mirt__layer_add(NULL, &mirt__concatenate_layer, in, count, &axis, NULL);
}

/* Operand i of a dot product as (rows, its other axes, 1, the axis), or (rows, 1, its other axes, the axis) for the
   second one, which then broadcast; the sizes of the other axes are appended to `rest`. */
static mirt_tensor *mirt__dot_operand(mirt__layer *layer, int i, mirt_shape *rest) {
    mirt_dot_desc *d = (mirt_dot_desc *)layer->desc;
    mirt_tensor *x = layer->in[i];
    const int axis = mirt__layer_axis(x, d->axes[i]);
    mirt_shape shape = MIRT_SHAPE(MIRT_ROWS, 1, 1, 1);
    if (!axis) return NULL;
    if (!mirt__is_batched(&x->shape) || rest->rank + x->shape.rank - 2 > MIRT_MAX_RANK) {
        mirt__fail(MIRT_E_SHAPE, "takes two tensors (rows, ...) that have at most %d axes besides those summed over",
                   MIRT_MAX_RANK);
        return NULL;
    }
    d->axes[i] = axis;
    for (int k = 1; k < x->shape.rank; k++) {
        shape.dim[k == axis ? 3 : 1 + i] *= x->shape.dim[k];
        if (k != axis) rest->dim[rest->rank++] = x->shape.dim[k];
    }
    if (d->normalize) x = mirt__unit_length(x, axis, 1e-14f); /* Keras's epsilon, 1e-7 */
    return mirt__reshape_op(mirt__axes_last(x, 1u << axis, false), &shape);
}

static mirt_tensor *mirt__dot_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_dot_desc *d = (mirt_dot_desc *)layer->desc;
    mirt_shape rest = MIRT_SHAPE(MIRT_ROWS);
    char first[96], second[96];
    mirt__default_pair(d->axes, -1);
    mirt_tensor *a = mirt__dot_operand(layer, 0, &rest), *b = a ? mirt__dot_operand(layer, 1, &rest) : NULL;
    if (!b) return NULL;
    if (a->shape.dim[3] != b->shape.dim[3]) {
        mirt__fail(MIRT_E_SHAPE, "axis %d of %s and axis %d of %s differ in size", d->axes[0],
                   mirt__shape_text(&x->shape, first), d->axes[1], mirt__shape_text(&layer->in[1]->shape, second));
        return NULL;
    }
    if (rest.rank == 1) rest = MIRT_SHAPE(MIRT_ROWS, 1);
    x = mirt__reduce_op(MIRT__REDUCE_SUM, mirt__binary_op(MIRT__MULTIPLY, a, b), 8u, false);
    return x ? mirt__reshape_op(x, &rest) : NULL;
}

static const mirt__field mirt__dot_fields[] = {MIRT__OWN_FIELD(mirt_dot_desc, INT2, axes),
                                               MIRT__OWN_FIELD(mirt_dot_desc, BOOL, normalize)};
MIRT__LAYER(dot, "Dot", "dot", 2, 2, mirt__dot_fields, mirt_dot_desc);

MIRT_API mirt_tensor *mirt_dot(mirt_tensor *a, mirt_tensor *b, const mirt_dot_desc *desc) {
    mirt_tensor *in[2];
    in[0] = a;
    in[1] = b;
    return mirt__layer_add(NULL, &mirt__dot_layer, in, 2, desc, desc ? desc->name : NULL);
}
