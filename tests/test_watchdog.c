/* Tests devices and data that hang, die or are slow. The error names the cause in time, and nothing else is
   harmed. Faults come in simulated time (simulated_time.h), except with TIMED (long_watchdog.c). */
#include "injected.h"
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "schedules.h"
#include "tap.h"

#ifdef TIMED
/* A machine that is busy may look late, but not by this; and what does not wait takes less. */
static const double late = 60, at_once = 60;
static const double wakes[] = {0}; /* the machine's */
#else
static const double late = 0.06, at_once = 1e-9;
static const double wakes[] = {0, 50e-6, 1e-3};
#endif

/* The watch looks 16 times in a limit: one look may be just before the fault, and one just before the limit is over. */
static double latest(double limit) { return limit * 18 / 16 + late; }

static struct {
    int lines, events;
    char all[8192];
} said;

static void hear(mirt_log_level level, const char *text, void *user) {
    (void)user;
    if (level != MIRT_LOG_ERROR) return;
    said.lines++;
    said.events += strstr(text, " s  step ") != NULL;
    size_t used = strlen(said.all);
    snprintf(said.all + used, sizeof said.all - used, "%s\n", text);
}

/* Abandoned strategies stay reachable: what they have is not lost but left alone. */
static void *kept[400];
static int num_kept;

static mirt_strategy *limited(int devices, int replicas, double seconds) {
    mirt_strategy_desc d;
    char text[16];
    memset(&d, 0, sizeof d);
    memset(&said, 0, sizeof said);
    snprintf(text, sizeof text, "%d", devices);
    d.devices = text;
    d.replicas = replicas;
    d.threads = 1;
    d.seed = 11;
    d.log = hear;
    d.timeout_seconds = seconds;
    return mirt_strategy_create(&d);
}

static void keep(mirt_strategy *s, mirt_dataset *d) {
    kept[num_kept++] = s;
    kept[num_kept++] = d;
}

static mirt_fit_desc quiet_fit(int64_t steps) {
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.epochs = 100;
    fit.max_steps = steps;
    fit.no_progress = true;
    return fit;
}

static mirt_dataset *batches_of(int64_t size) {
    return mirt_batch(mirt_shuffle(mirt_arrays(images_x(0, IMAGES), images_y(0, IMAGES)), IMAGES), size);
}

static void inject(injected_fault fault, int point, int device, int visit, double seconds) {
    __atomic_store_n(&injected.place, 64 * point + device, __ATOMIC_RELAXED);
    __atomic_store_n(&injected.visits, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&injected.over, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&injected.wait, visit, __ATOMIC_RELAXED);
    injected.seconds = seconds;
    __atomic_store_n(&injected.fault, (int)fault, __ATOMIC_RELEASE);
}

static bool all_calls_refuse(mirt_strategy *s, mirt_model *m, mirt_dataset *data) {
    float out[8];
    mirt_memory plan;
    mirt_logs logs;
    const double began = mirt__now();
    mirt_fit_desc fit = quiet_fit(1);
    bool all = !mirt_fit(m, data, &fit) && mirt_last_status() == MIRT_E_TIMEOUT;
    all = all && strstr(mirt_last_error(), "cannot be used any more") != NULL;
    all = all && mirt_evaluate(m, data, &logs) == MIRT_E_TIMEOUT && mirt_predict(m, data, out, 8) == MIRT_E_TIMEOUT;
    all = all && mirt_train_step(m, images_x(0, 4), images_y(0, 4), NULL) == MIRT_E_TIMEOUT &&
          mirt_scatter(m, images_x(0, 4), images_y(0, 4)) == MIRT_E_TIMEOUT;
    all = all && mirt_grad(m, NULL) == MIRT_E_TIMEOUT && mirt_all_reduce(m) == MIRT_E_TIMEOUT &&
          mirt_apply(m) == MIRT_E_TIMEOUT;
    all = all && mirt_get_weight(m, "dense/bias", 0, out, 8) == MIRT_E_TIMEOUT &&
          mirt_save(m, "/dev/null", MIRT_SAVE_ALL) == MIRT_E_TIMEOUT;
    all = all && mirt_compile(m, NULL) == MIRT_E_TIMEOUT && mirt_plan_memory(m, 8, &plan) == MIRT_E_TIMEOUT &&
          !mirt_summary(m, 8);
    all = all && !mirt_model_create(s, "late") && mirt_last_status() == MIRT_E_TIMEOUT;
    mirt_model_destroy(m);
    mirt_strategy_destroy(s);
    mirt_dataset_destroy(data);
    return all && mirt__now() - began < at_once;
}

static const char *const fault_names[] = {"", "freezes", "dies", "is too slow", "is slow each time"};
static const char *const point_names[] = {"step", "replay", "barrier", "collective", "update"};

enum { BY_FIT, BY_STEPS, BY_EVALUATE, WAYS };
static const char *const way_names[] = {"mirt_fit", "mirt_train_step", "mirt_evaluate"};

static mirt_status go(int way, mirt_model *m, mirt_dataset *data, int64_t steps) {
    mirt_fit_desc fit = quiet_fit(steps);
    if (way == BY_FIT) return mirt_fit(m, data, &fit) ? MIRT_OK : mirt_last_status();
    mirt_status status = MIRT_OK;
    for (int64_t i = 0; i < steps && status == MIRT_OK; i++)
        status = way == BY_STEPS ? mirt_train_step(m, images_x(16 * i, 16), images_y(16 * i, 16), NULL)
                                 : mirt_evaluate(m, data, NULL);
    return status;
}

static void check_fault(injected_fault fault, int point, int devices, int device, int way, double limit, bool usual) {
    const bool once = way != BY_EVALUATE && (point == MIRT__POINT_REPLAY || point == MIRT__POINT_UPDATE); /* a step */
    static int turn;
    char name[32], replica[32], detail[160];
    simulated_begin(wakes[turn++ % MIRT__COUNT(wakes)], 1);
    mirt_strategy *s = limited(devices, devices, limit);
    if (s && usual) s->limit_asked = false;
    mirt_model *m = s ? image_model(s, mirt_adam(1e-3f), 0.2f) : NULL;
    mirt_dataset *data = batches_of(24);
    snprintf(detail, sizeof detail, "%s: device %d of %d %s at its %s, limit %g s", way_names[way], device, devices,
             fault_names[fault], point_names[point], limit);
    if (!ok(m && data, "%s: ready", detail)) return;
    inject(fault, point, device, 3, limit + 0.5);
    const double began = mirt__now();
    mirt_status status = go(way, m, data, 8);
    const double took = mirt__now() - began;
    snprintf(name, sizeof name, "device cpu:%d ", device);
    snprintf(replica, sizeof replica, "(replica %d)", device);
    ok(status == MIRT_E_TIMEOUT && (fault == DIE || took >= limit) && took < latest(limit),
       "%s: an error in time (%.2f s, status %d)", detail, took, (int)status);
    ok(strstr(mirt_last_error(), name) && strstr(mirt_last_error(), replica) &&
           strstr(mirt_last_error(), once ? " in step 3: " : " in step "),
       "%s", mirt_last_error());
    ok(said.events >= 2 && said.events <= 32 && strstr(said.all, name), "%d events in the log", said.events);
    ok(all_calls_refuse(s, m, data), "every later call refuses at once, destroying returns");
    while (fault == SLOW && !__atomic_load_n(&injected.over, __ATOMIC_ACQUIRE)) simulated_sleep(0.01);
    simulated_sleep(fault == SLOW ? 0.05 : 0);
    inject(NO_FAULT, 0, 0, 0, 0);
    keep(s, data);
    simulated_end();
}

static void check_others_live(void) {
    mirt_strategy *s = limited(2, 2, 60);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.2f);
    mirt_dataset *data = batches_of(24);
    mirt_fit_desc fit = quiet_fit(6);
    ok(mirt_fit(m, data, &fit) != NULL && copies_agree(m), "other strategies live on: %s", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

static void check_matrix(void) {
    static const int points[] = {MIRT__POINT_REPLAY, MIRT__POINT_BARRIER, MIRT__POINT_UPDATE, MIRT__POINT_COLLECTIVE};
    const injected_fault faults[] = {FREEZE, DIE, SLOW};
    for (int f = 0, turn = 0; f < MIRT__COUNT(faults); f++) {
        for (int p = 0; p < MIRT__COUNT(points); p++) {
            for (int devices = 2; devices <= 4; devices++, turn++) {
                if (small_tier() && turn % 3) continue;
                const int way = (turn + f) % 2 ? BY_FIT : BY_STEPS;
                check_fault(faults[f], points[p], devices, (turn + p + f) % devices, way,
                            turn % 9 == 8 ? 1.0
                            : turn % 2    ? 0.5
                                          : 0.3,
                            false);
            }
        }
    }
    check_others_live();
}

/* With the usual limit the caller is the first device of single steps, and looks after the others. */
static void check_usual(void) {
    check_fault(FREEZE, MIRT__POINT_REPLAY, 3, 2, BY_STEPS, 0.4, true);
    check_fault(DIE, MIRT__POINT_UPDATE, 2, 1, BY_STEPS, 0.4, true);
    check_fault(SLOW, MIRT__POINT_BARRIER, 4, 1, BY_STEPS, 0.4, true);
    check_fault(FREEZE, MIRT__POINT_STEP, 2, 0, BY_FIT, 0.4, true);
    check_fault(FREEZE, MIRT__POINT_REPLAY, 1, 0, BY_FIT, 0.4, true);
}

static void check_slow_but_alive(void) {
    for (int devices = 2; devices <= 4; devices += 2) {
        simulated_begin(50e-6, 1);
        mirt_strategy *s = limited(devices, devices, 1.5);
        mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.2f);
        mirt_dataset *data = batches_of(24);
        inject(SLOW_EACH, devices == 2 ? MIRT__POINT_REPLAY : MIRT__POINT_UPDATE, devices - 1, 0, 0.3);
        mirt_fit_desc fit = quiet_fit(6);
        ok(mirt_fit(m, data, &fit) != NULL && said.lines == 0,
           "a device of %d, slow each time but within the limit, is no alarm: %s", devices, mirt_last_error());
        inject(NO_FAULT, 0, 0, 0, 0);
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
        simulated_end();
    }
}

/* >>callbacks and threads */

typedef struct watcher {
    pthread_t home;
    int away, calls;
} watcher;

static int watch_batch(const mirt_event *event, void *user) {
    watcher *w = (watcher *)user;
    mirt_logs logs;
    w->calls++;
    w->away += !pthread_equal(w->home, pthread_self());
    if (event->batch == 2) w->away += mirt_test_on_batch(event->model, NULL, &logs) == MIRT_OK;
    return 0;
}

/* Callbacks are on the caller's thread whatever thread trains, and may call the library. */
static void check_callbacks(bool usual) {
    mirt_strategy *s = limited(2, 2, 60);
    s->limit_asked = !usual;
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.2f);
    mirt_dataset *data = batches_of(24), *more = batches_of(24);
    mirt_callback callback;
    watcher w;
    memset(&callback, 0, sizeof callback);
    memset(&w, 0, sizeof w);
    w.home = pthread_self();
    callback.user = &w;
    callback.batch_end = callback.batch_begin = callback.epoch_end = watch_batch;
    mirt_fit_desc fit = quiet_fit(6);
    fit.callbacks[0] = &callback;
    fit.validation = more;
    const bool fitted = mirt_fit(m, data, &fit) != NULL;
    ok(fitted && w.calls > 11 && !w.away, "%d callbacks, %d on other threads: %s", w.calls, w.away, mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(more);
    mirt_strategy_destroy(s);
}

/* >>samples */

typedef struct source {
    int64_t hangs_at;
    bool dies;
    double takes; /* seconds for each sample */
} source;

static int make_sample(void *const *out, int64_t index, void *user) {
    const source *from = (const source *)user;
    if (index == from->hangs_at && from->dies) pthread_exit(NULL);
    if (index == from->hangs_at) simulated_freeze();
    if (from->takes > 0) simulated_sleep(from->takes);
    memcpy(out[0], image_pixels[index % IMAGES], IMAGE);
    memcpy(out[1], &image_classes[index % IMAGES], 1);
    return 0;
}

static int pass_sample(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in;
    (void)out;
    const source *from = (const source *)user;
    if (index == from->hangs_at) simulated_freeze();
    return 0;
}

enum { PLAIN, ANY_ORDER, MAPPED, MAPPED_AHEAD, DYING, KINDS, UNBATCHED };

static mirt_dataset *hanging_data(int kind, source *from, const char *name) {
    mirt_generator_desc g;
    mirt_map_desc map;
    memset(&g, 0, sizeof g);
    memset(&map, 0, sizeof map);
    g.fn = make_sample;
    g.user = from;
    g.x[0] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1));
    g.y[0].dtype = MIRT_UINT8;
    g.num_x = g.num_y = 1;
    g.samples = IMAGES;
    g.any_order = kind == ANY_ORDER;
    g.name = name;
    map.fn = pass_sample;
    map.user = from;
    map.name = name;
    from->dies = kind == DYING;
    mirt_dataset *d = kind == MAPPED || kind == MAPPED_AHEAD
                          ? mirt_map(mirt_arrays(images_x(0, IMAGES), images_y(0, IMAGES)), &map)
                          : mirt_dataset_from_generator(&g);
    if (kind == MAPPED_AHEAD) mirt_dataset_workers(d, 3);
    if (kind == UNBATCHED) return d;
    d = mirt_batch(d, 24);
    return kind == PLAIN || kind == DYING ? d : mirt_prefetch(d, 2);
}

static void check_input(int kind, int way) {
    static const char *const names[KINDS] = {"the tap", "the fountain", "the sieve", "the filter", "the candle"};
    static source from[KINDS * WAYS];
    source *own = &from[kind * WAYS + way];
    own->hangs_at = 77;
    simulated_begin(50e-6, 1);
    mirt_strategy *s = limited(2, 2, 0.4);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.2f);
    mirt_dataset *data = hanging_data(kind, own, names[kind]);
    char want[64];
    snprintf(want, sizeof want, "for sample 77 of %s", names[kind]);
    const double began = mirt__now();
    mirt_status status = m && data ? go(way, m, data, 50) : mirt_last_status();
    const double took = mirt__now() - began;
    ok(status == MIRT_E_TIMEOUT && took < latest(0.4) && strstr(mirt_last_error(), want), "%s, %.2f s: %s",
       way_names[way], took, mirt_last_error());
    ok(mirt_last_cause() == MIRT_CAUSE_INPUT, "the cause is the input");
    ok(all_calls_refuse(s, m, data), "every later call refuses at once, destroying returns");
    keep(s, data);
    simulated_end();
}

/* The watch looks at stages that a cache then lets go of; the thread sanitizer sees them meet, so this is in real time.
   The limit is one that only a hang exceeds, but the watch looks often. */
static void check_cache(void) {
    static source slow;
    slow.hangs_at = -1;
    slow.takes = 0.1 / IMAGES;
    simulated.hurry = 1e-3;
    mirt_strategy *s = limited(2, 2, 60);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.2f);
    int passes = 0;
    for (; passes < 3; passes++) {
        mirt_dataset *data = mirt_batch(mirt_cache(hanging_data(UNBATCHED, &slow, "the kettle")), 24);
        if (!m || !data || mirt_evaluate(m, data, NULL) != MIRT_OK || mirt_evaluate(m, data, NULL) != MIRT_OK) break;
        mirt_dataset_destroy(data);
    }
    ok(passes == 3, "%d data sets whose cache fills while the clock is looked at, and once more from the cache: %s",
       passes, mirt_last_error());
    mirt_strategy_destroy(s);
    simulated.hurry = 0;
}

int main(void) {
    draw_images();
#ifndef TIMED
    check_cache();
    check_callbacks(false);
    check_callbacks(true);
    check_schedules(small_tier() ? 12 : 60);
#endif
    check_slow_but_alive();
    for (int kind = 0; kind < KINDS; kind++) check_input(kind, BY_FIT);
    check_input(MAPPED_AHEAD, BY_EVALUATE);
    check_matrix();
    check_usual();
    check_fault(FREEZE, MIRT__POINT_REPLAY, 2, 1, BY_EVALUATE, 0.4, false);
    return done_testing();
}
