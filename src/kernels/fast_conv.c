/* Convolutions as products: a kernel's taps are runs of k in the input, or in a strip of it that
   has been read, converted and padded into scratch. */

#include "fast.h"

#ifndef MIRT__REAL_DOUBLE

#include "optimize_begin.inc"
#if !defined(__clang__) && defined(__GNUC__)
#pragma GCC optimize("O2,no-tree-loop-vectorize") /* O3 only takes longer */
#endif

typedef struct mirt__conv_job {
    const mirt__simd *simd;
    const mirt__conv *s;
    const mirt__where *where;
    mirt__conv_blocks blocks;
    mirt__reader x;
    bool direct; /* no strip is needed */
    int64_t blocks_per_image;
    const mirt__conv_forward *forward;
    const mirt__conv_input_grad *input_grad;
    const mirt__conv_weight_grad *weight_grad;
    const mirt__conv_pool *pool;
    const mirt__conv_pool_weight_grad *pool_grad;
    int64_t chunk, parts, partial_stride, column_tasks;
    float *partial;
} mirt__conv_job;

/* A thread's scratch. */
typedef struct mirt__conv_scratch_parts {
    mirt__run *runs;
    float *strip, *panel;
} mirt__conv_scratch_parts;

static mirt__conv_scratch_parts mirt__conv_scratch_of(const mirt__conv_job *job, int member) {
    char *base = (char *)job->where->scratch + (size_t)member * job->where->scratch_per_thread;
    mirt__conv_scratch_parts scratch;
    const int64_t strip = job->blocks.forward_floats > job->blocks.grad_floats ? job->blocks.forward_floats : job->blocks.grad_floats;
    scratch.runs = (mirt__run *)(void *)base;
    scratch.strip = (float *)(void *)(base + mirt__align_up((size_t)job->blocks.run_count * sizeof(mirt__run)));
    scratch.panel = scratch.strip + strip;
    return scratch;
}

/* Rows [row, row + rows) and columns [column, column + columns) of an image of h x w x c numbers,
   zero outside of it. */
static void mirt__conv_read_strip(const mirt__simd *simd, const mirt__reader *reader, int64_t image, int64_t h, int64_t w,
                                  int64_t c, int64_t row, int64_t rows, int64_t column, int64_t columns, float *to) {
    const int64_t from = column > 0 ? column : 0, end = column + columns < w ? column + columns : w;
    const mirt__source source = mirt__source_of(reader, NULL);
    if (from == column && end == column + columns && columns == w && row >= 0 && row + rows <= h) {
        simd->read(to, &source, (image * h + row) * w * c, rows * w * c);
        return;
    }
    for (int64_t y = row; y < row + rows; y++, to += columns * c) {
        if (y < 0 || y >= h || from >= end) {
            memset(to, 0, (size_t)(columns * c) * sizeof(float));
            continue;
        }
        const int64_t before = from - column, inside = end - from, after = columns - before - inside;
        if (before > 0) memset(to, 0, (size_t)(before * c) * sizeof(float));
        simd->read(to + before * c, &source, ((image * h + y) * w + from) * c, inside * c);
        if (after > 0) memset(to + (before + inside) * c, 0, (size_t)(after * c) * sizeof(float));
    }
}

/* The input that rows [y, y + rows) of the output see; *pitch: floats between its rows. */
static const float *mirt__conv_input(const mirt__conv_job *job, int64_t image, int64_t y, int64_t rows, float *strip,
                                     int64_t *pitch) {
    const mirt__conv *s = job->s;
    if (job->direct) {
        *pitch = s->w * s->ci;
        return (const float *)job->x.data + (image * s->h + y * s->stride_h) * s->w * s->ci;
    }
    *pitch = job->blocks.forward_cols * s->ci;
    mirt__conv_read_strip(job->simd, &job->x, image, s->h, s->w, s->ci, y * s->stride_h - s->pad_top,
                          (rows - 1) * s->stride_h + (int64_t)(s->kh - 1) * s->dilation_h + 1, -s->pad_left,
                          job->blocks.forward_cols, strip);
    return strip;
}

static void mirt__conv_job_init(mirt__conv_job *job, const mirt__simd *simd, const mirt__conv *s, const mirt__reader *x,
                                const mirt__where *where) {
    memset(job, 0, sizeof *job);
    job->simd = simd;
    job->s = s;
    job->where = where;
    job->blocks = mirt__conv_block_sizes(s);
    job->blocks_per_image = (s->oh + job->blocks.forward_rows - 1) / job->blocks.forward_rows;
    if (!x) return;
    job->x = *x;
    const int64_t rows = (s->oh - 1) * s->stride_h + (int64_t)(s->kh - 1) * s->dilation_h + 1;
    job->direct = x->dtype == MIRT_FLOAT32 && !x->affine && s->pad_top == 0 && s->pad_left == 0 && rows <= s->h &&
                  job->blocks.forward_cols <= s->w;
}

/* k in runs: a whole row of the kernel where its inputs lie together, otherwise one tap each. */
static int64_t mirt__conv_runs(const mirt__conv *s, int64_t pitch, mirt__run *runs) {
    const int64_t cig = s->ci / s->groups;
    int64_t count = 0;
    if (s->groups == 1 && s->dilation_w == 1) {
        for (int ky = 0; ky < s->kh; ky++) {
            runs[count].a = ky * s->dilation_h * pitch;
            runs[count].b = ky * s->kw * s->ci * s->co;
            runs[count++].length = s->kw * s->ci;
        }
        return count;
    }
    for (int ky = 0; ky < s->kh; ky++) {
        for (int kx = 0; kx < s->kw; kx++) {
            runs[count].a = ky * s->dilation_h * pitch + kx * s->dilation_w * s->ci;
            runs[count].b = ((int64_t)ky * s->kw + kx) * cig * s->co;
            runs[count++].length = cig;
        }
    }
    return count;
}

static const mirt__epilogue *mirt__conv_epilogue(const mirt__epilogue *epilogue) {
    return epilogue->bias || epilogue->activation != MIRT_LINEAR || epilogue->mask ? epilogue : NULL;
}

static void mirt__conv_forward_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__epilogue *epilogue = &job->forward->epilogue;
    const mirt__conv_scratch_parts scratch = mirt__conv_scratch_of(job, member);
    const int64_t image = task / job->blocks_per_image, y = task % job->blocks_per_image * job->blocks.forward_rows;
    const int64_t rows = s->oh - y < job->blocks.forward_rows ? s->oh - y : job->blocks.forward_rows;
    const int64_t cig = s->ci / s->groups, cog = s->co / s->groups;
    int64_t pitch;
    const float *x = mirt__conv_input(job, image, y, rows, scratch.strip, &pitch);
    mirt__product p;
    memset(&p, 0, sizeof p);
    p.m = rows * s->ow;
    p.n = cog;
    p.width = s->ow;
    p.a_x = s->stride_w * s->ci;
    p.a_y = s->stride_h * pitch;
    p.a_step = 1;
    p.runs = scratch.runs;
    p.run_count = mirt__conv_runs(s, pitch, scratch.runs);
    p.b_row = s->co;
    p.b_col = 1;
    p.c_x = s->co;
    p.c_y = s->ow * s->co;
    p.fresh = true;
    p.epilogue = mirt__conv_epilogue(epilogue);
    p.panel = scratch.panel;
    const int64_t out = (image * s->oh + y) * s->ow * s->co;
    for (int64_t g = 0; g < s->groups; g++) {
        p.a = x + g * cig;
        p.b = job->forward->kernel + g * cog;
        p.c = (float *)job->forward->y + out + g * cog;
        p.bias = epilogue->bias ? epilogue->bias + g * cog : NULL;
        p.mask = epilogue->mask ? (const float *)epilogue->mask + out + g * cog : NULL;
        mirt__product_run(job->simd, &p);
    }
}

MIRT__LIB void mirt__fast_conv_forward(const mirt__simd *simd, const mirt__conv_forward *args, const mirt__where *where) {
    if (mirt__is_depthwise(&args->s)) {
        mirt__fast_depthwise_forward(simd, args, where);
        return;
    }
    mirt__conv_job job;
    mirt__conv_job_init(&job, simd, &args->s, &args->x, where);
    job.forward = args;
    mirt__team_for(where->team, args->s.rows * job.blocks_per_image, mirt__conv_forward_task, &job);
}

/* Places of dx in [begin, begin + count) that have the same taps: those at phase `phase` of the stride. */
typedef struct mirt__conv_phase {
    int64_t first, count; /* place of the first, how many, `stride` apart */
    int64_t output;       /* the output that tap 0 of the first would belong to */
} mirt__conv_phase;

static mirt__conv_phase mirt__conv_phase_of(int64_t begin, int64_t count, int64_t pad, int stride, int phase) {
    mirt__conv_phase places;
    const int64_t skip = (phase - (begin + pad) % stride + stride) % stride;
    places.first = begin + skip;
    places.count = count > skip ? (count - skip + stride - 1) / stride : 0;
    places.output = (places.first + pad) / stride;
    return places;
}

/* Whether the tap reaches this phase; *by outputs it lies before tap 0's. */
static bool mirt__conv_tap_offset(int phase, int tap, int dilation, int stride, int64_t *by) {
    const int64_t distance = phase - (int64_t)tap * dilation;
    *by = mirt__floor_div(distance, stride);
    return *by * stride == distance;
}

/* One phase of a block: gathers, so that every element of dx is one chain over the taps that reach it. */
static void mirt__conv_input_grad_phase(const mirt__conv_job *job, mirt__product *p, int64_t image, int phase_y, int phase_x,
                                        const mirt__conv_phase *py, const mirt__conv_phase *px, const float *dy,
                                        int64_t pitch, mirt__run *runs) {
    const mirt__conv *s = job->s;
    const mirt__epilogue *epilogue = &job->input_grad->epilogue;
    const int64_t cig = s->ci / s->groups, cog = s->co / s->groups;
    int64_t by_y, by_x, count = 0;
    for (int ky = 0; ky < s->kh; ky++) {
        if (!mirt__conv_tap_offset(phase_y, ky, s->dilation_h, s->stride_h, &by_y)) continue;
        for (int kx = 0; kx < s->kw; kx++) {
            if (!mirt__conv_tap_offset(phase_x, kx, s->dilation_w, s->stride_w, &by_x)) continue;
            runs[count].a = by_y * pitch + by_x * s->co;
            runs[count].b = ((int64_t)ky * s->kw + kx) * cig * s->co;
            runs[count++].length = cog;
        }
    }
    p->m = py->count * px->count;
    p->width = px->count;
    p->runs = runs;
    p->run_count = count;
    p->a_y = pitch;
    const int64_t out = ((image * s->h + py->first) * s->w + px->first) * s->ci;
    for (int64_t g = 0; g < s->groups; g++) {
        p->a = dy + g * cog;
        p->b = job->input_grad->kernel + g * cog;
        p->c = (float *)job->input_grad->dx + out + g * cig;
        p->mask = epilogue->mask ? (const float *)epilogue->mask + out + g * cig : NULL;
        mirt__product_run(job->simd, p);
    }
}

static void mirt__conv_input_grad_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_scratch_parts scratch = mirt__conv_scratch_of(job, member);
    const int64_t image = task / job->blocks_per_image, y = task % job->blocks_per_image * job->blocks.grad_rows;
    const int64_t rows = s->h - y < job->blocks.grad_rows ? s->h - y : job->blocks.grad_rows;
    /* The outputs that the block's places reach, and their strip of dy. */
    const int64_t top = mirt__floor_div(y + s->pad_top - (int64_t)(s->kh - 1) * s->dilation_h, s->stride_h);
    const int64_t bottom = (y + rows - 1 + s->pad_top) / s->stride_h;
    const int64_t left = mirt__floor_div(s->pad_left - (int64_t)(s->kw - 1) * s->dilation_w, s->stride_w);
    const int64_t columns = job->blocks.grad_cols;
    const float *dy = scratch.strip;
    if (top >= 0 && bottom < s->oh && left == 0 && columns == s->ow) {
        dy = (const float *)job->input_grad->dy.data + (image * s->oh + top) * s->ow * s->co;
    } else {
        mirt__conv_read_strip(job->simd, &job->x, image, s->oh, s->ow, s->co, top, bottom - top + 1, left, columns, scratch.strip);
    }
    mirt__product p;
    memset(&p, 0, sizeof p);
    p.n = s->ci / s->groups;
    p.a_x = s->co;
    p.a_step = 1;
    p.b_row = 1;
    p.b_col = s->co;
    p.c_x = s->stride_w * s->ci;
    p.c_y = s->stride_h * s->w * s->ci;
    p.fresh = true;
    p.epilogue = mirt__conv_epilogue(&job->input_grad->epilogue);
    p.panel = scratch.panel;
    for (int phase_y = 0; phase_y < s->stride_h; phase_y++) {
        const mirt__conv_phase py = mirt__conv_phase_of(y, rows, s->pad_top, s->stride_h, phase_y);
        for (int phase_x = 0; phase_x < s->stride_w && py.count > 0; phase_x++) {
            const mirt__conv_phase px = mirt__conv_phase_of(0, s->w, s->pad_left, s->stride_w, phase_x);
            if (px.count < 1) continue;
            mirt__conv_input_grad_phase(job, &p, image, phase_y, phase_x, &py, &px,
                                        dy + ((py.output - top) * columns + px.output - left) * s->co, columns * s->co,
                                        scratch.runs);
        }
    }
}

MIRT__LIB void mirt__fast_conv_input_grad(const mirt__simd *simd, const mirt__conv_input_grad *args, const mirt__where *where) {
    if (mirt__is_depthwise(&args->s)) {
        mirt__fast_depthwise_input_grad(simd, args, where);
        return;
    }
    mirt__conv_job job;
    mirt__conv_job_init(&job, simd, &args->s, NULL, where);
    job.input_grad = args;
    job.x = args->dy;
    job.blocks_per_image = (args->s.h + job.blocks.grad_rows - 1) / job.blocks.grad_rows;
    mirt__team_for(where->team, args->s.rows * job.blocks_per_image, mirt__conv_input_grad_task, &job);
}

/* A chunk's partial sums: the outputs themselves where one chunk is all. */
static void mirt__conv_partial(const mirt__conv_job *job, int64_t chunk, float *dkernel, float *db, float **kernel_part,
                               float **bias_part) {
    *kernel_part = dkernel;
    *bias_part = db;
    if (job->parts == 1) return;
    *kernel_part = job->partial + chunk * job->partial_stride;
    if (db) *bias_part = *kernel_part + (job->partial_stride - job->s->co);
}

static void mirt__conv_chunks_init(mirt__conv_job *job) {
    const int64_t rows = job->s->rows;
    job->chunk = mirt__conv_chunk_rows(job->s);
    job->parts = rows / job->chunk + (rows % job->chunk != 0);
    if (job->parts < 1) job->parts = 1;
    job->partial_stride = mirt__conv_partial_floats(job->s);
    job->partial = (float *)job->where->shared;
}

#define MIRT__TREE_RANGE 4096
static void mirt__conv_tree_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const int64_t begin = task * MIRT__TREE_RANGE, left = job->partial_stride - begin;
    (void)member;
    mirt__tree(job->partial + begin, job->parts, job->partial_stride, left < MIRT__TREE_RANGE ? left : MIRT__TREE_RANGE);
}

static void mirt__conv_chunks_finish(mirt__conv_job *job, float *dkernel, float *db) {
    if (job->parts == 1) return;
    const int64_t bias = job->s->co, kernel = job->partial_stride - bias;
    if (!db) memset(job->partial + kernel, 0, (size_t)bias * sizeof(float));
    for (int64_t part = 1; part < job->parts && !db; part++) {
        memset(job->partial + part * job->partial_stride + kernel, 0, (size_t)bias * sizeof(float));
    }
    mirt__team_for(job->where->team, (job->partial_stride + MIRT__TREE_RANGE - 1) / MIRT__TREE_RANGE, mirt__conv_tree_task, job);
    memcpy(dkernel, job->partial, (size_t)kernel * sizeof(float));
    if (db) memcpy(db, job->partial + kernel, (size_t)bias * sizeof(float));
}
#undef MIRT__TREE_RANGE

/* Adds one block of output rows to a chunk's gradient, for `columns` channels of group g from j on. */
static void mirt__conv_weight_grad_block(const mirt__conv_job *job, mirt__product *p, int64_t g, int64_t j, const float *x,
                                         int64_t pitch, const float *dy, float *dkernel) {
    const mirt__conv *s = job->s;
    const int64_t cig = s->ci / s->groups;
    p->b = dy + j;
    p->a_x = 1;
    if (s->groups == 1 && s->dilation_w == 1) {
        p->m = (int64_t)s->kh * s->kw * s->ci;
        p->width = s->kw * s->ci;
        p->a = x;
        p->a_y = s->dilation_h * pitch;
        p->c = dkernel + j;
        p->c_y = p->width * s->co;
        mirt__product_run(job->simd, p);
        return;
    }
    p->m = p->width = cig;
    for (int64_t tap = 0; tap < (int64_t)s->kh * s->kw; tap++) {
        p->a = x + tap / s->kw * s->dilation_h * pitch + tap % s->kw * s->dilation_w * s->ci + g * cig;
        p->c = dkernel + tap * cig * s->co + j;
        mirt__product_run(job->simd, p);
    }
}

static void mirt__conv_weight_grad_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_weight_grad *args = job->weight_grad;
    const mirt__conv_scratch_parts scratch = mirt__conv_scratch_of(job, member);
    const int64_t chunk = task / job->column_tasks, column_task = task % job->column_tasks;
    const int64_t cog = s->co / s->groups, per_group = job->column_tasks / s->groups;
    const int64_t g = column_task / per_group, in_group = column_task % per_group * MIRT__PANEL, j = g * cog + in_group;
    const int64_t first = job->parts == 1 ? 0 : chunk * job->chunk;
    const int64_t end = s->rows - first < job->chunk ? s->rows : first + job->chunk;
    float *dkernel, *db;
    mirt__conv_partial(job, chunk, args->dkernel, args->db, &dkernel, &db);
    mirt__product p;
    memset(&p, 0, sizeof p);
    p.n = cog - in_group < MIRT__PANEL ? cog - in_group : MIRT__PANEL;
    p.a_step = s->stride_w * s->ci;
    p.runs = scratch.runs;
    p.b_row = s->co;
    p.b_col = 1;
    p.c_x = s->co;
    p.panel = scratch.panel;
    p.fresh = true;
    for (int64_t image = first; image < end; image++) {
        for (int64_t y = 0; y < s->oh; y += job->blocks.forward_rows) {
            const int64_t rows = s->oh - y < job->blocks.forward_rows ? s->oh - y : job->blocks.forward_rows;
            const float *dy = (const float *)args->dy.data + (image * s->oh + y) * s->ow * s->co;
            int64_t pitch;
            const float *x = mirt__conv_input(job, image, y, rows, scratch.strip, &pitch);
            for (int64_t r = 0; r < rows; r++) {
                scratch.runs[r].a = r * s->stride_h * pitch;
                scratch.runs[r].b = r * s->ow * s->co;
                scratch.runs[r].length = s->ow;
            }
            p.run_count = rows;
            mirt__conv_weight_grad_block(job, &p, g, j, x, pitch, dy, dkernel);
            if (db) job->simd->column_sum(db + j, dy + j, s->co, rows * s->ow, p.n, p.fresh);
            p.fresh = false;
        }
    }
}

MIRT__LIB void mirt__fast_conv_weight_grad(const mirt__simd *simd, const mirt__conv_weight_grad *args, const mirt__where *where) {
    if (mirt__is_depthwise(&args->s)) {
        mirt__fast_depthwise_weight_grad(simd, args, where);
        return;
    }
    const mirt__conv *s = &args->s;
    mirt__conv_job job;
    mirt__conv_job_init(&job, simd, s, &args->x, where);
    job.weight_grad = args;
    mirt__conv_chunks_init(&job);
    if (s->rows < 1 || s->oh < 1 || s->ow < 1) {
        memset(args->dkernel, 0, (size_t)(job.partial_stride - s->co) * sizeof(float));
        if (args->db) memset(args->db, 0, (size_t)s->co * sizeof(float));
        return;
    }
    job.column_tasks = (s->co / s->groups + MIRT__PANEL - 1) / MIRT__PANEL * s->groups;
    mirt__team_for(where->team, job.parts * job.column_tasks, mirt__conv_weight_grad_task, &job);
    mirt__conv_chunks_finish(&job, args->dkernel, args->db);
}

/* Where each k of a 1-dilated kernel lies in its patch. */
static void mirt__conv_offsets(const mirt__conv *s, int64_t pitch, int32_t *offset) {
    for (int ky = 0; ky < s->kh; ky++) {
        for (int64_t q = 0; q < s->kw * s->ci; q++) *offset++ = (int32_t)(ky * pitch + q);
    }
}

static void mirt__conv_pool_task(void *arg, int64_t task, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_pool *args = job->pool;
    const mirt__simd *simd = job->simd;
    const mirt__conv_scratch_parts scratch = mirt__conv_scratch_of(job, member);
    const int64_t image = task / job->blocks_per_image, y = task % job->blocks_per_image * job->blocks.forward_rows;
    const int64_t pooled = s->oh / 2 * 2, rows = pooled - y < job->blocks.forward_rows ? pooled - y : job->blocks.forward_rows;
    const int64_t k = (int64_t)s->kh * s->kw * s->ci, group = (int64_t)simd->pool_vectors * simd->lanes;
    int32_t *offset = (int32_t *)(void *)scratch.panel;
    float *panel = scratch.panel + k;
    mirt__pool_row row;
    memset(&row, 0, sizeof row);
    const float *x = mirt__conv_input(job, image, y, rows, scratch.strip, &row.pitch);
    mirt__conv_offsets(s, row.pitch, offset);
    row.ci = s->ci;
    row.windows = s->ow / 2;
    row.k = k;
    row.offset = offset;
    row.co = s->co;
    for (int64_t j = 0; j < s->co; j += group) {
        row.columns = s->co - j < group ? s->co - j : group;
        row.b = args->kernel + j;
        row.b_row = s->co;
        if (row.columns % simd->lanes != 0) {
            memset(panel, 0, (size_t)(k * group) * sizeof(float));
            for (int64_t p = 0; p < k; p++) memcpy(panel + p * group, row.b + p * s->co, (size_t)row.columns * sizeof(float));
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
    mirt__conv_job job;
    mirt__conv_job_init(&job, simd, &args->s, &args->x, where);
    job.pool = args;
    job.blocks_per_image = (args->s.oh / 2 * 2 + job.blocks.forward_rows - 1) / job.blocks.forward_rows;
    mirt__team_for(where->team, args->s.rows * job.blocks_per_image, mirt__conv_pool_task, &job);
}

static void mirt__conv_pool_grad_task(void *arg, int64_t chunk, int member) {
    const mirt__conv_job *job = (const mirt__conv_job *)arg;
    const mirt__conv *s = job->s;
    const mirt__conv_pool_weight_grad *args = job->pool_grad;
    const mirt__conv_scratch_parts scratch = mirt__conv_scratch_of(job, member);
    const int64_t first = job->parts == 1 ? 0 : chunk * job->chunk;
    const int64_t end = s->rows - first < job->chunk ? s->rows : first + job->chunk;
    const int64_t k = (int64_t)s->kh * s->kw * s->ci, across = s->ow / 2, down = s->oh / 2;
    int32_t *offset = (int32_t *)(void *)scratch.panel;
    float *block = scratch.panel + k;
    mirt__pool_windows windows;
    memset(&windows, 0, sizeof windows);
    mirt__conv_partial(job, chunk, args->dkernel, args->db, &windows.dkernel, &windows.db);
    memset(windows.dkernel, 0, (size_t)(k * s->co) * sizeof(float));
    if (windows.db) memset(windows.db, 0, (size_t)s->co * sizeof(float));
    windows.block = block;
    windows.k = k;
    windows.co = s->co;
    for (int64_t image = first; image < end; image++) {
        for (int64_t y = 0; y < down * 2; y += job->blocks.forward_rows) {
            const int64_t rows = down * 2 - y < job->blocks.forward_rows ? down * 2 - y : job->blocks.forward_rows;
            int64_t pitch;
            const float *x = mirt__conv_input(job, image, y, rows, scratch.strip, &pitch);
            mirt__conv_offsets(s, pitch, offset);
            for (int64_t r = 0; r < rows / 2; r += job->blocks.window_rows) {
                const int64_t lines = rows / 2 - r < job->blocks.window_rows ? rows / 2 - r : job->blocks.window_rows;
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
    mirt__conv_job job;
    mirt__conv_job_init(&job, simd, &args->s, &args->x, where);
    job.pool_grad = args;
    mirt__conv_chunks_init(&job);
    mirt__team_for(where->team, job.parts, mirt__conv_pool_grad_task, &job);
    mirt__conv_chunks_finish(&job, args->dkernel, args->db);
}

#include "optimize_end.inc"

#endif
