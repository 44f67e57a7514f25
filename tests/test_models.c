/* Ready-made networks: layers, weights and sizes of every one against keras.applications; what small ones compute
   against float64 Keras (golden/networks.h); stochastic depth; what is refused; saving, freezing, replicas. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/networks.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

#define ZEROED(type, name) type name; memset(&name, 0, sizeof name)

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

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void put(lines *l, const char *format, ...) {
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
    static const char *const fans[] = {"fan_in", "fan_out", "fan_avg"}, *const kinds[] = {"truncated_normal", "untruncated_normal", "uniform"};
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
        put(l, " %s", mirt__activation_get(((const mirt__activation_desc *)layer->desc)->activation)->name);
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
    for (int i = 1; m && i < m->num_layers; i++) put_layer(&layer_lines, m->layer[i]); /* behind the input */
    for (int i = 0; i < mirt_num_weights(m); i++) {
        mirt_weight_info w;
        mirt_weight(m, i, &w);
        parameters += w.count;
        trained += w.trainable ? w.count : 0;
        put(&weight_lines, "%s ", w.name);
        put_dims(&weight_lines, &w.shape, 0);
        end_line(&weight_lines);
    }
    ok(m && strcmp(m->name, g->model) == 0 && parameters == g->parameters && trained == g->trained, "%s (%s): %lld parameters, %lld trained (Keras %lld, %lld)",
       g->name, g->model, parameters, trained, g->parameters, g->trained);
    ok(layer_lines.count == g->num_layers && layer_lines.hash == g->layers && weight_lines.count == g->num_weights && weight_lines.hash == g->weights,
       "%s: its %d layers and %d weights are Keras's, recorded in %.0f ms", g->model, layer_lines.count, weight_lines.count, 1e3 * took);
    mirt_model_destroy(m);
}

/* >>values */

static float weight_values[4 << 20];

/* Weight number k of the golden networks. */
static void golden_weight(int k, const mirt_weight_info *w, double gain, float *out) {
    const char *name = strrchr(w->name, '/') + 1;
    double scale = 0.25, shift = 0;
    if (strcmp(name, "kernel") == 0) {
        int64_t fan_in = 1;
        int axes = w->shape.dim[w->shape.rank - 1] > 1 ? w->shape.rank - 1 : w->shape.rank - 2; /* depthwise: the window */
        for (int i = 0; i < axes; i++) fan_in *= w->shape.dim[i];
        for (scale = 1; scale * scale * (double)fan_in > 6;) scale /= 2;
        scale *= gain;
    } else if (strcmp(name, "gamma") == 0) {
        shift = 1;
    } else if (strcmp(name, "moving_variance") == 0) {
        scale = 0.5;
        shift = 1;
    }
    for (int64_t i = 0; i < w->count; i++) out[i] = (float)(shift + scale * golden_uniform((uint32_t)(100 + k), (uint32_t)i));
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
    ok(status == MIRT_OK && worst <= 1e-4 * most, "%s: logits within %.1e of the largest, %.4g", g->name, worst / most, most);
    status = mirt_train_step(m, pixels_x(), labels_y(), &loss);
    ok(status == MIRT_OK && fabs(loss - g->loss) <= 1e-4 * fabs(g->loss), "%s: loss in training %.7g, Keras %.7g", g->name, loss, g->loss);
    mirt_model_destroy(m);
}

int main(void) {
    strategy = strategy_of(1, 1, 1);
    snprintf(path, sizeof path, "%s/mirt_models_%ld.safetensors", tap_tmpdir(), (long)getpid());
    for (size_t i = 0; i < sizeof golden_networks / sizeof golden_networks[0]; i++) check_structure(&golden_networks[i]);
    draw();
    for (size_t i = 0; i < sizeof golden_forwards / sizeof golden_forwards[0]; i++) check_values(&golden_forwards[i]);
    mirt_strategy_destroy(strategy);
    return done_testing();
}
