#ifndef MIRT__WATCH_H
#define MIRT__WATCH_H
/* The time limit of a strategy. What may hang runs in sections: devices at work, a wait for samples. A thread that only waits
   looks whether what is under way gets on. When it does not, the section is given up: the strategy is dead, its memory
   and its threads are left to themselves, and whoever comes back from a section of the dead parks for good.

   Loops over batches run on a thread of the strategy's own, the pilot, so that the caller is there to look: also after
   the first device, and after samples. Code of the user that wants the caller's thread is sent back to it. Single steps
   would pay for the way there and back: they go it only where a time limit was asked for, otherwise the caller is the first
   device and looks after the others while it waits for them. */

#include "../data/data.h"
#include "../graph/program.h"
#include "strategy.h"

typedef struct mirt__section {
    uint32_t code; /* of its kind */
    mirt_dataset *data;
} mirt__section;

MIRT__LIB mirt_status mirt__watch_create(mirt_strategy *strategy, double seconds);
/* Not of a dead strategy. */
MIRT__LIB void mirt__watch_destroy(mirt_strategy *strategy);
/* Runs fn(arg) on the pilot; the error is the caller's as if it had run here. MIRT_E_TIMEOUT: it was given up. */
MIRT__LIB mirt_status mirt__watched(mirt_strategy *strategy, mirt_status (*fn)(void *arg), void *arg);
/* MIRT_E_STATE: it is at work for another thread than this one. */
MIRT__LIB mirt_status mirt__watch_mine(const mirt_strategy *strategy);
/* On the thread that called: from the pilot by way of it, otherwise at once. */
MIRT__LIB void mirt__on_caller(const mirt_strategy *strategy, void (*fn)(void *arg), void *arg);
/* A wait for samples, ended with what it returned; false: it was given up. */
MIRT__LIB mirt__section mirt__watch_input(mirt_strategy *strategy, mirt_dataset *dataset);
MIRT__LIB bool mirt__watch_leave(mirt_strategy *strategy, mirt__section before);

#endif
