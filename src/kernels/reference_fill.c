#include "reference.h"
/* What all tables share. */

MIRT__LIB void mirt__ref_fill(mirt__real *y, mirt__real value, int64_t count, const mirt__where *where) {
    (void)where;
    for (int64_t i = 0; i < count; i++) y[i] = value;
}

MIRT__LIB void mirt__ref_constant(void *y, const void *data, size_t bytes, const mirt__where *where) {
    (void)where;
    memcpy(y, data, bytes);
}
