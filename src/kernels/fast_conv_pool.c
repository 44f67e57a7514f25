/* Convolutions with 2x2 max pooling, window by window: the convolution itself is never stored. There is no padding,
   stride or dilation, as mirt__fuse_pool accepts none. */

#include "fast.h"

#include "optimize_drivers.inc"

typedef struct mirt__pool_job {
    const mirt__simd *simd;
    const mirt__conv *s;
    const mirt__where *where;
    mirt__pool_blocks blocks;
    mirt__reader x;
    bool direct; /* reads without tiles */
    int64_t blocks_per_image;
    const mirt__conv_pool *pool;
    const mirt__conv_pool_weight_grad *pool_grad;
    int64_t chunk, parts; /* images of a partial sum */
} mirt__pool_job;

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
    job->blocks = mirt__pool_blocks_of(s);
    job->blocks_per_image = mirt__parts(s->oh / 2 * 2, job->blocks.rows);
    job->x = *x;
    job->direct = x->dtype == MIRT_FLOAT32 && !x->affine;
}

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
    float *input_tile = (float *)mirt__scratch(job->where, member), *panel = input_tile + job->blocks.floats;
    const int64_t image = task / job->blocks_per_image, y = task % job->blocks_per_image * job->blocks.rows;
    const int64_t rows = mirt__min(s->oh / 2 * 2 - y, job->blocks.rows);
    const int64_t k = (int64_t)s->kh * s->kw * s->ci, group = (int64_t)simd->pool_vectors * simd->lanes;
    int32_t *offset = (int32_t *)(void *)panel;
    mirt__pool_row row;
    memset(&row, 0, sizeof row);
    const float *x = mirt__pool_input(job, image, y, rows, input_tile, &row.pitch);
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
            float *padded = panel + k;
            memset(padded, 0, (size_t)(k * group) * sizeof(float));
            for (int64_t p = 0; p < k; p++)
                memcpy(padded + p * group, row.b + p * s->co, (size_t)row.columns * sizeof(float));
            row.b = padded;
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

/* Images of which there are fewer than threads are divided among these. */
static void mirt__pool_job_share(mirt__pool_job *job) {
    const int64_t threads = mirt__team_size(job->where->team), images = job->s->rows, down = job->s->oh / 2;
    if (images < 1 || down < 2 || images * job->blocks_per_image >= threads) return;
    job->blocks.rows = mirt__min(job->blocks.rows, mirt__parts(down, mirt__parts(threads, images)) * 2);
    job->blocks_per_image = mirt__parts(down * 2, job->blocks.rows);
}

MIRT__LIB void mirt__fast_conv_pool(const mirt__simd *simd, const mirt__conv_pool *args, const mirt__where *where) {
    mirt__pool_job job;
    mirt__pool_job_init(&job, simd, &args->s, &args->x, where);
    mirt__pool_job_share(&job);
    job.pool = args;
    mirt__team_for(where->team, args->s.rows * job.blocks_per_image, mirt__pool_task, &job);
}

static void mirt__pool_grad_task(void *arg, int64_t chunk, int member) {
    const mirt__pool_job *job = (const mirt__pool_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_pool_weight_grad *args = job->pool_grad;
    float *input_tile = (float *)mirt__scratch(job->where, member), *panel = input_tile + job->blocks.floats;
    const int64_t first = job->parts == 1 ? 0 : chunk * job->chunk;
    const int64_t end = mirt__min(s->rows, first + job->chunk);
    const int64_t k = (int64_t)s->kh * s->kw * s->ci, across = s->ow / 2, down = s->oh / 2;
    int32_t *offset = (int32_t *)(void *)panel;
    float *block = panel + k;
    mirt__pool_windows windows;
    memset(&windows, 0, sizeof windows);
    if (job->parts == 1) {
        windows.dkernel = args->dkernel;
        windows.db = args->db;
    } else {
        windows.dkernel = (float *)job->where->shared + chunk * mirt__conv_partial_floats(s);
        windows.db = windows.dkernel + k * s->co;
    }
    memset(windows.dkernel, 0, (size_t)(k * s->co) * sizeof(float));
    if (windows.db) memset(windows.db, 0, (size_t)s->co * sizeof(float));
    windows.block = block;
    windows.k = k;
    windows.co = s->co;
    for (int64_t image = first; image < end; image++) {
        for (int64_t y = 0; y < down * 2; y += job->blocks.rows) {
            const int64_t rows = mirt__min(down * 2 - y, job->blocks.rows);
            int64_t pitch;
            const float *x = mirt__pool_input(job, image, y, rows, input_tile, &pitch);
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
    job.chunk = mirt__conv_chunk_rows(&args->s);
    job.parts = mirt__max(mirt__parts(args->s.rows, job.chunk), 1);
    mirt__team_for(where->team, job.parts, mirt__pool_grad_task, &job);
    if (job.parts > 1)
        mirt__partial_sums_run(where->team, &args->s, (float *)where->shared, job.parts, args->dkernel, args->db);
}

#include "optimize_end.inc"
