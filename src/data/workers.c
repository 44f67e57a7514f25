/* Worker threads that make samples: their number, their jobs, their buffers. */

#include "../base/team.h"
#include "workers.h"

/* >>buffers of stages */

typedef struct mirt__room {
    const mirt_dataset *stage;
    void *block;
    size_t bytes;
} mirt__room;

struct mirt__work {
    mirt__at at;
    mirt__room *room;
    int rooms;
};

MIRT__LIB mirt__work *mirt__work_create(void) {
    return (mirt__work *)mirt__calloc(1, sizeof(mirt__work));
}

MIRT__LIB void mirt__work_destroy(mirt__work *work) {
    for (int i = 0; work && i < work->rooms; i++) mirt__aligned_free(work->room[i].block);
    if (work) mirt__free(work->room);
    mirt__free(work);
}

MIRT__LIB void *mirt__work_room(mirt__work *work, const mirt_dataset *stage, size_t bytes) {
    int i = 0;
    while (i < work->rooms && work->room[i].stage != stage) i++;
    if (i == work->rooms) {
        if (!mirt__grow((void **)&work->room, (size_t)i, (size_t)i + 1, sizeof(mirt__room))) return NULL;
        memset(&work->room[i], 0, sizeof work->room[i]);
        work->room[i].stage = stage;
        work->rooms++;
    }
    mirt__room *room = &work->room[i];
    if (room->block && room->bytes >= bytes) return room->block;
    void *block = mirt__aligned_alloc(bytes ? bytes : 1);
    if (!block) return NULL;
    mirt__aligned_free(room->block);
    room->block = block;
    room->bytes = bytes;
    return block;
}

MIRT__LIB void mirt__at_begin(mirt_dataset *dataset, mirt__work *work, const char *name, int64_t index) {
    mirt__at *at = work ? &work->at : &dataset->at;
    __atomic_store_n(&at->index, index, __ATOMIC_RELAXED);
    __atomic_store_n(&at->name, name, __ATOMIC_RELEASE);
}

MIRT__LIB void mirt__at_end(mirt_dataset *dataset, mirt__work *work) {
    __atomic_store_n(work ? &work->at.name : &dataset->at.name, (const char *)NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&dataset->made, __atomic_load_n(&dataset->made, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

/* The lesser of two. */
MIRT__TRAINING void mirt__at_least(const mirt__at *at, mirt__at *out) {
    const char *name = __atomic_load_n(&at->name, __ATOMIC_ACQUIRE);
    int64_t index = __atomic_load_n(&at->index, __ATOMIC_RELAXED);
    if (!name || (out->name && out->index <= index)) return;
    out->name = name;
    out->index = index;
}

/* >>the worker pool */

#define MIRT__WORKERS_JOBS 16
#define MIRT__WORKERS_MOST 256

/* Samples [first, first + count) to make in the slot; threads claim a few at a time, in ascending order. */
typedef struct mirt__worker_job {
    mirt__slot slot;
    int64_t first, count; /* after a failure `count` is the number claimed until then */
    int64_t claimed, done, skipped;
    int64_t failed; /* the first sample that failed */
    mirt_status status;
    char error[512];
    mirt__caller caller;
} mirt__worker_job;

#ifndef MIRRORTRAIN_NO_THREADS
typedef struct mirt__worker_thread {
    mirt__worker_pool *pool;
    mirt__work *work;
    mirt__thread thread;
} mirt__worker_thread;
#endif

/* Jobs form a ring buffer, `finished` to `asked`; the mutex guards everything but the memory of claimed samples. */
struct mirt__worker_pool {
    mirt_dataset *source;
    mirt__work *work; /* of the requesting thread, which makes samples itself while there are no workers */
    mirt__worker_job job[MIRT__WORKERS_JOBS];
    int64_t asked, finished;
    double seconds, longest; /* that samples took, and that of the longest claim, which may have waited for a core */
    int64_t samples;
    bool ahead;            /* jobs are requested before they are needed */
    bool bound;            /* no more threads will be started */
    int threads, cores;
#ifndef MIRRORTRAIN_NO_THREADS
    mirt__signals signals;
    mirt__worker_thread thread[MIRT__WORKERS_MOST];
    bool quit;
#endif
};

#ifdef MIRRORTRAIN_NO_THREADS
static void mirt__workers_lock(mirt__worker_pool *pool, bool locked) { (void)pool, (void)locked; }
static void mirt__workers_wake(mirt__worker_pool *pool, bool threads) { (void)pool, (void)threads; }
static void mirt__workers_wait(mirt__worker_pool *pool, const mirt__worker_job *job) { (void)pool, (void)job; }
#else
MIRT__LIB int mirt__signals_create(mirt__signals *signals) {
    int code = pthread_mutex_init(&signals->mutex, NULL);
    if (!code && ++signals->made) code = pthread_cond_init(&signals->to_threads, NULL);
    if (!code && ++signals->made) code = pthread_cond_init(&signals->to_consumer, NULL);
    if (!code) signals->made++;
    return code;
}

MIRT__LIB void mirt__signals_destroy(mirt__signals *signals) {
    if (signals->made > 2) pthread_cond_destroy(&signals->to_consumer);
    if (signals->made > 1) pthread_cond_destroy(&signals->to_threads);
    if (signals->made > 0) pthread_mutex_destroy(&signals->mutex);
}

MIRT__LIB void mirt__signals_wait(mirt__signals *signals) {
    pthread_cond_wait(&signals->to_consumer, &signals->mutex);
}

static void mirt__workers_lock(mirt__worker_pool *pool, bool locked) {
    locked ? pthread_mutex_lock(&pool->signals.mutex) : pthread_mutex_unlock(&pool->signals.mutex);
}

/* Wakes the threads, or who waits for them. */
static void mirt__workers_wake(mirt__worker_pool *pool, bool threads) {
    pthread_cond_broadcast(threads ? &pool->signals.to_threads : &pool->signals.to_consumer);
}

/* Waits for the samples of a job; the mutex is locked on entry and return. */
static void mirt__workers_wait(mirt__worker_pool *pool, const mirt__worker_job *job) {
    while (job->done < job->count) mirt__signals_wait(&pool->signals);
}
#endif

static mirt__worker_job *mirt__worker_job_at(mirt__worker_pool *pool, int64_t number) {
    return &pool->job[number % MIRT__WORKERS_JOBS];
}

/* Makes samples [row, end) of a job without the mutex; marks and counts MIRT__SKIPPED rows. Returns the row that
   failed, or `end`. */
static int64_t mirt__workers_make(mirt_dataset *source, const mirt__worker_job *job, mirt__work *work, int64_t row,
                               int64_t end, int64_t *skipped, mirt_status *status) {
    const mirt__data_spec *spec = &source->spec;
    void *field[MIRT__MAX_FIELDS];
    for (; row < end; row++) {
        for (int f = 0; f < spec->num_fields; f++)
            field[f] = (char *)job->slot.field[f] + (size_t)row * spec->field[f].bytes;
        *status = source->stage->make(source, job->first + row, work, field, &job->slot.index[row]);
        if (*status == MIRT__SKIPPED) {
            job->slot.index[row] = MIRT__NO_INDEX;
            ++*skipped;
        } else if (*status != MIRT_OK) {
            return row;
        }
    }
    *status = MIRT_OK;
    return end;
}

/* Seconds per sample; 0: unknown. */
static double mirt__workers_pace(const mirt__worker_pool *pool) {
    const int64_t few = 4;
    return pool->samples < few ? 0 : (pool->seconds - pool->longest) / (double)(pool->samples - 1);
}

static void mirt__workers_measure(mirt__worker_pool *pool, double seconds, int64_t samples) {
    const int64_t many = 4096;
    pool->seconds += seconds;
    pool->samples += samples;
    if (seconds > pool->longest) pool->longest = seconds;
    if (pool->samples < many) return;
    pool->samples /= 2;
    pool->seconds /= 2;
    pool->longest = 0;
}

/* Claims some samples of a job and makes them; the mutex is locked on entry and return. */
static void mirt__workers_step(mirt__worker_pool *pool, mirt__worker_job *job, mirt__work *work) {
    const double least = 20e-6; /* seconds of work that are worth waking a thread */
    int64_t row = job->claimed, rows = 1, skipped = 0, fair = (job->count - row) / (4 * (pool->threads + 1));
    mirt_status status;
    const double pace = mirt__workers_pace(pool);
    if (pace > 0 && pace < least) rows = (int64_t)(least / pace);
    if (rows > fair) rows = fair > 1 ? fair : 1;
    job->claimed += rows;
    mirt__workers_lock(pool, false);
    double began = mirt__now();
    int64_t end = mirt__workers_make(pool->source, job, work, row, row + rows, &skipped, &status);
    double seconds = mirt__now() - began;
    mirt__workers_lock(pool, true);
    mirt__workers_measure(pool, seconds, rows);
    job->done += rows;
    job->skipped += skipped;
    if (status != MIRT_OK) {
        if (job->status == MIRT_OK || end < job->failed) {
            job->failed = end;
            job->status = status;
            snprintf(job->error, sizeof job->error, "%s", mirt_last_error());
        }
        job->count = job->claimed;
    }
    if (job->done == job->count) mirt__workers_wake(pool, false);
}

#ifndef MIRRORTRAIN_NO_THREADS

static mirt__worker_job *mirt__workers_unclaimed(mirt__worker_pool *pool) {
    for (int64_t i = pool->finished; i < pool->asked; i++) {
        mirt__worker_job *job = mirt__worker_job_at(pool, i);
        if (job->claimed < job->count) return job;
    }
    return NULL;
}

static void *mirt__workers_main(void *arg) {
    mirt__worker_thread *thread = (mirt__worker_thread *)arg;
    mirt__worker_pool *pool = thread->pool;
    mirt__workers_lock(pool, true);
    while (!pool->quit) {
        mirt__worker_job *job = mirt__workers_unclaimed(pool);
        if (job) mirt__caller_set(&job->caller, NULL);
        if (job) mirt__workers_step(pool, job, thread->work);
        else pthread_cond_wait(&pool->signals.to_threads, &pool->signals.mutex);
    }
    mirt__workers_lock(pool, false);
    return NULL;
}

/* Starts threads up to this number, in the requesting thread, with the mutex locked. */
static mirt_status mirt__workers_start(mirt__worker_pool *pool, int threads) {
    while (pool->threads < threads) {
        mirt__worker_thread *thread = &pool->thread[pool->threads];
        thread->pool = pool;
        if (!thread->work && !(thread->work = mirt__work_create())) return MIRT_E_NOMEM;
        int code = mirt__thread_start(&thread->thread, mirt__workers_main, thread);
        if (code)
            return mirt__fail(MIRT_E_THREAD, "cannot start worker thread %d of %d: %s", pool->threads + 1,
                              threads, strerror(code));
        pool->threads++;
    }
    return MIRT_OK;
}

/* Starts more threads if the consumer waits for samples and `samples` at a time are enough work for them. */
static void mirt__workers_tune(mirt__worker_pool *pool, int64_t samples) {
    const double worth = 100e-6, left = (double)samples * mirt__workers_pace(pool);
    int most = pool->cores, threads = pool->threads;
    if (pool->bound || (pool->ahead && pool->source->fed)) return;
    if (left < worth * most) most = (int)(left / worth);
    if (pool->ahead && most > 2 * threads) most = threads ? 2 * threads : 2;
    if (most < 2 || most <= threads) return;
    if (mirt__workers_start(pool, most) != MIRT_OK) pool->bound = true;
}

static mirt_status mirt__workers_init(mirt__worker_pool *pool) {
    const int code = mirt__signals_create(&pool->signals);
    return code ? mirt__fail(MIRT_E_THREAD, "cannot create worker threads: %s", strerror(code)) : MIRT_OK;
}

#else

static mirt_status mirt__workers_start(mirt__worker_pool *pool, int threads) {
    return (void)pool, (void)threads, MIRT_OK;
}
static void mirt__workers_tune(mirt__worker_pool *pool, int64_t samples) { (void)pool, (void)samples; }
static mirt_status mirt__workers_init(mirt__worker_pool *pool) { return (void)pool, MIRT_OK; }

#endif

MIRT__LIB void mirt__workers_destroy(mirt__worker_pool *pool) {
    if (!pool) return;
#ifndef MIRRORTRAIN_NO_THREADS
    if (pool->signals.made == 3) {
        mirt__workers_drop(pool);
        mirt__workers_lock(pool, true);
        pool->quit = true;
        mirt__workers_wake(pool, true);
        mirt__workers_lock(pool, false);
    }
    for (int i = 0; i < pool->threads; i++) pthread_join(pool->thread[i].thread.id, NULL);
    for (int i = 0; i < MIRT__WORKERS_MOST; i++) mirt__work_destroy(pool->thread[i].work);
    mirt__signals_destroy(&pool->signals);
#endif
    mirt__work_destroy(pool->work);
    mirt__free(pool);
}

static mirt__worker_pool *mirt__workers_create(mirt_dataset *source) {
    mirt__worker_pool *pool = (mirt__worker_pool *)mirt__calloc(1, sizeof(mirt__worker_pool));
    if (!pool) return NULL;
    pool->source = source;
    pool->cores = mirt__cpu_cores();
    if (pool->cores > MIRT__WORKERS_MOST) pool->cores = MIRT__WORKERS_MOST;
    if ((pool->work = mirt__work_create()) && mirt__workers_init(pool) == MIRT_OK) return pool;
    mirt__workers_destroy(pool);
    return NULL;
}

MIRT__LIB void mirt__workers_drop(mirt__worker_pool *pool) {
    mirt__workers_lock(pool, true);
    for (int64_t i = pool->finished; i < pool->asked; i++) {
        mirt__worker_job *job = mirt__worker_job_at(pool, i);
        job->count = job->claimed;
    }
    for (; pool->finished < pool->asked; pool->finished++)
        mirt__workers_wait(pool, mirt__worker_job_at(pool, pool->finished));
    mirt__workers_lock(pool, false);
}

MIRT__LIB mirt_status mirt__workers_begin(mirt_dataset *dataset) {
    int workers = dataset->source->workers;
    if (!dataset->worker_pool)
        __atomic_store_n(&dataset->worker_pool, mirt__workers_create(dataset->source), __ATOMIC_RELEASE);
    mirt__worker_pool *pool = dataset->worker_pool;
    if (!pool) return mirt_last_status();
    mirt__workers_drop(pool);
    if (workers == 0) return MIRT_OK;
    pool->bound = true;
    if (workers == 1) return MIRT_OK;
    mirt__workers_lock(pool, true);
    mirt_status status = mirt__workers_start(pool, workers);
    mirt__workers_lock(pool, false);
    return status;
}

MIRT__TOGETHER_ONLY_LIB mirt_status mirt__workers_index(mirt__worker_pool *pool, int64_t i, int64_t *index) {
    return pool->source->stage->make(pool->source, i, pool->work, NULL, index);
}

MIRT__LIB bool mirt__workers_asked(const mirt__worker_pool *pool) {
    return pool->asked > pool->finished;
}

MIRT__LIB bool mirt__workers_ask(mirt__worker_pool *pool, const mirt__slot *slot, int64_t first, int64_t count,
                                 bool ahead) {
    if (pool->asked - pool->finished == MIRT__WORKERS_JOBS) return false;
    mirt__worker_job *job = mirt__worker_job_at(pool, pool->asked);
    mirt__workers_lock(pool, true);
    memset(job, 0, sizeof *job);
    job->slot = *slot;
    job->first = first;
    job->count = count;
    job->caller = mirt__caller_get();
    pool->asked++;
    pool->ahead = pool->ahead || ahead;
    if (pool->threads) mirt__workers_wake(pool, true);
    mirt__workers_lock(pool, false);
    return true;
}

/* Moves samples together to close the gaps of skipped ones; returns their number. */
static int64_t mirt__workers_close_up(const mirt__data_spec *spec, const mirt__slot *slot, int64_t count) {
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++) {
        if (slot->index[i] == MIRT__NO_INDEX) continue;
        for (int f = 0; f < spec->num_fields && rows < i; f++) {
            size_t bytes = spec->field[f].bytes;
            memcpy((char *)slot->field[f] + (size_t)rows * bytes, (const char *)slot->field[f] + (size_t)i * bytes,
                   bytes);
        }
        slot->index[rows++] = slot->index[i];
    }
    return rows;
}

MIRT__LIB mirt_status mirt__workers_finish(mirt__worker_pool *pool, bool gaps, int64_t *rows) {
    mirt__worker_job *job = mirt__worker_job_at(pool, pool->finished);
    mirt__workers_lock(pool, true);
    bool alone = pool->threads == 0;
    while (!pool->threads && job->claimed < job->count) {
        mirt__workers_step(pool, job, pool->work);
        mirt__workers_tune(pool, job->count - job->claimed);
    }
    mirt__workers_wait(pool, job);
    pool->finished++;
    if (!alone || job->count == 1) mirt__workers_tune(pool, job->count);
    mirt__workers_lock(pool, false);
    *rows = 0;
    if (job->status != MIRT_OK) {
        mirt__workers_drop(pool); /* the rest is no longer needed */
        return mirt__fail(job->status, "%s", job->error);
    }
    *rows = job->skipped && !gaps ? mirt__workers_close_up(&pool->source->spec, &job->slot, job->count) : job->count;
    return MIRT_OK;
}

/* >>progress of stages as seen by other threads, while a cache may free the stages before it */

#ifdef MIRRORTRAIN_NO_THREADS
static void mirt__stages_lock(bool locked) { (void)locked; }
#else
static pthread_mutex_t mirt__stages_mutex = PTHREAD_MUTEX_INITIALIZER;
static void mirt__stages_lock(bool locked) {
    locked ? pthread_mutex_lock(&mirt__stages_mutex) : pthread_mutex_unlock(&mirt__stages_mutex);
}
#endif

MIRT__TRAINING void mirt__workers_at(mirt__worker_pool *pool, mirt__at *out) {
    mirt__workers_lock(pool, true);
    mirt__at_least(&pool->work->at, out);
#ifndef MIRRORTRAIN_NO_THREADS
    for (int i = 0; i < pool->threads; i++) mirt__at_least(&pool->thread[i].work->at, out);
#endif
    mirt__workers_lock(pool, false);
}

MIRT__TRAINING void mirt__stage_at(const mirt_dataset *stage, mirt__at *out) {
    mirt__work *work = __atomic_load_n(&stage->work, __ATOMIC_ACQUIRE);
    mirt__worker_pool *pool = __atomic_load_n(&stage->worker_pool, __ATOMIC_ACQUIRE);
    mirt__at_least(&stage->at, out);
    if (work) mirt__at_least(&work->at, out);
    if (pool) mirt__workers_at(pool, out);
}

MIRT__TRAINING_LIB uint64_t mirt__dataset_made(const mirt_dataset *dataset) {
    uint64_t made = 0;
    mirt__stages_lock(true);
    for (; dataset; dataset = dataset->source) made += __atomic_load_n(&dataset->made, __ATOMIC_RELAXED);
    mirt__stages_lock(false);
    return made;
}

MIRT__TRAINING_LIB int64_t mirt__dataset_at(const mirt_dataset *dataset, char *name, size_t size) {
    mirt__at at = {NULL, 0};
    mirt__stages_lock(true);
    for (; dataset; dataset = dataset->source) mirt__stage_at(dataset, &at);
    snprintf(name, size, "%s", at.name ? at.name : "");
    mirt__stages_lock(false);
    return at.index;
}

MIRT__LIB void mirt__dataset_lose(mirt_dataset *dataset) {
    mirt__stages_lock(true);
    for (; dataset; dataset = dataset->source) dataset->lost = true;
    mirt__stages_lock(false);
}

MIRT__TRAINING_LIB void mirt__dataset_leave(mirt_dataset *dataset) {
    mirt_dataset *source = dataset->source;
    mirt__worker_pool *pool = dataset->worker_pool;
    mirt__stages_lock(true);
    dataset->source = NULL;
    dataset->worker_pool = NULL;
    const bool lost = dataset->lost;
    mirt__stages_lock(false);
    if (lost) return;
    mirt__workers_destroy(pool);
    if (!dataset->borrows) mirt_dataset_destroy(source);
}

MIRT__TRAINING_LIB void mirt__dataset_cost(const mirt_dataset *dataset, mirt__data_cost *out) {
    memset(out, 0, sizeof *out);
    out->workers = 1;
    for (const mirt_dataset *d = dataset; d; d = d->kept ? NULL : d->source) {
        if (d->cost && !strstr(out->what, d->cost))
            mirt__line_add(out->what, sizeof out->what, "%s%s", out->what[0] ? " and " : "", d->cost);
        if (d->ahead) out->ahead = true;
        if (!d->worker_pool || out->parallel) continue;
        mirt__workers_lock(d->worker_pool, true);
        if (d->worker_pool->threads > 1) out->workers = d->worker_pool->threads;
        out->seconds = mirt__workers_pace(d->worker_pool);
        mirt__workers_lock(d->worker_pool, false);
        out->parallel = true;
    }
    if (!out->what[0]) snprintf(out->what, sizeof out->what, "copying samples");
}
