/* Winograd's F(2x2, 3x3) for convolutions and the gradients of their inputs (Lavin & Gray 2016). A tile of 2x2 output
   pixels is computed from 4x4 input pixels with sixteen products instead of thirty-six. Each of the sixteen planes is a
   matrix of tiles times channels. */

#include "fast.h"

#include "optimize_drivers.inc"

#define MIRT__FINISHED_TILES 9 /* tiles whose four pixels are finished at a time */

typedef struct mirt__winograd_job {
    const mirt__simd *simd;
    const mirt__where *where;
    mirt__winograd_view v;
    const float *kernel;
    mirt__source x;
    mirt__input_tile input_tile;
    mirt__finishing finishing;
    float *packed, *sums;
    int32_t *counts;
    mirt__run *runs;
    int64_t run_count;
    int64_t panels, splits, sum_floats;
} mirt__winograd_job;

/* Some steps of k of a panel of the weights, all planes. */
static void mirt__winograd_pack_task(void *arg, int64_t task, int member) {
    const mirt__winograd_job *job = (const mirt__winograd_job *)arg;
    const mirt__winograd_view *v = &job->v;
    const int64_t panel = task % job->panels, j = panel * MIRT__PANEL, p = task / job->panels * MIRT__WINOGRAD_STEPS;
    const int64_t columns = mirt__min(v->target_c - j, MIRT__PANEL);
    const int64_t k = mirt__min(v->c - p, MIRT__WINOGRAD_STEPS),
                  rest = -columns & (job->simd->lanes - 1);
    float *taps = (float *)mirt__scratch(job->where, member);
    const int64_t plane = MIRT__WINOGRAD_STEPS * MIRT__PANEL;
    for (int64_t tap = 0; tap < 9; tap++) {
        float *to = taps + tap * plane;
        /* In the backward pass the kernel is rotated by 180 degrees. */
        if (v->back) job->simd->transpose(to, job->kernel + ((8 - tap) * v->target_c + j) * v->c + p, v->c, k, columns);
        else job->simd->copy_rows(to, job->kernel + (tap * v->c + p) * v->target_c + j, v->target_c, k, columns);
        for (int64_t i = 0; rest > 0 && i < k; i++)
            memset(to + i * MIRT__PANEL + columns, 0, (size_t)rest * sizeof(float));
    }
    float *to = job->packed + (panel * v->c + p) * MIRT__PANEL;
    job->simd->winograd_taps(to, job->panels * v->c * MIRT__PANEL, taps, plane, k, columns + rest);
}

/* A block's tiles are those of `images` images from `image` on, `lines` rows from row `y` on. */
typedef struct mirt__winograd_block {
    int64_t image, images, y, lines, tiles;
} mirt__winograd_block;

static mirt__winograd_block mirt__winograd_block_of(const mirt__winograd_view *v, int64_t number) {
    mirt__winograd_block b;
    b.image = v->images > 1 ? number * v->images : number / v->parts;
    b.images = mirt__min(v->rows - b.image, v->images);
    b.y = number % v->parts * v->lines;
    b.lines = mirt__min(v->down - b.y, v->lines);
    b.tiles = b.images * b.lines * v->across;
    return b;
}

static void mirt__winograd_read(const mirt__winograd_job *job, const mirt__winograd_block *b, float *input_tile,
                                float *planes) {
    const mirt__winograd_view *v = &job->v;
    const int64_t pitch = v->tile_columns * v->c, rows = 2 * b->lines + 2;
    for (int64_t i = 0; i < b->images; i++) {
        mirt__input_tile_rows(&job->input_tile, b->image + i, 2 * b->y - v->before_h, rows, input_tile);
        for (int64_t line = 0; line < b->lines; line++, planes += v->across * v->c) {
            job->simd->winograd_source(planes, v->source_plane, input_tile + 2 * line * pitch, pitch, v->c, v->across);
        }
    }
}

/* The positions of the target's pixels of tiles [first, first + count) and their offsets in `spare`; returns their
   number: a tile at the edge may have less than four. */
static int64_t mirt__winograd_places(const mirt__winograd_view *v, const mirt__winograd_block *b, int64_t first,
                                     int64_t count, float *spare, float **c, int64_t *at) {
    int64_t x = first % v->across, line = first / v->across, pixels = 0;
    for (int64_t t = 0; t < count; t++) {
        const int64_t image = b->image + line / b->lines, y = 2 * (b->y + line % b->lines);
        for (int64_t i = 0; i < 4; i++) {
            const int64_t row = y + i / 2, column = 2 * x + i % 2;
            if (row >= v->target_h || column >= v->target_w) continue;
            c[pixels] = spare + (4 * t + i) * MIRT__PANEL;
            at[pixels++] = ((image * v->target_h + row) * v->target_w + column) * v->target_c;
        }
        if (++x == v->across) {
            x = 0;
            line++;
        }
    }
    return pixels;
}

/* Transforms the products of a panel to pixels. */
static void mirt__winograd_finish(const mirt__winograd_job *job, const mirt__winograd_block *b, const float *products,
                                  float *sums, int32_t *counts, int64_t j, int64_t columns, float *spare) {
    const mirt__winograd_view *v = &job->v;
    mirt__finishing f = mirt__finishing_at(&job->finishing, j);
    float *c[4 * MIRT__FINISHED_TILES];
    int64_t at[4 * MIRT__FINISHED_TILES];
    for (int64_t t = 0; t < b->tiles; t += MIRT__FINISHED_TILES) {
        const int64_t count = mirt__min(b->tiles - t, MIRT__FINISHED_TILES);
        const int64_t chunk = t / MIRT__WINOGRAD_CHUNK, pixels = mirt__winograd_places(v, b, t, count, spare, c, at);
        job->simd->winograd_target(spare, products + t * MIRT__PANEL, v->product_plane, count, columns);
        for (int64_t i = 0; i < pixels; i++) at[i] += j;
        f.fresh = t % MIRT__WINOGRAD_CHUNK == 0;
        if (sums) f.sum = sums + chunk * job->sum_floats + j;
        if (counts) counts[chunk] += (int32_t)pixels;
        job->simd->finish_rows(&f, c, at, pixels, columns);
    }
}

static void mirt__winograd_task(void *arg, int64_t task, int member) {
    const mirt__winograd_job *job = (const mirt__winograd_job *)arg;
    const mirt__winograd_view *v = &job->v;
    const int64_t block = task / job->splits, split = task % job->splits;
    const mirt__winograd_block b = mirt__winograd_block_of(v, block);
    float *products = (float *)mirt__scratch(job->where, member);
    float *spare = products + v->shared_floats, *planes = spare + 4 * MIRT__FINISHED_TILES * MIRT__PANEL;
    mirt__winograd_read(job, &b, products, planes);
    mirt__sweep sweep;
    memset(&sweep, 0, sizeof sweep);
    sweep.simd = job->simd;
    sweep.tile = job->simd->tile;
    sweep.m = sweep.width = b.tiles;
    sweep.lines = 1;
    sweep.a_x = v->c;
    sweep.a_step = 1;
    sweep.runs = job->runs;
    sweep.run_count = job->run_count;
    sweep.b_row = MIRT__PANEL;
    sweep.b_panel = v->c * MIRT__PANEL;
    sweep.n = v->target_c;
    sweep.c_x = MIRT__PANEL;
    sweep.fresh = sweep.padded = true;
    const int64_t end = job->panels * (split + 1) / job->splits;
    float *sums = MIRT__TRAINS && job->sums ? job->sums + block * v->chunks * job->sum_floats : NULL;
    int32_t *counts = sums && split == 0 ? job->counts + block * v->chunks : NULL;
    if (counts) memset(counts, 0, (size_t)v->chunks * sizeof *counts); /* the last block may have fewer chunks */
    for (int64_t panel = job->panels * split / job->splits; panel < end; panel++) {
        const int64_t j = panel * MIRT__PANEL, columns = mirt__min(v->target_c - j, MIRT__PANEL);
        sweep.begin = panel;
        sweep.end = panel + 1;
        sweep.c_at = -j;
        for (int64_t i = 0; i < 16; i++) {
            sweep.a = planes + i * v->source_plane;
            sweep.b = job->packed + i * job->panels * sweep.b_panel;
            sweep.c = products + i * v->product_plane;
            mirt__sweep_run(&sweep);
        }
        mirt__winograd_finish(job, &b, products, sums, panel == 0 ? counts : NULL, j, columns, spare);
    }
}

MIRT__LIB void mirt__fast_winograd(const mirt__simd *simd, const mirt__conv *s, bool back, const mirt__reader *x,
                                   const float *kernel, const mirt__epilogue *epilogue, void *y, mirt_dtype dtype,
                                   const mirt__where *where) {
    mirt__winograd_job job;
    memset(&job, 0, sizeof job);
    job.simd = simd;
    job.where = where;
    job.v = mirt__winograd_view_of(s, back);
    job.kernel = kernel;
    const mirt__winograd_view *v = &job.v;
    char *shared = (char *)where->shared;
    job.x = mirt__source_of(x, (float *)(void *)(shared + v->places.source));
    job.finishing =
        mirt__finishing_of(epilogue, v->target_c, y, dtype, (float *)(void *)(shared + v->places.finishing));
    job.input_tile = mirt__input_tile_of(simd, &job.x, v->h, v->w, v->c, -v->before_w, v->tile_columns);
    job.packed = (float *)(void *)(shared + v->places.packed);
    if (MIRT__TRAINS && epilogue->sums != MIRT__SUMS_NONE) job.sums = (float *)(void *)(shared + v->places.sums);
    job.counts = (int32_t *)(void *)(shared + v->places.counts);
    job.runs = (mirt__run *)(void *)(shared + v->places.runs);
    int64_t k = 0;
    mirt__sweep_run_add(job.runs, &job.run_count, &k, 0, v->c, 1);
    job.panels = mirt__parts(v->target_c, MIRT__PANEL);
    job.sum_floats = mirt__sum_floats(epilogue, v->target_c);
    if (v->blocks > 0) {
        job.splits = mirt__sweep_splits(where, v->blocks, job.panels, 3);
        mirt__team_for(where->team, mirt__parts(v->c, MIRT__WINOGRAD_STEPS) * job.panels,
                       mirt__winograd_pack_task, &job);
        mirt__team_for(where->team, v->blocks * job.splits, mirt__winograd_task, &job);
    }
    if (MIRT__TRAINS && job.sums)
        mirt__counted_sums_run(where->team, epilogue, job.sums, job.counts, v->blocks * v->chunks, v->target_c);
}
#undef MIRT__FINISHED_TILES

#include "optimize_end.inc"
