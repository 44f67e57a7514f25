#ifndef MIRT__FIT_H
#define MIRT__FIT_H
/* One fit: what it was asked for and where it is. */
#include "../checkpoint/run_state.h"
#include "../servers/servers.h"
#include "trainer.h"

/* The batch that a data set gives next, if it is in a pass. */
typedef struct mirt__place_of {
    int64_t pass, next;
    bool begun;
} mirt__place_of;

/* What a fit at parameter servers knows. */
typedef struct mirt__served {
    mirt__working working;
    bool open;           /* `working` is */
    mirt__place_of at;   /* of its data */
    int64_t steps, done; /* of the history and the epoch, when the epoch under way began or was resumed */
} mirt__served;

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
    mirt__served served;
} mirt__fit;

#define MIRT__SERVED(fit) (MIRT__TOGETHER && (fit)->run.model->strategy->servers)

/* --- fit.c --- */
/* What the user's schedule says of `epoch`. */
MIRT__LIB float mirt__scheduled_rate(mirt_epoch_schedule_fn schedule, int epoch, const mirt_model *model, void *user);

/* --- fit_files.c --- */
/* Says in the log if another process does not see the files that the first one writes. */
MIRT__LIB void mirt__fit_look_for_files(const mirt__fit *fit);

/* --- served.c: a fit at parameter servers --- */
/* When the fit is prepared: meets the others. *ends: this process is not the chief, and has done what it had to. */
MIRT__LIB mirt_status mirt__served_run(mirt__fit *fit, mirt_status status, bool *ends);
/* The chief's: an epoch begins; */
MIRT__LIB mirt_status mirt__served_begin(mirt__fit *fit);
/* its next batch, none when all are trained on; */
MIRT__LIB mirt_status mirt__served_next(mirt__fit *fit, mirt__batch *batch);
/* gradients of the function's batch, which are pushed; results are added to run.sums, the batch's loss is *loss; */
MIRT__LIB mirt_status mirt__served_step(mirt__fit *fit, mirt_function *function, double *loss);
/* and it ends: the model and the sums become those of all workers. */
MIRT__LIB mirt_status mirt__served_end(mirt__fit *fit);
/* After the fit. */
MIRT__LIB mirt_status mirt__served_leave(mirt__fit *fit, mirt_status status);

/* --- fit_position.c --- */
/* The function that trains or, with `validation`, evaluates; NULL with the error set. */
MIRT__LIB mirt_function *mirt__fit_prepared(const mirt__fit *fit, bool validation);
/* Of a step. */
MIRT__LIB int mirt__fit_replicas(const mirt__fit *fit);
/* Begins the next pass over the data. */
MIRT__LIB mirt_status mirt__fit_begin(mirt__fit *fit);
/* Continues the pass over the data that at.pass is the key of, after its first at.passed batches. `run` is a fit's. */
MIRT__LIB mirt_status mirt__fit_reopen(mirt__training_run *run);

#endif
