/* Finding the newest checkpoint that is whole. */
#include "../base/file.h"
#include "checkpoint.h"

#include <dirent.h>

typedef struct mirt__candidate {
    const char *path;
    int64_t saved, step; /* when, by whoever wrote it; training steps */
    bool run;            /* a fit can go on from it */
} mirt__candidate;

typedef struct mirt__candidates {
    const mirt_strategy *strategy; /* whose log tells of damaged ones, or NULL */
    const char *directory;
    mirt__pool pool;
    mirt__candidate *list;
    int count, capacity;
    bool others; /* a look is taken at files of others as well, to tell of damaged ones */
    const char *refused; /* one of these */
} mirt__candidates;

/* The header of a safetensors file as JSON, NULL if it is none, or if memory ran out. */
static const mirt__json *mirt__checkpoint_header(mirt__pool *pool, const char *path, bool *memory) {
    unsigned char length[8];
    uint64_t size, header = 0;
    const mirt__json *json = NULL;
    int fd;
    if (mirt__file_open(path, &fd, &size) != MIRT_OK) return NULL;
    bool good = mirt__file_read_at(fd, 0, length, 8) == 8;
    for (int i = 7; i >= 0; i--) header = header << 8 | length[i];
    good = good && header > 0 && header <= MIRT__ST_HEADER_LIMIT && header <= size - 8;
    char *text = good ? (char *)mirt__pool_alloc(pool, (size_t)header) : NULL;
    if (text && mirt__file_read_at(fd, 8, text, (size_t)header) != (int64_t)header) good = false;
    if (text && good) json = mirt__json_parse(pool, text, (size_t)header);
    *memory = !good || json || mirt_last_status() != MIRT_E_NOMEM;
    mirt__file_close(&fd);
    return json;
}

static void mirt__candidate_int(const mirt__json *object, const char *key, int64_t *out) {
    const mirt__json *value = mirt__json_member(object, key);
    const int64_t most =
        (int64_t)1 << 53; /* as in a run that is resumed; anything else orders as if it were not there */
    if (value && value->type == MIRT__JSON_NUMBER && value->integral && value->integer >= 0 && value->integer <= most)
        *out = value->integer;
}

/* False: it is no file of ours, or *memory is false. */
static bool mirt__candidate_look(const char *path, mirt__candidate *out, bool *memory) {
    mirt__pool pool = {NULL};
    const mirt__json *header = mirt__checkpoint_header(&pool, path, memory);
    const mirt__json *text = mirt__json_member(mirt__json_member(header, "__metadata__"), "training");
    bool ours = text && text->type == MIRT__JSON_STRING;
    const mirt__json *training = ours ? mirt__json_parse(&pool, text->string, strlen(text->string)) : NULL;
    const mirt__json *run = mirt__json_member(training, "run");
    mirt__candidate_int(training, "iterations", &out->step);
    mirt__candidate_int(run ? run : training, "saved", &out->saved);
    out->run = run != NULL;
    if (ours && !training) *memory = mirt_last_status() != MIRT_E_NOMEM;
    mirt__pool_free(&pool);
    return ours;
}

static bool mirt__ends_in(const char *name, const char *ending) {
    const size_t size = strlen(name), end = strlen(ending);
    return size >= end && strcmp(name + size - end, ending) == 0;
}

static void mirt__checkpoint_damaged(const mirt_strategy *strategy, const char *path) {
    if (strategy) mirt__log(strategy, MIRT_LOG_WARNING, "%s is damaged and passed over: %s", path, mirt_last_error());
}

static mirt_status mirt__candidate_add(mirt__candidates *c, const char *name) {
    mirt__candidate found;
    if (name[0] == '.' || mirt__ends_in(name, ".tmp")) return MIRT_OK;
    const char *slash = mirt__ends_in(c->directory, "/") ? "" : "/",
               *path = mirt__pool_print(&c->pool, "%s%s%s", c->directory, slash, name);
    if (!path) return MIRT_E_NOMEM;
    memset(&found, 0, sizeof found);
    found.path = path;
    if (mirt__is_directory(path)) return MIRT_OK;
    bool memory = true, ours = mirt__candidate_look(path, &found, &memory);
    if (!memory) return MIRT_E_NOMEM;
    if (!ours) {
        mirt__safetensors file;
        if (!c->others || !mirt__ends_in(name, ".safetensors")) return MIRT_OK;
        if (mirt__safetensors_open(&file, path) == MIRT_OK) mirt__safetensors_close(&file); /* of somebody else */
        else mirt__checkpoint_damaged(c->strategy, c->refused = path);
        return MIRT_OK;
    }
    if (c->count == c->capacity) {
        int capacity = c->capacity ? 2 * c->capacity : 16;
        if (!mirt__grow((void **)&c->list, (size_t)c->count, (size_t)capacity, sizeof *c->list)) return MIRT_E_NOMEM;
        c->capacity = capacity;
    }
    c->list[c->count++] = found;
    return MIRT_OK;
}

/* qsort's comparison: the newest first. */
static int mirt__candidate_compare(const void *a, const void *b) {
    const mirt__candidate *x = (const mirt__candidate *)a, *y = (const mirt__candidate *)b;
    if (x->saved != y->saved) return x->saved > y->saved ? -1 : 1;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    return strcmp(y->path, x->path);
}

static mirt_status mirt__candidates_read(mirt__candidates *c, const char *directory) {
    mirt_status status = MIRT_OK;
    c->directory = directory;
    DIR *stream = MIRRORTRAIN_OPENDIR(directory);
    if (!stream)
        return mirt__fail(errno == ENOENT ? MIRT_E_NOT_FOUND : MIRT_E_IO, "%s: cannot open the directory: %s",
                          directory, strerror(errno));
    while (status == MIRT_OK) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry && errno)
            status = mirt__fail(MIRT_E_IO, "%s: cannot read the directory: %s", directory, strerror(errno));
        if (!entry) break;
        status = mirt__candidate_add(c, entry->d_name);
    }
    closedir(stream);
    return status;
}

MIRT__LIB mirt_status mirt__checkpoint_open(mirt__safetensors *file, const char *path) {
    mirt_status status = mirt__safetensors_open(file, path);
    if (status != MIRT_OK || file->sha256[0]) return status;
    status = mirt__fail(
        MIRT_E_FORMAT,
        "%s has no checksums (mirrortrain.crc32c, .header and .sha256), so nothing tells whether it is whole: "
        "only files as the library wrote them are resumed; mirt_load and mirt_load_weights read this one",
        path);
    mirt__safetensors_close(file);
    return status;
}

MIRT__LIB mirt_status mirt__checkpoint_latest(const mirt_strategy *strategy, const char *directory, bool runs,
                                              mirt__safetensors *file, bool *found) {
    const char *refused = NULL; /* the newest one */
    mirt__candidates c;
    memset(&c, 0, sizeof c);
    c.strategy = strategy;
    c.others = true;
    *found = false;
    mirt_status status = mirt__candidates_read(&c, directory);
    if (status == MIRT_OK && c.count) qsort(c.list, (size_t)c.count, sizeof *c.list, mirt__candidate_compare);
    for (int i = 0; i < c.count && status == MIRT_OK && !*found; i++) {
        if (runs && !c.list[i].run) continue;
        *found = mirt__checkpoint_open(file, c.list[i].path) == MIRT_OK;
        if (!*found && mirt_last_status() == MIRT_E_NOMEM) status = MIRT_E_NOMEM;
        else if (!*found) mirt__checkpoint_damaged(strategy, c.list[i].path);
        if (!*found && !refused) refused = c.list[i].path;
    }
    if (!refused) refused = c.refused;
    if (runs && status == MIRT_OK && !*found && refused) {
        /* A run that is lost is not begun anew unasked: the error says once more what is wrong. */
        *found = mirt__checkpoint_open(file, refused) == MIRT_OK;
        if (!*found)
            status =
                mirt__fail_at("mirt_fit: no checkpoint in %s can be used; move them away to begin anew", directory);
    }
    mirt__free(c.list);
    mirt__pool_free(&c.pool);
    return status;
}

MIRT__LIB mirt_status mirt__checkpoint_newest(const char *directory, int64_t *saved) {
    mirt__candidates c;
    memset(&c, 0, sizeof c);
    const bool memory = mirt__candidates_read(&c, directory) != MIRT_E_NOMEM;
    *saved = 0;
    for (int i = 0; i < c.count; i++) *saved = c.list[i].saved > *saved ? c.list[i].saved : *saved;
    mirt__free(c.list);
    mirt__pool_free(&c.pool);
    return memory ? MIRT_OK : mirt_last_status();
}

MIRT_API mirt_status mirt_latest_checkpoint(const mirt_strategy *strategy, const char *directory, char *path,
                                            size_t capacity) {
    MIRT__ENTER;
    mirt__safetensors file;
    bool found;
    if (!directory || !path || !capacity)
        return mirt__fail(MIRT_E_INVALID, "mirt_latest_checkpoint: no directory, or no place for the path");
    path[0] = 0;
    mirt_status status = mirt__checkpoint_latest(strategy, directory, false, &file, &found);
    if (status != MIRT_OK) return status;
    if (!found) return mirt__fail(MIRT_E_NOT_FOUND, "%s: there is no checkpoint in this directory", directory);
    const size_t size = strlen(file.origin) + 1;
    if (size <= capacity) memcpy(path, file.origin, size);
    else
        status = mirt__fail(MIRT_E_SHAPE, "mirt_latest_checkpoint: the path %s takes %d bytes, there is room for %d",
                            file.origin, (int)size, (int)capacity);
    mirt__safetensors_close(&file);
    return status;
}
