#ifndef MIRT__CALLBACKS_H
#define MIRT__CALLBACKS_H
/* Ready-made callbacks, one file each. A constructor calls mirt__ready_new, sets the functions and lists the numbers
   that are its state; train_begin allocates all memory for training. */
#include "../checkpoint/readymade.h"

/* A callback that watches a log. */
typedef struct mirt__watcher {
    mirt__readymade ready;
    const char *who; /* for messages, such as "early stopping" */
    char *monitor;   /* the log's name */
    mirt_mode asked, mode; /* as set by the user, and as resolved for this fit */
    double min_delta;
    bool has_best;
    double best; /* best value so far */
} mirt__watcher;
/* The state of a watcher: rows for a table of fields. */
#define MIRT__WATCHER_FIELDS MIRT__STATE_FLAG(mirt__watcher, has_best), MIRT__STATE_NUMBER(mirt__watcher, best)
/* mirt__ready_new, watching the log `monitor` (NULL: "val_loss"), whose name is copied. */
MIRT__LIB mirt__watcher *mirt__watcher_new(size_t size, const char *name, const mirt__state_field *fields,
                                           int num_fields, const char *who, const char *monitor, mirt_mode mode,
                                           double min_delta);
/* In train_begin: checks that the log will exist and that its direction is known. */
MIRT__LIB mirt_status mirt__watcher_begin(mirt__watcher *self, const mirt_event *event);
/* Whether `value` is better than `than` by more than min_delta; NaN never is. */
MIRT__LIB bool mirt__watcher_better(const mirt__watcher *self, double value, double than);
/* Whether `value` is the best so far; if so, stores it. */
MIRT__LIB bool mirt__watcher_improved(mirt__watcher *self, double value);

/* --- monitor.c --- */
MIRT__LIB bool mirt__log_there(const mirt_logs *logs, const char *name);

#endif
