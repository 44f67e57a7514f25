#ifndef MIRT__STRATEGY_H
#define MIRT__STRATEGY_H
/* V logical replicas on P <= V physical devices. A replica owns a slice of every global batch; a
   device runs its contiguous block of replicas one after another. */
#include "../base/team.h"
#include "../kernels/kernels.h"

#define MIRT__MAX_DEVICES 32
#define MIRT__MAX_REPLICAS 4096

typedef struct mirt__device {
    char name[32];
    mirt__team *team; /* NULL when it has one thread */
    int first_replica, num_replicas;
} mirt__device;

struct mirt_strategy {
    int num_devices, num_replicas, threads;
    uint64_t seed;
    mirt__device device[MIRT__MAX_DEVICES];
    mirt__team *leaders; /* one member a device; NULL for one device */
    const mirt__kernels *kernels;
    mirt_log_fn log;
    void *log_user;
    int fits;           /* under way */
    mirt_model *models; /* living in it, a list */
};

MIRT__LIB void mirt__log(const mirt_strategy *strategy, mirt_log_level level, const char *format, ...) MIRT__PRINTF(3, 4);
/* Whether the log is the default one on a terminal, where lines can be overwritten. */
MIRT__LIB bool mirt__log_is_terminal(const mirt_strategy *strategy);
/* Runs fn for every device, each on its own thread, and returns when all are done. */
MIRT__LIB void mirt__on_devices(mirt_strategy *strategy, void (*fn)(void *arg, int device), void *arg);
/* Inside mirt__on_devices: waits for the other devices. */
MIRT__LIB void mirt__devices_barrier(mirt_strategy *strategy);

/* Balanced, contiguous shares: the first (total % shares) get one more. */
MIRT__LIB int64_t mirt__share(int64_t total, int64_t shares, int64_t index, int64_t *first);

/* The fixed binary tree over replicas [0, count): a node over [lo, hi) splits at the largest power
   of two below hi - lo, so that its left child is complete. A stack of complete subtrees is a
   binary counter: pushing a subtree merges it with its left sibling as long as there is one. */
typedef struct mirt__subtree {
    int lo, size;
} mirt__subtree;
typedef struct mirt__tree_stack {
    mirt__subtree node[64];
    int depth;
} mirt__tree_stack;
/* Pushes; returns how many times the top two then merge (each leaves the sum in the lower one). */
MIRT__LIB int mirt__tree_push(mirt__tree_stack *stack, int lo, int size);
/* Gradient buffers that replicas [first, first + count) need at most at one time. */
MIRT__LIB int mirt__tree_slots(int first, int count);

/* How the subtrees that devices are left with are added. */
typedef struct mirt__exchange {
    int parts;
    int device[MIRT__MAX_PARTS], slot[MIRT__MAX_PARTS];
    struct { int into, from; } add[MIRT__MAX_PARTS]; /* parts - 1 of them, in order; the sum ends in part 0 */
} mirt__exchange;
/* For the replicas [0, active) that have rows. */
MIRT__LIB void mirt__exchange_plan(const mirt_strategy *strategy, int active, mirt__exchange *out);

#endif
