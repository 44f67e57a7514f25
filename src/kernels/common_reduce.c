/* Shared by the fast tables: reductions over any axes. Adjacent columns are summed together; the order of additions of
   an output depends only on the shape. */

#include "common.h"

#include "optimize_begin.inc"

/* A set of dimensions: sizes and steps in x, outermost first. */
typedef struct mirt__common_axes {
    int rank;
    int64_t dim[MIRT_MAX_RANK], step[MIRT_MAX_RANK], count;
} mirt__common_axes;

typedef struct mirt__common_reduction {
    mirt__reduce_kind kind;
    const float *x, *by; /* by: NULL, or what x is multiplied by */
    bool half;           /* they are bfloat16 */
    float *y;
    const float *dy; /* gradient */
    float *dx;
    mirt__common_axes kept, gone; /* kept without the columns */
    int64_t columns;              /* outputs whose inputs are adjacent */
    int64_t blocks, wide;         /* blocks of at most this many columns: long contiguous reads, but work for all
                                     threads */
} mirt__common_reduction;

/* Adds an axis outside all others; merges it with the outermost one if they are contiguous. */
static void mirt__common_axes_add(mirt__common_axes *axes, int64_t dim, int64_t step) {
    axes->count *= dim;
    if (axes->rank > 0 && axes->step[0] * axes->dim[0] == step) {
        axes->dim[0] *= dim;
        return;
    }
    for (int i = axes->rank++; i > 0; i--) {
        axes->dim[i] = axes->dim[i - 1];
        axes->step[i] = axes->step[i - 1];
    }
    axes->dim[0] = dim;
    axes->step[0] = step;
}

static int64_t mirt__common_axes_place(const mirt__common_axes *axes, int rank, int64_t at) {
    int64_t place = 0;
    for (int i = rank - 1; i > 0; i--) {
        place += at % axes->dim[i] * axes->step[i];
        at /= axes->dim[i];
    }
    return rank > 0 ? place + at * axes->step[0] : 0;
}

static mirt__common_reduction mirt__common_reduction_of(const mirt__reduce *r) {
    mirt__common_reduction s;
    int64_t step = 1;
    memset(&s, 0, sizeof s);
    s.kind = r->kind;
    s.x = (const float *)r->x;
    s.by = (const float *)r->by;
    s.half = (int)r->x_dtype == MIRT__BFLOAT16;
    s.y = r->y;
    s.kept.count = s.gone.count = s.columns = 1;
    bool innermost = true;
    for (int i = r->rank - 1; i >= 0; step *= r->dim[i], i--) {
        if (r->dim[i] == 1) continue;
        bool gone = r->axes >> i & 1;
        innermost = innermost && !gone;
        if (innermost) s.columns *= r->dim[i];
        else mirt__common_axes_add(gone ? &s.gone : &s.kept, r->dim[i], step);
    }
    s.wide = s.kind < MIRT__REDUCE_MAX && s.kept.count >= 4 ? MIRT__REDUCE_WIDE : MIRT__REDUCE_COLUMNS;
    s.blocks = mirt__parts(s.columns, s.wide);
    return s;
}

/* Columns [column, column + width) of one row of outputs. */
typedef struct mirt__common_block {
    int64_t column, width;
    int64_t x, y; /* their offsets in x and in y */
} mirt__common_block;

static mirt__common_block mirt__common_block_of(const mirt__common_reduction *s, int64_t block) {
    mirt__common_block b;
    int64_t row = block / s->blocks;
    b.column = block % s->blocks * s->wide;
    b.width = mirt__min(s->columns - b.column, s->wide);
    b.x = mirt__common_axes_place(&s->kept, s->kept.rank, row) + b.column;
    b.y = row * s->columns + b.column;
    return b;
}

/* `count` elements of every column, `step` apart. */
typedef struct mirt__common_stretch {
    int64_t place, step, count;
} mirt__common_stretch;

/* The longest run of at most `most` reduced elements from element `at` on. */
static mirt__common_stretch mirt__common_stretch_of(const mirt__common_axes *gone, int64_t at, int64_t most) {
    mirt__common_stretch run;
    const int last = gone->rank - 1;
    const int64_t length = last >= 0 ? gone->dim[last] : 1, first = at % length;
    run.step = last >= 0 ? gone->step[last] : 0;
    run.place = mirt__common_axes_place(gone, last, at / length) + first * run.step;
    run.count = mirt__min(length - first, most);
    return run;
}

/* `width` elements of x from element `at` on, as floats, which `piece` can hold. */
static const float *mirt__common_floats(const float *x, bool half, int64_t at, int64_t width, float *piece) {
    const uint16_t *from = (const uint16_t *)(const void *)x + at;
    if (!half) return x + at;
    MIRT__INDEPENDENT
    for (int64_t j = 0; j < width; j++) {
        const uint32_t bits = (uint32_t)from[j] << 16;
        memcpy(piece + j, &bits, sizeof bits);
    }
    return piece;
}

/* What is added up from element `at` on; likewise. */
static const float *mirt__common_summands(const mirt__common_reduction *s, int64_t at, int64_t width, float *piece) {
    float other[MIRT__REDUCE_WIDE];
    const float *x = mirt__common_floats(s->x, s->half, at, width, piece);
    if (!s->by) return x;
    const float *by = mirt__common_floats(s->by, s->half, at, width, other);
    MIRT__INDEPENDENT
    for (int64_t j = 0; j < width; j++) piece[j] = x[j] * by[j];
    return piece;
}

static void mirt__common_sum_stretch(const mirt__common_reduction *s, int64_t at, const mirt__common_stretch *run,
                                     int64_t width, float *sum) {
    float piece[MIRT__REDUCE_WIDE];
    if (width == 1 && !s->half) {
        float one = sum[0];
        for (int64_t i = 0; i < run->count; i++) {
            const int64_t k = at + i * run->step;
            one += s->by ? s->x[k] * s->by[k] : s->x[k];
        }
        sum[0] = one;
        return;
    }
    for (int64_t i = 0; i < run->count; i++, at += run->step) {
        const float *x = mirt__common_summands(s, at, width, piece);
        MIRT__INDEPENDENT
        for (int64_t j = 0; j < width; j++) sum[j] += x[j];
    }
}

/* Adds the sum of a chunk. partial[b] is the sum of a whole subtree of 2^b chunks: counting in binary adds in the order
   of mirt__tree with few partial sums. */
static void mirt__common_count_in(float *partial, int64_t chunk, float *sum, int64_t width) {
    int bit = 0;
    for (; chunk >> bit & 1; bit++) {
        const float *left = partial + bit * MIRT__REDUCE_WIDE;
        for (int64_t j = 0; j < width; j++) sum[j] = left[j] + sum[j];
    }
    memcpy(partial + bit * MIRT__REDUCE_WIDE, sum, (size_t)width * sizeof(float));
}

/* The sum of all `chunks` > 0 chunks. */
static void mirt__common_count_out(const float *partial, int64_t chunks, float *sum, int64_t width) {
    int bit = 0;
    while (!(chunks >> bit & 1)) bit++;
    memcpy(sum, partial + bit * MIRT__REDUCE_WIDE, (size_t)width * sizeof(float));
    for (bit++; chunks >> bit; bit++) {
        const float *left = partial + bit * MIRT__REDUCE_WIDE;
        if (!(chunks >> bit & 1)) continue;
        for (int64_t j = 0; j < width; j++) sum[j] = left[j] + sum[j];
    }
}

static void mirt__common_sum_block(const mirt__common_reduction *s, const mirt__common_block *b, float *partial) {
    float sum[MIRT__REDUCE_WIDE];
    const int64_t count = s->gone.count;
    memset(sum, 0, sizeof sum);
    for (int64_t at = 0; at < count;) {
        const mirt__common_stretch run =
            mirt__common_stretch_of(&s->gone, at, MIRT__REDUCE_CHUNK - at % MIRT__REDUCE_CHUNK);
        mirt__common_sum_stretch(s, b->x + run.place, &run, b->width, sum);
        at += run.count;
        if (at % MIRT__REDUCE_CHUNK == 0 || at == count) {
            mirt__common_count_in(partial, (at - 1) / MIRT__REDUCE_CHUNK, sum, b->width);
            memset(sum, 0, sizeof sum);
        }
    }
    if (count > 0) mirt__common_count_out(partial, (count - 1) / MIRT__REDUCE_CHUNK + 1, sum, b->width);
    const float divisor = s->kind == MIRT__REDUCE_MEAN ? (float)count : 1.0f;
    for (int64_t j = 0; j < b->width; j++) s->y[b->y + j] = sum[j] / divisor;
}

static void mirt__common_max_block(const mirt__common_reduction *s, const mirt__common_block *b) {
    float best[MIRT__REDUCE_COLUMNS];
    for (int64_t j = 0; j < b->width; j++)
        best[j] = s->gone.count > 0 ? s->x[b->x + j] : s->kind == MIRT__REDUCE_MIN ? INFINITY : -INFINITY;
    for (int64_t at = 0; at < s->gone.count;) {
        const mirt__common_stretch run = mirt__common_stretch_of(&s->gone, at, s->gone.count - at);
        const float *x = s->x + b->x + run.place;
        for (int64_t i = 0; i < run.count; i++, x += run.step) {
            if (s->kind == MIRT__REDUCE_MIN) {
                for (int64_t j = 0; j < b->width; j++) best[j] = x[j] < best[j] ? x[j] : best[j];
            } else {
                for (int64_t j = 0; j < b->width; j++) best[j] = x[j] > best[j] ? x[j] : best[j];
            }
        }
        at += run.count;
    }
    memcpy(s->y + b->y, best, (size_t)b->width * sizeof(float));
}

static void mirt__common_reduce_blocks(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_reduction *s = (const mirt__common_reduction *)args;
    for (int64_t i = begin; i < end; i++) {
        const mirt__common_block b = mirt__common_block_of(s, i);
        if (s->kind >= MIRT__REDUCE_MAX) mirt__common_max_block(s, &b);
        else mirt__common_sum_block(s, &b, (float *)scratch);
    }
}

MIRT__LIB void mirt__common_reduce(const mirt__reduce *args, const mirt__where *where) {
    const mirt__common_reduction s = mirt__common_reduction_of(args);
    const int64_t width = mirt__min(s.columns, s.wide);
    mirt__common_range(where, s.kept.count * s.blocks, mirt__common_step(s.gone.count * width),
                       mirt__common_reduce_blocks, &s);
}

static void mirt__common_reduce_max_back(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_reduction *s = (const mirt__common_reduction *)args;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        const mirt__common_block b = mirt__common_block_of(s, i);
        const float *y = s->y + b.y, *dy = s->dy + b.y;
        int32_t equal[MIRT__REDUCE_COLUMNS];
        memset(equal, 0, sizeof equal);
        for (int64_t at = 0; at < s->gone.count; at++) {
            const float *x = s->x + b.x + mirt__common_stretch_of(&s->gone, at, 1).place;
            for (int64_t j = 0; j < b.width; j++) equal[j] += x[j] == y[j];
        }
        for (int64_t at = 0; at < s->gone.count; at++) {
            const int64_t place = b.x + mirt__common_stretch_of(&s->gone, at, 1).place;
            for (int64_t j = 0; j < b.width; j++)
                s->dx[place + j] = s->x[place + j] == y[j] ? dy[j] / (float)equal[j] : 0;
        }
    }
}

MIRT__LIB void mirt__common_reduce_max_grad(const mirt__reduce_max_grad *args, const mirt__where *where) {
    mirt__common_reduction s = mirt__common_reduction_of(&args->s);
    const int64_t width = mirt__min(s.columns, s.wide);
    s.dy = args->dy;
    s.dx = args->dx;
    mirt__common_range(where, s.kept.count * s.blocks, mirt__common_step(s.gone.count * width),
                       mirt__common_reduce_max_back, &s);
}

/* >>constraints */

typedef struct mirt__constrain_job {
    const mirt__constrain *args;
    mirt__common_reduction norms;
} mirt__constrain_job;

/* What weights of this norm are multiplied by, or (UNIT_NORM) divided by. */
static float mirt__constrain_factor(const mirt_constraint *c, float norm) {
    const float clipped = norm < c->min_value ? c->min_value : norm > c->max_value ? c->max_value : norm;
    if (c->kind == MIRT_UNIT_NORM) return 1e-7f + norm;
    return (c->rate * clipped + (1 - c->rate) * norm) / (1e-7f + norm);
}

static void mirt__common_constrain_norms(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__constrain_job *job = (const mirt__constrain_job *)args;
    const mirt__common_reduction *s = &job->norms;
    const mirt_constraint *c = &job->args->constraint;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        const mirt__common_block b = mirt__common_block_of(s, i);
        double sum[MIRT__REDUCE_COLUMNS];
        float factor[MIRT__REDUCE_COLUMNS];
        memset(sum, 0, sizeof sum);
        for (int64_t at = 0; at < s->gone.count; at++) {
            const float *w = job->args->w + b.x + mirt__common_stretch_of(&s->gone, at, 1).place;
            for (int64_t j = 0; j < b.width; j++) sum[j] += (double)w[j] * (double)w[j];
        }
        for (int64_t j = 0; j < b.width; j++) factor[j] = mirt__constrain_factor(c, (float)sqrt(sum[j]));
        for (int64_t at = 0; at < s->gone.count; at++) {
            float *w = job->args->w + b.x + mirt__common_stretch_of(&s->gone, at, 1).place;
            for (int64_t j = 0; j < b.width; j++)
                w[j] = c->kind == MIRT_UNIT_NORM ? w[j] / factor[j] : w[j] * factor[j];
        }
    }
}

static void mirt__common_constrain_signs(const void *args, int64_t begin, int64_t end, void *scratch) {
    float *w = ((const mirt__constrain_job *)args)->args->w;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) w[i] = w[i] < 0 ? 0 : w[i];
}

MIRT__LIB void mirt__common_constrain(const mirt__constrain *args, const mirt__where *where) {
    mirt__constrain_job job;
    mirt__reduce r;
    if (args->constraint.kind == MIRT_SPECTRAL_NORM) {
        mirt__spectral_norm(args);
        return;
    }
    memset(&r, 0, sizeof r);
    r.kind = MIRT__REDUCE_MAX; /* narrow blocks */
    r.rank = args->rank;
    r.axes = (unsigned)args->constraint.axis;
    memcpy(r.dim, args->dim, sizeof r.dim);
    job.args = args;
    job.norms = mirt__common_reduction_of(&r);
    const mirt__common_reduction *s = &job.norms;
    if (args->constraint.kind == MIRT_NON_NEG) {
        mirt__common_range(where, s->kept.count * s->columns * s->gone.count, MIRT__GRAIN,
                           mirt__common_constrain_signs, &job);
        return;
    }
    mirt__common_range(where, s->kept.count * s->blocks,
                       mirt__common_step(s->gone.count * mirt__min(s->columns, s->wide)), mirt__common_constrain_norms,
                       &job);
}

#include "optimize_end.inc"
