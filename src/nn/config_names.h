#ifndef MIRT__CONFIG_NAMES_H
#define MIRT__CONFIG_NAMES_H
/* Keras's names of constants and of numbers in configurations. */

#include "model.h"

static const char *const mirt__training_names[] = {"auto", "on", "off"};
static const char *const mirt__padding_names[] = {"valid", "same"};
static const char *const mirt__flip_names[] = {"horizontal_and_vertical", "horizontal", "vertical"};
static const char *const mirt__fill_names[] = {"reflect", "constant", "wrap", "nearest"};
static const char *const mirt__interpolation_names[MIRT__INTERPOLATION_COUNT] = {
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"};
static const char *const mirt__fan_names[] = {"fan_in", "fan_out", "fan_avg"};
static const char *const mirt__distribution_names[] = {"truncated_normal", "untruncated_normal", "uniform"};
static const char *const mirt__initializer_names[MIRT__INIT_COUNT] = {
    "Default", "Zeros", "Ones", "Constant", "RandomUniform", "RandomNormal", "TruncatedNormal", "VarianceScaling"};
/* Keras's names of an initializer's parameters a and b. */
static const char *const mirt__initializer_a[MIRT__INIT_COUNT] = {NULL,     NULL,   NULL,   "value",
                                                                  "minval", "mean", "mean", "scale"};
static const char *const mirt__initializer_b[MIRT__INIT_COUNT] = {NULL,     NULL,     NULL,     NULL,
                                                                  "maxval", "stddev", "stddev", NULL};

#endif
