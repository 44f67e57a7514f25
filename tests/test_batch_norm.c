/* Tests batch normalization over replicas against double-precision arithmetic and Keras. Covers training, inference,
   frozen and synchronized layers, remainders and replicas without rows; moving statistics are those of all replicas. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/batch_norm.h"
#include "mirror_util.h"
#include "function_util.h"
#include "tap.h"

#include <unistd.h>

/* >>the same network in double precision */

enum { ROWS = 13, IN = 7, HIDDEN = 9, CLASSES = 4 };
typedef struct numbers {
    double kernel[IN][HIDDEN], gamma[HIDDEN], beta[HIDDEN], mean[HIDDEN], variance[HIDDEN], last[HIDDEN][CLASSES],
        bias[CLASSES];
} numbers;
enum { NUMBERS = sizeof(numbers) / sizeof(double) };
typedef enum how { OWN, SYNCHRONIZED, FROZEN } how;
static const char *const how_name[] = {"own statistics", "synchronized", "frozen"};

static float data_x[ROWS][IN];
static uint8_t data_y[ROWS];

static void start(numbers *n) {
    double *part[] = {&n->kernel[0][0], n->gamma, n->beta, n->mean, n->variance, &n->last[0][0], n->bias};
    static const unsigned count[] = {IN * HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN * CLASSES, CLASSES};
    for (unsigned i = 0; i < 7; i++) {
        for (unsigned k = 0; k < count[i]; k++)
            part[i][k] = (double)golden_uniform(901 + i, k) + (i == 1 || i == 4 ? 1.5 : 0);
    }
    for (unsigned i = 0; i < ROWS * IN; i++) data_x[i / IN][i % IN] = golden_uniform(900, i);
    for (unsigned i = 0; i < ROWS; i++) data_y[i] = (uint8_t)((i * 5 + 1) % CLASSES);
}

/* Mean and variance of h over rows [first, first + count). */
static void moments(double h[][HIDDEN], int j, int first, int count, double *mean, double *variance) {
    *mean = *variance = 0;
    for (int i = first; i < first + count; i++) *mean += h[i][j] / count;
    for (int i = first; i < first + count; i++) *variance += (h[i][j] - *mean) * (h[i][j] - *mean) / count;
}

/* The loss of rows [from, from + rows) split over `replicas`; gradients and the new moving statistics into *g. */
static double step(const numbers *n, how mode, int from, int rows, int replicas, numbers *g) {
    double h[ROWS][HIDDEN], hat[ROWS][HIDDEN], y[ROWS][HIDDEN], d[ROWS][HIDDEN], inverse[ROWS][HIDDEN], loss = 0;
    int group[ROWS + 1], groups = 0;
    memset(g, 0, sizeof *g);
    for (int r = 0; r < (mode == OWN ? replicas : 1); r++) {
        int64_t first, share = mirt__share(rows, mode == OWN ? replicas : 1, r, &first);
        if (share) group[groups++] = (int)first;
    }
    group[groups] = rows;
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < HIDDEN; j++) {
            h[i][j] = 0;
            for (int k = 0; k < IN; k++) h[i][j] += (double)data_x[from + i][k] * n->kernel[k][j];
        }
    }
    for (int j = 0; j < HIDDEN; j++) {
        double mean = 0, variance = 0;
        for (int r = 0; r < groups; r++) {
            double m = n->mean[j], v = n->variance[j];
            const int count = group[r + 1] - group[r];
            if (mode != FROZEN) moments(h, j, group[r], count, &m, &v);
            mean += m * count / rows;
            variance += v * count / rows;
            for (int i = group[r]; i < group[r + 1]; i++) {
                inverse[i][j] = 1 / sqrt(v + 1e-3);
                hat[i][j] = (h[i][j] - m) * inverse[i][j];
                y[i][j] = hat[i][j] * n->gamma[j] + n->beta[j];
            }
        }
        g->mean[j] = mode == FROZEN ? n->mean[j] : 0.9 * n->mean[j] + 0.1 * mean;
        g->variance[j] = mode == FROZEN ? n->variance[j] : 0.9 * n->variance[j] + 0.1 * variance;
    }
    memset(d, 0, sizeof d);
    for (int i = 0; i < rows; i++) {
        double logit[CLASSES], sum = 0;
        for (int c = 0; c < CLASSES; c++) {
            logit[c] = n->bias[c];
            for (int j = 0; j < HIDDEN; j++) logit[c] += fmax(y[i][j], 0) * n->last[j][c];
            sum += exp(logit[c]);
        }
        loss += (log(sum) - logit[data_y[from + i]]) / rows;
        for (int c = 0; c < CLASSES; c++) {
            const double dl = (exp(logit[c]) / sum - (c == data_y[from + i])) / rows;
            g->bias[c] += dl;
            for (int j = 0; j < HIDDEN; j++) {
                g->last[j][c] += fmax(y[i][j], 0) * dl;
                if (y[i][j] > 0) d[i][j] += n->last[j][c] * dl;
            }
        }
    }
    for (int j = 0; j < HIDDEN; j++) {
        for (int r = 0; r < groups; r++) {
            double sum = 0, product = 0;
            const int count = group[r + 1] - group[r];
            for (int i = group[r]; i < group[r + 1]; i++) {
                if (mode != FROZEN) {
                    g->beta[j] += d[i][j];
                    g->gamma[j] += d[i][j] * hat[i][j];
                }
                sum += d[i][j] / count;
                product += d[i][j] * hat[i][j] / count;
            }
            for (int i = group[r]; i < group[r + 1]; i++) {
                const double dh =
                    n->gamma[j] * inverse[i][j] * (mode == FROZEN ? d[i][j] : d[i][j] - sum - hat[i][j] * product);
                for (int k = 0; k < IN; k++) g->kernel[k][j] += (double)data_x[from + i][k] * dh;
            }
        }
    }
    return loss;
}

/* Adam, or without a state gradient descent; g becomes the weights. */
static void update(numbers *n, numbers *g, numbers *m, numbers *v, int t, double rate) {
    double *w = &n->kernel[0][0], *dw = &g->kernel[0][0], *first = m ? &m->kernel[0][0] : NULL,
           *second = v ? &v->kernel[0][0] : NULL;
    memcpy(n->mean, g->mean, sizeof n->mean);
    memcpy(n->variance, g->variance, sizeof n->variance);
    memset(g->mean, 0, sizeof g->mean);
    memset(g->variance, 0, sizeof g->variance);
    for (int i = 0; i < NUMBERS; i++) {
        if (!m) {
            w[i] -= rate * dw[i];
            continue;
        }
        first[i] = 0.9 * first[i] + 0.1 * dw[i];
        second[i] = 0.999 * second[i] + 0.001 * dw[i] * dw[i];
        w[i] -= rate * sqrt(1 - pow(0.999, t)) / (1 - pow(0.9, t)) * first[i] / (sqrt(second[i]) + 1e-7);
    }
}

/* >>the library's */

static const char *const names[] = {"dense/kernel",
                                    "batch_normalization/gamma",
                                    "batch_normalization/beta",
                                    "batch_normalization/moving_mean",
                                    "batch_normalization/moving_variance",
                                    "dense_1/kernel",
                                    "dense_1/bias"};
static const size_t counts[] = {IN * HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN * CLASSES, CLASSES};

static bool get_weights(mirt_model *m, int device, float out[NUMBERS]) {
    for (int i = 0; i < 7; out += counts[i++]) {
        if (mirt_get_weight(m, names[i], device, out, counts[i]) != MIRT_OK) return false;
    }
    return true;
}

static mirt_model *network(mirt_strategy *s, how mode, mirt_optimizer optimizer) {
    mirt_model *m = mirt_model_create(s, "norm");
    mirt_dense_desc first, last;
    mirt_batch_norm_desc norm;
    numbers n;
    memset(&first, 0, sizeof first);
    memset(&last, 0, sizeof last);
    memset(&norm, 0, sizeof norm);
    first.units = HIDDEN;
    first.no_bias = true;
    last.units = CLASSES;
    norm.momentum = 0.9f;
    norm.synchronized = mode == SYNCHRONIZED;
    mirt_tensor *x = mirt_batch_norm(mirt_dense(mirt_input(m, MIRT_SHAPE(IN)), &first), &norm);
    mirt_model_output(m, mirt_dense(mirt_activation(x, MIRT_RELU), &last));
    mirt_compile_desc c = row_compile(optimizer);
    start(&n);
    const double *from = &n.kernel[0][0];
    for (int i = 0; i < 7; i++) {
        float part[IN * HIDDEN];
        for (size_t k = 0; k < counts[i]; k++) part[k] = (float)*from++;
        if (mirt_set_weight(m, names[i], part, counts[i]) != MIRT_OK) return NULL;
    }
    if (mode == FROZEN && mirt_set_trainable(m, "batch_normalization", false) != MIRT_OK) return NULL;
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static mirt_array some_x(int from, int rows) {
    return mirt_make_array(data_x[from], MIRT_FLOAT32, MIRT_SHAPE(rows, IN));
}
static mirt_array some_y(int from, int rows) { return mirt_make_array(data_y + from, MIRT_UINT8, MIRT_SHAPE(rows)); }

static double off_by(const float *have, const double *want, int count) {
    double worst = 0;
    for (int i = 0; i < count; i++) {
        double error = fabs((double)have[i] - want[i]) / fmax(1, fabs(want[i]));
        worst = worse(worst, error);
    }
    return worst;
}

/* Gradients of the first batch, every loss, the weights after `steps` steps over `n` rows in batches of 8. */
static void check_case(how mode, int n, int replicas, bool adam, int steps) {
    char first[MIRT__SHA256_HEX] = "";
    numbers w, g, m, v;
    double loss_error = 0, weight_error = 0, gradient_error = 0;
    bool equal = true, good = true, agree = true;
    for (int devices = 1; devices <= 3 && devices <= replicas && good; devices++) {
        for (int threads = 1; threads <= 2 && good; threads++) {
            mirt_strategy *s = strategy_of(devices, replicas, threads);
            mirt_model *model = network(s, mode, adam ? mirt_adam(0.01f) : mirt_sgd(0.1f, 0, false));
            float have[NUMBERS];
            char digest[MIRT__SHA256_HEX];
            start(&w);
            memset(&m, 0, sizeof m);
            memset(&v, 0, sizeof v);
            good = model != NULL;
            for (int t = 0, from = 0; good && t < steps; t++) {
                const int rows = n - from < 8 ? n - from : 8;
                double loss, want = step(&w, mode, from, rows, replicas, &g);
                good = mirt_scatter(model, some_x(from, rows), some_y(from, rows)) == MIRT_OK &&
                       mirt_grad(model, &loss) == MIRT_OK && mirt_all_reduce(model) == MIRT_OK;
                const double *dw = &g.kernel[0][0];
                for (int i = 0; good && t == 0 && i < 7; dw += counts[i++]) {
                    if (i == 3 || i == 4 || (mode == FROZEN && (i == 1 || i == 2))) continue;
                    good = mirt_get_gradient(model, names[i], devices - 1, have, counts[i]) == MIRT_OK;
                    gradient_error = worse(gradient_error, off_by(have, dw, (int)counts[i]));
                }
                good = good && mirt_apply(model) == MIRT_OK;
                loss_error = worse(loss_error, fabs(loss - want));
                update(&w, &g, adam ? &m : NULL, adam ? &v : NULL, t + 1, adam ? 0.01 : 0.1);
                from = from + rows == n ? 0 : from + rows;
            }
            good = good && get_weights(model, devices - 1, have);
            if (good) {
                const double error = off_by(have, &w.kernel[0][0], NUMBERS);
                if (!(error <= weight_error)) weight_error = error;
                digest_state(model, digest);
                if (!first[0]) memcpy(first, digest, sizeof first);
                equal = equal && strcmp(first, digest) == 0;
                agree = agree && copies_equal(model);
            }
            mirt_strategy_destroy(s);
        }
    }
    ok(good && loss_error < 2e-5 && gradient_error < 2e-6 && weight_error < (adam ? 1e-4 : 2e-5),
       "%s, %d rows, %d replicas, %s: losses are off by %.0e, gradients %.0e, weights %.0e%s%s", how_name[mode], n,
       replicas, adam ? "Adam" : "SGD", loss_error, gradient_error, weight_error, good ? "" : ": ",
       good ? "" : mirt_last_error());
    ok(good && equal && agree, "bit-identical on 1 to 3 devices of 1 and 2 threads, whose copies are equal");
}

static void check_cases(void) {
    static const int replicas[] = {1, 2, 3, 4, 8}, rows[] = {8, 9, 10, 13};
    for (int mode = OWN; mode <= FROZEN; mode++) {
        for (int v = 0; v < MIRT__COUNT(replicas); v++) {
            for (int n = 0; n < MIRT__COUNT(rows); n++)
                check_case((how)mode, rows[n], replicas[v], (v + n) % 2 == 0, 8);
        }
    }
}

static void check_goldens(void) {
    for (int i = 0; i < 2; i++) {
        const golden_adam_norm *c = &golden_adam_norm_cases[i];
        mirt_strategy *s = strategy_of(1, 1, 1);
        mirt_model *m = network(s, c->frozen ? FROZEN : OWN, mirt_adam(0.01f));
        float have[NUMBERS];
        double loss = 0, error = 0;
        mirt_logs logs;
        bool good = m != NULL;
        for (int t = 0; good && t < 8; t++) {
            good = mirt_train_step(m, some_x(t % 2 * 8, t % 2 ? 5 : 8), some_y(t % 2 * 8, t % 2 ? 5 : 8), &loss) ==
                   MIRT_OK;
            error = worse(error, fabs(loss - c->loss[t]));
        }
        good = good && mirt_evaluate_arrays(m, some_x(0, ROWS), some_y(0, ROWS), &logs) == MIRT_OK &&
               get_weights(m, 0, have);
        const double weights = good ? off_by(have, c->weights, NUMBERS) : 1;
        ok(good && error < 2e-6 && weights < 1e-5 && fabs(logs.value[0] - c->evaluated) < 5e-6,
           "eight steps of Adam in Keras%s: losses are off by %.0e, weights %.0e, evaluation %.0e",
           c->frozen ? ", frozen" : "", error, weights, good ? fabs(logs.value[0] - c->evaluated) : 1);
        mirt_strategy_destroy(s);
    }
}

/* >>what TensorFlow gets wrong */

/* Each replica sees other numbers: TensorFlow keeps a moving mean for each and saves the first. */
static void check_moving_statistics(int devices, int rows) {
    static const float x[8] = {0, 1, 10, 11, 100, 101, 1000, 1001}, y[8] = {0};
    static const double means[2] = {139, (2 * .25 + 2 * 5.25 + 2 * 50.25 + 500) / 7},
                        variances[2] = {.625, (6 * .625 + .5) / 7};
    mirt_strategy *s = strategy_of(devices, 4, 1);
    mirt_model *m = mirt_model_create(s, "moving");
    mirt_batch_norm_desc norm;
    mirt_dense_desc dense;
    mirt_compile_desc c;
    memset(&norm, 0, sizeof norm);
    memset(&dense, 0, sizeof dense);
    memset(&c, 0, sizeof c);
    norm.momentum = 0.5f;
    dense.units = 1;
    c.optimizer = mirt_sgd(0.01f, 0, false);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_model_output(m, mirt_dense(mirt_batch_norm(mirt_input(m, MIRT_SHAPE(1)), &norm), &dense));
    bool good = mirt_compile(m, &c) == MIRT_OK &&
                mirt_train_step(m, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(rows, 1)),
                                mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(rows, 1)), NULL) == MIRT_OK;
    for (int d = 0; d < devices; d++) {
        float mean = 0, variance = 0;
        good = good && mirt_get_weight(m, "batch_normalization/moving_mean", d, &mean, 1) == MIRT_OK &&
               mirt_get_weight(m, "batch_normalization/moving_variance", d, &variance, 1) == MIRT_OK;
        ok(good && fabs((double)mean - means[rows == 7]) < 1e-4 && fabs((double)variance - variances[rows == 7]) < 1e-6,
           "%d rows, device %d of %d: the moving mean is %g, the variance %g: those of all replicas by their rows",
           rows, d, devices, (double)mean, (double)variance);
    }
    mirt_strategy_destroy(s);
}

/* 9, 10 and 13 rows in batches of 8 leave replicas without rows. */
static float *train_images(int devices, int replicas, int threads, int rows, bool synchronized, size_t *count,
                           mirt_logs *logs) {
    mirt_strategy *s = strategy_of(devices, replicas, threads);
    mirt_model *m = image_norm_model(s, synchronized);
    mirt_dataset *data = mirt_batch(mirt_shuffle(mirt_arrays(images_x(0, rows), images_y(0, rows)), rows), 8);
    mirt_fit_desc fit;
    float *out = NULL;
    memset(&fit, 0, sizeof fit);
    fit.epochs = 3;
    fit.no_progress = true;
    if (m && mirt_fit(m, data, &fit) && copies_equal(m) && mirt_evaluate(m, data, logs) == MIRT_OK)
        out = all_weights(m, 0, count);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    return out;
}

static void check_images(int rows, bool synchronized) {
    size_t count = 0, same;
    mirt_logs logs, other;
    float *one = train_images(1, 1, 1, rows, synchronized, &count, &logs);
    static const int replicas[] = {2, 3, 4, 8};
    for (int v = 0; v < MIRT__COUNT(replicas); v++) {
        float *w = train_images(1, replicas[v], 1, rows, synchronized, &same, &logs), *again;
        double worst = 0;
        bool finite = one && w, equal = true;
        for (size_t i = 0; finite && i < count; i++) {
            finite = w[i] == w[i] && fabsf(w[i]) < 1e6f;
            worst = worse(worst, fabs((double)w[i] - (double)one[i]));
        }
        for (int p = 2; finite && p <= 3 && p <= replicas[v]; p++) {
            again = train_images(p, replicas[v], p - 1, rows, synchronized, &same, &other);
            equal = equal && again && memcmp(w, again, count * sizeof *w) == 0 && other.value[0] == logs.value[0];
            free(again);
        }
        ok(finite && logs.value[0] == logs.value[0],
           "convolution, %d rows in batches of 8, %d replicas%s: trains to numbers%s%s", rows, replicas[v],
           synchronized ? ", synchronized" : "", finite ? "" : ": ", finite ? "" : mirt_last_error());
        ok(equal, "bit-identical on other devices");
        if (synchronized) ok(worst < 1e-5, "which are one replica's to rounding: %.0e", worst);
        free(w);
    }
    free(one);
}

/* The answer of a model is that of the loaded model, under any strategy. */
static void check_saved(bool synchronized) {
    mirt_strategy *s = strategy_of(2, 4, 1);
    mirt_model *m = image_norm_model(s, synchronized);
    mirt_logs logs[2];
    char path[300];
    bool good = m != NULL;
    snprintf(path, sizeof path, "%s/model.safetensors", work_directory());
    for (int i = 0; good && i < 5; i++)
        good = mirt_train_step(m, images_x(i * 13, 13), images_y(i * 13, 13), NULL) == MIRT_OK;
    good = good && mirt_evaluate_arrays(m, images_x(0, 100), images_y(0, 100), &logs[0]) == MIRT_OK &&
           mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK;
    for (int v = 1; v <= 5; v += 2) {
        mirt_strategy *t = strategy_of(v > 1 ? 2 : 1, v, 1);
        mirt_model *loaded = mirt_load(t, path);
        bool same =
            good && loaded && mirt_evaluate_arrays(loaded, images_x(0, 100), images_y(0, 100), &logs[1]) == MIRT_OK;
        ok(same && logs[0].value[0] == logs[1].value[0] && logs[0].value[1] == logs[1].value[1],
           "loaded into %d replicas, the model evaluates as it did: %.6g%s%s", v, logs[0].value[0], same ? "" : ": ",
           same ? "" : mirt_last_error());
        mirt_strategy_destroy(t);
    }
    unlink(path);
    mirt_strategy_destroy(s);
}

/* Frozen and thawed: statistics rest while it is frozen, and move again. */
static void check_thaw(void) {
    mirt_strategy *s = strategy_of(2, 3, 1);
    mirt_model *m = network(s, FROZEN, mirt_sgd(0.1f, 0, false));
    mirt_compile_desc c = row_compile(mirt_sgd(0.1f, 0, false));
    float before[NUMBERS], frozen[NUMBERS], thawed[NUMBERS];
    const size_t norm = IN * HIDDEN, size = 4 * HIDDEN * sizeof(float);
    bool good = m && get_weights(m, 0, before) && mirt_train_step(m, some_x(0, 8), some_y(0, 8), NULL) == MIRT_OK &&
                get_weights(m, 0, frozen) && mirt_set_trainable(m, "batch_normalization", true) == MIRT_OK &&
                mirt_compile(m, &c) == MIRT_OK && mirt_train_step(m, some_x(0, 8), some_y(0, 8), NULL) == MIRT_OK &&
                get_weights(m, 1, thawed);
    bool moved = good;
    for (size_t i = 0; i < 4 * HIDDEN; i++) moved = moved && frozen[norm + i] != thawed[norm + i];
    ok(good && memcmp(before + norm, frozen + norm, size) == 0 && memcmp(before, frozen, sizeof before) != 0,
       "frozen, it keeps its statistics, gamma and beta%s%s", good ? "" : ": ", good ? "" : mirt_last_error());
    ok(moved, "and moves them all once it is trained again");
    mirt_strategy_destroy(s);
}

/* Called twice in a step, on x and on 3 x + 1, the second call continues from the first one's moving statistics. */
static void check_called_twice(void) {
    enum { N = 12, C = 3 };
    static float x[N][C], y[N][C];
    float have[2][C];
    double worst = 0;
    mirt_batch_norm_desc d;
    mirt_compile_desc c;
    mirt_data data;
    memset(&d, 0, sizeof d);
    memset(&c, 0, sizeof c);
    memset(&data, 0, sizeof data);
    d.momentum = 0.9f;
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    for (unsigned i = 0; i < N * C; i++) x[i / C][i % C] = golden_uniform(77, i);
    data.x[0] = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(N, C));
    data.y[0] = mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(N, C));
    mirt_strategy *s = strategy_of(2, 3, 1);
    mirt_model *part = mirt_model_create(s, "part"), *m = mirt_model_create(s, "m");
    mirt_model_output(part, mirt_batch_norm(mirt_input(part, MIRT_SHAPE(C)), &d));
    mirt_tensor *in = mirt_input(m, MIRT_SHAPE(C)), *first = mirt_call(part, in, MIRT_TRAINING_AUTO);
    mirt_model_output(m, mirt_add(first, mirt_call(part, mirt_scale(in, 3, 1), MIRT_TRAINING_AUTO)));
    bool good = mirt_compile(m, &c) == MIRT_OK && mirt_train_on_batch(m, &data, NULL) == MIRT_OK &&
                mirt_get_weight(m, "part/batch_normalization/moving_mean", 1, have[0], C) == MIRT_OK &&
                mirt_get_weight(m, "part/batch_normalization/moving_variance", 1, have[1], C) == MIRT_OK;
    for (int k = 0; k < C; k++) {
        double want[2] = {0, 0};
        for (int r = 0; r < 3; r++) { /* 4 rows each */
            double mean = 0, variance = 0;
            for (int i = 4 * r; i < 4 * r + 4; i++) mean += (double)x[i][k] / 4;
            for (int i = 4 * r; i < 4 * r + 4; i++) variance += ((double)x[i][k] - mean) * ((double)x[i][k] - mean) / 4;
            want[0] += (0.1 * (3 * mean + 1) + 0.9 * 0.1 * mean) / 3;
            want[1] += (0.1 * 9 * variance + 0.9 * (0.1 * variance + 0.9)) / 3;
        }
        for (int i = 0; i < 2; i++) worst = worse(worst, fabs((double)have[i][k] - want[i]));
    }
    ok(good && worst < 1e-6, "called twice: moving statistics of both calls, off by %.1e%s%s", worst, good ? "" : ": ",
       good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
}

int main(void) {
    static const int rows[] = {9, 10, 13};
    draw_images();
    check_goldens();
    check_cases();
    for (int devices = 1; devices <= 4; devices++) {
        check_moving_statistics(devices, 8);
        check_moving_statistics(devices, 7);
    }
    for (int i = 0; i < MIRT__COUNT(rows); i++) {
        check_images(rows[i], false);
        check_images(rows[i], true);
    }
    check_saved(false);
    check_saved(true);
    check_thaw();
    rmdir(work_directory());
    check_called_twice();
    return done_testing();
}
