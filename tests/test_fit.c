/* mirt_fit: what it calls when, what it reports, when it stops, how learning rates change. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

static double log_value(const mirt_logs *logs, const char *name) {
    for (int i = 0; i < logs->count; i++) {
        if (strcmp(logs->name[i], name) == 0) return logs->value[i];
    }
    return NAN;
}

static mirt_fit_desc quiet_fit(int epochs, int64_t batch) {
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.epochs = epochs;
    fit.batch = batch;
    fit.no_progress = true;
    return fit;
}

/* >>callbacks */

/* A letter per call: T t for training, E e epochs, B b batches; capitals begin. `stop` ends training
   at that letter when `countdown` of them have passed. */
typedef struct recorder {
    char text[256];
    int length;
    char stop;
    int countdown;
    int64_t step[64], batch[64];
    int epoch[64];
    double loss[64], rate[64];
    bool values_good;
} recorder;

static int record(recorder *r, const mirt_event *e, char letter) {
    if (r->length < 63) {
        r->step[r->length] = e->step;
        r->batch[r->length] = e->batch;
        r->epoch[r->length] = e->epoch;
        r->loss[r->length] = log_value(e->logs, "loss");
        r->rate[r->length] = log_value(e->logs, "learning_rate");
    }
    if (r->length < 255) r->text[r->length++] = letter;
    r->values_good = r->values_good && e->model && e->epochs >= 1 && e->batches >= 1 && e->logs && e->seconds >= 0;
    return letter == r->stop && r->countdown-- == 0;
}
static int on_train_begin(const mirt_event *e, void *user) { return record((recorder *)user, e, 'T'); }
static int on_train_end(const mirt_event *e, void *user) { return record((recorder *)user, e, 't'); }
static int on_epoch_begin(const mirt_event *e, void *user) { return record((recorder *)user, e, 'E'); }
static int on_epoch_end(const mirt_event *e, void *user) { return record((recorder *)user, e, 'e'); }
static int on_batch_begin(const mirt_event *e, void *user) { return record((recorder *)user, e, 'B'); }
static int on_batch_end(const mirt_event *e, void *user) { return record((recorder *)user, e, 'b'); }

static mirt_callback recording(recorder *r, char stop, int countdown) {
    mirt_callback c;
    memset(r, 0, sizeof *r);
    memset(&c, 0, sizeof c);
    r->stop = stop;
    r->countdown = countdown;
    r->values_good = true;
    c.user = r;
    c.train_begin = on_train_begin;
    c.train_end = on_train_end;
    c.epoch_begin = on_epoch_begin;
    c.epoch_end = on_epoch_end;
    c.batch_begin = on_batch_begin;
    c.batch_end = on_batch_end;
    return c;
}

/* Two epochs of batches of 8, 8, 4; with a second callback after the first. */
static const mirt_history *fit_recorded(mirt_model *m, recorder *r, char stop, int countdown, int64_t max_steps) {
    static recorder second;
    mirt_callback c = recording(r, stop, countdown), d = recording(&second, 0, 0);
    mirt_fit_desc fit = quiet_fit(2, 8);
    fit.callbacks[0] = &c;
    fit.callbacks[1] = &d;
    fit.max_steps = max_steps;
    const mirt_history *h = mirt_fit_arrays(m, images_x(0, 20), images_y(0, 20), &fit);
    r->values_good = r->values_good && strcmp(second.text, r->text) == 0;
    return h;
}

static void check_order(void) {
    recorder r;
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.2f);
    const mirt_history *h = fit_recorded(m, &r, 0, 0, 0);
    ok(h && strcmp(r.text, "TEBbBbBbeEBbBbBbet") == 0, "two epochs of three batches call %s", r.text);
    ok(r.values_good, "every call sees the model and its place, and all callbacks are called");
    ok(r.batch[2] == 0 && r.batch[3] == 0 && r.batch[4] == 1 && r.batch[7] == 2 && r.epoch[7] == 0 &&
           r.epoch[10] == 1 && r.batch[10] == 0,
       "batches and epochs count from 0");
    ok(r.step[0] == 0 && r.step[2] == 0 && r.step[3] == 0 && r.step[4] == 1 && r.step[7] == 2 && r.step[10] == 3 &&
           r.step[15] == 5,
       "steps count from 0 through the epochs: a batch's begin and end see the same number");
    ok(!isfinite(r.loss[2]) && isfinite(r.loss[3]) && isfinite(r.loss[8]) && r.loss[8] == r.loss[7],
       "logs: nothing yet, a batch's, the epoch's");
    ok(h->epochs == 2 && h->steps == 6 && h->images_per_second > 0 && h->seconds > 0 &&
           log_value(&h->epoch[0], "loss") == r.loss[8],
       "history: 2 epochs, 6 steps, the losses that the callbacks saw");
    ok(fabs(h->images_per_second * h->seconds - 40) < 1e-6, "40 images a fit");
    ok(mirt_step(m) == 6 && isfinite(mirt_history_last(h, "accuracy")) && isnan(mirt_history_last(h, "val_loss")) &&
           isnan(mirt_history_last(NULL, "loss")),
       "the last values by name, NAN where there is none");
    h = fit_recorded(m, &r, 0, 0, 0);
    ok(h && r.step[2] == 6 && h->steps == 6 && mirt_step(m) == 12, "a second fit continues counting");
    mirt_strategy_destroy(s);
}

/* A rate of 0 keeps the weights, so that equal losses are equal batches. */
static void check_epochs_differ(void) {
    recorder r;
    mirt_strategy *s = strategy_of(1, 2, 1);
    mirt_model *m = image_model(s, mirt_sgd(0, 0, false), 0);
    bool good = fit_recorded(m, &r, 0, 0, 0) != NULL;
    double first = r.loss[3], second = r.loss[11];
    ok(good && first != second && fabs(r.loss[8] - r.loss[16]) < 1e-9,
       "the second epoch has the same samples in another order");
    good = fit_recorded(m, &r, 0, 0, 0) != NULL;
    ok(good && r.loss[3] != first && r.loss[3] != second, "and so has the first of the next fit");
    mirt_strategy_destroy(s);
}

static void check_default_batch(void) {
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    mirt_fit_desc fit = quiet_fit(0, 0);
    const mirt_history *h = mirt_fit_arrays(m, images_x(0, 65), images_y(0, 65), &fit);
    ok(h && h->epochs == 1 && h->steps == 3, "by default one epoch of batches of 32");
    mirt_strategy_destroy(s);
}

static void check_stop(char stop, int countdown, const char *want, int epochs, int64_t steps) {
    recorder r;
    mirt_strategy *s = strategy_of(2, 3, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.2f);
    const mirt_history *h = fit_recorded(m, &r, stop, countdown, 0);
    ok(h && strcmp(r.text, want) == 0 && h->epochs == epochs && h->steps == steps && mirt_step(m) == steps,
       "stopped at %c number %d: %s, %d epochs, %d steps in the history", stop, countdown + 1, r.text,
       h ? h->epochs : -1, h ? (int)h->steps : -1);
    mirt_strategy_destroy(s);
}

static void check_max_steps(void) {
    recorder r;
    mirt_strategy *s = strategy_of(1, 2, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.2f);
    const mirt_history *h = fit_recorded(m, &r, 0, 0, 4);
    ok(h && strcmp(r.text, "TEBbBbBbeEBbet") == 0 && h->steps == 4 && h->epochs == 2, "max_steps 4: %s", r.text);
    h = fit_recorded(m, &r, 0, 0, 3);
    ok(h && strcmp(r.text, "TEBbBbBbet") == 0 && h->steps == 3 && h->epochs == 1,
       "max_steps at the end of an epoch: %s", r.text);
    mirt_strategy_destroy(s);
}

/* >>learning rates */

static float halving(int64_t step, void *user) {
    float rate = *(const float *)user;
    for (int64_t i = 0; i < step; i++) rate /= 2;
    return rate;
}
static float tenfold(int epoch, float rate, void *user) {
    ((float *)user)[epoch] = rate;
    return rate / 10;
}

/* One weight, gradient 1 in every step: the weight goes down by the learning rates. */
static mirt_model *slope(mirt_strategy *s, mirt_optimizer optimizer) {
    mirt_dense_desc d;
    mirt_compile_desc c;
    memset(&d, 0, sizeof d);
    memset(&c, 0, sizeof c);
    d.units = 1;
    d.no_bias = true;
    d.kernel_initializer = mirt_zeros();
    c.optimizer = optimizer;
    c.loss = MIRT_BINARY_CROSSENTROPY; /* from logits of x w with label 0 at w = 0 the gradient is x / 2 */
    c.from_logits = true;
    mirt_model *m = mirt_model_create(s, "slope");
    mirt_model_output(m, mirt_dense(mirt_input(m, MIRT_SHAPE(1)), &d));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static float slope_step(mirt_model *m, mirt_status *status) {
    const float x = 2, y = 0, zero = 0;
    float w = 0;
    *status = mirt_set_weight(m, "dense/kernel", &zero, 1);
    if (*status == MIRT_OK)
        *status = mirt_train_step(m, mirt_make_array(&x, MIRT_FLOAT32, MIRT_SHAPE(1, 1)),
                                  mirt_make_array(&y, MIRT_FLOAT32, MIRT_SHAPE(1)), NULL);
    mirt_get_weight(m, "dense/kernel", 0, &w, 1);
    return -w;
}

static void check_rates(void) {
    float start = 0.5f, seen[3] = {0, 0, 0};
    mirt_status status;
    recorder r;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_optimizer o = mirt_sgd(7, 0, false);
    o.schedule = halving;
    o.schedule_user = &start;
    mirt_model *m = slope(s, o);
    bool good = m != NULL;
    for (int i = 0; good && i < 4; i++) {
        float rate = 0.5f / (float)(1 << i);
        good = mirt_get_learning_rate(m) == (double)rate && slope_step(m, &status) == rate && status == MIRT_OK;
    }
    ok(good, "a schedule gives every step its rate");
    ok(mirt_set_learning_rate(m, 0.25) == MIRT_OK && mirt_get_learning_rate(m) == 0.25 &&
           slope_step(m, &status) == 0.25f,
       "a rate that is set overrides the schedule");
    ok(mirt_set_learning_rate(m, NAN) == MIRT_E_INVALID && mirt_set_learning_rate(m, -1) == MIRT_E_INVALID &&
           mirt_get_learning_rate(m) == 0.25,
       "but not one below zero or none at all: \"%s\"", mirt_last_error());
    mirt_compile_desc again = m->config;
    ok(mirt_compile(m, &again) == MIRT_OK && mirt_get_learning_rate(m) == 0.5, "until the model is compiled again");

    mirt_model *images = image_model(s, mirt_adam(1), 0);
    mirt_callback c = recording(&r, 0, 0);
    mirt_fit_desc fit = quiet_fit(3, 10);
    fit.callbacks[0] = &c;
    fit.learning_rate = tenfold;
    fit.learning_rate_user = seen;
    mirt_history *h = mirt_fit_arrays(images, images_x(0, 20), images_y(0, 20), &fit);
    ok(h && seen[0] == 1 && seen[1] == 0.1f && seen[2] == 0.1f / 10 &&
           fabs(log_value(&h->epoch[2], "learning_rate") - 1e-3) < 1e-9,
       "an epoch schedule sees the rate in force and gives the epoch's");
    ok(fabs(r.rate[3] - 0.1) < 1e-8 && fabs(r.rate[15] - 1e-3) < 1e-9, "and the logs say which");
    mirt_strategy_destroy(s);
}

/* >>validation */

static void check_validation(void) {
    mirt_logs logs;
    mirt_strategy *s = strategy_of(2, 3, 1);
    mirt_model *m = image_model(s, mirt_adam(3e-3f), 0.2f);
    mirt_dataset *held = mirt_arrays(images_x(200, 41), images_y(200, 41));
    mirt_fit_desc fit = quiet_fit(3, 16);
    fit.validation = held;
    mirt_history *h = mirt_fit_arrays(m, images_x(0, 100), images_y(0, 100), &fit);
    bool good = h && mirt_evaluate(m, held, &logs) == MIRT_OK;
    ok(good && h->epochs == 3 && mirt_history_last(h, "val_loss") == log_value(&logs, "loss") &&
           mirt_history_last(h, "val_accuracy") == log_value(&logs, "accuracy"),
       "validation is what evaluate says, to the bit");
    ok(good && log_value(&h->epoch[0], "val_loss") != log_value(&h->epoch[2], "val_loss") &&
           mirt_history_last(h, "loss") < log_value(&h->epoch[0], "loss"),
       "and changes as the model learns: loss %.3f, then %.3f", good ? log_value(&h->epoch[0], "loss") : 0,
       good ? mirt_history_last(h, "loss") : 0);
    mirt_dataset_destroy(held);
    mirt_strategy_destroy(s);
}

static mirt_tensor *own_loss(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)user;
    return mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, mirt_cast(labels, MIRT_INT32), output);
}

/* Keras takes one label beside several outputs for a class number. */
static void check_accuracy_of_own_loss(void) {
    enum { N = 61 };
    static float scores[N * IMAGE_CLASSES];
    const mirt_custom_loss loss = {"own", own_loss, NULL};
    mirt_compile_desc desc;
    mirt_logs logs;
    int right = 0;
    mirt_strategy *s = strategy_of(2, 3, 1);
    mirt_model *m = image_net(s, 0.2f);
    memset(&desc, 0, sizeof desc);
    desc.custom_losses[0] = &loss;
    desc.metrics[0] = MIRT_ACCURACY;
    bool good = mirt_compile(m, &desc) == MIRT_OK &&
                mirt_evaluate_arrays(m, images_x(0, N), images_y(0, N), &logs) == MIRT_OK &&
                mirt_predict_arrays(m, images_x(0, N), scores, N * IMAGE_CLASSES) == MIRT_OK;
    for (int i = 0; i < N; i++) {
        int best = 0;
        for (int c = 1; c < IMAGE_CLASSES; c++)
            best = scores[i * IMAGE_CLASSES + c] > scores[i * IMAGE_CLASSES + best] ? c : best;
        right += best == image_classes[i];
    }
    ok(good && right > 0 && log_value(&logs, "accuracy") == (double)right / N,
       "accuracy beside a custom loss: %d of %d%s%s", right, N, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
}

static void check_it_learns(void) {
    mirt_logs logs;
    mirt_strategy *s = strategy_of(2, 4, 1);
    mirt_model *m = image_model(s, mirt_adam(5e-3f), 0.1f);
    mirt_fit_desc fit = quiet_fit(30, 25);
    mirt_history *h = mirt_fit_arrays(m, images_x(0, 250), images_y(0, 250), &fit);
    bool good = h && mirt_evaluate_arrays(m, images_x(250, 52), images_y(250, 52), &logs) == MIRT_OK;
    ok(good && log_value(&logs, "accuracy") > 0.9, "stripes are told apart on images never seen: accuracy %.3f",
       good ? log_value(&logs, "accuracy") : 0);
    mirt_strategy_destroy(s);
}

/* >>the log */

typedef struct sink {
    char text[4096];
    int lines, progress;
    bool clean; /* no newline, no return */
} sink;

static void take_line(mirt_log_level level, const char *text, void *user) {
    sink *k = (sink *)user;
    size_t used = strlen(k->text);
    snprintf(k->text + used, sizeof k->text - used, "%s\n", text);
    k->lines++;
    k->progress += level == MIRT_LOG_PROGRESS;
    k->clean = k->clean && !strpbrk(text, "\r\n");
}

/* >>a terminal */

#ifdef __linux__
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MOST_COLUMNS = 400 };
/* One row of a terminal, as it shows what was written: characters as numbers, 0 in the second column of a wide one. */
typedef struct row {
    int width, at, rows;
    uint32_t cell[MOST_COLUMNS];
    bool wrapped;
} row;

/* Wide characters and combining marks of these tests alone. */
static int columns_of(uint32_t code) { return code >= 0x2E80 ? 2 : code >= 0x300 && code <= 0x36F ? 0 : 1; }

static void show(row *r, const char *text, size_t size) {
    for (size_t i = 0; i < size;) {
        const int length = mirt__utf8_length(text + i, size - i);
        uint32_t code = (unsigned char)text[i] & (length == 1 ? 0x7Fu : length == 2 ? 0x1Fu : length == 3 ? 0xFu : 7u);
        for (int k = 1; k < length; k++) code = code << 6 | ((unsigned char)text[i + (size_t)k] & 0x3Fu);
        i += length > 0 ? (size_t)length : 1;
        r->rows += code == '\n';
        if (code == '\r') r->at = 0;
        if (code == '\r' || code == '\n') continue;
        const int columns = columns_of(code);
        r->wrapped = r->wrapped || r->at + columns > r->width;
        for (int k = 0; k < columns && r->at < MOST_COLUMNS; k++) r->cell[r->at++] = k ? 0 : code;
    }
}

/* Whether the row has this text, of ASCII, at column `at`; -1: anywhere. */
static bool row_has(const row *r, const char *text, int at) {
    for (int i = at < 0 ? 0 : at; i < (at < 0 ? MOST_COLUMNS : at + 1); i++) {
        size_t k = 0;
        while (text[k] && i + (int)k < MOST_COLUMNS && r->cell[i + (int)k] == (unsigned char)text[k]) k++;
        if (!text[k]) return true;
    }
    return false;
}

static void terminal_resize(int master, row *r, int width) {
    struct winsize size;
    memset(&size, 0, sizeof size);
    size.ws_col = (unsigned short)width;
    size.ws_row = 24;
    ioctl(master, TIOCSWINSZ, &size);
    r->width = width;
}

/* What was written to the terminal goes to the row. */
static void terminal_read(int master, row *r) {
    char text[4096];
    const ssize_t got = read(master, text, sizeof text);
    if (got > 0) show(r, text, (size_t)got);
}

/* A line of progress, however soon after the last one, and what the row shows then. */
static void terminal_line(int master, row *r, mirt__progress *progress, const mirt_model *m, const mirt_event *event,
                          bool done) {
    progress->last = 0;
    mirt__progress_line(progress, m, event, done);
    terminal_read(master, r);
}

/* An empty row of a terminal of this width. */
static void terminal_clear(int master, row *r, mirt__progress *progress, int width) {
    memset(r, 0, sizeof *r);
    memset(progress, 0, sizeof *progress);
    progress->terminal = true;
    terminal_resize(master, r, width);
}

static void check_widths(int master, const mirt_model *m) {
    static const int widths[] = {200, 80, 60, 40, 21, 5, 2, 1};
#define WIDE "\xe6\xbc\xa2\xe5\xad\x97_\xf0\x9f\x90\xb1"
#define COMBINED "e\xcc\x81t\xc3\xa9"
    static const char *const names[] = {"loss", "accuracy", WIDE, COMBINED, "batch_loss",
                                        "learning_rate", "val_loss", "val_accuracy", "val_" WIDE, "val_" COMBINED};
    mirt_logs logs;
    mirt_event event;
    mirt__progress progress;
    row r;
    memset(&logs, 0, sizeof logs);
    memset(&event, 0, sizeof event);
    event.logs = &logs;
    for (logs.count = 0; logs.count < MIRT__COUNT(names); logs.count++) {
        logs.name[logs.count] = names[logs.count];
        logs.value[logs.count] = 0.5;
    }
    for (int i = 0; i < MIRT__COUNT(widths); i++) {
        terminal_clear(master, &r, &progress, widths[i]);
        mirt__progress_epoch(&progress, m, 0, 1);
        terminal_read(master, &r);
        memset(&r.cell, 0, sizeof r.cell);
        r.wrapped = false;
        event.batches = 1875;
        event.seconds = 30;
        event.input_seconds = 3;
        for (event.batch = 1; event.batch <= 1875; event.batch += 1874)
            terminal_line(master, &r, &progress, m, &event, event.batch == 1875);
        const int w = widths[i];
        const char *count = w >= 21 ? "1875/1875" : w > 1 ? "1" : "";
        ok(!r.wrapped &&
               row_has(&r, count, 0) &&
               row_has(&r, " - loss: 0.5000", -1) == (w > 24) && row_has(&r, " - val_loss: 0.5000", -1) == (w > 43) &&
               row_has(&r, " - accuracy: 0.5000", -1) == (w >= 200) &&
               row_has(&r, " - waited for input: 10%", -1) == (w > 200),
           "%d columns: the line does not wrap, and shows what matters most", w);
    }
    /* Alone, with room for all of it. */
    terminal_clear(master, &r, &progress, 90);
    logs.count = 1;
    event.batch = 1875;
    terminal_line(master, &r, &progress, m, &event, true);
    ok(!r.wrapped && row_has(&r, " - waited for input: 10%", -1), "a short line has its bar and the wait for input");
    /* A longer line leaves nothing after a shorter one, and the width may change at any time. */
    terminal_clear(master, &r, &progress, 90);
    logs.count = 2;
    terminal_line(master, &r, &progress, m, &event, false);
    const bool long_one = row_has(&r, " - accuracy: 0.5000", -1);
    logs.count = 1;
    terminal_line(master, &r, &progress, m, &event, false);
    ok(long_one && !row_has(&r, "accuracy", -1) && row_has(&r, " - loss: 0.5000 ", -1) && !r.wrapped,
       "what a longer line left is overwritten");
    logs.count = 2;
    for (int w = 90; w > 30; w -= 7) {
        terminal_resize(master, &r, w);
        terminal_line(master, &r, &progress, m, &event, false);
    }
    ok(!r.wrapped, "a terminal that is made narrower while a fit runs");
}

static void check_terminal(void) {
    char name[64];
    int number = 0, locked = 0;
    const int master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    int slave = -1;
    if (master >= 0 && ioctl(master, TIOCSPTLCK, &locked) == 0 && ioctl(master, TIOCGPTN, &number) == 0) {
        snprintf(name, sizeof name, "/dev/pts/%d", number);
        slave = open(name, O_RDWR | O_NOCTTY);
    }
    if (slave < 0) {
        skip("no pseudo-terminal here");
        return;
    }
    mirt_strategy *s = strategy_of(1, 1, 1); /* which is silent */
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.threads = 1;
    const int before = dup(2);
    fflush(stderr);
    dup2(slave, 2);
    mirt_strategy *loud = mirt_strategy_create(&d); /* its log is the default one */
    mirt_model *shown = loud ? image_model(loud, mirt_adam(1e-3f), 0) : NULL;
    row r;
    memset(&r, 0, sizeof r);
    terminal_read(master, &r);
    if (ok(m && shown, "a model whose log is a terminal")) check_widths(master, shown);
    fflush(stderr);
    dup2(before, 2);
    close(before);
    close(slave);
    close(master);
    mirt_strategy_destroy(loud);
    mirt_strategy_destroy(s);
}
#else
static void check_terminal(void) { skip("no pseudo-terminal here"); }
#endif

static void check_log(void) {
    sink k;
    mirt_strategy_desc d;
    memset(&k, 0, sizeof k);
    memset(&d, 0, sizeof d);
    k.clean = true;
    d.replicas = 3;
    d.threads = 1;
    d.log = take_line;
    d.log_user = &k;
    mirt_strategy *s = mirt_strategy_create(&d);
    ok(k.lines >= 1 && k.progress == 0 && strstr(k.text, "1 CPU device") && strstr(k.text, "no GPU") &&
           strstr(k.text, "3 replicas"),
       "a strategy says what it is: %.*s", (int)strcspn(k.text, "\n"), k.text);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.2f);
    mirt_dataset *held = mirt_arrays(images_x(200, 41), images_y(200, 41));
    mirt_fit_desc fit = quiet_fit(2, 16);
    fit.no_progress = false;
    fit.validation = held;
    memset(&k, 0, sizeof k);
    k.clean = true;
    mirt_history *h = mirt_fit_arrays(m, images_x(0, 50), images_y(0, 50), &fit);
    ok(h && k.clean && k.progress == 4, "two epochs write two lines each to a log that is no terminal (%d)",
       k.progress);
    char loss[64], value[64];
    snprintf(loss, sizeof loss, " - loss: %.4f", h ? mirt_history_last(h, "loss") : 0);
    snprintf(value, sizeof value, " - val_accuracy: %.4f", h ? mirt_history_last(h, "val_accuracy") : 0);
    ok(strstr(k.text, "\nEpoch 1/2\n4/4 ") && strstr(k.text, "Epoch 2/2\n4/4 ") && strstr(k.text, "/step - ") &&
           strstr(k.text, loss) && strstr(k.text, value),
       "as Keras does, with the values of the history");
    mirt_callback *line = mirt_progbar_logger();
    fit.callbacks[0] = line;
    for (int quiet = 0; quiet < 2; quiet++) {
        memset(&k, 0, sizeof k);
        k.clean = true;
        fit.no_progress = quiet == 1;
        h = mirt_fit_arrays(m, images_x(0, 50), images_y(0, 50), &fit);
        snprintf(value, sizeof value, " - val_accuracy: %.4f", h ? mirt_history_last(h, "val_accuracy") : 0);
        ok(h && k.clean && k.progress == 4 && strstr(k.text, "Epoch 1/2\n4/4 ") && strstr(k.text, "Epoch 2/2\n4/4 ") &&
               strstr(k.text, value),
           "as a callback it is the same, once%s", quiet ? ", and shown if no other is" : "");
    }
    fit.callbacks[0] = NULL;
    fit.no_progress = false;
    mirt__progress progress;
    mirt_logs logs;
    mirt_event event;
    memset(&k, 0, sizeof k);
    memset(&progress, 0, sizeof progress);
    memset(&logs, 0, sizeof logs);
    memset(&event, 0, sizeof event);
    event.logs = &logs;
    event.batch = 4;
    event.batches = 5;
    event.seconds = 2;
    mirt__progress_line(&progress, m, &event, true);
    ok(strncmp(k.text, "4/5 ", 4) == 0 && strstr(k.text, " 2s 500ms/step\n"),
       "time is that of the epoch and of one step: %.*s", (int)strcspn(k.text, "\n"), k.text);
    memset(&k, 0, sizeof k);
    event.model = m;
    event.epochs = 7;
    line->train_begin(&event, line->user);
    line->batch_end(&event, line->user);
    line->batch_end(&event, line->user);
    line->epoch_end(&event, line->user);
    ok(strncmp(k.text, "Epoch 1/7\n4/5 ", 14) == 0 && k.lines == 2,
       "an epoch that it comes into the middle of has a line above, too");
    mirt_callback_destroy(line);
    memset(&k, 0, sizeof k);
    mirt_set_log(s, NULL, NULL);
    ok(mirt_fit_arrays(m, images_x(0, 50), images_y(0, 50), &fit) && k.lines == 0, "no sink, no lines");
    mirt_dataset_destroy(held);
    mirt_strategy_destroy(s);
}

/* >>what cannot be fitted */

static void check_errors(void) {
    int32_t bad[20];
    mirt_strategy *s = strategy_of(1, 2, 1);
    mirt_model *m = image_net(s, 0);
    mirt_fit_desc fit = quiet_fit(1, 8);
    for (int i = 0; i < 20; i++) bad[i] = i == 13 ? 5 : 1;
    ok(!mirt_fit_arrays(m, images_x(0, 20), images_y(0, 20), &fit) && mirt_last_status() == MIRT_E_STATE &&
           strstr(mirt_last_error(), "mirt_compile"),
       "fit before compile: \"%s\"", mirt_last_error());
    mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
    ok(mirt_compile(m, &c) == MIRT_OK, "and after it all is well");
    mirt_array labels = mirt_make_array(bad, MIRT_INT32, MIRT_SHAPE(20));
    mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, 20), labels), 8);
    ok(!mirt_fit(m, data, &fit) && mirt_last_status() == MIRT_E_INVALID && strstr(mirt_last_error(), "label 5") &&
           strstr(mirt_last_error(), "sample 13") && strstr(mirt_last_error(), "0 to 4"),
       "a label that is no class: \"%s\"", mirt_last_error());
    mirt_dataset_destroy(data);
    ok(mirt_train_step(m, images_x(0, 20), labels, NULL) == MIRT_E_INVALID && strstr(mirt_last_error(), "sample 13"),
       "in a step by hand: \"%s\"", mirt_last_error());
    bad[13] = -1;
    ok(!mirt_fit_arrays(m, images_x(0, 20), labels, &fit) && strstr(mirt_last_error(), "label -1") &&
           strstr(mirt_last_error(), "sample 13"),
       "shuffled, it still is sample 13: \"%s\"", mirt_last_error());
    ok(!mirt_fit_arrays(m, images_x(0, 20), images_y(0, 19), &fit) && mirt_last_status() == MIRT_E_SHAPE &&
           strstr(mirt_last_error(), "20") && strstr(mirt_last_error(), "19"),
       "unequal numbers: \"%s\"", mirt_last_error());
    mirt_array narrow = mirt_make_array(image_pixels, MIRT_UINT8, MIRT_SHAPE(20, 11, 13, 1));
    ok(!mirt_fit_arrays(m, narrow, images_y(0, 20), &fit) && mirt_last_status() == MIRT_E_SHAPE &&
           strstr(mirt_last_error(), "(11, 13, 1)") && strstr(mirt_last_error(), "(13, 11, 1)"),
       "images of another size: \"%s\"", mirt_last_error());
    mirt_array pairs = mirt_make_array(image_classes, MIRT_UINT8, MIRT_SHAPE(20, 2));
    ok(!mirt_fit_arrays(m, images_x(0, 20), pairs, &fit) && mirt_last_status() == MIRT_E_SHAPE &&
           strstr(mirt_last_error(), "2 values"),
       "labels of another shape: \"%s\"", mirt_last_error());
    mirt_array none = images_x(0, 20);
    none.shape.dim[0] = 0;
    ok(!mirt_fit_arrays(m, none, images_y(0, 20), &fit) && mirt_last_error()[0], "no samples: \"%s\"",
       mirt_last_error());
    ok(!mirt_fit(m, NULL, &fit) && mirt_last_error()[0], "no data set: \"%s\"", mirt_last_error());
    ok(!mirt_fit(m, mirt_batch(NULL, 3), &fit) && mirt_last_error()[0], "a chain that failed: \"%s\"",
       mirt_last_error());
    int64_t step = mirt_step(m); /* of the batches before the bad label */
    ok(mirt_fit_arrays(m, images_x(0, 20), images_y(0, 20), &fit) && mirt_step(m) == step + 3,
       "after all that the model still trains");
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_images();
    check_order();
    check_epochs_differ();
    check_default_batch();
    check_stop('T', 0, "Tt", 0, 0);
    check_stop('E', 1, "TEBbBbBbeEt", 1, 3);
    check_stop('B', 1, "TEBbBet", 1, 1);
    check_stop('b', 0, "TEBbet", 1, 1);
    check_stop('e', 0, "TEBbBbBbet", 1, 3);
    check_max_steps();
    check_rates();
    check_validation();
    check_accuracy_of_own_loss();
    if (!small_tier()) check_it_learns();
    check_log();
    check_terminal();
    check_errors();
    return done_testing();
}
