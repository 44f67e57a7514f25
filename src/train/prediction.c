/* Predicts on data sets, arrays and batches. */
#include "../mirror/watch.h"
#include "trainer.h"

MIRT__LIB mirt_status mirt__watched_pass(const mirt_model *model, mirt_dataset *dataset, mirt_status (*fn)(void *arg),
                                         void *arg) {
    mirt_status status = mirt__watched(model->strategy, fn, arg);
    if (model->strategy->death) mirt__dataset_lose(dataset);
    return status;
}

MIRT__LIB mirt_dataset *mirt__ready(mirt_model *model, mirt_dataset *dataset, mirt__program_kind kind,
                                    mirt_dataset **view) {
    mirt_dataset *const given = dataset;
    const char *caller = kind == MIRT__EVALUATE ? "mirt_evaluate" : "mirt_predict";
    if (!dataset) return mirt__fail_missing(caller, "data set"), (mirt_dataset *)NULL;
    if (mirt__watch_mine(model->strategy) != MIRT_OK) return NULL;
    if (MIRT__TRAINS && mirt__check_distributed(model, dataset, caller) != MIRT_OK) return NULL;
    if (dataset->busy)
        return mirt__fail(MIRT_E_STATE,
                          "another call is reading this data set, such as mirt_fit; give the callback one of its own"),
               (mirt_dataset *)NULL;
    if (mirt__dataset_spec(dataset)->samples < 0)
        return mirt__fail(MIRT_E_INVALID, "this data set has no end; mirt_take gives it one"), (mirt_dataset *)NULL;
    if (mirt__check_data(model, mirt__dataset_spec(dataset), kind == MIRT__EVALUATE) != MIRT_OK) return NULL;
    if (!(dataset = mirt__dataset_batched(dataset, MIRT__USUAL_BATCH, false, view))) return NULL;
    const mirt__data_spec *spec = mirt__dataset_spec(dataset);
    if (!mirt__trainer_prepare(model, kind, spec, mirt__data_most_rows(spec), NULL)) return NULL;
    return given->busy = true, dataset;
}

MIRT__LIB void mirt__unready(mirt_dataset *given, const mirt_dataset *ready, mirt_dataset *view) {
    if (ready) given->busy = false;
    mirt_dataset_destroy(view);
}

static mirt_status mirt__pass_batches(void *arg) {
    mirt__pass *pass = (mirt__pass *)arg;
    mirt_model *model = pass->model;
    mirt_function *f = model->trainer->function[pass->kind];
    mirt__batch batch;
    mirt__feed feed;
    mirt__hold(model);
    mirt__feed_open(&feed, model, pass->dataset, pass->features, pass->ahead);
    feed.follows = pass->ahead;
    mirt_status status = mirt__feed_begin(&feed, f->step.by_replicas ? f->step.replicas : 0, 0);
    for (int64_t i = 0; status == MIRT_OK && (pass->steps == 0 || i < pass->steps); i++) {
        status = mirt__feed_next(&feed, &batch);
        if (status != MIRT_OK || batch.rows == 0) break;
        status = mirt__trainer_begin(f, &batch);
        if (status == MIRT_OK) status = mirt__feed_step(&feed, f, i + 1 != pass->steps);
        if (status == MIRT_OK) status = pass->take(pass, f, &batch);
    }
    mirt__feed_close(&feed);
    mirt__let_go(model);
    return status;
}

MIRT__LIB mirt_status mirt__pass_run(mirt__pass *pass) {
    const mirt_status status = mirt__watched_pass(pass->model, pass->dataset, mirt__pass_batches, pass);
    if (MIRT__PEERS(pass->model->strategy)) mirt__leave_together(pass->model->strategy, status);
    return status;
}

static mirt_status mirt__predict_take(mirt__pass *pass, const mirt_function *f, const mirt__batch *batch) {
    mirt__copy_predictions(f, pass->done, pass->out);
    pass->done += batch->rows;
    return MIRT_OK;
}

static mirt_status mirt__predict_pass(mirt_model *model, mirt_dataset *dataset, float *const *out,
                                      const size_t *capacity) {
    mirt__pass pass;
    if (mirt__check_room(model->trainer->function[MIRT__PREDICT], mirt__dataset_spec(dataset)->samples, out,
                         capacity) != MIRT_OK)
        return mirt_last_status();
    memset(&pass, 0, sizeof pass);
    pass.model = model;
    pass.dataset = dataset;
    pass.kind = MIRT__PREDICT;
    pass.ahead = true;
    pass.take = mirt__predict_take;
    pass.out = out;
    return mirt__pass_run(&pass);
}

MIRT_API mirt_status mirt_predict_outputs(mirt_model *model, mirt_dataset *dataset, float *const *out,
                                          const size_t *capacity) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt_dataset *view = NULL;
    if (mirt__need_recorded(model, "mirt_predict") != MIRT_OK) return mirt_last_status();
    if (!out || !capacity) return mirt__fail(MIRT_E_INVALID, "mirt_predict: no place for the predictions");
    mirt_dataset *const given = dataset;
    dataset = mirt__ready(model, dataset, MIRT__PREDICT, &view);
    mirt_status status = dataset ? mirt__predict_pass(model, dataset, out, capacity) : mirt_last_status();
    mirt__unready(given, dataset, view);
    return status;
}

static mirt_status mirt__need_one_output(const mirt_model *model) {
    if (!model || model->num_outputs < 2) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "%s has %d outputs; mirt_predict_outputs takes a place for each", model->name,
                      model->num_outputs);
}

MIRT_API mirt_status mirt_predict(mirt_model *model, mirt_dataset *dataset, float *out, size_t capacity) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (mirt__need_one_output(model) != MIRT_OK) return mirt_last_status();
    return mirt_predict_outputs(model, dataset, out ? &out : NULL, &capacity);
}

/* Few samples are one batch, without a data set made for them. */
MIRT_API mirt_status mirt_predict_arrays(mirt_model *model, mirt_array x, float *out, size_t capacity) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = x;
    if (mirt__need_one_output(model) != MIRT_OK) return mirt_last_status();
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_predict: no place for the predictions");
    if (x.data && x.shape.rank > 0 && x.shape.dim[0] > 0 && x.shape.dim[0] <= 32)
        return mirt_predict_on_batch(model, &data, &out, &capacity);
    mirt_dataset *dataset = mirt_arrays_of(&data);
    mirt_status status = dataset ? mirt_predict(model, dataset, out, capacity) : mirt_last_status();
    mirt_dataset_destroy(dataset);
    return status;
}

static mirt_status mirt__batch_of(const mirt_data *data, bool labels, mirt__data_spec *spec, mirt__batch *batch) {
    memset(batch, 0, sizeof *batch);
    if (!data->x[0].data || data->x[0].shape.rank < 1 || data->x[0].shape.dim[0] < 1)
        return mirt__fail(MIRT_E_INVALID, "the batch has no samples");
    if (labels && (!data->y[0].data || data->y[0].shape.rank < 1))
        return mirt__fail(MIRT_E_INVALID, "the batch has no labels");
    if (mirt__arrays_spec(data, spec, batch->field) != MIRT_OK) return mirt_last_status();
    spec->batch = batch->rows = spec->samples;
    batch->same = data->same;
    return MIRT_OK;
}

MIRT__LIB mirt_function *mirt__begin_arrays(mirt_model *model, const mirt_data *data, mirt__program_kind kind,
                                            const char *caller) {
    mirt__data_spec spec;
    mirt__batch batch;
    if (MIRT__TRAINS && kind != MIRT__PREDICT && mirt__need_compiled(model, caller) != MIRT_OK) return NULL;
    if (kind == MIRT__PREDICT && mirt__need_recorded(model, caller) != MIRT_OK) return NULL;
    if (!data) return mirt__fail_missing(caller, "batch"), (mirt_function *)NULL;
    if (model->busy && kind == MIRT__TRAIN)
        return mirt__fail(MIRT_E_STATE, "%s: %s is being trained or recorded", caller, model->name),
               (mirt_function *)NULL;
    if (mirt__batch_of(data, kind != MIRT__PREDICT, &spec, &batch) != MIRT_OK ||
        mirt__check_data(model, &spec, kind != MIRT__PREDICT) != MIRT_OK)
        return NULL;
    mirt_function *f = mirt__trainer_prepare(model, kind, &spec, batch.rows, NULL);
    return f && mirt__trainer_begin(f, &batch) == MIRT_OK ? f : NULL;
}

MIRT_API mirt_status mirt_predict_on_batch(mirt_model *model, const mirt_data *batch, float *const *out,
                                           const size_t *capacity) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!out || !capacity) return mirt__fail(MIRT_E_INVALID, "mirt_predict_on_batch: no place for the predictions");
    mirt_function *f = mirt__begin_arrays(model, batch, MIRT__PREDICT, __func__);
    if (!f || mirt__check_room(f, f->step.rows, out, capacity) != MIRT_OK || mirt__function_step(f) != MIRT_OK)
        return mirt_last_status();
    mirt__copy_predictions(f, 0, out);
    return MIRT_OK;
}
