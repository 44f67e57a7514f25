/* What runs here, in which form, on what: for checkpoints, logs and whoever asks. */

#include "../base/processor.h"
#include "../formats/json.h"
#include "../images/images.h"
#include "strategy.h"

#include <sys/utsname.h>
#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Another member of the object under way. */
static void mirt__env_name(mirt__text *out, const char *name) {
    const bool first = !out->size || out->data[out->size - 1] == '{';
    mirt__text_add(out, "%s\"%s\": ", first ? "" : ", ", name);
}

static void mirt__env_string(mirt__text *out, const char *name, const char *value) {
    char label[MIRT__JSON_LABEL];
    mirt__env_name(out, name);
    mirt__json_write_string(out, mirt__json_label(value, label));
}

static void mirt__env_bool(mirt__text *out, const char *name, bool value) {
    mirt__env_name(out, name);
    mirt__text_add(out, value ? "true" : "false");
}

static void mirt__env_int(mirt__text *out, const char *name, int value) {
    mirt__env_name(out, name);
    mirt__text_add(out, "%d", value);
}

static void mirt__env_build(mirt__text *out) {
    bool stb = false, turbo = false;
    mirt__env_string(out, "mirrortrain", MIRT_VERSION_STRING);
#if defined(__clang__)
    mirt__env_string(out, "compiler", "clang " __clang_version__);
#elif defined(__GNUC__)
    mirt__env_string(out, "compiler", "gcc " __VERSION__);
#else
    mirt__env_string(out, "compiler", "unknown");
#endif
#if defined(__cplusplus)
    mirt__env_string(out, "language", __cplusplus >= 202002L ? "C++20" : __cplusplus >= 201703L ? "C++17" : "C++");
#else
    mirt__env_string(out, "language",
                     __STDC_VERSION__ > 201710L    ? "C23"
                     : __STDC_VERSION__ >= 201710L ? "C17"
                     : __STDC_VERSION__ >= 201112L ? "C11"
                                                   : "C");
#endif
#ifndef MIRRORTRAIN_NO_IMAGES
    mirt__decoders_here(&stb, &turbo);
#endif
    mirt__text_add(out, ", \"compiled_in\": {");
    mirt__env_bool(out, "optimization", MIRT__OPTIMIZED);
#ifdef MIRRORTRAIN_NO_THREADS
    mirt__env_bool(out, "threads", false);
#else
    mirt__env_bool(out, "threads", true);
#endif
#ifdef MIRRORTRAIN_NO_SIMD
    mirt__env_bool(out, "vectors", false);
#else
    mirt__env_bool(out, "vectors", true);
#endif
    mirt__env_bool(out, "stb_image", stb);
    mirt__env_bool(out, "turbojpeg", turbo);
    mirt__env_bool(out, "cuda", mirt__has_backend());
#if defined(__SANITIZE_ADDRESS__)
    mirt__env_string(out, "sanitizer", "address");
#elif defined(__SANITIZE_THREAD__)
    mirt__env_string(out, "sanitizer", "thread");
#endif
    mirt__text_add(out, "}");
}

/* "AMD EPYC 7763 64-Core Processor", or "" where the processor does not say. */
static void mirt__env_processor(char name[49]) {
    memset(name, 0, 49);
#if defined(__x86_64__)
    unsigned int word[12];
    for (unsigned int i = 0; i < 3; i++) {
        if (!__get_cpuid(0x80000002u + i, &word[4 * i], &word[4 * i + 1], &word[4 * i + 2], &word[4 * i + 3])) return;
    }
    memcpy(name, word, sizeof word);
    size_t end = strlen(name), begin = strspn(name, " ");
    while (end > begin && name[end - 1] == ' ') end--;
    memmove(name, name + begin, end - begin);
    name[end - begin] = 0;
#endif
}

/* Of the instructions that kernels are written for, those that the processor has. */
static void mirt__env_features(mirt__text *out) {
    char list[96] = "";
    size_t used = 0;
#if defined(__x86_64__)
    const unsigned there = mirt__instructions_there();
    for (int i = 0; i < MIRT__INSTRUCTION_COUNT; i++) {
        if (there >> i & 1)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? " " : "",
                                     mirt__instruction_name(i));
    }
#elif defined(__aarch64__)
    used += (size_t)snprintf(list, sizeof list, "neon%s", mirt__neon_bf16_there() ? " bf16" : "");
#endif
    (void)used;
    mirt__env_string(out, "instructions", list);
}

static void mirt__env_machine(const mirt_strategy *s, mirt__text *out) {
    char processor[49], text[256];
    struct utsname system;
    mirt__env_processor(processor);
    if (uname(&system) == 0) {
        snprintf(text, sizeof text, "%.80s %.80s %.80s", system.sysname, system.release, system.machine);
        mirt__env_string(out, "system", text);
        mirt__env_string(out, "processor", processor[0] ? processor : system.machine);
    }
#if defined(__GLIBC__)
    snprintf(text, sizeof text, "glibc %.32s", gnu_get_libc_version());
    mirt__env_string(out, "libc", text);
#endif
    mirt__env_int(out, "cores", mirt__cpu_cores());
    mirt__env_features(out);
    mirt__env_string(out, "kernels", s->kernels->name);
    mirt__env_int(out, "devices", s->num_devices);
    mirt__env_int(out, "replicas", s->num_replicas);
    mirt__env_int(out, "threads", s->threads);
}

/* Those that choose kernels, cores, memory or libraries; others are nobody's business. */
static void mirt__env_variables(mirt__text *out) {
    static const char names[][24] = {
        "MIRT_CPU",        "MIRT_CORES",    "MIRT_SYSFS",     "MIRT_DEVICES",     "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS", "OMP_PROC_BIND", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "LD_PRELOAD",
    };
    mirt__text_add(out, ", \"variables\": {");
    for (int i = 0; i < MIRT__COUNT(names); i++) {
        const char *value = getenv(names[i]);
        if (value) mirt__env_string(out, names[i], value);
    }
    mirt__text_add(out, "}");
}

MIRT_API const char *mirt_environment(mirt_strategy *strategy) {
    MIRT__USE(strategy, NULL);
    if (!strategy) return mirt__fail_missing("mirt_environment", "strategy"), (const char *)NULL;
    mirt__text *out = &strategy->environment;
    mirt__text_clear(out);
    mirt__text_add(out, "{");
    mirt__env_build(out);
    mirt__env_machine(strategy, out);
    mirt__env_variables(out);
    mirt__text_add(out, "}");
    return out->failed ? NULL : out->data;
}
