/* Counts bank conflicts, and finds bytes that several blocks of a launch touch. Device code is compiled with
 * -fsanitize=thread for `make sim-access`; the calls that this adds lead here instead of to libtsan. */
#include "sim_internal.h"
#ifdef MIRT_SIM_ACCESS
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <link.h>
#include <unordered_map>
#include <vector>

namespace mirt_sim {
namespace {

/* ---- Bytes of global memory by block ---- */

const size_t page = 4096, most_pages = 1 << 15;
const uint32_t several = 1u << 31;
/* Numbers of blocks, counted over all launches: those below the launch's first one are of earlier launches. A reader
   with the bit `several` was not the only one. */
struct Page {
    uint32_t writer[page], reader[page];
};
std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
struct Recent {
    uintptr_t number;
    Page *page;
} recent[256];
uint32_t first_block = 1, block = 0;
const char *shared, *stack;
size_t shared_bytes, stack_bytes;

void forget_pages() {
    pages.clear();
    for (Recent &r : recent) r.page = nullptr;
}

Page *page_of(uintptr_t number) {
    Recent *r = &recent[number % 256];
    if (r->page && r->number == number) return r->page;
    std::unique_ptr<Page> &p = pages[number];
    if (!p) p.reset(new Page());
    r->number = number;
    r->page = p.get();
    return r->page;
}

[[noreturn]] void shared_byte(const char *what, uintptr_t at, uint32_t other) {
    const uint32_t n = (other & ~several) - first_block;
    const dim3 grid = state.gdim;
    const std::string byte = describe(reinterpret_cast<const void *>(at));
    if (other & several) fatal("bytes of two blocks: a byte is %s several blocks: %s", what, byte.c_str());
    fatal("bytes of two blocks: a byte is %s block (%u, %u, %u): %s", what, n % grid.x, n / grid.x % grid.y,
          n / grid.x / grid.y, byte.c_str());
}

/* Each byte's writer and reader, which `look` may change. */
template <class F> void each_byte(uintptr_t at, size_t bytes, F look) {
    for (const uintptr_t end = at + bytes; at < end; at++) {
        Page *p = page_of(at / page);
        look(at, p->writer[at % page], p->reader[at % page]);
    }
}

void read_global(uintptr_t first, size_t bytes) {
    each_byte(first, bytes, [](uintptr_t at, const uint32_t &writer, uint32_t &reader) {
        if (writer >= first_block && writer != block) shared_byte("read here that is written by", at, writer);
        if ((reader & ~several) < first_block) reader = block;
        else if (reader != block) reader = block | several;
    });
}

void write_global(uintptr_t first, size_t bytes) {
    each_byte(first, bytes, [](uintptr_t at, uint32_t &writer, const uint32_t &reader) {
        if (writer >= first_block && writer != block) shared_byte("written here and by", at, writer);
        if ((reader & ~several) >= first_block && reader != block)
            shared_byte("written here that is read by", at, reader);
        writer = block;
    });
}

/* ---- Banks of shared memory ---- */

enum Kind { READ, WRITE, LDMATRIX_ROW, COPY };
const char *const kind_names[] = {"load", "store", "ldmatrix", "cp.async"};

/* Lanes run in any order. Their n-th executions of an instruction since they last met are taken for one access of the
   warp; after a lane that skips an execution, its later ones are matched wrongly until the next meeting. */
struct Access {
    uint32_t mask, at[32];
};
struct Pending {
    uint64_t epoch;
    std::vector<Access> accesses;
};
struct Cursor {
    uint64_t epoch;
    uint32_t in_epoch, in_block, of_block;
};
struct Place {
    const void *pc;
    const char *kernel;
    Kind kind;
    unsigned bytes, worst, most; /* most: executions by one thread in a block */
    uint64_t executions, phases, ideal;
    std::vector<Cursor> cursors;   /* by thread */
    std::vector<Pending> pending;  /* by warp */
};
struct Key {
    const void *pc;
    const char *kernel;
    unsigned bytes;
    bool operator==(const Key &k) const { return pc == k.pc && kernel == k.kernel && bytes == k.bytes; }
};
struct Hash {
    size_t operator()(const Key &k) const {
        return (reinterpret_cast<uintptr_t>(k.pc) * 31 + reinterpret_cast<uintptr_t>(k.kernel)) * 31 + k.bytes;
    }
};
std::unordered_map<Key, std::unique_ptr<Place>, Hash> places;
Place *recent_place[1024];
std::vector<std::pair<Place *, unsigned>> touched; /* warps with pending accesses */
std::vector<uint64_t> epochs;                      /* by thread */

/* Accesses of 8 bytes are done by half warps, those of 16 by quarters. Lanes that want one word share it. */
void evaluate(Place *p, const Access &a) {
    const unsigned lanes = p->bytes > 8 ? 8 : p->bytes > 4 ? 16 : 32, words = p->bytes > 4 ? p->bytes / 4 : 1;
    p->executions++;
    for (unsigned from = 0; from < 32; from += lanes) {
        uint32_t wanted[32], count = 0;
        unsigned banks[32] = {}, degree = 0;
        for (unsigned l = from; l < from + lanes; l++)
            if (a.mask >> l & 1)
                for (unsigned w = 0; w < words; w++) wanted[count++] = a.at[l] / 4 + w;
        std::sort(wanted, wanted + count);
        count = (uint32_t)(std::unique(wanted, wanted + count) - wanted);
        for (uint32_t i = 0; i < count; i++) degree = std::max(degree, ++banks[wanted[i] % 32]);
        p->phases += degree;
        p->ideal += degree > 0;
        p->worst = std::max(p->worst, degree);
    }
}

void evaluate_all(Place *p, Pending *q) {
    for (const Access &a : q->accesses) evaluate(p, a);
    q->accesses.clear();
}

Place *place_at(const void *pc, Kind kind, unsigned bytes) {
    const char *kernel = running.what;
    Place **r = &recent_place[(reinterpret_cast<uintptr_t>(pc) ^ bytes) % 1024];
    if (*r && (*r)->pc == pc && (*r)->kernel == kernel && (*r)->bytes == bytes) return *r;
    std::unique_ptr<Place> &p = places[{pc, kernel, bytes}];
    if (!p) {
        p.reset(new Place());
        p->pc = pc;
        p->kernel = kernel;
        p->kind = kind;
        p->bytes = bytes;
    }
    return *r = p.get();
}

void touch_shared(const void *address, unsigned bytes, Kind kind, const void *pc) {
    Place *p = place_at(pc, kind, bytes);
    const unsigned thread = state.lin, warp = thread / 32;
    if (p->cursors.size() < epochs.size()) p->cursors.resize(epochs.size());
    if (p->pending.size() <= epochs.size() / 32) p->pending.resize(epochs.size() / 32 + 1);
    Cursor *c = &p->cursors[thread];
    Pending *q = &p->pending[warp];
    const uint64_t epoch = epochs[thread];
    if (c->epoch != epoch) c->in_epoch = 0;
    if (c->of_block != block) c->in_block = 0;
    c->epoch = epoch;
    c->of_block = block;
    p->most = std::max(p->most, ++c->in_block);
    if (q->epoch != epoch) evaluate_all(p, q);
    q->epoch = epoch;
    if (q->accesses.empty()) touched.push_back({p, warp});
    if (c->in_epoch >= q->accesses.size()) q->accesses.push_back(Access());
    Access *a = &q->accesses[c->in_epoch++];
    a->mask |= 1u << thread % 32;
    a->at[thread % 32] = (uint32_t)(static_cast<const char *>(address) - shared);
}

void touch(const void *address, size_t bytes, Kind kind, const void *pc) {
    if (!running.kernel) return;
    const char *at = static_cast<const char *>(address);
    if ((size_t)(at - stack) < stack_bytes || (size_t)(at - reinterpret_cast<char *>(&state)) < sizeof state) return;
    if ((size_t)(at - shared) < shared_bytes) {
        /* What is longer, or lies across, becomes words. */
        const bool whole = bytes <= 16 && (reinterpret_cast<uintptr_t>(at) & (bytes - 1)) == 0;
        if (whole) touch_shared(at, (unsigned)bytes, kind, pc);
        else
            for (size_t i = 0; i < bytes; i += 4) touch_shared(at + i, 4, kind, pc);
    } else if (kind == WRITE) write_global(reinterpret_cast<uintptr_t>(at), bytes);
    else read_global(reinterpret_cast<uintptr_t>(at), bytes);
}

/* A line for each place, for tests/sim/test_banks.py: where in the program, kernel, instruction, bytes of a lane, most
   executions by a thread of a block, executions by warps, phases, phases without conflicts, most of one phase. */
void write_places() {
    const char *directory = getenv("MIRT_SIM_BANKS");
    if (!directory || !*directory) return;
    const std::string name = std::string(directory) + "/" + program_invocation_short_name;
    FILE *f = fopen(name.c_str(), "w");
    if (!f) fatal("no file: %s", name.c_str());
    uintptr_t base = 0;
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *to) {
            *static_cast<uintptr_t *>(to) = info->dlpi_addr;
            return 1;
        },
        &base);
    for (const auto &i : places) {
        const Place &p = *i.second;
        const size_t at = (size_t)(reinterpret_cast<uintptr_t>(p.pc) - 1 - base); /* of the call, not after it */
        fprintf(f, "%zx\t%s\t%s\t%u\t%u\t%llu\t%llu\t%llu\t%u\n", at, kernel_name(p.kernel).c_str(),
                kind_names[p.kind], p.bytes, p.most, (unsigned long long)p.executions, (unsigned long long)p.phases,
                (unsigned long long)p.ideal, p.worst);
    }
    fclose(f);
}
} // namespace

void access_launch(unsigned threads, const void *shared_memory, size_t bytes) {
    static bool begun;
    if (!begun) atexit(write_places);
    begun = true;
    if (pages.size() > most_pages) forget_pages();
    if (block > several - (1u << 30)) {
        forget_pages();
        block = 0;
    }
    first_block = block + 1;
    epochs.assign(threads, 0);
    shared = static_cast<const char *>(shared_memory);
    shared_bytes = bytes;
}

void access_block() {
    block++;
    for (uint64_t &e : epochs) e = (uint64_t)block << 32;
}

void access_block_end() {
    for (const auto &t : touched) evaluate_all(t.first, &t.first->pending[t.second]);
    touched.clear();
}

void access_meeting(bool barrier) {
    uint64_t *e = &epochs[state.lin];
    *e = barrier ? ((*e >> 16) + 1) << 16 : *e + 1;
}

void access_stack(const void *at, size_t bytes) {
    stack = static_cast<const char *>(at);
    stack_bytes = bytes;
}

void access_copy(const void *to, const void *from, const void *pc) {
    touch(to, 16, COPY, pc);
    if (from) touch(from, 16, READ, pc);
}

void access_row(const void *row, const void *pc) { touch(row, 16, LDMATRIX_ROW, pc); }

int bank_conflicts(const char *kernel) {
    unsigned worst = 0;
    for (const auto &i : places)
        if (kernel_name(i.second->kernel) == kernel) worst = std::max(worst, i.second->worst);
    return (int)worst;
}

void copy_words(void *to, const void *from) {
    if (from) memcpy(to, from, 16);
    else memset(to, 0, 16);
}
uint16_t shared_number(const char *row, unsigned index) { return reinterpret_cast<const uint16_t *>(row)[index]; }
} // namespace mirt_sim

using namespace mirt_sim;
#define PC __builtin_return_address(0)
#define HOOKS(bytes) \
    void __tsan_read##bytes(void *at) { touch(at, bytes, READ, PC); } \
    void __tsan_write##bytes(void *at) { touch(at, bytes, WRITE, PC); } \
    void __tsan_unaligned_read##bytes(void *at) { touch(at, bytes, READ, PC); } \
    void __tsan_unaligned_write##bytes(void *at) { touch(at, bytes, WRITE, PC); }
/* Atomics have an order between blocks; the backend's kernels have none, its host code has. */
#define ATOMIC(bits, type, name) \
    type __tsan_atomic##bits##_##name(type *at, type v, int) { return __atomic_##name(at, v, __ATOMIC_SEQ_CST); }
#define EXCHANGE(bits, type, name, weak) \
    int __tsan_atomic##bits##_compare_exchange_##name(type *at, type *old, type v, int, int) { \
        return __atomic_compare_exchange_n(at, old, v, weak, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }
#define ATOMICS(bits, type) \
    type __tsan_atomic##bits##_load(const type *at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); } \
    void __tsan_atomic##bits##_store(type *at, type v, int) { __atomic_store_n(at, v, __ATOMIC_SEQ_CST); } \
    type __tsan_atomic##bits##_exchange(type *at, type v, int) { \
        return __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST); \
    } \
    ATOMIC(bits, type, fetch_add) \
    ATOMIC(bits, type, fetch_sub) \
    ATOMIC(bits, type, fetch_or) \
    ATOMIC(bits, type, fetch_and) \
    EXCHANGE(bits, type, strong, false) \
    EXCHANGE(bits, type, weak, true)
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *at, size_t bytes) { touch(at, bytes, READ, PC); }
void __tsan_write_range(void *at, size_t bytes) { touch(at, bytes, WRITE, PC); }
ATOMICS(8, unsigned char)
ATOMICS(32, unsigned)
ATOMICS(64, unsigned long)
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
}
#endif
