/* Floating-point control and vector state at every boundary between caller and library. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "../src/base/device_timeline.h"
#include "tap.h"
#include "mirror_util.h"

#include <pthread.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { LIBRARY = 0x9FC0, FLAGS = 0x3F, USUAL = 0x1F80 };
static uint32_t control_get(void) {
    uint32_t control;
    __asm__ __volatile__("stmxcsr %0" : "=m"(control));
    return control;
}
static void control_set(uint32_t control) { __asm__ __volatile__("ldmxcsr %0" : : "m"(control)); }
static uint16_t x87_get(void) {
    uint16_t control;
    __asm__ __volatile__("fnstcw %0" : "=m"(control));
    return control;
}
static void x87_set(uint16_t control) { __asm__ __volatile__("fldcw %0" : : "m"(control)); }
/* Rounding up, denormals kept; toward zero, flushed; as programs begin, with a flag raised. */
static const uint32_t words[] = {USUAL | 2 << 13, USUAL | 3 << 13 | 0x8000, USUAL | 0x20};
static const uint16_t words87[] = {0x037F | 2 << 10, 0x037F | 3 << 10, 0x037F};
#elif defined(__aarch64__)
enum { LIBRARY = 1 << 24, FLAGS = 0, USUAL = 0 };
static uint32_t control_get(void) {
    uint64_t control;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(control));
    return (uint32_t)control;
}
static void control_set(uint32_t control) {
    const uint64_t wide = control;
    __asm__ __volatile__("msr fpcr, %0" : : "r"(wide));
}
static uint16_t x87_get(void) { return 0; }
static void x87_set(uint16_t control) { (void)control; }
static const uint32_t words[] = {1 << 22, 3 << 22 | 1 << 24, 0};
static const uint16_t words87[] = {0, 0, 0};
#else
enum { LIBRARY = 0, FLAGS = 0, USUAL = 0 };
static uint32_t control_get(void) { return 0; }
static void control_set(uint32_t control) { (void)control; }
static uint16_t x87_get(void) { return 0; }
static void x87_set(uint16_t control) { (void)control; }
static const uint32_t words[] = {0};
static const uint16_t words87[] = {0};
#endif

/* Whether the processor says which parts of its state are in use: then bits 2 and 6 are the upper halves of ymm and
   zmm. The C library's EVEX code may leave bits 5 and 7 set. */
static bool says_in_use;
#if defined(__x86_64__)
#include <cpuid.h>
static bool upper_halves_in_use(void) {
    uint32_t low, high;
    if (!says_in_use) return false;
    __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return (low & (1u << 2 | 1u << 6)) != 0;
}
static void look_for_in_use(void) {
    unsigned a, b, c, d;
    says_in_use =
        __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 27) && __get_cpuid_count(0xD, 1, &a, &b, &c, &d) && (a & 1u << 2);
}
#else
static bool upper_halves_in_use(void) { return false; }
static void look_for_in_use(void) { says_in_use = false; }
#endif

/* >>what was found */

enum { PLACES = 64 };
typedef struct place {
    const char *name;
    int seen, wrong, dirty;
} place;
static place at[PLACES];
static int places;
static uint32_t control_of_caller;
static uint16_t x87_of_caller;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int points, points_wrong;

/* Compilers clean vectors before calls only when they optimize. */
#ifdef __OPTIMIZE__
enum { OPTIMIZED = 1 };
#else
enum { OPTIMIZED = 0 };
#endif

static place *place_of(const char *name) {
    int i = 0;
    while (i < places && strcmp(at[i].name, name) != 0) i++;
    if (i == places) at[places++].name = name;
    return &at[i];
}

/* Code of the caller runs here: with his control, whatever flags are raised, and clean vectors. */
static int caller_here(const char *name) {
    const bool dirty = OPTIMIZED && upper_halves_in_use();
    const uint32_t control = control_get();
    const uint16_t x87 = x87_get();
    pthread_mutex_lock(&mutex);
    place *p = place_of(name);
    p->seen++;
    p->wrong += (control & ~(uint32_t)FLAGS) != (control_of_caller & ~(uint32_t)FLAGS) || x87 != x87_of_caller;
    p->dirty += dirty;
    pthread_mutex_unlock(&mutex);
    return 0;
}

void hook_point(int kind, int device, int number); /* tests/hooks.h */

/* The library is at work on this thread. */
void hook_point(int kind, int device, int number) {
    (void)kind, (void)device, (void)number;
    const bool wrong = (control_get() & ~(uint32_t)FLAGS) != LIBRARY;
    pthread_mutex_lock(&mutex);
    points++;
    points_wrong += wrong;
    pthread_mutex_unlock(&mutex);
}

static void after(const char *call) { caller_here(call); }

/* >>code of the caller */

static int on_event(const mirt_event *event, void *user) { return (void)event, caller_here((const char *)user); }
static int on_train_begin(const mirt_event *event, void *user) {
    return (void)event, (void)user, caller_here("train_begin");
}
static int on_batch_end(const mirt_event *event, void *user) {
    return (void)event, (void)user, caller_here("batch_end");
}
static int on_test_begin(const mirt_event *event, void *user) {
    return (void)event, (void)user, caller_here("test_begin");
}

static int on_epoch_end(const mirt_event *event, void *user) {
    mirt_logs logs;
    mirt_array x = images_x(0, 8), y = images_y(0, 8);
    (void)user;
    caller_here("epoch_end");
    mirt_evaluate_arrays(event->model, x, y, &logs);
    return caller_here("after a call from a callback");
}

static size_t on_save(char *text, size_t capacity, void *user) {
    (void)user;
    caller_here("save_state");
    return (size_t)snprintf(text, capacity, "state");
}
static int on_load(const char *text, void *user) { return (void)text, (void)user, caller_here("load_state"); }
static void on_destroy(void *user) { (void)user, caller_here("destroy of a callback"); }
static float on_rate(int epoch, float rate, void *user) {
    return (void)epoch, (void)user, caller_here("learning_rate"), rate;
}
static float on_schedule(int64_t step, void *user) { return (void)step, (void)user, caller_here("schedule"), 0.01f; }
static void on_log(mirt_log_level level, const char *text, void *user) {
    (void)level, (void)text, (void)user, caller_here("log");
}

static int on_map(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in, (void)out, (void)index;
    return caller_here((const char *)user);
}

static int on_generate(void *const *out, int64_t index, void *user) {
    (void)user;
    memcpy(out[0], image_pixels[index], IMAGE);
    memcpy(out[1], &image_classes[index], 1);
    return caller_here("generator");
}
static int on_generate_begin(int64_t epoch, void *user) {
    return (void)epoch, (void)user, caller_here("begin of a generator");
}

static int on_shape(const mirt_shape *in, int num_in, const void *config, mirt_shape *out, void *user) {
    (void)num_in, (void)config, (void)user;
    *out = in[0];
    return caller_here("shape of an op");
}
static int on_forward(const mirt_op_call *call, void *user) {
    size_t count = 1;
    (void)user;
    for (int i = 0; i < call->out_shape.rank; i++) count *= (size_t)call->out_shape.dim[i];
    memcpy(call->out, call->in[0], count * sizeof(float));
    return caller_here("forward of an op");
}
static int on_backward(const mirt_op_call *call, void *user) {
    size_t count = 1;
    (void)user;
    for (int i = 0; i < call->out_shape.rank; i++) count *= (size_t)call->out_shape.dim[i];
    if (call->din[0]) memcpy(call->din[0], call->dout, count * sizeof(float));
    return caller_here("backward of an op");
}
static mirt_tensor *on_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user) {
    (void)layer, (void)num_in, (void)config, (void)user;
    caller_here("build of a layer");
    return mirt_relu(in[0]);
}
static mirt_tensor *on_loss(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)labels, (void)user;
    caller_here("record of a loss");
    return mirt_reduce_mean(mirt_square(output), 1u << 1, false);
}
static mirt_tensor *on_metric(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)labels, (void)user;
    caller_here("record of a metric");
    return mirt_reduce_mean(mirt_abs(output), 1u << 1, false);
}
static double on_result(const double *sums, int count, int64_t samples, void *user) {
    (void)count, (void)user;
    caller_here("result of a metric");
    return sums[0] / (double)samples;
}
static bool on_body(mirt_function *f, void *user) {
    mirt_model *model = (mirt_model *)user;
    caller_here("body of a function");
    mirt_minimize(
        f, mirt_reduce_mean(mirt_square(mirt_call(model, mirt_function_x(f, 0), MIRT_TRAINING_ON)), 1u << 1, false));
    return caller_here("body of a function") == 0;
}
static int on_decode(const unsigned char *bytes, size_t size, mirt_image *out, void *user) {
    (void)bytes, (void)size, (void)out, (void)user;
    return caller_here("decoder"), MIRT_OTHER_DECODER;
}

/* >>a program that uses all of it */

static mirt_model *network(mirt_strategy *strategy) {
    static const mirt_op_class op = {"same", 0, on_shape, on_forward, on_backward, NULL, NULL};
    static const mirt_layer_class layer = {"Mine", 1, 0, NULL, 0, on_build, NULL};
    static const mirt_custom_loss loss = {"small", on_loss, NULL};
    static const mirt_custom_metric metric = {"size", on_metric, on_result, NULL, MIRT_MODE_AUTO};
    mirt_model *model = mirt_model_create(strategy, "boundary");
    mirt_conv2d_desc conv;
    mirt_dense_desc dense;
    mirt_compile_desc compile;
    memset(&conv, 0, sizeof conv);
    memset(&dense, 0, sizeof dense);
    memset(&compile, 0, sizeof compile);
    conv.filters = 5;
    conv.kernel[0] = 3;
    dense.units = IMAGE_CLASSES;
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1.0f / 255, 0);
    x = mirt_max_pool2d(mirt_conv2d(x, &conv), NULL);
    x = mirt_custom_op(&op, &x, 1, NULL);
    x = mirt_custom_layer(&layer, &x, 1, NULL, NULL);
    mirt_model_output(model, mirt_dense(mirt_flatten(x), &dense));
    compile.optimizer = mirt_adam(1e-3f);
    compile.optimizer.schedule = on_schedule;
    compile.custom_losses[0] = &loss;
    compile.custom_metrics[0] = &metric;
    ok(mirt_compile(model, &compile) == MIRT_OK, "compiled: %s", mirt_last_error());
    after("mirt_compile");
    return model;
}

static mirt_dataset *data_of(mirt_map_fn fn, const char *name, int workers, int prefetch) {
    mirt_map_desc map;
    memset(&map, 0, sizeof map);
    map.fn = fn;
    map.user = (void *)(size_t)name;
    mirt_dataset *data = mirt_map(mirt_arrays(images_x(0, 48), images_y(0, 48)), &map);
    data = mirt_batch(data, 16);
    mirt_dataset_workers(data, workers);
    if (prefetch) data = mirt_prefetch(data, prefetch);
    after("data sets");
    return data;
}

static mirt_dataset *generated(void) {
    mirt_generator_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.fn = on_generate;
    desc.begin = on_generate_begin;
    desc.num_x = desc.num_y = 1;
    desc.x[0] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1));
    desc.y[0].dtype = MIRT_UINT8;
    desc.samples = 32;
    return mirt_batch(mirt_dataset_from_generator(&desc), 16);
}

static void fit_with(mirt_model *model, const char *checkpoint, bool resume) {
    mirt_callback callback;
    mirt_fit_desc fit;
    mirt_model_checkpoint_desc keep;
    memset(&callback, 0, sizeof callback);
    memset(&fit, 0, sizeof fit);
    memset(&keep, 0, sizeof keep);
    callback.train_begin = on_train_begin;
    callback.train_end = on_event;
    callback.epoch_begin = on_event;
    callback.epoch_end = on_epoch_end;
    callback.batch_begin = on_event;
    callback.batch_end = on_batch_end;
    callback.test_begin = on_test_begin;
    callback.test_end = on_event;
    callback.user = (void *)(size_t)"other events";
    callback.name = "mine";
    callback.save_state = on_save;
    callback.load_state = on_load;
    callback.destroy = on_destroy;
    keep.path = checkpoint;
    mirt_callback *writer = mirt_model_checkpoint(&keep);
    mirt_dataset *train = data_of(on_map, "map on worker threads", 2, 2), *validation = data_of(on_map, "map", 1, 0);
    fit.callbacks[0] = &callback;
    fit.callbacks[1] = writer;
    fit.epochs = resume ? 2 : 1;
    fit.validation = validation;
    fit.learning_rate = NULL;
    fit.resume = resume ? checkpoint : NULL;
    ok(mirt_fit(model, train, &fit) != NULL, "fit: %s", mirt_last_error());
    after("mirt_fit");
    mirt_callback_destroy(&callback);
    mirt_callback_destroy(writer);
    after("mirt_callback_destroy");
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(validation);
    after("mirt_dataset_destroy");
}

static void quick_fits(mirt_strategy *strategy) {
    mirt_model *model = image_net(strategy, 0.1f);
    mirt_compile_desc compile;
    mirt_fit_desc fit;
    memset(&compile, 0, sizeof compile);
    memset(&fit, 0, sizeof fit);
    compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    compile.from_logits = true;
    mirt_compile(model, &compile);
    fit.learning_rate = on_rate;
    fit.epochs = 2;
    mirt_dataset *data = generated();
    ok(mirt_fit(model, data, &fit) != NULL, "fit on generated samples: %s", mirt_last_error());
    after("mirt_fit on generated samples");
    mirt_dataset_destroy(data);
    mirt_model_destroy(model);
}

static void steps_of(mirt_model *model) {
    static float out[48 * IMAGE_CLASSES];
    double loss;
    mirt_logs logs;
    const char *text;
    ok(mirt_train_step(model, images_x(0, 16), images_y(0, 16), &loss) == MIRT_OK, "a step: %s", mirt_last_error());
    after("mirt_train_step");
    mirt_scatter(model, images_x(0, 16), images_y(0, 16));
    after("mirt_scatter");
    mirt_grad(model, &loss);
    after("mirt_grad");
    mirt_all_reduce(model);
    after("mirt_all_reduce");
    mirt_apply(model);
    after("mirt_apply");
    mirt_evaluate_arrays(model, images_x(0, 48), images_y(0, 48), &logs);
    after("mirt_evaluate_arrays");
    mirt_predict_arrays(model, images_x(0, 16), out, sizeof out / sizeof *out);
    after("mirt_predict_arrays of a batch");
    mirt_predict_arrays(model, images_x(0, 48), out, sizeof out / sizeof *out);
    after("mirt_predict_arrays");
    text = mirt_summary(model, 16);
    after("mirt_summary");
    ok(text && mirt_graph_text(model, 16), "texts");
    after("mirt_graph_text");
    mirt_check_drift(model);
    after("mirt_check_drift");
    mirt_get_learning_rate(model);
    after("mirt_get_learning_rate");
    mirt_profile_begin(model);
    after("mirt_profile_begin");
    mirt_train_step(model, images_x(0, 16), images_y(0, 16), NULL);
    mirt_profile_text(model);
    mirt_profile_end(model);
    after("mirt_profile_text");
}

static void function_of(mirt_strategy *strategy, mirt_model *model) {
    mirt_global_batch batch;
    mirt_dataset *data = mirt_distribute(strategy, data_of(on_map, "map", 1, 0));
    mirt_function *f = mirt_function_create(model, data, on_body, model);
    after("mirt_function_create");
    ok(f && mirt_dataset_next(data, &batch) == MIRT_OK, "a function: %s", mirt_last_error());
    after("mirt_dataset_next");
    ok(f && mirt_function_run(f, &batch) == MIRT_OK, "runs: %s", mirt_last_error());
    after("mirt_function_run");
    mirt_function_destroy(f);
    mirt_dataset_destroy(data);
}

static void pictures(const char *path) {
    static float out[7 * 9];
    mirt_decode_desc desc;
    mirt_image image;
    memset(&desc, 0, sizeof desc);
    desc.decoder = on_decode;
    mirt_write_png(path, images_x(0, 1), 1);
    after("mirt_write_png");
    if (mirt_read_image(path, MIRT_GRAYSCALE, &desc, &image) == MIRT_OK) {
        after("mirt_read_image");
        ok(mirt_resize_image(&image, 7, 9, MIRT_BICUBIC, true, out) == MIRT_OK, "resized");
        after("mirt_resize_image");
        mirt_image_free(&image);
    } else {
        skip("images: %s", mirt_last_error());
    }
    unlink(path);
}

static void run_all(int devices, int replicas, int threads) {
    char checkpoint[512], picture[512];
    mirt_strategy_desc desc;
    char number[16];
    memset(&desc, 0, sizeof desc);
    snprintf(number, sizeof number, "%d", devices);
    snprintf(checkpoint, sizeof checkpoint, "%s/entry_%ld.safetensors", tap_tmpdir(), (long)getpid());
    snprintf(picture, sizeof picture, "%s/entry_%ld.png", tap_tmpdir(), (long)getpid());
    desc.devices = number;
    desc.replicas = replicas;
    desc.threads = threads;
    desc.log = on_log;
    mirt_strategy *strategy = mirt_strategy_create(&desc);
    after("mirt_strategy_create");
    mirt_model *model = network(strategy);
    steps_of(model);
    function_of(strategy, model);
    quick_fits(strategy);
    fit_with(model, checkpoint, false);
    fit_with(model, checkpoint, true);
    mirt_model *loaded = mirt_load(strategy, checkpoint);
    after("mirt_load");
    mirt_model_destroy(loaded);
    pictures(picture);
    mirt_strategy_destroy(strategy);
    after("mirt_strategy_destroy");
    unlink(checkpoint);
}

/* >>rounding modes and denormals */

static void train_some(char digest[MIRT__SHA256_HEX]) {
    mirt_strategy *strategy = strategy_of(1, 2, 1);
    mirt_model *model = network(strategy);
    for (int step = 0; step < 4; step++) mirt_train_step(model, images_x(16 * step, 16), images_y(16 * step, 16), NULL);
    digest_weights(model, 0, digest);
    mirt_strategy_destroy(strategy);
}

static void *control_of_thread(void *arg) {
    *(uint32_t *)arg = control_get();
    return NULL;
}

static int change_control(const mirt_event *event, void *user) {
    pthread_t thread;
    (void)event;
    if (pthread_create(&thread, NULL, control_of_thread, user) == 0) pthread_join(thread, NULL);
    control_set(words[1]);
    return 0;
}

static void test_changes(void) {
    uint32_t of_thread = 1;
    mirt_callback callback;
    mirt_fit_desc fit;
    memset(&callback, 0, sizeof callback);
    memset(&fit, 0, sizeof fit);
    callback.train_begin = change_control;
    callback.user = &of_thread;
    fit.callbacks[0] = &callback;
    fit.no_progress = true;
    control_set(words[0]);
    control_of_caller = words[0];
    mirt_strategy *strategy = strategy_of(1, 1, 1);
    mirt_model *model = network(strategy);
    ok(mirt_fit_arrays(model, images_x(0, 16), images_y(0, 16), &fit) != NULL, "fit: %s", mirt_last_error());
    const uint32_t now = control_get();
    control_set(USUAL);
    ok((of_thread & ~(uint32_t)FLAGS) == words[0], "a thread that a callback starts has the caller's control: %x",
       (unsigned)of_thread);
    ok((now & ~(uint32_t)FLAGS) == (words[1] & ~(uint32_t)FLAGS), "what a callback sets lasts when fit returns: %x",
       (unsigned)now);
    mirt_strategy_destroy(strategy);
}

/* Flags of the library's arithmetic are not the caller's. */
static void test_flags(void) {
    static float out[16 * IMAGE_CLASSES];
    const uint32_t flags[] = {0, FLAGS};
    mirt_strategy *strategy = strategy_of(1, 1, 1);
    mirt_model *model = image_net(strategy, 0);
    for (int i = 0; i < MIRT__COUNT(flags); i++) {
        control_set(USUAL | flags[i]);
        const mirt_status status = mirt_predict_arrays(model, images_x(0, 16), out, sizeof out / sizeof *out);
        const uint32_t now = control_get();
        control_set(USUAL);
        ok(status == MIRT_OK && now == (USUAL | flags[i]), "raised flags %x are those before the call: %x",
           (unsigned)flags[i], (unsigned)now);
    }
    mirt_strategy_destroy(strategy);
}

int main(void) {
    const int shapes[][3] = {{1, 1, 1}, {2, 4, 2}};
    char bits[3][MIRT__SHA256_HEX];
    look_for_in_use();
    draw_images();
    for (int w = 0; w < MIRT__COUNT(words); w++) {
        control_of_caller = words[w];
        x87_of_caller = words87[w];
        control_set(words[w]);
        x87_set(words87[w]);
        for (int s = 0; s < MIRT__COUNT(shapes); s++) run_all(shapes[s][0], shapes[s][1], shapes[s][2]);
        train_some(bits[w]);
    }
    control_set(USUAL);
    x87_set(words87[MIRT__COUNT(words) - 1]);
    for (int i = 0; i < places; i++)
        ok(at[i].wrong == 0 && at[i].dirty == 0,
           "%s: the caller's control and clean vectors, %d times; %d and %d times not", at[i].name, at[i].seen,
           at[i].wrong, at[i].dirty);
    if (!OPTIMIZED) skip("clean vectors: a build without optimization does not clean them");
    ok(places >= 40, "%d places", places);
    ok(points > 100 && points_wrong == 0, "the library's control at %d points on its way, not at %d", points,
       points_wrong);
    for (int w = 1; w < MIRT__COUNT(words); w++)
        ok(strcmp(bits[w], bits[0]) == 0, "the caller's rounding mode changes no weight");
    if (!says_in_use) skip("which upper halves of vectors are in use: the processor does not say");
    test_changes();
    test_flags();
    printf("1..%d\n", tap_count);
    return tap_failed != 0;
}
