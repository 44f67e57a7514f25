/* Memory and processor time that the machine or its container allows this process. */

#include "file.h"
#include "team.h"

#include <unistd.h>

#define MIRT__GROUPS "/sys/fs/cgroup"

/* The number after `name` at the beginning of a line; -1: not found. */
static int64_t mirt__machine_line(const char *text, const char *name) {
    const size_t size = strlen(name);
    for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        if (strncmp(at, name, size) == 0) return (int64_t)strtoll(at + size, NULL, 10);
    }
    return -1;
}

static void mirt__machine_peek(const char *group, const char *file, char *text, size_t size) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", group, file);
    mirt__system_text(path, text, size);
}

/* A file that holds one number, or "max"; -1: no such limit. */
static int64_t mirt__machine_number(const char *group, const char *file) {
    char text[64];
    mirt__machine_peek(group, file, text, sizeof text);
    return text[0] >= '0' && text[0] <= '9' ? (int64_t)strtoll(text, NULL, 10) : -1;
}

/* >>control groups */

/* This process's group in the hierarchy of a controller of version 1 ("4:cpu,cpuacct:/path" in /proc/self/cgroup), or
   in that of version 2 ("0::/path"), which NULL stands for. */
static void mirt__group_own(char *group, size_t size, const char *base, const char *controller) {
    char text[MIRT__AFFINITY], name[32];
    const char *at = NULL;
    mirt__system_text("/proc/self/cgroup", text, sizeof text);
    for (int i = 0; controller && i < 4 && !at; i++) { /* the first, the last, the only one, or in between */
        snprintf(name, sizeof name, "%c%s%c", i & 1 ? ',' : ':', controller, i & 2 ? ',' : ':');
        if ((at = strstr(text, name)) != NULL) at = strchr(at + 1, ':');
    }
    if (!controller && (at = strstr(text, "0::/")) != NULL) at += 2;
    snprintf(group, size, "%s%.*s", base, at ? (int)strcspn(at + 1, "\n") : 0, at ? at + 1 : "");
}

/* Calls look(group, arg) for this process's group and its parents. */
static void mirt__group_walk(const char *base, const char *controller, void (*look)(const char *group, void *arg),
                             void *arg) {
    char group[384];
    mirt__group_own(group, sizeof group, base, controller);
    for (;;) {
        look(group, arg);
        char *slash = strrchr(group, '/');
        if (!slash || strlen(group) <= strlen(base)) return;
        *slash = 0;
    }
}

/* Keeps the lowest limit. */
static void mirt__group_limit(double *least, double quota, double period) {
    const double cores = quota > 0 && period > 0 ? quota / period : 0;
    if (cores > 0 && cores < (int)MIRT__MAX_CPUS && (*least <= 0 || cores < *least)) *least = cores;
}

static void mirt__group_quota(const char *group, void *arg) {
    char text[64], *end;
    mirt__machine_peek(group, "cpu.max", text, sizeof text);
    const double quota = strtod(text, &end);
    mirt__group_limit((double *)arg, quota, strtod(end, NULL));
    mirt__group_limit((double *)arg, (double)mirt__machine_number(group, "cpu.cfs_quota_us"),
                      (double)mirt__machine_number(group, "cpu.cfs_period_us"));
}

MIRT__LIB double mirt__core_quota(void) {
    double cores = 0;
    mirt__group_walk(MIRT__GROUPS, NULL, mirt__group_quota, &cores);
    mirt__group_walk(MIRT__GROUPS "/cpu", "cpu", mirt__group_quota, &cores);
    mirt__group_walk(MIRT__GROUPS "/cpu,cpuacct", "cpu", mirt__group_quota, &cores); /* if "cpu" is no link to it */
    return cores;
}

static void mirt__group_memory(mirt_machine_info *out, const char *group, const char *most, const char *used) {
    char text[4096];
    const int64_t limit = mirt__machine_number(group, most), taken = mirt__machine_number(group, used);
    if (limit <= 0 || (uint64_t)limit >= out->memory_total) return;
    mirt__machine_peek(group, "memory.stat", text, sizeof text);
    int64_t cached = mirt__machine_line(text, "inactive_file "),
            left = limit - taken; /* page cache, which can be reclaimed */
    if (cached > 0 && cached < taken) left += cached;
    if (left < 0) left = 0;
    if (!out->memory_limit || (uint64_t)limit < out->memory_limit) out->memory_limit = (uint64_t)limit;
    if (taken >= 0 && (uint64_t)left < out->memory_available) out->memory_available = (uint64_t)left;
}

static void mirt__group_memory_2(const char *group, void *arg) {
    mirt__group_memory((mirt_machine_info *)arg, group, "memory.max", "memory.current");
}

MIRT_API mirt_status mirt_machine(mirt_machine_info *out) {
    char text[4096];
    if (!out) return mirt__fail_missing(__func__, "structure to fill");
    memset(out, 0, sizeof *out);
    if (!(out->cores = mirt__cpu_cores())) return mirt_last_status();
#ifdef _SC_PHYS_PAGES
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (pages > 0 && size > 0) out->memory_total = (uint64_t)pages * (uint64_t)size;
#endif
    mirt__file_peek("/proc/meminfo", text, sizeof text);
    const int64_t kilobytes = mirt__machine_line(text, "MemAvailable:");
    out->memory_available = kilobytes >= 0 ? (uint64_t)kilobytes * 1024 : out->memory_total;
    out->core_limit = mirt__core_quota();
    out->wake_seconds = mirt__wake_seconds();
    out->spin_seconds = mirt__spin_seconds();
    mirt__group_memory(out, MIRT__GROUPS "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes");
    mirt__group_walk(MIRT__GROUPS, NULL, mirt__group_memory_2, out);
    return MIRT_OK;
}

#undef MIRT__GROUPS
