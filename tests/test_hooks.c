/* The configuration macros: memory and files of the program's own. Nothing but them is used: no file
   appears on the disk, and every block and descriptor is given back. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

/* A file system of a few files in memory; a descriptor is 1000 and the number of its file. */
typedef struct mem_file {
    char name[96];
    unsigned char *data;
    size_t size;
    int opened;
} mem_file;
enum { MEM_FILES = 16, MEM_FIRST = 1000 };
static mem_file mem_files[MEM_FILES];
static size_t mem_room = (size_t)1 << 30; /* bytes that still fit */
static int mem_syncs, mem_directory_opened;

/* How the file system misbehaves. */
typedef enum mem_fault {
    MEM_FINE, MEM_BLIND /* no fstat */, MEM_GROWING /* fstat tells half */, MEM_TAKEN /* every new name is */,
    /* no directory */
    MEM_STUCK /* writes nothing */, MEM_UNSYNCED /* no fsync */, MEM_NO_SYNC /* none needed */, MEM_DARK
} mem_fault;
static mem_fault mem_broken;

static mem_file *mem_find(const char *name) {
    for (int i = 0; i < MEM_FILES; i++) {
        if (mem_files[i].name[0] && strcmp(mem_files[i].name, name) == 0) return &mem_files[i];
    }
    return NULL;
}

static mem_file *mem_new(const char *name) {
    for (int i = 0; i < MEM_FILES; i++) {
        if (mem_files[i].name[0]) continue;
        snprintf(mem_files[i].name, sizeof mem_files[i].name, "%s", name);
        return &mem_files[i];
    }
    return NULL;
}

static int mem_open(const char *path, int flags, unsigned mode) {
    (void)mode;
    if (strcmp(path, "mem:") == 0) {
        mem_directory_opened++;
        errno = mem_broken == MEM_DARK ? EIO : EACCES;
        return -1;
    }
    mem_file *file = mem_find(path);
    if ((file || mem_broken == MEM_TAKEN) && (flags & O_EXCL)) {
        errno = EEXIST;
        return -1;
    }
    if (!file && (flags & O_CREAT)) file = mem_new(path);
    if (!file) {
        errno = ENOENT;
        return -1;
    }
    file->opened++;
    return MEM_FIRST + (int)(file - mem_files);
}

static int mem_close(int fd) {
    mem_files[fd - MEM_FIRST].opened--;
    return 0;
}

static int mem_describe(const mem_file *file, struct stat *info) {
    if (!file || mem_broken == MEM_BLIND) {
        errno = file ? EIO : ENOENT;
        return -1;
    }
    memset(info, 0xEE, sizeof *info); /* only what the manual names is set */
    info->st_mode = S_IFREG | 0644;
    info->st_size = (off_t)(mem_broken == MEM_GROWING ? file->size / 2 : file->size);
    return 0;
}

static ssize_t mem_pread(int fd, void *data, size_t size, off_t offset) {
    const mem_file *file = &mem_files[fd - MEM_FIRST];
    if ((size_t)offset >= file->size) return 0;
    if (size > file->size - (size_t)offset) size = file->size - (size_t)offset;
    memcpy(data, file->data + offset, size);
    return (ssize_t)size;
}

static ssize_t mem_pwrite(int fd, const void *data, size_t size, off_t offset) {
    mem_file *file = &mem_files[fd - MEM_FIRST];
    size_t end = (size_t)offset + size;
    if (mem_broken == MEM_STUCK) return 0;
    if (end > mem_room) {
        errno = ENOSPC;
        return -1;
    }
    if (end > file->size) {
        file->data = (unsigned char *)realloc(file->data, end);
        file->size = end;
    }
    memcpy(file->data + offset, data, size);
    return (ssize_t)size;
}

static int mem_fsync(int fd) {
    mem_syncs += fd >= MEM_FIRST;
    errno = mem_broken == MEM_UNSYNCED ? EIO : EINVAL;
    return mem_broken == MEM_UNSYNCED || mem_broken == MEM_NO_SYNC ? -1 : 0;
}

static int mem_unlink(const char *path) {
    mem_file *file = mem_find(path);
    if (!file) {
        errno = ENOENT;
        return -1;
    }
    free(file->data);
    memset(file, 0, sizeof *file);
    return 0;
}

static int mem_rename(const char *from, const char *to) {
    if (mem_find(to)) mem_unlink(to);
    mem_file *file = mem_find(from);
    if (!file) return -1;
    snprintf(file->name, sizeof file->name, "%s", to);
    return 0;
}

static int live_blocks, blocks_ever;
static void *my_malloc(size_t size) {
    __atomic_add_fetch(&live_blocks, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&blocks_ever, 1, __ATOMIC_RELAXED);
    return malloc(size);
}
static void my_free(void *pointer) {
    __atomic_sub_fetch(&live_blocks, 1, __ATOMIC_RELAXED);
    free(pointer);
}

#define MIRRORTRAIN_MALLOC(size) my_malloc(size)
#define MIRRORTRAIN_FREE(pointer) my_free(pointer)
#define MIRRORTRAIN_OPEN(path, flags, mode) mem_open(path, flags, mode)
#define MIRRORTRAIN_CLOSE(fd) mem_close(fd)
#define MIRRORTRAIN_STAT(path, info) mem_describe(mem_find(path), info)
#define MIRRORTRAIN_FSTAT(fd, info) mem_describe(&mem_files[(fd) - MEM_FIRST], info)
#define MIRRORTRAIN_PREAD(fd, data, size, offset) mem_pread(fd, data, size, offset)
#define MIRRORTRAIN_PWRITE(fd, data, size, offset) mem_pwrite(fd, data, size, offset)
#define MIRRORTRAIN_FSYNC(fd) mem_fsync(fd)
#define MIRRORTRAIN_RENAME(from, to) mem_rename(from, to)
#define MIRRORTRAIN_UNLINK(path) mem_unlink(path)
#define MIRRORTRAIN_STATIC
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "tap.h"

static int files_there(void) {
    int count = 0;
    for (int i = 0; i < MEM_FILES; i++) count += mem_files[i].name[0] != 0;
    return count;
}

static int files_open(void) {
    int count = 0;
    for (int i = 0; i < MEM_FILES; i++) count += mem_files[i].opened;
    return count;
}

static mirt_strategy *quiet(void) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "cpu:0";
    desc.threads = 1;
    desc.silent = true;
    return mirt_strategy_create(&desc);
}

/* Four 2x2 images, or their labels. */
static void put_idx(const char *name, int images) {
    unsigned char header[16] = {0, 0, 8, (unsigned char)(images ? 3 : 1), 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 2};
    unsigned char content[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int fd = mem_open(name, O_CREAT | O_WRONLY, 0644), head = images ? 16 : 8;
    mem_pwrite(fd, header, (size_t)head, 0);
    mem_pwrite(fd, content, images ? 16 : 4, head);
    mem_close(fd);
}

static void test_models(void) {
    const char *path = "mem:/net.safetensors";
    float before[10], after[10];
    unsigned char image[784];
    for (int i = 0; i < 784; i++) image[i] = (unsigned char)(i * 7);
    mirt_array x = mirt_make_array(image, MIRT_UINT8, MIRT_SHAPE(1, 28, 28, 1));
    mirt_strategy *strategy = quiet();
    mirt_model *model = mirt_model_by_name(strategy, "mnist");
    mirt_compile(model, NULL);
    ok(mirt_predict_arrays(model, x, before, 10) == MIRT_OK, "a model predicts");
    ok(mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK && mem_find(path) && files_there() == 1 && files_open() == 0,
       "it is saved into memory: one file, closed (%s)", mirt_last_error());
    ok(mem_syncs > 0 && mem_directory_opened == 1, "the file was synced; its directory refused to be opened");
    struct stat info;
    ok(stat(path, &info) != 0 && errno == ENOENT, "and is not on the disk");
    mirt_model *loaded = mirt_load(strategy, path);
    ok(loaded && mirt_predict_arrays(loaded, x, after, 10) == MIRT_OK && memcmp(before, after, sizeof before) == 0,
       "it is loaded from there, and predicts the same bits");
    mirt_model *from_memory = mirt_load_memory(strategy, mem_find(path)->data, mem_find(path)->size);
    ok(from_memory && mirt_predict_arrays(from_memory, x, after, 10) == MIRT_OK &&
           memcmp(before, after, sizeof before) == 0,
       "from its bytes too");
    mem_room = 1000;
    ok(mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_E_IO && strstr(mirt_last_error(), "cannot write"),
       "a full file system: %s", mirt_last_error());
    mem_room = (size_t)1 << 30;
    ok(files_there() == 1 && files_open() == 0 && mirt_load_weights(model, path) == MIRT_OK,
       "leaves the old file alone, and no other");
    ok(!mirt_load(strategy, "mem:/absent") && mirt_last_status() == MIRT_E_NOT_FOUND, "no such file: %s",
       mirt_last_error());
    mirt_strategy_destroy(strategy);
    mem_unlink(path);
}

static void test_data(void) {
    put_idx("mem:/train-images-idx3-ubyte", 1);
    put_idx("mem:/train-labels-idx1-ubyte", 0);
    mirt_dataset *data = mirt_mnist("mem:", MIRT_TRAIN);
    ok(data && mirt_dataset_size(data) == 4, "IDX files are found and read in memory");
    mirt_strategy *strategy = quiet();
    mirt_model *model = mirt_model_create(strategy, NULL);
    mirt_model_output(model, mirt_flatten(mirt_input(model, MIRT_SHAPE(2, 2, 1))));
    mirt_compile(model, NULL);
    float out[16];
    int wrong = mirt_predict(model, data, out, 16) != MIRT_OK;
    for (int i = 0; i < 16 && !wrong; i++) wrong = out[i] != (float)i;
    ok(!wrong, "and hold what was written");
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(strategy);
    ok(files_open() == 0, "all files are closed");
    mem_unlink("mem:/train-images-idx3-ubyte");
    mem_unlink("mem:/train-labels-idx1-ubyte");
}

/* What a file system may do to the readers and writers of whole files. */
static void test_faults(void) {
    static const struct {
        mem_fault fault;
        bool saves, loads;
        const char *says;
    } cases[] = {
        {MEM_BLIND, true, false, "cannot get the status of the file"}, {MEM_GROWING, true, true, ""},
        {MEM_TAKEN, false, true, "cannot create a temporary file"},    {MEM_STUCK, false, true, "cannot write"},
        {MEM_UNSYNCED, false, true, "cannot sync the file"},           {MEM_NO_SYNC, true, true, ""},
        {MEM_DARK, false, true, "cannot open its directory"}};
    const char *path = "mem:/net.safetensors";
    mirt_strategy *strategy = quiet();
    mirt_model *model = mirt_model_by_name(strategy, "mnist");
    mirt_compile(model, NULL);
    mirt_save(model, path, MIRT_SAVE_ALL);
    for (int i = 0; i < (int)(sizeof cases / sizeof cases[0]); i++) {
        mem_broken = cases[i].fault;
        const bool saved = mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK;
        const bool said_save = saved || strstr(mirt_last_error(), cases[i].says) != NULL;
        mirt_model *loaded = mirt_load(strategy, path);
        const bool said_load = loaded || strstr(mirt_last_error(), cases[i].says) != NULL;
        mem_broken = MEM_FINE;
        mirt_model_destroy(loaded);
        ok(saved == cases[i].saves && said_save && (loaded != NULL) == cases[i].loads && said_load &&
               files_there() == 1 && files_open() == 0 && mirt_load_weights(model, path) == MIRT_OK,
           "fault %d: %s", (int)cases[i].fault, *cases[i].says ? cases[i].says : "no harm");
    }
    unsigned char *data;
    size_t size;
    ok(mirt__file_read(path, mem_find(path)->size - 1, &data, &size) == MIRT_E_FORMAT && !data, "too large: %s",
       mirt_last_error());
    mem_broken = MEM_GROWING;
    ok(mirt__file_read(path, mem_find(path)->size - 1, &data, &size) == MIRT_E_FORMAT && !data,
       "and grown while it was read: %s", mirt_last_error());
    mem_broken = MEM_FINE;
    mirt__file_writer writer;
    ok(mirt__file_begin(&writer, "mem:/half") == MIRT_OK && mirt__file_append(&writer, "0123", 4) == MIRT_OK,
       "a file begins");
    mem_broken = MEM_STUCK;
    ok(mirt__file_append(&writer, "4567", 4) == MIRT_E_IO, "a write fails");
    mem_broken = MEM_FINE;
    ok(mirt__file_append(&writer, "4567", 4) == MIRT_E_IO && mirt__file_commit(&writer) == MIRT_E_IO &&
           !mem_find("mem:/half") && files_there() == 1,
       "and then the file never appears");
    mirt__file_abort(&writer);
    mirt_strategy_destroy(strategy);
    mem_unlink(path);
}

int main(void) {
    test_models();
    test_faults();
    test_data();
    ok(blocks_ever > 100 && live_blocks == 0, "%d blocks of memory were asked for, and all given back", blocks_ever);
    return done_testing();
}
