#ifndef MIRT__TCP_H
#define MIRT__TCP_H
/* Moves bytes between processes by TCP. Launchers say where the first process is (torchrun, TF_CONFIG, Slurm). Every
   two processes have a connection for each channel, and one for questions. */
#include "../group/engine.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    MIRT__TCP_QUESTIONS = MIRT__ENGINE_CHANNELS, /* the link of questions, after those of the channels */
    MIRT__TCP_LINKS,
    MIRT__TCP_MEETING = MIRT__TCP_LINKS, /* what a connection to the first process is for before there are links */
    MIRT__TCP_ADDRESS = 64,
    MIRT__TCP_HOST = 64,
    MIRT__TCP_WHY = 256,     /* bytes of a reason */
    MIRT__TCP_MOST = 1 << 16, /* processes */
    MIRT__TCP_SPINS = 500     /* looks at connections before a thread in a hurry sleeps */
};

enum { MIRT__TCP_QUESTION, MIRT__TCP_ANSWER, MIRT__TCP_WORD /* an answer for the time after the end */ };
/* A question, or an answer, on its way; the serial number is the question's. */
typedef struct mirt__tcp_note {
    int32_t kind, serial;
    char text[MIRT__ENGINE_ANSWER];
} mirt__tcp_note;

typedef struct mirt__tcp_peer {
    int link[MIRT__TCP_LINKS]; /* sockets, -1: none */
    char address[MIRT__TCP_ADDRESS], host[MIRT__TCP_HOST];
    int32_t port;
    mirt__tcp_note note; /* the one that is coming, of which `came` bytes are here; of the thread that listens */
    size_t came;
    double lost_at; /* when its link of questions ended, 0: it has not; and */
    int32_t answered;
    char answer[MIRT__ENGINE_ANSWER]; /* to the question of this number, */
    bool left_word;                   /* and */
    char word[MIRT__ENGINE_ANSWER];   /* what it has left: guarded by the mutex */
} mirt__tcp_peer;

/* The messages of a round with one process in one direction, one after the other. */
typedef struct mirt__tcp_flow {
    const mirt__message *message;
    int count, at; /* at == count: all are done */
    size_t done;   /* bytes of message `at`, its header included */
    uint64_t header;
} mirt__tcp_flow;

/* What a channel needs for a round, which is one thread's at a time. */
typedef struct mirt__tcp_desk {
    mirt__tcp_flow *out, *in; /* [size] */
    int *active;              /* [size] processes with messages in this round */
    struct pollfd *polled;    /* [size] */
} mirt__tcp_desk;

typedef struct mirt__tcp_group {
    bool begun, joined;
    bool broken; /* atomic */
    int rank, size;
    pid_t process; /* that joined; its connections are not for its children */
    mirt__tcp_peer *peer;
    mirt__tcp_desk desk[MIRT__ENGINE_CHANNELS];
    pthread_t thread; /* listens to questions */
    int wake[2];      /* a byte ends it */
    char why[MIRT__TCP_WHY];
    void (*answer)(void *user, char *out); /* and user: guarded by the mutex */
    void *user;
} mirt__tcp_group;

/* The first bytes on a connection. */
typedef struct mirt__tcp_hello {
    uint64_t mark, token; /* token: the first process's, of a link */
    int32_t rank, size, link, port;
    char host[MIRT__TCP_HOST];
} mirt__tcp_hello;

typedef struct mirt__tcp_caller {
    int fd; /* -1: nobody */
    double since;
    size_t came;
    mirt__tcp_hello hello;
} mirt__tcp_caller;

enum { MIRT__TCP_CALLERS = 64 };
typedef struct mirt__tcp_door {
    int listener;
    mirt__tcp_caller caller[MIRT__TCP_CALLERS];
} mirt__tcp_door;

static mirt__tcp_group mirt__tcp;
static pthread_mutex_t mirt__tcp_mutex = PTHREAD_MUTEX_INITIALIZER;

static double mirt__tcp_now(void);
static void mirt__tcp_nap(double seconds);
/* False, with a reason. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static bool mirt__tcp_why(char *why, const char *format, ...);
/* Sends or receives all bytes by `until`, 0: for ever. False: errno, 0: the other side has closed. */
static bool mirt__tcp_move(int fd, void *data, size_t bytes, bool sends, double until);
/* What a call with these bytes moved; 0: it would block; -1: errno, 0: the other side has closed. */
static ssize_t mirt__tcp_some(int fd, struct iovec *part, int parts, bool sends);
/* Starts the thread that answers questions. */
static bool mirt__tcp_start_answering(char *why);
/* A socket that listens to *port, 0: a free one, which is set; -1: errno. */
static int mirt__tcp_open_port(int *port);
/* A connection; -1: `why`. Takes up to 5 s for each address that does not answer. */
static int mirt__tcp_dial(const char *address, int port, double until, char *why);
/* A caller, who may not have said anything yet; -1: there is none. */
static int mirt__tcp_accept(int listener);
static int mirt__tcp_close(int fd);
/* Connects all processes, by `until`, 0: for ever. */
static bool mirt__tcp_meet(const mirt_launch *launch, double until, char *why);
#endif
