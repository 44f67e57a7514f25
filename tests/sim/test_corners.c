/* Rare cases of devices that train together, on simulated GPUs. Gradients that leave in several buckets, sums of
   pieces of a batch, fewer rows that take more memory, replicas without rows, statistics that one device reads late,
   many gradients whose norm is asked for, steps that leave some out, saving weights that are in one place, pinned
   memory that is full, free memory after a step, too little of it. One order is enough for these. Four devices
   (MIRT_SIM_DEVICES). */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../../mirrortrain.h"
#include "four_devices.h"
#include "../tap.h"
#include "sim.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

static mirt_data images_of(int64_t first, int64_t count) {
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = images_x(first, count);
    data.y[0] = images_y(first, count);
    return data;
}

static mirt_tensor *pixels_of(mirt_model *m) {
    return mirt_rescale(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1.0f / 255, 0);
}

static mirt_model *compiled(mirt_model *m, mirt_optimizer optimizer) {
    const mirt_compile_desc c = image_compile(optimizer);
    return m && mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* Of the largest number that is wanted. */
static double furthest(const float *have, const float *want, size_t count) {
    double worst = 0, scale = 0;
    for (size_t i = 0; i < count; i++) {
        const double d = fabs((double)have[i] - (double)want[i]);
        worst = d > worst || !(d <= worst) ? d : worst;
        scale = fabs((double)want[i]) > scale ? fabs((double)want[i]) : scale;
    }
    return worst / scale;
}

/* The first weights are those of `want` when NULL is there. */
static void check_same(mirt_model *m, float **want, const char *what, const char *devices, bool good) {
    size_t count = 0;
    float *have = good ? all_weights(m, 0, &count) : NULL;
    good = good && copies_agree(m);
    if (!*want) {
        ok(good && have, "%s on %s%s%s", what, devices, good ? "" : ": ", good ? "" : mirt_last_error());
        *want = have;
        return;
    }
    ok(good && have && memcmp(have, *want, count * sizeof *have) == 0, "%s on %s: the same bits%s%s", what, devices,
       good ? "" : ": ", good ? "" : mirt_last_error());
    free(have);
}

/* >>several buckets */

/* More than a bucket of gradients follows two dropouts: their draws are numbers of the second piece of the step's
   graph. */
static mirt_model *build_wide(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "wide");
    mirt_tensor *x = named_dense(mirt_flatten(pixels_of(m)), "first", 32, MIRT_RELU);
    x = named_dense(mirt_dropout(x, 0.3f), "second", 512, MIRT_RELU);
    x = named_dense(mirt_dropout(x, 0.1f), "third", 520, MIRT_RELU);
    mirt_model_output(m, named_dense(x, "logits", IMAGE_CLASSES, MIRT_LINEAR));
    return compiled(m, mirt_adam(1e-3f));
}

static void check_buckets(void) {
    static const char *const devices[] = {"gpu:0", "gpu:0,gpu:1", "gpu:1,gpu:2,gpu:3"};
    float *want = NULL;
    for (int i = 0; i < MIRT__COUNT(devices); i++) {
        mirt_strategy *s = strategy_on(devices[i], 4);
        mirt_model *m = s ? build_wide(s) : NULL;
        mirt_logs logs;
        bool good = m != NULL;
        for (int step = 0; step < 5 && good; step++) {
            const mirt_data data = images_of(step * 9, 9);
            good = mirt_train_on_batch(m, &data, &logs) == MIRT_OK;
        }
        const int buckets = good ? m->trainer->function[MIRT__TRAIN]->step.num_buckets : 0;
        check_same(m, &want, "five steps of gradients in buckets", devices[i], good && (i == 0 || buckets > 1));
        mirt_strategy_destroy(s);
    }
    free(want);
}

/* >>sums of pieces of a batch */

/* A term that is one number of all rows of a piece; the last batch has fewer pieces than those before it. */
static void check_sums(void) {
    double loss[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_on(k ? "gpu:0,gpu:1" : "cpu", 4);
        mirt_model *m = s ? mirt_model_create(s, "sums") : NULL;
        mirt_tensor *x = m ? named_dense(mirt_flatten(pixels_of(m)), "hidden", 7, MIRT_RELU) : NULL;
        mirt_logs logs;
        bool good = x && mirt_add_loss(m, mirt_reduce_sum(mirt_square(x), 3, false)) == MIRT_OK;
        if (good) mirt_model_output(m, named_dense(x, "logits", IMAGE_CLASSES, MIRT_LINEAR));
        mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, 61), images_y(0, 61)), 25);
        good = good && compiled(m, mirt_sgd(0.1f, 0, false)) && mirt_evaluate(m, data, &logs) == MIRT_OK;
        ok(good, "an evaluation with a sum over rows on %s%s%s", k ? "GPUs" : "cores", good ? "" : ": ",
           good ? "" : mirt_last_error());
        if (good) loss[k] = mirt_logs_value(&logs, "loss");
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
    ok(loss[0] > 0 && fabs(loss[1] - loss[0]) <= 1e-5 * loss[0], "the loss is %.7g, the CPU's %.7g", loss[1], loss[0]);
}

/* Of 140 rows a piece of forty is left, which is cut in other ways than the hundreds before it, and takes more room
   than these. */
static void check_fewer(void) {
    double loss[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_on(k ? "gpu:0" : "cpu", 2);
        mirt_model *m = s ? mirt_model_create(s, "fewer") : NULL;
        const mirt_data more = images_of(0, 200), fewer = images_of(100, 140);
        mirt_conv2d_desc conv;
        mirt_logs logs;
        memset(&conv, 0, sizeof conv);
        conv.filters = 64;
        conv.kernel[0] = conv.kernel[1] = 3;
        mirt_tensor *x = m ? mirt_conv2d(pixels_of(m), &conv) : NULL;
        conv.filters = 16;
        if (x)
            mirt_model_output(m, named_dense(mirt_global_average_pool2d(mirt_conv2d(x, &conv)), "logits", IMAGE_CLASSES,
                                             MIRT_LINEAR));
        const bool good = x && compiled(m, mirt_sgd(0.1f, 0, false)) &&
                          mirt_test_on_batch(m, &more, &logs) == MIRT_OK &&
                          mirt_test_on_batch(m, &fewer, &logs) == MIRT_OK;
        ok(good, "two hundred rows, then less, on %s%s%s", k ? "a GPU" : "cores", good ? "" : ": ",
           good ? "" : mirt_last_error());
        if (good) loss[k] = mirt_logs_value(&logs, "loss");
        mirt_strategy_destroy(s);
    }
    ok(loss[0] > 0 && fabs(loss[1] - loss[0]) <= 1e-5 * loss[0], "the loss is %.7g, the CPU's %.7g", loss[1], loss[0]);
}

static bool record_assigned(mirt_function *f, void *user) {
    mirt_tensor *x = mirt_reshape(mirt_cast(mirt_function_x(f, 0), MIRT_FLOAT32), MIRT_SHAPE(IMAGE)),
                *state = mirt_function_variable(f, "state");
    (void)user;
    return state && mirt_assign(f, state, mirt_reduce_sum(x, 1, false), MIRT_AGGREGATE_SUM) == MIRT_OK;
}

/* Replicas without rows add nothing to a sum, whatever they have left from the batch before. */
static void check_assigned(void) {
    float state[2][IMAGE];
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_on(k ? "gpu:0,gpu:1" : "cpu", 4);
        mirt_model *m = s ? mirt_model_create(s, "assigned") : NULL;
        if (m) mirt_model_output(m, named_dense(mirt_flatten(pixels_of(m)), "logits", IMAGE_CLASSES, MIRT_LINEAR));
        if (m) mirt_variable(m, "state", MIRT_SHAPE(IMAGE), mirt_zeros(), false);
        mirt_dataset *batches = mirt_batch(mirt_arrays(images_x(0, 11), images_y(0, 11)), 10);
        mirt_dataset *data = compiled(m, mirt_sgd(0.1f, 0, false)) ? mirt_distribute(s, batches) : NULL;
        mirt_function *f = data ? mirt_function_create(m, data, record_assigned, NULL) : NULL;
        mirt_global_batch batch;
        bool good = f != NULL;
        for (int i = 0; i < 2; i++)
            good = good && mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK;
        good = good && mirt_get_weight(m, "state", 0, state[k], IMAGE) == MIRT_OK;
        ok(good, "a sum of ten rows is assigned, then of one, on %s%s%s", k ? "GPUs" : "cores", good ? "" : ": ",
           good ? "" : mirt_last_error());
        if (!good) memset(state[k], 0, sizeof state[k]);
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
    int wrong = 0;
    for (int i = 0; i < IMAGE; i++) wrong += state[1][i] != (float)image_pixels[10][i] || state[0][i] != state[1][i];
    ok(wrong == 0, "it is the one row");
}

/* Of two assignments of a variable the later one holds, and only it is made; a gradient that is looked at does not
   leave before. */
static bool record_looked_at(mirt_function *f, void *user) {
    mirt_tensor *x = mirt_scale(mirt_cast(mirt_function_x(f, 0), MIRT_FLOAT32), 1.0f / 255, 0), *gradient = NULL;
    mirt_tensor *w = mirt_function_variable(f, "logits/kernel"), *state = mirt_function_variable(f, "state");
    (void)user;
    mirt_tensor *loss = w ? mirt_reduce_mean(
                                mirt_square(mirt_matmul(mirt_reshape(x, MIRT_SHAPE(IMAGE)), w, false, false)), 0, false)
                          : NULL;
    return loss && mirt_gradients(loss, &w, 1, &gradient) == MIRT_OK &&
           mirt_apply_gradients(f, &w, &gradient, 1) == MIRT_OK &&
           mirt_assign(f, state, mirt_scale(state, 0, 5), MIRT_AGGREGATE_MEAN) == MIRT_OK &&
           mirt_assign(f, state, mirt_scale(state, 0, 7), MIRT_AGGREGATE_MEAN) == MIRT_OK &&
           mirt_function_result(f, "squares", mirt_reduce_sum(mirt_square(gradient), 3, false)) == MIRT_OK;
}

static void check_looked_at(void) {
    float squares[2][2] = {{0, 0}, {0, 0}}, state[IMAGE];
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_on(k ? "gpu:0,gpu:1" : "cpu", 2);
        mirt_model *m = s ? mirt_model_create(s, "looked at") : NULL;
        if (m) mirt_model_output(m, named_dense(mirt_flatten(pixels_of(m)), "logits", IMAGE_CLASSES, MIRT_LINEAR));
        if (m) mirt_variable(m, "state", MIRT_SHAPE(IMAGE), mirt_zeros(), false);
        mirt_dataset *batches = mirt_batch(mirt_arrays(images_x(0, 10), images_y(0, 10)), 10);
        mirt_dataset *data = compiled(m, mirt_sgd(0.1f, 0, false)) ? mirt_distribute(s, batches) : NULL;
        mirt_function *f = data ? mirt_function_create(m, data, record_looked_at, NULL) : NULL;
        mirt_global_batch batch;
        size_t written = 0;
        bool good = f && mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK &&
                    mirt_gather_result(f, "squares", squares[k], 2, &written) == MIRT_OK &&
                    mirt_get_weight(m, "state", 0, state, IMAGE) == MIRT_OK;
        ok(good && state[0] == 7 && f->step.num_states == 1, "two assignments are one on %s%s%s", k ? "GPUs" : "cores",
           good ? "" : ": ", good ? "" : mirt_last_error());
        for (int i = 0; k && good && i < f->step.program.graph.count; i++) {
            const mirt__node *node = f->step.program.graph.node[i];
            for (int j = 0; j < node->num_in; j++)
                good = good && (node->in[j]->space != MIRT__SPACE_GRADIENT || i <= f->step.bucket[f->step.num_buckets - 1].ready);
        }
        if (k) ok(good && f->step.num_buckets == 1, "and a gradient leaves after the last node that reads it");
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
    ok(squares[0][0] > 0 && fabsf(squares[1][0] / squares[0][0] - 1) < 1e-5f &&
           fabsf(squares[1][1] / squares[0][1] - 1) < 1e-5f,
       "each replica has seen its own: %g and %g", (double)squares[1][0], (double)squares[1][1]);
}

/* >>statistics of all replicas */

static int late_device; /* reads what the others left at a cut late; -1: nobody */
void hook_point(int kind, int device, int number) {
    const struct timespec nap = {0, 20000000};
    (void)number;
    if (kind == MIRT__POINT_COLLECTIVE && device == __atomic_load_n(&late_device, __ATOMIC_RELAXED))
        nanosleep(&nap, NULL);
}

static mirt_model *build_synchronized(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "synchronized");
    mirt_batch_norm_desc norm;
    memset(&norm, 0, sizeof norm);
    norm.synchronized = true;
    mirt_tensor *x = mirt_batch_norm(mirt_flatten(pixels_of(m)), &norm);
    x = mirt_batch_norm(named_dense(x, "hidden", 30, MIRT_TANH), &norm);
    mirt_model_output(m, named_dense(x, "logits", IMAGE_CLASSES, MIRT_LINEAR));
    return compiled(m, mirt_sgd(0.05f, 0.9f, false));
}

static void check_late(void) {
    static const int late[] = {-1, 0, 1};
    float *want = NULL;
    for (int i = 0; i < MIRT__COUNT(late); i++) {
        mirt_strategy *s = strategy_on("gpu:0,gpu:1", 4);
        mirt_model *m = s ? build_synchronized(s) : NULL;
        mirt_logs logs;
        bool good = m != NULL;
        __atomic_store_n(&late_device, late[i], __ATOMIC_RELAXED);
        for (int step = 0; step < 3 && good; step++) {
            const mirt_data data = images_of(step * 13, 13);
            good = mirt_train_on_batch(m, &data, &logs) == MIRT_OK;
        }
        __atomic_store_n(&late_device, -1, __ATOMIC_RELAXED);
        check_same(m, &want, i ? "synchronized statistics, one device late," : "synchronized statistics", "gpu:0,gpu:1",
                   good);
        mirt_strategy_destroy(s);
    }
    free(want);
}

/* >>norms */

enum { VARIABLES = 1040 }; /* more than squares are asked for at a time */

static bool record_variables(mirt_function *f, void *user) {
    mirt_tensor *sum = NULL;
    char name[20];
    (void)user;
    for (int i = 0; i < VARIABLES; i++) {
        snprintf(name, sizeof name, "w%d", i);
        mirt_tensor *w = mirt_function_variable(f, name),
                    *square = w ? mirt_scale(mirt_square(w), i < VARIABLES / 2 ? 0.01f : 1, 0) : NULL;
        sum = sum ? mirt_add(sum, square) : square;
    }
    return sum && mirt_minimize(f, mirt_reduce_sum(sum, 1, false)) == MIRT_OK;
}

static void check_many(void) {
    float *weights[2] = {NULL, NULL};
    size_t count = 0;
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_on(k ? "gpu:0" : "cpu", 4);
        mirt_model *m = s ? mirt_model_create(s, "many") : NULL;
        mirt_compile_desc c;
        char name[20];
        memset(&c, 0, sizeof c);
        c.optimizer = mirt_sgd(0.1f, 0, false);
        c.optimizer.global_clipnorm = 0.5f;
        for (int i = 0; m && i < VARIABLES; i++) {
            snprintf(name, sizeof name, "w%d", i);
            mirt_variable(m, name, MIRT_SHAPE(2), mirt_random_uniform(0.5f, 1), true);
        }
        bool good = m && mirt_compile(m, &c) == MIRT_OK;
        mirt_function *f = good ? mirt_function_create(m, NULL, record_variables, NULL) : NULL;
        for (int step = 0; step < 2; step++) good = f && good && mirt_function_run(f, NULL) == MIRT_OK;
        ok(good, "%d weights, clipped by the norm of all, on %s%s%s", VARIABLES, k ? "a GPU" : "cores",
           good ? "" : ": ", good ? "" : mirt_last_error());
        if (good) weights[k] = all_weights(m, 0, &count);
        mirt_strategy_destroy(s);
    }
    if (weights[0] && weights[1])
        ok(furthest(weights[1], weights[0], count) < 1e-6, "are the CPU's, but for %.1e",
           furthest(weights[1], weights[0], count));
    free(weights[0]);
    free(weights[1]);
}

/* A step of the user's that trains the first layer alone. */
static bool record_first(mirt_function *f, void *user) {
    mirt_tensor *x = mirt_scale(mirt_cast(mirt_function_x(f, 0), MIRT_FLOAT32), 1.0f / 255, 0),
                *w = mirt_function_variable(f, "first/kernel");
    (void)user;
    return w && mirt_minimize(
                    f, mirt_reduce_mean(mirt_square(mirt_matmul(mirt_reshape(x, MIRT_SHAPE(IMAGE)), w, false, false)),
                                        0, false)) == MIRT_OK;
}

/* What it leaves out has no gradient, whatever the step before it, of the whole model, has left in memory. */
static void check_left_out(void) {
    float *weights[2] = {NULL, NULL};
    size_t count = 0;
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_on(k ? "gpu:0,gpu:1" : "cpu", 4);
        mirt_model *m = s ? mirt_model_create(s, "parts") : NULL;
        mirt_optimizer o = mirt_sgd(0.1f, 0, false);
        o.global_clipnorm = 0.01f;
        mirt_tensor *x = m ? named_dense(mirt_flatten(pixels_of(m)), "first", 7, MIRT_RELU) : NULL;
        if (x) mirt_model_output(m, named_dense(x, "logits", IMAGE_CLASSES, MIRT_LINEAR));
        mirt_dataset *batches = mirt_batch(mirt_arrays(images_x(0, 40), images_y(0, 40)), 20);
        mirt_dataset *data = compiled(m, o) ? mirt_distribute(s, batches) : NULL;
        mirt_function *f = data ? mirt_function_create(m, data, record_first, NULL) : NULL;
        const mirt_data whole = images_of(50, 20);
        mirt_global_batch batch;
        mirt_logs logs;
        bool good = f != NULL;
        for (int step = 0; step < 2; step++) {
            good = good && mirt_train_on_batch(m, &whole, &logs) == MIRT_OK &&
                   mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK;
        }
        ok(good, "steps of all weights and of some by turns on %s%s%s", k ? "GPUs" : "cores", good ? "" : ": ",
           good ? "" : mirt_last_error());
        if (good) weights[k] = all_weights(m, 0, &count);
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
    if (weights[0] && weights[1])
        ok(furthest(weights[1], weights[0], count) < 1e-6, "are the CPU's, but for %.1e",
           furthest(weights[1], weights[0], count));
    free(weights[0]);
    free(weights[1]);
}

/* >>non-finite values */

/* It appears when steps are already launched as a whole; the step that searches for it is not. */
static void check_found(void) {
    static float x[50][IMAGE];
    mirt_strategy *s = strategy_on("gpu:0,gpu:1", 4);
    mirt_model *m = s ? mirt_model_create(s, "found") : NULL;
    mirt_callback *stops = mirt_terminate_on_nan(MIRT_NAN_STOP);
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.no_progress = true;
    fit.callbacks[0] = stops;
    for (int i = 0; i < 50 * IMAGE; i++) x[i / IMAGE][i % IMAGE] = (float)image_pixels[i / IMAGE][i % IMAGE] / 255;
    x[47][30] = NAN;
    if (m)
        mirt_model_output(m, named_dense(mirt_flatten(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1))), "logits",
                                         IMAGE_CLASSES, MIRT_LINEAR));
    mirt_dataset *data = mirt_batch(
        mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(50, IMAGE_H, IMAGE_W, 1)), images_y(0, 50)), 10);
    const bool good = compiled(m, mirt_sgd(0.1f, 0, false)) && mirt_fit(m, data, &fit);
    ok(good && m->not_finite[0] && mirt_step(m) == 4, "four steps, then a non-finite value is found: \"%s\"%s%s",
       m ? m->not_finite : "", good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    mirt_callback_destroy(stops);
}

/* >>files */

/* With one copy of the weights each device has the optimizer's state of its share alone; the file has all of it. */
static void check_central(void) {
    char path[300], digest[2][MIRT__SHA256_HEX];
    snprintf(path, sizeof path, "%s/central.safetensors", work_directory());
    for (int k = 0; k < 2; k++) {
        mirt_strategy_desc d;
        memset(&d, 0, sizeof d);
        d.devices = k ? "gpu:3,gpu:1,gpu:0" : "gpu:0";
        d.kind = k ? MIRT_CENTRAL_STORAGE : MIRT_MIRRORED;
        d.replicas = 4;
        d.seed = 11;
        d.silent = true;
        mirt_strategy *s = mirt_strategy_create(&d);
        mirt_model *m = s ? image_model(s, mirt_adam(1e-3f), 0.2f) : NULL;
        mirt_logs logs;
        size_t size;
        bool good = m != NULL;
        for (int step = 0; step < 3 && good; step++) {
            const mirt_data data = images_of(step * 10, 10);
            good = mirt_train_on_batch(m, &data, &logs) == MIRT_OK;
        }
        good = good && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK;
        ok(good, "three steps, saved, %s%s%s", k ? "with weights in one place" : "on one GPU", good ? "" : ": ",
           good ? "" : mirt_last_error());
        char *bytes = file_bytes(path, &size);
        digest_of(bytes, size, digest[k]);
        free(bytes);
        mirt_strategy_destroy(s);
    }
    ok(strcmp(digest[0], digest[1]) == 0, "the same file");
    unlink(path);
}

/* >>copies */

static void *let_go_on(void *arg) {
    const struct timespec nap = {0, 50000000};
    nanosleep(&nap, NULL);
    mirt_sim_hang_device(0, 0);
    return arg;
}

/* More is staged than pinned memory holds while the device does nothing for a while: none of it is written over before
   it has left. */
static void check_full(void) {
    enum { BYTES = 6 << 20 };
    mirt_strategy *s = strategy_on("gpu:0", 1);
    const mirt__backend *b = s ? s->backend : NULL;
    mirt__handle *r = b ? s->device[0].handle : NULL;
    char *there = r ? (char *)b->alloc(r, BYTES) : NULL, *from = (char *)malloc(BYTES), *back = (char *)malloc(BYTES);
    for (int early = 0; early < 2; early++) {
        pthread_t thread;
        bool good = there && from && back;
        for (int i = 0; i < BYTES && good; i++) from[i] = (char)(i * 7 + i / 1000 + early);
        mirt_sim_hang_device(0, 1);
        const bool other = pthread_create(&thread, NULL, let_go_on, NULL) == 0;
        if (!other) mirt_sim_hang_device(0, 0);
        if (good) {
            b->copy_in(r, there, from, BYTES, early == 1);
            b->copy_out(r, back, there, BYTES);
            good = b->wait(r) == MIRT_OK && memcmp(back, from, BYTES) == 0;
        }
        if (other) pthread_join(thread, NULL);
        ok(good && other, "%d bytes%s arrive as they were", (int)BYTES, early ? ", early," : "");
    }
    if (there) b->release(r, there);
    free(from);
    free(back);
    mirt_strategy_destroy(s);
}

/* >>memory */

/* What the model itself has taken counts as free: the largest batch is the same after a step as before the first. */
static void check_largest(void) {
    mirt_strategy *s = strategy_on("gpu:0", 4);
    mirt_model *m = s ? build_wide(s) : NULL;
    const mirt_data data = images_of(0, 40);
    mirt_logs logs;
    mirt_sim_set("memory", (double)mirt_sim_device_bytes(0) + 20e6); /* of which 8 are kept free */
    const int64_t before = m ? mirt_largest_batch(m, 0) : 0;
    const bool good = before > 40 && mirt_train_on_batch(m, &data, &logs) == MIRT_OK;
    const int64_t after = good ? mirt_largest_batch(m, 0) : 0;
    ok(good && after > before - before / 20 && after < before + before / 20,
       "the largest batch is %lld, %lld after a step%s%s", (long long)before, (long long)after, good ? "" : ": ",
       good ? "" : mirt_last_error());
    mirt_sim_set("memory", 2147483648.0);
    mirt_strategy_destroy(s);
}

/* >>what is stored if memory suffices */

static char short_of[400]; /* the last warning */

static void keep_warning(mirt_log_level level, const char *line, void *user) {
    (void)user;
    if (level == MIRT_LOG_WARNING) snprintf(short_of, sizeof short_of, "%s", line);
}

/* One step of two convolutions with batch normalization between, which may be stored or not; the weights. */
static float *store_step(const char *store, size_t *count, bool *good) {
    mirt_strategy_desc d;
    mirt_conv2d_desc conv;
    double loss;
    memset(&d, 0, sizeof d);
    memset(&conv, 0, sizeof conv);
    d.devices = "gpu:0";
    d.log = keep_warning;
    conv.filters = 64;
    conv.kernel[0] = 3;
    conv.no_bias = true;
    *short_of = 0;
    setenv("MIRT_CUDA_STORE", store, 1);
    mirt_strategy *s = mirt_strategy_create(&d);
    unsetenv("MIRT_CUDA_STORE");
    mirt_model *m = s ? mirt_model_create(s, "stored") : NULL;
    mirt_tensor *x = m ? pixels_of(m) : NULL;
    for (int i = 0; i < 3; i++) x = mirt_activation(mirt_batch_norm(mirt_conv2d(x, &conv), NULL), MIRT_RELU);
    if (m) mirt_model_output(m, mirt_global_average_pool2d(x));
    m = compiled(m, mirt_sgd(0.1f, 0.9f, false));
    *good = m && mirt_train_step(m, images_x(0, 60), images_y(0, 60), &loss) == MIRT_OK;
    float *weights = *good ? all_weights(m, 0, count) : NULL;
    mirt_strategy_destroy(s);
    return weights;
}

static void check_stored(void) {
    size_t count = 0, more = 0, saved = 0;
    bool good, fits, saves;
    float *none = store_step("none", &count, &good);
    const size_t without = mirt_sim_device_peak(0);
    float *all = store_step("all", &more, &fits);
    const size_t with = mirt_sim_device_peak(0);
    ok(good && fits && !*short_of && with > without && more == count && furthest(all, none, count) < 1e-4,
       "stored tensors take %zu bytes, not %zu, and change rounding alone%s%s", with, without, good ? "" : ": ",
       good ? "" : mirt_last_error());
    mirt_sim_set("memory", (double)(with / 2 + without / 2));
    float *less = store_step("all", &saved, &saves);
    ok(saves && strstr(short_of, "computes more tensors again in place of storing them") && saved == count &&
           memcmp(less, none, count * sizeof *none) == 0,
       "with too little memory they are not stored: %s", saves ? short_of : mirt_last_error());
    mirt_sim_set("memory", 2147483648.0);
    free(none);
    free(all);
    free(less);
}

int main(void) {
    if (!four_devices()) return done_testing();
    late_device = -1;
    draw_images();
    check_buckets();
    check_sums();
    check_fewer();
    check_assigned();
    check_looked_at();
    check_late();
    check_many();
    check_left_out();
    check_found();
    check_central();
    check_full();
    check_largest();
    check_stored();
    return done_testing();
}
