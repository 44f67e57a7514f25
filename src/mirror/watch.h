#ifndef MIRT__WATCH_H
#define MIRT__WATCH_H
/* Watchdog: enforces the time limit of a strategy. Work that may hang runs in sections: devices at work, a wait for
   samples. A thread that waits anyway checks whether the work in flight makes progress. If it does not, the section is
   abandoned: the strategy is dead, its memory and threads are left alone, and a thread that returns from a section of a
   dead strategy parks forever.

   Loops over batches run on the strategy's runner thread, so that the caller is free to check, also the first device
   and waits for samples. User code that wants the caller's thread is handed back to it. Single steps would pay for the
   switch of threads: they use the runner thread only if a time limit was asked for; otherwise the caller is the first
   device and checks the others while it waits for them. */

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
/* Runs fn(arg) on the runner thread; its error becomes the caller's. MIRT_E_TIMEOUT: the work was abandoned. */
MIRT__LIB mirt_status mirt__watched(mirt_strategy *strategy, mirt_status (*fn)(void *arg), void *arg);
/* MIRT_E_STATE: the runner thread works for another thread than this one. */
MIRT__LIB mirt_status mirt__watch_mine(const mirt_strategy *strategy);
/* Runs fn(arg) on the thread that called: handed over from the runner thread, otherwise at once. */
MIRT__LIB void mirt__on_caller(const mirt_strategy *strategy, void (*fn)(void *arg), void *arg);
/* Begins a wait for samples; the other call ends it with what the first returned. False: the wait was abandoned. */
MIRT__LIB mirt__section mirt__watch_input(mirt_strategy *strategy, mirt_dataset *dataset);
MIRT__LIB bool mirt__watch_leave(mirt_strategy *strategy, mirt__section before);

#endif
