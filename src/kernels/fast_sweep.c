/* The core of convolutions: tiled reads of inputs, and products with panels of weights. */

#include "fast.h"

#include "optimize_drivers.inc"

#define MIRT__LINE 64 /* bytes */
#define MIRT__SOON 4  /* pixels */
/* The hardware cannot predict the addresses of parts of pixels. */
static void mirt__input_tile_soon(const mirt__input_tile *s, int64_t first, int64_t count) {
    const mirt__reader *x = &s->source->from;
    const int64_t size = (int64_t)mirt__dtype_size(x->dtype), end = (first + count) * size;
    if (count * size < 4 * MIRT__LINE) return;
    for (int64_t i = first * size; i < end; i += MIRT__LINE) {
        __builtin_prefetch((const char *)x->data + i, 0, 2);
        if (MIRT__TRAINS && x->back) __builtin_prefetch((const char *)x->back->z + i, 0, 2);
    }
}

/* Consecutive pixels from pixel `at` on. */
static void mirt__input_tile_read(const mirt__input_tile *s, float *to, int64_t at, int64_t pixels) {
    if (MIRT__TRAINS && s->pair > 0) {
        const int64_t left = s->pixels - s->pair - at,
                      paired = left < 0        ? 0
                               : mirt__min(left, pixels),
                      from = at * s->c + s->first;
        s->words->read_pairs(to, s->source, from, from + s->pair * s->c, s->c, s->channels, paired);
        s->words->read_pairs(to + paired * s->pixel, s->source, from + paired * s->c, -1, s->c, s->channels,
                             pixels - paired);
        return;
    }
    if (s->words) {
        s->words->read_words(to, s->source, at * s->c, s->c, pixels);
        return;
    }
    if (s->channels == s->c) s->simd->read(to, s->source, at * s->c, pixels * s->c);
    for (int64_t i = 0; s->channels < s->c && i < pixels; i++) {
        mirt__input_tile_soon(s, (at + i + MIRT__SOON) * s->c + s->first, s->channels);
        s->simd->read(to + i * s->pixel, s->source, (at + i) * s->c + s->first, s->channels);
    }
    if (s->round) s->simd->round(to, pixels * s->channels);
}

/* `rows` rows of an image from `row` on, zero outside of the image. */
MIRT__LIB mirt__input_tile mirt__input_tile_of(const mirt__simd *simd, const mirt__source *source, int64_t h, int64_t w,
                                     int64_t c, int64_t left, int64_t columns) {
    mirt__input_tile s;
    memset(&s, 0, sizeof s);
    s.simd = simd;
    s.source = source;
    s.h = h;
    s.w = w;
    s.c = s.channels = s.pixel = c;
    s.left = left;
    s.columns = columns;
    s.row_step = s.column_step = 1;
    return s;
}

MIRT__LIB int64_t mirt__sweep_splits(const mirt__where *where, int64_t blocks, int64_t panels, int64_t each) {
    const int64_t threads = mirt__team_size(where->team), wanted = each * threads,
                  first = mirt__min(threads > 1 && blocks < wanted ? mirt__parts(wanted, blocks) : 1, panels);
    int64_t splits = first, least = INT64_MAX;
    /* The team works in rounds of a task each, whose reading takes as long as half a panel. */
    for (int64_t i = first; i <= panels && threads > 1 && i < first + 8; i++) {
        const int64_t cost = mirt__parts(blocks * i, threads) * (1 + 2 * mirt__parts(panels, i));
        if (cost < least) splits = i;
        least = mirt__min(least, cost);
    }
    return splits;
}

MIRT__LIB void mirt__input_tile_rows(const mirt__input_tile *s, int64_t image, int64_t row, int64_t rows, float *to) {
    const int64_t step = s->column_step, columns = s->columns, pixel = s->pixel;
    int64_t from = s->left < 0 ? mirt__floor_div(step - 1 - s->left, step) : 0; /* columns inside: [from, end) */
    int64_t end = s->left < s->w ? (s->w - 1 - s->left) / step + 1 : 0;
    if (end > columns) end = columns;
    if (from > end) from = end;
    if (s->left == 0 && step == 1 && columns == s->w && s->row_step == 1 && row >= 0 && row + rows <= s->h) {
        mirt__input_tile_read(s, to, (image * s->h + row) * s->w, rows * s->w);
        return;
    }
    for (int64_t r = 0; r < rows; r++, to += columns * pixel) {
        const int64_t y = row + r * s->row_step;
        if (y < 0 || y >= s->h || from == end) {
            memset(to, 0, (size_t)(columns * pixel) * sizeof(float));
            continue;
        }
        const int64_t at = (image * s->h + y) * s->w + s->left;
        if (from > 0) memset(to, 0, (size_t)(from * pixel) * sizeof(float));
        if (step == 1) mirt__input_tile_read(s, to + from * pixel, at + from, end - from);
        for (int64_t i = from; step > 1 && i < end; i++) mirt__input_tile_read(s, to + i * pixel, at + i * step, 1);
        if (end < columns) memset(to + end * pixel, 0, (size_t)((columns - end) * pixel) * sizeof(float));
    }
}

/* A run's `b` is the number of its block of k: all blocks but the last have MIRT__BLOCK_K steps. */
MIRT__LIB void mirt__sweep_run_add(mirt__run *runs, int64_t *count, int64_t *k, int64_t a, int64_t length,
                                   int64_t step) {
    while (length > 0) {
        const int64_t room = MIRT__BLOCK_K - *k % MIRT__BLOCK_K, take = mirt__min(length, room);
        runs[*count].a = a;
        runs[*count].b = *k / MIRT__BLOCK_K;
        runs[(*count)++].length = take;
        a += take * step;
        *k += take;
        length -= take;
    }
}

/* Rows that are finished together: of a, and their places in c. */
typedef struct mirt__sweep_places {
    const float *a[MIRT__TILE_GROUP];
    float *c[MIRT__TILE_GROUP];
    int64_t at[MIRT__TILE_GROUP];
} mirt__sweep_places;

/* `rows` rows from row i on, of the group of a that begins at `a`; `at` is the place of the first column of row 0, in
   c if there is one. */
static void mirt__sweep_rows(const mirt__sweep *s, int64_t i, int64_t rows, const float *a, int64_t at, float *c,
                             mirt__sweep_places *to) {
    int64_t place = i % s->width, line = i / s->width, picture = line / s->lines, r = 0;
    const int64_t a_x = s->a_x, c_x = s->c_x;
    line %= s->lines;
    while (r < rows) {
        const float *from = a + picture * s->a_z + line * s->a_y + place * a_x;
        int64_t there = at + picture * s->c_z + line * s->c_y + place * c_x;
        const int64_t end = r + mirt__min(s->width - place, rows - r);
        for (; r < end; r++) {
            to->a[r] = from;
            to->at[r] = there;
            if (c) to->c[r] = c + there;
            from += a_x;
            there += c_x;
        }
        place = 0;
        if (++line == s->lines) {
            line = 0;
            picture++;
        }
    }
}

MIRT__LIB void mirt__ahead_add(mirt__ahead *ahead, const void *data, mirt_dtype dtype, int64_t first, int64_t count) {
    const int64_t size = (int64_t)mirt__dtype_size(dtype);
    for (int i = 0; i < MIRT__AHEAD; i++) {
        if (ahead->left[i] > 0) continue;
        ahead->at[i] = (const char *)data + first * size;
        ahead->left[i] = count * size;
        return;
    }
}

/* Prefetches the operands of the epilogue of these rows. */
static void mirt__sweep_beside(const mirt__finishing *f, const int64_t *at, int64_t rows, int64_t column,
                               int64_t columns) {
    const int64_t size = f->dtype == MIRT__BFLOAT16 ? 2 : 4, bytes = columns * size;
    const mirt__epilogue *e = f->epilogue;
    if (!e->slope_x && !e->add && !e->mask) return;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t place = (at[r] + column) * size;
        for (int64_t i = 0; i < bytes; i += MIRT__LINE) {
            if (e->slope_x) __builtin_prefetch((const char *)e->slope_x + place + i, 0, 2);
            if (e->add) __builtin_prefetch((const char *)e->add + place + i, 0, 2);
            if (e->mask) __builtin_prefetch((const char *)e->mask + place + i, 0, 2);
        }
    }
}

/* Rows of one group of tiles, one block of k, one or more vectors of columns. */
static void mirt__sweep_tiles(const mirt__sweep *s, mirt__tile *tile, int kind, int64_t rows, const float *const *a,
                              float *const *c, const int64_t *at, int64_t columns) {
    int64_t most = MIRT__TILE_ROWS;
    while (!s->tile[kind][most - 1]) most--;
    const int64_t tiles = mirt__parts(rows, most);
    int64_t tile_k = 0;
    for (int64_t r = 0; r < tile->run_count; r++) tile_k += tile->runs[r].length;
    for (int64_t t = 0, left = rows; t < tiles; t++) {
        const int64_t count = mirt__parts(left, tiles - t); /* as even as possible */
        tile->a = a;
        tile->c = c;
        tile->ahead = (const char *)tile->b;
        tile->ahead_step = 0;
        for (int i = 0; s->ahead && i < MIRT__AHEAD; i++) {
            if (s->ahead->left[i] <= 0) continue;
            tile->ahead = s->ahead->at[i];
            tile->ahead_step = kind == 2 ? 2 * MIRT__LINE : MIRT__LINE;
            s->ahead->at[i] += tile_k * tile->ahead_step;
            s->ahead->left[i] -= tile_k * tile->ahead_step;
            break;
        }
        if (at) {
            mirt__sweep_beside(s->finishing, at, count, tile->column, columns);
            at += count;
        }
        s->tile[kind][count - 1](tile);
        a += count;
        c += count;
        left -= count;
    }
}

/* A group of rows and one panel. */
static void mirt__sweep_group(const mirt__sweep *s, const float *b, int64_t columns, int64_t rows,
                              const float *const *a, float *const *c, const int64_t *at) {
    mirt__tile tile;
    tile.a_step = s->a_step;
    tile.b_row = s->b_row;
    const int lanes = s->simd->lanes;
    int64_t wide;
    for (int64_t j = 0; j < columns; j += wide) {
        int kind = 2;
        /* Every vector needs at least one column. */
        while (((int64_t)lanes << kind) - lanes >= columns - j || !s->tile[kind][0]) kind--;
        wide = (int64_t)lanes << kind;
        if (kind == 1 && 2 * (columns - j) <= 3 * lanes && s->tile[MIRT__HALF_KIND][0]) kind = MIRT__HALF_KIND;
        tile.column = j;
        tile.fresh = s->fresh;
        const int64_t *place = at;
        int64_t run = 0;
        do {
            tile.runs = s->runs + run;
            tile.run_count = 0;
            if (run < s->run_count) tile.b = b + s->runs[run].b * MIRT__BLOCK_K * s->b_row + j;
            while (run < s->run_count && s->runs[run].b == tile.runs->b) {
                tile.run_count++;
                run++;
            }
            mirt__sweep_tiles(s, &tile, kind, rows, a, c, place, mirt__min(wide, columns - j));
            tile.fresh = false;
            place = NULL;
        } while (run < s->run_count);
    }
}

static void mirt__sweep_panel(const mirt__sweep *s, int64_t panel) {
    const int64_t per_group = mirt__parts(s->n, MIRT__PANEL), group = panel / per_group,
                  j = panel % per_group * MIRT__PANEL, columns = mirt__min(s->n - j, MIRT__PANEL);
    const int64_t column = group * s->n + j;
    const float *a = s->a + group * s->a_group;
    /* Stores directly, or through spare rows and the epilogue. */
    const bool place = s->padded || (s->c && !(s->finish && s->finishing->stream) && columns % s->simd->lanes == 0);
    mirt__sweep_places to;
    mirt__finishing f;
    if (s->finishing) f = mirt__finishing_at(s->finishing, column);
    for (int64_t r = 0; !place && r < MIRT__TILE_GROUP; r++) to.c[r] = s->spare + r * MIRT__PANEL;
    for (int64_t i = 0, rows; i < s->m; i += rows) {
        rows = mirt__min(s->m - i, MIRT__TILE_GROUP);
        mirt__sweep_rows(s, i, rows, a, s->c_at + column, place ? s->c : NULL, &to);
        mirt__sweep_group(s, s->b + panel * s->b_panel, columns, rows, to.a, to.c, s->finish ? to.at : NULL);
        if (place && !s->finish) continue;
        if (MIRT__TRAINS && s->finishing->sum) {
            f.sum = s->finishing->sum + i / MIRT__SUM_CHUNK * s->sum_chunk + column;
            f.fresh = s->finishing->fresh && i % MIRT__SUM_CHUNK == 0;
        }
        s->simd->finish_rows(&f, to.c, to.at, rows, columns);
    }
}

MIRT__LIB void mirt__sweep_run(const mirt__sweep *s) {
    for (int64_t panel = s->begin; panel < s->end; panel++) mirt__sweep_panel(s, panel);
}

#include "optimize_end.inc"
