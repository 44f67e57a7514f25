/* Whether a process waits longer than its limit. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

enum { PROCESSES = 4 };

/* What a process is at, if it does not wait for the process of this number. */
enum { WORKS = -1, SILENT = -2, ENDED = -3 };

typedef struct group {
    const char *name;
    int at[PROCESSES];
    int peer;          /* that process 0 waits for; -1: it does not know for whom */
    const char *words; /* why it waits no longer; NULL: it continues */
} group;

static const group groups[] = {
    {"a process at work", {1, WORKS, WORKS, WORKS}, 1, NULL},
    {"a process that waits for one at work", {1, 2, WORKS, 1}, 1, NULL},
    {"a silent process", {1, SILENT, 1, 1}, 1, "process 1 (host) does not answer"},
    {"a process that waits for a silent one", {1, 3, 1, SILENT}, 1, "process 3 (host) does not answer"},
    {"a process that has ended", {2, 2, ENDED, 2}, 2, "process 2 (host) has ended: the disk is full"},
    {"a process that waits for this one beside a silent one", {1, 0, SILENT, 0}, 1, "process 2 (host) does not answer"},
    {"a process that waits for this one beside one that has ended", {1, 0, 0, ENDED}, 1,
     "process 3 (host) has ended: the disk is full"},
    {"a process that waits for this one beside one at work", {1, 0, 0, WORKS}, 1, NULL},
    {"others that wait for each other beside a silent one", {1, 2, 1, SILENT}, 1, "process 3 (host) does not answer"},
    {"processes that all wait for each other", {1, 2, 3, 0}, 1, "processes wait for each other; process 3 (host) is"},
    {"one of several, one of them silent", {1, 0, SILENT, 0}, -1, "process 2 (host) does not answer"},
    {"one of several, one of them at work", {1, 0, WORKS, 0}, -1, NULL},
    {"one of several, all of which wait for each other", {1, 0, 1, 0}, -1, "processes wait for each other"},
};

static const group *now;
static mirt__peers peers[PROCESSES];
static mirt_strategy strategies[PROCESSES];
static void (*answer_of)(void *user, char *out);

static const char *host(int rank) { return (void)rank, "host"; }

static void answers(void (*answer)(void *user, char *out), void *user) {
    (void)user;
    answer_of = answer;
}

static bool ask(int rank, double seconds, char *answer) {
    (void)seconds;
    if (now->at[rank] == SILENT) return false;
    answer_of(&strategies[rank], answer);
    return true;
}

static void check(const group *g) {
    mirt__engine engine;
    memset(&engine, 0, sizeof engine);
    memset(peers, 0, sizeof peers);
    memset(strategies, 0, sizeof strategies);
    engine.host = host;
    engine.answers = answers;
    engine.ask = ask;
    now = g;
    for (int i = 0; i < PROCESSES; i++) {
        mirt__peers *p = &peers[i];
        p->engine = &engine;
        p->rank = i;
        p->size = PROCESSES;
        strategies[i].peers = p;
        mirt__peers_open(&strategies[i], 1);
        if (g->at[i] >= 0) p->waiting[i % MIRT__ENGINE_CHANNELS].peer = g->at[i];
        if (g->at[i] != ENDED) continue;
        snprintf(strategies[i].lost, sizeof strategies[i].lost, "the disk is full");
        p->broken = true;
    }
    const mirt__waiting *waiting = &peers[0].waiting[0];
    const bool patient = waiting->patient(waiting->user, g->peer);
    const char *failed = peers[0].patience[0].failed;
    ok(patient == !g->words && (!g->words || strstr(failed, g->words)), "waiting for %s: %s", g->name,
       patient ? "continues" : failed);
}

int main(void) {
    for (int i = 0; i < MIRT__COUNT(groups); i++) check(&groups[i]);
    return done_testing();
}
