/* Images of another size: a thread has N neighboring channels of a pixel. Gradients gather from the outputs that read
   it. */
#include "layout.cuh"

struct mirt__cu_resize_call : mirt__cu_pixels {
    int h, w, c, oh, ow;
    bool bilinear;
    const float *x;
    float *y;
};

typedef struct mirt__cu_between {
    int low, high;
    float part;
} mirt__cu_between;
/* Where output o reads an axis, as mirt__resize_at: in units of half an output step, in numbers of type I. */
template <class I> static inline __device__ mirt__cu_between mirt__cu_resize_at(I o, I in, I out, bool bilinear) {
    const I center = (2 * o + 1) * in, at = center - out;
    mirt__cu_between b;
    b.part = 0;
    if (!bilinear) {
        b.low = b.high = (int)(center / (2 * out));
        return b;
    }
    const I low = at < 0 ? -1 : at / (2 * out);
    b.low = low < 0 ? 0 : (int)low;
    b.high = low + 1 < in ? (int)low + 1 : (int)in - 1;
    if (b.high != b.low) b.part = (float)(at - low * 2 * out) / (float)(2 * out);
    return b;
}
/* The first output that may read `place`; what the last one may be is known by the next place's first. */
template <class I> static inline __device__ int mirt__cu_resize_first(I place, I in, I out) {
    if (place <= 0) return 0;
    const I first = (out * (2 * place - 1) / in - 1) / 2 - 1;
    return first < 0 ? 0 : first < out ? (int)first : (int)out;
}
template <class I> static inline __device__ int mirt__cu_resize_end(I place, I in, I out) {
    if (place + 1 >= in) return (int)out;
    const I end = (out * (2 * place + 3) / in) / 2 + 2;
    return end < out ? (int)end : (int)out;
}
/* How much of an output goes to `place`. */
static inline __device__ float mirt__cu_resize_share(const mirt__cu_between &b, int place) {
    return (b.low == place ? 1.0f - b.part : 0.0f) + (b.high == place && b.high != b.low ? b.part : 0.0f);
}

template <class I, int N>
static __global__ __launch_bounds__(256) void mirt__cu_resize_forward(mirt__cu_resize_call a) {
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const mirt__cu_between v = mirt__cu_resize_at<I>((I)y, a.h, a.oh, a.bilinear),
                               u = mirt__cu_resize_at<I>(column, a.w, a.ow, a.bilinear);
        const float *above = a.x + (image * a.h + v.low) * a.w * a.c + c,
                    *below = a.x + (image * a.h + v.high) * a.w * a.c + c;
        float x[4][N];
        mirt__cu_load_n<N>(above + (int64_t)u.low * a.c, x[0]);
        if (a.bilinear) {
            mirt__cu_load_n<N>(above + (int64_t)u.high * a.c, x[1]);
            mirt__cu_load_n<N>(below + (int64_t)u.low * a.c, x[2]);
            mirt__cu_load_n<N>(below + (int64_t)u.high * a.c, x[3]);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float top = x[0][i] + (x[1][i] - x[0][i]) * u.part,
                            bottom = x[2][i] + (x[3][i] - x[2][i]) * u.part;
                x[0][i] = top + (bottom - top) * v.part;
            }
        }
        mirt__cu_store_n<N>(a.y + (line * a.ow + column) * a.c + c, x[0]);
    }
}

template <class I, int N> static __global__ __launch_bounds__(256) void mirt__cu_resize_back(mirt__cu_resize_call a) {
    MIRT__CU_PIXELS_EACH(a) {
        MIRT__CU_PIXELS_PLACE(a)
        const int oy1 = mirt__cu_resize_end<I>((I)y, a.h, a.oh), ox0 = mirt__cu_resize_first<I>(column, a.w, a.ow),
                  ox1 = mirt__cu_resize_end<I>(column, a.w, a.ow);
        float sum[N] = {0}, dy[N];
        for (int oy = mirt__cu_resize_first<I>((I)y, a.h, a.oh); oy < oy1; oy++) {
            const float down = mirt__cu_resize_share(mirt__cu_resize_at<I>(oy, a.h, a.oh, a.bilinear), (int)y);
            if (down == 0) continue;
            for (int ox = ox0; ox < ox1; ox++) {
                const float share = down *
                                    mirt__cu_resize_share(mirt__cu_resize_at<I>(ox, a.w, a.ow, a.bilinear), column);
                if (share == 0) continue;
                mirt__cu_load_n<N>(a.x + ((image * a.oh + oy) * a.ow + ox) * a.c + c, dy);
#pragma unroll
                for (int i = 0; i < N; i++) sum[i] += share * dy[i];
            }
        }
        mirt__cu_store_n<N>(a.y + (line * a.w + column) * a.c + c, sum);
    }
}

template <class I, int N> static void mirt__cu_resize_by(const mirt__resize *r, bool back, mirt__cu *cu) {
    mirt__cu_resize_call a;
    unsigned grid, threads;
    memset(&a, 0, sizeof a);
    a.h = (int)r->h;
    a.w = (int)r->w;
    a.c = (int)r->c;
    a.oh = (int)r->oh;
    a.ow = (int)r->ow;
    a.bilinear = r->bilinear;
    a.x = r->x;
    a.y = r->y;
    mirt__cu_pixels_of(&a, r->rows, back ? r->h : r->oh, back ? r->w : r->ow, r->c / N, &grid, &threads);
    if (grid == 0) return;
    if (back) MIRT_LAUNCH(cu, (mirt__cu_resize_back<I, N>), grid, threads, 0, a);
    else MIRT_LAUNCH(cu, (mirt__cu_resize_forward<I, N>), grid, threads, 0, a);
}
static void mirt__cu_resize_run(const mirt__resize *r, bool back, mirt__cu *cu) {
    const bool four = r->c % 4 == 0 && mirt__cu_aligned(r->x, 16) && mirt__cu_aligned(r->y, 16);
    const int64_t most_in = r->h > r->w ? r->h : r->w, most_out = r->oh > r->ow ? r->oh : r->ow;
    const bool small = (2 * most_out + 3) * (2 * most_in + 3) < INT32_MAX;
    if (small && four) mirt__cu_resize_by<int, 4>(r, back, cu);
    else if (small) mirt__cu_resize_by<int, 1>(r, back, cu);
    else if (four) mirt__cu_resize_by<int64_t, 4>(r, back, cu);
    else mirt__cu_resize_by<int64_t, 1>(r, back, cu);
}
static void mirt__cu_resize(const mirt__resize *args, const mirt__where *where) {
    mirt__cu_resize_run(args, false, mirt__cu_of(where));
}
static void mirt__cu_resize_grad(const mirt__resize *args, const mirt__where *where) {
    mirt__cu_resize_run(args, true, mirt__cu_of(where));
}
