#ifndef MIRT__CALLBACKS_H
#define MIRT__CALLBACKS_H
/* Ready-made callbacks, one file each. A constructor calls mirt__ready_new, sets the functions and lists the numbers
   that are its state; train_begin allocates all memory for training. */
#include "../checkpoint/readymade.h"

/* A monitored log. */
typedef struct mirt__monitor {
    char *name;
    mirt_mode asked, mode; /* as set by the user, and as resolved for this fit */
    double min_delta;
    bool has_best;
    double best; /* best value so far */
} mirt__monitor;
/* The state of a monitor: rows for a table of fields of `type`, in which it is `member`. */
#define MIRT__MONITOR_FIELDS(type, member) \
    {"has_best", MIRT__STATE_BOOL, offsetof(type, member.has_best), 0, 0, NULL}, { \
        "best", MIRT__STATE_DOUBLE, offsetof(type, member.best), 0, 0, NULL \
    }
/* Copies the name; NULL means "val_loss". `who` is for messages, such as "early stopping". */
MIRT__LIB mirt_status mirt__monitor_create(mirt__monitor *monitor, const char *who, const char *name, mirt_mode mode,
                                           double min_delta);
/* In train_begin: checks that the log will exist and that its direction is known. */
MIRT__LIB mirt_status mirt__monitor_begin(mirt__monitor *monitor, const char *who, const mirt_event *event);
/* Whether `value` is better than `than` by more than min_delta; NaN never is. */
MIRT__LIB bool mirt__monitor_better(const mirt__monitor *monitor, double value, double than);
/* Whether `value` is the best so far; if so, stores it. */
MIRT__LIB bool mirt__monitor_improved(mirt__monitor *monitor, double value);

/* --- monitor.c --- */
/* Whether small or large values of a log of this model are better; AUTO: not declared. */
MIRT__LIB mirt_mode mirt__log_direction(const mirt_model *model, const char *name);
MIRT__LIB bool mirt__log_there(const mirt_logs *logs, const char *name);
/* Whether there will be a log of this name; otherwise sets an error that names the most similar one. */
MIRT__LIB mirt_status mirt__log_check(const char *who, const char *name, const mirt_event *event);

#endif
