#include "ops.h"
/* The table of ops. */

MIRT__LIB const mirt__op *mirt__op_get(mirt__op_id id) {
    switch (id) {
#define MIRT__OP_CASE(name, family) case MIRT__OP_##name: return &mirt__op_##name;
    MIRT__PREDICT_OP_LIST(MIRT__OP_CASE)
#ifndef MIRRORTRAIN_NO_TRAIN
    MIRT__TRAINING_OP_LIST(MIRT__OP_CASE)
#endif
#undef MIRT__OP_CASE
    default: return NULL;
    }
}

MIRT__LIB mirt__attrs mirt__attrs_of(mirt__op_id id) {
    mirt__attrs a;
    memset(&a, 0, sizeof a);
    a.family = mirt__op_get(id)->family;
    return a;
}

#define MIRT__KIND_NAME_NONE(label) NULL
#define MIRT__KIND_NAME_0(label) #label
#define MIRT__KIND_LABEL(number, id, label, function, ...) case MIRT__##id: return MIRT__KIND_NAME_##function(label);
/* also those that have no function */
#define MIRT__ANY_LABEL(number, id, label, ...) case MIRT__##id: return #label;
#define MIRT__PLAIN_LABEL(number, id, label, function) case MIRT__##id: return MIRT__KIND_NAME_##function(label);
#define MIRT__CHOICE_LABEL(number, id, label) case MIRT__##id: return #label;

MIRT__LIB const char *mirt__kind_label(mirt__op_id id, int kind) {
    if (id == MIRT__OP_unary) {
        switch ((mirt__unary_kind)kind) { MIRT__UNARY_LIST(MIRT__ANY_LABEL) }
    } else if (id == MIRT__OP_binary) {
        switch ((mirt__binary_kind)kind) { MIRT__BINARY_LIST(MIRT__KIND_LABEL) }
    } else if (id == MIRT__OP_logic) {
        switch ((mirt__logic_kind)kind) { MIRT__LOGIC_LIST(MIRT__ANY_LABEL, MIRT__CHOICE_LABEL) }
    } else if (id == MIRT__OP_reduce) {
        switch ((mirt__reduce_kind)kind) { MIRT__REDUCE_LIST(MIRT__PLAIN_LABEL) }
    } else if (id == MIRT__OP_scan) {
        switch ((mirt__scan_kind)kind) { MIRT__SCAN_LIST(MIRT__PLAIN_LABEL) }
    } else if (kind == 0) {
        return mirt__op_get(id)->name;
    }
    return NULL;
}

#undef MIRT__KIND_NAME_NONE
#undef MIRT__KIND_NAME_0
#undef MIRT__KIND_LABEL
#undef MIRT__ANY_LABEL
#undef MIRT__PLAIN_LABEL
#undef MIRT__CHOICE_LABEL

/* What messages call an op: the name of the function that records it. */
static const char *mirt__called_name(mirt__op_id id, const mirt__attrs *a) {
    if (!a) return mirt__op_get(id)->name;
    if (id == MIRT__OP_user) return MIRT__OF(a, data)->user_op->name;
    const char *label = mirt__kind_label(id, a->kind);
    return label ? label : mirt__op_get(id)->name;
}

static mirt_tensor *mirt__add_gradients(mirt_tensor *a, mirt_tensor *b) { return mirt__binary_op(MIRT__ADD, a, b); }

MIRT__LIB const mirt__op_set *mirt__ops(void) {
    static const mirt__op_set set = {mirt__op_get, mirt__called_name, mirt__add_gradients};
    return &set;
}
