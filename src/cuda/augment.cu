/* Random transforms of images, as src/kernels/augment.c. Consecutive transforms that move pixels are one warp, whose
   matrix each block draws; transforms of values run over the image in place. */
#include "../kernels/transform.h"
#include "math.cuh"

#define MIRT__CU_AUGMENT_CHANNELS 64 /* whose contrast can change */
#define MIRT__CU_AUGMENT_PIXELS 2048 /* of a block */

/* What changes from step to step. */
typedef struct mirt__cu_augment_numbers {
    uint64_t seed, first_row, step;
} mirt__cu_augment_numbers;

/* A pass of transforms [first, end) over all images. */
typedef struct mirt__cu_augment {
    const mirt__transform *transform; /* on the device */
    const mirt__cu_augment_numbers *numbers;
    int first, end;
    const void *x;
    float *y;
    mirt_dtype x_dtype;
    mirt_fill_mode fill;
    bool nearest;
    float value;
    float *measured;                            /* of each channel of each image */
    float *kept;                                /* of each image two images, of AugMix, or the noise that moves it */
    int h, w, line, c, oh, ow, at_y,
        at_x; /* the part of x that is read begins at (at_y, at_x); line: numbers in a row of x */
    int64_t x_image, y_image;                   /* numbers in images */
    int parts;                                  /* blocks of an image */
    mirt__cu_divisor by_parts, by_line;         /* by_line: of y */
} mirt__cu_augment;

/* >>what is drawn */

/* Of all transforms of the pass, one after the other, as float. */
static __device__ void mirt__cu_augment_matrices(const mirt__cu_augment &a, int64_t image, float *to) {
    double m[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, next[9], drawn[4];
    const uint64_t seed = a.numbers->seed, row = a.numbers->first_row + (uint64_t)image, step = a.numbers->step;
    for (int k = a.first; k < a.end; k++) {
        if (!mirt__transform_applies(&a.transform[k], seed, row, step)) continue;
        mirt__transform_draw(&a.transform[k], seed, row, step, drawn);
        mirt__transform_matrix(&a.transform[k], drawn, next);
        mirt__transform_then(m, next);
    }
    for (int i = 0; i < 9; i++) to[i] = (float)m[i];
}

/* >>one affine warp */

/* As TensorFlow's MapCoordinate, which may lie half a pixel beyond the edge pixels' centers: they are repeated. */
static inline __device__ float mirt__cu_augment_inside(mirt_fill_mode fill, float at, int length) {
    const float last = (float)(length - 1), twice = (float)(2 * (int64_t)length), once = (float)length;
    if (last == 0 && fill != MIRT_FILL_CONSTANT) return 0;
    if (fill == MIRT_FILL_CONSTANT) return at < -2 ? -2.0f : at > once + 1 ? once + 1 : at;
    if (fill == MIRT_FILL_REFLECT && at < 0) {
        if (at <= -twice) at = __fadd_rn(at, __fmul_rn(twice, (float)(int64_t)(-at / twice)));
        at = at < -once ? at + twice : -at - 1;
    } else if (fill == MIRT_FILL_REFLECT && at > last) {
        if (at >= twice) at = __fsub_rn(at, __fmul_rn(twice, (float)(int64_t)(at / twice)));
        if (at >= once) at = twice - at - 1;
    } else if (fill == MIRT_FILL_WRAP && at < 0) {
        at = __fadd_rn(at, __fmul_rn(once, (float)((int64_t)(-at / last) + 1)));
    } else if (fill == MIRT_FILL_WRAP && at > last) {
        at = __fsub_rn(at, __fmul_rn(once, (float)(int64_t)(at / last)));
    }
    return at < 0 ? 0.0f : at > last ? last : at;
}
/* Half away from zero, as std::round; what is left of the image stays there. */
static inline __device__ int mirt__cu_augment_nearest(float at) {
    const int whole = (int)at;
    return at <= -0.5f ? -1 : whole + (at - (float)whole >= 0.5f ? 1 : 0);
}
/* Channel j of a pixel of the image at x, wherever it is. */
template <class T>
static inline __device__ float mirt__cu_augment_read(const mirt__cu_augment &a, const T *x, int row, int column,
                                                     int j) {
    if (row < 0 || row >= a.h || column < 0 || column >= a.w) return a.value;
    return (float)x[(int64_t)row * a.line + (int64_t)column * a.c + j];
}

template <class T> static __global__ __launch_bounds__(256) void mirt__cu_augment_warp(mirt__cu_augment a) {
    MIRT_SHARED(float, m, 9);
    const int64_t image = mirt__cu_divide32(blockIdx.x, a.by_parts);
    const int part = (int)(blockIdx.x - image * a.parts), pixels = a.oh * a.ow, begin = part * MIRT__CU_AUGMENT_PIXELS;
    const int end = pixels - begin < MIRT__CU_AUGMENT_PIXELS ? pixels : begin + MIRT__CU_AUGMENT_PIXELS;
    const T *x = static_cast<const T *>(a.x) + image * a.x_image + (int64_t)a.at_y * a.line + (int64_t)a.at_x * a.c;
    const float last_x = (float)(a.w - 1), last_y = (float)(a.h - 1);
    if (threadIdx.x == 0) mirt__cu_augment_matrices(a, image, m);
    __syncthreads();
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        const int oy = (int)mirt__cu_divide32((uint32_t)i, a.by_line), ox = i - oy * a.ow;
        float px = __fadd_rn(__fadd_rn(__fmul_rn(m[0], (float)ox), __fmul_rn(m[1], (float)oy)), m[2]);
        float py = __fadd_rn(__fadd_rn(__fmul_rn(m[3], (float)ox), __fmul_rn(m[4], (float)oy)), m[5]);
        const float by = __fadd_rn(__fadd_rn(__fmul_rn(m[6], (float)ox), __fmul_rn(m[7], (float)oy)), m[8]);
        px = __fdiv_rn(px, by);
        py = __fdiv_rn(py, by);
        if (!(px >= 0 && px <= last_x && py >= 0 && py <= last_y)) {
            px = mirt__cu_augment_inside(a.fill, px, a.w);
            py = mirt__cu_augment_inside(a.fill, py, a.h);
        }
        const bool outside = !(px > -1 && py > -1 && px < (float)a.w && py < (float)a.h);
        const int x0 = outside     ? -2
                       : a.nearest ? mirt__cu_augment_nearest(px)
                                   : (int)floorf(px),
                  y0 = outside     ? -2
                       : a.nearest ? mirt__cu_augment_nearest(py)
                                   : (int)floorf(py);
        const float fx = px - (float)x0, fy = py - (float)y0, gx = (float)x0 + 1 - px, gy = (float)y0 + 1 - py;
        float *y = a.y + image * a.y_image + (int64_t)i * a.c;
        const bool between = !a.nearest && !outside;
        for (int j = 0; j < a.c; j++) {
            float v = mirt__cu_augment_read<T>(a, x, y0, x0, j);
            if (between) {
                const float right = mirt__cu_augment_read<T>(a, x, y0, x0 + 1, j),
                            below = mirt__cu_augment_read<T>(a, x, y0 + 1, x0, j);
                v = gy * (gx * v + fx * right) +
                    fy * (gx * below + fx * mirt__cu_augment_read<T>(a, x, y0 + 1, x0 + 1, j));
            }
            y[j] = v;
        }
    }
}

/* >>values */

/* What pass a.first draws for one image. */
typedef struct mirt__cu_augment_drawn {
    uint64_t seed, row, step;
    double numbers[4];
    float amount[2];
    bool applies;
} mirt__cu_augment_drawn;

static inline __device__ void mirt__cu_augment_begin(const mirt__cu_augment &a, int64_t image,
                                                     mirt__cu_augment_drawn *out) {
    const mirt__transform &t = a.transform[a.first];
    out->seed = a.numbers->seed;
    out->row = a.numbers->first_row + (uint64_t)image;
    out->step = a.numbers->step;
    out->applies = mirt__transform_applies(&t, out->seed, out->row, out->step);
    mirt__transform_draw(&t, out->seed, out->row, out->step, out->numbers);
    for (int k = 0; k < 2; k++) out->amount[k] = (float)mirt__transform_amount(&t, k, out->numbers);
    if (t.kind == MIRT_AUG_MIX) mirt__transform_shares(&t, out->seed, out->row, out->step, out->amount);
}

/* The mean of each channel of image blockIdx.x, or its least and greatest number; thread t has channel t % c of every
   some pixels. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_statistics(mirt__cu_augment a) {
    MIRT_SHARED(double, sums, 256);
    MIRT_SHARED(double, more, 256);
    const int t = (int)threadIdx.x, threads = 256 / a.c * a.c;
    const int64_t image = blockIdx.x;
    const bool extremes = a.transform[a.first].kind == MIRT_AUTO_CONTRAST;
    double sum = extremes ? INFINITY : 0, most = -INFINITY;
    for (int64_t i = t; t < threads && i < a.x_image; i += threads) {
        const double x = (double)mirt__cu_load(a.x, a.x_dtype, image * a.x_image + i);
        sum = !extremes ? sum + x : x < sum ? x : sum;
        most = x > most ? x : most;
    }
    sums[t] = sum;
    more[t] = most;
    __syncthreads();
    if (t >= a.c) return;
    for (int i = t + a.c; i < threads; i += a.c) {
        sum = !extremes ? sum + sums[i] : sums[i] < sum ? sums[i] : sum;
        most = more[i] > most ? more[i] : most;
    }
    float *const to = a.measured + (image * a.c + t) * 2;
    to[0] = (float)(extremes ? sum : sum / (double)(a.x_image / a.c));
    to[1] = (float)most;
}
/* What the numbers of channel blockIdx.y of image blockIdx.x become, by their bin; the first is negative: they stay. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_levels(mirt__cu_augment a) {
    MIRT_SHARED(int32_t, count, MIRT__TRANSFORM_BINS);
    const mirt__transform &t = a.transform[a.first];
    const int64_t image = blockIdx.x;
    float *const to = a.measured + (image * a.c + blockIdx.y) * (MIRT__TRANSFORM_BINS + 1);
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = blockIdx.y + (int64_t)threadIdx.x * a.c; i < a.x_image; i += (int64_t)blockDim.x * a.c)
        atomicAdd(&count[mirt__transform_bin(&t, mirt__cu_load(a.x, a.x_dtype, image * a.x_image + i))], 1);
    __syncthreads();
    if (threadIdx.x == 0) to[0] = mirt__transform_equalized(&t, count, to + 1) ? 1.0f : -1.0f;
}
/* What the numbers of a tile become: tile and channel blockIdx.y of image blockIdx.x. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_tiles(mirt__cu_augment a) {
    MIRT_SHARED(int32_t, count, MIRT__TRANSFORM_BINS);
    const mirt__transform &t = a.transform[a.first];
    const int64_t image = blockIdx.x, high = mirt__transform_tile(t.h, t.bins),
                  wide = mirt__transform_tile(t.w, t.size);
    const int tiles = t.bins * t.size, channel = (int)blockIdx.y / tiles, tile = (int)blockIdx.y % tiles;
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < high * wide; i += blockDim.x) {
        const int64_t row = mirt__transform_mirrored(tile / t.size * high + i / wide, t.h),
                      column = mirt__transform_mirrored(tile % t.size * wide + i % wide, t.w),
                      at = image * a.x_image + (row * t.w + column) * a.c + channel;
        atomicAdd(&count[mirt__transform_byte(&t, mirt__cu_load(a.x, a.x_dtype, at))], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        mirt__transform_tile_levels(&t, count,
                                    a.measured + (image * gridDim.y + blockIdx.y) * MIRT__TRANSFORM_BINS);
}
/* Number i of an image that is changed, whose channel is j. */
static inline __device__ float mirt__cu_augment_value(const mirt__cu_augment &a, const mirt__transform &t,
                                                      const mirt__cu_augment_drawn &d, const mirt__transform_line *line,
                                                      const int64_t part[4], int64_t image, int i, float x) {
    if (t.kind == MIRT_EQUALIZATION) {
        const float *const level = a.measured + (image * a.c + i % a.c) * (MIRT__TRANSFORM_BINS + 1);
        return level[0] < 0 ? x : level[1 + mirt__transform_bin(&t, x)];
    }
    if (t.kind == MIRT_CLAHE) {
        const int pixel = i / a.c, row = pixel / (int)t.w, tiles = t.bins * t.size;
        const float *const level = a.measured + (image * a.c + i % a.c) * tiles * MIRT__TRANSFORM_BINS;
        return mirt__transform_tiled(&t, level, row, pixel - row * (int)t.w, x);
    }
    if (t.kind == MIRT_AUG_MIX) {
        float *const first = a.kept + image * 2 * a.x_image + i;
        return mirt__transform_mixed(&t, d.amount, x, first, first + a.x_image);
    }
    if (t.kind == MIRT_RANDOM_ERASING) {
        const int pixel = i / a.c, row = pixel / (int)t.w, column = pixel - row * (int)t.w;
        uint32_t word[4];
        if (row < part[0] || row >= part[1] || column < part[2] || column >= part[3]) return x;
        mirt__transform_words(t.key, d.seed, d.row, d.step, (uint32_t)(2 + i / 4), word);
        return mirt__transform_erased(&t, mirt__normal(word[i % 4]));
    }
    return line ? mirt__transform_linear_of(line, x) : mirt__transform_level(&t, d.amount, x);
}
/* Each number by itself. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_values(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_drawn, drawn, 1);
    MIRT_SHARED(mirt__transform_line, line, MIRT__CU_AUGMENT_CHANNELS);
    MIRT_SHARED(int64_t, erased, 4);
    const int64_t image = mirt__cu_divide32(blockIdx.x, a.by_parts);
    const int part = (int)(blockIdx.x - image * a.parts), each = MIRT__CU_AUGMENT_PIXELS, begin = part * each;
    const int end = a.x_image - begin < each ? (int)a.x_image : begin + each;
    const mirt__transform &t = a.transform[a.first];
    const bool linear = (mirt__transform_traits(t.kind) & MIRT__LINEAR) != 0,
               measures = (mirt__transform_traits(t.kind) & MIRT__MEASURES) != 0;
    const int c = measures ? a.c : 1;
    if (threadIdx.x == 0) {
        mirt__cu_augment_begin(a, image, drawn);
        if (t.kind == MIRT_RANDOM_ERASING) mirt__transform_part(&t, drawn->numbers, erased);
    }
    __syncthreads();
    if (linear && (int)threadIdx.x < c) {
        const float *const stat = a.measured + (image * a.c + threadIdx.x) * 2;
        line[threadIdx.x] =
            mirt__transform_line_of(&t, drawn->amount[0], measures ? stat[0] : 0.0f, measures ? stat[1] : 0.0f);
    }
    __syncthreads();
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        const int64_t at = image * a.x_image + i;
        const float x = mirt__cu_load(a.x, a.x_dtype, at);
        const int j = c > 1 ? i - (int)mirt__cu_divide32((uint32_t)i, a.by_line) * c : 0;
        a.y[at] = !drawn->applies ? x
                                  : mirt__cu_augment_value(a, t, *drawn, linear ? &line[j] : NULL, erased, image, i, x);
    }
}
/* Red, green and blue together. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_colors(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_drawn, drawn, 1);
    const int64_t image = mirt__cu_divide32(blockIdx.x, a.by_parts);
    const int part = (int)(blockIdx.x - image * a.parts), each = MIRT__CU_AUGMENT_PIXELS, begin = part * each;
    const int pixels = (int)(a.x_image / a.c), end = pixels - begin < each ? pixels : begin + each;
    if (threadIdx.x == 0) mirt__cu_augment_begin(a, image, drawn);
    __syncthreads();
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        const int64_t at = image * a.x_image + (int64_t)a.c * i;
        float rgb[3];
        for (int j = 0; j < a.c; j++) rgb[j] = mirt__cu_load(a.x, a.x_dtype, at + j);
        if (drawn->applies) mirt__transform_color(&a.transform[a.first], drawn->amount[0], rgb);
        for (int j = 0; j < a.c; j++) a.y[at + j] = rgb[j];
    }
}

/* Each number by its neighbors of the same channel: sums down the columns, then of these across. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_filter(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_drawn, drawn, 1);
    MIRT_SHARED(mirt__transform_filter, filter, 1);
    const int64_t image = mirt__cu_divide32(blockIdx.x, a.by_parts);
    const int part = (int)(blockIdx.x - image * a.parts), each = MIRT__CU_AUGMENT_PIXELS, begin = part * each;
    const int end = a.x_image - begin < each ? (int)a.x_image : begin + each;
    const mirt__transform &t = a.transform[a.first];
    const int line = (int)(t.w * t.c), c = (int)t.c, h = (int)t.h;
    if (threadIdx.x == 0) {
        mirt__cu_augment_begin(a, image, drawn);
        mirt__transform_filter_of(&t, drawn->numbers, filter);
    }
    __syncthreads();
    const mirt__transform_filter &f = *filter;
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        const int64_t at = image * a.x_image + i;
        const int row = i / line, column = i - row * line, reach = drawn->applies ? f.reach : -1;
        const float x = mirt__cu_load(a.x, a.x_dtype, at);
        float sum = 0;
        for (int k = -reach; k <= reach; k++) {
            float down = 0;
            if (column + k * c < 0 || column + k * c >= line) continue;
            for (int j = -reach; j <= reach; j++) {
                if (row + j < 0 || row + j >= h) continue;
                down += mirt__transform_times(
                    f.down[j + reach], mirt__cu_load(a.x, a.x_dtype, at + (int64_t)j * line + (int64_t)k * c));
            }
            sum += mirt__transform_times(f.across[k + reach], down);
        }
        a.y[at] = drawn->applies ? mirt__transform_filtered(&f, x, sum) : mirt__transform_unfiltered(&t, x);
    }
}

/* >>elastic transforms */

/* Numbers that an image keeps: its noise, this blurred across, and the kernel of the blur. */
MIRT__BOTH int64_t mirt__cu_augment_elastic_room(const mirt__transform *t) {
    return (4 * t->h + 1) * t->w;
}
/* What a block computes: numbers [begin, end) of `count` of an image. */
typedef struct mirt__cu_augment_share {
    mirt__cu_augment_drawn drawn;
    mirt__transform_elastic elastic;
    int64_t image, begin, end;
    float *room; /* the image's */
} mirt__cu_augment_share;
static __device__ void mirt__cu_augment_share_of(const mirt__cu_augment &a, int64_t count,
                                                 mirt__cu_augment_share *share) {
    if (threadIdx.x == 0) {
        share->image = mirt__cu_divide32(blockIdx.x, a.by_parts);
        share->begin = (int64_t)(blockIdx.x - share->image * a.parts) * MIRT__CU_AUGMENT_PIXELS;
        share->end = count - share->begin < MIRT__CU_AUGMENT_PIXELS ? count : share->begin + MIRT__CU_AUGMENT_PIXELS;
        share->room = a.kept + share->image * mirt__cu_augment_elastic_room(&a.transform[a.first]);
        mirt__cu_augment_begin(a, share->image, &share->drawn);
        share->elastic = mirt__transform_elastic_of(&a.transform[a.first], share->drawn.numbers);
    }
    __syncthreads();
}
static __global__ __launch_bounds__(256) void mirt__cu_augment_noise(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_share, own, 1);
    const mirt__transform &t = a.transform[a.first];
    const int64_t count = 2 * t.h * t.w;
    mirt__cu_augment_share_of(a, count, own);
    const mirt__cu_augment_drawn *const d = &own->drawn;
    if (own->begin == 0 && threadIdx.x == 0)
        mirt__transform_gauss(own->elastic.sigma, own->elastic.reach, own->room + 2 * count);
    for (int64_t i = own->begin + 4 * (int64_t)threadIdx.x; i < own->end && d->applies; i += 4 * blockDim.x) {
        uint32_t word[4];
        mirt__transform_words(t.key, d->seed, d->row, d->step, (uint32_t)(2 + i / 4), word);
        for (int k = 0; k < 4 && i + k < own->end; k++) own->room[i + k] = mirt__normal(word[k]);
    }
}
static __global__ __launch_bounds__(256) void mirt__cu_augment_across(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_share, own, 1);
    const mirt__transform &t = a.transform[a.first];
    const int64_t count = 2 * t.h * t.w;
    mirt__cu_augment_share_of(a, count, own);
    float *const noise = own->room;
    const int64_t reach = own->elastic.reach;
    const float *const kernel = noise + 2 * count + reach;
    for (int64_t i = own->begin + (int64_t)threadIdx.x; i < own->end && own->drawn.applies; i += blockDim.x) {
        const int64_t column = i % t.w;
        float sum = 0;
        for (int64_t k = -reach; k <= reach; k++) {
            if (column + k >= 0 && column + k < t.w) sum += mirt__transform_times(kernel[k], noise[i + k]);
        }
        noise[count + i] = sum;
    }
}
/* Blurs down, and reads the pixels where that moves them. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_elastic(mirt__cu_augment a) {
    MIRT_SHARED(mirt__cu_augment_share, own, 1);
    const mirt__transform &t = a.transform[a.first];
    const int64_t line = 2 * t.w, count = t.h * line;
    mirt__cu_augment_share_of(a, t.h * t.w, own);
    const mirt__transform_elastic *const e = &own->elastic;
    const float *const across = own->room + count, *const kernel = across + count + e->reach;
    const int64_t at = own->image * a.x_image;
    for (int64_t i = own->begin + (int64_t)threadIdx.x; i < own->end; i += blockDim.x) {
        const int64_t oy = i / t.w, ox = i % t.w;
        int64_t from[4] = {i, -1, -1, -1};
        float moved[2] = {0, 0}, share[4] = {1, 0, 0, 0};
        if (own->drawn.applies) {
            for (int64_t k = -e->reach; k <= e->reach; k++) {
                if (oy + k < 0 || oy + k >= t.h) continue;
                const float *const row = across + (oy + k) * line + ox;
                moved[0] += mirt__transform_times(kernel[k], row[0]);
                moved[1] += mirt__transform_times(kernel[k], row[t.w]);
            }
            mirt__transform_neighbors(&t, (float)ox + mirt__transform_times(e->by, moved[0]),
                                      (float)oy + mirt__transform_times(e->by, moved[1]), from, share);
        }
        for (int j = 0; j < a.c; j++) {
            float v = 0;
            for (int k = 0; k < 4; k++) {
                if (share[k] > 0)
                    v += mirt__transform_times(
                        share[k], from[k] < 0 ? t.value : mirt__cu_load(a.x, a.x_dtype, at + from[k] * a.c + j));
            }
            a.y[at + i * a.c + j] = mirt__transform_clip(v, t.range[0], t.range[1]);
        }
    }
}

/* >>a list of transforms */

/* Blocks of all images. */
static unsigned mirt__cu_augment_blocks(mirt__cu_augment *a, int64_t numbers, int64_t rows) {
    a->parts = (int)mirt__cu_ceil(numbers, MIRT__CU_AUGMENT_PIXELS);
    a->by_parts = mirt__cu_divisor_of(a->parts);
    return (unsigned)(a->parts * rows);
}
static void mirt__cu_augment_run_warp(mirt__cu *cu, mirt__cu_augment a, const mirt__transform_pass *pass,
                                      const mirt__transform *t, int64_t rows) {
    const mirt__transform *const first = &t[a.first], *const last = &t[pass->end - 1];
    int64_t begin[2] = {0, 0}, size[2] = {first->h, first->w};
    if (mirt__transform_fits(first)) mirt__transform_window(first, begin, size);
    a.end = pass->end;
    a.h = (int)size[0];
    a.w = (int)size[1];
    a.at_y = (int)begin[0];
    a.at_x = (int)begin[1];
    a.line = (int)(first->w * first->c);
    a.oh = (int)last->oh;
    a.ow = (int)last->ow;
    a.fill = pass->fill;
    a.nearest = pass->nearest;
    a.value = pass->value;
    a.y_image = last->oh * last->ow * last->c;
    a.by_line = mirt__cu_divisor_of(a.ow);
    const unsigned blocks = mirt__cu_augment_blocks(&a, (int64_t)a.oh * a.ow, rows);
    if (a.x_dtype == MIRT_UINT8) MIRT_LAUNCH(cu, (mirt__cu_augment_warp<uint8_t>), blocks, 256, 0, a);
    else MIRT_LAUNCH(cu, (mirt__cu_augment_warp<float>), blocks, 256, 0, a);
}
/* Number a.first, which filters. */
static void mirt__cu_augment_run_filter(mirt__cu *cu, mirt__cu_augment a, const mirt__transform *t, int64_t rows) {
    if (t->kind != MIRT_RANDOM_ELASTIC_TRANSFORM) {
        const unsigned blocks = mirt__cu_augment_blocks(&a, a.x_image, rows);
        MIRT_LAUNCH(cu, mirt__cu_augment_filter, blocks, 256, 0, a);
        return;
    }
    const unsigned twice = mirt__cu_augment_blocks(&a, 2 * t->h * t->w, rows);
    MIRT_LAUNCH(cu, mirt__cu_augment_noise, twice, 256, 0, a);
    MIRT_LAUNCH(cu, mirt__cu_augment_across, twice, 256, 0, a);
    const unsigned once = mirt__cu_augment_blocks(&a, t->h * t->w, rows);
    MIRT_LAUNCH(cu, mirt__cu_augment_elastic, once, 256, 0, a);
}
/* Number a.first, from x to y. */
static void mirt__cu_augment_run_values(mirt__cu *cu, mirt__cu_augment a, const mirt__transform *t, int64_t rows) {
    const mirt_augmentation_kind kind = t[a.first].kind;
    const int traits = mirt__transform_traits(kind);
    const bool colors = (traits & MIRT__COLORS) != 0;
    const unsigned blocks = mirt__cu_augment_blocks(&a, colors ? a.x_image / a.c : a.x_image, rows);
    a.by_line = mirt__cu_divisor_of(a.c);
    if (colors) {
        MIRT_LAUNCH(cu, mirt__cu_augment_colors, blocks, 256, 0, a);
        return;
    }
    if (traits & MIRT__MEASURES) MIRT_LAUNCH(cu, mirt__cu_augment_statistics, (unsigned)rows, 256, 0, a);
    if (kind == MIRT_EQUALIZATION)
        MIRT_LAUNCH(cu, mirt__cu_augment_levels, dim3((unsigned)rows, (unsigned)a.c), MIRT__TRANSFORM_BINS, 0, a);
    if (kind == MIRT_CLAHE) {
        const unsigned tiles = (unsigned)(a.c * t[a.first].bins * t[a.first].size);
        MIRT_LAUNCH(cu, mirt__cu_augment_tiles, dim3((unsigned)rows, tiles), MIRT__TRANSFORM_BINS, 0, a);
    }
    MIRT_LAUNCH(cu, mirt__cu_augment_values, blocks, 256, 0, a);
}

static void mirt__cu_augment_all(const mirt__augment_rows *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__transform *const t = args->transform;
    mirt__cu_augment_numbers numbers;
    mirt__cu_augment a;
    int warps = 0, turn = 0;
    int measured = 0; /* numbers of each channel */
    int64_t most = 0, kept = 0; /* numbers in the largest image between two passes, and that an image keeps */
    if (args->rows == 0 || args->count < 1) return;
    for (int i = 0, end; i < args->count; i = end) {
        const mirt__transform_pass pass = mirt__transform_pass_of(t, args->count, i);
        const mirt__transform *last = &t[pass.end - 1];
        end = pass.end;
        warps += pass.remakes;
        for (int k = i; k < end; k++) {
            const int each = t[k].kind == MIRT_EQUALIZATION ? MIRT__TRANSFORM_BINS + 1
                             : t[k].kind == MIRT_CLAHE      ? MIRT__TRANSFORM_BINS * t[k].bins * t[k].size
                                                            : 2;
            const int64_t keeps = t[k].kind == MIRT_AUG_MIX                    ? 2 * t[k].h * t[k].w * t[k].c
                                  : t[k].kind == MIRT_RANDOM_ELASTIC_TRANSFORM ? mirt__cu_augment_elastic_room(&t[k])
                                                                               : 0;
            if (keeps > kept) kept = keeps;
            if ((each > 2 || (mirt__transform_traits(t[k].kind) & MIRT__MEASURES)) && each > measured) measured = each;
        }
        if (end < args->count && last->oh * last->ow * last->c > most) most = last->oh * last->ow * last->c;
    }
    /* An image goes to y with the last warp; those before it, and values that come before it, to one of two places. */
    const bool leads = !mirt__transform_remakes(&t[0]);
    const int between = warps - (leads && warps > 0 ? 0 : 1), buffers = between > 2 ? 2 : between < 0 ? 0 : between;
    const int64_t half = mirt__cu_ceil(args->rows * most * 4, 256) * 256,
                  means = mirt__cu_ceil(args->rows * t[0].c * measured * 4, 256) * 256;
    char *room = static_cast<char *>(mirt__cu_room(cu, (size_t)(means + buffers * half + args->rows * kept * 4)));
    memset(&numbers, 0, sizeof numbers);
    numbers.seed = args->seed;
    numbers.first_row = args->first_row;
    numbers.step = args->step;
    memset(&a, 0, sizeof a);
    a.transform = static_cast<const mirt__transform *>(mirt__cu_constant_copy(cu, t, (size_t)args->count * sizeof *t));
    a.numbers = static_cast<const mirt__cu_augment_numbers *>(mirt__cu_number(cu, &numbers, sizeof numbers));
    a.measured = (float *)room;
    a.kept = kept ? (float *)(room + means + buffers * half) : NULL;
    a.x = args->x;
    a.x_dtype = args->x_dtype;
    a.c = (int)t[0].c;
    for (int i = 0, end; i < args->count; i = end) {
        const mirt__transform_pass pass = mirt__transform_pass_of(t, args->count, i);
        float *const old = a.x == args->x ? NULL : a.y;
        end = pass.end;
        warps -= pass.remakes;
        a.first = i;
        a.x_image = t[i].h * t[i].w * t[i].c;
        if (pass.remakes || !old)
            a.y = warps == 0 ? args->y : room ? (float *)(room + means + (turn++ & 1) * half) : NULL;
        if (pass.moves) mirt__cu_augment_run_warp(cu, a, &pass, t, args->rows);
        if (pass.remakes && !pass.moves) mirt__cu_augment_run_filter(cu, a, &t[i], args->rows);
        for (; !pass.remakes && a.first < end; a.first++) {
            mirt__cu_augment_run_values(cu, a, t, args->rows);
            a.x = a.y;
            a.x_dtype = MIRT_FLOAT32;
        }
        a.x = a.y;
        a.x_dtype = MIRT_FLOAT32;
    }
}
#undef MIRT__CU_AUGMENT_CHANNELS
#undef MIRT__CU_AUGMENT_PIXELS
