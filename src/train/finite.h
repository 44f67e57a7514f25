#ifndef MIRT__FINITE_H
#define MIRT__FINITE_H
/* Numbers that are none: whether there are any, and where they come from. */
#include "function.h"

/* Of a device while it runs a step again: the first node, in the program's order, with a number that is not finite. */
struct mirt__finder {
    int node, replica; /* node -1: none so far */
    const mirt_tensor *tensor;
};
/* What it does when a node has run; `finder`: one. */
MIRT__LIB void mirt__finder_look(void *finder, const mirt__call *call, int number);
MIRT__LIB bool mirt__device_losses_finite(const mirt_function *function, int device);
/* One sentence for whatever the devices' finders found. */
MIRT__LIB void mirt__describe_not_finite(const mirt_function *function, const mirt__finder *finder, int devices, char *out, size_t size);

#endif
