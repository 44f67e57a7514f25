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
    float *mean;                                /* [images][c], of contrast */
    int h, w, line, c, oh, ow, at_y,
        at_x; /* the part of x that is read begins at (at_y, at_x); line: numbers in a row of x */
    int64_t x_image, y_image;                   /* numbers in images */
    int parts;                                  /* blocks of an image */
    mirt__cu_divisor by_parts, by_line;         /* by_line: of y */
} mirt__cu_augment;

/* >>what is drawn */

static inline __device__ void mirt__cu_augment_draw(const mirt__cu_augment &a, int k, int64_t image, double out[4]) {
    mirt__transform_draw(&a.transform[k], a.numbers->seed, a.numbers->first_row + (uint64_t)image, a.numbers->step,
                         out);
}
/* Of all transforms of the pass, one after the other, as float. */
static __device__ void mirt__cu_augment_matrices(const mirt__cu_augment &a, int64_t image, float *to) {
    double m[6], next[6], drawn[4];
    for (int k = a.first; k < a.end; k++) {
        mirt__cu_augment_draw(a, k, image, drawn);
        mirt__transform_matrix(&a.transform[k], drawn, k == a.first ? m : next);
        if (k > a.first) mirt__transform_then(m, next);
    }
    for (int i = 0; i < 6; i++) to[i] = (float)m[i];
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
    MIRT_SHARED(float, m, 6);
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

/* The mean of each channel of image blockIdx.x; thread t has channel t % c of every some pixels. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_means(mirt__cu_augment a) {
    MIRT_SHARED(double, room, 256);
    const int t = (int)threadIdx.x, threads = 256 / a.c * a.c;
    const int64_t image = blockIdx.x;
    double sum = 0;
    for (int64_t i = t; t < threads && i < a.x_image; i += threads)
        sum += (double)mirt__cu_load(a.x, a.x_dtype, image * a.x_image + i);
    room[t] = sum;
    __syncthreads();
    if (t >= a.c) return;
    for (int i = t + a.c; i < threads; i += a.c) sum += room[i];
    a.mean[image * a.c + t] = (float)(sum / (double)(a.x_image / a.c));
}
/* (x - mean) * factor + mean + shift, clipped. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_values(mirt__cu_augment a) {
    MIRT_SHARED(float, drawn, 2);
    MIRT_SHARED(float, mean, MIRT__CU_AUGMENT_CHANNELS);
    const int64_t image = mirt__cu_divide32(blockIdx.x, a.by_parts);
    const int part = (int)(blockIdx.x - image * a.parts), each = MIRT__CU_AUGMENT_PIXELS, begin = part * each;
    const int end = a.x_image - begin < each ? (int)a.x_image : begin + each, c = a.mean ? a.c : 1;
    const mirt__transform &t = a.transform[a.first];
    const float low = t.range[0], high = t.range[1];
    if (threadIdx.x == 0) {
        double numbers[4];
        mirt__cu_augment_draw(a, a.first, image, numbers);
        const float amount = (float)mirt__transform_amount(&t, numbers);
        drawn[0] = a.mean ? amount : 1.0f;
        drawn[1] = a.mean ? 0.0f : amount;
    }
    if ((int)threadIdx.x < c) mean[threadIdx.x] = a.mean ? a.mean[image * a.c + threadIdx.x] : 0.0f;
    __syncthreads();
    const float factor = drawn[0], shift = drawn[1];
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        const float x = mirt__cu_load(a.x, a.x_dtype, image * a.x_image + i),
                    middle = mean[c > 1 ? i - (int)mirt__cu_divide32((uint32_t)i, a.by_line) * c : 0];
        const float v = __fadd_rn(__fadd_rn(__fmul_rn(x - middle, factor), middle), shift);
        a.y[image * a.x_image + i] = v < low ? low : v > high ? high : v;
    }
}

/* Hue or saturation. */
static __global__ __launch_bounds__(256) void mirt__cu_augment_colors(mirt__cu_augment a) {
    MIRT_SHARED(float, amount, 1);
    const int64_t image = mirt__cu_divide32(blockIdx.x, a.by_parts);
    const int part = (int)(blockIdx.x - image * a.parts), each = MIRT__CU_AUGMENT_PIXELS, begin = part * each;
    const int pixels = (int)(a.x_image / 3), end = pixels - begin < each ? pixels : begin + each;
    const mirt__transform &t = a.transform[a.first];
    if (threadIdx.x == 0) {
        double numbers[4];
        mirt__cu_augment_draw(a, a.first, image, numbers);
        amount[0] = (float)mirt__transform_amount(&t, numbers);
    }
    __syncthreads();
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        const int64_t at = image * a.x_image + 3 * (int64_t)i;
        float rgb[3];
        for (int j = 0; j < 3; j++) rgb[j] = mirt__cu_load(a.x, a.x_dtype, at + j);
        mirt__transform_color(&t, amount[0], rgb);
        for (int j = 0; j < 3; j++) a.y[at + j] = rgb[j];
    }
}
static __global__ __launch_bounds__(256) void mirt__cu_augment_erase(mirt__cu_augment a) {
    MIRT_SHARED(int64_t, erased, 4);
    const int64_t image = mirt__cu_divide32(blockIdx.x, a.by_parts);
    const int part = (int)(blockIdx.x - image * a.parts), each = MIRT__CU_AUGMENT_PIXELS, begin = part * each;
    const int end = a.x_image - begin < each ? (int)a.x_image : begin + each;
    const mirt__transform &t = a.transform[a.first];
    const uint64_t seed = a.numbers->seed, row = a.numbers->first_row + (uint64_t)image, step = a.numbers->step;
    if (threadIdx.x == 0 && !mirt__transform_part(&t, seed, row, step, erased)) erased[1] = erased[0];
    __syncthreads();
    for (int i = begin + (int)threadIdx.x; i < end; i += (int)blockDim.x) {
        const int pixel = i / a.c, y = pixel / (int)t.w, x = pixel - y * (int)t.w;
        float v = mirt__cu_load(a.x, a.x_dtype, image * a.x_image + i), four[4];
        if (y >= erased[0] && y < erased[1] && x >= erased[2] && x < erased[3]) {
            mirt__transform_erased(&t, seed, row, step, (uint32_t)(i / 4), four);
            v = four[i % 4];
        }
        a.y[image * a.x_image + i] = v;
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
/* Number a.first, from x to y. */
static void mirt__cu_augment_run_values(mirt__cu *cu, mirt__cu_augment a, const mirt__transform *t, int64_t rows) {
    const mirt_augmentation_kind kind = t[a.first].kind;
    const bool colors = kind == MIRT_RANDOM_HUE || kind == MIRT_RANDOM_SATURATION;
    if (colors || kind == MIRT_RANDOM_ERASING) {
        const unsigned parts = mirt__cu_augment_blocks(&a, colors ? a.x_image / 3 : a.x_image, rows);
        if (colors) MIRT_LAUNCH(cu, mirt__cu_augment_colors, parts, 256, 0, a);
        else MIRT_LAUNCH(cu, mirt__cu_augment_erase, parts, 256, 0, a);
        return;
    }
    a.by_line = mirt__cu_divisor_of(a.c);
    if (kind != MIRT_RANDOM_CONTRAST) a.mean = NULL;
    else MIRT_LAUNCH(cu, mirt__cu_augment_means, (unsigned)rows, 256, 0, a);
    const unsigned blocks = mirt__cu_augment_blocks(&a, a.x_image, rows);
    MIRT_LAUNCH(cu, mirt__cu_augment_values, blocks, 256, 0, a);
}

static void mirt__cu_augment_all(const mirt__augment_rows *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__transform *const t = args->transform;
    mirt__cu_augment_numbers numbers;
    mirt__cu_augment a;
    int warps = 0, turn = 0;
    bool values = false;
    int64_t most = 0; /* numbers in the largest image between two passes */
    if (args->rows == 0 || args->count < 1) return;
    for (int i = 0, end; i < args->count; i = end) {
        const mirt__transform_pass pass = mirt__transform_pass_of(t, args->count, i);
        const mirt__transform *last = &t[pass.end - 1];
        end = pass.end;
        warps += pass.moves;
        values = values || !pass.moves;
        if (end < args->count && last->oh * last->ow * last->c > most) most = last->oh * last->ow * last->c;
    }
    /* An image goes to y with the last warp; those before it, and values that come before it, to one of two places. */
    const bool leads = !mirt__transform_pass_of(t, args->count, 0).moves;
    const int between = warps - (leads && warps > 0 ? 0 : 1), buffers = between > 2 ? 2 : between < 0 ? 0 : between;
    const int64_t half = mirt__cu_ceil(args->rows * most * 4, 256) * 256,
                  means = values ? mirt__cu_ceil(args->rows * t[0].c * 4, 256) * 256 : 0;
    char *room = static_cast<char *>(mirt__cu_room(cu, (size_t)(means + buffers * half)));
    memset(&numbers, 0, sizeof numbers);
    numbers.seed = args->seed;
    numbers.first_row = args->first_row;
    numbers.step = args->step;
    memset(&a, 0, sizeof a);
    a.transform = static_cast<const mirt__transform *>(mirt__cu_constant_copy(cu, t, (size_t)args->count * sizeof *t));
    a.numbers = static_cast<const mirt__cu_augment_numbers *>(mirt__cu_number(cu, &numbers, sizeof numbers));
    a.mean = (float *)room;
    a.x = args->x;
    a.x_dtype = args->x_dtype;
    a.c = (int)t[0].c;
    for (int i = 0, end; i < args->count; i = end) {
        const mirt__transform_pass pass = mirt__transform_pass_of(t, args->count, i);
        float *const old = a.x == args->x ? NULL : a.y;
        end = pass.end;
        warps -= pass.moves;
        a.first = i;
        a.x_image = t[i].h * t[i].w * t[i].c;
        if (pass.moves || !old)
            a.y = warps == 0 ? args->y : room ? (float *)(room + means + (turn++ & 1) * half) : NULL;
        if (pass.moves) mirt__cu_augment_run_warp(cu, a, &pass, t, args->rows);
        for (; !pass.moves && a.first < end; a.first++) {
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
