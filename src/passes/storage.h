#ifndef MIRT__STORAGE_H
#define MIRT__STORAGE_H
/* Decides by costs which tensors are stored, lazy or computed twice.

   A tensor that is stored costs a pass over memory, which computes it, and space until its last reader. A tensor whose
   readers can all compute it while they read (convolutions can) may be lazy: it is never stored, and each reader
   reads what its node would have read. A tensor that the backward pass reads may be computed a second time there, so
   that it occupies no memory between the passes. Decisions depend on the graph and on the costs, never on the number
   of rows. */
#include "../graph/program.h"

typedef enum mirt__storage { MIRT__STORED, MIRT__LAZY, MIRT__TWICE } mirt__storage;

/* What a tensor costs by each choice, for `rows` rows; a choice that the graph does not have costs HUGE_VAL. */
typedef struct mirt__choice {
    double store, lazy, twice;
} mirt__choice;

/* The cheapest; of equal ones lazy before stored, and stored before twice. */
MIRT__LIB mirt__storage mirt__choose(const mirt__choice *choice);
/* Makes `t`, which all its readers can compute, lazy if that is cheaper than storing it. */
MIRT__LIB bool mirt__storage_lazy(mirt_tensor *t, const mirt__storage_costs *costs);
/* Whether a copy of `t` in 16 bits pays for `readers` normalizations that read it in its place. */
MIRT__TRAINING_LIB bool mirt__storage_copy(const mirt_tensor *t, int readers, const mirt__storage_costs *costs);
/* Records the nodes whose tensors are computed twice once more, before the first backward node that reads them. To be
   called before mirt__fuse_half. On an error the graph is marked. */
MIRT__TRAINING_LIB void mirt__storage_twice(mirt__graph *graph, const mirt__storage_costs *costs,
                                            mirt_tensor *const *keep, int count);
/* One line per tensor of a planned program, for its largest number of rows: the choice, bytes, microseconds to store it
   and to compute it while it is read or twice ("-": neither is possible). */
MIRT__TRAINING_LIB void mirt__storage_text(mirt__program *program, const mirt__storage_costs *costs, mirt__text *out);

#endif
