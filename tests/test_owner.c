/* Tests which thread and process may call, and requests to stop. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"
#include "mirror_util.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static mirt_model *compiled_net(mirt_strategy *s) {
    mirt_compile_desc compile;
    memset(&compile, 0, sizeof compile);
    compile.optimizer = mirt_adam(1e-2f);
    compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    compile.from_logits = true;
    mirt_model *model = image_net(s, 0.2f);
    if (mirt_compile(model, &compile) != MIRT_OK) ok(false, "compiled: %s", mirt_last_error());
    return model;
}

static mirt_dataset *batches(int64_t count, int prefetch) {
    mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, count), images_y(0, count)), 16);
    return prefetch ? mirt_prefetch(data, prefetch) : data;
}

/* >>fork */

static float out[64 * IMAGE_CLASSES];

/* In a child: how many of its calls did not end as they should. */
static int child_of(mirt_strategy *s, mirt_model *model, mirt_function *f, mirt_dataset *data, mirt_dataset *given,
                    mirt_global_batch *batch) {
    int wrong = 0;
    const char *named = "must create its own after fork";
    wrong +=
        mirt_fit(model, data, NULL) != NULL || mirt_last_status() != MIRT_E_STATE || !strstr(mirt_last_error(), named);
    wrong += mirt_predict_arrays(model, images_x(0, 16), out, sizeof out / sizeof *out) != MIRT_E_STATE;
    wrong += mirt_train_step(model, images_x(0, 16), images_y(0, 16), NULL) != MIRT_E_STATE;
    wrong += mirt_evaluate(model, data, NULL) != MIRT_E_STATE;
    wrong += mirt_function_run(f, batch) != MIRT_E_STATE;
    wrong += mirt_dataset_next(given, batch) != MIRT_E_STATE || !strstr(mirt_last_error(), "data set");
    wrong += mirt_save(model, "nowhere/at/all", MIRT_SAVE_ALL) != MIRT_E_STATE;
    wrong += mirt_model_create(s, "x") != NULL || mirt_last_status() != MIRT_E_STATE;
    mirt_function_destroy(f);
    mirt_model_destroy(model);
    mirt_dataset_destroy(given);
    mirt_strategy_destroy(s);
    /* Its own works. */
    mirt_strategy *own = strategy_of(2, 4, 2);
    mirt_model *fresh = own ? compiled_net(own) : NULL;
    mirt_fit_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.no_progress = true;
    /* the parent's data */
    wrong += !fresh || mirt_fit(fresh, data, &desc) != NULL || mirt_last_status() != MIRT_E_STATE;
    mirt_dataset_destroy(data);
    data = batches(64, 2);
    wrong += !fresh || !mirt_fit(fresh, data, &desc);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(own);
    return wrong;
}

static bool step_body(mirt_function *f, void *user) {
    mirt_tensor *y = mirt_call((mirt_model *)user, mirt_function_x(f, 0), MIRT_TRAINING_ON);
    return mirt_minimize(f, mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, mirt_function_y(f, 0), y)) ==
           MIRT_OK;
}

TAP_UNUSED static void test_fork(int devices, int threads) {
    char bits[2][MIRT__SHA256_HEX];
    mirt_global_batch batch;
    int state = -1;
    for (int forks = 0; forks < 2; forks++) {
        mirt_strategy *s = strategy_of(devices, 4, threads);
        mirt_model *model = compiled_net(s);
        mirt_dataset *data = batches(64, 2), *given = mirt_distribute(s, batches(64, 2));
        mirt_fit_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.no_progress = true;
        mirt_function *f = mirt_function_create(model, given, step_body, model);
        mirt_fit(model, data, &desc);
        mirt_dataset_next(given, &batch);
        mirt_function_run(f, &batch);
        if (forks) {
            fflush(NULL);
            const pid_t child = fork();
            if (child == 0) {
                alarm(120); /* it is not to hang */
                _exit(child_of(s, model, f, data, given, &batch));
            }
            if (child < 0 || waitpid(child, &state, 0) != child) state = -1;
            ok(WIFEXITED(state) && WEXITSTATUS(state) == 0,
               "a child of %d devices of %d threads: its calls return MIRT_E_STATE, destroying does nothing, "
               "its own strategy works (%s %d)",
               devices, threads, WIFEXITED(state) ? "wrong:" : "signal",
               WIFEXITED(state) ? WEXITSTATUS(state) : WTERMSIG(state));
        }
        ok(mirt_fit(model, data, &desc) != NULL, "the parent continues: %s", mirt_last_error());
        digest_weights(model, 0, bits[forks]);
        mirt_dataset_destroy(data);
        mirt_dataset_destroy(given);
        mirt_strategy_destroy(s);
    }
    ok(strcmp(bits[0], bits[1]) == 0, "the parent's weights are those without a child");
}

/* >>two threads */

typedef struct meeting {
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    int turn; /* 1: the first thread is in a callback, 2: the second is done */
    mirt_model *model;
    mirt_status predicted, trained, created;
    int recorded; /* of layers, outputs and variables that should not be */
    char said[512];
    int refused;
} meeting;

static void meet(meeting *m, int say, int await) {
    pthread_mutex_lock(&m->mutex);
    m->turn = say;
    pthread_cond_broadcast(&m->moved);
    while (m->turn != await) pthread_cond_wait(&m->moved, &m->mutex);
    pthread_mutex_unlock(&m->mutex);
}

static int wait_for_other(const mirt_event *event, void *user) {
    if (event->batch == 0) meet((meeting *)user, 1, 2);
    return 0;
}

static void *other_thread(void *user) {
    meeting *m = (meeting *)user;
    pthread_mutex_lock(&m->mutex);
    while (m->turn != 1) pthread_cond_wait(&m->moved, &m->mutex);
    pthread_mutex_unlock(&m->mutex);
    m->predicted = mirt_predict_arrays(m->model, images_x(0, 16), out, sizeof out / sizeof *out);
    snprintf(m->said, sizeof m->said, "%s", mirt_last_error());
    m->trained = mirt_train_step(m->model, images_x(0, 16), images_y(0, 16), NULL);
    m->created = mirt_model_create(m->model->strategy, "other") ? MIRT_OK : mirt_last_status();
    mirt_dense_desc dense;
    memset(&dense, 0, sizeof dense);
    dense.units = 2;
    m->recorded += mirt_dense(mirt_output_of(m->model, 0), &dense) != NULL || mirt_last_status() != MIRT_E_STATE ||
                   !strstr(mirt_last_error(), "another thread");
    m->recorded += mirt_variable(m->model, "late", MIRT_SHAPE(2), mirt_zeros(), true) != NULL ||
                   !strstr(mirt_last_error(), "another thread");
    mirt_model_output(m->model, mirt_output_of(m->model, 0));
    m->recorded += !strstr(mirt_last_error(), "mirt_model_outputs: another thread");
    m->recorded += mirt_layer_output(m->model, "dense") != NULL || !strstr(mirt_last_error(), "another thread");
    mirt_model_destroy(m->model);
    mirt_strategy_destroy(m->model->strategy);
    pthread_mutex_lock(&m->mutex);
    m->turn = 2;
    pthread_cond_broadcast(&m->moved);
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

static void count_errors(mirt_log_level level, const char *text, void *user) {
    (void)text;
    *(int *)user += level == MIRT_LOG_ERROR;
}

static void test_threads(int devices, int threads) {
    meeting m;
    pthread_t thread;
    mirt_callback callback;
    mirt_fit_desc desc;
    mirt_strategy *s = strategy_of(devices, devices, threads);
    mirt_dataset *data = batches(64, 0);
    memset(&m, 0, sizeof m);
    memset(&callback, 0, sizeof callback);
    memset(&desc, 0, sizeof desc);
    pthread_mutex_init(&m.mutex, NULL);
    pthread_cond_init(&m.moved, NULL);
    mirt_set_log(s, count_errors, &m.refused);
    m.model = compiled_net(s);
    callback.batch_end = wait_for_other;
    callback.user = &m;
    desc.callbacks[0] = &callback;
    desc.no_progress = true;
    if (pthread_create(&thread, NULL, other_thread, &m) != 0) {
        ok(false, "a thread");
        return;
    }
    mirt_history *history = mirt_fit(m.model, data, &desc);
    pthread_join(thread, NULL);
    ok(history && history->steps == 4, "%d devices: training is not disturbed by another thread: %s", devices,
       mirt_last_error());
    ok(m.predicted == MIRT_E_STATE && strstr(m.said, "mirt_predict_arrays") && strstr(m.said, "mirt_fit"),
       "its call is refused, and both are named: %s", m.said);
    ok(m.trained == MIRT_E_STATE && m.created == MIRT_E_STATE, "so are a step and another model");
    ok(m.recorded == 0, "and a layer, a variable, outputs, an inner output: %d are not", m.recorded);
    ok(m.refused == 2, "and what it wants to destroy stays, which the log says: %d", m.refused);
    ok(mirt_predict_arrays(m.model, images_x(0, 16), out, sizeof out / sizeof *out) == MIRT_OK,
       "afterwards the first thread can call");
    mirt_strategy_destroy(s);
    mirt_dataset_destroy(data);
    pthread_cond_destroy(&m.moved);
    pthread_mutex_destroy(&m.mutex);
}

/* Threads that call as they like: every call works or is refused. */
typedef struct caller {
    mirt_model *model;
    int works, refused, other;
} caller;

static void *call_often(void *arg) {
    caller *c = (caller *)arg;
    float place[4 * IMAGE_CLASSES];
    for (int i = 0; i < (small_tier() ? 60 : 400); i++) {
        const mirt_status status =
            i % 8 ? mirt_predict_arrays(c->model, images_x(i % 8, 4), place, sizeof place / sizeof *place)
                  : mirt_train_step(c->model, images_x(i % 8, 4), images_y(i % 8, 4), NULL);
        c->works += status == MIRT_OK;
        c->refused += status == MIRT_E_STATE;
        c->other += status != MIRT_OK && status != MIRT_E_STATE;
    }
    return NULL;
}

static void test_crowd(void) {
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    caller c[THREADS];
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *model = compiled_net(s);
    int started = 0, works = 0, refused = 0, other = 0;
    memset(c, 0, sizeof c);
    for (; started < THREADS; started++) {
        c[started].model = model;
        if (pthread_create(&thread[started], NULL, call_often, &c[started]) != 0) break;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
        works += c[i].works;
        refused += c[i].refused;
        other += c[i].other;
    }
    ok(started == THREADS && works > 0 && other == 0,
       "four threads on one model: %d calls work, %d are refused, %d fail otherwise", works, refused, other);
    ok(mirt_train_step(model, images_x(0, 16), images_y(0, 16), NULL) == MIRT_OK, "the model still trains: %s",
       mirt_last_error());
    mirt_strategy_destroy(s);
}

/* >>requests to stop */

static mirt_model *to_stop;
static int validations;

static void on_signal(int number) {
    (void)number;
    mirt_request_stop(to_stop);
}

static int raise_at_step(const mirt_event *event, void *user) {
    if (event->batch == *(int *)user) raise(SIGUSR1);
    return 0;
}

static int count_validation(const mirt_event *event, void *user) {
    (void)event, (void)user;
    validations++;
    return 0;
}

static mirt_history *fit_until(mirt_model *model, mirt_dataset *data, int batch, const char *checkpoint, bool resume,
                               int epochs) {
    static mirt_callback callback;
    mirt_model_checkpoint_desc keep;
    mirt_fit_desc desc;
    static int at;
    memset(&callback, 0, sizeof callback);
    memset(&desc, 0, sizeof desc);
    memset(&keep, 0, sizeof keep);
    at = batch;
    callback.batch_end = raise_at_step;
    callback.test_begin = count_validation;
    callback.user = &at;
    keep.path = checkpoint;
    keep.at_end = true;
    keep.every_steps = 1000;
    mirt_callback *writer = mirt_model_checkpoint(&keep);
    desc.callbacks[0] = &callback;
    desc.callbacks[1] = writer;
    desc.epochs = epochs;
    desc.no_progress = true;
    desc.validation = data;
    desc.resume = resume ? checkpoint : NULL;
    validations = 0;
    mirt_history *history = mirt_fit(model, data, &desc);
    mirt_callback_destroy(writer);
    return history;
}

static void test_stop(int devices) {
    char checkpoint[512];
    struct sigaction before, after;
    char bits[2][MIRT__SHA256_HEX];
    snprintf(checkpoint, sizeof checkpoint, "%s/stop_%ld.safetensors", tap_tmpdir(), (long)getpid());
    for (int stops = 0; stops < 2; stops++) {
        mirt_strategy *s = strategy_of(devices, 2, 1);
        mirt_dataset *data = batches(80, 0);
        to_stop = compiled_net(s);
        if (stops) {
            sigaction(SIGINT, NULL, &before);
            mirt_history *history = fit_until(to_stop, data, 2, checkpoint, false, 2);
            sigaction(SIGINT, NULL, &after);
            ok(history && history->stopped && history->steps == 3,
               "a signal handler stops %d devices after the step: %lld", devices,
               history ? (long long)history->steps : -1);
            ok(validations == 0, "without a validation");
            ok(before.sa_handler == after.sa_handler, "the library installs no handler");
            mirt_model_destroy(to_stop);
            to_stop = compiled_net(s);
        }
        mirt_history *history = fit_until(to_stop, data, -1, checkpoint, stops, 2);
        ok(history && !history->stopped && history->epochs == 2 && validations == 2, "%s: %s, %d validations",
           stops ? "resumed" : "in one go", mirt_last_error(), validations);
        digest_weights(to_stop, 0, bits[stops]);
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
        unlink(checkpoint);
    }
    ok(strcmp(bits[0], bits[1]) == 0, "stopped and resumed, the weights are bit-identical");
}

static int stop_training(const mirt_event *event, void *user) { return (void)user, event->epoch == 0; }

static void test_requests(void) {
    mirt_callback callback;
    mirt_fit_desc desc;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *model = compiled_net(s);
    mirt_dataset *data = batches(64, 0);
    memset(&callback, 0, sizeof callback);
    memset(&desc, 0, sizeof desc);
    desc.no_progress = true;
    mirt_request_stop(NULL);
    mirt_request_stop(model);
    mirt_history *history = mirt_fit(model, data, &desc);
    ok(history && history->stopped && history->steps == 0, "a request before a fit ends it before its first step: %s",
       mirt_last_error());
    history = mirt_fit(model, data, &desc);
    ok(history && !history->stopped && history->steps == 4, "and the next one is whole");
    callback.epoch_end = stop_training;
    desc.callbacks[0] = &callback;
    history = mirt_fit(model, data, &desc);
    ok(history && !history->stopped, "a callback that stops after the last epoch has stopped nothing");
    desc.epochs = 3;
    history = mirt_fit(model, data, &desc);
    ok(history && history->stopped && history->steps == 4, "before that it has");
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

int main(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGUSR1, &action, NULL);
    draw_images();
#ifdef __SANITIZE_THREAD__
    skip("fork: the thread sanitizer ends children that start threads");
#else
    test_fork(1, 1);
    test_fork(2, 1);
    test_fork(2, 2);
#endif
    test_threads(1, 1);
    test_threads(2, 2);
    test_crowd();
    test_stop(1);
    test_stop(2);
    test_requests();
    printf("1..%d\n", tap_count);
    return tap_failed != 0;
}
