/* SwapEMAWeights: what validation and checkpoints see, as in Keras; training does not see it. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/callbacks.h"
#include "golden/formula.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

enum { EPOCHS = 3, SAMPLES = 42 };

/* >>Keras */

typedef struct record {
    double loss[EPOCHS], weight[EPOCHS][8];
} record;

static int note_weights(const mirt_event *e, void *user) {
    record *r = (record *)user;
    float w[8];
    r->loss[e->epoch] = mirt_logs_value(e->logs, "val_loss");
    if (mirt_get_weight(e->model, "dense/kernel", 0, w, 6) != MIRT_OK ||
        mirt_get_weight(e->model, "dense/bias", 0, w + 6, 2) != MIRT_OK)
        return MIRT_CALLBACK_FAILED;
    for (int i = 0; i < 8; i++) r->weight[e->epoch][i] = (double)w[i];
    return 0;
}

static double off_by(const double *a, const double *b, int count) {
    double off = 0;
    for (int i = 0; i < count; i++) off = worse(off, fabs(a[i] - b[i]));
    return off;
}

/* The data of make_callbacks.py. */
static mirt_dataset *golden_data(uint32_t seed, int rows) {
    static float x[2][24], y[2][16];
    const int which = seed > 2;
    for (int i = 0; i < rows * 3; i++) x[which][i] = golden_uniform(seed, (uint32_t)i);
    for (int i = 0; i < rows * 2; i++) y[which][i] = golden_uniform(seed + 1, (uint32_t)i);
    return mirt_batch(mirt_arrays(mirt_make_array(x[which], MIRT_FLOAT32, MIRT_SHAPE(rows, 3)),
                                  mirt_make_array(y[which], MIRT_FLOAT32, MIRT_SHAPE(rows, 2))), 4);
}

static void check_keras(bool on_epoch) {
    const double *losses = on_epoch ? golden_swapped_losses_1 : golden_swapped_losses_0,
                 *weights = on_epoch ? golden_swapped_weights_1 : golden_swapped_weights_0,
                 *last = on_epoch ? golden_swapped_last_1 : golden_swapped_last_0;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_model_create(s, "golden");
    mirt_dataset *data = golden_data(2, 8), *validation = golden_data(4, 5);
    mirt_callback *swap = mirt_swap_ema_weights(on_epoch), note;
    mirt_compile_desc c;
    mirt_fit_desc fit;
    record seen, end;
    float start[8];
    memset(&c, 0, sizeof c);
    memset(&fit, 0, sizeof fit);
    memset(&note, 0, sizeof note);
    memset(&seen, 0, sizeof seen);
    for (uint32_t i = 0; i < 8; i++) start[i] = golden_uniform(1, i);
    mirt_model_output(m, named_dense(mirt_input(m, MIRT_SHAPE(3)), NULL, 2, MIRT_LINEAR));
    c.optimizer = mirt_sgd(0.25f, 0.5f, false);
    c.optimizer.use_ema = true;
    c.optimizer.ema_momentum = 0.75f;
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    note.user = &seen;
    note.epoch_end = note_weights;
    fit.epochs = EPOCHS;
    fit.validation = validation;
    fit.no_progress = true;
    fit.callbacks[0] = swap;
    fit.callbacks[1] = &note;
    bool good = mirt_compile(m, &c) == MIRT_OK && mirt_set_weight(m, "dense/kernel", start, 6) == MIRT_OK &&
                mirt_set_weight(m, "dense/bias", start + 6, 2) == MIRT_OK && mirt_fit(m, data, &fit);
    mirt_event event;
    mirt_logs none;
    memset(&event, 0, sizeof event);
    memset(&none, 0, sizeof none);
    event.model = m;
    event.logs = &none;
    good = good && note_weights(&event, &end) == 0;
    const double off = good ? worse(off_by(seen.loss, losses, EPOCHS),
                                    worse(off_by(seen.weight[0], weights, EPOCHS * 8), off_by(end.weight[0], last, 8)))
                            : INFINITY;
    ok(off < 2e-6, "swap_on_epoch %d: validation and weights are Keras's, off by %.1e%s%s", on_epoch, off,
       good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_callback_destroy(swap);
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(validation);
    mirt_strategy_destroy(s);
}

/* >>fits */

typedef enum mode { PLAIN, SWAPS, SWAPS_ON_EPOCH, MODES } mode;

/* What a fit does beside training, and what it leaves. */
typedef struct scene {
    mode mode;
    int epochs, stop, fail; /* epochs, 1-based, in which a callback after it ends training, or fails: in validation */
    bool fails_late;        /* fails when an epoch ends instead */
    const char *path, *resume; /* of checkpoints */
    char trained[MIRT__SHA256_HEX]; /* the weights that the last step left, */
    char seen[EPOCHS][MIRT__SHA256_HEX]; /* those when an epoch has ended, */
    char last[MIRT__SHA256_HEX];    /* and in the end */
    double loss[EPOCHS], val_loss[EPOCHS];
    bool agree;
    mirt_status status;
} scene;

static int at_batch(const mirt_event *e, void *user) {
    digest_weights(e->model, 0, ((scene *)user)->trained);
    return 0;
}
static int at_test(const mirt_event *e, void *user) {
    const scene *c = (const scene *)user;
    return c->fail == e->epoch + 1 && !c->fails_late ? MIRT_CALLBACK_FAILED : 0;
}
static int at_epoch(const mirt_event *e, void *user) {
    scene *c = (scene *)user;
    digest_weights(e->model, 0, c->seen[e->epoch]);
    c->loss[e->epoch] = mirt_logs_value(e->logs, "loss");
    c->val_loss[e->epoch] = mirt_logs_value(e->logs, "val_loss");
    c->agree = c->agree && copies_agree(e->model);
    if (c->fail == e->epoch + 1 && c->fails_late) return MIRT_CALLBACK_FAILED;
    return c->stop == e->epoch + 1;
}

static mirt_optimizer averaging(void) {
    mirt_optimizer o = mirt_nadam(2e-3f);
    o.use_ema = true;
    o.ema_momentum = 0.9f;
    return o;
}

static bool run(scene *c, mirt_model *m) {
    mirt_dataset *data = mirt_batch(mirt_shuffle(mirt_arrays(images_x(0, SAMPLES), images_y(0, SAMPLES)), 20), 8),
                 *held = mirt_batch(mirt_arrays(images_x(50, 21), images_y(50, 21)), 8);
    mirt_model_checkpoint_desc d;
    mirt_callback note, *swap = c->mode ? mirt_swap_ema_weights(c->mode == SWAPS_ON_EPOCH) : NULL, *save = NULL;
    mirt_fit_desc fit;
    int count = 0;
    memset(&d, 0, sizeof d);
    memset(&note, 0, sizeof note);
    memset(&fit, 0, sizeof fit);
    note.user = c;
    note.batch_end = at_batch;
    note.test_begin = at_test;
    note.epoch_end = at_epoch;
    d.path = c->path;
    if (c->path) fit.callbacks[count++] = save = mirt_model_checkpoint(&d); /* before it, which does not matter */
    if (swap) fit.callbacks[count++] = swap;
    fit.callbacks[count] = &note;
    fit.epochs = c->epochs ? c->epochs : EPOCHS;
    fit.validation = held;
    fit.resume = c->resume;
    fit.no_progress = true;
    c->agree = true;
    const bool good = m && mirt_fit(m, data, &fit) != NULL;
    c->status = good ? MIRT_OK : mirt_last_status();
    if (m) digest_weights(m, 0, c->last);
    c->agree = c->agree && m && copies_agree(m) && !m->swapped;
    mirt_callback_destroy(swap);
    mirt_callback_destroy(save);
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(held);
    return good;
}

static mirt_model *model_on(mirt_strategy *s) { return image_model(s, averaging(), 0.2f); }

static bool same(const char *a, const char *b) { return strcmp(a, b) == 0; }

/* Training does not notice, on any number of devices; validation has the averages. */
static void check_training(int devices, int replicas) {
    scene of[MODES];
    memset(of, 0, sizeof of);
    bool good = true, apart = true;
    for (int i = 0; i < MODES; i++) {
        mirt_strategy *s = strategy_of(devices, replicas, 1);
        of[i].mode = (mode)i;
        good = run(&of[i], model_on(s)) && of[i].agree && good;
        mirt_strategy_destroy(s);
        good = good && same(of[i].trained, of[0].trained) && same(of[i].last, of[0].last);
        good = good && memcmp(of[i].loss, of[0].loss, sizeof of[0].loss) == 0;
    }
    for (int e = 0; e < EPOCHS; e++) {
        apart = apart && of[1].val_loss[e] != of[0].val_loss[e] && of[1].val_loss[e] == of[2].val_loss[e];
        apart = apart && same(of[1].seen[e], of[0].seen[e]) && !same(of[2].seen[e], of[0].seen[e]);
    }
    ok(good && apart && same(of[2].seen[EPOCHS - 1], of[2].last),
       "%d replicas on %d devices: training is bit-identical, validation and later callbacks have the averages",
       replicas, devices);
}

/* >>ends */

static void check_ends(void) {
    for (int i = SWAPS; i < MODES; i++) {
        scene stopped, shorter, tested, late;
        memset(&stopped, 0, sizeof stopped);
        stopped.mode = (mode)i;
        shorter = tested = late = stopped;
        stopped.stop = shorter.epochs = tested.fail = late.fail = 2;
        late.fails_late = true;
        mirt_strategy *s = strategy_of(2, 3, 1);
        bool good = run(&stopped, model_on(s)) && run(&shorter, model_on(s));
        ok(good && stopped.agree && same(stopped.last, shorter.last) && same(stopped.trained, shorter.trained),
           "mode %d: a fit that is stopped ends with the averages", i);
        good = !run(&tested, model_on(s)) && tested.status == MIRT_E_CALLBACK;
        good = good && !run(&late, model_on(s)) && late.status == MIRT_E_CALLBACK;
        ok(good && tested.agree && late.agree && same(tested.last, tested.trained) && same(late.last, late.trained) &&
               same(late.last, stopped.trained),
           "mode %d: a fit that fails in validation, or at the end of an epoch, leaves the weights themselves", i);
        mirt_strategy_destroy(s);
    }
}

/* >>checkpoints */

static double loss_of(mirt_model *m) {
    mirt_logs logs;
    mirt_dataset *held = mirt_batch(mirt_arrays(images_x(50, 21), images_y(50, 21)), 8);
    const bool good = mirt_evaluate(m, held, &logs) == MIRT_OK;
    mirt_dataset_destroy(held);
    return good ? mirt_logs_value(&logs, "loss") : (double)NAN;
}

static void check_checkpoints(int replicas) {
    char pattern[300], path[300], digest[MIRT__SHA256_HEX];
    scene whole, again, without;
    snprintf(pattern, sizeof pattern, "%.200s/swapped_{epoch}.safetensors", work_directory());
    snprintf(path, sizeof path, "%.200s/swapped_2.safetensors", work_directory());
    memset(&whole, 0, sizeof whole);
    whole.mode = SWAPS_ON_EPOCH;
    again = without = whole;
    again.mode = SWAPS_ON_EPOCH;
    without.mode = PLAIN;
    whole.path = pattern;
    again.resume = without.resume = path;
    mirt_strategy *s = strategy_of(1, replicas, 1), *t = strategy_of(replicas, replicas, 1);
    bool good = run(&whole, model_on(s));
    mirt_model *m = good ? mirt_load(s, path) : NULL;
    if (m) digest_weights(m, 0, digest);
    const size_t bytes = m ? mirt__root(m, NULL)->trained_bytes : 0;
    ok(m && same(digest, whole.seen[1]) && loss_of(m) == whole.val_loss[1] && !m->swapped &&
           memcmp(mirt__root(m, NULL)->weight, m->slot[2], bytes) == 0,
       "a checkpoint of an epoch, loaded, has the averages, which start from there%s%s", m ? "" : ": ",
       m ? "" : mirt_last_error());
    good = good && run(&again, model_on(t)) && run(&without, model_on(s));
    ok(good && same(again.trained, whole.trained) && same(again.last, whole.last) &&
           same(again.seen[2], whole.seen[2]) && again.loss[2] == whole.loss[2] &&
           again.val_loss[2] == whole.val_loss[2],
       "%d replicas: a fit that resumes from it is bit-identical to one that was not interrupted", replicas);
    ok(good && same(without.trained, whole.trained) && same(without.last, whole.last),
       "also without the callback, which validation alone notices");
    for (int e = 1; e <= EPOCHS; e++) {
        snprintf(path, sizeof path, "%.200s/swapped_%d.safetensors", work_directory(), e);
        unlink(path);
    }
    mirt_strategy_destroy(s);
    mirt_strategy_destroy(t);
}

static void check_refusals(void) {
    scene c;
    memset(&c, 0, sizeof c);
    c.mode = SWAPS;
    mirt_strategy *s = strategy_of(1, 1, 1);
    ok(!run(&c, image_model(s, mirt_adam(1e-3f), 0)) && c.status == MIRT_E_STATE &&
           strstr(mirt_last_error(), "use_ema"),
       "without averages: %s", mirt_last_error());
    mirt_model *m = model_on(s);
    const int64_t step = mirt_step(m);
    mirt__averages_swap(m, true);
    ok(step == 0 && !m->swapped, "before the first step there are no averages");
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_images();
    check_keras(false);
    check_keras(true);
    check_training(1, 1);
    check_training(1, 2);
    check_training(2, 3);
    check_ends();
    check_checkpoints(1);
    check_checkpoints(2);
    check_refusals();
    return done_testing();
}
