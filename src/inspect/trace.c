#include "../base/file.h"
#include "../formats/json.h"
#include "timeline.h"
/* What devices do, slice by slice, as a file that Perfetto and chrome://tracing read. */

struct mirt__trace {
    mirt__file_writer file;
    mirt__pool pool; /* of names */
    double began;
    uint64_t serial; /* tells it from traces before */
};

static void mirt__trace_free(mirt_strategy *s) {
    for (int d = 0; d < s->num_devices; d++) {
        mirt__device_timeline *timeline = &s->timeline[d];
        mirt__free(timeline->slice);
        timeline->slice = NULL;
        timeline->names = NULL;
        timeline->sum_name = NULL;
        timeline->slices = timeline->most_slices = timeline->left_out = 0;
    }
    mirt__file_abort(&s->trace->file);
    mirt__pool_free(&s->trace->pool);
    mirt__free(s->trace);
    s->trace = NULL;
}

MIRT_API mirt_status mirt_trace_begin(mirt_strategy *s, const char *path, int64_t most_slices) {
    MIRT__USE(s, mirt_last_status());
    const int64_t usual = 200000, most = (int64_t)1 << 30;
    if (!s) return mirt__fail_missing(__func__, "strategy");
    if (!path || !*path) return mirt__fail(MIRT_E_INVALID, "mirt_trace_begin: no file");
    if (most_slices < 0 || most_slices > most)
        return mirt__fail(MIRT_E_INVALID, "mirt_trace_begin: %lld slices; 0 to %lld are possible",
                          (long long)most_slices, (long long)most);
    if (!mirt__writes_files(s)) return MIRT_OK;
    if (s->running) return mirt__fail(MIRT_E_STATE, "mirt_trace_begin: a step is under way");
    if (s->trace)
        return mirt__fail(MIRT_E_STATE, "mirt_trace_begin: this strategy is being traced into %s", s->trace->file.path);
    if (!(s->trace = (struct mirt__trace *)mirt__calloc(1, sizeof *s->trace))) return mirt_last_status();
    s->drop_trace = mirt__trace_free;
    s->trace->file.fd = -1;
    s->trace->serial = ++s->traces;
    mirt_status status = mirt__file_begin(&s->trace->file, path);
    const int64_t each = (most_slices ? most_slices : usual) / s->num_devices;
    for (int d = 0; d < s->num_devices && status == MIRT_OK; d++) {
        s->timeline[d].most_slices = each;
        if (!(s->timeline[d].slice = (mirt__trace_slice *)mirt__calloc((size_t)each + 1, sizeof(mirt__trace_slice))))
            status = mirt_last_status();
    }
    s->trace->began = mirt__now();
    if (status != MIRT_OK) mirt__trace_free(s);
    mirt__measure(s);
    return status;
}

/* >>names */

/* "all-reduce (cpu:0 += cpu:1) and adam" */
static const char *mirt__trace_sum_name(const mirt_function *f, int device) {
    const mirt_strategy *s = f->model->strategy;
    char text[192] = "all-reduce (";
    mirt__exchange x;
    mirt__step_plan(&f->step, device, &x);
    for (int i = 0; i + 1 < x.parts; i++) {
        if (strlen(text) > 100) {
            mirt__line_add(text, sizeof text, ", ...");
            break;
        }
        mirt__line_add(text, sizeof text, "%s%s += %s", i ? ", " : "", s->device[x.device[x.add[i].into]].name,
                       s->device[x.device[x.add[i].from]].name);
    }
    mirt__line_add(text, sizeof text, ") and %s", mirt__optimizers_name(&f->model->config));
    return mirt__pool_strdup(&s->trace->pool, text);
}

MIRT__LIB mirt_status mirt__trace_ready(mirt_function *f) {
    mirt_strategy *s = f->model->strategy;
    const int count = f->step.program.graph.count;
    if (!s->trace || f->trace_serial == s->trace->serial) return MIRT_OK;
    const char **name =
        (const char **)mirt__pool_alloc(&s->trace->pool, ((size_t)count + (size_t)s->num_devices) * sizeof *name);
    if (!name) return mirt_last_status();
    for (int i = 0; i < count; i++) {
        const mirt__node *node = f->step.program.graph.node[i];
        char text[160];
        snprintf(text, sizeof text, "%s%s%s", node->op->name, node->name ? " " : "", node->name ? node->name : "");
        if (!(name[i] = mirt__pool_strdup(&s->trace->pool, text))) return mirt_last_status();
    }
    for (int d = 0; d < s->num_devices && f->step.num_ranges; d++) {
        if (!(name[count + d] = mirt__trace_sum_name(f, d))) return mirt_last_status();
    }
    f->trace_name = name;
    f->trace_serial = s->trace->serial;
    return MIRT_OK;
}

MIRT__LIB void mirt__trace_function(const mirt_function *f) {
    mirt_strategy *s = f->model->strategy;
    const bool named = f->trace_serial == s->trace->serial;
    for (int d = 0; d < s->num_devices; d++) {
        s->timeline[d].names = named ? f->trace_name : NULL;
        s->timeline[d].sum_name = named ? f->trace_name[f->step.program.graph.count + d] : NULL;
    }
}

/* >>writing */

/* Microseconds, whatever the locale. */
static void mirt__trace_time(mirt__text *text, const char *key, double seconds) {
    const long long ns = seconds > 0 ? (long long)(seconds * 1e9) : 0;
    mirt__text_add(text, ",\"%s\":%lld.%03lld", key, ns / 1000, ns % 1000);
}

static void mirt__trace_slice_text(mirt__text *text, const mirt__trace_slice *slice, int device, double began) {
    const double begin = slice->begin > began ? slice->begin : began;
    mirt__text_add(text, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d", device);
    mirt__trace_time(text, "ts", begin - began);
    mirt__trace_time(text, "dur", slice->end - begin);
    mirt__text_add(text, ",\"name\":");
    mirt__json_write_string(text, slice->name);
    mirt__text_add(text, ",\"args\":{\"step\":%lld", (long long)slice->step);
    if (slice->replica >= 0) mirt__text_add(text, ",\"replica\":%d", slice->replica);
    mirt__text_add(text, "}}");
}

static mirt_status mirt__trace_flush(struct mirt__trace *trace, mirt__text *text) {
    if (text->failed) return mirt_last_status();
    const mirt_status status = mirt__file_append(&trace->file, text->data, text->size);
    mirt__text_clear(text);
    return status;
}

static mirt_status mirt__trace_write(mirt_strategy *s, mirt__text *text) {
    mirt_status status = MIRT_OK;
    int64_t left_out = 0;
    for (int d = 0; d < s->num_devices; d++) left_out += s->timeline[d].left_out;
    mirt__text_add(text, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"version\":\"%s\",\"left_out\":%lld}"
                         ",\"traceEvents\":[\n", mirt_version(), (long long)left_out);
    mirt__text_add(text, "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"mirrortrain\"}}");
    for (int d = 0; d < s->num_devices && status == MIRT_OK; d++) {
        const mirt__device_timeline *timeline = &s->timeline[d];
        mirt__text_add(text, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":", d);
        mirt__json_write_string(text, s->device[d].name);
        mirt__text_add(text, "}}");
        for (int64_t i = 0; i < timeline->slices && status == MIRT_OK; i++) {
            mirt__trace_slice_text(text, &timeline->slice[i], d, s->trace->began);
            if (text->failed || text->size > 60000) status = mirt__trace_flush(s->trace, text);
        }
    }
    mirt__text_add(text, "\n]}\n");
    if (status == MIRT_OK) status = mirt__trace_flush(s->trace, text);
    if (left_out)
        mirt__log(s, MIRT_LOG_WARNING, "the trace is full: it leaves the last %lld slices out", (long long)left_out);
    return status == MIRT_OK ? mirt__file_commit(&s->trace->file) : status;
}

MIRT_API mirt_status mirt_trace_end(mirt_strategy *s) {
    MIRT__USE(s, mirt_last_status());
    mirt__text text;
    memset(&text, 0, sizeof text);
    if (!s) return mirt__fail_missing(__func__, "strategy");
    if (!mirt__writes_files(s)) return MIRT_OK;
    if (!s->trace || s->running)
        return mirt__fail(MIRT_E_STATE,
                          s->trace ? "mirt_trace_end: a step is under way" : "mirt_trace_end: no trace was begun");
    mirt_status status = mirt__trace_write(s, &text);
    mirt__text_free(&text);
    mirt__trace_free(s);
    return status;
}
