/* The table of reference kernels. */

#include "augment.h"
#include "reference.h"

/* They use one thread and no scratch memory. */
#define MIRT__REF_ENTRY(name, arguments, fast, use) \
    static void mirt__ref_table_##name(const mirt__##arguments *args, const mirt__where *where) { \
        (void)where; \
        mirt__ref_##name(args); \
    }
MIRT__KERNEL_LIST(MIRT__REF_ENTRY)
#undef MIRT__REF_ENTRY

#define MIRT__REF_UPDATE(kind, name, kernel) case kind: mirt__ref_update_by(args, mirt__ref_##kernel); break;
static void mirt__ref_update(const mirt__update *args, const mirt__where *where) {
    (void)where;
    switch (args->kind) {
    MIRT_OPTIMIZER_LIST(MIRT__REF_UPDATE)
    case MIRT__OPTIMIZER_COUNT: break;
    }
}
#undef MIRT__REF_UPDATE

MIRT__KERNEL_TABLE mirt__kernels mirt__kernels_reference = {
    "reference", false, false, false, false,
#define MIRT__KERNEL_ENTRY(name, arguments, fast, use) mirt__ref_table_##name,
    MIRT__KERNEL_LIST(MIRT__KERNEL_ENTRY)
#undef MIRT__KERNEL_ENTRY
    mirt__augment_batch,
    mirt__ref_fill,
    mirt__ref_constant,
    mirt__ref_accumulate,
    mirt__ref_update,
};
