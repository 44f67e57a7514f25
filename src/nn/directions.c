#include "model.h"
/* Optimizers that look at whole weights: the direction in which a weight goes. */

/* >>kernels on one weight */

/* The norm of as many numbers as the weight has, by pieces that its shape alone decides. Waits for the device,
   whose failure sticks. */
static double mirt__whole_norm(const mirt__whole *w, const mirt__real *x) {
    enum { PIECES = 64 };
    const int64_t most = 8192;
    mirt__square_piece piece[PIECES];
    double squares[PIECES], sum = 0;
    for (int64_t at = 0; at < w->variable->count && !w->dry;) {
        int pieces = 0;
        for (; pieces < (int)PIECES && at < w->variable->count; pieces++, at += most) {
            const int64_t left = w->variable->count - at;
            piece[pieces].begin = at;
            piece[pieces].count = left < most ? left : most;
            squares[pieces] = 0;
        }
        w->backend->squares(w->where->handle, x, piece, pieces, squares);
        if (w->backend->wait(w->where->handle) != MIRT_OK) return 0;
        for (int i = 0; i < pieces; i++) sum += squares[i];
    }
    return sqrt(sum);
}

/* So many numbers of the direction's memory. */
static mirt__real *mirt__whole_take(mirt__whole *w, int64_t count) {
    char *at = w->dry ? w->room : w->room + w->taken;
    size_t bytes;
    if (!mirt__mul_size((size_t)count, sizeof(mirt__real), &bytes) || bytes > SIZE_MAX / 4 ||
        !mirt__add_size(w->taken, mirt__align_up(bytes), &w->taken))
        w->taken = SIZE_MAX; /* which is refused where memory is reserved */
    return (mirt__real *)(void *)at;
}

/* c[m, n] = a[m, k] b[k, n], which lie as in mirt__gemm. */
static void mirt__whole_multiply(mirt__whole *w, mirt__gemm *g) {
    g->a.dtype = MIRT_FLOAT32;
    const size_t scratch = mirt__gemm_scratch(g);
    if (w->scratch < scratch) w->scratch = scratch;
    if (!w->dry || w->measures) w->kernels->gemm(g, w->where);
}

/* to = keeps * to + gains * from */
static void mirt__whole_blend(const mirt__whole *w, mirt__real *to, double keeps, const mirt__real *from, double gains,
                              int64_t count) {
    mirt__update u;
    memset(&u, 0, sizeof u);
    u.kind = MIRT_SGD;
    u.end = count;
    u.parts = u.copies = 1;
    u.part[0] = from;
    u.weight[0] = to;
    u.decay = (float)(1 - keeps);
    u.learning_rate = (float)-gains;
    if (!w->dry) w->kernels->update(&u, w->where);
}

/* y = f(x) of as many numbers as the weight has. */
static void mirt__whole_map(const mirt__whole *w, mirt__unary_kind kind, mirt__real *y, const mirt__real *x,
                            double scale, double offset) {
    mirt__unary u;
    memset(&u, 0, sizeof u);
    u.kind = kind;
    u.x_dtype = u.y_dtype = MIRT_FLOAT32;
    u.count = w->variable->count;
    u.x = x;
    u.y = y;
    u.scale = (float)scale;
    u.offset = (float)offset;
    if (!w->dry) w->kernels->unary(&u, w->where);
}

/* Three axes, of which the last is dense. */
typedef struct mirt__whole_axes {
    int64_t dim[3];
} mirt__whole_axes;

/* y[axes] = f(a, b), which repeat along axes of which bit i is set. */
static void mirt__whole_pair(const mirt__whole *w, mirt__binary_kind kind, const mirt__whole_axes *axes, mirt__real *y,
                             const mirt__real *a, unsigned a_repeats, const mirt__real *b, unsigned b_repeats) {
    mirt__binary p;
    int64_t a_step = 1, b_step = 1;
    memset(&p, 0, sizeof p);
    p.kind = kind;
    p.rank = 3;
    p.a_dtype = p.b_dtype = p.y_dtype = MIRT_FLOAT32;
    p.a = a;
    p.b = b;
    p.y = y;
    for (int i = 2; i >= 0; i--) {
        p.dim[i] = axes->dim[i];
        p.a_stride[i] = a_repeats >> i & 1 ? 0 : a_step;
        p.b_stride[i] = b_repeats >> i & 1 ? 0 : b_step;
        a_step *= a_repeats >> i & 1 ? 1 : axes->dim[i];
        b_step *= b_repeats >> i & 1 ? 1 : axes->dim[i];
    }
    if (!w->dry) w->kernels->binary(&p, w->where);
}

/* y = the means of x[axes] over one of the axes. */
static void mirt__whole_mean(mirt__whole *w, const mirt__whole_axes *axes, int over, mirt__real *y,
                             const mirt__real *x) {
    mirt__reduce r;
    memset(&r, 0, sizeof r);
    r.kind = MIRT__REDUCE_MEAN;
    r.rank = 3;
    r.axes = 1u << over;
    memcpy(r.dim, axes->dim, sizeof axes->dim);
    r.x = x;
    r.x_dtype = MIRT_FLOAT32;
    r.y = y;
    const size_t scratch = mirt__reduce_scratch(&r);
    if (w->scratch < scratch) w->scratch = scratch;
    if (!w->dry || w->measures) w->kernels->reduce(&r, w->where);
}

/* The update's step takes the gradient's place, negative; no weight changes. */
static void mirt__whole_step(const mirt__whole *w) {
    mirt__update u = *w->update;
    u.copies = 1;
    u.weight[0] = w->sum;
    u.from_zero = true;
    u.decay = 0;
    u.average = NULL;
    if (!w->dry) w->kernels->update(&u, w->where);
}

/* The weight is to lose `rate` times what has taken the gradient's place. */
static void mirt__whole_go(const mirt__whole *w, double rate) {
    mirt__update *u = w->update;
    u->kind = MIRT_SGD;
    u->learning_rate = (float)rate;
    u->shaped = false;
    memset(u->slot, 0, sizeof u->slot);
}

/* >>directions */

MIRT__LIB void mirt__lamb_direction(mirt__whole *w) {
    mirt__whole_step(w);
    const mirt__update *u = w->update;
    const double weight = mirt__whole_norm(w, u->weight[0] + u->begin) * fabs(1 - (double)u->decay),
                 step = mirt__whole_norm(w, w->sum + u->begin);
    mirt__whole_go(w, -w->rate * (weight > 0 && step > 0 ? weight / step : 1));
}

/* square = x x^T of the shorter side of x[rows, columns], then x = a x + (b square + c square square) x: towards a
   matrix of the same singular vectors, whose singular values are 1. */
static void mirt__muon_iterate(mirt__whole *w, mirt__real *x, int64_t rows, int64_t columns) {
    const mirt_optimizer *o = w->optimizer;
    const bool wide = rows <= columns;
    const int64_t side = wide ? rows : columns;
    mirt__real *square = mirt__whole_take(w, side * side), *both = mirt__whole_take(w, side * side),
               *y = mirt__whole_take(w, rows * columns);
    mirt__gemm g;
    for (int64_t i = 0; i < o->ns_steps; i++) {
        memset(&g, 0, sizeof g);
        g.m = g.n = side;
        g.k = wide ? columns : rows;
        g.a.data = g.b = x;
        g.a_row = wide ? columns : 1;
        g.a_col = wide ? 1 : columns;
        g.b_row = g.a_col;
        g.b_col = g.a_row;
        g.c = square;
        mirt__whole_multiply(w, &g);
        g.k = g.a_row = g.b_row = side;
        g.a_col = g.b_col = 1;
        g.a.data = g.b = square;
        g.c = both;
        mirt__whole_multiply(w, &g);
        mirt__whole_blend(w, both, (double)o->muon_c, square, (double)o->muon_b, side * side);
        g.m = rows;
        g.n = columns;
        g.a.data = wide ? both : x;
        g.b = wide ? x : both;
        g.a_row = side;
        g.b_row = columns;
        g.c = y;
        mirt__whole_multiply(w, &g);
        mirt__whole_blend(w, x, (double)o->muon_a, y, 1, rows * columns);
        if (w->dry) return;
    }
}

MIRT__LIB void mirt__muon_direction(mirt__whole *w) {
    const mirt_optimizer *o = w->optimizer;
    const int64_t rows = w->variable->shape.dim[0], columns = w->variable->shape.dim[1];
    if (mirt__muon_leaves(o, w->variable)) {
        w->update->kind = MIRT_ADAM;
        mirt__adam_numbers(o, w->step, w->rate * (double)o->adam_lr_ratio, w->update);
        return;
    }
    mirt__whole_step(w); /* at a rate of -1: the momentum */
    mirt__real *x = w->sum + w->update->begin;
    mirt__whole_map(w, MIRT__AFFINE, x, x, 1 / (mirt__whole_norm(w, x) + 1e-7), 0);
    mirt__muon_iterate(w, x, rows, columns);
    const double longer = sqrt((double)(rows > columns ? rows : columns));
    mirt__whole_go(w, w->rate * (o->rms_rate > 0 ? longer * mirt__as_written(o->rms_rate) : 1));
}

/* `squares` of gradients become what they are divided by the root of: of matrices row x column, the means over columns
   and rows, over the mean of both; `share` of each mean is new. */
static void mirt__adafactor_factor(mirt__whole *w, mirt__real *row, mirt__real *column, mirt__real *squares,
                                   double share) {
    const mirt_shape *shape = &w->variable->shape;
    mirt__whole_axes all = {{1, shape->dim[shape->rank - 2], shape->dim[shape->rank - 1]}};
    for (int i = 0; i < shape->rank - 2; i++) all.dim[0] *= shape->dim[i];
    const int64_t rows = all.dim[0] * all.dim[1], columns = all.dim[0] * all.dim[2];
    const mirt__whole_axes rows_alone = {{all.dim[0], all.dim[1], 1}};
    mirt__real *mean = mirt__whole_take(w, rows > columns ? rows : columns), *part = mirt__whole_take(w, rows);
    mirt__whole_mean(w, &all, 2, mean, squares);
    mirt__whole_blend(w, row, 1 - share, mean, share, rows);
    mirt__whole_mean(w, &all, 1, mean, squares);
    mirt__whole_blend(w, column, 1 - share, mean, share, columns);
    mirt__whole_mean(w, &rows_alone, 1, mean, row);
    mirt__whole_pair(w, MIRT__DIVIDE, &rows_alone, part, row, 0, mean, 1u << 1);
    mirt__whole_pair(w, MIRT__MULTIPLY, &all, squares, part, 1u << 2, column, 1u << 1);
}

MIRT__LIB void mirt__adafactor_direction(mirt__whole *w) {
    const mirt_optimizer *o = w->optimizer;
    mirt__update *u = w->update;
    const double root = sqrt((double)w->variable->count), least = 1 / sqrt((double)w->step),
                 share = pow((double)w->step, mirt__as_written(o->beta_2_decay));
    const mirt__whole_axes flat = {{1, 1, w->variable->count}};
    mirt__real *g = w->sum + u->begin, *row = u->slot[0] + u->begin, *column = u->slot[1] + u->begin,
               *squares = mirt__whole_take(w, w->variable->count), *divisor = squares;
    memset(u->slot, 0, sizeof u->slot);
    if (u->shaped) mirt__whole_step(w); /* at a rate of -1: the gradient, scaled and clipped */
    mirt__whole_map(w, MIRT__SQUARE, squares, g, 0, 0);
    mirt__whole_map(w, MIRT__AFFINE, squares, squares, 1, (double)o->epsilon);
    if (w->variable->shape.rank < 2) {
        mirt__whole_blend(w, row, 1 - share, squares, share, w->variable->count);
        divisor = row;
    } else {
        mirt__adafactor_factor(w, row, column, squares, share);
    }
    mirt__whole_map(w, MIRT__SQRT, squares, divisor, 0, 0);
    mirt__whole_pair(w, MIRT__DIVIDE, &flat, g, g, 0, squares, 0);
    const double weight = mirt__whole_norm(w, u->weight[0] + u->begin) * fabs(1 - (double)u->decay) / root,
                 lower = mirt__as_written(o->epsilon_2),
                 over = mirt__whole_norm(w, g) / root / (double)o->clip_threshold;
    mirt__whole_go(w, (weight > lower ? weight : lower) * (w->rate < least ? w->rate : least) / (over > 1 ? over : 1));
}
