#include "../base/file.h"
#include "inspect.h"
#include "timeline.h"
/* The seconds of a fit for users. */

MIRT__LIB size_t mirt__process_bytes(const char *line) {
    char text[2048];
    mirt__file_peek("/proc/self/status", text, sizeof text);
    const char *at = strstr(text, line);
    const unsigned long kilobytes = at ? strtoul(at + strlen(line), NULL, 10) : 0;
    return (size_t)kilobytes * 1024;
}

static void mirt__timing_device(const mirt_model *model, int d, mirt_device_timing *out) {
    const mirt_strategy *s = model->strategy;
    const mirt__device_timeline *timeline = &s->timeline[d];
    double busy = 0, wall = 0;
    size_t block = 0;
    snprintf(out->name, sizeof out->name, "%s", s->device[d].name);
    for (int i = 0; i < MIRT_PHASE_COUNT; i++) {
        out->seconds[i] = timeline->total[i] + timeline->lap[i];
        wall += out->seconds[i];
        if (i >= MIRT_PHASE_FORWARD && i <= MIRT_PHASE_UPDATE) busy += out->seconds[i];
    }
    out->replicas = s->device[d].num_replicas;
    out->samples = timeline->samples;
    out->busy = wall > 0 ? busy / wall : 0;
    mirt__layout_bytes(&s->layout, &block);
    out->memory = block + (d < mirt__device_copies(s) ? mirt__root(model, NULL)->weight_bytes : 0);
    out->least_sample = timeline->least[0];
    out->least_update = timeline->least[1];
    out->least_reduce = timeline->least[2];
    out->slowest = timeline->slowest;
}

MIRT__LIB void mirt__timing_get(const mirt_model *model, mirt_timing *out) {
    const mirt_strategy *s = model->strategy;
    memset(out, 0, sizeof *out);
    out->wall = s->timed_wall + (s->timing == model ? s->timeline[0].since - s->timed_since : 0);
    out->steps = s->timed_steps;
    out->num_devices = s->num_devices;
    out->replicas = s->num_replicas;
    out->threads = s->threads;
    out->cores = mirt__cpu_cores();
    for (int d = 0; d < s->num_devices; d++) {
        mirt_device_timing *own = &out->device[d];
        mirt__timing_device(model, d, own);
        out->samples += own->samples;
        for (int i = 0; i < MIRT_PHASE_COUNT; i++) out->seconds[i] += own->seconds[i] / s->num_devices;
    }
    const mirt__data_cost *cost = &model->trainer->cost;
    snprintf(out->input, sizeof out->input, "%s", cost->workers ? cost->what : "copying samples");
    out->workers = cost->workers ? cost->workers : 1;
    out->sample_seconds = cost->seconds;
    out->parallel = cost->parallel;
    out->ahead = cost->ahead;
    out->peak_memory = mirt__process_bytes("VmHWM:");
    mirt__verdict(out);
}

MIRT_API mirt_status mirt_fit_timing(mirt_model *model, mirt_timing *out) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model) return mirt__fail_missing(__func__, "model");
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_fit_timing: no place for the answer");
    if (model->strategy->timed != model || !model->strategy->timed_steps)
        return mirt__fail(MIRT_E_STATE,
                          "mirt_fit_timing: %s was not trained by mirt_fit yet, or another model was since",
                          model->name);
    mirt__timing_get(model, out);
    return MIRT_OK;
}

/* >>text */

enum { MIRT__TIMING_COLUMNS = 8 }; /* devices that have one */

static void mirt__timing_phases(const mirt_timing *t, int columns, mirt__text *out) {
    const double ms = 1e3 / (double)t->steps;
    mirt__text_add(out, "%-22s %9s %7s", "ms a step", "mean", "");
    for (int d = 0; d < columns; d++) mirt__text_add(out, " %9s", t->device[d].name);
    for (int i = 0; i < MIRT_PHASE_COUNT; i++) {
        if (i == MIRT_PHASE_CALLBACKS && t->seconds[i] < 0.0005 * t->wall) continue;
        mirt__text_add(out, "\n  %-20s %9.3f %6.1f%%", mirt_phase_name((mirt_phase)i), t->seconds[i] * ms,
                       100 * t->seconds[i] / t->wall);
        for (int d = 0; d < columns; d++) mirt__text_add(out, " %9.3f", t->device[d].seconds[i] * ms);
    }
    mirt__text_add(out, "\n");
}

static void mirt__timing_devices(const mirt_timing *t, mirt__text *out) {
    mirt__text_add(out, "%-22s %9s %8s %9s %7s\n", "devices", "replicas", "samples", "memory", "busy");
    for (int d = 0; d < t->num_devices; d++) {
        const mirt_device_timing *own = &t->device[d];
        mirt__text_add(out, "  %-20s %9d %8lld %6.1f MB %6.1f%%\n", own->name, own->replicas, (long long)own->samples,
                       (double)own->memory * 1e-6, 100 * own->busy);
    }
    if (t->peak_memory)
        mirt__text_add(out, "  %-20s %9s %8s %6.1f MB\n", "process, at most", "", "", (double)t->peak_memory * 1e-6);
}

MIRT_API const char *mirt_timing_text(mirt_model *model) {
    MIRT__USE_MODEL(model, NULL);
    mirt_timing t;
    if (mirt_fit_timing(model, &t) != MIRT_OK) return NULL;
    mirt__text *out = &model->timing_text;
    mirt__text_clear(out);
    mirt__text_add(
        out, "%s: %lld step%s of %.4g samples on %d device%s of %d thread%s, %.3f ms each, %.0f samples a second\n",
        mirt__shown(model->name).text, (long long)t.steps, t.steps == 1 ? "" : "s",
        (double)t.samples / (double)t.steps, t.num_devices, t.num_devices == 1 ? "" : "s", t.threads,
        t.threads == 1 ? "" : "s", 1e3 * t.wall / (double)t.steps, (double)t.samples / t.wall);
    mirt__timing_phases(
        &t, t.num_devices > 1 ? t.num_devices < MIRT__TIMING_COLUMNS ? t.num_devices : MIRT__TIMING_COLUMNS : 0, out);
    mirt__timing_devices(&t, out);
    mirt__text_add(out, "%s\n", t.verdict);
    return out->failed ? NULL : out->data;
}
