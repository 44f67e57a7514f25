/* Training is bit-identical on any number of devices and threads, and in separate stages. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

enum { BATCH = 37 }; /* 302 images: eight batches, and one of 6, of which 8 replicas get 1, 1, 1, 1, 1, 1, 0, 0 */

/* The digest of the saved file (weights, optimizer slots, settings) after `steps` shuffled steps; "" after an error. */
static void train(mirt_strategy *s, mirt_optimizer optimizer, int64_t steps, char out[MIRT__SHA256_HEX], bool *agree) {
    mirt_fit_desc fit;
    char path[300];
    size_t size;
    memset(&fit, 0, sizeof fit);
    out[0] = 0;
    *agree = false;
    mirt_model *m = s ? image_model(s, optimizer, 0.3f) : NULL;
    mirt_dataset *data = mirt_batch(mirt_shuffle(mirt_arrays(images_x(0, IMAGES), images_y(0, IMAGES)), IMAGES), BATCH);
    fit.max_steps = steps;
    fit.epochs = 1000;
    fit.no_progress = true;
    snprintf(path, sizeof path, "%s/model.safetensors", work_directory());
    if (m && mirt_fit(m, data, &fit) && mirt_step(m) == steps && mirt_save(m, path, MIRT_SAVE_ALL) == MIRT_OK) {
        char *bytes = file_bytes(path, &size);
        digest_of(bytes, size, out);
        free(bytes);
        *agree = copies_agree(m);
    }
    unlink(path);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

static void check_same(const char *want, mirt_optimizer optimizer, int64_t steps, int devices, int replicas,
                       int threads) {
    char have[MIRT__SHA256_HEX];
    bool agree;
    train(strategy_of(devices, replicas, threads), optimizer, steps, have, &agree);
    ok(have[0] && strcmp(have, want) == 0, "%d replicas, %d steps: %d devices of %d threads give the bits of one%s%s",
       replicas, (int)steps, devices, threads, have[0] ? "" : ": ", have[0] ? "" : mirt_last_error());
    ok(agree, "%d replicas: the copies of %d devices are equal", replicas, devices);
}

static void check_eight_replicas(void) {
    static const int devices[] = {1, 2, 3, 4, 8};
    const int64_t steps = small_tier() ? 12 : 200;
    char want[MIRT__SHA256_HEX];
    bool agree;
    train(strategy_of(1, 8, 1), mirt_adam(1e-3f), steps, want, &agree);
    for (int i = 0; i < MIRT__COUNT(devices); i++) {
        for (int threads = 1; threads <= 3; threads++) {
            if (small_tier() && threads * devices[i] > 8) continue;
            check_same(want, mirt_adam(1e-3f), steps, devices[i], 8, threads);
        }
    }
}

static void check_odd_replicas(void) {
    static const int replicas[] = {3, 5, 7};
    for (int i = 0; i < MIRT__COUNT(replicas); i++) {
        char want[MIRT__SHA256_HEX], before[MIRT__SHA256_HEX] = "";
        bool agree;
        train(strategy_of(1, replicas[i], 1), mirt_sgd(0.05f, 0.9f, true), 20, want, &agree);
        for (int p = 2; p <= replicas[i]; p++) check_same(want, mirt_sgd(0.05f, 0.9f, true), 20, p, replicas[i], 1);
        ok(strcmp(want, before) != 0, "%d replicas: other sums than fewer replicas, so other bits", replicas[i]);
        memcpy(before, want, sizeof before);
    }
}

static void check_optimizers(void) {
    mirt_optimizer optimizer[] = {mirt_sgd(0.05f, 0, false),
                                  mirt_sgd(0.05f, 0.9f, false),
                                  mirt_sgd(0.05f, 0.9f, true),
                                  mirt_adam(2e-3f),
                                  mirt_adamw(2e-3f),
                                  mirt_adamw(2e-3f),
                                  mirt_sgd(0.05f, 0.9f, false),
                                  mirt_rmsprop(1e-3f),
                                  mirt_adam(2e-3f),
                                  mirt_nadam(2e-3f),
                                  mirt_adagrad(0.05f),
                                  mirt_adamax(2e-3f),
                                  mirt_lion(1e-3f),
                                  mirt_adadelta(1),
                                  mirt_schedule_free_adamw(2e-3f),
                                  mirt_ftrl(0.05f),
                                  mirt_lamb(0.05f),
                                  mirt_lamb(0.05f),
                                  mirt_muon(0.02f),
                                  mirt_muon(0.02f),
                                  mirt_adafactor(0.05f),
                                  mirt_adafactor(0.05f)};
    optimizer[4].global_clipnorm = 0.5f;
    optimizer[5].clipnorm = 0.25f;
    optimizer[5].exclude_from_weight_decay = "bias";
    optimizer[5].use_ema = true;
    optimizer[5].ema_overwrite_frequency = 5;
    optimizer[6].clipvalue = 0.01f;
    optimizer[6].use_ema = true;
    optimizer[7].global_clipnorm = 0.1f;
    optimizer[7].centered = true;
    optimizer[8].amsgrad = true;
    optimizer[8].decay = mirt_cosine_decay(2e-3f, 8, 0.125f);
    optimizer[9].clipnorm = 0.25f;
    optimizer[11].use_ema = true;
    optimizer[12].weight_decay = 0.1f;
    optimizer[17].clipnorm = 0.25f;
    optimizer[17].weight_decay = 0.1f;
    optimizer[17].use_ema = true;
    optimizer[19].global_clipnorm = 0.5f;
    optimizer[19].use_ema = true;
    optimizer[19].exclude_layers = "dense";
    optimizer[21].clipvalue = 0.01f;
    optimizer[21].weight_decay = 0.1f;
    optimizer[21].use_ema = true;
    for (int i = 0; i < MIRT__COUNT(optimizer); i++) {
        char want[MIRT__SHA256_HEX];
        bool agree;
        train(strategy_of(1, 5, 1), optimizer[i], 12, want, &agree);
        check_same(want, optimizer[i], 12, 3, 5, 2);
        if (i > 3) check_same(want, optimizer[i], 12, 5, 5, 1);
    }
}

/* The order of additions is that of shapes alone, whatever the length of a vector. */
static void check_instruction_sets(void) {
    static const char *const simd[] = {"avx512bf16", "avx512", "avx2", "neonbf16", "neon"};
    char want[MIRT__SHA256_HEX] = "", have[MIRT__SHA256_HEX];
    const char *first = NULL;
    int compared = 0;
    bool agree;
    for (int i = 0; i < MIRT__COUNT(simd); i++) {
        setenv("MIRT_CPU", simd[i], 1);
        mirt_strategy *s = strategy_of(2, 4, 1);
        if (!s || strcmp(s->kernels->name, simd[i]) != 0) {
            mirt_strategy_destroy(s);
            continue;
        }
        train(s, mirt_adam(1e-3f), small_tier() ? 12 : 200, first ? have : want, &agree);
        if (first) ok(strcmp(have, want) == 0 && want[0], "%s trains to the bits of %s", simd[i], first);
        compared += first != NULL;
        first = simd[i];
    }
    unsetenv("MIRT_CPU");
    if (!compared) skip("this machine has one instruction set to compare");
}

/* Two replicas round their sums in another order than one does. Ten steps of plain gradient descent
   on weights below 1 keep the difference at some units in the last place: 6e-8 each. */
static void check_two_against_one(void) {
    float *w[2];
    size_t count[2];
    double worst = 0, largest = 0;
    for (int v = 0; v < 2; v++) {
        mirt_strategy *s = strategy_of(1, v + 1, 1);
        mirt_model *m = image_model(s, mirt_sgd(0.1f, 0, false), 0.3f);
        for (int i = 0; i < 10; i++)
            mirt_train_step(m, images_x(i * 29, 29 - i % 2), images_y(i * 29, 29 - i % 2), NULL);
        w[v] = all_weights(m, 0, &count[v]);
        mirt_strategy_destroy(s);
    }
    for (size_t i = 0; i < count[0]; i++) {
        worst = worse(worst, fabs((double)w[0][i] - (double)w[1][i]));
        largest = fmax(largest, fabs((double)w[0][i]));
    }
    ok(count[0] == count[1] && largest > 0.1 && worst < 1e-6 * largest,
       "2 replicas equal 1 to rounding: off by %.1e of the largest weight", worst / largest);
    free(w[0]);
    free(w[1]);
}

/* By hand with a one and one replica: what all_reduce sums is what each device had. */
static bool gradients_add_up(mirt_model *m, const float *before, size_t count) {
    float *after = (float *)malloc(count * sizeof(float));
    double worst = 0, largest = 0;
    bool good = mirt_get_gradient(m, "dense/kernel", 0, after, count) == MIRT_OK;
    for (size_t i = 0; good && i < count; i++) {
        worst = worse(worst, fabs((double)after[i] - (double)before[i]));
        largest = fmax(largest, fabs((double)after[i]));
    }
    for (int d = 1; good && d < mirt_num_devices(m->strategy); d++) {
        float *other = (float *)malloc(count * sizeof(float));
        good = mirt_get_gradient(m, "dense/kernel", d, other, count) == MIRT_OK &&
               memcmp(other, after, count * sizeof(float)) == 0;
        free(other);
    }
    free(after);
    return good && largest > 0 && worst <= 1e-6 * largest;
}

/* The sum over devices of their own sums, before the exchange. */
static float *own_gradients(mirt_model *m, size_t count) {
    float *sum = (float *)calloc(count, sizeof(float)), *one = (float *)malloc(count * sizeof(float));
    for (int d = 0; d < mirt_num_devices(m->strategy); d++) {
        if (mirt_get_gradient(m, "dense/kernel", d, one, count) != MIRT_OK) continue;
        for (size_t i = 0; i < count; i++) sum[i] += one[i];
    }
    free(one);
    return sum;
}

static void check_four_stages(int devices, int replicas, mirt_optimizer optimizer, const char *name) {
    static const int rows[] = {37, 16, 1, 3, 29, 8};
    mirt_strategy *s = strategy_of(devices, replicas, 1), *t = strategy_of(devices, replicas, 2);
    mirt_model *hand = image_model(s, optimizer, 0.3f), *whole = image_model(t, optimizer, 0.3f);
    char a[MIRT__SHA256_HEX], b[MIRT__SHA256_HEX];
    bool good = hand && whole, sums = true, losses = true;
    for (int i = 0; good && i < MIRT__COUNT(rows); i++) {
        double loss[2] = {0, -1};
        const size_t count = (size_t)(hand->variable[mirt__variable_find(hand, "dense/kernel")].count);
        good = mirt_scatter(hand, images_x(i * 40, rows[i]), images_y(i * 40, rows[i])) == MIRT_OK &&
               mirt_grad(hand, &loss[0]) == MIRT_OK;
        float *own = good ? own_gradients(hand, count) : NULL;
        good = good && mirt_all_reduce(hand) == MIRT_OK;
        sums = sums && good && gradients_add_up(hand, own, count);
        good = good && mirt_apply(hand) == MIRT_OK &&
               mirt_train_step(whole, images_x(i * 40, rows[i]), images_y(i * 40, rows[i]), &loss[1]) == MIRT_OK;
        losses = losses && loss[0] == loss[1];
        free(own);
    }
    digest_weights(hand, 0, a);
    digest_weights(whole, 0, b);
    ok(good && strcmp(a, b) == 0 && losses, "%d replicas, %d devices, %s: four stages equal the one step%s%s", replicas,
       devices, name, good ? "" : ": ", good ? "" : mirt_last_error());
    ok(sums, "%d replicas, %d devices, %s: the reduced gradient is the sum of the devices', on each of them", replicas,
       devices, name);
    ok(copies_agree(hand) && copies_agree(whole), "%d replicas, %d devices, %s: all copies are equal", replicas,
       devices, name);
    mirt_strategy_destroy(s);
    mirt_strategy_destroy(t);
}

/* A step of rate 1 whose gradients are too large moves the weights by as much as the norm may be. */
static void check_clipped_step(int devices, int replicas, bool stages) {
    size_t count, again;
    double squares = 0;
    mirt_optimizer o = mirt_sgd(1, 0, false);
    o.global_clipnorm = 0.03125f;
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    mirt_model *m = image_model(s, o, 0);
    float *before = all_weights(m, 0, &count);
    bool good = !stages && mirt_train_step(m, images_x(0, 40), images_y(0, 40), NULL) == MIRT_OK;
    if (stages) {
        good = mirt_scatter(m, images_x(0, 40), images_y(0, 40)) == MIRT_OK && mirt_grad(m, NULL) == MIRT_OK &&
               mirt_all_reduce(m) == MIRT_OK && mirt_apply(m) == MIRT_OK;
    }
    float *after = all_weights(m, devices - 1, &again);
    for (size_t i = 0; good && i < count; i++) {
        const double moved = (double)after[i] - (double)before[i];
        squares += moved * moved;
    }
    ok(good && count == again && fabs(sqrt(squares) - 0.03125) < 1e-6,
       "%d replicas, %d devices, %s: a gradient clipped to 0.03125 moves the weights by %.7f", replicas, devices,
       stages ? "four stages" : "one step", sqrt(squares));
    free(before);
    free(after);
    mirt_strategy_destroy(s);
}

/* A chain of dense layers without bias, from `in` numbers. */
static mirt_model *dense_chain(mirt_strategy *s, int in, const int *units, int count, mirt_optimizer optimizer) {
    mirt_model *m = mirt_model_create(s, "chain");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(in));
    mirt_dense_desc dense;
    mirt_compile_desc c;
    memset(&dense, 0, sizeof dense);
    memset(&c, 0, sizeof c);
    dense.no_bias = true;
    for (int i = 0; i < count; i++) {
        dense.units = units[i];
        x = mirt_dense(x, &dense);
    }
    mirt_model_output(m, x);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    c.optimizer = optimizer;
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* So many pieces of gradients that a device squares them in several rounds. */
static void check_many_pieces(void) {
    enum { IN = 1024, OUT = 8192 + 24, ROWS = 2 };
    static float x[ROWS * IN], y[ROWS * OUT];
    const int units[] = {OUT};
    mirt_optimizer clipped = mirt_sgd(1, 0, false);
    float *after[2] = {NULL, NULL};
    size_t count[2] = {0, 0};
    double squares = 0;
    clipped.global_clipnorm = 0.0078125f;
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)(i % 17) / 16;
    for (int k = 0; k < 2; k++) {
        mirt_strategy *s = strategy_of(k ? 2 : 1, 2, 1);
        mirt_model *m = dense_chain(s, IN, units, 1, clipped);
        size_t same = 0;
        float *before = m ? all_weights(m, 0, &same) : NULL;
        bool good = m && mirt_train_step(m, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(ROWS, IN)),
                                         mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(ROWS, OUT)), NULL) == MIRT_OK;
        if (good) after[k] = all_weights(m, 0, &count[k]);
        for (size_t i = 0; after[k] && !k && i < count[k] && i < same; i++)
            squares += ((double)after[k][i] - (double)before[i]) * ((double)after[k][i] - (double)before[i]);
        free(before);
        mirt_strategy_destroy(s);
    }
    ok(fabs(sqrt(squares) - 0.0078125) < 1e-5, "a wide layer's weights move by their limit, 0.0078125 (%.7f)",
       sqrt(squares));
    ok(after[0] && after[1] && count[0] == count[1] && memcmp(after[0], after[1], count[0] * sizeof(float)) == 0,
       "... and to the same bits on one device and on two (%zu weights)", count[0]);
    free(after[0]);
    free(after[1]);
}

/* The last program node that reads a gradient of elements [begin, end). */
static int last_read(const mirt__program *program, int64_t begin, int64_t end) {
    int last = -1;
    for (int i = 0; i < program->graph.count; i++) {
        for (int k = 0; k < program->graph.node[i]->num_out; k++) {
            const mirt_tensor *t = program->graph.node[i]->out[k];
            const int64_t at = (int64_t)t->offset / 4;
            if (t->space == MIRT__SPACE_GRADIENT && at >= begin && at < end && t->last > last) last = t->last;
        }
    }
    return last;
}

/* Buckets are whole variables, from the back: the first one of 1 MB or more, the others of 25 MB or more, which a
   variable of exactly 25 MB fills. */
static void check_buckets(void) {
    enum { WIDE = 2560, OUT = 1024 }; /* WIDE * WIDE floats are 25 MB, WIDE * OUT are 10 */
    static float x[8], y[OUT];
    static const int64_t filled[] = {WIDE * OUT, WIDE * WIDE, 8 * WIDE};
    mirt_strategy *s = strategy_of(1, 1, 1);
    static const int units[] = {WIDE, WIDE, OUT};
    mirt_model *m = dense_chain(s, 8, units, 3, mirt_sgd(0.1f, 0, false));
    bool good = m && mirt_train_step(m, mirt_make_array(x, MIRT_FLOAT32, MIRT_SHAPE(1, 8)),
                                     mirt_make_array(y, MIRT_FLOAT32, MIRT_SHAPE(1, OUT)), NULL) == MIRT_OK;
    const mirt__step *step = good ? &m->trainer->function[MIRT__TRAIN]->step : NULL;
    good = step && step->num_buckets == MIRT__COUNT(filled);
    bool ready = good;
    for (int i = 0; good && i < step->num_buckets; i++) {
        const mirt__bucket *b = &step->bucket[i];
        good = b->elements == filled[i] && b->end == (i ? b[-1].begin : (int64_t)(step->gradient_bytes / 4));
        ready = ready && b->ready == last_read(&step->program, b->begin, b->end) && (!i || b->ready > b[-1].ready);
    }
    ok(good && step->bucket[2].begin == 0, "three buckets cover the gradients from the back (%d)",
       step ? step->num_buckets : 0);
    ok(ready, "and are ready once their gradients have been read, one after the other");
    mirt_strategy_destroy(s);
}

static void check_stage_order(void) {
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    ok(mirt_grad(m, NULL) == MIRT_E_STATE && strstr(mirt_last_error(), "mirt_scatter"), "grad before scatter: \"%s\"",
       mirt_last_error());
    mirt_scatter(m, images_x(0, 9), images_y(0, 9));
    ok(mirt_all_reduce(m) == MIRT_E_STATE && strstr(mirt_last_error(), "mirt_grad"), "all_reduce before grad: \"%s\"",
       mirt_last_error());
    mirt_grad(m, NULL);
    ok(mirt_apply(m) == MIRT_E_STATE && strstr(mirt_last_error(), "mirt_all_reduce"), "apply before all_reduce: \"%s\"",
       mirt_last_error());
    ok(mirt_all_reduce(m) == MIRT_OK && mirt_apply(m) == MIRT_OK && mirt_step(m) == 1,
       "what was refused leaves the step as it was");
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_images();
    check_eight_replicas();
    check_odd_replicas();
    check_optimizers();
    check_instruction_sets();
    check_two_against_one();
    check_four_stages(1, 1, mirt_adam(1e-3f), "Adam");
    check_four_stages(2, 2, mirt_sgd(0.05f, 0, false), "SGD");
    check_four_stages(2, 5, mirt_sgd(0.05f, 0.9f, false), "momentum");
    check_four_stages(3, 8, mirt_sgd(0.05f, 0.9f, true), "Nesterov");
    check_four_stages(3, 7, mirt_adam(1e-3f), "Adam");
    for (int run = 0; run < 4; run++) check_clipped_step(run & 1 ? 3 : 1, run & 1 ? 5 : 1, run & 2);
    check_many_pieces();
    check_buckets();
    check_stage_order();
    rmdir(work_directory());
    return done_testing();
}
