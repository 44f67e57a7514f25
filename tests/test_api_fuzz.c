/* Random calls of the public interface with random and wrong arguments. None crashes, every failure has a message, and
   the same calls on one and on two devices have bit-identical results. `test_api_fuzz SEQUENCES SEED` does more of
   them. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

/* A small machine, so that what is huge fails at once. */
void *hook_malloc(size_t size) { return size <= (size_t)1 << 24 ? malloc(size) : NULL; }
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "gallery.h"
#include "tap.h"

#include <pthread.h>

enum { MODELS = 5, TENSORS = 12, FUNCTIONS = 3, ROWS = 5 };

typedef struct world {
    mirt_strategy *strategy;
    mirt_model *model[MODELS];
    mirt_tensor *tensor[MODELS][TENSORS];
    mirt_function *function[FUNCTIONS];
    mirt_dataset *data;
    uint64_t random, digest;
    int wrong, calls, good;
    float values[2][4096];
} world;

static float numbers[4096];

static int below(world *w, int bound) {
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (int)((w->random >> 33) % (uint64_t)bound);
}

static void digest(world *w, const void *data, size_t size) {
    for (size_t i = 0; i < size; i++) w->digest = (w->digest ^ ((const unsigned char *)data)[i]) * 1099511628211u;
}

/* A status: failures come with a sentence. */
static bool took(world *w, mirt_status status) {
    int code = (int)status;
    w->calls++;
    w->good += status == MIRT_OK;
    digest(w, &code, sizeof code);
    bool fine = status == MIRT_OK || ((int)status > 0 && status < MIRT__STATUS_COUNT && mirt_last_status() == status &&
                                      mirt_last_error()[0] && !strchr(mirt_last_error(), '\n'));
    if (!fine && w->wrong++ < 5)
        printf("# status %d, last %d: \"%s\"\n", code, (int)mirt_last_status(), mirt_last_error());
    return status == MIRT_OK;
}

static int64_t odd_number(world *w) {
    static const int64_t odd[] = {0, -1, -2, 7, 64, INT32_MAX, INT32_MIN, (int64_t)1 << 40, INT64_MAX, INT64_MIN};
    return below(w, 8) ? 1 + below(w, 3) : odd[below(w, MIRT__COUNT(odd))];
}

static int odd_int(world *w) {
    int64_t n = odd_number(w);
    return n > INT_MAX ? INT_MAX : n < INT_MIN ? INT_MIN : (int)n;
}

static mirt_shape odd_shape(world *w) {
    mirt_shape s;
    memset(&s, 0, sizeof s);
    s.rank = below(w, 30) ? below(w, 4) : odd_int(w);
    for (int i = 0; i < MIRT_MAX_RANK; i++) s.dim[i] = odd_number(w);
    return s;
}

static mirt_tensor *any_tensor(world *w, int m) {
    if (below(w, 40) == 0) m = below(w, MODELS);
    mirt_tensor *t = NULL;
    for (int tries = 0; !t && tries < (below(w, 60) ? 8 : 0); tries++) t = w->tensor[m][below(w, TENSORS)];
    return t;
}

static void keep(world *w, int m, mirt_tensor *t) {
    if (t && t->node->graph->model == w->model[m]) w->tensor[m][below(w, TENSORS)] = t;
}

static mirt_tensor *odd_operation(world *w, mirt_tensor *x, mirt_tensor *y) {
    static mirt_tensor *(*const one[])(mirt_tensor *) = {
        mirt_negative,      mirt_square,        mirt_relu,
        mirt_sigmoid,       mirt_tanh,          mirt_exp,
        mirt_log,           mirt_sqrt,          mirt_rsqrt,
        mirt_abs,           mirt_sign,          mirt_floor,
        mirt_gelu,          mirt_softplus,      mirt_logical_not,
        mirt_stop_gradient, mirt_softmax,       mirt_log_softmax,
        mirt_flatten,       mirt_softmax_layer, mirt_global_max_pool2d,
        mirt_selu,          mirt_mish,          mirt_softsign,
        mirt_gelu_approximate, mirt_hard_tanh,  mirt_log_sigmoid,
        mirt_sparse_plus,   mirt_sparse_sigmoid, mirt_tanh_shrink};
    static mirt_tensor *(*const two[])(mirt_tensor *, mirt_tensor *) = {
        mirt_add,   mirt_subtract, mirt_multiply,      mirt_divide,      mirt_maximum, mirt_minimum,
        mirt_equal, mirt_less,     mirt_greater_equal, mirt_logical_and, mirt_gather};
    static mirt_tensor *(*const reduce[])(mirt_tensor *, unsigned, bool) = {mirt_reduce_sum, mirt_reduce_mean,
                                                                            mirt_reduce_max, mirt_reduce_variance};
    mirt_tensor *in[8] = {x, y, x, y, x, y, x, y}, *out[8];
    int64_t a[MIRT_MAX_RANK], b[MIRT_MAX_RANK];
    int permutation[MIRT_MAX_RANK];
    for (int i = 0; i < MIRT_MAX_RANK; i++) {
        a[i] = below(w, 3) ? 0 : odd_number(w);
        b[i] = below(w, 3) ? -1 : odd_number(w);
        permutation[i] = below(w, 5) ? i : odd_int(w);
    }
    switch (below(w, 20)) {
    case 0: case 1: case 2: return one[below(w, MIRT__COUNT(one))](x);
    case 3: case 4: case 5: return two[below(w, MIRT__COUNT(two))](x, y);
    case 6: return reduce[below(w, MIRT__COUNT(reduce))](x, (unsigned)odd_int(w), below(w, 2));
    case 7: return mirt_where(mirt_less(x, y), x, y);
    case 8: return mirt_matmul(x, y, below(w, 2), below(w, 2));
    case 9: return mirt_argmax(x, odd_int(w));
    case 10: return below(w, 2) ? mirt_cumsum(x, odd_int(w)) : mirt_sparsemax(x, odd_int(w));
    case 11: return mirt_transpose(x, below(w, 3) ? permutation : NULL);
    case 12: return mirt_concat(in, below(w, 3) + 1, odd_int(w));
    case 13: return mirt_split_tensor(x, 1 + below(w, 8), odd_int(w), out);
    case 14: return mirt_slice(x, below(w, 9) ? a : NULL, b);
    case 15: return mirt_pad(x, a, below(w, 9) ? a : NULL, (float)odd_number(w));
    case 16: return mirt_reshape(x, odd_shape(w));
    case 17: return mirt_cast(x, (mirt_dtype)(below(w, 12) ? below(w, MIRT__DTYPE_COUNT) : odd_int(w)));
    case 18: return mirt_one_hot(x, odd_number(w));
    default:
        return mirt_tensor_dtype(x) != MIRT_FLOAT32
                   ? NULL
                   : mirt_custom_op(&gallery_twice, in, odd_int(w) & 7, below(w, 9) ? "conf" : NULL);
    }
}

static mirt_tensor *odd_layer(world *w, mirt_tensor *x, mirt_tensor *y) {
    mirt_dense_desc dense;
    mirt_conv2d_desc conv;
    mirt_tensor *in[4] = {x, y, x, y};
    gallery_config config;
    mirt_dot_desc dot;
    memset(&dense, 0, sizeof dense);
    memset(&conv, 0, sizeof conv);
    dense.units = below(w, 10) ? 3 : odd_int(w) % 5000;
    dense.activation = (mirt_activation_kind)(below(w, 20) ? below(w, MIRT__ACTIVATION_COUNT) : odd_int(w));
    dense.kernel_regularizer.l2 = below(w, 3) ? 0 : (float)odd_number(w);
    dense.name = below(w, 8) ? NULL : below(w, 2) ? "same" : "a/b";
    conv.filters = conv.kernel[0] = 2;
    conv.strides[0] = odd_int(w);
    conv.dilation[0] = below(w, 5) ? 1 : odd_int(w);
    conv.padding = (mirt_padding)below(w, 3);
    config.units = odd_int(w) % 5000;
    config.scale = 0.5f;
    config.shifted = true;
    memset(&dot, 0, sizeof dot);
    dot.axes[0] = odd_int(w);
    dot.axes[1] = odd_int(w);
    dot.normalize = below(w, 2);
    switch (below(w, 15)) {
    case 0: case 1: case 2: return mirt_dense(x, below(w, 30) ? &dense : NULL);
    case 3: return mirt_conv2d(x, &conv);
    case 4: return mirt_conv2d_transpose(x, &conv);
    case 5: return mirt_max_pool2d(x, NULL);
    case 6: return mirt_batch_norm(x, NULL);
    case 7: return mirt_layer_norm(x, NULL);
    case 8: return mirt_dropout(x, below(w, 9) ? 0.5f : (float)odd_number(w));
    case 9: return mirt_custom_layer(&gallery_layer, in, odd_int(w) & 3, below(w, 9) ? &config : NULL, NULL);
    case 10: return mirt_add_layer(in, 2);
    case 11: return mirt_concatenate(in, odd_int(w) & 3, odd_int(w));
    case 12: return mirt_reshape_layer(x, odd_shape(w));
    case 13: return mirt_dot(x, y, below(w, 2) ? NULL : &dot);
    default: return mirt_prelu(x, NULL);
    }
}

static void forget_functions(world *w) {
    for (int i = 0; i < FUNCTIONS; i++) {
        mirt_function_destroy(w->function[i]);
        w->function[i] = NULL;
    }
}

static void odd_destroy(world *w, int m) {
    forget_functions(w);
    mirt_model_destroy(w->model[m]);
    w->model[m] = NULL;
    memset(w->tensor[m], 0, sizeof w->tensor[m]);
}

static void odd_model(world *w, int m) {
    odd_destroy(w, m);
    w->model[m] = mirt_model_create(w->strategy, below(w, 2) ? "one" : NULL);
    w->tensor[m][0] = mirt_input(w->model[m], MIRT_SHAPE(3));
    w->tensor[m][1] = mirt_variable(w->model[m], "own", MIRT_SHAPE(3), mirt_ones(), true);
    w->tensor[m][2] = below(w, 4) ? gallery_dense(w->tensor[m][0], 3, 0)
                                  : mirt_input(w->model[m], below(w, 3) ? MIRT_SHAPE(4, 4, 1) : odd_shape(w));
    for (int i = 0; i < 3; i++)
        keep(w, m,
             below(w, 2) ? odd_operation(w, any_tensor(w, m), any_tensor(w, m))
                         : odd_layer(w, any_tensor(w, m), any_tensor(w, m)));
}

/* A batch as the model would have it, mostly. */
static mirt_data odd_batch(world *w, const mirt_model *m) {
    mirt_data d;
    memset(&d, 0, sizeof d);
    for (int i = 0; m && i < m->num_inputs + mirt__num_labels(m); i++) {
        mirt_shape s = m->input[i < m->num_inputs ? i : 0]->shape;
        int output = 0;
        while (i >= m->num_inputs && output < m->num_outputs &&
               (!mirt__output_has_loss(m, output) || mirt__label_number(m, output) != i - m->num_inputs))
            output++;
        if (i >= m->num_inputs) s = mirt__label_count(m, output) == 1 ? MIRT_SHAPE(1) : m->output[output]->shape;
        s.dim[0] = ROWS;
        if (below(w, 40) == 0) s = odd_shape(w);
        bool fits = s.rank >= 0 && s.rank <= MIRT_MAX_RANK && mirt__shape_count(&s) <= MIRT__COUNT(numbers);
        for (int k = 0; fits && k < s.rank; k++) fits = s.dim[k] > 0;
        mirt_array a = mirt_make_array(numbers,
                                       (mirt_dtype)(below(w, 9) == 0    ? below(w, 5)
                                                    : i < m->num_inputs ? MIRT_FLOAT32
                                                                        : MIRT_UINT8),
                                       s);
        if (!fits && s.rank > 0) a.shape = MIRT_SHAPE(ROWS);
        *(i < m->num_inputs ? &d.x[i] : &d.y[i - m->num_inputs]) = a;
    }
    return d;
}

static mirt_status odd_compile(world *w, int m) {
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = below(w, 2) ? mirt_sgd(0.01f, below(w, 2) ? 0.9f : 0, below(w, 2))
                              : mirt_adam(below(w, 12) ? 0.01f : (float)odd_number(w));
    c.loss = (mirt_loss)(below(w, 12) ? below(w, MIRT__LOSS_COUNT) : odd_int(w));
    c.from_logits = below(w, 2);
    c.reduction = (mirt_reduction)below(w, 3);
    c.metrics[0] = (mirt_metric)below(w, 3);
    if (below(w, 4) == 0) c.custom_losses[below(w, 3)] = &gallery_loss;
    if (below(w, 4) == 0) c.custom_metrics[0] = &gallery_metric;
    return mirt_compile(w->model[m], &c);
}

/* A random body: calls of models, operations, a loss, results. */
static bool odd_body(mirt_function *f, void *user) {
    world *w = (world *)user;
    mirt_tensor *t[4] = {mirt_function_x(f, below(w, 9) ? 0 : odd_int(w)),
                         mirt_function_variable(f, below(w, 9) ? "own" : "dense/kernel"), NULL, NULL};
    t[2] = mirt_call(w->model[below(w, MODELS)], t[0], (mirt_training)below(w, 4));
    if (below(w, 20) == 0) mirt_model_destroy(f->model);
    if (below(w, 20) == 0) took(w, odd_compile(w, below(w, MODELS)));
    for (int i = 0; i < 5; i++) {
        mirt_tensor *made = odd_operation(w, t[below(w, 4)], t[below(w, 4)]);
        t[below(w, 4)] = made && below(w, 9) == 0 ? mirt_replica_all_reduce(made, (mirt_reduce_op)below(w, 3)) : made;
    }
    took(w, mirt_function_result(f, "r", t[below(w, 4)]));
    if (below(w, 2)) took(w, mirt_minimize(f, t[below(w, 4)]));
    if (below(w, 4) == 0) took(w, mirt_assign(f, t[1], t[below(w, 4)], (mirt_aggregation)below(w, 5)));
    return below(w, 20) != 0;
}

static void odd_function(world *w, int m) {
    int i = below(w, FUNCTIONS);
    mirt_global_batch batch;
    double value[16];
    if (!w->function[i]) w->function[i] = mirt_function_create(w->model[m], below(w, 4) ? w->data : NULL, odd_body, w);
    if (!w->function[i]) return;
    took(w, mirt_dataset_next(w->data, &batch));
    if (took(w, mirt_function_run(w->function[i], below(w, 8) && batch.rows ? &batch : NULL)) &&
        mirt_reduce(w->function[i], "r", MIRT_REDUCE_SUM, value, (size_t)(1 + below(w, 16))) == MIRT_OK)
        digest(w, value, sizeof *value);
}

static int meddling(const mirt_event *event, void *user) {
    world *w = (world *)user;
    if (below(w, 4) == 0) mirt_model_destroy(event->model);
    if (below(w, 4) == 0) mirt_strategy_destroy(w->strategy);
    if (below(w, 4) == 0) took(w, mirt_compile(w->model[below(w, MODELS)], NULL));
    if (below(w, 4) == 0) took(w, mirt_set_trainable(w->model[below(w, MODELS)], NULL, below(w, 2)));
    return below(w, 8) == 0;
}

static void odd_fit(world *w, int m) {
    mirt_callback callback;
    mirt_fit_desc fit;
    memset(&callback, 0, sizeof callback);
    memset(&fit, 0, sizeof fit);
    callback.user = w;
    callback.batch_begin = callback.epoch_end = meddling;
    fit.callbacks[0] = &callback;
    fit.epochs = below(w, 8) ? 1 + below(w, 2) : odd_int(w) % 3;
    fit.max_steps = below(w, 8) ? 4 : odd_number(w);
    if (fit.max_steps == 0 || fit.max_steps > 8) fit.max_steps = 8;
    fit.validation = below(w, 4) ? NULL : w->data;
    fit.no_progress = true;
    mirt_data d = odd_batch(w, w->model[m]);
    mirt_dataset *data = mirt_arrays_of(&d);
    for (int i = below(w, 3); i > 0; i--) {
        int n = odd_int(w);
        switch (below(w, 6)) {
        case 0: data = mirt_shuffle(data, n); break;
        case 1: data = mirt_batch(data, n); break;
        case 2: data = mirt_take(data, n); break;
        case 3: data = mirt_skip(data, n); break;
        case 4: data = mirt_accumulate(data, n); break;
        default: data = mirt_prefetch(data, n); break;
        }
    }
    const mirt_history *history = mirt_fit(w->model[m], data, &fit);
    double loss = mirt_history_last(history, "loss");
    if (loss == loss) digest(w, &loss, sizeof loss);
    mirt_dataset_destroy(data);
}

static void odd_call(world *w) {
    int m = below(w, MODELS);
    mirt_tensor *out[MIRT_MAX_OUTPUTS];
    mirt_logs logs;
    mirt_memory memory;
    mirt_data d;
    float values[64];
    /* a marked model has nothing more to tell */
    if (!w->model[m] || w->model[m]->graph.status != MIRT_OK) odd_model(w, m);
    mirt_model *model = w->model[m], *other = w->model[below(w, MODELS)];
    if (!model->num_outputs && below(w, 2)) {
        mirt_model_output(model, mirt_tensor_shape(w->tensor[m][2]).rank == 2 ? w->tensor[m][2] : w->tensor[m][0]);
        took(w, odd_compile(w, m));
    }
    mirt_tensor *x = any_tensor(w, m), *y = any_tensor(w, m), *both[4] = {x, y, x, y};
    switch (below(w, 24)) {
    case 0: odd_model(w, m); break;
    case 1: case 2: keep(w, m, odd_operation(w, x, y)); break;
    case 3: case 4: keep(w, m, odd_layer(w, x, y)); break;
    case 5: case 6: mirt_model_outputs(model, both, below(w, 4)); break;
    case 7: if (mirt_call_many(other, both, below(w, 3), (mirt_training)below(w, 4), out)) keep(w, m, out[0]); break;
    case 8: case 9: case 10: took(w, odd_compile(w, m)); break;
    case 11: took(w, mirt_set_trainable(model, below(w, 2) ? NULL : "dense", below(w, 2))); break;
    case 12: took(w, mirt_add_loss(model, x)); break;
    case 13: case 14: case 15:
        d = odd_batch(w, model);
        if (took(w, mirt_train_on_batch(model, &d, &logs)) && logs.value[0] == logs.value[0])
            digest(w, &logs.value[0], sizeof(double));
        break;
    case 16: d = odd_batch(w, model); took(w, mirt_test_on_batch(model, &d, &logs)); break;
    case 17: d = odd_batch(w, model); took(w, mirt_predict_arrays(model, d.x[0], values, (size_t)below(w, 64))); break;
    case 18: odd_fit(w, m); break;
    case 19: case 20: odd_function(w, m); break;
    case 21:
        if (took(w, mirt_plan_memory(model, ROWS, &memory)) && mirt_summary(model, ROWS)) mirt_graph_text(model, ROWS);
        break;
    case 22:
        if (below(w, 3) == 0) odd_destroy(w, m);
        else if (took(w, mirt_get_weight(model, "own", 0, values, 3)))
            took(w, mirt_set_weight(model, "own", values, (size_t)below(w, 5)));
        break;
    default: {
        mirt_model *view = mirt_model_view(model, both, below(w, 3));
        if (view) took(w, mirt_compile(view, NULL));
        mirt_model_destroy(view);
        break;
    }
    }
}

/* All copies of all weights are the same bits. */
static void check_copies(world *w) {
    float *a = w->values[0], *b = w->values[1];
    for (int m = 0; m < MODELS; m++) {
        mirt_weight_info info;
        for (int i = 0; i < mirt_num_weights(w->model[m]); i++) {
            if (mirt_weight(w->model[m], i, &info) != MIRT_OK || info.count > MIRT__COUNT(w->values[0])) continue;
            for (int d = 1; d < mirt_num_devices(w->strategy); d++) {
                if (mirt_get_weight(w->model[m], info.name, 0, a, (size_t)info.count) != MIRT_OK) continue;
                if (mirt_get_weight(w->model[m], info.name, d, b, (size_t)info.count) != MIRT_OK ||
                    memcmp(a, b, (size_t)info.count * sizeof *a))
                    w->wrong++;
            }
        }
    }
}

static void quiet(mirt_log_level level, const char *text, void *user) {
    (void)level, (void)user;
    (void)strlen(text);
}

static void play(world *w, const char *devices, uint64_t seed, int calls) {
    mirt_strategy_desc s;
    memset(w, 0, sizeof *w);
    memset(&s, 0, sizeof s);
    s.devices = devices;
    s.replicas = 2;
    s.threads = 1;
    s.log = quiet;
    w->strategy = mirt_strategy_create(&s);
    w->random = seed * 0x9E3779B97F4A7C15u + 1;
    gallery_register(w->strategy);
    w->data =
        mirt_distribute(w->strategy, mirt_batch(mirt_arrays(mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(7, 3)),
                                                            mirt_make_array(numbers, MIRT_FLOAT32, MIRT_SHAPE(7, 3))),
                                                4));
    for (int m = 0; m < MODELS; m++) odd_model(w, m);
    for (int i = 0; i < calls; i++) odd_call(w);
    check_copies(w);
    forget_functions(w);
    mirt_dataset_destroy(w->data);
    for (int m = 0; m < MODELS / 2; m++) mirt_model_destroy(w->model[m]);
    mirt_strategy_destroy(w->strategy);
}

typedef struct player {
    world *w;
    uint64_t seed;
} player;

static void *play_thread(void *arg) {
    const player *p = (const player *)arg;
    play(p->w, "2", p->seed, 60);
    return NULL;
}

/* Two strategies in two threads at once give what each gives alone. */
static void test_threads(world *one, world *two, int sequences) {
    int unlike = 0;
    for (int i = 0; i < sequences; i++) {
        pthread_t thread;
        player p = {two, (uint64_t)i + 1};
        if (pthread_create(&thread, NULL, play_thread, &p) != 0) break;
        play(one, "2", (uint64_t)i + 7, 60);
        pthread_join(thread, NULL);
        uint64_t both = one->digest ^ two->digest * 3;
        play(one, "1", (uint64_t)i + 7, 60);
        play(two, "1", (uint64_t)i + 1, 60);
        unlike += both != (one->digest ^ two->digest * 3);
    }
    ok(unlike == 0, "%d times two strategies in two threads: the same bits as alone", sequences);
}

int main(int count, char **arguments) {
    static world one, two;
    int sequences = count > 1      ? atoi(arguments[1])
                    : small_tier() ? 300
                                   : 3000,
        wrong = 0, unlike = 0, calls = 0, good = 0;
    uint64_t seed = count > 2 ? (uint64_t)atoll(arguments[2]) : 1;
    for (int i = 0; i < MIRT__COUNT(numbers); i++) numbers[i] = (float)(i % 3);
    for (int i = 0; i < sequences; i++) {
        if (count > 1) fprintf(stderr, "\rsequence %llu ", (unsigned long long)seed + (unsigned long long)i);
        play(&one, "1", seed + (uint64_t)i, 60);
        play(&two, "2", seed + (uint64_t)i, 60);
        calls += one.calls;
        good += one.good;
        wrong += one.wrong + two.wrong;
        if (one.digest != two.digest && unlike++ < 5)
            printf("# sequence %llu: two devices give other results than one\n",
                   (unsigned long long)seed + (unsigned long long)i);
    }
    ok(wrong == 0,
       "%d sequences of random calls: each of the failures says why, device copies agree; of %d calls with a status %d "
       "succeed",
       sequences, calls, good);
    ok(unlike == 0, "and two devices give the same bits as one");
    test_threads(&one, &two, sequences / 20);
    return done_testing();
}
