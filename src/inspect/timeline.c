#include "timeline.h"
/* Counts the seconds of steps and of a fit, by device and phase. */

static bool mirt__timelines_counted(const mirt_function *f) {
    return f->counted && f->model->strategy->timing == f->model;
}

static void mirt__timelines_begin(mirt_function *f) {
    mirt_strategy *s = f->model->strategy;
    const bool counted = mirt__timelines_counted(f), timed = counted || f->step.clocks || s->trace;
    const double now = timed && !counted ? mirt__now() : 0;
    if (s->trace) mirt__trace_function(f);
    if (s->recorder.fn && !f->step.look) {
        f->step.look = mirt__tasks_node;
        f->step.look_user = (char *)&s->recorder;
        f->step.look_bytes = 0;
    }
    for (int d = 0; d < s->num_devices; d++) {
        mirt__device_timeline *timeline = &s->timeline[d];
        timeline->timed = timed;
        if (counted || !timed) continue;
        mirt__timeline_flush(timeline);
        timeline->held_since = timeline->since;
        timeline->held_open = timeline->open;
        timeline->since = now;
        timeline->open = MIRT_PHASE_LAUNCH;
    }
}

static void mirt__timelines_ahead(const mirt_function *f) {
    mirt_strategy *s = f->model->strategy;
    const double now = mirt__now();
    for (int d = 0; d < s->num_devices && s->timeline[0].timed; d++) {
        s->timeline[d].reads = now;
        mirt__timeline_lap(&s->timeline[d], MIRT__PHASE_AHEAD, now);
    }
}

/* Of the pass that adds up gradients and updates, the all-reduce is the bytes that it has because of other parts and
   copies. */
static double mirt__reduce_share(const mirt_function *f) {
    mirt__exchange x;
    mirt__step_plan(&f->step, 0, &x);
    const double more = x.parts - 1 + mirt__written_copies(f->model->strategy) - 1;
    /* gradient and weight read, weight written */
    return more / (more + 3 + 2 * mirt__slots(&f->model->config));
}

/* A device that waited after its update did so for the last device, which was adding up or updating; what it waited
   beyond that is imbalance: the last one began late, as a wake-up may cost more than the pass. */
static void mirt__timelines_deal(const mirt_function *f) {
    const mirt_strategy *s = f->model->strategy;
    const double share = f->step.num_ranges ? mirt__reduce_share(f) : 0;
    const mirt__device_timeline *last = &s->timeline[0];
    for (int d = 0; d < s->num_devices; d++) {
        double *lap = s->timeline[d].lap;
        lap[MIRT_PHASE_REDUCE] += share * lap[MIRT__PHASE_FUSED];
        lap[MIRT_PHASE_UPDATE] += (1 - share) * lap[MIRT__PHASE_FUSED];
        if (lap[MIRT__PHASE_JOIN] < last->lap[MIRT__PHASE_JOIN]) last = &s->timeline[d];
    }
    const double reduce = last->lap[MIRT_PHASE_REDUCE], update = last->lap[MIRT_PHASE_UPDATE], both = reduce + update;
    for (int d = 0; d < s->num_devices; d++) {
        double *lap = s->timeline[d].lap, wait = lap[MIRT__PHASE_JOIN];
        if (both > 0) {
            const double part = wait < both ? wait / both : 1;
            lap[MIRT_PHASE_REDUCE] += part * reduce;
            lap[MIRT_PHASE_UPDATE] += part * update;
            wait -= part * both;
        }
        lap[MIRT_PHASE_IMBALANCE] += wait > 0 ? wait : 0;
        lap[MIRT_PHASE_INPUT] += lap[MIRT__PHASE_AHEAD]; /* what the device's work did not hide */
        lap[MIRT__PHASE_FUSED] = lap[MIRT__PHASE_JOIN] = lap[MIRT__PHASE_AHEAD] = 0;
    }
}

static void mirt__least(double *least, double value) {
    if (*least == 0 || value < *least) *least = value;
}

/* A step of the fit is over. */
static void mirt__timelines_count(const mirt_function *f) {
    mirt_strategy *s = f->model->strategy;
    double longest = 0;
    int slowest = 0;
    s->timed_steps++;
    for (int d = 0; d < s->num_devices; d++) {
        mirt__device_timeline *timeline = &s->timeline[d];
        int64_t begin, end;
        int first, count = mirt__device_replicas(s, f->step.replicas, d, &first);
        const double seconds = timeline->lap[MIRT_PHASE_FORWARD] + timeline->lap[MIRT_PHASE_BACKWARD];
        mirt__share(f->step.rows, f->step.replicas, first, &begin);
        mirt__share(f->step.rows, f->step.replicas, first + count, &end);
        timeline->samples += end - begin;
        if (end > begin) mirt__least(&timeline->least[0], seconds / (double)(end - begin));
        mirt__least(&timeline->least[1], timeline->lap[MIRT_PHASE_UPDATE]);
        mirt__least(&timeline->least[2], timeline->lap[MIRT_PHASE_REDUCE]);
        if (seconds > longest) longest = seconds, slowest = d;
    }
    s->timeline[slowest].slowest++;
}

static void mirt__timelines_end(mirt_function *f) {
    mirt_strategy *s = f->model->strategy;
    const bool counted = mirt__timelines_counted(f), timed = s->timeline[0].timed;
    if (f->step.look == mirt__tasks_node) f->step.look = NULL;
    for (int d = 0; d < s->num_devices; d++) s->timeline[d].timed = false;
    if (!timed) return;
    mirt__timelines_deal(f);
    if (f->step.clocks) {
        f->step.clocks->wait += s->timeline[0].lap[MIRT_PHASE_IMBALANCE];
        f->step.clocks->update += s->timeline[0].lap[MIRT_PHASE_UPDATE] + s->timeline[0].lap[MIRT_PHASE_REDUCE];
    }
    if (counted) mirt__timelines_count(f);
    for (int d = 0; d < s->num_devices && !counted; d++) {
        mirt__device_timeline *timeline = &s->timeline[d];
        memset(timeline->lap, 0, sizeof timeline->lap);
        timeline->since = timeline->held_since;
        timeline->open = timeline->held_open;
    }
}

static mirt_status mirt__measure_ready(mirt_function *f) {
    return mirt__clocks_ready(f) == MIRT_OK ? mirt__trace_ready(f) : mirt_last_status();
}

MIRT__LIB void mirt__measure(mirt_strategy *s) {
    static const mirt__observer observer = {mirt__measure_ready, mirt__timelines_begin, mirt__timelines_ahead,
                                            mirt__timelines_end};
    s->observer = &observer;
}

/* >>a fit */

MIRT__LIB void mirt__timing_reset(mirt_model *model) {
    mirt_strategy *s = model->strategy;
    s->timed = model;
    s->timed_wall = 0;
    s->timed_steps = 0;
    for (int d = 0; d < s->num_devices; d++) {
        mirt__device_timeline *timeline = &s->timeline[d];
        memset(timeline->total, 0, sizeof timeline->total);
        memset(timeline->lap, 0, sizeof timeline->lap);
        memset(timeline->least, 0, sizeof timeline->least);
        timeline->samples = timeline->slowest = 0;
    }
}

MIRT__LIB void mirt__timing_start(mirt_model *model) {
    mirt_strategy *s = model->strategy;
    mirt__measure(s);
    s->timing = s->timed = model;
    s->timed_since = mirt__now();
    for (int d = 0; d < s->num_devices; d++) {
        s->timeline[d].since = s->timed_since;
        s->timeline[d].open = MIRT_PHASE_LAUNCH;
    }
}

MIRT__LIB void mirt__timing_phase(const mirt_model *model, mirt_phase phase) {
    mirt_strategy *s = model->strategy;
    if (s->timing != model) return;
    const double now = mirt__now();
    for (int d = 0; d < s->num_devices; d++) {
        mirt__timeline_lap(&s->timeline[d], (int)phase, now);
        if (phase != MIRT_PHASE_INPUT) continue;
        mirt__timeline_flush(&s->timeline[d]); /* a step begins */
        __atomic_store_n(&s->timeline[d].step, model->step, __ATOMIC_RELAXED);
    }
}

MIRT__LIB double mirt__timing_seconds(const mirt_model *model, mirt_phase phase) {
    const mirt_strategy *s = model->strategy;
    double seconds = 0;
    if (s->timing != model) return 0;
    for (int d = 0; d < s->num_devices; d++) seconds += s->timeline[d].total[phase] + s->timeline[d].lap[phase];
    return seconds / s->num_devices;
}

MIRT__LIB void mirt__timing_stop(mirt_model *model) {
    mirt_strategy *s = model->strategy;
    if (s->death) return;
    mirt__timing_phase(model, MIRT_PHASE_LAUNCH);
    s->timed_wall += mirt__now() - s->timed_since;
    s->timing = NULL;
    for (int d = 0; d < s->num_devices; d++) mirt__timeline_flush(&s->timeline[d]);
}
