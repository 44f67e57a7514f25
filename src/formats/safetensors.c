/* Reads safetensors files; nothing in a file is trusted before it is checked. */

#include "safetensors.h"
#include "../base/file.h"

static const struct {
    const char *name;
    size_t size;
} mirt__st_dtypes[MIRT__ST_DTYPE_COUNT] = {
#define MIRT__ST_ROW(name, size) {#name, size},
    MIRT__ST_DTYPE_LIST(MIRT__ST_ROW)
#undef MIRT__ST_ROW
};

MIRT__LIB const char *mirt__st_dtype_name(mirt__st_dtype dtype) {
    return mirt__st_dtypes[dtype].name;
}

MIRT__LIB bool mirt__st_bytes(const mirt__safetensor *tensor, size_t *out) {
    size_t bytes = mirt__st_dtypes[tensor->dtype].size;
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->dim[i] < 0 || (uint64_t)tensor->dim[i] > SIZE_MAX / 2) return false;
        if (!mirt__mul_size(bytes, (size_t)tensor->dim[i], &bytes)) return false;
    }
    *out = bytes;
    return bytes <= SIZE_MAX / 2;
}

MIRT__LIB mirt__phrase mirt__st_shape_text(const mirt__safetensor *tensor) {
    mirt__phrase out = {"("};
    for (int i = 0; i < tensor->rank; i++)
        mirt__line_add(out.text, sizeof out.text, "%s%lld", i ? ", " : "", (long long)tensor->dim[i]);
    mirt__line_add(out.text, sizeof out.text, ")");
    return out;
}

/* Sets the error "origin: tensor: what"; tensor NULL means the whole file. */
MIRT__PRINTF(3, 4)
static mirt_status mirt__st_bad(const mirt__safetensors *file, const char *tensor, const char *format, ...) {
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return mirt__fail(MIRT_E_FORMAT, "%s: %s%s%s", file->origin, tensor ? mirt__label(tensor).text : "",
                      tensor ? ": " : "", what);
}

/* Prefixes the current error like mirt__st_bad. */
static mirt_status mirt__st_bad_json(const mirt__safetensors *file, const char *tensor) {
    return mirt__fail_at("%s: %s", file->origin, mirt__label(tensor).text);
}

static mirt_status mirt__st_read_dtype(const mirt__safetensors *file, const mirt__json *node,
                                       mirt__safetensor *tensor) {
    const mirt__json *dtype = mirt__json_get(node, "dtype", MIRT__JSON_STRING);
    if (!dtype) return mirt__st_bad_json(file, node->key);
    for (int i = 0; i < MIRT__ST_DTYPE_COUNT; i++) {
        if (strcmp(dtype->string, mirt__st_dtypes[i].name) != 0) continue;
        tensor->dtype = (mirt__st_dtype)i;
        return MIRT_OK;
    }
    return mirt__st_bad(file, node->key, "dtype \"%s\" is unknown (supported are F32, I32, U8 and others)",
                        mirt__label(dtype->string).text);
}

/* >>header */

/* A dimension or an offset. */
static bool mirt__st_whole(const mirt__json *number) {
    return number->type == MIRT__JSON_NUMBER && number->integral && number->integer >= 0;
}

static mirt_status mirt__st_read_shape(const mirt__safetensors *file, const mirt__json *node,
                                       mirt__safetensor *tensor) {
    const mirt__json *shape = mirt__json_get(node, "shape", MIRT__JSON_ARRAY);
    if (!shape) return mirt__st_bad_json(file, node->key);
    if (shape->count > MIRT__ST_RANK)
        return mirt__st_bad(file, node->key, "shape has %zu dimensions, but at most %d are supported", shape->count,
                            MIRT__ST_RANK);
    for (size_t i = 0; i < shape->count; i++) {
        const mirt__json *dim = shape->item[i];
        if (!mirt__st_whole(dim))
            return mirt__st_bad(file, node->key, "shape[%zu] must be a whole number from 0 to %lld", i,
                                (long long)INT64_MAX);
        tensor->dim[tensor->rank++] = dim->integer;
    }
    if (mirt__st_bytes(tensor, &tensor->size)) return MIRT_OK;
    return mirt__st_bad(file, node->key, "shape %s of %s is larger than the address space",
                        mirt__st_shape_text(tensor).text, mirt__st_dtype_name(tensor->dtype));
}

static mirt_status mirt__st_read_offsets(const mirt__safetensors *file, const mirt__json *node,
                                         mirt__safetensor *tensor) {
    uint64_t offset[2] = {0, 0};
    const mirt__json *pair = mirt__json_get(node, "data_offsets", MIRT__JSON_ARRAY);
    if (!pair) return mirt__st_bad_json(file, node->key);
    if (pair->count != 2)
        return mirt__st_bad(file, node->key, "data_offsets has %zu items, but must have 2", pair->count);
    for (int i = 0; i < 2; i++) {
        const mirt__json *item = pair->item[i];
        if (!mirt__st_whole(item))
            return mirt__st_bad(file, node->key, "data_offsets[%d] must be a whole number from 0 to %zu", i,
                                file->data_size);
        offset[i] = (uint64_t)item->integer;
    }
    unsigned long long begin = offset[0], end = offset[1];
    if (begin > end)
        return mirt__st_bad(file, node->key, "data_offsets [%llu, %llu] end before they begin", begin, end);
    if (end > file->data_size)
        return mirt__st_bad(file, node->key, "data_offsets [%llu, %llu] go beyond the %zu bytes of tensor data", begin,
                            end, file->data_size);
    if (end - begin != tensor->size)
        return mirt__st_bad(file, node->key, "data_offsets [%llu, %llu] hold %llu bytes, shape %s of %s needs %zu",
                            begin, end, end - begin, mirt__st_shape_text(tensor).text,
                            mirt__st_dtype_name(tensor->dtype), tensor->size);
    tensor->at = (size_t)begin;
    if (file->data) tensor->data = file->data + begin;
    return MIRT_OK;
}

static mirt_status mirt__st_read_metadata(mirt__safetensors *file, const mirt__json *node) {
    if (node->type != MIRT__JSON_OBJECT)
        return mirt__st_bad(file, node->key, "is %s, but must be an object", mirt__json_type_name(node->type));
    for (size_t i = 0; i < node->count; i++)
        if (node->item[i]->type != MIRT__JSON_STRING)
            return mirt__st_bad(file, node->item[i]->key, "metadata is %s, but must be a string",
                                mirt__json_type_name(node->item[i]->type));
    file->metadata = node;
    return MIRT_OK;
}

static mirt_status mirt__st_read_tensor(mirt__safetensors *file, const mirt__json *node) {
    mirt__safetensor *tensor = &file->tensor[file->count];
    if (node->type != MIRT__JSON_OBJECT)
        return mirt__st_bad(file, node->key, "is %s, but must be an object", mirt__json_type_name(node->type));
    tensor->name = node->key;
    mirt_status status = mirt__st_read_dtype(file, node, tensor);
    if (status == MIRT_OK) status = mirt__st_read_shape(file, node, tensor);
    if (status == MIRT_OK) status = mirt__st_read_offsets(file, node, tensor);
    if (status == MIRT_OK) file->count++;
    return status;
}

/* qsort's comparison by offset in the file; empty tensors come before others with the same offset. */
static int mirt__st_compare_places(const void *a, const void *b) {
    const mirt__safetensor *x = *(const mirt__safetensor *const *)a, *y = *(const mirt__safetensor *const *)b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->size == y->size ? 0 : x->size < y->size ? -1 : 1;
}

/* Checks that every byte after the header belongs to exactly one tensor. */
static mirt_status mirt__st_check_layout(mirt__safetensors *file) {
    size_t count = (size_t)file->count, end = 0;
    const char *before = "";
    const mirt__safetensor **order =
        (const mirt__safetensor **)mirt__pool_alloc(&file->pool, (count + 1) * sizeof(mirt__safetensor *));
    if (!order) return mirt_last_status();
    for (size_t i = 0; i < count; i++) order[i] = &file->tensor[i];
    qsort(order, count, sizeof *order, mirt__st_compare_places);
    for (size_t i = 0; i < count; i++) {
        size_t begin = order[i]->at;
        if (begin > end)
            return mirt__st_bad(file, order[i]->name, "begins at %zu, but the bytes from %zu belong to no tensor",
                                begin, end);
        if (begin < end)
            return mirt__st_bad(file, order[i]->name, "begins at %zu, but \"%s\" extends to %zu: they overlap", begin,
                                mirt__label(before).text, end);
        end = begin + order[i]->size;
        before = order[i]->name;
    }
    if (end == file->data_size) return MIRT_OK;
    return mirt__st_bad(file, NULL, "the tensors end at %zu, but the file has %zu bytes of tensor data", end,
                        file->data_size);
}

static mirt_status mirt__st_read_header(mirt__safetensors *file, const mirt__json *header) {
    file->tensor = (mirt__safetensor *)mirt__pool_alloc(&file->pool, (header->count + 1) * sizeof(mirt__safetensor));
    if (!file->tensor) return mirt_last_status();
    for (size_t i = 0; i < header->count; i++) {
        const mirt__json *node = header->item[i];
        bool metadata = strcmp(node->key, "__metadata__") == 0;
        mirt_status status = metadata ? mirt__st_read_metadata(file, node) : mirt__st_read_tensor(file, node);
        if (status != MIRT_OK) return status;
    }
    return mirt__st_check_layout(file);
}

/* >>checksums */

static mirt_status mirt__st_fetch(const mirt__safetensors *file, uint64_t offset, void *to, size_t size) {
    const int64_t got = mirt__file_read_at(file->fd, offset, to, size);
    if (got < 0) return mirt__file_fail(file->origin, "cannot read");
    if ((size_t)got == size) return MIRT_OK;
    return mirt__st_bad(file, NULL, "it has become shorter since it was opened");
}

MIRT__LIB mirt_status mirt__safetensor_copy(const mirt__safetensors *file, const mirt__safetensor *tensor, void *to) {
    if (!tensor->data) return mirt__st_fetch(file, file->begin + tensor->at, to, tensor->size);
    memcpy(to, tensor->data, tensor->size);
    return MIRT_OK;
}

/* Adds bytes of tensors to one of the sums, the other of which is NULL. */
static mirt_status mirt__st_sum(const mirt__safetensors *file, size_t at, size_t size, uint32_t *crc,
                                mirt__sha256 *sha) {
    unsigned char piece[16384];
    while (size > 0) {
        const size_t part = file->data || size < sizeof piece ? size : sizeof piece;
        if (!file->data && mirt__st_fetch(file, file->begin + at, piece, part) != MIRT_OK) return mirt_last_status();
        const unsigned char *bytes = file->data ? file->data + at : piece;
        if (crc) *crc = mirt__crc32c(*crc, bytes, part);
        else mirt__sha256_add(sha, bytes, part);
        at += part;
        size -= part;
    }
    return MIRT_OK;
}

static mirt_status mirt__st_mismatch(const mirt__safetensors *file, const char *tensor, const char *what,
                                     const char *want, const char *got) {
    return mirt__st_bad(file, tensor,
                        "%s is %s, but the file states %s: it is damaged, or was changed by a program that kept the "
                        "old mirrortrain.* metadata",
                        what, got, mirt__label(want).text);
}

static mirt_status mirt__st_check_tensors(mirt__safetensors *file, const char *promised) {
    const mirt__json *sums = mirt__json_parse(&file->pool, promised, strlen(promised));
    if (!sums) return mirt__st_bad_json(file, "mirrortrain.crc32c");
    if (sums->type != MIRT__JSON_OBJECT || sums->count != (size_t)file->count)
        return mirt__st_bad(file, "mirrortrain.crc32c", "must be an object with one member for each of the %d tensors",
                            file->count);
    for (int i = 0; i < file->count; i++) {
        char got[16];
        const mirt__safetensor *tensor = &file->tensor[i];
        const mirt__json *sum = mirt__json_get(sums, tensor->name, MIRT__JSON_STRING);
        if (!sum) return mirt__st_bad_json(file, "mirrortrain.crc32c");
        uint32_t crc = 0;
        if (mirt__st_sum(file, tensor->at, tensor->size, &crc, NULL) != MIRT_OK) return mirt_last_status();
        snprintf(got, sizeof got, "%08x", (unsigned)crc);
        if (strcmp(got, sum->string) != 0) return mirt__st_mismatch(file, tensor->name, "CRC-32C", sum->string, got);
    }
    return MIRT_OK;
}

static mirt_status mirt__st_check_header(const mirt__safetensors *file, const mirt__json *promised,
                                         const unsigned char *header, size_t size) {
    size_t at = promised->offset + 1; /* after the quote */
    char got[16];
    if (strlen(promised->string) != 8 || memcmp(header + at, promised->string, 8) != 0)
        return mirt__st_bad(file, "mirrortrain.header", "must be 8 hexadecimal digits");
    uint32_t crc = mirt__crc32c(0, header, at);
    crc = mirt__crc32c(crc, "00000000", 8);
    crc = mirt__crc32c(crc, header + at + 8, size - at - 8);
    snprintf(got, sizeof got, "%08x", (unsigned)crc);
    return strcmp(got, promised->string) == 0 ? MIRT_OK
                                              : mirt__st_mismatch(file, "header", "CRC-32C", promised->string, got);
}

static mirt_status mirt__st_check_sums(mirt__safetensors *file, const unsigned char *header, size_t header_size) {
    static const char *const keys[3] = {"mirrortrain.header", "mirrortrain.crc32c", "mirrortrain.sha256"};
    const mirt__json *value[3];
    int found = 0;
    for (int i = 0; i < 3; i++) {
        value[i] = mirt__json_member(file->metadata, keys[i]);
        found += value[i] != NULL;
    }
    if (found == 0) return MIRT_OK;
    for (int i = 0; i < 3; i++)
        if (!value[i])
            return mirt__st_bad(file, "__metadata__", "%s is missing, but the other checksums are present", keys[i]);
    mirt_status status = mirt__st_check_header(file, value[0], header, header_size);
    if (status == MIRT_OK) status = mirt__st_check_tensors(file, value[1]->string);
    if (status != MIRT_OK) return status;
    mirt__sha256 sha;
    mirt__sha256_begin(&sha);
    if (mirt__st_sum(file, 0, file->data_size, NULL, &sha) != MIRT_OK) return mirt_last_status();
    mirt__sha256_end(&sha, file->sha256);
    if (strcmp(file->sha256, value[2]->string) == 0) return MIRT_OK;
    return mirt__st_mismatch(file, "all tensors", "SHA-256", value[2]->string, file->sha256);
}

/* >>files */

/* Finds the header's length in the first bytes of a file of `size`; 9 of them are there, if there are so many. */
static mirt_status mirt__st_read_length(mirt__safetensors *file, const unsigned char *bytes, uint64_t size) {
    uint64_t length = 0;
    if (size < 8)
        return mirt__st_bad(file, NULL, "%zu bytes are too few for a safetensors file: its header length alone takes 8",
                            (size_t)size);
    for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
    if (length > MIRT__ST_HEADER_LIMIT)
        return mirt__st_bad(file, NULL,
                            "the header length %llu is above the limit of %d: this is not a safetensors file",
                            (unsigned long long)length, MIRT__ST_HEADER_LIMIT);
    if (length > size - 8)
        return mirt__st_bad(file, NULL, "the header length %llu goes beyond the end of the file, which has %zu bytes",
                            (unsigned long long)length, (size_t)size);
    if (length == 0 || bytes[8] != '{') return mirt__st_bad(file, NULL, "the header does not begin with '{'");
    file->begin = 8 + length;
    file->data_size = (size_t)(size - file->begin);
    return MIRT_OK;
}

/* `bytes`: of the file up to the tensors, at least. */
static mirt_status mirt__st_read(mirt__safetensors *file, const unsigned char *bytes) {
    const size_t length = (size_t)file->begin - 8;
    const mirt__json *header = mirt__json_parse(&file->pool, (const char *)bytes + 8, length);
    if (!header) return mirt__st_bad_json(file, "header");
    mirt_status status = mirt__st_read_header(file, header);
    return status == MIRT_OK ? mirt__st_check_sums(file, bytes + 8, length) : status;
}

/* Reads a file from memory; closes it after a failure. */
static mirt_status mirt__st_open(mirt__safetensors *file, const char *origin, const unsigned char *bytes, size_t size) {
    file->origin = mirt__pool_strdup(&file->pool, origin);
    mirt_status status = file->origin ? mirt__st_read_length(file, bytes, size) : MIRT_E_NOMEM;
    if (status == MIRT_OK) {
        file->data = bytes + file->begin;
        status = mirt__st_read(file, bytes);
    }
    if (status != MIRT_OK) mirt__safetensors_close(file);
    return status;
}

MIRT__LIB mirt_status mirt__safetensors_open(mirt__safetensors *file, const char *path) {
    size_t size;
    memset(file, 0, sizeof *file);
    mirt_status status = mirt__file_read(path, SIZE_MAX, &file->owned, &size);
    return status == MIRT_OK ? mirt__st_open(file, path, file->owned, size) : status;
}

MIRT__LIB mirt_status mirt__safetensors_open_memory(mirt__safetensors *file, const void *data, size_t size) {
    memset(file, 0, sizeof *file);
    return mirt__st_open(file, "memory", (const unsigned char *)data, size);
}

/* Reads the header of an open file of `size` bytes. */
static mirt_status mirt__st_read_begin(mirt__safetensors *file, uint64_t size) {
    unsigned char first[9];
    if (size > SIZE_MAX / 4) return mirt__st_bad(file, NULL, "it is larger than the address space");
    mirt_status status = mirt__st_fetch(file, 0, first, size < sizeof first ? (size_t)size : sizeof first);
    if (status == MIRT_OK) status = mirt__st_read_length(file, first, size);
    if (status != MIRT_OK) return status;
    file->owned = (unsigned char *)mirt__aligned_alloc((size_t)file->begin);
    if (!file->owned) return mirt_last_status();
    status = mirt__st_fetch(file, 0, file->owned, (size_t)file->begin);
    return status == MIRT_OK ? mirt__st_read(file, file->owned) : status;
}

MIRT__LIB mirt_status mirt__safetensors_open_streamed(mirt__safetensors *file, const char *path) {
    uint64_t size;
    unsigned char more;
    memset(file, 0, sizeof *file);
    mirt_status status = mirt__file_open(path, &file->fd, &size);
    if (status != MIRT_OK) return status;
    file->is_open = true;
    const int64_t beyond = mirt__file_read_at(file->fd, size, &more, 1);
    if (beyond > 0) { /* the system does not know its size, or it grows */
        mirt__safetensors_close(file);
        return mirt__safetensors_open(file, path);
    }
    file->origin = mirt__pool_strdup(&file->pool, path);
    if (beyond < 0) status = mirt__file_fail(path, "cannot read");
    else status = file->origin ? mirt__st_read_begin(file, size) : MIRT_E_NOMEM;
    if (status != MIRT_OK) mirt__safetensors_close(file);
    return status;
}

MIRT__LIB void mirt__safetensors_close(mirt__safetensors *file) {
    mirt__pool_free(&file->pool);
    mirt__aligned_free(file->owned);
    if (file->is_open) mirt__file_close(&file->fd);
    memset(file, 0, sizeof *file);
}

MIRT__LIB const mirt__safetensor *mirt__safetensors_find(const mirt__safetensors *file, const char *name) {
    for (int i = 0; i < file->count; i++)
        if (strcmp(file->tensor[i].name, name) == 0) return &file->tensor[i];
    return NULL;
}

MIRT__LIB const char *mirt__safetensors_metadata(const mirt__safetensors *file, const char *key) {
    const mirt__json *value = mirt__json_member(file->metadata, key);
    return value ? value->string : NULL;
}
