/* Compares normalization, transposed and depthwise convolution and upsampling with float64 Keras. The results are in
   golden/norm.h; all kernel tables are tested, and statistics of numbers far from zero against double. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/norm.h"
#include "mirror_util.h"
#include "replay.h"
#include "tap.h"

enum { IO_X, IO_DY, IO_Y, IO_DX, IO_MEAN, IO_VARIANCE, MOST = 1024, WEIGHTS = 5 };

/* A program with all it reads and makes. Weight i is variable i; the last is a zero for every element of x. */
typedef struct one_op {
    mirt__program program;
    mirt__output output[8];
    int outputs, weights;
    int64_t rows;
    mirt_tensor *x, *v[WEIGHTS];
    float weight[(WEIGHTS + 1) * MOST], gradient[(WEIGHTS + 1) * MOST], io[6][MOST];
} one_op;

static one_op o; /* too large for the stack */

/* x plus the zero, so that x has a gradient. */
static void begin(int64_t rows, int64_t h, int64_t w, int64_t c) {
    mirt__graph *g = &o.program.graph;
    mirt_shape shape = mirt_make_shape(1, h, w, c, 0, 0), one = mirt_make_shape(1, 0, 0, 0, 0, 0);
    shape.dim[0] = MIRT_ROWS;
    memset(&o, 0, sizeof o);
    mirt__graph_init(g, NULL, mirt__ops());
    o.rows = rows;
    o.x = mirt_add(mirt__input_op(g, IO_X, MIRT_FLOAT32, &shape), mirt__variable_op(g, WEIGHTS, &one));
}

static mirt_tensor *weight(mirt_shape shape) {
    o.v[o.weights] = mirt__variable_op(&o.program.graph, o.weights, &shape);
    return o.v[o.weights++];
}
static float *weight_at(int i) { return o.weight + i * MOST; }

/* A result, or the gradient at `offset`. */
static void output(mirt_tensor *t, mirt__space space, int port, size_t offset) {
    if (!t) return;
    o.output[o.outputs].tensor = t;
    o.output[o.outputs].space = space;
    o.output[o.outputs].port = port;
    o.output[o.outputs++].offset = offset;
}

static bool always(const void *arg, int variable) {
    (void)arg;
    (void)variable;
    return true;
}

static bool differentiate(mirt_tensor *y) {
    mirt__graph *g = &o.program.graph;
    if (!y) return false;
    mirt__graph_mark_gradients(g, always, NULL);
    mirt_tensor *dy = mirt__input_op(g, IO_DY, MIRT_FLOAT32, &y->shape);
    if (!mirt__gradients(g, &y, &dy, 1)) return false;
    output(y, MIRT__SPACE_IO, IO_Y, 0);
    output(o.x->grad, MIRT__SPACE_IO, IO_DX, 0);
    for (int i = 0; i < o.weights; i++) output(o.v[i]->grad, MIRT__SPACE_GRADIENT, 0, (size_t)i * MOST * sizeof(float));
    return true;
}

static bool replay(const mirt__kernels *kernels) {
    size_t offset[WEIGHTS + 1];
    mirt__bases b;
    mirt__step_info run;
    memset(&b, 0, sizeof b);
    memset(&run, 0, sizeof run);
    run.global_rows = o.rows;
    for (int i = 0; i <= WEIGHTS; i++) offset[i] = (size_t)i * MOST * sizeof(float);
    if (!mirt__plan(&o.program, o.output, o.outputs, offset, o.rows)) return false;
    b.arena = (char *)mirt__aligned_alloc(o.program.arena);
    b.where.scratch = (char *)mirt__aligned_alloc(o.program.scratch);
    b.where.shared = (char *)mirt__aligned_alloc(o.program.shared);
    b.where.scratch_per_thread = o.program.scratch;
    b.weight = (char *)o.weight;
    b.gradient = (char *)o.gradient;
    for (int i = 0; i < MIRT__COUNT(o.io); i++) b.io[i] = (char *)o.io[i];
    replay_alone(&o.program, kernels, &run, &b, o.rows);
    mirt__aligned_free(b.arena);
    mirt__aligned_free(b.where.scratch);
    mirt__aligned_free(b.where.shared);
    return true;
}

static void end(void) { mirt__program_free(&o.program); }

/* The largest difference relative to the largest golden value, at least to 1. */
static double off_by(const float *a, const double *golden, int64_t count) {
    double worst = 0, largest = 1;
    for (int64_t i = 0; golden && i < count; i++) {
        const double error = fabs((double)a[i] - golden[i]);
        if (!(error <= DBL_MAX)) return INFINITY;
        worst = worse(worst, error);
        largest = fmax(largest, fabs(golden[i]));
    }
    return worst / largest;
}

static void uniform(float *out, int64_t count, unsigned seed, float times, float plus) {
    for (int64_t i = 0; i < count; i++) out[i] = golden_uniform(seed, (uint32_t)i) * times + plus;
}
static void grid(float *out, int64_t count, unsigned seed) {
    for (int64_t i = 0; i < count; i++) out[i] = golden_grid(seed, (uint32_t)i);
}

/* >>batch normalization */

/* The model's node lowered into the program that o holds; assignments[0, 1] of it are the moving statistics. */
static mirt_tensor *lowered(const golden_batch_norm *c, mirt_tensor **in) {
    mirt__attrs a = mirt__attrs_of(MIRT__OP_batch_norm);
    mirt__attrs_norm *own = MIRT__OF(&a, norm);
    mirt__mode mode;
    memset(&mode, 0, sizeof mode);
    own->scaling.gamma = c->scale;
    own->scaling.beta = c->center;
    own->scaling.epsilon = 1e-3f;
    own->momentum = 0.99;
    mirt_tensor *y = mirt__batch_norm_op(in, &a);
    mode.training = c->training;
    return y ? y->node->op->lower(&o.program.graph, y->node, in, &mode) : NULL;
}

static void check_batch_norm(const golden_batch_norm *c, const mirt__kernels *kernels) {
    const int64_t count = (int64_t)c->rows * c->h * c->w * c->c;
    const mirt_shape channels = mirt_make_shape(c->c, 0, 0, 0, 0, 0);
    begin(c->rows, c->h, c->w, c->c);
    mirt_tensor *in[5] = {o.x, weight(channels), weight(channels), NULL, NULL};
    const int gamma = 2, beta = 2 + c->scale;
    for (int i = 0; i < c->scale + c->center; i++) in[3 + i] = weight(channels);
    mirt_tensor *y = lowered(c, in);
    const mirt__assignment *moving = o.program.graph.assignment;
    float moved[2][MOST];
    bool good = differentiate(y) && o.program.graph.num_assignments == (c->training ? 2 : 0);
    if (c->training && good) {
        good = moving[0].variable == 0 && moving[1].variable == 1 && moving[0].aggregation == MIRT_AGGREGATE_MEAN &&
               moving[0].momentum == 0.99 && moving[1].momentum == 0.99;
        output(moving[0].value, MIRT__SPACE_IO, IO_MEAN, 0);
        output(moving[1].value, MIRT__SPACE_IO, IO_VARIANCE, 0);
    }
    uniform(o.io[IO_X], count, c->seed, 2, 0);
    uniform(o.io[IO_DY], count, c->seed + 3, 1, 0);
    uniform(weight_at(0), c->c, c->seed + 4, 1, 0);
    uniform(weight_at(1), c->c, c->seed + 5, 1, 1.5f);
    if (c->scale) uniform(weight_at(gamma), c->c, c->seed + 1, 1, 1.5f);
    if (c->center) uniform(weight_at(beta), c->c, c->seed + 2, 1, 0);
    good = good && replay(kernels);
    double error = off_by(o.io[IO_Y], c->y, count);
    error = worse(error, off_by(o.io[IO_DX], c->dx, count));
    error = worse(error, off_by(o.gradient + gamma * MOST, c->dgamma, c->c));
    error = worse(error, off_by(o.gradient + beta * MOST, c->dbeta, c->c));
    for (int i = 0; i < 2 && c->training; i++) {
        const mirt__aggregated goes = {0, 0, c->c, MIRT_AGGREGATE_MEAN, i, 0.99f, (float)(1 - 0.99)};
        const mirt__real *value[1] = {o.io[i ? IO_VARIANCE : IO_MEAN]};
        memcpy(moved[i], weight_at(i), (size_t)c->c * sizeof(float));
        mirt__aggregate_variable(&goes, 1, value, &goes.count, moved[i]);
        error = worse(error, off_by(moved[i], i ? c->moving_variance : c->moving_mean, c->c));
    }
    ok(good && error < 2e-6, "batch normalization %dx%dx%dx%d%s, %s: off by %.1e", c->rows, c->h, c->w, c->c,
       c->training ? " in training" : "", kernels->name, error);
    end();
}

static bool frozen(const void *arg, int variable) { return variable == *(const int *)arg; }

/* What the lowering makes of training, of a frozen layer, and of a layer called twice. */
static void check_lowering(void) {
    const mirt_shape channels = mirt_make_shape(2, 0, 0, 0, 0, 0);
    const int moving = 0;
    mirt__attrs a = mirt__attrs_of(MIRT__OP_batch_norm);
    mirt__mode mode;
    MIRT__OF(&a, norm)->momentum = 0.5;
    memset(&mode, 0, sizeof mode);
    for (int training = 0; training < 2; training++) {
        for (int use = MIRT_TRAINING_AUTO; use <= MIRT_TRAINING_OFF; use++) {
            begin(1, 2, 2, 2);
            mirt_tensor *in[3] = {o.x, weight(channels), weight(channels)};
            mirt__graph *g = &o.program.graph;
            a.training = (mirt_training)use;
            mode.training = training != 0;
            mode.frozen = NULL;
            const mirt__node *node = mirt__batch_norm_op(in, &a)->node;
            node->op->lower(g, node, in, &mode);
            const bool trains = use == MIRT_TRAINING_ON || (use == MIRT_TRAINING_AUTO && training);
            ok(g->num_assignments == (trains ? 2 : 0), "a program %s, a layer marked %d: moving statistics %s",
               training ? "for training" : "of another kind", use, trains ? "move" : "stay");
            end();
        }
    }
    begin(1, 2, 2, 2);
    mirt_tensor *in[3] = {o.x, weight(channels), weight(channels)};
    a.training = MIRT_TRAINING_AUTO;
    mode.training = true;
    mode.frozen = frozen;
    mode.arg = &moving;
    const mirt__node *node = mirt__batch_norm_op(in, &a)->node;
    const mirt_tensor *y = node->op->lower(&o.program.graph, node, in, &mode);
    ok(y && o.program.graph.num_assignments == 0 && y->node->in[1] == in[1],
       "a frozen layer uses its moving statistics");
    end();
}

/* >>other layers */

static mirt_tensor *record_layer(const golden_layer *c) {
    const int size[2] = {c->stride_h, c->stride_w};
    mirt__attrs a = mirt__attrs_of(MIRT__OP_conv2d), norm = mirt__attrs_of(MIRT__OP_normalize);
    mirt__attrs_window *w = MIRT__OF(&a, window);
    mirt_tensor *v[2];
    w->strides[0] = c->stride_h;
    w->strides[1] = c->stride_w;
    w->dilation[0] = w->dilation[1] = c->dilation;
    w->padding = c->padding;
    switch (c->kind) {
    case GOLDEN_LAYER_NORM:
        MIRT__OF(&norm, norm)->last_axes = c->kh;
        MIRT__OF(&norm, norm)->scaling.epsilon = 1e-3f;
        for (int i = 0; i < 2; i++)
            v[i] = weight(c->kh == 1   ? MIRT_SHAPE(c->c)
                          : c->kh == 2 ? MIRT_SHAPE(c->w, c->c)
                                       : MIRT_SHAPE(c->h, c->w, c->c));
        return mirt__layer_norm_op(o.x, v[0], v[1], &norm);
    case GOLDEN_TRANSPOSE: return mirt__conv2d_transpose_op(o.x, weight(MIRT_SHAPE(c->kh, c->kw, c->co, c->c)), &a);
    case GOLDEN_DEPTHWISE: return mirt__depthwise_conv2d_op(o.x, weight(MIRT_SHAPE(c->kh, c->kw, c->c, c->co)), &a);
    default: return mirt__upsampling2d_op(o.x, size, c->kind == GOLDEN_BILINEAR);
    }
}

/* A second call of a layer continues from the statistics of the first, a third from those of the second. */
static void check_calls(int calls, const mirt__kernels *kernels) {
    const mirt_shape channels = mirt_make_shape(2, 0, 0, 0, 0, 0);
    double want[2][2], error = 0;
    float moved[2][2];
    mirt__attrs a = mirt__attrs_of(MIRT__OP_batch_norm);
    mirt__mode mode;
    memset(&mode, 0, sizeof mode);
    mode.training = true;
    MIRT__OF(&a, norm)->momentum = 0.75;
    begin(3, 2, 1, 2);
    mirt_tensor *in[3] = {o.x, weight(channels), weight(channels)};
    mirt__graph *g = &o.program.graph;
    for (int call = 0; call < calls; call++) {
        const mirt__node *node = mirt__batch_norm_op(in, &a)->node;
        node->op->lower(g, node, in, &mode);
        in[0] = mirt_square(in[0]);
    }
    bool good = g->num_assignments == 2 && (g->assignment[0].momentum > 0) == (calls == 1);
    for (int i = 0; i < 2 && good; i++) output(g->assignment[i].value, MIRT__SPACE_IO, i ? IO_VARIANCE : IO_MEAN, 0);
    uniform(o.io[IO_X], 12, 77, 2, 0);
    uniform(weight_at(0), 2, 78, 1, 0);
    uniform(weight_at(1), 2, 79, 1, 1.5f);
    good = good && replay(kernels);
    for (int k = 0; k < 2; k++) {
        double x[6];
        for (int i = 0; i < 6; i++) x[i] = (double)o.io[IO_X][2 * i + k];
        for (int i = 0; i < 2; i++) want[i][k] = (double)weight_at(i)[k];
        for (int call = 0; call < calls; call++) {
            double mean = 0, variance = 0;
            for (int i = 0; i < 6; i++) mean += x[i] / 6;
            for (int i = 0; i < 6; i++) variance += (x[i] - mean) * (x[i] - mean) / 6;
            want[0][k] = 0.75 * want[0][k] + 0.25 * mean;
            want[1][k] = 0.75 * want[1][k] + 0.25 * variance;
            for (int i = 0; i < 6; i++) x[i] *= x[i];
        }
    }
    for (int i = 0; i < 2 && good; i++) {
        mirt__aggregated goes = {0, 0, 2, MIRT_AGGREGATE_MEAN, i, calls == 1 ? 0.75f : 0, calls == 1 ? 0.25f : 0};
        const mirt__real *value[1] = {o.io[i ? IO_VARIANCE : IO_MEAN]};
        memcpy(moved[i], weight_at(i), sizeof moved[i]);
        mirt__aggregate_variable(&goes, 1, value, &goes.count, moved[i]);
        error = worse(error, off_by(moved[i], want[i], 2));
    }
    ok(good && error < 2e-6, "%d calls of a layer, %s: its moving statistics are off by %.1e", calls, kernels->name,
       error);
    end();
}

static void check_layer(const golden_layer *c, const mirt__kernels *kernels) {
    static const char *const name[] = {"layer normalization", "transposed convolution", "depthwise convolution",
                                       "nearest upsampling", "bilinear upsampling"};
    const int64_t xs = (int64_t)c->rows * c->h * c->w * c->c, ys = (int64_t)c->rows * c->oh * c->ow * c->oc;
    const double *gradient[2] = {c->first, c->second};
    begin(c->rows, c->h, c->w, c->c);
    mirt_tensor *y = record_layer(c);
    bool good =
        y && y->shape.dim[1] == c->oh && y->shape.dim[2] == c->ow && y->shape.dim[3] == c->oc && differentiate(y);
    int64_t count[WEIGHTS];
    for (int i = 0; i < o.weights; i++) count[i] = mirt__shape_count(&o.v[i]->shape);
    if (c->kind == GOLDEN_LAYER_NORM) {
        uniform(o.io[IO_X], xs, c->seed, 2, 0);
        uniform(o.io[IO_DY], ys, c->seed + 3, 1, 0);
        for (int i = 0; i < o.weights; i++) uniform(weight_at(i), count[i], c->seed + 1 + (unsigned)i, 1, i ? 0 : 1.5f);
    } else {
        grid(o.io[IO_X], xs, c->seed);
        grid(o.io[IO_DY], ys, c->seed + 3);
        for (int i = 0; i < o.weights; i++) grid(weight_at(i), count[i], c->seed + 1 + (unsigned)i);
    }
    good = good && replay(kernels);
    double error = fmax(off_by(o.io[IO_Y], c->y, ys), off_by(o.io[IO_DX], c->dx, xs));
    for (int i = 0; i < o.weights; i++) error = worse(error, off_by(o.gradient + i * MOST, gradient[i], count[i]));
    /* Sums of products on the grid are exact in float32. */
    const double most =
        c->kind == GOLDEN_TRANSPOSE || c->kind == GOLDEN_DEPTHWISE || c->kind == GOLDEN_NEAREST ? 0 : 2e-6;
    ok(good && error <= most, "%s %dx%dx%dx%d, number %u, %s: off by %.1e", name[c->kind], c->rows, c->h, c->w, c->c,
       c->seed, kernels->name, error);
    end();
}

/* >>a model in training */

enum { SEVEN_IMAGES = 7 * 4 * 3 * 2 };

static mirt_model *training_model(mirt_strategy *s, bool synchronized) {
    mirt_model *m = mirt_model_create(s, "norm");
    mirt_conv2d_desc conv;
    mirt_batch_norm_desc norm;
    mirt_dense_desc dense;
    mirt_compile_desc compile;
    memset(&conv, 0, sizeof conv);
    memset(&norm, 0, sizeof norm);
    memset(&dense, 0, sizeof dense);
    memset(&compile, 0, sizeof compile);
    conv.filters = dense.units = 3;
    conv.kernel[0] = 3;
    conv.padding = MIRT_SAME;
    conv.no_bias = true;
    norm.momentum = 0.9f;
    norm.synchronized = synchronized;
    mirt_tensor *x = mirt_batch_norm(mirt_conv2d(mirt_input(m, MIRT_SHAPE(4, 3, 2)), &conv), &norm);
    mirt_model_output(m, mirt_dense(mirt_global_average_pool2d(mirt_relu(x)), &dense));
    compile.optimizer = mirt_sgd(0.125f, 0, false);
    compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    compile.from_logits = true;
    return mirt_compile(m, &compile) == MIRT_OK ? m : NULL;
}

static bool set_uniform(mirt_model *m, const char *name, int64_t count, unsigned seed, float plus) {
    float values[64];
    uniform(values, count, seed, 1, plus);
    return mirt_set_weight(m, name, values, (size_t)count) == MIRT_OK;
}

static double weight_off_by(mirt_model *m, const char *name, int device, const double *golden, int64_t count) {
    float values[64];
    return mirt_get_weight(m, name, device, values, (size_t)count) == MIRT_OK ? off_by(values, golden, count)
                                                                              : INFINITY;
}

/* kernel: takes the convolution's trained kernel, or NULL. */
static void check_training(const golden_training *c, int devices, int replicas, bool synchronized, float *kernel) {
    static float pixels[SEVEN_IMAGES];
    int32_t labels[7];
    double loss, error = 0;
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    mirt_model *m = training_model(s, synchronized);
    mirt_logs logs;
    uniform(pixels, SEVEN_IMAGES, 800, 1, 0);
    for (int i = 0; i < 7; i++) labels[i] = i % 3;
    const mirt_array x = mirt_make_array(pixels, MIRT_FLOAT32, MIRT_SHAPE(7, 4, 3, 2)),
                     y = mirt_make_array(labels, MIRT_INT32, MIRT_SHAPE(7));
    bool good = m && set_uniform(m, "conv2d/kernel", 54, 801, 0) &&
                set_uniform(m, "batch_normalization/gamma", 3, 802, 1.5f) &&
                set_uniform(m, "batch_normalization/beta", 3, 803, 0) && set_uniform(m, "dense/kernel", 9, 804, 0);
    for (int step = 0; good && step < 4; step++) {
        good = mirt_train_step(m, x, y, &loss) == MIRT_OK;
        error = worse(error, fabs(loss - c->loss[step]));
    }
    for (int d = 0; good && d < devices; d++) {
        error = worse(error, weight_off_by(m, "conv2d/kernel", d, c->kernel, 54));
        error = worse(error, weight_off_by(m, "batch_normalization/gamma", d, c->gamma, 3));
        error = worse(error, weight_off_by(m, "batch_normalization/beta", d, c->beta, 3));
        error = worse(error, weight_off_by(m, "batch_normalization/moving_mean", d, c->moving_mean, 3));
        error = worse(error, weight_off_by(m, "batch_normalization/moving_variance", d, c->moving_variance, 3));
    }
    if (good && kernel) good = mirt_get_weight(m, "conv2d/kernel", 0, kernel, 54) == MIRT_OK;
    good = good && mirt_evaluate_arrays(m, x, y, &logs) == MIRT_OK;
    if (good) error = worse(error, fabs(logs.value[0] - c->evaluated));
    ok(good && error < 2e-6, "training, %d devices, %d replicas, %s statistics: off by %.1e%s%s", devices, replicas,
       synchronized ? "synchronized" : "own", error, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
}

/* Synchronized statistics are those of one replica, however many there are, some without rows. */
static void check_trainings(void) {
    for (int i = 0; i < MIRT__COUNT(golden_training_cases); i++) {
        const golden_training *c = &golden_training_cases[i];
        for (int devices = 1; devices <= c->replicas; devices++) check_training(c, devices, c->replicas, false, NULL);
        for (int replicas = 1; c->replicas == 1 && replicas <= 9; replicas += replicas < 3 ? 1 : 6) {
            float kernel[2][54];
            check_training(c, 1, replicas, true, kernel[0]);
            for (int devices = 2; devices <= replicas && devices <= 3; devices++) {
                check_training(c, devices, replicas, true, kernel[1]);
                ok(memcmp(kernel[0], kernel[1], sizeof kernel[0]) == 0,
                   "%d devices train %d replicas to the bits of one", devices, replicas);
            }
        }
    }
}

/* A frozen layer computes in training what it computes in inference, and keeps its weights. */
static void check_frozen(void) {
    static const char *const name[] = {"gamma", "beta", "moving_mean", "moving_variance"};
    static float pixels[SEVEN_IMAGES];
    int32_t labels[7] = {0, 1, 2, 0, 1, 2, 0};
    float before[4][3], after[3], kernel[2][54];
    double loss = 0;
    mirt_strategy *s = strategy_of(2, 3, 1);
    mirt_model *m = training_model(s, true);
    mirt_logs logs;
    uniform(pixels, SEVEN_IMAGES, 800, 1, 0);
    const mirt_array x = mirt_make_array(pixels, MIRT_FLOAT32, MIRT_SHAPE(7, 4, 3, 2)),
                     y = mirt_make_array(labels, MIRT_INT32, MIRT_SHAPE(7));
    mirt_compile_desc compile = image_compile(mirt_sgd(0.125f, 0, false));
    bool good = m && mirt_train_step(m, x, y, &loss) == MIRT_OK &&
                mirt_set_trainable(m, "batch_normalization", false) == MIRT_OK &&
                mirt_compile(m, &compile) == MIRT_OK && mirt_evaluate_arrays(m, x, y, &logs) == MIRT_OK &&
                mirt_get_weight(m, "conv2d/kernel", 0, kernel[0], 54) == MIRT_OK;
    char full[64];
    for (int i = 0; good && i < 4; i++) {
        snprintf(full, sizeof full, "batch_normalization/%s", name[i]);
        good = mirt_get_weight(m, full, 0, before[i], 3) == MIRT_OK;
    }
    good = good && mirt_train_step(m, x, y, &loss) == MIRT_OK &&
           mirt_get_weight(m, "conv2d/kernel", 0, kernel[1], 54) == MIRT_OK;
    ok(good && fabs(loss - logs.value[0]) < 1e-6 && memcmp(kernel[0], kernel[1], sizeof kernel[0]) != 0,
       "frozen: the loss of training is that of inference%s%s", good ? "" : ": ", good ? "" : mirt_last_error());
    for (int i = 0; good && i < 4; i++) {
        snprintf(full, sizeof full, "batch_normalization/%s", name[i]);
        ok(mirt_get_weight(m, full, 0, after, 3) == MIRT_OK && memcmp(before[i], after, sizeof after) == 0,
           "frozen: %s stays", name[i]);
    }
    mirt_strategy_destroy(s);
}

/* >>wrong calls */

enum {
    SMALL_RANK, CHANNELS, NO_STRIDE, LARGE_STRIDE, DEPTH, NO_SIZE, LARGE_SIZE, INTEGERS, AXES, WRONG_GAMMA, REFUSALS
};
static mirt_tensor *refused(int what) {
    const int none[2] = {2, 0}, large[2] = {1 << 30, 1};
    mirt__graph *g = &o.program.graph;
    mirt_shape flat = mirt_make_shape(3, 4, 0, 0, 0, 0), image = mirt_make_shape(1, 3, 4, 2, 0, 0);
    mirt_tensor *vector = mirt__variable_op(g, 0, &flat), *kernel = weight(MIRT_SHAPE(3, 3, 5, 2)),
                *other = weight(MIRT_SHAPE(3, 3, 5, 4));
    mirt__attrs a = mirt__attrs_of(MIRT__OP_conv2d), norm = mirt__attrs_of(MIRT__OP_normalize);
    mirt__attrs_window *w = MIRT__OF(&a, window);
    w->strides[0] = w->strides[1] = w->dilation[0] = w->dilation[1] = 1;
    MIRT__OF(&norm, norm)->scaling.epsilon = 1e-3f;
    MIRT__OF(&norm, norm)->last_axes = 1;
    switch (what) {
    case SMALL_RANK: return mirt__conv2d_transpose_op(vector, kernel, &a);
    case CHANNELS: return mirt__conv2d_transpose_op(o.x, other, &a);
    case NO_STRIDE: w->strides[1] = 0; return mirt__conv2d_transpose_op(o.x, kernel, &a);
    case LARGE_STRIDE: w->strides[0] = w->strides[1] = 1 << 27; return mirt__conv2d_transpose_op(o.x, kernel, &a);
    case DEPTH: return mirt__depthwise_conv2d_op(o.x, kernel, &a);
    case NO_SIZE: return mirt__upsampling2d_op(o.x, none, false);
    case LARGE_SIZE: return mirt__upsampling2d_op(o.x, large, true);
    case INTEGERS: return mirt__upsampling2d_op(mirt__input_op(g, IO_DY, MIRT_INT32, &image), large, true);
    case AXES: MIRT__OF(&norm, norm)->last_axes = 4; return mirt__layer_norm_op(o.x, NULL, NULL, &norm);
    default: return mirt__layer_norm_op(o.x, kernel, NULL, &norm);
    }
}

static void check_refusals(void) {
    for (int what = 0; what < REFUSALS; what++) {
        begin(1, 3, 4, 2);
        mirt_tensor *y = refused(what);
        ok(!y && o.program.graph.status != MIRT_OK && strlen(mirt_last_error()) > 20, "wrong call %d: %s", what,
           mirt_last_error());
        end();
    }
}

/* >>statistics far from zero */

enum { FAR_ROWS = 1000, FAR_COLUMNS = 7, MANY_ROWS = 140001 };
static float far_x[MANY_ROWS], far_mean[FAR_ROWS], far_variance[FAR_ROWS];

/* The largest relative errors of mean and variance, of columns or of rows. */
static void far_errors(const mirt__kernels *kernels, bool by_row, int64_t rows, int64_t n, double error[2]) {
    mirt__norm s;
    mirt__where where;
    memset(&s, 0, sizeof s);
    memset(&where, 0, sizeof where);
    s.rows = rows;
    s.n = n;
    s.by_row = by_row;
    s.x = far_x;
    s.out[0] = far_mean;
    s.out[1] = far_variance;
    where.shared = mirt__aligned_alloc(mirt__norm_shared(&s));
    where.scratch = mirt__aligned_alloc(where.scratch_per_thread = mirt__norm_scratch(&s));
    kernels->norm_stats(&s, &where);
    mirt__aligned_free(where.shared);
    mirt__aligned_free(where.scratch);
    error[0] = error[1] = 0;
    for (int64_t i = 0; i < (by_row ? rows : n); i++) {
        const int64_t count = by_row ? n : rows, first = by_row ? i * n : i, step = by_row ? 1 : n;
        double mean = 0, variance = 0;
        for (int64_t k = 0; k < count; k++) mean += (double)far_x[first + k * step] / (double)count;
        for (int64_t k = 0; k < count; k++) variance += pow((double)far_x[first + k * step] - mean, 2) / (double)count;
        error[0] = worse(error[0], fabs((double)far_mean[i] - mean) / fabs(mean));
        error[1] = worse(error[1], fabs((double)far_variance[i] - variance) / variance);
    }
}

static void check_far(const mirt__kernels *kernels) {
    double error[2];
    for (int outliers = 0; outliers < 2; outliers++) {
        /* Mean 1e4, variance 1: deviations of one, 256 of them added in float. Then with the first
           eighth of the rows of a chunk at zero, which is what a chunk is shifted by: the others
           deviate by 1e4, sqrt(8) standard deviations of the whole. */
        const double most[2] = {outliers ? 1e-6 : 1.2e-7, outliers ? 1e-5 : 2e-6};
        uniform(far_x, FAR_ROWS * FAR_COLUMNS, 700, sqrtf(3), 1e4f);
        for (int i = 0; outliers && i < FAR_ROWS; i++) {
            for (int j = 0; i % 256 < 32 && j < FAR_COLUMNS; j++) far_x[i * FAR_COLUMNS + j] = 0;
        }
        far_errors(kernels, false, FAR_ROWS, FAR_COLUMNS, error);
        ok(error[0] < most[0] && error[1] < most[1], "columns far from zero%s, %s: mean off by %.1e, variance by %.1e",
           outliers ? " with outliers" : "", kernels->name, error[0], error[1]);
        far_errors(kernels, true, FAR_COLUMNS, FAR_ROWS, error);
        ok(error[0] < most[0] && error[1] < most[1], "rows far from zero%s, %s: mean off by %.1e, variance by %.1e",
           outliers ? " with outliers" : "", kernels->name, error[0], error[1]);
    }
    /* More rows than chunks of the smallest size are worth. */
    uniform(far_x, MANY_ROWS, 701, sqrtf(3), 100);
    far_errors(kernels, false, MANY_ROWS, 1, error);
    ok(error[0] < 1.2e-7 && error[1] < 2e-6, "a column of %d numbers, %s: mean off by %.1e, variance by %.1e",
       MANY_ROWS, kernels->name, error[0], error[1]);
}

int main(void) {
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    for (int t = 0; t < tables; t++) {
        for (int i = 0; i < MIRT__COUNT(golden_batch_norm_cases); i++)
            check_batch_norm(&golden_batch_norm_cases[i], table[t]);
        for (int i = 0; i < MIRT__COUNT(golden_layer_cases); i++) check_layer(&golden_layer_cases[i], table[t]);
        for (int calls = 1; calls < 4; calls++) check_calls(calls, table[t]);
        check_far(table[t]);
    }
    check_lowering();
    check_refusals();
    check_trainings();
    check_frozen();
    return done_testing();
}
