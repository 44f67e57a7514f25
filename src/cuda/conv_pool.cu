/* Convolutions fused with 2x2 max pooling. Values that pooling drops are never stored; the first layers of small
   networks are of this kind. */
#include "cuda.cuh"
#include "parts.cuh"
#include "reader.cuh"

/* Tiles of windows of an image: the input below one is read into shared memory once, where it has room and is plain.
   Lanes are channels of y, and the eight warps of a block share its windows. */
struct mirt__cu_pooled : mirt__conv {
    mirt__cu_reader x;
    int64_t across, down;               /* windows of an image */
    int64_t image;                      /* elements of x in one */
    int taps;                           /* kh * kw * ci */
    int tile_h, tile_w, tiles_x, tiles; /* windows of a tile; tiles of an image */
    int patch_w, patch_h,
        pitch; /* what it reads of x: pixels; floats from row to row, of x itself where it has no room */
    int64_t all;                        /* tiles of all images */
};
#define MIRT__CU_POOLED_FLOATS 8192 /* of a patch, at most */

/* A tile's place. */
struct mirt__cu_pooled_tile {
    int64_t row, window; /* image; its first window in y */
    int64_t first;       /* element of x in its corner */
    int height, width;   /* in windows */
};
static inline __device__ mirt__cu_pooled_tile mirt__cu_pooled_at(const mirt__cu_pooled &p, int64_t number) {
    mirt__cu_pooled_tile t;
    t.row = number / p.tiles;
    const int rest = (int)(number - t.row * p.tiles), y = rest / p.tiles_x * p.tile_h, x = rest % p.tiles_x * p.tile_w;
    t.height = p.down - y < p.tile_h ? (int)p.down - y : p.tile_h;
    t.width = p.across - x < p.tile_w ? (int)p.across - x : p.tile_w;
    t.window = (t.row * p.down + y) * p.across + x;
    t.first = t.row * p.image + ((int64_t)2 * y * p.w + 2 * x) * p.ci;
    return t;
}
static inline __device__ void mirt__cu_pooled_patch(const mirt__cu_pooled &p, const mirt__cu_pooled_tile &t,
                                                    float *patch) {
    mirt__cu_reader x = p.x;
    x.kind = MIRT__CU_READ_PLAIN;
    const int line = (2 * t.width + p.kw - 1) * (int)p.ci, lines = 2 * t.height + p.kh - 1;
    for (int y = (int)threadIdx.y; y < lines; y += 8) {
        const int64_t from = t.first + y * p.w * p.ci;
        for (int i = (int)threadIdx.x; i < line; i += 32) patch[y * p.pitch + i] = mirt__cu_read_one(x, from + i);
    }
}

static inline __device__ void mirt__cu_pooled_leave(const float *sum, float bias, int64_t at, float *y,
                                                    uint8_t *which) {
    float best = sum[0] + bias;
    int place = 0;
#pragma unroll
    for (int i = 1; i < 4; i++) {
        const float other = sum[i] + bias;
        if (other > best) {
            best = other;
            place = i;
        }
    }
    y[at] = mirt__cu_activate(MIRT_RELU, best);
    if (which) which[at] = (uint8_t)(best > 0 ? place : 4);
}

/* K by K taps of C channels, or any with K 0, whose patches may be in memory. */
template <int K, int C, bool PATCHED>
static __global__ void __launch_bounds__(256)
    mirt__cu_pooled_forward(const mirt__cu_pooled p, const float *kernel, const float *bias, float *y, uint8_t *which) {
    MIRT_DYNAMIC_SHARED(float, patch);
    const int64_t o = (int64_t)blockIdx.y * 32 + threadIdx.x;
    const mirt__cu_pooled_tile t = mirt__cu_pooled_at(p, blockIdx.x);
    if (PATCHED) {
        mirt__cu_pooled_patch(p, t, patch);
        __syncthreads();
    }
    if (o >= p.co) return;
    const float add = bias ? bias[o] : 0;
    constexpr int TAPS = K * K * C > 0 ? K * K * C : 1;
    float weight[TAPS];
    if (K > 0) {
#pragma unroll
        for (int i = 0; i < TAPS; i++) weight[i] = kernel[i * p.co + o];
    }
    for (int i = (int)threadIdx.y; i < t.height * t.width; i += 8) {
        const int wy = i / t.width, wx = i % t.width;
        float sum[4] = {0, 0, 0, 0};
        if constexpr (K > 0) {
            /* Of each place in ascending order of taps; a row of x is read for two rows of places. */
            const float *from = patch + 2 * wy * p.pitch + 2 * wx * C;
            float line[2][(K + 1) * C];
#pragma unroll
            for (int j = 0; j < (K + 1) * C; j++) line[0][j] = from[j];
#pragma unroll
            for (int ky = 0; ky < K; ky++) {
                float *low = line[ky % 2], *high = line[(ky + 1) % 2];
#pragma unroll
                for (int j = 0; j < (K + 1) * C; j++) high[j] = from[(ky + 1) * p.pitch + j];
#pragma unroll
                for (int j = 0; j < K * C; j++) {
                    const float w = weight[ky * K * C + j];
                    sum[0] = fmaf(low[j], w, sum[0]);
                    sum[1] = fmaf(low[j + C], w, sum[1]);
                    sum[2] = fmaf(high[j], w, sum[2]);
                    sum[3] = fmaf(high[j + C], w, sum[3]);
                }
            }
        } else {
            const int ci = (int)p.ci;
            const int64_t corner = (int64_t)2 * wy * p.pitch + 2 * wx * ci;
            for (int ky = 0; ky < p.kh; ky++) {
                for (int j = 0; j < p.kw * ci; j++) {
                    const float w = kernel[(int64_t)(ky * p.kw * ci + j) * p.co + o];
                    const int64_t at = corner + (int64_t)ky * p.pitch + j;
#pragma unroll
                    for (int place = 0; place < 4; place++) {
                        const int64_t from = at + place / 2 * p.pitch + place % 2 * ci;
                        sum[place] = fmaf(PATCHED ? patch[from] : mirt__cu_read_one(p.x, t.first + from), w,
                                          sum[place]);
                    }
                }
            }
        }
        mirt__cu_pooled_leave(sum, add, (t.window + wy * p.across + wx) * p.co + o, y, which);
    }
}

/* Sums of some tiles: a thread has TAPS rows of dkernel in its column. Blocks of the same blockIdx.x have the same
   tiles; z: the first of those rows. Then all warps' sums are added up in their order. */
template <int TAPS, bool PATCHED>
static __global__ void __launch_bounds__(256)
    mirt__cu_pooled_grad(const mirt__cu_pooled p, int64_t each, const float *dy, const uint8_t *which, float *sums,
                         int64_t stride, float *bias_sums, int64_t bias_stride) {
    MIRT_DYNAMIC_SHARED(float, shared);
    float *total = shared, *patch = shared + (TAPS + 1) * 32;
    const int lane = (int)threadIdx.x, first_tap = (int)blockIdx.z * TAPS;
    const int64_t o = (int64_t)blockIdx.y * 32 + lane;
    const int64_t first = blockIdx.x * each, end = first + each < p.all ? first + each : p.all;
    int offset[TAPS];
    float sum[TAPS], dy_sum = 0;
#pragma unroll
    for (int i = 0; i < TAPS; i++) {
        const int tap = first_tap + i < p.taps ? first_tap + i : 0, line = p.kw * (int)p.ci;
        offset[i] = tap / line * p.pitch + tap % line;
        sum[i] = 0;
    }
    for (int64_t number = first; number < end; number++) {
        const mirt__cu_pooled_tile t = mirt__cu_pooled_at(p, number);
        if (PATCHED) {
            __syncthreads();
            mirt__cu_pooled_patch(p, t, patch);
            __syncthreads();
        }
        for (int i = (int)threadIdx.y; o < p.co && i < t.height * t.width; i += 8) {
            const int wy = i / t.width, wx = i % t.width;
            const int64_t at = (t.window + wy * p.across + wx) * p.co + o;
            const int place = which[at];
            if (place > 3) continue;
            const float d = dy[at];
            const int from = (2 * wy + place / 2) * p.pitch + (2 * wx + place % 2) * (int)p.ci;
            dy_sum += d;
#pragma unroll
            for (int j = 0; j < TAPS; j++) {
                const float x = PATCHED ? patch[from + offset[j]] : mirt__cu_read_one(p.x, t.first + from + offset[j]);
                sum[j] = fmaf(d, x, sum[j]);
            }
        }
    }
    for (int warp = 0; warp < 8; warp++) {
        if ((int)threadIdx.y == warp) {
#pragma unroll
            for (int j = 0; j < TAPS; j++) total[j * 32 + lane] = warp ? total[j * 32 + lane] + sum[j] : sum[j];
            total[TAPS * 32 + lane] = warp ? total[TAPS * 32 + lane] + dy_sum : dy_sum;
        }
        __syncthreads();
    }
    if (o >= p.co) return;
    for (int j = (int)threadIdx.y; j < TAPS && first_tap + j < p.taps; j += 8) {
        sums[blockIdx.x * stride + (int64_t)(first_tap + j) * p.co + o] = total[j * 32 + lane];
    }
    if (bias_sums && first_tap == 0 && threadIdx.y == 0)
        bias_sums[blockIdx.x * bias_stride + o] = total[TAPS * 32 + lane];
}

/* Tiles of some 64 windows, whose patches have room; *floats: of one, 0 where it has none. */
static mirt__cu_pooled mirt__cu_pooled_of(const mirt__conv *s, const mirt__reader *x, int *floats) {
    mirt__cu_pooled p;
    memset(&p, 0, sizeof p);
    static_cast<mirt__conv &>(p) = *s;
    p.x = mirt__cu_reader_of(x, s->ci);
    p.down = s->oh / 2;
    p.across = s->ow / 2;
    p.image = s->h * s->w * s->ci;
    p.taps = (int)(s->kh * s->kw * s->ci);
    p.tile_w = (int)(p.across < 16 ? p.across : 16);
    if (p.tile_w < 1) p.tile_w = 1;
    p.tile_h = 64 / p.tile_w;
    if (p.tile_h > p.down) p.tile_h = (int)(p.down < 1 ? 1 : p.down);
    for (;;) {
        p.patch_w = 2 * p.tile_w + p.kw - 1;
        p.patch_h = 2 * p.tile_h + p.kh - 1;
        *floats = 0;
        if (p.x.kind == MIRT__CU_READ_PLAIN && p.patch_w * p.ci * p.patch_h <= MIRT__CU_POOLED_FLOATS) {
            p.pitch = p.patch_w * (int)p.ci;
            *floats = p.pitch * p.patch_h;
            break;
        }
        p.pitch = (int)(p.w * p.ci);
        if (p.tile_h > 1) p.tile_h /= 2;
        else if (p.tile_w > 1) p.tile_w /= 2;
        else break;
    }
    p.tiles_x = (int)mirt__cu_ceil(p.across, p.tile_w);
    p.tiles = p.tiles_x * (int)mirt__cu_ceil(p.down, p.tile_h);
    p.all = s->rows * p.tiles;
    return p;
}

static void mirt__cu_conv_pool(const mirt__conv_pool *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__conv *s = &args->s;
    int floats;
    const mirt__cu_pooled p = mirt__cu_pooled_of(s, &args->x, &floats);
    if (p.all < 1 || p.co < 1) return;
    const bool patched = floats > 0, square = patched && p.kh == p.kw;
    const auto pooled = square && p.kh == 3 && p.ci == 1   ? mirt__cu_pooled_forward<3, 1, true>
                        : square && p.kh == 3 && p.ci == 3 ? mirt__cu_pooled_forward<3, 3, true>
                        : square && p.kh == 5 && p.ci == 1 ? mirt__cu_pooled_forward<5, 1, true>
                        : patched                          ? mirt__cu_pooled_forward<0, 0, true>
                                                           : mirt__cu_pooled_forward<0, 0, false>;
    MIRT_LAUNCH(cu, pooled, dim3((unsigned)p.all, (unsigned)mirt__cu_ceil(p.co, 32)), dim3(32, 8),
                patched ? (size_t)floats * sizeof(float) : 16, p, args->kernel, args->bias, args->y, args->which);
}

#define MIRT__CU_POOLED_PARTS 256
static void mirt__cu_conv_pool_weight_grad(const mirt__conv_pool_weight_grad *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const mirt__conv *s = &args->s;
    int floats;
    const mirt__cu_pooled p = mirt__cu_pooled_of(s, &args->x, &floats);
    if (p.co < 1 || p.taps < 1) return;
    int64_t parts = p.all < MIRT__CU_POOLED_PARTS ? p.all : MIRT__CU_POOLED_PARTS;
    const int64_t count = p.taps * p.co, stride = count + p.co;
    const int64_t most = ((int64_t)1 << 24) / stride;
    if (parts > most) parts = most;
    if (parts < 1) parts = 1;
    float *sums = NULL;
    if (parts > 1) sums = (float *)mirt__cu_room(cu, (size_t)(parts * stride) * sizeof(float));
    const int64_t each = mirt__cu_ceil(p.all, parts);
    parts = each > 0 ? mirt__cu_ceil(p.all, each) : 0;
    const int taps = floats == 0 ? 1 : p.taps <= 9 ? 9 : p.taps <= 27 ? 27 : 32;
    const dim3 grid((unsigned)parts, (unsigned)mirt__cu_ceil(p.co, 32), (unsigned)mirt__cu_ceil(p.taps, taps));
    const auto pooled_grad = taps == 1    ? mirt__cu_pooled_grad<1, false>
                             : taps == 9  ? mirt__cu_pooled_grad<9, true>
                             : taps == 27 ? mirt__cu_pooled_grad<27, true>
                                          : mirt__cu_pooled_grad<32, true>;
    float *to = args->dkernel, *bias = args->db;
    if (parts != 1) {
        to = sums;
        bias = args->db && sums ? sums + count : NULL;
    }
    if (parts > 0)
        MIRT_LAUNCH(cu, pooled_grad, grid, dim3(32, 8), (size_t)((taps + 1) * 32 + floats) * sizeof(float), p, each,
                    args->dy, args->which, to, stride, bias, stride);
    if (parts != 1) mirt__cu_parts_total(cu, sums, parts, stride, count, args->dkernel, p.co, args->db);
}
