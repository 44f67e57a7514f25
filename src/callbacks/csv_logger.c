/* CSVLogger: writes logs as comma-separated values for Python's csv module. Values with a separator, quote or line
   break are quoted. */
#include "../function/fit_program.h"
#include "log_file.h"

typedef struct mirt__csv_logger {
    mirt__log_file log;
    char separator;
    bool append;
    const char *column[MIRT_MAX_LOGS]; /* names of logs, sorted; owned by the model */
    int columns;
} mirt__csv_logger;

static const mirt__state_field mirt__csv_logger_fields[] = {MIRT__STATE_BYTES(mirt__log_file, length)};

static void mirt__csv_add(mirt__text *line, const char *word, char separator) {
    if (!strchr(word, separator) && !strpbrk(word, "\"\r\n")) {
        mirt__text_add(line, "%s", word);
        return;
    }
    mirt__text_add(line, "\"");
    for (; *word; word++) mirt__text_add(line, *word == '"' ? "\"%c" : "%c", *word);
    mirt__text_add(line, "\"");
}

static void mirt__csv_header(mirt__csv_logger *self) {
    mirt__text *line = &self->log.line;
    mirt__text_clear(line);
    mirt__text_add(line, "epoch");
    for (int i = 0; i < self->columns; i++) {
        mirt__text_add(line, "%c", self->separator);
        mirt__csv_add(line, self->column[i], self->separator);
    }
}

static int mirt__csv_order(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The first line of a continued file must be the one that this fit would write. */
static mirt_status mirt__csv_check(mirt__log_file *self) {
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
    mirt__log_file *log = &self->log;
    if (mirt__log_file_open(log, log->ready.loaded ? log->length : self->append ? -1 : 0) != MIRT_OK)
        return mirt_last_status();
    log->ready.loaded = false;
    self->columns = mirt__log_names(event->model, event->validation != NULL, self->column);
    qsort(self->column, (size_t)self->columns, sizeof *self->column, mirt__csv_order);
    mirt__csv_header(self);
    if (log->line.failed) return mirt_last_status();
    log->length = (int64_t)log->file.size;
    return log->file.size ? mirt__csv_check(log) : mirt__log_file_write(log);
}

static int mirt__csv_train_begin(const mirt_event *event, void *user) {
    return mirt__callback_result(mirt__csv_begin((mirt__csv_logger *)user, event));
}

static int mirt__csv_epoch_end(const mirt_event *event, void *user) {
    mirt__csv_logger *self = (mirt__csv_logger *)user;
    mirt__text *line = &self->log.line;
    mirt__text_clear(line);
    mirt__text_add(line, "%d", event->epoch);
    for (int i = 0; i < self->columns; i++) {
        const bool there = mirt__log_there(event->logs, self->column[i]);
        const double value = mirt_logs_value(event->logs, self->column[i]);
        mirt__text_add(line, "%c", self->separator);
        if (there && value - value == 0) mirt__json_write_number(line, value);
        else mirt__text_add(line, "%s", !there ? "NA" : value != value ? "nan" : value < 0 ? "-inf" : "inf");
    }
    return mirt__callback_result(mirt__log_file_write(&self->log));
}

static int mirt__csv_train_end(const mirt_event *event, void *user) {
    (void)event;
    return mirt__callback_result(mirt__append_close(&((mirt__log_file *)user)->file));
}

MIRT_API mirt_callback *mirt_csv_logger(const mirt_csv_logger_desc *desc) {
    MIRT__ENTER;
    if (!desc || !desc->path) {
        mirt__fail(MIRT_E_INVALID, "mirt_csv_logger: the path is missing");
        return NULL;
    }
    if (desc->separator == '"' || desc->separator == '\n' || desc->separator == '\r') {
        mirt__fail(MIRT_E_INVALID, "mirt_csv_logger: the separator cannot be a quote or a line break");
        return NULL;
    }
    mirt__csv_logger *self = (mirt__csv_logger *)mirt__log_file_new(sizeof *self, "csv_logger",
                                                                    MIRT__FIELDS(mirt__csv_logger_fields), desc->path);
    if (!self) return NULL;
    mirt_callback *base = &self->log.ready.base;
    self->separator = desc->separator ? desc->separator : ',';
    self->append = desc->append;
    base->train_begin = mirt__csv_train_begin;
    base->epoch_end = mirt__csv_epoch_end;
    base->train_end = mirt__csv_train_end;
    return base;
}
