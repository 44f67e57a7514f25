/* A program that uses stb_image and mirrortrain, for tests/test_stb_unit.sh. Prints checksums of what each decodes.
   USER: 0 does not include stb_image, 1 includes its declarations, 2 its implementation.
   FIRST: 1 includes it before mirrortrain, 0 after.
   OURS: 0 does not decode by mirrortrain; 1 includes its decoder, src/images/decode.c, 2 all of its implementation, 3
   its declarations. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stb_user.h"

#if USER && FIRST
#if USER == 2
#define STB_IMAGE_IMPLEMENTATION
#endif
#include STB_HEADER
#endif

#if OURS == 1
#include "../src/images/decode.c"
#else
#if OURS == 2
#define MIRRORTRAIN_IMPLEMENTATION
#endif
#include "../mirrortrain.h"
#endif

#if USER && !FIRST
#if USER == 2
#define STB_IMAGE_IMPLEMENTATION
#endif
#include STB_HEADER
#endif

#include "golden/images.h"
#include "image_util.h"

int user_allocations;
void *user_malloc(size_t size) { return user_allocations++, malloc(size); }
void *user_realloc(void *block, size_t size) { return realloc(block, size); }
void user_free(void *block) { free(block); }

static void print_pixels(const char *who, const char *name, const void *pixels, int width, int height, int channels,
                         size_t bytes) {
    const size_t size = (size_t)width * (size_t)height * (size_t)channels * bytes;
    uint32_t sum = 2166136261u;
    if (!pixels) {
        printf("%s %s: none\n", who, name);
        return;
    }
    for (size_t i = 0; i < size; i++) sum = (sum ^ ((const unsigned char *)pixels)[i]) * 16777619u;
    printf("%s %s: %d x %d x %d, %08x\n", who, name, width, height, channels, (unsigned)sum);
}

#if OURS
static void decode_ours(const golden_file *golden, const unsigned char *file, size_t size) {
    mirt_image image;
    const int before = user_allocations;
    const mirt_color_mode mode = golden->channels == 3 ? MIRT_RGB : golden->channels == 1 ? MIRT_GRAYSCALE : MIRT_RGBA;
    if (mirt_decode_image(file, size, mode, NULL, &image) != MIRT_OK) memset(&image, 0, sizeof image);
    print_pixels("ours", golden->name, image.pixels, image.width, image.height, image.channels, 1);
    if (user_allocations != before) printf("ours %s: by the user's allocator\n", golden->name);
    mirt_image_free(&image);
}
#endif

#if USER
static void decode_users(const golden_file *golden, const unsigned char *file, size_t size) {
    int width = 0, height = 0, channels = 0;
    const int before = user_allocations;
    unsigned char *pixels = stbi_load_from_memory(file, (int)size, &width, &height, &channels, golden->channels);
    print_pixels("user's", golden->name, pixels, width, height, golden->channels, 1);
    stbi_image_free(pixels);
#ifdef USER_ALLOCATES
    if (user_allocations == before) printf("user's %s: not by the user's allocator\n", golden->name);
#else
    (void)before;
#endif
#ifndef STBI_NO_LINEAR
    float *numbers = stbi_loadf_from_memory(file, (int)size, &width, &height, &channels, golden->channels);
    print_pixels("user's floats", golden->name, numbers, width, height, golden->channels, sizeof *numbers);
    stbi_image_free(numbers);
#endif
}

/* Parts of the interface that the private copy leaves out. */
static void use_the_rest(void) {
    const unsigned char none[4] = {STBI_default, STBI_grey, STBI_rgb, STBI_rgb_alpha};
    printf("user's HDR: %d\n", stbi_is_hdr_from_memory(none, 4));
#ifndef STBI_NO_STDIO
    int width, height, channels;
    printf("user's file: %d\n", stbi_load("no such file", &width, &height, &channels, STBI_rgb) != NULL);
#ifndef STBI_NO_LINEAR
    printf("user's floats of a file: %d\n", stbi_loadf("no such file", &width, &height, &channels, STBI_rgb) != NULL);
#endif
#else
    printf("user's memory: %d\n", stbi_info_from_memory(none, 4, NULL, NULL, NULL));
#endif
    const char *reason = stbi_failure_reason();
    printf("user's reason: %s\n", reason ? reason : "none");
}
#endif

int main(void) {
    (void)golden_resizes, (void)golden_lists;
    for (size_t i = 0; i < sizeof golden_files / sizeof *golden_files; i++) {
        static unsigned char file[IMAGE_MOST];
        const size_t size = image_unhex(golden_files[i].file, file);
#if OURS
        decode_ours(&golden_files[i], file, size);
#endif
#if USER
        decode_users(&golden_files[i], file, size);
#endif
    }
#if USER
    use_the_rest();
#endif
    return 0;
}
