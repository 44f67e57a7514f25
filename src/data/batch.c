/* Groups samples into batches: copies them together, or points at them where they lie in order. */

#include "data.h"

typedef struct mirt__batch_dataset {
    mirt_dataset base;
    int64_t rows;    /* of a full batch, or all samples when those are fewer */
    mirt__slot slot; /* x and y only when `next` has to copy */
    void *block;     /* what they lie in */
} mirt__batch_dataset;

/* Touches a sample that will be copied soon: after a shuffle no hardware foresees it. */
static void mirt__batch_foresee(const mirt__sample *sample, size_t bytes) {
#if defined(__GNUC__)
    const char *x = (const char *)sample->x;
    for (size_t i = 0; i < bytes && i < 1024; i += 64) __builtin_prefetch(x + i);
#else
    (void)sample;
    (void)bytes;
#endif
}

static void mirt__batch_copy(const mirt_dataset *dataset, const mirt__sample *sample, mirt__slot *out) {
    size_t row = (size_t)out->rows++;
    memcpy((char *)out->x + row * dataset->x_bytes, sample->x, dataset->x_bytes);
    if (out->y) memcpy((char *)out->y + row * dataset->y_bytes, sample->y, dataset->y_bytes);
    out->index[row] = sample->index;
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
            mirt__batch_foresee(&sample, dataset->x_bytes);
        }
        status = source->stage->at(source, dataset->position, &sample);
        if (status != MIRT_OK) return status;
        mirt__batch_copy(dataset, &sample, out);
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
        mirt__sample sample;
        sample.x = one.x;
        sample.y = one.y;
        sample.index = one.index[0];
        mirt__batch_copy(dataset, &sample, out);
    }
    return MIRT_OK;
}

static mirt_status mirt__batch_fill(mirt_dataset *dataset, mirt__slot *out) {
    out->rows = 0;
    return dataset->source->stage->at ? mirt__batch_gather(dataset, out) : mirt__batch_collect(dataset, out);
}

/* Samples that lie in memory in the order of the epoch are only pointed at. */
static mirt_status mirt__batch_point(mirt_dataset *dataset, mirt__slot *slot, mirt__batch *out) {
    int64_t left = dataset->spec.samples - dataset->position;
    mirt__sample first;
    mirt_status status = dataset->source->stage->at(dataset->source, dataset->position, &first);
    if (status != MIRT_OK) return status;
    out->rows = dataset->spec.batch < left ? dataset->spec.batch : left;
    out->x = first.x;
    out->y = first.y;
    for (int64_t i = 0; i < out->rows; i++) slot->index[i] = first.index + i;
    out->index = slot->index;
    dataset->position += out->rows;
    return MIRT_OK;
}

static mirt_status mirt__batch_next(mirt_dataset *dataset, mirt__batch *out) {
    mirt__slot *slot = &((mirt__batch_dataset *)dataset)->slot;
    memset(out, 0, sizeof *out);
    if (dataset->pointing) {
        if (dataset->position >= dataset->spec.samples) return MIRT_OK;
        return mirt__batch_point(dataset, slot, out);
    }
    mirt_status status = mirt__batch_fill(dataset, slot);
    if (status != MIRT_OK || slot->rows == 0) return status;
    out->x = slot->x;
    out->y = slot->y;
    out->rows = slot->rows;
    out->index = slot->index;
    return MIRT_OK;
}

/* The memory `next` copies to; none is needed to point, or when the next stage brings its own. */
static mirt_status mirt__batch_create_block(mirt__batch_dataset *batch) {
    size_t x_bytes, all_bytes;
    /* Cannot overflow: all samples together do not. */
    mirt__dataset_block_bytes(&batch->base, batch->rows, &x_bytes, &all_bytes);
    batch->block = mirt__aligned_alloc(all_bytes);
    if (!batch->block) return MIRT_E_NOMEM;
    batch->slot.x = batch->block;
    batch->slot.y = batch->base.spec.has_y ? (char *)batch->block + x_bytes : NULL;
    return MIRT_OK;
}

static mirt_status mirt__batch_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__batch_dataset *batch = (mirt__batch_dataset *)dataset;
    if (!dataset->pointing && !dataset->lent && !batch->block) {
        mirt_status status = mirt__batch_create_block(batch);
        if (status != MIRT_OK) return status;
    }
    return mirt__dataset_begin(dataset->source, seed, epoch);
}

static void mirt__batch_release(mirt_dataset *dataset) {
    mirt__batch_dataset *batch = (mirt__batch_dataset *)dataset;
    mirt__free(batch->slot.index);
    mirt__aligned_free(batch->block);
}

static const mirt__stage mirt__batch_stage = {mirt__batch_begin, mirt__batch_next, NULL, mirt__batch_fill,
                                              mirt__batch_release};

MIRT__LIB mirt_dataset *mirt__batch_over(mirt_dataset *source, int64_t batch, bool borrows) {
    if (!source) return NULL;
    mirt_status status = MIRT_OK;
    if (batch < 1) status = mirt__fail(MIRT_E_INVALID, "a batch of %lld samples: at least 1 is needed", (long long)batch);
    if (source->spec.batch)
        status = mirt__fail(MIRT_E_INVALID, "the data set is already in batches of %lld samples", (long long)source->spec.batch);
    if (status != MIRT_OK) return mirt__dataset_give_up(source, borrows);
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__batch_dataset), &mirt__batch_stage, source, borrows);
    if (!dataset) return NULL;
    mirt__batch_dataset *stage = (mirt__batch_dataset *)dataset;
    dataset->spec.batch = batch;
    dataset->pointing = source->contiguous;
    stage->rows = batch < dataset->spec.samples ? batch : dataset->spec.samples;
    stage->slot.index = (int64_t *)mirt__calloc((size_t)stage->rows, sizeof(int64_t));
    return stage->slot.index ? dataset : mirt__dataset_give_up(dataset, false);
}

MIRT_API mirt_dataset *mirt_batch(mirt_dataset *dataset, int64_t batch) {
    return mirt__batch_over(dataset, batch, false);
}
