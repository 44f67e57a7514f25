#ifndef MIRT__DEVICE_TIMELINE_H
#define MIRT__DEVICE_TIMELINE_H
/* Device timelines: current phase, latest events and seconds per phase. The clock is read once per phase. */

#include "team.h"

/* Internal phases, whose seconds are distributed over the public phases after each step: the fused pass of reduction
   and update; the wait after it; reading and sending the next batch while the device works. */
enum { MIRT__PHASE_FUSED = MIRT_PHASE_COUNT, MIRT__PHASE_JOIN, MIRT__PHASE_AHEAD, MIRT__PHASES };

/* Points where tests that define MIRT__TEST_POINT(kind, device, number) sleep, stop or inspect; `number` is the step,
   or the replica in a replay. */
enum { MIRT__POINT_STEP, MIRT__POINT_REPLAY, MIRT__POINT_BARRIER, MIRT__POINT_COLLECTIVE, MIRT__POINT_UPDATE };
#ifndef MIRT__TEST_POINT
#define MIRT__TEST_POINT(kind, device, number) ((void)0)
#endif

#define MIRT__TIMELINE_EVENTS 32

typedef struct mirt__timeline_event {
    double time; /* mirt__now() */
    int64_t step;
    int phase, replica, node; /* -1: none */
} mirt__timeline_event;

typedef struct mirt__trace_slice {
    double begin, end;
    const char *name;
    int64_t step;
    int replica; /* -1: none */
} mirt__trace_slice;

/* The timeline of a device. Only its thread writes, or between steps the caller's; any thread may read atomic
   fields. */
typedef struct mirt__device_timeline {
    int phase, replica, node; /* atomic: current position; node: index in the program of the running function */
    int64_t step;             /* atomic: step of training */
    uint32_t events;          /* atomic: number of events so far; event i is at i modulo MIRT__TIMELINE_EVENTS; all
                                 atomic */
    mirt__timeline_event event[MIRT__TIMELINE_EVENTS];
    bool timed;               /* phases add up seconds */
    int open, held_open;      /* the current phase, */
    double since, held_since; /* its start; and the values before an interval that is not counted */
    double begun[2];          /* when work was sent to a device with separate memory, by the step's turn */
    double ended;             /* when the last step that was waited for ended on the device, as far as known */
    double reads;             /* when the caller began to read the next batch */
    double lap[MIRT__PHASES];       /* seconds of this step */
    double total[MIRT_PHASE_COUNT]; /* seconds of the fit, without this step */
    int64_t samples;                /* samples of the fit */
    double least[3]; /* seconds in the best step of the fit: per sample, and of update and exposed all-reduce */
    int64_t slowest;                /* steps in which it computed the longest */
    mirt__trace_slice *slice;        /* NULL: no trace is recorded */
    int64_t slices, most_slices, left_out;
    const char *const *names;        /* names of the nodes of the running function; NULL: no slices for nodes */
    const char *sum_name;            /* name of its pass that reduces gradients and updates, or NULL */
    const mirt__task_recorder *recorder; /* told of phases; NULL: none */
} __attribute__((aligned(MIRT__ALIGN))) mirt__device_timeline;

MIRT__LIB void mirt__timeline_reset(mirt__device_timeline *timeline);
/* The device enters a phase, working for `replica` (-1: none), at node `node` (-1: none). */
MIRT__LIB void mirt__timeline_mark(mirt__device_timeline *timeline, int phase, int replica, int node);
/* Seconds count as `phase` from `now` on; no event is recorded. */
MIRT__LIB void mirt__timeline_lap(mirt__device_timeline *timeline, int phase, double now);
/* Adds this step's seconds to the fit's; seconds of internal phases have been distributed. */
MIRT__LIB void mirt__timeline_flush(mirt__device_timeline *timeline);
/* Adds a slice to the trace, which must exist. */
MIRT__LIB void mirt__timeline_slice(mirt__device_timeline *timeline, const char *name, double begin, double end,
                                    int replica);

#endif
