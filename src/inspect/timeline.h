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

/* --- timing.c --- */
/* As mirt_fit_timing, of a model whose strategy has timed its fit. */
MIRT__LIB void mirt__timing_get(const mirt_model *model, mirt_timing *out);
/* Bytes of memory that the system says the process has, by a line of /proc: "VmHWM:" at most, "VmRSS:" now; 0: it does
   not say. */
MIRT__LIB size_t mirt__process_bytes(const char *line);

/* --- usage.c --- */
/* What devices did between two moments of a fit, for logs. */
typedef struct mirt__device_usage {
    char name[32];
    double busy, input; /* shares of the time: in forward, backward, all-reduce and update; in waiting for input */
    int64_t samples;
    size_t bytes;         /* of its working memory and its copy of the weights */
    mirt__gauges gauges;  /* negative where nothing is known */
} mirt__device_usage;
typedef struct mirt__usage {
    double at;      /* mirt__now() of the later moment; of the fit's beginning before there is one */
    double seconds; /* between the two, without validation */
    double images;  /* per second, of all processes */
    size_t resident, peak; /* bytes of the process; 0: not known */
    int num_devices;
    mirt__device_usage device[MIRT_MAX_DEVICES]; /* of this process */
    struct { /* the fit until the later moment */
        double wall, busy[MIRT_MAX_DEVICES], input[MIRT_MAX_DEVICES];
        int64_t samples[MIRT_MAX_DEVICES], images;
    } so_far;
} mirt__usage;

/* A fit begins. images: that the run was trained on so far, here and below. */
MIRT__LIB void mirt__usage_begin(mirt__usage *self, int64_t images);
/* The time since the last call. False: no step was trained in it. */
MIRT__LIB bool mirt__usage_take(mirt__usage *self, const mirt_model *model, int64_t images);
/* In the middle of an epoch: whether the last call is long ago. */
MIRT__LIB bool mirt__usage_due(const mirt__usage *self);

/* --- trace.c --- */
/* Gives the function's operations names, if there is a trace that has none for them yet. */
MIRT__LIB mirt_status mirt__trace_ready(mirt_function *function);
/* The function is about to run while there is a trace. */
MIRT__LIB void mirt__trace_function(const mirt_function *function);

/* --- profile.c --- */
/* Before a step: the function has clocks when its model is profiled, otherwise none. */
MIRT__LIB mirt_status mirt__clocks_ready(mirt_function *function);

/* Bytes that a node reads and writes. */
MIRT__LIB double mirt__node_bytes(const mirt__node *node, int64_t rows);

/* --- tasks.c --- */
/* As what a step tells of every node while tasks are recorded; user: the strategy's recorder. */
MIRT__LIB void mirt__tasks_node(void *user, const mirt__call *call, int node);

/* --- verdict.c --- */
/* Fills the bottleneck, and what belongs to it, of the numbers above. */
MIRT__LIB void mirt__verdict(mirt_timing *timing);

#endif
