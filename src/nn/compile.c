/* mirt_compile: fixes optimizer, loss and metrics of a model, and creates its state. */
#include "model.h"

static mirt_status mirt__compile_check(mirt_model *model, const mirt_compile_desc *desc) {
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (model->refusal[0]) {
        mirt__fail(MIRT_E_STATE, "%s", model->refusal);
        model->refusal[0] = 0;
        return MIRT_E_STATE;
    }
    /* weights for functions */
    bool bare = !model->num_inputs && !model->num_outputs && !model->num_layers && model->num_variables;
    if (!bare && !model->num_inputs)
        return mirt__fail(MIRT_E_STATE, "%s has no input: begin with mirt_input", model->name);
    if (!bare && !model->num_outputs)
        return mirt__fail(MIRT_E_STATE, "%s has no output: end with mirt_model_output", model->name);
    if ((int)desc->reduction < 0 || desc->reduction > MIRT_SUM)
        return mirt__fail(MIRT_E_INVALID,
                          "mirt_compile: invalid reduction (%d); it must be MIRT_SUM_OVER_BATCH_SIZE or MIRT_SUM",
                          (int)desc->reduction);
    if (mirt__optimizers_check(model, desc) != MIRT_OK) return mirt_last_status();
    const mirt__field *field;
    const int fields = mirt__loss_fields(&field);
    for (int i = model->num_outputs; i < MIRT_MAX_OUTPUTS; i++) {
        const mirt_loss_options *o = &desc->loss_options[i];
        if (!desc->losses[i] && !desc->custom_losses[i] && desc->loss_weights[i] == 0 &&
            mirt__fields_zero(field, fields, o))
            continue;
        return mirt__fail(MIRT_E_INVALID, "a loss for output %d; %s has %d", i, model->name, model->num_outputs);
    }
    model->config = *desc;
    return mirt__losses_check(model) == MIRT_OK ? mirt__metrics_collect(model) : mirt_last_status();
}

/* The first optimizer state; false with the error set and nothing made. */
static bool mirt__slots_create(const mirt_model *model, char *slot[MIRT__MAX_SLOTS]) {
    const mirt_model *root = mirt__root(model, NULL);
    const size_t bytes = root->trained_bytes;
    memset(slot, 0, MIRT__MAX_SLOTS * sizeof *slot);
    for (int i = 0; i < mirt__slots(&model->config); i++) {
        slot[i] = (char *)mirt__aligned_alloc(bytes);
        if (!slot[i]) {
            while (i-- > 0) mirt__aligned_free(slot[i]);
            return false;
        }
        memset(slot[i], 0, bytes);
    }
    for (int i = 0; i < root->num_variables; i++) {
        const mirt__variable *v = &root->variable[i];
        const mirt_optimizer *o = mirt__optimizer_of(model, i);
        if (!mirt__is_trained(v) || mirt__optimizer_class_get(o->kind)->slot[0].use != MIRT__SLOT_ACCUMULATOR) continue;
        mirt__real *first = (mirt__real *)(void *)(slot[0] + v->offset);
        const size_t own = mirt__align_up((size_t)v->count * sizeof *first) / sizeof *first; /* updates reach so far */
        for (size_t k = 0; k < own; k++) first[k] = o->initial_accumulator_value;
    }
    return true;
}

/* The pieces of all gradients, if an optimizer wants norms; false with the error set. */
static bool mirt__pieces_create(const mirt_model *model, mirt__piece **out, int *count) {
    const int64_t most = 8192;
    const mirt_model *root = mirt__root(model, NULL);
    size_t pieces = 0;
    *out = NULL;
    *count = 0;
    /* float16, or a search for NaN, may need them */
    if (!mirt__optimizers_any(&model->config, mirt__optimizer_norms) && model->strategy->able.in_place) return true;
    for (int i = 0; i < root->num_variables; i++)
        pieces += mirt__is_trained(&root->variable[i]) ? (size_t)((root->variable[i].count + most - 1) / most) : 0;
    if (!(*out = (mirt__piece *)mirt__calloc(pieces + 1, sizeof **out))) return false;
    for (int i = 0; i < root->num_variables; i++) {
        const mirt__variable *v = &root->variable[i];
        for (int64_t at = 0; mirt__is_trained(v) && at < v->count; at += most) {
            mirt__piece *p = *out + (*count)++;
            p->variable = i;
            p->begin = (int64_t)(v->offset / sizeof(mirt__real)) + at;
            p->count = v->count - at < most ? v->count - at : most;
        }
    }
    return true;
}

/* The model's own copy of a text, which may be NULL. */
static bool mirt__text_own(mirt_model *model, const char **text) {
    return !*text || (*text = mirt__pool_strdup(&model->graph.pool, *text));
}

/* Of what the optimizers only point to. */
static bool mirt__optimizers_own(mirt_model *model) {
    mirt_compile_desc *d = &model->config;
    for (int k = 0; mirt__optimizer_number(d, k); k++) {
        mirt_optimizer *o = k ? &d->optimizers[k - 1].optimizer : &d->optimizer;
        if (!mirt__text_own(model, &o->exclude_from_weight_decay) || !mirt__text_own(model, &o->exclude_layers) ||
            (k && !mirt__text_own(model, &d->optimizers[k - 1].weights)))
            return false;
    }
    return true;
}

MIRT_API mirt_status mirt_compile(mirt_model *model, const mirt_compile_desc *desc) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model) return mirt__fail_missing("mirt_compile", "model");
    if (mirt__usable(model->strategy) != MIRT_OK) return mirt_last_status();
    mirt_compile_desc d;
    memset(&d, 0, sizeof d);
    if (desc) d = *desc;
    for (int i = 0; i < MIRT_MAX_OPTIMIZERS; i++) mirt__optimizer_defaults(&d.optimizers[i].optimizer);
    mirt__optimizer_defaults(&d.optimizer);
    if (model->busy)
        return mirt__fail(MIRT_E_STATE,
                          "%s is being trained or recorded; mirt_compile has to wait until that call returns",
                          model->name);
    mirt_compile_desc before = model->config;
    mirt__variables_trained(model); /* the count of steps begins anew */
    mirt__metric_use metric[MIRT__MAX_METRIC_USES];
    int metrics = model->num_metrics;
    char *slot[MIRT__MAX_SLOTS];
    mirt__piece *piece = NULL;
    int pieces = 0;
    memcpy(metric, model->metric, sizeof metric);
    if (mirt__compile_check(model, &d) != MIRT_OK || mirt__model_materialize(model) != MIRT_OK ||
        mirt__model_arrange(model) != MIRT_OK || !mirt__optimizers_own(model) ||
        !mirt__pieces_create(model, &piece, &pieces) || !mirt__slots_create(model, slot)) {
        mirt__free(piece);
        model->config = before;
        memcpy(model->metric, metric, sizeof metric);
        model->num_metrics = metrics;
        snprintf(model->failure, sizeof model->failure, "%s", mirt_last_error());
        return model->failed = mirt_last_status();
    }
    mirt__compile_forget(model);
    model->failed = MIRT_OK;
    memcpy(model->slot, slot, sizeof slot);
    model->piece = piece;
    model->num_pieces = pieces;
    model->step = 0;
    if (mirt__root(model, NULL)->policy == MIRT__POLICY_MIXED_FLOAT16)
        mirt__loss_scale_set(mirt__root(model, NULL), MIRT__LOSS_SCALE, 0);
    model->rate_set = false;
    model->compiled = true;
    mirt__losses_warn(model);
    mirt__metrics_warn(model);
    return MIRT_OK;
}
