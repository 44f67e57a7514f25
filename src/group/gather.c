#include "group.h"
/* Every process gets what the others have (Bruck et al. 1997): in each round twice as much as in the one before. */

enum { MIRT__GATHER_ARRAYS = 32 }; /* in a round */

/* The elements of processes first, first + 1, ..., counted around the end, as messages with `peer`. */
static int mirt__gather_messages(const mirt__gathered *array, int arrays, int first, int count, int size, int peer,
                                 mirt__message *out) {
    int messages = 0;
    for (int i = 0; i < arrays; i++) {
        for (int from = first, left = count; left > 0; from = 0) {
            const int end = from + left < size ? from + left : size;
            const int64_t elements = array[i].before[end] - array[i].before[from];
            mirt__message *m = &out[messages];
            m->peer = peer;
            m->data = (char *)array[i].base + (size_t)array[i].before[from] * array[i].bytes;
            m->bytes = (size_t)elements * array[i].bytes;
            messages += m->bytes > 0;
            left -= end - from;
        }
    }
    return messages;
}

static bool mirt__gather_some(const mirt__gathering *g, const mirt__gathered *array, int arrays,
                              mirt__engine_failure *failure) {
    mirt__message send[2 * MIRT__GATHER_ARRAYS], receive[2 * MIRT__GATHER_ARRAYS];
    mirt__round round;
    memset(&round, 0, sizeof round);
    round.send = send;
    round.receive = receive;
    round.waiting = g->waiting;
    for (int have = 1; have < g->size; have *= 2) {
        const int count = have < g->size - have ? have : g->size - have, from = (g->rank + have) % g->size,
                  to = (g->rank + g->size - have) % g->size;
        round.sends = mirt__gather_messages(array, arrays, g->rank, count, g->size, to, send);
        round.receives = mirt__gather_messages(array, arrays, from, count, g->size, from, receive);
        if (!g->engine->trade(g->channel, &round, failure)) return false;
    }
    return true;
}

MIRT__LIB bool mirt__gather_all(const mirt__gathering *group, const mirt__gathered *array, int arrays,
                                  mirt__engine_failure *failure) {
    for (int at = 0; at < arrays; at += MIRT__GATHER_ARRAYS) {
        const int some = arrays - at < MIRT__GATHER_ARRAYS ? arrays - at : MIRT__GATHER_ARRAYS;
        if (!mirt__gather_some(group, array + at, some, failure)) return false;
    }
    return true;
}
