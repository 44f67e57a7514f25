#include "timeline.h"
/* What the seconds of a fit say, in words: a function of the numbers alone. */

enum { MIRT__LEAST_STEPS = 5 };

/* Of the mean step. */
typedef struct mirt__costs {
    double wall, compute, input, update, reduce, meet, other; /* meet: starting, and waiting for each other */
    double rows;                                              /* of a replica */
    double least, least_sample, fixed;                        /* in the best step: computing, a sample of it; update and
                                                                 all-reduce */
} mirt__costs;

static double mirt__timing_compute(const double *seconds) {
    return seconds[MIRT_PHASE_FORWARD] + seconds[MIRT_PHASE_BACKWARD] + seconds[MIRT_PHASE_REDUCE_HIDDEN];
}

static void mirt__costs_of(const mirt_timing *t, mirt__costs *c) {
    const double steps = (double)t->steps, *s = t->seconds;
    int replicas = 0;
    memset(c, 0, sizeof *c);
    c->wall = t->wall / steps;
    c->compute = mirt__timing_compute(s) / steps;
    c->input = s[MIRT_PHASE_INPUT] / steps;
    c->update = s[MIRT_PHASE_UPDATE] / steps;
    c->reduce = s[MIRT_PHASE_REDUCE] / steps;
    c->meet = (s[MIRT_PHASE_LAUNCH] + s[MIRT_PHASE_IMBALANCE]) / steps;
    c->other = s[MIRT_PHASE_CALLBACKS] / steps;
    c->least_sample = DBL_MAX;
    for (int d = 0; d < t->num_devices; d++) {
        const mirt_device_timing *own = &t->device[d];
        replicas += own->replicas;
        const double work = own->least_sample * (double)own->samples / steps,
                     fixed = own->least_update + own->least_reduce;
        if (work > c->least) c->least = work;
        if (own->samples && own->least_sample < c->least_sample) c->least_sample = own->least_sample;
        if (fixed > c->fixed) c->fixed = fixed;
    }
    c->rows = (double)t->samples / steps / replicas; /* samples and devices are those of this process */
}

/* Appends to the verdict. */
#define MIRT__SAY(t, ...) mirt__line_add((t)->verdict, sizeof (t)->verdict, __VA_ARGS__)

/* Takes the place of a cause that holds up less. */
static void mirt__blame(mirt_timing *t, mirt_bottleneck kind, double lost, double wall) {
    if (lost <= t->share * wall) return;
    t->bottleneck = kind;
    t->share = lost / wall;
    t->speedup = lost < wall ? 1 / (1 - t->share) : 1;
}

/* Seconds of a step that others wait for device `d`: because a sample takes it longer (`slow`), or because it has more
   of them. */
static double mirt__held_up(const mirt_timing *t, int d, bool *slow, double *times) {
    double others = 0, samples = 0, own = mirt__timing_compute(t->device[d].seconds);
    for (int k = 0; k < t->num_devices; k++) {
        if (k == d) continue;
        others += mirt__timing_compute(t->device[k].seconds);
        samples += (double)t->device[k].samples;
    }
    if (t->num_devices < 2 || others <= 0 || !t->device[d].samples) return 0;
    *times = own / (double)t->device[d].samples / (others / samples);
    *slow = *times > 1.2;
    return (own - others / (t->num_devices - 1)) / (double)t->steps;
}

static void mirt__blame_devices(mirt_timing *t, const mirt__costs *c) {
    for (int d = 0; d < t->num_devices; d++) {
        bool slow = false;
        double times, lost = mirt__held_up(t, d, &slow, &times);
        const bool always = t->device[d].slowest * 10 > t->steps * 6;
        const double mean = (double)t->samples / t->num_devices;
        if (lost < 0.08 * c->wall || !always) continue;
        if (slow) {
            mirt__blame(t, MIRT_SLOW_DEVICE, lost, c->wall);
            if (t->bottleneck == MIRT_SLOW_DEVICE && t->share == lost / c->wall) t->culprit = d;
        } else if ((double)t->device[d].samples > 1.1 * mean) {
            mirt__blame(t, MIRT_UNEVEN_SHARES, lost, c->wall);
        }
    }
}

/* What a step costs whatever its batch; in part of the best step's seconds, which a busy machine does not change. */
static void mirt__blame_size(mirt_timing *t, const mirt__costs *c) {
    const double large = 256, brief = 300e-6, nothing = 60e-6; /* rows a replica; seconds beside which meeting is
                                                                  nothing, and which are */
    const double lost = c->wall - c->compute - c->input - c->other;
    const bool small_model = c->least_sample * large < brief;
    if (lost < 0.2 * c->wall && !(small_model && c->least < nothing && t->num_devices > 1)) return;
    if (small_model && t->num_devices > 1) mirt__blame(t, MIRT_SMALL_MODEL, lost, c->wall);
    else if (small_model || (c->rows <= large / 2 && c->fixed > 0.25 * (c->fixed + c->least)))
        mirt__blame(t, MIRT_SMALL_BATCH, lost, c->wall);
    else if (c->rows <= 16 && c->least < 1e-3 && lost > 0.3 * c->wall) mirt__blame(t, MIRT_SMALL_BATCH, lost, c->wall);
}

/* Rows of a replica with which what is lost is a tenth, as a power of two; at least twice the present number. */
static double mirt__better_rows(const mirt__costs *c, double lost) {
    const double wanted = c->compute > 0 ? c->rows * 9 * lost / c->compute : c->rows;
    double rows = 2;
    while (rows < 2 * c->rows || (rows < 256 && rows < wanted)) rows *= 2;
    return rows;
}

static void mirt__verdict_input(mirt_timing *t, const mirt__costs *c) {
    const double left = c->wall - c->input, rows = (double)t->samples / (double)t->steps;
    const int needed = left > 0 && t->sample_seconds > 0 ? (int)ceil(t->sample_seconds * rows / left) : 0;
    MIRT__SAY(t, "input-bound: %.0f %% of the step waits for %s; ", 100 * t->share, t->input);
    if (!t->ahead) MIRT__SAY(t, "nothing is made ahead: mirt_prefetch behind mirt_batch");
    else if (!t->parallel)
        MIRT__SAY(t, "one thread makes the samples, as a stream must: keep them in memory (mirt_cache), or take "
                     "samples that can be reached in any order");
    else if (needed <= t->workers)
        MIRT__SAY(t, "%d worker%s, which wait for something themselves: keep what they make in memory (mirt_cache)",
                  t->workers, t->workers == 1 ? "" : "s");
    else if (needed > t->cores)
        MIRT__SAY(t, "%d worker%s, %d would do, but there %s %d core%s: keep what is made in memory (mirt_cache)",
                  t->workers, t->workers == 1 ? "" : "s", needed, t->cores == 1 ? "is" : "are", t->cores,
                  t->cores == 1 ? "" : "s");
    else MIRT__SAY(t, "%d worker%s, %d would do", t->workers, t->workers == 1 ? "" : "s", needed);
}

static void mirt__verdict_batch(mirt_timing *t, const mirt__costs *c) {
    const double lost = t->share * c->wall, rows = mirt__better_rows(c, lost);
    t->speedup = c->wall / (lost * c->rows / rows + c->compute + c->input + c->other);
    MIRT__SAY(t,
              "batch %.3g per replica is too small: %.0f %% of the step takes as long for any batch (update, "
              "all-reduce, starting and waiting); %.0f per replica would spread it",
              c->rows, 100 * t->share, rows);
}

static void mirt__verdict_model(mirt_timing *t, const mirt__costs *c) {
    const double start = 10e-6, one = c->compute * t->num_devices + c->update + c->input + c->other + start;
    t->speedup = c->wall > one ? c->wall / one : 1;
    MIRT__SAY(t,
              "model too small for %d devices: each computes for %.3g ms of a step of %.3g ms, the rest is updating, "
              "starting and waiting for each other; %s",
              t->num_devices, 1e3 * c->compute, 1e3 * c->wall,
              t->speedup > 1.1 ? "one device would do" : "a larger batch gives them more to do");
}

static void mirt__verdict_device(mirt_timing *t) {
    bool slow;
    double times = 1;
    mirt__held_up(t, t->culprit, &slow, &times);
    MIRT__SAY(t,
              "device %s is slow: it takes %.1f times as long for a sample as the others, which wait for it %.0f %% of "
              "the step",
              t->device[t->culprit].name, times, 100 * t->share);
}

static void mirt__verdict_uneven(mirt_timing *t) {
    int most = 0;
    for (int d = 1; d < t->num_devices; d++) most = t->device[d].samples > t->device[most].samples ? d : most;
    MIRT__SAY(t,
              "uneven: %d replicas on %d devices leave %s with %.0f %% of the samples, and the others wait for it %.0f "
              "%% of the step; %s",
              t->replicas, t->num_devices, t->device[most].name,
              100.0 * (double)t->device[most].samples / (double)t->samples, 100 * t->share,
              t->replicas % t->num_devices ? "replicas should be a multiple of the devices"
                                           : "the batch should be a multiple of the replicas");
}

static void mirt__verdict_words(mirt_timing *t, const mirt__costs *c) {
    const bool crowded = t->num_devices * t->threads > t->cores;
    switch (t->bottleneck) {
    case MIRT_SLOW_INPUT: mirt__verdict_input(t, c); break;
    case MIRT_SMALL_BATCH: mirt__verdict_batch(t, c); break;
    case MIRT_SMALL_MODEL: mirt__verdict_model(t, c); break;
    case MIRT_SLOW_DEVICE: mirt__verdict_device(t); break;
    case MIRT_UNEVEN_SHARES: mirt__verdict_uneven(t); break;
    case MIRT_SLOW_REDUCE:
        MIRT__SAY(t,
                  "all-reduce: %.0f %% of the step adds up gradients over devices; a larger batch needs it less often",
                  100 * t->share);
        break;
    case MIRT_SLOW_CALLBACKS:
        MIRT__SAY(t, "callbacks: %.0f %% of the step is spent in callbacks", 100 * t->share);
        break;
    case MIRT_SHARED_CORES:
        if (crowded) {
            t->speedup = 1; /* cores cannot be had for the asking */
            MIRT__SAY(t,
                      "shared cores: %d devices of %d thread%s take turns on %d core%s, and wait for each other %.0f "
                      "%% of the step",
                      t->num_devices, t->threads, t->threads == 1 ? "" : "s", t->cores, t->cores == 1 ? "" : "s",
                      100 * t->share);
        } else
            MIRT__SAY(t,
                      "shared cores: the devices wait for each other %.0f %% of the step, now for one, now for "
                      "another: other programs run on their cores",
                      100 * t->share);
        break;
    default: MIRT__SAY(t, "balanced: %.0f %% of the step is forward and backward", 100 * c->compute / c->wall); return;
    }
    if (t->speedup > 1.05) MIRT__SAY(t, "; if fixed: x%.1f", t->speedup);
}

MIRT__LIB void mirt__verdict(mirt_timing *t) {
    mirt__costs c;
    t->bottleneck = MIRT_BALANCED;
    t->culprit = -1;
    t->share = 0;
    t->speedup = 1;
    t->verdict[0] = 0;
    if (!t->steps || t->wall <= 0) return;
    if (t->steps < MIRT__LEAST_STEPS) { /* the first step alone, slower than others, would decide */
        MIRT__SAY(t, "%lld step%s: too few to tell what takes the time, %d are needed", (long long)t->steps,
                  t->steps == 1 ? "" : "s", MIRT__LEAST_STEPS);
        return;
    }
    mirt__costs_of(t, &c);
    if (c.input > 0.12 * c.wall && c.input > 50e-6) mirt__blame(t, MIRT_SLOW_INPUT, c.input, c.wall);
    if (c.other > 0.1 * c.wall) mirt__blame(t, MIRT_SLOW_CALLBACKS, c.other, c.wall);
    mirt__blame_devices(t, &c);
    if (t->num_devices > 1 && c.reduce > 0.12 * c.wall && c.reduce > 2.5 * c.update)
        mirt__blame(t, MIRT_SLOW_REDUCE, c.reduce, c.wall);
    else mirt__blame_size(t, &c);
    if (t->bottleneck == MIRT_BALANCED && t->num_devices > 1 && c.meet > 0.2 * c.wall)
        mirt__blame(t, MIRT_SHARED_CORES, c.meet, c.wall);
    mirt__verdict_words(t, &c);
}

#undef MIRT__SAY
