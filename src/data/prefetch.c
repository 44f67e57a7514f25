/* Prepares batches ahead of their use in a worker thread. */

#include "data.h"

static mirt_status mirt__prefetch_check(int depth) {
    const int most = 4096;
    if ((depth >= 1 && depth <= most) || depth == MIRT_AUTOTUNE) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "a prefetch depth of %d: 1 to %d are possible, or MIRT_AUTOTUNE", depth, most);
}

#ifdef MIRRORTRAIN_NO_THREADS

MIRT_API mirt_dataset *mirt_prefetch(mirt_dataset *dataset, int depth) {
    return dataset && mirt__prefetch_check(depth) != MIRT_OK ? mirt__dataset_give_up(dataset, false) : dataset;
}

#else

#include <pthread.h>

/* The worker fills slots in a ring while the consumer holds the one it was given last. Slot
   contents belong to whoever the counters say; everything else is guarded by the mutex. */
typedef struct mirt__prefetch_dataset {
    mirt_dataset base;
    int slots; /* depth and the one the consumer holds */
    mirt__slot *slot;
    pthread_mutex_t mutex;
    pthread_cond_t to_worker, to_consumer;
    pthread_t thread;
    bool has_mutex, has_worker_cond, has_consumer_cond, has_thread;
    int64_t filled, taken; /* slots in this epoch; the consumer holds number taken - 1 */
    bool busy;             /* the worker runs through an epoch */
    bool cancel, quit;     /* wishes to the worker */
    mirt_status status;    /* why the epoch ended; MIRT_OK at its regular end */
    char error[512];
} mirt__prefetch_dataset;

/* Runs through one epoch; called and left with the mutex locked. */
static void mirt__prefetch_epoch(mirt__prefetch_dataset *prefetch) {
    for (;;) {
        /* One slot stays free of work: the consumer reads it until its next call. */
        while (!prefetch->cancel && prefetch->filled - prefetch->taken >= prefetch->slots - 1)
            pthread_cond_wait(&prefetch->to_worker, &prefetch->mutex);
        if (prefetch->cancel) return;
        mirt__slot *slot = &prefetch->slot[prefetch->filled % prefetch->slots];
        pthread_mutex_unlock(&prefetch->mutex);
        mirt_status status = mirt__slot_pull(slot, prefetch->base.source);
        pthread_mutex_lock(&prefetch->mutex);
        if (status != MIRT_OK) {
            prefetch->status = status;
            snprintf(prefetch->error, sizeof prefetch->error, "%s", mirt_last_error());
            return;
        }
        if (slot->rows == 0) return;
        prefetch->filled++;
        pthread_cond_signal(&prefetch->to_consumer);
    }
}

static void *mirt__prefetch_worker(void *arg) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)arg;
    pthread_mutex_lock(&prefetch->mutex);
    while (!prefetch->quit) {
        if (prefetch->busy) {
            mirt__prefetch_epoch(prefetch);
            prefetch->busy = false;
            pthread_cond_signal(&prefetch->to_consumer);
        } else {
            pthread_cond_wait(&prefetch->to_worker, &prefetch->mutex);
        }
    }
    pthread_mutex_unlock(&prefetch->mutex);
    return NULL;
}

/* Returns once the worker is idle. */
static void mirt__prefetch_stop(mirt__prefetch_dataset *prefetch) {
    pthread_mutex_lock(&prefetch->mutex);
    prefetch->cancel = true;
    pthread_cond_signal(&prefetch->to_worker);
    while (prefetch->busy) pthread_cond_wait(&prefetch->to_consumer, &prefetch->mutex);
    prefetch->cancel = false;
    pthread_mutex_unlock(&prefetch->mutex);
}

static mirt_status mirt__prefetch_begin(mirt_dataset *dataset, uint64_t seed, int64_t epoch) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)dataset;
    mirt__prefetch_stop(prefetch);
    /* The worker being idle, the stages before are ours: what they have to say comes at once. */
    mirt_status status = mirt__dataset_begin(dataset->source, seed, epoch);
    pthread_mutex_lock(&prefetch->mutex);
    prefetch->filled = 0;
    prefetch->taken = 0;
    prefetch->status = MIRT_OK;
    prefetch->busy = status == MIRT_OK;
    pthread_cond_signal(&prefetch->to_worker);
    pthread_mutex_unlock(&prefetch->mutex);
    return status;
}

static mirt_status mirt__prefetch_next(mirt_dataset *dataset, mirt__batch *out) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)dataset;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&prefetch->mutex);
    while (prefetch->busy && prefetch->filled == prefetch->taken)
        pthread_cond_wait(&prefetch->to_consumer, &prefetch->mutex);
    mirt__slot *slot = NULL;
    if (prefetch->filled > prefetch->taken) slot = &prefetch->slot[prefetch->taken++ % prefetch->slots];
    mirt_status status = prefetch->status;
    pthread_cond_signal(&prefetch->to_worker);
    pthread_mutex_unlock(&prefetch->mutex);
    if (!slot) return status == MIRT_OK ? MIRT_OK : mirt__fail(status, "%s", prefetch->error);
    mirt__slot_give(slot, &dataset->spec, 0, slot->rows, out);
    return MIRT_OK;
}

static void mirt__prefetch_release(mirt_dataset *dataset) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)dataset;
    if (prefetch->has_thread) {
        pthread_mutex_lock(&prefetch->mutex);
        prefetch->cancel = true;
        prefetch->quit = true;
        pthread_cond_signal(&prefetch->to_worker);
        pthread_mutex_unlock(&prefetch->mutex);
        pthread_join(prefetch->thread, NULL);
    }
    if (prefetch->has_consumer_cond) pthread_cond_destroy(&prefetch->to_consumer);
    if (prefetch->has_worker_cond) pthread_cond_destroy(&prefetch->to_worker);
    if (prefetch->has_mutex) pthread_mutex_destroy(&prefetch->mutex);
    for (int i = 0; prefetch->slot && i < prefetch->slots; i++) mirt__aligned_free(prefetch->slot[i].block);
    mirt__free(prefetch->slot);
}

static const mirt__stage mirt__prefetch_stage = {mirt__prefetch_begin, mirt__prefetch_next, NULL, NULL, NULL,
                                                 mirt__prefetch_release, NULL};

static mirt_status mirt__prefetch_create_slots(mirt__prefetch_dataset *prefetch) {
    const mirt__data_spec *spec = &prefetch->base.spec;
    mirt_status status = MIRT_OK;
    prefetch->slot = (mirt__slot *)mirt__calloc((size_t)prefetch->slots, sizeof(mirt__slot));
    if (!prefetch->slot) return MIRT_E_NOMEM;
    for (int i = 0; i < prefetch->slots && status == MIRT_OK; i++)
        status = mirt__slot_create(&prefetch->slot[i], spec, mirt__data_most_rows(spec), true);
    return status;
}

static mirt_status mirt__prefetch_start(mirt__prefetch_dataset *prefetch) {
    int code = pthread_mutex_init(&prefetch->mutex, NULL);
    prefetch->has_mutex = code == 0;
    if (code == 0) {
        code = pthread_cond_init(&prefetch->to_worker, NULL);
        prefetch->has_worker_cond = code == 0;
    }
    if (code == 0) {
        code = pthread_cond_init(&prefetch->to_consumer, NULL);
        prefetch->has_consumer_cond = code == 0;
    }
    if (code == 0) {
        code = pthread_create(&prefetch->thread, NULL, mirt__prefetch_worker, prefetch);
        prefetch->has_thread = code == 0;
    }
    if (code != 0) return mirt__fail(MIRT_E_THREAD, "the prefetch thread could not be started: %s", strerror(code));
    return MIRT_OK;
}

MIRT_API mirt_dataset *mirt_prefetch(mirt_dataset *dataset, int depth) {
    if (!dataset) return NULL;
    if (mirt__prefetch_check(depth) != MIRT_OK) return mirt__dataset_give_up(dataset, false);
    if (mirt__reachable(dataset) || dataset->pointing) return dataset; /* nothing to prepare, or not yet */
    mirt_dataset *stage = mirt__dataset_new(sizeof(mirt__prefetch_dataset), &mirt__prefetch_stage, dataset, false);
    if (!stage) return NULL;
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)stage;
    prefetch->slots = (depth == MIRT_AUTOTUNE ? 2 : depth) + 1;
    dataset->lent = dataset->stage->fill != NULL;
    if (mirt__prefetch_create_slots(prefetch) != MIRT_OK || mirt__prefetch_start(prefetch) != MIRT_OK)
        return mirt__dataset_give_up(stage, false);
    return stage;
}

#endif
