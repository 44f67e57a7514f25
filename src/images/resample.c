/* Separable resizing: every pixel is a weighted sum of a few neighbors. Weights are those of TensorFlow's kernels,
   computed in float32 like there. */

#include "images.h"

/* >>weights: out pixel i is the sum of weight[i * taps + t] * in pixel first[i] + t */

typedef struct mirt__pixmap_axis {
    int in, out, taps;
    int *first;
    float *weight;
} mirt__pixmap_axis;

typedef struct mirt__pixmap_filter {
    float radius;
    float (*value)(float x); /* weight at a distance x >= 0 */
} mirt__pixmap_filter;

static float mirt__filter_triangle(float x) { return x < 1 ? 1 - x : 0; }
static float mirt__filter_cubic(float x) {
    return x >= 2 ? 0 : x >= 1 ? ((-0.5f * x + 2.5f) * x - 4) * x + 2 : (1.5f * x - 2.5f) * x * x + 1;
}
static float mirt__filter_mitchell(float x) {
    return x >= 2   ? 0
           : x >= 1 ? ((-7.0f / 18 * x + 2) * x - 10.0f / 3) * x + 16.0f / 9
                    : (7.0f / 6 * x - 2) * x * x + 8.0f / 9;
}
static float mirt__filter_gaussian(float x) { return x >= 1.5f ? 0 : expf(-2 * x * x); }
static float mirt__filter_lanczos(float x, float radius) {
    const float pi = 3.14159265f;
    return x > radius ? 0 : x <= 1e-3f ? 1 : radius * sinf(pi * x) * sinf(pi * x / radius) / (pi * pi * x * x);
}
static float mirt__filter_lanczos3(float x) { return mirt__filter_lanczos(x, 3); }
static float mirt__filter_lanczos5(float x) { return mirt__filter_lanczos(x, 5); }

static const mirt__pixmap_filter mirt__pixmap_filters[MIRT__INTERPOLATION_COUNT] = {
    {1, mirt__filter_triangle},    {0, NULL},
    {2, mirt__filter_cubic},       {0, NULL},
    {3, mirt__filter_lanczos3},    {5, mirt__filter_lanczos5},
    {1.5f, mirt__filter_gaussian}, {2, mirt__filter_mitchell}};

/* Whether the weights are a function of the distance; otherwise it is one of TensorFlow's older kernels. */
static bool mirt__pixmap_filtered(const mirt__pixmap *resize) {
    mirt_interpolation kind = resize->interpolation;
    if (kind == MIRT_NEAREST || kind == MIRT_AREA) return false;
    return resize->antialias || (kind != MIRT_BILINEAR && kind != MIRT_BICUBIC);
}

static float mirt__filter_scale(const mirt__pixmap *resize, float scale) {
    return resize->antialias && scale > 1 ? scale : 1;
}

static int mirt__pixmap_axis_taps(const mirt__pixmap *resize, int in, int out) {
    float scale = (float)in / (float)out, taps = 2;
    if (mirt__pixmap_filtered(resize))
        taps = 2 * ceilf(mirt__pixmap_filters[resize->interpolation].radius * mirt__filter_scale(resize, scale)) + 1;
    else if (resize->interpolation == MIRT_NEAREST) taps = 1;
    else if (resize->interpolation == MIRT_BICUBIC) taps = 4;
    else if (resize->interpolation == MIRT_AREA) taps = ceilf(scale) + 2;
    return taps < (float)in ? (int)taps : in;
}

static int mirt__pixmap_axis_bound(int value, int in) { return value < 0 ? 0 : value >= in ? in - 1 : value; }

/* Adds a weight to output pixel i, whose first tap is known. */
static void mirt__pixmap_axis_add(mirt__pixmap_axis *axis, int i, int pixel, float weight) {
    int tap = mirt__pixmap_axis_bound(pixel, axis->in) - axis->first[i];
    if (tap >= 0 && tap < axis->taps) axis->weight[i * axis->taps + tap] += weight;
}

static void mirt__pixmap_axis_place(mirt__pixmap_axis *axis, int i, int first) {
    axis->first[i] = mirt__pixmap_axis_bound(first, axis->in - axis->taps + 1);
    for (int t = 0; t < axis->taps; t++) axis->weight[i * axis->taps + t] = 0;
}

static void mirt__pixmap_axis_normalize(mirt__pixmap_axis *axis, int i) {
    float *weight = axis->weight + i * axis->taps, sum = 0;
    for (int t = 0; t < axis->taps; t++) sum += weight[t];
    for (int t = 0; t < axis->taps && fabsf(sum) > 1e-30f; t++) weight[t] /= sum;
}

/* Pixels outside the image are ignored. */
static void mirt__pixmap_axis_filter(mirt__pixmap_axis *axis, int i, const mirt__pixmap *resize, float scale) {
    const mirt__pixmap_filter *filter = &mirt__pixmap_filters[resize->interpolation];
    float wide = mirt__filter_scale(resize, scale), narrow = 1 / wide, center = ((float)i + 0.5f) * scale;
    int first = (int)ceilf(center - filter->radius * wide - 0.5f),
        last = (int)floorf(center + filter->radius * wide - 0.5f);
    first = mirt__pixmap_axis_bound(first, axis->in);
    last = mirt__pixmap_axis_bound(last, axis->in);
    mirt__pixmap_axis_place(axis, i, first);
    for (int k = first; k <= last; k++)
        mirt__pixmap_axis_add(axis, i, k, filter->value(fabsf((float)k + 0.5f - center) * narrow));
    mirt__pixmap_axis_normalize(axis, i);
}

/* Keys' cubic with a = -0.5; TensorFlow uses a table of 1024 steps, so positions are rounded to them. */
static void mirt__pixmap_axis_cubic(mirt__pixmap_axis *axis, int i, float at) {
    int whole = (int)floorf(at);
    float part = (float)lrintf((at - floorf(at)) * 1024) / 1024;
    mirt__pixmap_axis_place(axis, i, whole - 1);
    for (int k = -1; k <= 2; k++) {
        if (whole + k >= 0 && whole + k < axis->in)
            mirt__pixmap_axis_add(axis, i, whole + k, mirt__filter_cubic(fabsf((float)k - part)));
    }
    mirt__pixmap_axis_normalize(axis, i);
}

static void mirt__pixmap_axis_area(mirt__pixmap_axis *axis, int i, float scale) {
    float from = (float)i * scale, to = ((float)i + 1) * scale;
    mirt__pixmap_axis_place(axis, i, (int)floorf(from));
    for (int k = (int)floorf(from); k < (int)ceilf(to); k++) {
        float begin = (float)k < from ? from : (float)k, end = (float)k + 1 > to ? to : (float)k + 1;
        mirt__pixmap_axis_add(axis, i, k, (end - begin) / scale);
    }
}

static void mirt__pixmap_axis_set(mirt__pixmap_axis *axis, const mirt__pixmap *resize) {
    float scale = (float)axis->in / (float)axis->out;
    for (int i = 0; i < axis->out; i++) {
        float at = ((float)i + 0.5f) * scale - 0.5f, whole = floorf(at);
        if (mirt__pixmap_filtered(resize)) {
            mirt__pixmap_axis_filter(axis, i, resize, 1 / ((float)axis->out / (float)axis->in));
        } else if (resize->interpolation == MIRT_AREA) {
            mirt__pixmap_axis_area(axis, i, scale);
        } else if (resize->interpolation == MIRT_BICUBIC) {
            mirt__pixmap_axis_cubic(axis, i, at);
        } else if (resize->interpolation == MIRT_NEAREST) {
            int pixel = mirt__pixmap_axis_bound((int)floorf(((float)i + 0.5f) * scale), axis->in);
            mirt__pixmap_axis_place(axis, i, pixel);
            mirt__pixmap_axis_add(axis, i, pixel, 1);
        } else {
            mirt__pixmap_axis_place(axis, i, (int)whole);
            mirt__pixmap_axis_add(axis, i, (int)whole, 1 - (at - whole));
            mirt__pixmap_axis_add(axis, i, (int)ceilf(at), at - whole);
        }
    }
}

/* >>pixels */

#include "../kernels/optimize_begin.inc"

typedef float mirt__pixmap_four __attribute__((vector_size(16), aligned(4), may_alias));

/* Adds a weighted row of bytes to a row of floats; `first` overwrites it. */
static void mirt__pixmap_row_pair(const unsigned char *a, const unsigned char *b, float u, float v, size_t count,
                                  bool first, float *sum) {
    if (first) {
        for (size_t i = 0; i < count; i++) sum[i] = u * (float)a[i] + v * (float)b[i];
    } else {
        for (size_t i = 0; i < count; i++) sum[i] += u * (float)a[i] + v * (float)b[i];
    }
}

static void mirt__pixmap_rows(const mirt__pixmap *resize, const mirt__pixmap_axis *axis, int y, float *sum) {
    const unsigned char *row = resize->pixels + (size_t)axis->first[y] * resize->stride;
    const float *weight = axis->weight + y * axis->taps;
    size_t count = (size_t)resize->width * (size_t)resize->channels;
    for (int t = 0; t < axis->taps; t += 2) {
        bool pair = t + 1 < axis->taps;
        const unsigned char *other = pair ? row + (size_t)(t + 1) * resize->stride : row + (size_t)t * resize->stride;
        mirt__pixmap_row_pair(row + (size_t)t * resize->stride, other, weight[t], pair ? weight[t + 1] : 0, count,
                              t == 0, sum);
    }
}

/* Three or four channels as overlapping vectors of four: the next pixel overwrites the surplus of a pixel with three
   channels. */
static void mirt__pixmap_columns_wide(const mirt__pixmap_axis *axis, int channels, const float *row, float *out,
                                      int end) {
    const int taps = axis->taps;
    for (int x = 0; x < end; x++) {
        const float *p = row + axis->first[x] * channels, *weight = axis->weight + x * taps;
        mirt__pixmap_four sum = *(const mirt__pixmap_four *)p * weight[0];
        for (int t = 1; t < taps; t++) sum += *(const mirt__pixmap_four *)(p + t * channels) * weight[t];
        *(mirt__pixmap_four *)(out + x * channels) = sum;
    }
}

static void mirt__pixmap_columns_two(const mirt__pixmap_axis *axis, int channels, const float *row, float *out,
                                     int end) {
    for (int x = 0; x < end; x++) {
        const float *p = row + axis->first[x] * channels, *weight = axis->weight + 2 * x;
        *(mirt__pixmap_four *)(out + x * channels) =
            *(const mirt__pixmap_four *)p * weight[0] + *(const mirt__pixmap_four *)(p + channels) * weight[1];
    }
}

static void mirt__pixmap_columns(const mirt__pixmap_axis *axis, int channels, const float *row, float *out) {
    int wide = channels == 4 ? axis->out : channels == 3 ? axis->out - 1 : 0;
    if (axis->taps == 2) mirt__pixmap_columns_two(axis, channels, row, out, wide);
    else mirt__pixmap_columns_wide(axis, channels, row, out, wide);
    for (int x = wide; x < axis->out; x++) {
        for (int c = 0; c < channels; c++) {
            float sum = 0;
            for (int t = 0; t < axis->taps; t++)
                sum += row[(axis->first[x] + t) * channels + c] * axis->weight[x * axis->taps + t];
            out[x * channels + c] = sum;
        }
    }
}

static void mirt__pixmap_round(const float *from, size_t count, unsigned char *to) {
    for (size_t i = 0; i < count; i++) {
        float value = from[i] < 0 ? 0 : from[i] > 255 ? 255 : from[i];
        to[i] = (unsigned char)(int)(value + 0.5f);
    }
}

/* >>both axes */

/* Divides memory among the weights of both axes and a row of each kind, or only counts bytes; 0 on overflow. */
static size_t mirt__pixmap_lay(const mirt__pixmap *resize, void *memory, mirt__pixmap_axis axis[2], float *row[2]) {
    size_t at = 0, bytes;
    for (int k = 0; k < 2; k++) {
        axis[k].in = k ? resize->width : resize->height;
        axis[k].out = k ? resize->out_width : resize->out_height;
        axis[k].taps = mirt__pixmap_axis_taps(resize, axis[k].in, axis[k].out);
        if (!mirt__mul_size((size_t)axis[k].out, ((size_t)axis[k].taps + 1) * 4, &bytes) || bytes > (size_t)INT32_MAX)
            return 0;
        axis[k].weight = memory ? (float *)(void *)((char *)memory + at) : NULL;
        axis[k].first = memory ? (int *)(void *)(axis[k].weight + (size_t)axis[k].out * (size_t)axis[k].taps) : NULL;
        at += mirt__align_up(bytes);
    }
    for (int k = 0; k < 2; k++) {
        int width = k ? resize->out_width : resize->width;
        if (width > INT32_MAX / 16 - 4) return 0;
        row[k] = memory ? (float *)(void *)((char *)memory + at) : NULL;
        /* vectors of four read beyond the last pixel */
        at += mirt__align_up(((size_t)width * (size_t)resize->channels + 4) * sizeof(float));
    }
    return at;
}

MIRT__LIB size_t mirt__pixmap_memory(const mirt__pixmap *resize) {
    mirt__pixmap_axis axis[2];
    float *row[2];
    return mirt__pixmap_lay(resize, NULL, axis, row);
}

MIRT__LIB void mirt__pixmap_run(const mirt__pixmap *resize, void *memory, void *out) {
    mirt__pixmap_axis axis[2];
    float *row[2];
    mirt__pixmap_lay(resize, memory, axis, row);
    for (int k = 0; k < 2; k++) mirt__pixmap_axis_set(&axis[k], resize);
    memset(row[0] + resize->width * resize->channels, 0, 4 * sizeof(float));
    for (int y = 0; y < resize->out_height; y++) {
        bool bytes = resize->dtype == MIRT_UINT8;
        size_t place = (size_t)y * resize->out_stride;
        mirt__pixmap_rows(resize, &axis[0], y, row[0]);
        mirt__pixmap_columns(&axis[1], resize->channels, row[0], bytes ? row[1] : (float *)out + place);
        if (bytes)
            mirt__pixmap_round(row[1], (size_t)resize->out_width * (size_t)resize->channels,
                               (unsigned char *)out + place);
    }
}

#include "../kernels/optimize_end.inc"

MIRT__LIB bool mirt__pixmap_matrix(mirt_interpolation interpolation, bool antialias, int in, int out, float *matrix) {
    mirt__pixmap_axis axis;
    mirt__pixmap resize;
    memset(&resize, 0, sizeof resize);
    resize.interpolation = interpolation;
    resize.antialias = antialias;
    axis.in = in;
    axis.out = out;
    axis.taps = mirt__pixmap_axis_taps(&resize, in, out);
    axis.weight = (float *)mirt__calloc((size_t)out, ((size_t)axis.taps + 1) * sizeof(float));
    if (!axis.weight) return false;
    axis.first = (int *)(void *)(axis.weight + (size_t)out * (size_t)axis.taps);
    mirt__pixmap_axis_set(&axis, &resize);
    memset(matrix, 0, (size_t)in * (size_t)out * sizeof *matrix);
    for (int i = 0; i < out * axis.taps; i++)
        matrix[(size_t)(axis.first[i / axis.taps] + i % axis.taps) * (size_t)out + (size_t)(i / axis.taps)] +=
            axis.weight[i];
    mirt__free(axis.weight);
    return true;
}

MIRT__LIB mirt__pixmap mirt__pixmap_of(const mirt_image *image, int height, int width, mirt_interpolation interpolation,
                                       bool antialias) {
    mirt__pixmap resize;
    memset(&resize, 0, sizeof resize);
    resize.pixels = image->pixels;
    resize.height = image->height;
    resize.width = image->width;
    resize.channels = image->channels;
    resize.stride = (size_t)image->width * (size_t)image->channels;
    resize.out_height = height;
    resize.out_width = width;
    resize.out_stride = (size_t)width * (size_t)image->channels;
    resize.interpolation = interpolation;
    resize.antialias = antialias;
    return resize;
}

MIRT_API mirt_status mirt_resize_image(const mirt_image *image, int height, int width, mirt_interpolation interpolation,
                                       bool antialias, float *out) {
    MIRT__ENTER;
    if (!image || !image->pixels) return mirt__fail_missing(__func__, "image");
    if (!out) return mirt__fail_missing(__func__, "out");
    if (image->width < 1 || image->height < 1 || image->channels < 1 || image->channels > 4 || height < 1 || width < 1)
        return mirt__fail(MIRT_E_INVALID,
                          "mirt_resize_image: from %d x %d pixels of %d channels to %d x %d: all must be positive",
                          image->width, image->height, image->channels, width, height);
    if ((int)interpolation < 0 || interpolation >= MIRT__INTERPOLATION_COUNT)
        return mirt__fail(MIRT_E_INVALID, "mirt_resize_image: invalid interpolation (%d)", (int)interpolation);
    const mirt__pixmap resize = mirt__pixmap_of(image, height, width, interpolation, antialias);
    size_t bytes = mirt__pixmap_memory(&resize);
    if (!bytes) return mirt__fail(MIRT_E_INVALID, "mirt_resize_image: %d x %d pixels are too many", width, height);
    void *memory = mirt__aligned_alloc(bytes);
    if (!memory) return MIRT_E_NOMEM;
    mirt__pixmap_run(&resize, memory, out);
    mirt__aligned_free(memory);
    return MIRT_OK;
}
