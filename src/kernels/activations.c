#include "kernels.h"
/* The table of activations. */

static const mirt__activation_class mirt__activation_table[] = {
#define MIRT__ACTIVATION_ROW(id, label, fused, unary, grad, scale) {#label, fused, MIRT__##unary, MIRT__##grad, scale},
    MIRT__ACTIVATION_LIST(MIRT__ACTIVATION_ROW)
#undef MIRT__ACTIVATION_ROW
};

enum {
#define MIRT__ACTIVATION_PLACE(id, ...) MIRT__PLACE_##id,
    MIRT__ACTIVATION_LIST(MIRT__ACTIVATION_PLACE)
#undef MIRT__ACTIVATION_PLACE
    MIRT__PLACES
};
#define MIRT__ACTIVATION_IN_PLACE(id, ...) \
    MIRT__STATIC_ASSERT((int)MIRT__PLACE_##id == (int)MIRT_##id, "the rows are in the order of the enumerators");
MIRT__ACTIVATION_LIST(MIRT__ACTIVATION_IN_PLACE)
#undef MIRT__ACTIVATION_IN_PLACE
MIRT__STATIC_ASSERT((int)MIRT__PLACES == (int)MIRT__ACTIVATION_COUNT, "each activation has a row");

MIRT__LIB const mirt__activation_class *mirt__activation_get(mirt_activation_kind kind) {
    return (int)kind >= 0 && kind < MIRT__ACTIVATION_COUNT ? &mirt__activation_table[kind] : NULL;
}
