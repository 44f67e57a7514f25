/* Convolutions with 2x2 max pooling, window by window: the convolution itself is never stored. There is no padding,
   stride or dilation, as mirt__fuse_pool accepts none. */

#include "fast.h"

#ifndef MIRT__REAL_DOUBLE

#include "optimize_drivers.inc"

typedef struct mirt__pool_job {
    const mirt__simd *simd;
    const mirt__conv *s;
    const mirt__where *where;
    mirt__conv_blocks blocks;
    mirt__reader x;
    bool direct; /* reads without tiles */
    int64_t blocks_per_image;
    const mirt__conv_pool *pool;
    const mirt__conv_pool_weight_grad *pool_grad;
    int64_t chunk, parts, partial_stride;
    float *partial;
} mirt__pool_job;

/* The scratch memory of a thread. */
typedef struct mirt__pool_scratch {
    mirt__run *runs;
    float *input_tile, *panel;
} mirt__pool_scratch;

static mirt__pool_scratch mirt__pool_scratch_of(const mirt__pool_job *job, int member) {
    char *base = (char *)mirt__scratch(job->where, member);
    mirt__pool_scratch scratch;
    const int64_t input_tile =
        mirt__max(job->blocks.forward_floats, job->blocks.grad_floats);
    scratch.runs = (mirt__run *)(void *)base;
    scratch.input_tile = (float *)(void *)(base + mirt__align_up((size_t)job->blocks.run_count * sizeof(mirt__run)));
    scratch.panel = scratch.input_tile + input_tile;
    return scratch;
}

/* The input that rows [y, y + rows) of the output see; *pitch: floats between its rows. */
static const float *mirt__pool_input(const mirt__pool_job *job, int64_t image, int64_t y, int64_t rows,
                                     float *input_tile, int64_t *pitch) {
    const mirt__conv *s = job->s;
    const int64_t first = (image * s->h + y) * s->w * s->ci;
    const mirt__source source = mirt__source_of(&job->x, NULL);
    *pitch = s->w * s->ci;
    if (job->direct) return (const float *)job->x.data + first;
    job->simd->read(input_tile, &source, first, (rows + s->kh - 1) * s->w * s->ci);
    return input_tile;
}

static void mirt__pool_job_init(mirt__pool_job *job, const mirt__simd *simd, const mirt__conv *s, const mirt__reader *x,
                                const mirt__where *where) {
    memset(job, 0, sizeof *job);
    job->simd = simd;
    job->s = s;
    job->where = where;
    job->blocks = mirt__conv_block_sizes(s);
    job->blocks_per_image = mirt__parts(s->oh, job->blocks.forward_rows);
    job->x = *x;
    job->direct = x->dtype == MIRT_FLOAT32 && !x->affine;
}

/* The partial sums of a chunk; the outputs themselves if there is only one chunk. */
static void mirt__pool_partial(const mirt__pool_job *job, int64_t chunk, float *dkernel, float *db, float **kernel_part,
                               float **bias_part) {
    *kernel_part = dkernel;
    *bias_part = db;
    if (job->parts == 1) return;
    *kernel_part = job->partial + chunk * job->partial_stride;
    if (db) *bias_part = *kernel_part + (job->partial_stride - job->s->co);
}

static void mirt__pool_chunks_init(mirt__pool_job *job) {
    const int64_t rows = job->s->rows;
    job->chunk = mirt__conv_chunk_rows(job->s);
    job->parts = mirt__max(mirt__parts(rows, job->chunk), 1);
    job->partial_stride = mirt__conv_partial_floats(job->s);
    job->partial = (float *)job->where->shared;
}

#define MIRT__TREE_RANGE 4096
static void mirt__pool_tree_task(void *arg, int64_t task, int member) {
    const mirt__pool_job *job = (const mirt__pool_job *)arg;
    const int64_t begin = task * MIRT__TREE_RANGE, left = job->partial_stride - begin;
    (void)member;
    mirt__tree(job->partial + begin, job->parts, job->partial_stride,
               mirt__min(left, MIRT__TREE_RANGE));
}

static void mirt__pool_chunks_finish(mirt__pool_job *job, float *dkernel, float *db) {
    if (job->parts == 1) return;
    const int64_t bias = job->s->co, kernel = job->partial_stride - bias;
    if (!db) memset(job->partial + kernel, 0, (size_t)bias * sizeof(float));
    for (int64_t part = 1; part < job->parts && !db; part++) {
        memset(job->partial + part * job->partial_stride + kernel, 0, (size_t)bias * sizeof(float));
    }
    mirt__team_for(job->where->team, mirt__parts(job->partial_stride, MIRT__TREE_RANGE),
                   mirt__pool_tree_task, job);
    memcpy(dkernel, job->partial, (size_t)kernel * sizeof(float));
    if (db) memcpy(db, job->partial + kernel, (size_t)bias * sizeof(float));
}
#undef MIRT__TREE_RANGE

/* The offset of each k of a 1-dilated kernel in its patch. */
static void mirt__pool_offsets(const mirt__conv *s, int64_t pitch, int32_t *offset) {
    for (int ky = 0; ky < s->kh; ky++) {
        for (int64_t q = 0; q < s->kw * s->ci; q++) *offset++ = (int32_t)(ky * pitch + q);
    }
}

static void mirt__pool_task(void *arg, int64_t task, int member) {
    const mirt__pool_job *job = (const mirt__pool_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_pool *args = job->pool;
    const mirt__simd *simd = job->simd;
    const mirt__pool_scratch scratch = mirt__pool_scratch_of(job, member);
    const int64_t image = task / job->blocks_per_image, y = task % job->blocks_per_image * job->blocks.forward_rows;
    const int64_t pooled = s->oh / 2 * 2,
                  rows = mirt__min(pooled - y, job->blocks.forward_rows);
    const int64_t k = (int64_t)s->kh * s->kw * s->ci, group = (int64_t)simd->pool_vectors * simd->lanes;
    int32_t *offset = (int32_t *)(void *)scratch.panel;
    float *panel = scratch.panel + k;
    mirt__pool_row row;
    memset(&row, 0, sizeof row);
    const float *x = mirt__pool_input(job, image, y, rows, scratch.input_tile, &row.pitch);
    mirt__pool_offsets(s, row.pitch, offset);
    row.ci = s->ci;
    row.windows = s->ow / 2;
    row.k = k;
    row.offset = offset;
    row.co = s->co;
    for (int64_t j = 0; j < s->co; j += group) {
        row.columns = mirt__min(s->co - j, group);
        row.b = args->kernel + j;
        row.b_row = s->co;
        if (row.columns % simd->lanes != 0) {
            memset(panel, 0, (size_t)(k * group) * sizeof(float));
            for (int64_t p = 0; p < k; p++)
                memcpy(panel + p * group, row.b + p * s->co, (size_t)row.columns * sizeof(float));
            row.b = panel;
            row.b_row = group;
        }
        row.bias = args->bias ? args->bias + j : NULL;
        for (int64_t r = 0; r < rows; r += 2) {
            const int64_t at = ((image * (s->oh / 2) + (y + r) / 2) * row.windows) * s->co + j;
            row.a = x + r * row.pitch;
            row.y = args->y + at;
            row.which = args->which ? args->which + at : NULL;
            simd->pool_row(&row);
        }
    }
}

MIRT__LIB void mirt__fast_conv_pool(const mirt__simd *simd, const mirt__conv_pool *args, const mirt__where *where) {
    mirt__pool_job job;
    mirt__pool_job_init(&job, simd, &args->s, &args->x, where);
    job.pool = args;
    job.blocks_per_image = mirt__parts(args->s.oh / 2 * 2, job.blocks.forward_rows);
    mirt__team_for(where->team, args->s.rows * job.blocks_per_image, mirt__pool_task, &job);
}

static void mirt__pool_grad_task(void *arg, int64_t chunk, int member) {
    const mirt__pool_job *job = (const mirt__pool_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_pool_weight_grad *args = job->pool_grad;
    const mirt__pool_scratch scratch = mirt__pool_scratch_of(job, member);
    const int64_t first = job->parts == 1 ? 0 : chunk * job->chunk;
    const int64_t end = mirt__min(s->rows, first + job->chunk);
    const int64_t k = (int64_t)s->kh * s->kw * s->ci, across = s->ow / 2, down = s->oh / 2;
    int32_t *offset = (int32_t *)(void *)scratch.panel;
    float *block = scratch.panel + k;
    mirt__pool_windows windows;
    memset(&windows, 0, sizeof windows);
    mirt__pool_partial(job, chunk, args->dkernel, args->db, &windows.dkernel, &windows.db);
    memset(windows.dkernel, 0, (size_t)(k * s->co) * sizeof(float));
    if (windows.db) memset(windows.db, 0, (size_t)s->co * sizeof(float));
    windows.block = block;
    windows.k = k;
    windows.co = s->co;
    for (int64_t image = first; image < end; image++) {
        for (int64_t y = 0; y < down * 2; y += job->blocks.forward_rows) {
            const int64_t rows = mirt__min(down * 2 - y, job->blocks.forward_rows);
            int64_t pitch;
            const float *x = mirt__pool_input(job, image, y, rows, scratch.input_tile, &pitch);
            mirt__pool_offsets(s, pitch, offset);
            for (int64_t r = 0; r < rows / 2; r += job->blocks.window_rows) {
                const int64_t lines = mirt__min(rows / 2 - r, job->blocks.window_rows);
                for (int64_t line = 0; line < lines; line++) {
                    job->simd->lay_windows(block + line * across * k * 4, x + (r + line) * 2 * pitch, pitch, s->ci,
                                           across, k, offset);
                }
                const int64_t at = ((image * down + y / 2 + r) * across) * s->co;
                windows.windows = lines * across;
                windows.dy = args->dy + at;
                windows.which = args->which + at;
                job->simd->pool_windows(&windows);
            }
        }
    }
}

MIRT__LIB void mirt__fast_conv_pool_weight_grad(const mirt__simd *simd, const mirt__conv_pool_weight_grad *args,
                                                const mirt__where *where) {
    mirt__pool_job job;
    mirt__pool_job_init(&job, simd, &args->s, &args->x, where);
    job.pool_grad = args;
    mirt__pool_chunks_init(&job);
    mirt__team_for(where->team, job.parts, mirt__pool_grad_task, &job);
    mirt__pool_chunks_finish(&job, args->dkernel, args->db);
}

#include "optimize_end.inc"

#endif
