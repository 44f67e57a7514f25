/* Moves bytes between processes by MPI (Open MPI, MPICH). mpicc compiles this file. */
#include "../group/engine.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MIRT__MPI_PIECE = 1 << 30, /* bytes of a message, as counts are ints */
    MIRT__MPI_SUMMED = 1 << 20 /* numbers that MPI sums at a time */
};
enum { MIRT__MPI_QUESTION = 1, MIRT__MPI_ANSWER }; /* tags */

typedef struct mirt__mpi_group {
    bool begun, owns; /* begun: guarded by the mutex; owns: this file initialized MPI */
    bool broken;      /* messages failed, and others may wait for some that never come */
    bool lost;        /* a process is gone, which the others can do without: they cannot finalize MPI together */
    int joined;       /* atomic: 1; -1: it failed */
    int quits;        /* atomic */
    int parted;       /* atomic: all processes are at their end */
    double limit;     /* seconds that a process that does not answer is waited for; 0: for ever */
    pid_t process;    /* that began; its threads are not in a child */
    pthread_t thread; /* calls MPI_Init and MPI_Finalize, and in between answers questions */
    char why[256];
    void (*answer)(void *user, char *out); /* and user: guarded by the mutex */
    void *user;
    int rank, size;
    MPI_Comm comm[MIRT__ENGINE_CHANNELS + 1]; /* the last one: questions */
    char *hosts; /* [size] names of MPI_MAX_PROCESSOR_NAME bytes */
} mirt__mpi_group;

#if defined(OPEN_MPI)
static const char mirt__mpi_name[] = "Open MPI";
#elif defined(MPICH)
static const char mirt__mpi_name[] = "MPICH";
#else
static const char mirt__mpi_name[] = "MPI";
#endif
static mirt__mpi_group mirt__mpi;
static pthread_mutex_t mirt__mpi_mutex = PTHREAD_MUTEX_INITIALIZER;

static bool mirt__mpi_why(char *why, int code, const char *call) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    snprintf(why, 256, "%s: %.200s", call, text);
    return false;
}

/* >>questions */

static void mirt__mpi_reply(int peer) {
    static char room[16][MIRT__ENGINE_ANSWER + sizeof(int)]; /* answers that may still be under way */
    static int next;
    const MPI_Comm comm = mirt__mpi.comm[MIRT__ENGINE_CHANNELS];
    MPI_Request request;
    int serial;
    char *out = room[next++ % 16];
    MPI_Recv(&serial, 1, MPI_INT, peer, MIRT__MPI_QUESTION, comm, MPI_STATUS_IGNORE);
    memset(out, 0, sizeof room[0]);
    memcpy(out, &serial, sizeof serial);
    pthread_mutex_lock(&mirt__mpi_mutex);
    if (mirt__mpi.answer) mirt__mpi.answer(mirt__mpi.user, out + sizeof serial);
    pthread_mutex_unlock(&mirt__mpi_mutex);
    if (MPI_Isend(out, (int)sizeof room[0], MPI_BYTE, peer, MIRT__MPI_ANSWER, comm, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
}

/* Answers a question, or naps; false: MPI has failed. */
static bool mirt__mpi_attend(long nap) {
    const struct timespec time = {0, nap};
    MPI_Status status;
    int there = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MIRT__MPI_QUESTION, mirt__mpi.comm[MIRT__ENGINE_CHANNELS], &there, &status) !=
        MPI_SUCCESS)
        return false;
    if (there) mirt__mpi_reply(status.MPI_SOURCE);
    else nanosleep(&time, NULL);
    return true;
}

/* Answers what other processes ask, until the program ends. */
static void mirt__mpi_listen(void) {
    bool good = true;
    while (good && !__atomic_load_n(&mirt__mpi.quits, __ATOMIC_ACQUIRE)) good = mirt__mpi_attend(20000000);
}

/* Meets the others at the end, and answers as long as they are on their way. */
static void mirt__mpi_part(void) {
    MPI_Request request;
    int all = 0;
    bool good = MPI_Ibarrier(mirt__mpi.comm[MIRT__ENGINE_CHANNELS], &request) == MPI_SUCCESS;
    while (good && !all) {
        good = MPI_Test(&request, &all, MPI_STATUS_IGNORE) == MPI_SUCCESS;
        if (good && !all) good = mirt__mpi_attend(1000000);
    }
    __atomic_store_n(&mirt__mpi.parted, 1, __ATOMIC_RELEASE);
}

static void mirt__mpi_answers(void (*answer)(void *user, char *out), void *user) {
    pthread_mutex_lock(&mirt__mpi_mutex);
    mirt__mpi.answer = answer;
    mirt__mpi.user = user;
    pthread_mutex_unlock(&mirt__mpi_mutex);
}

/* An answer to an older question is dropped. The lock is held. */
static bool mirt__mpi_ask_one(int peer, double limit, char *out) {
    static int last, sent[16]; /* questions that may still be under way */
    const struct timespec nap = {0, 1000000};
    const MPI_Comm comm = mirt__mpi.comm[MIRT__ENGINE_CHANNELS];
    const double until = MPI_Wtime() + limit;
    char answer[MIRT__ENGINE_ANSWER + sizeof(int)];
    MPI_Request request;
    const int serial = ++last;
    int *question = &sent[serial % 16], there = 0, of = 0;
    *question = serial;
    if (MPI_Isend(question, 1, MPI_INT, peer, MIRT__MPI_QUESTION, comm, &request) != MPI_SUCCESS) return false;
    MPI_Request_free(&request);
    while (of != serial && MPI_Wtime() < until) {
        if (MPI_Iprobe(peer, MIRT__MPI_ANSWER, comm, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (!there) {
            nanosleep(&nap, NULL);
            continue;
        }
        MPI_Recv(answer, (int)sizeof answer, MPI_BYTE, peer, MIRT__MPI_ANSWER, comm, MPI_STATUS_IGNORE);
        memcpy(&of, answer, sizeof of);
    }
    if (of == serial) memcpy(out, answer + sizeof of, MIRT__ENGINE_ANSWER);
    return of == serial;
}

static bool mirt__mpi_ask(int peer, double limit, char *out) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    const bool good = mirt__mpi_ask_one(peer, limit, out);
    pthread_mutex_unlock(&one);
    return good;
}

static const char *mirt__mpi_host(int rank) { return mirt__mpi.hosts + (size_t)rank * MPI_MAX_PROCESSOR_NAME; }

/* >>joining */

static void mirt__mpi_quit(void) {
    __atomic_store_n(&mirt__mpi.quits, 1, __ATOMIC_RELEASE);
    if (__atomic_load_n(&mirt__mpi.joined, __ATOMIC_ACQUIRE) == 1) pthread_join(mirt__mpi.thread, NULL);
}

/* mpirun drops what it has not read of the processes when it ends a job. */
static void mirt__mpi_let_read(void) {
    const struct timespec time = {0, 300000000};
    nanosleep(&time, NULL);
}

static void mirt__mpi_abort(void) {
    mirt__mpi_let_read();
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Until all processes are at their end, which MPI_Finalize would wait for without a limit. One that does not
   answer ends the job. */
static void mirt__mpi_await_end(void) {
    const struct timespec nap = {0, 1000000};
    char answer[MIRT__ENGINE_ANSWER];
    double since = MPI_Wtime();
    __atomic_store_n(&mirt__mpi.quits, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&mirt__mpi.parted, __ATOMIC_ACQUIRE)) {
        nanosleep(&nap, NULL);
        if (mirt__mpi.limit <= 0 || MPI_Wtime() - since < mirt__mpi.limit) continue;
        for (int p = 0; p < mirt__mpi.size; p++) {
            if (p == mirt__mpi.rank || mirt__mpi_ask(p, 2, answer) ||
                __atomic_load_n(&mirt__mpi.parted, __ATOMIC_ACQUIRE))
                continue;
            fprintf(stderr, "process %d (%s) has ended, and process %d (%s) does not answer\n", mirt__mpi.rank,
                    mirt__mpi_host(mirt__mpi.rank), p, mirt__mpi_host(p));
            mirt__mpi_abort();
        }
        since = MPI_Wtime();
    }
}

/* At the end of the program: MPI_Finalize would wait for processes that a broken group has lost. */
static void mirt__mpi_exit(void) {
    const bool joined = __atomic_load_n(&mirt__mpi.joined, __ATOMIC_ACQUIRE) == 1;
    int finalized = 1;
    if (getpid() != mirt__mpi.process) return;
    if (joined) MPI_Finalized(&finalized);
    if (!joined) mirt__mpi_let_read();
    if (finalized) return;
    if (mirt__mpi.broken) mirt__mpi_abort();
    if (mirt__mpi.lost || !mirt__mpi.owns) return;
    mirt__mpi_await_end();
    mirt__mpi_quit();
}

/* MPI_Finalize of the program, which initialized MPI. */
static int mirt__mpi_finalizes(MPI_Comm comm, int key, void *value, void *state) {
    (void)comm, (void)key, (void)value, (void)state;
    mirt__mpi_quit();
    return MPI_SUCCESS;
}

static bool mirt__mpi_initialize(char *why) {
    int initialized = 0, level = 0, key;
    MPI_Initialized(&initialized);
    if (!initialized) {
        const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
        if (code != MPI_SUCCESS) return mirt__mpi_why(why, code, "MPI_Init_thread");
        mirt__mpi.owns = true;
    } else {
        MPI_Query_thread(&level);
        if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, mirt__mpi_finalizes, &key, NULL) == MPI_SUCCESS)
            MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    }
    if (level >= MPI_THREAD_MULTIPLE) return true;
    snprintf(why, 256, "MPI was initialized without MPI_THREAD_MULTIPLE: call MPI_Init_thread with it, or leave it to "
                       "mirt_multi_worker");
    return false;
}

static bool mirt__mpi_names(char *why) {
    char own[MPI_MAX_PROCESSOR_NAME] = "";
    int length;
    MPI_Get_processor_name(own, &length);
    mirt__mpi.hosts = (char *)calloc((size_t)mirt__mpi.size, sizeof own);
    if (!mirt__mpi.hosts) {
        snprintf(why, 256, "out of memory");
        return false;
    }
    const int code = MPI_Allgather(own, (int)sizeof own, MPI_CHAR, mirt__mpi.hosts, (int)sizeof own, MPI_CHAR,
                                   mirt__mpi.comm[0]);
    return code == MPI_SUCCESS || mirt__mpi_why(why, code, "MPI_Allgather");
}

static bool mirt__mpi_join(char *why) {
    if (!mirt__mpi_initialize(why)) return false;
    for (int i = 0; i <= MIRT__ENGINE_CHANNELS; i++) {
        const int code = MPI_Comm_dup(MPI_COMM_WORLD, &mirt__mpi.comm[i]);
        if (code != MPI_SUCCESS) return mirt__mpi_why(why, code, "MPI_Comm_dup");
        MPI_Comm_set_errhandler(mirt__mpi.comm[i], MPI_ERRORS_RETURN);
    }
    MPI_Comm_rank(mirt__mpi.comm[0], &mirt__mpi.rank);
    MPI_Comm_size(mirt__mpi.comm[0], &mirt__mpi.size);
    return mirt__mpi_names(why);
}

/* Joins the group, which no limit of MPI's own bounds, listens, and ends MPI where it began it. */
static void *mirt__mpi_main(void *unused) {
    (void)unused;
    const bool joined = mirt__mpi_join(mirt__mpi.why);
    __atomic_store_n(&mirt__mpi.joined, joined ? 1 : -1, __ATOMIC_RELEASE);
    if (joined) mirt__mpi_listen();
    if (joined && mirt__mpi.owns) {
        mirt__mpi_part();
        MPI_Finalize();
    }
    return NULL;
}

/* Once in a process. */
static void mirt__mpi_begin(void) {
    sigset_t all, before;
    mirt__mpi.process = getpid();
    atexit(mirt__mpi_exit);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(&mirt__mpi.thread, NULL, mirt__mpi_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!code) return;
    snprintf(mirt__mpi.why, sizeof mirt__mpi.why, "a thread could not be started: %s", strerror(code));
    __atomic_store_n(&mirt__mpi.joined, -1, __ATOMIC_RELEASE);
}

static bool mirt__mpi_start(const mirt_launch *launch, double limit, int *rank, int *size, char *why) {
    const struct timespec nap = {0, 1000000};
    struct timespec now, since;
    int joined;
    (void)launch;
    pthread_mutex_lock(&mirt__mpi_mutex);
    mirt__mpi.limit = limit;
    if (!mirt__mpi.begun) mirt__mpi_begin();
    mirt__mpi.begun = true;
    pthread_mutex_unlock(&mirt__mpi_mutex);
    clock_gettime(CLOCK_MONOTONIC, &since);
    while (!(joined = __atomic_load_n(&mirt__mpi.joined, __ATOMIC_ACQUIRE))) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (limit > 0 && (double)(now.tv_sec - since.tv_sec) + 1e-9 * (double)(now.tv_nsec - since.tv_nsec) > limit) {
            snprintf(why, 256, "another process has not joined for %.3g s", limit);
            return false;
        }
        nanosleep(&nap, NULL);
    }
    if (joined < 0) snprintf(why, 256, "%s", mirt__mpi.why);
    *rank = mirt__mpi.rank;
    *size = mirt__mpi.size;
    return joined > 0;
}

/* >>rounds of messages */

/* The pieces of a round's messages that are under way. */
typedef struct mirt__mpi_round {
    const mirt__round *round;
    MPI_Request *request;
    MPI_Status *status; /* and done: of a call of MPI_Testsome */
    int *done;
    int *message, *bytes; /* of a piece: receives, then sends */
    int *left;            /* pieces of a received message; NULL: of a sum of MPI's own */
    int count;
} mirt__mpi_round;

static int mirt__mpi_pieces(const mirt__message *m, int count) {
    int64_t pieces = 0;
    for (int i = 0; i < count; i++) pieces += (int64_t)(m[i].bytes / MIRT__MPI_PIECE) + 1;
    return pieces > INT_MAX / 2 ? -1 : (int)pieces;
}

/* Begins the piece of a message at *at, and moves on. */
static int mirt__mpi_piece(MPI_Comm comm, const mirt__message *m, size_t *at, bool receives, MPI_Request *request,
                           int *bytes) {
    const size_t rest = m->bytes - *at;
    char *data = (char *)m->data + *at;
    *bytes = rest < MIRT__MPI_PIECE ? (int)rest : MIRT__MPI_PIECE;
    *at += (size_t)*bytes;
    *request = MPI_REQUEST_NULL;
    return receives ? MPI_Irecv(data, *bytes, MPI_BYTE, m->peer, 0, comm, request)
                    : MPI_Isend(data, *bytes, MPI_BYTE, m->peer, 0, comm, request);
}

static int mirt__mpi_post(mirt__mpi_round *r, MPI_Comm comm, const mirt__message *m, int number, bool receives) {
    size_t at = 0;
    int code = MPI_SUCCESS;
    do {
        const int i = r->count++;
        r->message[i] = number;
        if (receives) r->left[number]++;
        code = mirt__mpi_piece(comm, m, &at, receives, &r->request[i], &r->bytes[i]);
    } while (code == MPI_SUCCESS && at < m->bytes);
    return code;
}

/* What comes late must not be written to memory that the caller has freed. A send cannot be canceled. */
static void mirt__mpi_drop(MPI_Request *request) {
    if (*request == MPI_REQUEST_NULL) return;
    MPI_Cancel(request);
    MPI_Request_free(request);
}

/* Waits without MPI_Wait, which would spin, and for ever. */
static void mirt__mpi_pause(int idle, bool hurry) {
    const struct timespec nap = {0, 50000};
    if (hurry && idle < 64) return;
    if (hurry && idle < 2000) sched_yield();
    else nanosleep(&nap, NULL);
}

static int mirt__mpi_peer(const mirt__mpi_round *r) {
    for (int i = 0; i < r->count; i++) {
        const int m = r->message[i];
        if (r->request[i] == MPI_REQUEST_NULL) continue;
        if (!r->left) return -1; /* of all of them */
        return m < r->round->receives ? r->round->receive[m].peer : r->round->send[m - r->round->receives].peer;
    }
    return -1;
}

static bool mirt__mpi_receives(const mirt__mpi_round *r, int piece) {
    return r->left && r->message[piece] < r->round->receives;
}

/* False: what came is not what was expected. */
static bool mirt__mpi_arrived(mirt__mpi_round *r, int piece, const MPI_Status *status, mirt__engine_failure *failure) {
    const int m = r->message[piece];
    int bytes;
    if (!mirt__mpi_receives(r, piece)) return true;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    if (bytes != r->bytes[piece]) {
        failure->peer = r->round->receive[m].peer;
        snprintf(failure->text, sizeof failure->text,
                 "%d bytes came where %d were expected: the processes do different things", bytes, r->bytes[piece]);
        return false;
    }
    if (--r->left[m] == 0 && r->round->got) r->round->got(r->round->user, m);
    return true;
}

/* Whether a wait since `since` has been long enough; notes for whom it is. */
static bool mirt__mpi_waited(const mirt__mpi_round *r, double *since) {
    mirt__waiting *w = r->round->waiting;
    const int peer = mirt__mpi_peer(r);
    __atomic_store_n(&w->peer, peer, __ATOMIC_RELAXED);
    if (w->limit <= 0 || MPI_Wtime() - *since <= w->limit) return false;
    if (!w->patient || !w->patient(w->user, peer)) return true;
    *since = MPI_Wtime();
    return false;
}

static bool mirt__mpi_failed(const mirt__mpi_round *r, int code, const char *call, mirt__engine_failure *failure) {
    failure->peer = mirt__mpi_peer(r);
    return mirt__mpi_why(failure->text, code, call);
}

/* Until all pieces are there. */
static bool mirt__mpi_complete(mirt__mpi_round *r, const char *call, mirt__engine_failure *failure) {
    mirt__waiting *w = r->round->waiting;
    double since = MPI_Wtime();
    for (int left = r->count, idle = 0; left > 0;) {
        int some;
        const int code = MPI_Testsome(r->count, r->request, &some, r->done, r->status);
        if (code != MPI_SUCCESS) return mirt__mpi_failed(r, code, call, failure);
        if (some == MPI_UNDEFINED) break;
        for (int i = 0; i < some; i++) {
            if (!mirt__mpi_arrived(r, r->done[i], &r->status[i], failure)) return false;
        }
        left -= some;
        if (some) {
            since = MPI_Wtime();
            idle = 0;
            continue;
        }
        mirt__mpi_pause(++idle, __atomic_load_n(&w->hurry, __ATOMIC_RELAXED));
        if (idle % 64 || !mirt__mpi_waited(r, &since)) continue;
        failure->peer = mirt__mpi_peer(r);
        failure->silent = true;
        snprintf(failure->text, sizeof failure->text, "no message came");
        return false;
    }
    __atomic_store_n(&w->peer, -1, __ATOMIC_RELAXED);
    return true;
}

static void mirt__mpi_give_up(mirt__mpi_round *r) {
    for (int i = 0; i < r->count; i++) {
        if (mirt__mpi_receives(r, i)) mirt__mpi_drop(&r->request[i]);
    }
}

static bool mirt__mpi_exchange(mirt__mpi_round *r, MPI_Comm comm, mirt__engine_failure *failure) {
    const mirt__round *round = r->round;
    int code = MPI_SUCCESS;
    for (int i = 0; i < round->receives && code == MPI_SUCCESS; i++)
        code = mirt__mpi_post(r, comm, &round->receive[i], i, true);
    for (int i = 0; i < round->sends && code == MPI_SUCCESS; i++)
        code = mirt__mpi_post(r, comm, &round->send[i], round->receives + i, false);
    const bool good = code == MPI_SUCCESS ? mirt__mpi_complete(r, "MPI_Testsome", failure)
                                          : mirt__mpi_failed(r, code, "MPI_Isend or MPI_Irecv", failure);
    if (!good) mirt__mpi_give_up(r);
    return good;
}

static bool mirt__mpi_trade(int channel, const mirt__round *round, mirt__engine_failure *failure) {
    const int pieces = mirt__mpi_pieces(round->receive, round->receives),
              more = mirt__mpi_pieces(round->send, round->sends);
    mirt__mpi_round r;
    memset(failure, 0, sizeof *failure);
    memset(&r, 0, sizeof r);
    failure->peer = -1;
    r.round = round;
    const size_t all = pieces < 0 || more < 0 ? 0 : (size_t)pieces + (size_t)more;
    if (all == 0) return pieces == 0 && more == 0;
    r.request = (MPI_Request *)malloc(all * sizeof *r.request);
    r.status = (MPI_Status *)malloc(all * sizeof *r.status);
    r.done = (int *)calloc(3 * all + (size_t)round->receives, sizeof *r.done);
    bool good = false;
    if (r.request && r.status && r.done) {
        r.message = r.done + all;
        r.bytes = r.message + all;
        r.left = r.bytes + all;
        good = mirt__mpi_exchange(&r, mirt__mpi.comm[channel], failure);
    } else {
        failure->peer = mirt__mpi.rank;
        snprintf(failure->text, sizeof failure->text, "out of memory");
    }
    free(r.request);
    free(r.status);
    free(r.done);
    mirt__mpi.broken = mirt__mpi.broken || !good;
    return good;
}

/* In memory of its own, and in pieces: a sum cannot be canceled, and after a failure MPI may still write to it. */
static bool mirt__mpi_all_reduce(int channel, mirt__real *sum, int64_t count, mirt__waiting *waiting,
                                 mirt__engine_failure *failure) {
    static mirt__real *room[MIRT__ENGINE_CHANNELS];
    const MPI_Datatype type = sizeof(mirt__real) == sizeof(double) ? MPI_DOUBLE : MPI_FLOAT;
    mirt__round none;
    memset(&none, 0, sizeof none);
    memset(failure, 0, sizeof *failure);
    failure->peer = mirt__mpi.rank;
    none.waiting = waiting;
    if (!room[channel]) room[channel] = (mirt__real *)malloc(MIRT__MPI_SUMMED * sizeof *sum);
    if (!room[channel]) snprintf(failure->text, sizeof failure->text, "out of memory");
    bool good = room[channel] != NULL;
    for (int64_t at = 0; at < count && good; at += MIRT__MPI_SUMMED) {
        const int some = (int)(count - at < MIRT__MPI_SUMMED ? count - at : MIRT__MPI_SUMMED);
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Status state;
        int done, message = 0;
        mirt__mpi_round r = {&none, &request, &state, &done, &message, NULL, NULL, 1};
        memcpy(room[channel], sum + at, (size_t)some * sizeof *sum);
        const int code =
            MPI_Iallreduce(MPI_IN_PLACE, room[channel], some, type, MPI_SUM, mirt__mpi.comm[channel], &request);
        good = code == MPI_SUCCESS ? mirt__mpi_complete(&r, "MPI_Iallreduce", failure)
                                   : mirt__mpi_failed(&r, code, "MPI_Iallreduce", failure);
        if (good) memcpy(sum + at, room[channel], (size_t)some * sizeof *sum);
    }
    mirt__mpi.broken = mirt__mpi.broken || !good;
    return good;
}

/* >>single messages */

/* One of them, in pieces, of which the first `done` have arrived. */
typedef struct mirt__mpi_single {
    MPI_Request *request; /* [pieces], and */
    int *bytes;           /* [pieces], in the same block of memory */
    int pieces, done;
    bool receives;
} mirt__mpi_single;

static void mirt__mpi_forget(void *post) {
    mirt__mpi_single *m = (mirt__mpi_single *)post;
    for (int i = m->done; i < m->pieces && m->receives; i++) mirt__mpi_drop(&m->request[i]);
    free(m);
}

static void *mirt__mpi_begin_single(const mirt__message *message, bool receives) {
    const size_t pieces = (size_t)mirt__mpi_pieces(message, 1);
    mirt__mpi_single *m = (mirt__mpi_single *)calloc(1, sizeof *m + pieces * (sizeof *m->request + sizeof *m->bytes));
    size_t at = 0;
    int code = MPI_SUCCESS;
    if (!m) return NULL;
    m->request = (MPI_Request *)(void *)(m + 1);
    m->bytes = (int *)(void *)(m->request + pieces);
    m->receives = receives;
    do {
        const int i = m->pieces++;
        code = mirt__mpi_piece(mirt__mpi.comm[MIRT__ENGINE_CHANNELS - 1], message, &at, receives, &m->request[i],
                               &m->bytes[i]);
    } while (code == MPI_SUCCESS && at < message->bytes);
    if (code == MPI_SUCCESS) return m;
    mirt__mpi_forget(m);
    return NULL;
}

static int mirt__mpi_look_at_single(void *post) {
    mirt__mpi_single *m = (mirt__mpi_single *)post;
    int there = 1;
    bool good = true;
    while (m->done < m->pieces && there && good) {
        MPI_Status status;
        int bytes = m->bytes[m->done];
        good = MPI_Test(&m->request[m->done], &there, &status) == MPI_SUCCESS;
        if (good && there && m->receives) MPI_Get_count(&status, MPI_BYTE, &bytes);
        good = good && bytes == m->bytes[m->done];
        m->done += good && there;
    }
    if (good && !there) return 0;
    mirt__mpi_forget(m);
    return good ? 1 : -1;
}

static void mirt__mpi_stop(bool broken, bool lost) {
    mirt__mpi.broken = mirt__mpi.broken || broken;
    mirt__mpi.lost = mirt__mpi.lost || lost;
}

const mirt__engine *mirt__mpi_engine(void) {
    static const mirt__engine engine = {
        MIRT__ENGINE_VERSION,   mirt__mpi_name,           mirt__mpi_start,  mirt__mpi_trade,   mirt__mpi_all_reduce,
        mirt__mpi_begin_single, mirt__mpi_look_at_single, mirt__mpi_forget, mirt__mpi_answers, mirt__mpi_ask,
        NULL,                   mirt__mpi_host,           mirt__mpi_stop};
    return &engine;
}
