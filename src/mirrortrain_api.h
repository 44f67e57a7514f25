/* mirrortrain.h - v0.1.0 - train image networks in C, mirrored over all devices of a machine
   No warranty; public domain or MIT, as you like: see the end of this file.

   Do this:
       #define MIRRORTRAIN_IMPLEMENTATION
   before you include this file in *one* C or C++ file, ahead of that file's
   other includes, to create the implementation:
       #define MIRRORTRAIN_IMPLEMENTATION
       #include "mirrortrain.h"
   All other files include it without the define. Then:
       cc -O2 program.c -o program -lm -lpthread

@MANUAL@
*/
#if defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ < 8 && !defined(__wasm__)
#error "mirrortrain.h: addresses of 64 bits are required; compile without -m32"
#define MIRRORTRAIN_H
#undef MIRRORTRAIN_IMPLEMENTATION
#elif defined(__BYTE_ORDER__) && defined(__ORDER_BIG_ENDIAN__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "mirrortrain.h: a little-endian processor is required; tensors are read from files in place"
#define MIRRORTRAIN_H
#undef MIRRORTRAIN_IMPLEMENTATION
#endif

#ifndef MIRRORTRAIN_H
#define MIRRORTRAIN_H

#define MIRT_VERSION_MAJOR 0
#define MIRT_VERSION_MINOR 1
#define MIRT_VERSION_PATCH 0
#define MIRT_VERSION_STRING "0.1.0"

#include "api/configuration_api.h"
#include "api/basics_api.h"
#include "api/strategy_api.h"
#include "api/data_api.h"
#include "api/images_api.h"
#include "api/models_api.h"
#include "api/augment_api.h"
#include "api/optimizers_api.h"
#include "api/compile_api.h"
#include "api/callbacks_api.h"
#include "api/training_api.h"
#include "api/functions_api.h"
#include "api/files_api.h"
#include "api/inspection_api.h"
#include "api/timing_api.h"
#include "api/checks_api.h"

#endif /* MIRRORTRAIN_H */

/* A system header that was included before this one has hidden the POSIX names. */
#if defined(MIRRORTRAIN_IMPLEMENTATION) && !defined(MIRRORTRAIN_IMPLEMENTED)
#include <time.h>
#ifndef CLOCK_MONOTONIC
#error "mirrortrain.h: with -std=c11 include it before any system header, or define _POSIX_C_SOURCE as 200809L"
#undef MIRRORTRAIN_IMPLEMENTATION
#endif
#endif
