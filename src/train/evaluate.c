/* Evaluates models, and counts their predictions in confusion matrices. */
#include "trainer.h"

static mirt_status mirt__evaluate_take(mirt__pass *pass, const mirt_function *f, const mirt__batch *batch) {
    (void)batch;
    mirt__add_results(f, pass->sums);
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__evaluate_pass(mirt_model *model, mirt_dataset *dataset, mirt__features *features,
                                          int64_t steps, mirt__sums *sums) {
    mirt__pass pass;
    memset(&pass, 0, sizeof pass);
    pass.model = model;
    pass.dataset = dataset;
    pass.features = features;
    pass.kind = MIRT__EVALUATE;
    pass.ahead = true;
    pass.steps = steps;
    pass.take = mirt__evaluate_take;
    pass.sums = sums;
    return mirt__pass_run(&pass);
}

MIRT_API mirt_status mirt_evaluate(mirt_model *model, mirt_dataset *dataset, mirt_logs *out) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt_dataset *view = NULL;
    mirt__sums sums;
    if (mirt__need_compiled(model, __func__) != MIRT_OK) return mirt_last_status();
    mirt_dataset *const given = dataset;
    dataset = mirt__ready(model, dataset, MIRT__EVALUATE, &view);
    if (dataset) mirt__sums_start(model, MIRT__EVALUATE, &sums);
    mirt_status status = dataset ? mirt__evaluate_pass(model, dataset, NULL, 0, &sums) : mirt_last_status();
    mirt__unready(given, dataset, view);
    if (status == MIRT_OK && out) {
        memset(out, 0, sizeof *out);
        mirt__sums_to_logs(model, &sums, false, out);
    }
    return status;
}

MIRT_API mirt_status mirt_evaluate_arrays(mirt_model *model, mirt_array x, mirt_array y, mirt_logs *out) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt_dataset *dataset = mirt_arrays(x, y);
    mirt_status status = dataset ? mirt_evaluate(model, dataset, out) : mirt_last_status();
    mirt_dataset_destroy(dataset);
    return status;
}

MIRT_API mirt_status mirt_metric_result(const mirt_model *model, const char *name, double *values, int classes) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (mirt__need_compiled(model, __func__) != MIRT_OK) return mirt_last_status();
    if (!name || !values) return mirt__fail_missing(__func__, name ? "place for the values" : "name of a metric");
    const mirt_function *f = model->trainer ? model->trainer->function[MIRT__EVALUATE] : NULL;
    if (!f) return mirt__fail(MIRT_E_STATE, "mirt_metric_result: %s has not been evaluated yet", model->name);
    const double *sums = model->trainer->metric[MIRT__EVALUATE];
    int m = 0;
    for (; m < model->num_metrics; m++) {
        if (strcmp(model->metric[m].name, name) == 0 || strcmp(model->metric[m].val_name, name) == 0) break;
        sums += mirt__sums_of(f, m);
    }
    if (m == model->num_metrics)
        return mirt__fail(MIRT_E_NOT_FOUND, "mirt_metric_result: %s has no metric \"%s\"", model->name, name);
    const mirt__metric_use *use = &model->metric[m];
    if (!mirt__metric_by_class(use))
        return mirt__fail(MIRT_E_INVALID, "mirt_metric_result: %s is one number for all classes; set `average`", name);
    if (classes != use->groups)
        return mirt__fail(MIRT_E_SHAPE, "mirt_metric_result: %s has %lld classes, not %d", name,
                          (long long)use->groups, classes);
    for (int i = 0; i < classes; i++) values[i] = mirt__metric_of_group(use, sums, i);
    return MIRT_OK;
}

/* The class that a row of `n` numbers says, or of one number whether it is above `middle`. */
static int64_t mirt__said_class(const mirt__real *x, int64_t n, double middle) {
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++) best = x[j] > x[best] ? j : best;
    return n > 1 ? best : (double)x[0] > middle;
}

/* The class of a label: of `n` numbers, or one; -1: there is none such. */
static int64_t mirt__label_class(const void *data, mirt_dtype dtype, int64_t row, int64_t n, int classes) {
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++)
        best = mirt__element(data, dtype, row * n + j) > mirt__element(data, dtype, row * n + best) ? j : best;
    const double label = n > 1 ? (double)best : mirt__element(data, dtype, row);
    return label >= 0 && label < classes && label == floor(label) ? (int64_t)label : -1;
}

static mirt_status mirt__confusion_take(mirt__pass *pass, const mirt_function *f, const mirt__batch *batch) {
    const mirt__data_spec *spec = mirt__dataset_spec(pass->dataset);
    const mirt__data_field *y = &spec->field[spec->num_x];
    const int64_t n = f->results.list[0].count, width = mirt__shape_count(&y->shape);
    const double middle = mirt_output_scores(pass->model, 0) == MIRT_SCORES_SIGMOID_LOGITS ? 0 : 0.5;
    const mirt__real *x = (const mirt__real *)(const void *)f->results.list[0].data;
    for (int64_t r = 0; r < batch->rows; r++) {
        const int64_t is = mirt__label_class(batch->field[spec->num_x], y->dtype, r, width, pass->classes);
        if (is < 0)
            return mirt__fail(MIRT_E_INVALID, "the label of sample %lld is not one of the classes 0 to %d",
                              (long long)(batch->index ? batch->index[r] : r), pass->classes - 1);
        pass->counts[is * pass->classes + mirt__said_class(x + r * n, n, middle)]++;
    }
    return MIRT_OK;
}

MIRT_API mirt_status mirt_confusion_matrix(mirt_model *model, mirt_dataset *dataset, int64_t *counts, int classes) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt_dataset *view = NULL;
    mirt__pass pass;
    if (mirt__need_recorded(model, __func__) != MIRT_OK) return mirt_last_status();
    if (!counts) return mirt__fail_missing(__func__, "place for the counts");
    const int64_t n = mirt__shape_count(&model->output[0]->shape), want = n == 1 ? 2 : n;
    if (model->num_outputs != 1)
        return mirt__fail(MIRT_E_INVALID, "mirt_confusion_matrix is for models with one output; %s has %d", model->name,
                          model->num_outputs);
    if (classes != want)
        return mirt__fail(MIRT_E_SHAPE, "mirt_confusion_matrix: %s tells %lld classes apart, not %d", model->name,
                          (long long)want, classes);
    mirt_dataset *const given = dataset;
    if (!(dataset = mirt__ready(model, dataset, MIRT__PREDICT, &view))) {
        const mirt_status failed = mirt_last_status();
        mirt__unready(given, NULL, view);
        return failed;
    }
    const mirt__data_spec *spec = mirt__dataset_spec(dataset);
    const int64_t width = spec->num_y == 1 ? mirt__shape_count(&spec->field[spec->num_x].shape) : 0;
    memset(counts, 0, (size_t)classes * (size_t)classes * sizeof *counts);
    memset(&pass, 0, sizeof pass);
    pass.model = model;
    pass.dataset = dataset;
    pass.kind = MIRT__PREDICT;
    pass.take = mirt__confusion_take;
    pass.counts = counts;
    pass.classes = classes;
    mirt_status status =
        width == 1 || width == n
            ? mirt__pass_run(&pass)
            : mirt__fail(
                  MIRT_E_SHAPE,
                  "mirt_confusion_matrix needs one label a sample: a class number, or as many values as %s has outputs",
                  model->name);
    mirt__unready(given, dataset, view);
    return status;
}
