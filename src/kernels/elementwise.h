#ifndef MIRT__ELEMENTWISE_H
#define MIRT__ELEMENTWISE_H
/* The elementwise kinds: one row provides enumerator, label, kernels, gradient and public function.

   Files store kinds by their numbers: a number never changes meaning, and a new kind takes the next one.
   Columns, as expressions of the element x (or a and b) and the node's two numbers, scale and offset:
   - reference: of mirt__real, by the functions of reference.h and reference_elementwise.c, and MIRT__MATH(name) for any
     other of the C library
   - fast: LOOP(expression) becomes a loop that the compiler vectorizes (common_elementwise.c); ACTIVATION and SLOPE
     call the activation of that kind in simd_math.inc
   - gpu: INLINE(expression) is part of the CUDA kernel; CALL(expression) is called, for kinds that are rare or large
   - gradient: PASS(tensor) records the gradient of x, from x, y = f(x) and dy; SLOPE(kind, of) a binary node of dy and
     of; with END no gradient passes */

#define MIRT__SELU_SCALE 1.0507009873554805f
#define MIRT__SELU_ALPHA 1.6732632423543772f
/* The approximate gelu is x * sigmoid(MIRT__GELU_SLOPE * x + MIRT__GELU_CUBE * x^3): 2 sqrt(2 / pi), and that times
   0.044715. */
#define MIRT__GELU_SLOPE 1.5957691216057308f
#define MIRT__GELU_CUBE 0.071354816272600250f

/* X(number, ID, label, public function, reference, fast, gpu, gradient). The public function is mirt_<label> of a
   tensor and the given count of numbers, or NONE. */
#define MIRT__UNARY_LIST(X) \
    X(0, COPY, copy, NONE, x, COPY, INLINE(x), PASS(dy)) \
    X(1, NEGATIVE, negative, 0, -x, LOOP(-x), INLINE(-x), PASS(mirt__unary_op(MIRT__NEGATIVE, dy, 0, 0))) \
    X(2, SQUARE, square, 0, x * x, LOOP(x * x), INLINE(x * x), PASS(mirt__times(mirt__affine(dy, 2, 0), x))) \
    X(3, ACT_RELU, relu, 0, x < 0 ? 0 : x, LOOP(x < 0 ? 0 : x), \
      INLINE(mirt__cu_activate_by(MIRT_RELU, x, 0)), SLOPE(MIRT__RELU_GRAD, y)) \
    X(4, ACT_SIGMOID, sigmoid, 0, mirt__ref_sigmoid(x), ACTIVATION(MIRT_SIGMOID), INLINE(mirt__cu_sigmoid(x)), \
      SLOPE(MIRT__SIGMOID_GRAD, y)) \
    X(5, ACT_TANH, tanh, 0, mirt__tanh(x), ACTIVATION(MIRT_TANH), CALL(mirt__cu_activate_curved(MIRT_TANH, x, scale)), \
      SLOPE(MIRT__TANH_GRAD, y)) \
    X(6, AFFINE, scale, 2, mirt__fma(x, scale, offset), LOOP(fmaf(x, scale, offset)), INLINE(fmaf(x, scale, offset)), \
      PASS(mirt__affine(dy, node->a.scale, 0))) \
    X(7, EXP, exp, 0, mirt__exp(x), ACTIVATION(MIRT_EXPONENTIAL), CALL(expf(x)), PASS(mirt__times(dy, y))) \
    X(8, LOG, log, 0, mirt__ln(x), LOOP(logf(x)), CALL(logf(x)), PASS(mirt__binary_op(MIRT__DIVIDE, dy, x))) \
    X(9, SQRT, sqrt, 0, mirt__sqrt(x), LOOP(sqrtf(x)), INLINE(sqrtf(x)), \
      PASS(mirt__affine(mirt__binary_op(MIRT__DIVIDE, dy, y), 0.5f, 0))) \
    X(10, RSQRT, rsqrt, 0, 1 / mirt__sqrt(x), LOOP(1 / sqrtf(x)), INLINE(1 / sqrtf(x)), \
      PASS(mirt__affine(mirt__times(dy, mirt__times(y, mirt__unary_op(MIRT__SQUARE, y, 0, 0))), -0.5f, 0))) \
    X(11, ABS, abs, 0, mirt__fabs(x), LOOP(fabsf(x)), INLINE(fabsf(x)), \
      PASS(mirt__times(dy, mirt__unary_op(MIRT__SIGN, x, 0, 0)))) \
    X(12, SIGN, sign, 0, x > 0 ? 1 : x < 0 ? -1 : x, LOOP(x > 0 ? 1.0f : x < 0 ? -1.0f : x), \
      INLINE(x > 0 ? 1.0f : x < 0 ? -1.0f : x), END) \
    X(13, FLOOR, floor, 0, mirt__floor(x), LOOP(floorf(x)), INLINE(floorf(x)), END) \
    /* between scale and offset */ \
    X(14, CLIP, clip, 2, x < scale ? scale : x > offset ? offset : x, \
      LOOP(x < scale ? scale : x > offset ? offset : x), \
      INLINE(x < scale ? scale : x > offset ? offset : x), \
      SLOPE(MIRT__CLIP_GRAD, x)) \
    X(15, POWER, power, 1, mirt__pow(x, scale), LOOP(powf(x, scale)), CALL(powf(x, scale)), \
      SLOPE(MIRT__POWER_GRAD, x)) \
    X(16, ACT_RELU6, relu6, 0, x < 0 ? 0 : x > 6 ? 6 : x, LOOP(x < 0 ? 0 : x > 6 ? 6 : x), \
      INLINE(mirt__cu_activate_by(MIRT_RELU6, x, 0)), SLOPE(MIRT__RELU6_GRAD, y)) \
    /* x * scale if x is negative */ \
    X(17, ACT_LEAKY_RELU, leaky_relu, 1, x > 0 ? x : scale * x, ACTIVATION(MIRT_LEAKY_RELU), \
      INLINE(mirt__cu_activate_by(MIRT_LEAKY_RELU, x, scale)), SLOPE(MIRT__LEAKY_RELU_GRAD, x)) \
    /* (exp(x) - 1) * scale if x is negative */ \
    X(18, ACT_ELU, elu, 1, x > 0 ? x : scale * mirt__expm1(x), ACTIVATION(MIRT_ELU), \
      CALL(mirt__cu_activate_curved(MIRT_ELU, x, scale)), SLOPE(MIRT__ELU_GRAD, x)) \
    X(19, ACT_GELU, gelu, 0, x * mirt__ref_normal(x), ACTIVATION(MIRT_GELU), \
      CALL(mirt__cu_activate_curved(MIRT_GELU, x, scale)), SLOPE(MIRT__GELU_GRAD, x)) \
    X(20, ACT_SILU, silu, 0, x * mirt__ref_sigmoid(x), ACTIVATION(MIRT_SILU), INLINE(mirt__cu_silu(x)), \
      SLOPE(MIRT__SILU_GRAD, x)) \
    X(21, ACT_HARD_SIGMOID, hard_sigmoid, 0, mirt__ref_relu6(x + 3) / 6, ACTIVATION(MIRT_HARD_SIGMOID), \
      CALL(mirt__cu_activate_curved(MIRT_HARD_SIGMOID, x, scale)), SLOPE(MIRT__HARD_SIGMOID_GRAD, x)) \
    X(22, ACT_HARD_SWISH, hard_swish, 0, x * mirt__ref_relu6(x + 3) / 6, ACTIVATION(MIRT_HARD_SWISH), \
      CALL(mirt__cu_activate_curved(MIRT_HARD_SWISH, x, scale)), SLOPE(MIRT__HARD_SWISH_GRAD, x)) \
    /* log(1 + exp(x)) */ \
    X(23, ACT_SOFTPLUS, softplus, 0, (x > 0 ? x : 0) + mirt__log1p(mirt__exp(-mirt__fabs(x))), \
      ACTIVATION(MIRT_SOFTPLUS), CALL(mirt__cu_activate_curved(MIRT_SOFTPLUS, x, scale)), \
      SLOPE(MIRT__SOFTPLUS_GRAD, x)) \
    X(24, ACT_SELU, selu, 0, MIRT__SELU_SCALE * (x > 0 ? x : MIRT__SELU_ALPHA * mirt__expm1(x)), \
      ACTIVATION(MIRT_SELU), CALL(mirt__cu_activate_curved(MIRT_SELU, x, scale)), SLOPE(MIRT__SELU_GRAD, x)) \
    /* x * tanh(softplus(x)) */ \
    X(25, ACT_MISH, mish, 0, x * mirt__ref_mish_gate(x), ACTIVATION(MIRT_MISH), \
      CALL(mirt__cu_activate_curved(MIRT_MISH, x, scale)), SLOPE(MIRT__MISH_GRAD, x)) \
    X(26, ACT_SOFTSIGN, softsign, 0, x / (1 + mirt__fabs(x)), ACTIVATION(MIRT_SOFTSIGN), \
      CALL(mirt__cu_activate_curved(MIRT_SOFTSIGN, x, scale)), SLOPE(MIRT__SOFTSIGN_GRAD, x)) \
    /* x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2 */ \
    X(27, ACT_GELU_APPROXIMATE, gelu_approximate, 0, x * mirt__ref_gelu_gate(x), ACTIVATION(MIRT_GELU_APPROXIMATE), \
      CALL(mirt__cu_activate_curved(MIRT_GELU_APPROXIMATE, x, scale)), SLOPE(MIRT__GELU_APPROXIMATE_GRAD, x))

/* X(number, ID, label, public function, reference, fast, gpu). The label is the public function's, or the op's.
   Kinds named after an activation or a unary kind are gradients: a = dy, b = its output for relu, sigmoid, tanh and
   relu6, and its input for all others; scale and offset are the unary node's. */
#define MIRT__BINARY_LIST(X) \
    X(0, ADD, add, 0, a + b, LOOP(a + b), INLINE(a + b)) \
    X(1, SUBTRACT, subtract, 0, a - b, LOOP(a - b), INLINE(a - b)) \
    X(2, MULTIPLY, multiply, 0, a * b, LOOP(a * b), INLINE(a * b)) \
    X(3, DIVIDE, divide, 0, a / b, LOOP(a / b), INLINE(a / b)) \
    /* NaN where a or b is NaN */ \
    X(4, MAXIMUM, maximum, 0, a >= b || a != a ? a : b, \
      LOOP(a >= b || a != a ? a : b), INLINE(a >= b || a != a ? a : b)) \
    X(5, MINIMUM, minimum, 0, a <= b || a != a ? a : b, \
      LOOP(a <= b || a != a ? a : b), INLINE(a <= b || a != a ? a : b)) \
    X(6, RELU_GRAD, binary, NONE, b > 0 ? a : 0, LOOP(b > 0 ? a : 0), \
      INLINE(mirt__cu_times_slope_of_output(MIRT_RELU, a, b))) \
    X(7, SIGMOID_GRAD, binary, NONE, a * (b * (1 - b)), LOOP(a * (b * (1 - b))), \
      INLINE(mirt__cu_times_slope_of_output(MIRT_SIGMOID, a, b))) \
    X(8, TANH_GRAD, binary, NONE, a * (1 - b * b), LOOP(a * (1 - b * b)), \
      INLINE(mirt__cu_times_slope_of_output(MIRT_TANH, a, b))) \
    X(9, RELU6_GRAD, binary, NONE, a * mirt__ref_is(b > 0 && b < 6), LOOP(b > 0 && b < 6 ? a : 0), \
      INLINE(mirt__cu_times_slope_of_output(MIRT_RELU6, a, b))) \
    X(10, LEAKY_RELU_GRAD, binary, NONE, a * (b > 0 ? 1 : scale), SLOPE(MIRT_LEAKY_RELU), \
      INLINE(mirt__cu_times_slope_by(MIRT_LEAKY_RELU, a, b, scale))) \
    X(11, ELU_GRAD, binary, NONE, a * (b > 0 ? 1 : scale * mirt__exp(b)), SLOPE(MIRT_ELU), \
      CALL(a * mirt__cu_slope_curved(MIRT_ELU, b, scale))) \
    X(12, GELU_GRAD, binary, NONE, a * (mirt__ref_normal(b) + b * mirt__ref_density(b)), SLOPE(MIRT_GELU), \
      CALL(a * mirt__cu_slope_curved(MIRT_GELU, b, scale))) \
    X(13, SILU_GRAD, binary, NONE, a * mirt__ref_silu_slope(b, mirt__ref_sigmoid(b)), SLOPE(MIRT_SILU), \
      INLINE(mirt__cu_times_slope_by(MIRT_SILU, a, b, 0))) \
    X(14, HARD_SIGMOID_GRAD, binary, NONE, a * (mirt__ref_is(b > -3 && b < 3) / 6), SLOPE(MIRT_HARD_SIGMOID), \
      CALL(b > -3 && b < 3 ? a / 6 : 0.0f)) \
    X(15, HARD_SWISH_GRAD, binary, NONE, a * ((mirt__ref_relu6(b + 3) + b * mirt__ref_is(b > -3 && b < 3)) / 6), \
      SLOPE(MIRT_HARD_SWISH), CALL(a * mirt__cu_slope_curved(MIRT_HARD_SWISH, b, scale))) \
    X(16, SOFTPLUS_GRAD, binary, NONE, a * mirt__ref_sigmoid(b), SLOPE(MIRT_SOFTPLUS), \
      INLINE(a * mirt__cu_sigmoid(b))) \
    X(17, CLIP_GRAD, binary, NONE, a * mirt__ref_is(!(b < scale || b > offset)), \
      LOOP(b < scale || b > offset ? 0 : a), INLINE(b < scale || b > offset ? 0.0f : a)) \
    X(18, POWER_GRAD, binary, NONE, a * (scale == 0 ? 0 : scale * mirt__pow(b, scale - 1)), \
      LOOP(scale == 0 ? 0 : a * (scale * powf(b, scale - 1))), \
      CALL(scale == 0 ? 0.0f : a * (scale * powf(b, scale - 1)))) \
    X(19, SELU_GRAD, binary, NONE, a * (MIRT__SELU_SCALE * (b > 0 ? 1 : MIRT__SELU_ALPHA * mirt__exp(b))), \
      SLOPE(MIRT_SELU), CALL(a * mirt__cu_slope_curved(MIRT_SELU, b, scale))) \
    X(20, MISH_GRAD, binary, NONE, a * mirt__ref_mish_slope(b), SLOPE(MIRT_MISH), \
      CALL(a * mirt__cu_slope_curved(MIRT_MISH, b, scale))) \
    X(21, SOFTSIGN_GRAD, binary, NONE, a / ((1 + mirt__fabs(b)) * (1 + mirt__fabs(b))), \
      SLOPE(MIRT_SOFTSIGN), CALL(a * mirt__cu_slope_curved(MIRT_SOFTSIGN, b, scale))) \
    X(22, GELU_APPROXIMATE_GRAD, binary, NONE, a * mirt__ref_gelu_slope(b), SLOPE(MIRT_GELU_APPROXIMATE), \
      CALL(a * mirt__cu_slope_curved(MIRT_GELU_APPROXIMATE, b, scale))) \
    /* of exp within a layer; a unary node's gradient is a product with its output */ \
    X(23, EXP_GRAD, binary, NONE, a * mirt__exp(b), SLOPE(MIRT_EXPONENTIAL), \
      CALL(a * mirt__cu_slope_curved(MIRT_EXPONENTIAL, b, scale)))

/* X(number, ID, label, value): value is an expression of a and b, the same in all kernels; a bool is one byte, 0 or 1.
   CHOICE(number, ID, label): copies an element of a or b. */
#define MIRT__LOGIC_LIST(X, CHOICE) \
    X(0, IS_EQUAL, equal, a == b) \
    X(1, IS_NOT_EQUAL, not_equal, a != b) \
    X(2, IS_LESS, less, a < b) \
    X(3, IS_LESS_EQUAL, less_equal, a <= b) \
    X(4, AND, logical_and, (a != 0) & (b != 0)) \
    X(5, OR, logical_or, (a != 0) | (b != 0)) \
    X(6, NOT, logical_not, a == 0) \
    CHOICE(7, WHERE, where)

/* X(ID, name, fused, unary kind, gradient's kind, scale), in the order of mirt_activation_kind: see
   mirt__activation_class. COPY and ADD: it is no elementwise kind, and mirt__activation_op records other operations. */
#define MIRT__ACTIVATION_LIST(X) \
    X(LINEAR, linear, false, COPY, ADD, 0) \
    X(RELU, relu, true, ACT_RELU, RELU_GRAD, 0) \
    X(SIGMOID, sigmoid, true, ACT_SIGMOID, SIGMOID_GRAD, 0) \
    X(TANH, tanh, true, ACT_TANH, TANH_GRAD, 0) \
    X(SOFTMAX, softmax, false, COPY, ADD, 0) \
    X(RELU6, relu6, true, ACT_RELU6, RELU6_GRAD, 0) \
    X(LEAKY_RELU, leaky_relu, false, ACT_LEAKY_RELU, LEAKY_RELU_GRAD, 0.2f) \
    X(ELU, elu, false, ACT_ELU, ELU_GRAD, 1) \
    X(GELU, gelu, false, ACT_GELU, GELU_GRAD, 0) \
    X(SILU, silu, false, ACT_SILU, SILU_GRAD, 0) \
    X(HARD_SIGMOID, hard_sigmoid, false, ACT_HARD_SIGMOID, HARD_SIGMOID_GRAD, 0) \
    X(HARD_SWISH, hard_swish, false, ACT_HARD_SWISH, HARD_SWISH_GRAD, 0) \
    X(SOFTPLUS, softplus, false, ACT_SOFTPLUS, SOFTPLUS_GRAD, 0) \
    X(SELU, selu, false, ACT_SELU, SELU_GRAD, 0) \
    X(MISH, mish, false, ACT_MISH, MISH_GRAD, 0) \
    X(SOFTSIGN, softsign, false, ACT_SOFTSIGN, SOFTSIGN_GRAD, 0) \
    X(EXPONENTIAL, exponential, false, EXP, EXP_GRAD, 0) \
    X(LOG_SOFTMAX, log_softmax, false, COPY, ADD, 0) \
    X(GELU_APPROXIMATE, gelu_approximate, false, ACT_GELU_APPROXIMATE, GELU_APPROXIMATE_GRAD, 0) \
    X(CELU, celu, false, COPY, ADD, 0) \
    X(GLU, glu, false, COPY, ADD, 0) \
    X(HARD_SHRINK, hard_shrink, false, COPY, ADD, 0) \
    X(HARD_TANH, hard_tanh, false, COPY, ADD, 0) \
    X(LOG_SIGMOID, log_sigmoid, false, COPY, ADD, 0) \
    X(SOFT_SHRINK, soft_shrink, false, COPY, ADD, 0) \
    X(SPARSE_PLUS, sparse_plus, false, COPY, ADD, 0) \
    X(SPARSE_SIGMOID, sparse_sigmoid, false, COPY, ADD, 0) \
    X(SQUAREPLUS, squareplus, false, COPY, ADD, 0) \
    X(TANH_SHRINK, tanh_shrink, false, COPY, ADD, 0) \
    X(SPARSEMAX, sparsemax, false, COPY, ADD, 0)

/* Cases of a switch over mirt_activation_kind that are no elementwise kinds, so that the compiler reports one without a
   case. */
#define MIRT__NOT_ELEMENTWISE \
    case MIRT_LINEAR: \
    case MIRT_SOFTMAX: \
    case MIRT_LOG_SOFTMAX: \
    case MIRT_CELU: \
    case MIRT_GLU: \
    case MIRT_HARD_SHRINK: \
    case MIRT_HARD_TANH: \
    case MIRT_LOG_SIGMOID: \
    case MIRT_SOFT_SHRINK: \
    case MIRT_SPARSE_PLUS: \
    case MIRT_SPARSE_SIGMOID: \
    case MIRT_SQUAREPLUS: \
    case MIRT_TANH_SHRINK: \
    case MIRT_SPARSEMAX: \
    case MIRT__ACTIVATION_COUNT: break

/* X(number, ID, label, public function) of the other kinds that files store; NONE: recorded by gradients alone. */
#define MIRT__REDUCE_LIST(X) \
    X(0, REDUCE_SUM, reduce_sum, 0) X(1, REDUCE_MEAN, reduce_mean, 0) \
    X(2, REDUCE_MAX, reduce_max, 0) X(3, REDUCE_MIN, reduce_min, 0)
#define MIRT__SCAN_LIST(X) \
    X(0, ARGMAX, argmax, 0) X(1, ARGMIN, argmin, 0) X(2, CUMSUM, cumsum, 0) \
    X(3, CUMSUM_BACK, scan, NONE) X(4, SPARSEMAX, sparsemax, 0)

#define MIRT__KIND_ENUM(number, id, ...) MIRT__##id = number,
typedef enum mirt__unary_kind { MIRT__UNARY_LIST(MIRT__KIND_ENUM) } mirt__unary_kind;
typedef enum mirt__binary_kind { MIRT__BINARY_LIST(MIRT__KIND_ENUM) } mirt__binary_kind;
typedef enum mirt__logic_kind { MIRT__LOGIC_LIST(MIRT__KIND_ENUM, MIRT__KIND_ENUM) } mirt__logic_kind;
typedef enum mirt__reduce_kind { MIRT__REDUCE_LIST(MIRT__KIND_ENUM) } mirt__reduce_kind;
typedef enum mirt__scan_kind { MIRT__SCAN_LIST(MIRT__KIND_ENUM) } mirt__scan_kind;
#undef MIRT__KIND_ENUM

#endif
