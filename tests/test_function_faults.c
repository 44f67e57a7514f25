/* Makes every allocation fail once while user functions are recorded and run. The failure is reported as
   MIRT_E_NOMEM, nothing leaks, and existing objects still work. A step itself allocates nothing. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "function_util.h"
#include "tap.h"

static const net_kind kind = {0.3f, 0.01f, 0.01f, true, true, false};

/* Cuts, gradients of both kinds, results of every kind, an assigned variable. */
static bool record_all(mirt_function *f, void *user) {
    static const float table[ROW_CLASSES] = {1, 2, 3, 4};
    mirt_model *m = (mirt_model *)user;
    mirt_tensor *out = mirt_call(m, mirt_function_x(f, 0), MIRT_TRAINING_ON), *gradient[2], *term;
    mirt_tensor *weight[2] = {mirt_function_variable(f, "dense_1/kernel"), mirt_function_variable(f, "dense_1/bias")};
    mirt_tensor *loss = mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, mirt_function_y(f, 0), out);
    mirt_tensor *total = mirt_replica_all_reduce(mirt_reduce_sum(loss, 1, false), MIRT_REDUCE_SUM);
    if (mirt_gradients(loss, weight, 2, gradient) != MIRT_OK) return false;
    if (mirt_function_result(f, "norm", mirt_replica_all_reduce(gradient[0], MIRT_REDUCE_MEAN)) != MIRT_OK)
        return false;
    for (int i = 0; (term = mirt_function_loss_term(f, i)) != NULL; i++) {
        if (mirt_minimize(f, term) != MIRT_OK) return false;
    }
    mirt_tensor *constant = mirt_function_constant(f, mirt_make_array(table, MIRT_FLOAT32, MIRT_SHAPE(ROW_CLASSES)));
    return mirt_minimize(f, loss) == MIRT_OK && mirt_function_result(f, "total", total) == MIRT_OK &&
           mirt_function_result(f, "classes", mirt_argmax(mirt_multiply(out, constant), 1)) == MIRT_OK &&
           mirt_assign(f, mirt_function_variable(f, "state"), mirt_reduce_mean(mirt_function_x(f, 0), 1, false),
                       MIRT_AGGREGATE_MEAN) == MIRT_OK;
}

static mirt_model *model_of(mirt_strategy *s) {
    mirt_compile_desc c = row_compile(mirt_adam(0.01f));
    mirt_model *m = row_net(s, &kind);
    mirt_variable(m, "state", MIRT_SHAPE(ROW_IN), mirt_zeros(), false);
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static mirt_status record_and_run(mirt_strategy *s, mirt_model *m) {
    mirt_global_batch batch;
    double total;
    mirt_dataset *data = mirt_distribute(s, mirt_accumulate(mirt_batch(mirt_shuffle(rows_of(20), 20), 4), 2));
    mirt_status status = data ? MIRT_OK : mirt_last_status();
    mirt_function *f = data ? mirt_function_create(m, data, record_all, m) : NULL;
    if (data && !f) status = mirt_last_status();
    for (int i = 0; status == MIRT_OK && i < 4; i++) {
        status = mirt_dataset_next(data, &batch);
        if (status == MIRT_OK && batch.rows) status = mirt_function_run(f, &batch);
    }
    if (status == MIRT_OK) status = mirt_reduce(f, "total", MIRT_REDUCE_MEAN, &total, 1);
    mirt_function_destroy(f);
    mirt_dataset_destroy(data);
    return status;
}

static void check_faults(void) {
    bool reached = true;
    long problems = 0, met = 0;
    for (long number = 1; reached && problems < 5; number += small_tier() ? 13 : 1) {
        mirt_strategy *s = strategy_of(1, 3, 1);
        mirt_model *m = model_of(s);
        allocations = 0;
        fails = number;
        mirt_status status = record_and_run(s, m);
        fails = 0;
        reached = allocations >= number;
        met += reached;
        const char *text = mirt_last_error();
        bool right = status == (reached ? MIRT_E_NOMEM : MIRT_OK) &&
                     (!reached || strstr(text, "out of memory") || strstr(text, "annot allocate"));
        if (!right) printf("# allocation %ld: status %d: %s\n", number, (int)status, text);
        if (right && record_and_run(s, m) != MIRT_OK)
            right = (printf("# allocation %ld, afterwards: %s\n", number, mirt_last_error()), false);
        mirt_strategy_destroy(s);
        if (live_blocks) right = (printf("# allocation %ld: %ld blocks left\n", number, live_blocks), false);
        problems += !right;
        live_blocks = 0;
    }
    ok(problems == 0 && met > 100 / (small_tier() ? 13 : 1),
       "%ld failed allocations, each reported, nothing leaks, and the model still works", met);
}

static void check_steady(void) {
    mirt_strategy *s = strategy_of(1, 3, 1);
    mirt_model *m = model_of(s);
    mirt_dataset *data = mirt_distribute(s, mirt_accumulate(mirt_batch(mirt_shuffle(rows_of(20), 20), 4), 2));
    mirt_function *f = mirt_function_create(m, data, record_all, m);
    mirt_global_batch batch;
    double total;
    float classes[8];
    bool good = f && mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK;
    allocations = 0;
    for (int i = 0; good && i < 20; i++) {
        good = mirt_dataset_next(data, &batch) == MIRT_OK && (!batch.rows || mirt_function_run(f, &batch) == MIRT_OK) &&
               mirt_reduce(f, "total", MIRT_REDUCE_MEAN, &total, 1) == MIRT_OK &&
               mirt_gather_result(f, "classes", classes, 8, NULL) == MIRT_OK;
    }
    ok(good && allocations == 0, "twenty steps of a function allocate %ld times%s%s", allocations, good ? "" : ": ",
       good ? "" : mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_rows();
    check_steady();
    check_faults();
    return done_testing();
}
