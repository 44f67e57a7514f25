/* Crafted checkpoints with correct checksums and harmful contents are refused. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SAMPLES = 30,
    BATCH = 8,
    STEPS = 6,
    EPOCHS = 3
}; /* 4 steps per epoch: the checkpoint is in the middle of the second */

/* No power fails here, and a thousand runs are faster without. */
int hook_fsync(int fd) { return (void)fd, 0; }

/* >>one run with every callback that keeps a state */

static char logged[8192];

static void on_log(mirt_log_level level, const char *text, void *user) {
    (void)level;
    (void)user;
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", text);
}

static const char *in_work(const char *name, char out[400]) {
    snprintf(out, 400, "%.255s/%.100s", work_directory(), name);
    return out;
}

static size_t save_text(char *text, size_t capacity, void *user) {
    (void)user;
    return (size_t)snprintf(text, capacity, "mine");
}

static int loads;
static int load_text(const char *text, void *user) {
    (void)user;
    loads++;
    return strcmp(text, "mine") != 0;
}

typedef struct run {
    mirt_strategy *strategy;
    mirt_model *model;
    mirt_callback *ready[7];
    mirt_callback mine;
    mirt_fit_desc fit;
} run;

static const char *pattern = "ckpt_{step:02d}.safetensors";

static void run_open(run *r, const char *resume, int64_t max_steps) {
    static char path[4][400];
    mirt_strategy_desc s;
    mirt_early_stopping_desc early;
    mirt_reduce_lr_desc reduce;
    mirt_model_checkpoint_desc checkpoint;
    mirt_csv_logger_desc csv;
    mirt_json_logger_desc json;
    mirt_tensorboard_desc board;
    memset(r, 0, sizeof *r);
    memset(&s, 0, sizeof s);
    memset(&early, 0, sizeof early);
    memset(&reduce, 0, sizeof reduce);
    memset(&checkpoint, 0, sizeof checkpoint);
    memset(&csv, 0, sizeof csv);
    memset(&json, 0, sizeof json);
    memset(&board, 0, sizeof board);
    s.devices = "1";
    s.replicas = 2;
    s.threads = 1;
    s.seed = 11;
    s.log = on_log;
    r->strategy = mirt_strategy_create(&s);
    r->model = mirt_model_create(r->strategy, "small");
    mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
    mirt_tensor *x = mirt_flatten(mirt_input(r->model, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)));
    mirt_model_output(r->model,
                      named_dense(named_dense(x, "hidden", 3, MIRT_RELU), "scores", IMAGE_CLASSES, MIRT_LINEAR));
    mirt_compile(r->model, &c);
    early.monitor = reduce.monitor = "loss";
    early.patience = 5;
    early.restore_best_weights = true;
    checkpoint.path = in_work(pattern, path[0]);
    checkpoint.every_steps = 2;
    checkpoint.keep = 2;
    checkpoint.at_end = true;
    csv.path = in_work("log.csv", path[1]);
    json.path = in_work("log.jsonl", path[2]);
    board.log_dir = in_work("board", path[3]);
    r->ready[0] = mirt_early_stopping(&early);
    r->ready[1] = mirt_reduce_lr_on_plateau(&reduce);
    r->ready[2] = mirt_model_checkpoint(&checkpoint);
    r->ready[3] = mirt_csv_logger(&csv);
    r->ready[4] = mirt_json_logger(&json);
    r->ready[5] = mirt_tensorboard(&board);
    r->mine.name = "mine";
    r->mine.save_state = save_text;
    r->mine.load_state = load_text;
    for (int i = 0; i < 6; i++) r->fit.callbacks[i] = r->ready[i];
    r->fit.callbacks[6] = &r->mine;
    r->fit.epochs = EPOCHS;
    r->fit.batch = BATCH;
    r->fit.no_progress = true;
    r->fit.max_steps = max_steps;
    r->fit.resume = resume;
}

static mirt_history *run_fit(run *r) {
    return mirt_fit_arrays(r->model, images_x(0, SAMPLES), images_y(0, SAMPLES), &r->fit);
}

static void run_close(run *r) {
    for (int i = 0; i < 6; i++) mirt_callback_destroy(r->ready[i]);
    mirt_strategy_destroy(r->strategy);
}

static void clean(const char *directory) {
    char path[700];
    DIR *d = opendir(directory);
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
        struct stat info;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%.300s/%.255s", directory, e->d_name);
        if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
            clean(path);
            rmdir(path);
        } else unlink(path);
    }
    if (d) closedir(d);
}

/* >>crafting */

/* A good checkpoint, taken apart. */
static mirt__safetensors good;
static char *good_bytes;
static size_t good_size;

/* What is changed in it; the checksums are made anew. */
typedef struct edit {
    const char *key, *value; /* of the metadata "training": the value of the first member `key` becomes this text; NULL:
                                the member goes */
    const char *tensor;       /* this tensor gets `rows` and `columns`, filled with `fill`; NULL: none */
    int64_t rows, columns;    /* rows < 0: it goes; columns 0: of rank 1 */
    double fill;
    mirt__st_dtype dtype;
    const char *want;         /* in the message */
} edit;

/* Where the value that begins at `at` ends, in JSON or in JSON in a string of JSON. */
static const char *value_end(const char *at, bool inner) {
    int depth = 0;
    bool quoted = false;
    for (; *at; at++) {
        if (inner && !quoted && *at == '"') return at;
        if (*at == '\\') {
            int slashes = 0;
            while (at[slashes] == '\\') slashes++;
            if (inner && slashes == 1 && at[1] == '"') quoted = !quoted;
            at += slashes;
        } else if (!inner && *at == '"') quoted = !quoted;
        else if (!quoted && strchr("[{", *at)) depth++;
        else if (!quoted && strchr("]},", *at) && depth == 0) return at;
        else if (!quoted && strchr("]}", *at)) depth--;
    }
    return at;
}

/* The text with another value of the member `key`, which is there; "early_stopping/wait" is a member of that callback's
   state. */
static char *with_value(const char *text, const char *key, const char *value) {
    char quoted[200], label[100] = "";
    const char *slash = strchr(key, '/'), *from = text;
    if (slash) {
        snprintf(label, sizeof label, "\"%.*s\":\"{", (int)(slash - key), key);
        snprintf(quoted, sizeof quoted, "\\\"%s\\\":", slash + 1);
        from = strstr(text, label);
    } else snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = from ? strstr(from, quoted) : NULL;
    if (!at) return NULL;
    const char *begin = at + strlen(quoted), *end = value_end(begin, slash != NULL);
    char *out = (char *)malloc(strlen(text) + (value ? strlen(value) : 0) + 1);
    if (!value) { /* with one of the commas around it */
        begin = at;
        if (*end == ',') end++;
        else if (begin[-1] == ',') begin--;
    }
    sprintf(out, "%.*s%s%s", (int)(begin - text), text, value ? value : "", end);
    return out;
}

static bool write_crafted(const char *path, const edit *list, int count) {
    mirt__safetensors_content content;
    const char *pairs[32];
    char *training = NULL;
    int written = 0;
    bool all = true;
    memset(&content, 0, sizeof content);
    mirt__safetensor *tensor = (mirt__safetensor *)calloc((size_t)(good.count + count), sizeof *tensor);
    double *filled[16] = {NULL};
    for (int i = 0; i < good.count; i++) tensor[content.count++] = good.tensor[i];
    for (size_t i = 0; i < good.metadata->count; i++) {
        const mirt__json *m = good.metadata->item[i];
        if (strncmp(m->key, "mirrortrain.", 12) == 0) continue;
        const char *text = m->string;
        for (int k = 0; k < count && strcmp(m->key, "training") == 0; k++) {
            if (!list[k].key) continue;
            char *changed = with_value(text, list[k].key, list[k].value);
            all = all && changed;
            if (!changed) continue;
            free(training);
            text = training = changed;
        }
        pairs[written++] = m->key;
        pairs[written++] = text;
    }
    for (int k = 0; k < count; k++) {
        const edit *e = &list[k];
        if (!e->tensor) continue;
        int at = 0;
        while (at < content.count && strcmp(tensor[at].name, e->tensor) != 0) at++;
        if (e->rows < 0) {
            all = all && at < content.count;
            memmove(&tensor[at], &tensor[at + 1], (size_t)(--content.count - at) * sizeof *tensor);
            continue;
        }
        if (at == content.count) content.count++;
        mirt__safetensor *t = &tensor[at];
        memset(t, 0, sizeof *t);
        t->name = e->tensor;
        t->dtype = e->dtype == MIRT__ST_BOOL ? MIRT__ST_F64 : e->dtype;
        t->rank = e->columns ? 2 : 1;
        t->dim[0] = e->rows;
        t->dim[1] = e->columns;
        const size_t items = (size_t)(e->rows * (e->columns ? e->columns : 1));
        filled[k] = (double *)malloc((items + 1) * sizeof(double));
        for (size_t i = 0; i < items; i++) filled[k][i] = e->fill;
        t->data = filled[k];
    }
    content.tensor = tensor;
    content.metadata = pairs;
    content.metadata_count = written / 2;
    const bool done = mirt__safetensors_write(path, &content) == MIRT_OK;
    if (!done) printf("# cannot be written: %s\n", mirt_last_error());
    for (int k = 0; k < count; k++) free(filled[k]);
    free(tensor);
    free(training);
    return all && done;
}

static bool make_good(void) {
    run r;
    char path[400];
    run_open(&r, NULL, STEPS);
    const bool done = run_fit(&r) != NULL;
    run_close(&r);
    good_bytes = file_bytes(in_work("ckpt_06.safetensors", path), &good_size);
    return done && good_bytes && mirt__safetensors_open_memory(&good, good_bytes, good_size) == MIRT_OK;
}

static bool write_bytes(const char *path, const char *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    const bool done = f && fwrite(bytes, 1, size, f) == size;
    return f && fclose(f) == 0 && done;
}

/* >>what is refused */

#define MOST "9007199254740992"
#define OVER "9007199254740993"

static const edit edits[] = {
    /* what overwrote stack and heap */
    {"logs", "[]", "run/history", 3, 400, 399, MIRT__ST_BOOL, "run/history"},
    {"logs", "[]", "run/history", 50000, 2, 1, MIRT__ST_BOOL, "run/history"},
    {"logs", "[]", NULL, 0, 0, 0, MIRT__ST_BOOL, "logs"},
    {"logs", "[]", "run/history", 1, 1, 0, MIRT__ST_BOOL, "logs"},
    /* the history */
    {NULL, NULL, "run/history", -1, 0, 0, MIRT__ST_BOOL, "run/history"},
    {NULL, NULL, "run/history", 2, 4, 3, MIRT__ST_BOOL, "run/history"},
    {NULL, NULL, "run/history", 4, 0, 0, MIRT__ST_BOOL, "run/history"},
    {NULL, NULL, "run/history", 1, 4, 4, MIRT__ST_BOOL, "run/history"},
    {NULL, NULL, "run/history", 1, 4, -1, MIRT__ST_BOOL, "run/history"},
    {NULL, NULL, "run/history", 1, 4, 1.5, MIRT__ST_BOOL, "run/history"},
    {NULL, NULL, "run/history", 1, 4, 0, MIRT__ST_BOOL, "run/history"},
    {NULL, NULL, "run/history", 1, 4, (double)NAN, MIRT__ST_BOOL, "run/history"},
    {NULL, NULL, "run/history", 0, 4, 0, MIRT__ST_BOOL, "run/history"},
    {NULL, NULL, "run/history", 1, 4, 3, MIRT__ST_F32, "run/history"},
    {NULL, NULL, "run/history", 1, 5, 4, MIRT__ST_BOOL, "run/history"},
    {"logs", "[\"loss\",\"accuracy\",\"nothing\"]", NULL, 0, 0, 0, MIRT__ST_BOOL, "nothing"},
    {"logs", "[\"loss\",\"accuracy\",1]", NULL, 0, 0, 0, MIRT__ST_BOOL, "logs"},
    {"logs", "{}", NULL, 0, 0, 0, MIRT__ST_BOOL, "logs"},
    {"logs", NULL, NULL, 0, 0, 0, MIRT__ST_BOOL, "logs"},
    {NULL, NULL, "run/other", 1, 1, 0, MIRT__ST_BOOL, "run/other"},
    /* the sums */
    {NULL, NULL, "run/sums", -1, 0, 0, MIRT__ST_BOOL, "run/sums"},
    {NULL, NULL, "run/sums", 1, 0, 0, MIRT__ST_BOOL, "run/sums"},
    {NULL, NULL, "run/sums", 10, 1, 0, MIRT__ST_BOOL, "run/sums"},
    {"done", "0", NULL, 0, 0, 0, MIRT__ST_BOOL, "run/sums"},
    /* where the run is */
    {"iterations", "-1", NULL, 0, 0, 0, MIRT__ST_BOOL, "iterations"},
    {"iterations", OVER, NULL, 0, 0, 0, MIRT__ST_BOOL, "iterations"},
    {"iterations", "5,\"averages_swapped\":1", NULL, 0, 0, 0, MIRT__ST_BOOL, "has no averages"},
    {"iterations", "5,\"averages_swapped\":2", NULL, 0, 0, 0, MIRT__ST_BOOL, "averages_swapped"},
    {"epoch", "1", NULL, 0, 0, 0, MIRT__ST_BOOL, "pass"},
    {"done", "-1", NULL, 0, 0, 0, MIRT__ST_BOOL, "done"},
    {"done", "3", NULL, 0, 0, 0, MIRT__ST_BOOL, "done"},
    {"done", MOST, NULL, 0, 0, 0, MIRT__ST_BOOL, "done"},
    {"done", "1e30", NULL, 0, 0, 0, MIRT__ST_BOOL, "done"},
    {"opened", "0", NULL, 0, 0, 0, MIRT__ST_BOOL, "opened"},
    {"opened", "2", NULL, 0, 0, 0, MIRT__ST_BOOL, "opened"},
    {"opened", "-1", NULL, 0, 0, 0, MIRT__ST_BOOL, "opened"},
    {"begun", "7", NULL, 0, 0, 0, MIRT__ST_BOOL, "begun"},
    {"pass", "-1", NULL, 0, 0, 0, MIRT__ST_BOOL, "pass"},
    {"pass", "2", NULL, 0, 0, 0, MIRT__ST_BOOL, "pass"},
    {"first_pass", "2", NULL, 0, 0, 0, MIRT__ST_BOOL, "pass"},
    {"passed", "5", NULL, 0, 0, 0, MIRT__ST_BOOL, "batches"},
    {"passed", MOST, NULL, 0, 0, 0, MIRT__ST_BOOL, "batches"},
    {"passed", "9223372036854775807", NULL, 0, 0, 0, MIRT__ST_BOOL, "passed"},
    {"steps", "1", NULL, 0, 0, 0, MIRT__ST_BOOL, "steps"},
    {"steps", "9223372036854775807", NULL, 0, 0, 0, MIRT__ST_BOOL, "steps"},
    {"count", "0", NULL, 0, 0, 0, MIRT__ST_BOOL, "count"},
    {"count", "17", NULL, 0, 0, 0, MIRT__ST_BOOL, "count"},
    {"images", "-5", NULL, 0, 0, 0, MIRT__ST_BOOL, "images"},
    {"rate_set", "3", NULL, 0, 0, 0, MIRT__ST_BOOL, "rate_set"},
    {"rate", "-1", NULL, 0, 0, 0, MIRT__ST_BOOL, "rate"},
    {"rate", "1e39", NULL, 0, 0, 0, MIRT__ST_BOOL, "rate"},
    {"rate", "\"1\"", NULL, 0, 0, 0, MIRT__ST_BOOL, "rate"},
    {"seconds", "-5", NULL, 0, 0, 0, MIRT__ST_BOOL, "seconds"},
    {"seconds", "1e300", NULL, 0, 0, 0, MIRT__ST_BOOL, "seconds"},
    {"loss_scale", "-1", NULL, 0, 0, 0, MIRT__ST_BOOL, "loss_scale"},
    {"scale_steps", "2000", NULL, 0, 0, 0, MIRT__ST_BOOL, "scale_steps"},
    {"saved", "9223372036854775807", NULL, 0, 0, 0, MIRT__ST_BOOL, "saved"},
    {"saved", "-1", NULL, 0, 0, 0, MIRT__ST_BOOL, "saved"},
    {"seed", "11", NULL, 0, 0, 0, MIRT__ST_BOOL, "seed"},
    {"seed", "\"12\"", NULL, 0, 0, 0, MIRT__ST_BOOL, "seed"},
    {"run", "[]", NULL, 0, 0, 0, MIRT__ST_BOOL, "no run"},
    /* callbacks */
    {"callbacks", "[]", NULL, 0, 0, 0, MIRT__ST_BOOL, "callbacks"},
    {"early_stopping", "1", NULL, 0, 0, 0, MIRT__ST_BOOL, "early_stopping"},
    {"early_stopping", "\"[]\"", NULL, 0, 0, 0, MIRT__ST_BOOL, "early_stopping"},
    {"mine", "{}", NULL, 0, 0, 0, MIRT__ST_BOOL, "mine"},
    {"mine", "\"other\"", NULL, 0, 0, 0, MIRT__ST_BOOL, "mine"},
    {"early_stopping/wait", "9223372036854775807", NULL, 0, 0, 0, MIRT__ST_BOOL, "wait"},
    {"early_stopping/wait", "-1", NULL, 0, 0, 0, MIRT__ST_BOOL, "wait"},
    {"early_stopping/wait", "1.5", NULL, 0, 0, 0, MIRT__ST_BOOL, "wait"},
    {"early_stopping/wait", "null", NULL, 0, 0, 0, MIRT__ST_BOOL, "wait"},
    {"early_stopping/wait", NULL, NULL, 0, 0, 0, MIRT__ST_BOOL, "wait"},
    {"early_stopping/best", "\\\"nan\\\"", NULL, 0, 0, 0, MIRT__ST_BOOL, "best"},
    {"early_stopping/best", "\\\"often\\\"", NULL, 0, 0, 0, MIRT__ST_BOOL, "best"},
    {"early_stopping/best_epoch", "9223372036854775807", NULL, 0, 0, 0, MIRT__ST_BOOL, "best_epoch"},
    {"early_stopping/has_best", "1", NULL, 0, 0, 0, MIRT__ST_BOOL, "has_best"},
    {"early_stopping/stopped", "-3", NULL, 0, 0, 0, MIRT__ST_BOOL, "stopped"},
    {"reduce_lr_on_plateau/wait", "9223372036854775807", NULL, 0, 0, 0, MIRT__ST_BOOL, "wait"},
    {"reduce_lr_on_plateau/cooldown", "9223372036854775807", NULL, 0, 0, 0, MIRT__ST_BOOL, "cooldown"},
    {"model_checkpoint/last_step", "-2", NULL, 0, 0, 0, MIRT__ST_BOOL, "last_step"},
    {"model_checkpoint/files", "7", NULL, 0, 0, 0, MIRT__ST_BOOL, "files"},
    {"csv_logger/length", "-1", NULL, 0, 0, 0, MIRT__ST_BOOL, "length"},
    {"csv_logger/length", "9223372036854775807", NULL, 0, 0, 0, MIRT__ST_BOOL, "length"},
    {"csv_logger/length", "30", NULL, 0, 0, 0, MIRT__ST_BOOL, "log.csv"},
    {"json_logger/length", "30", NULL, 0, 0, 0, MIRT__ST_BOOL, "log.jsonl"},
    {"json_logger/epochs_ended", "9223372036854775807", NULL, 0, 0, 0, MIRT__ST_BOOL, "epochs_ended"},
    {"tensorboard/train_file", "\\\"../../victim\\\"", NULL, 0, 0, 0, MIRT__ST_BOOL, "train_file"},
    {"tensorboard/train_file", "\\\"victim\\\"", NULL, 0, 0, 0, MIRT__ST_BOOL, "train_file"},
    {"tensorboard/train_length", "-1", NULL, 0, 0, 0, MIRT__ST_BOOL, "train_length"},
    /* weights */
    {NULL, NULL, "hidden/kernel", 3, 3, 0, MIRT__ST_F32, "hidden/kernel"},
    {NULL, NULL, "hidden/kernel", -1, 0, 0, MIRT__ST_BOOL, "hidden/kernel"},
    {NULL, NULL, "adam/hidden_bias_momentum", 3, 0, 0, MIRT__ST_BOOL, "adam/hidden_bias_momentum"},
    {NULL, NULL, "callbacks/early_stopping/hidden/bias", 2, 0, 0, MIRT__ST_F32, "callbacks/early_stopping/hidden/bias"},
    {NULL, NULL, "callbacks/early_stopping/scores/bias", -1, 0, 0, MIRT__ST_F32,
     "callbacks/early_stopping/scores/bias"},
};

static void check_refused(void) {
    char path[400], before[MIRT__SHA256_HEX], after[MIRT__SHA256_HEX];
    in_work("crafted.safetensors", path);
    for (int i = 0; i < MIRT__COUNT(edits); i++) {
        const edit *e = &edits[i];
        run r;
        if (!ok(write_crafted(path, e, 1), "crafted: %s%s%s%s%s", e->key ? e->key : "", e->key ? " = " : "",
                e->key && e->value ? e->value : "", e->tensor ? " tensor " : "", e->tensor ? e->tensor : ""))
            continue;
        run_open(&r, path, 0);
        digest_weights(r.model, 0, before);
        const mirt_history *h = run_fit(&r);
        const mirt_status status = mirt_last_status();
        digest_weights(r.model, 0, after);
        ok(!h &&
               (status == MIRT_E_FORMAT || status == MIRT_E_STATE || status == MIRT_E_SHAPE ||
                status == MIRT_E_NOT_FOUND) &&
               strstr(mirt_last_error(), e->want) && strstr(mirt_last_error(), "crafted") &&
               strcmp(before, after) == 0 && mirt_step(r.model) == 0,
           "is refused, and changes nothing: \"%s\"", h ? "resumed" : mirt_last_error());
        run_close(&r);
    }
    unlink(path);
}

/* >>checksums */

/* A copy of the good one in which the checksums go by other names. */
static bool write_unsummed(const char *path) {
    char *bytes = (char *)malloc(good_size);
    memcpy(bytes, good_bytes, good_size);
    for (size_t i = 0; i + 12 < good_size; i++) {
        if (memcmp(bytes + i, "mirrortrain.", 12) == 0) bytes[i + 6] = 'T';
    }
    const bool done = write_bytes(path, bytes, good_size);
    free(bytes);
    return done;
}

static void check_unsummed(void) {
    char directory[400], path[400], latest[400];
    run r;
    mkdir(in_work("sums", directory), 0777);
    bool done = write_unsummed(in_work("sums/z.safetensors", path));
    run_open(&r, path, 0);
    ok(done && !run_fit(&r) && mirt_last_status() == MIRT_E_FORMAT && strstr(mirt_last_error(), "no checksums") &&
           mirt_step(r.model) == 0,
       "a file without checksums is not resumed: \"%s\"", mirt_last_error());
    ok(mirt_load(r.strategy, path) != NULL, "but its model can be loaded, as other programs' can");
    ok(mirt_latest_checkpoint(r.strategy, directory, latest, sizeof latest) == MIRT_E_NOT_FOUND,
       "it is not the latest of its directory: \"%s\"", mirt_last_error());
    run_close(&r);
    run_open(&r, directory, 0);
    ok(!run_fit(&r) && mirt_last_status() == MIRT_E_FORMAT && strstr(mirt_last_error(), "z.safetensors") &&
           strstr(mirt_last_error(), "no checksums") && mirt_step(r.model) == 0,
       "nor is a directory that holds nothing else: \"%s\"", mirt_last_error());
    run_close(&r);
    const edit older = {"saved", "5", NULL, 0, 0, 0, MIRT__ST_BOOL, NULL};
    done = write_crafted(in_work("sums/a.safetensors", path), &older, 1);
    run_open(&r, directory, 0);
    logged[0] = 0;
    done = done && run_fit(&r);
    ok(done && strstr(logged, "a.safetensors: step 6") && strstr(logged, "z.safetensors is damaged"),
       "of a directory it is passed over, and the log says so%s%s", done ? "" : ": ", done ? "" : mirt_last_error());
    run_close(&r);
    clean(directory);
    rmdir(directory);
}

/* >>what is harmless once it is looked at */

/* A file that claims to be the newest for ever does not make the checkpoints that follow unreadable. */
static void check_newest(void) {
    static const char *const claims[] = {"9223372036854775807", MOST, "-1", "1e300"};
    char path[400];
    for (int i = 0; i < MIRT__COUNT(claims); i++) {
        run r;
        clean(work_directory());
        const edit e = {"saved", claims[i], NULL, 0, 0, 0, MIRT__ST_BOOL, NULL};
        bool done = write_crafted(in_work("claim.safetensors", path), &e, 1);
        run_open(&r, NULL, 4);
        done = done && run_fit(&r);
        run_close(&r);
        unlink(path);
        run_open(&r, work_directory(), 8);
        logged[0] = 0;
        done = done && run_fit(&r);
        ok(done && strstr(logged, "step 4"), "beside a file saved at %s a run writes checkpoints that are resumed%s%s",
           claims[i], done ? "" : ": ", done ? "" : mirt_last_error());
        run_close(&r);
    }
    clean(work_directory());
}

/* Files that a checkpoint lists are removed only where the run's own pattern puts them. */
static void check_files(void) {
    static const char *const patterns[] = {"d/{step}/c", "{step}{epoch}{loss}{step}{accuracy}x",
                                           "d{loss:.3f}/{{{step}"};
    char path[400], victim[400], text[12000];
    for (int i = 0; i < MIRT__COUNT(patterns); i++) {
        run r;
        clean(work_directory());
        in_work("c", victim);
        int used = snprintf(text, sizeof text, "\\\"%s/d/../c\\\\n%s/d/./../c\\\\n%s/", work_directory(),
                            work_directory(), work_directory());
        for (int k = 0; k < 8000; k++) text[used++] = '1';
        snprintf(text + used, sizeof text - (size_t)used, "\\\\n\\\"");
        const edit e = {"model_checkpoint/files", text, NULL, 0, 0, 0, MIRT__ST_BOOL, NULL};
        bool done = write_bytes(victim, "mine", 4) && write_crafted(in_work("crafted.safetensors", path), &e, 1);
        pattern = patterns[i];
        run_open(&r, path, 0);
        done = done && run_fit(&r);
        run_close(&r);
        size_t size;
        char *left = file_bytes(victim, &size);
        ok(done && left && size == 4, "a list of files to remove leaves those alone that \"%s\" does not give%s%s",
           pattern, done ? "" : ": ", done ? "" : mirt_last_error());
        free(left);
    }
    pattern = "ckpt_{step:02d}.safetensors";
    clean(work_directory());
}

/* Whatever numbers stand there: a clear error, or a run that ends and whose checkpoints are resumed. */
static void check_random(void) {
    static const char *const keys[] = {
        "iterations",
        "epoch",
        "done",
        "opened",
        "begun",
        "pass",
        "passed",
        "first_pass",
        "steps",
        "images",
        "count",
        "rate_set",
        "saved",
        "scale_steps",
        "rate",
        "seconds",
        "input_seconds",
        "epoch_seconds",
        "epoch_input_seconds",
        "loss_scale",
        "logs",
        "replicas",
        "batch",
        "joined",
        "samples",
        "steps_per_epoch",
        "early_stopping/wait",
        "early_stopping/best",
        "early_stopping/has_best",
        "early_stopping/best_epoch",
        "early_stopping/stopped",
        "reduce_lr_on_plateau/wait",
        "reduce_lr_on_plateau/cooldown",
        "reduce_lr_on_plateau/best",
        "model_checkpoint/files",
        "model_checkpoint/last_step",
        "model_checkpoint/last_whole",
        "csv_logger/length",
        "json_logger/length",
        "json_logger/epochs_ended",
        "tensorboard/train_length",
        "tensorboard/root_length",
    };
    static const char *const values[] = {"0",
                                         "1",
                                         "2",
                                         "3",
                                         "4",
                                         "6",
                                         "16",
                                         "-1",
                                         "-2",
                                         "0.5",
                                         "-0",
                                         "1e9",
                                         "2147483646",
                                         "2147483647",
                                         "4294967296",
                                         "4503599627370496",
                                         OVER,
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "1e308",
                                         "-1e-9",
                                         "true",
                                         "null",
                                         "[]",
                                         "{}",
                                         "[\"loss\"]",
                                         "\"\"",
                                         "\\\"\\\"",
                                         NULL};
    static const char *const tensors[] = {"run/history", "run/sums", "callbacks/early_stopping/hidden/kernel",
                                          "adam/hidden_bias_velocity", "scores/bias"};
    static const double fills[] = {0, 1, 3, -1, 1e300, 0.5};
    const int rounds = small_tier() ? 300 : 1500;
    char path[400];
    int refused = 0, resumed = 0, wrong = 0;
    mirt__random random = mirt__random_stream(17, 4);
    for (int round = 0; round < rounds; round++) {
        edit list[3];
        run r;
        const int count = 1 + (int)mirt__random_below(&random, 3);
        memset(list, 0, sizeof list);
        for (int k = 0; k < count; k++) {
            if (mirt__random_below(&random, 4)) {
                list[k].key = keys[mirt__random_below(&random, MIRT__COUNT(keys))];
                list[k].value = values[mirt__random_below(&random, MIRT__COUNT(values))];
            } else {
                list[k].tensor = tensors[mirt__random_below(&random, MIRT__COUNT(tensors))];
                list[k].rows = (int64_t)mirt__random_below(&random, 12) - 1;
                list[k].columns = (int64_t)mirt__random_below(&random, 6);
                list[k].fill = fills[mirt__random_below(&random, MIRT__COUNT(fills))];
                list[k].dtype = mirt__random_below(&random, 3) ? MIRT__ST_F64 : MIRT__ST_F32;
            }
        }
        if (!write_crafted(in_work("crafted.safetensors", path), list, count)) continue; /* JSON that is none */
        run_open(&r, path, 10);
        const mirt_history *h = run_fit(&r);
        bool fine = h || mirt_last_error()[0];
        refused += !h;
        resumed += h != NULL;
        run_close(&r);
        unlink(path);
        if (h) {
            run_open(&r, work_directory(), 0);
            fine = run_fit(&r) != NULL;
            run_close(&r);
        }
        if (!fine && !wrong++)
            printf("# round %d, %s = %s: %s\n", round, list[0].key ? list[0].key : list[0].tensor,
                   list[0].value ? list[0].value : "-", mirt_last_error());
        clean(work_directory());
    }
    ok(!wrong && refused > rounds / 4 && resumed > rounds / 100,
       "of %d checkpoints with random values %d are refused, and %d resumed; what these write is resumed", rounds,
       refused, resumed);
}

int main(void) {
    draw_images();
    if (!ok(make_good(), "a checkpoint in the middle of an epoch%s%s", good_bytes ? "" : ": ",
            good_bytes ? "" : mirt_last_error()))
        return done_testing();
    check_refused();
    check_unsummed();
    check_newest();
    check_files();
    check_random();
    mirt__safetensors_close(&good);
    free(good_bytes);
    clean(work_directory());
    ok(rmdir(work_directory()) == 0, "nothing is left behind");
    return done_testing();
}
