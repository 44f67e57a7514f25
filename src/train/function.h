#ifndef MIRT__FUNCTION_H
#define MIRT__FUNCTION_H
/* A step recorded once and replayed by every replica: what fit, evaluate and predict run, and what
   users record themselves. Its parts: a program over fields of a batch; results; gradients that the
   optimizer takes; new values of variables. */
#include "../data/data.h"
#include "../graph/program.h"
#include "../mirror/memory.h"
#include "../nn/model.h"

#define MIRT__MAX_RESULTS (MIRT__MAX_IO - MIRT__MAX_FIELDS)

/* What a run leaves: of every row when batched, otherwise of every replica. */
typedef struct mirt__result {
    const char *name;
    mirt_tensor *tensor; /* while it is recorded */
    mirt_dtype dtype;
    mirt_shape shape;
    bool batched;
    int64_t count; /* elements of a row, or of the whole */
    char *data;
} mirt__result;

/* A variable's gradient while it is recorded. */
typedef struct mirt__applied {
    int variable;
    mirt_tensor *gradient;
} mirt__applied;

/* Elements of the weight block. */
typedef struct mirt__range {
    int64_t begin, end;
} mirt__range;

/* Elements of the gradients that travel together, once node `ready` of the last replica has run. */
typedef struct mirt__bucket {
    int64_t begin, end;
    int ready;
} mirt__bucket;

typedef enum mirt__step_stage { MIRT__IDLE, MIRT__SCATTERED, MIRT__GRADIENTS, MIRT__REDUCED } mirt__step_stage;

typedef struct mirt__finder mirt__finder;

/* Seconds of the first device's work, added up over steps. */
typedef struct mirt__clocks {
    double *node;        /* [program.graph.count] */
    double step, wait, update; /* the whole; for other devices; the optimizer */
    int64_t steps, rows;
    int64_t replays, replayed; /* of the program, and its rows */
} mirt__clocks;

struct mirt_function {
    mirt_model *model; /* whose weights, optimizer and step count it uses */
    mirt_model *root;
    mirt_function *next; /* of the model's */
    int layout;          /* the root's, when it was recorded */
    mirt__data_spec spec;
    int64_t max_batch;
    int replicas;        /* V, or k * V when k batches make a step */
    bool half;           /* recorded under the policy mixed_bfloat16, or: */
    bool scaled;         /* mixed_float16: products of float16, gradients scaled */
    bool by_replicas;    /* every replica takes its share; otherwise devices share the rows as they like */
    bool sends_ahead;    /* its devices have room for the next batch too */
    mirt__program program;
    mirt__layout needs;

    bool recording;
    mirt__mode mode;
    mirt_tensor *field[MIRT__MAX_FIELDS];
    int classes[MIRT__MAX_FIELDS]; /* the field holds class numbers below this; 0: it need not */
    mirt_tensor **minimized;       /* terms of the loss */
    int num_minimized, minimized_capacity;
    mirt__applied *applied;
    int num_applied, applied_capacity;

    mirt__result result[MIRT__MAX_RESULTS];
    int num_results;
    int terms_result; /* of fit: the numbers among the loss's terms; -1: there are none */
    int metric_result[MIRT__MAX_METRIC_USES]; /* of fit: each metric's values, or the predictions that it counts */
    mirt__aggregated *state;
    int num_states;
    size_t state_bytes; /* per replica */
    mirt__range *range; /* what the optimizer updates */
    int num_ranges;
    char *host;         /* results and states */
    char *states;
    char *labels; /* of the batch under way, and its weights, while the next one is read, if it sends ahead */

    /* on devices with memory of their own, by remote.c: bytes into a device's `io` */
    size_t *io_at, states_at; /* [MIRT__MAX_IO] */
    size_t landing_at;        /* the next batch's fields lie so much behind those of the batch under way */
    bool *measured;           /* [program.max_rows + 1]: whether the room for so many rows is known */
    mirt__real *cut_values;   /* at a cut: of each replica cut_stride numbers, then as many of each device */
    size_t cut_stride;
    mirt__bucket *bucket;     /* in the order in which backward makes them; NULL: gradients meet when it is over */
    int num_buckets;
    bool overlaps;            /* in this step they travel so */
    int remote_status;        /* atomic: of the first that failed in this run, */
    int remote_device;
    mirt__error *remote_error; /* and why */

    /* the batch under way */
    mirt__step_stage stage;
    int64_t rows;
    const void *io[MIRT__MAX_FIELDS];
    bool prefetched;     /* it was sent ahead: the devices have it */
    bool holds;          /* results of this round of the devices are waited for in the next one, */
    const mirt__batch *ahead; /* and this batch is sent ahead before; NULL: none is */
    double rate;         /* asked for on the caller's thread: schedules are the user's code */
    const char *failed;  /* the node whose user code failed, */
    int failed_code;     /* and its code */
    bool finite_only;    /* of this step: values that are not finite keep it from being applied */
    int not_finite;      /* atomic: which were (MIRT__LOSS_BAD and others) */
    bool overflow;       /* atomic: scaled gradients were not finite, and nothing was applied */
    mirt__finder *finder; /* [devices] while such a step is run again, otherwise NULL */
    mirt__clocks *clocks; /* NULL: it is not being profiled */
    bool counted;         /* its steps are those of a fit */
    const char *const *trace_name; /* of nodes, then of what devices add up: the trace's, if it is this one: */
    uint64_t trace_serial;
};

/* --- record.c --- */
/* Whether batches of the two are alike: in their first `fields` fields, or in all. */
MIRT__LIB bool mirt__fields_same(const mirt__data_spec *a, const mirt__data_spec *b, int fields);
MIRT__LIB bool mirt__spec_same(const mirt__data_spec *a, const mirt__data_spec *b);
typedef bool (*mirt__body)(mirt_function *function, void *user);
/* What a function is made for. */
typedef struct mirt__function_desc {
    const mirt__data_spec *spec; /* of a batched data set */
    int64_t max_batch;
    bool by_replicas;
    bool training; /* how called models are run unless they are told */
    bool sends_ahead; /* for loops: devices with memory of their own get the next batch while they are at work */
} mirt__function_desc;
MIRT__LIB mirt_function *mirt__function_new(mirt_model *model, const mirt__function_desc *desc, mirt__body body, void *user);
MIRT__LIB void mirt__function_free(mirt_function *function);
/* Gives a recorded function its results' memory, and the devices what it needs of them. */
MIRT__LIB mirt_status mirt__function_allocate(mirt_function *function);
/* Bytes of the results' memory. */
MIRT__LIB size_t mirt__function_host(const mirt_function *function);
/* Places of a result that is not batched. */
MIRT__LIB int mirt__result_places(const mirt_function *function);
/* One value per sample of the several in (rows, ...): their mean, or with MIRT_SUM their sum. */
MIRT__LIB mirt_tensor *mirt__sample_value(const mirt_model *model, mirt_tensor *values);
/* A term of the loss as a value: per sample, or the replica's part of a number. */
MIRT__LIB mirt_tensor *mirt__term_value(mirt_function *function, mirt_tensor *term);
/* Whether recording is under way, and the tensor of this function. */
MIRT__LIB mirt_status mirt__need_recording(const mirt_function *function, const mirt_tensor *tensor, const char *caller);
/* The optimizer shall take `gradient` for the variable. */
MIRT__LIB mirt_status mirt__apply_gradient(mirt_function *function, int variable, mirt_tensor *gradient);
/* Afterwards x[i]->grad is the gradient of x[i], or NULL. */
MIRT__LIB mirt_status mirt__record_gradients(mirt_function *function, mirt_tensor *loss, mirt_tensor *const *x, int count);
MIRT__LIB mirt_status mirt__minimize(mirt_function *function, mirt_tensor *term);
MIRT__LIB mirt_status mirt__result_add(mirt_function *function, const char *name, mirt_tensor *tensor);
/* Labels or weights of the batch as a float tensor or as class numbers, cast where they are not. */
MIRT__LIB mirt_tensor *mirt__field_as(mirt_function *function, int field, mirt_dtype dtype);

/* --- function.c --- */
/* MIRT_E_INVALID: the data set, or one it reads, is distributed to another strategy than the model's. */
MIRT__LIB mirt_status mirt__check_distributed(const mirt_model *model, const mirt_dataset *dataset, const char *caller);

/* --- run.c --- */
/* Makes a batch the one under way: memory is there, class numbers are checked. */
MIRT__LIB mirt_status mirt__function_begin(mirt_function *function, const mirt__batch *batch);
/* Forward and, where there are gradients, backward, exchange and update. */
MIRT__LIB mirt_status mirt__function_step(mirt_function *function);
/* The same; of a function that sends ahead, `next` is called while the devices are at work, if that can be. It gives the next batch, or NULL:
   it is there, or cannot be had now. Of the batch under way only labels and weights are still there then. The strategy's `prefetched` tells
   whether it lies on the devices. */
typedef const mirt__batch *(*mirt__next_fn)(void *arg);
MIRT__LIB mirt_status mirt__function_step_ahead(mirt_function *function, mirt__next_fn next, void *arg);
/* The parts of it. */
MIRT__LIB mirt_status mirt__function_replicas(mirt_function *function);
MIRT__LIB mirt_status mirt__function_all_reduce(mirt_function *function);
MIRT__LIB mirt_status mirt__function_update(mirt_function *function);
/* Rows of the batch under way that `replica` owns. */
MIRT__LIB int64_t mirt__replica_share(const mirt_function *function, int replica, int64_t *first);
/* `count` elements from `at` of the device's own gradient, or after the all-reduce of the sum of all. */
MIRT__LIB mirt_status mirt__device_gradient(mirt_function *function, int device, int64_t at, int64_t count, float *out);
/* The gradient buffer `slot` of `device`. */
MIRT__LIB mirt__real *mirt__gradient_at(const mirt_function *function, int device, int slot);
MIRT__LIB int mirt__active_replicas(const mirt_function *function);

/* --- profile.c --- */
/* Before a step: the function has clocks when its model is profiled, otherwise none. */
MIRT__LIB mirt_status mirt__clocks_ready(mirt_function *function);
MIRT__LIB void mirt__clocks_free(mirt_function *function);

#endif
