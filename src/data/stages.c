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
    int from[MIRT__MAX_FIELDS]; /* the field of the previous stage that a field begins as a copy of; -1: none */
} mirt__map_dataset;

static mirt_status mirt__map_apply(mirt_dataset *dataset, const mirt__sample *in, mirt__work *work, void *const *out) {
    mirt__map_dataset *map = (mirt__map_dataset *)dataset;
    const mirt__data_spec *spec = &dataset->spec;
    const float one = 1;
    for (int f = 0; f < spec->num_fields; f++)
        if (map->from[f] >= 0) memcpy(out[f], in->field[map->from[f]], spec->field[f].bytes);
    if (spec->has_weights && !dataset->source->spec.has_weights) memcpy(out[spec->num_fields - 1], &one, sizeof one);
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

/* Appends field `was` of the previous stage, or of `now`'s dtype and shape. */
static void mirt__map_field(mirt__map_dataset *map, int was, const mirt_array *now) {
    mirt__data_spec *spec = &map->base.spec;
    const mirt__data_field *old = was >= 0 ? &map->base.source->spec.field[was] : NULL;
    const bool stays = old && (!now || (now->dtype == old->dtype && mirt__shape_equal(&now->shape, &old->shape)));
    map->from[spec->num_fields] = stays ? was : -1;
    mirt__data_add_field(spec, now ? now->dtype : old->dtype, now ? now->shape : old->shape);
}

/* `count` inputs or labels, or, if that is 0, those of the previous stage, `before` from field `first` on; a list gives
   the dtypes and shapes of the first `listed`. */
static int mirt__map_fields(mirt__map_dataset *map, int first, int before, const mirt_array *list, int listed,
                            int count) {
    if (count == 0) count = before;
    for (int i = 0; i < count; i++) mirt__map_field(map, i < before ? first + i : -1, i < listed ? &list[i] : NULL);
    return count > 0 ? count : 0;
}

static void mirt__map_spec(mirt__map_dataset *map, const mirt_map_desc *desc) {
    const mirt__data_spec *before = &map->base.source->spec;
    const mirt_array x = mirt_make_array(NULL, desc->dtype, desc->shape),
                     one = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(0));
    const bool first = desc->shape.rank != 0; /* x[0] alone has another shape */
    mirt__data_spec *spec = &map->base.spec;
    spec->num_fields = 0;
    spec->num_x = mirt__map_fields(map, 0, before->num_x, first ? &x : desc->x, first ? 1 : desc->num_x, desc->num_x);
    spec->num_y = mirt__map_fields(map, before->num_x, before->num_y, desc->y, desc->num_y, desc->num_y);
    if (before->has_weights) mirt__map_field(map, before->num_fields - 1, NULL);
    if (before->has_weights || !desc->add_weights) return;
    mirt__map_field(map, -1, &one);
    spec->has_weights = true;
}

static mirt_status mirt__map_check(const mirt_map_desc *desc) {
    static const char caller[] = "mirt_map";
    if (!desc || !desc->fn) return mirt__fail(MIRT_E_INVALID, "%s needs a function", caller);
    if (desc->num_x < 0 || desc->num_x > MIRT_MAX_INPUTS || desc->num_y < -1 || desc->num_y > MIRT_MAX_OUTPUTS)
        return mirt__fail(MIRT_E_INVALID, "%s: %d inputs and %d labels: they must be 0 to %d and -1 to %d", caller,
                          desc->num_x, desc->num_y, MIRT_MAX_INPUTS, MIRT_MAX_OUTPUTS);
    if (desc->num_x && desc->shape.rank)
        return mirt__fail(MIRT_E_INVALID, "%s: both a shape and %d inputs: the shape is that of x[0]", caller,
                          desc->num_x);
    mirt_status status = mirt__shape_check(caller, &desc->shape);
    for (int i = 0; i < desc->num_x && status == MIRT_OK; i++) status = mirt__shape_check(caller, &desc->x[i].shape);
    for (int i = 0; i < desc->num_y && status == MIRT_OK; i++) status = mirt__shape_check(caller, &desc->y[i].shape);
    return status;
}

static mirt_status mirt__map_set(mirt_dataset *dataset, const mirt_map_desc *desc) {
    mirt__map_dataset *map = (mirt__map_dataset *)dataset;
    map->fn = desc->fn;
    map->user = desc->user;
    if (mirt__dataset_name_cost(dataset, desc->name ? desc->name : "mirt_map") != MIRT_OK) return MIRT_E_NOMEM;
    dataset->foreign = true;
    dataset->identity = mirt__identity_with(dataset->identity, mirt__hash(dataset->cost));
    mirt__map_spec(map, desc);
    return mirt__dataset_check_spec(dataset) == MIRT_OK ? MIRT_OK : mirt__fail_at("%s", dataset->cost);
}

MIRT_API mirt_dataset *mirt_map(mirt_dataset *dataset, const mirt_map_desc *desc) {
    MIRT__ENTER;
    if (!dataset) return NULL;
    mirt_status status = mirt__map_check(desc);
    if (status == MIRT_OK)
        status = mirt__dataset_add_each("mirt_map", &dataset, sizeof(mirt__map_dataset), mirt__map_apply);
    if (status == MIRT_OK) status = mirt__map_set(dataset, desc);
    return mirt__dataset_checked(status, &dataset);
}
