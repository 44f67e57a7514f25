/* What a test asks of the simulator, and may make it do. */
#ifndef MIRT_SIM_H
#define MIRT_SIM_H
#include <stddef.h>
#include <stdint.h>

/* A kernel launch, or a matrix product of cuBLAS. */
typedef struct mirt_sim_launch {
    const char *what;     /* the kernel as the source names it, or the call of cuBLAS */
    const void *function; /* the kernel; NULL: a product, */
    int64_t m, n, k;      /* of m x k by k x n numbers, column by column, */
    int64_t batch;        /* this many times */
    unsigned grid[3], block[3];
    size_t shared;        /* bytes of dynamic shared memory */
} mirt_sim_launch;

#ifdef __cplusplus
namespace mirt_sim {

enum { FATAL_STATUS = 97, MOST_DEVICES = 16 };

/* Set by the environment when the program begins (MIRT_SIM_SEED, _DEVICES, _MEMORY, _FAIL, _NO_PEERS, _DRIVER, _NCCL,
 * _CAPABILITY, _NEVER_JOINS, _NEVER_ISSUES, _PATIENCE, _STACK, _SKIP), and by tests between runs. */
struct Options {
    uint64_t seed;   /* 0: streams and threads in the order of their calls; another: some other legal order */
    int devices;     /* how many there are: 1 */
    size_t memory;   /* bytes of each: 2 GiB */
    long fail_call;  /* the call that fails, counted from 1 since reset_calls(); 0: none */
    bool no_peers;   /* no device reaches another's memory */
    int driver;      /* the driver's version; 0: the runtime's; -1: there is none */
    int nccl;        /* NCCL's version; 0: the header's */
    bool same_places; /* ranks that reduce parts of memory of one size reduce the same part: true */
    int capability;   /* of the devices: 90; below 80 there are matrix products of float16 alone, and no asynchronous
                         copies: they are done at once */
    int code;         /* what the program was compiled for, as 90; 0: the devices */
    int never_joins;  /* the rank of NCCL's that never joins: -1, none */
    int never_issues; /* the rank whose calls are under way for ever: -1, none */
    double patience; /* seconds until a wait for what nobody brings is reported as a deadlock: 20 */
    bool
        stack; /* kernels may be given memory of the stack, where they may be given the host's: true; no GPU takes it */
    bool skip; /* kernels and products are checked and queued but not computed, and large memory is not filled: for
                  records of networks too large to simulate; results are meaningless: false */
};
Options &options();

/* From now on every call for the device fails with this (a cudaError_t), and its work never ends: it was lost. 0: it is
   there again. */
void lose_device(int device, int error);

/* From now on its work never ends, and calls that wait for it do not return. */
void hang_device(int device, bool on);

/* From now on nothing comes from this rank of any communicator. The others are told by their asynchronous error, or
   silently not. */
void kill_rank(int rank, bool silently);
/* Kernels and libraries may be given the host's memory: for tests of single kernels. In C: mirt_sim_host_memory(1). */
bool &host_memory();

/* API calls that can fail, since the last reset_calls(). */
long calls();
void reset_calls();
/* The name of the call that was made to fail; NULL: none yet. */
const char *failed_call();

/* Bytes allocated on a device now, and the most since the program began. */
size_t device_bytes(int device);
size_t device_peak(int device);
/* The most lanes of one phase of a warp's access to shared memory that wanted different words of one bank, of a
   kernel's accesses so far; make sim-access counts them. */
int bank_conflicts(const char *kernel);
/* What is still there of memory, streams, events, graphs, handles, communicators: 0 if nothing is; prints each to
 * stderr, with its number among those of its kind. */
int report_leaks();
} // namespace mirt_sim
extern "C" {
#endif

/* The same for programs in C. Options by the names of the environment, in lower case: "seed", "devices", "memory",
   "fail", ... */
void mirt_sim_set(const char *option, double value);
void mirt_sim_lose_device(int device, int error);
void mirt_sim_hang_device(int device, int on);
void mirt_sim_kill_rank(int rank, int silently);
long mirt_sim_calls(void);
void mirt_sim_reset_calls(void);
const char *mirt_sim_failed_call(void);
size_t mirt_sim_device_bytes(int device);
size_t mirt_sim_device_peak(int device);
int mirt_sim_report_leaks(void);
void mirt_sim_host_memory(int on);
/* From now on communicators have ranks in other processes, too, which exchange files of this folder; the environment's
   MIRT_SIM_TOGETHER names one for a program. */
void mirt_sim_together(const char *folder);
/* From now on `saw` is called for every launch and product when it is queued or captured. NULL: no longer. */
void mirt_sim_watch(void (*saw)(const mirt_sim_launch *launch));
#ifdef __cplusplus
}
#endif
#endif
