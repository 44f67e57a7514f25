/* Decodes images with stb_image, TurboJPEG or the caller's decoder; converts colors. */

#include "../base/digest.h"
#include "../base/file.h"
#include "images.h"

#if !defined(MIRRORTRAIN_NO_STB_IMAGE) && defined(__has_include)
#if __has_include(<stb/stb_image.h>) || __has_include(<stb_image.h>)
#define MIRT__STB
#endif
#endif
#ifdef MIRRORTRAIN_TURBOJPEG
#include <turbojpeg.h>
#endif

MIRT__LIB void mirt__decoders_here(bool *stb_image, bool *turbojpeg) {
    *stb_image = *turbojpeg = false;
#ifdef MIRT__STB
    *stb_image = true;
#endif
#ifdef MIRRORTRAIN_TURBOJPEG
    *turbojpeg = true;
#endif
}

MIRT__LIB bool mirt__mode_known(mirt_color_mode mode) {
    return mode == MIRT_RGB || mode == MIRT_GRAYSCALE || mode == MIRT_RGBA;
}

MIRT__LIB int mirt__mode_channels(mirt_color_mode mode) { return mode == MIRT_RGB ? 3 : mode == MIRT_RGBA ? 4 : 1; }

MIRT_API mirt_status mirt_image_create(mirt_image *image, int width, int height, int channels) {
    size_t bytes;
    if (!image) return mirt__fail_missing(__func__, "image");
    memset(image, 0, sizeof *image);
    if (width < 1 || height < 1 || channels < 1 || channels > 4)
        return mirt__fail(
            MIRT_E_INVALID,
            "mirt_image_create: %d x %d pixels of %d channels: all must be positive, with at most 4 channels", width,
            height, channels);
    if (!mirt__mul_size((size_t)width * (size_t)channels, (size_t)height, &bytes)) bytes = SIZE_MAX;
    image->pixels = (unsigned char *)(bytes < SIZE_MAX ? MIRRORTRAIN_MALLOC(bytes) : NULL);
    if (!image->pixels) return mirt__no_memory(bytes), MIRT_E_NOMEM;
    image->width = width;
    image->height = height;
    image->channels = channels;
    return MIRT_OK;
}

MIRT_API void mirt_image_free(mirt_image *image) {
    if (!image) return;
    if (image->pixels) MIRRORTRAIN_FREE(image->pixels);
    memset(image, 0, sizeof *image);
}

#ifdef MIRT__STB

/* Bytes that stb_image may still allocate for this image, per thread; some files unpack to far more than they
   declare. */
static __thread size_t mirt__stb_allowance;
static __thread bool mirt__stb_memory_failed;

/* Zeroed, because for damaged files stb_image uses tables and pixels that were never written, which would reveal
   earlier contents of memory. */
static void *mirt__stb_malloc(size_t bytes) {
    if (bytes > mirt__stb_allowance) {
        mirt__stb_allowance = 0;
        return NULL;
    }
    mirt__stb_allowance -= bytes;
#ifdef MIRT__MALLOC_ZEROED
    void *block = MIRT__MALLOC_ZEROED(bytes);
#else
    void *block = MIRRORTRAIN_MALLOC(bytes);
    if (block) memset(block, 0, bytes);
#endif
    if (!block) mirt__stb_memory_failed = true;
    return block;
}

static void mirt__stb_free(void *block) {
    if (block) MIRRORTRAIN_FREE(block);
}

static void *mirt__stb_grow(void *block, size_t old, size_t bytes) {
    void *grown = mirt__stb_malloc(bytes);
    if (!grown) return NULL;
    if (block) memcpy(grown, block, old < bytes ? old : bytes);
    mirt__stb_free(block);
    return grown;
}

#ifdef __SSE2__
#include <emmintrin.h>
#endif
#if !defined(__clang__) && !defined(MIRRORTRAIN_DEBUG)
#pragma GCC push_options
#pragma GCC optimize("O1")
#endif

/* >>the inverse cosine transform that TensorFlow decodes JPEGs with, libjpeg's JDCT_IFAST (Arai, Agui and Nakajima
   1988): it truncates instead of rounding, which makes pixels darker by almost one level */

typedef unsigned short mirt__eight __attribute__((vector_size(16)));

#ifdef __SSE2__
/* The upper halves of signed products. */
static inline mirt__eight mirt__eight_high(mirt__eight a, mirt__eight b) {
    return (mirt__eight)_mm_mulhi_epi16((__m128i)a, (__m128i)b);
}
static inline void mirt__eight_mix(mirt__eight a, mirt__eight b, mirt__eight out[2]) {
    out[0] = (mirt__eight)_mm_unpacklo_epi16((__m128i)a, (__m128i)b);
    out[1] = (mirt__eight)_mm_unpackhi_epi16((__m128i)a, (__m128i)b);
}
/* Signed pixels in units of 1/32. */
static inline void mirt__eight_store(mirt__eight a, unsigned char *out) {
    const __m128i pixels = _mm_srai_epi16((__m128i)a, 5);
    _mm_storel_epi64((__m128i *)(void *)out, _mm_xor_si128(_mm_packs_epi16(pixels, pixels), _mm_set1_epi8(-128)));
}
#else
static inline mirt__eight mirt__eight_high(mirt__eight a, mirt__eight b) {
    for (int i = 0; i < 8; i++) a[i] = (unsigned short)((short)a[i] * (short)b[i] >> 16);
    return a;
}
static inline void mirt__eight_mix(mirt__eight a, mirt__eight b, mirt__eight out[2]) {
    for (int i = 0; i < 8; i++) {
        out[i / 4][2 * i % 8] = a[i];
        out[i / 4][2 * i % 8 + 1] = b[i];
    }
}
static inline void mirt__eight_store(mirt__eight a, unsigned char *out) {
    for (int i = 0; i < 8; i++) {
        const int pixel = ((short)a[i] >> 5) + 128;
        out[i] = (unsigned char)(pixel < 0 ? 0 : pixel > 255 ? 255 : pixel);
    }
}
#endif

/* x * k / 256, truncated, for k below 512. */
static inline mirt__eight mirt__eight_times(mirt__eight x, int k) {
    const mirt__eight zero = {0};
    return mirt__eight_high(x << 2, zero + (unsigned short)(k * 64));
}

static inline void mirt__idct_pass(mirt__eight v[8]) {
    const mirt__eight a = v[0] + v[4], b = v[0] - v[4], c = v[2] + v[6], d = mirt__eight_times(v[2] - v[6], 362) - c;
    const mirt__eight e = v[5] + v[3], f = v[5] - v[3], g = v[1] + v[7], h = v[1] - v[7];
    const mirt__eight z = mirt__eight_times(f + h, 473), t7 = g + e, t6 = mirt__eight_times(f, -413) - f + z - t7;
    const mirt__eight t5 = mirt__eight_times(g - e, 362) - t6, t4 = mirt__eight_times(h, 277) - z + t5;
    const mirt__eight t0 = a + c, t1 = b + d, t2 = b - d, t3 = a - c;
    v[0] = t0 + t7, v[7] = t0 - t7;
    v[1] = t1 + t6, v[6] = t1 - t6;
    v[2] = t2 + t5, v[5] = t2 - t5;
    v[4] = t3 + t4, v[3] = t3 - t4;
}

static inline void mirt__idct_mix(const mirt__eight v[8], mirt__eight out[8]) {
    mirt__eight_mix(v[0], v[4], out);
    mirt__eight_mix(v[1], v[5], out + 2);
    mirt__eight_mix(v[2], v[6], out + 4);
    mirt__eight_mix(v[3], v[7], out + 6);
}

/* Transposes a block. */
static inline void mirt__idct_turn(mirt__eight v[8]) {
    mirt__eight once[8], twice[8];
    mirt__idct_mix(v, once);
    mirt__idct_mix(once, twice);
    mirt__idct_mix(twice, v);
}

/* The scale factors of the transform's coefficients, in 1/4096; like libjpeg, their product with the quantizer is
   rounded. */
static void mirt__idct_scales(const unsigned short quant[64], unsigned short out[64]) {
    static const unsigned short scale[64] = {
        16384, 22725, 21407, 19266, 16384, 12873, 8867,  4520, 22725, 31521, 29692, 26722, 22725, 17855, 12299, 6270,
        21407, 29692, 27969, 25172, 21407, 16819, 11585, 5906, 19266, 26722, 25172, 22654, 19266, 15137, 10426, 5315,
        16384, 22725, 21407, 19266, 16384, 12873, 8867,  4520, 12873, 17855, 16819, 15137, 12873, 10114, 6967,  3552,
        8867,  12299, 11585, 10426, 8867,  6967,  4799,  2446, 4520,  6270,  5906,  5315,  4520,  3552,  2446,  1247};
    for (int i = 0; i < 64; i++) {
        const unsigned most = 32767, by = quant[i] ? quant[i] : 1,
                       made = (((by * scale[i] + 2048) >> 12 << 12) + by / 2) / by;
        out[i] = (unsigned short)(made < most ? made : most);
    }
}

/* Factors for the next block, per thread; of each of stb_image's tables the last one. */
static __thread const unsigned short *mirt__stb_scale;
static __thread unsigned short mirt__stb_quant[4][64], mirt__stb_scales[4][64];

static int mirt__stb_block(const unsigned short *quant, int table, int stride) {
    if (memcmp(mirt__stb_quant[table], quant, sizeof mirt__stb_quant[table]) != 0) {
        memcpy(mirt__stb_quant[table], quant, sizeof mirt__stb_quant[table]);
        mirt__idct_scales(quant, mirt__stb_scales[table]);
    }
    mirt__stb_scale = mirt__stb_scales[table];
    return stride;
}
/* stb_image passes arguments only where it calls this for component `n` of JPEG `z`. */
#define idct_block_kernel(out, stride, data) \
    idct_block_kernel(out, mirt__stb_block(z->dequant[z->img_comp[n].tq], z->img_comp[n].tq, stride), data)

/* Functions that replace those of stb_image, which images/stb_begin.inc renames to these; the macros rename stb_image's
   own definitions, which are the only places followed by arguments. */
static void mirt__stbi__idct_block(unsigned char *out, int stride, short data[64]) {
    mirt__eight v[8], s[8];
    memcpy(v, data, sizeof v);
    memcpy(s, mirt__stb_scale, sizeof s);
    for (int i = 0; i < 8; i++) v[i] = mirt__eight_high(v[i] << 4, s[i]) + ((v[i] << 4) * s[i] >> 15);
    mirt__idct_pass(v);
    mirt__idct_turn(v);
    mirt__idct_pass(v);
    mirt__idct_turn(v);
    for (int i = 0; i < 8; i++) mirt__eight_store(v[i], out + i * stride);
}
__attribute__((unused)) static void mirt__stbi__idct_simd(unsigned char *out, int stride, short data[64]) {
    mirt__stbi__idct_block(out, stride, data);
}
#define mirt__stbi__idct_block(out, stride, data) mirt__stb_idct_block(out, stride, data)
#define mirt__stbi__idct_simd(out, stride, data) mirt__stb_idct_simd(out, stride, data)

/* Replaces stb_image's function of this name, which computes the second and third pixel from the end wrongly. Doubles
   the width: each pixel is three quarters of the nearest one and a quarter of the next. Only stb_image's definition is
   followed by arguments. */
static unsigned char *mirt__stbi__resample_row_h_2(unsigned char *out, unsigned char *row, unsigned char *unused,
                                                   int width, int scale) {
    (void)unused;
    (void)scale;
    for (int i = 0; i < width; i++) {
        out[2 * i] = (unsigned char)((3 * row[i] + row[i > 0 ? i - 1 : 0] + 1) >> 2);
        out[2 * i + 1] = (unsigned char)((3 * row[i] + row[i + 1 < width ? i + 1 : i] + 2) >> 2);
    }
    return out;
}
#define mirt__stbi__resample_row_h_2(out, row, other, width, scale) \
    mirt__stb_resample_row_h_2(out, row, other, width, scale)

#ifdef __x86_64__
/* Also a replacement: stb_image converts many pixels at once only if each takes four bytes. */
static void mirt__stb_colors(unsigned char *out, unsigned char const *y, unsigned char const *blue,
                             unsigned char const *red, int count, int step);
__attribute__((unused)) static void mirt__stbi__YCbCr_to_RGB_simd(unsigned char *out, unsigned char const *y,
                                                                  unsigned char const *blue, unsigned char const *red,
                                                                  int count, int step) {
    unsigned char four[4 * 64];
    if (step != 3) {
        mirt__stb_colors(out, y, blue, red, count, step);
        return;
    }
    for (int at = 0; at < count; at += 64, out += 3 * 64) {
        const int some = count - at < 64 ? count - at : 64;
        mirt__stb_colors(four, y + at, blue + at, red + at, some, 4);
        /* the next pixel overwrites the fourth byte */
        for (int i = 0; i < some - 1; i++) memcpy(out + 3 * i, four + 4 * i, 4);
        memcpy(out + 3 * (some - 1), four + 4 * (some - 1), 3);
    }
}
#define mirt__stbi__YCbCr_to_RGB_simd(out, y, blue, red, count, step) mirt__stb_colors(out, y, blue, red, count, step)
#endif

#ifndef MIRT__TEST_SUM
#define MIRT__TEST_SUM(wrong) (wrong) /* fuzzers also test files with wrong checksums */
#endif
static __thread bool mirt__stb_sum_wrong;

/* Verifies the checksum, which stb_image ignores. The unpacked data begin at `out`; the checksum follows the input,
   whose read position is `next` less `bits` unused bits. Without input left there is no checksum. */
static int mirt__stb_sum(const char *out, const char *out_end, const unsigned char *next, const unsigned char *end,
                         int bits, int header) {
    next -= bits / 8;
    uint32_t sum = 0;
    for (int i = 0; i < 4 && end - next >= 4; i++) sum = sum << 8 | next[i];
    mirt__stb_sum_wrong =
        MIRT__TEST_SUM(header && (end - next < 4 || sum != mirt__adler32(out, (size_t)(out_end - out))));
    return !mirt__stb_sum_wrong;
}
/* Renames the definition of stb_image's function of this name, and lets its call verify the checksum. */
#define mirt__stbi__parse_zlib(a, header) MIRT__ZLIB_##a, header)
#define MIRT__ZLIB_stbi__zbuf mirt__stb_parse_zlib(mirt__stbi__zbuf
#define MIRT__ZLIB_a \
    mirt__stb_parse_zlib(a, parse_header) && \
        mirt__stb_sum(a->zout_start, a->zout, a->zbuffer, a->zbuffer_end, a->num_bits

#include "stb_begin.inc"
#define STB_IMAGE_IMPLEMENTATION
#define STBIDEF static __attribute__((unused))
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_ONLY_GIF
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_NO_FAILURE_STRINGS /* stbi__err is both a function and a macro there, so it cannot be renamed */
#define STBI_MAX_DIMENSIONS (1 << 20)
#define STBI_ASSERT(x) ((void)0)
#define STBI_MALLOC(size) mirt__stb_malloc(size)
#define STBI_REALLOC_SIZED(p, old, size) mirt__stb_grow(p, old, size)
#define STBI_REALLOC(p, size) mirt__stb_grow(p, 0, size)
#define STBI_FREE(p) mirt__stb_free(p)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#if __has_include(<stb/stb_image.h>)
#include <stb/stb_image.h>
#else
#include <stb_image.h>
#endif
#pragma GCC diagnostic pop
#if !defined(__clang__) && !defined(MIRRORTRAIN_DEBUG)
#pragma GCC pop_options
#endif
#include "stb_end.inc"
#undef mirt__stbi__idct_block
#undef mirt__stbi__idct_simd
#undef mirt__stbi__resample_row_h_2
#undef mirt__stbi__YCbCr_to_RGB_simd
#undef mirt__stbi__parse_zlib
#undef idct_block_kernel
#undef MIRT__ZLIB_stbi__zbuf
#undef MIRT__ZLIB_a
#undef MIRT__TEST_SUM

/* The input of stb_image, which reads zeros after the end; `missed` is set if it did. */
typedef struct mirt__stb_bytes {
    const unsigned char *bytes;
    size_t size, at;
    bool missed, gif;
} mirt__stb_bytes;

static int mirt__stb_read(void *user, char *out, int wanted) {
    mirt__stb_bytes *file = (mirt__stb_bytes *)user;
    size_t left = file->size - file->at, size = (size_t)wanted < left ? (size_t)wanted : left;
    memcpy(out, file->bytes + file->at, size);
    /* Pixels that a GIF does not draw are black, regardless of its background color. */
    if (file->gif && file->at <= 11 && file->at + size > 11) out[11 - file->at] = 0;
    file->at += size;
    if (size == 0) file->missed = true;
    return (int)size;
}

static void mirt__stb_skip(void *user, int count) {
    mirt__stb_bytes *file = (mirt__stb_bytes *)user;
    size_t left = file->size - file->at;
    if (count > 0) file->at += (size_t)count < left ? (size_t)count : left;
    if (count > 0 && (size_t)count > left) file->missed = true;
}

static int mirt__stb_eof(void *user) { return ((mirt__stb_bytes *)user)->at >= ((mirt__stb_bytes *)user)->size; }

/* Row `y` of a component, as wide as the image. */
static unsigned char *mirt__stb_ink_row(mirt__stbi__jpeg *jpeg, int component, int y) {
    const int across = jpeg->img_h_max / jpeg->img_comp[component].h,
              down = jpeg->img_v_max / jpeg->img_comp[component].v, stride = jpeg->img_comp[component].w2;
    const int here = y / down, other = here + (y % down ? 1 : -1), last = jpeg->img_comp[component].y - 1;
    unsigned char *rows = jpeg->img_comp[component].data, *line = jpeg->img_comp[component].linebuf;
    unsigned char *close = rows + here * stride, *next = rows + (other < 0 ? 0 : other > last ? last : other) * stride;
    const int width = ((int)jpeg->s->img_x + across - 1) / across;
    if (across == 1 && down == 1) return close;
    if (across == 1 && down == 2) return mirt__stbi__resample_row_v_2(line, close, next, width, across);
    if (across == 2 && down == 1) return mirt__stbi__resample_row_h_2(line, close, next, width, across);
    if (across == 2 && down == 2) return jpeg->resample_row_hv_2_kernel(line, close, next, width, across);
    return mirt__stbi__resample_row_generic(line, close, next, width, across);
}

/* Converts CMYK to RGB like TensorFlow: Adobe's values are inverted, and results are truncated. stb_image rounds them
   and misinterprets files without Adobe's marker. */
static unsigned char *mirt__stb_ink(mirt__stbi__jpeg *jpeg) {
    if (!mirt__stbi__decode_jpeg_image(jpeg)) return NULL;
    const int width = (int)jpeg->s->img_x, height = (int)jpeg->s->img_y, adobe = jpeg->app14_color_transform;
    if (jpeg->s->img_n != 4) return NULL;
    for (int k = 0; k < 4; k++)
        if (!(jpeg->img_comp[k].linebuf = (unsigned char *)mirt__stbi__malloc((size_t)width + 3))) return NULL;
    unsigned char *made = (unsigned char *)mirt__stbi__malloc_mad3(3, width, height, 1), *out = made;
    for (int y = 0; made && y < height; y++, out += 3 * width) {
        unsigned char *row[4];
        for (int k = 0; k < 4; k++) row[k] = mirt__stb_ink_row(jpeg, k, y);
        if (adobe > 0) jpeg->YCbCr_to_RGB_kernel(out, row[0], row[1], row[2], width, 3);
        for (int i = 0; i < 3 * width; i++) {
            const int ink = adobe > 0 ? 255 - out[i] : row[i % 3][i / 3], black = row[3][i / 3];
            out[i] = (unsigned char)((adobe < 0 ? (255 - ink) * (255 - black) : ink * black) / 255);
        }
    }
    return made;
}

static unsigned char *mirt__stb_load_ink(mirt__stbi_io_callbacks *reader, mirt__stb_bytes *file, int *width,
                                         int *height) {
    mirt__stbi__context context;
    mirt__stbi__jpeg *jpeg = (mirt__stbi__jpeg *)mirt__stbi__malloc(sizeof *jpeg);
    if (!jpeg) return NULL;
    memset(jpeg, 0, sizeof *jpeg);
    memset(&context, 0, sizeof context);
    mirt__stbi__start_callbacks(&context, reader, file);
    jpeg->s = &context;
    mirt__stbi__setup_jpeg(jpeg);
    unsigned char *made = mirt__stb_ink(jpeg);
    mirt__stbi__cleanup_jpeg(jpeg);
    mirt__stb_free(jpeg);
    *width = (int)context.img_x;
    *height = (int)context.img_y;
    return made;
}

/* Replaces every block of `scale` x `scale` pixels by its mean. */
static mirt_status mirt__image_reduce(mirt_image *image, int scale) {
    mirt_image made;
    if (scale == 1) return MIRT_OK;
    const int64_t stride = (int64_t)image->width * image->channels;
    mirt_status status = mirt_image_create(&made, (image->width + scale - 1) / scale,
                                           (image->height + scale - 1) / scale, image->channels);
    unsigned char *out = made.pixels;
    for (int y = 0; status == MIRT_OK && y < made.height; y++) {
        int rows = image->height - y * scale < scale ? image->height - y * scale : scale;
        for (int i = 0; i < made.width * made.channels; i++) {
            int x = i / made.channels * scale, columns = image->width - x < scale ? image->width - x : scale,
                sum = rows * columns / 2;
            const unsigned char *pixel = image->pixels + y * scale * stride + x * made.channels + i % made.channels;
            for (int k = 0; k < rows * columns; k++) sum += pixel[k / columns * stride + k % columns * made.channels];
            *out++ = (unsigned char)(sum / (rows * columns));
        }
    }
    mirt_image_free(image);
    if (status == MIRT_OK) *image = made;
    return status;
}

static mirt_status mirt__stb_decode(const unsigned char *bytes, size_t size, const mirt__image_header *header,
                                    mirt_color_mode mode, int scale, mirt_image *out) {
    mirt__stbi_io_callbacks reader = {mirt__stb_read, mirt__stb_skip, mirt__stb_eof};
    mirt__stb_bytes file = {bytes, size, 0, false, header->format == MIRT__FORMAT_GIF};
    /* A JPEG has its own luma; for other formats it is computed. */
    const bool ink = header->format == MIRT__FORMAT_JPEG && header->channels == 4;
    int wanted = ink ? 3 : header->format == MIRT__FORMAT_JPEG ? mirt__mode_channels(mode) : 0, channels = 0;
    if (header->format == MIRT__FORMAT_GIF) wanted = 4;
    mirt__stb_allowance = (size_t)(2 * header->memory + 2 * size) + (1 << 20);
    mirt__stb_memory_failed = mirt__stb_sum_wrong = false;
    if (ink) out->pixels = mirt__stb_load_ink(&reader, &file, &out->width, &out->height);
    else if (header->deep)
        out->pixels = (unsigned char *)mirt__stbi_load_16_from_callbacks(&reader, &file, &out->width, &out->height,
                                                                         &channels, wanted);
    else out->pixels = mirt__stbi_load_from_callbacks(&reader, &file, &out->width, &out->height, &channels, wanted);
    out->channels = wanted ? wanted : channels;
    /* stb_image's own conversion from 16 bits to 8 leaks the image when it runs out of memory. */
    for (size_t i = 0;
         header->deep && out->pixels && i < (size_t)out->width * (size_t)out->height * (size_t)out->channels; i++) {
        uint16_t value;
        memcpy(&value, out->pixels + 2 * i, 2);
        out->pixels[i] = (unsigned char)(value >> 8);
    }
    if (mirt__stb_memory_failed) return mirt__no_memory(header->memory), MIRT_E_NOMEM;
    if (file.missed) return mirt__fail(MIRT_E_FORMAT, "truncated: its %zu bytes end before its pixels", size);
    if (out->pixels) return mirt__image_reduce(out, scale);
    if (mirt__stb_sum_wrong)
        return mirt__fail(MIRT_E_FORMAT, "damaged: the checksum of its pixels is wrong or missing");
    if (!mirt__stb_allowance)
        return mirt__fail(MIRT_E_FORMAT, "damaged: it unpacks to more data than its size in pixels");
    return mirt__fail(MIRT_E_FORMAT,
                      header->format == MIRT__FORMAT_JPEG  ? "damaged, or a JPEG with 12 bits per channel, lossless or "
                                                             "arithmetic coding, which stb_image does not decode"
                      : header->format == MIRT__FORMAT_BMP ? "damaged, or a compressed BMP, which stb_image does not "
                                                             "decode"
                                                           : "damaged: its pixels cannot be decoded");
}

#endif

#ifdef MIRRORTRAIN_TURBOJPEG

static mirt_status mirt__turbo_run(tjhandle decoder, const unsigned char *bytes, size_t size, mirt_color_mode mode,
                                   int scale, mirt_image *out) {
    int width, height, sampling, space,
        format = mode == MIRT_RGB    ? TJPF_RGB
                 : mode == MIRT_RGBA ? TJPF_RGBA
                                     : TJPF_GRAY;
    const tjscalingfactor factor = {1, scale};
    if (tjDecompressHeader3(decoder, bytes, (unsigned long)size, &width, &height, &sampling, &space) != 0)
        return mirt__fail(MIRT_E_FORMAT, "damaged: %s", tjGetErrorStr2(decoder));
    mirt_status status =
        mirt_image_create(out, TJSCALED(width, factor), TJSCALED(height, factor), mirt__mode_channels(mode));
    if (status != MIRT_OK) return status;
    int code = tjDecompress2(decoder, bytes, (unsigned long)size, out->pixels, out->width, 0, out->height, format,
                             TJFLAG_LIMITSCANS | TJFLAG_FASTDCT);
    const char *why = code ? tjGetErrorStr2(decoder) : "";
    /* Extra bytes between markers are harmless. */
    if (code && (tjGetErrorCode(decoder) != TJERR_WARNING || strstr(why, "remature")))
        status = mirt__fail(MIRT_E_FORMAT, "%s: %s", strstr(why, "remature") ? "truncated" : "damaged", why);
    return status;
}

static mirt_status mirt__turbo_decode(const unsigned char *bytes, size_t size, mirt_color_mode mode, int scale,
                                      mirt_image *out) {
    tjhandle decoder = tjInitDecompress();
    if (!decoder) return mirt__no_memory(0), MIRT_E_NOMEM;
    mirt_status status = mirt__turbo_run(decoder, bytes, size, mode, scale, out);
    tjDestroy(decoder);
    return status;
}

#endif

#ifdef MIRRORTRAIN_NO_STB_IMAGE
#define MIRT__NO_DECODER "MIRRORTRAIN_NO_STB_IMAGE was defined"
#else
#define MIRT__NO_DECODER \
    "the compiler did not find <stb/stb_image.h>; install it (Debian, Ubuntu: apt-get install libstb-dev) and " \
    "compile again"
#endif

MIRT__LIB bool mirt__decoder_missing(const mirt_decode_desc *desc) {
    bool stb_image, turbojpeg;
    mirt__decoders_here(&stb_image, &turbojpeg);
    if (stb_image || turbojpeg || desc->decoder) return false;
    mirt__fail(MIRT_E_NOT_FOUND, "compiled without an image decoder: " MIRT__NO_DECODER);
    return true;
}

/* Converts to the channels of the mode: gray is repeated, alpha dropped or set to 255. */
static mirt_status mirt__image_convert(mirt_image *image, mirt_color_mode mode) {
    int from = image->channels, to = mirt__mode_channels(mode);
    mirt_image made;
    if (from == to) return MIRT_OK;
    mirt_status status = mirt_image_create(&made, image->width, image->height, to);
    const unsigned char *p = image->pixels, *end = p + (int64_t)image->width * image->height * from;
    for (unsigned char *q = made.pixels; status == MIRT_OK && p < end; p += from, q += to) {
        bool colored = from >= 3;
        /* same as libpng */
        if (to == 1) q[0] = colored ? (unsigned char)((p[0] * 9797 + p[1] * 19234 + p[2] * 3737) >> 15) : p[0];
        for (int c = 0; to >= 3 && c < 3; c++) q[c] = p[colored ? c : 0];
        if (to == 4) q[3] = from % 2 == 0 ? p[from - 1] : 255;
    }
    mirt_image_free(image);
    if (status == MIRT_OK) *image = made;
    return status;
}

static mirt_status mirt__decode_by_caller(const unsigned char *bytes, size_t size, const mirt_decode_desc *desc,
                                          mirt_image *out, bool *done) {
    int code;
    {
        MIRT__OUTSIDE;
        code = desc->decoder(bytes, size, out, desc->decoder_user);
    }
    *done = code != MIRT_OTHER_DECODER;
    if (!*done) return MIRT_OK;
    if (code) return mirt__fail(MIRT_E_CALLBACK, "the decoder returned %d", code);
    if (!out->pixels || out->width < 1 || out->height < 1 || out->channels < 1 || out->channels > 4)
        return mirt__fail(MIRT_E_CALLBACK, "the decoder returned an invalid image: %d x %d pixels of %d channels",
                          out->width, out->height, out->channels);
    return MIRT_OK;
}

/* The factor by which a JPEG may be shrunk while it is decoded: 1, 2, 4 or 8. */
static int mirt__decode_scale(const mirt__image_header *header, const mirt_decode_desc *desc) {
    int scale = 8;
    if (header->format != MIRT__FORMAT_JPEG || (!desc->least_height && !desc->least_width)) return 1;
    while (scale > 1 && ((header->height + scale - 1) / scale < desc->least_height ||
                         (header->width + scale - 1) / scale < desc->least_width))
        scale /= 2;
    return scale;
}

static mirt_status mirt__decode_known(const unsigned char *bytes, size_t size, const mirt__image_header *header,
                                      mirt_color_mode mode, const mirt_decode_desc *desc, mirt_image *out) {
    int scale = mirt__decode_scale(header, desc);
    if (header->format == MIRT__FORMAT_NONE) {
        char text[16] = "";
        for (size_t i = 0; i < size && i < 4; i++) snprintf(text + 3 * i, 4, " %02X", bytes[i]);
        return mirt__fail(MIRT_E_FORMAT, "not a JPEG, PNG, BMP or GIF: it begins with%s", text);
    }
#ifdef MIRRORTRAIN_TURBOJPEG
    if (header->format == MIRT__FORMAT_JPEG && header->channels < 4)
        return mirt__turbo_decode(bytes, size, mode, scale, out);
#endif
#ifdef MIRT__STB
    return mirt__stb_decode(bytes, size, header, mode, scale, out);
#else
    (void)mode;
    (void)scale;
    (void)out;
    return mirt__fail(MIRT_E_NOT_FOUND, "compiled without a decoder for it: " MIRT__NO_DECODER);
#endif
}

/* With all checks of mirt_decode_image. */
static mirt_status mirt__decode(const unsigned char *bytes, size_t size, mirt_color_mode mode,
                                const mirt_decode_desc *desc, mirt_image *out) {
    mirt__image_header header;
    bool done = false;
    int64_t most = desc->max_bytes ? desc->max_bytes : (int64_t)1 << 26;
    memset(out, 0, sizeof *out);
    if (size == 0) return mirt__fail(MIRT_E_FORMAT, "empty: it has no bytes");
    if (size > (uint64_t)most)
        return mirt__fail(MIRT_E_FORMAT, "%zu bytes: more than %lld (max_bytes)", size, (long long)most);
    mirt_status status = mirt__image_read_header(bytes, size, &header);
    if (status == MIRT_OK) status = mirt__image_check(&header, size, desc);
    if (status == MIRT_OK && desc->decoder) status = mirt__decode_by_caller(bytes, size, desc, out, &done);
    if (status == MIRT_OK && !done) status = mirt__decode_known(bytes, size, &header, mode, desc, out);
    if (status == MIRT_OK) status = mirt__image_convert(out, mode);
    if (status != MIRT_OK) mirt_image_free(out);
    return status;
}

/* Checks, and copies `desc`, or what NULL stands for, to *own. */
static mirt_status mirt__decode_arguments(const char *caller, mirt_color_mode mode, const mirt_decode_desc *desc,
                                          mirt_decode_desc *own, mirt_image *out) {
    memset(own, 0, sizeof *own);
    if (desc) *own = *desc;
    if (!out) return mirt__fail_missing(caller, "image");
    memset(out, 0, sizeof *out);
    if (!mirt__mode_known(mode)) return mirt__fail(MIRT_E_INVALID, "%s: invalid color mode (%d)", caller, (int)mode);
    if (own->max_side < 0 || own->max_pixels < 0 || own->max_bytes < 0 || own->least_height < 0 || own->least_width < 0)
        return mirt__fail(MIRT_E_INVALID, "%s: limits must not be negative", caller);
    return MIRT_OK;
}

MIRT_API mirt_status mirt_decode_image(const void *bytes, size_t size, mirt_color_mode mode,
                                       const mirt_decode_desc *desc, mirt_image *out) {
    MIRT__ENTER;
    mirt_decode_desc own;
    mirt_status status = mirt__decode_arguments(__func__, mode, desc, &own, out);
    if (status != MIRT_OK) return status;
    if (!bytes && size) return mirt__fail_missing(__func__, "bytes");
    status = mirt__decode((const unsigned char *)bytes, size, mode, &own, out);
    return status == MIRT_OK ? MIRT_OK : mirt__fail_at("the image");
}

MIRT__LIB mirt_status mirt__image_read(const mirt__file_part *file, mirt_color_mode mode, const mirt_decode_desc *desc,
                                       mirt_image *out) {
    mirt_decode_desc own;
    unsigned char *bytes;
    size_t size;
    mirt_status status = mirt__decode_arguments("mirt_read_image", mode, desc, &own, out);
    if (status != MIRT_OK) return status;
    if (!file->path) return mirt__fail_missing("mirt_read_image", "path");
    int64_t most = own.max_bytes ? own.max_bytes : (int64_t)1 << 26;
    status = mirt__file_read_part(file, (size_t)most, &bytes, &size);
    if (status != MIRT_OK) return status;
    status = mirt__decode(bytes, size, mode, &own, out);
    mirt__aligned_free(bytes);
    return status == MIRT_OK ? MIRT_OK : mirt__fail_at("%s", file->name);
}

MIRT_API mirt_status mirt_read_image(const char *path, mirt_color_mode mode, const mirt_decode_desc *desc,
                                     mirt_image *out) {
    MIRT__ENTER;
    const mirt__file_part whole = {path, path, 0, MIRT__WHOLE_FILE};
    return mirt__image_read(&whole, mode, desc, out);
}

#undef MIRT__STB
#undef MIRT__NO_DECODER
