#ifndef MIRT__LAYERS_H
#define MIRT__LAYERS_H
/* The table of layers and their shared declarations. To add a layer, write a description with its fields for files and
   a build function in a file nn/layers_*.c, and add its name here. */
#include "../ops/ops.h"
#include "model.h"

/* The class of layer NAME is mirt__NAME_layer. */
#define MIRT__LAYER_LIST(X) \
    X(input) X(rescaling) X(dense) X(flatten) X(reshape) X(permute) X(dropout) X(spatial_dropout2d) X(gaussian_noise) \
    X(gaussian_dropout) X(alpha_dropout) X(activity_regularization) X(normalization) \
    X(activation) X(relu) X(leaky_relu) X(elu) X(prelu) X(softmax) \
    X(conv2d) X(conv2d_transpose) X(depthwise_conv2d) X(separable_conv2d) \
    X(max_pool2d) X(average_pool2d) X(global_average_pool2d) X(global_max_pool2d) \
    X(adaptive_average_pool2d) X(adaptive_max_pool2d) \
    X(zero_padding2d) X(cropping2d) X(up_sampling2d) \
    /* augmentations, by their kinds */ \
    X(random_flip) X(random_rotation) X(random_zoom) X(random_translation) X(random_crop) X(center_crop) X(resizing) \
    X(random_contrast) X(random_brightness) X(random_shear) X(random_hue) X(random_saturation) X(random_erasing) \
    X(random_grayscale) X(random_invert) X(solarization) X(random_posterization) X(random_color_degeneration) \
    X(auto_contrast) X(equalization) X(random_sharpness) X(random_gaussian_blur) X(random_color_jitter) \
    X(rand_augment) X(random_perspective) X(aug_mix) X(clahe) X(random_elastic_transform) \
    X(batch_norm) X(layer_norm) X(rms_norm) X(group_norm) X(unit_normalization) \
    X(add) X(subtract) X(multiply) X(average) X(maximum) X(minimum) X(concatenate) X(dot)

#define MIRT__LAYER_NUMBER(name) MIRT__NUMBER_OF_LAYER_##name,
enum { MIRT__LAYER_LIST(MIRT__LAYER_NUMBER) MIRT__LAYER_COUNT };
#undef MIRT__LAYER_NUMBER
/* Without this, a class that the list lacks would compile, but files with it could not be loaded. */
#define MIRT__LAYER_LISTED(name) \
    MIRT__STATIC_ASSERT(MIRT__NUMBER_OF_LAYER_##name < MIRT__LAYER_COUNT, "MIRT__LAYER_LIST has " #name)

#ifdef MIRRORTRAIN_SPLIT_BUILD
#define MIRT__LAYER_EXTERN(name) extern const mirt__layer_class mirt__##name##_layer;
MIRT__LAYER_LIST(MIRT__LAYER_EXTERN)
#undef MIRT__LAYER_EXTERN
#endif

/* Defines class mirt__NAME_layer, recorded by mirt__NAME_build, with its fields in an array, or without a
   description. */
#define MIRT__LAYER(name, class_name, base_name, min_in, max_in, fields, desc) \
    MIRT__TABLE mirt__layer_class mirt__##name##_layer = { \
        class_name, base_name, min_in, max_in, MIRT__FIELDS(fields), sizeof(desc), mirt__##name##_build, NULL, NULL}; \
    MIRT__LAYER_LISTED(name)
#define MIRT__PLAIN_LAYER(name, class_name, base_name, min_in, max_in) \
    MIRT__TABLE mirt__layer_class mirt__##name##_layer = { \
        class_name, base_name, min_in, max_in, NULL, 0, 0, mirt__##name##_build, NULL, NULL}; \
    MIRT__LAYER_LISTED(name)

/* Fields of layers with a kernel and a bias. */
#define MIRT__KERNEL_FIELDS(desc) \
    MIRT__OWN_FIELD(desc, ACTIVATION, activation), MIRT__FIELD(desc, "use_bias", NO, no_bias), \
        MIRT__OWN_FIELD(desc, INITIALIZER, kernel_initializer), MIRT__OWN_FIELD(desc, INITIALIZER, bias_initializer), \
        MIRT__OWN_FIELD(desc, REGULARIZER, kernel_regularizer), MIRT__OWN_FIELD(desc, REGULARIZER, bias_regularizer), \
        MIRT__OPTIONAL_FIELD(desc, REGULARIZER, activity_regularizer), \
        MIRT__OPTIONAL_FIELD(desc, CONSTRAINT, kernel_constraint), \
        MIRT__OPTIONAL_FIELD(desc, CONSTRAINT, bias_constraint)

/* Defines the public function of a layer, whose description is `desc_type`; `add`: one of the two below. */
#define MIRT__LAYER_FUNCTION(function, layer, desc_type, add) \
    MIRT_API mirt_tensor *function(mirt_tensor *x, const desc_type *desc) { \
        return add(&mirt__##layer##_layer, x, desc, desc ? desc->name : NULL); \
    }

/* The class of layer MIRT__NUMBER_OF_LAYER_NAME. */
MIRT__LIB const mirt__layer_class *mirt__layer_class_at(int number);
/* Adds a layer of class `cls` on x; NULL for NULL. */
MIRT__LIB mirt_tensor *mirt__layer_on(const mirt__layer_class *cls, mirt_tensor *x, const void *desc, const char *name);
/* The same for a class whose description is required. */
MIRT__LIB mirt_tensor *mirt__layer_needs_desc(const mirt__layer_class *cls, mirt_tensor *x, const void *desc,
                                              const char *name);

/* The following functions are for build functions. */
MIRT__LIB void mirt__default_initializer(mirt_initializer *i, mirt_initializer fallback);
/* {0, 0} means `fallback` twice, and {k, 0} means {k, k}. */
MIRT__LIB void mirt__default_pair(int pair[2], int fallback);
/* Whether x is (rows, height, width, channels); otherwise sets the error. */
MIRT__LIB bool mirt__layer_takes_images(const mirt_tensor *x);
/* The axis of x that `axis` names, counted from the end when negative; 0 with the error set: x does not have it, or it
   is that of the rows. */
MIRT__LIB int mirt__layer_axis(const mirt_tensor *x, int axis);
/* x with the axes whose bits are set in `axes` last, all in their order; `back`: the inverse. */
MIRT__LIB mirt_tensor *mirt__axes_last(mirt_tensor *x, unsigned axes, bool back);
/* x divided by its Euclidean norm along `axis`, or by the square root of `least`, where the norm is less than that. */
MIRT__LIB mirt_tensor *mirt__unit_length(mirt_tensor *x, int axis, float least);
/* Creates a trainable variable with its description's initializer (set if it is the default), regularizer and
   constraint. */
MIRT__LIB mirt_tensor *mirt__weight_add(mirt__layer *layer, const char *name, const mirt_shape *shape,
                                        mirt_initializer *initializer, mirt_initializer fallback,
                                        const mirt_regularizer *regularizer, const mirt_constraint *constraint);
/* What follows a product: a variable "bias" of the layer, unless no_bias; the activation; its penalty. */
typedef struct mirt__outcome {
    bool no_bias;
    mirt_initializer *initializer;
    const mirt_regularizer *regularizer;
    const mirt_constraint *constraint;
    mirt_activation_kind activation;
    const mirt_regularizer *activity;
} mirt__outcome;
/* Those of a description. */
#define MIRT__OUTCOME_OF(d) \
    {(d)->no_bias, &(d)->bias_initializer, &(d)->bias_regularizer, &(d)->bias_constraint, (d)->activation, \
     &(d)->activity_regularizer}
MIRT__LIB mirt_tensor *mirt__bias_and_activation(mirt__layer *layer, mirt_tensor *x, const mirt__outcome *outcome);
/* Adds l1 * sum |y| + l2 * sum y^2 of every sample to the loss; returns y. */
MIRT__LIB mirt_tensor *mirt__regularize_activity(mirt__layer *layer, mirt_tensor *y, const mirt_regularizer *r);

#endif
