/* Fuzzes mirt_fit resuming from a checkpoint. The checkpoint's weights, sizes and checksums are always valid, so that
   every run gets to what a fit reads of it. The input: a byte that chooses model, data and callbacks; the JSON of the
   run, of the architecture and of the compile settings, each up to a zero byte (the last two empty: the valid ones);
   then tensors, as put_tensor writes them. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#ifndef FUZZER
#define FUZZ_SEEDS write_seeds
#endif
#include "fuzz_main.h"
#include "fuzz_words.h"

enum { SAMPLES = 6, BATCH = 4, STEPS = 2, EPOCHS = 3, MOST_TENSORS = 64 };
enum { ADAM = 1, WITHOUT_END = 2, FILES = 4, BOARD = 8, SAVED = 16, VALIDATED = 32, CONFIGS = 4 };

/* The files are temporary. */
int hook_fsync(int fd) {
    (void)fd;
    return 0;
}

/* >>a fit */

typedef struct job {
    mirt_strategy *strategy;
    mirt_model *model;
    mirt_dataset *data, *validation;
} job;

static mirt_dataset *samples(void) {
    static const float x[SAMPLES * 2] = {0, 1, 1, 0, 1, 1, 0, 0, 2, 1, 1, 2};
    static const uint8_t y[SAMPLES] = {0, 1, 2, 0, 1, 2};
    return mirt_arrays(
        mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES, 2)), mirt_make_array(y, MIRT_UINT8, MIRT_SHAPE(SAMPLES)));
}

static void open_job(job *j, int flags) {
    mirt_strategy_desc d;
    mirt_compile_desc c;
    mirt_dense_desc dense;
    memset(&d, 0, sizeof d);
    memset(&dense, 0, sizeof dense);
    memset(&c, 0, sizeof c);
    d.devices = "1";
    d.replicas = 2;
    d.threads = 1;
    d.silent = true;
    j->strategy = mirt_strategy_create(&d);
    j->model = mirt_model_create(j->strategy, NULL);
    dense.units = 3;
    mirt_model_output(j->model, mirt_dense(mirt_input(j->model, MIRT_SHAPE(2)), &dense));
    c.optimizer = flags & ADAM ? mirt_adam(0.01f) : mirt_sgd(0.05f, 0.9f, false);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    c.metrics[0] = MIRT_ACCURACY;
    j->data = mirt_batch(mirt_shuffle(samples(), 3), BATCH);
    if (flags & WITHOUT_END) j->data = mirt_repeat(j->data, 0);
    j->validation = mirt_batch(samples(), BATCH);
    FUZZ_CHECK(mirt_compile(j->model, &c) == MIRT_OK && j->data && j->validation);
}

static void close_job(job *j) {
    mirt_dataset_destroy(j->data);
    mirt_dataset_destroy(j->validation);
    mirt_strategy_destroy(j->strategy);
}

/* A callback that trusts its state to be short. */
typedef struct user_state {
    char text[256];
} user_state;

static size_t user_save(char *text, size_t capacity, void *user) {
    return (size_t)snprintf(text, capacity, "%s", ((const user_state *)user)->text);
}
static int user_load(const char *text, void *user) {
    return snprintf(((user_state *)user)->text, sizeof(user_state), "%s", text) >= (int)sizeof(user_state);
}
static int user_step(const mirt_event *event, void *user) {
    FUZZ_CHECK(event->epoch >= 0 && event->epoch < EPOCHS && event->logs->count <= MIRT_MAX_LOGS);
    (void)user;
    return 0;
}
static int user_epoch(const mirt_event *event, void *user) {
    const char *text = ((const user_state *)user)->text;
    (void)text;
    FUZZ_PLANT(event->resumed && strlen(text) > sizeof "as it was");
    return user_step(event, user);
}

static mirt_callback *made[MIRT_MAX_CALLBACKS];

static mirt_history *run_fit(job *j, int flags, const char *resume, const char *pattern) {
    char place[3][512];
    user_state state = {"as it was"};
    mirt_callback user;
    mirt_fit_desc fit;
    mirt_early_stopping_desc early;
    mirt_reduce_lr_desc plateau;
    mirt_csv_logger_desc csv;
    mirt_json_logger_desc json;
    mirt_tensorboard_desc board;
    mirt_model_checkpoint_desc checkpoint;
    int count = 0;
    memset(&user, 0, sizeof user), memset(&fit, 0, sizeof fit), memset(&early, 0, sizeof early),
        memset(&plateau, 0, sizeof plateau);
    memset(&csv, 0, sizeof csv), memset(&json, 0, sizeof json), memset(&board, 0, sizeof board),
        memset(&checkpoint, 0, sizeof checkpoint);
    early.monitor = plateau.monitor = "loss";
    early.patience = 100;
    early.restore_best_weights = true;
    plateau.patience = 1;
    csv.path = fuzz_path("log.csv", place[0]);
    json.path = fuzz_path("log.jsonl", place[1]);
    json.steps = 1;
    board.log_dir = fuzz_path("board", place[2]);
    checkpoint.path = pattern;
    checkpoint.every_steps = resume ? 2 : 1;
    checkpoint.at_end = true;
    checkpoint.keep = resume ? 1 : 0;
    user.name = "user";
    user.user = &state;
    user.save_state = user_save;
    user.load_state = user_load;
    user.batch_end = user_step;
    user.epoch_end = user_epoch;
    made[count++] = mirt_early_stopping(&early);
    made[count++] = mirt_reduce_lr_on_plateau(&plateau);
    if (flags & FILES) made[count++] = mirt_csv_logger(&csv);
    if (flags & FILES) made[count++] = mirt_json_logger(&json);
    if (flags & BOARD) made[count++] = mirt_tensorboard(&board);
    if (pattern) made[count++] = mirt_model_checkpoint(&checkpoint);
    for (int i = 0; i < count; i++) fit.callbacks[i] = made[i];
    fit.callbacks[count] = &user;
    fit.epochs = EPOCHS;
    fit.no_progress = true;
    fit.resume = resume;
    if (flags & VALIDATED) fit.validation = j->validation;
    if (flags & WITHOUT_END) fit.steps_per_epoch = STEPS;
    mirt_history *history = mirt_fit(j->model, j->data, &fit);
    for (int i = 0; i < count; i++) mirt_callback_destroy(made[i]);
    return history;
}

/* >>files that callbacks write, and append to when a fit resumes */

#define EVENTS "events.out."
enum { MORE = 64 }; /* seconds have more digits in some files than in others, and checkpoints know the lengths */

typedef struct left_file {
    char path[512];
    void *bytes;
    size_t size;
} left_file;

/* Of one model and kind of data. */
typedef struct left_files {
    left_file file[16];
    int count;
} left_files;

static left_files left[CONFIGS];

/* All files below a directory. Event files have times in their names, which the corpus cannot contain. */
static void keep_files(left_files *files, const char *path) {
    DIR *stream = opendir(path);
    for (const struct dirent *entry; stream && (entry = readdir(stream)) != NULL;) {
        char inner[512];
        struct stat info;
        if (entry->d_name[0] == '.' || snprintf(inner, sizeof inner, "%.256s/%.200s", path, entry->d_name) < 0 ||
            stat(inner, &info) != 0)
            continue;
        if (S_ISDIR(info.st_mode)) {
            keep_files(files, inner);
            continue;
        }
        left_file *f = &files->file[files->count++];
        FUZZ_CHECK(files->count <= MIRT__COUNT(files->file));
        snprintf(f->path, sizeof f->path, "%.256s/%.200s", path,
            strncmp(entry->d_name, EVENTS, strlen(EVENTS)) == 0 ? "events" : entry->d_name);
        f->size = (size_t)info.st_size;
        f->bytes = malloc(f->size + MORE);
        FILE *file = fopen(inner, "rb");
        FUZZ_CHECK(file && f->bytes && fread(f->bytes, 1, f->size, file) == f->size);
        fclose(file);
        memset((char *)f->bytes + f->size, '\n', MORE);
        f->size += MORE;
    }
    if (stream) closedir(stream);
}

/* The files as the fit wrote them, and no others. */
static void restore_files(const left_files *files) {
    char home[512];
    fuzz_remove(fuzz_path("", home), 0);
    for (int i = 0; i < files->count; i++) {
        FUZZ_CHECK(mirt__make_directory_of(files->file[i].path) == MIRT_OK);
        fuzz_put(files->file[i].path, files->file[i].bytes, files->file[i].size);
    }
    FUZZ_CHECK(mirt__make_directory(home) == MIRT_OK);
}

/* >>valid checkpoints */

enum { MOST_STEPS = EPOCHS * STEPS };

/* What a fit wrote after each of its steps; one for each model and kind of data. */
static const mirt__safetensors *right_file(int flags, int step) {
    static mirt__safetensors file[CONFIGS][MOST_STEPS];
    const int config = flags % CONFIGS;
    mirt__safetensors *right = file[config];
    if (!right[0].origin) {
        job j;
        char path[512];
        restore_files(&left[config]);
        open_job(&j, config);
        FUZZ_CHECK(run_fit(&j, config | FILES | BOARD | VALIDATED, NULL, fuzz_path("step{step}.safetensors", path)));
        close_job(&j);
        for (int i = 0; i < MOST_STEPS; i++) {
            char name[64];
            snprintf(name, sizeof name, "step%d.safetensors", i + 1);
            FUZZ_CHECK(mirt__safetensors_open(&right[i], fuzz_path(name, path)) == MIRT_OK);
            unlink(path);
        }
        keep_files(&left[config], fuzz_path("", path));
    }
    return &right[step];
}

static bool of_the_run(const char *name) {
    return strncmp(name, "run/", 4) == 0 || strncmp(name, "callbacks/", 10) == 0;
}

/* >>files from inputs */

typedef struct file_text {
    char *text; /* 0 at its end */
    size_t size;
} file_text;

static file_text take_text(fuzz_input *in) {
    const uint8_t *end = (const uint8_t *)memchr(in->at, 0, (size_t)(in->end - in->at));
    file_text t;
    t.size = (size_t)((end ? end : in->end) - in->at);
    t.text = (char *)calloc(t.size + 1, 1);
    FUZZ_CHECK(t.text);
    memcpy(t.text, in->at, t.size);
    in->at = end ? end + 1 : in->end;
    return t;
}

static const char *const tensor_names[] = {"run/history", "run/sums", "callbacks/early_stopping/dense/kernel",
    "callbacks/early_stopping/dense/bias", "callbacks/user/dense/kernel", "x"};

/* Name, dtype, rank, dimensions as bytes, then the elements. False at the end. */
static bool take_tensor(fuzz_input *in, mirt__safetensor *t, void **owned) {
    size_t bytes;
    if (in->at == in->end) return false;
    memset(t, 0, sizeof *t);
    t->name = tensor_names[fuzz_byte(in) % MIRT__COUNT(tensor_names)];
    t->dtype = (mirt__st_dtype)(fuzz_byte(in) % MIRT__ST_DTYPE_COUNT);
    t->rank = fuzz_byte(in) % (MIRT__ST_RANK + 1);
    for (int d = 0; d < t->rank; d++) t->dim[d] = fuzz_byte(in);
    if (!mirt__st_bytes(t, &bytes) || bytes > 1 << 16) return false;
    t->data = *owned = calloc(bytes + 1, 1);
    FUZZ_CHECK(t->data);
    fuzz_bytes(in, *owned, bytes);
    return true;
}

/* Writes the checkpoint; false if it cannot be written. */
static bool write_file(const mirt__safetensors *right, fuzz_input *in, const char *path) {
    static const char *const keys[] = {"training", "architecture", "compile"};
    const char *pair[8] = {"format", "mirrortrain"};
    file_text text[3];
    mirt__safetensor tensor[2 * MOST_TENSORS];
    void *owned[MOST_TENSORS] = {NULL};
    mirt__safetensors_content content;
    memset(&content, 0, sizeof content);
    for (int i = 0; i < 3; i++) {
        text[i] = take_text(in);
        pair[2 + 2 * i] = keys[i];
        pair[3 + 2 * i] = i && !text[i].size ? mirt__safetensors_metadata(right, keys[i]) : text[i].text;
    }
    for (int i = 0; i < right->count; i++) {
        if (!of_the_run(right->tensor[i].name)) tensor[content.count++] = right->tensor[i];
    }
    FUZZ_CHECK(content.count <= MOST_TENSORS);
    for (int i = 0; i < MOST_TENSORS && take_tensor(in, &tensor[content.count], &owned[i]); i++) content.count++;
    content.tensor = tensor;
    content.metadata = pair;
    content.metadata_count = 4;
    const bool written = mirt__safetensors_write(path, &content) == MIRT_OK;
    for (int i = 0; i < 3; i++) free(text[i].text);
    for (int i = 0; i < MOST_TENSORS; i++) free(owned[i]);
    return written;
}

static void look_at_history(const mirt_history *history, const mirt_model *model) {
    FUZZ_CHECK(history->epochs >= 0 && history->steps >= 0);
    for (int e = 0; e < history->epochs; e++) {
        FUZZ_CHECK(history->epoch[e].count >= 0 && history->epoch[e].count <= MIRT_MAX_LOGS);
        for (int i = 0; i < history->epoch[e].count; i++) FUZZ_CHECK(strlen(history->epoch[e].name[i]) < 100);
    }
    FUZZ_CHECK(model->step >= 0 && model->epoch >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[512], pattern[512];
    job j;
    fuzz_input in = {data, data + size};
    const int flags = fuzz_byte(&in);
    const mirt__safetensors *right = right_file(flags, MOST_STEPS - 1);
    if (flags & (FILES | BOARD | SAVED)) restore_files(&left[flags % CONFIGS]);
    if (!write_file(right, &in, fuzz_path("resumed.safetensors", path))) return 0;
    open_job(&j, flags);
    const mirt_history *history = run_fit(
        &j, flags, path, flags & SAVED ? fuzz_path("saved{step}.safetensors", pattern) : NULL);
    if (history) look_at_history(history, j.model);
    if (history) FUZZ_CHECK(mirt_save(j.model, path, MIRT_SAVE_ALL) == MIRT_OK);
    close_job(&j);
    return 0;
}

/* >>seeds */

#ifdef FUZZER
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed) {
    static const char *const words[] = {"0", "-1", "1", "2", "3", "4", "5", "6", "12", "0.5", "1e308", "-1e308",
        "2147483647", "-2147483648", "9007199254740992", "9223372036854775807", "-9223372036854775808", "true", "false",
        "null", "[]", "{}", "\"\"", "\"loss\"", "\"accuracy\"", "\"val_loss\"", "\\\"inf\\\"", "\\\"nan\\\"",
        "\"../../x\"", "\"{}\"", "\"a state that is longer than any before it\""};
    fuzz_random = seed;
    if (size < 2 || fuzz_below(3) == 0) return LLVMFuzzerMutate(data, size, most);
    const uint8_t *end = (const uint8_t *)memchr(data + 1, 0, size - 1);
    return fuzz_exchange_words(data, 1, end ? (size_t)(end - data) : size, size, most, words, MIRT__COUNT(words));
}
#endif

#ifdef FUZZ_SEEDS
static void put_tensor(FILE *file, const mirt__safetensor *t) {
    for (int i = 0; i < MIRT__COUNT(tensor_names); i++) {
        if (strcmp(t->name, tensor_names[i]) != 0) continue;
        fputc(i, file);
        fputc((int)t->dtype, file);
        fputc(t->rank, file);
        for (int d = 0; d < t->rank; d++) fputc((int)t->dim[d], file);
        fwrite(t->data, 1, t->size, file);
    }
}

static void FUZZ_SEEDS(const char *directory) {
    for (int flags = 0; flags < 64; flags += flags < CONFIGS - 1 ? 1 : 4) {
        for (int step = 0; step < MOST_STEPS; step++) {
            const mirt__safetensors *right = right_file(flags, step);
            char path[700];
            snprintf(path, sizeof path, "%.600s/step%d_%02d", directory, step + 1, flags);
            FILE *file = fopen(path, "wb");
            if (!file) continue;
            fputc(flags, file);
            for (const char *at = mirt__safetensors_metadata(right, "training"); *at; at++) {
                const bool events = strncmp(at, EVENTS, strlen(EVENTS)) == 0;
                if (events) at = strstr(at, ".v2") + 2;
                if (events) fputs("events", file);
                else fputc(*at, file);
            }
            for (int i = 0; i < 3; i++) fputc(0, file);
            for (int i = 0; i < right->count; i++) put_tensor(file, &right->tensor[i]);
            fclose(file);
        }
    }
}
#endif
