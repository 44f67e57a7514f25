/* Thread pool: threads that wait for jobs, and gates to wait at. */

#include "entry.h"
#include "team.h"

/* Claims of a member's tasks: the number of the loop, and in the lower half how many are claimed in it. Atomic. */
typedef struct mirt__team_range {
    uint64_t claimed __attribute__((aligned(MIRT__ALIGN)));
} mirt__team_range;

/* The data that members of mirt__team_for share. A loop over the same rows as the one before gives each member the rows
   that are in its cache: every member has a range of the tasks, and helps others when it has finished its own. */
typedef struct mirt__team_loop {
    void (*fn)(void *arg, int64_t task, int member);
    void *arg;
    int64_t tasks;
    uint32_t number;         /* of the loop */
    int open;                /* atomic: ranges with unclaimed tasks */
    mirt__team_range *range; /* of each member */
} mirt__team_loop;

#ifdef MIRRORTRAIN_NO_THREADS

struct mirt__team {
    int size;
    mirt__team_loop loop;
    const mirt__task_recorder *recorder; /* NULL: none */
};

/* Whether there are threads besides the caller. */
static bool mirt__team_started(const mirt__team *team) { return (void)team, false; }

MIRT__LIB mirt__team *mirt__team_create(int size, int spin) {
    (void)spin;
    if (size < 1) {
        mirt__fail(MIRT_E_INVALID, "a team of %d threads: at least 1 is needed", size);
        return NULL;
    }
    if (size > 1) {
        mirt__fail(MIRT_E_THREAD, "a team of %d threads needs a build without MIRRORTRAIN_NO_THREADS", size);
        return NULL;
    }
    mirt__team *team = (mirt__team *)mirt__calloc(1, sizeof(mirt__team));
    if (team) team->size = 1;
    return team;
}

MIRT__LIB void mirt__team_destroy(mirt__team *team) {
    mirt__free(team);
}

MIRT__LIB bool mirt__team_run(mirt__team *team, void (*fn)(void *arg, int member), void *arg) {
    for (int i = 0; i < mirt__team_size(team); i++) fn(arg, i);
    return true;
}

MIRT__TRAINING_LIB bool mirt__team_barrier(mirt__team *team) { return (void)team, true; }
MIRT__LIB void mirt__team_look(mirt__team *team, bool (*look)(void *arg), void *arg, double seconds) {
    (void)team, (void)look, (void)arg, (void)seconds;
}
MIRT__LIB int mirt__team_ended(const mirt__team *team) { return (void)team, 0; }
MIRT__LIB int mirt__team_busy(int more) { return (void)more, 0; }
MIRT__LIB double mirt__wake_seconds(void) { return 0; }
MIRT__LIB double mirt__spin_seconds(void) { return 0; }

#else

#include <pthread.h>

static int mirt__busy_threads;      /* atomic: of strategies in use */
static int mirt__wake_nanoseconds; /* atomic: what waking a team costs; 0: not measured yet */

/* A counter to wait at: a thread that waits for its value to change spins for a while, then sleeps. Aligned so that
   waiting at one gate does not slow down another. */
typedef struct mirt__gate {
    uint32_t value;    /* atomic */
    uint32_t sleepers; /* atomic; changed under the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    bool ready; /* mutex and condition exist */
} __attribute__((aligned(MIRT__ALIGN))) mirt__gate;

/* The member that checks the clock while it waits. */
typedef struct mirt__team_looker {
    bool (*look)(void *arg);
    void *arg;
    double seconds;
    pthread_t thread;
} mirt__team_looker;

typedef struct mirt__team_member {
    mirt__team *team;
    int number;
    mirt__thread thread;
} mirt__team_member;

struct mirt__team {
    mirt__gate work;    /* changes when a job is available */
    mirt__gate done;    /* changes when the last worker has finished a job */
    mirt__gate barrier; /* changes when the last member has arrived */
    /* The job: written before `work` changes, read afterwards. */
    void (*fn)(void *arg, int member);
    void *arg;
    mirt__caller caller;
    int size, started;
    mirt__team_loop loop; /* the one under way, or the last */
    int spin;
    bool quit;
    mirt__team_looker looker;
    const mirt__task_recorder *recorder; /* NULL: none */
    int ended; /* atomic */
    int unfinished __attribute__((aligned(MIRT__ALIGN))); /* atomic: workers still in the job */
    int arrived __attribute__((aligned(MIRT__ALIGN)));    /* atomic: members at the barrier */
    mirt__team_member *members;
};

/* Whether there are threads besides the caller. */
static bool mirt__team_started(const mirt__team *team) { return team && team->started > 0; }

/* Condition variables whose timeouts use the monotonic clock, if the system supports it. */
MIRT__LIB int mirt__cond_create(pthread_cond_t *cond) {
#if defined(__APPLE__)
    return pthread_cond_init(cond, NULL);
#else
    pthread_condattr_t how;
    int code = pthread_condattr_init(&how);
    if (code) return code;
    code = pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    if (!code) code = pthread_cond_init(cond, &how);
    pthread_condattr_destroy(&how);
    return code;
#endif
}

MIRT__LIB void mirt__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, double seconds) {
    struct timespec until;
#if defined(__APPLE__)
    clock_gettime(CLOCK_REALTIME, &until);
#else
    clock_gettime(CLOCK_MONOTONIC, &until);
#endif
    const double nanoseconds = (double)until.tv_nsec + (seconds - floor(seconds)) * 1e9;
    until.tv_sec += (time_t)floor(seconds) + (nanoseconds >= 1e9);
    until.tv_nsec = (long)(nanoseconds >= 1e9 ? nanoseconds - 1e9 : nanoseconds);
    pthread_cond_timedwait(cond, mutex, &until);
}

static bool mirt__gate_create(mirt__gate *gate) {
    int code = pthread_mutex_init(&gate->mutex, NULL);
    if (code == 0) {
        code = mirt__cond_create(&gate->moved);
        if (code != 0) pthread_mutex_destroy(&gate->mutex);
    }
    gate->ready = code == 0;
    if (code != 0) mirt__fail(MIRT_E_THREAD, "cannot create a lock: %s", strerror(code));
    return gate->ready;
}

static void mirt__gate_destroy(mirt__gate *gate) {
    if (!gate->ready) return;
    pthread_cond_destroy(&gate->moved);
    pthread_mutex_destroy(&gate->mutex);
}

static uint32_t mirt__gate_value(const mirt__gate *gate) {
    return __atomic_load_n(&gate->value, __ATOMIC_ACQUIRE);
}

/* Changes the gate and wakes its sleepers. Either this thread sees the sleeper's count, or the sleeper, which checks
   again after counting itself, sees the new value; this requires sequential consistency. */
static void mirt__gate_move(mirt__gate *gate) {
    __atomic_fetch_add(&gate->value, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&gate->sleepers, __ATOMIC_SEQ_CST) == 0) return;
    pthread_mutex_lock(&gate->mutex);
    pthread_cond_broadcast(&gate->moved);
    pthread_mutex_unlock(&gate->mutex);
}

static void mirt__spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __asm__ __volatile__("pause");
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Spinning for as long as a wake-up takes would cost at most twice the least that knowing the length of the wait would;
   it is twice as long because the thread that wakes others loses as much time. */
MIRT__LIB double mirt__spin_seconds(void) {
    const int wake = __atomic_load_n(&mirt__wake_nanoseconds, __ATOMIC_RELAXED), least = 20000, most = 400000;
    const int spin = wake > most / 2 ? most : 2 * wake;
    return !wake ? 0 : (spin < least ? least : spin) * 1e-9;
}

/* `spin`: the most threads that may be at work. */
static bool mirt__gate_spin(const mirt__gate *gate, uint32_t old, int spin) {
    const double seconds =
        spin && __atomic_load_n(&mirt__busy_threads, __ATOMIC_RELAXED) <= spin ? mirt__spin_seconds() : 0;
    double end = 0.0;
    if (seconds <= 0) return mirt__gate_value(gate) != old;
    for (;;) {
        for (int i = 0; i < 32; i++) {
            if (mirt__gate_value(gate) != old) return true;
            mirt__spin_pause();
        }
        double now = mirt__now();
        if (end == 0.0) end = now + seconds;
        if (now >= end) return false;
    }
}

/* Returns once the gate's value is not `old`; false: the calling thread is the observer and stopped waiting. */
static bool mirt__gate_wait(mirt__gate *gate, uint32_t old, int spin, const mirt__team_looker *looker) {
    if (mirt__gate_spin(gate, old, spin)) return true;
    const bool looks = looker && looker->look && pthread_equal(looker->thread, pthread_self());
    bool gave_up = false;
    pthread_mutex_lock(&gate->mutex);
    __atomic_fetch_add(&gate->sleepers, 1, __ATOMIC_SEQ_CST);
    while (!gave_up && __atomic_load_n(&gate->value, __ATOMIC_SEQ_CST) == old) {
        if (!looks) {
            pthread_cond_wait(&gate->moved, &gate->mutex);
            continue;
        }
        mirt__cond_wait(&gate->moved, &gate->mutex, looker->seconds);
        if (__atomic_load_n(&gate->value, __ATOMIC_SEQ_CST) == old) gave_up = looker->look(looker->arg);
    }
    __atomic_fetch_sub(&gate->sleepers, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&gate->mutex);
    return !gave_up;
}

static void mirt__team_work(mirt__team_member *self) {
    mirt__team *team = self->team;
    for (uint32_t job = 0;; job++) {
        mirt__gate_wait(&team->work, job, team->spin, NULL);
        if (team->quit) return;
        mirt__caller_set(&team->caller, NULL);
        team->fn(team->arg, self->number);
        if (__atomic_sub_fetch(&team->unfinished, 1, __ATOMIC_ACQ_REL) == 0) mirt__gate_move(&team->done);
    }
}

static void mirt__team_note_end(void *arg) {
    const mirt__team_member *self = (const mirt__team_member *)arg;
    pthread_detach(pthread_self()); /* it will not be joined */
    __atomic_store_n(&self->team->ended, self->number, __ATOMIC_RELEASE);
}

static void *mirt__team_worker(void *arg) {
    pthread_cleanup_push(mirt__team_note_end, arg); /* user code may end the thread */
    mirt__team_work((mirt__team_member *)arg);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Gives the workers a job, of which member 0 does not do its part. Returns the value of the gate to wait at. */
static uint32_t mirt__team_begin(mirt__team *team, void (*fn)(void *arg, int member), void *arg) {
    const uint32_t done = mirt__gate_value(&team->done);
    team->fn = fn;
    team->arg = arg;
    team->caller = mirt__caller_get();
    __atomic_store_n(&team->unfinished, team->size - 1, __ATOMIC_RELAXED);
    mirt__gate_move(&team->work);
    return done;
}

/* >>what waking costs */

MIRT__LIB int mirt__team_busy(int more) { return __atomic_add_fetch(&mirt__busy_threads, more, __ATOMIC_RELAXED); }

MIRT__LIB double mirt__wake_seconds(void) {
    return __atomic_load_n(&mirt__wake_nanoseconds, __ATOMIC_RELAXED) * 1e-9;
}

static void mirt__team_nothing(void *arg, int member) { (void)arg, (void)member; }

/* Seconds in which all workers, asleep before, do a job that is nothing; waits no longer than `most` for them to fall
   asleep, and to wake. */
static double mirt__team_wake(mirt__team *team, double most) {
    const double start = mirt__now(), settle = 20e-6;
    while (__atomic_load_n(&team->work.sleepers, __ATOMIC_SEQ_CST) < (uint32_t)team->started &&
           mirt__now() - start < most)
        mirt__spin_pause();
    double begin = mirt__now(), now = begin; /* the last one has yet to leave its core */
    for (int i = 0; i < 10000 && now - begin < settle; i++) now = mirt__now();
    begin = mirt__now();
    const uint32_t done = mirt__team_begin(team, mirt__team_nothing, NULL);
    while (mirt__gate_value(&team->done) == done && mirt__now() - begin < most) mirt__spin_pause();
    now = mirt__now();
    mirt__gate_wait(&team->done, done, 0, NULL);
    return now - begin;
}

/* The median of a few wake-ups of a team of its own, within a millisecond unless waking takes most of it: threads that
   sleep so often may be left on one core. No team spins yet. */
static bool mirt__team_measure(int size) {
    mirt__team *team = mirt__team_create(size, 0);
    if (!team) return false;
    enum { LEAST = 3, MOST = 9 };
    const double start = mirt__now(), enough = 1e-3, most = 0.25e-3;
    double took[MOST];
    int count = 0;
    while (count < LEAST || (count < MOST && mirt__now() - start < enough)) {
        const double own = mirt__team_wake(team, most);
        int at = count++;
        for (; at > 0 && took[at - 1] > own; at--) took[at] = took[at - 1];
        took[at] = own;
    }
    const int wake = (int)(took[count / 2] * 1e9);
    __atomic_store_n(&mirt__wake_nanoseconds, wake > 1 ? wake : 1, __ATOMIC_RELAXED);
    mirt__team_destroy(team);
    return true;
}

MIRT__LIB mirt__team *mirt__team_create(int size, int spin) {
    if (size < 1) {
        mirt__fail(MIRT_E_INVALID, "a team of %d threads: at least 1 is needed", size);
        return NULL;
    }
    if (size > 1 && spin && mirt__wake_seconds() <= 0 && !mirt__team_measure(size)) return NULL;
    mirt__team *team = (mirt__team *)mirt__aligned_alloc(sizeof(mirt__team));
    if (!team) return NULL;
    memset(team, 0, sizeof *team);
    team->size = size;
    team->spin = spin;
    team->loop.number = UINT32_MAX - 50; /* so that every test sees them begin anew */
    team->members = (mirt__team_member *)mirt__calloc((size_t)size, sizeof(mirt__team_member));
    mirt__team_range *range = (mirt__team_range *)mirt__aligned_alloc((size_t)size * sizeof *range);
    if (range) memset(range, 0, (size_t)size * sizeof *range);
    team->loop.range = range;
    bool fine = team->members && range && mirt__gate_create(&team->work) && mirt__gate_create(&team->done) &&
                mirt__gate_create(&team->barrier);
    for (int i = 1; fine && i < size; i++) {
        mirt__team_member *member = &team->members[i];
        member->team = team;
        member->number = i;
        int code = mirt__thread_start(&member->thread, mirt__team_worker, member);
        if (code != 0) {
            mirt__fail(MIRT_E_THREAD, "cannot start thread %d of %d: %s", i, size - 1, strerror(code));
            fine = false;
        } else {
            team->started = i;
        }
    }
    if (fine) return team;
    mirt__team_destroy(team);
    return NULL;
}

MIRT__LIB void mirt__team_destroy(mirt__team *team) {
    if (!team) return;
    if (team->started > 0) {
        team->quit = true;
        mirt__gate_move(&team->work);
        for (int i = 1; i <= team->started; i++) pthread_join(team->members[i].thread.id, NULL);
    }
    mirt__gate_destroy(&team->work);
    mirt__gate_destroy(&team->done);
    mirt__gate_destroy(&team->barrier);
    mirt__free(team->members);
    mirt__aligned_free(team->loop.range);
    mirt__aligned_free(team);
}

MIRT__LIB bool mirt__team_run(mirt__team *team, void (*fn)(void *arg, int member), void *arg) {
    if (!mirt__team_started(team)) {
        for (int i = 0; i < mirt__team_size(team); i++) fn(arg, i);
        return true;
    }
    const uint32_t done = mirt__team_begin(team, fn, arg);
    fn(arg, 0);
    return mirt__gate_wait(&team->done, done, team->spin, &team->looker);
}

MIRT__TRAINING_LIB bool mirt__team_barrier(mirt__team *team) {
    if (mirt__team_size(team) == 1) return true;
    uint32_t old = mirt__gate_value(&team->barrier);
    if (__atomic_add_fetch(&team->arrived, 1, __ATOMIC_ACQ_REL) != team->size)
        return mirt__gate_wait(&team->barrier, old, team->spin, &team->looker);
    __atomic_store_n(&team->arrived, 0, __ATOMIC_RELAXED);
    mirt__gate_move(&team->barrier);
    return true;
}

MIRT__LIB void mirt__team_look(mirt__team *team, bool (*look)(void *arg), void *arg, double seconds) {
    if (!team) return;
    team->looker.look = look;
    team->looker.arg = arg;
    team->looker.seconds = seconds;
    team->looker.thread = pthread_self();
}

MIRT__LIB int mirt__team_ended(const mirt__team *team) {
    return team ? __atomic_load_n(&team->ended, __ATOMIC_ACQUIRE) : 0;
}

#endif

MIRT__LIB int mirt__team_size(const mirt__team *team) {
    return team ? team->size : 1;
}

/* >>loops */

/* Claims the next task of a range of `count`: its number in the range, or -1. */
static int64_t mirt__team_claim(mirt__team_range *range, uint32_t loop, int64_t count) {
    uint64_t old = __atomic_load_n(&range->claimed, __ATOMIC_RELAXED);
    for (;;) {
        const uint64_t taken = old >> 32 == loop ? (uint32_t)old : 0;
        if ((int64_t)taken >= count) return -1;
        if (__atomic_compare_exchange_n(&range->claimed, &old, (uint64_t)loop << 32 | (taken + 1), true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return (int64_t)taken;
    }
}

static void mirt__team_loop_run(void *arg, int member) {
    mirt__team *team = (mirt__team *)arg;
    mirt__team_loop *loop = &team->loop;
    const int size = team->size;
    for (int i = 0; i < size && __atomic_load_n(&loop->open, __ATOMIC_RELAXED) > 0; i++) {
        const int owner = (member + i) % size;
        const int64_t begin = loop->tasks * owner / size, count = loop->tasks * (owner + 1) / size - begin;
        int64_t task;
        while ((task = mirt__team_claim(&loop->range[owner], loop->number, count)) >= 0) {
            if (task + 1 == count) __atomic_fetch_sub(&loop->open, 1, __ATOMIC_RELAXED);
            loop->fn(loop->arg, begin + task, member);
        }
    }
}

/* The members claim tasks. */
static void mirt__team_share(mirt__team *team, int64_t tasks, void (*fn)(void *arg, int64_t task, int member),
                             void *arg) {
    mirt__team_loop *loop = &team->loop;
    loop->fn = fn;
    loop->arg = arg;
    loop->tasks = tasks;
    loop->open = tasks < team->size ? (int)tasks : team->size;
    if (++loop->number == 0) { /* numbers begin anew */
        memset(loop->range, 0, (size_t)team->size * sizeof *loop->range);
        loop->number = 1;
    }
    mirt__team_run(team, mirt__team_loop_run, team);
}

/* >>recording */

MIRT__TRAINING_LIB void mirt__task_tell(const mirt__task_recorder *recorder, mirt_task_kind kind, int64_t index) {
    mirt_task_event event;
    event.kind = kind;
    event.index = index;
    event.time = mirt__now();
    event.op = event.layer = NULL;
    event.flops = event.bytes = 0;
    recorder->fn(&event, recorder->user);
}

/* A loop that is told of: where the caller is alone, with each of its tasks. */
MIRT__TRAINING void mirt__team_tell(mirt__team *team, int64_t tasks, void (*fn)(void *arg, int64_t task, int member),
                                    void *arg) {
    const mirt__task_recorder *recorder = team->recorder;
    mirt__task_tell(recorder, MIRT_TASK_LOOP, tasks);
    if (tasks > 1 && mirt__team_started(team)) {
        mirt__team_share(team, tasks, fn, arg);
        mirt__task_tell(recorder, MIRT_TASK_JOIN, tasks);
        return;
    }
    for (int64_t task = 0; task < tasks; task++) {
        fn(arg, task, 0);
        mirt__task_tell(recorder, MIRT_TASK_DONE, task);
    }
}

MIRT__TRAINING_LIB void mirt__team_record(mirt__team *team, const mirt__task_recorder *recorder) {
    if (team) team->recorder = recorder;
}

MIRT__TRAINING_LIB mirt__team *mirt__team_simulated(int size) {
    mirt__team *team = mirt__team_create(1, 0);
    if (team) team->size = size;
    return team;
}

MIRT__LIB void mirt__team_for(mirt__team *team, int64_t tasks, void (*fn)(void *arg, int64_t task, int member),
                              void *arg) {
    if (MIRT__TRAINS && team && team->recorder) {
        mirt__team_tell(team, tasks, fn, arg);
    } else if (tasks > 1 && mirt__team_started(team)) {
        mirt__team_share(team, tasks, fn, arg);
    } else {
        for (int64_t task = 0; task < tasks; task++) fn(arg, task, 0);
    }
}
