/* CSVLogger: writes logs as comma-separated values for Python's csv module. Values with a separator, quote or line
   break are quoted. */
#include "../base/file.h"
#include "../function/fit_program.h"
#include "callbacks.h"

typedef struct mirt__csv_logger {
    mirt__readymade ready;
    char *path;
    char separator;
    bool append;
    int64_t length; /* length of the file, which checkpoints store */
    mirt__appender file;
    const char *column[MIRT_MAX_LOGS]; /* names of logs, sorted; owned by the model */
    int columns;
    mirt__text line;
} mirt__csv_logger;

static const mirt__state_field mirt__csv_logger_fields[] = {MIRT__STATE_BYTES(mirt__csv_logger, length)};

static mirt_status mirt__csv_accepts(const mirt__readymade *self, const mirt__ready_state *state) {
    return mirt__log_check_cut(((const mirt__csv_logger *)self)->path, state->value[0].integer);
}

static void mirt__csv_add(mirt__text *line, const char *word, char separator) {
    if (!strchr(word, separator) && !strpbrk(word, "\"\r\n")) {
        mirt__text_add(line, "%s", word);
        return;
    }
    mirt__text_add(line, "\"");
    for (; *word; word++) mirt__text_add(line, *word == '"' ? "\"%c" : "%c", *word);
    mirt__text_add(line, "\"");
}

static mirt_status mirt__csv_write(mirt__csv_logger *self) {
    mirt__text_add(&self->line, "\n");
    if (self->line.failed) return mirt_last_status();
    mirt_status status = mirt__append(&self->file, self->line.data, self->line.size);
    self->length = (int64_t)self->file.size;
    return status;
}

static void mirt__csv_header(mirt__csv_logger *self) {
    mirt__text_clear(&self->line);
    mirt__text_add(&self->line, "epoch");
    for (int i = 0; i < self->columns; i++) {
        mirt__text_add(&self->line, "%c", self->separator);
        mirt__csv_add(&self->line, self->column[i], self->separator);
    }
}

static int mirt__csv_order(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The first line of a continued file must be the one that this fit would write. */
static mirt_status mirt__csv_check(mirt__csv_logger *self) {
    const size_t size = self->line.size;
    uint64_t all;
    int fd;
    if (mirt__file_open(self->path, &fd, &all) != MIRT_OK) return mirt_last_status();
    char *there = (char *)mirt__calloc(size + 3, 1);
    const int64_t got = there ? mirt__file_read_at(fd, 0, there, size + 2) : -1;
    mirt__file_close(&fd);
    bool same = got > (int64_t)size && memcmp(there, self->line.data, size) == 0 &&
                (there[size] == '\n' || there[size] == '\r');
    mirt_status status =
        !there ? mirt_last_status()
        : same ? MIRT_OK
               : mirt__fail(MIRT_E_INVALID,
                            "%s: cannot continue this file: its first line is not \"%s\", the columns of this fit",
                            self->path, self->line.data);
    mirt__free(there);
    return status;
}

static mirt_status mirt__csv_begin(mirt__csv_logger *self, const mirt_event *event) {
    mirt__append_close(&self->file);
    if (mirt__make_directory_of(self->path) != MIRT_OK || mirt__append_open(&self->file, self->path,
                                                                            self->ready.loaded ? self->length
                                                                            : self->append     ? -1
                                                                                               : 0) != MIRT_OK)
        return mirt_last_status();
    self->ready.loaded = false;
    self->columns = mirt__log_names(event->model, event->validation != NULL, self->column);
    qsort(self->column, (size_t)self->columns, sizeof *self->column, mirt__csv_order);
    mirt__csv_header(self);
    if (self->line.failed) return mirt_last_status();
    self->length = (int64_t)self->file.size;
    return self->file.size ? mirt__csv_check(self) : mirt__csv_write(self);
}

static int mirt__csv_train_begin(const mirt_event *event, void *user) {
    return mirt__callback_result(mirt__csv_begin((mirt__csv_logger *)user, event));
}

static int mirt__csv_epoch_end(const mirt_event *event, void *user) {
    mirt__csv_logger *self = (mirt__csv_logger *)user;
    mirt__text_clear(&self->line);
    mirt__text_add(&self->line, "%d", event->epoch);
    for (int i = 0; i < self->columns; i++) {
        bool there = false;
        for (int k = 0; k < event->logs->count; k++)
            there = there || strcmp(event->logs->name[k], self->column[i]) == 0;
        const double value = mirt_logs_value(event->logs, self->column[i]);
        mirt__text_add(&self->line, "%c", self->separator);
        if (there && value - value == 0) mirt__json_write_number(&self->line, value);
        else mirt__text_add(&self->line, "%s", !there ? "NA" : value != value ? "nan" : value < 0 ? "-inf" : "inf");
    }
    return mirt__callback_result(mirt__csv_write(self));
}

static int mirt__csv_train_end(const mirt_event *event, void *user) {
    (void)event;
    return mirt__callback_result(mirt__append_close(&((mirt__csv_logger *)user)->file));
}

static mirt_status mirt__csv_sync(mirt__readymade *ready) {
    return mirt__append_sync(&((mirt__csv_logger *)ready)->file);
}

static void mirt__csv_release(mirt__readymade *ready) {
    mirt__csv_logger *self = (mirt__csv_logger *)ready;
    mirt__append_close(&self->file);
    mirt__text_free(&self->line);
    mirt__free(self->path);
}

MIRT_API mirt_callback *mirt_csv_logger(const mirt_csv_logger_desc *desc) {
    MIRT__ENTER;
    if (!desc || !desc->path)
        return mirt__fail(MIRT_E_INVALID, "mirt_csv_logger: the path is missing"), (mirt_callback *)NULL;
    if (desc->separator == '"' || desc->separator == '\n' || desc->separator == '\r')
        return mirt__fail(MIRT_E_INVALID, "mirt_csv_logger: the separator cannot be a quote or a line break"),
               (mirt_callback *)NULL;
    mirt__readymade *ready = mirt__ready_new(sizeof(mirt__csv_logger), "csv_logger", mirt__csv_logger_fields,
                                             MIRT__COUNT(mirt__csv_logger_fields));
    if (!ready) return NULL;
    mirt__csv_logger *self = (mirt__csv_logger *)ready;
    self->file.fd = -1;
    self->separator = desc->separator ? desc->separator : ',';
    self->append = desc->append;
    ready->release = mirt__csv_release;
    ready->accepts = mirt__csv_accepts;
    ready->sync = mirt__csv_sync;
    ready->base.train_begin = mirt__csv_train_begin;
    ready->base.epoch_end = mirt__csv_epoch_end;
    ready->base.train_end = mirt__csv_train_end;
    if ((self->path = mirt__strdup(desc->path))) return &ready->base;
    mirt_callback_destroy(&ready->base);
    return NULL;
}
