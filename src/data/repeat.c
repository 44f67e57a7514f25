/* A stage that repeats the passes of the stage before. */

#include "data.h"

typedef struct mirt__repeat_dataset {
    mirt_dataset base;
    int64_t passes, pass; /* passes 0: endless */
    bool any;             /* this pass has returned a sample */
    int64_t lost;         /* atomic: number of skipped samples of the pass */
} mirt__repeat_dataset;

/* Each pass is an epoch for the previous stages. */
static mirt_status mirt__repeat_pass(mirt__repeat_dataset *repeat) {
    const int bits = 24; /* seed of epochs, if passes are endless */
    uint64_t epoch = (uint64_t)repeat->base.epoch, pass = (uint64_t)repeat->pass;
    epoch = repeat->passes ? epoch * (uint64_t)repeat->passes + pass : (pass << bits) + epoch;
    repeat->any = false;
    repeat->lost = 0;
    return mirt__dataset_begin(repeat->base.source, repeat->base.seed, (int64_t)epoch);
}

static mirt_status mirt__repeat_begin(mirt_dataset *dataset) {
    ((mirt__repeat_dataset *)dataset)->pass = 0;
    return mirt__repeat_pass((mirt__repeat_dataset *)dataset);
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

static mirt_status mirt__repeat_run(mirt_dataset *dataset, int64_t most, bool turn, mirt__sample_range *run) {
    mirt__repeat_dataset *repeat = (mirt__repeat_dataset *)dataset;
    for (;;) {
        int64_t left = dataset->source->spec.samples - dataset->position;
        run->first = dataset->position;
        run->count = most < left ? most : left;
        dataset->position += run->count;
        if (run->count || !turn || repeat->lost == dataset->source->spec.samples || repeat->pass + 1 == repeat->passes)
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
    return batches / source->batches * source->spec.samples + mirt__dataset_rows(source, batches % source->batches);
}

static const mirt__stage mirt__repeat_stage = {
    mirt__repeat_begin, mirt__repeat_next, NULL, NULL, NULL, NULL, mirt__repeat_rows};
static const mirt__stage mirt__repeat_run_stage = {
    mirt__repeat_begin, mirt__repeat_next, NULL, mirt__repeat_make, NULL, NULL, mirt__repeat_rows};

MIRT__LIB bool mirt__dataset_repeats(const mirt_dataset *dataset, uint64_t *pass) {
    const uint64_t apart = 0x9E3779B1u; /* passes of repeated passes differ in their low 32 bits */
    const mirt_dataset *kept = NULL;    /* its previous stages may be in a later pass */
    bool repeats = false;
    for (*pass = 0; dataset; dataset = dataset->source) {
        if (dataset->keeps_pass && !kept) kept = dataset;
        if (dataset->stage->next != mirt__repeat_next) continue;
        *pass *= apart;
        if (!kept) *pass += (uint64_t)((const mirt__repeat_dataset *)dataset)->pass;
        repeats = true;
    }
    if (kept) *pass += kept->pass;
    return repeats;
}

MIRT_API mirt_dataset *mirt_repeat(mirt_dataset *dataset, int64_t count) {
    MIRT__ENTER;
    if (!dataset) return NULL;
    mirt_status status = count > 0 ? mirt__stage_count("mirt_repeat", count, 1) : MIRT_OK;
    if (count < 0) count = 0;
    if (status == MIRT_OK && count && dataset->spec.samples > INT64_MAX / count)
        status = mirt__fail(MIRT_E_INVALID, "mirt_repeat(%lld): %lld samples are too many to repeat that often",
                            (long long)count, (long long)dataset->spec.samples);
    const mirt_dataset *source = dataset;
    const bool runs = !source->spec.batch && mirt__reachable(source), endless = count == 0 || source->spec.samples < 0;
    const mirt__stage *kind = runs ? &mirt__repeat_run_stage : &mirt__repeat_stage;
    if (status == MIRT_OK) status = mirt__dataset_add(&dataset, sizeof(mirt__repeat_dataset), kind);
    if (status != MIRT_OK) return mirt__dataset_checked(status, &dataset);
    if (runs) dataset->run = mirt__repeat_run;
    ((mirt__repeat_dataset *)dataset)->passes = count;
    dataset->pointing = source->pointing;
    dataset->samples = NULL;
    dataset->identity = mirt__identity_with(dataset->identity, mirt__hash("repeat") + (uint64_t)count);
    if (dataset->varies) dataset->varies = 2;
    dataset->spec.samples = endless ? -1 : source->spec.samples * count;
    if (source->spec.batch) dataset->batches = endless ? -1 : source->batches * count;
    return dataset;
}
