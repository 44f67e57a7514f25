/* Shared by the fast tables: average pooling. */

#include "common.h"

#include "optimize_begin.inc"

/* One window: x is its first pixel, which may lie outside; kernel rows [ky, ky1) and columns [kx, kx1) do not. */
typedef struct mirt__common_window {
    int64_t y, x;
    int64_t ky, ky1, kx, kx1;
} mirt__common_window;

static mirt__common_window mirt__common_window_of(const mirt__pool2d *p, int64_t oy, int64_t ox) {
    mirt__common_window w;
    w.y = oy * p->stride_h - p->pad_top;
    w.x = ox * p->stride_w - p->pad_left;
    w.ky1 = mirt__common_inside(w.y, p->kh, p->h, &w.ky);
    w.kx1 = mirt__common_inside(w.x, p->kw, p->w, &w.kx);
    return w;
}

/* Offset in an image of the pixel at position (ky, kx) of the kernel. */
static int64_t mirt__common_pixel(const mirt__pool2d *p, const mirt__common_window *w, int64_t ky, int64_t kx) {
    return ((w->y + ky) * p->w + w->x + kx) * p->c;
}

static void mirt__common_average_pool_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__pool2d *p = (const mirt__pool2d *)args;
    const int64_t channels = p->c;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        const float *image = (const float *)p->x + i / p->oh * p->h * p->w * p->c;
        for (int64_t ox = 0; ox < p->ow; ox++) {
            float *y = (float *)p->y + (i * p->ow + ox) * channels;
            const mirt__common_window w = mirt__common_window_of(p, i % p->oh, ox);
            const float count = (float)((w.ky1 - w.ky) * (w.kx1 - w.kx));
            memset(y, 0, (size_t)channels * sizeof(float));
            for (int64_t ky = w.ky; ky < w.ky1; ky++) {
                for (int64_t kx = w.kx; kx < w.kx1; kx++) {
                    const float *x = image + mirt__common_pixel(p, &w, ky, kx);
                    MIRT__INDEPENDENT
                    for (int64_t c = 0; c < channels; c++) y[c] += x[c];
                }
            }
            for (int64_t c = 0; c < channels; c++) y[c] /= count;
        }
    }
}

/* Adds one window's gradient in equal shares to its pixels. */
static void mirt__common_average_back(const mirt__pool2d *p, const mirt__common_window *w, const float *dy,
                                      float *image) {
    const float count = (float)((w->ky1 - w->ky) * (w->kx1 - w->kx));
    for (int64_t ky = w->ky; ky < w->ky1; ky++) {
        for (int64_t kx = w->kx; kx < w->kx1; kx++) {
            float *dx = image + mirt__common_pixel(p, w, ky, kx);
            MIRT__INDEPENDENT
            for (int64_t c = 0; c < p->c; c++) dx[c] += dy[c] / count;
        }
    }
}

/* Images [begin, end): windows may overlap, so one thread processes a whole image, in order. */
static void mirt__common_average_pool_back(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__pool2d *p = (const mirt__pool2d *)args;
    (void)scratch;
    for (int64_t row = begin; row < end; row++) {
        float *image = (float *)p->y + row * p->h * p->w * p->c;
        memset(image, 0, (size_t)(p->h * p->w * p->c) * sizeof(float));
        for (int64_t i = 0; i < p->oh * p->ow; i++) {
            const mirt__common_window w = mirt__common_window_of(p, i / p->ow, i % p->ow);
            mirt__common_average_back(p, &w, (const float *)p->x + (row * p->oh * p->ow + i) * p->c, image);
        }
    }
}

static int64_t mirt__common_pool_step(const mirt__pool2d *p, int64_t windows) {
    return mirt__common_step(windows * p->kh * p->kw * p->c);
}

MIRT__LIB void mirt__common_average_pool(const mirt__pool2d *p, const mirt__where *where) {
    mirt__common_range(where, p->rows * p->oh, mirt__common_pool_step(p, p->ow), mirt__common_average_pool_rows, p);
}

MIRT__LIB void mirt__common_average_pool_grad(const mirt__pool2d *p, const mirt__where *where) {
    mirt__common_range(where, p->rows, mirt__common_pool_step(p, p->oh * p->ow), mirt__common_average_pool_back, p);
}

#include "optimize_end.inc"
