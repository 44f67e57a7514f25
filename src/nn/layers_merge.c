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
