/* Tests ready-made networks: layers, weights and sizes of each against keras.applications and torchvision. Also results
   of small ones in float64 (golden/networks.h), stochastic depth, errors, saving, freezing, replicas, devices. */
#include "../mirrortrain.h"
#include "../src/nn/layers_activation.c"
#include "../src/nn/layers_core.c"
#include "golden/layers.h"
#include "golden/networks.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

static mirt_strategy *strategy;
static char path[512];

/* >>structure */

typedef struct lines {
    char text[1 << 16];
    size_t size;
    uint64_t hash;
    int count;
} lines;
static lines layer_lines, weight_lines;

TAP_FORMAT(2) static void put(lines *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int size = vsnprintf(l->text + l->size, sizeof l->text - l->size, format, args);
    va_end(args);
    if (size > 0 && l->size + (size_t)size < sizeof l->text) l->size += (size_t)size;
}

/* FNV-1a of what was put since the last line. */
static void end_line(lines *l) {
    put(l, "\n");
    for (size_t i = 0; i < l->size; i++) l->hash = (l->hash ^ (unsigned char)l->text[i]) * 0x100000001B3u;
    if (getenv("MIRT_LINES")) printf("# %.*s", (int)l->size, l->text);
    l->size = 0;
    l->count++;
}

static void start(lines *l) {
    l->size = 0;
    l->count = 0;
    l->hash = 0xCBF29CE484222325u;
}

static void put_dims(lines *l, const mirt_shape *shape, int first) {
    for (int i = first; i < shape->rank; i++) put(l, "%s%lld", i > first ? "," : "", (long long)shape->dim[i]);
}

static void put_initializer(lines *l, const mirt_initializer *i) {
    static const char *const fans[] = {"fan_in", "fan_out", "fan_avg"}, *const kinds[] = {"truncated_normal",
                                                                                          "untruncated_normal",
                                                                                          "uniform"};
    put(l, " %.5g %s %s", (double)i->a, fans[i->mode], kinds[i->distribution]);
}

/* As layer_line in make_networks.py. */
static void put_layer(lines *l, const mirt__layer *layer) {
    const char *kind = layer->cls->class_name;
    put(l, "%s %s ", kind, layer->name);
    put_dims(l, &layer->out[0]->shape, 1);
    if (strcmp(kind, "BatchNormalization") == 0) {
        const mirt_batch_norm_desc *d = (const mirt_batch_norm_desc *)layer->desc;
        put(l, " %.6g %.6g", (double)d->momentum, (double)d->epsilon);
    } else if (strcmp(kind, "Rescaling") == 0) {
        const mirt__rescaling_desc *d = (const mirt__rescaling_desc *)layer->desc;
        put(l, " %.6g %.6g", (double)d->scale, (double)d->offset);
    } else if (strcmp(kind, "Normalization") == 0) {
        const mirt_normalization_desc *d = (const mirt_normalization_desc *)layer->desc;
        for (int i = 0; i < 3; i++) put(l, " %.6g %.6g", (double)d->mean[i], (double)d->variance[i]);
    } else if (strcmp(kind, "Dropout") == 0) {
        const mirt_dropout_desc *d = (const mirt_dropout_desc *)layer->desc;
        put(l, " %.5f %s", (double)d->rate, d->noise_shape.rank ? "rows" : "elements");
    } else if (strcmp(kind, "Conv2D") == 0) {
        const mirt_conv2d_desc *d = (const mirt_conv2d_desc *)layer->desc;
        put_initializer(l, &d->kernel_initializer);
        put(l, " %s", mirt__activation_get(d->activation)->name);
    } else if (strcmp(kind, "Dense") == 0) {
        const mirt_dense_desc *d = (const mirt_dense_desc *)layer->desc;
        put_initializer(l, &d->kernel_initializer);
        put(l, " %s", mirt__activation_get(d->activation)->name);
    } else if (strcmp(kind, "DepthwiseConv2D") == 0) {
        const mirt_depthwise_conv2d_desc *d = (const mirt_depthwise_conv2d_desc *)layer->desc;
        put_initializer(l, &d->depthwise_initializer);
        put(l, " %s", mirt__activation_get(d->activation)->name);
    } else if (strcmp(kind, "Activation") == 0) {
        put(l, " %s", mirt__activation_get(*(const mirt_activation_kind *)layer->desc)->name);
    } else if (strcmp(kind, "ReLU") == 0) {
        put(l, " %g", (double)((const mirt_relu_desc *)layer->desc)->max_value);
    }
    end_line(l);
}

static void check_structure(const golden_network *g) {
    ZEROED(mirt_application_desc, d);
    d.size = g->size;
    d.classes = g->no_top ? 0 : g->classes;
    d.pooling = (mirt_pooling)g->pooling;
    d.no_top = g->no_top;
    d.alpha = (float)g->alpha;
    double began = mirt__now();
    mirt_model *m = mirt_application(strategy, g->name, &d);
    const double took = mirt__now() - began;
    long long parameters = 0, trained = 0;
    start(&layer_lines);
    start(&weight_lines);
    for (int i = 1; m && i < m->num_layers; i++) put_layer(&layer_lines, m->layer[i]); /* after the input */
    for (int i = 0; i < mirt_num_weights(m); i++) {
        mirt_weight_info w;
        mirt_weight(m, i, &w);
        parameters += w.count;
        trained += w.trainable ? w.count : 0;
        put(&weight_lines, "%s ", w.name);
        put_dims(&weight_lines, &w.shape, 0);
        end_line(&weight_lines);
    }
    ok(m && strcmp(m->name, g->model) == 0 && parameters == g->parameters && trained == g->trained,
       "%s (%s): %lld parameters, %lld trained (Keras %lld, %lld)", g->name, g->model, parameters, trained,
       g->parameters, g->trained);
    if (!g->num_layers) { /* torchvision's, whose weights alone are compared */
        start(&layer_lines);
        layer_lines.count = 0;
        layer_lines.hash = g->layers;
    }
    ok(layer_lines.count == g->num_layers && layer_lines.hash == g->layers && weight_lines.count == g->num_weights &&
           weight_lines.hash == g->weights,
       "%s: its %d layers and %d weights are %s, recorded in %.0f ms", g->model, layer_lines.count,
       weight_lines.count, g->num_layers ? "Keras's" : "torchvision's", 1e3 * took);
    mirt_model_destroy(m);
}

/* >>values */

static float weight_values[4096 * 4096]; /* of the largest layer, VGG16's fc2 */

/* Weight number k of the golden networks. */
static void golden_weight(int k, const mirt_weight_info *w, double gain, float *out) {
    const char *name = strrchr(w->name, '/') + 1;
    double scale = 0.25, shift = 0;
    if (strcmp(name, "kernel") == 0) {
        int64_t fan_in = 1;
        /* depthwise: the window */
        int axes = w->shape.dim[w->shape.rank - 1] > 1 ? w->shape.rank - 1 : w->shape.rank - 2;
        for (int i = 0; i < axes; i++) fan_in *= w->shape.dim[i];
        for (scale = 1; scale * scale * (double)fan_in > 6;) scale /= 2;
        scale *= gain;
    } else if (strcmp(name, "gamma") == 0) {
        shift = 1;
    } else if (strcmp(name, "moving_variance") == 0) {
        scale = 0.5;
        shift = 1;
    }
    for (int64_t i = 0; i < w->count; i++)
        out[i] = (float)(shift + scale * golden_uniform((uint32_t)(100 + k), (uint32_t)i));
}

static mirt_model *golden_model(const golden_forward *g, mirt_strategy *s) {
    ZEROED(mirt_application_desc, d);
    d.size = GOLDEN_NETWORK_SIZE;
    d.classes = GOLDEN_NETWORK_CLASSES;
    d.alpha = (float)g->alpha;
    d.logits = true;
    d.preprocessing = MIRT_PREPROCESSING_ON;
    d.dropout_rate = d.drop_connect_rate = -1;
    mirt_model *m = mirt_application(s, g->name, &d);
    ZEROED(mirt_compile_desc, c);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    c.optimizer = mirt_adam(1e-5f);
    mirt_compile(m, &c);
    for (int i = 0; i < mirt_num_weights(m); i++) {
        mirt_weight_info w;
        mirt_weight(m, i, &w);
        golden_weight(i, &w, g->gain, weight_values);
        if (mirt_set_weight(m, w.name, weight_values, (size_t)w.count) != MIRT_OK) printf("# %s\n", mirt_last_error());
    }
    return m;
}

enum { ROWS = GOLDEN_NETWORK_ROWS, SIZE = GOLDEN_NETWORK_SIZE, CLASSES = GOLDEN_NETWORK_CLASSES };
static uint8_t pixels[ROWS * SIZE * SIZE * 3], labels[ROWS];

static void draw(void) {
    for (uint32_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(golden_word(7, i) >> 24);
    for (int i = 0; i < ROWS; i++) labels[i] = (uint8_t)(i % CLASSES);
}
static mirt_array pixels_x(void) { return mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(ROWS, SIZE, SIZE, 3)); }
static mirt_array labels_y(void) { return mirt_make_array(labels, MIRT_UINT8, MIRT_SHAPE(ROWS)); }

static void check_values(const golden_forward *g) {
    mirt_model *m = golden_model(g, strategy);
    float logits[ROWS * CLASSES];
    double most = 0, worst = 0, loss = NAN;
    memset(logits, 0, sizeof logits);
    mirt_status status = mirt_predict_arrays(m, pixels_x(), logits, ROWS * CLASSES);
    for (int i = 0; i < ROWS * CLASSES; i++) {
        most = fmax(most, fabs(g->logits[i]));
        worst = fmax(worst, fabs((double)logits[i] - g->logits[i]));
    }
    ok(status == MIRT_OK && worst <= 1e-4 * most, "%s: logits within %.1e of the largest, %.4g", g->name, worst / most,
       most);
    status = mirt_train_step(m, pixels_x(), labels_y(), &loss);
    ok(status == MIRT_OK && fabs(loss - g->loss) <= 1e-4 * fabs(g->loss), "%s: loss in training %.7g, Keras %.7g",
       g->name, loss, g->loss);
    mirt_model_destroy(m);
}

/* >>stochastic depth */

enum { NOISE_ROWS = 24, NOISE_H = 2, NOISE_W = 3, NOISE_C = 5, NOISE = NOISE_H * NOISE_W * NOISE_C };
static float ones[NOISE_ROWS][NOISE], dropped[NOISE_ROWS][NOISE], dropped_2[NOISE_ROWS][NOISE];

static bool drop_body(mirt_function *f, void *user) {
    return mirt_function_result(f, "y", mirt_call((mirt_model *)user, mirt_function_x(f, 0), MIRT_TRAINING_ON)) ==
           MIRT_OK;
}

/* Ones through a layer in training, with so many replicas. */
static bool pass_ones(int replicas, mirt_tensor *(*layer)(mirt_tensor *x), float (*out)[NOISE]) {
    mirt_strategy *s = strategy_of(1, replicas, 1);
    mirt_model *m = mirt_model_create(s, "drops");
    ZEROED(mirt_global_batch, batch);
    size_t written = 0;
    for (int i = 0; i < NOISE_ROWS * NOISE; i++) ones[i / NOISE][i % NOISE] = 1;
    mirt_model_output(m, layer(mirt_input(m, MIRT_SHAPE(NOISE_H, NOISE_W, NOISE_C))));
    mirt_compile(m, NULL);
    mirt_array x = mirt_make_array(ones, MIRT_FLOAT32, MIRT_SHAPE(NOISE_ROWS, NOISE_H, NOISE_W, NOISE_C)), none;
    memset(&none, 0, sizeof none);
    mirt_dataset *data = mirt_distribute(s, mirt_batch(mirt_arrays(x, none), NOISE_ROWS));
    mirt_function *f = mirt_function_create(m, data, drop_body, m);
    bool good = f && mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK &&
                mirt_gather_result(f, "y", &out[0][0], sizeof dropped / sizeof(float), &written) == MIRT_OK &&
                written == NOISE_ROWS * NOISE;
    if (!good) printf("# %s\n", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    return good;
}

/* Dropout(0.5, noise_shape). */
static mirt_shape noise_shape;
static mirt_tensor *noise_dropout(mirt_tensor *x) {
    ZEROED(mirt_dropout_desc, d);
    d.rate = 0.5f;
    d.noise_shape = noise_shape;
    return mirt_dropout_layer(x, &d);
}
static bool drop_ones(int replicas, mirt_shape noise, float (*out)[NOISE]) {
    noise_shape = noise;
    return pass_ones(replicas, noise_dropout, out);
}

static mirt_tensor *spatial(mirt_tensor *x) { return mirt_spatial_dropout2d(x, 0.5f); }
static mirt_tensor *noisy(mirt_tensor *x) { return mirt_gaussian_noise(x, 0.25f); }
static mirt_tensor *gaussian(mirt_tensor *x) { return mirt_gaussian_dropout(x, 0.8f); } /* sqrt(0.8 / 0.2) is 2 */
static mirt_tensor *alpha(mirt_tensor *x) {
    ZEROED(mirt_dropout_desc, d);
    d.rate = 0.5f;
    return mirt_alpha_dropout(x, &d);
}

static void check_alpha_dropout(void) {
    bool good = pass_ones(1, alpha, dropped);
    int kept = 0, odd = 0;
    for (int i = 0; i < NOISE_ROWS * NOISE; i++) {
        const double value = (double)dropped[i / NOISE][i % NOISE];
        kept += fabs(value - golden_alpha_dropout[1]) < 1e-6;
        odd += fabs(value - golden_alpha_dropout[0]) < 1e-6;
    }
    ok(good && kept + odd == NOISE_ROWS * NOISE && kept > NOISE_ROWS * NOISE / 3 && kept < NOISE_ROWS * NOISE * 2 / 3,
       "AlphaDropout: Keras's values of ones, %d of %d are kept", kept, NOISE_ROWS * NOISE);
    good = pass_ones(5, alpha, dropped_2);
    ok(good && memcmp(dropped, dropped_2, sizeof dropped) == 0, "the same with five replicas");
}

static void check_spatial_dropout(void) {
    bool good = pass_ones(1, spatial, dropped);
    int kept = 0, odd = 0;
    for (int i = 0; i < NOISE_ROWS * NOISE; i++) {
        const float value = dropped[i / NOISE][i % NOISE];
        kept += value == 2;
        odd += value != dropped[i / NOISE][i % NOISE_C] || (value != 0 && value != 2);
    }
    ok(good && !odd && kept > NOISE_ROWS * NOISE / 3 && kept < NOISE_ROWS * NOISE * 2 / 3,
       "SpatialDropout2D: whole channels, %d of %d are kept", kept, NOISE_ROWS * NOISE);
    good = pass_ones(5, spatial, dropped_2);
    ok(good && memcmp(dropped, dropped_2, sizeof dropped) == 0, "the same with five replicas");
}

/* The moments of NOISE_ROWS * NOISE numbers, within four of their standard errors. */
static void check_noise(const char *name, mirt_tensor *(*layer)(mirt_tensor *x), double deviation) {
    bool good = pass_ones(1, layer, dropped);
    const int count = NOISE_ROWS * NOISE;
    double mean = 0, square = 0, fourth = 0, beyond = 0;
    int same = 0;
    for (int i = 0; i < count; i++) {
        const double z = ((double)dropped[i / NOISE][i % NOISE] - 1) / deviation;
        mean += z / count;
        square += z * z / count;
        fourth += z * z * z * z / count;
        beyond += fabs(z) > 1.959964 ? 1.0 / count : 0;
        same += i >= NOISE && dropped[i / NOISE][i % NOISE] == dropped[i / NOISE - 1][i % NOISE];
    }
    const double error = 4 / sqrt(count);
    ok(good && fabs(mean) < error && fabs(square - 1) < error * sqrt(2.0) && fabs(fourth - 3) < error * sqrt(96.0) &&
           fabs(beyond - 0.05) < error * sqrt(0.0475) && !same,
       "%s: mean %.3f, variance %.3f, fourth moment %.2f, %.3f beyond 1.96", name, mean, square, fourth, beyond);
    good = pass_ones(5, layer, dropped_2);
    ok(good && memcmp(dropped, dropped_2, sizeof dropped) == 0, "the same with five replicas");
}

static void check_stochastic_depth(void) {
    int kept = 0, odd = 0;
    bool good = drop_ones(1, MIRT_SHAPE(1, 1, 1), dropped);
    for (int r = 0; r < NOISE_ROWS; r++) {
        kept += dropped[r][0] != 0;
        for (int k = 0; k < NOISE; k++)
            odd += dropped[r][k] != dropped[r][0] || (dropped[r][k] != 0 && dropped[r][k] != 2);
    }
    ok(good && !odd && kept > 4 && kept < 20, "one draw per sample: %d of %d are kept, and doubled", kept, NOISE_ROWS);
    good = drop_ones(5, MIRT_SHAPE(1, 1, 1), dropped_2);
    ok(good && memcmp(dropped, dropped_2, sizeof dropped) == 0, "the same with five replicas");
    good = drop_ones(1, MIRT_SHAPE(1, 1, NOISE_C), dropped);
    kept = odd = 0;
    for (int r = 0; r < NOISE_ROWS; r++) {
        for (int k = 0; k < NOISE; k++) {
            kept += dropped[r][k] != 0;
            odd += dropped[r][k] != dropped[r][k % NOISE_C];
        }
    }
    ok(good && !odd && kept > NOISE_ROWS * NOISE / 3 && kept < NOISE_ROWS * NOISE * 2 / 3,
       "one draw per channel: %d of %d are kept", kept, NOISE_ROWS * NOISE);
    good = drop_ones(1, MIRT_SHAPE(NOISE_H, NOISE_W, NOISE_C), dropped);
    int agree = 0;
    for (int k = 1; k < NOISE; k++) agree += (dropped[0][k] != 0) == (dropped[0][0] != 0);
    ok(good && agree < NOISE - 1, "the whole shape: one draw per element");

    static const mirt_shape wrong[] = {
        {3, {1, 2, 1, 0, 0, 0}}, {2, {1, 1, 0, 0, 0, 0}}, {6, {1, 1, 1, 1, 1, 1}}, {-1, {0, 0, 0, 0, 0, 0}}};
    for (int i = 0; i < MIRT__COUNT(wrong); i++) {
        mirt_model *m = mirt_model_create(strategy, NULL);
        ZEROED(mirt_dropout_desc, d);
        d.noise_shape = wrong[i];
        ok(!mirt_dropout_layer(mirt_input(m, MIRT_SHAPE(4, 4, 3)), &d) && mirt_last_status() == MIRT_E_SHAPE,
           "refused: %s", mirt_last_error());
        mirt_model_destroy(m);
    }
}

/* >>models as a whole */

static mirt_compile_desc classifier(void) {
    ZEROED(mirt_compile_desc, c);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    c.optimizer = mirt_sgd(1e-3f, 0, false);
    return c;
}

static mirt_application_desc small_desc(void) {
    ZEROED(mirt_application_desc, d);
    d.size = 32;
    d.classes = CLASSES;
    d.alpha = 1;
    d.logits = true;
    d.preprocessing = MIRT_PREPROCESSING_ON;
    return d;
}

static mirt_array small_x(void) { return mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(ROWS, 32, 32, 3)); }

/* The weights after a step of two replicas. */
static mirt_model *stepped(const char *name, int devices, double *loss) {
    mirt_application_desc d = small_desc();
    mirt_compile_desc c = classifier();
    mirt_model *m = mirt_application(strategy_of(devices, 2, 1), name, &d);
    *loss = NAN;
    if (mirt_compile(m, &c) != MIRT_OK || mirt_train_step(m, small_x(), labels_y(), loss) != MIRT_OK)
        printf("# %s\n", mirt_last_error());
    return m;
}

static void check_devices(const char *name) {
    double loss, other;
    mirt_model *one = stepped(name, 1, &loss), *two = stepped(name, 2, &other);
    int different = mirt_num_weights(one) != mirt_num_weights(two) || mirt_num_weights(one) == 0;
    different += !(isfinite(loss) && loss > 0 && loss == other);
    for (int i = 0; !different && i < mirt_num_weights(one); i++) {
        mirt_weight_info w;
        mirt_weight(one, i, &w);
        const size_t count = (size_t)w.count;
        float *a = (float *)malloc(2 * count * sizeof *a);
        different += !a || mirt_get_weight(one, w.name, 0, a, count) != MIRT_OK ||
                     mirt_get_weight(two, w.name, 0, a + count, count) != MIRT_OK ||
                     memcmp(a, a + count, count * sizeof *a) != 0;
        free(a);
    }
    ok(!different, "%s: a step on two devices is bit-identical to one on one device", name);
    mirt_strategy_destroy(one->strategy);
    mirt_strategy_destroy(two->strategy);
}

static void check_trains(const char *name) {
    mirt_application_desc d = small_desc();
    mirt_compile_desc c = classifier();
    double first = NAN, last = NAN;
    mirt_model *m = mirt_application(strategy, name, &d);
    bool good = mirt_compile(m, &c) == MIRT_OK && mirt_train_step(m, small_x(), labels_y(), &first) == MIRT_OK &&
                mirt_train_step(m, small_x(), labels_y(), &last) == MIRT_OK;
    const char *text = good ? mirt_summary(m, ROWS) : NULL;
    ok(good && isfinite(first) && isfinite(last) && text && strstr(text, "predictions"), "%s trains: %.4f, %.4f%s%s",
       name, first, last, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_model_destroy(m);
}

/* Saved and loaded, a model has the same layers and logits. */
static void check_saved(const char *name) {
    mirt_application_desc d = small_desc();
    mirt_compile_desc c = classifier();
    float a[ROWS * CLASSES], b[ROWS * CLASSES];
    memset(a, 0, sizeof a);
    memset(b, 1, sizeof b);
    if (strncmp(name, "mobilenet", 9) == 0) d.alpha = 0.35f;
    mirt_model *m = mirt_application(strategy, name, &d);
    mirt_compile(m, &c);
    mirt_predict_arrays(m, small_x(), a, ROWS * CLASSES);
    mirt_status status = mirt_save(m, path, MIRT_SAVE_ALL);
    mirt_model *again = mirt_load(strategy, path);
    int other = again ? abs(again->num_layers - m->num_layers) : 1;
    for (int i = 0; !other && i < m->num_layers; i++) {
        const mirt__layer *p = m->layer[i], *q = again->layer[i];
        other += p->cls != q->cls || strcmp(p->name, q->name) != 0 ||
                 (p->cls->desc_size && p->cls->fields && !mirt__shape_equal(&p->out[0]->shape, &q->out[0]->shape));
    }
    if (again) mirt_predict_arrays(again, small_x(), b, ROWS * CLASSES);
    ok(status == MIRT_OK && again && !other && memcmp(a, b, sizeof a) == 0,
       "%s saved and loaded is the same network%s%s", name, again ? "" : ": ", again ? "" : mirt_last_error());
    if (again) { /* stochastic depth too: a step of training draws the same */
        double x = 0, y = 1;
        mirt_train_step(m, small_x(), labels_y(), &x);
        mirt_train_step(again, small_x(), labels_y(), &y);
        ok(x == y, "%s: and training is bit-identical: %.7f", name, x);
    }
    mirt_model_destroy(again);
    mirt_model_destroy(m);
}

/* A frozen base with a custom head; its loss and the gradient of the head's bias with so many replicas. */
static void frozen(int replicas, double *loss, float gradient[CLASSES], int64_t *trained, bool *unchanged) {
    mirt_strategy *s = strategy_of(1, replicas, 1);
    mirt_application_desc d = small_desc();
    mirt_compile_desc c = classifier();
    ZEROED(mirt_dense_desc, head);
    float before[24], after[24];
    d.no_top = true;
    d.classes = 0;
    d.pooling = MIRT_POOLING_AVG;
    d.drop_connect_rate = 0.5f;
    d.name = "base";
    head.units = CLASSES;
    head.name = "head";
    mirt_model *base = mirt_efficientnet_v2(s, MIRT_EFFICIENTNET_V2_B0, &d), *m = mirt_model_create(s, "tuned");
    mirt_model_output(m, mirt_dense(mirt_call(base, mirt_input(m, MIRT_SHAPE(32, 32, 3)), MIRT_TRAINING_AUTO), &head));
    mirt_set_trainable(m, "base", false);
    mirt_compile(m, &c);
    mirt_get_weight(m, "base/block1a_project_bn/moving_mean", 0, before, 16);
    bool good = mirt_scatter(m, small_x(), labels_y()) == MIRT_OK && mirt_grad(m, loss) == MIRT_OK &&
                mirt_all_reduce(m) == MIRT_OK && mirt_get_gradient(m, "head/bias", 0, gradient, CLASSES) == MIRT_OK &&
                mirt_apply(m) == MIRT_OK;
    if (!good) printf("# %s\n", mirt_last_error());
    mirt_get_weight(m, "base/block1a_project_bn/moving_mean", 0, after, 16);
    *trained = (int64_t)m->trained_bytes / 4;
    *unchanged = memcmp(before, after, 16 * sizeof *before) == 0;
    mirt_strategy_destroy(s);
}

static void check_frozen(void) {
    double one = 0, two = 1;
    float gradient[2][CLASSES];
    int64_t trained[2];
    bool unchanged[2];
    double worst = 0;
    frozen(1, &one, gradient[0], &trained[0], &unchanged[0]);
    frozen(2, &two, gradient[1], &trained[1], &unchanged[1]);
    for (int i = 0; i < CLASSES; i++) worst = fmax(worst, fabs((double)gradient[0][i] - (double)gradient[1][i]));
    ok(trained[0] < 1280 * CLASSES + 2 * 64 && unchanged[0] && unchanged[1],
       "of a frozen base nothing is trained, its statistics included");
    ok(fabs(one - two) <= 1e-6 * fabs(one) && worst <= 1e-6,
       "two replicas are one, stochastic depth included: %.7f and %.7f", one, two);
}

/* >>what is refused */

typedef struct refusal {
    const char *name;
    mirt_application_desc d;
    const char *says;
} refusal;

static void check_refusals(void) {
    for (int which = 0; which < 22; which++) {
        ZEROED(refusal, r);
        r.name = "mobilenet_v2";
        switch (which) {
        case 0: r.name = "mobilenetv2", r.says = "did you mean \"mobilenet_v2\""; break;
        case 1: r.name = "efficientnet_v2_b4", r.says = "efficientnet_v2_b"; break;
        case 2: r.name = NULL, r.says = "there is no model"; break;
        case 3: r.d.alpha = -1, r.says = "alpha is -1; it must be above 0"; break;
        case 4: r.d.alpha = NAN, r.says = "alpha is"; break;
        case 5: r.d.alpha = 17, r.says = "alpha is 17"; break;
        case 6:
            r.name = "resnet50", r.d.alpha = 0.5f, r.says = "alpha is 0.5, but this network has only one width";
            break;
        case 7: r.d.size = 31, r.says = "size is 31; it must be at least 32, since images are halved five times"; break;
        case 8: r.d.size = -5, r.says = "size is -5"; break;
        case 9: r.d.classes = -1, r.says = "classes is -1"; break;
        case 10: r.d.classes = 5, r.d.no_top = true, r.says = "classes is 5, but a network without its top"; break;
        case 11: r.d.pooling = MIRT_POOLING_MAX, r.says = "pooling"; break;
        case 12: r.d.pooling = (mirt_pooling)3, r.d.no_top = true, r.says = "invalid pooling (3)"; break;
        case 13: r.d.preprocessing = (mirt_preprocessing)-1, r.says = "invalid preprocessing (-1)"; break;
        case 14: r.d.dropout_rate = 0.5f, r.says = "dropout_rate is 0.5, but this network does not use it"; break;
        case 15:
            r.name = "efficientnet_v2_s", r.d.drop_connect_rate = 1,
            r.says = "drop_connect_rate is 1; it must be below 1";
            break;
        case 16: r.name = "efficientnet_v2_s", r.d.dropout_rate = NAN, r.says = "dropout_rate is"; break;
        case 17:
            r.name = "mobilenet_v3_large", r.d.drop_connect_rate = 0.5f,
            r.says = "drop_connect_rate is 0.5, but this network does not use it";
            break;
        case 18: r.name = "vgg16", r.d.dropout_rate = 0.5f, r.says = "dropout_rate is 0.5, but this network"; break;
        case 19: r.name = "resnet181", r.says = "did you mean \"resnet18\""; break;
        case 20: r.name = "mnist", r.d.size = 32, r.says = "28x28"; break;
        default: r.name = "mnist", r.d.no_top = true, r.says = "28x28"; break;
        }
        ok(!mirt_application(strategy, r.name, &r.d) && strstr(mirt_last_error(), r.says), "refused: %s",
           mirt_last_error());
    }
    ok(!mirt_efficientnet_v2(strategy, (mirt_efficientnet_v2_variant)7, NULL) &&
           strstr(mirt_last_error(), "mirt_efficientnet_v2: invalid variant (7)"),
       "refused: %s", mirt_last_error());
    ok(!mirt_mobilenet_v2(NULL, NULL) && mirt_last_status() == MIRT_E_INVALID, "refused: %s", mirt_last_error());
    ZEROED(mirt_application_desc, d);
    d.size = INT_MAX;
    mirt_model *m = mirt_resnet50(strategy, &d);
    ok(mirt_compile(m, NULL) == MIRT_E_SHAPE, "images beyond all memory: %s", mirt_last_error());
    mirt_model_destroy(m);
    m = mirt_model_create(strategy, NULL);
    ZEROED(mirt_normalization_desc, n);
    n.variance[1] = -1;
    ok(!mirt_normalization(mirt_input(m, MIRT_SHAPE(2, 2, 3)), &n) && strstr(mirt_last_error(), "variance -1"),
       "refused: %s", mirt_last_error());
    mirt_model_destroy(m);
    m = mirt_model_create(strategy, NULL);
    n.variance[1] = 1;
    ok(!mirt_normalization(mirt_input(m, MIRT_SHAPE(2, 2, 5)), &n) && strstr(mirt_last_error(), "at most 4"),
       "refused: %s", mirt_last_error());
    mirt_model_destroy(m);
}

int main(void) {
    strategy = strategy_of(1, 1, 1);
    snprintf(path, sizeof path, "%s/mirt_models_%ld.safetensors", tap_tmpdir(), (long)getpid());
    for (size_t i = 0; i < sizeof golden_networks / sizeof golden_networks[0]; i++)
        check_structure(&golden_networks[i]);
    draw();
    for (size_t i = 0; i < sizeof golden_forwards / sizeof golden_forwards[0]; i++) check_values(&golden_forwards[i]);
    check_spatial_dropout();
    check_noise("GaussianNoise", noisy, 0.25);
    check_noise("GaussianDropout", gaussian, 2);
    check_alpha_dropout();
    check_stochastic_depth();
    static const char *const trained[] = {"mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "resnet18",
                                          "resnet34", "resnet50", "resnet101", "vgg16", "efficientnet_v2_b0"};
    static const char *const saved[] = {"mobilenet_v2", "mobilenet_v3_small", "resnet18", "vgg16",
                                        "efficientnet_v2_b0"};
    for (int i = 0; i < MIRT__COUNT(trained); i++) {
        check_trains(trained[i]);
        check_devices(trained[i]);
    }
    for (int i = 0; i < MIRT__COUNT(saved); i++) check_saved(saved[i]);
    check_frozen();
    check_refusals();
    unlink(path);
    mirt_strategy_destroy(strategy);
    return done_testing();
}
