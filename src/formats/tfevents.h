#ifndef MIRT__TFEVENTS_H
#define MIRT__TFEVENTS_H
/* TensorBoard's event files: TFRecords of Event messages (tensorboard/compat/proto), encoded without protobuf. */
#include "../base/file.h"
#include "json.h"

typedef struct mirt__events {
    mirt__appender file;
    char *name;        /* name of the file, without its directory */
    mirt__text record; /* the message being built */
} mirt__events;

/* Begins a file in `directory`, which is created if missing; or, with a name, continues that file after its first
   `keep` bytes. */
MIRT__LIB mirt_status mirt__events_open(mirt__events *events, const char *directory, const char *name, int64_t keep);
MIRT__LIB mirt_status mirt__events_close(mirt__events *events);

/* Each writes one event; errors name the file. */
MIRT__LIB mirt_status mirt__events_scalar(mirt__events *events, int64_t step, const char *tag, double value);
MIRT__LIB mirt_status mirt__events_text(mirt__events *events, int64_t step, const char *tag, const char *text);
/* Like tf.summary.histogram: MIRT__BUCKETS of one width; non-finite values are left out. */
#define MIRT__BUCKETS 30
MIRT__LIB mirt_status mirt__events_histogram(mirt__events *events, int64_t step, const char *tag,
                                             const mirt__real *values, int64_t count);
/* One picture; several images form a sheet with `columns`. */
MIRT__LIB mirt_status mirt__events_image(mirt__events *events, int64_t step, const char *tag, const mirt_array *images,
                                         int columns);
/* Layers of an architecture (nn/config.h) as a GraphDef. */
MIRT__LIB mirt_status mirt__events_graph(mirt__events *events, const mirt__json *architecture);

/* A hyper-parameter: the text, or the number if the text is NULL. */
typedef struct mirt__hparam {
    const char *name, *text;
    double number;
} mirt__hparam;
/* Data for the hparams plugin, which compares runs: parameters, and names of metrics, which are tags in the
   subdirectory `metric_group`. */
MIRT__LIB mirt_status mirt__events_hparams(mirt__events *events, const mirt__hparam *hparam, int count,
                                           const char *const *metric, int num_metrics, const char *metric_group);

#endif
