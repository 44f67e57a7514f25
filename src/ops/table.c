#include "ops.h"

MIRT__LIB const mirt__op *mirt__op_get(mirt__op_id id) {
    switch (id) {
#define MIRT__OP_CASE(name) case MIRT__OP_##name: return &mirt__op_##name;
    MIRT__OP_LIST(MIRT__OP_CASE)
#undef MIRT__OP_CASE
    default: return NULL;
    }
}
