#include "safetensors.h"
#include "../base/file.h"
/* Writes safetensors files. */

/* Checksums of the written bytes; zeros until these are known. */
typedef struct mirt__st_sums {
    uint32_t *crc; /* per tensor */
    char sha256[MIRT__SHA256_HEX];
} mirt__st_sums;

static mirt_status mirt__st_check_text(const char *what, const char *text) {
    if (!text) return mirt__fail(MIRT_E_INVALID, "%s is NULL", what);
    if (mirt__utf8_valid(text, strlen(text))) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "%s \"%s\" is not valid UTF-8", what, mirt__label(text).text);
}

static mirt_status mirt__st_check_content(const mirt__safetensors_content *content) {
    mirt_status status = MIRT_OK;
    size_t bytes, total = 0;
    for (int i = 0; i < content->count; i++) {
        const mirt__safetensor *tensor = &content->tensor[i];
        status = mirt__st_check_text("tensor name", tensor->name);
        if (status != MIRT_OK) return status;
        for (int j = 0; j < i; j++)
            if (strcmp(content->tensor[j].name, tensor->name) == 0)
                return mirt__fail(MIRT_E_INVALID, "two tensors are named \"%s\"",
                                  mirt__label(tensor->name).text);
        if (strcmp(tensor->name, "__metadata__") == 0)
            return mirt__fail(MIRT_E_INVALID, "a tensor must not be named \"__metadata__\"");
        if (tensor->rank < 0 || tensor->rank > MIRT__ST_RANK || !mirt__st_bytes(tensor, &bytes) ||
            !mirt__add_size(total, bytes, &total))
            return mirt__fail(MIRT_E_INVALID, "tensor \"%s\" has an impossible shape",
                              mirt__label(tensor->name).text);
    }
    for (int i = 0; i < content->metadata_count && status == MIRT_OK; i++)
        status = mirt__st_check_text("metadata value", content->metadata[2 * i + 1]);
    return status;
}

static void mirt__st_add_pair(mirt__text *text, const char *key, const char *value) {
    mirt__json_write_string(text, key);
    mirt__text_add_bytes(text, ":", 1);
    mirt__json_write_string(text, value);
}

static void mirt__st_add_crcs(mirt__text *text, const mirt__safetensors_content *content, const mirt__st_sums *sums) {
    mirt__text inner = {NULL, 0, 0, false};
    for (int i = 0; i < content->count; i++) {
        char digits[16];
        snprintf(digits, sizeof digits, "%08x", (unsigned)sums->crc[i]);
        mirt__text_add_bytes(&inner, i ? "," : "{", 1);
        mirt__st_add_pair(&inner, content->tensor[i].name, digits);
    }
    mirt__text_add(&inner, content->count ? "}" : "{}");
    if (inner.failed) text->failed = true;
    else mirt__st_add_pair(text, "mirrortrain.crc32c", inner.data);
    mirt__text_free(&inner);
}

static void mirt__st_add_tensors(mirt__text *text, const mirt__safetensors_content *content) {
    size_t offset = 0, bytes = 0;
    for (int i = 0; i < content->count; i++) {
        const mirt__safetensor *tensor = &content->tensor[i];
        mirt__text_add_bytes(text, ",", 1);
        mirt__json_write_string(text, tensor->name);
        mirt__text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", mirt__st_dtype_name(tensor->dtype));
        for (int d = 0; d < tensor->rank; d++) mirt__text_add(text, "%s%lld", d ? "," : "", (long long)tensor->dim[d]);
        mirt__st_bytes(tensor, &bytes);
        mirt__text_add(text, "],\"data_offsets\":[%zu,%zu]}", offset, offset + bytes);
        offset += bytes;
    }
}

/* Makes the length and header at the start of the file. Their size does not depend on the checksums. */
static mirt_status mirt__st_build_header(mirt__text *text, const mirt__safetensors_content *content,
                                         const mirt__st_sums *sums) {
    mirt__text_clear(text);
    mirt__text_add(text, "LLLLLLLL{\"__metadata__\":{");
    for (int i = 0; i < content->metadata_count; i++) {
        mirt__st_add_pair(text, content->metadata[2 * i], content->metadata[2 * i + 1]);
        mirt__text_add_bytes(text, ",", 1);
    }
    mirt__st_add_crcs(text, content, sums);
    mirt__text_add(text, ",\"mirrortrain.header\":\"00000000");
    size_t digits = text->size - 8;
    mirt__text_add(text, "\",\"mirrortrain.sha256\":\"%s\"}", sums->sha256);
    mirt__st_add_tensors(text, content);
    mirt__text_add(text, "}");
    while (!text->failed && text->size % 8 != 0) mirt__text_add_bytes(text, " ", 1);
    if (text->failed) return mirt_last_status();
    if (text->size - 8 > MIRT__ST_HEADER_LIMIT)
        return mirt__fail(MIRT_E_INVALID, "the header would take %zu bytes, more than the %d bytes that readers accept",
                          text->size - 8, MIRT__ST_HEADER_LIMIT);
    char crc[16];
    snprintf(crc, sizeof crc, "%08x", (unsigned)mirt__crc32c(0, text->data + 8, text->size - 8));
    memcpy(text->data + digits, crc, 8);
    for (int i = 0; i < 8; i++) text->data[i] = (char)((uint64_t)(text->size - 8) >> (8 * i) & 255u);
    return MIRT_OK;
}

/* Appends all tensors and computes their checksums. */
static mirt_status mirt__st_write_tensors(mirt__file_writer *writer, const mirt__safetensors_content *content,
                                          mirt__st_sums *sums) {
    mirt__sha256 sha;
    mirt__sha256_begin(&sha);
    for (int i = 0; i < content->count; i++) {
        const void *data = content->tensor[i].data;
        size_t bytes = 0;
        mirt__st_bytes(&content->tensor[i], &bytes);
        const mirt_status status = mirt__file_append(writer, data, bytes);
        if (status != MIRT_OK) return status;
        sums->crc[i] = mirt__crc32c(0, data, bytes);
        mirt__sha256_add(&sha, data, bytes);
    }
    mirt__sha256_end(&sha, sums->sha256);
    return MIRT_OK;
}

static mirt_status mirt__st_write_all(mirt__file_writer *writer, const mirt__safetensors_content *content,
                                      mirt__text *header, mirt__st_sums *sums) {
    mirt_status status = mirt__st_build_header(header, content, sums);
    if (status == MIRT_OK) status = mirt__file_append(writer, header->data, header->size);
    if (status == MIRT_OK) status = mirt__st_write_tensors(writer, content, sums);
    if (status == MIRT_OK) status = mirt__st_build_header(header, content, sums);
    return status == MIRT_OK ? mirt__file_patch(writer, 0, header->data, header->size) : status;
}

MIRT__LIB mirt_status mirt__safetensors_write(const char *path, const mirt__safetensors_content *content) {
    mirt__text header = {NULL, 0, 0, false};
    mirt__st_sums sums;
    mirt__file_writer writer;
    mirt_status status = mirt__st_check_content(content);
    if (status != MIRT_OK) {
        mirt__fail_at("%s", path);
        return status;
    }
    memset(sums.sha256, '0', MIRT__SHA256_HEX - 1);
    sums.sha256[MIRT__SHA256_HEX - 1] = 0;
    sums.crc = (uint32_t *)mirt__calloc((size_t)content->count, sizeof(uint32_t));
    if (!sums.crc) return MIRT_E_NOMEM;
    status = mirt__file_begin(&writer, path);
    if (status == MIRT_OK) {
        status = mirt__st_write_all(&writer, content, &header, &sums);
        if (status == MIRT_OK) status = mirt__file_commit(&writer);
        else mirt__file_abort(&writer);
    }
    mirt__text_free(&header);
    mirt__free(sums.crc);
    return status;
}
