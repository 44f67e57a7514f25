/* Callbacks: who is told what and when, what failing ones do, and the ready-made ones. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/callbacks.h"
#include "mirror_util.h"
#include "tap.h"

/* >>the order of calls */

typedef struct recorder {
    char text[256], fail, stop;
    int destroyed;
    double seen; /* val_loss at test_end */
} recorder;

static int record(recorder *r, char letter) {
    size_t length = strlen(r->text);
    if (length + 1 < sizeof r->text) r->text[length] = letter;
    if (letter == r->fail) {
        mirt__fail(MIRT_E_IO, "the disk is full");
        return MIRT_CALLBACK_FAILED;
    }
    return letter == r->stop;
}
static int on_train_begin(const mirt_event *e, void *user) {
    (void)e;
    return record((recorder *)user, 'T');
}
static int on_train_end(const mirt_event *e, void *user) {
    (void)e;
    mirt_fit(NULL, NULL, NULL); /* another error must not take the place of the first */
    return record((recorder *)user, 't');
}
static int on_epoch_begin(const mirt_event *e, void *user) {
    (void)e;
    return record((recorder *)user, 'E');
}
static int on_epoch_end(const mirt_event *e, void *user) {
    (void)e;
    return record((recorder *)user, 'e');
}
static int on_batch_end(const mirt_event *e, void *user) {
    (void)e;
    return record((recorder *)user, 'b');
}
static int on_test_begin(const mirt_event *e, void *user) {
    (void)e;
    return record((recorder *)user, 'V');
}
static int on_test_end(const mirt_event *e, void *user) {
    ((recorder *)user)->seen = mirt_logs_value(e->logs, "val_loss");
    return record((recorder *)user, 'v');
}
static void on_destroy(void *user) { ((recorder *)user)->destroyed++; }

static mirt_callback recording(recorder *r, char stop, char fail) {
    mirt_callback c;
    memset(r, 0, sizeof *r);
    memset(&c, 0, sizeof c);
    r->stop = stop;
    r->fail = fail;
    c.user = r;
    c.train_begin = on_train_begin;
    c.train_end = on_train_end;
    c.epoch_begin = on_epoch_begin;
    c.epoch_end = on_epoch_end;
    c.batch_end = on_batch_end;
    c.test_begin = on_test_begin;
    c.test_end = on_test_end;
    c.destroy = on_destroy;
    return c;
}

static mirt_history *fit_with(mirt_model *m, int epochs, const mirt_callback *a, const mirt_callback *b,
                              bool validate) {
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.epochs = epochs;
    fit.batch = 10;
    fit.no_progress = true;
    fit.callbacks[0] = a;
    fit.callbacks[1] = b;
    fit.validation = validate ? mirt_arrays(images_x(20, 10), images_y(20, 10)) : NULL;
    mirt_history *h = mirt_fit_arrays(m, images_x(0, 20), images_y(0, 20), &fit);
    mirt_dataset_destroy(fit.validation);
    return h;
}

static void check_order(void) {
    recorder r, second;
    mirt_callback c = recording(&r, 0, 0), d = recording(&second, 0, 0);
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    const mirt_history *h = fit_with(m, 2, &c, &d, true);
    ok(h && strcmp(r.text, "TEbbVveEbbVvet") == 0 && strcmp(second.text, r.text) == 0, "with validation: %s", r.text);
    ok(h && r.seen == mirt_history_last(h, "val_loss"), "test_end sees the values of validation");
    mirt_callback_destroy(&c);
    mirt_callback_destroy(NULL);
    ok(r.destroyed == 1 && second.destroyed == 0, "destroying calls the callback's own function");
    mirt_strategy_destroy(s);
}

static void check_failing(char at, const char *want, const char *want_second) {
    recorder r, second;
    mirt_callback c = recording(&r, 0, at), d = recording(&second, 0, 0);
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    const mirt_history *h = fit_with(m, 2, &c, &d, true);
    ok(!h && mirt_last_status() == MIRT_E_IO && strcmp(mirt_last_error(), "the disk is full") == 0,
       "one that fails at %c fails the fit: \"%s\"", at, mirt_last_error());
    ok(strcmp(r.text, want) == 0 && strcmp(second.text, want_second) == 0, "it is told %s, the one after it %s", r.text,
       second.text);
    r.fail = 0;
    ok(fit_with(m, 1, &c, NULL, true) != NULL, "and the model can be trained again");
    mirt_strategy_destroy(s);
}

/* Fails without a word. */
static int on_silent(const mirt_event *e, void *user) {
    (void)e;
    (void)user;
    return MIRT_CALLBACK_FAILED;
}

static void check_silent(bool watched) {
    mirt_strategy_desc desc;
    mirt_callback c;
    mirt__readymade *ready = mirt__ready_new(sizeof *ready, "silent", NULL, 0);
    memset(&desc, 0, sizeof desc);
    memset(&c, 0, sizeof c);
    desc.replicas = 2;
    desc.silent = true;
    desc.timeout_seconds = watched ? 1000 : 0; /* nothing hangs */
    c.name = "mine";
    c.batch_end = on_silent;
    ready->base.epoch_end = on_silent;
    mirt_strategy *s = mirt_strategy_create(&desc);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    for (int k = 0; k < 2; k++) {
        mirt__fail(MIRT_E_IO, "long ago");
        const bool failed = !fit_with(m, 1, k ? &ready->base : &c, NULL, false);
        ok(failed && mirt_last_status() == MIRT_E_CALLBACK &&
               strstr(mirt_last_error(), k ? "the callback silent failed" : "the callback mine failed"),
           "one that fails without an error, after another one%s: \"%s\"", watched ? ", watched" : "",
           mirt_last_error());
    }
    mirt_callback_destroy(&ready->base);
    mirt_strategy_destroy(s);
}

/* >>monitors */

static void check_names(void) {
    mirt_early_stopping_desc desc;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    memset(&desc, 0, sizeof desc);
    desc.monitor = "val_acuracy";
    mirt_callback *c = mirt_early_stopping(&desc);
    ok(c && !fit_with(m, 2, c, NULL, true) && strstr(mirt_last_error(), "\"val_acuracy\"") &&
           strstr(mirt_last_error(), "\"val_accuracy\""),
       "an unknown log: \"%s\"", mirt_last_error());
    ok(mirt_step(m) == 0, "before anything is trained");
    mirt_callback_destroy(c);
    c = mirt_early_stopping(NULL);
    ok(c && !fit_with(m, 2, c, NULL, false) && strstr(mirt_last_error(), "\"val_loss\"") &&
           strstr(mirt_last_error(), "\"loss\""),
       "validation that is not there: \"%s\"", mirt_last_error());
    mirt_callback_destroy(c);
    desc.patience = -1;
    ok(!mirt_early_stopping(&desc) && strstr(mirt_last_error(), "patience -1"), "bad numbers: \"%s\"",
       mirt_last_error());
    mirt_strategy_destroy(s);
}

/* >>beside Keras: the callbacks are told of drawn logs */

static mirt_logs told;
static mirt_event event_of(mirt_model *m, mirt_dataset *validation) {
    mirt_event e;
    memset(&e, 0, sizeof e);
    e.model = m;
    e.epochs = GOLDEN_EPOCHS;
    e.logs = &told;
    e.validation = validation;
    told.count = 1;
    told.name[0] = "val_loss";
    return e;
}

/* The model's only weight tells the epoch. */
static void set_weight(mirt_model *m, float value) {
    mirt_weight_info w;
    mirt_weight(m, 1, &w);
    float values[64] = {value};
    mirt_set_weight(m, w.name, values, (size_t)w.count);
}

static float get_weight(mirt_model *m) {
    mirt_weight_info w;
    float values[64];
    mirt_weight(m, 1, &w);
    return mirt_get_weight(m, w.name, 1, values, (size_t)w.count) == MIRT_OK ? values[0] : -1;
}

/* Replaces *c by another one with its state, as when a fit is resumed. */
static void go_on_with(mirt_callback **c, mirt_callback *other, const mirt_event *e) {
    char state[1024];
    if ((*c)->save_state(state, sizeof state, (*c)->user) >= sizeof state || other->load_state(state, other->user))
        printf("# the state cannot be loaded: %s\n", mirt_last_error());
    other->train_begin(e, other->user);
    mirt_callback_destroy(*c);
    *c = other;
}

/* In odd cases the callback is interrupted after every epoch; the weights it keeps are not text. */
static void check_early_stopping(mirt_model *m, mirt_event *e) {
    int wrong = 0;
    for (int i = 0; i < 2 * MIRT__COUNT(golden_stops); i++) {
        const golden_early *g = &golden_stops[i / 2];
        mirt_early_stopping_desc d;
        memset(&d, 0, sizeof d);
        d.mode = g->mode;
        d.patience = g->patience;
        d.min_delta = g->min_delta;
        d.has_baseline = g->has_baseline;
        d.baseline = g->baseline;
        d.start_from_epoch = g->start;
        d.restore_best_weights = true;
        mirt_callback *c = mirt_early_stopping(&d);
        int last = 0, stop = c->train_begin(e, c->user);
        for (int epoch = 0; epoch < GOLDEN_EPOCHS && !stop; epoch++) {
            set_weight(m, (float)epoch);
            e->epoch = last = epoch;
            told.value[0] = golden_logs[g->seed - 1][epoch];
            stop = c->epoch_end(e, c->user);
            if (i % 2 && !stop) go_on_with(&c, mirt_early_stopping(&d), e);
        }
        c->train_end(e, c->user);
        if ((last != g->last || (i % 2 == 0 && get_weight(m) != (float)g->restored)) && !wrong++)
            printf("# %d: epoch %d and not %d, weights of %g and not of %d\n", i, last, g->last, (double)get_weight(m),
                   g->restored);
        mirt_callback_destroy(c);
    }
    ok(!wrong,
       "early stopping ends in Keras's epoch with the weights of Keras's best one, also interrupted after each, in %d "
       "cases",
       MIRT__COUNT(golden_stops));
}

static void check_plateau(mirt_model *m, mirt_event *e) {
    int wrong = 0;
    for (int i = 0; i < 2 * MIRT__COUNT(golden_rates); i++) {
        const golden_plateau *g = &golden_rates[i / 2];
        mirt_reduce_lr_desc d;
        memset(&d, 0, sizeof d);
        d.mode = g->mode;
        d.patience = g->patience;
        d.factor = g->factor;
        d.cooldown = g->cooldown;
        d.min_rate = g->least;
        mirt_callback *c = mirt_reduce_lr_on_plateau(&d);
        mirt_set_learning_rate(m, 0.01);
        c->train_begin(e, c->user);
        for (int epoch = 0; epoch < GOLDEN_EPOCHS; epoch++) {
            e->epoch = epoch;
            told.value[0] = golden_logs[g->seed - 1][epoch];
            c->epoch_end(e, c->user);
            double rate = mirt_get_learning_rate(m);
            if (fabs(rate - (double)g->rate[epoch]) > 1e-7 * rate && !wrong++)
                printf("# %d, epoch %d: %.9g, not %.9g\n", i, epoch, rate, (double)g->rate[epoch]);
            if (i % 2) go_on_with(&c, mirt_reduce_lr_on_plateau(&d), e);
        }
        mirt_callback_destroy(c);
    }
    ok(!wrong, "learning rates on plateaus are Keras's in every epoch of %d cases, also interrupted after each",
       MIRT__COUNT(golden_rates));
}

static void check_keras(void) {
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    mirt_dataset *validation = mirt_arrays(images_x(20, 10), images_y(20, 10));
    mirt_event e = event_of(m, validation);
    check_early_stopping(m, &e);
    check_plateau(m, &e);
    mirt_dataset_destroy(validation);
    mirt_strategy_destroy(s);
}

static float by_epoch(int epoch, float rate, void *user) {
    *(float *)user = rate;
    return epoch < 2 ? 0.5f : rate / 4;
}

static void check_scheduler(void) {
    float seen = 0;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = image_model(s, mirt_sgd(0.125f, 0, false), 0);
    mirt_callback *c = mirt_learning_rate_scheduler(by_epoch, &seen);
    const mirt_history *h = fit_with(m, 4, c, NULL, false);
    ok(h && mirt_logs_value(&h->epoch[1], "learning_rate") == 0.5 &&
           mirt_logs_value(&h->epoch[3], "learning_rate") == 0.03125 && (double)seen == 0.125,
       "a function of the epoch and the rate in force gives the learning rates");
    mirt_callback_destroy(c);
    ok(!mirt_learning_rate_scheduler(NULL, NULL), "no function: \"%s\"", mirt_last_error());
    mirt_reduce_lr_desc d;
    memset(&d, 0, sizeof d);
    d.factor = 1;
    ok(!mirt_reduce_lr_on_plateau(&d) && strstr(mirt_last_error(), "factor is 1"), "a factor of 1: \"%s\"",
       mirt_last_error());
    mirt_strategy_destroy(s);
}

/* >>directions */

static mirt_tensor *record_first(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)labels;
    (void)user;
    return mirt_reduce_mean(output, 1u << 1, false);
}

static mirt_mode mode_of(const mirt_callback *callback) {
    return ((const mirt__watcher *)(const void *)mirt__ready_of(callback))->mode;
}

/* A fit that stops early by a log: whether it begins, and which direction it takes. */
static void check_direction(mirt_model *m, const char *monitor, mirt_mode asked, mirt_mode want) {
    mirt_early_stopping_desc d;
    memset(&d, 0, sizeof d);
    d.monitor = monitor;
    d.mode = asked;
    mirt_callback *c = mirt_early_stopping(&d);
    const mirt_history *h = fit_with(m, 1, c, NULL, true);
    if (want == MIRT_MODE_AUTO)
        ok(!h && mirt_last_status() == MIRT_E_INVALID && strstr(mirt_last_error(), monitor), "%s: \"%s\"", monitor,
           mirt_last_error());
    else
        ok(h && mode_of(c) == want, "%s%s: %s values are better", monitor, asked ? ", as asked" : "",
           want == MIRT_MODE_MIN ? "small" : "large");
    mirt_callback_destroy(c);
}

/* Names that say the opposite of what is declared. */
static void check_directions(void) {
    static const mirt_custom_metric up = {"error_found", record_first, NULL, NULL, MIRT_MODE_MAX},
                                    down = {"accuracy_lost", record_first, NULL, NULL, MIRT_MODE_MIN},
                                    unknown = {"my_accuracy", record_first, NULL, NULL, MIRT_MODE_AUTO},
                                    wrong = {"wrong", record_first, NULL, NULL, (mirt_mode)3};
    mirt_compile_desc c;
    char path[300], text[4096] = "";
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_model_create(s, "directions");
    memset(&c, 0, sizeof c);
    mirt_dense_desc dense;
    memset(&dense, 0, sizeof dense);
    dense.units = IMAGE_CLASSES;
    mirt_model_output(m, mirt_dense(mirt_flatten(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1))), &dense));
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    c.metrics[0] = MIRT_SPARSE_TOP_K_CATEGORICAL_ACCURACY;
    c.metric_options[0].k = 2;
    c.metric_options[0].name = "loss_of_none";
    c.metrics[1] = MIRT_AUC;
    c.custom_metrics[0] = &up;
    c.custom_metrics[1] = &down;
    c.custom_metrics[2] = &unknown;
    c.custom_metrics[3] = &wrong;
    ok(mirt_compile(m, &c) == MIRT_E_INVALID && strstr(mirt_last_error(), "invalid direction"), "refused: \"%s\"",
       mirt_last_error());
    c.custom_metrics[3] = NULL;
    ok(mirt_compile(m, &c) == MIRT_OK, "metrics of all directions");
    check_direction(m, "loss", MIRT_MODE_AUTO, MIRT_MODE_MIN);
    check_direction(m, "val_loss", MIRT_MODE_AUTO, MIRT_MODE_MIN);
    check_direction(m, "loss_of_none", MIRT_MODE_AUTO, MIRT_MODE_MAX);
    check_direction(m, "val_auc", MIRT_MODE_AUTO, MIRT_MODE_MAX);
    check_direction(m, "error_found", MIRT_MODE_AUTO, MIRT_MODE_MAX);
    check_direction(m, "val_error_found", MIRT_MODE_AUTO, MIRT_MODE_MAX);
    check_direction(m, "val_accuracy_lost", MIRT_MODE_AUTO, MIRT_MODE_MIN);
    check_direction(m, "val_accuracy_lost", MIRT_MODE_MAX, MIRT_MODE_MAX);
    check_direction(m, "my_accuracy", MIRT_MODE_AUTO, MIRT_MODE_AUTO);
    check_direction(m, "my_accuracy", MIRT_MODE_MIN, MIRT_MODE_MIN);
    check_direction(m, "learning_rate", MIRT_MODE_AUTO, MIRT_MODE_AUTO);

    mirt_json_logger_desc log;
    memset(&log, 0, sizeof log);
    snprintf(path, sizeof path, "%s/directions.jsonl", work_directory());
    log.path = path;
    mirt_callback *logger = mirt_json_logger(&log);
    ok(fit_with(m, 1, logger, NULL, false) != NULL, "a fit with a log");
    mirt_callback_destroy(logger);
    FILE *file = fopen(path, "rb");
    if (file) {
        const size_t got = fread(text, 1, sizeof text - 1, file);
        text[got] = 0;
        fclose(file);
    }
    const char *logs = strstr(text, "\"logs\":");
    ok(logs && strstr(logs, "\"loss\":{\"direction\":\"min\"},"
                            "\"loss_of_none\":{\"direction\":\"max\",\"share\":true},"
                            "\"auc\":{\"direction\":\"max\",\"share\":true},"
                            "\"error_found\":{\"direction\":\"max\"},"
                            "\"accuracy_lost\":{\"direction\":\"min\"},"
                            "\"my_accuracy\":{}}"),
       "the log says the direction of each: %.300s", logs ? logs : "");
    mirt_strategy_destroy(s);
}

/* >>requests to stop */

static int request_at_test(const mirt_event *event, void *user) {
    (void)user;
    mirt_request_stop(event->model);
    return 0;
}

static int request_at_epoch(const mirt_event *event, void *user) {
    (void)user;
    if (event->epoch == 1) mirt_request_stop(event->model);
    return 0;
}

/* Wherever a request comes between two steps, the last checkpoint is that of the last step. */
static void check_request(bool validation) {
    char path[300], directory[300], name[400], newest[400] = "";
    mirt_model_checkpoint_desc d;
    mirt_callback c;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    memset(&d, 0, sizeof d);
    memset(&c, 0, sizeof c);
    if (validation) c.test_begin = request_at_test;
    else c.epoch_begin = request_at_epoch;
    snprintf(directory, sizeof directory, "%s/request%d", work_directory(), validation);
    snprintf(path, sizeof path, "%.250s/{step}.safetensors", directory);
    d.path = path;
    d.every_steps = 1000;
    d.at_end = true;
    mirt_callback *checkpoint = mirt_model_checkpoint(&d);
    const mirt_history *h = fit_with(m, 4, &c, checkpoint, true);
    snprintf(name, sizeof name, "%s/%lld.safetensors", directory, (long long)mirt_step(m));
    ok(h && h->stopped && mirt_step(m) > 0 && mirt_step(m) < 8 &&
           mirt_latest_checkpoint(NULL, directory, newest, sizeof newest) == MIRT_OK && strcmp(newest, name) == 0,
       "a request %s: %lld steps, all in the checkpoint %s",
       validation ? "during validation" : "at the beginning of an epoch", (long long)mirt_step(m), newest);
    mirt_callback_destroy(checkpoint);
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_images();
    const mirt_model_checkpoint_desc other = {.path = "ckpt_{epoch}.weights.h5"};
    ok(!mirt_model_checkpoint(&other) && strstr(mirt_last_error(), "safetensors") &&
           strstr(mirt_last_error(), "tools/convert_weights.py"),
       "a checkpoint of another format: \"%s\"", mirt_last_error());
    ok(mirt_save_check("a.keras/b") == MIRT_OK && mirt_save_check("h5") == MIRT_OK &&
           mirt_save_check("a.H5") == MIRT_E_INVALID && mirt_save_check(NULL) == MIRT_E_INVALID,
       "names are judged by their ends");
    check_request(true);
    check_request(false);
    check_directions();
    check_order();
    check_failing('T', "Tt", "");
    check_failing('E', "TEt", "TEt");
    check_failing('b', "TEbt", "TEbt");
    check_failing('V', "TEbbVt", "TEbbVt");
    check_failing('e', "TEbbVvet", "TEbbVvet");
    check_silent(false);
    check_silent(true);
    check_names();
    check_keras();
    check_scheduler();
    return done_testing();
}
