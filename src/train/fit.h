#ifndef MIRT__FIT_H
#define MIRT__FIT_H
/* One fit: what it was asked for and where it is. */
#include "../checkpoint/run_state.h"
#include "trainer.h"

/* A fit under way. */
typedef struct mirt__fit {
    mirt__training_run run; /* first: it is the one that checkpoints get */
    mirt_dataset *validation;
    mirt__features *features[2]; /* of these two, or NULL */
    mirt_logs logs;
    mirt__feed feed;         /* of the epoch under way */
    mirt__progress progress; /* of the line that it shows without a callback */
    bool shows;
    bool warned;
    bool requested;        /* by mirt_request_stop, as all processes know, */
    bool asked;            /* and training ends for that */
    int told;              /* callbacks whose train_begin was called */
    mirt_status status;    /* of a callback that failed, */
    mirt__error failure;   /* and its error */
} mirt__fit;

/* --- fit.c --- */
/* What the user's schedule says of `epoch`. */
MIRT__LIB float mirt__scheduled_rate(mirt_epoch_schedule_fn schedule, int epoch, const mirt_model *model, void *user);

/* --- fit_files.c --- */
/* Says in the log if another process does not see the files that the first one writes. */
MIRT__LIB void mirt__fit_look_for_files(const mirt__fit *fit);

/* --- fit_position.c --- */
/* Of a step. */
MIRT__LIB int mirt__fit_replicas(const mirt__fit *fit);
/* Begins the next pass over the data. */
MIRT__LIB mirt_status mirt__fit_begin(mirt__fit *fit);
/* Continues the pass over the data that at.pass is the key of, after its first at.passed batches. `run` is a fit's. */
MIRT__LIB mirt_status mirt__fit_reopen(mirt__training_run *run);

#endif
