/* What a run leaves to look at: CSV, JSON lines and TensorBoard's event files. With a directory as argument, a run that
   leaves all that there, for test_tensorboard.py. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char home[512];

static const char *path_of(const char *name) {
    static char path[4][700];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", home, name);
    return path[turn];
}

static char *read_text(const char *path) {
    static char text[1 << 17];
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[size] = 0;
    return text;
}

static mirt_strategy *strategy;
static mirt_dataset *train, *test;

static mirt_model *make_model(void) {
    mirt_model *model = mirt_model_create(strategy, "digits");
    mirt_conv2d_desc conv;
    mirt_dense_desc dense;
    mirt_compile_desc compile;
    memset(&conv, 0, sizeof conv);
    memset(&dense, 0, sizeof dense);
    memset(&compile, 0, sizeof compile);
    conv.filters = 4;
    conv.kernel[0] = conv.kernel[1] = 3;
    conv.activation = MIRT_RELU;
    dense.units = 10;
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0);
    mirt_model_output(model, mirt_dense(mirt_flatten(mirt_max_pool2d(mirt_conv2d(x, &conv), NULL)), &dense));
    compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    compile.from_logits = true;
    compile.metrics[0] = MIRT_ACCURACY;
    mirt_compile(model, &compile);
    return model;
}

static mirt_history *run(mirt_model *model, int epochs, mirt_callback *a, mirt_callback *b, mirt_callback *c) {
    mirt_fit_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.epochs = epochs;
    desc.validation = test;
    desc.no_progress = true;
    desc.callbacks[0] = a;
    desc.callbacks[1] = b;
    desc.callbacks[2] = c;
    return mirt_fit(model, train, &desc);
}

static mirt_callback *csv(const char *path, char separator, bool append) {
    mirt_csv_logger_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.separator = separator;
    desc.append = append;
    return mirt_csv_logger(&desc);
}

static mirt_callback *json(const char *path, int64_t steps) {
    mirt_json_logger_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.steps = steps;
    return mirt_json_logger(&desc);
}

static mirt_callback *board(const char *directory) {
    mirt_tensorboard_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.log_dir = directory;
    desc.update_freq = 2;
    desc.histogram_freq = 2;
    desc.write_images = true;
    return mirt_tensorboard(&desc);
}

static int count_lines(const char *text, const char *word) {
    int count = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) count++;
    return count;
}

static void test_csv(void) {
    const char *path = path_of("log.csv");
    mirt_model *model = make_model();
    mirt_callback *c = csv(path, 0, false);
    mirt_history *history = run(model, 2, c, NULL, NULL);
    char *text = read_text(path), *line = strchr(text, '\n');
    ok(history && strncmp(text, "epoch,accuracy,learning_rate,loss,val_accuracy,val_loss\n", 56) == 0,
       "columns are sorted: %.*s", (int)(line ? line - text : 0), text);
    double value[6];
    bool same = history && line &&
                sscanf(line + 1, "%lf,%lf,%lf,%lf,%lf,%lf", &value[0], &value[1], &value[2], &value[3], &value[4],
                       &value[5]) == 6;
    same = same && value[0] == 0 && value[1] == mirt_logs_value(&history->epoch[0], "accuracy") &&
           value[3] == mirt_logs_value(&history->epoch[0], "loss") &&
           value[5] == mirt_logs_value(&history->epoch[0], "val_loss");
    ok(same && count_lines(text, "\n") == 3, "one line per epoch, with the numbers of the history, all digits");
    run(model, 1, c, NULL, NULL);
    ok(count_lines(read_text(path), "\n") == 2, "another fit begins the file anew");
    mirt_callback_destroy(c);
    c = csv(path, 0, true);
    run(model, 1, c, NULL, NULL);
    ok(count_lines(read_text(path), "\n") == 3 && count_lines(read_text(path), "epoch") == 1,
       "append continues the file");
    mirt_callback_destroy(c);
    c = csv(path, ';', true);
    ok(!run(model, 1, c, NULL, NULL) && strstr(mirt_last_error(), path) && strstr(mirt_last_error(), "epoch;accuracy"),
       "other columns: %s", mirt_last_error());
    mirt_callback_destroy(c);
    mirt_model_destroy(model);
}

static void test_json(void) {
    const char *path = path_of("log.jsonl");
    mirt_model *model = make_model();
    mirt_callback *c = json(path, 2);
    mirt_history *history = run(model, 2, c, NULL, NULL);
    const char *text = read_text(path);
    ok(history && count_lines(text, "{\"event\":\"epoch\"") == 2 &&
           count_lines(text, "{\"event\":\"step\"") == (int)(history->steps / 2) &&
           strncmp(text, "{\"event\":\"begin\"", 16) == 0,
       "a line to begin with, one for every second step, one for each epoch");
    ok(strstr(text, "{\"event\":\"end\"") && strstr(text, "\"status\":\"finished\""), "and one at the end");
    ok(strstr(text, "\"environment\":{\"mirrortrain\"") && strstr(text, "\"batch\":50,"),
       "it knows the environment and the batch");
    mirt_callback_destroy(c);
    mirt_model_destroy(model);
}

/* The state of a callback, as a checkpoint keeps it. */
static char *state_of(mirt_callback *c) {
    const size_t size = c->save_state(NULL, 0, c->user) + 1;
    char *text = (char *)malloc(size);
    if (text) c->save_state(text, size, c->user);
    return text;
}

/* A callback that keeps the states of others after the first epoch. */
typedef struct keeper {
    mirt_callback *of[3];
    char *state[3], name[256];
} keeper;
static int keep(const mirt_event *event, void *user) {
    keeper *k = (keeper *)user;
    for (int i = 0; i < 3 && event->epoch == 0; i++) k->state[i] = state_of(k->of[i]);
    return 0;
}

static void test_resume(void) {
    char *first;
    keeper k;
    mirt_callback keeping;
    mirt_fit_desc desc;
    mirt_model *model = make_model();
    memset(&k, 0, sizeof k);
    memset(&keeping, 0, sizeof keeping);
    memset(&desc, 0, sizeof desc);
    k.of[0] = csv(path_of("resumed.csv"), 0, false);
    k.of[1] = json(path_of("resumed.jsonl"), 0);
    k.of[2] = board(path_of("resumed"));
    keeping.epoch_end = keep;
    keeping.user = &k;
    desc.epochs = 3;
    desc.validation = test;
    desc.no_progress = true;
    for (int i = 0; i < 3; i++) desc.callbacks[i] = k.of[i];
    desc.callbacks[3] = &keeping;
    bool good = mirt_fit(model, train, &desc) != NULL;
    first = good ? strdup(read_text(path_of("resumed.csv"))) : NULL;
    char command[2400];
    snprintf(command, sizeof command, "cat '%s'/resumed/validation/* | wc -c >'%s'/size", home, home);
    good = good && system(command) == 0;
    for (int i = 0; i < 3; i++) {
        good = good && k.state[i] && k.of[i]->load_state(k.state[i], k.of[i]->user) == 0;
        desc.callbacks[i] = k.of[i];
    }
    desc.callbacks[3] = NULL;
    desc.initial_epoch = 1;
    good = good && mirt_fit(model, train, &desc) != NULL;
    const char *text = read_text(path_of("resumed.csv"));
    char *second = first ? strchr(strchr(first, '\n') + 1, '\n') : NULL;
    ok(good && count_lines(text, "\n") == 4 && strncmp(text, first, (size_t)(second - first)) == 0 &&
           strcmp(text, first) != 0,
       "a run that resumes from a state keeps the lines before it and removes those after it");
    text = read_text(path_of("resumed.jsonl"));
    ok(count_lines(text, "\"event\":\"epoch\"") == 3 && count_lines(text, "\"event\":\"begin\"") == 1 &&
           count_lines(text, "\"event\":\"resume\"") == 1 && count_lines(text, "\"event\":\"end\"") == 1,
       "the JSON log too, and says where");
    snprintf(command, sizeof command,
             "[ $(ls '%s'/resumed/train | wc -l) = 1 ] && [ $(ls '%s'/resumed/validation | wc -l) = 1 ]", home, home);
    ok(system(command) == 0, "event files are continued, not replaced");
    snprintf(command, sizeof command,
             "[ $(cat '%s'/size) -gt 100 ] && cat '%s'/resumed/validation/* | wc -c | cmp -s - '%s'/size", home, home,
             home);
    ok(system(command) == 0, "and what followed the state in them is removed");
    for (int i = 0; i < 3; i++) {
        mirt_callback_destroy(k.of[i]);
        free(k.state[i]);
    }
    free(first);
    mirt_model_destroy(model);
}

/* Fits with a log to a device, and resumes from the state it has then; a log to a pipe takes up the same state. */
static void resume_device(const char *what, mirt_callback *c, mirt_callback *piped) {
    mirt_model *model = make_model();
    bool good = c && run(model, 1, c, NULL, NULL) != NULL;
    char *state = good ? state_of(c) : NULL;
    good = state && c->load_state(state, c->user) == 0 && run(model, 1, c, NULL, NULL) != NULL;
    ok(good, "%s to /dev/null is continued%s%s", what, good ? "" : ": ", good ? "" : mirt_last_error());
    good = state && piped && piped->load_state(state, piped->user) == 0;
    ok(good, "nor does a pipe have an end that must fit%s%s", good ? "" : ": ", good ? "" : mirt_last_error());
    free(state);
    mirt_callback_destroy(c);
    mirt_callback_destroy(piped);
    mirt_model_destroy(model);
}

static void test_resume_devices(void) {
    char pipe_path[256];
    snprintf(pipe_path, sizeof pipe_path, "%s", path_of("pipe"));
    ok(mkfifo(pipe_path, 0600) == 0, "a pipe");
    resume_device("a CSV log", csv("/dev/null", 0, false), csv(pipe_path, 0, false));
    resume_device("a JSON log", json("/dev/null", 1), json(pipe_path, 1));
}

static void refused(mirt_callback *c, const char *name, const char *what) {
    mirt_model *model = make_model();
    mirt_history *history = c ? run(model, 1, c, NULL, NULL) : NULL;
    ok(c && !history && strstr(mirt_last_error(), name) && mirt_last_status() != MIRT_OK, "%s: %s", what,
       mirt_last_error());
    mirt_callback_destroy(c);
    mirt_model_destroy(model);
}

static void test_failures(void) {
    FILE *file = fopen(path_of("a file"), "wb");
    if (file) fclose(file);
    refused(csv(path_of("a file/log.csv"), 0, false), "a file", "a log below a file");
    refused(json(path_of("a file/log.jsonl"), 0), "a file", "the same of JSON");
    refused(board(path_of("a file/logs")), "a file", "a file where a directory should be");
    refused(csv(home, 0, false), home, "a directory where a file should be");
    if (access("/dev/full", W_OK) == 0) {
        refused(csv("/dev/full", 0, false), "/dev/full", "a full disk");
        refused(json("/dev/full", 1), "/dev/full", "the same of JSON");
    }
    int reader = -1;
    ok(mkfifo(path_of("refused"), 0600) == 0, "a pipe");
    for (int i = 0; i < 2; i++) { /* without a reader, and with one */
        refused(csv(path_of("refused"), 0, false), "a pipe or a terminal, which cannot be written at a position",
                i ? "a CSV log to a pipe that is read" : "a CSV log to a pipe");
        if (i == 0) reader = open(path_of("refused"), O_RDONLY | O_NONBLOCK);
    }
    ok(reader >= 0 && close(reader) == 0, "the pipe had a reader");
    ok(!mirt_csv_logger(NULL) && mirt_last_status() == MIRT_E_INVALID, "a log without a path: %s", mirt_last_error());
    ok(!csv("x", '"', false), "a quote as separator: %s", mirt_last_error());
    ok(!json("x", -1), "steps below zero: %s", mirt_last_error());
}

/* What a custom loop writes. */
static bool leave_own(void) {
    float values[100];
    unsigned char pixels[2 * 3 * 4];
    mirt_event_writer *writer = mirt_event_writer_create(path_of("own"));
    for (int i = 0; i < 100; i++) values[i] = (float)i;
    for (int i = 0; i < 24; i++) pixels[i] = (unsigned char)(10 * i);
    values[99] = NAN;
    bool good = writer && mirt_write_scalar(writer, "loss", 0.25, 1) == MIRT_OK &&
                mirt_write_scalar(writer, "loss", NAN, 3000000000) == MIRT_OK &&
                mirt_write_text(writer, "note", "na\xc3\xafve", 2) == MIRT_OK &&
                mirt_write_histogram(writer, "values", values, 100, 3) == MIRT_OK &&
                mirt_write_histogram(writer, "none", values, 0, 3) == MIRT_OK &&
                mirt_write_histogram(writer, "one", values + 7, 1, 3) == MIRT_OK &&
                mirt_write_images(writer, "picture", mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(2, 3, 4, 1)), 1,
                                  4) == MIRT_OK;
    mirt_event_writer_destroy(writer);
    return good;
}

static void test_own(void) {
    ok(leave_own(), "a custom writer");
    mirt_event_writer_destroy(NULL);
    ok(!mirt_event_writer_create(path_of("a file/own")) && strstr(mirt_last_error(), "a file"), "without a place: %s",
       mirt_last_error());
    ok(!mirt_event_writer_create(NULL) && mirt_write_scalar(NULL, "x", 0, 0) != MIRT_OK &&
           mirt_write_text(NULL, "x", "y", 0) != MIRT_OK,
       "without a writer: %s", mirt_last_error());
}

static void leave(const char *directory) {
    mirt_model *model;
    snprintf(home, sizeof home, "%s", directory);
    model = make_model();
    mirt_callback *a = board(path_of("tensorboard")), *b = json(path_of("log.jsonl"), 1),
                  *c = csv(path_of("log.csv"), 0, false);
    mirt_history *history = run(model, 3, a, b, c);
    if (!history) fprintf(stderr, "%s\n", mirt_last_error());
    if (history) mirt_save(model, path_of("model.safetensors"), MIRT_SAVE_WEIGHTS_ONLY);
    mirt_callback_destroy(a);
    mirt_callback_destroy(b);
    mirt_callback_destroy(c);
    if (!leave_own()) fprintf(stderr, "%s\n", mirt_last_error());
}

int main(int argc, char **argv) {
    strategy = mirt_mirrored("1");
    train = mirt_batch(mirt_drawn_digits(330, 0, MIRT_TRAIN), 50);
    test = mirt_batch(mirt_drawn_digits(100, 0, MIRT_TEST), 50);
    if (argc > 1) {
        leave(argv[1]);
    } else {
        snprintf(home, sizeof home, "%s/mirt_events.XXXXXX", tap_tmpdir());
        ok(mkdtemp(home) != NULL, "a place for files: %s", home);
        test_csv();
        test_json();
        test_resume();
        test_resume_devices();
        test_failures();
        test_own();
        char command[600];
        snprintf(command, sizeof command, "rm -rf '%s'", home);
        ok(system(command) == 0, "cleaned up");
    }
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(strategy);
    return argc > 1 ? 0 : done_testing();
}
