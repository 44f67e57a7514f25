/* Groups samples into batches: copies them, or points to contiguous ones. */

#include "workers.h"

typedef struct mirt__batch_dataset {
    mirt_dataset base;
    bool drop; /* drops a last batch that is not full */
    mirt__sample_range rest; /* samples for the next batch, already taken from the source */
} mirt__batch_dataset;

static mirt_status mirt__batch_fill(mirt_dataset *dataset, mirt__slot *out);

/* Prefetches a sample that will be copied soon: after a shuffle the hardware cannot predict it. */
static void mirt__batch_foresee(const mirt__sample *sample, size_t bytes) {
#if defined(__GNUC__)
    const char *x = (const char *)sample->field[0];
    for (size_t i = 0; i < bytes && i < 1024; i += 64) __builtin_prefetch(x + i);
#else
    (void)sample;
    (void)bytes;
#endif
}

/* Fills a batch from a stage with random access. */
static mirt_status mirt__batch_gather(mirt_dataset *dataset, mirt__slot *out) {
    const int64_t ahead = 3;
    mirt_dataset *source = dataset->source;
    int64_t left = dataset->spec.samples - dataset->position, rows = dataset->spec.batch;
    if (rows > left) rows = left;
    for (int64_t i = 0; i < rows; i++) {
        mirt__sample sample;
        if (i + ahead < rows && source->stage->at(source, dataset->position + ahead, &sample) == MIRT_OK)
            mirt__batch_foresee(&sample, dataset->spec.field[0].bytes);
        mirt_status status = source->stage->at(source, dataset->position++, &sample);
        if (status == MIRT_OK) mirt__slot_put(out, &dataset->spec, out->rows++, sample.field, &sample.index, 1);
        else if (status != MIRT__SKIPPED) return status;
    }
    return rows > 0 && out->rows == 0 ? MIRT__SKIPPED : MIRT_OK;
}

/* Fills a batch from a stream. */
static mirt_status mirt__batch_collect(mirt_dataset *dataset, mirt__slot *out) {
    while (out->rows < dataset->spec.batch) {
        mirt__batch one;
        mirt_status status = mirt__dataset_next(dataset->source, &one);
        if (status != MIRT_OK) return status;
        if (one.rows == 0) break;
        mirt__slot_put(out, &dataset->spec, out->rows++, one.field, one.index, 1);
    }
    if (((const mirt__batch_dataset *)dataset)->drop && out->rows < dataset->spec.batch) out->rows = 0;
    return MIRT_OK;
}

/* The next samples to make, at most `most`. */
static mirt_status mirt__batch_run(mirt_dataset *dataset, int64_t most, bool turn, mirt__sample_range *run) {
    if (dataset->source->run) return dataset->source->run(dataset->source, most, turn, run);
    int64_t left = dataset->spec.samples - dataset->position;
    run->first = dataset->position;
    run->count = left < most ? left : most;
    dataset->position += run->count;
    return MIRT_OK;
}

/* >>parts of batches */

MIRT__LIB void mirt__part_rows(const mirt__data_part *part, int64_t rows, int64_t *begin, int64_t *end) {
    *begin = 0;
    *end = rows;
    if (!part->of) return;
    mirt__share(rows, part->of, part->begin, begin);
    mirt__share(rows, part->of, part->end, end);
}

/* The samples of a batch that this process makes. */
static mirt__sample_range mirt__batch_own(const mirt_dataset *dataset, const mirt__sample_range *all) {
    mirt__sample_range own = *all;
    if (!dataset->part.of) return own;
    const int64_t step = dataset->spec.batch * dataset->part_batches, start = all->first / step * step,
                  left = dataset->spec.samples - start, last = all->first + all->count;
    int64_t begin, end;
    mirt__part_rows(&dataset->part, left < step ? left : step, &begin, &end);
    own.first = start + begin > all->first ? start + begin : all->first;
    if (own.first > last) own.first = last;
    own.count = (start + end < last ? start + end : last) - own.first;
    if (own.count < 0) own.count = 0;
    return own;
}

/* Asks the workers for samples of a batch, which begins in `slot`. */
static bool mirt__batch_request(mirt_dataset *dataset, mirt__slot *slot, const mirt__sample_range *run, bool ahead) {
    const mirt__sample_range own = mirt__batch_own(dataset, run);
    const int64_t before = own.first - run->first;
    mirt__slot part = *slot;
    slot->first = run->first;
    for (int f = 0; f < dataset->spec.num_fields; f++)
        part.field[f] = (char *)slot->field[f] + (size_t)before * dataset->spec.field[f].bytes;
    part.index = slot->index + before;
    return mirt__workers_ask(dataset->worker_pool, &part, own.first, own.count, ahead);
}

/* Fills the part of a batch. */
MIRT__TOGETHER_ONLY mirt_status mirt__batch_part(mirt_dataset *dataset, mirt__slot *out) {
    mirt__sample_range *rest = &((mirt__batch_dataset *)dataset)->rest, all;
    int64_t made;
    if (!mirt__workers_asked(dataset->worker_pool)) {
        mirt_status status = rest->count ? MIRT_OK : mirt__batch_run(dataset, dataset->spec.batch, true, rest);
        out->rows = rest->count;
        if (status != MIRT_OK || rest->count == 0) return status;
        mirt__batch_request(dataset, out, rest, false);
        rest->count = 0;
    } else {
        out->rows = dataset->spec.batch;
    }
    all.first = out->first;
    all.count = out->rows;
    const mirt__sample_range own = mirt__batch_own(dataset, &all);
    for (int64_t i = all.first; i < all.first + all.count; i++) {
        if (i >= own.first && i < own.first + own.count) continue;
        const mirt_status status = mirt__workers_index(dataset->worker_pool, i, &out->index[i - all.first]);
        if (status != MIRT_OK) out->index[i - all.first] = 0; /* its owner will say so */
    }
    return mirt__workers_finish(dataset->worker_pool, true, &made);
}

MIRT__TOGETHER_ONLY_LIB void mirt__dataset_set_part(mirt_dataset *dataset, const mirt__data_part *part) {
    const bool skips = dataset->skips;
    int64_t batches = 1;
    for (; dataset->joins > 0; dataset = dataset->source) batches *= dataset->joins;
    if (dataset->joins == 0 || dataset->stage->fill != mirt__batch_fill || !dataset->source->stage->make ||
        dataset->source->run || (batches > 1 && skips))
        return;
    dataset->next_part = *part;
    dataset->part_batches = batches;
}

MIRT__TOGETHER_ONLY_LIB const mirt__data_part *mirt__dataset_part(const mirt_dataset *dataset) {
    while (dataset->joins > 0) dataset = dataset->source;
    return &dataset->part;
}

MIRT__TOGETHER_ONLY_LIB mirt_status mirt__dataset_make_again(mirt_dataset *dataset, int64_t i, void *const *field,
                                                        int64_t *index) {
    while (dataset->joins > 0) dataset = dataset->source;
    if (!dataset->work) {
        __atomic_store_n(&dataset->work, mirt__work_create(), __ATOMIC_RELEASE);
        if (!dataset->work) return MIRT_E_NOMEM;
    }
    return dataset->source->stage->make(dataset->source, i, dataset->work, field, index);
}

#ifndef MIRRORTRAIN_NO_THREADS

MIRT__LIB bool mirt__batch_ask(mirt_dataset *dataset, mirt__slot *slot) {
    if (dataset->stage->fill != mirt__batch_fill || !dataset->worker_pool) return false;
    mirt__sample_range *rest = &((mirt__batch_dataset *)dataset)->rest;
    /* Samples that do not form a whole batch with the following ones are left to `fill`. */
    if (rest->count == 0 && mirt__batch_run(dataset, dataset->spec.batch, false, rest) != MIRT_OK) return false;
    if (rest->count < dataset->spec.batch || !mirt__batch_request(dataset, slot, rest, true)) return false;
    rest->count = 0;
    return true;
}

#endif

/* Fills a batch from a stage that makes its samples in threads; a batch may extend over the end of a pass. A batch that
   loses all its rows is MIRT__SKIPPED. */
static mirt_status mirt__batch_made(mirt_dataset *dataset, mirt__slot *out) {
    mirt__sample_range *rest = &((mirt__batch_dataset *)dataset)->rest;
    mirt__slot part = *out;
    int64_t tried = 0;
    mirt_status status = MIRT_OK;
    if (mirt__workers_asked(dataset->worker_pool)) {
        tried = dataset->spec.batch;
        status = mirt__workers_finish(dataset->worker_pool, false, &out->rows);
    }
    while (tried < dataset->spec.batch && status == MIRT_OK) {
        if (rest->count == 0) status = mirt__batch_run(dataset, dataset->spec.batch - tried, true, rest);
        if (status != MIRT_OK || rest->count == 0) break;
        for (int f = 0; f < dataset->spec.num_fields; f++)
            part.field[f] = (char *)out->field[f] + (size_t)out->rows * dataset->spec.field[f].bytes;
        part.index = out->index + out->rows;
        mirt__batch_request(dataset, &part, rest, false);
        status = mirt__workers_finish(dataset->worker_pool, false, &part.rows);
        out->rows += part.rows;
        tried += rest->count;
        rest->count = 0;
    }
    if (tried < dataset->spec.batch && ((mirt__batch_dataset *)dataset)->drop) tried = out->rows = 0;
    return status == MIRT_OK && tried > 0 && out->rows == 0 ? MIRT__SKIPPED : status;
}

static mirt_status mirt__batch_fill(mirt_dataset *dataset, mirt__slot *out) {
    if (MIRT__TOGETHER && dataset->part.of) return mirt__batch_part(dataset, out);
    out->rows = 0;
    if (dataset->worker_pool) return mirt__batch_made(dataset, out);
    return dataset->source->stage->at ? mirt__batch_gather(dataset, out) : mirt__batch_collect(dataset, out);
}

/* Samples that are in memory in the order of the epoch are not copied. */
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

/* Skips the first `left` samples of a pass. */
static mirt_status mirt__batch_pass_over(mirt_dataset *dataset, int64_t left) {
    mirt__sample_range run;
    mirt_status status = MIRT_OK;
    while (left > 0 && status == MIRT_OK) {
        status = mirt__batch_run(dataset, left, true, &run);
        if (run.count == 0) break;
        left -= run.count;
    }
    return status;
}

static mirt_status mirt__batch_begin(mirt_dataset *dataset) {
    if (dataset->source->stage->make) {
        mirt_status status = mirt__workers_begin(dataset);
        if (status != MIRT_OK) return status;
        ((mirt__batch_dataset *)dataset)->rest.count = 0;
    }
    const int64_t over = dataset->pass_over;
    dataset->pass_over = 0;
    dataset->part = dataset->next_part;
    memset(&dataset->next_part, 0, sizeof dataset->next_part);
    mirt_status status = mirt__dataset_begin_source(dataset);
    return status == MIRT_OK && over ? mirt__batch_pass_over(dataset, over * dataset->spec.batch) : status;
}

static int64_t mirt__batch_rows(const mirt_dataset *dataset, int64_t batches) {
    return batches > INT64_MAX / dataset->spec.batch ? INT64_MAX : batches * dataset->spec.batch;
}

static const mirt__stage mirt__batch_stage = {
    mirt__batch_begin, mirt__batch_next, NULL, NULL, mirt__batch_fill, NULL, mirt__batch_rows};

MIRT__LIB mirt_status mirt__batch_over(mirt_dataset **chain, int64_t batch, bool drop) {
    mirt_dataset *source = *chain;
    int64_t samples = source->spec.samples;
    if (source->spec.batch)
        return mirt__fail(MIRT_E_INVALID, "the data set is already in batches of %lld samples",
                          (long long)source->spec.batch);
    if (batch < 1 || batch > INT32_MAX)
        return mirt__fail(MIRT_E_INVALID, "a batch of %lld samples: the size must be 1 to %d", (long long)batch,
                          (int)INT32_MAX);
    if (drop && samples >= 0 && samples < batch)
        return mirt__fail(MIRT_E_INVALID, "mirt_batch_drop_remainder(%lld) leaves none of %lld samples",
                          (long long)batch, (long long)samples);
    mirt_status status = mirt__dataset_add(chain, sizeof(mirt__batch_dataset), &mirt__batch_stage);
    if (status != MIRT_OK) return status;
    mirt_dataset *dataset = *chain;
    ((mirt__batch_dataset *)dataset)->drop = drop;
    if (drop && samples >= 0) dataset->spec.samples = samples -= samples % batch;
    dataset->spec.batch = batch;
    dataset->samples = source;
    if (mirt__reachable(source) || source->run) dataset->joins = -1;
    dataset->batches = samples < 0 ? -1 : samples / batch + (samples % batch != 0);
    dataset->pointing = source->contiguous;
    return dataset->pointing
               ? mirt__slot_create(&dataset->slot, &dataset->spec, mirt__data_most_rows(&dataset->spec), false)
               : MIRT_OK;
}

MIRT_API mirt_dataset *mirt_batch(mirt_dataset *dataset, int64_t batch) {
    MIRT__ENTER;
    return dataset ? mirt__dataset_checked(mirt__batch_over(&dataset, batch, false), &dataset) : NULL;
}

MIRT_API mirt_dataset *mirt_batch_drop_remainder(mirt_dataset *dataset, int64_t batch) {
    MIRT__ENTER;
    return dataset ? mirt__dataset_checked(mirt__batch_over(&dataset, batch, true), &dataset) : NULL;
}
