#ifndef MIRT__GRAPH_H
#define MIRT__GRAPH_H
/* The recorded graph. A node is one call of an op; a tensor is one output of a node. Recording
   infers shapes; gradients are recorded as further nodes; a program (program.h) replays a graph. */

#include "../base/device_timeline.h"
#include "../kernels/kernels.h"

#define MIRT__MAX_IN 8        /* of an op as it is recorded */
#define MIRT__MAX_FUSED_IN 12 /* of one that took others' work over */
#define MIRT__MAX_OUT 8
/* Elements of a tensor (of one row, when batched), and bytes of a batch of them: far beyond any
   machine, and so small that sums and products of a few cannot overflow. */
#define MIRT__MAX_ELEMENTS ((int64_t)1 << 40)
#define MIRT__MAX_BYTES ((int64_t)1 << 46)

typedef struct mirt__graph mirt__graph;
typedef struct mirt__node mirt__node;
typedef struct mirt__op mirt__op;

/* Families of ops: those of one read the same attributes. `plain`: those of every op alone. */
typedef enum mirt__family {
    MIRT__FAMILY_plain, MIRT__FAMILY_data, MIRT__FAMILY_random, MIRT__FAMILY_move, MIRT__FAMILY_axis,
    MIRT__FAMILY_one_hot, MIRT__FAMILY_reduce, MIRT__FAMILY_matmul, MIRT__FAMILY_window, MIRT__FAMILY_resize,
    MIRT__FAMILY_norm, MIRT__FAMILY_loss
} mirt__family;

/* Every op: a row here with its family, a file in src/ops, a row in tests/op_cases.h. Node number NAME is
   MIRT__OP_NAME, its definition mirt__op_NAME. Predict-only programs lack the definitions of the second list. */
#define MIRT__OP_LIST(X) MIRT__PREDICT_OP_LIST(X) MIRT__TRAINING_OP_LIST(X)
#define MIRT__PREDICT_OP_LIST(X) \
    X(input, plain) X(variable, plain) X(constant, data) X(logic, plain) X(stop_gradient, plain) X(scan, axis) \
    X(log_softmax, plain) X(transpose, move) X(concat, axis) X(slice, move) X(pad, move) X(gather, plain) \
    X(unary, plain) X(binary, plain) X(broadcast, plain) X(bias_add, plain) X(reduce, reduce) X(reshape, plain) \
    X(cast, plain) X(one_hot, one_hot) X(matmul, matmul) X(conv2d, window) X(conv2d_pool, window) \
    X(max_pool2d, window) X(average_pool2d, window) X(user, data) X(softmax, plain) X(dropout, random) \
    X(dropout_mask, random) X(gaussian_noise, random) \
    X(augment, data) X(conv2d_transpose, window) X(resize2d, resize) X(norm_stats, norm) \
    X(normalize, norm) X(batch_norm, norm)
#define MIRT__TRAINING_OP_LIST(X) \
    X(loss_weight, loss) X(log_softmax_grad, plain) X(gather_grad, plain) X(reduce_max_grad, reduce) \
    X(conv2d_input_grad, window) X(conv2d_weight_grad, window) X(conv2d_pool_weight_grad, window) \
    X(max_pool2d_grad, window) X(average_pool2d_grad, window) X(user_grad, data) X(softmax_grad, plain) X(loss, loss) \
    X(circle, loss) X(loss_grad, loss) X(accuracy, plain) X(resize2d_grad, resize) X(norm_grad_sums, norm) \
    X(norm_grad_input, norm) X(all_reduce, plain) X(all_reduce_bucket, plain) X(update_bucket, plain)
typedef enum mirt__op_id {
#define MIRT__OP_ENUM(name, family) MIRT__OP_##name,
    MIRT__OP_LIST(MIRT__OP_ENUM)
#undef MIRT__OP_ENUM
    MIRT__OP_COUNT
} mirt__op_id;
enum {
#define MIRT__OP_FAMILY(name, family) MIRT__FAMILY_OF_##name = MIRT__FAMILY_##family,
    MIRT__OP_LIST(MIRT__OP_FAMILY)
#undef MIRT__OP_FAMILY
};

/* constant: its values; user, user_grad: the config; augment: the transforms. */
typedef struct mirt__attrs_data {
    const void *data; /* in the graph's pool */
    size_t bytes, room;           /* augment: `room` bytes after the transforms are free for more */
    uint64_t key;                 /* augment: mixed with the transforms' keys */
    const mirt_op_class *user_op; /* owned by the strategy */
} mirt__attrs_data;

typedef struct mirt__attrs_random {
    uint64_t key; /* of the random stream */
    float rate;
} mirt__attrs_random;

/* Which of a normalization's inputs after the statistics exist. */
typedef struct mirt__attrs_scaling {
    bool gamma, beta;
    float epsilon;
} mirt__attrs_scaling;

/* Convolutions and poolings. */
typedef struct mirt__attrs_window {
    int kernel[2]; /* of a pooling */
    int strides[2], dilation[2], groups;
    mirt_padding padding;
    /* Fused by tiled_reads.c: */
    int64_t pad[2], size[2]; /* padded: zeros before the input's axes, and the output's size; padding is not read */
    bool padded;
    bool norm;               /* the output is normalized */
    bool slope;              /* the output is a gradient of a normalization's output: */
    bool both;               /* an input gradient leaves the weight gradient too */
    mirt_activation_kind slope_activation; /* times the slope of this */
    mirt__column_sums sums;  /* the next two outputs are column sums of the first; of images the next one */
    mirt__attrs_scaling scaling;           /* of norm or slope */
} mirt__attrs_window;

typedef struct mirt__attrs_norm {
    int last_axes;         /* the normalization is over the last so many axes; 0: over all axes but the last */
    mirt__attrs_scaling scaling;
    double momentum;
    bool batch_statistics; /* gradients flow through the statistics */
    bool synchronized;     /* the statistics are of the global batch */
} mirt__attrs_norm;

typedef struct mirt__attrs_reduce {
    unsigned axes;
    bool keepdims;
} mirt__attrs_reduce;
typedef struct mirt__attrs_matmul { bool transpose_a, transpose_b; } mirt__attrs_matmul;
typedef struct mirt__attrs_resize {
    int size[2]; /* height and width of the output */
    bool bilinear;
} mirt__attrs_resize;

/* What an op needs to know besides its inputs; each op's file says which fields it reads. Made by mirt__attrs_of. */
typedef struct mirt__attrs {
    mirt__family family;   /* of the op */
    int index;             /* of an input or variable */
    int kind;              /* which of a family: mirt__unary_kind, mirt__binary_kind, ... */
    mirt_dtype dtype;
    mirt_shape shape;
    float scale, offset;   /* numbers of an elementwise op, the value of a padding, or with `affine`: */
    bool affine;           /* the first input is read as x * scale + offset */
    bool bias;             /* fused: the input after the operands is a bias */
    bool column_sum;       /* fused: a second output, the bias gradient */
    bool residual;         /* an input is added before the activation; normalization: the last one */
    bool half;             /* products of bfloat16 */
    bool winograd;         /* a convolution or gradient of its input may be taken by F(2x2, 3x3) */
    bool regularizer;      /* the penalty of a weight: no term of the loss where that weight is not trained; or, of each
                              row, of an activity: a mean over rows, even where losses are summed */
    mirt_activation_kind activation; /* fused */
    /* Fused: times its slope; the last input is its output (normalization: known from x). */
    mirt_activation_kind mask_activation;
    mirt_training training; /* how a model called as a layer was to be run */
    const mirt__node *of;  /* a gradient: of which node */
    union {                /* by MIRT__OF alone */
        mirt__attrs_data data;
        mirt__attrs_random random;
        struct { int64_t begin[MIRT_MAX_RANK]; } move; /* of a slice, a padding or a permutation */
        struct { int axis; } axis;
        struct { int64_t depth; } one_hot;
        mirt__attrs_reduce reduce;
        mirt__attrs_matmul matmul;
        mirt__attrs_window window;
        mirt__attrs_resize resize;
        mirt__attrs_norm norm;
        struct {
            mirt_loss_options how; /* with defaults filled in */
            bool scaled; /* a weight of the loss: times the scale that keeps float16 gradients in range */
        } loss;
    } own;
} mirt__attrs;

/* The fields of a family in `attrs`, or NULL where it is of another one. */
#define MIRT__IF_OF(attrs, name) ((attrs)->family == MIRT__FAMILY_##name ? &(attrs)->own.name : NULL)
/* Of `attrs` that must be of that family: in tests and for debuggers others are at NULL. */
#if defined(MIRRORTRAIN_DEBUG) || defined(MIRRORTRAIN_SPLIT_BUILD)
#define MIRT__OF MIRT__IF_OF
#else
#define MIRT__OF(attrs, name) (&(attrs)->own.name)
#endif

/* Attributes that files may hold, each with its MIRT__FIELD_... (nn/config.h) and its family. */
#define MIRT__SAVED_ATTR_LIST(X) \
    X(kind, INT, plain) X(dtype, DTYPE, plain) X(shape, DIMS, plain) X(transpose_a, BOOL, matmul) \
    X(transpose_b, BOOL, matmul) X(axes, INT, reduce) X(keepdims, BOOL, reduce) X(scale, LIMIT, plain) \
    X(offset, LIMIT, plain) X(depth, INT64, one_hot) X(axis, SIGNED, axis) X(begin, AXES, move)
enum {
#define MIRT__SAVED_ATTR_NUMBER(name, kind, family) MIRT__NUMBER_OF_##name,
    MIRT__SAVED_ATTR_LIST(MIRT__SAVED_ATTR_NUMBER) MIRT__NUMBER_OF_data, MIRT__NUMBER_OF_user_op
#undef MIRT__SAVED_ATTR_NUMBER
};
typedef enum mirt__saved_attr {
#define MIRT__SAVED_ATTR_BIT(name, kind, family) MIRT__SAVES_##name = 1 << MIRT__NUMBER_OF_##name,
    MIRT__SAVED_ATTR_LIST(MIRT__SAVED_ATTR_BIT)
#undef MIRT__SAVED_ATTR_BIT
    MIRT__SAVES_data = 1 << MIRT__NUMBER_OF_data, /* the bytes of a constant or of a custom op's config */
    MIRT__SAVES_user_op = 1 << MIRT__NUMBER_OF_user_op
} mirt__saved_attr;

/* How a model's nodes become those of a program. */
typedef struct mirt__mode {
    bool training;
    bool (*frozen)(const void *arg, int variable);
    const void *arg;
} mirt__mode;

/* Where a tensor's bytes live. */
typedef enum mirt__space {
    MIRT__SPACE_NONE,
    MIRT__SPACE_ARENA,
    MIRT__SPACE_REPLICA,
    MIRT__SPACE_WEIGHT,
    MIRT__SPACE_GRADIENT,
    MIRT__SPACE_STATE,
    MIRT__SPACE_IO
} mirt__space;

/* How a tensor depends on the rows of a replica. */
typedef enum mirt__extent {
    MIRT__EXTENT_NONE, /* not at all: computed from weights, constants and values equal on all replicas */
    MIRT__EXTENT_SUM,  /* a sum over rows: the sum of the replicas' values is that of the global batch */
    MIRT__EXTENT_OTHER
} mirt__extent;

/* Of lazy operands, and of what is fused with them. */
typedef struct mirt__tiled_tensor {
    int first_reader;        /* its position */
    int x_readers;           /* convolutions that can read it lazily as their image, */
    int dy_readers;          /* and as that image's gradient; */
    int64_t again;           /* they compute an element so often */
    bool held;               /* convolutions of the backward pass read it, and it is of the forward pass */
    mirt_tensor *input_grad; /* the gradient of a convolution's or normalization's input made from it, or NULL */
} mirt__tiled_tensor;

/* half.c */
typedef struct mirt__half_tensor {
    bool possible;     /* it can be stored in 16 bits */
    int readers;       /* those that can read it so, */
    int profits;       /* and of which a copy so is worth it */
    mirt_tensor *cast; /* its copy in 16 bits, or NULL */
} mirt__half_tensor;

/* storage.c */
typedef struct mirt__stored_tensor {
    int first_backward, last_backward; /* positions of the backward nodes that read it; none: the last is -1 */
    bool plain;         /* only nodes that run read its bytes */
    mirt_tensor *again; /* computed a second time, or NULL */
} mirt__stored_tensor;

/* What a pass over a graph stores in each tensor while it runs; a pass sets its member before it reads it. */
typedef union mirt__tensor_pass {
    mirt_tensor *copy;   /* mirt__graph_copy: the tensor in the target graph */
    mirt__extent extent; /* how it depends on rows */
    int index;           /* saving: of its node */
    mirt__tiled_tensor tiled;
    mirt__half_tensor half;
    mirt__stored_tensor stored;
} mirt__tensor_pass;

struct mirt_tensor {
    mirt__node *node;
    int slot;
    mirt_dtype dtype;
    mirt_shape shape;
    bool needs_grad;
    bool lazy;         /* never stored: its readers compute it from its node's inputs while they read */
    int lazy_readers;  /* if all its readers can do so: how many there are, otherwise 0; */
    int64_t lazy_again; /* and how often they compute an element */
    bool repeatable;   /* its node could run once more in the backward pass */
    mirt_tensor *grad; /* recorded by mirt__gradients */
    int uses;          /* counted by mirt__graph_count_uses */
    /* Set by the plan: */
    mirt__space space;
    size_t offset;       /* bytes into the space, unless it is MIRT__SPACE_IO: */
    int port;            /* the number of the program's port */
    int first, last;     /* positions in the program between which it is alive */
    mirt_tensor *reuses; /* a tensor that dies where this one begins, and whose bytes it takes over, or NULL */
    mirt__tensor_pass pass;
};

struct mirt__node {
    mirt__op_id id;
    const mirt__op *op;
    mirt__attrs a;
    int num_in, num_out;
    mirt_tensor *in[MIRT__MAX_FUSED_IN];
    mirt_tensor *out[MIRT__MAX_OUT];
    int position; /* in the graph, while it is rewritten */
    const char *name; /* of the layer that recorded it, or NULL */
    mirt__graph *graph;
    bool live;
    bool backward; /* of a gradient */
    bool of_model; /* of a function: copied from a model, or in the gradient of such a node; the loss is not */
    const mirt__node *repeats; /* of the forward pass, whose output it computes once more, or NULL */
    bool steady;   /* determined by inputs and frozen weights row by row, while features are looked for */
};

/* A variable's new value, to be written when the step is over. */
typedef struct mirt__assignment {
    int variable;
    mirt_tensor *value;
    mirt_aggregation aggregation; /* of the replicas' values */
    double momentum;              /* above 0: the variable keeps so much of itself, and takes the rest of the value */
} mirt__assignment;

struct mirt__graph {
    const struct mirt__op_set *ops;
    mirt__pool pool;
    mirt__node **node; /* in recording order, which is an order of execution */
    int count, capacity;
    const char *scope; /* name of the layer being recorded */
    bool backward;     /* gradients are being recorded */
    bool of_model;     /* a model's nodes are being copied, or their gradients recorded */
    mirt_status status; /* the first error */
    char error[512];
    mirt_model *model;       /* whose graph it is, or NULL */
    void (*hold)(mirt_model *model);   /* around user code while recording: mirt__hold */
    void (*let_go)(mirt_model *model); /* and mirt__let_go of the model or of the root */
    mirt_function *function; /* whose program's graph it is, or NULL */
    uint64_t serial;         /* of the graphs of a strategy: tells them apart */
    mirt_model *root;        /* of a function: whose weight block its variables lie in */
    const mirt__mode *mode;  /* of a function: how models are lowered into it */
    mirt__assignment *assignment;
    int num_assignments, assignment_capacity;
    mirt_tensor **term;      /* added to the loss: regularizers and the like */
    int num_terms, term_capacity;
};

/* What recording needs of the ops, which are a higher module: ops/table.c fills it. */
typedef struct mirt__op_set {
    const mirt__op *(*get)(mirt__op_id id);
    const char *(*name)(mirt__op_id id, const mirt__attrs *attrs); /* in messages */
    mirt_tensor *(*add)(mirt_tensor *a, mirt_tensor *b);           /* of two gradients of one tensor */
} mirt__op_set;

typedef struct mirt__call mirt__call;

/* What one replica's replay of a step is told at run time. */
typedef struct mirt__step_info {
    uint64_t seed;
    int64_t step;
    int64_t first_row;   /* of this replica in the global batch */
    int64_t global_rows; /* of that batch */
    int replica;
    double loss_scale;   /* the weight of one sample's loss */
    double gradient_scale; /* of weights that are `scaled` */
    const double *valid_weight; /* by field: its labels over those that are not ignored; NULL: none are */
    const char **failed; /* takes the name of a node whose user code failed, */
    int *failed_code;    /* and this its code */
    double *clock;       /* NULL, or takes the seconds each node runs, added up */
    void (*look)(void *user, const mirt__call *call, int node); /* NULL, or told of every node that has run */
    void *look_user;
    mirt__device_timeline *timeline;    /* NULL, or told where the replay is */
} mirt__step_info;

struct mirt__call {
    const mirt__node *node;
    const mirt__kernels *kernels;
    const mirt__step_info *run;
    const struct mirt__bases *bases; /* where lazy inputs' own inputs are found */
    mirt__where where;
    int64_t rows;
    void *in[MIRT__MAX_FUSED_IN]; /* NULL for lazy ones */
    void *out[MIRT__MAX_OUT]; /* NULL for an optional output nobody reads */
};

typedef struct mirt__workspace {
    size_t scratch; /* bytes per thread */
    size_t shared;  /* bytes per call */
} mirt__workspace;

/* What a convolution computes when it reads a tensor that is not stored. */
typedef enum mirt__lazy {
    MIRT__LAZY_NONE, /* nothing: the tensor is always stored */
    MIRT__LAZY_X,    /* a normalized image */
    MIRT__LAZY_GATE, /* an image, lazy or not, times one number per channel */
    MIRT__LAZY_DY    /* the gradient of a normalization's input */
} mirt__lazy;

/* What a node's kernel can do in the same pass. fuse.c: */
enum {
    MIRT__TAKES_READER = 1 << 0,     /* convert and scale input 0 while reading it */
    MIRT__TAKES_BIAS = 1 << 1,       /* add a bias to the output */
    MIRT__TAKES_ADDEND = 1 << 2,     /* add a tensor of the output's shape */
    MIRT__TAKES_ACTIVATION = 1 << 3, /* apply an activation last */
    MIRT__TAKES_MASK = 1 << 4,       /* multiply by the slope of an activation */
    /* tiled_reads.c, where `tiled_reads` allows it: */
    MIRT__TAKES_PADDING = 1 << 5,    /* pad the input with zeros */
    MIRT__TAKES_SLICE = 1 << 6,      /* leave out the gradient of such zeros */
    MIRT__TAKES_GRADIENT = 1 << 7,   /* add another gradient of the same tensor */
    MIRT__TAKES_NORM = 1 << 8,       /* normalize the output by constants, and add a tensor */
    MIRT__TAKES_MOMENTS = 1 << 9,    /* output the mean and variance per channel too */
    MIRT__TAKES_MEANS = 1 << 10,     /* output the mean of each image too */
    MIRT__TAKES_NORM_SUMS = 1 << 11  /* output the two sums of a normalization's gradient too */
};

#define MIRT__INPUT(k) (1u << (k))
#define MIRT__OUTPUT(k) (1u << (k))
#define MIRT__INPUTS_ALL 0xffffu
#define MIRT__INPUT_RESIDUAL (1u << 31) /* the last input of a node with a.residual */

/* One row of the op table: functions and traits. Defaults are safe: a new op works before any graph pass knows it. */
struct mirt__op {
    const char *name;
    mirt__family family;
    /* Checks inputs and attributes, declares the outputs by mirt__declare; false with the error set. */
    bool (*shape)(mirt__node *node);
    /* Records gradients: dx[i] for every input with needs_grad, given dy[i] (NULL: zero); an error marks the graph.
       NULL: not differentiable. */
    void (*gradient)(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx);
    void (*run)(const mirt__call *call); /* NULL: nothing runs (leaves, aliases) */
    void (*workspace)(const mirt__node *node, int64_t rows, mirt__workspace *out); /* NULL: none */
    double (*macs)(const mirt__node *node, int64_t rows); /* multiply-accumulates; NULL: none to speak of */
    /* What a node of a model is in a program: records it there with the inputs `in`, returns its output.
       NULL: the same node. */
    mirt_tensor *(*lower)(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in, const mirt__mode *mode);

    /* What it computes. */
    mirt__space space;   /* leaves: where the bytes of an input or a variable are stored; others: NONE */
    bool user_code;      /* calls user code, which runs only on CPUs */
    bool meets;          /* replicas exchange values: the program is cut after this node */
    bool reduces, updates; /* a bucket of gradients, once per device and step: appended by mirroring */
    bool row_wise;       /* deterministic; each row of an output depends only on that row of the inputs */
    bool stops_gradient;
    bool keeps_range;    /* the output stays within the range of values of input 0 */
    bool multiplies;     /* input 0 by weights, which are input 1 */
    bool weighted_sum;   /* the output is an unbounded sum of weighted inputs: no activation has been applied */
    /* Lowered ops: whether the op is row_wise in training too. NULL: never. */
    bool (*steady)(const mirt__node *node, const mirt__mode *mode);
    /* How an output without a rows axis depends on a replica's rows; `in` says so of the first two inputs. Called for
       leaves and where an input depends on rows. NULL: MIRT__EXTENT_NONE for leaves, MIRT__EXTENT_OTHER for others. */
    mirt__extent (*extent)(const mirt__node *node, const mirt__extent in[2]);

    /* Memory. Sets of inputs and outputs are bits: MIRT__INPUT(0) | MIRT__INPUT(2). */
    bool alias;                /* output 0 has the bytes of input 0 */
    unsigned optional_outputs; /* may be NULL in a call */
    unsigned overwrites;       /* inputs that output 0 may replace in place, given equal shape and dtype */
    unsigned shape_only;       /* inputs of which only the shape is read */

    /* Fusion. */
    unsigned takes;      /* MIRT__TAKES_...: what its kernel can do in the same pass */
    bool slope_of_input; /* its gradient computes the slope of a fused activation from the input */
    mirt__lazy lazy;     /* how readers can compute its output, so that it need not be stored */
    /* Whether its kernel implements what tiled_reads.c fuses; NULL: never. */
    bool (*tiled_reads)(const mirt__node *node);
    unsigned lazy_x, lazy_dy; /* with tiled_reads: inputs that may be lazy, read as an image or as its gradient */

    /* Images stored in 16 bits (half.c). */
    bool (*half)(const mirt__node *node); /* whether its kernel supports them; NULL: never */
    unsigned half_in;                     /* with half: inputs that may be 16-bit images */
    bool half_out;                        /* with half: output 0 may be one */
    bool half_elements;                   /* inputs and output may be where the kernels have `fused_elements` */
    bool half_copied;                     /* reads input 0 several times: a 16-bit copy pays off */
    bool (*half_products)(const mirt__node *node); /* whether it multiplies 16-bit numbers; NULL: never */
    /* Stores in `tied` the tensors that must have the same dtype, and returns their number. NULL: none. */
    int (*half_tied)(const mirt__node *node, mirt_tensor **tied);

    /* Model files. */
    bool saved;           /* files may hold it: public functions record it */
    int min_in, max_in;   /* number of inputs */
    unsigned saved_attrs; /* MIRT__SAVES_...: the attributes it reads */
    /* Whether inputs and attributes match, as far as min_in, max_in and the shape rule do not check. NULL: they do. */
    bool (*fits)(const mirt__attrs *attrs, mirt_tensor *const *in, int num_in);
};

/* A row of the table: MIRT__OP_ROW(NAME, SHAPE, RUN, MIRT__SET(FIELD, VALUE) ...), where MIRT__IS(FIELD) sets true.
   Other fields are NULL, false or 0, the safe choice. Both languages initialize rows at compile time: C by designated
   initializers, which C++17 lacks. */
#ifdef __cplusplus
#define MIRT__SET(field, value) row.field = value;
#define MIRT__OP_ROW(op, shape_rule, runs, fields) \
    MIRT__CONSTANT mirt__op mirt__op_##op = [] { \
        mirt__op row = mirt__op(); \
        MIRT__OP_FIELDS(op, shape_rule, runs) fields return row; \
    }();
#else
#define MIRT__SET(field, value) .field = value,
#define MIRT__OP_ROW(op, shape_rule, runs, fields) \
    MIRT__CONSTANT mirt__op mirt__op_##op = {MIRT__OP_FIELDS(op, shape_rule, runs) fields};
#endif
#define MIRT__OP_FIELDS(op, shape_rule, runs) \
    MIRT__SET(name, #op) MIRT__SET(family, (mirt__family)MIRT__FAMILY_OF_##op) \
    MIRT__SET(shape, shape_rule) MIRT__SET(run, runs)
#define MIRT__IS(field) MIRT__SET(field, true)
/* Files may hold it: its number of inputs, and MIRT__SAVES_... */
#define MIRT__SAVED(least, most, attrs) \
    MIRT__IS(saved) MIRT__SET(min_in, least) MIRT__SET(max_in, most) MIRT__SET(saved_attrs, attrs)
/* What of a row only training reads, and the row of an op that only training records: predict-only programs have
   neither. */
#ifdef MIRRORTRAIN_NO_TRAIN
#define MIRT__SET_GRADIENT(function)
#define MIRT__SET_EXTENT(function)
#define MIRT__SET_MACS(function)
#define MIRT__TRAINING_ROW(op, shape_rule, runs, fields)
#else
#define MIRT__SET_GRADIENT(function) MIRT__SET(gradient, function)
#define MIRT__SET_EXTENT(function) MIRT__SET(extent, function)
#define MIRT__SET_MACS(function) MIRT__SET(macs, function)
#define MIRT__TRAINING_ROW MIRT__OP_ROW
#endif

MIRT__LIB void mirt__graph_init(mirt__graph *graph, mirt_model *model, const mirt__op_set *ops);
MIRT__LIB void mirt__graph_free(mirt__graph *graph);
/* Marks the graph with the current error; later recordings return NULL. */
MIRT__LIB void mirt__graph_poison(mirt__graph *graph);
/* Records a node; returns output 0, or NULL with the error set and the graph marked. */
MIRT__LIB mirt_tensor *mirt__record(mirt__graph *graph, mirt__op_id id, const mirt__attrs *attrs,
                                    mirt_tensor *const *in, int num_in);
/* From a shape rule: adds the next output of `node`. */
MIRT__LIB bool mirt__declare(mirt__node *node, mirt_dtype dtype, const mirt_shape *shape);
/* Copies nodes of a model's graph into another graph. */
typedef struct mirt__copying {
    const mirt__graph *source;
    const mirt_tensor *const *replaced; /* tensors of source (its inputs) ... */
    mirt_tensor *const *replacement;    /* ... and what stands for them in the target */
    int num_replaced;
    int first_variable;    /* added to the variables' indices */
    const char *prefix;    /* of the nodes' names, or NULL; mixed into the keys of random streams, as is */
    uint64_t salt;         /* 0: none */
    mirt_training training; /* marks the copies, unless MIRT_TRAINING_AUTO */
    const mirt__mode *mode; /* NULL: copies as they are; otherwise lowers */
    /* What stands for a node of user code: itself where this is NULL, or returns NULL without an error. */
    mirt_tensor *(*compose)(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in);
} mirt__copying;
/* The `count` tensors of `keep` (NULL allowed) are replaced by their copies; only what they depend on is copied. */
MIRT__LIB bool mirt__graph_copy(mirt__graph *graph, const mirt__copying *copying, mirt_tensor **keep, int count);
/* What a variable shall become so far, or NULL. */
MIRT__TRAINING_LIB mirt__assignment *mirt__graph_assignment(const mirt__graph *graph, int variable);
/* Variable `variable` shall have `value` after the step, or go on to it (see mirt__assignment), whatever it was to
 * become before. */
MIRT__TRAINING_LIB bool mirt__graph_assign(mirt__graph *graph, int variable, mirt_tensor *value,
                                           mirt_aggregation aggregation, double momentum);
/* A term of the loss: a number that depends on weights alone, or a value a sample. */
MIRT__LIB bool mirt__graph_term_add(mirt__graph *graph, mirt_tensor *term);
/* The graph's node of a variable, or NULL. */
MIRT__LIB mirt_tensor *mirt__graph_variable(const mirt__graph *graph, int variable);
/* Counts readers of every tensor, `keep` included. */
MIRT__LIB void mirt__graph_count_uses(mirt__graph *graph, mirt_tensor *const *keep, int count);
/* Nodes from number `count` on go to the places that their `position` says, before the node there. */
MIRT__TRAINING_LIB void mirt__graph_place(mirt__graph *graph, int count);
/* Removes nodes that none of `keep` depends on. */
MIRT__LIB void mirt__graph_prune(mirt__graph *graph, mirt_tensor *const *keep, int count);
/* Sets needs_grad everywhere: trainable variables and what is computed from them. `trainable` is
   asked per variable index. */
MIRT__TRAINING_LIB void mirt__graph_mark_gradients(mirt__graph *graph, bool (*trainable)(const void *arg, int variable),
                                          const void *arg);
/* x, and what is computed from it, needs a gradient too. */
MIRT__LIB void mirt__graph_need_gradient(mirt__graph *graph, mirt_tensor *x);
/* Records the gradient of the sum of all y[i] * dy[i]; afterwards x->grad is the gradient of x, or NULL
   when no y depends on it. */
MIRT__LIB bool mirt__gradients(mirt__graph *graph, mirt_tensor *const *y, mirt_tensor *const *dy, int count);

MIRT__LIB bool mirt__is_input(const mirt__node *node);
MIRT__LIB bool mirt__is_variable(const mirt__node *node);
/* Whether the node's kernel implements what tiled_reads.c fuses. */
MIRT__LIB bool mirt__by_tiles(const mirt__node *node);
MIRT__LIB bool mirt__is_batched(const mirt_shape *shape);
/* Elements at `rows` rows. */
MIRT__LIB int64_t mirt__elements(const mirt_tensor *tensor, int64_t rows);
MIRT__LIB size_t mirt__tensor_bytes(const mirt_tensor *tensor, int64_t rows);

#endif
