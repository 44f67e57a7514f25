#ifndef MIRT__CONFIG_NAMES_H
#define MIRT__CONFIG_NAMES_H
/* Keras's names of constants and of numbers in configurations. */

#include "../ops/ops.h"
#include "model.h"

static const char *const mirt__padding_names[] = {"valid", "same"};
#define MIRT__ACTIVATION_NAME(id, name, fused, unary, gradient, scale) #name,
static const char *const mirt__activation_names[] = {MIRT__ACTIVATION_LIST(MIRT__ACTIVATION_NAME)};
#undef MIRT__ACTIVATION_NAME
static const char *const mirt__flip_names[] = {"horizontal_and_vertical", "horizontal", "vertical"};
static const char *const mirt__fill_names[] = {"reflect", "constant", "wrap", "nearest"};
static const char *const mirt__interpolation_names[MIRT__INTERPOLATION_COUNT] = {
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"};
static const char *const mirt__fan_names[] = {"fan_in", "fan_out", "fan_avg"};
static const char *const mirt__distribution_names[] = {"truncated_normal", "untruncated_normal", "uniform"};
static const char *const mirt__dtype_names[MIRT__DTYPE_COUNT] = {"float32", "int32", "uint8", "bool"};
static const char *const mirt__training_names[] = {"auto", "on", "off"};
static const char *const mirt__curve_names[] = {"ROC", "PR"};
static const char *const mirt__reduction_names[] = {"sum_over_batch_size", "sum"};
static const char *const mirt__average_names[] = {"auto", "micro", "macro", "weighted"};
#define MIRT__NAMES(array) {array, MIRT__COUNT(array)}
#ifdef MIRRORTRAIN_NO_TRAIN
#define MIRT__LOSS_NAMES {NULL, 0}
#else
#define MIRT__LOSS_NAME(loss, name, labels, activation) #name,
static const char *const mirt__loss_names[] = {"none", MIRT_LOSS_LIST(MIRT__LOSS_NAME)};
#define MIRT__LOSS_NAMES MIRT__NAMES(mirt__loss_names)
#undef MIRT__LOSS_NAME
#endif
static const struct { const char *const *list; int count; } mirt__field_names[] = { /* by mirt__field_kind */
    MIRT__NAMES(mirt__padding_names), MIRT__NAMES(mirt__activation_names), MIRT__NAMES(mirt__flip_names),
    MIRT__NAMES(mirt__fill_names), MIRT__NAMES(mirt__interpolation_names), MIRT__NAMES(mirt__fan_names),
    MIRT__NAMES(mirt__distribution_names), MIRT__NAMES(mirt__dtype_names), MIRT__NAMES(mirt__training_names),
    MIRT__NAMES(mirt__curve_names), MIRT__NAMES(mirt__reduction_names), MIRT__NAMES(mirt__average_names),
    MIRT__LOSS_NAMES};
#undef MIRT__LOSS_NAMES
#undef MIRT__NAMES
MIRT__STATIC_ASSERT(MIRT__COUNT(mirt__field_names) == MIRT__FIELD_CHOICES, "names of each enumeration");
MIRT__STATIC_ASSERT(sizeof(mirt_padding) == sizeof(int), "enumerations are copied as int: no -fshort-enums");

static const mirt__field mirt__constant_fields[] = {MIRT__FIELD(mirt_initializer, "value", FLOAT, a)},
                         mirt__uniform_fields[] = {MIRT__FIELD(mirt_initializer, "minval", FLOAT, a),
                                                   MIRT__FIELD(mirt_initializer, "maxval", FLOAT, b)},
                         mirt__normal_fields[] = {MIRT__FIELD(mirt_initializer, "mean", FLOAT, a),
                                                  MIRT__FIELD(mirt_initializer, "stddev", FLOAT, b)},
                         mirt__scaling_fields[] = {MIRT__FIELD(mirt_initializer, "scale", FLOAT, a),
                                                   MIRT__OWN_FIELD(mirt_initializer, FAN, mode),
                                                   MIRT__OWN_FIELD(mirt_initializer, DISTRIBUTION, distribution)},
                         mirt__regularizer_fields[] = {MIRT__OWN_FIELD(mirt_regularizer, FLOAT, l1),
                                                       MIRT__OWN_FIELD(mirt_regularizer, FLOAT, l2)};
static const mirt__object_class mirt__initializer_classes[MIRT__INIT_COUNT] = {
    {"Default", NULL, 0},
    {"Zeros", NULL, 0},
    {"Ones", NULL, 0},
    {"Constant", mirt__constant_fields, 1},
    {"RandomUniform", mirt__uniform_fields, 2},
    {"RandomNormal", mirt__normal_fields, 2},
    {"TruncatedNormal", mirt__normal_fields, 2},
    {"VarianceScaling", mirt__scaling_fields, 3}};
static const mirt__field mirt__norm_range_fields[] = {MIRT__OWN_FIELD(mirt_constraint, FLOAT, min_value),
                                                      MIRT__OWN_FIELD(mirt_constraint, FLOAT, max_value),
                                                      MIRT__OWN_FIELD(mirt_constraint, FLOAT, rate),
                                                      MIRT__OWN_FIELD(mirt_constraint, INT, axis)};
static const mirt__field mirt__spectral_fields[] = {MIRT__OWN_FIELD(mirt_constraint, INT, power_iterations)};
static const mirt__object_class mirt__constraint_classes[MIRT__CONSTRAINT_COUNT] = {
    {"None", NULL, 0},
    {"MaxNorm", mirt__norm_range_fields, 4},
    {"NonNeg", NULL, 0},
    {"UnitNorm", mirt__norm_range_fields, 4},
    {"MinMaxNorm", mirt__norm_range_fields, 4},
    {"SpectralNorm", mirt__spectral_fields, 1}};
static const mirt__object_class mirt__regularizer_class = {"L1L2", mirt__regularizer_fields, 2};

#endif
