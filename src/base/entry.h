#ifndef MIRT__ENTRY_H
#define MIRT__ENTRY_H
/* Entering and leaving the library: the caller's floating-point control is left as found. */

#include "base.h"

#ifndef MIRRORTRAIN_NO_THREADS
#include <pthread.h>
#endif

/* What a thread's floating-point instructions obey: rounding, traps, denormals; and the flags they raise. */
typedef struct mirt__float_control {
#if defined(__x86_64__)
    uint32_t mxcsr;
    uint16_t x87; /* the C library's conversions of decimal numbers ask it for the rounding mode */
#elif defined(__aarch64__)
    uint64_t fpcr, fpsr;
#else
    int none;
#endif
} mirt__float_control;

/* What code of the caller finds on the thread it runs on. */
typedef struct mirt__caller {
    mirt__float_control control;
} mirt__caller;

/* The calling thread's caller, to be handed to a thread that works for it. */
MIRT__LIB mirt__caller mirt__caller_get(void);
/* On a thread of the library: from now on it works for this caller, and counts as the thread whose identity *lent is
   (NULL: as itself). Only a thread that waits may lend its identity, and takes it back by another value in *lent,
   atomically. */
MIRT__LIB void mirt__caller_set(const mirt__caller *caller, const void *const *lent);
/* Whose thread this one counts as: unique among the threads that live. */
MIRT__LIB const void *mirt__thread_identity(void);

#ifndef MIRRORTRAIN_NO_THREADS
/* A thread of the library. Lives until it is joined. */
typedef struct mirt__thread {
    pthread_t id;
    void *(*fn)(void *arg);
    void *arg;
    mirt__caller caller;
} mirt__thread;
/* Works for the calling thread's caller until mirt__caller_set; returns what pthread_create does. */
MIRT__LIB int mirt__thread_start(mirt__thread *thread, void *(*fn)(void *arg), void *arg);
#endif

#endif
