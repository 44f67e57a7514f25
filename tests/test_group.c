/* Sums over processes: the plans of simulated groups, and forked processes with delays and losses. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "failing_malloc.h"
#include "group_simulation.h"
#include "pipe_engine.h"

/* >>plans */

/* Layout number i of a mixture: mostly few processes, now and then a thousand. */
static layout drawn_layout(int i) {
    const int most = i % 1000 == 999 ? 1024 : i % 100 == 99 ? 300 : i % 8 == 7 ? 64 : 12;
    const int processes = most == 1024 && i % 2000 == 999 ? 1024 : 1 + draw(most), devices = 1 + draw(draw(2) ? 16 : 3);
    int replicas = processes * devices;
    if (draw(3) == 0) replicas += draw(replicas + 1);
    if (draw(4) == 0) replicas = 1 + draw(replicas);
    layout l = layout_make(processes, devices, replicas, draw(3) == 0);
    if (draw(2)) l.active = draw(8) == 0 ? draw(2) : 1 + draw(replicas);
    const int elements = most > 300 ? (i % 2000 == 999 ? 3001 : 130) : most > 64 ? 700 : draw(20) == 0 ? 6007 : 300;
    l.elements = draw(50) == 0 ? draw(3) : 1 + draw(elements);
    if (most > 64) l.elements = elements;
    return l;
}

static void check_layouts(void) {
    const int count = small_tier() ? 900 : 5000;
    int wrong = 0, most = 0;
    layout_state = 1;
    for (int i = 0; i < count && wrong < 5; i++) {
        layout l = drawn_layout(i);
        addition a = addition_make(&l);
        const char *what = simulate(&l, &a);
        if (what && ++wrong)
            printf("# layout %d: %d processes, %d of %d replicas, %lld elements: %s\n", i, l.processes, l.active,
                   l.begin[l.processes], (long long)l.elements, what);
        if (l.processes > most) most = l.processes;
        addition_free(&l, &a);
        layout_free(&l);
    }
    ok(!wrong, "%d layouts of up to %d processes: each ends with the tree's sum, bit for bit", count, most);
}

/* What the plans of all processes move, as parts of the ideal: (W - 1) / W of the elements for each process. */
typedef struct traffic {
    double sent, returned;      /* of the process that sends most, */
    double returned_by_all;     /* and of all on average */
    int rounds, messages, most; /* messages of a process, and those of a round with sums on their way up */
} traffic;

static traffic traffic_of(const layout *l) {
    traffic t;
    memset(&t, 0, sizeof t);
    const double ideal = (double)l->elements * (l->processes - 1) / l->processes;
    for (int p = 0; p < l->processes; p++) {
        mirt__group_plan plan;
        double sent = 0, returned = 0;
        int messages = 0, round = -1, in_round = 0;
        if (mirt__group_plan_make(&plan, l->processes, l->begin, l->active, p, l->elements) != MIRT_OK) {
            t.sent = INFINITY;
            return t;
        }
        for (int i = 0; i < plan.count; i++) {
            const mirt__plan_item *item = &plan.item[i];
            const bool up = item->op == MIRT__PLAN_SEND;
            if (item->round != round) in_round = 0;
            round = item->round;
            if (up) sent += (double)(item->end - item->begin) / ideal;
            if (item->op == MIRT__PLAN_GIVE) returned += (double)(item->end - item->begin) / ideal;
            messages += up || item->op == MIRT__PLAN_GIVE;
            in_round += up;
            if (in_round > t.most) t.most = in_round;
        }
        if (sent > t.sent) t.sent = sent;
        if (returned > t.returned) t.returned = returned;
        t.returned_by_all += returned / l->processes;
        if (messages > t.messages) t.messages = messages;
        t.rounds = plan.rounds;
        mirt__group_plan_free(&plan);
    }
    return t;
}

static void check_traffic(void) {
    static const struct {
        int processes, rounds, messages; /* messages of a process, at most */
    } known[] = {{2, 2, 2},   {3, 4, 4},    {4, 4, 5},    {5, 6, 10},    {6, 6, 8},      {7, 6, 8},      {8, 6, 8},
                 {13, 8, 17}, {16, 8, 11}, {64, 12, 17}, {100, 14, 48}, {1000, 20, 54}, {1024, 20, 29}};
    for (int i = 0; i < MIRT__COUNT(known); i++) {
        const int n = known[i].processes;
        bool good = true, few = true;
        traffic t;
        for (int each = 1; each <= 16; each *= 4) {
            layout l = layout_make(n, 1, n * each, 0);
            l.elements = 25600007;
            t = traffic_of(&l);
            good = good && t.sent <= 1.05 && t.returned <= 1.05 && t.sent > 0.95 && t.returned_by_all > 0.95;
            few = few && t.rounds == known[i].rounds && t.messages <= known[i].messages;
            layout_free(&l);
        }
        printf("# %4d processes: sent %.3f, returned %.3f of the ideal; %d rounds, messages: %d, %d in a round up\n", n,
               t.sent, t.returned, t.rounds, t.messages, t.most);
        ok(good, "%d processes move what they must, and no more than 5 %% beyond", n);
        ok(few, "%d processes need %d rounds, and one of them at most %d messages", n, known[i].rounds,
           known[i].messages);
    }
}

/* Recursive halving: the nearest neighbor first, with half of the elements. */
static void check_halving(void) {
    bool good = true;
    for (int p = 0; p < 16; p++) {
        const int begin[17] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
        mirt__group_plan plan;
        int sends = 0;
        good = good && mirt__group_plan_make(&plan, 16, begin, 16, p, 1 << 20) == MIRT_OK;
        for (int i = 0; i < plan.count && good; i++) {
            const mirt__plan_item *item = &plan.item[i];
            if (item->op != MIRT__PLAN_SEND) continue;
            good = item->round == sends && item->peer == (p ^ 1 << sends) &&
                   item->end - item->begin == 1 << (19 - sends);
            sends++;
        }
        good = good && sends == 4;
        mirt__group_plan_free(&plan);
    }
    ok(good, "processes of a power of two halve the elements with their nearest neighbors first");
}

static void check_one_process(void) {
    const int begin[] = {0, 3};
    mirt__group_plan plan;
    bool good = mirt__group_plan_make(&plan, 1, begin, 3, 0, 100) == MIRT_OK;
    good = good && plan.rounds == 1 && plan.slots == 2 && plan.count == 2 && plan.inbox == 0;
    ok(good && plan.item[0].op == MIRT__PLAN_JOIN && plan.item[1].op == MIRT__PLAN_KEEP,
       "one process joins its slots, and keeps the sum");
    mirt__group_plan_free(&plan);
}

/* With replicas in a few of many processes, none sends more than a few messages in a round on the way back. */
static void check_few_with_rows(void) {
    static const int active[] = {1, 3, 8, 100, 513};
    int most_peers = 0;
    double most = 0;
    for (int i = 0; i < MIRT__COUNT(active); i++) {
        layout l = layout_make(1000, 1, 1000, 0);
        l.elements = 1 << 22;
        l.active = active[i];
        for (int p = 0; p < 1000; p++) {
            mirt__group_plan plan;
            int peers = 0;
            double returned = 0;
            if (mirt__group_plan_make(&plan, 1000, l.begin, l.active, p, l.elements) != MIRT_OK) peers = INT_MAX / 2;
            for (int k = 0; k < plan.count; k++) {
                const mirt__plan_item *item = &plan.item[k], *before = k ? item - 1 : NULL;
                if (item->op != MIRT__PLAN_GIVE) continue;
                const bool again = before && before->op == MIRT__PLAN_GIVE && before->round == item->round;
                peers = again ? peers + (before->peer != item->peer) : 1;
                if (peers > most_peers) most_peers = peers;
                returned += (double)(item->end - item->begin) / (double)l.elements;
            }
            if (active[i] > 1) most = fmax(most, returned);
            mirt__group_plan_free(&plan);
        }
        layout_free(&l);
    }
    ok(most_peers == 1 && most < 5,
       "1000 processes of which few have rows: each sends to %d in a round, %.1f times the sum", most_peers, most);
}

static void check_speed(void) {
    double best = INFINITY;
    int items = 0;
    layout l = layout_make(1024, 1, 16000, 0);
    for (int i = 0; i < 5; i++) {
        mirt__group_plan plan;
        const double since = mirt__now();
        const bool good = mirt__group_plan_make(&plan, 1024, l.begin, 16000, 500, 25600000) == MIRT_OK;
        if (good) best = fmin(best, mirt__now() - since);
        items = plan.count;
        mirt__group_plan_free(&plan);
    }
    ok(best < 0.05, "a plan of 1024 processes with 15 or 16 replicas each takes %.1f ms: %d items", 1e3 * best, items);
    layout_free(&l);
}

static void check_damaged(void) {
    static const int good[] = {0, 2, 4, 6}, late[] = {1, 2, 4, 6}, falling[] = {0, 4, 2, 6}, negative[] = {0, -1, 4, 6};
    const struct {
        const char *what;
        int processes;
        const int *begin;
        int active, process;
        int64_t elements;
    } bad[] = {
        {"no processes", 0, good, 6, 0, 100},
        {"a negative number of processes", -3, good, 6, 0, 100},
        {"too many processes", INT_MAX, good, 6, 0, 100},
        {"no blocks", 3, NULL, 6, 0, 100},
        {"a process that is not there", 3, good, 6, 3, 100},
        {"a negative process", 3, good, 6, -1, 100},
        {"blocks that begin late", 3, late, 6, 0, 100},
        {"blocks out of order", 3, falling, 6, 0, 100},
        {"a negative replica", 3, negative, 6, 0, 100},
        {"more active replicas than there are", 3, good, 7, 0, 100},
        {"a negative number of active replicas", 3, good, -1, 0, 100},
        {"a negative number of elements", 3, good, 6, 0, -1},
        {"more elements than memory", 3, good, 6, 0, INT64_MAX / 3},
    };
    for (int i = 0; i < MIRT__COUNT(bad); i++) {
        mirt__group_plan plan, none;
        memset(&plan, 0x5a, sizeof plan);
        memset(&none, 0, sizeof none);
        const mirt_status status = mirt__group_plan_make(&plan, bad[i].processes, bad[i].begin, bad[i].active,
                                                         bad[i].process, bad[i].elements);
        ok(status == MIRT_E_INVALID && memcmp(&plan, &none, sizeof plan) == 0, "refused: %s", bad[i].what);
        mirt__group_plan_free(&plan);
    }
}

static void check_no_memory(void) {
    const int begin[] = {0, 3, 6, 9, 12, 15};
    bool good = true, all = false;
    int failures = 0;
    for (; !all && good; failures++) {
        mirt__group_plan plan;
        const long blocks = live_blocks;
        fails = allocations + failures + 1;
        const mirt_status status = mirt__group_plan_make(&plan, 5, begin, 14, 2, 100000);
        all = status == MIRT_OK;
        good = all ? allocations < fails : status == MIRT_E_NOMEM && live_blocks == blocks;
        mirt__group_plan_free(&plan);
        good = good && live_blocks == blocks;
    }
    fails = 0;
    mirt__group_plan plan;
    ok(mirt__group_plan_make(&plan, 5, begin, 14, 2, (int64_t)1 << 60) == MIRT_E_NOMEM && !plan.item,
       "more messages than can be counted are reported");
    ok(good && failures > 8, "%d failing allocations are reported, and nothing leaks", failures - 1);
}

/* >>forked processes */

typedef struct outcome {
    int state; /* 0: it did not end */
    int peer;
    bool silent;
    double seconds;
} outcome;
enum { RIGHT = 1, WRONG, FAILED };

/* What processes tell each other, in shared memory. */
typedef struct told {
    outcome of[PIPE_MOST];
    int happened;
} told;

typedef struct schedule {
    layout l;
    addition a;
    pipe_faults faults;
    double limit;
} schedule;

static void add_floats(void *user, mirt__real *into, const mirt__real *from, int64_t count) {
    (void)user;
    for (int64_t i = 0; i < count; i++) into[i] += from[i];
}

/* The part of one process. */
static outcome take_part(const schedule *s, int rank) {
    const layout *l = &s->l;
    outcome out = {WRONG, -1, false, 0};
    mirt__group_plan plan;
    mirt__real *slot[64];
    mirt__group_sum sum;
    mirt__engine_failure failure;
    mirt__waiting waiting;
    const double since = mirt__now();
    memset(&waiting, 0, sizeof waiting);
    if (mirt__group_plan_make(&plan, l->processes, l->begin, l->active, rank, l->elements) != MIRT_OK) return out;
    addition_slots(l, &s->a, rank, slot);
    memset(&sum, 0, sizeof sum);
    memset(&failure, 0, sizeof failure);
    sum.engine = &pipe_engine;
    sum.channel = (int)(l->seed / 2 % MIRT__ENGINE_CHANNELS);
    waiting.limit = s->limit;
    waiting.peer = -1;
    sum.waiting = &waiting;
    sum.slot = slot;
    sum.sum = (mirt__real *)layout_memory((size_t)l->elements, sizeof *sum.sum);
    mirt__real *own = sum.sum;
    memset(own, 0xff, (size_t)l->elements * sizeof *own);
    if (plan.slots && l->seed % 2) sum.sum = slot[0];
    sum.inbox = (mirt__real *)layout_memory((size_t)plan.inbox, sizeof *sum.inbox);
    sum.add = add_floats;
    if (!mirt__group_sum_run(&plan, &sum, &failure)) {
        out.state = FAILED;
        out.peer = failure.peer;
        out.silent = failure.silent;
    } else if (memcmp(sum.sum, s->a.expected, (size_t)l->elements * sizeof *own) == 0) {
        out.state = RIGHT;
    }
    free(own);
    free(sum.inbox);
    mirt__group_plan_free(&plan);
    out.seconds = mirt__now() - since;
    return out;
}

/* Messages that a process sends. */
static int messages_of(const layout *l, int rank) {
    mirt__group_plan plan;
    int count = 0;
    if (mirt__group_plan_make(&plan, l->processes, l->begin, l->active, rank, l->elements) != MIRT_OK) return 0;
    for (int i = 0; i < plan.count; i++) {
        const mirt__plan_item *item = &plan.item[i];
        if (item->op == MIRT__PLAN_SEND || item->op == MIRT__PLAN_GIVE)
            count += (int)mirt__parts(item->end - item->begin, MIRT__GROUP_CHUNK);
    }
    mirt__group_plan_free(&plan);
    return count;
}

static schedule drawn_schedule(int i) {
    schedule s;
    memset(&s, 0, sizeof s);
    const int processes = 2 + draw(4), devices = 1 + draw(3);
    int replicas = processes * devices;
    if (draw(2)) replicas += draw(replicas);
    s.l = layout_make(processes, devices, replicas, draw(3) == 0);
    if (draw(2)) s.l.active = 1 + draw(replicas);
    s.l.elements = i % 40 == 0   ? (int64_t)processes * MIRT__GROUP_CHUNK
                   : i % 20 == 0 ? 131000 + draw(80000)
                                 : 1 + draw(3000);
    s.a = addition_make(&s.l);
    s.limit = 8;
    s.faults.seed = (uint32_t)draw(1 << 30);
    s.faults.delay = draw(3) ? 0.0002 : 0;
    s.faults.lost = -1;
    const int lost = draw(processes), messages = messages_of(&s.l, lost);
    if (draw(2) && messages) {
        s.faults.lost = lost;
        s.faults.after = draw(messages);
        s.faults.silent = draw(5) == 0;
        if (s.faults.silent) s.limit = 0.05;
    }
    return s;
}

/* NULL, or what is wrong with how the processes ended. */
static const char *judge(const schedule *s, const told *t) {
    int failed = 0;
    for (int p = 0; p < s->l.processes; p++) {
        const outcome *o = &t->of[p];
        const bool lost = p == s->faults.lost && t->happened;
        if (o->state == WRONG) return "a wrong sum";
        if (o->state == 0 && !(lost && p && !s->faults.silent)) return "a process that did not end";
        if (o->seconds > s->limit + 1) return "a process that took too long";
        if (o->state != FAILED || (lost && !s->faults.silent)) continue;
        if (o->peer < 0 || o->peer >= s->l.processes || o->peer == p) return "a failure that names nobody";
        const bool named_lost = o->peer == s->faults.lost && t->happened;
        if (!named_lost && t->of[o->peer].state != FAILED) return "a failure that names a process without one";
        if (o->silent && !s->faults.silent) return "silence of a process that is lost";
        failed += !lost;
    }
    if (s->faults.lost < 0 && failed) return "a failure without a loss";
    if (t->happened && !failed) return "a loss that nobody notices";
    if (s->faults.lost >= 0 && !t->happened && !failed) return "a loss that did not happen";
    return NULL;
}

/* All processes of a schedule; returns what is wrong. */
static const char *play(schedule *s, told *t) {
    memset(t, 0, sizeof *t);
    s->faults.happened = &t->happened;
    const int rank = pipe_group_fork(s->l.processes, &s->faults);
    if (rank < 0) return "no processes are left";
    alarm((unsigned)s->limit + 10); /* no process outlives a test that hangs */
    t->of[rank] = take_part(s, rank);
    pipe_group_end();
    if (rank) _exit(0);
    if (!pipe_group_wait(s->limit + 5)) return "a process that did not end";
    return judge(s, t);
}

static void check_schedules(void) {
    const int count = small_tier() ? 250 : 1000;
    int wrong = 0, lost = 0, silent = 0;
    double longest = 0;
    told *t = (told *)pipe_shared(sizeof *t);
    if (!t) {
        ok(false, "memory is shared with forked processes");
        return;
    }
    layout_state = 2;
    for (int i = 0; i < count && wrong < 2; i++) {
        schedule s = drawn_schedule(i);
        const char *what = play(&s, t);
        if (what && ++wrong)
            printf("# schedule %d: %d processes, %lld elements, %d lost at message %d%s: %s\n", i, s.l.processes,
                   (long long)s.l.elements, s.faults.lost, s.faults.after, s.faults.silent ? ", silent" : "", what);
        lost += t->happened && !s.faults.silent;
        silent += t->happened && s.faults.silent;
        for (int p = 0; p < s.l.processes; p++) longest = fmax(longest, t->of[p].seconds - s.limit * s.faults.silent);
        addition_free(&s.l, &s.a);
        layout_free(&s.l);
    }
    alarm(0);
    ok(!wrong && lost > count / 6 && silent > count / 50,
       "%d schedules of delays, %d with a process that ends and %d with a silent one: right sums or named failures",
       count, lost, silent);
    printf("# no process took more than %.2f s beyond its limit\n", longest);
    ok(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "no process is left");
    munmap(t, sizeof *t);
}

/* >>gathering */

enum { GATHERERS = 13, GATHER_ARRAYS = 70, GATHER_BYTES = GATHER_ARRAYS * GATHERERS * 3 * 8, GATHER_ROUNDS = 16,
       GATHER_MESSAGES = 64 };

/* One process: its copy of the arrays, and what it sent and received. */
typedef struct gatherer {
    char data[GATHER_BYTES];
    mirt__message send[GATHER_ROUNDS][GATHER_MESSAGES], receive[GATHER_ROUNDS][GATHER_MESSAGES];
    int sends[GATHER_ROUNDS], receives[GATHER_ROUNDS], rounds;
} gatherer;
static gatherer gatherers[GATHERERS], *gathers; /* whose turn it is: what is sent does not depend on the contents */

static bool record_round(int channel, const mirt__round *round, mirt__engine_failure *failure) {
    gatherer *g = gathers;
    const int at = g->rounds++;
    (void)channel;
    (void)failure;
    if (at >= GATHER_ROUNDS || round->sends > GATHER_MESSAGES || round->receives > GATHER_MESSAGES) return false;
    g->sends[at] = round->sends;
    g->receives[at] = round->receives;
    memcpy(g->send[at], round->send, (size_t)round->sends * sizeof(mirt__message));
    memcpy(g->receive[at], round->receive, (size_t)round->receives * sizeof(mirt__message));
    return true;
}

/* The message that `peer` expects from process p as its number `skip` of this round; NULL: none. */
static const mirt__message *expected(const gatherer *peer, int round, int p, int skip) {
    for (int i = 0; i < peer->receives[round]; i++)
        if (peer->receive[round][i].peer == p && skip-- == 0) return &peer->receive[round][i];
    return NULL;
}

static bool own_data(const gatherer *g, const mirt__message *m) {
    const char *data = (const char *)m->data;
    return data >= g->data && m->bytes <= GATHER_BYTES && data <= g->data + GATHER_BYTES - m->bytes;
}

/* Delivers the messages of a round, which are all sent before any is received: bytes, or -1 where sides differ. */
static int64_t deliver(int round, int size) {
    static char sent[GATHERERS * GATHER_BYTES];
    int64_t bytes = 0, received = 0;
    for (int copy = 0; copy < 2; copy++) {
        char *at = sent;
        for (int p = 0; p < size; p++) {
            int to[GATHERERS] = {0};
            for (int i = 0; i < gatherers[p].sends[round]; i++) {
                const mirt__message *m = &gatherers[p].send[round][i];
                if (m->peer < 0 || m->peer >= size || m->peer == p || m->bytes == 0) return -1;
                const mirt__message *there = expected(&gatherers[m->peer], round, p, to[m->peer]++);
                if (!there || there->bytes != m->bytes || !own_data(&gatherers[p], m) ||
                    !own_data(&gatherers[m->peer], there))
                    return -1;
                memcpy(copy ? (char *)there->data : at, copy ? at : (const char *)m->data, m->bytes);
                at += m->bytes;
                bytes += copy * (int64_t)m->bytes;
            }
        }
    }
    for (int p = 0; p < size; p++)
        for (int i = 0; i < gatherers[p].receives[round]; i++)
            received += (int64_t)gatherers[p].receive[round][i].bytes;
    return received == bytes ? bytes : -1;
}

static char gather_byte(int64_t at) {
    return (char)(at * 7 % 251 + 1);
}

/* What is wrong with a gathering of parts of 0 to 2 elements, of 1 to 8 bytes each. */
static const char *gather(int size, int arrays) {
    static int64_t before[GATHER_ARRAYS][GATHERERS + 1];
    static mirt__engine engine;
    mirt__gathered array[GATHER_ARRAYS];
    int64_t begin[GATHER_ARRAYS + 1] = {0}, moved = 0;
    mirt__engine_failure failure;
    int rounds = 0;
    engine.trade = record_round;
    for (int i = 0; i < arrays; i++) {
        array[i].before = before[i];
        array[i].bytes = (size_t)1 << draw(4);
        for (int p = 0; p < size; p++) before[i][p + 1] = before[i][p] + draw(3);
        begin[i + 1] = begin[i] + before[i][size] * (int64_t)array[i].bytes;
    }
    for (int p = 0; p < size; p++) {
        gathers = &gatherers[p];
        gathers->rounds = 0;
        memset(gathers->data, 0, sizeof gathers->data);
        for (int i = 0; i < arrays; i++) {
            const int64_t bytes = (int64_t)array[i].bytes;
            array[i].base = gathers->data + begin[i];
            for (int64_t k = before[i][p] * bytes; k < before[i][p + 1] * bytes; k++)
                gathers->data[begin[i] + k] = gather_byte(begin[i] + k);
        }
        const mirt__gathering group = {&engine, 0, p, size, NULL};
        if (!mirt__gather_all(&group, array, arrays, &failure)) return "it does not end";
        if (p > 0 && gathers->rounds != gatherers[0].rounds) return "processes have different rounds";
    }
    while (1 << rounds < size) rounds++;
    rounds *= arrays > 64 ? 3 : arrays > 32 ? 2 : 1;
    if (gatherers[0].rounds != rounds) return "the number of rounds is not the least";
    for (int r = 0; r < gatherers[0].rounds; r++) {
        const int64_t bytes = deliver(r, size);
        if (bytes < 0) return "one side sends what the other does not expect";
        moved += bytes;
    }
    for (int p = 0; p < size; p++)
        for (int64_t k = 0; k < begin[arrays]; k++)
            if (gatherers[p].data[k] != gather_byte(k)) return "something is missing";
    return moved == (size - 1) * begin[arrays] ? NULL : "something is sent twice";
}

static void check_gathering(void) {
    static const int arrays[] = {1, 3, 32, 33, GATHER_ARRAYS};
    const char *wrong = NULL;
    int size = 1, i = 0;
    for (size = 1; size <= GATHERERS && !wrong; size++)
        for (i = 0; i < MIRT__COUNT(arrays) && !wrong; i++) wrong = gather(size, arrays[i]);
    ok(!wrong, "1 to %d processes gather up to %d arrays, each byte once%s%s", GATHERERS, GATHER_ARRAYS,
       wrong ? ": " : "", wrong ? wrong : "");
    if (wrong) printf("# %d processes, %d arrays\n", size - 1, arrays[i - 1]);
}

int main(void) {
    check_gathering();
    check_layouts();
    check_traffic();
    check_halving();
    check_one_process();
    check_few_with_rows();
    check_speed();
    check_damaged();
    check_no_memory();
    check_schedules();
    return done_testing();
}
