#ifndef IMAGE_UTIL_H
#define IMAGE_UTIL_H
/* Image files for tests. Include after mirrortrain.h. */
#include <stdio.h>
#include <string.h>

#define IMAGE_MOST 8192

/* A BMP of 24 bits: pixel i of row y is 50 y + 3 i, and so on for its green and blue. */
__attribute__((unused)) static size_t image_write_bmp(unsigned char *out, int width, int height) {
    size_t row = ((size_t)width * 3 + 3) / 4 * 4, size = 54 + row * (size_t)height;
    memset(out, 0, size);
    memcpy(out, "BM", 2);
    out[2] = (unsigned char)size, out[3] = (unsigned char)(size >> 8), out[10] = 54, out[14] = 40;
    out[18] = (unsigned char)width, out[22] = (unsigned char)height, out[26] = 1, out[28] = 24;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width * 3; x++)
            out[54 + (size_t)(height - 1 - y) * row + (size_t)(x / 3 * 3 + 2 - x % 3)] = (unsigned char)(y * 50 + x);
    }
    return size;
}

__attribute__((unused)) static size_t image_unhex(const char *text, unsigned char *out) {
    size_t size = strlen(text) / 2;
    for (size_t i = 0; i < size; i++) {
        int value = 0;
        for (int k = 0; k < 2; k++) {
            char c = text[2 * i + (size_t)k];
            value = value * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
        }
        out[i] = (unsigned char)value;
    }
    return size;
}

__attribute__((unused)) static void image_write_file(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file) return;
    if (size) fwrite(data, 1, size, file);
    fclose(file);
}

static uint32_t image_crc(const unsigned char *data, size_t size) {
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static void image_put_big(unsigned char *out, uint32_t value) {
    for (int i = 0; i < 4; i++) out[i] = (unsigned char)(value >> (24 - 8 * i));
}

/* Gives the chunks of a PNG the checksums they ought to have, without which nobody looks into them. */
__attribute__((unused)) static void image_seal_png(unsigned char *file, size_t size) {
    if (size < 8 || memcmp(file, "\x89PNG\r\n\x1A\n", 8) != 0) return;
    for (size_t at = 8, length; size - at >= 12; at += 12 + length) {
        length = (size_t)file[at] << 24 | (size_t)file[at + 1] << 16 | (size_t)file[at + 2] << 8 | file[at + 3];
        if (length > size - at - 12) return;
        image_put_big(file + at + 8 + length, image_crc(file + at + 4, length + 4));
    }
}

/* Whether decoding fails with this status and a sentence that has these words. */
__attribute__((unused)) static bool image_fails(const void *bytes, size_t size, const mirt_decode_desc *desc,
                                                mirt_status status, const char *words) {
    mirt_image image;
    bool failed = mirt_decode_image(bytes, size, MIRT_RGB, desc, &image) == status &&
                  strstr(mirt_last_error(), words) != NULL && !image.pixels;
    mirt_image_free(&image);
    return failed;
}

#endif
