/* Steps of the user's own: equal to fit bit for bit, results over replicas, all-reduce inside a step, terms of a
   loss, assigned variables, accumulated batches. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "function_util.h"
#include "tap.h"

enum { BATCH = 14, EPOCHS = 3 }; /* 61 rows: four batches, and one of 5 */

static mirt_dataset *batches(int64_t rows, int64_t batch, int joined) {
    return mirt_accumulate(mirt_batch(mirt_shuffle(rows_of(rows), rows), batch), joined);
}

/* >>equal to fit */

static void train_by_fit(mirt_strategy *s, const net_kind *kind, mirt_optimizer optimizer, int64_t batch, int joined,
                         char out[MIRT__SHA256_HEX]) {
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.epochs = EPOCHS;
    fit.no_progress = true;
    out[0] = 0;
    mirt_model *m = s ? row_model(s, kind, optimizer) : NULL;
    mirt_dataset *data = batches(ROW_COUNT, batch, joined);
    if (m && mirt_fit(m, data, &fit)) digest_state(m, out);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

static bool train_by_function(mirt_strategy *s, const net_kind *kind, mirt_optimizer optimizer, int64_t batch,
                              int joined, mirt_body_fn body, char out[MIRT__SHA256_HEX]) {
    out[0] = 0;
    mirt_model *m = s ? row_model(s, kind, optimizer) : NULL;
    mirt_dataset *data = m ? mirt_distribute(s, batches(ROW_COUNT, batch, joined)) : NULL;
    mirt_function *f = data ? mirt_function_create(m, data, body, m) : NULL;
    bool good = run_epochs(f, data, EPOCHS);
    if (good) digest_state(m, out);
    good = good && copies_equal(m);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    return good;
}

static const struct { const char *name; net_kind kind; } nets[] = {
    {"plain", {0, 0, 0, false, false, false}},
    {"dropout and regularizers", {0.3f, 0.002f, 0.01f, false, false, false}},
    {"one regularizer", {0.3f, 0, 0.01f, false, false, false}},
    {"batch normalization", {0.25f, 0, 0.01f, true, false, false}},
    {"synchronized batch normalization", {0.25f, 0, 0.01f, true, true, false}},
    {"frozen batch normalization", {0.25f, 0, 0.01f, true, false, true}},
};

static void check_equals_fit(void) {
    static const int mirror[][2] = {{1, 1}, {1, 2}, {2, 2}, {1, 3}, {2, 3}, {1, 8}, {3, 8}};
    const mirt_optimizer optimizer[] = {mirt_adam(0.01f), mirt_sgd(0.05f, 0.9f, true)};
    for (int n = 0; n < MIRT__COUNT(nets); n++) {
        for (int i = 0; i < MIRT__COUNT(mirror); i++) {
            const int p = mirror[i][0], v = mirror[i][1];
            char fit[MIRT__SHA256_HEX], step[MIRT__SHA256_HEX], hand[MIRT__SHA256_HEX];
            train_by_fit(strategy_of(p, v, 1), &nets[n].kind, optimizer[i % 2], BATCH, 1, fit);
            bool good =
                train_by_function(strategy_of(p, v, 1), &nets[n].kind, optimizer[i % 2], BATCH, 1, record_step, step);
            ok(good && fit[0] && strcmp(fit, step) == 0, "%s, %d replicas on %d devices: a custom loop equals fit%s%s",
               nets[n].name, v, p, good && fit[0] ? "" : ": ", good && fit[0] ? "" : mirt_last_error());
            if (nets[n].kind.l1 > 0) continue; /* two terms of one weight: the gradients meet in another order */
            good = train_by_function(strategy_of(p, v, 1), &nets[n].kind, optimizer[i % 2], BATCH, 1, record_by_hand,
                                     hand);
            ok(good && fit[0] && strcmp(fit, hand) == 0, "%s, %d replicas on %d devices: so do gradients by hand%s%s",
               nets[n].name, v, p, good ? "" : ": ", good ? "" : mirt_last_error());
        }
    }
}

/* The convolutions of fit are fused with what stands around them; gradients by hand are recorded before that,
   and round differently. */
static bool record_images(mirt_function *f, void *user) {
    mirt_tensor *out = mirt_call((mirt_model *)user, mirt_cast(mirt_function_x(f, 0), MIRT_FLOAT32), MIRT_TRAINING_ON);
    return mirt_minimize(f, mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, mirt_function_y(f, 0), out)) ==
           MIRT_OK;
}

static void check_images_equal_fit(void) {
    for (int devices = 1; devices <= 2; devices++) {
        float *w[3];
        size_t count = 0;
        double worst = 0;
        for (int how = 0; how < 3; how++) {
            mirt_strategy *s = strategy_of(devices, 3, 1);
            mirt_model *m = image_model(s, mirt_sgd(0.05f, 0.9f, false), 0.3f);
            mirt_dataset *data = mirt_batch(mirt_shuffle(mirt_arrays(images_x(0, 100), images_y(0, 100)), 100), 37);
            mirt_fit_desc fit;
            memset(&fit, 0, sizeof fit);
            fit.epochs = 2;
            fit.no_progress = true;
            if (how == 0) {
                mirt_fit(m, data, &fit);
            } else {
                data = mirt_distribute(s, data);
                if (!run_epochs(mirt_function_create(m, data, how == 1 ? record_images : record_by_hand, m), data, 2))
                    printf("# %s\n", mirt_last_error());
            }
            w[how] = all_weights(m, devices - 1, &count);
            mirt_dataset_destroy(data);
            mirt_strategy_destroy(s);
        }
        for (size_t i = 0; i < count; i++) worst = worse(worst, fabs((double)w[0][i] - (double)w[2][i]));
        ok(memcmp(w[0], w[1], count * sizeof(float)) == 0,
           "convolutions and bytes, %d devices: a custom loop equals fit", devices);
        ok(worst < 2e-6, "convolutions and bytes, %d devices: gradients by hand do to rounding, %.1e", devices, worst);
        for (int how = 0; how < 3; how++) free(w[how]);
    }
}

/* >>accumulation: k batches of B rows on V replicas are one batch of k * B on k * V */

static void check_accumulation(void) {
    static const struct {
        int p, v, k, batch;
    } cases[] = {{1, 1, 2, 7}, {1, 2, 2, 7}, {2, 2, 2, 7}, {1, 2, 3, 5}, {2, 3, 4, 5}, {1, 1, 5, 1}, {3, 4, 2, 9}};
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        for (int n = 0; n < 2; n++) {
            const int p = cases[i].p, v = cases[i].v, k = cases[i].k;
            const net_kind *kind = &nets[n].kind;
            char whole[MIRT__SHA256_HEX], fit[MIRT__SHA256_HEX], step[MIRT__SHA256_HEX];
            train_by_fit(strategy_of(p, v * k, 1), kind, mirt_adam(0.01f), cases[i].batch * k, 1, whole);
            train_by_fit(strategy_of(p, v, 1), kind, mirt_adam(0.01f), cases[i].batch, k, fit);
            train_by_function(strategy_of(p, v, 1), kind, mirt_adam(0.01f), cases[i].batch, k, record_step, step);
            ok(whole[0] && strcmp(whole, fit) == 0,
               "%s: %d batches of %d on %d replicas, %d devices, equal one of %d on %d", nets[n].name, k,
               cases[i].batch, v, p, cases[i].batch * k, v * k);
            ok(whole[0] && strcmp(whole, step) == 0, "the same by a custom loop");
        }
    }
    /* More parts than an all-reduce can have. */
    mirt_strategy *s = strategy_of(1, 2, 1);
    mirt_model *m = row_model(s, &nets[0].kind, mirt_adam(0.01f));
    mirt_dataset *data = mirt_distribute(s, batches(ROW_COUNT, 1, 3000));
    ok(!mirt_function_create(m, data, record_step, m) && mirt_last_status() == MIRT_E_INVALID,
       "3000 batches on 2 replicas: \"%s\"", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* >>results */

static bool record_results(mirt_function *f, void *user) {
    mirt_tensor *x = mirt_function_x(f, 0), *two[1];
    (void)user;
    two[0] = mirt_reduce_sum(x, 0, false);
    bool good = mirt_function_result(f, "row_sums", two[0]) == MIRT_OK && mirt_function_result(f, "x", x) == MIRT_OK &&
                mirt_function_result(f, "y", mirt_function_y(f, 0)) == MIRT_OK &&
                mirt_function_result(f, "y again", mirt_function_y(f, 0)) == MIRT_OK &&
                mirt_function_result(f, "largest", mirt_argmax(x, 1)) == MIRT_OK &&
                mirt_function_result(f, "same largest", mirt_argmax(x, 1)) == MIRT_OK &&
                mirt_function_result(f, "positive", mirt_greater(x, mirt_scale(x, 0, 0))) == MIRT_OK;
    mirt_tensor *mean = mirt_reduce_mean(x, 1, false);
    return good && mirt_function_result(f, "mean", mean) == MIRT_OK &&
           mirt_function_result(f, "mean twice", mean) == MIRT_OK &&
           mirt_function_result(f, "total", mirt_reduce_sum(two[0], 1, false)) == MIRT_OK;
}

static bool same(double a, double b) { return fabs(a - b) <= 1e-5 * fmax(1, fabs(b)); }

static void check_results_of(int devices, int replicas, int64_t rows) {
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    mirt_model *m = row_model(s, &nets[0].kind, mirt_sgd(0.1f, 0, false));
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_of(rows), 8));
    mirt_function *f = mirt_function_create(m, data, record_results, NULL);
    mirt_global_batch batch;
    float out[8 * ROW_IN];
    double sums[ROW_IN], means[ROW_IN];
    size_t written;
    bool good = f && mirt_dataset_next(data, &batch) == MIRT_OK && batch.rows == (rows < 8 ? rows : 8) &&
                mirt_function_run(f, &batch) == MIRT_OK;
    if (!ok(good, "%d rows, %d replicas, %d devices: runs%s%s", (int)rows, replicas, devices, good ? "" : ": ",
            good ? "" : mirt_last_error())) {
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
        return;
    }
    double want[ROW_IN] = {0}, total = 0;
    for (int i = 0; i < batch.rows; i++) {
        for (int k = 0; k < ROW_IN; k++) want[k] += (double)row_x[i][k], total += (double)row_x[i][k];
    }
    good = mirt_gather_result(f, "x", out, 8 * ROW_IN, &written) == MIRT_OK && written == (size_t)batch.rows * ROW_IN &&
           memcmp(out, row_x, written * sizeof(float)) == 0;
    good = good && mirt_gather_result(f, "y", out, 8, &written) == MIRT_OK && written == (size_t)batch.rows;
    for (int i = 0; i < batch.rows; i++) good = good && out[i] == (float)row_y[i];
    good = good && mirt_gather_result(f, "y again", out, 8, &written) == MIRT_OK;
    for (int i = 0; i < batch.rows; i++) good = good && out[i] == (float)row_y[i];
    good = good && mirt_gather_result(f, "same largest", out, 8, &written) == MIRT_OK;
    for (int i = 0; i < batch.rows; i++) {
        int best = 0;
        for (int k = 1; k < ROW_IN; k++) best = row_x[i][k] > row_x[i][best] ? k : best;
        good = good && out[i] == (float)best;
    }
    good = good && mirt_gather_result(f, "positive", out, 8 * ROW_IN, &written) == MIRT_OK;
    for (int i = 0; i < batch.rows * ROW_IN; i++) good = good && out[i] == (float)(((const float *)row_x)[i] > 0);
    ok(good, "rows are gathered in the order of the batch");
    good = mirt_reduce(f, "x", MIRT_REDUCE_SUM, sums, ROW_IN) == MIRT_OK &&
           mirt_reduce(f, "x", MIRT_REDUCE_MEAN, means, ROW_IN) == MIRT_OK;
    for (int k = 0; k < ROW_IN; k++)
        good = good && same(sums[k], want[k]) && same(means[k], want[k] / (double)batch.rows);
    ok(good, "sums and means over rows");
    good = mirt_reduce(f, "mean", MIRT_REDUCE_MEAN, means, ROW_IN) == MIRT_OK;
    for (int k = 0; k < ROW_IN; k++) good = good && same(means[k], want[k] / (double)batch.rows);
    good = good && mirt_reduce(f, "mean twice", MIRT_REDUCE_MEAN, sums, ROW_IN) == MIRT_OK &&
           memcmp(sums, means, sizeof sums) == 0;
    ok(good && mirt_reduce(f, "total", MIRT_REDUCE_SUM, sums, 1) == MIRT_OK && same(sums[0], total),
       "the replicas' means weigh by their rows, their sums add up");
    good = true;
    for (int r = 0; r < replicas; r++) {
        int64_t first, share = mirt__share(batch.rows, replicas, r, &first);
        good = good && mirt_local_result(f, "x", r, out, 8 * ROW_IN, &written) == MIRT_OK &&
               written == (size_t)share * ROW_IN && memcmp(out, row_x[first], written * sizeof(float)) == 0;
        double own = 0;
        for (int64_t i = first; i < first + share; i++) own += (double)row_x[i][2];
        good = good && mirt_local_result(f, "mean", r, out, ROW_IN, &written) == MIRT_OK &&
               written == (size_t)(share ? ROW_IN : 0);
        if (share) good = good && same((double)out[2], own / (double)share);
    }
    ok(good, "and each replica has its own, one without rows none");
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

static void check_results(void) {
    static const int64_t rows[] = {5, 1, 8, 3};
    for (int i = 0; i < MIRT__COUNT(rows); i++) {
        check_results_of(1, 1, rows[i]);
        check_results_of(2, 3, rows[i]);
        check_results_of(3, 4, rows[i]);
        check_results_of(2, 8, rows[i]);
    }
    /* What TensorFlow gives for rows 0 .. 4 over replicas that hold [2, 2, 1, 0] of them: 2.0. */
    static float five[5] = {0, 1, 2, 3, 4};
    mirt_strategy *s = strategy_of(2, 4, 1);
    mirt_model *m = row_model(s, &nets[0].kind, mirt_sgd(0.1f, 0, false));
    mirt_dataset *data =
        mirt_distribute(s, mirt_batch(mirt_arrays(mirt_make_array(five, MIRT_FLOAT32, MIRT_SHAPE(5, 1)),
                                                  mirt_make_array(five, MIRT_FLOAT32, MIRT_SHAPE(5))),
                                      8));
    mirt_global_batch batch;
    double mean = 0;
    mirt_function *f = mirt_function_create(m, data, record_results, NULL);
    bool good = f && mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK &&
                mirt_reduce(f, "mean", MIRT_REDUCE_MEAN, &mean, 1) == MIRT_OK;
    ok(good && mean == 2.0, "5 rows over 4 replicas: the mean is %g%s%s", mean, good ? "" : ": ",
       good ? "" : mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

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
    static const char *const name[] = {"one a sample",
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
        mirt_dataset *data = mirt_batch(rows_of(ROW_COUNT), BATCH);
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

/* >>side by side */

/* Functions, fits and models of one strategy take turns on its memory: none changes what another computes. */
static void check_turns(int devices, int replicas) {
    char alone[2][MIRT__SHA256_HEX], turns[2][MIRT__SHA256_HEX];
    const mirt_optimizer optimizer = mirt_sgd(0.05f, 0.9f, false);
    const net_kind *kind[2] = {&nets[1].kind, &nets[4].kind};
    for (int i = 0; i < 2; i++)
        train_by_function(strategy_of(devices, replicas, 1), kind[i], optimizer, BATCH, 1, record_step, alone[i]);
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    mirt_model *m[2], *conv = image_model(s, mirt_adam(1e-3f), 0.3f);
    mirt_dataset *data[2];
    mirt_function *f[2], *twin[2];
    mirt_global_batch batch;
    bool good = true;
    for (int i = 0; i < 2; i++) {
        m[i] = row_model(s, kind[i], optimizer);
        data[i] = mirt_distribute(s, batches(ROW_COUNT, BATCH, 1));
        f[i] = mirt_function_create(m[i], data[i], record_step, m[i]);
        twin[i] = mirt_function_create(m[i], data[i], kind[i]->l1 > 0 ? record_step : record_by_hand, m[i]);
    }
    for (int step = 0; step < EPOCHS * 6; step++) {
        for (int i = 0; i < 2; i++) {
            good = good && mirt_dataset_next(data[i], &batch) == MIRT_OK;
            if (batch.rows) good = good && mirt_function_run(step % 3 ? f[i] : twin[i], &batch) == MIRT_OK;
        }
        if (step % 4 == 1) good = good && mirt_train_step(conv, images_x(0, 20), images_y(0, 20), NULL) == MIRT_OK;
        if (step % 5 == 2) {
            float out[3 * ROW_CLASSES];
            good = good && mirt_predict_arrays(m[0], mirt_make_array(row_x, MIRT_FLOAT32, MIRT_SHAPE(3, ROW_IN)), out,
                                               3 * ROW_CLASSES) == MIRT_OK;
        }
    }
    for (int i = 0; i < 2; i++) {
        digest_state(m[i], turns[i]);
        ok(good && strcmp(alone[i], turns[i]) == 0, "%d replicas, %d devices: model %d trains as if alone%s%s",
           replicas, devices, i, good ? "" : ": ", good ? "" : mirt_last_error());
        mirt_dataset_destroy(data[i]);
    }
    mirt_strategy_destroy(s);
}

/* An epoch by fit, the next by a function, the third by fit: as three by fit. */
static void check_fit_and_function(void) {
    char want[MIRT__SHA256_HEX], have[MIRT__SHA256_HEX];
    train_by_fit(strategy_of(2, 3, 1), &nets[2].kind, mirt_adam(0.01f), BATCH, 1, want);
    mirt_strategy *s = strategy_of(2, 3, 1);
    mirt_model *m = row_model(s, &nets[2].kind, mirt_adam(0.01f));
    mirt_dataset *own = mirt_distribute(s, batches(ROW_COUNT, BATCH, 1)), *data = batches(ROW_COUNT, BATCH, 1);
    mirt_function *f = mirt_function_create(m, own, record_step, m);
    mirt_global_batch batch;
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.no_progress = true;
    bool good = f && mirt_fit(m, data, &fit);
    do good = good && mirt_dataset_next(own, &batch) == MIRT_OK; /* the first epoch's order, which fit had */
    while (good && batch.rows);
    good = good && run_epochs(f, own, 1);
    m->epoch++; /* the epoch of the data that the function took */
    good = good && mirt_fit(m, data, &fit);
    digest_state(m, have);
    ok(good && strcmp(want, have) == 0, "fit, a function and fit again: as fit alone%s%s", good ? "" : ": ",
       good ? "" : mirt_last_error());
    mirt_dataset_destroy(own);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* >>an op of the user that fails */

static int64_t failing_row; /* the row at which it does; -1: none */

static int copy_forward(const mirt_op_call *call, void *user) {
    const int64_t rows = call->in_shape[0].dim[0];
    (void)user;
    memcpy(call->out, call->in[0], (size_t)(rows * call->in_shape[0].dim[1]) * sizeof(float));
    return failing_row >= call->first_row && failing_row < call->first_row + rows ? 3 : 0;
}

static int copy_backward(const mirt_op_call *call, void *user) {
    (void)user;
    memcpy(call->din[0], call->dout, (size_t)(call->in_shape[0].dim[0] * call->in_shape[0].dim[1]) * sizeof(float));
    return 0;
}

static bool record_op(mirt_function *f, void *user) {
    mirt_op_class op;
    mirt_tensor *out = mirt_call((mirt_model *)user, mirt_function_x(f, 0), MIRT_TRAINING_ON);
    memset(&op, 0, sizeof op);
    op.name = "sometimes";
    op.forward = copy_forward;
    op.backward = copy_backward;
    out = mirt_custom_op(&op, &out, 1, NULL);
    mirt_tensor *loss = mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, mirt_function_y(f, 0), out);
    return mirt_minimize(f, loss) == MIRT_OK &&
           mirt_function_result(f, "total",
                                mirt_replica_all_reduce(mirt_reduce_sum(loss, 1, false), MIRT_REDUCE_SUM)) == MIRT_OK;
}

static void check_failing_op(int devices, int replicas, int net) {
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    mirt_model *m = row_model(s, &nets[net].kind, mirt_adam(0.01f));
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_of(13), 13));
    mirt_function *f = mirt_function_create(m, data, record_op, m);
    mirt_global_batch batch;
    char before[MIRT__SHA256_HEX], after[MIRT__SHA256_HEX];
    failing_row = -1;
    bool good = f && mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK,
         refused = good;
    if (good) digest_state(m, before);
    for (int row = 0; refused && row < 13; row += 4) {
        failing_row = row;
        refused = mirt_function_run(f, &batch) == MIRT_E_CALLBACK &&
                  strstr(mirt_last_error(), "sometimes gave the code 3 in a step of");
        digest_state(m, after);
        refused = refused && strcmp(before, after) == 0 && copies_equal(m);
    }
    ok(refused, "%s, %d replicas, %d devices: an op that fails on one of them changes nothing: \"%s\"", nets[net].name,
       replicas, devices, mirt_last_error());
    failing_row = -1;
    good = good && mirt_function_run(f, &batch) == MIRT_OK;
    digest_state(m, after);
    ok(good && strcmp(before, after) != 0 && mirt_step(m) == 2, "and the next step works");
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* >>parts of a model */

/* The part's output is to be small, beside the loss of the whole: two calls, one set of weights. */
static bool record_with_part(mirt_function *f, void *user) {
    mirt_model **both = (mirt_model **)user;
    mirt_tensor *x = mirt_function_x(f, 0);
    mirt_tensor *loss = mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, mirt_function_y(f, 0),
                                         mirt_call(both[1], x, MIRT_TRAINING_ON));
    mirt_tensor *small = mirt_reduce_mean(mirt_square(mirt_call(both[0], x, MIRT_TRAINING_OFF)), 0, false);
    return mirt_minimize(f, mirt_add(loss, mirt_scale(small, 0.5f, 0))) == MIRT_OK;
}

/* Only the part's weights, by the part's own optimizer. */
static bool record_part(mirt_function *f, void *user) {
    mirt_tensor *out = mirt_call((mirt_model *)user, mirt_function_x(f, 0), MIRT_TRAINING_ON);
    return mirt_minimize(f, mirt_reduce_mean(mirt_square(out), 0, false)) == MIRT_OK;
}

static bool part_steps(int devices, int replicas, bool twice, float *out, size_t capacity) {
    const net_kind kind = {0, 0, 0.01f, true, true, false};
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    mirt_model *both[2];
    mirt_compile_desc c = row_compile(mirt_sgd(0.1f, 0.5f, false));
    mirt_dense_desc dense;
    memset(&dense, 0, sizeof dense);
    dense.units = ROW_CLASSES;
    both[0] = row_net(s, &kind);
    both[1] = mirt_model_create(s, "whole");
    mirt_model_output(
        both[1], mirt_dense(mirt_call(both[0], mirt_input(both[1], MIRT_SHAPE(ROW_IN)), MIRT_TRAINING_AUTO), &dense));
    bool good = mirt_compile(both[1], &c) == MIRT_OK && mirt_compile(both[0], &c) == MIRT_OK;
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_of(13), 8));
    mirt_function *f = good ? mirt_function_create(both[1], data, record_with_part, both) : NULL,
                  *g = f ? mirt_function_create(both[0], data, record_part, both[0]) : NULL;
    mirt_global_batch batch;
    float head[9 * ROW_CLASSES];
    size_t count = 0;
    for (int i = 0; i < 9 && g; i++) {
        good = good && mirt_dataset_next(data, &batch) == MIRT_OK;
        if (!good || !batch.rows) continue;
        good = mirt_function_run(f, &batch) == MIRT_OK;
        if (twice && mirt_get_weight(both[1], "dense/kernel", 0, head, ROW_CLASSES * ROW_CLASSES) == MIRT_OK) {
            float after[ROW_CLASSES * ROW_CLASSES];
            good = good && mirt_function_run(g, &batch) == MIRT_OK &&
                   mirt_get_weight(both[1], "dense/kernel", 0, after, ROW_CLASSES * ROW_CLASSES) == MIRT_OK &&
                   memcmp(head, after, sizeof after) == 0;
        }
    }
    good = good && g && copies_equal(both[1]);
    float *all = good ? all_weights(both[1], 0, &count) : NULL;
    if (all) memcpy(out, all, (count < capacity ? count : capacity) * sizeof *out);
    free(all);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    return good && all;
}

static void check_parts(void) {
    enum { COUNT = 7 * 9 + 4 * 9 + 9 * 4 + 4 + 16 + 4 };
    for (int twice = 0; twice < 2; twice++) {
        static float one[COUNT], many[COUNT], again[COUNT];
        bool good = part_steps(1, 1, twice != 0, one, COUNT) && part_steps(1, 3, twice != 0, many, COUNT) &&
                    part_steps(3, 3, twice != 0, again, COUNT);
        double worst = 0;
        for (int i = 0; i < COUNT; i++) worst = worse(worst, fabs((double)one[i] - (double)many[i]));
        ok(good && worst < 1e-5 && memcmp(many, again, sizeof many) == 0,
           "a function of a model and its part%s: 3 replicas equal one, off by %.0e%s%s",
           twice ? ", in turn with one of the part alone, which leaves the others" : "", worst, good ? "" : ": ",
           good ? "" : mirt_last_error());
    }
}

/* A batch normalization that is told to be in training moves its statistics wherever it is run. */
static void check_always_training(int devices, int replicas) {
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    const net_kind kind = {0, 0, 0, true, false, false};
    mirt_model *part = row_net(s, &kind), *m = mirt_model_create(s, "whole");
    mirt_compile_desc c = row_compile(mirt_sgd(0.1f, 0, false));
    mirt_model_output(m, mirt_call(part, mirt_input(m, MIRT_SHAPE(ROW_IN)), MIRT_TRAINING_ON));
    bool good = mirt_compile(m, &c) == MIRT_OK;
    mirt_dataset *data = mirt_batch(rows_of(13), 8);
    mirt_logs logs;
    float mean[9], before[9];
    good = good && mirt_get_weight(m, "rows/batch_normalization/moving_mean", 0, before, 9) == MIRT_OK &&
           mirt_evaluate(m, data, &logs) == MIRT_OK &&
           mirt_get_weight(m, "rows/batch_normalization/moving_mean", devices - 1, mean, 9) == MIRT_OK;
    ok(good && logs.value[0] == logs.value[0] && memcmp(mean, before, sizeof mean) != 0 && copies_equal(m),
       "%d replicas, %d devices: a part called in training mode, evaluated%s%s", replicas, devices, good ? "" : ": ",
       good ? "" : mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_rows();
    draw_images();
    check_equals_fit();
    check_images_equal_fit();
    check_accumulation();
    check_results();
    check_all_reduce();
    check_terms();
    check_assign();
    check_unused();
    check_decay_of_all();
    check_turns(1, 1);
    check_turns(2, 3);
    check_turns(3, 8);
    check_fit_and_function();
    check_failing_op(1, 1, 0);
    check_failing_op(2, 3, 4);
    check_failing_op(3, 8, 4);
    check_failing_op(2, 3, 3);
    check_parts();
    check_always_training(1, 1);
    check_always_training(2, 3);
    check_always_training(3, 8);
    return done_testing();
}
