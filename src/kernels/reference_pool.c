/* Reference: max and average pooling. */

#include "reference.h"

/* One window: the rows and columns of x that it covers, [y0, y1) and [x0, x1), without padding. */
typedef struct mirt__ref_window {
    int64_t top, left; /* where it begins including padding */
    int64_t y0, y1, x0, x1;
} mirt__ref_window;

static mirt__ref_window mirt__ref_window_of(const mirt__pool2d *p, int64_t oy, int64_t ox) {
    mirt__ref_window w;
    w.top = oy * p->stride_h - p->pad_top;
    w.left = ox * p->stride_w - p->pad_left;
    w.y0 = mirt__max(w.top, 0);
    w.x0 = mirt__max(w.left, 0);
    w.y1 = mirt__min(w.top + p->kh, p->h);
    w.x1 = mirt__min(w.left + p->kw, p->w);
    return w;
}

/* Calls `visit` for every window and channel: `at` is its offset in the output, `base` that of x[row, 0, 0,
   channel]. */
typedef void (*mirt__ref_visit)(const mirt__pool2d *p, const mirt__ref_window *w, int64_t at, int64_t base);
static void mirt__ref_each_window(const mirt__pool2d *p, mirt__ref_visit visit) {
    int64_t at = 0;
    for (int64_t row = 0; row < p->rows; row++) {
        for (int64_t oy = 0; oy < p->oh; oy++) {
            for (int64_t ox = 0; ox < p->ow; ox++) {
                mirt__ref_window w = mirt__ref_window_of(p, oy, ox);
                for (int64_t c = 0; c < p->c; c++, at++) visit(p, &w, at, row * p->h * p->w * p->c + c);
            }
        }
    }
}

static void mirt__ref_max_of(const mirt__pool2d *p, const mirt__ref_window *w, int64_t at, int64_t base) {
    mirt__real best = (mirt__real)-INFINITY;
    int32_t place = -1;
    for (int64_t y = w->y0; y < w->y1; y++) {
        for (int64_t x = w->x0; x < w->x1; x++) {
            mirt__real value = ((const mirt__real *)p->x)[base + (y * p->w + x) * p->c];
            if (place < 0 || value > best) {
                best = value;
                place = (int32_t)((y - w->top) * p->kw + (x - w->left));
            }
        }
    }
    ((mirt__real *)p->y)[at] = best;
    if (mirt__pool_wide((int64_t)p->kh * p->kw)) ((int32_t *)p->which)[at] = place;
    else ((uint8_t *)p->which)[at] = (uint8_t)place;
}

static void mirt__ref_max_back(const mirt__pool2d *p, const mirt__ref_window *w, int64_t at, int64_t base) {
    const int32_t place =
        mirt__pool_wide((int64_t)p->kh * p->kw) ? ((const int32_t *)p->which)[at] : ((const uint8_t *)p->which)[at];
    const int64_t y = w->top + place / p->kw, x = w->left + place % p->kw;
    ((mirt__real *)p->y)[base + (y * p->w + x) * p->c] += ((const mirt__real *)p->x)[at];
}

static void mirt__ref_average_of(const mirt__pool2d *p, const mirt__ref_window *w, int64_t at, int64_t base) {
    mirt__real sum = 0;
    for (int64_t y = w->y0; y < w->y1; y++) {
        for (int64_t x = w->x0; x < w->x1; x++) sum += ((const mirt__real *)p->x)[base + (y * p->w + x) * p->c];
    }
    ((mirt__real *)p->y)[at] = sum / (mirt__real)((w->y1 - w->y0) * (w->x1 - w->x0));
}

static void mirt__ref_average_back(const mirt__pool2d *p, const mirt__ref_window *w, int64_t at, int64_t base) {
    mirt__real share = ((const mirt__real *)p->x)[at] / (mirt__real)((w->y1 - w->y0) * (w->x1 - w->x0));
    for (int64_t y = w->y0; y < w->y1; y++) {
        for (int64_t x = w->x0; x < w->x1; x++) ((mirt__real *)p->y)[base + (y * p->w + x) * p->c] += share;
    }
}

MIRT__LIB void mirt__ref_max_pool(const mirt__pool2d *p) {
    mirt__ref_each_window(p, mirt__ref_max_of);
}

MIRT__LIB void mirt__ref_max_pool_grad(const mirt__pool2d *p) {
    for (int64_t i = 0; i < p->rows * p->h * p->w * p->c; i++) ((mirt__real *)p->y)[i] = 0;
    mirt__ref_each_window(p, mirt__ref_max_back);
}

MIRT__LIB void mirt__ref_average_pool(const mirt__pool2d *p) {
    mirt__ref_each_window(p, mirt__ref_average_of);
}

MIRT__LIB void mirt__ref_average_pool_grad(const mirt__pool2d *p) {
    for (int64_t i = 0; i < p->rows * p->h * p->w * p->c; i++) ((mirt__real *)p->y)[i] = 0;
    mirt__ref_each_window(p, mirt__ref_average_back);
}
