#ifndef MIRT__DEVICE_TIMELINE_H
#define MIRT__DEVICE_TIMELINE_H
/* Device timelines: current phase, latest events and seconds per phase. The clock is read once per phase. */

#include "base.h"

/* Internal phases, whose seconds are distributed over the public phases after each step: the fused pass of reduction
   and update; the wait after it; reading and sending the next batch while the device works. */
enum { MIRT__PHASE_FUSED = MIRT_PHASE_COUNT, MIRT__PHASE_JOIN, MIRT__PHASE_AHEAD, MIRT__PHASES };

/* Where tests that define MIRT__TEST_POINT(kind, device, number) sleep, stop or look; `number` is the step, of a replay
   the replica. */
enum { MIRT__POINT_STEP, MIRT__POINT_REPLAY, MIRT__POINT_BARRIER, MIRT__POINT_COLLECTIVE, MIRT__POINT_UPDATE };
#ifndef MIRT__TEST_POINT
#define MIRT__TEST_POINT(kind, device, number) ((void)0)
#endif

#define MIRT__LANE_EVENTS 32

typedef struct mirt__lane_event {
    double time; /* mirt__now() */
    int64_t step;
    int phase, replica, node; /* -1: none */
} mirt__lane_event;

typedef struct mirt__trace_slice {
    double begin, end;
    const char *name;
    int64_t step;
    int replica; /* -1: none */
} mirt__trace_slice;

/* A device's. Its thread alone writes, between steps the caller's; any thread may read what is atomic. */
typedef struct mirt__lane {
    int phase, replica, node; /* atomic: where it is; node: of the function under way, in the order of its program */
    int64_t step;             /* atomic: of training */
    uint32_t events;          /* atomic: so far; event number i is in its place modulo MIRT__LANE_EVENTS, all atomic */
    mirt__lane_event event[MIRT__LANE_EVENTS];
    bool timed;               /* marks add up seconds */
    int open, held_open;      /* the phase whose seconds are running, */
    double since, held_since; /* from here on; and as they were before something that is not counted */
    double begun;             /* when a device of memory of its own was given its work */
    double lap[MIRT__PHASES];       /* seconds of this step */
    double total[MIRT_PHASE_COUNT]; /* of the fit, without this step */
    int64_t samples;                /* of the fit */
    double least[3]; /* seconds in the best step of the fit: of a sample, of update and exposed all-reduce */
    int64_t slowest;                /* steps in which it computed longest */
    mirt__trace_slice *slice;        /* NULL: no trace is being made */
    int64_t slices, most_slices, left_out;
    const char *const *names;        /* of the nodes of the function under way, NULL: they make no slices */
    const char *sum_name;            /* of its pass that adds up gradients and updates, or NULL */
} __attribute__((aligned(MIRT__ALIGN))) mirt__lane;

MIRT__LIB void mirt__lane_reset(mirt__lane *lane);
/* The device enters a phase, at work for `replica` (-1: none), at node `node` (-1: none). */
MIRT__LIB void mirt__lane_mark(mirt__lane *lane, int phase, int replica, int node);
/* Seconds count as `phase` from `now` on, without an event. */
MIRT__LIB void mirt__lane_lap(mirt__lane *lane, int phase, double now);
/* Adds this step's seconds to the fit's; those that are not for users have been dealt out. */
MIRT__LIB void mirt__lane_flush(mirt__lane *lane);
/* A slice of the trace, which there is. */
MIRT__LIB void mirt__lane_slice(mirt__lane *lane, const char *name, double begin, double end, int replica);

#endif
