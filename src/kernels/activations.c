#include "kernels.h"
/* The table of activations. */

static const mirt__activation_class mirt__activation_table[MIRT__ACTIVATION_COUNT] = {
    {"linear", false, MIRT__COPY, MIRT__ADD, 0},
    {"relu", true, MIRT__ACT_RELU, MIRT__RELU_GRAD, 0},
    {"sigmoid", true, MIRT__ACT_SIGMOID, MIRT__SIGMOID_GRAD, 0},
    {"tanh", true, MIRT__ACT_TANH, MIRT__TANH_GRAD, 0},
    {"softmax", false, MIRT__COPY, MIRT__ADD, 0},
    {"relu6", true, MIRT__ACT_RELU6, MIRT__RELU6_GRAD, 0},
    {"leaky_relu", false, MIRT__ACT_LEAKY_RELU, MIRT__LEAKY_RELU_GRAD, 0.2f},
    {"elu", false, MIRT__ACT_ELU, MIRT__ELU_GRAD, 1},
    {"gelu", false, MIRT__ACT_GELU, MIRT__GELU_GRAD, 0},
    {"silu", false, MIRT__ACT_SILU, MIRT__SILU_GRAD, 0},
    {"hard_sigmoid", false, MIRT__ACT_HARD_SIGMOID, MIRT__HARD_SIGMOID_GRAD, 0},
    {"hard_swish", false, MIRT__ACT_HARD_SWISH, MIRT__HARD_SWISH_GRAD, 0},
    {"softplus", false, MIRT__ACT_SOFTPLUS, MIRT__SOFTPLUS_GRAD, 0},
};

MIRT__LIB const mirt__activation_class *mirt__activation_get(mirt_activation_kind kind) {
    return (int)kind >= 0 && kind < MIRT__ACTIVATION_COUNT ? &mirt__activation_table[kind] : NULL;
}
