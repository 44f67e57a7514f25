/* Fuzzes tar archives of photographs. The first byte chooses what is asked of them, and whether the rest is the archive
   or tells which members to write. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#define FUZZ_SEEDS write_seeds
#include "fuzz_main.h"
#include "fuzz_words.h"
#include "tar_util.h"

enum { LABELS = 1, NAMED = 2, SHUFFLED = 4, SPLIT = 8, READ = 16, RAW = 32, SEALED = 64, SHORTER = 128 };

/* Any bytes are a pixel. */
static int decode(const unsigned char *bytes, size_t size, mirt_image *out, void *user) {
    (void)user;
    if (size && bytes[0] == '!') return 1;
    if (mirt_image_create(out, 1, 1, 3) != MIRT_OK) return 1;
    memset(out->pixels, size ? bytes[size - 1] : 0, 3);
    return 0;
}

/* A member: type, length of its name and the name, length of its content and the content, and what its size is said to
   be. */
static void write_member(tar_bytes *tar, fuzz_input *in) {
    static const char types[] = "0000LxxgK517S23\0";
    char name[100];
    unsigned char content[256];
    const char type = types[fuzz_byte(in) & 15];
    const size_t length = fuzz_byte(in) % sizeof name;
    fuzz_bytes(in, name, length);
    name[length] = 0;
    const size_t size = fuzz_byte(in);
    fuzz_bytes(in, content, size);
    const size_t at = tar_add(tar, name, content, size, type);
    const uint8_t lie = fuzz_byte(in);
    if (at + 512 > TAR_MOST) return;
    if (lie >= 0xF0) fuzz_bytes(in, tar->data + at + 124 + (lie & 3) * 4, 4);
    else if (lie & 1) memcpy(tar->data + at + 345, "prefix", 7);
    tar_seal(tar->data + at);
}

static void write_archive(tar_bytes *tar, fuzz_input *in, int flags) {
    tar->size = 0;
    if (flags & RAW) {
        tar->size = (size_t)(in->end - in->at) < TAR_MOST ? (size_t)(in->end - in->at) : TAR_MOST;
        fuzz_bytes(in, tar->data, tar->size);
        for (size_t at = 0; flags & SEALED && at + 512 <= tar->size; at += 512)
            if (memcmp(tar->data + at + 257, "ustar", 5) == 0) tar_seal(tar->data + at);
        return;
    }
    while (in->at < in->end && tar->size + 2048 < TAR_MOST) write_member(tar, in);
    if (!(flags & SEALED)) tar_end(tar);
}

/* Members lie in the archive, one after the other. */
static void check_list(const mirt_dataset *dataset, const char *path, size_t size, bool labels) {
    const mirt__image_list *list = &mirt__images_of(dataset)->list;
    uint64_t end = 512;
    for (int64_t i = 0; i < list->count; i++) {
        const mirt__image_file *file = &list->file[i];
        FUZZ_CHECK(strncmp(file->path, path, strlen(path)) == 0 && file->path[strlen(path)] == '/' && file->shard == 0);
        FUZZ_CHECK(file->offset >= end && file->offset <= size && file->size <= size - file->offset);
        FUZZ_CHECK(file->label >= 0 && (!labels || file->label < list->num_classes));
        FUZZ_PLANT(i > 0 && file->label > 20 && file->size > 0);
        end = file->offset + file->size;
    }
}

static void read_pass(mirt_dataset *dataset) {
    mirt__batch batch;
    int64_t rows = 0;
    if (mirt__dataset_begin(dataset, 1, 0) != MIRT_OK) return;
    while (mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows) rows += batch.rows;
    FUZZ_CHECK(rows <= mirt_dataset_size(dataset));
}

#ifdef FUZZER
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed) {
    static const char *const words[] = {"a.jpg", "a.cls", "b.png", "b.cls", "path=", "size=", "11 path=ab\n",
        "12 size=512\n", "GNU.sparse.", "a/b", ".", "..", "/", "__", "0", "1", "99", "\x80", "ustar"};
    fuzz_random = seed;
    if (size < 2 || fuzz_below(3) == 0) return LLVMFuzzerMutate(data, size, most);
    return fuzz_exchange_words(data, 1, size, size, most, words, MIRT__COUNT(words));
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"a", "b", "c"};
    static tar_bytes tar;
    mirt_image_directory_desc desc;
    char path[512];
    fuzz_input in = {data, data + size};
    const int flags = fuzz_byte(&in);
    memset(&desc, 0, sizeof desc);
    desc.height = desc.width = 1;
    desc.batch_size = MIRT_NO_BATCH;
    desc.label_mode = flags & LABELS ? MIRT_LABELS_INT : MIRT_LABELS_NONE;
    desc.corrupt = MIRT_CORRUPT_SKIP;
    desc.decode.decoder = decode;
    if ((flags & NAMED) && (flags & LABELS)) desc.class_names = names, desc.num_class_names = MIRT__COUNT(names);
    if (flags & SPLIT) {
        desc.validation_split = 0.5;
        desc.subset = MIRT_SUBSET_VALIDATION;
        desc.has_seed = true;
    }
    write_archive(&tar, &in, flags);
    fuzz_put(fuzz_path("a.tar", path), tar.data, tar.size);
    mirt_dataset *dataset = mirt_tar_dataset(path, &desc);
    if (dataset) check_list(dataset, path, tar.size, flags & LABELS);
    if (flags & SHUFFLED) dataset = mirt_shuffle(dataset, 2);
    dataset = mirt_batch(dataset, 2);
    if (dataset && (flags & SHORTER)) fuzz_put(path, tar.data, tar.size / 2);
    if (dataset && (flags & READ)) read_pass(dataset);
    mirt_dataset_destroy(dataset);
    return 0;
}

/* >>seeds */

#ifndef FUZZER
static void add_bytes(uint8_t *out, size_t *size, const void *bytes, size_t count) {
    memcpy(out + *size, bytes, count);
    *size += count;
}

static void add_member(uint8_t *out, size_t *size, int type, const char *name, const char *content) {
    const uint8_t head[] = {(uint8_t)type, (uint8_t)strlen(name)}, length = (uint8_t)strlen(content), lie = 0;
    add_bytes(out, size, head, 2);
    add_bytes(out, size, name, strlen(name));
    add_bytes(out, size, &length, 1);
    add_bytes(out, size, content, strlen(content));
    add_bytes(out, size, &lie, 1);
}

static void write_seed(const char *directory, const char *name, const uint8_t *data, size_t size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    fuzz_put(path, data, size);
}

/* A name of 124 bytes, and a pax header that gives it. */
static const char *long_name(const char *ending) {
    static char name[128];
    memset(name, 'n', 120);
    snprintf(name + 120, sizeof name - 120, "%s", ending);
    return name;
}

static const char *long_record(const char *ending) {
    static char record[160];
    snprintf(record, sizeof record, "134 path=%s\n", long_name(ending));
    return record;
}

static void write_seeds(const char *directory) {
    static const int flags[] = {LABELS | READ, LABELS | NAMED | READ | SHUFFLED, READ | SPLIT,
                                LABELS | SHUFFLED | READ | SHORTER};
    static tar_bytes tar;
    static uint8_t out[TAR_MOST];
    char name[32];
    for (int i = 0; i < MIRT__COUNT(flags); i++) {
        size_t size = 1;
        out[0] = (uint8_t)flags[i];
        add_member(out, &size, 0, "a.jpg", "1234");
        add_member(out, &size, 0, "a.cls", "\n1 ");
        add_member(out, &size, i > 1 ? 4 : 5, "x", i > 1 ? long_name(".png") : long_record(".png"));
        add_member(out, &size, 0, "b.png", "56");
        add_member(out, &size, i > 1 ? 4 : 5, "x", i > 1 ? long_name(".cls") : long_record(".cls"));
        add_member(out, &size, 0, "b.cls", "\n0\n");
        add_member(out, &size, 9, "directory", "");
        snprintf(name, sizeof name, "members-%d", i);
        write_seed(directory, name, out, size);
    }
    tar.size = 0;
    tar_text(&tar, "a.jpg", "1");
    tar_text(&tar, "a.cls", "1");
    tar_pax(&tar, "path", long_name(".jpg"));
    tar_text(&tar, "0.jpg", "12");
    tar_pax(&tar, "path", long_name(".cls"));
    tar_text(&tar, "0.cls", " 2\n");
    tar_end(&tar);
    out[0] = RAW | LABELS | READ;
    memcpy(out + 1, tar.data, tar.size);
    write_seed(directory, "raw", out, tar.size + 1);
    out[0] |= SEALED;
    write_seed(directory, "sealed", out, tar.size + 1);
}
#endif
