/* ModelCheckpoint, and BackupAndRestore, which also resumes from its own files. */
#include "../base/file.h"
#include "../checkpoint/run_state.h"
#include "callbacks.h"

#include <dirent.h>
#include <signal.h>
#include <sys/types.h>

typedef struct mirt__checkpointer {
    mirt__watcher watcher;
    mirt_model_checkpoint_desc desc;
    char *pattern, *directory; /* directory of a backup, which is removed after training */
    bool keeps_backup;
    char *files;               /* files written so far and not removed, one per line, oldest first */
    int64_t last_step;         /* step of the last file, which */
    bool last_whole;           /* was written at the end of an epoch */
    bool interrupted;          /* this epoch has been written */
    mirt__text path;
} mirt__checkpointer;

static const mirt__state_field mirt__checkpointer_fields[] = {
    MIRT__WATCHER_FIELDS,
    {"files", MIRT__STATE_TEXT, offsetof(mirt__checkpointer, files), 0, 0, NULL},
    {"last_step", MIRT__STATE_INT64, offsetof(mirt__checkpointer, last_step), -1, (int64_t)1 << 53, NULL},
    MIRT__STATE_FLAG(mirt__checkpointer, last_whole),
};

/* >>patterns */

/* A placeholder in a pattern: {name:08.3f}. */
typedef struct mirt__blank {
    char name[64], flags[24], type;
} mirt__blank;

/* Parses the placeholder at `at`, a brace; returns the end of it, or NULL with the error set. */
static const char *mirt__blank_read(const char *who, const char *pattern, const char *at, mirt__blank *out) {
    size_t name = strcspn(at + 1, ":{}"), length = 0;
    const char *end = at + 1 + name;
    out->type = 0;
    out->flags[0] = 0;
    if (*end == ':') {
        length = strspn(end + 1, "0123456789.");
        if (length < sizeof out->flags - 1) {
            memcpy(out->flags, end + 1, length);
            out->flags[length] = 0;
        }
        end += 1 + length;
        if (*end && strchr("dfeg", *end)) out->type = *end++;
    }
    const char *point = strchr(out->flags, '.');
    bool short_flags = atoi(out->flags) <= 64 && (!point || (atoi(point + 1) <= 64 && !strchr(point + 1, '.')));
    if (*end == '}' && name > 0 && name < sizeof out->name && length < sizeof out->flags - 1 && short_flags) {
        memcpy(out->name, at + 1, name);
        out->name[name] = 0;
        return end + 1;
    }
    mirt__fail(MIRT_E_INVALID, "%s: the path \"%s\" is invalid at \"%.24s\": a placeholder is {epoch}, {step:08d}"
                               " or {val_loss:.2f}", who, pattern, at);
    return NULL;
}

static void mirt__blank_write(const mirt__blank *blank, const mirt_event *event, mirt__text *out) {
    const bool epoch = strcmp(blank->name, "epoch") == 0, counts = epoch || strcmp(blank->name, "step") == 0;
    const long long number = epoch ? (long long)event->epoch + 1 : (long long)event->model->step;
    char format[40];
    if (counts && (blank->type == 0 || blank->type == 'd')) {
        snprintf(format, sizeof format, "%%%.*slld", (int)strcspn(blank->flags, "."), blank->flags);
        mirt__text_add(out, format, number);
        return;
    }
    snprintf(format, sizeof format, "%%%s%c", blank->flags, blank->type && blank->type != 'd' ? blank->type : 'g');
    mirt__text_add(out, format, counts ? (double)number : mirt_logs_value(event->logs, blank->name));
}

/* Expands the pattern into self->path. `event` may be NULL for a pattern without placeholders. */
static mirt_status mirt__pattern_write(mirt__checkpointer *self, const mirt_event *event) {
    mirt__text *out = &self->path;
    mirt__blank blank;
    mirt__text_clear(out);
    for (const char *at = self->pattern; *at;) {
        if (*at != '{' && *at != '}') {
            mirt__text_add_bytes(out, at++, 1);
        } else if (at[1] == *at) {
            mirt__text_add_bytes(out, at, 1);
            at += 2;
        } else {
            if (!(at = mirt__blank_read(self->watcher.who, self->pattern, at, &blank))) return mirt_last_status();
            mirt__blank_write(&blank, event, out);
        }
    }
    return out->failed ? mirt_last_status() : MIRT_OK;
}

/* Checks that this fit has values for all placeholders when files are written. */
static mirt_status mirt__pattern_check(const mirt__checkpointer *self, const mirt_event *event) {
    const char *names[MIRT_MAX_LOGS + 2] = {"epoch", "step"};
    mirt__blank blank;
    const bool by_steps = self->desc.every_steps > 0;
    const int count = 2 + mirt__log_names(event->model, event->validation && !by_steps, names + 2);
    for (const char *at = self->pattern; (at = strpbrk(at, "{}")) != NULL;) {
        bool known = false;
        mirt__suggestion like;
        if (at[1] == *at) {
            at += 2;
            continue;
        }
        if (!(at = mirt__blank_read(self->watcher.who, self->pattern, at, &blank))) return mirt_last_status();
        memset(&like, 0, sizeof like);
        like.word = blank.name;
        for (int i = 0; i < count; i++) {
            known = known || strcmp(names[i], blank.name) == 0;
            mirt__guess(&like, names[i]);
        }
        if (known) continue;
        const char *hint = mirt__did_you_mean(&like);
        mirt__text list = {NULL, 0, 0, false};
        for (int i = 0; i < count; i++) mirt__text_add(&list, "%s{%s}", i ? ", " : "", names[i]);
        mirt__fail(MIRT_E_INVALID, "%s: the path \"%s\" has {%s}, which %s%s%s%s", self->watcher.who, self->pattern,
                   blank.name,
                   by_steps && strncmp(blank.name, "val_", 4) == 0 ? "is unknown at the end of a step"
                                                                   : "this fit does not report",
                   hint, *hint ? " There are " : "; there are ", list.data ? list.data : "none");
        mirt__text_free(&list);
        return mirt_last_status();
    }
    return MIRT_OK;
}

/* >>files */

/* Removes incomplete files of ended processes with names of this pattern. */
static void mirt__checkpointer_clean(const char *pattern) {
    const char *slash = strrchr(pattern, '/'), *name = slash ? slash + 1 : pattern;
    const size_t fixed = strcspn(name, "{}"), directory = (size_t)(name - pattern);
    char path[2048];
    DIR *stream = NULL;
    if (directory + 300 > sizeof path) return;
    snprintf(path, sizeof path, "%.*s", directory ? (int)directory : 1, directory ? pattern : ".");
    if (!strpbrk(path, "{}")) stream = MIRRORTRAIN_OPENDIR(path);
    for (const struct dirent *entry; stream && (entry = readdir(stream)) != NULL;) {
        const char *tail = entry->d_name + strlen(entry->d_name);
        long process = 0;
        int attempt = 0, end = 0;
        for (int points = 0; tail > entry->d_name && points < 2;) points += *--tail == '.'; /* ".123-0.tmp" */
        if (strncmp(entry->d_name, name, fixed) != 0 || strlen(entry->d_name) > 255 ||
            sscanf(tail, ".%ld-%d.tmp%n", &process, &attempt, &end) != 2)
            continue;
        if (end == 0 || tail[end] || process <= 0 || kill((pid_t)process, 0) == 0 || errno != ESRCH) continue;
        snprintf(path, sizeof path, "%.*s%.255s", (int)directory, pattern, entry->d_name);
        mirt__file_remove(path);
    }
    if (stream) closedir(stream);
}

/* Makes new files newer than all existing ones, regardless of changes of the clock. */
static mirt_status mirt__checkpointer_follow(char *path, mirt__training_run *run) {
    char *slash = strrchr(path, '/');
    int64_t saved;
    if (slash) slash[slash == path] = 0;
    if (mirt__checkpoint_newest(slash ? path : ".", &saved) != MIRT_OK) return mirt_last_status();
    if (run->at.saved < saved) run->at.saved = saved;
    return MIRT_OK;
}

static mirt_status mirt__checkpointer_probe(mirt__checkpointer *self, const mirt_event *event) {
    mirt__file_writer writer;
    if (mirt__pattern_write(self, event) != MIRT_OK) return mirt_last_status();
    if (!mirt__writes_files(event->model->strategy)) return MIRT_OK;
    mirt_status status = mirt__make_directory_of(self->path.data);
    if (status == MIRT_OK) status = mirt__file_begin(&writer, self->path.data);
    if (status == MIRT_OK) mirt__file_abort(&writer);
    if (status == MIRT_OK) mirt__checkpointer_clean(self->pattern);
    if (status == MIRT_OK) status = mirt__checkpointer_follow(self->path.data, event->model->run);
    return status == MIRT_OK ? MIRT_OK : (mirt__fail_at("%s cannot write", self->watcher.who), status);
}

/* Moves `path` to the end of the list, or appends it. */
static mirt_status mirt__files_add(mirt__checkpointer *self, const char *path) {
    mirt__text list = {NULL, 0, 0, false};
    const size_t size = strlen(path);
    for (const char *line = self->files ? self->files : ""; *line;) {
        size_t length = strcspn(line, "\n");
        if (length != size || memcmp(line, path, size) != 0) mirt__text_add(&list, "%.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    mirt__text_add(&list, "%s\n", path);
    if (list.failed) {
        mirt__text_free(&list);
        return MIRT_E_NOMEM;
    }
    mirt__free(self->files);
    self->files = list.data;
    return MIRT_OK;
}

/* Whether the pattern can produce this name: placeholders stand for numbers. It suffices to try the earliest match of
   the text between two placeholders: if a later one matches, its placeholder accepts all characters up to there, and so
   does the next placeholder. This limits the time to the product of the lengths, whatever a file lists. */
static bool mirt__pattern_gives(const char *pattern, const char *path, const char *end) {
    const char *rest = NULL, *from = NULL; /* the text after the last placeholder, and where its search began */
    for (;;) {
        if (*pattern == '{' && pattern[1] != '{') {
            rest = pattern = strchr(pattern, '}') + 1;
            from = path;
        } else if (!*pattern && path == end) {
            return true;
        } else if (*pattern && path < end && *path == *pattern) {
            pattern += 1 + (*pattern == '{' || *pattern == '}');
            path++;
        } else {
            if (!rest || from == end || !strchr("0123456789+-.einfa ", *from)) return false;
            pattern = rest;
            path = ++from;
        }
    }
}

/* No placeholder was replaced by "." or "..", so the name is in a directory of the pattern. */
static bool mirt__pattern_stays(const char *pattern, const char *path, const char *end) {
    for (;;) {
        const char *next = (const char *)memchr(path, '/', (size_t)(end - path));
        const size_t length = (size_t)((next ? next : end) - path), literal = strcspn(pattern, "/");
        const bool dots = (length == 1 && path[0] == '.') || (length == 2 && path[0] == '.' && path[1] == '.');
        if (dots && (literal != length || memcmp(path, pattern, length) != 0)) return false;
        if (!next) return true;
        path = next + 1;
        pattern += literal + (pattern[literal] == '/');
    }
}

/* A checkpoint may be a copy from another directory or untrusted: never remove listed files that do not match the
   pattern. */
static void mirt__files_own(mirt__checkpointer *self) {
    char *to = self->files;
    for (const char *line = to; line && *line;) {
        const char *end = line + strcspn(line, "\n"), *next = end + (*end == '\n');
        if (*end && mirt__pattern_gives(self->pattern, line, end) && mirt__pattern_stays(self->pattern, line, end)) {
            memmove(to, line, (size_t)(next - line));
            to += next - line;
        }
        line = next;
    }
    if (to) *to = 0;
}

static mirt_status mirt__checkpointer_remove(const char *path, const mirt_event *event) {
    return mirt__writes_files(event->model->strategy) ? mirt__file_remove(path) : MIRT_OK;
}

/* Removes the oldest files if there are too many. */
static void mirt__files_trim(mirt__checkpointer *self, const mirt_event *event) {
    int count = 0;
    for (const char *at = self->files; *at; at++) count += *at == '\n';
    for (; self->desc.keep && count > self->desc.keep; count--) {
        char *end = strchr(self->files, '\n');
        *end = 0;
        if (mirt__checkpointer_remove(self->files, event) != MIRT_OK)
            mirt__log(event->model->strategy, MIRT_LOG_WARNING, "%s: %s", self->watcher.who, mirt_last_error());
        memmove(self->files, end + 1, strlen(end + 1) + 1);
    }
}

static int mirt__checkpointer_save(mirt__checkpointer *self, const mirt_event *event, bool whole) {
    if (mirt__pattern_write(self, event) != MIRT_OK) return MIRT_CALLBACK_FAILED;
    if (mirt__writes_files(event->model->strategy) && mirt__make_directory_of(self->path.data) != MIRT_OK)
        return MIRT_CALLBACK_FAILED; /* its name may contain placeholders */
    if (self->desc.keep && mirt__files_add(self, self->path.data) != MIRT_OK) return MIRT_CALLBACK_FAILED;
    self->last_step = event->model->step;
    self->last_whole = whole;
    if (mirt_save(event->model, self->path.data, self->desc.weights_only ? MIRT_SAVE_WEIGHTS_ONLY : MIRT_SAVE_ALL) !=
        MIRT_OK)
        return MIRT_CALLBACK_FAILED;
    if (self->desc.keep) mirt__files_trim(self, event);
    return 0;
}

/* >>when to write */

static int mirt__checkpointer_begin(const mirt_event *event, void *user) {
    mirt__checkpointer *self = (mirt__checkpointer *)user;
    if (self->desc.best_only && mirt__watcher_begin(&self->watcher, event) != MIRT_OK)
        return MIRT_CALLBACK_FAILED;
    if (self->desc.best_only && self->desc.every_steps && strncmp(self->watcher.monitor, "val_", 4) == 0) {
        mirt__fail(
            MIRT_E_INVALID,
            "%s watches \"%s\", which is unknown at the end of a step: best_only with every_steps needs a training log",
            self->watcher.who, self->watcher.monitor);
        return MIRT_CALLBACK_FAILED;
    }
    if (mirt__pattern_check(self, event) != MIRT_OK || mirt__checkpointer_probe(self, event) != MIRT_OK)
        return MIRT_CALLBACK_FAILED;
    if (!self->watcher.ready.loaded) {
        self->watcher.has_best = self->last_whole = false;
        self->last_step = -1;
        mirt__free(self->files);
        self->files = NULL;
    }
    mirt__files_own(self);
    self->watcher.ready.loaded = self->interrupted = false;
    return 0;
}

static int mirt__checkpointer_epoch_begin(const mirt_event *event, void *user) {
    (void)event;
    ((mirt__checkpointer *)user)->interrupted = false;
    return 0;
}

/* Whether to write a file now. */
static bool mirt__checkpointer_due(mirt__checkpointer *self, const mirt_event *event, mirt__moment moment) {
    const int64_t step = event->model->step, every = self->desc.every_steps;
    const bool again = self->last_step == step && !self->last_whole;
    switch (moment) {
    /* at parameter servers a step of this worker is no state of the run */
    case MIRT__BATCH_END: return every > 0 && step % every == 0 && !event->model->strategy->servers;
    case MIRT__INTERRUPTED:
        self->interrupted = true;
        return self->desc.at_end && !again;
    case MIRT__EPOCH_END:
        if (self->interrupted && self->desc.at_end) return false; /* the last file resumes in this epoch */
        return every == 0 || (self->desc.at_end && (event->model->run->stop || event->epoch + 1 == event->epochs));
    default: return false;
    }
}

static int mirt__checkpointer_after(mirt__readymade *ready, const mirt_event *event, mirt__moment moment) {
    mirt__checkpointer *self = (mirt__checkpointer *)ready;
    if (moment == MIRT__TRAIN_END && self->directory && !self->keeps_backup &&
        mirt__pattern_write(self, NULL) == MIRT_OK)
        mirt__checkpointer_remove(self->path.data, event);
    if (!mirt__checkpointer_due(self, event, moment)) return 0;
    if (self->desc.best_only &&
        !mirt__watcher_improved(&self->watcher, mirt_logs_value(event->logs, self->watcher.monitor)))
        return 0;
    return mirt__checkpointer_save(self, event, moment == MIRT__EPOCH_END);
}

static void mirt__checkpointer_release(mirt__readymade *ready) {
    mirt__checkpointer *self = (mirt__checkpointer *)ready;
    mirt__free(self->watcher.monitor);
    mirt__free(self->pattern);
    mirt__free(self->directory);
    mirt__text_free(&self->path);
}

/* >>constructors */

static mirt_status mirt__checkpointer_check(const char *who, const mirt_model_checkpoint_desc *desc) {
    mirt__blank blank;
    if (!desc || !desc->path || !*desc->path) return mirt__fail(MIRT_E_INVALID, "%s: the path is missing", who);
    const size_t line = strcspn(desc->path, "\n"); /* the list of files has one per line */
    if (desc->path[line])
        return mirt__fail(MIRT_E_INVALID, "%s: the path \"%.*s...\" contains a line break", who,
                          line < 200 ? (int)line : 200, desc->path);
    if (mirt_save_check(desc->path) != MIRT_OK) return mirt__fail_at("%s", who);
    if (desc->every_steps < 0 || desc->keep < 0)
        return mirt__fail(MIRT_E_INVALID, "%s: every_steps %lld and keep %d must not be negative", who,
                          (long long)desc->every_steps, desc->keep);
    for (const char *at = desc->path; (at = strpbrk(at, "{}")) != NULL;) {
        if (at[1] == *at) at += 2;
        else if (*at == '}' || !(at = mirt__blank_read(who, desc->path, at, &blank))) {
            return at ? mirt__fail(MIRT_E_INVALID, "%s: the path \"%s\" closes a brace that it did not open", who,
                                   desc->path)
                      : mirt_last_status();
        }
    }
    return MIRT_OK;
}

static mirt__checkpointer *mirt__checkpointer_new(const char *name, const char *who,
                                                  const mirt_model_checkpoint_desc *desc) {
    if (mirt__checkpointer_check(who, desc) != MIRT_OK) return NULL;
    mirt__checkpointer *self = (mirt__checkpointer *)mirt__watcher_new(
        sizeof *self, name, MIRT__FIELDS(mirt__checkpointer_fields), who, desc->monitor, desc->mode, 0);
    if (!self) return NULL;
    mirt__readymade *ready = &self->watcher.ready;
    self->desc = *desc;
    ready->release = mirt__checkpointer_release;
    ready->after = mirt__checkpointer_after;
    ready->every = desc->every_steps;
    ready->base.train_begin = mirt__checkpointer_begin;
    ready->base.epoch_begin = mirt__checkpointer_epoch_begin;
    ready->file = self->pattern = mirt__strdup(desc->path);
    if (self->pattern) return self;
    mirt_callback_destroy(&ready->base);
    return NULL;
}

MIRT_API mirt_callback *mirt_model_checkpoint(const mirt_model_checkpoint_desc *desc) {
    MIRT__ENTER;
    mirt__checkpointer *self = mirt__checkpointer_new("model_checkpoint", "model checkpoint", desc);
    return self ? &self->watcher.ready.base : NULL;
}

MIRT_API mirt_callback *mirt_backup_and_restore(const mirt_backup_desc *desc) {
    MIRT__ENTER;
    mirt_model_checkpoint_desc checkpoint;
    mirt__text path = {NULL, 0, 0, false};
    memset(&checkpoint, 0, sizeof checkpoint);
    if (!desc || !desc->directory || !*desc->directory) {
        mirt__fail(MIRT_E_INVALID, "mirt_backup_and_restore: no directory");
        return NULL;
    }
    for (const char *at = desc->directory; *at; at++)
        mirt__text_add(&path, *at == '{' ? "{{" : *at == '}' ? "}}" : "%c", *at);
    mirt__text_add(&path, "/backup.safetensors");
    checkpoint.path = path.data;
    checkpoint.every_steps = desc->every_steps;
    mirt__checkpointer *self =
        path.failed ? NULL : mirt__checkpointer_new("backup_and_restore", "backup and restore", &checkpoint);
    mirt__text_free(&path);
    if (!self) return NULL;
    self->directory = mirt__strdup(desc->directory);
    self->watcher.ready.restores = self->directory;
    self->keeps_backup = desc->keep;
    if (self->directory) return &self->watcher.ready.base;
    mirt_callback_destroy(&self->watcher.ready.base);
    return NULL;
}
