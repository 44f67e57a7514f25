/* Reads and launches steps ahead on simulated GPUs. Checks the order of the calls, and that nothing else changes.
   Four devices (MIRT_SIM_DEVICES). */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../../mirrortrain.h"
#include "four_devices.h"
#include "../tap.h"
#include "sim.h"

#include <time.h>
#include <unistd.h>

/* >>a backend that notes what the library asks of the first device */

/* S: a copy that is sent early, B: later copies follow the work so far, C: a copy on the device, b: work begins, F:
   results are fetched, M: a round of work ends, w: a wait for that round, W: a wait for all. Equal letters in a row
   count as one. */
static const mirt__backend *real_backend;
static mirt__backend noting;
static const mirt__handle *noted;
static char notes[4000];
static bool forgets_to_wait;   /* copies set out at once */
static double pretends_to_take; /* seconds of each stage of a step; 0: what they take */
/* What befalls the device when it is told of the end of so many rounds; 0: never. */
static int loses_at;
static bool hangs; /* it is not lost */

static int noted_times(char what) {
    int times = 0;
    for (const char *at = notes; *at; at++) times += *at == what;
    return times;
}

static void note(const mirt__handle *handle, char what) {
    const size_t used = strlen(notes);
    if (handle != noted || used + 1 >= sizeof notes || (used && notes[used - 1] == what)) return;
    notes[used] = what;
    notes[used + 1] = 0;
}

static void note_stage(mirt__handle *r, void *to, const void *from, size_t bytes, bool early) {
    if (early) note(r, 'S');
    real_backend->copy_in(r, to, from, bytes, early);
}
static void note_behind(mirt__handle *r) {
    note(r, 'B');
    if (!forgets_to_wait) real_backend->behind(r);
}
static void note_copy(mirt__handle *r, void *to, const void *from, size_t bytes) {
    note(r, 'C');
    real_backend->copy(r, to, from, bytes);
}
static void note_begin(mirt__handle *r, const void *owner, uint64_t key) {
    note(r, 'b');
    real_backend->begin(r, owner, key);
}
static void note_fetch(mirt__handle *r, void *to, const void *from, size_t bytes) {
    note(r, 'F');
    real_backend->copy_out(r, to, from, bytes);
}
static mirt_status note_wait(mirt__handle *r) {
    note(r, 'W');
    return real_backend->wait(r);
}
static void note_mark(mirt__handle *r) {
    note(r, 'M');
    real_backend->mark(r);
    if (r == noted && loses_at && noted_times('M') == loses_at) {
        if (hangs) mirt_sim_hang_device(0, 1);
        else mirt_sim_lose_device(0, 700); /* an illegal address */
    }
}
static mirt_status note_wait_mark(mirt__handle *r) {
    note(r, 'w');
    return real_backend->wait_mark(r);
}

static double note_seconds(mirt__handle *r, int from, int to) {
    return pretends_to_take > 0 ? pretends_to_take : real_backend->seconds(r, from, to);
}

static void notes_begin(mirt_strategy *s) {
    real_backend = mirt__cuda_backend();
    noting = *real_backend;
    noting.copy_in = note_stage;
    noting.behind = note_behind;
    noting.copy = note_copy;
    noting.begin = note_begin;
    noting.copy_out = note_fetch;
    noting.wait = note_wait;
    noting.mark = note_mark;
    noting.wait_mark = note_wait_mark;
    noting.seconds = note_seconds;
    s->backend = &noting;
    noted = s->device[0].handle;
    notes[0] = 0;
}

/* >>one training */

enum { PLAIN, CLIPPED, SYNCHRONIZED, FROZEN, DECAYING, ASKING, AVERAGED, SEVERAL, KINDS };
static const char *const kind_name[] = {
    "a convnet", "clipped by norms", "synchronized normalization", "nothing to train", "a decaying rate",
    "a schedule of the user", "averaged weights", "several optimizers"
};

static float slower(int64_t step, void *user) { return (void)user, 2e-3f / (float)(step + 1); }

/* Whether steps are launched before the results of the step before them are read. */
static bool follows(int kind) { return kind != CLIPPED && kind != SYNCHRONIZED && kind != ASKING; }

static mirt_model *build(mirt_strategy *s, int kind) {
    mirt_compile_desc c = image_compile(mirt_adam(2e-3f));
    mirt_model *m;
    if (kind == CLIPPED) c.optimizer.global_clipnorm = 0.5f;
    if (kind == DECAYING) c.optimizer.decay = mirt_cosine_decay(4e-3f, 7, 0.1f);
    if (kind == ASKING) c.optimizer.schedule = slower;
    if (kind == AVERAGED) {
        c.optimizer.use_ema = true;
        c.optimizer.ema_overwrite_frequency = 3;
    }
    if (kind == SEVERAL) {
        c.optimizers[0].weights = "conv2d*";
        c.optimizers[0].optimizer = mirt_sgd(0.05f, 0.9f, true);
        c.optimizers[0].optimizer.decay = mirt_exponential_decay(0.05f, 2, 0.5f, false);
    }
    c.metrics[1] = c.metrics[2] = MIRT_F1_SCORE; /* counts with labels and weights when results are there */
    c.metric_options[2].weighted = true;
    c.metric_options[2].average = MIRT_MACRO;
    if (kind == SYNCHRONIZED) {
        mirt_batch_norm_desc norm;
        mirt_dense_desc logits;
        memset(&norm, 0, sizeof norm);
        memset(&logits, 0, sizeof logits);
        norm.synchronized = true;
        logits.units = IMAGE_CLASSES;
        m = mirt_model_create(s, "norm");
        mirt_tensor *x = mirt_rescale(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1.0f / 255, 0);
        mirt_model_output(m, mirt_dense(mirt_flatten(mirt_batch_norm(x, &norm)), &logits));
    } else {
        m = image_net(s, 0.2f);
    }
    if (kind == FROZEN) mirt_set_trainable(m, NULL, false);
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* What there is to train on, and what became of it. */
typedef struct training {
    const char *devices;
    int kind, epochs;
    int64_t samples, batch, steps_per_epoch, max_steps;
    mirt_dataset *(*data)(const struct training *t); /* NULL: shuffled arrays */
    const char *checkpoints, *resume;
    double limit; /* seconds; 0: none is asked for */
    bool validated, at_once, watched; /* at_once: a callback wants to know of batches; watched: one looks for NaN */
} training;
typedef struct outcome {
    char weights[MIRT__SHA256_HEX], error[400], told[4000]; /* told: all logs that a callback sees */
    int64_t steps;
    int ahead;    /* batches that were prefetched before their step, */
    int followed; /* and steps launched before the results of the step before them were read */
    mirt_timing timing;
    double input_seconds;
} outcome;

static mirt_strategy *strategy_limited(const char *devices, double seconds) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = devices;
    d.replicas = 4;
    d.seed = 11;
    d.timeout_seconds = seconds;
    d.silent = true;
    return mirt_strategy_create(&d);
}

static int tell_nothing(const mirt_event *event, void *user) { return (void)event, (void)user, 0; }
static mirt_model *to_stop; /* of the fit under way */
static int note_model(const mirt_event *event, void *user) { return (void)user, to_stop = event->model, 0; }
static int tell_epoch(const mirt_event *event, void *user) {
    char *told = (char *)user;
    for (int i = 0; i < event->logs->count; i++) {
        const size_t used = strlen(told);
        snprintf(told + used, sizeof((outcome *)NULL)->told - used, "%s=%.9g ", event->logs->name[i],
                 event->logs->value[i]);
    }
    return 0;
}

static mirt_dataset *data_of(const training *t) {
    static float weights[1000];
    mirt_data data;
    if (t->data || t->samples > 1000) return t->data ? t->data(t) : NULL;
    memset(&data, 0, sizeof data);
    for (int i = 0; i < t->samples; i++) weights[i] = 0.5f + (float)(i % 5) / 4;
    data.x[0] = images_x(0, t->samples);
    data.y[0] = images_y(0, t->samples);
    data.weights = mirt_make_array(weights, MIRT_FLOAT32, MIRT_SHAPE(t->samples));
    return mirt_batch(mirt_shuffle(mirt_arrays_of(&data), 64), t->batch);
}

static void train(const training *t, outcome *out) {
    mirt_callback epochs, batches;
    mirt_model_checkpoint_desc d;
    mirt_fit_desc fit;
    memset(out, 0, sizeof *out);
    memset(&epochs, 0, sizeof epochs);
    memset(&batches, 0, sizeof batches);
    memset(&d, 0, sizeof d);
    memset(&fit, 0, sizeof fit);
    mirt_strategy *s = strategy_limited(t->devices, t->limit);
    mirt_model *m = s ? build(s, t->kind) : NULL;
    mirt_dataset *data = data_of(t);
    if (!m || !data) snprintf(out->error, sizeof out->error, "%s", mirt_last_error());
    if (m) notes_begin(s);
    epochs.user = out->told;
    epochs.epoch_end = tell_epoch;
    epochs.train_begin = note_model;
    batches.batch_end = tell_nothing;
    d.path = t->checkpoints;
    d.every_steps = 2;
    mirt_callback *watch = t->watched ? mirt_terminate_on_nan(MIRT_NAN_STOP) : NULL;
    mirt_callback *checkpoint = t->checkpoints ? mirt_model_checkpoint(&d) : NULL;
    int callbacks = 0;
    fit.callbacks[callbacks++] = &epochs;
    if (checkpoint) fit.callbacks[callbacks++] = checkpoint;
    if (watch) fit.callbacks[callbacks++] = watch;
    if (t->at_once) fit.callbacks[callbacks++] = &batches;
    fit.epochs = t->epochs;
    fit.steps_per_epoch = t->steps_per_epoch;
    fit.max_steps = t->max_steps;
    fit.resume = t->resume;
    fit.feature_cache_bytes = -1;
    fit.no_progress = true;
    fit.validation = t->validated ? mirt_batch(mirt_arrays(images_x(70, 23), images_y(70, 23)), 10) : NULL;
    const mirt_history *h = m && data ? mirt_fit(m, data, &fit) : NULL;
    mirt_sim_set("fail", 0); /* the weights are to be read */
    if (!h && !out->error[0]) snprintf(out->error, sizeof out->error, "%s", mirt_last_error());
    if (m) {
        out->ahead = noted_times('B');
        out->followed = noted_times('w');
        out->steps = m->history.steps;
        mirt_fit_timing(m, &out->timing);
        out->input_seconds = m->history.input_seconds;
        digest_weights(m, 0, out->weights);
        if (!copies_agree(m)) snprintf(out->error, sizeof out->error, "the devices' weights differ");
    }
    mirt_callback_destroy(checkpoint);
    mirt_callback_destroy(watch);
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(fit.validation);
    mirt_strategy_destroy(s);
}

static bool same(const outcome *a, const outcome *b) {
    return strcmp(a->weights, b->weights) == 0 && strcmp(a->told, b->told) == 0 && a->steps == b->steps &&
           strcmp(a->error, b->error) == 0;
}

static training training_of(const char *devices, int kind) {
    training t;
    memset(&t, 0, sizeof t);
    t.devices = devices;
    t.kind = kind;
    t.epochs = small_tier() ? 2 : 3;
    t.samples = 61; /* the last batch of an epoch is another one */
    t.batch = 17;
    return t;
}

/* >>what is tested */

/* A step is enqueued, the next batch sets out, its step is enqueued, and only then the results of the first are waited
   for. The first step of a number of rows is waited for before. */
static void check_order(void) {
    mirt_strategy *s = strategy_on("gpu:0", 4);
    mirt_model *m = s ? build(s, PLAIN) : NULL;
    mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, 40), images_y(0, 40)), 8);
    mirt_callback batches;
    mirt_fit_desc fit;
    mirt_logs logs;
    static float out[40 * IMAGE_CLASSES];
    memset(&batches, 0, sizeof batches);
    memset(&fit, 0, sizeof fit);
    batches.batch_end = tell_nothing;
    fit.no_progress = true;
    fit.check_drift_every = -1;
    ok(m && mirt_fit(m, data, &fit), "a first epoch");
    notes_begin(s);
    ok(mirt_fit(m, data, &fit) && strcmp(notes, "SbFbMSCBbFbwMSCBbFbwMSCBbFbwMSCBbFbwW") == 0,
       "five steps: each is enqueued before the step before it is waited for: %s", notes);
    notes_begin(s);
    ok(mirt_evaluate(m, data, &logs) == MIRT_OK && strcmp(notes, "SbFSWCBbFMSCBbFwMSCBbFwMSCBbFwW") == 0,
       "so do five batches of an evaluation: %s", notes);
    notes_begin(s);
    ok(mirt_predict(m, data, out, 40 * IMAGE_CLASSES) == MIRT_OK &&
           strcmp(notes, "SbFSWCBbFMSCBbFwMSCBbFwMSCBbFwW") == 0,
       "and of predictions: %s", notes);
    fit.callbacks[0] = &batches;
    notes_begin(s);
    ok(mirt_fit(m, data, &fit) && strcmp(notes, "SbFbWSbFbWSbFbWSbFbWSbFbW") == 0,
       "with a callback of batches each waits for its results first: %s", notes);
    fit.callbacks[0] = NULL;
    fit.max_steps = 1;
    notes_begin(s);
    ok(mirt_fit(m, data, &fit) && strcmp(notes, "SbFbW") == 0, "nothing is sent after the only step of a fit: %s",
       notes);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

static void check_same(training t, const char *what) {
    outcome ahead, at_once;
    train(&t, &ahead);
    t.at_once = true;
    train(&t, &at_once);
    ok(same(&ahead, &at_once) && ahead.ahead > at_once.ahead && (t.validated || !at_once.ahead) && !ahead.error[0] &&
           (ahead.followed > at_once.followed) == follows(t.kind) && (t.validated || !at_once.followed),
       "%s, %s on %s: the bits and logs of waiting at once; %d batches were prefetched, %d of their steps launched%s%s",
       what, kind_name[t.kind], t.devices, ahead.ahead, ahead.followed, ahead.error[0] ? ": " : "", ahead.error);
}

static void check_bits(void) {
    static const char *const devices[] = {"gpu:0", "gpu:0,gpu:1", "gpu:0,gpu:1,gpu:2", "gpu"};
    for (int i = 0; i < 4; i += small_tier() ? 3 : 1)
        check_same(training_of(devices[i], PLAIN), "an uneven last batch");
    for (int kind = CLIPPED; kind < KINDS; kind++)
        check_same(training_of(devices[small_tier() ? 1 : kind % 4], kind), "whole epochs");
    training t = training_of("gpu:0,gpu:1", PLAIN);
    t.validated = true;
    check_same(t, "validation");
    t.steps_per_epoch = 3; /* passes end in the middle of epochs */
    check_same(t, "epochs of three steps");
    t.max_steps = 5;
    check_same(t, "five steps");
    outcome plain, watched;
    t = training_of("gpu:0,gpu:1", PLAIN);
    train(&t, &plain);
    t.watched = true;
    train(&t, &watched);
    ok(same(&plain, &watched) && plain.followed > 0 && watched.ahead == 0 && watched.followed == 0,
       "who looks for NaN looks before anything is read");
}

/* The place where batches land is free when the step has taken what is there; who does not wait for that is found
   out. */
static void check_missing_wait(void) {
#ifdef __SANITIZE_THREAD__ /* it names the places at once, and ends */
    skip("copies that do not wait");
#else
    training t = training_of("gpu:0", PLAIN);
    outcome good, bad;
    int found = 0;
    train(&t, &good);
    for (int seed = 1; seed <= 6; seed++) {
        mirt_sim_set("seed", seed);
        forgets_to_wait = true;
        train(&t, &bad);
        forgets_to_wait = false;
        found += strcmp(good.weights, bad.weights) != 0;
    }
    const char *seed = getenv("MIRT_SIM_SEED");
    mirt_sim_set("seed", seed ? atof(seed) : 0);
    ok(found > 0, "copies that do not wait for the place to be free give other weights in %d of 6 orders", found);
#endif
}

static int samples_fail(void *const *field, int64_t i, void *user) {
    if (i == *(const int64_t *)user) return 7;
    memcpy(field[0], image_pixels[i], IMAGE);
    memcpy(field[1], &image_classes[i], 1);
    return 0;
}

static int64_t failing_sample;
static mirt_dataset *data_made_by(mirt_generator_fn fn, const training *t) {
    mirt_generator_desc d;
    memset(&d, 0, sizeof d);
    d.fn = fn;
    d.user = &failing_sample;
    d.num_x = d.num_y = 1;
    d.x[0].dtype = d.y[0].dtype = MIRT_UINT8;
    d.x[0].shape = MIRT_SHAPE(IMAGE_H, IMAGE_W, 1);
    d.samples = t->samples;
    return mirt_batch(mirt_dataset_from_generator(&d), t->batch);
}

/* Evaluation and predictions, the batches of which code of the user makes (that waits), and arrays. */
static void check_passes(const char *devices, int64_t units) {
    static float out[2][183 * 6000];
    double value[2][3];
    int followed[2];
    mirt_strategy *s = strategy_on(devices, 4);
    mirt_model *m = mirt_model_create(s, "wide");
    mirt_compile_desc c = image_compile(mirt_adam(2e-3f));
    mirt_dense_desc wide;
    training t = training_of(devices, PLAIN);
    memset(&wide, 0, sizeof wide);
    wide.units = units;
    mirt_model_output(m, mirt_dense(mirt_flatten(mirt_rescale(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)),
                                                              1.0f / 255, 0)), &wide));
    bool good = mirt_compile(m, &c) == MIRT_OK;
    t.samples = 183;
    t.batch = 50;
    failing_sample = -1;
    for (int k = 0; k < 2; k++) {
        mirt_dataset *data = k ? data_made_by(samples_fail, &t)
                               : mirt_batch(mirt_arrays(images_x(0, t.samples), images_y(0, t.samples)), t.batch);
        mirt_logs logs;
        memset(&logs, 0, sizeof logs);
        for (int again = 0; again < 2; again++) {
            notes_begin(s);
            good = good && mirt_predict(m, data, out[k], (size_t)(t.samples * units)) == MIRT_OK;
            good = good && mirt_evaluate(m, data, &logs) == MIRT_OK;
        }
        followed[k] = noted_times('w');
        value[k][0] = mirt_logs_value(&logs, "loss");
        value[k][1] = mirt_logs_value(&logs, "accuracy");
        value[k][2] = logs.count;
        mirt_dataset_destroy(data);
    }
    ok(good && memcmp(out[0], out[1], (size_t)(t.samples * units) * sizeof **out) == 0 &&
           memcmp(value[0], value[1], sizeof *value) == 0 && followed[0] == 6 && !followed[1],
       "predictions of %lld numbers and an evaluation on %s: %d steps were launched ahead, %d with data of the user's, "
       "and the results are bit-identical%s%s", (long long)units, devices, followed[0], followed[1],
       good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
}

/* >>data that fail */

static mirt_dataset *failing_data(const training *t) {
    mirt_dataset *made = data_made_by(samples_fail, t);
    return t->steps_per_epoch ? made : mirt_prefetch(made, 2);
}

/* A label that is no class. */
static mirt_dataset *mislabelled_data(const training *t) {
    static uint8_t labels[IMAGES];
    memcpy(labels, image_classes, sizeof labels);
    labels[40] = IMAGE_CLASSES;
    return mirt_batch(mirt_arrays(images_x(0, t->samples), mirt_make_array(labels, MIRT_UINT8, MIRT_SHAPE(t->samples))),
                      t->batch);
}

static void check_failing_data(void) {
    outcome out, want;
    training t = training_of("gpu:0,gpu:1", PLAIN);
    t.data = failing_data;
    failing_sample = 40; /* in the third batch */
    train(&t, &out);
    t.max_steps = 2;
    train(&t, &want);
    ok(strstr(out.error, "returned 7 for sample 40") && out.steps == 2 && out.ahead == 1 &&
           strcmp(out.weights, want.weights) == 0,
       "data that fail in the third batch: two steps are whole, then \"%s\"", out.error);
    t.max_steps = 0;
    t.at_once = true;
    train(&t, &want);
    ok(same(&out, &want), "as when each step waits for its results first");
    t.at_once = false;
    failing_sample = -1;
    t.steps_per_epoch = 3; /* without prefetching */
    train(&t, &out);
    ok(!out.error[0] && out.steps == 3 * t.epochs && out.ahead == 0,
       "code of the user on the thread of the fit sees the steps before its batch done");
    t.steps_per_epoch = 0;
    t.data = mislabelled_data;
    train(&t, &out);
    ok(strstr(out.error, "label 5 of sample 40") && out.steps == 2 && out.ahead == 1,
       "a label that is no class, in the third batch: %lld steps, \"%s\"", (long long)out.steps, out.error);
}

/* Samples that never arrive while a step runs: the wait for the samples times out. */
static int samples_end(void *const *field, int64_t i, void *user) {
    while (i == 40) pause();
    return samples_fail(field, i, user);
}

static void check_stuck_data(void) {
    mirt_strategy_desc sd;
    mirt_fit_desc fit;
    const training t = training_of("gpu:0,gpu:1", PLAIN);
    memset(&sd, 0, sizeof sd);
    memset(&fit, 0, sizeof fit);
    failing_sample = -1;
    sd.devices = t.devices;
    sd.timeout_seconds = 8; /* for the samples, not for a device on a busy machine */
    sd.silent = true;
    static mirt_strategy *s; /* stay: threads still have them */
    static mirt_dataset *data;
    s = mirt_strategy_create(&sd);
    mirt_model *m = s ? build(s, PLAIN) : NULL;
    data = mirt_prefetch(data_made_by(samples_end, &t), 1);
    fit.no_progress = true;
    notes_begin(s);
    ok(m && !mirt_fit(m, data, &fit) && mirt_last_status() == MIRT_E_TIMEOUT &&
           strstr(mirt_last_error(), "for sample 40 of the generator"),
       "samples that never come: \"%s\"", mirt_last_error());
    ok(noted_times('b') > 0 && noted_times('B') == 1, "the second step had begun");
}

/* >>steps that are launched when something happens */

static int samples_stop(void *const *field, int64_t i, void *user) {
    if (i == 40) mirt_request_stop(to_stop);
    return samples_fail(field, i, user);
}

/* The clock of the library stands still but for what samples take, and for each look at it. */
static bool clock_stands;
static int64_t clock_shows; /* atomic: nanoseconds */

static int slow_samples(void *const *field, int64_t i, void *user) {
    __atomic_add_fetch(&clock_shows, 4000000, __ATOMIC_RELAXED);
    return samples_fail(field, i, user);
}
/* Made by the thread that asks for them, ahead too. */
static mirt_dataset *data_of_own_thread(mirt_generator_fn fn, const training *t) {
    mirt_dataset *data = data_made_by(fn, t);
    for (mirt_dataset *stage = data; stage; stage = stage->source) stage->foreign = false;
    return data;
}
static mirt_dataset *slow_data(const training *t) { return data_of_own_thread(slow_samples, t); }
static mirt_dataset *stopping_data(const training *t) { return data_of_own_thread(samples_stop, t); }

static void check_stop(void) {
    outcome stopped, want;
    training t = training_of("gpu:0,gpu:1", PLAIN);
    failing_sample = -1;
    t.data = stopping_data;
    train(&t, &stopped);
    t.data = slow_data;
    t.max_steps = 3;
    train(&t, &want);
    ok(stopped.steps == 3 && stopped.followed == 1 && !stopped.error[0] &&
           strcmp(stopped.weights, want.weights) == 0 && want.followed == 1,
       "who asks to stop gets the step that was launched, and it counts: %lld steps, %d launched ahead",
       (long long)stopped.steps, stopped.followed);
}

/* Both steps fail, with one error. */
static void check_lost(const char *devices, bool hanging) {
#ifdef __SANITIZE_ADDRESS__ /* what such devices hold is never freed */
    (void)devices, (void)hanging;
    skip("devices that are lost");
#else
    outcome out;
    training t = training_of(devices, PLAIN);
    t.limit = hanging;
    hangs = hanging;
    loses_at = 3; /* the seventh step is about to be launched */
    train(&t, &out);
    loses_at = 0;
    ok(strstr(out.error, "gpu:0") && out.steps == 5 && out.followed == 3,
       "a device of %s %s when a step is launched ahead: %lld steps, \"%s\"", devices,
       hangs ? "hangs" : "is lost", (long long)out.steps, out.error);
    mirt_sim_hang_device(0, 0);
    mirt_sim_lose_device(0, 0);
#endif
}

/* Calls that fail, one in a run: an error, or nothing else changes. */
static void check_faults(const char *devices) {
    outcome good, out;
    training t = training_of(devices, PLAIN);
    t.epochs = 2;
    mirt_sim_reset_calls();
    train(&t, &good);
    const long calls = mirt_sim_calls(), turns = small_tier() ? 23 : 101;
    int failed = 0, wrong = 0, leaks = 0;
    char first[500] = "";
    for (long turn = 1; turn <= turns; turn++) {
        mirt_sim_reset_calls();
        mirt_sim_set("fail", (double)(calls * turn / (turns + 1)));
        train(&t, &out);
        failed += out.error[0] != 0;
        const bool bad = out.error[0] ? out.steps > good.steps : !same(&good, &out);
        if (bad && !wrong++) snprintf(first, sizeof first, "%.400s", out.error);
        leaks += mirt_sim_report_leaks() != 0;
    }
    ok(failed > turns / 3 && !wrong && !leaks,
       "calls that fail on %s: %d of %ld fits fail, %d end in another way, %d leave something%s%s", devices, failed,
       turns, wrong, leaks, first[0] ? ": " : "", first);
}

/* >>checkpoints, and others on the devices */

static void check_resume(void) {
    char pattern[400], from[420];
    outcome whole, rest, files;
    training t = training_of("gpu:0,gpu:1", PLAIN);
    snprintf(pattern, sizeof pattern, "%s/ahead_{step}.safetensors", work_directory());
    train(&t, &whole);
    t.checkpoints = pattern;
    train(&t, &files);
    ok(same(&whole, &files) && files.followed > 0 && files.followed < whole.followed,
       "checkpoints every two steps change nothing; %d of %d steps are launched ahead", files.followed,
       whole.followed);
    t.checkpoints = NULL;
    for (int step = 2; step < 4 * t.epochs; step += 2) {
        snprintf(from, sizeof from, "%s/ahead_%d.safetensors", work_directory(), step);
        t.devices = step % 4 ? "gpu:0" : "gpu:0,gpu:1,gpu:2";
        t.resume = from;
        train(&t, &rest);
        ok(!rest.error[0] && rest.ahead > 0 && strcmp(rest.weights, whole.weights) == 0,
           "from step %d, the next batch of which was read, a fit is bit-identical%s%s", step,
           rest.error[0] ? ": " : "", rest.error);
        unlink(from);
    }
    snprintf(from, sizeof from, "%s/ahead_%d.safetensors", work_directory(), 4 * t.epochs);
    unlink(from);
}

/* Between two steps something else runs, on the memory of the prefetched batch. */
static void check_others(void) {
    char digest[2][MIRT__SHA256_HEX];
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_on("gpu:0,gpu:1", 4);
        mirt_model *m = build(s, PLAIN);
        mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, 61), images_y(0, 61)), 17);
        mirt_function *f = mirt__trainer_prepare(m, MIRT__TRAIN, mirt__dataset_spec(data), 17, NULL);
        mirt__feed feed;
        mirt__batch batch;
        mirt_logs logs;
        static float out[200 * IMAGE_CLASSES];
        mirt_data more;
        int prefetched = 0;
        memset(&more, 0, sizeof more);
        more.x[0] = images_x(100, 100);
        more.y[0] = images_y(100, 100);
        bool good = mirt_test_on_batch(m, &more, &logs) == MIRT_OK;
        notes_begin(s);
        mirt__feed_open(&feed, m, data, NULL, k == 0);
        mirt_status status = mirt__feed_begin(&feed, 0, 0);
        for (int i = 0; status == MIRT_OK; i++) {
            status = mirt__feed_next(&feed, &batch);
            if (status != MIRT_OK || !batch.rows) break;
            status = mirt__trainer_begin(f, &batch);
            if (status == MIRT_OK) status = mirt__feed_step(&feed, f, true);
            prefetched += feed.prefetched;
            mirt_data other;
            memset(&other, 0, sizeof other);
            other.x[0] = images_x(100, 17);
            other.y[0] = images_y(100, 17);
            if (i == 0)
                good = good && mirt_predict_arrays(m, images_x(90, 200), out, 200 * IMAGE_CLASSES) ==
                                   MIRT_OK; /* takes more memory */
            if (i == 1)
                good = good && mirt_test_on_batch(m, &more, &logs) ==
                                   MIRT_OK; /* takes no more memory: it lies where the next batch was prefetched */
            if (i == 2) good = good && mirt_train_on_batch(m, &other, &logs) == MIRT_OK;
        }
        ok(status == MIRT_OK && good && prefetched == (k ? 0 : 3),
           "steps with predicting, testing and training in between, %s",
           k ? "one after the other" : "each batch sent ahead");
        digest_weights(m, 0, digest[k]);
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    }
    ok(strcmp(digest[0], digest[1]) == 0, "are bit-identical");
}

/* >>seconds */

void hook_late_unlocked(pthread_mutex_t *mutex); /* hooks.h */

int hook_clock(clockid_t clock, struct timespec *out) {
    if (!clock_stands || clock != CLOCK_MONOTONIC) return clock_gettime(clock, out);
    const int64_t shows = __atomic_add_fetch(&clock_shows, 1, __ATOMIC_RELAXED);
    out->tv_sec = (time_t)(1000 + shows / 1000000000);
    out->tv_nsec = (long)(shows % 1000000000);
    return 0;
}

/* Who waits until some time wakes early, and sees that the time has not come. */
int hook_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec soon;
    if (clock_stands) {
        clock_gettime(CLOCK_MONOTONIC, &soon);
        soon.tv_nsec += 1000000;
        if (soon.tv_nsec >= 1000000000) soon.tv_nsec -= 1000000000, soon.tv_sec++;
        until = &soon;
    }
    const int code = pthread_cond_timedwait(cond, mutex, until);
    hook_late_unlocked(mutex);
    return code;
}

static void check_seconds(void) {
    outcome out;
    training t = training_of("gpu:0,gpu:1", PLAIN);
    failing_sample = -1;
    t.data = slow_data;
    clock_stands = true;
    train(&t, &out);
    for (int d = 0; d < out.timing.num_devices; d++) {
        double sum = 0, least = 0;
        for (int i = 0; i < MIRT_PHASE_COUNT; i++) {
            sum += out.timing.device[d].seconds[i];
            least = out.timing.device[d].seconds[i] < least ? out.timing.device[d].seconds[i] : least;
        }
        ok(out.ahead > 0 && fabs(sum - out.timing.wall) <= 0.001 * out.timing.wall && least > -1e-9,
           "phases of device %d add up to %.4f s of %.4f s", d, sum, out.timing.wall);
    }
    double waited[2];
    t.epochs = 1;
    t.samples = 122;
    t.batch = 8; /* one of 16 has no step before it */
    for (int k = 0; k < 2; k++) {
        pretends_to_take = k ? 10 : 1e-6;
        train(&t, &out);
        pretends_to_take = 0;
        waited[k] = out.timing.device[0].seconds[MIRT_PHASE_INPUT];
        ok(fabs(out.input_seconds - waited[k]) <= 0.001 * waited[k],
           "the history says %.4f s of waiting for batches, the table %.4f s", out.input_seconds, waited[k]);
    }
    ok(fabs(waited[0] - 122 * 4e-3) < 2e-3 && fabs(waited[1] - 8 * 4e-3) < 2e-3,
       "reading that a device's work hides is no input wait: %.4f s where it is soon done, %.4f s where it is long at "
       "work",
       waited[0], waited[1]);
    t.kind = FROZEN;
    train(&t, &out);
    ok(!out.error[0] && out.timing.device[0].seconds[MIRT_PHASE_FORWARD] > 0 &&
           out.timing.device[0].seconds[MIRT_PHASE_BACKWARD] <= 0,
       "with nothing to train no second is backward's");
    clock_stands = false;
}

/* The room for two batches is in the plan, and the plan is what is taken. */
static void check_memory(void) {
    mirt_strategy *s = strategy_on("gpu:0", 4);
    mirt_model *m = build(s, PLAIN);
    mirt_memory plan;
    mirt_fit_desc fit;
    size_t block = 0;
    memset(&plan, 0, sizeof plan);
    memset(&fit, 0, sizeof fit);
    fit.no_progress = true;
    fit.batch = 64;
    bool good = mirt_plan_memory(m, 64, &plan) == MIRT_OK;
    const size_t before = mirt_sim_device_bytes(0);
    good = good && mirt_fit_arrays(m, images_x(0, 128), images_y(0, 128), &fit) &&
           mirt__layout_bytes(&s->layout, &block);
    const size_t taken = mirt_sim_device_bytes(0) - before;
    ok(good && block == plan.gradients + plan.activations + plan.scratch && plan.scratch >= 2 * 64 * IMAGE &&
           taken >= plan.total,
       "working memory is %zu bytes as planned, of them %zu for two batches and scratch; the device gave %zu", block,
       plan.scratch, taken);
    mirt_strategy_destroy(s);
}

int main(void) {
    if (!four_devices()) return done_testing();
    draw_images();
    check_order();
    check_bits();
    check_missing_wait();
    check_passes("gpu:0,gpu:1", 5);
    check_passes("gpu:0", 6000); /* more than a block of pinned memory holds */
    check_failing_data();
    check_stop();
    check_faults("gpu:0");
    setenv("MIRT_CUDA_BLAS", "0", 1); /* nor do other kernels take the place of products that fail */
    check_faults("gpu:0,gpu:1");
    unsetenv("MIRT_CUDA_BLAS");
    check_resume();
    check_others();
    check_seconds();
    check_memory();
    check_lost("gpu:0,gpu:1", false); /* its memory is not freed, */
    check_lost("gpu:0", false);
    check_lost("gpu:0", true); /* nor do threads end */
    check_stuck_data();
    return done_testing();
}
