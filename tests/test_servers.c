/* Parameter servers: bounded staleness, batches of lost workers, and whole fits. */
#include "together.h"

/* >>the bound: random workers pull and push when they may */

typedef struct walk {
    int workers;
    int64_t bound, most; /* most: staleness observed by counting updates */
    int64_t pulled[16], updates;
    bool stuck;
} walk;

static void walk_bound(walk *w, uint64_t seed) {
    mirt__admission a;
    mirt__random random = mirt__random_stream(seed, 0);
    int waits = 0;
    if (!mirt__admission_create(&a, w->workers, w->bound)) exit(1);
    for (int i = 0; i < w->workers; i++) w->pulled[i] = -1;
    for (int i = 0; i < 4000 && !w->stuck; i++) {
        const int k = (int)mirt__random_below(&random, (uint32_t)w->workers);
        if (w->pulled[k] < 0 && mirt__admit_pull(&a, k)) w->pulled[k] = w->updates, waits = 0;
        else if (w->pulled[k] >= 0 && mirt__random_below(&random, 3) && mirt__admit_push(&a, k)) {
            w->most = mirt__max(w->most, w->updates - w->pulled[k]);
            w->updates++;
            w->pulled[k] = -1;
            waits = 0;
        } else if (w->pulled[k] >= 0 && waits < 20 && mirt__random_below(&random, 40) == 0) {
            mirt__admit_none(&a, k); /* it is lost, and another takes its place; that must not end a deadlock */
            w->pulled[k] = -1;
        }
        w->stuck = ++waits > 1000;
    }
    ok(!w->stuck && a.seen.updates == w->updates && a.seen.max == w->most && (w->bound < 0 || w->most <= w->bound),
       "%d workers, bound %lld: staleness %lld at most, %lld updates", w->workers, (long long)w->bound,
       (long long)w->most, (long long)w->updates);
    mirt__admission_free(&a);
}

static void check_bounds(void) {
    for (int workers = 1; workers <= 9; workers += 2) {
        for (int64_t bound = -1; bound < 12; bound += bound < 3 ? 1 : 4) {
            walk w;
            memset(&w, 0, sizeof w);
            w.workers = workers;
            w.bound = bound;
            walk_bound(&w, (uint64_t)(workers * 100 + bound));
        }
    }
}

/* >>leases: every batch is trained on once, though workers are lost */

static void walk_leases(int workers, int64_t batches, int64_t told, int64_t quota, uint64_t seed) {
    mirt__leases l;
    mirt__random random = mirt__random_stream(seed, 1);
    mirt__lease own[8];
    int64_t count[4][64], trained = 0, wrong = 0;
    bool has[8];
    memset(count, 0, sizeof count);
    memset(has, 0, sizeof has);
    if (!mirt__leases_create(&l, workers)) exit(1);
    const mirt__epoch epoch = {0, 0, told, quota, 0, quota < INT64_MAX};
    mirt__leases_begin(&l, &epoch);
    for (int i = 0; i < 20000 && !mirt__leases_over(&l); i++) {
        const int k = (int)mirt__random_below(&random, (uint32_t)workers);
        if (has[k] && mirt__random_below(&random, 20) == 0 && i < 10000) {
            mirt__leases_lost(&l, k);
            has[k] = false;
        } else if (has[k] && own[k].at >= batches) {
            mirt__leases_end(&l, k);
            has[k] = false;
        } else if (has[k]) {
            wrong += own[k].pass > 3 || own[k].at > 63 || count[own[k].pass & 3][own[k].at & 63]++;
            trained++;
            mirt__leases_done(&l, k);
            has[k] = false; /* a lease is of one batch */
        } else {
            has[k] = mirt__leases_give(&l, k, &own[k]);
        }
    }
    const int64_t expected = quota < INT64_MAX ? quota : batches;
    ok(mirt__leases_over(&l) && !wrong && trained == expected && l.at.done == expected,
       "%d workers, %lld batches (%s), %s: each is trained on once, %lld in all", workers, (long long)batches,
       told < INT64_MAX ? "known" : "unknown", quota < INT64_MAX ? "a number of steps" : "a pass", (long long)trained);
    mirt__leases_free(&l);
}

static void check_leases(void) {
    for (int workers = 1; workers <= 7; workers += 3) {
        for (int64_t batches = 1; batches < 60; batches += 13) {
            walk_leases(workers, batches, INT64_MAX, INT64_MAX, (uint64_t)batches);
            walk_leases(workers, batches, batches, INT64_MAX, (uint64_t)batches + 1);
            walk_leases(workers, batches, batches + 2, INT64_MAX, (uint64_t)batches + 2);
            walk_leases(workers, batches, batches, 2 * batches, (uint64_t)batches + 3);
            walk_leases(workers, batches, INT64_MAX, batches + batches / 2 + 1, (uint64_t)batches + 4);
        }
    }
}

/* >>fits */

enum { SAMPLES = 2000, BATCH = 32, RUNNING = -1 };

/* What happens to a process after ten batches; a server, which makes none, is killed by the chief. */
typedef enum mishap { NONE, SLOW, KILLED, STOPPED, FAILS } mishap;

typedef struct outing {
    const char *name;
    int workers, servers;
    int64_t bound; /* -1: none */
    mishap what;
    int rank;
    int epochs, steps_per_epoch, max_steps;
    bool normed, clipped;
    double limit;
    bool slots; /* the optimizer has as much state as there is, */
    bool whole; /* or looks at whole weights */
} outing;

typedef struct report {
    int status, process;
    uint64_t weights;
    double accuracy, val_accuracy, seconds;
    double struck, ended; /* when the mishap came, and when training ended; 0: never */
    int64_t steps, model_step, made, replays; /* made: samples, atomic */
    mirt_staleness staleness;
    char error[512];
} report;

static report *reports; /* [PIPE_MOST], shared */
static int own_rank;

/* Whether the process is killed, is stopped or fails. */
static bool lost(const outing *o, int rank) { return o->what > SLOW && rank == o->rank; }

/* Whether a process that is to be lost has been, as was meant. */
static bool lost_as_meant(const outing *o, int rank) {
    const report *r = &reports[rank];
    if (o->what != FAILS) return r->struck > 0 && r->status == RUNNING;
    return r->status != RUNNING && r->status != MIRT_OK && strstr(r->error, "mirt_map returned 1");
}

static const outing *under_way;

/* A slow process takes 100 ms longer for each step. */
void hook_point(int kind, int device, int number) {
    (void)device, (void)number;
    if (kind != MIRT__POINT_REPLAY || !under_way) return;
    reports[own_rank].replays++;
    if (under_way->what == SLOW && own_rank == under_way->rank) pipe_sleep(100000);
}

/* Of every sample. */
static int at_sample(const void *const *in, void *const *out, int64_t index, void *user) {
    const outing *o = (const outing *)user;
    const bool here = own_rank == o->rank, chief = own_rank == 0 && o->rank >= o->workers;
    const int64_t made = __atomic_add_fetch(&reports[own_rank].made, 1, __ATOMIC_RELAXED);
    (void)in, (void)out, (void)index;
    if (made != 10 * BATCH) return 0;
    if (here || chief) reports[o->rank].struck = mirt__now();
    if (here && o->what == KILLED) raise(SIGKILL);
    if (here && o->what == STOPPED) raise(SIGSTOP);
    if (chief && o->what == KILLED) kill((pid_t)reports[o->rank].process, SIGKILL);
    if (chief && o->what == STOPPED) kill((pid_t)reports[o->rank].process, SIGSTOP);
    return here && o->what == FAILS;
}

static mirt_dataset *digits_of(const outing *o, mirt_split split, int64_t count) {
    mirt_map_desc d;
    memset(&d, 0, sizeof d);
    d.fn = at_sample;
    memcpy(&d.user, &o, sizeof o);
    mirt_dataset *digits = mirt_drawn_digits(count, 3, split);
    if (split == MIRT_TEST) return mirt_batch(digits, 100);
    digits = mirt_batch(mirt_map(mirt_shuffle(digits, count), &d), BATCH);
    return digits && mirt_dataset_workers(digits, 1) == MIRT_OK ? digits : NULL;
}

static mirt_constraint constraint; /* of the last layer's kernel */
static bool several; /* the models have several optimizers */

static mirt_tensor *constrained_dense(mirt_tensor *x) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = 10;
    d.name = "classes";
    d.kernel_constraint = constraint;
    return mirt_dense(x, &d);
}

static mirt_model *model_for(mirt_strategy *strategy, const outing *o) {
    mirt_compile_desc c = image_compile(mirt_adam(2e-3f));
    mirt_model *model = mirt_model_create(strategy, "digits");
    if (!model) return NULL;
    mirt_tensor *x = mirt_flatten(mirt_rescale(mirt_input(model, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0));
    x = named_dense(x, "hidden", 48, MIRT_LINEAR);
    x = mirt_relu(o->normed ? mirt_batch_norm(x, NULL) : x);
    mirt_model_output(model, constrained_dense(x));
    if (o->whole) c.optimizer = mirt_lamb(0.02f);
    c.optimizers[0].weights = several ? "hidden" : NULL;
    if (o->clipped) c.optimizer.global_clipnorm = 0.5f;
    c.optimizer.amsgrad = c.optimizer.use_ema = o->slots;
    return mirt_compile(model, &c) == MIRT_OK ? model : NULL;
}

static mirt_status train(mirt_model *model, const outing *o, report *out) {
    mirt_dataset *data = digits_of(o, MIRT_TRAIN, SAMPLES), *test = digits_of(o, MIRT_TEST, 500);
    mirt_fit_desc d;
    mirt_logs logs;
    memset(&d, 0, sizeof d);
    d.epochs = o->epochs;
    d.steps_per_epoch = o->steps_per_epoch;
    d.max_steps = o->max_steps;
    d.validation = test;
    d.no_progress = true;
    const double since = mirt__now();
    const mirt_history *h = data && test ? mirt_fit(model, data, &d) : NULL;
    out->ended = mirt__now();
    out->seconds = out->ended - since;
    mirt_status status = h ? mirt_evaluate(model, test, &logs) : mirt_last_status();
    if (status == MIRT_OK) {
        out->steps = h->steps;
        out->staleness = h->staleness;
        out->val_accuracy = mirt_history_last(h, "val_accuracy");
        out->accuracy = mirt_logs_value(&logs, "accuracy");
    }
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(test);
    return status;
}

static void go(const void *arg, int rank) {
    const outing *o = (const outing *)arg;
    report *out = &reports[rank];
    mirt_strategy_desc d = multi_worker_desc("1", o->limit);
    own_rank = rank;
    under_way = o;
    out->process = (int)getpid();
    d.kind = o->servers ? MIRT_PARAMETER_SERVER : MIRT_MIRRORED;
    d.servers = o->servers;
    d.max_staleness = o->bound > 0 ? (int)o->bound : 0;
    d.has_max_staleness = o->bound == 0;
    mirt_strategy *strategy = mirt_strategy_create(&d);
    mirt_model *model = strategy ? model_for(strategy, o) : NULL;
    const mirt_status status = model ? train(model, o, out) : mirt_last_status();
    if (status != MIRT_OK) snprintf(out->error, sizeof out->error, "%s", mirt_last_error());
    if (status == MIRT_OK) out->weights = hash_of_weights(model);
    if (status == MIRT_OK) out->model_step = mirt_step(model);
    __atomic_store_n(&out->status, (int)status, __ATOMIC_RELEASE); /* last: then the report is complete */
    mirt_strategy_destroy(strategy);
}

static bool run_outing(const outing *o) {
    const int processes = o->workers + o->servers;
    const double since = mirt__now();
    memset(reports, 0, PIPE_MOST * sizeof *reports);
    for (int p = 0; p < processes; p++) reports[p].status = RUNNING;
    /* one that is suspended does not end by itself */
    const bool ended = run_processes(processes, o->what == STOPPED ? 12 : 60, go, o) || o->what == STOPPED;
    for (int p = 0; p < processes; p++) { /* the first one may have been killed, which ends no other */
        while (!lost(o, p) && __atomic_load_n(&reports[p].status, __ATOMIC_ACQUIRE) == RUNNING &&
               mirt__now() - since < 60)
            pipe_sleep(1000);
    }
    return ended;
}

/* >>what fits give */

static const outing plain = {"mirrored", 1, 0, -1, NONE, 0, 3, 0, 0, false, false, 10, false, false};

static void check_fit(const outing *o, const report *mirrored) {
    /* In 20 runs of each case the worst was 0.058 below, with a standard error of 0.018 for 500 images. */
    const double margin = 0.1;
    const bool ended = run_outing(o);
    const int processes = o->workers + o->servers;
    const report *chief = &reports[0];
    const mirt_staleness *stale = &chief->staleness;
    int64_t binned = 0;
    int same = 0;
    for (int p = 0; p < processes; p++)
        same += lost(o, p) ? lost_as_meant(o, p) : reports[p].status == MIRT_OK && reports[p].weights == chief->weights;
    for (int i = 0; i < MIRT_STALENESS_BINS; i++) binned += stale->histogram[i];
    const int64_t batches = (SAMPLES + BATCH - 1) / BATCH, epochs = o->epochs,
                  steps = o->max_steps ? o->max_steps : epochs * (o->steps_per_epoch ? o->steps_per_epoch : batches);
    for (int p = 0; p < processes; p++) {
        if (!lost(o, p) ? reports[p].status != MIRT_OK : !lost_as_meant(o, p))
            printf("# process %d: %d %s\n", p, reports[p].status, reports[p].error);
    }
    ok(ended && chief->status == MIRT_OK && same == processes, "%s: all processes end with the same weights", o->name);
    ok(chief->steps == steps && chief->model_step == steps, "%s: %lld steps, of %lld", o->name,
       (long long)chief->steps, (long long)steps);
    /* the last push of a lost worker may have reached only some of the servers */
    const int64_t apart = llabs(stale->updates - steps * o->servers);
    ok(binned == stale->updates && apart <= (o->what > SLOW ? o->servers - 1 : 0),
       "%s: %lld updates of %d servers", o->name, (long long)stale->updates, o->servers);
    ok(o->bound < 0 ? stale->sum > 0 : stale->max <= o->bound,
       "%s: staleness %.2f, at most %lld", o->name, (double)stale->sum / (double)mirt__max(stale->updates, 1),
       (long long)stale->max);
    ok(chief->val_accuracy > mirrored->val_accuracy - margin && (o->slots || chief->accuracy == chief->val_accuracy),
       "%s: accuracy %.3f; mirrored %.3f", o->name, chief->val_accuracy, mirrored->val_accuracy);
}

/* The gradients of a single worker are applied one after the other, as in one process. */
static void check_one_worker(int servers, bool clipped, bool slots, bool whole) {
    outing o = plain;
    o.clipped = clipped;
    o.slots = slots;
    o.whole = whole;
    const bool trained = run_outing(&o) && reports[0].status == MIRT_OK;
    const report mirrored = reports[0];
    o.servers = servers;
    ok(run_outing(&o) && trained && reports[0].status == MIRT_OK && reports[0].weights == mirrored.weights &&
           reports[0].accuracy == mirrored.accuracy,
       "a worker and %d servers%s%s%s: the weights of a mirrored strategy: accuracy %.3f, %.3f %s", servers,
       clipped ? ", clipped gradients" : "", slots ? ", averages" : "", whole ? ", Lamb" : "",
       reports[0].accuracy, mirrored.accuracy, reports[0].error);
}

/* Several servers have parts of weights. */
static void check_whole_weights(void) {
    outing o = plain;
    o.servers = 2;
    o.whole = true;
    run_outing(&o);
    ok(reports[0].status == MIRT_E_INVALID && strstr(reports[0].error, "lamb looks at whole weights, which takes a "
                                                                       "single server; there are 2"),
       "Lamb on two servers is refused: %s", reports[0].error);
}

static void check_several(void) {
    outing o = plain;
    o.servers = 1;
    several = true;
    run_outing(&o);
    several = false;
    ok(reports[0].status == MIRT_E_INVALID &&
           strstr(reports[0].error, "digits has several optimizers; parameter servers have one"),
       "several optimizers are refused: %s", reports[0].error);
}

static void check_refused(mirt_constraint refused, int servers, const char *words) {
    outing o = plain;
    o.servers = servers;
    constraint = refused;
    ok(run_outing(&o) && reports[0].status == MIRT_E_INVALID && strstr(reports[0].error, words), "refused: %s",
       reports[0].error);
    memset(&constraint, 0, sizeof constraint);
}

/* The others end, with a message that says what to do. */
static void check_loss(const outing *o, const char *words) {
    const double margin = 5; /* a busy machine may leave a process waiting for seconds */
    const bool ended = run_outing(o);
    double seconds = 0;
    int told = 0;
    for (int p = 0; p < o->workers + o->servers; p++) {
        const bool good = lost(o, p) ? lost_as_meant(o, p)
                                     : reports[p].status == MIRT_E_WORKER && strstr(reports[p].error, words);
        /* other servers are told by the chief or find it gone */
        told += good || (p >= o->workers && reports[p].status == MIRT_E_WORKER);
        if (!lost(o, p)) seconds = fmax(seconds, reports[p].ended - reports[o->rank].struck);
        if (!good) printf("# process %d: %d %s\n", p, reports[p].status, reports[p].error);
    }
    ok(told == o->workers + o->servers && (ended || o->rank == 0), "%s: all end and say \"%s\": %s", o->name,
       words, reports[o->rank == 0].error);
    ok(seconds < o->limit + 3 + margin, "%s: within %.1f s", o->name, seconds);
}

/* Steps per second of the second of three workers; the third one may be slow. */
static double rate_of_second(mishap what, int64_t bound, int steps) {
    outing o = {"a slow worker", 3, 1, -1, NONE, 2, 1, 0, 0, false, false, 10, false, false};
    o.what = what;
    o.bound = bound;
    o.steps_per_epoch = steps;
    if (!run_outing(&o) || reports[0].status != MIRT_OK) return 0;
    return (double)reports[1].replays / reports[0].seconds;
}

/* One worker is slow: the others are not, unless the bound makes them wait. */
static void check_slow(void) {
    const int many = 1500;
    double alone = 0, slow = -1;
    for (int i = 0; i < 3 && !(slow >= 0.9 * alone); i++) { /* other programs may slow down either */
        alone = rate_of_second(NONE, -1, many);
        slow = rate_of_second(SLOW, -1, many);
    }
    const int64_t few = reports[2].replays, second = reports[1].replays;
    const double bounded = rate_of_second(SLOW, 0, 90);
    ok(few > 0 && few < second / 3, "a slow worker gets fewer batches: %lld, another %lld", (long long)few,
       (long long)second);
    ok(slow >= 0.9 * alone && bounded > 0 && bounded < 0.7 * slow,
       "steps of another worker per second: %.0f; with a slow worker %.0f; with a bound of 0 %.0f", alone, slow,
       bounded);
}

int main(void) {
    static const outing fits[] = {
        {"three workers", 3, 1, -1, NONE, 0, 3, 0, 0, false, false, 10, false, false},
        {"two servers", 3, 2, -1, NONE, 0, 3, 0, 0, true, true, 10, false, false},
        {"much state", 2, 1, -1, NONE, 0, 3, 0, 0, true, false, 10, true, false},
        {"a bound of 2", 4, 2, 2, NONE, 0, 3, 0, 0, false, false, 10, false, false},
        {"a bound of 0", 3, 2, 0, NONE, 0, 3, 0, 0, true, false, 10, false, false},
        {"steps across passes", 3, 1, -1, NONE, 0, 4, 50, 0, false, false, 10, false, false},
        {"a number of steps", 2, 1, -1, NONE, 0, 5, 0, 201, false, false, 10, false, false},
        {"a killed worker", 3, 2, -1, KILLED, 1, 3, 0, 0, false, false, 2, false, false},
        {"a suspended worker", 3, 2, 4, STOPPED, 2, 3, 0, 0, false, false, 2, false, false},
        {"a worker whose data fail", 3, 2, 3, FAILS, 2, 3, 0, 0, false, false, 2, false, false},
    };
    static const outing losses[] = {
        {"a killed server", 2, 2, -1, KILLED, 3, 3, 0, 0, false, false, 2, false, false},
        {"a killed first server", 2, 1, -1, KILLED, 2, 3, 0, 0, false, false, 2, false, false},
        {"a suspended server", 2, 1, -1, STOPPED, 2, 3, 0, 0, false, false, 2, false, false},
        {"a killed chief", 3, 1, -1, KILLED, 0, 3, 0, 0, false, false, 2, false, false},
    };
    reports = (report *)pipe_shared(PIPE_MOST * sizeof *reports);
    if (!reports) return 1;
    check_bounds();
    check_leases();
    if (!ok(run_outing(&plain) && reports[0].status == MIRT_OK && reports[0].weights, "a mirrored strategy trains"))
        return done_testing();
    const report mirrored = reports[0];
    check_one_worker(3, false, false, false);
    check_one_worker(1, true, false, false);
    check_one_worker(2, false, true, false);
    check_one_worker(1, false, false, true);
    check_whole_weights();
    check_several();
    check_refused(mirt_spectral_norm(1), 1, "whose vector parameter servers do not share");
    check_refused(mirt_non_neg(), 2, "takes a single server; there are 2");
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++) check_fit(&fits[i], &mirrored);
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        check_loss(&losses[i], "start again from the last checkpoint");
    check_slow();
    return done_testing();
}
