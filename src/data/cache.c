/* Keeps the samples of the first epoch, in memory or in a reusable file. */

#include "../base/digest.h"
#include "../base/file.h"
#include "workers.h"

typedef struct mirt__cache_dataset {
    mirt_dataset base;
    char *path; /* NULL: in memory */
    int fd;
    uint64_t start; /* offset of the first record in the file */
    size_t record;  /* bytes of the fields and a mirt__cache_tail */
    int64_t indices; /* all samples have smaller indices than this */
    unsigned char *checked; /* [samples], atomic: records whose checksum has been verified */
} mirt__cache_dataset;

/* Follows the fields of a record; `crc` covers everything before it. */
typedef struct mirt__cache_tail {
    int64_t index; /* MIRT__NO_INDEX: skipped */
    uint32_t crc, zero;
} mirt__cache_tail;

/* The file's header, in this machine's byte order; a file with another header is rewritten. */
typedef struct mirt__cache_head {
    char magic[8];
    uint64_t identity, samples, record;
    int64_t field[MIRT__MAX_FIELDS][2 + MIRT_MAX_RANK]; /* dtype, rank, dimensions */
    uint32_t num_fields, crc;
} mirt__cache_head;

static size_t mirt__cache_sample_bytes(const mirt__data_spec *spec) {
    size_t bytes = 0;
    for (int f = 0; f < spec->num_fields; f++)
        bytes += spec->field[f].bytes; /* mirt__dataset_check_spec has checked that all samples fit */
    return bytes;
}

/* Frees buffers and files of the previous stages, which are no longer needed. Class names stay in the stage that has
   them, or move to this one. */
static void mirt__cache_leave(mirt_dataset *dataset) {
    mirt_dataset *named = mirt__names_of(dataset);
    if (named && named != dataset) {
        dataset->names = named->names;
        dataset->num_names = named->num_names;
        dataset->names_in_files = named->names_in_files;
        named->names = NULL;
    }
    mirt__dataset_leave(dataset);
}

/* Copies samples [first, first + count) of the source's current epoch to the slot's first rows. */
static mirt_status mirt__cache_pull(mirt_dataset *cache, mirt__slot *slot, int64_t first, int64_t count) {
    mirt__batch sample;
    mirt_status status;
    int64_t rows;
    if (cache->worker_pool) {
        mirt__workers_ask(cache->worker_pool, slot, first, count, false);
        return mirt__workers_finish(cache->worker_pool, true, &rows);
    }
    for (int64_t i = 0; i < count; i++) {
        status = mirt__dataset_next(cache->source, &sample);
        if (status != MIRT_OK) return status;
        if (sample.rows == 0)
            return mirt__fail(MIRT_E_FORMAT, "the data set ended after %lld of its %lld samples",
                              (long long)(first + i), (long long)cache->spec.samples);
        mirt__slot_put(slot, &cache->spec, i, sample.field, sample.index, 1);
    }
    /* Reads past the last sample, because files verify their ends only then. */
    return first + count == cache->spec.samples ? mirt__dataset_next(cache->source, &sample) : MIRT_OK;
}

static mirt_status mirt__cache_source(mirt_dataset *cache) {
    const mirt_dataset *source = cache->source;
    mirt_status status = source->stage->make && !source->run ? mirt__workers_begin(cache) : MIRT_OK;
    return status == MIRT_OK ? mirt__dataset_begin_source(cache) : status;
}

/* >>in memory */

static mirt_status mirt__cache_begin(mirt_dataset *dataset) {
    if (!dataset->source) return MIRT_OK;
    mirt_status status = mirt__cache_source(dataset);
    if (status == MIRT_OK && !dataset->slot.block)
        status = mirt__slot_create(&dataset->slot, &dataset->spec, dataset->spec.samples, true);
    if (status == MIRT_OK) status = mirt__cache_pull(dataset, &dataset->slot, 0, dataset->spec.samples);
    if (status != MIRT_OK) {
        mirt__aligned_free(dataset->slot.block);
        dataset->slot.block = NULL;
        return status;
    }
    mirt__cache_leave(dataset);
    return MIRT_OK;
}

static mirt_status mirt__cache_at(mirt_dataset *dataset, int64_t i, mirt__sample *out) {
    mirt_status status = mirt__slot_sample(dataset, i, out);
    return status == MIRT_OK && out->index == MIRT__NO_INDEX ? MIRT__SKIPPED : status;
}

static const mirt__stage mirt__cache_stage = {mirt__cache_begin, NULL, mirt__cache_at, NULL, NULL, NULL, NULL};

/* >>in a file */

static void mirt__cache_head_of(const mirt_dataset *dataset, mirt__cache_head *head) {
    const mirt__data_spec *spec = &dataset->spec;
    memset(head, 0, sizeof *head);
    memcpy(head->magic, "MIRTdat1", sizeof head->magic);
    head->identity = dataset->identity;
    if (dataset->shuffles)
        head->identity = mirt__identity_with(mirt__identity_with(head->identity, dataset->seed),
                                             (uint64_t)dataset->epoch + 1);
    head->samples = (uint64_t)spec->samples;
    head->record = ((const mirt__cache_dataset *)dataset)->record;
    head->num_fields = (uint32_t)spec->num_fields;
    for (int f = 0; f < spec->num_fields; f++) {
        head->field[f][0] = (int64_t)spec->field[f].dtype;
        head->field[f][1] = spec->field[f].shape.rank;
        for (int i = 0; i < spec->field[f].shape.rank; i++) head->field[f][2 + i] = spec->field[f].shape.dim[i];
    }
    head->crc = mirt__crc32c(0, head, offsetof(mirt__cache_head, crc));
}

/* Whether the file contains these samples; if so, it stays open. */
static bool mirt__cache_fits(mirt__cache_dataset *cache, const mirt__cache_head *head) {
    mirt__cache_head found;
    uint64_t size;
    if (mirt__file_open(cache->path, &cache->fd, &size) != MIRT_OK) return false;
    bool fits = mirt__file_read_at(cache->fd, 0, &found, sizeof found) == (int64_t)sizeof found &&
                memcmp(&found, head, sizeof found) == 0 && size == sizeof *head + head->samples * head->record;
    if (!fits) mirt__file_close(&cache->fd);
    return fits;
}

static mirt_status mirt__cache_append(mirt__cache_dataset *cache, mirt__file_writer *writer, const mirt__slot *slot,
                                      int64_t count) {
    const mirt__data_spec *spec = &cache->base.spec;
    for (int64_t row = 0; row < count; row++) {
        mirt__cache_tail tail;
        memset(&tail, 0, sizeof tail);
        tail.index = slot->index[row];
        for (int f = 0; f < spec->num_fields; f++) {
            size_t bytes = spec->field[f].bytes;
            char *field = (char *)slot->field[f] + (size_t)row * bytes;
            if (tail.index == MIRT__NO_INDEX) memset(field, 0, bytes);
            tail.crc = mirt__crc32c(tail.crc, field, bytes);
            if (mirt__file_append(writer, field, bytes) != MIRT_OK) return mirt_last_status();
        }
        tail.crc = mirt__crc32c(tail.crc, &tail.index, sizeof tail.index);
        if (mirt__file_append(writer, &tail, sizeof tail) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

static mirt_status mirt__cache_write(mirt__cache_dataset *cache, const mirt__cache_head *head, mirt__slot *slot,
                                     int64_t rows) {
    mirt__file_writer writer;
    mirt_dataset *dataset = &cache->base;
    mirt_status status = mirt__file_begin(&writer, cache->path);
    if (status != MIRT_OK) return status;
    status = mirt__file_append(&writer, head, sizeof *head);
    for (int64_t first = 0; first < dataset->spec.samples && status == MIRT_OK; first += rows) {
        int64_t left = dataset->spec.samples - first, count = rows < left ? rows : left;
        status = mirt__cache_pull(dataset, slot, first, count);
        if (status == MIRT_OK) status = mirt__cache_append(cache, &writer, slot, count);
    }
    if (status == MIRT_OK) return mirt__file_commit(&writer);
    mirt__file_abort(&writer);
    return status;
}

static mirt_status mirt__cache_file_begin(mirt_dataset *dataset) {
    const size_t buffer = (size_t)16 << 20;
    mirt__cache_dataset *cache = (mirt__cache_dataset *)dataset;
    mirt__cache_head head;
    mirt__slot slot;
    mirt_status status = mirt__dataset_begin_slot(dataset);
    if (status != MIRT_OK || !dataset->source) return status;
    if (!cache->checked && !(cache->checked = (unsigned char *)mirt__calloc((size_t)dataset->spec.samples, 1)))
        return MIRT_E_NOMEM;
    mirt__cache_head_of(dataset, &head);
    if (!mirt__cache_fits(cache, &head)) {
        int64_t rows = (int64_t)(buffer / cache->record) + 1;
        memset(&slot, 0, sizeof slot);
        if (rows > dataset->spec.samples) rows = dataset->spec.samples;
        status = mirt__cache_source(dataset);
        if (status == MIRT_OK) status = mirt__slot_create(&slot, &dataset->spec, rows, true);
        if (status == MIRT_OK) status = mirt__cache_write(cache, &head, &slot, rows);
        mirt__aligned_free(slot.block);
        if (status == MIRT_OK && !mirt__cache_fits(cache, &head))
            status = mirt__fail(MIRT_E_IO, "%s: cannot read the cache again", cache->path);
        if (status != MIRT_OK) return status;
    }
    mirt__cache_leave(dataset);
    return MIRT_OK;
}

static mirt_status mirt__cache_file_make(mirt_dataset *dataset, int64_t i, mirt__work *work, void *const *field,
                                         int64_t *index) {
    mirt__cache_dataset *cache = (mirt__cache_dataset *)dataset;
    mirt__cache_tail tail;
    const size_t fields = cache->record - sizeof tail, size = field ? cache->record : sizeof tail;
    uint64_t at = sizeof(mirt__cache_head) + (uint64_t)i * cache->record + (field ? 0 : fields);
    unsigned char *record = (unsigned char *)mirt__work_room(work, dataset, size);
    if (!record) return MIRT_E_NOMEM;
    int64_t got = mirt__file_read_at(cache->fd, at, record, size);
    if (got < 0) return mirt__fail(MIRT_E_IO, "cannot read %s: %s", cache->path, strerror(errno));
    memcpy(&tail, record + size - sizeof tail, sizeof tail);
    if ((size_t)got < size || ((tail.index < 0 || tail.index >= cache->indices) && tail.index != MIRT__NO_INDEX) ||
        (field && !__atomic_load_n(&cache->checked[i], __ATOMIC_RELAXED) &&
         mirt__crc32c(0, record, fields + sizeof tail.index) != tail.crc))
        return mirt__fail(MIRT_E_FORMAT, "%s: sample %lld of the cache is damaged; delete the file to rebuild it",
                          cache->path, (long long)i);
    if (field) __atomic_store_n(&cache->checked[i], 1, __ATOMIC_RELAXED);
    if (tail.index == MIRT__NO_INDEX) return MIRT__SKIPPED;
    *index = tail.index;
    for (int f = 0; field && f < dataset->spec.num_fields; f++) {
        memcpy(field[f], record, dataset->spec.field[f].bytes);
        record += dataset->spec.field[f].bytes;
    }
    return MIRT_OK;
}

static void mirt__cache_file_release(mirt_dataset *dataset) {
    mirt__cache_dataset *cache = (mirt__cache_dataset *)dataset;
    mirt__file_close(&cache->fd);
    mirt__free(cache->checked);
    mirt__free(cache->path);
}

static const mirt__stage mirt__cache_file_stage = {
    mirt__cache_file_begin, NULL, NULL, mirt__cache_file_make, mirt__dataset_fill_made, mirt__cache_file_release, NULL};

/* >>both */

/* One more than the largest sample index. Readers allocate memory per index, so a file must not contain larger ones. */
static int64_t mirt__cache_indices(const mirt_dataset *source) {
    int64_t most = 0;
    for (; source; source = source->source) {
        if (source->spec.samples < 0) return (int64_t)1 << 48; /* part of a stream */
        if (source->spec.samples > most) most = source->spec.samples;
        /* The sources of a cache may have been freed. */
        const int64_t below = source->kept ? ((const mirt__cache_dataset *)source)->indices : 0;
        if (below > most) most = below;
    }
    return most;
}

static mirt_status mirt__cache_check(const mirt_dataset *dataset, const mirt_cache_desc *desc) {
    if (dataset->spec.batch)
        return mirt__fail(MIRT_E_INVALID, "mirt_cache must come before mirt_batch: it caches one sample at a time");
    if (dataset->spec.samples < 0)
        return mirt__fail(
            MIRT_E_INVALID,
            "mirt_cache needs a data set that ends: use mirt_take before it, or mirt_repeat after it");
    if (desc->file && !*desc->file) return mirt__fail(MIRT_E_INVALID, "mirt_cache_with: the file has an empty name");
    uint64_t needed = (uint64_t)dataset->spec.samples * mirt__cache_sample_bytes(&dataset->spec);
    if (desc->budget_bytes == 0 || needed <= desc->budget_bytes) return MIRT_OK;
    return mirt__fail(MIRT_E_NOMEM, "mirt_cache_with: %lld samples take %.1f MiB, above the budget of %.1f MiB",
                      (long long)dataset->spec.samples, (double)needed / 1048576, (double)desc->budget_bytes / 1048576);
}

MIRT_API mirt_dataset *mirt_cache_with(mirt_dataset *dataset, const mirt_cache_desc *desc) {
    MIRT__ENTER;
    static const mirt_cache_desc defaults = {0, NULL};
    if (!desc) desc = &defaults;
    if (!dataset) return NULL;
    if (dataset->contiguous) return dataset; /* already in memory */
    mirt_status status = mirt__cache_check(dataset, desc);
    const mirt__stage *kind = desc->file ? &mirt__cache_file_stage : &mirt__cache_stage;
    if (status == MIRT_OK) status = mirt__dataset_add(&dataset, sizeof(mirt__cache_dataset), kind);
    if (status == MIRT_OK) dataset->shard = NULL; /* samples are no longer read from shards */
    if (status != MIRT_OK) return mirt__dataset_checked(status, &dataset);
    mirt__cache_dataset *cache = (mirt__cache_dataset *)dataset;
    cache->fd = -1;
    cache->record = mirt__cache_sample_bytes(&dataset->spec) + sizeof(mirt__cache_tail);
    cache->indices = mirt__cache_indices(dataset->source);
    dataset->contiguous = !desc->file && !dataset->skips;
    if (dataset->varies == 1) dataset->varies = 0;
    dataset->kept = true;
    if (desc->file) {
        dataset->cost = "reading the cache's file";
        cache->path = mirt__strdup(desc->file);
        if (!cache->path) status = MIRT_E_NOMEM;
    }
    return mirt__dataset_checked(status, &dataset);
}

MIRT_API mirt_dataset *mirt_cache(mirt_dataset *dataset) {
    MIRT__ENTER;
    return mirt_cache_with(dataset, NULL);
}
