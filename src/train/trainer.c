/* Keeps the programs of fit, evaluate and predict, and adds up their results. */
#include "trainer.h"

/* How many sums a metric keeps. */
MIRT__TRAINING int mirt__sums_of(const mirt_function *f, int metric) {
    const int counted = mirt__metric_sums(&f->model->metric[metric]);
    return counted ? counted : (int)f->results.list[f->results.metric[metric]].count;
}

/* Sums for what the function's metrics leave. */
static mirt_status mirt__trainer_sums(mirt__trainer *t, const mirt_function *f, mirt__program_kind kind) {
    int count = 1;
    if (!MIRT__TRAINS || kind >= MIRT__PREDICT) return MIRT_OK;
    for (int i = 0; i < f->model->num_metrics; i++) count += mirt__sums_of(f, i);
    double *sums = (double *)mirt__calloc((size_t)count, sizeof *sums);
    if (!sums) return mirt_last_status();
    mirt__free(t->metric[kind]);
    t->metric[kind] = sums;
    return MIRT_OK;
}

/* The training function's class weights, to be recognized again. */
static mirt_status mirt__trainer_class_weights(mirt__trainer *t, const mirt__fit_body *body) {
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
        f->root != mirt__root(model, NULL) || f->half != f->root->half || f->step.float16 != f->root->scaled)
        return false;
    if (kind >= MIRT__PREDICT) return mirt__fields_same(&f->spec, spec, spec->num_x);
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
    if (mirt__function_allocate(f) != MIRT_OK) {
        mirt__function_free(f);
        if (MIRT__TRAINS && mirt_last_status() == MIRT_E_NOMEM && kind == MIRT__TRAIN)
            mirt__say_what_fits(model, spec, most);
        return NULL;
    }
    f->results.terms = body.terms_result;
    memcpy(f->results.metric, body.metric_result, sizeof f->results.metric);
    mirt__function_free(t->function[kind]); /* its sums and class weights go too */
    t->function[kind] = NULL;
    if (mirt__trainer_sums(t, f, kind) != MIRT_OK || mirt__trainer_class_weights(t, &body) != MIRT_OK) {
        mirt__function_free(f);
        return NULL;
    }
    return t->function[kind] = f;
}

/* >>results */

MIRT__TRAINING_LIB void mirt__sums_start(mirt_model *model, mirt__program_kind kind, mirt__sums *sums) {
    const mirt_function *f = model->trainer->function[kind];
    memset(sums, 0, sizeof *sums);
    sums->kind = kind;
    sums->metric = model->trainer->metric[kind];
    for (int i = 0; i < model->num_metrics && kind < MIRT__PREDICT; i++) sums->num_metric += mirt__sums_of(f, i);
    memset(sums->metric, 0, (size_t)sums->num_metric * sizeof *sums->metric);
}

/* Adds a result's rows, column by column. */
MIRT__TRAINING void mirt__add_rows(const mirt__result *r, int64_t rows, double *out) {
    const mirt__real *value = (const mirt__real *)(const void *)r->data;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < r->count; j++) out[j] += (double)value[i * r->count + j];
    }
}

/* What a metric counts in the batch, whose labels are still there. */
MIRT__TRAINING void mirt__add_counts(const mirt_function *f, const mirt__metric_use *use, const mirt__result *r,
                                     double *out) {
    const int field = f->spec.num_x + mirt__label_number(f->model, use->output);
    mirt__counted c;
    c.rows = f->step.rows;
    c.n = r->count;
    c.x = (const mirt__real *)(const void *)r->data;
    c.labels = f->step.io[field];
    c.dtype = f->spec.field[field].dtype;
    c.sparse = mirt__shape_count(&f->spec.field[field].shape) != c.n;
    use->cls->count(use, &c, out);
}

/* Adds a loss to a sum over samples; returns the batch's own. What is one number for the batch (a sum over it, or terms
   of weights) counts once a sample, as in Keras. */
MIRT__TRAINING double mirt__add_loss(const mirt_function *f, const mirt__result *r, double *sum) {
    const mirt__real *value = (const mirt__real *)(const void *)r->data;
    bool number = !r->batched || f->model->config.reduction == MIRT_SUM;
    int64_t n = r->batched            ? f->step.rows
                : f->step.by_replicas ? mirt__active_replicas(&f->step)
                                      : mirt__result_places(&f->step);
    double own = 0;
    for (int64_t i = 0; i < n; i++) {
        own += (double)value[i];
        if (!number) *sum += (double)value[i];
    }
    if (number) *sum += own * (double)f->step.rows;
    return number ? own : own / (double)f->step.rows;
}

/* Results: the loss, the outputs' losses when there are several, the metrics, the terms. */
MIRT__TRAINING_LIB double mirt__add_results(const mirt_function *f, mirt__sums *sums) {
    const mirt_model *model = f->model;
    double loss = mirt__add_loss(f, &f->results.list[0], &sums->loss);
    if (f->results.terms >= 0) loss += mirt__add_loss(f, &f->results.list[f->results.terms], &sums->loss);
    int next = 1;
    for (int i = 0; i < model->num_outputs && mirt__num_labels(model) > 1; i++) {
        if (mirt__output_has_loss(model, i)) mirt__add_loss(f, &f->results.list[next++], &sums->output_loss[i]);
    }
    double *metric = sums->metric;
    for (int m = 0; m < model->num_metrics; m++) {
        const mirt__result *r = &f->results.list[f->results.metric[m]];
        if (mirt__metric_sums(&model->metric[m])) mirt__add_counts(f, &model->metric[m], r, metric);
        else mirt__add_rows(r, f->step.rows, metric);
        metric += mirt__sums_of(f, m);
    }
    sums->count += f->step.rows;
    return loss;
}

MIRT__TRAINING_LIB void mirt__logs_add(mirt_logs *logs, const char *name, double value) {
    if (logs->count == MIRT_MAX_LOGS) return;
    logs->name[logs->count] = name;
    logs->value[logs->count++] = value == value ? value : (double)NAN; /* of one sign, for those who print it */
}

MIRT__TRAINING_LIB void mirt__sums_to_logs(const mirt_model *model, const mirt__sums *sums, bool validation,
                                           mirt_logs *logs) {
    const mirt_function *f = model->trainer->function[sums->kind];
    double count = sums->count ? (double)sums->count : 1;
    const double *metric = sums->metric;
    mirt__logs_add(logs, validation ? "val_loss" : "loss", sums->loss / count);
    for (int i = 0; i < model->num_outputs && mirt__num_labels(model) > 1; i++) {
        if (!mirt__output_has_loss(model, i)) continue;
        mirt__logs_add(logs, validation ? model->val_loss_name[i] : model->loss_name[i], sums->output_loss[i] / count);
    }
    for (int m = 0; m < model->num_metrics; m++) {
        const mirt__metric_use *use = &model->metric[m];
        int own = mirt__sums_of(f, m);
        bool counted = mirt__metric_sums(use) > 0, custom = !use->cls && use->custom.result;
        mirt__hold((mirt_model *)model);
        double value = 0;
        for (int i = 0; i < own && !custom && !counted; i++) value += metric[i] / count / own;
        if (counted) value = use->cls->result(use, metric, sums->count);
        if (custom) {
            MIRT__OUTSIDE;
            value = use->custom.result(metric, own, sums->count, use->custom.user);
        }
        mirt__let_go((mirt_model *)model);
        mirt__logs_add(logs, validation ? use->val_name : use->name, value);
        metric += own;
    }
}

MIRT__TRAINING_LIB int mirt__log_names(const mirt_model *model, bool validation, const char *names[MIRT_MAX_LOGS]) {
    int count = 0;
    for (int v = 0; v < 1 + validation; v++) {
        names[count++] = v ? "val_loss" : "loss";
        for (int i = 0; i < model->num_outputs && mirt__num_labels(model) > 1 && count < MIRT_MAX_LOGS; i++) {
            if (mirt__output_has_loss(model, i)) names[count++] = v ? model->val_loss_name[i] : model->loss_name[i];
        }
        for (int m = 0; m < model->num_metrics && count < MIRT_MAX_LOGS; m++)
            names[count++] = v ? model->metric[m].val_name : model->metric[m].name;
        if (!v && count < MIRT_MAX_LOGS) names[count++] = "learning_rate";
    }
    return count;
}

MIRT__LIB mirt_status mirt__check_room(const mirt_function *f, int64_t rows, float *const *out,
                                       const size_t *capacity) {
    for (int i = 0; i < f->results.count; i++) {
        size_t each = (size_t)f->results.list[i].count;
        if (!out[i]) return mirt__fail(MIRT_E_INVALID, "no place for the predictions");
        if (capacity[i] / (each ? each : 1) >= (size_t)rows) continue;
        return mirt__fail(MIRT_E_SHAPE, "predictions of %lld samples need %llu floats, there is room for %llu",
                          (long long)rows, (unsigned long long)(each * (size_t)rows), (unsigned long long)capacity[i]);
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
