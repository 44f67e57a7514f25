/* What workers say to parameter servers. */
#include "servers.h"

MIRT__LIB mirt_status mirt__working_open(mirt__working *w, mirt_function *f) {
    memset(w, 0, sizeof *w);
    if (mirt__payload_create(&w->payload, f) != MIRT_OK) return mirt_last_status();
    w->reply = (mirt__reply *)mirt__calloc((size_t)w->payload.servers, sizeof *w->reply);
    return w->reply ? MIRT_OK : mirt_last_status();
}

MIRT__LIB void mirt__working_close(mirt__working *w) {
    mirt__payload_free(&w->payload);
    mirt__free(w->reply);
    w->reply = NULL;
}

/* >>rounds */

/* A round of messages with servers, as it is put together. */
typedef struct mirt__visit {
    mirt__working *w;
    int sends, receives;
} mirt__visit;

static void mirt__visit_say(mirt__visit *v, int server, void *data, size_t bytes) {
    mirt__payload_add(v->w->payload.send, &v->sends, v->w->payload.workers + server, data, bytes);
}

static void mirt__visit_hear(mirt__visit *v, int server, void *data, size_t bytes) {
    mirt__payload_add(v->w->payload.receive, &v->receives, v->w->payload.workers + server, data, bytes);
}

static mirt__visit mirt__visit_of(mirt__working *w, mirt__request_kind kind) {
    mirt__visit v = {w, 0, 0};
    w->request.kind = kind;
    w->request.number = w->number;
    w->request.rate = (double)w->payload.model->config.optimizer.learning_rate;
    w->request.rate_set = w->payload.model->rate_set;
    return v;
}

static void mirt__visit_ask(mirt__visit *v, int server) {
    mirt__visit_say(v, server, &v->w->request, sizeof v->w->request);
    mirt__visit_hear(v, server, &v->w->reply[server], sizeof *v->w->reply);
}

static mirt_status mirt__visit_run(mirt__visit *v) {
    const mirt__payload *p = &v->w->payload;
    if (mirt__peers_trade(p->model->strategy, p->send, v->sends, p->receive, v->receives) == MIRT_OK) return MIRT_OK;
    return mirt__fail_at("parameter servers: start again from the last checkpoint");
}

/* A server's range of a block of elements. */
static mirt__real *mirt__visit_range(const mirt__payload *p, int server, char *block, size_t *bytes) {
    const mirt__range range = mirt__payload_range(p, server);
    *bytes = (size_t)(range.end - range.begin) * sizeof(mirt__real);
    return (mirt__real *)(void *)block + range.begin;
}

/* Weights, or weights and the optimizer's state: what a server has of them. */
static void mirt__visit_weights(mirt__visit *v, int server, bool slots,
                                void (*add)(mirt__visit *v, int server, void *data, size_t bytes)) {
    const mirt__payload *p = &v->w->payload;
    size_t bytes;
    mirt__real *data = mirt__visit_range(p, server, p->root->weight, &bytes);
    add(v, server, data, bytes);
    if (server == 0) add(v, server, p->state, (size_t)p->states * sizeof *p->state);
    for (int i = 0; i < p->slots && slots; i++) {
        data = mirt__visit_range(p, server, p->model->slot[i], &bytes);
        add(v, server, data, bytes);
    }
}

/* >>batches */

MIRT__LIB mirt_status mirt__working_lease(mirt__working *w) {
    mirt__visit v = mirt__visit_of(w, MIRT__ASK_LEASE);
    if (w->lease.at < w->lease.end) return MIRT_OK;
    mirt__visit_ask(&v, 0);
    if (mirt__visit_run(&v) != MIRT_OK) return mirt_last_status();
    const mirt__reply *r = &w->reply[0];
    w->number = r->number;
    if (r->kind == MIRT__REPLY_BATCHES) w->lease = r->lease;
    if (r->kind != MIRT__REPLY_STOP || r->status == MIRT_OK) return MIRT_OK;
    return mirt__fail(MIRT_E_WORKER, "process 0 (%s) has stopped: %.230s",
                      w->payload.model->strategy->peers->engine->host(0), r->text);
}

MIRT__LIB mirt_status mirt__working_end(mirt__working *w) {
    mirt__visit v = mirt__visit_of(w, MIRT__TELL_END);
    w->lease.at = w->lease.end;
    mirt__visit_say(&v, 0, &w->request, sizeof w->request);
    return mirt__visit_run(&v);
}

/* >>weights and gradients */

static void mirt__working_ask_weights(mirt__visit *v, int server) {
    mirt__visit_ask(v, server);
    mirt__visit_weights(v, server, false, mirt__visit_hear);
}

/* Where the staleness is bounded, a worker that waits for one server must not keep another one waiting: all workers
   pull from the servers in the same order. */
MIRT__LIB mirt_status mirt__working_pull(mirt__working *w) {
    mirt__payload *p = &w->payload;
    const int together = p->model->strategy->max_staleness < 0 ? p->servers : 1;
    mirt__weights_to_host(p->root);
    for (int k = 0; k < p->servers; k += together) {
        mirt__visit v = mirt__visit_of(w, MIRT__ASK_PULL);
        for (int i = k; i < k + together; i++) mirt__working_ask_weights(&v, i);
        if (mirt__visit_run(&v) != MIRT_OK) return mirt_last_status();
    }
    mirt__payload_set_states(p);
    mirt__weights_changed(p->model);
    p->model->step = w->reply[0].step;
    return mirt__weights_to_devices(p->root);
}

static double mirt__working_squares(const mirt__real *gradient, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)gradient[i] * (double)gradient[i];
    return sum;
}

static void mirt__working_scale(mirt__real *gradient, int64_t count, float scale) {
    for (int64_t i = 0; i < count && scale != 1; i++) gradient[i] *= (mirt__real)scale;
}

/* By norms, which one of several servers does not know as it has a range of each. */
static void mirt__working_clip(const mirt__payload *p, mirt__real *gradient) {
    const mirt_optimizer *o = &p->model->config.optimizer;
    mirt__update u;
    memset(&u, 0, sizeof u);
    if (o->global_clipnorm > 0) {
        mirt__optimizer_extras(o, mirt__working_squares(gradient, p->trained), &u);
        mirt__working_scale(gradient, p->trained, u.scale);
    }
    for (int i = 0; i < p->root->num_variables && o->clipnorm > 0; i++) {
        const mirt__variable *v = &p->root->variable[i];
        mirt__real *own = gradient + v->offset / sizeof *gradient;
        if (!mirt__is_trained(v)) continue;
        mirt__optimizer_variable(o, v, mirt__working_squares(own, v->count), 0, &u);
        mirt__working_scale(own, v->count, u.scale);
    }
}

/* What the batch has added to the variables that it sets. */
static void mirt__working_state_changes(mirt__payload *p) {
    mirt__real *change = p->state + p->states;
    memcpy(change, p->state, (size_t)p->states * sizeof *change);
    mirt__payload_keep_states(p);
    for (int64_t i = 0; i < p->states; i++) change[i] = p->state[i] - change[i];
}

MIRT__LIB mirt_status mirt__working_push(mirt__working *w, mirt__sums *sums) {
    mirt__payload *p = &w->payload;
    mirt__real *gradient = mirt__sum_at(&p->function->step, 0);
    mirt__visit v = mirt__visit_of(w, MIRT__TELL_PUSH);
    if (p->servers > 1) mirt__working_clip(p, gradient);
    mirt__working_state_changes(p);
    mirt__payload_count(p, sums);
    for (int k = 0; k < p->servers; k++) {
        size_t bytes;
        mirt__real *range = mirt__visit_range(p, k, (char *)gradient, &bytes);
        mirt__visit_say(&v, k, &w->request, sizeof w->request);
        mirt__visit_say(&v, k, range, bytes);
    }
    mirt__visit_say(&v, 0, p->state + p->states, (size_t)p->states * sizeof *p->state);
    mirt__visit_say(&v, 0, p->number, (size_t)p->numbers * sizeof *p->number);
    w->lease.at++;
    for (int i = 0; i < p->numbers; i++) p->number[p->numbers + i] += p->number[i];
    mirt__payload_counted(p->number + p->numbers, sums);
    return mirt__visit_run(&v);
}

/* >>epochs */

MIRT__LIB mirt_status mirt__working_begin(mirt__working *w, const mirt__epoch *epoch,
                                                        const mirt__sums *sums) {
    mirt__payload *p = &w->payload;
    w->number++;
    mirt__visit v = mirt__visit_of(w, MIRT__TELL_EPOCH);
    mirt__request *r = &w->request;
    r->epoch = *epoch;
    r->step = p->model->step;
    mirt__payload_keep_states(p);
    mirt__slots_to_host(p->model);
    mirt__payload_count(p, sums);
    for (int i = 0; i < 2; i++)
        memcpy(p->number + (i + 1) * p->numbers, p->number, (size_t)p->numbers * sizeof *p->number);
    for (int k = 0; k < p->servers; k++) {
        mirt__visit_say(&v, k, r, sizeof *r);
        mirt__visit_weights(&v, k, true, mirt__visit_say);
    }
    w->reply[0].epoch = *epoch;
    return mirt__visit_run(&v);
}

MIRT__LIB mirt_status mirt__working_stop(mirt__working *w) {
    mirt__visit v = mirt__visit_of(w, MIRT__TELL_CLOSE);
    mirt__visit_say(&v, 0, &w->request, sizeof w->request);
    w->lease.at = w->lease.end;
    return mirt__visit_run(&v);
}

MIRT__LIB void mirt__staleness_add(mirt_staleness *sum, const mirt_staleness *more) {
    sum->updates += more->updates;
    sum->sum += more->sum;
    sum->max = mirt__max(sum->max, more->max);
    for (int i = 0; i < MIRT_STALENESS_BINS; i++) sum->histogram[i] += more->histogram[i];
}

MIRT__LIB mirt_status mirt__working_all(mirt__working *w, mirt__sums *sums) {
    mirt__payload *p = &w->payload;
    mirt_staleness seen;
    memset(&p->staleness, 0, sizeof p->staleness);
    for (int k = 0; k < p->servers; k++) {
        mirt__visit v = mirt__visit_of(w, MIRT__ASK_ALL);
        mirt__visit_ask(&v, k);
        mirt__visit_hear(&v, k, &seen, sizeof seen);
        if (k == 0) mirt__visit_hear(&v, k, p->number, (size_t)p->numbers * sizeof *p->number);
        mirt__visit_weights(&v, k, true, mirt__visit_hear);
        if (mirt__visit_run(&v) != MIRT_OK) return mirt_last_status();
        mirt__staleness_add(&p->staleness, &seen);
    }
    mirt__payload_set_states(p);
    mirt__weights_changed(p->model);
    mirt__slots_changed(p->model);
    for (int i = 0; i < p->numbers; i++) p->number[i] += p->number[2 * p->numbers + i];
    mirt__payload_counted(p->number, sums);
    p->model->step = w->reply[0].step;
    return MIRT_OK;
}

/* >>the end */

static mirt_status mirt__working_ask_final(mirt__working *w) {
    mirt__visit v = mirt__visit_of(w, MIRT__ASK_FINAL);
    mirt_model *root = w->payload.root;
    mirt__weights_to_host(root);
    mirt__visit_ask(&v, 0);
    mirt__visit_hear(&v, 0, root->weight, root->weight_bytes);
    if (mirt__visit_run(&v) != MIRT_OK) return mirt_last_status();
    root->edits++;
    mirt__weights_changed(root);
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__working_leave(mirt__working *w, mirt_status status) {
    const mirt__payload *p = &w->payload;
    mirt__error error;
    mirt__error_get(&error);
    if (p->model->strategy->peers->broken) return status;
    const bool chief = mirt__writes_files(p->model->strategy);
    if (status == MIRT_OK && !chief && (status = mirt__working_ask_final(w)) != MIRT_OK) return status;
    mirt__visit v = mirt__visit_of(w, MIRT__TELL_BYE);
    w->request.status = (int64_t)status;
    snprintf(w->request.text, sizeof w->request.text, "%.*s", status == MIRT_OK ? 0 : 230, error.text);
    mirt__weights_to_host(p->root);
    for (int k = 0; k < p->servers; k++) {
        mirt__visit_say(&v, k, &w->request, sizeof w->request);
        if (chief && status == MIRT_OK) mirt__visit_say(&v, k, p->root->weight, p->root->weight_bytes);
        if (chief || status == MIRT_OK) mirt__visit_hear(&v, k, &w->reply[k], sizeof *w->reply);
    }
    const mirt_status said = mirt__visit_run(&v);
    for (int k = 0; k < p->servers; k++) {
        if (v.receives && said == MIRT_OK && w->reply[k].lost) p->model->strategy->peers->lost = true;
    }
    if (status != MIRT_OK) mirt__error_set(&error);
    return status != MIRT_OK ? status : said;
}
