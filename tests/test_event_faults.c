/* Tests logs and event files while memory, opening, writing and closing fail. One call fails at a time: fit ends with
   an error that names the file, nothing leaks, and what was written before is whole. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"
#include <sys/types.h>
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A call of one kind that fails, and how. */
enum { NO_CALL, OPEN, WRITE, SHORT_WRITE, CLOSE, KINDS };
static const char *const kind_names[KINDS] = {"", "opening", "writing", "writing a part", "closing"};
static int kind, code;
static long calls[KINDS], failing;

static bool fails_now(int which) { return ++calls[which] == failing && kind == which; }

int hook_open(const char *path, int flags, unsigned mode) {
    if ((flags & O_WRONLY) && fails_now(OPEN)) {
        errno = code;
        return -1;
    }
    return open(path, flags, mode);
}

ssize_t hook_pwrite(int fd, const void *data, size_t size, off_t offset) {
    static bool full;
    const bool part = fails_now(SHORT_WRITE);
    if (fails_now(WRITE) || full) {
        full = false;
        errno = code;
        return -1;
    }
    if (part && size > 1) {
        full = true;
        size /= 2;
    }
    return pwrite(fd, data, size, offset);
}

int hook_close(int fd) {
    const bool written = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY, fail = written && fails_now(CLOSE);
    const int result = close(fd);
    if (!fail) return result;
    errno = code;
    return -1;
}

static char home[512];
static mirt_strategy *strategy;

static mirt_model *make_model(void) {
    mirt_model *model = mirt_model_create(strategy, "m");
    mirt_dense_desc dense;
    mirt_compile_desc compile;
    memset(&dense, 0, sizeof dense);
    memset(&compile, 0, sizeof compile);
    dense.units = 3;
    if (model) mirt_model_output(model, mirt_dense(mirt_input(model, MIRT_SHAPE(2)), &dense));
    compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    compile.from_logits = true;
    if (model && mirt_compile(model, &compile) == MIRT_OK) return model;
    mirt_model_destroy(model);
    return NULL;
}

static void empty_home(void) {
    char command[1100];
    snprintf(command, sizeof command, "rm -rf '%s'; mkdir '%s'", home, home);
    if (system(command) != 0) printf("# %s failed\n", command);
}

/* A fit with all three callbacks; what went wrong is in `message`. */
static mirt_status run(char message[512]) {
    static const float x[8 * 2] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6};
    static const unsigned char y[8] = {0, 1, 2, 0, 1, 2, 0, 1};
    char path[3][600];
    mirt_fit_desc fit;
    mirt_csv_logger_desc csv;
    mirt_json_logger_desc json;
    mirt_tensorboard_desc board;
    mirt_callback *c[3] = {NULL, NULL, NULL};
    mirt_dataset *validation = NULL;
    memset(&fit, 0, sizeof fit);
    memset(&csv, 0, sizeof csv);
    memset(&json, 0, sizeof json);
    memset(&board, 0, sizeof board);
    for (int i = 0; i < 3; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", home, i == 0 ? "log.csv" : i == 1 ? "log.jsonl" : "board");
    csv.path = path[0];
    json.path = path[1];
    board.log_dir = path[2];
    json.steps = board.update_freq = board.histogram_freq = 1;
    board.write_images = true;
    const mirt_array ax = mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(8, 2)),
                     ay = mirt_make_array(y, MIRT_UINT8, MIRT_SHAPE(8));
    mirt_model *model = make_model();
    bool good = model && (c[0] = mirt_csv_logger(&csv)) && (c[1] = mirt_json_logger(&json)) &&
                (c[2] = mirt_tensorboard(&board)) && (validation = mirt_arrays(ax, ay));
    fit.epochs = 2;
    fit.batch = 4;
    fit.no_progress = true;
    fit.validation = validation;
    for (int i = 0; i < 3; i++) fit.callbacks[i] = c[i];
    good = good && mirt_fit_arrays(model, ax, ay, &fit);
    const mirt_status status = good ? MIRT_OK : mirt_last_status();
    snprintf(message, 512, "%s", good ? "" : mirt_last_error());
    mirt_dataset_destroy(validation);
    for (int i = 0; i < 3; i++) mirt_callback_destroy(c[i]);
    mirt_model_destroy(model);
    return status;
}

/* Every line of the CSV file but the last is whole. */
static bool lines_whole(void) {
    char path[600], line[256];
    bool good = true;
    snprintf(path, sizeof path, "%s/log.csv", home);
    FILE *file = fopen(path, "rb");
    while (file && fgets(line, sizeof line, file)) {
        int commas = 0;
        for (const char *at = line; *at; at++) commas += *at == ',';
        good = good && (commas == 3 || !strchr(line, '\n'));
    }
    if (file) fclose(file);
    return good;
}

static void fail_memory(void) {
    char message[512];
    long wrong = 0, spared = 0, before, count;
    empty_home();
    run(message);
    before = live_blocks;
    allocations = 0;
    mirt_status status = run(message);
    count = allocations;
    ok(status == MIRT_OK && live_blocks == before, "a run: %ld allocations, none left %s", count, message);
    for (long k = 1; k <= count; k++) {
        allocations = 0;
        fails = k;
        status = run(message);
        fails = 0;
        if (status == MIRT_OK) spared++; /* times are of several lengths; a verdict can do without words */
        if ((status == MIRT_E_NOMEM || (status == MIRT_OK && spared <= 3)) && live_blocks == before) continue;
        if (!wrong++)
            printf("# allocation %ld: %s, %ld blocks left: %s\n", k, mirt_status_text(status), live_blocks - before,
                   message);
        before = live_blocks;
    }
    ok(wrong == 0, "each of them may fail");
}

static void fail_files(int which, int error) {
    char message[512];
    long wrong = 0;
    empty_home();
    memset(calls, 0, sizeof calls);
    kind = NO_CALL;
    mirt_status status = run(message);
    const long count = calls[which], before = live_blocks;
    bool named = true;
    kind = which;
    code = error;
    for (long k = 1; k <= count && status == MIRT_OK; k++) {
        empty_home();
        memset(calls, 0, sizeof calls);
        failing = k;
        const mirt_status how = run(message);
        named = named && strncmp(message, home, strlen(home)) == 0 && strstr(message, strerror(error));
        if (how != MIRT_OK && named && live_blocks == before && lines_whole()) continue;
        if (!wrong++)
            printf("# call %ld: %s, %ld blocks left: %s\n", k, mirt_status_text(how), live_blocks - before, message);
    }
    kind = NO_CALL;
    failing = 0;
    ok(status == MIRT_OK && count >= 5 && wrong == 0,
       "%s: each of %ld calls may fail, and the error says of which file: %s", kind_names[which], count, message);
}

static void say_nothing(mirt_log_level level, const char *text, void *user) { (void)level, (void)text, (void)user; }

int main(void) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "1";
    desc.threads = 1;
    desc.log = say_nothing;
    snprintf(home, sizeof home, "%s/mirt_event_faults_%ld", tap_tmpdir(), (long)getpid());
    strategy = mirt_strategy_create(&desc);
    fail_memory();
    fail_files(OPEN, EACCES);
    fail_files(WRITE, ENOSPC);
    fail_files(SHORT_WRITE, EIO);
    fail_files(CLOSE, EIO);
    mirt_strategy_destroy(strategy);
    ok(live_blocks == 0, "nothing is left");
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", home);
    return system(command) != 0 || done_testing();
}
