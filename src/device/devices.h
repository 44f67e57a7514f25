#ifndef MIRT__DEVICES_H
#define MIRT__DEVICES_H
/* Which devices there are, the CPU's table, and how replicas' values become one. */
#include "../base/team.h"
#include "device.h"

#define MIRT__MAX_REPLICAS 4096

/* --- cores.c --- */
MIRT__LIB const mirt__backend *mirt__cores_backend(void);

/* --- devices.c --- */
/* What a description of devices names. */
typedef struct mirt__found {
    const mirt__backend *backend; /* of all of them */
    int count;
    char name[MIRT__MAX_DEVICES][32];
    int index[MIRT__MAX_DEVICES]; /* among the devices of their kind on this machine */
    bool named;        /* cores by name, each with one thread */
    int gpus;          /* how many are asked for; 0: all; -1: GPUs by name, or cores */
    bool default_cores; /* nothing was asked for: cores, as there is no GPU, */
    bool no_driver;    /* and no driver for one */
    const char *sockets;            /* "auto": why there are so many, or NULL; */
    int threads;                    /* of each, at most, */
    mirt__cpus socket[MIRT__MAX_DEVICES]; /* and, of several, where these run */
    char warning[600]; /* why GPUs that were not asked for cannot be used, or "" */
} mirt__found;
/* `text`: the user's description; NULL: the default. `one`: only the first device. `repeat`: a GPU may be named twice.
 */
MIRT__LIB mirt_status mirt__find_devices(const char *text, bool one, bool repeat, mirt__found *out);
/* Whether the program is built with a table of GPUs. */
MIRT__LIB bool mirt__has_backend(void);
MIRT__LIB const mirt__host *mirt__backend_host(void);

/* --- aggregate.c --- */
/* One value of `count` elements from those of `active` replicas in their order, in double precision; `out` may be one
   of them. The mean of equal values is that value. NONE leaves `out` alone. */
MIRT__LIB void mirt__aggregate(mirt_aggregation kind, int active, const mirt__real *const *value, const int64_t *rows,
                               int64_t count, mirt__real *out);
/* A variable's new value (mirt__aggregated). */
MIRT__LIB void mirt__aggregate_variable(const mirt__aggregated *a, int active, const mirt__real *const *value,
                                        const int64_t *rows, mirt__real *variable);
/* Mean and biased variance of all rows from those of each replica's. */
MIRT__LIB void mirt__combine_moments(int active, const mirt__real *const *mean, const mirt__real *const *variance,
                                     const int64_t *rows, int64_t count, mirt__real *mean_out,
                                     mirt__real *variance_out);

#endif
