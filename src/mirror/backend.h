#ifndef MIRT__BACKEND_H
#define MIRT__BACKEND_H
/* Devices with memory of their own. A backend is another file on the compiler's command line (mirrortrain_cuda.cu), which the
   library finds by a weak symbol. It is a table of kernels, whose pointers are into a device's memory, and what follows.

   A strategy opens its devices; from then on each device is used by its own thread alone. Work is enqueued, in order. The first
   thing that fails sticks, makes all further work nothing, and comes out of `wait`. */

#include "../kernels/table.h"

#define MIRT__BACKEND_VERSION 4

typedef struct mirt__remote mirt__remote; /* an opened device */

/* What the library does for a backend. */
typedef struct mirt__host {
    mirt_status (*fail)(mirt_status status, const char *format, ...); /* as mirt__fail */
    void *(*calloc)(size_t count, size_t size);                       /* NULL with the error set */
    void (*free)(void *pointer);
    double (*now)(void); /* monotonic seconds */
} mirt__host;

/* Asked for without touching the device's memory. */
typedef struct mirt__remote_info {
    char name[64], description[128];
    size_t memory;       /* bytes */
    bool half;           /* multiplies bfloat16 in hardware */
} mirt__remote_info;

/* How several opened devices of one strategy meet. */
typedef struct mirt__remote_join {
    mirt__remote *const *remote;
    int count;
    mirt_collective collective;
    bool shares;  /* they have memory in common: `direct` is asked for */
    double limit; /* seconds without progress, then a wait fails; 0: none */
    char *how;    /* takes a sentence for the log: the algorithm, why, its speed, of one device nothing; 256 bytes */
    bool direct;  /* out: each device can read and write the others' memory, and `exchange` is not to be called */
} mirt__remote_join;

/* The sum of gradients over devices, of elements [begin, end) of a block: like mirt__update's, parts by device and address in its
   memory, and the additions of the fixed tree. Afterwards slot 0 of each device has the sum. With MIRT_NCCL each device has one part. */
typedef struct mirt__remote_exchange {
    int64_t begin, end;
    int parts;
    int part_device[MIRT__MAX_PARTS];
    mirt__real *part[MIRT__MAX_PARTS];
    struct { int into, from; } add[MIRT__MAX_PARTS];
    mirt__real *sum; /* where this device wants it: its first buffer */
} mirt__remote_exchange;

/* What a variable becomes: its numbers begin at element `to` of the weights. `kind` makes one value of those of all replicas, which begin at element
   `from` of their states; with `kept` above 0 the variable goes on to it: kept * itself + taken * the value, each product and the sum rounded, as
   in Keras. */
typedef struct mirt__aggregated {
    int64_t from, to, count;
    mirt_aggregation kind; /* not MIRT_AGGREGATE_NONE */
    int variable;
    float kept, taken;
} mirt__aggregated;

/* Of `active` replicas, whose states lie `stride` numbers apart, in double precision and in the order of replicas. Of `rows` rows in all the first
   rows % replicas replicas have one more. */
typedef struct mirt__remote_aggregate {
    const mirt__aggregated *value;
    int values, active, replicas;
    int64_t rows, stride;
    const mirt__real *from;
    mirt__real *to;
} mirt__remote_aggregate;

/* Squares of the numbers of pieces of a block, added up as in the library: eight sums of every eighth number from the first, the
   rest of count % 8 into the first, then by pairs. */
typedef struct mirt__remote_piece {
    int64_t begin, count;
} mirt__remote_piece;

typedef struct mirt__backend {
    int version;
    const char *name; /* "gpu" */
    const mirt__kernels *kernels;
    /* Of this machine; 0: there are none; -1: with the error set (MIRT_E_NOT_FOUND: no driver; others: one that is too old, or fails). */
    int (*devices)(const mirt__host *host);
    bool (*info)(const mirt__host *host, int index, mirt__remote_info *out);
    /* NULL with the error set. tf32: products of float32 may be rounded so. */
    mirt__remote *(*open)(const mirt__host *host, int index, bool tf32);
    void (*close)(mirt__remote *remote);
    /* Once, by one thread, before the devices are used; false with the error set. */
    bool (*join)(mirt__remote_join *join);

    /* Device memory, zeroed; NULL with the error set. */
    void *(*alloc)(mirt__remote *remote, size_t bytes);
    void (*release)(mirt__remote *remote, void *memory);
    /* Bytes that are free for an alloc. */
    size_t (*free_bytes)(mirt__remote *remote);

    /* Copies. stage: from any memory of the host, which may change when it returns; behind all that was enqueued unless `early`, then beside
       it, and before what is enqueued next (inputs of the next step). behind: what is staged early from here on begins when all that was
       enqueued so far is done. fetch: to memory of the host, there when `wait` returns. */
    void (*stage)(mirt__remote *remote, void *to, const void *from, size_t bytes, bool early);
    void (*behind)(mirt__remote *remote);
    void (*fetch)(mirt__remote *remote, void *to, const void *from, size_t bytes);
    void (*copy)(mirt__remote *remote, void *to, const void *from, size_t bytes); /* within the device, or from another one's memory */
    void (*clear)(mirt__remote *remote, void *memory, size_t bytes);
    /* Until all that was enqueued is done; MIRT_OK, or the first failure since the last wait that returned one. */
    mirt_status (*wait)(mirt__remote *remote);

    /* Room that kernels take for themselves: between measure(true) and measure(false) nothing is enqueued, and the latter returns the
       bytes that calls want at most; room() gives them that memory. */
    size_t (*measure)(mirt__remote *remote, bool on);
    void (*room)(mirt__remote *remote, void *memory, size_t bytes);

    /* Work that comes back: what is enqueued between begin and end with the same (owner, key) is the same but for numbers that kernels
       say may change, so that from the third time on it is launched as a whole. No copies to or from the host, no meetings
       in between. When `end` returns false, nothing of it was done: begin and enqueue it once more (never twice in a row).
       forget: owner's memory has moved or is gone (NULL: everybody's). */
    void (*begin)(mirt__remote *remote, const void *owner, uint64_t key);
    bool (*end)(mirt__remote *remote);
    void (*forget)(mirt__remote *remote, const void *owner);

    /* A meeting on devices: `signal` marks the place in one's own work, `await` holds up what is enqueued next until another device has
       come to the place it marked last under the same number (0 to 7). The threads have met in between. */
    void (*signal)(mirt__remote *remote, int number);
    void (*await)(mirt__remote *remote, mirt__remote *other, int number);

    /* Behind what was enqueued so far and beside what is enqueued next, until `exchanged`: several, of ranges that do not overlap, on all
       devices in the same order; also between begin and end. */
    void (*exchange)(mirt__remote *remote, const mirt__remote_exchange *args);
    void (*exchanged)(mirt__remote *remote); /* what is enqueued next comes behind all exchanges */
    /* Every device has bytes [begin[d], begin[d + 1]) of a block at the same place `base[d]` + begin[d]: all of it, on all of them.
       Needs meetings before and behind where devices are direct. */
    void (*gather)(mirt__remote *remote, char *const *base, const size_t *begin, int devices);
    void (*aggregate)(mirt__remote *remote, const mirt__remote_aggregate *args);
    /* Into squares[pieces], memory of the host, there when `wait` returns. */
    void (*squares)(mirt__remote *remote, const mirt__real *block, const mirt__remote_piece *piece, int pieces, double *squares);
    /* Seconds between the signals `from` and `to` of what was done last; after a wait. */
    double (*seconds)(mirt__remote *remote, int from, int to);
} mirt__backend;

#if defined(__GNUC__) && defined(__ELF__)
#define MIRT__WEAK __attribute__((weak))
#else
#define MIRT__WEAK
#endif

#ifdef __cplusplus
extern "C" {
#endif
/* Found by the linker, or absent; where there are no weak symbols, MIRRORTRAIN_CUDA says that it is there. */
#if defined(__ELF__) || defined(MIRRORTRAIN_CUDA)
const mirt__backend *mirt__cuda_backend(void) MIRT__WEAK;
#endif
#ifdef __cplusplus
}
#endif

#endif
