/* The services of the GPUs' backend on simulated devices: copies, graphs, updates, exchanges, failures. */
#define MIRRORTRAIN_BACKEND
#include "../../mirrortrain.h"
#include <string.h>
#include "opening.h"
#include "sim.h"
#include "tap.h"
#include <cuda_runtime.h>
#include <functional>
#include <pthread.h>
#include <string>
#include <thread>
#include <time.h>
#include <vector>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

extern "C" {
const mirt__kernels *mirt__kernels_best(void);
void mirt__aggregate_variable(const mirt__aggregated *a, int active, const mirt__real *const *value,
                              const int64_t *rows, mirt__real *variable);
}

typedef std::vector<float> floats;

/* >>the library's side */

static thread_local char last_error[600];
static std::string all_errors; /* of all threads since it was cleared */
static pthread_mutex_t errors_lock = PTHREAD_MUTEX_INITIALIZER;

static mirt_status host_fail(mirt_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    pthread_mutex_lock(&errors_lock);
    all_errors += last_error;
    all_errors += "\n";
    pthread_mutex_unlock(&errors_lock);
    return status;
}
static void *host_calloc(size_t count, size_t size) { return calloc(count, size); }
static double host_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static const mirt__host host = {host_fail, host_calloc, free, host_now};
static const mirt__backend *backend;

static bool says(const char *part) { return all_errors.find(part) != std::string::npos; }

/* >>devices and their memory */

static unsigned dice_state = 1;
static floats numbers(int64_t count) {
    floats v((size_t)count);
    for (float &x : v) {
        dice_state = dice_state * 1664525u + 1013904223u;
        x = (float)((int)(dice_state >> 8) % 2001 - 1000) / 501.0f;
    }
    return v;
}

static float *put(mirt__handle *handle, const floats &v) {
    float *there = (float *)backend->alloc(handle, v.size() * sizeof(float));
    if (there) backend->copy_in(handle, there, v.data(), v.size() * sizeof(float), false);
    return there;
}
static floats get(mirt__handle *handle, const float *there, size_t count) {
    floats v(count, -77.0f);
    backend->copy_out(handle, v.data(), there, count * sizeof(float));
    if (backend->wait(handle) != MIRT_OK) v.clear();
    return v;
}
static mirt__where where_of(mirt__handle *handle) {
    mirt__where where;
    memset(&where, 0, sizeof where);
    where.handle = handle;
    return where;
}

static void reduce_call(const void *args, const mirt__where *where) {
    backend->kernels()->reduce((const mirt__reduce *)args, where);
}

/* Devices that are joined, and closed afterwards. */
struct Group {
    std::vector<mirt__handle *> handle;
    mirt__joining join;
    char how[256];
    bool good;
    Group(const std::vector<int> &index, mirt_collective collective, double limit = 60, bool shares = false) {
        good = true;
        memset(&join, 0, sizeof join);
        how[0] = 0;
        for (int i : index) {
            handle.push_back(good ? backend->open(&host, opening(i, false)) : nullptr);
            good = good && handle.back();
        }
        join.handle = handle.data();
        join.count = join.all = (int)handle.size();
        join.collective = collective;
        join.shares = shares;
        join.limit = limit;
        join.how = how;
        good = good && backend->join(&join);
    }
    ~Group() {
        for (mirt__handle *r : handle) backend->close(r);
    }
    int count() const { return (int)handle.size(); }
    /* Each device's work on a thread of its own. */
    void each(const std::function<void(int)> &work) const {
        std::vector<std::thread> threads;
        for (int d = 0; d < count(); d++) threads.emplace_back(work, d);
        for (std::thread &t : threads) t.join();
    }
};

static std::vector<int> first_devices(int count) {
    std::vector<int> v;
    for (int i = 0; i < count; i++) v.push_back(i);
    return v;
}

static void test_devices(void) {
    mirt__device_facts info;
    ok(backend->devices(&host) == 4, "there are four devices");
    ok(backend->info(&host, 3, &info) && strstr(info.name, "Simulated") && strstr(info.description, "sm_") &&
           info.memory > 0 && info.half,
       "a device says what it is: %s, %s", info.name, info.description);
    ok(!strstr(info.description, "compiled anew"), "with code for it");
    mirt_sim::options().code = 75;
    ok(backend->info(&host, 3, &info) && !info.half && strlen(info.description) < 96 &&
           strstr(info.description, "code for sm_75 is compiled anew: use nvcc -arch=native"),
       "with code for an older one: %s", info.description);
    mirt_sim::options().code = 100;
    ok(!backend->open(&host, opening(0, false)) && strstr(last_error, "has code for newer ones alone"),
       "with code for a newer one: %s", last_error);
    mirt_sim::options().code = 0;
    ok(!backend->info(&host, 4, &info) && strstr(last_error, "gpu:4") && strstr(last_error, "gpu:0 to gpu:3"),
       "one that is not there: %s", last_error);
    ok(!backend->open(&host, opening(-1, false)), "nor is one below 0");
    mirt_sim::options().driver = 12040;
    const bool old = backend->devices(&host) == -1 && strstr(last_error, "the driver is for CUDA 12.4") &&
                     strstr(last_error, "install a driver");
    ok(old && !backend->open(&host, opening(0, false)), "an old driver: %s", last_error);
    mirt_sim::options().driver = 0;
    mirt_sim::options().devices = 0;
    ok(backend->devices(&host) == 0 && !backend->open(&host, opening(0, false)) && strstr(last_error, "no GPU"),
       "no devices: %s", last_error);
    mirt_sim::options().devices = 4;
}

static void test_memory(mirt__handle *r) {
    const size_t before = backend->free_bytes(r);
    char *memory = (char *)backend->alloc(r, 1000000);
    ok(before && memory && backend->free_bytes(r) + 1000000 <= before, "memory is taken");
    ok(!backend->alloc(r, (size_t)1 << 50) && strstr(last_error, "out of memory") && strstr(last_error, "are free"),
       "too much of it: %s", last_error);
    void *nothing = backend->alloc(r, 0);
    ok(nothing && backend->wait(r) == MIRT_OK, "and it continues");
    backend->release(r, nothing);
    backend->release(r, memory);
    backend->release(r, NULL);

    /* room: what kernels want is measured, and they get no more */
    mirt__where where = where_of(r);
    floats x = numbers(300000);
    float *in = put(r, x), *out = (float *)backend->alloc(r, 64);
    mirt__reduce sum;
    memset(&sum, 0, sizeof sum);
    sum.rank = 1;
    sum.axes = 1;
    sum.dim[0] = 300000;
    sum.x = in;
    sum.y = out;
    const size_t room = measured_room(backend, reduce_call, &sum, &where);
    backend->kernels()->reduce(&sum, &where);
    if (room)
        ok(backend->wait(r) == MIRT_E_STATE && strstr(last_error, "bytes of room"), "a kernel without room: %s",
           last_error);
    void *given = backend->alloc(r, room + 1);
    backend->room(r, given, room);
    backend->kernels()->reduce(&sum, &where);
    double want = 0;
    for (float v : x) want += (double)v;
    floats got = get(r, out, 1);
    ok(got.size() == 1 && fabs((double)got[0] - want) < 1e-1, "with room it adds up");
    backend->room(r, NULL, 0);
    backend->release(r, given);
    backend->release(r, in);
    backend->release(r, out);
}

static void test_copies(mirt__handle *r) {
    const size_t sizes[] = {1, 100, 4u << 20, (4u << 20) + 1, 23456789};
    for (size_t size : sizes) {
        char *a = (char *)backend->alloc(r, size), *b = (char *)backend->alloc(r, size);
        bool same = true;
        for (int turn = 0; turn < 3; turn++) {
            std::vector<char> from(size), kept, to(size);
            for (size_t i = 0; i < size; i++) from[i] = (char)(i * 7 + i / 1000 + (size_t)turn);
            kept = from;
            backend->copy_in(r, a, from.data(), size, turn % 2 == 1);
            std::fill(from.begin(), from.end(), (char)99); /* it has been read */
            backend->copy(r, b, a, size);
            backend->clear(r, a, size);
            backend->copy_out(r, to.data(), b, size);
            same = backend->wait(r) == MIRT_OK && to == kept && same;
        }
        ok(same, "%zu bytes there, over and back", size);
        backend->release(r, a);
        backend->release(r, b);
    }
    floats many = numbers(700), back(700);
    float *there = (float *)backend->alloc(r, 700 * sizeof(float));
    for (int i = 0; i < 700; i++) backend->copy_in(r, there + i, &many[(size_t)i], sizeof(float), i % 2 == 0);
    backend->copy_in(r, there, many.data(), 0, false);
    for (size_t i = 0; i < 700; i++) backend->copy_out(r, &back[i], there + i, sizeof(float));
    backend->copy_out(r, &back[0], there, 0);
    ok(backend->wait(r) == MIRT_OK && back == many, "many small copies");
    floats turns[4];
    float *kept = (float *)backend->alloc(r, 4 * 700 * sizeof(float));
    for (int i = 0; i < 4; i++) {
        turns[i] = numbers(700);
        backend->copy_in(r, there, turns[i].data(), 700 * sizeof(float), true);
        backend->copy(r, kept + i * 700, there, 700 * sizeof(float));
        backend->behind(r);
    }
    bool each = true;
    for (int i = 0; i < 4; i++) each = get(r, kept + i * 700, 700) == turns[i] && each;
    ok(each, "copies that are sent early follow what still needs their place");
    backend->release(r, kept);
    backend->signal(r, 4);
    backend->clear(r, there, 700 * sizeof(float));
    backend->signal(r, 5);
    backend->wait(r);
    ok(backend->seconds(r, 4, 5) >= 0 && !(backend->seconds(r, 6, 7) > 0), "seconds between places");
    backend->release(r, there);
}

/* >>updates: the bits of the CPU */

struct Update {
    int64_t count;
    mirt__update cpu, gpu;
    std::vector<floats> part, weight;
    floats slot[3], average;
    bool has[3], averages;
};

static void update_make(Update *u, int number) {
    static const mirt_optimizer_kind kinds[] = {MIRT_SGD,      MIRT_ADAM, MIRT_RMSPROP,  MIRT_NADAM,
                                                MIRT_ADAGRAD,  MIRT_ADAMAX, MIRT_LION,   MIRT_ADADELTA,
                                                MIRT_SCHEDULE_FREE_ADAMW, MIRT_FTRL, MIRT_LAMB,
                                                MIRT_MUON};
    static const int tree[6][2] = {{0, 1}, {2, 3}, {0, 2}, {4, 5}, {4, 6}, {0, 4}};
    mirt__update *c = &u->cpu;
    memset(c, 0, sizeof *c);
    c->kind = kinds[number % MIRT__COUNT(kinds)];
    u->count = 700 + number * 13;
    c->parts = number % 5 == 4 ? 7 : number % 4 == 3 ? 2 : number % 7 == 1 ? 13 : 1;
    for (int p = 0; p < c->parts; p++) u->part.push_back(numbers(u->count));
    for (int p = 0; p + 1 < c->parts; p++) {
        c->tree[p].into = c->parts == 7 ? tree[p][0] : c->parts == 2 ? number % 8 == 3 : 0;
        c->tree[p].from = c->parts == 7 ? tree[p][1] : c->parts == 2 ? number % 8 != 3 : p + 1;
    }
    c->begin = number / 3 % 3 == 0 ? 0 : number / 3 % 3 == 1 ? 16 : 5;
    c->end = u->count - number % 4 * 3;
    c->copies = 1 + number % 3;
    for (int k = 0; k < c->copies; k++) u->weight.push_back(k ? u->weight[0] : numbers(u->count));
    for (int i = 0; i < 3; i++) {
        u->slot[i] = numbers(u->count);
        for (float &x : u->slot[i]) x = fabsf(x);
    }
    u->average = numbers(u->count);
    u->has[0] = c->kind != MIRT_SGD || number % 2;
    u->has[1] = c->kind == MIRT_ADAM || c->kind == MIRT_LAMB ||
                (c->kind == MIRT_RMSPROP && number % 4 < 2) || c->kind == MIRT_NADAM ||
                c->kind == MIRT_ADAMAX || c->kind >= MIRT_ADADELTA;
    u->has[2] = (c->kind == MIRT_ADAM || c->kind == MIRT_RMSPROP) && number % 5 < 2;
    u->averages = number % 4 == 1;
    c->learning_rate = c->kind == MIRT_FTRL && number / 10 % 3 == 2 ? 0 : 0.01f;
    c->new_1 = 0.1f;
    c->new_2 = 0.001f;
    c->epsilon = 1e-7f;
    c->momentum = 0.9f;
    c->nesterov = number % 2;
    c->first = c->kind == MIRT_SCHEDULE_FREE_ADAMW && number % 3 == 1;
    c->shaped = number % 6 > 2;
    c->scale = 0.7f;
    c->clip = number % 4 == 2 ? 0.3f : 0;
    c->decay = number % 5 == 1 ? 0.01f : 0;
    c->from_zero = number % 7 == 3;
    c->keep = 0.99f;
    c->fresh = 0.01f;
    c->overwrite = number % 8 == 1;
}

static bool update_same(mirt__handle *r, int number) {
    Update u;
    mirt__where where = where_of(r), cpu = where_of(NULL);
    update_make(&u, number);
    mirt__update *c = &u.cpu, *g = &u.gpu;
    *g = *c;
    for (int p = 0; p < c->parts; p++) c->part[p] = u.part[(size_t)p].data(), g->part[p] = put(r, u.part[(size_t)p]);
    for (int k = 0; k < c->copies; k++)
        g->weight[k] = put(r, u.weight[(size_t)k]), c->weight[k] = u.weight[(size_t)k].data();
    for (int i = 0; i < 3; i++) {
        if (u.has[i]) g->slot[i] = put(r, u.slot[i]), c->slot[i] = u.slot[i].data();
    }
    if (u.averages) g->average = put(r, u.average), c->average = u.average.data();
    backend->kernels()->update(g, &where);
    mirt__kernels_best()->update(c, &cpu);
    bool same = backend->wait(r) == MIRT_OK;
    for (int k = 0; k < c->copies; k++) same = get(r, g->weight[k], (size_t)u.count) == u.weight[(size_t)k] && same;
    for (int i = 0; i < 3; i++) same = (!u.has[i] || get(r, g->slot[i], (size_t)u.count) == u.slot[i]) && same;
    if (u.averages) same = get(r, g->average, (size_t)u.count) == u.average && same;
    for (int p = 0; p < c->parts; p++) backend->release(r, const_cast<float *>(g->part[p]));
    for (int k = 0; k < c->copies; k++) backend->release(r, g->weight[k]);
    for (int i = 0; i < 3; i++) backend->release(r, g->slot[i]);
    backend->release(r, g->average);
    return same;
}

static void test_updates(mirt__handle *r) {
    int same = 0, all = small_tier() ? 60 : 120;
    for (int i = 0; i < all; i++) same += update_same(r, i);
    ok(same == all, "%d of %d updates give the CPU's bits", same, all);

    /* more numbers than there is memory for, one after the other */
    mirt__where where = where_of(r);
    floats w(16, 1.0f), g(16, 1.0f);
    mirt__update u;
    memset(&u, 0, sizeof u);
    u.kind = MIRT_SGD;
    u.end = 16;
    u.parts = u.copies = 1;
    u.part[0] = put(r, g);
    u.weight[0] = put(r, w);
    double want = 1;
    for (int i = 0; i < 4500; i++) {
        u.learning_rate = i % 2 ? -0.5f : 0.25f;
        want -= (double)u.learning_rate;
        backend->kernels()->update(&u, &where);
    }
    ok(get(r, u.weight[0], 16) == floats(16, (float)want), "numbers reach the work they belong to");
    u.begin = u.end;
    backend->kernels()->update(&u, &where);
    ok(backend->wait(r) == MIRT_OK, "an update of nothing");
    backend->release(r, const_cast<float *>(u.part[0]));
    backend->release(r, u.weight[0]);
}

static void test_sums(mirt__handle *r) {
    const floats x = numbers(5000);
    float *there = put(r, x);
    std::vector<mirt__square_piece> piece;
    std::vector<double> want, got(150);
    for (int i = 0; i < 150; i++) {
        mirt__square_piece p;
        double s[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        p.begin = i * 17;
        p.count = i * 37 % 2100;
        for (int64_t k = 0; k < p.count; k++) {
            const double v = (double)x[(size_t)(p.begin + k)];
            s[k < p.count / 8 * 8 ? k % 8 : 0] += v * v;
        }
        piece.push_back(p);
        want.push_back(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
    }
    bool same = true;
    for (int count : {10, 150, 3}) {
        std::fill(got.begin(), got.end(), -1.0);
        backend->squares(r, there, piece.data(), count, got.data());
        same = backend->wait(r) == MIRT_OK && same;
        for (int i = 0; i < 150; i++) same = same && got[(size_t)i] == (i < count ? want[(size_t)i] : -1.0);
    }
    ok(same, "squares add up in the library's order");
    same = true;
    /* Of each kind one that takes the value and one that moves towards it, of 1, 300, 5, ... numbers; what lies between
       them stays. */
    std::vector<mirt__aggregated> variables;
    int64_t to = 0, from = 0;
    for (int kind = MIRT_AGGREGATE_MEAN; kind <= MIRT_AGGREGATE_FIRST; kind++) {
        for (float kept : {0.0f, 0.99f}) {
            mirt__aggregated v;
            memset(&v, 0, sizeof v);
            v.kind = (mirt_aggregation)kind;
            v.kept = kept;
            v.taken = kept > 0 ? 1 - kept : 0;
            v.count = variables.size() % 3 == 0 ? 1 : variables.size() % 3 == 1 ? 300 : 5;
            v.from = from;
            v.to = to;
            from += v.count + 3;
            to += v.count + 7;
            variables.push_back(v);
        }
    }
    for (int active = 1; active < 6; active++) {
        const int64_t all = active < 5 ? active : 13;
        int64_t rows[5];
        floats out = numbers((size_t)to);
        mirt__aggregation_job a;
        for (int i = 0; i < active; i++) rows[i] = all / 5 + (i < all % 5);
        a.value = variables.data();
        a.values = (int)variables.size();
        a.active = active;
        a.replicas = 5;
        a.rows = all;
        a.stride = 700;
        a.from = there;
        a.to = put(r, out);
        for (const mirt__aggregated &v : variables) {
            const float *value[5];
            for (int i = 0; i < active; i++) value[i] = &x[(size_t)(i * 700 + v.from)];
            mirt__aggregate_variable(&v, active, value, rows, &out[(size_t)v.to]);
        }
        backend->aggregate(r, &a);
        same = get(r, a.to, (size_t)to) == out && same;
        backend->release(r, a.to);
    }
    ok(same, "variables of replicas become one as on CPUs");
    backend->release(r, there);
}

/* >>captured work */

/* Steps of Adam with another rate each; `between` stands in the middle of the work. */
static bool graph_steps(mirt__handle *r, int *turns, const std::function<void(int step)> &between) {
    const int64_t count = 4096;
    floats w = numbers(count), g = numbers(count), m = numbers(count), v = m;
    for (float &x : v) x = fabsf(x);
    mirt__where where = where_of(r), cpu = where_of(NULL);
    mirt__update u, c;
    memset(&u, 0, sizeof u);
    u.end = count;
    u.parts = u.copies = 1;
    u.kind = MIRT_ADAM;
    u.new_1 = 0.1f;
    u.new_2 = 0.001f;
    u.epsilon = 1e-7f;
    c = u;
    u.part[0] = put(r, g);
    u.weight[0] = put(r, w);
    u.slot[0] = put(r, m);
    u.slot[1] = put(r, v);
    c.part[0] = g.data();
    c.weight[0] = w.data();
    c.slot[0] = m.data();
    c.slot[1] = v.data();
    bool same = true;
    for (int step = 0; step < 7; step++) {
        u.learning_rate = c.learning_rate = 0.01f * (float)(step + 1);
        turns[step] = 0;
        do {
            backend->begin(r, turns, 5);
            backend->kernels()->update(&u, &where);
            if (between) between(step);
            backend->kernels()->update(&u, &where);
            turns[step]++;
        } while (!backend->end(r) && turns[step] < 4);
        mirt__kernels_best()->update(&c, &cpu);
        mirt__kernels_best()->update(&c, &cpu);
        const floats fresh = numbers(count);
        std::copy(fresh.begin(), fresh.end(), g.begin());
        backend->copy_in(r, const_cast<float *>(u.part[0]), g.data(), (size_t)count * sizeof(float), false);
        same = get(r, u.weight[0], (size_t)count) == w && same;
    }
    backend->forget(r, turns);
    backend->release(r, const_cast<float *>(u.part[0]));
    backend->release(r, u.weight[0]);
    backend->release(r, u.slot[0]);
    backend->release(r, u.slot[1]);
    return same;
}

static void test_graphs(mirt__handle *r) {
    int turns[7], seen = 0;
    ok(graph_steps(r, turns, nullptr) && turns[0] == 1 && turns[1] == 2 && turns[2] == 1 && turns[6] == 1,
       "a graph: its numbers change; the second time asks for the third");
    float x = 5, back = 0;
    double square = 0;
    float *cell = (float *)backend->alloc(r, 64);
    bool came = true, waits = false;
    const auto pieces = [&](int step) {
        x = (float)step;
        backend->copy_in(r, cell, &x, sizeof x, step % 2);
        backend->copy_out(r, &back, cell, sizeof back);
        backend->signal(r, 0);
        backend->await(r, r, 0);
        mirt__square_piece piece = {0, 1};
        backend->squares(r, cell, &piece, 1, &square);
        came = came &&
               (!waits || (backend->wait(r) == MIRT_OK && back == (float)step && square == (double)step * step));
    };
    ok(graph_steps(r, turns, pieces) && turns[1] == 2 && turns[3] == 1, "work in several pieces");
    waits = true;
    ok(graph_steps(r, turns, pieces) && turns[1] == 1 && came, "work that waits in the middle stays as it is");
    ok(graph_steps(r, turns,
                   [&](int) {
                       backend->signal(r, 1);
                       seen++;
                   }) &&
           turns[1] == 2 && turns[2] == 1,
       "a place marked in the middle");
    ok(graph_steps(r, turns,
                   [&](int) {
                       for (int i = 0; i < 70; i++) backend->signal(r, 1);
                   }) &&
           turns[1] == 2 && turns[2] == 1,
       "too many pieces: it stays as it is");
    mirt__where where = where_of(r);
    float data[2] = {1, 2};
    ok(graph_steps(r, turns, [&](int step) {
        data[0] = (float)(step < 2 ? step : 1);
        backend->kernels()->constant(cell, data, sizeof data, &where);
    }) && get(r, cell, 1)[0] == 1, "a constant that was not there when it was captured");

    /* what must not be */
    const auto once = [&](int updates) {
        mirt__update u;
        memset(&u, 0, sizeof u);
        u.kind = MIRT_SGD;
        u.end = 16;
        u.parts = u.copies = 1;
        u.part[0] = u.weight[0] = cell;
        backend->begin(r, cell, 1);
        for (int i = 0; i < updates; i++) backend->kernels()->update(&u, &where);
    };
    for (int i = 0; i < 3; i++) {
        once(1);
        backend->end(r);
    }
    once(2);
    backend->end(r);
    ok(backend->wait(r) == MIRT_E_STATE && strstr(last_error, "replayed work"), "other work under the same key: %s",
       last_error);
    backend->forget(r, NULL);
    once(1);
    backend->end(r);
    once(1);
    ok(!backend->end(r) && backend->wait(r) == MIRT_E_STATE && strstr(last_error, "enqueued again"),
       "captured and not enqueued again: %s", last_error);
    backend->forget(r, NULL);
    once(1);
    backend->end(r);
    once(1);
    ok(backend->wait(r) == MIRT_E_STATE && strstr(last_error, "not ended"), "begun and not ended: %s", last_error);
    once(1);
    ok(!backend->end(r), "and it begins anew");
    once(1);
    ok(backend->end(r) && backend->wait(r) == MIRT_OK, "to the end");
    backend->forget(r, NULL);
    backend->release(r, cell);
}

/* >>meetings */

/* Parts of all devices in the order of devices from `first` on, added one after the other. */
static void exchange_fill(mirt__reduction *x, const std::vector<std::vector<float *>> &part, int device,
                          int first) {
    memset(x, 0, sizeof *x);
    x->device = device;
    x->devices = (int)part.size();
    for (size_t d = 0; d < part.size(); d++) x->sum[d] = part[d][0];
    for (size_t i = 0; i < part.size(); i++) {
        const size_t d = ((size_t)first + i) % part.size();
        for (float *p : part[d]) {
            x->part_device[x->parts] = (int)d;
            x->part[x->parts++] = p;
        }
    }
    for (int p = 1; p < x->parts; p++) x->add[p - 1].from = p;
}

static void test_exchange(int devices, mirt_collective collective) {
    const int64_t count = 30000;
    Group g(first_devices(devices), collective);
    ok(g.good && !g.join.able.direct && strstr(g.how, "NCCL") && strstr(g.how, "GB/s"), "%d devices: %s", devices,
       g.how);
    if (!g.good) return;
    std::vector<std::vector<floats>> part((size_t)devices);
    std::vector<std::vector<float *>> there((size_t)devices);
    std::vector<floats> got((size_t)devices);
    std::vector<std::vector<char>> block((size_t)devices);
    std::vector<char *> base;
    std::vector<size_t> begin;
    std::vector<char> gathered;
    for (int d = 0; d < devices; d++) {
        const int slots = collective == MIRT_NCCL || (devices == 3 && d == 2) ? 1 : 2;
        for (int s = 0; s < slots; s++) {
            part[(size_t)d].push_back(numbers(count));
            there[(size_t)d].push_back(put(g.handle[(size_t)d], part[(size_t)d].back()));
        }
    }
    for (int d = 0; d <= devices; d++) begin.push_back((size_t)(d * 100 + d * d));
    for (int d = 0; d < devices; d++) {
        gathered.insert(gathered.end(), begin[(size_t)d + 1] - begin[(size_t)d], (char)(d + 1));
        base.push_back((char *)backend->alloc(g.handle[(size_t)d], begin.back()));
        std::vector<char> own(begin.back(), (char)(d + 1));
        backend->copy_in(g.handle[(size_t)d], base.back(), own.data(), own.size(), false);
        backend->wait(g.handle[(size_t)d]);
    }
    g.each([&](int d) {
        mirt__handle *r = g.handle[(size_t)d];
        mirt__reduction x;
        exchange_fill(&x, there, d, collective == MIRT_RING ? d + 1 : 0);
        for (int64_t end = count; end > 0; end = x.begin) { /* in buckets, the last first */
            x.end = end;
            x.begin = end > 12000 ? end - 12000 : 0;
            backend->reduce(r, &x);
        }
        backend->reduced(r);
        backend->reduced(r);
        backend->gather(r, base.data(), begin.data(), devices);
        block[(size_t)d].resize(begin.back());
        backend->copy_out(r, block[(size_t)d].data(), base[(size_t)d], begin.back());
        got[(size_t)d] = get(r, there[(size_t)d][0], (size_t)count);
    });
    floats chain(part[0][0]);
    std::vector<double> sum((size_t)count);
    for (int d = 0; d < devices; d++) {
        for (size_t s = 0; s < part[(size_t)d].size(); s++) {
            for (size_t i = 0; i < (size_t)count; i++) {
                if (d || s) chain[i] += part[(size_t)d][s][i];
                sum[i] += (double)part[(size_t)d][s][i];
            }
        }
    }
    double off = 0;
    bool equal = true, all = true;
    for (int d = 0; d < devices; d++) {
        equal = equal && got[(size_t)d] == got[0];
        all = all && block[(size_t)d] == gathered;
    }
    for (size_t i = 0; i < got[0].size(); i++) off = fmax(off, fabs((double)got[0][i] - sum[i]));
    const bool fixed = collective == MIRT_TREE || collective == MIRT_REDUCE_TO_ONE_DEVICE;
    ok(got[0].size() == (size_t)count && equal && off < 1e-5 && (!fixed || got[0] == chain),
       "sums of %d devices by collective %d: off by %.1e%s", devices, (int)collective, off,
       fixed ? ", in the order asked for" : "");
    ok(all, "%d devices gather", devices);
    for (int d = 0; d < devices; d++) {
        for (float *p : there[(size_t)d]) backend->release(g.handle[(size_t)d], p);
        backend->release(g.handle[(size_t)d], base[(size_t)d]);
    }
}

/* Steps whose exchanges run beside the work that follows them, all of it replayed. The weights of each device
   after each step. */
static bool train(const Group &g, int steps, std::vector<std::vector<floats>> *weights,
                  std::vector<std::vector<floats>> *input, const std::function<void(int, int)> &before) {
    const int64_t count = 9000;
    const int devices = g.count();
    const floats zero((size_t)count, 0.0f), w0 = numbers(count);
    std::vector<std::vector<float *>> gradient((size_t)devices);
    std::vector<float *> in, w, m, v;
    std::vector<int> status((size_t)devices, MIRT_OK);
    pthread_barrier_t all;
    bool good = true;
    weights->assign((size_t)devices, std::vector<floats>((size_t)steps + 1, w0));
    input->assign((size_t)devices, std::vector<floats>());
    for (int d = 0; d < devices; d++) {
        mirt__handle *r = g.handle[(size_t)d];
        gradient[(size_t)d].push_back(put(r, zero));
        in.push_back(put(r, zero));
        w.push_back(put(r, w0));
        m.push_back(put(r, zero));
        v.push_back(put(r, zero));
        for (int s = 0; s < steps; s++) (*input)[(size_t)d].push_back(numbers(count));
        if (in.back()) { /* loads the kernel */
            const mirt__where where = where_of(r);
            backend->kernels()->accumulate(in.back(), in.back(), count, &where);
        }
        good = gradient[(size_t)d][0] && in.back() && w.back() && m.back() && v.back() && backend->wait(r) == MIRT_OK &&
               good;
    }
    pthread_barrier_init(&all, NULL, (unsigned)devices);
    if (good) g.each([&](int d) {
        mirt__handle *r = g.handle[(size_t)d];
        mirt__where where = where_of(r);
        float *own = gradient[(size_t)d][0];
        for (int s = 0; s < steps; s++) {
            int turns = 0;
            mirt__reduction x;
            mirt__update u;
            if (before) before(d, s);
            exchange_fill(&x, gradient, d, 0);
            backend->copy_in(r, in[(size_t)d], (*input)[(size_t)d][(size_t)s].data(), (size_t)count * sizeof(float),
                           true);
            do {
                backend->begin(r, weights, 1);
                backend->clear(r, own, (size_t)count * sizeof(float));
                backend->kernels()->accumulate(own, in[(size_t)d], count, &where);
                for (int k = 2; k >= 0 && !g.join.able.direct; k--) {
                    x.begin = k * 3200;
                    x.end = k == 2 ? count : x.begin + 3200;
                    backend->reduce(r, &x);
                    backend->kernels()->accumulate(in[(size_t)d], in[(size_t)d], count, &where);
                }
                if (!g.join.able.direct) backend->reduced(r);
            } while (!backend->end(r) && ++turns < 4);
            memset(&u, 0, sizeof u);
            u.end = count;
            u.parts = u.copies = 1;
            u.kind = MIRT_ADAM;
            u.new_1 = 0.1f;
            u.new_2 = 0.001f;
            u.epsilon = 1e-7f;
            u.learning_rate = 0.01f * (float)(s + 1);
            u.part[0] = own;
            u.weight[0] = w[(size_t)d];
            u.slot[0] = m[(size_t)d];
            u.slot[1] = v[(size_t)d];
            do {
                backend->begin(r, weights, 2);
                backend->kernels()->update(&u, &where);
            } while (!backend->end(r) && ++turns < 8);
            backend->copy_out(r, (*weights)[(size_t)d][(size_t)s + 1].data(), w[(size_t)d],
                              (size_t)count * sizeof(float));
            const mirt_status waited = backend->wait(r);
            if (waited != MIRT_OK || turns > 4)
                __atomic_store_n(&status[(size_t)d], waited == MIRT_OK ? MIRT_E_STATE : waited, __ATOMIC_RELAXED);
            pthread_barrier_wait(&all);
            bool failed = false;
            for (int e = 0; e < devices; e++)
                failed = failed || __atomic_load_n(&status[(size_t)e], __ATOMIC_RELAXED) != MIRT_OK;
            pthread_barrier_wait(&all);
            if (failed) return;
        }
    });
    pthread_barrier_destroy(&all);
    for (int d = 0; d < devices; d++) {
        mirt__handle *r = g.handle[(size_t)d];
        good = good && status[(size_t)d] == MIRT_OK;
        backend->forget(r, weights);
        for (float *p : {gradient[(size_t)d][0], in[(size_t)d], w[(size_t)d], m[(size_t)d], v[(size_t)d]})
            backend->release(r, p);
    }
    return good;
}

static void test_steps(int devices, mirt_collective collective) {
    std::vector<std::vector<floats>> weights, input;
    const int steps = 6;
    Group g(first_devices(devices), collective);
    const bool good = g.good && train(g, steps, &weights, &input, nullptr);
    ok(good, "steps on %d devices with exchanges in the middle%s%s", devices, good ? "" : ": ",
       good ? "" : all_errors.c_str());
    if (!good) return;
    const size_t count = weights[0][0].size();
    floats w = weights[0][0], m(count, 0.0f), v(count, 0.0f);
    bool same = true;
    double off = 0;
    for (int s = 0; s < steps; s++) {
        floats sum = input[0][(size_t)s];
        for (int d = 1; d < devices; d++) {
            for (size_t i = 0; i < count; i++) sum[i] += input[(size_t)d][(size_t)s][i];
        }
        mirt__where cpu = where_of(NULL);
        mirt__update u;
        memset(&u, 0, sizeof u);
        u.end = (int64_t)count;
        u.parts = u.copies = 1;
        u.kind = MIRT_ADAM;
        u.new_1 = 0.1f;
        u.new_2 = 0.001f;
        u.epsilon = 1e-7f;
        u.learning_rate = 0.01f * (float)(s + 1);
        u.part[0] = sum.data();
        u.weight[0] = w.data();
        u.slot[0] = m.data();
        u.slot[1] = v.data();
        mirt__kernels_best()->update(&u, &cpu);
        for (int d = 0; d < devices; d++)
            same = same &&
                   weights[(size_t)d][(size_t)s + 1] == (collective == MIRT_TREE ? w : weights[0][(size_t)s + 1]);
        for (size_t i = 0; i < count; i++) off = fmax(off, fabs((double)weights[0][(size_t)s + 1][i] - (double)w[i]));
    }
    ok(same && off < 1e-2, "and the weights are %s",
       collective == MIRT_TREE ? "those of the CPU, bit by bit" : "the same on all of them");
}

/* The kernels of the first wait for the second, which has still to do all of a first step but to load kernels. */
static void test_late(void) {
    Group g(first_devices(2), MIRT_TREE);
    std::vector<std::vector<float *>> gradient;
    std::vector<floats> got(2), sent(2, numbers(700000));
    float *cell[2];
    for (int d = 0; d < 2; d++) {
        gradient.push_back({put(g.handle[(size_t)d], numbers(9000))});
        const mirt__where where = where_of(g.handle[(size_t)d]);
        cell[d] = (float *)backend->alloc(g.handle[(size_t)d], sent[0].size() * sizeof(float));
        backend->kernels()->constant(cell[d], sent[0].data(), sizeof(float), &where); /* loads the kernel */
        backend->wait(g.handle[(size_t)d]);
    }
    g.each([&](int d) {
        mirt__handle *r = g.handle[(size_t)d];
        const mirt__where where = where_of(r);
        mirt__reduction x;
        const struct timespec while_ = {0, 200000000 * d};
        nanosleep(&while_, NULL);
        backend->copy_in(r, cell[d], sent[(size_t)d].data(), sent[0].size() * sizeof(float), true);
        backend->copy_in(r, cell[d], sent[(size_t)d].data(), sent[0].size() * sizeof(float), false);
        for (int i = 0; i < 3; i++)
            backend->kernels()->constant(cell[d] + i, &sent[(size_t)d][(size_t)(9 + i)], sizeof(float), &where);
        exchange_fill(&x, gradient, d, 0);
        x.begin = 0;
        x.end = 9000;
        backend->reduce(r, &x);
        backend->reduced(r);
        got[(size_t)d] = get(r, cell[d], sent[0].size());
    });
    for (floats &v : sent) std::copy(v.begin() + 9, v.begin() + 12, v.begin());
    ok(g.good && got == sent, "a device that comes late takes no memory that has to wait for those that wait for it");
    for (int d = 0; d < 2; d++) {
        backend->release(g.handle[(size_t)d], gradient[(size_t)d][0]);
        backend->release(g.handle[(size_t)d], cell[d]);
    }
}

/* Each device adds up a third of the elements of all, and writes it to all. */
static void test_direct_reduce(Group &g) {
    std::vector<std::vector<float *>> part;
    floats want(30, 0);
    for (int d = 0; d < 3; d++) {
        const floats own = numbers(30);
        for (size_t i = 0; i < 30; i++) want[i] += own[i];
        part.push_back({put(g.handle[(size_t)d], own)});
        backend->wait(g.handle[(size_t)d]);
    }
    g.each([&](int d) {
        mirt__reduction x;
        exchange_fill(&x, part, d, 0);
        x.end = 30;
        x.own_begin = 10 * d;
        x.own_end = 10 * d + 10;
        backend->reduce(g.handle[(size_t)d], &x);
        backend->reduced(g.handle[(size_t)d]);
        backend->wait(g.handle[(size_t)d]);
    });
    bool good = true;
    for (int d = 0; d < 3; d++) good = get(g.handle[(size_t)d], part[(size_t)d][0], 30) == want && good;
    ok(good, "devices that reach each other's memory reduce their shares");
    for (int d = 0; d < 3; d++) backend->release(g.handle[(size_t)d], part[(size_t)d][0]);
}

static void test_direct(void) {
    all_errors.clear();
    {
        Group g({1, 1, 0}, MIRT_TREE);
        ok(g.good && g.join.able.direct && strstr(g.how, "named twice"), "a GPU twice: %s", g.how);
        test_direct_reduce(g);
        std::vector<char *> base;
        const size_t begin[4] = {0, 100, 200, 300};
        std::vector<char> block[3];
        for (int d = 0; d < 3; d++) {
            std::vector<char> own(300, (char)(d + 1));
            base.push_back((char *)backend->alloc(g.handle[(size_t)d], 300));
            backend->copy_in(g.handle[(size_t)d], base.back(), own.data(), 300, false);
            backend->wait(g.handle[(size_t)d]);
        }
        pthread_barrier_t all;
        pthread_barrier_init(&all, NULL, 3);
        g.each([&](int d) {
            mirt__handle *r = g.handle[(size_t)d];
            for (int turn = 0; turn < 2; turn++) {
                backend->signal(r, turn);
                pthread_barrier_wait(&all);
                for (int e = 0; e < 3; e++) {
                    if (e != d) backend->await(r, g.handle[(size_t)e], turn);
                }
                if (!turn) backend->gather(r, base.data(), begin, 3);
            }
            block[d].resize(300);
            backend->copy_out(r, block[d].data(), base[(size_t)d], 300);
            if (backend->wait(r) != MIRT_OK) block[d].clear();
        });
        pthread_barrier_destroy(&all);
        ok(block[0].size() == 300 && block[0] == block[1] && block[1] == block[2] && block[0][0] == 1 &&
               block[0][150] == 2 && block[0][250] == 3,
           "they gather in each other's memory");
        for (int d = 0; d < 3; d++) backend->release(g.handle[(size_t)d], base[(size_t)d]);
    }
    {
        Group g({0, 2}, MIRT_TREE, 60, true);
        ok(g.good && g.join.able.direct, "memory in common: %s", g.how);
    }
    {
        Group g({0, 0}, MIRT_NCCL);
        ok(!g.good && strstr(last_error, "NCCL cannot join"), "NCCL with a GPU twice: %s", last_error);
    }
    setenv("MIRT_CUDA_NCCL", "0", 1);
    {
        Group g({0, 2}, MIRT_TREE);
        ok(g.good && g.join.able.direct && strstr(g.how, "MIRT_CUDA_NCCL"), "without NCCL: %s", g.how);
    }
    mirt_sim::options().no_peers = true;
    {
        Group g({2, 3}, MIRT_TREE);
        ok(!g.good && strstr(last_error, "cannot reach the memory of gpu:3"),
           "devices that do not reach each other: %s", last_error);
    }
    mirt_sim::options().no_peers = false;
    unsetenv("MIRT_CUDA_NCCL");
    for (int version : {20000, 30000}) {
        mirt_sim::options().nccl = version;
        Group g({0, 1}, MIRT_TREE);
        ok(!g.good && strstr(last_error, "built with nccl.h"), "NCCL of another version: %s", last_error);
    }
    mirt_sim::options().nccl = 0;
    {
        Group g({2}, MIRT_NCCL);
        ok(g.good && g.join.able.direct && !*g.how, "one device needs nothing");
    }
}

/* >>failures */

static void test_loss(void) {
    std::vector<std::vector<floats>> weights, input;
    for (int error : {(int)cudaErrorECCUncorrectable, (int)cudaErrorIllegalAddress, (int)cudaErrorUnknown}) {
        all_errors.clear();
        {
            Group g(first_devices(3), MIRT_TREE, 5);
            const bool good = g.good && train(g, 4, &weights, &input, [&](int d, int s) {
                if (d == 1 && s == 2) mirt_sim::lose_device(1, error);
            });
            ok(!good && says("gpu:1 (Simulated GPU 1): lost") && says("last checkpoint"),
               "a device is lost in the middle: %.300s", all_errors.c_str());
            mirt_sim::lose_device(1, 0);
        }
        ok(mirt_sim::report_leaks() == 0, "and nothing is left behind");
    }
    for (int silently = 0; silently < 2; silently++) {
        all_errors.clear();
        {
            Group g(first_devices(3), silently ? MIRT_TREE : MIRT_NCCL, 2);
            const double begin = host_now();
            const bool good = g.good && train(g, 4, &weights, &input, [&](int d, int s) {
                if (d == 2 && s == 1) mirt_sim::kill_rank(2, silently);
            });
            ok(!good && host_now() - begin < 60 && (says("NCCL") || says("nothing was done")), "a rank dies%s: %.300s",
               silently ? " silently" : "", all_errors.c_str());
        }
        ok(mirt_sim::report_leaks() == 0, "and nothing is left behind");
    }
}

/* NCCL makes no progress: the limit is kept, the message says what to try, and afterwards all is as before. */
static void test_joining(void) {
    static const struct {
        const char *what, *says;
        int joins, issues; /* the rank that never does */
        mirt_collective collective;
    } faults[] = {
        {"a rank never joins", "of 3, joining: nothing came from the others", 1, -1, MIRT_TREE},
        {"the first never joins", "of 3, joining: nothing came from the others", 0, -1, MIRT_NCCL},
        {"a transfer never begins", "rank 0 of 3, trying it: nothing came from the others", -1, 2, MIRT_TREE},
        {"a sum never begins", "rank 0 of 3, trying it: nothing came from the others", -1, 0, MIRT_NCCL},
    };
    std::vector<std::vector<floats>> weights, input;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const double limit = 5;
#else
    const double limit = 0.5;
#endif
    for (const auto &f : faults) {
        all_errors.clear();
        mirt_sim::options().never_joins = f.joins;
        mirt_sim::options().never_issues = f.issues;
        const double begin = host_now();
        const bool good = Group(first_devices(3), f.collective, limit).good;
        mirt_sim::options().never_joins = mirt_sim::options().never_issues = -1;
        ok(!good && host_now() - begin < 30 && says(f.says) && says("NCCL_DEBUG=INFO") &&
               says("NCCL_SOCKET_IFNAME=lo") && says("NCCL_P2P_DISABLE=1"),
           "%s: %s", f.what, all_errors.c_str());
        ok(mirt_sim::report_leaks() == 0, "and nothing is left behind");
    }
    for (int device = 0; device < 3; device++) {
        all_errors.clear();
        {
            Group g(first_devices(3), device == 1 ? MIRT_NCCL : MIRT_TREE, 2 * limit);
            const bool good = g.good && train(g, 4, &weights, &input, [&](int d, int s) {
                if (d == device && s == 2) mirt_sim::options().never_issues = device;
            });
            mirt_sim::options().never_issues = -1;
            ok(g.good && !good && (says("nothing came from the others") || says("nothing was done")),
               "an exchange of rank %d never begins: %.200s", device, all_errors.c_str());
        }
        ok(mirt_sim::report_leaks() == 0, "and nothing is left behind");
    }
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    test_steps(2, MIRT_TREE);
    unsetenv("NCCL_COMM_BLOCKING");
    test_steps(3, MIRT_TREE);
    ok(mirt_sim::report_leaks() == 0, "with calls that block, and without");
}

/* Work without end is abandoned, with all that would have to wait for it. That work stays behind. */
static void test_hanging(int device, bool joined) {
    all_errors.clear();
    std::vector<void *> memory;
    const double begin = host_now();
    {
#ifdef __SANITIZE_ADDRESS__
        const __lsan::ScopedDisabler stuck; /* what such a device has is not freed */
#endif
        Group g(joined ? std::vector<int>{0, 0, 1} : std::vector<int>{device}, MIRT_TREE, 1);
        for (mirt__handle *r : g.handle) memory.push_back(backend->alloc(r, 1000));
        mirt_sim::hang_device(device, true);
        g.each([&](int d) {
            mirt__handle *r = g.handle[(size_t)d];
            backend->clear(r, memory[(size_t)d], 1000);
            backend->wait(r);
        });
        for (int d = 0; d < g.count(); d++) {
            backend->forget(g.handle[(size_t)d], NULL);
            backend->release(g.handle[(size_t)d], memory[(size_t)d]);
        }
    }
    ok(says("nothing was done in") && host_now() - begin < 60, "work of gpu:%d has no end: %s", device,
       all_errors.c_str());
}

/* Any call fails: an error or none, and never a leak or a wait without end. */
static void test_faults(int devices, mirt_collective collective, bool twice, long every) {
    std::vector<std::vector<floats>> weights, input;
    const std::vector<int> index = twice ? std::vector<int>((size_t)devices, 0) : first_devices(devices);
    const auto run = [&] {
        Group g(index, collective, 5);
        return g.good && train(g, 3, &weights, &input, nullptr);
    };
    mirt_sim::reset_calls();
    const bool clean = run();
    const long calls = mirt_sim::calls();
    int bad = 0, errors = 0, tried = 0;
    for (long call = 1 + (long)(mirt_sim::options().seed % (uint64_t)every); call <= calls; call += every) {
        all_errors.clear();
        mirt_sim::options().fail_call = call;
        mirt_sim::reset_calls();
        const double begin = host_now();
        const bool good = run();
        const char *name = mirt_sim::failed_call();
        mirt_sim::options().fail_call = 0;
        const bool right = mirt_sim::report_leaks() == 0 && good == all_errors.empty() && host_now() - begin < 60;
        if (!right) printf("# call %ld, %s: %s\n", call, name ? name : "none", all_errors.c_str());
        bad += !right;
        errors += !good;
        tried++;
    }
    ok(clean && calls > 0 && bad == 0 && errors > tried / 4,
       "%d devices: each of %d calls out of %ld may fail; %d did harm and said so", devices, tried, calls, errors);
}

int main(void) {
    const bool small = small_tier();
    backend = mirt__cuda_backend();
    mirt_sim::options().devices = 4;
    ok(backend && backend->version == MIRT__BACKEND_VERSION && !strcmp(backend->name, "gpu"), "there is a backend");
    test_devices();
    mirt__handle *r = backend->open(&host, opening(2, true));
    if (!ok(r != NULL, "a device is opened")) return done_testing();
    test_memory(r);
    test_copies(r);
    test_updates(r);
    test_sums(r);
    test_graphs(r);
    backend->close(r);
    backend->close(NULL);
    setenv("MIRT_CUDA_GRAPHS", "0", 1);
    int turns[7];
    r = backend->open(&host, opening(0, false));
    ok(r && graph_steps(r, turns, nullptr) && turns[1] == 1, "without graphs");
    backend->close(r);
    unsetenv("MIRT_CUDA_GRAPHS");
    for (int devices = 2; devices <= (small ? 3 : 4); devices++) {
        for (int collective = MIRT_TREE; collective <= MIRT_NCCL; collective++)
            test_exchange(devices, (mirt_collective)collective);
    }
    test_steps(3, MIRT_TREE);
    test_steps(2, MIRT_NCCL);
    test_late();
    test_direct();
    ok(mirt_sim::report_leaks() == 0, "nothing is left behind");
    test_loss();
    test_joining();
    test_faults(1, MIRT_TREE, false, small ? 3 : 1);
    test_faults(2, MIRT_TREE, false, small ? 31 : 5);
    test_faults(2, MIRT_TREE, true, small ? 31 : 5);
    if (!small) test_faults(3, MIRT_NCCL, false, 7);
    test_hanging(3, false);
    test_hanging(1, true);
    return done_testing();
}
