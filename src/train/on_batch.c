#include "trainer.h"
/* Training, testing and predicting on one batch of arrays, at once or by the four stages of a mirrored step. */

static mirt_status mirt__on_batch(mirt_model *model, const mirt_data *data, mirt__program_kind kind, mirt_logs *out,
                                  const char *caller) {
    mirt__sums sums;
    mirt_function *f = mirt__begin_arrays(model, data, kind, caller);
    if (!f || mirt__function_step(f) != MIRT_OK) return mirt_last_status();
    mirt__sums_start(model, kind, &sums);
    mirt__add_results(f, &sums);
    if (!out) return MIRT_OK;
    memset(out, 0, sizeof *out);
    mirt__sums_to_logs(model, &sums, false, out);
    return MIRT_OK;
}

MIRT_API mirt_status mirt_train_on_batch(mirt_model *model, const mirt_data *batch, mirt_logs *out) {
    MIRT__USE_MODEL(model, mirt_last_status());
    return mirt__on_batch(model, batch, MIRT__TRAIN, out, __func__);
}

MIRT_API mirt_status mirt_test_on_batch(mirt_model *model, const mirt_data *batch, mirt_logs *out) {
    MIRT__USE_MODEL(model, mirt_last_status());
    return mirt__on_batch(model, batch, MIRT__EVALUATE, out, __func__);
}

/* >>the four stages */

static mirt_data mirt__data_of(mirt_array x, mirt_array y) {
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = x;
    data.y[0] = y;
    return data;
}

static mirt_function *mirt__need_stage(const mirt_model *model, mirt__step_stage stage, const char *caller,
                                       const char *before) {
    if (!model) return mirt__fail_missing(caller, "model"), (mirt_function *)NULL;
    if (mirt__usable(model->strategy) != MIRT_OK) return NULL;
    mirt_function *f = model->trainer ? model->trainer->function[MIRT__TRAIN] : NULL;
    if (f && f->stage == stage && model->strategy->in_memory == f && !model->strategy->running) return f;
    return mirt__fail(MIRT_E_STATE, "%s: call %s first", caller, before), (mirt_function *)NULL;
}

static mirt_status mirt__batch_loss(mirt_function *f, double *out) {
    mirt__sums sums;
    mirt__sums_start(f->model, MIRT__TRAIN, &sums);
    const double mean = mirt__add_results(f, &sums);
    if (out) *out = mean;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_scatter(mirt_model *model, mirt_array x, mirt_array y) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt_data data = mirt__data_of(x, y);
    mirt_function *f = mirt__begin_arrays(model, &data, MIRT__TRAIN, __func__);
    if (!f) return mirt_last_status();
    f->stage = MIRT__SCATTERED;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_grad(mirt_model *model, double *loss) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt_function *f = mirt__need_stage(model, MIRT__SCATTERED, __func__, "mirt_scatter");
    return f && mirt__function_replicas(f) == MIRT_OK ? mirt__batch_loss(f, loss) : mirt_last_status();
}

MIRT_API mirt_status mirt_all_reduce(mirt_model *model) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt_function *f = mirt__need_stage(model, MIRT__GRADIENTS, __func__, "mirt_grad");
    return f ? mirt__function_all_reduce(f) : mirt_last_status();
}

MIRT_API mirt_status mirt_apply(mirt_model *model) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt_function *f = mirt__need_stage(model, MIRT__REDUCED, __func__, "mirt_all_reduce");
    return f ? mirt__function_update(f) : mirt_last_status();
}

MIRT_API mirt_status mirt_train_step(mirt_model *model, mirt_array x, mirt_array y, double *loss) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt_data data = mirt__data_of(x, y);
    mirt_function *f = mirt__begin_arrays(model, &data, MIRT__TRAIN, __func__);
    return f && mirt__function_step(f) == MIRT_OK ? mirt__batch_loss(f, loss) : mirt_last_status();
}

MIRT_API int64_t mirt_replica_rows(const mirt_model *model, int replica, int64_t *first) {
    const mirt_function *f = model && model->trainer ? model->trainer->function[MIRT__TRAIN] : NULL;
    int64_t at = 0, rows = 0;
    if (f && replica >= 0 && replica < f->step.replicas) rows = mirt__replica_share(&f->step, replica, &at);
    if (first) *first = at;
    return rows;
}

MIRT_API mirt_status mirt_get_gradient(mirt_model *model, const char *name, int device, float *out, size_t count) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (model && mirt__usable(model->strategy) != MIRT_OK) return mirt_last_status();
    mirt_function *f = model && model->trainer ? model->trainer->function[MIRT__TRAIN] : NULL;
    if (!f || model->strategy->in_memory != f || (f->stage != MIRT__GRADIENTS && f->stage != MIRT__REDUCED))
        return mirt__fail(MIRT_E_STATE, "mirt_get_gradient: call mirt_grad first");
    if (!name || !out)
        return mirt__fail(MIRT_E_INVALID, "mirt_get_gradient: no weight name or no place for the values");
    int index = mirt__variable_find(model, name), first;
    if (index < 0) return mirt_last_status();
    if (device < 0 || device >= model->strategy->num_devices) {
        return mirt__fail(MIRT_E_DEVICE, "mirt_get_gradient: there is no device %d; the strategy has %d", device,
                          model->strategy->num_devices);
    }
    const mirt_model *root = mirt__root(model, &first);
    const mirt__variable *v = &root->variable[first + index];
    if ((int64_t)count != v->count) {
        return mirt__fail(MIRT_E_SHAPE, "%s has %lld elements, not %zu", name, (long long)v->count, count);
    }
    if (!mirt__is_trained(v)) return mirt__fail(MIRT_E_INVALID, "%s is not trained: it has no gradient", name);
    return mirt__device_gradient(&f->step, device, (int64_t)(v->offset / sizeof(mirt__real)), v->count, out);
}
