/* Streams, events and graphs. A stream is a queue that nothing runs until somebody waits; then work at the heads of all
 * queues runs in some legal order, another one for every seed. One lock guards everything, so work of all devices runs
 * one after another. */
#include "sim_internal.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace mirt_sim;

namespace mirt_sim {
static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Node {
    std::shared_ptr<Work> work;
    size_t lane = 0;
    std::vector<int> next;
    int before = 0;
};
struct Capture {
    std::vector<Node> nodes;
    cudaStream_t origin;
    std::set<cudaStream_t> members;
    std::thread::id thread;
    cudaStreamCaptureMode mode;
    bool invalid = false;
};
struct EventState {
    uint64_t recorded = 0, done = 0;
    double time = 0;
    int device = 0;
    bool timing = true;
    std::shared_ptr<Capture> capture;
    std::vector<int> tails;
};
struct Program {
    std::vector<Node> nodes;
    bool running = false;
};
/* One launch of a graph, at the head of its stream. */
struct Launch {
    std::vector<int> before, ready;
    std::vector<std::shared_ptr<Work::Execution>> executions;
    std::vector<char> began; /* addresses that stand for the ends of nodes, too */
    size_t left;
};
struct Op {
    enum Kind { WORK, RECORD, WAIT, GRAPH } kind = WORK;
    uint64_t serial = 0;
    std::shared_ptr<Work> work;
    std::shared_ptr<Work::Execution> execution;
    std::shared_ptr<EventState> event;
    uint64_t number = 0;
    std::shared_ptr<Program> program;
    std::shared_ptr<Launch> launch;
    bool began = false;
};
} // namespace mirt_sim

struct CUstream_st {
    int device;
    bool blocking;
    long number;
    std::deque<Op> queue;
    std::shared_ptr<Capture> capture;
    std::vector<int> tails;
    std::vector<Lane *> lanes; /* its own first; then those of graphs' branches */
};
struct CUevent_st {
    std::shared_ptr<EventState> state;
    long number;
};
struct CUgraph_st {
    std::vector<Node> nodes;
    long number;
};
struct CUgraphExec_st {
    std::shared_ptr<Program> program;
    long number;
    int device;
};

namespace mirt_sim {
namespace {
std::recursive_mutex lock;
std::condition_variable_any news;
std::atomic<int> wanting;
int waiting;
uint64_t progress, serials;
std::vector<cudaStream_t> streams;
std::set<cudaEvent_t> events;
std::set<cudaGraph_t> graphs;
std::set<cudaGraphExec_t> programs;
std::vector<std::shared_ptr<Capture>> captures;
long handles;
int lost[MOST_DEVICES];
bool hung[MOST_DEVICES];
long call_count;
const char *failed;
uint64_t state_of_dice;
int open_now = -1;
__thread int device_now;
__thread cudaError_t last_error;
__thread int depth;

} // namespace

unsigned dice() {
    static uint64_t seed = ~0ull;
    if (seed != options().seed) state_of_dice = (seed = options().seed) * 0x9E3779B97F4A7C15ull + 1;
    state_of_dice = state_of_dice * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state_of_dice >> 33);
}

Entry::Entry() {
    static const pid_t owner = getpid();
    if (getpid() != owner) fatal("after a fork: CUDA is used in a child of a process that used it");
    guard_thread();
    wanting++;
    lock.lock();
    wanting--;
    depth++;
}

Entry::~Entry() {
    depth--;
    lock.unlock();
}

bool Entry::fails(const char *call, cudaError_t *error) {
    if (depth > 1) return false;
    call_count++;
    if (options().fail_call && call_count == options().fail_call) {
        failed = call;
        return true;
    }
    if (lost[device_now]) {
        *error = (cudaError_t)lost[device_now];
        return true;
    }
    return false;
}

long calls() { return call_count; }
void reset_calls() {
    call_count = 0;
    failed = nullptr;
}
const char *failed_call() { return failed; }
void lose_device(int device, int error) {
    Entry entry;
    lost[device] = error;
    changed();
}

void hang_device(int device, bool on) {
    Entry entry;
    hung[device] = on;
    changed();
}

cudaError_t set_error(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

int current_device() { return device_now; }

void changed() {
    progress++;
    if (waiting) news.notify_all();
}

int stream_device(cudaStream_t stream) { return stream->device; }
bool stream_captures(cudaStream_t stream) { return stream->capture != nullptr; }

void check_stream(cudaStream_t stream, const char *call) {
    if (!stream)
        fatal("legacy stream: %s on the default stream, which waits for all others and may not be captured", call);
    if (std::find(streams.begin(), streams.end(), stream) == streams.end())
        fatal("wrong handle: %s of a stream that was destroyed, or never was", call);
}

static void check_event(cudaEvent_t event, const char *call) {
    if (!events.count(event)) fatal("wrong handle: %s of an event that was destroyed, or never was", call);
}

bool refused_by_capture(const char *call) {
    for (auto &c : captures)
        if (c->mode == cudaStreamCaptureModeGlobal ||
            (c->mode == cudaStreamCaptureModeThreadLocal && c->thread == std::this_thread::get_id())) {
            fprintf(stderr, "sim: note: %s while a stream is captured\n", call);
            c->invalid = true;
            return true;
        }
    return false;
}

/* What a call does before work begins is known to the work: an address stands for each of the latest calls. */
static const void *call_of(uint64_t serial) {
    static char addresses[1 << 16];
    return &addresses[serial % sizeof addresses];
}

static Lane *lane_of(cudaStream_t s, size_t index) {
    while (s->lanes.size() <= index) s->lanes.push_back(make_lane());
    return s->lanes[index];
}

/* Adds work to what the stream does, now or in the graph that is being captured. */
static void add(cudaStream_t stream, Op op) {
    op.serial = ++serials;
    before(call_of(op.serial));
    stream->queue.push_back(std::move(op));
    changed();
}

cudaError_t enqueue(cudaStream_t stream, std::shared_ptr<Work> work, const char *call) {
    check_stream(stream, call);
    if (!work->mask) work->mask = 1u << work->device;
    if (stream->capture) {
        if (stream->capture->invalid) return set_error(cudaErrorStreamCaptureInvalidated);
        Node node;
        node.work = work;
        node.before = (int)stream->tails.size();
        int index = (int)stream->capture->nodes.size();
        for (int t : stream->tails) stream->capture->nodes[(size_t)t].next.push_back(index);
        stream->capture->nodes.push_back(node);
        stream->tails.assign(1, index);
        return cudaSuccess;
    }
    Op op;
    op.work = work;
    add(stream, op);
    return cudaSuccess;
}

void run_as(const char *what, int on, unsigned mask, const std::function<void()> &run) {
    open_devices(mask | peers_of(on));
    open_now = on;
    Running saved = running;
    int device = device_now;
    running.what = what;
    running.device = device_now = on;
    on_lane(lane_now, run);
    running = saved;
    device_now = device;
}

static void run_now(Work *work) {
    run_as(work->what, work->device, work->mask, [=] { work->run(); });
}

/* Something that may run next: the head of a stream, or a node of the graph there. */
struct Choice {
    cudaStream_t stream;
    int node;
    int device;
};

/* Work begins: after the call that brought it, or after the nodes before it in its graph. */
static void begin(Op &op, int node) {
    char *began = node < 0 ? reinterpret_cast<char *>(&op.began) : &op.launch->began[(size_t)node];
    if (*began || !lanes_matter) return;
    *began = 1;
    on_lane(lane_now, [&] {
        after(call_of(op.serial));
        if (node < 0) return;
        for (size_t i = 0; i < (size_t)node; i++) {
            const std::vector<int> &next = op.program->nodes[i].next;
            if (std::find(next.begin(), next.end(), node) != next.end()) after(&op.launch->began[i]);
        }
        if (!op.program->nodes[(size_t)node].before) after(op.launch.get());
    });
}

static bool ended(const std::shared_ptr<Work> &work, std::shared_ptr<Work::Execution> *execution, bool *began) {
    if (!*execution) {
        *execution = work->begin();
        if (!*execution) return true;
        *began = true;
    }
    return (*execution)->ended();
}

static void choices_of(cudaStream_t s, std::vector<Choice> *choices, bool *began) {
    Choice c = {s, -1, s->device};
    if (s->queue.empty() || lost[s->device] || hung[s->device]) return;
    Op &op = s->queue.front();
    lane_now = lane_of(s, 0);
    switch (op.kind) {
    case Op::WORK:
        begin(op, -1);
        if (!ended(op.work, &op.execution, began)) return;
        c.device = op.work->device;
        break;
    case Op::RECORD: break;
    case Op::WAIT:
        if (op.event->done < op.number) return;
        break;
    case Op::GRAPH:
        if (!op.launch) {
            if (op.program->running) return;
            op.program->running = true;
            op.launch.reset(new Launch());
            op.launch->left = op.program->nodes.size();
            op.launch->executions.resize(op.launch->left);
            op.launch->began.resize(op.launch->left);
            begin(op, -1);
            on_lane(lane_now, [&] { before(op.launch.get()); });
            for (size_t i = 0; i < op.program->nodes.size(); i++) {
                op.launch->before.push_back(op.program->nodes[i].before);
                if (!op.program->nodes[i].before) op.launch->ready.push_back((int)i);
            }
        }
        if (op.launch->left) {
            for (int n : op.launch->ready) {
                const std::shared_ptr<Work> &work = op.program->nodes[(size_t)n].work;
                lane_now = lane_of(s, op.program->nodes[(size_t)n].lane);
                begin(op, n);
                if (!ended(work, &op.launch->executions[(size_t)n], began)) continue;
                Choice d = {s, n, work->device};
                choices->push_back(d);
            }
            return;
        }
        break;
    }
    choices->push_back(c);
}

static void run_choice(const Choice &c) {
    Op &op = c.stream->queue.front();
    lane_now = lane_of(c.stream, 0);
    if (c.node >= 0) {
        Launch *l = op.launch.get();
        const Node &node = op.program->nodes[(size_t)c.node];
        lane_now = lane_of(c.stream, node.lane);
        if (!l->executions[(size_t)c.node]) run_now(node.work.get());
        on_lane(lane_now, [&] { before(&l->began[(size_t)c.node]); });
        l->ready.erase(std::find(l->ready.begin(), l->ready.end(), c.node));
        for (int n : node.next)
            if (--l->before[(size_t)n] == 0) l->ready.push_back(n);
        l->left--;
        if (l->left) return;
        lane_now = lane_of(c.stream, 0);
    } else if (op.kind == Op::WORK && !op.execution) run_now(op.work.get());
    else if (op.kind == Op::RECORD && op.event->done < op.number) {
        op.event->done = op.number;
        op.event->time = now();
    }
    if (op.kind == Op::GRAPH) op.program->running = false;
    on_lane(lane_now, [&] {
        if (op.kind == Op::WAIT) after(op.event.get());
        if (op.kind == Op::RECORD) before(op.event.get());
        if (op.kind == Op::GRAPH)
            for (const char &node : op.launch->began) after(&node);
        before(c.stream);
    });
#ifdef MIRT_SIM_TSAN
    /* What fibers have read is not freed: that would be a race to the sanitizer. */
    static auto *read = new std::vector<Op>();
    read->push_back(op);
#endif
    c.stream->queue.pop_front();
}

/* Runs one piece of work, of the first stream if that is not null and can; false: nothing can run now. */
static bool step(cudaStream_t first) {
    static std::vector<Choice> choices;
    choices.clear();
    bool began = false;
    if (first) choices_of(first, &choices, &began);
    if (choices.empty())
        for (cudaStream_t s : streams) choices_of(s, &choices, &began);
    if (began) changed();
    lane_now = nullptr;
    if (choices.empty()) return began;
    size_t pick = 0;
    if (options().seed) {
        pick = dice() % choices.size();
        /* Opening and closing memory costs: mostly continue with the same device. */
        if (choices[pick].device != open_now && dice() % 8)
            for (size_t i = 0; i < choices.size(); i++)
                if (choices[(pick + i) % choices.size()].device == open_now) {
                    pick = (pick + i) % choices.size();
                    break;
                }
    } else
        for (size_t i = 1; i < choices.size(); i++)
            if (choices[i].stream->queue.front().serial < choices[pick].stream->queue.front().serial) pick = i;
    run_choice(choices[pick]);
    lane_now = nullptr;
    changed();
    return true;
}

static std::string blocked() {
    std::string s;
    char text[300];
    for (cudaStream_t stream : streams) {
        if (stream->queue.empty()) continue;
        const Op &op = stream->queue.front();
        std::string what = "work";
        if (lost[stream->device]) what = "a device that is lost";
        else if (hung[stream->device]) what = "work without end";
        else if (op.kind == Op::WAIT) what = "an event recorded after other work";
        else if (op.kind == Op::WORK && op.execution) what = op.execution->waits_for();
        else if (op.kind == Op::GRAPH && op.launch)
            for (int n : op.launch->ready)
                if (op.launch->executions[(size_t)n]) what = op.launch->executions[(size_t)n]->waits_for();
        snprintf(text, sizeof text, "; stream %ld of device %d, %zu more after it, waits for %s", stream->number,
                 stream->device, stream->queue.size() - 1, what.c_str());
        s += text;
    }
    return s;
}

/* Lets other threads in between two pieces of work. */
static void let_others() {
    if (!wanting) return;
    int saved = depth;
    for (int i = 0; i < saved; i++) lock.unlock();
    std::this_thread::yield();
    for (int i = 0; i < saved; i++) lock.lock();
}

/* How long nothing has happened, in seconds and in looks: a process that was stopped, or got no time, has not
   looked. */
struct Idle {
    uint64_t seen = 0;
    double since = 0;
    long looks = 0;
    bool too_long() {
        if (seen != progress || !looks) {
            seen = progress;
            since = now();
            looks = 0;
        }
        looks++;
        return now() - since > options().patience && (double)looks > options().patience * 10;
    }
};

/* Lets go of the lock until there is news, or some time has passed. */
static void rest(std::chrono::microseconds time) {
    int saved = depth;
    for (int i = 1; i < saved; i++) lock.unlock();
    waiting++;
    news.wait_for(lock, time);
    waiting--;
    for (int i = 1; i < saved; i++) lock.lock();
}

void wait_until(const char *call, cudaStream_t first, const std::function<bool()> &done) {
    cudaStream_t only = options().seed && dice() % 2 ? first : nullptr;
    Idle idle;
    while (!done()) {
        let_others();
        if (done()) break;
        if (step(only)) continue;
        if (idle.too_long() || (callers() <= 1 && !together()))
            fatal("deadlock: %s waits for what nobody brings%s", call, blocked().c_str());
        close_devices();
        rest(std::chrono::milliseconds(together() ? 1 : 20));
    }
    close_devices();
}

void finish_device(int device) {
    if (device < 0 || lost[device]) return;
    wait_until("freeing memory", nullptr, [=] {
        for (cudaStream_t s : streams)
            if (s->device == device && !s->queue.empty()) return false;
        return true;
    });
    for (cudaStream_t s : streams)
        if (s->device == device) after(s);
}

/* A few steps for those who only ask. They may give up by themselves; who asks for ever is told of the deadlock, unless
   it was made by a test. */
static void some_steps(const char *call) {
    static Idle idle;
    unsigned n = options().seed ? dice() % 4 ? dice() % 64 : 100000 : 100000;
    bool any = false;
    while (n-- && step(nullptr)) {
        any = true;
        let_others();
    }
    close_devices();
    if (any) return;
    bool faults = ranks_killed();
    for (int d = 0; d < MOST_DEVICES; d++) faults = faults || lost[d] || hung[d];
    if (idle.too_long() && !faults) fatal("deadlock: %s asks for what nobody brings%s", call, blocked().c_str());
    rest(std::chrono::microseconds(200));
}

struct KernelWork : Work {
    Kernel k;
    ~KernelWork() override { k.destroy(k.closure); }
    void run() override {
        if (!options().skip) run_kernel(k);
    }
};

/* Bytes of dynamic shared memory that a kernel was promised on a device, where it is more than it gets anyway. */
static const size_t usual_shared = 48 << 10;
static std::map<std::pair<const void *, int>, size_t> promised_shared;

/* Of the calling thread, above here. */
static bool on_stack(const void *at) {
    const char *here = static_cast<const char *>(__builtin_frame_address(0)), *p = static_cast<const char *>(at);
    return p > here && p < here + (64 << 10);
}

static std::set<std::pair<const void *, int>> loaded;

void load(const void *function, const char *name) {
    if (!function || !loaded.insert({function, device_now}).second) return;
    refuse_beside_exchanges(("loading kernel " + kernel_name(name)).c_str());
}

cudaError_t submit(const Kernel &k, cudaStream_t stream) {
    std::shared_ptr<KernelWork> work(new KernelWork());
    work->k = k;
    work->what = k.name;
    API("a kernel launch", cudaErrorLaunchFailure);
    uint64_t threads = (uint64_t)k.block.x * k.block.y * k.block.z;
    if (!threads || threads > 1024 || k.block.z > 64 || !k.grid.x || !k.grid.y || !k.grid.z || k.grid.x > 0x7fffffffu ||
        k.grid.y > 65535 || k.grid.z > 65535) {
        fprintf(stderr, "sim: note: kernel %s launched with grid (%u, %u, %u), block (%u, %u, %u)\n",
                kernel_name(k.name).c_str(), k.grid.x, k.grid.y, k.grid.z, k.block.x, k.block.y, k.block.z);
        return set_error(cudaErrorInvalidConfiguration);
    }
    if (k.shared > most_shared()) {
        fprintf(stderr, "sim: note: kernel %s wants %zu bytes of dynamic shared memory, there are %zu\n",
                kernel_name(k.name).c_str(), k.shared, most_shared());
        return set_error(cudaErrorInvalidValue);
    }
    if (k.shared > usual_shared && k.function && k.shared > promised_shared[{k.function, device_now}]) {
        fprintf(stderr,
                "sim: note: kernel %s wants %zu bytes of dynamic shared memory, which cudaFuncSetAttribute did not "
                "promise it on this device\n",
                kernel_name(k.name).c_str(), k.shared);
        return set_error(cudaErrorInvalidValue);
    }
    load(k.function, k.name);
    check_stream(stream, "a kernel launch");
    if (stream->device != device_now) return set_error(cudaErrorInvalidResourceHandle);
    for (size_t i = 0; i + sizeof(void *) <= k.bytes; i += sizeof(void *)) {
        void *word;
        memcpy(&word, static_cast<const char *>(k.closure) + i, sizeof word);
        if (host_memory() ? !options().stack && on_stack(word) : host_pointer(word))
            fatal("host pointer: %p is among the arguments of kernel %s, at byte %zu", word,
                  kernel_name(k.name).c_str(), i);
    }
    work->kernel = true;
    work->device = stream->device;
    report_launch({k.name, k.function, 0, 0, 0, 0, {k.grid.x, k.grid.y, k.grid.z}, {k.block.x, k.block.y, k.block.z},
                   k.shared});
    return enqueue(stream, work, "a kernel launch");
}

int report_leaks() {
    Entry entry;
    int n = memory_leaks() + blas_leaks() + nccl_leaks();
    auto leak = [&](const char *kind, long number) {
        fprintf(stderr, "sim: leak: %s %ld\n", kind, number);
        n++;
    };
    for (cudaStream_t s : streams) leak("stream", s->number);
    for (cudaEvent_t e : events) leak("event", e->number);
    for (cudaGraph_t g : graphs) leak("graph", g->number);
    for (cudaGraphExec_t p : programs) leak("executable graph", p->number);
    return n;
}
} // namespace mirt_sim

size_t mirt_sim::most_shared() {
    const int capability = options().capability;
    return (size_t)(capability >= 90 ? 227 : capability > 80 ? 99 : capability == 80 ? 163 : 64) << 10;
}
int mirt_sim::code_made_for() { return options().code ? options().code : options().capability; }

cudaError_t cudaGetDeviceCount(int *count) {
    API("cudaGetDeviceCount", cudaErrorInsufficientDriver);
    *count = 0;
    if (options().driver && options().driver < CUDART_VERSION / 1000 * 1000)
        return set_error(cudaErrorInsufficientDriver);
    *count = options().devices;
    return options().devices ? cudaSuccess : set_error(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
    API("cudaSetDevice", cudaErrorDevicesUnavailable);
    if (device < 0 || device >= options().devices) return set_error(cudaErrorInvalidDevice);
    device_now = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    API("cudaGetDevice", cudaErrorUnknown);
    *device = device_now;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    API("cudaGetDeviceProperties", cudaErrorUnknown);
    if (device < 0 || device >= options().devices) return set_error(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Simulated GPU %d", device);
    p->totalGlobalMem = options().memory;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = most_shared();
    p->sharedMemPerMultiprocessor = most_shared() + (options().capability < 80 ? 0 : 1 << 10);
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = options().capability / 10;
    p->minor = options().capability % 10;
    p->multiProcessorCount = 4;
    p->l2CacheSize = 1 << 20;
    p->memoryBusWidth = 5120;
    p->concurrentKernels = p->unifiedAddressing = p->canMapHostMemory = p->asyncEngineCount = 1;
    p->pciBusID = device + 1;
    p->uuid.bytes[0] = (char)(device + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
    API("cudaDeviceGetAttribute", cudaErrorUnknown);
    cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error) return error;
    switch ((int)attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrClockRate: *value = 1000000; break;
    case cudaDevAttrMemoryClockRate: *value = 1000000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrComputeMode: *value = cudaComputeModeDefault; break;
    case cudaDevAttrPciBusId: *value = p.pciBusID; break;
    case cudaDevAttrPciDeviceId: *value = 0; break;
    case cudaDevAttrPciDomainId: *value = 0; break;
    case cudaDevAttrAsyncEngineCount: *value = 1; break;
    case cudaDevAttrIntegrated: *value = 0; break;
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    case cudaDevAttrMemoryPoolsSupported: *value = 0; break;
    case cudaDevAttrConcurrentKernels: *value = 1; break;
    default: fatal("not simulated: cudaDeviceGetAttribute of attribute %d", (int)attribute);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    API("cudaDeviceGetPCIBusId", cudaErrorUnknown);
    if (device < 0 || device >= options().devices) return set_error(cudaErrorInvalidDevice);
    snprintf(text, (size_t)length, "0000:%02X:00.0", device + 1);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    API("cudaDriverGetVersion", cudaErrorUnknown);
    *version = options().driver ? (options().driver > 0 ? options().driver : 0) : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    API("cudaRuntimeGetVersion", cudaErrorUnknown);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError() {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

const char *cudaGetErrorName(cudaError_t error) {
    switch ((int)error) {
#define NAME(code) \
    case code: return #code;
        NAME(cudaSuccess)
        NAME(cudaErrorInvalidValue)
        NAME(cudaErrorMemoryAllocation)
        NAME(cudaErrorInitializationError)
        NAME(cudaErrorInvalidConfiguration)
        NAME(cudaErrorInsufficientDriver)
        NAME(cudaErrorNoDevice)
        NAME(cudaErrorInvalidDevice)
        NAME(cudaErrorDevicesUnavailable)
        NAME(cudaErrorNotReady)
        NAME(cudaErrorIllegalAddress)
        NAME(cudaErrorLaunchFailure)
        NAME(cudaErrorInvalidResourceHandle)
        NAME(cudaErrorPeerAccessUnsupported)
        NAME(cudaErrorPeerAccessAlreadyEnabled)
        NAME(cudaErrorHostMemoryAlreadyRegistered)
        NAME(cudaErrorStreamCaptureUnsupported)
        NAME(cudaErrorStreamCaptureInvalidated)
        NAME(cudaErrorStreamCaptureUnmatched)
        NAME(cudaErrorStreamCaptureUnjoined)
        NAME(cudaErrorStreamCaptureIsolation)
        NAME(cudaErrorStreamCaptureImplicit)
        NAME(cudaErrorStreamCaptureWrongThread)
        NAME(cudaErrorCapturedEvent)
        NAME(cudaErrorIllegalState)
        NAME(cudaErrorUnknown)
#undef NAME
    default: return "cudaError";
    }
}

const char *cudaGetErrorString(cudaError_t error) {
    switch ((int)error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorUnknown: return "unknown error";
    default: return cudaGetErrorName(error);
    }
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value) {
    API("cudaFuncSetAttribute", cudaErrorInvalidValue);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || (size_t)value > most_shared()) return set_error(cudaErrorInvalidValue);
    promised_shared[{function, device_now}] = (size_t)value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *facts, const void *function) {
    API("cudaFuncGetAttributes", cudaErrorInvalidDeviceFunction);
    *facts = {};
    load(function, nullptr);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    API("cudaDeviceSynchronize", cudaErrorLaunchFailure);
    if (refused_by_capture("cudaDeviceSynchronize")) return set_error(cudaErrorStreamCaptureUnsupported);
    finish_device(device_now);
    return cudaSuccess;
}

cudaError_t cudaDeviceReset() {
    FREEING();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    API("cudaStreamCreateWithFlags", cudaErrorUnknown);
    *stream = new CUstream_st();
    (*stream)->device = device_now;
    (*stream)->blocking = !(flags & cudaStreamNonBlocking);
    (*stream)->number = ++handles;
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    API("cudaDeviceGetStreamPriorityRange", cudaErrorUnknown);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    FREEING();
    check_stream(stream, "cudaStreamDestroy");
    if (stream->capture) stream->capture->invalid = true;
    if (lost[stream->device]) stream->queue.clear();
    wait_until("cudaStreamDestroy", stream, [=] { return stream->queue.empty(); });
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    for (Lane *lane : stream->lanes) drop_lane(lane);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    API("cudaStreamSynchronize", cudaErrorLaunchFailure);
    check_stream(stream, "cudaStreamSynchronize");
    if (stream->capture) {
        stream->capture->invalid = true;
        return set_error(cudaErrorStreamCaptureUnsupported);
    }
    if (refused_by_capture("cudaStreamSynchronize")) return set_error(cudaErrorStreamCaptureUnsupported);
    wait_until("cudaStreamSynchronize", stream, [=] { return stream->queue.empty() || lost[stream->device]; });
    after(stream);
    return set_error((cudaError_t)lost[stream->device]);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    API("cudaStreamQuery", cudaErrorLaunchFailure);
    check_stream(stream, "cudaStreamQuery");
    if (stream->capture) {
        stream->capture->invalid = true;
        return set_error(cudaErrorStreamCaptureUnsupported);
    }
    if (refused_by_capture("cudaStreamQuery")) return set_error(cudaErrorStreamCaptureUnsupported);
    if (!stream->queue.empty()) some_steps("cudaStreamQuery");
    if (lost[stream->device]) return set_error((cudaError_t)lost[stream->device]);
    if (!stream->queue.empty()) return cudaErrorNotReady;
    after(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
    API("cudaStreamWaitEvent", cudaErrorUnknown);
    check_stream(stream, "cudaStreamWaitEvent");
    check_event(event, "cudaStreamWaitEvent");
    EventState *e = event->state.get();
    if (e->capture && std::find(captures.begin(), captures.end(), e->capture) != captures.end()) {
        if (stream->capture && stream->capture != e->capture) {
            stream->capture->invalid = e->capture->invalid = true;
            return set_error(cudaErrorStreamCaptureIsolation);
        }
        if (!stream->capture) {
            stream->capture = e->capture;
            stream->tails.clear();
            e->capture->members.insert(stream);
        }
        for (int t : e->tails)
            if (std::find(stream->tails.begin(), stream->tails.end(), t) == stream->tails.end())
                stream->tails.push_back(t);
        return cudaSuccess;
    }
    if (!e->recorded)
        fatal("event: stream %ld of device %d waits for event %ld, which was never recorded", stream->number,
              stream->device, event->number);
    if (stream->capture) {
        stream->capture->invalid = true;
        return set_error(cudaErrorStreamCaptureIsolation);
    }
    Op op;
    op.kind = Op::WAIT;
    op.event = event->state;
    op.number = e->recorded;
    add(stream, op);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    API("cudaEventCreateWithFlags", cudaErrorUnknown);
    *event = new CUevent_st();
    (*event)->state.reset(new EventState());
    (*event)->state->timing = !(flags & cudaEventDisableTiming);
    (*event)->state->device = device_now;
    (*event)->number = ++handles;
    events.insert(*event);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    FREEING();
    check_event(event, "cudaEventDestroy");
    events.erase(event);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    API("cudaEventRecord", cudaErrorUnknown);
    check_stream(stream, "cudaEventRecord");
    check_event(event, "cudaEventRecord");
    if (event->state->device != stream->device) return set_error(cudaErrorInvalidResourceHandle);
    if (stream->capture) {
        event->state->capture = stream->capture;
        event->state->tails = stream->tails;
        return cudaSuccess;
    }
    event->state->capture.reset();
    Op op;
    op.kind = Op::RECORD;
    op.event = event->state;
    op.number = ++event->state->recorded;
    add(stream, op);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    API("cudaEventQuery", cudaErrorLaunchFailure);
    check_event(event, "cudaEventQuery");
    EventState *e = event->state.get();
    if (e->capture) return set_error(cudaErrorCapturedEvent);
    if (refused_by_capture("cudaEventQuery")) return set_error(cudaErrorStreamCaptureUnsupported);
    if (e->done < e->recorded) some_steps("cudaEventQuery");
    if (lost[e->device]) return set_error((cudaError_t)lost[e->device]);
    if (e->done < e->recorded) return cudaErrorNotReady;
    after(e);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    API("cudaEventSynchronize", cudaErrorLaunchFailure);
    check_event(event, "cudaEventSynchronize");
    std::shared_ptr<EventState> e = event->state;
    if (e->capture) return set_error(cudaErrorCapturedEvent);
    if (refused_by_capture("cudaEventSynchronize")) return set_error(cudaErrorStreamCaptureUnsupported);
    uint64_t number = e->recorded;
    wait_until("cudaEventSynchronize", nullptr, [=] { return e->done >= number || lost[e->device]; });
    after(e.get());
    return set_error((cudaError_t)lost[e->device]);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    API("cudaEventElapsedTime", cudaErrorUnknown);
    check_event(start, "cudaEventElapsedTime");
    check_event(end, "cudaEventElapsedTime");
    EventState *a = start->state.get(), *b = end->state.get();
    if (!a->timing || !b->timing || !a->recorded || !b->recorded || a->device != b->device)
        return set_error(cudaErrorInvalidResourceHandle);
    if (a->done < a->recorded || b->done < b->recorded) return cudaErrorNotReady;
    *ms = (float)((b->time - a->time) * 1e3);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    API("cudaStreamBeginCapture", cudaErrorUnknown);
    check_stream(stream, "cudaStreamBeginCapture");
    if (stream->capture) return set_error(cudaErrorIllegalState);
    std::shared_ptr<Capture> c(new Capture());
    c->origin = stream;
    c->members.insert(stream);
    c->thread = std::this_thread::get_id();
    c->mode = mode;
    captures.push_back(c);
    stream->capture = c;
    stream->tails.clear();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    API("cudaStreamEndCapture", cudaErrorUnknown);
    check_stream(stream, "cudaStreamEndCapture");
    *graph = nullptr;
    std::shared_ptr<Capture> c = stream->capture;
    if (!c) return set_error(cudaErrorIllegalState);
    if (c->origin != stream) {
        c->invalid = true;
        return set_error(cudaErrorStreamCaptureUnmatched);
    }
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
        return set_error(cudaErrorStreamCaptureWrongThread);
    /* All that was captured must lead to the end of the first stream. Edges go from lower to higher nodes. */
    std::vector<bool> leads(c->nodes.size());
    for (int t : stream->tails) leads[(size_t)t] = true;
    bool joined = true;
    for (size_t i = c->nodes.size(); i--;) {
        for (int n : c->nodes[i].next) leads[i] = leads[i] || leads[(size_t)n];
        if (!leads[i]) joined = false;
    }
    for (cudaStream_t s : streams)
        if (s->capture == c) {
            s->capture.reset();
            s->tails.clear();
        }
    captures.erase(std::find(captures.begin(), captures.end(), c));
    if (c->invalid) return set_error(cudaErrorStreamCaptureInvalidated);
    if (!joined) return set_error(cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st();
    (*graph)->nodes = c->nodes;
    (*graph)->number = ++handles;
    graphs.insert(*graph);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    API("cudaStreamIsCapturing", cudaErrorUnknown);
    check_stream(stream, "cudaStreamIsCapturing");
    *status = !stream->capture          ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* A node continues the lane of a predecessor that no other node continues; all other nodes begin a new lane. */
static void choose_lanes(std::vector<Node> *nodes) {
    const size_t none = ~(size_t)0;
    size_t lanes = 0;
    for (Node &node : *nodes) node.lane = none;
    for (Node &node : *nodes) {
        if (node.lane == none) node.lane = lanes++;
        for (int n : node.next)
            if ((*nodes)[(size_t)n].lane == none) {
                (*nodes)[(size_t)n].lane = node.lane;
                break;
            }
    }
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long) {
    API("cudaGraphInstantiate", cudaErrorUnknown);
    if (!graphs.count(graph)) fatal("wrong handle: cudaGraphInstantiate of a graph that was destroyed, or never was");
    *out = new CUgraphExec_st();
    (*out)->program.reset(new Program());
    (*out)->program->nodes = graph->nodes;
    choose_lanes(&(*out)->program->nodes);
    (*out)->number = ++handles;
    programs.insert(*out);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t program, cudaStream_t stream) {
    API("cudaGraphUpload", cudaErrorUnknown);
    check_stream(stream, "cudaGraphUpload");
    if (!programs.count(program)) fatal("wrong handle: cudaGraphUpload of a graph that was destroyed, or never was");
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    API("cudaGraphGetNodes", cudaErrorUnknown);
    if (nodes) fatal("not simulated: cudaGraphGetNodes but for their number");
    *count = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t program, cudaStream_t stream) {
    API("cudaGraphLaunch", cudaErrorLaunchFailure);
    check_stream(stream, "cudaGraphLaunch");
    if (!programs.count(program)) fatal("wrong handle: cudaGraphLaunch of a graph that was destroyed, or never was");
    if (stream->capture) {
        stream->capture->invalid = true;
        return set_error(cudaErrorStreamCaptureUnsupported);
    }
    Op op;
    op.kind = Op::GRAPH;
    op.program = program->program;
    add(stream, op);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    FREEING();
    if (!graphs.erase(graph)) fatal("wrong handle: cudaGraphDestroy of a graph that was destroyed, or never was");
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t program) {
    FREEING();
    if (!programs.erase(program))
        fatal("wrong handle: cudaGraphExecDestroy of a graph that was destroyed, or never was");
    delete program;
    return cudaSuccess;
}

namespace {
struct CopyWork : Work {
    void *to;
    const void *from;
    size_t bytes;
    std::vector<char> staged;
    void run() override {
        check_range("a copy", to, bytes);
        check_range("a copy", from, bytes);
        if (staged.empty()) reads(from, bytes);
        writes(to, bytes);
        memmove(to, staged.empty() ? from : staged.data(), bytes);
    }
};
struct FillWork : Work {
    void *to;
    int value;
    size_t bytes;
    void run() override {
        check_range("cudaMemsetAsync", to, bytes);
        if (options().skip && bytes > (size_t)16 << 20) return;
        writes(to, bytes);
        memset(to, value, bytes);
    }
};
} // namespace

static void check_direction(const char *call, const void *to, const void *from, cudaMemcpyKind kind) {
    bool to_device = device_of_address(to) >= 0, from_device = device_of_address(from) >= 0;
    bool right = kind == cudaMemcpyDefault || host_memory() ||
                 (to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
                  from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
    if (!right)
        fatal("copy direction: %s from %s to %s, but its kind says otherwise (%d)", call,
              from_device ? "a device" : "the host", to_device ? "a device" : "the host", (int)kind);
}

static std::shared_ptr<CopyWork> copy_work(const char *call, void *to, const void *from, size_t bytes, int device) {
    int a = device_of_address(to), b = device_of_address(from);
    check_range(call, to, bytes);
    check_range(call, from, bytes);
    std::shared_ptr<CopyWork> work(new CopyWork());
    work->what = call;
    work->device = device;
    work->mask = (a >= 0 ? 1u << a : 0) | (b >= 0 ? 1u << b : 0);
    work->to = to;
    work->from = from;
    work->bytes = bytes;
    return work;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    API("cudaMemcpyAsync", cudaErrorUnknown);
    check_stream(stream, "cudaMemcpyAsync");
    check_direction("cudaMemcpyAsync", to, from, kind);
    if (!bytes) return cudaSuccess;
    std::shared_ptr<CopyWork> work = copy_work("cudaMemcpyAsync", to, from, bytes, stream->device);
    bool as_device = host_memory() && kind == cudaMemcpyDeviceToDevice;
    bool to_host = device_of_address(to) < 0 && !as_device, from_host = device_of_address(from) < 0 && !as_device;
    /* Memory that is not pinned goes through a buffer: read before the call returns, or written. */
    if (from_host && !pinned_range(from, bytes) && !stream->capture)
        work->staged.assign(static_cast<const char *>(from), static_cast<const char *>(from) + bytes);
    cudaError_t error = enqueue(stream, work, "cudaMemcpyAsync");
    if (!error && to_host && !pinned_range(to, bytes) && !stream->capture) {
        wait_until("cudaMemcpyAsync", stream, [=] { return stream->queue.empty() || lost[stream->device]; });
        after(stream);
    }
    return error;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream) {
    API("cudaMemcpyPeerAsync", cudaErrorUnknown);
    check_stream(stream, "cudaMemcpyPeerAsync");
    if (!bytes) return cudaSuccess;
    if (device_of_address(to) != to_device || device_of_address(from) != from_device)
        fatal("memory of another device: cudaMemcpyPeerAsync from device %d to %d, but from %s to %s", from_device,
              to_device, describe(from).c_str(), describe(to).c_str());
    return enqueue(stream, copy_work("cudaMemcpyPeerAsync", to, from, bytes, stream->device), "cudaMemcpyPeerAsync");
}

static std::shared_ptr<FillWork> fill_work(const char *call, void *to, int value, size_t bytes, int device) {
    if (device_of_address(to) < 0 && !host_memory()) fatal("wrong pointer: %s of %s", call, describe(to).c_str());
    check_range(call, to, bytes);
    std::shared_ptr<FillWork> work(new FillWork());
    work->what = call;
    work->device = device;
    work->mask = device_of_address(to) < 0 ? 0 : 1u << device_of_address(to);
    work->to = to;
    work->value = value;
    work->bytes = bytes;
    return work;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    API("cudaMemsetAsync", cudaErrorUnknown);
    check_stream(stream, "cudaMemsetAsync");
    if (!bytes) return cudaSuccess;
    return enqueue(stream, fill_work("cudaMemsetAsync", to, value, bytes, stream->device), "cudaMemsetAsync");
}

/* The default stream waits for the blocking streams of its device, and for no others. */
static cudaError_t run_on_default(const char *call, Work *work) {
    if (refused_by_capture(call)) return set_error(cudaErrorStreamCaptureImplicit);
    int device = device_now;
    wait_until(call, nullptr, [=] {
        for (cudaStream_t s : streams)
            if (s->device == device && s->blocking && !s->queue.empty()) return false;
        return true;
    });
    run_now(work);
    close_devices();
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    API("cudaMemcpy", cudaErrorUnknown);
    check_direction("cudaMemcpy", to, from, kind);
    if (!bytes) return cudaSuccess;
    return run_on_default("cudaMemcpy", copy_work("cudaMemcpy", to, from, bytes, device_now).get());
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    API("cudaMemset", cudaErrorUnknown);
    if (!bytes) return cudaSuccess;
    return run_on_default("cudaMemset", fill_work("cudaMemset", to, value, bytes, device_now).get());
}
