#ifndef MIRT__LOG_FILE_H
#define MIRT__LOG_FILE_H
#include "../base/file.h"
#include "callbacks.h"

/* A callback that logs to a file. */
typedef struct mirt__log_file {
    mirt__readymade ready;
    char *path;
    int64_t length; /* of the file, which checkpoints store first */
    mirt__appender file;
    mirt__text line;
} mirt__log_file;
/* mirt__ready_new, with a copy of the path; NULL with the error set. */
MIRT__LIB mirt__log_file *mirt__log_file_new(size_t size, const char *name, const mirt__state_field *fields,
                                             int num_fields, const char *path);
/* mirt__append_open, in a directory that may be missing. */
MIRT__LIB mirt_status mirt__log_file_open(mirt__log_file *self, int64_t keep);
/* Ends the line and writes it. */
MIRT__LIB mirt_status mirt__log_file_write(mirt__log_file *self);

#endif
