#ifndef MIRT__ENGINE_H
#define MIRT__ENGINE_H
/* The table that moves bytes between processes which train one model together. It adds nothing, but by all_reduce: what
   is added, and in which order, is the library's (group/tree.c). The engines are other files on the compiler's command
   line, which the library finds by weak symbols: mirrortrain_mpi.c and mirrortrain_tcp.c. */

#include "../device/device.h"

#define MIRT__ENGINE_VERSION 4
#define MIRT__ENGINE_CHANNELS 3 /* 0: gradients; 1: everything else; 2: parameter servers */
#define MIRT__ENGINE_ANSWER 256 /* bytes */

typedef struct mirt__message {
    int peer; /* a rank */
    void *data;
    size_t bytes;
} mirt__message;

/* Why a round of messages failed. */
typedef struct mirt__engine_failure {
    int peer;       /* that failed or was waited for; -1: not known */
    bool silent;    /* nothing came from it for longer than the limit */
    bool gone;      /* its connection has ended, as it does when it ends because of another process */
    char text[256]; /* what the engine says */
} mirt__engine_failure;

/* How long a round waits for messages. */
typedef struct mirt__waiting {
    double limit; /* seconds without any message; 0: for ever */
    /* Asked by the thread that waits when the limit has passed: true: wait as long again. NULL: it fails. */
    bool (*patient)(void *user, int peer);
    void *user;
    int peer;  /* atomic: whom it waits for, -1: nobody */
    int hurry; /* atomic: the caller has nothing else to do: messages are looked for without a pause */
} mirt__waiting;

typedef struct mirt__round {
    const mirt__message *send, *receive;
    int sends, receives;
    /* NULL, or told by the calling thread of each message of `receive` as it comes. */
    void (*got)(void *user, int receive);
    void *user;
    mirt__waiting *waiting;
} mirt__round;

typedef struct mirt__engine {
    int version;
    const char *name; /* "Open MPI", "TCP" */
    /* Joins the group, once in a process, within `limit` seconds (0: for ever). `launch`: of several processes, or of
       one that MPI may know more about. `why`: the reason of a failure, 256 bytes. */
    bool (*start)(const mirt_launch *launch, double limit, int *rank, int *size, char *why);
    /* All messages of a round; those between two processes on one channel are matched in order, and have the same
       number of bytes on both sides. A channel is one thread's at a time; different channels are independent. After a
       failure, which is set in *failure, the group can no longer be used. */
    bool (*trade)(int channel, const mirt__round *round, mirt__engine_failure *failure);
    /* The sum of `count` numbers over all processes, in an order of the engine's choice; otherwise as trade. NULL: the
       engine has none. */
    bool (*all_reduce)(int channel, mirt__real *sum, int64_t count, mirt__waiting *waiting,
                       mirt__engine_failure *failure);
    /* Single messages, for parameter servers, which do not know who speaks next: begun by post on channel 2, whose
       messages they match as those of a round would, and looked after by posted: 1: done, 0: under way, -1: failed.
       NULL: no memory, or failed. Who does not wait for the end calls forget, after which memory that is received into
       may be freed; memory that is sent must stay. A post ends with the first answer that is not 0, or with forget. */
    void *(*post)(const mirt__message *message, bool receives);
    int (*posted)(void *post);
    void (*forget)(void *post);
    /* Questions between processes, beside the rounds. `answer`, which a thread of the engine calls, fills
       MIRT__ENGINE_ANSWER bytes; NULL: nobody answers any more, and no call is under way. ask: the answer of a process;
       false: none came within `limit` seconds. */
    void (*answers)(void (*answer)(void *user, char *out), void *user);
    bool (*ask)(int peer, double limit, char *out);
    /* Tells all others what `answer` gives now; ask returns it when this process is gone. NULL: the engine cannot. */
    void (*leave_word)(void);
    /* The host of a process, for messages; lives as long as the group. */
    const char *(*host)(int rank);
    /* Ends the process's part in the group; `broken`: a round failed, and nothing more is said to the others; `lost`:
       some of them are gone, which the others can do without. */
    void (*stop)(bool broken, bool lost);
} mirt__engine;

MIRT__BEGIN_C
/* Found by the linker, or absent; where there are no weak symbols, MIRRORTRAIN_MPI and MIRRORTRAIN_TCP say that they
   are there. */
#if defined(__ELF__) || defined(MIRRORTRAIN_MPI)
const mirt__engine *mirt__mpi_engine(void) MIRT__WEAK;
#endif
#if defined(__ELF__) || defined(MIRRORTRAIN_TCP)
const mirt__engine *mirt__tcp_engine(void) MIRT__WEAK;
#endif
MIRT__END_C

#endif
