#include "trainer.h"
/* Functions of the user: distributed data, creation, running, results. */

/* >>distributed data */

typedef struct mirt__distributed_dataset {
    mirt_dataset base;
    mirt_strategy *strategy;
    char about[96]; /* the strategy in words, which may be gone when this is needed */
    int64_t epoch; /* of the pass of mirt_dataset_next under way */
} mirt__distributed_dataset;

/* Also by mirt_fit and the like, after which the next pass of mirt_dataset_next begins anew. */
static mirt_status mirt__distributed_begin(mirt_dataset *dataset) {
    dataset->begun = false;
    return mirt__dataset_begin_source(dataset);
}

static mirt_status mirt__distributed_read(mirt_dataset *dataset, mirt__batch *out) {
    return mirt__dataset_next(dataset->source, out);
}

static const mirt__stage mirt__distributed_stage = {
    mirt__distributed_begin, mirt__distributed_read, NULL, NULL, NULL, NULL, NULL};

static const char *mirt__strategy_about(const mirt_strategy *s, char out[96]) {
    snprintf(out, 96, "%d replica%s on %d device%s from %s", s->num_replicas, s->num_replicas == 1 ? "" : "s",
             s->num_devices, s->num_devices == 1 ? "" : "s", s->device[0].name);
    return out;
}

MIRT_API mirt_dataset *mirt_distribute(mirt_strategy *strategy, mirt_dataset *dataset) {
    MIRT__ENTER;
    mirt_status status = MIRT_OK;
    if (!dataset) return NULL;
    if (!strategy) status = mirt__fail_missing("mirt_distribute", "strategy");
    else if (!mirt__dataset_spec(dataset)->batch)
        status = mirt__fail(MIRT_E_INVALID,
                            "mirt_distribute comes after mirt_batch: global batches are dealt to the replicas");
    else status = mirt__dataset_add(&dataset, sizeof(mirt__distributed_dataset), &mirt__distributed_stage);
    if (status != MIRT_OK) return mirt__dataset_checked(status, &dataset);
    mirt__distributed_dataset *d = (mirt__distributed_dataset *)dataset;
    d->strategy = strategy;
    d->epoch = -1;
    mirt__strategy_about(strategy, d->about);
    dataset->joins = 1;
    return dataset;
}

static const mirt__distributed_dataset *mirt__distributed(const mirt_dataset *dataset) {
    return dataset->stage == &mirt__distributed_stage ? (const mirt__distributed_dataset *)dataset : NULL;
}

MIRT__LIB mirt_status mirt__check_distributed(const mirt_model *model, const mirt_dataset *dataset,
                                              const char *caller) {
    char own[96];
    for (const mirt_dataset *at = dataset; at; at = at->source) {
        const mirt__distributed_dataset *d = mirt__distributed(at);
        if (!d || d->strategy == model->strategy) continue;
        return mirt__fail(MIRT_E_INVALID,
                          "%s: the data set is distributed to another strategy (%s) than that of %s (%s)", caller,
                          d->about, model->name, mirt__strategy_about(model->strategy, own));
    }
    return MIRT_OK;
}

MIRT_API mirt_status mirt_dataset_next(mirt_dataset *dataset, mirt_global_batch *out) {
    MIRT__ENTER;
    mirt__batch batch;
    if (!dataset) return mirt__fail_missing(__func__, "data set");
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_dataset_next: no place for the batch");
    memset(out, 0, sizeof *out);
    if (!mirt__distributed(dataset))
        return mirt__fail(MIRT_E_STATE, "mirt_dataset_next reads distributed data sets: mirt_distribute makes one");
    if (mirt__own_process(dataset->process, __func__, "data set") != MIRT_OK) return MIRT_E_STATE;
    if (dataset->busy)
        return mirt__fail(MIRT_E_STATE, "mirt_dataset_next: another call is reading this data set, such as mirt_fit");
    mirt__distributed_dataset *d = (mirt__distributed_dataset *)dataset;
    dataset->busy = true;
    mirt_status status = dataset->begun ? MIRT_OK : mirt__dataset_begin(dataset, d->strategy->seed, ++d->epoch);
    if (status == MIRT_OK) status = mirt__dataset_next(dataset, &batch);
    dataset->busy = false;
    dataset->begun = status == MIRT_OK && batch.rows > 0;
    if (status != MIRT_OK) return status;
    out->rows = batch.rows;
    out->epoch = d->epoch;
    memcpy(out->field, batch.field, sizeof out->field);
    out->index = batch.index;
    out->dataset = dataset;
    return MIRT_OK;
}

/* >>making one */

typedef struct mirt__user_body {
    mirt_body_fn fn;
    void *user;
} mirt__user_body;

static bool mirt__run_user_body(mirt_function *f, void *user) {
    const mirt__user_body *body = (const mirt__user_body *)user;
    bool recorded;
    {
        MIRT__OUTSIDE;
        recorded = body->fn(f, body->user);
    }
    if (recorded) return true;
    if (f->step.program.graph.status == MIRT_OK)
        mirt__fail(MIRT_E_CALLBACK, "the body of a function of %s said that it failed", f->model->name);
    return false;
}

/* They stay, for whoever holds them, but cannot run again. */
static void mirt__functions_disown(mirt_model *model) {
    for (mirt_function *f = model->functions; f; f = f->next) {
        f->root = f->model;
        f->layout = -1;
    }
}

static void mirt__functions_free(mirt_model *model) {
    while (model->functions) mirt_function_destroy(model->functions);
}

MIRT_API mirt_function *mirt_function_create(mirt_model *model, mirt_dataset *dataset, mirt_body_fn body, void *user) {
    MIRT__USE_MODEL(model, NULL);
    mirt__function_desc desc;
    mirt__data_spec none;
    mirt__user_body b = {body, user};
    if (!model) return mirt__fail_missing(__func__, "model"), (mirt_function *)NULL;
    if (!body) return mirt__fail_missing(__func__, "body"), (mirt_function *)NULL;
    if (model->graph.status != MIRT_OK)
        return mirt__fail(model->graph.status, "%s", model->graph.error), (mirt_function *)NULL;
    if (dataset && mirt__check_distributed(model, dataset, __func__) != MIRT_OK) return NULL;
    if (dataset && !mirt__distributed(dataset)) {
        mirt__fail(
            MIRT_E_INVALID,
            "mirt_function_create: the data set is not distributed to the strategy of %s: mirt_distribute does that",
            model->name);
        return NULL;
    }
    memset(&none, 0, sizeof none);
    none.accumulate = 1;
    memset(&desc, 0, sizeof desc);
    desc.spec = dataset ? mirt__dataset_spec(dataset) : &none;
    desc.max_batch = dataset ? mirt__data_most_rows(desc.spec) : model->strategy->num_replicas;
    desc.by_replicas = true;
    mirt_function *f = NULL;
    for (bool ready = false; !ready;) {
        if (!(f = mirt__function_new(model, &desc, mirt__run_user_body, &b))) return NULL;
        mirt__rule_set(f);
        ready = mirt__function_allocate(f) == MIRT_OK;
        if (ready) continue;
        mirt__function_free(f);
        if (!mirt__memory_save(model->strategy)) return NULL;
    }
    f->next = model->functions;
    model->functions = f;
    model->free_functions = mirt__functions_free;
    model->disown_functions = mirt__functions_disown;
    return f;
}

MIRT_API void mirt_function_destroy(mirt_function *function) {
    MIRT__ENTER;
    if (!function || !mirt__may_destroy(function->model->strategy, __func__)) return;
    if (function->recording.active) {
        mirt__log(function->model->strategy, MIRT_LOG_ERROR,
                  "a function of %s is being recorded; its body cannot destroy it", function->model->name);
        return;
    }
    mirt_function **at = &function->model->functions;
    while (*at && *at != function) at = &(*at)->next;
    if (*at) *at = function->next;
    mirt__function_free(function);
}

/* >>running */

MIRT_API mirt_status mirt_function_run(mirt_function *f, const mirt_global_batch *batch) {
    MIRT__USE_MODEL(f ? f->model : NULL, mirt_last_status());
    mirt__batch b;
    if (!f) return mirt__fail_missing(__func__, "function");
    memset(&b, 0, sizeof b);
    if (f->recording.active)
        return mirt__fail(
            MIRT_E_STATE,
            "mirt_function_run: the function is being recorded; it runs when mirt_function_create has returned it");
    if (f->model->busy)
        return mirt__fail(MIRT_E_STATE, "mirt_function_run: %s is being trained or recorded", f->model->name);
    if (f->spec.num_fields == 0) {
        if (batch)
            return mirt__fail(
                MIRT_E_INVALID,
                "mirt_function_run: this function was made without data; every replica would compute the same");
        b.rows = f->model->strategy->num_replicas;
    } else if (!batch || !batch->dataset || batch->rows < 1) {
        return mirt__fail(MIRT_E_INVALID,
                          "mirt_function_run: takes a batch with rows, which mirt_dataset_next has made");
    } else if (mirt__check_distributed(f->model, batch->dataset, __func__) != MIRT_OK) {
        return mirt_last_status();
    } else if (!mirt__distributed(batch->dataset) ||
               !mirt__spec_same(mirt__dataset_spec(batch->dataset), &f->spec)) {
        return mirt__fail(MIRT_E_SHAPE,
                          "mirt_function_run: the batch is of a data set unlike the one the function was made for");
    } else {
        b.rows = batch->rows;
        memcpy(b.field, batch->field, sizeof b.field);
        b.index = batch->index;
    }
    mirt_status status = mirt__function_begin(f, &b);
    return status == MIRT_OK ? mirt__function_step(f) : status;
}

static const mirt__result *mirt__find_result(const mirt_function *f, const char *name, const char *caller) {
    mirt__suggestion guess = {name, NULL, ""};
    if (!f || !name)
        return mirt__fail(MIRT_E_INVALID, "%s: no function or no name", caller), (const mirt__result *)NULL;
    for (int i = 0; i < f->results.count; i++) {
        mirt__guess(&guess, f->results.list[i].name);
        if (strcmp(f->results.list[i].name, name) != 0) continue;
        if (f->step.rows > 0) return &f->results.list[i];
        mirt__fail(MIRT_E_STATE, "%s: the function has not run yet", caller);
        return NULL;
    }
    mirt__fail(MIRT_E_NOT_FOUND, "%s: there is no result \"%s\"%s", caller, name, mirt__did_you_mean(&guess));
    return NULL;
}

static double mirt__result_value(const mirt__result *r, int64_t i) {
    return r->dtype == MIRT_FLOAT32 ? (double)((const mirt__real *)(const void *)r->data)[i]
                                    : mirt__element(r->data, r->dtype, i);
}

MIRT_API mirt_status mirt_reduce(mirt_function *f, const char *name, mirt_reduce_op op, double *out, size_t count) {
    MIRT__USE_MODEL(f ? f->model : NULL, mirt_last_status());
    const mirt__result *r = mirt__find_result(f, name, __func__);
    int64_t first;
    if (!r) return mirt_last_status();
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_reduce: no place for the values of %s", name);
    if ((int64_t)count != r->count)
        return mirt__fail(MIRT_E_SHAPE, "mirt_reduce: %s has %lld elements, not %zu", name, (long long)r->count, count);
    if (op != MIRT_REDUCE_SUM && op != MIRT_REDUCE_MEAN)
        return mirt__fail(MIRT_E_INVALID,
                          "mirt_reduce: invalid operation (%d); it must be MIRT_REDUCE_SUM or MIRT_REDUCE_MEAN",
                          (int)op);
    int64_t parts = r->batched ? f->step.rows : mirt__active_replicas(&f->step);
    for (size_t k = 0; k < count; k++) out[k] = 0;
    for (int64_t i = 0; i < parts; i++) {
        double weight =
            op == MIRT_REDUCE_MEAN && !r->batched ? (double)mirt__replica_share(&f->step, (int)i, &first) : 1;
        for (int64_t k = 0; k < r->count; k++) out[k] += weight * mirt__result_value(r, i * r->count + k);
    }
    for (size_t k = 0; k < count && op == MIRT_REDUCE_MEAN; k++) out[k] /= (double)f->step.rows;
    return MIRT_OK;
}

/* `parts` rows or replicas' values from `first`. */
static mirt_status mirt__copy_result(const mirt__result *r, int64_t first, int64_t parts, float *out, size_t capacity,
                                     size_t *written, const char *caller) {
    if (!out) return mirt__fail(MIRT_E_INVALID, "%s: no place for the values of %s", caller, r->name);
    if ((int64_t)capacity / (r->count ? r->count : 1) < parts) {
        return mirt__fail(MIRT_E_SHAPE, "%s: %s has %lld elements, there is room for %zu", caller, r->name,
                          (long long)(parts * r->count), capacity);
    }
    for (int64_t i = 0; i < parts * r->count; i++) out[i] = (float)mirt__result_value(r, first * r->count + i);
    if (written) *written = (size_t)(parts * r->count);
    return MIRT_OK;
}

MIRT_API mirt_status mirt_gather_result(mirt_function *f, const char *name, float *out, size_t capacity,
                                        size_t *written) {
    MIRT__USE_MODEL(f ? f->model : NULL, mirt_last_status());
    const mirt__result *r = mirt__find_result(f, name, __func__);
    if (!r) return mirt_last_status();
    return mirt__copy_result(r, 0, r->batched ? f->step.rows : mirt__active_replicas(&f->step), out, capacity, written,
                             __func__);
}

MIRT_API mirt_status mirt_local_result(mirt_function *f, const char *name, int replica, float *out, size_t capacity,
                                       size_t *written) {
    MIRT__USE_MODEL(f ? f->model : NULL, mirt_last_status());
    const mirt__result *r = mirt__find_result(f, name, __func__);
    int64_t first;
    if (!r) return mirt_last_status();
    if (replica < 0 || replica >= f->step.replicas)
        return mirt__fail(MIRT_E_NOT_FOUND, "mirt_local_result: there is no replica %d of %d", replica,
                          f->step.replicas);
    int64_t rows = mirt__replica_share(&f->step, replica, &first);
    return mirt__copy_result(r, r->batched ? first : replica, r->batched ? rows : rows > 0, out, capacity, written,
                             __func__);
}
