#ifndef MIRT__GROUP_H
#define MIRT__GROUP_H
/* Processes that train one model together: how the tree over replicas spans them. */
#include "../kernels/kernels.h"
#include "engine.h"

#define MIRT__GROUP_CHUNK 65536 /* elements of a message, at most */

/* --- tree.c --- */
typedef enum mirt__plan_op {
    MIRT__PLAN_SEND,    /* elements of `slot` to `peer` */
    MIRT__PLAN_ADD,     /* those of `peer` are added to `slot` */
    MIRT__PLAN_JOIN,    /* those of slot `from` are added to `slot`, in this process */
    MIRT__PLAN_KEEP,    /* those of `slot` are complete: they go to the sum */
    MIRT__PLAN_GIVE,    /* elements of the sum to `peer` */
    MIRT__PLAN_TAKE     /* elements of the sum from `peer` */
} mirt__plan_op;
/* What one process does. Rounds ascend; in a round, messages are traded, then JOINs and KEEPs follow in order. */
typedef struct mirt__plan_item {
    mirt__plan_op op;
    int round, peer, slot, from;
    int64_t begin, end; /* elements */
} mirt__plan_item;
/* How the fixed tree over replicas [0, active) (strategy.h) is evaluated by processes that have contiguous blocks of
   them. A node that several processes have parts of is divided by elements among them; they exchange pieces in
   proportion, and add them. Then the sums go to all processes (Bruck et al. 1997), each of which sends to one other in
   a round. A pure function of its arguments. */
typedef struct mirt__group_plan {
    int rounds, slots;   /* slots: partial sums that this process begins with, those of the largest complete subtrees
                            among its replicas, in their order */
    int count;
    mirt__plan_item *item; /* by rounds */
    int64_t elements, inbox; /* inbox: elements that arrive in a round to be added, at most */
    /* Room for the messages of a round; a plan serves one sum at a time. */
    mirt__message *send, *receive;
    mirt__real **into; /* for each of `receive`: where it is added, or NULL */
} mirt__group_plan;
/* `begin`: [processes + 1] first replicas; replicas from `active` on have no rows. Without any, a plan has no items. */
MIRT__LIB mirt_status mirt__group_plan_make(mirt__group_plan *plan, int processes, const int *begin, int active,
                                                  int process, int64_t elements);
MIRT__LIB void mirt__group_plan_free(mirt__group_plan *plan);

/* --- sum.c --- */
/* The memory of a sum over processes. */
typedef struct mirt__group_sum {
    const mirt__engine *engine;
    int channel;
    mirt__waiting *waiting;
    mirt__real *const *slot; /* [plan.slots] of plan.elements; overwritten */
    mirt__real *sum;         /* gets the sum; may be slot[0] */
    mirt__real *inbox;       /* [plan.inbox] */
    /* into[0, count) += from[0, count) */
    void (*add)(void *user, mirt__real *into, const mirt__real *from, int64_t count);
    void *user;
} mirt__group_sum;
/* Every process calls it with its plan. False: *failure says why. */
MIRT__LIB bool mirt__group_sum_run(const mirt__group_plan *plan, const mirt__group_sum *sum,
                                   mirt__engine_failure *failure);

/* --- gather.c --- */
/* An array that every process has a part of: process p the elements [before[p], before[p + 1]). */
typedef struct mirt__gathered {
    void *base;
    const int64_t *before; /* [size + 1] */
    size_t bytes;          /* of an element */
} mirt__gathered;
/* Afterwards every process has all of the arrays. In ceil(log2(size)) rounds. */
typedef struct mirt__gathering {
    const mirt__engine *engine;
    int channel, rank, size;
    mirt__waiting *waiting;
} mirt__gathering;
MIRT__LIB bool mirt__gather_all(const mirt__gathering *group, const mirt__gathered *array, int arrays,
                                  mirt__engine_failure *failure);

#endif
