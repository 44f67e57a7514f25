#include "trainer.h"

MIRT__LIB mirt_status mirt__evaluate_pass(mirt_model *model, mirt_dataset *dataset, mirt__sums *sums) {
    const mirt__data_spec *spec = mirt__dataset_spec(dataset);
    mirt__batch batch;
    mirt_status status = mirt__dataset_begin(dataset, model->strategy->seed, 0);
    while (status == MIRT_OK) {
        status = mirt__dataset_next(dataset, &batch);
        if (status != MIRT_OK || batch.rows == 0) break;
        status = mirt__begin_batch(model, spec, &batch, true);
        if (status != MIRT_OK) break;
        mirt__run_forward(model, MIRT__EVALUATE);
        mirt__add_results(model, sums);
    }
    return status;
}

MIRT__LIB mirt_dataset *mirt__batched(mirt_dataset *dataset, int64_t batch, bool shuffle, mirt_dataset **view) {
    if (mirt__dataset_spec(dataset)->batch) return dataset;
    return *view = mirt__dataset_batch_view(dataset, batch > 0 ? batch : 32, shuffle);
}

MIRT__LIB int64_t mirt__largest_batch(const mirt_dataset *dataset) {
    return mirt__data_most_rows(mirt__dataset_spec(dataset));
}

/* A batched form of `dataset`, made ready for `kind`; *view is to be destroyed after use. */
static mirt_dataset *mirt__ready(mirt_model *model, mirt_dataset *dataset, mirt__program_kind kind, mirt_dataset **view) {
    mirt__needs needs;
    memset(&needs, 0, sizeof needs);
    if (!dataset) {
        mirt__fail_missing(kind == MIRT__EVALUATE ? "mirt_evaluate" : "mirt_predict", "data set");
        return NULL;
    }
    if (dataset->busy) {
        mirt__fail(MIRT_E_STATE, "this data set is being trained on; give the callback one of its own");
        return NULL;
    }
    if (mirt__check_data(model, mirt__dataset_spec(dataset), kind == MIRT__EVALUATE) != MIRT_OK) return NULL;
    if (!(dataset = mirt__batched(dataset, 0, false, view))) return NULL;
    needs.x_dtype = mirt__dataset_spec(dataset)->field[0].dtype;
    needs.batch[kind] = mirt__largest_batch(dataset);
    return mirt__trainer_prepare(model, &needs) == MIRT_OK ? dataset : NULL;
}

MIRT_API mirt_status mirt_evaluate(mirt_model *model, mirt_dataset *dataset, mirt_logs *out) {
    mirt_dataset *view = NULL;
    mirt__sums sums;
    memset(&sums, 0, sizeof sums);
    if (mirt__need_compiled(model, "mirt_evaluate") != MIRT_OK) return mirt_last_status();
    dataset = mirt__ready(model, dataset, MIRT__EVALUATE, &view);
    mirt_status status = dataset ? mirt__evaluate_pass(model, dataset, &sums) : mirt_last_status();
    mirt_dataset_destroy(view);
    if (status == MIRT_OK && out) {
        memset(out, 0, sizeof *out);
        mirt__sums_to_logs(model, &sums, false, out);
    }
    return status;
}

MIRT_API mirt_status mirt_evaluate_arrays(mirt_model *model, mirt_array x, mirt_array y, mirt_logs *out) {
    mirt_dataset *dataset = mirt_arrays(x, y);
    mirt_status status = dataset ? mirt_evaluate(model, dataset, out) : mirt_last_status();
    mirt_dataset_destroy(dataset);
    return status;
}

/* Predictions go straight from the devices into the caller's memory; in the gradient tests' double
   precision they would not fit, so those read tensors another way. */
static mirt_status mirt__predict_pass(mirt_model *model, mirt_dataset *dataset, float *out, size_t capacity) {
    const mirt__data_spec *spec = mirt__dataset_spec(dataset);
    mirt__batch batch;
    size_t per_sample = (size_t)mirt__shape_count(&model->output[0]->shape), done = 0;
    if (capacity / (per_sample ? per_sample : 1) < (size_t)spec->samples) {
        return mirt__fail(MIRT_E_SHAPE, "predictions of %lld samples need %llu floats, there is room for %llu", (long long)spec->samples,
                          (unsigned long long)(per_sample * (size_t)spec->samples), (unsigned long long)capacity);
    }
    mirt_status status = mirt__dataset_begin(dataset, model->strategy->seed, 0);
    while (status == MIRT_OK) {
        status = mirt__dataset_next(dataset, &batch);
        if (status != MIRT_OK || batch.rows == 0) break;
        status = mirt__begin_batch(model, spec, &batch, false);
        if (status != MIRT_OK) break;
        model->trainer->output = (char *)(out + done);
        mirt__run_forward(model, MIRT__PREDICT);
        done += (size_t)batch.rows * per_sample;
    }
    return status;
}

MIRT_API mirt_status mirt_predict(mirt_model *model, mirt_dataset *dataset, float *out, size_t capacity) {
    mirt_dataset *view = NULL;
    if (mirt__need_compiled(model, "mirt_predict") != MIRT_OK) return mirt_last_status();
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_predict: no place for the predictions");
    dataset = mirt__ready(model, dataset, MIRT__PREDICT, &view);
    mirt_status status = dataset ? mirt__predict_pass(model, dataset, out, capacity) : mirt_last_status();
    mirt_dataset_destroy(view);
    return status;
}

MIRT_API mirt_status mirt_predict_arrays(mirt_model *model, mirt_array x, float *out, size_t capacity) {
    mirt_array none;
    memset(&none, 0, sizeof none);
    mirt_dataset *dataset = mirt_arrays(x, none);
    mirt_status status = dataset ? mirt_predict(model, dataset, out, capacity) : mirt_last_status();
    mirt_dataset_destroy(dataset);
    return status;
}
