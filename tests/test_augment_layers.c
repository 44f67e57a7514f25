/* Tests augmentation as layers, as a stage and as text, their errors, and normalization statistics. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "augment_util.h"
#include "mirror_util.h"

#include <unistd.h>

static char path[512];
static const char *const network = "flip,rotation:0.2,zoom:0.3,contrast:0.5,translation:0.1,crop:7:8,brightness:0.1,"
                                   "shear:0.2,hue:0.3,saturation:0.6,erasing:1,grayscale,invert,solarization:0.2:0.9,"
                                   "posterization:8,color_degeneration:0.5,equalization,sharpness:1,gaussian_blur:1:1,"
                                   "color_jitter:0.1:0.1:0.7:0.2,rand_augment,perspective:0.4,aug_mix,clahe,"
                                   "elastic_transform";

/* Augmented as the text says, then one number an image, which is trained. */
static mirt_model *augmenting(mirt_strategy *s, const char *text) {
    mirt_augmentation list[25];
    mirt_model *m = mirt_model_create(s, "augmenting");
    mirt_dense_desc dense;
    const int count = mirt_parse_augmentation(text, list, 25);
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(SIDE_H, SIDE_W, 3));
    for (int i = 0; i < count; i++) x = mirt_augmentation_layer(x, &list[i]);
    memset(&dense, 0, sizeof dense);
    dense.units = 1;
    mirt_tensor *out[2] = {x, mirt_dense(mirt_flatten(mirt_rescale(x, 1.0f / 255, 0)), &dense)};
    mirt_model_outputs(m, out, 2);
    return m;
}

static bool record_augmented(mirt_function *f, void *user) {
    mirt_tensor *out[MIRT_MAX_OUTPUTS], *x = mirt_function_x(f, 0);
    return mirt_call_many((mirt_model *)user, &x, 1, MIRT_TRAINING_ON, out) &&
           mirt_minimize(f, mirt_square(mirt_reduce_mean(out[1], 0, false))) == MIRT_OK &&
           mirt_function_result(f, "y", out[0]) == MIRT_OK;
}

/* What `steps` steps of batches of 5 make of the images, one after the other. */
static size_t augmented(int devices, int replicas, int threads, mirt_dtype dtype, const char *text, float *out,
                        size_t capacity) {
    mirt_strategy *s = strategy_of(devices, replicas, threads);
    mirt_model *m = augmenting(s, text);
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_as(dtype), 5));
    mirt_compile_desc c;
    mirt_global_batch batch;
    size_t done = 0, part;
    memset(&c, 0, sizeof c);
    c.optimizer = mirt_sgd(0.1f, 0, false);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_function *f = mirt_compile(m, &c) == MIRT_OK ? mirt_function_create(m, data, record_augmented, m) : NULL;
    for (int step = 0; f && step < 4; step++) {
        if (mirt_dataset_next(data, &batch) != MIRT_OK) break;
        if (!batch.rows) continue;
        if (mirt_function_run(f, &batch) != MIRT_OK ||
            mirt_gather_result(f, "y", out + done, capacity - done, &part) != MIRT_OK)
            break;
        done += part;
    }
    if (!done) printf("# %s\n", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    return done;
}

static const char *const names[] = {
    "random_flip",       "random_rotation", "random_zoom", "random_contrast", "random_translation", "random_crop",
    "random_brightness", "random_shear",    "random_hue",  "random_saturation", "random_erasing", "random_grayscale",
    "random_invert", "solarization", "random_posterization", "random_color_degeneration", "equalization",
    "random_sharpness", "random_gaussian_blur", "random_color_jitter", "rand_augment",
    "random_perspective", "aug_mix", "clahe", "random_elastic_transform"};

/* 5: augment_once's seed */
static uint64_t key_of_layer(int i) { return mirt__hash(names[i]) ^ mirt__hash("augment") ^ 11 ^ 5; }
static uint64_t key_in_stage(int i) { return (mirt__hash("augment") ^ (uint64_t)i << 32) * 0x9E3779B97F4A7C15u; }

static void test_layers(void) {
    enum { CAPACITY = 4 * 5 * PIXELS };
    static float first[CAPACITY], other[CAPACITY];
    const size_t count = augmented(1, 1, 1, MIRT_FLOAT32, network, first, CAPACITY);
    ok(count == ROWS * 7 * 8 * 3, "layers run in training (%zu numbers)", count);
    ok(augmented(1, 1, 2, MIRT_UINT8, network, other, CAPACITY) == count &&
           memcmp(first, other, count * sizeof *first) == 0,
       "the same images come from bytes, on two threads");
    ok(augmented(1, 3, 1, MIRT_FLOAT32, network, other, CAPACITY) == count &&
           memcmp(first, other, count * sizeof *first) == 0,
       "... on three replicas");
    ok(augmented(2, 4, 1, MIRT_UINT8, network, other, CAPACITY) == count &&
           memcmp(first, other, count * sizeof *first) == 0,
       "... on four replicas on two devices");
    /* As the transforms do it, keyed by seed, layer, row and step. */
    const mirt_shape shape = mirt_make_shape(SIDE_H, SIDE_W, 3, 0, 0, 0);
    mirt_augmentation list[25];
    mirt__transform t[160];
    const int listed = mirt_parse_augmentation(network, list, 25),
              transforms = transforms_by(list, listed, &shape, t, key_of_layer);
    bool same = listed == MIRT__COUNT(names) && transforms == listed + 3 + 21 + 102, distinct = true;
    for (int row = 0; row < 5; row++) {
        float y[7 * 8 * 3];
        augment_once(t, transforms, (uint64_t)row, MIRT_FLOAT32, row_floats[row], MIRT_FLOAT32, y);
        same = same && memcmp(y, first + row * 7 * 8 * 3, sizeof y) == 0;
    }
    ok(same, "... and are what the transforms make, keyed by seed, layer and row");
    /* The images of one batch being one image, and those of two steps. */
    memcpy(other, row_floats, sizeof row_floats);
    for (int i = 1; i < ROWS; i++) memcpy(row_floats[i], row_floats[0], sizeof row_floats[0]);
    augmented(1, 2, 1, MIRT_FLOAT32, "rotation:0.3", first, CAPACITY);
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < i; k++)
            distinct = distinct && memcmp(first + i * PIXELS, first + k * PIXELS, PIXELS * sizeof *first) != 0;
    }
    memcpy(row_floats, other, sizeof row_floats);
    ok(distinct, "another angle for every row and step, on two replicas");
}

static void test_inference(void) {
    static float y[ROWS][PIXELS], z[ROWS][7 * 8 * 3];
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    mirt_model *m = mirt_model_create(s, "plain");
    mirt_augmentation list[8];
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(SIDE_H, SIDE_W, 3));
    const int count =
        mirt_parse_augmentation("flip,rotation:0.2,zoom:0.3,contrast:0.5,shear:0.1,saturation:1,hue:1", list, 8);
    for (int i = 0; i < count; i++) x = mirt_augmentation_layer(x, &list[i]);
    mirt_model_output(m, x);
    const mirt_array data = mirt_make_array(row_floats, MIRT_FLOAT32, MIRT_SHAPE(ROWS, SIDE_H, SIDE_W, 3));
    mirt_model *cropped = mirt_model_create(s, "cropped"), *fitted = mirt_model_create(s, "fitted");
    mirt_augmentation crop;
    memset(&crop, 0, sizeof crop);
    crop.height = 7;
    crop.width = 8;
    mirt_model_output(
        cropped, mirt_random_crop(mirt_random_flip(mirt_input(cropped, MIRT_SHAPE(SIDE_H, SIDE_W, 3)), NULL), &crop));
    crop.crop_to_aspect_ratio = true;
    mirt_model_output(fitted, mirt_resizing(mirt_input(fitted, MIRT_SHAPE(SIDE_H, SIDE_W, 3)), &crop));
    ok(mirt_predict_arrays(m, data, &y[0][0], (size_t)ROWS * PIXELS) == MIRT_OK && memcmp(y, row_floats, sizeof y) == 0,
       "a model of random layers predicts its input, bit for bit (%s)", mirt_last_error());
    mirt_model *trained = augmenting(s, "flip,rotation:0.2,zoom:0.3,translation:0.1,shear:0.1");
    c.optimizer = mirt_sgd(0.1f, 0, false);
    c.losses[1] = MIRT_MEAN_SQUARED_ERROR;
    c.loss_weights[1] = 1;
    const char *text = mirt_compile(trained, &c) == MIRT_OK ? mirt_graph_text(trained, 5) : NULL;
    int times = 0;
    for (const char *at = text; at && (at = strstr(at, " augment")) != NULL; at++) times++;
    printf("# %s\n", text ? text : mirt_last_error());
    ok(times == 1, "five layers that move pixels are one operation of a training step");
    bool same = mirt_predict_arrays(cropped, data, &z[0][0], (size_t)ROWS * 7 * 8 * 3) == MIRT_OK &&
                mirt_predict_arrays(fitted, data, &y[0][0], (size_t)ROWS * 7 * 8 * 3) == MIRT_OK;
    ok(same && memcmp(z, y, sizeof z) == 0,
       "a random crop predicts with the largest part in the middle, resized as Resizing(crop_to_aspect_ratio) does "
       "(%s)",
       mirt_last_error());
    /* What is always active, before and after what is not. */
    const mirt_shape shape = mirt_make_shape(SIDE_H, SIDE_W, 3, 0, 0, 0);
    mirt_augmentation always[2];
    mirt__transform t[2];
    mirt_model *equalizing = mirt_model_create(s, "equalizing");
    int wrong = mirt_parse_augmentation("clahe,clahe:1", always, 2) != 2 || transforms_of(always, 2, &shape, t) != 2;
    x = mirt_random_rotation(mirt_clahe(mirt_input(equalizing, MIRT_SHAPE(SIDE_H, SIDE_W, 3)), NULL), &list[1]);
    mirt_model_output(equalizing, mirt_random_flip(mirt_clahe(x, &always[1]), NULL));
    wrong += mirt_predict_arrays(equalizing, data, &y[0][0], (size_t)ROWS * PIXELS) != MIRT_OK;
    for (int row = 0; row < ROWS; row++) {
        float want[PIXELS];
        augment_once(t, 2, 0, MIRT_FLOAT32, row_floats[row], MIRT_FLOAT32, want);
        wrong += memcmp(y[row], want, sizeof want) != 0 || memcmp(want, row_floats[row], sizeof want) == 0;
    }
    ok(wrong == 0, "CLAHE is active outside of training, the random layers around it are not (%s)", mirt_last_error());
    mirt_strategy_destroy(s);
}

/* Every layer is what it was when it has been saved and loaded. */
static void test_files(void) {
    enum { CAPACITY = ROWS * PIXELS };
    static float y[2][CAPACITY];
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_model_create(s, "saved");
    mirt_augmentation d;
    mirt_dense_desc dense;
    memset(&d, 0, sizeof d);
    memset(&dense, 0, sizeof dense);
    dense.units = 1;
    d.mode = MIRT_FLIP_VERTICAL;
    d.factor[1] = 0.25f;
    d.height_factor[0] = -0.2f;
    d.height_factor[1] = 0.1f;
    d.width_factor[1] = -0.4f;
    d.fill_mode = MIRT_FILL_CONSTANT;
    d.fill_value = 12.5f;
    d.interpolation = MIRT_NEAREST;
    d.value_range[0] = -3;
    d.value_range[1] = 300;
    d.x_factor[1] = 0.3f;
    d.y_factor[0] = 0.2f;
    d.scale[1] = 0.6f;
    d.addition_factor[0] = 0.1f;
    d.threshold_factor[0] = 0.2f;
    d.threshold_factor[1] = 0.8f;
    d.bins = 77;
    d.kernel_size = 5;
    d.sigma[0] = 0.5f;
    d.sigma[1] = 3;
    d.brightness_factor[1] = d.contrast_factor[0] = d.saturation_factor[0] = d.hue_factor[0] = 0.2f;
    d.num_ops = 5;
    d.num_chains = 2;
    d.chain_depth = 4;
    d.alpha = 0.5f;
    d.fewer_ops = true;
    d.clip_limit = 2.5f;
    d.tile_grid_size[0] = 3;
    d.tile_grid_size[1] = 1;
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(SIDE_H, SIDE_W, 3));
    for (int kind = 0; kind < MIRT__AUGMENTATION_COUNT; kind++) {
        d.kind = (mirt_augmentation_kind)kind;
        d.height = 14 - kind;
        d.width = 6;
        d.crop_to_aspect_ratio = kind == MIRT_RESIZING;
        d.factor[0] = kind == MIRT_RANDOM_POSTERIZATION ? 2.0f : 0;
        d.factor[1] = kind == MIRT_RANDOM_POSTERIZATION ? 6.0f : 0.25f;
        if (kind == MIRT_RANDOM_PERSPECTIVE || kind == MIRT_RANDOM_ELASTIC_TRANSFORM) d.factor[1] = 1;
        x = mirt_augmentation_layer(x, &d);
    }
    mirt_tensor *out[2] = {x, mirt_dense(mirt_flatten(x), &dense)};
    mirt_model_outputs(m, out, 2);
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = mirt_sgd(0, 0, false);
    c.losses[1] = MIRT_MEAN_SQUARED_ERROR;
    c.loss_weights[1] = 1;
    mirt_status status = mirt_compile(m, &c);
    if (status == MIRT_OK) status = mirt_save(m, path, (mirt_save_flags)0);
    mirt_model *loaded = status == MIRT_OK ? mirt_load(s, path) : NULL;
    bool same = loaded != NULL;
    for (int k = 0; k < 2 && same; k++) {
        mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_as(MIRT_FLOAT32), ROWS));
        mirt_global_batch batch;
        size_t written = 0;
        mirt_model *of = k ? loaded : m;
        mirt_function *f = mirt_function_create(of, data, record_augmented, of);
        same = f && mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK &&
               mirt_gather_result(f, "y", y[k], CAPACITY, &written) == MIRT_OK && written > 0;
        mirt_dataset_destroy(data);
    }
    ok(same && memcmp(y[0], y[1], sizeof y[0]) == 0, "all layers are loaded as they were saved (%s)",
       mirt_last_error());
    mirt_strategy_destroy(s);
    unlink(path);
}

/* >>stages */

/* The images of an epoch by the index of the sample. */
static int64_t stage_epoch(mirt_dataset *dataset, uint64_t seed, int64_t epoch, unsigned char *out, size_t bytes) {
    mirt__batch batch;
    int64_t count = 0;
    if (!dataset || mirt__dataset_begin(dataset, seed, epoch) != MIRT_OK) return -1;
    while (mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows) {
        for (int64_t r = 0; r < batch.rows; r++, count++)
            memcpy(out + (size_t)batch.index[r] * bytes, (const char *)batch.field[0] + (size_t)r * bytes, bytes);
    }
    return count;
}

static void test_stages(void) {
    enum { BYTES = 7 * 8 * 3 };
    static unsigned char first[ROWS][BYTES], other[ROWS][BYTES];
    mirt_augmentation list[16];
    const char *const stage = "flip,rotation:0.1,zoom:0.3,crop:7:8,contrast:0.2,hue:0.2,erasing,"
                              "sharpness:1,color_jitter:0.1:0.2,rand_augment,perspective,aug_mix,"
                              "elastic_transform";
    const int count = mirt_parse_augmentation(stage, list, 16);
    const mirt_shape shape = mirt_make_shape(SIDE_H, SIDE_W, 3, 0, 0, 0);
    mirt__transform t[160];
    mirt_dataset *d = mirt_augment(rows_as(MIRT_UINT8), list, count);
    ok(stage_epoch(d, 3, 0, &first[0][0], BYTES) == ROWS && mirt__dataset_spec(d)->field[0].dtype == MIRT_UINT8 &&
           mirt__dataset_spec(d)->field[0].bytes == BYTES,
       "images of a data set are augmented, and stay bytes (%s)", mirt_last_error());
    bool again = stage_epoch(d, 3, 0, &other[0][0], BYTES) == ROWS && memcmp(first, other, sizeof first) == 0;
    bool next = stage_epoch(d, 3, 1, &other[0][0], BYTES) == ROWS, seeded = true;
    for (int i = 0; i < ROWS; i++) next = next && memcmp(first[i], other[i], BYTES) != 0;
    seeded = stage_epoch(d, 4, 0, &other[0][0], BYTES) == ROWS && memcmp(first, other, sizeof first) != 0;
    ok(again && next && seeded, "the same in the same epoch, others in the next one, and with another seed");
    const int transforms = transforms_by(list, count, &shape, t, key_in_stage);
    bool same = count == 13 && transforms == 10 + 2 + 22 + 103;
    for (int i = 0; i < ROWS; i++) {
        mirt__augment a;
        unsigned char y[BYTES];
        memset(&a, 0, sizeof a);
        a.transform = t;
        a.count = transforms;
        a.seed = 3;
        a.row = (uint64_t)i;
        a.x_dtype = a.y_dtype = MIRT_UINT8;
        a.x = row_bytes[i];
        a.y = y;
        a.room = mirt__aligned_alloc(mirt__augment_room(t, transforms, MIRT_UINT8, MIRT_UINT8));
        mirt__augment_image(&a);
        mirt__aligned_free(a.room);
        same = same && memcmp(y, first[i], BYTES) == 0;
    }
    ok(same, "... keyed by seed, epoch and the sample's index");
    mirt_dataset_destroy(d);
    for (int workers = 1; workers <= 5; workers += 2) {
        d = mirt_augment(mirt_shuffle(rows_as(MIRT_UINT8), 100), list, count);
        d = mirt_batch(d, 4);
        bool asked = mirt_dataset_workers(d, workers) == MIRT_OK;
        ok(asked && stage_epoch(d, 3, 0, &other[0][0], BYTES) == ROWS && memcmp(first, other, sizeof first) == 0,
           "the same images after a shuffle, in batches, by %d worker%s", workers, workers > 1 ? "s" : "");
        mirt_dataset_destroy(d);
    }
    d = mirt_augment(mirt_repeat(rows_as(MIRT_UINT8), 1), list, count);
    ok(stage_epoch(d, 3, 0, &other[0][0], BYTES) == ROWS && memcmp(first, other, sizeof first) == 0,
       "... and after a stream");
    mirt_dataset_destroy(d);
    /* One image often: another augmentation each time, whichever stands first. */
    for (int k = 0; k < 2; k++) {
        static unsigned char seen[12][BYTES];
        mirt__batch batch;
        bool distinct = true;
        d = mirt_take(rows_as(MIRT_UINT8), 1);
        d = k ? mirt_repeat(mirt_augment(d, list, count), 12) : mirt_augment(mirt_repeat(d, 12), list, count);
        distinct = d && mirt__dataset_begin(d, 0, 0) == MIRT_OK;
        for (int i = 0; i < 12 && distinct; i++) {
            distinct = mirt__dataset_next(d, &batch) == MIRT_OK && batch.rows == 1;
            if (distinct) memcpy(seen[i], batch.field[0], BYTES);
            for (int j = 0; j < i; j++) distinct = distinct && memcmp(seen[i], seen[j], BYTES) != 0;
        }
        ok(distinct, "an image repeated %s augmentation is another one each time", k ? "after" : "before");
        mirt_dataset_destroy(d);
    }
    /* A second stage of the same list draws other numbers: rotated twice by the same angle is rotated by twice the
       angle. */
    mirt_augmentation flip;
    memset(&flip, 0, sizeof flip);
    d = mirt_augment(mirt_augment(rows_as(MIRT_UINT8), &flip, 1), &flip, 1);
    static unsigned char twice[ROWS][PIXELS];
    ok(stage_epoch(d, 3, 0, &twice[0][0], PIXELS) == ROWS && memcmp(twice, row_bytes, sizeof twice) != 0,
       "two stages of one list draw different numbers");
    mirt_dataset_destroy(d);
}

static int row_of(void *const *out, int64_t index, void *user) {
    (void)user;
    memcpy(out[0], row_bytes[index], sizeof row_bytes[index]);
    return 0;
}

/* A sample is augmented by the pass it comes from, although the thread that prefetches is in a later one. */
static void test_passes_ahead(void) {
    enum { PASSES = 4, SHOWN = PASSES * ROWS };
    static unsigned char seen[5][SHOWN][PIXELS];
    const struct timespec pause = {0, 10000000};
    mirt_augmentation list[2];
    memset(list, 0, sizeof list);
    list[1].kind = MIRT_RANDOM_TRANSLATION;
    list[1].height_factor[0] = list[1].width_factor[0] = 0.4f;
    bool made = true;
    for (int k = 0; k < 5; k++) {
        mirt_generator_desc rows;
        memset(&rows, 0, sizeof rows);
        rows.fn = row_of;
        rows.num_x = 1;
        rows.x[0] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(SIDE_H, SIDE_W, 3));
        rows.samples = ROWS;
        mirt_dataset *d = mirt_repeat(mirt_dataset_from_generator(&rows), 2);
        if (k == 1) d = mirt_prefetch(d, 2 * ROWS);
        d = mirt_repeat(d, PASSES / 2);
        if (k == 2 || k == 4) d = mirt_prefetch(d, 2 * ROWS);
        if (k >= 3) d = mirt_shuffle(d, SHOWN);
        d = mirt_augment(d, list, 2);
        mirt__batch batch;
        made = made && d && mirt__dataset_begin(d, 5, 1) == MIRT_OK;
        for (int i = 0; i < SHOWN && made; i++) {
            if (k && i % ROWS == 0) nanosleep(&pause, NULL); /* the other thread gets ahead */
            made = mirt__dataset_next(d, &batch) == MIRT_OK && batch.rows == 1;
            if (made) memcpy(seen[k][i], batch.field[0], PIXELS);
        }
        mirt_dataset_destroy(d);
    }
    bool distinct = made;
    for (int i = 0; i < SHOWN; i++) {
        for (int j = 0; j < i; j++) distinct = distinct && memcmp(seen[0][i], seen[0][j], PIXELS) != 0;
    }
    ok(distinct, "every pass is augmented in its own way");
    ok(made && memcmp(seen[0], seen[2], sizeof seen[0]) == 0, "... and in the same ones where samples are prefetched");
    ok(made && memcmp(seen[0], seen[1], sizeof seen[0]) == 0, "... and where prefetched samples are repeated");
    int found = 0;
    for (int i = 0; i < SHOWN; i++) {
        for (int j = 0; j < SHOWN; j++) found += memcmp(seen[0][i], seen[3][j], PIXELS) == 0;
    }
    ok(made && found == SHOWN, "a buffer shuffles %d of the %d images that there are without it", found, SHOWN);
    ok(made && memcmp(seen[3], seen[4], sizeof seen[3]) == 0, "... and the same ones where samples are prefetched");
}

/* >>misuse, statistics */

static void test_misuse(void) {
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_augmentation d;
    mirt__transform t;
    memset(&d, 0, sizeof d);
    for (int i = 0; i < 17; i++) {
        mirt_augmentation bad = d;
        bad.kind = i < 2    ? MIRT_RANDOM_ROTATION
                   : i < 4  ? MIRT_RANDOM_ZOOM
                   : i < 6  ? MIRT_RANDOM_CONTRAST
                   : i < 8  ? MIRT_RESIZING
                   : i < 10 ? MIRT_RANDOM_BRIGHTNESS
                   : i < 12 ? MIRT_RANDOM_FLIP
                   : i < 14 ? MIRT_RANDOM_SHEAR
                   : i < 15 ? MIRT_RANDOM_HUE
                            : MIRT_RANDOM_ERASING;
        bad.factor[0] = i == 0 ? 1.5f : i == 1 ? NAN : i == 4 ? -0.1f : i == 5 ? 1.01f : 0.1f;
        bad.height_factor[0] = i == 2 ? -1.0f : i == 3 ? 1.0f : 0;
        bad.height_factor[1] = 0;
        bad.height = i == 6 ? -4 : i == 7 ? 9 : 0;
        bad.interpolation = i == 7 ? MIRT_BICUBIC : MIRT_BILINEAR;
        bad.value_range[0] = i == 8 ? 5.0f : i == 9 ? INFINITY : 0;
        bad.value_range[1] = i == 8 ? 5.0f : 1.0f;
        if (i == 10) bad.mode = (mirt_flip_mode)3;
        if (i == 11) bad.fill_value = NAN;
        if (i == 12) bad.x_factor[0] = -0.1f;
        if (i == 13) bad.y_factor[1] = NAN;
        if (i == 14) bad.factor[1] = 1.5f;
        if (i == 15) bad.scale[0] = 2;
        if (i == 16) bad.fill_mode = MIRT_FILL_WRAP;
        ok(!mirt__transform_of(&bad, 8, 8, 3, &t) && mirt_last_status() == MIRT_E_INVALID, "refused: %s",
           mirt_last_error());
    }
    mirt_model *m = mirt_model_create(s, "wrong");
    ok(!mirt_random_flip(mirt_input(m, MIRT_SHAPE(4, 5)), NULL) && strstr(mirt_last_error(), "random_flip"), "%s",
       mirt_last_error());
    mirt_model_destroy(m);
    m = mirt_model_create(s, "wrong");
    ok(!mirt_random_crop(mirt_input(m, MIRT_SHAPE(4, 5, 3)), NULL), "%s", mirt_last_error());
    mirt_model_destroy(m);
    m = mirt_model_create(s, "wrong");
    ok(!mirt_augmentation_layer(mirt_input(m, MIRT_SHAPE(4, 5, 3)), NULL), "%s", mirt_last_error());
    mirt_model_destroy(m);
    ok(!mirt_augment(mirt_batch(rows_as(MIRT_UINT8), 2), &d, 1), "%s", mirt_last_error());
    ok(!mirt_augment(rows_as(MIRT_UINT8), &d, 0), "%s", mirt_last_error());
    ok(!mirt_augment(mirt_arrays(mirt_make_array(row_floats, MIRT_FLOAT32, MIRT_SHAPE(4, 5)),
                                 mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(1))),
                     &d, 1),
       "%s", mirt_last_error());
    ok(!mirt_augment(NULL, &d, 1), "no data set, no stage");
    /* A gradient that would have to go through. */
    mirt_compile_desc c;
    mirt_dense_desc dense;
    mirt_conv2d_desc conv;
    memset(&c, 0, sizeof c);
    memset(&dense, 0, sizeof dense);
    memset(&conv, 0, sizeof conv);
    dense.units = 1;
    conv.filters = 3;
    conv.kernel[0] = 3;
    c.optimizer = mirt_sgd(0.1f, 0, false);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    m = mirt_model_create(s, "after");
    mirt_model_output(m, mirt_dense(mirt_flatten(mirt_random_flip(
                                        mirt_conv2d(mirt_input(m, MIRT_SHAPE(SIDE_H, SIDE_W, 3)), &conv), NULL)),
                                    &dense));
    static float targets[ROWS];
    mirt_dataset *data =
        mirt_batch(mirt_arrays(mirt_make_array(row_floats, MIRT_FLOAT32, MIRT_SHAPE(ROWS, SIDE_H, SIDE_W, 3)),
                               mirt_make_array(targets, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 1))),
                   4);
    mirt_status status = mirt_compile(m, &c);
    if (status == MIRT_OK && !mirt_fit(m, data, NULL)) status = mirt_last_status();
    ok(status == MIRT_E_INVALID && strstr(mirt_last_error(), "augment"), "%s", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

static void test_adapt(void) {
    mirt_normalization_desc d;
    double mean[3] = {0}, variance[3] = {0};
    const double n = ROWS * SIDE_H * SIDE_W;
    memset(&d, 0, sizeof d);
    for (int i = 0; i < ROWS * PIXELS; i++) mean[i % 3] += (double)row_floats[i / PIXELS][i % PIXELS] / n;
    for (int i = 0; i < ROWS * PIXELS; i++)
        variance[i % 3] += ((double)row_floats[i / PIXELS][i % PIXELS] - mean[i % 3]) *
                           ((double)row_floats[i / PIXELS][i % PIXELS] - mean[i % 3]) / n;
    for (int k = 0; k < 3; k++) {
        mirt_dataset *data =
            k == 2 ? mirt_batch(mirt_shuffle(rows_as(MIRT_UINT8), 100), 4) : rows_as(k ? MIRT_UINT8 : MIRT_FLOAT32);
        double worst = mirt_adapt(&d, data) == MIRT_OK ? 0 : 1;
        for (int j = 0; j < 3; j++)
            worst =
                fmax(worst, fmax(fabs((double)d.mean[j] / mean[j] - 1), fabs((double)d.variance[j] / variance[j] - 1)));
        ok(worst < 1e-6, "mean and variance by channel, %s: %.1e off",
           k == 2 ? "of shuffled batches"
           : k    ? "of bytes"
                  : "of float32",
           worst);
        mirt_dataset_destroy(data);
    }
    mirt_dataset *data = mirt_repeat(rows_as(MIRT_UINT8), 0);
    ok(mirt_adapt(&d, data) == MIRT_E_INVALID, "%s", mirt_last_error());
    mirt_dataset_destroy(data);
    data = mirt_arrays(mirt_make_array(row_floats, MIRT_FLOAT32, MIRT_SHAPE(4, 5)),
                       mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(1)));
    ok(mirt_adapt(&d, data) == MIRT_E_SHAPE, "%s", mirt_last_error());
    mirt_dataset_destroy(data);
}

/* >>text */

static void test_text(void) {
    mirt_augmentation l[8];
    ok(mirt_parse_augmentation("flip,rotation:0.1,zoom:0.1", l, 8) == 3 && l[0].kind == MIRT_RANDOM_FLIP &&
           l[0].mode == MIRT_FLIP_HORIZONTAL_AND_VERTICAL && l[1].kind == MIRT_RANDOM_ROTATION &&
           l[1].factor[0] == 0.1f && l[1].factor[1] == 0 && l[2].kind == MIRT_RANDOM_ZOOM &&
           l[2].height_factor[0] == 0.1f && l[2].width_factor[0] == 0,
       "a list is read");
    ok(mirt_parse_augmentation("flip:horizontal,zoom:0.1:0.2:wrap,translation:0.25,crop:200:180,center_crop:9,resizing:"
                               "224:nearest,contrast:0.2,brightness:0.5",
                               l, 8) == 8 &&
           l[0].mode == MIRT_FLIP_HORIZONTAL && l[1].height_factor[0] == 0.1f && l[1].width_factor[0] == 0.2f &&
           l[1].fill_mode == MIRT_FILL_WRAP && l[2].height_factor[0] == 0.25f && l[2].width_factor[0] == 0.25f &&
           l[3].height == 200 && l[3].width == 180 && l[4].kind == MIRT_CENTER_CROP && l[4].height == 9 &&
           l[4].width == 0 && l[5].interpolation == MIRT_NEAREST && l[5].height == 224 && l[6].factor[0] == 0.2f &&
           l[7].kind == MIRT_RANDOM_BRIGHTNESS,
       "... with all that may stand there");
    ok(mirt_parse_augmentation("shear:0.2:0.1:wrap,hue:0.1,saturation:0.4:0.6,erasing,erasing:0.5:constant", l, 8) ==
               5 &&
           l[0].kind == MIRT_RANDOM_SHEAR && l[0].x_factor[0] == 0.2f && l[0].y_factor[0] == 0.1f &&
           l[0].fill_mode == MIRT_FILL_WRAP && l[1].kind == MIRT_RANDOM_HUE && l[1].factor[0] == 0.1f &&
           l[2].factor[0] == 0.4f && l[2].factor[1] == 0.6f && l[3].kind == MIRT_RANDOM_ERASING &&
           l[3].fill_mode == MIRT_FILL_REFLECT && l[4].factor[0] == 0.5f && l[4].fill_mode == MIRT_FILL_CONSTANT,
       "... shear, colors, erasing");
    ok(mirt_parse_augmentation("grayscale,invert:0.5,solarization:0.2:0.3,posterization:3:5,color_degeneration:0.25,"
                               "auto_contrast,equalization,grayscale:0.125",
                               l, 8) == 8 &&
           l[0].kind == MIRT_RANDOM_GRAYSCALE && l[1].kind == MIRT_RANDOM_INVERT && l[1].factor[0] == 0.5f &&
           l[2].kind == MIRT_SOLARIZATION && l[2].addition_factor[0] == 0.2f && l[2].threshold_factor[0] == 0.3f &&
           l[3].kind == MIRT_RANDOM_POSTERIZATION && l[3].factor[0] == 3 && l[3].factor[1] == 5 &&
           l[4].kind == MIRT_RANDOM_COLOR_DEGENERATION && l[4].factor[0] == 0.25f && l[5].kind == MIRT_AUTO_CONTRAST &&
           l[6].kind == MIRT_EQUALIZATION && l[7].factor[0] == 0.125f,
       "... colors and levels");
    ok(mirt_parse_augmentation("sharpness:0.5:1,gaussian_blur,gaussian_blur:0.5,color_jitter:0.1:0.2:0.3:0.4,"
                               "color_jitter:0.5,rand_augment,rand_augment:0.25",
                               l, 8) == 7 &&
           l[0].kind == MIRT_RANDOM_SHARPNESS && l[0].factor[0] == 0.5f && l[0].factor[1] == 1 &&
           l[1].kind == MIRT_RANDOM_GAUSSIAN_BLUR && l[2].factor[0] == 0.5f && l[3].kind == MIRT_RANDOM_COLOR_JITTER &&
           l[3].brightness_factor[0] == 0.1f && l[3].contrast_factor[0] == 0.2f && l[3].saturation_factor[0] == 0.3f &&
           l[3].hue_factor[0] == 0.4f && l[4].hue_factor[0] == 0 && l[5].kind == MIRT_RAND_AUGMENT &&
           l[6].factor[0] == 0.25f,
       "... filters, jitter, RandAugment");
    ok(mirt_parse_augmentation("perspective,perspective:0.25", l, 8) == 2 && l[0].kind == MIRT_RANDOM_PERSPECTIVE &&
           l[0].scale[0] == 0 && l[1].scale[0] == 0.25f,
       "... perspective");
    ok(mirt_parse_augmentation("aug_mix,aug_mix:0.25:0.5", l, 8) == 2 && l[0].kind == MIRT_AUG_MIX &&
           l[0].factor[0] == 0 && l[1].factor[0] == 0.25f && l[1].factor[1] == 0.5f,
       "... AugMix");
    ok(mirt_parse_augmentation("clahe,clahe:2.5", l, 8) == 2 && l[0].kind == MIRT_CLAHE && l[0].clip_limit == 0 &&
           l[1].clip_limit == 2.5f,
       "... CLAHE");
    ok(mirt_parse_augmentation("elastic_transform,elastic_transform:0.25:0.5:wrap", l, 8) == 2 &&
           l[0].kind == MIRT_RANDOM_ELASTIC_TRANSFORM && l[0].scale[0] == 0 && l[0].fill_mode == MIRT_FILL_REFLECT &&
           l[1].scale[0] == 0.25f && l[1].scale[1] == 0.5f && l[1].fill_mode == MIRT_FILL_WRAP,
       "... elastic transform");
    static const char *const bad[] = {"",
                                      "flip,",
                                      ",flip",
                                      "flop",
                                      "rotation",
                                      "rotation:",
                                      "rotation:x",
                                      "rotation:2",
                                      "rotation:0.1:0.2",
                                      "zoom:-1",
                                      "zoom:0.1:0.2:0.3",
                                      "crop:0",
                                      "crop:1.5",
                                      "crop:9999999",
                                      "flip:0.1",
                                      "flip:sideways",
                                      "contrast:-0.5",
                                      "contrast:0.1:wrap",
                                      "rotation:nan",
                                      "rotation:0.1:horizontal",
                                      "shear",
                                      "shear:-0.1",
                                      "shear:0.1:0.2:0.3",
                                      "hue:1.5",
                                      "saturation",
                                      "saturation:0.2:2",
                                      "erasing:wrap",
                                      "erasing:2",
                                      "grayscale:2",
                                      "grayscale:0.1:0.2",
                                      "invert:-1",
                                      "solarization",
                                      "solarization:2",
                                      "posterization",
                                      "posterization:9",
                                      "posterization:2.5",
                                      "color_degeneration",
                                      "auto_contrast:1",
                                      "equalization:1",
                                      "sharpness",
                                      "sharpness:2",
                                      "gaussian_blur:1.5",
                                      "color_jitter",
                                      "color_jitter:0.1:2",
                                      "color_jitter:0.1:0.1:0.1:0.1:0.1",
                                      "rand_augment:1.5",
                                      "perspective:2",
                                      "perspective:0.1:0.2",
                                      "perspective:wrap",
                                      "aug_mix:2",
                                      "clahe:1:2",
                                      "clahe:inf",
                                      "elastic_transform:2",
                                      "elastic_transform:0.1:0.2:0.3",
                                      "elastic_transform:mirror",
                                      "flip,flip,flip,flip,flip,flip,flip,flip,flip",
                                      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (int i = 0; i < MIRT__COUNT(bad); i++)
        ok(mirt_parse_augmentation(bad[i], l, 8) == -1 && mirt_last_status() == MIRT_E_INVALID, "\"%s\": %s", bad[i],
           mirt_last_error());
    ok(mirt_parse_augmentation("posterization", l, 8) == -1 &&
           strstr(mirt_last_error(), "such as posterization:4") &&
           mirt_parse_augmentation("posterization:x", l, 8) == -1 &&
           strstr(mirt_last_error(), "write posterization:4") &&
           mirt_parse_augmentation("clahe:x", l, 8) == -1 && strstr(mirt_last_error(), "write clahe:4"),
       "a message names a value that would do: %s", mirt_last_error());
}

int main(void) {
    snprintf(path, sizeof path, "%s/mirt_augment_%ld", tap_tmpdir(), (long)getpid());
    draw_rows();
    test_layers();
    test_inference();
    test_files();
    test_stages();
    test_passes_ahead();
    test_misuse();
    test_adapt();
    test_text();
    return done_testing();
}
