/* Prepares batches in a worker thread before they are used. */

#include "workers.h"

#ifndef MIRRORTRAIN_NO_THREADS

/* A slot is in one list, or held by the consumer, or filled by the worker. */
typedef struct mirt__berth {
    mirt__slot slot;
    uint64_t pass; /* of the previous stages */
    struct mirt__berth *next;
} mirt__berth;

typedef struct mirt__berth_list {
    mirt__berth *first, *last;
} mirt__berth_list;

static void mirt__berth_push(mirt__berth_list *list, mirt__berth *ahead) {
    ahead->next = NULL;
    if (list->first) list->last->next = ahead;
    else list->first = ahead;
    list->last = ahead;
}

static mirt__berth *mirt__berth_pop(mirt__berth_list *list) {
    mirt__berth *ahead = list->first;
    list->first = ahead->next;
    return ahead;
}

/* Everything but the memory of slots is guarded by the mutex. */
typedef struct mirt__prefetch_dataset {
    mirt_dataset base;
    int slots, most; /* depth plus the slot that the consumer holds, now and at most */
    mirt__berth *slot; /* they follow this struct in its block */
    mirt__berth *held; /* held by the consumer until its next call */
    mirt__berth_list free, asked, filled; /* asked: workers of the previous stage are filling them already */
    mirt__signals signals;
    mirt__thread thread;
    mirt__caller caller; /* settings of the thread that began the pass */
    bool has_thread;
    double waited; /* seconds that the consumer waited since the worker began the last batch */
    bool full;     /* no slot has been free since their number last grew */
    bool busy;             /* the worker runs through an epoch */
    bool cancel, quit;     /* requests to the worker */
    mirt_status status;    /* why the epoch ended; MIRT_OK at its regular end */
    char error[512];
} mirt__prefetch_dataset;

/* If the consumer waited although at times no slot was free, adds slots, up to a memory limit. */
static void mirt__prefetch_deepen(mirt__prefetch_dataset *prefetch) {
    const size_t most_bytes = (size_t)256 << 20;
    const mirt__data_spec *spec = &prefetch->base.spec;
    size_t bytes = 0;
    for (int f = 0; f < spec->num_fields; f++) bytes += spec->field[f].bytes;
    bytes *= (size_t)mirt__data_most_rows(spec);
    for (int wanted = 2 * prefetch->slots - 1; prefetch->slots < wanted && prefetch->slots < prefetch->most;
         prefetch->slots++) {
        mirt__berth *ahead = &prefetch->slot[prefetch->slots];
        if (bytes > most_bytes / (size_t)(prefetch->slots + 1)) return;
        if (mirt__slot_create(&ahead->slot, spec, mirt__data_most_rows(spec), true) != MIRT_OK) return;
        mirt__berth_push(&prefetch->free, ahead);
    }
}

/* Tells the previous stages, up to one with its own thread, whether the consumer had to wait. */
static void mirt__prefetch_tell(mirt__prefetch_dataset *prefetch) {
    const double least = 1e-4;
    bool fed = prefetch->waited < least;
    if (!fed && prefetch->full) mirt__prefetch_deepen(prefetch);
    if (!fed) prefetch->full = false;
    prefetch->waited = 0;
    for (mirt_dataset *d = prefetch->base.source; d && d->stage != prefetch->base.stage; d = d->source) d->fed = fed;
}

/* Runs one epoch; the mutex is locked on entry and return. */
static void mirt__prefetch_epoch(mirt__prefetch_dataset *prefetch) {
    mirt_dataset *source = prefetch->base.source;
    for (;;) {
        while (!prefetch->cancel && !prefetch->free.first && !prefetch->asked.first) {
            prefetch->full = true;
            pthread_cond_wait(&prefetch->signals.to_threads, &prefetch->signals.mutex);
        }
        if (prefetch->cancel) return;
        mirt__prefetch_tell(prefetch);
        while (prefetch->free.first && mirt__batch_ask(source, &prefetch->free.first->slot))
            mirt__berth_push(&prefetch->asked, mirt__berth_pop(&prefetch->free));
        mirt__berth *ahead = mirt__berth_pop(prefetch->asked.first ? &prefetch->asked : &prefetch->free);
        pthread_mutex_unlock(&prefetch->signals.mutex);
        mirt_status status = source->lent ? source->stage->fill(source, &ahead->slot)
                                          : mirt__slot_pull(&ahead->slot, source);
        if (MIRT__TRAINS) mirt__dataset_repeats(source, &ahead->pass);
        pthread_mutex_lock(&prefetch->signals.mutex);
        bool any = status == MIRT_OK && ahead->slot.rows > 0;
        mirt__berth_push(any ? &prefetch->filled : &prefetch->free, ahead);
        if (any) pthread_cond_signal(&prefetch->signals.to_consumer);
        if (any || status == MIRT__SKIPPED) continue;
        prefetch->status = status;
        if (status != MIRT_OK) snprintf(prefetch->error, sizeof prefetch->error, "%s", mirt_last_error());
        return;
    }
}

static void *mirt__prefetch_worker(void *arg) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)arg;
    pthread_mutex_lock(&prefetch->signals.mutex);
    while (!prefetch->quit || prefetch->busy) {
        if (prefetch->busy) {
            mirt__caller_set(&prefetch->caller, NULL);
            mirt__prefetch_epoch(prefetch);
            prefetch->busy = false;
            pthread_cond_signal(&prefetch->signals.to_consumer);
        } else {
            pthread_cond_wait(&prefetch->signals.to_threads, &prefetch->signals.mutex);
        }
    }
    pthread_mutex_unlock(&prefetch->signals.mutex);
    return NULL;
}

/* Returns once the worker is idle, or ends. */
static void mirt__prefetch_stop(mirt__prefetch_dataset *prefetch, bool quit) {
    pthread_mutex_lock(&prefetch->signals.mutex);
    prefetch->cancel = true;
    prefetch->quit = quit;
    pthread_cond_signal(&prefetch->signals.to_threads);
    while (prefetch->busy) mirt__signals_wait(&prefetch->signals);
    prefetch->cancel = false;
    pthread_mutex_unlock(&prefetch->signals.mutex);
}

static mirt_status mirt__prefetch_begin(mirt_dataset *dataset) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)dataset;
    mirt__prefetch_stop(prefetch, false);
    /* While the worker is idle, this thread owns the previous stages, so their messages are logged at once. */
    mirt_status status = mirt__dataset_begin_source(dataset);
    pthread_mutex_lock(&prefetch->signals.mutex);
    memset(&prefetch->free, 0, sizeof prefetch->free);
    prefetch->asked = prefetch->filled = prefetch->free;
    for (int i = 0; i < prefetch->slots; i++) mirt__berth_push(&prefetch->free, &prefetch->slot[i]);
    prefetch->held = NULL;
    prefetch->caller = mirt__caller_get();
    prefetch->status = MIRT_OK;
    prefetch->busy = status == MIRT_OK;
    pthread_cond_signal(&prefetch->signals.to_threads);
    pthread_mutex_unlock(&prefetch->signals.mutex);
    return status;
}

static mirt_status mirt__prefetch_next(mirt_dataset *dataset, mirt__batch *out) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)dataset;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&prefetch->signals.mutex);
    if (prefetch->held) {
        mirt__berth_push(&prefetch->free, prefetch->held);
        pthread_cond_signal(&prefetch->signals.to_threads);
    }
    if (prefetch->busy && !prefetch->filled.first) {
        double began = mirt__now();
        while (prefetch->busy && !prefetch->filled.first) mirt__signals_wait(&prefetch->signals);
        prefetch->waited += mirt__now() - began;
    }
    prefetch->held = prefetch->filled.first ? mirt__berth_pop(&prefetch->filled) : NULL;
    mirt__berth *held = prefetch->held;
    mirt_status status = prefetch->status;
    pthread_mutex_unlock(&prefetch->signals.mutex);
    if (!held) return status == MIRT_OK ? MIRT_OK : mirt__fail(status, "%s", prefetch->error);
    dataset->pass = held->pass;
    mirt__slot_give(&held->slot, &dataset->spec, 0, held->slot.rows, out);
    return MIRT_OK;
}

static void mirt__prefetch_release(mirt_dataset *dataset) {
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)dataset;
    if (prefetch->has_thread) {
        mirt__prefetch_stop(prefetch, true);
        pthread_join(prefetch->thread.id, NULL);
    }
    /* Its workers may be filling slots of this stage. */
    if (dataset->source->worker_pool) mirt__workers_drop(dataset->source->worker_pool);
    mirt__signals_destroy(&prefetch->signals);
    for (int i = 0; i < prefetch->slots; i++) mirt__aligned_free(prefetch->slot[i].slot.block);
}

static const mirt__stage mirt__prefetch_stage = {
    mirt__prefetch_begin, mirt__prefetch_next, NULL, NULL, NULL, mirt__prefetch_release, NULL};

static mirt_status mirt__prefetch_add(mirt_dataset **chain, int depth) {
    const int slots = (depth == MIRT_AUTOTUNE ? 2 : depth) + 1, most = depth == MIRT_AUTOTUNE ? 16 + 1 : slots;
    mirt_dataset *source = *chain;
    if (mirt__reachable(source) || source->run || source->pointing || source->stage == &mirt__prefetch_stage)
        return MIRT_OK; /* nothing to prepare, not possible yet, or already prefetched */
    mirt_status status = mirt__dataset_add(chain, sizeof(mirt__prefetch_dataset) + (size_t)most * sizeof(mirt__berth),
                                           &mirt__prefetch_stage);
    if (status != MIRT_OK) return status;
    mirt__prefetch_dataset *prefetch = (mirt__prefetch_dataset *)*chain;
    prefetch->slot = (mirt__berth *)(void *)(prefetch + 1);
    prefetch->most = most;
    prefetch->base.joins = 1;
    prefetch->base.ahead = prefetch->base.keeps_pass = true;
    prefetch->waited = 1; /* the first epoch always begins with a wait */
    source->lent = source->stage->fill != NULL;
    while (prefetch->slots < slots && status == MIRT_OK)
        status = mirt__slot_create(&prefetch->slot[prefetch->slots++].slot, &source->spec,
                                   mirt__data_most_rows(&source->spec), true);
    if (status != MIRT_OK) return status;
    int code = mirt__signals_create(&prefetch->signals);
    if (code == 0) code = mirt__thread_start(&prefetch->thread, mirt__prefetch_worker, prefetch);
    prefetch->has_thread = code == 0;
    return code ? mirt__fail(MIRT_E_THREAD, "cannot start the prefetch thread: %s", strerror(code)) : MIRT_OK;
}

#else
static mirt_status mirt__prefetch_add(mirt_dataset **chain, int depth) { return (void)chain, (void)depth, MIRT_OK; }
#endif

MIRT__LIB mirt_status mirt__prefetch_over(mirt_dataset **chain, int depth) {
    const int most = 4096;
    if ((depth >= 1 && depth <= most) || depth == MIRT_AUTOTUNE) return mirt__prefetch_add(chain, depth);
    return mirt__fail(MIRT_E_INVALID, "a prefetch depth of %d: it must be 1 to %d, or MIRT_AUTOTUNE", depth, most);
}

MIRT_API mirt_dataset *mirt_prefetch(mirt_dataset *dataset, int depth) {
    MIRT__ENTER;
    return dataset ? mirt__dataset_checked(mirt__prefetch_over(&dataset, depth), &dataset) : NULL;
}
