/* What the files of the simulator share. */
#ifndef MIRT_SIM_INTERNAL_H
#define MIRT_SIM_INTERNAL_H
#include "sim.h"
#include "sim_device.h"
#include <functional>
#include <memory>
#include <string>

#if defined(__SANITIZE_ADDRESS__)
#define MIRT_SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MIRT_SIM_ASAN 1
#endif
#endif

namespace mirt_sim {

/* What this OS thread does on behalf of a device, for messages; device -1: host code. */
struct Running {
    const char *what;
    int device;
    bool kernel;
};
extern __thread Running running;

/* streams.cpp. Bytes of shared memory that a block may ask for, by the devices' compute capability. */
size_t most_shared();

/* fibers.cpp. The thread sanitizer is told what is ordered and what is not: a stream, and each branch of a graph on it,
 * is a lane, a thread of the sanitizer's own; all else has no lanes and these do nothing. */
struct Lane;
#ifdef MIRT_SIM_TSAN
const bool lanes_matter = true;
Lane *make_lane();
void drop_lane(Lane *lane);
/* Runs something as this lane; null: as the calling thread. Allocate nothing there that others free. */
void on_lane(Lane *lane, const std::function<void()> &run);
void after(const void *what);  /* what happened before the last `before` of it is known here */
void before(const void *what);
void reads(const void *at, size_t bytes);
void writes(const void *at, size_t bytes);
#else
const bool lanes_matter = false;
inline Lane *make_lane() { return nullptr; }
inline void drop_lane(Lane *) {}
template <class F> inline void on_lane(Lane *, const F &run) { run(); }
inline void after(const void *) {}
inline void before(const void *) {}
inline void reads(const void *, size_t) {}
inline void writes(const void *, size_t) {}
#endif
extern __thread Lane *lane_now; /* whose work is looked at */
/* access.cpp, which looks at each access of a kernel's threads. */
#ifdef MIRT_SIM_ACCESS
void access_launch(unsigned threads, const void *shared, size_t bytes);
void access_block();
void access_block_end();
void access_meeting(bool barrier); /* the thread has met others */
void access_stack(const void *at, size_t bytes);
void access_copy(const void *to, const void *from, const void *pc);
void access_row(const void *row, const void *pc);
#else
inline void access_launch(unsigned, const void *, size_t) {}
inline void access_block() {}
inline void access_block_end() {}
inline void access_meeting(bool) {}
inline void access_stack(const void *, size_t) {}
inline void access_copy(const void *, const void *, const void *) {}
inline void access_row(const void *, const void *) {}
#endif
void run_kernel(const Kernel &kernel);
std::string kernel_name(const char *name);
std::string where();

/* memory.cpp. Device memory may be touched only between open and close, by one OS thread at a time. */
void open_devices(unsigned mask);
void close_devices();
void guard_thread();
int callers(); /* OS threads that made calls, and live */
int device_of_address(const void *address);
bool host_pointer(const void *address);
bool pinned_range(const void *address, size_t bytes);
void check_range(const char *what, const void *address, size_t bytes);
bool place_of(const void *address, size_t *offset, size_t *bytes);
std::string describe(const void *address);
unsigned peers_of(int device);
int memory_leaks();

/* streams.cpp. One lock for all: an Entry holds it through a call. */
struct Entry {
    Entry();
    ~Entry();
    /* Whether the call is to fail: it was asked to, or the current device is lost. */
    bool fails(const char *call, cudaError_t *error);
    Entry(const Entry &) = delete;
    Entry &operator=(const Entry &) = delete;
};
/* The beginning of every call that can fail, and of those that free. */
#define API(name, code) \
    ::mirt_sim::Entry entry; \
    cudaError_t injected = code; \
    if (entry.fails(name, &injected)) return ::mirt_sim::set_error(injected)
#define FREEING() ::mirt_sim::Entry entry
cudaError_t set_error(cudaError_t error);
int current_device();
bool refused_by_capture(const char *call);
void finish_device(int device);
unsigned dice();
/* Runs what may run until done() says so, or waits for other threads; a deadlock is reported. */
void wait_until(const char *call, cudaStream_t first, const std::function<bool()> &done);
/* Something changed that others may wait for. */
void changed();

/* What a stream or a graph runs: at once, or when others have come too. */
struct Work {
    const char *what = "work";
    bool kernel = false;
    int device = 0;
    unsigned mask = 0; /* of the devices whose memory it touches */
    virtual ~Work() {}
    virtual void run() {}
    /* For work that waits for others: begins one execution of it, and says whether that has ended. */
    struct Execution {
        virtual ~Execution() {}
        virtual bool ended() = 0;
        virtual std::string waits_for() = 0;
    };
    virtual std::shared_ptr<Execution> begin() { return nullptr; }
};
/* Runs something on behalf of a device, with the memory of those of the mask. */
void run_as(const char *what, int device, unsigned mask, const std::function<void()> &run);
cudaError_t enqueue(cudaStream_t stream, std::shared_ptr<Work> work, const char *call);
int stream_device(cudaStream_t stream);
bool stream_captures(cudaStream_t stream);
void check_stream(cudaStream_t stream, const char *call);
int blas_leaks();
int nccl_leaks();
/* Whether NCCL's ranks may be in other processes, too. */
bool together();
/* What may wait for all kernels must not be done while a collective is under way, which may wait for one that the
   caller has yet to launch: that is a deadlock on some machine. */
void refuse_beside_exchanges(const char *what);
/* Calls the function of mirt_sim_watch. */
void report_launch(const mirt_sim_launch &launch);
/* A function's code is loaded on the current device with its first use. */
void load(const void *function, const char *name);
bool ranks_killed(); /* and their communicators are still there */
} // namespace mirt_sim
#endif
