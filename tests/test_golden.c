/* Compares operations, losses, optimizers and accuracies with float64 Keras (golden/ops.h). Runs on every kernel
   table, and through the public functions if there are any. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/ops.h"
#include "layer_util.h"
#include "replay.h"

/* A program of one op with all it reads and makes in the caller's arrays. */
enum { SLOT_X, SLOT_LABELS, SLOT_DY, SLOT_Y, SLOT_DX };
typedef struct one_op {
    mirt__program program;
    mirt__output output[3];
    int outputs;
    int64_t rows;
    float weight[256], gradient[256]; /* of the one variable */
    char *io[5];
} one_op;

static void one_op_init(one_op *o, int64_t rows) {
    memset(o, 0, sizeof *o);
    mirt__graph_init(&o->program.graph, NULL, mirt__ops());
    o->rows = rows;
}

static mirt_tensor *one_op_input(one_op *o, int slot, mirt_dtype dtype, int64_t a, int64_t b, int64_t c) {
    mirt_shape shape = mirt_make_shape(1, a, b, c, 0, 0);
    shape.dim[0] = MIRT_ROWS;
    return mirt__input_op(&o->program.graph, slot, dtype, &shape);
}

/* `slot`: of MIRT__SPACE_IO. */
static void one_op_output(one_op *o, mirt_tensor *t, mirt__space space, int slot) {
    o->output[o->outputs].tensor = t;
    o->output[o->outputs].space = space;
    o->output[o->outputs].offset = 0;
    o->output[o->outputs++].port = slot;
}

/* x is data; as its own gradient is wanted, it counts as computed from a variable. */
static bool always(const void *arg, int variable) {
    (void)arg;
    (void)variable;
    return true;
}
static mirt_tensor *one_op_differentiable(one_op *o, mirt_tensor *x) {
    mirt_shape shape = mirt_make_shape(1, 0, 0, 0, 0, 0);
    mirt_tensor *zero = mirt__variable_op(&o->program.graph, 1, &shape);
    return mirt_add(x, zero);
}

/* Records y's gradient; false when the op has none. */
static bool one_op_gradient(one_op *o, mirt_tensor *y) {
    mirt__graph *g = &o->program.graph;
    mirt__graph_mark_gradients(g, always, NULL);
    mirt_tensor *dy = mirt__input_op(g, SLOT_DY, MIRT_FLOAT32, &y->shape);
    return mirt__gradients(g, &y, &dy, 1);
}

static bool one_op_run(one_op *o, const mirt__kernels *kernels) {
    static const size_t offset[2] = {0, 192 * sizeof(float)}; /* the variable, and one zero */
    mirt__bases b;
    mirt__step_info run;
    memset(&b, 0, sizeof b);
    memset(&run, 0, sizeof run);
    if (!o->program.max_rows && !mirt__plan(&o->program, o->output, o->outputs, offset, o->rows)) return false;
    b.arena = (char *)mirt__aligned_alloc(o->program.arena);
    b.where.scratch = (char *)mirt__aligned_alloc(o->program.scratch);
    b.where.shared = (char *)mirt__aligned_alloc(o->program.shared);
    b.where.scratch_per_thread = o->program.scratch;
    b.weight = (char *)o->weight;
    b.gradient = (char *)o->gradient;
    for (int i = 0; i < MIRT__COUNT(o->io); i++) b.io[i] = o->io[i];
    replay_alone(&o->program, kernels, &run, &b, o->rows);
    mirt__aligned_free(b.arena);
    mirt__aligned_free(b.where.scratch);
    mirt__aligned_free(b.where.shared);
    return true;
}

/* The largest difference relative to the largest golden value, but at least to `floor_of`. */
static double off_by(const float *a, const double *golden, int64_t count, double floor_of) {
    double worst = 0, largest = floor_of;
    for (int64_t i = 0; i < count; i++) {
        double error = fabs((double)a[i] - golden[i]);
        if (!(error <= DBL_MAX)) return INFINITY;
        worst = worse(worst, error);
        largest = fmax(largest, fabs(golden[i]));
    }
    return worst / largest;
}

static void fill_grid(float *out, int64_t count, unsigned seed) {
    for (int64_t i = 0; i < count; i++) out[i] = golden_grid(seed, (uint32_t)i);
}

static mirt_compile_desc compile_for(mirt_loss loss, bool from_logits) {
    mirt_compile_desc d;
    memset(&d, 0, sizeof d);
    d.loss = loss;
    d.from_logits = from_logits;
    return d;
}

/* >>convolutions and pools */

enum { MOST = 1024 };
static float x_values[MOST], y_values[MOST], dy_values[MOST], dx_values[MOST], wide[MOST];

/* Sums of products on the grid are exact in float32, so every table must give the golden values themselves. */
static void check_conv(const golden_conv *c, int number) {
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    int64_t ys = (int64_t)c->rows * c->oh * c->ow * c->co, xs = (int64_t)c->rows * c->h * c->w * c->ci;
    int64_t ks = (int64_t)c->kh * c->kw * (c->ci / c->groups) * c->co;
    fill_grid(x_values, xs, c->seed);
    fill_grid(dy_values, ys, c->seed + 2);
    for (int t = 0; t < tables; t++) {
        one_op o;
        one_op_init(&o, c->rows);
        mirt_shape kernel = mirt_make_shape(c->kh, c->kw, c->ci / c->groups, c->co, 0, 0);
        mirt__attrs a = mirt__attrs_of(MIRT__OP_conv2d);
        mirt__attrs_window *w = MIRT__OF(&a, window);
        w->strides[0] = c->stride_h;
        w->strides[1] = c->stride_w;
        w->dilation[0] = c->dilation_h;
        w->dilation[1] = c->dilation_w;
        w->groups = c->groups;
        w->padding = c->padding;
        mirt_tensor *x = one_op_differentiable(&o, one_op_input(&o, SLOT_X, MIRT_FLOAT32, c->h, c->w, c->ci));
        mirt_tensor *k = mirt__variable_op(&o.program.graph, 0, &kernel);
        mirt_tensor *y = mirt__conv2d_op(x, k, &a);
        bool good = y && y->shape.dim[1] == c->oh && y->shape.dim[2] == c->ow && one_op_gradient(&o, y);
        if (good) {
            one_op_output(&o, y, MIRT__SPACE_IO, SLOT_Y);
            one_op_output(&o, x->grad, MIRT__SPACE_IO, SLOT_DX);
            one_op_output(&o, k->grad, MIRT__SPACE_GRADIENT, 0);
            fill_grid(o.weight, ks, c->seed + 1);
            o.io[SLOT_X] = (char *)x_values;
            o.io[SLOT_DY] = (char *)dy_values;
            o.io[SLOT_Y] = (char *)y_values;
            o.io[SLOT_DX] = (char *)dx_values;
            good = one_op_run(&o, table[t]);
        }
        ok(good && off_by(y_values, c->y, ys, 1) == 0 && off_by(dx_values, c->dx, xs, 1) == 0 &&
               off_by(o.gradient, c->dkernel, ks, 1) == 0,
           "convolution %d, %s: Keras's output and gradients", number, table[t]->name);
        mirt__program_free(&o.program);
    }
}

static void check_conv_layer(const golden_conv *c, int number) {
    mirt_strategy *s = quiet(1);
    mirt_model *m = mirt_model_create(s, "conv");
    mirt_conv2d_desc d;
    memset(&d, 0, sizeof d);
    d.filters = c->co;
    d.kernel[0] = c->kh;
    d.kernel[1] = c->kw;
    d.strides[0] = c->stride_h;
    d.strides[1] = c->stride_w;
    d.dilation[0] = c->dilation_h;
    d.dilation[1] = c->dilation_w;
    d.groups = c->groups;
    d.padding = c->padding;
    d.no_bias = true;
    mirt_model_output(m, mirt_conv2d(mirt_input(m, MIRT_SHAPE(c->h, c->w, c->ci)), &d));
    float kernel[256];
    int64_t ks = (int64_t)c->kh * c->kw * (c->ci / c->groups) * c->co, ys = (int64_t)c->rows * c->oh * c->ow * c->co;
    fill_grid(kernel, ks, c->seed + 1);
    fill_grid(x_values, (int64_t)c->rows * c->h * c->w * c->ci, c->seed);
    mirt_compile_desc none = compile_for(MIRT_LOSS_NONE, false);
    mirt_status status = mirt_compile(m, &none);
    if (status == MIRT_OK) status = mirt_set_weight(m, "conv2d/kernel", kernel, (size_t)ks);
    if (status == MIRT_OK) {
        status = mirt_predict_arrays(m, mirt_make_array(x_values, MIRT_FLOAT32, MIRT_SHAPE(c->rows, c->h, c->w, c->ci)),
                                     y_values, MOST);
    }
    ok(status == MIRT_OK && off_by(y_values, c->y, ys, 1) == 0, "convolution %d as a layer%s%s", number,
       status ? ": " : "", status ? mirt_last_error() : "");
    mirt_strategy_destroy(s);
}

/* Maxima are exact; means are rounded once in the sum and once in the division. */
static void check_pool(const golden_pool *c, int number) {
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    int64_t ys = (int64_t)c->rows * c->oh * c->ow * c->c, xs = (int64_t)c->rows * c->h * c->w * c->c;
    const double bound = c->average ? 3e-7 : 0;
    fill_grid(x_values, xs, c->seed);
    fill_grid(dy_values, ys, c->seed + 1);
    for (int t = 0; t < tables; t++) {
        one_op o;
        one_op_init(&o, c->rows);
        mirt__attrs a = mirt__attrs_of(MIRT__OP_max_pool2d);
        mirt__attrs_window *w = MIRT__OF(&a, window);
        w->kernel[0] = c->kh;
        w->kernel[1] = c->kw;
        w->strides[0] = c->stride_h;
        w->strides[1] = c->stride_w;
        w->padding = c->padding;
        mirt_tensor *x = one_op_differentiable(&o, one_op_input(&o, SLOT_X, MIRT_FLOAT32, c->h, c->w, c->c));
        mirt_tensor *y = c->average ? mirt__average_pool2d_op(x, &a) : mirt__max_pool2d_op(x, &a);
        bool good = y && y->shape.dim[1] == c->oh && y->shape.dim[2] == c->ow && one_op_gradient(&o, y);
        if (good) {
            one_op_output(&o, y, MIRT__SPACE_IO, SLOT_Y);
            one_op_output(&o, x->grad, MIRT__SPACE_IO, SLOT_DX);
            o.io[SLOT_X] = (char *)x_values;
            o.io[SLOT_DY] = (char *)dy_values;
            o.io[SLOT_Y] = (char *)y_values;
            o.io[SLOT_DX] = (char *)dx_values;
            good = one_op_run(&o, table[t]);
        }
        ok(good && off_by(y_values, c->y, ys, 1) <= bound && off_by(dx_values, c->dx, xs, 1) <= bound,
           "%s pooling %d, %s: Keras's output and gradient", c->average ? "average" : "max", number, table[t]->name);
        mirt__program_free(&o.program);
    }
}

static void check_pool_layer(const golden_pool *c, int number) {
    mirt_strategy *s = quiet(1);
    mirt_model *m = mirt_model_create(s, "pool");
    mirt_pool2d_desc d;
    memset(&d, 0, sizeof d);
    d.size[0] = c->kh;
    d.size[1] = c->kw;
    d.strides[0] = c->stride_h;
    d.strides[1] = c->stride_w;
    d.padding = c->padding;
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(c->h, c->w, c->c));
    mirt_model_output(m, c->average ? mirt_average_pool2d(x, &d) : mirt_max_pool2d(x, &d));
    fill_grid(x_values, (int64_t)c->rows * c->h * c->w * c->c, c->seed);
    mirt_compile_desc none = compile_for(MIRT_LOSS_NONE, false);
    mirt_status status = mirt_compile(m, &none);
    if (status == MIRT_OK) {
        status = mirt_predict_arrays(m, mirt_make_array(x_values, MIRT_FLOAT32, MIRT_SHAPE(c->rows, c->h, c->w, c->c)),
                                     y_values, MOST);
    }
    ok(status == MIRT_OK &&
           off_by(y_values, c->y, (int64_t)c->rows * c->oh * c->ow * c->c, 1) <= (c->average ? 3e-7 : 0),
       "pooling %d as a layer", number);
    mirt_strategy_destroy(s);
}

/* >>losses and softmax */

/* A float32 logarithm or exponential is right to a few units in the last place, 6e-8 each: the
   bounds are a dozen of them, of the largest loss and of the largest gradient in a row. */
static void check_loss(const golden_loss *c, int number) {
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    bool sparse = mirt__loss_class_get(c->kind)->sparse;
    /* A cosine that is off by 2 units in the last place is 2 gamma times that in an exponent. */
    const double gamma = c->kind != MIRT_CIRCLE ? 0 : c->how.has_gamma ? (double)c->how.gamma : 80;
    const double bound = 7e-7 + 4 * gamma * 6e-8;
    int32_t classes[17];
    for (int i = 0; sparse && i < c->rows; i++) classes[i] = (int32_t)c->labels[i];
    for (int t = 0; t < tables; t++) {
        one_op o;
        one_op_init(&o, c->rows);
        mirt_tensor *x = one_op_differentiable(&o, one_op_input(&o, SLOT_X, MIRT_FLOAT32, c->n, 0, 0));
        mirt_tensor *labels =
            one_op_input(&o, SLOT_LABELS, sparse ? MIRT_INT32 : MIRT_FLOAT32, sparse ? 0 : c->n, 0, 0);
        mirt_tensor *y = mirt__loss_of(c->kind, &c->how, x, labels);
        bool good = y && one_op_gradient(&o, y);
        if (good) {
            one_op_output(&o, y, MIRT__SPACE_IO, SLOT_Y);
            one_op_output(&o, x->grad, MIRT__SPACE_IO, SLOT_DX);
            memcpy(x_values, c->x, (size_t)(c->rows * c->n) * sizeof(float));
            memcpy(dy_values, c->dloss, (size_t)c->rows * sizeof(float));
            memcpy(wide, c->labels, (size_t)(sparse ? c->rows : c->rows * c->n) * sizeof(float));
            o.io[SLOT_X] = (char *)x_values;
            o.io[SLOT_LABELS] = sparse ? (char *)classes : (char *)wide;
            o.io[SLOT_DY] = (char *)dy_values;
            o.io[SLOT_Y] = (char *)y_values;
            o.io[SLOT_DX] = (char *)dx_values;
            good = one_op_run(&o, table[t]);
        }
        double loss = INFINITY, gradient = 0;
        if (good) loss = off_by(y_values, c->loss, c->rows, 1);
        for (int r = 0; good && r < c->rows; r++)
            gradient = worse(gradient, off_by(dx_values + r * c->n, c->dx + r * c->n, c->n, 1e-3));
        bool zero = c->kind == MIRT_CIRCLE; /* no row has pairs of both kinds: not even a tiny gradient */
        for (int r = 0; r < c->rows; r++) zero = zero && c->loss[r] == 0;
        for (int i = 0; zero && i < c->rows * c->n; i++) good = good && y_values[i / c->n] == 0 && dx_values[i] == 0;
        ok(good && loss < 7e-7 && gradient < bound, "loss %d (%s%s), %s: off by %.1e, its gradient by %.1e", number,
           mirt__loss_class_get(c->kind)->name, c->from_logits ? " from logits" : "", table[t]->name, loss, gradient);
        mirt__program_free(&o.program);
    }
}

static void check_listed(mirt_loss loss) {
    int cases = 0;
    for (int i = 0; i < MIRT__COUNT(golden_loss_cases); i++) cases += golden_loss_cases[i].kind == loss;
    ok(cases > 0, "%s: %d cases of Keras's", mirt__loss_class_get(loss)->name, cases);
}

/* evaluate gives the mean of the golden losses. */
static void check_loss_evaluated(const golden_loss *c, int number) {
    mirt_strategy *s = quiet(1);
    mirt_model *m = mirt_model_create(s, "loss");
    mirt_logs logs;
    memset(&logs, 0, sizeof logs);
    bool sparse = mirt__loss_class_get(c->kind)->sparse;
    mirt_model_output(m, mirt_activation(mirt_input(m, MIRT_SHAPE(c->n)), MIRT_LINEAR));
    mirt_compile_desc d = compile_for(c->kind, false);
    d.loss_options[0] = c->how;
    mirt_array x = mirt_make_array(c->x, MIRT_FLOAT32, MIRT_SHAPE(c->rows, c->n));
    mirt_array y = mirt_make_array(c->labels, MIRT_FLOAT32, sparse ? MIRT_SHAPE(c->rows) : MIRT_SHAPE(c->rows, c->n));
    mirt_status status = mirt_compile(m, &d);
    if (status == MIRT_OK) status = mirt_evaluate_arrays(m, x, y, &logs);
    double mean = 0;
    int counted = 0;
    for (int i = 0; i < c->rows; i++)
        counted += c->kind == MIRT_CIRCLE ? c->loss[i] > 0
                                          : !(c->how.has_ignore_class && c->labels[i] == (float)c->how.ignore_class);
    for (int i = 0; i < c->rows && counted; i++) mean += c->loss[i] / counted;
    ok(status == MIRT_OK && fabs(logs.value[0] - mean) < 1e-6 * fmax(1, mean),
       "loss %d through mirt_evaluate_arrays: %.7g, Keras's mean %.7g%s%s", number, logs.value[0], mean,
       status ? ": " : "", status ? mirt_last_error() : "");
    mirt_strategy_destroy(s);
}

static void check_softmax(const golden_softmax *c, int number) {
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    int64_t n = (int64_t)c->rows * c->n;
    for (int t = 0; t < tables; t++) {
        one_op o;
        one_op_init(&o, c->rows);
        mirt_tensor *x = one_op_differentiable(&o, one_op_input(&o, SLOT_X, MIRT_FLOAT32, c->n, 0, 0));
        mirt_tensor *y = mirt_softmax(x);
        bool good = y && one_op_gradient(&o, y);
        if (good) {
            one_op_output(&o, y, MIRT__SPACE_IO, SLOT_Y);
            one_op_output(&o, x->grad, MIRT__SPACE_IO, SLOT_DX);
            memcpy(x_values, c->x, (size_t)n * sizeof(float));
            memcpy(dy_values, c->dy, (size_t)n * sizeof(float));
            o.io[SLOT_X] = (char *)x_values;
            o.io[SLOT_DY] = (char *)dy_values;
            o.io[SLOT_Y] = (char *)y_values;
            o.io[SLOT_DX] = (char *)dx_values;
            good = one_op_run(&o, table[t]);
        }
        ok(good && off_by(y_values, c->y, n, 1) < 5e-7 && off_by(dx_values, c->dx, n, 0.1) < 1e-6, "softmax %d, %s",
           number, table[t]->name);
        mirt__program_free(&o.program);
    }
}

/* >>optimizers */

/* The golden gradients are written where mirt_grad leaves its own, so that only the update differs. */
static void check_optimizer(const golden_optimizer *c, const char *cpu) {
    setenv("MIRT_CPU", cpu, 1);
    mirt_strategy *s = quiet(1);
    mirt_model *m = mirt_model_create(s, "optimizer");
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = 1;
    d.no_bias = true;
    mirt_model_output(m, mirt_dense(mirt_input(m, MIRT_SHAPE(GOLDEN_COUNT)), &d));
    mirt_compile_desc compile = compile_for(MIRT_MEAN_SQUARED_ERROR, false);
    compile.optimizer =
        c->kind == MIRT_ADAM ? mirt_adam(c->learning_rate) : mirt_sgd(c->learning_rate, c->momentum, c->nesterov != 0);
    bool good = mirt_compile(m, &compile) == MIRT_OK &&
                mirt_set_weight(m, "dense/kernel", golden_optimizer_start, GOLDEN_COUNT) == MIRT_OK;
    double worst = 0, slots = 0;
    for (int step = 0; good && step < GOLDEN_STEPS; step++) {
        const float zeros[GOLDEN_COUNT] = {0}, zero[1] = {0};
        float weight[GOLDEN_COUNT];
        mirt_array x = mirt_make_array(zeros, MIRT_FLOAT32, MIRT_SHAPE(1, GOLDEN_COUNT)),
                   y = mirt_make_array(zero, MIRT_FLOAT32, MIRT_SHAPE(1, 1));
        good = mirt_scatter(m, x, y) == MIRT_OK && mirt_grad(m, NULL) == MIRT_OK;
        if (good)
            memcpy(mirt__gradient_at(&m->trainer->function[MIRT__TRAIN]->step, 0, 0),
                   golden_optimizer_gradient + step * GOLDEN_COUNT, sizeof weight);
        good = good && mirt_all_reduce(m) == MIRT_OK && mirt_apply(m) == MIRT_OK &&
               mirt_get_weight(m, "dense/kernel", 0, weight, GOLDEN_COUNT) == MIRT_OK;
        if (good) worst = worse(worst, off_by(weight, c->weight + step * GOLDEN_COUNT, GOLDEN_COUNT, 1));
    }
    const double *golden_slot[2] = {c->slot_0, c->slot_1};
    for (int i = 0; good && i < 2; i++) {
        good = (golden_slot[i] != NULL) == (m->slot[i] != NULL);
        if (good && golden_slot[i])
            slots = worse(slots, off_by((const float *)(const void *)m->slot[i], golden_slot[i], GOLDEN_COUNT, 1e-6));
    }
    ok(good && worst < 5e-7 && slots < 5e-7, "%s, momentum %g%s, %s: weights of %d steps off by %.1e, slots by %.1e",
       c->kind == MIRT_ADAM ? "Adam" : "SGD", (double)c->momentum, c->nesterov ? ", Nesterov" : "", cpu, GOLDEN_STEPS,
       worst, slots);
    mirt_strategy_destroy(s);
    unsetenv("MIRT_CPU");
}

/* >>accuracies */

static void check_accuracy(const golden_accuracy *c, int number) {
    mirt_strategy *s = quiet(1);
    mirt_model *m = mirt_model_create(s, "accuracy");
    mirt_model_output(m, mirt_activation(mirt_input(m, MIRT_SHAPE(c->n)), MIRT_LINEAR));
    mirt_compile_desc d = compile_for(c->kind == 'b'   ? MIRT_BINARY_CROSSENTROPY
                                      : c->kind == 's' ? MIRT_SPARSE_CATEGORICAL_CROSSENTROPY
                                                       : MIRT_CATEGORICAL_CROSSENTROPY,
                                      true);
    d.metrics[0] = MIRT_ACCURACY;
    bool good = mirt_compile(m, &d) == MIRT_OK;
    int width = c->label_rank > 1 ? c->label_last : 1;
    for (int i = 0; good && i < c->rows; i++) {
        mirt_logs logs;
        memset(&logs, 0, sizeof logs);
        mirt_array x = mirt_make_array(c->x + i * c->n, MIRT_FLOAT32, MIRT_SHAPE(1, c->n));
        mirt_array y = mirt_make_array(c->labels + i * width, MIRT_FLOAT32,
                                       c->label_rank > 1 ? MIRT_SHAPE(1, c->label_last) : MIRT_SHAPE(1));
        good = mirt_evaluate_arrays(m, x, y, &logs) == MIRT_OK && logs.count == 2 &&
               strcmp(logs.name[1], "accuracy") == 0 && logs.value[1] == c->value[i];
    }
    ok(good, "accuracy %d ('%c') of each sample%s%s", number, c->kind, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
}

int main(void) {
    static const char *const cpus[] = {"avx512bf16", "avx512", "avx2", "neonbf16", "neon", "plain", "reference"};
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    for (int i = 0; i < MIRT__COUNT(golden_conv_cases); i++) {
        check_conv(&golden_conv_cases[i], i);
        check_conv_layer(&golden_conv_cases[i], i);
    }
    for (int i = 0; i < MIRT__COUNT(golden_pool_cases); i++) {
        check_pool(&golden_pool_cases[i], i);
        check_pool_layer(&golden_pool_cases[i], i);
    }
#define CHECK_LISTED(loss, name, labels, activation) check_listed(loss);
    MIRT_LOSS_LIST(CHECK_LISTED)
    for (int i = 0; i < MIRT__COUNT(golden_loss_cases); i++) {
        check_loss(&golden_loss_cases[i], i);
        check_loss_evaluated(&golden_loss_cases[i], i);
    }
    for (int i = 0; i < MIRT__COUNT(golden_softmax_cases); i++) check_softmax(&golden_softmax_cases[i], i);
    for (int k = 0; k < MIRT__COUNT(cpus); k++) {
        bool here = false;
        for (int t = 0; t < tables; t++) here = here || strcmp(table[t]->name, cpus[k]) == 0;
        for (int i = 0; here && i < MIRT__COUNT(golden_optimizer_cases); i++)
            check_optimizer(&golden_optimizer_cases[i], cpus[k]);
    }
    for (int i = 0; i < MIRT__COUNT(golden_accuracy_cases); i++) check_accuracy(&golden_accuracy_cases[i], i);
    return done_testing();
}
