#ifndef MIRT__CALLBACKS_H
#define MIRT__CALLBACKS_H
/* Ready-made callbacks: one file each. A constructor makes one by mirt__ready_new, says what functions it has, and lists the numbers
   that are its state; everything it allocates for training it allocates in train_begin. */
#include "../train/readymade.h"

/* A log that is watched. */
typedef struct mirt__monitor {
    char *name;
    mirt_mode asked, mode; /* as the user says, and what holds for this fit */
    double min_delta;
    bool has_best;
    double best; /* so far */
} mirt__monitor;
/* What a monitor keeps: rows for a table of fields of `type`, whose member `member` it is. */
#define MIRT__MONITOR_FIELDS(type, member) \
    {"has_best", MIRT__STATE_BOOL, offsetof(type, member.has_best), 0, 0, NULL}, {"best", MIRT__STATE_DOUBLE, offsetof(type, member.best), 0, 0, NULL}
/* Copies the name; NULL is "val_loss". `who`: for messages, "early stopping". */
MIRT__LIB mirt_status mirt__monitor_create(mirt__monitor *monitor, const char *who, const char *name, mirt_mode mode, double min_delta);
/* In train_begin: there will be such a log, and its direction is known. */
MIRT__LIB mirt_status mirt__monitor_begin(mirt__monitor *monitor, const char *who, const mirt_event *event);
/* Whether `value` is better than `than` by more than min_delta; what is not a number never is. */
MIRT__LIB bool mirt__monitor_better(const mirt__monitor *monitor, double value, double than);
/* Whether `value` is the best so far, which it becomes. */
MIRT__LIB bool mirt__monitor_improved(mirt__monitor *monitor, double value);

/* --- monitor.c --- */
/* Whether small or large values of a log of this model are better; AUTO: nothing declares it. */
MIRT__LIB mirt_mode mirt__log_direction(const mirt_model *model, const char *name);
MIRT__LIB bool mirt__log_there(const mirt_logs *logs, const char *name);
/* Whether there will be a log of this name; otherwise an error that names the nearest. */
MIRT__LIB mirt_status mirt__log_check(const char *who, const char *name, const mirt_event *event);

#endif
