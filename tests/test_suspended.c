/* A process that is suspended and continued loses no device. The time in which it was suspended does not count. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

enum { NEVER = 1 << 30, INPUT = -1 };

/* The clock that the library reads. Each call moves it by 1 us, so that no computation ever takes long. While all the
   threads that are to be stuck are stuck, calls of the thread that looks after them move it by 10 ms, or by `jump`. It
   begins at 1 s, before now: timed waits, which are the system's, end at once. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    pthread_t looker;
    bool real;         /* the system's clock, in which the process really is stopped */
    double now, jump;  /* seconds */
    int place, device; /* where to be stuck: MIRT__POINT_..., or INPUT; device -1: all */
    int wanted;        /* threads; 0: none */
    int visits[4], stuck, calls;
    int jump_every, last_jump, release; /* numbers of calls */
} scene = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false, 1, 0, 0, 0, 0, {0}, 0, 0, 0, 0, 0};

int hook_clock(clockid_t clock, struct timespec *out) {
    if (clock != CLOCK_MONOTONIC) return clock_gettime(clock, out);
    pthread_mutex_lock(&scene.mutex);
    if (scene.wanted && scene.stuck == scene.wanted && scene.calls < scene.release &&
        pthread_equal(scene.looker, pthread_self())) {
        scene.calls++;
        const bool jumps = scene.jump_every && scene.calls % scene.jump_every == 0 && scene.calls <= scene.last_jump;
        scene.now += jumps ? scene.jump : 0.01;
        pthread_cond_broadcast(&scene.moved);
    } else scene.now += 1e-6;
    out->tv_sec = (time_t)scene.now;
    out->tv_nsec = (long)((scene.now - (double)out->tv_sec) * 1e9);
    pthread_mutex_unlock(&scene.mutex);
    return scene.real ? clock_gettime(clock, out) : 0;
}

/* The third time that a device comes here it is stuck until the one who looks has seen the clock `release` times. */
static void come_by(int place, int device) {
    pthread_mutex_lock(&scene.mutex);
    const bool here = scene.wanted && scene.place == place && (scene.device < 0 || scene.device == device);
    if (here && ++scene.visits[device] == 3) {
        scene.stuck++;
        while (scene.real && scene.calls < 4) pthread_cond_wait(&scene.moved, &scene.mutex);
        if (scene.real) kill(getpid(), SIGSTOP);
        while (scene.calls < scene.release) pthread_cond_wait(&scene.moved, &scene.mutex);
    }
    pthread_mutex_unlock(&scene.mutex);
}

void hook_point(int point, int device, int number) {
    (void)number;
    come_by(point, device);
}

static int make_sample(void *const *out, int64_t index, void *user) {
    (void)user;
    if (index % 16 == 0) come_by(INPUT, 0);
    memcpy(out[0], image_pixels[index % IMAGES], IMAGE);
    memcpy(out[1], &image_classes[index % IMAGES], 1);
    return 0;
}

static mirt_dataset *samples(void) {
    mirt_generator_desc g;
    memset(&g, 0, sizeof g);
    g.fn = make_sample;
    g.x[0] = mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1));
    g.y[0].dtype = MIRT_UINT8;
    g.num_x = g.num_y = 1;
    g.samples = IMAGES;
    return mirt_batch(mirt_dataset_from_generator(&g), 16);
}

typedef struct way {
    const char *name;
    int devices, place, device; /* as in `scene` */
    bool steps;                 /* mirt_train_step with a limit that nobody asked for: the caller is the first device */
} way;

static const way ways[] = {
    {"mirt_fit, one device", 1, MIRT__POINT_REPLAY, 0, false},
    {"mirt_fit, all of two devices", 2, MIRT__POINT_UPDATE, -1, false},
    {"mirt_fit, waiting for samples", 1, INPUT, 0, false},
    {"mirt_train_step, the second of two devices", 2, MIRT__POINT_REPLAY, 1, true},
};

/* Abandoned strategies stay reachable: what they hold is not lost but left alone. */
static void *kept[32];
static int num_kept;

/* Trains while threads are stuck as the scene says, with the given limit. */
static mirt_status train(const way *w, double limit) {
    mirt_strategy_desc d;
    mirt_fit_desc fit;
    char devices[8];
    memset(&d, 0, sizeof d);
    memset(&fit, 0, sizeof fit);
    snprintf(devices, sizeof devices, "%d", w->devices);
    d.devices = devices;
    d.replicas = w->devices;
    d.threads = 1;
    d.seed = 11;
    d.silent = true;
    d.timeout_seconds = limit;
    fit.max_steps = 6;
    fit.epochs = 1;
    fit.no_progress = true;
    mirt_strategy *s = mirt_strategy_create(&d);
    mirt_model *m = s ? image_model(s, mirt_adam(1e-3f), 0.2f) : NULL;
    mirt_dataset *data = samples();
    mirt_status status = m && data ? MIRT_OK : mirt_last_status();
    if (s && w->steps) s->limit_asked = false;
    pthread_mutex_lock(&scene.mutex);
    scene.place = w->place;
    scene.device = w->device;
    scene.wanted = w->device < 0 ? w->devices : 1;
    pthread_mutex_unlock(&scene.mutex);
    if (status == MIRT_OK && !w->steps && !mirt_fit(m, data, &fit)) status = mirt_last_status();
    for (int i = 0; i < 6 && w->steps && status == MIRT_OK; i++)
        status = mirt_train_step(m, images_x(16 * i, 16), images_y(16 * i, 16), NULL);
    pthread_mutex_lock(&scene.mutex);
    scene.wanted = 0;
    pthread_mutex_unlock(&scene.mutex);
    if (status == MIRT_OK) {
        mirt_dataset_destroy(data);
        mirt_strategy_destroy(s);
    } else {
        kept[num_kept++] = s;
        kept[num_kept++] = data;
    }
    return status;
}

static void set_scene(double jump, int jump_every, int last_jump, int release) {
    pthread_mutex_lock(&scene.mutex);
    scene.looker = pthread_self();
    scene.jump = jump;
    scene.jump_every = jump_every;
    scene.last_jump = last_jump;
    scene.release = release;
    scene.now = 1;
    scene.stuck = scene.calls = 0;
    memset(scene.visits, 0, sizeof scene.visits);
    pthread_mutex_unlock(&scene.mutex);
}

static const char *what_failed(mirt_status status) { return status == MIRT_OK ? "no error" : mirt_last_error(); }

/* With a limit of 2 s, which are 200 calls. */
static void check_alive(const way *w, const char *what, double jump, int last_jump, int release) {
    set_scene(jump, 50, last_jump, release);
    const mirt_status status = train(w, 2);
    ok(status == MIRT_OK && scene.calls == release, "%s: %s is no alarm: %s", w->name, what, what_failed(status));
}

static void check_dead(const way *w, const char *what, double jump, int last_jump) {
    set_scene(jump, 50, last_jump, NEVER);
    const mirt_status status = train(w, 2);
    const bool in_time = scene.calls >= last_jump + 100 && scene.calls < last_jump + 300;
    ok(status == MIRT_E_TIMEOUT && in_time && strstr(mirt_last_error(), " 2"), "%s: %s, is one: %s", w->name, what,
       what_failed(status));
}

static void check_way(const way *w) {
    check_alive(w, "1.5 s of work", 0, 0, 150);
    check_alive(w, "0.5 s of work, 10 s suspended, 1 s of work", 10, 50, 150);
    check_alive(w, "1.2 s suspended after each 0.5 s of work, seven times", 1.2, 350, 400);
    check_dead(w, "nothing for 2 s", 0, 0);
    check_dead(w, "nothing for 2 s, after it was suspended three times", 10, 150);
}

/* In a process of its own, before this one has threads: a device stops the process for longer than the limit, and
   continues when the one who looks has looked some times after that. */
#ifdef TIMED
static void check_really_stopped(void) {
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        scene.real = true;
        set_scene(0, 0, 0, 12);
        const way w = {"", 2, MIRT__POINT_REPLAY, 1, false};
        const mirt_status done = train(&w, 1);
        if (done != MIRT_OK) printf("# %s\n", mirt_last_error());
        fflush(stdout);
        _exit(done == MIRT_OK && scene.calls >= 12 ? 0 : 1);
    }
    const bool stopped = child > 0 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status);
    if (stopped) {
        const struct timespec pause_of = {2, 500000000};
        nanosleep(&pause_of, NULL);
        kill(child, SIGCONT);
        waitpid(child, &status, 0);
    }
    ok(stopped && WIFEXITED(status) && WEXITSTATUS(status) == 0,
       "a process stopped for 2.5 s with a limit of 1 s continues training");
}
#endif

int main(void) {
    draw_images();
#ifdef TIMED
    check_really_stopped();
#endif
    for (int i = 0; i < MIRT__COUNT(ways); i++) check_way(&ways[i]);
    return done_testing();
}
