/* Passes over data that end early, fail or do not fit the model. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

enum { FEATURES = 3, CLASSES = 4, ROWS = 24 };

/* A source of ROWS samples; fails at one, ends before one, has an odd label at one. */
typedef struct source {
    int64_t fails_at, ends_at, odd_at;
    bool any_order, stream;
} source;

static int sample(void *const *out, int64_t index, void *user) {
    const source *s = (const source *)user;
    if (index == s->fails_at) return 7;
    if (index == s->ends_at || index == ROWS) return MIRT_END_OF_DATA;
    for (int i = 0; i < FEATURES; i++) ((float *)out[0])[i] = (float)((index * 7 + i) % 5);
    *(int32_t *)out[1] = index == s->odd_at ? 99 : (int32_t)(index % CLASSES);
    return 0;
}

static mirt_dataset *data_of(const source *s, int64_t batch) {
    mirt_generator_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.fn = sample;
    desc.user = (void *)(uintptr_t)s;
    desc.num_x = desc.num_y = 1;
    desc.x[0] = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(FEATURES));
    desc.y[0] = mirt_make_array(NULL, MIRT_INT32, mirt_make_shape(0, 0, 0, 0, 0, 0));
    desc.samples = s->stream ? 0 : ROWS;
    desc.any_order = s->any_order;
    mirt_dataset *d = mirt_dataset_from_generator(&desc);
    return batch ? mirt_batch(d, batch) : d;
}

static const source good = {-1, -1, -1, false, false};

static mirt_model *model_of(mirt_strategy *s, int outputs, int units) {
    mirt_compile_desc c = image_compile(mirt_sgd(0.01f, 0, false));
    mirt_model *m = mirt_model_create(s, "m");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(FEATURES)), *out[2];
    for (int i = 0; i < 2; i++) out[i] = named_dense(x, i ? "right" : "left", units, MIRT_LINEAR);
    mirt_model_outputs(m, out, outputs);
    if (units == 1) c.loss = MIRT_BINARY_CROSSENTROPY;
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* What goes through a data set. */
typedef enum pass { FIT, VALIDATE, EVALUATE, PREDICT, CONFUSION, READ, ARRAYS, PASSES } pass;
static const char *const names[PASSES] = {"fit", "validation", "evaluate", "predict", "confusion", "reading", "arrays"};

static mirt_status go_through(pass p, mirt_model *m, mirt_dataset *d, mirt_dataset *other) {
    static float out[ROWS * CLASSES];
    static int64_t counts[CLASSES * CLASSES];
    mirt_fit_desc fit;
    mirt_data data;
    mirt_logs logs;
    mirt_status status;
    memset(&fit, 0, sizeof fit);
    memset(&data, 0, sizeof data);
    fit.no_progress = true;
    fit.validation = p == VALIDATE ? d : NULL;
    switch (p) {
    case FIT: return mirt_fit(m, d, &fit) ? MIRT_OK : mirt_last_status();
    case VALIDATE: return mirt_fit(m, other, &fit) ? MIRT_OK : mirt_last_status();
    case EVALUATE: return mirt_evaluate(m, d, &logs);
    case PREDICT: return mirt_predict(m, d, out, ROWS * CLASSES);
    case CONFUSION: return mirt_confusion_matrix(m, d, counts, CLASSES);
    case READ:
        status = mirt_dataset_read(d, 2, NULL, &data);
        mirt_data_free(&data);
        return status;
    default:
        status = mirt_dataset_arrays(d, &data);
        mirt_data_free(&data);
        return status;
    }
}

static void check_sources(void) {
    static const struct {
        source s;
        const char *says;
    } bad[] = {{{17, -1, -1, false, false}, "returned 7 for sample 17"},
               {{17, -1, -1, true, false}, "returned 7 for sample 17"},
               {{-1, 17, -1, true, false}, "17"}};
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = model_of(s, 1, CLASSES);
    for (int i = 0; i < MIRT__COUNT(bad); i++) {
        for (int p = 0; p < PASSES; p++) {
            mirt_dataset *d = data_of(&bad[i].s, 8), *other = data_of(&good, 8);
            const mirt_status status = go_through((pass)p, m, d, other);
            ok(status != MIRT_OK && strstr(mirt_last_error(), bad[i].says), "source %d, %s: %s", i, names[p],
               status ? mirt_last_error() : "goes through");
            mirt_dataset_destroy(d);
            mirt_dataset_destroy(other);
        }
    }
    /* A source that is read in order may end before its last sample, and a stream anywhere. */
    const source early = {-1, 13, -1, false, false}, stream = {-1, 13, -1, false, true},
                 empty = {-1, 0, -1, false, true};
    mirt_dataset *d = data_of(&early, 8);
    for (int p = 0; p < READ; p++) ok(go_through((pass)p, m, d, d) == MIRT_OK, "%s of 13 samples of 24", names[p]);
    ok(go_through(READ, m, d, NULL) != MIRT_OK && strstr(mirt_last_error(), "ended before batch 2"),
       "no third batch: %s", mirt_last_error());
    mirt_dataset_destroy(d);
    d = mirt_take(data_of(&stream, 8), 3);
    mirt_data read;
    ok(go_through(EVALUATE, m, d, NULL) == MIRT_OK && go_through(CONFUSION, m, d, NULL) == MIRT_OK &&
           go_through(FIT, m, d, NULL) == MIRT_OK,
       "a stream of 13 samples: %s", mirt_last_error());
    ok(mirt_dataset_read(d, 1, NULL, &read) == MIRT_OK && read.x[0].shape.dim[0] == 5, "its second batch has five");
    mirt_data_free(&read);
    ok(mirt_dataset_read(d, 2, NULL, &read) == MIRT_E_INVALID && !read.x[0].data, "and there is no third: %s",
       mirt_last_error());
    mirt_dataset_destroy(d);
    d = mirt_take(data_of(&empty, 8), 3);
    for (int p = 0; p < CONFUSION; p++) {
        mirt_dataset *other = data_of(&good, 8);
        const mirt_status status = go_through((pass)p, m, d, other);
        ok(status == MIRT_OK, "%s of a stream that is empty", names[p]);
        mirt_dataset_destroy(other);
    }
    mirt_dataset_destroy(d);
    d = data_of(&good, 8);
    for (int p = 0; p < PASSES; p++) ok(go_through((pass)p, m, d, d) == MIRT_OK, "%s works", names[p]);
    mirt_dataset_destroy(d);
    mirt_strategy_destroy(s);
}

static void check_confusion(void) {
    static int64_t counts[CLASSES * CLASSES];
    static float x[6 * FEATURES], y[6 * 2];
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = model_of(s, 1, CLASSES), *two = model_of(s, 2, CLASSES), *one = model_of(s, 1, 1);
    const source odd = {-1, -1, 5, false, false};
    mirt_dataset *d = data_of(&good, 8), *strange = data_of(&odd, 8);
    mirt_dataset *bare = mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(6, FEATURES)),
                                     mirt_make_array(NULL, MIRT_FLOAT32, mirt_make_shape(0, 0, 0, 0, 0, 0)));
    mirt_dataset *wide = mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(6, FEATURES)),
                                     mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(6, 2)));
    mirt_dataset *halves = mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(6, FEATURES)),
                                       mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(6)));
    ok(mirt_confusion_matrix(m, d, counts, CLASSES) == MIRT_OK, "a confusion matrix: %s", mirt_last_error());
    ok(mirt_confusion_matrix(m, d, NULL, CLASSES) == MIRT_E_INVALID, "no place: %s", mirt_last_error());
    ok(mirt_confusion_matrix(m, NULL, counts, CLASSES) != MIRT_OK, "no data: %s", mirt_last_error());
    ok(mirt_confusion_matrix(m, d, counts, CLASSES - 1) != MIRT_OK, "too few classes: %s", mirt_last_error());
    ok(mirt_confusion_matrix(two, d, counts, CLASSES) == MIRT_E_INVALID && strstr(mirt_last_error(), "one output"),
       "two outputs: %s", mirt_last_error());
    ok(mirt_confusion_matrix(m, strange, counts, CLASSES) == MIRT_E_INVALID && strstr(mirt_last_error(), "sample 5"),
       "an odd label: %s", mirt_last_error());
    ok(!bare || mirt_confusion_matrix(m, bare, counts, CLASSES) != MIRT_OK, "no labels: %s", mirt_last_error());
    ok(mirt_confusion_matrix(m, wide, counts, CLASSES) != MIRT_OK, "other labels: %s", mirt_last_error());
    for (int i = 0; i < 6; i++) y[i] = i == 3 ? 0.5f : (float)(i % 2);
    ok(mirt_confusion_matrix(one, halves, counts, 2) == MIRT_E_INVALID && strstr(mirt_last_error(), "sample 3"),
       "half a class: %s", mirt_last_error());
    y[3] = -1;
    ok(mirt_confusion_matrix(one, halves, counts, 2) == MIRT_E_INVALID, "a negative one: %s", mirt_last_error());
    y[3] = 1;
    ok(mirt_confusion_matrix(one, halves, counts, 2) == MIRT_OK && counts[0] + counts[1] + counts[2] + counts[3] == 6,
       "numbers above a half are class 1");
    float out[64], *outs[1] = {out};
    const size_t small[1] = {3}, enough[1] = {64};
    ok(mirt_predict(m, d, NULL, 64) == MIRT_E_INVALID && mirt_predict_outputs(m, d, NULL, enough) == MIRT_E_INVALID &&
           mirt_predict_outputs(m, d, outs, NULL) == MIRT_E_INVALID,
       "no place for predictions: %s", mirt_last_error());
    ok(mirt_predict_outputs(m, d, outs, small) == MIRT_E_SHAPE, "too little: %s", mirt_last_error());
    ok(mirt_predict_arrays(m, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(6, FEATURES)), NULL, 64) == MIRT_E_INVALID,
       "no place: %s", mirt_last_error());
    ok(mirt_predict_arrays(m, mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(6, FEATURES)), out, 64) != MIRT_OK,
       "no images: %s", mirt_last_error());
    ok(mirt_predict_arrays(m, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(-6, FEATURES)), out, 64) != MIRT_OK,
       "less than none: %s", mirt_last_error());
    ok(mirt_predict_arrays(m, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(6, FEATURES + 1)), out, 64) != MIRT_OK,
       "other shapes: %s", mirt_last_error());
    ok(mirt_evaluate(m, NULL, NULL) != MIRT_OK && mirt_predict(m, NULL, out, 64) != MIRT_OK, "no data: %s",
       mirt_last_error());
    ok(mirt_plan_memory(m, 4, NULL) == MIRT_E_INVALID && mirt_plan_macs(m, 4, NULL) == MIRT_E_INVALID,
       "no place for plans: %s", mirt_last_error());
    mirt_memory memory;
    double macs;
    ok(mirt_plan_memory(m, 0, &memory) != MIRT_OK && mirt_plan_memory(m, -1, &memory) != MIRT_OK &&
           mirt_plan_macs(m, 0, &macs) != MIRT_OK,
       "batches of nothing: %s", mirt_last_error());
    ok(mirt_plan_memory(m, (int64_t)1 << 50, &memory) != MIRT_OK, "batches beyond all memory: %s", mirt_last_error());
    ok(!mirt_summary(m, -1) && !mirt_graph_text(m, -1), "summaries of such: %s", mirt_last_error());
    ok(mirt_largest_batch(m, 1) == 0 && mirt_last_status() == MIRT_E_NOMEM, "a byte is not enough for a sample: %s",
       mirt_last_error());
    ok(mirt_largest_batch(m, 1 << 20) > 1, "a megabyte is");
    ok(mirt_profile_begin(NULL) != MIRT_OK && !mirt_profile_text(m), "no profile: %s", mirt_last_error());
    mirt_dataset_destroy(d);
    mirt_dataset_destroy(strange);
    mirt_dataset_destroy(bare);
    mirt_dataset_destroy(wide);
    mirt_dataset_destroy(halves);
    mirt_strategy_destroy(s);
}

/* Every allocation of a pass fails once; the next pass works. */
static void check_memory(void) {
    for (int p = 0; p < PASSES; p++) {
        int wrong = 0, met = 0, spared = 0; /* fit can do without the words of its verdict */
        bool reached = true;
        for (long number = 1; reached && wrong < 5; number++) {
            mirt_strategy *s = strategy_of(1, 1, 1);
            mirt_model *m = model_of(s, 1, CLASSES);
            const source any = {-1, -1, -1, p % 2 == 0, false};
            mirt_dataset *d = data_of(&any, 8), *other = data_of(&good, 8);
            allocations = 0;
            fails = number;
            const mirt_status status = go_through((pass)p, m, d, other);
            fails = 0;
            reached = allocations >= number;
            met += reached;
            spared += reached && status == MIRT_OK;
            const bool right =
                status == (reached ? MIRT_E_NOMEM : MIRT_OK) || (p <= VALIDATE && status == MIRT_OK && spared <= 3);
            const bool again = !reached || go_through((pass)p, m, d, other) == MIRT_OK;
            mirt_dataset_destroy(d);
            mirt_dataset_destroy(other);
            mirt_strategy_destroy(s);
            if (right && again && live_blocks == 0) continue;
            if (wrong++ < 3)
                printf("# %s, allocation %ld: status %d%s, %ld blocks left: %s\n", names[p], number, (int)status,
                       again ? "" : ", cannot be made again", live_blocks, mirt_last_error());
            live_blocks = 0;
        }
        ok(!wrong && met > 3, "%s: %d failed allocations, each reported, nothing leaks, and it works again", names[p],
           met);
    }
}

int main(void) {
    check_sources();
    check_confusion();
    check_memory();
    return done_testing();
}
