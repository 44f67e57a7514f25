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

MIRT__LIB void mirt__affinity(char *list, size_t size) {
    static const char name[] = "Cpus_allowed_list:"; /* follows the groups, which may be many */
    char text[2 * MIRT__AFFINITY];
    mirt__file_peek("/proc/self/status", text, sizeof text);
    const char *at = strstr(text, name);
    if (at) at += sizeof name - 1 + strspn(at + sizeof name - 1, " \t");
    snprintf(list, size, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
}

MIRT__LIB int mirt__affinity_cores(const char *list) {
    long cores = 0;
    while (*list >= '0' && *list <= '9') {
        char *end;
        const long first = strtol(list, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (last < first || last > 1 << 20) return 0;
        cores += last - first + 1;
        list = end + (*end == ',');
    }
    return cores > 4096 ? 4096 : (int)cores;
}

static void mirt__machine_peek(const char *group, const char *file, char *text, size_t size) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", group, file);
    mirt__file_peek(path, text, size);
}

/* A file that holds one number, or "max"; -1: no such limit. */
static int64_t mirt__machine_number(const char *group, const char *file) {
    char text[64];
    mirt__machine_peek(group, file, text, sizeof text);
    return text[0] >= '0' && text[0] <= '9' ? (int64_t)strtoll(text, NULL, 10) : -1;
}

/* The limits of a control group that contains this process. */
static void mirt__machine_group(const char *group, const char *most, const char *used, mirt_machine_info *out) {
    char text[4096];
    const int64_t limit = mirt__machine_number(group, most), taken = mirt__machine_number(group, used);
    if (limit > 0 && (uint64_t)limit < out->memory_total) {
        mirt__machine_peek(group, "memory.stat", text, sizeof text);
        int64_t cached = mirt__machine_line(text, "inactive_file "),
                left = limit - taken; /* page cache, which can be reclaimed */
        if (cached > 0 && cached < taken) left += cached;
        if (left < 0) left = 0;
        if (!out->memory_limit || (uint64_t)limit < out->memory_limit) out->memory_limit = (uint64_t)limit;
        if (taken >= 0 && (uint64_t)left < out->memory_available) out->memory_available = (uint64_t)left;
    }
    mirt__machine_peek(group, "cpu.max", text, sizeof text);
    char *end;
    double quota = strtod(text, &end), period = strtod(end, NULL);
    if (end != text && quota > 0 && period > 0 && (out->core_limit == 0 || quota / period < out->core_limit))
        out->core_limit = quota / period;
}

MIRT_API mirt_status mirt_machine(mirt_machine_info *out) {
    char text[4096], group[384];
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
    mirt__machine_group(MIRT__GROUPS "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", out);
    mirt__file_peek("/proc/self/cgroup", text, sizeof text);
    const char *own = strstr(text, "0::/");
    snprintf(group, sizeof group, MIRT__GROUPS "%.*s", own ? (int)(strcspn(own, "\n") - 3) : 0, own ? own + 3 : "");
    for (;;) { /* the group of this process and its parents */
        mirt__machine_group(group, "memory.max", "memory.current", out);
        char *slash = strrchr(group, '/');
        if (!slash || strlen(group) <= strlen(MIRT__GROUPS)) return MIRT_OK;
        *slash = 0;
    }
}

#undef MIRT__GROUPS
