#ifndef MIRT__SERVERS_H
#define MIRT__SERVERS_H
/* Parameter servers, their messages, and what workers say to them.

   The last processes of a group are servers, each of which keeps a range of the weights and of the optimizer's state.
   The others, the workers, pull weights, push gradients, and do not wait for each other. The first server also hands
   out the batches and counts the results; the first worker, the chief, begins and ends epochs. */
#include "../function/fit_program.h"
#include "../run/run.h"

/* --- admission.c: bounds the staleness of gradients, in each server of its own range --- */
typedef struct mirt__admission {
    int workers, pulls; /* pulls: workers that have pulled and not pushed yet */
    int64_t bound;      /* of staleness; -1: none */
    int64_t *stale;     /* [workers] updates since its pull; -1: it has not pulled */
    mirt_staleness seen;
} mirt__admission;

/* False with the error set. Freed after a failure too. */
MIRT__LIB bool mirt__admission_create(mirt__admission *admission, int workers, int64_t bound);
MIRT__LIB void mirt__admission_free(mirt__admission *admission);
/* Whether the worker gets the weights now; then its push is expected. */
MIRT__LIB bool mirt__admit_pull(mirt__admission *admission, int worker);
/* Whether its gradients are applied now; then they count as such. */
MIRT__LIB bool mirt__admit_push(mirt__admission *admission, int worker);
/* No push of the worker is expected any more. */
MIRT__LIB void mirt__admit_none(mirt__admission *admission, int worker);

/* --- leases.c: which worker trains on which batches --- */
/* Batches from number `at` to before `end` of a pass over the data. */
typedef struct mirt__lease {
    int64_t pass, at, end;
} mirt__lease;

/* Where an epoch is. */
typedef struct mirt__epoch {
    int64_t pass, next; /* the next batch that nobody has */
    int64_t length;     /* batches of a pass, at most; INT64_MAX: not known yet */
    int64_t left, done; /* batches of the epoch that may still be given, and those that were trained on */
    int64_t goes_on;    /* 1: the epoch continues in the next pass */
} mirt__epoch;

typedef struct mirt__leases {
    int workers, returned;
    bool closed;        /* nothing more is given */
    mirt__lease *of;    /* [workers] what each still has to train on, */
    bool *busy;         /* [workers] and whether it has been given the first of them */
    mirt__lease *again; /* [workers] what lost workers left; the first `returned` are used */
    int64_t usual;      /* length of a pass as far as it is known before */
    mirt__epoch at;
} mirt__leases;

MIRT__LIB bool mirt__leases_create(mirt__leases *leases, int workers);
MIRT__LIB void mirt__leases_free(mirt__leases *leases);
MIRT__LIB void mirt__leases_begin(mirt__leases *leases, const mirt__epoch *epoch);
/* A single batch. False: there is nothing to train on now. */
MIRT__LIB bool mirt__leases_give(mirt__leases *leases, int worker, mirt__lease *out);
/* The worker has trained on its next batch; */
MIRT__LIB void mirt__leases_done(mirt__leases *leases, int worker);
/* the data end before it; */
MIRT__LIB void mirt__leases_end(mirt__leases *leases, int worker);
/* it is lost. */
MIRT__LIB void mirt__leases_lost(mirt__leases *leases, int worker);
/* Nothing more is given in this epoch. */
MIRT__LIB void mirt__leases_close(mirt__leases *leases);
/* Whether all batches of the epoch are trained on. */
MIRT__LIB bool mirt__leases_over(const mirt__leases *leases);

/* --- messages --- */
typedef enum mirt__request_kind {
    MIRT__ASK_LEASE,  /* of the first server: for batches */
    MIRT__ASK_PULL,   /* for the weights */
    MIRT__ASK_ALL,    /* once nobody is at work: for the weights, the optimizer's state and what was counted */
    MIRT__ASK_FINAL,  /* of the first server: for the weights that the chief has at the end */
    MIRT__TELL_PUSH,  /* gradients, and of the first server the results of a batch */
    MIRT__TELL_END,   /* of the first server: the data end before the batch */
    MIRT__TELL_EPOCH, /* by the chief: the weights and the optimizer's state; an epoch begins */
    MIRT__TELL_CLOSE, /* by the chief: no more batches in this epoch */
    MIRT__TELL_BYE    /* the worker leaves; by the chief, without an error: with the weights. Answered when all have,
                         unless a worker fails */
} mirt__request_kind;

/* What a worker says, followed by what its kind brings. */
typedef struct mirt__request {
    int64_t kind, number;   /* number: of epochs that have begun */
    mirt__epoch epoch;      /* of MIRT__TELL_EPOCH, with */
    int64_t step;
    int64_t rate_set;       /* the chief's learning rate, */
    double rate;            /* as of the model */
    int64_t status; /* of MIRT__TELL_BYE, */
    char text[240]; /* and why */
} mirt__request;

typedef enum mirt__reply_kind {
    MIRT__REPLY_BATCHES, /* train on these */
    MIRT__REPLY_OVER,    /* to the chief: the epoch is over */
    MIRT__REPLY_STOP     /* training is */
} mirt__reply_kind;

typedef struct mirt__reply {
    int64_t kind, number, step; /* number: of epochs that have begun; step: of this server's updates */
    mirt__epoch epoch;  /* as far as it has come */
    mirt__lease lease;
    int64_t status;                  /* of MIRT__REPLY_STOP: the chief's, */
    char text[240];                  /* and why; */
    int64_t lost;                    /* 1: a process is lost, so that the others cannot finalize MPI together */
} mirt__reply;

/* --- payload.c: what the messages of a model hold --- */
typedef struct mirt__payload {
    mirt_model *model, *root;
    mirt_function *function;  /* that trains */
    int servers, workers;     /* ranks: the workers, then the servers */
    int64_t trained, states;  /* elements of gradients, and of variables that batches give new values */
    int numbers, slots;       /* results of a batch; blocks of the optimizer's state */
    mirt__real *state;        /* [2 * states] their values, and what a batch adds to them */
    double *number;           /* [numbers] of a batch; then those of this worker's batches of the epoch, and of those
                                 before a checkpoint that was resumed */
    mirt_staleness staleness; /* that all servers together have seen in an epoch */
    mirt__message *send, *receive; /* [servers * MIRT__PAYLOAD_MOST] */
} mirt__payload;
#define MIRT__PAYLOAD_MOST (5 + MIRT__MAX_SLOTS) /* messages of a request or a reply */

MIRT__LIB mirt_status mirt__payload_create(mirt__payload *payload, mirt_function *function);
MIRT__LIB void mirt__payload_free(mirt__payload *payload);
/* The gradient elements of server number `server`. */
MIRT__LIB mirt__range mirt__payload_range(const mirt__payload *payload, int server);
/* The variables' values that batches set, to and from payload->state. */
MIRT__LIB void mirt__payload_keep_states(mirt__payload *payload);
MIRT__LIB void mirt__payload_set_states(mirt__payload *payload);
/* Results as numbers, and back. */
MIRT__LIB void mirt__payload_count(mirt__payload *payload, const mirt__sums *sums);
MIRT__LIB void mirt__payload_counted(const double *number, mirt__sums *sums);
/* Adds a message with the peer to a list, unless it is empty. */
MIRT__LIB void mirt__payload_add(mirt__message *list, int *count, int peer, void *data, size_t bytes);

/* --- worker.c: what workers say to servers. Errors: MIRT_E_WORKER, after which the strategy cannot be used. --- */
typedef struct mirt__working {
    mirt__payload payload;
    int64_t number;      /* of epochs that have begun */
    mirt__lease lease;   /* batches that are left */
    mirt__request request;
    mirt__reply *reply;  /* [servers] the last ones */
} mirt__working;

MIRT__LIB void mirt__staleness_add(mirt_staleness *sum, const mirt_staleness *more);
MIRT__LIB mirt_status mirt__working_open(mirt__working *w, mirt_function *function);
MIRT__LIB void mirt__working_close(mirt__working *w);
/* Asks for batches if none is left. w->reply[0].kind says what to do. */
MIRT__LIB mirt_status mirt__working_lease(mirt__working *w);
/* The data end before the batch that is next. */
MIRT__LIB mirt_status mirt__working_end(mirt__working *w);
/* The model gets the servers' weights. */
MIRT__LIB mirt_status mirt__working_pull(mirt__working *w);
/* The servers get the gradients, which become clipped, and the results of the batch that was next; afterwards *sums are
   those of this worker's batches of the epoch. */
MIRT__LIB mirt_status mirt__working_push(mirt__working *w, mirt__sums *sums);
/* By the chief: an epoch begins, with the model's weights and the optimizer's state. *sums: of its batches that were
   trained on before; */
MIRT__LIB mirt_status mirt__working_begin(mirt__working *w, const mirt__epoch *epoch, const mirt__sums *sums);
/* it ends with the batches that workers have; */
MIRT__LIB mirt_status mirt__working_stop(mirt__working *w);
/* when the epoch is over: the weights, the optimizer's state, the results and the staleness. */
MIRT__LIB mirt_status mirt__working_all(mirt__working *w, mirt__sums *sums);
/* At the end; without an error a worker gets the weights that the chief has. */
MIRT__LIB mirt_status mirt__working_leave(mirt__working *w, mirt_status status);

/* --- serve.c --- */
/* Serves until all workers have left. MIRT_E_WORKER: the chief is lost. */
MIRT__LIB mirt_status mirt__serve(mirt_function *function);

#endif
