/* Pictures: decoding beside TensorFlow, resizing beside tf.image.resize, and files that are damaged or mean harm. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/images.h"
#include "image_util.h"
#include "tap.h"

#include <sys/resource.h>
#include <unistd.h>

/* >>beside TensorFlow */

/* The largest difference between the golden's pixels and ours; 256: no image, or another size. */
static int file_difference(const golden_file *golden) {
    static unsigned char file[IMAGE_MOST], pixels[IMAGE_MOST];
    mirt_image image;
    size_t size = image_unhex(golden->file, file), count = image_unhex(golden->pixels, pixels);
    mirt_color_mode mode = golden->channels == 3 ? MIRT_RGB : golden->channels == 1 ? MIRT_GRAYSCALE : MIRT_RGBA;
    if (mirt_decode_image(file, size, mode, NULL, &image) != MIRT_OK) return 256;
    int worst =
        image.height == golden->height && image.width == golden->width && image.channels == golden->channels ? 0 : 256;
    for (size_t i = 0; worst < 256 && i < count; i++) {
        int difference = abs(image.pixels[i] - pixels[i]);
        if (difference > worst) worst = difference;
    }
    mirt_image_free(&image);
    return worst;
}

/* Two samples of one component for three of another, which libjpeg refuses, too. */
static void test_sampling(void) {
    static unsigned char file[IMAGE_MOST];
    mirt_image image;
    size_t size = image_unhex(golden_files[0].file, file), at = 2;
    while (at + 12 < size && file[at + 1] != 0xC0) at += 2 + 256u * file[at + 2] + file[at + 3];
    ok(file[at + 11] == 0x22, "the first component has 2 x 2 samples");
    for (int k = 0; k < 3; k++) {
        static const unsigned char sampling[3][2] = {{0x32, 0x22}, {0x23, 0x12}, {0x22, 0x01}};
        file[at + 11] = sampling[k][0];
        file[at + 14] = sampling[k][1];
        mirt_status status = mirt_decode_image(file, size, MIRT_RGB, NULL, &image);
        ok(status == MIRT_E_FORMAT && strstr(mirt_last_error(), "inconsistent sampling factors"),
           "samples of %02X and %02X: %s", sampling[k][0], sampling[k][1], mirt_last_error());
    }
}

/* TensorFlow's transform cuts off where others round; ours are as dark. */
static void test_darkness(void) {
    double sum = 0;
    int count = 0;
    for (int i = 0; i < MIRT__COUNT(golden_files) && strncmp(golden_files[i].name, "jpeg", 4) == 0; i++) {
        static unsigned char file[IMAGE_MOST], pixels[IMAGE_MOST];
        mirt_image image;
        size_t size = image_unhex(golden_files[i].file, file), all = image_unhex(golden_files[i].pixels, pixels);
        if (mirt_decode_image(file, size, golden_files[i].channels == 3 ? MIRT_RGB : MIRT_GRAYSCALE, NULL, &image) !=
            MIRT_OK)
            continue;
        for (size_t k = 0; k < all; k++, count++) sum += image.pixels[k] - pixels[k];
        mirt_image_free(&image);
    }
    ok(count > 0 && fabs(sum / count) < 0.1, "over %d numbers of JPEGs ours are larger by %.3f", count, sum / count);
}

static void test_files(void) {
    for (int i = 0; i < MIRT__COUNT(golden_files); i++) {
        int most = strncmp(golden_files[i].name, "jpeg", 4) == 0 ? 2 : 0, worst = file_difference(&golden_files[i]);
        ok(worst <= most, "%s: the pixels of TensorFlow, but for %d levels", golden_files[i].name, worst);
    }
}

static mirt_image resize_picture(unsigned char pixels[105]) {
    mirt_image image = {pixels, 5, 7, 3};
    for (uint32_t i = 0; i < 105; i++) pixels[i] = (unsigned char)(golden_word(9, i) >> 24);
    return image;
}

/* By the data set's own way of fitting, of which a resize is one. */
static double resize_error(const golden_resize *golden, bool bytes) {
    unsigned char pixels[105];
    float out[512];
    unsigned char rounded[512];
    mirt_image image = resize_picture(pixels);
    mirt_image_directory_desc desc;
    mirt__pixmap plan;
    size_t offset, count = (size_t)(golden->height * golden->width * 3);
    memset(&desc, 0, sizeof desc);
    desc.height = golden->height;
    desc.width = golden->width;
    desc.interpolation = golden->interpolation;
    desc.antialias = golden->antialias;
    desc.crop_to_aspect_ratio = golden->fit == GOLDEN_CROP;
    desc.pad_to_aspect_ratio = golden->fit == GOLDEN_PAD;
    desc.dtype = bytes ? MIRT_UINT8 : MIRT_FLOAT32;
    mirt__images_fit(&desc, &image, &plan, &offset);
    void *memory = malloc(mirt__pixmap_memory(&plan));
    memset(out, 0, sizeof out);
    memset(rounded, 0, sizeof rounded);
    mirt__pixmap_run(&plan, memory, bytes ? (void *)(rounded + offset) : (void *)(out + offset));
    free(memory);
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        double expected = (double)golden->pixels[i], given = bytes ? rounded[i] : (double)out[i];
        if (bytes) expected = expected < 0 ? 0 : expected > 255 ? 255 : expected;
        if (fabs(expected - given) > worst) worst = fabs(expected - given);
    }
    return worst;
}

static void test_resizes(void) {
    static const char *const fits[] = {"", ", cropped", ", padded"};
    static const char *const names[] = {"bilinear", "nearest",  "bicubic",  "area",
                                        "lanczos3", "lanczos5", "gaussian", "mitchellcubic"};
    for (int i = 0; i < MIRT__COUNT(golden_resizes); i++) {
        const golden_resize *golden = &golden_resizes[i];
        double exact = resize_error(golden, false), rounded = resize_error(golden, true);
        ok(exact <= 1e-4 && rounded <= 0.501, "%s%s%s to %d x %d as tf.image.resize: within %.1e, as bytes within %.2f",
           names[golden->interpolation], golden->antialias ? " with antialias" : "", fits[golden->fit], golden->height,
           golden->width, exact, rounded);
    }
}

/* The layer of the same kinds, saved and loaded too, as it is there and with the crop of Keras's smart_resize. */
static void test_layer(void) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "cpu:0";
    desc.silent = true;
    mirt_strategy *strategy = mirt_strategy_create(&desc);
    char path[600];
    double worst = 0;
    int cases = 0;
    snprintf(path, sizeof path, "%s/mirt_resizing_%ld.safetensors", tap_tmpdir(), (long)getpid());
    for (int i = 0; i < MIRT__COUNT(golden_resizes); i++) {
        const golden_resize *golden = &golden_resizes[i];
        if (golden->fit == GOLDEN_PAD || golden->interpolation == MIRT_AREA) continue;
        unsigned char pixels[105];
        float out[2][512];
        mirt_augmentation resize;
        resize_picture(pixels);
        memset(&resize, 0, sizeof resize);
        resize.height = golden->height;
        resize.width = golden->width;
        resize.interpolation = golden->interpolation;
        resize.antialias = golden->antialias;
        resize.crop_to_aspect_ratio = golden->fit == GOLDEN_CROP;
        mirt_model *model = mirt_model_create(strategy, NULL);
        mirt_model_output(model, mirt_resizing(mirt_input(model, MIRT_SHAPE(7, 5, 3)), &resize));
        mirt_array x = mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(1, 7, 5, 3));
        bool good = mirt_compile(model, NULL) == MIRT_OK && mirt_predict_arrays(model, x, out[0], 512) == MIRT_OK &&
                    mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK;
        mirt_model *loaded = good ? mirt_load(strategy, path) : NULL;
        good = loaded && mirt_predict_arrays(loaded, x, out[1], 512) == MIRT_OK;
        const int count = golden->height * golden->width * 3;
        good = good && memcmp(out[0], out[1], (size_t)count * sizeof(float)) == 0;
        if (!good) printf("# %d: %s\n", i, mirt_last_error());
        worst = good ? worst : 256;
        for (int k = 0; k < count; k++) worst = fmax(worst, fabs((double)golden->pixels[k] - (double)out[0][k]));
        mirt_model_destroy(loaded);
        mirt_model_destroy(model);
        cases++;
    }
    unlink(path);
    mirt_strategy_destroy(strategy);
    ok(worst <= 1.5e-4 && cases > 12, "the layer, %d times: within %.1e of numbers that have four decimals", cases,
       worst);
}

/* All ways beside the obvious sum in double precision. */
static void test_resize_sizes(void) {
    static const int sizes[] = {1, 2, 3, 7, 16, 33};
    int wrong = 0, cases = 0;
    for (int channels = 1; channels <= 4; channels++) {
        for (int k = 0; k < 36 * 8 * 2; k++) {
            static unsigned char pixels[40 * 40 * 4];
            static float out[33 * 33 * 4], plain[33 * 33];
            mirt_image image = {pixels, sizes[k % 6], 1 + k % 11, channels}, gray = {pixels, 0, 0, 1};
            int height = sizes[k / 6 % 6], width = 1 + k % 7;
            mirt_interpolation kind = (mirt_interpolation)(k / 36 % 8);
            for (int i = 0; i < image.width * image.height * channels; i++)
                pixels[i] = (unsigned char)(golden_word(5, (uint32_t)i) >> 24);
            if (mirt_resize_image(&image, height, width, kind, k >= 288, out) != MIRT_OK) wrong++;
            /* One channel alone is the same numbers. */
            static unsigned char one[40 * 40];
            for (int c = 0; c < channels; c++) {
                for (int i = 0; i < image.width * image.height; i++) one[i] = pixels[i * channels + c];
                gray.pixels = one, gray.width = image.width, gray.height = image.height;
                if (mirt_resize_image(&gray, height, width, kind, k >= 288, plain) != MIRT_OK) wrong++;
                for (int i = 0; i < height * width; i++) wrong += fabsf(plain[i] - out[i * channels + c]) > 1e-4f;
            }
            cases++;
        }
    }
    ok(wrong == 0, "in %d resizes channels do not depend on each other", cases);
    unsigned char flat[12 * 3];
    float out[20 * 30 * 3];
    memset(flat, 200, sizeof flat);
    mirt_image image = {flat, 4, 3, 3};
    for (int k = 0; k < 16; k++) {
        mirt_resize_image(&image, 20, 30, (mirt_interpolation)(k % 8), k >= 8, out);
        for (int i = 0; i < 20 * 30 * 3; i++) wrong += fabsf(out[i] - 200) > 1e-3f;
    }
    ok(wrong == 0, "one color stays that color");
    ok(mirt_resize_image(&image, 0, 5, MIRT_BILINEAR, false, out) == MIRT_E_INVALID &&
           mirt_resize_image(&image, 5, 5, (mirt_interpolation)8, false, out) == MIRT_E_INVALID &&
           mirt_resize_image(NULL, 5, 5, MIRT_BILINEAR, false, out) == MIRT_E_INVALID &&
           mirt_resize_image(&image, 5, 5, MIRT_BILINEAR, false, NULL) == MIRT_E_INVALID,
       "sizes and kinds are checked");
}

/* >>options */

static int own_decoder(const unsigned char *bytes, size_t size, mirt_image *out, void *user) {
    (*(int *)user)++;
    if (size < 4 || memcmp(bytes, "MINE", 4) != 0) return MIRT_OTHER_DECODER;
    if (size == 5) return 7;
    if (size == 6) return 0;
    if (mirt_image_create(out, 2, 1, 1) != MIRT_OK) return 1;
    out->pixels[0] = 10;
    out->pixels[1] = 20;
    return 0;
}

static void test_decoder(void) {
    static unsigned char file[IMAGE_MOST];
    static const unsigned char gray[6] = {10, 10, 10, 20, 20, 20};
    mirt_decode_desc desc;
    mirt_image image;
    int calls = 0;
    memset(&desc, 0, sizeof desc);
    desc.decoder = own_decoder;
    desc.decoder_user = &calls;
    ok(mirt_decode_image("MINE", 4, MIRT_RGB, &desc, &image) == MIRT_OK && image.width == 2 && image.channels == 3 &&
           memcmp(image.pixels, gray, 6) == 0,
       "a decoder of the caller's, its gray made RGB");
    mirt_image_free(&image);
    ok(image_fails("MINE!", 5, &desc, MIRT_E_CALLBACK, "returned 7"), "its error: %s", mirt_last_error());
    ok(image_fails("MINE!!", 6, &desc, MIRT_E_CALLBACK, "returned an invalid image"), "success without an image: %s",
       mirt_last_error());
    size_t size = image_write_bmp(file, 5, 4);
    ok(mirt_decode_image(file, size, MIRT_RGB, &desc, &image) == MIRT_OK && image.width == 5 && calls == 4,
       "what it leaves is for the library");
    mirt_image_free(&image);
    desc.decoder = NULL;
    desc.max_side = 4;
    ok(image_fails(file, size, &desc, MIRT_E_FORMAT, "5 x 4 pixels: a side is longer than 4"),
       "a limit of the side: %s", mirt_last_error());
    desc.max_side = 5, desc.max_pixels = 19;
    ok(image_fails(file, size, &desc, MIRT_E_FORMAT, "more than 19"), "of pixels: %s", mirt_last_error());
    desc.max_pixels = 20, desc.max_bytes = (int64_t)size - 1;
    ok(image_fails(file, size, &desc, MIRT_E_FORMAT, "max_bytes"), "of bytes: %s", mirt_last_error());
    desc.max_bytes = (int64_t)size;
    ok(mirt_decode_image(file, size, MIRT_RGB, &desc, &image) == MIRT_OK, "and just within all three");
    mirt_image_free(&image);
    desc.max_side = -1;
    ok(image_fails(file, size, &desc, MIRT_E_INVALID, "negative"), "%s", mirt_last_error());
    ok(mirt_decode_image(file, size, (mirt_color_mode)3, NULL, &image) == MIRT_E_INVALID &&
           mirt_decode_image(NULL, 1, MIRT_RGB, NULL, &image) == MIRT_E_INVALID &&
           mirt_decode_image(NULL, 0, MIRT_RGB, NULL, &image) == MIRT_E_FORMAT &&
           mirt_decode_image(file, size, MIRT_RGB, NULL, NULL) == MIRT_E_INVALID,
       "arguments are checked");
    ok(mirt_image_create(&image, 0, 1, 1) == MIRT_E_INVALID && mirt_image_create(&image, 1, 1, 5) == MIRT_E_INVALID &&
           !image.pixels,
       "sizes of images, too");
    mirt_image_free(NULL);
}

/* What a decoder of the caller makes of "MADE" and four bytes: an image of 2 x 1 pixels and of as many channels as the
   last byte says. The other bytes are the width, height and channels that it reports. */
static int made_by_decoder(const unsigned char *bytes, size_t size, mirt_image *out, void *user) {
    (void)user;
    if (size != 8 || mirt_image_create(out, 2, 1, bytes[7]) != MIRT_OK) return 1;
    for (int i = 0; i < 2 * bytes[7]; i++) out->pixels[i] = (unsigned char)(40 * i + 20);
    out->width = bytes[4];
    out->height = bytes[5];
    out->channels = (signed char)bytes[6];
    return 0;
}

/* Gray is repeated, colors are weighed as libpng does, alpha is kept, dropped or full. */
static void test_channels(void) {
    static const unsigned char want[4][3][8] = {
        {{20, 20, 20, 60, 60, 60}, {20, 60}, {20, 20, 20, 255, 60, 60, 60, 255}},
        {{20, 20, 20, 100, 100, 100}, {20, 100}, {20, 20, 20, 60, 100, 100, 100, 140}},
        {{20, 60, 100, 140, 180, 220}, {52, 172}, {20, 60, 100, 255, 140, 180, 220, 255}},
        {{20, 60, 100, 180, 220, 4}, {52, 183}, {20, 60, 100, 140, 180, 220, 4, 44}},
    };
    static const unsigned char bad[][4] = {{0, 1, 1, 1}, {2, 0, 1, 1}, {2, 1, 0, 1}, {2, 1, 5, 1}};
    static const int channels[3] = {3, 1, 4};
    unsigned char file[9] = "MADE";
    mirt_decode_desc desc;
    mirt_image image;
    memset(&desc, 0, sizeof desc);
    desc.decoder = made_by_decoder;
    file[4] = 2, file[5] = 1;
    for (int from = 1; from <= 4; from++) {
        file[6] = file[7] = (unsigned char)from;
        for (int mode = MIRT_RGB; mode <= MIRT_RGBA; mode++) {
            const bool good = mirt_decode_image(file, 8, (mirt_color_mode)mode, &desc, &image) == MIRT_OK &&
                              image.width == 2 && image.height == 1 && image.channels == channels[mode];
            ok(good && memcmp(image.pixels, want[from - 1][mode], 2 * (size_t)channels[mode]) == 0,
               "%d channels become %d: %d %d", from, channels[mode], good ? image.pixels[0] : -1,
               good ? image.pixels[image.channels] : -1);
            mirt_image_free(&image);
        }
    }
    for (int i = 0; i < MIRT__COUNT(bad); i++) {
        memcpy(file + 4, bad[i], 4);
        ok(image_fails(file, 8, &desc, MIRT_E_CALLBACK, "returned an invalid image"), "%s", mirt_last_error());
    }
}

/* At a part of its size: about the mean of blocks, as a JPEG's own scaling is. */
static void test_reduced(void) {
    static unsigned char file[IMAGE_MOST];
    static const int least[][4] = {{16, 16, 16, 16}, {8, 8, 8, 8}, {9, 8, 16, 16},
                                   {3, 4, 4, 4},     {1, 1, 2, 2}, {0, 8, 8, 8}};
    mirt_decode_desc desc;
    mirt_image whole, image;
    memset(&desc, 0, sizeof desc);
    size_t size = image_unhex(golden_files[0].file, file);
    if (mirt_decode_image(file, size, MIRT_RGB, &desc, &whole) != MIRT_OK) return;
    for (int k = 0; k < MIRT__COUNT(least); k++) {
        double worst = 0;
        desc.least_height = least[k][0];
        desc.least_width = least[k][1];
        bool good = mirt_decode_image(file, size, MIRT_RGB, &desc, &image) == MIRT_OK && image.height == least[k][2] &&
                    image.width == least[k][3];
        for (int i = 0; good && i < image.width * image.height * 3; i++) {
            int scale = 16 / image.width, x = i / 3 % image.width * scale, y = i / 3 / image.width * scale;
            double mean = 0;
            for (int p = 0; p < scale * scale; p++)
                mean += whole.pixels[((y + p / scale) * 16 + x + p % scale) * 3 + i % 3];
            worst = fmax(worst, fabs(mean / (scale * scale) - image.pixels[i]));
        }
        ok(good && worst < 50, "at least %d x %d of 16 x 16 pixels: %d x %d, blocks' means within %.1f", least[k][0],
           least[k][1], image.height, image.width, worst);
        mirt_image_free(&image);
    }
    mirt_image_free(&whole);
}

typedef struct bit_writer {
    unsigned char *out;
    unsigned word, bits;
} bit_writer;

static void put_bits(bit_writer *w, unsigned value, unsigned count) {
    for (; count > 0; count--) {
        w->word = w->word << 1 | (value >> (count - 1) & 1);
        if (++w->bits % 8 == 0 && (*w->out++ = (unsigned char)w->word) == 0xFF) *w->out++ = 0;
    }
}

/* A block of one color, `change` more or less than the one before: from -63 to 63, with the usual codes. */
static void put_block(bit_writer *w, bool luma, int change) {
    static const struct {
        unsigned code, bits;
    } codes[2][7] = {{{0, 2}, {1, 2}, {2, 2}, {6, 3}, {14, 4}, {30, 5}, {62, 6}},
                     {{0, 2}, {2, 3}, {3, 3}, {4, 3}, {5, 3}, {6, 3}, {14, 4}}};
    unsigned size = 0;
    while ((change < 0 ? -change : change) >> size) size++;
    put_bits(w, codes[luma][size].code, codes[luma][size].bits);
    put_bits(w, (unsigned)(change < 0 ? change + (1 << size) - 1 : change), size);
    put_bits(w, luma ? 10 : 0, luma ? 4 : 2);
}

/* A row of blocks after the header of the first file: wider than what is converted at once. The four channels of RGBA
   are another way. */
static void test_wide(void) {
    static unsigned char file[IMAGE_MOST];
    size_t at = 2;
    image_unhex(golden_files[0].file, file);
    while (file[at] != 0xFF || file[at + 1] != 0xC0) at++;
    for (int width = 190; width <= 208; width += 9) {
        mirt_image rgb, rgba;
        size_t scan = at;
        file[at + 7] = 0, file[at + 8] = (unsigned char)width;
        while (file[scan] != 0xFF || file[scan + 1] != 0xDA) scan++;
        bit_writer w = {file + scan + 2 + file[scan + 3], 0, 0};
        for (int i = 0; i < 13; i++) {
            for (int k = 0; k < 6; k++) put_block(&w, k < 4, (int)(golden_word(6, (uint32_t)(i * 6 + k)) % 127) - 63);
        }
        put_bits(&w, 127, 7);
        w.out[0] = 0xFF, w.out[1] = 0xD9;
        const size_t size = (size_t)(w.out - file) + 2;
        bool good = mirt_decode_image(file, size, MIRT_RGB, NULL, &rgb) == MIRT_OK;
        good = mirt_decode_image(file, size, MIRT_RGBA, NULL, &rgba) == MIRT_OK && good && rgb.width == width &&
               rgb.height == 16;
        int wrong = 0, colors = 0;
        for (int i = 0; good && i < width * 16; i++) {
            wrong += memcmp(rgb.pixels + 3 * i, rgba.pixels + 4 * i, 3) != 0 || rgba.pixels[4 * i + 3] != 255;
            colors += i > 0 && memcmp(rgb.pixels + 3 * i, rgb.pixels + 3 * i - 3, 3) != 0;
        }
        ok(good && wrong == 0 && colors > 100, "a JPEG %d pixels wide: the same as RGB and as RGBA%s", width,
           good ? "" : mirt_last_error());
        mirt_image_free(&rgb);
        mirt_image_free(&rgba);
    }
}

static void test_paths(void) {
    static unsigned char file[IMAGE_MOST];
    char path[600];
    mirt_image image;
    size_t size = image_write_bmp(file, 3, 3);
    snprintf(path, sizeof path, "%s/mirt images %ld \xC3\xA9.jpg", tap_tmpdir(), (long)getpid());
    image_write_file(path, file, size);
    ok(mirt_read_image(path, MIRT_RGB, NULL, &image) == MIRT_OK && image.width == 3,
       "a BMP that calls itself .jpg, with a space and an accent");
    mirt_image_free(&image);
    image_write_file(path, file, 0);
    ok(mirt_read_image(path, MIRT_RGB, NULL, &image) == MIRT_E_FORMAT && strstr(mirt_last_error(), path) &&
           strstr(mirt_last_error(), "empty"),
       "%s", mirt_last_error());
    image_write_file(path, "hello", 5);
    ok(mirt_read_image(path, MIRT_RGB, NULL, &image) == MIRT_E_FORMAT &&
           strstr(mirt_last_error(), "not a JPEG, PNG, BMP or GIF: it begins with 68 65 6C 6C"),
       "%s", mirt_last_error());
    unlink(path);
    ok(mirt_read_image(path, MIRT_RGB, NULL, &image) == MIRT_E_NOT_FOUND && !image.pixels, "%s", mirt_last_error());
    ok(mirt_read_image(tap_tmpdir(), MIRT_RGB, NULL, &image) == MIRT_E_IO, "%s", mirt_last_error());
}

/* >>damage: every length, every byte changed: an image or a reason, at once */

static void test_damage(void) {
    static unsigned char file[IMAGE_MOST], changed[IMAGE_MOST];
    for (int i = 0; i < MIRT__COUNT(golden_files); i++) {
        size_t size = image_unhex(golden_files[i].file, file);
        int unsaid = 0, whole = 0, broken = 0;
        mirt_image image;
        for (size_t length = 0; length < size; length++) {
            unsigned char *exact = (unsigned char *)malloc(length + 1); /* so that a read beyond it is seen */
            memcpy(exact, file, length);
            if (mirt_decode_image(exact, length, MIRT_RGB, NULL, &image) == MIRT_OK) whole++;
            else unsaid += strncmp(mirt_last_error(), "the image: ", 11) != 0;
            mirt_image_free(&image);
            free(exact);
        }
        for (size_t at = 0; at < size; at++) {
            static const unsigned char changes[] = {0x01, 0x80, 0xFF, 0x10};
            for (int k = 0; k < MIRT__COUNT(changes); k++) {
                memcpy(changed, file, size);
                changed[at] ^= changes[k];
                if (k % 2) image_seal_png(changed, size); /* otherwise its checksum is wrong */
                if (mirt_decode_image(changed, size, MIRT_RGB, NULL, &image) != MIRT_OK) broken++;
                mirt_image_free(&image);
            }
        }
        /* What follows the pixels is not missed: the end of a GIF, the rest of its frames, the padding of a BMP. */
        ok(unsaid == 0 && (whole <= 8 || strncmp(golden_files[i].name, "gif", 3) == 0) && broken > 0,
           "%s: of %d lengths %d suffice; of %d changes %d are refused", golden_files[i].name, (int)size, whole,
           (int)size * 4, broken);
    }
}

/* >>PNGs made here */

static size_t png_chunk(unsigned char *out, const char *type, const unsigned char *data, size_t size) {
    image_put_big(out, (uint32_t)size);
    memcpy(out + 4, type, 4);
    if (size) memcpy(out + 8, data, size);
    image_put_big(out + 8 + size, image_crc(out + 4, size + 4));
    return size + 12;
}

static size_t png_begin(unsigned char *out, uint32_t width, uint32_t height, int depth, int type) {
    unsigned char header[13] = {0};
    memcpy(out, "\x89PNG\r\n\x1A\n", 8);
    image_put_big(header, width);
    image_put_big(header + 4, height);
    header[8] = (unsigned char)depth;
    header[9] = (unsigned char)type;
    return 8 + png_chunk(out + 8, "IHDR", header, 13);
}

/* What tf.io.decode_png says of wrong checksums: an error, but for what is not needed. */
static void test_checksums(void) {
    static unsigned char file[1024];
    static const unsigned char pixels[25] = {0x78, 0x01, 1, 14, 0, 0xF1, 0xFF, 0,  1,    2,    3,    4,   5,
                                             6,    0,    7, 8,  9, 10,   11,   12, 0x01, 0x8F, 0x00, 0x4F};
    const char *const chunks[] = {"IHDR", "IDAT", "IEND", "tEXt"};
    mirt_image image;
    size_t at[5];
    for (int k = 0; k < 5; k++) {
        at[0] = 8;
        at[3] = png_begin(file, 2, 2, 8, 2);
        at[1] = at[3] + png_chunk(file + at[3], "tEXt", (const unsigned char *)"a\0b", 3);
        at[2] = at[1] + png_chunk(file + at[1], "IDAT", pixels, sizeof pixels);
        at[4] = at[2] + png_chunk(file + at[2], "IEND", NULL, 0);
        static const size_t length[4] = {13, sizeof pixels, 0, 3};
        if (k < 4) file[at[k] + 8 + length[k]] ^= 1;
        const mirt_status status = mirt_decode_image(file, at[4], MIRT_RGB, NULL, &image);
        if (k < 3)
            ok(status == MIRT_E_FORMAT && strstr(mirt_last_error(), "checksum") && strstr(mirt_last_error(), chunks[k]),
               "a wrong checksum: %s", mirt_last_error());
        else ok(status == MIRT_OK && image.pixels[11] == 12, "%s is no error", k == 3 ? "that of a text" : "none");
        mirt_image_free(&image);
    }
}

/* Bytes that are no letters of a terminal's. */
static bool has_raw_bytes(const char *text) {
    for (; *text; text++) {
        if (*text < 32 || *text > 126) return true;
    }
    return false;
}

enum { LONG_CHUNKS = 5 };

/* A PNG whose chunk of this number claims another length. stb_image continues after such a chunk at the next multiple
   of 128 bytes, or at the end of the file, and takes what is there for a chunk: here one whose name is a terminal's
   command. */
static size_t png_long_chunk(int number, unsigned char *out) {
    static const struct {
        const char *type;
        uint32_t length;
    } claims[LONG_CHUNKS] = {
        {"teXt", 0x80000000u}, {"teXt", 0xFFFFFFFFu}, {"teXt", 0x7FFFFFFFu}, {"IDAT", 0x80000001u}, {"teXt", 1000}};
    const size_t at = png_begin(out, 2, 2, 8, 2);
    memset(out + at, 0, 256);
    image_put_big(out + at, claims[number].length);
    memcpy(out + at + 4, claims[number].type, 4);
    for (size_t k = 0; k < 2; k++) memcpy(out + 136 + 64 * k, "\x1b]0;", 4); /* after a checksum and a length */
    return 256;
}

/* What stb_image would take for an unknown chunk is found before: it reports one through memory that threads share. */
static void test_chunk_lengths(void) {
    static unsigned char file[1024];
    static const unsigned char pixels[25] = {0x78, 0x01, 1, 14, 0, 0xF1, 0xFF, 0,  1,    2,    3,    4,   5,
                                             6,    0,    7, 8,  9, 10,   11,   12, 0x01, 0x8F, 0x00, 0x4F};
    static const char *const says[LONG_CHUNKS] = {
        "a PNG whose chunk at byte 33 claims 2147483648 bytes", "at byte 33 claims 4294967295 bytes",
        "its 256 bytes end in the chunk at byte 33", "at byte 33 claims 2147483649 bytes",
        "its 256 bytes end in the chunk at byte 33"};
    for (int k = 0; k < LONG_CHUNKS; k++) {
        const size_t size = png_long_chunk(k, file);
        const bool fails = image_fails(file, size, NULL, MIRT_E_FORMAT, says[k]);
        ok(fails && !has_raw_bytes(mirt_last_error()), "%s",
           has_raw_bytes(mirt_last_error()) ? "raw bytes of the file" : mirt_last_error());
    }
    size_t size = png_begin(file, 2, 2, 8, 2);
    image_put_big(file + 8, 0x8000000Du);
    ok(image_fails(file, size, NULL, MIRT_E_FORMAT, "at byte 8 claims 2147483661 bytes"), "%s", mirt_last_error());
    image_put_big(file + 8, 13);
    size += png_chunk(file + size, "IDAT", pixels, sizeof pixels);
    png_chunk(file + size, "IEND", NULL, 0);
    for (size_t more = 0; more < 12; more++)
        ok(image_fails(file, size + more, NULL, MIRT_E_FORMAT, "bytes end before its chunk IEND"), "%s",
           mirt_last_error());
    mirt_image image;
    const bool whole = mirt_decode_image(file, size + 12, MIRT_RGB, NULL, &image) == MIRT_OK && image.pixels[11] == 12;
    ok(whole, "with IEND it decodes: %s", whole ? "decoded" : mirt_last_error());
    mirt_image_free(&image);
    mirt_decode_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.max_bytes = INT64_MAX; /* the file is refused before any of these bytes is read */
    ok(image_fails(file, (size_t)INT32_MAX + 1, &desc, MIRT_E_FORMAT, "a PNG of 2147483648 bytes"), "%s",
       mirt_last_error());
}

/* The checksum of the pixels themselves, after them in IDAT. If it is wrong in a separate chunk, libpng only warns. */
static void test_pixel_checksum(void) {
    static unsigned char file[1024];
    static const struct {
        const char *name;
        size_t length; /* of IDAT */
        int first, wrong; /* bytes in a first chunk; the byte that is changed, or 0 */
        bool good;
    } cases[] = {{"right", 25, 0, 0, true},
                 {"right, with more bytes", 28, 0, 0, true},
                 {"right, in two chunks", 25, 23, 0, true},
                 {"wrong at its beginning", 25, 0, 21, false},
                 {"wrong at its end", 25, 0, 24, false},
                 {"wrong, with more bytes", 28, 0, 24, false},
                 {"wrong, in a chunk of its own", 25, 21, 24, false},
                 {"of other pixels", 25, 0, 9, false},
                 {"short of a byte", 24, 0, 0, false},
                 {"not there", 21, 0, 0, false}};
    for (int k = 0; k < MIRT__COUNT(cases); k++) {
        unsigned char pixels[28] = {0x78, 0x01, 1, 14, 0,  0xF1, 0xFF, 0,    1,    2,    3,    4, 5, 6,
                                    0,    7,    8, 9,  10, 11,   12,   0x01, 0x8F, 0x00, 0x4F, 1, 2, 3};
        mirt_image image;
        size_t size = png_begin(file, 2, 2, 8, 2);
        if (cases[k].wrong) pixels[cases[k].wrong] ^= 1;
        if (cases[k].first) size += png_chunk(file + size, "IDAT", pixels, (size_t)cases[k].first);
        size += png_chunk(file + size, "IDAT", pixels + cases[k].first, cases[k].length - (size_t)cases[k].first);
        size += png_chunk(file + size, "IEND", NULL, 0);
        const mirt_status status = mirt_decode_image(file, size, MIRT_RGB, NULL, &image);
        ok(status == (cases[k].good ? MIRT_OK : MIRT_E_FORMAT) &&
               (status == MIRT_OK || strstr(mirt_last_error(), "the checksum of its pixels")),
           "a checksum of pixels %s: %s", cases[k].name, status == MIRT_OK ? "decoded" : mirt_last_error());
        mirt_image_free(&image);
    }
}

/* >>bombs: refused within a second and 200 MB */

/* Deflated zeros: blocks of fixed codes that repeat the byte before 258 times, `runs` of them. */
static size_t deflate_zeros(unsigned char *out, size_t runs) {
    size_t bits = 0, bytes = runs * 13 / 8 + 64;
    memset(out, 0, bytes);
    out[0] = 0x78, out[1] = 0x01;
    bits = 16;
#define PUT(value, count) \
    for (int b_ = 0; b_ < (count); b_++, bits++) \
    out[bits / 8] |= (unsigned char)((((unsigned)(value) >> b_) & 1u) << (bits % 8))
    PUT(1, 1);
    PUT(1, 2);
    PUT(0x0C, 8); /* the byte 0: code 00110000, which is the same backwards but for the order of bits */
    for (size_t i = 0; i < runs; i++) {
        PUT(0xA3, 8); /* length 258: code 11000101 from its most significant bit */
        PUT(0, 5);    /* distance 1 */
    }
    PUT(0, 7);
#undef PUT
    bytes = (bits + 7) / 8;
    image_put_big(out + bytes, (uint32_t)((1 + 258 * runs) % 65521 << 16 | 1));
    return bytes + 4;
}

/* Of the processor, so that a busy machine makes nothing a bomb. */
static double processor_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

static void bomb(const char *name, const unsigned char *file, size_t size, const char *reason) {
    struct rusage before, after;
    mirt_image image;
    double begin = processor_seconds();
    getrusage(RUSAGE_SELF, &before);
    mirt_status status = mirt_decode_image(file, size, MIRT_RGB, NULL, &image);
    getrusage(RUSAGE_SELF, &after);
    double seconds = processor_seconds() - begin;
    mirt_image_free(&image);
    const char *other = reason ? strchr(reason, '|') : NULL; /* decoders differ */
    char first[64];
    snprintf(first, sizeof first, "%.*s", reason ? (int)(other ? other - reason : (long)strlen(reason)) : 0,
             reason ? reason : "");
    bool said = reason ? status == MIRT_E_FORMAT &&
                             (strstr(mirt_last_error(), first) || (other && strstr(mirt_last_error(), other + 1)))
                       : status == MIRT_OK;
#ifdef __SANITIZE_ADDRESS__
    const long most = 400 * 1024; /* freed blocks stay for a while */
#else
    const long most = 200 * 1024;
#endif
    ok(said && seconds < 60 && after.ru_maxrss - before.ru_maxrss < most, "%s: %.2f s, %ld MB: %s", name, seconds,
       (after.ru_maxrss - before.ru_maxrss) / 1024, status == MIRT_OK ? "decoded" : mirt_last_error());
}

static void test_bombs(void) {
    const size_t room = (size_t)24 << 20;
    static unsigned char jpeg[IMAGE_MOST];
    unsigned char *file = (unsigned char *)calloc(room, 1), *packed = (unsigned char *)calloc(room, 1);
    size_t size = png_begin(file, 65000, 65000, 8, 6);
    bomb("a PNG of 65000 x 65000 pixels", file, size + png_chunk(file + size, "IEND", NULL, 0),
         "a side is longer than 16384");
    size = png_begin(file, 8000, 8000, 8, 2);
    size_t deflated = deflate_zeros(packed, 8000 * 8000 * 3 / 258 + 100);
    size += png_chunk(file + size, "IDAT", packed, deflated);
    bomb("8000 x 8000 black pixels in a small PNG", file, size + png_chunk(file + size, "IEND", NULL, 0),
         "more than 64 times its size");
    size = png_begin(file, 100, 100, 8, 2);
    deflated = deflate_zeros(packed, (size_t)10 << 20); /* 2.7 GB */
    size += png_chunk(file + size, "IDAT", packed, deflated);
    bomb("a PNG of 100 x 100 pixels whose data unpack to 2.7 GB", file, size + png_chunk(file + size, "IEND", NULL, 0),
         "unpacks to more");
    size = png_begin(file, 4000, 4000, 8, 2);
    deflated = deflate_zeros(packed, 4000 * 12001 / 258 + 1);
    size += png_chunk(file + size, "IDAT", packed, deflated);
    bomb("4000 x 4000 black pixels", file, size + png_chunk(file + size, "IEND", NULL, 0), NULL);

    /* A GIF of a million frames: of which one is looked at. */
    static const unsigned char gif_head[] = {'G',  'I', 'F', '8', '9', 'a', 2,   0,   2, 0,
                                             0x80, 0,   0,   1,   2,   3,   200, 100, 50};
    static const unsigned char gif_frame[] = {0x2C, 0, 0, 0, 0, 2, 0, 2, 0, 0, 2, 3, 0x84, 0x52, 0x05, 0};
    memcpy(file, gif_head, sizeof gif_head);
    size = sizeof gif_head;
    for (int i = 0; i < 1000000; i++, size += sizeof gif_frame) memcpy(file + size, gif_frame, sizeof gif_frame);
    bomb("a GIF of a million frames", file, size, NULL);
    static const unsigned char wide[] = {'G', 'I',  'F', '8',  '9', 'a', 0,  0x20, 0,    0x20, 0x80, 0,
                                         0,   1,    2,   3,    200, 100, 50, 0x2C, 0,    0,    0,    0,
                                         0,   0x20, 0,   0x20, 0,   2,   3,  0x84, 0x52, 0x05, 0};
    bomb("a GIF of 8192 x 8192 pixels in 35 bytes", wide, sizeof wide, "more than 64 times its size");

    /* A JPEG that says it is larger than its data, and one of many scans. */
    size = image_unhex(golden_files[4].file, jpeg);
    size_t sof = 2;
    while (jpeg[sof] != 0xFF || jpeg[sof + 1] != 0xC2) sof++;
    memcpy(file, jpeg, size);
    file[sof + 5] = 0x1F, file[sof + 6] = 0x40, file[sof + 7] = 0x1F, file[sof + 8] = 0x40;
    bomb("a JPEG of 8000 x 8000 pixels in 900 bytes", file, size, "more than 64 times its size");
    file[sof + 5] = 0x07, file[sof + 6] = 0xD0, file[sof + 7] = 0x07, file[sof + 8] = 0xD0;
    bomb("a progressive JPEG of 2000 x 2000 pixels in 900 bytes", file, size, "damaged|truncated");
    size_t scan = sof, end = size - 2;
    while (jpeg[scan] != 0xFF || jpeg[scan + 1] != 0xDA) scan++;
    memcpy(file, jpeg, end);
    for (size = end; size + (end - scan) < (size_t)4 << 20; size += end - scan)
        memcpy(file + size, jpeg + scan, end - scan);
    bomb("a progressive JPEG of thousands of scans", file, size, "more than 100 scans");
    free(file);
    free(packed);
}

/* >>what a header tells before anything is decoded */

static void test_headers(void) {
    static unsigned char file[IMAGE_MOST];
    static const unsigned char gif[] = {'G', 'I', 'F', '8', '9',  'a',  2, 0, 2, 0,    0x80, 0,    0,    1,   2,
                                        3,   200, 100, 50,  0x21, 0xF9, 4, 0, 0, 0,    0,    0,    0x2C, 0,   0,
                                        0,   0,   2,   0,   2,    0,    0, 2, 3, 0x84, 0x52, 0x05, 0,    0x3B};
    mirt_image image;
    size_t size = image_unhex(golden_files[0].file, file), scan = 2;
    while (scan + 7 < size && (file[scan] != 0xFF || file[scan + 1] != 0xDA)) scan++;
    for (int k = 0; k < 2; k++) {
        const unsigned char tables = file[scan + 6];
        file[scan + 6] |= k ? 0x30 : 0x03;
        ok(image_fails(file, size, NULL, MIRT_E_FORMAT, "a scan without its tables"),
           "a JPEG's scan by a table that never came: %s", mirt_last_error());
        file[scan + 6] = tables;
    }
    size_t frame = 2;
    while (frame + 20 < size && (file[frame] != 0xFF || (file[frame + 1] & 0xFD) != 0xC0)) frame++;
    const unsigned char quantizer = file[frame + 12];
    file[frame + 12] = 3;
    ok(image_fails(file, size, NULL, MIRT_E_FORMAT, "without one of its quantization tables"),
       "a quantization table that never came: %s", mirt_last_error());
    file[frame + 12] = quantizer;
    memset(file, 0, sizeof file);
    memcpy(file, "\xFF\xD8\xFF\xC4", 4);
    file[4] = (2 + 17 + 300) / 256, file[5] = (2 + 17 + 300) % 256;
    file[6 + 15] = 150, file[6 + 16] = 150;
    ok(image_fails(file, 400, NULL, MIRT_E_FORMAT, "a Huffman table with 300 codes"), "%s", mirt_last_error());
    file[5] = 2 + 16;
    file[4] = 0;
    ok(image_fails(file, 400, NULL, MIRT_E_FORMAT, "a Huffman table with 150 codes"), "one that ends early: %s",
       mirt_last_error());
    file[5] = 2 + 17;
    file[6 + 15] = file[6 + 16] = 0;
    for (int k = 0; k < 2; k++) {
        file[6] = k ? 0x04 : 0x20;
        ok(image_fails(file, 400, NULL, MIRT_E_FORMAT, "a Huffman table with 0 codes"), "one of class %d, number %d",
           file[6] / 16, file[6] % 16);
    }
    size = image_write_bmp(file, 3, 2);
    ok(image_fails(file, 29, NULL, MIRT_E_FORMAT, "a truncated BMP: its 29 bytes"), "%s", mirt_last_error());
    file[21] = 0x80;
    ok(image_fails(file, size, NULL, MIRT_E_FORMAT, "a BMP of width -2147483645"), "%s", mirt_last_error());
    image_write_bmp(file, 3, 2); /* the header of OS/2 has sizes of two bytes */
    file[10] = 26, file[14] = 12;
    memcpy(file + 20, "\2\0\1\0\30", 6);
    memmove(file + 26, file + 54, size - 54);
    bool old = mirt_decode_image(file, size - 28, MIRT_RGB, NULL, &image) == MIRT_OK && image.width == 3 &&
               image.height == 2;
    ok(old && image.pixels[0] == 0 && image.pixels[8] == 8 && image.pixels[9] == 50, "a BMP with an old header: %s",
       old ? "decoded" : mirt_last_error());
    mirt_image_free(&image);
    ok(image_fails(gif, 12, NULL, MIRT_E_FORMAT, "a truncated GIF: its 12 bytes"), "%s", mirt_last_error());
    size = png_begin(file, 1, 1, 8, 0);
    size += png_chunk(file + size, "ABCD", (const unsigned char *)"x", 1);
    size += png_chunk(file + size, "IEND", NULL, 0);
    ok(image_fails(file, size, NULL, MIRT_E_FORMAT, "an unknown chunk at byte 33"), "%s", mirt_last_error());
    memcpy(file, gif, sizeof gif);
    for (int clear = 0; clear < 2; clear++) {
        file[22] = (unsigned char)clear; /* color 0, (1, 2, 3), is one to see through */
        bool good = mirt_decode_image(file, sizeof gif, MIRT_RGB, NULL, &image) == MIRT_OK && image.width == 2;
        ok(good && image.pixels[0] == (clear ? 0 : 1) && image.pixels[2] == (clear ? 0 : 3),
           "%s pixels of a GIF are %s", clear ? "transparent" : "drawn", clear ? "black" : "as drawn");
        mirt_image_free(&image);
    }
}

/* What fuzz_image starts from. */
static int write_seeds(const char *directory) {
    static unsigned char file[IMAGE_MOST + 2];
    for (int i = 0; i < MIRT__COUNT(golden_files); i++) {
        char path[1024];
        file[0] = (unsigned char)(i * 37);
        file[1] = (unsigned char)(i * 11);
        snprintf(path, sizeof path, "%s/image_%d", directory, i);
        image_write_file(path, file, image_unhex(golden_files[i].file, file + 2) + 2);
    }
    memset(file, 0, 2);
    for (int i = 0; i < LONG_CHUNKS; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/png_long_chunk_%d", directory, i);
        image_write_file(path, file, png_long_chunk(i, file + 2) + 2);
    }
    return 0;
}

int main(int argc, char **argv) {
    mirt_decode_desc desc;
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) return write_seeds(argv[2]);
    memset(&desc, 0, sizeof desc);
    test_resizes();
    test_layer();
    test_resize_sizes();
    if (mirt__decoder_missing(&desc)) {
        skip("%s", mirt_last_error());
        return done_testing();
    }
    test_files();
    test_sampling();
    test_darkness();
    test_decoder();
    test_channels();
    test_reduced();
    test_paths();
    test_wide();
    test_damage();
    test_checksums();
    test_chunk_lengths();
    test_pixel_checksum();
    test_bombs();
    test_headers();
    return done_testing();
}
