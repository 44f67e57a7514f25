/* What the messages between workers and servers hold of a model. */
#include "servers.h"

static mirt_status mirt__payload_refuse(const mirt__payload *p, const char *name, const char *why) {
    return mirt__fail(MIRT_E_INVALID, "%s %s, which takes a single server; there are %d", name, why, p->servers);
}

/* A server has a part of the weights, in which a norm may be incomplete; workers do not pull what is not trained. */
static mirt_status mirt__payload_check(const mirt__payload *p) {
    const mirt_optimizer *o = &p->model->config.optimizer;
    if (mirt__optimizer_number(&p->model->config, 1))
        return mirt__fail(MIRT_E_INVALID, "%s has several optimizers; parameter servers have one", p->model->name);
    if (p->servers > 1 && mirt__optimizer_whole(o))
        return mirt__payload_refuse(p, mirt__optimizer_class_get(o->kind)->name, "looks at whole weights");
    for (int i = 0; i < p->root->num_variables; i++) {
        const mirt__variable *v = &p->root->variable[i];
        if (!v->constraint.kind || !mirt__is_trained(v)) continue;
        if (v->constraint.kind == MIRT_SPECTRAL_NORM)
            return mirt__fail(MIRT_E_INVALID, "%s has a spectral norm, whose vector parameter servers do not share",
                              v->name);
        if (p->servers > 1) return mirt__payload_refuse(p, v->name, "has a constraint");
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__payload_create(mirt__payload *p, mirt_function *f) {
    const mirt_strategy *s = f->model->strategy;
    memset(p, 0, sizeof *p);
    p->model = f->model;
    p->root = f->root;
    p->function = f;
    p->servers = s->servers;
    p->workers = s->peers->size - s->servers;
    if (mirt__payload_check(p) != MIRT_OK) return mirt_last_status();
    p->trained = (int64_t)(f->step.gradient_bytes / sizeof(mirt__real));
    p->numbers = 2 + MIRT_MAX_OUTPUTS;
    for (int i = 0; i < f->model->num_metrics; i++) p->numbers += mirt__sums_of(f, i);
    for (int i = 0; i < f->step.num_states; i++) p->states += f->root->variable[f->step.state[i].variable].count;
    while (p->slots < MIRT__MAX_SLOTS && f->model->slot[p->slots]) p->slots++;
    const size_t messages = (size_t)p->servers * MIRT__PAYLOAD_MOST;
    p->state = (mirt__real *)mirt__calloc(2 * (size_t)p->states + 1, sizeof *p->state);
    p->number = (double *)mirt__calloc(3 * (size_t)p->numbers, sizeof *p->number);
    p->send = (mirt__message *)mirt__calloc(2 * messages, sizeof *p->send);
    p->receive = p->send ? p->send + messages : NULL;
    return p->state && p->number && p->send ? MIRT_OK : mirt_last_status();
}

MIRT__LIB void mirt__payload_free(mirt__payload *p) {
    mirt__free(p->state);
    mirt__free(p->number);
    mirt__free(p->send);
}

MIRT__LIB mirt__range mirt__payload_range(const mirt__payload *p, int server) {
    mirt__range range;
    const int64_t count = mirt__share(p->trained, p->servers, server, &range.begin);
    range.end = range.begin + count;
    return range;
}

/* The values of a variable that batches set. */
static mirt__real *mirt__payload_state(const mirt__payload *p, int i, int64_t *count) {
    const mirt__variable *v = &p->root->variable[p->function->step.state[i].variable];
    *count = v->count;
    return (mirt__real *)(void *)(p->root->weight + v->offset);
}

MIRT__LIB void mirt__payload_keep_states(mirt__payload *p) {
    int64_t at = 0, count;
    mirt__weights_to_host(p->root);
    for (int i = 0; i < p->function->step.num_states && p->states; i++, at += count) {
        const mirt__real *value = mirt__payload_state(p, i, &count);
        memcpy(p->state + at, value, (size_t)count * sizeof *value);
    }
}

MIRT__LIB void mirt__payload_set_states(mirt__payload *p) {
    int64_t at = 0, count;
    for (int i = 0; i < p->function->step.num_states && p->states; i++, at += count) {
        mirt__real *value = mirt__payload_state(p, i, &count);
        memcpy(value, p->state + at, (size_t)count * sizeof *value);
    }
    p->root->edits += p->states > 0;
}

MIRT__LIB void mirt__payload_count(mirt__payload *p, const mirt__sums *sums) {
    p->number[0] = (double)sums->count;
    mirt__sums_put(sums, p->number + 1);
}

MIRT__LIB void mirt__payload_counted(const double *number, mirt__sums *sums) {
    sums->count = (int64_t)number[0];
    mirt__sums_get(sums, number + 1);
}

MIRT__LIB void mirt__payload_add(mirt__message *list, int *count, int peer, void *data, size_t bytes) {
    if (!bytes) return;
    list[*count].peer = peer;
    list[*count].data = data;
    list[(*count)++].bytes = bytes;
}
