/* Finds the cores that this process may use, and the sockets that they belong to. */

#include "cpus.h"
#include "file.h"

#include <unistd.h>

/* >>sets */

static bool mirt__cpus_has(const mirt__cpus *set, int cpu) { return set->bits[cpu / 64] >> (cpu % 64) & 1; }

static void mirt__cpus_add(mirt__cpus *set, int cpu) { set->bits[cpu / 64] |= (uint64_t)1 << (cpu % 64); }

static int mirt__cpus_count(const mirt__cpus *set) {
    int count = 0;
    for (int i = 0; i < MIRT__COUNT(set->bits); i++) count += __builtin_popcountll(set->bits[i]);
    return count;
}

/* Removes what `other` lacks. Returns the number of cores left. */
static int mirt__cpus_keep(mirt__cpus *set, const mirt__cpus *other) {
    for (int i = 0; i < MIRT__COUNT(set->bits); i++) set->bits[i] &= other->bits[i];
    return mirt__cpus_count(set);
}

static bool mirt__is_digit(char c) { return c >= '0' && c <= '9'; }

MIRT__LIB int mirt__cpus_read(mirt__cpus *out, const char *list) {
    bool good = true;
    memset(out, 0, sizeof *out);
    while (good && mirt__is_digit(*list)) {
        char *end;
        const long first = strtol(list, &end, 10);
        const long last = *end == '-' && mirt__is_digit(end[1]) ? strtol(end + 1, &end, 10) : first;
        good = first <= last && last < MIRT__MAX_CPUS;
        for (long cpu = first; good && cpu <= last; cpu++) mirt__cpus_add(out, (int)cpu);
        list = end + (*end == ',');
    }
    if (!good || (*list && *list != '\n')) memset(out, 0, sizeof *out);
    return mirt__cpus_count(out);
}

/* >>files */

/* What replaces /sys; NULL: nothing. */
static const char *mirt__system_root(void) {
    const char *root = getenv("MIRT_SYSFS");
    return root && *root ? root : NULL;
}

MIRT__LIB void mirt__system_text(const char *path, char *text, size_t size) {
    const char *other = mirt__system_root();
    char moved[1024];
    if (other) {
        snprintf(moved, sizeof moved, "%s%s", other, path + (strncmp(path, "/sys/", 5) == 0 ? 4 : 0));
        path = moved;
    }
    mirt__file_peek(path, text, size);
}

static int mirt__system_cpus(mirt__cpus *out, const char *path) {
    char list[MIRT__AFFINITY];
    mirt__system_text(path, list, sizeof list);
    return mirt__cpus_read(out, list);
}

/* A whole number in a file of a core; -1: none. */
static int mirt__cpu_number(int cpu, const char *file) {
    char path[96], text[24], *end;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, file);
    mirt__system_text(path, text, sizeof text);
    const long number = strtol(text, &end, 10);
    return end == text || number < 0 || number > INT_MAX ? -1 : (int)number;
}

MIRT__LIB void mirt__affinity(char *list, size_t size) {
    static const char name[] = "Cpus_allowed_list:"; /* follows the groups, which may be many */
    char text[2 * MIRT__AFFINITY];
    mirt__system_text("/proc/thread-self/status", text, sizeof text);
    if (!text[0]) mirt__system_text("/proc/self/status", text, sizeof text);
    const char *at = strstr(text, name);
    if (at) at += sizeof name - 1 + strspn(at + sizeof name - 1, " \t");
    snprintf(list, size, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
}

/* >>cores */

static void mirt__cores_usable(mirt__cpus *out) {
    char list[MIRT__AFFINITY];
    mirt__cpus online;
    mirt__affinity(list, sizeof list);
    const int allowed = mirt__cpus_read(out, list);
    if (!mirt__system_cpus(&online, "/sys/devices/system/cpu/online")) return;
    if (!allowed || !mirt__cpus_keep(out, &online)) *out = online;
}

/* How many of `count` cores are as fast as a team needs: its members share the work equally and wait for the slowest,
   so that it is as fast as their number times the capacity of the slowest. */
static int mirt__cores_by_capacity(const mirt__cpus *usable, int count) {
    int16_t capacity[MIRT__MAX_CPUS];
    int cores = 0, most = 0, best = count;
    for (int cpu = 0; cpu < MIRT__MAX_CPUS; cpu++) {
        if (!mirt__cpus_has(usable, cpu)) continue;
        const int own = mirt__cpu_number(cpu, "cpu_capacity");
        if (own < 1 || own > 1024) return count;
        capacity[cores++] = (int16_t)own;
    }
    for (int i = 0; i < cores; i++) {
        int others = 0;
        for (int k = 0; k < cores; k++) others += capacity[k] >= capacity[i];
        if (others * capacity[i] > most) most = others * capacity[i], best = others;
    }
    return best;
}

static int mirt__cores_fast(const mirt__cpus *usable, int count) {
    mirt__cpus fast;
    const int some = mirt__system_cpus(&fast, "/sys/devices/cpu_core/cpus") ? mirt__cpus_keep(&fast, usable) : 0;
    return some ? some : mirt__cores_by_capacity(usable, count);
}

/* 0: there is no MIRT_CORES; -1 with the error set. */
static int mirt__cores_emulated(void) {
    const char *text = getenv("MIRT_CORES"); /* lets tests emulate another machine */
    char *end;
    const long cores = text && *text ? strtol(text, &end, 10) : 0;
    if (!text || !*text) return 0;
    if (*end == 0 && cores > 0 && cores <= MIRT__MAX_CPUS) return (int)cores;
    return mirt__fail(MIRT_E_DEVICE,
                      "the environment variable MIRT_CORES is \"%s\"; it must be a number of cores from 1 to %d", text,
                      MIRT__MAX_CPUS),
           -1;
}

/* Those that are usable, or of which the system says that they are online. */
static int mirt__cores_count(const mirt__cpus *usable) {
    const long limit = MIRT__MAX_CPUS, online = sysconf(_SC_NPROCESSORS_ONLN), most = online > limit ? limit : online;
    const int count = mirt__cpus_count(usable);
    if (count && (count <= most || most < 1 || mirt__system_root())) return count;
    return most < 1 ? 1 : (int)most;
}

MIRT__LIB bool mirt__cores_find(mirt__cores *out) {
    memset(out, 0, sizeof *out);
    const int emulated = mirt__cores_emulated();
    out->count = out->fast = emulated;
    out->limit = emulated;
    if (emulated) return emulated > 0;
    mirt__cores_usable(&out->usable);
    out->count = mirt__cores_count(&out->usable);
    out->fast = mirt__cores_fast(&out->usable, out->count);
    out->limit = out->count;
    const double quota = mirt__core_quota();
    if (quota > 0 && quota < out->limit) {
        out->limit = quota;
        out->count = (int)ceil(quota);
    }
#ifdef MIRRORTRAIN_NO_THREADS
    out->count = 1;
#endif
    if (out->fast > out->count) out->fast = out->count;
    return true;
}

static int mirt__first_cores; /* atomic; 0: not known yet */

MIRT__LIB int mirt__cpu_cores(void) {
    mirt__cores cores;
    const int emulated = mirt__cores_emulated(), first = __atomic_load_n(&mirt__first_cores, __ATOMIC_RELAXED);
    if (emulated || (first && !mirt__system_root())) return emulated < 0 ? 0 : emulated ? emulated : first;
    if (!mirt__cores_find(&cores)) return 0;
    if (!mirt__system_root()) __atomic_store_n(&mirt__first_cores, cores.count, __ATOMIC_RELAXED);
    return cores.count;
}

/* >>sockets */

/* Moves those of `left` that are in `own` to another socket, if there are any. */
static int mirt__sockets_add(mirt__cpus *socket, int count, int most, mirt__cpus *left, mirt__cpus *own) {
    if (count == most || !mirt__cpus_keep(own, left)) return count;
    for (int i = 0; i < MIRT__COUNT(own->bits); i++) left->bits[i] &= ~own->bits[i];
    socket[count] = *own;
    return count + 1;
}

/* By nodes of memory. */
static int mirt__sockets_by_node(mirt__cpus *left, mirt__cpus *socket, int most) {
    mirt__cpus nodes, own;
    char path[96];
    int count = 0;
    if (!mirt__system_cpus(&nodes, "/sys/devices/system/node/online")) mirt__cpus_read(&nodes, "0-63");
    for (int node = 0; node < MIRT__MAX_CPUS; node++) {
        if (!mirt__cpus_has(&nodes, node)) continue;
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        if (mirt__system_cpus(&own, path)) count = mirt__sockets_add(socket, count, most, left, &own);
    }
    return count;
}

static int mirt__sockets_by_package(mirt__cpus *left, mirt__cpus *socket, int most) {
    int package[MIRT__MAX_CPUS], count = 0;
    for (int cpu = 0; cpu < MIRT__MAX_CPUS; cpu++)
        package[cpu] = mirt__cpus_has(left, cpu) ? mirt__cpu_number(cpu, "topology/physical_package_id") : -1;
    for (int first = 0; first < MIRT__MAX_CPUS; first++) {
        mirt__cpus own;
        if (package[first] < 0 || !mirt__cpus_has(left, first)) continue;
        memset(&own, 0, sizeof own);
        for (int cpu = first; cpu < MIRT__MAX_CPUS; cpu++) {
            if (package[cpu] == package[first]) mirt__cpus_add(&own, cpu);
        }
        count = mirt__sockets_add(socket, count, most, left, &own);
    }
    return count;
}

/* The largest first; equal ones stay in their order. */
static void mirt__sockets_sort(mirt__cpus *socket, int count) {
    for (int i = 1; i < count; i++) {
        for (int k = i; k > 0 && mirt__cpus_count(&socket[k]) > mirt__cpus_count(&socket[k - 1]); k--) {
            const mirt__cpus one = socket[k];
            socket[k] = socket[k - 1];
            socket[k - 1] = one;
        }
    }
}

MIRT__LIB int mirt__sockets_find(const mirt__cores *cores, mirt__cpus *socket, int most, int *threads,
                                 const char **why) {
    mirt__cpus left = cores->usable;
    int count = mirt__sockets_by_node(&left, socket, most), best = 1, all;
    if (!count) count = mirt__sockets_by_package(&left, socket, most);
    mirt__sockets_sort(socket, count);
    *threads = cores->fast;
    *why = count > 1 ? "as more would not have more threads" : "as there is one socket";
    all = count ? mirt__cpus_count(&socket[0]) : 0; /* threads that one device would have on one socket */
    for (int k = 2; k <= count; k++) { /* all devices have as many as the smallest socket has cores */
        const int own = mirt__cpus_count(&socket[k - 1]), share = cores->count / k, each = own < share ? own : share;
        if (k * each <= all) continue;
        best = k;
        all = k * each;
        *threads = each;
        *why = "one per socket";
    }
    return best;
}

/* >>pinning */

#if defined(__linux__) && !defined(MIRRORTRAIN_NO_THREADS)
/* not declared by POSIX */
extern int mirt__set_affinity(int thread, size_t bytes, const void *cpus) __asm__("sched_setaffinity");
extern int mirt__get_affinity(int thread, size_t bytes, void *cpus) __asm__("sched_getaffinity");
#else
static int mirt__set_affinity(int thread, size_t bytes, const void *cpus) {
    return (void)thread, (void)bytes, (void)cpus, -1;
}
static int mirt__get_affinity(int thread, size_t bytes, void *cpus) {
    return (void)thread, (void)bytes, (void)cpus, -1;
}
#endif

MIRT__LIB void mirt__pin(const mirt__cpus *cpus) {
    const int number = errno;
    if (mirt__set_affinity(0, sizeof *cpus, cpus) != 0) errno = number;
}

MIRT__LIB void mirt__pin_begin(mirt__pinned *pinned, const mirt__cpus *cpus) {
    const int number = errno;
    pinned->done = false;
    if (!cpus) return;
    memset(&pinned->before, 0, sizeof pinned->before);
    pinned->done = mirt__get_affinity(0, sizeof pinned->before, &pinned->before) == 0;
    if (pinned->done) mirt__pin(cpus);
    errno = number;
}

MIRT__LIB void mirt__pin_end(const mirt__pinned *pinned) {
    if (pinned->done) mirt__pin(&pinned->before);
}
