/* mirrortrain bench --parallelism: predicts a step on more cores, and what limits it. */
#include "parallelism.h"

#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 2, LEAST_STEPS = 5, DEFAULT_SECONDS = 3 };
enum { USUAL_CORES = 64, MAX_CHECKED = 16, MAX_COUNTS = MAX_BATCHES + 5 };

/* A number of cores. */
typedef struct prediction {
    machine m;
    bool real;         /* it is checked: */
    double real_step[2 * MAX_RECORDINGS]; /* seconds of steps measured before and after the recording */
    int real_steps;
    double measured, checked; /* seconds: the lower quartile, and as predicted for this machine */
    recording steps;
    replayed all, *row; /* by the lower quartiles of tasks' times: programs that interrupt tasks do no harm */
    double median;      /* seconds by their medians */
} prediction;

typedef struct study {
    const options *o;
    int64_t batch;
    int count;
    prediction at[MAX_COUNTS];
    double barrier, stream, bandwidth; /* stream: of one core; bandwidth: of all of this machine's */
    int cores;                         /* that it has */
    double error;                      /* the largest of checks, as a share */
} study;

static bool increases(const batches *list) {
    for (int i = 1; i < list->count; i++)
        if (list->rows[i] <= list->rows[i - 1]) return false;
    return true;
}

static int64_t most_cores(const options *o) {
    return o->core_counts.count ? o->core_counts.rows[o->core_counts.count - 1] : USUAL_CORES;
}

bool parallelism_fits(const options *o) {
    const bool others = o->core_counts.count || o->bandwidth > 0 || o->sockets || o->barrier > 0 || o->json || o->check;
    if (!o->parallelism && !others) return true;
    if (!o->parallelism)
        complain("--cores, --bandwidth, --sockets, --barrier, --check and --json need --parallelism");
    else if (o->devices || o->replicas || o->threads || o->shares || o->profile || o->feed)
        complain("--parallelism excludes --devices, --replicas, --threads, --shares, --profile and --feed");
    else if (works_together()) complain("--parallelism is for one process");
    else if (!increases(&o->core_counts)) complain("--cores: the numbers must increase");
    else if (o->sockets > most_cores(o))
        complain("--sockets is %lld, but the largest of --cores is %lld: lower --sockets, or raise --cores",
                 (long long)o->sockets, (long long)most_cores(o));
    else if (o->steps > MAX_RECORDINGS)
        complain("--parallelism records up to %d steps: lower --steps", (int)MAX_RECORDINGS);
    else if (o->json && o->batch_list.count > 1) complain("--json is for one batch size: give one --batch");
    else return true;
    return false;
}

/* >>measuring */

/* Steps to measure when `done` of them have taken `seconds`. */
static bool has_enough(const options *o, int done, double seconds) {
    if (done == MAX_RECORDINGS) return true;
    if (o->steps) return done >= o->steps;
    return done >= LEAST_STEPS && seconds >= (o->seconds ? (double)o->seconds : DEFAULT_SECONDS);
}

/* Seconds of a loop without work, the median; negative: it failed. */
static double measure_barrier(mirt_strategy *strategy) {
    enum { LOOPS = 1001 };
    double times[LOOPS];
    for (int i = 0; i < LOOPS; i++) {
        const double begin = seconds_now();
        if (mirt_run_empty_loop(strategy) != MIRT_OK) return -1;
        times[i] = seconds_now() - begin;
    }
    qsort(times, LOOPS, sizeof *times, by_size);
    return times[LOOPS / 2];
}

/* The update is a phase of the library's: each weight and its gradient are read, the weight is written, the optimizer's
   state is read and written. */
static void describe_update(const job *j, schedule *s) {
    mirt_memory plan;
    if (mirt_plan_memory(j->model, j->batch, &plan) != MIRT_OK) return;
    for (int64_t i = 0; i < s->rows; i++) {
        if (!s->row[i].is_op && s->row[i].phase == MIRT_PHASE_UPDATE)
            s->row[i].bytes = 3 * (double)plan.gradients + 2 * (double)plan.slots;
    }
}

/* Bytes per second of memory, as a profile measures them. 0: a step failed. */
static double measure_stream(job *j) {
    double rate = 0;
    if (mirt_profile_begin(j->model) != MIRT_OK || run_step(j) != MIRT_OK) return 0;
    const char *text = mirt_profile_text(j->model), *end = text ? strstr(text, " GB/s\n") : NULL;
    while (end && end > text && end[-1] != ' ') end--;
    if (end) rate = strtod(end, NULL) * 1e9;
    return rate;
}

/* What `threads` threads of this machine do; a single image is enough for that. Returns an exit status. */
static int measure_machine(const study *s, int threads, double *stream, double *barrier) {
    options o = *s->o;
    job j;
    o.threads = threads;
    int status = begin_job(&j, &o, 1);
    if (status == EXIT_OK && !((*stream = measure_stream(&j)) > 0)) status = complain_of_step(&j);
    if (status == EXIT_OK && (*barrier = measure_barrier(j.strategy)) < 0) status = complain_of_step(&j);
    end_job(&j);
    return status;
}

/* Real threads; adds to the steps measured so far. Returns an exit status. */
static int measure_steps(const study *s, prediction *p) {
    options o = *s->o;
    job j;
    double *times = p->real_step + p->real_steps;
    int count = 0;
    o.threads = p->m.cores;
    int status = begin_job(&j, &o, s->batch);
    for (int i = 0; i < WARM_UP && status == EXIT_OK; i++) {
        if (run_step(&j) != MIRT_OK) status = complain_of_step(&j);
    }
    for (const double begin = seconds_now(); status == EXIT_OK && !has_enough(&o, count, seconds_now() - begin);) {
        const double start = seconds_now();
        if (run_step(&j) != MIRT_OK) status = complain_of_step(&j);
        times[count++] = seconds_now() - start;
    }
    end_job(&j);
    p->real_steps += count;
    return status;
}

/* One thread in place of `cores`; returns an exit status. */
static int record(const study *s, int cores, recording *r) {
    options o = *s->o;
    job j;
    o.threads = cores;
    o.simulate = true;
    int status = begin_job(&j, &o, s->batch);
    for (int i = 0; i < WARM_UP && status == EXIT_OK; i++) {
        if (run_step(&j) != MIRT_OK) status = complain_of_step(&j);
    }
    if (status == EXIT_OK && mirt_record_tasks(j.strategy, record_event, r) != MIRT_OK) status = complain_of_library();
    for (const double begin = seconds_now(); status == EXIT_OK && !has_enough(&o, r->steps, seconds_now() - begin);) {
        record_step(r);
        if (run_step(&j) != MIRT_OK) status = complain_of_step(&j);
        else if (!end_step(r)) complain("out of memory"), status = EXIT_FAILED;
    }
    if (status == EXIT_OK) describe_update(&j, &r->plan);
    end_job(&j);
    if (status == EXIT_OK && !sum_up(r)) complain("out of memory"), status = EXIT_FAILED;
    return status;
}

/* >>predicting */

/* One core is what speed-ups are compared with. Checks are on powers of two. */
static void choose_cores(study *s) {
    const batches *list = &s->o->core_counts;
    int64_t counts[MAX_COUNTS] = {1}, checks = s->o->check ? 2 : MAX_CHECKED + 1;
    s->count = 1;
    for (int i = 0; list->count ? i < list->count : counts[s->count - 1] < USUAL_CORES; i++) {
        const int64_t cores = list->count ? list->rows[i] : (int64_t)2 << i;
        for (; checks <= MAX_CHECKED && checks <= s->cores && checks < cores; checks *= 2)
            if (checks > counts[s->count - 1]) counts[s->count++] = checks;
        if (cores > counts[s->count - 1]) counts[s->count++] = cores;
    }
    for (int i = 0; i < s->count; i++) {
        s->at[i].m.cores = (int)counts[i];
        s->at[i].real = s->o->check && counts[i] <= s->cores && counts[i] <= MAX_CHECKED;
    }
}

/* The sockets on which so many cores are: the largest number of cores fills all, others as few as possible. */
static int64_t sockets_of(const study *s, int64_t cores) {
    const int64_t sockets = s->o->sockets ? s->o->sockets : 1, all = s->at[s->count - 1].m.cores;
    int64_t used = 0;
    for (int64_t room = 0; room < cores; used++) room += all / sockets + (used < all % sockets);
    return used;
}

static double bandwidth_of(const study *s, int cores) {
    const double socket = s->o->bandwidth > 0 ? (double)s->o->bandwidth * 1e9 : s->bandwidth;
    return socket * (double)sockets_of(s, cores);
}

/* With the numbers of this machine, for comparison with what was measured. */
static bool check(study *s, prediction *p) {
    machine m = p->m;
    replayed all;
    m.barrier = s->barrier;
    m.bandwidth = s->bandwidth;
    qsort(p->real_step, (size_t)p->real_steps, sizeof *p->real_step, by_size);
    p->measured = p->real_step[quartile_of(p->real_steps)];
    if (!replay(&p->steps.plan, p->steps.quartile, &m, p->row, &all)) return false;
    p->checked = all.seconds;
    const double error = all.seconds / p->measured - 1;
    if (error > s->error || -error > s->error) s->error = error > 0 ? error : -error;
    return true;
}

static bool predict(study *s, prediction *p) {
    replayed median;
    p->row = (replayed *)calloc((size_t)p->steps.plan.rows, sizeof *p->row);
    p->m.stream = s->stream;
    if (!p->row || (p->real && !check(s, p))) return false;
    p->m.barrier = s->o->barrier > 0 ? (double)s->o->barrier * 1e-6 : s->barrier;
    p->m.bandwidth = bandwidth_of(s, p->m.cores);
    if (!replay(&p->steps.plan, p->steps.median, &p->m, p->row, &median)) return false;
    p->median = median.seconds;
    return replay(&p->steps.plan, p->steps.quartile, &p->m, p->row, &p->all);
}

/* >>results */

/* As a share: how far recordings are apart, or the error of the checks. */
static double band_of(const study *s, const prediction *p) {
    const double spread = p->all.seconds > 0 ? (p->median - p->all.seconds) / p->all.seconds : 0;
    return spread > s->error ? spread : s->error;
}

static double one_core(const study *s) { return s->at[0].all.seconds; }
static double speedup_of(const study *s, const prediction *p) { return one_core(s) / p->all.seconds; }

/* The smaller of the linear speed-up and the one that memory allows. */
static double bound_of(const study *s, const prediction *p) {
    const double memory = bandwidth_speedup(&p->all, one_core(s), &p->m);
    return memory > 0 && memory < p->m.cores ? memory : p->m.cores;
}

/* Seconds of the prediction because dividing the work makes more of it. */
static double extra_of(const study *s, const prediction *p) {
    return (p->all.work - s->at[0].all.work) / p->m.cores;
}

static double serial_loss(const prediction *p) { return p->all.serial * (1 - 1.0 / p->m.cores); }

/* What is not divided, by where it is. */
enum { SERIAL_PARTS = 16 };
typedef struct serial_part {
    char name[64];
    double seconds;
} serial_part;

static void serial_name(const schedule_row *row, char *out, size_t size) {
    if (row->is_op) snprintf(out, size, "in operations, %s", mirt_phase_name((mirt_phase)row->phase));
    else snprintf(out, size, "%s", row->op);
}

static int serial_parts(const prediction *p, serial_part *part) {
    int count = 0;
    for (int64_t i = 0; i < p->steps.plan.rows; i++) {
        char name[64];
        int at = 0;
        serial_name(&p->steps.plan.row[i], name, sizeof name);
        while (at < count && strcmp(part[at].name, name) != 0) at++;
        if (at == SERIAL_PARTS) at--;
        else if (at == count) {
            memcpy(part[count].name, name, sizeof name);
            part[count++].seconds = 0;
        }
        part[at].seconds += p->row[i].serial;
    }
    return count;
}

/* The rows of a prediction, the slowest first; the caller frees it. NULL: out of memory. */
static const prediction *ordered;
static int by_time(const void *a, const void *b) {
    const double x = ordered->row[*(const int64_t *)a].seconds, y = ordered->row[*(const int64_t *)b].seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}
static int64_t *slowest_first(const prediction *p) {
    int64_t *order = (int64_t *)malloc((size_t)p->steps.plan.rows * sizeof *order);
    if (!order) return NULL;
    for (int64_t i = 0; i < p->steps.plan.rows; i++) order[i] = i;
    ordered = p;
    qsort(order, (size_t)p->steps.plan.rows, sizeof *order, by_time);
    return order;
}

/* >>as text */

static void print_rows(const prediction *p, const int64_t *order) {
    const double least = 0.0005 * p->all.seconds;
    double rest = 0;
    int64_t left = 0;
    printf("operations on %d core%s, slowest first; tasks: of the longest loop; largest: the share of its largest "
           "task; serial: work of one thread\n",
           p->m.cores, p->m.cores == 1 ? "" : "s");
    printf("%9s %10s %9s %6s %7s %8s %10s\n", "ms", "1-core ms", "speed-up", "loops", "tasks", "largest", "serial ms");
    for (int64_t i = 0; i < p->steps.plan.rows; i++) {
        const schedule_row *row = &p->steps.plan.row[order[i]];
        const replayed *r = &p->row[order[i]];
        if (r->seconds < least) {
            rest += r->seconds;
            left++;
            continue;
        }
        printf("%9.3f %10.3f %9.1f %6lld %7lld %7.2f%% %10.3f", r->seconds * 1e3, r->work * 1e3, r->work / r->seconds,
               (long long)r->loops, (long long)r->tasks, 100 * r->largest, r->serial * 1e3);
        tell(*row->layer ? "  %-26s %s%s" : "  %s%s%s", row->op, row->layer,
             r->memory > 0 ? "  limited by memory" : "");
    }
    if (left) printf("%9.3f  (the rest: %lld below 0.05 %%)\n", rest * 1e3, (long long)left);
}

static void print_serial(const study *s, const prediction *p) {
    serial_part part[SERIAL_PARTS];
    const int count = serial_parts(p, part);
    printf("work of one thread while the others wait: %.3f ms, %.2f %% of the step on one core\n",
           p->all.serial * 1e3, 100 * p->all.serial / one_core(s));
    for (int i = 0; i < count; i++)
        if (part[i].seconds >= 5e-7) printf("%9.3f  %s\n", part[i].seconds * 1e3, part[i].name);
}

static void print_predictions(const study *s) {
    printf("predicted steps; linear, bandwidth: the speed-up that the cores and their memory allow; of limit: the "
           "share of the smaller; the other columns: ms lost to each cause\n");
    printf("%5s %10s %6s %8s %7s %9s %8s %8s %9s %8s %8s %9s\n", "cores", "ms", "+-", "speed-up", "linear", "bandwidth",
           "of limit", "serial", "imbalance", "barriers", "memory", "more work");
    for (int i = 0; i < s->count; i++) {
        const prediction *p = &s->at[i];
        printf("%5d %10.3f %5.1f%% %8.2f %7d %9.1f %7.0f%% %8.3f %9.3f %8.3f %8.3f %9.3f\n", p->m.cores,
               p->all.seconds * 1e3, 100 * band_of(s, p), speedup_of(s, p), p->m.cores,
               bandwidth_speedup(&p->all, one_core(s), &p->m), 100 * speedup_of(s, p) / bound_of(s, p),
               serial_loss(p) * 1e3, p->all.imbalance * 1e3, p->all.barriers * 1e3, p->all.memory * 1e3,
               extra_of(s, p) * 1e3);
    }
    for (int i = 0; i < s->count; i++) {
        const prediction *p = &s->at[i];
        if (!p->real) continue;
        printf("check: %d real core%s %s %.3f ms, predicted with this machine's numbers %.3f ms: %+.1f %%\n",
               p->m.cores, p->m.cores == 1 ? "" : "s", p->m.cores == 1 ? "takes" : "take", p->measured * 1e3,
               p->checked * 1e3, 100 * (p->checked / p->measured - 1));
    }
}

static bool print_text(const study *s) {
    const prediction *most = &s->at[s->count - 1];
    int64_t *order = slowest_first(most);
    if (!order) return false;
    tell("parallelism: model=%s batch=%lld mode=%s steps=%d barrier_us=%.2f core_gb_s=%.1f machine_cores=%d "
         "machine_gb_s=%.1f machine_barrier_us=%.2f",
         s->o->model, (long long)s->batch, s->o->forward ? "forward" : "train", most->steps.steps,
         most->m.barrier * 1e6, s->stream * 1e-9, s->cores, s->bandwidth * 1e-9, s->barrier * 1e6);
    if (!(s->o->bandwidth > 0) && most->m.cores > s->cores)
        printf("note: the memory bandwidth is what the %d core%s of this machine can use; for another machine, give "
               "--bandwidth\n",
               s->cores, s->cores == 1 ? "" : "s");
    print_rows(most, order);
    print_serial(s, most);
    print_predictions(s);
    free(order);
    return true;
}

/* >>as JSON */

static void json_replayed(const replayed *r) {
    printf("\"seconds\":%.9g,\"work\":%.9g,\"serial\":%.9g,\"imbalance\":%.9g,\"barriers\":%.9g,\"memory\":%.9g,"
           "\"bytes\":%.9g,\"loops\":%lld",
           r->seconds, r->work, r->serial, r->imbalance, r->barriers, r->memory, r->moved, (long long)r->loops);
}

static void json_row(const schedule_row *row, const replayed *r) {
    printf("{\"op\":");
    print_json_text(stdout, row->op);
    printf(",\"layer\":");
    print_json_text(stdout, row->layer);
    printf(",\"is_operation\":%s,\"flops\":%.9g,\"tasks\":%lld,\"largest\":%.6g,", row->is_op ? "true" : "false",
           row->flops, (long long)r->tasks, r->largest);
    json_replayed(r);
    printf("}");
}

static void json_serial(const prediction *p) {
    serial_part part[SERIAL_PARTS];
    const int count = serial_parts(p, part);
    printf("\"serial_parts\":[");
    for (int i = 0; i < count; i++)
        printf("%s{\"name\":\"%s\",\"seconds\":%.9g}", i ? "," : "", part[i].name, part[i].seconds);
    printf("]");
}

/* False: out of memory. */
static bool json_prediction(const study *s, const prediction *p) {
    int64_t *order = slowest_first(p);
    if (!order) return false;
    printf("{\"cores\":%d,\"band\":%.6g,\"speedup\":%.6g,\"linear\":%d,\"bandwidth_bound\":%.6g,\"of_bound\":%.6g,"
           "\"bandwidth\":%.9g,\"barrier\":%.9g,\"more_work\":%.9g,",
           p->m.cores, band_of(s, p), speedup_of(s, p), p->m.cores, bandwidth_speedup(&p->all, one_core(s), &p->m),
           speedup_of(s, p) / bound_of(s, p), p->m.bandwidth, p->m.barrier, extra_of(s, p));
    if (p->real) printf("\"measured\":%.9g,\"checked\":%.9g,", p->measured, p->checked);
    json_replayed(&p->all);
    printf(",");
    json_serial(p);
    printf(",\"operations\":[");
    for (int64_t i = 0; i < p->steps.plan.rows; i++) {
        if (i) printf(",\n");
        json_row(&p->steps.plan.row[order[i]], &p->row[order[i]]);
    }
    printf("]}");
    free(order);
    return true;
}

static bool print_json(const study *s) {
    bool good = true;
    printf("{\"label\":\"predicted\",\"model\":");
    print_json_text(stdout, s->o->model);
    printf(",\"batch\":%lld,\"mode\":\"%s\",\"steps\":%d,\"machine\":{\"cores\":%d,\"core_bandwidth\":%.9g,"
           "\"bandwidth\":%.9g,\"barrier\":%.9g},\"error\":%.6g,\"predictions\":[",
           (long long)s->batch, s->o->forward ? "forward" : "train", s->at[0].steps.steps, s->cores, s->stream,
           s->bandwidth, s->barrier, s->error);
    for (int i = 0; i < s->count && good; i++) {
        if (i) printf(",\n");
        good = json_prediction(s, &s->at[i]);
    }
    printf("]}\n");
    return good;
}

/* >>the command */

/* Returns an exit status. */
static int measure_all(study *s) {
    double none;
    int status = measure_machine(s, 1, &s->stream, &none);
    if (status == EXIT_OK) status = measure_machine(s, s->cores, &s->bandwidth, &s->barrier);
    if (s->bandwidth < s->stream) s->bandwidth = s->stream; /* other programs took the rest */
    for (int i = 0; i < s->count && status == EXIT_OK; i++) {
        if (s->at[i].real) status = measure_steps(s, &s->at[i]);
        if (status == EXIT_OK) status = record(s, s->at[i].m.cores, &s->at[i].steps);
        if (status == EXIT_OK && s->at[i].real) status = measure_steps(s, &s->at[i]); /* the machine's speed drifts */
    }
    return status;
}

int run_parallelism(const options *o, int64_t batch) {
    study *s = (study *)calloc(1, sizeof *s);
    if (!s) return complain("out of memory"), EXIT_FAILED;
    int count;
    mirt_device_info *devices = list_devices(&count, &s->cores);
    free(devices);
    s->o = o;
    s->batch = batch;
    choose_cores(s);
    int status = devices ? measure_all(s) : EXIT_FAILED;
    bool good = status == EXIT_OK;
    for (int i = 0; i < s->count && good; i++) good = predict(s, &s->at[i]);
    if (good) good = o->json ? print_json(s) : print_text(s);
    if (status == EXIT_OK && !good) complain("out of memory"), status = EXIT_FAILED;
    for (int i = 0; i < s->count; i++) {
        free_recording(&s->at[i].steps);
        free(s->at[i].row);
    }
    free(s);
    return status;
}
