#ifndef MIRT__DEVICE_H
#define MIRT__DEVICE_H
/* The table that every kind of device fills: CPU cores, GPUs, and test devices.

   Cores fill it in device/cores.c. The table of GPUs is in another file on the compiler's command line
   (mirrortrain_cuda.cu), which the library finds by a weak symbol.

   A strategy opens its devices; afterwards only the device's own thread uses it. Work runs in the order in which it is
   enqueued (cores: at once). The first failure sticks: all work after it is skipped, and `wait` returns it. */

#include "../kernels/table.h"

#define MIRT__BACKEND_VERSION 8
#define MIRT__MAX_DEVICES 32
#define MIRT__MOST_SQUARES 1024 /* pieces in a call of `squares` */

typedef struct mirt__handle mirt__handle; /* of an opened device */

/* Nanoseconds on a device for each byte ... */
typedef struct mirt__storage_costs {
    double pass; /* that a node of its own reads or writes */
    double read; /* that a reader of a tensor that can be lazy reads: of it, or of what it is computed from */
    double held; /* that is kept between the forward and the backward pass */
    /* and for each element of a lazy tensor that a convolution computes: once for each tap and `columns` columns of its
       matrix product; 0 columns: of all of them */
    double again;
    int columns;
} mirt__storage_costs;

/* What the devices of a strategy can do; set by `join`. The abilities do not depend on each other. */
typedef struct mirt__abilities {
    bool in_place; /* kernels work on the host's memory: batches, results and weights need no copy, user code can run */
    bool direct;   /* each device reads and writes the memory of the others */
    bool shards;   /* each device updates its share of the weights in all copies, and adds up partial sums as it does */
    bool queues;   /* work is enqueued: the host can read the next batch meanwhile */
    bool float16;  /* products of float16 with scaled gradients */
    mirt__storage_costs costs;
} mirt__abilities;

/* What the library does for a backend. */
typedef struct mirt__host {
    mirt_status (*fail)(mirt_status status, const char *format, ...); /* as mirt__fail */
    void *(*calloc)(size_t count, size_t size);                       /* NULL with the error set */
    void (*free)(void *pointer);
    double (*now)(void); /* monotonic seconds */
} mirt__host;

/* Asked for without touching the device's memory. */
typedef struct mirt__device_facts {
    char name[64], description[128];
    size_t memory;       /* bytes; 0: the host's */
    int cores;           /* of a CPU, otherwise 0 */
    bool half;           /* multiplies bfloat16 in hardware */
    unsigned char uuid[16]; /* of a GPU */
} mirt__device_facts;

/* What a device's driver says about it, whoever uses it; negative: it does not say. */
typedef struct mirt__gauges {
    double utilization;        /* share of the last moments in which a kernel ran */
    double memory, all_memory; /* bytes: in use, and in all */
    double watts;
} mirt__gauges;

/* How several opened devices of one strategy meet, and those of the other processes that train with it. */
typedef struct mirt__joining {
    mirt__handle *const *handle;
    int count;
    int first, all; /* of all processes' devices: the number of this process's first one, and how many they are */
    int per_host; /* devices of each host, where those of a host follow each other and all have as many; otherwise 0 */
    /* Every process gets the bytes of the first one, which all ask for. NULL: there is one process. */
    bool (*hear_first)(void *user, void *data, size_t bytes);
    void *user;
    mirt_collective collective;
    bool shares;  /* they have memory in common: `direct` is asked for */
    double limit; /* seconds without progress, then a wait fails; 0: none */
    char *how;    /* out: a sentence for the log: the algorithm, why, its speed; one device: nothing; 256 bytes */
    mirt__abilities able; /* out */
} mirt__joining;

/* How a device is opened. */
typedef struct mirt__opening {
    int index;         /* among the devices of its kind on this machine */
    bool tf32;         /* products of float32 may be rounded so */
    int devices;       /* that the strategy has in all */
    mirt__team *team;  /* the threads of a device of cores; NULL: one thread */
    const mirt__cpus *socket; /* the cores that these run on, which its memory is to be next to; NULL: any */
} mirt__opening;

/* The sum of gradients over devices, of elements [begin, end) of a block: the partial sums by device, numbered over all
   processes, and address in its memory (NULL: of another process), and the additions of the collective in their order.
   Afterwards `sum` of each device has it. */
typedef struct mirt__reduction {
    int64_t begin, end;
    int parts;
    int part_device[MIRT__MAX_PARTS];
    mirt__real *part[MIRT__MAX_PARTS];
    mirt__addition add[MIRT__MAX_PARTS];
    int64_t own_begin, own_end; /* what this device adds up where devices are direct; otherwise not read */
    int devices;                        /* of this process, */
    mirt__real *sum[MIRT__MAX_DEVICES]; /* and the first buffer of each */
    int device;                         /* this one */
} mirt__reduction;

/* What a variable becomes: its numbers begin at element `to` of the weights. `kind` makes one value of those of all
   replicas, which begin at element `from` of their states; with `kept` above 0 the variable goes on to it: kept *
   itself + taken * the value, each product and the sum rounded, as in Keras. */
typedef struct mirt__aggregated {
    int64_t from, to, count;
    mirt_aggregation kind; /* not MIRT_AGGREGATE_NONE */
    int variable;
    float kept, taken;
} mirt__aggregated;

/* Of `active` replicas, whose states lie `stride` numbers apart, in double precision and in the order of replicas. Of
   `rows` rows in all the first rows % replicas replicas have one more. */
typedef struct mirt__aggregation_job {
    const mirt__aggregated *value;
    int values, active, replicas;
    int64_t rows, stride;
    const mirt__real *from;
    mirt__real *to;
} mirt__aggregation_job;

/* Squares of the numbers of pieces of a block, added up as in the library: eight sums of every eighth number from the
   first, the rest of count % 8 into the first, then by pairs. */
typedef struct mirt__square_piece {
    int64_t begin, count;
} mirt__square_piece;

/* Memory that the kernels of one replay need beside the tensors, in bytes. */
typedef struct mirt__kernel_room {
    size_t scratch; /* of all threads of the device */
    size_t shared;
} mirt__kernel_room;

typedef struct mirt__backend {
    int version;
    const char *name; /* of one device, without its number: "cpu", "gpu" */
    const mirt__kernels *(*kernels)(void); /* NULL with the error set */
    /* How many there are on this machine. 0: none; -1: with the error set (MIRT_E_NOT_FOUND: no driver; others: the
       driver is too old, or fails). */
    int (*devices)(const mirt__host *host);
    bool (*info)(const mirt__host *host, int index, mirt__device_facts *out);
    /* Threads of each of `devices` devices: `asked` by the user (0: not asked), of `cores` that they may use. */
    int (*threads)(int asked, int cores, int devices);
    /* NULL with the error set. */
    mirt__handle *(*open)(const mirt__host *host, const mirt__opening *how);
    void (*close)(mirt__handle *handle);
    /* Once, by one thread, before the devices are used; false with the error set. */
    bool (*join)(mirt__joining *join);

    /* Device memory, not initialized; NULL with the error set. */
    void *(*alloc)(mirt__handle *handle, size_t bytes);
    void (*release)(mirt__handle *handle, void *memory);
    /* Bytes that an alloc can get. */
    size_t (*free_bytes)(mirt__handle *handle);

    /* Copies; where source and target are the same memory, nothing is copied.
       copy_in: from any memory of the host, which may change when it returns; after all that was enqueued unless
       `early`, then beside it, and before what is enqueued next (inputs of the next step). behind: early copies from
       here on begin when all that was enqueued so far is done. copy_out: to memory of the host, complete when `wait`
       returns. copy: within the device, or from another device's memory. */
    void (*copy_in)(mirt__handle *handle, void *to, const void *from, size_t bytes, bool early);
    void (*behind)(mirt__handle *handle);
    void (*copy_out)(mirt__handle *handle, void *to, const void *from, size_t bytes);
    void (*copy)(mirt__handle *handle, void *to, const void *from, size_t bytes);
    void (*clear)(mirt__handle *handle, void *memory, size_t bytes);
    /* Until all that was enqueued is done; MIRT_OK, or the first failure since the last wait that returned one. */
    mirt_status (*wait)(mirt__handle *handle);
    /* mark: ends a round of work. wait_mark: as `wait`, but only for the work up to the last mark; copies to the host
       before it are complete then, and the work after it continues. At most one mark is outstanding; `wait` covers
       it too. */
    void (*mark)(mirt__handle *handle);
    mirt_status (*wait_mark)(mirt__handle *handle);

    /* What the kernels of replay(arg) need. On entry `room` has what the ops declare. A device whose kernels choose
       their room themselves calls replay, which then computes nothing. */
    void (*measure)(mirt__handle *handle, void (*replay)(void *arg), void *arg, mirt__kernel_room *room);
    /* Memory for it; valid until the next call. */
    void (*room)(mirt__handle *handle, void *memory, size_t bytes);

    /* Captured work: what is enqueued between begin and end with the same (owner, key) is identical except for the
       scalars that kernels declare as variable; from the third time on it can be launched as a whole. No copies to or
       from the host, no meetings in between. When `end` returns false, none of it was done: begin and enqueue it once
       more (never twice in a row). forget: the owner's memory has moved or is freed (NULL: everybody's). */
    void (*begin)(mirt__handle *handle, const void *owner, uint64_t key);
    bool (*end)(mirt__handle *handle);
    void (*forget)(mirt__handle *handle, const void *owner);

    /* A meeting of devices: `signal` marks a place in this device's work, `await` delays what is enqueued next until
       another device has reached the place it marked last with the same number (0 to 11). Between the two calls the
       devices' threads have met. */
    void (*signal)(mirt__handle *handle, int number);
    void (*await)(mirt__handle *handle, mirt__handle *other, int number);

    /* Reduces a range: after what was enqueued so far and beside what is enqueued next, until `reduced`. Several, of
       ranges that do not overlap, on all devices in the same order; also between begin and end. Direct devices have
       met before, and meet before they read the sums. */
    void (*reduce)(mirt__handle *handle, const mirt__reduction *args);
    void (*reduced)(mirt__handle *handle); /* what is enqueued next follows all reductions */
    /* Every device d of all processes has bytes [begin[d], begin[d + 1]) of a block, this process's `devices` at
       base[i] + begin[d]; afterwards each has all of them. Direct devices have met before, and meet afterwards. */
    void (*gather)(mirt__handle *handle, char *const *base, const size_t *begin, int devices);
    void (*aggregate)(mirt__handle *handle, const mirt__aggregation_job *args);
    /* Into squares[pieces], memory of the host, complete when `wait` returns. */
    void (*squares)(mirt__handle *handle, const mirt__real *block, const mirt__square_piece *piece, int pieces,
                    double *squares);
    /* Seconds between the signals `from` and `to` that were given last; after a wait. 0: not known. */
    double (*seconds)(mirt__handle *handle, int from, int to);
    /* Between steps. False: nothing is known. NULL: the devices have no such driver. */
    bool (*gauge)(mirt__handle *handle, mirt__gauges *out);
} mirt__backend;

MIRT__BEGIN_C
/* Found by the linker, or absent; where there are no weak symbols, MIRRORTRAIN_CUDA says that it is there. */
#if defined(__ELF__) || defined(MIRRORTRAIN_CUDA)
const mirt__backend *mirt__cuda_backend(void) MIRT__WEAK;
#endif
MIRT__END_C

#endif
