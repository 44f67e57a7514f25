#ifndef MIRT__REFERENCE_H
#define MIRT__REFERENCE_H
/* The reference kernels: every kernel as its formula, one thread, plain loops. Read these first. The fast tables are
   tested against them, and gradients are tested with them, built with mirt__real as double. Long sums use double. */

#include "kernels.h"

/* The C library's function of mirt__real. */
#ifdef MIRT__REAL_DOUBLE
#define MIRT__MATH(name) name
#else
#define MIRT__MATH(name) name##f
#endif
#define mirt__exp MIRT__MATH(exp)
#define mirt__log1p MIRT__MATH(log1p)
#define mirt__ln MIRT__MATH(log)
#define mirt__tanh MIRT__MATH(tanh)
#define mirt__sqrt MIRT__MATH(sqrt)
#define mirt__fabs MIRT__MATH(fabs)
#define mirt__fma MIRT__MATH(fma)
#define mirt__expm1 MIRT__MATH(expm1)
#define mirt__erfc MIRT__MATH(erfc)
#define mirt__pow MIRT__MATH(pow)
#define mirt__floor MIRT__MATH(floor)

/* A table that select.c names: static in the single header, extern otherwise. */
#ifdef MIRRORTRAIN_SPLIT_BUILD
#define MIRT__KERNEL_TABLE const
extern const mirt__kernels mirt__kernels_reference;
#else
#define MIRT__KERNEL_TABLE static const
#endif

/* An activation (not softmax), its derivative as a function of the activation's output (relu, relu6, sigmoid, tanh),
   and as a function of its input (all). */
MIRT__LIB mirt__real mirt__ref_activate(mirt_activation_kind kind, mirt__real x);
MIRT__LIB mirt__real mirt__ref_derivative(mirt_activation_kind kind, mirt__real y);
MIRT__LIB mirt__real mirt__ref_slope(mirt_activation_kind kind, mirt__real x);

/* The offset, with these strides, of the element at row-major position `at` of `dim`. */
MIRT__LIB int64_t mirt__ref_offset(int64_t at, int rank, const int64_t *dim, const int64_t *stride);

#define MIRT__KERNEL_DECLARE(name, arguments, fast, use) \
    MIRT__ABSENT_LIB void mirt__ref_##name(const mirt__##arguments *args);
MIRT__KERNEL_LIST(MIRT__KERNEL_DECLARE)
#undef MIRT__KERNEL_DECLARE
/* These two are the same for every table. */
MIRT__LIB void mirt__ref_fill(mirt__real *y, mirt__real value, int64_t count, const mirt__where *where);
MIRT__LIB void mirt__ref_constant(void *y, const void *data, size_t bytes, const mirt__where *where);
MIRT__LIB void mirt__ref_accumulate(mirt__real *into, const mirt__real *from, int64_t count, const mirt__where *where);
/* An optimizer's update: what is taken off the weight of element i, whose gradient is g; changes its slots. */
typedef mirt__real (*mirt__ref_step)(const mirt__update *u, int64_t i, mirt__real g, mirt__real weight);
#define MIRT__REF_STEP(name) \
    mirt__real mirt__ref_##name(const mirt__update *u, int64_t i, mirt__real g, mirt__real weight)
#define MIRT__REF_DECLARE(kind, name, kernel) MIRT__ABSENT_LIB MIRT__REF_STEP(kernel);
MIRT_OPTIMIZER_LIST(MIRT__REF_DECLARE)
#undef MIRT__REF_DECLARE
MIRT__ABSENT_LIB void mirt__ref_update_by(const mirt__update *u, mirt__ref_step step);

#endif
