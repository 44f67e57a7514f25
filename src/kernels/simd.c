/* The hot kernels, compiled once for each instruction set with its wrappers. */

#include "../base/processor.h"
#include "augment.h"
#include "common.h"
#include "reference.h"
#include "simd_tile.h"

#include "optimize_begin.inc"
#if !defined(__clang__) && defined(__GNUC__) && !defined(MIRRORTRAIN_DEBUG)
/* Vectors are explicit and loops unrolled: more passes only increase compile time. */
#pragma GCC optimize( \
    "O1,expensive-optimizations,no-tree-loop-vectorize,schedule-insns2,no-tree-dominator-opts,no-tree-ccp")
#endif

#define MIRT__VEC MIRT__K(vector)

#if !defined(MIRRORTRAIN_NO_SIMD) && defined(__x86_64__)
#if !defined(__clang__)
/* gcc 12 warns of the undefined registers that its own intrinsics start from, g++ 12 by both names. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define MIRT__K(name) mirt__##name##_avx2
#define MIRT__NAME "avx2"
#include "simd_avx2.inc"
#include "simd_text.inc"
#include "simd_end.inc"
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
#endif
#define MIRT__K(name) mirt__##name##_avx512
#define MIRT__NAME "avx512"
#include "simd_avx512.inc"
#include "simd_text.inc"
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma"))), \
                             apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")
#endif
#include "simd_half.inc"
#define MIRT__T(name) mirt__##name##_avx512bf16
#define MIRT__NAME "avx512bf16"
#define MIRT__FINISH mirt__word_finish_rows
#endif

#if !defined(MIRRORTRAIN_NO_SIMD) && defined(__aarch64__)
#include <arm_neon.h>

#define MIRT__K(name) mirt__##name##_neon
#define MIRT__NAME "neon"
#include "simd_neon.inc"
#include "simd_text.inc"
#ifdef MIRT__NEON_BF16
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("+bf16")
#endif
#include "simd_neon_half.inc"
#define MIRT__T(name) mirt__##name##_neonbf16
#define MIRT__NAME "neonbf16"
#define MIRT__FINISH MIRT__K(finish_rows)
#endif
#endif

#ifdef MIRT__T /* instructions for products of bfloat16 */
#define MIRT__HALF true
#define MIRT__WORDS &MIRT__T(words)
#include "simd_words.inc"
#include "simd_table.inc"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
#ifdef MIRT__K
#include "simd_end.inc"
#endif
#if !defined(MIRRORTRAIN_NO_SIMD) && defined(__x86_64__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#define MIRT__K(name) mirt__##name##_plain
#define MIRT__NAME "plain"
#include "simd_plain.inc"
#include "simd_text.inc"
#include "simd_end.inc"

#undef MIRT__VEC
#include "optimize_end.inc"
