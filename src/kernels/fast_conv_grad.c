/* Weight gradients of convolutions: products of transposed tiles of x with tiles of dy. */

#include "fast.h"

#include "optimize_drivers.inc"

struct mirt__grad_job {
    const mirt__simd *simd;
    const mirt__words *words; /* NULL: floats. A word combines the same pixel of two images, half a batch apart */
    const mirt__where *where;
    const mirt__conv_weight_grad *args;
    mirt__conv_grad_view g;
    mirt__source x, dy;
    mirt__input_tile x_tile, dy_tile;
    bool dy_direct;                 /* it is read in place */
    float *sums, *db_sums;          /* of the first chunk; db: NULL if there is none */
    int64_t channel_parts, column_parts; /* blocks of a group */
    int64_t channels, columns;           /* in one */
    int64_t sum_rows;                    /* of dkernel whose chunks a task adds up */
    mirt__both_view both;                /* of a gradient that is computed along with dx; x_tile is then complete */
};

/* The tiles of one block, and the position of a task in its chunk. */
typedef struct mirt__grad_block {
    mirt__input_tile x_tile, dy_tile;
    float *x, *room;
    const float *dy; /* in `room`, or in place */
    mirt__run *runs;
    int64_t run_count, pixels;
} mirt__grad_block;

/* Reads rows [*row, end) of dy with their inputs of x, up to the capacity. */
static void mirt__grad_read(const mirt__grad_job *job, mirt__grad_block *b, int64_t *row, int64_t end) {
    const mirt__conv *s = &job->g.v.s;
    const mirt__input_tile *x = &b->x_tile, *dy = &b->dy_tile;
    const int64_t reach = (int64_t)(s->kh - 1) * s->dilation_h, pitch = x->columns * x->pixel;
    const int64_t step = x->row_step > 1 ? 1 : s->stride_h, a_step = (x->column_step > 1 ? 1 : s->stride_w) * x->pixel;
    /* If no rows are read twice, the next block should fit into the cache, too. */
    const int64_t most = reach == 0 ? MIRT__SUM_CHUNK : MIRT__BLOCK_PIXELS;
    int64_t x_used = 0, k = 0;
    mirt__run all = {0, 0, 0};
    b->run_count = b->pixels = 0;
    b->dy = job->dy_direct && dy->channels == s->co ? (const float *)job->dy.from.data + *row * s->ow * s->co : b->room;
    do {
        const int64_t image = *row / s->oh, y = *row % s->oh;
        int64_t rows = mirt__min(s->oh - y, end - *row);
        /* The number that fits: at least one in an empty tile. */
        const int64_t x_room = (job->g.x_floats - x_used) / pitch - reach - 1,
                      dy_room = (job->g.dy_floats - MIRT__PANEL) / dy->pixel - b->pixels;
        int64_t fit = mirt__min(x_room < 0 ? 0 : x_room / step + 1, mirt__min(dy_room, most - b->pixels) / s->ow);
        if (fit < 1 && b->pixels == 0) fit = 1;
        if (fit < 1 || (fit < rows && fit * s->ow * 2 < b->pixels)) break; /* avoids a small remainder */
        rows = mirt__min(rows, fit);
        const int64_t x_rows = (rows - 1) * step + reach + 1;
        mirt__input_tile_rows(x, image, y * s->stride_h - s->pad_top, x_rows, b->x + x_used);
        if (b->dy == b->room) mirt__input_tile_rows(dy, image, y, rows, b->room + b->pixels * dy->pixel);
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = x_used + r * step * pitch;
            if (all.length > 0 && all.a + all.length * a_step == at) {
                all.length += s->ow;
                continue;
            }
            mirt__sweep_run_add(b->runs, &b->run_count, &k, all.a, all.length, a_step);
            all.a = at;
            all.length = s->ow;
        }
        x_used += x_rows * pitch;
        b->pixels += rows * s->ow;
        *row += rows;
    } while (*row < end);
    mirt__sweep_run_add(b->runs, &b->run_count, &k, all.a, all.length, a_step);
}

/* Estimates the memory that the next block reads. */
static void mirt__grad_ahead(const mirt__grad_job *job, const mirt__grad_block *b, int64_t row, int64_t rows,
                             mirt__ahead *ahead) {
    const mirt__conv *s = &job->g.v.s;
    const mirt__reader *x = &job->x.from, *dy = &job->dy.from;
    memset(ahead, 0, sizeof *ahead);
    if (b->x_tile.channels < s->ci || b->dy_tile.channels < s->co) return;
    for (int half = 0; half < (job->words ? 2 : 1); half++) {
        const int64_t y = row + half * job->g.rows, top = (y / s->oh * s->h + y % s->oh * s->stride_h) * s->w * s->ci;
        mirt__ahead_add(ahead, x->data, x->dtype, top, rows * s->stride_h * s->w * s->ci);
        mirt__ahead_add(ahead, dy->data, dy->dtype, y * s->ow * s->co, rows * s->ow * s->co);
        if (dy->back) mirt__ahead_add(ahead, dy->back->z, dy->dtype, y * s->ow * s->co, rows * s->ow * s->co);
    }
}

/* Adds rows of dy to the sums of db that begin `at` floats from the first. */
static void mirt__grad_db(const mirt__grad_job *job, int64_t at, const float *dy, int64_t row, int64_t k,
                          const mirt__sweep *sweep) {
    if (!job->db_sums) return;
    (job->words ? job->words->column_sum : job->simd->column_sum)(job->db_sums + at, dy, row, k, sweep->n,
                                                                  sweep->fresh);
}

/* A chunk, some channels of x and some columns of dy. */
static void mirt__grad_task(void *arg, int64_t task, int member) {
    const mirt__grad_job *job = (const mirt__grad_job *)arg;
    const mirt__conv_grad_view *g = &job->g;
    const mirt__conv *s = &g->v.s;
    const int64_t ci = g->v.k, co = g->v.n, padded = g->row / s->groups;
    const int64_t j = task % job->column_parts * job->columns,
                  c = task / job->column_parts % job->channel_parts * job->channels;
    const int64_t group = task / (job->column_parts * job->channel_parts) % s->groups;
    const int64_t chunk = task / (job->column_parts * job->channel_parts * s->groups);
    const int64_t end = mirt__min(g->rows, (chunk + 1) * g->chunk);
    char *scratch = (char *)mirt__scratch(job->where, member);
    mirt__grad_block b;
    b.x_tile = job->x_tile;
    b.dy_tile = job->dy_tile;
    b.x_tile.first = group * ci + c;
    b.x_tile.channels = b.x_tile.pixel = mirt__min(ci - c, job->channels);
    b.dy_tile.first = group * co + j;
    b.dy_tile.channels = b.dy_tile.pixel = mirt__min(co - j, job->columns);
    b.runs = (mirt__run *)(void *)scratch;
    b.x = (float *)(void *)(scratch + (size_t)g->runs * sizeof(mirt__run));
    b.room = b.x + g->x_floats;
    mirt__sweep sweep;
    memset(&sweep, 0, sizeof sweep);
    sweep.simd = job->simd;
    sweep.tile = job->words ? job->words->tile : job->simd->tile;
    sweep.m = (int64_t)s->kh * s->kw * b.x_tile.channels;
    sweep.width = b.x_tile.channels;
    sweep.lines = s->kw;
    sweep.a = b.x;
    sweep.a_x = 1;
    sweep.a_y = s->dilation_w * b.x_tile.pixel;
    sweep.a_z = s->dilation_h * b.x_tile.columns * b.x_tile.pixel;
    sweep.a_step = (b.x_tile.column_step > 1 ? 1 : s->stride_w) * b.x_tile.pixel;
    sweep.runs = b.runs;
    sweep.b_row = b.dy_tile.pixel;
    sweep.b_panel = MIRT__PANEL;
    sweep.n = b.dy_tile.channels;
    sweep.end = mirt__parts(sweep.n, MIRT__PANEL);
    sweep.c = job->sums + chunk * g->sum;
    sweep.c_at = c * g->row + group * padded + j;
    sweep.c_x = g->row;
    sweep.c_y = ci * g->row;
    sweep.c_z = s->kw * ci * g->row;
    sweep.fresh = sweep.padded = true;
    mirt__ahead ahead;
    sweep.ahead = &ahead;
    for (int64_t row = chunk * g->chunk; row < end; sweep.fresh = false) {
        const int64_t first = row;
        mirt__grad_read(job, &b, &row, end);
        mirt__grad_ahead(job, &b, row, mirt__min(end - row, row - first), &ahead);
        sweep.run_count = b.run_count;
        sweep.b = b.dy;
        mirt__sweep_run(&sweep);
        if (c == 0)
            mirt__grad_db(job, chunk * g->sum + group * padded + j, b.dy, b.dy_tile.pixel, b.pixels, &sweep);
    }
}

static void mirt__grad_tree(const mirt__grad_job *job, int64_t lo, int64_t hi, int64_t at, int64_t count) {
    if (hi - lo < 2) return;
    int64_t half = 1;
    while (half * 2 < hi - lo) half *= 2;
    mirt__grad_tree(job, lo, lo + half, at, count);
    mirt__grad_tree(job, lo + half, hi, at, count);
    job->simd->accumulate(job->sums + lo * job->g.sum + at, job->sums + (lo + half) * job->g.sum + at, count);
}

/* Adds up the chunks of some rows of dkernel, and of db. */
#define MIRT__GRAD_RANGE 8192 /* floats */
static void mirt__grad_rows_task(void *arg, int64_t task, int member) {
    const mirt__grad_job *job = (const mirt__grad_job *)arg;
    const mirt__conv_grad_view *g = &job->g;
    const int64_t most = g->k + (job->db_sums ? 1 : 0), groups = g->v.s.groups;
    const int64_t first = task * job->sum_rows, rows = mirt__min(most - first, job->sum_rows);
    (void)member;
    mirt__grad_tree(job, 0, g->chunks, first * g->row, rows * g->row);
    for (int64_t row = first; row < first + rows; row++) {
        float *to = row < g->k ? job->args->dkernel + row * g->v.s.co : job->args->db;
        const float *from = job->sums + row * g->row;
        for (int64_t i = 0; i < groups; i++)
            memcpy(to + i * g->v.n, from + i * (g->row / groups), (size_t)g->v.n * sizeof(float));
    }
}

static void mirt__grad_rows(mirt__grad_job *job) {
    const int64_t rows = job->g.k + (job->db_sums ? 1 : 0), threads = mirt__team_size(job->where->team);
    job->sum_rows = MIRT__GRAD_RANGE / job->g.row + 1;
    while (mirt__parts(rows, job->sum_rows) < threads && job->sum_rows > mirt__parts(MIRT__GRAD_RANGE / 16, job->g.row))
        job->sum_rows = mirt__parts(job->sum_rows, 2);
    mirt__team_for(job->where->team, mirt__parts(rows, job->sum_rows), mirt__grad_rows_task, job);
}

/* About so many blocks, of sizes that suit the tiles. */
static void mirt__grad_cut(mirt__grad_job *job, int64_t channel_parts, int64_t column_parts) {
    const int64_t k = job->g.v.k, n = job->g.v.n;
    job->channels = mirt__min(mirt__parts(mirt__parts(k, channel_parts), 12) * 12, job->g.channels);
    job->columns = mirt__min(mirt__parts(mirt__parts(n, column_parts), MIRT__PANEL) * MIRT__PANEL, job->g.columns);
    job->channel_parts = mirt__parts(k, job->channels);
    job->column_parts = mirt__parts(n, job->columns);
}

/* An element of a block's x and dy that is read takes as long as so many multiply-adds. */
#define MIRT__GRAD_READ 32
/* How long the team takes, in multiply-adds for each pixel: it works in rounds of a task each. */
static int64_t mirt__grad_cost(const mirt__grad_job *job, int64_t threads) {
    const mirt__conv *s = &job->g.v.s;
    const int64_t tasks = job->g.chunks * s->groups * job->channel_parts * job->column_parts;
    return mirt__parts(tasks, threads) * ((int64_t)s->kh * s->kw * job->channels * job->columns +
                                          MIRT__GRAD_READ * (job->channels + job->columns));
}
#undef MIRT__GRAD_READ

/* Smaller blocks where the team is done earlier with them, though each reads its part of x and dy. */
static void mirt__grad_parts(mirt__grad_job *job) {
    enum { ROUNDS = 4 };
    const mirt__conv_grad_view *g = &job->g;
    const int64_t threads = mirt__team_size(job->where->team), shares = g->chunks * g->v.s.groups;
    mirt__grad_cut(job, 1, 1);
    const int64_t channel_parts = job->channel_parts, most = mirt__parts(g->v.n, MIRT__PANEL);
    int64_t best_channels = channel_parts, best_columns = job->column_parts, least = mirt__grad_cost(job, threads);
    for (int64_t columns = best_columns; threads > 1 && columns <= most; columns++) {
        for (int64_t rounds = 1; rounds <= ROUNDS; rounds++) {
            mirt__grad_cut(job, mirt__max(rounds * threads / (shares * columns), channel_parts), columns);
            const int64_t cost = mirt__grad_cost(job, threads);
            if (cost >= least) continue;
            least = cost;
            best_channels = job->channel_parts;
            best_columns = job->column_parts;
        }
    }
    mirt__grad_cut(job, best_channels, best_columns);
}

static mirt__input_tile mirt__grad_tiles(const mirt__grad_job *job, const mirt__source *source, int64_t h, int64_t w,
                                    int64_t c, int64_t pixels) {
    mirt__input_tile input_tile = mirt__input_tile_of(job->simd, source, h, w, c, 0, w);
    input_tile.words = job->words;
    input_tile.round = job->args->half && !job->words;
    input_tile.pair = job->words ? job->g.v.s.rows * h * w : 0;
    input_tile.pixels = pixels;
    return input_tile;
}

MIRT__LIB void mirt__fast_conv_weight_grad(const mirt__simd *simd, const mirt__conv_weight_grad *args,
                                           const mirt__where *where) {
    const mirt__conv *s = &args->s;
    if (mirt__is_depthwise(s)) {
        mirt__fast_depthwise_weight_grad(simd, args, where);
        return;
    }
    mirt__grad_job job;
    memset(&job, 0, sizeof job);
    job.simd = simd;
    job.where = where;
    job.args = args;
    mirt__conv view = *s;
    if (args->half && simd->words) {
        job.words = simd->words;
        view.rows = (s->rows + 1) / 2;
    }
    job.g = mirt__conv_grad_view_of(&view);
    const mirt__conv_view *v = &job.g.v;
    if (job.g.rows < 1 || s->ow < 1) {
        memset(args->dkernel, 0, (size_t)(job.g.k * s->co) * sizeof(float));
        if (args->db) memset(args->db, 0, (size_t)s->co * sizeof(float));
        return;
    }
    float *shared = (float *)where->shared;
    job.x = mirt__source_of(&args->x, shared);
    job.dy = mirt__source_of(&args->dy, shared + 5 * s->ci);
    job.x_tile = mirt__grad_tiles(&job, &job.x, v->s.h, v->s.w, s->ci, s->rows * s->h * s->w);
    job.x_tile.left = v->tile_left;
    job.x_tile.columns = v->tile_columns;
    job.x_tile.row_step = v->row_step;
    job.x_tile.column_step = v->column_step;
    job.dy_tile = mirt__grad_tiles(&job, &job.dy, v->s.oh, v->s.ow, s->co, s->rows * s->oh * s->ow);
    job.dy_direct = mirt__reader_plain(&args->dy) && !args->half && s->co % MIRT__PANEL_LINE == 0;
    /* A single chunk is added up in place. */
    const bool place = job.g.chunks == 1 && job.g.row == s->co;
    job.sums = place ? args->dkernel : shared + 5 * (s->ci + s->co);
    if (args->db) job.db_sums = place ? args->db : job.sums + job.g.k * job.g.row;
    mirt__grad_parts(&job);
    mirt__team_for(where->team, job.g.chunks * s->groups * job.channel_parts * job.column_parts, mirt__grad_task, &job);
    if (place) return;
    mirt__grad_rows(&job);
}

/* >>along with an input gradient */

MIRT__LIB void mirt__grad_beside_ahead(const mirt__grad_job *job, int64_t number, mirt__ahead *ahead) {
    const mirt__reader *x = &job->x.from;
    const int64_t ci = job->g.v.k, first = number * job->both.lines, left = job->g.rows - first;
    if (left > 0)
        mirt__ahead_add(ahead, x->data, x->dtype, first * ci, mirt__min(left, job->both.lines) * ci);
}

/* A word combines two pixels of a block, half a block apart. */
MIRT__LIB void mirt__grad_beside_run(const mirt__grad_job *job, int64_t number, float *input_tile, mirt__ahead *ahead) {
    const mirt__both_view *both = &job->both;
    const int64_t ci = job->g.v.k, co = job->g.v.n, first = number * both->lines, left = job->g.rows - first;
    const int64_t pixels = mirt__min(left, both->lines), k = job->words ? (pixels + 1) / 2 : pixels;
    float *x = input_tile + both->input_tile, *dy = input_tile;
    mirt__input_tile from = job->x_tile;
    from.pair = job->words ? k : 0;
    from.pixels = first + pixels;
    mirt__input_tile_rows(&from, 0, first, k, x);
    if (job->words) {
        mirt__source words;
        memset(&words, 0, sizeof words);
        words.from.data = input_tile;
        words.from.dtype = (mirt_dtype)MIRT__BFLOAT16;
        words.from.channels = from.c = co + co % 2;
        from.source = &words;
        from.channels = from.pixel = co;
        from.pixels = pixels;
        dy = x + both->lines * ci;
        mirt__input_tile_rows(&from, 0, 0, k, dy);
    }
    const mirt__run run = {0, 0, k};
    mirt__sweep sweep;
    memset(&sweep, 0, sizeof sweep);
    sweep.simd = job->simd;
    sweep.tile = job->words ? job->words->tile : job->simd->tile;
    sweep.m = sweep.width = ci;
    sweep.lines = 1;
    sweep.a = x;
    sweep.a_x = 1;
    sweep.a_step = ci;
    sweep.runs = &run;
    sweep.run_count = 1;
    sweep.b = dy;
    sweep.b_row = co;
    sweep.b_panel = MIRT__PANEL;
    sweep.n = co;
    sweep.end = mirt__parts(co, MIRT__PANEL);
    sweep.c = job->sums + number / both->blocks * job->g.sum;
    sweep.c_x = job->g.row;
    sweep.fresh = number % both->blocks == 0;
    sweep.padded = true;
    sweep.ahead = ahead;
    mirt__sweep_run(&sweep);
    mirt__grad_db(job, number / both->blocks * job->g.sum, dy, co, k, &sweep);
}

MIRT__LIB void mirt__fast_conv_both(const mirt__simd *simd, const mirt__conv_input_grad *args,
                                    const mirt__where *where) {
    const mirt__conv *s = &args->s;
    mirt__conv_weight_grad weights;
    memset(&weights, 0, sizeof weights);
    weights.s = *s;
    weights.x = *args->x;
    weights.dy = args->dy;
    weights.dkernel = args->dkernel;
    weights.db = args->db;
    weights.half = args->half;
    if (!mirt__both_applies(s) || s->rows * s->h * s->w < 1) {
        mirt__conv_input_grad alone = *args;
        alone.x = NULL;
        mirt__fast_conv_input_grad(simd, &alone, where);
        mirt__fast_conv_weight_grad(simd, &weights, where);
        return;
    }
    mirt__grad_job job;
    memset(&job, 0, sizeof job);
    job.simd = simd;
    job.where = where;
    job.args = &weights;
    if (args->half) job.words = simd->words;
    job.g = mirt__conv_grad_view_of(s);
    job.both = mirt__both_view_of(s);
    job.g.chunks = job.both.chunks;
    float *columns = (float *)(void *)((char *)where->shared + job.both.sums);
    job.x = mirt__source_of(&weights.x, columns);
    job.x_tile = mirt__grad_tiles(&job, &job.x, job.g.v.s.h, 1, s->ci, 0);
    job.x_tile.channels = job.x_tile.pixel = s->ci;
    job.sums = columns + 5 * s->ci;
    if (args->db) job.db_sums = job.sums + job.g.k * job.g.row;
    mirt__conv_run_beside(simd, args, &job, where);
    mirt__grad_rows(&job);
}
#undef MIRT__GRAD_RANGE

#include "optimize_end.inc"
