#ifndef MIRT__STRATEGY_H
#define MIRT__STRATEGY_H
/* V logical replicas on P <= V physical devices. A replica owns a slice of every global batch; a
   device runs its contiguous block of replicas one after another. */
#include "../base/entry.h"
#include "../base/team.h"
#include "../base/device_timeline.h"
#include "../kernels/kernels.h"
#include "../device/devices.h"

struct mirt__program;
typedef struct mirt__watch mirt__watch;


typedef struct mirt__device {
    char name[32];
    mirt__team *team; /* NULL when it has one thread */
    int first_replica, num_replicas;
    int index;             /* among the devices of its kind on this machine */
    mirt__handle *handle;  /* opened */
} mirt__device;

/* Bytes of the parts of a device's working memory, in this order. */
typedef struct mirt__layout {
    size_t gradients, arena, replica, shared, scratch, io; /* io: copies of the batch and of results */
} mirt__layout;

struct mirt_strategy {
    int64_t process;        /* that created it; its threads are not in a child */
    const void *owner;      /* atomic: the identity of the thread that has calls under way, or NULL */
    const char *owner_call; /* atomic: the first of these, */
    int owner_depth;        /* and how many they are */
    mirt_strategy_kind kind;
    mirt_collective collective;
    int num_devices, num_replicas, threads;
    uint64_t seed;
    bool winograd;
    const mirt__backend *backend; /* the devices' table, */
    mirt__abilities able;         /* and what they can do */
    mirt__error device_error;     /* of the first that failed in a step */
    char lost[512];               /* why the devices can no longer be used, or "" */
    mirt__device device[MIRT__MAX_DEVICES];
    mirt__team *leaders; /* one member a device; NULL for one device */
    const mirt__kernels *kernels;
    mirt_log_fn log;
    void *log_user;
    int held;           /* calls under way that run code of the user */
    bool running;       /* devices replay a step */
    mirt_model *models; /* living in it, a list */
    void (*drop_models)(mirt_strategy *strategy); /* frees them */
    uint64_t graphs;    /* recorded so far */
    char *block[MIRT__MAX_DEVICES]; /* the devices' working memory, by memory.c */
    mirt__layout layout;
    const void *in_memory;          /* whose gradients lie in it, */
    const void *prefetched;             /* and whose next batch, where it was sent ahead, or NULL */
    mirt__device_timeline *timeline;               /* [num_devices] */
    const mirt_model *timing;       /* being trained by a fit that counts seconds */
    mirt__watch *watch;      /* NULL: there is no time limit */
    mirt_status (*round)(mirt_strategy *strategy, void (*fn)(void *arg, int device), void *arg); /* mirt__on_devices */
    bool limit_asked;               /* it is not the usual one */
    const char *death;              /* why it is of no use any more, or NULL */
    const struct mirt__program *program; /* under way on the devices */
    const mirt_model *timed;        /* that did so last */
    double timed_since, timed_wall; /* since when it does, and seconds before that */
    int64_t timed_steps;
    const struct mirt__observer *observer; /* of steps; NULL: nothing was ever measured */
    struct mirt__trace *trace;      /* NULL: none is being made */
    void (*drop_trace)(mirt_strategy *strategy); /* ends it without a file */
    uint64_t traces;                /* begun so far */
    uint64_t copy_hash[MIRT__MAX_DEVICES]; /* of each copy of the weights, when they were compared last */
    mirt__pool pool;    /* what lives as long as it does */
    mirt__text environment; /* by environment.c */
    struct mirt__custom_entry *customs;      /* user-defined losses and metrics */
    struct mirt__op_entry *op_classes;       /* user-defined, a list, the latest first */
    struct mirt__layer_class *layer_classes; /* user-defined, a list, the latest first */
};

MIRT__LIB void mirt__log(const mirt_strategy *strategy, mirt_log_level level, const char *format, ...)
    MIRT__PRINTF(3, 4);
/* Whether messages go to the user's own code. */
MIRT__LIB bool mirt__log_is_users(const mirt_strategy *strategy);
/* Width of the terminal that the default log writes to, asked for anew by every call: a line can be overwritten there
   as long as it is no wider. 0: the log goes elsewhere. */
MIRT__LIB int mirt__log_columns(const mirt_strategy *strategy);

/* --- watch.c --- */
/* Runs fn for every device, each on its own thread, and returns when all are done. MIRT_E_TIMEOUT: they were given
   up. */
MIRT__LIB mirt_status mirt__on_devices(mirt_strategy *strategy, void (*fn)(void *arg, int device), void *arg);
/* Inside mirt__on_devices: waits for the other devices; false: they were given up, and this one is to return at
   once. */
MIRT__TRAINING_LIB bool mirt__devices_barrier(mirt_strategy *strategy, int device);
/* MIRT_E_TIMEOUT: the strategy is dead. */
MIRT__LIB mirt_status mirt__usable(const mirt_strategy *strategy);
/* Inside mirt__on_devices: a device that was given up never comes back from here, unless it is the caller. */
MIRT__LIB void mirt__park_if_given_up(const mirt_strategy *strategy, int device);
/* --- owner.c --- */
/* Until the end of the block: the calling thread uses the strategy, and MIRT__ENTER is in force. Leaves the function
   with `failed` where another thread uses it, or in a child of its process (MIRT_E_STATE). NULL is allowed. */
#define MIRT__USE(strategy, failed) \
    MIRT__ENTER; \
    MIRT__CLAIM(strategy, __func__, failed)
/* Where MIRT__ENTER is in force already. `call`: its name in messages. */
#define MIRT__CLAIM(strategy, call, failed) \
    mirt_strategy *mirt__used MIRT__AT_END(mirt__use_end) = strategy; \
    if (!mirt__use_begin(&mirt__used, call)) return failed
MIRT__LIB bool mirt__use_begin(mirt_strategy **strategy, const char *call);
MIRT__LIB void mirt__use_end(mirt_strategy **strategy);
/* Whether what belongs to it can be destroyed now: not while another thread uses it, which is logged, nor in a child of
   its process, nor when it timed out, as its threads may still run. */
MIRT__LIB bool mirt__may_destroy(const mirt_strategy *strategy, const char *call);
/* --- strategy.c --- */

/* Copies of the weights that devices read: one per device, or one for all. */
MIRT__LIB int mirt__device_copies(const mirt_strategy *strategy);
/* Those that one device writes in an update. */
MIRT__TRAINING_LIB int mirt__written_copies(const mirt_strategy *strategy);

/* --- replicas.c --- */
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

/* The following take a number of replicas of their own: the strategy's, or k times as many when a
   step accumulates the gradients of k batches. */

/* The replicas [*first, *first + result) that `device` runs. */
MIRT__LIB int mirt__device_replicas(const mirt_strategy *strategy, int replicas, int device, int *first);
/* Gradient buffers of each device: what the binary counter needs, or one a replica. */
MIRT__TRAINING_LIB int mirt__gradient_slots(const mirt_strategy *strategy, int replicas, bool slot_per_replica);
/* Whether the devices' partial sums fit a mirt__exchange, whatever number of replicas has rows. */
MIRT__LIB mirt_status mirt__check_parts(const mirt_strategy *strategy, int replicas);

/* --- collective.c --- */
/* How the partial sums that devices are left with are added, as one device does it for its range of elements. */
typedef struct mirt__exchange {
    /* Asked: the arguments of mirt__exchange_plan. */
    const mirt_strategy *strategy;
    int replicas, active;
    bool slot_per_replica;
    /* Answered. */
    int parts;
    int device[MIRT__MAX_PARTS], slot[MIRT__MAX_PARTS];
    mirt__addition add[MIRT__MAX_PARTS]; /* parts - 1 of them, in order; the sum ends in part 0 */
} mirt__exchange;
/* `device`'s additions when the replicas [0, active) have rows. A partial sum lies in the slot of its
   depth in its device's binary counter or, with slot_per_replica, in that of its first replica. */
MIRT__TRAINING_LIB void mirt__exchange_plan(const mirt_strategy *strategy, int replicas, int active,
                                            bool slot_per_replica, int device, mirt__exchange *out);
/* The elements of a block of `elements` that `device` sums: whole vectors, perhaps none. */
MIRT__TRAINING_LIB void mirt__exchange_range(const mirt_strategy *strategy, int64_t elements, int device,
                                             int64_t *begin, int64_t *end);
/* Those that it updates: the same or, with a copy in memory of its own, all. */
MIRT__TRAINING_LIB void mirt__update_range(const mirt_strategy *strategy, int64_t elements, int device,
                                           int64_t *begin, int64_t *end);
/* NULL when there is no such collective; the reasons to take it in *why. */
MIRT__LIB const char *mirt__collective_name(mirt_collective collective, const char **why);

#endif
