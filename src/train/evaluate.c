/* Evaluates models, and counts their predictions in confusion matrices. */
#include "trainer.h"

static mirt_status mirt__evaluate_batches(void *arg) {
    const mirt__pass *pass = (const mirt__pass *)arg;
    mirt_model *model = pass->model;
    mirt_function *f = model->trainer->function[MIRT__EVALUATE];
    mirt__sums *sums = pass->sums;
    mirt__batch batch;
    mirt__feed feed;
    mirt__hold(model);
    mirt__feed_open(&feed, model, pass->dataset, pass->features, true);
    mirt_status status = mirt__feed_begin(&feed, 0);
    for (int64_t i = 0; status == MIRT_OK && (pass->steps == 0 || i < pass->steps); i++) {
        status = mirt__feed_next(&feed, &batch);
        if (status != MIRT_OK || batch.rows == 0) break;
        if ((status = mirt__trainer_begin(f, &batch)) != MIRT_OK ||
            (status = mirt__feed_step(&feed, f, i + 1 != pass->steps)) != MIRT_OK)
            break;
        mirt__add_results(f, sums);
    }
    mirt__let_go(model);
    return status;
}

MIRT__LIB mirt_status mirt__evaluate_pass(mirt_model *model, mirt_dataset *dataset, mirt__features *features,
                                          int64_t steps, mirt__sums *sums) {
    mirt__pass pass;
    memset(&pass, 0, sizeof pass);
    pass.model = model;
    pass.dataset = dataset;
    pass.features = features;
    pass.steps = steps;
    pass.sums = sums;
    return mirt__watched_pass(model, dataset, mirt__evaluate_batches, &pass);
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

static mirt_status mirt__confusion_pass(mirt_model *model, mirt_dataset *dataset, int64_t *counts, int classes) {
    mirt_function *f = model->trainer->function[MIRT__PREDICT];
    const mirt__data_spec *spec = mirt__dataset_spec(dataset);
    const mirt__data_field *y = &spec->field[spec->num_x];
    const int64_t n = f->results.list[0].count, width = mirt__shape_count(&y->shape);
    const double middle = mirt_output_scores(model, 0) == MIRT_SCORES_SIGMOID_LOGITS ? 0 : 0.5;
    mirt__batch batch;
    mirt__hold(model);
    mirt_status status = mirt__dataset_begin(dataset, model->strategy->seed, 0);
    while (status == MIRT_OK) {
        status = mirt__dataset_next(dataset, &batch);
        if (status != MIRT_OK || batch.rows == 0) break;
        if ((status = mirt__function_begin(f, &batch)) != MIRT_OK || (status = mirt__function_step(f)) != MIRT_OK)
            break;
        const mirt__real *x = (const mirt__real *)(const void *)f->results.list[0].data;
        for (int64_t r = 0; status == MIRT_OK && r < batch.rows; r++) {
            const int64_t is = mirt__label_class(batch.field[spec->num_x], y->dtype, r, width, classes);
            if (is < 0)
                status = mirt__fail(MIRT_E_INVALID, "the label of sample %lld is not one of the classes 0 to %d",
                                    (long long)(batch.index ? batch.index[r] : r), classes - 1);
            else counts[is * classes + mirt__said_class(x + r * n, n, middle)]++;
        }
    }
    mirt__let_go(model);
    return status;
}

MIRT_API mirt_status mirt_confusion_matrix(mirt_model *model, mirt_dataset *dataset, int64_t *counts, int classes) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt_dataset *view = NULL;
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
    if (!(dataset = mirt__ready(model, dataset, MIRT__PREDICT, &view))) return mirt_last_status();
    const mirt__data_spec *spec = mirt__dataset_spec(dataset);
    const int64_t width = spec->num_y == 1 ? mirt__shape_count(&spec->field[spec->num_x].shape) : 0;
    memset(counts, 0, (size_t)classes * (size_t)classes * sizeof *counts);
    mirt_status status =
        width == 1 || width == n
            ? mirt__confusion_pass(model, dataset, counts, classes)
            : mirt__fail(
                  MIRT_E_SHAPE,
                  "mirt_confusion_matrix needs one label a sample: a class number, or as many values as %s has outputs",
                  model->name);
    mirt__unready(given, dataset, view);
    return status;
}
