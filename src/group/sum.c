#include "group.h"
/* Adds up over processes, as a plan says. */

typedef struct mirt__sum_under_way {
    const mirt__group_plan *plan;
    const mirt__group_sum *sum;
} mirt__sum_under_way;

/* The messages of an item, so short that additions overlap with the arrival of the next one; returns how many. */
static int mirt__sum_cut(const mirt__plan_item *item, mirt__real *data, mirt__message *out) {
    const int64_t count = item->end - item->begin;
    int messages = 0;
    for (int64_t at = 0; at < count; at += MIRT__GROUP_CHUNK, messages++) {
        out[messages].peer = item->peer;
        out[messages].data = data + at;
        out[messages].bytes = (size_t)mirt__min(MIRT__GROUP_CHUNK, count - at) * sizeof *data;
    }
    return messages;
}

/* Those of items [item, end) into the plan's room. */
static void mirt__sum_messages(const mirt__sum_under_way *run, const mirt__plan_item *item, const mirt__plan_item *end,
                               mirt__round *round) {
    const mirt__group_plan *plan = run->plan;
    const mirt__group_sum *sum = run->sum;
    mirt__real *inbox = sum->inbox;
    for (; item < end; item++) {
        mirt__message *send = plan->send + round->sends, *receive = plan->receive + round->receives;
        mirt__real **into = plan->into + round->receives;
        int messages;
        switch (item->op) {
        case MIRT__PLAN_SEND:
            round->sends += mirt__sum_cut(item, sum->slot[item->slot] + item->begin, send);
            break;
        case MIRT__PLAN_GIVE:
            round->sends += mirt__sum_cut(item, sum->sum + item->begin, send);
            break;
        case MIRT__PLAN_ADD:
            messages = mirt__sum_cut(item, inbox, receive);
            for (int i = 0; i < messages; i++)
                into[i] = sum->slot[item->slot] + item->begin + (int64_t)i * MIRT__GROUP_CHUNK;
            inbox += item->end - item->begin;
            round->receives += messages;
            break;
        case MIRT__PLAN_TAKE:
            messages = mirt__sum_cut(item, sum->sum + item->begin, receive);
            for (int i = 0; i < messages; i++) into[i] = NULL;
            round->receives += messages;
            break;
        case MIRT__PLAN_JOIN:
        case MIRT__PLAN_KEEP:
            break;
        }
    }
}

static void mirt__sum_got(void *user, int receive) {
    const mirt__sum_under_way *run = (const mirt__sum_under_way *)user;
    const mirt__message *message = &run->plan->receive[receive];
    mirt__real *into = run->plan->into[receive];
    if (!into) return;
    const int64_t count = (int64_t)(message->bytes / sizeof *into);
    run->sum->add(run->sum->user, into, (const mirt__real *)message->data, count);
}

/* What is left to do in this process when a round's messages are there. */
static void mirt__sum_own(const mirt__group_sum *sum, const mirt__plan_item *item, const mirt__plan_item *end) {
    for (; item < end; item++) {
        const int64_t begin = item->begin, count = item->end - begin;
        if (item->op == MIRT__PLAN_JOIN)
            sum->add(sum->user, sum->slot[item->slot] + begin, sum->slot[item->from] + begin, count);
        if (item->op == MIRT__PLAN_KEEP && sum->slot[item->slot] != sum->sum)
            memcpy(sum->sum + begin, sum->slot[item->slot] + begin, (size_t)count * sizeof(mirt__real));
    }
}

MIRT__LIB bool mirt__group_sum_run(const mirt__group_plan *plan, const mirt__group_sum *sum,
                                   mirt__engine_failure *failure) {
    mirt__sum_under_way run = {plan, sum};
    const mirt__plan_item *const last = plan->item + plan->count;
    for (const mirt__plan_item *item = plan->item, *end; item < last; item = end) {
        mirt__round round = {plan->send, plan->receive, 0, 0, mirt__sum_got, &run, sum->waiting};
        for (end = item; end < last && end->round == item->round;) end++;
        mirt__sum_messages(&run, item, end, &round);
        if ((round.sends || round.receives) && !sum->engine->trade(sum->channel, &round, failure)) return false;
        mirt__sum_own(sum, item, end);
    }
    return true;
}
