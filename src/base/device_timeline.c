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

MIRT__LIB void mirt__lane_reset(mirt__lane *lane) {
    memset(lane, 0, sizeof *lane);
    lane->phase = lane->open = MIRT_PHASE_LAUNCH;
    lane->replica = lane->node = -1;
}

MIRT__LIB void mirt__lane_flush(mirt__lane *lane) {
    for (int i = 0; i < MIRT_PHASE_COUNT; i++) lane->total[i] += lane->lap[i];
    memset(lane->lap, 0, sizeof lane->lap);
}

MIRT__LIB void mirt__lane_slice(mirt__lane *lane, const char *name, double begin, double end, int replica) {
    if (lane->slices == lane->most_slices) {
        lane->left_out++;
        return;
    }
    mirt__trace_slice *slice = &lane->slice[lane->slices++];
    slice->begin = begin;
    slice->end = end;
    slice->name = name;
    slice->step = lane->step;
    slice->replica = replica;
}

MIRT__LIB void mirt__lane_lap(mirt__lane *lane, int phase, double now) {
    lane->lap[lane->open] += now - lane->since;
    if (lane->slice)
        mirt__lane_slice(
            lane, lane->open == MIRT__PHASE_FUSED && lane->sum_name ? lane->sum_name : mirt__phase_names[lane->open],
            lane->since, now, lane->replica);
    lane->since = now;
    lane->open = phase;
}

MIRT__LIB void mirt__lane_mark(mirt__lane *lane, int phase, int replica, int node) {
    double now = mirt__now(); /* not const, as clang requires below */
    if (lane->timed) mirt__lane_lap(lane, phase, now);
    const uint32_t number = __atomic_load_n(&lane->events, __ATOMIC_RELAXED);
    mirt__lane_event *event = &lane->event[number % MIRT__LANE_EVENTS];
    __atomic_store(&event->time, &now, __ATOMIC_RELAXED);
    __atomic_store_n(&event->step, lane->step, __ATOMIC_RELAXED);
    __atomic_store_n(&event->phase, phase, __ATOMIC_RELAXED);
    __atomic_store_n(&event->replica, replica, __ATOMIC_RELAXED);
    __atomic_store_n(&event->node, node, __ATOMIC_RELAXED);
    __atomic_store_n(&lane->events, number + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&lane->replica, replica, __ATOMIC_RELAXED);
    __atomic_store_n(&lane->node, node, __ATOMIC_RELAXED);
    __atomic_store_n(&lane->phase, phase, __ATOMIC_RELEASE);
}
