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
    for (int64_t at = 0; at < w->variable->count;) {
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

/* The update's step takes the gradient's place, negative; no weight changes. */
static void mirt__whole_step(const mirt__whole *w) {
    mirt__update u = *w->update;
    u.copies = 1;
    u.weight[0] = w->sum;
    u.from_zero = true;
    u.decay = 0;
    u.average = NULL;
    w->kernels->update(&u, w->where);
}

/* The weight is to go `rate` times along what has taken the gradient's place. */
static void mirt__whole_go(const mirt__whole *w, double rate) {
    mirt__update *u = w->update;
    u->kind = MIRT_SGD;
    u->learning_rate = (float)-rate;
    u->shaped = false;
    memset(u->slot, 0, sizeof u->slot);
}

/* The norm of the weight after its decay. */
static double mirt__whole_norm(const mirt__whole *w) {
    return sqrt(mirt__whole_squares(w, w->update->weight[0] + w->update->begin)) * fabs(1 - (double)w->update->decay);
}

/* >>directions */

MIRT__LIB void mirt__lamb_direction(const mirt__whole *w) {
    mirt__whole_step(w);
    const double weight = mirt__whole_norm(w), step = sqrt(mirt__whole_squares(w, w->sum + w->update->begin));
    mirt__whole_go(w, w->rate * (weight > 0 && step > 0 ? weight / step : 1));
}
