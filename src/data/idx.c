/* IDX files, the format of MNIST: big-endian magic number and dimensions, then unsigned bytes. */

#include "data.h"
#include "../base/file.h"

typedef struct mirt__idx_file {
    char *path;
    mirt__bytes bytes;
    mirt__gunzip *gunzip; /* NULL: a plain file */
    int rank;
    int64_t dim[3];
    uint64_t size; /* bytes of header and samples */
    uint64_t read; /* bytes read since the start */
} mirt__idx_file;

typedef struct mirt__idx_dataset {
    mirt_dataset base;
    mirt__idx_file *file[2]; /* of each field: images, and labels, which may be NULL */
    unsigned char y;         /* the last one; the image is in base.own */
} mirt__idx_dataset;

static void mirt__idx_close(mirt__idx_file *file) {
    if (!file) return;
    mirt__file_close(&file->bytes.fd);
    mirt__gunzip_destroy(file->gunzip);
    mirt__free(file->path);
    mirt__free(file);
}

static mirt_status mirt__idx_read_plain(mirt__bytes *bytes, unsigned char *out, size_t size, size_t *got) {
    *got = 0;
    while (*got < size) {
        if (bytes->at == bytes->size) {
            mirt_status status = mirt__bytes_fill(bytes);
            if (status != MIRT_OK) return status;
            if (bytes->size == 0) return MIRT_OK;
        }
        size_t count = bytes->size - bytes->at;
        if (count > size - *got) count = size - *got;
        memcpy(out + *got, bytes->data + bytes->at, count);
        bytes->at += count;
        *got += count;
    }
    return MIRT_OK;
}

/* Reads up to `size` bytes of the plain or unpacked file. */
static mirt_status mirt__idx_read_some(mirt__idx_file *file, unsigned char *out, size_t size, size_t *got) {
    mirt_status status = file->gunzip ? mirt__gunzip_read(file->gunzip, out, size, got)
                                      : mirt__idx_read_plain(&file->bytes, out, size, got);
    return status == MIRT_OK ? MIRT_OK : mirt__fail_at("%s", file->path);
}

static mirt_status mirt__idx_read(mirt__idx_file *file, unsigned char *out, size_t size) {
    size_t got;
    mirt_status status = mirt__idx_read_some(file, out, size, &got);
    if (status != MIRT_OK) return status;
    file->read += got;
    if (got == size) return MIRT_OK;
    uint64_t expected = file->size > file->read ? file->size : file->read - got + size;
    return mirt__fail(MIRT_E_FORMAT, "%s is truncated: expected %llu bytes%s, got %llu", file->path,
                      (unsigned long long)expected, file->gunzip ? " unpacked" : "", (unsigned long long)file->read);
}

/* Nothing may follow the last sample; for a gzip file this also verifies the checksum. */
static mirt_status mirt__idx_check_end(mirt__idx_file *file) {
    unsigned char more;
    size_t got;
    mirt_status status = mirt__idx_read_some(file, &more, 1, &got);
    if (status != MIRT_OK || got == 0) return status;
    return mirt__fail(MIRT_E_FORMAT, "%s continues after its last sample: expected %llu bytes%s", file->path,
                      (unsigned long long)file->size, file->gunzip ? " unpacked" : "");
}

/* Rewinds to the start of the plain or unpacked file. */
static mirt_status mirt__idx_rewind(mirt__idx_file *file) {
    file->read = 0;
    mirt__bytes_rewind(&file->bytes);
    mirt_status status = file->gunzip ? mirt__gunzip_begin(file->gunzip) : MIRT_OK;
    return status == MIRT_OK ? MIRT_OK : mirt__fail_at("%s", file->path);
}

/* Gzip is recognized by content. */
static mirt_status mirt__idx_recognize(mirt__idx_file *file) {
    mirt__bytes *bytes = &file->bytes;
    if (mirt__bytes_fill(bytes) != MIRT_OK) return mirt__fail_at("%s", file->path);
    if (bytes->size >= 2 && bytes->data[0] == 0x1F && bytes->data[1] == 0x8B) {
        file->gunzip = mirt__gunzip_create(bytes);
        if (!file->gunzip) return MIRT_E_NOMEM;
    }
    return mirt__idx_rewind(file);
}

static uint32_t mirt__idx_big_endian(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

/* Reads magic number and dimensions; sets the size that the whole file must have. */
static mirt_status mirt__idx_read_header(mirt__idx_file *file, int rank) {
    unsigned char word[4];
    mirt_status status = mirt__idx_read(file, word, 4);
    if (status != MIRT_OK) return status;
    uint32_t magic = mirt__idx_big_endian(word), expected = 0x0800u + (uint32_t)rank;
    if (magic != expected)
        return mirt__fail(MIRT_E_FORMAT,
                          "%s at byte 0: expected the magic number 0x%08X (unsigned bytes, %d dimension%s), got 0x%08X",
                          file->path, (unsigned)expected, rank, rank == 1 ? "" : "s", (unsigned)magic);
    file->rank = rank;
    file->size = 4 + 4 * (uint64_t)rank;
    uint64_t count = 1;
    for (int i = 0; i < rank; i++) {
        status = mirt__idx_read(file, word, 4);
        if (status != MIRT_OK) return status;
        uint32_t dim = mirt__idx_big_endian(word);
        if (dim == 0 && i == 0)
            return mirt__fail(MIRT_E_INVALID, "%s holds no samples: at least one is needed", file->path);
        if (dim == 0)
            return mirt__fail(MIRT_E_FORMAT, "%s at byte %d: a dimension of 0, expected at least 1", file->path,
                              4 + 4 * i);
        if (count > (uint64_t)INT64_MAX / 8 / dim || count * dim > SIZE_MAX / 8)
            return mirt__fail(MIRT_E_FORMAT,
                              "%s at byte %d: a dimension of %lu makes the file too large for any machine", file->path,
                              4 + 4 * i, (unsigned long)dim);
        count *= dim;
        file->dim[i] = dim;
    }
    file->size += count;
    return MIRT_OK;
}

/* Compares the size from the header with the file's, or with the one in gzip's last four bytes. */
static mirt_status mirt__idx_check_size(mirt__idx_file *file) {
    const uint64_t packed = file->bytes.file_size;
    if (file->gunzip) {
        unsigned char last[4] = {0};
        if (mirt__file_read_at(file->bytes.fd, packed < 4 ? 0 : packed - 4, last, 4) < 0)
            return mirt__fail(MIRT_E_IO, "%s: cannot read its end: %s", file->path, strerror(errno));
        uint32_t size = (uint32_t)last[3] << 24 | (uint32_t)last[2] << 16 | (uint32_t)last[1] << 8 | (uint32_t)last[0];
        if (size != (uint32_t)file->size)
            return mirt__fail(
                MIRT_E_FORMAT,
                "%s is damaged or truncated: expected %llu bytes unpacked, but its last four bytes say %lu", file->path,
                (unsigned long long)file->size, (unsigned long)size);
        /* Deflate compresses at most 1032 to 1, and those four bytes are the size modulo 2^32. */
        if (file->size / 1032 > packed)
            return mirt__fail(MIRT_E_FORMAT,
                              "%s is damaged: %llu bytes cannot unpack to the %llu bytes that its dimensions need",
                              file->path, (unsigned long long)packed, (unsigned long long)file->size);
        return MIRT_OK;
    }
    if (packed != file->size)
        return mirt__fail(MIRT_E_FORMAT, "%s is %s: expected %llu bytes, got %llu", file->path,
                          packed < file->size ? "truncated" : "too long", (unsigned long long)file->size,
                          (unsigned long long)packed);
    return MIRT_OK;
}

static mirt__idx_file *mirt__idx_open(const char *path, int rank) {
    mirt__idx_file *file = (mirt__idx_file *)mirt__calloc(1, sizeof(mirt__idx_file));
    if (!file) return NULL;
    file->bytes.fd = -1;
    file->path = mirt__strdup(path);
    mirt_status status = file->path ? mirt__file_open(path, &file->bytes.fd, &file->bytes.file_size) : MIRT_E_NOMEM;
    if (status == MIRT_OK) status = mirt__idx_recognize(file);
    if (status == MIRT_OK) status = mirt__idx_read_header(file, rank);
    if (status == MIRT_OK) status = mirt__idx_check_size(file);
    if (status == MIRT_OK) return file;
    mirt__idx_close(file);
    return NULL;
}

static mirt_status mirt__idx_skip_header(mirt__idx_file *file) {
    unsigned char header[16];
    mirt_status status = mirt__idx_rewind(file);
    return status == MIRT_OK ? mirt__idx_read(file, header, 4 + 4 * (size_t)file->rank) : status;
}

static mirt_status mirt__idx_begin(mirt_dataset *dataset) {
    mirt__idx_dataset *idx = (mirt__idx_dataset *)dataset;
    mirt_status status = MIRT_OK;
    for (int f = 0; f < dataset->spec.num_fields && status == MIRT_OK; f++)
        status = mirt__idx_skip_header(idx->file[f]);
    return status;
}

static mirt_status mirt__idx_next(mirt_dataset *dataset, mirt__batch *out) {
    mirt__idx_dataset *idx = (mirt__idx_dataset *)dataset;
    unsigned char *to[] = {(unsigned char *)dataset->own, &idx->y};
    const bool ends = dataset->position == dataset->spec.samples;
    mirt_status status = MIRT_OK;
    memset(out, 0, sizeof *out);
    if (dataset->position > dataset->spec.samples) return MIRT_OK;
    for (int f = 0; f < dataset->spec.num_fields && status == MIRT_OK; f++) {
        status = ends ? mirt__idx_check_end(idx->file[f])
                      : mirt__idx_read(idx->file[f], to[f], dataset->spec.field[f].bytes);
        out->field[f] = to[f];
    }
    if (status != MIRT_OK && !ends) return status;
    dataset->current = dataset->position++;
    out->rows = !ends;
    out->index = &dataset->current;
    return status;
}

static void mirt__idx_release(mirt_dataset *dataset) {
    for (int f = 0; f < 2; f++) mirt__idx_close(((mirt__idx_dataset *)dataset)->file[f]);
}

static const mirt__stage mirt__idx_stage = {mirt__idx_begin, mirt__idx_next, NULL, NULL, NULL, mirt__idx_release, NULL};

static mirt_status mirt__idx_set(mirt__idx_dataset *idx, const char *images_path, const char *labels_path) {
    idx->file[0] = mirt__idx_open(images_path, 3);
    if (idx->file[0] && labels_path) idx->file[1] = mirt__idx_open(labels_path, 1);
    if (!idx->file[0] || (labels_path && !idx->file[1])) return mirt_last_status();
    const int64_t *dim = idx->file[0]->dim;
    if (labels_path && idx->file[1]->dim[0] != dim[0])
        return mirt__fail(MIRT_E_SHAPE, "%s has %lld images, %s has %lld labels: both need the same number",
                          images_path, (long long)dim[0], labels_path, (long long)idx->file[1]->dim[0]);
    mirt__data_spec *spec = &idx->base.spec;
    spec->num_x = 1;
    spec->num_y = labels_path != NULL;
    mirt__data_add_field(spec, MIRT_UINT8, MIRT_SHAPE(dim[1], dim[2], 1));
    if (spec->num_y) mirt__data_add_field(spec, MIRT_UINT8, MIRT_SHAPE(0));
    spec->samples = dim[0];
    if (mirt__dataset_check_spec(&idx->base) != MIRT_OK) return mirt__fail_at("%s", images_path);
    idx->base.own = mirt__calloc(1, spec->field[0].bytes);
    return idx->base.own ? MIRT_OK : MIRT_E_NOMEM;
}

MIRT_API mirt_dataset *mirt_idx(const char *images_path, const char *labels_path) {
    MIRT__ENTER;
    if (!images_path) {
        mirt__fail(MIRT_E_INVALID, "mirt_idx needs the path of a file of images");
        return NULL;
    }
    mirt_dataset *dataset = mirt__dataset_new(sizeof(mirt__idx_dataset), &mirt__idx_stage);
    if (!dataset) return NULL;
    dataset->identity = mirt__identity_with(mirt__hash(images_path), labels_path ? mirt__hash(labels_path) : 0);
    return mirt__dataset_checked(mirt__idx_set((mirt__idx_dataset *)dataset, images_path, labels_path), &dataset);
}

/* directory/set-name or else directory/set-name.gz, whichever exists; false with the error set. */
static bool mirt__mnist_find(mirt__text *path, const char *directory, const char *set, const char *name) {
    static const char *const endings[] = {"", ".gz"};
    const char *slash = *directory && directory[strlen(directory) - 1] == '/' ? "" : "/";
    for (int i = 0; i < MIRT__COUNT(endings); i++) {
        mirt__text_clear(path);
        mirt__text_add(path, "%s%s%s-%s%s", directory, slash, set, name, endings[i]);
        if (path->failed) return false;
        if (mirt__file_exists(path->data)) return true; /* mirt_idx reports whether it can be opened */
    }
    mirt__fail(MIRT_E_NOT_FOUND,
               "%s: found neither %s-%s nor %s-%s.gz; put MNIST's four files there, from "
               "https://storage.googleapis.com/cvdf-datasets/mnist/",
               directory, set, name, set, name);
    return false;
}

MIRT_API mirt_dataset *mirt_mnist(const char *directory, mirt_split split) {
    MIRT__ENTER;
    const char *set = split == MIRT_TEST ? "t10k" : "train";
    mirt_dataset *dataset = NULL;
    mirt__text images, labels;
    if (!directory) {
        mirt__fail(MIRT_E_INVALID, "mirt_mnist needs a directory");
        return NULL;
    }
    if (!mirt__split_known("mirt_mnist", split)) return NULL;
    memset(&images, 0, sizeof images);
    memset(&labels, 0, sizeof labels);
    if (mirt__mnist_find(&images, directory, set, "images-idx3-ubyte") &&
        mirt__mnist_find(&labels, directory, set, "labels-idx1-ubyte"))
        dataset = mirt_idx(images.data, labels.data);
    mirt__text_free(&images);
    mirt__text_free(&labels);
    return dataset ? mirt__dataset_checked(mirt__dataset_name_digits(dataset), &dataset) : NULL;
}
