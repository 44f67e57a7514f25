/* Each allocation fails once while a model is recorded, compiled, saved and loaded. The model has all layers,
   operations, custom layers and parts. Failures are reported as MIRT_E_NOMEM, and nothing leaks. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include <unistd.h>

static char path[512];

typedef struct mine { int units; } mine;

static mirt_tensor *mine_build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user) {
    ZEROED(mirt_dense_desc, d);
    (void)num_in;
    (void)user;
    d.units = ((const mine *)config)->units;
    mirt_tensor *shift = mirt_layer_variable(layer, "shift", MIRT_SHAPE(d.units), mirt_zeros(), true);
    mirt_layer_add_loss(layer, mirt_reduce_sum(mirt_square(shift), 0, false));
    return mirt_add(mirt_dense(in[0], &d), shift);
}

static mirt_layer_class mine_class(void) {
    static const mirt_field fields[] = {{"units", MIRT_FIELD_INT, offsetof(mine, units)}};
    ZEROED(mirt_layer_class, c);
    c.class_name = "Mine";
    c.config_size = sizeof(mine);
    c.fields = fields;
    c.num_fields = 1;
    c.build = mine_build;
    return c;
}

static mirt_tensor *images(mirt_tensor *x) {
    ZEROED(mirt_conv2d_desc, c);
    ZEROED(mirt_depthwise_conv2d_desc, depthwise);
    ZEROED(mirt_separable_conv2d_desc, separable);
    mirt_tensor *both[2];
    c.filters = 2;
    c.kernel[0] = depthwise.kernel[0] = separable.depthwise.kernel[0] = 2;
    c.kernel_regularizer.l1 = c.bias_regularizer.l2 = 0.5f;
    c.padding = depthwise.padding = separable.depthwise.padding = MIRT_SAME;
    separable.filters = 2;
    both[0] = mirt_batch_norm(mirt_conv2d(mirt_rescale(x, 2, 1), &c), NULL);
    both[1] = mirt_layer_norm(mirt_conv2d_transpose(x, &c), NULL);
    x = mirt_add_layer(both, 2);
    both[0] = mirt_prelu(mirt_depthwise_conv2d(x, &depthwise), NULL);
    both[1] = mirt_relu_layer(mirt_separable_conv2d(x, &separable), NULL);
    x = mirt_average_layer(both, 2);
    both[0] = mirt_multiply_layer(both, 2);
    both[1] = mirt_cropping2d(mirt_zero_padding2d(x, 1, 1, 1, 1), 1, 1, 1, 1);
    x = mirt_concatenate(both, 2, -1);
    x = mirt_max_pool2d(mirt_up_sampling2d(x, NULL), NULL);
    both[0] = mirt_permute(mirt_permute(x, MIRT_SHAPE(2, 1, 3)), MIRT_SHAPE(2, 1, 3));
    both[1] = mirt_reshape_layer(mirt_leaky_relu_layer(mirt_elu_layer(x, 1), 0.5f), MIRT_SHAPE(3, 3, -1));
    return mirt_average_pool2d(mirt_maximum_layer(both, 2), NULL);
}

static mirt_tensor *record(mirt_model *model, mirt_model *part) {
    static const float table[3] = {1, 2, 3};
    ZEROED(mirt_dense_desc, d);
    ZEROED(mine, m);
    mirt_layer_class c = mine_class();
    d.units = m.units = 3;
    mirt_tensor *y = mirt_softmax_layer(mirt_dense(mirt_dropout(mirt_input(part, MIRT_SHAPE(4)), 0.5f), &d));
    mirt_model_output(part, y);
    mirt_next_name(model, "image");
    mirt_tensor *x = mirt_activation(mirt_global_max_pool2d(images(mirt_input(model, MIRT_SHAPE(3, 3, 1)))), MIRT_GELU);
    mirt_tensor *mix = mirt_variable(model, "mix", MIRT_SHAPE(3), mirt_ones(), true);
    x = mirt_subtract(mirt_call(part, x, MIRT_TRAINING_OFF),
                      mirt_multiply(mix, mirt_constant_tensor(x, mirt_make_array(table, MIRT_FLOAT32, MIRT_SHAPE(3)))));
    x = mirt_custom_layer(&c, &x, 1, &m, NULL);
    mirt_model_output(model, mirt_clip(x, -INFINITY, 1));
    mirt_add_loss(model, mirt_reduce_sum(mirt_square(mix), 0, false));
    mirt_set_trainable(model, "mix", false);
    return x;
}

static mirt_status everything(mirt_strategy *strategy) {
    ZEROED(mirt_compile_desc, compile);
    mirt_model *part = mirt_model_create(strategy, "part"), *model = part ? mirt_model_create(strategy, NULL) : NULL;
    if (!model) return mirt_last_status();
    record(model, part);
    compile.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_status status = mirt_compile(model, &compile);
    if (status == MIRT_OK) status = mirt_save(model, path, MIRT_SAVE_ALL);
    mirt_model *loaded = status == MIRT_OK ? mirt_load(strategy, path) : NULL;
    if (status == MIRT_OK && !loaded) status = mirt_last_status();
    mirt_model_destroy(loaded);
    mirt_model_destroy(model);
    mirt_model_destroy(part);
    return status;
}

static mirt_status run(long number, bool *reached) {
    ZEROED(mirt_strategy_desc, desc);
    desc.devices = "1";
    desc.threads = 1;
    desc.silent = true;
    mirt_strategy *strategy = mirt_strategy_create(&desc);
    allocations = 0;
    fails = number;
    mirt_status status = everything(strategy);
    fails = 0;
    *reached = allocations >= number;
    mirt_strategy_destroy(strategy);
    return status;
}

int main(void) {
    bool reached = true;
    long problems = 0, met = 0;
    snprintf(path, sizeof path, "%s/mirt_layer_faults_%ld.safetensors", tap_tmpdir(), (long)getpid());
    ok(run(0, &reached) == MIRT_OK, "without faults it works: %s", mirt_last_error());
    for (long number = 1; reached && problems < 5; number += small_tier() ? 13 : 1) {
        mirt_status status = run(number, &reached);
        met += reached;
        bool right =
            live_blocks == 0 && status == (reached ? MIRT_E_NOMEM : MIRT_OK) &&
            (!reached || strstr(mirt_last_error(), "out of memory") || strstr(mirt_last_error(), "annot allocate"));
        if (!right && problems++ < 5)
            printf("# allocation %ld: status %d, %ld blocks left: %s\n", number, (int)status, live_blocks,
                   mirt_last_error());
    }
    ok(problems == 0 && met > 100 / (small_tier() ? 13 : 1), "%ld failed allocations, each reported, nothing leaks",
       met);
    unlink(path);
    return done_testing();
}
