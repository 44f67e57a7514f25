/* The engine of TCP between forked processes. Rounds, single messages, questions, losses, and callers that do not
   belong to them. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include "../src/tcp/tcp.c"
#include "../src/tcp/question.c"
#include "../src/tcp/connect.c"
#include "../src/tcp/door.c"
#include "../src/tcp/meet.c"
#include "../src/tcp/trade.c"
#include "../src/tcp/tcp_engine.c"
#include <signal.h>
#include <sys/wait.h>

enum { MOST = 6, WELL = 0, FAILED = 1 };
static const double usual_limit = 20;

static mirt_launch launch;
static int own, all; /* of this process: its number, and how many there are */

/* A port that nothing listens to. */
static int free_port(void) {
    int port = 0;
    mirt__tcp_close(mirt__tcp_open_port(&port));
    return port;
}

static bool start(double limit, char *why) {
    return mirt__tcp_engine()->start(&launch, limit, &own, &all, why);
}

/* Forks processes that run fn, as number `first` and the following of `size`. */
static void begin(int first, int count, int size, int (*fn)(void), pid_t *child) {
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        child[i] = fork();
        if (child[i]) continue;
        launch.index = first + i;
        launch.processes = size;
        alarm(120); /* ends what hangs */
        exit(fn());
    }
}

/* The exit status of a process, -1: a signal. */
static int end_of_process(pid_t child) {
    int code = 0;
    waitpid(child, &code, 0);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

static void run(int first, int count, int size, int (*fn)(void), int *status) {
    pid_t child[MOST];
    begin(first, count, size, fn, child);
    for (int i = 0; i < count; i++) status[i] = end_of_process(child[i]);
}

/* Whether processes run fn and end well. */
static bool together(int size, int (*fn)(void)) {
    int status[MOST], failed = 0;
    launch.port = free_port();
    run(0, size, size, fn, status);
    for (int i = 0; i < size; i++) failed += status[i] != WELL;
    return !failed;
}

/* >>rounds */

static uint32_t drawn_from(uint32_t *state, uint32_t bound) {
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)*state * bound >> 32);
}

typedef struct drawn_round {
    mirt__message send[32], receive[32];
    int sends, receives, got[32];
} drawn_round;

static unsigned char byte_of(int round, int from, int number, size_t at) {
    return (unsigned char)(round * 31 + from * 7 + number * 13 + (int)(at % 251));
}

static void note_arrival(void *user, int receive) { ((drawn_round *)user)->got[receive]++; }

/* Of a round that all processes draw alike. */
typedef struct drawn_message {
    int from, to;
    size_t bytes;
} drawn_message;

static int draw_messages(int number, drawn_message *out) {
    uint32_t state = (uint32_t)number * 2654435761u;
    const int messages = 1 + (int)drawn_from(&state, 30);
    for (int i = 0; i < messages; i++) {
        out[i].from = (int)drawn_from(&state, (uint32_t)all);
        out[i].to = (out[i].from + 1 + (int)drawn_from(&state, (uint32_t)all - 1)) % all;
        out[i].bytes = 1 + drawn_from(&state, drawn_from(&state, 8) ? 3000 : 2000000);
    }
    return messages;
}

static void draw_round(int number, drawn_round *r) {
    drawn_message drawn[30];
    const int messages = draw_messages(number, drawn);
    memset(r, 0, sizeof *r);
    for (int i = 0; i < messages; i++) {
        const drawn_message *m = &drawn[i];
        if (m->from != own && m->to != own) continue;
        unsigned char *data = (unsigned char *)calloc(m->bytes, 1);
        for (size_t b = 0; b < m->bytes && m->from == own; b++) data[b] = byte_of(number, m->from, i, b);
        const mirt__message message = {m->from == own ? m->to : m->from, data, m->bytes};
        if (m->from == own) r->send[r->sends++] = message;
        else r->receive[r->receives++] = message;
    }
}

/* Whether what has come is what the others have drawn. */
static bool arrived(int number, const drawn_round *r) {
    drawn_message drawn[30];
    const int messages = draw_messages(number, drawn);
    int wrong = 0, next = 0;
    for (int i = 0; i < messages; i++) {
        const drawn_message *m = &drawn[i];
        if (m->to != own) continue;
        const unsigned char *data = (const unsigned char *)r->receive[next].data;
        for (size_t b = 0; b < m->bytes; b++) wrong += data[b] != byte_of(number, m->from, i, b);
        wrong += r->got[next++] != 1;
    }
    return !wrong;
}

static bool trade_drawn(int channel, int number) {
    drawn_round r;
    mirt__waiting waiting;
    mirt__engine_failure failure;
    draw_round(number, &r);
    memset(&waiting, 0, sizeof waiting);
    waiting.limit = usual_limit;
    waiting.hurry = number % 2;
    const mirt__round round = {r.send, r.receive, r.sends, r.receives, note_arrival, &r, &waiting};
    const bool good = mirt__tcp_engine()->trade(channel, &round, &failure) && arrived(number, &r);
    if (!good) printf("# process %d, round %d: %s\n", own, number, failure.text);
    for (int i = 0; i < r.sends; i++) free(r.send[i].data);
    for (int i = 0; i < r.receives; i++) free(r.receive[i].data);
    return good;
}

static int rounds_of(int channel) {
    const int rounds = small_tier() ? 30 : 200;
    for (int i = 0; i < rounds; i++) {
        if (!trade_drawn(channel, 1000 * channel + i)) return FAILED;
    }
    return WELL;
}

static void *rounds_beside(void *status) {
    *(int *)status = rounds_of(1);
    return NULL;
}

/* On two channels at once. */
static int do_rounds(void) {
    char why[256] = "";
    pthread_t beside;
    int other = FAILED;
    if (!start(usual_limit, why)) return printf("# process %d: %s\n", launch.index, why), FAILED;
    if (pthread_create(&beside, NULL, rounds_beside, &other)) return FAILED;
    const int status = rounds_of(0);
    pthread_join(beside, NULL);
    return status == WELL ? other : status;
}

/* A message of these bytes to the next process, and as many expected from the one before. */
static bool pass_on(size_t out, size_t in, double limit, mirt__engine_failure *failure) {
    static char memory[2][4096];
    mirt__waiting waiting;
    const mirt__message send = {(own + 1) % all, memory[0], out}, receive = {(own + all - 1) % all, memory[1], in};
    const mirt__round round = {&send, &receive, 1, 1, NULL, NULL, &waiting};
    memset(&waiting, 0, sizeof waiting);
    waiting.limit = limit;
    return mirt__tcp_engine()->trade(0, &round, failure);
}

static int do_different_things(void) {
    mirt__engine_failure failure;
    char why[256];
    if (!start(usual_limit, why)) return FAILED;
    const bool good = pass_on(100 + (size_t)own, 100, usual_limit, &failure);
    const bool said = !good && strstr(failure.text, "102 bytes came where 100 were expected") && failure.peer == 2;
    return own == 0 ? (said ? WELL : FAILED) : WELL;
}

/* >>processes that are lost */

static int lose_one(void) {
    mirt__engine_failure failure;
    char why[256];
    int rank, size;
    if (!start(usual_limit, why) || !pass_on(9, 9, usual_limit, &failure)) return FAILED;
    if (own == 1) raise(SIGKILL);
    while (pass_on(9, 9, usual_limit, &failure)) {}
    return failure.peer == 1 && !failure.silent && !mirt__tcp_engine()->start(&launch, 1, &rank, &size, why) ? WELL
                                                                                                            : FAILED;
}

static int stop_one(void) {
    mirt__engine_failure failure;
    char why[256], answer[MIRT__ENGINE_ANSWER];
    if (!start(usual_limit, why) || !pass_on(9, 9, usual_limit, &failure)) return FAILED;
    if (own == 1) return raise(SIGSTOP), WELL;
    const double began = mirt__tcp_now();
    bool good = !pass_on(9, 9, 0.5, &failure) && failure.silent && failure.peer == 1;
    good = good && !mirt__tcp_engine()->ask(1, 0.3, answer) && mirt__tcp_now() - began < 5;
    return good ? WELL : FAILED;
}

/* Waits as long again a few times. */
static bool count_patience(void *user, int peer) { return peer == 1 && ++*(int *)user <= 4; }

/* A message that takes 1 s, while the limit is 0.3 s. */
static int be_patient(void) {
    mirt__engine_failure failure;
    mirt__waiting waiting;
    char why[256], byte = 1;
    int asked = 0;
    const mirt__message message = {1 - launch.index, &byte, 1};
    const mirt__round send = {&message, NULL, 1, 0, NULL, NULL, &waiting},
                      receive = {NULL, &message, 0, 1, NULL, NULL, &waiting};
    memset(&waiting, 0, sizeof waiting);
    if (!start(usual_limit, why)) return FAILED;
    if (own == 1) {
        mirt__tcp_nap(1);
        const bool sent = mirt__tcp_engine()->trade(1, &send, &failure);
        mirt__tcp_nap(1.5); /* until the other one has waited in vain */
        return sent ? WELL : FAILED;
    }
    waiting.limit = 0.3;
    waiting.patient = count_patience;
    waiting.user = &asked;
    const bool came = mirt__tcp_engine()->trade(1, &receive, &failure);
    const double began = mirt__tcp_now();
    asked = 3; /* another one does not come: once more is waited for it */
    const bool more = mirt__tcp_engine()->trade(1, &receive, &failure);
    const double seconds = mirt__tcp_now() - began;
    return came && !more && failure.silent && failure.peer == 1 && asked == 5 && seconds > 0.55 && seconds < 1 ? WELL
                                                                                                              : FAILED;
}

/* Five messages take 1 s, but none of them the limit. */
static int trickle(void) {
    enum { MESSAGES = 5 };
    mirt__engine_failure failure;
    mirt__waiting waiting;
    mirt__message message[MESSAGES];
    char why[256], bytes[MESSAGES] = {0};
    bool good = start(usual_limit, why);
    memset(&waiting, 0, sizeof waiting);
    waiting.limit = 0.5;
    for (int i = 0; i < MESSAGES; i++) message[i] = (mirt__message){1 - own, &bytes[i], 1};
    const mirt__round all_of_them = {NULL, message, 0, MESSAGES, NULL, NULL, &waiting};
    if (own == 0) return good && mirt__tcp_engine()->trade(1, &all_of_them, &failure) ? WELL : FAILED;
    for (int i = 0; i < MESSAGES && good; i++) {
        const mirt__round one = {&message[i], NULL, 1, 0, NULL, NULL, &waiting};
        mirt__tcp_nap(0.25);
        good = mirt__tcp_engine()->trade(1, &one, &failure);
    }
    return good ? WELL : FAILED;
}

/* A single message of a process that is lost. */
static int lose_the_other(void) {
    mirt__engine_failure failure;
    char why[256], byte;
    const mirt__message message = {1, &byte, 1};
    if (!start(usual_limit, why) || !pass_on(9, 9, usual_limit, &failure)) return FAILED;
    if (own == 1) raise(SIGKILL);
    void *post = mirt__tcp_engine()->post(&message, true);
    int posted;
    while ((posted = mirt__tcp_engine()->posted(post)) == 0) mirt__tcp_nap(0.001);
    return posted == -1 ? WELL : FAILED;
}

/* >>questions and single messages */

static void answer_late(void *user, char *out) {
    const int question = ++*(int *)user;
    mirt__tcp_nap(question == 1 ? 0.6 : 0.2);
    snprintf(out, MIRT__ENGINE_ANSWER, "answer %d", question);
}

/* The answer to a question that nobody waits for any more is not that to the next one. */
static int ask_twice(void) {
    static int questions;
    mirt__engine_failure failure;
    char why[256], answer[MIRT__ENGINE_ANSWER] = "", host[MIRT__TCP_HOST] = "";
    if (!start(usual_limit, why)) return FAILED;
    mirt__tcp_engine()->answers(answer_late, &questions);
    if (!pass_on(1, 1, usual_limit, &failure)) return FAILED;
    gethostname(host, sizeof host - 1);
    bool good = strcmp(mirt__tcp_engine()->host(1 - own), host) == 0;
    if (own == 0)
        good = good && !mirt__tcp_engine()->ask(1, 0.2, answer) && mirt__tcp_engine()->ask(1, 5, answer) &&
               !strcmp(answer, "answer 2");
    good = pass_on(1, 1, usual_limit, &failure) && good;
    mirt__tcp_engine()->answers(NULL, NULL);
    return good ? WELL : FAILED;
}

static void answer_number(void *user, char *out) { snprintf(out, MIRT__ENGINE_ANSWER, "process %d", *(int *)user); }

static int ask_others(void) {
    mirt__engine_failure failure;
    char why[256], answer[MIRT__ENGINE_ANSWER], expected[32];
    int wrong = 0;
    if (!start(usual_limit, why)) return FAILED;
    mirt__tcp_engine()->answers(answer_number, &own);
    for (int i = 1; i < all; i++) { /* until the last one answers */
        if (!pass_on(1, 1, usual_limit, &failure)) return FAILED;
    }
    for (int i = 0; i < 100 * all; i++) {
        const int p = i % all;
        snprintf(expected, sizeof expected, "process %d", p);
        if (p != own) wrong += !mirt__tcp_engine()->ask(p, 5, answer) || strcmp(answer, expected) != 0;
    }
    for (int i = 1; i < all; i++) pass_on(1, 1, usual_limit, &failure); /* others may still ask */
    mirt__tcp_engine()->answers(NULL, NULL);
    return wrong ? FAILED : WELL;
}

/* What a process has said before its end is what others hear of it afterwards, but not while it answers. */
static int leave_word(void) {
    mirt__engine_failure failure;
    static int late;
    char why[256], answer[MIRT__ENGINE_ANSWER] = "";
    if (!start(usual_limit, why)) return FAILED;
    late = own + 10;
    mirt__tcp_engine()->answers(answer_number, &own);
    if (own == 1) mirt__tcp_engine()->leave_word();
    mirt__tcp_engine()->answers(answer_number, &late);
    if (!pass_on(1, 1, usual_limit, &failure)) return FAILED;
    if (own == 1) return pass_on(1, 1, usual_limit, &failure) ? WELL : FAILED;
    bool good = mirt__tcp_engine()->ask(1, 5, answer) && strcmp(answer, "process 11") == 0;
    good = pass_on(1, 1, usual_limit, &failure) && good;
    good = good && !pass_on(1, 1, usual_limit, &failure) && failure.gone && failure.peer == 1;
    return good && mirt__tcp_engine()->ask(1, 5, answer) && strcmp(answer, "process 1") == 0 ? WELL : FAILED;
}

static int end_of(void *post) {
    int posted;
    while ((posted = mirt__tcp_engine()->posted(post)) == 0) sched_yield();
    return posted;
}

/* The first process does not know who speaks next. */
static int serve_singles(void) {
    enum { BYTES = 3000000 };
    static unsigned char memory[MOST][BYTES];
    char why[256];
    void *post[MOST];
    int wrong = 0, ended = 0;
    if (!start(usual_limit, why)) return FAILED;
    for (int p = own ? 0 : 1; p < (own ? 1 : all); p++) {
        const mirt__message message = {p, memory[p], BYTES};
        if (own) memset(memory[p], own, BYTES);
        post[p] = mirt__tcp_engine()->post(&message, own == 0);
    }
    if (own) return end_of(post[0]) == 1 ? WELL : FAILED;
    bool here[MOST] = {false};
    while (ended < all - 1) {
        for (int p = 1; p < all; p++) {
            const int posted = here[p] ? 0 : mirt__tcp_engine()->posted(post[p]);
            if (posted < 0) return FAILED;
            here[p] = here[p] || posted;
            ended += posted;
        }
    }
    for (int p = 1; p < all; p++) wrong += memory[p][0] != p || memory[p][BYTES - 1] != p;
    return wrong ? FAILED : WELL;
}

/* >>joining */

static char expected_words[3][64];

/* Whether it cannot start, and says so, in time, and again. */
static int fail_with(const char *words) {
    char why[256] = "";
    const double began = mirt__tcp_now();
    const bool good = start(1, why), again = start(1, why);
    if (!good && !again && mirt__tcp_now() - began < 4 && strstr(why, words)) return WELL;
    printf("# process %d: \"%s\" after %.1f s\n", launch.index, why, mirt__tcp_now() - began);
    return FAILED;
}

static int fail_to_start(void) { return fail_with(expected_words[launch.index]); }

/* DESCRIPTION: processes FIRST to FIRST + COUNT - 1 of SIZE alone. */
static void refuses(const char *what, int first, int count, int size, const char *zero, const char *one) {
    int status[MOST], failed = 0;
    snprintf(expected_words[0], sizeof expected_words[0], "%s", zero);
    snprintf(expected_words[1], sizeof expected_words[1], "%s", one);
    run(first, count, size, fail_to_start, status);
    for (int i = 0; i < count; i++) failed += status[i] != WELL;
    ok(!failed, "%s", what);
}

/* Writes to the port what no process would, over and over. */
static pid_t disturb(int port) {
    const pid_t child = fork();
    if (child) return child;
    uint32_t state = (uint32_t)port;
    for (;;) {
        char why[MIRT__TCP_WHY];
        mirt__tcp_hello hello = mirt__tcp_own_hello((int)drawn_from(&state, 6) - 1, 12345, 77);
        const int fd = mirt__tcp_dial("localhost", port, 0, why), kind = (int)drawn_from(&state, 4);
        hello.rank = (int)drawn_from(&state, 5) - 1;
        hello.size = 3;
        if (kind == 0) hello.mark = drawn_from(&state, 1000000);
        if (kind == 1) hello.link = MIRT__TCP_LINKS + 1; /* neither a meeting nor a link */
        if (kind == 2) hello.link = (int)drawn_from(&state, MIRT__TCP_LINKS); /* of another group */
        const size_t bytes = drawn_from(&state, 2) ? sizeof hello : drawn_from(&state, sizeof hello);
        if (kind < 3 && fd >= 0) mirt__tcp_move(fd, &hello, bytes, true, 0);
        mirt__tcp_close(fd);
        mirt__tcp_nap(0.002);
    }
}

static void check_joining(void) {
    int status[MOST];
    launch.port = free_port();
    refuses("a process that does not come is named", 0, 2, 3, "process 2 of 3 has not reached",
            "process 2 of 3 has not reached");
    refuses("several are counted", 0, 1, 4, "3 of 4 processes have not reached", "");
    refuses("without the first one", 1, 1, 2, "", "cannot be reached: Connection refused");
    snprintf(launch.host, sizeof launch.host, "no-such-host.invalid");
    refuses("a host that has no address", 1, 1, 2, "", "no-such-host.invalid port");
    snprintf(launch.host, sizeof launch.host, "localhost");
    int port = launch.port;
    const int taken = mirt__tcp_open_port(&port);
    refuses("a port that is taken, by something that does not answer", 0, 2, 2, "cannot be listened to",
            "process 0 does not answer");
    mirt__tcp_close(taken);

    for (int i = 0; i < 3; i++) {
        launch.port = free_port();
        const pid_t child = disturb(launch.port);
        run(0, 4, 4, ask_others, status);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        ok(status[0] == WELL && status[1] == WELL && status[2] == WELL && status[3] == WELL,
           "what others write to the port is ignored");
    }
}

/* Number 2 of 4 says hello at the meeting, makes some links, and is then killed or stopped. */
static int links_made, last_signal;
static int vanish(void) {
    char why[MIRT__TCP_WHY];
    mirt__tcp_joining j;
    memset(&j, 0, sizeof j);
    mirt__tcp.rank = 2;
    mirt__tcp.size = 4;
    int port = 0, made = 0;
    int fd[4] = {-1, -1, -1, -1};
    j.launch = &launch;
    j.fd = fd;
    if (!mirt__tcp_memory() || !mirt__tcp_open_door(&j.door, &port)) return FAILED;
    fd[0] = mirt__tcp_reach(&j, "localhost", launch.port, why);
    mirt__tcp_hello hello = mirt__tcp_own_hello(MIRT__TCP_MEETING, 0, port);
    mirt__tcp_move(fd[0], &hello, sizeof hello, true, 0);
    if (links_made >= 0 && !mirt__tcp_take_list(&j, why)) return FAILED;
    for (int p = 0; p < 2; p++) {
        for (int link = 0; link < MIRT__TCP_LINKS && made < links_made; link++, made++) {
            hello = mirt__tcp_own_hello(link, j.token, 0);
            const int to = mirt__tcp_reach(&j, "localhost", mirt__tcp.peer[p].port, why);
            mirt__tcp_move(to, &hello, sizeof hello, true, 0);
        }
    }
    raise(last_signal);
    return FAILED;
}

static int be_left(void) {
    char why[256] = "";
    if (launch.index == 2) return vanish();
    const double began = mirt__tcp_now();
    const bool good = start(2, why);
    const double seconds = mirt__tcp_now() - began;
    if (!good && strstr(why, "process 2 (") && seconds < (last_signal == SIGKILL ? 1.5 : 5)) return WELL;
    printf("# process %d, %d links: \"%s\" after %.1f s\n", launch.index, links_made, why, seconds);
    return FAILED;
}

/* Whether the other three name it. */
static bool named(void) {
    pid_t child[4];
    bool good = true;
    launch.port = free_port();
    begin(0, 4, 4, be_left, child);
    for (int i = 0; i < 4; i++) good = (i == 2 || end_of_process(child[i]) == WELL) && good;
    kill(child[2], SIGKILL);
    end_of_process(child[2]);
    return good;
}

static void check_losses_while_joining(void) {
    static const int links[] = {-1, 0, 2, 4, 6, 8};
    for (int i = 0; i < MIRT__COUNT(links); i++) {
        links_made = links[i];
        last_signal = SIGKILL;
        ok(named(), "killed while joining, with %d links: all others name it at once", links_made);
        last_signal = SIGSTOP;
        ok(named(), "stopped then: within the limit");
    }
}

static const char *expected_of_all;

/* Process 1 counts four processes. */
static int count_differently(void) {
    if (launch.index == 1) launch.processes = 4;
    return fail_with(expected_of_all);
}

/* So does process 2 say that it is process 1. */
static int take_a_number_twice(void) {
    if (launch.index == 2) launch.index = 1;
    return fail_with(expected_of_all);
}

static void check_contradictions(int (*fn)(void), const char *words) {
    int status[3];
    expected_of_all = words;
    launch.port = free_port();
    run(0, 3, 3, fn, status);
    ok(status[0] == WELL && status[1] == WELL && status[2] == WELL, "all say: %s", words);
}

/* The second of three; the third waits for it. */
/* A door with as many silent callers as it has room for, and one more who knocks. */
typedef struct full_door {
    mirt__tcp_door door;
    mirt__tcp_hello hello;
    int caller[MIRT__TCP_CALLERS + 1];
} full_door;

static bool open_full_door(full_door *f) {
    int port = 0, calls = 0;
    struct sockaddr_in at;
    memset(&at, 0, sizeof at);
    if (!mirt__tcp_open_door(&f->door, &port)) return false;
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons((uint16_t)port);
    for (int i = 0; i <= MIRT__TCP_CALLERS; i++) {
        f->caller[i] = socket(AF_INET, SOCK_STREAM, 0);
        calls += connect(f->caller[i], (struct sockaddr *)&at, sizeof at) == 0;
    }
    return mirt__tcp_await_caller(&f->door, 1, &f->hello) < 0 && calls == MIRT__TCP_CALLERS + 1;
}

static void close_full_door(full_door *f) {
    for (int i = 0; i <= MIRT__TCP_CALLERS; i++) mirt__tcp_close(f->caller[i]);
    mirt__tcp_close_door(&f->door);
}

static void check_full_door(void) {
    full_door f;
    const bool open = open_full_door(&f);
    const double before = mirt__tcp_now();
    mirt__tcp_await_caller(&f.door, 0.3, &f.hello);
    const double waited = mirt__tcp_now() - before;
    ok(open && waited > 0.25, "with room for nobody a process waits, and is not busy: %.2f s", waited);
    const mirt__tcp_hello hello = mirt__tcp_own_hello(0, 7, 0);
    const bool said = write(f.caller[0], &hello, sizeof hello) == (ssize_t)sizeof hello;
    nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 300000000}, NULL);
    const int fd = mirt__tcp_await_caller(&f.door, 0, &f.hello);
    ok(said && fd >= 0 && f.hello.token == 7, "a hello that is read late counts");
    mirt__tcp_close(fd);
    int held = 0;
    for (int i = 0; i < 2; i++) mirt__tcp_await_caller(&f.door, 0, &f.hello);
    for (int i = 0; i < MIRT__TCP_CALLERS; i++) held += f.door.caller[i].fd >= 0;
    ok(held == 1, "who is silent for long makes room for who knocks: %d are held", held);
    close_full_door(&f);
}

static void check_stopped(void) {
    pid_t child[3];
    int stopped = 0;
    launch.port = free_port();
    begin(0, 3, 3, stop_one, child);
    waitpid(child[1], &stopped, WUNTRACED);
    const int status = end_of_process(child[2]);
    kill(child[1], SIGKILL);
    end_of_process(child[1]);
    end_of_process(child[0]);
    ok(WIFSTOPPED(stopped) && status == WELL, "a stopped process is silent beyond the limit, and does not answer");
}

int main(void) {
    int status[MOST];
    snprintf(launch.host, sizeof launch.host, "localhost");
    launch.launcher = "torchrun";
    for (int size = 2; size <= MOST; size++) {
        ok(together(size, do_rounds), "%d processes: messages of all sizes on two channels at once", size);
        ok(together(size, serve_singles), "%d processes: single messages of 3 MB", size);
    }
    ok(together(4, ask_others), "questions are answered by those who are asked");
    ok(together(2, ask_twice), "a late answer is not taken for another one, and hosts have their names");
    ok(together(2, leave_word), "a process that is gone has left word");
    ok(together(2, trickle), "the limit is that of a message, not of a round");
    ok(together(2, be_patient), "a wait is prolonged as long as somebody says so");
    launch.port = free_port();
    run(0, 2, 2, lose_the_other, status);
    ok(status[0] == WELL && status[1] == -1, "a single message of a process that is lost fails");
    ok(together(3, do_different_things), "another number of bytes than expected is an error");
    launch.port = free_port();
    run(0, 3, 3, lose_one, status);
    ok(status[0] == WELL && status[1] == -1 && status[2] == WELL, "a killed process is named by all others");
    check_full_door();
    check_stopped();
    check_joining();
    check_losses_while_joining();
    check_contradictions(count_differently, "process 1 says that there are 4 processes, process 0 says 3");
    check_contradictions(take_a_number_twice, "two processes have number 1");
    return done_testing();
}
