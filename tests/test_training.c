/* Tests options of fit (epochs, steps, validation, weights), wrong losses and metrics, and loss terms. Also
   training, testing and predicting on one batch of several inputs and outputs. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include "mirror_util.h"

enum { N = 10, IN = 4, MOST = 256 };
static float xs[N * IN], zs[N * 2], weights[N], reals[N];
static int32_t classes[N];

static mirt_tensor *dense(mirt_tensor *x, const char *name, int units) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = units;
    d.name = name;
    return mirt_dense(x, &d);
}

static mirt_data samples(void) {
    mirt_data d;
    memset(&d, 0, sizeof d);
    d.x[0] = mirt_make_array(xs, MIRT_FLOAT32, MIRT_SHAPE(N, IN));
    d.y[0] = mirt_make_array(classes, MIRT_INT32, MIRT_SHAPE(N));
    return d;
}

static mirt_model *classifier(mirt_strategy *s, const char *name) {
    mirt_model *m = mirt_model_create(s, name);
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = mirt_sgd(0.1f, 0.9f, false);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    mirt_model_output(m, dense(mirt_input(m, MIRT_SHAPE(IN)), "d", 3));
    if (mirt_compile(m, &c) != MIRT_OK) printf("# %s\n", mirt_last_error());
    return m;
}

static double value_of(const mirt_logs *logs, const char *name) {
    for (int i = 0; i < logs->count; i++) {
        if (strcmp(logs->name[i], name) == 0) return logs->value[i];
    }
    return NAN;
}

static void digest(mirt_model *m, char out[MIRT__SHA256_HEX]) { digest_weights(m, 0, out); }

static bool refused(bool failed, mirt_status status, const char *words) {
    bool good = failed && mirt_last_status() == status && strstr(mirt_last_error(), words);
    return ok(good, "\"%s\"%s%s", mirt_last_error(), good ? "" : ", not ", good ? "" : words);
}

/* >>epochs and steps */

/* The samples that fit asked for, in order, and a mark for every batch and epoch. */
typedef struct seen {
    char text[2000];
    int64_t batches;
} seen;

static int see_sample(const void *const *in, void *const *out, int64_t index, void *user) {
    seen *s = (seen *)user;
    (void)in;
    (void)out;
    snprintf(s->text + strlen(s->text), sizeof s->text - strlen(s->text), "%d", (int)index);
    return 0;
}
static void see(seen *s, const char *mark) {
    snprintf(s->text + strlen(s->text), sizeof s->text - strlen(s->text), "%s", mark);
}
static int see_epoch(const mirt_event *e, void *user) {
    char mark[16];
    snprintf(mark, sizeof mark, "[%d:", e->epoch);
    see((seen *)user, mark);
    ((seen *)user)->batches = e->batches;
    return 0;
}
static int see_epoch_end(const mirt_event *e, void *user) {
    (void)e;
    see((seen *)user, "]");
    return 0;
}
static int see_batch_end(const mirt_event *e, void *user) {
    (void)e;
    see((seen *)user, ",");
    return 0;
}

static mirt_dataset *watched_from(mirt_dataset *data, seen *s) {
    mirt_map_desc map;
    memset(&map, 0, sizeof map);
    memset(s, 0, sizeof *s);
    map.fn = see_sample;
    map.user = s;
    return mirt_map(data, &map);
}

static mirt_dataset *watched(seen *s) {
    mirt_data d = samples();
    return watched_from(mirt_arrays_of(&d), s);
}

static mirt_fit_desc fit_seen(seen *s, mirt_callback *c) {
    mirt_fit_desc d;
    memset(&d, 0, sizeof d);
    memset(c, 0, sizeof *c);
    c->user = s;
    c->epoch_begin = see_epoch;
    c->epoch_end = see_epoch_end;
    c->batch_end = see_batch_end;
    d.callbacks[0] = c;
    d.no_progress = true;
    return d;
}

/* An epoch of six steps that passes three times over shuffled data: three orders. */
static void test_shuffled_steps(mirt_strategy *s) {
    mirt_model *m = classifier(s, "m");
    mirt_data d = samples();
    seen w;
    mirt_dataset *data = mirt_batch(watched_from(mirt_shuffle(mirt_arrays_of(&d), N), &w), 5);
    mirt_fit_desc f;
    memset(&f, 0, sizeof f);
    f.no_progress = true;
    f.steps_per_epoch = 6;
    bool good = mirt_fit(m, data, &f) && strlen(w.text) == 3 * N;
    for (int i = 0; good && i < N; i++)
        good = memchr(w.text, '0' + i, N) && memchr(w.text + N, '0' + i, N) && memchr(w.text + 2 * N, '0' + i, N);
    ok(good && memcmp(w.text, w.text + N, N) != 0 && memcmp(w.text + N, w.text + 2 * N, N) != 0,
       "each pass over the data within an epoch has an order of its own: %s", w.text);
    mirt_dataset_destroy(data);
    mirt_model_destroy(m);
}

static void test_steps(mirt_strategy *s) {
    mirt_model *m = classifier(s, "m");
    mirt_callback c;
    seen w;
    mirt_dataset *data = mirt_batch(watched(&w), 3);
    mirt_fit_desc d = fit_seen(&w, &c);
    d.epochs = 5;
    d.steps_per_epoch = 3;
    mirt_history *h = mirt_fit(m, data, &d);
    ok(h && strcmp(w.text, "[0:012,345,678,][1:9,012,345,][2:678,9,012,][3:345,678,9,][4:012,345,678,]") == 0 &&
           h->epochs == 5 && h->steps == 15 && w.batches == 3,
       "epochs of 3 steps continue where they stopped: %s", w.text);
    w.text[0] = 0;
    d.epochs = 1;
    h = mirt_fit(m, data, &d);
    ok(h && strcmp(w.text, "[0:012,345,678,]") == 0, "the next fit begins anew: %s", w.text);
    w.text[0] = 0;
    d.steps_per_epoch = 0;
    d.initial_epoch = 3;
    d.epochs = 5;
    h = mirt_fit(m, data, &d);
    ok(h && strcmp(w.text, "[3:012,345,678,9,][4:012,345,678,9,]") == 0 && h->epochs == 2 && w.batches == 4,
       "initial_epoch 3 of 5: %s", w.text);
    w.text[0] = 0;
    d.initial_epoch = 5;
    h = mirt_fit(m, data, &d);
    ok(h && h->epochs == 0 && h->steps == 0 && !w.text[0] && isnan(mirt_history_last(h, "loss")),
       "initial_epoch at the end: no epoch, no error");
    d.initial_epoch = -1;
    refused(!mirt_fit(m, data, &d), MIRT_E_INVALID, "cannot be negative");
    d.initial_epoch = 0;
    d.batch = 5;
    refused(!mirt_fit(m, data, &d), MIRT_E_INVALID, "batch is 5, but the data set is in batches of 3 already");
    d.batch = 3;
    ok(mirt_fit(m, data, &d) != NULL, "the same number is no contradiction");
    mirt_dataset_destroy(data);
    data = mirt_batch(mirt_repeat(watched(&w), 0), 4);
    d = fit_seen(&w, &c);
    d.epochs = 2;
    refused(!mirt_fit(m, data, &d), MIRT_E_INVALID, "no end: steps_per_epoch");
    ok(!w.text[0] && mirt_dataset_batches(data) == -1, "before anything is done");
    d.steps_per_epoch = 3;
    h = mirt_fit(m, data, &d);
    ok(h && strcmp(w.text, "[0:0123,4567,8901,][1:2345,6789,0123,]") == 0 && h->steps == 6, "endless data by steps: %s",
       w.text);
    w.text[0] = 0;
    d.steps_per_epoch = 0;
    d.max_steps = 4;
    h = mirt_fit(m, data, &d);
    ok(h && strcmp(w.text, "[0:0123,4567,8901,2345,]") == 0 && h->epochs == 1 && w.batches == -1,
       "and by max_steps: %s", w.text);
    mirt_dataset_destroy(data);
    mirt_model_destroy(m);
}

static void keep_line(mirt_log_level level, const char *text, void *user) {
    if (level == MIRT_LOG_PROGRESS) snprintf((char *)user, 400, "%s", text);
    if (level == MIRT_LOG_WARNING && strstr(text, "handed in as a mean")) ((char *)user)[400]++;
}

static void test_unknown(mirt_strategy *s) {
    char line[401] = "";
    mirt_data d = samples();
    mirt_model *m = classifier(s, "m");
    mirt_dataset *data = mirt_batch(mirt_repeat(mirt_arrays_of(&d), 0), 4);
    mirt_fit_desc f;
    memset(&f, 0, sizeof f);
    f.max_steps = 3;
    mirt_set_log(s, keep_line, line);
    ok(mirt_fit(m, data, &f) && strncmp(line, "3/Unknown ", 10) == 0, "steps that nobody knows: %s", line);
    mirt_set_log(s, NULL, NULL);
    mirt_dataset_destroy(data);
    mirt_model_destroy(m);
}

static void test_validation(mirt_strategy *s) {
    mirt_data d = samples();
    mirt_model *m = classifier(s, "m");
    mirt_dataset *data = mirt_batch(mirt_arrays_of(&d), 5), *validation = mirt_batch(mirt_arrays_of(&d), 3),
                 *first = mirt_batch(mirt_take(mirt_arrays_of(&d), 6), 3);
    mirt_dataset *endless = mirt_batch(mirt_repeat(mirt_arrays_of(&d), 0), 3);
    mirt_logs logs;
    mirt_fit_desc f;
    memset(&f, 0, sizeof f);
    f.epochs = 5;
    f.no_progress = true;
    f.validation = validation;
    f.validation_freq = 2;
    mirt_history *h = mirt_fit(m, data, &f);
    int right = 0;
    for (int e = 0; h && e < 5; e++) right += isnan(value_of(&h->epoch[e], "val_loss")) == (e % 2 == 0);
    ok(right == 5, "validation_freq 2: after the second and the fourth of five epochs");
    f.epochs = 1;
    f.validation_freq = 0;
    f.validation_steps = 2;
    h = mirt_fit(m, data, &f);
    ok(h && mirt_evaluate(m, first, &logs) == MIRT_OK && value_of(&logs, "loss") == mirt_history_last(h, "val_loss"),
       "validation_steps 2 are the first 6 samples");
    f.validation = endless;
    h = mirt_fit(m, data, &f);
    ok(h && mirt_evaluate(m, first, &logs) == MIRT_OK && value_of(&logs, "loss") == mirt_history_last(h, "val_loss"),
       "of endless data too");
    f.validation_steps = 0;
    refused(!mirt_fit(m, data, &f), MIRT_E_INVALID, "validation data have no end");
    refused(mirt_evaluate(m, endless, &logs) != MIRT_OK, MIRT_E_INVALID, "no end");
    f.validation = data;
    h = mirt_fit(m, data, &f);
    ok(h && mirt_evaluate(m, data, &logs) == MIRT_OK && value_of(&logs, "loss") == mirt_history_last(h, "val_loss"),
       "the training data may be the validation data");
    f.steps_per_epoch = 1;
    refused(!mirt_fit(m, data, &f), MIRT_E_INVALID, "of their own");
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(validation);
    mirt_dataset_destroy(first);
    mirt_dataset_destroy(endless);
    mirt_model_destroy(m);
}

/* >>weights of samples and classes */

static void test_weights(mirt_strategy *s) {
    char a[MIRT__SHA256_HEX], b[MIRT__SHA256_HEX];
    mirt_data d = samples();
    mirt_fit_desc f;
    float ones[3] = {1, 1, 1}, some[3] = {1, 3, 0.5f}, bad[3] = {1, NAN, 1};
    memset(&f, 0, sizeof f);
    f.no_progress = true;
    mirt_dataset *plain = mirt_batch(mirt_arrays_of(&d), 4);
    d.weights = mirt_make_array(weights, MIRT_FLOAT32, MIRT_SHAPE(N));
    mirt_dataset *weighted = mirt_batch(mirt_arrays_of(&d), 4);
    mirt_model *m = classifier(s, "m"), *k = classifier(s, "m");
    f.class_weights = ones;
    f.num_class_weights = 3;
    ok(mirt_fit(m, plain, &f) && mirt_fit(k, plain, NULL), "class weights of one");
    digest(m, a);
    digest(k, b);
    ok(strcmp(a, b) == 0, "change nothing");
    f.class_weights = some;
    ok(mirt_fit(m, plain, &f) != NULL, "others");
    digest(m, a);
    for (int i = 0; i < N; i++) weights[i] = some[classes[i]];
    ok(mirt_fit(k, weighted, NULL) != NULL, "and the same of every sample");
    digest(k, b);
    ok(strcmp(a, b) == 0, "are the same step by step");
    ok(mirt_fit(m, plain, NULL) && mirt_fit(k, plain, NULL), "without them");
    digest(m, a);
    digest(k, b);
    ok(strcmp(a, b) == 0, "they are gone");
    weights[6] = NAN;
    refused(!mirt_fit(m, weighted, NULL), MIRT_E_INVALID, "the weight of sample 6 is nan");
    refused(mirt_train_on_batch(m, &d, NULL) != MIRT_OK, MIRT_E_INVALID, "the weight of sample 6 is nan");
    refused(mirt_evaluate(m, weighted, NULL) != MIRT_OK, MIRT_E_INVALID, "the weight of sample 6 is nan");
    float out[N * 3];
    ok(mirt_predict(m, weighted, out, N * 3) == MIRT_OK, "predicting does not ask for them");
    weights[6] = -1;
    ok(mirt_train_on_batch(m, &d, NULL) == MIRT_OK, "a negative weight is a number");
    d.weights = mirt_make_array(weights, MIRT_FLOAT32, MIRT_SHAPE(N - 1));
    refused(mirt_train_on_batch(m, &d, NULL) != MIRT_OK, MIRT_E_SHAPE, "9");
    d.weights = mirt_make_array(weights, MIRT_INT32, MIRT_SHAPE(N));
    refused(mirt_train_on_batch(m, &d, NULL) != MIRT_OK, MIRT_E_INVALID, "weights must be float32");
    f.num_class_weights = 2;
    refused(!mirt_fit(m, plain, &f), MIRT_E_SHAPE, "num_class_weights is 2, but m has 3 classes: each needs a weight");
    f.num_class_weights = 3;
    f.class_weights = bad;
    refused(!mirt_fit(m, plain, &f), MIRT_E_INVALID, "the weight of class 1 is nan");
    mirt_dataset_destroy(plain);
    mirt_dataset_destroy(weighted);
    mirt_model_destroy(m);
    mirt_model_destroy(k);
}

/* >>losses and metrics that are wrong */

typedef enum wrong { RIGHT, NOTHING, INTEGERS, VECTOR, FOREIGN, SHAPES, MEAN } wrong;
typedef struct wrong_user {
    wrong kind;
    mirt_tensor *foreign;
} wrong_user;

static mirt_tensor *record_wrong(mirt_tensor *labels, mirt_tensor *output, void *user) {
    const wrong_user *w = (const wrong_user *)user;
    static const float three[3] = {1, 2, 3};
    mirt_tensor *c = mirt_constant_tensor(output, mirt_make_array(three, MIRT_FLOAT32, MIRT_SHAPE(3)));
    switch (w->kind) {
    case NOTHING: return NULL;
    case INTEGERS: return mirt_argmax(output, -1);
    case VECTOR: return c;
    case FOREIGN: return w->foreign;
    case SHAPES: return mirt_matmul(labels, c, false, false);
    case MEAN: return mirt_reduce_mean(mirt_square(output), 3u, false);
    default: return mirt_reduce_mean(mirt_square(output), 0, false);
    }
}

static void test_wrong(mirt_strategy *s) {
    static const char *const words[] = {
        "",          "returned nothing", "returned int32 (rows)", "returned float32 (3)", "another model or function",
        "the custom"};
    wrong_user user = {NOTHING, NULL};
    mirt_custom_loss loss = {"my_loss", record_wrong, &user};
    mirt_custom_metric metric = {"my_metric", record_wrong, NULL, &user, MIRT_MODE_AUTO};
    mirt_data d = samples();
    char line[401] = "";
    for (int of_metric = 0; of_metric < 2; of_metric++) {
        mirt_model *m = classifier(s, "m");
        mirt_compile_desc c;
        memset(&c, 0, sizeof c);
        c.optimizer = mirt_sgd(0.1f, 0, false);
        if (of_metric) {
            c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
            c.custom_metrics[0] = &metric;
        } else {
            c.custom_losses[0] = &loss;
        }
        ok(mirt_compile(m, &c) == MIRT_OK, "a custom %s", of_metric ? "metric" : "loss");
        user.foreign = m->output[0];
        for (int k = NOTHING; k <= SHAPES; k++) {
            user.kind = (wrong)k;
            bool failed = mirt_train_on_batch(m, &d, NULL) != MIRT_OK;
            bool good = failed && strstr(mirt_last_error(), words[k]) &&
                        strstr(mirt_last_error(), of_metric ? "my_metric" : "my_loss");
            ok(good, "\"%s\"", mirt_last_error());
        }
        user.kind = RIGHT;
        ok(mirt_train_on_batch(m, &d, NULL) == MIRT_OK && mirt_step(m) == 1, "mended, it trains");
        mirt_model_destroy(m);
    }
    mirt_model *m = classifier(s, "m");
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    loss.name = NULL;
    c.custom_losses[0] = &loss;
    refused(mirt_compile(m, &c) != MIRT_OK, MIRT_E_INVALID, "output 0: a custom loss needs a name");
    loss.name = "l\xff";
    refused(mirt_compile(m, &c) != MIRT_OK, MIRT_E_INVALID, "output 0: a custom loss needs a name in UTF-8");
    loss.name = "l";
    loss.record = NULL;
    refused(mirt_compile(m, &c) != MIRT_OK, MIRT_E_INVALID, "needs a name in UTF-8 and a function");
    loss.record = record_wrong;
    metric.name = NULL;
    c.custom_metrics[0] = &metric;
    refused(mirt_compile(m, &c) != MIRT_OK, MIRT_E_INVALID, "metric number 1: a custom metric needs a name");
    ok(mirt_train_on_batch(m, &d, NULL) == MIRT_OK, "the model is as it was compiled before");
    c.custom_metrics[0] = NULL;
    user.kind = MEAN;
    ok(mirt_compile(m, &c) == MIRT_OK, "a mean is a loss");
    mirt_fit_desc f;
    memset(&f, 0, sizeof f);
    float ones[3] = {1, 1, 1};
    f.epochs = 2;
    f.batch = 4;
    mirt_dataset *data = mirt_arrays_of(&d);
    mirt_set_log(s, keep_line, line);
    ok(mirt_fit(m, data, &f) && line[400] == 1, "with one warning (%d)", line[400]);
    mirt_set_log(s, NULL, NULL);
    f.class_weights = ones;
    f.num_class_weights = 3;
    refused(!mirt_fit(m, data, &f), MIRT_E_SHAPE, "l is one number for all");
    mirt_dataset_destroy(data);
    mirt_model_destroy(m);
}

/* >>terms of the loss */

/* A weight w of 3 numbers, 1, 2, 3, beside a dense layer: loss + 2 sum w + mean (or sum) of x^2 over a row. */
static mirt_model *with_terms(mirt_strategy *s, bool terms, mirt_reduction reduction) {
    mirt_model *m = mirt_model_create(s, "terms");
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = mirt_sgd(0.25f, 0, false);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    c.reduction = reduction;
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(IN)), *w = mirt_variable(m, "w", MIRT_SHAPE(3), mirt_ones(), true);
    mirt_model_output(m, dense(x, "d", 1));
    if (terms && mirt_add_loss(m, mirt_scale(mirt_reduce_sum(w, 1u, false), 2, 0)) != MIRT_OK)
        printf("# %s\n", mirt_last_error());
    if (terms && mirt_add_loss(m, mirt_square(x)) != MIRT_OK) printf("# %s\n", mirt_last_error());
    if (mirt_compile(m, &c) != MIRT_OK) printf("# %s\n", mirt_last_error());
    return m;
}

static void test_terms(mirt_strategy *s) {
    double squares = 0;
    float w[3];
    mirt_logs with, without;
    mirt_data d = samples();
    d.y[0] = mirt_make_array(reals, MIRT_FLOAT32, MIRT_SHAPE(N, 1));
    for (int i = 0; i < N * IN; i++) squares += (double)xs[i] * (double)xs[i] / IN;
    for (int sum = 0; sum < 2; sum++) {
        mirt_reduction reduction = sum ? MIRT_SUM : MIRT_SUM_OVER_BATCH_SIZE;
        mirt_model *m = with_terms(s, true, reduction), *plain = with_terms(s, false, reduction);
        double want = 6 + (sum ? squares * IN : squares / N); /* MIRT_SUM adds up the values of a row, too */
        bool good = mirt_test_on_batch(m, &d, &with) == MIRT_OK && mirt_test_on_batch(plain, &d, &without) == MIRT_OK;
        double off = good ? fabs(value_of(&with, "loss") - value_of(&without, "loss") - want) : NAN;
        ok(off < 1e-5 * want, "%s: terms add %.6f to the loss, off by %.1e", sum ? "a sum" : "a mean", want, off);
        good = mirt_train_on_batch(m, &d, &without) == MIRT_OK && mirt_get_weight(m, "w", 0, w, 3) == MIRT_OK;
        ok(good && fabs(value_of(&with, "loss") - value_of(&without, "loss")) < 1e-5 * want,
           "training tells the same loss");
        ok(good && w[0] == 0.5f && w[1] == 0.5f && w[2] == 0.5f, "a number counts once for %d replicas: %g",
           mirt_num_replicas(s), (double)w[0]);
        mirt_model_destroy(m);
        mirt_model_destroy(plain);
    }
    /* In a part that is called twice: numbers of weights alone count once, others every time. */
    mirt_model *base = mirt_model_create(s, "base"), *top = mirt_model_create(s, "top");
    mirt_tensor *x = mirt_input(base, MIRT_SHAPE(IN)), *v = mirt_variable(base, "v", MIRT_SHAPE(2), mirt_ones(), true);
    mirt_add_loss(base, mirt_reduce_sum(v, 1u, false));
    mirt_add_loss(base, mirt_reduce_mean(mirt_square(x), 3u, false));
    mirt_model_output(base, mirt_scale(x, 0, 0));
    x = mirt_input(top, MIRT_SHAPE(IN));
    mirt_tensor *y = mirt_add(mirt_call(base, x, MIRT_TRAINING_AUTO), mirt_call(base, x, MIRT_TRAINING_AUTO));
    mirt_model_output(top, y);
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    d.y[0] = d.x[0];
    bool good = mirt_compile(top, &c) == MIRT_OK && mirt_test_on_batch(top, &d, &with) == MIRT_OK;
    double want = 2 + 3 * squares / N; /* the loss itself is the mean of x^2 too */
    ok(good && fabs(value_of(&with, "loss") - want) < 1e-5 * want, "of a part called twice: %.6f, not %.6f%s%s",
       good ? value_of(&with, "loss") : 0, want, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_model_destroy(top);
    mirt_model_destroy(base);
}

/* >>one batch */

static mirt_model *two_of(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "two");
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = mirt_adam(0.01f);
    c.losses[0] = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.losses[1] = MIRT_MEAN_SQUARED_ERROR;
    c.from_logits = true;
    c.metrics[0] = MIRT_ACCURACY;
    mirt_tensor *both[2], *out[2];
    both[0] = mirt_input(m, MIRT_SHAPE(IN));
    both[1] = mirt_input(m, MIRT_SHAPE(2));
    mirt_tensor *x = mirt_concatenate(both, 2, -1);
    out[0] = dense(x, "class", 3);
    out[1] = dense(x, "real", 1);
    mirt_model_outputs(m, out, 2);
    if (mirt_compile(m, &c) != MIRT_OK) printf("# %s\n", mirt_last_error());
    return m;
}

static mirt_data two_data(int first, int rows) {
    mirt_data d;
    memset(&d, 0, sizeof d);
    d.x[0] = mirt_make_array(xs + first * IN, MIRT_FLOAT32, MIRT_SHAPE(rows, IN));
    d.x[1] = mirt_make_array(zs + first * 2, MIRT_FLOAT32, MIRT_SHAPE(rows, 2));
    d.y[0] = mirt_make_array(classes + first, MIRT_INT32, MIRT_SHAPE(rows));
    d.y[1] = mirt_make_array(reals + first, MIRT_FLOAT32, MIRT_SHAPE(rows, 1));
    return d;
}

static void test_on_batch(mirt_strategy *s) {
    char a[MIRT__SHA256_HEX], b[MIRT__SHA256_HEX];
    mirt_logs logs, other;
    mirt_model *m = two_of(s), *k = two_of(s);
    mirt_data all = two_data(0, N), first = two_data(0, 4), second = two_data(4, 4), third = two_data(8, 2);
    mirt_dataset *data = mirt_batch(mirt_arrays_of(&all), 4);
    ok(mirt_fit(k, data, NULL) != NULL, "a fit of three batches");
    ok(mirt_train_on_batch(m, &first, NULL) == MIRT_OK && mirt_train_on_batch(m, &second, NULL) == MIRT_OK &&
           mirt_train_on_batch(m, &third, &logs) == MIRT_OK && mirt_step(m) == 3,
       "the same batch by batch");
    digest(m, a);
    digest(k, b);
    ok(strcmp(a, b) == 0, "trains to the same bits");
    ok(logs.count == 5 && isfinite(value_of(&logs, "class_loss")) && isfinite(value_of(&logs, "real_accuracy")) &&
           fabs(value_of(&logs, "class_loss") + value_of(&logs, "real_loss") - value_of(&logs, "loss")) < 1e-6,
       "its logs name the outputs (%d)", logs.count);
    ok(mirt_test_on_batch(m, &all, &logs) == MIRT_OK && mirt_evaluate(m, data, &other) == MIRT_OK &&
           value_of(&logs, "loss") == value_of(&other, "loss") &&
           value_of(&logs, "class_accuracy") == value_of(&other, "class_accuracy"),
       "testing on a batch is evaluating");
    digest(m, b);
    ok(strcmp(a, b) == 0, "and changes nothing");
    float y[2][N * 3], z[2][N * 3], *to[2] = {y[0], y[1]}, *to_z[2] = {z[0], z[1]};
    size_t capacity[2] = {N * 3, N};
    ok(mirt_predict_on_batch(m, &all, to, capacity) == MIRT_OK &&
           mirt_predict_outputs(m, data, to_z, capacity) == MIRT_OK && memcmp(y[0], z[0], sizeof y[0]) == 0 &&
           memcmp(y[1], z[1], N * sizeof(float)) == 0,
       "so is predicting");
    refused(mirt_predict(m, data, y[0], N * 3) != MIRT_OK, MIRT_E_INVALID, "mirt_predict_outputs");
    refused(mirt_predict_arrays(m, all.x[0], y[0], N * 3) != MIRT_OK, MIRT_E_INVALID, "mirt_predict_outputs");
    capacity[1] = N - 1;
    refused(mirt_predict_on_batch(m, &all, to, capacity) != MIRT_OK, MIRT_E_SHAPE,
            "need 10 floats, there is room for 9");
    refused(mirt_predict_outputs(m, data, to, capacity) != MIRT_OK, MIRT_E_SHAPE,
            "need 10 floats, there is room for 9");
    to[1] = NULL;
    refused(mirt_predict_on_batch(m, &all, to, capacity) != MIRT_OK, MIRT_E_INVALID, "no place");
    refused(mirt_predict_on_batch(m, &all, NULL, capacity) != MIRT_OK, MIRT_E_INVALID, "no place");
    refused(mirt_predict_on_batch(m, &all, to_z, NULL) != MIRT_OK, MIRT_E_INVALID, "no place");
    refused(mirt_predict_outputs(m, data, NULL, NULL) != MIRT_OK, MIRT_E_INVALID, "no place");
    ok(mirt_predict_outputs(m, NULL, to_z, capacity) != MIRT_OK &&
           mirt_predict_on_batch(m, NULL, to_z, capacity) != MIRT_OK,
       "\"%s\"", mirt_last_error());
    ok(mirt_train_on_batch(m, NULL, NULL) != MIRT_OK && mirt_test_on_batch(m, NULL, NULL) != MIRT_OK, "\"%s\"",
       mirt_last_error());
    ok(mirt_train_on_batch(NULL, &all, NULL) != MIRT_OK && mirt_test_on_batch(NULL, &all, NULL) != MIRT_OK &&
           mirt_predict_on_batch(NULL, &all, to_z, capacity) != MIRT_OK &&
           mirt_predict_outputs(NULL, data, to_z, capacity) != MIRT_OK,
       "\"%s\"", mirt_last_error());
    first.x[1].data = NULL;
    refused(mirt_train_on_batch(m, &first, NULL) != MIRT_OK, MIRT_E_SHAPE, "1 input a sample, two takes 2");
    first = two_data(0, 4);
    first.y[1].data = NULL;
    refused(mirt_train_on_batch(m, &first, NULL) != MIRT_OK, MIRT_E_INVALID, "1 label a sample, two takes 2");
    first = two_data(0, 4);
    first.x[1].shape.dim[0] = 3;
    refused(mirt_train_on_batch(m, &first, NULL) != MIRT_OK, MIRT_E_SHAPE, "3");
    first = two_data(0, 4);
    first.x[1].shape.dim[1] = 1;
    refused(mirt_train_on_batch(m, &first, NULL) != MIRT_OK, MIRT_E_SHAPE, "input 1: samples are (1), two takes (2)");
    first = two_data(0, 4);
    first.y[1].shape.dim[1] = 2;
    refused(mirt_train_on_batch(m, &first, NULL) != MIRT_OK, MIRT_E_SHAPE, "2 values");
    memset(&first, 0, sizeof first);
    refused(mirt_train_on_batch(m, &first, NULL) != MIRT_OK, MIRT_E_INVALID, "no samples");
    mirt_fit_desc f;
    float ones[3] = {1, 1, 1};
    memset(&f, 0, sizeof f);
    f.class_weights = ones;
    f.num_class_weights = 3;
    refused(!mirt_fit(m, data, &f), MIRT_E_INVALID, "models with one label");
    digest(m, b);
    ok(strcmp(a, b) == 0, "after all of which the weights are as they were");
    ok(mirt_summary(m, 8) && strstr(mirt_summary(m, 8), "class") && mirt_graph_text(m, 8),
       "summary and graph of several inputs and outputs");
    mirt_dataset_destroy(data);
    mirt_model_destroy(m);
    mirt_model_destroy(k);
}

/* As many outputs and metrics as there may be: every number has a name in the logs. */
static void test_many(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "many");
    mirt_custom_metric metric = {"size", record_wrong, NULL, NULL, MIRT_MODE_AUTO};
    wrong_user user = {RIGHT, NULL};
    mirt_compile_desc c;
    mirt_data d = samples();
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(IN)), *out[MIRT_MAX_OUTPUTS], *part[2];
    metric.user = &user;
    memset(&c, 0, sizeof c);
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.metrics[0] = MIRT_ACCURACY;
    c.custom_metrics[0] = c.custom_metrics[1] = c.custom_metrics[2] = &metric;
    for (int i = 0; i < MIRT_MAX_OUTPUTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "o%d", i);
        out[i] = dense(x, name, 3);
        d.y[i] = d.y[0];
    }
    out[7] = mirt_split_tensor(mirt_concat(out, 2, -1), 2, -1, part);
    mirt_model_outputs(m, out, MIRT_MAX_OUTPUTS);
    mirt_dataset *data = mirt_arrays_of(&d);
    mirt_fit_desc f;
    memset(&f, 0, sizeof f);
    f.validation = data;
    f.no_progress = true;
    mirt_history *h = mirt_compile(m, &c) == MIRT_OK ? mirt_fit(m, data, &f) : NULL;
    ok(h && h->epoch[0].count == 2 * (1 + 8 + 32) + 1, "8 outputs with 4 metrics each: %d values%s%s",
       h ? h->epoch[0].count : 0, h ? "" : ": ", h ? "" : mirt_last_error());
    ok(h && isfinite(mirt_history_last(h, "val_o6_size")) && isfinite(mirt_history_last(h, "val_output_7_accuracy")) &&
           isfinite(mirt_history_last(h, "learning_rate")),
       "of which none is lost; an output that no layer made has its number");
    c.custom_metrics[3] = &metric;
    refused(mirt_compile(m, &c) != MIRT_OK, MIRT_E_INVALID, "more than 32 metrics");
    ok(mirt_train_on_batch(m, &d, NULL) == MIRT_OK, "and it is as it was");
    mirt_dataset_destroy(data);
    mirt_model_destroy(m);
}

/* >>probabilities and logits */

static void keep_warning(mirt_log_level level, const char *text, void *user) {
    if (level == MIRT_LOG_WARNING) snprintf((char *)user, 400, "%s", text);
}

static void test_logits(mirt_strategy *s) {
    static const struct { mirt_loss loss; mirt_activation_kind last; int units; bool from_logits; const char *says;
    } row[] = {{MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, MIRT_LINEAR, 3, true, ""},
               {MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, MIRT_SOFTMAX, 3, false, ""},
               {MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, MIRT_SOFTMAX, 3, true, "d ends in a softmax"},
               {MIRT_CATEGORICAL_CROSSENTROPY, MIRT_LINEAR, 3, false,
                "categorical_crossentropy takes probabilities, but d has no activation: give it MIRT_SOFTMAX"},
               {MIRT_BINARY_CROSSENTROPY, MIRT_LINEAR, 1, false, "give it MIRT_SIGMOID"},
               {MIRT_BINARY_CROSSENTROPY, MIRT_SIGMOID, 1, true, "d ends in a sigmoid"},
               {MIRT_BINARY_CROSSENTROPY, MIRT_SIGMOID, 1, false, ""},
               {MIRT_MEAN_SQUARED_ERROR, MIRT_LINEAR, 2, false, ""},
               {MIRT_MEAN_SQUARED_ERROR, MIRT_SIGMOID, 2, true, ""},
               {MIRT_LOSS_NONE, MIRT_LINEAR, 2, false, ""}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char said[400] = "";
        mirt_compile_desc c;
        mirt_dense_desc d;
        memset(&c, 0, sizeof c);
        memset(&d, 0, sizeof d);
        mirt_model *m = mirt_model_create(s, "m");
        d.name = "d";
        d.units = row[i].units;
        d.activation = row[i].last;
        c.loss = row[i].loss;
        c.from_logits = row[i].from_logits;
        mirt_model_output(m, mirt_dense(mirt_input(m, MIRT_SHAPE(IN)), &d));
        mirt_set_log(s, keep_warning, said);
        bool good = mirt_compile(m, &c) == MIRT_OK;
        mirt_set_log(s, NULL, NULL);
        ok(good && (*row[i].says ? strstr(said, row[i].says) != NULL : !*said),
           "loss %d, activation %d, from_logits %d: \"%s\"", (int)row[i].loss, (int)row[i].last, row[i].from_logits,
           said);
        mirt_model_destroy(m);
    }
}

/* Values of a metric, one for each label: three for training and two for testing. */
static mirt_tensor *record_labels(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)output, (void)user;
    return labels;
}
static double sum_of(const double *sums, int count, int64_t samples, void *user) {
    double all = 1000 * count;
    (void)samples, (void)user;
    for (int i = 0; i < count; i++) all += sums[i];
    return all;
}

static void test_wide_metrics(mirt_strategy *s) {
    static float ones[N * 3];
    wrong_user user = {RIGHT, NULL};
    mirt_custom_loss loss = {"my_loss", record_wrong, &user};
    mirt_custom_metric metric = {"labels", record_labels, sum_of, NULL, MIRT_MODE_AUTO};
    mirt_model *m = classifier(s, "m");
    mirt_data three = samples(), two = three;
    mirt_logs logs;
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.custom_losses[0] = &loss;
    c.custom_metrics[0] = c.custom_metrics[1] = &metric;
    for (int i = 0; i < N * 3; i++) ones[i] = 1;
    three.y[0] = mirt_make_array(ones, MIRT_FLOAT32, MIRT_SHAPE(N, 3));
    two.y[0] = mirt_make_array(ones, MIRT_FLOAT32, MIRT_SHAPE(N, 2));
    bool good = mirt_compile(m, &c) == MIRT_OK && mirt_train_on_batch(m, &three, &logs) == MIRT_OK &&
                logs.value[1] == 3000 + 3 * N && logs.value[2] == 3000 + 3 * N;
    good = good && mirt_test_on_batch(m, &two, &logs) == MIRT_OK;
    ok(good && logs.value[1] == 2000 + 2 * N && logs.value[2] == 2000 + 2 * N,
       "metrics as wide as the labels of the data at hand: %g%s%s", good ? logs.value[2] : 0, good ? "" : ": ",
       good ? "" : mirt_last_error());
    mirt_model_destroy(m);
}

/* With a custom loss, labels that are one number per sample are classes to the accuracy. And bytes are predicted
   upon as floats are. */
static void test_accuracy(mirt_strategy *s) {
    static uint8_t bytes[N * IN];
    static float floats[N * IN], of_bytes[N * 3], of_floats[N * 3];
    wrong_user user = {RIGHT, NULL};
    mirt_custom_loss loss = {"my_loss", record_wrong, &user};
    mirt_model *m = classifier(s, "m");
    mirt_data d = samples();
    mirt_logs logs;
    mirt_compile_desc c;
    int hits = 0;
    memset(&c, 0, sizeof c);
    c.custom_losses[0] = &loss;
    c.metrics[0] = MIRT_ACCURACY;
    for (int i = 0; i < N * IN; i++) floats[i] = bytes[i] = (uint8_t)(i * 7 % 11);
    d.x[0].data = floats;
    bool good = mirt_compile(m, &c) == MIRT_OK && mirt_predict_arrays(m, d.x[0], of_floats, N * 3) == MIRT_OK &&
                mirt_test_on_batch(m, &d, &logs) == MIRT_OK;
    for (int i = 0; i < N; i++) {
        const float *y = of_floats + 3 * i;
        int best = y[1] > y[0] ? 1 : 0;
        hits += (y[2] > y[best] ? 2 : best) == classes[i];
    }
    ok(good && hits > 0 && hits < N && fabs(value_of(&logs, "accuracy") - (double)hits / N) < 1e-12,
       "accuracy beside a custom loss: %d of %d%s%s", hits, N, good ? "" : ": ", good ? "" : mirt_last_error());
    good = mirt_predict_arrays(m, mirt_make_array(bytes, MIRT_UINT8, MIRT_SHAPE(N, IN)), of_bytes, N * 3) == MIRT_OK;
    ok(good && memcmp(of_bytes, of_floats, sizeof of_bytes) == 0, "bytes after floats give the same predictions");
    mirt_model_destroy(m);
}

/* Two outputs that one layer makes, a part, are told apart. */
static void test_names(mirt_strategy *s) {
    mirt_model *part = mirt_model_create(s, "part"), *m = mirt_model_create(s, "m");
    mirt_compile_desc c;
    mirt_logs logs;
    mirt_data d = samples();
    mirt_tensor *x = mirt_input(part, MIRT_SHAPE(IN)), *out[MIRT_MAX_OUTPUTS];
    memset(&c, 0, sizeof c);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    out[0] = dense(x, "a", IN);
    out[1] = dense(x, "b", IN);
    mirt_model_outputs(part, out, 2);
    x = mirt_input(m, MIRT_SHAPE(IN));
    mirt_call_many(part, &x, 1, MIRT_TRAINING_AUTO, out);
    mirt_model_outputs(m, out, 2);
    d.y[0] = d.y[1] = d.x[0];
    bool good = mirt_compile(m, &c) == MIRT_OK && mirt_test_on_batch(m, &d, &logs) == MIRT_OK && logs.count == 3;
    ok(good && isfinite(value_of(&logs, "part_loss")) && isfinite(value_of(&logs, "part_1_loss")),
       "two outputs of one layer have two names%s", good ? "" : mirt_last_error());
    mirt_model_destroy(m);
    mirt_model_destroy(part);
}

int main(void) {
    for (int i = 0; i < N * IN; i++) xs[i] = (float)((i * 37 % 101) - 50) / 50.0f;
    for (int i = 0; i < N * 2; i++) zs[i] = (float)((i * 53 % 97) - 48) / 50.0f;
    for (int i = 0; i < N; i++) {
        classes[i] = i * 7 % 3;
        reals[i] = (float)(i * 3 % 7) / 4;
        weights[i] = 1;
    }
    for (int devices = 1; devices <= 2; devices++) {
        mirt_strategy *s = strategy_of(devices, devices == 1 ? 1 : 4, 1);
        test_steps(s);
        test_shuffled_steps(s);
        test_unknown(s);
        test_validation(s);
        test_weights(s);
        test_wrong(s);
        test_terms(s);
        test_on_batch(s);
        test_many(s);
        test_logits(s);
        test_names(s);
        test_accuracy(s);
        test_wide_metrics(s);
        mirt_strategy_destroy(s);
    }
    return done_testing();
}
