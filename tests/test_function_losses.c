/* Functions: an all-reduce inside a step, terms of a loss, assigned variables, weights without gradients. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "function_util.h"
#include "tap.h"

/* >>all-reduce inside a step */

/* Per sample t[b] = sum_k w[k] x[b][k]; g = all_reduce(mean or sum over the replica's rows of t); the loss of a sample
   is (t - g)^2 + g * t, that of the step their mean. Both g's derivative and the plain one reach w. */
static mirt_reduce_op reduced_op;
static bool reduced_loss_by_hand; /* the gradient by mirt_gradients, and its norm over all replicas as a result */

static bool record_reduced(mirt_function *f, void *user) {
    const int64_t from[2] = {0, 1}, size[2] = {-1, W};
    (void)user;
    mirt_tensor *w = mirt_function_variable(f, "w"), *grad;
    mirt_tensor *t = mirt_reduce_sum(mirt_multiply(mirt_slice(mirt_function_x(f, 0), from, size), w), 2, false);
    mirt_tensor *own = reduced_op == MIRT_REDUCE_SUM ? mirt_reduce_sum(t, 1, false) : mirt_reduce_mean(t, 1, false);
    mirt_tensor *g = mirt_replica_all_reduce(own, reduced_op);
    if (reduced_op == MIRT_REDUCE_SUM) g = mirt_scale(g, 0.125f, 0);
    mirt_tensor *loss = mirt_add(mirt_square(mirt_subtract(t, g)), mirt_multiply(g, t));
    if (mirt_function_result(f, "g", g) != MIRT_OK || mirt_function_result(f, "loss", loss) != MIRT_OK) return false;
    if (!reduced_loss_by_hand) return mirt_minimize(f, loss) == MIRT_OK;
    if (mirt_gradients(loss, &w, 1, &grad) != MIRT_OK || mirt_apply_gradients(f, &w, &grad, 1) != MIRT_OK) return false;
    return mirt_function_result(f, "gradient", mirt_replica_all_reduce(grad, MIRT_REDUCE_SUM)) == MIRT_OK;
}

static double reduced_loss(const double *w, int rows, double *g_out) {
    double t[ROW_COUNT], g = 0, sum = 0;
    for (int i = 0; i < rows; i++) {
        t[i] = 0;
        for (int k = 0; k < W; k++) t[i] += w[k] * (double)row_x[i][k + 1];
        g += t[i];
    }
    g *= reduced_op == MIRT_REDUCE_SUM ? 0.125 : 1.0 / rows;
    for (int i = 0; i < rows; i++) sum += (t[i] - g) * (t[i] - g) + g * t[i];
    *g_out = g;
    return sum / rows;
}

static void check_reduced(int devices, int replicas, int rows) {
    heard log;
    mirt_strategy *s = strategy_heard(devices, replicas, 1, &log);
    mirt_model *m = bare_model(s, mirt_sgd(1, 0, false));
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_of(rows), 16));
    mirt_function *f = m ? mirt_function_create(m, data, record_reduced, NULL) : NULL;
    mirt_global_batch batch;
    float before[W], after[W], g = 0, grads[8 * W];
    double wd[W], gd, unused, error = 0, total = 0, norm_error = 0;
    size_t written = 0;
    bool good = f && mirt_get_weight(m, "w", 0, before, W) == MIRT_OK && mirt_dataset_next(data, &batch) == MIRT_OK &&
                mirt_function_run(f, &batch) == MIRT_OK && mirt_get_weight(m, "w", devices - 1, after, W) == MIRT_OK;
    for (int k = 0; k < W; k++) wd[k] = (double)before[k];
    double loss = reduced_loss(wd, rows, &gd);
    for (int k = 0; good && k < W; k++) {
        const double h = 1e-5;
        wd[k] += h;
        double up = reduced_loss(wd, rows, &unused);
        wd[k] -= 2 * h;
        double down = reduced_loss(wd, rows, &unused);
        wd[k] += h;
        error = worse(error, fabs((double)before[k] - (double)after[k] - (up - down) / (2 * h)));
        if (!reduced_loss_by_hand) continue;
        good = mirt_gather_result(f, "gradient", grads, 8 * W, &written) == MIRT_OK &&
               written == (size_t)(rows < replicas ? rows : replicas) * W;
        for (size_t r = 0; r < written / W; r++)
            norm_error = worse(norm_error, fabs((double)grads[r * W + (size_t)k] - (up - down) / (2 * h)));
    }
    for (int r = 0; good && r < replicas && r < rows; r++) {
        good = mirt_local_result(f, "g", r, &g, 1, NULL) == MIRT_OK && fabs((double)g - gd) < 1e-5 * fmax(1, fabs(gd));
    }
    good = good && mirt_reduce(f, "loss", MIRT_REDUCE_MEAN, &total, 1) == MIRT_OK &&
           fabs(total - loss) < 1e-5 * fmax(1, loss);
    ok(good && error < 2e-4 && norm_error < 2e-4 && copies_equal(m),
       "%s%s, %d rows, %d replicas on %d devices: gradients are off by %.0e, %.0e%s%s",
       reduced_op == MIRT_REDUCE_SUM ? "sum" : "mean", reduced_loss_by_hand ? " by hand" : "", rows, replicas, devices,
       error, norm_error, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

static void check_all_reduce(void) {
    static const int mirror[][2] = {{1, 1}, {2, 2}, {2, 3}, {1, 8}, {3, 8}};
    for (int how = 0; how < 4; how++) {
        reduced_op = how % 2 ? MIRT_REDUCE_MEAN : MIRT_REDUCE_SUM;
        reduced_loss_by_hand = how >= 2;
        for (int i = 0; i < MIRT__COUNT(mirror); i++) {
            static const int rows[] = {16, 9, 5, 2, 1};
            for (int n = 0; n < MIRT__COUNT(rows); n++) check_reduced(mirror[i][0], mirror[i][1], rows[n]);
        }
    }
}

/* >>terms of a loss: how a number weighs */

typedef enum term_kind {
    TERM_SAMPLES,
    TERM_MEAN,
    TERM_SUM,
    TERM_SUM_SCALED,
    TERM_RATIO,
    TERM_WEIGHTS,
    TERM_COMMON,
    TERM_SUM_AND_WEIGHTS,
    TERM_LESS_MEAN,
    TERM_SUM_DIVIDED,
    TERM_LARGEST,
    TERM_KINDS
} term_kind;

/* Each is, or is made to be, the mean over all samples of t = w . x, but for the sums and what is made of weights;
   TERM_LARGEST is the largest of W sums, which is none. */
static bool record_term(mirt_function *f, void *user) {
    const term_kind kind = *(const term_kind *)user;
    const float scale = 0.0625f;
    const int64_t from[2] = {0, 1}, size[2] = {-1, W};
    mirt_tensor *w = mirt_function_variable(f, "w"), *x = mirt_slice(mirt_function_x(f, 0), from, size), *loss = NULL;
    mirt_tensor *t = mirt_reduce_sum(mirt_multiply(x, w), 2, false);
    mirt_tensor *number = mirt_function_constant(f, mirt_make_array(&scale, MIRT_FLOAT32, MIRT_SHAPE(1)));
    switch (kind) {
    case TERM_SAMPLES: loss = t; break;
    case TERM_MEAN: loss = mirt_reduce_mean(t, 1, false); break;
    case TERM_SUM: loss = mirt_reduce_sum(t, 1, false); break;
    case TERM_SUM_SCALED:
        loss = mirt_multiply(number, mirt_negative(mirt_negative(mirt_reduce_sum(t, 1, true))));
        break;
    case TERM_RATIO:
        loss = mirt_divide(mirt_reduce_sum(t, 1, false),
                           mirt_reduce_sum(mirt_scale(mirt_stop_gradient(t), 0, 1), 1, false));
        break;
    case TERM_WEIGHTS: loss = mirt_scale(mirt_reduce_sum(mirt_square(w), 0, false), 0.5f, 0); break;
    case TERM_COMMON: loss = mirt_replica_all_reduce(mirt_reduce_mean(t, 1, false), MIRT_REDUCE_MEAN); break;
    case TERM_SUM_AND_WEIGHTS:
        loss = mirt_add(mirt_reduce_sum(t, 1, false), mirt_scale(mirt_reduce_sum(mirt_square(w), 0, false), 0.5f, 0));
        break;
    case TERM_LESS_MEAN:
        loss =
            mirt_subtract(mirt_scale(mirt_reduce_sum(mirt_square(w), 0, false), 0.5f, 0), mirt_reduce_mean(t, 1, true));
        break;
    case TERM_SUM_DIVIDED:
        loss = mirt_divide(mirt_reshape(mirt_reduce_sum(t, 1, true), MIRT_SHAPE(1, 1)), mirt_scale(number, 0, 16));
        break;
    case TERM_LARGEST: loss = mirt_reduce_max(mirt_reduce_sum(mirt_multiply(x, w), 1, false), 0, false); break;
    default: break;
    }
    if (kind % 2) return mirt_minimize(f, loss) == MIRT_OK;
    return mirt_gradients(loss, &w, 1, &number) == MIRT_OK && mirt_apply_gradients(f, &w, &number, 1) == MIRT_OK;
}

/* The gradient of w[k] by the largest of W sums over a replica's rows, each replica weighing by its share of them. */
static double largest_gradient(const float *w, int k, int replicas, int rows) {
    double all = 0;
    for (int r = 0; r < replicas && r < rows; r++) {
        int64_t first, share = mirt__share(rows, replicas, r, &first);
        double sum[W] = {0};
        int largest = 0;
        for (int64_t i = first; i < first + share; i++) {
            for (int j = 0; j < W; j++) sum[j] += (double)row_x[i][j + 1];
        }
        for (int j = 1; j < W; j++) largest = sum[j] * (double)w[j] > sum[largest] * (double)w[largest] ? j : largest;
        if (k == largest) all += sum[k] * (double)share / rows;
    }
    return all;
}

static void check_term(term_kind kind, int devices, int replicas, int rows) {
    static const char *const name[] = {"one per sample",
                                       "a mean",
                                       "a sum",
                                       "a scaled sum",
                                       "a quotient of sums",
                                       "of weights alone",
                                       "all-reduced",
                                       "a sum and one of weights",
                                       "of weights less a mean",
                                       "a divided sum",
                                       "the largest of sums"};
    heard log;
    mirt_strategy *s = strategy_heard(devices, replicas, 1, &log);
    mirt_model *m = bare_model(s, mirt_sgd(1, 0, false));
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_of(rows), 16));
    mirt_function *f = m ? mirt_function_create(m, data, record_term, &kind) : NULL;
    mirt_global_batch batch;
    float before[W], after[W];
    double error = 0;
    int means = 0;
    bool good = f && mirt_get_weight(m, "w", 0, before, W) == MIRT_OK && mirt_dataset_next(data, &batch) == MIRT_OK &&
                mirt_function_run(f, &batch) == MIRT_OK && mirt_get_weight(m, "w", 0, after, W) == MIRT_OK;
    for (int k = 0; good && k < W; k++) {
        double sum = 0, want;
        for (int i = 0; i < rows; i++) sum += (double)row_x[i][k + 1];
        want = kind == TERM_SUM          ? sum
               : kind == TERM_SUM_SCALED ? sum / 16
               : kind == TERM_WEIGHTS    ? (double)before[k]
                                         : sum / rows;
        if (kind == TERM_SUM_AND_WEIGHTS) want = sum + (double)before[k];
        if (kind == TERM_SUM_DIVIDED) want = sum / 16;
        if (kind == TERM_LARGEST) want = largest_gradient(before, k, replicas, rows);
        if (kind == TERM_LESS_MEAN) want = (double)before[k] - sum / rows;
        error = worse(error, fabs((double)before[k] - (double)after[k] - want) / fmax(1, fabs(want)));
    }
    for (int i = 0; i < log.warnings; i++) means += strstr(log.text[i], "handed in as a mean") != NULL;
    ok(good && error < 1e-5, "a loss that is %s, %d rows, %d replicas: the gradient is off by %.0e%s%s", name[kind],
       rows, replicas, error, good ? "" : ": ", good ? "" : mirt_last_error());
    ok(means == (kind == TERM_MEAN || kind == TERM_RATIO || kind == TERM_LESS_MEAN || kind == TERM_LARGEST),
       "a loss that is %s: %d warnings of a mean", name[kind], means);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

static void check_terms(void) {
    for (int kind = 0; kind < TERM_KINDS; kind++) {
        check_term((term_kind)kind, 1, 1, 16);
        check_term((term_kind)kind, 2, 4, 13);
        check_term((term_kind)kind, 3, 8, 5);
    }
}

/* >>assigned variables */

static mirt_aggregation assigned_as;

static bool record_assign(mirt_function *f, void *user) {
    const int64_t from[2] = {0, 1}, size[2] = {-1, W};
    mirt_tensor *state = mirt_function_variable(f, "state");
    mirt_tensor *mean = mirt_reduce_mean(mirt_slice(mirt_function_x(f, 0), from, size), 1, false);
    if (user && mirt_minimize(f, mirt_reduce_sum(mirt_square(mirt_function_variable(f, "w")), 0, false)) != MIRT_OK)
        return false;
    return mirt_assign(f, state, mirt_add(state, mean), assigned_as) == MIRT_OK;
}

static void check_assign_as(mirt_aggregation kind, int devices, int replicas, int rows, mirt_strategy_kind strategy) {
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    s->kind = strategy;
    mirt_model *m = bare_model(s, mirt_sgd(0.1f, 0, false));
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_of(rows), 16));
    mirt_global_batch batch;
    float out[W];
    double want[W] = {7, 7, 7}, error = 0;
    assigned_as = kind;
    mirt_function *f = mirt_function_create(m, data, record_assign, devices > 1 ? m : NULL);
    bool good = f && mirt_dataset_next(data, &batch) == MIRT_OK;
    for (int run = 0; good && run < 2; run++) {
        good = mirt_function_run(f, &batch) == MIRT_OK;
        for (int k = 0; k < W; k++) {
            double total = 0;
            for (int r = 0; r < replicas && r < rows; r++) {
                int64_t first, share = mirt__share(rows, replicas, r, &first);
                double mean = want[k];
                for (int64_t i = first; i < first + share; i++) mean += (double)row_x[i][k + 1] / (double)share;
                if (kind == MIRT_AGGREGATE_MEAN) total += mean * (double)share / rows;
                if (kind == MIRT_AGGREGATE_SUM || (kind == MIRT_AGGREGATE_FIRST && r == 0)) total += mean;
            }
            want[k] = total;
        }
    }
    for (int d = 0; d < devices; d++) {
        good = good && mirt_get_weight(m, "state", d, out, W) == MIRT_OK;
        for (int k = 0; k < W; k++) error = worse(error, fabs((double)out[k] - want[k]) / fmax(1, fabs(want[k])));
    }
    ok(good && error < 1e-5 && copies_equal(m) && mirt_step(m) == (devices > 1 ? 2 : 0),
       "aggregation %d, strategy %d, %d rows, %d replicas on %d devices: assigned, off by %.0e%s%s", (int)kind,
       (int)strategy, rows, replicas, devices, error, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

static void check_assign(void) {
    for (int kind = MIRT_AGGREGATE_MEAN; kind <= MIRT_AGGREGATE_FIRST; kind++) {
        check_assign_as((mirt_aggregation)kind, 1, 1, 16, MIRT_MIRRORED);
        check_assign_as((mirt_aggregation)kind, 2, 3, 13, MIRT_MIRRORED);
        check_assign_as((mirt_aggregation)kind, 3, 8, 5, MIRT_MIRRORED);
        check_assign_as((mirt_aggregation)kind, 3, 8, 5, MIRT_CENTRAL_STORAGE);
    }
    mirt_strategy *s = strategy_of(2, 3, 1);
    mirt_model *m = bare_model(s, mirt_sgd(0.1f, 0, false));
    mirt_function *f = mirt_function_create(m, NULL, record_count, NULL);
    float out[3 * W];
    double mean[W];
    size_t written = 0;
    bool good = f != NULL;
    for (int i = 0; good && i < 5; i++) good = mirt_function_run(f, NULL) == MIRT_OK;
    good = good && mirt_gather_result(f, "before", out, 3 * W, &written) == MIRT_OK && written == 3 * W &&
           out[0] == 11 && out[3 * W - 1] == 11 && mirt_reduce(f, "before", MIRT_REDUCE_MEAN, mean, W) == MIRT_OK &&
           mean[0] == 11 && mirt_get_weight(m, "state", 1, out, W) == MIRT_OK && out[0] == 12;
    ok(good && mirt_step(m) == 0, "a function without data counts; the later of two assignments holds%s%s",
       good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
}

/* >>weights a loss does not depend on */

static bool record_both(mirt_function *f, void *user) {
    mirt_tensor *w = mirt_function_variable(f, "w"), *other = mirt_function_variable(f, "unused");
    mirt_tensor *loss = mirt_reduce_sum(mirt_square(w), 0, false);
    if (user) loss = mirt_add(loss, mirt_reduce_sum(mirt_square(other), 0, false));
    return mirt_minimize(f, loss) == MIRT_OK;
}

static bool record_gradient_of_two(mirt_function *f, void *user) {
    mirt_tensor *two[2] = {mirt_function_variable(f, "w"), mirt_function_variable(f, "unused")}, *gradient[2];
    (void)user;
    mirt_status status = mirt_gradients(mirt_reduce_sum(mirt_square(two[0]), 0, false), two, 2, gradient);
    return status == MIRT_OK && gradient[0] && !gradient[1] && mirt_apply_gradients(f, two, gradient, 2) == MIRT_OK;
}

static bool record_gradient_of_none(mirt_function *f, void *user) {
    mirt_tensor *w = mirt_function_variable(f, "w"), *unused = mirt_function_variable(f, "unused"), *gradient;
    (void)user;
    return mirt_gradients(mirt_reduce_sum(mirt_square(mirt_stop_gradient(w)), 0, false), &unused, 1, &gradient) ==
           MIRT_OK;
}

static bool record_stopped(mirt_function *f, void *user) {
    mirt_tensor *w = mirt_function_variable(f, "w"), *gradient[2], *x[2];
    (void)user;
    x[0] = mirt_scale(mirt_function_x(f, 0), 2, 0);
    x[1] = w;
    mirt_tensor *stopped = mirt_reduce_mean(mirt_stop_gradient(mirt_floor(x[0])), 2, false);
    mirt_tensor *loss = mirt_multiply(mirt_reduce_sum(mirt_square(w), 0, false), stopped);
    return mirt_gradients(loss, x, 2, gradient) == MIRT_OK && !gradient[0] && gradient[1];
}

static bool record_no_weights(mirt_function *f, void *user) {
    (void)user;
    return mirt_minimize(f, mirt_reduce_sum(mirt_function_x(f, 0), 2, false)) == MIRT_OK;
}

/* The gradient of log-cosh does not stand for its own gradient. */
static bool record_log_cosh_twice(mirt_function *f, void *user) {
    mirt_tensor *w = mirt_function_variable(f, "w"), *x = mirt_function_x(f, 0), *gradient;
    (void)user;
    mirt_tensor *out = mirt_multiply(x, mirt_reduce_sum(w, 0, false)),
                *loss = mirt_loss_values(MIRT_LOG_COSH, false, x, out);
    return mirt_gradients(loss, &w, 1, &gradient) == MIRT_OK &&
           mirt_minimize(f, mirt_reduce_sum(mirt_square(gradient), 0, false)) == MIRT_OK;
}

static void check_unused(void) {
    heard log;
    mirt_strategy *s = strategy_heard(2, 3, 1, &log);
    mirt_model *m = bare_model(s, mirt_sgd(0.1f, 0.9f, true));
    float before[5], after[5], w[W], w_after[W];
    mirt_function *both = mirt_function_create(m, NULL, record_both, m);
    ok(both && log.warnings == 0, "every weight has a gradient: no warning");
    mirt_function_run(both, NULL);
    mirt_function *one = mirt_function_create(m, NULL, record_both, NULL);
    ok(one && log.warnings == 1 && strstr(log.text[0], "unused"), "a weight without a gradient: \"%s\"", log.text[0]);
    mirt_get_weight(m, "unused", 0, before, 5);
    mirt_get_weight(m, "w", 0, w, W);
    bool good = one && mirt_function_run(one, NULL) == MIRT_OK && mirt_function_run(one, NULL) == MIRT_OK &&
                mirt_get_weight(m, "unused", 1, after, 5) == MIRT_OK &&
                mirt_get_weight(m, "w", 1, w_after, W) == MIRT_OK;
    ok(good && memcmp(before, after, sizeof after) == 0 && memcmp(w, w_after, sizeof w) != 0 && log.warnings == 1,
       "it is left alone, also by its momentum");
    mirt_function *hand = mirt_function_create(m, NULL, record_gradient_of_two, NULL);
    good = hand && mirt_function_run(hand, NULL) == MIRT_OK && mirt_get_weight(m, "unused", 1, after, 5) == MIRT_OK;
    ok(good && memcmp(before, after, sizeof after) == 0 && log.warnings == 2, "by hand its gradient is NULL: \"%s\"",
       log.text[1]);
    ok(!mirt_function_create(m, NULL, record_gradient_of_none, NULL) && mirt_last_status() == MIRT_E_INVALID,
       "no gradient at all: \"%s\"", mirt_last_error());
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_of(9), 4));
    ok(mirt_function_create(m, data, record_stopped, NULL) != NULL, "where gradients end they are NULL%s%s",
       mirt_last_status() ? "; last: " : "", mirt_last_error());
    ok(!mirt_function_create(m, data, record_no_weights, NULL) && mirt_last_status() == MIRT_E_INVALID,
       "a loss of data alone: \"%s\"", mirt_last_error());
    ok(!mirt_function_create(m, data, record_log_cosh_twice, NULL) &&
           strstr(mirt_last_error(), "is not differentiable"),
       "log-cosh is not differentiated twice: \"%s\"", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* >>all trainable weights */

static double trainable_squares(mirt_model *m) {
    float w[ROW_IN * 9];
    double sum = 0;
    for (int i = 0; i < mirt_num_weights(m); i++) {
        mirt_weight_info info;
        if (mirt_weight(m, i, &info) != MIRT_OK || !info.trainable) continue;
        if (mirt_get_weight(m, info.name, 0, w, (size_t)info.count) != MIRT_OK) return NAN;
        for (int64_t k = 0; k < info.count; k++) sum += (double)w[k] * (double)w[k];
    }
    return sum;
}

/* Outside of a body: the sum of their squares as a term of the model's loss, which a frozen weight is no part of. */
static void check_decay_of_all(void) {
    double loss[2] = {NAN, NAN}, want = NAN;
    int count = 0;
    for (int with = 0; with < 2; with++) {
        const net_kind kind = {0, 0, 0, false, false, false};
        mirt_strategy *s = strategy_of(2, 3, 1);
        mirt_model *part = row_net(s, &kind), *m = mirt_model_create(s, "whole");
        mirt_compile_desc c = row_compile(mirt_sgd(0.1f, 0, false));
        mirt_dataset *data = mirt_batch(rows_of(ROW_COUNT), 14);
        mirt_tensor *sum = NULL, *const *all;
        mirt_logs logs;
        mirt_model_output(m, mirt_call(part, mirt_input(m, MIRT_SHAPE(ROW_IN)), MIRT_TRAINING_AUTO));
        mirt_set_trainable(m, "rows/dense_1", false);
        all = mirt_trainable(NULL, m, &count);
        for (int i = 0; all && i < count; i++) {
            mirt_tensor *square = mirt_reduce_sum(mirt_square(all[i]), 0, false);
            sum = sum ? mirt_add(sum, square) : square;
        }
        if (with) mirt_add_loss(m, mirt_scale(sum, 0.01f, 0));
        if (mirt_compile(m, &c) == MIRT_OK && mirt_evaluate(m, data, &logs) == MIRT_OK) loss[with] = logs.value[0];
        want = 0.01 * trainable_squares(m);
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
    ok(count == 2 && want > 0.05 && fabs(loss[1] - loss[0] - want) < 1e-6,
       "a term made of the %d trainable weights outside of a body adds %.6f to the loss: %.6f", count, want,
       loss[1] - loss[0]);
}

int main(void) {
    draw_rows();
    check_all_reduce();
    check_terms();
    check_assign();
    check_unused();
    check_decay_of_all();
    return done_testing();
}
