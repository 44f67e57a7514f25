// cc -O2 examples/custom_op.c -o custom_op -lm -lpthread
/* A custom op, layer, loss, metric and callback. The op is plain C with its gradient; loss and metric are made of
   operations. Like built-in ones they are mirrored over replicas, saved under their names and loaded again. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CLASSES = 10 };

/* An op: mish(x) = x tanh(log(1 + e^x)), Misra 2019. Several threads call it at once, for the rows of a replica. */
static size_t elements(const mirt_shape *shape) {
    size_t n = 1;
    for (int i = 0; i < shape->rank; i++) n *= (size_t)shape->dim[i];
    return n;
}
static int mish_forward(const mirt_op_call *call, void *user) {
    const float *x = (const float *)call->in[0];
    const size_t n = elements(&call->out_shape);
    for (size_t i = 0; i < n; i++) {
        float e = expf(fminf(x[i], 20)), w = e * e + 2 * e; /* tanh(log(1 + e)) = w / (w + 2) */
        call->out[i] = x[i] * w / (w + 2);
    }
    return (void)user, 0; /* a non-zero value ends the step without changing weights */
}
static int mish_backward(const mirt_op_call *call, void *user) {
    const float *x = (const float *)call->in[0];
    const size_t n = elements(&call->out_shape);
    for (size_t i = 0; i < n; i++) {
        float e = expf(fminf(x[i], 20)), w = e * e + 2 * e, t = w / (w + 2);
        call->din[0][i] = call->dout[i] * (t + x[i] * (1 - t * t) * e / (1 + e));
    }
    return (void)user, 0;
}
static const mirt_op_class mish = {.name = "mish", .forward = mish_forward, .backward = mish_backward};

/* A layer: squeeze and excitation, Hu et al. 2018: the means of an image's channels gate the channels. */
typedef struct excite_config { int units; } excite_config;
static mirt_tensor *excite_build(mirt_layer *layer, mirt_tensor *const *in, int n, const void *config, void *user) {
    int channels = (int)mirt_tensor_shape(in[0]).dim[3];
    mirt_tensor *x = mirt_reduce_mean(in[0], 1u << 1 | 1u << 2, false); /* over height and width */
    x = mirt_dense(x, &(mirt_dense_desc){
                          .units = ((const excite_config *)config)->units, .activation = MIRT_RELU, .name = "squeeze"});
    x = mirt_dense(x, &(mirt_dense_desc){.units = channels, .name = "gate"});
    x = mirt_sigmoid(mirt_multiply(x, mirt_layer_variable(layer, "strength", MIRT_SHAPE(channels), mirt_ones(), true)));
    return (void)n, (void)user, mirt_multiply(in[0], mirt_reshape(x, MIRT_SHAPE(1, 1, channels)));
}
static const mirt_field excite_fields[] = {{"units", MIRT_FIELD_INT, offsetof(excite_config, units)}};
static const mirt_layer_class excite = {.class_name = "Excite", .config_size = sizeof(excite_config),
    .fields = excite_fields, .num_fields = 1, .build = excite_build};

/* A loss: cross-entropy with smoothed labels, one value per sample. The library averages over the global batch. */
static mirt_tensor *smoothed_record(mirt_tensor *labels, mirt_tensor *logits, void *user) {
    mirt_tensor *target = mirt_one_hot(mirt_cast(labels, MIRT_INT32), CLASSES);
    target = mirt_scale(target, 0.9f, 0.1f / CLASSES);
    return (void)user, mirt_negative(mirt_reduce_sum(mirt_multiply(target, mirt_log_softmax(logits)), 0, false));
}
static const mirt_custom_loss smoothed = {.name = "smoothed_crossentropy", .record = smoothed_record};

/* A metric: the mean of the classes' recalls, from 20 sums over samples: a hit and a one for its class. */
static mirt_tensor *recall_record(mirt_tensor *labels, mirt_tensor *logits, void *user) {
    mirt_tensor *label = mirt_cast(labels, MIRT_INT32), *in_class = mirt_one_hot(label, CLASSES);
    mirt_tensor *right = mirt_cast(mirt_equal(mirt_argmax(logits, 1), label), MIRT_FLOAT32);
    mirt_tensor *both[2] = {mirt_multiply(in_class, mirt_reshape(right, MIRT_SHAPE(1))), in_class};
    return (void)user, mirt_concat(both, 2, 1);
}
static double recall_result(const double *sums, int count, int64_t samples, void *user) {
    double total = 0;
    for (int c = 0; c < count / 2; c++) total += sums[count / 2 + c] > 0 ? sums[c] / sums[count / 2 + c] : 0;
    return (void)samples, (void)user, total / (count / 2);
}
static const mirt_custom_metric recall = {.name = "mean_recall", .record = recall_record, .result = recall_result};

/* A callback: stops training once the validation loss is low enough. */
static int stop_when_good(const mirt_event *event, void *user) {
    return mirt_logs_value(event->logs, "val_loss") < *(const double *)user;
}

int main(void) {
    double enough = 0.75;
    const mirt_callback early = {.user = &enough, .epoch_end = stop_when_good};
    mirt_strategy *strategy = mirt_mirrored("2"), *other = mirt_mirrored(NULL);
    mirt_dataset *train = mirt_batch(mirt_shuffle(mirt_drawn_digits(6000, 0, MIRT_TRAIN), 6000), 64);
    mirt_dataset *test = mirt_batch(mirt_drawn_digits(1000, 0, MIRT_TEST), 64);
    mirt_model *model = mirt_model_create(strategy, "own");
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0);
    x = mirt_conv2d(x, &(mirt_conv2d_desc){.filters = 12, .kernel = {5, 5}, .strides = {2, 2}});
    x = mirt_custom_op(&mish, &x, 1, NULL);
    x = mirt_custom_layer(&excite, &x, 1, &(excite_config){.units = 4}, NULL);
    mirt_model_output(model, mirt_dense(mirt_flatten(x), &(mirt_dense_desc){.units = CLASSES}));
    mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(3e-3f), .custom_losses = {&smoothed},
        .metrics = {MIRT_ACCURACY}, .custom_metrics = {&recall}});
    mirt_history *history =
        mirt_fit(model, train, &(mirt_fit_desc){.epochs = 8, .validation = test, .callbacks = {&early}});

    /* Code is not saved: the program that loads the model registers the names in the file. */
    mirt_logs logs[2];
    mirt_register_op(other, &mish);
    mirt_register_layer(other, &excite);
    mirt_register_loss(other, &smoothed);
    mirt_register_metric(other, &recall);
    const bool saved = history && mirt_save(model, "own.safetensors", MIRT_SAVE_ALL) == MIRT_OK;
    mirt_model *loaded = saved ? mirt_load(other, "own.safetensors") : NULL;
    remove("own.safetensors");
    if (!loaded || mirt_evaluate(model, test, &logs[0]) != MIRT_OK ||
        mirt_evaluate(loaded, test, &logs[1]) != MIRT_OK) {
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    for (int i = 0; i < logs[0].count; i++)
        printf("%s: %.4f, loaded %.4f\n", logs[0].name[i], logs[0].value[i], logs[1].value[i]);
    printf("stopped after %d epochs\n", history->epochs);
    mirt_strategy_destroy(other);
    mirt_strategy_destroy(strategy);
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    return memcmp(logs[0].value, logs[1].value, (size_t)logs[0].count * sizeof logs[0].value[0]) != 0;
}
