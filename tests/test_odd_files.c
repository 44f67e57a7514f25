/* Tests valid but unusual files. Which checkpoint is the newest, what is loaded in part, classes without names. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *folder;
static char path[400], newest[400];

static const char *in(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* >>checkpoints */

/* A file without tensors whose metadata are a training state. */
static bool write_training(const char *name, const char *training) {
    const char *metadata[2] = {"training", training};
    mirt__safetensors_content content;
    memset(&content, 0, sizeof content);
    content.metadata = metadata;
    content.metadata_count = 1;
    return mirt__safetensors_write(in(name), &content) == MIRT_OK;
}

static bool write_header(const char *name, const char *header, int64_t length) {
    unsigned char bytes[300];
    const size_t size = strlen(header);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, size);
    return mirt_write_file(in(name), bytes, 8 + size) == MIRT_OK;
}

static void check_newest(void) {
    static const struct {
        const char *a, *b, *newest, *what;
    } cases[] = {
        {"{\"iterations\":3}", "{\"iterations\":2}", "a", "more steps"},
        {"{\"iterations\":5}", "{\"iterations\":5}", "b", "as many steps: the later name"},
        {"{\"iterations\":5,\"saved\":9}", "{\"iterations\":6,\"saved\":8}", "a", "saved later, with fewer steps"},
        {"{\"iterations\":5,\"saved\":9}", "{\"iterations\":6,\"saved\":9}", "b", "saved at once, with more steps"},
        {"{\"run\":{\"saved\":3},\"saved\":7}", "{\"saved\":4}", "b", "the time in a run is the one that counts"},
        {"{\"iterations\":3}", "{\"iterations\":\"4\"}", "a", "steps that are a string"},
        {"{\"iterations\":1}", "{\"iterations\":-4}", "a", "steps below zero"},
        {"{\"iterations\":1}", "{\"iterations\":2.5}", "a", "half a step"},
        {"{\"iterations\":1}", "{\"iterations\":9007199254740993}", "a", "more steps than can be counted"},
        {"{\"iterations\":9007199254740992}", "{\"iterations\":1}", "a", "the most steps"},
        {"{\"iterations\":1}", "{\"run\":7}", "a", "a run that is no object"},
        {"{\"iterations\":1}", "[4]", "a", "a training state that is no object"},
        {"{\"iterations\":1}", "{\"iterations\":", "a", "one that is no JSON"},
    };
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        const bool good = write_training("a", cases[i].a) && write_training("b", cases[i].b) &&
                          mirt_latest_checkpoint(NULL, folder, newest, sizeof newest) == MIRT_OK;
        ok(good && strcmp(newest, in(cases[i].newest)) == 0, "%s: %s", cases[i].what,
           good ? newest : mirt_last_error());
    }
    unlink(in("a"));
    unlink(in("b"));
}

static void check_many(void) {
    char name[16], training[64];
    bool good = true;
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "c%d", i);
        snprintf(training, sizeof training, "{\"iterations\":%d}", (i * 7) % 40);
        good = good && write_training(name, training);
    }
    good = good && mirt_latest_checkpoint(NULL, folder, newest, sizeof newest) == MIRT_OK;
    ok(good && strcmp(newest, in("c17")) == 0, "of forty the one with 39 steps: %s", good ? newest : mirt_last_error());
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "c%d", i);
        unlink(in(name));
    }
}

static void check_others(void) {
    static const struct {
        const char *header;
        int64_t length; /* -1: the header's */
        const char *what;
    } cases[] = {
        {"{}", -1, "no metadata"},
        {"{\"__metadata__\":[]}", -1, "metadata that are a list"},
        {"{\"__metadata__\":{}}", -1, "metadata without a training state"},
        {"{\"__metadata__\":{\"training\":7}}", -1, "a training state that is a number"},
        {"[]", -1, "a header that is a list"},
        {"{\"__meta", -1, "half a header"},
        {"{}", 0, "a header of no bytes"},
        {"{}", 3, "a header longer than the file"},
        {"{}", INT64_MAX, "a header longer than any file"},
    };
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        const int64_t length = cases[i].length < 0 ? (int64_t)strlen(cases[i].header) : cases[i].length;
        const bool written = write_header("other.safetensors", cases[i].header, length);
        ok(written && mirt_latest_checkpoint(NULL, folder, newest, sizeof newest) == MIRT_E_NOT_FOUND && !newest[0] &&
               strstr(mirt_last_error(), "there is no checkpoint in this directory"),
           "%s: \"%s\"", cases[i].what, mirt_last_error());
        ok(write_training("mine", "{}") && mirt_latest_checkpoint(NULL, folder, newest, sizeof newest) == MIRT_OK &&
               strcmp(newest, in("mine")) == 0,
           "beside a checkpoint it does no harm");
        unlink(in("mine"));
    }
    ok(mirt_write_file(in("other.safetensors"), "short", 5) == MIRT_OK &&
           mirt_latest_checkpoint(NULL, folder, newest, sizeof newest) == MIRT_E_NOT_FOUND,
       "five bytes: \"%s\"", mirt_last_error());
    char file[400];
    snprintf(file, sizeof file, "%s", in("other.safetensors"));
    ok(mirt_latest_checkpoint(NULL, file, newest, sizeof newest) == MIRT_E_IO &&
           strstr(mirt_last_error(), "cannot open the directory"),
       "a file in place of a directory: \"%s\"", mirt_last_error());
    unlink(file);
    ok(mirt_latest_checkpoint(NULL, file, newest, sizeof newest) == MIRT_E_NOT_FOUND, "nothing there: \"%s\"",
       mirt_last_error());
}

/* >>loading a part */

static mirt_model *model_of(mirt_strategy *s) {
    mirt_compile_desc c = image_compile(mirt_adam(0.01f));
    mirt_model *m = mirt_model_create(s, "m");
    mirt_tensor *x = named_dense(mirt_flatten(mirt_input(m, MIRT_SHAPE(3, 2))), "base", 4, MIRT_RELU);
    mirt_model_output(m, named_dense(x, "head", IMAGE_CLASSES, MIRT_LINEAR));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* The file at `path` again, with tensors of one number more and other classes (NULL: none). */
static bool write_more(const char *from, const char *to, const char *const *more, int count, const char *classes) {
    static const char *const keys[] = {"architecture", "compile", "training"};
    static const float number = 1;
    const char *metadata[8];
    mirt__safetensor tensor[32];
    mirt__safetensors file;
    mirt__safetensors_content content;
    memset(&content, 0, sizeof content);
    memset(tensor, 0, sizeof tensor);
    if (mirt__safetensors_open(&file, from) != MIRT_OK || file.count + count > 32) return false;
    for (int i = 0; i < 3; i++) {
        metadata[2 * i] = keys[i];
        metadata[2 * i + 1] = mirt__safetensors_metadata(&file, keys[i]);
    }
    metadata[6] = "classes";
    metadata[7] = classes;
    memcpy(tensor, file.tensor, (size_t)file.count * sizeof *tensor);
    for (int i = 0; i < count; i++) {
        tensor[file.count + i].name = more[i];
        tensor[file.count + i].dtype = MIRT__ST_F32;
        tensor[file.count + i].data = &number;
    }
    content.tensor = tensor;
    content.count = file.count + count;
    content.metadata = metadata;
    content.metadata_count = classes ? 4 : 3;
    const bool good = mirt__safetensors_write(to, &content) == MIRT_OK;
    mirt__safetensors_close(&file);
    return good;
}

static void check_part(mirt_model *m, const char *file, const char *prefix, const char *file_prefix, int loaded,
                       const char *says) {
    mirt_load_desc desc;
    mirt_load_report report;
    memset(&desc, 0, sizeof desc);
    desc.prefix = prefix;
    desc.file_prefix = file_prefix;
    const mirt_status status = mirt_load_weights_partial(m, file, &desc, &report);
    ok(status == (loaded ? MIRT_OK : MIRT_E_NOT_FOUND) && report.loaded == loaded &&
           strstr(loaded ? report.text : mirt_last_error(), says),
       "%s below \"%s\": %d loaded, \"%s\"", prefix ? prefix : "all", file_prefix ? file_prefix : "", report.loaded,
       loaded ? says : mirt_last_error());
}

static void check_parts(mirt_strategy *s) {
    static const char *const more[] = {"run/sums", "callbacks/mine/w", "adamant/w", "runner/w"};
    char whole[400], other[400];
    mirt_load_report report;
    mirt_model *m = model_of(s);
    snprintf(whole, sizeof whole, "%s", in("whole.safetensors"));
    snprintf(other, sizeof other, "%s", in("other.safetensors"));
    ok(m && mirt_save(m, whole, MIRT_SAVE_ALL) == MIRT_OK && write_more(whole, other, more, 4, NULL),
       "a model with four tensors more: %s", mirt_last_error());
    const mirt_status status = mirt_load_weights_partial(m, other, NULL, &report);
    ok(status == MIRT_OK && report.loaded == 4 && report.extra == 2 && strstr(report.text, "extra: adamant/w") &&
           strstr(report.text, "extra: runner/w"),
       "states of optimizer, run and callbacks are not extra: %d are", report.extra);
    ok(mirt_load_weights_partial(m, whole, NULL, NULL) == MIRT_OK, "nobody need ask for a report");
    check_part(m, whole, "base", "base", 2, "extra: head/kernel (4, 5)");
    check_part(m, whole, "base", "", 0, "none of its");
    check_part(m, whole, "base*", "", 2, "extra: head/bias (5)");
    check_part(m, whole, "head/kernel", NULL, 1, "extra: head/bias (5)");
    check_part(m, whole, "flatten", NULL, 0, "none of its");
    check_part(m, whole, "bass", NULL, 0, "did you mean \"base\"?");
    check_part(m, whole, NULL, "elsewhere", 0, "one of the 4 weights of m");
    ok(mirt_load_weights_partial(m, NULL, NULL, &report) == MIRT_E_INVALID && report.loaded == 0 &&
           mirt_load_weights_partial(NULL, whole, NULL, NULL) == MIRT_E_INVALID,
       "no path, no model: \"%s\"", mirt_last_error());

    static const char *const classes[] = {"[\"a\"", "7", "[]", "[\"a\",7]", "{\"a\":1}"};
    for (int i = 0; i < MIRT__COUNT(classes); i++) {
        ok(write_more(whole, other, more, 0, classes[i]) && !mirt_load(s, other) &&
               mirt_last_status() == MIRT_E_FORMAT && strstr(mirt_last_error(), "classes"),
           "classes %s: \"%s\"", classes[i], mirt_last_error());
    }
    ok(write_more(whole, other, more, 0, "[\"a\",\"\"]"), "two classes, one of them without a name");
    mirt_model *named = mirt_load(s, other);
    int count = 0;
    const char *const *names = mirt_model_class_names(named, &count);
    ok(named && count == 2 && strcmp(names[0], "a") == 0 && !names[1][0], "are loaded: %d", count);
    unlink(whole);
    unlink(other);
}

int main(void) {
    if (!(folder = work_directory())) {
        ok(0, "no temporary directory");
        return done_testing();
    }
    mirt_strategy *s = strategy_of(2, 2, 1);
    check_newest();
    check_many();
    check_others();
    check_parts(s);
    mirt_strategy_destroy(s);
    ok(rmdir(folder) == 0, "nothing is left");
    return done_testing();
}
