/* Threads that make samples, and the memory of each. */

#include "../base/entry.h"
#include "../base/team.h"
#include "workers.h"

/* >>the room of stages */

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

MIRT__LIB bool mirt__dataset_work(mirt_dataset *dataset) {
    if (!dataset->work) __atomic_store_n(&dataset->work, mirt__work_create(), __ATOMIC_RELEASE);
    return dataset->work != NULL;
}

MIRT__LIB bool mirt__dataset_crew(mirt_dataset *dataset, mirt_dataset *source) {
    if (!dataset->crew) __atomic_store_n(&dataset->crew, mirt__crew_create(source), __ATOMIC_RELEASE);
    return dataset->crew != NULL;
}

/* The lesser of two. */
static void mirt__at_least(const mirt__at *at, mirt__at *out) {
    const char *name = __atomic_load_n(&at->name, __ATOMIC_ACQUIRE);
    int64_t index = __atomic_load_n(&at->index, __ATOMIC_RELAXED);
    if (!name || (out->name && out->index <= index)) return;
    out->name = name;
    out->index = index;
}

static void mirt__stage_at(const mirt_dataset *stage, mirt__at *out) {
    mirt__work *work = __atomic_load_n(&stage->work, __ATOMIC_ACQUIRE);
    mirt__crew *crew = __atomic_load_n(&stage->crew, __ATOMIC_ACQUIRE);
    mirt__at_least(&stage->at, out);
    if (work) mirt__at_least(&work->at, out);
    if (crew) mirt__crew_at(crew, out);
}

/* >>stages seen by a thread that does not go through them, while those before a cache may go */

#ifdef MIRRORTRAIN_NO_THREADS
static void mirt__stages_lock(bool locked) { (void)locked; }
#else
#include <pthread.h>
static pthread_mutex_t mirt__stages_mutex = PTHREAD_MUTEX_INITIALIZER;
static void mirt__stages_lock(bool locked) {
    locked ? pthread_mutex_lock(&mirt__stages_mutex) : pthread_mutex_unlock(&mirt__stages_mutex);
}
#endif

MIRT__LIB uint64_t mirt__dataset_made(const mirt_dataset *dataset) {
    uint64_t made = 0;
    mirt__stages_lock(true);
    for (; dataset; dataset = dataset->source) made += __atomic_load_n(&dataset->made, __ATOMIC_RELAXED);
    mirt__stages_lock(false);
    return made;
}

MIRT__LIB int64_t mirt__dataset_at(const mirt_dataset *dataset, char *name, size_t size) {
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

MIRT__LIB void mirt__dataset_leave(mirt_dataset *dataset) {
    mirt_dataset *source = dataset->source;
    mirt__crew *crew = dataset->crew;
    mirt__stages_lock(true);
    dataset->source = NULL;
    dataset->crew = NULL;
    const bool lost = dataset->lost;
    mirt__stages_lock(false);
    if (lost) return;
    mirt__crew_destroy(crew);
    mirt__dataset_give_up(source, dataset->borrows);
}

/* >>the crew */

#define MIRT__CREW_JOBS 16
#define MIRT__CREW_MOST 256

/* Samples [first, first + count) on their way into the slot; threads claim a few at a time, in ascending order. */
typedef struct mirt__crew_job {
    mirt__slot slot;
    int64_t first, count; /* after a failure `count` is what was claimed until then */
    int64_t claimed, done, skipped;
    int64_t failed; /* the first sample that did */
    mirt_status status;
    char error[512];
    mirt__caller caller;
} mirt__crew_job;

#ifdef MIRRORTRAIN_NO_THREADS
#define MIRT__CREW_CALL(call) ((void)0)
#else
#define MIRT__CREW_CALL(call) call
typedef struct mirt__crew_thread {
    mirt__crew *crew;
    mirt__work *work;
    mirt__thread thread;
} mirt__crew_thread;
#endif

/* Jobs are a ring, `finished` to `asked`; the mutex guards everything but the memory of claimed samples. */
struct mirt__crew {
    mirt_dataset *source;
    mirt__work *work; /* of the one who asks, who makes samples himself as long as there are no threads */
    mirt__crew_job job[MIRT__CREW_JOBS];
    int64_t asked, finished;
    double seconds, longest; /* that samples took; that of the longest claim, which may have waited for a core */
    int64_t samples;
    bool ahead;            /* jobs are asked for before they are needed */
    bool bound;            /* there will be no more threads */
    int threads, cores;
#ifndef MIRRORTRAIN_NO_THREADS
    mirt__crew_thread thread[MIRT__CREW_MOST];
    pthread_mutex_t mutex;
    pthread_cond_t to_threads, to_asker;
    int made; /* of these three, in this order */
    bool quit;
#endif
};

static mirt__crew_job *mirt__crew_job_at(mirt__crew *crew, int64_t number) {
    return &crew->job[number % MIRT__CREW_JOBS];
}

/* Samples [row, end) of a job, without the mutex; MIRT__SKIPPED rows are marked and counted. Returns the row that
   failed, or `end`. */
static int64_t mirt__crew_make(mirt_dataset *source, const mirt__crew_job *job, mirt__work *work, int64_t row,
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

/* Seconds a sample takes; 0 as long as that is not known. */
static double mirt__crew_pace(const mirt__crew *crew) {
    const int64_t few = 4;
    return crew->samples < few ? 0 : (crew->seconds - crew->longest) / (double)(crew->samples - 1);
}

static void mirt__crew_measure(mirt__crew *crew, double seconds, int64_t samples) {
    const int64_t many = 4096;
    crew->seconds += seconds;
    crew->samples += samples;
    if (seconds > crew->longest) crew->longest = seconds;
    if (crew->samples < many) return;
    crew->samples /= 2;
    crew->seconds /= 2;
    crew->longest = 0;
}

/* Claims some samples of a job and makes them; called and left with the mutex locked. */
static void mirt__crew_step(mirt__crew *crew, mirt__crew_job *job, mirt__work *work) {
    const double least = 20e-6; /* seconds for which it is worth coming */
    int64_t row = job->claimed, rows = 1, skipped = 0, fair = (job->count - row) / (4 * (crew->threads + 1));
    mirt_status status;
    const double pace = mirt__crew_pace(crew);
    if (pace > 0 && pace < least) rows = (int64_t)(least / pace);
    if (rows > fair) rows = fair > 1 ? fair : 1;
    job->claimed += rows;
    MIRT__CREW_CALL(pthread_mutex_unlock(&crew->mutex));
    double began = mirt__now();
    int64_t end = mirt__crew_make(crew->source, job, work, row, row + rows, &skipped, &status);
    double seconds = mirt__now() - began;
    MIRT__CREW_CALL(pthread_mutex_lock(&crew->mutex));
    mirt__crew_measure(crew, seconds, rows);
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
    MIRT__CREW_CALL(if (job->done == job->count) pthread_cond_signal(&crew->to_asker));
}

#ifndef MIRRORTRAIN_NO_THREADS

static mirt__crew_job *mirt__crew_unclaimed(mirt__crew *crew) {
    for (int64_t i = crew->finished; i < crew->asked; i++) {
        mirt__crew_job *job = mirt__crew_job_at(crew, i);
        if (job->claimed < job->count) return job;
    }
    return NULL;
}

static void *mirt__crew_main(void *arg) {
    mirt__crew_thread *thread = (mirt__crew_thread *)arg;
    mirt__crew *crew = thread->crew;
    pthread_mutex_lock(&crew->mutex);
    while (!crew->quit) {
        mirt__crew_job *job = mirt__crew_unclaimed(crew);
        if (job) mirt__caller_set(&job->caller, NULL);
        if (job) mirt__crew_step(crew, job, thread->work);
        else pthread_cond_wait(&crew->to_threads, &crew->mutex);
    }
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

/* As many threads in all, by the one who asks, with the mutex locked. */
static mirt_status mirt__crew_hire(mirt__crew *crew, int threads) {
    while (crew->threads < threads) {
        mirt__crew_thread *thread = &crew->thread[crew->threads];
        thread->crew = crew;
        if (!thread->work && !(thread->work = mirt__work_create())) return MIRT_E_NOMEM;
        int code = mirt__thread_start(&thread->thread, mirt__crew_main, thread);
        if (code)
            return mirt__fail(MIRT_E_THREAD, "worker thread %d of %d could not be started: %s", crew->threads + 1,
                              threads, strerror(code));
        crew->threads++;
    }
    return MIRT_OK;
}

/* More threads, if those who wait for samples do, and if `samples` at a time are worth them. */
static void mirt__crew_tune(mirt__crew *crew, int64_t samples) {
    const double worth = 100e-6, left = (double)samples * mirt__crew_pace(crew);
    int most = crew->cores, threads = crew->threads;
    if (crew->bound || (crew->ahead && crew->source->fed)) return;
    if (left < worth * most) most = (int)(left / worth);
    if (crew->ahead && most > 2 * threads) most = threads ? 2 * threads : 2;
    if (most < 2 || most <= threads) return;
    if (mirt__crew_hire(crew, most) != MIRT_OK) crew->bound = true;
}

MIRT__LIB void mirt__crew_destroy(mirt__crew *crew) {
    if (!crew) return;
    if (crew->made == 3) {
        mirt__crew_drop(crew);
        pthread_mutex_lock(&crew->mutex);
        crew->quit = true;
        pthread_cond_broadcast(&crew->to_threads);
        pthread_mutex_unlock(&crew->mutex);
        for (int i = 0; i < crew->threads; i++) pthread_join(crew->thread[i].thread.id, NULL);
    }
    for (int i = 0; i < MIRT__CREW_MOST; i++) mirt__work_destroy(crew->thread[i].work);
    if (crew->made > 2) pthread_cond_destroy(&crew->to_asker);
    if (crew->made > 1) pthread_cond_destroy(&crew->to_threads);
    if (crew->made > 0) pthread_mutex_destroy(&crew->mutex);
    mirt__work_destroy(crew->work);
    mirt__free(crew);
}

static mirt_status mirt__crew_init(mirt__crew *crew) {
    int code = pthread_mutex_init(&crew->mutex, NULL);
    if (!code && ++crew->made) code = pthread_cond_init(&crew->to_threads, NULL);
    if (!code && ++crew->made) code = pthread_cond_init(&crew->to_asker, NULL);
    if (!code) crew->made++;
    return code ? mirt__fail(MIRT_E_THREAD, "worker threads cannot be had: %s", strerror(code)) : MIRT_OK;
}

#else

static mirt_status mirt__crew_hire(mirt__crew *crew, int threads) { return (void)crew, (void)threads, MIRT_OK; }
static void mirt__crew_tune(mirt__crew *crew, int64_t samples) { (void)crew, (void)samples; }
static mirt_status mirt__crew_init(mirt__crew *crew) { return (void)crew, MIRT_OK; }

MIRT__LIB void mirt__crew_destroy(mirt__crew *crew) {
    if (crew) mirt__work_destroy(crew->work);
    mirt__free(crew);
}

#endif

MIRT__LIB mirt__crew *mirt__crew_create(mirt_dataset *source) {
    mirt__crew *crew = (mirt__crew *)mirt__calloc(1, sizeof(mirt__crew));
    if (!crew) return NULL;
    crew->source = source;
    crew->cores = mirt__cpu_cores();
    if (crew->cores > MIRT__CREW_MOST) crew->cores = MIRT__CREW_MOST;
    if ((crew->work = mirt__work_create()) && mirt__crew_init(crew) == MIRT_OK) return crew;
    mirt__crew_destroy(crew);
    return NULL;
}

MIRT__LIB void mirt__crew_drop(mirt__crew *crew) {
    MIRT__CREW_CALL(pthread_mutex_lock(&crew->mutex));
    for (int64_t i = crew->finished; i < crew->asked; i++) {
        mirt__crew_job *job = mirt__crew_job_at(crew, i);
        job->count = job->claimed;
    }
    for (; crew->finished < crew->asked; crew->finished++)
        MIRT__CREW_CALL(
            while (mirt__crew_job_at(crew, crew->finished)->done < mirt__crew_job_at(crew, crew->finished)->count)
                pthread_cond_wait(&crew->to_asker, &crew->mutex));
    MIRT__CREW_CALL(pthread_mutex_unlock(&crew->mutex));
}

MIRT__LIB mirt_status mirt__crew_begin(mirt__crew *crew) {
    int workers = crew->source->workers;
    mirt__crew_drop(crew);
    if (workers == 0) return MIRT_OK;
    crew->bound = true;
    if (workers == 1) return MIRT_OK;
    MIRT__CREW_CALL(pthread_mutex_lock(&crew->mutex));
    mirt_status status = mirt__crew_hire(crew, workers);
    MIRT__CREW_CALL(pthread_mutex_unlock(&crew->mutex));
    return status;
}

MIRT__LIB void mirt__crew_at(mirt__crew *crew, mirt__at *out) {
    MIRT__CREW_CALL(pthread_mutex_lock(&crew->mutex));
    mirt__at_least(&crew->work->at, out);
    MIRT__CREW_CALL(for (int i = 0; i < crew->threads; i++) mirt__at_least(&crew->thread[i].work->at, out));
    MIRT__CREW_CALL(pthread_mutex_unlock(&crew->mutex));
}

MIRT__LIB bool mirt__crew_asked(const mirt__crew *crew) {
    return crew->asked > crew->finished;
}

MIRT__LIB bool mirt__crew_ask(mirt__crew *crew, const mirt__slot *slot, int64_t first, int64_t count, bool ahead) {
    if (crew->asked - crew->finished == MIRT__CREW_JOBS) return false;
    mirt__crew_job *job = mirt__crew_job_at(crew, crew->asked);
    MIRT__CREW_CALL(pthread_mutex_lock(&crew->mutex));
    memset(job, 0, sizeof *job);
    job->slot = *slot;
    job->first = first;
    job->count = count;
    job->caller = mirt__caller_get();
    crew->asked++;
    crew->ahead = crew->ahead || ahead;
    MIRT__CREW_CALL(if (crew->threads) pthread_cond_broadcast(&crew->to_threads));
    MIRT__CREW_CALL(pthread_mutex_unlock(&crew->mutex));
    return true;
}

/* Moves the samples together that were not skipped; returns how many they are. */
static int64_t mirt__crew_close_up(const mirt__data_spec *spec, const mirt__slot *slot, int64_t count) {
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

MIRT__LIB mirt_status mirt__crew_finish(mirt__crew *crew, bool gaps, int64_t *rows) {
    mirt__crew_job *job = mirt__crew_job_at(crew, crew->finished);
    MIRT__CREW_CALL(pthread_mutex_lock(&crew->mutex));
    bool alone = crew->threads == 0;
    while (!crew->threads && job->claimed < job->count) {
        mirt__crew_step(crew, job, crew->work);
        mirt__crew_tune(crew, job->count - job->claimed);
    }
    MIRT__CREW_CALL(while (job->done < job->count) pthread_cond_wait(&crew->to_asker, &crew->mutex));
    crew->finished++;
    if (!alone || job->count == 1) mirt__crew_tune(crew, job->count);
    MIRT__CREW_CALL(pthread_mutex_unlock(&crew->mutex));
    *rows = 0;
    if (job->status != MIRT_OK) {
        mirt__crew_drop(crew); /* nobody will want the rest */
        return mirt__fail(job->status, "%s", job->error);
    }
    *rows = job->skipped && !gaps ? mirt__crew_close_up(&crew->source->spec, &job->slot, job->count) : job->count;
    return MIRT_OK;
}

MIRT__LIB int mirt__crew_numbers(mirt__crew *crew, double *seconds) {
    MIRT__CREW_CALL(pthread_mutex_lock(&crew->mutex));
    const int threads = crew->threads;
    *seconds = mirt__crew_pace(crew);
    MIRT__CREW_CALL(pthread_mutex_unlock(&crew->mutex));
    return threads;
}

MIRT__LIB void mirt__dataset_cost(const mirt_dataset *dataset, mirt__data_cost *out) {
    memset(out, 0, sizeof *out);
    out->workers = 1;
    for (const mirt_dataset *d = dataset; d; d = d->kept ? NULL : d->source) {
        const size_t used = strlen(out->what);
        if (d->cost && !strstr(out->what, d->cost))
            snprintf(out->what + used, sizeof out->what - used, "%s%s", used ? " and " : "", d->cost);
        if (d->ahead) out->ahead = true;
        if (!d->crew || out->parallel) continue;
        const int threads = mirt__crew_numbers(d->crew, &out->seconds);
        out->parallel = true;
        if (threads > 1) out->workers = threads;
    }
    if (!out->what[0]) snprintf(out->what, sizeof out->what, "copying samples");
}
