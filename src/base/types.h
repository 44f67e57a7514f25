#ifndef MIRT__TYPES_H
#define MIRT__TYPES_H
/* What kernels of every backend know of numbers and memory. */

#include "../mirrortrain_api.h"

/* The number type of MIRT_FLOAT32 tensors. Only the gradient tests make it double, and then
   only the reference kernels exist. */
#ifdef MIRT__REAL_DOUBLE
typedef double mirt__real;
#else
typedef float mirt__real;
#endif

#define MIRT__ALIGN 64
#define MIRT__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* How tensors of the mixed policies are stored, of mixed_float16 on devices alone; no dtypes of users. */
#define MIRT__BFLOAT16 MIRT__DTYPE_COUNT
#define MIRT__FLOAT16 (MIRT__DTYPE_COUNT + 1)

#endif
