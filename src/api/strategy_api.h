#ifndef MIRT__STRATEGY_API_H
#define MIRT__STRATEGY_API_H
/* Strategies: the devices that train together. */

#include "basics_api.h"

MIRT__BEGIN_C

/* >>strategy ------------------------------------------------------------------------------ */
/* Threads: a strategy, and everything created from it, is for one thread at a time, not always the same one; different
   strategies may be used by different threads at once. Any thread may create one at any time. A call while another
   thread uses the strategy, or in a child of the process that created it, returns MIRT_E_STATE; destroying then does
   nothing. */

typedef struct mirt_strategy mirt_strategy;

typedef enum mirt_log_level { MIRT_LOG_ERROR, MIRT_LOG_WARNING, MIRT_LOG_INFO, MIRT_LOG_PROGRESS } mirt_log_level;

/* Receives everything a strategy's objects say, one line without its newline a call (a progress
   line may start with '\r' to overwrite the line before). Called from the thread that called the
   library. */
typedef void (*mirt_log_fn)(mirt_log_level level, const char *text, void *user);

/* Where weights live. Keras: tf.distribute's MirroredStrategy, OneDeviceStrategy, CentralStorageStrategy,
   MultiWorkerMirroredStrategy.
   MIRT_MIRRORED: every device has its copy. MIRT_ONE_DEVICE: one device runs all replicas.
   MIRT_CENTRAL_STORAGE: one copy that all devices read; bit-identical to MIRT_MIRRORED.
   MIRT_MULTI_WORKER: the devices of all processes that a launcher started train together, bit-identical to
   MIRT_MIRRORED with as many replicas. It needs mirrortrain_mpi.c (mpirun) or mirrortrain_tcp.c (torchrun, TF_CONFIG,
   srun) on the compiler's command line; a process alone is MIRT_MIRRORED.
   MIRT_PARAMETER_SERVER: the last `servers` of these processes keep the weights and the optimizer's state; the others,
   each mirrored on its own devices, pull weights, push gradients, and wait for nobody. Not reproducible, neither on
   several processes nor on the same ones: the result depends on which gradients arrive first. */
typedef enum mirt_strategy_kind {
    MIRT_MIRRORED = 0, MIRT_ONE_DEVICE, MIRT_CENTRAL_STORAGE, MIRT_MULTI_WORKER, MIRT_PARAMETER_SERVER
} mirt_strategy_kind;

/* How the replicas' gradients meet (tf.distribute.CrossDeviceOps). MIRT_TREE: one fixed binary tree
   over replica numbers; the result does not depend on the number of devices. MIRT_RING: a
   reduce-scatter in ring order, device d's share of the elements summed over devices d + 1, d + 2,
   ..., d. MIRT_REDUCE_TO_ONE_DEVICE: the first device adds in device order and updates all weights.
   Ring and one device give other roundings on other numbers of devices, and so do MIRT_NCCL, NCCL's own all-reduce
   between GPUs, and MIRT_MPI_ALLREDUCE, that of MPI between processes: these add up the sums of processes' trees. */
typedef enum mirt_collective {
    MIRT_COLLECTIVE_AUTO = 0, /* now MIRT_TREE: the same bits on any number of devices */
    MIRT_TREE, MIRT_RING, MIRT_REDUCE_TO_ONE_DEVICE, MIRT_NCCL, MIRT_MPI_ALLREDUCE
} mirt_collective;

/* Zero means default. */
typedef struct mirt_strategy_desc {
    /* NULL: every GPU, or where there is none (or the program is built without mirrortrain_cuda.cu) every core as one
       device; "cpu": every core as one device; "auto": one device for each socket (node of memory) that the process may
       use, whose threads run there alone and whose weights and activations lie there; "2": two equal shares of the
       cores; "cpu:0,cpu:1": two devices of one core each, so that strategies can have cores of their own; "gpu": every
       GPU; "gpu:0,gpu:2": these. Where the environment's MIRT_DEVICES is "cpu", NULL means cores whatever there is;
       where it is "gpu", numbers mean so many GPUs, and no GPU is an error */
    const char *devices;
    int replicas;        /* logical replicas V, of all processes; 0: one per device */
    int threads;         /* threads per device, if it is of cores; 0: the device's cores, efficiency cores of hybrid
                            processors left out. The system places them on cores, with "auto" on those of a socket */
    uint64_t seed;       /* of initial weights, dropout and shuffling */
    mirt_collective collective;
    mirt_log_fn log;     /* NULL: stderr */
    void *log_user;
    bool silent;         /* no log at all */
    mirt_strategy_kind kind;
    /* When a device, or a wait for samples, makes no progress for this long, the call returns MIRT_E_TIMEOUT with its
       name, the log shows what it did last, and the strategy can no longer be used: every call reports that at once.
       Its threads and memory, including borrowed memory, are abandoned; destroying it, its models and the data sets in
       use returns at once and frees nothing. Other strategies are not affected. 0: 60; single steps (mirt_train_step
       and the like) then check only the devices after the first, because the caller is the first. A positive number:
       exactly this limit. Negative: none. Time in which the process is suspended (SIGSTOP, a debugger, a snapshot of a
       virtual machine) does not count: the limit starts again afterwards. Programs without threads or without training
       have only the limit of waits for GPUs. */
    double timeout_seconds;
    bool winograd;       /* 3x3 convolutions of stride 1 and the gradients of their inputs by Winograd's F(2x2, 3x3),
                            where that is faster (it takes up to half the time): float32, with other roundings. CPUs
                            alone do so */
    bool repeat_devices; /* a GPU may be named several times, and is as many devices: for tests of mirroring on one
                            GPU */
    bool tf32;           /* GPUs multiply float32 numbers with 10 bits of mantissa (TF32): faster, with other
                            roundings */
    /* What devices get of replicas and rows, as "3,1": a number for each device of all processes, or for each process.
       Any shares give the same bits. NULL: equal ones */
    const char *shares;
    /* Gradients are summed so many bytes at a time, between processes during the backward pass. 0: 25 MB, on
       cores of several processes 2 MB */
    int64_t bucket_bytes;
    /* MIRT_MULTI_WORKER: local SGD. Each process applies the gradients of its own rows, and every so many steps the
       weights become the mean over replicas, as they do at the end of an epoch and before a checkpoint; optimizer
       state is each process's own. Not reproducible on other numbers of processes. 0: gradients are summed in every
       step */
    int average_every;
    /* MIRT_PARAMETER_SERVER: the number of servers, 0: 1; and the most updates by others between a worker's pull and
       its push, 0: any number, unless has_max_staleness. Below the number of workers - 1 it makes workers wait. */
    int servers, max_staleness;
    bool has_max_staleness;
    /* One device of cores: the calling thread performs the tasks of all of its `threads`, one after another, divided as
       for that many (mirt_record_tasks). Bit-identical results */
    bool simulate_threads;
} mirt_strategy_desc;

/* Keras: tf.distribute.MirroredStrategy(devices). `devices` as in mirt_strategy_desc; desc NULL: all
   defaults. Owns its threads. Returns NULL (MIRT_E_DEVICE, MIRT_E_INVALID: numbers that do not go
   together, MIRT_E_NOMEM, MIRT_E_THREAD). */
MIRT_API mirt_strategy *mirt_mirrored(const char *devices);
/* `device` as "cpu:1" or "gpu:0"; NULL: the first GPU, or where there is none every core as one device. MIRT_E_INVALID:
   several. */
MIRT_API mirt_strategy *mirt_one_device(const char *device);
MIRT_API mirt_strategy *mirt_central_storage(const char *devices);
/* Keras: tf.distribute.MultiWorkerMirroredStrategy. `devices` of this process; the processes of a host divide its GPUs,
   unless they are named, and each takes as many as a number says. Every process calls it, and afterwards
   the same functions in the same order. MIRT_E_WORKER: the processes do not find each other, or differ.
   The first process (mirt_worker_index 0) writes all files of a fit, and logs to stderr, where the others show warnings
   and errors alone; a log function of the program gets what every process has to say. Callbacks are called in every
   process and have to take the same decisions. */
MIRT_API mirt_strategy *mirt_multi_worker(const char *devices);
MIRT_API mirt_strategy *mirt_strategy_create(const mirt_strategy_desc *desc);
/* Destroys the strategy and the models still living in it. NULL is allowed. */
MIRT_API void mirt_strategy_destroy(mirt_strategy *strategy);
/* Logical replicas (Keras: num_replicas_in_sync; with MIRT_PARAMETER_SERVER those of this process), devices and threads
   per device; 0 for NULL. */
MIRT_API int mirt_num_replicas(const mirt_strategy *strategy);
MIRT_API int mirt_num_devices(const mirt_strategy *strategy);
MIRT_API int mirt_num_threads(const mirt_strategy *strategy);
/* How a launcher started this process together with others. */
typedef struct mirt_launch {
    const char *launcher; /* "Open MPI", "MPICH", "torchrun", "TF_CONFIG", "Slurm"; NULL: this process is alone */
    int index, processes; /* 0 and 1 for a process alone */
    bool mpi;             /* MPI connects the processes; otherwise TCP does, */
    char host[256];       /* to the first process, on */
    int port;             /* this port */
} mirt_launch;
/* What the environment says, before there is a strategy. The first of these that is there counts: OMPI_COMM_WORLD_SIZE
   and OMPI_COMM_WORLD_RANK; PMI_SIZE and PMI_RANK; WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT (where
   TORCHELASTIC_USE_AGENT_STORE is True, the next port); TF_CONFIG ("chief" comes before "worker" and "ps");
   SLURM_STEP_NUM_TASKS and SLURM_PROCID, with PMIX_RANK or PMI_RANK if MPI connects the processes, otherwise
   SLURM_STEP_NODELIST, SLURM_JOB_ID and SLURM_STEP_ID, or MASTER_ADDR and MASTER_PORT. MIRT_WORKERS=1: alone.
   MIRT_E_WORKER: the variables are incomplete or contradict each other; *out is then that of a process alone. Thread
   safe. tf.distribute.cluster_resolver. */
#ifndef MIRRORTRAIN_NO_TRAIN
MIRT_API mirt_status mirt_launched(mirt_launch *out);
#endif
/* Processes that train together, servers included, and which of them this one is, from 0. */
MIRT_API int mirt_num_workers(const mirt_strategy *strategy);
MIRT_API int mirt_worker_index(const mirt_strategy *strategy);
/* Waits for all of these processes; with MIRT_PARAMETER_SERVER for nobody. `status`: how the calling one fares; if it
   is not MIRT_OK in any of them, the others get MIRT_E_WORKER, with the last error of the first such process. Returns
   `status` otherwise. */
MIRT_API mirt_status mirt_barrier(mirt_strategy *strategy, mirt_status status);
/* Replaces the log sink; fn NULL is silent. */
MIRT_API void mirt_set_log(mirt_strategy *strategy, mirt_log_fn fn, void *user);

typedef struct mirt_device_info {
    char name[32];        /* "cpu:0", "gpu:0" */
    char description[96]; /* instruction set and core count; of a GPU its name and memory */
    int cores;            /* 1; of a GPU 0 */
    uint64_t memory;      /* bytes of a GPU's own; 0: it is the machine's */
} mirt_device_info;
/* Fills up to `capacity` entries with what this machine has, cores first; returns how many there are, 0 (MIRT_E_DEVICE)
   where an environment variable asks for what it has not. Thread safe: any thread at any time. */
MIRT_API int mirt_devices(mirt_device_info *out, int capacity);

MIRT__END_C

#endif /* MIRT__STRATEGY_API_H */
