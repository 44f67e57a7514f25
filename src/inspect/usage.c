#include "inspect.h"
#include "timeline.h"
/* What devices did since the last time a log asked. */

MIRT__LIB void mirt__usage_begin(mirt__usage *self, int64_t images) {
    memset(self, 0, sizeof *self);
    self->so_far.images = images;
    self->at = mirt__now();
}

MIRT__LIB bool mirt__usage_due(const mirt__usage *self) {
    const double seconds = 10;
    return mirt__now() - self->at >= seconds;
}

static void mirt__usage_gauge(const mirt_strategy *s, int d, mirt__gauges *out) {
    const mirt__gauges none = {-1, -1, -1, -1};
    *out = none;
    if (!s->backend->gauge || !s->backend->gauge(s->device[d].handle, out)) *out = none;
}

MIRT__LIB bool mirt__usage_take(mirt__usage *self, const mirt_model *model, int64_t images) {
    const mirt_strategy *s = model->strategy;
    mirt_timing t;
    if (s->timed != model || !s->timed_steps) return false;
    mirt__timing_get(model, &t);
    const double seconds = t.wall - self->so_far.wall;
    if (!(seconds > 0)) return false;
    self->at = mirt__now();
    self->seconds = seconds;
    self->so_far.wall = t.wall;
    self->num_devices = t.num_devices;
    self->peak = t.peak_memory;
    self->resident = mirt__process_bytes("VmRSS:");
    for (int d = 0; d < t.num_devices; d++) {
        const mirt_device_timing *from = &t.device[d];
        mirt__device_usage *to = &self->device[d];
        double wall = 0;
        for (int i = 0; i < MIRT_PHASE_COUNT; i++) wall += from->seconds[i];
        const double busy = from->busy * wall, input = from->seconds[MIRT_PHASE_INPUT];
        memcpy(to->name, from->name, sizeof to->name);
        to->busy = (busy - self->so_far.busy[d]) / seconds;
        to->input = (input - self->so_far.input[d]) / seconds;
        to->samples = from->samples - self->so_far.samples[d];
        to->bytes = from->memory;
        mirt__usage_gauge(s, d, &to->gauges);
        self->so_far.busy[d] = busy;
        self->so_far.input[d] = input;
        self->so_far.samples[d] = from->samples;
    }
    self->images = (double)(images - self->so_far.images) / seconds;
    self->so_far.images = images;
    return true;
}
