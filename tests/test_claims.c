/* Calls while another thread uses the strategy, and calls on nothing, are refused. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

/* What the calls are made with; all NULL: nothing is given. */
typedef struct given {
    mirt_strategy *s;
    mirt_model *m;
    mirt_dataset *d;
    mirt_function *f;
    mirt_tensor *x;
} given;

static float out[IMAGES * IMAGE_CLASSES], *outs[1] = {out};
static const size_t capacity[1] = {IMAGES * IMAGE_CLASSES};
static int64_t counts[IMAGE_CLASSES * IMAGE_CLASSES];
static mirt_data data;
static mirt_logs logs;
static double number;
static mirt_memory memory;
static mirt_timing timing;
static mirt_load_report report;
static const mirt_metric metric[1] = {MIRT_ACCURACY};
static mirt_schedule schedule;
static mirt_global_batch batch;
static size_t written;
static const char *const names[IMAGE_CLASSES] = {"a", "b", "c", "d", "e"};

static mirt_tensor *record(mirt_tensor *labels, mirt_tensor *output, void *user) {
    return (void)labels, (void)user, output;
}
static const mirt_custom_loss loss = {"other_loss", record, NULL};
static const mirt_custom_metric custom = {"other_metric", record, NULL, NULL, MIRT_MODE_MIN};
static mirt_tensor *build(mirt_layer *layer, mirt_tensor *const *in, int count, const void *config, void *user) {
    return (void)layer, (void)count, (void)config, (void)user, in[0];
}
static const mirt_layer_class layer = {"Other", 0, 0, NULL, 0, build, NULL};
static int forward(const mirt_op_call *call, void *user) { return (void)call, (void)user, 0; }
static const mirt_op_class op = {"other", 0, NULL, forward, NULL, NULL, NULL};
static bool body(mirt_function *f, void *user) {
    mirt_tensor *y = mirt_call((mirt_model *)user, mirt_function_x(f, 0), MIRT_TRAINING_ON);
    mirt_tensor *values = mirt_loss_values(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, mirt_function_y(f, 0), y);
    return mirt_function_result(f, "loss", values) == MIRT_OK && mirt_minimize(f, values) == MIRT_OK;
}
static bool no_status(mirt_status status) { return status != MIRT_OK; }

/* X(call): true when it failed. */
#define CALLS(X) \
    X(!mirt_fit(g->m, g->d, NULL)) \
    X(!mirt_fit_arrays(g->m, images_x(0, 8), images_y(0, 8), NULL)) \
    X(no_status(mirt_evaluate(g->m, g->d, &logs))) \
    X(no_status(mirt_evaluate_arrays(g->m, images_x(0, 8), images_y(0, 8), &logs))) \
    X(no_status(mirt_predict(g->m, g->d, out, capacity[0]))) \
    X(no_status(mirt_predict_arrays(g->m, images_x(0, 8), out, capacity[0]))) \
    X(no_status(mirt_predict_outputs(g->m, g->d, outs, capacity))) \
    X(no_status(mirt_confusion_matrix(g->m, g->d, counts, IMAGE_CLASSES))) \
    X(no_status(mirt_train_on_batch(g->m, &data, &logs))) \
    X(no_status(mirt_test_on_batch(g->m, &data, &logs))) \
    X(no_status(mirt_predict_on_batch(g->m, &data, outs, capacity))) \
    X(no_status(mirt_train_step(g->m, images_x(0, 8), images_y(0, 8), &number))) \
    X(no_status(mirt_scatter(g->m, images_x(0, 8), images_y(0, 8)))) \
    X(no_status(mirt_grad(g->m, &number))) \
    X(no_status(mirt_all_reduce(g->m))) \
    X(no_status(mirt_apply(g->m))) \
    X(no_status(mirt_apply_averages(g->m))) \
    X(no_status(mirt_get_gradient(g->m, "dense/bias", 0, out, 19))) \
    X(no_status(mirt_get_weight(g->m, "dense/bias", 0, out, 19))) \
    X(no_status(mirt_set_weight(g->m, "dense/bias", out, 19))) \
    X(no_status(mirt_set_trainable(g->m, "dense", false))) \
    X(no_status(mirt_set_dtype_policy(g->m, "float32"))) \
    X(no_status(mirt_set_learning_rate(g->m, 0.5))) \
    X(no_status(mirt_set_schedule(g->m, &schedule))) \
    X(no_status(mirt_set_metrics(g->m, metric, NULL, 1))) \
    X(no_status(mirt_set_model_class_names(g->m, names, IMAGE_CLASSES))) \
    X(no_status(mirt_add_loss(g->m, g->x))) \
    X(no_status(mirt_compile(g->m, NULL))) \
    X(no_status(mirt_check_drift(g->m))) \
    X(no_status(mirt_save(g->m, "never", MIRT_SAVE_ALL))) \
    X(no_status(mirt_load_weights(g->m, "never"))) \
    X(no_status(mirt_load_weights_partial(g->m, "never", NULL, &report))) \
    X(no_status(mirt_plan_memory(g->m, 4, &memory))) \
    X(no_status(mirt_plan_macs(g->m, 4, &number))) \
    X(mirt_largest_batch(g->m, 0) == 0) \
    X(!mirt_summary(g->m, 4)) \
    X(!mirt_graph_text(g->m, 4)) \
    X(!mirt_timing_text(g->m)) \
    X(no_status(mirt_fit_timing(g->m, &timing))) \
    X(no_status(mirt_profile_begin(g->m))) \
    X(!mirt_profile_text(g->m)) \
    X(!mirt_input(g->m, MIRT_SHAPE(3))) \
    X(!mirt_variable(g->m, "v", MIRT_SHAPE(3), mirt_zeros(), true)) \
    X(!mirt_call(g->m, g->x, MIRT_TRAINING_AUTO)) \
    X(!mirt_model_view(g->m, &g->x, 1)) \
    X(!mirt_function_create(g->m, g->d, body, g->m)) \
    X(no_status(mirt_function_run(g->f, &batch))) \
    X(no_status(mirt_reduce(g->f, "loss", MIRT_REDUCE_MEAN, &number, 1))) \
    X(no_status(mirt_gather_result(g->f, "loss", out, capacity[0], &written))) \
    X(no_status(mirt_local_result(g->f, "loss", 0, out, capacity[0], &written))) \
    X(!mirt_environment(g->s)) \
    X(!mirt_model_create(g->s, "m")) \
    X(!mirt_model_by_name(g->s, "mnist")) \
    X(!mirt_application(g->s, "mobilenet_v2", NULL)) \
    X(!mirt_load(g->s, "never")) \
    X(!mirt_load_memory(g->s, "x", 1)) \
    X(no_status(mirt_register_layer(g->s, &layer))) \
    X(no_status(mirt_register_loss(g->s, &loss))) \
    X(no_status(mirt_register_metric(g->s, &custom))) \
    X(no_status(mirt_register_op(g->s, &op))) \
    X(no_status(mirt_trace_begin(g->s, "never", 10))) \
    X(no_status(mirt_trace_end(g->s)))

#define TEXT(call) #call,
static const char *const call_text[] = {CALLS(TEXT)};
#undef TEXT
enum { COUNT = sizeof call_text / sizeof *call_text };

/* Makes call number `index`; true when it failed. */
static bool make(int index, const given *g) {
    int next = 0;
#define MAKE(call) \
    if (index == next++) return call;
    CALLS(MAKE)
#undef MAKE
    return false;
}

typedef struct meeting {
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    int turn; /* 1: the first thread is in a callback; 2: the second is done */
    given g;
    bool refused[COUNT], right[COUNT];
    char said[COUNT][200];
} meeting;

static int wait_for_other(const mirt_event *event, void *user) {
    meeting *m = (meeting *)user;
    if (event->batch != 0) return 0;
    pthread_mutex_lock(&m->mutex);
    m->turn = 1;
    pthread_cond_broadcast(&m->moved);
    while (m->turn != 2) pthread_cond_wait(&m->moved, &m->mutex);
    pthread_mutex_unlock(&m->mutex);
    return 0;
}

/* Calls that return nothing; they change nothing here. */
static void call_silently(const given *g) {
    mirt_next_name(g->m, "never");
    mirt_model_output(g->m, g->x);
    mirt_profile_end(g->m);
    mirt_set_log(g->s, NULL, NULL);
}

static void *other_thread(void *user) {
    meeting *m = (meeting *)user;
    pthread_mutex_lock(&m->mutex);
    while (m->turn != 1) pthread_cond_wait(&m->moved, &m->mutex);
    for (int i = 0; i < COUNT; i++) {
        m->refused[i] = make(i, &m->g);
        m->right[i] = mirt_last_status() == MIRT_E_STATE && strstr(mirt_last_error(), "another thread is in mirt_fit");
        snprintf(m->said[i], sizeof m->said[i], "%s", mirt_last_error());
    }
    call_silently(&m->g);
    m->turn = 2;
    pthread_cond_broadcast(&m->moved);
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

static mirt_dataset *digits(int64_t count) {
    return mirt_batch(mirt_arrays(images_x(0, count), images_y(0, count)), 8);
}

/* The weights after an epoch; with another thread that makes all calls while the first batch is trained. */
static void train(bool interrupted, char digest[MIRT__SHA256_HEX]) {
    static meeting m;
    pthread_t other;
    mirt_callback waiting;
    mirt_fit_desc desc;
    memset(&m, 0, sizeof m);
    memset(&waiting, 0, sizeof waiting);
    memset(&desc, 0, sizeof desc);
    pthread_mutex_init(&m.mutex, NULL);
    pthread_cond_init(&m.moved, NULL);
    waiting.batch_end = wait_for_other;
    waiting.user = &m;
    desc.no_progress = true;
    m.g.s = strategy_of(2, 2, 1);
    m.g.m = image_model(m.g.s, mirt_adam(1e-3f), 0);
    m.g.x = mirt_output_of(m.g.m, 0);
    m.g.d = mirt_distribute(m.g.s, digits(16));
    m.g.f = mirt_function_create(m.g.m, m.g.d, body, m.g.m);
    mirt_dataset *train = digits(32);
    if (interrupted) {
        desc.callbacks[0] = &waiting;
        pthread_create(&other, NULL, other_thread, &m);
    }
    ok(m.g.f && mirt_fit(m.g.m, train, &desc) != NULL, "a fit%s: %s", interrupted ? " that another thread meets" : "",
       m.g.f ? "" : mirt_last_error());
    if (interrupted) pthread_join(other, NULL);
    for (int i = 0; interrupted && i < COUNT; i++) {
        const bool right = m.refused[i] && m.right[i];
        if (!right)
            ok(0, "%s on another thread: %s, \"%s\"", call_text[i], m.refused[i] ? "failed" : "was done", m.said[i]);
    }
    digest_weights(m.g.m, 0, digest);
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(m.g.d);
    mirt_strategy_destroy(m.g.s);
}

int main(void) {
    static const given nothing;
    char with[MIRT__SHA256_HEX], without[MIRT__SHA256_HEX];
    int wrong = 0;
    draw_images();
    data.x[0] = images_x(0, 8);
    data.y[0] = images_y(0, 8);
    schedule = mirt_cosine_decay(0.1f, 10, 0);
    train(false, without);
    train(true, with);
    ok(strcmp(with, without) == 0, "%d calls on another thread are refused and change nothing", (int)COUNT);
    for (int i = 0; i < COUNT; i++) {
        const bool failed = make(i, &nothing);
        const char *text = mirt_last_error();
        const bool right = failed && text[0] && mirt_last_status() != MIRT_OK;
        if (!right && ++wrong) printf("# %s: %s\n", call_text[i], text);
    }
    call_silently(&nothing);
    ok(!wrong, "without strategy, model, function and data all of them fail");
    return done_testing();
}
