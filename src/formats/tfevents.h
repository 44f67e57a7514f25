#ifndef MIRT__TFEVENTS_H
#define MIRT__TFEVENTS_H
/* TensorBoard's event files: TFRecords of Event messages (tensorboard/compat/proto), written by hand. */
#include "../base/file.h"
#include "json.h"

typedef struct mirt__events {
    mirt__appender file;
    char *name;        /* of the file, without its directory */
    mirt__text record; /* the message being made */
} mirt__events;

/* Begins a file in `directory`, which is created if missing; or, with a name, continues that file after its first
   `keep` bytes. */
MIRT__LIB mirt_status mirt__events_open(mirt__events *events, const char *directory, const char *name, int64_t keep);
MIRT__LIB mirt_status mirt__events_close(mirt__events *events);

/* Each writes one event; errors name the file. */
MIRT__LIB mirt_status mirt__events_scalar(mirt__events *events, int64_t step, const char *tag, double value);
MIRT__LIB mirt_status mirt__events_text(mirt__events *events, int64_t step, const char *tag, const char *text);
/* As tf.summary.histogram: MIRT__BUCKETS of one width; non-finite values are left out. */
#define MIRT__BUCKETS 30
MIRT__LIB mirt_status mirt__events_histogram(mirt__events *events, int64_t step, const char *tag,
                                             const mirt__real *values, int64_t count);
/* One picture; of several images, a sheet in `columns`. */
MIRT__LIB mirt_status mirt__events_image(mirt__events *events, int64_t step, const char *tag, const mirt_array *images,
                                         int columns);
/* Layers of an architecture (nn/config.h) as a GraphDef. */
MIRT__LIB mirt_status mirt__events_graph(mirt__events *events, const mirt__json *architecture);

/* A hyper-parameter: a number, or with a text that. */
typedef struct mirt__hparam {
    const char *name, *text;
    double number;
} mirt__hparam;
/* What the hparams plugin shows of a run and compares runs by: its parameters, and names of metrics, which are tags of
   `metric_group`, a directory below this one. */
MIRT__LIB mirt_status mirt__events_hparams(mirt__events *events, const mirt__hparam *hparam, int count,
                                           const char *const *metric, int num_metrics, const char *metric_group);

#endif
