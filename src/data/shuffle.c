/* A new order every epoch: a permutation where samples can be reached at random, a buffer of
   samples where they come as a stream. */

#include "data.h"

typedef struct mirt__shuffle_dataset {
    mirt_dataset base;
    mirt__random random;
    int64_t *order; /* permutation: [samples]; buffer: [capacity] indices of the samples held */
    /* For streams only. */
    unsigned char *x, *y; /* [capacity] samples */
    void *block;          /* what x and y lie in */
    int64_t capacity, held;
    int64_t given; /* the slot given last, to be filled again; -1: none */
} mirt__shuffle_dataset;

static void mirt__shuffle_start(mirt__shuffle_dataset *shuffle, uint64_t seed, int64_t epoch) {
    uint64_t key = mirt__hash("shuffle") + ((uint64_t)shuffle->base.shuffles << 48) + (uint64_t)epoch;
    shuffle->random = mirt__random_stream(seed, key);
}

/* Fisher-Yates. */
static mirt_status mirt__shuffle_permute(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    mirt_status status = mirt__dataset_begin(dataset->source, seed, epoch);
    if (status != MIRT_OK) return status;
    mirt__shuffle_start(shuffle, seed, epoch);
    for (int64_t i = 0; i < dataset->spec.samples; i++) {
        int64_t j = (int64_t)mirt__random_below(&shuffle->random, (uint64_t)i + 1);
        shuffle->order[i] = shuffle->order[j];
        shuffle->order[j] = i;
    }
    return MIRT_OK;
}

static mirt_status mirt__shuffle_at(mirt_dataset *dataset, int64_t i, mirt__sample *out) {
    const mirt__shuffle_dataset *shuffle = (const mirt__shuffle_dataset *)dataset;
    return dataset->source->stage->at(dataset->source, shuffle->order[i], out);
}

static void mirt__shuffle_release(mirt_dataset *dataset) {
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    mirt__free(shuffle->order);
    mirt__aligned_free(shuffle->block);
}

static const mirt__stage mirt__permutation_stage = {mirt__shuffle_permute, mirt__dataset_next_at, mirt__shuffle_at, NULL,
                                                    mirt__shuffle_release};

/* Pulls the stream's next sample into `slot`; *got is false at its end. */
static mirt_status mirt__shuffle_pull(mirt__shuffle_dataset *shuffle, int64_t slot, bool *got) {
    mirt__batch sample;
    mirt_status status = mirt__dataset_next(shuffle->base.source, &sample);
    *got = status == MIRT_OK && sample.rows > 0;
    if (!*got) return status;
    memcpy(shuffle->x + (size_t)slot * shuffle->base.x_bytes, sample.x, shuffle->base.x_bytes);
    if (shuffle->y) memcpy(shuffle->y + (size_t)slot * shuffle->base.y_bytes, sample.y, shuffle->base.y_bytes);
    shuffle->order[slot] = sample.index[0];
    return MIRT_OK;
}

static mirt_status mirt__shuffle_buffer_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    mirt_status status = mirt__dataset_begin(dataset->source, seed, epoch);
    if (status != MIRT_OK) return status;
    mirt__shuffle_start(shuffle, seed, epoch);
    shuffle->given = -1;
    shuffle->held = 0;
    bool got = true;
    while (got && shuffle->held < shuffle->capacity) {
        status = mirt__shuffle_pull(shuffle, shuffle->held, &got);
        if (status != MIRT_OK) return status;
        if (got) shuffle->held++;
    }
    return MIRT_OK;
}

/* Closes the gap in the buffer that the sample given last has left. */
static mirt_status mirt__shuffle_mend(mirt__shuffle_dataset *shuffle) {
    int64_t slot = shuffle->given;
    bool got;
    mirt_status status = mirt__shuffle_pull(shuffle, slot, &got);
    if (status != MIRT_OK) return status;
    shuffle->given = -1;
    if (got) return MIRT_OK;
    size_t x_bytes = shuffle->base.x_bytes, y_bytes = shuffle->base.y_bytes;
    int64_t last = --shuffle->held;
    if (slot == last) return MIRT_OK;
    memcpy(shuffle->x + (size_t)slot * x_bytes, shuffle->x + (size_t)last * x_bytes, x_bytes);
    if (shuffle->y) memcpy(shuffle->y + (size_t)slot * y_bytes, shuffle->y + (size_t)last * y_bytes, y_bytes);
    shuffle->order[slot] = shuffle->order[last];
    return MIRT_OK;
}

static mirt_status mirt__shuffle_buffer_next(mirt_dataset *dataset, mirt__batch *out) {
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    memset(out, 0, sizeof *out);
    if (shuffle->given >= 0) {
        mirt_status status = mirt__shuffle_mend(shuffle);
        if (status != MIRT_OK) return status;
    }
    if (shuffle->held == 0) return MIRT_OK;
    int64_t slot = (int64_t)mirt__random_below(&shuffle->random, (uint64_t)shuffle->held);
    shuffle->given = slot;
    out->x = shuffle->x + (size_t)slot * dataset->x_bytes;
    out->y = shuffle->y ? shuffle->y + (size_t)slot * dataset->y_bytes : NULL;
    out->rows = 1;
    out->index = &shuffle->order[slot];
    return MIRT_OK;
}

static const mirt__stage mirt__shuffle_buffer_stage = {mirt__shuffle_buffer_begin, mirt__shuffle_buffer_next, NULL, NULL,
                                                       mirt__shuffle_release};

static mirt_status mirt__shuffle_create_buffer(mirt__shuffle_dataset *shuffle) {
    size_t x_bytes, all_bytes;
    /* Cannot overflow: all samples together do not. */
    mirt__dataset_block_bytes(&shuffle->base, shuffle->capacity, &x_bytes, &all_bytes);
    shuffle->block = mirt__aligned_alloc(all_bytes);
    if (!shuffle->block) return MIRT_E_NOMEM;
    shuffle->x = (unsigned char *)shuffle->block;
    shuffle->y = shuffle->base.spec.has_y ? shuffle->x + x_bytes : NULL;
    return MIRT_OK;
}

MIRT__LIB mirt_dataset *mirt__shuffle_over(mirt_dataset *source, int64_t buffer, bool borrows) {
    if (!source) return NULL;
    bool reachable = source->stage->at != NULL;
    if (source->spec.batch) {
        mirt__fail(MIRT_E_INVALID, "mirt_shuffle comes before mirt_batch: samples are shuffled, not batches");
        return mirt__dataset_give_up(source, borrows);
    }
    if (!reachable && buffer < 1) {
        mirt__fail(MIRT_E_INVALID, "a shuffle buffer of %lld samples: at least 1 is needed, or mirt_cache before mirt_shuffle",
                   (long long)buffer);
        return mirt__dataset_give_up(source, borrows);
    }
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__shuffle_dataset),
                                              reachable ? &mirt__permutation_stage : &mirt__shuffle_buffer_stage, source,
                                              borrows);
    if (!dataset) return NULL;
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    dataset->shuffles++;
    shuffle->capacity = reachable || buffer > dataset->spec.samples ? dataset->spec.samples : buffer;
    shuffle->order = (int64_t *)mirt__calloc((size_t)shuffle->capacity, sizeof(int64_t));
    bool fine = shuffle->order && (reachable || mirt__shuffle_create_buffer(shuffle) == MIRT_OK);
    return fine ? dataset : mirt__dataset_give_up(dataset, false);
}

MIRT_API mirt_dataset *mirt_shuffle(mirt_dataset *dataset, int64_t buffer) {
    return mirt__shuffle_over(dataset, buffer, false);
}
