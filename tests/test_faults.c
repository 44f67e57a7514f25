/* Each allocation and each thread fails, in everything the library does. One fails at a time, or all from one on. A
   call then fails with MIRT_E_NOMEM (or MIRT_E_THREAD), loses nothing, and works when it is made again. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>

static long allocations, live_blocks, fail_from, fail_to; /* allocations number fail_from to fail_to fail; atomic */
static long threads_asked, thread_fails; /* threads asked for, and the one that is refused */

void *hook_malloc(size_t size) {
    long number = __atomic_add_fetch(&allocations, 1, __ATOMIC_SEQ_CST);
    if (number >= fail_from && number <= fail_to) return NULL;
    void *block = malloc(size);
    if (block) __atomic_add_fetch(&live_blocks, 1, __ATOMIC_SEQ_CST);
    return block;
}

void hook_free(void *block) {
    __atomic_sub_fetch(&live_blocks, 1, __ATOMIC_SEQ_CST);
    free(block);
}

int hook_thread(pthread_t *thread, void *(*fn)(void *), void *arg) {
    return ++threads_asked == thread_fails ? 11 /* EAGAIN */ : pthread_create(thread, NULL, fn, arg);
}

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"
#include "fault_models.h"

#include <unistd.h>

enum { SAMPLES = 10, PIXELS = SIDE * SIDE };
static uint8_t pixels[SAMPLES * PIXELS], labels[SAMPLES];
static char directory[64], images_path[96], labels_path[96], model_path[96], save_path[96], more_path[96];
static unsigned char *saved;
static size_t saved_size;

static mirt_array xs(void) { return mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(SAMPLES, SIDE, SIDE, 1)); }
static mirt_array ys(void) { return mirt_make_array(labels, MIRT_UINT8, MIRT_SHAPE(SAMPLES)); }

/* >>steps: each returns MIRT_OK or the error */

static mirt_tensor *record_square(mirt_tensor *y, mirt_tensor *output, void *user) {
    (void)y, (void)user;
    return mirt_reduce_mean(mirt_square(output), 0, false);
}

static mirt_status compile_custom(world *w) {
    const mirt_custom_loss loss = {"squares", record_square, NULL};
    const mirt_custom_metric metric = {"size", record_square, NULL, NULL, MIRT_MODE_AUTO};
    mirt_compile_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.custom_losses[0] = &loss;
    desc.custom_metrics[0] = &metric;
    return mirt_compile(w->model, &desc);
}

/* A step by hand: a loss, its gradients, a result, an assignment. */
static bool record_function(mirt_function *f, void *user) {
    mirt_tensor *weight = mirt_function_variable(f, "projection"), *gradient = NULL;
    mirt_tensor *x = mirt_cast(mirt_function_x(f, 0), MIRT_FLOAT32),
                *y = mirt_call(((world *)user)->model, x, MIRT_TRAINING_ON);
    mirt_tensor *loss = mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, mirt_function_y(f, 0), y);
    if (!loss || mirt_function_result(f, "loss", loss) != MIRT_OK) return false;
    if (mirt_gradients(loss, &weight, 1, &gradient) != MIRT_OK) return false;
    if (mirt_function_result(
            f, "size", mirt_replica_all_reduce(mirt_reduce_sum(mirt_square(gradient), 3, false), MIRT_REDUCE_SUM)) !=
        MIRT_OK)
        return false;
    return mirt_apply_gradients(f, &weight, &gradient, 1) == MIRT_OK;
}

static mirt_status do_function(world *w) {
    mirt_global_batch batch;
    double loss = 0;
    float all[SAMPLES];
    size_t written;
    mirt_status status;
    mirt_dataset_destroy(w->train);
    w->train = mirt_distribute(w->strategy, mirt_batch(mirt_arrays(xs(), ys()), SAMPLES));
    mirt_function *function = w->train ? mirt_function_create(w->model, w->train, record_function, w) : NULL;
    if (!function) return mirt_last_status();
    status = mirt_dataset_next(w->train, &batch);
    if (status == MIRT_OK) status = mirt_function_run(function, &batch);
    if (status == MIRT_OK) status = mirt_reduce(function, "loss", MIRT_REDUCE_MEAN, &loss, 1);
    if (status == MIRT_OK) status = mirt_gather_result(function, "loss", all, SAMPLES, &written);
    mirt_function_destroy(function);
    return status;
}

static mirt_status do_view(world *w) {
    mirt_tensor *tensor = mirt_layer_output(w->model, "named");
    mirt_model *view = tensor ? mirt_model_view(w->model, &tensor, 1) : NULL;
    if (!view) return mirt_last_status();
    mirt_model_destroy(view);
    return mirt_set_trainable(w->model, "inner*", false);
}

static mirt_status compile_parts(world *w) {
    mirt_compile_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.losses[0] = desc.losses[1] = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    desc.loss_weights[1] = 0.5f;
    desc.from_logits = true;
    desc.metrics[0] = MIRT_ACCURACY;
    return mirt_compile(w->model, &desc);
}

static mirt_data parts_data(void) {
    static const float weights[SAMPLES] = {1, 2, 1, 2, 1, 2, 1, 2, 1, 2};
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = data.x[1] = xs();
    data.y[0] = data.y[1] = ys();
    data.weights = mirt_make_array(weights, MIRT_FLOAT32, MIRT_SHAPE(SAMPLES));
    return data;
}

static mirt_status do_fit_parts(world *w) {
    mirt_data data = parts_data();
    mirt_fit_desc desc;
    memset(&desc, 0, sizeof desc);
    mirt_dataset *train = mirt_arrays_of(&data), *validation = train ? mirt_arrays_of(&data) : NULL;
    desc.validation = validation;
    desc.steps_per_epoch = 2;
    desc.epochs = 2;
    desc.batch = 4;
    desc.validation_steps = 1;
    mirt_status status = validation && mirt_fit(w->model, train, &desc) ? MIRT_OK : mirt_last_status();
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(validation);
    return status;
}

static mirt_status do_batches(world *w) {
    float out[2][SAMPLES * CLASSES], *to[2] = {out[0], out[1]};
    size_t capacity[2] = {SAMPLES * CLASSES, SAMPLES * CLASSES};
    mirt_data data = parts_data();
    mirt_logs logs;
    mirt_status status = mirt_train_on_batch(w->model, &data, &logs);
    if (status == MIRT_OK) status = mirt_test_on_batch(w->model, &data, &logs);
    return status == MIRT_OK ? mirt_predict_on_batch(w->model, &data, to, capacity) : status;
}

/* The part thaws and freezes in turn. */
static mirt_status do_freeze(world *w) {
    mirt_weight_info info;
    mirt_status status = mirt_weight(w->model, 0, &info);
    if (status == MIRT_OK) status = mirt_set_trainable(w->model, "base", !info.trainable);
    return status == MIRT_OK ? compile_parts(w) : status;
}

static mirt_status do_parts_view(world *w) {
    float out[SAMPLES * CLASSES], *to[1] = {out};
    size_t capacity[1] = {SAMPLES * CLASSES};
    mirt_data data = parts_data();
    mirt_tensor *tensor = mirt_layer_output(w->model, "base_1");
    mirt_model *view = tensor ? mirt_model_view(w->model, &tensor, 1) : NULL;
    mirt_status status = view ? mirt_compile(view, NULL) : mirt_last_status();
    if (status == MIRT_OK) status = mirt_predict_on_batch(view, &data, to, capacity);
    mirt_model_destroy(view);
    return status;
}

static mirt_status do_fit_classes(world *w) {
    static const float weights[CLASSES] = {1, 2, 0.5f};
    mirt_fit_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.class_weights = weights;
    desc.num_class_weights = CLASSES;
    desc.batch = 4;
    return mirt_fit_arrays(w->model, xs(), ys(), &desc) ? MIRT_OK : mirt_last_status();
}

static mirt_status compile_as(world *w, mirt_optimizer optimizer) {
    mirt_compile_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.optimizer = optimizer;
    desc.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    desc.from_logits = true;
    desc.metrics[0] = MIRT_ACCURACY;
    return mirt_compile(w->model, &desc);
}

static mirt_status compile_adam(world *w) { return compile_as(w, mirt_adam(1e-3f)); }
static mirt_status compile_sgd(world *w) { return compile_as(w, mirt_sgd(0.1f, 0.9f, true)); }

/* The first layers of parts are frozen: mirt_fit keeps their features. */
static mirt_status compile_frozen(world *w) {
    mirt_status status = mirt_set_trainable(w->model, "conv2d", false);
    return status == MIRT_OK ? compile_adam(w) : status;
}

static mirt_status make_datasets(world *w) {
    mirt_dataset_destroy(w->train);
    mirt_dataset_destroy(w->validation);
    w->validation = NULL;
    w->train = mirt_prefetch(mirt_batch(mirt_shuffle(mirt_cache(mirt_idx(images_path, labels_path)), 4), 4), 2);
    if (!w->train) return mirt_last_status();
    w->validation = mirt_batch(mirt_shuffle(mirt_idx(images_path, labels_path), 4), 5);
    return w->validation ? MIRT_OK : mirt_last_status();
}

static int map_nothing(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in;
    (void)out;
    (void)index;
    (void)user;
    return 0;
}

/* The stages that make_datasets has not, run through. */
static mirt_status make_stages(world *w) {
    static const char *const names[] = {"a", "b", "c"};
    mirt_data data;
    mirt_map_desc map;
    mirt__batch batch;
    memset(&data, 0, sizeof data);
    memset(&map, 0, sizeof map);
    data.x[0] = data.x[1] = xs();
    data.y[0] = ys();
    map.fn = map_nothing;
    map.add_weights = true;
    mirt_dataset_destroy(w->train);
    w->train = mirt_map(mirt_skip(mirt_arrays_of(&data), 1), &map);
    if (!w->train || mirt_set_class_names(w->train, names, 3) != MIRT_OK) return mirt_last_status();
    w->train = mirt_batch(mirt_shuffle(mirt_repeat(mirt_cache(w->train), 0), 3), 2);
    w->train = mirt_prefetch(mirt_accumulate(mirt_take(w->train, 9), 2), 1);
    mirt_status status = w->train ? mirt__dataset_begin(w->train, 1, 0) : mirt_last_status();
    while (status == MIRT_OK && (status = mirt__dataset_next(w->train, &batch)) == MIRT_OK && batch.rows) continue;
    return status;
}

static mirt_status make_mnist(world *w) {
    mirt_dataset_destroy(w->train);
    w->train = mirt_mnist(directory, MIRT_TEST);
    return w->train ? MIRT_OK : mirt_last_status();
}

static mirt_status make_digits(world *w) {
    mirt_dataset_destroy(w->train);
    w->train = mirt_batch(mirt_drawn_digits(9, 1, MIRT_TRAIN), 4);
    if (!w->train || mirt__dataset_begin(w->train, 1, 0) != MIRT_OK) return mirt_last_status();
    return MIRT_OK;
}

static mirt_status do_fit(world *w) {
    mirt_fit_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.validation = w->validation;
    desc.max_steps = 2;
    return mirt_fit(w->model, w->train, &desc) ? MIRT_OK : mirt_last_status();
}

/* Traced, and told where the time went. */
static mirt_status do_trace(world *w) {
    mirt_fit_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.batch = 4;
    mirt_status status = mirt_trace_begin(w->strategy, save_path, 50);
    if (status != MIRT_OK) return status;
    if (!mirt_fit_arrays(w->model, xs(), ys(), &desc) || !mirt_timing_text(w->model)) status = mirt_last_status();
    if (status == MIRT_OK) return mirt_trace_end(w->strategy);
    if (w->strategy->trace) w->strategy->drop_trace(w->strategy);
    return status;
}

static mirt_status do_fit_arrays(world *w) {
    mirt_fit_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.batch = 7;
    desc.epochs = 2;
    return mirt_fit_arrays(w->model, xs(), ys(), &desc) ? MIRT_OK : mirt_last_status();
}

static mirt_status do_step(world *w) {
    double loss;
    return mirt_train_step(w->model, xs(), ys(), &loss);
}

static mirt_status do_stages(world *w) {
    float gradient[5 * CLASSES];
    mirt_status status = mirt_scatter(w->model, xs(), ys());
    if (status == MIRT_OK) status = mirt_grad(w->model, NULL);
    if (status == MIRT_OK) status = mirt_get_gradient(w->model, "dense_1/kernel", 1, gradient, 5 * CLASSES);
    if (status == MIRT_OK) status = mirt_all_reduce(w->model);
    return status == MIRT_OK ? mirt_apply(w->model) : status;
}

static mirt_status do_evaluate(world *w) {
    mirt_logs logs;
    return mirt_evaluate(w->model, w->validation, &logs);
}

static mirt_status do_evaluate_arrays(world *w) {
    mirt_logs logs;
    return mirt_evaluate_arrays(w->model, xs(), ys(), &logs);
}

static mirt_status do_predict(world *w) {
    float out[SAMPLES * CLASSES];
    mirt_status status = mirt_predict_arrays(w->model, xs(), out, SAMPLES * CLASSES);
    return status == MIRT_OK ? mirt_predict(w->model, w->train, out, SAMPLES * CLASSES) : status;
}

static int copy_sample(void *const *out, int64_t index, void *user) {
    (void)user;
    memcpy(out[0], pixels + index * PIXELS, PIXELS);
    memcpy(out[1], labels + index, 1);
    return 0;
}

/* Of samples that it has to put into batches itself. */
static mirt_status do_confusion(world *w) {
    int64_t counts[CLASSES * CLASSES];
    mirt_generator_desc d;
    memset(&d, 0, sizeof d);
    d.fn = copy_sample;
    d.samples = SAMPLES;
    d.any_order = true;
    d.num_x = d.num_y = 1;
    d.x[0] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(SIDE, SIDE, 1));
    d.y[0] = mirt_make_array(NULL, MIRT_UINT8, mirt_make_shape(0, 0, 0, 0, 0, 0));
    mirt_dataset *samples = mirt_dataset_from_generator(&d);
    const mirt_status status =
        samples ? mirt_confusion_matrix(w->model, samples, counts, CLASSES) : mirt_last_status();
    mirt_dataset_destroy(samples);
    return status;
}

static mirt_status do_save(world *w) { return mirt_save(w->model, save_path, MIRT_SAVE_ALL); }
static mirt_status do_save_weights(world *w) { return mirt_save(w->model, save_path, MIRT_SAVE_WEIGHTS_ONLY); }
static mirt_status do_load_weights(world *w) { return mirt_load_weights(w->model, model_path); }

static mirt_status do_load_partial(world *w) {
    mirt_load_report report;
    const mirt_load_desc desc = {NULL, NULL};
    return mirt_load_weights_partial(w->model, more_path, &desc, &report);
}

static mirt_status do_load(world *w) {
    mirt_model *model = mirt_load(w->strategy, model_path);
    if (!model) return mirt_last_status();
    mirt_model_destroy(w->model);
    w->model = model;
    return MIRT_OK;
}

/* What is loaded stands beside the model. */
static mirt_status do_load_more(world *w) {
    mirt_model *model = mirt_load(w->strategy, more_path);
    if (!model) return mirt_last_status();
    mirt_model_destroy(model);
    return MIRT_OK;
}

static mirt_status do_load_memory(world *w) {
    mirt_model *model = mirt_load_memory(w->strategy, saved, saved_size);
    if (!model) return mirt_last_status();
    mirt_model_destroy(w->model);
    w->model = model;
    return MIRT_OK;
}

static mirt_status do_summary(world *w) { return mirt_summary(w->model, 16) ? MIRT_OK : mirt_last_status(); }
static mirt_status do_graph_text(world *w) { return mirt_graph_text(w->model, 16) ? MIRT_OK : mirt_last_status(); }

static mirt_status do_graph_costs(world *w) { return mirt_graph_costs(w->model, 16) ? MIRT_OK : mirt_last_status(); }

static mirt_status do_plan(world *w) {
    mirt_memory memory;
    return mirt_plan_memory(w->model, 16, &memory);
}

static mirt_status do_macs(world *w) {
    double macs;
    return mirt_plan_macs(w->model, 16, &macs);
}

static mirt_status do_profile(world *w) {
    if (mirt_profile_begin(w->model) != MIRT_OK || do_step(w) != MIRT_OK || !mirt_profile_text(w->model))
        return mirt_last_status();
    mirt_profile_end(w->model);
    return MIRT_OK;
}

static mirt_status do_weights(world *w) {
    float kernel[5 * CLASSES];
    mirt_status status = mirt_get_weight(w->model, "dense_1/kernel", 1, kernel, 5 * CLASSES);
    return status == MIRT_OK ? mirt_set_weight(w->model, "dense_1/kernel", kernel, 5 * CLASSES) : status;
}

/* >>cases */

typedef mirt_status (*step_fn)(world *w);
typedef struct fault_case {
    const char *name;
    step_fn before[4]; /* made without faults */
    step_fn act;
    step_fn after;     /* what still has to work when act has failed, before it is made again; may be NULL */
} fault_case;

static const fault_case cases[] = {
    {"mirt_strategy_create", {NULL, NULL, NULL, NULL}, make_large_strategy, NULL},
    {"central storage", {NULL, NULL, NULL, NULL}, make_central_storage, NULL},
    {"a step with central storage", {make_central_storage, make_model, compile_adam, NULL}, do_step, do_save},
    {"recording layers", {make_strategy, NULL, NULL, NULL}, make_model, NULL},
    {"recording operations", {make_strategy, NULL, NULL, NULL}, make_operations, NULL},
    {"operations that move, choose and compare", {make_strategy, NULL, NULL, NULL}, make_moves, NULL},
    {"recording every other layer", {make_strategy, NULL, NULL, NULL}, make_more, NULL},
    {"mirt_compile of them", {make_strategy, make_more, NULL, NULL}, compile_adam, NULL},
    {"mirt_compile with a custom loss and metric", {make_strategy, make_more, NULL, NULL}, compile_custom, NULL},
    {"a step of them", {make_strategy, make_more, compile_custom, NULL}, do_step, do_step},
    {"a function", {make_strategy, make_more, compile_adam, NULL}, do_function, do_step},
    {"a view", {make_strategy, make_more, NULL, NULL}, do_view, NULL},
    {"mirt_save of them", {make_strategy, make_more, compile_adam, NULL}, do_save, do_step},
    {"mirt_load of them", {make_strategy, make_more, NULL, NULL}, do_load_more, compile_adam},
    {"mirt_save of weights of them", {make_strategy, make_more, compile_adam, NULL}, do_save_weights, do_step},
    {"mirt_summary of them", {make_strategy, make_more, compile_adam, NULL}, do_summary, do_step},
    {"mirt_model_by_name", {make_strategy, NULL, NULL, NULL}, make_ready_made, NULL},
    {"mirt_mobilenet_v2", {make_strategy, NULL, NULL, NULL}, make_network, NULL},
    {"recording in mixed_bfloat16", {make_strategy, NULL, NULL, NULL}, make_half, NULL},
    {"a step in mixed_bfloat16", {make_strategy, make_half, compile_adam, NULL}, do_step, do_step},
    {"mirt_compile", {make_strategy, make_model, NULL, NULL}, compile_adam, NULL},
    {"mirt_compile again", {make_strategy, make_model, compile_adam, do_step}, compile_sgd, do_step},
    {"mirt_compile, more slots", {make_strategy, make_model, compile_sgd, do_step}, compile_adam, do_save},
    {"data set stages", {make_strategy, NULL, NULL, NULL}, make_datasets, NULL},
    {"more data set stages", {make_strategy, NULL, NULL, NULL}, make_stages, NULL},
    {"mirt_mnist", {make_strategy, NULL, NULL, NULL}, make_mnist, NULL},
    {"drawn digits", {make_strategy, NULL, NULL, NULL}, make_digits, NULL},
    {"mirt_fit", {make_strategy, make_model, compile_adam, make_datasets}, do_fit, do_step},
    {"mirt_fit on features", {make_strategy, make_model, compile_frozen, NULL}, do_fit_arrays, do_step},
    {"mirt_fit_arrays, traced", {make_strategy, make_model, compile_adam, NULL}, do_trace, do_save},
    {"mirt_fit_arrays", {make_strategy, make_model, compile_adam, NULL}, do_fit_arrays, do_save},
    {"mirt_fit after a step", {make_strategy, do_load, do_step, make_datasets}, do_fit, do_step},
    {"mirt_evaluate", {make_strategy, make_model, compile_adam, make_datasets}, do_evaluate, do_step},
    {"mirt_evaluate_arrays after a step",
     {make_strategy, make_model, compile_adam, do_step},
     do_evaluate_arrays,
     do_step},
    {"mirt_confusion_matrix", {make_strategy, make_model, compile_adam, NULL}, do_confusion, do_step},
    {"mirt_predict", {make_strategy, make_model, compile_adam, make_datasets}, do_predict, do_step},
    {"mirt_train_step", {make_strategy, make_model, compile_sgd, NULL}, do_step, do_save},
    {"the four stages", {make_strategy, make_model, compile_sgd, NULL}, do_stages, do_evaluate_arrays},
    {"a model with parts", {make_strategy, NULL, NULL, NULL}, make_parts, NULL},
    {"mirt_compile of it", {make_strategy, make_parts, NULL, NULL}, compile_parts, NULL},
    {"several inputs, outputs and weights", {make_strategy, make_parts, compile_parts, NULL}, do_fit_parts, do_batches},
    {"batches of them", {make_strategy, make_parts, compile_parts, NULL}, do_batches, do_fit_parts},
    {"freezing a part", {make_strategy, make_parts, compile_parts, do_batches}, do_freeze, do_batches},
    {"a view of parts", {make_strategy, make_parts, compile_parts, do_batches}, do_parts_view, do_batches},
    {"mirt_summary of parts", {make_strategy, make_parts, compile_parts, NULL}, do_summary, do_batches},
    {"class weights", {make_strategy, make_model, compile_adam, do_step}, do_fit_classes, do_step},
    {"mirt_save", {make_strategy, make_model, compile_adam, do_step}, do_save, do_step},
    {"mirt_save of weights", {make_strategy, make_model, NULL, NULL}, do_save_weights, compile_adam},
    {"mirt_load", {make_strategy, NULL, NULL, NULL}, do_load, NULL},
    {"mirt_load_memory", {make_strategy, NULL, NULL, NULL}, do_load_memory, NULL},
    {"mirt_load_weights", {make_strategy, make_model, NULL, NULL}, do_load_weights, compile_adam},
    {"mirt_load_weights_partial", {make_strategy, make_more, NULL, NULL}, do_load_partial, compile_adam},
    {"mirt_summary", {make_strategy, make_model, compile_adam, do_summary}, do_summary, do_step},
    {"mirt_graph_text", {make_strategy, make_model, compile_adam, NULL}, do_graph_text, do_step},
    {"mirt_graph_costs", {make_strategy, make_model, compile_adam, NULL}, do_graph_costs, do_step},
    {"mirt_plan_memory", {make_strategy, make_model, compile_adam, NULL}, do_plan, do_step},
    {"mirt_plan_macs", {make_strategy, make_model, compile_adam, NULL}, do_macs, do_step},
    {"a profile", {make_strategy, make_model, compile_adam, do_step}, do_profile, do_step},
    {"mirt_get_weight, mirt_set_weight", {make_strategy, make_model, NULL, NULL}, do_weights, compile_adam},
};

static void destroy(world *w) {
    mirt_dataset_destroy(w->train);
    mirt_dataset_destroy(w->validation);
    mirt_strategy_destroy(w->strategy);
}

static bool prepare(const fault_case *c, world *w) {
    memset(w, 0, sizeof *w);
    for (int i = 0; i < 4 && c->before[i]; i++) {
        if (c->before[i](w) != MIRT_OK) return false;
    }
    return true;
}

static unsigned char *slurp(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    unsigned char *data = (unsigned char *)malloc(1 << 20);
    *size = file && data ? fread(data, 1, 1 << 20, file) : 0;
    if (file) fclose(file);
    return data;
}

static bool file_is(const char *path, const unsigned char *want, size_t want_size) {
    size_t size;
    unsigned char *data = slurp(path, &size);
    bool same = size == want_size && memcmp(data, want, size) == 0;
    free(data);
    return same;
}

/* One run with a fault; the problem, or NULL. *reached: the fault was met. */
static const char *run_once(const fault_case *c, long from, bool forever, bool *reached) {
    world w;
    const char *problem = NULL;
    const bool saves = c->act == do_save || c->act == do_save_weights;
    const long live_before = __atomic_load_n(&live_blocks, __ATOMIC_SEQ_CST);
    if (!prepare(c, &w)) return "could not be prepared";
    size_t old_size = 0;
    unsigned char *old = saves ? slurp(save_path, &old_size) : NULL;
    __atomic_store_n(&allocations, 0, __ATOMIC_SEQ_CST);
    fail_from = from;
    fail_to = forever ? LONG_MAX : from;
    mirt_status status = c->act(&w);
    fail_from = fail_to = 0;
    *reached = __atomic_load_n(&allocations, __ATOMIC_SEQ_CST) >= from;
    if (*reached && status == MIRT_OK) problem = "did not notice";
    else if (*reached && status != MIRT_E_NOMEM) problem = "failed with another status";
    else if (*reached && !strstr(mirt_last_error(), "out of memory") && !strstr(mirt_last_error(), "annot allocate"))
        problem = "does not say so";
    else if (!*reached && status != MIRT_OK) problem = "failed without a fault";
    if (!problem && *reached && saves && !file_is(save_path, old, old_size)) problem = "the old file is gone";
    free(old);
    if (!problem && *reached && c->after && c->after(&w) != MIRT_OK) problem = "left something unusable";
    if (!problem && *reached && c->act(&w) != MIRT_OK) problem = "cannot be made again";
    if (problem)
        printf("# %s: %s, allocation %ld%s: %s (%d): %s\n", c->name, problem, from, forever ? " and all after" : "",
               mirt_status_text(status), (int)status, mirt_last_error());
    destroy(&w);
    if (!problem && __atomic_load_n(&live_blocks, __ATOMIC_SEQ_CST) != live_before) {
        problem = "leaks";
        printf("# %s: allocation %ld%s: %ld blocks leak\n", c->name, from, forever ? " and all after" : "",
               live_blocks - live_before);
    }
    return problem;
}

static void test_case(const fault_case *c, long stride) {
    long problems = 0, runs = 0, met = 0;
    for (int forever = 0; forever < 2; forever++) {
        bool reached = true;
        for (long from = 1; reached && problems < 5; from += stride) {
            if (run_once(c, from, forever != 0, &reached)) problems++;
            runs++;
            met += reached;
        }
    }
    ok(problems == 0 && met > 0, "%s: %ld faults, each reported, nothing lost, nothing leaks", c->name, met);
}

/* >>threads */

static void test_threads(void) {
    world w;
    int refused = 0, right = 0, leaks = 0;
    long live_before = live_blocks;
    for (long number = 1; number <= 3; number++) {
        memset(&w, 0, sizeof w);
        threads_asked = 0;
        thread_fails = number;
        mirt_status status = make_large_strategy(&w);
        thread_fails = 0;
        refused += status == MIRT_E_THREAD && !w.strategy;
        right += strstr(mirt_last_error(), "cannot start ") != NULL;
        leaks += live_blocks != live_before;
    }
    ok(refused == 3 && right == 3 && leaks == 0,
       "a strategy whose first, second or third thread cannot start is refused (%d, %d), nothing leaks (%d)", refused,
       right, leaks);
    memset(&w, 0, sizeof w);
    threads_asked = 0;
    thread_fails = 1;
    mirt_status status = make_datasets(&w);
    thread_fails = 0;
    ok(status == MIRT_E_THREAD && !w.train && live_blocks == live_before, "mirt_prefetch without its thread: %s",
       mirt_last_error());
    ok(make_datasets(&w) == MIRT_OK, "and it works when threads are back");
    destroy(&w);
    ok(live_blocks == live_before, "nothing leaks");
}

/* >>files */

static void write_idx(const char *path, const uint8_t *data, int rank, size_t size) {
    const uint8_t header[16] = {0, 0, 8, (uint8_t)rank, 0, 0, 0, SAMPLES, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fwrite(header, 1, 4 + 4 * (size_t)rank, file);
    fwrite(data, 1, size, file);
    fclose(file);
}

/* Data and a trained model to load, in a directory of their own. */
static bool make_files(void) {
    world w;
    snprintf(directory, sizeof directory, "%s/mirt_faults_XXXXXX", tap_tmpdir());
    if (!mkdtemp(directory)) return false;
    snprintf(images_path, sizeof images_path, "%s/t10k-images-idx3-ubyte", directory);
    snprintf(labels_path, sizeof labels_path, "%s/t10k-labels-idx1-ubyte", directory);
    snprintf(model_path, sizeof model_path, "%s/model.safetensors", directory);
    snprintf(more_path, sizeof more_path, "%s/more.safetensors", directory);
    snprintf(save_path, sizeof save_path, "%s/saved.safetensors", directory);
    for (int i = 0; i < SAMPLES * PIXELS; i++) pixels[i] = (uint8_t)(i * 37 % 251);
    for (int i = 0; i < SAMPLES; i++) labels[i] = (uint8_t)(i % CLASSES);
    write_idx(images_path, pixels, 3, sizeof pixels);
    write_idx(labels_path, labels, 1, sizeof labels);
    memset(&w, 0, sizeof w);
    bool made_all = make_strategy(&w) == MIRT_OK && make_model(&w) == MIRT_OK && compile_adam(&w) == MIRT_OK &&
                    do_step(&w) == MIRT_OK && do_save(&w) == MIRT_OK &&
                    mirt_save(w.model, model_path, MIRT_SAVE_ALL) == MIRT_OK && make_more(&w) == MIRT_OK &&
                    compile_adam(&w) == MIRT_OK && mirt_save(w.model, more_path, MIRT_SAVE_ALL) == MIRT_OK;
    destroy(&w);
    saved = slurp(model_path, &saved_size);
    return made_all && saved_size > 0;
}

static void remove_files(void) {
    free(saved);
    ok(remove(images_path) == 0 && remove(labels_path) == 0 && remove(model_path) == 0 && remove(save_path) == 0 &&
       remove(more_path) == 0 && rmdir(directory) == 0,
       "no temporary file is left beside the saved ones");
}

int main(void) {
    ok(make_files(), "%s: %s", directory, mirt_last_error());
    for (int i = 0; i < MIRT__COUNT(cases); i++) test_case(&cases[i], small_tier() ? 11 : 1);
    test_threads();
    remove_files();
    ok(live_blocks == 0, "%ld blocks are left", live_blocks);
    return done_testing();
}
