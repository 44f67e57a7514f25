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

/* Every op: a row here, a file in src/ops, a row in tests/op_cases.h. Node number NAME is
   MIRT__OP_NAME, its definition mirt__op_NAME. */
#define MIRT__OP_LIST(X) \
    X(input) X(variable) X(loss_weight) \
    X(constant) X(logic) X(stop_gradient) X(scan) X(log_softmax) X(log_softmax_grad) \
    X(transpose) X(concat) X(slice) X(pad) X(gather) X(gather_grad) \
    X(unary) X(binary) X(broadcast) X(bias_add) X(reduce) X(reduce_max_grad) \
    X(reshape) X(cast) X(one_hot) \
    X(matmul) X(conv2d) X(conv2d_input_grad) X(conv2d_weight_grad) X(conv2d_pool) X(conv2d_pool_weight_grad) \
    X(max_pool2d) X(max_pool2d_grad) X(average_pool2d) X(average_pool2d_grad) \
    X(user) X(user_grad) \
    X(softmax) X(softmax_grad) X(loss) X(loss_grad) X(accuracy) X(dropout) X(dropout_mask) X(augment) \
    X(conv2d_transpose) X(resize2d) X(resize2d_grad) \
    X(norm_stats) X(normalize) X(norm_grad_sums) X(norm_grad_input) X(batch_norm) \
    X(all_reduce)
typedef enum mirt__op_id {
#define MIRT__OP_ENUM(name) MIRT__OP_##name,
    MIRT__OP_LIST(MIRT__OP_ENUM)
#undef MIRT__OP_ENUM
    MIRT__OP_COUNT
} mirt__op_id;

/* What an op needs to know beside its inputs; each op's file says which fields it reads. */
typedef struct mirt__attrs {
    int index;             /* of an input or variable */
    int kind;              /* which of a family: mirt__unary_kind, mirt__binary_kind, ... */
    mirt_dtype dtype;
    mirt_shape shape;
    int kernel[2], strides[2], dilation[2], groups;
    mirt_padding padding;
    bool transpose_a, transpose_b;
    unsigned axes;
    bool keepdims;
    bool affine;           /* the first input is read as x * scale + offset */
    float scale, offset;
    float rate;
    int64_t depth;
    bool bias;             /* fused: the input after the operands is a bias */
    mirt_activation_kind activation;      /* fused */
    mirt_activation_kind mask_activation; /* fused: times its slope; the last input is its output (normalization: known from x) */
    bool column_sum;       /* fused: a second output, the bias gradient */
    bool from_logits;
    uint64_t key;          /* of a random stream */
    int axis;
    int64_t begin[MIRT_MAX_RANK]; /* of a slice, a padding or a permutation */
    const void *data;      /* of a constant, in the graph's pool */
    size_t bytes;          /* of data */
    int last_axes;         /* normalization is over the last so many axes; 0: over all axes but the last */
    bool gamma, beta;      /* normalization: which of these are inputs, after the statistics */
    bool residual;         /* an input is added before the activation; normalization: the last one */
    bool batch_statistics; /* normalization: gradients flow through the statistics */
    bool synchronized;     /* normalization: the statistics are of the global batch */
    float epsilon;
    double momentum;
    const mirt_op_class *user_op; /* owned by the strategy */
    mirt_training training; /* how a model called as a layer was to be run */
    const mirt__node *of;  /* a gradient: of which node */
    /* fused by strips.c: */
    bool padded;           /* a convolution has `pad` zeros before its input's axes and `size` outputs; padding is not read */
    int64_t pad[2], size[2];
    bool norm;             /* the output is normalized */
    mirt__column_sums sums; /* the next two outputs are column sums of the first; of images the next one */
    bool slope;            /* the output is a gradient of a normalization's output: */
    mirt_activation_kind slope_activation; /* times the slope of this */
    bool both;             /* an input gradient leaves the weight gradient too */
    bool half;             /* products of bfloat16 */
    bool scaled;           /* a weight of the loss: times the scale that keeps float16 gradients in range */
    bool regularizer;      /* the penalty of a weight: no term of the loss where that weight is not trained */
    bool winograd;         /* a convolution or gradient of its input may be taken by F(2x2, 3x3) */
} mirt__attrs;

/* How a model's nodes become those of a program. */
typedef struct mirt__mode {
    bool training;
    bool (*frozen)(const void *arg, int variable);
    const void *arg;
} mirt__mode;

/* Where a tensor's bytes live. */
typedef enum mirt__space {
    MIRT__SPACE_NONE, MIRT__SPACE_ARENA, MIRT__SPACE_REPLICA, MIRT__SPACE_WEIGHT, MIRT__SPACE_GRADIENT, MIRT__SPACE_STATE, MIRT__SPACE_IO
} mirt__space;

struct mirt_tensor {
    mirt__node *node;
    int slot;
    mirt_dtype dtype;
    mirt_shape shape;
    bool needs_grad;
    mirt_tensor *grad;  /* recorded by mirt__gradients */
    mirt_tensor *clone; /* while a graph is being copied */
    int uses;           /* counted by mirt__graph_count_uses */
    mirt__space space;  /* set by the plan */
    size_t offset;      /* bytes into the space; MIRT__SPACE_IO: the slot */
    int first, last;    /* positions in the program between which it is alive */
    bool lazy;          /* never stored: its readers compute it from its node's inputs, strip by strip */
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
};

/* A variable's new value, to be written when the step is over. */
typedef struct mirt__assignment {
    int variable;
    mirt_tensor *value;
    mirt_aggregation aggregation; /* of the replicas' values */
    double momentum;              /* above 0: the variable keeps so much of itself, and takes the rest of the value */
} mirt__assignment;

struct mirt__graph {
    mirt__pool pool;
    mirt__node **node; /* in recording order, which is an order of execution */
    int count, capacity;
    const char *scope; /* name of the layer being recorded */
    bool backward;     /* gradients are being recorded */
    mirt_status status; /* the first error */
    char error[512];
    mirt_model *model;       /* whose graph it is, or NULL */
    mirt_function *function; /* whose program's graph it is, or NULL */
    uint64_t serial;         /* of the graphs of a strategy: tells them apart */
    mirt_model *root;        /* of a function: whose weight block its variables lie in */
    const mirt__mode *mode;  /* of a function: how models are lowered into it */
    mirt__assignment *assignment;
    int num_assignments, assignment_capacity;
    mirt_tensor **term;      /* added to the loss: regularizers and the like */
    int num_terms, term_capacity;
};

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
    const char **failed; /* takes the name of a node whose user code failed, */
    int *failed_code;    /* and this its code */
    double *clock;       /* NULL, or takes the seconds each node runs, added up */
    void (*look)(void *user, const mirt__call *call, int node); /* NULL, or told of every node that has run */
    void *look_user;
    mirt__lane *lane;    /* NULL, or told where the replay is */
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

#define MIRT__OUTPUT(k) (1u << (k))

/* One row of the op table. */
struct mirt__op {
    const char *name;
    /* Checks inputs and attributes, declares the outputs by mirt__declare; false with the error set. */
    bool (*shape)(mirt__node *node);
    /* Records gradients: dx[i] for every input with needs_grad, given dy[i] (NULL: zero). NULL: not
       differentiable. */
    bool (*gradient)(mirt__node *node, mirt_tensor *const *dy, mirt_tensor **dx);
    void (*run)(const mirt__call *call); /* NULL: nothing runs (leaves, aliases) */
    void (*workspace)(const mirt__node *node, int64_t rows, mirt__workspace *out); /* NULL: none */
    double (*macs)(const mirt__node *node, int64_t rows); /* multiply-accumulates; NULL: none to speak of */
    bool alias; /* output 0 is the bytes of input 0 */
    unsigned optional_outputs; /* bits of outputs that may be NULL */
    /* What a node of a model is in a program: records it there with the inputs `in`, returns its output.
       NULL: the same node. */
    mirt_tensor *(*lower)(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in, const mirt__mode *mode);
};

/* A row of the table: MIRT__OP_ROW(NAME, MIRT__SET(FIELD, VALUE) ...). Fields it does not set are NULL, false or 0, the
   safe choice. Both languages initialize rows at compile time: C by designated initializers, which C++17 lacks. */
#ifdef __cplusplus
#define MIRT__SET(field, value) row.field = value;
#define MIRT__OP_ROW(op, fields) \
    MIRT__CONSTANT mirt__op mirt__op_##op = [] { mirt__op row = mirt__op(); row.name = #op; fields return row; }();
#else
#define MIRT__SET(field, value) .field = value,
#define MIRT__OP_ROW(op, fields) MIRT__CONSTANT mirt__op mirt__op_##op = {.name = #op, fields};
#endif

MIRT__LIB void mirt__graph_init(mirt__graph *graph, mirt_model *model);
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
} mirt__copying;
/* The `count` tensors of `keep` (NULL allowed) are replaced by their copies; only what they depend on is copied. */
MIRT__LIB bool mirt__graph_copy(mirt__graph *graph, const mirt__copying *copying, mirt_tensor **keep, int count);
/* What a variable shall become so far, or NULL. */
MIRT__LIB mirt__assignment *mirt__graph_assignment(const mirt__graph *graph, int variable);
/* Variable `variable` shall have `value` after the step, or go on to it (see mirt__assignment), whatever it was to become before. */
MIRT__LIB bool mirt__graph_assign(mirt__graph *graph, int variable, mirt_tensor *value, mirt_aggregation aggregation, double momentum);
/* A term of the loss: a number that depends on weights alone, or a value a sample. */
MIRT__LIB bool mirt__graph_term_add(mirt__graph *graph, mirt_tensor *term);
/* The graph's node of a variable, or NULL. */
MIRT__LIB mirt_tensor *mirt__graph_variable(const mirt__graph *graph, int variable);
/* Counts readers of every tensor, `keep` included. */
MIRT__LIB void mirt__graph_count_uses(mirt__graph *graph, mirt_tensor *const *keep, int count);
/* Removes nodes that none of `keep` depends on. */
MIRT__LIB void mirt__graph_prune(mirt__graph *graph, mirt_tensor *const *keep, int count);
/* Sets needs_grad everywhere: trainable variables and what is computed from them. `trainable` is
   asked per variable index. */
MIRT__LIB void mirt__graph_mark_gradients(mirt__graph *graph, bool (*trainable)(const void *arg, int variable), const void *arg);
/* x, and what is computed from it, needs a gradient too. */
MIRT__LIB void mirt__graph_need_gradient(mirt__graph *graph, mirt_tensor *x);
/* Records the gradient of the sum of all y[i] * dy[i]; afterwards x->grad is the gradient of x, or NULL
   when no y depends on it. */
MIRT__LIB bool mirt__gradients(mirt__graph *graph, mirt_tensor *const *y, mirt_tensor *const *dy, int count);

/* In nn/model.c, around calls of the user's code: the model and its strategy are not destroyed meanwhile, nor compiled
   anew, and its weights stay where they are. NULL is allowed: a graph may be of no model. */
MIRT__LIB void mirt__hold(mirt_model *model);
MIRT__LIB void mirt__let_go(mirt_model *model);

MIRT__LIB bool mirt__is_batched(const mirt_shape *shape);
/* Elements at `rows` rows. */
MIRT__LIB int64_t mirt__elements(const mirt_tensor *tensor, int64_t rows);
MIRT__LIB size_t mirt__tensor_bytes(const mirt_tensor *tensor, int64_t rows);

#endif
