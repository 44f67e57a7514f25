/* Writes the page of a run again and again while fit trains. */
#include "posix.h"
#include "cli.h"
#include "report.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Seconds. A thread of its own writes the page: a callback at the end of every batch would keep fit from preparing the
   next step early. It takes at most a part in EASE of one core. */
enum { USUAL = 10, LONGEST = 600, SOON = 1, EASE = 50 };

struct live_report {
    mirt_callback callback;
    const options *o;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool runs;       /* the thread was started */
    bool due, ended; /* under the mutex: an epoch has ended; fit has ended */
};

static double clock_now(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double real_time(void) { return clock_now(CLOCK_REALTIME); }

/* Until `seconds` have passed, fit has ended, or, if `early`, an epoch has. Returns whether fit continues. */
static bool wait_for_news(live_report *self, double seconds, bool early) {
    const double until = real_time() + seconds;
    struct timespec when;
    when.tv_sec = (time_t)until;
    when.tv_nsec = (long)(1e9 * (until - floor(until)));
    pthread_mutex_lock(&self->mutex);
    while (!self->ended && !(early && self->due) && pthread_cond_timedwait(&self->wake, &self->mutex, &when) == 0) {}
    if (early) self->due = false;
    const bool continues = !self->ended;
    pthread_mutex_unlock(&self->mutex);
    return continues;
}

/* Ends after a failure, which the last page will have as well. */
static void *keep_writing(void *arg) {
    live_report *self = (live_report *)arg;
    live_page live = {0, USUAL, self->o->max_steps};
    double rest = 0;
    while (wait_for_news(self, rest, false) && wait_for_news(self, live.every - rest, true)) {
        const double begun = seconds_now(), used = clock_now(CLOCK_THREAD_CPUTIME_ID);
        live.now = real_time();
        if (!write_run_page(self->o->run, OWNER_RUNNING, &live)) break;
        const double cost = fmax(EASE * (clock_now(CLOCK_THREAD_CPUTIME_ID) - used), 2 * (seconds_now() - begun));
        rest = fmin(fmax(SOON, cost), LONGEST / 2);
        live.every = fmin(fmax(USUAL, 2 * rest), LONGEST); /* the next page says so */
    }
    return NULL;
}

/* The log has its first lines: the callback that writes it comes earlier in the list. */
static int begin_writing(const mirt_event *event, void *user) {
    live_report *self = (live_report *)user;
    sigset_t all, before;
    (void)event;
    self->due = true;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for the threads that were there before */
    self->runs = pthread_create(&self->thread, NULL, keep_writing, self) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!self->runs) note("no page during training: cannot start a thread");
    return 0;
}

static int epoch_ended(const mirt_event *event, void *user) {
    live_report *self = (live_report *)user;
    (void)event;
    pthread_mutex_lock(&self->mutex);
    self->due = true;
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->mutex);
    return 0;
}

live_report *begin_live_report(const options *o, mirt_fit_desc *desc) {
    int at = 0;
    while (at < MIRT_MAX_CALLBACKS && desc->callbacks[at]) at++;
    live_report *self = at < MIRT_MAX_CALLBACKS ? (live_report *)calloc(1, sizeof *self) : NULL;
    if (!self) return NULL;
    self->o = o;
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->wake, NULL);
    self->callback.user = self;
    self->callback.train_begin = begin_writing;
    self->callback.epoch_end = epoch_ended;
    desc->callbacks[at] = &self->callback;
    return self;
}

void end_live_report(live_report *self) {
    if (!self) return;
    pthread_mutex_lock(&self->mutex);
    self->ended = true;
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->mutex);
    if (self->runs) pthread_join(self->thread, NULL);
    pthread_cond_destroy(&self->wake);
    pthread_mutex_destroy(&self->mutex);
    free(self);
}
