/* Keeps the functions of fit, evaluate and predict, recorded for the data at hand. */
#include "../inspect/inspect.h"
#include "trainer.h"

/* Sums for what the function's metrics leave. */
MIRT__TRAINING mirt_status mirt__trainer_sums(mirt__trainer *t, const mirt_function *f, mirt__program_kind kind) {
    int count = 1;
    if (kind >= MIRT__PREDICT) return MIRT_OK;
    for (int i = 0; i < f->model->num_metrics; i++) count += mirt__sums_of(f, i);
    double *sums = (double *)mirt__calloc((size_t)count, sizeof *sums);
    if (!sums) return mirt_last_status();
    mirt__free(t->metric[kind]);
    t->metric[kind] = sums;
    return MIRT_OK;
}

/* The training function's class weights, to be recognized again. */
MIRT__TRAINING mirt_status mirt__trainer_class_weights(mirt__trainer *t, const mirt__fit_body *body) {
    if (body->kind != MIRT__TRAIN) return MIRT_OK;
    float *copy = (float *)mirt__calloc((size_t)body->num_class_weights + 1, sizeof *copy);
    if (!copy) return mirt_last_status();
    if (body->num_class_weights) memcpy(copy, body->class_weights, (size_t)body->num_class_weights * sizeof *copy);
    mirt__free(t->class_weights);
    t->class_weights = copy;
    t->num_class_weights = body->num_class_weights;
    return MIRT_OK;
}

static void mirt__trainer_free(mirt_model *model) {
    mirt__trainer *t = model->trainer;
    if (model->strategy->timed == model) model->strategy->timed = NULL;
    for (int k = 0; k < MIRT__PROGRAM_KINDS; k++) mirt__function_free(t->function[k]);
    for (int k = 0; k < 2; k++) mirt__free(t->metric[k]);
    mirt__free(t->class_weights);
    mirt__free(t);
    model->trainer = NULL;
}

MIRT__LIB mirt__trainer *mirt__trainer_of(mirt_model *model) {
    if (model->trainer) return model->trainer;
    model->free_trainer = mirt__trainer_free;
    return model->trainer = (mirt__trainer *)mirt__calloc(1, sizeof *model->trainer);
}

static bool mirt__trainer_has(const mirt_model *model, mirt__program_kind kind, const mirt__data_spec *spec,
                              int64_t most, const mirt__fit_body *body) {
    const mirt__trainer *t = model->trainer;
    const mirt_function *f = t ? t->function[kind] : NULL;
    if (!f || most > f->step.max_rows || f->layout != mirt__root(model, NULL)->layout ||
        f->root != mirt__root(model, NULL) || f->policy != f->root->policy)
        return false;
    if (!MIRT__TRAINS || kind >= MIRT__PREDICT) return mirt__fields_same(&f->spec, spec, spec->num_x);
    bool weights = kind != MIRT__TRAIN ||
                   (t->num_class_weights == body->num_class_weights &&
                    (!body->num_class_weights || memcmp(t->class_weights, body->class_weights,
                                                        (size_t)body->num_class_weights * sizeof(float)) == 0));
    return weights && mirt__spec_same(&f->spec, spec);
}

MIRT__LIB mirt_function *mirt__trainer_prepare(mirt_model *model, mirt__program_kind kind, const mirt__data_spec *spec,
                                               int64_t most, const mirt_fit_desc *fit) {
    mirt__fit_body body;
    mirt__fit_body_set(&body, kind, fit);
    if (mirt__model_materialize(model) != MIRT_OK) return NULL; /* trainers of those that share new weights are freed */
    mirt__trainer *t = mirt__trainer_of(model);
    if (!t) return NULL;
    if (mirt__trainer_has(model, kind, spec, most, &body)) return t->function[kind];
    const mirt_function *old = t->function[kind];
    if (old && old->step.max_rows > most) most = old->step.max_rows;
    mirt_function *f = mirt__trainer_record(model, spec, most, &body);
    if (!f) return NULL;
    if (MIRT__TRAINS) mirt__rule_set(f);
    if (mirt__function_allocate(f) != MIRT_OK) {
        mirt__function_free(f);
        if (mirt__memory_save(model->strategy)) return mirt__trainer_prepare(model, kind, spec, most, fit);
        if (MIRT__TRAINS && mirt_last_status() == MIRT_E_NOMEM && kind == MIRT__TRAIN)
            mirt__say_what_fits(model, spec, most);
        return NULL;
    }
    f->results.terms = body.terms_result;
    memcpy(f->results.metric, body.metric_result, sizeof f->results.metric);
    mirt__function_free(t->function[kind]); /* its sums and class weights go too */
    t->function[kind] = NULL;
    if (MIRT__TRAINS &&
        (mirt__trainer_sums(t, f, kind) != MIRT_OK || mirt__trainer_class_weights(t, &body) != MIRT_OK)) {
        mirt__function_free(f);
        return NULL;
    }
    return t->function[kind] = f;
}

/* >>a batch */

MIRT__LIB mirt_status mirt__check_weights(const mirt_function *f, const mirt__batch *batch) {
    int at = f->spec.num_x + f->spec.num_y;
    for (int64_t i = 0; MIRT__TRAINS && f->spec.has_weights && i < batch->rows; i++) {
        double weight = (double)((const float *)batch->field[at])[i];
        if (isfinite(weight)) continue;
        return mirt__fail(MIRT_E_INVALID, "the weight of sample %lld is %g",
                          (long long)(batch->index ? batch->index[i] : i), weight);
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__trainer_begin(mirt_function *f, const mirt__batch *batch) {
    mirt_strategy *s = f->model->strategy;
    mirt_status status = f->following.launched ? MIRT_OK : mirt__check_weights(f, batch);
    int64_t none = 0;
    if (status == MIRT_OK) status = mirt__function_begin(f, batch);
    return MIRT__PEERS(s) && !batch->met ? mirt__meet_with_batch(s, status, batch->rows, &none) : status;
}

MIRT__LIB mirt_status mirt__check_room(const mirt_function *f, int64_t rows, float *const *out,
                                       const size_t *capacity) {
    for (int i = 0; i < f->results.count; i++) {
        size_t each = (size_t)f->results.list[i].count;
        if (!out[i]) return mirt__fail(MIRT_E_INVALID, "no place for the predictions");
        if (capacity[i] / (each ? each : 1) >= (size_t)rows) continue;
        return mirt__fail(MIRT_E_SHAPE, "predictions of %lld samples need %zu floats, there is room for %zu",
                          (long long)rows, each * (size_t)rows, capacity[i]);
    }
    return MIRT_OK;
}

MIRT__LIB void mirt__copy_predictions(const mirt_function *f, int64_t done, float *const *out) {
    for (int i = 0; i < f->results.count; i++) {
        const mirt__real *from = (const mirt__real *)(const void *)f->results.list[i].data;
        float *to = out[i] + done * f->results.list[i].count;
        for (int64_t k = 0; k < f->step.rows * f->results.list[i].count; k++) to[k] = (float)from[k];
    }
}
