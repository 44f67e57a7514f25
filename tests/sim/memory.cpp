/* Device memory, in which accesses that are wrong are caught. Each device has an address range, which is inaccessible
 * except while work of that device runs. Every allocation ends at the end of a page and is filled with 0xFF, and
 * addresses are not used again while there are others, so that accesses to freed memory are caught. */
#include "sim_internal.h"
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef MIRT_SIM_ASAN
#include <sanitizer/asan_interface.h>
#endif

extern "C" const char __executable_start, etext;

namespace mirt_sim {
namespace {
const size_t page = 4096, grain = 256;
size_t arena_bytes; /* addresses of a device: more than its memory, as those of freed memory are not used again */

struct Block {
    char *pages; /* of the allocation; after them comes one that is never opened */
    size_t pages_bytes, bytes;
    long number;
};
struct Device {
    char *arena = nullptr;
    size_t top = 0, bytes = 0, peak = 0;
    std::map<char *, Block> live, freed; /* by the address given out */
    bool open = false;
    unsigned peers = 0; /* bit p: may reach device p */
};
struct Pinned {
    size_t bytes;
    bool registered;
    long number;
};
Device device_of[MOST_DEVICES];
std::map<char *, Pinned> pinned;
long allocations;
std::atomic<int> guarded;
struct sigaction usual;
} // namespace

static char *slack(const Block &b, char *at) { return at + b.bytes; }
static size_t slack_bytes(const Block &b, char *at) { return (size_t)(b.pages + b.pages_bytes - slack(b, at)); }

static Device *prepare(int d) {
    Device *device = &device_of[d];
    if (!arena_bytes) arena_bytes = std::max((size_t)32 << 30, 2 * options().memory);
    if (!device->arena) {
        void *p = mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) fatal("out of memory: no addresses for device %d", d);
        device->arena = static_cast<char *>(p);
    }
    return device;
}

static void protect(Device *device, int protection) {
    for (auto &b : device->live) mprotect(b.second.pages, b.second.pages_bytes, protection);
    device->open = protection != PROT_NONE;
}

/* Closing costs by the page, so large memories are closed only now and then: whose fault it is to touch them is told
   sooner or later. */
static bool worth_closing(const Device *device) {
    static uint64_t roll = 1;
    const size_t cheap = 256 * page;
    roll = roll * 6364136223846793005ull + 1442695040888963407ull;
    return device->bytes <= cheap || (roll >> 33) % (device->bytes / cheap) == 0;
}

void open_devices(unsigned mask) {
    for (int i = 0; i < MOST_DEVICES; i++) {
        Device *device = &device_of[i];
        if (mask >> i & 1) {
            if (!prepare(i)->open) protect(device, PROT_READ | PROT_WRITE);
        } else if (device->open && worth_closing(device)) protect(device, PROT_NONE);
    }
}

unsigned peers_of(int d) { return device_of[d].peers; }

void close_devices() {
    for (Device &device : device_of)
        if (device.open && worth_closing(&device)) protect(&device, PROT_NONE);
}

int device_of_address(const void *at) {
    for (int i = 0; i < MOST_DEVICES; i++)
        if (device_of[i].arena && at >= device_of[i].arena && at < device_of[i].arena + arena_bytes) return i;
    return -1;
}

static const std::pair<char *const, Block> *find(std::map<char *, Block> &blocks, const char *at) {
    auto i = blocks.upper_bound(const_cast<char *>(at));
    if (i == blocks.begin()) return nullptr;
    --i;
    return at < i->second.pages + i->second.pages_bytes + page ? &*i : nullptr;
}

std::string describe(const void *address) {
    const char *at = static_cast<const char *>(address);
    char text[200];
    int d = device_of_address(at);
    if (d < 0) {
        snprintf(text, sizeof text, "%p, which is no device's", address);
        return text;
    }
    Device *device = &device_of[d];
    if (const auto *b = find(device->live, at))
        snprintf(text, sizeof text, "byte %td of allocation %ld of device %d, of %zu bytes", at - b->first,
                 b->second.number, d, b->second.bytes);
    else if (const auto *f = find(device->freed, at))
        snprintf(text, sizeof text, "byte %td of allocation %ld of device %d, of %zu bytes, which was freed",
                 at - f->first, f->second.number, d, f->second.bytes);
    else snprintf(text, sizeof text, "%p of device %d, where nothing is allocated", address, d);
    return text;
}

bool pinned_range(const void *address, size_t bytes) {
    char *at = static_cast<char *>(const_cast<void *>(address));
    auto i = pinned.upper_bound(at);
    if (i == pinned.begin()) return false;
    --i;
    return at + bytes <= i->first + i->second.bytes;
}

/* Whether it points to memory that a device does not reach. What else may be in an argument, as two small integers, is
   not mapped. */
bool host_pointer(const void *address) {
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    unsigned char resident;
    /* The kernel itself is an argument of its closure. */
    if (address >= &__executable_start && address < &etext) return false;
    if (at < (1ull << 45) || at >> 48 || device_of_address(address) >= 0 || pinned_range(address, 1)) return false;
    return !mincore(reinterpret_cast<void *>(at / page * page), 1, &resident);
}

void check_range(const char *what, const void *address, size_t bytes) {
    if (!bytes) return;
    const char *at = static_cast<const char *>(address);
    int d = device_of_address(at);
    if (d < 0) return;
    const auto *b = find(device_of[d].live, at);
    if (!b) {
        const auto *f = find(device_of[d].freed, at);
        fatal("%s: %s of %zu bytes at %s", f ? "use after free" : "out of bounds", what, bytes, describe(at).c_str());
    }
    if (at < b->first || at + bytes > b->first + b->second.bytes)
        fatal("out of bounds: %s of %zu bytes at %s", what, bytes, describe(at).c_str());
}

/* Where an address lies in its allocation, and how long that is; false if it is in none. */
bool place_of(const void *address, size_t *offset, size_t *bytes) {
    int d = device_of_address(address);
    const auto *b = d < 0 ? nullptr : find(device_of[d].live, static_cast<const char *>(address));
    if (!b) return false;
    *offset = (size_t)(static_cast<const char *>(address) - b->first);
    *bytes = b->second.bytes;
    return true;
}

static void on_fault(int number, siginfo_t *info, void *) {
    const char *at = static_cast<const char *>(info->si_addr);
    int d = device_of_address(at);
    if (d < 0) {
        if (running.device >= 0) fatal("wild pointer: an access to %p", info->si_addr);
        sigaction(number, &usual, nullptr);
        return;
    }
    Device *device = &device_of[d];
    const auto *b = find(device->live, at);
    const char *fault = running.device < 0                                        ? "host access to device memory"
                        : !b && find(device->freed, at)                           ? "use after free"
                        : !b || at < b->first || at >= b->first + b->second.bytes ? "out of bounds"
                                                                                  : "memory of another device";
    fatal("%s: an access to %s", fault, describe(at).c_str());
}

/* The handler needs a stack of its own in every OS thread, as the fibers' stacks are short. */
void guard_thread() {
    struct Guard {
        void *stack = nullptr;
        ~Guard() {
            guarded--;
            stack_t off = {};
            off.ss_flags = SS_DISABLE;
            sigaltstack(&off, nullptr);
            free(stack);
        }
    };
    static thread_local Guard guard;
    static bool installed;
    if (!installed) {
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigaction(SIGSEGV, &action, &usual);
        sigaction(SIGBUS, &action, nullptr);
        installed = true;
    }
    if (guard.stack) return;
    guarded++;
    stack_t own = {};
    own.ss_size = 64 << 10;
    own.ss_sp = guard.stack = malloc(own.ss_size);
    if (own.ss_sp) sigaltstack(&own, nullptr);
}

int callers() { return guarded; }

static void check_slack(int d, char *at, const Block &b) {
#ifndef MIRT_SIM_ASAN
    bool open = device_of[d].open;
    char *p = slack(b, at);
    mprotect(b.pages, b.pages_bytes, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < slack_bytes(b, at); i++)
        if ((unsigned char)p[i] != 0xC5)
            fatal("out of bounds: somebody wrote byte %zu of allocation %ld of device %d, of %zu bytes", b.bytes + i,
                  b.number, d, b.bytes);
    for (p = b.pages; p < at; p++)
        if ((unsigned char)*p != 0xC5)
            fatal("out of bounds: somebody wrote %td bytes before allocation %ld of device %d", at - p, b.number, d);
    if (!open) mprotect(b.pages, b.pages_bytes, PROT_NONE);
#else
    (void)d;
    (void)at;
    (void)b;
#endif
}

static char *find_room(Device *device, size_t bytes) {
    if (device->top + bytes <= arena_bytes) {
        char *p = device->arena + device->top;
        device->top += bytes;
        return p;
    }
    device->freed.clear();
    char *from = device->arena;
    for (auto &b : device->live) {
        if ((size_t)(b.second.pages - from) >= bytes) return from;
        from = b.second.pages + b.second.pages_bytes + page;
    }
    return (size_t)(device->arena + arena_bytes - from) >= bytes ? from : nullptr;
}

static cudaError_t allocate(int d, void **out, size_t bytes) {
    Device *device = prepare(d);
    *out = nullptr;
    if (!bytes) return cudaSuccess;
    size_t rounded = (bytes + grain - 1) / grain * grain, whole = (rounded + page - 1) / page * page;
    if (bytes > arena_bytes / 2 || device->bytes + rounded > options().memory) return cudaErrorMemoryAllocation;
    char *pages = find_room(device, whole + page);
    if (!pages) return cudaErrorMemoryAllocation;
    char *at = pages + whole - rounded;
    Block b = {pages, whole, bytes, ++allocations};
    if (mprotect(pages, whole, PROT_READ | PROT_WRITE)) return cudaErrorMemoryAllocation;
#ifdef MIRT_SIM_ASAN
    __asan_unpoison_memory_region(pages, whole);
#endif
    memset(pages, 0xC5, (size_t)(at - pages));
    memset(at + bytes, 0xC5, (size_t)(pages + whole - (at + bytes)));
    /* Rooms that nobody fills are large; the middle of such is left to zeros. */
    const size_t most = (size_t)16 << 20, end = (size_t)4 << 20;
    memset(at, 0xFF, bytes <= most ? bytes : end);
    if (bytes > most) memset(at + bytes - end, 0xFF, end);
#ifdef MIRT_SIM_ASAN
    __asan_poison_memory_region(pages, (size_t)(at - pages));
    __asan_poison_memory_region(at + bytes, rounded - bytes);
#endif
    if (!device->open) mprotect(pages, whole, PROT_NONE);
    device->live[at] = b;
    device->bytes += rounded;
    if (device->bytes > device->peak) device->peak = device->bytes;
    *out = at;
    return cudaSuccess;
}

static cudaError_t release(void *address) {
    char *at = static_cast<char *>(address);
    int d = device_of_address(at);
    if (d < 0) fatal("wrong pointer: cudaFree of %s", describe(at).c_str());
    Device *device = &device_of[d];
    auto i = device->live.find(at);
    if (i == device->live.end())
        fatal("%s: cudaFree of %s", device->freed.count(at) ? "freed twice" : "wrong pointer", describe(at).c_str());
    Block b = i->second;
    check_slack(d, at, b);
#ifdef MIRT_SIM_ASAN
    __asan_poison_memory_region(b.pages, b.pages_bytes);
#endif
    mprotect(b.pages, b.pages_bytes, PROT_NONE);
    madvise(b.pages, b.pages_bytes, MADV_DONTNEED);
    device->live.erase(i);
    device->freed[at] = b;
    device->bytes -= (b.bytes + grain - 1) / grain * grain;
    return cudaSuccess;
}

size_t device_bytes(int d) { return device_of[d].bytes; }
size_t device_peak(int d) { return device_of[d].peak; }

int memory_leaks() {
    int n = 0;
    for (int d = 0; d < MOST_DEVICES; d++)
        for (auto &b : device_of[d].live) {
            check_slack(d, b.first, b.second);
            fprintf(stderr, "sim: leak: allocation %ld of device %d, %zu bytes\n", b.second.number, d, b.second.bytes);
            n++;
        }
    for (auto &p : pinned) {
        fprintf(stderr, "sim: leak: %s host memory %ld, %zu bytes\n", p.second.registered ? "registered" : "pinned",
                p.second.number, p.second.bytes);
        n++;
    }
    return n;
}
} // namespace mirt_sim

using namespace mirt_sim;

cudaError_t cudaMalloc(void **out, size_t bytes) {
    API("cudaMalloc", cudaErrorMemoryAllocation);
    if (refused_by_capture("cudaMalloc")) return set_error(cudaErrorStreamCaptureUnsupported);
    refuse_beside_exchanges("cudaMalloc");
    return set_error(allocate(current_device(), out, bytes));
}

cudaError_t cudaFree(void *address) {
    FREEING();
    if (!address) return cudaSuccess;
    if (refused_by_capture("cudaFree")) return set_error(cudaErrorStreamCaptureUnsupported);
    /* Freeing waits for the device. */
    finish_device(device_of_address(address));
    return release(address);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    API("cudaMemGetInfo", cudaErrorUnknown);
    size_t used = device_of[current_device()].bytes;
    *total = options().memory;
    *available = used < *total ? *total - used : 0;
    return cudaSuccess;
}

static cudaError_t pin(void **out, size_t bytes) {
    *out = nullptr;
    if (posix_memalign(out, page, bytes ? bytes : 1)) return cudaErrorMemoryAllocation;
    memset(*out, 0xFF, bytes);
    Pinned p = {bytes, false, ++allocations};
    pinned[static_cast<char *>(*out)] = p;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
    API("cudaMallocHost", cudaErrorMemoryAllocation);
    if (refused_by_capture("cudaMallocHost")) return set_error(cudaErrorStreamCaptureUnsupported);
    refuse_beside_exchanges("cudaMallocHost");
    return set_error(pin(out, bytes));
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int) {
    API("cudaHostAlloc", cudaErrorMemoryAllocation);
    if (refused_by_capture("cudaHostAlloc")) return set_error(cudaErrorStreamCaptureUnsupported);
    refuse_beside_exchanges("cudaHostAlloc");
    return set_error(pin(out, bytes));
}

static void unpin(void *address, bool registered, const char *call) {
    auto i = pinned.find(static_cast<char *>(address));
    if (i == pinned.end() || i->second.registered != registered)
        fatal("wrong pointer: %s of %p, which is not such memory", call, address);
    for (int d = 0; d < options().devices; d++) finish_device(d);
    pinned.erase(i);
}

cudaError_t cudaFreeHost(void *address) {
    FREEING();
    if (!address) return cudaSuccess;
    unpin(address, false, "cudaFreeHost");
    free(address);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned int) {
    API("cudaHostRegister", cudaErrorMemoryAllocation);
    if (pinned_range(address, 1)) return set_error(cudaErrorHostMemoryAlreadyRegistered);
    Pinned p = {bytes, true, ++allocations};
    pinned[static_cast<char *>(address)] = p;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *address) {
    FREEING();
    unpin(address, true, "cudaHostUnregister");
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    API("cudaDeviceCanAccessPeer", cudaErrorUnknown);
    if (device < 0 || peer < 0 || device >= options().devices || peer >= options().devices)
        return set_error(cudaErrorInvalidDevice);
    *can = device != peer && !(options().no_peers);
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int) {
    API("cudaDeviceEnablePeerAccess", cudaErrorUnknown);
    int d = current_device();
    if (peer < 0 || peer >= options().devices || peer == d || options().no_peers)
        return set_error(cudaErrorPeerAccessUnsupported);
    Device *device = &device_of[d];
    if (device->peers >> peer & 1) return set_error(cudaErrorPeerAccessAlreadyEnabled);
    device->peers |= 1u << peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    FREEING();
    device_of[current_device()].peers &= ~(1u << peer);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *address) {
    API("cudaPointerGetAttributes", cudaErrorUnknown);
    memset(attributes, 0, sizeof *attributes);
    int d = device_of_address(address);
    attributes->type = d >= 0                     ? cudaMemoryTypeDevice
                       : pinned_range(address, 1) ? cudaMemoryTypeHost
                                                  : cudaMemoryTypeUnregistered;
    attributes->device = d >= 0 ? d : current_device();
    if (d >= 0) attributes->devicePointer = const_cast<void *>(address);
    else attributes->hostPointer = const_cast<void *>(address);
    return cudaSuccess;
}
