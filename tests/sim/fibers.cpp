/* Runs a kernel block after block, its threads as function calls on fibers. The threads of a block run
 * one after another on one fiber until one must wait for others; that one keeps the fiber, and the next thread gets
 * another. So kernels whose threads do not wait never switch. */
#include "sim_internal.h"
#include <atomic>
#include <cfenv>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#ifdef MIRT_SIM_TSAN
/* Every CUDA thread has a fiber of its own, and the sanitizer is told of barriers: it then finds what a barrier
   lacks. */
extern "C" {
void *__tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void *);
void __tsan_switch_to_fiber(void *, unsigned);
void *__tsan_get_current_fiber();
void __tsan_acquire(void *);
void __tsan_release(void *);
void __tsan_read_range(void *, unsigned long);
void __tsan_write_range(void *, unsigned long);
}
/* Faults are reported by the signal handler, and then the process ends. */
extern "C" const char *__tsan_default_options() { return "report_signal_unsafe=0:atexit_sleep_ms=0"; }
#define TSAN(x) x
static const bool own_fibers = true;
#else
#define TSAN(x)
static const bool own_fibers = false;
#endif
#ifdef MIRT_SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define ASAN(x) x
#else
#define ASAN(x)
#endif

namespace mirt_sim {

__thread State state = {{0, 0, 0}, {0, 0, 0}, {1, 1, 1}, {1, 1, 1}, 0};
__thread Lane *lane_now;
__thread Running running = {"host code", -1, false};

namespace {
#ifdef MIRT_SIM_ASAN
const size_t stack_bytes = 512 << 10;
#else
const size_t stack_bytes = 128 << 10;
#endif
const size_t page = 4096, shared_bytes = 256 << 10, static_limit = 48 << 10, canary_bytes = 64;
const unsigned warp = 32;

struct Fiber {
    void *sp, *stack, *tsan, *fake;
    unsigned thread, index;
};

/* Lanes that meet: all of a mask, the ended ones apart. Slots are double, since the slowest lane still reads while the
   first writes. */
struct Group {
    unsigned mask, arrived, generation, present[2];
    Meeting kind;
    void (*combine)(char *, unsigned);
    unsigned waiting[32], waits;
    alignas(16) char slots[2][32 * SLOT];
};
struct Warp {
    unsigned alive;
    unsigned groups;
    std::vector<std::unique_ptr<Group>> group;
};
struct Copies {
    std::vector<Copy> copies;
    std::vector<size_t> ends; /* of the committed groups */
    size_t done;
};
struct Array {
    char *at;
    size_t bytes;
    const char *name;
};
} // namespace

struct Exec {
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<unsigned> idle;
    std::vector<uint3> tids;
    dim3 shape = dim3(0, 0, 0);
    std::vector<Warp> warps;
    std::vector<Copies> copies;
    std::vector<unsigned> ready, waiting; /* fibers; ready is a ring */
    unsigned ready_at, ready_count;
    unsigned n, started, alive, step, next;
    bool ready_first;
    bool newest_first; /* a warp whose lanes met runs on, up to the next barrier, before others do */
    unsigned arrived, generation, counts[2], alls[2];
    Fiber host;
    Fiber *now;
    const Kernel *kernel;
    uint64_t block = 0, launches = 0;
    char *shared = nullptr;
    size_t shared_top, static_bytes;
    std::vector<Array> arrays;
    std::vector<void *> garbage;
    uint64_t seed = 0;
    void *host_bottom;
    size_t host_size;
    ~Exec();
};

/* Made by the OS thread's first kernel, and deleted with the thread. */
static thread_local std::unique_ptr<Exec> exec_owner;
static __thread Exec *exec;

extern "C" void mirt_sim_swap(void **save, void *to);
extern "C" void mirt_sim_fiber();
#if defined(__x86_64__)
asm(".text\n.globl mirt_sim_swap\n.type mirt_sim_swap,@function\nmirt_sim_swap:\n"
    " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    " mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
    ".size mirt_sim_swap,.-mirt_sim_swap\n");
static void *first_frame(char *top) {
    void **sp = reinterpret_cast<void **>(top);
    *--sp = nullptr;
    *--sp = reinterpret_cast<void *>(&mirt_sim_fiber);
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    return sp;
}
#elif defined(__aarch64__)
asm(".text\n.globl mirt_sim_swap\n.type mirt_sim_swap,%function\nmirt_sim_swap:\n"
    " sub sp,sp,#160\n"
    " stp x19,x20,[sp]\n stp x21,x22,[sp,#16]\n stp x23,x24,[sp,#32]\n stp x25,x26,[sp,#48]\n stp x27,x28,[sp,#64]\n "
    "stp x29,x30,[sp,#80]\n"
    " stp d8,d9,[sp,#96]\n stp d10,d11,[sp,#112]\n stp d12,d13,[sp,#128]\n stp d14,d15,[sp,#144]\n"
    " mov x2,sp\n str x2,[x0]\n mov sp,x1\n"
    " ldp x19,x20,[sp]\n ldp x21,x22,[sp,#16]\n ldp x23,x24,[sp,#32]\n ldp x25,x26,[sp,#48]\n ldp x27,x28,[sp,#64]\n "
    "ldp x29,x30,[sp,#80]\n"
    " ldp d8,d9,[sp,#96]\n ldp d10,d11,[sp,#112]\n ldp d12,d13,[sp,#128]\n ldp d14,d15,[sp,#144]\n"
    " add sp,sp,#160\n ret\n"
    ".size mirt_sim_swap,.-mirt_sim_swap\n");
static void *first_frame(char *top) {
    void **sp = reinterpret_cast<void **>(top) - 20;
    memset(sp, 0, 160);
    sp[11] = reinterpret_cast<void *>(&mirt_sim_fiber);
    return sp;
}
#else
#error "the simulator switches fibers on x86-64 and arm64"
#endif

Exec::~Exec() {
    for (auto &f : fibers) {
        TSAN(__tsan_destroy_fiber(f->tsan);)
        ASAN(__asan_unpoison_memory_region(f->stack, stack_bytes);)
        munmap(f->stack, stack_bytes);
    }
    ASAN(__asan_unpoison_memory_region(shared, shared_bytes);)
    if (shared) munmap(shared, shared_bytes);
}

/* memcpy and memset, which the thread sanitizer would see, by hand. */
static void copy_bytes(char *to, const void *from, unsigned bytes) {
#ifdef MIRT_SIM_TSAN
    for (unsigned i = 0; i < bytes; i++) {
        to[i] = static_cast<const char *>(from)[i];
        asm volatile("" : : : "memory");
    }
#else
    memcpy(to, from, bytes);
#endif
}

static void fill_bytes(char *to, int value, size_t bytes) {
#ifdef MIRT_SIM_TSAN
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (char)value;
        asm volatile("" : : : "memory");
    }
#else
    memset(to, value, bytes);
#endif
}

static Fiber *make_fiber(Exec *e) {
    std::unique_ptr<Fiber> f(new Fiber());
    f->index = (unsigned)e->fibers.size();
    f->stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED) fatal("out of memory: no stack for a fiber");
    mprotect(f->stack, page, PROT_NONE);
    /* Tops at different places of their pages: all at one would share a few lines of the cache. */
    f->sp = first_frame(static_cast<char *>(f->stack) + stack_bytes - f->index * 5 % 48 * 64 - 64);
    TSAN(f->tsan = __tsan_create_fiber(0);)
    e->fibers.push_back(std::move(f));
    return e->fibers.back().get();
}

/* Not inlined: a fiber that slept may wake up in another OS thread, where state is elsewhere. */
__attribute__((noinline)) static void set_thread(const Exec *e, unsigned thread) {
    state.tid = e->tids[thread];
    state.lin = thread;
}

static void switch_to(Exec *e, Fiber *to) {
    Fiber *from = e->now;
    if (from == to) return;
    e->now = to;
    access_stack(to->stack, stack_bytes);
    ASAN(bool host = to == &e->host;)
    ASAN(__sanitizer_start_switch_fiber(&from->fake, host ? e->host_bottom : to->stack,
                                        host ? e->host_size : stack_bytes);)
    TSAN(__tsan_switch_to_fiber(to->tsan, 1);)
    mirt_sim_swap(&from->sp, to->sp);
    ASAN(__sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);)
}

static void push_ready(Exec *e, unsigned fiber) {
    unsigned at = e->ready_at + e->ready_count++;
    e->ready[at & (unsigned)(e->ready.size() - 1)] = fiber;
}

static unsigned pop_ready(Exec *e) {
    e->ready_count--;
    unsigned at = e->newest_first ? e->ready_at + e->ready_count : e->ready_at++;
    return e->ready[at & (unsigned)(e->ready.size() - 1)];
}

static const char *meeting_name(Meeting kind) {
    static const char *const names[] = {
        "__syncwarp", "a shuffle", "a vote", "a reduction", "a matrix product", "ldmatrix"
    };
    return names[kind];
}

[[noreturn]] static void deadlock(Exec *e) {
    std::string warps;
    char text[160];
    for (size_t w = 0; w < e->warps.size() && warps.size() < 300; w++)
        for (unsigned i = 0; i < e->warps[w].groups; i++) {
            const Group *g = e->warps[w].group[i].get();
            if (!g->arrived) continue;
            snprintf(text, sizeof text, "; warp %u: lanes 0x%08x wait in %s of mask 0x%08x", (unsigned)w, g->arrived,
                     meeting_name(g->kind), g->mask);
            warps += text;
        }
    fatal("barrier: threads wait for each other: %u of %u wait in __syncthreads(), %u have ended%s", e->arrived, e->n,
          e->n - e->alive, warps.c_str());
}

/* To the next thread that can continue or has not begun; to the host when all have ended. */
static void leave(Exec *e) {
    if (e->ready_count && (e->ready_first || e->started == e->n)) return switch_to(e, e->fibers[pop_ready(e)].get());
    if (e->started < e->n) {
        unsigned index;
        if (own_fibers) index = e->next;
        else {
            if (e->idle.empty()) e->idle.push_back(make_fiber(e)->index);
            index = e->idle.back();
            e->idle.pop_back();
        }
        return switch_to(e, e->fibers[index].get());
    }
    if (e->alive) deadlock(e);
    switch_to(e, &e->host);
}

static void wait_here(Exec *e) {
    unsigned thread = state.lin;
    leave(e);
    set_thread(e, thread);
}

static void complete_barrier(Exec *e) {
    e->arrived = 0;
    unsigned next = ++e->generation & 1;
    e->counts[next] = 0;
    e->alls[next] = 1;
    for (unsigned fiber : e->waiting) push_ready(e, fiber);
    e->waiting.clear();
}

int barrier(int value, int *any, int *all) {
    Exec *e = exec;
    if (!e || !running.kernel) fatal("barrier: __syncthreads() outside of a kernel");
    unsigned g = e->generation & 1;
    e->counts[g] += value != 0;
    e->alls[g] &= value != 0;
    TSAN(__tsan_release(&e->counts[g]);)
    if (++e->arrived == e->alive) complete_barrier(e);
    else {
        e->waiting.push_back(e->now->index);
        wait_here(e);
    }
    TSAN(__tsan_acquire(&e->counts[g]);)
    access_meeting(true);
    if (any) *any = e->counts[g] != 0;
    if (all) *all = e->alls[g] != 0;
    return (int)e->counts[g];
}

static void complete_group(Exec *e, Group *g) {
    unsigned at = g->generation++ & 1;
    g->present[at] = g->arrived;
    if (g->combine) g->combine(g->slots[at], g->arrived);
    g->arrived = 0;
    for (unsigned i = 0; i < g->waits; i++) push_ready(e, g->waiting[i]);
    g->waits = 0;
}

char *meet(unsigned mask, Meeting kind, const void *in, unsigned bytes, void (*combine)(char *, unsigned),
           unsigned *present) {
    Exec *e = exec;
    if (!e || !running.kernel) fatal("warp: %s outside of a kernel", meeting_name(kind));
    unsigned l = state.lin % warp;
    Warp *w = &e->warps[state.lin / warp];
    if (!(mask >> l & 1))
        fatal("warp: a thread calls %s with a mask, 0x%08x, that leaves itself out", meeting_name(kind), mask);
    Group *g = nullptr;
    for (unsigned i = 0; i < w->groups && !g; i++)
        if (w->group[i]->mask == mask) g = w->group[i].get();
    if (!g) {
        if (w->groups == w->group.size()) w->group.emplace_back(new Group());
        g = w->group[w->groups++].get();
        g->mask = mask;
        g->arrived = g->generation = g->waits = 0;
    }
    unsigned at = g->generation & 1;
    if (!g->arrived) g->kind = kind;
    else if (g->kind != kind)
        fatal("warp: lanes of one mask, 0x%08x, are in different calls: %s and %s", mask, meeting_name(g->kind),
              meeting_name(kind));
    copy_bytes(g->slots[at] + SLOT * l, in, bytes);
    g->combine = combine;
    g->arrived |= 1u << l;
    TSAN(__tsan_release(&g->present[at]);)
    if (g->arrived == (mask & w->alive)) complete_group(e, g);
    else {
        g->waiting[g->waits++] = e->now->index;
        wait_here(e);
    }
    TSAN(__tsan_acquire(&g->present[at]);)
    access_meeting(false);
    if (present) *present = g->present[at];
    return g->slots[at];
}

static void end_thread(Exec *e, unsigned thread) {
    Warp *w = &e->warps[thread / warp];
    w->alive &= ~(1u << thread % warp);
    for (unsigned i = 0; i < w->groups; i++) {
        Group *g = w->group[i].get();
        if (g->arrived && g->arrived == (g->mask & w->alive)) complete_group(e, g);
    }
    if (--e->alive && e->arrived == e->alive) complete_barrier(e);
}

extern "C" void mirt_sim_fiber() {
    Exec *e = exec;
    Fiber *self = e->now;
    ASAN(__sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);)
    for (;;) {
        while (e->started < e->n) {
            unsigned thread = e->next;
            e->started++;
            e->next = e->next + e->step < e->n ? e->next + e->step : e->next + e->step - e->n;
            set_thread(e, thread);
            TSAN(__tsan_acquire(&e->started);)
            e->kernel->call(e->kernel->closure);
            TSAN(__tsan_release(&e->alive);)
            end_thread(e, thread);
            if (own_fibers) break;
        }
        if (!own_fibers) e->idle.push_back(self->index);
        leave(e);
    }
}

static unsigned gcd(unsigned a, unsigned b) { return b ? gcd(b, a % b) : a; }

static unsigned dice(Exec *e) {
    e->seed = e->seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(e->seed >> 33);
}

/* Threads begin in another order in each block: every step-th of a round, from somewhere. */
static void choose_order(Exec *e) {
    e->step = 1;
    e->next = 0;
    e->ready_first = e->newest_first = false;
    if (!options().seed) return;
    unsigned roll = dice(e);
    e->ready_first = roll & 1;
    e->newest_first = roll >> 21 & 1;
    e->next = (roll >> 1) % e->n;
    unsigned step = (roll >> 11) % e->n;
    if (roll & 2) step = roll & 4 ? e->n - 1 : 1;
    if (e->n > 1 && gcd(step, e->n) == 1) e->step = step;
}

static char *array_room(Exec *e, size_t bytes, size_t align, const char *name) {
    size_t at = (e->shared_top + align - 1) / align * align;
    if (at + bytes + canary_bytes > shared_bytes)
        fatal("shared memory: '%s' does not fit: %zu bytes are taken", name, e->shared_top);
#ifdef MIRT_SIM_TSAN
    /* Fresh memory of the lane's own, freed after the launch: else what two blocks do would be a race to the
       sanitizer. */
    __tsan_switch_to_fiber(e->host.tsan, 1);
    char *p = static_cast<char *>(aligned_alloc(128, (bytes + canary_bytes + 127) / 128 * 128));
    if (!p) fatal("out of memory: no shared memory");
    e->garbage.push_back(p);
    __tsan_release(&e->garbage);
    if (e->now != &e->host) __tsan_switch_to_fiber(e->now->tsan, 1);
#else
    char *p = e->shared + at;
#endif
    ASAN(__asan_unpoison_memory_region(p, bytes);)
    fill_bytes(p, 0xFF, bytes);
#ifndef MIRT_SIM_ASAN
    fill_bytes(p + bytes, 0xC5, canary_bytes);
#endif
    e->shared_top = at + bytes + canary_bytes;
    Array array = {p, bytes, name};
    e->arrays.push_back(array);
    return p;
}

void *shared_array(Site *site, size_t bytes, size_t align, const char *name) {
    Exec *e = exec;
    TSAN(if (site->block == e->block) __tsan_acquire(&e->garbage);)
    if (site->block == e->block) return site->at;
    e->static_bytes += bytes;
    if (e->static_bytes > static_limit)
        fatal("shared memory: static arrays up to '%s' are %zu bytes, more than 48 KiB", name, e->static_bytes);
    if (e->static_bytes + e->kernel->shared > most_shared())
        fatal("shared memory: arrays up to '%s' and what the launch asks for are more than %zu bytes", name,
              most_shared());
    site->at = array_room(e, bytes, align < 16 ? 16 : align, name);
    site->block = e->block;
    TSAN(__tsan_acquire(&e->garbage);)
    return site->at;
}

void *dynamic_shared(size_t align) {
    Exec *e = exec;
    if (!e->kernel->shared) fatal("shared memory: the kernel uses dynamic shared memory, and was launched with none");
    (void)align;
    TSAN(__tsan_acquire(&e->garbage);)
    return e->arrays[0].at;
}

static void check_row(const void *row) {
    const Exec *e = exec;
    const char *p = static_cast<const char *>(row);
    if (reinterpret_cast<uintptr_t>(p) % 16) fatal("shared memory: a row at an address that is not a multiple of 16");
    for (const Array &a : e->arrays)
        if (p >= a.at && p + 16 <= a.at + a.bytes) return;
    fatal("shared memory: a row that is not in shared memory");
}

const char *shared_row(const void *row) {
    check_row(row);
    access_row(row, __builtin_return_address(0));
    return static_cast<const char *>(row);
}

static void need_capability(const char *what, int least = 80) {
    if (options().capability < least) fatal("instruction: %s on a device of capability %d", what, options().capability);
}

bool copy_async(void *to, const void *from, bool valid) {
    Exec *e = exec;
    if (reinterpret_cast<uintptr_t>(to) % 16 || (valid && reinterpret_cast<uintptr_t>(from) % 16))
        fatal("cp.async: an address is not a multiple of 16: to %p, from %p", to, from);
    check_row(to);
    access_copy(to, valid ? from : nullptr, __builtin_return_address(0));
    if (options().capability < 80) return false;
    Copy copy = {to, valid ? from : nullptr};
    e->copies[state.lin].copies.push_back(copy);
    return true;
}

void copy_commit() {
    Copies *c = &exec->copies[state.lin];
    c->ends.push_back(c->copies.size());
}

bool copy_due(unsigned n, Copy *copy) {
    Copies *c = &exec->copies[state.lin];
    if (c->ends.size() <= n) return false;
    size_t end = c->ends[c->ends.size() - 1 - n];
    if (c->done >= end) return false;
    *copy = c->copies[c->done++];
    if (c->done == c->copies.size() && c->done == c->ends.back()) {
        /* All there: the next group begins a new list. What waits for less finds nothing due. */
        c->copies.clear();
        c->ends.clear();
        c->done = 0;
    }
    return true;
}

static void begin_block(Exec *e) {
    static std::atomic<uint64_t> blocks;
    e->block = ++blocks;
    e->started = 0;
    e->alive = e->n;
    e->arrived = 0;
    e->counts[e->generation & 1] = 0;
    e->alls[e->generation & 1] = 1;
    e->ready_at = e->ready_count = 0;
    for (unsigned w = 0; w < e->warps.size(); w++) {
        unsigned lanes = e->n - w * warp < warp ? e->n - w * warp : warp;
        e->warps[w].alive = lanes == warp ? ~0u : (1u << lanes) - 1;
        e->warps[w].groups = 0;
    }
    for (auto &c : e->copies) {
        if (c.copies.empty() && c.ends.empty()) continue;
        c.copies.clear();
        c.ends.clear();
        c.done = 0;
    }
    ASAN(__asan_poison_memory_region(e->shared, shared_bytes);)
    e->shared_top = e->static_bytes = 0;
    e->arrays.clear();
    if (e->kernel->shared) array_room(e, e->kernel->shared, 128, "dynamic");
    choose_order(e);
    access_block();
}

static void check_arrays(const Exec *e) {
#ifndef MIRT_SIM_ASAN
    for (const Array &a : e->arrays)
        for (size_t i = 0; i < canary_bytes; i++)
            if ((unsigned char)a.at[a.bytes + i] != 0xC5)
                fatal("shared memory: written beyond array '%s' of %zu bytes, at byte %zu", a.name, a.bytes,
                      a.bytes + i);
#else
    (void)e;
#endif
}

static std::unique_ptr<Exec> make_exec() {
    std::unique_ptr<Exec> e(new Exec());
    if (!own_fibers) {
        e->shared = static_cast<char *>(
            mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (e->shared == MAP_FAILED) fatal("out of memory: no shared memory");
    }
    pthread_attr_t attr;
    if (!pthread_getattr_np(pthread_self(), &attr)) {
        pthread_attr_getstack(&attr, &e->host_bottom, &e->host_size);
        pthread_attr_destroy(&attr);
    }
    guard_thread();
    return e;
}

#ifdef MIRT_SIM_TSAN
/* Fibers of a lane are its own: what they did is in its order. */
struct Lane {
    void *tsan;
    std::unique_ptr<Exec> exec;
};

/* Lanes know nothing of what happened before they began, and are made as part of a thread that knows nothing. */
Lane *make_lane() {
    static void *nobody;
    void *self = __tsan_get_current_fiber();
    if (!nobody) nobody = __tsan_create_fiber(0);
    Lane *lane = new Lane();
    __tsan_switch_to_fiber(nobody, 1);
    lane->tsan = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(self, 1);
    return lane;
}

void drop_lane(Lane *lane) {
    __tsan_destroy_fiber(lane->tsan);
    delete lane;
}

void on_lane(Lane *lane, const std::function<void()> &run) {
    if (!lane) return run();
    /* A thread's own memory, where kernels find their numbers, was made before it runs anybody's work. */
    static thread_local bool made;
    if (!made) __tsan_release(&made);
    made = true;
    void *self = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(lane->tsan, 1);
    __tsan_acquire(&made);
    run();
    __tsan_switch_to_fiber(self, 1);
}

void after(const void *what) { __tsan_acquire(const_cast<void *>(what)); }
void before(const void *what) { __tsan_release(const_cast<void *>(what)); }
void reads(const void *at, size_t bytes) { __tsan_read_range(const_cast<void *>(at), bytes); }
void writes(const void *at, size_t bytes) { __tsan_write_range(const_cast<void *>(at), bytes); }

static Exec *find_exec() {
    std::unique_ptr<Exec> &owner = lane_now ? lane_now->exec : exec_owner;
    if (!owner) owner = make_exec();
    return exec = owner.get();
}
#else
static Exec *find_exec() {
    if (!exec) exec = (exec_owner = make_exec()).get();
    return exec;
}
#endif

/* A GPU rounds to nearest and keeps denormals, whatever the thread that launches does. */
struct GpuFloats {
    fenv_t before;
    GpuFloats() {
        fegetenv(&before);
        fesetenv(FE_DFL_ENV);
    }
    ~GpuFloats() { fesetenv(&before); }
};

void run_kernel(const Kernel &kernel) {
    GpuFloats floats;
    Exec *e = find_exec();
    e->kernel = &kernel;
    e->n = kernel.block.x * kernel.block.y * kernel.block.z;
    if (e->shape.x != kernel.block.x || e->shape.y != kernel.block.y || e->shape.z != kernel.block.z) {
        e->shape = kernel.block;
        e->tids.clear();
        for (unsigned z = 0; z < kernel.block.z; z++)
            for (unsigned y = 0; y < kernel.block.y; y++)
                for (unsigned x = 0; x < kernel.block.x; x++) e->tids.push_back(make_uint3(x, y, z));
        e->warps.resize((e->n + warp - 1) / warp);
        /* Fibers do not make these longer. */
        for (Warp &w : e->warps) w.group.reserve(64);
        e->waiting.reserve(e->n);
        e->arrays.reserve(64);
        e->copies.resize(e->n);
        size_t ring = 1;
        while (ring < e->n) ring *= 2;
        e->ready.resize(ring);
    }
    while (own_fibers && e->fibers.size() < e->n) make_fiber(e);
    e->seed = options().seed * 0x9E3779B97F4A7C15ull + ++e->launches;
    dice(e);
    state.bdim = kernel.block;
    state.gdim = kernel.grid;
    running.kernel = true;
    running.what = kernel.name;
    TSAN(e->host.tsan = __tsan_get_current_fiber();)
    e->now = &e->host;
    access_launch(e->n, e->shared, shared_bytes);
    for (unsigned z = 0; z < kernel.grid.z; z++)
        for (unsigned y = 0; y < kernel.grid.y; y++)
            for (unsigned x = 0; x < kernel.grid.x; x++) {
                state.bid = make_uint3(x, y, z);
                begin_block(e);
                TSAN(__tsan_release(&e->started);)
                leave(e);
                access_block_end();
                check_arrays(e);
                if (e->garbage.size() >= 256) {
                    TSAN(__tsan_acquire(&e->alive);)
                    for (void *p : e->garbage) free(p);
                    e->garbage.clear();
                }
            }
    TSAN(__tsan_acquire(&e->alive);)
    for (void *p : e->garbage) free(p);
    e->garbage.clear();
    e->kernel = nullptr;
    running.kernel = false;
}

/* A name given by the launch as it is; else the function that launched, out of the name of the closure's type. */
std::string kernel_name(const char *name) {
    std::string s = name ? name : "?";
    size_t at = s.find("F = ");
    if (at == std::string::npos) return s;
    s = s.substr(at + 4);
    at = s.find("::<lambda");
    return "one launched by " + (at == std::string::npos ? s : s.substr(0, at));
}

std::string where() {
    char text[400];
    if (running.device < 0) return "host code";
    if (!running.kernel) snprintf(text, sizeof text, "%s of device %d", running.what, running.device);
    else
        snprintf(text, sizeof text, "kernel %s on device %d, block (%u, %u, %u), thread (%u, %u, %u)",
                 kernel_name(running.what).c_str(), running.device, state.bid.x, state.bid.y, state.bid.z, state.tid.x,
                 state.tid.y, state.tid.z);
    return text;
}

void fatal(const char *format, ...) {
    char text[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fflush(stdout);
    fprintf(stderr, "sim: %s [in %s]\n", text, where().c_str());
    fflush(stderr);
    _exit(FATAL_STATUS);
}

/* d(16x8) = a(16x16) b(16x8): the lanes' pieces become matrices, the product goes back to the lanes. */
template <int K> static void product(char *slots, const float (*a)[16], const float (*b)[8]) {
    float d[16][8];
    for (int r = 0; r < 16; r++) {
        float line[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (int k = 0; k < K; k++)
            for (int c = 0; c < 8; c++) line[c] += a[r][k] * b[k][c];
        memcpy(d[r], line, sizeof line);
    }
    for (int l = 0; l < 32; l++) {
        float out[4] = {d[l / 4][l % 4 * 2], d[l / 4][l % 4 * 2 + 1], d[l / 4 + 8][l % 4 * 2],
                        d[l / 4 + 8][l % 4 * 2 + 1]};
        memcpy(slots + SLOT * l, out, sizeof out);
    }
}

static void need_all(unsigned lanes) {
    if (lanes != ~0u) fatal("warp: a matrix product by some lanes of a warp only, 0x%08x", lanes);
}

static float wide_bf16(uint16_t bits) { return ::mirt_sim::bits<float>((uint32_t)bits << 16); }
static float wide_f16(uint16_t bits) {
    __half_raw raw;
    raw.x = bits;
    return __half2float(__half(raw));
}
static void mma_half(char *slots, float (*wide)(uint16_t)) {
    float a[16][16], b[16][8];
    for (int l = 0; l < 32; l++) {
        uint32_t in[6];
        memcpy(in, slots + SLOT * l, sizeof in);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 2; j++)
                a[l / 4 + 8 * (i & 1)][l % 4 * 2 + 8 * (i >> 1) + j] = wide((uint16_t)(in[i] >> 16 * j));
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++) b[l % 4 * 2 + 8 * i + j][l / 4] = wide((uint16_t)(in[4 + i] >> 16 * j));
    }
    product<16>(slots, a, b);
}

void mma_bf16(char *slots, unsigned lanes) {
    need_all(lanes);
    need_capability("mma of bfloat16");
    mma_half(slots, wide_bf16);
}

void mma_f16(char *slots, unsigned lanes) {
    need_all(lanes);
    need_capability("mma of float16", 75);
    mma_half(slots, wide_f16);
}

void mma_tf32(char *slots, unsigned lanes) {
    need_all(lanes);
    need_capability("mma of TF32");
    float a[16][16], b[16][8];
    for (int l = 0; l < 32; l++) {
        uint32_t in[6];
        memcpy(in, slots + SLOT * l, sizeof in);
        for (int i = 0; i < 4; i++) a[l / 4 + 8 * (i & 1)][l % 4 + 4 * (i >> 1)] = bits<float>(in[i] & 0xFFFFE000u);
        for (int i = 0; i < 2; i++) b[l % 4 + 4 * i][l / 4] = bits<float>(in[4 + i] & 0xFFFFE000u);
    }
    product<8>(slots, a, b);
}
} // namespace mirt_sim
