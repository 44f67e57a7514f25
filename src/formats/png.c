/* Writes PNG files of single images or sheets, stored without compression (RFC 2083, 1950, 1951). */

#include "../base/digest.h"
#include "../base/file.h"
#include "png.h"

#define MIRT__PNG_GAP 4          /* pixels between the images of a sheet */
#define MIRT__PNG_BLOCK 65535u   /* bytes of a stored block, at most */
#define MIRT__PNG_MOST 0x7fffff00u /* largest number of bytes of pixels that the format allows */

static unsigned char *mirt__png_word(unsigned char *at, uint32_t word) {
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(word >> (24 - 8 * i));
    return at + 4;
}

/* Writes the checksum of a chunk, whose type is at `begin` and whose data end at `at`, after it. */
static unsigned char *mirt__png_seal(unsigned char *begin, unsigned char *at) {
    return mirt__png_word(at, mirt__crc32(0, begin, (size_t)(at - begin)));
}

/* Writes the file to `out`, from lines of `size` bytes in all that each begin with a 0 for their filter; returns its
   length. */
static size_t mirt__png_encode(const unsigned char *lines, size_t size, uint32_t width, uint32_t height, int channels,
                               unsigned char *out) {
    static const unsigned char signature[8] = {137, 'P', 'N', 'G', 13, 10, 26, 10}, colors[5] = {0, 0, 4, 2, 6};
    const size_t blocks = (size + MIRT__PNG_BLOCK - 1) / MIRT__PNG_BLOCK;
    unsigned char *at = out + sizeof signature, *begin;
    memcpy(out, signature, sizeof signature);
    begin = mirt__png_word(at, 13);
    memcpy(begin, "IHDR", 4);
    at = mirt__png_word(mirt__png_word(begin + 4, width), height);
    *at++ = 8;
    *at++ = colors[channels];
    memset(at, 0, 3);
    begin = mirt__png_word(mirt__png_seal(begin, at + 3), (uint32_t)(size + 5 * blocks + 6));
    memcpy(begin, "IDAT\x78\x01", 6);
    at = begin + 6;
    for (size_t done = 0; done < size;) {
        const size_t run = size - done < MIRT__PNG_BLOCK ? size - done : MIRT__PNG_BLOCK;
        *at++ = done + run == size;
        for (int i = 0; i < 4; i++) *at++ = (unsigned char)((i < 2 ? run : ~run) >> (8 * (i & 1)));
        memcpy(at, lines + done, run);
        at += run;
        done += run;
    }
    begin = mirt__png_word(mirt__png_seal(begin, mirt__png_word(at, mirt__adler32(lines, size))), 0);
    memcpy(begin, "IEND", 4);
    return (size_t)(mirt__png_seal(begin, begin + 4) - out);
}

static unsigned char mirt__png_pixel(const mirt_array *images, int64_t at) {
    if (images->dtype == MIRT_UINT8) return ((const unsigned char *)images->data)[at];
    const float v = ((const float *)images->data)[at];
    return (unsigned char)(v > 0 ? v < 255 ? v + 0.5f : 255 : 0);
}

/* `lines`: `height` lines of `line` bytes. */
static void mirt__png_draw(const mirt_array *images, int64_t count, const int64_t *size, int64_t columns,
                           unsigned char *lines, int64_t line) {
    const int64_t c = size[2], wide = size[1] * c;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t y = 0; y < size[0]; y++) {
            unsigned char *out = lines + (i / columns * (size[0] + MIRT__PNG_GAP) + y) * line + 1 +
                                 i % columns * (size[1] + MIRT__PNG_GAP) * c;
            for (int64_t k = 0; k < wide; k++) out[k] = mirt__png_pixel(images, (i * size[0] + y) * wide + k);
        }
    }
}

static mirt_status mirt__png_sheet(const mirt_array *images, int64_t count, const int64_t *size, int64_t columns,
                                   unsigned char **out, size_t *length) {
    const int64_t rows = (count + columns - 1) / columns;
    const int64_t height = rows * (size[0] + MIRT__PNG_GAP) - MIRT__PNG_GAP,
                  width = columns * (size[1] + MIRT__PNG_GAP) - MIRT__PNG_GAP, line = 1 + width * size[2];
    if (height > INT32_MAX || width > INT32_MAX || line > (int64_t)MIRT__PNG_MOST / height) {
        return mirt__fail(MIRT_E_SHAPE, "a PNG of %lldx%lld pixels is too large", (long long)width, (long long)height);
    }
    const size_t bytes = (size_t)(line * height), room = bytes + bytes / MIRT__PNG_BLOCK * 5 + 128;
    unsigned char *lines = (unsigned char *)mirt__aligned_alloc(bytes);
    *out = lines ? (unsigned char *)mirt__aligned_alloc(room) : NULL;
    if (*out) {
        memset(lines, 255, bytes);
        for (int64_t y = 0; y < height; y++) lines[y * line] = 0;
        mirt__png_draw(images, count, size, columns, lines, line);
        *length = mirt__png_encode(lines, bytes, (uint32_t)width, (uint32_t)height, (int)size[2], *out);
    }
    mirt__aligned_free(lines);
    return *out ? MIRT_OK : mirt_last_status();
}

MIRT__LIB mirt_status mirt__png_of(const mirt_array *images, int columns, unsigned char **out, size_t *size) {
    const mirt_shape *s = &images->shape;
    const int64_t *dim = &s->dim[s->rank == 4];
    char text[96];
    *out = NULL;
    bool good = (s->rank == 3 || s->rank == 4) && (images->dtype == MIRT_UINT8 || images->dtype == MIRT_FLOAT32) &&
                mirt__shape_count(s) > 0;
    for (int i = 0; good && i < s->rank; i++) good = s->dim[i] >= 1 && s->dim[i] <= INT32_MAX;
    if (!good || dim[2] > 4)
        return mirt__fail(MIRT_E_SHAPE,
                          "a PNG is made of (height, width, channels) or (n, height, width, channels) of uint8 or "
                          "float32, 1 to 4 channels, not %s",
                          mirt__shape_text(s, text));
    const int64_t count = s->rank == 4 ? s->dim[0] : 1;
    if (columns < 1) columns = 1;
    return mirt__png_sheet(images, count, dim, columns < count ? columns : count, out, size);
}

MIRT_API mirt_status mirt_write_png(const char *path, mirt_array images, int columns) {
    MIRT__ENTER;
    unsigned char *file;
    size_t size;
    if (!path || !images.data) return mirt__fail_missing(__func__, path ? "images" : "path");
    if (mirt__png_of(&images, columns, &file, &size) != MIRT_OK) return mirt__fail_at(__func__);
    const mirt_status status = mirt_write_file(path, file, size);
    mirt__aligned_free(file);
    return status;
}

#undef MIRT__PNG_GAP
#undef MIRT__PNG_BLOCK
#undef MIRT__PNG_MOST
