#include "../ops/ops.h"
#include "finite.h"
/* Where the first number that is none comes from. */

static bool mirt__all_finite(const void *data, mirt_dtype dtype, int64_t count) {
    uint16_t half;
    for (int64_t i = 0; dtype == MIRT_FLOAT32 && i < count; i++) {
        if (!(fabs((double)((const mirt__real *)data)[i]) <= DBL_MAX)) return false;
    }
    const int exponent = (int)dtype == MIRT__FLOAT16 ? 0x7c00 : 0x7f80;
    for (int64_t i = 0; (int)dtype >= MIRT__BFLOAT16 && i < count; i++) {
        memcpy(&half, (const char *)data + 2 * i, sizeof half);
        if ((half & exponent) == exponent) return false;
    }
    return true;
}

/* The losses of the device's replicas: the first result, and the terms among the results. */
MIRT__LIB bool mirt__device_losses_finite(const mirt_function *f, int device) {
    int first, count = mirt__device_replicas(f->model->strategy, f->replicas, device, &first);
    int64_t begin, end, none;
    mirt__replica_share(f, first, &begin);
    end = begin;
    for (int r = first; r < first + count; r++) end += mirt__replica_share(f, r, &none);
    for (int k = 0; k < 2; k++) {
        if (k && f->terms_result < 0) continue;
        const mirt__result *r = &f->result[k ? f->terms_result : 0];
        int64_t from = r->batched ? begin : first, to = r->batched ? end : first + count;
        if (!r->batched && to > mirt__active_replicas(f)) to = mirt__active_replicas(f);
        if (from < to && !mirt__all_finite((const mirt__real *)(const void *)r->data + from * r->count, MIRT_FLOAT32, (to - from) * r->count)) return false;
    }
    return true;
}

static bool mirt__tensor_finite(const mirt__call *call, const mirt_tensor *t) {
    const mirt__bases *b = call->bases;
    const void *data = mirt__address(b, t);
    const size_t bytes = mirt__tensor_bytes(t, call->rows);
    if (!data || t->lazy || !b->remote) return !data || t->lazy || mirt__all_finite(data, t->dtype, mirt__elements(t, call->rows));
    void *copy = mirt__calloc(1, bytes);
    if (!copy) return true;
    b->backend->fetch(b->remote, copy, data, bytes);
    const bool finite = b->backend->wait(b->remote) != MIRT_OK || mirt__all_finite(copy, t->dtype, mirt__elements(t, call->rows));
    mirt__free(copy);
    return finite;
}

/* What nobody has computed, weights and what is read of the batch; also of what is computed while it is read. */
static const mirt_tensor *mirt__given_not_finite(const mirt__call *call, const mirt__node *node) {
    for (int k = 0; k < node->num_in; k++) {
        const mirt_tensor *t = node->in[k], *found = NULL;
        if (t->lazy) found = mirt__given_not_finite(call, t->node);
        else if ((t->space == MIRT__SPACE_WEIGHT || t->space == MIRT__SPACE_IO) && !mirt__tensor_finite(call, t)) found = t;
        if (found) return found;
    }
    return NULL;
}

MIRT__LIB void mirt__finder_look(void *user, const mirt__call *call, int number) {
    mirt__finder *finder = (mirt__finder *)user;
    if (finder->node >= 0 && number >= finder->node) return;
    const mirt_tensor *found = mirt__given_not_finite(call, call->node);
    for (int k = 0; k < call->node->num_out && !found; k++) {
        if (!mirt__tensor_finite(call, call->node->out[k])) found = call->node->out[k];
    }
    if (!found) return;
    finder->node = number;
    finder->replica = call->run->replica;
    finder->tensor = found;
}

MIRT__LIB void mirt__describe_not_finite(const mirt_function *f, const mirt__finder *finder, int devices, char *out, size_t size) {
    const mirt__finder *first = NULL;
    char shape[96];
    for (int d = 0; d < devices; d++) {
        if (finder[d].node >= 0 && (!first || finder[d].node < first->node)) first = &finder[d];
    }
    size_t used = (size_t)snprintf(out, size, "the loss of step %lld is not finite; ", (long long)f->model->step + 1);
    if (!first) {
        snprintf(out + used, size - used, "when the step was run again, it was");
        return;
    }
    const mirt__node *node = f->program.graph.node[first->node];
    const mirt_tensor *t = first->tensor;
    used += (size_t)snprintf(out + used, size - used, "the first number that is not is in replica %d, ", first->replica);
    for (int i = 0; t->space == MIRT__SPACE_WEIGHT && i < f->root->num_variables; i++) {
        if (f->root->variable[i].offset != t->offset) continue;
        snprintf(out + used, size - used, "in the weights %.200s, which an update before made so, or whoever set them", f->root->variable[i].name);
        return;
    }
    if (t->space == MIRT__SPACE_IO && t->offset < MIRT__MAX_FIELDS && t->node != node) {
        snprintf(out + used, size - used, "in the data: %s number %d", (int)t->offset < f->spec.num_x ? "input" : "label or weight",
                 (int)t->offset < f->spec.num_x ? (int)t->offset : (int)t->offset - f->spec.num_x);
        return;
    }
    snprintf(out + used, size - used, "in what layer %.100s (%.40s) makes of finite numbers: %s %.90s", node->name ? node->name : "without a name", node->op->name,
             mirt__dtype_name(t->dtype), mirt__shape_text(&t->shape, shape));
}
