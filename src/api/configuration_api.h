#ifndef MIRT__CONFIGURATION_API_H
#define MIRT__CONFIGURATION_API_H
/* What a program defines before the header, and what all declarations need. */

/* The implementation needs POSIX names (threads, clocks), which -std=c11 hides on Linux unless this macro stands before
   the first system header. On macOS and BSDs they are there, and the macro would hide others. */
#if (defined(MIRRORTRAIN_IMPLEMENTATION) || defined(MIRRORTRAIN_BACKEND)) && \
    !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE) && !defined(__APPLE__) && !defined(__FreeBSD__)
#define _POSIX_C_SOURCE 200809L
#endif

/* For debuggers: the plain kernels, optimized as the compiler's flags say and no further. */
#ifdef MIRRORTRAIN_DEBUG
#if defined(__NVCC__) && defined(MIRRORTRAIN_IMPLEMENTATION)
#error "mirrortrain.h: nvcc cannot compile MIRRORTRAIN_DEBUG; compile the implementation with gcc or clang"
#undef MIRRORTRAIN_IMPLEMENTATION
#endif
#ifndef MIRRORTRAIN_NO_SIMD
#define MIRRORTRAIN_NO_SIMD
#endif
#endif

/* What is only for training goes with it. */
#if defined(MIRRORTRAIN_NO_TRAIN) && !defined(MIRRORTRAIN_NO_CALLBACKS)
#define MIRRORTRAIN_NO_CALLBACKS
#endif
#if defined(MIRRORTRAIN_NO_TRAIN) && !defined(MIRRORTRAIN_NO_ONNX)
#define MIRRORTRAIN_NO_ONNX
#endif
/* A program that predicts often has its pixels already. */
#if defined(MIRRORTRAIN_NO_TRAIN) && !defined(MIRRORTRAIN_IMAGES) && !defined(MIRRORTRAIN_NO_IMAGES)
#define MIRRORTRAIN_NO_IMAGES
#endif
#if defined(MIRRORTRAIN_IMAGES) && defined(MIRRORTRAIN_NO_IMAGES)
#error "mirrortrain.h: MIRRORTRAIN_IMAGES keeps what MIRRORTRAIN_NO_IMAGES leaves out; define one of them"
#endif
#if defined(MIRRORTRAIN_NO_TRAIN) || defined(MIRRORTRAIN_NO_IMAGES)
#define MIRT__NO_IMAGE_DATASETS
#endif
#if defined(MIRRORTRAIN_NO_CALLBACKS) || defined(MIRRORTRAIN_NO_IMAGES) || defined(MIRRORTRAIN_NO_MODELS) || \
    defined(MIRRORTRAIN_NO_ONNX)
#define MIRT__PARTIAL_BUILD
#endif

/* Training in several processes is compiled by MPI's compiler (mpicc), which finds <mpi.h>, and where MIRRORTRAIN_MPI
   or MIRRORTRAIN_TCP is defined. Other programs train alone; without weak symbols they hold the rest, too, as it is
   called from places that are never reached. */
#if !defined(MIRRORTRAIN_MPI) && !defined(MIRRORTRAIN_TCP) && !defined(MIRRORTRAIN_SPLIT_BUILD) && defined(__ELF__)
#define MIRT__ALONE
#ifdef __has_include
#if __has_include(<mpi.h>)
#undef MIRT__ALONE
#endif
#endif
#endif
#if defined(MIRRORTRAIN_NO_TRAIN) && !defined(MIRT__ALONE)
#define MIRT__ALONE
#endif

/* Functions that a program may lack, and what they return: NULL where they are not there. Linkers that know no weak
   symbols find them, or fail. */
#if defined(__GNUC__) && defined(__ELF__)
#define MIRT__WEAK __attribute__((weak))
#define MIRT__IF_FOUND(function) ((function) ? (function)() : NULL)
#else
#define MIRT__WEAK
#define MIRT__IF_FOUND(function) (function)()
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* MIRRORTRAIN_SHARED: compiled with -fvisibility=hidden, a shared library exports the API and nothing else. */
#ifndef MIRT_API
#if defined(MIRRORTRAIN_STATIC) && defined(__GNUC__)
#define MIRT_API static __attribute__((unused))
#elif defined(MIRRORTRAIN_STATIC)
#define MIRT_API static
#elif defined(MIRRORTRAIN_SHARED) && (defined(_WIN32) || defined(__CYGWIN__)) && defined(MIRRORTRAIN_IMPLEMENTATION)
#define MIRT_API extern __declspec(dllexport)
#elif defined(MIRRORTRAIN_SHARED) && (defined(_WIN32) || defined(__CYGWIN__))
#define MIRT_API extern __declspec(dllimport)
#elif defined(MIRRORTRAIN_SHARED)
#define MIRT_API extern __attribute__((visibility("default")))
#else
#define MIRT_API extern
#endif
#endif

#ifdef __cplusplus
#define MIRT__BEGIN_C extern "C" {
#define MIRT__END_C }
#else
#define MIRT__BEGIN_C
#define MIRT__END_C
#endif

#endif /* MIRT__CONFIGURATION_API_H */
