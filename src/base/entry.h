#ifndef MIRT__ENTRY_H
#define MIRT__ENTRY_H
/* Entering and leaving the library: preserves the caller's floating-point control. */

#include "base.h"

#ifndef MIRRORTRAIN_NO_THREADS
#include <pthread.h>
#endif

/* A thread's floating-point control: rounding, traps, denormals; and its exception flags. */
typedef struct mirt__float_control {
#if defined(__x86_64__)
    uint32_t mxcsr;
    uint16_t x87; /* the C library reads its rounding mode when it converts decimal numbers */
#elif defined(__aarch64__)
    uint64_t fpcr, fpsr;
#else
    int none;
#endif
} mirt__float_control;

/* The settings of the thread that the caller's code runs on. */
typedef mirt__float_control mirt__caller;

/* The caller's settings of this thread, to be passed to a thread that works for it. */
MIRT__LIB mirt__caller mirt__caller_get(void);
/* On a thread of the library: from now on it works for this caller, and counts as the thread whose identity is in *lent
   (NULL: as itself). Only a waiting thread may lend its identity; it takes it back by atomically storing another value
   in *lent. */
MIRT__LIB void mirt__caller_set(const mirt__caller *caller, const void *const *lent);
/* The identity that this thread counts as, unique among existing threads. */
MIRT__LIB const void *mirt__thread_identity(void);

#ifndef MIRRORTRAIN_NO_THREADS
/* A thread of the library. Exists until it is joined. */
typedef struct mirt__thread {
    pthread_t id;
    void *(*fn)(void *arg);
    void *arg;
    mirt__caller caller;
} mirt__thread;
/* The new thread works for the calling thread's caller until mirt__caller_set; returns the result of pthread_create. */
MIRT__LIB int mirt__thread_start(mirt__thread *thread, void *(*fn)(void *arg), void *arg);
#endif

#endif
