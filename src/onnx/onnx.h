#ifndef MIRT__ONNX_H
#define MIRT__ONNX_H
/* Writes models as ONNX files (opset 17): the graph of a prediction, node by node. */

#include "../formats/json.h"
#include "../formats/protobuf.h"
#include "../nn/model.h"
#include "../ops/ops.h"

/* The order of a tensor's axes. ONNX convolves images whose channels come first. */
typedef enum mirt__onnx_order {
    MIRT__ONNX_OWN,    /* as in the model: (rows, height, width, channels) */
    MIRT__ONNX_FIRST,  /* of rank 4: (rows, channels, height, width) */
    MIRT__ONNX_KERNEL, /* of a kernel (height, width, in, out): (out, in, height, width) */
    MIRT__ONNX_ORDERS
} mirt__onnx_order;

/* A tensor of the graph. */
typedef struct mirt__onnx_value {
    const char *name[MIRT__ONNX_ORDERS]; /* NULL: the file does not have it in that order yet */
    const mirt__node *reader;            /* the only one, or NULL */
    const char *output;                  /* its name as an output of the model, or NULL */
    bool taken;                          /* the node that makes it has become a part of another */
} mirt__onnx_value;

typedef struct mirt__onnx {
    mirt_model *model;
    mirt_onnx_desc desc;
    mirt__graph lowered, graph; /* for prediction; and with custom ops composed, whose pool has the names */
    mirt_tensor *input[MIRT_MAX_INPUTS], *output[MIRT_MAX_OUTPUTS];
    const char *end[MIRT_MAX_INPUTS + MIRT_MAX_OUTPUTS]; /* names of the model's inputs, then of its outputs */
    int num_ends;            /* so far */
    mirt__onnx_value *value; /* by pass.index of a tensor */
    bool *taken;             /* by variable: its name is that of an initializer */
    mirt__text nodes, initializers, ends;
    const mirt__node *node;  /* the one that is being written */
    int numbers;             /* of names so far */
} mirt__onnx;

/* --- messages.c --- */

/* Whether a weight, an input or an output has the name. */
MIRT__LIB bool mirt__onnx_taken(const mirt__onnx *x, const char *name);
/* A name that no other value has, after the node's layer. NULL, here and below, without memory: then nothing that is
   written later counts. */
MIRT__LIB const char *mirt__onnx_fresh(mirt__onnx *x);
/* Writes a node with one output, and attributes between the two calls. An input that is left out is "". */
MIRT__LIB size_t mirt__onnx_begin(mirt__onnx *x, const char *op, const char *const *in, int num_in, const char *out);
MIRT__LIB void mirt__onnx_end(mirt__onnx *x, size_t begin);
MIRT__LIB void mirt__onnx_int(mirt__onnx *x, const char *name, int64_t value);
MIRT__LIB void mirt__onnx_ints(mirt__onnx *x, const char *name, const int64_t *value, int count);
MIRT__LIB void mirt__onnx_float(mirt__onnx *x, const char *name, double value);
MIRT__LIB void mirt__onnx_text(mirt__onnx *x, const char *name, const char *value);
/* A node without attributes; b and c may be NULL. Its output is called `out`, or, if NULL, by a fresh name, which it
   returns. */
MIRT__LIB const char *mirt__onnx_node(mirt__onnx *x, const char *op, const char *out, const char *a, const char *b,
                                      const char *c);
/* A cast; `out` as above. */
MIRT__LIB const char *mirt__onnx_convert(mirt__onnx *x, const char *in, mirt_dtype dtype, const char *out);
/* Writes initializers and returns their name: one of `dtype`, a number of rank 0, a list of int64. */
MIRT__LIB const char *mirt__onnx_tensor(mirt__onnx *x, const char *name, mirt_dtype dtype, const mirt_shape *shape,
                                        const void *data);
/* One of a type that tensors here do not have. */
typedef enum mirt__onnx_type { MIRT__ONNX_INT64 = 7, MIRT__ONNX_DOUBLE = 11 } mirt__onnx_type;
MIRT__LIB const char *mirt__onnx_typed(mirt__onnx *x, mirt__onnx_type type, const mirt_shape *shape, const void *data,
                                       size_t bytes);
MIRT__LIB const char *mirt__onnx_number(mirt__onnx *x, double value);
MIRT__LIB const char *mirt__onnx_list(mirt__onnx *x, const int64_t *value, int count);
/* Writes an input (field 11 of a graph) or output (12) of the model. */
MIRT__LIB void mirt__onnx_write_end(mirt__onnx *x, unsigned field, const char *name, const mirt_tensor *t,
                                    mirt__onnx_order order);

/* --- values.c --- */

MIRT__LIB mirt__onnx_value *mirt__onnx_value_of(const mirt__onnx *x, const mirt_tensor *t);
/* The name of a tensor whose axes are in that order; writes what makes it so. NULL: an error. */
MIRT__LIB const char *mirt__onnx_get(mirt__onnx *x, mirt_tensor *t, mirt__onnx_order order);
/* Names a tensor that the next nodes make. */
MIRT__LIB const char *mirt__onnx_set(mirt__onnx *x, const mirt_tensor *t, mirt__onnx_order order);
/* An order in which the file has the tensor, FIRST rather than OWN. */
MIRT__LIB mirt__onnx_order mirt__onnx_order_of(const mirt__onnx *x, const mirt_tensor *t);
/* The same for something that is broadcast against tensors of rank `rank` in that order. */
MIRT__LIB const char *mirt__onnx_operand(mirt__onnx *x, mirt_tensor *t, int rank, mirt__onnx_order order);
/* Where axis `axis` of a tensor is in that order. */
MIRT__LIB int mirt__onnx_axis(mirt__onnx_order order, int axis);
MIRT__LIB mirt_shape mirt__onnx_shape(const mirt_shape *shape, mirt__onnx_order order);
/* The order in which an output or input of the model is. */
MIRT__LIB mirt__onnx_order mirt__onnx_end_order(const mirt__onnx *x, const mirt_tensor *t);
/* The variable or constant of float32 whose values a tensor has, or NULL. */
MIRT__LIB const mirt__node *mirt__onnx_leaf(const mirt_tensor *t);
/* These values, to be freed. */
MIRT__LIB float *mirt__onnx_numbers(mirt__onnx *x, const mirt_tensor *t);
/* Values of a tensor of rank 4 in another order, to be freed. */
MIRT__LIB float *mirt__onnx_moved(mirt__onnx *x, const mirt_shape *from, const float *data, mirt__onnx_order order);
/* An initializer of float32 after the leaf `like`, whose name it takes if that is free. */
MIRT__LIB const char *mirt__onnx_weight(mirt__onnx *x, const mirt__node *like, const mirt_shape *shape,
                                        const float *data);

/* --- products.c, elements.c: what op a node becomes; false: an error --- */

MIRT__LIB bool mirt__onnx_conv(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_conv_transpose(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_matmul(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_pool(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_normalize(mirt__onnx *x, const mirt__node *node);
/* Statistics that no layer normalization computes itself. */
MIRT__LIB bool mirt__onnx_stats(mirt__onnx *x, const mirt__node *node);

MIRT__LIB bool mirt__onnx_unary(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_binary(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_logic(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_softmax(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_reduce(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_scan(mirt__onnx *x, const mirt__node *node);

/* --- moves.c --- */

MIRT__LIB bool mirt__onnx_reshape(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_stop_gradient(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_transpose(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_concat(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_slice(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_pad(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_gather(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_broadcast(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_cast(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_one_hot(mirt__onnx *x, const mirt__node *node);
MIRT__LIB bool mirt__onnx_resize(mirt__onnx *x, const mirt__node *node);

/* The node cannot be written; false. */
MIRT__LIB bool mirt__onnx_refuse(const mirt__onnx *x, const mirt__node *node);

#endif
