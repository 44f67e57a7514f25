#include "model.h"
/* Optimizers that look at whole weights: the direction in which a weight goes. */

/* >>kernels on one weight */

/* Sum of squares of as many numbers as the weight has, in pieces that its shape alone decides. Waits for the device,
   whose failure sticks. */
static double mirt__whole_squares(const mirt__whole *w, const mirt__real *x) {
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
    return sum;
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

static void mirt__whole_scale(const mirt__whole *w, mirt__real *x, double scale) {
    mirt__unary u;
    memset(&u, 0, sizeof u);
    u.kind = MIRT__AFFINE;
    u.x_dtype = u.y_dtype = MIRT_FLOAT32;
    u.count = w->variable->count;
    u.x = x;
    u.y = x;
    u.scale = (float)scale;
    if (!w->dry) w->kernels->unary(&u, w->where);
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

/* The norm of the weight after its decay. */
static double mirt__whole_norm(const mirt__whole *w) {
    return sqrt(mirt__whole_squares(w, w->update->weight[0] + w->update->begin)) * fabs(1 - (double)w->update->decay);
}

/* >>directions */

MIRT__LIB void mirt__lamb_direction(mirt__whole *w) {
    mirt__whole_step(w);
    const double weight = mirt__whole_norm(w), step = sqrt(mirt__whole_squares(w, w->sum + w->update->begin));
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
    mirt__whole_scale(w, x, 1 / (sqrt(mirt__whole_squares(w, x)) + 1e-7));
    mirt__muon_iterate(w, x, rows, columns);
    const double longer = sqrt((double)(rows > columns ? rows : columns));
    mirt__whole_go(w, w->rate * (o->rms_rate > 0 ? longer * mirt__as_written(o->rms_rate) : 1));
}
