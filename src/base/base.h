#ifndef MIRT__BASE_H
#define MIRT__BASE_H
/* Foundations for all modules: linkage, errors, memory, texts, random numbers, clock. */

#include "types.h"

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Internal functions: static in the single header, extern if src/ is compiled file by file. */
#ifdef MIRRORTRAIN_SPLIT_BUILD
#define MIRT__LIB extern
#else
#ifdef MIRRORTRAIN_NO_THREADS
#define MIRT__LIB static __attribute__((unused)) /* functions called only by threads */
#else
#define MIRT__LIB static
#endif
#endif

/* What only training runs. A predict-only program (MIRRORTRAIN_NO_TRAIN) has neither
   - the files that src/FILES leaves out of it: what remains of their functions is prototypes (MIRT__ABSENT_LIB);
   - MIRT__TRAINING, MIRT__TRAINING_LIB: functions of other files, in place of `static` and MIRT__LIB;
   - MIRT__TRAINING_ENTRY: an entry of a table, NULL there;
   - what is called only if MIRT__TRAINS.
   The compiler drops functions that nothing calls; those it does not optimize, gcc drops only if they are inline.
   Without optimization clang keeps calls that are never made: for the linker what is absent is weak. */
#ifdef MIRRORTRAIN_NO_TRAIN
#define MIRT__TRAINS false
#define MIRT__TRAINING static inline
#define MIRT__TRAINING_LIB static inline
#define MIRT__TRAINING_ENTRY(entry) NULL
#define MIRT__ABSENT_LIB extern MIRT__WEAK
#else
#define MIRT__TRAINS true
#define MIRT__TRAINING static
#define MIRT__TRAINING_LIB MIRT__LIB
#define MIRT__TRAINING_ENTRY(entry) entry
#define MIRT__ABSENT_LIB MIRT__LIB
#endif

/* What only several processes that train together run: likewise, in a program of one process (MIRT__ALONE). */
#ifdef MIRT__ALONE
#define MIRT__TOGETHER false
#define MIRT__TOGETHER_ONLY static inline
#define MIRT__TOGETHER_ONLY_LIB static inline
#define MIRT__TOGETHER_LIB extern MIRT__WEAK
#else
#define MIRT__TOGETHER true
#define MIRT__TOGETHER_ONLY static
#define MIRT__TOGETHER_ONLY_LIB MIRT__LIB
#define MIRT__TOGETHER_LIB MIRT__LIB
#endif

#define MIRT__PRINTF(text, first) __attribute__((format(printf, text, first)))

#if defined(MIRRORTRAIN_MALLOC) && defined(MIRRORTRAIN_FREE)
/* both are defined */
#elif !defined(MIRRORTRAIN_MALLOC) && !defined(MIRRORTRAIN_FREE)
#define MIRRORTRAIN_MALLOC(size) malloc(size)
#define MIRT__MALLOC_ZEROED(size) calloc(1, size) /* does not clear pages again that the system has cleared */
#define MIRRORTRAIN_FREE(pointer) free(pointer)
#if defined(__linux__)
#define MIRT__HUGE_PAGES /* may be requested for memory of the system's allocator */
#endif
#else
#error "define both of MIRRORTRAIN_MALLOC and MIRRORTRAIN_FREE, or neither"
#endif

/* The program's optimization; parts of the library use other settings, and gcc then changes __OPTIMIZE__. */
#ifdef __OPTIMIZE__
#define MIRT__OPTIMIZED true
#else
#define MIRT__OPTIMIZED false
#endif

/* Errors: store the message for mirt_last_error() and return `status`. */
MIRT__LIB mirt_status mirt__fail(mirt_status status, const char *format, ...) MIRT__PRINTF(2, 3);
/* Sets a cause other than the status's default: `return mirt__because(MIRT_CAUSE_INPUT, mirt__fail(...))`. */
MIRT__LIB mirt_status mirt__because(mirt_cause cause, mirt_status status);
/* A thread's last error, to be passed to another thread. */
typedef struct mirt__error {
    char text[512];
    mirt_status status;
    mirt_cause cause;
    uint32_t number; /* number of the failure, to distinguish it from earlier ones */
} mirt__error;
MIRT__LIB uint32_t mirt__error_number(void);
MIRT__LIB void mirt__error_get(mirt__error *out);
MIRT__LIB void mirt__error_set(const mirt__error *error);
/* Prefixes the message of the current error with "prefix: ". */
MIRT__LIB mirt_status mirt__fail_at(const char *format, ...) MIRT__PRINTF(1, 2);
/* For a call that was given NULL: reports that `what` is missing, and the thread's last failure as the likely reason,
   keeping its status. */
MIRT__LIB mirt_status mirt__fail_missing(const char *caller, const char *what);
/* Sets the error for out of memory; returns NULL so that allocation failures read `return mirt__no_memory(n)`. */
MIRT__LIB void *mirt__no_memory(size_t bytes);

/* Both last until the end of the enclosing block. MIRT__ENTER sets the library's floating-point control (round to
   nearest, no traps, denormals flushed). MIRT__OUTSIDE restores the caller's around a call of the caller's code;
   changes that this code makes are kept. */
#define MIRT__AT_END(fn) __attribute__((cleanup(fn), unused))
#define MIRT__ENTER bool mirt__entered MIRT__AT_END(mirt__leave) = mirt__enter()
#define MIRT__OUTSIDE int mirt__was_inside MIRT__AT_END(mirt__step_in) = mirt__step_out()
MIRT__LIB bool mirt__enter(void);
MIRT__LIB void mirt__leave(bool *entered);
MIRT__LIB int mirt__step_out(void);
MIRT__LIB void mirt__step_in(int *was_inside);
/* The process. */
MIRT__LIB int64_t mirt__process(void);
/* MIRT_E_STATE: `what` was created by another process, whose threads do not exist in this one. */
MIRT__LIB mirt_status mirt__own_process(int64_t process, const char *call, const char *what);

/* Zeroed memory of any size including 0; NULL with the error set. Checks count * size for overflow. */
MIRT__LIB void *mirt__calloc(size_t count, size_t size);
/* Grows `*pointer` (may be NULL) to hold `count` elements, keeping the first `used`; false with the
   error set and the old block intact. */
MIRT__LIB bool mirt__grow(void **pointer, size_t used, size_t count, size_t size);
/* Room for one more in a list of `used`; false with the error set. */
MIRT__LIB bool mirt__grow_list(void **list, int used, int *capacity, size_t size);
MIRT__LIB void mirt__free(void *pointer);
/* Large blocks: aligned to MIRT__ALIGN, not zeroed. */
MIRT__LIB void *mirt__aligned_alloc(size_t bytes);
MIRT__LIB void mirt__aligned_free(void *pointer);
MIRT__LIB char *mirt__strdup(const char *text);

/* a * b and a + b into *out; false on overflow. */
MIRT__LIB bool mirt__mul_size(size_t a, size_t b, size_t *out);
MIRT__LIB bool mirt__add_size(size_t a, size_t b, size_t *out);
MIRT__LIB size_t mirt__align_up(size_t bytes);

/* A growing text; a failed append sets `failed`, and further appends do nothing. */
typedef struct mirt__text {
    char *data; /* ends in 0 if not NULL */
    size_t size, capacity;
    bool failed;
} mirt__text;
MIRT__LIB void mirt__text_add(mirt__text *text, const char *format, ...) MIRT__PRINTF(2, 3);
MIRT__LIB void mirt__text_add_bytes(mirt__text *text, const void *data, size_t size);
MIRT__LIB void mirt__text_clear(mirt__text *text);
MIRT__LIB void mirt__text_free(mirt__text *text);

/* Bytes of the UTF-8 sequence at `at`, of which `size` may be read; 0 if it is invalid. */
MIRT__LIB int mirt__utf8_length(const char *at, size_t size);
MIRT__LIB bool mirt__utf8_valid(const char *text, size_t size);
/* Columns that a terminal needs for valid UTF-8: two for East Asian characters and pictures, none for combining
   marks. */
MIRT__LIB int mirt__columns(const char *text);
/* Formats one line for display: made printable (see mirt_printable) and truncated between characters to `size`
   bytes. */
MIRT__LIB void mirt__vprint(char *out, size_t size, const char *format, va_list args);
/* A short text by value, for an argument of a message. */
#define MIRT__SHOWN 512
typedef struct mirt__phrase {
    char text[MIRT__SHOWN];
} mirt__phrase;
/* A name for display: printable, truncated if it is very long. */
MIRT__LIB mirt__phrase mirt__shown(const char *name);

/* Appends to a text of at most `size` bytes; what does not fit is cut. */
MIRT__LIB void mirt__line_add(char *line, size_t size, const char *format, ...) MIRT__PRINTF(3, 4);

/* Objects with the same lifetime, which are freed together. */
typedef struct mirt__pool_block mirt__pool_block;
typedef struct mirt__pool {
    mirt__pool_block *head;
} mirt__pool;
MIRT__LIB void *mirt__pool_alloc(mirt__pool *pool, size_t bytes); /* zeroed */
MIRT__LIB char *mirt__pool_strdup(mirt__pool *pool, const char *text);
/* The same for millions of texts: no byte more than they need. */
MIRT__LIB char *mirt__pool_pack(mirt__pool *pool, const char *text);
MIRT__LIB char *mirt__pool_print(mirt__pool *pool, const char *format, ...) MIRT__PRINTF(2, 3);
MIRT__LIB void mirt__pool_free(mirt__pool *pool);

/* Balanced, contiguous shares: the first (total % shares) get one more. */
MIRT__LIB int64_t mirt__share(int64_t total, int64_t shares, int64_t index, int64_t *first);

/* Monotonic seconds, and seconds since 1970. */
MIRT__LIB double mirt__now(void);
MIRT__LIB double mirt__clock(void);

/* A stream of random numbers; value i depends only on (seed, key) and i. */
typedef struct mirt__random {
    uint64_t seed, key;
    uint64_t position; /* position in blocks of four words */
    uint32_t word[4];
    int left;
} mirt__random;
MIRT__LIB mirt__random mirt__random_stream(uint64_t seed, uint64_t key);
MIRT__LIB uint32_t mirt__random_u32(mirt__random *random);
/* Uniform below `bound` > 0, without bias. */
MIRT__TRAINING_LIB uint64_t mirt__random_below(mirt__random *random, uint64_t bound);
/* [0, 1) with 24 bits; normal by Box-Muller. */
MIRT__LIB float mirt__random_unit(mirt__random *random);
MIRT__LIB double mirt__random_normal(mirt__random *random);
/* FNV-1a 64, for keys from names. */
MIRT__LIB uint64_t mirt__hash(const char *text);

MIRT__LIB bool mirt__dtype_known(mirt_dtype dtype); /* to users */
MIRT__LIB size_t mirt__dtype_size(mirt_dtype dtype); /* bytes of an element in device memory */
MIRT__LIB const char *mirt__dtype_name(mirt_dtype dtype);
/* Element i of an array of a user's dtype. */
MIRT__LIB double mirt__element(const void *data, mirt_dtype dtype, int64_t i);
/* Writes "(rows, 28, 28, 1)" to `out`, and returns it. */
MIRT__LIB const char *mirt__shape_text(const mirt_shape *shape, char out[96]);
/* Elements per row of a batched shape, or of a whole shape without rows; -1 on overflow. */
MIRT__LIB int64_t mirt__shape_count(const mirt_shape *shape);
MIRT__LIB bool mirt__shape_equal(const mirt_shape *a, const mirt_shape *b);
/* The shape without its first dimension. */
MIRT__LIB mirt_shape mirt__row_shape(const mirt_shape *shape);
/* The candidate with the fewest edits from `word`, or NULL if none is similar. */
MIRT__LIB const char *mirt__nearest(const char *word, const char *const *candidates, int count);
/* The same for one candidate at a time: start with {word, NULL, ""}. */
typedef struct mirt__suggestion {
    const char *word, *nearest;
    char text[128];
} mirt__suggestion;
MIRT__LIB void mirt__guess(mirt__suggestion *suggestion, const char *candidate);
/* "; did you mean \"x\"?", or "" if none is similar. */
MIRT__LIB const char *mirt__did_you_mean(mirt__suggestion *suggestion);

#endif
