/* Files that log a run line by line. A run that is resumed cuts its file where the checkpoint's ended. */
#include "log_file.h"

/* A line ends after the first `length` bytes, unless the file is shorter. MIRT_E_STATE: it is not that run's, and would
   be damaged. */
static mirt_status mirt__log_check_cut(const char *path, int64_t length) {
    uint64_t size;
    char last = '\n';
    int fd;
    if (mirt__is_device(path)) return MIRT_OK; /* mirt__append_open cuts nothing there */
    mirt_status status = mirt__file_open(path, &fd, &size);
    if (status == MIRT_E_NOT_FOUND) return MIRT_OK;
    if (status != MIRT_OK) return status;
    if (length > 0 && (uint64_t)length <= size && mirt__file_read_at(fd, (uint64_t)length - 1, &last, 1) < 0) {
        status = mirt__fail(MIRT_E_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    mirt__file_close(&fd);
    if (status != MIRT_OK || last == '\n') return status;
    return mirt__fail(MIRT_E_STATE,
                      "%s: is not the log of this run: no line ends after %lld bytes, where it would be cut; move the "
                      "file away or log to another one",
                      path, (long long)length);
}

static mirt_status mirt__log_file_accepts(const mirt__readymade *self, const mirt__ready_state *state) {
    return mirt__log_check_cut(((const mirt__log_file *)self)->path, state->value[0].integer);
}

static mirt_status mirt__log_file_sync(mirt__readymade *ready) {
    return mirt__append_sync(&((mirt__log_file *)ready)->file);
}

static void mirt__log_file_release(mirt__readymade *ready) {
    mirt__log_file *self = (mirt__log_file *)ready;
    mirt__append_close(&self->file);
    mirt__text_free(&self->line);
    mirt__free(self->path);
}

MIRT__LIB mirt__log_file *mirt__log_file_new(size_t size, const char *name, const mirt__state_field *fields,
                                             int num_fields, const char *path) {
    mirt__log_file *self = (mirt__log_file *)mirt__ready_new(size, name, fields, num_fields);
    if (!self) return NULL;
    self->file.fd = -1;
    self->ready.release = mirt__log_file_release;
    self->ready.accepts = mirt__log_file_accepts;
    self->ready.sync = mirt__log_file_sync;
    self->ready.logs = true;
    self->ready.file = self->path = mirt__strdup(path);
    if (self->path) return self;
    mirt_callback_destroy(&self->ready.base);
    return NULL;
}

MIRT__LIB mirt_status mirt__log_file_open(mirt__log_file *self, int64_t keep) {
    mirt__append_close(&self->file);
    mirt_status status = mirt__make_directory_of(self->path);
    return status == MIRT_OK ? mirt__append_open(&self->file, self->path, keep) : status;
}

MIRT__LIB mirt_status mirt__log_file_write(mirt__log_file *self) {
    mirt__text_add(&self->line, "\n");
    if (self->line.failed) return mirt_last_status();
    mirt_status status = mirt__append(&self->file, self->line.data, self->line.size);
    self->length = (int64_t)self->file.size;
    return status;
}
