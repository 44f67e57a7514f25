#ifndef MIRT__FINITE_H
#define MIRT__FINITE_H
/* Numbers that are none: whether there are any, and where they come from. */
#include "../function/function.h"

/* What of a step is not finite: a set of these. */
enum { MIRT__LOSS_BAD = 1, MIRT__GRADIENT_BAD = 2, MIRT__STATE_BAD = 4, MIRT__MODEL_BAD = 8 };

/* Of a device while it runs a step again: the first node, in the program's order, with a number that is not finite. */
typedef struct mirt__finder {
    int node, replica; /* node -1: none so far */
    const mirt_tensor *tensor;
} mirt__finder;
/* What it does when a node has run; `finder`: one. */
MIRT__LIB void mirt__finder_look(void *finder, const mirt__call *call, int number);
/* When the device's replicas have run: their losses, and what the update would read: gradients on this device and new
   states. Steps whose gradients stay below a bound far from overflow write finite weights and optimizer state, if these
   were finite before. */
MIRT__LIB int mirt__device_not_finite(void *function, int device);
/* Gradients that are known by their squares alone, on devices with memory of their own. */
MIRT__LIB bool mirt__squares_finite(const mirt_function *function);
/* Before the first step: the weights and the optimizer's state. */
MIRT__LIB int mirt__model_not_finite(const mirt_function *function);
/* One sentence for whatever is not finite, by what the devices' finders found. */
MIRT__LIB void mirt__describe_not_finite(const mirt_function *function, int what, const mirt__finder *finder,
                                         int devices, char *out, size_t size);

#endif
