/* Safetensors: right answers, hostile bytes. MIRRORTRAIN_TEST_SAFETENSORS may name a file to read, PEER_PYTHON a
   Python with numpy and safetensors to exchange files with. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "tap.h"
#include "formats_util.h"

static void test_round_trip(void) {
    mirt__safetensors_content content = sample();
    mirt__safetensors file;
    ok(mirt__safetensors_write(path, &content) == MIRT_OK, "written: %s", mirt_last_error());
    ok(mirt__safetensors_open(&file, path) == MIRT_OK && is_sample(&file), "read back: %s", mirt_last_error());
    ok(strlen(file.sha256) == 64 && (size_t)(file.data - file.owned) % 8 == 0 && file.data_size == 49,
       "checksummed, aligned");
    ok(mirt__safetensors_find(&file, "step") == &file.tensor[2] && !mirt__safetensors_find(&file, "stepp") &&
           !mirt__safetensors_metadata(&file, "none"), "found by name");
    mirt__safetensors_close(&file);

    size_t size, size2;
    unsigned char *first = slurp(&size);
    ok(mirt__safetensors_write(path, &content) == MIRT_OK, "written again: %s", mirt_last_error());
    unsigned char *second = slurp(&size2);
    ok(size == size2 && !memcmp(first, second, size), "the same bytes");
    ok(mirt__safetensors_open_memory(&file, first, size) == MIRT_OK && is_sample(&file), "read from memory");
    mirt__safetensors_close(&file);
    unsigned char *odd = (unsigned char *)malloc(size + 1);
    memcpy(odd + 1, first, size);
    ok(mirt__safetensors_open_memory(&file, odd + 1, size) == MIRT_OK && is_sample(&file), "read from an odd address");
    mirt__safetensors_close(&file);
    sample_tensor[0].rank = 9;
    ok(mirt__safetensors_write(path, &content) == MIRT_E_INVALID, "what cannot be written");
    sample_tensor[0].rank = 2;
    free(second);
    second = slurp(&size2);
    ok(size == size2 && !memcmp(first, second, size) && temporaries() == 0, "leaves the old file");
    struct stat info;
    ok(chmod(path, 0600) == 0, "made private");
    content.count = content.metadata_count = 0;
    ok(mirt__safetensors_write(path, &content) == MIRT_OK && mirt__safetensors_open(&file, path) == MIRT_OK &&
           file.count == 0,
       "no tensors, no metadata: %s", mirt_last_error());
    mirt__safetensors_close(&file);
    ok(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600, "what was private stays private");
    ok(live_blocks == 0 && open_files == 0, "nothing leaks");
    free(first);
    free(second);
    free(odd);
}

static void refuses(const mirt__safetensors_content *content, mirt_status status, const char *fragment) {
    mirt_status got = mirt__safetensors_write(path, content);
    ok(got == status && says(fragment) && says(path) && temporaries() == 0, "%s", mirt_last_error());
}

static void test_write_rejects(void) {
    mirt__safetensors_content content = sample();
    sample_tensor[2].name = "dense/kernel";
    refuses(&content, MIRT_E_INVALID, "two tensors are named \"dense/kernel\"");
    sample_tensor[2].name = "__metadata__";
    refuses(&content, MIRT_E_INVALID, "\"__metadata__\"");
    sample_tensor[2].name = "a\xff";
    refuses(&content, MIRT_E_INVALID, "\"a?\" is not valid UTF-8");
    sample_tensor[2].name = NULL;
    refuses(&content, MIRT_E_INVALID, "tensor name is NULL");
    content = sample();
    sample_tensor[0].dim[0] = INT64_MAX;
    refuses(&content, MIRT_E_INVALID, "impossible shape");
    sample_tensor[0].dim[0] = -1;
    refuses(&content, MIRT_E_INVALID, "impossible shape");
    content = sample();
    sample_tensor[0].rank = -1;
    refuses(&content, MIRT_E_INVALID, "impossible shape");
    content = sample();
    sample_tensor[0].rank = 9;
    refuses(&content, MIRT_E_INVALID, "impossible shape");
    static const char *const ugly[] = {"a", "\xff"};
    content = sample();
    content.metadata = ugly, content.metadata_count = 1;
    refuses(&content, MIRT_E_INVALID, "metadata value");

    mirt__safetensors file;
    char elsewhere[600];
    content = sample();
    snprintf(elsewhere, sizeof elsewhere, "%s/none/a.safetensors", directory);
    ok(mirt__safetensors_write(elsewhere, &content) == MIRT_E_NOT_FOUND && says(elsewhere), "%s", mirt_last_error());
    ok(mirt__safetensors_open(&file, elsewhere) == MIRT_E_NOT_FOUND && says(elsewhere), "%s", mirt_last_error());
    ok(mirt__safetensors_write(directory, &content) == MIRT_E_IO && says("not a regular file"), "%s",
       mirt_last_error());
    ok(mirt__safetensors_open(&file, directory) == MIRT_E_IO && says("is a directory"), "%s", mirt_last_error());
    ok(live_blocks == 0 && open_files == 0, "nothing leaks");
}

/* ---- hostile files ---- */

typedef struct hostile {
    const char *header; /* "@@@@@@@@" becomes the header's checksum */
    int data;           /* bytes of tensor data, 0, 1, 2, ... */
    const char *message;
} hostile;

#define T(name, rest) "{\"" name "\":{" rest "}}"
#define F32 "\"dtype\":\"F32\","
/* Checksums of the four bytes 0 1 2 3. */
#define CRC "d9331aa3"
#define SHA "054edec1d0211f624fed0cbca9d4f9400b0e491c43742af2c5b0abebf0c990d8"
#define SUMS(crc, header, sha, rest) "{\"__metadata__\":{" crc header sha "\"a\":\"b\"}," rest "}"
#define SUM_CRC "\"mirrortrain.crc32c\":\"{\\\"t\\\":\\\"" CRC "\\\"}\","
#define SUM_HEADER "\"mirrortrain.header\":\"@@@@@@@@\","
#define SUM_SHA "\"mirrortrain.sha256\":\"" SHA "\","
#define ONE "\"t\":{" F32 "\"shape\":[1],\"data_offsets\":[0,4]}"

static const hostile good_files[] = {
    {"{}", 0, "nothing at all"},
    {"{ }   \n\t\r", 0, "white space after the header"},
    {"{\"__metadata__\":{}}", 0, "empty metadata"},
    {"{" ONE "}", 4, "one tensor, no checksums"},
    {"{\"b\":{" F32 "\"shape\":[1],\"data_offsets\":[4,8]}," ONE "}", 8, "header order is not file order"},
    {T("t", "\"x\":[{}]," F32 "\"shape\":[],\"data_offsets\":[0,4]"), 4, "a scalar, and a member that is unknown here"},
    {"{\"b\":{" F32 "\"shape\":[0],\"data_offsets\":[4,4]}," ONE ",\"c\":{" F32
     "\"shape\":[0],\"data_offsets\":[0,0]}}",
     4, "empty tensors at either end"},
    {T("t", "\"dtype\":\"U8\",\"shape\":[1,1,1,2,1,1,1,1],\"data_offsets\":[0,2]"), 2, "rank 8"},
    {T("t", "\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]"), 6, "bfloat16"},
    {SUMS(SUM_CRC, SUM_HEADER, SUM_SHA, ONE), 4, "all checksums"},
};

static const hostile bad_files[] = {
    {"[]", 0, "memory: the header does not begin with '{'"},
    {"", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"{", 0, "memory: header: JSON at offset 1: expected a member's name"},
    {"{}x", 0, "JSON at offset 2: something follows"},
    {"{}{}", 0, "JSON at offset 2: something follows"},
    {"{\"\xff\":{}}", 0, "JSON at offset 2: invalid UTF-8"},
    {"{\"a\\ud800\":{}}", 0, "incomplete surrogate pair"},
    {"{\"a\\u0000\":{}}", 0, "U+0000"},
    {"{\"t\":{" F32 "\"shape\":[1],\"data_offsets\":[0,4]}," ONE "}", 4, "the name \"t\" appears twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "\"__metadata__\" appears twice"},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "\"a\" appears twice"},
    {"{\"__metadata__\":[]}", 0, "__metadata__: is an array, but must be an object"},
    {"{\"__metadata__\":null}", 0, "__metadata__: is null"},
    {"{\"__metadata__\":{\"step\":3}}", 0, "step: metadata is a number, but must be a string"},
    {"{\"__metadata__\":{\"a\":{}}}", 0, "a: metadata is an object"},
    {"{\"t\":3}", 0, "memory: t: is a number, but must be an object"},
    {"{\"t\":[]}", 0, "t: is an array"},
    {"{\"t\":null}", 0, "t: is null"},
    {T("t", ""), 0, "t: \"dtype\" is missing"},
    {T("t", "\"shape\":[1],\"data_offsets\":[0,4]"), 4, "t: \"dtype\" is missing"},
    {T("t", F32 "\"data_offsets\":[0,4]"), 4, "t: \"shape\" is missing"},
    {T("t", F32 "\"shape\":[1]"), 4, "t: \"data_offsets\" is missing"},
    {T("t", F32 F32 "\"shape\":[1],\"data_offsets\":[0,4]"), 4, "\"dtype\" appears twice"},
    {T("t", "\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "t: \"dtype\" is a number, but must be a string"},
    {T("t", "\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "t: dtype \"F33\" is unknown"},
    {T("t", "\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype \"f32\""},
    {T("t", "\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype \"\""},
    {T("t", "\"dtype\":\"a\\nb\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype \"a?b\""},
    {T("t", F32 "\"shape\":1,\"data_offsets\":[0,4]"), 4, "t: \"shape\" is a number, but must be an array"},
    {T("t", F32 "\"shape\":{},\"data_offsets\":[0,4]"), 4, "\"shape\" is an object"},
    {T("t", F32 "\"shape\":[\"1\"],\"data_offsets\":[0,4]"), 4, "t: shape[0] must be a whole number"},
    {T("t", F32 "\"shape\":[1,-1],\"data_offsets\":[0,4]"), 4, "shape[1] must be a whole number"},
    {T("t", F32 "\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, "shape[0] must be a whole number"},
    {T("t", F32 "\"shape\":[1e0],\"data_offsets\":[0,4]"), 4, "shape[0] must be a whole number"},
    {T("t", F32 "\"shape\":[null],\"data_offsets\":[0,4]"), 4, "shape[0] must be a whole number"},
    {T("t", F32 "\"shape\":[9223372036854775808],\"data_offsets\":[0,4]"), 4, "shape[0] must be a whole number"},
    {T("t", F32 "\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4, "t: shape has 9 dimensions"},
    {T("t", F32 "\"shape\":[9223372036854775807],\"data_offsets\":[0,4]"), 4,
     "t: shape (9223372036854775807) of F32 is larger"},
    {T("t", F32 "\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0,
     "shape (4294967296, 4294967296) of F32 is larger"},
    {T("t", F32 "\"shape\":[4611686018427387905],\"data_offsets\":[0,4]"), 4, "is larger than"},
    {T("t", "\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]"), 0, "is larger than"},
    {T("t", "\"dtype\":\"F64\",\"shape\":[2147483648,2147483648],\"data_offsets\":[0,8]"), 8, "is larger than"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":4"), 4, "t: \"data_offsets\" is a number"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":[4]"), 4, "t: data_offsets has 1 items"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":[]"), 4, "data_offsets has 0 items"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":[0,4,8]"), 4, "data_offsets has 3 items"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":[\"0\",4]"), 4, "data_offsets[0] must be a whole number"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":[0,4.0]"), 4, "data_offsets[1] must be a whole number"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":[-4,0]"), 4, "data_offsets[0] must be a whole number"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":[0,18446744073709551620]"), 4,
     "data_offsets[1] must be a whole number"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":[4,0]"), 4, "t: data_offsets [4, 0] end before they begin"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":[0,5]"), 4, "t: data_offsets [0, 5] go beyond the 4 bytes"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":[9223372036854775803,9223372036854775807]"), 4,
     "go beyond the 4 bytes"},
    {T("dense/kernel", F32 "\"shape\":[5,6],\"data_offsets\":[0,100]"), 100,
     "memory: dense/kernel: data_offsets [0, 100] hold 100 bytes, shape (5, 6) of F32 needs 120"},
    {T("t", F32 "\"shape\":[2],\"data_offsets\":[0,4]"), 4, "shape (2) of F32 needs 8"},
    {T("t", F32 "\"shape\":[],\"data_offsets\":[0,0]"), 0, "shape () of F32 needs 4"},
    {T("t", F32 "\"shape\":[0],\"data_offsets\":[0,4]"), 4, "shape (0) of F32 needs 0"},
    {"{}", 1, "memory: the tensors end at 0, but the file has 1 bytes"},
    {"{" ONE "}", 5, "the tensors end at 4, but the file has 5 bytes"},
    {"{" ONE "}", 3, "go beyond the 3 bytes"},
    {"{" ONE "}", 0, "go beyond the 0 bytes"},
    {T("t", F32 "\"shape\":[1],\"data_offsets\":[4,8]"), 8, "t: begins at 4, but the bytes from 0 belong to no tensor"},
    {"{\"u\":{" F32 "\"shape\":[1],\"data_offsets\":[5,9]}," ONE "}", 9, "u: begins at 5, but the bytes from 4 belong"},
    {"{\"u\":{" F32 "\"shape\":[1],\"data_offsets\":[3,7]}," ONE "}", 7,
     "u: begins at 3, but \"t\" extends to 4: they overlap"},
    {"{\"u\":{" F32 "\"shape\":[1],\"data_offsets\":[0,4]}," ONE "}", 4, "they overlap"},
    {"{\"u\":{" F32 "\"shape\":[0],\"data_offsets\":[2,2]}," ONE "}", 4,
     "u: begins at 2, but \"t\" extends to 4: they overlap"},
    {"{\"u\":{" F32 "\"shape\":[0],\"data_offsets\":[8,8]}," ONE "}", 8, "u: begins at 8, but the bytes from 4"},
    {SUMS("", SUM_HEADER, SUM_SHA, ONE), 4, "__metadata__: mirrortrain.crc32c is missing, but"},
    {SUMS(SUM_CRC, "", SUM_SHA, ONE), 4, "mirrortrain.header is missing, but"},
    {SUMS(SUM_CRC, SUM_HEADER, "", ONE), 4, "mirrortrain.sha256 is missing, but"},
    {SUMS(SUM_CRC, "\"mirrortrain.header\":\"00000000\",", SUM_SHA, ONE), 4, "header: CRC-32C is "},
    {SUMS(SUM_CRC, "\"mirrortrain.header\":\"0000000\",", SUM_SHA, ONE), 4,
     "mirrortrain.header: must be 8 hexadecimal digits"},
    {SUMS(SUM_CRC, "\"mirrortrain.header\":\"\\u0030000000\",", SUM_SHA, ONE), 4,
     "mirrortrain.header: must be 8 hexadecimal"},
    {SUMS("\"mirrortrain.crc32c\":\"{\\\"t\\\":\\\"00000000\\\"}\",", SUM_HEADER, SUM_SHA, ONE), 4,
     "memory: t: CRC-32C is " CRC ", but the file states 00000000: it is damaged"},
    {SUMS("\"mirrortrain.crc32c\":\"{\\\"t\\\":1}\",", SUM_HEADER, SUM_SHA, ONE), 4,
     "mirrortrain.crc32c: \"t\" is a number"},
    {SUMS("\"mirrortrain.crc32c\":\"{\\\"u\\\":\\\"" CRC "\\\"}\",", SUM_HEADER, SUM_SHA, ONE), 4, "\"t\" is missing"},
    {SUMS("\"mirrortrain.crc32c\":\"{}\",", SUM_HEADER, SUM_SHA, ONE), 4, "one member for each of the 1 tensors"},
    {SUMS("\"mirrortrain.crc32c\":\"[1]\",", SUM_HEADER, SUM_SHA, ONE), 4, "one member for each of the 1 tensors"},
    {SUMS("\"mirrortrain.crc32c\":\"{\",", SUM_HEADER, SUM_SHA, ONE), 4, "mirrortrain.crc32c: JSON at offset 1"},
    {SUMS(SUM_CRC, SUM_HEADER, "\"mirrortrain.sha256\":\"054edec1\",", ONE), 4, "all tensors: SHA-256 is " SHA},
};

/* The bytes of a described file; the caller frees. */
static unsigned char *build(const hostile *h, size_t *size) {
    size_t length = strlen(h->header);
    *size = 8 + length + (size_t)h->data;
    unsigned char *bytes = (unsigned char *)calloc(*size, 1);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, h->header, length);
    for (int i = 0; i < h->data; i++) bytes[8 + length + (size_t)i] = (unsigned char)i;
    const char *slot = strstr(h->header, "@@@@@@@@");
    if (slot) {
        char digits[16];
        unsigned char *at = bytes + 8 + (slot - h->header);
        memset(at, '0', 8);
        snprintf(digits, sizeof digits, "%08x", (unsigned)mirt__crc32c(0, bytes + 8, length));
        memcpy(at, digits, 8);
    }
    return bytes;
}

/* Whether a file of these bytes whose tensors stay in it is taken as `file`, or refused for the reason of the last
   error if that is NULL. */
static bool is_streamed_alike(const unsigned char *bytes, size_t size, const mirt__safetensors *file) {
    mirt__safetensors other;
    char reason[600];
    snprintf(reason, sizeof reason, "%s: %s", path, file ? "" : mirt_last_error() + strlen("memory: "));
    spill(bytes, size);
    const mirt_status status = mirt__safetensors_open_streamed(&other, path);
    if (status != MIRT_OK) return !file && status == MIRT_E_FORMAT && strcmp(mirt_last_error(), reason) == 0;
    bool same = file && other.count == file->count && !other.data;
    for (int i = 0; same && i < file->count; i++) {
        const mirt__safetensor *t = &file->tensor[i];
        unsigned char *copy = (unsigned char *)malloc(t->size + 1);
        same = !other.tensor[i].data && mirt__safetensor_copy(&other, &other.tensor[i], copy) == MIRT_OK &&
               memcmp(copy, t->data, t->size) == 0;
        free(copy);
    }
    mirt__safetensors_close(&other);
    return same;
}

static void rejected(const unsigned char *bytes, size_t size, const char *message) {
    mirt__safetensors file;
    mirt_status status = mirt__safetensors_open_memory(&file, bytes, size);
    ok(status == MIRT_E_FORMAT && says(message) && !strncmp(mirt_last_error(), "memory: ", 8) &&
           is_streamed_alike(bytes, size, NULL) && live_blocks == 0 && open_files == 0,
       "rejects: %s", status == MIRT_OK ? message : mirt_last_error());
    if (status == MIRT_OK) mirt__safetensors_close(&file);
}

static void test_hostile(void) {
    size_t size;
    mirt__safetensors file;
    for (int i = 0; i < MIRT__COUNT(good_files); i++) {
        unsigned char *bytes = build(&good_files[i], &size);
        mirt_status status = mirt__safetensors_open_memory(&file, bytes, size);
        ok(status == MIRT_OK && is_streamed_alike(bytes, size, &file), "accepts %s%s", good_files[i].message,
           status ? mirt_last_error() : "");
        mirt__safetensors_close(&file);
        free(bytes);
    }
    for (int i = 0; i < MIRT__COUNT(bad_files); i++) {
        unsigned char *bytes = build(&bad_files[i], &size);
        rejected(bytes, size, bad_files[i].message);
        free(bytes);
    }
    /* What a header alone cannot express. */
    unsigned char lengths[5][10] = {{1, 225, 245, 5, 0, 0, 0, 0, '{', '}'},
                                    {255, 255, 255, 255, 255, 255, 255, 255, '{', '}'},
                                    {3, 0, 0, 0, 0, 0, 0, 0, '{', '}'},
                                    {0, 225, 245, 5, 0, 0, 0, 0, '{', '}'},
                                    {0, 0, 0, 0, 0, 0, 0, 128, '{', '}'}};
    rejected(lengths[0], 10, "the header length 100000001 is above the limit of 100000000");
    rejected(lengths[1], 10, "the header length 18446744073709551615 is above the limit");
    rejected(lengths[2], 10, "the header length 3 goes beyond the end of the file, which has 10 bytes");
    rejected(lengths[3], 10, "the header length 100000000 goes beyond the end");
    rejected(lengths[4], 10, "is above the limit");
    for (size_t few = 0; few < 8; few++) rejected(lengths[2], few, "bytes are too few");
    rejected((const unsigned char *)"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16, "this is not a safetensors file");
    unsigned char deep[8 + 1000] = {232, 3};
    memset(deep + 8, '[', 1000);
    memcpy(deep + 8, "{\"t\":", 5);
    rejected(deep, sizeof deep, "nested more than 64 levels");
}

/* Every truncation and every flipped bit is refused, or changes nothing. */
static void test_damage(void) {
    mirt__safetensors_content content = sample();
    mirt__safetensors file;
    size_t size;
    ok(mirt__safetensors_write(path, &content) == MIRT_OK, "a sample");
    unsigned char *bytes = slurp(&size);
    int accepted = 0, different = 0, silent = 0, otherwise = 0;
    for (size_t length = 0; length < size; length++) {
        unsigned char *part = (unsigned char *)malloc(length + 1); /* so that the sanitizer sees a read past the end */
        memcpy(part, bytes, length);
        if (mirt__safetensors_open_memory(&file, part, length) == MIRT_OK) {
            accepted++;
            mirt__safetensors_close(&file);
        } else {
            silent += mirt_last_status() != MIRT_E_FORMAT || strlen(mirt_last_error()) < 20;
            otherwise += !is_streamed_alike(part, length, NULL);
        }
        free(part);
    }
    ok(size > 500 && accepted == 0 && silent == 0, "all %d truncations are refused with a reason", (int)size);
    accepted = 0;
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        if (mirt__safetensors_open_memory(&file, bytes, size) == MIRT_OK) {
            accepted++;
            different += !is_sample(&file);
            otherwise += !is_streamed_alike(bytes, size, &file);
            mirt__safetensors_close(&file);
        } else {
            silent += mirt_last_status() != MIRT_E_FORMAT || strlen(mirt_last_error()) < 20;
            otherwise += !is_streamed_alike(bytes, size, NULL);
        }
        bytes[bit / 8] ^= (unsigned char)(1u << (bit % 8));
    }
    ok(different == 0 && silent == 0, "all %d flipped bits are refused with a reason, or harmless (%d)",
       (int)(8 * size), accepted);
    ok(otherwise == 0 && open_files == 0, "and so they are in files whose tensors stay there");
    /* Without checksums a flip may go unnoticed, but must stay harmless for the program. */
    unsigned char *plain = build(&good_files[6], &size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        plain[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        if (mirt__safetensors_open_memory(&file, plain, size) == MIRT_OK) mirt__safetensors_close(&file);
        plain[bit / 8] ^= (unsigned char)(1u << (bit % 8));
    }
    ok(live_blocks == 0, "flips in a file without checksums do no harm");
    free(plain);
    free(bytes);
}

/* Bytes changed at random, checksums switched off by their absence: no crash. */
static void test_noise(void) {
    uint32_t state = 12345;
    int accepted = 0, rounds = 20000;
    for (int round = 0; round < rounds; round++) {
        size_t size;
        mirt__safetensors file;
        unsigned char *bytes = build(&good_files[round % MIRT__COUNT(good_files)], &size);
        for (int i = 0; i < 1 + round % 4; i++) {
            static const char alphabet[] = "{}[]\",:0123456789-eE.\\u t\xc3\xff";
            state = state * 1664525u + 1013904223u;
            size_t at = (state >> 8) % size;
            state = state * 1664525u + 1013904223u;
            bytes[at] = state >> 31 ? (unsigned char)(state >> 16)
                                    : (unsigned char)alphabet[(state >> 16) % (sizeof alphabet - 1)];
        }
        if (mirt__safetensors_open_memory(&file, bytes, size) == MIRT_OK) {
            accepted++;
            mirt__safetensors_close(&file);
        }
        free(bytes);
    }
    ok(live_blocks == 0 && accepted < rounds, "%d noisy files, %d accepted, no crash", rounds, accepted);
}

static void test_file_limit(void) {
    unsigned char *data;
    size_t size;
    spill("12345", 5);
    ok(mirt__file_read(path, 5, &data, &size) == MIRT_OK && size == 5 && !memcmp(data, "12345", 6),
       "as large as the limit");
    mirt__aligned_free(data);
    ok(mirt__file_read(path, 4, &data, &size) == MIRT_E_FORMAT && !data && says("larger than the limit of 4 bytes"),
       "%s", mirt_last_error());
    ok(mirt__file_read("/dev/zero", 100000, &data, &size) == MIRT_E_IO && !data && says("not a regular file"),
       "an endless file: %s", mirt_last_error());
    FILE *empty = fopen(path, "wb");
    if (empty) fclose(empty);
    ok(mirt__file_read(path, 4, &data, &size) == MIRT_OK && size == 0 && data[0] == 0, "an empty file");
    mirt__aligned_free(data);
}

/* ---- other programs' files ---- */

static void test_foreign_file(void) {
    const char *name = getenv("MIRRORTRAIN_TEST_SAFETENSORS");
    mirt__safetensors file;
    if (!name || access(name, R_OK) != 0) {
        skip("MIRRORTRAIN_TEST_SAFETENSORS names no file");
        return;
    }
    mirt_status status = mirt__safetensors_open(&file, name);
    ok(status == MIRT_OK, "%s: %s", name, status ? mirt_last_error() : "read");
    if (status != MIRT_OK) return;
    ok(file.count > 0, "%d tensors, the first %s %s %s", file.count, file.tensor[0].name,
       mirt__st_dtype_name(file.tensor[0].dtype), mirt__st_shape_text(&file.tensor[0]).text);
    mirt__safetensors_close(&file);
}

static void test_python(void) {
    static const char script[] =
        "import sys, numpy as np\n"
        "from safetensors import safe_open\n"
        "from safetensors.numpy import load_file, save_file\n"
        "path = sys.argv[1]\n"
        "a = load_file(path)\n"
        "assert list(a['dense/kernel'].ravel()) == [1.5, -2, np.float32(3e-8), 4, 5, 0] and a['dense/kernel'].shape == "
        "(2, 3)\n"
        "assert a['step'].shape == () and a['step'] == 469 and a['step'].dtype == np.int32\n"
        "assert list(a['pixels \"\\u00e4\"']) == [0, 255, 32, 48, 7] and a['empty'].shape == (0, 7)\n"
        "assert list(a['wide']) == [0.1, -1e300]\n"
        "meta = safe_open(path, 'np').metadata()\n"
        "assert meta['architecture'] == '{\"layers\":[\"Dense \\u00e4\\\\n\"]}"
        "' and len(meta['mirrortrain.sha256']) == 64\n"
        "import hashlib; raw = open(path, 'rb').read(); n = 8 + int.from_bytes(raw[:8], 'little')\n"
        "assert hashlib.sha256(raw[n:]).hexdigest() == meta['mirrortrain.sha256']\n"
        "save_file({k: v for k, v in a.items()} | {'half': np.arange(3, dtype=np.float16)}, path, {'by': 'python'})\n";
    const char *python = getenv("PEER_PYTHON");
    char command[2048], program[600];
    if (python) snprintf(command, sizeof command, "'%s' -c 'import numpy, safetensors' 2>/dev/null", python);
    if (!python || system(command) != 0) {
        skip("PEER_PYTHON is no Python with numpy and safetensors");
        return;
    }
    mirt__safetensors_content content = sample();
    mirt__safetensors file;
    ok(mirt__safetensors_write(path, &content) == MIRT_OK, "a file for Python");
    snprintf(program, sizeof program, "%s/check.py", directory);
    FILE *out = fopen(program, "w");
    if (!ok(out && fputs(script, out) >= 0 && fclose(out) == 0, "a program for Python")) return;
    snprintf(command, sizeof command, "'%s' '%s' '%s'", python, program, path);
    ok(system(command) == 0, "Python reads the same values");
    unlink(program);
    mirt_status status = mirt__safetensors_open(&file, path);
    ok(status == MIRT_OK && file.count == 6, "what Python writes is read: %s", status ? mirt_last_error() : "");
    if (status != MIRT_OK) return;
    const mirt__safetensor *k = mirt__safetensors_find(&file, "dense/kernel"),
                           *h = mirt__safetensors_find(&file, "half");
    ok(k && k->rank == 2 && k->dim[1] == 3 && !memcmp(k->data, kernel, sizeof kernel) && h &&
           h->dtype == MIRT__ST_F16 && !strcmp(mirt__safetensors_metadata(&file, "by"), "python") && !file.sha256[0],
       "with the same values");
    mirt__safetensors_close(&file);
}

int main(void) {
    if (!make_directory()) return done_testing();
    test_round_trip();
    test_write_rejects();
    test_hostile();
    test_damage();
    test_noise();
    test_file_limit();
    test_foreign_file();
    test_python();
    unlink(path);
    ok(rmdir(directory) == 0, "nothing is left in %s", directory);
    return done_testing();
}
