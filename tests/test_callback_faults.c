/* Ready-made callbacks: bad descriptions, failing memory, odd logs, hostile states and files. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

static int failing_read = -1, failing_sync = -1; /* calls from now on until one fails; -1: none does */

ssize_t hook_pread(int fd, void *data, size_t size, off_t offset) {
    if (failing_read >= 0 && failing_read-- == 0) return errno = EIO, -1;
    return pread(fd, data, size, offset);
}
int hook_fsync(int fd) {
    if (failing_sync >= 0 && failing_sync-- == 0) return errno = EIO, -1;
    return fsync(fd);
}

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "gallery.h"
#include "mirror_util.h"
#include "tap.h"

static const char *in_work(const char *name) {
    static char path[4][400];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", work_directory(), name);
    return path[next];
}

/* >>descriptions */

static mirt_callback *stopping(mirt_mode mode, int patience, int start, double delta, double baseline) {
    ZEROED(mirt_early_stopping_desc, d);
    d.mode = mode;
    d.patience = patience;
    d.start_from_epoch = start;
    d.min_delta = delta;
    d.has_baseline = true;
    d.baseline = baseline;
    return mirt_early_stopping(&d);
}

static mirt_callback *plateau(double factor, int patience, int cooldown, double least, double delta) {
    ZEROED(mirt_reduce_lr_desc, d);
    d.factor = factor;
    d.patience = patience;
    d.cooldown = cooldown;
    d.min_rate = least;
    d.min_delta = delta;
    return mirt_reduce_lr_on_plateau(&d);
}

static mirt_callback *checkpoint(const char *path, int64_t every, int keep, mirt_mode mode) {
    ZEROED(mirt_model_checkpoint_desc, d);
    d.path = path;
    d.every_steps = every;
    d.keep = keep;
    d.mode = mode;
    return mirt_model_checkpoint(&d);
}

static mirt_callback *backup(const char *directory, int64_t every) {
    ZEROED(mirt_backup_desc, d);
    d.directory = directory;
    d.every_steps = every;
    return mirt_backup_and_restore(&d);
}

static mirt_callback *csv(const char *path, char separator, bool append) {
    ZEROED(mirt_csv_logger_desc, d);
    d.path = path;
    d.separator = separator;
    d.append = append;
    return mirt_csv_logger(&d);
}

static mirt_callback *json(const char *path, int64_t steps, bool append) {
    ZEROED(mirt_json_logger_desc, d);
    d.path = path;
    d.steps = steps;
    d.append = append;
    return mirt_json_logger(&d);
}

static mirt_callback *board(const char *directory, int64_t update, int histogram, bool no_graph) {
    ZEROED(mirt_tensorboard_desc, d);
    d.log_dir = directory;
    d.update_freq = update;
    d.histogram_freq = histogram;
    d.write_images = histogram > 0;
    d.no_graph = no_graph;
    return mirt_tensorboard(&d);
}

static float same_rate(int epoch, float rate, void *user) {
    (void)epoch, (void)user;
    return rate;
}

static void refused(mirt_callback *c, const char *says) {
    ok(!c && mirt_last_status() == MIRT_E_INVALID && strstr(mirt_last_error(), says), "refused: %s",
       c ? says : mirt_last_error());
    mirt_callback_destroy(c);
}

static void check_descriptions(void) {
    refused(stopping(MIRT_MODE_MIN, -1, 0, 0, 0), "patience -1");
    refused(stopping(MIRT_MODE_MIN, 0, -2, 0, 0), "-2");
    refused(stopping(MIRT_MODE_MIN, 0, 0, NAN, 0), "min_delta is nan");
    refused(stopping(MIRT_MODE_MIN, 0, 0, 0, INFINITY), "the baseline is inf");
    refused(stopping((mirt_mode)7, 0, 0, 0, 0), "invalid mode (7)");
    refused(stopping((mirt_mode)-1, 0, 0, 0, 0), "invalid mode (-1)");
    refused(plateau(1, 1, 0, 0, 0), "the factor is 1");
    refused(plateau(-0.5, 1, 0, 0, 0), "the factor is -0.5");
    refused(plateau(NAN, 1, 0, 0, 0), "the factor is nan");
    refused(plateau(0.5, -1, 0, 0, 0), "patience -1");
    refused(plateau(0.5, 1, -1, 0, 0), "cooldown -1");
    refused(plateau(0.5, 1, 0, -1, 0), "min_rate -1");
    refused(plateau(0.5, 1, 0, 1e39, 0), "min_rate 1e+39");
    refused(plateau(0.5, 1, 0, 0, INFINITY), "min_delta is inf");
    refused(mirt_learning_rate_scheduler(NULL, NULL), "schedule");
    refused(mirt_model_checkpoint(NULL), "the path is missing");
    refused(checkpoint(NULL, 0, 0, MIRT_MODE_AUTO), "the path is missing");
    refused(checkpoint("", 0, 0, MIRT_MODE_AUTO), "the path is missing");
    refused(checkpoint("a\nb", 0, 0, MIRT_MODE_AUTO), "a line break");
    refused(checkpoint("a", -1, 0, MIRT_MODE_AUTO), "every_steps -1");
    refused(checkpoint("a", 0, -1, MIRT_MODE_AUTO), "keep -1");
    refused(checkpoint("a", 0, 0, (mirt_mode)9), "invalid mode (9)");
    refused(mirt_backup_and_restore(NULL), "no directory");
    refused(backup(NULL, 0), "no directory");
    refused(backup("", 0), "no directory");
    refused(backup("a", -1), "every_steps -1");
    refused(mirt_csv_logger(NULL), "the path is missing");
    refused(csv(NULL, 0, false), "the path is missing");
    refused(csv("a", '"', false), "the separator cannot be");
    refused(csv("a", '\n', false), "the separator cannot be");
    refused(csv("a", '\r', false), "the separator cannot be");
    refused(mirt_json_logger(NULL), "the path is missing");
    refused(json(NULL, 0, false), "the path is missing");
    refused(json("a", -1, false), "negative");
    refused(board("a", -1, 0, false), "update_freq -1");
    refused(board("a", 0, -1, false), "histogram_freq -1");
    refused(mirt_terminate_on_nan((mirt_nan_policy)-1), "-1");
    refused(mirt_terminate_on_nan((mirt_nan_policy)9), "9");
    mirt_callback *c[] = {mirt_early_stopping(NULL), mirt_reduce_lr_on_plateau(NULL), mirt_tensorboard(NULL),
                          plateau(0.5, 1, 0, 0, -1), plateau(0.5, 1, 0, 0, 0)};
    for (int i = 0; i < MIRT__COUNT(c); i++) {
        ok(c[i] != NULL, "a description of defaults, number %d", i);
        mirt_callback_destroy(c[i]);
    }
}

/* >>memory */

static mirt_callback *make(int index) {
    switch (index) {
    case 0: return stopping(MIRT_MODE_MIN, 1, 0, 0, 0);
    case 1: return plateau(0.5, 1, 0, 0, 0);
    case 2: return mirt_learning_rate_scheduler(same_rate, NULL);
    case 3: return checkpoint("a", 0, 0, MIRT_MODE_AUTO);
    case 4: return backup("a", 0);
    case 5: return csv("a", 0, false);
    case 6: return json("a", 0, false);
    case 7: return board("a", 0, 0, false);
    case 8: return mirt_terminate_on_nan(MIRT_NAN_WARN);
    case 9: return mirt_swap_ema_weights(true);
    default: return mirt_progbar_logger();
    }
}
enum { KINDS = 11 };

static void check_memory(void) {
    int wrong = 0, met = 0;
    for (int i = 0; i < KINDS; i++) {
        const long before = live_blocks;
        for (long number = 1; number < 100; number++) {
            allocations = 0;
            fails = number;
            mirt_callback *c = make(i);
            fails = 0;
            const bool reached = allocations >= number;
            const bool right = reached ? !c && mirt_last_status() == MIRT_E_NOMEM : c != NULL;
            mirt_callback_destroy(c);
            met += reached;
            if (!right || live_blocks != before) wrong++, printf("# callback %d, allocation %ld\n", i, number);
            if (!reached) break;
        }
    }
    ok(!wrong && met >= 2 * KINDS - 4, "making callbacks: %d failed allocations, each reported, nothing leaks", met);
}

/* >>fits */

/* Small models are enough, with any number of outputs. */
static double results[2]; /* of the metric, in training and in validation */
static int validating;
static mirt_tensor *record_zero(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)labels, (void)user;
    return mirt_scale(output, 0, 0);
}
static double given_result(const double *sums, int count, int64_t samples, void *user) {
    (void)sums, (void)count, (void)samples, (void)user;
    return results[validating];
}

/* nan, inf and -inf in training, 0.5 in validation. */
static int on_epoch(const mirt_event *event, void *user) {
    const double odd[3] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    (void)user;
    results[0] = odd[event->epoch % 3];
    return validating = 0;
}
static int on_test(const mirt_event *event, void *user) {
    (void)event, (void)user;
    results[1] = 0.5;
    validating = 1;
    return 0;
}

static mirt_model *model_of(mirt_strategy *s, int outputs, const char *metric) {
    static const char *const names[] = {"left", "right"};
    mirt_tensor *out[2];
    ZEROED(mirt_compile_desc, compile);
    const mirt_custom_metric custom = {metric, record_zero, given_result, NULL, MIRT_MODE_MIN};
    mirt_model *m = mirt_model_create(s, "m");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(2));
    for (int i = 0; i < outputs; i++) out[i] = named_dense(x, names[i], 1, MIRT_LINEAR);
    mirt_model_outputs(m, out, outputs);
    compile.loss = MIRT_MEAN_SQUARED_ERROR;
    if (metric) compile.custom_metrics[0] = &custom;
    return mirt_compile(m, &compile) == MIRT_OK ? m : NULL;
}

static const float xs[8] = {1, 2, 3, 4, 5, 6, 7, 8}, ys[4] = {1, 2, 3, 4};

static mirt_data data_of(int outputs) {
    ZEROED(mirt_data, data);
    data.x[0] = mirt_make_array(xs, MIRT_FLOAT32, MIRT_SHAPE(4, 2));
    for (int i = 0; i < outputs; i++) data.y[i] = mirt_make_array(ys, MIRT_FLOAT32, MIRT_SHAPE(4, 1));
    return data;
}

static long fail_at; /* the allocation of a fit that fails */

/* A fit of `epochs` epochs with validation after every `freq`-th; none for 0. */
static mirt_history *fit(mirt_model *m, int epochs, int freq, const mirt_callback *a, const mirt_callback *b) {
    mirt_data data = data_of(m->num_outputs);
    ZEROED(mirt_fit_desc, d);
    mirt_dataset *train = mirt_arrays_of(&data), *validation = freq ? mirt_arrays_of(&data) : NULL;
    d.epochs = epochs;
    d.batch = 2;
    d.validation = validation;
    d.validation_freq = freq;
    d.no_progress = true;
    d.callbacks[0] = a;
    d.callbacks[1] = b;
    allocations = 0;
    fails = fail_at;
    mirt_history *h = mirt_fit(m, train, &d);
    fails = 0;
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(validation);
    return h;
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    if (f) fputs(text, f), fclose(f);
}

static char *text_of(const char *path) {
    size_t size;
    char *text = file_bytes(path, &size);
    if (text) text[size] = 0;
    return text;
}

/* Names with separators and quotes, epochs without validation, values that are not finite. */
static void check_csv(mirt_strategy *s) {
    const char *path = in_work("values.csv");
    mirt_model *m = model_of(s, 1, "a,\"b");
    mirt_callback *c = csv(path, 0, false);
    ZEROED(mirt_callback, odd);
    odd.epoch_begin = on_epoch;
    odd.test_begin = on_test;
    const mirt_history *h = fit(m, 3, 3, &odd, c);
    char *text = text_of(path), *line = text ? strchr(text, '\n') : NULL;
    const char *const want = "epoch,\"a,\"\"b\",learning_rate,loss,\"val_a,\"\"b\",val_loss\n";
    ok(h && line && strncmp(text, want, strlen(want)) == 0, "quoted columns: %.*s", line ? (int)(line - text) : 0,
       text ? text : "");
    ok(line && strncmp(line, "\n0,nan,0.001", 12) == 0 && strstr(line, ",NA,NA\n1,inf,0.001"),
       "NA stands for what an epoch does not report, nan and inf for what is not finite");
    ok(line && strstr(line, "\n2,-inf,0.001") && strstr(line, ",0.5,"), "-inf, and a number of validation");
    free(text);
    mirt_callback_destroy(c);
    c = csv(path, 'b', false);
    ok(fit(m, 1, 0, c, NULL) && (text = text_of(path)) && strncmp(text, "epochb\"a,\"\"b\"blearning_rate", 27) == 0,
       "another separator");
    free(text);
    mirt_callback_destroy(c);
    mirt_model_destroy(m);
}

static void check_csv_append(mirt_strategy *s) {
    static const char *const heads[] = {"epoch,learning_rate,loss\r\n",    "epoch,learning_rate,loss\n",
                                        "epoch,learning_rate,los",         "epoch,learning_rate,loss",
                                        "epoch,learning_rate,loss,more\n", "epoch,learning_rate,lass\n"};
    const char *path = in_work("append.csv");
    mirt_model *m = model_of(s, 1, NULL);
    mirt_callback *c = csv(path, 0, true);
    for (int i = 0; i < MIRT__COUNT(heads); i++) {
        write_text(path, heads[i]);
        const bool done = fit(m, 1, 0, c, NULL) != NULL;
        ok(done == (i < 2) && (done || strstr(mirt_last_error(), "its first line is not")),
           "a log that begins %.24s%s%s", heads[i], done ? "" : ": ", done ? "" : mirt_last_error());
    }
    write_text(path, heads[1]);
    failing_read = 0;
    ok(!fit(m, 1, 0, c, NULL), "a log whose first line cannot be read: %s", mirt_last_error());
    failing_read = -1;
    ok(fit(m, 1, 0, c, NULL) != NULL, "and it resumes when it can");
    mirt_callback_destroy(c);
    mirt_model_destroy(m);
}

/* Logs of single outputs. */
static void check_outputs(mirt_strategy *s) {
    const char *path = in_work("outputs.jsonl");
    mirt_model *m = model_of(s, 2, NULL);
    ZEROED(mirt_early_stopping_desc, d);
    ZEROED(mirt_reduce_lr_desc, r);
    d.monitor = "left_loss";
    r.monitor = "val_right_loss";
    mirt_callback *a = json(path, 0, false), *b = mirt_early_stopping(&d);
    ok(fit(m, 1, 1, a, b) != NULL, "a log, and stopping early by the loss of an output: %s", mirt_last_error());
    char *text = text_of(path);
    ok(text && strstr(text, "\"left_loss\":{\"direction\":\"min\"") &&
           strstr(text, "\"right_loss\":{\"direction\":\"min\""),
       "the log declares the outputs' losses");
    free(text);
    mirt_callback_destroy(b);
    b = mirt_reduce_lr_on_plateau(&r);
    ok(fit(m, 1, 1, b, NULL) != NULL, "the loss of an output on validation data");
    ok(!fit(m, 1, 0, b, NULL) && strstr(mirt_last_error(), "this fit has no validation data"), "without: %s",
       mirt_last_error());
    ok(fit(m, 3, 2, b, NULL) != NULL, "epochs without validation are passed over");
    mirt_callback_destroy(b);
    d.monitor = "zzz";
    b = mirt_early_stopping(&d);
    ok(!fit(m, 1, 0, b, NULL) && strstr(mirt_last_error(), "there are loss, left_loss, right_loss"),
       "a log far from all others: %s", mirt_last_error());
    mirt_callback_destroy(b);
    d.monitor = "val_loss";
    b = mirt_early_stopping(&d);
    ok(fit(m, 3, 2, b, NULL) != NULL, "stopping early passes over epochs without validation");
    mirt_callback_destroy(b);
    mirt_callback_destroy(a);
    mirt_model_destroy(m);
}

/* >>checkpoints */

static void expect_pattern(mirt_model *m, const char *pattern, int64_t every, bool best, const char *monitor,
                           const char *says) {
    ZEROED(mirt_model_checkpoint_desc, d);
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", work_directory(), pattern);
    d.path = path;
    d.every_steps = every;
    d.best_only = best;
    d.monitor = monitor;
    mirt_callback *c = mirt_model_checkpoint(&d);
    const bool done = c && fit(m, 1, 1, c, NULL);
    ok(!done && mirt_last_status() == MIRT_E_INVALID && strstr(mirt_last_error(), says), "%.40s: %s", pattern,
       done ? "accepted" : mirt_last_error());
    mirt_callback_destroy(c);
}

static bool exists(const char *name) { return access(in_work(name), F_OK) == 0; }

static void check_patterns(mirt_strategy *s) {
    static const char *const wrong[] = {
        "{epoch",        "{epoch:",
        "{epoch:3x}",    "{}",
        "{:3}",          "{a{b}",
        "{epoch:999d}",  "{loss:.99f}",
        "{loss:1.2.3f}", "{loss:0000000000000000000000000000001f}",
        "{epoch:d",      "{aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}"};
    static const char *const good[][2] = {{"e{epoch}.safetensors", "e1.safetensors"},
                                          {"s{step:04d}.safetensors", "s0002.safetensors"},
                                          {"p{epoch:3.1d}.safetensors", "p  1.safetensors"},
                                          {"f{epoch:.1f}.safetensors", "f1.0.safetensors"},
                                          {"g{step:g}.safetensors", "g2.safetensors"},
                                          {"h{learning_rate:.3e}.safetensors", "h1.000e-03.safetensors"},
                                          {"i{learning_rate}.safetensors", "i0.001.safetensors"},
                                          {"j{learning_rate:.3d}.safetensors", "j0.001.safetensors"},
                                          {"k{{{epoch}}}.safetensors", "k{1}.safetensors"}};
    mirt_model *m = model_of(s, 1, NULL);
    for (int i = 0; i < MIRT__COUNT(wrong); i++) expect_pattern(m, wrong[i], 0, false, NULL, "is invalid at");
    expect_pattern(m, "}", 0, false, NULL, "closes a brace");
    expect_pattern(m, "{los}", 0, false, NULL, "this fit does not report");
    expect_pattern(m, "{zzzzzz}", 0, false, NULL, "there are {epoch}, {step}");
    expect_pattern(m, "{val_loss}", 1, false, NULL, "is unknown at the end of a step");
    expect_pattern(m, "a", 1, true, "val_loss", "is unknown at the end of a step");
    expect_pattern(m, "a", 0, true, "lose", "this fit does not report");
    for (int i = 0; i < MIRT__COUNT(good); i++) {
        mirt_model *fresh = model_of(s, 1, NULL);
        mirt_callback *c = checkpoint(in_work(good[i][0]), 0, 0, MIRT_MODE_AUTO);
        ok(fit(fresh, 1, 1, c, NULL) && exists(good[i][1]), "%s gives %s", good[i][0], good[i][1]);
        mirt_callback_destroy(c);
        mirt_model_destroy(fresh);
    }
    mirt_model_destroy(m);
}

/* Every allocation of a fit with checkpoints by the best value of a log, from paths with every kind of place. */
static void check_checkpoint_memory(mirt_strategy *s) {
    char path[500];
    int wrong = 0, met = 0;
    bool reached = true;
    snprintf(path, sizeof path, "%s/best/{epoch:02d}-{learning_rate:.3f}.safetensors", work_directory());
    ZEROED(mirt_model_checkpoint_desc, d);
    d.path = path;
    d.best_only = true;
    d.keep = 1;
    mirt_model *m = model_of(s, 1, NULL);
    mirt_callback *c = mirt_model_checkpoint(&d);
    ok(fit(m, 1, 1, c, NULL) != NULL, "a checkpoint of the best epoch: %s", mirt_last_error());
    for (long number = 1; reached && wrong < 5; number++) {
        fail_at = number;
        const bool done = fit(m, 2, 1, c, NULL) != NULL;
        fail_at = 0;
        reached = allocations >= number;
        met += reached && !done;
        if (done ? reached : mirt_last_status() != MIRT_E_NOMEM) {
            wrong++;
            printf("# allocation %ld: %s\n", number, done ? "unnoticed" : mirt_last_error());
        }
    }
    ok(!wrong && met > 40 && fit(m, 1, 1, c, NULL),
       "%d failed allocations in fits with checkpoints, each reported, after which it works", met);
    mirt_callback_destroy(c);
    mirt_model_destroy(m);
}

/* What a process that was killed left behind goes away; what others may still write does not. */
static void check_leftovers(mirt_strategy *s) {
    static const char *const names[] = {"old_1.safetensors.99999999-0.tmp", "old_1.safetensors.99999999-0.tmpx",
                                        "old_1.safetensors.0-0.tmp",        "old_1.safetensors.x-0.tmp",
                                        "other.safetensors.99999999-0.tmp", "old_1.safetensors"};
    char own[64];
    mirt_model *m = model_of(s, 1, NULL);
    mirt_callback *c = checkpoint(in_work("left/old_{epoch}.safetensors"), 0, 0, MIRT_MODE_AUTO);
    ok(fit(m, 1, 0, c, NULL) != NULL, "a first run");
    for (int i = 0; i < MIRT__COUNT(names); i++) {
        char name[100];
        snprintf(name, sizeof name, "left/%s", names[i]);
        if (i < 5) write_text(in_work(name), "");
    }
    snprintf(own, sizeof own, "left/old_1.safetensors.%ld-7.tmp", (long)getpid());
    write_text(in_work(own), "");
    ok(fit(m, 1, 0, c, NULL) != NULL, "a second one: %s", mirt_last_error());
    ok(!exists("left/old_1.safetensors.99999999-0.tmp"), "the file of a process that is gone is removed");
    for (int i = 1; i < MIRT__COUNT(names); i++) {
        char name[100];
        snprintf(name, sizeof name, "left/%s", names[i]);
        ok(exists(name), "%s stays", names[i]);
    }
    ok(exists(own), "the file of a process that runs stays");
    mirt_callback_destroy(c);
    mirt_model_destroy(m);
}

/* >>states */

static void expect_state(mirt_callback *c, const char *state, bool accepted, const char *says) {
    const int code = c->load_state(state, c->user);
    ok((code == 0) == accepted && (accepted || strstr(mirt_last_error(), says)), "%s: %s%s%s", c->name, state,
       accepted ? "" : ": ", accepted ? "" : mirt_last_error());
}

static void check_states(void) {
    mirt_callback *c = stopping(MIRT_MODE_MIN, 1, 0, 0, 0);
    char text[400];
    const size_t size = c->save_state(text, sizeof text, c->user);
    ok(size < sizeof text && strlen(text) == size, "a state: %s", text);
    expect_state(c, text, true, "");
    expect_state(c, "[]", false, "must be an object");
    expect_state(c, "{", false, "JSON");
    expect_state(c, "{}", false, "is missing");
    c->load_state(text, c->user);
    mirt_callback_destroy(c);
    c = plateau(0.5, 1, 0, 0, 0);
    c->save_state(text, sizeof text, c->user);
    char *best = strstr(text, "\"best\":"), *end = best ? strpbrk(best, ",}") : NULL;
    static const struct {
        const char *value;
        bool accepted;
        const char *says;
    } values[] = {{"\"inf\"", true, ""},
                  {"\"-inf\"", true, ""},
                  {"2.5", true, ""},
                  {"\"nan\"", false, "must be a number"},
                  {"null", false, "\"best\" is null"},
                  {"[1]", false, "\"best\" is an array"}};
    for (int i = 0; best && end && i < MIRT__COUNT(values); i++) {
        char changed[500], again[500];
        snprintf(changed, sizeof changed, "%.*s\"best\":%s%s", (int)(best - text), text, values[i].value, end);
        expect_state(c, changed, values[i].accepted, values[i].says);
        c->save_state(again, sizeof again, c->user);
        if (values[i].accepted) ok(strcmp(again, changed) == 0, "it is saved as it was loaded: %s", again);
    }
    ok(best && end, "its best value is part of the state");
    mirt_callback_destroy(c);
    c = csv(in_work("a file.csv"), 0, false);
    write_text(in_work("a file.csv"), "epoch\n0\n1");
    expect_state(c, "{\"length\":6}", true, "");
    expect_state(c, "{\"length\":7}", false, "is not the log of this run");
    expect_state(c, "{\"length\":900}", true, "");
    expect_state(c, "{\"length\":-1}", false, "\"length\"");
    failing_read = 0;
    expect_state(c, "{\"length\":6}", false, "cannot read");
    failing_read = -1;
    mirt_callback_destroy(c);
}

/* >>custom event files */

static void check_writer(void) {
    static const float values[3] = {1, 2, 3};
    const unsigned char pixels[4] = {0, 1, 2, 3};
    const mirt_array image = mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(1, 2, 2, 1)),
                     none = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(1, 2, 2, 1));
    mirt_event_writer *w = mirt_event_writer_create(in_work("own"));
    ok(w && mirt_write_scalar(NULL, "a", 0, 0) != MIRT_OK && strstr(mirt_last_error(), "writer"), "no writer: %s",
       mirt_last_error());
    ok(mirt_write_scalar(w, NULL, 0, 0) == MIRT_E_INVALID && strstr(mirt_last_error(), "tag"), "no tag: %s",
       mirt_last_error());
    ok(mirt_write_text(w, "a", NULL, 0) == MIRT_E_INVALID && strstr(mirt_last_error(), "value"), "no text: %s",
       mirt_last_error());
    ok(mirt_write_histogram(w, "a", NULL, 3, 0) == MIRT_E_INVALID, "no values: %s", mirt_last_error());
    ok(mirt_write_histogram(w, "a", values, -3, 0) == MIRT_E_INVALID &&
           strstr(mirt_last_error(), "number of values (-3)"),
       "%s", mirt_last_error());
    ok(mirt_write_images(w, "a", none, 1, 0) == MIRT_E_INVALID, "no image: %s", mirt_last_error());
    int wrong = 0, met = 0;
    for (int what = 0; what < 4; what++) {
        bool reached = true;
        for (long number = 1; reached; number++) {
            const long before = live_blocks;
            allocations = 0;
            fails = number;
            const mirt_status status = what == 0   ? mirt_write_scalar(w, "a", 1, 0)
                                       : what == 1 ? mirt_write_text(w, "a", "b", 0)
                                       : what == 2 ? mirt_write_histogram(w, "a", values, 3, 0)
                                                   : mirt_write_images(w, "a", image, 1, 0);
            fails = 0;
            reached = allocations >= number;
            met += reached;
            if (status != (reached ? MIRT_E_NOMEM : MIRT_OK) || (reached && live_blocks > before))
                wrong++, printf("# %d, allocation %ld: %d\n", what, number, (int)status);
        }
    }
    ok(!wrong && met > 4, "%d failed allocations of a writer, each reported", met);
    mirt_event_writer_destroy(w);
    for (long number = 1; number < 20; number++) {
        const long before = live_blocks;
        allocations = 0;
        fails = number;
        w = mirt_event_writer_create(in_work("own"));
        fails = 0;
        const bool reached = allocations >= number;
        wrong += reached ? w || mirt_last_status() != MIRT_E_NOMEM || live_blocks != before : !w;
        mirt_event_writer_destroy(w);
        if (!reached) break;
    }
    ok(!wrong, "making a writer without memory");
}

/* Pictures and histograms of weights of all ranks, and of values that are not finite. */
static void check_board(mirt_strategy *s) {
    ZEROED(mirt_compile_desc, compile);
    const float odd[6] = {1, (float)NAN, 2, (float)INFINITY, 0, 0};
    mirt_model *m = mirt_model_create(s, "ranks");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(2)), *zero = NULL;
    const mirt_shape shapes[] = {MIRT_SHAPE(2),       MIRT_SHAPE(2, 3),       MIRT_SHAPE(3, 2),
                                 MIRT_SHAPE(2, 1, 2), MIRT_SHAPE(2, 2, 1, 3), MIRT_SHAPE(3, 3, 10, 10),
                                 MIRT_SHAPE(5000),    MIRT_SHAPE(2, 5000),    MIRT_SHAPE(1, 1, 1, 1, 2)};
    for (int i = 0; i < MIRT__COUNT(shapes); i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        mirt_tensor *v = mirt_variable(m, name, shapes[i], mirt_random_normal(0, 1), true);
        v = mirt_scale(mirt_reduce_sum(v, 0, false), 0, 0);
        zero = zero ? mirt_add(zero, v) : v;
    }
    mirt_model_output(m, named_dense(x, "out", 1, MIRT_LINEAR));
    mirt_add_loss(m, mirt_clip(zero, 0, 0));
    compile.loss = MIRT_MEAN_SQUARED_ERROR;
    compile.optimizer = mirt_sgd(0, 0, false);
    ok(mirt_compile(m, &compile) == MIRT_OK && mirt_set_weight(m, "v1", odd, 6) == MIRT_OK, "weights of all ranks: %s",
       mirt_last_error());
    mirt_callback *c = board(in_work("board"), 1, 1, false), *off = mirt_terminate_on_nan(MIRT_NAN_OFF);
    ok(fit(m, 1, 1, off, c) != NULL, "pictures of them: %s", mirt_last_error());
    mirt_callback_destroy(c);
    mirt_callback_destroy(off);
    mirt_model_destroy(m);
}

/* Whether an event file below the directory holds the text. */
static bool board_holds(const char *directory, const char *text) {
    char command[900];
    snprintf(command, sizeof command, "grep -raqF '%s' '%s'", text, directory);
    return system(command) == 0;
}

/* The graph of a model of models, of layers with several inputs and of operations; and every allocation on the way. */
static void check_graph(mirt_strategy *s) {
    char directory[400];
    int wrong = 0, met = 0, spared = 0;
    bool reached = true;
    snprintf(directory, sizeof directory, "%s", in_work("graphs"));
    gallery_register(s);
    for (int i = 0; i < GALLERY; i++) {
        mirt_model *m = gallery_model(s, i);
        static float images[2 * 36];
        static const uint8_t classes[2] = {0, 1};
        static const float distances[2 * 3];
        mirt_compile_desc compile;
        mirt_data data;
        mirt_fit_desc d;
        memset(&data, 0, sizeof data);
        memset(&d, 0, sizeof d);
        data.x[0] = mirt_make_array(images, MIRT_FLOAT32, i ? MIRT_SHAPE(2, 3) : MIRT_SHAPE(2, 6, 6, 1));
        data.y[0] = mirt_make_array(classes, MIRT_UINT8, MIRT_SHAPE(2));
        memset(&compile, 0, sizeof compile);
        compile.loss = MIRT_MEAN_SQUARED_ERROR;
        for (int k = 0; i == 2 && k < 2; k++)
            data.y[k] = mirt_make_array(distances, MIRT_FLOAT32, MIRT_SHAPE(2, 3 - k));
        if (i == 2) mirt_compile(m, &compile);
        mirt_dataset *train = mirt_batch(mirt_arrays_of(&data), 2);
        mirt_callback *c = board(directory, 1, i == 2, false);
        d.callbacks[0] = c;
        d.no_progress = true;
        ok(m && mirt_fit(m, train, &d), "TensorBoard's graph of gallery model %d: %s", i, mirt_last_error());
        for (long number = 1; i == 2 && reached && wrong < 4; number++) {
            allocations = 0;
            fails = number;
            const bool done = mirt_fit(m, train, &d) != NULL;
            fails = 0;
            reached = allocations >= number;
            met += reached;
            spared += reached && done; /* the words of a verdict */
            if (reached && (done ? spared > 3 : mirt_last_status() != MIRT_E_NOMEM))
                wrong++, printf("# allocation %ld: %s\n", number, done ? "unnoticed" : mirt_last_error());
        }
        mirt_callback_destroy(c);
        mirt_dataset_destroy(train);
        mirt_model_destroy(m);
    }
    ok(!wrong && met > 50, "%d failed allocations of fits with TensorBoard, each reported", met);
    ok(board_holds(directory, "outer/inner/dense") && board_holds(directory, "of_mine") &&
           board_holds(directory, "inner:1"),
       "it names layers of parts by their paths, and the outputs of layers that have several");
}

/* Whether the callback keeps a file that its state lists when a fit begins. */
static void c_state(mirt_callback *c, const char *file, mirt_model *m, bool own) {
    char out[1200], state[1200], full[600];
    snprintf(full, sizeof full, "%s/%s\\n", work_directory(), file);
    snprintf(state, sizeof state,
             "{\"best\":0,\"has_best\":false,\"files\":\"%s\",\"last_step\":-1,\"last_whole\":false}", full);
    const bool loaded = c->load_state(state, c->user) == 0;
    ok(loaded && fit(m, 1, 0, c, NULL), "a state with %s: %s", file, loaded ? "" : mirt_last_error());
    c->save_state(out, sizeof out, c->user);
    ok((strstr(out, full) != NULL) == own, "%s is %s", file, own ? "kept" : "not ours");
}

/* Of the files that a checkpoint lists, those that the pattern gives are the run's. */
static void check_listed(mirt_strategy *s) {
    static const struct {
        const char *file;
        bool own;
    } files[] = {{"list/e1/s2.safetensors", true},     {"list/e1/s.safetensors", true},
                 {"list/e1/x.safetensors", false},     {"list/e./s2.safetensors", true},
                 {"list/e1/s2.safetensorsx", false},   {"list/e1", false},
                 {"other/e1/s2.safetensors", false},   {"list/e1/../s2.safetensors", false},
                 {"list/e1/s2/s3.safetensors", false}, {"", false}};
    char pattern[500], state[1200], out[1200];
    mirt_model *m = model_of(s, 1, NULL);
    snprintf(pattern, sizeof pattern, "%s/list/e{epoch}/s{step}.safetensors", work_directory());
    for (int i = 0; i < MIRT__COUNT(files); i++) {
        mirt_callback *c = checkpoint(pattern, 0, 9, MIRT_MODE_AUTO);
        c->save_state(out, sizeof out, c->user);
        char *at = strstr(out, "\"files\":\"\"");
        if (!at) break;
        snprintf(state, sizeof state, "%.*s\"files\":\"%s/%s\\n\"%s", (int)(at - out), out, work_directory(),
                 files[i].file, at + 10);
        const bool taken = c->load_state(state, c->user) == 0 && fit(m, 1, 0, c, NULL);
        c->save_state(out, sizeof out, c->user);
        char full[600];
        snprintf(full, sizeof full, "%s/%s\\n", work_directory(), files[i].file);
        ok(taken && (strstr(out, full) != NULL) == files[i].own, "a list with %s: %s", files[i].file,
           files[i].own ? "kept" : "not ours");
        mirt_callback_destroy(c);
    }
    mirt_callback *dots = checkpoint(in_work("dots/{epoch}/x"), 0, 9, MIRT_MODE_AUTO);
    c_state(dots, "dots/./x", m, false);
    c_state(dots, "dots/../x", m, false);
    c_state(dots, "dots/7/x", m, true);
    mirt_callback_destroy(dots);
    mirt_model_destroy(m);
}

int main(void) {
    char command[400];
    mirt_strategy *s = strategy_of(1, 1, 1);
    check_descriptions();
    check_memory();
    check_csv(s);
    check_csv_append(s);
    check_outputs(s);
    check_patterns(s);
    check_checkpoint_memory(s);
    check_leftovers(s);
    check_states();
    check_writer();
    check_board(s);
    check_graph(s);
    check_listed(s);
    mirt_strategy_destroy(s);
    ok(live_blocks == 0, "%ld blocks are left", live_blocks);
    snprintf(command, sizeof command, "rm -rf '%s'", work_directory());
    ok(system(command) == 0, "cleaned up");
    return done_testing();
}
