#ifndef MIRT__STRATEGY_H
#define MIRT__STRATEGY_H
/* V logical replicas on P <= V physical devices. A replica owns a slice of every global batch; a
   device runs its contiguous block of replicas one after another. */
#include "../base/entry.h"
#include "../base/team.h"
#include "../base/device_timeline.h"
#include "../kernels/kernels.h"
#include "../device/devices.h"
#include "../group/group.h"

struct mirt__program;
typedef struct mirt__courier mirt__courier;
typedef struct mirt__watch mirt__watch;
typedef struct mirt__averaging mirt__averaging;


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

/* What a process has found in a step. */
typedef struct mirt__peer_flags {
    int32_t failed, failed_code, not_finite, stop;
    int32_t lost; /* a device has failed */
} mirt__peer_flags;
enum { MIRT__BEFORE_ONE, MIRT__BEFORE_ROWS, MIRT__BEFORE_PLACES, MIRT__BEFORE_REPLICAS, MIRT__BEFORES };

/* Who waits on a channel, and why the wait has failed, or "". */
typedef struct mirt__patience {
    mirt_strategy *strategy;
    char failed[300];
} mirt__patience;

/* This process among those that train one model together (mirt_multi_worker). Its devices are some of the devices of
   all, which are numbered in the order of processes. */
typedef struct mirt__peers {
    const mirt__engine *engine;
    int rank, size;
    double limit; /* seconds that a process that does not answer is waited for; 0: for ever */
    mirt__waiting waiting[MIRT__ENGINE_CHANNELS];
    mirt__courier *courier; /* NULL: not needed yet, as */
    mirt__averaging *averaging;
    int trades;          /* atomic: rounds of messages under way */
    mirt__patience patience[MIRT__ENGINE_CHANNELS];
    int *first_device;   /* [size + 1] */
    int sharers;         /* processes with the same cores of the same host, this one included */
    int hosts;
    bool overlaps;       /* gradients are summed during the backward pass */
    int64_t *before[MIRT__BEFORES]; /* [size + 1]: what processes have of a step, before each of them */
    mirt__peer_flags *flags;      /* [size] */
    char failed[300];    /* the process whose user code failed */
    char *told;          /* [told_bytes]: of mirt__peers_tell */
    size_t told_bytes;
    bool left;           /* a process has ended a pass with an error, which all know */
    unsigned char gone[32]; /* atomic: bits of processes that this parameter server has given up */
    bool lost;           /* a process is gone, which the others can do without */
    bool broken;         /* atomic: nothing can be said to the others any more; strategy->lost says why */
    char cause[200];          /* why the process ended that this one has lost, or "" */
    char device_failure[200]; /* why a device has failed, */
    bool device_failed;       /* if this, which is atomic, is set */
} mirt__peers;

/* The processes that a strategy was joined with; NULL: none. */
#define MIRT__GROUP(strategy) (MIRT__TOGETHER ? (strategy)->peers : (mirt__peers *)NULL)
/* The same, if they run each step together; at parameter servers each runs its own. */
#define MIRT__PEERS(strategy) (MIRT__TOGETHER && !(strategy)->servers ? (strategy)->peers : (mirt__peers *)NULL)
/* The same, if gradients are summed in the host's memory; otherwise the devices of all processes have been joined. */
#define MIRT__HOST_PEERS(strategy) ((strategy)->able.in_place ? MIRT__PEERS(strategy) : (mirt__peers *)NULL)

struct mirt_strategy {
    int64_t process;        /* that created it; its threads are not in a child */
    const void *owner;      /* atomic: the identity of the thread that has calls under way, or NULL */
    const char *owner_call; /* atomic: the first of these, */
    int owner_depth;        /* and how many they are */
    mirt_strategy_kind kind;
    mirt_collective collective;
    int num_devices, num_replicas, threads;
    mirt__peers *peers;        /* NULL: this process trains alone */
    int average_every;         /* steps after which weights are averaged over processes; 0: gradients are summed */
    int servers;               /* processes that are parameter servers, the last ones; 0: there is none */
    int64_t max_staleness;     /* -1: any */
    int first_device, all_devices; /* of all processes' devices: this one's first, and their number */
    int64_t *share_before;         /* [all_devices + 1]: what devices get begins in these proportions; NULL: equal */
    uint64_t seed;
    bool winograd, tf32;
    int64_t bucket_bytes;
    const mirt__backend *backend; /* the devices' table, */
    mirt__abilities able;         /* and what they can do */
    mirt__error device_error;     /* of the first that failed in a step */
    char lost[512];               /* why the devices can no longer be used, or "" */
    mirt__device device[MIRT__MAX_DEVICES];
    mirt__team *leaders; /* one member a device; NULL for one device */
    mirt__cpus *socket;  /* [num_devices]: the cores that each device's threads run on; NULL: any */
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
    mirt__task_recorder recorder;   /* of the first device's tasks */
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

/* Whether this process writes the files of a training: of those that train together the first one does. */
MIRT__LIB bool mirt__writes_files(const mirt_strategy *strategy);
/* The default log of another process than the first shows warnings and errors alone. */
MIRT__LIB void mirt__log(const mirt_strategy *strategy, mirt_log_level level, const char *format, ...)
    MIRT__PRINTF(3, 4);
/* Seconds that waits may take; 0: any. */
MIRT__LIB double mirt__time_limit(const mirt_strategy_desc *desc);
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
/* --- peers.c: several processes. Those that return a status set the error. --- */
/* Makes the rounds of messages of `s` wait with patience, and answers where this process is. */
MIRT__LIB void mirt__peers_open(mirt_strategy *strategy, double limit);
/* Whether somebody waits for the gradients that are being summed. */
MIRT__LIB void mirt__peers_hurry(mirt_strategy *strategy, bool hurry);
/* Every process gets what the others have of arrays. */
MIRT__LIB mirt_status mirt__peers_gather(mirt_strategy *strategy, const mirt__gathered *array, int arrays);
/* What all processes say, [size] elements of `bytes`, until the next call; NULL: the group is broken. */
MIRT__LIB const void *mirt__peers_tell(mirt_strategy *strategy, const void *own, size_t bytes);
/* Every process says how it fares. The error of one that fails is its own; the others name the first such process:
   "process 1 (host) WHAT: its error". */
MIRT__LIB mirt_status mirt__peers_fare(mirt_strategy *strategy, mirt_status status, const char *what);
/* A round of messages on the channel of parameter servers. */
MIRT__LIB mirt_status mirt__peers_trade(mirt_strategy *strategy, const mirt__message *send, int sends,
                                        const mirt__message *receive, int receives);
/* The sum of a plan, in the memory that mirt__group_sum takes; false: *failure says why. */
MIRT__LIB bool mirt__peers_add_up(mirt_strategy *strategy, const mirt__group_plan *plan, mirt__real *const *slot,
                                  mirt__real *sum, mirt__real *inbox, const mirt__where *where,
                                  mirt__engine_failure *failure);
/* The bytes of the first process become those of all. */
MIRT__LIB mirt_status mirt__peers_hear_first(mirt_strategy *strategy, void *data, size_t bytes);
/* Whether a process still takes part; `why`: what it says if it does not. */
MIRT__LIB bool mirt__peers_alive(mirt_strategy *strategy, int peer, char *why, size_t size);
/* By a parameter server: a worker counts as lost, */
MIRT__LIB void mirt__peers_give_up(mirt_strategy *strategy, int peer);
/* and whether another server has done so; *answers: it is there. */
MIRT__LIB bool mirt__peers_given_up(const mirt_strategy *strategy, int server, int peer, bool *answers);
/* This process takes no further part, because of the error; the others learn it when they ask where it is. */
MIRT__LIB void mirt__peers_end(mirt_strategy *strategy);
/* A device has failed, perhaps as one of another process did: names in the error a process that takes no further part,
   and answers with the error when others ask. */
MIRT__LIB void mirt__peers_blame(mirt_strategy *strategy);
/* Sets the error of a round of messages that failed, after which the strategy cannot be used. */
MIRT__LIB mirt_status mirt__peers_fail(mirt_strategy *strategy, int channel, const mirt__engine_failure *failure);
MIRT__LIB void mirt__peers_leave(mirt_strategy *strategy);
/* --- average.c --- */
/* The mean of the values of all replicas, each of which has those of its process, in the order of the tree. */
MIRT__LIB mirt_status mirt__peers_average(mirt_strategy *strategy, mirt__real *value, int64_t count);
MIRT__LIB void mirt__averaging_free(mirt__averaging *averaging);
/* --- courier.c --- */
MIRT__LIB void mirt__courier_destroy(mirt__courier *courier);

/* --- launcher.c --- */
/* MIRT_WORKERS=1: processes that are started together are independent. */
MIRT__LIB bool mirt__runs_alone(void);
/* Joins the processes that a launcher started, if `kind` asks for it; afterwards the strategy's numbers of devices are
   known. `gpus`: as mirt__found has it. */
MIRT__LIB mirt_status mirt__peers_join(mirt_strategy *strategy, double limit, int gpus);
/* --- join.c --- */
/* Devices of each host (mirt__joining). */
MIRT__LIB int mirt__peers_per_host(const mirt_strategy *strategy);
/* *found: the program has an engine for this launch. */
MIRT__LIB mirt_status mirt__peers_start(mirt_strategy *strategy, const mirt_launch *launch, double limit, int gpus,
                                        bool *found);
/* Of what this process may use, leaves what it should, as others on its host use some, too. */
MIRT__LIB void mirt__peers_cores(const mirt_strategy *strategy, mirt__cores *cores);
/* Whether all processes have the same settings; the strategy has replicas and kernels. */
MIRT__LIB mirt_status mirt__peers_agree(mirt_strategy *strategy);
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

/* Where the part of number `at` of the devices of all processes begins; their number: the end. */
MIRT__LIB int64_t mirt__share_begin(const mirt_strategy *strategy, int64_t total, int at);
/* Equal parts that devices get whole numbers of. */
MIRT__LIB int64_t mirt__share_units(const mirt_strategy *strategy);
/* The part of `total` things that `device` of this process gets, and that the process `rank` gets; `total` itself for
   rank == number of processes: contiguous, in the order of devices. */
MIRT__LIB int64_t mirt__device_share(const mirt_strategy *strategy, int64_t total, int device, int64_t *first);
MIRT__TOGETHER_ONLY_LIB int64_t mirt__peer_begin(const mirt_strategy *strategy, int64_t total, int rank);
/* Sets the shares that a description as "3,1" gives, for each device or each process. */
MIRT__LIB mirt_status mirt__shares_set(mirt_strategy *strategy, const char *text);
/* The most replicas that any device of any process has. */
MIRT__LIB int mirt__most_replicas(const mirt_strategy *strategy, int replicas);
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
    int first, end; /* the devices whose parts these are, counted from this process's first one */
    int parts;
    int device[MIRT__MAX_PARTS], slot[MIRT__MAX_PARTS];
    mirt__addition add[MIRT__MAX_PARTS]; /* parts - 1 of them, in order; the sum ends in part 0 */
    /* Of several processes: the additions of this one, and the parts that they leave, which the processes then add. */
    int adds, left;
    int leaves[64];
} mirt__exchange;
/* The devices that add up their gradients among themselves: this process's, or where those of all processes were
   joined, all; counted from this process's first one. */
MIRT__LIB void mirt__summed_devices(const mirt_strategy *strategy, int *first, int *end);
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
