/* Stages that select or change samples: take, skip, map. */

#include "data.h"

MIRT__LIB mirt_status mirt__stage_count(const char *caller, int64_t count, int least) {
    if (count >= least && count <= INT32_MAX) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "%s(%lld): the argument must be %d to %d", caller, (long long)count, least,
                      (int)INT32_MAX);
}

MIRT__LIB mirt_status mirt__shape_check(const char *caller, const mirt_shape *shape) {
    if (shape->rank >= 0 && shape->rank <= MIRT_MAX_RANK) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "%s: a shape has %d dimensions: at most %d are allowed", caller, shape->rank,
                      MIRT_MAX_RANK);
}

MIRT__LIB int64_t mirt__dataset_rows(const mirt_dataset *dataset, int64_t batches) {
    while (!dataset->stage->rows) dataset = dataset->source;
    if (dataset->batches >= 0 && batches >= dataset->batches) return dataset->spec.samples;
    return dataset->stage->rows(dataset, batches);
}

/* >>take and skip: elements [first, first + count) of the stage before, which are samples, or
   batches after a batch stage */

typedef struct mirt__window_dataset {
    mirt_dataset base;
    int64_t first, count; /* count -1: all remaining ones */
    int64_t passed;       /* position of the first ones, if samples come in passes */
} mirt__window_dataset;

static mirt_status mirt__window_begin(mirt_dataset *dataset) {
    ((mirt__window_dataset *)dataset)->passed = 0;
    return mirt__dataset_begin_source(dataset);
}

static mirt_status mirt__window_run(mirt_dataset *dataset, int64_t most, bool turn, mirt__sample_range *run) {
    mirt__window_dataset *window = (mirt__window_dataset *)dataset;
    mirt_status status = MIRT_OK;
    run->count = 1;
    while (window->passed < window->first && run->count && status == MIRT_OK) {
        status = dataset->source->run(dataset->source, window->first - window->passed, turn, run);
        window->passed += run->count;
    }
    run->count = 0;
    if (status != MIRT_OK || window->passed < window->first) return status;
    if (window->count >= 0 && most > window->count - dataset->position) most = window->count - dataset->position;
    if (most > 0) status = dataset->source->run(dataset->source, most, turn, run);
    dataset->position += run->count;
    return status;
}

static mirt_status mirt__window_at(mirt_dataset *dataset, int64_t i, mirt__sample *out) {
    return dataset->source->stage->at(dataset->source, ((mirt__window_dataset *)dataset)->first + i, out);
}

static mirt_status mirt__window_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                     int64_t *index) {
    return dataset->source->stage->make(dataset->source, ((mirt__window_dataset *)dataset)->first + i, work, field,
                                        index);
}

static mirt_status mirt__window_next(mirt_dataset *dataset, mirt__batch *out) {
    const mirt__window_dataset *window = (const mirt__window_dataset *)dataset;
    memset(out, 0, sizeof *out);
    if (window->count >= 0 && dataset->position >= window->count) return MIRT_OK;
    for (int64_t i = dataset->position ? window->first : 0; i < window->first; i++) {
        mirt_status status = mirt__dataset_next(dataset->source, out);
        if (status != MIRT_OK || out->rows == 0) return status;
    }
    mirt_status status = mirt__dataset_next(dataset->source, out);
    if (status == MIRT_OK && out->rows) dataset->position++;
    return status;
}

static int64_t mirt__window_rows(const mirt_dataset *dataset, int64_t batches) {
    const mirt__window_dataset *window = (const mirt__window_dataset *)dataset;
    return mirt__dataset_rows(dataset->source, window->first + batches) -
           mirt__dataset_rows(dataset->source, window->first);
}

static const mirt__stage mirt__window_stage = {
    mirt__window_begin, mirt__window_next, NULL, NULL, NULL, NULL, mirt__window_rows};
static const mirt__stage mirt__window_run_stage = {
    mirt__window_begin, mirt__window_next, NULL, mirt__dataset_make, NULL, NULL, mirt__window_rows};
static const mirt__stage mirt__window_at_stage = {mirt__window_begin, NULL, mirt__window_at, NULL, NULL, NULL, NULL};
static const mirt__stage mirt__window_make_stage = {
    NULL, NULL, NULL, mirt__window_make, mirt__dataset_fill_made, NULL, NULL};

static mirt_dataset *mirt__window(mirt_dataset *source, int64_t given, bool skips) {
    if (!source) return NULL;
    const char *caller = skips ? "mirt_skip" : "mirt_take";
    int64_t first = skips ? given : 0, count = skips ? -1 : given;
    int64_t have = source->spec.batch ? source->batches : source->spec.samples;
    mirt_status status = mirt__stage_count(caller, given, skips ? 0 : 1);
    if (status == MIRT_OK && have >= 0 && first >= have)
        status = mirt__fail(MIRT_E_INVALID, "%s(%lld) leaves none of %lld %s%s", caller, (long long)first,
                            (long long)have, source->spec.batch ? "batch" : "sample",
                            have == 1            ? ""
                            : source->spec.batch ? "es"
                                                 : "s");
    const mirt__stage *stage = source->stage->at     ? &mirt__window_at_stage
                               : source->run         ? &mirt__window_run_stage
                               : source->stage->make ? &mirt__window_make_stage
                                                     : &mirt__window_stage;
    mirt_dataset *dataset = source;
    if (status == MIRT_OK) status = mirt__dataset_add(&dataset, sizeof(mirt__window_dataset), stage);
    if (status != MIRT_OK) return mirt__dataset_checked(status, &dataset);
    mirt__window_dataset *window = (mirt__window_dataset *)dataset;
    if (have >= 0 && (count < 0 || count > have - first)) count = have - first;
    if (source->run) dataset->run = mirt__window_run;
    window->first = first;
    window->count = count;
    dataset->identity = mirt__identity_with(mirt__identity_with(dataset->identity, (uint64_t)first), (uint64_t)count);
    dataset->contiguous = source->contiguous;
    dataset->pointing = source->pointing;
    if (!source->spec.batch) {
        dataset->spec.samples = count;
    } else {
        dataset->batches = count;
        dataset->samples = NULL;
        dataset->spec.samples = count < 0 ? -1 : mirt__window_rows(dataset, count);
    }
    return dataset;
}

MIRT_API mirt_dataset *mirt_take(mirt_dataset *dataset, int64_t count) {
    MIRT__ENTER;
    return mirt__window(dataset, count, false);
}

MIRT_API mirt_dataset *mirt_skip(mirt_dataset *dataset, int64_t count) {
    MIRT__ENTER;
    return mirt__window(dataset, count, true);
}

/* >>stages that make a sample of each */

static mirt_status mirt__each_fill(mirt_dataset *dataset, mirt__slot *out) {
    mirt__batch batch;
    mirt__sample in;
    out->rows = 0;
    mirt_status status = mirt__dataset_next(dataset->source, &batch);
    if (status != MIRT_OK || batch.rows == 0) return status;
    memcpy(in.field, batch.field, sizeof in.field);
    in.index = out->index[0] = batch.index[0];
    status = dataset->apply(dataset, &in, dataset->work, out->field);
    out->rows = status == MIRT_OK;
    return status;
}

static mirt_status mirt__each_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                   int64_t *index) {
    mirt__sample in;
    if (!field) return mirt__dataset_make(dataset, i, work, NULL, index);
    mirt_status status = mirt__dataset_reach(dataset->source, i, work, &in);
    if (status != MIRT_OK) return status;
    *index = in.index;
    return dataset->apply(dataset, &in, work, field);
}

static mirt_status mirt__each_run(mirt_dataset *dataset, int64_t most, bool turn, mirt__sample_range *run) {
    return dataset->source->run(dataset->source, most, turn, run);
}

static const mirt__stage mirt__each_stage = {NULL, NULL, NULL, NULL, mirt__each_fill, NULL, NULL};
static const mirt__stage mirt__each_make_stage = {
    NULL, NULL, NULL, mirt__each_make, mirt__dataset_fill_made, NULL, NULL};
static const mirt__stage mirt__each_run_stage = {NULL, NULL, NULL, mirt__each_make, mirt__each_fill, NULL, NULL};

MIRT__LIB mirt_status mirt__dataset_add_each(const char *caller, mirt_dataset **chain, size_t size,
                                             mirt__sample_fn apply) {
    const mirt_dataset *source = *chain;
    uint64_t pass;
    if (source->spec.batch)
        return mirt__fail(MIRT_E_INVALID, "%s must come before mirt_batch: it takes one sample at a time", caller);
    mirt_status status = mirt__dataset_add(chain, size,
                                           mirt__reachable(source) ? &mirt__each_make_stage
                                           : source->run           ? &mirt__each_run_stage
                                                                   : &mirt__each_stage);
    if (status != MIRT_OK) return status;
    mirt_dataset *dataset = *chain;
    if (source->run) dataset->run = mirt__each_run;
    dataset->apply = apply;
    dataset->varies = MIRT__TRAINS && mirt__dataset_repeats(source, &pass) ? 2 : 1;
    return MIRT_OK;
}

typedef struct mirt__map_dataset {
    mirt_dataset base;
    mirt_map_fn fn;
    void *user;
    bool keeps_x; /* x[0] keeps its shape and dtype */
} mirt__map_dataset;

static mirt_status mirt__map_apply(mirt_dataset *dataset, const mirt__sample *in, mirt__work *work, void *const *out) {
    mirt__map_dataset *map = (mirt__map_dataset *)dataset;
    const mirt__data_spec *from = &dataset->source->spec;
    const float one = 1;
    for (int f = map->keeps_x ? 0 : 1; f < from->num_fields; f++) memcpy(out[f], in->field[f], from->field[f].bytes);
    if (dataset->spec.num_fields > from->num_fields) memcpy(out[from->num_fields], &one, sizeof one);
    mirt__at_begin(dataset, work, dataset->cost, in->index);
    int code;
    {
        MIRT__OUTSIDE;
        code = map->fn(in->field, out, in->index, map->user);
    }
    mirt__at_end(dataset, work);
    return code ? mirt__fail(MIRT_E_CALLBACK, "%s returned %d for sample %lld", dataset->cost, code,
                             (long long)in->index)
                : MIRT_OK;
}

static mirt_status mirt__map_set(mirt_dataset *dataset, const mirt_map_desc *desc) {
    mirt__map_dataset *map = (mirt__map_dataset *)dataset;
    mirt__data_spec *spec = &dataset->spec;
    map->fn = desc->fn;
    map->user = desc->user;
    map->keeps_x = desc->shape.rank == 0;
    if (mirt__dataset_name_cost(dataset, desc->name ? desc->name : "mirt_map") != MIRT_OK) return MIRT_E_NOMEM;
    dataset->foreign = true;
    dataset->identity = mirt__identity_with(dataset->identity, mirt__hash(dataset->cost));
    if (!map->keeps_x) {
        spec->field[0].dtype = desc->dtype;
        spec->field[0].shape = desc->shape;
    }
    if (desc->add_weights && !spec->has_weights) {
        mirt__data_add_field(spec, MIRT_FLOAT32, MIRT_SHAPE(0));
        spec->has_weights = true;
    }
    return mirt__dataset_check_spec(dataset) == MIRT_OK ? MIRT_OK : mirt__fail_at("%s", dataset->cost);
}

MIRT_API mirt_dataset *mirt_map(mirt_dataset *dataset, const mirt_map_desc *desc) {
    MIRT__ENTER;
    if (!dataset) return NULL;
    mirt_status status = desc && desc->fn ? mirt__shape_check("mirt_map", &desc->shape)
                                          : mirt__fail(MIRT_E_INVALID, "mirt_map needs a function");
    if (status == MIRT_OK)
        status = mirt__dataset_add_each("mirt_map", &dataset, sizeof(mirt__map_dataset), mirt__map_apply);
    if (status == MIRT_OK) status = mirt__map_set(dataset, desc);
    return mirt__dataset_checked(status, &dataset);
}
