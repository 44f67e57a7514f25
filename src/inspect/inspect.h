#ifndef MIRT__INSPECT_H
#define MIRT__INSPECT_H
/* What a model needs and is about to do: plans, summaries, warnings. */
#include "../function/fit_program.h"

/* --- inspect.c --- */
/* The training step without memory, or of a model without a loss the one that predicts; free with
   mirt__function_free. */
MIRT__LIB mirt_function *mirt__inspect_plan(mirt_model *model, int64_t batch, const char *caller);
/* There is no memory for batches of `batch`: the error says which there is memory for. */
MIRT__LIB void mirt__say_what_fits(mirt_model *model, const mirt__data_spec *spec, int64_t batch);
MIRT__LIB void mirt__memory_of(const mirt_model *model, const mirt_function *function, mirt_memory *out);
/* "1.40 MB", "812 bytes". */
MIRT__LIB mirt__phrase mirt__bytes_text(double bytes);

/* --- traps.c --- */
/* Told once: what fit is about to do on data like these with this function, */
MIRT__LIB void mirt__traps_before(mirt_model *model, const mirt__data_spec *spec, const mirt_function *function);
/* Warns once per model of frozen weights that are still the initializers' random numbers. */
MIRT__LIB void mirt__trap_random(const mirt_model *model);
/* and what is wrong with its first batch. */
MIRT__LIB void mirt__traps_in_batch(const mirt_model *model, const mirt__data_spec *spec, const mirt__batch *batch);

#endif
