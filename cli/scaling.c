/* mirrortrain scaling: speed-up by devices, batch sizes and prefetching, and its bottlenecks. */
#include "posix.h"
#include "scaling.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* >>a point in its own process */

/* Reads the whole answer of a child; false if it is incomplete. */
static bool read_answer(int fd, answer *a) {
    size_t got = 0;
    for (ssize_t more = 1; got < sizeof *a && more > 0; got += more > 0 ? (size_t)more : 0) {
        do more = read(fd, (char *)a + got, sizeof *a - got);
        while (more < 0 && errno == EINTR);
    }
    return got == sizeof *a;
}

/* So that points share neither memory nor threads. */
answer ask(const options *o, const point *p) {
    answer a;
    char words[96];
    const char *const more[] = {"--point", words};
    int pipes[2];
    memset(&a, 0, sizeof a);
    a.status = EXIT_FAILED;
    if (pipe(pipes) != 0) {
        complain("cannot open a pipe to a process: %s", strerror(errno));
        return a;
    }
    fcntl(pipes[0], F_SETFD, FD_CLOEXEC);
    snprintf(words, sizeof words, "%d,%d,%lld,%d,%d,%d", p->devices, p->threads, (long long)p->batch, p->prefetch,
             p->spread, pipes[1]);
    const bool started = start_again(o, more, 2);
    close(pipes[1]);
    const bool whole = started && read_answer(pipes[0], &a);
    close(pipes[0]);
    const int status = started ? wait_for_child() : 0;
    if (!whole) a.status = EXIT_FAILED;
    if (started && !whole && status == EXIT_USAGE) a.status = EXIT_USAGE; /* the child has complained */
    else if (started && !whole)
        complain("the process for %d devices and a batch of %lld did not finish", p->devices, (long long)p->batch);
    return a;
}

/* In the child: measures the point given by --point and writes the answer to the descriptor given there. */
static int answer_point(const options *o) {
    answer a;
    point p;
    long long batch;
    int prefetch, spread, fd, end = 0;
    memset(&a, 0, sizeof a);
    memset(&p, 0, sizeof p);
    if (sscanf(o->point, "%d,%d,%lld,%d,%d,%d%n", &p.devices, &p.threads, &batch, &prefetch, &spread, &fd,
               &end) != 6 || o->point[end] || fcntl(fd, F_GETFD) < 0) {
        complain("--point is for child processes of scaling");
        return EXIT_USAGE;
    }
    p.batch = batch;
    p.prefetch = prefetch != 0;
    p.spread = spread != 0;
    a.status = run_point(o, &p, &a);
    for (size_t put = 0; put < sizeof a;) {
        const ssize_t more = write(fd, (const char *)&a + put, sizeof a - put);
        if (more <= 0 && errno != EINTR) return EXIT_FAILED;
        if (more > 0) put += (size_t)more;
    }
    return a.status;
}

/* >>numbers of devices or processes */

void choose_counts(batches *counts, int most) {
    if (counts->count) return;
    for (int n = 1; n <= most && counts->count < MAX_BATCHES - 1; n *= 2) counts->rows[counts->count++] = n;
}

int largest_count(const batches *counts) { return (int)counts->rows[counts->count - 1]; }

bool counts_increase(const batches *counts) {
    for (int i = 1; i < counts->count; i++) {
        if (counts->rows[i] > counts->rows[i - 1]) continue;
        complain("--device-counts has %lld after %lld; the numbers must increase", (long long)counts->rows[i],
                 (long long)counts->rows[i - 1]);
        return false;
    }
    return true;
}

/* >>tables */

static double rate_of(const answer *a) { return a->timing.wall > 0 ? (double)a->timing.samples / a->timing.wall : 0; }

static const char *const causes[] = {"balanced",    "input",         "small batch",  "all-reduce", "slow device",
                                     "small model", "uneven shares", "shared cores", "callbacks"};

static void print_head(const char *title, const options *o, const char *linear) {
    printf("\n%s\n%8s %8s %10s %9s %9s %11s %10s", title, "devices", "batch", "images/s", "ms/step",
           linear[0] ? "speed-up" : "", linear, "epoch");
    if (o->price > 0) printf(" %9s", "cost");
    printf("  bottleneck\n");
}

/* Seconds of computing per image and device. */
static double computing(const mirt_timing *t) {
    const double *s = t->seconds;
    return t->samples ? (s[MIRT_PHASE_FORWARD] + s[MIRT_PHASE_BACKWARD]) * t->num_devices / (double)t->samples : 0;
}

/* Without another bottleneck, devices may slow each other down in computing, compared with `first`, which has fewer. */
static void print_cause(const mirt_timing *t, const mirt_timing *first) {
    const double slower = first && computing(first) > 0 ? computing(t) / computing(first) : 1;
    if (slower > 1.15)
        printf("  computing is x%.1f slower%s", slower,
               t->bottleneck == MIRT_BALANCED ? ": shared cores, caches or memory\n" : "; ");
    else if (t->bottleneck == MIRT_BALANCED) printf("  none: computing\n");
    else printf("  ");
    if (t->bottleneck != MIRT_BALANCED)
        printf("%s %.0f %%, x%.1f if fixed\n", causes[t->bottleneck], 100 * t->share, t->speedup);
}

/* `first`: the row to compare with, which has 1/`linear` as many devices; NULL: none. */
static void print_row(const options *o, const point *p, const answer *a, const answer *first, double linear,
                      const char *note) {
    const double rate = rate_of(a), epoch = rate > 0 ? (double)a->images / rate : 0;
    const mirt_timing *t = &a->timing;
    printf("%8d %8lld %10.1f %9.2f", p->devices, (long long)p->batch, rate, 1e3 * step_of(a));
    if (first) printf("     x%4.2f %9.0f %%", rate / rate_of(first), 100 * rate / rate_of(first) / linear);
    else printf(" %9s %11s", note, "");
    printf(" %8.1f s", epoch);
    if (o->price > 0) printf(" %9.4f", epoch / 3600 * (double)o->price);
    print_cause(t, first ? &first->timing : NULL);
    fflush(stdout);
}

typedef struct sweep {
    const options *o;
    int threads;  /* per device */
    int status;
    answer widest; /* result for the most devices and the first batch */
} sweep;

static bool run_row(sweep *s, point *p, answer *a) {
    p->threads = s->threads;
    *a = ask(s->o, p);
    if (a->status == EXIT_OK) return true;
    s->status = a->status;
    return false;
}

/* `weak`: the batch grows with the devices. */
static void run_counts(sweep *s, bool weak) {
    const batches *counts = &s->o->device_counts;
    const int64_t batch = s->o->batch_list.rows[0];
    answer first;
    char title[128];
    memset(&first, 0, sizeof first);
    snprintf(title, sizeof title,
             weak ? "%lld images for each device (weak scaling)"
                  : "a batch of %lld for all devices together (strong scaling)",
             (long long)(weak ? batch / counts->rows[0] : batch));
    for (int i = 0; i < counts->count; i++) {
        const int64_t global = weak ? batch / counts->rows[0] * counts->rows[i] : batch;
        point p = {(int)counts->rows[i], 0, global, true, false, 0};
        answer a;
        if (!run_row(s, &p, &a)) return;
        if (i == 0) {
            first = a;
            print_head(title, s->o, "of linear");
        }
        print_row(s->o, &p, &a, &first, (double)counts->rows[i] / (double)counts->rows[0], "");
        if (!weak) s->widest = a;
    }
}

static void run_prefetch(sweep *s) {
    const int devices = largest_count(&s->o->device_counts);
    print_head("with and without prefetching of batches", s->o, "");
    for (int on = 0; on < 2; on++) {
        point p = {devices, 0, s->o->batch_list.rows[0], on == 1, false, 0};
        answer a;
        if (!run_row(s, &p, &a)) return;
        print_row(s->o, &p, &a, NULL, 0, on ? "prefetch" : "none");
    }
}

/* The smallest batch that is nearly as fast as the fastest. */
static void run_batches(sweep *s) {
    const batches *list = &s->o->batch_list;
    const int devices = largest_count(&s->o->device_counts);
    double rate[MAX_BATCHES], best = 0;
    int sweet = -1;
    if (list->count < 2) return;
    print_head("batches", s->o, "");
    for (int i = 0; i < list->count; i++) {
        point p = {devices, 0, list->rows[i], true, false, 0};
        answer a;
        if (!run_row(s, &p, &a)) return;
        rate[i] = rate_of(&a);
        if (rate[i] > best) best = rate[i];
        print_row(s->o, &p, &a, NULL, 0, "");
    }
    for (int i = 0; i < list->count; i++) {
        if (rate[i] >= 0.95 * best && (sweet < 0 || list->rows[i] < list->rows[sweet])) sweet = i;
    }
    if (sweet >= 0)
        printf("sweet spot: a batch of %lld reaches %.0f %% of the highest images per second\n",
               (long long)list->rows[sweet], 100 * rate[sweet] / best);
}

/* Checks that this machine has cores for all counts; false after complaining. */
static bool check_counts(const options *o, int cores) {
    const batches *counts = &o->device_counts;
    const long long most = largest_count(counts), threads = o->threads ? o->threads : 1;
    if (!counts_increase(counts)) return false;
    if (most * threads > cores) {
        complain("--device-counts %lld: %lld threads would share the %d core%s of this machine, which makes their "
                 "times meaningless; %s",
                 most, most * threads, cores, cores == 1 ? "" : "s",
                 cores < threads ? "use fewer --threads" : "use fewer devices");
        return false;
    }
    for (int k = 0; k < o->batch_list.count; k++) {
        if (o->batch_list.rows[k] >= most) continue;
        complain("--batch %lld has fewer images than there are devices (%lld)", (long long)o->batch_list.rows[k], most);
        return false;
    }
    return true;
}

int count_devices(bool *gpus) {
    const char *kind = getenv("MIRT_DEVICES");
    int count, cores;
    mirt_device_info *info = list_devices(&count, &cores);
    if (!info) return 0;
    free(info);
    *gpus = cores < count && !(kind && strcmp(kind, "cpu") == 0);
    if (*gpus) setenv("MIRT_DEVICES", "gpu", 1); /* makes numbers of devices mean GPUs */
    return *gpus ? count - cores : cores;
}

int run_scaling(const options *given) {
    sweep s;
    options own = *given;
    const options *o = &own;
    bool gpus = false;
    network link;
    if (o->point) return answer_point(o);
    if (works_together()) return run_process_scaling(o);
    if (!check_prediction(o, &link)) return EXIT_USAGE;
    if (o->predict) return measure_prediction(o, &link);
    const int cores = count_devices(&gpus);
    const batches *counts = &o->device_counts;
    memset(&s, 0, sizeof s);
    if (!cores) return EXIT_FAILED;
    choose_counts(&own.device_counts, cores);
    if (!check_counts(o, cores)) return EXIT_USAGE;
    s.o = o;
    s.threads = gpus ? 1 : o->threads ? (int)o->threads : cores / largest_count(counts);
    char devices[96];
    if (gpus) snprintf(devices, sizeof devices, "on %d GPU%s", cores, cores == 1 ? "" : "s");
    else
        snprintf(devices, sizeof devices, "devices of %d thread%s each, on %d core%s", s.threads,
                 s.threads == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
    const char *turned = is_for_digits(o) ? ", rotated and zoomed on the fly" : "";
    if (o->data) tell("%s: %s; an epoch is all of %s%s", o->model, devices, o->data, turned);
    else
        tell("%s: %s; an epoch is %d images%s", o->model, devices, is_for_digits(o) ? DIGITS : PHOTOS,
             is_for_digits(o) ? ", digits rotated and zoomed on the fly" : ", drawn on the fly");
    run_counts(&s, false);
    if (s.status == EXIT_OK && counts->count > 1) run_counts(&s, true);
    if (s.status == EXIT_OK) run_prefetch(&s);
    if (s.status == EXIT_OK) run_batches(&s);
    if (s.status != EXIT_OK) return s.status;
    printf("\n");
    char *words = without_calls(s.widest.timing.verdict, NULL);
    tell("%d device%s, batch %lld: %s", s.widest.timing.num_devices, s.widest.timing.num_devices == 1 ? "" : "s",
         (long long)o->batch_list.rows[0], words ? words : "");
    free(words);
    return s.status;
}
