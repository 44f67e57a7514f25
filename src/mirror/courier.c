/* A thread that sums buckets over processes during the backward pass. */
#include "step.h"

#ifdef MIRRORTRAIN_NO_THREADS

MIRT__LIB bool mirt__courier_begin(mirt__step *step) { return (void)step, false; }
MIRT__LIB void mirt__courier_post(mirt__step *step, int bucket) { (void)step, (void)bucket; }
MIRT__LIB bool mirt__courier_await(mirt__step *step, mirt__engine_failure *failure) {
    return (void)step, (void)failure, true;
}
MIRT__LIB void mirt__courier_end(mirt__step *step, bool given_up) { (void)step, (void)given_up; }
MIRT__LIB void mirt__courier_destroy(mirt__courier *courier) { (void)courier; }

#else

/* The mutex guards everything. */
struct mirt__courier {
    mirt__thread thread;
    pthread_mutex_t mutex;
    pthread_cond_t posted, done;
    mirt__step *step; /* whose buckets it takes; NULL: none */
    int *arrived;     /* [num_buckets]: devices that have a bucket's gradients */
    int room;         /* of arrived */
    bool quit, given_up, good;
    mirt__engine_failure failure; /* unless good */
};

/* Waits until all devices have posted the bucket; the mutex is locked. False: they will not. */
static bool mirt__courier_expect(mirt__courier *c, int bucket) {
    while (!c->given_up && c->arrived[bucket] < c->step->strategy->num_devices)
        pthread_cond_wait(&c->posted, &c->mutex);
    return !c->given_up;
}

/* The buckets of a step in the order of the program; the mutex is locked on entry and return. */
static void mirt__courier_take(mirt__courier *c) {
    mirt__step *step = c->step;
    const mirt__graph *graph = &step->program.graph;
    mirt__engine_failure failure;
    for (int i = step->program.mirrored; i < graph->count && c->good; i++) {
        const int bucket = graph->node[i]->a.index;
        if (!graph->node[i]->op->reduces) continue;
        if (!mirt__courier_expect(c, bucket)) return;
        pthread_mutex_unlock(&c->mutex);
        const bool good = mirt__peers_sum(step, bucket, &failure);
        pthread_mutex_lock(&c->mutex);
        c->good = good;
        c->failure = failure;
    }
}

static void *mirt__courier_main(void *arg) {
    mirt__courier *c = (mirt__courier *)arg;
    pthread_mutex_lock(&c->mutex);
    while (!c->quit) {
        if (!c->step) {
            pthread_cond_wait(&c->posted, &c->mutex);
            continue;
        }
        mirt__courier_take(c);
        c->step = NULL;
        pthread_cond_broadcast(&c->done);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

static mirt__courier *mirt__courier_create(void) {
    mirt__courier *c = (mirt__courier *)mirt__calloc(1, sizeof *c);
    if (!c) return NULL;
    int code = pthread_mutex_init(&c->mutex, NULL), made = code == 0;
    if (!code && !(code = pthread_cond_init(&c->posted, NULL))) made++;
    if (!code && !(code = pthread_cond_init(&c->done, NULL))) made++;
    if (!code) code = mirt__thread_start(&c->thread, mirt__courier_main, c);
    if (!code) return c;
    if (made > 2) pthread_cond_destroy(&c->done);
    if (made > 1) pthread_cond_destroy(&c->posted);
    if (made > 0) pthread_mutex_destroy(&c->mutex);
    mirt__free(c);
    mirt__fail(MIRT_E_THREAD, "the thread that sums gradients could not be started: %s", strerror(code));
    return NULL;
}

MIRT__LIB void mirt__courier_destroy(mirt__courier *c) {
    if (!c) return;
    pthread_mutex_lock(&c->mutex);
    c->quit = true;
    pthread_cond_signal(&c->posted);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread.id, NULL);
    pthread_cond_destroy(&c->posted);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->mutex);
    mirt__free(c->arrived);
    mirt__free(c);
}

MIRT__LIB bool mirt__courier_begin(mirt__step *step) {
    mirt__peers *p = step->strategy->peers;
    if (!p->courier && !(p->courier = mirt__courier_create())) return false;
    mirt__courier *c = p->courier;
    if (c->room < step->num_buckets) {
        if (!mirt__grow((void **)&c->arrived, 0, (size_t)step->num_buckets, sizeof *c->arrived)) return false;
        c->room = step->num_buckets;
    }
    pthread_mutex_lock(&c->mutex);
    memset(c->arrived, 0, (size_t)step->num_buckets * sizeof *c->arrived);
    c->good = true;
    c->given_up = false;
    c->step = step;
    mirt__peers_hurry(step->strategy, false);
    pthread_cond_signal(&c->posted);
    pthread_mutex_unlock(&c->mutex);
    return true;
}

MIRT__LIB void mirt__courier_post(mirt__step *step, int bucket) {
    mirt__courier *c = step->strategy->peers->courier;
    pthread_mutex_lock(&c->mutex);
    if (++c->arrived[bucket] == step->strategy->num_devices) pthread_cond_signal(&c->posted);
    pthread_mutex_unlock(&c->mutex);
}

/* The wait is as long as those of the messages that the courier waits for. */
static void mirt__courier_settle(mirt__courier *c, mirt_strategy *s) {
    __atomic_fetch_add(&s->peers->trades, 1, __ATOMIC_RELAXED);
    mirt__peers_hurry(s, true);
    while (c->step) pthread_cond_wait(&c->done, &c->mutex);
    __atomic_fetch_sub(&s->peers->trades, 1, __ATOMIC_RELAXED);
}

MIRT__LIB bool mirt__courier_await(mirt__step *step, mirt__engine_failure *failure) {
    mirt__courier *c = step->strategy->peers->courier;
    pthread_mutex_lock(&c->mutex);
    mirt__courier_settle(c, step->strategy);
    const bool good = c->good;
    *failure = c->failure;
    pthread_mutex_unlock(&c->mutex);
    return good;
}

MIRT__LIB void mirt__courier_end(mirt__step *step, bool given_up) {
    mirt__courier *c = step->strategy->peers->courier;
    pthread_mutex_lock(&c->mutex);
    c->given_up = c->given_up || given_up;
    pthread_cond_signal(&c->posted);
    mirt__courier_settle(c, step->strategy);
    pthread_mutex_unlock(&c->mutex);
}

#endif
