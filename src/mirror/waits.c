#include "step.h"
/* Waits for a device's work in a step, and counts its seconds. */

/* The signals that tell stages of a step apart: the next step may be launched before the seconds of this one are
   asked for. */
static int mirt__timing_event(const mirt__step *step, int stage) { return 4 * (step->turn + 1) + stage; }

MIRT__LIB void mirt__step_mark(const mirt__step *step, int device, int phase, int replica, int node) {
    mirt__timeline_mark(&step->strategy->timeline[device], phase, replica, node);
}

/* >>captured work */

static bool mirt__step_captured(const mirt__step *step, int device) {
    return step->captures && step->program.num_cuts == 0 && !step->clocks && !step->look &&
           !step->strategy->timeline[device].names;
}

MIRT__LIB void mirt__step_begin(const mirt__step *step, int device, int part) {
    const mirt_strategy *s = step->strategy;
    /* it contains reductions, or it starts averages */
    const bool other = part == 0 ? step->overlaps : part == 1 && step->info.step == 0;
    const uint64_t scale = step->float16 ? (uint64_t)(ilogb(step->info.gradient_scale) & 63) : 0;
    if (mirt__step_captured(step, device))
        s->backend->begin(s->device[device].handle, step->owner,
                          ((uint64_t)step->rows * 8 + (uint64_t)part * 2 + other) * 64 + scale);
}

MIRT__LIB bool mirt__step_end(const mirt__step *step, int device) {
    const mirt_strategy *s = step->strategy;
    return !mirt__step_captured(step, device) || s->backend->end(s->device[device].handle);
}

/* >>clocks of devices that queue their work */

MIRT__TRAINING_LIB void mirt__step_clock(const mirt__step *step, int device, int stage) {
    const mirt_strategy *s = step->strategy;
    mirt__device_timeline *timeline = &s->timeline[device];
    if (!timeline->timed) return;
    if (stage == 0) timeline->begun[step->turn] = mirt__now();
    s->backend->signal(s->device[device].handle, mirt__timing_event(step, stage));
}

/* Seconds of the step's stages by phase; returns their sum. Two thirds of a training replica's are its backward part.
 */
MIRT__TRAINING double mirt__stage_seconds(const mirt__step *step, int device, double seconds[4]) {
    const mirt_strategy *s = step->strategy;
    double sum = 0;
    memset(seconds, 0, 4 * sizeof *seconds);
    for (int stage = 1; stage < 4 && (stage == 1 || mirt__step_updates(step)); stage++) {
        const double took =
            s->backend->seconds(s->device[device].handle, mirt__timing_event(step, stage - 1),
                                mirt__timing_event(step, stage));
        if (!(took > 0)) continue;
        if (stage > 1 || step->program.first_gradient < 0) seconds[stage == 1 ? 0 : stage] = took;
        else seconds[0] = took / 3, seconds[1] = took * 2 / 3;
        sum += took;
    }
    return sum;
}

/* The seconds of a wait are those of the device's stages, in the order in which they ended, and so are those of reading
   the next batch in which the device was still at work. */
MIRT__TRAINING void mirt__stages_count(const mirt__step *step, int device, double from, double to) {
    static const int phase[] = {MIRT_PHASE_FORWARD, MIRT_PHASE_BACKWARD, MIRT_PHASE_REDUCE, MIRT_PHASE_UPDATE};
    mirt__device_timeline *timeline = &step->strategy->timeline[device];
    double seconds[4], at = from;
    const double sum = mirt__stage_seconds(step, device, seconds);
    if (!(sum > 0)) return;
    for (int i = 0; i < 4; i++) {
        if (!(seconds[i] > 0)) continue;
        mirt__timeline_lap(timeline, phase[i], at);
        at += (to - from) * seconds[i] / sum;
    }
    const double begun = timeline->begun[step->turn], end = (begun > timeline->ended ? begun : timeline->ended) + sum,
                 ahead = timeline->lap[MIRT__PHASE_AHEAD], work = end - timeline->reads,
                 hidden = work > ahead ? ahead
                          : work > 0   ? work
                                       : 0;
    timeline->ended = end < to ? end : to;
    for (int i = 0; i < 4; i++) timeline->lap[phase[i]] += hidden * seconds[i] / sum;
    timeline->lap[MIRT__PHASE_AHEAD] -= hidden;
    mirt__step_mark(step, device, MIRT__PHASE_JOIN, -1, -1);
}

/* >>waits */

static bool mirt__step_wait(mirt__step *step, int device, mirt_status (*wait)(mirt__handle *handle)) {
    const mirt_strategy *s = step->strategy;
    const bool timed = s->timeline[device].timed;
    const double from = timed ? mirt__now() : 0;
    int none = MIRT_OK;
    const mirt_status status = wait(s->device[device].handle);
    if (MIRT__TRAINS && timed && status == MIRT_OK) mirt__stages_count(step, device, from, mirt__now());
    if (status == MIRT_OK) return true;
    if (__atomic_compare_exchange_n(&step->device_status, &none, (int)status, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        if (MIRT__PEERS(s)) mirt__peers_blame(step->strategy);
        mirt__error_get(&step->strategy->device_error);
        step->device_failed = device;
    }
    return false;
}

MIRT__LIB bool mirt__step_finish(mirt__step *step, int device) {
    return mirt__step_wait(step, device, step->strategy->backend->wait);
}

MIRT__LIB bool mirt__step_finish_marked(mirt__step *step, int device) {
    return mirt__step_wait(step, device, step->strategy->backend->wait_mark);
}

MIRT__LIB mirt_status mirt__step_failure(mirt__step *step) {
    mirt_strategy *s = step->strategy;
    const int status = __atomic_load_n(&step->device_status, __ATOMIC_ACQUIRE);
    if (status == MIRT_OK) return MIRT_OK;
    step->device_status = MIRT_OK;
    mirt__error_set(&s->device_error);
    if (step->device_failed >= 0) mirt__fail_at("device %s", s->device[step->device_failed].name);
    if (!s->lost[0]) snprintf(s->lost, sizeof s->lost, "%s", mirt_last_error());
    return mirt_last_status();
}
