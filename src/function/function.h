#ifndef MIRT__FUNCTION_H
#define MIRT__FUNCTION_H
/* A step recorded once and replayed by every replica: what fit, evaluate and predict run, and what
   users record themselves. Its parts: a program over fields of a batch; results; gradients that the
   optimizer takes; new values of variables. */
#include "../data/data.h"
#include "../mirror/step.h"
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

/* The host's side of a step. */
typedef struct mirt__results {
    mirt__result list[MIRT__MAX_RESULTS];
    int count;
    int terms;                         /* of fit: the numbers among the loss's terms; -1: there are none */
    int metric[MIRT__MAX_METRIC_USES]; /* of fit: each metric's values, or the predictions that it counts */
    char *memory;                      /* of results, twice if it sends ahead, and states */
    char *labels; /* of the batch under way, and its weights, while the next one is read, if it sends ahead */
} mirt__results;

/* A variable's gradient. */
typedef struct mirt__applied {
    int variable;
    mirt_tensor *gradient;
} mirt__applied;

/* What the calls in a function's body add to. */
typedef struct mirt__recording {
    bool active;
    mirt__mode mode;
    mirt_tensor *field[MIRT__MAX_FIELDS];
    mirt_tensor **minimized; /* terms of the loss */
    int num_minimized, minimized_capacity;
    mirt__applied *applied;
    int num_applied, applied_capacity;
} mirt__recording;

/* What measures steps, on the caller's thread. A strategy has one from the first profile, trace or fit on. */
typedef struct mirt__observer {
    mirt_status (*ready)(mirt_function *function); /* before what is measured */
    void (*begin)(mirt_function *function);
    void (*ahead)(const mirt_function *function); /* the caller reads the next batch, while the devices are at work */
    void (*end)(mirt_function *function);
} mirt__observer;

/* What of a step is not finite: a set of these. */
enum { MIRT__LOSS_BAD = 1, MIRT__GRADIENT_BAD = 2, MIRT__STATE_BAD = 4, MIRT__MODEL_BAD = 8 };

/* What keeps steps from being applied that are not finite, and finds out why they are not (inspect/finite.c). */
typedef struct mirt__guard {
    int (*model)(const mirt_function *function);   /* before the first step: the weights and the optimizer's state */
    int (*device)(void *function, int device);     /* when the device's replicas have run */
    bool (*squares)(const mirt_function *function); /* false: gradients known by their squares alone are not */
    mirt_status (*open)(mirt_function *function);  /* the step is about to run again without its update; */
    void (*close)(mirt_function *function, int what, bool good); /* it has run, with its failures unless `good` */
} mirt__guard;

/* The next step, launched before the results of the step under way are read. */
typedef struct mirt__following {
    bool allowed;  /* nothing runs on the devices or reads weights in between */
    bool launched; /* it is on the devices, and its batch is the next one */
    int64_t rows;  /* of its batch, */
    const void *io[MIRT__MAX_FIELDS]; /* the fields, */
    double valid_weight[MIRT__MAX_FIELDS];
    double rate;   /* and its learning rate */
} mirt__following;

/* What a field of class numbers may hold. */
typedef struct mirt__class_numbers {
    int classes;  /* numbers below this; 0: anything */
    bool ignores; /* and this one, which does not count: */
    int ignored;
} mirt__class_numbers;

typedef enum mirt__step_stage { MIRT__IDLE, MIRT__SCATTERED, MIRT__GRADIENTS, MIRT__REDUCED } mirt__step_stage;

struct mirt_function {
    mirt_model *model; /* whose weights, optimizer and step count it uses */
    mirt_model *root;
    mirt_function *next; /* of the model's */
    int layout;          /* the root's, when it was recorded */
    mirt__policy policy; /* of the root, when it was recorded */
    mirt__data_spec spec;          /* of its batches */
    mirt__class_numbers classes[MIRT__MAX_FIELDS]; /* of a field */

    mirt__recording recording;
    mirt__step step; /* the program, and what runs it on the devices */
    mirt__results results;

    /* the batch under way */
    const void *io[MIRT__MAX_FIELDS]; /* the step's */
    double valid_weight[MIRT__MAX_FIELDS]; /* all labels of a field over those that are not ignored */
    mirt__step_stage stage;
    double rate;         /* asked for on the caller's thread: schedules are the user's code */
    const mirt__guard *guard; /* of this step; NULL: it is applied whatever its values are */
    bool overflow;       /* atomic: scaled gradients were not finite, and nothing was applied */
    bool counted;        /* its steps are those of a fit */
    mirt__following following;
    const char *const *trace_name; /* of nodes, then of what devices add up: the trace's, if it is this one: */
    uint64_t trace_serial;
};

/* --- record.c --- */
/* Whether batches of the two are alike: in their first `fields` fields, or in all. */
MIRT__LIB bool mirt__fields_same(const mirt__data_spec *a, const mirt__data_spec *b, int fields);
MIRT__TRAINING_LIB bool mirt__spec_same(const mirt__data_spec *a, const mirt__data_spec *b);
typedef bool (*mirt__body)(mirt_function *function, void *user);
/* What a function is made for. */
typedef struct mirt__function_desc {
    const mirt__data_spec *spec; /* of a batched data set */
    int64_t max_batch;
    bool by_replicas;
    bool training; /* how called models are run unless they are told */
    bool sends_ahead; /* for loops: devices with memory of their own get the next batch while they are at work */
} mirt__function_desc;
MIRT__LIB mirt_function *mirt__function_new(mirt_model *model, const mirt__function_desc *desc, mirt__body body,
                                            void *user);
MIRT__LIB void mirt__function_free(mirt_function *function);
/* One value per sample of the several in (rows, ...), or one number of several: their mean, or with MIRT_SUM their
   sum. */
MIRT__LIB mirt_tensor *mirt__sample_value(const mirt_model *model, mirt_tensor *values);
/* A term of the loss as a value: per sample, or the replica's part of a number. */
MIRT__LIB mirt_tensor *mirt__term_value(mirt_function *function, mirt_tensor *term);
/* Whether recording is under way, and the tensor of this function. */
MIRT__LIB mirt_status mirt__need_recording(const mirt_function *function, const mirt_tensor *tensor,
                                           const char *caller);
/* The optimizer shall take `gradient` for the variable. */
MIRT__LIB mirt_status mirt__apply_gradient(mirt_function *function, int variable, mirt_tensor *gradient);
/* Afterwards x[i]->grad is the gradient of x[i], or NULL. */
MIRT__LIB mirt_status mirt__record_gradients(mirt_function *function, mirt_tensor *loss, mirt_tensor *const *x,
                                             int count);
MIRT__LIB mirt_status mirt__minimize(mirt_function *function, mirt_tensor *term);
/* The field holds class numbers below `classes`, which are checked with every batch, or what `how` ignores. Returns
   `value`, the loss by sample, or with ignored labels and without MIRT_SUM its mean over those that count. */
MIRT__LIB mirt_tensor *mirt__class_numbers_use(mirt_function *function, int field, int64_t classes,
                                               const mirt_loss_options *how, mirt_tensor *value);
/* Labels or weights of the batch as a float tensor or as class numbers, cast where they are not. */
MIRT__LIB mirt_tensor *mirt__field_as(mirt_function *function, int field, mirt_dtype dtype);

/* --- results.c --- */
MIRT__LIB mirt_status mirt__result_add(mirt_function *function, const char *name, mirt_tensor *tensor);
/* Gives a recorded function its results' memory, and the devices what it needs of them. */
MIRT__LIB mirt_status mirt__function_allocate(mirt_function *function);
/* Where the results of the step's turn are. */
MIRT__LIB void mirt__results_place(mirt_function *function);
/* Bytes of the results' memory. */
MIRT__LIB size_t mirt__function_host(const mirt_function *function);

#endif
