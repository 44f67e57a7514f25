/* Saves and restores the caller's floating-point control on entry and exit. */

#include "entry.h"

#include <unistd.h>

#if defined(__x86_64__)

/* All exceptions masked, round to nearest, FTZ and DAZ; the x87 unit in its initial state. */
#define MIRT__LIBRARY_MXCSR 0x9FC0u
#define MIRT__LIBRARY_X87 0x037Fu

static mirt__float_control mirt__float_control_get(void) {
    mirt__float_control control = {0, 0}; /* MemorySanitizer does not see what assembly writes */
    __asm__ __volatile__("stmxcsr %0\n\tfnstcw %1" : "=m"(control.mxcsr), "=m"(control.x87) : : "memory");
    return control;
}

static void mirt__float_control_set(const mirt__float_control *control) {
    uint16_t x87 = 0;
    __asm__ __volatile__("ldmxcsr %1\n\tfnstcw %0" : "=m"(x87) : "m"(control->mxcsr) : "memory");
    if (x87 != control->x87) __asm__ __volatile__("fldcw %0" : : "m"(control->x87) : "memory");
}

static mirt__float_control mirt__float_control_library(void) {
    const mirt__float_control control = {MIRT__LIBRARY_MXCSR, MIRT__LIBRARY_X87};
    return control;
}

#undef MIRT__LIBRARY_MXCSR
#undef MIRT__LIBRARY_X87

#elif defined(__aarch64__)

static mirt__float_control mirt__float_control_get(void) {
    mirt__float_control control;
    __asm__ __volatile__("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control.fpcr), "=r"(control.fpsr) : : "memory");
    return control;
}

static void mirt__float_control_set(const mirt__float_control *control) {
    __asm__ __volatile__("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(control->fpcr), "r"(control->fpsr) : "memory");
}

/* Round to nearest, no traps, FZ. */
static mirt__float_control mirt__float_control_library(void) {
    const mirt__float_control control = {(uint64_t)1 << 24, 0};
    return control;
}

#else

static mirt__float_control mirt__float_control_get(void) {
    const mirt__float_control control = {0};
    return control;
}

static void mirt__float_control_set(const mirt__float_control *control) { (void)control; }
static mirt__float_control mirt__float_control_library(void) { return mirt__float_control_get(); }

#endif

typedef struct mirt__thread_state {
    mirt__caller caller; /* while inside */
    const void *const *lent; /* location of the identity that it was lent, or NULL */
    int inside;          /* calls into the library since the caller's code last ran on this thread */
} mirt__thread_state;

static __thread mirt__thread_state mirt__this_thread;

/* From the caller's control to the library's. */
static void mirt__take_control(void) {
    const mirt__float_control library = mirt__float_control_library();
    mirt__this_thread.caller = mirt__float_control_get();
    mirt__float_control_set(&library);
}

MIRT__LIB bool mirt__enter(void) {
    if (!mirt__this_thread.inside++) mirt__take_control();
    return true;
}

MIRT__LIB void mirt__leave(bool *entered) {
    if (*entered && --mirt__this_thread.inside == 0) mirt__float_control_set(&mirt__this_thread.caller);
}

MIRT__LIB int mirt__step_out(void) {
    const int inside = mirt__this_thread.inside;
    if (inside) mirt__float_control_set(&mirt__this_thread.caller);
    mirt__this_thread.inside = 0;
    return inside;
}

MIRT__LIB void mirt__step_in(int *was_inside) {
    mirt__this_thread.inside = *was_inside;
    if (*was_inside) mirt__take_control();
}

MIRT__LIB const void *mirt__thread_identity(void) {
    return mirt__this_thread.lent ? __atomic_load_n(mirt__this_thread.lent, __ATOMIC_ACQUIRE) : &mirt__this_thread;
}

MIRT__LIB mirt__caller mirt__caller_get(void) {
    return mirt__this_thread.inside ? mirt__this_thread.caller : mirt__float_control_get();
}

MIRT__LIB void mirt__caller_set(const mirt__caller *caller, const void *const *lent) {
    mirt__this_thread.caller = *caller;
    mirt__this_thread.lent = lent;
}

#ifndef MIRRORTRAIN_NO_THREADS

static void *mirt__thread_main(void *arg) {
    const mirt__thread *thread = (const mirt__thread *)arg;
    const mirt__float_control library = mirt__float_control_library();
    mirt__this_thread.inside = 1;
    mirt__caller_set(&thread->caller, NULL);
    mirt__float_control_set(&library);
    return thread->fn(thread->arg);
}

MIRT__LIB int mirt__thread_start(mirt__thread *thread, void *(*fn)(void *arg), void *arg) {
    thread->fn = fn;
    thread->arg = arg;
    thread->caller = mirt__caller_get();
    return pthread_create(&thread->id, NULL, mirt__thread_main, thread);
}

#endif

MIRT__LIB int64_t mirt__process(void) { return (int64_t)getpid(); }

MIRT__LIB mirt_status mirt__own_process(int64_t process, const char *call, const char *what) {
    if (process == mirt__process()) return MIRT_OK;
    return mirt__fail(MIRT_E_STATE, "%s: process %lld created this %s; a child process must create its own after fork",
                      call, (long long)process, what);
}
