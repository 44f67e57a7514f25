/* Training on simulated GPUs. The weights' bits do not depend on the number of devices, nor on the order in which
   streams and threads are served, and the numbers are those of the CPUs. Four devices (MIRT_SIM_DEVICES). */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../../mirrortrain.h"
#include "four_devices.h"
#include "../tap.h"

#include <unistd.h>

/* One way to train. */
typedef struct run {
    const char *devices;
    int replicas;
    bool repeat;
    mirt_collective collective;
    mirt_strategy_kind kind;
} run;

typedef struct network {
    const char *name;
    mirt_model *(*build)(mirt_strategy *s);
    mirt_array x, y;
    int batch, steps;
    double tolerance; /* of the CPU's largest weight */
} network;

static mirt_strategy *strategy_for(const run *r) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = r->devices;
    d.replicas = r->replicas;
    d.repeat_devices = r->repeat;
    d.collective = r->collective;
    d.kind = r->kind;
    d.seed = 11;
    d.silent = true;
    return mirt_strategy_create(&d);
}

/* The weights after some steps, and of each device whether they are the same; NULL with a line about why. */
static float *trained(const network *n, const run *r, size_t *count, double *loss) {
    mirt_strategy *s = strategy_for(r);
    mirt_model *m = s ? n->build(s) : NULL;
    mirt_fit_desc fit;
    float *weights = NULL;
    memset(&fit, 0, sizeof fit);
    fit.max_steps = n->steps;
    fit.epochs = 1000;
    fit.no_progress = true;
    mirt_dataset *data = m ? mirt_batch(mirt_shuffle(mirt_arrays(n->x, n->y), 64), n->batch) : NULL;
    const mirt_history *history = data ? mirt_fit(m, data, &fit) : NULL;
    if (history) {
        *loss = mirt_history_last(history, "loss");
        weights = all_weights(m, 0, count);
        ok(copies_agree(m) && mirt_check_drift(m) == MIRT_OK, "%s on %s: all devices have the same weights", n->name,
           r->devices);
    } else {
        ok(false, "%s on %s: %s", n->name, r->devices, mirt_last_error());
    }
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    return weights;
}

static double furthest(const float *have, const float *want, size_t count) {
    double worst = 0, scale = 0;
    for (size_t i = 0; i < count; i++) {
        const double d = fabs((double)have[i] - (double)want[i]);
        worst = d > worst || !(d <= worst) ? d : worst;
        scale = fabs((double)want[i]) > scale ? fabs((double)want[i]) : scale;
    }
    return worst / scale;
}

/* A GPU's weights beside the CPU's. */
static void check_near(const network *n, int replicas) {
    const run cpu = {"cpu", replicas, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED},
              one = {"gpu:0", replicas, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED};
    size_t count = 0, own = 0;
    double loss = 0, cpu_loss = 0;
    float *want = trained(n, &cpu, &count, &cpu_loss), *have = trained(n, &one, &own, &loss);
    if (want && have) {
        const double off = furthest(have, want, count);
        ok(own == count && off <= n->tolerance,
           "%s: %d steps on a GPU give the CPU's weights but for %.1e of the largest", n->name, n->steps, off);
        ok(fabs(loss - cpu_loss) <= 1e-4 * fabs(cpu_loss), "%s: the loss is %.7g, the CPU's %.7g", n->name, loss,
           cpu_loss);
    }
    free(want);
    free(have);
}

/* The same bits as of four replicas on one GPU, for each of the runs that promise them. */
static void check_bits(const network *n, const run *runs, int num_runs) {
    const run one = {"gpu:0", 4, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED};
    size_t count = 0, own = 0;
    double loss;
    float *first = trained(n, &one, &count, &loss);
    for (int i = 0; i < num_runs && first; i++) {
        const run *r = &runs[i];
        float *have = trained(n, r, &own, &loss);
        if (!have) continue;
        if (r->collective == MIRT_COLLECTIVE_AUTO)
            ok(own == count && memcmp(have, first, count * sizeof *have) == 0, "%s on %s%s%s: the bits of one GPU",
               n->name, r->devices, r->repeat ? ", repeated" : "",
               r->kind == MIRT_CENTRAL_STORAGE ? ", central storage" : "");
        else
            ok(furthest(have, first, count) < 1e-5, "%s on %s by collective %d: near one GPU's, off by %.1e", n->name,
               r->devices, (int)r->collective, furthest(have, first, count));
        free(have);
    }
    free(first);
}

static const run all_runs[] = {{"gpu:0,gpu:1", 4, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED},
                               {"gpu:0,gpu:1,gpu:2", 4, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED},
                               {"gpu", 4, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED},
                               {"gpu:0,gpu:0,gpu:0", 4, true, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED},
                               {"gpu:3,gpu:1", 4, false, MIRT_COLLECTIVE_AUTO, MIRT_CENTRAL_STORAGE},
                               {"gpu:1,gpu:2", 4, false, MIRT_NCCL, MIRT_MIRRORED},
                               {"gpu:0,gpu:1,gpu:2", 4, false, MIRT_RING, MIRT_MIRRORED}};

/* >>networks */

static mirt_model *build_images(mirt_strategy *s) { return image_model(s, mirt_adam(2e-3f), 0.3f); }

/* Clipping by norms waits for the machine in the middle of a step; averages begin with the first one. */
static mirt_model *build_clipped(mirt_strategy *s) {
    mirt_optimizer o = mirt_adamw(2e-3f);
    o.global_clipnorm = 0.5f;
    o.use_ema = true;
    o.ema_overwrite_frequency = 3;
    return image_model(s, o, 0);
}

/* Norms of whole weights, in the middle of an update. */
static mirt_model *build_lamb(mirt_strategy *s) {
    mirt_optimizer o = mirt_lamb(0.02f);
    o.weight_decay = 0.1f;
    o.use_ema = true;
    return image_model(s, o, 0);
}

/* Products of whole weights. */
static mirt_model *build_muon(mirt_strategy *s) { return image_model(s, mirt_muon(0.02f), 0); }

/* Means of rows and columns of whole weights. */
static mirt_model *build_adafactor(mirt_strategy *s) {
    mirt_optimizer o = mirt_adafactor(0.02f);
    o.clipvalue = 0.25f;
    return image_model(s, o, 0);
}

/* Some that read whole weights, and some that do not; */
static mirt_model *several_with(mirt_strategy *s, mirt_optimizer head) {
    mirt_model *m = image_net(s, 0);
    mirt_compile_desc c = image_compile(mirt_adamw(2e-3f));
    c.optimizers[0].weights = "conv2d*";
    c.optimizers[0].optimizer = mirt_sgd(0.05f, 0.9f, true);
    c.optimizers[0].optimizer.decay = mirt_exponential_decay(0.05f, 4, 0.5f, false);
    c.optimizers[1].weights = "dense_1";
    c.optimizers[1].optimizer = head;
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}
static mirt_model *build_mixed(mirt_strategy *s) { return several_with(s, mirt_lamb(0.02f)); }
/* and several that do not. */
static mirt_model *build_several(mirt_strategy *s) { return several_with(s, mirt_lion(2e-3f)); }

static mirt_tensor *normalized(mirt_tensor *x, int filters, int stride, bool depthwise, bool synchronized) {
    mirt_conv2d_desc conv;
    mirt_depthwise_conv2d_desc depth;
    mirt_batch_norm_desc norm;
    memset(&conv, 0, sizeof conv);
    memset(&depth, 0, sizeof depth);
    memset(&norm, 0, sizeof norm);
    conv.filters = filters;
    conv.kernel[0] = conv.kernel[1] = depth.kernel[0] = depth.kernel[1] = 3;
    conv.strides[0] = conv.strides[1] = depth.strides[0] = depth.strides[1] = stride;
    conv.padding = depth.padding = MIRT_SAME;
    conv.no_bias = depth.no_bias = true;
    norm.synchronized = synchronized;
    x = depthwise ? mirt_depthwise_conv2d(x, &depth) : mirt_conv2d(x, &conv);
    return mirt_activation(mirt_batch_norm(x, &norm), depthwise ? MIRT_RELU6 : MIRT_RELU);
}

static mirt_model *build_norm_of(mirt_strategy *s, bool synchronized) {
    mirt_model *m = mirt_model_create(s, "norms");
    mirt_compile_desc c = image_compile(mirt_sgd(0.05f, 0.9f, false));
    mirt_dense_desc logits;
    memset(&logits, 0, sizeof logits);
    logits.units = IMAGE_CLASSES;
    mirt_tensor *x = mirt_rescale(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1.0f / 255, 0);
    x = normalized(x, 8, 2, false, synchronized);
    mirt_tensor *branch = normalized(x, 8, 1, true, false);
    mirt_tensor *both[2] = {x, branch};
    x = mirt_global_average_pool2d(mirt_add_layer(both, 2));
    mirt_model_output(m, mirt_dense(x, &logits));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}
static mirt_model *build_norms(mirt_strategy *s) { return build_norm_of(s, false); }
static mirt_model *build_synchronized(mirt_strategy *s) { return build_norm_of(s, true); }

static mirt_model *build_augmented(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "augmented");
    mirt_compile_desc c = image_compile(mirt_sgd(0.05f, 0, false));
    mirt_augmentation list[2];
    mirt_dense_desc logits;
    memset(&logits, 0, sizeof logits);
    logits.units = IMAGE_CLASSES;
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1));
    const int count = mirt_parse_augmentation("flip,rotation:0.1", list, 2);
    for (int i = 0; i < count; i++) x = mirt_augmentation_layer(x, &list[i]);
    x = mirt_rescale(x, 1.0f / 255, 0);
    mirt_model_output(m, mirt_dense(mirt_flatten(x), &logits));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static mirt_model *compiled(mirt_model *m, mirt_optimizer optimizer) {
    const mirt_compile_desc c = image_compile(optimizer);
    return m && mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* A class for each pixel. How many labels do not count differs between batches. */
static mirt_model *build_pixels_of(mirt_strategy *s, int classes, mirt_loss loss) {
    mirt_model *m = mirt_model_create(s, "pixels");
    mirt_compile_desc c = image_compile(mirt_sgd(0.1f, 0.9f, false));
    mirt_conv2d_desc conv;
    memset(&conv, 0, sizeof conv);
    conv.filters = classes;
    conv.kernel[0] = 3;
    conv.padding = MIRT_SAME;
    c.loss = loss;
    if (loss == MIRT_DICE) conv.activation = MIRT_SIGMOID;
    else c.loss_options[0].label_smoothing = 0.125f;
    c.loss_options[0].has_ignore_class = loss != MIRT_DICE;
    c.loss_options[0].ignore_class = loss != MIRT_DICE ? 255 : 0;
    mirt_tensor *x = mirt_rescale(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1.0f / 255, 0);
    mirt_model_output(m, mirt_conv2d(x, &conv));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}
static mirt_model *build_pixels(mirt_strategy *s) {
    return build_pixels_of(s, 4, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY);
}
static mirt_model *build_dice(mirt_strategy *s) { return build_pixels_of(s, 1, MIRT_DICE); }

static mirt_model *build_mnist(mirt_strategy *s) {
    return compiled(mirt_application(s, "mnist", NULL), mirt_adam(1e-3f));
}

static mirt_model *build_mobilenet(mirt_strategy *s) {
    mirt_application_desc d;
    memset(&d, 0, sizeof d);
    d.alpha = 0.35f;
    d.size = 32;
    d.classes = 10;
    mirt_model *m = mirt_mobilenet_v2(s, &d);
    mirt_compile_desc c = image_compile(mirt_sgd(1, 0, false));
    c.from_logits = false;
    return m && mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static uint8_t digit_pixels[40][28 * 28], photo_pixels[12][32 * 32 * 3], some_labels[40];
static uint8_t pixel_classes[40][IMAGE], pixel_masks[40][IMAGE];

static void draw_more(void) {
    mirt__random random = mirt__random_stream(5, 6);
    for (int i = 0; i < 40; i++) some_labels[i] = (uint8_t)(i * 7 % 10);
    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < IMAGE; k++) {
            const int pixel = image_pixels[i][k];
            pixel_classes[i][k] = (uint8_t)(k % (i + 2) == 0 ? 255 : pixel / 64);
            pixel_masks[i][k] = pixel > 127;
        }
    }
    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < 28 * 28; k++)
            digit_pixels[i][k] = (uint8_t)((k / 28 * (some_labels[i] + 1) + k % 28) % 11 < 4
                                               ? 200 + mirt__random_below(&random, 56)
                                               : mirt__random_below(&random, 60));
    }
    for (int i = 0; i < 12; i++) {
        for (int k = 0; k < 32 * 32 * 3; k++) photo_pixels[i][k] = (uint8_t)mirt__random_below(&random, 256);
    }
}

/* >>what else a fit does */

static void check_results(void) {
    const run gpus = {"gpu:0,gpu:1", 4, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED},
              cpu = {"cpu", 4, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED};
    float predicted[2][IMAGES * IMAGE_CLASSES];
    mirt_logs logs;
    double worst = 0, loss[2] = {0, 0}, accuracy[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_for(k ? &gpus : &cpu);
        mirt_model *m = s ? image_model(s, mirt_adam(1e-3f), 0.1f) : NULL;
        mirt_dataset *data = mirt_batch(mirt_arrays(images_x(0, 61), images_y(0, 61)), 25);
        const bool good = m && mirt_evaluate(m, data, &logs) == MIRT_OK &&
                          mirt_predict(m, data, predicted[k], IMAGES * IMAGE_CLASSES) == MIRT_OK;
        ok(good, "evaluate and predict on %s: %s", k ? gpus.devices : "cores", good ? "done" : mirt_last_error());
        if (good) loss[k] = mirt_logs_value(&logs, "loss"), accuracy[k] = mirt_logs_value(&logs, "accuracy");
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
        if (!good) return;
    }
    for (int i = 0; i < 61 * IMAGE_CLASSES; i++) {
        const double d = fabs((double)predicted[0][i] - (double)predicted[1][i]);
        worst = d > worst ? d : worst;
    }
    ok(worst < 1e-5, "predictions are the CPU's but for %.1e", worst);
    ok(fabs(loss[0] - loss[1]) < 1e-5 && accuracy[0] == accuracy[1],
       "61 samples in batches of 25: loss %.7g and accuracy %.4g of GPUs, %.7g and %.4g of cores", loss[1], accuracy[1],
       loss[0], accuracy[0]);
}

/* Saved in the middle, on another number of devices, and loaded there: the bits of the run that was not interrupted. */
static void check_checkpoint(void) {
    static const char *const devices[] = {"gpu:0", "gpu:0,gpu:1,gpu:2", "gpu:2,gpu:3"};
    char path[300], want[MIRT__SHA256_HEX], have[MIRT__SHA256_HEX];
    size_t size;
    snprintf(path, sizeof path, "%s/run.safetensors", work_directory());
    for (int k = 0; k < 2; k++) {
        mirt_model *m = NULL;
        for (int part = 0; part < (k ? 2 : 1); part++) {
            const run r = {devices[k + part], 4, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED};
            mirt_strategy *s = strategy_for(&r);
            double loss;
            m = s && part == 0 ? image_model(s, mirt_adam(1e-3f), 0.2f) : s ? mirt_load(s, path) : NULL;
            for (int step = part ? 3 : 0; m && step < (k && !part ? 3 : 6); step++) {
                if (mirt_train_step(m, images_x(step * 10, 10), images_y(step * 10, 10), &loss) != MIRT_OK) m = NULL;
            }
            ok(m && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK, "steps on %s, saved%s%s", r.devices, m ? "" : ": ",
               m ? "" : mirt_last_error());
            mirt_strategy_destroy(s);
        }
        char *bytes = file_bytes(path, &size);
        digest_of(bytes, size, k ? have : want);
        free(bytes);
    }
    ok(strcmp(have, want) == 0, "three steps on 3 GPUs, saved, three more on 2: the file of six on one");
    unlink(path);
}

static void check_stages(void) {
    const run r = {"gpu:0,gpu:1,gpu:2", 3, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED};
    float *whole = NULL, *stages = NULL;
    size_t count = 0;
    float sum[2][6] = {{0}};
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_for(&r);
        mirt_model *m = s ? image_model(s, mirt_adam(1e-3f), 0) : NULL;
        double loss;
        bool good = m != NULL;
        for (int step = 0; step < 3 && good; step++) {
            mirt_array x = images_x(step * 7, 7), y = images_y(step * 7, 7);
            if (k == 0) good = mirt_train_step(m, x, y, &loss) == MIRT_OK;
            else
                good = mirt_scatter(m, x, y) == MIRT_OK && mirt_grad(m, &loss) == MIRT_OK &&
                       mirt_get_gradient(m, "conv2d/bias", 1, sum[0], 6) == MIRT_OK && mirt_all_reduce(m) == MIRT_OK &&
                       mirt_get_gradient(m, "conv2d/bias", 1, sum[1], 6) == MIRT_OK && mirt_apply(m) == MIRT_OK;
        }
        ok(good, "three steps %s%s%s", k ? "by their stages" : "in one call", good ? "" : ": ",
           good ? "" : mirt_last_error());
        if (good) *(k ? &stages : &whole) = all_weights(m, 0, &count);
        mirt_strategy_destroy(s);
    }
    ok(whole && stages && memcmp(whole, stages, count * sizeof *whole) == 0,
       "scatter, grad, all-reduce, apply are the bits of a step");
    ok(memcmp(sum[0], sum[1], sizeof sum[0]) != 0, "a device's own gradient is not the sum of all");
    free(whole);
    free(stages);
}

/* What is told of the copies: one on each device, which updates the whole of it, or one for all, each of which updates
   its share. */
static void check_copies(void) {
    static const run runs[] = {
        {"gpu:0,gpu:1,gpu:2", 3, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED},
        {"gpu:0,gpu:1,gpu:2", 3, false, MIRT_COLLECTIVE_AUTO, MIRT_CENTRAL_STORAGE}
    };
    size_t bytes[2] = {0, 0}, weights = 0;
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_for(&runs[k]);
        mirt_model *m = s ? image_model(s, mirt_adam(1e-3f), 0) : NULL;
        mirt_memory memory;
        char whole[96];
        memset(&memory, 0, sizeof memory);
        const char *text = m && mirt_plan_memory(m, 30, &memory) == MIRT_OK ? mirt_graph_text(m, 30) : NULL;
        snprintf(whole, sizeof whole, "gpu:2: adam on elements 0 to %d, written to its weights",
                 (int)(m ? m->trained_bytes / sizeof(float) : 0) - 1);
        ok(text && (strstr(text, whole) != NULL) == (k == 0) &&
               (strstr(text, "written to the one copy") != NULL) == (k == 1),
           "the picture of a step with %s", k ? "one copy" : "copies");
        bytes[k] = memory.total;
        weights = memory.weights;
        mirt_strategy_destroy(s);
    }
    ok(bytes[0] - bytes[1] == 2 * weights, "three copies of %d bytes take two more than one", (int)weights);
}

/* Gradients are written where they travel from, so that the first bucket sets out before backward is over; nothing of a
   layer follows it. */
static void check_buckets(void) {
    const run r = {"gpu:0,gpu:1", 2, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED};
    mirt_strategy *s = strategy_for(&r);
    mirt_model *m = s ? build_mobilenet(s) : NULL;
    mirt_dataset *data = mirt_batch(mirt_arrays(mirt_make_array(photo_pixels, MIRT_UINT8, MIRT_SHAPE(12, 32, 32, 3)),
                                                mirt_make_array(some_labels, MIRT_UINT8, MIRT_SHAPE(12))),
                                    12);
    const mirt_function *f = m ? mirt__trainer_prepare(m, MIRT__TRAIN, mirt__dataset_spec(data), 12, NULL) : NULL;
    const char *text = m ? mirt_graph_text(m, 12) : NULL;
    ok(f && f->step.num_buckets > 1 && f->step.bucket[0].ready < f->step.bucket[1].ready - 50,
       "MobileNetV2's first bucket is ready after node %d, its last after node %d", f ? f->step.bucket[0].ready : 0,
       f ? f->step.bucket[f->step.num_buckets - 1].ready : 0);
    ok(text && !strstr(text, "unary"), "no gradient is copied, and moving statistics take nothing of a step");
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* >>bad input */

static void refused(const char *devices, bool repeat, const char *part) {
    const run r = {devices, 0, repeat, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED};
    mirt_strategy *s = strategy_for(&r);
    ok(!s && mirt_last_status() == MIRT_E_DEVICE && strstr(mirt_last_error(), part),
       "devices \"%s\" are refused: \"%s\"", devices, s ? "no" : mirt_last_error());
    mirt_strategy_destroy(s);
}

static int no_op(const mirt_op_call *call, void *user) {
    (void)user;
    memcpy(call->out, call->in[0], sizeof(float));
    return 0;
}

static void check_refusals(void) {
    const run r = {"gpu:0", 1, false, MIRT_COLLECTIVE_AUTO, MIRT_MIRRORED};
    refused("gpu:4", false, "gpu:0 to gpu:3");
    refused("gpu:0,gpu:0", false, "named twice");
    refused("gpu:1,cpu:0", false, "not both");
    refused("gpu:", false, "there is no device");
    mirt_strategy *s = strategy_for(&r);
    mirt_op_class own;
    memset(&own, 0, sizeof own);
    own.name = "own";
    own.forward = no_op;
    mirt_model *m = mirt_model_create(s, "own");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(3));
    mirt_model_output(m, mirt_custom_op(&own, &x, 1, NULL));
    float some[3] = {0}, out[3];
    mirt_status status = mirt_predict_arrays(m, mirt_make_array(some, MIRT_FLOAT32, MIRT_SHAPE(1, 3)), out, 3);
    ok(status == MIRT_E_DEVICE && strstr(mirt_last_error(), "code of yours"),
       "an op of the user's own is refused: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
}

int main(void) {
    if (!four_devices()) return done_testing();
    draw_images();
    draw_more();
    const bool small = small_tier();
    /* The last batch of an epoch is one image: all replicas but one have none. */
    const network images = {"a convnet", build_images, images_x(0, 51), images_y(0, 51), 25, small ? 6 : 20, 1e-5};
    const network clipped = {"clipped by norms", build_clipped, images_x(0, 40), images_y(0, 40), 17, 5, 1e-5};
    const network lamb = {"Lamb", build_lamb, images_x(0, 40), images_y(0, 40), 17, 5, 1e-5};
    const network muon = {"Muon", build_muon, images_x(0, 40), images_y(0, 40), 17, 5, 1e-5};
    const network adafactor = {"Adafactor", build_adafactor, images_x(0, 40), images_y(0, 40), 17, 5, 1e-5};
    const network mixed = {"several with Lamb", build_mixed, images_x(0, 40), images_y(0, 40), 17, 5, 1e-5};
    const network several = {"several optimizers", build_several, images_x(0, 40), images_y(0, 40), 17, 5, 1e-5};
    const network norms = {"batch normalization", build_norms, images_x(0, 51), images_y(0, 51), 25, 6, 1e-5};
    const network synchronized = {
        "synchronized normalization", build_synchronized, images_x(0, 40), images_y(0, 40), 17, 4, 1e-5
    };
    const network augmented = {"augmented images", build_augmented, images_x(0, 40), images_y(0, 40), 17, 4, 1e-5};
    const network pixels = {"classes of pixels", build_pixels, images_x(0, 40),
                            mirt_make_array(pixel_classes, MIRT_UINT8, MIRT_SHAPE(40, IMAGE_H, IMAGE_W)), 17, 20, 1e-5};
    const network dice = {"masks of pixels", build_dice, images_x(0, 40),
                          mirt_make_array(pixel_masks, MIRT_UINT8, MIRT_SHAPE(40, IMAGE_H, IMAGE_W, 1)), 17, 6, 1e-5};
    const network mnist = {"MNIST's convnet",
                           build_mnist,
                           mirt_make_array(digit_pixels, MIRT_UINT8, MIRT_SHAPE(40, 28, 28, 1)),
                           mirt_make_array(some_labels, MIRT_UINT8, MIRT_SHAPE(40)),
                           8,
                           20,
                           1e-5};
    /* A step with a rate of 1 adds its gradients to the weights; after it rounding errors grow by orders, as on any
       machine. */
    const network mobilenet = {"MobileNetV2 0.35",
                               build_mobilenet,
                               mirt_make_array(photo_pixels, MIRT_UINT8, MIRT_SHAPE(12, 32, 32, 3)),
                               mirt_make_array(some_labels, MIRT_UINT8, MIRT_SHAPE(12)),
                               12,
                               1,
                               2e-4};
    network longer = mobilenet;
    longer.steps = 2;
    const network *const many[] = {&images, &norms};
    for (int i = 0; i < 2; i++) {
        check_near(many[i], 4);
        check_bits(many[i], all_runs, MIRT__COUNT(all_runs));
    }
    const network *const some[] = {&clipped,      &lamb,      &muon,  &adafactor, &several, &mixed,
                                   &synchronized, &augmented, &mnist, &pixels,
                                   &dice};
    for (int i = 0; i < MIRT__COUNT(some); i++) {
        check_near(some[i], 4);
        check_bits(some[i], all_runs, 3);
    }
    check_near(&mobilenet, 1); /* statistics of three rows of single pixels are those of chance */
    check_bits(&longer, all_runs, small ? 1 : 3);
    check_results();
    check_checkpoint();
    check_stages();
    check_copies();
    check_buckets();
    check_refusals();
    return done_testing();
}
