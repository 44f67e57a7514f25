/* Recording on no tensor, after an error, and of shapes beyond the limits. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "gallery.h"
#include "mirror_util.h"
#include "function_util.h"
#include "tap.h"

static mirt_strategy *s;
static mirt_model *m;

static const int64_t zeros[6] = {0, 0, 0, 0, 0, 0}, all[6] = {-1, -1, -1, -1, -1, -1};
static const int order[4] = {0, 2, 1, 3};
static const float numbers[4] = {1, 2, 3, 4};
static mirt_array array(void) { return mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(4)); }

/* X(call): every call that makes a tensor of tensors x and y, of images, and t, truths; `pair` is both of the first. */
#define CALLS(X) \
    X(mirt_add(x, y)) X(mirt_subtract(x, y)) X(mirt_multiply(x, y)) X(mirt_divide(x, y)) X(mirt_negative(x)) \
    X(mirt_square(x)) X(mirt_relu(x)) X(mirt_sigmoid(x)) X(mirt_tanh(x)) X(mirt_exp(x)) X(mirt_log(x)) \
    X(mirt_sqrt(x)) X(mirt_rsqrt(x)) X(mirt_abs(x)) X(mirt_sign(x)) X(mirt_floor(x)) X(mirt_clip(x, 0, 1)) \
    X(mirt_power(x, 2)) X(mirt_scale(x, 2, 1)) X(mirt_maximum(x, y)) X(mirt_minimum(x, y)) X(mirt_relu6(x)) \
    X(mirt_leaky_relu(x, 0.1f)) X(mirt_elu(x, 1)) X(mirt_gelu(x)) X(mirt_silu(x)) X(mirt_hard_sigmoid(x)) \
    X(mirt_hard_swish(x)) X(mirt_softplus(x)) X(mirt_selu(x)) X(mirt_mish(x)) X(mirt_softsign(x)) \
    X(mirt_gelu_approximate(x)) X(mirt_celu(x, 2)) X(mirt_glu(x, -1)) X(mirt_hard_shrink(x, 1)) \
    X(mirt_soft_shrink(x, 1)) X(mirt_threshold(x, 1, 0)) X(mirt_squareplus(x, 4)) X(mirt_hard_tanh(x)) \
    X(mirt_log_sigmoid(x)) X(mirt_sparse_plus(x)) X(mirt_sparse_sigmoid(x)) X(mirt_tanh_shrink(x)) \
    X(mirt_sparsemax(x, -1)) \
    X(mirt_equal(x, y)) X(mirt_not_equal(x, y)) X(mirt_less(x, y)) \
    X(mirt_less_equal(x, y)) X(mirt_greater(x, y)) X(mirt_greater_equal(x, y)) X(mirt_logical_and(t, t)) \
    X(mirt_logical_or(t, t)) X(mirt_logical_not(t)) X(mirt_where(t, x, y)) X(mirt_stop_gradient(x)) \
    X(mirt_constant_tensor(x, array())) X(mirt_softmax(x)) X(mirt_log_softmax(x)) \
    X(mirt_matmul(x, mirt_reduce_sum(y, 1u, false), false, true)) X(mirt_reduce_sum(x, 2u, false)) \
    X(mirt_reduce_mean(x, 2u, true)) X(mirt_reduce_max(x, 2u, false)) X(mirt_reduce_min(x, 2u, false)) \
    X(mirt_reduce_variance(x, 2u, false)) X(mirt_argmax(x, 1)) X(mirt_argmin(x, 1)) X(mirt_cumsum(x, 1)) \
    X(mirt_transpose(x, order)) X(mirt_concat(pair, 2, 1)) X(mirt_split_tensor(x, 2, 1, out)) \
    X(mirt_slice(x, zeros, all)) X(mirt_pad(x, zeros, zeros, 0)) \
    X(mirt_gather(mirt_reduce_sum(x, 1u, false), mirt_cast(t, MIRT_INT32))) X(mirt_reshape(x, MIRT_SHAPE(32))) \
    X(mirt_cast(x, MIRT_INT32)) X(mirt_one_hot(mirt_cast(x, MIRT_INT32), 3)) \
    X(mirt_custom_op(&gallery_twice, pair, 2, "conf")) X(mirt_rescale(x, 2, 1)) \
    X(mirt_dense(x, &(mirt_dense_desc){ .units = 2})) \
    X(mirt_conv2d(x, &(mirt_conv2d_desc){.filters = 1, .kernel = {2}})) \
    X(mirt_conv2d_transpose(x, &(mirt_conv2d_desc){.filters = 1, .kernel = {2}})) \
    X(mirt_depthwise_conv2d(x, &(mirt_depthwise_conv2d_desc){.kernel = {2}})) \
    X(mirt_separable_conv2d(x, &(mirt_separable_conv2d_desc){ .filters = 1, .depthwise = {.kernel = {2}}})) \
    X(mirt_max_pool2d(x, NULL)) X(mirt_average_pool2d(x, NULL)) X(mirt_global_average_pool2d(x)) \
    X(mirt_global_max_pool2d(x)) X(mirt_global_pool2d(x, NULL)) X(mirt_zero_padding2d(x, 1, 1, 1, 1)) \
    X(mirt_cropping2d(x, 1, 1, 1, 1)) X(mirt_up_sampling2d(x, NULL)) X(mirt_flatten(x)) X(mirt_dropout(x, 0.5f)) \
    X(mirt_dropout_layer(x, &(mirt_dropout_desc){.rate = 0.5f})) \
    X(mirt_normalization(x, &(mirt_normalization_desc){.mean = {1}})) X(mirt_activation(x, MIRT_RELU)) \
    X(mirt_relu_layer(x, NULL)) X(mirt_leaky_relu_layer(x, 0.1f)) X(mirt_elu_layer(x, 1)) X(mirt_prelu(x, NULL)) \
    X(mirt_softmax_layer(x)) X(mirt_softmax_axis(x, 1)) \
    X(mirt_unit_normalization(x, -1)) X(mirt_gaussian_noise(x, 0.5f)) X(mirt_spatial_dropout2d(x, 0.5f)) \
    X(mirt_activity_regularization(x, 0.5f, 0.25f)) \
    X(mirt_adaptive_max_pool2d(x, 1, 1)) X(mirt_adaptive_average_pool2d(x, 1, 1)) \
    X(mirt_group_norm(x, &(mirt_group_norm_desc){.groups = 1})) \
    X(mirt_batch_norm(x, NULL)) X(mirt_layer_norm(x, NULL)) X(mirt_rms_norm(x, NULL)) \
    X(mirt_gaussian_dropout(x, 0.5f)) X(mirt_alpha_dropout(x, &(mirt_dropout_desc){.rate = 0.5f})) \
    X(mirt_reshape_layer(x, MIRT_SHAPE(32))) X(mirt_permute(x, MIRT_SHAPE(2, 1, 3))) \
    X(mirt_concatenate(pair, 2, -1)) X(mirt_add_layer(pair, 2)) X(mirt_subtract_layer(pair, 2)) \
    X(mirt_multiply_layer(pair, 2)) X(mirt_average_layer(pair, 2)) X(mirt_maximum_layer(pair, 2)) \
    X(mirt_minimum_layer(pair, 2)) X(mirt_dot(x, y, NULL)) X(mirt_random_flip(x, NULL)) \
    X(mirt_resizing(x, &(mirt_augmentation){.height = 3})) \
    X(mirt_custom_layer(&gallery_layer, &x, 1, &config, NULL)) \
    X(mirt_resizing(x, &(mirt_augmentation){ .height = 3, .interpolation = MIRT_BICUBIC}))

static const gallery_config config = {2, 0.5f, true};
#define TEXT(call) #call,
static const char *const texts[] = {CALLS(TEXT)};
enum { COUNT = sizeof texts / sizeof *texts };

static mirt_tensor *make(int index, mirt_tensor *x, mirt_tensor *y, mirt_tensor *t) {
    mirt_tensor *pair[2] = {x, y}, *out[2];
    int next = 0;
#define MAKE(call) \
    if (index == next++) return call;
    CALLS(MAKE)
#undef MAKE
    return NULL;
}

static void fresh(mirt_tensor **x, mirt_tensor **y, mirt_tensor **t) {
    mirt_model_destroy(m);
    m = mirt_model_create(s, "m");
    *x = mirt_input(m, MIRT_SHAPE(4, 4, 2));
    *y = mirt_input(m, MIRT_SHAPE(4, 4, 2));
    *t = mirt_greater(*x, *y);
}

static void check_calls(void) {
    int made = 0, none = 0, half = 0, after = 0, first = 0;
    mirt_tensor *x, *y, *t;
    for (int i = 0; i < COUNT; i++) {
        fresh(&x, &y, &t);
        if (make(i, x, y, t)) made++;
        else printf("# %s: %s\n", texts[i], mirt_last_error());
    }
    ok(made == COUNT, "%d of %d calls record", made, (int)COUNT);
    for (int i = 0; i < COUNT; i++) none += !make(i, NULL, NULL, NULL);
    ok(none == COUNT, "%d of them record nothing on nothing", none);
    for (int i = 0; i < COUNT; i++) {
        fresh(&x, &y, &t);
        const bool second = strstr(texts[i], ", y") || strstr(texts[i], "(y") || strstr(texts[i], "pair");
        const bool made_it = make(i, x, NULL, t) != NULL;
        half += made_it != second;
        if (made_it == second) printf("# %s\n", texts[i]);
    }
    ok(half == COUNT, "a second tensor that is missing is as a first one");
    fresh(&x, &y, &t);
    mirt_dense(x, &(mirt_dense_desc){.units = -1});
    char error[512];
    snprintf(error, sizeof error, "%s", mirt_last_error());
    for (int i = 0; i < COUNT; i++) {
        after += !make(i, x, y, t);
        mirt_status status = mirt_compile(m, NULL);
        first += status == MIRT_E_INVALID && strstr(mirt_last_error(), "units is -1") != NULL;
    }
    ok(after == COUNT && first == COUNT, "after an error (%s) %d calls record nothing, and the error stays %d times",
       error, after, first);
}

/* In a function, after its first mistake. */
static int failed, given;
static bool record_after(mirt_function *f, void *user) {
    mirt_tensor *variable = mirt_function_variable(f, "w"), *gradient = NULL, *field = mirt_function_x(f, 0);
    int count;
    if (user) mirt_function_x(f, 99);
    given = 0;
    failed = 0;
#define FAILS(call) given++, failed += (call)
    FAILS(!mirt_function_x(f, 0));
    FAILS(!mirt_function_y(f, 0));
    FAILS(!mirt_function_variable(f, "w"));
    FAILS(!mirt_function_constant(f, array()));
    FAILS(!mirt_trainable(f, NULL, &count));
    FAILS(mirt_minimize(f, variable) != MIRT_OK);
    FAILS(mirt_gradients(variable, &variable, 1, &gradient) != MIRT_OK);
    FAILS(mirt_apply_gradients(f, &variable, &variable, 1) != MIRT_OK);
    FAILS(mirt_assign(f, variable, variable, MIRT_AGGREGATE_MEAN) != MIRT_OK);
    FAILS(mirt_function_result(f, "a", variable) != MIRT_OK);
    FAILS(!mirt_replica_all_reduce(field, MIRT_REDUCE_SUM));
    FAILS(!mirt_loss_values(MIRT_MEAN_SQUARED_ERROR, false, field, field));
#undef FAILS
    return true;
}

/* Nothing is given, in a body that is right. */
static bool record_nothing(mirt_function *f, void *user) {
    mirt_tensor *variable = mirt_function_variable(f, "w"), *none = NULL;
    bool *right = (bool *)user;
    *right = !mirt_function_x(NULL, 0) && !mirt_function_y(NULL, 0) && !mirt_function_weights(NULL) &&
             !mirt_function_weights(f) && !mirt_function_variable(NULL, "w") &&
             !mirt_function_constant(NULL, array()) && !mirt_function_loss_term(NULL, 0) &&
             !mirt_function_loss_term(f, -1) && !mirt_function_loss_term(f, 99) &&
             !mirt_loss_values(MIRT_MEAN_SQUARED_ERROR, false, NULL, variable) &&
             !mirt_loss_values(MIRT_MEAN_SQUARED_ERROR, false, variable, NULL) &&
             !mirt_replica_all_reduce(NULL, MIRT_REDUCE_SUM) && mirt_function_result(NULL, "a", variable) != MIRT_OK &&
             mirt_minimize(NULL, variable) != MIRT_OK &&
             mirt_assign(NULL, variable, variable, MIRT_AGGREGATE_MEAN) != MIRT_OK &&
             mirt_apply_gradients(NULL, &variable, &none, 1) != MIRT_OK &&
             mirt_gradients(NULL, &variable, 1, &none) != MIRT_OK;
    return mirt_function_result(f, "w", variable) == MIRT_OK;
}

/* One mistake each; the function is refused with its error. */
static bool record_wrong(mirt_function *f, void *user) {
    mirt_tensor *w = mirt_function_variable(f, "w"), *state = mirt_function_variable(f, "state"),
                *square = mirt_square(w), *none = NULL, *out = NULL;
    switch (*(const int *)user) {
    case 0: mirt_gradients(square, NULL, 1, &out); break;
    case 1: mirt_gradients(square, &w, 1, NULL); break;
    case 2: mirt_gradients(square, &none, 1, &out); break;
    case 3: mirt_gradients(square, &w, -1, &out); break;
    case 4: mirt_apply_gradients(f, &w, NULL, 1); break;
    case 5: mirt_apply_gradients(f, &w, &square, 0); break;
    case 6: mirt_apply_gradients(f, &none, &square, 1); break;
    case 7: none = mirt_cast(square, MIRT_INT32); mirt_apply_gradients(f, &w, &none, 1); break;
    case 8: mirt_assign(f, state, square, (mirt_aggregation)99); break;
    case 9: mirt_assign(f, state, square, (mirt_aggregation)-1); break;
    case 10: mirt_assign(f, state, mirt_cast(square, MIRT_INT32), MIRT_AGGREGATE_MEAN); break;
    case 11: mirt_function_result(f, "a", NULL); break;
    case 12: mirt_loss_values(MIRT_LOSS_NONE, false, w, w); break;
    case 13: mirt_function_constant(f, mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(4))); break;
    case 14: mirt_function_constant(f, mirt_make_array(numbers, (mirt_dtype)99, MIRT_SHAPE(4))); break;
    case 15: mirt_function_x(f, -1); break;
    default: mirt_function_y(f, 99); break;
    }
    return true;
}
enum { WRONG = 17 };

static void check_functions(void) {
    mirt_model *bare = bare_model(s, mirt_sgd(0.1f, 0, false));
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_of(9), 4));
    bool right = false;
    mirt_function *f = mirt_function_create(bare, data, record_after, s);
    ok(!f && failed == given && strstr(mirt_last_error(), "no input number 99"),
       "%d of %d calls after a mistake fail, and the first error stays: %s", failed, given, mirt_last_error());
    f = mirt_function_create(bare, data, record_nothing, &right);
    ok(f && right, "calls without a function or a tensor fail and harm none: %s", f ? "" : mirt_last_error());
    float out[8];
    mirt_global_batch batch;
    ok(f && mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK &&
           mirt_gather_result(f, "w", out, 8, NULL) == MIRT_OK,
       "it runs");
    ok(mirt_gather_result(f, "w", NULL, 8, NULL) == MIRT_E_INVALID &&
           mirt_reduce(f, "w", MIRT_REDUCE_MEAN, NULL, 3) == MIRT_E_INVALID,
       "no place for results: %s", mirt_last_error());
    ok(mirt_local_result(f, "none", 0, out, 8, NULL) == MIRT_E_NOT_FOUND &&
           mirt_local_result(f, "w", -1, out, 8, NULL) == MIRT_E_NOT_FOUND,
       "no such result, no such replica: %s", mirt_last_error());
    for (int i = 0; i < WRONG; i++) {
        mirt_function *wrong = mirt_function_create(bare, data, record_wrong, &i);
        ok(!wrong && mirt_last_status() != MIRT_OK, "mistake %d: %s", i, mirt_last_error());
    }
    ok(mirt_function_run(f, &batch) == MIRT_OK, "the function still runs");
    mirt_dataset_destroy(data);
}

/* Shapes beyond the limits: refused by the operation, not later. */
#define REFUSED(call) \
    do { \
        fresh(&x, &y, &t); \
        const bool done = (call) != NULL; \
        ok(!done && (mirt_last_status() == MIRT_E_SHAPE || mirt_last_status() == MIRT_E_INVALID), "%.80s: %s", #call, \
           done ? "recorded" : mirt_last_error()); \
    } while (0)

static void check_shapes(void) {
    const int64_t huge[6] = {0, (int64_t)1 << 40, 0, 0, 0, 0}, many[6] = {0, 9, 9, 9, 9, 9};
    const int wrong[4] = {0, 1, 1, 3};
    mirt_tensor *x, *y, *t, *pair[3];
    REFUSED(mirt_one_hot(mirt_cast(mirt_input(m, MIRT_SHAPE(2, 2, 2, 2, 2)), MIRT_INT32), 3));
    REFUSED(mirt_one_hot(mirt_cast(x, MIRT_INT32), 0));
    REFUSED(mirt_one_hot(x, 3));
    REFUSED(mirt_gather(mirt_reduce_sum(mirt_input(m, MIRT_SHAPE(2, 2, 2, 2)), 1u, false),
                        mirt_cast(mirt_input(m, MIRT_SHAPE(2, 2, 2)), MIRT_INT32)));
    REFUSED(mirt_gather(x, y));
    REFUSED(mirt_pad(x, huge, zeros, 0));
    REFUSED(mirt_pad(x, zeros, huge, 0));
    REFUSED(mirt_pad(x, NULL, zeros, 0));
    REFUSED(mirt_slice(x, many, all));
    REFUSED(mirt_slice(x, NULL, all));
    REFUSED(mirt_transpose(x, wrong));
    REFUSED(mirt_concat(NULL, 2, 1));
    REFUSED((pair[0] = x, pair[1] = y, mirt_concat(pair, 0, 1)));
    REFUSED((pair[0] = x, pair[1] = y, mirt_concat(pair, 2, 9)));
    REFUSED((pair[0] = x, pair[1] = t, mirt_concat(pair, 2, 1)));
    REFUSED((pair[0] = mirt_input(m, MIRT_SHAPE((int64_t)1 << 40)), pair[1] = pair[0], mirt_concat(pair, 2, 1)));
    REFUSED(mirt_split_tensor(x, 3, 1, &pair[0]));
    REFUSED(mirt_split_tensor(x, 0, 1, &pair[0]));
    REFUSED(mirt_split_tensor(x, 2, 1, NULL));
    REFUSED(mirt_reshape(x, MIRT_SHAPE(5)));
    REFUSED(mirt_reshape(x, MIRT_SHAPE(-1, -1)));
    REFUSED(mirt_cast(x, (mirt_dtype)99));
    REFUSED(mirt_cast(x, (mirt_dtype)-1));
    REFUSED(mirt_argmax(x, 9));
    REFUSED(mirt_argmax(x, -9));
    REFUSED(mirt_cumsum(mirt_input(m, MIRT_SHAPE((int64_t)1 << 33)), 5));
    REFUSED(mirt_argmax(mirt_input(m, MIRT_SHAPE((int64_t)1 << 33)), 1));
    REFUSED(mirt_reduce_sum(x, 1u << 9, false));
    REFUSED(mirt_matmul(x, mirt_input(m, MIRT_SHAPE(3)), false, false));
    REFUSED(mirt_add(x, mirt_input(m, MIRT_SHAPE(3))));
    REFUSED(mirt_add(x, t));
    REFUSED(mirt_logical_and(x, y));
    REFUSED(mirt_logical_not(x));
    REFUSED(mirt_where(x, x, y));
    REFUSED(mirt_equal(x, t));
    REFUSED(mirt_clip(x, 2, 1));
    REFUSED(mirt_scale(x, INFINITY, 0));
    REFUSED(mirt_scale(x, 1, NAN));
    REFUSED(mirt_power(x, NAN));
    REFUSED(mirt_softmax(t));
    REFUSED(mirt_constant_tensor(x, mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(-4))));
    REFUSED(mirt_constant_tensor(x, mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(4))));
    REFUSED(mirt_constant_tensor(x, mirt_make_array(numbers, (mirt_dtype)99, MIRT_SHAPE(4))));
    REFUSED(mirt_conv2d(mirt_input(m, MIRT_SHAPE(1 << 20, 1 << 20, 1)),
                        &(mirt_conv2d_desc){.filters = 1 << 20, .kernel = {1}}));
    REFUSED(mirt_conv2d_transpose(mirt_input(m, MIRT_SHAPE(1 << 20, 4, 1)),
                                  &(mirt_conv2d_desc){.filters = 1, .kernel = {1}, .strides = {1 << 30}}));
    REFUSED(mirt_conv2d(mirt_cast(x, MIRT_INT32), &(mirt_conv2d_desc){.filters = 1, .kernel = {1}}));
    REFUSED(mirt_up_sampling2d(x, &(mirt_up_sampling2d_desc){.size = {INT_MAX, INT_MAX}}));
    REFUSED(mirt_zero_padding2d(x, INT_MAX, INT_MAX, INT_MAX, INT_MAX));
    REFUSED(mirt_custom_op(&gallery_twice, &x, 0, "conf"));
    REFUSED(mirt_custom_op(NULL, &x, 1, "conf"));
    REFUSED(mirt_custom_layer(NULL, &x, 1, &config, NULL));
    REFUSED(mirt_custom_layer(&gallery_layer, &x, 0, &config, NULL));
    REFUSED(mirt_custom_layer(&gallery_layer, &x, 1, &config, "a/b"));
    const mirt_shape none = mirt_tensor_shape(NULL);
    ok(none.rank == 0 && mirt_tensor_dtype(NULL) == MIRT_FLOAT32, "nothing has no shape");
    ok(!mirt_layer_output(m, NULL) && !mirt_layer_output(m, "none") && !mirt_layer_output(NULL, "x"),
       "no such layer: %s", mirt_last_error());
    ok(!mirt_model_view(m, NULL, 1) && !mirt_model_view(m, &x, 0) && !mirt_model_view(NULL, &x, 1), "no such view: %s",
       mirt_last_error());
}

int main(void) {
    s = strategy_of(1, 1, 1);
    draw_rows();
    check_calls();
    check_functions();
    check_shapes();
    mirt_strategy_destroy(s);
    return done_testing();
}
