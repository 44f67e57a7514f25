/* Resumed fits are bit-identical to uninterrupted ones. Whatever the data, the model and the moment, on any number
   of devices: weights, optimizer state, history and what callbacks are told. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

enum { SAMPLES = 50, EPOCHS = 3 };

/* >>data of all kinds */

static int give_image(void *const *out, int64_t index, void *user) {
    (void)user;
    if (index >= SAMPLES) return MIRT_END_OF_DATA;
    memcpy(out[0], image_pixels[index], IMAGE);
    memcpy(out[1], &image_classes[index], 1);
    return 0;
}

static mirt_dataset *generated(bool stream) {
    mirt_generator_desc d;
    memset(&d, 0, sizeof d);
    d.fn = give_image;
    d.num_x = d.num_y = 1;
    d.x[0] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1));
    d.y[0].dtype = MIRT_UINT8;
    d.samples = stream ? 0 : SAMPLES;
    d.any_order = !stream;
    return mirt_dataset_from_generator(&d);
}

static mirt_dataset *arrays(void) { return mirt_arrays(images_x(0, SAMPLES), images_y(0, SAMPLES)); }

static mirt_dataset *augmented(mirt_dataset *data) {
    mirt_augmentation list[2];
    return mirt_augment(data, list, mirt_parse_augmentation("flip,rotation:0.1", list, 2));
}

static mirt_dataset *data_plain(void) { return mirt_batch(arrays(), 8); }
static mirt_dataset *data_shuffled(void) { return mirt_prefetch(mirt_batch(mirt_shuffle(arrays(), 10), 8), 2); }
static mirt_dataset *data_accumulated(void) {
    return mirt_prefetch(mirt_accumulate(mirt_batch_drop_remainder(mirt_shuffle(arrays(), 10), 4), 2), 3);
}
static mirt_dataset *data_made(void) {
    return mirt_prefetch(mirt_batch(augmented(mirt_shuffle(generated(false), 10)), 8), MIRT_AUTOTUNE);
}
static mirt_dataset *data_stream(void) { return mirt_batch(mirt_shuffle(generated(true), 13), 8); }
static mirt_dataset *data_repeated(void) {
    return mirt_prefetch(mirt_batch(mirt_repeat(mirt_shuffle(arrays(), 10), 0), 8), 2);
}
static mirt_dataset *data_repeated_made(void) { return mirt_batch(mirt_repeat(augmented(generated(false)), 2), 8); }
static mirt_dataset *data_repeated_batches(void) { return mirt_repeat(mirt_batch(mirt_shuffle(arrays(), 10), 8), 2); }
static mirt_dataset *data_window(void) { return mirt_take(mirt_skip(mirt_batch(mirt_shuffle(arrays(), 10), 8), 1), 5); }
static mirt_dataset *data_cached(void) { return mirt_batch(mirt_cache(augmented(mirt_shuffle(arrays(), 10))), 8); }
static mirt_dataset *data_mixed(void) {
    mirt_dataset *d = mirt_one_hot_labels(mirt_shuffle(generated(false), 10), 5);
    return mirt_batch(mirt_cut_mix(mirt_mix_up(d, 0.3f), 0, 0), 8);
}
static mirt_dataset *data_unbatched(void) { return mirt_shuffle(arrays(), 10); }

typedef struct scene {
    const char *name;
    mirt_dataset *(*data)(void);
    int64_t steps_per_epoch;
    bool nesterov, frozen, weighted, validated, rates, extras, several;
    bool later; /* the model has been trained for a step */
} scene;

static const scene scenes[] = {
    {"in order", data_plain, 0, false, false, false, true, false, false, false, false},
    {"shuffled, prefetched, class weights", data_shuffled, 0, false, false, true, true, false, false, false, false},
    {"accumulated, Nesterov", data_accumulated, 0, true, false, false, false, false, false, false, false},
    {"made by threads, augmented", data_made, 0, false, false, false, false, true, false, false, false},
    {"a stream through a buffer", data_stream, 5, false, false, false, false, false, false, false, false},
    {"epochs of 4 steps", data_shuffled, 4, false, false, false, true, true, false, false, false},
    {"repeated for ever, epochs of 5 steps", data_repeated, 5, false, false, false, true, false, false, false, false},
    {"repeated and made", data_repeated_made, 0, false, false, false, false, false, false, false, false},
    {"batches repeated", data_repeated_batches, 0, false, false, false, false, false, false, false, false},
    {"a part of the batches", data_window, 0, false, false, false, false, false, false, false, false},
    {"a cache after a shuffle", data_cached, 0, false, false, false, false, false, false, false, true},
    {"mixed with other samples", data_mixed, 0, false, false, false, false, false, false, false, false},
    {"batched by fit, frozen layers", data_unbatched, 0, false, true, false, true, false, false, false, false},
    {"AMSGrad with decay, clipping, averages, a schedule and counted metrics", data_shuffled, 0, false, false, false,
     true, false, true, false, false},
    {"several optimizers", data_shuffled, 0, false, false, false, true, false, true, true, false},
};

/* >>one fit */

typedef struct seen {
    char text[4096]; /* what callbacks of the user are told: a digit of every loss per step */
} seen;

static void note(const mirt_event *e, seen *s, char letter) {
    size_t used = strlen(s->text);
    snprintf(s->text + used, sizeof s->text - used, "%c%d:%lld:%lld:%.17g ", letter, e->epoch, (long long)e->batch,
             (long long)e->step, mirt_logs_value(e->logs, "loss"));
}
static int note_batch(const mirt_event *e, void *user) {
    note(e, (seen *)user, 'b');
    return 0;
}
static int note_epoch(const mirt_event *e, void *user) {
    note(e, (seen *)user, 'e');
    return 0;
}
/* After all batches of an epoch, which is not over. */
static int save_tested(const mirt_event *e, void *user) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", work_directory(), (const char *)user);
    return e->epoch == 0 && mirt_save(e->model, path, MIRT_SAVE_ALL) != MIRT_OK ? MIRT_CALLBACK_FAILED : 0;
}

static float falling(int epoch, float rate, void *user) {
    (void)user;
    return epoch ? rate * 0.7f : 0.003f;
}

/* What a fit leaves. */
typedef struct outcome {
    bool good, resumed;
    char weights[MIRT__SHA256_HEX], file[MIRT__SHA256_HEX], history[4096];
    seen told;
    int64_t steps, images; /* images: in the seconds of the history */
} outcome;

static mirt_model *scene_model(const scene *c, mirt_strategy *s) {
    mirt_optimizer optimizer = c->nesterov ? mirt_sgd(0.05f, 0.9f, true) : mirt_adam(2e-3f);
    mirt_model *m = image_net(s, 0.3f);
    if (c->extras) {
        optimizer = mirt_adamw(2e-3f);
        optimizer.amsgrad = true;
        optimizer.global_clipnorm = 0.5f;
        optimizer.exclude_from_weight_decay = "bias";
        optimizer.use_ema = true;
        optimizer.ema_overwrite_frequency = 7;
        optimizer.decay = mirt_cosine_decay(2e-3f, 20, 0.1f);
    }
    mirt_compile_desc d = image_compile(optimizer);
    if (c->several) {
        d.optimizers[0].weights = "conv2d*";
        d.optimizers[0].optimizer = mirt_sgd(0.05f, 0.9f, false);
        d.optimizers[0].optimizer.clipnorm = 0.25f;
        d.optimizers[0].optimizer.decay = mirt_exponential_decay(0.05f, 4, 0.5f, false);
        d.optimizers[0].optimizer.use_ema = true;
    }
    if (c->data == data_mixed) d.loss = MIRT_CATEGORICAL_CROSSENTROPY;
    if (c->extras) {
        d.metrics[1] = MIRT_AUC;
        d.metrics[2] = MIRT_PRECISION;
        d.metric_options[1].from_logits = true;
    }
    if (c->frozen) mirt_set_trainable(m, "conv2d", false);
    return mirt_compile(m, &d) == MIRT_OK ? m : NULL;
}

static void digest_file(const char *path, char out[MIRT__SHA256_HEX]) {
    size_t size;
    char *bytes = file_bytes(path, &size);
    digest_of(bytes ? bytes : "", size, out);
    free(bytes);
}

static const char *in_work(const char *name, char out[400]) {
    snprintf(out, 400, "%s/%s", work_directory(), name);
    return out;
}

/* Trains the scene on some devices: checkpoints to `pattern` (may be NULL), resuming from `resume` (may be NULL). */
static void run_scene(const scene *c, int devices, const char *pattern, const char *resume, int64_t max_steps,
                      outcome *out) {
    static const float weight[IMAGE_CLASSES] = {1, 2, 0.5f, 1, 1.5f};
    char path[400];
    mirt_model_checkpoint_desc d;
    mirt_early_stopping_desc early;
    mirt_callback watch, tested;
    mirt_fit_desc fit;
    memset(out, 0, sizeof *out);
    memset(&d, 0, sizeof d);
    memset(&early, 0, sizeof early);
    memset(&watch, 0, sizeof watch);
    memset(&tested, 0, sizeof tested);
    memset(&fit, 0, sizeof fit);
    mirt_strategy *s = strategy_of(devices, 4, 1);
    mirt_model *m = scene_model(c, s);
    mirt_dataset *data = c->data();
    watch.user = &out->told;
    watch.batch_end = note_batch;
    watch.epoch_end = note_epoch;
    tested.user = (void *)"tested.safetensors";
    tested.test_end = save_tested;
    d.path = pattern;
    d.every_steps = max_steps ? 100 : 1;
    d.at_end = max_steps > 0;
    early.monitor = "loss";
    early.patience = 100;
    early.restore_best_weights = true;
    mirt_callback *checkpoint = pattern ? mirt_model_checkpoint(&d) : NULL, *stopping = mirt_early_stopping(&early);
    fit.epochs = EPOCHS;
    fit.batch = mirt_dataset_batches(data) ? 0 : 8;
    fit.no_progress = true;
    fit.steps_per_epoch = c->steps_per_epoch;
    fit.max_steps = max_steps;
    fit.resume = resume;
    if (c->weighted) fit.class_weights = weight;
    fit.num_class_weights = c->weighted ? IMAGE_CLASSES : 0;
    if (c->rates) fit.learning_rate = falling;
    fit.validation = c->validated ? mirt_batch(mirt_arrays(images_x(60, 20), images_y(60, 20)), 8) : NULL;
    fit.callbacks[0] = stopping;
    fit.callbacks[1] = &watch;
    fit.callbacks[2] = checkpoint;
    fit.callbacks[3] = resume ? NULL : &tested;
    if (c->later && !resume) {
        mirt_fit_desc before;
        memset(&before, 0, sizeof before);
        before.no_progress = true;
        mirt_fit_arrays(m, images_x(0, 16), images_y(0, 16), &before);
    }
    const mirt_history *h = m && data ? mirt_fit(m, data, &fit) : NULL;
    out->good = h && copies_agree(m) && mirt_save(m, in_work("whole", path), MIRT_SAVE_ALL) == MIRT_OK;
    if (out->good) {
        digest_weights(m, 0, out->weights);
        digest_file(path, out->file);
        out->steps = h->steps;
        out->images = llround(h->images_per_second * h->seconds);
        for (int e = 0; e < h->epochs; e++) {
            for (int i = 0; i < h->epoch[e].count; i++) {
                size_t used = strlen(out->history);
                snprintf(out->history + used, sizeof out->history - used, "%s=%.17g ", h->epoch[e].name[i],
                         h->epoch[e].value[i]);
            }
        }
    }
    mirt_callback_destroy(checkpoint);
    mirt_callback_destroy(stopping);
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(fit.validation);
    mirt_strategy_destroy(s);
}

static bool same_end(const outcome *a, const outcome *b) {
    return b->good && strcmp(a->weights, b->weights) == 0 && strcmp(a->file, b->file) == 0 &&
           strcmp(a->history, b->history) == 0 && a->steps == b->steps && a->images == b->images;
}

/* All checkpoints are written by the run that is not broken off; the others begin at one of them, without writing
   any. */
static void check_scene(const scene *c) {
    outcome whole, part;
    char pattern[400], path[400];
    int wrong = 0, tried = 0;
    run_scene(c, 2, in_work("ckpt_{step:04d}.safetensors", pattern), NULL, 0, &whole);
    run_scene(c, 1, NULL, NULL, 0, &part);
    ok(whole.good && same_end(&whole, &part), "%s: %d steps, the same bits with and without checkpoints%s%s", c->name,
       (int)whole.steps, whole.good ? "" : ": ", whole.good ? "" : mirt_last_error());
    for (int64_t step = 1; step <= whole.steps; step += small_tier() ? 4 : 1) {
        char name[64];
        snprintf(name, sizeof name, "ckpt_%04d.safetensors", (int)step + c->later);
        run_scene(c, 1 + (int)(step + tried) % 4, NULL, in_work(name, path), 0, &part);
        tried++;
        /* it is told what the whole one was told from that step on */
        const char *rest = part.told.text[0] ? strstr(whole.told.text, part.told.text) : "";
        bool told = rest && strlen(rest) == strlen(part.told.text);
        if (same_end(&whole, &part) && told) continue;
        if (!wrong++)
            printf("# from step %d: %s%s\n# %s\n# %s\n", (int)step, part.good ? "" : mirt_last_error(),
                   told ? "" : " told otherwise", whole.history, part.history);
    }
    ok(tried > 1 && !wrong,
       "%s: from each of %d checkpoints, on 1 to 4 devices, to the same weights, optimizer state, history and logs (%d "
       "do not)",
       c->name, tried, wrong);
    if (c->validated) {
        run_scene(c, 3, NULL, in_work("tested.safetensors", path), 0, &part);
        ok(same_end(&whole, &part),
           "%s: from a checkpoint of a callback's own, when the first epoch has been validated%s%s", c->name,
           part.good ? "" : ": ", part.good ? "" : mirt_last_error());
        unlink(path);
    }
    for (int64_t step = 1; step <= whole.steps; step++) {
        char name[64];
        snprintf(name, sizeof name, "ckpt_%04d.safetensors", (int)step + c->later);
        unlink(in_work(name, path));
    }
    unlink(in_work("whole", path));
}

/* In steps of 3: each fit resumes from what the one before left when its steps were over, in the middle of an epoch. */
static void check_chain(void) {
    const scene *c = &scenes[1];
    outcome whole, part;
    char pattern[400], path[400];
    run_scene(c, 2, NULL, NULL, 0, &whole);
    int fits = 0;
    for (int64_t steps = 3; steps < whole.steps + 3; steps += 3, fits++) {
        run_scene(c, 1 + fits % 3, in_work("chain.safetensors", pattern), work_directory(), steps, &part);
        if (!part.good) break;
    }
    ok(same_end(&whole, &part),
       "a fit in %d pieces by max_steps, each resuming from the directory, is the whole one%s%s", fits,
       part.good ? "" : ": ", part.good ? "" : mirt_last_error());
    unlink(in_work("chain.safetensors", path));
    unlink(in_work("whole", path));
}

int main(void) {
    draw_images();
    for (int i = 0; i < MIRT__COUNT(scenes); i++) check_scene(&scenes[i]);
    check_chain();
    ok(rmdir(work_directory()) == 0, "nothing is left behind");
    return done_testing();
}
