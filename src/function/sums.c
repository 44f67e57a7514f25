#include "fit_program.h"
/* Sums over samples of the losses and metrics that a function leaves. */

/* How many sums a metric keeps; the last one of a weighted metric is that of the weights. */
MIRT__LIB int mirt__sums_of(const mirt_function *f, int metric) {
    const mirt__metric_use *use = &f->model->metric[metric];
    const int counted = mirt__metric_sums(use);
    return (counted ? counted : (int)f->results.list[f->results.metric[metric]].count) + use->options.weighted;
}

MIRT__LIB void mirt__sums_start(mirt_model *model, mirt__program_kind kind, mirt__sums *sums) {
    const mirt_function *f = model->trainer->function[kind];
    memset(sums, 0, sizeof *sums);
    sums->kind = kind;
    sums->metric = model->trainer->metric[kind];
    for (int i = 0; i < model->num_metrics && kind < MIRT__PREDICT; i++) sums->num_metric += mirt__sums_of(f, i);
    memset(sums->metric, 0, (size_t)sums->num_metric * sizeof *sums->metric);
}

MIRT__LIB void mirt__sums_put(const mirt__sums *sums, double *out) {
    out[0] = sums->loss;
    memcpy(out + 1, sums->output_loss, sizeof sums->output_loss);
    if (sums->num_metric)
        memcpy(out + 1 + MIRT_MAX_OUTPUTS, sums->metric, (size_t)sums->num_metric * sizeof *sums->metric);
}

MIRT__LIB void mirt__sums_get(mirt__sums *sums, const double *from) {
    sums->loss = from[0];
    memcpy(sums->output_loss, from + 1, sizeof sums->output_loss);
    if (sums->num_metric)
        memcpy(sums->metric, from + 1 + MIRT_MAX_OUTPUTS, (size_t)sums->num_metric * sizeof *sums->metric);
}

/* The labels of the batch under way, which are still there, their weights, and a result, as a metric counts them. */
static mirt__counted mirt__counted_of(const mirt_function *f, mirt__program_kind kind, const mirt__metric_use *use,
                                      const mirt__result *r) {
    const int field = f->spec.num_x + mirt__label_number(f->model, use->output);
    const mirt__trainer *t = f->model->trainer;
    mirt__counted c;
    memset(&c, 0, sizeof c);
    c.samples = f->step.rows;
    c.rows = c.samples * use->positions;
    c.n = use->n;
    c.x = (const mirt__real *)(const void *)r->data;
    c.labels = f->step.io[field];
    c.dtype = f->spec.field[field].dtype;
    c.width = mirt__shape_count(&f->spec.field[field].shape) / use->positions;
    if (use->options.weighted && f->spec.has_weights)
        c.weights = (const float *)f->step.io[f->spec.num_x + f->spec.num_y];
    if (use->options.weighted && kind == MIRT__TRAIN && t->num_class_weights) {
        c.class_weights = t->class_weights;
        c.num_class_weights = t->num_class_weights;
    }
    return c;
}

/* Adds a recorded metric's values, column by column. */
static void mirt__add_rows(const mirt__counted *c, const mirt__result *r, bool weighted, double *out) {
    for (int64_t i = 0; i < c->samples; i++) {
        const double weight = weighted ? mirt__sample_weight(c, i) : 1;
        for (int64_t j = 0; j < r->count; j++) out[j] += weight * (double)c->x[i * r->count + j];
    }
}

/* What a metric finds in the batch. */
static void mirt__add_metric(const mirt_function *f, mirt__program_kind kind, int metric, double *out) {
    const mirt__metric_use *use = &f->model->metric[metric];
    const mirt__result *r = &f->results.list[f->results.metric[metric]];
    const mirt__counted c = mirt__counted_of(f, kind, use, r);
    double *weights = use->options.weighted ? out + mirt__sums_of(f, metric) - 1 : NULL;
    if (mirt__metric_sums(use)) use->cls->count(use, &c, out);
    else mirt__add_rows(&c, r, weights != NULL, out);
    for (int64_t i = 0; weights && i < c.samples; i++) *weights += mirt__sample_weight(&c, i);
}

/* Adds a loss to a sum over samples; returns the batch's own. What is one number for the batch (a sum over it, or terms
   of weights) counts once a sample, as in Keras. */
static double mirt__add_loss(const mirt_function *f, const mirt__result *r, double *sum) {
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
MIRT__LIB double mirt__add_results(const mirt_function *f, mirt__sums *sums) {
    const mirt_model *model = f->model;
    double loss = mirt__add_loss(f, &f->results.list[0], &sums->loss);
    if (f->results.terms >= 0) loss += mirt__add_loss(f, &f->results.list[f->results.terms], &sums->loss);
    int next = 1;
    for (int i = 0; i < model->num_outputs && mirt__num_labels(model) > 1; i++) {
        if (mirt__output_has_loss(model, i)) mirt__add_loss(f, &f->results.list[next++], &sums->output_loss[i]);
    }
    double *metric = sums->metric;
    for (int m = 0; m < model->num_metrics; m++) {
        mirt__add_metric(f, sums->kind, m, metric);
        metric += mirt__sums_of(f, m);
    }
    sums->count += f->step.rows;
    return loss;
}

MIRT__LIB void mirt__logs_add(mirt_logs *logs, const char *name, double value) {
    if (logs->count == MIRT_MAX_LOGS) return;
    logs->name[logs->count] = name;
    logs->value[logs->count++] = value == value ? value : (double)NAN; /* of one sign, for those who print it */
}

MIRT__LIB void mirt__sums_to_logs(const mirt_model *model, const mirt__sums *sums, bool validation,
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
        const bool weighted = use->options.weighted, counted = mirt__metric_sums(use) > 0,
                   custom = !use->cls && use->custom.result;
        const int own = mirt__sums_of(f, m) - weighted;
        const double samples = weighted ? metric[own] : (double)sums->count;
        mirt__hold((mirt_model *)model);
        double value = 0;
        for (int i = 0; i < own && !custom && !counted && samples != 0; i++) value += metric[i] / samples / own;
        if (counted) value = use->cls->result(use, metric, samples);
        if (custom) {
            MIRT__OUTSIDE;
            value = use->custom.result(metric, own, sums->count, use->custom.user);
        }
        mirt__let_go((mirt_model *)model);
        mirt__logs_add(logs, validation ? use->val_name : use->name, value);
        metric += own + weighted;
    }
}

MIRT__LIB int mirt__log_names(const mirt_model *model, bool validation, const char *names[MIRT_MAX_LOGS]) {
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
