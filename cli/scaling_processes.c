/* mirrortrain scaling under mpirun: speed-up by processes. */
#include "posix.h"
#include "scaling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_head(const char *title) {
    printf("\n%s\n%9s %8s %10s %9s %9s %11s %14s %8s %8s\n", title, "processes", "batch", "images/s", "ms/step",
           "speed-up", "of linear", "ms all-reduce", "jitter", "p95/p50");
}

/* The timing counts the images of its own process alone. */
static double rate_of_all(const point *p, const answer *a) {
    const double step = step_of(a);
    return step > 0 ? (double)p->batch / step : 0;
}

/* `first`: images per second of the first row, which has 1/`linear` as many processes. */
static void print_row(const point *p, const answer *a, double first, double linear) {
    const mirt_timing *t = &a->timing;
    const double rate = rate_of_all(p, a), faster = first > 0 ? rate / first : 0;
    printf("%9d %8lld %10.1f %9.2f     x%4.2f %9.0f %% %14.2f", p->processes, (long long)p->batch, rate,
           1e3 * step_of(a), faster, 100 * faster / linear,
           t->steps ? 1e3 * t->seconds[MIRT_PHASE_REDUCE] / (double)t->steps : 0);
    printf(" %6.1f %% %8.2f\n", 100 * a->spread.deviation, a->spread.tail);
    fflush(stdout);
}

/* The first processes train, the others wait for them. All return the same exit status. */
static int run_row(const options *o, int processes, int64_t batch, point *p, answer *a) {
    int status = EXIT_OK;
    memset(a, 0, sizeof *a);
    memset(p, 0, sizeof *p);
    p->threads = (int)o->threads;
    p->batch = batch;
    p->prefetch = p->spread = true;
    p->processes = processes;
    limit_processes(processes);
    if (own_number() < processes) status = run_point(o, p, a);
    limit_processes(0);
    return meet_processes(status);
}

/* `weak`: the batch grows with the processes. *widest: the last row. */
static int run_counts(const options *o, bool weak, answer *widest) {
    const batches *counts = &o->device_counts;
    const int64_t batch = o->batch_list.rows[0];
    double first = 0;
    char title[128];
    snprintf(title, sizeof title,
             weak ? "%lld images for each process (weak scaling)"
                  : "a batch of %lld for all processes together (strong scaling)",
             (long long)batch);
    print_head(title);
    for (int i = 0; i < counts->count; i++) {
        point p;
        const int processes = (int)counts->rows[i];
        const int status = run_row(o, processes, weak ? batch * processes : batch, &p, widest);
        if (status != EXIT_OK) return status;
        if (i == 0) first = rate_of_all(&p, widest);
        print_row(&p, widest, first, (double)processes / (double)counts->rows[0]);
    }
    return EXIT_OK;
}

/* >>checks */

/* False after complaining. */
static bool check_counts(const options *o, int all) {
    const batches *counts = &o->device_counts;
    const long long most = largest_count(counts), batch = o->batch_list.rows[0];
    if (!counts_increase(counts)) return false;
    if (most > all) complain("--device-counts %lld: there are %d processes", most, all);
    else if (batch < most) complain("--batch %lld has fewer images than there are processes (%lld)", batch, most);
    else return has_one_batch(o, "scaling");
    return false;
}

static void warn_of_shared_cores(const answer *a) {
    const int here = processes_of_host(), threads = a->timing.threads * a->timing.num_devices;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (a->timing.cores > 0 && (long)here * threads > cores)
        note("%d processes of %d thread%s share the %ld core%s of this machine: their times say little about scaling",
             here, threads, threads == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
}

/* So that all processes of a host have cores of their own, whether mpirun binds them to cores or not. */
static int64_t fair_threads(void) {
    bool gpus = false;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN), share = cores / processes_of_host();
    const int here = count_devices(&gpus);
    if (gpus || share < 1) return 1;
    return share < here ? share : here;
}

/* >>the command */

static int predict(const options *o, const network *link) {
    calibration from;
    point p;
    memset(&from, 0, sizeof from);
    const int status = run_row(o, 1, o->batch_list.rows[0], &p, &from.own);
    if (status != EXIT_OK) return status;
    from.devices = from.own.timing.num_devices;
    if (!is_first() || !from.devices) return EXIT_OK;
    from.batch = o->batch_list.rows[0] / from.devices;
    from.per_host = o->devices_per_host ? (int)o->devices_per_host : from.devices;
    from.link = *link;
    print_prediction(o, &from);
    return EXIT_OK;
}

/* What messages take between the first and the last process. */
static int describe_link(answer *widest, int all, network *link) {
    if (!tell_processes(&widest->bytes, sizeof widest->bytes, all)) return EXIT_FAILED;
    const int status = meet_processes(measure_link((size_t)widest->bytes, link) ? EXIT_OK : EXIT_FAILED);
    if (status != EXIT_OK) return status;
    tell("link between process 0 and %d: %.1f Gbit/s each way, %.1f us a message; gradients: %.1f MB", all - 1,
         link->gbit, link->latency * 1e6, widest->bytes * 1e-6);
    return EXIT_OK;
}

int run_process_scaling(const options *given) {
    options own = *given;
    network asked, link;
    answer widest;
    const int all = join_processes();
    if (!all) return EXIT_FAILED;
    choose_counts(&own.device_counts, all);
    if (!given->device_counts.count && largest_count(&own.device_counts) < all)
        own.device_counts.rows[own.device_counts.count++] = all;
    const bool right = !is_first() || (check_prediction(&own, &asked) && check_counts(&own, all));
    int status = meet_processes(right ? EXIT_OK : EXIT_USAGE);
    if (status != EXIT_OK) return status;
    if (!own.threads) own.threads = fair_threads();
    tell("%s: the first of %d processes train, %lld thread%s each; the others wait", own.model, all,
         (long long)own.threads, own.threads == 1 ? "" : "s");
    status = run_counts(&own, false, &widest);
    if (status == EXIT_OK) status = run_counts(&own, true, &widest);
    if (status != EXIT_OK) return status;
    printf("ms all-reduce: of a step, for adding up gradients and waiting for other processes; jitter: standard "
           "deviation of the\nstep, as a share of its mean; p95/p50: its 95th percentile, divided by its median (of "
           "%lld steps)\n",
           (long long)widest.spread.steps);
    status = describe_link(&widest, all, &link);
    if (status != EXIT_OK) return status;
    if (is_first()) warn_of_shared_cores(&widest);
    return own.predict ? predict(&own, is_first() && own.network ? &asked : &link) : EXIT_OK;
}
