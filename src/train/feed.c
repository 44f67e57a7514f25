#include "../mirror/watch.h"
#include "trainer.h"
/* Batches for loops, one ahead of the devices where that can be. */

/* Code of the user runs on the thread of the loop: it may look at the model, or run one. Behind mirt_prefetch it runs
   on another one anyway. */
static bool mirt__feed_foreign(const mirt_dataset *d) {
    while (d && !d->foreign && !d->ahead) d = d->source;
    return d && !d->ahead;
}

MIRT__LIB void mirt__feed_open(mirt__feed *feed, mirt_model *model, mirt_dataset *dataset, mirt__features *features,
                               bool ahead) {
    memset(feed, 0, sizeof *feed);
    feed->model = model;
    feed->dataset = dataset;
    feed->features = features;
    /* features are made on the devices */
    feed->ahead = ahead && model->strategy->able.queues && !features && !mirt__feed_foreign(dataset);
}

/* A feed is not touched inside of a section: who gives up a wait for samples takes the loop's memory away with it. */
MIRT__LIB mirt_status mirt__feed_begin(mirt__feed *feed, int replicas, int64_t epoch) {
    mirt_strategy *s = feed->model->strategy;
    mirt_dataset *dataset = feed->dataset;
    mirt__features *features = feed->features;
    mirt__section before = mirt__watch_input(s, dataset);
    mirt_status status = MIRT__TRAINS && features ? mirt__features_begin(features, epoch)
                                                  : mirt__pass_data_begin(s, dataset, replicas, epoch);
    return mirt__watch_leave(s, before) ? status : MIRT_E_TIMEOUT;
}

static mirt_status mirt__feed_read(const mirt__feed *feed, mirt__batch *out) {
    mirt_strategy *s = feed->model->strategy;
    mirt_dataset *dataset = feed->dataset;
    mirt__features *features = feed->features;
    mirt__batch batch;
    memset(&batch, 0, sizeof batch);
    mirt__section before = mirt__watch_input(s, dataset);
    mirt_status status = MIRT__TRAINS && features ? mirt__features_next(features, &batch)
                                                  : mirt__pass_data_next(s, dataset, &batch);
    if (!mirt__watch_leave(s, before)) return MIRT_E_TIMEOUT;
    *out = batch;
    return status;
}

MIRT__LIB mirt_status mirt__feed_next(mirt__feed *feed, mirt__batch *out) {
    if (!feed->held) return mirt__feed_read(feed, out);
    feed->held = false;
    *out = feed->batch;
    if (feed->status != MIRT_OK) mirt__error_set(&feed->error);
    return feed->status;
}

/* Metrics count with labels and weights when results are there. */
MIRT__TRAINING void mirt__feed_keep_labels(mirt_function *f) {
    char *at = f->results.labels;
    for (int i = f->spec.num_x; i < f->spec.num_fields; i++) {
        const size_t bytes = f->spec.field[i].bytes;
        if (f->step.io[i]) f->step.io[i] = memcpy(at, f->step.io[i], (size_t)f->step.rows * bytes);
        at += mirt__align_up((size_t)f->step.max_rows * bytes);
    }
}

static const mirt__batch *mirt__feed_ahead(void *arg) {
    mirt__feed *feed = (mirt__feed *)arg;
    if (MIRT__TRAINS) mirt__feed_keep_labels(feed->step);
    feed->status = mirt__feed_read(feed, &feed->batch);
    feed->held = true;
    if (feed->status != MIRT_OK) mirt__error_get(&feed->error);
    if (feed->status != MIRT_OK || feed->batch.rows < 1 || feed->batch.rows > feed->step->step.max_rows) return NULL;
    feed->step->following.allowed = feed->follows && mirt__check_weights(feed->step, &feed->batch) == MIRT_OK;
    return &feed->batch;
}

MIRT__LIB mirt_status mirt__feed_step(mirt__feed *feed, mirt_function *f, bool more) {
    mirt_strategy *s = f->model->strategy;
    f->step.prefetched = feed->prefetched && s->prefetched == f;
    feed->prefetched = false;
    if (!feed->ahead || !more) return mirt__function_step(f);
    s->prefetched = NULL;
    feed->step = f;
    const mirt_status status = mirt__function_step_ahead(f, mirt__feed_ahead, feed);
    f->following.allowed = false;
    feed->prefetched = s->prefetched == f;
    return status;
}

MIRT__LIB bool mirt__feed_launched(const mirt__feed *feed) { return feed->step && feed->step->following.launched; }

MIRT__LIB void mirt__feed_close(mirt__feed *feed) {
    if (!mirt__feed_launched(feed)) return;
    if (mirt__function_begin(feed->step, &feed->batch) == MIRT_OK) mirt__function_step(feed->step);
}
