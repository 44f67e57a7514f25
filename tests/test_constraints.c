/* Tests constraints of weights and penalties of activities against float64 Keras. golden/constraints.h has losses and
   weights of a few steps; models take them on 1 to 3 replicas and devices, and are saved and loaded in between. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/constraints.h"
#include "mirror_util.h"

#include <unistd.h>

static mirt_dense_desc dense(int units) {
    ZEROED(mirt_dense_desc, d);
    d.units = units;
    return d;
}
static mirt_conv2d_desc conv(int filters, int kernel) {
    ZEROED(mirt_conv2d_desc, d);
    d.filters = filters;
    d.kernel[0] = kernel;
    return d;
}
static mirt_regularizer penalty(float l1, float l2) {
    mirt_regularizer r = {l1, l2};
    return r;
}

static mirt_tensor *max_norm(mirt_tensor *x) {
    mirt_dense_desc d = dense(4);
    d.kernel_constraint = mirt_max_norm(0.75f, 1);
    d.bias_constraint = mirt_max_norm(0.5f, 1);
    return mirt_dense(x, &d);
}
static mirt_tensor *non_neg(mirt_tensor *x) {
    mirt_dense_desc d = dense(4);
    d.kernel_constraint = d.bias_constraint = mirt_non_neg();
    return mirt_dense(x, &d);
}
static mirt_tensor *unit_norm(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(4, 3);
    d.kernel_constraint = mirt_unit_norm(7);
    return mirt_conv2d(x, &d);
}
static mirt_tensor *min_max_norm(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(2, 2);
    d.kernel_constraint = mirt_min_max_norm(0.5f, 0.75f, 0.5f, 7);
    return mirt_conv2d(x, &d);
}
static mirt_tensor *min_max_last(mirt_tensor *x) {
    mirt_dense_desc d = dense(3);
    d.kernel_constraint = mirt_min_max_norm(0.9f, 1.1f, 1, 2);
    return mirt_dense(x, &d);
}
static mirt_tensor *spectral(mirt_tensor *x) {
    mirt_dense_desc d = dense(4);
    d.kernel_constraint = mirt_spectral_norm(1);
    return mirt_dense(x, &d);
}
static mirt_tensor *spectral_conv(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(4, 2);
    d.kernel_constraint = mirt_spectral_norm(3);
    return mirt_conv2d(x, &d);
}
static mirt_tensor *transposed(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(2, 2);
    d.kernel_constraint = mirt_max_norm(0.5f, 11);
    return mirt_conv2d_transpose(x, &d);
}
static mirt_tensor *depthwise(mirt_tensor *x) {
    ZEROED(mirt_depthwise_conv2d_desc, d);
    d.kernel[0] = 2;
    d.depthwise_constraint = mirt_max_norm(0.5f, 3);
    return mirt_depthwise_conv2d(x, &d);
}
static mirt_tensor *separable(mirt_tensor *x) {
    ZEROED(mirt_separable_conv2d_desc, d);
    d.filters = 3;
    d.depthwise.kernel[0] = 2;
    d.depthwise.depthwise_constraint = mirt_unit_norm(3);
    d.pointwise_constraint = mirt_non_neg();
    return mirt_separable_conv2d(x, &d);
}
static mirt_tensor *layer_norm(mirt_tensor *x) {
    ZEROED(mirt_layer_norm_desc, d);
    d.gamma_constraint = mirt_non_neg();
    d.beta_constraint = mirt_max_norm(0.25f, 1);
    return mirt_layer_norm(x, &d);
}
static mirt_tensor *prelu(mirt_tensor *x) {
    ZEROED(mirt_prelu_desc, d);
    d.alpha_constraint = mirt_non_neg();
    return mirt_prelu(x, &d);
}
static mirt_tensor *activity_l2(mirt_tensor *x) {
    mirt_dense_desc d = dense(4);
    d.activation = MIRT_TANH;
    d.activity_regularizer = penalty(0, 0.25f);
    return mirt_dense(x, &d);
}
static mirt_tensor *activity_l1(mirt_tensor *x) {
    mirt_conv2d_desc d = conv(2, 2);
    d.activation = MIRT_RELU;
    d.activity_regularizer = penalty(0.125f, 0);
    return mirt_conv2d(x, &d);
}
static mirt_tensor *activity_l1l2(mirt_tensor *x) {
    ZEROED(mirt_depthwise_conv2d_desc, d);
    d.kernel[0] = 2;
    d.activity_regularizer = penalty(0.015625f, 0.03125f);
    return mirt_depthwise_conv2d(x, &d);
}
static mirt_tensor *activity_separable(mirt_tensor *x) {
    ZEROED(mirt_separable_conv2d_desc, d);
    d.filters = 2;
    d.depthwise.kernel[0] = 2;
    d.depthwise.activity_regularizer = penalty(0.015625f, 0.03125f);
    return mirt_separable_conv2d(x, &d);
}
static mirt_tensor *activity_sum(mirt_tensor *x) {
    mirt_dense_desc d = dense(4);
    d.activation = MIRT_TANH;
    d.activity_regularizer = penalty(0.5f, 0.5f);
    return mirt_dense(x, &d);
}
static mirt_tensor *activity_layer(mirt_tensor *x) {
    const mirt_dense_desc d = dense(4);
    return mirt_activity_regularization(mirt_dense(x, &d), 0.125f, 0.25f);
}

static const struct {
    const char *label;
    mirt_tensor *(*build)(mirt_tensor *x);
    bool image;
} rows[] = {
    {"max_norm", max_norm, false},
    {"non_neg", non_neg, false},
    {"unit_norm", unit_norm, true},
    {"min_max_norm", min_max_norm, true},
    {"min_max_norm last", min_max_last, false},
    {"transposed", transposed, true},
    {"depthwise", depthwise, true},
    {"separable", separable, true},
    {"layer_norm", layer_norm, false},
    {"prelu", prelu, false},
    {"activity l2", activity_l2, false},
    {"activity l1", activity_l1, true},
    {"activity l1l2", activity_l1l2, true},
    {"activity separable", activity_separable, true},
    {"activity sum", activity_sum, false},
    {"activity layer", activity_layer, false},
    {"spectral", spectral, false},
    {"spectral conv", spectral_conv, true},
};

enum { MOST = 1024 };
static float x_values[MOST], t_values[MOST], drawn[MOST], weights[2][MOST];
static char path[512];

static void fill(float *out, int64_t count, unsigned seed) {
    for (int64_t i = 0; i < count; i++) out[i] = golden_uniform(seed, (uint32_t)i);
}

static mirt_array rows_of(const float *data, mirt_shape shape) {
    shape.dim[0] = CONSTRAINT_ROWS;
    return mirt_make_array(data, MIRT_FLOAT32, shape);
}

static mirt_model *model_of(mirt_strategy *s, int row) {
    ZEROED(mirt_compile_desc, d);
    d.loss = MIRT_MEAN_SQUARED_ERROR;
    if (strstr(rows[row].label, "sum")) d.reduction = MIRT_SUM;
    d.optimizer = mirt_sgd(constraint_rate, constraint_momentum, false);
    mirt_model *m = mirt_model_create(s, NULL);
    mirt_tensor *x = mirt_input(m, rows[row].image ? MIRT_SHAPE(4, 5, 3) : MIRT_SHAPE(5)), *y = rows[row].build(x);
    const mirt_shape in = mirt_tensor_shape(x), out = mirt_tensor_shape(y);
    mirt_weight_info info;
    mirt_model_output(m, y);
    if (mirt_compile(m, &d) != MIRT_OK) return NULL;
    fill(x_values, CONSTRAINT_ROWS * mirt__shape_count(&in), golden_constraints[row].seed);
    fill(t_values, CONSTRAINT_ROWS * mirt__shape_count(&out), golden_constraints[row].seed + 50);
    for (int k = 0; mirt_weight(m, k, &info) == MIRT_OK; k++) {
        fill(drawn, info.count, golden_constraints[row].seed + 1u + (unsigned)k);
        mirt_set_weight(m, info.name, drawn, (size_t)info.count);
    }
    return m;
}

/* One more step; the relative error of its loss. */
static double step_off(mirt_model *m, double want) {
    double loss = NAN;
    const mirt_shape x = mirt_tensor_shape(mirt_input_of(m, 0)), y = mirt_tensor_shape(mirt_output_of(m, 0));
    const mirt_status status = mirt_train_step(m, rows_of(x_values, x), rows_of(t_values, y), &loss);
    if (status != MIRT_OK) printf("# %s\n", mirt_last_error());
    return status == MIRT_OK ? fabs(loss - want) / fmax(fabs(want), 1e-2) : INFINITY;
}

/* How far all weights are from Keras's; they go to `out`, one after the other. */
static double weights_off(mirt_model *m, const golden_constrained *g, float *out) {
    mirt_weight_info info;
    double worst = mirt_num_weights(m) == g->num_weights ? 0 : INFINITY;
    for (int k = 0; k < g->num_weights && worst < 1; k++) {
        double norm = 0;
        mirt_weight(m, k, &info);
        if (mirt_get_weight(m, info.name, mirt_num_devices(mirt__strategy_of_model(m)) - 1, out, (size_t)info.count) !=
                MIRT_OK ||
            info.count != g->weight[k].count || strcmp(strrchr(info.name, '/') + 1, g->weight[k].name) != 0)
            return INFINITY;
        for (int64_t i = 0; i < info.count; i++) norm += (double)out[i] * out[i];
        worst = fmax(worst, fabs(sqrt(norm) - g->weight[k].norm) / fmax(g->weight[k].norm, 1e-2));
        for (int p = 0; p < CONSTRAINT_PROJECTIONS; p++) {
            double product = 0;
            for (int64_t i = 0; i < info.count; i++)
                product += (double)out[i] * golden_uniform(1000u + (unsigned)p, (uint32_t)i);
            worst = fmax(worst, fabs(product - g->weight[k].product[p]) / fmax(g->weight[k].norm, 1e-2));
        }
        out += info.count;
    }
    return worst;
}

/* All steps; after the second one the model is saved and loaded. */
static void train(int row, mirt_strategy *s, int devices, int replicas, float *out) {
    const golden_constrained *g = &golden_constraints[row];
    mirt_model *m = model_of(s, row), *loaded = NULL;
    double loss_off = m ? 0 : INFINITY, off = INFINITY;
    for (int i = 0; i < CONSTRAINT_STEPS && m; i++) {
        if (i == 2 && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK && (loaded = mirt_load(s, path)) != NULL) {
            mirt_model_destroy(m);
            m = loaded;
        }
        loss_off = fmax(loss_off, step_off(m, g->loss[i]));
    }
    if (m) off = weights_off(m, g, out);
    ok(loaded && loss_off < 3e-6 && off < 3e-6, "%s, %d devices, %d replicas: losses off by %.1e, weights by %.1e%s%s",
       g->label, devices, replicas, loss_off, off, loaded ? "" : ", ", loaded ? "" : mirt_last_error());
    mirt_model_destroy(m);
}

static void test_row(int row) {
    static const int counts[][2] = {{1, 1}, {1, 3}, {2, 3}, {3, 3}, {2, 2}};
    for (int i = 0; i < MIRT__COUNT(counts); i++) {
        const int devices = counts[i][0], replicas = counts[i][1];
        float *out = weights[replicas == 3 && devices > 1];
        mirt_strategy *s = strategy_of(devices, replicas, 1);
        memset(out, 0, sizeof weights[0]);
        train(row, s, devices, replicas, out);
        if (replicas == 3 && devices > 1)
            ok(memcmp(weights[0], weights[1], sizeof weights[0]) == 0, "%s: bit-identical to one device",
               rows[row].label);
        mirt_strategy_destroy(s);
    }
}

/* One copy for two devices. */
static void test_central(void) {
    for (int row = 0; row < 4; row++) {
        ZEROED(mirt_strategy_desc, d);
        d.kind = MIRT_CENTRAL_STORAGE;
        d.devices = "2";
        d.silent = true;
        mirt_strategy *s = mirt_strategy_create(&d);
        train(row, s, 2, 2, weights[0]);
        mirt_strategy_destroy(s);
    }
}

static void test_misuse(void) {
    static const struct {
        mirt_constraint constraint;
        const char *says;
    } wrong[] = {{{MIRT_MAX_NORM, 0, -1, 1, 1, 0}, "a constraint of norms from 0 to -1"},
                 {{MIRT_MAX_NORM, 0, 1, 1, 4, 0}, "axis of a constraint is 4; bits 0 to 1"},
                 {{MIRT_UNIT_NORM, 1, 1, 1, 0, 0}, "axis of a constraint is 0"},
                 {{MIRT_MIN_MAX_NORM, 2, 1, 1, 1, 0}, "a constraint of norms from 2 to 1"},
                 {{MIRT_MIN_MAX_NORM, 0, INFINITY, 1, 1, 0}, "a constraint of norms from 0 to inf"},
                 {{MIRT_MIN_MAX_NORM, 0, 1, 1.5f, 1, 0}, "at rate 1.5"},
                 {{MIRT__CONSTRAINT_COUNT, 0, 0, 0, 0, 0}, "invalid constraint (6)"},
                 {{MIRT_SPECTRAL_NORM, 0, 0, 0, 0, 0}, "a spectral norm takes 1 to 100 power iterations, not 0"},
                 {{MIRT_SPECTRAL_NORM, 0, 0, 0, 0, INT_MAX}, "1 to 100 power iterations, not 2147483647"}};
    mirt_strategy *s = strategy_of(1, 1, 1);
    for (int i = 0; i < MIRT__COUNT(wrong); i++) {
        mirt_model *m = mirt_model_create(s, NULL);
        mirt_dense_desc d = dense(2);
        d.kernel_constraint = wrong[i].constraint;
        ok(!mirt_dense(mirt_input(m, MIRT_SHAPE(3)), &d) && mirt_last_status() == MIRT_E_INVALID &&
               strstr(mirt_last_error(), wrong[i].says),
           "refused: %s", mirt_last_error());
        mirt_model_destroy(m);
    }
    mirt_model *m = mirt_model_create(s, NULL);
    mirt_dense_desc d = dense(4097);
    d.kernel_constraint = mirt_spectral_norm(1);
    ok(!mirt_dense(mirt_input(m, MIRT_SHAPE(3)), &d) && strstr(mirt_last_error(), "at most 4096 columns"),
       "refused: %s", mirt_last_error());
    mirt_model_destroy(m);
    m = mirt_model_create(s, NULL);
    d = dense(2);
    d.bias_constraint = mirt_spectral_norm(1);
    ok(!mirt_dense(mirt_input(m, MIRT_SHAPE(3)), &d) && strstr(mirt_last_error(), "kernel, not of its bias"),
       "refused: %s", mirt_last_error());
    mirt_model_destroy(m);
    m = mirt_model_create(s, NULL);
    ok(!mirt_activity_regularization(mirt_input(m, MIRT_SHAPE(3)), -1, 0) && mirt_last_status() == MIRT_E_INVALID,
       "refused: %s", mirt_last_error());
    mirt_strategy_destroy(s);
}

int main(void) {
    snprintf(path, sizeof path, "%s/mirt_constraints_%ld.safetensors", tap_tmpdir(), (long)getpid());
    ok(MIRT__COUNT(rows) == MIRT__COUNT(golden_constraints), "every golden row has a test");
    for (int i = 0; i < MIRT__COUNT(rows) && i < MIRT__COUNT(golden_constraints); i++) {
        ok(strcmp(rows[i].label, golden_constraints[i].label) == 0, "row %s", rows[i].label);
        test_row(i);
    }
    test_central();
    test_misuse();
    unlink(path);
    return done_testing();
}
