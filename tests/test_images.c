/* Pictures: decoding, resizing. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

/* A BMP of 24 bits: width, height, then rows from the bottom, blue first. */
static size_t write_bmp(unsigned char *out, int width, int height) {
    size_t row = ((size_t)width * 3 + 3) / 4 * 4, size = 54 + row * (size_t)height;
    memset(out, 0, size);
    memcpy(out, "BM", 2);
    out[2] = (unsigned char)size, out[10] = 54, out[14] = 40, out[18] = (unsigned char)width, out[22] = (unsigned char)height, out[26] = 1, out[28] = 24;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width * 3; x++) out[54 + (size_t)(height - 1 - y) * row + (size_t)x / 3 * 3 + 2 - (size_t)x % 3] = (unsigned char)(y * 50 + x);
    }
    return size;
}

int main(void) {
    unsigned char file[4096];
    mirt_image image;
    mirt_decode_desc desc;
    memset(&desc, 0, sizeof desc);
    size_t size = write_bmp(file, 5, 4);
    if (mirt__decoder_missing(&desc)) {
        skip("%s", mirt_last_error());
        return done_testing();
    }
    ok(mirt_decode_image(file, size, MIRT_RGB, NULL, &image) == MIRT_OK && image.width == 5 && image.height == 4 && image.channels == 3, "a BMP %s", mirt_last_error());
    int wrong = 0;
    for (int i = 0; i < 60; i++) wrong += image.pixels[i] != i / 15 * 50 + i % 15;
    ok(wrong == 0, "and its pixels");
    mirt_image_free(&image);
    return done_testing();
}
