/* Stages that select or change samples: take, skip, repeat, map, accumulate. */

#include "data.h"

static mirt_status mirt__stage_count(const char *caller, int64_t count, int least) {
    if (count >= least && count <= INT32_MAX) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "%s(%lld): the argument must be %d to %d", caller, (long long)count, least,
                      (int)INT32_MAX);
}

MIRT__LIB int64_t mirt__dataset_rows(const mirt_dataset *dataset, int64_t batches) {
    while (!dataset->stage->rows) dataset = dataset->source;
    return dataset->stage->rows(dataset, batches);
}

/* >>take and skip: elements [first, first + count) of the stage before, which are samples, or
   batches after a batch stage */

typedef struct mirt__window_dataset {
    mirt_dataset base;
    int64_t first, count; /* count -1: all remaining ones */
    int64_t passed;       /* position of the first ones, if samples come in passes */
} mirt__window_dataset;

static mirt_status mirt__window_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    ((mirt__window_dataset *)dataset)->passed = 0;
    return mirt__dataset_begin(dataset->source, seed, epoch);
}

static mirt_status mirt__window_run(mirt_dataset *dataset, int64_t most, bool turn, int64_t *first, int64_t *count) {
    mirt__window_dataset *window = (mirt__window_dataset *)dataset;
    mirt_status status = MIRT_OK;
    for (*count = 1; window->passed < window->first && *count && status == MIRT_OK; window->passed += *count)
        status = dataset->source->run(dataset->source, window->first - window->passed, turn, first, count);
    if (status != MIRT_OK || window->passed < window->first) return *count = 0, status;
    if (window->count >= 0 && most > window->count - dataset->position) most = window->count - dataset->position;
    *count = 0;
    if (most > 0) status = dataset->source->run(dataset->source, most, turn, first, count);
    dataset->position += *count;
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
    mirt__window_begin, mirt__window_next, NULL, NULL, NULL, NULL, mirt__window_rows
};
static const mirt__stage mirt__window_run_stage = {
    mirt__window_begin, mirt__window_next, NULL, mirt__dataset_make, NULL, NULL, mirt__window_rows
};
static const mirt__stage mirt__window_at_stage = {
    mirt__window_begin, mirt__dataset_next_at, mirt__window_at, NULL, NULL, NULL, NULL
};
static const mirt__stage mirt__window_make_stage = {
    mirt__dataset_begin_filled, mirt__dataset_next_filled, NULL, mirt__window_make, mirt__dataset_fill_made, NULL, NULL
};

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
    if (status != MIRT_OK) return mirt__dataset_give_up(source, false);
    const mirt__stage *stage = source->stage->at     ? &mirt__window_at_stage
                               : source->run         ? &mirt__window_run_stage
                               : source->stage->make ? &mirt__window_make_stage
                                                     : &mirt__window_stage;
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__window_dataset), stage, source, false);
    if (!dataset) return NULL;
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

/* >>repeat */

typedef struct mirt__repeat_dataset {
    mirt_dataset base;
    int64_t passes, pass; /* passes 0: endless */
    bool any;             /* this pass has returned a sample */
    int64_t lost;         /* atomic: number of skipped samples of the pass */
    uint64_t seed;
    int64_t epoch;
} mirt__repeat_dataset;

/* Each pass is an epoch for the previous stages. */
static mirt_status mirt__repeat_pass(mirt__repeat_dataset *repeat) {
    const int bits = 24; /* seed of epochs, if passes are endless */
    uint64_t epoch = (uint64_t)repeat->epoch, pass = (uint64_t)repeat->pass;
    epoch = repeat->passes ? epoch * (uint64_t)repeat->passes + pass : (pass << bits) + epoch;
    repeat->any = false;
    repeat->lost = 0;
    return mirt__dataset_begin(repeat->base.source, repeat->seed, (int64_t)epoch);
}

static mirt_status mirt__repeat_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__repeat_dataset *repeat = (mirt__repeat_dataset *)dataset;
    repeat->pass = 0;
    repeat->seed = seed;
    repeat->epoch = epoch;
    return mirt__repeat_pass(repeat);
}

static mirt_status mirt__repeat_next(mirt_dataset *dataset, mirt__batch *out) {
    mirt__repeat_dataset *repeat = (mirt__repeat_dataset *)dataset;
    for (;;) {
        mirt_status status = mirt__dataset_next(dataset->source, out);
        if (status != MIRT_OK) return status;
        /* A pass without samples ends the epoch, which would be endless otherwise. */
        if (out->rows) repeat->any = true;
        if (out->rows || !repeat->any || repeat->pass + 1 == repeat->passes) return MIRT_OK;
        repeat->pass++;
        status = mirt__repeat_pass(repeat);
        if (status != MIRT_OK) return status;
    }
}

static mirt_status mirt__repeat_run(mirt_dataset *dataset, int64_t most, bool turn, int64_t *first, int64_t *count) {
    mirt__repeat_dataset *repeat = (mirt__repeat_dataset *)dataset;
    for (;;) {
        int64_t left = dataset->source->spec.samples - dataset->position;
        *first = dataset->position;
        *count = most < left ? most : left;
        dataset->position += *count;
        if (*count || !turn || repeat->lost == dataset->source->spec.samples || repeat->pass + 1 == repeat->passes)
            return MIRT_OK;
        repeat->pass++;
        dataset->position = 0;
        mirt_status status = mirt__repeat_pass(repeat);
        if (status != MIRT_OK) return status;
    }
}

static mirt_status mirt__repeat_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                     int64_t *index) {
    mirt_status status = mirt__dataset_make(dataset, i, work, field, index);
    if (status == MIRT__SKIPPED) __atomic_add_fetch(&((mirt__repeat_dataset *)dataset)->lost, 1, __ATOMIC_RELAXED);
    return status;
}

static int64_t mirt__repeat_rows(const mirt_dataset *dataset, int64_t batches) {
    const mirt_dataset *source = dataset->source;
    if (source->batches < 0) return mirt__dataset_rows(source, batches);
    if (dataset->batches >= 0 && batches >= dataset->batches) return dataset->spec.samples;
    return batches / source->batches * source->spec.samples + mirt__dataset_rows(source, batches % source->batches);
}

static const mirt__stage mirt__repeat_stage = {
    mirt__repeat_begin, mirt__repeat_next, NULL, NULL, NULL, NULL, mirt__repeat_rows
};
static const mirt__stage mirt__repeat_run_stage = {
    mirt__repeat_begin, mirt__repeat_next, NULL, mirt__repeat_make, NULL, NULL, mirt__repeat_rows
};

MIRT__LIB bool mirt__dataset_repeats(const mirt_dataset *dataset, uint64_t *pass) {
    bool repeats = false;
    for (*pass = 0; dataset; dataset = dataset->source) {
        if (dataset->stage != &mirt__repeat_stage && dataset->stage != &mirt__repeat_run_stage) continue;
        *pass = (*pass << 32) + *pass + (uint64_t)((const mirt__repeat_dataset *)dataset)->pass;
        repeats = true;
    }
    return repeats;
}

MIRT__LIB void mirt__dataset_vary(mirt_dataset *dataset) {
    uint64_t pass;
    dataset->varies = mirt__dataset_repeats(dataset->source, &pass) ? 2 : 1;
}

MIRT_API mirt_dataset *mirt_repeat(mirt_dataset *dataset, int64_t count) {
    MIRT__ENTER;
    if (!dataset) return NULL;
    mirt_status status = count > 0 ? mirt__stage_count("mirt_repeat", count, 1) : MIRT_OK;
    if (count < 0) count = 0;
    if (status == MIRT_OK && count && dataset->spec.samples > INT64_MAX / count)
        status = mirt__fail(MIRT_E_INVALID, "mirt_repeat(%lld): %lld samples are too many to repeat that often",
                            (long long)count, (long long)dataset->spec.samples);
    if (status != MIRT_OK) return mirt__dataset_give_up(dataset, false);
    bool runs = !dataset->spec.batch && mirt__reachable(dataset);
    mirt_dataset *stage = mirt__dataset_new(sizeof(mirt__repeat_dataset),
                                            runs ? &mirt__repeat_run_stage : &mirt__repeat_stage, dataset, false);
    if (!stage) return NULL;
    if (runs) stage->run = mirt__repeat_run;
    ((mirt__repeat_dataset *)stage)->passes = count;
    stage->pointing = dataset->pointing;
    stage->samples = NULL;
    stage->identity = mirt__identity_with(stage->identity, mirt__hash("repeat") + (uint64_t)count);
    if (stage->varies) stage->varies = 2;
    bool endless = count == 0 || dataset->spec.samples < 0;
    stage->spec.samples = endless ? -1 : dataset->spec.samples * count;
    if (dataset->spec.batch) stage->batches = endless ? -1 : dataset->batches * count;
    return stage;
}

/* >>map */

typedef struct mirt__map_dataset {
    mirt_dataset base;
    mirt_map_fn fn;
    void *user;
    char *name;
    bool keeps_x; /* x[0] keeps its shape and dtype */
} mirt__map_dataset;

static mirt_status mirt__map_apply(mirt__map_dataset *map, const void *const *in, int64_t index, mirt__work *work,
                                   void *const *out) {
    const mirt__data_spec *from = &map->base.source->spec;
    const float one = 1;
    for (int f = map->keeps_x ? 0 : 1; f < from->num_fields; f++) memcpy(out[f], in[f], from->field[f].bytes);
    if (map->base.spec.num_fields > from->num_fields) memcpy(out[from->num_fields], &one, sizeof one);
    mirt__at_begin(&map->base, work, map->name, index);
    int code;
    {
        MIRT__OUTSIDE;
        code = map->fn(in, out, index, map->user);
    }
    mirt__at_end(&map->base, work);
    if (code)
        return mirt__fail(MIRT_E_CALLBACK, "%s returned %d for sample %lld", map->name, code, (long long)index);
    return MIRT_OK;
}

static mirt_status mirt__map_fill(mirt_dataset *dataset, mirt__slot *out) {
    mirt__batch in;
    out->rows = 0;
    mirt_status status = mirt__dataset_next(dataset->source, &in);
    if (status != MIRT_OK || in.rows == 0) return status;
    out->index[0] = in.index[0];
    status = mirt__map_apply((mirt__map_dataset *)dataset, in.field, in.index[0], NULL, out->field);
    if (status == MIRT_OK) out->rows = 1;
    return status;
}

static mirt_status mirt__map_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                  int64_t *index) {
    mirt__sample in;
    if (!field) return mirt__dataset_make(dataset, i, work, NULL, index);
    mirt_status status = mirt__dataset_reach(dataset->source, i, work, &in);
    if (status != MIRT_OK) return status;
    *index = in.index;
    return mirt__map_apply((mirt__map_dataset *)dataset, in.field, in.index, work, field);
}

static void mirt__map_release(mirt_dataset *dataset) { mirt__free(((mirt__map_dataset *)dataset)->name); }

static const mirt__stage mirt__map_stage = {
    mirt__dataset_begin_filled, mirt__dataset_next_filled, NULL, NULL, mirt__map_fill, mirt__map_release, NULL
};
static const mirt__stage mirt__map_make_stage = {
    mirt__dataset_begin_filled, mirt__dataset_next_filled, NULL, mirt__map_make, mirt__dataset_fill_made,
    mirt__map_release, NULL
};

static const mirt__stage mirt__map_run_stage = {
    mirt__dataset_begin_filled, mirt__dataset_next_filled, NULL, mirt__map_make, mirt__map_fill, mirt__map_release, NULL
};

static mirt_status mirt__map_set(mirt_dataset *dataset, const mirt_map_desc *desc) {
    mirt__map_dataset *map = (mirt__map_dataset *)dataset;
    mirt__data_spec spec = dataset->spec;
    map->fn = desc->fn;
    map->user = desc->user;
    map->keeps_x = desc->shape.rank == 0;
    map->name = mirt__strdup(desc->name ? desc->name : "mirt_map");
    if (!map->name) return MIRT_E_NOMEM;
    dataset->cost = map->name;
    dataset->foreign = true;
    dataset->identity = mirt__identity_with(dataset->identity, mirt__hash(map->name));
    if (!map->keeps_x) {
        spec.field[0].dtype = desc->dtype;
        spec.field[0].shape = desc->shape;
    }
    if (desc->add_weights && !spec.has_weights) {
        mirt__data_add_field(&spec, MIRT_FLOAT32, mirt_make_shape(0, 0, 0, 0, 0, 0));
        spec.has_weights = true;
    }
    return mirt__dataset_set_spec(dataset, &spec) == MIRT_OK ? MIRT_OK : mirt__fail_at("%s", map->name);
}

MIRT_API mirt_dataset *mirt_map(mirt_dataset *dataset, const mirt_map_desc *desc) {
    MIRT__ENTER;
    if (!dataset) return NULL;
    mirt_status status = MIRT_OK;
    if (!desc || !desc->fn) status = mirt__fail(MIRT_E_INVALID, "mirt_map needs a function");
    else if (desc->shape.rank < 0 || desc->shape.rank > MIRT_MAX_RANK)
        status = mirt__fail(MIRT_E_SHAPE, "mirt_map: a shape has %d dimensions: at most %d are allowed",
                            desc->shape.rank, MIRT_MAX_RANK);
    else if (dataset->spec.batch)
        status = mirt__fail(MIRT_E_INVALID, "mirt_map must come before mirt_batch: it takes one sample at a time");
    if (status != MIRT_OK) return mirt__dataset_give_up(dataset, false);
    const mirt__stage *kind = mirt__reachable(dataset) ? &mirt__map_make_stage
                              : dataset->run           ? &mirt__map_run_stage
                                                       : &mirt__map_stage;
    mirt_dataset *stage = mirt__dataset_new(sizeof(mirt__map_dataset), kind, dataset, false);
    if (!stage) return NULL;
    if (dataset->run) stage->run = mirt__dataset_run;
    mirt__dataset_vary(stage);
    return mirt__map_set(stage, desc) == MIRT_OK ? stage : mirt__dataset_give_up(stage, false);
}

/* >>accumulate: `joined` batches of the previous stage form one */

typedef struct mirt__accumulate_dataset {
    mirt_dataset base;
    int joined;
} mirt__accumulate_dataset;

static mirt_status mirt__accumulate_fill(mirt_dataset *dataset, mirt__slot *out) {
    mirt__slot part = *out;
    out->rows = 0;
    for (int i = 0; i < ((mirt__accumulate_dataset *)dataset)->joined; i++) {
        for (int f = 0; f < dataset->spec.num_fields; f++)
            part.field[f] = (char *)out->field[f] + (size_t)out->rows * dataset->spec.field[f].bytes;
        part.index = out->index + out->rows;
        mirt_status status = mirt__slot_pull(&part, dataset->source);
        if (status != MIRT_OK) return status;
        if (part.rows == 0) break;
        out->rows += part.rows;
    }
    return MIRT_OK;
}

static int64_t mirt__accumulate_rows(const mirt_dataset *dataset, int64_t batches) {
    if (dataset->batches >= 0 && batches >= dataset->batches) return dataset->spec.samples;
    return mirt__dataset_rows(dataset->source, batches * ((const mirt__accumulate_dataset *)dataset)->joined);
}

static const mirt__stage mirt__accumulate_stage = {
    mirt__dataset_begin_filled, mirt__dataset_next_filled, NULL, NULL, mirt__accumulate_fill, NULL,
    mirt__accumulate_rows
};

MIRT_API mirt_dataset *mirt_accumulate(mirt_dataset *dataset, int batches) {
    MIRT__ENTER;
    if (!dataset) return NULL;
    mirt_status status = mirt__stage_count("mirt_accumulate", batches, 1);
    if (status == MIRT_OK && !dataset->spec.batch)
        status =
            mirt__fail(MIRT_E_INVALID, "mirt_accumulate must come after mirt_batch: it joins batches into one step");
    if (status == MIRT_OK && dataset->spec.batch > INT32_MAX / batches)
        status = mirt__fail(MIRT_E_INVALID, "mirt_accumulate(%d): %d batches of %lld samples are too large a step",
                            batches, batches, (long long)dataset->spec.batch);
    if (status != MIRT_OK) return mirt__dataset_give_up(dataset, false);
    if (batches == 1) return dataset;
    mirt_dataset *stage = mirt__dataset_new(sizeof(mirt__accumulate_dataset), &mirt__accumulate_stage, dataset, false);
    if (!stage) return NULL;
    ((mirt__accumulate_dataset *)stage)->joined = batches;
    stage->joins = batches;
    stage->spec.batch *= batches;
    stage->spec.accumulate *= batches;
    if (dataset->batches > 0) stage->batches = dataset->batches / batches + (dataset->batches % batches != 0);
    dataset->lent = dataset->stage->fill && !dataset->pointing;
    return stage;
}
