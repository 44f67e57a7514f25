/* Tests odd batches, replicas without rows, dropout, logs and devices. These are the cases where mirrored training
   elsewhere goes wrong. Also evaluation, which does not depend on replicas. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

/* >>splits */

typedef struct split_seen {
    int steps;
    int64_t rows[8][8];
} split_seen;

static int note_split(const mirt_event *event, void *user) {
    split_seen *seen = (split_seen *)user;
    int64_t first, next = 0;
    for (int r = 0; r < mirt_num_replicas(event->model->strategy) && r < 8 && seen->steps < 8; r++) {
        int64_t rows = mirt_replica_rows(event->model, r, &first);
        seen->rows[seen->steps][r] = first == next ? rows : -1; /* one share after the other */
        next += rows;
    }
    seen->steps++;
    return 0;
}

static split_seen splits_of(int samples, int batch, int devices) {
    split_seen seen;
    mirt_callback callback;
    mirt_fit_desc fit;
    memset(&seen, 0, sizeof seen);
    memset(&callback, 0, sizeof callback);
    memset(&fit, 0, sizeof fit);
    mirt_strategy *s = strategy_of(devices, 4, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    callback.user = &seen;
    callback.batch_end = note_split;
    fit.batch = batch;
    fit.callbacks[0] = &callback;
    fit.no_progress = true;
    if (!mirt_fit_arrays(m, images_x(0, samples), images_y(0, samples), &fit)) seen.steps = -1;
    mirt_strategy_destroy(s);
    return seen;
}

static bool split_is(const split_seen *seen, int step, int a, int b, int c, int d) {
    const int64_t *r = seen->rows[step];
    return seen->steps == step + 1 && r[0] == a && r[1] == b && r[2] == c && r[3] == d;
}

static void check_remainders(void) {
    for (int devices = 1; devices <= 4; devices++) {
        split_seen thirteen = splits_of(13, 8, devices), nine = splits_of(9, 8, devices),
                   five = splits_of(5, 8, devices);
        ok(split_is(&thirteen, 1, 2, 1, 1, 1),
           "T2: of 13 rows in batches of 8 the last goes 2, 1, 1, 1 to 4 replicas (%d devices)", devices);
        ok(split_is(&nine, 1, 1, 0, 0, 0), "T2: of 9 rows the last goes 1, 0, 0, 0 (%d devices)", devices);
        ok(split_is(&five, 0, 2, 1, 1, 1), "T5: the first batch may be the uneven one (%d devices)", devices);
    }
}

/* One weight, no bias, loss (w x - y)^2: with w = 0, x = i / 10 and y = x the gradient of row i is
   -0.02 i^2, so one step of rate 1 sets w to 0.02 times the mean of i^2. */
static mirt_model *linear_model(mirt_strategy *s, mirt_reduction reduction) {
    mirt_dense_desc d;
    mirt_compile_desc c;
    memset(&d, 0, sizeof d);
    memset(&c, 0, sizeof c);
    d.units = 1;
    d.no_bias = true;
    d.kernel_initializer = mirt_zeros();
    c.optimizer = mirt_sgd(1, 0, false);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    c.reduction = reduction;
    mirt_model *m = mirt_model_create(s, "linear");
    mirt_model_output(m, mirt_dense(mirt_input(m, MIRT_SHAPE(1)), &d));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static float linear_step(int devices, int replicas, int rows) {
    float x[6], w = 0;
    for (int i = 0; i < rows; i++) x[i] = (float)(i + 1) / 10;
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    mirt_model *m = linear_model(s, MIRT_SUM_OVER_BATCH_SIZE);
    mirt_array data = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(rows, 1));
    if (!m || mirt_train_step(m, data, data, NULL) != MIRT_OK ||
        mirt_get_weight(m, "dense/kernel", 0, &w, 1) != MIRT_OK)
        w = -1;
    mirt_strategy_destroy(s);
    return w;
}

static void check_partial_steps(void) {
    static const struct { int rows; double step; } want[] = {{1, 0.020}, {5, 0.220}, {6, 1.82 / 6}};
    for (int i = 0; i < MIRT__COUNT(want); i++) {
        for (int devices = 1; devices <= 4; devices++) {
            double mirrored = (double)linear_step(devices, 4, want[i].rows),
                   alone = (double)linear_step(1, 1, want[i].rows);
            ok(fabs(mirrored - want[i].step) < 1e-7 && fabs(mirrored - alone) < 1e-7,
               "T3: a step of %d rows on 4 replicas, %d devices: %.7f, alone %.7f", want[i].rows, devices, mirrored,
               alone);
        }
    }
}

/* MIRT_SUM: neither loss nor gradient is divided; over batches of 4 and 2, the loss is the mean of
   their sums, weighted by their sizes, as Keras has it. */
static void check_sums(void) {
    const float x[6] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f};
    mirt_array data = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(6, 1));
    for (int devices = 1; devices <= 4; devices++) {
        float w = 0;
        double loss = 0;
        mirt_logs logs;
        memset(&logs, 0, sizeof logs);
        mirt_strategy *s = strategy_of(devices, 4, 1);
        mirt_model *m = linear_model(s, MIRT_SUM);
        mirt_dataset *batches = mirt_batch(mirt_arrays(data, data), 4);
        bool good = m && mirt_evaluate(m, batches, &logs) == MIRT_OK &&
                    mirt_train_step(m, data, data, &loss) == MIRT_OK &&
                    mirt_get_weight(m, "dense/kernel", 0, &w, 1) == MIRT_OK;
        ok(good && fabs((double)w - 1.82) < 1e-6 && fabs(loss - 0.91) < 1e-6,
           "MIRT_SUM, %d devices: a step of rate 1 goes to %.6f, loss %.6f", devices, (double)w, loss);
        ok(good && fabs(logs.value[0] - (0.30 * 4 + 0.61 * 2) / 6) < 1e-6,
           "MIRT_SUM, %d devices: evaluate weights the sums of batches, %.6f", devices, logs.value[0]);
        mirt_dataset_destroy(batches);
        mirt_strategy_destroy(s);
    }
}

/* More replicas than rows, for every remainder, equal to one replica but for rounding. */
static void check_empty_replicas(void) {
    for (int rows = 1; rows <= 9; rows += 2) {
        float *w[2];
        size_t count[2];
        double worst = 0;
        for (int k = 0; k < 2; k++) {
            mirt_strategy *s = k ? strategy_of(3, 8, 1) : strategy_of(1, 1, 1);
            mirt_model *m = image_model(s, mirt_sgd(0.1f, 0.9f, false), 0.3f);
            for (int i = 0; i < 3; i++) mirt_train_step(m, images_x(i * 10, rows), images_y(i * 10, rows), NULL);
            w[k] = all_weights(m, mirt_num_devices(s) - 1, &count[k]);
            mirt_strategy_destroy(s);
        }
        for (size_t i = 0; i < count[0]; i++) {
            double error = fabs((double)w[0][i] - (double)w[1][i]);
            worst = worse(worst, error);
        }
        ok(worst < 1e-6, "T4: %d rows on 8 replicas: those without rows add nothing (%.1e)", rows, worst);
        free(w[0]);
        free(w[1]);
    }
}

/* >>dropout */

enum { MASK_ROWS = 16, MASK_COLUMNS = 64 };
typedef struct masks {
    uint32_t bits[MASK_COLUMNS]; /* bit r: row r kept the column */
    bool good;
} masks;

/* Row r is 2^r everywhere and its loss has gradient 1/2, dropout of one half doubles what it keeps:
   the gradient of a weight is the sum of 2^r over the rows that kept it, exact in float32, and doubled
   by every further dropout layer. */
static masks dropout_masks(int devices, int replicas, int64_t skip_steps, uint64_t seed, int layers) {
    static float x[MASK_ROWS][MASK_COLUMNS];
    float y[MASK_ROWS], gradient[MASK_COLUMNS];
    masks out;
    mirt_dense_desc d;
    mirt_compile_desc c;
    memset(&out, 0, sizeof out);
    memset(&d, 0, sizeof d);
    memset(&c, 0, sizeof c);
    for (int r = 0; r < MASK_ROWS; r++) {
        y[r] = -(float)MASK_ROWS / 4;
        for (int j = 0; j < MASK_COLUMNS; j++) x[r][j] = (float)(1 << r);
    }
    d.units = 1;
    d.no_bias = true;
    d.kernel_initializer = mirt_zeros();
    c.optimizer = mirt_sgd(0, 0, false);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    s->seed = seed;
    mirt_model *m = mirt_model_create(s, "masks");
    mirt_tensor *h = mirt_input(m, MIRT_SHAPE(MASK_COLUMNS));
    for (int i = 0; i < layers; i++) h = mirt_dropout(h, 0.5f);
    mirt_model_output(m, mirt_dense(h, &d));
    mirt_array xs = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(MASK_ROWS, MASK_COLUMNS)),
               ys = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(MASK_ROWS));
    out.good = mirt_compile(m, &c) == MIRT_OK;
    for (int64_t i = 0; out.good && i < skip_steps; i++) out.good = mirt_train_step(m, xs, ys, NULL) == MIRT_OK;
    out.good = out.good && mirt_scatter(m, xs, ys) == MIRT_OK && mirt_grad(m, NULL) == MIRT_OK &&
               mirt_all_reduce(m) == MIRT_OK &&
               mirt_get_gradient(m, "dense/kernel", 0, gradient, MASK_COLUMNS) == MIRT_OK;
    for (int j = 0; out.good && j < MASK_COLUMNS; j++) {
        gradient[j] /= (float)(1 << (layers - 1));
        out.bits[j] = (uint32_t)gradient[j];
        out.good = (float)out.bits[j] == gradient[j] && out.bits[j] < 1u << MASK_ROWS;
    }
    mirt_strategy_destroy(s);
    return out;
}

static uint64_t row_mask(const masks *m, int row) {
    uint64_t bits = 0;
    for (int j = 0; j < MASK_COLUMNS; j++) bits |= (uint64_t)(m->bits[j] >> row & 1) << j;
    return bits;
}

static void check_dropout(void) {
    masks one = dropout_masks(1, 1, 0, 11, 1), later = dropout_masks(1, 1, 1, 11, 1),
          other = dropout_masks(1, 1, 0, 12, 1), twice = dropout_masks(1, 1, 0, 11, 2);
    int equal = 0, kept = 0, kept_twice = 0, steps_equal = 0, seeds_equal = 0;
    for (int r = 0; r < MASK_ROWS; r++) {
        for (int q = 0; q < r; q++) equal += row_mask(&one, r) == row_mask(&one, q);
        for (int j = 0; j < MASK_COLUMNS; j++) {
            kept += (int)(row_mask(&one, r) >> j & 1);
            kept_twice += (int)(row_mask(&twice, r) >> j & 1);
        }
        steps_equal += row_mask(&one, r) == row_mask(&later, r);
        seeds_equal += row_mask(&one, r) == row_mask(&other, r);
    }
    ok(one.good && equal == 0, "T8: %d samples have %d different dropout masks", MASK_ROWS, MASK_ROWS - equal);
    ok(later.good && steps_equal == 0, "T8: the next step has other masks");
    ok(other.good && seeds_equal == 0, "T8: another seed has other masks");
    /* 1024 fair coins: 512 and a standard deviation of 16 */
    ok(abs(kept - MASK_ROWS * MASK_COLUMNS / 2) < 80, "T8: a rate of one half keeps half: %d of %d", kept,
       MASK_ROWS * MASK_COLUMNS);
    ok(twice.good && abs(kept_twice - MASK_ROWS * MASK_COLUMNS / 4) < 70,
       "T8: two layers drop independently: %d are left", kept_twice);
    for (int devices = 1; devices <= 4; devices++) {
        masks m = dropout_masks(devices, 4, 0, 11, 1);
        ok(m.good && memcmp(m.bits, one.bits, sizeof m.bits) == 0,
           "T8: 4 replicas on %d devices drop what one replica drops", devices);
    }
}

/* >>logs */

typedef struct logs_seen {
    int count;
    double loss[8], accuracy[8], batch_loss[8];
} logs_seen;

static double log_value(const mirt_logs *logs, const char *name) {
    for (int i = 0; i < logs->count; i++) {
        if (strcmp(logs->name[i], name) == 0) return logs->value[i];
    }
    return NAN;
}

static int note_logs(const mirt_event *event, void *user) {
    logs_seen *seen = (logs_seen *)user;
    if (seen->count == 8) return 1;
    seen->loss[seen->count] = log_value(event->logs, "loss");
    seen->accuracy[seen->count] = log_value(event->logs, "accuracy");
    seen->batch_loss[seen->count++] = log_value(event->logs, "batch_loss");
    return 0;
}

/* A rate of 0 leaves the weights, so every sample's loss is known from evaluating it alone. */
static void check_logs(void) {
    double loss = 0, accuracy = 0, eight = 0, eight_right = 0;
    logs_seen seen;
    mirt_callback callback;
    mirt_fit_desc fit;
    memset(&seen, 0, sizeof seen);
    memset(&callback, 0, sizeof callback);
    memset(&fit, 0, sizeof fit);
    callback.user = &seen;
    callback.batch_end = note_logs;
    mirt_strategy *s = strategy_of(2, 4, 1);
    mirt_model *m = image_net(s, 0);
    mirt_compile_desc c = image_compile(mirt_sgd(0, 0, false));
    c.metrics[1] = MIRT_ACCURACY;
    mirt_compile(m, &c);
    for (int i = 0; i < 13; i++) {
        mirt_logs one;
        mirt_evaluate_arrays(m, images_x(i, 1), images_y(i, 1), &one);
        loss += one.value[0];
        accuracy += one.value[1];
        if (i == 7) {
            eight = loss;
            eight_right = accuracy;
        }
    }
    mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, 13), images_y(0, 13)), 8);
    fit.callbacks[0] = &callback;
    fit.no_progress = true;
    mirt_history *h = mirt_fit(m, data, &fit);
    ok(h && seen.count == 2 && fabs(seen.loss[0] - eight / 8) < 1e-12 && seen.accuracy[0] == eight_right / 8,
       "T9: after a batch the logs hold the sums over its samples by their number");
    ok(fabs(seen.loss[1] - loss / 13) < 1e-12 && seen.accuracy[1] == accuracy / 13 &&
           fabs(seen.batch_loss[1] - (loss - eight) / 5) < 1e-12,
       "T9: after an uneven batch too, so far in the epoch and of the batch alone");
    ok(h && h->epoch[0].count >= 3 && strcmp(h->epoch[0].name[2], "accuracy_1") == 0 &&
           h->epoch[0].value[2] == seen.accuracy[1],
       "T9: a second metric has its own sums");
    ok(h && mirt_history_last(h, "loss") == seen.loss[1] && mirt_history_last(h, "accuracy") == seen.accuracy[1],
       "T9: the epoch's value is the last batch's");
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* >>devices */

static void check_no_strategy(const char *devices, int replicas, mirt_status status, const char *word,
                              const char *word_2) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = devices;
    d.replicas = replicas;
    d.silent = true;
    mirt_strategy *s = mirt_strategy_create(&d);
    ok(!s && mirt_last_status() == status && strstr(mirt_last_error(), word) && strstr(mirt_last_error(), word_2),
       "T14: devices \"%s\", %d replicas: \"%s\"", devices, replicas, mirt_last_error());
    mirt_strategy_destroy(s);
}

static void check_devices(void) {
    mirt_device_info info[64];
    int cores = mirt_devices(info, 64);
    char last[32], beyond[32], list[32];
    snprintf(last, sizeof last, "cpu:%d", cores - 1);
    snprintf(beyond, sizeof beyond, "cpu:%d", cores);
    snprintf(list, sizeof list, "cpu:0,cpu:%d", cores);
    ok(cores >= 1 && strcmp(info[0].name, "cpu:0") == 0 && info[0].cores == 1, "this machine has cpu:0 to %s", last);
    check_no_strategy("gpu:0", 0, MIRT_E_DEVICE, "\"gpu:0\"", last);
    check_no_strategy(beyond, 0, MIRT_E_DEVICE, beyond, last);
    check_no_strategy(list, 0, MIRT_E_DEVICE, beyond, last);
    check_no_strategy("cpu:0,cpu:0", 0, MIRT_E_DEVICE, "cpu:0", "twice");
    check_no_strategy("cpu:", 0, MIRT_E_DEVICE, "\"cpu:\"", last);
    check_no_strategy("", 0, MIRT_E_DEVICE, "\"\"", last);
    check_no_strategy("0", 0, MIRT_E_DEVICE, "0 devices", "1");
    check_no_strategy("4", 3, MIRT_E_INVALID, "3 replicas on 4 devices", "at least one");
    check_no_strategy("1", -1, MIRT_E_INVALID, "negative", "replicas");
}

/* >>evaluation */

static void check_evaluation(void) {
    static const int set[][4] = {{1, 1, 1, 32}, {1, 1, 2, 1},   {2, 2, 1, 302}, {3, 8, 1, 7},
                                 {1, 5, 3, 37}, {8, 40, 1, 64}, {2, 2, 2, 3}};
    enum { N = 150 };
    static float want[N * IMAGE_CLASSES], have[N * IMAGE_CLASSES + 1];
    mirt_logs want_logs, logs;
    memset(&want_logs, 0, sizeof want_logs);
    for (int i = 0; i < MIRT__COUNT(set); i++) {
        mirt_strategy *s = strategy_of(set[i][0], set[i][1], set[i][2]);
        mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.3f);
        mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, N), images_y(0, N)), set[i][3]);
        memset(&logs, 0, sizeof logs);
        have[N * IMAGE_CLASSES] = 77;
        bool good =
            mirt_evaluate(m, data, &logs) == MIRT_OK && mirt_predict(m, data, have, N * IMAGE_CLASSES) == MIRT_OK;
        if (i == 0) {
            memcpy(want, have, sizeof want);
            want_logs = logs;
        }
        ok(good && logs.count == 2 && logs.value[0] == want_logs.value[0] && logs.value[1] == want_logs.value[1],
           "%d devices, %d replicas, %d threads, batches of %d: evaluate gives the same bits", set[i][0], set[i][1],
           set[i][2], set[i][3]);
        ok(good && memcmp(have, want, sizeof want) == 0 && have[N * IMAGE_CLASSES] == 77,
           "and predict, in the order of the data, no more than that");
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
}

static void check_prediction_order(void) {
    mirt_strategy *s = strategy_of(3, 4, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.3f);
    static float all[IMAGES * IMAGE_CLASSES];
    float one[IMAGE_CLASSES];
    bool good = mirt_predict_arrays(m, images_x(0, IMAGES), all, IMAGES * IMAGE_CLASSES) == MIRT_OK;
    for (int i = 0; good && i < IMAGES; i += 23) {
        good = mirt_predict_arrays(m, images_x(i, 1), one, IMAGE_CLASSES) == MIRT_OK &&
               memcmp(one, all + i * IMAGE_CLASSES, sizeof one) == 0;
    }
    ok(good, "a sample's prediction is the same alone and among all");
    ok(mirt_predict_arrays(m, images_x(0, 9), all, 44) == MIRT_E_SHAPE && strstr(mirt_last_error(), "45"),
       "too little room: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
}

/* >>shares */

/* The number of replicas of each device, as one digit. */
static void replicas_of(const mirt_strategy *s, int replicas, char out[8]) {
    int next = 0;
    for (int d = 0; d < s->num_devices; d++) {
        int first, count = mirt__device_replicas(s, replicas, d, &first);
        out[d] = first == next ? (char)('0' + count) : '?';
        next += count;
    }
    out[s->num_devices] = 0;
    if (next != replicas) strcpy(out, "?");
}

static void train_shared(const char *shares, int devices, char digest[MIRT__SHA256_HEX]) {
    mirt_strategy *s = strategy_shared(shares, devices, 8, 1);
    mirt_model *m = s ? image_model(s, mirt_adam(1e-3f), 0) : NULL;
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.batch = 12;
    fit.no_progress = true;
    const bool good = m && mirt_fit_arrays(m, images_x(0, 29), images_y(0, 29), &fit) && copies_agree(m);
    if (good) digest_weights(m, 0, digest);
    ok(good, "%s on %d devices trains%s%s", shares ? shares : "equal shares", devices, good ? "" : ": ",
       good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
}

static void check_shares(void) {
    static const struct {
        const char *shares;
        int devices, replicas;
        const char *want; /* replicas of each device */
    } dealt[] = {{"3,1", 2, 8, "62"},     {"1,3", 2, 8, "26"},      {"3,1", 2, 4, "31"},     {"1,2,1", 3, 8, "242"},
                 {"5,1,2", 3, 8, "512"},  {"1,1", 2, 8, "44"},      {"7", 3, 8, "332"},      {"2,1,1,4", 4, 8, "2114"}};
    static const char *const refused[] = {"", "3", "3,1,1", "0,1", "-1,1", "a,1", "3,", ",3", "3,1,", "3;1", "3 ,1",
                                          "1000001,1", "1,99999999999999999999"};
    char have[8], want[MIRT__SHA256_HEX] = "", other[MIRT__SHA256_HEX];
    for (int i = 0; i < MIRT__COUNT(dealt); i++) {
        mirt_strategy *s = strategy_shared(dealt[i].shares, dealt[i].devices, dealt[i].replicas, 1);
        if (s) replicas_of(s, dealt[i].replicas, have);
        ok(s && strcmp(have, dealt[i].want) == 0, "shares %s of %d devices: %d replicas are dealt as %s",
           dealt[i].shares, dealt[i].devices, dealt[i].replicas, s ? have : mirt_last_error());
        mirt_strategy_destroy(s);
    }
    for (int i = 0; i < MIRT__COUNT(refused); i++) {
        mirt_strategy *s = strategy_shared(refused[i], 2, 8, 1);
        const bool one = strcmp(refused[i], "3") == 0; /* for the one process */
        ok(one ? s != NULL : !s && mirt_last_status() == MIRT_E_INVALID && strstr(mirt_last_error(), "shares \""),
           "shares \"%s\": %s", refused[i], one ? "one process" : mirt_last_error());
        mirt_strategy_destroy(s);
    }
    mirt_strategy *none = strategy_shared("1000000,1", 2, 8, 1);
    ok(!none && strstr(mirt_last_error(), "8 replicas in these shares leave none for device 1 of 2"), "%s",
       mirt_last_error());
    mirt_strategy_destroy(none);
    train_shared(NULL, 1, want);
    for (int i = 0; i < MIRT__COUNT(dealt); i++) {
        if (dealt[i].replicas != 8) continue;
        strcpy(other, "");
        train_shared(dealt[i].shares, dealt[i].devices, other);
        ok(*want && strcmp(other, want) == 0, "shares %s: the bits of one device", dealt[i].shares);
    }
}

int main(void) {
    draw_images();
    check_shares();
    check_remainders();
    check_partial_steps();
    check_sums();
    check_empty_replicas();
    check_dropout();
    check_logs();
    check_devices();
    check_evaluation();
    check_prediction_order();
    return done_testing();
}
