/* Files written by version 0.1 can be read. They are models, weights, a checkpoint with the states of
   callbacks and their logs, and a cache. tests/archive/write.c wrote them; expected.txt says what it found in them. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "archive.h"
#include "mirror_util.h"
#include "tap.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static char expected[8192];

/* What follows the key on its line, or "". */
static const char *expect(const char *key) {
    static char value[2048];
    const size_t size = strlen(key);
    value[0] = 0;
    for (const char *line = expected; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, key, size) != 0 || line[size] != ' ') continue;
        snprintf(value, sizeof value, "%.*s", (int)strcspn(line + size + 1, "\n"), line + size + 1);
        break;
    }
    return value;
}

/* The largest difference between numbers and those of a line; infinite if there are not as many. */
static double differs(const char *text, const double *value, int count) {
    double worst = 0;
    char *end;
    for (int i = 0; i < count; i++, text = end) {
        const double want = strtod(text, &end);
        worst = end == text ? (double)INFINITY : worse(worst, fabs(want - value[i]));
    }
    return *text ? (double)INFINITY : worst;
}

static bool copy_tree(const char *from, const char *to) {
    char a[900], b[900];
    struct stat info;
    bool good = mkdir(to, 0777) == 0;
    DIR *d = opendir(from);
    for (const struct dirent *e; good && d && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        snprintf(a, sizeof a, "%.500s/%.255s", from, e->d_name);
        snprintf(b, sizeof b, "%.500s/%.255s", to, e->d_name);
        good = stat(a, &info) == 0;
        if (good && S_ISDIR(info.st_mode)) good = copy_tree(a, b);
        else if (good) {
            size_t size;
            char *bytes = file_bytes(a, &size);
            FILE *f = fopen(b, "wb");
            good = bytes && f && fwrite(bytes, 1, size, f) == size;
            if (f) good = fclose(f) == 0 && good;
            free(bytes);
        }
    }
    if (d) closedir(d);
    return good && d;
}

static void remove_tree(const char *path) {
    char below[900];
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(below, sizeof below, "%.500s/%.255s", path, e->d_name);
        remove_tree(below);
    }
    if (d) closedir(d);
    remove(path);
}

static bool same_digest(mirt_model *m, const char *key) {
    char text[32];
    snprintf(text, sizeof text, "%016llx", archive_digest(m));
    return strcmp(text, expect(key)) == 0;
}

/* Bits of weights, and what they compute within a rounding or two of other kernels. */
static bool same_model(mirt_model *m, const char *name) {
    float out[ARCHIVE_SHOWN * ARCHIVE_CLASSES];
    double values[ARCHIVE_SHOWN * ARCHIVE_CLASSES];
    if (!m || mirt_predict_arrays(m, archive_x(ARCHIVE_SHOWN), out, MIRT__COUNT(out)) != MIRT_OK) return false;
    for (int i = 0; i < MIRT__COUNT(out); i++) values[i] = (double)out[i];
    return ok(same_digest(m, "model.weights"), "%s: the weights' bits", name) &&
           ok(differs(expect("model.outputs"), values, MIRT__COUNT(values)) < 1e-5, "%s: what it computes", name);
}

static void check_models(void) {
    int count = 0;
    mirt_logs logs;
    mirt_data batch;
    mirt_strategy *s = archive_strategy();
    mirt_model *m = mirt_load(s, "model.safetensors");
    ok(same_model(m, "model.safetensors"), "a whole model is loaded%s%s", m ? "" : ": ", m ? "" : mirt_last_error());
    const char *const *names = mirt_model_class_names(m, &count);
    ok(count == ARCHIVE_CLASSES && strcmp(names[0], "dense") == 0 && strcmp(names[2], "\xc3\xa9toil\xc3\xa9") == 0,
       "with the names of its classes");
    ok(m && mirt_step(m) == atoi(expect("model.step")) && mirt_get_learning_rate(m) < 1e-2 &&
           mirt_get_learning_rate(m) > 5e-3,
       "at its step, with its schedule: %g", mirt_get_learning_rate(m));
    memset(&batch, 0, sizeof batch);
    batch.x[0] = archive_x(ARCHIVE_BATCH);
    batch.y[0] = archive_y(ARCHIVE_BATCH);
    ok(m && mirt_train_on_batch(m, &batch, &logs) == MIRT_OK && logs.value[0] > 0.3 && logs.value[0] < 2,
       "it can be trained on");
    m = archive_model(s);
    ok(m && mirt_load_weights(m, "weights.safetensors") == MIRT_OK && same_model(m, "weights.safetensors"),
       "weights alone are loaded: %s", mirt_last_error());
    mirt_strategy_destroy(s);
}

typedef struct seen {
    archive_run run;
    bool resumed, weights, states;
    double loss;
} seen;

static bool same_state(const mirt_callback *callback, const char *key) {
    char text[1000];
    const size_t size = callback->save_state(text, sizeof text, callback->user);
    return size < sizeof text && strcmp(text, expect(key)) == 0;
}

/* train_begin of the resumed run: what it loaded. */
static int on_begin(const mirt_event *event, void *user) {
    seen *s = (seen *)user;
    s->resumed = event->resumed && mirt_step(event->model) == ARCHIVE_STEP;
    s->weights = same_digest(event->model, "run.weights");
    s->states = same_state(s->run.ready[0], "state.early_stopping") &&
                same_state(s->run.ready[1], "state.reduce_lr_on_plateau");
    return 0;
}

/* The first `size` bytes of a file, or less, are in another one. */
static bool begins_as(const char *path, const char *archived, size_t size) {
    size_t have, want;
    char *a = file_bytes(path, &have), *b = file_bytes(archived, &want);
    const bool same = a && b && have > size && want >= size && memcmp(a, b, size) == 0;
    free(a);
    free(b);
    return same;
}

#define EVENTS "events.out.tfevents.1795413585.archive.26179.0.v2"

static void check_run(const char *archive) {
    char path[600], digest[512];
    double values[2 * ARCHIVE_EPOCHS] = {0};
    mirt_callback watch;
    seen told;
    memset(&watch, 0, sizeof watch);
    memset(&told, 0, sizeof told);
    watch.train_begin = on_begin;
    watch.user = &told;
    mirt_strategy *s = archive_strategy();
    const mirt_history *h = archive_fit(&told.run, s, &watch, "checkpoint_5.safetensors", 0);
    ok(h && told.resumed, "a checkpoint in the middle of an epoch is resumed%s%s", h ? "" : ": ",
       h ? "" : mirt_last_error());
    ok(told.weights, "with its weights' bits");
    ok(told.states, "and the states of callbacks");
    for (int e = 0; h && e < h->epochs && e < ARCHIVE_EPOCHS; e++) {
        values[2 * e] = mirt_logs_value(&h->epoch[e], "loss");
        values[2 * e + 1] = mirt_logs_value(&h->epoch[e], "accuracy");
    }
    snprintf(digest, sizeof digest, "%s", expect("whole.history"));
    ok(h && h->epochs == ARCHIVE_EPOCHS && differs(digest, values, MIRT__COUNT(values)) < 1e-4 &&
           values[0] == strtod(digest, NULL),
       "the first epoch's loss is the one that was kept, the others match the uninterrupted run");
    snprintf(path, sizeof path, "%.500s/log.csv", archive);
    ok(h && begins_as("log.csv", path, 97), "log.csv is continued at the checkpoint");
    snprintf(path, sizeof path, "%.500s/log.jsonl", archive);
    ok(h && begins_as("log.jsonl", path, 2042), "log.jsonl is continued at the checkpoint");
    snprintf(path, sizeof path, "%.500s/board/train/" EVENTS, archive);
    ok(h && begins_as("board/train/" EVENTS, path, 431), "so is the event file");
    archive_run_close(&told.run);
    mirt_strategy_destroy(s);
}

static void check_cache(void) {
    size_t before, after;
    char *bytes = file_bytes("cache.bin", &before);
    mirt_strategy *s = archive_strategy();
    mirt_model *m = archive_model(s);
    mirt_dataset *d = archive_cache("cache.bin");
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.no_progress = true;
    archive_made = 0;
    const bool good = d && mirt_fit(m, d, &fit) != NULL;
    mirt_dataset_destroy(d);
    mirt_strategy_destroy(s);
    char *now = file_bytes("cache.bin", &after);
    ok(good && archive_made == 0 && bytes && now && before == after && memcmp(bytes, now, before) == 0,
       "a cache is read, and no sample made: %d%s%s", archive_made, good ? "" : ": ", good ? "" : mirt_last_error());
    free(bytes);
    free(now);
}

int main(void) {
    char here[600], archive[900], path[600];
    size_t size;
    archive_draw();
    if (!getcwd(here, sizeof here)) return 1;
    snprintf(archive, sizeof archive, "%s/tests/archive/0.1", here);
    snprintf(path, sizeof path, "%.500s/0.1", work_directory());
    if (!ok(copy_tree(archive, path) && chdir(path) == 0, "the archive is at %s", archive)) return done_testing();
    char *text = file_bytes("expected.txt", &size);
    if (text) snprintf(expected, sizeof expected, "%.*s", (int)size, text);
    free(text);
    check_models();
    check_run(archive);
    check_cache();
    if (chdir(here) != 0) return 1;
    remove_tree(work_directory());
    return done_testing();
}
