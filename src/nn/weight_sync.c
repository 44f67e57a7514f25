#include "../mirror/memory.h"
#include "model.h"
/* Weights and optimizer state of strategies whose devices have memory of their own: the blocks of the model are their mirror in the
   machine's memory. Each side is brought up to date when it is asked for. */

/* What cannot be copied any more leaves the strategy without use. */
static mirt_status mirt__remote_lost(mirt_strategy *s) {
    if (!s->lost[0]) {
        snprintf(s->lost, sizeof s->lost, "%s", mirt_last_error());
        mirt__log(s, MIRT_LOG_ERROR, "weights could not be copied: %s", s->lost);
    }
    return mirt_last_status();
}

MIRT__LIB char *mirt__remote_block(const mirt_strategy *s, int device, size_t bytes) { return (char *)s->backend->alloc(s->device[device].remote, bytes); }

MIRT__LIB void mirt__remote_release(const mirt_strategy *s, int device, char **block) {
    if (*block) {
        s->backend->forget(s->device[device].remote, NULL);
        s->backend->release(s->device[device].remote, *block);
    }
    *block = NULL;
}

/* >>weights */

static bool mirt__remote_weights_allocate(mirt_model *root) {
    mirt_strategy *s = root->strategy;
    for (int d = 0; d < s->num_devices; d++) {
        if (root->remote_weight[d]) continue;
        root->remote_weight[d] = d >= mirt__device_copies(s) ? root->remote_weight[0] : mirt__remote_block(s, d, root->weight_bytes);
        if (!root->remote_weight[d]) return false;
    }
    return true;
}

MIRT__LIB void mirt__remote_weights_free(mirt_model *root) {
    const mirt_strategy *s = root->strategy;
    for (int d = 0; s->backend && d < s->num_devices; d++) {
        if (d >= mirt__device_copies(s)) root->remote_weight[d] = NULL;
        else mirt__remote_release(s, d, &root->remote_weight[d]);
    }
    root->weights_newer = MIRT__NEWER_HERE;
}

MIRT__LIB mirt_status mirt__weights_there(mirt_model *root) {
    mirt_strategy *s = root->strategy;
    if (!s->backend || root->weights_newer != MIRT__NEWER_HERE) return MIRT_OK;
    if (!mirt__remote_weights_allocate(root)) return mirt_last_status();
    for (int d = 0; d < mirt__device_copies(s); d++) {
        s->backend->stage(s->device[d].remote, root->remote_weight[d], root->weight[0], root->weight_bytes, false);
    }
    for (int d = 0; d < mirt__device_copies(s); d++) {
        if (s->backend->wait(s->device[d].remote) != MIRT_OK) return mirt__remote_lost(s);
    }
    root->weights_newer = MIRT__NEWER_NOWHERE;
    return MIRT_OK;
}

MIRT__LIB void mirt__weights_here(mirt_model *root) {
    mirt_strategy *s = root->strategy;
    if (!s->backend || root->weights_newer != MIRT__NEWER_THERE || s->lost[0]) return;
    s->backend->fetch(s->device[0].remote, root->weight[0], root->remote_weight[0], root->weight_bytes);
    if (s->backend->wait(s->device[0].remote) == MIRT_OK) root->weights_newer = MIRT__NEWER_NOWHERE;
    else mirt__remote_lost(s);
}

MIRT__LIB mirt_status mirt__remote_weight(mirt_model *model, int device, int variable, float *out) {
    int first;
    mirt_model *root = mirt__root(model, &first);
    mirt_strategy *s = root->strategy;
    const mirt__variable *v = &root->variable[first + variable];
    if (mirt__usable(s) != MIRT_OK || mirt__weights_there(root) != MIRT_OK) return mirt_last_status();
    s->backend->fetch(s->device[device].remote, out, root->remote_weight[device] + v->offset, (size_t)v->count * sizeof *out);
    return s->backend->wait(s->device[device].remote) == MIRT_OK ? MIRT_OK : mirt__remote_lost(s);
}

MIRT__LIB void mirt__weights_changed(mirt_model *model) { mirt__root(model, NULL)->weights_newer = MIRT__NEWER_HERE; }

/* >>slots */

MIRT__LIB void mirt__remote_slots_free(mirt_model *model) {
    const mirt_strategy *s = model->strategy;
    for (int d = 0; s->backend && d < s->num_devices; d++) {
        for (int i = 0; i < MIRT__MAX_SLOTS; i++) mirt__remote_release(s, d, &model->remote_slot[d][i]);
    }
    model->slots_newer = MIRT__NEWER_HERE;
}

MIRT__LIB mirt_status mirt__slots_there(mirt_model *model) {
    mirt_strategy *s = model->strategy;
    const size_t bytes = mirt__root(model, NULL)->trained_bytes;
    if (!s->backend || model->slots_newer != MIRT__NEWER_HERE) return MIRT_OK;
    for (int d = 0; d < s->num_devices; d++) {
        for (int i = 0; i < MIRT__MAX_SLOTS && model->slot[i]; i++) {
            if (!model->remote_slot[d][i] && !(model->remote_slot[d][i] = mirt__remote_block(s, d, bytes))) return mirt_last_status();
            s->backend->stage(s->device[d].remote, model->remote_slot[d][i], model->slot[i], bytes, false);
        }
        if (s->backend->wait(s->device[d].remote) != MIRT_OK) return mirt__remote_lost(s);
    }
    model->slots_newer = MIRT__NEWER_NOWHERE;
    return MIRT_OK;
}

/* With one copy of the weights a device has the state of its share alone. */
MIRT__LIB void mirt__slots_here(mirt_model *model) {
    mirt_strategy *s = model->strategy;
    const size_t bytes = mirt__root(model, NULL)->trained_bytes;
    if (!s->backend || model->slots_newer != MIRT__NEWER_THERE || s->lost[0]) return;
    for (int d = 0; d < (mirt__device_copies(s) > 1 ? 1 : s->num_devices); d++) {
        int64_t begin, end;
        mirt__update_range(s, (int64_t)(bytes / sizeof(mirt__real)), d, &begin, &end);
        const size_t from = (size_t)begin * sizeof(mirt__real), size = (size_t)(end - begin) * sizeof(mirt__real);
        for (int i = 0; i < MIRT__MAX_SLOTS && model->slot[i] && size; i++) {
            s->backend->fetch(s->device[d].remote, model->slot[i] + from, model->remote_slot[d][i] + from, size);
        }
        if (s->backend->wait(s->device[d].remote) != MIRT_OK) {
            mirt__remote_lost(s);
            return;
        }
    }
    model->slots_newer = MIRT__NEWER_NOWHERE;
}

MIRT__LIB void mirt__slots_changed(mirt_model *model) { model->slots_newer = MIRT__NEWER_HERE; }

MIRT__LIB size_t mirt__remote_free(const mirt_model *model) {
    const mirt_strategy *s = model->strategy;
    const mirt_model *root = mirt__root(model, NULL);
    size_t least = SIZE_MAX, block = 0;
    mirt__layout_bytes(&s->layout, &block);
    for (int d = 0; d < s->num_devices; d++) {
        size_t bytes = s->backend->free_bytes(s->device[d].remote) + (s->block[d] ? block : 0);
        if (root->remote_weight[d] && d < mirt__device_copies(s)) bytes += root->weight_bytes;
        for (int i = 0; i < MIRT__MAX_SLOTS; i++) bytes += model->remote_slot[d][i] ? root->trained_bytes : 0;
        if (bytes < least) least = bytes;
    }
    return least;
}
