/* PNG: images and sheets of images, read by the rules of the format. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "augment_util.h"

#include <unistd.h>

static char path[512];

static uint32_t png_crc(const unsigned char *at, size_t size) {
    uint32_t crc = 0xffffffffu;
    for (; size; size--) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

static uint32_t png_word(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The pixels of a PNG of stored blocks, and its size; NULL when something is wrong with it. */
static unsigned char *png_read(uint32_t *width, uint32_t *height, int channels) {
    static const unsigned char colors[5] = {0, 0, 4, 2, 6};
    unsigned char *file = NULL, *at, *out = NULL;
    size_t size = 0, done = 0;
    uint32_t a = 1, b = 0;
    if (mirt__file_read(path, 1 << 28, &file, &size) != MIRT_OK || size < 57 ||
        memcmp(file, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) != 0)
        return NULL;
    *width = png_word(file + 16);
    *height = png_word(file + 20);
    const size_t line = 1 + (size_t)*width * (size_t)channels, raw = line * *height;
    bool good = file[24] == 8 && file[25] == colors[channels] && !file[26] && !file[27] && !file[28] &&
                png_word(file + 29) == png_crc(file + 12, 17) && memcmp(file + 37, "IDAT", 4) == 0 &&
                png_word(file + 33) + 57 == size && memcmp(file + size - 12, "\0\0\0\0IEND\xae\x42\x60\x82", 12) == 0 &&
                png_word(file + size - 16) == png_crc(file + 37, size - 12 - 4 - 37) &&
                (file[41] * 256 + file[42]) % 31 == 0 && (file[41] & 15) == 8;
    unsigned char *data = (unsigned char *)malloc(raw);
    for (at = file + 43; good && done < raw;) {
        const unsigned length = at[1] | (unsigned)at[2] << 8;
        good = length == (~(at[3] | (unsigned)at[4] << 8) & 65535u) && done + length <= raw &&
               (at[0] == 1) == (done + length == raw);
        if (good) memcpy(data + done, at + 5, length);
        at += 5 + length;
        done += length;
    }
    for (size_t i = 0; good && i < raw; i++) {
        a = (a + data[i]) % 65521;
        b = (b + a) % 65521;
    }
    good = good && png_word(at) == (b << 16 | a) && at + 4 == file + size - 16;
    for (uint32_t y = 0; good && y < *height; y++) {
        good = data[y * line] == 0;
        memmove(data + y * (line - 1), data + y * line + 1, line - 1);
    }
    if (good) out = data;
    else free(data);
    mirt__aligned_free(file);
    return out;
}

static void test_png(void) {
    uint32_t w, h;
    for (int c = 1; c <= 4; c++) {
        unsigned char *x = (unsigned char *)malloc((size_t)(150 * 160 * c)), *y = NULL;
        for (int i = 0; i < 150 * 160 * c; i++) x[i] = (unsigned char)(golden_word(3, (uint32_t)i) >> 24);
        const bool good = mirt_write_png(path, mirt_make_array(x, MIRT_UINT8, MIRT_SHAPE(150, 160, c)), 0) == MIRT_OK &&
                          (y = png_read(&w, &h, c)) != NULL;
        ok(good && w == 160 && h == 150 && memcmp(x, y, (size_t)(150 * 160 * c)) == 0,
           "a PNG of %d channel%s is the image (%s)", c, c > 1 ? "s" : "", mirt_last_error());
        free(x);
        free(y);
    }
    static float z[30];
    for (int i = 0; i < 30; i++) z[i] = (float)(10 * i) - 10.4f;
    unsigned char *y = mirt_write_png(path, mirt_make_array(z, MIRT_FLOAT32, MIRT_SHAPE(5, 2, 3, 1)), 3) == MIRT_OK
                           ? png_read(&w, &h, 1)
                           : NULL;
    ok(y && w == 3 * 3 + 8 && h == 2 * 2 + 4 && y[0] == 0 && y[1] == 0 && y[2] == 10 && y[3] == 255 && y[7] == 50 &&
           y[17 * 6] == 170 && y[17 * 7] == 200 && y[17 * 6 + 14] == 255,
       "five images of float32 in three columns, clipped and rounded");
    free(y);
    mirt_augmentation list[3];
    const int count = mirt_parse_augmentation("flip,rotation:0.1,zoom:0.1", list, 3);
    mirt_dataset *d = mirt_repeat(mirt_augment(mirt_take(rows_as(MIRT_UINT8), 1), list, count), 12);
    y = mirt_save_grid(path, d, 3, 4) == MIRT_OK ? png_read(&w, &h, 3) : NULL;
    ok(y && w == 4 * SIDE_W + 12 && h == 3 * SIDE_H + 8, "a sheet of 3 x 4 images (%s)", mirt_last_error());
    free(y);
    mirt_dataset_destroy(d);
    d = mirt_batch(rows_as(MIRT_UINT8), 4);
    y = mirt_save_grid(path, d, 5, 3) == MIRT_OK ? png_read(&w, &h, 3) : NULL;
    ok(y && w == 3 * SIDE_W + 8 && h == 4 * SIDE_H + 12, "... of the %d there are", ROWS);
    free(y);
    mirt_dataset_destroy(d);
    ok(mirt_write_png(path, mirt_make_array(z, MIRT_FLOAT32, MIRT_SHAPE(5, 6)), 1) == MIRT_E_SHAPE, "%s",
       mirt_last_error());
    ok(mirt_write_png(path, mirt_make_array(z, MIRT_FLOAT32, MIRT_SHAPE(1, 6, 5)), 1) == MIRT_E_SHAPE, "%s",
       mirt_last_error());
    ok(mirt_write_png(path, mirt_make_array(z, MIRT_UINT8, MIRT_SHAPE(2000000000, 2000000000, 1)), 1) == MIRT_E_SHAPE,
       "%s", mirt_last_error());
    ok(mirt_write_png(path, mirt_make_array(z, MIRT_UINT8, MIRT_SHAPE(-2, -3, 1)), 1) == MIRT_E_SHAPE, "%s",
       mirt_last_error());
    ok(mirt_write_png(path, mirt_make_array(z, MIRT_INT32, MIRT_SHAPE(2, 3, 1)), 1) == MIRT_E_SHAPE, "%s",
       mirt_last_error());
    ok(mirt_write_png("/nowhere/at/all.png", mirt_make_array(z, MIRT_FLOAT32, MIRT_SHAPE(2, 3, 1)), 1) != MIRT_OK, "%s",
       mirt_last_error());
    unlink(path);
}

int main(void) {
    snprintf(path, sizeof path, "%s/mirt_png_%ld", tap_tmpdir(), (long)getpid());
    draw_rows();
    test_png();
    return done_testing();
}
