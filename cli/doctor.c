/* mirrortrain doctor: checks whether this machine is ready for a run. */
#include "posix.h"
#include "scaling.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

enum { MAX_DEVICES = 32, ROUNDS = 9, DISK_BYTES = 8 << 20, WIDTH = 512 /* WIDTH^2 floats are 1 MB */ };

typedef enum verdict { FINE, WARNED, FAILED } verdict;

typedef struct visit {
    const options *o;
    const char *environment; /* of the strategy, as JSON */
    mirt_machine_info machine;
    int count[3];
} visit;

#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
static void say(visit *v, verdict how, const char *what, const char *format, ...) {
    static const char *const names[] = {"ok", "warning", "FAILED"};
    char sentence[4096];
    va_list args;
    v->count[how]++;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    tell("%-8s %-11s %s", names[how], what, sentence);
    fflush(stdout); /* the next check may be slow or hang */
}

/* The value of a member of the environment, without quotes; "" if it is missing. */
static const char *known(const visit *v, const char *name, char out[256]) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(v->environment, key);
    out[0] = 0;
    if (!at) return out;
    at += strlen(key);
    const char *end = *at == '"' ? strchr(at + 1, '"') : at + strcspn(at, ",}");
    if (*at == '"') at++;
    if (end) snprintf(out, 256, "%.*s", (int)(end - at), at);
    return out;
}

static bool has(const visit *v, const char *name) {
    char value[256];
    return strcmp(known(v, name, value), "true") == 0;
}

static void look_at_program(visit *v) {
    char compiler[256], language[256], system[256], libc[256], sanitizer[256];
    known(v, "sanitizer", sanitizer);
    known(v, "compiler", compiler);
    known(v, "language", language);
    if (!has(v, "optimization"))
        say(v, WARNED, "program", "mirrortrain %s by %s, %s, compiled without optimization: use -O2", mirt_version(),
            compiler, language);
    else if (sanitizer[0])
        say(v, WARNED, "program",
            "mirrortrain %s by %s with a sanitizer (%s), which is for tests and several times slower", mirt_version(),
            compiler, sanitizer);
    else say(v, FINE, "program", "mirrortrain %s by %s, %s", mirt_version(), compiler, language);
    known(v, "libc", libc);
    say(v, FINE, "system", "%s%s%s", known(v, "system", system), libc[0] ? ", " : "", libc);
}

static void look_at_processor(visit *v) {
    char name[256], instructions[256], kernels[256];
    known(v, "processor", name);
    known(v, "instructions", instructions);
    known(v, "kernels", kernels);
    const mirt_machine_info *m = &v->machine;
    if (m->core_limit > 0 && m->core_limit < m->cores - 0.5 && getenv("MIRT_CORES"))
        say(v, WARNED, "processor",
            "%s: MIRT_CORES is %d, but the container is limited to %.1f cores: unset it, or raise the limit", name,
            m->cores, m->core_limit);
    else if (m->core_limit > 0 && m->core_limit <= m->cores)
        say(v, FINE, "processor", "%s, %d core%s: the container is limited to the time of %.1f", name, m->cores,
            m->cores == 1 ? "" : "s", m->core_limit);
    else say(v, FINE, "processor", "%s, %d core%s", name, m->cores, m->cores == 1 ? "" : "s");
    const char *best = strstr(instructions, "avx512bf16")  ? "avx512bf16"
                       : strstr(instructions, "avx512dq")  ? "avx512"
                       : strstr(instructions, "fma")       ? "avx2"
                       : strstr(instructions, "neon bf16") ? "neonbf16"
                       : strstr(instructions, "neon")      ? "neon"
                                                           : "plain";
    if (strcmp(kernels, "cuda") == 0) say(v, FINE, "kernels", "cuda");
    else if (!has(v, "vectors"))
        say(v, WARNED, "kernels",
            "%s: compiled with MIRRORTRAIN_NO_SIMD, without the kernels for %s, which are several times faster",
            kernels, best);
    else if (strcmp(kernels, best) != 0 && getenv("MIRT_CPU"))
        say(v, WARNED, "kernels", "%s, though the processor has %s: unset MIRT_CPU", kernels, instructions);
    else if (strcmp(best, "plain") == 0)
        say(v, WARNED, "kernels",
            "plain: the processor has none of the vector instructions that kernels exist for (AVX2, AVX-512, NEON)");
    else say(v, FINE, "kernels", "%s (the processor has %s)", kernels, instructions);
}

/* The functions used of NVIDIA's management library (NVML); its types are plain integers and pointers. */
typedef struct nvml {
    void *library;
    int (*init)(void), (*shutdown)(void);
    int (*driver)(char *text, unsigned length);
    int (*count)(unsigned *out);
    int (*device)(unsigned index, void **out);
    int (*name)(void *device, char *text, unsigned length);
    int (*memory)(void *device, unsigned long long out[3]); /* total, free, used */
} nvml;

static bool find(nvml *n, const char *name, void *function) {
    void *symbol = dlsym(n->library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Returns the number of GPUs that this program can train on; *why is the reason if there are none. */
static int usable_gpus(const char **why) {
    int count = 0, cores;
    mirt_strategy_desc desc;
    mirt_device_info *info = list_devices(&count, &cores);
    free(info);
    *why = "";
    if (!info || cores < count) return info ? count - cores : 0;
    memset(&desc, 0, sizeof desc);
    desc.devices = "gpu";
    desc.silent = true;
    mirt_strategy *none = mirt_strategy_create(&desc);
    if (!none) *why = library_sentence();
    mirt_strategy_destroy(none);
    return 0;
}

static void look_at_gpus(visit *v) {
    const char *why;
    const int usable = usable_gpus(&why);
    nvml n;
    char driver[96] = "?", name[96] = "?";
    unsigned count = 0;
    memset(&n, 0, sizeof n);
    if (!(n.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL))) {
        if (usable) say(v, FINE, "gpu", "%d, without NVIDIA's management library: no details available", usable);
        else say(v, FINE, "gpu", "no NVIDIA driver: training runs on CPU cores");
        return;
    }
    bool whole = find(&n, "nvmlInit_v2", &n.init) && find(&n, "nvmlShutdown", &n.shutdown) &&
                 find(&n, "nvmlSystemGetDriverVersion", &n.driver) && find(&n, "nvmlDeviceGetCount_v2", &n.count) &&
                 find(&n, "nvmlDeviceGetHandleByIndex_v2", &n.device) && find(&n, "nvmlDeviceGetName", &n.name) &&
                 find(&n, "nvmlDeviceGetMemoryInfo", &n.memory);
    int code = whole ? n.init() : -1;
    if (code != 0) {
        say(v, WARNED, "gpu",
            "NVIDIA's driver does not respond (code %d): check that its kernel module is loaded and matches the "
            "library's version",
            code);
    } else {
        n.driver(driver, sizeof driver);
        if (n.count(&count) != 0 || count == 0)
            say(v, WARNED, "gpu", "driver %s, but no GPU: check that the container has access to it", driver);
        for (unsigned i = 0; i < count; i++) {
            void *device = NULL;
            unsigned long long memory[3] = {0, 0, 0};
            if (n.device(i, &device) != 0 || n.name(device, name, sizeof name) != 0 || n.memory(device, memory) != 0)
                say(v, WARNED, "gpu", "gpu:%u does not respond: see nvidia-smi", i);
            else say(v, FINE, "gpu", "gpu:%u %s, %.1f GB, %.1f free, driver %s%s%s", i, name, (double)memory[0] * 1e-9,
                     (double)memory[1] * 1e-9, driver, (int)i < usable ? "" : ": idle, ", (int)i < usable ? "" : why);
        }
        n.shutdown();
    }
    dlclose(n.library);
}

static void look_at_memory(visit *v) {
    const mirt_machine_info *m = &v->machine;
    char limit[64] = "";
    if (m->memory_limit)
        snprintf(limit, sizeof limit, ", limited to %.1f GB by the container", (double)m->memory_limit * 1e-9);
    const bool little = m->memory_available < (uint64_t)512 << 20;
    say(v, little ? WARNED : FINE, "memory", "%.1f GB%s; %.1f GB free%s", (double)m->memory_total * 1e-9, limit,
        (double)m->memory_available * 1e-9, little ? ": close other programs or use small batches" : "");
}

static void look_at_clock(visit *v) {
    enum { READS = 100000 };
    double last = seconds_now(), begin = last, end = last;
    int backwards = 0;
    for (int i = 0; i < READS; i++) {
        end = seconds_now();
        backwards += end < last;
        last = end;
    }
    const double each = (end - begin) / READS;
    const time_t today = time(NULL);
    if (backwards)
        say(v, FAILED, "clock",
            "it went backwards %d times: step times will be wrong; choose another system clock source", backwards);
    else if (today < 1735689600)
        say(v, WARNED, "clock", "its date is before 2025: logs and files will have wrong dates; set the clock");
    else if (each > 1e-6)
        say(v, WARNED, "clock",
            "reading it takes %.1f us: the system's clock source is slow, which makes traces and profiles slow",
            each * 1e6);
    else say(v, FINE, "clock", "monotonic; reading it takes %.0f ns", each * 1e9);
}

/* The operand, or the directory for temporary files. */
static const char *run_directory(const options *o) {
    const char *temporary = getenv("TMPDIR");
    return o->operands ? o->operand[0] : temporary && *temporary ? temporary : "/tmp";
}

static void look_at_disk(visit *v) {
    char path[4096];
    struct statvfs info;
    probe p = {ENAMETOOLONG, 0, 0};
    const char *directory = run_directory(v->o), *failed = "cannot create a file there";
    if (snprintf(path, sizeof path, "%s/.mirrortrain-doctor", directory) < (int)sizeof path)
        failed = try_to_write(path, DISK_BYTES, &p);
    if (failed) {
        say(v, FAILED, "disk", "%s: %s: %s; checkpoints need a writable directory: mirrortrain doctor DIR", directory,
            failed, strerror(p.code));
        return;
    }
    const double space = statvfs(directory, &info) == 0 ? (double)info.f_bavail * (double)info.f_frsize : 0;
    const double seconds = p.write_seconds + p.sync_seconds,
                 rate = DISK_BYTES / (seconds > 1e-9 ? seconds : 1e-9) * 1e-6;
    const char *advice =
        space > 0 && space < 1e9 ? ": little space for checkpoints; free some, or use another directory"
        : p.sync_seconds > 1     ? ": slow; each checkpoint takes that long, so write fewer, or use another directory"
                                 : "";
    say(v, *advice ? WARNED : FINE, "disk",
        "%s: 8 MB written in %.1f ms and synced in %.1f (%.0f MB/s), %.1f GB free%s", directory, p.write_seconds * 1e3,
        p.sync_seconds * 1e3, rate, space * 1e-9, advice);
}

/* A strategy of `devices` devices of one thread, with a model whose gradients are 1 MB. NULL after complaining. */
typedef struct bench {
    mirt_strategy *strategy;
    mirt_model *model;
    float *x, *y;
    mirt_array inputs, labels;
} bench;

static void end_bench(bench *b) {
    mirt_strategy_destroy(b->strategy);
    free(b->x);
    free(b->y);
}

static bool begin_bench(bench *b, int devices, int replicas, int64_t rows) {
    char number[16];
    mirt_strategy_desc desc;
    mirt_dense_desc dense;
    mirt_compile_desc compile;
    memset(b, 0, sizeof *b);
    memset(&desc, 0, sizeof desc);
    memset(&dense, 0, sizeof dense);
    memset(&compile, 0, sizeof compile);
    snprintf(number, sizeof number, "%d", devices);
    desc.devices = number;
    desc.replicas = replicas;
    desc.threads = 1;
    desc.silent = true;
    dense.units = WIDTH;
    dense.no_bias = true;
    compile.optimizer = mirt_sgd(1e-3f, 0, false);
    compile.loss = MIRT_MEAN_SQUARED_ERROR;
    const size_t count = (size_t)rows * WIDTH;
    b->x = (float *)calloc(count, sizeof *b->x);
    b->y = (float *)calloc(count, sizeof *b->y);
    for (size_t i = 0; b->x && i < count; i++) b->x[i] = (float)((i * 2654435761u) % 2001) * 1e-3f - 1;
    b->inputs = mirt_make_array(b->x, MIRT_FLOAT32, MIRT_SHAPE(rows, WIDTH));
    b->labels = mirt_make_array(b->y, MIRT_FLOAT32, MIRT_SHAPE(rows, WIDTH));
    b->strategy = b->x && b->y ? mirt_strategy_create(&desc) : NULL;
    b->model = b->strategy ? mirt_model_create(b->strategy, "doctor") : NULL;
    if (b->model) mirt_model_output(b->model, mirt_dense(mirt_input(b->model, MIRT_SHAPE(WIDTH)), &dense));
    return b->model && mirt_compile(b->model, &compile) == MIRT_OK;
}

/* The median time of an all-reduce, or a negative number after a failure. `gradient` receives the sum on the last
   device. */
static double time_all_reduce(bench *b, float *gradient) {
    double seconds[ROUNDS], loss;
    for (int i = 0; i < ROUNDS; i++) {
        if (mirt_scatter(b->model, b->inputs, b->labels) != MIRT_OK || mirt_grad(b->model, &loss) != MIRT_OK) return -1;
        const double begin = seconds_now();
        if (mirt_all_reduce(b->model) != MIRT_OK) return -1;
        seconds[i] = seconds_now() - begin;
    }
    qsort(seconds, ROUNDS, sizeof *seconds, by_size);
    const int last = mirt_num_devices(b->strategy) - 1;
    return mirt_get_gradient(b->model, "dense/kernel", last, gradient, (size_t)WIDTH * WIDTH) == MIRT_OK
               ? seconds[ROUNDS / 2]
               : -1;
}

static void look_at_all_reduce(visit *v) {
    const int devices = v->machine.cores < MAX_DEVICES ? v->machine.cores : MAX_DEVICES;
    const size_t bytes = (size_t)WIDTH * WIDTH * sizeof(float);
    bench many, one;
    float *sum = (float *)malloc(bytes), *expected = (float *)malloc(bytes);
    bool ready = sum && expected;
    ready = begin_bench(&many, devices, devices, devices) && ready;
    ready = begin_bench(&one, 1, devices, devices) && ready;
    const double seconds = ready ? time_all_reduce(&many, sum) : -1,
                 alone = ready ? time_all_reduce(&one, expected) : -1;
    if (seconds < 0 || alone < 0) say(v, FAILED, "all-reduce", "%s", library_sentence());
    else if (memcmp(sum, expected, bytes) != 0)
        say(v, FAILED, "all-reduce",
            "1 MB summed over %d devices differs from the sum on one: this machine computes wrongly, perhaps because "
            "of bad memory",
            devices);
    else if (devices == 1) say(v, FINE, "all-reduce", "one device: nothing to reduce");
    else
        say(v, FINE, "all-reduce", "1 MB summed over %d devices in %.3f ms (%.1f GB/s), bit-identical to one device",
            devices, seconds * 1e3, (double)bytes / seconds * 1e-9);
    end_bench(&many);
    end_bench(&one);
    free(sum);
    free(expected);
}

/* The shortest time of a few steps; negative: a step failed. */
static double time_step(bench *b) {
    double least = -1;
    for (int i = 0; i < ROUNDS; i++) {
        const double begin = seconds_now();
        if (mirt_train_step(b->model, b->inputs, b->labels, NULL) != MIRT_OK) return -1;
        const double seconds = seconds_now() - begin;
        if (i && (least < 0 || seconds < least)) least = seconds;
    }
    return least;
}

static void look_at_threads(visit *v) {
    bench one, two;
    const int64_t rows = 512;
    if (v->machine.cores < 2) {
        say(v, FINE, "threads", "one core: one device");
        return;
    }
    bool ready = begin_bench(&one, 1, 2, rows);
    ready = begin_bench(&two, 2, 2, rows) && ready; /* begin both, since both are ended below */
    const double alone = ready ? time_step(&one) : -1, together = ready ? time_step(&two) : -1,
                 speed = together > 0 ? alone / together : 0;
    if (alone < 0 || together < 0) say(v, FAILED, "threads", "%s", library_sentence());
    else if (speed < 1.4)
        say(v, WARNED, "threads",
            "two devices are only %.2f times as fast as one: other programs use the cores, or the machine has fewer "
            "cores than it reports",
            speed);
    else say(v, FINE, "threads", "two devices are %.2f times as fast as one", speed);
    end_bench(&one);
    end_bench(&two);
}

/* What waiting costs, as measured when the strategies of the checks before were created. */
static void look_at_waiting(visit *v) {
    mirt_machine_info m;
    if (mirt_machine(&m) != MIRT_OK || m.wake_seconds <= 0)
        say(v, FINE, "waiting", "threads sleep at once, without spinning: there are more of them than cores");
    else
        say(v, FINE, "waiting", "waking threads takes %.1f us: those that wait spin for %.1f us before they sleep",
            m.wake_seconds * 1e6, m.spin_seconds * 1e6);
}

/* Returns the threads that training in several processes gives to this one; 0 after complaining. */
static int threads_of_process(void) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kind = MIRT_MULTI_WORKER;
    desc.devices = "cpu";
    desc.silent = true;
    mirt_strategy *strategy = mirt_strategy_create(&desc);
    const int threads = mirt_num_threads(strategy) * mirt_num_devices(strategy);
    if (!strategy) complain_of_library();
    mirt_strategy_destroy(strategy);
    return threads;
}

/* The shortest time of a step that begins and ends while all processes measure: a process that continues alone may be
   faster, where two cores are threads of one. Negative: a step failed. */
static double time_together(bench *b) {
    const double end = seconds_now() + 0.3;
    double least = -1;
    for (double begin = seconds_now(), now = begin; now < end; begin = now) {
        if (mirt_train_step(b->model, b->inputs, b->labels, NULL) != MIRT_OK) return -1;
        now = seconds_now();
        if (least < 0 || (now < end && now - begin < least)) least = now - begin;
    }
    return least;
}

/* Returns the speed of this process: steps per second of one core, measured in all processes at the same time, times
   its threads; 0 if it cannot train, 1 if only another cannot. ready: this process can train. */
static double own_speed(bool ready) {
    bench one;
    if (meet_processes(ready ? EXIT_OK : EXIT_FAILED) != EXIT_OK) return ready;
    const int threads = threads_of_process();
    const bool able = begin_bench(&one, 1, 1, 256) && threads && time_step(&one) > 0,
               all_able = meet_processes(able ? EXIT_OK : EXIT_FAILED) == EXIT_OK;
    const double seconds = all_able ? time_together(&one) : -1;
    end_bench(&one);
    if (!all_able) return able;
    return seconds > 0 ? threads / seconds : 0;
}

static void judge_speeds(visit *v, const double *speed, int all) {
    const size_t size = 24 * (size_t)all; /* a number of any size and a comma for each */
    char *shares = (char *)malloc(size);
    int unknown = -1;
    for (int i = all - 1; i >= 0; i--) unknown = speed[i] > 0 ? unknown : i;
    if (unknown >= 0) say(v, FAILED, "processes", "process %d could not be measured", unknown);
    else if (shares && propose_shares(speed, all, shares, size))
        say(v, WARNED, "processes", "%d, of different speeds: add --shares %s", all, shares);
    else say(v, FINE, "processes", "%d of nearly equal speed: equal shares", all);
    free(shares);
}

/* ready: this process can train. Returns the number of processes; 0 if they cannot be joined. */
static int look_at_processes(visit *v, bool ready) {
    const int all = join_processes();
    double *speed = (double *)calloc((size_t)all + 1, sizeof *speed);
    const double own = all ? own_speed(ready && speed) : 0;
    if (!speed || !all || !gather_numbers(own, speed))
        say(v, FAILED, "processes", "processes that were started together do not find each other");
    else if (is_first()) judge_speeds(v, speed, all);
    free(speed);
    return all;
}

static void look_at_images(visit *v) {
    if (has(v, "turbojpeg"))
        say(v, FINE, "images", "JPEG by TurboJPEG%s",
            has(v, "stb_image") ? "; PNG, BMP and GIF by stb_image"
                                : "; for other formats install libstb-dev and compile again");
    else if (has(v, "stb_image")) say(v, FINE, "images", "JPEG, PNG, BMP and GIF by stb_image");
    else say(v, WARNED, "images", "compiled without an image decoder; for photographs install stb_image.h "
             "(Debian, Ubuntu: apt-get install libstb-dev) and run make again");
}

/* Environment variables that change what runs and may be set by mistake. */
static void look_at_variables(visit *v) {
    char list[512] = "";
    const char *at = strstr(v->environment, "\"variables\": {"), *end = at ? strchr(at, '}') : NULL;
    if (at && end) snprintf(list, sizeof list, "%.*s", (int)(end - at - 14), at + 14);
    if (list[0]) say(v, WARNED, "variables", "these change what runs: %s; unset those that are set by mistake", list);
    else say(v, FINE, "variables", "none is set that changes what runs");
}

int run_doctor(const options *o) {
    visit v;
    mirt_strategy_desc desc;
    memset(&v, 0, sizeof v);
    memset(&desc, 0, sizeof desc);
    v.o = o;
    desc.silent = true;
    if (o->operands > 1) {
        complain("doctor checks one directory, not %d", o->operands);
        return EXIT_USAGE;
    }
    mirt_strategy *strategy = mirt_machine(&v.machine) == MIRT_OK ? mirt_strategy_create(&desc) : NULL;
    if (!strategy && !is_first()) complain_of_library();
    const int processes = works_together() ? look_at_processes(&v, strategy != NULL) : 0;
    if (!is_first()) {
        mirt_strategy_destroy(strategy);
        return processes ? meet_processes(v.count[FAILED] ? EXIT_FAILED : EXIT_OK) : EXIT_FAILED;
    }
    if (!strategy || !(v.environment = mirt_environment(strategy))) {
        say(&v, FAILED, "devices", "%s", library_sentence());
    } else {
        look_at_program(&v);
        look_at_processor(&v);
        look_at_gpus(&v);
        look_at_memory(&v);
        look_at_disk(&v);
        look_at_clock(&v);
        look_at_threads(&v);
        look_at_waiting(&v);
        look_at_all_reduce(&v);
        look_at_images(&v);
        look_at_variables(&v);
    }
    mirt_strategy_destroy(strategy);
    printf("doctor: %d ok, %d warning%s, %d failed\n", v.count[FINE], v.count[WARNED], v.count[WARNED] == 1 ? "" : "s",
           v.count[FAILED]);
    const int status = v.count[FAILED] ? EXIT_FAILED : EXIT_OK;
    return processes ? meet_processes(status) : status;
}
