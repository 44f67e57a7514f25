#include "../ops/ops.h"
#include "inspect.h"
/* The classic mistakes of training on several devices, told once a model, each with what to do. */

typedef enum mirt__trap {
    MIRT__TRAP_SHARES = 1,
    MIRT__TRAP_MEMORY = 2,
    MIRT__TRAP_SCALE = 4,
    MIRT__TRAP_SAME = 8,
    MIRT__TRAP_RANDOM = 16
} mirt__trap;

/* Whether it is the first time, and nobody else says the same: processes that train together have one model and the
   same batches, but memory of their own. */
static bool mirt__trap_first(const mirt_model *model, mirt__trap trap) {
    mirt_model *own = (mirt_model *)model;
    const bool first = !(own->traps & (unsigned)trap);
    own->traps |= (unsigned)trap;
    return first && (trap == MIRT__TRAP_MEMORY || mirt__writes_files(model->strategy));
}

/* >>before fit */

/* A global batch is dealt to all replicas, which is easily forgotten in both directions. */
static void mirt__trap_shares(const mirt_model *model, int64_t batch) {
    const mirt_strategy *s = model->strategy;
    const int64_t replicas = s->num_replicas, least = batch / replicas, more = batch % replicas;
    char rest[64] = "";
    if (replicas == 1) return;
    if (more) snprintf(rest, sizeof rest, " + %lld x %lld", (long long)(replicas - more), (long long)least);
    mirt__log(s, MIRT_LOG_INFO, "global batch %lld = %lld x %lld%s (replicas x samples)", (long long)batch,
              (long long)(more ? more : replicas), (long long)(more ? least + 1 : least), rest);
    if (least >= 8 || !mirt__trap_first(model, MIRT__TRAP_SHARES)) return;
    mirt__log(s, MIRT_LOG_WARNING,
              "a batch is the global batch: %lld samples on %lld replicas are %lld each%s, of which a device makes "
              "little use; if %lld were meant for each, "
              "a batch is %lld",
              (long long)batch, (long long)replicas, (long long)least, least ? "" : " or none at all", (long long)batch,
              (long long)(batch * replicas));
}

/* Two digits of it. */
static int64_t mirt__trap_rounded(double value) {
    int64_t unit = 1;
    while (value / (double)unit >= 100 && unit < INT64_MAX / 1000) unit *= 10;
    return value > 0 ? (int64_t)(value / (double)unit) * unit : 0;
}

static void mirt__trap_memory(mirt_model *model, const mirt_function *f, int64_t batch) {
    mirt_memory m;
    mirt_machine_info machine;
    if (mirt_machine(&machine) != MIRT_OK || !machine.memory_available) return;
    mirt__memory_of(model, f, &m);
    /* Weights stay as large as they are, all else grows with the batch. */
    const double devices = model->strategy->num_devices,
                 fixed = (double)(m.weights + m.gradients) * devices + (double)m.slots;
    const double available = (double)machine.memory_available,
                 about = (available - fixed) / ((double)m.total - fixed) * (double)batch;
    mirt__log(model->strategy, MIRT_LOG_INFO,
              "memory: %s planned, a device weights %s, gradients %s, activations %s, scratch %s; %s are free, enough "
              "for batches of about %lld",
              mirt__bytes_text((double)m.total).text, mirt__bytes_text((double)m.weights).text,
              mirt__bytes_text((double)m.gradients).text, mirt__bytes_text((double)m.activations).text,
              mirt__bytes_text((double)m.scratch).text, mirt__bytes_text(available).text,
              (long long)mirt__trap_rounded(about));
    if ((double)m.total <= available || !mirt__trap_first(model, MIRT__TRAP_MEMORY)) return;
    const int64_t largest = mirt_largest_batch(model, 0);
    mirt__log(model->strategy, MIRT_LOG_WARNING,
              "%s takes %s to train on batches of %lld, and %s are free: the system may end the program; a batch of "
              "%lld fits",
              model->name, mirt__bytes_text((double)m.total).text, (long long)batch, mirt__bytes_text(available).text,
              (long long)largest);
}

/* Whether the layer has frozen weights, all of which the initializers drew. */
static bool mirt__trap_drawn(const mirt_model *model, const mirt__layer *layer) {
    bool drawn = false;
    for (int i = layer->first_variable; i < layer->first_variable + layer->num_variables; i++) {
        const mirt__variable *v = &model->variable[i];
        if (!v->trainable || !v->frozen) continue;
        if (v->loaded) return false;
        const mirt_initializer_kind kind = v->initializer.kind;
        drawn = drawn || (kind != MIRT_INIT_ZEROS && kind != MIRT_INIT_ONES && kind != MIRT_INIT_CONSTANT);
    }
    return drawn;
}

/* A frozen base without pretrained weights is random features. Layers of the model itself count as one base. */
MIRT__LIB void mirt__trap_random(const mirt_model *model) {
    const mirt__layer *first = NULL, *part = NULL;
    bool loaded = false;
    int layers = 0;
    for (int i = 0; i < model->num_layers; i++) {
        const mirt__layer *layer = model->layer[i];
        mirt_training training;
        const bool drawn = mirt__trap_drawn(model, layer), is_part = mirt__layer_part(layer, &training) != NULL;
        if (drawn && is_part && !part) part = layer;
        if (drawn && !is_part && !layers++) first = layer;
        for (int k = 0; k < layer->num_variables && !is_part; k++) {
            const mirt__variable *v = &model->variable[layer->first_variable + k];
            loaded = loaded || (v->trainable && v->frozen && v->loaded);
        }
    }
    if (!part && (!layers || loaded)) return;
    if (!mirt__trap_first(model, MIRT__TRAP_RANDOM)) return;
    const char *name = part ? part->name : first->name;
    char more[48] = "";
    if (!part && layers > 1) snprintf(more, sizeof more, " and %d more layers are", layers - 1);
    mirt__log(
        model->strategy, MIRT_LOG_WARNING,
        "%s: %s%s frozen with the random weights of its initializers, which training does not change: load pretrained "
        "weights (mirt_load_weights, mirt_load_weights_partial or .weights of the network), or let it be trained "
        "(mirt_set_trainable)",
        model->name, name, *more ? more : " is");
}

MIRT__LIB void mirt__traps_before(mirt_model *model, const mirt__data_spec *spec, const mirt_function *f) {
    if (model->told_batch == spec->batch) return;
    model->told_batch = spec->batch;
    mirt__trap_shares(model, spec->batch);
    mirt__trap_memory(model, f, f->step.max_rows);
}

/* >>the first batch */

/* The layer that multiplies input number `input` as it comes with weights; NULL: none does, as it is scaled, normalized
   or looked up first. */
static const mirt__node *mirt__trap_reader(const mirt_model *model, int input) {
    for (int i = 0; i < model->graph.count; i++) {
        const mirt__node *node = model->graph.node[i];
        if (!node->op->multiplies) continue;
        if (node->in[1]->node->id == MIRT__OP_constant) continue; /* mirt_normalization */
        const mirt__node *at = node->in[0]->node;
        while (at->op->keeps_range) at = at->in[0]->node;
        if (at == model->input[input]->node) return node;
    }
    return NULL;
}

/* The largest magnitude among at most some ten thousand values, which are from all rows. */
static double mirt__trap_magnitude(const mirt__data_field *field, const void *data, int64_t rows) {
    const int64_t count = rows * mirt__shape_count(&field->shape), stride = count / 16384 + 1;
    double most = 0;
    for (int64_t i = 0; i < count; i += stride) {
        const double value = fabs(mirt__element(data, field->dtype, i));
        if (value > most) most = value;
    }
    return most;
}

static void mirt__trap_scale(const mirt_model *model, const mirt__data_spec *spec, const mirt__batch *batch) {
    for (int i = 0; i < model->num_inputs; i++) {
        const char *first = (const char *)batch->field[i] + (size_t)batch->begin * spec->field[i].bytes;
        const int64_t rows = batch->met ? batch->end - batch->begin : batch->rows;
        const double most = mirt__trap_magnitude(&spec->field[i], first, rows);
        const mirt__node *reader = most > 20 ? mirt__trap_reader(model, i) : NULL;
        if (!reader || !mirt__trap_first(model, MIRT__TRAP_SCALE)) continue;
        mirt__log(model->strategy, MIRT_LOG_WARNING,
                  "the inputs reach %.4g, and %s of %s takes them as they are: training is slow or diverges then; "
                  "scale them to about 1, by %s",
                  most, reader->name ? reader->name : "a layer", model->name,
                  spec->field[i].dtype == MIRT_UINT8 || most <= 255
                      ? "mirt_rescale(x, 1.0f / 255, 0) behind mirt_input"
                      : "mirt_rescale or mirt_batch_norm behind mirt_input");
    }
}

/* Every replica with the first one's samples: the program dealt the batch itself, and the library deals what it
   gave. */
static bool mirt__trap_equal_shares(const mirt_model *model, const mirt__data_spec *spec, const mirt__batch *batch) {
    const int64_t replicas = model->strategy->num_replicas, each = batch->rows / replicas;
    bool varied = false; /* constant data say nothing */
    if (replicas == 1 || each < 2 || batch->rows % replicas) return false;
    for (int i = 0; i < spec->num_x; i++) {
        const char *data = (const char *)batch->field[i];
        const size_t row = spec->field[i].bytes, share = row * (size_t)each;
        if (memcmp(data, data + share, (size_t)(replicas - 1) * share) != 0) return false;
        varied |= memcmp(data, data + row, row) != 0;
    }
    return varied;
}

MIRT__LIB void mirt__traps_in_batch(const mirt_model *model, const mirt__data_spec *spec, const mirt__batch *batch) {
    if (!spec->features) mirt__trap_scale(model, spec, batch);
    if (!mirt__trap_equal_shares(model, spec, batch) || !mirt__trap_first(model, MIRT__TRAP_SAME)) return;
    mirt__log(model->strategy, MIRT_LOG_WARNING,
              "all %d replicas get the same %lld samples in the first batch: they do one replica's work. Hand in "
              "different ones: the library deals a global batch to "
              "the replicas by itself",
              model->strategy->num_replicas, (long long)(batch->rows / model->strategy->num_replicas));
}
