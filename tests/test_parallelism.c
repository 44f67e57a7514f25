/* Predictions of a step on more cores: replays whose answers are known, and recordings. */
#include "../cli/parallel_record.c"
#include "../cli/parallel_replay.c"
#include "../cli/times.c"
#include "mirror_util.h"
#include "tap.h"

static bool same(double a, double b) { return fabs(a - b) <= 1e-12 * (fabs(a) + fabs(b)); }

/* >>replaying */

static void test_loops(void) {
    static const struct {
        double seconds[6];
        int tasks, cores;
        double end;
    } cases[] = {
        {{3, 1, 1, 1}, 4, 1, 6},   {{3, 1, 1, 1}, 4, 2, 3},       {{1, 1, 1, 3}, 4, 2, 4},
        {{1, 1, 1, 3}, 4, 4, 3},   {{1, 1, 1, 3}, 4, 64, 3},      {{2, 2, 2, 2, 2}, 5, 2, 6},
        {{2, 2, 2, 2, 2}, 5, 4, 4}, {{5, 4, 3, 2, 1, 1}, 6, 3, 6}, {{0, 0, 7}, 3, 2, 7},
    };
    double free_at[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double end = seconds_of_loop(cases[i].seconds, cases[i].tasks, cases[i].cores, free_at);
        ok(end == cases[i].end, "%d tasks of %g, %g, %g, ... on %d cores: %g s", cases[i].tasks, cases[i].seconds[0],
           cases[i].seconds[1], cases[i].seconds[2], cases[i].cores, end);
    }
}

/* Cores in a list that is searched, in place of a heap. */
static double searched(const double *seconds, int tasks, int cores) {
    double busy[40] = {0}, last = 0;
    for (int i = 0; i < tasks; i++) {
        int at = 0;
        for (int c = 1; c < cores; c++) at = busy[c] < busy[at] ? c : at;
        busy[at] += seconds[i];
        last = busy[at] > last ? busy[at] : last;
    }
    return last;
}

static void test_heap(void) {
    enum { TASKS = 300 };
    mirt__random random = mirt__random_stream(1, 2);
    double seconds[TASKS], free_at[40];
    int wrong = 0;
    for (int i = 0; i < TASKS; i++) seconds[i] = (double)mirt__random_below(&random, 1000);
    for (int cores = 1; cores <= 40; cores++)
        wrong += seconds_of_loop(seconds, TASKS, cores, free_at) != searched(seconds, TASKS, cores);
    ok(wrong == 0, "the first core that is free takes the next task, for 1 to 40 cores: %d differ", wrong);
}

/* Row 0: a second of serial work, a loop of 4 tasks of a second, a loop of one task of 2. Row 1: a loop of 2 tasks. */
static schedule two_rows(piece *pieces, schedule_row *rows) {
    static const piece parts[] = {{0, 0, 0}, {0, 4, 1}, {0, 1, 5}, {1, 2, 6}};
    schedule s;
    memset(&s, 0, sizeof s);
    memset(rows, 0, 2 * sizeof *rows);
    memcpy(pieces, parts, sizeof parts);
    rows[0].bytes = 6;
    rows[1].bytes = 100;
    s.piece = pieces;
    s.pieces = 4;
    s.row = rows;
    s.rows = 2;
    s.times = 8;
    return s;
}

static void test_replay(void) {
    static const double seconds[8] = {1, 1, 1, 1, 1, 2, 3, 5};
    piece pieces[4];
    schedule_row rows[2];
    const schedule s = two_rows(pieces, rows);
    machine m = {2, 0.5, 0, 0};
    replayed row[2], all;
    bool good = replay(&s, seconds, &m, row, &all);
    ok(good && same(row[0].seconds, 5.5) && same(row[1].seconds, 5.5) && same(all.seconds, 11),
       "two cores: %g and %g s", row[0].seconds, row[1].seconds);
    ok(same(row[0].serial, 3) && same(row[0].work, 7) && row[0].loops == 1 && row[0].tasks == 4 &&
           same(row[0].largest, 0.25) && same(row[0].imbalance, 0),
       "three of seven seconds are not divided; a task has a quarter of its loop");
    ok(same(row[1].imbalance, 1) && same(all.barriers, 1) && all.memory == 0 && same(all.work, 15) && all.loops == 2,
       "of two tasks of 3 and 5 seconds the shorter one leaves a core idle");
    ok(same(all.seconds, all.serial + (all.work - all.serial) / 2 + all.imbalance + all.barriers + all.memory),
       "the parts of the prediction add up to it");
    m.cores = 1;
    good = replay(&s, seconds, &m, row, &all);
    ok(good && same(all.seconds, 15) && all.barriers == 0 && all.imbalance == 0, "one core meets nobody: %g s",
       all.seconds);
    m.cores = 64;
    m.barrier = 0;
    good = replay(&s, seconds, &m, row, &all);
    ok(good && same(all.seconds, 4 + 5), "64 cores: the largest tasks and serial work, %g s", all.seconds);
}

static void test_memory(void) {
    static const double seconds[8] = {1, 1, 1, 1, 1, 2, 3, 5};
    piece pieces[4];
    schedule_row rows[2];
    const schedule s = two_rows(pieces, rows);
    machine m = {2, 0.5, 10, 0};
    replayed row[2], all;
    bool good = replay(&s, seconds, &m, row, &all);
    ok(good && same(row[0].seconds, 5.5) && same(row[1].seconds, 10) && same(all.memory, 4.5),
       "100 bytes take 10 s at 10 bytes/s, 6 bytes hide: %g and %g s", row[0].seconds, row[1].seconds);
    ok(same(bandwidth_speedup(&all, 15, &m), 15.0 / 10.6), "memory alone allows a speed-up of %.3f",
       bandwidth_speedup(&all, 15, &m));
    m.stream = 2;
    good = replay(&s, seconds, &m, row, &all);
    ok(good && same(row[1].moved, 16) && same(row[1].seconds, 5.5),
       "in 8 s a core of 2 bytes/s has read no more than 16 bytes: the rest came from caches");
    m.cores = 1;
    good = replay(&s, seconds, &m, row, &all);
    ok(good && same(all.seconds, 15), "what one core takes contains its memory");
    m.bandwidth = 0;
    ok(bandwidth_speedup(&all, 15, &m) == 0, "no bandwidth is no bound");
}

/* >>recording */

static void tell_event(recording *r, mirt_task_kind kind, int64_t index, double time, const char *op) {
    mirt_task_event event;
    memset(&event, 0, sizeof event);
    event.kind = kind;
    event.index = index;
    event.time = time;
    event.op = op;
    event.bytes = 10;
    record_event(&event, r);
}

/* A loop of `tasks` tasks in an operation, and one of `others` in the update. */
static bool told_step(recording *r, int tasks, int others) {
    const double far_off = seconds_now() + 1000; /* later than all that recording itself takes */
    record_step(r);
    tell_event(r, MIRT_TASK_PHASE, MIRT_PHASE_FORWARD, far_off, NULL);
    tell_event(r, MIRT_TASK_LOOP, tasks, far_off + 1, NULL);
    const bool restarts = r->since < far_off; /* what recording takes is in no task */
    r->since = far_off + 1;
    for (int i = 0; i < tasks; i++) tell_event(r, MIRT_TASK_DONE, i, far_off + 2 + i, NULL);
    tell_event(r, MIRT_TASK_OP, 7, far_off + 2 + tasks, "conv");
    tell_event(r, MIRT_TASK_PHASE, MIRT_PHASE_UPDATE, far_off + 3 + tasks, NULL);
    tell_event(r, MIRT_TASK_LOOP, others, far_off + 4 + tasks, NULL);
    for (int i = 0; i < others; i++) tell_event(r, MIRT_TASK_DONE, i, far_off + 5 + tasks + i, NULL);
    tell_event(r, MIRT_TASK_PHASE, MIRT_PHASE_LAUNCH, far_off + 5 + tasks + others, NULL);
    return end_step(r) && restarts;
}

static void test_recorder(void) {
    static const char *const names[] = {"(checks and launch)", "conv", "(forward)", "(update)",
                                        "(results and metrics)"};
    ZEROED(recording, r);
    bool good = told_step(&r, 3, 1) && told_step(&r, 3, 1);
    ok(good && r.steps == 2 && r.plan.rows == 5, "two steps alike: %d, of %d rows", r.steps, (int)r.plan.rows);
    int named = 0;
    for (int i = 0; good && i < 5 && i < r.plan.rows; i++) named += strcmp(r.plan.row[i].op, names[i]) == 0;
    ok(named == 5 && r.plan.row[1].is_op && !r.plan.row[2].is_op, "an operation, and phases around it: %d names",
       named);
    ok(good && r.plan.row[1].bytes == 10 && r.plan.row[1].phase == MIRT_PHASE_FORWARD,
       "with the bytes they are told of");
    ok(good && fabs(r.step[1][2] - 1) < 1e-6 && fabs(r.step[1][3] - 1) < 1e-6 && fabs(r.step[1][4] - 1) < 1e-6,
       "each of the loop's tasks takes a second");
    int wrong = 0;
    for (int64_t i = 0; i < r.plan.pieces; i++) wrong += r.plan.piece[i].row < 0 || r.plan.piece[i].row >= r.plan.rows;
    ok(wrong == 0, "all %d pieces have a row", (int)r.plan.pieces);
    good = told_step(&r, 4, 1);
    ok(good && r.steps == 1, "steps before one that is divided otherwise are forgotten");
    good = told_step(&r, 4, 1) && r.steps == 2 && told_step(&r, 1, 4);
    ok(good && r.steps == 1, "also if it has as many tasks in all");
    for (int i = 1; i < MAX_RECORDINGS && good; i++) good = told_step(&r, 1, 4);
    ok(good && r.steps == MAX_RECORDINGS && !told_step(&r, 1, 4), "there is room for %d steps", r.steps);
    forget_steps(&r);
    good = told_step(&r, 1, 4);
    good = sum_up(&r);
    ok(good && r.quartile[0] == r.median[0], "of one step the quartile is the median");
    free_recording(&r);

    ZEROED(recording, joined);
    record_step(&joined);
    tell_event(&joined, MIRT_TASK_LOOP, 5, seconds_now(), NULL);
    tell_event(&joined, MIRT_TASK_JOIN, 5, seconds_now(), NULL);
    tell_event(&joined, MIRT_TASK_LOOP, 0, seconds_now(), NULL);
    good = end_step(&joined);
    int64_t timed = 0;
    for (int64_t i = 0; i < joined.plan.pieces; i++) {
        const int64_t tasks = joined.plan.piece[i].tasks;
        timed += tasks ? tasks : 1;
    }
    ok(good && timed == joined.plan.times && joined.plan.pieces == 4,
       "a loop that is joined has one time, one without tasks has none: %d", (int)timed);
    free_recording(&joined);

    ZEROED(recording, many);
    double times[5] = {5, 1, 4, 2, 3};
    many.plan.times = 1;
    for (int i = 0; i < 5; i++) {
        many.step[many.steps] = (double *)malloc(sizeof *times);
        *many.step[many.steps++] = times[i];
    }
    good = sum_up(&many);
    ok(good && many.quartile[0] == 2 && many.median[0] == 3, "of five: the lower quartile and the median");
    free_recording(&many);

    static const double uneven[5][2] = {{1, 5}, {5, 1}, {1, 5}, {3, 1}, {1, 6}}; /* 6, 6, 6, 4, 7 */
    ZEROED(recording, places);
    places.plan.times = 2;
    for (int i = 0; i < 5; i++) {
        places.step[places.steps] = (double *)malloc(sizeof *uneven);
        memcpy(places.step[places.steps++], uneven[i], sizeof *uneven);
    }
    good = sum_up(&places);
    ok(good && same(places.quartile[0], 3) && same(places.quartile[1], 3) && same(places.median[0], 1) &&
           same(places.median[1], 5),
       "tasks add up to the lower quartile of steps, and to their median: %g + %g, %g + %g", places.quartile[0],
       places.quartile[1], places.median[0], places.median[1]);
    free_recording(&places);
}

/* >>the library */

static mirt_strategy *simulated(int threads) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = "1";
    d.threads = threads;
    d.seed = 11;
    d.silent = true;
    d.simulate_threads = true;
    return mirt_strategy_create(&d);
}

/* Operations of the program that run. */
static int running(const mirt_function *f) {
    int count = 0;
    for (int i = 0; i < f->step.program.graph.count; i++) count += mirt__node_runs(f->step.program.graph.node[i]);
    return count;
}

static int64_t rows_of_ops(const schedule *s) {
    int64_t count = 0;
    for (int64_t i = 0; i < s->rows; i++) count += s->row[i].is_op;
    return count;
}

/* The best of several, as other programs may interrupt a step between two parts of it. */
static double share_recorded(mirt_model *m, recording *r, int64_t rows) {
    double best = 0;
    for (int i = 0; i < 20; i++) {
        const double begin = seconds_now();
        record_step(r);
        if (mirt_train_step(m, images_x(0, rows), images_y(0, rows), NULL) != MIRT_OK || !end_step(r)) return 0;
        const double all = seconds_now() - begin;
        double sum = 0;
        for (int64_t k = 0; k < r->plan.times; k++) sum += r->step[r->steps - 1][k];
        if (sum > all) return 0;
        best = sum / all > best ? sum / all : best;
    }
    return best;
}

/* 143 inputs, 200 units, 5 classes. */
static mirt_model *wide_model(mirt_strategy *s) {
    mirt_model *m = mirt_model_create(s, "wide");
    ZEROED(mirt_dense_desc, dense);
    dense.units = 200;
    mirt_tensor *x = mirt_dense(mirt_flatten(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1))), &dense);
    dense.units = IMAGE_CLASSES;
    mirt_model_output(m, mirt_dense(x, &dense));
    const mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* The first operation of that name and layer; NULL: none. */
static const schedule_row *row_of(const schedule *s, const char *op, const char *layer) {
    for (int64_t i = 0; i < s->rows; i++)
        if (strcmp(s->row[i].op, op) == 0 && strcmp(s->row[i].layer, layer) == 0) return &s->row[i];
    return NULL;
}

/* The update's tasks are 16,384 weights each, of 144 * 200 + 201 * 5. */
static void test_update(void) {
    enum { TASKS = 2, ROWS = 32, IN = IMAGE_H * IMAGE_W, OUT = 200 };
    mirt_strategy *s = simulated(16);
    mirt_model *m = wide_model(s);
    ZEROED(recording, r);
    const machine like = {16, 0, 0, 0};
    replayed all, row[40];
    bool good = m && mirt_record_tasks(s, record_event, &r) == MIRT_OK && share_recorded(m, &r, ROWS) > 0;
    good = good && sum_up(&r) && r.plan.rows <= 40 && replay(&r.plan, r.median, &like, row, &all);
    int64_t tasks = 0;
    for (int64_t i = 0; good && i < r.plan.rows; i++) {
        if (strcmp(r.plan.row[i].op, "(update)") != 0) continue;
        tasks = row[i].tasks;
    }
    ok(tasks == TASKS, "the update has %d tasks", (int)tasks);
    const double bytes = ROWS * IN + 4.0 * (IN * OUT + OUT + ROWS * OUT); /* pixels are bytes */
    const schedule_row *dense = row_of(&r.plan, "matmul", "dense");
    ok(dense && same(dense->flops, 2.0 * ROWS * IN * OUT) && same(dense->bytes, bytes),
       "a product of %d x %d and %d x %d has %g flops and moves %g bytes", ROWS, IN, IN, OUT, dense ? dense->flops : 0,
       dense ? dense->bytes : 0);
    free_recording(&r);
    mirt_strategy_destroy(s);
}

static void test_steps(int threads) {
    enum { ROWS = 200 };
    mirt_strategy *s = simulated(threads), *real = strategy_of(1, 1, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.3f), *plain = image_model(real, mirt_adam(1e-3f), 0.3f);
    ZEROED(recording, r);
    ok(m && plain && mirt_record_tasks(s, record_event, &r) == MIRT_OK, "%d threads, simulated", threads);
    const double share = m ? share_recorded(m, &r, ROWS) : 0;
    ok(share > 0.9, "%.1f %% of a step are recorded", 100 * share);
    int wrong = 0;
    double a = 0, b = 1;
    for (int i = 0; m && i < 20; i++) {
        if (mirt_train_step(plain, images_x(0, ROWS), images_y(0, ROWS), &a) != MIRT_OK) wrong++;
    }
    mirt_record_tasks(s, NULL, NULL);
    const int64_t before = r.now.pieces;
    wrong += mirt_train_step(m, images_x(0, ROWS), images_y(0, ROWS), &a) != MIRT_OK ||
             mirt_train_step(plain, images_x(0, ROWS), images_y(0, ROWS), &b) != MIRT_OK;
    ok(wrong == 0 && a == b, "recorded and simulated steps are bit-identical to others: %.9g, %.9g", a, b);
    const mirt_function *f = m->trainer->function[MIRT__TRAIN];
    ok(r.now.pieces == before && !f->step.look, "nothing is told any more once it is over");
    ok(rows_of_ops(&r.plan) == running(f), "every operation is recorded: %d of %d", (int)rows_of_ops(&r.plan),
       running(f));
    const machine like = {threads, 0, 0, 0};
    replayed all, *row = (replayed *)calloc((size_t)r.plan.rows, sizeof *row);
    const bool good = sum_up(&r) && replay(&r.plan, r.quartile, &like, row, &all);
    ok(good && all.seconds > 0 && all.seconds <= all.work * (1 + 1e-9),
       "the prediction is no longer than one core takes");
    double told = 0;
    for (int64_t i = 0; good && i < r.plan.times; i++) told += r.quartile[i];
    ok(good && fabs(all.work / told - 1) < 1e-9, "all that was timed is in a row: %g of %g s", all.work, told);
    free(row);
    free_recording(&r);
    mirt_strategy_destroy(s);
    mirt_strategy_destroy(real);
}

/* The weights of a small MobileNetV2, or ResNet18, after two steps with so many threads. */
static bool trained(int threads, bool residual, char digest[MIRT__SHA256_HEX]) {
    enum { ROWS = 5, SIZE = 32, CLASSES = 150 };
    static uint8_t pixels[ROWS][SIZE * SIZE * 3];
    static int32_t labels[ROWS];
    mirt__random random = mirt__random_stream(5, 6);
    for (int i = 0; i < ROWS; i++) {
        labels[i] = i * 31;
        for (int k = 0; k < SIZE * SIZE * 3; k++) pixels[i][k] = (uint8_t)mirt__random_below(&random, 256);
    }
    ZEROED(mirt_application_desc, desc);
    desc.size = SIZE;
    desc.alpha = residual ? 0 : 0.35f;
    desc.classes = CLASSES;
    desc.logits = true;
    mirt_strategy *s = simulated(threads);
    mirt_model *m = mirt_application(s, residual ? "resnet18" : "mobilenet_v2", &desc);
    const mirt_compile_desc c = image_compile(mirt_adam(1e-3f));
    bool good = m && mirt_compile(m, &c) == MIRT_OK;
    for (int i = 0; i < 2 && good; i++) {
        good = mirt_train_step(m, mirt_make_array(pixels, MIRT_UINT8, MIRT_SHAPE(ROWS, SIZE, SIZE, 3)),
                               mirt_make_array(labels, MIRT_INT32, MIRT_SHAPE(ROWS)), NULL) == MIRT_OK;
    }
    if (good) digest_weights(m, 0, digest);
    mirt_strategy_destroy(s);
    return good;
}

static void test_bits(bool residual) {
    static const int threads[] = {2, 3, 16, 64, 200};
    char one[MIRT__SHA256_HEX], many[MIRT__SHA256_HEX];
    bool good = trained(1, residual, one);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        good = good && trained(threads[i], residual, many);
        ok(good && strcmp(one, many) == 0, "%s: work that is divided for %d threads gives the same weights",
           residual ? "ResNet18" : "MobileNetV2", threads[i]);
    }
}

/* How often each kind of event comes in a step. */
static void count_event(const mirt_task_event *event, void *user) { ((int *)user)[event->kind]++; }

static void test_team(void) {
    mirt_strategy *s = strategy_of(1, 1, 2);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    int count[MIRT_TASK_OP + 1] = {0};
    ok(mirt_record_tasks(s, count_event, count) == MIRT_OK &&
           mirt_train_step(m, images_x(0, 64), images_y(0, 64), NULL) == MIRT_OK,
       "two threads are recorded, too");
    ok(count[MIRT_TASK_JOIN] > 0 && count[MIRT_TASK_LOOP] >= count[MIRT_TASK_JOIN] && count[MIRT_TASK_PHASE] > 3 &&
           count[MIRT_TASK_OP] == running(m->trainer->function[MIRT__TRAIN]),
       "%d loops, of which %d end by meeting", count[MIRT_TASK_LOOP], count[MIRT_TASK_JOIN]);
    const int loops = count[MIRT_TASK_LOOP];
    mirt_run_empty_loop(s);
    ok(count[MIRT_TASK_LOOP] == loops, "an empty loop is not told of");
    mirt_strategy_destroy(s);
}

static void test_misuse(void) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = "2";
    d.silent = d.simulate_threads = true;
    ok(!mirt_strategy_create(&d) && mirt_last_status() == MIRT_E_INVALID &&
           strstr(mirt_last_error(), "simulate_threads is for one device of cores"),
       "two devices: \"%s\"", mirt_last_error());
    ok(mirt_record_tasks(NULL, count_event, NULL) == MIRT_E_INVALID && strstr(mirt_last_error(), "mirt_record_tasks"),
       "no strategy: \"%s\"", mirt_last_error());
    ok(mirt_run_empty_loop(NULL) == MIRT_E_INVALID && strstr(mirt_last_error(), "mirt_run_empty_loop"),
       "no strategy to run a loop: \"%s\"", mirt_last_error());
    mirt_strategy *one = strategy_of(1, 1, 1), *many = simulated(64);
    ok(mirt_run_empty_loop(one) == MIRT_OK && mirt_run_empty_loop(many) == MIRT_OK,
       "one thread, and threads that are simulated, have nothing to wait for");
    snprintf(one->lost, sizeof one->lost, "a test lost them");
    ok(mirt_run_empty_loop(one) == MIRT_E_DEVICE && strstr(mirt_last_error(), "a test lost them"),
       "devices that are lost run no loop: \"%s\"", mirt_last_error());
    one->lost[0] = 0;
    one->running = true;
    ok(mirt_run_empty_loop(one) == MIRT_E_STATE && strstr(mirt_last_error(), "a step is under way"),
       "nor do those in a step: \"%s\"", mirt_last_error());
    ok(mirt_record_tasks(one, count_event, NULL) == MIRT_E_STATE &&
           strstr(mirt_last_error(), "mirt_record_tasks: a step"),
       "whose tasks are not recorded from its middle on: \"%s\"", mirt_last_error());
    one->running = false;
    mirt_strategy_destroy(one);
    mirt_strategy_destroy(many);
}

int main(void) {
    draw_images();
    test_loops();
    test_heap();
    test_replay();
    test_memory();
    test_recorder();
    test_steps(1);
    test_steps(64);
    test_update();
    test_bits(false);
    test_bits(true);
    test_team();
    test_misuse();
    printf("1..%d\n", tap_count);
    return tap_failed > 0;
}
