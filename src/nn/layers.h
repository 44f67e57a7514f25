#ifndef MIRT__LAYERS_H
#define MIRT__LAYERS_H
/* The table of layers and what their files share. A layer: a description with its fields for files and a
   build function in a file nn/layers_*.c, and its name here. */
#include "../ops/ops.h"
#include "model.h"

/* The class of layer NAME is mirt__NAME_layer. */
#define MIRT__LAYER_LIST(X) \
    X(input) X(rescaling) X(dense) X(flatten) X(dropout) X(activation) \
    X(conv2d) X(max_pool2d) X(average_pool2d) X(global_average_pool2d)

#ifdef MIRRORTRAIN_SPLIT_BUILD
#define MIRT__LAYER_EXTERN(name) extern const mirt__layer_class mirt__##name##_layer;
MIRT__LAYER_LIST(MIRT__LAYER_EXTERN)
#undef MIRT__LAYER_EXTERN
#endif

/* A class's columns fields and num_fields from an array of them, and without. */
#define MIRT__FIELDS(f) f, MIRT__COUNT(f)
#define MIRT__NO_FIELDS NULL, 0

/* The layer of class `cls` on x; NULL for NULL. */
MIRT__LIB mirt_tensor *mirt__layer_on(const mirt__layer_class *cls, mirt_tensor *x, const void *desc, const char *name);
/* The same for a class whose description has no defaults. */
MIRT__LIB mirt_tensor *mirt__layer_needs_desc(const mirt__layer_class *cls, mirt_tensor *x, const void *desc, const char *name);

/* In build functions: */
MIRT__LIB void mirt__default_initializer(mirt_initializer *i, mirt_initializer fallback);
/* {0, 0} is `fallback` twice and {k, 0} is {k, k}. */
MIRT__LIB void mirt__default_pair(int pair[2], int fallback);
/* Whether x is (rows, height, width, channels); says so if not. */
MIRT__LIB bool mirt__layer_takes_images(const mirt_tensor *x);
/* x + a variable "bias" of the layer, unless no_bias; then the activation. */
MIRT__LIB mirt_tensor *mirt__bias_and_activation(mirt__layer *layer, mirt_tensor *x, bool no_bias, mirt_initializer *initializer,
                                                 double fan_in, mirt_activation_kind activation);

#endif
