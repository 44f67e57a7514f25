#ifndef MIRT__OPS_H
#define MIRT__OPS_H
/* The op table and the recorders that ops, layers and gradients share. One file an op family. */

#include "../graph/program.h"
#include "../kernels/augment.h"

/* A table that later files name: static in the single header, extern otherwise. */
#ifdef MIRRORTRAIN_SPLIT_BUILD
#define MIRT__TABLE const
#ifdef __cplusplus
#define MIRT__CONSTANT constexpr
#else
#define MIRT__CONSTANT const
#endif
#define MIRT__OP_EXTERN(name, family) extern const mirt__op mirt__op_##name;
MIRT__OP_LIST(MIRT__OP_EXTERN)
#undef MIRT__OP_EXTERN
#else
#define MIRT__TABLE static const
#ifdef __cplusplus
#define MIRT__CONSTANT static constexpr
#else
#define MIRT__CONSTANT static const
#endif
#endif

MIRT__LIB const mirt__op *mirt__op_get(mirt__op_id id);
/* For graphs. */
MIRT__LIB const mirt__op_set *mirt__ops(void);
/* The label of a kind that files may hold; NULL: there is no such kind, or gradients alone record it. Op without kinds:
   its name for kind 0. */
MIRT__LIB const char *mirt__kind_label(mirt__op_id id, int kind);
/* Attributes for a node of the op, all zero. */
MIRT__LIB mirt__attrs mirt__attrs_of(mirt__op_id id);
/* Records a node where its inputs are; NULL if one of them is NULL. */
MIRT__LIB mirt_tensor *mirt__apply(mirt__op_id id, const mirt__attrs *attrs, mirt_tensor *const *in, int num_in);
MIRT__LIB mirt_tensor *mirt__apply_two(mirt__op_id id, const mirt__attrs *attrs, mirt_tensor *a, mirt_tensor *b);
/* For rows of the op table: the output depends on rows as input 0 does. */
MIRT__TRAINING_LIB mirt__extent mirt__extent_kept(const mirt__node *node, const mirt__extent in[2]);
/* Shape rules: one output as the attributes say, or as input 0 is. */
MIRT__LIB bool mirt__shape_given(mirt__node *node);
MIRT__LIB bool mirt__shape_kept(mirt__node *node);
/* Whether a node of a model is lowered for training. */
MIRT__LIB bool mirt__in_training(const mirt__node *node, const mirt__mode *mode);
/* For predict-only programs, which cannot do what `action` says: NULL, with the error set. */
MIRT__LIB mirt_tensor *mirt__without_training(const char *action);

/* Leaves. input: `slot` is its place among the program's inputs; shape batched. */
MIRT__LIB mirt_tensor *mirt__input_op(mirt__graph *graph, int slot, mirt_dtype dtype, const mirt_shape *shape);
MIRT__LIB mirt_tensor *mirt__variable_op(mirt__graph *graph, int index, const mirt_shape *shape);
/* What a term of the loss weighs in this step. */
typedef enum mirt__weight_kind {
    MIRT__WEIGHT_SAMPLE, /* [rows]: each sample's share of the global batch */
    MIRT__WEIGHT_SHARE,  /* a number: the share of this replica's rows */
    MIRT__WEIGHT_ONCE,   /* a number: 1 on the first replica, 0 on the others */
    MIRT__WEIGHT_ONE,
    MIRT__WEIGHT_VALID   /* [rows]: all labels of the global batch over those that are not ignored */
} mirt__weight_kind;
MIRT__LIB mirt_tensor *mirt__loss_weight_op(mirt__graph *graph, mirt__weight_kind kind);
/* The one of VALID, for labels in a field of the batch. */
MIRT__LIB mirt_tensor *mirt__valid_weight_op(mirt__graph *graph, int field);

MIRT__LIB mirt_tensor *mirt__unary_op(mirt__unary_kind kind, mirt_tensor *x, float scale, float offset);
MIRT__LIB mirt_tensor *mirt__binary_op(mirt__binary_kind kind, mirt_tensor *a, mirt_tensor *b);
/* b is not read for MIRT__NOT. */
MIRT__LIB mirt_tensor *mirt__logic_op(mirt__logic_kind kind, mirt_tensor *a, mirt_tensor *b);
MIRT__LIB mirt_tensor *mirt__where_op(mirt_tensor *condition, mirt_tensor *a, mirt_tensor *b);
/* Gradients of where(condition, a, b), or of what chose so, in dx[0] and dx[1]. */
MIRT__LIB void mirt__where_gradient(mirt_tensor *condition, mirt_tensor *a, mirt_tensor *b, mirt_tensor *dy,
                                    mirt_tensor **dx);
/* A leaf with the values of `array`, copied. */
MIRT__LIB mirt_tensor *mirt__constant_op(mirt__graph *graph, mirt_array array);
MIRT__LIB mirt_tensor *mirt__scalar_op(mirt__graph *graph, float value);
/* The activation that a unary node computes; the fused one whose gradient a binary node is; MIRT_LINEAR for all others.
 */
MIRT__LIB mirt_activation_kind mirt__activation_of(const mirt__node *node);
MIRT__TRAINING_LIB mirt_activation_kind mirt__activation_grad_of(const mirt__node *node);
/* The activation node of `kind` on x; x itself for MIRT_LINEAR. */
MIRT__LIB mirt_tensor *mirt__activation_op(mirt_activation_kind kind, mirt_tensor *x);
/* dy times the derivative of a fused activation whose output is y; dy for MIRT_LINEAR. */
MIRT__LIB mirt_tensor *mirt__activation_grad_op(mirt_activation_kind kind, mirt_tensor *dy, mirt_tensor *y);
/* numpy's rule, with MIRT_ROWS equal to itself only; false with the error set. */
MIRT__LIB bool mirt__broadcast_shape(const mirt_shape *a, const mirt_shape *b, mirt_shape *out);
/* Element strides of `x` seen as `out`: 0 where it repeats. */
MIRT__LIB void mirt__broadcast_strides(const mirt_shape *x, const mirt_shape *out, int64_t stride[MIRT_MAX_RANK]);
/* Sums `dy` over the axes along which `x` was repeated. */
MIRT__LIB mirt_tensor *mirt__unbroadcast(mirt_tensor *dy, const mirt_tensor *x);
/* x (already of like's rank, 1 where it repeats) over like's shape; divided by the repeats if `mean`. */
MIRT__LIB mirt_tensor *mirt__broadcast_op(mirt_tensor *x, mirt_tensor *like, bool mean);
/* x + bias over the last axis. */
MIRT__LIB mirt_tensor *mirt__bias_add_op(mirt_tensor *x, mirt_tensor *bias);
/* `axes` taken as it is. */
MIRT__LIB mirt_tensor *mirt__reduce_op(mirt__reduce_kind kind, mirt_tensor *x, unsigned axes, bool keepdims);
/* `shape` in full, MIRT_ROWS first where x has it. */
MIRT__LIB mirt_tensor *mirt__reshape_op(mirt_tensor *x, const mirt_shape *shape);
MIRT__LIB mirt_tensor *mirt__matmul_op(mirt_tensor *a, mirt_tensor *b, bool transpose_a, bool transpose_b);
/* `a` holds strides, dilation, groups, padding. */
MIRT__LIB mirt_tensor *mirt__conv2d_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a);
/* kernel [height, width, filters / groups, channels of x]; also size: output_padding, 0: the default, -1: none. */
MIRT__LIB mirt_tensor *mirt__conv2d_transpose_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a);
/* kernel [height, width, channels of x, multiplier]; filter c * multiplier + j sees channel c alone. */
MIRT__LIB mirt_tensor *mirt__depthwise_conv2d_op(mirt_tensor *x, mirt_tensor *kernel, const mirt__attrs *a);
/* An image of another size; pixels lie at the centers of their squares, as TensorFlow. */
MIRT__LIB mirt_tensor *mirt__resize2d_op(mirt_tensor *x, int height, int width, bool bilinear);
/* Keras UpSampling2D: `size` times as high and wide. */
MIRT__LIB mirt_tensor *mirt__upsampling2d_op(mirt_tensor *x, const int size[2], bool bilinear);
/* `a` holds kernel (the window), strides, padding. */
MIRT__LIB mirt_tensor *mirt__max_pool2d_op(mirt_tensor *x, const mirt__attrs *a);
MIRT__LIB mirt_tensor *mirt__average_pool2d_op(mirt_tensor *x, const mirt__attrs *a);
/* What dropout makes of what it drops: zeros; of all, products with normal numbers around 1; selu's least value. */
typedef enum mirt__dropout_kind {
    MIRT__DROPOUT_ZEROS, MIRT__DROPOUT_GAUSSIAN, MIRT__DROPOUT_ALPHA
} mirt__dropout_kind;
/* The op dropout or gaussian_noise, whose rate is the standard deviation. `noise`, with the rows: x's shape, or 1 where
   one draw is for all elements along a dimension. NULL: a draw an element. */
MIRT__LIB mirt_tensor *mirt__random_op(mirt__op_id id, mirt_tensor *x, mirt__dropout_kind kind, float rate,
                                       uint64_t key, const mirt_shape *noise);
/* What dropout with a mask becomes in training; `a` holds kind, rate, key and the noise's shape. */
MIRT__LIB mirt_tensor *mirt__masked_op(mirt_tensor *x, const mirt__attrs *a);
/* x behind one more transform. Where x is another's output, of which nobody need know, the two are one list on what
 * that reads. */
MIRT__LIB mirt_tensor *mirt__augment_op(mirt_tensor *x, const mirt__transform *t);
/* The same of x itself, an output of that op that nothing reads yet, if images keep their size; false with the error
   set. */
MIRT__TRAINING_LIB bool mirt__augment_more(mirt_tensor *x, const mirt__transform *t);
/* A crop or resizing without chance: of the window, or of all of x where there is none. */
MIRT__LIB mirt_tensor *mirt__fit_op(mirt_tensor *x, const mirt__transform *t);
/* Whether a loss can compare predictions with labels, by `positions` along the last axis; false with the error set. */
MIRT__TRAINING_LIB bool mirt__labels_fit(const mirt_tensor *x, const mirt_tensor *labels, bool positions);
/* A loss that has a kernel, of each sample or along the last axis of each position: predictions' shape without that
   axis. Circle: (rows, 2), whose sum's softplus is the loss. */
MIRT__LIB mirt_tensor *mirt__loss_op(mirt_loss kind, const mirt_loss_options *how, mirt_tensor *x, mirt_tensor *labels);
MIRT__LIB mirt_tensor *mirt__accuracy_op(mirt__accuracy_kind kind, mirt_tensor *x, mirt_tensor *labels);

/* Normalization; `a` holds what the op reads (norm.c). in: x, mean, variance, [gamma], [beta]. */
/* Of an x of `shape`: the axes that gamma and beta have. */
MIRT__LIB mirt_shape mirt__norm_last(const mirt_shape *shape, int last_axes);
MIRT__LIB mirt_tensor *mirt__normalize_op(mirt_tensor *const *in, const mirt__attrs *a);
/* gamma and beta, in the shape of x's last a->last_axes axes, may be NULL. */
MIRT__LIB mirt_tensor *mirt__layer_norm_op(mirt_tensor *x, mirt_tensor *gamma, mirt_tensor *beta, const mirt__attrs *a);
/* A model's batch normalization: in is x, moving mean, moving variance, [gamma], [beta]. The node is
   never run: a program has one of the two below in its place, recorded with its inputs and
   attributes. In training `mean` and `variance` are the batch's, which the moving ones are to go on to. */
MIRT__LIB mirt_tensor *mirt__batch_norm_op(mirt_tensor *const *in, const mirt__attrs *a);
MIRT__TRAINING_LIB mirt_tensor *mirt__batch_norm_training(mirt_tensor *const *in, const mirt__attrs *a,
                                                          mirt_tensor **mean, mirt_tensor **variance);
MIRT__LIB mirt_tensor *mirt__batch_norm_inference(mirt_tensor *const *in, const mirt__attrs *a);

/* SUM adds over replicas, MEAN weighs them by their rows, MOMENTS takes a mean and a (biased)
   variance to those of all rows together. */
typedef enum mirt__all_reduce_kind {
    MIRT__ALL_REDUCE_SUM,
    MIRT__ALL_REDUCE_MEAN,
    MIRT__ALL_REDUCE_MOMENTS
} mirt__all_reduce_kind;
/* Replaces `count` <= MIRT__MAX_OUT tensors by what they are over all replicas; returns the first, or NULL. */
MIRT__LIB mirt_tensor *mirt__all_reduce_op(mirt_tensor **inout, int count, int kind);
/* all_reduce_bucket or update_bucket of bucket number `bucket`. */
MIRT__LIB void mirt__bucket_op(mirt__graph *graph, mirt__op_id id, int bucket);

/* Shared by convolution and pooling. check: the attributes alone; false with the error set. out: one
   spatial axis of output and the zeros before it, as TensorFlow; false when nothing comes out. */
MIRT__LIB bool mirt__window_check(const int kernel[2], const int strides[2], const int dilation[2],
                                  mirt_padding padding);
MIRT__LIB bool mirt__window_out(int64_t in, int kernel, int stride, int dilation, mirt_padding padding,
                                int64_t *out, int64_t *pad_before);
/* A dimension in a call with so many rows. */
MIRT__LIB int64_t mirt__dim_at(const mirt_shape *shape, int axis, int64_t rows);
/* A tensor's dtype to kernels that know no bools. */
MIRT__LIB mirt_dtype mirt__bytes_dtype(const mirt_tensor *x);
/* The matrix a tensor is to matmul and dense layers: its last axis against all others. */
MIRT__LIB int64_t mirt__last_dim(const mirt_tensor *x);
/* Positions of a sample, such as height times width: elements by the last axis. */
MIRT__TRAINING_LIB int64_t mirt__positions(const mirt_tensor *x);
/* Makes a.axis count from the front; false, with the error set, when x has no such axis or it is the rows. */
MIRT__LIB bool mirt__take_axis(mirt__node *node, const mirt_shape *x);
MIRT__LIB bool mirt__need_float(const mirt__node *node, int inputs);
/* An input or output of float32. */
static inline const mirt__real *mirt__in(const mirt__call *call, int i) { return (const mirt__real *)call->in[i]; }
static inline mirt__real *mirt__out(const mirt__call *call, int i) { return (mirt__real *)call->out[i]; }
/* Each output becomes the numbers of its input. */
MIRT__LIB void mirt__copy_run(const mirt__call *call);
/* Whether both gradients of the convolution, whose weight gradient this is, are better made in one pass. */
MIRT__TRAINING_LIB bool mirt__conv_both_pays(const mirt__node *node);
/* How often a convolution computes each element of a lazy input: once for each tap and `columns` columns of its matrix
   product (0: all of them). */
MIRT__LIB int64_t mirt__conv_again(const mirt__node *node, int input, int columns);
MIRT__LIB mirt__reader mirt__reader_of(const mirt__call *call, int input);
/* The rows that the sums of a norm_grad_input are over, of `rows` in this call. */
MIRT__TRAINING_LIB double mirt__norm_count(const mirt__call *call, const mirt__node *node, int64_t rows);

#endif
