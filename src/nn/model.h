#ifndef MIRT__MODEL_H
#define MIRT__MODEL_H
/* A model: the recorded graph, its layers and variables, and after mirt_compile its weights. */
#include "../graph/graph.h"
#include "../mirror/step.h"

typedef struct mirt__variable {
    const char *name; /* "conv2d/kernel" */
    mirt_shape shape;
    int64_t count;
    size_t offset;   /* bytes in the weight block */
    bool trainable;  /* as it was made */
    bool freeze;     /* by mirt_set_trainable; */
    bool frozen;     /* in force: as it was when the variables were given places */
    bool loaded;     /* its value is no longer the initializer's: it was set, loaded, restored or trained */
    mirt_initializer initializer;
    mirt_constraint constraint; /* after each update */
    double fan_in, fan_out;
} mirt__variable;

typedef struct mirt_layer mirt__layer;

/* Dtype policies: mirt__policy_name. */
typedef enum mirt__policy {
    MIRT__POLICY_FLOAT32, MIRT__POLICY_STORE_BFLOAT16, MIRT__POLICY_MIXED_BFLOAT16, MIRT__POLICY_MIXED_FLOAT16,
    MIRT__POLICY_COUNT
} mirt__policy;

/* Description fields of a layer or optimizer, for saving and loading; the order is that of the file. */
typedef enum mirt__field_kind {
    /* Enumerations, which files know by name (config_names.h): */
    MIRT__FIELD_PADDING, MIRT__FIELD_ACTIVATION, MIRT__FIELD_FLIP, MIRT__FIELD_FILL, MIRT__FIELD_INTERPOLATION,
    MIRT__FIELD_FAN, MIRT__FIELD_DISTRIBUTION, MIRT__FIELD_DTYPE, MIRT__FIELD_TRAINING, MIRT__FIELD_CURVE,
    MIRT__FIELD_REDUCTION, MIRT__FIELD_AVERAGE, MIRT__FIELD_LOSS,
    MIRT__FIELD_INT, MIRT__FIELD_SIGNED, /* an int that may be negative */
    MIRT__FIELD_INT2, MIRT__FIELD_INT2X2, /* two positive ints; int[2][2], none negative */
    MIRT__FIELD_EXTRA2, /* two ints, not negative, but -1 where the file has 0; null: zeros */
    MIRT__FIELD_FLOAT, MIRT__FIELD_BOOL, MIRT__FIELD_NO, /* "use_bias": !no_bias */
    MIRT__FIELD_INITIALIZER, MIRT__FIELD_REGULARIZER, MIRT__FIELD_CONSTRAINT,
    MIRT__FIELD_SHAPE, /* mirt_shape: of one sample */
    MIRT__FIELD_NOISE, /* the same, or none: null */
    MIRT__FIELD_CHANNELS, /* float[MIRT_MAX_CHANNELS] */
    MIRT__FIELD_FLOAT2,
    MIRT__FIELD_TEXT, /* const char *: the file's own, until it is copied */
    MIRT__FIELD_BOUNDARIES, MIRT__FIELD_VALUES, /* piecewise mirt_schedule, in this order: VALUES checks its count */
    /* Of operations: */
    MIRT__FIELD_INT64, MIRT__FIELD_LIMIT, /* a float that may be infinite */
    MIRT__FIELD_DIMS, /* mirt_shape: any */
    MIRT__FIELD_AXES /* int64_t[MIRT_MAX_RANK] */
} mirt__field_kind;
#define MIRT__FIELD_CHOICES MIRT__FIELD_INT /* how many kinds are enumerations */
typedef struct mirt__field {
    const char *name; /* as in Keras's config */
    mirt__field_kind kind;
    size_t offset;
    bool optional; /* not in files where it is 0 */
} mirt__field;
/* A field of the description `desc`; one that has its member's name; and an optional one of these. */
#define MIRT__FIELD(desc, name, kind, member) {name, MIRT__FIELD_##kind, offsetof(desc, member), false}
#define MIRT__OWN_FIELD(desc, kind, member) {#member, MIRT__FIELD_##kind, offsetof(desc, member), false}
#define MIRT__OPTIONAL_FIELD(desc, kind, member) {#member, MIRT__FIELD_##kind, offsetof(desc, member), true}
/* The field of a description that is one value. */
#define MIRT__ONLY_FIELD(name, kind) {name, MIRT__FIELD_##kind, 0, false}
#define MIRT__FIELDS(array) array, MIRT__COUNT(array)
/* Whether all of them are zero (config_write.c). */
MIRT__LIB bool mirt__fields_zero(const mirt__field *fields, int count, const void *object);
/* What files call {"class_name", "config"}. */
typedef struct mirt__object_class {
    const char *name;
    const mirt__field *fields;
    int num_fields;
} mirt__object_class;

typedef struct mirt__layer_class mirt__layer_class;
struct mirt__layer_class {
    const char *class_name; /* "Conv2D" */
    const char *base_name;  /* "conv2d": default names are conv2d, conv2d_1, ... */
    int min_in, max_in; /* how many tensors it takes */
    const mirt__field *fields;
    int num_fields;
    size_t desc_size;
    /* Records the layer on layer->in, whose first is x (NULL for inputs); returns its first output. One that
       has more sets layer->out and num_out. The defaults in layer->desc may be filled in. */
    mirt_tensor *(*build)(mirt__layer *layer, mirt_tensor *x);
    const mirt_layer_class *user; /* of a user-defined layer, otherwise NULL */
    mirt__layer_class *next; /* in its strategy */
};

struct mirt_layer {
    const mirt__layer_class *cls;
    mirt_model *model;
    const char *name;
    mirt_tensor *in[MIRT__MAX_IN], *out[MIRT_MAX_OUTPUTS];
    int num_in, num_out;
    int first_variable, num_variables;
    int first_node, num_nodes; /* of the model's graph */
    int first_term, num_terms;
    void *desc;                /* cls->desc_size bytes, owned by the graph */
    mirt__layer *parent;       /* the layer whose build made this one, or NULL; only layers without stand in
                                  model->layer */
    mirt__layer *children, *sibling;
};

/* Which slot of an optimizer is used: always, or if the option is set; and, of ACCUMULATOR, it begins as
   initial_accumulator_value, not as 0. */
typedef enum mirt__slot_use {
    MIRT__SLOT_NONE, MIRT__SLOT_ZEROS, MIRT__SLOT_ACCUMULATOR, MIRT__SLOT_AMSGRAD, MIRT__SLOT_MOMENTUM,
    MIRT__SLOT_CENTERED
} mirt__slot_use;
typedef struct mirt__optimizer_slot {
    const char *name; /* Keras's */
    mirt__slot_use use;
} mirt__optimizer_slot;
/* What an optimizer that looks at whole weights knows of one of them, on one device. */
typedef struct mirt__whole {
    const mirt_optimizer *optimizer;
    const mirt__variable *variable;
    const mirt__backend *backend;
    const mirt__kernels *kernels;
    const mirt__where *where;
    mirt__real *sum;          /* the block of the gradients' sum, part[0] of `update` */
    char *room;               /* memory for the direction alone, */
    size_t taken;             /* of which it has taken so many bytes */
    int64_t step;             /* from 1 */
    double rate;
    mirt__update *update;     /* of the weight alone */
    bool dry, measures;       /* only counts `taken` and `scratch`; runs kernels that need room, for a backend that */
    size_t scratch;           /* measures it. Of a thread */
} mirt__whole;
/* An optimizer's row: slots are blocks as large as the weights. */
typedef struct mirt__optimizer_class {
    const char *name; /* "adam" */
    mirt_optimizer (*keras)(float learning_rate); /* one with Keras's other numbers */
    const mirt__field *fields; /* of mirt_optimizer, beside the learning rate and those that all have */
    int num_fields;
    mirt__optimizer_slot slot[3];
    /* Changes the numbers of `update` that differ from the optimizer's at the 1-based `step`; NULL: none does. */
    void (*numbers)(const mirt_optimizer *optimizer, int64_t step, double rate, mirt__update *update);
    /* Of an optimizer that looks at whole weights; NULL: it updates each number by itself. Puts the direction in which
       the weight goes in place of its gradient, and makes `update` what takes it there. */
    void (*direction)(mirt__whole *whole);
} mirt__optimizer_class;

/* A loss's row. */
typedef struct mirt__loss_class {
    const char *name;           /* Keras's */
    bool positions;             /* it compares what lies along the last axis: a loss for each position */
    bool classes;               /* of (rows, ..., classes) alone */
    bool sparse;                /* labels are class numbers (without `classes`: any int), one a position; otherwise
                                   float32, one an output */
    mirt_activation_kind undo;  /* behind this activation the loss is computed from what went into it */
} mirt__loss_class;

/* A batch on its way into a metric's sums. A row is one of the positions of a sample. */
typedef struct mirt__counted {
    int64_t samples, rows, n;
    const mirt__real *x; /* predictions [rows, n] */
    const void *labels;  /* [rows, width] */
    mirt_dtype dtype;
    int64_t width;       /* n, or the number of classes; 1 where n > 1: class numbers */
    /* of a weighted metric; NULL: all are 1 */
    const float *weights;       /* [samples] */
    const float *class_weights; /* [num_class_weights] */
    int num_class_weights;
} mirt__counted;

/* Outputs and labels that a metric takes: any; by loss and shape; labels like outputs; of several classes their number,
   or one output a class. */
typedef enum mirt__metric_takes {
    MIRT__TAKES_ANY, MIRT__TAKES_BY_SHAPE, MIRT__TAKES_VALUES, MIRT__TAKES_NUMBERS, MIRT__TAKES_ONE_HOT
} mirt__metric_takes;

/* A metric's row. */
typedef struct mirt__metric_use mirt__metric_use;
typedef struct mirt__metric_class {
    const char *name;
    mirt__metric_takes takes;
    /* Either records a value for each sample, [rows], whose mean is the metric, */
    mirt_tensor *(*record)(const mirt_model *model, const mirt__metric_use *use, mirt_tensor *output,
                           mirt_tensor *labels);
    /* or counts: `sums` numbers (or a mirt__sums_kind), what a batch adds to them, and what they come to; `samples` is
       the sum of the samples' weights. */
    int sums;
    void (*count)(const mirt__metric_use *use, const mirt__counted *batch, double *sums);
    double (*value)(const mirt__metric_use *use, const mirt__counted *batch, int64_t row); /* a row's, or NULL */
    double (*result)(const mirt__metric_use *use, const double *sums, double samples);
    mirt_mode direction;
    bool share; /* from 0 to 1 */
} mirt__metric_class;
/* Sums that depend on options: two for each threshold; true positives, false positives and false negatives of each
   group; three for each output. */
typedef enum mirt__sums_kind { MIRT__SUMS_BUCKETS = 0, MIRT__SUMS_HITS = -1, MIRT__SUMS_OUTPUTS = -2 } mirt__sums_kind;

/* A metric of the compiled model. */
#define MIRT__MAX_METRIC_USES 32
struct mirt__metric_use {
    const char *own_name, *name, *val_name; /* "auc", and in logs */
    int output;
    int64_t positions, n; /* of a sample's output, and numbers of each */
    int64_t groups;       /* of outputs whose hits are counted together, or classes counted one by one */
    int64_t class_id;     /* the only one that counts; -1: all */
    bool largest;         /* the largest of a row's outputs are ones */
    mirt_metric metric;
    mirt_metric_options options; /* defaults filled in */
    const mirt__metric_class *cls; /* or, when NULL: */
    mirt_custom_metric custom;
};

typedef struct mirt__trainer mirt__trainer;

/* Which of two copies has changed since they were the same: the machine's, or the devices'. */
typedef enum mirt__newer { MIRT__NEWER_HOST, MIRT__NEWER_DEVICES, MIRT__NEWER_NOWHERE } mirt__newer;

struct mirt_model {
    mirt_strategy *strategy;
    mirt_model *previous, *next; /* in its strategy */
    const char *name;
    mirt__graph graph;
    mirt__variable *variable;
    int num_variables, variable_capacity;
    mirt__layer **layer;
    int num_layers, layer_capacity;
    mirt__layer *building; /* while a build function runs */
    char *next_name;       /* by mirt_next_name, or NULL */
    mirt_tensor *input[MIRT_MAX_INPUTS], *output[MIRT_MAX_OUTPUTS];
    int num_inputs, num_outputs;
    mirt_model *owner; /* whose part it is, having been called as a layer there, or NULL */
    int owner_first;   /* its first variable there */
    bool is_view;      /* made by mirt_model_view: no layer of the owner */
    bool doomed;       /* destroyed by the user, but still a layer of the owner */
    uint64_t called_in, calls; /* the graph it was last called in, and how often */

    mirt__policy policy; /* that of the outermost model counts */
    double loss_scale;   /* of mixed_float16: the factor of gradients, and the number of steps it did well */
    int64_t scale_steps;
    bool compiled;
    mirt_status failed; /* what the last mirt_compile came to, and, if it failed, why */
    char failure[512];
    char refusal[512];  /* of outputs, when it was compiled already; the next mirt_compile returns it */
    int busy; /* calls under way (fit, a step, recording) that run code of the user, which must not change what they
                 work on */
    mirt_compile_desc config;
    /* in logs, of models with several outputs */
    const char *loss_name[MIRT_MAX_OUTPUTS], *val_loss_name[MIRT_MAX_OUTPUTS];
    mirt__metric_use metric[MIRT__MAX_METRIC_USES];
    int num_metrics;
    size_t weight_bytes;      /* of one copy of all variables */
    size_t trained_bytes;     /* the front of it: variables that are trained */
    uint64_t edits;           /* counts how often weights that are not trained were set */
    int layout;               /* counts how often the variables were given places */
    char *weight;             /* the host's copy of a root's variables; NULL: not materialized */
    mirt__real *kept; /* values of the first variables, one after the other, from when there were weights and a layer
                         was added */
    int num_kept;
    char *slot[MIRT__MAX_SLOTS]; /* optimizer state, once */
    char *device_weight[MIRT__MAX_DEVICES]; /* the devices' copies of `weight` */
    char *device_slot[MIRT__MAX_DEVICES][MIRT__MAX_SLOTS]; /* and of `slot` */
    mirt__newer weights_newer, slots_newer;
    bool swapped;             /* in a fit: the trained weights are their averages, and the slot of these has them */
    mirt__piece *piece;       /* where the optimizer wants norms */
    int num_pieces;
    int64_t step;
    int64_t averaged;         /* local SGD: the step after which a root's weights became those of all processes */
    bool rate_set;            /* by mirt_set_learning_rate: overrides a schedule */
    mirt__trainer *trainer;   /* the programs of fit, evaluate and predict, recorded when first needed, */
    void (*free_trainer)(mirt_model *model); /* and how to free them */
    mirt_function *functions; /* recorded for it, a list, */
    void (*free_functions)(mirt_model *model); /* how to free them, */
    void (*disown_functions)(mirt_model *model); /* and how to keep them from running once their weights are freed */
    int64_t epoch;            /* epochs of training data begun, the key of their order */
    struct mirt__training_run *run;    /* of the fit under way, or NULL */
    bool stop_requested;      /* atomic: by mirt_request_stop, until a fit has ended */
    mirt_history history;     /* of the last fit */
    mirt_logs *history_logs;
    int history_capacity;
    unsigned traps;            /* of the classic mistakes, those that were told */
    bool threshold_warned;     /* by mirt__metrics_warn */
    int64_t told_batch;        /* whose shares and memory were told last */
    int nan_watch;             /* by the callback: 0 off, 1 warn, 2 stop */
    bool nan_first;            /* before its first step, which looks at the weights too */
    char not_finite[512];      /* what of the last step was not finite, and where it comes from, or "" */
    bool profiled;             /* its functions have clocks */
    double peak_flops, peak_half, peak_bytes; /* a second, of the first device, half: in bfloat16; 0: not measured */
    char **class_names;
    int num_class_names;
    mirt__text summary, graph_text, profile_text, load_text, timing_text;
};

/* --- weight_sync.c --- */
/* Makes room for the weights of a root on the devices. */
MIRT__LIB mirt_status mirt__weights_place(mirt_model *root);
/* The devices get the weights of a root, or the model's optimizer state, if the host's are newer; */
MIRT__LIB mirt_status mirt__weights_to_devices(mirt_model *root);
MIRT__TRAINING_LIB mirt_status mirt__slots_to_devices(mirt_model *model);
/* the host gets them if the devices' are newer. Failures go to the log, and the strategy can no longer be used. */
MIRT__LIB void mirt__weights_to_host(mirt_model *root);
MIRT__TRAINING_LIB void mirt__slots_to_host(mirt_model *model);
/* The elements of the trained weights that a device updates. */
MIRT__TRAINING_LIB mirt__range mirt__model_share(const mirt_model *model, int device);
/* A device's copy of a variable. */
MIRT__LIB mirt_status mirt__device_weight_get(mirt_model *model, int device, int variable, float *out);
/* The host's were changed. */
MIRT__LIB void mirt__weights_changed(mirt_model *model);
MIRT__LIB void mirt__slots_changed(mirt_model *model);
/* The devices' copies; before the host's blocks are freed. */
MIRT__LIB void mirt__device_weights_free(mirt_model *root);
MIRT__TRAINING_LIB void mirt__device_slots_free(mirt_model *model);
/* Bytes that each device has for the model's training, including what the model uses already. */
MIRT__LIB size_t mirt__device_free(const mirt_model *model);

/* --- layers.c, model.c --- */
/* Adds a layer of class `cls` on the `num_in` tensors of `in` to `model` (NULL: theirs): `desc` is cls->desc_size
   bytes (NULL: zeros), `name` NULL for the default. NULL with the model marked on errors. */
MIRT__LIB mirt_tensor *mirt__layer_add(mirt_model *model, const mirt__layer_class *cls, mirt_tensor *const *in,
                                       int num_in, const void *desc, const char *name);
/* A variable of the layer being built: "layer/name". Fans are Keras's, by shape. */
MIRT__LIB mirt_tensor *mirt__variable_add(mirt__layer *layer, const char *name, const mirt_shape *shape,
                                          const mirt_initializer *initializer, bool trainable);
/* A term of the model's loss: a number that depends on weights alone, or a value a sample. */
MIRT__LIB bool mirt__term_add(mirt_model *model, mirt_tensor *term);
/* Of the library, or registered with the strategy; NULL when there is none. */
MIRT__LIB const mirt__layer_class *mirt__layer_class_by_name(const mirt_strategy *strategy, const char *class_name);
/* The index, or -1 with an error that names the nearest one. */
MIRT__LIB int mirt__variable_find(const mirt_model *model, const char *name);
MIRT__LIB int mirt__layer_find(const mirt_model *model, const char *name);
/* mirt__graph_init of a model's graph or, NULL, a function's. */
MIRT__LIB void mirt__model_graph_init(mirt__graph *graph, mirt_model *model);
/* Around calls of user code: the model and its strategy are not destroyed meanwhile, nor compiled anew, and its weights
   stay where they are. NULL is allowed. */
MIRT__LIB void mirt__hold(mirt_model *model);
MIRT__LIB void mirt__let_go(mirt_model *model);
/* Marks the model with the current error and returns NULL. */
MIRT__LIB mirt_tensor *mirt__model_poison(mirt_model *model);
/* Frees the programs of fit, evaluate and predict: the outputs, the metrics or the optimizer change. */
MIRT__LIB void mirt__trainer_drop(mirt_model *model);
/* Back to before mirt_compile, the weights kept. */
MIRT__LIB void mirt__compile_forget(mirt_model *model);

/* --- weights.c --- */
MIRT__LIB bool mirt__is_trained(const mirt__variable *variable);
/* A mirt__mode.frozen; `model` is a mirt_model. */
MIRT__LIB bool mirt__is_frozen(const void *model, int variable);
/* MIRT__USE of a model's strategy; the model may be NULL. */
#define MIRT__USE_MODEL(model, failed) MIRT__USE(mirt__strategy_of_model(model), failed)
MIRT__LIB mirt_strategy *mirt__strategy_of_model(const mirt_model *model);
/* The model whose weight block holds this model's weights; *first: where its variables begin there. */
MIRT__LIB mirt_model *mirt__root(const mirt_model *model, int *first);
/* "conv" is the layer conv and what lies in it, not conv2d; "conv*" is both; NULL is all. */
MIRT__LIB bool mirt__matches(const char *name, const char *prefix);
/* The policy of a root. Warns where bfloat16 is emulated or unknown; cores take mixed_bfloat16 for mixed_float16. */
MIRT__LIB void mirt__set_policy(mirt_model *model, mirt__policy policy);
MIRT__LIB const char *mirt__policy_name(mirt__policy policy);
/* MIRT__POLICY_COUNT: there is none of this name. */
MIRT__LIB mirt__policy mirt__policy_named(const char *name);
#define MIRT__LOSS_SCALE 32768 /* the first one */
/* A step with scaled gradients is over: Keras's LossScaleOptimizer. */
MIRT__LIB void mirt__loss_scale_step(mirt_model *root, bool overflow);
/* As saved; 0, of what was trained without one, changes nothing. */
MIRT__LIB void mirt__loss_scale_set(mirt_model *root, double scale, int64_t steps);
/* Creates the weight blocks and draws the initial values, once. */
MIRT__LIB mirt_status mirt__model_materialize(mirt_model *model);
/* Without `drawn` those of `asked` are zeros, as all of them are about to be loaded. */
MIRT__LIB mirt_status mirt__model_allocate(mirt_model *asked, bool drawn);
/* Before a variable or layer is added: weights that there are will have their values when they are created again. False
   with the error set: nothing can be added any more, or there is no memory (then the model is marked). */
MIRT__LIB bool mirt__model_extend(mirt_model *model, const char *what);
/* Puts the variables where their flags want them. */
MIRT__LIB mirt_status mirt__model_arrange(mirt_model *model);
/* The variable of the model has a value of its own now, in the models that share it too. */
MIRT__LIB void mirt__variable_loaded(mirt_model *model, int variable);
/* The same of all that the model's steps have trained. */
MIRT__LIB void mirt__variables_trained(mirt_model *model);
/* Whether a variable of the outermost model is kept as it is, also where it is a part's. */
MIRT__LIB void mirt__freeze(mirt_model *model, int variable, bool frozen);
/* One of the model and those that share its weights which is being trained, or NULL. */
MIRT__LIB mirt_model *mirt__family_busy(mirt_model *model);
MIRT__LIB void mirt__weights_free(mirt_model *model);
MIRT__LIB void mirt__kept_free(mirt_model *model);
MIRT__LIB mirt__real *mirt__weight_at(const mirt_model *model, int variable);
/* The optimizer's state of a trained variable. */
MIRT__LIB mirt__real *mirt__slot_at(const mirt_model *model, int slot, int variable);
/* Declares a variable like `from`, under its name, or "prefix/name"; NULL with the error set. */
MIRT__LIB mirt__variable *mirt__variable_new(mirt_model *model, const mirt__variable *from, const char *prefix);
/* Makes `part` a part of `owner`, its variables' names beginning with "prefix/". */
MIRT__LIB mirt_status mirt__adopt(mirt_model *owner, mirt_model *part, const char *prefix);

/* --- initializers.c --- */
MIRT__LIB void mirt__initialize(const mirt__variable *variable, uint64_t seed, mirt__real *out);
MIRT__LIB mirt_status mirt__initializer_check(const mirt_initializer *initializer);

/* --- schedules.c --- */
/* All of them, by mirt_schedule_kind. */
MIRT__LIB const mirt__object_class *mirt__schedule_classes(void);
/* None is fine. */
MIRT__LIB mirt_status mirt__schedule_check(const mirt_schedule *schedule);
/* Of one that was checked. */
MIRT__LIB double mirt__schedule_rate(const mirt_schedule *schedule, int64_t step);

/* --- optimizers.c --- */
/* The learning rate of the coming step; only a schedule can give a wrong one. */
MIRT__LIB mirt_status mirt__coming_rate(const mirt_model *model, double *rate);
/* Of an optimizer without a function for it. */
MIRT__LIB double mirt__optimizer_rate(const mirt_optimizer *optimizer, int64_t step);
/* Of the optimizers' rates, of which the first is known, one that is wrong if any is. */
MIRT__LIB double mirt__rates_at(const mirt_model *model, double rate, int64_t step);
/* Fails if optimizers have a rate each. */
MIRT__LIB mirt_status mirt__one_rate(const mirt_model *model);
/* Finite in float32, and not negative. */
MIRT__LIB bool mirt__is_rate(double x);
/* The decimal number that was meant: 0.999f is 0.99900001287, which would leave 1 - beta off by 1.3e-5. */
MIRT__LIB double mirt__as_written(float x);
MIRT__LIB const mirt__optimizer_class *mirt__optimizer_class_get(mirt_optimizer_kind kind);
/* Fills the slots, those used being in `slot`, and numbers of `update` for the 1-based `step` at the learning rate. */
MIRT__LIB void mirt__optimizer_numbers(const mirt_optimizer *optimizer, int64_t step, double rate,
                                       mirt__real *const *slot, mirt__update *update);
MIRT__LIB bool mirt__optimizer_amsgrad(const mirt__optimizer_class *cls);
/* Fields that every optimizer has; returns how many. */
MIRT__LIB int mirt__optimizer_common(const mirt__field **fields);
/* The optimizer's slots, the average last; returns how many. */
MIRT__LIB int mirt__optimizer_slot_names(const mirt_optimizer *optimizer, const char *name[MIRT__MAX_SLOTS]);
/* Sets Keras's numbers if none of those that are not 0 in Keras is set. SGD stays as it is: its defaults are zeros. */
MIRT__LIB void mirt__optimizer_defaults(mirt_optimizer *optimizer);
MIRT__LIB mirt_status mirt__optimizer_check(const mirt_optimizer *optimizer);
/* The optimizers of a model whose weights are declared. */
MIRT__LIB mirt_status mirt__optimizers_check(const mirt_model *model, const mirt_compile_desc *desc);
/* Optimizer 0, which is that of weights that no pattern names, and those after it, up to NULL. */
MIRT__LIB const mirt_optimizer *mirt__optimizer_number(const mirt_compile_desc *desc, int number);
/* The optimizer of a weight, by its name in the model; or by its number in the model's root. */
MIRT__LIB const mirt_optimizer *mirt__optimizer_named(const mirt_compile_desc *desc, const char *weight);
MIRT__LIB const mirt_optimizer *mirt__optimizer_of(const mirt_model *model, int variable);
/* Whether one of them is so. */
MIRT__LIB bool mirt__optimizers_any(const mirt_compile_desc *desc, bool (*is)(const mirt_optimizer *optimizer));
/* The optimizer's name, or what several are called. */
MIRT__LIB const char *mirt__optimizers_name(const mirt_compile_desc *desc);
/* Blocks of optimizer state; averages lie in the last one. */
MIRT__LIB int mirt__slots(const mirt_compile_desc *desc);
/* What a block holds of a trained weight; NULL: nothing, its optimizer needs fewer than others. */
MIRT__LIB const char *mirt__slot_of(const mirt_compile_desc *desc, const char *weight, int block);
/* Whether it needs the squares of gradients summed up, and numbers of its own for each variable. */
MIRT__LIB bool mirt__optimizer_norms(const mirt_optimizer *optimizer);
MIRT__LIB bool mirt__optimizer_by_variable(const mirt_optimizer *optimizer);
/* Whether it looks at whole weights, with the whole sums of their gradients: a device then updates whole weights. */
MIRT__LIB bool mirt__optimizer_whole(const mirt_optimizer *optimizer);
/* The numbers of Adam, of which `update` has all others. */
MIRT__LIB void mirt__adam_numbers(const mirt_optimizer *optimizer, int64_t step, double rate, mirt__update *update);
/* Muon: whether the weight is updated as by AdamW. */
MIRT__LIB bool mirt__muon_leaves(const mirt_optimizer *optimizer, const mirt__variable *variable);
/* Fills kind, slots (blocks of optimizer state) and numbers of `update` for the model's next step at this rate. */
MIRT__LIB void mirt__optimizer_update(const mirt_model *model, const mirt_optimizer *optimizer, char *const *slots,
                                      double rate, mirt__update *update);
/* With use_ema, after the first step: exchanges the trained weights and their averages, unless it is done already. */
MIRT__LIB void mirt__averages_swap(mirt_model *model, bool in);
/* The averages become the weights. */
MIRT__LIB void mirt__averages_keep(mirt_model *model);
/* What is done to gradients of which all squares add up to this; then, by variable, of which its own do. */
MIRT__LIB void mirt__optimizer_extras(const mirt_optimizer *optimizer, double squares, mirt__update *update);
MIRT__LIB void mirt__optimizer_variable(const mirt_optimizer *optimizer, const mirt__variable *variable, double squares,
                                        double rate, mirt__update *update);

/* --- directions.c: a column of the optimizers' rows --- */
MIRT__LIB void mirt__lamb_direction(mirt__whole *whole);
MIRT__LIB void mirt__muon_direction(mirt__whole *whole);
MIRT__LIB void mirt__adafactor_direction(mirt__whole *whole);

/* --- losses.c --- */
/* NULL when there is no such loss. */
MIRT__LIB const mirt__loss_class *mirt__loss_class_get(mirt_loss loss);
/* Checks the losses of the model's outputs and takes over those of the user. */
/* The layer that made the output, or the model: for messages. */
MIRT__LIB const char *mirt__output_name(const mirt_model *model, int output);
MIRT__LIB mirt_status mirt__losses_check(mirt_model *model);
MIRT__LIB void mirt__losses_warn(const mirt_model *model);
/* The row of an output's loss; NULL: the user's own. */
MIRT__LIB const mirt__loss_class *mirt__output_loss(const mirt_model *model, int output);
MIRT__LIB const char *mirt__output_loss_name(const mirt_model *model, int output);
/* What a function of the user recorded, if it fits; otherwise NULL, with the graph marked. `kind`: loss, metric. */
MIRT__LIB mirt_tensor *mirt__custom_result(const char *kind, const char *name, const mirt_tensor *output,
                                           mirt_tensor *value, bool fits, const char *want);
MIRT__LIB bool mirt__output_has_loss(const mirt_model *model, int output);
/* Labels the compiled model takes; those of `output` are number mirt__label_number. */
MIRT__LIB int mirt__num_labels(const mirt_model *model);
MIRT__LIB int mirt__label_number(const mirt_model *model, int output);
/* Elements of a sample's label; -1: any. */
MIRT__LIB int64_t mirt__label_count(const mirt_model *model, int output);
/* The loss of each sample or position. `labels` as they are in the data. */
MIRT__LIB mirt_tensor *mirt__loss_of(mirt_loss loss, const mirt_loss_options *options, mirt_tensor *output,
                                     mirt_tensor *labels);
/* The values, multiplied so that the mean over the global batch is that over the samples that count: of the circle
   loss those whose value is not 0, as in Keras. */
MIRT__LIB mirt_tensor *mirt__loss_counted(mirt_loss loss, mirt_reduction reduction, mirt_tensor *values);
/* Fields of mirt_loss_options; returns how many. */
MIRT__LIB int mirt__loss_fields(const mirt__field **fields);
/* Whether the loss, by `name` in messages, takes these options of an output of so many axes. */
MIRT__LIB mirt_status mirt__loss_options_check(const char *name, mirt_loss loss, const mirt_loss_options *options,
                                               int rank);
/* Whether the output is what a softmax or sigmoid would begin with. */
MIRT__LIB bool mirt__output_logits(const mirt_model *model, int output);
MIRT__LIB mirt_tensor *mirt__loss_record(const mirt_model *model, int number, mirt_tensor *output, mirt_tensor *labels);
/* Labels in the form that a loss or metric wants: class numbers, or float32 of the output's shape. */
MIRT__LIB mirt_tensor *mirt__labels_form(bool sparse, mirt_tensor *labels, const mirt_tensor *output);

/* Whether a loss or metric of the user has a name that files can hold. */
MIRT__LIB bool mirt__custom_named(const char *name);
/* Registered ones; NULL when there is none of this name. */
MIRT__LIB const mirt_custom_loss *mirt__custom_loss_by_name(const mirt_strategy *strategy, const char *name);
MIRT__LIB const mirt_custom_metric *mirt__custom_metric_by_name(const mirt_strategy *strategy, const char *name);
/* The strategy's copy, made if there is none like it; NULL with the error set. */
MIRT__LIB const mirt_custom_loss *mirt__custom_loss_of(mirt_strategy *strategy, const mirt_custom_loss *loss);
MIRT__LIB const mirt_custom_metric *mirt__custom_metric_of(mirt_strategy *strategy, const mirt_custom_metric *metric);

/* --- metrics_table.c --- */
/* NULL when there is no such metric. */
MIRT__LIB const mirt__metric_class *mirt__metric_class_get(mirt_metric metric);
/* Whether an output of the compiled model can have it. */
MIRT__LIB mirt_status mirt__metric_check(const mirt_model *model, const mirt__metric_use *use);
/* As its class or its user declares; AUTO: not declared. */
MIRT__LIB mirt_mode mirt__metric_direction(const mirt__metric_use *use);
/* Fills what its options mean for its output. */
MIRT__LIB void mirt__metric_settle(const mirt_model *model, mirt__metric_use *use);
/* The sum of the weights of a batch's samples, and the weight of one. */
MIRT__LIB double mirt__sample_weight(const mirt__counted *batch, int64_t sample);
/* Whether it counts each class; then the value of one. */
MIRT__LIB bool mirt__metric_by_class(const mirt__metric_use *use);
MIRT__LIB double mirt__metric_of_group(const mirt__metric_use *use, const double *sums, int64_t group);
/* How many sums it counts; 0: it is recorded. */
MIRT__LIB int mirt__metric_sums(const mirt__metric_use *use);
/* Whether it takes an output above 0.5 for a one. */
MIRT__LIB bool mirt__metric_compares(const mirt_model *model, const mirt__metric_use *use);

/* Whether it compares class numbers that must be below the number of classes. */
MIRT__LIB bool mirt__metric_indexes(const mirt__metric_use *use);
/* The options of a loss that is a metric: it ignores the class that the output's own loss ignores. */
MIRT__LIB mirt_loss_options mirt__metric_loss_options(const mirt_model *model, const mirt__metric_use *use);

/* --- metrics.c --- */
/* Makes the list of the compiled model's metrics, and the names for logs. */
MIRT__LIB mirt_status mirt__metrics_collect(mirt_model *model);
/* Warns, once per model, of a metric that compares logits, or sums without an activation, with a threshold. */
MIRT__LIB void mirt__metrics_warn(mirt_model *model);
/* Its value for each sample, or what it counts. */
MIRT__LIB mirt_tensor *mirt__metric_record(const mirt_model *model, const mirt__metric_use *use, mirt_tensor *output,
                                           mirt_tensor *labels);
/* Whether two count the same predictions. */
MIRT__LIB bool mirt__metric_shares(const mirt__metric_use *a, const mirt__metric_use *b);
/* Fields of mirt_metric_options; returns how many. */
MIRT__LIB int mirt__metric_fields(const mirt__field **fields);

/* --- custom_op.c --- */
/* Whether it is a name of 1 to 100 bytes of UTF-8. */
MIRT__LIB bool mirt__short_name(const char *name);
/* NULL when none of this name is registered. */
MIRT__LIB const mirt_op_class *mirt__op_class_by_name(const mirt_strategy *strategy, const char *name);
/* Records the strategy's op `op`; config: op->config_size bytes. */
MIRT__LIB mirt_tensor *mirt__user_op(mirt__graph *graph, const mirt_op_class *op, mirt_tensor *const *in, int num_in,
                                     const void *config);

/* --- call.c --- */
/* Tensors of a model at one place of its way from inputs to outputs. */
typedef struct mirt__stretch {
    mirt_tensor **tensor;
    int count;
} mirt__stretch;
/* Records into a function's graph what lies between two places of the model, `from` being x there; with the terms of
   its loss where `to` is its outputs. The copies of `to` go to `out`. False with the error set. */
MIRT__LIB bool mirt__call_stretch(mirt__graph *graph, mirt_model *model, const mirt__stretch *from,
                                  mirt_tensor *const *x, const mirt__stretch *to, mirt_tensor **out);
/* The index of the model's first variable among those of the graph's model; -1 with the error set where it is not a
   part of that model. */
MIRT__LIB int mirt__call_variables(const mirt__graph *graph, const mirt_model *model);
/* The model that was called as this layer, or NULL. */
MIRT__LIB mirt_model *mirt__layer_part(const mirt__layer *layer, mirt_training *training);
/* mirt_call_many as the layer `name` of `model`; NULL: the default name. False with the error set. */
MIRT__LIB bool mirt__call_named(mirt_model *model, mirt_model *part, mirt_tensor *const *x, int count,
                                mirt_training training, const char *name);

#endif
