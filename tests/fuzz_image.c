/* Fuzzes image decoding and resizing. The first two bytes choose color mode, kind and size of resizing, and whether the
   file, which is the rest, is decoded at a part of its size. Start from `test_images --seeds DIRECTORY`. */
#define _POSIX_C_SOURCE 200809L
#include <stdbool.h>
static bool any_sum;
#define MIRT__TEST_SUM(wrong) ((wrong) && !any_sum)
#include "../mirrortrain.h"
#include "../src/images/decode.c"
#include "fuzz_main.h"
#include "image_util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static float out[16 * 16 * 4];
    mirt_decode_desc desc;
    mirt_image image;
    memset(&desc, 0, sizeof desc);
    if (size < 2) return 0;
    desc.max_pixels = 1 << 12; /* larger ones take longer, and nothing else */
    if (data[0] & 4) desc.least_height = desc.least_width = data[1] % 32 + 1;
    uint8_t *exact = (uint8_t *)malloc(size - 1); /* a read beyond it is seen */
    if (!exact) return 0;
    memcpy(exact, data + 2, size - 2);
    any_sum = !(data[0] & 128);
    if (any_sum) image_seal_png(exact, size - 2);
    if (mirt_decode_image(exact, size - 2, (mirt_color_mode)(data[0] % 3), &desc, &image) == MIRT_OK) {
        float sum = 0;
        int height = data[1] % 16 + 1, width = data[1] / 16 + 1;
        if (mirt_resize_image(&image, height, width, (mirt_interpolation)(data[0] / 16 % 8), data[0] & 8, out) !=
            MIRT_OK)
            __builtin_trap();
        for (int i = 0; i < height * width * image.channels; i++) sum += out[i];
        FUZZ_CHECK(sum > -1e6f && sum < 1e6f);
        uint32_t hash = 0; /* one picture in 32,749, whatever its format */
        for (int i = 0; i < image.width * image.height * image.channels; i++) hash = hash * 31 + image.pixels[i];
        FUZZ_PLANT(image.channels == 3 && hash % 32749 == 77);
    }
    mirt_image_free(&image);
    free(exact);
    return 0;
}
