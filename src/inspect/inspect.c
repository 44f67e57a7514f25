#include "../passes/storage.h"
#include "../run/run.h"
#include "inspect.h"
/* Plans of memory and summaries of layers for users. */

/* Data as the model takes them: of the types seen last, or bytes and labels of the losses' own types. */
static void mirt__inspect_spec(const mirt_model *model, mirt__program_kind kind, mirt__data_spec *spec) {
    const mirt_function *seen = model->trainer ? model->trainer->function[kind] : NULL;
    memset(spec, 0, sizeof *spec);
    spec->accumulate = 1;
    const mirt__data_spec *known = seen                                    ? &seen->spec
                                   : model->trainer && kind == MIRT__TRAIN ? model->trainer->asked
                                                                           : NULL;
    if (known) {
        *spec = *known;
        return;
    }
    for (int i = 0; i < model->num_inputs; i++)
        mirt__data_add_field(spec, MIRT_UINT8, mirt__row_shape(&model->input[i]->shape));
    spec->num_x = model->num_inputs;
    for (int i = 0; i < model->num_outputs && kind == MIRT__TRAIN; i++) {
        if (!mirt__output_has_loss(model, i)) continue;
        const mirt__loss_class *cls = mirt__output_loss(model, i);
        const bool sparse = cls && cls->sparse;
        mirt_shape labels = mirt__row_shape(&model->output[i]->shape);
        labels.rank -= sparse;
        mirt__data_add_field(spec, sparse ? MIRT_UINT8 : MIRT_FLOAT32, labels);
        spec->num_y++;
    }
}

MIRT__LIB mirt_function *mirt__inspect_plan(mirt_model *model, int64_t batch, const char *caller) {
    mirt__data_spec spec;
    if (mirt__need_compiled(model, caller) != MIRT_OK) return NULL;
    const mirt__program_kind kind = mirt__num_labels(model) ? MIRT__TRAIN : MIRT__PREDICT;
    if (batch < 1)
        return mirt__fail(MIRT_E_INVALID, "a global batch of %lld: it must be positive", (long long)batch),
               (mirt_function *)NULL;
    mirt__inspect_spec(model, kind, &spec);
    mirt_function *f = mirt__trainer_dry(model, kind, &spec, batch);
    if (f) mirt__rule_set(f); /* and what the optimizer needs */
    return f;
}

MIRT__LIB void mirt__memory_of(const mirt_model *model, const mirt_function *f, mirt_memory *out) {
    const mirt__layout *l = &f->step.needs;
    size_t devices = (size_t)model->strategy->num_devices, copies = (size_t)mirt__device_copies(model->strategy),
           block = 0;
    mirt__layout_bytes(l, &block);
    out->weights = f->root->weight_bytes;
    out->gradients = l->gradients;
    out->activations = l->arena + l->replica;
    out->scratch = block - l->gradients - l->arena - l->replica;
    out->slots = (size_t)mirt__slots(&model->config) * f->root->trained_bytes;
    out->host = mirt__function_host(f);
    if (!model->strategy->able.in_place) out->slots *= devices, out->host = 0; /* of the devices' memory */
    out->total = copies * out->weights + devices * block + out->slots + out->host;
}

MIRT_API mirt_status mirt_plan_memory(mirt_model *model, int64_t batch, mirt_memory *out) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_plan_memory: no place for the answer");
    mirt_function *t = mirt__inspect_plan(model, batch, __func__);
    if (!t) return mirt_last_status();
    memset(out, 0, sizeof *out);
    mirt__memory_of(model, t, out);
    mirt__function_free(t);
    return MIRT_OK;
}

MIRT__LIB mirt__phrase mirt__bytes_text(double bytes) {
    mirt__phrase out;
    if (bytes >= 1e10) snprintf(out.text, sizeof out.text, "%.2f GB", bytes / 1e9);
    else if (bytes >= 1e5) snprintf(out.text, sizeof out.text, "%.2f MB", bytes / 1e6);
    else if (bytes >= 1e4) snprintf(out.text, sizeof out.text, "%.1f kB", bytes / 1e3);
    else snprintf(out.text, sizeof out.text, "%.0f bytes", bytes);
    return out;
}

/* Bytes of a plan as a function of the batch, between one that fits and one that does not. */
typedef struct mirt__fitting {
    double limit;
    int64_t fits, fails; /* 0: none known */
    double fits_bytes, fails_bytes;
} mirt__fitting;

/* False with the error set, unless the batch is too large for any plan: it does not fit then. */
static bool mirt__fitting_try(mirt_model *model, int64_t batch, mirt__fitting *s) {
    mirt_memory m;
    if (mirt_plan_memory(model, batch, &m) != MIRT_OK) {
        if (!s->fits || (mirt_last_status() != MIRT_E_SHAPE && mirt_last_status() != MIRT_E_NOMEM)) return false;
        s->fails = batch;
        s->fails_bytes = HUGE_VAL;
        return true;
    }
    const bool fits = (double)m.total <= s->limit;
    *(fits ? &s->fits : &s->fails) = batch;
    *(fits ? &s->fits_bytes : &s->fails_bytes) = (double)m.total;
    return true;
}

/* Plans grow almost evenly with the batch, so that a straight line between what is known says where to look; every
   third time it is the middle, lest the line mislead. */
static int64_t mirt__fitting_next(const mirt__fitting *s, int tries) {
    const double slope = (s->fails_bytes - s->fits_bytes) / (double)(s->fails - s->fits);
    const int64_t least = s->fits + 1, most = s->fails - 1;
    double at = (double)s->fits + (s->limit - s->fits_bytes) / slope;
    if (tries % 3 == 2 || !(at >= (double)least))
        at = tries % 3 == 2 ? (double)s->fits + (double)(s->fails - s->fits) / 2 : (double)least;
    return at >= (double)most ? most : (int64_t)at < least ? least : (int64_t)at;
}

MIRT_API int64_t mirt_largest_batch(mirt_model *model, uint64_t bytes_per_device) {
    MIRT__USE_MODEL(model, 0);
    const int64_t most = (int64_t)1 << 30;
    mirt__fitting s;
    memset(&s, 0, sizeof s);
    if (mirt__need_compiled(model, __func__) != MIRT_OK) return 0;
    if (!bytes_per_device && !(bytes_per_device = mirt__device_free(model))) return 0;
    s.limit = (double)bytes_per_device * model->strategy->num_devices;
    if (!mirt__fitting_try(model, 1, &s)) return 0;
    if (s.fails) {
        mirt__fail(MIRT_E_NOMEM, "not one sample fits: a step of %s takes %s, and %s are there", model->name,
                   mirt__bytes_text(s.fails_bytes).text, mirt__bytes_text(s.limit).text);
        return 0;
    }
    for (int64_t batch = 16; !s.fails && s.fits < most; batch = batch > most / 8 ? most : batch * 8) {
        if (!mirt__fitting_try(model, batch, &s)) return 0;
    }
    for (int tries = 0; s.fails && s.fails - s.fits > 1; tries++) {
        if (!mirt__fitting_try(model, mirt__fitting_next(&s, tries), &s)) return 0;
    }
    return s.fits;
}

MIRT_API mirt_status mirt_plan_macs(mirt_model *model, int64_t batch, double *out) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_plan_macs: no place for the answer");
    mirt_function *f = mirt__inspect_plan(model, batch, __func__);
    if (!f) return mirt_last_status();
    *out = 0;
    for (int i = 0; i < f->step.program.graph.count; i++) {
        const mirt__node *node = f->step.program.graph.node[i];
        if (node->op->macs) *out += node->op->macs(node, batch);
    }
    mirt__function_free(f);
    return MIRT_OK;
}

/* Whether a node of this name is the layer's, or of a model called as the layer. */
static bool mirt__is_layers(const char *name, const char *layer) {
    size_t size = strlen(layer);
    return strncmp(name, layer, size) == 0 && (name[size] == 0 || name[size] == '/');
}

/* Multiply-accumulates of one sample in the nodes that carry the layer's name. */
static double mirt__layer_macs(const mirt_model *model, const mirt__layer *layer) {
    double macs = 0;
    for (int i = 0; i < model->graph.count; i++) {
        const mirt__node *node = model->graph.node[i];
        if (node->name && node->op->macs && mirt__is_layers(node->name, layer->name)) macs += node->op->macs(node, 1);
    }
    return macs;
}

static void mirt__summary_layers(const mirt_model *model, mirt__text *out) {
    int64_t parameters = 0, trained = 0;
    double macs = 0;
    char shape[96], name[2 * MIRT__SHOWN + 4];
    int width = 42;
    for (int i = 0; i < model->num_layers; i++) {
        int wide = (int)(mirt_printable(model->layer[i]->name, NULL, 0) + strlen(model->layer[i]->cls->class_name)) + 3;
        if (wide > width && wide < 128) width = wide;
    }
    mirt__text_add(out, "Model: \"%s\"\n%-*s %-24s %12s %14s\n", mirt__shown(model->name).text, width, "Layer (type)",
                   "Output shape", "Parameters", "MACs/sample");
    for (int i = 0; i < model->num_layers; i++) {
        const mirt__layer *layer = model->layer[i];
        int64_t own = 0;
        for (int k = 0; k < layer->num_variables; k++) own += model->variable[layer->first_variable + k].count;
        snprintf(name, sizeof name, "%s (%s)", mirt__shown(layer->name).text, mirt__shown(layer->cls->class_name).text);
        mirt__text_add(out, "%-*s %-24s %12lld %14.0f\n", width, name, mirt__shape_text(&layer->out[0]->shape, shape),
                       (long long)own, mirt__layer_macs(model, layer));
        macs += mirt__layer_macs(model, layer);
    }
    for (int i = 0; i < model->num_variables; i++) { /* those outside of layers too */
        parameters += model->variable[i].count;
        trained += mirt__is_trained(&model->variable[i]) ? model->variable[i].count : 0;
    }
    mirt__text_add(out, "Total parameters: %lld (%s), %.*f million multiply-accumulates a sample\n",
                   (long long)parameters, mirt__bytes_text((double)parameters * sizeof(mirt__real)).text,
                   macs < 1e9 ? 3 : 0, macs / 1e6);
    if (trained != parameters)
        mirt__text_add(out, "Trainable: %lld, not trainable: %lld\n", (long long)trained,
                       (long long)(parameters - trained));
}

static void mirt__summary_memory(const mirt_model *model, const mirt_function *t, int64_t batch, mirt__text *out) {
    mirt_memory m;
    memset(&m, 0, sizeof m);
    mirt__memory_of(model, t, &m);
    mirt__text_add(out, "%s with a global batch of %lld on %d device%s, %d replica%s:\n",
                   mirt__num_labels(model) ? "Training" : "Predicting", (long long)batch, model->strategy->num_devices,
                   model->strategy->num_devices == 1 ? "" : "s", model->strategy->num_replicas,
                   model->strategy->num_replicas == 1 ? "" : "s");
    mirt__text_add(out, "  per device  weights %s, gradients %s, activations %s, scratch %s\n",
                   mirt__bytes_text((double)m.weights).text, mirt__bytes_text((double)m.gradients).text,
                   mirt__bytes_text((double)m.activations).text, mirt__bytes_text((double)m.scratch).text);
    mirt__text_add(out, "  in all      %s, of which optimizer slots %s\n", mirt__bytes_text((double)m.total).text,
                   mirt__bytes_text((double)m.slots).text);
}

MIRT_API const char *mirt_summary(mirt_model *model, int64_t batch) {
    MIRT__USE_MODEL(model, NULL);
    mirt_function *t = mirt__inspect_plan(model, batch, __func__);
    if (!t) return NULL;
    mirt__text_clear(&model->summary);
    mirt__summary_layers(model, &model->summary);
    mirt__summary_memory(model, t, batch, &model->summary);
    mirt__function_free(t);
    return model->summary.failed ? NULL : model->summary.data;
}

MIRT__LIB void mirt__say_what_fits(mirt_model *model, const mirt__data_spec *spec, int64_t batch) {
    mirt__error error;
    mirt__error_get(&error);
    model->trainer->asked = spec;
    const int64_t fits = mirt_largest_batch(model, 0);
    model->trainer->asked = NULL;
    if (fits > 0 && fits < batch)
        mirt__fail(MIRT_E_NOMEM, "%.300s; batches of %lld do not fit, of %lld would", error.text, (long long)batch,
                   (long long)fits);
    else mirt__error_set(&error);
}
