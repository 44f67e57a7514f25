/* Depthwise convolutions: vectors of channels, tap by tap. */

#include "fast.h"

#ifndef MIRT__REAL_DOUBLE

#include "optimize_begin.inc"
#if !defined(__clang__) && defined(__GNUC__)
#pragma GCC optimize("O2,no-tree-loop-vectorize") /* O3 only takes longer */
#endif

typedef struct mirt__depth_job {
    const mirt__simd *simd;
    const mirt__conv *s;
    const float *from, *kernel; /* x of the forward call, dy of the input gradient */
    float *to;
    const mirt__epilogue *epilogue; /* or NULL */
    bool back;
    const mirt__conv_weight_grad *weight_grad;
    int64_t chunk, parts, partial_stride, column_tasks;
    float *partial;
} mirt__depth_job;

MIRT__LIB bool mirt__is_depthwise(const mirt__conv *s, const mirt__reader *x) {
    return s->groups > 1 && s->groups == s->ci && s->ci == s->co && (int64_t)s->kh * s->kw <= MIRT__MAX_TAPS && x->dtype == MIRT_FLOAT32 && !x->affine;
}

/* The taps within the image that output (oy, ox) sees: places of the pixel in the image, and numbers of the tap. */
static int mirt__depthwise_taps(const mirt__conv *s, int64_t oy, int64_t ox, int64_t *pixel, int *tap) {
    int count = 0;
    for (int ky = 0; ky < s->kh; ky++) {
        const int64_t y = oy * s->stride_h - s->pad_top + (int64_t)ky * s->dilation_h;
        for (int kx = 0; y >= 0 && y < s->h && kx < s->kw; kx++) {
            const int64_t x = ox * s->stride_w - s->pad_left + (int64_t)kx * s->dilation_w;
            if (x < 0 || x >= s->w) continue;
            pixel[count] = y * s->w + x;
            tap[count++] = ky * s->kw + kx;
        }
    }
    return count;
}

/* The output that input place `at` reaches through a tap; -1 when there is none. */
static int64_t mirt__depthwise_reached(int64_t at, int64_t pad, int tap, int dilation, int stride, int64_t outputs) {
    const int64_t distance = at + pad - (int64_t)tap * dilation;
    return distance >= 0 && distance % stride == 0 && distance / stride < outputs ? distance / stride : -1;
}

/* Likewise the outputs that input (y, x) reaches. */
static int mirt__depthwise_taps_back(const mirt__conv *s, int64_t y, int64_t x, int64_t *pixel, int *tap) {
    int count = 0;
    for (int ky = 0; ky < s->kh; ky++) {
        const int64_t oy = mirt__depthwise_reached(y, s->pad_top, ky, s->dilation_h, s->stride_h, s->oh);
        for (int kx = 0; oy >= 0 && kx < s->kw; kx++) {
            const int64_t ox = mirt__depthwise_reached(x, s->pad_left, kx, s->dilation_w, s->stride_w, s->ow);
            if (ox < 0) continue;
            pixel[count] = oy * s->ow + ox;
            tap[count++] = ky * s->kw + kx;
        }
    }
    return count;
}

/* One line of the output or, for the input gradient, of the input. */
static void mirt__depthwise_task(void *arg, int64_t task, int member) {
    const mirt__depth_job *job = (const mirt__depth_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__epilogue *epilogue = job->epilogue;
    const int64_t height = job->back ? s->h : s->oh, width = job->back ? s->w : s->ow, c = s->ci;
    const float *from = job->from + task / height * (job->back ? s->oh * s->ow : s->h * s->w) * c;
    float *to = job->to + task * width * c;
    const float *x[MIRT__MAX_TAPS], *k[MIRT__MAX_TAPS];
    int64_t pixel[MIRT__MAX_TAPS];
    int tap[MIRT__MAX_TAPS];
    (void)member;
    for (int64_t i = 0; i < width; i++, to += c) {
        const int count = job->back ? mirt__depthwise_taps_back(s, task % height, i, pixel, tap) : mirt__depthwise_taps(s, task % height, i, pixel, tap);
        for (int t = 0; t < count; t++) {
            x[t] = from + pixel[t] * c;
            k[t] = job->kernel + tap[t] * c;
        }
        job->simd->taps(to, x, k, count, c);
        if (!epilogue) continue;
        const float *mask = epilogue->mask ? (const float *)epilogue->mask + (task * width + i) * c : NULL;
        job->simd->finish(epilogue, epilogue->bias, &to, &mask, 1, c);
    }
}

static void mirt__depthwise_start(mirt__depth_job *job, const mirt__simd *simd, const mirt__conv *s, const void *from, const float *kernel,
                                  void *to, const mirt__epilogue *epilogue) {
    memset(job, 0, sizeof *job);
    job->simd = simd;
    job->s = s;
    job->from = (const float *)from;
    job->kernel = kernel;
    job->to = (float *)to;
    if (epilogue && (epilogue->bias || epilogue->activation != MIRT_LINEAR || epilogue->mask)) job->epilogue = epilogue;
}

MIRT__LIB void mirt__fast_depthwise_forward(const mirt__simd *simd, const mirt__conv_forward *args, const mirt__where *where) {
    mirt__depth_job job;
    mirt__depthwise_start(&job, simd, &args->s, args->x.data, args->kernel, args->y, &args->epilogue);
    mirt__team_for(where->team, args->s.rows * args->s.oh, mirt__depthwise_task, &job);
}

MIRT__LIB void mirt__fast_depthwise_input_grad(const mirt__simd *simd, const mirt__conv_input_grad *args, const mirt__where *where) {
    mirt__depth_job job;
    mirt__depthwise_start(&job, simd, &args->s, args->dy.data, args->kernel, args->dx, &args->epilogue);
    job.back = true;
    mirt__team_for(where->team, args->s.rows * args->s.h, mirt__depthwise_task, &job);
}

/* A chunk of images, MIRT__DEPTHWISE_COLUMNS channels. */
#define MIRT__DEPTHWISE_COLUMNS 128
static void mirt__depthwise_weight_grad_task(void *arg, int64_t task, int member) {
    const mirt__depth_job *job = (const mirt__depth_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_weight_grad *args = job->weight_grad;
    const int64_t chunk = task / job->column_tasks, j = task % job->column_tasks * MIRT__DEPTHWISE_COLUMNS;
    const int64_t c = s->co, columns = c - j < MIRT__DEPTHWISE_COLUMNS ? c - j : MIRT__DEPTHWISE_COLUMNS;
    const int64_t first = job->parts == 1 ? 0 : chunk * job->chunk, end = s->rows - first < job->chunk ? s->rows : first + job->chunk;
    const float *x[MIRT__MAX_TAPS], *dy = (const float *)args->dy.data + first * s->oh * s->ow * c + j;
    float *dk[MIRT__MAX_TAPS], *dkernel = job->partial + chunk * job->partial_stride, *db = dkernel + job->partial_stride - c;
    int64_t pixel[MIRT__MAX_TAPS];
    int tap[MIRT__MAX_TAPS];
    (void)member;
    if (job->parts == 1) {
        dkernel = args->dkernel;
        db = args->db;
    }
    for (int64_t t = 0; t < (int64_t)s->kh * s->kw; t++) memset(dkernel + t * c + j, 0, (size_t)columns * sizeof(float));
    if (db) job->simd->column_sum(db + j, dy, c, (end - first) * s->oh * s->ow, columns, true);
    for (int64_t image = first; image < end; image++) {
        for (int64_t o = 0; o < s->oh * s->ow; o++, dy += c) {
            const int count = mirt__depthwise_taps(s, o / s->ow, o % s->ow, pixel, tap);
            for (int t = 0; t < count; t++) {
                x[t] = (const float *)args->x.data + (image * s->h * s->w + pixel[t]) * c + j;
                dk[t] = dkernel + tap[t] * c + j;
            }
            job->simd->taps_grad(dk, x, dy, count, columns);
        }
    }
}

MIRT__LIB void mirt__fast_depthwise_weight_grad(const mirt__simd *simd, const mirt__conv_weight_grad *args, const mirt__where *where) {
    const mirt__conv *s = &args->s;
    mirt__depth_job job;
    mirt__depthwise_start(&job, simd, s, NULL, NULL, NULL, NULL);
    job.weight_grad = args;
    job.chunk = mirt__conv_chunk_rows(s);
    job.parts = s->rows / job.chunk + (s->rows % job.chunk != 0);
    if (job.parts < 1) job.parts = 1;
    job.partial_stride = mirt__conv_partial_floats(s);
    job.partial = (float *)where->shared;
    job.column_tasks = (s->co + MIRT__DEPTHWISE_COLUMNS - 1) / MIRT__DEPTHWISE_COLUMNS;
    mirt__team_for(where->team, job.parts * job.column_tasks, mirt__depthwise_weight_grad_task, &job);
    if (job.parts == 1) return;
    mirt__tree(job.partial, job.parts, job.partial_stride, job.partial_stride);
    memcpy(args->dkernel, job.partial, (size_t)(job.partial_stride - s->co) * sizeof(float));
    if (args->db) memcpy(args->db, job.partial + job.partial_stride - s->co, (size_t)s->co * sizeof(float));
}
#undef MIRT__DEPTHWISE_COLUMNS

#include "optimize_end.inc"

#endif
