/* Tests checkpoint files: when they are written and under which names. Also damage, failing disks, and checkpoints
   that do not fit the run. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* >>a disk that fails */

/* Call number `fault_at` of those that write fails, by `fault_errno` (0: it writes a part), and all after it if
   `fault_stays`. */
static long calls, fault_at, renames;
static int fault_errno;
static bool fault_stays, counting;

static bool faulty(void) {
    if (!counting) return false;
    calls++;
    if (!fault_at || (calls != fault_at && !(fault_stays && calls > fault_at))) return false;
    errno = fault_errno;
    return true;
}

int hook_open(const char *path, int flags, unsigned mode) {
    struct stat info;
    bool writes = (flags & O_CREAT) || (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
    return writes && faulty() && fault_errno ? -1 : open(path, flags, mode);
}
ssize_t hook_pwrite(int fd, const void *data, size_t size, off_t offset) {
    if (faulty()) {
        if (fault_errno) return -1;
        size = size > 1 ? size / 2 : size;
    }
    return pwrite(fd, data, size, offset);
}
int hook_fsync(int fd) { return faulty() && fault_errno ? -1 : fsync(fd); }
int hook_close(int fd) {
    bool bad = faulty() && fault_errno;
    int code = errno, result = close(fd); /* the descriptor goes either way */
    if (bad) errno = code;
    return bad ? -1 : result;
}
int hook_rename(const char *from, const char *to) {
    if (faulty() && fault_errno) return -1;
    int result = rename(from, to);
    if (counting && result == 0) renames++;
    return result;
}

/* The time of day is wrong by so many seconds. */
static long clock_off;
int hook_clock(clockid_t clock, struct timespec *out) {
    int code = clock_gettime(clock, out);
    if (clock == CLOCK_REALTIME) out->tv_sec += clock_off;
    return code;
}

/* >>what the tests share */

enum { SAMPLES = 30 };
static char logged[8192];

static void on_log(mirt_log_level level, const char *text, void *user) {
    (void)level;
    (void)user;
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", text);
}

static mirt_strategy *strategy_with(int replicas, uint64_t seed) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = "1";
    d.replicas = replicas;
    d.threads = 1;
    d.seed = seed;
    d.log = on_log;
    return mirt_strategy_create(&d);
}

static mirt_model *small_model(mirt_strategy *s, int units, mirt_optimizer optimizer) {
    mirt_model *m = mirt_model_create(s, "small");
    mirt_compile_desc c = image_compile(optimizer);
    mirt_tensor *x = mirt_flatten(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)));
    mirt_model_output(m, named_dense(named_dense(x, "hidden", units, MIRT_RELU), "scores", IMAGE_CLASSES, MIRT_LINEAR));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static const char *in_work(const char *name, char out[400]) {
    snprintf(out, 400, "%.255s/%.100s", work_directory(), name);
    return out;
}

static mirt_fit_desc short_fit(int epochs, const mirt_callback *callback, const char *resume) {
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.epochs = epochs;
    fit.batch = 8;
    fit.no_progress = true;
    fit.callbacks[0] = callback;
    fit.resume = resume;
    return fit;
}

static mirt_history *fit_small(mirt_model *m, const mirt_fit_desc *fit) {
    return mirt_fit_arrays(m, images_x(0, SAMPLES), images_y(0, SAMPLES), fit);
}

/* Names in the work directory, sorted by their first letters, with a blank after each; removes them all if `clean`. */
static const char *listing(bool clean) {
    static char text[4096];
    char names[64][128], path[400];
    int count = 0;
    DIR *d = opendir(work_directory());
    for (const struct dirent *e; d && count < 64 && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] != '.') snprintf(names[count++], 128, "%.127s", e->d_name);
    }
    if (d) closedir(d);
    qsort(names, (size_t)count, sizeof names[0], (int (*)(const void *, const void *))strcmp);
    text[0] = 0;
    for (int i = 0; i < count; i++) {
        strcat(text, names[i]);
        strcat(text, " ");
        if (clean && unlink(in_work(names[i], path)) != 0) rmdir(path);
    }
    return text;
}

static mirt_callback *checkpoint(const char *name, int64_t every, int keep, bool at_end) {
    char path[400];
    mirt_model_checkpoint_desc d;
    memset(&d, 0, sizeof d);
    d.path = in_work(name, path);
    d.every_steps = every;
    d.keep = keep;
    d.at_end = at_end;
    return mirt_model_checkpoint(&d);
}

/* >>names */

static void check_names(void) {
    char path[400], want[64];
    mirt_model_checkpoint_desc d;
    mirt_strategy *s = strategy_with(2, 11);
    mirt_model *m = small_model(s, 7, mirt_adam(1e-3f));
    mirt_fit_desc fit = short_fit(3, NULL, NULL);
    mirt_callback *c = checkpoint("ckpt_{epoch}", 0, 0, false);
    fit.callbacks[0] = c;
    bool good = fit_small(m, &fit) != NULL;
    mirt_callback_destroy(c);
    ok(good && strcmp(listing(true), "ckpt_1 ckpt_2 ckpt_3 ") == 0, "ckpt_{epoch} counts from 1, as in Keras");
    memset(&d, 0, sizeof d);
    d.path = in_work("a/b/{epoch:02d}-{step:04d}-{loss:.3f}-{{x}}", path);
    fit.callbacks[0] = c = mirt_model_checkpoint(&d);
    fit.epochs = 1;
    mirt_history *h = c ? fit_small(m, &fit) : NULL;
    mirt_callback_destroy(c);
    snprintf(want, sizeof want, "a/b/01-%04d-%.3f-{x}", (int)mirt_step(m), mirt_history_last(h, "loss"));
    ok(h && unlink(in_work(want, path)) == 0, "widths, precisions, logs, braces, and directories that are made: %s",
       want);
    rmdir(in_work("a/b", path));
    rmdir(in_work("a", path));

    static const char *const wrong[][3] = {
        {"x_{epochs}", "{epochs}", "did you mean \"epoch\""},
        {"x_{val_loss}", "{val_loss}", "{accuracy}"},
        {"x_{zzz:.2f}", "{zzz}", "{epoch}, {step}, {loss}"},
    };
    for (int i = 0; i < MIRT__COUNT(wrong); i++) {
        int64_t before = mirt_step(m);
        fit.callbacks[0] = c = checkpoint(wrong[i][0], 0, 0, false);
        ok(c && !fit_small(m, &fit) && strstr(mirt_last_error(), wrong[i][1]) &&
               strstr(mirt_last_error(), wrong[i][2]) && mirt_step(m) == before,
           "a wrong name, before training: \"%s\"", mirt_last_error());
        mirt_callback_destroy(c);
    }
    static const char *const broken[] = {"x_{epoch", "x_{epoch:q}", "x_}", "x_{}", "", "x\n{step}"};
    for (int i = 0; i < MIRT__COUNT(broken); i++) {
        memset(&d, 0, sizeof d);
        d.path = broken[i];
        ok(!mirt_model_checkpoint(&d), "a wrong pattern: \"%s\"", mirt_last_error());
    }
    FILE *f = fopen(in_work("file", path), "w");
    if (f) fclose(f);
    fit.callbacks[0] = c = checkpoint("file/ckpt", 0, 0, false);
    ok(c && !fit_small(m, &fit) && mirt_last_status() == MIRT_E_IO && strstr(mirt_last_error(), "file"),
       "a directory that is a file: \"%s\"", mirt_last_error());
    mirt_callback_destroy(c);
    listing(true);
    mirt_strategy_destroy(s);
}

/* >>copies and states */

static bool touch(const char *name) {
    char path[400];
    FILE *f = fopen(in_work(name, path), "w");
    return f && fclose(f) == 0;
}

/* What a checkpoint of another place lists as its files stays where it is. */
static void check_copied(void) {
    char path[400];
    bool good = mkdir(in_work("first", path), 0777) == 0 && mkdir(in_work("second", path), 0777) == 0;
    for (int run = 0; run < 2; run++) {
        mirt_strategy *s = strategy_with(2, 11);
        mirt_model *m = small_model(s, 7, mirt_adam(1e-3f));
        mirt_callback *c = checkpoint(run ? "second/ckpt_{step:4d}" : "first/ckpt_{step:4d}", 1, 2, false);
        mirt_fit_desc fit = short_fit(3, c, run ? in_work("first", path) : NULL);
        fit.max_steps = run ? 8 : 4;
        good = good && fit_small(m, &fit) != NULL;
        mirt_callback_destroy(c);
        mirt_strategy_destroy(s);
        if (!run) good = good && touch("second/ckpt_   3") && touch("second/ckpt_   x");
    }
    static const char *const left[] = {"first/ckpt_   3",  "first/ckpt_   4",  "second/ckpt_   3",
                                       "second/ckpt_   x", "second/ckpt_   7", "second/ckpt_   8"};
    for (int i = 0; i < MIRT__COUNT(left); i++) good = unlink(in_work(left[i], path)) == 0 && good;
    good = rmdir(in_work("first", path)) == 0 && good;
    good = rmdir(in_work("second", path)) == 0 && good;
    ok(good, "a run that is resumed elsewhere removes only its own checkpoints");
    for (int step = 2; step < 5; step++) { /* in the same place it removes those from before it was broken off, too */
        mirt_strategy *s = strategy_with(2, 11);
        mirt_model *m = small_model(s, 7, mirt_adam(1e-3f));
        mirt_callback *c = checkpoint("{step}_{loss:.3f}_{{", 1, 2, false);
        mirt_fit_desc fit = short_fit(3, c, work_directory());
        fit.max_steps = step;
        good = good && fit_small(m, &fit) != NULL;
        mirt_callback_destroy(c);
        mirt_strategy_destroy(s);
    }
    const char *names = listing(true);
    ok(good && strncmp(names, "3_", 2) == 0 && strstr(names, "{ 4_"), "and in its own place those from before, too: %s",
       names);
}

typedef struct stateful {
    pthread_t thread;
    const char *text;
    bool strange, wrong;
    int loads;
} stateful;

static size_t save_text(char *text, size_t capacity, void *user) {
    stateful *s = (stateful *)user;
    s->strange = s->strange || !pthread_equal(s->thread, pthread_self());
    return (size_t)snprintf(text, capacity, "%s", s->text);
}

static int load_text(const char *text, void *user) {
    stateful *s = (stateful *)user;
    s->wrong = s->wrong || strcmp(text, s->text) != 0;
    return s->loads++ < 0;
}

static void check_states(void) {
    static const char *const cases[][3] = {
        {"mine", "mine", "other"}, {"mine", "mine_1", "mine"}, {"a", "\xff", "b"}, {"a", "b", NULL}};
    char many[100];
    memset(many, 'x', sizeof many - 1);
    many[sizeof many - 1] = 0;
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        static const char *const texts[] = {"one", "two \"\\\n", ""};
        stateful state[3];
        mirt_callback mine[3];
        mirt_strategy *s = strategy_with(2, 11);
        mirt_callback *c = checkpoint("ckpt_{step}", 2, 0, false);
        memset(mine, 0, sizeof mine);
        memset(state, 0, sizeof state);
        mirt_history *h = NULL;
        for (int run = 0; run < 2; run++) {
            mirt_fit_desc fit = short_fit(1, c, run ? work_directory() : NULL);
            fit.max_steps = run ? 0 : 3;
            for (int k = 0; k < 3; k++) {
                state[k].thread = pthread_self();
                state[k].text = texts[k];
                mine[k].name = cases[i][k] ? cases[i][k] : many;
                mine[k].save_state = save_text;
                mine[k].load_state = load_text;
                mine[k].user = &state[k];
                fit.callbacks[k + 1] = &mine[k];
            }
            h = fit_small(small_model(s, 7, mirt_adam(1e-3f)), &fit);
        }
        bool all = true;
        for (int k = 0; k < 3; k++) all = all && !state[k].strange && !state[k].wrong && state[k].loads == 1;
        if (i == 0)
            ok(h && all, "states of callbacks are saved on the caller's thread, and restored to the right callbacks");
        else
            ok(!h && mirt_last_status() == MIRT_E_INVALID && !state[0].loads,
               "states that could not be told apart: \"%s\"", mirt_last_error());
        mirt_callback_destroy(c);
        mirt_strategy_destroy(s);
        listing(true);
    }
}

/* >>which */

static int worsen(const mirt_event *event, void *user) {
    (void)user;
    mirt_logs *logs = (mirt_logs *)event->logs; /* better in epochs 0, 2 and 3 */
    static const double value[] = {5, 6, 4, 3, 3.5};
    for (int i = 0; i < logs->count; i++) {
        if (strcmp(logs->name[i], "loss") == 0) logs->value[i] = value[event->epoch];
    }
    return 0;
}

static void check_which(void) {
    char path[400];
    mirt_model_checkpoint_desc d;
    mirt_callback scripted;
    mirt_strategy *s = strategy_with(2, 11);
    mirt_model *m = small_model(s, 7, mirt_adam(1e-3f));
    mirt_fit_desc fit = short_fit(5, NULL, NULL);
    memset(&d, 0, sizeof d);
    memset(&scripted, 0, sizeof scripted);
    scripted.epoch_end = worsen;
    d.path = in_work("best_{epoch}", path);
    d.monitor = "loss";
    d.best_only = true;
    mirt_callback *c = mirt_model_checkpoint(&d);
    fit.callbacks[0] = &scripted;
    fit.callbacks[1] = c;
    ok(fit_small(m, &fit) && strcmp(listing(false), "best_1 best_3 best_4 ") == 0, "best_only: %s", listing(false));
    mirt_callback_destroy(c);
    /* from the third epoch on again, with a fresh callback: the best is known from the file */
    char third[400];
    mirt_strategy *t = strategy_with(2, 11);
    mirt_model *n = small_model(t, 7, mirt_adam(1e-3f));
    unlink(in_work("best_4", path));
    d.path = in_work("best_{epoch}", path);
    d.mode = MIRT_MODE_MIN;
    fit.callbacks[1] = c = mirt_model_checkpoint(&d);
    fit.resume = in_work("best_3", third);
    ok(fit_small(n, &fit) && strcmp(listing(true), "best_1 best_3 best_4 ") == 0,
       "after resuming, the best so far is known");
    mirt_callback_destroy(c);
    mirt_strategy_destroy(t);

    fit = short_fit(2, c = checkpoint("s_{step:02d}", 3, 2, false), NULL);
    ok(fit_small(m, &fit) && strcmp(listing(true), "s_24 s_27 ") == 0,
       "every third step, the last two are kept: from step 20 to 28");
    mirt_callback_destroy(c);
    fit = short_fit(2, c = checkpoint("s_{step:02d}", 3, 2, true), NULL);
    ok(fit_small(m, &fit) && strcmp(listing(true), "s_33 s_36 ") == 0, "at_end: also the last, which was due anyway");
    mirt_callback_destroy(c);
    fit = short_fit(2, c = checkpoint("s_{step:02d}", 5, 0, true), NULL);
    fit.max_steps = 6;
    ok(fit_small(m, &fit) && strcmp(listing(true), "s_40 s_42 ") == 0, "at_end in the middle of an epoch");
    mirt_callback_destroy(c);
    memset(&d, 0, sizeof d);
    d.path = in_work("weights", path);
    d.weights_only = true;
    fit = short_fit(1, c = mirt_model_checkpoint(&d), NULL);
    char latest[400], before[MIRT__SHA256_HEX], after[MIRT__SHA256_HEX];
    bool good =
        fit_small(m, &fit) != NULL && mirt_latest_checkpoint(s, work_directory(), latest, sizeof latest) == MIRT_OK;
    mirt_callback_destroy(c);
    digest_weights(m, 0, before);
    t = strategy_with(1, 5);
    n = small_model(t, 7, mirt_sgd(0.1f, 0, false));
    good = good && mirt_load_weights(n, latest) == MIRT_OK;
    digest_weights(n, 0, after);
    ok(good && strcmp(before, after) == 0, "weights alone are found as the latest and loaded");
    fit = short_fit(1, NULL, latest);
    ok(!fit_small(n, &fit) && mirt_last_status() == MIRT_E_FORMAT, "but they cannot be resumed: \"%s\"",
       mirt_last_error());
    fit = short_fit(1, c = checkpoint("anew", 0, 0, false), NULL);
    good = fit_small(n, &fit) && mirt_latest_checkpoint(s, work_directory(), latest, sizeof latest) == MIRT_OK;
    ok(good && mirt_step(n) < mirt_step(m) && strstr(latest, "/anew"),
       "a run begun later is newer than one of more steps: %s", latest);
    mirt_callback_destroy(c);
    ok(mirt_latest_checkpoint(s, work_directory(), latest, 4) == MIRT_E_SHAPE &&
           mirt_latest_checkpoint(s, "/no/such", latest, 40) == MIRT_E_NOT_FOUND,
       "no room, no directory: \"%s\"", mirt_last_error());
    listing(true);
    ok(mirt_latest_checkpoint(s, work_directory(), latest, sizeof latest) == MIRT_E_NOT_FOUND && !latest[0],
       "no checkpoint: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(t);
    mirt_strategy_destroy(s);
}

/* Turns the clock back by a day in the middle of a fit. */
static int turn_back(const mirt_event *event, void *user) {
    (void)user;
    clock_off -= event->epoch == 0 ? 86400 : 0;
    return 0;
}

/* A clock that is put right, or wrong: what was written last is the newest all the same. */
static void check_clock(void) {
    static const char *const names[] = {"before_{epoch}", "behind_{epoch}", "again_{epoch}"}, *const want[] = {
                                                                                                  "/before_2",
                                                                                                  "/behind_2",
                                                                                                  "/again_3"};
    char latest[400];
    mirt_callback back;
    memset(&back, 0, sizeof back);
    back.epoch_end = turn_back;
    clock_off = 10 * 86400;
    for (int k = 0; k < 3; k++) {
        mirt_strategy *s = strategy_with(2, 11);
        mirt_model *m = small_model(s, 7, mirt_adam(1e-3f));
        mirt_callback *c = checkpoint(names[k], 0, 0, false);
        mirt_fit_desc fit = short_fit(k == 2 ? 3 : 2, c, k == 2 ? work_directory() : NULL);
        fit.callbacks[1] = &back;
        const bool good =
            fit_small(m, &fit) && mirt_latest_checkpoint(s, work_directory(), latest, sizeof latest) == MIRT_OK;
        ok(good && strstr(latest, want[k]), "the clock is turned back, and %s is the newest: %s", want[k] + 1,
           good ? latest : mirt_last_error());
        mirt_callback_destroy(c);
        mirt_strategy_destroy(s);
        clock_off -= 86400;
    }
    clock_off = 0;
    listing(true);
}

/* >>what does not go together */

static void expect_refused(mirt_strategy *s, mirt_model *m, mirt_fit_desc *fit, int64_t samples, const char *was,
                           const char *is) {
    char before[MIRT__SHA256_HEX], after[MIRT__SHA256_HEX];
    digest_weights(m, 0, before);
    mirt_history *h = mirt_fit_arrays(m, images_x(0, samples), images_y(0, samples), fit);
    digest_weights(m, 0, after);
    ok(!h && strstr(mirt_last_error(), was) && strstr(mirt_last_error(), is) && strcmp(before, after) == 0 &&
           mirt_step(m) == 0,
       "\"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
}

static void check_refused(void) {
    char path[400];
    mirt_strategy *s = strategy_with(2, 11);
    mirt_model *m = small_model(s, 7, mirt_adam(1e-3f));
    mirt_callback *c = checkpoint("ckpt", 5, 0, false);
    mirt_fit_desc fit = short_fit(2, c, NULL);
    ok(fit_small(m, &fit) != NULL, "a run of 2 replicas, global batches of 8, 30 samples, seed 11");
    mirt_callback_destroy(c);
    mirt_strategy_destroy(s);
    fit = short_fit(2, NULL, in_work("ckpt", path));
    s = strategy_with(3, 11);
    expect_refused(s, small_model(s, 7, mirt_adam(1e-3f)), &fit, SAMPLES, "2 replicas", "3 replicas");
    s = strategy_with(2, 12);
    expect_refused(s, small_model(s, 7, mirt_adam(1e-3f)), &fit, SAMPLES, "seed 11", "seed 12");
    s = strategy_with(2, 11);
    expect_refused(s, small_model(s, 7, mirt_adam(1e-3f)), &fit, 31, "30 samples", "31 samples");
    s = strategy_with(2, 11);
    expect_refused(s, small_model(s, 8, mirt_adam(1e-3f)), &fit, SAMPLES, "another model", "hidden");
    s = strategy_with(2, 11);
    expect_refused(s, small_model(s, 7, mirt_sgd(0.1f, 0, false)), &fit, SAMPLES, "adam", "sgd");
    s = strategy_with(2, 11);
    m = mirt_model_create(s, "metrics");
    mirt_compile_desc compile = image_compile(mirt_adam(1e-3f));
    memset(compile.metrics, 0, sizeof compile.metrics);
    mirt_model_output(m, named_dense(named_dense(mirt_flatten(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1))), "hidden",
                                                 7, MIRT_RELU),
                                     "scores", IMAGE_CLASSES, MIRT_LINEAR));
    mirt_compile(m, &compile);
    expect_refused(s, m, &fit, SAMPLES, "accuracy", "metrics");
    fit.batch = 4;
    s = strategy_with(2, 11);
    expect_refused(s, small_model(s, 7, mirt_adam(1e-3f)), &fit, SAMPLES, "batches of 8", "batches of 4");
    fit.batch = 8;
    fit.steps_per_epoch = 3;
    s = strategy_with(2, 11);
    expect_refused(s, small_model(s, 7, mirt_adam(1e-3f)), &fit, SAMPLES, "epochs of 0 steps", "epochs of 3 steps");
    mirt_optimizer amsgrad = mirt_adam(1e-3f);
    amsgrad.amsgrad = true;
    s = strategy_with(2, 11);
    m = small_model(s, 7, amsgrad);
    fit = short_fit(1, c = checkpoint("ckpt", 0, 0, false), NULL);
    ok(fit_small(m, &fit) != NULL, "a run with AMSGrad");
    mirt_callback_destroy(c);
    mirt_strategy_destroy(s);
    fit = short_fit(2, NULL, path);
    s = strategy_with(2, 11);
    expect_refused(s, small_model(s, 7, mirt_adam(1e-3f)), &fit, SAMPLES, "adam (3 values", "adam (2)");
    listing(true);
}

/* >>damage */

static void damage(const char *name, int64_t at, bool cut) {
    char path[400];
    size_t size;
    char *bytes = file_bytes(in_work(name, path), &size);
    FILE *f = fopen(path, "wb");
    if (at < 0) at += (int64_t)size;
    bytes[at] ^= 0x10;
    if (f) fwrite(bytes, 1, cut ? (size_t)at : size, f);
    if (f) fclose(f);
    free(bytes);
}

static void check_damage(void) {
    char latest[400], path[400], whole[MIRT__SHA256_HEX], part[MIRT__SHA256_HEX];
    mirt_strategy *s = strategy_with(2, 11);
    mirt_model *m = small_model(s, 7, mirt_adam(1e-3f));
    mirt_callback *c = checkpoint("c_{step:02d}.safetensors", 2, 0, false);
    mirt_fit_desc fit = short_fit(2, c, NULL);
    bool good = fit_small(m, &fit) != NULL;
    mirt_callback_destroy(c);
    digest_weights(m, 0, whole);
    ok(good && mirt_latest_checkpoint(s, work_directory(), latest, sizeof latest) == MIRT_OK && strstr(latest, "c_08"),
       "the newest of %s", listing(false));
    damage("c_08.safetensors", -1, false);  /* the last byte of a tensor */
    damage("c_06.safetensors", 300, false); /* in the header */
    damage("c_04.safetensors", 1000, true);
    FILE *f = fopen(in_work("log.jsonl", path), "w");
    if (f) fputs("{\"event\":\"begin\"}\n", f);
    if (f) fclose(f);
    logged[0] = 0;
    good = mirt_latest_checkpoint(s, work_directory(), latest, sizeof latest) == MIRT_OK;
    ok(good && strstr(latest, "c_02"), "with three of them damaged it is %s",
       good ? strrchr(latest, '/') + 1 : mirt_last_error());
    ok(strstr(logged, "c_08") && strstr(logged, "c_06") && strstr(logged, "c_04") && !strstr(logged, "log.jsonl"),
       "the log names them: %.200s", logged);
    mirt_strategy *t = strategy_with(2, 11);
    mirt_model *n = small_model(t, 7, mirt_adam(1e-3f));
    fit = short_fit(2, NULL, in_work("c_08.safetensors", path));
    ok(!fit_small(n, &fit) && mirt_last_status() == MIRT_E_FORMAT && strstr(mirt_last_error(), "c_08"),
       "resuming from a damaged one: \"%s\"", mirt_last_error());
    fit.resume = work_directory();
    logged[0] = 0;
    good = fit_small(n, &fit) != NULL;
    digest_weights(n, 0, part);
    ok(good && strcmp(whole, part) == 0 && strstr(logged, "c_02.safetensors: step 2"),
       "resuming from the directory is bit-identical");
    damage("c_02.safetensors", 1000, true);
    n = small_model(t, 7, mirt_adam(1e-3f));
    ok(!fit_small(n, &fit) && mirt_last_status() == MIRT_E_FORMAT && strstr(mirt_last_error(), "c_08.safetensors") &&
           strstr(mirt_last_error(), "begin anew") && mirt_step(n) == 0,
       "where all are damaged nothing begins anew over them: \"%s\"", mirt_last_error());
    ok(mirt_latest_checkpoint(t, work_directory(), latest, sizeof latest) == MIRT_E_NOT_FOUND,
       "none of them is the newest: %s", mirt_last_error());
    for (int step = 2; step < 8; step += 2) {
        snprintf(latest, sizeof latest, "c_%02d.safetensors", step);
        unlink(in_work(latest, path));
    }
    damage("c_08.safetensors", 300, false);
    ok(!fit_small(n, &fit) && mirt_last_status() == MIRT_E_FORMAT && strstr(mirt_last_error(), "c_08.safetensors"),
       "nor over one whose header is damaged: \"%s\"", mirt_last_error());
    char half[400];
    snprintf(latest, sizeof latest, "%s", in_work("c_08.safetensors", path));
    snprintf(half, sizeof half, "%s", in_work("c_08.safetensors.17-4.tmp", path));
    logged[0] = 0;
    ok(rename(latest, half) == 0 && fit_small(n, &fit) && strstr(logged, "begins anew"),
       "half a file of a killed run is no checkpoint: \"%s\"", logged);
    listing(true);
    logged[0] = 0;
    fit.resume = in_work("not/there", path);
    n = small_model(t, 7, mirt_adam(1e-3f));
    good = fit_small(n, &fit) != NULL;
    digest_weights(n, 0, part);
    ok(good && strcmp(whole, part) == 0 && strstr(logged, "begins anew"), "without any it begins anew and says so");
    fit.resume = in_work("not.safetensors", path);
    ok(!fit_small(n, &fit) && mirt_last_status() == MIRT_E_NOT_FOUND, "a file that is not there: \"%s\"",
       mirt_last_error());
    mirt_strategy_destroy(t);
    mirt_strategy_destroy(s);
}

/* >>a disk that fails */

static bool run_faulty(char digest[MIRT__SHA256_HEX], bool resume) {
    mirt_strategy *s = strategy_with(2, 11);
    mirt_model *m = small_model(s, 5, mirt_adam(1e-3f));
    mirt_callback *c = checkpoint("c_{step:02d}.safetensors", 3, 2, true);
    mirt_fit_desc fit = short_fit(2, c, resume ? work_directory() : NULL);
    calls = renames = 0;
    counting = !resume;
    bool good = fit_small(m, &fit) != NULL;
    counting = false;
    if (good) digest_weights(m, 0, digest);
    mirt_callback_destroy(c);
    mirt_strategy_destroy(s);
    return good;
}

/* Each call that writes fails. Whatever had taken its place before stays valid, and training resumes from it with the
   same result. */
static void check_faults(int error, bool stays, const char *name) {
    char whole[MIRT__SHA256_HEX], part[MIRT__SHA256_HEX], latest[400];
    static const int written[] = {0, 3, 6, 8};
    int wrong = 0, told = 0;
    fault_at = 0;
    bool good = run_faulty(whole, false);
    const long count = calls;
    listing(true);
    fault_errno = error;
    fault_stays = stays;
    long step = small_tier() ? 9 : 1, tried = 0;
    for (long k = 1; good && k <= count; k += step, tried++) {
        fault_at = k;
        bool finished = run_faulty(part, false);
        const int least = written[renames > 3 ? 3 : renames];
        told += !finished;
        bool fine = finished ? strcmp(whole, part) == 0
                             : mirt_last_status() == MIRT_E_IO && strstr(mirt_last_error(), work_directory());
        if (!error) fine = fine && finished;
        fine = fine && !strstr(listing(false), ".tmp");
        fault_at = 0;
        bool found = mirt_latest_checkpoint(NULL, work_directory(), latest, sizeof latest) == MIRT_OK;
        fine = fine && found == (least > 0) && (!found || atoi(strstr(latest, "/c_") + 3) == least);
        fine = fine && run_faulty(part, true) && strcmp(whole, part) == 0;
        if (!fine && !wrong++)
            printf("# call %ld of %ld: %s, %d, %s: %s\n", k, count, finished ? "finished" : "failed", least,
                   found ? latest : "none", mirt_last_error());
        listing(true);
    }
    ok(good && !wrong,
       "%s%s at each of %ld calls that write (%d fits end with an error): what was there is valid, and training "
       "resumes from it",
       name, stays ? ", for ever," : "", tried, told);
}

/* Each allocation of a resumed fit fails once. */
static void check_memory_faults(void) {
    long before = live_blocks, wrong = 0, k = 1;
    char path[400];
    mirt_strategy *s = strategy_with(2, 11);
    mirt_model *m = small_model(s, 5, mirt_adam(1e-3f));
    mirt_callback *c = checkpoint("c", 5, 0, false);
    mirt_fit_desc fit = short_fit(2, c, NULL);
    bool good = fit_small(m, &fit) != NULL;
    mirt_callback_destroy(c);
    mirt_strategy_destroy(s);
    wrong += live_blocks != before;
    bool finished = false;
    for (; good && !finished && k < 5000; k += small_tier() ? 11 : 1) {
        mirt_early_stopping_desc early;
        memset(&early, 0, sizeof early);
        early.monitor = "loss";
        early.patience = 5;
        early.restore_best_weights = true;
        s = strategy_with(2, 11);
        m = small_model(s, 5, mirt_adam(1e-3f));
        c = mirt_early_stopping(&early);
        mirt_callback *writer = checkpoint("d", 3, 2, false);
        fit = short_fit(2, c, work_directory());
        fit.callbacks[1] = writer;
        unlink(in_work("d", path));
        allocations = 0;
        fails = k;
        finished = fit_small(m, &fit) != NULL;
        fails = 0;
        bool late = finished && allocations >= k; /* it failed, and was not needed */
        if ((!finished && mirt_last_status() != MIRT_E_NOMEM && mirt_last_status() != MIRT_E_IO) || late) {
            if (!wrong++) printf("# allocation %ld: %s\n", k, finished ? "not told" : mirt_last_error());
        }
        if (late) finished = false;
        mirt_callback_destroy(c);
        mirt_callback_destroy(writer);
        mirt_strategy_destroy(s);
        if (live_blocks != before && !wrong++)
            printf("# allocation %ld: %ld blocks are left\n", k, live_blocks - before);
        before = live_blocks;
    }
    ok(good && finished && !wrong, "each of %ld allocations of a resumed fit fails once: an error, and nothing leaks",
       k - 1);
    listing(true);
}

/* >>backup and restore */

typedef struct crash {
    int64_t at;
} crash;

static int on_batch(const mirt_event *event, void *user) {
    if (event->step != ((const crash *)user)->at) return 0;
    mirt__fail(MIRT_E_IO, "a crash");
    return MIRT_CALLBACK_FAILED;
}

static void check_backup(void) {
    char whole[MIRT__SHA256_HEX], part[MIRT__SHA256_HEX], path[400];
    mirt_backup_desc d;
    mirt_callback breaks;
    crash at = {6};
    memset(&d, 0, sizeof d);
    memset(&breaks, 0, sizeof breaks);
    breaks.user = &at;
    breaks.batch_end = on_batch;
    d.directory = in_work("back{up}", path);
    for (int every = 0; every < 3; every += 2) {
        mirt_strategy *s = strategy_with(2, 11);
        mirt_model *m = small_model(s, 7, mirt_adam(1e-3f));
        mirt_fit_desc fit = short_fit(3, NULL, NULL);
        bool good = fit_small(m, &fit) != NULL;
        digest_weights(m, 0, whole);
        d.every_steps = every;
        mirt_callback *c = mirt_backup_and_restore(&d);
        m = small_model(s, 7, mirt_adam(1e-3f));
        fit.callbacks[0] = c;
        fit.callbacks[1] = &breaks;
        good = good && c && !fit_small(m, &fit) && strcmp(mirt_last_error(), "a crash") == 0;
        mirt_callback_destroy(c);
        mirt_strategy_destroy(s);
        s = strategy_with(2, 11);
        m = small_model(s, 7, mirt_adam(1e-3f));
        fit.callbacks[0] = c = mirt_backup_and_restore(&d);
        fit.callbacks[1] = NULL;
        logged[0] = 0;
        good = good && fit_small(m, &fit) != NULL;
        digest_weights(m, 0, part);
        ok(good && strcmp(whole, part) == 0 && strstr(logged, every ? "step 6" : "step 4") && rmdir(path) == 0,
           "after a crash, a fit with a backup every %s resumes, and removes it", every ? "2 steps" : "epoch");
        mirt_callback_destroy(c);
        mirt_strategy_destroy(s);
    }
    ok(!mirt_backup_and_restore(NULL) && strstr(mirt_last_error(), "directory"), "no directory: \"%s\"",
       mirt_last_error());
}

int main(void) {
    draw_images();
    check_names();
    check_copied();
    check_states();
    check_which();
    check_clock();
    check_refused();
    check_damage();
    check_backup();
    check_faults(EIO, false, "EIO");
    check_faults(EIO, true, "EIO");
    check_faults(ENOSPC, false, "ENOSPC");
    check_faults(ENOSPC, true, "ENOSPC");
    check_faults(0, false, "a short write");
    check_faults(0, true, "short writes");
    check_memory_faults();
    ok(rmdir(work_directory()) == 0, "nothing is left behind");
    return done_testing();
}
