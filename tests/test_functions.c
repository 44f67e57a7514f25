/* Custom steps: equal to fit bit for bit, accumulated batches, results, parts. */
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
