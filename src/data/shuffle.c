/* Shuffles samples anew each epoch. Samples with random access are permuted; a stream goes through a buffer, shards do
   so as indices. */

#include "data.h"

typedef struct mirt__shuffle_dataset {
    mirt_dataset base;
    mirt__random random;
    int64_t capacity, held; /* samples in the slot, for streams; base.own has their passes, or else a permutation */
    int64_t given; /* the slot returned last, to be refilled; -1: none */
} mirt__shuffle_dataset;

static mirt__random mirt__shuffle_random(const mirt_dataset *dataset) {
    uint64_t key = mirt__hash("shuffle") + ((uint64_t)dataset->shuffles << 48) + (uint64_t)dataset->epoch;
    return mirt__random_stream(dataset->seed, key);
}

/* Fisher-Yates shuffle. */
static mirt_status mirt__shuffle_permute(mirt_dataset *dataset) {
    mirt_status status = mirt__dataset_begin_source(dataset);
    if (status != MIRT_OK) return status;
    int64_t *order = (int64_t *)dataset->own;
    mirt__random random = mirt__shuffle_random(dataset);
    for (int64_t i = 0; i < dataset->spec.samples; i++) {
        int64_t j = (int64_t)mirt__random_below(&random, (uint64_t)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    return MIRT_OK;
}

/* >>shards: in a new order, each read from its begin to its end, through a buffer of so many samples */

static mirt_status mirt__shuffle_shard_of(const mirt_dataset *dataset, int64_t i, int32_t *shard) {
    int64_t index;
    const mirt_status status = dataset->source->stage->make(dataset->source, i, NULL, NULL, &index);
    if (status != MIRT_OK && status != MIRT__SKIPPED) return status;
    *shard = dataset->shard[index];
    return MIRT_OK;
}

/* Writes the samples to order[], shard by shard. `start` has room for two numbers of each shard. */
static mirt_status mirt__shuffle_shards(const mirt_dataset *dataset, mirt__random *random, int64_t *order,
                                        int64_t *start) {
    const int shards = dataset->num_shards;
    int64_t *turn = start + shards, first = 0;
    int32_t shard;
    memset(start, 0, (size_t)shards * sizeof *start);
    for (int64_t i = 0; i < dataset->spec.samples; i++) {
        const mirt_status status = mirt__shuffle_shard_of(dataset, i, &shard);
        if (status != MIRT_OK) return status;
        start[shard]++;
    }
    for (int k = 0; k < shards; k++) {
        const int64_t j = (int64_t)mirt__random_below(random, (uint64_t)k + 1);
        turn[k] = turn[j];
        turn[j] = k;
    }
    for (int k = 0; k < shards; k++) {
        const int64_t samples = start[turn[k]];
        start[turn[k]] = first;
        first += samples;
    }
    for (int64_t i = 0; i < dataset->spec.samples; i++) {
        const mirt_status status = mirt__shuffle_shard_of(dataset, i, &shard);
        if (status != MIRT_OK) return status;
        order[start[shard]++] = i;
    }
    return MIRT_OK;
}

static mirt_status mirt__shuffle_by_shard(mirt_dataset *dataset) {
    const int64_t samples = dataset->spec.samples, capacity = ((const mirt__shuffle_dataset *)dataset)->capacity;
    int64_t *order = (int64_t *)dataset->own, *buffer = order + samples, next = capacity, held = capacity;
    mirt_status status = mirt__dataset_begin_source(dataset);
    if (status != MIRT_OK) return status;
    mirt__random random = mirt__shuffle_random(dataset);
    status = mirt__shuffle_shards(dataset, &random, order, buffer + capacity);
    memcpy(buffer, order, (size_t)capacity * sizeof *buffer);
    for (int64_t i = 0; i < samples && status == MIRT_OK; i++) {
        const int64_t j = (int64_t)mirt__random_below(&random, (uint64_t)held);
        order[i] = buffer[j];
        buffer[j] = next < samples ? order[next] : buffer[held - 1];
        if (next++ >= samples) held--;
    }
    return status;
}

static mirt_status mirt__shuffle_at(mirt_dataset *dataset, int64_t i, mirt__sample *out) {
    return dataset->source->stage->at(dataset->source, ((const int64_t *)dataset->own)[i], out);
}

static mirt_status mirt__shuffle_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                      int64_t *index) {
    return dataset->source->stage->make(dataset->source, ((const int64_t *)dataset->own)[i], work, field, index);
}

static const mirt__stage mirt__permutation_stage = {
    mirt__shuffle_permute, NULL, mirt__shuffle_at, NULL, NULL, NULL, NULL};
static const mirt__stage mirt__permutation_make_stage = {
    mirt__shuffle_permute, NULL, NULL, mirt__shuffle_make, mirt__dataset_fill_made, NULL, NULL};

static const mirt__stage mirt__shards_stage = {
    mirt__shuffle_by_shard, NULL, NULL, mirt__shuffle_make, mirt__dataset_fill_made, NULL, NULL};

/* Reads the stream's next sample into `slot`; *got is false at its end. */
static mirt_status mirt__shuffle_pull(mirt__shuffle_dataset *shuffle, int64_t slot, bool *got) {
    mirt__batch sample;
    mirt_status status = mirt__dataset_next(shuffle->base.source, &sample);
    *got = status == MIRT_OK && sample.rows > 0;
    if (!*got) return status;
    mirt__slot_put(&shuffle->base.slot, &shuffle->base.spec, slot, sample.field, sample.index, 1);
    mirt__dataset_repeats(shuffle->base.source, &((uint64_t *)shuffle->base.own)[slot]);
    return MIRT_OK;
}

static mirt_status mirt__shuffle_buffer_begin(mirt_dataset *dataset) {
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    mirt_status status = mirt__dataset_begin_source(dataset);
    if (status != MIRT_OK) return status;
    shuffle->random = mirt__shuffle_random(dataset);
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

/* Removes the sample returned last from the buffer. */
static mirt_status mirt__shuffle_mend(mirt__shuffle_dataset *shuffle) {
    uint64_t *pass = (uint64_t *)shuffle->base.own;
    int64_t slot = shuffle->given;
    bool got;
    mirt_status status = mirt__shuffle_pull(shuffle, slot, &got);
    if (status != MIRT_OK) return status;
    shuffle->given = -1;
    if (got) return MIRT_OK;
    int64_t last = --shuffle->held;
    if (slot == last) return MIRT_OK;
    mirt__batch moved;
    mirt__slot_give(&shuffle->base.slot, &shuffle->base.spec, last, 1, &moved);
    mirt__slot_put(&shuffle->base.slot, &shuffle->base.spec, slot, moved.field, moved.index, 1);
    pass[slot] = pass[last];
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
    dataset->pass = ((const uint64_t *)dataset->own)[slot];
    mirt__slot_give(&dataset->slot, &dataset->spec, slot, 1, out);
    return MIRT_OK;
}

static const mirt__stage mirt__shuffle_buffer_stage = {
    mirt__shuffle_buffer_begin, mirt__shuffle_buffer_next, NULL, NULL, NULL, NULL, NULL};

MIRT__LIB mirt_status mirt__shuffle_over(mirt_dataset **chain, int64_t buffer) {
    const mirt_dataset *source = *chain;
    const bool reachable = mirt__reachable(source);
    if (source->spec.batch)
        return mirt__fail(MIRT_E_INVALID, "mirt_shuffle must come before mirt_batch: it shuffles samples, not batches");
    if (buffer < 1)
        return mirt__fail(MIRT_E_INVALID, "a shuffle buffer of %lld samples: at least 1 is needed", (long long)buffer);
    const bool sharded = reachable && source->shard && buffer < source->spec.samples;
    const mirt__stage *stage = source->stage->at ? &mirt__permutation_stage
                               : sharded         ? &mirt__shards_stage
                               : reachable       ? &mirt__permutation_make_stage
                                                 : &mirt__shuffle_buffer_stage;
    mirt_status status = mirt__dataset_add(chain, sizeof(mirt__shuffle_dataset), stage);
    if (status != MIRT_OK) return status;
    mirt_dataset *dataset = *chain;
    mirt__shuffle_dataset *shuffle = (mirt__shuffle_dataset *)dataset;
    dataset->shuffles++;
    int64_t samples = dataset->spec.samples;
    shuffle->capacity = samples >= 0 && buffer > samples ? samples : buffer;
    dataset->identity = mirt__identity_with(dataset->identity,
                                            mirt__hash("shuffle") +
                                                (reachable && !sharded ? 0 : (uint64_t)shuffle->capacity));
    dataset->keeps_pass = !reachable;
    if (!reachable) status = mirt__slot_create(&dataset->slot, &dataset->spec, shuffle->capacity, true);
    if (status != MIRT_OK) return status;
    const int64_t own = (reachable ? samples : 0) + (sharded || !reachable ? shuffle->capacity : 0) +
                        (sharded ? 2 * (int64_t)dataset->num_shards : 0);
    dataset->own = mirt__calloc((size_t)own, sizeof(int64_t));
    return dataset->own ? MIRT_OK : MIRT_E_NOMEM;
}

MIRT_API mirt_dataset *mirt_shuffle(mirt_dataset *dataset, int64_t buffer) {
    MIRT__ENTER;
    return dataset ? mirt__dataset_checked(mirt__shuffle_over(&dataset, buffer), &dataset) : NULL;
}
