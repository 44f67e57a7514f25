#ifndef ARCHIVE_H
#define ARCHIVE_H
/* Data, models and runs shared by writers and readers of tests/archive. It uses public calls only, because both an old
   version of the library and this one compile it. Never changes for a version whose files exist. */
#include <stdio.h>
#include <string.h>

enum {
    ARCHIVE_SIDE = 8,
    ARCHIVE_IMAGES = 24,
    ARCHIVE_CLASSES = 3,
    ARCHIVE_BATCH = 8,
    ARCHIVE_EPOCHS = 3,
    ARCHIVE_STEP = 5,
    ARCHIVE_SHOWN = 4
};
static unsigned char archive_pixels[ARCHIVE_IMAGES][ARCHIVE_SIDE * ARCHIVE_SIDE], archive_labels[ARCHIVE_IMAGES];

static void archive_draw(void) {
    unsigned long long state = 12345;
    for (int i = 0; i < ARCHIVE_IMAGES; i++) {
        archive_labels[i] = (unsigned char)(i % ARCHIVE_CLASSES);
        for (int k = 0; k < ARCHIVE_SIDE * ARCHIVE_SIDE; k++) {
            state = state * 6364136223846793005ULL + 1442695040888963407ULL;
            archive_pixels[i][k] = (unsigned char)((state >> 40) % 128 + (k % (archive_labels[i] + 2) == 0 ? 127 : 0));
        }
    }
}

static mirt_array archive_x(int count) {
    return mirt_make_array(archive_pixels, MIRT_UINT8, MIRT_SHAPE(count, ARCHIVE_SIDE, ARCHIVE_SIDE, 1));
}
static mirt_array archive_y(int count) { return mirt_make_array(archive_labels, MIRT_UINT8, MIRT_SHAPE(count)); }

static mirt_strategy *archive_strategy(void) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = "1";
    d.replicas = 2;
    d.threads = 1;
    d.seed = 7;
    d.silent = true;
    return mirt_strategy_create(&d);
}

static mirt_compile_desc archive_compile(mirt_optimizer optimizer) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = optimizer;
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    c.metrics[0] = MIRT_ACCURACY;
    return c;
}

/* Convolutions, batch normalization, a branch that is added, a schedule and averages: compiled. */
static mirt_model *archive_model(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "archived");
    mirt_conv2d_desc conv;
    mirt_dense_desc dense;
    mirt_optimizer optimizer = mirt_adamw(1e-2f);
    memset(&conv, 0, sizeof conv);
    memset(&dense, 0, sizeof dense);
    conv.filters = 4;
    conv.kernel[0] = 3;
    conv.padding = MIRT_SAME;
    conv.name = "first";
    mirt_tensor *x = mirt_rescale(mirt_input(m, MIRT_SHAPE(ARCHIVE_SIDE, ARCHIVE_SIDE, 1)), 1.0f / 255, 0);
    x = mirt_relu(mirt_batch_norm(mirt_conv2d(x, &conv), NULL));
    conv.name = "second";
    conv.activation = MIRT_TANH;
    x = mirt_max_pool2d(mirt_add(x, mirt_conv2d(x, &conv)), NULL);
    dense.units = ARCHIVE_CLASSES;
    dense.name = "scores";
    mirt_model_output(m, mirt_dense(mirt_dropout(mirt_flatten(x), 0.2f), &dense));
    optimizer.use_ema = true;
    optimizer.decay = mirt_cosine_decay(1e-2f, 20, 0.1f);
    mirt_compile_desc c = archive_compile(optimizer);
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* FNV-1a of all weights' bits. */
static unsigned long long archive_digest(mirt_model *m) {
    static float values[4096];
    unsigned long long hash = 14695981039346656037ULL;
    mirt_weight_info info;
    for (int i = 0; i < mirt_num_weights(m); i++) {
        if (mirt_weight(m, i, &info) != MIRT_OK || info.count > 4096) return 0;
        if (mirt_get_weight(m, info.name, 0, values, (size_t)info.count) != MIRT_OK) return 0;
        for (size_t k = 0; k < (size_t)info.count * sizeof(float); k++)
            hash = (hash ^ ((const unsigned char *)values)[k]) * 1099511628211ULL;
    }
    return hash;
}

/* >>a run with callbacks, interrupted in the middle of its second epoch */

typedef struct archive_run {
    mirt_model *model;
    mirt_callback *ready[6];
    mirt_fit_desc fit;
} archive_run;

/* `watch` is told of everything last; files are written beside each other in the current directory. */
static mirt_history *archive_fit(archive_run *r, mirt_strategy *s, const mirt_callback *watch, const char *resume,
                                 int max_steps) {
    mirt_early_stopping_desc early;
    mirt_reduce_lr_desc reduce;
    mirt_model_checkpoint_desc checkpoint;
    mirt_csv_logger_desc csv;
    mirt_json_logger_desc json;
    mirt_tensorboard_desc board;
    mirt_dense_desc hidden, scores;
    memset(r, 0, sizeof *r);
    memset(&early, 0, sizeof early);
    memset(&reduce, 0, sizeof reduce);
    memset(&checkpoint, 0, sizeof checkpoint);
    memset(&csv, 0, sizeof csv);
    memset(&json, 0, sizeof json);
    memset(&board, 0, sizeof board);
    memset(&hidden, 0, sizeof hidden);
    memset(&scores, 0, sizeof scores);
    hidden.units = 4;
    hidden.activation = MIRT_RELU;
    hidden.name = "hidden";
    scores.units = ARCHIVE_CLASSES;
    scores.name = "scores";
    r->model = mirt_model_create(s, "run");
    mirt_model_output(
        r->model,
        mirt_dense(mirt_dense(mirt_flatten(mirt_rescale(mirt_input(r->model, MIRT_SHAPE(ARCHIVE_SIDE, ARCHIVE_SIDE, 1)),
                                                        1.0f / 255, 0)),
                              &hidden),
                   &scores));
    mirt_compile_desc c = archive_compile(mirt_adam(1e-2f));
    if (mirt_compile(r->model, &c) != MIRT_OK) return NULL;
    early.monitor = reduce.monitor = "loss";
    early.patience = 5;
    early.restore_best_weights = true;
    checkpoint.path = "checkpoint_{step}.safetensors";
    checkpoint.every_steps = ARCHIVE_STEP;
    checkpoint.keep = 3;
    csv.path = "log.csv";
    json.path = "log.jsonl";
    json.steps = 1;
    board.log_dir = "board";
    r->ready[0] = mirt_early_stopping(&early);
    r->ready[1] = mirt_reduce_lr_on_plateau(&reduce);
    r->ready[2] = mirt_model_checkpoint(&checkpoint);
    r->ready[3] = mirt_csv_logger(&csv);
    r->ready[4] = mirt_json_logger(&json);
    r->ready[5] = mirt_tensorboard(&board);
    for (int i = 0; i < 6; i++) r->fit.callbacks[i] = r->ready[i];
    r->fit.callbacks[6] = watch;
    r->fit.epochs = ARCHIVE_EPOCHS;
    r->fit.batch = ARCHIVE_BATCH;
    r->fit.no_progress = true;
    r->fit.max_steps = max_steps;
    r->fit.resume = resume;
    return mirt_fit_arrays(r->model, archive_x(ARCHIVE_IMAGES), archive_y(ARCHIVE_IMAGES), &r->fit);
}

static void archive_run_close(archive_run *r) {
    for (int i = 0; i < 6; i++) mirt_callback_destroy(r->ready[i]);
}

/* >>a cache */

static int archive_made; /* samples */

static int archive_make(void *const *out, int64_t index, void *user) {
    (void)user;
    if (index >= ARCHIVE_IMAGES) return MIRT_END_OF_DATA;
    archive_made++;
    memcpy(out[0], archive_pixels[index], sizeof archive_pixels[0]);
    memcpy(out[1], &archive_labels[index], 1);
    return 0;
}

static mirt_dataset *archive_cache(const char *file) {
    mirt_generator_desc d;
    mirt_cache_desc cache;
    memset(&d, 0, sizeof d);
    memset(&cache, 0, sizeof cache);
    d.fn = archive_make;
    d.name = "archived";
    d.num_x = d.num_y = 1;
    d.x[0] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(ARCHIVE_SIDE, ARCHIVE_SIDE, 1));
    d.y[0].dtype = MIRT_UINT8;
    d.samples = ARCHIVE_IMAGES;
    d.any_order = true;
    cache.file = file;
    return mirt_batch(mirt_cache_with(mirt_dataset_from_generator(&d), &cache), ARCHIVE_BATCH);
}
#endif
