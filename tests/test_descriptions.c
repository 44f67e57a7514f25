/* Numbers of descriptions beyond their limits: refused with a sentence that says which. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "gallery.h"
#include "mirror_util.h"
#include "tap.h"

static mirt_strategy *s;
static mirt_model *m;            /* a new one for each check, */
static mirt_tensor *x, *v, *one; /* with images, a vector and a number as inputs */
static const float inf = INFINITY, nan_ = NAN;

static void fresh(void) {
    mirt_model_destroy(m);
    m = mirt_model_create(s, "m");
    x = mirt_input(m, MIRT_SHAPE(6, 6, 2));
    v = mirt_input(m, MIRT_SHAPE(8));
    one = mirt_input(m, MIRT_SHAPE(1));
}

static void judge(bool done, const char *says, const char *call) {
    const mirt_status status = mirt_last_status();
    const bool right = !done && (status == MIRT_E_INVALID || status == MIRT_E_SHAPE || status == MIRT_E_STATE ||
                                 status == MIRT_E_NOT_FOUND);
    ok(right && strstr(mirt_last_error(), says), "%.100s: %s", call, done ? "done" : mirt_last_error());
}
/* An expression that is true when the call succeeds. */
#define REFUSED(expression, says) \
    do { \
        fresh(); \
        const bool done = expression; \
        judge(done, says, #expression); \
    } while (0)
#define LAYER(call, says) REFUSED((call) != NULL, says)
#define STATUS(call, says) REFUSED((call) == MIRT_OK, says)

#define CONV(...) mirt_conv2d(x, &(mirt_conv2d_desc){__VA_ARGS__})
#define DENSE(...) mirt_dense(v, &(mirt_dense_desc){__VA_ARGS__})

static void check_layers(void) {
    LAYER(mirt_conv2d(x, NULL), "description");
    LAYER(mirt_conv2d(NULL, &(mirt_conv2d_desc){.filters = 1}), "conv2d");
    LAYER(CONV(.filters = 0, .kernel = {1}), "filters is 0");
    LAYER(CONV(.filters = 2, .kernel = {-1, 1}), "kernel is -1x1");
    LAYER(CONV(.filters = 2, .kernel = {1, -1}), "kernel is 1x-1");
    LAYER(CONV(.filters = 2, .kernel = {1}, .strides = {-1, 1}), "stride");
    LAYER(CONV(.filters = 2, .kernel = {1}, .strides = {1, -1}), "stride");
    LAYER(CONV(.filters = 2, .kernel = {1}, .dilation = {-1, 1}), "dilat");
    LAYER(CONV(.filters = 2, .kernel = {1}, .groups = -1), "groups");
    LAYER(CONV(.filters = 3, .kernel = {1}, .groups = 2), "groups");
    LAYER(CONV(.filters = 3, .kernel = {1}, .groups = 3), "groups");
    LAYER(CONV(.filters = 3, .kernel = {1}, .padding = (mirt_padding)7), "padding");
    LAYER(CONV(.filters = 3, .kernel = {1}, .padding = (mirt_padding)-1), "padding");
    LAYER(CONV(.filters = 3, .kernel = {1}, .activation = (mirt_activation_kind)99), "activation");
    LAYER(CONV(.filters = 3, .kernel = {1}, .activation = (mirt_activation_kind)-1), "activation");
    LAYER(CONV(.filters = 3, .kernel = {1}, .kernel_regularizer = {.l1 = -1}), "-1");
    LAYER(CONV(.filters = 3, .kernel = {1}, .kernel_regularizer = {.l1 = inf}), "inf");
    LAYER(CONV(.filters = 3, .kernel = {1}, .kernel_regularizer = {.l2 = nan_}), "nan");
    LAYER(CONV(.filters = 3, .kernel = {1}, .bias_regularizer = {.l2 = inf}), "inf");
    LAYER(CONV(.filters = 3, .kernel = {1}, .kernel_initializer = {.kind = (mirt_initializer_kind)-1}),
          "invalid initializer (-1)");
    LAYER(CONV(.filters = 3, .kernel = {1}, .kernel_initializer = {.kind = (mirt_initializer_kind)99}),
          "invalid initializer (99)");
    LAYER(CONV(.filters = 3, .kernel = {1},
               .kernel_initializer = {.kind = MIRT_INIT_VARIANCE_SCALING, .a = 1, .mode = (mirt_fan)-1}),
          "invalid fan mode (-1)");
    LAYER(CONV(.filters = 3, .kernel = {1},
               .kernel_initializer = {.kind = MIRT_INIT_VARIANCE_SCALING, .a = 1, .mode = (mirt_fan)9}),
          "invalid fan mode (9)");
    LAYER(
        CONV(.filters = 3, .kernel = {1},
             .kernel_initializer = {.kind = MIRT_INIT_VARIANCE_SCALING, .a = 1, .distribution = (mirt_distribution)9}),
        "invalid distribution (9)");
    LAYER(
        CONV(.filters = 3, .kernel = {1},
             .kernel_initializer = {.kind = MIRT_INIT_VARIANCE_SCALING, .a = 1, .distribution = (mirt_distribution)-1}),
        "invalid distribution (-1)");
    LAYER(DENSE(.units = 0), "units is 0");
    LAYER(mirt_dense(v, NULL), "description");
    LAYER(DENSE(.units = 3, .kernel_initializer = {.kind = MIRT_INIT_CONSTANT, .a = nan_}), "nan");
    LAYER(mirt_separable_conv2d(x, NULL), "description");
    LAYER(mirt_dropout_layer(x, NULL), "description");
    LAYER(mirt_dropout(x, -0.5f), "rate is -0.5");
    LAYER(mirt_dropout(x, 1.5f), "rate is 1.5");
    LAYER(mirt_dropout(x, nan_), "rate is nan");
    LAYER(mirt_rescale(x, inf, 0), "inf");
    LAYER(mirt_rescale(x, 1, nan_), "nan");
    LAYER(mirt_relu_layer(x, &(mirt_relu_desc){.max_value = -1}), "-1");
    LAYER(mirt_relu_layer(x, &(mirt_relu_desc){.negative_slope = -1}), "-1");
    LAYER(mirt_relu_layer(x, &(mirt_relu_desc){.threshold = -1}), "-1");
    LAYER(mirt_relu_layer(x, &(mirt_relu_desc){.threshold = inf}), "inf");
    LAYER(mirt_prelu(x, &(mirt_prelu_desc){.shared_axes = -1}), "axes");
    LAYER(mirt_prelu(x, &(mirt_prelu_desc){.shared_axes = 1}), "axes");
    LAYER(mirt_prelu(x, &(mirt_prelu_desc){.shared_axes = 64}), "axes");
    LAYER(mirt_batch_norm(x, &(mirt_batch_norm_desc){.momentum = 1.5f}), "momentum");
    LAYER(mirt_batch_norm(x, &(mirt_batch_norm_desc){.epsilon = -1}), "epsilon");
    LAYER(mirt_layer_norm(x, &(mirt_layer_norm_desc){.epsilon = -1}), "epsilon is -1");
    LAYER(mirt_layer_norm(x, &(mirt_layer_norm_desc){.epsilon = inf}), "epsilon is inf");
    LAYER(mirt_layer_norm(x, &(mirt_layer_norm_desc){.axes = 9}), "axes");
    LAYER(mirt_normalization(x, &(mirt_normalization_desc){.mean = {inf}}), "inf");
    LAYER(mirt_normalization(x, &(mirt_normalization_desc){.variance = {1, inf}}), "inf");
    LAYER(mirt_normalization(x, &(mirt_normalization_desc){.variance = {-1}}), "-1");
    LAYER(mirt_normalization(v, &(mirt_normalization_desc){.mean = {1}}), "channels");
    LAYER(mirt_max_pool2d(x, &(mirt_pool2d_desc){.size = {-1, 2}}), "pool");
    LAYER(mirt_max_pool2d(x, &(mirt_pool2d_desc){.size = {2, -1}}), "pool");
    LAYER(mirt_max_pool2d(x, &(mirt_pool2d_desc){.strides = {-1, 1}}), "stride");
    LAYER(mirt_max_pool2d(v, NULL), "takes (rows, height, width, channels)");
    LAYER(mirt_global_pool2d(v, NULL), "takes (rows, height, width, channels)");
    LAYER(mirt_up_sampling2d(x, &(mirt_up_sampling2d_desc){.size = {-1, 1}}), "size is -1x1");
    LAYER(mirt_up_sampling2d(x, &(mirt_up_sampling2d_desc){.size = {1, -1}}), "size is 1x-1");
    LAYER(mirt_up_sampling2d(v, NULL), "takes (rows, height, width, channels)");
    LAYER(mirt_zero_padding2d(x, -1, 0, 0, 0), "less than nothing");
    LAYER(mirt_zero_padding2d(v, 1, 0, 0, 0), "takes (rows, height, width, channels)");
    LAYER(mirt_cropping2d(v, 1, 0, 0, 0), "takes (rows, height, width, channels)");
    LAYER(mirt_cropping2d(x, -1, 0, 0, 0), "-1");
    LAYER(mirt_cropping2d(x, 0, -1, 0, 0), "-1");
    LAYER(mirt_cropping2d(x, 3, 3, 0, 0), "3");
    LAYER(mirt_permute(x, MIRT_SHAPE(1, 2)), "permut");
    LAYER(mirt_permute(x, MIRT_SHAPE(1, 2, 4)), "permut");
    LAYER(mirt_permute(x, MIRT_SHAPE(1, 2, -1)), "permut");
    LAYER(mirt_permute(x, MIRT_SHAPE(1, 2, 2)), "permut");
    LAYER(mirt_reshape_layer(x, MIRT_SHAPE(5, 5)), "shape");
    LAYER(mirt_reshape_layer(x, MIRT_SHAPE(-1, -1)), "shape");
    LAYER(mirt_leaky_relu_layer(x, nan_), "nan");
    LAYER(mirt_elu_layer(x, -inf), "inf");
    LAYER(mirt_activation(x, (mirt_activation_kind)99), "activation");
    LAYER(mirt_concatenate((mirt_tensor *[]){x, v}, 2, -1), "concatenate");
    LAYER(mirt_add_layer((mirt_tensor *[]){x, v}, 2), "add");
    LAYER(mirt_input(m, MIRT_SHAPE(3, -1)), "-1");
    LAYER(mirt_call(m, v, (mirt_training)9), "");
    LAYER(mirt_call(m, v, (mirt_training)-1), "");
}

#define AUGMENT(function, ...) mirt_##function(x, &(mirt_augmentation){__VA_ARGS__})

static void check_augmentations(void) {
    LAYER(AUGMENT(random_flip, .mode = (mirt_flip_mode)9), "invalid flip mode (9)");
    LAYER(AUGMENT(random_flip, .mode = (mirt_flip_mode)-1), "invalid flip mode (-1)");
    LAYER(AUGMENT(random_rotation, .factor = {2, 2}), "factor");
    LAYER(AUGMENT(random_rotation, .factor = {nan_, 1}), "factor");
    LAYER(AUGMENT(random_rotation, .factor = {0.1f}, .fill_mode = (mirt_fill_mode)-1), "fill mode");
    LAYER(AUGMENT(random_rotation, .factor = {0.1f}, .fill_mode = (mirt_fill_mode)9), "fill mode");
    LAYER(AUGMENT(random_rotation, .factor = {0.1f}, .fill_mode = MIRT_FILL_CONSTANT, .fill_value = nan_), "fill");
    LAYER(AUGMENT(random_rotation, .factor = {0.1f}, .interpolation = (mirt_interpolation)-1), "interpolation");
    LAYER(AUGMENT(random_rotation, .factor = {0.1f}, .interpolation = (mirt_interpolation)99), "interpolation");
    LAYER(AUGMENT(random_zoom, .height_factor = {-2, -2}), "factor");
    LAYER(AUGMENT(random_zoom, .height_factor = {0.1f}, .width_factor = {7, 8}), "factor");
    LAYER(AUGMENT(random_translation, .height_factor = {2, 2}), "factor");
    LAYER(AUGMENT(random_translation, .height_factor = {0.1f}, .width_factor = {nan_, nan_}), "factor");
    LAYER(AUGMENT(random_crop, .height = -1, .width = 2), "height -1");
    LAYER(AUGMENT(random_crop, .height = 2, .width = -1), "width -1");
    LAYER(AUGMENT(resizing, .height = 0), "height 0");
    LAYER(AUGMENT(resizing, .height = INT_MAX, .width = INT_MAX), "2^31");
    LAYER(AUGMENT(resizing, .height = 1 << 24, .interpolation = MIRT_BICUBIC), "");
    LAYER(AUGMENT(resizing, .height = 4, .interpolation = MIRT_AREA), "interpolation 3");
    LAYER(AUGMENT(resizing, .height = 4, .interpolation = (mirt_interpolation)INT_MAX, .antialias = true),
          "interpolation 2147483647");
    LAYER(AUGMENT(resizing, .height = 4, .interpolation = (mirt_interpolation)-1, .antialias = true),
          "interpolation -1");
    LAYER(AUGMENT(random_contrast, .factor = {-1, 0}), "factor");
    LAYER(AUGMENT(random_brightness, .factor = {0.1f}, .value_range = {1, 1}), "range");
    LAYER(AUGMENT(random_brightness, .factor = {0.1f}, .value_range = {-inf, 1}), "range");
    LAYER(AUGMENT(random_brightness, .factor = {0.1f}, .value_range = {0, inf}), "range");
    LAYER(AUGMENT(random_shear, .x_factor = {-0.1f, 0.2f}), "factor");
    LAYER(AUGMENT(random_shear, .y_factor = {0.1f, nan_}), "factor");
    LAYER(AUGMENT(random_shear, .x_factor = {0.1f}, .fill_mode = (mirt_fill_mode)9), "fill mode");
    LAYER(AUGMENT(random_hue, .factor = {0.1f, 1.5f}), "factor");
    LAYER(AUGMENT(random_saturation, .factor = {0.5f}, .value_range = {1, 0}), "range");
    LAYER(AUGMENT(random_erasing, .scale = {0.1f, 2}), "scale 2");
    LAYER(AUGMENT(random_erasing, .fill_mode = MIRT_FILL_NEAREST), "erasing");
    LAYER(mirt_random_hue(mirt_input(m, MIRT_SHAPE(2, 2, 4)), &(mirt_augmentation){.factor = {0.1f}}), "channels");
    LAYER(AUGMENT(random_grayscale, .factor = {1.5f}), "factor 1.5");
    LAYER(mirt_random_grayscale(mirt_input(m, MIRT_SHAPE(2, 2, 4)), NULL), "channels");
    LAYER(AUGMENT(random_invert, .factor = {0, -1}), "factor -1");
    LAYER(AUGMENT(solarization, .addition_factor = {nan_}), "factor");
    LAYER(AUGMENT(solarization, .threshold_factor = {0, 1.25f}), "threshold_factor 1.25");
    LAYER(AUGMENT(random_posterization, .name = "none"), "factor 0; it must lie between 1 and 8");
    LAYER(AUGMENT(random_posterization, .factor = {2.5f}), "whole number");
    LAYER(AUGMENT(random_posterization, .factor = {2, 9}), "factor 9");
    LAYER(AUGMENT(random_color_degeneration, .factor = {-0.5f}), "factor -0.5");
    LAYER(AUGMENT(auto_contrast, .value_range = {3, 2}), "range");
    LAYER(mirt_auto_contrast(mirt_input(m, MIRT_SHAPE(2, 2, 65)), NULL), "64 channels");
    LAYER(mirt_equalization(mirt_input(m, MIRT_SHAPE(2, 2, 65)), NULL), "64 channels");
    LAYER(AUGMENT(equalization, .bins = 1), "1 bins");
    LAYER(AUGMENT(equalization, .bins = 257), "257 bins");
    LAYER(AUGMENT(random_sharpness, .factor = {2}), "factor 2");
    LAYER(mirt_random_sharpness(mirt_input(m, MIRT_SHAPE(2, 2, 513)), NULL), "512 channels");
    LAYER(AUGMENT(random_gaussian_blur, .kernel_size = 4), "kernel_size 4");
    LAYER(AUGMENT(random_gaussian_blur, .kernel_size = -3), "kernel_size -3");
    LAYER(AUGMENT(random_gaussian_blur, .kernel_size = 33), "kernel_size 33");
    LAYER(AUGMENT(random_gaussian_blur, .sigma = {-1}), "sigma -1");
    LAYER(mirt_random_color_jitter(mirt_input(m, MIRT_SHAPE(2, 2, 3)),
                                   &(mirt_augmentation){.contrast_factor = {2}}), "factor 2");
    LAYER(mirt_random_color_jitter(mirt_input(m, MIRT_SHAPE(2, 2, 3)),
                                   &(mirt_augmentation){.value_range = {2, 1}}), "range");
    LAYER(mirt_rand_augment(mirt_input(m, MIRT_SHAPE(2, 2, 3)), &(mirt_augmentation){.factor = {-1}}), "factor -1");
    LAYER(AUGMENT(rand_augment, .num_ops = 9), "num_ops 9");
    LAYER(AUGMENT(rand_augment, .num_ops = -1), "num_ops -1");
    LAYER(mirt_rand_augment(mirt_input(m, MIRT_SHAPE(2, 2, 2)), NULL), "channels");
    LAYER(AUGMENT(random_perspective, .factor = {1.5f}), "factor 1.5");
    LAYER(AUGMENT(random_perspective, .scale = {-0.5f}), "scale -0.5");
    LAYER(AUGMENT(random_perspective, .fill_mode = MIRT_FILL_WRAP), "a perspective supports only MIRT_FILL_CONSTANT");
    LAYER(AUGMENT(random_perspective, .interpolation = MIRT_BICUBIC), "interpolation 2");
    LAYER(AUGMENT(aug_mix, .factor = {1.5f}), "factor 1.5");
    LAYER(AUGMENT(aug_mix, .num_chains = 6), "num_chains 6");
    LAYER(AUGMENT(aug_mix, .num_chains = -1), "num_chains -1");
    LAYER(AUGMENT(aug_mix, .chain_depth = 6), "chain_depth 6");
    LAYER(AUGMENT(aug_mix, .chain_depth = -1), "chain_depth -1");
    LAYER(AUGMENT(aug_mix, .alpha = -1), "alpha -1; 1 to 5");
    LAYER(AUGMENT(aug_mix, .alpha = nan_), "alpha");
    LAYER(AUGMENT(aug_mix, .value_range = {1, 0}), "range");
    LAYER(mirt_aug_mix(mirt_input(m, MIRT_SHAPE(2, 2, 2)), NULL), "channels");
    LAYER(AUGMENT(clahe, .tile_grid_size = {17, 8}), "tile_grid_size 17 x 8");
    LAYER(AUGMENT(clahe, .tile_grid_size = {8, -1}), "tile_grid_size 8 x -1");
    LAYER(AUGMENT(clahe, .clip_limit = nan_), "clip_limit");
    LAYER(AUGMENT(clahe, .value_range = {2, 1}), "range");
    LAYER(mirt_clahe(mirt_input(m, MIRT_SHAPE(3, 9, 1)), NULL), "a grid of 8 x 8 tiles needs");
    LAYER(mirt_clahe(mirt_input(m, MIRT_SHAPE(8, 8, 65)), NULL), "64 channels");
    LAYER(AUGMENT(random_elastic_transform, .factor = {1.5f}), "factor 1.5; it must lie between 0 and 1");
    LAYER(AUGMENT(random_elastic_transform, .scale = {0.5f, -0.5f}), "scale -0.5; it must lie between 0 and 1");
    LAYER(AUGMENT(random_elastic_transform, .scale = {nan_}), "scale nan");
    LAYER(AUGMENT(random_elastic_transform, .fill_mode = (mirt_fill_mode)4), "fill mode 4");
    LAYER(AUGMENT(random_elastic_transform, .fill_value = inf), "not finite");
    LAYER(AUGMENT(random_elastic_transform, .interpolation = MIRT_BICUBIC), "interpolation 2");
    LAYER(AUGMENT(random_elastic_transform, .value_range = {1, -1}), "range");
    LAYER(mirt_augmentation_layer(x, NULL), "");
    LAYER(mirt_augmentation_layer(x, &(mirt_augmentation){.kind = (mirt_augmentation_kind)-1}), "kind");
    LAYER(mirt_augmentation_layer(x, &(mirt_augmentation){.kind = (mirt_augmentation_kind)99}), "kind");
    LAYER(mirt_random_flip(v, NULL), "takes (rows, height, width, channels)");
    LAYER(mirt_resizing(v, &(mirt_augmentation){.height = 4, .antialias = true}),
          "takes (rows, height, width, channels)");
    LAYER(mirt_random_contrast(mirt_input(m, MIRT_SHAPE(2, 2, 65)), &(mirt_augmentation){.factor = {0.1f}}),
          "at most 64 channels");
    LAYER(mirt_center_crop(x, NULL), "height 0");
    LAYER(mirt_resizing(x, NULL), "height 0");
    /* The others have defaults, which change nothing. */
    mirt_tensor *(*const made[])(mirt_tensor *, const mirt_augmentation *) = {
        mirt_random_rotation, mirt_random_zoom,       mirt_random_translation,
        mirt_random_contrast, mirt_random_brightness, mirt_random_shear};
    for (int i = 0; i < MIRT__COUNT(made); i++) {
        fresh();
        const mirt_tensor *y = made[i](x, NULL);
        ok(y && y->shape.dim[1] == 6 && y->shape.dim[3] == 2, "without a description, number %d: %s", i,
           y ? "" : mirt_last_error());
    }
    fresh();
    mirt_tensor *same = AUGMENT(resizing, .height = 6, .interpolation = MIRT_BICUBIC);
    ok(same && same->shape.dim[1] == 6, "a cubic filter for the size that there is: %s", same ? "" : mirt_last_error());
    fresh();
    mirt_tensor *wide =
        AUGMENT(resizing, .height = 4, .width = 8, .interpolation = MIRT_BICUBIC, .crop_to_aspect_ratio = true);
    ok(wide && wide->shape.dim[1] == 4 && wide->shape.dim[2] == 8, "of the middle of an image: %s",
       wide ? "" : mirt_last_error());
}

/* Compiles a network of `outputs` outputs of 3 numbers. */
static mirt_status compile(int outputs, const mirt_compile_desc *desc) {
    mirt_tensor *out[2] = {DENSE(.units = 3), DENSE(.units = 3)};
    mirt_model_outputs(m, out, outputs);
    return mirt_compile(m, desc);
}
#define COMPILE(...) compile(2, &(mirt_compile_desc){__VA_ARGS__})
#define WITH(...) COMPILE(.loss = MIRT_MEAN_SQUARED_ERROR, __VA_ARGS__)
#define OPTIMIZER(like, ...) (optimizer = like, optimizer.__VA_ARGS__, optimizer)

static float by_step(int64_t step, void *user) { return (void)step, (void)user, 0.5f; }

static void check_optimizers(void) {
    mirt_optimizer optimizer;
    STATUS(WITH(.optimizer = mirt_sgd(-1, 0, false)), "the learning rate is -1");
    STATUS(WITH(.optimizer = mirt_sgd(nan_, 0, false)), "the learning rate is nan");
    STATUS(WITH(.optimizer = mirt_sgd(inf, 0, false)), "the learning rate is inf");
    STATUS(WITH(.optimizer = mirt_sgd(0.1f, -1, false)), "momentum");
    STATUS(WITH(.optimizer = mirt_sgd(0.1f, 1.5f, false)), "momentum");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), kind = (mirt_optimizer_kind)-1)), "-1");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), kind = (mirt_optimizer_kind)99)), "99");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), beta_1 = 1)), "beta_1 is 1");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), beta_2 = -1)), "beta_2 is -1");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), epsilon = -1)), "epsilon is -1");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), epsilon = inf)), "epsilon is inf");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_rmsprop(0.1f), rho = 1)), "rho is 1");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_rmsprop(0.1f), momentum = 1)), "momentum is 1");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_rmsprop(0.1f), epsilon = -1)), "epsilon is -1");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_rmsprop(0.1f), epsilon = inf)), "epsilon is inf");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), clipnorm = -1)), "clipnorm is -1");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), clipvalue = inf)), "clipvalue is inf");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), global_clipnorm = nan_)), "global_clipnorm is nan");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), weight_decay = -1)), "weight_decay is -1");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), exclude_from_weight_decay = "\xff")), "not valid UTF-8");
    STATUS(WITH(.optimizer = OPTIMIZER(mirt_adam(0.1f), ema_momentum = -1)), "ema_momentum");
    STATUS(WITH(.optimizer = (optimizer = mirt_adam(0.1f), optimizer.schedule = by_step,
                              optimizer.decay = mirt_cosine_decay(1, 9, 0), optimizer)),
           "two learning-rate schedules");
    STATUS(WITH(.optimizer = (optimizer = mirt_adam(0.1f), optimizer.clipnorm = optimizer.clipvalue = 1, optimizer)),
           "clip");
    STATUS(WITH(.optimizer = (optimizer = mirt_adam(0.1f), optimizer.use_ema = true,
                              optimizer.ema_overwrite_frequency = -1, optimizer)),
           "ema_overwrite_frequency");
}

static mirt_schedule of(mirt_schedule schedule, float end, float warmup_target, int64_t warmup_steps) {
    schedule.end = end;
    schedule.warmup_target = warmup_target;
    schedule.warmup_steps = warmup_steps;
    return schedule;
}
#define SCHEDULE(schedule, says) \
    do { \
        fresh(); \
        mirt_optimizer o = mirt_adam(0.1f); \
        o.decay = schedule; \
        const bool done = WITH(.optimizer = o) == MIRT_OK; \
        judge(done, says, #schedule); \
        ok(isnan(mirt_schedule_at(&o.decay, 3)), "and it has no rate"); \
    } while (0)

static void check_schedules(void) {
    const int64_t falling[2] = {5, 4}, boundaries[2] = {4, 5};
    const float values[3] = {1, 2, 3}, odd[3] = {1, -2, 3};
    mirt_schedule unknown = mirt_cosine_decay(1, 9, 0);
    unknown.kind = (mirt_schedule_kind)99;
    SCHEDULE(unknown, "99");
    unknown.kind = (mirt_schedule_kind)-1;
    SCHEDULE(unknown, "-1");
    SCHEDULE(mirt_piecewise_constant(NULL, values, 2), "boundaries");
    SCHEDULE(mirt_piecewise_constant(boundaries, NULL, 2), "boundaries");
    SCHEDULE(mirt_piecewise_constant(boundaries, values, 0), "boundaries");
    SCHEDULE(mirt_piecewise_constant(boundaries, values, 999), "boundaries");
    SCHEDULE(mirt_piecewise_constant(falling, values, 2), "boundar");
    SCHEDULE(mirt_piecewise_constant(boundaries, odd, 2), "-2");
    SCHEDULE(mirt_exponential_decay(-1, 9, 0.5f, false), "-1");
    SCHEDULE(mirt_exponential_decay(1, 0, 0.5f, false), "0");
    SCHEDULE(mirt_exponential_decay(1, 9, -0.5f, false), "not negative");
    SCHEDULE(mirt_inverse_time_decay(1, 9, inf, false), "not negative");
    SCHEDULE(mirt_polynomial_decay(1, 9, -1, 1, false), "not negative");
    SCHEDULE(mirt_polynomial_decay(1, 9, 0, -1, false), "not negative");
    SCHEDULE(mirt_polynomial_decay(nan_, 9, 0, 1, false), "nan");
    SCHEDULE(mirt_cosine_decay(1, 9, 2), "alpha is 2");
    SCHEDULE(mirt_cosine_decay(1, 9, -1), "alpha is -1");
    SCHEDULE(mirt_cosine_restarts(1, 9, 0.5f, 1, 0), "0.5");
    SCHEDULE(mirt_cosine_restarts(1, 9, inf, 1, 0), "inf");
    SCHEDULE(mirt_cosine_restarts(1, 9, 2, -1, 0), "-1");
    SCHEDULE(of(mirt_cosine_decay(1, 9, 0), 0, -1, 3), "not negative");
    SCHEDULE(of(mirt_cosine_decay(1, 9, 0), 0, 1, -3), "not negative");
    SCHEDULE(of(mirt_cosine_decay(1, 9, 0), -1, 1, 3), "not negative");
    ok(isnan(mirt_schedule_at(NULL, 3)), "no schedule has no rate");
    const mirt_schedule good = mirt_cosine_decay(1, 9, 0);
    fresh();
    ok(WITH(.optimizer = mirt_adam(0.1f)) == MIRT_OK, "a model");
    ok(mirt_set_schedule(m, NULL) == MIRT_E_INVALID && mirt_set_schedule(NULL, &good) == MIRT_E_INVALID &&
           mirt_set_schedule(m, &unknown) == MIRT_E_INVALID,
       "bad schedules: %s", mirt_last_error());
    ok(mirt_set_learning_rate(m, -1) == MIRT_E_INVALID && mirt_set_learning_rate(m, 1e39) == MIRT_E_INVALID &&
           mirt_set_learning_rate(m, (double)nan_) == MIRT_E_INVALID,
       "bad rates: %s", mirt_last_error());
    ok(mirt_set_learning_rate(NULL, 1) == MIRT_E_INVALID && mirt_apply_averages(NULL) == MIRT_E_INVALID &&
           mirt_apply_averages(m) == MIRT_E_STATE,
       "%s", mirt_last_error());
}

static mirt_tensor *record(mirt_tensor *labels, mirt_tensor *output, void *user) {
    return (void)labels, (void)user, output;
}
static mirt_tensor *record_other(mirt_tensor *labels, mirt_tensor *output, void *user) {
    return (void)labels, (void)user, output;
}
static double total(const double *sums, int count, int64_t samples, void *user) {
    return (void)count, (void)samples, (void)user, sums[0];
}

static void check_compile(void) {
    STATUS(COMPILE(.loss = (mirt_loss)-1), "invalid loss (-1)");
    STATUS(COMPILE(.loss = (mirt_loss)99), "invalid loss (99)");
    STATUS(COMPILE(.losses = {MIRT_MEAN_SQUARED_ERROR, (mirt_loss)77}), "invalid loss (77)");
    STATUS(WITH(.reduction = (mirt_reduction)-1),
           "mirt_compile: invalid reduction (-1); it must be MIRT_SUM_OVER_BATCH_SIZE or MIRT_SUM");
    STATUS(WITH(.reduction = (mirt_reduction)9), "invalid reduction (9)");
    STATUS(WITH(.loss_weights = {-1}), "the loss weight of output 0 is -1");
    STATUS(WITH(.loss_weights = {1, inf}), "the loss weight of output 1 is inf");
    STATUS(WITH(.loss_weights = {1, 1, 1}), "output");
    STATUS(WITH(.losses = {[3] = MIRT_MEAN_SQUARED_ERROR}), "output");
    STATUS(WITH(.custom_losses = {[3] = &gallery_loss}), "output");
    STATUS(WITH(.metrics = {(mirt_metric)-1}), "-1");
    STATUS(WITH(.metrics = {(mirt_metric)99}), "99");
    STATUS(WITH(.metrics = {MIRT_AUC}, .metric_options = {{.num_thresholds = -1}}), "-1 thresholds");
    STATUS(WITH(.metrics = {MIRT_AUC}, .metric_options = {{.curve = (mirt_curve)9}}), "curve");
    STATUS(WITH(.metrics = {MIRT_AUC}, .metric_options = {{.curve = (mirt_curve)-1}}), "curve");
    STATUS(WITH(.metrics = {MIRT_TOP_K_CATEGORICAL_ACCURACY}, .metric_options = {{.k = -1}}), "k");
    STATUS(WITH(.metrics = {MIRT_PRECISION}, .metric_options = {{.threshold = inf}}), "threshold");
    STATUS(WITH(.metrics = {MIRT_PRECISION}, .metric_options = {{.name = ""}}), "name");
    STATUS(WITH(.metrics = {MIRT_PRECISION}, .metric_options = {{.name = "\xff"}}), "name");
    STATUS(WITH(.custom_losses = {&(mirt_custom_loss){NULL, record, NULL}}), "a custom loss needs a name");
    STATUS(WITH(.custom_losses = {&(mirt_custom_loss){"l", NULL, NULL}}), "a custom loss needs a name");
    STATUS(WITH(.custom_metrics = {&(mirt_custom_metric){"\xff", record, NULL, NULL, MIRT_MODE_MIN}}),
           "a custom metric needs a name");
    STATUS(WITH(.custom_metrics = {&(mirt_custom_metric){"n", NULL, NULL, NULL, MIRT_MODE_MIN}}),
           "a custom metric needs a name");
    STATUS(WITH(.custom_metrics = {&(mirt_custom_metric){"n", record, NULL, NULL, (mirt_mode)-1}}), "direction");
    STATUS(WITH(.custom_metrics = {&(mirt_custom_metric){"n", record, NULL, NULL, (mirt_mode)9}}), "direction");
    STATUS(mirt_register_loss(s, NULL), "a custom loss needs");
    STATUS(mirt_register_metric(s, NULL), "a custom metric needs");
    STATUS(mirt_register_loss(NULL, &gallery_loss), "strategy");
    STATUS(mirt_register_metric(NULL, &gallery_metric), "strategy");
    STATUS(mirt_set_metrics(m, (const mirt_metric[]){MIRT_MSE}, NULL, 1), "not compiled");
    STATUS(mirt_set_metrics(NULL, NULL, NULL, 0), "model");
    STATUS((WITH(.optimizer = mirt_adam(1)), mirt_set_metrics(m, NULL, NULL, 1)), "metrics");
    STATUS((WITH(.optimizer = mirt_adam(1)), mirt_set_metrics(m, (const mirt_metric[]){MIRT_MSE}, NULL, -1)),
           "-1 metrics");
    STATUS((WITH(.optimizer = mirt_adam(1)), mirt_set_metrics(m, (const mirt_metric[]){MIRT_MSE}, NULL, 99)),
           "99 metrics");
    STATUS(mirt_set_dtype_policy(m, "bfloat"), "mixed_bfloat16");
    STATUS(mirt_set_dtype_policy(m, "float16"), "float16");
    STATUS(mirt_set_dtype_policy(m, NULL), "policy");
    STATUS(mirt_set_trainable(m, "nothing", true), "nothing");
    STATUS(mirt_weight(m, -1, &(mirt_weight_info){0}), "no weight -1");
    STATUS(mirt_weight(m, 0, &(mirt_weight_info){0}), "no weight 0");
    STATUS(mirt_weight(m, 0, NULL), "no place");
    STATUS(mirt_weight(NULL, 0, &(mirt_weight_info){0}), "no model");
    STATUS(mirt_get_weight(m, NULL, 0, (float[1]){0}, 1), "no weight name");
    STATUS(mirt_get_weight(NULL, "w", 0, (float[1]){0}, 1), "model");
    REFUSED((mirt_model_outputs(m, &v, 0), mirt_compile(m, NULL) == MIRT_OK), "output");
    REFUSED((mirt_model_outputs(m, &v, 99), mirt_compile(m, NULL) == MIRT_OK), "output");
    REFUSED((mirt_model_outputs(m, (mirt_tensor *[]){NULL}, 1), mirt_compile(m, NULL) == MIRT_OK), "output");
    REFUSED(mirt_compile(m, NULL) == MIRT_OK, "output");
    ok(!mirt_input_of(m, -1) && !mirt_input_of(m, 9) && !mirt_output_of(m, -1) && !mirt_output_of(NULL, 0) &&
           !mirt_input_of(NULL, 0),
       "no such input or output");
    ok(mirt_output_scores(m, -1) == MIRT_SCORES_OTHER && mirt_output_scores(m, 9) == MIRT_SCORES_OTHER &&
           mirt_output_scores(NULL, 0) == MIRT_SCORES_OTHER && mirt_output_loss(m, -1) == MIRT_LOSS_NONE &&
           mirt_output_loss(m, 9) == MIRT_LOSS_NONE && mirt_output_loss(NULL, 0) == MIRT_LOSS_NONE,
       "no such output's scores, or loss");
    mirt_next_name(m, NULL);
    mirt_next_name(NULL, "x");
}

/* The newest of a name is the one that files mean. */
static void check_names(void) {
    const mirt_custom_loss loss = {"twice", record, NULL},
                           losses[2] = {{"twice", record_other, NULL}, {"twice", record, s}};
    const mirt_custom_metric metric = {"thrice", record, NULL, NULL, MIRT_MODE_MIN};
    mirt_custom_metric metrics[4] = {metric, metric, metric, metric};
    mirt_op_class ops[3] = {gallery_twice, gallery_twice, gallery_twice};
    const mirt_custom_loss *known = NULL;
    const mirt_custom_metric *known_metric = NULL;
    bool same = mirt_register_loss(s, &loss) == MIRT_OK && (known = mirt__custom_loss_by_name(s, "twice")) != NULL;
    ok(same && mirt_register_loss(s, &loss) == MIRT_OK && mirt__custom_loss_by_name(s, "twice") == known,
       "a loss registered twice is one");
    for (int i = 0; i < 2; i++) {
        same = mirt_register_loss(s, &losses[i]) == MIRT_OK;
        known = mirt__custom_loss_by_name(s, "twice");
        ok(same && known->record == losses[i].record && known->user == losses[i].user, "another one takes its name");
    }
    metrics[0].record = record_other;
    metrics[1].result = total;
    metrics[2].user = s;
    metrics[3].direction = MIRT_MODE_MAX;
    same = mirt_register_metric(s, &metric) == MIRT_OK &&
           (known_metric = mirt__custom_metric_by_name(s, "thrice")) != NULL;
    ok(same && mirt_register_metric(s, &metric) == MIRT_OK && mirt__custom_metric_by_name(s, "thrice") == known_metric,
       "a metric registered twice is one");
    for (int i = 0; i < 4; i++) {
        same = mirt_register_metric(s, &metric) == MIRT_OK && mirt_register_metric(s, &metrics[i]) == MIRT_OK;
        known_metric = mirt__custom_metric_by_name(s, "thrice");
        ok(same && known_metric->record == metrics[i].record && known_metric->result == metrics[i].result &&
               known_metric->user == metrics[i].user && known_metric->direction == metrics[i].direction,
           "another one takes its name");
    }
    ops[0].user = s;
    ops[1].backward = NULL;
    ops[2].config_size++;
    for (int i = 0; i < 3; i++) {
        same = mirt_register_op(s, &gallery_twice) == MIRT_OK && mirt_register_op(s, &ops[i]) == MIRT_OK;
        const mirt_op_class *op = mirt__op_class_by_name(s, "twice");
        ok(same && op->user == ops[i].user && op->backward == ops[i].backward && op->config_size == ops[i].config_size,
           "another op takes its name");
    }
    STATUS(mirt_register_op(s, &(mirt_op_class){.name = NULL}), "an op needs a name");
    STATUS(mirt_register_op(s, NULL), "an op");
    mirt_field fields[3];
    mirt_layer_class layer = gallery_layer, other;
    memcpy(fields, gallery_fields, sizeof fields);
    layer.fields = fields;
    ok(mirt_register_layer(s, &gallery_layer) == MIRT_OK, "a layer");
    const mirt__layer_class *cls = mirt__layer_class_by_name(s, "Mine");
    ok(mirt_register_layer(s, &layer) == MIRT_OK && mirt__layer_class_by_name(s, "Mine") == cls,
       "the same layer from other memory is one");
    for (int i = 0; i < 7; i++) {
        other = layer;
        memcpy(fields, gallery_fields, sizeof fields);
        mirt_register_layer(s, &layer);
        cls = mirt__layer_class_by_name(s, "Mine");
        if (i == 0) other.user = s;
        if (i == 1) other.inputs = 2;
        if (i == 2) other.config_size += 8;
        if (i == 3) other.num_fields = 2;
        if (i == 4) fields[1].name = "other";
        if (i == 5) fields[1].kind = MIRT_FIELD_INT;
        if (i == 6) fields[0].offset = fields[1].offset;
        ok(mirt_register_layer(s, &other) == MIRT_OK && mirt__layer_class_by_name(s, "Mine") != cls,
           "another layer takes its name (%d)", i);
    }
}

int main(void) {
    s = strategy_of(1, 1, 1);
    check_layers();
    check_augmentations();
    check_optimizers();
    check_schedules();
    check_compile();
    check_names();
    mirt_strategy_destroy(s);
    return done_testing();
}
