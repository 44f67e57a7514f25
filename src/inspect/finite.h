#ifndef MIRT__FINITE_H
#define MIRT__FINITE_H
/* Non-finite values in steps: whether there are any, and where they come from. */
#include "../function/function.h"

/* Checks the losses, and what the update would read: gradients and new states. Steps whose gradients stay below a bound
   far from overflow write finite weights and optimizer state, if these were finite before. */
MIRT__LIB const mirt__guard *mirt__finite_guard(void);

#endif
