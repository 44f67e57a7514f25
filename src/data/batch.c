/* Groups samples into batches: copies them together, or points at them where they lie in order. */

#include "data.h"

/* Touches a sample that will be copied soon: after a shuffle no hardware foresees it. */
static void mirt__batch_foresee(const mirt__sample *sample, size_t bytes) {
#if defined(__GNUC__)
    const char *x = (const char *)sample->field[0];
    for (size_t i = 0; i < bytes && i < 1024; i += 64) __builtin_prefetch(x + i);
#else
    (void)sample;
    (void)bytes;
#endif
}

/* From a stage that can reach its samples at random. */
static mirt_status mirt__batch_gather(mirt_dataset *dataset, mirt__slot *out) {
    const int64_t ahead = 3;
    mirt_dataset *source = dataset->source;
    int64_t left = dataset->spec.samples - dataset->position, rows = dataset->spec.batch;
    if (rows > left) rows = left;
    for (int64_t i = 0; i < rows; i++) {
        mirt__sample sample;
        mirt_status status;
        if (i + ahead < rows) {
            status = source->stage->at(source, dataset->position + ahead, &sample);
            if (status != MIRT_OK) return status;
            mirt__batch_foresee(&sample, dataset->spec.field[0].bytes);
        }
        status = source->stage->at(source, dataset->position, &sample);
        if (status != MIRT_OK) return status;
        mirt__slot_put(out, &dataset->spec, out->rows++, sample.field, &sample.index, 1);
        dataset->position++;
    }
    return MIRT_OK;
}

static mirt_status mirt__batch_collect(mirt_dataset *dataset, mirt__slot *out) {
    while (out->rows < dataset->spec.batch) {
        mirt__batch one;
        mirt_status status = mirt__dataset_next(dataset->source, &one);
        if (status != MIRT_OK) return status;
        if (one.rows == 0) break;
        mirt__slot_put(out, &dataset->spec, out->rows++, one.field, one.index, 1);
    }
    return MIRT_OK;
}

/* From a stage that makes its samples. */
static mirt_status mirt__batch_make(mirt_dataset *dataset, mirt__slot *out) {
    const mirt__data_spec *spec = &dataset->spec;
    if (!dataset->work && !(dataset->work = mirt__work_create())) return MIRT_E_NOMEM;
    for (int64_t tried = 0; dataset->position < spec->samples && tried < spec->batch;) {
        void *field[MIRT__MAX_FIELDS];
        for (int f = 0; f < spec->num_fields; f++) field[f] = (char *)out->field[f] + (size_t)out->rows * spec->field[f].bytes;
        mirt_status status = dataset->source->stage->make(dataset->source, dataset->position++, dataset->work, field, out->index + out->rows);
        if (status == MIRT_OK) out->rows++;
        else if (status != MIRT__SKIPPED) return status;
        if (++tried == spec->batch && out->rows == 0) tried = 0; /* a batch that lost all its rows is passed over */
    }
    return MIRT_OK;
}

static mirt_status mirt__batch_fill(mirt_dataset *dataset, mirt__slot *out) {
    out->rows = 0;
    if (dataset->source->stage->make) return mirt__batch_make(dataset, out);
    return dataset->source->stage->at ? mirt__batch_gather(dataset, out) : mirt__batch_collect(dataset, out);
}

/* Samples that lie in memory in the order of the epoch are only pointed at. */
static mirt_status mirt__batch_point(mirt_dataset *dataset, mirt__batch *out) {
    int64_t left = dataset->spec.samples - dataset->position;
    mirt__sample sample;
    out->rows = dataset->spec.batch < left ? dataset->spec.batch : left;
    for (int64_t i = 0; i < out->rows; i++) {
        mirt_status status = dataset->source->stage->at(dataset->source, dataset->position++, &sample);
        if (status != MIRT_OK) return status;
        dataset->slot.index[i] = sample.index;
        for (int f = 0; i == 0 && f < dataset->spec.num_fields; f++) out->field[f] = sample.field[f];
    }
    out->index = dataset->slot.index;
    return MIRT_OK;
}

static mirt_status mirt__batch_next(mirt_dataset *dataset, mirt__batch *out) {
    if (!dataset->pointing) return mirt__dataset_next_filled(dataset, out);
    memset(out, 0, sizeof *out);
    return dataset->position < dataset->spec.samples ? mirt__batch_point(dataset, out) : MIRT_OK;
}

static int64_t mirt__batch_rows(const mirt_dataset *dataset, int64_t batches) {
    if (dataset->batches >= 0 && batches >= dataset->batches) return dataset->spec.samples;
    return batches > INT64_MAX / dataset->spec.batch ? INT64_MAX : batches * dataset->spec.batch;
}

static const mirt__stage mirt__batch_stage = {mirt__dataset_begin_filled, mirt__batch_next, NULL, NULL, mirt__batch_fill, NULL,
                                              mirt__batch_rows};

MIRT__LIB mirt_dataset *mirt__batch_over(mirt_dataset *source, int64_t batch, bool borrows) {
    if (!source) return NULL;
    mirt_status status = MIRT_OK;
    if (batch < 1 || batch > INT32_MAX)
        status = mirt__fail(MIRT_E_INVALID, "a batch of %lld samples: 1 to %d are possible", (long long)batch, (int)INT32_MAX);
    if (source->spec.batch)
        status = mirt__fail(MIRT_E_INVALID, "the data set is already in batches of %lld samples", (long long)source->spec.batch);
    if (status != MIRT_OK) return mirt__dataset_give_up(source, borrows);
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt_dataset), &mirt__batch_stage, source, borrows);
    if (!dataset) return NULL;
    int64_t samples = dataset->spec.samples;
    dataset->spec.batch = batch;
    dataset->samples = source;
    dataset->batches = samples < 0 ? -1 : samples / batch + (samples % batch != 0);
    dataset->pointing = source->contiguous;
    if (dataset->pointing && mirt__slot_create(&dataset->slot, &dataset->spec, mirt__data_most_rows(&dataset->spec), false) != MIRT_OK)
        return mirt__dataset_give_up(dataset, false);
    return dataset;
}

MIRT_API mirt_dataset *mirt_batch(mirt_dataset *dataset, int64_t batch) {
    return mirt__batch_over(dataset, batch, false);
}
