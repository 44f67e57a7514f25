#ifndef MIRT__TIMING_API_H
#define MIRT__TIMING_API_H
/* Where the time of training goes. */

#include "models_api.h"

MIRT__BEGIN_C

/* >>where the time goes ------------------------------------------------------------------- */
/* Threads: one at a time, that has the model's strategy. */

/* What a device is at, each moment of a fit's epochs one of these (validation is not counted). Input wait: for the next
   batch. Scatter: checking it and dealing it out. Hidden all-reduce: a device adds up the gradients of its own
   replicas, before it meets the others; exposed: devices add up what all are left with, and wait for each other's
   additions. Update: the optimizer. Imbalance: waiting for devices that are still at their gradients. Launch overhead:
   starting and ending steps. */
#define MIRT_PHASE_LIST(X) \
    X(MIRT_PHASE_INPUT, "input wait") \
    X(MIRT_PHASE_SCATTER, "scatter") \
    X(MIRT_PHASE_FORWARD, "forward") \
    X(MIRT_PHASE_BACKWARD, "backward") \
    X(MIRT_PHASE_REDUCE_HIDDEN, "all-reduce, hidden") \
    X(MIRT_PHASE_REDUCE, "all-reduce, exposed") \
    X(MIRT_PHASE_UPDATE, "update") \
    X(MIRT_PHASE_IMBALANCE, "imbalance") \
    X(MIRT_PHASE_CALLBACKS, "callbacks") \
    X(MIRT_PHASE_LAUNCH, "launch overhead")

typedef enum mirt_phase {
#define MIRT__PHASE_ENUM(code, text) code,
    MIRT_PHASE_LIST(MIRT__PHASE_ENUM)
#undef MIRT__PHASE_ENUM
    MIRT_PHASE_COUNT
} mirt_phase;

/* Its name above. Thread safe. */
MIRT_API const char *mirt_phase_name(mirt_phase phase);

#ifndef MIRRORTRAIN_NO_TRAIN
/* Traces what the strategy's devices do from now on, until mirt_trace_end writes `path` as trace-event JSON, for
   ui.perfetto.dev or chrome://tracing: a row per device, on it phases, and in these a slice for each operation, by its
   layer. `most_slices` bounds the memory (40 bytes each, at once; 0: 200,000): when they are used up the rest is left
   out, and the file and the log say how many. Of several processes (mirt_multi_worker) the first traces its devices.
   MIRT_E_STATE, MIRT_E_INVALID, MIRT_E_IO, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_trace_begin(mirt_strategy *strategy, const char *path, int64_t most_slices);
/* What was at `path` stays unless all is written. The trace is over even so. Destroying the strategy ends it without a
   file. */
MIRT_API mirt_status mirt_trace_end(mirt_strategy *strategy);
#endif

/* What happens in a step on the first device, as far as its threads are concerned. */
typedef enum mirt_task_kind {
    MIRT_TASK_PHASE, /* the device enters the mirt_phase `index`, or an internal one (mirt_phase_name has a name) */
    MIRT_TASK_LOOP,  /* a parallel loop of `index` tasks begins. Each thread does a part of them in ascending order,
                        then some of those that others have yet to begin; they meet at its end */
    MIRT_TASK_DONE,  /* one thread alone: task `index` of the loop has ended */
    MIRT_TASK_JOIN,  /* several threads: the loop has ended */
    MIRT_TASK_OP     /* operation `index` of the program has ended */
} mirt_task_kind;
typedef struct mirt_task_event {
    mirt_task_kind kind;
    int64_t index;
    double time;            /* monotonic seconds */
    const char *op, *layer; /* MIRT_TASK_OP: names, as in mirt_graph_text; layer NULL: none */
    double flops, bytes;    /* and its work: operations, and bytes of operands and results */
} mirt_task_event;
typedef void (*mirt_task_fn)(const mirt_task_event *event, void *user);

#ifndef MIRRORTRAIN_NO_TRAIN
/* Calls fn for each of these events, from the next step on, on the calling thread; it must not call the library. NULL
   ends this. With mirt_strategy_desc.simulate_threads, the tasks of a step are recorded as many threads would share
   them: `mirrortrain bench --parallelism` predicts from that how long the threads would take. MIRT_E_INVALID,
   MIRT_E_STATE. */
MIRT_API mirt_status mirt_record_tasks(mirt_strategy *strategy, mirt_task_fn fn, void *user);
/* A parallel loop in which the threads of the first device have nothing to do: they start, and meet at its end. For
   timing it. MIRT_E_INVALID, MIRT_E_STATE, or why the devices cannot be used any more. */
MIRT_API mirt_status mirt_run_empty_loop(mirt_strategy *strategy);
#endif

/* What holds a fit up most. */
typedef enum mirt_bottleneck {
    MIRT_BALANCED = 0,   /* nothing does: computing is what takes the time */
    MIRT_SLOW_INPUT,     /* devices wait for batches */
    MIRT_SMALL_BATCH,    /* what a step costs whatever its batch */
    MIRT_SLOW_REDUCE,    /* adding up gradients over devices */
    MIRT_SLOW_DEVICE,    /* one that takes longer for a sample than the others */
    MIRT_SMALL_MODEL,    /* too little work to share */
    MIRT_UNEVEN_SHARES,  /* replicas, or rows, that do not go evenly into devices */
    MIRT_SHARED_CORES,   /* devices wait in turns: more threads than cores, or other programs */
    MIRT_SLOW_CALLBACKS
} mirt_bottleneck;

#define MIRT_MAX_DEVICES 32
typedef struct mirt_device_timing {
    char name[32];
    double seconds[MIRT_PHASE_COUNT];
    int replicas;
    int64_t samples;
    double busy;          /* share of the time in forward, backward, all-reduce and update */
    size_t memory;        /* bytes: its working memory and its copy of the weights */
    double least_sample;  /* seconds of forward and backward for a sample, in the best step; */
    double least_update, least_reduce; /* of update and exposed all-reduce in the best step */
    int64_t slowest;      /* steps in which its forward and backward took longest */
} mirt_device_timing;

/* Of a fit, so far. */
typedef struct mirt_timing {
    double wall;          /* seconds of its epochs, without validation */
    int64_t steps, samples;
    double seconds[MIRT_PHASE_COUNT]; /* means over devices; their sum is `wall` */
    int num_devices, replicas, threads, cores; /* threads per device */
    mirt_device_timing device[MIRT_MAX_DEVICES];
    size_t peak_memory;   /* of the process so far, in bytes; 0: the system does not say */
    char input[64];       /* what making samples costs: "JPEG decoding", the name of a map; "copying samples" */
    int workers;          /* threads at it */
    double sample_seconds; /* that a worker takes for a sample; 0: not known */
    bool parallel, ahead; /* more workers could; samples are made while devices work */
    mirt_bottleneck bottleneck;
    int culprit;          /* MIRT_SLOW_DEVICE: which; otherwise -1 */
    double share;         /* of the time, that the bottleneck takes */
    double speedup;       /* of the whole, if it were fixed; 1: balanced */
    char verdict[320];    /* in words; of fewer than 5 steps there is none but that */
} mirt_timing;

#ifndef MIRRORTRAIN_NO_TRAIN
/* The seconds of the last fit of this model, or of the one under way, of which a callback may ask. MIRT_E_STATE: there
   is none, or its strategy has trained another model since. */
MIRT_API mirt_status mirt_fit_timing(mirt_model *model, mirt_timing *out);
/* The same as a table, with the verdict as its last line. Owned by the model, valid until the next call. NULL:
   MIRT_E_STATE, MIRT_E_NOMEM. */
MIRT_API const char *mirt_timing_text(mirt_model *model);
#endif

MIRT__END_C

#endif /* MIRT__TIMING_API_H */
