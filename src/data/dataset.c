/* What all stages share, and the stages that hold their samples in memory. */

#include "data.h"

MIRT__LIB const mirt__data_spec *mirt__dataset_spec(const mirt_dataset *dataset) {
    return &dataset->spec;
}

MIRT__LIB mirt_status mirt__dataset_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    dataset->position = 0;
    return dataset->stage->begin ? dataset->stage->begin(dataset, seed, epoch) : MIRT_OK;
}

MIRT__LIB mirt_status mirt__dataset_next(mirt_dataset *dataset, mirt__batch *out) {
    return dataset->stage->next(dataset, out);
}

MIRT_API int64_t mirt_dataset_size(const mirt_dataset *dataset) {
    return dataset ? dataset->spec.samples : 0;
}

MIRT_API void mirt_dataset_destroy(mirt_dataset *dataset) {
    while (dataset) {
        mirt_dataset *before = dataset->borrows ? NULL : dataset->source;
        if (dataset->stage->release) dataset->stage->release(dataset);
        mirt__free(dataset);
        dataset = before;
    }
}

MIRT__LIB mirt_dataset *mirt__dataset_give_up(mirt_dataset *dataset, bool borrowed) {
    if (!borrowed) mirt_dataset_destroy(dataset);
    return NULL;
}

MIRT__LIB mirt_dataset *mirt__dataset_new(size_t size, const mirt__stage *stage, mirt_dataset *source, bool borrows) {
    mirt_dataset *dataset = (mirt_dataset *)mirt__calloc(1, size);
    if (!dataset) return mirt__dataset_give_up(source, borrows);
    dataset->stage = stage;
    dataset->source = source;
    dataset->borrows = borrows;
    if (source) {
        dataset->spec = source->spec;
        dataset->x_bytes = source->x_bytes;
        dataset->y_bytes = source->y_bytes;
        dataset->shuffles = source->shuffles;
    }
    return dataset;
}

/* Bytes of one sample; the error names the array. */
static mirt_status mirt__dataset_sample_bytes(const char *what, const mirt_shape *shape, mirt_dtype dtype, size_t *bytes) {
    char text[96];
    int64_t count = mirt__shape_count(shape);
    size_t size = mirt__dtype_size(dtype);
    if (size == 0) return mirt__fail(MIRT_E_INVALID, "%s has the unknown dtype %d", what, (int)dtype);
    if (count == 0)
        return mirt__fail(MIRT_E_SHAPE, "%s has samples of shape %s: every dimension must be positive", what,
                          mirt__shape_text(shape, text));
    if (count < 0 || (uint64_t)count > SIZE_MAX || !mirt__mul_size((size_t)count, size, bytes))
        return mirt__fail(MIRT_E_SHAPE, "%s has samples of shape %s: too large for this machine", what,
                          mirt__shape_text(shape, text));
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__dataset_set_spec(mirt_dataset *dataset, const mirt__data_spec *spec) {
    dataset->spec = *spec;
    mirt_status status = mirt__dataset_sample_bytes("x", &spec->x_shape, spec->x_dtype, &dataset->x_bytes);
    if (status == MIRT_OK && spec->has_y)
        status = mirt__dataset_sample_bytes("y", &spec->y_shape, spec->y_dtype, &dataset->y_bytes);
    size_t x_bytes, all_bytes;
    if (status == MIRT_OK && !mirt__dataset_block_bytes(dataset, spec->samples, &x_bytes, &all_bytes))
        status = mirt__fail(MIRT_E_SHAPE, "%lld samples of %zu bytes each are too many for this machine",
                            (long long)spec->samples, dataset->x_bytes);
    return status;
}

MIRT__LIB bool mirt__dataset_block_bytes(const mirt_dataset *dataset, int64_t rows, size_t *x_bytes, size_t *all_bytes) {
    size_t y_bytes;
    if (rows < 0 || (uint64_t)rows > SIZE_MAX) return false;
    if (!mirt__mul_size((size_t)rows, dataset->x_bytes, x_bytes)) return false;
    if (!mirt__mul_size((size_t)rows, dataset->y_bytes, &y_bytes)) return false;
    if (*x_bytes > SIZE_MAX / 4 || y_bytes > SIZE_MAX / 4) return false;
    *x_bytes = mirt__align_up(*x_bytes);
    *all_bytes = *x_bytes + mirt__align_up(y_bytes);
    return true;
}

MIRT__LIB mirt_status mirt__dataset_next_at(mirt_dataset *dataset, mirt__batch *out) {
    memset(out, 0, sizeof *out);
    if (dataset->position >= dataset->spec.samples) return MIRT_OK;
    mirt__sample sample;
    mirt_status status = dataset->stage->at(dataset, dataset->position, &sample);
    if (status != MIRT_OK) return status;
    dataset->position++;
    dataset->current = sample.index;
    out->x = sample.x;
    out->y = sample.y;
    out->rows = 1;
    out->index = &dataset->current;
    return MIRT_OK;
}

MIRT__LIB mirt_dataset *mirt__dataset_batch_view(mirt_dataset *dataset, int64_t batch, bool shuffle) {
    const int64_t stream_buffer = 1024;
    if (!shuffle) return mirt__batch_over(dataset, batch, true);
    return mirt__batch_over(mirt__shuffle_over(dataset, stream_buffer, true), batch, false);
}

MIRT__LIB mirt_status mirt__block_at(mirt_dataset *dataset, int64_t i, mirt__sample *out) {
    const mirt__block_dataset *block = (const mirt__block_dataset *)dataset;
    out->x = block->x + (size_t)i * dataset->x_bytes;
    out->y = block->y ? block->y + (size_t)i * dataset->y_bytes : NULL;
    out->index = i;
    return MIRT_OK;
}

MIRT__LIB void mirt__block_release(mirt_dataset *dataset) {
    mirt__block_dataset *block = (mirt__block_dataset *)dataset;
    mirt__aligned_free(block->owned);
    block->owned = NULL;
}

MIRT__LIB mirt_status mirt__block_create(mirt__block_dataset *block, unsigned char **x, unsigned char **y) {
    size_t x_bytes, all_bytes;
    if (!mirt__dataset_block_bytes(&block->base, block->base.spec.samples, &x_bytes, &all_bytes)) {
        mirt__no_memory(SIZE_MAX);
        return MIRT_E_NOMEM;
    }
    block->owned = mirt__aligned_alloc(all_bytes);
    if (!block->owned) return MIRT_E_NOMEM;
    *x = (unsigned char *)block->owned;
    *y = block->base.spec.has_y ? *x + x_bytes : NULL;
    return MIRT_OK;
}

static const mirt__stage mirt__arrays_stage = {NULL, mirt__dataset_next_at, mirt__block_at, NULL, NULL};

static mirt_status mirt__arrays_check(const char *what, const mirt_array *array) {
    char text[96];
    const mirt_shape *shape = &array->shape;
    if (mirt__dtype_size(array->dtype) == 0) return mirt__fail(MIRT_E_INVALID, "%s has the unknown dtype %d", what, (int)array->dtype);
    /* mirt_make_shape ends a shape at its first 0, so no samples means no dimensions. */
    if (shape->rank < 1 || shape->dim[0] == 0)
        return mirt__fail(MIRT_E_INVALID, "%s is empty: its first dimension counts samples and must be positive", what);
    if (shape->rank > MIRT_MAX_RANK)
        return mirt__fail(MIRT_E_SHAPE, "%s has %d dimensions: at most %d are possible", what, shape->rank, MIRT_MAX_RANK);
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] <= 0)
            return mirt__fail(MIRT_E_SHAPE, "%s has shape %s: every dimension must be positive", what,
                              mirt__shape_text(shape, text));
    }
    return MIRT_OK;
}

/* Without the first dimension. */
static mirt_shape mirt__arrays_sample_shape(const mirt_shape *shape) {
    mirt_shape sample;
    memset(&sample, 0, sizeof sample);
    sample.rank = shape->rank - 1;
    for (int i = 0; i < sample.rank; i++) sample.dim[i] = shape->dim[i + 1];
    return sample;
}

MIRT__LIB mirt_status mirt__arrays_spec(const mirt_array *x, const mirt_array *y, mirt__data_spec *spec) {
    memset(spec, 0, sizeof *spec);
    mirt_status status = mirt__arrays_check("x", x);
    if (status != MIRT_OK) return status;
    if (!x->data) return mirt__fail(MIRT_E_INVALID, "x has no data: its pointer is NULL");
    spec->x_dtype = x->dtype;
    spec->x_shape = mirt__arrays_sample_shape(&x->shape);
    spec->samples = x->shape.dim[0];
    spec->has_y = y->data != NULL;
    if (!spec->has_y) return MIRT_OK;
    status = mirt__arrays_check("y", y);
    if (status != MIRT_OK) return status;
    if (y->shape.dim[0] != spec->samples)
        return mirt__fail(MIRT_E_SHAPE, "x has %lld samples, y has %lld: both need the same number",
                          (long long)spec->samples, (long long)y->shape.dim[0]);
    spec->y_dtype = y->dtype;
    spec->y_shape = mirt__arrays_sample_shape(&y->shape);
    return MIRT_OK;
}

static mirt_status mirt__arrays_set(mirt__block_dataset *block, const mirt_array *x, const mirt_array *y) {
    mirt__data_spec spec;
    if (mirt__arrays_spec(x, y, &spec) != MIRT_OK) return mirt_last_status();
    block->x = (const unsigned char *)x->data;
    block->y = (const unsigned char *)y->data;
    block->base.contiguous = true;
    return mirt__dataset_set_spec(&block->base, &spec);
}

MIRT_API mirt_dataset *mirt_arrays(mirt_array x, mirt_array y) {
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__block_dataset), &mirt__arrays_stage, NULL, false);
    if (!dataset) return NULL;
    if (mirt__arrays_set((mirt__block_dataset *)dataset, &x, &y) != MIRT_OK) return mirt__dataset_give_up(dataset, false);
    return dataset;
}

/* Pulls one whole epoch of the stage before into the block. */
static mirt_status mirt__cache_load(mirt__block_dataset *cache, unsigned char *x, unsigned char *y) {
    mirt_dataset *base = &cache->base;
    for (int64_t i = 0; i < base->spec.samples; i++) {
        mirt__batch sample;
        mirt_status status = mirt__dataset_next(base->source, &sample);
        if (status != MIRT_OK) return status;
        if (sample.rows == 0)
            return mirt__fail(MIRT_E_FORMAT, "the data set ended after %lld of its %lld samples", (long long)i,
                              (long long)base->spec.samples);
        memcpy(x + (size_t)i * base->x_bytes, sample.x, base->x_bytes);
        if (y) memcpy(y + (size_t)i * base->y_bytes, sample.y, base->y_bytes);
    }
    /* Once more past the last sample: files check their ends only there. */
    mirt__batch end;
    return mirt__dataset_next(base->source, &end);
}

static mirt_status mirt__cache_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__block_dataset *cache = (mirt__block_dataset *)dataset;
    if (cache->owned) return MIRT_OK;
    mirt_status status = mirt__dataset_begin(dataset->source, seed, epoch);
    if (status != MIRT_OK) return status;
    unsigned char *x = NULL, *y = NULL;
    status = mirt__block_create(cache, &x, &y);
    if (status != MIRT_OK) return status;
    status = mirt__cache_load(cache, x, y);
    if (status != MIRT_OK) {
        mirt__block_release(dataset);
        return status;
    }
    cache->x = x;
    cache->y = y;
    /* The stages before have done their work: their buffers and files are not needed again. */
    mirt__dataset_give_up(dataset->source, dataset->borrows);
    dataset->source = NULL;
    return MIRT_OK;
}

static const mirt__stage mirt__cache_stage = {mirt__cache_begin, mirt__dataset_next_at, mirt__block_at, NULL,
                                              mirt__block_release};

MIRT_API mirt_dataset *mirt_cache(mirt_dataset *dataset) {
    if (!dataset) return NULL;
    if (dataset->contiguous) return dataset; /* in memory already */
    if (dataset->spec.batch) {
        mirt__fail(MIRT_E_INVALID, "mirt_cache comes before mirt_batch: samples are cached one by one");
        return mirt__dataset_give_up(dataset, false);
    }
    mirt_dataset *cache = mirt__dataset_new(sizeof(mirt__block_dataset), &mirt__cache_stage, dataset, false);
    if (cache) cache->contiguous = true;
    return cache;
}
