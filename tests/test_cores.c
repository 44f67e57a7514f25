/* Finds cores and sockets in simulated trees of /sys, and pins devices to sockets. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <sys/stat.h>
#include <unistd.h>

/* Sanitizers use memory of their own for each block. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static long live_blocks, fails_in = -1; /* atomic: blocks in use, and allocations and threads until one fails */

static bool fails(void) { return __atomic_fetch_sub(&fails_in, 1, __ATOMIC_SEQ_CST) == 0; }

void *hook_malloc(size_t size) {
    void *block = fails() ? NULL : malloc(size);
    if (block) __atomic_add_fetch(&live_blocks, 1, __ATOMIC_SEQ_CST);
    return block;
}

void hook_free(void *block) {
    if (block) __atomic_sub_fetch(&live_blocks, 1, __ATOMIC_SEQ_CST);
    free(block);
}

int hook_thread(pthread_t *thread, void *(*fn)(void *), void *arg) {
    return fails() ? 11 /* EAGAIN */ : pthread_create(thread, NULL, fn, arg);
}

static char root[300]; /* the tree under test, which MIRT_SYSFS names */

static void fresh(const char *name) {
    snprintf(root, sizeof root, "%s/%s", work_directory(), name);
    setenv("MIRT_SYSFS", root, 1);
}

/* Where a file lies in the tree. */
static const char *in_tree(const char *path) {
    static char full[700];
    snprintf(full, sizeof full, "%s%s", root, path);
    mirt__make_directory_of(full);
    return full;
}

static void lay(const char *path, const char *text) {
    FILE *file = fopen(in_tree(path), "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0) printf("Bail out! %s cannot be written\n", path);
}

static void lay_of_cpu(int cpu, const char *file, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "/devices/system/cpu/cpu%d/%s", cpu, file);
    lay(path, text);
}

static void online(const char *list) { lay("/devices/system/cpu/online", list); }

static void allowed(const char *list) {
    char text[400];
    snprintf(text, sizeof text, "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\nMems_allowed:\t1\n", list);
    lay("/proc/self/status", text);
}

static void nodes(const char *first, const char *second) {
    lay("/devices/system/node/online", second ? "0-1\n" : "0\n");
    lay("/devices/system/node/node0/cpulist", first);
    if (second) lay("/devices/system/node/node1/cpulist", second);
}

/* What is found: cores, those that are fast, and by "auto" devices and threads of each. */
static void finds(const char *what, int count, int fast, int devices, int threads) {
    static mirt__cpus socket[MIRT__MAX_DEVICES];
    mirt__cores c;
    int each = 0, sockets = 0, cores = mirt__cpu_cores();
    const char *why = "?";
    if (mirt__cores_find(&c)) sockets = mirt__sockets_find(&c, socket, MIRT__MAX_DEVICES, &each, &why);
    ok(c.count == count && cores == count && c.fast == fast && sockets == devices && each == threads,
       "%s: %d cores, %d fast; %d device%s of %d threads, %s", what, c.count, c.fast, sockets, sockets == 1 ? "" : "s",
       each, why);
}

static double limit_of(void) {
    mirt__cores c;
    return mirt__cores_find(&c) ? c.limit : -1;
}

/* >>trees */

static void check_sockets(void) {
    fresh("one");
    online("0-7\n");
    nodes("0-7\n", NULL);
    finds("one socket", 8, 8, 1, 8);
    ok(limit_of() == 8, "whose time is all there");
    fresh("two");
    online("0-127\n");
    nodes("0-31,64-95\n", "32-63,96-127\n");
    finds("two sockets of 32 cores with SMT", 128, 128, 2, 64);
    allowed("0-31,64-95");
    finds("bound to one of them", 64, 64, 1, 64);
    allowed("0-7,32-39");
    finds("bound to a part of each", 16, 16, 2, 8);
    allowed("0-29,32,33");
    finds("bound to nearly nothing of the second", 32, 32, 1, 32);
    allowed("30-63");
    finds("bound to nearly nothing of the first", 34, 34, 1, 34);
    allowed("0-31,32-62");
    finds("bound to unequal parts", 63, 63, 2, 31);
    fresh("unlisted");
    online("0-3\n");
    nodes("0-1\n", "2-3\n");
    unlink(in_tree("/devices/system/node/online"));
    finds("nodes that no list names", 4, 4, 2, 2);
    fresh("packages");
    online("0-5\n");
    for (int cpu = 0; cpu < 6; cpu++) lay_of_cpu(cpu, "topology/physical_package_id", cpu % 2 ? "7\n" : "0\n");
    finds("a kernel without nodes", 6, 6, 2, 3);
    lay_of_cpu(5, "topology/physical_package_id", "-1\n");
    finds("a core without a package", 6, 6, 2, 2);
    fresh("memory");
    online("0-3\n");
    nodes("0-3\n", "\n");
    finds("a node of memory without cores", 4, 4, 1, 4);
    fresh("many");
    online("0-4095\n");
    lay("/devices/system/node/online", "0-99\n");
    for (int i = 0; i < 100; i++) {
        char path[96], list[32];
        snprintf(path, sizeof path, "/devices/system/node/node%d/cpulist", i);
        snprintf(list, sizeof list, "%d-%d\n", 40 * i, 40 * i + 39);
        lay(path, list);
    }
    finds("more sockets than devices", 4096, 4096, MIRT__MAX_DEVICES, 40);
}

static void check_offline(void) {
    fresh("offline");
    online("0-3,8\n");
    allowed("0-15");
    finds("cores that are offline", 5, 5, 1, 5);
    allowed("9-15");
    finds("a mask of cores that are all offline: what is online", 5, 5, 1, 5);
    fresh("status");
    allowed("0-2,5");
    finds("a mask alone", 4, 4, 1, 4);
}

static void check_quotas(void) {
    fresh("container");
    online("0-63\n");
    nodes("0-31\n", "32-63\n");
    lay("/proc/self/cgroup", "0::/\n");
    lay("/fs/cgroup/cpu.max", "150000 100000\n");
    finds("the time of 1.5 cores on 64", 2, 2, 1, 2);
    ok(limit_of() == 1.5, "which two threads exceed: %g", limit_of());
    lay("/fs/cgroup/cpu.max", "4800000 100000\n");
    finds("the time of 48 cores on two sockets of 32", 48, 48, 2, 24);
    lay("/fs/cgroup/cpu.max", "max 100000\n");
    finds("no limit", 64, 64, 2, 32);
    lay("/fs/cgroup/cpu.max", "9600000 100000\n");
    finds("the time of 96 cores", 64, 64, 2, 32);
    ok(limit_of() == 64, "which 64 cores do not have: %g", limit_of());
    lay("/fs/cgroup/cpu.max", "1000 100000\n");
    finds("the time of a hundredth", 1, 1, 1, 1);
    fresh("nested");
    online("0-63\n");
    lay("/proc/self/cgroup", "12:name=systemd:/x\n0::/outer/inner\n");
    lay("/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
    lay("/fs/cgroup/outer/cpu.max", "700000 200000\n");
    finds("a group around ours", 4, 4, 1, 4);
    lay("/fs/cgroup/outer/inner/cpu.max", "200000 100000\n");
    finds("the narrowest group", 2, 2, 1, 2);
    static const char *const lines[] = {"4:cpu:/outer/inner\n", "4:cpu,cpuacct:/outer/inner\n",
                                        "4:cpuacct,cpu:/outer/inner\n", "4:a,cpu,b:/outer/inner\n"};
    for (int i = 0; i < MIRT__COUNT(lines); i++) {
        char name[16], text[96];
        snprintf(name, sizeof name, "old%d", i);
        fresh(name);
        online("0-63\n");
        snprintf(text, sizeof text, "9:cpuset:/y\n%s0::/\n", lines[i]);
        lay("/proc/self/cgroup", text);
        lay("/fs/cgroup/cpu/outer/cpu.cfs_quota_us", "250000\n");
        lay("/fs/cgroup/cpu/outer/cpu.cfs_period_us", "100000\n");
        lay("/fs/cgroup/cpu/outer/inner/cpu.cfs_quota_us", "-1\n");
        lay("/fs/cgroup/cpu/outer/inner/cpu.cfs_period_us", "100000\n");
        finds("groups of the first version", 3, 3, 1, 3);
    }
    fresh("mounted"); /* as containers see it: the path is the host's */
    online("0-63\n");
    lay("/proc/self/cgroup", "4:cpu,cpuacct:/docker/1234\n");
    lay("/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
    lay("/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    finds("a path that is not there, and no link", 1, 1, 1, 1);
    static const char *const odd[] = {"nan 100000", "inf 100000", "-5 100000", "1e999 1", "100000 0", "100000 -1",
                                      "100000 nan", "100000", "", "x", "0 0", "1e30 1"};
    fresh("odd quotas");
    online("0-63\n");
    for (int i = 0; i < MIRT__COUNT(odd); i++) {
        lay("/fs/cgroup/cpu.max", odd[i]);
        finds(odd[i], 64, 64, 1, 64);
    }
}

static void check_hybrid(void) {
    fresh("hybrid");
    online("0-31\n");
    nodes("0-31\n", NULL);
    lay("/devices/cpu_core/cpus", "0-15\n");
    lay("/devices/cpu_atom/cpus", "16-31\n");
    finds("8 performance cores with SMT and 16 efficiency cores", 32, 16, 1, 16);
    allowed("12-19");
    finds("bound to both kinds", 8, 4, 1, 4);
    allowed("16-23");
    finds("bound to efficiency cores", 8, 8, 1, 8);
    fresh("capacities");
    online("0-7\n");
    for (int cpu = 0; cpu < 8; cpu++) lay_of_cpu(cpu, "cpu_capacity", cpu < 4 ? "340\n" : "1024\n");
    finds("4 large and 4 small cores", 8, 4, 1, 4);
    lay_of_cpu(7, "cpu_capacity", "1024\n");
    for (int cpu = 4; cpu < 7; cpu++) lay_of_cpu(cpu, "cpu_capacity", "870\n");
    finds("1, 3 and 4 cores of three sizes", 8, 4, 1, 4);
    for (int cpu = 0; cpu < 4; cpu++) lay_of_cpu(cpu, "cpu_capacity", "700\n");
    finds("small ones that are worth it", 8, 8, 1, 8);
    for (int cpu = 0; cpu < 4; cpu++) lay_of_cpu(cpu, "cpu_capacity", "1\n");
    lay_of_cpu(0, "cpu_capacity", "99999999999999999999\n");
    finds("a capacity that cannot be", 8, 8, 1, 8);
    lay_of_cpu(0, "cpu_capacity", "1025\n");
    finds("a capacity above Linux's largest", 8, 8, 1, 8);
    unlink(in_tree("/devices/system/cpu/cpu0/cpu_capacity"));
    finds("a capacity that is missing", 8, 8, 1, 8);
}

static void check_hostile(void) {
    unsetenv("MIRT_SYSFS");
    const long real = sysconf(_SC_NPROCESSORS_ONLN);
    const int known = (int)real;
    static const char *const lists[] = {"0-4294967295\n", "-1\n", "5-2\n", "0,1,x\n", "", "\n", "0-\n,", "9999\n",
                                        "0-99999999999999999999999999\n", "0--3", "cpu0"};
    fresh("empty");
    mirt__make_directory_of(in_tree("/x"));
    finds("an empty tree: what the system says", known, known, 1, known);
    fresh("lists");
    for (int i = 0; i < MIRT__COUNT(lists); i++) {
        online(lists[i]);
        allowed(lists[i]);
        nodes(lists[i], lists[i]);
        finds("no list of cores", known, known, 1, known);
    }
    online("0-3\n");
    for (int i = 0; i < MIRT__COUNT(lists); i++) {
        allowed(lists[i]);
        nodes("0-3\n", lists[i]);
        lay("/devices/cpu_core/cpus", lists[i]);
        lay_of_cpu(0, "topology/physical_package_id", lists[i]);
        finds("other lists that are none", 4, 4, 1, 4);
    }
    nodes("0-3\n", "0-3\n");
    finds("nodes that share cores", 4, 4, 1, 4);
    nodes("0-3\n", "2-900\n");
    finds("nodes that overlap", 4, 4, 1, 4);
    enum { BIG = 300000 };
    char *text = (char *)malloc(BIG);
    for (int i = 0; text && i < BIG - 1; i++) text[i] = "0,1-"[i % 4];
    if (text) text[BIG - 1] = 0;
    if (text) online(text), allowed("0-3"), lay("/proc/self/cgroup", text);
    finds("huge files", 4, 4, 1, 4);
    free(text);
    fresh("loops");
    online("0-1\n");
    ok(symlink("node0", in_tree("/devices/system/node/node0")) == 0 &&
           symlink(".", in_tree("/fs/cgroup/cpu")) == 0 && mkfifo(in_tree("/fs/cgroup/cpu.max"), 0600) == 0 &&
           mkdir(in_tree("/devices/cpu_core"), 0700) == 0 && mkdir(in_tree("/devices/cpu_core/cpus"), 0700) == 0,
       "links to themselves, a pipe, a directory");
    lay("/proc/self/cgroup", "3:cpu:/../../cpu/cpu/cpu/../..\n0::////../..//\n");
    finds("are no files", 2, 2, 1, 2);
}

static uint32_t draw(mirt__random *random, uint32_t below) { return (uint32_t)mirt__random_below(random, below); }

/* Parts of lists, numbers and noise. */
static void draw_text(mirt__random *random, char *text, size_t size) {
    static const char *const parts[] = {"0-3", ",", "7", "-", "4095", "4096", "0::/", ":cpu,", "max", "100000 ", "\n",
                                        "1", "/", "..", "1e9", "nan", "Cpus_allowed_list:", "-1", "99999999999", " "};
    text[0] = 0;
    for (uint32_t i = draw(random, 12); i > 0; i--)
        mirt__line_add(text, size, "%s", parts[draw(random, (uint32_t)MIRT__COUNT(parts))]);
}

static void check_noise(void) {
    static const char *const files[] = {"/devices/system/cpu/online", "/devices/system/node/online",
                                        "/devices/system/node/node0/cpulist", "/devices/system/node/node1/cpulist",
                                        "/devices/cpu_core/cpus", "/devices/system/cpu/cpu0/cpu_capacity",
                                        "/devices/system/cpu/cpu1/topology/physical_package_id", "/proc/self/status",
                                        "/proc/self/cgroup", "/fs/cgroup/cpu.max", "/fs/cgroup/cpu/cpu.cfs_quota_us"};
    static mirt__cpus socket[MIRT__MAX_DEVICES];
    mirt__random random = mirt__random_stream(5, 6);
    int wrong = 0;
    fresh("noise");
    for (int round = 0; round < 400; round++) {
        mirt__cores c;
        int each = 0;
        const char *why;
        for (int i = 0; i < MIRT__COUNT(files); i++) {
            char text[400];
            draw_text(&random, text, sizeof text);
            lay(files[i], text);
        }
        if (!mirt__cores_find(&c)) wrong++;
        const int count = mirt__sockets_find(&c, socket, MIRT__MAX_DEVICES, &each, &why);
        wrong += c.count < 1 || c.count > MIRT__MAX_CPUS || c.fast < 1 || c.fast > c.count;
        wrong += !(c.limit > c.count - 1) || c.limit > c.count;
        wrong += count < 1 || each < 1 || count * each > c.count;
    }
    ok(!wrong, "400 trees of noise give cores that can be used (%d do not)", wrong);
}

/* >>strategies */

static char said[4000];

static void keep_log(mirt_log_level level, const char *text, void *user) {
    (void)level, (void)user;
    mirt__line_add(said, sizeof said, "%s%s", said[0] ? "; " : "", text);
}

static mirt_strategy *strategy_within(const char *devices, int threads, double timeout_seconds) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.timeout_seconds = timeout_seconds;
    d.devices = devices;
    d.threads = threads;
    d.replicas = 2;
    d.seed = 11;
    d.log = keep_log;
    said[0] = 0;
    return mirt_strategy_create(&d);
}

static mirt_strategy *strategy_on(const char *devices, int threads) { return strategy_within(devices, threads, 0); }

static void says(const char *devices, int threads, const char *part) {
    mirt_strategy *s = strategy_on(devices, threads);
    ok(s && strstr(said, part), "\"%s\": %s", part, said);
    mirt_strategy_destroy(s);
}

#ifdef MIRRORTRAIN_NO_THREADS

static void check_strategies(void) {}

#else

/* The cores that the calling thread may run on, of the first 64. */
static uint64_t own_mask(void) {
    mirt__pinned now;
    mirt__cpus all;
    memset(&all, 255, sizeof all);
    mirt__pin_begin(&now, &all);
    mirt__pin_end(&now);
    return now.done ? now.before.bits[0] : 0;
}

typedef struct masks {
    mirt_strategy *strategy;
    uint64_t mask[2][2];
} masks;

typedef struct member_masks {
    masks *all;
    int device;
} member_masks;

static void take_member(void *arg, int member) {
    const member_masks *own = (const member_masks *)arg;
    own->all->mask[own->device][member] = own_mask();
}

static void take_device(void *arg, int device) {
    masks *m = (masks *)arg;
    member_masks own = {m, device};
    mirt__team_run(m->strategy->device[device].team, take_member, &own);
}

static bool on(uint64_t mask, uint64_t socket) { return mask && !(mask & ~socket); }

static mirt_status take_runner(void *mask) { return *(uint64_t *)mask = own_mask(), MIRT_OK; }

/* With a time limit a runner thread leads the first device. It also reads data, and may start threads for that. */
static void check_runner(void) {
    const uint64_t before = own_mask();
    uint64_t runner = 0;
    masks m;
    memset(&m, 0, sizeof m);
    m.strategy = strategy_within("auto", 0, 60);
    const bool ran = m.strategy && mirt__on_devices(m.strategy, take_device, &m) == MIRT_OK &&
                     mirt__watched(m.strategy, take_runner, &runner) == MIRT_OK;
    if ((before & 3) != 3) skip("the runner is where it belongs: cores 0 and 1 are not to be had");
    else ok(ran && on(m.mask[0][0], 5) && on(m.mask[1][0], 10) && runner == before && own_mask() == before,
            "a runner thread is on a socket only while devices run: %llx, %llx after", (unsigned long long)m.mask[0][0],
            (unsigned long long)runner);
    mirt_strategy_destroy(m.strategy);
}

/* Whether every thread of each device runs where it should, and the caller where it did. */
static void check_pins(void) {
    const uint64_t before = own_mask();
    masks m;
    memset(&m, 0, sizeof m);
    m.strategy = strategy_on("auto", 0);
    ok(m.strategy && mirt_num_devices(m.strategy) == 2 && mirt_num_threads(m.strategy) == 2 &&
           strstr(said, "2 CPU devices, one per socket, of 2 threads"),
       "two sockets: %s", said);
    if (!m.strategy) return;
    ok(own_mask() == before, "creating it leaves the caller where it was");
    const bool ran = mirt__on_devices(m.strategy, take_device, &m) == MIRT_OK;
    if ((before & 3) != 3) skip("threads are where they belong: cores 0 and 1 are not to be had");
    else
        ok(ran && on(m.mask[0][0], 5) && on(m.mask[0][1], 5) && on(m.mask[1][0], 10) && on(m.mask[1][1], 10),
           "each thread of a device runs on its socket: %llx %llx, %llx %llx", (unsigned long long)m.mask[0][0],
           (unsigned long long)m.mask[0][1], (unsigned long long)m.mask[1][0], (unsigned long long)m.mask[1][1]);
    ok(own_mask() == before, "and the caller again where it did");
    mirt__cpus nowhere;
    memset(&nowhere, 0, sizeof nowhere);
    errno = 77;
    mirt__pin(&nowhere);
    ok(own_mask() == before && errno == 77, "a mask without cores changes nothing, nor errno");
    mirt_strategy_destroy(m.strategy);
}

static long resident(void) {
    long all = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (file) fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Devices with a socket write their memory when it is allocated; others leave that to whoever does it first. */
static void check_touch(void) {
    enum { BYTES = 100 << 20 };
    for (int i = 0; i < 2; i++) {
        mirt_strategy *s = strategy_on(i ? "2" : "auto", 0);
        const uint64_t caller = own_mask();
        const long before = resident();
        void *block = s ? s->backend->alloc(s->device[1].handle, BYTES) : NULL;
        const long more = resident() - before;
        if (SANITIZED || !before) skip("the resident memory of a block is not known");
        else ok(block && (i ? more < BYTES / 2 : more > BYTES / 4 * 3) && own_mask() == caller,
           "of 100 MB of %s, %ld bytes are in memory", i ? "a share of the cores" : "a socket", more);
        if (s) s->backend->release(s->device[1].handle, block);
        mirt_strategy_destroy(s);
    }
}

/* A digest of the weights after a few steps, or "". */
static void trained(const char *devices, int threads, char digest[MIRT__SHA256_HEX]) {
    mirt_strategy *s = strategy_on(devices, threads);
    mirt_model *m = s ? image_model(s, mirt_sgd(0.1f, 0.9f, false), 0.3f) : NULL;
    bool good = m != NULL;
    for (int i = 0; i < 3 && good; i++)
        good = mirt_train_step(m, images_x(40 * i, 40), images_y(40 * i, 40), NULL) == MIRT_OK;
    digest[0] = 0;
    if (good && copies_agree(m)) digest_weights(m, 0, digest);
    mirt_strategy_destroy(s);
}

/* Each allocation and each thread fails in turn. */
static void check_faults(bool simulated) {
    const uint64_t before = own_mask();
    const long blocks = __atomic_load_n(&live_blocks, __ATOMIC_SEQ_CST);
    mirt_strategy *s = NULL;
    int failures = 0, wrong = 0;
    while (!s && failures < 1000) {
        mirt_strategy_desc d;
        memset(&d, 0, sizeof d);
        d.devices = simulated ? "cpu" : "auto";
        d.simulate_threads = simulated;
        d.silent = true;
        __atomic_store_n(&fails_in, failures, __ATOMIC_SEQ_CST);
        s = mirt_strategy_create(&d);
        __atomic_store_n(&fails_in, -1, __ATOMIC_SEQ_CST);
        if (s) break;
        failures++;
        wrong += mirt_last_status() != MIRT_E_NOMEM && mirt_last_status() != MIRT_E_THREAD;
        wrong += __atomic_load_n(&live_blocks, __ATOMIC_SEQ_CST) != blocks || own_mask() != before;
    }
    ok(s && failures > (simulated ? 2 : 8) && !wrong, "%s: %d failures leak nothing and change no mask (%d do)",
       simulated ? "simulated threads" : "sockets", failures, wrong);
    mirt_strategy_destroy(s);
}

static int busy_within(mirt_strategy *s, int depth) {
    MIRT__USE(s, -1);
    return depth ? busy_within(s, depth - 1) : mirt__team_busy(0);
}

static void check_busy(void) {
    mirt_strategy *one = strategy_on("2", 3), *other = strategy_on("1", 1);
    const int within = busy_within(one, 2), after = mirt__team_busy(0);
    mirt__team_busy(5);
    const int both = busy_within(other, 0);
    mirt__team_busy(-5);
    ok(within == 6 && after == 0 && both == 6 && mirt__team_busy(0) == 0,
       "threads of strategies in use are counted: %d, %d, %d", within, after, both);
    mirt_strategy_destroy(one);
    mirt_strategy_destroy(other);
}

static void check_strategies(void) {
    fresh("quota");
    online("0-63\n");
    lay("/fs/cgroup/cpu.max", "150000 100000\n");
    says("cpu", 0, "1 CPU device of 2 threads");
    ok(mirt__wake_seconds() <= 0, "threads that outnumber their time do not spin");
    fresh("pair");
    online("0-3\n");
    nodes("0,2\n", "1,3\n");
    mirt_machine_info machine;
    says("cpu", 0, "1 CPU device of 4 threads");
    const bool known = mirt_machine(&machine) == MIRT_OK;
    const double spin = fmin(fmax(2 * machine.wake_seconds, 20e-6), 400e-6);
    ok(known && machine.wake_seconds > 0 && fabs(machine.spin_seconds - spin) < 1e-9,
       "waking takes %g s, others spin for %g s", machine.wake_seconds, machine.spin_seconds);
    says("auto", 1, "2 CPU devices, one per socket, of 1 thread");
    check_pins();
    check_runner();
    check_touch();
    char one[MIRT__SHA256_HEX], sockets[MIRT__SHA256_HEX];
    trained("1", 1, one);
    trained("auto", 0, sockets);
    ok(one[0] && strcmp(one, sockets) == 0, "devices on sockets train to the bits of one device");
    check_faults(false);
    check_faults(true);
    check_busy();
    mirt_strategy *only = mirt_one_device("auto");
    ok(only && mirt_num_devices(only) == 1 && mirt_num_threads(only) == 4, "one device has all cores");
    mirt_strategy_destroy(only);
    nodes("0-3\n", NULL);
    says("auto", 0, "1 CPU device, as there is one socket, of 4 threads");
    lay("/devices/cpu_core/cpus", "0-1\n");
    says("cpu", 0, "1 CPU device of 2 threads");
    says("cpu", 0, "2 of 4 cores are efficiency cores");
    says("cpu", 4, "1 CPU device of 4 threads");
    ok(!strstr(said, "efficiency"), "which a number of threads asks for: %s", said);
}

#endif

int main(void) {
    unsetenv("MIRT_CORES");
    draw_images();
    ok(mirt__cpu_cores() >= 1, "this machine has %d cores, which the trees replace", mirt__cpu_cores());
    check_strategies();
    check_sockets();
    check_offline();
    check_quotas();
    check_hybrid();
    check_hostile();
    check_noise();
    setenv("MIRT_CORES", "5", 1);
    finds("MIRT_CORES counts before the tree", 5, 5, 1, 5);
    return done_testing();
}
