#ifndef FUZZ_MAIN_H
#define FUZZ_MAIN_H
/* What the fuzz targets share. Without libFuzzer (FUZZER is not defined) a target is a program that takes files: each
   is one check, and a sanitizer report ends the program. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A planted fault. It is after the last check of a parser, so that finding it shows that the fuzzer gets there
 * (make fuzz-planted). */
#ifdef FUZZ_PLANTED
#define FUZZ_PLANT(condition) \
    do { \
        if (condition) __builtin_trap(); \
    } while (0)
#else
#define FUZZ_PLANT(condition) ((void)(condition))
#endif

/* What a parser accepted has to satisfy this. */
#define FUZZ_CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            __builtin_trap(); \
        } \
    } while (0)

/* >>files, for parsers that read nothing else */

static char fuzz_home[400];

static void fuzz_remove(const char *path, int depth) {
    DIR *stream = depth < 8 ? opendir(path) : NULL;
    for (const struct dirent *entry; stream && (entry = readdir(stream)) != NULL;) {
        char inner[700];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(inner, sizeof inner, "%s/%.255s", path, entry->d_name);
        if (unlink(inner) != 0) fuzz_remove(inner, depth + 1);
    }
    if (stream) closedir(stream);
    rmdir(path);
}

static void fuzz_leave(void) { fuzz_remove(fuzz_home, 0); }

/* DIR/name, DIR a directory that is removed at exit. TMPDIR should be in memory. */
__attribute__((unused)) static const char *fuzz_path(const char *name, char out[512]) {
    const char *base = getenv("TMPDIR");
    if (!fuzz_home[0]) {
        snprintf(fuzz_home, sizeof fuzz_home, "%.300s/mirt_fuzz.XXXXXX", base && *base ? base : "/tmp");
        if (!mkdtemp(fuzz_home)) {
            perror(fuzz_home);
            exit(1);
        }
        atexit(fuzz_leave);
    }
    snprintf(out, 512, "%s%s%.100s", fuzz_home, *name ? "/" : "", name);
    return out;
}

__attribute__((unused)) static void fuzz_put(const char *path, const void *data, size_t size) {
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || (size && write(fd, data, size) != (ssize_t)size) || close(fd) != 0) {
        perror(path);
        exit(1);
    }
}

/* >>numbers and bytes from the input; 0 once it is used up */

typedef struct fuzz_input {
    const uint8_t *at, *end;
} fuzz_input;

__attribute__((unused)) static uint8_t fuzz_byte(fuzz_input *in) { return in->at < in->end ? *in->at++ : 0; }

__attribute__((unused)) static void fuzz_bytes(fuzz_input *in, void *out, size_t size) {
    const size_t left = (size_t)(in->end - in->at), count = size < left ? size : left;
    memset(out, 0, size);
    if (count) memcpy(out, in->at, count);
    in->at += count;
}

/* >>without libFuzzer */

#ifdef FUZZER
/* Freed blocks are kept for a while, so that their use is seen, but few: most runs take microseconds. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "quarantine_size_mb=8:thread_local_quarantine_size_kb=256:malloc_context_size=8:max_malloc_fill_size=0";
}
#else
#ifdef FUZZ_SEEDS
/* Writes files to begin with. */
static void FUZZ_SEEDS(const char *directory);
#endif

int main(int argc, char **argv) {
#ifdef FUZZ_SEEDS
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        FUZZ_SEEDS(argv[2]);
        return 0;
    }
#endif
    for (int i = 1; i < argc; i++) {
        static uint8_t data[1 << 16];
        FILE *file = fopen(argv[i], "rb");
        if (!file) {
            perror(argv[i]);
            return 1;
        }
        size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        uint8_t *exact = (uint8_t *)malloc(size + !size); /* a read beyond it is seen */
        if (!exact) return 1;
        for (size_t k = 0; k < size; k++) exact[k] = data[k];
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
        printf("ok %d - %s\n", i, argv[i]);
    }
    printf("1..%d\n", argc - 1);
    return 0;
}
#endif

#endif
