/* Max pooling, one window at a time, and its gradient, one pixel at a time. */

#include "common.h"

#include "optimize_drivers.inc"

typedef struct mirt__max_job {
    const mirt__simd *simd;
    const mirt__pool2d *p;
    mirt__windows all; /* fields common to all windows */
    int64_t size;      /* bytes of an element, and of a position */
    int64_t place_size;
} mirt__max_job;

static mirt__max_job mirt__max_start(const mirt__simd *simd, const mirt__pool2d *p, bool back) {
    mirt__max_job job;
    memset(&job, 0, sizeof job);
    job.simd = simd;
    job.p = p;
    job.all.half = p->dtype == MIRT__BFLOAT16;
    job.all.wide = mirt__pool_wide((int64_t)p->kh * p->kw);
    job.all.n = p->c;
    job.all.column_step = p->c;
    job.all.row_step = (back ? p->ow : p->w) * p->c;
    job.all.down = p->kw * (back ? p->stride_h : 1);
    job.all.right = back ? p->stride_w : 1;
    job.size = job.all.half ? 2 : 4;
    job.place_size = job.all.wide ? 4 : 1;
    return job;
}

/* Rows [begin, end) of windows, counted through all images. */
static void mirt__max_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__max_job *job = (const mirt__max_job *)args;
    const mirt__pool2d *p = job->p;
    mirt__windows w = job->all;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        int64_t ky, kx;
        const int64_t y = i % p->oh * p->stride_h - p->pad_top, ky_end = mirt__common_inside(y, p->kh, p->h, &ky);
        for (int64_t ox = 0; ox < p->ow; ox++) {
            const int64_t x = ox * p->stride_w - p->pad_left, kx_end = mirt__common_inside(x, p->kw, p->w, &kx),
                          at = (i * p->ow + ox) * p->c;
            w.rows = ky_end - ky;
            w.columns = kx_end - kx;
            w.first = ky * p->kw + kx;
            w.x = (const char *)p->x + ((i / p->oh * p->h + y + ky) * p->w + x + kx) * p->c * job->size;
            w.y = (char *)p->y + at * job->size;
            w.which = (char *)p->which + at * job->place_size;
            job->simd->max_window(&w);
        }
    }
}

/* The windows [*first, return value) that contain position `at`. */
static int64_t mirt__max_around(int64_t at, int kernel, int stride, int64_t windows, int64_t *first) {
    const int64_t last = at / stride + 1, behind = mirt__floor_div(at - kernel, stride) + 1;
    *first = mirt__max(behind, 0);
    return mirt__min(last, windows);
}

/* Rows [begin, end) of pixels. */
static void mirt__max_back_rows(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__max_job *job = (const mirt__max_job *)args;
    const mirt__pool2d *p = job->p;
    mirt__windows w = job->all;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        int64_t oy, ox;
        const int64_t y = i % p->h + p->pad_top, oy_end = mirt__max_around(y, p->kh, p->stride_h, p->oh, &oy);
        for (int64_t column = 0; column < p->w; column++) {
            const int64_t x = column + p->pad_left, ox_end = mirt__max_around(x, p->kw, p->stride_w, p->ow, &ox);
            const int64_t at = ((i / p->h * p->oh + oy) * p->ow + ox) * p->c;
            w.rows = oy_end - oy;
            w.columns = ox_end - ox;
            w.first = (y - oy * p->stride_h) * p->kw + x - ox * p->stride_w;
            w.x = (const char *)p->x + at * job->size;
            w.which = (char *)p->which + at * job->place_size;
            w.y = (char *)p->y + (i * p->w + column) * p->c * job->size;
            job->simd->max_back(&w);
        }
    }
}

MIRT__LIB void mirt__fast_max_pool(const mirt__simd *simd, const mirt__pool2d *args, const mirt__where *where) {
    const mirt__max_job job = mirt__max_start(simd, args, false);
    mirt__common_range(where, args->rows * args->oh, mirt__common_step(args->ow * args->kh * args->kw * args->c),
                       mirt__max_rows, &job);
}

MIRT__LIB void mirt__fast_max_pool_grad(const mirt__simd *simd, const mirt__pool2d *args, const mirt__where *where) {
    const mirt__max_job job = mirt__max_start(simd, args, true);
    mirt__common_range(where, args->rows * args->h, mirt__common_step(args->w * args->c), mirt__max_back_rows, &job);
}

#include "optimize_end.inc"
