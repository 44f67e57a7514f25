/* The first processes of those that a launcher started, as a group of their own. */
#include "posix.h"
#define MIRRORTRAIN_BACKEND
#include "scaling.h"

#include <stdlib.h>
#include <string.h>

enum { USUAL_LIMIT = 60 };
enum { CHANNEL = 1 }; /* the library's, which is idle outside of its calls */

static const mirt__engine *engine; /* of all processes */
static int own, all, limit;

/* >>the group */

static bool start_limited(const mirt_launch *launch, double seconds, int *rank, int *size, char *why) {
    if (!engine->start(launch, seconds, rank, size, why)) return false;
    *size = limit;
    return true;
}

const mirt__engine *limited_engine(const mirt__engine *whole) {
    static mirt__engine some;
    engine = whole;
    if (!limit) return whole;
    some = *whole;
    some.start = start_limited;
    return &some;
}

int join_processes(void) {
    char why[256] = "no launcher started this process with others";
    const mirt__engine *found = own_launch()->mpi ? mirt__mpi_engine() : mirt__tcp_engine();
    if (found && found->start(own_launch(), USUAL_LIMIT, &own, &all, why)) return all;
    if (is_first() || !own_launch()->mpi) complain("%s", why);
    return 0;
}

void limit_processes(int count) {
    pretend_alone(count == 1);
    limit = count;
}

int processes_of_host(void) {
    int count = 0;
    for (int i = 0; i < all; i++) count += strcmp(engine->host(i), engine->host(own)) == 0;
    return count;
}

/* >>messages outside of training */

/* To and from a process, as long as it takes. False after complaining. */
static bool trade(int peer, void *out, void *in, size_t bytes) {
    mirt__engine_failure failure;
    const mirt__message send = {peer, out, bytes}, receive = {peer, in, bytes};
    mirt__waiting waiting;
    mirt__round round;
    memset(&waiting, 0, sizeof waiting);
    memset(&round, 0, sizeof round);
    waiting.peer = -1;
    round.waiting = &waiting;
    round.send = &send;
    round.receive = &receive;
    round.sends = out != NULL;
    round.receives = in != NULL;
    if (engine->trade(CHANNEL, &round, &failure)) return true;
    complain("lost process %d: %s", failure.peer, failure.text);
    return false;
}

bool tell_processes(void *data, size_t bytes, int count) {
    bool good = true;
    if (own > 0) return trade(0, NULL, data, bytes);
    for (int i = 1; i < count && good; i++) good = trade(i, data, NULL, bytes);
    return good;
}

int meet_processes(int status) {
    int worst = status, other;
    bool good = own == 0 || trade(0, &worst, NULL, sizeof worst);
    for (int i = 1; own == 0 && i < all && good; i++) {
        good = trade(i, NULL, &other, sizeof other);
        if (good && other > worst) worst = other;
    }
    return good && tell_processes(&worst, sizeof worst, all) ? worst : EXIT_FAILED;
}

bool gather_numbers(double number, double *out) {
    bool good = own == 0 || trade(0, &number, NULL, sizeof number);
    if (own == 0) out[0] = number;
    for (int i = 1; own == 0 && i < all && good; i++) good = trade(i, NULL, &out[i], sizeof out[i]);
    return good;
}

/* The least seconds of several exchanges with a process; negative after complaining. */
static double time_trade(int peer, char *out, char *in, size_t bytes, int times) {
    double least = -1;
    for (int i = 0; i < times; i++) {
        const double begin = seconds_now();
        if (!trade(peer, out, in, bytes)) return -1;
        const double seconds = seconds_now() - begin;
        if (least < 0 || seconds < least) least = seconds;
    }
    return least;
}

bool measure_link(size_t bytes, network *out) {
    enum { SMALL = 8, SMALL_TIMES = 200, LARGE_TIMES = 8 };
    const int peer = own == 0 ? all - 1 : 0;
    const size_t size = bytes < SMALL ? SMALL : bytes;
    if (own > 0 && own < all - 1) return true;
    char *data = (char *)calloc(2, size);
    if (!data) complain("out of memory");
    const double small = data ? time_trade(peer, data, data + size, SMALL, SMALL_TIMES) : -1,
                 large = small >= 0 ? time_trade(peer, data, data + size, size, LARGE_TIMES) : -1;
    free(data);
    memset(out, 0, sizeof *out);
    out->latency = small;
    out->gbit = large > small ? (double)size * 8e-9 / (large - small) : 1e6; /* too fast to measure */
    return large >= 0;
}
