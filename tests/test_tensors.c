/* Compares tensor operations and their gradients with float64 Keras (golden/tensors.h). Runs on every kernel
   table; also tests refusals, where gradients end, and all operations inside a model that trains. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/tensors.h"
#include "op_cases.h"
#include "tap.h"

/* >>goldens */

static const int32_t picked[] = {3, 0, 3, 1, 3, 0};
static mirt_tensor *numbers(mirt_tensor *like, mirt_shape shape, const int32_t *values) {
    return mirt_constant_tensor(like, mirt_make_array(values, MIRT_INT32, shape));
}

CASE(sign_beside) { UNUSED; return mirt_add(v[0], mirt_sign(v[0])); }
CASE(floor_beside) { UNUSED; return mirt_add(v[0], mirt_floor(v[0])); }
CASE(min_of_two) { UNUSED; return mirt_minimum(v[0], v[1]); }
CASE(where_less) { UNUSED; return mirt_where(mirt_less(v[0], v[1]), mirt_multiply(v[0], v[1]), v[1]); }
CASE(min_ends) { UNUSED; return mirt_reduce_min(v[0], 5, false); }
CASE(max_middle) { UNUSED; return mirt_reduce_max(v[0], 2, true); }
CASE(variance_ends) { UNUSED; return mirt_reduce_variance(v[0], 5, false); }
CASE(variance_last) { UNUSED; return mirt_reduce_variance(v[0], 2, false); }
CASE(argmax_middle) { UNUSED; return mirt_cast(mirt_argmax(v[0], 1), MIRT_FLOAT32); }
CASE(argmin_last) { UNUSED; return mirt_cast(mirt_argmin(v[0], -1), MIRT_FLOAT32); }
CASE(cumsum_middle) { UNUSED; return mirt_cumsum(v[0], 1); }
CASE(transpose_three) { UNUSED; static const int axes[] = {2, 0, 1}; return mirt_transpose(v[0], axes); }
CASE(split_product) {
    UNUSED;
    mirt_tensor *half_of[2];
    return mirt_split_tensor(v[0], 2, -1, half_of) ? mirt_multiply(half_of[0], half_of[1]) : NULL;
}
CASE(pad_two) {
    UNUSED;
    static const int64_t before[] = {1, 0}, after[] = {0, 2};
    return mirt_pad(v[0], before, after, -1.5f);
}
CASE(gather_rows) { UNUSED; return mirt_gather(v[0], numbers(v[0], MIRT_SHAPE(2, 3), picked)); }

CASE(scale) { UNUSED; return mirt_scale(v[0], 1.5f, -0.25f); }

/* Goldens that are neither activations nor functions of one tensor alone. */
static const struct { const char *name; mirt_tensor *(*record)(mirt__graph *, mirt_tensor **, mirt_tensor *);
} makers[] = {
    {"sign", case_sign_beside},
    {"floor", case_floor_beside},
    {"clip", case_clip},
    {"power", case_power},
    {"scale", case_scale},
    {"leaky_relu_slope", case_leaky_relu},
    {"elu_alpha", case_elu},
    {"maximum", case_maximum},
    {"minimum", case_min_of_two},
    {"where", case_where_less},
    {"log_softmax", case_log_softmax},
    {"reduce_min", case_min_ends},
    {"reduce_max", case_max_middle},
    {"reduce_variance", case_variance_ends},
    {"reduce_variance_far", case_variance_last},
    {"argmax", case_argmax_middle},
    {"argmin", case_argmin_last},
    {"cumsum", case_cumsum_middle},
    {"transpose", case_transpose_three},
    {"concat", case_concat},
    {"split", case_split_product},
    {"slice", case_slice},
    {"pad", case_pad_two},
    {"gather", case_gather_rows},
    {"celu_alpha", case_celu},
    {"glu_axis", case_glu},
    {"hard_shrink_threshold", case_hard_shrink},
    {"soft_shrink_threshold", case_soft_shrink},
    {"squareplus_b", case_squareplus},
    {"threshold", case_threshold},
    {"sparsemax_axis", case_sparsemax_axis},
};

static mirt_activation_kind golden_activation; /* the one that case_activation records */
CASE(activation) { UNUSED; return mirt__activation_op(golden_activation, mirt__unary_op(MIRT__COPY, v[0], 0, 0)); }

/* The functions of one tensor alone. */
#define UNARY_NONE(label)
#define UNARY_0(label) {#label, mirt_##label},
#define UNARY_1(label)
#define UNARY_2(label)
#define UNARY(number, id, label, function, ...) UNARY_##function(label)
static const struct { const char *name; mirt_tensor *(*call)(mirt_tensor *x); } unaries[] = {MIRT__UNARY_LIST(UNARY)};
static mirt_tensor *(*golden_unary)(mirt_tensor *x); /* the one that case_unary calls */
CASE(unary) { UNUSED; return golden_unary(v[0]); }

/* Relative to the largest golden value, but at least to 1. */
static double off_by(const float *a, const double *golden, int64_t count) {
    double worst = 0, largest = 1;
    for (int64_t i = 0; i < count; i++) {
        double error = fabs((double)a[i] - golden[i]);
        if (!(error <= DBL_MAX)) return INFINITY;
        worst = worse(worst, error);
        largest = fmax(largest, fabs(golden[i]));
    }
    return worst / largest;
}

static bool find_record(op_case *c, const golden_tensor *golden) {
    for (int i = 0; i < MIRT__COUNT(makers); i++) {
        if (strcmp(makers[i].name, golden->name) == 0) c->record = makers[i].record;
    }
    for (int i = 0; !c->record && i < MIRT__ACTIVATION_COUNT; i++) {
        if (strcmp(mirt__activation_get((mirt_activation_kind)i)->name, golden->name) != 0) continue;
        golden_activation = (mirt_activation_kind)i;
        c->record = case_activation;
    }
    for (int i = 0; !c->record && i < MIRT__COUNT(unaries); i++) {
        if (strcmp(unaries[i].name, golden->name) != 0) continue;
        golden_unary = unaries[i].call;
        c->record = case_unary;
    }
    return c->record != NULL;
}

static void check_listed(const char *label) {
    bool found = false;
    for (int i = 0; i < MIRT__COUNT(golden_tensor_cases); i++)
        found = found || strcmp(golden_tensor_cases[i].name, label) == 0;
    ok(found, "%s: make_tensors.py has it", label);
}

static float golden_value(const golden_tensor *g, int operand, int64_t i) {
    const uint32_t seed = g->seed + (uint32_t)operand;
    const float unit = g->on_grid ? golden_grid(seed, (uint32_t)i) : golden_uniform(seed, (uint32_t)i);
    volatile float scaled = unit * g->scale; /* no fused multiply-add: numpy has none */
    return scaled + g->offset;
}

/* A few roundings of numbers as large as the largest. */
static void check_golden(const golden_tensor *g) {
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    op_case c;
    op_run r;
    memset(&c, 0, sizeof c);
    c.operands = g->operands;
    for (int i = 0; i < g->operands; i++) {
        for (int k = 0; k < 4; k++) c.shape[i][k] = g->shape[i][k];
    }
    if (!find_record(&c, g) || !op_begin(&r, &c, 1, 1, true)) {
        ok(0, "%s is not recorded: %s", g->name, mirt_last_error());
        return;
    }
    for (int i = 0; i < g->operands; i++) {
        for (int64_t k = 0; k < r.count[i]; k++) ((float *)(void *)(r.weight + r.offset[i]))[k] = golden_value(g, i, k);
    }
    for (int64_t k = 0; k < r.values; k++)
        ((float *)(void *)(r.weight + r.offset[g->operands]))[k] = golden_uniform(g->seed + 9, (uint32_t)k);
    for (int t = 0; t < tables; t++) {
        op_replay(&r, table[t], NULL);
        double worst = r.values == g->values ? off_by(r.value, g->y, r.values) : INFINITY;
        for (int i = 0; i < g->operands && g->dx[i]; i++)
            worst = worse(worst, off_by((const float *)(void *)(r.gradient + r.offset[i]), g->dx[i], r.count[i]));
        ok(worst < 1e-6 && r.differentiable == (g->dx[0] != NULL), "%s, %s: off by %.1e", g->name, table[t]->name,
           worst);
    }
    op_end(&r);
}

/* >>what is refused */

static mirt_strategy *strategy;

static mirt_tensor *dense(mirt_tensor *x, int units) {
    mirt_dense_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.units = units;
    return mirt_dense(x, &desc);
}

/* x is (rows, 4, 6) float32; records something wrong. */
static mirt_tensor *record_wrong(int which, mirt_tensor *x) {
    static const int twice[] = {0, 1, 1}, rows_last[] = {1, 2, 0}, beyond[] = {0, 1, 3};
    static const int64_t zeros[] = {0, 0, 0}, ones[] = {1, 1, 1}, all[] = {-1, -1, -1}, late[] = {0, 3, 0},
                         two[] = {-1, 2, 2}, minus[] = {0, -1, 0};
    static const int32_t number[] = {1};
    mirt_tensor *truth = mirt_less(x, mirt_negative(x)), *whole = mirt_cast(x, MIRT_INT32), *out[4], *pair[2];
    mirt_array bad = mirt_make_array(number, MIRT_INT32, MIRT_SHAPE(1));
    switch (which) {
    case 0: return mirt_maximum(x, mirt_constant_tensor(x, mirt_make_array(picked, MIRT_INT32, MIRT_SHAPE(5))));
    case 1: return mirt_add(x, mirt_cast(numbers(x, MIRT_SHAPE(5), picked), MIRT_FLOAT32));
    case 2: return mirt_less(x, whole);
    case 3: return mirt_exp(truth);
    case 4: return mirt_logical_and(truth, whole);
    case 5: return mirt_logical_not(x);
    case 6: return mirt_where(x, x, x);
    case 7: return mirt_where(truth, x, whole);
    case 8: return mirt_clip(x, 2, 1);
    case 9: return mirt_clip(x, NAN, 1);
    case 10: return mirt_leaky_relu(x, INFINITY);
    case 11: return mirt_argmax(x, 3);
    case 12: return mirt_argmax(x, 0);
    case 13: return mirt_cumsum(x, -4);
    case 14: return mirt_argmin(whole, 1);
    case 15: return mirt_transpose(x, twice);
    case 16: return mirt_transpose(x, rows_last);
    case 17: return mirt_transpose(x, beyond);
    case 18: pair[0] = x; pair[1] = mirt_reduce_sum(x, 4, true); return mirt_concat(pair, 2, 1);
    case 19: pair[0] = pair[1] = x; return mirt_concat(pair, 2, 0);
    case 20: pair[0] = x; pair[1] = whole; return mirt_concat(pair, 2, 1);
    case 21: return mirt_split_tensor(x, 4, 2, out);
    case 22: return mirt_split_tensor(x, 2, 0, out);
    case 23: return mirt_split_tensor(x, 0, 1, out);
    case 24: return mirt_slice(x, late, two);
    case 25: return mirt_slice(x, ones, all);
    case 26: return mirt_slice(x, minus, all);
    case 27: return mirt_slice(x, zeros, zeros);
    case 28: return mirt_pad(x, zeros, ones, 0);
    case 29: return mirt_pad(x, minus, zeros, 0);
    case 30: return mirt_pad(whole, zeros, zeros, 2);
    case 31: return mirt_gather(x, whole);
    case 32: return mirt_gather(mirt_reduce_sum(x, 1, false), x);
    case 33: bad.data = NULL; return mirt_constant_tensor(x, bad);
    case 34: bad.dtype = (mirt_dtype)17; return mirt_constant_tensor(x, bad);
    case 35: bad.shape.rank = 9; return mirt_constant_tensor(x, bad);
    case 36: bad.shape.dim[0] = -3; return mirt_constant_tensor(x, bad);
    case 37: return mirt_reduce_min(x, 1u << 9, false);
    case 38: return mirt_log_softmax(whole);
    case 39: return mirt_slice(x, zeros, NULL);
    case 40: return mirt_pad(x, NULL, zeros, 0);
    case 41: return mirt_split_tensor(x, 2, 1, NULL);
    default: return x;
    }
}

static void check_refusals(void) {
    static const char *const says[] = {"takes float32, not int32: cast it first",
                                       "(rows, 4, 6) and (5) cannot be broadcast",
                                       "float32 and int32 do not go together",
                                       "takes float32, not bool",
                                       "bool and int32 do not go together",
                                       "takes bool, not float32",
                                       "the condition is float32, not bool",
                                       "float32 and int32 do not go together",
                                       "clip: 2 to 1 is no range",
                                       "is no range",
                                       "must be finite",
                                       "(rows, 4, 6) has no axis 3",
                                       "axis 0 is the rows of a batch",
                                       "has no axis -4",
                                       "takes float32, not int32",
                                       "each of the axes 0 to 2 once",
                                       "axis 0 is the rows of a batch",
                                       "each of the axes 0 to 2 once",
                                       "(rows, 4, 6) and (rows, 4, 1) differ in more than axis 1",
                                       "axis 0 is the rows of a batch",
                                       "float32 and int32 do not go together",
                                       "split: (rows, 4, 6) does not divide into 4 equal parts along axis 2",
                                       "does not divide into 2 equal parts along axis 0",
                                       "does not divide into 0",
                                       "2 elements from 3 on are not within the 4 of axis 1",
                                       "axis 0 is the rows of a batch",
                                       "from -1 on are not within",
                                       "axis 0 is the rows of a batch",
                                       "axis 0 is the rows of a batch",
                                       "less than nothing",
                                       "pads int32 with 0 only",
                                       "rows of a table, not of a batch",
                                       "takes int32 or uint8 indices, not float32",
                                       "an array needs data",
                                       "known dtype",
                                       "at most 6",
                                       "every dimension must be positive",
                                       "beyond rank 3",
                                       "takes float32, not int32",
                                       "slice: a list is NULL",
                                       "pad: a list is NULL",
                                       "split: a list is NULL"};
    for (int i = 0; i < MIRT__COUNT(says); i++) {
        mirt_model *model = mirt_model_create(strategy, NULL);
        mirt_compile_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.loss = MIRT_MEAN_SQUARED_ERROR;
        mirt_tensor *y = record_wrong(i, mirt_input(model, MIRT_SHAPE(4, 6)));
        mirt_model_output(model, y);
        ok(!y && mirt_compile(model, &desc) != MIRT_OK && strstr(mirt_last_error(), says[i]), "%d: %s", i,
           mirt_last_error());
        mirt_model_destroy(model);
    }
    mirt_tensor *none[2] = {NULL, NULL}, *out[2];
    ok(!mirt_concat(none, 2, 0) && !mirt_split_tensor(NULL, 2, 0, out) && !out[1] && !mirt_where(NULL, NULL, NULL) &&
           !mirt_gather(NULL, NULL) && !mirt_transpose(NULL, NULL) && !mirt_slice(NULL, NULL, NULL) &&
           !mirt_pad(NULL, NULL, NULL, 0) && !mirt_stop_gradient(NULL) && !mirt_argmax(NULL, 0) && !mirt_exp(NULL) &&
           !mirt_logical_not(NULL) && !mirt_reduce_variance(NULL, 0, false) && !mirt_log_softmax(NULL) &&
           !mirt_constant_tensor(NULL, mirt_make_array(picked, MIRT_INT32, MIRT_SHAPE(6))),
       "NULL is handed on");
    ok(!mirt_concat(none, 0, 0) && strstr(mirt_last_error(), "nothing to join"), "%s", mirt_last_error());
}

/* >>where gradients end */

static bool every(const void *arg, int variable) {
    (void)arg;
    (void)variable;
    return true;
}

static void check_ends(void) {
    mirt__graph g;
    mirt_shape shape = MIRT_SHAPE(4), batch_shape = MIRT_SHAPE(1, 4);
    batch_shape.dim[0] = MIRT_ROWS;
    mirt__graph_init(&g, NULL, mirt__ops());
    mirt_tensor *used = mirt__variable_op(&g, 0, &shape), *stopped = mirt__variable_op(&g, 1, &shape),
                *compared = mirt__variable_op(&g, 2, &shape);
    mirt_tensor *x = mirt__input_op(&g, 0, MIRT_FLOAT32, &batch_shape),
                *labels = mirt__input_op(&g, 1, MIRT_FLOAT32, &batch_shape);
    mirt_tensor *y = mirt_where(mirt_less(x, compared), mirt_add(x, used), mirt_stop_gradient(mirt_add(x, stopped)));
    mirt__graph_mark_gradients(&g, every, NULL);
    ok(y && y->needs_grad && mirt__gradients(&g, &y, &labels, 1) && used->grad && !stopped->grad && !compared->grad,
       "gradients end at comparisons and mirt_stop_gradient: %s", mirt_last_error());
    mirt_tensor *hits = mirt__accuracy_op(MIRT__ACCURACY_CATEGORICAL, y, labels),
                *dy = mirt_reduce_sum(labels, 2, false);
    mirt__graph_mark_gradients(&g, every, NULL);
    ok(hits && !mirt__gradients(&g, &hits, &dy, 1) && strstr(mirt_last_error(), "accuracy is not differentiable"), "%s",
       mirt_last_error());
    mirt__graph_free(&g);
}

/* >>in a model */

enum { N = 13, SIDE = 6, STEPS = 3 };

static mirt_model *tensor_model(mirt_strategy *s) {
    static const float shift[] = {0.5f, -0.25f, 0, 0.125f};
    static const int axes[] = {0, 2, 1};
    static const int64_t before[] = {0, 1, 0}, after[] = {0, 0, 2}, begin[] = {0, 1, 1}, size[] = {-1, -1, 3};
    mirt_model *model = mirt_model_create(s, NULL);
    mirt_tensor *h = mirt_gelu(dense(mirt_rescale(mirt_input(model, MIRT_SHAPE(SIDE, 4)), 0.25f, -1), 4)), *pair[2],
                *half_of[2];
    h = mirt_add(h, mirt_constant_tensor(h, mirt_make_array(shift, MIRT_FLOAT32, MIRT_SHAPE(4))));
    mirt_tensor *spread =
        mirt_sqrt(mirt_add(mirt_reduce_variance(h, 4, true),
                           mirt_constant_tensor(h, mirt_make_array(&half, MIRT_FLOAT32, MIRT_SHAPE(1)))));
    h = mirt_divide(h, spread);
    pair[0] = mirt_transpose(mirt_slice(mirt_pad(h, before, after, 0.5f), begin, size), axes);
    pair[1] = mirt_where(mirt_greater(pair[0], mirt_reduce_mean(pair[0], 4, true)), mirt_cumsum(pair[0], 1),
                         mirt_leaky_relu(pair[0], 0.3f));
    mirt_split_tensor(mirt_concat(pair, 2, 1), 2, 1, half_of);
    mirt_model_output(model, mirt_log_softmax(dense(mirt_flatten(mirt_maximum(half_of[0], half_of[1])), 3)));
    return model;
}

/* The loss of every step, then the prediction of the first sample; false when something failed. */
static bool train_tensors(const char *devices, double *losses, float *prediction, size_t capacity) {
    static uint8_t x[N * SIDE * 4];
    static float y[N * 3];
    mirt_strategy_desc d;
    mirt_compile_desc compile;
    memset(&d, 0, sizeof d);
    memset(&compile, 0, sizeof compile);
    d.devices = devices;
    d.replicas = 3;
    d.threads = 1;
    d.silent = true;
    compile.loss = MIRT_MEAN_SQUARED_ERROR;
    for (int i = 0; i < N * SIDE * 4; i++) x[i] = (uint8_t)(golden_word(1, (uint32_t)i) % 9);
    for (int i = 0; i < N * 3; i++) y[i] = golden_uniform(2, (uint32_t)i);
    mirt_strategy *s = mirt_strategy_create(&d);
    mirt_model *model = tensor_model(s);
    mirt_array xs = mirt_make_array(x, MIRT_UINT8, MIRT_SHAPE(N, SIDE, 4)),
               ys = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(N, 3));
    bool good = mirt_compile(model, &compile) == MIRT_OK;
    for (int i = 0; good && i < STEPS; i++) good = mirt_train_step(model, xs, ys, &losses[i]) == MIRT_OK;
    good = good && mirt_predict_arrays(model, xs, prediction, capacity) == MIRT_OK;
    mirt_strategy_destroy(s);
    return good;
}

static void check_model(void) {
    double one[STEPS], two[STEPS];
    float a[N * 3], b[N * 3], sum = 0;
    bool good = train_tensors("1", one, a, N * 3) && train_tensors("2", two, b, N * 3);
    for (int i = 0; good && i < 3; i++) sum += expf(a[i]);
    ok(good && one[STEPS - 1] < one[0] && fabsf(sum - 1) < 1e-5f, "a model of tensor operations trains: %s",
       good ? "yes" : mirt_last_error());
    ok(good && memcmp(one, two, sizeof one) == 0 && memcmp(a, b, sizeof a) == 0,
       "with equal bits on one device and on two");
}

int main(void) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "1";
    desc.silent = true;
    strategy = mirt_strategy_create(&desc);
    for (int i = 0; i < MIRT__COUNT(golden_tensor_cases); i++) check_golden(&golden_tensor_cases[i]);
#define LISTED_NONE(label)
#define LISTED_0(label) check_listed(#label);
#define LISTED_1 LISTED_0
#define LISTED_2 LISTED_0
#define LISTED(number, id, label, function, ...) LISTED_##function(label)
    MIRT__UNARY_LIST(LISTED)
    check_refusals();
    check_ends();
    check_model();
    mirt_strategy_destroy(strategy);
    return done_testing();
}
