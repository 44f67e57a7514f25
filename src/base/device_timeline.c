/* Records the phases of each device and adds up their seconds. */
#include "device_timeline.h"

static const char *const mirt__phase_names[] = {
#define MIRT__PHASE_NAME(code, text) text,
    MIRT_PHASE_LIST(MIRT__PHASE_NAME)
#undef MIRT__PHASE_NAME
    "all-reduce and update", "waiting for other devices' updates", "reading the next batch"
};

MIRT_API const char *mirt_phase_name(mirt_phase phase) {
    return (int)phase >= 0 && (int)phase < MIRT__PHASES ? mirt__phase_names[phase] : "no phase";
}

MIRT__LIB void mirt__timeline_reset(mirt__device_timeline *timeline) {
    memset(timeline, 0, sizeof *timeline);
    timeline->phase = timeline->open = MIRT_PHASE_LAUNCH;
    timeline->replica = timeline->node = -1;
}

MIRT__LIB void mirt__timeline_flush(mirt__device_timeline *timeline) {
    for (int i = 0; i < MIRT_PHASE_COUNT; i++) timeline->total[i] += timeline->lap[i];
    memset(timeline->lap, 0, sizeof timeline->lap);
}

MIRT__LIB void mirt__timeline_slice(mirt__device_timeline *timeline, const char *name, double begin, double end,
                                    int replica) {
    if (timeline->slices == timeline->most_slices) {
        timeline->left_out++;
        return;
    }
    const mirt__trace_slice slice = {begin, end, name, timeline->step, replica};
    timeline->slice[timeline->slices++] = slice;
}

MIRT__LIB void mirt__timeline_lap(mirt__device_timeline *timeline, int phase, double now) {
    timeline->lap[timeline->open] += now - timeline->since;
    if (timeline->slice)
        mirt__timeline_slice(timeline,
                             timeline->open == MIRT__PHASE_FUSED && timeline->sum_name
                                 ? timeline->sum_name
                                 : mirt__phase_names[timeline->open],
                             timeline->since, now, timeline->replica);
    timeline->since = now;
    timeline->open = phase;
}

MIRT__LIB void mirt__timeline_mark(mirt__device_timeline *timeline, int phase, int replica, int node) {
    double now = mirt__now(); /* not const, as clang requires below */
    if (timeline->timed) mirt__timeline_lap(timeline, phase, now);
    if (MIRT__TRAINS && timeline->recorder) mirt__task_tell(timeline->recorder, MIRT_TASK_PHASE, phase);
    const uint32_t number = __atomic_load_n(&timeline->events, __ATOMIC_RELAXED);
    mirt__timeline_event *event = &timeline->event[number % MIRT__TIMELINE_EVENTS];
    __atomic_store(&event->time, &now, __ATOMIC_RELAXED);
    __atomic_store_n(&event->step, timeline->step, __ATOMIC_RELAXED);
    __atomic_store_n(&event->phase, phase, __ATOMIC_RELAXED);
    __atomic_store_n(&event->replica, replica, __ATOMIC_RELAXED);
    __atomic_store_n(&event->node, node, __ATOMIC_RELAXED);
    __atomic_store_n(&timeline->events, number + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&timeline->replica, replica, __ATOMIC_RELAXED);
    __atomic_store_n(&timeline->node, node, __ATOMIC_RELAXED);
    __atomic_store_n(&timeline->phase, phase, __ATOMIC_RELEASE);
}
