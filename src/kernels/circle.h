#ifndef MIRT__CIRCLE_H
#define MIRT__CIRCLE_H
/* What a pair of rows adds to the circle loss, for all tables. */

#include "table.h"

#define MIRT__NO_PAIR ((mirt__real)-1e30) /* the logarithm of a sum over no pairs: its exponential is 0 */

typedef struct mirt__circle_pair {
    bool other;       /* of two classes */
    mirt__real value; /* its exponential counts */
    mirt__real slope; /* the derivative of `value` by the cosine */
} mirt__circle_pair;

/* Sun et al. 2020. The fault of rows of one class is their distance, max(1 - cosine, 0), that of others 1 minus it; its
   weight is max(fault + margin, 0), which has a gradient as in Keras. */
MIRT__BOTH mirt__circle_pair mirt__circle_of(const mirt_loss_options *how, bool other, mirt__real cosine) {
    const mirt__real gamma = (mirt__real)how->gamma, margin = (mirt__real)how->margin,
                     within = cosine > 1 ? (mirt__real)1 : cosine, fault = other ? within : 1 - within;
    const bool counts = !(fault + margin < 0);
    mirt__circle_pair pair;
    pair.other = other;
    pair.value = counts ? gamma * (fault + margin) * (fault - margin) : (mirt__real)0;
    pair.slope = counts && !(cosine > 1) ? (mirt__real)(other ? 2 : -2) * gamma * fault : (mirt__real)0;
    return pair;
}

#endif
