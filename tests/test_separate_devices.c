/* Trains on a test device with separate memory; results are bit-identical to those of cores. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "separate_device.h"

#include <unistd.h>

/* >>what is trained */

typedef enum program {
    MNIST,
    IMAGES_NET,
    NORMS,
    SYNCHRONIZED,
    CLIPPED,
    AVERAGES,
    ACCUMULATED,
    LARGE,
    LAMB,
    MUON,
    ADAFACTOR,
    SEVERAL,
    PROGRAMS
} program;
static const char *const program_names[] = {"MNIST",
                                            "images",
                                            "batch normalization",
                                            "synchronized batch normalization",
                                            "clipping by global norm",
                                            "averages of weights",
                                            "accumulation",
                                            "several buckets",
                                            "norms of whole weights",
                                            "products of whole weights",
                                            "means of rows and columns",
                                            "several optimizers"};

/* More than 1 MB of gradients, so that there are two buckets. */
static mirt_model *large_model(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "large");
    mirt_dense_desc wide, dense;
    memset(&wide, 0, sizeof wide);
    memset(&dense, 0, sizeof dense);
    wide.units = 600;
    wide.activation = MIRT_RELU;
    dense.units = IMAGE_CLASSES;
    mirt_tensor *x = mirt_rescale(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1.0f / 255, 0);
    x = mirt_dense(mirt_dense(mirt_flatten(x), &wide), &wide);
    mirt_model_output(m, mirt_dense(x, &dense));
    mirt_compile_desc c = image_compile(mirt_sgd(0.05f, 0.9f, false));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static mirt_model *mnist_model(mirt_strategy *s, mirt_optimizer o) {
    mirt_model *m = mirt_model_by_name(s, "mnist");
    mirt_compile_desc c = image_compile(o);
    return m && mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static mirt_model *model_of(mirt_strategy *s, program p) {
    mirt_optimizer o = mirt_adam(3e-3f);
    if (p == MNIST) return mnist_model(s, o);
    if (p == NORMS || p == SYNCHRONIZED) return image_norm_model(s, p == SYNCHRONIZED);
    if (p == LARGE) return large_model(s);
    if (p == LAMB) o = mirt_lamb(0.02f);
    if (p == MUON) o = mirt_muon(0.02f);
    if (p == ADAFACTOR) o = mirt_adafactor(0.02f);
    if (p == CLIPPED) o.global_clipnorm = 0.05f;
    if (p == AVERAGES) o.use_ema = true;
    if (p != SEVERAL) return image_model(s, o, 0.2f);
    mirt_model *m = image_net(s, 0.2f);
    mirt_compile_desc c = image_compile(o);
    c.optimizers[0].weights = "conv2d*";
    c.optimizers[0].optimizer = mirt_lamb(0.02f);
    c.optimizers[1].weights = "dense_1";
    c.optimizers[1].optimizer = mirt_sgd(0.05f, 0.9f, true);
    c.optimizers[1].optimizer.decay = mirt_exponential_decay(0.05f, 4, 0.5f, false);
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static mirt_strategy *strategy_on(const char *kind, int devices, int replicas, bool central) {
    char text[96] = "";
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    for (int i = 0; i < devices; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%sgpu:%d", i ? "," : "", i);
    if (strcmp(kind, "cpu") == 0) snprintf(text, sizeof text, "%d", devices);
    d.devices = text;
    d.replicas = replicas;
    d.threads = 1;
    d.kind = central ? MIRT_CENTRAL_STORAGE : MIRT_MIRRORED;
    d.seed = 5;
    d.silent = true;
    return mirt_strategy_create(&d);
}

/* Of MNIST, or digits like them where MIRT_MNIST_DIR does not name it. */
static mirt_dataset *samples(program p, bool training) {
    const char *directory = getenv("MIRT_MNIST_DIR");
    const mirt_split split = training ? MIRT_TRAIN : MIRT_TEST;
    const int64_t first = training ? 0 : 203, count = training ? 203 : 99;
    if (p != MNIST) return mirt_arrays(images_x(first, count), images_y(first, count));
    return mirt_take(directory ? mirt_mnist(directory, split) : mirt_drawn_digits(count, 3, split), count);
}

/* Trains, evaluates and predicts; the digest of weights, results and predictions. */
static bool train(mirt_strategy *s, program p, char out[MIRT__SHA256_HEX]) {
    mirt_model *m = s ? model_of(s, p) : NULL;
    mirt_fit_desc fit;
    mirt_logs logs;
    mirt__sha256 sha;
    float predicted[IMAGES * IMAGE_CLASSES] = {0};
    float *const place[] = {predicted};
    const size_t room[] = {IMAGES * IMAGE_CLASSES};
    char weights[MIRT__SHA256_HEX];
    memset(&fit, 0, sizeof fit);
    memset(&logs, 0, sizeof logs);
    fit.epochs = 2;
    fit.no_progress = true;
    mirt_dataset *data = mirt_batch(mirt_shuffle(samples(p, true), 203), 29);
    if (p == ACCUMULATED) data = mirt_accumulate(data, 3);
    mirt_dataset *held = mirt_batch(samples(p, false), 40);
    mirt_callback *swap = p == AVERAGES ? mirt_swap_ema_weights(true) : NULL;
    fit.callbacks[0] = swap;
    if (swap) fit.validation = held;
    bool good = m && mirt_fit(m, data, &fit) && mirt_evaluate(m, held, &logs) == MIRT_OK;
    mirt_data rows;
    memset(&rows, 0, sizeof rows);
    rows.x[0] = images_x(203, 99);
    good = good && (p == MNIST || mirt_predict_on_batch(m, &rows, place, room) == MIRT_OK);
    good = good && mirt_check_drift(m) == MIRT_OK;
    mirt__sha256_begin(&sha);
    for (int d = 0; good && d < mirt_num_devices(s); d++) {
        digest_weights(m, d, weights);
        mirt__sha256_add(&sha, weights, strlen(weights));
    }
    for (int d = good ? mirt_num_devices(s) : 6; d < 6; d++) mirt__sha256_add(&sha, weights, strlen(weights));
    mirt__sha256_add(&sha, predicted, 99 * IMAGE_CLASSES * sizeof(float));
    for (int i = 0; i < logs.count; i++) mirt__sha256_add(&sha, &logs.value[i], sizeof logs.value[i]);
    mirt__sha256_end(&sha, out);
    mirt_callback_destroy(swap);
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(held);
    return good;
}

static void check_program(program p, int devices, int replicas, bool central, bool direct, bool shards, bool queues) {
    char cores[MIRT__SHA256_HEX] = "", others[MIRT__SHA256_HEX] = "";
    memset(&separate_able, 0, sizeof separate_able);
    separate_able.costs.pass = 0.1;
    separate_able.direct = direct;
    separate_able.shards = shards;
    separate_able.queues = queues;
    mirt_strategy *a = strategy_on("cpu", 1, replicas, false), *b = strategy_on("test", devices, replicas, central);
    const bool good = train(a, p, cores) && train(b, p, others);
    int strays = 0;
    int64_t in = 0, out = 0;
    for (int d = 0; b && d < mirt_num_devices(b); d++) {
        const separate *own = separate_of(b->device[d].handle);
        strays += own->strays;
        in += own->bytes_in;
        out += own->bytes_out;
    }
    ok(good && strcmp(cores, others) == 0 && strays == 0 && in > 0 && out > 0,
       "%s, %d replicas on %d test devices%s%s%s%s: as on one of cores; %d stray copies%s%s", program_names[p],
       replicas, devices, central ? ", central storage" : "", direct ? ", direct" : "", shards ? ", sharded" : "",
       queues ? ", queued" : "", strays, good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_strategy_destroy(a);
    mirt_strategy_destroy(b);
}

/* >>the nodes are what runs */

static mirt_function *training_of(mirt_model *m) { return m->trainer ? m->trainer->function[MIRT__TRAIN] : NULL; }

static void swap_nodes(mirt__program *p, int a, int b) {
    mirt__node *node = p->graph.node[a];
    p->graph.node[a] = p->graph.node[b];
    p->graph.node[b] = node;
}

/* Two nodes that mirroring appended change places, and with them the order of reductions; without an update node, the
   weights of its bucket stay as they are. */
static void check_nodes(void) {
    double loss;
    memset(&separate_able, 0, sizeof separate_able);
    separate_able.costs.pass = 0.1;
    separate_able.direct = true;
    mirt_strategy *s = strategy_on("test", 2, 2, false);
    mirt_model *m = s ? large_model(s) : NULL;
    bool good = m && mirt_train_step(m, images_x(0, 20), images_y(0, 20), &loss) == MIRT_OK;
    mirt_function *f = good ? training_of(m) : NULL;
    separate *device = good ? separate_of(s->device[0].handle) : NULL;
    good = good && f->step.num_buckets == 2 && f->step.program.graph.count == f->step.program.mirrored + 4 &&
           device->reductions == 2 && device->reduced[0].begin > device->reduced[1].begin;
    ok(good, "two buckets are reduced, the one at the back first");
    if (good) {
        const int first = f->step.program.mirrored;
        swap_nodes(&f->step.program, first, first + 1);
        good = mirt_train_step(m, images_x(0, 20), images_y(0, 20), &loss) == MIRT_OK;
        ok(good && device->reductions == 4 && device->reduced[2].begin < device->reduced[3].begin,
           "after two nodes change places, in the other order");
        float before[IMAGE_CLASSES], after[IMAGE_CLASSES];
        const mirt__bucket *bucket = &f->step.bucket[f->step.program.graph.node[first + 2]->a.index];
        f->step.program.graph.node[first + 2] =
            f->step.program.graph.node[first + 3]; /* one update twice, the other never */
        good = mirt_get_weight(m, "dense_2/bias", 0, before, IMAGE_CLASSES) == MIRT_OK &&
               mirt_train_step(m, images_x(0, 20), images_y(0, 20), &loss) == MIRT_OK &&
               mirt_get_weight(m, "dense_2/bias", 0, after, IMAGE_CLASSES) == MIRT_OK;
        ok(good && bucket->begin > 0 && memcmp(before, after, sizeof before) == 0,
           "without its update node a bucket stays as it was");
    }
    mirt_strategy_destroy(s);
}

/* Steps on one batch, some of which say that it is the same one; the bytes that each has sent to the devices. */
static bool same_steps(bool say, int64_t sent[8], char out[MIRT__SHA256_HEX]) {
    memset(&separate_able, 0, sizeof separate_able);
    separate_able.costs.pass = 0.1;
    mirt_strategy *s = strategy_on("test", 2, 3, false);
    mirt_model *m = s ? image_model(s, mirt_adam(3e-3f), 0.2f) : NULL;
    mirt_data batch, other;
    int64_t before = 0;
    bool good = m;
    memset(&batch, 0, sizeof batch);
    batch.x[0] = images_x(0, 20);
    batch.y[0] = images_y(0, 20);
    other = batch;
    other.x[0] = images_x(20, 20);
    for (int i = 0; i < 8 && good; i++) {
        batch.same = other.same = say;
        if (i == 4) good = mirt_test_on_batch(m, &batch, NULL) == MIRT_OK; /* in the same memory */
        if (i == 5) good = mirt_test_on_batch(m, &batch, NULL) == MIRT_OK; /* and again, */
        if (i == 5) good = good && mirt_scatter(m, batch.x[0], batch.y[0]) == MIRT_OK; /* before what is not sent yet */
        good = good && mirt_train_on_batch(m, i == 2 ? &other : &batch, NULL) == MIRT_OK;
        int64_t in = 0;
        for (int d = 0; good && d < 2; d++) in += separate_of(s->device[d].handle)->bytes_in;
        sent[i] = in - before;
        before = in;
    }
    if (good) digest_weights(m, 1, out);
    mirt_strategy_destroy(s);
    return good;
}

static void check_same(void) {
    static const bool skips[] = {false, true, false, false, false, false, true, true};
    char with[MIRT__SHA256_HEX] = "with", without[MIRT__SHA256_HEX] = "without";
    int64_t sent[8], always[8];
    const bool good = same_steps(true, sent, with) && same_steps(false, always, without);
    ok(good && strcmp(with, without) == 0, "batches that devices keep: the weights of batches sent anew");
    for (int i = 0; i < 8; i++)
        ok(good && always[i] > 0 && sent[i] == (skips[i] ? 0 : always[i]), "step %d: %s (%lld of %lld bytes)", i,
           skips[i] ? "nothing is sent" : "the batch is sent", (long long)sent[i], (long long)always[i]);
}

/* What is printed: one all_reduce and one update line per bucket, whose elements are all that is trained. */
static void check_text(mirt_collective collective, const char *name) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = "2";
    d.collective = collective;
    d.silent = true;
    mirt_strategy *s = mirt_strategy_create(&d);
    mirt_model *m = s ? large_model(s) : NULL;
    const char *text = m ? mirt_graph_text(m, 20) : NULL;
    char by[32];
    long long elements[2] = {0, 0}, count, trained = 0;
    int lines[2] = {0, 0}, bucket;
    snprintf(by, sizeof by, "elements by %s", name);
    for (const char *at = text; at && *at; at += strcspn(at, "\n") + (at[strcspn(at, "\n")] == '\n')) {
        const bool update = strncmp(at, "  update ", 9) == 0;
        if (!update && strncmp(at, "  all_reduce ", 13) != 0) continue;
        const char *from = strstr(at, "bucket ");
        if (!from || sscanf(from, "bucket %d, %lld", &bucket, &count) != 2 || bucket != lines[update]) break;
        if (!update && !(strstr(at, by) && strstr(at, by) < at + strcspn(at, "\n"))) break;
        lines[update]++;
        elements[update] += count;
    }
    for (int i = 0; m && i < m->num_variables; i++) trained += (long long)m->variable[i].count;
    ok(lines[0] == 2 && lines[1] == 2 && elements[0] == trained && elements[1] == trained,
       "%s: %d all_reduce and %d update lines, of %lld and %lld elements, of %lld that are trained", name, lines[0],
       lines[1], elements[0], elements[1], trained);
    mirt_strategy_destroy(s);
}

/* What the driver of devices says is in the log; what it does not say is not. */
static void check_use(void) {
    char path[512], text[1 << 16];
    const char *directory = work_directory();
    mirt_json_logger_desc d;
    mirt_fit_desc fit;
    memset(&d, 0, sizeof d);
    memset(&fit, 0, sizeof fit);
    snprintf(path, sizeof path, "%s/use.jsonl", directory ? directory : ".");
    d.path = path;
    mirt_strategy *s = strategy_on("gpu", 2, 2, false);
    mirt_model *m = s ? model_of(s, IMAGES_NET) : NULL;
    mirt_dataset *data = m ? samples(IMAGES_NET, true) : NULL;
    mirt_callback *logger = mirt_json_logger(&d);
    fit.callbacks[0] = logger;
    fit.no_progress = true;
    fit.max_steps = 3;
    const bool good = data && logger && mirt_fit(m, data, &fit);
    FILE *file = fopen(path, "r");
    const size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[size] = 0;
    if (file) fclose(file);
    int told = 0;
    for (const char *at = text; (at = strstr(at, "\"utilization\":0.75,\"used_bytes\":3145728,\"all_bytes\":4194304}"));
         at++)
        told++;
    ok(good && told == 2 && strstr(text, "\"use\":{\"seconds\":") && strstr(text, "\"name\":\"test:1\",\"busy\":") &&
           !strstr(text, "watts"),
       "the log has what the driver says of %d devices", told);
    mirt_callback_destroy(logger);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    remove(path);
    if (directory) rmdir(directory);
}

int main(void) {
    draw_images();
    for (int p = 0; p < PROGRAMS; p++) {
        check_program((program)p, 1, 3, false, false, false, false);
        check_program((program)p, 3, 4, false, false, false, p % 2 == 0);
        check_program((program)p, 3, 4, false, true, false, p % 2 == 1);
        check_program((program)p, 2, 5, false, true, true, false);
        check_program((program)p, 3, 3, true, true, p % 2 == 0, false);
    }
    check_nodes();
    check_same();
    check_use();
    check_text(MIRT_COLLECTIVE_AUTO, "tree");
    check_text(MIRT_RING, "ring");
    check_text(MIRT_REDUCE_TO_ONE_DEVICE, "one device");
    return done_testing();
}
