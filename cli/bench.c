/* mirrortrain bench: speed, memory and time per operation of a network. */
#include "posix.h"
#include "parallelism.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { WARM_UP = 2, LEAST_STEPS = 5, DEFAULT_SECONDS = 3, MAX_TIMES = 100000, STEPS_TOGETHER = 20 };

/* Peak memory of this process in bytes. getrusage is the second choice: it also counts memory used before exec. */
static double peak_memory(void) {
    char line[256];
    double kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmHWM: %lf kB", &kilobytes) == 1) break;
    }
    if (file) fclose(file);
    if (kilobytes > 0) return kilobytes * 1024;
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
    return (double)usage.ru_maxrss;
#else
    return (double)usage.ru_maxrss * 1024;
#endif
}

static uint32_t random_word(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static int64_t elements(mirt_shape shape) {
    int64_t count = 1;
    for (int i = 1; i < shape.rank; i++) count *= shape.dim[i];
    return count;
}

/* Total memory of this machine in bytes; 0: unknown. */
static double machine_memory(void) {
#ifdef _SC_PHYS_PAGES
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (pages > 0 && size > 0) return (double)pages * (double)size;
#endif
    return 0;
}

int complain_of_step(const job *j) {
    if (mirt_last_status() != MIRT_E_NOMEM) return complain_of_library();
    complain("out of memory for a batch of %lld images", (long long)j->batch);
    return EXIT_FAILED;
}

/* Checks, before any time is spent, whether such a step can fit into memory; false after complaining. */
static bool fits(const job *j) {
    mirt_memory plan;
    const double most = machine_memory();
    if (mirt_plan_memory(j->model, j->batch, &plan) != MIRT_OK) {
        complain_of_step(j);
        return false;
    }
    const double pixels = (double)j->batch * (double)elements(mirt_tensor_shape(mirt_input_of(j->model, 0)));
    const double needed = (double)plan.total + pixels;
    if (most == 0 || needed <= most) return true;
    complain("out of memory for a batch of %lld images: a step takes %.1f GB, and this machine has %.1f GB",
             (long long)j->batch, needed * 1e-9, most * 1e-9);
    return false;
}

/* Pixels from 0 to 255 and class numbers, random but the same in every run. */
static bool draw_data(job *j) {
    mirt_tensor *in = mirt_input_of(j->model, 0), *out = mirt_output_of(j->model, 0);
    if (!in || !out) {
        complain_of_library();
        return false;
    }
    mirt_shape x = mirt_tensor_shape(in), y = mirt_tensor_shape(out);
    size_t pixels = (size_t)j->batch * (size_t)elements(x);
    j->out_size = (size_t)j->batch * (size_t)elements(y);
    j->classes = y.dim[y.rank - 1];
    j->pixels = (uint8_t *)malloc(pixels);
    j->labels = (int32_t *)malloc((size_t)j->batch * sizeof *j->labels);
    j->out = (float *)malloc(j->out_size * sizeof *j->out);
    if (!j->pixels || !j->labels || !j->out) {
        complain("out of memory for a batch of %lld images", (long long)j->batch);
        return false;
    }
    uint64_t state = 1;
    for (size_t i = 0; i < pixels; i++) j->pixels[i] = (uint8_t)(random_word(&state) >> 24);
    for (int64_t i = 0; i < j->batch; i++) j->labels[i] = (int32_t)(random_word(&state) % (uint64_t)j->classes);
    x.dim[0] = j->batch;
    j->data.x[0] = mirt_make_array(j->pixels, MIRT_UINT8, x);
    if (!j->o->forward) j->data.y[0] = mirt_make_array(j->labels, MIRT_INT32, MIRT_SHAPE(j->batch));
    return true;
}

/* The batch stays on the devices but with --feed. */
mirt_status run_step(job *j) {
    const mirt_status status = j->o->forward ? mirt_predict_on_batch(j->model, &j->data, &j->out, &j->out_size)
                                             : mirt_train_on_batch(j->model, &j->data, NULL);
    j->data.same = !j->o->feed;
    return status;
}

/* Runs steps until there are enough and sorts their times into j->times. Returns their number; 0 if one failed. */
static int measure(job *j) {
    const options *o = j->o;
    const double most = o->seconds ? (double)o->seconds : DEFAULT_SECONDS;
    const double begin = seconds_now();
    /* Processes that work together have clocks of their own, and have to do as many steps. */
    const int64_t steps = o->steps || !works_together() ? o->steps : STEPS_TOGETHER;
    int count = 0;
    while (count < MAX_TIMES) {
        double start = seconds_now();
        if (steps ? count >= steps : count >= LEAST_STEPS && start - begin >= most) break;
        if (run_step(j) != MIRT_OK) return 0;
        j->times[count++] = seconds_now() - start;
    }
    qsort(j->times, (size_t)count, sizeof *j->times, by_size);
    return count;
}

static int report(job *j) {
    const options *o = j->o;
    mirt_memory plan;
    double macs;
    for (int i = 0; i < WARM_UP; i++) {
        if (run_step(j) != MIRT_OK) return complain_of_step(j);
    }
    int count = measure(j);
    if (!count) return complain_of_step(j);
    char processes[32] = "";
    if (works_together()) snprintf(processes, sizeof processes, " processes=%d", mirt_num_workers(j->strategy));
    const double median = (j->times[(count - 1) / 2] + j->times[count / 2]) / 2, peak = peak_memory();
    if (mirt_plan_memory(j->model, j->batch, &plan) != MIRT_OK || mirt_plan_macs(j->model, j->batch, &macs) != MIRT_OK)
        return complain_of_library();
    tell("bench: model=%s batch=%lld dtype=%s images_per_second=%.2f ms_per_step=%.3f peak_mb=%.1f gflops=%.1f "
         "planned_mb=%.1f "
         "mode=%s size=%lld devices=%d threads=%d steps=%d%s%s%s",
         o->model, (long long)j->batch, dtype_name(o), (double)j->batch / median,
         median * 1e3, peak * 1e-6, 2 * macs / median * 1e-9, (double)plan.total * 1e-6,
         o->forward ? "forward" : "train", (long long)mirt_tensor_shape(mirt_input_of(j->model, 0)).dim[1],
         mirt_num_devices(j->strategy), mirt_num_threads(j->strategy), count, processes,
         o->winograd && !rounds_products(o) ? " winograd=on" : "", o->feed ? " feed=on" : "");
    if (!o->profile) return EXIT_OK;
    if (mirt_profile_begin(j->model) != MIRT_OK || !measure(j)) return complain_of_library();
    const char *text = mirt_profile_text(j->model);
    if (!text) return complain_of_library();
    fputs(text, stdout);
    return EXIT_OK;
}

/* A trained model must output class scores. */
static bool gives_scores(const job *j) {
    const mirt_tensor *out = mirt_output_of(j->model, 0);
    if (j->o->forward || (out && mirt_tensor_shape(out).rank == 2)) return true;
    if (!out) complain_of_library();
    else complain("bench trains classifiers; %s does not output class scores, so use --forward", j->o->model);
    return false;
}

/* The model, compiled, its data and room for the times. False after complaining; *status changes if the model cannot be
   built. */
static bool prepare(job *j, int *status) {
    mirt_compile_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.loss = j->o->forward ? MIRT_LOSS_NONE : MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    desc.from_logits = true;
    j->times = (double *)malloc(MAX_TIMES * sizeof *j->times);
    j->model = build_model(j->strategy, j->o, status);
    if (!j->times) complain("out of memory");
    if (!j->times || !j->model || !gives_scores(j)) return false;
    if (j->o->forward) mirt_set_trainable(j->model, NULL, false);
    if (mirt_compile(j->model, &desc) == MIRT_OK) return fits(j) && draw_data(j);
    complain_of_library();
    return false;
}

int begin_job(job *j, const options *o, int64_t batch) {
    int status = EXIT_FAILED;
    memset(j, 0, sizeof *j);
    j->o = o;
    j->batch = batch;
    j->strategy = open_strategy(o, true, &status);
    return all_good(j->strategy, j->strategy && prepare(j, &status)) ? EXIT_OK : status;
}

void end_job(job *j) {
    mirt_strategy_destroy(j->strategy);
    free(j->pixels);
    free(j->labels);
    free(j->out);
    free(j->times);
}

static int bench_batch(const options *o, int64_t batch) {
    job j;
    if (o->parallelism) return run_parallelism(o, batch);
    int status = begin_job(&j, o, batch);
    if (status == EXIT_OK) status = report(&j);
    end_job(&j);
    return status;
}

/* In its own process: a process's peak memory never falls. */
static int bench_in_child(const options *o, int64_t batch) {
    char rows[32];
    const char *const more[] = {"--batch", rows};
    snprintf(rows, sizeof rows, "%lld", (long long)batch);
    if (!start_again(o, more, 2)) return EXIT_FAILED;
    const int status = wait_for_child();
    if (status >= 0) return status;
    complain("the process for a batch of %lld was ended by signal %d", (long long)batch, -status);
    return EXIT_FAILED;
}

int run_bench(const options *o) {
    const batches *list = &o->batch_list;
    int status = EXIT_OK;
    if (!parallelism_fits(o)) return EXIT_USAGE;
    if (list->count == 1) return bench_batch(o, list->rows[0]);
    if (works_together() && !has_one_batch(o, "bench")) return EXIT_USAGE;
    for (int i = 0; i < list->count && status != EXIT_USAGE; i++) {
        int one = bench_in_child(o, list->rows[i]);
        if (one != EXIT_OK) status = one;
    }
    return status;
}
