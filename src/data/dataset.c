/* Functions that all stages share, and stages with samples in memory. */

#include "workers.h"

MIRT__LIB const mirt__data_spec *mirt__dataset_spec(const mirt_dataset *dataset) {
    return &dataset->spec;
}

MIRT__LIB mirt_status mirt__dataset_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    if (dataset->lost)
        return mirt__fail(MIRT_E_TIMEOUT,
                          "this data set was abandoned in the middle of an epoch; it can no longer be used");
    if (mirt__own_process(dataset->process, "reading a data set", "data set") != MIRT_OK) return MIRT_E_STATE;
    dataset->position = 0;
    dataset->seed = seed;
    dataset->epoch = epoch;
    mirt_status status = dataset->stage->begin ? dataset->stage->begin(dataset) : mirt__dataset_begin_source(dataset);
    /* A later pass must not begin where this pass should have begun. */
    for (mirt_dataset *d = dataset; status != MIRT_OK && d; d = d->source) d->pass_over = 0;
    return status;
}

MIRT__TRAINING_LIB bool mirt__dataset_keeps(const mirt_dataset *dataset) {
    bool keeps = false;
    for (; dataset; dataset = dataset->source)
        keeps = keeps || (dataset->kept && dataset->source && (dataset->shuffles || dataset->source->varies));
    return keeps;
}

MIRT__TRAINING_LIB bool mirt__dataset_pass_over(mirt_dataset *dataset, int64_t batches) {
    const int64_t most = INT64_MAX / INT32_MAX; /* a batch has at most INT32_MAX samples */
    for (; dataset->joins > 0 && batches <= most / dataset->joins; dataset = dataset->source) batches *= dataset->joins;
    /* Skipped samples are known only when they are made; a number from a file may be arbitrary. */
    if (dataset->joins >= 0 || dataset->skips || batches > most) return false;
    dataset->pass_over = batches;
    return true;
}

static mirt_status mirt__dataset_next_at(mirt_dataset *dataset, mirt__batch *out) {
    memset(out, 0, sizeof *out);
    mirt__sample sample;
    mirt_status status = MIRT__SKIPPED;
    while (status == MIRT__SKIPPED && dataset->position < dataset->spec.samples)
        status = dataset->stage->at(dataset, dataset->position++, &sample);
    if (status != MIRT_OK) return status == MIRT__SKIPPED ? MIRT_OK : status;
    dataset->current = sample.index;
    for (int f = 0; f < dataset->spec.num_fields; f++) out->field[f] = sample.field[f];
    out->rows = 1;
    out->index = &dataset->current;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__dataset_next(mirt_dataset *dataset, mirt__batch *out) {
    return dataset->stage->next ? dataset->stage->next(dataset, out)
           : dataset->stage->at ? mirt__dataset_next_at(dataset, out)
                                : mirt__dataset_next_filled(dataset, out);
}

MIRT_API int64_t mirt_dataset_size(const mirt_dataset *dataset) {
    return dataset ? dataset->spec.samples : 0;
}

MIRT_API int64_t mirt_dataset_batches(const mirt_dataset *dataset) {
    return dataset ? dataset->batches : 0;
}

MIRT_API void mirt_dataset_destroy(mirt_dataset *dataset) {
    MIRT__ENTER;
    if (!dataset || dataset->lost) return; /* threads may still use it */
    if (dataset->busy) {
        mirt__fail(MIRT_E_STATE,
                   "a call such as mirt_fit is reading this data set; it cannot be destroyed before that call returns");
        return;
    }
    while (dataset && dataset->process == mirt__process()) { /* a child process has none of the threads */
        mirt_dataset *before = dataset->borrows ? NULL : dataset->source;
        mirt__workers_destroy(dataset->worker_pool);
        if (dataset->stage->release) dataset->stage->release(dataset);
        mirt__aligned_free(dataset->slot.block);
        mirt__work_destroy(dataset->work);
        mirt__free(dataset->names);
        mirt__free(dataset->own);
        mirt__free(dataset);
        dataset = before;
    }
}

MIRT__LIB mirt_dataset *mirt__dataset_checked(mirt_status status, mirt_dataset *const *chain) {
    if (status == MIRT_OK) return *chain;
    mirt_dataset_destroy(*chain);
    return NULL;
}

MIRT__LIB mirt_dataset *mirt__dataset_new(size_t size, const mirt__stage *stage) {
    mirt_dataset *dataset = (mirt_dataset *)mirt__calloc(1, size);
    if (!dataset) return NULL;
    dataset->stage = stage;
    dataset->process = mirt__process();
    dataset->spec.accumulate = 1;
    return dataset;
}

MIRT__LIB mirt_status mirt__dataset_add(mirt_dataset **chain, size_t size, const mirt__stage *stage) {
    mirt_dataset *source = *chain, *dataset = mirt__dataset_new(size, stage);
    if (!dataset) return MIRT_E_NOMEM;
    dataset->source = source;
    dataset->spec = source->spec;
    dataset->batches = source->batches;
    dataset->shuffles = source->shuffles;
    dataset->skips = source->skips;
    dataset->identity = source->identity;
    dataset->workers = source->workers;
    dataset->varies = source->varies;
    dataset->samples = source->samples;
    dataset->shard = source->shard;
    dataset->num_shards = source->num_shards;
    *chain = dataset;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_dataset_workers(mirt_dataset *dataset, int workers) {
    const int most = 256;
    if (!dataset) return mirt__fail_missing("mirt_dataset_workers", "data set");
    if ((workers < 1 || workers > most) && workers != MIRT_AUTOTUNE)
        return mirt__fail(MIRT_E_INVALID, "mirt_dataset_workers(%d): the number must be 1 to %d, or MIRT_AUTOTUNE",
                          workers, most);
    for (mirt_dataset *d = dataset; d; d = d->source)
        if (d->worker_pool)
            return mirt__fail(MIRT_E_STATE,
                              "mirt_dataset_workers must be called before the first epoch: its threads have started");
    for (mirt_dataset *d = dataset; d; d = d->source) d->workers = workers == MIRT_AUTOTUNE ? 0 : workers;
    return MIRT_OK;
}

MIRT__LIB uint64_t mirt__identity_with(uint64_t identity, uint64_t more) {
    const uint64_t prime = 0x9E3779B97F4A7C15u;
    identity = (identity ^ more) * prime;
    return identity ^ identity >> 29;
}

MIRT__LIB mirt_status mirt__dataset_name_cost(mirt_dataset *dataset, const char *name) {
    char *copy = mirt__strdup(name);
    if (!copy) return MIRT_E_NOMEM;
    dataset->own = copy;
    dataset->cost = copy;
    return MIRT_OK;
}

/* >>class names: those of the last stage that has names */

MIRT__LIB mirt_dataset *mirt__names_of(mirt_dataset *dataset) {
    while (dataset && !dataset->names) dataset = dataset->source;
    return dataset;
}

MIRT__LIB mirt_status mirt__names_set(const char *caller, const char *const *names, int count, char ***own,
                                      int *number) {
    size_t bytes = 0;
    if (!names || count < 1) return mirt__fail(MIRT_E_INVALID, "%s needs at least one name", caller);
    for (int i = 0; i < count; i++) {
        if (!names[i]) return mirt__fail(MIRT_E_INVALID, "%s: class %d of %d has no name", caller, i, count);
        bytes += sizeof(char *) + strlen(names[i]) + 1;
    }
    /* pointers, followed by the names they point to */
    char **copy = (char **)mirt__calloc(1, bytes);
    if (!copy) return MIRT_E_NOMEM;
    char *text = (char *)(copy + count);
    for (int i = 0; i < count; i++) {
        size_t size = strlen(names[i]) + 1;
        copy[i] = (char *)memcpy(text, names[i], size);
        text += size;
    }
    mirt__free(*own);
    *own = copy;
    *number = count;
    return MIRT_OK;
}

MIRT__LIB int mirt__bad_name(const char *const *names, int count) {
    for (int i = 0; i < count; i++) {
        if (names[i] && !mirt__utf8_valid(names[i], strlen(names[i]))) return i;
    }
    return -1;
}

MIRT_API mirt_status mirt_set_class_names(mirt_dataset *dataset, const char *const *names, int count) {
    if (!dataset) return mirt__fail_missing("mirt_set_class_names", "data set");
    mirt_status status = mirt__names_set("mirt_set_class_names", names, count, &dataset->names, &dataset->num_names);
    if (status == MIRT_OK) dataset->names_in_files = mirt__bad_name(names, count) < 0;
    return status;
}

MIRT_API const char *const *mirt_class_names(const mirt_dataset *dataset, int *count) {
    const mirt_dataset *named = mirt__names_of((mirt_dataset *)dataset);
    if (count) *count = named ? named->num_names : 0;
    return named ? (const char *const *)named->names : NULL;
}

MIRT__TRAINING_LIB mirt_status mirt__dataset_name_digits(mirt_dataset *dataset) {
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    return mirt_set_class_names(dataset, names, MIRT__COUNT(names));
}

/* >>fields */

MIRT__LIB const char *mirt__field_name(const mirt__data_spec *spec, int field, char out[16]) {
    int of = field < spec->num_x ? spec->num_x : spec->num_y;
    const char *what = field < spec->num_x ? "x" : "y";
    if (field >= spec->num_x) field -= spec->num_x;
    if (field >= of) snprintf(out, 16, "weights");
    else if (of == 1) snprintf(out, 16, "%s", what);
    else snprintf(out, 16, "%s[%d]", what, field);
    return out;
}

MIRT__LIB void mirt__data_add_field(mirt__data_spec *spec, mirt_dtype dtype, mirt_shape shape) {
    mirt__data_field *field = &spec->field[spec->num_fields++];
    field->dtype = dtype;
    field->shape = shape;
}

/* Bytes of one sample; the error names the field. */
static mirt_status mirt__data_field_bytes(const char *what, mirt__data_field *field) {
    char text[96];
    int64_t count = mirt__shape_count(&field->shape);
    size_t size = mirt__dtype_size(field->dtype);
    bool positive = true;
    for (int i = 0; i < field->shape.rank; i++) positive = positive && field->shape.dim[i] > 0;
    if (size == 0) return mirt__fail(MIRT_E_INVALID, "%s has the unknown dtype %d", what, (int)field->dtype);
    if (!positive)
        return mirt__fail(MIRT_E_SHAPE, "%s has samples of shape %s: every dimension must be positive", what,
                          mirt__shape_text(&field->shape, text));
    if (count < 0 || (uint64_t)count > SIZE_MAX || !mirt__mul_size((size_t)count, size, &field->bytes))
        return mirt__fail(MIRT_E_SHAPE, "%s has samples of shape %s: too large for this machine", what,
                          mirt__shape_text(&field->shape, text));
    return MIRT_OK;
}

/* Bytes of a slot of `rows` samples, each field rounded up to MIRT__ALIGN; false on overflow. */
static bool mirt__slot_bytes(const mirt__data_spec *spec, int64_t rows, bool samples, size_t *bytes) {
    size_t size;
    if (rows < 0 || (uint64_t)rows > SIZE_MAX / 64) return false;
    *bytes = (size_t)rows * sizeof(int64_t);
    for (int f = 0; samples && f < spec->num_fields; f++) {
        if (!mirt__mul_size((size_t)rows, spec->field[f].bytes, &size) || size > SIZE_MAX / 4) return false;
        if (!mirt__add_size(*bytes, mirt__align_up(size), bytes) || *bytes > SIZE_MAX / 2) return false;
    }
    return true;
}

MIRT__LIB mirt_status mirt__dataset_check_spec(mirt_dataset *dataset) {
    mirt__data_spec *spec = &dataset->spec;
    char name[16];
    size_t bytes;
    mirt_status status = MIRT_OK;
    for (int f = 0; f < spec->num_fields && status == MIRT_OK; f++)
        status = mirt__data_field_bytes(mirt__field_name(spec, f, name), &spec->field[f]);
    if (status == MIRT_OK && !mirt__slot_bytes(spec, spec->samples < 0 ? 1 : spec->samples, true, &bytes))
        status = mirt__fail(MIRT_E_SHAPE, "%lld samples of this size are too many for this machine",
                            (long long)spec->samples);
    return status;
}

MIRT__LIB int64_t mirt__data_most_rows(const mirt__data_spec *spec) {
    int64_t rows = spec->batch ? spec->batch : 1;
    return spec->samples >= 0 && spec->samples < rows ? spec->samples : rows;
}

/* >>slots */

MIRT__LIB mirt_status mirt__slot_create(mirt__slot *slot, const mirt__data_spec *spec, int64_t rows, bool samples) {
    size_t bytes;
    if (!mirt__slot_bytes(spec, rows, samples, &bytes)) {
        mirt__no_memory(SIZE_MAX);
        return MIRT_E_NOMEM;
    }
    slot->block = mirt__aligned_alloc(bytes);
    if (!slot->block) return MIRT_E_NOMEM;
    char *at = (char *)slot->block;
    for (int f = 0; samples && f < spec->num_fields; f++) {
        slot->field[f] = at;
        at += mirt__align_up((size_t)rows * spec->field[f].bytes);
    }
    slot->index = (int64_t *)(void *)at;
    return MIRT_OK;
}

MIRT__LIB void mirt__slot_put(mirt__slot *slot, const mirt__data_spec *spec, int64_t row, const void *const *from,
                              const int64_t *index, int64_t rows) {
    for (int f = 0; f < spec->num_fields; f++) {
        size_t bytes = spec->field[f].bytes;
        memcpy((char *)slot->field[f] + (size_t)row * bytes, from[f], (size_t)rows * bytes);
    }
    memcpy(slot->index + row, index, (size_t)rows * sizeof *index);
}

MIRT__LIB void mirt__slot_give(const mirt__slot *slot, const mirt__data_spec *spec, int64_t row, int64_t rows,
                               mirt__batch *out) {
    for (int f = 0; f < spec->num_fields; f++)
        out->field[f] = (const char *)slot->field[f] + (size_t)row * spec->field[f].bytes;
    out->index = slot->index + row;
    out->rows = rows;
    out->first = slot->first + row;
}

MIRT__LIB mirt_status mirt__slot_pull(mirt__slot *slot, mirt_dataset *source) {
    mirt__batch batch;
    mirt_status status = MIRT__SKIPPED;
    while (source->lent && status == MIRT__SKIPPED) status = source->stage->fill(source, slot);
    if (source->lent) return status;
    status = mirt__dataset_next(source, &batch);
    if (status != MIRT_OK) return status;
    slot->rows = batch.rows;
    slot->first = batch.first;
    if (batch.rows) mirt__slot_put(slot, &source->spec, 0, batch.field, batch.index, batch.rows);
    return MIRT_OK;
}

/* >>functions shared by stages */

MIRT__LIB mirt_status mirt__dataset_begin_slot(mirt_dataset *dataset) {
    if (!dataset->stage->fill) return MIRT_OK;
    if (!dataset->work && (dataset->stage->make || dataset->apply)) {
        __atomic_store_n(&dataset->work, mirt__work_create(), __ATOMIC_RELEASE);
        if (!dataset->work) return MIRT_E_NOMEM;
    }
    if (dataset->lent || dataset->slot.block) return MIRT_OK;
    return mirt__slot_create(&dataset->slot, &dataset->spec, mirt__data_most_rows(&dataset->spec), true);
}

MIRT__LIB mirt_status mirt__dataset_begin_source(mirt_dataset *dataset) {
    mirt_status status = mirt__dataset_begin_slot(dataset);
    return status == MIRT_OK && dataset->source ? mirt__dataset_begin(dataset->source, dataset->seed, dataset->epoch)
                                                : status;
}

MIRT__LIB mirt_status mirt__dataset_fill_made(mirt_dataset *dataset, mirt__slot *out) {
    mirt_status status = MIRT__SKIPPED;
    out->rows = 0;
    while (status == MIRT__SKIPPED && dataset->position < dataset->spec.samples)
        status = dataset->stage->make(dataset, dataset->position++, dataset->work, out->field, out->index);
    out->rows = status == MIRT_OK;
    return status == MIRT__SKIPPED ? MIRT_OK : status;
}

MIRT__LIB bool mirt__reachable(const mirt_dataset *dataset) {
    return dataset->stage->at || (dataset->stage->make && !dataset->run);
}

MIRT__LIB mirt_status mirt__dataset_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                         int64_t *index) {
    mirt_dataset *source = dataset->source;
    mirt__sample sample;
    if (!source->stage->at) return source->stage->make(source, i, work, field, index);
    mirt_status status = source->stage->at(source, i, &sample);
    if (status != MIRT_OK) return status;
    *index = sample.index;
    for (int f = 0; field && f < source->spec.num_fields; f++)
        memcpy(field[f], sample.field[f], source->spec.field[f].bytes);
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__dataset_reach(mirt_dataset *dataset, int64_t i, mirt__work *work, mirt__sample *out) {
    if (dataset->stage->at) return dataset->stage->at(dataset, i, out);
    const mirt__data_spec *spec = &dataset->spec;
    void *field[MIRT__MAX_FIELDS];
    size_t bytes;
    if (!mirt__slot_bytes(spec, 1, true, &bytes)) return mirt__no_memory(SIZE_MAX), MIRT_E_NOMEM;
    /* Keyed by the spec; buffers that the stage itself requests are keyed by the stage. */
    char *room = (char *)mirt__work_room(work, (const mirt_dataset *)(const void *)spec, bytes);
    if (!room) return MIRT_E_NOMEM;
    for (int f = 0; f < spec->num_fields; f++) {
        out->field[f] = field[f] = room;
        room += mirt__align_up(spec->field[f].bytes);
    }
    return dataset->stage->make(dataset, i, work, field, &out->index);
}

MIRT__LIB mirt_status mirt__dataset_next_filled(mirt_dataset *dataset, mirt__batch *out) {
    memset(out, 0, sizeof *out);
    mirt_status status;
    do status = dataset->stage->fill(dataset, &dataset->slot);
    while (status == MIRT__SKIPPED);
    if (status == MIRT_OK && dataset->slot.rows)
        mirt__slot_give(&dataset->slot, &dataset->spec, 0, dataset->slot.rows, out);
    return status;
}

MIRT__LIB mirt_dataset *mirt__dataset_batched(mirt_dataset *dataset, int64_t batch, bool shuffle, mirt_dataset **view) {
    const int64_t stream_buffer = 1024;
    mirt_dataset *chain = dataset;
    mirt_status status = MIRT_OK;
    if (dataset->spec.batch) return dataset;
    if (MIRT__TRAINS && shuffle) status = mirt__shuffle_over(&chain, stream_buffer);
    if (status == MIRT_OK) status = mirt__batch_over(&chain, batch, false);
    if (status == MIRT_OK && chain->source->stage->make) status = mirt__prefetch_over(&chain, MIRT_AUTOTUNE);
    for (mirt_dataset *d = chain; d != dataset; d = d->source) d->borrows = d->source == dataset;
    *view = chain == dataset ? NULL : chain;
    return status == MIRT_OK ? chain : NULL;
}

/* >>drawn images */

MIRT__TRAINING_LIB bool mirt__split_known(const char *caller, mirt_split split) {
    if (split == MIRT_TRAIN || split == MIRT_TEST) return true;
    mirt__fail(MIRT_E_INVALID, "%s has the splits MIRT_TRAIN and MIRT_TEST, not %d", caller, (int)split);
    return false;
}

MIRT__TRAINING_LIB int mirt__random_between(mirt__random *random, int low, int high) {
    return low + (int)mirt__random_below(random, (uint64_t)(high - low + 1));
}

MIRT__TRAINING_LIB unsigned char mirt__byte_of(int value) {
    return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* >>samples in memory */

MIRT__LIB mirt_status mirt__slot_sample(mirt_dataset *dataset, int64_t i, mirt__sample *out) {
    for (int f = 0; f < dataset->spec.num_fields; f++)
        out->field[f] = (const char *)dataset->slot.field[f] + (size_t)i * dataset->spec.field[f].bytes;
    out->index = dataset->slot.index ? dataset->slot.index[i] : i;
    return MIRT_OK;
}

static const mirt__stage mirt__arrays_stage = {NULL, NULL, mirt__slot_sample, NULL, NULL, NULL, NULL};

static mirt_status mirt__arrays_check(const char *what, const mirt_array *array) {
    char text[96];
    const mirt_shape *shape = &array->shape;
    if (!mirt__dtype_known(array->dtype))
        return mirt__fail(MIRT_E_INVALID, "%s has the unknown dtype %d", what, (int)array->dtype);
    /* mirt_make_shape ends a shape at its first 0, so a shape without samples has no dimensions. */
    if (shape->rank < 1 || shape->dim[0] == 0)
        return mirt__fail(MIRT_E_INVALID, "%s is empty: its first dimension counts samples and must be positive", what);
    if (shape->rank > MIRT_MAX_RANK)
        return mirt__fail(MIRT_E_SHAPE, "%s has %d dimensions: at most %d are allowed", what, shape->rank,
                          MIRT_MAX_RANK);
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] <= 0)
            return mirt__fail(MIRT_E_SHAPE, "%s has shape %s: every dimension must be positive", what,
                              mirt__shape_text(shape, text));
    }
    return MIRT_OK;
}

/* The number of arrays in a list, which ends at the first one without data; -1: a later one has data. */
static int mirt__arrays_count(const char *what, const mirt_array *list, int most) {
    int count = 0;
    while (count < most && list[count].data) count++;
    for (int i = count; i < most; i++) {
        if (!list[i].data) continue;
        mirt__fail(MIRT_E_INVALID, "%s[%d] has data, but %s[%d] has none and ends the list", what, i, what,
                   count);
        return -1;
    }
    return count;
}

static mirt_status mirt__arrays_add(mirt__data_spec *spec, const mirt_array *array, const void **field) {
    char name[16], first[16];
    mirt__field_name(spec, spec->num_fields, name);
    mirt_status status = mirt__arrays_check(name, array);
    if (status != MIRT_OK) return status;
    if (spec->num_fields == 0) spec->samples = array->shape.dim[0];
    if (array->shape.dim[0] != spec->samples)
        return mirt__fail(MIRT_E_SHAPE, "%s has %lld samples, %s has %lld: both need the same number",
                          mirt__field_name(spec, 0, first), (long long)spec->samples, name,
                          (long long)array->shape.dim[0]);
    field[spec->num_fields] = array->data;
    mirt__data_add_field(spec, array->dtype, mirt__row_shape(&array->shape));
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__arrays_spec(const mirt_data *data, mirt__data_spec *spec, const void **field) {
    memset(spec, 0, sizeof *spec);
    spec->accumulate = 1;
    spec->num_x = mirt__arrays_count("x", data->x, MIRT_MAX_INPUTS);
    spec->num_y = mirt__arrays_count("y", data->y, MIRT_MAX_OUTPUTS);
    if (spec->num_x < 0 || spec->num_y < 0) return MIRT_E_INVALID;
    if (spec->num_x == 0) return mirt__fail(MIRT_E_INVALID, "x has no data: its pointer is NULL");
    spec->has_weights = data->weights.data != NULL;
    mirt_status status = MIRT_OK;
    for (int i = 0; i < spec->num_x && status == MIRT_OK; i++) status = mirt__arrays_add(spec, &data->x[i], field);
    for (int i = 0; i < spec->num_y && status == MIRT_OK; i++) status = mirt__arrays_add(spec, &data->y[i], field);
    if (status != MIRT_OK || !spec->has_weights) return status;
    if (data->weights.dtype != MIRT_FLOAT32 || data->weights.shape.rank != 1)
        return mirt__fail(MIRT_E_INVALID, "weights must be float32 with one dimension: one weight per sample");
    return mirt__arrays_add(spec, &data->weights, field);
}

MIRT_API mirt_dataset *mirt_arrays_of(const mirt_data *data) {
    MIRT__ENTER;
    const void *field[MIRT__MAX_FIELDS] = {NULL};
    if (!data) mirt__fail_missing("mirt_arrays_of", "data");
    mirt_dataset *dataset = data ? mirt__dataset_new(sizeof(mirt_dataset), &mirt__arrays_stage) : NULL;
    if (!dataset) return NULL;
    dataset->contiguous = true;
    mirt_status status = mirt__arrays_spec(data, &dataset->spec, field);
    for (int f = 0; f < MIRT__MAX_FIELDS; f++) dataset->slot.field[f] = (void *)field[f];
    if (status == MIRT_OK) status = mirt__dataset_check_spec(dataset);
    return mirt__dataset_checked(status, &dataset);
}

MIRT_API mirt_dataset *mirt_arrays(mirt_array x, mirt_array y) {
    MIRT__ENTER;
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = x;
    data.y[0] = y;
    return mirt_arrays_of(&data);
}
