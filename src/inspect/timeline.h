#ifndef MIRT__TIMELINE_H
#define MIRT__TIMELINE_H
/* The seconds of a fit, by device and phase. */
#include "../function/function.h"

/* From now on the strategy's steps are measured for whoever wants it: the clocks of a profile, a trace, a fit. */
MIRT__LIB void mirt__measure(mirt_strategy *strategy);

/* A fit begins: no seconds yet. */
MIRT__LIB void mirt__timing_reset(mirt_model *model);
/* They count, as launch overhead at first; and no longer. */
MIRT__LIB void mirt__timing_start(mirt_model *model);
MIRT__LIB void mirt__timing_stop(mirt_model *model);
/* While no device runs: all are at `phase` until the next one. */
MIRT__LIB void mirt__timing_phase(const mirt_model *model, mirt_phase phase);
/* Seconds of the fit so far in a phase, the mean over devices; 0 where another model's seconds are counted. */
MIRT__LIB double mirt__timing_seconds(const mirt_model *model, mirt_phase phase);

/* --- trace.c --- */
/* Gives the function's operations names, if there is a trace that has none for them yet. */
MIRT__LIB mirt_status mirt__trace_ready(mirt_function *function);
/* The function is about to run while there is a trace. */
MIRT__LIB void mirt__trace_function(const mirt_function *function);

/* --- profile.c --- */
/* Before a step: the function has clocks when its model is profiled, otherwise none. */
MIRT__LIB mirt_status mirt__clocks_ready(mirt_function *function);

/* --- verdict.c --- */
/* Fills the bottleneck, and what belongs to it, of the numbers above. */
MIRT__LIB void mirt__verdict(mirt_timing *timing);

#endif
