/* Writes TensorBoard's event files. */

#include "tfevents.h"
#include "../base/digest.h"
#include "png.h"
#include "protobuf.h"

#include <unistd.h>

/* Fields of Event, Summary.Value, SummaryMetadata and TensorProto, and numbers of data types. */
enum {
    MIRT__EVENT_TIME = 1, MIRT__EVENT_STEP = 2, MIRT__EVENT_VERSION = 3, MIRT__EVENT_GRAPH = 4, MIRT__EVENT_SUMMARY = 5
};
enum { MIRT__VALUE_TAG = 1, MIRT__VALUE_TENSOR = 8, MIRT__VALUE_METADATA = 9 };
enum { MIRT__TENSOR_DTYPE = 1, MIRT__TENSOR_SHAPE = 2, MIRT__TENSOR_CONTENT = 4, MIRT__TENSOR_STRING = 8 };
enum { MIRT__TF_FLOAT = 1, MIRT__TF_DOUBLE = 2, MIRT__TF_STRING = 7 };
typedef enum mirt__data_class {
    MIRT__CLASS_NONE = 0, MIRT__CLASS_SCALAR, MIRT__CLASS_TENSOR, MIRT__CLASS_BLOBS
} mirt__data_class;

/* >>records */

static uint32_t mirt__tfrecord_crc(const void *data, size_t size) {
    const uint32_t crc = mirt__crc32c(0, data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

#define MIRT__TFRECORD_HEAD 12 /* u64 length, its checksum */

static void mirt__event_begin(mirt__events *e, int64_t step) {
    static const char room[MIRT__TFRECORD_HEAD] = {0};
    mirt__text_clear(&e->record);
    mirt__text_add_bytes(&e->record, room, sizeof room);
    mirt__pb_double(&e->record, MIRT__EVENT_TIME, mirt__clock());
    if (step) mirt__pb_int(&e->record, MIRT__EVENT_STEP, step);
}

static mirt_status mirt__event_write(mirt__events *e) {
    mirt__text *t = &e->record;
    if (t->failed) return mirt_last_status();
    const size_t size = t->size - MIRT__TFRECORD_HEAD, end = t->size;
    mirt__pb_little(t, size, 8);
    mirt__pb_little(t, mirt__tfrecord_crc(t->failed ? "" : t->data + end, t->failed ? 0 : 8), 4);
    if (t->failed) return mirt_last_status();
    memcpy(t->data, t->data + end, MIRT__TFRECORD_HEAD);
    t->size = end;
    mirt__pb_little(t, mirt__tfrecord_crc(t->data + MIRT__TFRECORD_HEAD, size), 4);
    return mirt__append(&e->file, t->data, t->size);
}

/* >>files */

/* "events.out.tfevents.TIME.HOST.PID.NUMBER.v2", as TensorFlow names them; a name that does not exist yet. */
static mirt_status mirt__events_name(mirt__events *e, const char *directory, mirt__text *path) {
    char host[128] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !host[0] || strchr(host, '/')) memcpy(host, "localhost", 10);
    for (int number = 0;; number++) {
        mirt__text_clear(path);
        mirt__text_add(path, "%s/events.out.tfevents.%010lld.%s.%ld.%d.v2", directory, (long long)mirt__clock(), host,
                       (long)getpid(), number);
        if (path->failed) return mirt_last_status();
        if (number < 1000 && mirt__file_exists(path->data)) continue;
        e->name = mirt__strdup(path->data + strlen(directory) + 1);
        return e->name ? MIRT_OK : mirt_last_status();
    }
}

MIRT__LIB mirt_status mirt__events_open(mirt__events *e, const char *directory, const char *name, int64_t keep) {
    mirt__text path;
    memset(e, 0, sizeof *e);
    memset(&path, 0, sizeof path);
    e->file.fd = -1;
    mirt_status status = mirt__make_directory(directory);
    if (status == MIRT_OK && !name) {
        keep = 0;
        status = mirt__events_name(e, directory, &path);
    } else if (status == MIRT_OK) {
        mirt__text_add(&path, "%s/%s", directory, name);
        e->name = path.failed ? NULL : mirt__strdup(name);
        if (!e->name) status = mirt_last_status();
    }
    if (status == MIRT_OK) status = mirt__append_open(&e->file, path.data, keep);
    mirt__text_free(&path);
    if (status == MIRT_OK && e->file.size == 0) {
        mirt__event_begin(e, 0);
        mirt__pb_string(&e->record, MIRT__EVENT_VERSION, "brain.Event:2");
        status = mirt__event_write(e);
    }
    if (status != MIRT_OK) mirt__events_close(e);
    return status;
}

MIRT__LIB mirt_status mirt__events_close(mirt__events *e) {
    mirt__text_free(&e->record);
    mirt__free(e->name);
    e->name = NULL;
    return mirt__append_close(&e->file);
}

/* >>summaries */

/* The plugin that shows a value, and its tensor. */
typedef struct mirt__value_kind {
    const char *plugin;
    mirt__data_class data_class;
    int dtype, rank;
    int64_t dim[2];
} mirt__value_kind;

/* Messages that are open while a value is written. */
typedef struct mirt__value_marks {
    size_t summary, value, tensor;
} mirt__value_marks;

static size_t mirt__tensor_begin(mirt__text *t, const mirt__value_kind *kind) {
    const size_t tensor = mirt__pb_open(t, MIRT__VALUE_TENSOR);
    mirt__pb_int(t, MIRT__TENSOR_DTYPE, kind->dtype);
    const size_t shape = mirt__pb_open(t, MIRT__TENSOR_SHAPE);
    for (int i = 0; i < kind->rank; i++) {
        const size_t one = mirt__pb_open(t, 2);
        mirt__pb_int(t, 1, kind->dim[i]);
        mirt__pb_close(t, one);
    }
    mirt__pb_close(t, shape);
    return tensor;
}

/* Begins a value, whose tensor is next; `content` is the plugin's data, or NULL. */
static mirt__value_marks mirt__value_begin(mirt__events *e, int64_t step, const char *tag, const mirt__value_kind *kind,
                                           const mirt__text *content) {
    mirt__text *t = &e->record;
    mirt__value_marks marks;
    mirt__event_begin(e, step);
    marks.summary = mirt__pb_open(t, MIRT__EVENT_SUMMARY);
    marks.value = mirt__pb_open(t, 1);
    mirt__pb_string(t, MIRT__VALUE_TAG, tag);
    const size_t metadata = mirt__pb_open(t, MIRT__VALUE_METADATA), data = mirt__pb_open(t, 1);
    mirt__pb_string(t, 1, kind->plugin);
    if (content && content->size) mirt__pb_bytes(t, 2, content->data, content->size);
    mirt__pb_close(t, data);
    if (kind->data_class) mirt__pb_int(t, 4, kind->data_class);
    mirt__pb_close(t, metadata);
    marks.tensor = mirt__tensor_begin(t, kind);
    return marks;
}

static mirt_status mirt__value_end(mirt__events *e, const mirt__value_marks *marks) {
    mirt__pb_close(&e->record, marks->tensor);
    mirt__pb_close(&e->record, marks->value);
    mirt__pb_close(&e->record, marks->summary);
    return mirt__event_write(e);
}

MIRT__LIB mirt_status mirt__events_scalar(mirt__events *e, int64_t step, const char *tag, double value) {
    static const mirt__value_kind scalars = {"scalars", MIRT__CLASS_SCALAR, MIRT__TF_FLOAT, 0, {0, 0}};
    const float number = (float)value;
    uint32_t bits;
    const mirt__value_marks marks = mirt__value_begin(e, step, tag, &scalars, NULL);
    memcpy(&bits, &number, sizeof bits);
    const size_t content = mirt__pb_open(&e->record, MIRT__TENSOR_CONTENT);
    mirt__pb_little(&e->record, bits, 4);
    mirt__pb_close(&e->record, content);
    return mirt__value_end(e, &marks);
}

MIRT__LIB mirt_status mirt__events_text(mirt__events *e, int64_t step, const char *tag, const char *text) {
    static const mirt__value_kind texts = {"text", MIRT__CLASS_TENSOR, MIRT__TF_STRING, 0, {0, 0}};
    const mirt__value_marks marks = mirt__value_begin(e, step, tag, &texts, NULL);
    mirt__pb_string(&e->record, MIRT__TENSOR_STRING, text);
    return mirt__value_end(e, &marks);
}

/* Counts values in each bucket between the smallest and the largest; equal values are all in the last. */
static void mirt__histogram_count(const mirt__real *values, int64_t count, double range[2],
                                  int64_t bucket[MIRT__BUCKETS]) {
    range[0] = DBL_MAX;
    range[1] = -DBL_MAX;
    for (int i = 0; i < MIRT__BUCKETS; i++) bucket[i] = 0;
    for (int64_t i = 0; i < count; i++) {
        const double v = (double)values[i];
        if (!(fabs(v) <= DBL_MAX)) continue;
        if (v < range[0]) range[0] = v;
        if (v > range[1]) range[1] = v;
    }
    if (range[0] > range[1]) range[0] = range[1] = 0;
    const double width = (range[1] - range[0]) / MIRT__BUCKETS;
    for (int64_t i = 0; i < count; i++) {
        if (!(fabs((double)values[i]) <= DBL_MAX)) continue;
        const double at = width > 0 ? ((double)values[i] - range[0]) / width : MIRT__BUCKETS;
        bucket[at < MIRT__BUCKETS - 1 ? (int)at : MIRT__BUCKETS - 1]++;
    }
}

MIRT__LIB mirt_status mirt__events_histogram(mirt__events *e, int64_t step, const char *tag, const mirt__real *values,
                                             int64_t count) {
    static const mirt__value_kind histograms = {
        "histograms", MIRT__CLASS_TENSOR, MIRT__TF_DOUBLE, 2, {MIRT__BUCKETS, 3}};
    double range[2];
    int64_t bucket[MIRT__BUCKETS];
    mirt__histogram_count(values, count, range, bucket);
    const mirt__value_marks marks = mirt__value_begin(e, step, tag, &histograms, NULL);
    const size_t content = mirt__pb_open(&e->record, MIRT__TENSOR_CONTENT);
    const double width = (range[1] - range[0]) / MIRT__BUCKETS;
    for (int i = 0; i < MIRT__BUCKETS; i++) { /* left, right, count */
        mirt__pb_double_bytes(&e->record, range[0] + i * width);
        mirt__pb_double_bytes(&e->record, i + 1 < MIRT__BUCKETS ? range[0] + (i + 1) * width : range[1]);
        mirt__pb_double_bytes(&e->record, (double)bucket[i]);
    }
    mirt__pb_close(&e->record, content);
    return mirt__value_end(e, &marks);
}

MIRT__LIB mirt_status mirt__events_image(mirt__events *e, int64_t step, const char *tag, const mirt_array *images,
                                         int columns) {
    static const mirt__value_kind pictures = {"images", MIRT__CLASS_BLOBS, MIRT__TF_STRING, 1, {3, 0}};
    unsigned char *png;
    size_t size;
    if (mirt__png_of(images, columns, &png, &size) != MIRT_OK) return mirt_last_status();
    const mirt__value_marks marks = mirt__value_begin(e, step, tag, &pictures, NULL);
    for (int i = 0; i < 2; i++) { /* width and height are in the file's header, high byte first */
        unsigned long value = 0;
        char number[16];
        for (int k = 16; k < 20; k++) value = value << 8 | png[4 * i + k];
        snprintf(number, sizeof number, "%lu", value);
        mirt__pb_string(&e->record, MIRT__TENSOR_STRING, number);
    }
    mirt__pb_bytes(&e->record, MIRT__TENSOR_STRING, png, size);
    mirt__aligned_free(png);
    return mirt__value_end(e, &marks);
}

/* >>graph */

static void mirt__graph_name(mirt__text *out, const char *prefix, const char *name) {
    mirt__text_add_bytes(out, prefix, strlen(prefix));
    mirt__text_add_bytes(out, name, strlen(name));
}

/* An input of a layer: a name, or [name, number of its output]. */
static void mirt__graph_input(mirt__text *out, const char *prefix, const mirt__json *from) {
    const mirt__json *number = from->type == MIRT__JSON_ARRAY && from->count == 2 ? from->item[1] : NULL;
    if (number) from = from->item[0];
    if (from->type != MIRT__JSON_STRING) return;
    const size_t input = mirt__pb_open(out, 3);
    mirt__graph_name(out, prefix, from->string);
    if (number && number->integral && number->integer > 0) mirt__text_add(out, ":%d", (int)number->integer);
    mirt__pb_close(out, input);
}

/* Adds the layers of a model; layers of nested models are prefixed with their names. */
static void mirt__graph_nodes(mirt__text *out, const char *prefix, const mirt__json *architecture) {
    const mirt__json *layers = mirt__json_member(architecture, "layers");
    for (size_t i = 0; layers && layers->type == MIRT__JSON_ARRAY && i < layers->count && !out->failed; i++) {
        const mirt__json *layer = layers->item[i], *name = mirt__json_member(layer, "name"),
                         *op = mirt__json_member(layer, "op"), *inner = mirt__json_member(layer, "architecture"),
                         *from = mirt__json_member(layer, "input"), *list = mirt__json_member(layer, "inputs");
        if (!op) op = mirt__json_member(layer, "class_name");
        if (!name || !op || name->type != MIRT__JSON_STRING || op->type != MIRT__JSON_STRING) continue;
        if (inner) {
            mirt__text within;
            memset(&within, 0, sizeof within);
            mirt__text_add(&within, "%s%s/", prefix, name->string);
            if (!within.failed) mirt__graph_nodes(out, within.data, inner);
            out->failed = out->failed || within.failed;
            mirt__text_free(&within);
        }
        const size_t node = mirt__pb_open(out, 1), own = mirt__pb_open(out, 1);
        mirt__graph_name(out, prefix, name->string);
        mirt__pb_close(out, own);
        mirt__pb_string(out, 2, op->string);
        if (from) mirt__graph_input(out, prefix, from);
        for (size_t k = 0; list && list->type == MIRT__JSON_ARRAY && k < list->count; k++)
            mirt__graph_input(out, prefix, list->item[k]);
        mirt__pb_close(out, node);
    }
}

MIRT__LIB mirt_status mirt__events_graph(mirt__events *e, const mirt__json *architecture) {
    mirt__event_begin(e, 0);
    const size_t graph = mirt__pb_open(&e->record, MIRT__EVENT_GRAPH);
    mirt__graph_nodes(&e->record, "", architecture);
    mirt__pb_close(&e->record, graph);
    return mirt__event_write(e);
}

/* >>hyper-parameters */

/* Experiment: the parameters and metrics. */
static void mirt__hparams_experiment(mirt__text *t, const mirt__hparam *hparam, int count, const char *const *metric,
                                     int num_metrics, const char *group) {
    const size_t experiment = mirt__pb_open(t, 2);
    mirt__pb_double(t, 3, mirt__clock());
    for (int i = 0; i < count; i++) {
        const size_t info = mirt__pb_open(t, 4);
        mirt__pb_string(t, 1, hparam[i].name);
        mirt__pb_int(t, 4, hparam[i].text ? 1 : 3);
        mirt__pb_close(t, info);
    }
    for (int i = 0; i < num_metrics; i++) {
        const size_t info = mirt__pb_open(t, 5), name = mirt__pb_open(t, 1);
        mirt__pb_string(t, 1, group);
        mirt__pb_string(t, 2, metric[i]);
        mirt__pb_close(t, name);
        mirt__pb_close(t, info);
    }
    mirt__pb_close(t, experiment);
}

/* SessionStartInfo: this run's values. */
static void mirt__hparams_session(mirt__text *t, const mirt__hparam *hparam, int count) {
    const size_t session = mirt__pb_open(t, 3);
    for (int i = 0; i < count; i++) {
        const size_t entry = mirt__pb_open(t, 1);
        mirt__pb_string(t, 1, hparam[i].name);
        const size_t value = mirt__pb_open(t, 2);
        if (hparam[i].text) mirt__pb_string(t, 3, hparam[i].text);
        else mirt__pb_double(t, 2, hparam[i].number);
        mirt__pb_close(t, value);
        mirt__pb_close(t, entry);
    }
    mirt__pb_double(t, 5, mirt__clock());
    mirt__pb_close(t, session);
}

MIRT__LIB mirt_status mirt__events_hparams(mirt__events *e, const mirt__hparam *hparam, int count,
                                           const char *const *metric, int num_metrics, const char *metric_group) {
    /* The plugin ignores values without a tensor; all data is in the metadata. */
    static const mirt__value_kind hparams = {"hparams", MIRT__CLASS_NONE, MIRT__TF_FLOAT, 1, {0, 0}};
    mirt_status status = MIRT_OK;
    mirt__text content;
    memset(&content, 0, sizeof content);
    for (int session = 0; session < 2 && status == MIRT_OK; session++) {
        mirt__text_clear(&content);
        if (session) mirt__hparams_session(&content, hparam, count);
        else mirt__hparams_experiment(&content, hparam, count, metric, num_metrics, metric_group);
        if (content.failed) status = mirt_last_status();
        if (status != MIRT_OK) break;
        const char *tag = session ? "_hparams_/session_start_info" : "_hparams_/experiment";
        const mirt__value_marks marks = mirt__value_begin(e, 0, tag, &hparams, &content);
        status = mirt__value_end(e, &marks);
    }
    mirt__text_free(&content);
    return status;
}

#undef MIRT__TFRECORD_HEAD
