/* A parameter server: applies gradients as they come, and answers. */
#include "servers.h"

#include <time.h>

/* How far a worker's request is. */
typedef enum mirt__client_stage {
    MIRT__LISTENS, /* to what it says next */
    MIRT__TAKES,   /* what follows that */
    MIRT__HOLDS,   /* it, until it can be answered */
    MIRT__ANSWERS,
    MIRT__GONE
} mirt__client_stage;

typedef struct mirt__client {
    mirt__client_stage stage;
    mirt__request request;
    mirt__reply reply;
    mirt__message message[MIRT__PAYLOAD_MOST]; /* under way, one after the other */
    int messages, at;
    void *post;        /* the engine's, of message `at`; NULL: not begun */
    double *number;    /* results of a batch; after them */
    mirt__real *range; /* gradients that came or weights that go, of this server's range, */
    mirt__real *state; /* and of variables that batches set */
    double heard;      /* when it last said something */
    bool left;         /* it has said good-bye */
    bool sending;      /* the engine may still read a message to it */
} mirt__client;

typedef struct mirt__serving {
    mirt__payload payload;
    mirt_strategy *strategy;
    int server;        /* which one this is */
    mirt__range range;
    mirt__admission admission;
    mirt__leases leases; /* of the first server */
    mirt__client *client; /* [workers] */
    double *total;       /* [numbers] of the epoch */
    int64_t number, step; /* of epochs that have begun; of updates */
    mirt__request bye;   /* the chief's last words, once `over` */
    bool over;
    mirt__range *kept;   /* what the function updates elsewhere */
} mirt__serving;

/* >>memory */

/* The optimizer updates this server's range only; *kept: what it updates otherwise. */
static mirt_status mirt__serving_narrow(mirt__serving *s) {
    mirt__step *step = &s->payload.function->step;
    const size_t bytes = (size_t)step->num_ranges * sizeof *step->range;
    s->kept = (mirt__range *)mirt__calloc((size_t)step->num_ranges + 1, sizeof *step->range);
    if (!s->kept) return mirt_last_status();
    memcpy(s->kept, step->range, bytes);
    for (int i = 0; i < step->num_ranges; i++)
        step->range[i] = mirt__overlap(&step->range[i], s->range.begin, s->range.end);
    return MIRT_OK;
}

static mirt_status mirt__client_create(const mirt__serving *s, mirt__client *c) {
    const size_t reals = (size_t)(s->range.end - s->range.begin) + (size_t)s->payload.states;
    const size_t doubles = (size_t)s->payload.numbers, per = sizeof(double) / sizeof(mirt__real);
    c->number = (double *)mirt__calloc(doubles + reals / per + 1, sizeof *c->number);
    if (!c->number) return mirt_last_status();
    c->range = (mirt__real *)(void *)(c->number + doubles);
    c->state = c->range + (s->range.end - s->range.begin);
    c->heard = mirt__now();
    return MIRT_OK;
}

static mirt_status mirt__serving_create(mirt__serving *s, mirt_function *f) {
    memset(s, 0, sizeof *s);
    s->strategy = f->model->strategy;
    if (mirt__payload_create(&s->payload, f) != MIRT_OK) return mirt_last_status();
    const int workers = s->payload.workers;
    s->server = s->strategy->peers->rank - workers;
    s->range = mirt__payload_range(&s->payload, s->server);
    if (s->server) s->payload.states = 0; /* the first server has them all */
    s->client = (mirt__client *)mirt__calloc((size_t)workers, sizeof *s->client);
    s->total = (double *)mirt__calloc((size_t)s->payload.numbers, sizeof *s->total);
    if (!s->client || !s->total || !mirt__leases_create(&s->leases, workers) ||
        !mirt__admission_create(&s->admission, workers, s->strategy->max_staleness))
        return mirt_last_status();
    for (int i = 0; i < workers; i++) {
        if (mirt__client_create(s, &s->client[i]) != MIRT_OK) return mirt_last_status();
    }
    return mirt__serving_narrow(s);
}

/* What is being sent to a worker may be read later: its memory is not freed any more. */
static void mirt__client_forget(const mirt__serving *s, mirt__client *c) {
    c->sending = c->stage == MIRT__ANSWERS;
    s->strategy->peers->engine->forget(c->post);
    c->post = NULL;
}

static void mirt__serving_free(mirt__serving *s) {
    mirt__step *step = &s->payload.function->step;
    if (s->kept) memcpy(step->range, s->kept, (size_t)step->num_ranges * sizeof *step->range);
    bool sending = false;
    for (int i = 0; s->client && i < s->payload.workers; i++) {
        if (s->client[i].post) mirt__client_forget(s, &s->client[i]);
        if (!s->client[i].sending) mirt__free(s->client[i].number);
        sending = sending || s->client[i].sending;
    }
    mirt__free(s->kept);
    if (!sending) mirt__free(s->client);
    mirt__free(s->total);
    mirt__leases_free(&s->leases);
    mirt__admission_free(&s->admission);
    mirt__payload_free(&s->payload);
}

/* >>messages */

static int mirt__client_number(const mirt__serving *s, const mirt__client *c) { return (int)(c - s->client); }

static void mirt__client_begin(mirt__client *c, mirt__client_stage stage) {
    c->stage = stage;
    c->messages = c->at = 0;
}

static void mirt__client_add(const mirt__serving *s, mirt__client *c, void *data, size_t bytes) {
    mirt__payload_add(c->message, &c->messages, mirt__client_number(s, c), data, bytes);
}

static void mirt__client_listen(const mirt__serving *s, mirt__client *c) {
    mirt__client_begin(c, MIRT__LISTENS);
    mirt__client_add(s, c, &c->request, sizeof c->request);
}

/* The range of a block of this process's own, and the variables that batches set. */
static void mirt__client_add_block(mirt__serving *s, mirt__client *c, char *block, bool states) {
    mirt__real *data = (mirt__real *)(void *)block + s->range.begin;
    mirt__client_add(s, c, data, (size_t)(s->range.end - s->range.begin) * sizeof *data);
    if (states) mirt__client_add(s, c, s->payload.state, (size_t)s->payload.states * sizeof *data);
}

static void mirt__client_add_all(mirt__serving *s, mirt__client *c) {
    mirt__client_add_block(s, c, s->payload.root->weight, true);
    for (int i = 0; i < s->payload.slots; i++) mirt__client_add_block(s, c, s->payload.model->slot[i], false);
}

/* What follows a request. */
static void mirt__client_take(mirt__serving *s, mirt__client *c) {
    const mirt__payload *p = &s->payload;
    const bool first = s->server == 0;
    mirt__client_begin(c, MIRT__TAKES);
    if (c->request.kind == MIRT__TELL_PUSH) {
        mirt__client_add(s, c, c->range, (size_t)(s->range.end - s->range.begin) * sizeof *c->range);
        mirt__client_add(s, c, c->state, (size_t)p->states * sizeof *c->state);
        if (first) mirt__client_add(s, c, c->number, (size_t)p->numbers * sizeof *c->number);
    }
    if (c->request.kind == MIRT__TELL_EPOCH) mirt__client_add_all(s, c);
    if (c->request.kind == MIRT__TELL_BYE && c == s->client && c->request.status == MIRT_OK)
        mirt__client_add(s, c, p->root->weight, p->root->weight_bytes);
    if (!c->messages) c->stage = MIRT__HOLDS;
}

static void mirt__client_answer(mirt__serving *s, mirt__client *c, mirt__reply_kind kind) {
    mirt__client_begin(c, MIRT__ANSWERS);
    c->reply.kind = kind;
    c->reply.number = s->number;
    c->reply.step = s->payload.model->step;
    c->reply.epoch = s->leases.at;
    c->reply.status = s->bye.status;
    c->reply.lost = s->strategy->peers->lost;
    snprintf(c->reply.text, sizeof c->reply.text, "%s", s->bye.text);
    mirt__client_add(s, c, &c->reply, sizeof c->reply);
}

/* >>requests: whether they could be answered */

static bool mirt__serve_lease(mirt__serving *s, mirt__client *c) {
    const int worker = mirt__client_number(s, c);
    if (s->over) return mirt__client_answer(s, c, MIRT__REPLY_STOP), true;
    if (mirt__leases_give(&s->leases, worker, &c->reply.lease))
        return mirt__client_answer(s, c, MIRT__REPLY_BATCHES), true;
    if (worker || !mirt__leases_over(&s->leases)) return false;
    mirt__client_answer(s, c, MIRT__REPLY_OVER);
    return true;
}

/* The message is a copy, because updates follow while it is under way. */
static bool mirt__serve_pull(mirt__serving *s, mirt__client *c) {
    const size_t bytes = (size_t)(s->range.end - s->range.begin) * sizeof *c->range;
    if (s->number < c->request.number || !mirt__admit_pull(&s->admission, mirt__client_number(s, c))) return false;
    mirt__payload_keep_states(&s->payload);
    memcpy(c->range, (mirt__real *)(void *)s->payload.root->weight + s->range.begin, bytes);
    memcpy(c->state, s->payload.state, (size_t)s->payload.states * sizeof *c->state);
    mirt__client_answer(s, c, MIRT__REPLY_BATCHES);
    mirt__client_add(s, c, c->range, bytes);
    mirt__client_add(s, c, c->state, (size_t)s->payload.states * sizeof *c->state);
    return true;
}

static bool mirt__serve_all(mirt__serving *s, mirt__client *c) {
    if (s->admission.pulls) return false;
    mirt__payload_keep_states(&s->payload);
    mirt__slots_to_host(s->payload.model);
    mirt__client_answer(s, c, MIRT__REPLY_OVER);
    mirt__client_add(s, c, &s->admission.seen, sizeof s->admission.seen);
    if (s->server == 0) mirt__client_add(s, c, s->total, (size_t)s->payload.numbers * sizeof *s->total);
    mirt__client_add_all(s, c);
    return true;
}

static bool mirt__serve_final(mirt__serving *s, mirt__client *c) {
    if (!s->over) return false;
    mirt__client_answer(s, c, MIRT__REPLY_STOP);
    mirt__client_add(s, c, s->payload.root->weight, s->payload.root->weight_bytes);
    return true;
}

/* The first server has the variables that batches set, too. */
static mirt_status mirt__serving_update(mirt__serving *s, const mirt__client *c) {
    mirt__payload *p = &s->payload;
    mirt_function *f = p->function;
    const size_t bytes = (size_t)(s->range.end - s->range.begin) * sizeof *c->range;
    for (int d = 0; d < s->strategy->num_devices; d++)
        memcpy(mirt__sum_at(&f->step, d) + s->range.begin, c->range, bytes);
    if (mirt__function_update(f) != MIRT_OK) return mirt_last_status();
    if (!p->states) return MIRT_OK;
    mirt__payload_keep_states(p);
    for (int64_t i = 0; i < p->states; i++) p->state[i] += c->state[i];
    mirt__payload_set_states(p);
    mirt__weights_changed(p->model);
    return mirt__weights_to_devices(p->root);
}

static void mirt__client_leave(mirt__serving *s, mirt__client *c) {
    const int worker = mirt__client_number(s, c);
    mirt__leases_lost(&s->leases, worker);
    mirt__admit_none(&s->admission, worker);
    mirt__client_begin(c, MIRT__GONE);
}

/* The chief's callbacks may set it. */
static void mirt__serving_take_rate(const mirt__serving *s, const mirt__client *c) {
    if (c != s->client) return;
    s->payload.model->config.optimizer.learning_rate = (float)c->request.rate;
    s->payload.model->rate_set = c->request.rate_set != 0;
}

static mirt_status mirt__serve_push(mirt__serving *s, mirt__client *c) {
    const int worker = mirt__client_number(s, c);
    if (s->admission.stale[worker] < 0) return mirt__client_leave(s, c), MIRT_OK; /* it has not pulled */
    if (!mirt__admit_push(&s->admission, worker)) return MIRT_OK;
    for (int i = 0; i < s->payload.numbers && !s->server; i++) s->total[i] += c->number[i];
    if (!s->server) mirt__leases_done(&s->leases, worker);
    mirt__serving_take_rate(s, c);
    mirt__client_listen(s, c);
    return mirt__serving_update(s, c);
}

static mirt_status mirt__serve_epoch(mirt__serving *s, mirt__client *c) {
    mirt__payload *p = &s->payload;
    const mirt__request *r = &c->request;
    mirt__leases_begin(&s->leases, &r->epoch);
    memset(&s->admission.seen, 0, sizeof s->admission.seen);
    memset(s->total, 0, (size_t)p->numbers * sizeof *s->total);
    s->number = r->number;
    p->model->step = r->step;
    mirt__serving_take_rate(s, c);
    mirt__payload_set_states(p);
    mirt__weights_changed(p->model);
    mirt__slots_changed(p->model);
    mirt__client_listen(s, c);
    return mirt__function_take(p->function);
}

/* Takes a worker's last words. */
static void mirt__serve_leaver(mirt__serving *s, mirt__client *c) {
    const int worker = mirt__client_number(s, c);
    mirt__leases_lost(&s->leases, worker);
    mirt__admit_none(&s->admission, worker);
    c->left = true;
    if (c == s->client) {
        s->over = true;
        s->bye = c->request;
        s->payload.root->edits++;
        mirt__weights_changed(s->payload.root);
    } else if (c->request.status != MIRT_OK) {
        mirt__client_begin(c, MIRT__GONE);
        if (!s->server && !s->over)
            mirt__log(s->strategy, MIRT_LOG_WARNING, "process %d (%s) has stopped; its batches go to others: %s",
                      worker, s->strategy->peers->engine->host(worker), c->request.text);
    }
}

/* Answered when nobody is left, as only then it is known whether all are still there. */
static bool mirt__serve_bye(mirt__serving *s, mirt__client *c) {
    if (!c->left) mirt__serve_leaver(s, c);
    if (c->stage == MIRT__GONE) return true;
    for (int i = 0; i < s->payload.workers; i++) {
        if (s->client[i].stage != MIRT__GONE && !s->client[i].left) return false;
    }
    mirt__client_answer(s, c, MIRT__REPLY_STOP);
    return true;
}

/* True: the request is done with, or its answer is on its way. */
static bool mirt__serve_request(mirt__serving *s, mirt__client *c, mirt_status *status) {
    switch ((mirt__request_kind)c->request.kind) {
        case MIRT__ASK_LEASE: return mirt__serve_lease(s, c);
        case MIRT__ASK_PULL: return mirt__serve_pull(s, c);
        case MIRT__ASK_ALL: return mirt__serve_all(s, c);
        case MIRT__ASK_FINAL: return mirt__serve_final(s, c);
        case MIRT__TELL_PUSH: *status = mirt__serve_push(s, c); break;
        case MIRT__TELL_EPOCH: *status = mirt__serve_epoch(s, c); break;
        case MIRT__TELL_BYE: return mirt__serve_bye(s, c);
        case MIRT__TELL_END:
            mirt__leases_end(&s->leases, mirt__client_number(s, c));
            mirt__client_listen(s, c);
            break;
        case MIRT__TELL_CLOSE:
            mirt__leases_lost(&s->leases, mirt__client_number(s, c));
            mirt__leases_close(&s->leases);
            mirt__client_listen(s, c);
            break;
        default: mirt__client_leave(s, c); break; /* no request: it is not one of ours */
    }
    return c->stage != MIRT__HOLDS;
}

/* >>the loop */

static mirt_status mirt__client_lose(mirt__serving *s, mirt__client *c, const char *why) {
    const int worker = mirt__client_number(s, c);
    const char *host = s->strategy->peers->engine->host(worker);
    const bool over = s->over && c == s->client;
    mirt__client_leave(s, c);
    mirt__peers_give_up(s->strategy, worker);
    if (c == s->client && !over) {
        mirt__fail(MIRT_E_WORKER,
                   "process 0 (%s), which leads training at parameter servers, is lost: %s; start again from the last "
                   "checkpoint",
                   host, why);
        mirt__peers_end(s->strategy);
        return mirt_last_status();
    }
    if (!s->server && !s->over)
        mirt__log(s->strategy, MIRT_LOG_WARNING, "process %d (%s) is lost; its batches go to others: %s", worker, host,
                  why);
    return MIRT_OK;
}

/* Whether the message under way has moved on; *status: what went wrong in this process. */
static bool mirt__client_move(mirt__serving *s, mirt__client *c, mirt_status *status) {
    const mirt__engine *engine = s->strategy->peers->engine;
    const bool receives = c->stage != MIRT__ANSWERS;
    if (!c->post && !(c->post = engine->post(&c->message[c->at], receives)))
        return *status = mirt__client_lose(s, c, "messages to it fail"), true;
    const int posted = engine->posted(c->post);
    if (!posted) return false;
    c->post = NULL;
    if (posted < 0) return *status = mirt__client_lose(s, c, "its connection is closed"), true;
    c->heard = mirt__now();
    if (++c->at < c->messages) return true;
    if (c->stage == MIRT__LISTENS) mirt__client_take(s, c);
    else if (c->stage == MIRT__TAKES) c->stage = MIRT__HOLDS;
    else if (c->left) mirt__client_begin(c, MIRT__GONE);
    else mirt__client_listen(s, c);
    return true;
}

/* The first server decides whether a silent worker is lost, so that all servers agree; they ask it. */
static mirt_status mirt__client_alive(const mirt__serving *s, int worker, bool *alive, char *why, size_t size) {
    const int first = s->payload.workers;
    bool answers = true;
    if (s->server == 0) {
        *alive = mirt__peers_alive(s->strategy, worker, why, size);
        return MIRT_OK;
    }
    snprintf(why, size, "the first parameter server says so");
    *alive = !mirt__peers_given_up(s->strategy, first, worker, &answers);
    if (answers) return MIRT_OK;
    return mirt__fail(MIRT_E_WORKER,
                      "process %d (%s), the first parameter server, does not answer: start again from the last "
                      "checkpoint",
                      first, s->strategy->peers->engine->host(first));
}

/* Looks for those that have died. One that computes, or waits for a server, does answer. */
static mirt_status mirt__serving_look(mirt__serving *s) {
    const double limit = s->strategy->peers->waiting[0].limit;
    for (int i = 0; i < s->payload.workers && limit > 0; i++) {
        mirt__client *c = &s->client[i];
        char why[240];
        if (c->stage == MIRT__GONE || c->stage == MIRT__HOLDS || mirt__now() - c->heard <= limit) continue;
        c->heard = mirt__now();
        bool alive;
        if (mirt__client_alive(s, i, &alive, why, sizeof why) != MIRT_OK) return mirt_last_status();
        if (alive) continue;
        if (c->post) mirt__client_forget(s, c);
        if (mirt__client_lose(s, c, why) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

static mirt_status mirt__serving_run(mirt__serving *s) {
    const struct timespec nap = {0, 50000};
    mirt_status status = MIRT_OK;
    for (int i = 0; i < s->payload.workers; i++) mirt__client_listen(s, &s->client[i]);
    for (bool all = false; !all && status == MIRT_OK;) {
        bool moved = false;
        all = true;
        for (int i = 0; i < s->payload.workers && status == MIRT_OK; i++) {
            mirt__client *c = &s->client[i];
            if (c->stage == MIRT__GONE) continue;
            moved = (c->stage == MIRT__HOLDS ? mirt__serve_request(s, c, &status)
                                             : mirt__client_move(s, c, &status)) || moved;
            all = false;
        }
        if (moved) continue;
        if (status == MIRT_OK) status = mirt__serving_look(s);
        nanosleep(&nap, NULL);
    }
    return status;
}

/* The first server stays until the others have ended, because they ask it who is lost. */
static mirt_status mirt__serving_end(mirt__serving *s) {
    mirt__payload *p = &s->payload;
    char word = 0;
    int sends = 0, receives = 0;
    if (s->server) mirt__payload_add(p->send, &sends, p->workers, &word, sizeof word);
    for (int k = 1; k < p->servers && !s->server; k++)
        mirt__payload_add(p->receive, &receives, p->workers + k, &word, sizeof word);
    return mirt__peers_trade(s->strategy, p->send, sends, p->receive, receives);
}

MIRT__LIB mirt_status mirt__serve(mirt_function *f) {
    mirt__serving serving;
    mirt_status status = mirt__serving_create(&serving, f);
    if (status == MIRT_OK) status = mirt__serving_run(&serving);
    if (status == MIRT_OK) status = mirt__serving_end(&serving);
    if (status != MIRT_OK && !f->model->strategy->peers->broken) mirt__peers_end(f->model->strategy);
    if (status == MIRT_OK && serving.bye.status != MIRT_OK)
        status = mirt__fail(MIRT_E_WORKER, "process 0 (%s) has stopped: %.230s",
                            f->model->strategy->peers->engine->host(0), serving.bye.text);
    mirt__serving_free(&serving);
    return status;
}
