#ifndef MIRT__TABLE_H
#define MIRT__TABLE_H
/* Kernels: pure functions on buffers. There is one table of function pointers per instruction set or backend, all with
   the same arguments; the reference table is the simple scalar version of each.

   The numerical law every table obeys (docs/architecture.md):
   - an output of a matrix product or convolution is one FMA chain in ascending k from zero
     (k = row-major order of kernel height, width, input channel); bias and activation follow;
   - a reduction over rows or space is cut into chunks fixed by shape alone, whose partials are
     summed by mirt__tree over ascending chunk numbers; chunks are not tied to threads;
   - a row's result does not depend on the number of rows or its position among them. So AVX2, AVX-512 and NEON give
     bit-identical results with any team. The reference table may round differently.

   All buffers are dense and row-major; kernels must not require alignment (a replica's rows may start anywhere in a
   user's array), and tails are not padded. `team` may be NULL (one thread). `scratch` is
   scratch_per_thread * team size bytes, aligned, where scratch_per_thread comes from the
   ..._scratch function of the call; `shared` likewise from ..._shared, once per call. These two
   depend on the arguments' shapes (at the largest row count), never on the table. */

#include "../base/types.h"
#include "elementwise.h"

/* Where a kernel runs. */
typedef struct mirt__where {
    mirt__team *team;
    void *scratch;             /* scratch memory of the threads, consecutive */
    size_t scratch_per_thread; /* bytes per thread */
    void *shared;              /* partial sums of this call */
    bool float16;              /* of a device with float16: `half` means products of float16, and tensors are stored as
                                  MIRT__FLOAT16 instead of bfloat16 */
    struct mirt__handle *handle; /* the device of a backend, which allocates its memory itself: other fields are unused;
                                    otherwise NULL */
} mirt__where;

/* The normalization of n columns by given statistics: u = (x - mean) * (gamma / sqrt(variance + epsilon)) + beta,
   rounded after each step, then activation(u). */
typedef struct mirt__scaling {
    const mirt__real *mean, *variance, *gamma, *beta; /* [n]; gamma and beta may be NULL */
    float epsilon;
    mirt_activation_kind activation;
} mirt__scaling;

/* The gradient of a normalization's input: ((dy * slope) - less - (z - mean) * part) * factor, where slope is the
   derivative of norm.activation at u(z), factor = gamma / sqrt(variance + epsilon), less = sum[0] / count and part =
   sum[1] / count / sqrt(variance + epsilon), as in mirt__norm; sum NULL: the statistics are constants. */
typedef struct mirt__norm_back {
    mirt__scaling norm;
    const void *z; /* same channels, rows and dtype as dy */
    const mirt__real *sum[2];
    double count;
} mirt__norm_back;

/* An input that is read as float: float32 or MIRT__BFLOAT16, or converted uint8/int32, then x * scale + offset (one
   FMA) if `affine`; or one of the following lazy operands, which only tables with `tiled_reads` (tiled reads)
   support: */
typedef struct mirt__reader {
    const void *data;
    mirt_dtype dtype;
    bool affine;
    float scale, offset;
    int64_t channels;            /* of the last axis, for these: */
    const mirt__scaling *norm;   /* reads activation(norm(x)), */
    const mirt__real *gate;      /* times gate[pixel / gate_pixels][channel], [rows, channels] */
    int64_t gate_pixels;
    const mirt__norm_back *back; /* data is dy; reads that gradient */
} mirt__reader;

/* The column sums to compute of an output: its mean and (biased) variance; or for a gradient dy the sums of dy and of
   dy * hat, with hat = (slope_x - mean) / sqrt(variance + epsilon) of `slope`; or the mean per image, in forward
   depthwise convolutions. They use values before rounding to bfloat16. */
typedef enum mirt__column_sums {
    MIRT__SUMS_NONE, MIRT__SUMS_MOMENTS, MIRT__SUMS_GRADIENT, MIRT__SUMS_IMAGES
} mirt__column_sums;

/* Operations on an output before it is stored, in this order: + bias[column]; normalization; + add; activation
   (elementwise); times the derivative of `mask_activation` given that activation's output `mask`; times the slope of
   slope->activation at u(slope_x). add, mask and slope_x have the output's shape and dtype. Tables without
   `tiled_reads` (tiled reads) support only bias, activation and mask. */
typedef struct mirt__epilogue {
    const mirt__real *bias;
    const mirt__scaling *norm; /* without its activation */
    const void *add;
    mirt_activation_kind activation;
    const void *mask;
    mirt_activation_kind mask_activation;
    const mirt__scaling *slope;
    const void *slope_x;
    mirt__column_sums sums;
    mirt__real *sum[2]; /* [columns] each; per image one of [rows, columns] */
} mirt__epilogue;

/* c[m, n] = a[m, k] b[k, n]. a is read at a[i * a_row + p * a_col], one of a_row, a_col is 1; the same for b (b_col 1:
   rows of b are contiguous; b_row 1: b is transposed in memory); rows of c are n apart. If column_sum is set it
   receives the sum over p of b[p, j], one chain of additions in ascending p (the bias gradient along with a weight
   gradient; b_col is then 1). `reader` applies to a and needs a_col == 1 if it is not plain float32, except for weight
   gradients (a_row == 1). */
typedef struct mirt__gemm {
    int64_t m, n, k;
    mirt__reader a;
    int64_t a_row, a_col;
    const mirt__real *b;
    int64_t b_row, b_col;
    mirt__real *c;
    mirt__real *column_sum;
    mirt__epilogue epilogue;
} mirt__gemm;

/* NHWC x [rows, h, w, ci], kernel [kh, kw, ci / groups, co], y [rows, oh, ow, co]. */
typedef struct mirt__conv {
    int64_t rows, h, w, ci, oh, ow, co;
    int kh, kw, stride_h, stride_w, dilation_h, dilation_w, groups;
    int64_t pad_top, pad_left; /* zeros before; those after follow from the other fields. Padding is zero after the
                                  reader's affine. */
} mirt__conv;

typedef struct mirt__conv_forward {
    mirt__conv s;
    mirt__reader x;
    const mirt__real *kernel;
    void *y;
    mirt_dtype y_dtype; /* float32, or MIRT__BFLOAT16 */
    bool half;          /* products of numbers rounded to bfloat16, added in float32 (law: words of two k each) */
    bool winograd;      /* may use F(2x2, 3x3) if it applies, with different rounding */
    mirt__epilogue epilogue;
} mirt__conv_forward;

typedef struct mirt__conv_input_grad {
    mirt__conv s;
    mirt__reader dy; /* plain, or `back` */
    const mirt__real *kernel;
    void *dx;
    mirt_dtype dx_dtype;
    bool half, winograd;
    mirt__epilogue epilogue; /* on dx: without bias, activation and norm */
    /* Both gradients, for depthwise convolutions and if mirt__both_applies in one pass: */
    const mirt__reader *x;   /* if not NULL: */
    mirt__real *dkernel, *db; /* db may be NULL */
} mirt__conv_input_grad;

/* Chunks of rows of dy, of all images in sequence (mirt__conv_grad_view). db may be NULL. */
typedef struct mirt__conv_weight_grad {
    mirt__conv s;
    mirt__reader x, dy;
    mirt__real *dkernel, *db;
    bool half;
} mirt__conv_weight_grad;

/* conv (stride 1, dilation 1, groups 1, no padding) + bias + relu + 2x2 max pooling of stride 2 (VALID), for inputs
   that need no gradient. y is [rows, oh / 2, ow / 2, co]; `which` [same], one byte each, may be NULL: 0..3 is the first
   position of the maximum in its window, row-major; 4 means that the pooled value is not > 0. The chain of the weight
   gradient visits the windows of an image in row-major order, and in each the position of the maximum, if any. */
typedef struct mirt__conv_pool {
    mirt__conv s;
    mirt__reader x;
    const mirt__real *kernel, *bias; /* bias may be NULL */
    mirt__real *y;
    uint8_t *which;
} mirt__conv_pool;
typedef struct mirt__conv_pool_weight_grad {
    mirt__conv s;
    mirt__reader x;
    const mirt__real *dy;
    const uint8_t *which;
    mirt__real *dkernel, *db; /* db may be NULL */
} mirt__conv_pool_weight_grad;

typedef struct mirt__pool2d {
    int64_t rows, h, w, c, oh, ow;
    int kh, kw, stride_h, stride_w;
    int64_t pad_top, pad_left;
    mirt_dtype dtype; /* of x and y: float32; for max also MIRT__BFLOAT16, if the table has `tiled_reads` */
    const void *x;    /* forward; dy for the gradients */
    void *y;          /* forward; dx for the gradients */
    void *which;      /* max: position of the first maximum in its window, ky * kw + kx: uint8, or int32 if
                         mirt__pool_wide(kh * kw) */
} mirt__pool2d;

/* The properties of an activation, all of which are in this row. */
typedef struct mirt__activation_class {
    const char *name;
    bool fused; /* its gradient needs only its output: epilogues compute both */
    mirt__unary_kind unary; /* MIRT__COPY: it is not elementwise */
    mirt__binary_kind grad; /* of dy and the activation's output if fused, otherwise its input */
    float scale;            /* of both, unless a node has another one */
} mirt__activation_class;
/* y = f(x), count elements; y may be x. */
typedef struct mirt__unary {
    mirt__unary_kind kind;
    mirt_dtype x_dtype, y_dtype; /* float32, or 16 bits if the table has `fused_elements` */
    int64_t count;
    const void *x;
    void *y;
    float scale, offset; /* MIRT__AFFINE: x * scale + offset, one FMA */
} mirt__unary;

/* y = f(a, b) over `rank` dimensions; a stride of 0 broadcasts. y is dense; y may be a, b or c if that one is not
   broadcast. */
typedef struct mirt__binary {
    mirt__binary_kind kind;
    int rank;
    int64_t dim[MIRT_MAX_RANK], a_stride[MIRT_MAX_RANK], b_stride[MIRT_MAX_RANK], c_stride[MIRT_MAX_RANK];
    mirt_dtype a_dtype, b_dtype, c_dtype, y_dtype; /* as of mirt__unary */
    const void *a, *b;
    const void *c; /* added to f, after rounding, if the table has `fused_products`; NULL: nothing */
    bool number; /* b is one number, in the host's memory: the value of `scale` */
    void *y;
    float scale, offset; /* of the unary kind whose gradient it is */
} mirt__binary;

/* Broadcasting like mirt__binary, over up to three inputs of `dtype`; MIRT__WHERE: a bool, then two. */
typedef struct mirt__logic {
    mirt__logic_kind kind;
    mirt_dtype dtype;
    int rank;
    int64_t dim[MIRT_MAX_RANK], stride[3][MIRT_MAX_RANK];
    const void *in[3];
    void *y;
} mirt__logic;

/* x of `rank` dimensions, those in `axes` reduced; y dense over the others. Sums over the reduced
   elements in row-major order, in chunks of MIRT__REDUCE_CHUNK elements, chunk partials by mirt__tree. */
typedef struct mirt__reduce {
    mirt__reduce_kind kind;
    int rank;
    unsigned axes;
    int64_t dim[MIRT_MAX_RANK];
    const void *x;
    const void *by; /* as x: what each element is multiplied by in sums and means, if the table has `fused_products` */
    mirt_dtype x_dtype; /* float32, or MIRT__BFLOAT16 for sums and means if the table has `tiled_reads` */
    mirt__real *y;
} mirt__reduce;
/* The gradient of MIRT__REDUCE_MAX and MIN: dy shared evenly by all equal maxima, as TensorFlow. */
typedef struct mirt__reduce_max_grad {
    mirt__reduce s; /* x and y of the forward call */
    const mirt__real *dy;
    mirt__real *dx;
} mirt__reduce_max_grad;
#define MIRT__REDUCE_CHUNK 256

/* Along the middle axis of x [outer, n, inner]. */
typedef struct mirt__scan {
    mirt__scan_kind kind;
    int64_t outer, n, inner;
    const mirt__real *x;
    /* argmax, argmin: int32 [outer, inner], the first position of the extreme; cumsum, sparsemax: like x, one chain of
       additions */
    void *y;
} mirt__scan;

/* A strided copy of elements of any dtype: y[at with to] = x[at with from] for every index of `dim`. A stride of 0 in
   `from` repeats. */
typedef struct mirt__move {
    mirt_dtype dtype;
    int rank;
    int64_t dim[MIRT_MAX_RANK], from[MIRT_MAX_RANK], to[MIRT_MAX_RANK];
    const void *x;
    void *y;
} mirt__move;

/* y [count, width] = rows of x [n, width]; zeros for an index outside of 0 .. n - 1. The gradient (x [count, width] ->
   y [n, width]) adds up x for every row in ascending order. */
typedef struct mirt__gather {
    int64_t n, width, count;
    mirt_dtype dtype; /* of the indices: int32 or uint8 */
    const void *indices;
    const mirt__real *x;
    mirt__real *y;
} mirt__gather;

/* Over the last axis of [rows, n]. */
typedef struct mirt__softmax {
    int64_t rows, n;
    bool log; /* log(softmax(x)); gradient: dx = dy - exp(x) * sum(dy) */
    const mirt__real *x; /* forward: input; gradient: the softmax's output */
    const mirt__real *dy;
    mirt__real *y; /* forward: output; gradient: dx = x * (dy - sum(dy * x)) */
} mirt__softmax;

/* Losses of [rows, n] predictions, [rows] losses: rows are samples, or their positions. Keras's
   formulas: probabilities are clipped to [1e-7, 1 - 1e-7] (categorical ones normalized by their sum
   first); binary crossentropy and mean squared error average over n. labels: int32 [rows] for the sparse loss
   (already checked), otherwise float32 [rows, n]. With gradients, dx[r, j] = dloss[r] * d loss[r] /
   d x[r, j]. Circle, with any int32 [rows]: loss and dloss are [rows, 2], logarithms of sums of exponentials over a
   row's pairs of one class and over its other ones (kernels/circle.h). */
typedef struct mirt__loss {
    mirt_loss kind;
    mirt_loss_options how; /* with defaults filled in */
    int64_t rows, n;
    const mirt__real *x;
    const void *labels;
    mirt__real *loss;        /* forward; circle's gradient reads it */
    const mirt__real *dloss; /* gradient: [rows] */
    mirt__real *dx;          /* gradient; NULL forward */
} mirt__loss;

typedef enum mirt__accuracy_kind {
    MIRT__ACCURACY_SPARSE, MIRT__ACCURACY_CATEGORICAL, MIRT__ACCURACY_BINARY
} mirt__accuracy_kind;
/* 1 or 0 per sample (binary: the fraction of n that agree at threshold 0.5, strictly greater). First of equal
   maxima. */
typedef struct mirt__accuracy {
    mirt__accuracy_kind kind;
    int64_t rows, n;
    const mirt__real *x;
    const void *labels; /* as in mirt__loss */
    mirt__real *y;      /* [rows] */
} mirt__accuracy;

/* y[r, j] = keep(r, j) ? x[r, j] / (1 - rate) : 0. keep: word (j % 4) of Philox with counter
   {j / 4, low and high word of (first_row + r), low word of step} and key {low, high word of
   `key` ^ (high word of step mixed in by the caller)}, as a 24-bit unit number, >= rate. The
   gradient is the same call on dy. gaussian_noise: y = x + rate * mirt__normal(that word), rounded after each step. */
typedef struct mirt__dropout {
    int64_t rows, n, first_row;
    uint64_t key;
    uint32_t step;
    float rate; /* gaussian_noise: the standard deviation */
    const mirt__real *x;
    mirt__real *y;
} mirt__dropout;

typedef struct mirt__cast {
    mirt_dtype from, to;
    int64_t count;
    const void *x;
    void *y; /* to bfloat16 from float32 only, if the table has `tiled_reads`; to uint8 and int32: truncated toward
                zero, saturated, NaN becomes 0; to bool: whether it is not 0 */
} mirt__cast;

typedef struct mirt__one_hot {
    int64_t count, depth;
    mirt_dtype dtype; /* int32 or uint8 */
    const void *x;
    mirt__real *y;
} mirt__one_hot;

/* x [rows, h, w, c] to y [rows, oh, ow, c]. Output o reads at (o + 1/2) * in / out - 1/2: the nearest input (halfway:
   the next), or the two around it, weighted linearly. A gradient adds the outputs that read an input in ascending
   order. */
typedef struct mirt__resize {
    int64_t rows, h, w, c, oh, ow;
    bool bilinear;
    const mirt__real *x; /* gradient: dy */
    mirt__real *y;       /* gradient: dx */
} mirt__resize;

/* Normalization of x [rows, n]: hat = (x - mean) / sqrt(variance + epsilon), u = hat * gamma + beta, y = activation(u +
   add).
   Statistics are [n], over the rows (batch normalization), or with `by_row` [rows], over each row
   (layer normalization); variances are divided by the count. gamma and beta are [n] or NULL. Sums
   over rows go in chunks of MIRT__REDUCE_CHUNK rows, whose partials are combined in double in
   ascending order. In gradients dy counts times the activation's slope at u (without `add`). x, add, y,
   dy and dx (y) are of one dtype each:    float32, or MIRT__BFLOAT16 where the table has `tiled_reads` and not by_row.
   y may
   be add, dx may be dy. */
typedef struct mirt__norm {
    int64_t rows, n;
    bool by_row;
    float epsilon;
    const mirt__real *mean, *variance, *gamma, *beta;
    mirt_activation_kind activation;
    const void *x, *dy, *add;
    mirt_dtype x_dtype, dy_dtype, add_dtype, y_dtype;
    const mirt__real *sum[2]; /* norm_grad_input, unless by_row: out[] of norm_grad_sums over `count` rows; NULL: the
                                 statistics are constants */
    double count;
    void *y;            /* normalize; norm_grad_input: dx */
    mirt__real *out[2]; /* norm_stats: mean and variance; norm_grad_sums: [n] sum(dy) and sum(dy * hat), the gradients
                           of beta and gamma */
} mirt__norm;

/* An optimizer's update of the elements [begin, end) of the flat blocks. The gradient of element
   i is the sum of part[0][i] .. part[parts - 1][i] combined by the caller's tree: `tree` lists
   parts - 1 additions {into, from} to be done in order; the result is part `tree[last].into`
   (or part 0). Parts are only read. The new weight goes to every copy in `weight`; they are equal
   before and after. */
#define MIRT__MAX_PARTS 64
typedef struct mirt__addition { int into, from; } mirt__addition;
typedef struct mirt__update {
    mirt_optimizer_kind kind; /* MIRT_OPTIMIZER_LIST names its kernel */
    int64_t begin, end;
    int parts;
    const mirt__real *part[MIRT__MAX_PARTS];
    mirt__addition tree[MIRT__MAX_PARTS];
    int copies;
    mirt__real *weight[MIRT__MAX_PARTS];
    /* Set by mirt__optimizer_numbers (nn/optimizers.c); slots that are not used are NULL. */
    mirt__real *slot[3];
    float learning_rate, new_1, new_2, epsilon, momentum;
    bool nesterov;
    bool first;          /* ScheduleFreeAdamW: its first slot begins as the weights */
    bool shaped;         /* first the gradient is multiplied by `scale` and clipped at `clip`, unless that is 0 */
    float scale, clip;
    bool from_zero;      /* the weight counts as 0: what becomes of it is the step alone */
    float decay;         /* then weight -= weight * decay, unless it is 0; */
    mirt__real *average; /* after the update, unless it is NULL, average = keep * average + fresh * weight, */
    float keep, fresh;
    bool overwrite;      /* and weight = average */
} mirt__update;

/* Makes a weight fulfill a constraint: for every place along the axes that are not in constraint.axis, whose norm is
   the square root of the sum in double of squares in row-major order, w * (desired / (1e-7 + norm)); UNIT_NORM: w /
   (1e-7 + norm). SPECTRAL_NORM: w as a matrix of the last axis's columns is divided by its largest singular value, by
   power iterations from u, in double; u becomes the last one's. A vector is divided by its norm, of 1e-7 at least. */
#define MIRT__SPECTRAL_COLUMNS 4096
typedef struct mirt__constrain {
    mirt_constraint constraint;
    int rank;
    int64_t dim[MIRT_MAX_RANK];
    mirt__real *w, *u; /* u: SPECTRAL_NORM alone, [columns] */
} mirt__constrain;

/* One checked transform of images (h, w, c) to images (oh, ow, c). */
typedef struct mirt__transform {
    mirt_augmentation_kind kind;
    mirt_flip_mode mode;
    mirt_fill_mode fill;
    bool nearest;       /* otherwise bilinear */
    bool paired;        /* the width of a zoom uses the random number of its height */
    bool crop;          /* size of the central part with the new aspect ratio, if it is resized */
    float value;        /* value of a constant fill */
    float low[2], high[2]; /* ranges of random factors: of the height, or of all; of the width */
    int bins, size;     /* of equalization; of the kernel of a blur. AugMix: chains, and those that have ended.
                           CLAHE: tiles down and across */
    int choices, choice; /* applies only to images that draw `choice` of this many by the key `chooser`; 0: to all */
    uint64_t chooser;
    float range[2];     /* range of pixels */
    int64_t h, w, c, oh, ow;
    uint64_t key;
} mirt__transform;

/* Applies the transforms in sequence to each row of x [rows, h, w, c], which begins at row first_row of the global
   batch, and stores y [rows, oh, ow, c]. */
typedef struct mirt__augment_rows {
    const mirt__transform *transform; /* [count], readable by the host, and the same for every call of a node */
    int count;
    uint64_t seed, first_row, step;
    int64_t rows;
    mirt_dtype x_dtype; /* float32 or uint8 */
    const void *x;
    mirt__real *y;
} mirt__augment_rows;

/* Kernels that take a description of their work: X(name, arguments, fast, use). Each table has mirt__<prefix>_<name>.
   The CPU's fast tables share COMMON kernels; FAST ones use primitives of the instruction set, NORM ones of one set of
   functions or, by_row, of another. TRAIN: only training runs them; in the CPU's tables of a program that defines
   MIRRORTRAIN_NO_TRAIN they are NULL. */
#define MIRT__KERNEL_LIST(X) \
    X(gemm, gemm, FAST, ALL) X(conv_forward, conv_forward, FAST, ALL) \
    X(conv_input_grad, conv_input_grad, FAST, ALL) X(conv_weight_grad, conv_weight_grad, FAST, TRAIN) \
    X(conv_pool, conv_pool, FAST, ALL) X(conv_pool_weight_grad, conv_pool_weight_grad, FAST, TRAIN) \
    X(max_pool, pool2d, FAST, ALL) X(max_pool_grad, pool2d, FAST, TRAIN) X(average_pool, pool2d, COMMON, ALL) \
    X(average_pool_grad, pool2d, COMMON, TRAIN) X(unary, unary, FAST, ALL) X(binary, binary, FAST, ALL) \
    X(logic, logic, COMMON, ALL) X(reduce, reduce, COMMON, ALL) X(reduce_max_grad, reduce_max_grad, COMMON, TRAIN) \
    X(scan, scan, COMMON, ALL) X(move, move, COMMON, ALL) X(gather, gather, COMMON, ALL) \
    X(gather_grad, gather, COMMON, TRAIN) X(softmax, softmax, FAST, ALL) X(softmax_grad, softmax, COMMON, TRAIN) \
    X(loss, loss, FAST, TRAIN) X(accuracy, accuracy, COMMON, TRAIN) \
    X(dropout, dropout, FAST, TRAIN) X(gaussian_noise, dropout, FAST, TRAIN) X(cast, cast, COMMON, ALL) \
    X(one_hot, one_hot, COMMON, ALL) X(constrain, constrain, COMMON, TRAIN) \
    X(resize, resize, COMMON, ALL) X(resize_grad, resize, COMMON, TRAIN) X(norm_stats, norm, NORM, ALL) \
    X(normalize, norm, NORM, ALL) X(norm_grad_sums, norm, NORM, TRAIN) X(norm_grad_input, norm, NORM, TRAIN)

typedef struct mirt__kernels {
    const char *name; /* "avx512bf16", "avx512", "avx2", "neonbf16", "neon", "plain", "reference" */
    bool tiled_reads;      /* supports lazy operands with tiled reads, more epilogues and dtypes */
    bool half;             /* has instructions for products of bfloat16; otherwise these are emulated */
    bool fused_products;   /* products may have an addend or be reduced */
    bool fused_elements;   /* unary and binary take 16 bits */
#define MIRT__KERNEL_MEMBER(name, arguments, fast, use) \
    void (*name)(const mirt__##arguments *args, const mirt__where *where);
    MIRT__KERNEL_LIST(MIRT__KERNEL_MEMBER)
#undef MIRT__KERNEL_MEMBER
    /* `scratch` is mirt__augment_room bytes for float32 */
    void (*augment)(const mirt__augment_rows *args, const mirt__where *where);
    void (*fill)(mirt__real *y, mirt__real value, int64_t count, const mirt__where *where);
    /* y = bytes of data, which the host can read and which do not change for this pointer while a function exists */
    void (*constant)(void *y, const void *data, size_t bytes, const mirt__where *where);
    /* into[i] = into[i] + from[i] */
    void (*accumulate)(mirt__real *into, const mirt__real *from, int64_t count, const mirt__where *where);
    void (*update)(const mirt__update *args, const mirt__where *where);
} mirt__kernels;

#endif
