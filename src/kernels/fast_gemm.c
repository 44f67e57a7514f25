/* Matrix products: panels of b, blocks of k, tiles of c. */

#include "fast.h"

#include "optimize_drivers.inc"

/* c = a b, with any regular layout of rows and columns of c. */
typedef struct mirt__product {
    int64_t m, n, width; /* row i is number i % width of line i / width */
    const float *a;
    int64_t a_x, a_y, a_step; /* distance of rows within a line, of lines, of k within a run */
    const mirt__run *runs;
    int64_t run_count;
    const float *b;
    int64_t b_row, b_col;
    float *c;
    int64_t c_x, c_y;
    bool fresh;
    const mirt__epilogue *epilogue; /* or NULL; with the next two in place of its pointers */
    const float *bias, *mask;       /* bias of column 0; the mask of c[0] */
    float *panel;                   /* scratch of MIRT__PANEL_FLOATS */
} mirt__product;

/* The part of the runs between two spills. */
typedef struct mirt__fast_block {
    mirt__run runs[MIRT__BLOCK_RUNS];
    int64_t count, k;
    bool contiguous; /* in b, row after row */
} mirt__fast_block;

/* Takes the next block, starting `skip` steps into run `*run`; false if it is the last. */
static bool mirt__fast_next_block(const mirt__product *p, int64_t *run, int64_t *skip, mirt__fast_block *block) {
    block->count = block->k = 0;
    block->contiguous = true;
    while (*run < p->run_count && block->count < MIRT__BLOCK_RUNS && block->k < MIRT__BLOCK_K) {
        const mirt__run *from = &p->runs[*run];
        mirt__run *to = &block->runs[block->count];
        to->a = from->a + *skip * p->a_step;
        to->b = from->b + *skip * p->b_row;
        to->length = mirt__min(from->length - *skip, MIRT__BLOCK_K - block->k);
        if (to->b != block->runs[0].b + block->k * p->b_row) block->contiguous = false;
        block->k += to->length;
        block->count++;
        *skip += to->length;
        if (*skip == from->length) {
            ++*run;
            *skip = 0;
        }
    }
    return *run < p->run_count;
}

/* Copies the block's rows of b into the panel, `columns` from j on, padded with zeros to whole vectors. */
static void mirt__fast_pack(const mirt__simd *simd, const mirt__product *p, const mirt__fast_block *block, int64_t j,
                            int64_t columns) {
    const int64_t filled = mirt__parts(columns, simd->lanes) * simd->lanes;
    float *to = p->panel;
    for (int64_t r = 0; r < block->count; r++) {
        const int64_t k = block->runs[r].length;
        const float *from = p->b + block->runs[r].b + j * p->b_col;
        if (p->b_col == 1) {
            simd->copy_rows(to, from, p->b_row, k, columns);
        } else {
            simd->transpose(to, from, p->b_col, k, columns);
            for (int64_t i = 0; i < k && filled > columns; i++) {
                memset(to + i * MIRT__PANEL + columns, 0, (size_t)(filled - columns) * sizeof(float));
            }
        }
        to += k * MIRT__PANEL;
    }
}

/* The columns of a tile that do not fill their vectors, through scratch memory. */
static void mirt__fast_tile_edge(const mirt__simd *simd, const mirt__tile *tile, int64_t rows, int kind,
                                 int64_t columns, float *spare) {
    mirt__tile edge = *tile;
    float *c[MIRT__TILE_ROWS];
    edge.c = c;
    edge.column = 0;
    for (int64_t i = 0; i < rows; i++) {
        c[i] = spare + i * MIRT__PANEL;
        if (!tile->fresh) memcpy(c[i], tile->c[i] + tile->column, (size_t)columns * sizeof(float));
    }
    simd->tile[kind][rows - 1](&edge);
    for (int64_t i = 0; i < rows; i++) {
        memcpy(tile->c[i] + tile->column, edge.c[i], (size_t)columns * sizeof(float));
    }
}

/* Up to a panel's columns of up to six rows of c. */
static void mirt__fast_tile(const mirt__simd *simd, mirt__tile *tile, int64_t rows, int64_t columns, float *spare) {
    const float *b = tile->b;
    tile->ahead = (const char *)b;
    const int widest = simd->vectors == 4 ? 2 : 1;
    for (int64_t j = 0; j < columns;) {
        int kind = widest;
        /* Every vector needs at least one column. */
        while (((int64_t)simd->lanes << kind) - simd->lanes >= columns - j || !simd->tile[kind][0]) kind--;
        const int64_t wide = (int64_t)simd->lanes << kind;
        tile->b = b + j;
        tile->column = j;
        if (columns - j >= wide) simd->tile[kind][rows - 1](tile);
        else mirt__fast_tile_edge(simd, tile, rows, kind, columns - j, spare);
        j += wide;
    }
    tile->b = b;
}

/* All rows of c, `columns` from j on, one block of k. */
static void mirt__fast_rows(const mirt__simd *simd, const mirt__product *p, const mirt__tile *block, int64_t j,
                            int64_t columns, bool last) {
    const float *a[MIRT__TILE_ROWS], *mask[MIRT__TILE_ROWS];
    float *c[MIRT__TILE_ROWS];
    float *spare = p->panel + MIRT__BLOCK_K * MIRT__PANEL;
    const int64_t tiles = mirt__parts(p->m, simd->rows);
    int64_t line = 0, place = 0, left = p->m;
    mirt__tile tile = *block;
    tile.a = a;
    tile.c = c;
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t rows = mirt__parts(left, tiles - t); /* as even as possible */
        left -= rows;
        for (int64_t i = 0; i < rows; i++) {
            const int64_t at = line * p->c_y + place * p->c_x + j;
            a[i] = p->a + line * p->a_y + place * p->a_x;
            c[i] = p->c + at;
            mask[i] = p->mask ? p->mask + at : NULL;
            if (++place == p->width) {
                place = 0;
                line++;
            }
        }
        mirt__fast_tile(simd, &tile, rows, columns, spare);
        if (last && p->epilogue) simd->finish(p->epilogue, p->bias ? p->bias + j : NULL, c, mask, rows, columns);
    }
}

static void mirt__product_run(const mirt__simd *simd, const mirt__product *p) {
    mirt__fast_block block;
    mirt__tile tile;
    memset(&tile, 0, sizeof tile);
    tile.runs = block.runs;
    tile.a_step = p->a_step;
    for (int64_t j = 0; j < p->n; j += MIRT__PANEL) {
        const int64_t columns = mirt__min(MIRT__PANEL, p->n - j);
        int64_t run = 0, skip = 0;
        tile.fresh = p->fresh;
        for (bool more = true; more;) {
            more = mirt__fast_next_block(p, &run, &skip, &block);
            /* If there are many rows of a, rows of b that are far apart cost more than a copy. */
            if (p->b_col == 1 && block.contiguous && columns % simd->lanes == 0 && !(p->b_row >= 512 && p->m >= 96)) {
                tile.b = p->b + (block.count > 0 ? block.runs[0].b : 0) + j;
                tile.b_row = p->b_row;
            } else {
                mirt__fast_pack(simd, p, &block, j, columns);
                tile.b = p->panel;
                tile.b_row = MIRT__PANEL;
            }
            tile.run_count = block.count;
            mirt__fast_rows(simd, p, &tile, j, columns, !more);
            tile.fresh = false;
        }
    }
}

typedef struct mirt__gemm_job {
    const mirt__simd *simd;
    const mirt__gemm *args;
    const mirt__where *where;
    int64_t rows, columns, column_tasks; /* of c in a task */
    bool input_tile;                          /* a is read into scratch */
} mirt__gemm_job;

/* Some columns of c for a weight gradient whose a must be converted: k in blocks. */
static void mirt__gemm_read_columns(const mirt__gemm_job *job, mirt__product *p, int64_t i, float *input_tile) {
    const mirt__gemm *args = job->args;
    const mirt__source source = mirt__source_of(&args->a, NULL);
    const int64_t m = p->m;
    float *const c = p->c;
    const float *const b = p->b, *const mask = p->mask;
    mirt__run run = {0, 0, 0};
    p->runs = &run;
    p->a = input_tile;
    p->a_step = MIRT__GRAD_COLUMNS;
    for (int64_t ci = 0; ci < m; ci += MIRT__GRAD_COLUMNS) {
        p->m = p->width = mirt__min(MIRT__GRAD_COLUMNS, m - ci);
        p->c = c + ci * args->n;
        p->mask = mask ? mask + ci * args->n : NULL;
        int64_t k = 0;
        do {
            run.length = mirt__min(MIRT__BLOCK_K, args->k - k);
            for (int64_t q = 0; q < run.length; q++) {
                job->simd->read(input_tile + q * MIRT__GRAD_COLUMNS, &source, (k + q) * args->a_col + i + ci, p->m);
            }
            p->b = b + k * args->b_row;
            p->fresh = k == 0;
            k += run.length;
            p->epilogue = k == args->k ? &args->epilogue : NULL;
            mirt__product_run(job->simd, p);
        } while (k < args->k);
    }
}

static void mirt__gemm_task(void *arg, int64_t task, int member) {
    const mirt__gemm_job *job = (const mirt__gemm_job *)arg;
    const mirt__gemm *args = job->args;
    const int64_t i = task / job->column_tasks * job->rows, j = task % job->column_tasks * job->columns;
    float *scratch = (float *)mirt__scratch(job->where, member);
    const mirt__run run = {0, 0, args->k};
    mirt__product p;
    memset(&p, 0, sizeof p);
    p.m = p.width = mirt__min(job->rows, args->m - i);
    p.n = mirt__min(job->columns, args->n - j);
    p.runs = &run;
    p.run_count = 1;
    p.b = args->b + j * args->b_col;
    p.b_row = args->b_row;
    p.b_col = args->b_col;
    p.c = args->c + i * args->n + j;
    p.c_x = args->n;
    p.fresh = true;
    const mirt__epilogue *epilogue = &args->epilogue;
    if (epilogue->bias || epilogue->activation != MIRT_LINEAR || epilogue->mask) p.epilogue = epilogue;
    p.bias = epilogue->bias ? epilogue->bias + j : NULL;
    p.mask = epilogue->mask ? (const float *)epilogue->mask + i * args->n + j : NULL;
    p.panel = scratch;
    if (MIRT__TRAINS && args->column_sum && i == 0) {
        job->simd->column_sum(args->column_sum + j, args->b + j, args->b_row, args->k, p.n, true);
    }
    float *input_tile = scratch + MIRT__PANEL_FLOATS;
    if (!job->input_tile) {
        p.a = (const float *)args->a.data + i * args->a_row;
        p.a_x = args->a_row;
        p.a_step = args->a_col;
        mirt__product_run(job->simd, &p);
    } else if (args->a_col == 1) {
        const mirt__source source = mirt__source_of(&args->a, NULL);
        for (int64_t r = 0; r < p.m; r++)
            job->simd->read(input_tile + r * args->k, &source, (i + r) * args->a_row, args->k);
        p.a = input_tile;
        p.a_x = args->k;
        p.a_step = 1;
        mirt__product_run(job->simd, &p);
    } else {
        p.a_x = 1;
        mirt__gemm_read_columns(job, &p, i, input_tile);
    }
}

/* Multiply-adds, at least, of a panel that several threads divide: less takes no longer than to call them. */
#define MIRT__SHARED_PRODUCT 65536

MIRT__LIB void mirt__fast_gemm(const mirt__simd *simd, const mirt__gemm *args, const mirt__where *where) {
    if (MIRT__TRAINS && args->m < 1 && args->column_sum)
        simd->column_sum(args->column_sum, args->b, args->b_row, args->k, args->n, true);
    if (args->m < 1 || args->n < 1) return;
    const int64_t threads = mirt__team_size(where->team);
    mirt__gemm_job job;
    job.simd = simd;
    job.args = args;
    job.where = where;
    /* Rows of a weight gradient's a that are a multiple of 1 KB apart compete for too few cache sets. */
    job.input_tile = args->a.dtype != MIRT_FLOAT32 || args->a.affine ||
                     (args->a_col != 1 && args->a_col % 256 == 0 && args->k > 8);
    job.columns = MIRT__PANEL;
    if (args->a_col == 1) {
        job.rows = job.input_tile ? mirt__gemm_tile_rows(args->m, args->k) : args->m;
        if (job.input_tile && threads == 1) job.columns = args->n;
    } else {
        job.rows = threads == 1 && !job.input_tile ? args->m : 8 * MIRT__GRAD_COLUMNS;
    }
    job.rows = mirt__min(job.rows, args->m);
    job.column_tasks = mirt__parts(args->n, job.columns);
    if (threads > 1 && job.column_tasks * mirt__parts(args->m, job.rows) < 3 * threads) {
        const int64_t parts = mirt__parts(2 * threads, job.column_tasks);
        job.rows = mirt__min(job.rows, mirt__parts(mirt__parts(args->m, parts), 12) * 12);
    }
    while (mirt__parts(args->m, job.rows) * job.column_tasks < threads && job.columns > 2 * simd->lanes &&
           args->m * args->k * args->n >= MIRT__SHARED_PRODUCT) {
        job.columns /= 2;
        job.column_tasks = mirt__parts(args->n, job.columns);
    }
    mirt__team_for(where->team, mirt__parts(args->m, job.rows) * job.column_tasks, mirt__gemm_task, &job);
}

#undef MIRT__SHARED_PRODUCT

typedef struct mirt__range_job {
    const mirt__simd *simd;
    const mirt__update *update;
    void (*range)(const mirt__update *args, int64_t begin, int64_t end);
    float *into;
    const float *from;
    int64_t begin, end;
} mirt__range_job;
#define MIRT__RANGE 16384

static void mirt__range_task(void *arg, int64_t task, int member) {
    const mirt__range_job *job = (const mirt__range_job *)arg;
    const int64_t begin = job->begin + task * MIRT__RANGE, end = mirt__min(begin + MIRT__RANGE, job->end);
    (void)member;
    if (job->update) job->range(job->update, begin, end);
    else job->simd->accumulate(job->into + begin, job->from + begin, end - begin);
}

MIRT__LIB void mirt__fast_accumulate(const mirt__simd *simd, float *into, const float *from, int64_t count,
                                     const mirt__where *where) {
    mirt__range_job job;
    memset(&job, 0, sizeof job);
    job.simd = simd;
    job.into = into;
    job.from = from;
    job.end = count;
    mirt__team_for(where->team, mirt__parts(count, MIRT__RANGE), mirt__range_task, &job);
}

MIRT__LIB void mirt__fast_update(const mirt__where *where, const mirt__update *args,
                                 void (*range)(const mirt__update *args, int64_t begin, int64_t end)) {
    mirt__range_job job;
    memset(&job, 0, sizeof job);
    job.update = args;
    job.range = range;
    job.begin = args->begin;
    job.end = args->end;
    mirt__team_for(where->team, mirt__parts(args->end - args->begin, MIRT__RANGE), mirt__range_task, &job);
}

#undef MIRT__RANGE

#include "optimize_end.inc"
