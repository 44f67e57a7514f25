#ifndef SCENES_H
#define SCENES_H
/* What processes train together in tests, and what they leave. Include after mirrortrain.h. */
#include "image_util.h"
#include "mirror_util.h"

#include <sys/stat.h>

/* What a process has after a case. */
typedef struct record {
    uint64_t weights, predictions, metrics;
    double loss, accuracy, val_loss, val_accuracy, evaluated;
    int64_t steps;
    int status, workers, index;
    bool gpus;
    char error[512];
} record;

typedef struct layout {
    int processes, devices;
    const char *shares;
} layout;

/* What is trained. */
typedef struct scene {
    const char *name;
    int replicas, batch;
    bool normed, synchronized, clipped, weighted, photos, accumulated, averaged, frozen, augmented, loop, whole;
    bool several; /* optimizers */
    float dropout;
    mirt_collective collective;
} scene;

static char photo_dir[256]; /* of bitmaps, two of them damaged */

TAP_UNUSED static uint64_t hash_of_weights(mirt_model *model) {
    mirt_weight_info info;
    uint64_t hash = 0;
    for (int i = 0; i < mirt_num_weights(model); i++) {
        if (mirt_weight(model, i, &info) != MIRT_OK) return 0;
        float *values = (float *)malloc((size_t)info.count * sizeof *values + 1);
        if (values && mirt_get_weight(model, info.name, 0, values, (size_t)info.count) == MIRT_OK)
            hash = mirt__hash_bytes(hash, values, (size_t)info.count * sizeof *values);
        free(values);
    }
    return hash;
}

static mirt_tensor *normed(mirt_tensor *x, const scene *s) {
    mirt_batch_norm_desc d;
    memset(&d, 0, sizeof d);
    d.synchronized = s->synchronized;
    return mirt_relu(mirt_batch_norm(x, &d));
}

static mirt_tensor *layers(mirt_tensor *x, const scene *s) {
    mirt_conv2d_desc conv;
    mirt_dense_desc dense;
    mirt_augmentation list[4];
    memset(&conv, 0, sizeof conv);
    memset(&dense, 0, sizeof dense);
    conv.filters = 6;
    conv.kernel[0] = 3;
    conv.activation = s->normed ? MIRT_LINEAR : MIRT_RELU;
    conv.name = "first";
    dense.units = IMAGE_CLASSES;
    for (int i = 0, n = s->augmented ? mirt_parse_augmentation("flip,rotation:0.1", list, 4) : 0; i < n; i++)
        x = mirt_augmentation_layer(x, &list[i]);
    x = mirt_conv2d(mirt_rescale(x, 1.0f / 255, 0), &conv);
    if (s->normed) x = normed(x, s);
    x = mirt_max_pool2d(x, NULL);
    conv.name = "second";
    x = s->normed ? normed(mirt_conv2d(x, &conv), s) : mirt_conv2d(x, &conv);
    x = mirt_flatten(x);
    return mirt_dense(s->dropout > 0 ? mirt_dropout(x, s->dropout) : x, &dense);
}

TAP_UNUSED static mirt_model *model_of(mirt_strategy *strategy, const scene *s) {
    mirt_model *model = mirt_model_create(strategy, "scene");
    if (!model) return NULL;
    const mirt_shape shape = s->photos ? MIRT_SHAPE(16, 16, 3) : MIRT_SHAPE(IMAGE_H, IMAGE_W, 1);
    mirt_model_output(model, layers(mirt_input(model, shape), s));
    if (s->frozen) mirt_set_trainable(model, "first", false);
    mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
    if (s->whole) c.optimizer = mirt_muon(0.02f);
    if (s->several) {
        c.optimizers[0].weights = "first";
        c.optimizers[0].optimizer = mirt_sgd(0.05f, 0.9f, true);
        c.optimizers[0].optimizer.global_clipnorm = 0.25f;
        c.optimizers[0].optimizer.decay = mirt_exponential_decay(0.05f, 4, 0.5f, false);
    }
    if (s->clipped) c.optimizer.global_clipnorm = 0.05f;
    c.optimizer.use_ema = s->averaged;
    if (s->weighted) {
        c.metrics[1] = MIRT_ACCURACY;
        c.metrics[2] = MIRT_F1_SCORE;
        c.metrics[3] = MIRT_MEAN_IOU;
        c.metrics[4] = MIRT_METRIC_LOSS;
        c.metric_options[1].weighted = c.metric_options[2].weighted = c.metric_options[4].weighted = true;
        c.metric_options[2].average = MIRT_WEIGHTED;
        c.metric_options[4].from_logits = true;
        c.metric_options[4].loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    }
    return mirt_compile(model, &c) == MIRT_OK ? model : NULL;
}

TAP_UNUSED static bool data_of(const scene *s, mirt_dataset **train, mirt_dataset **validation) {
    if (s->photos) {
        mirt_image_directory_desc d;
        memset(&d, 0, sizeof d);
        d.height = d.width = 16;
        d.batch_size = MIRT_NO_BATCH;
        d.corrupt = MIRT_CORRUPT_SKIP;
        d.has_seed = true;
        d.seed = 5;
        *train = mirt_image_dataset_from_directory(photo_dir, &d);
        d.no_shuffle = true;
        *validation = mirt_image_dataset_from_directory(photo_dir, &d);
    } else {
        mirt_data data;
        memset(&data, 0, sizeof data);
        data.x[0] = images_x(0, 203);
        data.y[0] = images_y(0, 203);
        static float weights[203];
        for (int i = 0; i < 203; i++) weights[i] = 0.25f + (float)(i % 7) / 3;
        if (s->weighted) data.weights = mirt_make_array(weights, MIRT_FLOAT32, MIRT_SHAPE(203));
        *train = mirt_arrays_of(&data);
        *validation = mirt_arrays(images_x(203, 57), images_y(203, 57));
        *train = *train ? mirt_shuffle(*train, 300) : NULL;
    }
    *train = *train ? mirt_batch(*train, s->batch) : NULL;
    if (*train && s->accumulated) *train = mirt_accumulate(*train, 3);
    if (*train && s->photos && !s->accumulated) *train = mirt_prefetch(*train, 2);
    *validation = *validation ? mirt_batch(*validation, 16) : NULL;
    return *train && *validation;
}

static bool body(mirt_function *f, void *user) {
    mirt_tensor *labels = mirt_cast(mirt_function_y(f, 0), MIRT_INT32),
                *logits = mirt_call((mirt_model *)user, mirt_function_x(f, 0), MIRT_TRAINING_ON),
                *loss = mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, labels, logits);
    mirt_minimize(f, loss);
    mirt_function_result(f, "loss", loss);
    return true;
}

/* Two passes of a loop of the user's. */
static mirt_status run_loop(mirt_strategy *strategy, mirt_model *model, mirt_dataset **train, record *out) {
    mirt_dataset *data = *train = mirt_distribute(strategy, *train);
    mirt_function *f = data ? mirt_function_create(model, data, body, model) : NULL;
    mirt_status status = f ? MIRT_OK : mirt_last_status();
    for (int pass = 0; pass < 2 && status == MIRT_OK;) {
        mirt_global_batch batch;
        double loss = 0;
        status = mirt_dataset_next(data, &batch);
        if (status == MIRT_OK && batch.rows == 0) pass++;
        if (status != MIRT_OK || batch.rows == 0) continue;
        status = mirt_function_run(f, &batch);
        if (status == MIRT_OK) status = mirt_reduce(f, "loss", MIRT_REDUCE_MEAN, &loss, 1);
        out->loss += loss;
        out->steps++;
    }
    return status;
}

static mirt_status run_fit(mirt_model *model, const scene *s, mirt_dataset *train, mirt_dataset *validation,
                           record *out) {
    static const float weights[IMAGE_CLASSES] = {1, 2, 0.5f, 1, 3};
    mirt_fit_desc d;
    memset(&d, 0, sizeof d);
    d.epochs = 3;
    d.validation = validation;
    d.no_progress = true;
    d.class_weights = s->weighted ? weights : NULL;
    d.num_class_weights = s->weighted ? IMAGE_CLASSES : 0;
    const mirt_history *h = mirt_fit(model, train, &d);
    if (!h) return mirt_last_status();
    out->loss = mirt_history_last(h, "loss");
    out->accuracy = mirt_history_last(h, "accuracy");
    out->val_loss = mirt_history_last(h, "val_loss");
    out->val_accuracy = mirt_history_last(h, "val_accuracy");
    out->steps = h->steps;
    for (int i = 0; i < h->epochs; i++)
        out->metrics = mirt__hash_bytes(out->metrics, h->epoch[i].value,
                                        (size_t)h->epoch[i].count * sizeof *h->epoch[i].value);
    return MIRT_OK;
}

static mirt_status use(mirt_model *model, mirt_dataset *validation, record *out) {
    float room[512 * IMAGE_CLASSES];
    mirt_logs logs;
    memset(room, 0, sizeof room);
    if (mirt_evaluate(model, validation, &logs) != MIRT_OK) return mirt_last_status();
    out->evaluated = mirt_logs_value(&logs, "loss");
    out->metrics = mirt__hash_bytes(out->metrics, logs.value, (size_t)logs.count * sizeof *logs.value);
    if (mirt_predict(model, validation, room, sizeof room / sizeof *room) != MIRT_OK) return mirt_last_status();
    out->predictions = mirt__hash_bytes(0, room, sizeof room);
    return mirt_graph_text(model, 16) ? mirt_check_drift(model) : mirt_last_status();
}

/* A silent strategy of several processes with one thread per device; it keeps the pointer to `devices`. */
TAP_UNUSED static mirt_strategy_desc multi_worker_desc(const char *devices, double limit) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.kind = MIRT_MULTI_WORKER;
    d.devices = devices;
    d.threads = 1;
    d.silent = true;
    d.timeout_seconds = limit;
    return d;
}

/* A process's part of a case. */
TAP_UNUSED static void run_scene(const scene *s, const layout *l, record *out) {
    char devices[16];
    mirt_dataset *train = NULL, *validation = NULL;
    snprintf(devices, sizeof devices, "%d", l->devices);
    mirt_strategy_desc d = multi_worker_desc(devices, 20);
    d.replicas = s->replicas;
    d.shares = l->shares;
    d.collective = s->collective;
    d.seed = 11;
    d.bucket_bytes = 2000;
    mirt_strategy *strategy = mirt_strategy_create(&d);
    mirt_model *model = strategy ? model_of(strategy, s) : NULL;
    mirt_status status = model && data_of(s, &train, &validation) ? MIRT_OK : mirt_last_status();
    if (status == MIRT_OK)
        status = s->loop ? run_loop(strategy, model, &train, out) : run_fit(model, s, train, validation, out);
    if (status == MIRT_OK) status = use(model, validation, out);
    out->status = (int)status;
    if (status != MIRT_OK) snprintf(out->error, sizeof out->error, "%s", mirt_last_error());
    out->gpus = strategy && !strategy->able.in_place;
    out->workers = mirt_num_workers(strategy);
    out->index = mirt_worker_index(strategy);
    if (status == MIRT_OK) out->weights = hash_of_weights(model);
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(validation);
    mirt_strategy_destroy(strategy);
}

TAP_UNUSED static const scene scenes[] = {
    {.name = "a network with dropout", .replicas = 8, .batch = 29, .dropout = 0.3f},
    {.name = "13 replicas", .replicas = 13, .batch = 29},
    {.name = "batches below the replicas", .replicas = 8, .batch = 5},
    {.name = "a last batch of one row", .replicas = 8, .batch = 101},
    {.name = "batch normalization", .replicas = 8, .batch = 29, .normed = true},
    {.name = "synchronized batch normalization", .replicas = 8, .batch = 29, .normed = true, .synchronized = true},
    {.name = "clipping by the global norm", .replicas = 13, .batch = 29, .clipped = true},
    {.name = "products of whole weights", .replicas = 13, .batch = 29, .whole = true},
    {.name = "photographs, two of them damaged", .replicas = 8, .batch = 16, .photos = true},
    {.name = "augmented photographs", .replicas = 13, .batch = 21, .photos = true, .augmented = true},
    /* which fewer layouts run */
    {.name = "class weights", .replicas = 8, .batch = 29, .weighted = true},
    {.name = "accumulation", .replicas = 4, .batch = 12, .accumulated = true, .dropout = 0.2f},
    {.name = "accumulation of photographs", .replicas = 6, .batch = 8, .accumulated = true, .photos = true},
    {.name = "averaged weights", .replicas = 8, .batch = 29, .averaged = true},
    {.name = "several optimizers", .replicas = 8, .batch = 29, .several = true},
    {.name = "frozen layers", .replicas = 8, .batch = 29, .frozen = true},
    {.name = "frozen layers and photographs", .replicas = 8, .batch = 29, .frozen = true, .photos = true},
    {.name = "a loop of the user's", .replicas = 8, .batch = 29, .loop = true, .dropout = 0.3f},
};
enum { SCENES = sizeof scenes / sizeof scenes[0], MAIN_SCENES = 10 };

TAP_UNUSED static void write_photos(void) {
    unsigned char file[IMAGE_MOST];
    char path[400];
    snprintf(photo_dir, sizeof photo_dir, "%s/mirt_scenes_%ld", tap_tmpdir(), (long)getpid());
    mkdir(photo_dir, 0700);
    for (int c = 0; c < IMAGE_CLASSES; c++) {
        snprintf(path, sizeof path, "%s/class%d", photo_dir, c);
        mkdir(path, 0700);
        for (int i = 0; i < 13; i++) {
            size_t size = image_write_bmp(file, 17 + i, 15 + c);
            for (size_t k = 54; k < size; k++) file[k] = (unsigned char)(file[k] * (c + 2) + i);
            if ((i == 3 && c == 1) || (i == 7 && c == 4)) size = 40; /* damaged */
            snprintf(path, sizeof path, "%s/class%d/photo%02d.bmp", photo_dir, c, i);
            image_write_file(path, file, size);
        }
    }
}

TAP_UNUSED static void remove_photos(void) {
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", photo_dir);
    if (system(command) != 0) printf("# %s is left\n", photo_dir);
}
#endif
