/* A stage that joins several batches into one step. */

#include "data.h"

static mirt_status mirt__accumulate_fill(mirt_dataset *dataset, mirt__slot *out) {
    mirt__slot part = *out;
    out->rows = 0;
    for (int i = 0; i < dataset->joins; i++) {
        for (int f = 0; f < dataset->spec.num_fields; f++)
            part.field[f] = (char *)out->field[f] + (size_t)out->rows * dataset->spec.field[f].bytes;
        part.index = out->index + out->rows;
        mirt_status status = mirt__slot_pull(&part, dataset->source);
        if (status != MIRT_OK) return status;
        if (part.rows == 0) break;
        if (i == 0) out->first = part.first;
        out->rows += part.rows;
    }
    return MIRT_OK;
}

static int64_t mirt__accumulate_rows(const mirt_dataset *dataset, int64_t batches) {
    return mirt__dataset_rows(dataset->source, batches * dataset->joins);
}

static const mirt__stage mirt__accumulate_stage = {
    NULL, NULL, NULL, NULL, mirt__accumulate_fill, NULL, mirt__accumulate_rows};

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
    mirt_dataset *source = dataset;
    if (status == MIRT_OK && batches > 1)
        status = mirt__dataset_add(&dataset, sizeof(mirt_dataset), &mirt__accumulate_stage);
    if (status != MIRT_OK || batches == 1) return mirt__dataset_checked(status, &dataset);
    dataset->joins = batches;
    dataset->spec.batch *= batches;
    dataset->spec.accumulate *= batches;
    if (source->batches > 0) dataset->batches = source->batches / batches + (source->batches % batches != 0);
    source->lent = source->stage->fill && !source->pointing;
    return dataset;
}
