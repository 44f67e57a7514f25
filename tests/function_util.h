#ifndef FUNCTION_UTIL_H
#define FUNCTION_UTIL_H
/* Shared helpers of the tests of functions, batch normalization and random cases. Strategies that collect what
   they log, a small network of many kinds of layers, data, and steps recorded by the user. Include after
   mirror_util.h. */

typedef struct heard {
    char text[8][512];
    int warnings;
} heard;

TAP_UNUSED static void hear(mirt_log_level level, const char *text, void *user) {
    heard *h = (heard *)user;
    if (level != MIRT_LOG_WARNING || strstr(text, "core")) return;
    if (h->warnings < 8) snprintf(h->text[h->warnings], sizeof h->text[0], "%s", text);
    h->warnings++;
}

/* Warnings (but of cores) go to `to`; NULL: silent. */
TAP_UNUSED static mirt_strategy *strategy_heard(int devices, int replicas, int threads, heard *to) {
    mirt_strategy *s = strategy_of(devices, replicas, threads);
    if (s && to) memset(to, 0, sizeof *to);
    if (s && to) mirt_set_log(s, hear, to);
    return s;
}

enum { ROW_COUNT = 61, ROW_IN = 7, ROW_CLASSES = 4 };
static float row_x[ROW_COUNT][ROW_IN];
static int32_t row_y[ROW_COUNT];

TAP_UNUSED static void draw_rows(void) {
    mirt__random random = mirt__random_stream(5, 6);
    for (int i = 0; i < ROW_COUNT; i++) {
        row_y[i] = (int32_t)mirt__random_below(&random, ROW_CLASSES);
        for (int k = 0; k < ROW_IN; k++) {
            row_x[i][k] = (float)((double)mirt__random_below(&random, 2001) / 1000.0 - 1.0) +
                          (k % ROW_CLASSES == row_y[i] ? 1.0f : 0.0f);
        }
    }
}

TAP_UNUSED static mirt_dataset *rows_of(int64_t count) {
    return mirt_arrays(mirt_make_array(row_x, MIRT_FLOAT32, MIRT_SHAPE(count, ROW_IN)),
                       mirt_make_array(row_y, MIRT_INT32, MIRT_SHAPE(count)));
}

typedef struct net_kind {
    float dropout, l1, l2;
    bool batch_norm, synchronized, frozen;
} net_kind;

TAP_UNUSED static mirt_model *row_net(mirt_strategy *s, const net_kind *kind) {
    mirt_model *m = mirt_model_create(s, "rows");
    mirt_dense_desc hidden, logits;
    mirt_batch_norm_desc norm;
    memset(&hidden, 0, sizeof hidden);
    memset(&logits, 0, sizeof logits);
    memset(&norm, 0, sizeof norm);
    hidden.units = 9;
    hidden.activation = kind->batch_norm ? MIRT_LINEAR : MIRT_RELU;
    hidden.no_bias = kind->batch_norm; /* its gradient would be nothing but rounding */
    hidden.kernel_regularizer.l1 = kind->l1;
    hidden.kernel_regularizer.l2 = kind->l2;
    logits.units = ROW_CLASSES;
    logits.bias_regularizer.l2 = kind->l2;
    norm.momentum = 0.9f;
    norm.synchronized = kind->synchronized;
    mirt_tensor *x = mirt_dense(mirt_input(m, MIRT_SHAPE(ROW_IN)), &hidden);
    if (kind->batch_norm) x = mirt_activation(mirt_batch_norm(x, &norm), MIRT_RELU);
    if (kind->dropout > 0) x = mirt_dropout(x, kind->dropout);
    mirt_model_output(m, mirt_dense(x, &logits));
    return m;
}

TAP_UNUSED static mirt_compile_desc row_compile(mirt_optimizer optimizer) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = optimizer;
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    return c;
}

TAP_UNUSED static mirt_model *row_model(mirt_strategy *s, const net_kind *kind, mirt_optimizer optimizer) {
    mirt_compile_desc c = row_compile(optimizer);
    mirt_model *m = row_net(s, kind);
    if (kind->frozen && mirt_set_trainable(m, "batch_normalization", false) != MIRT_OK) return NULL;
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* What fit does, recorded by the user; `user` is the model. */
TAP_UNUSED static bool record_step(mirt_function *f, void *user) {
    mirt_model *m = (mirt_model *)user;
    mirt_tensor *out = mirt_call(m, mirt_cast(mirt_function_x(f, 0), MIRT_FLOAT32), MIRT_TRAINING_ON), *term;
    for (int i = 0; (term = mirt_function_loss_term(f, i)) != NULL; i++) {
        if (mirt_minimize(f, term) != MIRT_OK) return false;
    }
    mirt_tensor *loss = mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, mirt_function_y(f, 0), out);
    return mirt_minimize(f, loss) == MIRT_OK && mirt_function_result(f, "loss", loss) == MIRT_OK;
}

enum { MOST_WEIGHTS = 32 };

/* The same by gradients. */
TAP_UNUSED static bool record_by_hand(mirt_function *f, void *user) {
    mirt_model *m = (mirt_model *)user;
    mirt_tensor *total[MOST_WEIGHTS], *part[MOST_WEIGHTS], *term;
    int n = 0;
    mirt_tensor *out = mirt_call(m, mirt_cast(mirt_function_x(f, 0), MIRT_FLOAT32), MIRT_TRAINING_ON);
    mirt_tensor *const *weight = mirt_trainable(f, m, &n);
    if (!weight || n > MOST_WEIGHTS) return false;
    mirt_tensor *loss = mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, mirt_function_y(f, 0), out);
    if (mirt_gradients(loss, weight, n, total) != MIRT_OK) return false;
    for (int i = 0; (term = mirt_function_loss_term(f, i)) != NULL; i++) {
        if (mirt_gradients(term, weight, n, part) != MIRT_OK) return false;
        for (int k = 0; k < n; k++) total[k] = part[k] ? mirt_add(part[k], total[k]) : total[k];
    }
    return mirt_apply_gradients(f, weight, total, n) == MIRT_OK && mirt_function_result(f, "loss", loss) == MIRT_OK;
}

/* Runs the function over `epochs` epochs of the distributed data. */
TAP_UNUSED static bool run_epochs(mirt_function *f, mirt_dataset *data, int epochs) {
    mirt_global_batch batch;
    for (int e = 0; f && e < epochs; e++) {
        do {
            if (mirt_dataset_next(data, &batch) != MIRT_OK || (batch.rows && mirt_function_run(f, &batch) != MIRT_OK))
                return false;
        } while (batch.rows);
    }
    return f != NULL;
}

/* Weights and optimizer state, which decide everything that follows. */
TAP_UNUSED static void digest_state(mirt_model *m, char out[MIRT__SHA256_HEX]) {
    mirt__sha256 sha;
    mirt__sha256_begin(&sha);
    for (int i = 0; i < m->num_variables; i++)
        mirt__sha256_add(&sha, mirt__weight_at(m, i), (size_t)m->variable[i].count * sizeof(float));
    for (int k = 0; k < 2 && m->slot[k]; k++) {
        for (int i = 0; i < m->num_variables; i++) {
            if (mirt__is_trained(&m->variable[i]))
                mirt__sha256_add(&sha, mirt__slot_at(m, k, i), (size_t)m->variable[i].count * sizeof(float));
        }
    }
    mirt__sha256_add(&sha, &m->step, sizeof m->step);
    mirt__sha256_end(&sha, out);
}

TAP_UNUSED static bool copies_equal(mirt_model *m) {
    for (int d = 1; d < mirt_num_devices(m->strategy); d++) {
        for (int i = 0; i < m->num_variables; i++) {
            const size_t count = (size_t)m->variable[i].count;
            float *copy = (float *)malloc(count * sizeof *copy + 1);
            const bool same = copy && mirt_get_weight(m, m->variable[i].name, d, copy, count) == MIRT_OK &&
                              memcmp(mirt__weight_at(m, i), copy, count * sizeof *copy) == 0;
            free(copy);
            if (!same) return false;
        }
    }
    return true;
}

enum { W = 3 }; /* elements of its weight */

/* A model of one weight. */
TAP_UNUSED static mirt_model *bare_model(mirt_strategy *s, mirt_optimizer optimizer) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = optimizer;
    mirt_model *m = mirt_model_create(s, "bare");
    mirt_variable(m, "w", MIRT_SHAPE(W), mirt_random_uniform(-1, 1), true);
    mirt_variable(m, "unused", MIRT_SHAPE(5), mirt_ones(), true);
    mirt_variable(m, "state", MIRT_SHAPE(W), mirt_constant(7), false);
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

TAP_UNUSED static bool record_count(mirt_function *f, void *user) {
    mirt_tensor *state = mirt_function_variable(f, "state");
    (void)user;
    return mirt_function_result(f, "before", state) == MIRT_OK &&
           mirt_assign(f, state, mirt_scale(state, 2, 0), MIRT_AGGREGATE_SUM) == MIRT_OK &&
           mirt_assign(f, state, mirt_scale(state, 1, 1), MIRT_AGGREGATE_FIRST) == MIRT_OK;
}

#endif
