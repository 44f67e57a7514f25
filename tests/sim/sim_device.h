/* CUDA device code as plain C++17. Every source of src/cuda is compiled with this file included first (g++ -x c++
 * -include). A CUDA thread is a function call that gets its own fiber when it first waits for others; see README.md.
 * The runtime is in the other files here. */
#ifndef MIRT_SIM_DEVICE_H
#define MIRT_SIM_DEVICE_H
#ifndef MIRT_SIM
#define MIRT_SIM 1
#endif
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <type_traits>
#include <utility>

namespace mirt_sim {
int code_made_for(); /* as 90 */
}
#define __CUDA_ARCH_LIST__ 10 * ::mirt_sim::code_made_for()

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __grid_constant__
#undef __managed__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
/* No __shared__: shared memory is declared by MIRT_SHARED and MIRT_DYNAMIC_SHARED, below. */

namespace mirt_sim {

/* The thread that runs now, and its block. */
struct State {
    uint3 tid, bid;
    dim3 bdim, gdim;
    unsigned lin; /* number of the thread in its block */
};
extern __thread State state;

/* A kernel with its arguments, on its way through a stream. */
struct Kernel {
    dim3 grid, block;
    size_t shared;
    void (*call)(const void *);
    void *closure;
    size_t bytes; /* of the closure, if one can look for host pointers there */
    void (*destroy)(void *);
    const char *name;
    const void *function; /* what cudaFuncSetAttribute knows it by; null: not known */
};
cudaError_t submit(const Kernel &kernel, cudaStream_t stream);

/* A launch of what a closure does; the name is for messages. The closure is called when the stream reaches it, once per
   thread. */
template <class F>
cudaError_t launch(dim3 grid, dim3 block, size_t shared, cudaStream_t stream, F f, const char *name = nullptr,
                   const void *function = nullptr) {
    Kernel kernel;
    kernel.grid = grid;
    kernel.block = block;
    kernel.shared = shared;
    kernel.call = [](const void *f_) { (*static_cast<const F *>(f_))(); };
    F *closure = new F(std::move(f));
    kernel.closure = closure;
    kernel.bytes = 0;
#if defined(__GNUC__) && !defined(__clang__)
    /* Arguments can be looked at, once there is no chance in what lies between them. */
    if constexpr (std::is_trivially_copyable<F>::value && !std::is_empty<F>::value) {
        __builtin_clear_padding(closure);
        kernel.bytes = sizeof(F);
    }
#endif
    kernel.destroy = [](void *f_) { delete static_cast<F *>(f_); };
    kernel.name = name ? name : __PRETTY_FUNCTION__;
    kernel.function = function;
    return submit(kernel, stream);
}

/* What MIRT_LAUNCH is. Arguments become the kernel's parameters here and now, as they do for a GPU. */
template <class T> struct Same {
    typedef T type;
};
template <class... P>
cudaError_t start(dim3 grid, dim3 block, size_t shared, cudaStream_t stream, const char *name, void (*kernel)(P...),
                  typename Same<P>::type... arguments) {
    return launch(
        grid, block, shared, stream, [=] { kernel(arguments...); }, name, reinterpret_cast<const void *>(kernel));
}

/* Shared memory: one array for a block, filled with 0xFF before the block's first use of it. */
struct Site {
    uint64_t block;
    void *at;
};
void *shared_array(Site *site, size_t bytes, size_t align, const char *name);
void *dynamic_shared(size_t align);

/* Threads wait for each other. */
enum Meeting { SYNCWARP, SHUFFLE, VOTE, REDUCE, MMA, LDMATRIX };
enum { SLOT = 64 };
int barrier(int value, int *any, int *all);
/* Each lane of the mask brings bytes; when all are there, one of them calls combine on the slots (SLOT bytes a lane).
 * The slots are good until the lane's next meeting. */
char *meet(unsigned mask, Meeting kind, const void *in, unsigned bytes, void (*combine)(char *slots, unsigned lanes),
           unsigned *present);
/* Reads a slot behind the thread sanitizer's back, since slots are used again. */
template <class T>
#if defined(__SANITIZE_THREAD__) || defined(MIRT_SIM_TSAN)
__attribute__((no_sanitize("thread"), noinline))
#endif
inline T slot(const char *slots, unsigned lane) {
    typedef unsigned __attribute__((may_alias)) word;
    typedef unsigned char __attribute__((may_alias)) byte;
    T value;
    const char *from = slots + SLOT * lane;
    if constexpr (sizeof(T) % 4 == 0)
        for (size_t i = 0; i < sizeof(T) / 4; i++)
            reinterpret_cast<word *>(&value)[i] = reinterpret_cast<const word *>(from)[i];
    else
        for (size_t i = 0; i < sizeof(T); i++)
            reinterpret_cast<byte *>(&value)[i] = reinterpret_cast<const byte *>(from)[i];
    return value;
}
[[noreturn]] void fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The compiler does not store its members one by one. */
template <class T> inline void keep_whole(T &x) { asm volatile("" : "+m"(x)); }
/* An access of several numbers at once, which a device refuses anywhere else. */
inline void check_aligned(const void *at, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(at) % bytes) fatal("misaligned address: %zu bytes at once at %p", bytes, at);
}

inline unsigned lane() { return state.lin % 32; }

template <class T> T from_lane(unsigned mask, T value, unsigned source) {
    static_assert(sizeof(T) <= SLOT && std::is_trivially_copyable<T>::value, "shuffles carry plain values");
    unsigned present;
    const char *slots = meet(mask, SHUFFLE, &value, sizeof value, nullptr, &present);
    if (present >> source & 1) return slot<T>(slots, source);
    /* What a lane that is not there would have said is undefined: not a number. */
    T result;
    memset(static_cast<void *>(&result), 0xFF, sizeof result);
    return result;
}

/* cp.async: the bytes arrive when their group is waited for; until then there is 0xFF. */
bool copy_async(void *shared, const void *global, bool valid); /* false: the device has no such copies */
void copy_commit();
struct Copy {
    void *to;
    const void *from;
};
/* The next copy that must arrive for all but the newest n groups to be there; false if there is none. */
bool copy_due(unsigned n, Copy *copy);

/* Accesses of the twins of ldmatrix and cp.async; where each access is looked at (access.cpp), those that no device
   makes are hidden. */
#ifdef MIRT_SIM_ACCESS
void copy_words(void *to, const void *from);
uint16_t shared_number(const char *row, unsigned index);
#define MIRT_SIM_TWIN inline __attribute__((always_inline))
#else
inline void copy_words(void *to, const void *from) {
    for (int i = 0; i < 4; i++)
        static_cast<uint32_t *>(to)[i] = from ? static_cast<const uint32_t *>(from)[i] : 0;
}
inline uint16_t shared_number(const char *row, unsigned index) {
    return reinterpret_cast<const uint16_t *>(row)[index];
}
#define MIRT_SIM_TWIN inline
#endif

void mma_bf16(char *slots, unsigned lanes);
void mma_f16(char *slots, unsigned lanes);
void mma_tf32(char *slots, unsigned lanes);
const char *shared_row(const void *row);

} // namespace mirt_sim

#define threadIdx (::mirt_sim::state.tid)
#define blockIdx (::mirt_sim::state.bid)
#define blockDim (::mirt_sim::state.bdim)
#define gridDim (::mirt_sim::state.gdim)
static constexpr int warpSize = 32;

/* Both are aligned to 16 bytes; so must be what stands for them under nvcc. */
#define MIRT_SHARED(T, name, n) \
    static thread_local ::mirt_sim::Site name##_site; \
    T(&name)[n] = *reinterpret_cast<T(*)[n]>(::mirt_sim::shared_array(&name##_site, sizeof(T[n]), alignof(T), #name))
#define MIRT_DYNAMIC_SHARED(T, name) T *name = reinterpret_cast<T *>(::mirt_sim::dynamic_shared(alignof(T)))

inline void __syncthreads() { ::mirt_sim::barrier(0, nullptr, nullptr); }
inline int __syncthreads_count(int v) { return ::mirt_sim::barrier(v, nullptr, nullptr); }
inline int __syncthreads_or(int v) {
    int any;
    ::mirt_sim::barrier(v, &any, nullptr);
    return any;
}
inline int __syncthreads_and(int v) {
    int all;
    ::mirt_sim::barrier(v, nullptr, &all);
    return all;
}
inline void __syncwarp(unsigned mask = ~0u) {
    ::mirt_sim::meet(mask, ::mirt_sim::SYNCWARP, nullptr, 0, nullptr, nullptr);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
[[noreturn]] inline void __trap() { ::mirt_sim::fatal("trap: the kernel called __trap()"); }

template <class T> T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
    unsigned w = (unsigned)width, l = ::mirt_sim::lane();
    return ::mirt_sim::from_lane(mask, v, (l & ~(w - 1)) | ((unsigned)source & (w - 1)));
}
template <class T> T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    unsigned w = (unsigned)width, l = ::mirt_sim::lane();
    return ::mirt_sim::from_lane(mask, v, (l & (w - 1)) + delta < w ? l + delta : l);
}
template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    unsigned w = (unsigned)width, l = ::mirt_sim::lane();
    return ::mirt_sim::from_lane(mask, v, (l & (w - 1)) >= delta ? l - delta : l);
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32) {
    unsigned w = (unsigned)width, l = ::mirt_sim::lane(), source = (l ^ (unsigned)bits) & 31;
    return ::mirt_sim::from_lane(mask, v, source / w > l / w ? l : source);
}
inline unsigned __ballot_sync(unsigned mask, int v) {
    unsigned present, result = 0, bit = v != 0;
    const char *slots = ::mirt_sim::meet(mask, ::mirt_sim::VOTE, &bit, sizeof bit, nullptr, &present);
    for (unsigned i = 0; i < 32; i++)
        if (present >> i & 1) result |= ::mirt_sim::slot<unsigned>(slots, i) << i;
    return result;
}
inline int __any_sync(unsigned mask, int v) { return __ballot_sync(mask, v) != 0; }
inline int __all_sync(unsigned mask, int v) { return __ballot_sync(mask, !v) == 0; }
namespace mirt_sim {
template <class T, class F> T reduce(unsigned mask, T v, F f) {
    unsigned present;
    const char *slots = meet(mask, REDUCE, &v, sizeof v, nullptr, &present);
    for (unsigned i = 0; i < 32; i++)
        if ((present >> i & 1) && i != lane()) v = f(v, slot<T>(slots, i));
    return v;
}
} // namespace mirt_sim
inline unsigned __reduce_add_sync(unsigned mask, unsigned v) {
    return ::mirt_sim::reduce(mask, v, [](unsigned a, unsigned b) { return a + b; });
}
inline int __reduce_add_sync(unsigned mask, int v) { return (int)__reduce_add_sync(mask, (unsigned)v); }
inline unsigned __reduce_max_sync(unsigned mask, unsigned v) {
    return ::mirt_sim::reduce(mask, v, [](unsigned a, unsigned b) { return a > b ? a : b; });
}
inline int __reduce_max_sync(unsigned mask, int v) {
    return ::mirt_sim::reduce(mask, v, [](int a, int b) { return a > b ? a : b; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned v) {
    return ::mirt_sim::reduce(mask, v, [](unsigned a, unsigned b) { return a | b; });
}

/* Atomics on integers only: sums of floats in no order are not deterministic. */
template <class T> T atomicAdd(T *p, typename std::common_type<T>::type v) {
    static_assert(std::is_integral<T>::value && sizeof(T) >= 4,
                  "atomicAdd is for integers: the order of a sum of floats must be fixed");
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomicOr(T *p, typename std::common_type<T>::type v) {
    return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomicAnd(T *p, typename std::common_type<T>::type v) {
    return __atomic_fetch_and(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomicExch(T *p, typename std::common_type<T>::type v) {
    return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
template <class T> T atomicCAS(T *p, typename std::common_type<T>::type old, typename std::common_type<T>::type v) {
    __atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return old;
}
template <class T> T atomicMax(T *p, typename std::common_type<T>::type v) {
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (old < v && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}
template <class T> T atomicMin(T *p, typename std::common_type<T>::type v) {
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v < old && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}

/* Loads and stores with hints. */
template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> T __ldlu(const T *p) { return *p; }
template <class T> void __stcs(T *p, T v) { *p = v; }
template <class T> void __stcg(T *p, T v) { *p = v; }
template <class T> void __stwt(T *p, T v) { *p = v; }

/* Arithmetic. The fast forms are macros because the C library declares functions of these names. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
#define __fdividef(x, y) ((x) / (y))
namespace mirt_sim {
template <class To, class From> To bits(From v) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To r;
    memcpy(&r, &v, sizeof r);
    return r;
}
} // namespace mirt_sim
inline float __int_as_float(int v) { return ::mirt_sim::bits<float>(v); }
inline int __float_as_int(float v) { return ::mirt_sim::bits<int>(v); }
inline float __uint_as_float(unsigned v) { return ::mirt_sim::bits<float>(v); }
inline unsigned __float_as_uint(float v) { return ::mirt_sim::bits<unsigned>(v); }
inline double __longlong_as_double(long long v) { return ::mirt_sim::bits<double>(v); }
inline long long __double_as_longlong(double v) { return ::mirt_sim::bits<long long>(v); }
namespace mirt_sim {
/* A product or sum that is rounded by itself. Where the compiler fuses others, as nvcc does (MIRT_SIM_CONTRACT), it
   does not see this one's origin. */
inline float alone(float x) {
#if defined(MIRT_SIM_CONTRACT) && defined(__x86_64__)
    asm("" : "+x"(x));
#elif defined(MIRT_SIM_CONTRACT)
    asm("" : "+w"(x));
#endif
    return x;
}
} // namespace mirt_sim
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return ::mirt_sim::alone(::mirt_sim::alone(a) + ::mirt_sim::alone(b)); }
inline float __fsub_rn(float a, float b) { return ::mirt_sim::alone(::mirt_sim::alone(a) - ::mirt_sim::alone(b)); }
inline float __fmul_rn(float a, float b) { return ::mirt_sim::alone(a * b); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return (float)(1.0 / sqrt((double)a)); }
inline float rsqrtf(float a) { return (float)(1.0 / sqrt((double)a)); }
inline double rsqrt(double a) { return 1.0 / sqrt(a); }
inline float __saturatef(float a) { return a > 1.0f ? 1.0f : a > 0.0f ? a : 0.0f; }
inline int __float2int_rn(float a) { return (int)lrintf(a); }
inline int __float2int_rz(float a) { return (int)a; }
inline int __float2int_rd(float a) { return (int)floorf(a); }
inline unsigned __float2uint_rn(float a) { return (unsigned)lrintf(a); }
inline unsigned __float2uint_rz(float a) { return (unsigned)a; }
inline float __int2float_rn(int a) { return (float)a; }
inline float __uint2float_rn(unsigned a) { return (float)a; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned __brev(unsigned v) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (v >> i & 1) << (31 - i);
    return r;
}
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    __extension__ typedef unsigned __int128 wide;
    return (unsigned long long)((wide)a * b >> 64);
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
    uint64_t v = (uint64_t)y << 32 | x;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned)(v >> (8 * (s >> (4 * i) & 7)) & 255) << (8 * i);
    return r;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)((((uint64_t)hi << 32 | lo) << (n & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (n & 31));
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value>>
inline std::common_type_t<A, B> min(A a, B b) {
    typedef std::common_type_t<A, B> T;
    if constexpr (std::is_floating_point<T>::value) return std::fmin((T)a, (T)b);
    else return (T)b < (T)a ? (T)b : (T)a;
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value>>
inline std::common_type_t<A, B> max(A a, B b) {
    typedef std::common_type_t<A, B> T;
    if constexpr (std::is_floating_point<T>::value) return std::fmax((T)a, (T)b);
    else return (T)a < (T)b ? (T)b : (T)a;
}

/* The twins of src/cuda/ptx.cuh. */
namespace mirt_sim {
struct Four {
    float v[4];
};
inline void mma(float d[4], const uint32_t a[4], const uint32_t b[2], void (*combine)(char *, unsigned)) {
    uint32_t in[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    Four r = slot<Four>(meet(~0u, MMA, in, sizeof in, combine, nullptr), lane());
    for (int i = 0; i < 4; i++) d[i] += r.v[i];
}
} // namespace mirt_sim
inline void mirt__cu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    ::mirt_sim::mma(d, a, b, ::mirt_sim::mma_bf16);
}
inline void mirt__cu_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    ::mirt_sim::mma(d, a, b, ::mirt_sim::mma_f16);
}
inline void mirt__cu_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    ::mirt_sim::mma(d, a, b, ::mirt_sim::mma_tf32);
}
namespace mirt_sim {
MIRT_SIM_TWIN void ldmatrix(uint32_t r[4], const void *row, bool trans) {
    const char *address = shared_row(row);
    const char *slots = meet(~0u, LDMATRIX, &address, sizeof address, nullptr, nullptr);
    unsigned l = lane();
    for (unsigned i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (unsigned j = 0; j < 2; j++) {
            unsigned line = trans ? l % 4 * 2 + j : l / 4, column = trans ? l / 4 : l % 4 * 2 + j;
            pair[j] = shared_number(slot<const char *>(slots, 8 * i + line), column);
        }
        r[i] = (uint32_t)pair[1] << 16 | pair[0];
    }
}
} // namespace mirt_sim
MIRT_SIM_TWIN void mirt__cu_ldmatrix_x4(uint32_t r[4], const void *row) { ::mirt_sim::ldmatrix(r, row, false); }
MIRT_SIM_TWIN void mirt__cu_ldmatrix_x4_trans(uint32_t r[4], const void *row) { ::mirt_sim::ldmatrix(r, row, true); }
MIRT_SIM_TWIN void mirt__cu_cp_async16(void *shared, const void *global, bool valid) {
    static const uint32_t nothing[4] = {~0u, ~0u, ~0u, ~0u};
    const bool later = ::mirt_sim::copy_async(shared, global, valid);
    ::mirt_sim::copy_words(shared, later ? nothing : valid ? global : nullptr);
}
inline void mirt__cu_cp_async_commit() { ::mirt_sim::copy_commit(); }
template <int N> inline void mirt__cu_cp_async_wait() {
    ::mirt_sim::Copy copy;
    while (::mirt_sim::copy_due(N, &copy)) ::mirt_sim::copy_words(copy.to, copy.from);
}
#endif
