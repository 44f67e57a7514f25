#ifndef FORMATS_UTIL_H
#define FORMATS_UTIL_H
/* System calls and allocations that fail on request, and a sample of a safetensors file. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* Failure injection: the call that counts the number down to zero fails. */
static int allocations_left, calls_left, call_errno, live_blocks, open_files;
static size_t transfer_limit; /* bytes one read or write moves; 0: all */
static char last_call[16];    /* the system call that was made to fail */

void *hook_malloc(size_t size) {
    if (allocations_left > 0 && --allocations_left == 0) return NULL;
    void *pointer = malloc(size);
    if (pointer) __atomic_add_fetch(&live_blocks, 1, __ATOMIC_RELAXED);
    return pointer;
}

void hook_free(void *pointer) {
    __atomic_sub_fetch(&live_blocks, 1, __ATOMIC_RELAXED);
    free(pointer);
}

static int call_fails(const char *name) {
    if (calls_left <= 0 || --calls_left > 0) return 0;
    snprintf(last_call, sizeof last_call, "%s", name);
    errno = call_errno;
    return 1;
}

static size_t transfer(size_t size) {
    return transfer_limit && size > transfer_limit ? transfer_limit : size;
}

/* What somebody plants, as a link to `trap`, at the first name that a temporary file is to have; and which names were
   tried. */
static const char *trap;
static char trapped[700], second_name[700];

static void plant(const char *path, int flags) {
    const size_t size = strlen(path);
    if (!trap || !(flags & O_CREAT) || size < 4 || strcmp(path + size - 4, ".tmp") != 0) return;
    if (trapped[0]) snprintf(second_name, sizeof second_name, "%s", path);
    else if (symlink(trap, path) == 0) snprintf(trapped, sizeof trapped, "%s", path);
}

int hook_open(const char *path, int flags, unsigned mode) {
    if (call_fails("open")) return -1;
    plant(path, flags);
    int fd = open(path, flags, mode);
    open_files += fd >= 0;
    return fd;
}

ssize_t hook_pread(int fd, void *data, size_t size, off_t offset) {
    return call_fails("read") ? -1 : pread(fd, data, transfer(size), offset);
}

ssize_t hook_pwrite(int fd, const void *data, size_t size, off_t offset) {
    return call_fails("write") ? -1 : pwrite(fd, data, transfer(size), offset);
}

int hook_fsync(int fd) {
    return call_fails("fsync") ? -1 : fsync(fd);
}

int hook_close(int fd) {
    int failed = call_fails("close");
    int result = close(fd);
    open_files--;
    if (failed) errno = call_errno;
    return failed ? -1 : result;
}

int hook_rename(const char *from, const char *to) {
    return call_fails("rename") ? -1 : rename(from, to);
}

static int says(const char *fragment) {
    return strstr(mirt_last_error(), fragment) != NULL;
}

static char directory[256], path[512];

/* A directory of this run's own, and the path of a file in it. */
static bool make_directory(void) {
    snprintf(directory, sizeof directory, "%s/mirrortrain-formats-XXXXXX", tap_tmpdir());
    const bool made = mkdtemp(directory) != NULL;
    if (!made) ok(0, "no temporary directory %s", directory);
    snprintf(path, sizeof path, "%s/sample.safetensors", directory);
    return made;
}

static const float kernel[6] = {1.5f, -2, 3e-8f, 4, 5, -0.0f};
static const int32_t steps[1] = {469};
static const unsigned char pixels[5] = {0, 255, 32, 48, 7};
static const double wide[2] = {0.1, -1e300};
static const char *const sample_metadata[] = {"format", "mirrortrain 1", "architecture",
                                              "{\"layers\":[\"Dense \xc3\xa4\\n\"]}"};

static mirt__safetensor describe(const char *name, mirt__st_dtype dtype, int rank, int64_t a, int64_t b,
                                 const void *data) {
    mirt__safetensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.rank = rank;
    tensor.dim[0] = a;
    tensor.dim[1] = b;
    tensor.data = data;
    return tensor;
}

#define SAMPLE_TENSORS 5
static mirt__safetensor sample_tensor[SAMPLE_TENSORS];

static mirt__safetensors_content sample(void) {
    mirt__safetensors_content content;
    memset(&content, 0, sizeof content);
    sample_tensor[0] = describe("dense/kernel", MIRT__ST_F32, 2, 2, 3, kernel);
    sample_tensor[1] = describe("pixels \"\xc3\xa4\"", MIRT__ST_U8, 1, 5, 0, pixels);
    sample_tensor[2] = describe("step", MIRT__ST_I32, 0, 0, 0, steps);
    sample_tensor[3] = describe("empty", MIRT__ST_F32, 2, 0, 7, NULL);
    sample_tensor[4] = describe("wide", MIRT__ST_F64, 1, 2, 0, wide);
    content.tensor = sample_tensor;
    content.count = SAMPLE_TENSORS;
    content.metadata = sample_metadata;
    content.metadata_count = 2;
    return content;
}

static int is_sample(const mirt__safetensors *file) {
    static const size_t sizes[SAMPLE_TENSORS] = {24, 5, 4, 0, 16};
    static const void *const data[SAMPLE_TENSORS] = {kernel, pixels, steps, NULL, wide};
    if (file->count != SAMPLE_TENSORS) return 0;
    for (int i = 0; i < SAMPLE_TENSORS; i++) {
        const mirt__safetensor *got = &file->tensor[i], *want = &sample_tensor[i];
        if (strcmp(got->name, want->name) || got->dtype != want->dtype || got->rank != want->rank ||
            got->size != sizes[i] || memcmp(got->dim, want->dim, sizeof got->dim) ||
            (sizes[i] && memcmp(got->data, data[i], sizes[i])))
            return 0;
    }
    for (int i = 0; i < 4; i += 2) {
        const char *value = mirt__safetensors_metadata(file, sample_metadata[i]);
        if (!value || strcmp(value, sample_metadata[i + 1])) return 0;
    }
    return 1;
}

/* All bytes of `path`, which the caller frees. */
static unsigned char *slurp(size_t *size) {
    unsigned char *data = (unsigned char *)malloc(1 << 20);
    FILE *in = fopen(path, "rb");
    *size = in ? fread(data, 1, 1 << 20, in) : 0;
    if (in) fclose(in);
    return data;
}

static void spill(const void *data, size_t size) {
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(data, 1, size, out) != size || fclose(out)) ok(0, "could not write %s", path);
}

static int temporaries(void) {
    int count = 0;
    DIR *list = opendir(directory);
    if (!list) return -1;
    for (struct dirent *entry = readdir(list); entry; entry = readdir(list))
        count += strstr(entry->d_name, ".tmp") != NULL;
    closedir(list);
    return count;
}

#endif
