/* Tests kinds of strategy, collectives, and aggregation of replica values. Several strategies also run at once. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <pthread.h>
#include <unistd.h>

static mirt_strategy *make_strategy(mirt_strategy_kind kind, mirt_collective collective, const char *devices,
                                    int replicas) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.kind = kind;
    d.collective = collective;
    d.devices = devices;
    d.replicas = replicas;
    d.threads = 1;
    d.seed = 11;
    d.silent = true;
    return mirt_strategy_create(&d);
}

/* >>training */

/* Steps over batches of every size from 29 down, whole or in their four parts. */
static bool train_steps(mirt_model *m, int steps, bool by_hand) {
    bool good = m != NULL;
    for (int i = 0; i < steps && good; i++) {
        mirt_array x = images_x(i % 9 * 29, 29 - i % 29), y = images_y(i % 9 * 29, 29 - i % 29);
        if (!by_hand) good = mirt_train_step(m, x, y, NULL) == MIRT_OK;
        else
            good = mirt_scatter(m, x, y) == MIRT_OK && mirt_grad(m, NULL) == MIRT_OK && mirt_all_reduce(m) == MIRT_OK &&
                   mirt_apply(m) == MIRT_OK;
    }
    return good;
}

/* The weights after some steps; NULL after an error. Destroys the strategy. */
static float *trained(mirt_strategy *s, mirt_optimizer optimizer, bool by_hand, size_t *count) {
    mirt_model *m = s ? image_model(s, optimizer, 0.3f) : NULL;
    float *w = train_steps(m, 29, by_hand) && copies_agree(m) ? all_weights(m, mirt_num_devices(s) - 1, count) : NULL;
    mirt_strategy_destroy(s);
    return w;
}

static double worst_difference(const float *a, const float *b, size_t count) {
    double worst = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        worst = worse(worst, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)a[i]));
    }
    return worst / largest;
}

static void check_collectives(void) {
    static const char *const name[] = {"auto", "tree", "ring", "to one device"};
    static const struct { int devices, replicas; } set[] = {{1, 7}, {2, 7}, {3, 7}, {5, 7}, {7, 7}};
    const mirt_optimizer optimizer = mirt_sgd(0.05f, 0.9f, true);
    char devices[8];
    size_t count = 0, others;
    float *want = trained(make_strategy(MIRT_MIRRORED, MIRT_TREE, "1", 7), optimizer, false, &count);
    ok(want != NULL, "7 replicas train on one device");
    int different = 0;
    for (int i = 0; i < MIRT__COUNT(set) && want; i++) {
        snprintf(devices, sizeof devices, "%d", set[i].devices);
        for (int c = 0; c < MIRT__COUNT(name); c++) {
            float *have =
                trained(make_strategy(MIRT_MIRRORED, (mirt_collective)c, devices, 7), optimizer, false, &others);
            float *hand =
                trained(make_strategy(MIRT_MIRRORED, (mirt_collective)c, devices, 7), optimizer, true, &others);
            bool same = have && memcmp(have, want, count * sizeof *want) == 0;
            different += !same;
            if (c <= (int)MIRT_TREE) ok(same, "%s on %s devices: the bits of one device", name[c], devices);
            else
                ok(have && worst_difference(want, have, count) < 1e-5,
                   "%s on %s devices: the tree's weights to rounding%s", name[c], devices, same ? ", in bits" : "");
            ok(have && hand && memcmp(have, hand, count * sizeof *have) == 0,
               "%s on %s devices: four stages equal the one step", name[c], devices);
            free(have);
            free(hand);
        }
    }
    ok(different > 0, "ring and one device do round in other orders than the tree");
    free(want);
}

/* However small buckets are asked to be, each has a variable. */
static void check_buckets(void) {
    static const int64_t bytes[] = {1, 3, 5, 4000, (int64_t)1 << 40};
    const mirt_optimizer optimizer = mirt_sgd(0.05f, 0.9f, true);
    size_t count = 0, others;
    float *want = trained(make_strategy(MIRT_MIRRORED, MIRT_TREE, "2", 7), optimizer, false, &count);
    for (int i = 0; i < MIRT__COUNT(bytes); i++) {
        mirt_strategy_desc d;
        memset(&d, 0, sizeof d);
        d.devices = "2";
        d.replicas = 7;
        d.threads = 1;
        d.seed = 11;
        d.silent = true;
        d.bucket_bytes = bytes[i];
        float *have = trained(mirt_strategy_create(&d), optimizer, false, &others);
        ok(want && have && memcmp(have, want, count * sizeof *want) == 0, "buckets of %lld bytes: the same bits",
           (long long)bytes[i]);
        free(have);
    }
    free(want);
}

/* After mirt_all_reduce every device has the sum, in double precision that of one replica. */
static void check_sums(mirt_collective collective) {
    static const int rows[] = {29, 7, 3, 1};
    mirt_strategy *s = make_strategy(MIRT_MIRRORED, collective, "3", 5),
                  *one = make_strategy(MIRT_ONE_DEVICE, collective, NULL, 1);
    mirt_model *m = image_model(s, mirt_sgd(0.1f, 0, false), 0), *plain = image_model(one, mirt_sgd(0.1f, 0, false), 0);
    const size_t count = (size_t)m->variable[mirt__variable_find(m, "dense/kernel")].count;
    float *want = (float *)malloc(count * sizeof *want), *have = (float *)malloc(count * sizeof *have);
    for (int i = 0; i < MIRT__COUNT(rows); i++) {
        bool good = mirt_scatter(m, images_x(0, rows[i]), images_y(0, rows[i])) == MIRT_OK &&
                    mirt_grad(m, NULL) == MIRT_OK && mirt_all_reduce(m) == MIRT_OK;
        good = good && mirt_scatter(plain, images_x(0, rows[i]), images_y(0, rows[i])) == MIRT_OK &&
               mirt_grad(plain, NULL) == MIRT_OK;
        good = good && mirt_get_gradient(plain, "dense/kernel", 0, want, count) == MIRT_OK;
        double worst = 0;
        for (int d = 0; good && d < 3; d++) {
            good = mirt_get_gradient(m, "dense/kernel", d, have, count) == MIRT_OK;
            worst = worse(worst, worst_difference(want, have, count));
        }
        ok(good && worst < 1e-5,
           "collective %d, %d rows: all devices have the gradient of one replica, off by %.1e of the largest",
           (int)collective, rows[i], worst);
    }
    free(want);
    free(have);
    mirt_strategy_destroy(s);
    mirt_strategy_destroy(one);
}

/* The gradient of w[k] is the sum of three replicas' x: 1e8, 1 and -1e8, which is 1 only if the large ones meet
   first. */
static bool record_order(mirt_function *f, void *user) {
    mirt_tensor *w = mirt_function_variable(f, "w");
    (void)user;
    return mirt_minimize(f, mirt_reduce_sum(mirt_multiply(mirt_function_x(f, 0), w), 3u, false)) == MIRT_OK;
}

static void check_order(mirt_collective collective, const float *want, const char *what) {
    enum { SHARE = MIRT__ALIGN / sizeof(float), N = 3 * SHARE };
    static float x[3][N], w[N];
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = mirt_sgd(1, 0, false);
    for (int k = 0; k < N; k++) x[0][k] = 1e8f, x[1][k] = 1, x[2][k] = -1e8f;
    mirt_strategy *s = make_strategy(MIRT_MIRRORED, collective, "3", 3);
    mirt_model *m = mirt_model_create(s, "order");
    mirt_variable(m, "w", MIRT_SHAPE(N), mirt_zeros(), true);
    mirt_dataset *data = mirt_distribute(s, mirt_batch(mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(3, N)),
                                                                   mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(3))),
                                                       3));
    mirt_global_batch batch;
    bool good = mirt_compile(m, &c) == MIRT_OK;
    mirt_function *f = mirt_function_create(m, data, record_order, NULL);
    good = good && f && mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK &&
           mirt_get_weight(m, "w", 1, w, N) == MIRT_OK;
    for (int k = 0; k < N; k++) good = good && w[k] == -want[k / SHARE];
    ok(good, "%s adds in its order: %g, %g, %g%s%s", what, (double)w[0], (double)w[SHARE], (double)w[2 * SHARE],
       good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

static void check_orders(void) {
    const float in_order[3] = {0, 0, 0}, ring[3] = {0, 1, 0}; /* the share of device d begins with device d + 1 */
    check_order(MIRT_TREE, in_order, "the tree");
    check_order(MIRT_REDUCE_TO_ONE_DEVICE, in_order, "one device");
    check_order(MIRT_RING, ring, "the ring");
}

/* Seven replicas leave one device three partial sums: what is told of them before the all-reduce is their sum in
   bits. */
static void check_own_sum(void) {
    mirt_strategy *s = make_strategy(MIRT_ONE_DEVICE, MIRT_TREE, NULL, 7);
    mirt_model *m = image_model(s, mirt_sgd(0.1f, 0, false), 0);
    const size_t count = (size_t)m->variable[mirt__variable_find(m, "dense/kernel")].count;
    float *own = (float *)malloc(count * sizeof *own), *sum = (float *)malloc(count * sizeof *sum);
    bool good = mirt_scatter(m, images_x(0, 29), images_y(0, 29)) == MIRT_OK && mirt_grad(m, NULL) == MIRT_OK &&
                mirt_get_gradient(m, "dense/kernel", 0, own, count) == MIRT_OK && mirt_all_reduce(m) == MIRT_OK &&
                mirt_get_gradient(m, "dense/kernel", 0, sum, count) == MIRT_OK;
    ok(good && memcmp(own, sum, count * sizeof *own) == 0, "one device's own sum is the sum of all");
    free(own);
    free(sum);
    mirt_strategy_destroy(s);
}

/* A weight that the loss does not reach has no gradient, whatever another model left in the memory they share. */
static void check_unreached(void) {
    float gradient[3] = {1, 1, 1};
    mirt_strategy *s = make_strategy(MIRT_MIRRORED, MIRT_TREE, "2", 4);
    mirt_model *before = image_model(s, mirt_sgd(0.1f, 0, false), 0), *m = mirt_model_create(s, "some");
    mirt_dense_desc dense;
    mirt_compile_desc c;
    memset(&dense, 0, sizeof dense);
    memset(&c, 0, sizeof c);
    dense.units = IMAGE_CLASSES;
    c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    mirt_variable(m, "alone", MIRT_SHAPE(3), mirt_ones(), true);
    mirt_model_output(m, mirt_dense(mirt_flatten(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1))), &dense));
    bool good = train_steps(before, 3, false) && mirt_compile(m, &c) == MIRT_OK &&
                mirt_scatter(m, images_x(0, 9), images_y(0, 9)) == MIRT_OK && mirt_grad(m, NULL) == MIRT_OK;
    for (int reduced = 0; good && reduced < 2; reduced++) {
        for (int d = 0; good && d < 2; d++) {
            good = mirt_get_gradient(m, "alone", d, gradient, 3) == MIRT_OK && gradient[0] == 0 && gradient[1] == 0 &&
                   gradient[2] == 0;
        }
        good = good && (reduced || mirt_all_reduce(m) == MIRT_OK);
    }
    ok(good, "a weight the loss does not depend on has a gradient of nothing: %g%s%s", (double)gradient[0],
       good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_strategy_destroy(s);
}

static bool record_large(mirt_function *f, void *user) {
    (void)user;
    mirt_tensor *x = mirt_function_x(f, 0);
    return mirt_function_result(f, "product",
                                mirt_matmul(x, mirt_transpose(mirt_function_variable(f, "w"), NULL), false, false)) ==
           MIRT_OK;
}

/* A larger function takes the memory in which a step's gradients are: the step begins anew. */
static void check_memory_moved(void) {
    static float x[9][300];
    mirt_strategy *s = make_strategy(MIRT_MIRRORED, MIRT_TREE, "2", 2);
    mirt_model *m = image_model(s, mirt_sgd(0.1f, 0, false), 0), *large = mirt_model_create(s, "large");
    mirt_variable(large, "w", MIRT_SHAPE(30000, 300), mirt_zeros(), true);
    mirt_dataset *data = mirt_distribute(s, mirt_batch(mirt_arrays(mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(9, 300)),
                                                                   mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(9))),
                                                       9));
    bool good = mirt_scatter(m, images_x(0, 9), images_y(0, 9)) == MIRT_OK && mirt_grad(m, NULL) == MIRT_OK;
    good = good && mirt_function_create(large, data, record_large, NULL);
    ok(good && mirt_all_reduce(m) == MIRT_E_STATE && train_steps(m, 1, true),
       "gradients are gone when a larger function takes their place: \"%s\"", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* >>kinds */

static const char *saved(mirt_model *m, char digest[MIRT__SHA256_HEX]) {
    char path[300];
    size_t size = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", work_directory());
    digest[0] = 0;
    if (mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK) {
        char *bytes = file_bytes(path, &size);
        digest_of(bytes, size, digest);
        free(bytes);
    }
    unlink(path);
    return digest;
}

static void check_kind(mirt_strategy_kind kind, const char *devices, const char *name) {
    mirt_strategy *s = make_strategy(kind, MIRT_COLLECTIVE_AUTO, devices, 4),
                  *t = make_strategy(MIRT_MIRRORED, MIRT_COLLECTIVE_AUTO, "2", 4);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.3f), *mirrored = image_model(t, mirt_adam(1e-3f), 0.3f);
    char a[MIRT__SHA256_HEX], b[MIRT__SHA256_HEX], path[300];
    float bias[IMAGE_CLASSES] = {1, -2, 3, -4, 5}, back[IMAGE_CLASSES];
    static float x[2][40 * IMAGE_CLASSES];
    bool good = train_steps(m, 12, false) && train_steps(mirrored, 12, false), seen = true;
    ok(good && *saved(m, a) && strcmp(a, saved(mirrored, b)) == 0,
       "%s: 12 steps leave the file that mirrored leaves, in every bit", name);
    ok(mirt_predict_arrays(m, images_x(0, 40), x[0], 40 * IMAGE_CLASSES) == MIRT_OK &&
           mirt_predict_arrays(mirrored, images_x(0, 40), x[1], 40 * IMAGE_CLASSES) == MIRT_OK &&
           memcmp(x[0], x[1], sizeof x[0]) == 0,
       "%s: the same predictions", name);
    seen = mirt_set_weight(m, "dense_1/bias", bias, IMAGE_CLASSES) == MIRT_OK;
    for (int d = 0; d < mirt_num_devices(s); d++) {
        seen = seen && mirt_get_weight(m, "dense_1/bias", d, back, IMAGE_CLASSES) == MIRT_OK &&
               memcmp(bias, back, sizeof bias) == 0;
    }
    ok(seen, "%s: a weight that is set is set on every device", name);
    snprintf(path, sizeof path, "%s/kind.safetensors", work_directory());
    good = mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK;
    mirt_model *loaded = mirt_load(s, path), *elsewhere = mirt_load(t, path);
    good = good && train_steps(m, 5, false) && train_steps(loaded, 5, false) && train_steps(elsewhere, 5, false);
    ok(good && *saved(m, a) && strcmp(a, saved(loaded, b)) == 0 && strcmp(a, saved(elsewhere, b)) == 0,
       "%s: continues after saving and loading, also under mirrored%s%s", name, good ? "" : ": ",
       good ? "" : mirt_last_error());
    unlink(path);
    mirt_strategy_destroy(s);
    mirt_strategy_destroy(t);
}

static void check_central_copies(void) {
    mirt_memory central, mirrored;
    mirt_strategy *s = make_strategy(MIRT_CENTRAL_STORAGE, MIRT_RING, "3", 3),
                  *t = make_strategy(MIRT_MIRRORED, MIRT_RING, "3", 3);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0), *other = image_model(t, mirt_adam(1e-3f), 0);
    bool good = mirt_plan_memory(m, 30, &central) == MIRT_OK && mirt_plan_memory(other, 30, &mirrored) == MIRT_OK;
    ok(good && mirrored.total - central.total == 2 * central.weights,
       "central storage keeps one copy of the weights where three mirrored devices keep three");
    const char *text = mirt_graph_text(m, 30), *text_2 = mirt_graph_text(other, 30);
    ok(text && text_2 && strstr(text, "written to the one copy") && strstr(text_2, "written to every device's copy"),
       "and the picture of the step says so");
    mirt_strategy_destroy(s);
    mirt_strategy_destroy(t);
}

/* >>names, errors, the log */

static char log_line[512];

static void keep_log(mirt_log_level level, const char *text, void *user) {
    (void)user;
    if (level == MIRT_LOG_INFO && strncmp(text, "mirrortrain ", 12) == 0)
        snprintf(log_line, sizeof log_line, "%s", text);
}

static void check_log(mirt_strategy_desc d, int devices, int threads, const char *part, const char *part_2) {
    d.log = keep_log;
    log_line[0] = 0;
    mirt_strategy *s = mirt_strategy_create(&d);
    ok(s && mirt_num_devices(s) == devices && mirt_num_threads(s) == threads && strstr(log_line, part) &&
           strstr(log_line, part_2),
       "%d device%s of %d: \"%s\"", devices, devices == 1 ? "" : "s", threads, log_line);
    mirt_strategy_destroy(s);
}

static void check_names(void) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.replicas = 4;
    check_log(d, 1, 4, "1 CPU device of 4 threads",
              "gradients summed by tree (auto: the same bits on any number of devices)");
    d.devices = "2";
    d.collective = MIRT_RING;
    check_log(d, 2, 2, "2 CPU devices of 2 threads", "gradients summed by ring (asked for: ");
    d.devices = "cpu:1";
    check_log(d, 1, 1, "1 CPU device cpu:1 of 1 thread ", "4 replicas");
    d.devices = "cpu:3,cpu:0";
    d.kind = MIRT_CENTRAL_STORAGE;
    d.collective = MIRT_REDUCE_TO_ONE_DEVICE;
    check_log(d, 2, 1, "2 CPU devices cpu:3 cpu:0 of 1 thread ",
              "one copy of the weights, gradients summed by one device (asked for: ");
    d.threads = 2;
    check_log(d, 2, 2, "cpu:3 cpu:0 of 2 threads", "4 replicas");
}

static void refused(mirt_strategy *s, mirt_status status, const char *word) {
    ok(!s && mirt_last_status() == status && strstr(mirt_last_error(), word), "refused: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
}

static void check_errors(void) {
    refused(make_strategy((mirt_strategy_kind)5, MIRT_COLLECTIVE_AUTO, NULL, 0), MIRT_E_INVALID,
            "mirt_strategy_create: invalid kind (5); it must be MIRT_MIRRORED, MIRT_ONE_DEVICE, "
            "MIRT_CENTRAL_STORAGE, MIRT_MULTI_WORKER or MIRT_PARAMETER_SERVER");
    refused(make_strategy((mirt_strategy_kind)-1, MIRT_COLLECTIVE_AUTO, NULL, 0), MIRT_E_INVALID,
            "invalid kind (-1)");
    refused(make_strategy(MIRT_MIRRORED, (mirt_collective)6, NULL, 0), MIRT_E_INVALID,
            "mirt_strategy_create: invalid collective (6); it must be one of mirt_collective");
    refused(make_strategy(MIRT_MIRRORED, MIRT_MPI_ALLREDUCE, NULL, 0), MIRT_E_INVALID, "is for MIRT_MULTI_WORKER");
    refused(make_strategy(MIRT_MIRRORED, MIRT_NCCL, NULL, 0), MIRT_E_INVALID, "NCCL joins GPUs");
    refused(make_strategy(MIRT_MIRRORED, (mirt_collective)-1, NULL, 0), MIRT_E_INVALID,
            "invalid collective (-1)");
    refused(mirt_one_device("cpu:0,cpu:1"), MIRT_E_INVALID, "one device is given 2");
    refused(mirt_one_device("3"), MIRT_E_INVALID, "one device is given 3");
    refused(mirt_one_device("cpu:99"), MIRT_E_DEVICE, "cpu:99");
    refused(mirt_central_storage("tpu:0"), MIRT_E_DEVICE, "tpu:0");
    refused(make_strategy(MIRT_MIRRORED, MIRT_COLLECTIVE_AUTO, "32", 32 * 7), MIRT_E_INVALID, "partial sums");
    mirt_strategy *s = make_strategy(MIRT_MIRRORED, MIRT_COLLECTIVE_AUTO, "32", 128);
    ok(s && mirt__check_parts(s, 512) == MIRT_OK, "128 replicas on 32 devices work");
    mirt_strategy_destroy(s);
    /* Accumulated batches are replicas too. */
    mirt_dataset *data = mirt_accumulate(mirt_batch(mirt_arrays(images_x(0, 300), images_y(0, 300)), 32), 7);
    mirt_model *m = (s = make_strategy(MIRT_MIRRORED, MIRT_COLLECTIVE_AUTO, "32", 32))
                        ? image_model(s, mirt_sgd(0.1f, 0, false), 0)
                        : NULL;
    ok(m && !mirt_fit(m, data, NULL) && mirt_last_status() == MIRT_E_INVALID &&
           strstr(mirt_last_error(), "partial sums"),
       "refused: \"%s\"", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

/* >>rules for values of replicas */

static void check_aggregation(void) {
    enum { N = 5, R = 3 };
    static const mirt__real value[R][N] = {
        {0.1f, -3, 1e30f, 7, 0}, {0.1f, 5, 2e30f, -7, 0}, {0.1f, 0.25f, -3e30f, 1.5f, 0}};
    static const int64_t rows[R] = {7, 5, 1};
    const mirt__real *at[R] = {value[0], value[1], value[2]};
    mirt__real out[N + 1], kept[N + 1] = {9, 9, 9, 9, 9, 3}; /* the last of each is not part of it */
    bool mean = true, sum = true;
    out[N] = 3;
    mirt__aggregate(MIRT_AGGREGATE_MEAN, R, at, rows, N, out);
    for (int i = 0; i < N; i++) {
        double exact = (7 * (double)value[0][i] + 5 * (double)value[1][i] + (double)value[2][i]) / 13;
        mean = mean && fabs((double)out[i] - exact) <= 6e-8 * fabs(exact);
    }
    ok(mean, "MEAN is weighted by rows");
    ok(out[0] == value[0][0] && out[4] == 0, "and of equal values it is exactly that value");
    for (int r = 1; r < 2000 && mean; r += 7) {
        const int64_t uneven[R] = {r, 1, r * (int64_t)r};
        mirt__aggregate(MIRT_AGGREGATE_MEAN, R, at, uneven, 1, out);
        mean = out[0] == value[0][0];
    }
    ok(mean, "for any rows");
    mirt__aggregate(MIRT_AGGREGATE_SUM, R, at, rows, N, out);
    for (int i = 0; i < N; i++)
        sum = sum && out[i] == (mirt__real)((double)value[0][i] + (double)value[1][i] + (double)value[2][i]);
    ok(sum, "SUM adds in double precision");
    mirt__aggregate(MIRT_AGGREGATE_FIRST, R, at, rows, N, out);
    ok(memcmp(out, value[0], sizeof value[0]) == 0, "FIRST is the first replica's");
    mirt__aggregate(MIRT_AGGREGATE_NONE, R, at, rows, N, kept);
    ok(kept[0] == 9 && kept[4] == 9, "NONE changes nothing");
    mirt__aggregated goes = {0, 0, N, MIRT_AGGREGATE_MEAN, 0, 0.99f, 0.01f};
    mean = true;
    mirt__aggregate(MIRT_AGGREGATE_MEAN, R, at, rows, N, out);
    mirt__aggregate_variable(&goes, R, at, rows, kept);
    for (int i = 0; i < N; i++) {
        volatile mirt__real old = 0.99f * 9, now = 0.01f * out[i];
        mean = mean && kept[i] == old + now;
    }
    ok(mean, "a moving average rounds each product and their sum");
    goes.kept = goes.taken = 0;
    mirt__aggregate_variable(&goes, R, at, rows, kept);
    ok(memcmp(kept, out, sizeof out) == 0, "without one the variable takes the value");
    ok(out[N] == 3 && kept[N] == 3, "numbers next to the value stay");
    const mirt__real infinite = (mirt__real)INFINITY, *alone[1] = {&infinite};
    mirt__aggregate(MIRT_AGGREGATE_MEAN, 1, alone, rows, 1, out);
    ok(out[0] == infinite, "the mean of one infinite value is that value");
}

/* Moments of shares of the rows, joined, against those of all rows. */
static void check_moments(void) {
    enum { ROWS = 203, N = 4, R = 4 };
    static double x[ROWS][N];
    static mirt__real mean[R][N], variance[R][N];
    mirt__real all_mean[N + 1], all_variance[N + 1];
    const mirt__real *means[R], *variances[R];
    mirt__random random = mirt__random_stream(1, 2);
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < N; k++)
            x[i][k] = (k == 3 ? 1000 : 0) + k * (double)mirt__random_below(&random, 1000) / 1000 +
                      (i > 100 ? 0.5 : 0) * (k == 2);
    }
    for (int active = 1; active <= R; active++) {
        static const int64_t share[R] = {1, 100, 2, 100};
        int64_t at = 0;
        double worst = 0;
        all_mean[N] = all_variance[N] = 3;
        for (int r = 0; r < active; r++) {
            means[r] = mean[r];
            variances[r] = variance[r];
            for (int k = 0; k < N; k++) {
                double m = 0, v = 0;
                for (int64_t i = at; i < at + share[r]; i++) m += x[i][k] / (double)share[r];
                for (int64_t i = at; i < at + share[r]; i++) v += (x[i][k] - m) * (x[i][k] - m) / (double)share[r];
                mean[r][k] = (mirt__real)m;
                variance[r][k] = (mirt__real)v;
            }
            at += share[r];
        }
        mirt__combine_moments(active, means, variances, share, N, all_mean, all_variance);
        for (int k = 0; k < N; k++) {
            double m = 0, v = 0;
            for (int64_t i = 0; i < at; i++) m += x[i][k] / (double)at;
            for (int64_t i = 0; i < at; i++) v += (x[i][k] - m) * (x[i][k] - m) / (double)at;
            worst = worse(worst, fabs((double)all_mean[k] - m) / (1 + fabs(m)));
            /* the shares' means are rounded at 1000 */
            worst = worse(worst, fabs((double)all_variance[k] - v) / (k == 3 ? 100 : 1));
        }
        ok(worst < 1e-6 && all_mean[N] == 3 && all_variance[N] == 3,
           "moments of %d shares join to those of all %d rows, off by %.1e", active, (int)at, worst);
    }
}

/* >>several strategies at once */

typedef struct job {
    const char *devices;
    uint64_t seed;
    mirt_optimizer optimizer;
    char digest[MIRT__SHA256_HEX];
} job;

/* A small network for 28x28 digits, trained for an epoch of shuffled batches. */
static void *train_digits(void *arg) {
    job *j = (job *)arg;
    mirt_strategy_desc d;
    mirt_conv2d_desc conv;
    mirt_dense_desc hidden, logits;
    mirt_fit_desc fit;
    memset(&d, 0, sizeof d);
    memset(&conv, 0, sizeof conv);
    memset(&hidden, 0, sizeof hidden);
    memset(&logits, 0, sizeof logits);
    memset(&fit, 0, sizeof fit);
    d.devices = j->devices;
    d.replicas = 3;
    d.seed = j->seed;
    d.silent = true;
    conv.filters = 4;
    conv.kernel[0] = 3;
    conv.activation = MIRT_RELU;
    hidden.units = 16;
    hidden.activation = MIRT_RELU;
    logits.units = 10;
    fit.epochs = 2;
    fit.no_progress = true;
    j->digest[0] = 0;
    mirt_strategy *s = mirt_strategy_create(&d);
    mirt_model *m = mirt_model_create(s, "digits");
    mirt_tensor *x = mirt_rescale(mirt_input(m, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0);
    x = mirt_dropout(mirt_max_pool2d(mirt_conv2d(x, &conv), NULL), 0.25f);
    mirt_model_output(m, mirt_dense(mirt_dense(mirt_flatten(x), &hidden), &logits));
    mirt_compile_desc c = image_compile(j->optimizer);
    mirt_dataset *data =
        mirt_prefetch(mirt_batch(mirt_shuffle(mirt_drawn_digits(200, j->seed, MIRT_TRAIN), 200), 33), 2);
    if (mirt_compile(m, &c) == MIRT_OK && mirt_fit(m, data, &fit))
        digest_weights(m, mirt_num_devices(s) - 1, j->digest);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    return NULL;
}

static void check_at_once(void) {
    job alone[2], together[2];
    pthread_t thread[2];
    memset(alone, 0, sizeof alone);
    alone[0].devices = "cpu:0";
    alone[0].seed = 5;
    alone[0].optimizer = mirt_adam(1e-3f);
    alone[1].devices = "cpu:1,cpu:2";
    alone[1].seed = 6;
    alone[1].optimizer = mirt_sgd(0.05f, 0.9f, false);
    memcpy(together, alone, sizeof alone);
    for (int i = 0; i < 2; i++) train_digits(&alone[i]);
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, train_digits, &together[i]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) {
        ok(alone[i].digest[0] && strcmp(alone[i].digest, together[i].digest) == 0,
           "the strategy on %s trains beside another to the bits it has alone", alone[i].devices);
    }
    ok(strcmp(alone[0].digest, alone[1].digest) != 0, "two different models");
}

/* Strategies come and go; each is right, and errors stay in the thread that made them. */
static void *create_many(void *arg) {
    int *good = (int *)arg;
    for (int i = 0; i < 25; i++) {
        mirt_strategy *s = make_strategy((mirt_strategy_kind)(i % 3), (mirt_collective)(i % 4),
                                         i % 3 == 1 ? "cpu:1"
                                         : i % 2    ? "cpu:0,cpu:2"
                                                    : "3",
                                         3);
        mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.3f);
        *good += m && mirt_train_step(m, images_x(i, 8), images_y(i, 8), NULL) == MIRT_OK && copies_agree(m);
        mirt_strategy_destroy(s);
        *good += !mirt_one_device(good[1] ? "cpu:77" : "cpu:88") &&
                 strstr(mirt_last_error(), good[1] ? "cpu:77" : "cpu:88") != NULL;
    }
    return NULL;
}

static void check_coming_and_going(void) {
    int good[2][2] = {{0, 0}, {0, 1}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, create_many, good[i]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    ok(good[0][0] == 50 && good[1][0] == 50, "strategies are made, trained with and destroyed in two threads at once");
}

int main(void) {
    setenv("MIRT_CORES", "4", 1); /* names must exist; nothing here depends on how many there are */
    draw_images();
    check_collectives();
    check_buckets();
    check_sums(MIRT_TREE);
    check_sums(MIRT_RING);
    check_sums(MIRT_REDUCE_TO_ONE_DEVICE);
    check_orders();
    check_own_sum();
    check_unreached();
    check_memory_moved();
    check_kind(MIRT_CENTRAL_STORAGE, "1", "central storage on 1 device");
    check_kind(MIRT_CENTRAL_STORAGE, "cpu:0,cpu:1,cpu:2", "central storage on 3 cores");
    check_kind(MIRT_ONE_DEVICE, NULL, "one device");
    check_kind(MIRT_MIRRORED, "3", "mirrored on 3 devices");
    check_central_copies();
    check_names();
    check_errors();
    check_aggregation();
    check_moments();
    check_at_once();
    check_coming_and_going();
    rmdir(work_directory());
    return done_testing();
}
