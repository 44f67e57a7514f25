#ifndef MIRT__STEP_H
#define MIRT__STEP_H
/* A mirrored step: its program, its memory on the devices, and its stages. */
#include "../graph/program.h"
#include "memory.h"

#define MIRT__MAX_SLOTS 4 /* blocks of optimizer state */

/* Elements of the weight block. */
typedef struct mirt__range {
    int64_t begin, end;
} mirt__range;

/* Elements of the gradients that are reduced and updated together. */
typedef struct mirt__bucket {
    int64_t begin, end;
    int64_t elements; /* of gradients among them; the others are padding */
    int ready;        /* the node of the last replica after which they are complete */
} mirt__bucket;

/* A piece of a gradient whose norm is wanted: elements of one variable, cut by its shape alone. */
typedef struct mirt__piece {
    int variable;
    int64_t begin, count; /* in the weight block */
    double squares;       /* their sum, in the step under way */
} mirt__piece;

/* Seconds of the first device's work, added up over steps. */
typedef struct mirt__clocks {
    double *node;        /* [program.graph.count] */
    double step, wait, update; /* the whole; for other devices; the optimizer */
    int64_t steps, rows;
    int64_t replays, replayed; /* of the program, and its rows */
} mirt__clocks;

/* How gradients become weights: what the optimizer supplies. */
typedef struct mirt__rule {
    void *user;
    bool norms;         /* it needs the squares of the gradients' sum, by pieces */
    mirt__piece *piece; /* whose squares are set before `accepts` */
    int num_pieces;
    bool whole;         /* every device updates whole variables */
    /* With norms, before anything is updated; false: nothing is. */
    bool (*accepts)(void *user);
    /* Before the updates in [begin, end). `update` says where gradients and weights are. */
    void (*prepare)(void *user, int device, int64_t begin, int64_t end, const mirt__update *update);
    void (*update)(void *user, int device, mirt__range range, const mirt__update *update);
    /* What is done to a copy of the weights once all of it is updated; NULL: nothing. */
    void (*constrain)(void *user, const mirt__where *where, mirt__real *weight);
} mirt__rule;

/* How the processes sum the buckets. */
typedef struct mirt__peer_plans {
    int active; /* replicas that the plans are for */
    int *begin; /* first replicas of processes */
    mirt__group_plan *plan; /* [num_buckets]; one without elements is still to be made */
    mirt__real *inbox;
    int64_t inbox_elements;
} mirt__peer_plans;

typedef struct mirt__step {
    mirt_strategy *strategy;
    const void *owner;    /* what runs it; the devices' gradient buffers and captured work are told apart by it */
    mirt__program program;
    int64_t max_rows;     /* of a batch */
    int replicas;         /* V, or k * V when k batches make a step */
    bool by_replicas;     /* every replica takes its share; otherwise devices share the rows as they like */
    bool float16;         /* products of float16, gradients scaled by info.gradient_scale */
    bool sends_ahead;     /* devices have room for the next batch too */
    int num_fields, num_results, result_port; /* results are the program's io from result_port on */
    char **result;        /* [num_results] on the host: of every row when batched, otherwise by places */

    char *const *weight;  /* [devices] in the devices' memory, */
    char *(*slot)[MIRT__MAX_SLOTS]; /* [devices] as is the optimizer's state */
    size_t gradient_bytes; /* of one gradient buffer: the front of the weights that is trained */
    bool has_gradients;
    mirt__range *range;   /* what the optimizer updates */
    int num_ranges;
    mirt__bucket *bucket; /* covers the gradients, from the back, where backward begins */
    int num_buckets;
    mirt__aggregated *state; /* variables that get new values from all replicas' */
    int num_states;
    size_t state_bytes;   /* per replica */
    char *states;         /* [replicas] on the host */
    mirt__rule rule;

    mirt__layout needs;
    size_t io_at[MIRT__MAX_IO], states_at; /* bytes into a device's `io`; in place: not used */
    size_t ahead_at;      /* the next batch's fields lie this far after those of the batch under way */
    bool *measured;       /* [program.max_rows + 1]: whether the room for that many rows is known; in place: NULL */
    bool *ran;            /* [max_rows + 1]: whether devices have run steps of that many rows; in place: NULL */
    mirt__real *cut_values; /* at a cut: of each replica cut_stride numbers, then as many of each device */
    size_t cut_stride;
    mirt__peer_plans plans;

    /* the batch under way */
    int64_t rows;
    const void **io;      /* [num_fields] on the host */
    mirt__step_info info; /* what every replay is told */
    bool prefetched;      /* the devices have it already */
    bool there;           /* where the program reads it, since the last run */
    bool same;            /* and it stays there */
    const void *const *ahead; /* fields of the next batch, sent while this one is under way; NULL: none */
    int64_t ahead_rows;
    bool holds;           /* results of this round are waited for in the next one */
    int turn;             /* 0 or 1, another one in a step launched ahead: where its results and times are */
    bool overlaps;        /* buckets are reduced while backward runs */
    bool reduced;         /* every device has the gradients' sum */
    bool captures;        /* work may be captured */
    int (*check)(void *owner,
                 int device); /* NULL, or what of the device's results is not finite: then nothing is applied */
    int not_finite;       /* atomic: what `check` and the rule found */
    bool stop;            /* training is to end: in this process, and when the replicas have run in any */
    void (*look)(void *user, const mirt__call *call, int node); /* NULL, or told of every node that has run, */
    char *look_user;      /* with this of the devices, */
    size_t look_bytes;    /* of this size each */
    mirt__clocks *clocks; /* NULL: it is not profiled */
    const char *failed;   /* the node whose user code failed, */
    int failed_code;      /* and its code */
    int device_status;    /* atomic: of the first device that failed in this run, */
    int device_failed;    /* and which it is; -1: another process */
} mirt__step;

/* --- step.c: called by every device's thread inside mirt__on_devices --- */
/* Scatter, run, reduce, apply; rows that do not depend on each other without regard to replicas. */
MIRT__LIB void mirt__step_run(void *step, int device);
/* The second round of a step that holds: the next batch sets out, then results are waited for. */
MIRT__LIB void mirt__step_run_held(void *step, int device);
/* Launches the step after one that holds: its batch sets out, and all follows that mirt__step_run does. */
MIRT__LIB void mirt__step_run_next(void *step, int device);
/* Waits for the results of the step before the one launched by mirt__step_run_next. */
MIRT__LIB void mirt__step_run_marked(void *step, int device);
/* The stages one by one. */
MIRT__TRAINING_LIB void mirt__step_replicas(void *step, int device);
MIRT__TRAINING_LIB void mirt__step_all_reduce(void *step, int device);
MIRT__TRAINING_LIB void mirt__step_update(void *step, int device);
/* Whether it leaves anything but results. */
MIRT__TRAINING_LIB bool mirt__step_updates(const mirt__step *step);
/* The elements that a device updates of so many; with `pieces`, those of all trained variables, in whole variables. */
MIRT__TRAINING_LIB mirt__range mirt__update_share(const mirt_strategy *strategy, int64_t elements, int device,
                                                  const mirt__piece *piece, int pieces);
/* Whether the update needs the squares of the gradients' sum: the optimizer does, or they tell whether it is finite. */
MIRT__TRAINING_LIB bool mirt__step_norms(const mirt__step *step);

/* --- buffers.c: a device's gradient buffers --- */
/* How far a device is with its replicas. */
typedef struct mirt__turn {
    mirt__step *step;
    int device;
    int first;              /* its first replica, and the one after the last that has rows */
    int end;
    mirt__tree_stack stack; /* the sums of replicas that its buffers hold */
    int sent;               /* its last replica, whose buckets are reduced as backward completes them; -1: none */
    int next;               /* the next node of the program that reduces */
} mirt__turn;
/* The additions with which the gradients of `replica` join, of elements [begin, end). */
MIRT__LIB void mirt__counter_add(const mirt__turn *turn, int replica, int64_t begin, int64_t end);
/* Reduces the buckets that are complete after node `ready` of the program. */
MIRT__LIB void mirt__send_buckets(mirt__turn *turn, int ready);
/* The same, as what a replay tells of every node. */
MIRT__LIB void mirt__send_ready(void *turn, const mirt__call *call, int node);
MIRT__LIB mirt__range mirt__overlap(const mirt__range *a, int64_t begin, int64_t end);

/* --- place.c: where a step's data are on the devices --- */
/* Rows of the batch under way that `replica` owns. */
MIRT__TRAINING_LIB int64_t mirt__replica_share(const mirt__step *step, int replica, int64_t *first);
/* The replicas that have rows are the first ones; a device's are those from *first to before the result. */
MIRT__TRAINING_LIB int mirt__active_replicas(const mirt__step *step);
MIRT__TRAINING_LIB int mirt__own_replicas(const mirt__step *step, int device, int *first);
/* Where `device` finds the gradients' sum once it is complete. */
MIRT__TRAINING_LIB mirt__real *mirt__sum_at(const mirt__step *step, int device);
/* The gradient buffer `slot` of `device`. */
MIRT__TRAINING_LIB mirt__real *mirt__gradient_at(const mirt__step *step, int device, int slot);
/* Fills `needs` for the recorded program, and checks that the devices can run it. */
MIRT__LIB mirt_status mirt__step_needs(mirt__step *step);
/* A batch is about to run: reserves memory. The devices' weights are there. */
MIRT__LIB mirt_status mirt__step_reserve(mirt__step *step);
/* Gradient buffers belong to the step that ran last: clears what another one left. */
MIRT__TRAINING_LIB void mirt__step_take_memory(mirt__step *step);
MIRT__LIB void mirt__step_free(mirt__step *step);
/* Places of a result that is not batched; those of one device where devices share rows. */
MIRT__LIB int mirt__result_places(const mirt__step *step);
MIRT__LIB int mirt__device_pieces(const mirt__step *step);
/* Where kernels outside of the program run. */
MIRT__LIB mirt__where mirt__where_of(const mirt__step *step, int device);
/* Of a device, without rows; of one of its replicas, the first of which is `first`. */
MIRT__LIB void mirt__device_bases(const mirt__step *step, int device, mirt__bases *bases);
MIRT__TRAINING_LIB void mirt__replica_bases(const mirt__step *step, int device, int first, int replica,
                                            mirt__bases *bases);
/* `place`: where results that are not batched go. */
MIRT__LIB void mirt__row_bases(const mirt__step *step, int device, mirt__bases *bases, int64_t first_row, int place);
/* All replicas' states, in the device's memory. */
MIRT__LIB char *mirt__states_of(const mirt__step *step, int device);
/* The device's rows of the batch under way, or (ahead) of the next one, go to its memory; */
MIRT__LIB void mirt__step_scatter(const mirt__step *step, int device);
MIRT__LIB void mirt__step_scatter_ahead(const mirt__step *step, int device);
/* its results come back, complete when it has been waited for. */
MIRT__LIB void mirt__step_fetch(const mirt__step *step, int device);

/* --- meetings.c: where devices meet --- */
/* Waits for the other devices; the seconds count as `phase`. False: the devices were given up. */
MIRT__LIB bool mirt__step_meet(const mirt__step *step, int device, int phase, int node);
/* The same, and what is enqueued next may read what the others had enqueued. */
MIRT__LIB bool mirt__step_meet_work(const mirt__step *step, int device, int number, int phase);
/* At a cut: all replicas' inputs of the node make its outputs. False: the devices were given up. */
MIRT__LIB bool mirt__step_cut(mirt__step *step, int device, int cut);
/* How the partial sums of the active replicas become one, as seen by `device`. */
MIRT__LIB void mirt__step_plan(const mirt__step *step, int device, mirt__exchange *out);
/* Reduces a bucket; its sum is there once the devices have met again. */
MIRT__LIB void mirt__step_reduce(const mirt__step *step, int device, const mirt__bucket *bucket);
/* All replicas' states on every device. */
MIRT__LIB void mirt__step_gather_states(const mirt__step *step, int device);
/* `count` elements from `at` of the device's own gradient, or after the all-reduce of the sum of all. */
MIRT__LIB mirt_status mirt__device_gradient(mirt__step *step, int device, int64_t at, int64_t count, float *out);

/* --- peers_step.c: called by every device's thread where several processes train together. False: the devices
   timed out, or a process is lost, which is kept for the caller. --- */
/* When the replicas have run: every process gets the results and states of all, and learns what they found. */
MIRT__LIB bool mirt__peers_tell_step(mirt__step *step, int device);
/* At a cut: cut_values of all replicas. */
MIRT__LIB bool mirt__peers_cut(mirt__step *step, int device, int cut);
/* The sum of all gradients, in the first buffer of the first device. */
MIRT__LIB bool mirt__peers_reduce(mirt__step *step, int device);
MIRT__LIB void mirt__peers_free(mirt__step *step);
/* The sum of one bucket, of which the devices of this process have their parts; false: *failure says why. */
MIRT__LIB bool mirt__peers_sum(mirt__step *step, int bucket, mirt__engine_failure *failure);

/* --- courier.c: sums buckets while backward runs --- */
/* Before the devices run the step; false: there is no such thread, and the sums come after the step. */
MIRT__LIB bool mirt__courier_begin(mirt__step *step);
/* By each device: its gradients of the bucket are complete. */
MIRT__LIB void mirt__courier_post(mirt__step *step, int bucket);
/* By the first device: waits for the sums. False: *failure says why. */
MIRT__LIB bool mirt__courier_await(mirt__step *step, mirt__engine_failure *failure);
/* After the step; `given_up`: not all devices have posted all buckets. */
MIRT__LIB void mirt__courier_end(mirt__step *step, bool given_up);

/* --- waits.c: captured work, waits, clocks and failures of devices --- */
/* The one call for clocks, trace and watchdog: `device` enters `phase` (of users, or of base/device_timeline.h), at
   work for `replica` and at `node` of the program; -1: none in particular. */
MIRT__LIB void mirt__step_mark(const mirt__step *step, int device, int phase, int replica, int node);
/* Around work that is identical in every step: a part of it, 0 to 3. end false: none of it was done; begin and do it
 * once more. */
MIRT__LIB void mirt__step_begin(const mirt__step *step, int device, int part);
MIRT__LIB bool mirt__step_end(const mirt__step *step, int device);
/* The end of a stage, for the clock: 0 the beginning, 1 replicas, 2 reduction, 3 update. */
MIRT__TRAINING_LIB void mirt__step_clock(const mirt__step *step, int device, int stage);
/* Waits for the device. False: it failed, which is kept for the caller. */
MIRT__LIB bool mirt__step_finish(mirt__step *step, int device);
/* The same, without the step launched after it. */
MIRT__LIB bool mirt__step_finish_marked(mirt__step *step, int device);
/* What failed on the devices, if anything. */
MIRT__LIB mirt_status mirt__step_failure(mirt__step *step);

/* --- transform.c --- */
/* A variable's gradient in the weight block. */
typedef struct mirt__gradient_part {
    int64_t begin, count;
} mirt__gradient_part;
/* Puts the gradients, sorted by `begin`, into buckets, and appends their nodes to the program. */
MIRT__LIB mirt_status mirt__mirror(mirt__step *step, const mirt__gradient_part *part, int count);

#endif
