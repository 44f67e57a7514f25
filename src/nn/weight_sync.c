#include "../mirror/memory.h"
#include "model.h"
/* Keeps the host's and the devices' weights and optimizer state in step: each side is updated when it is read. */

/* What cannot be copied any more leaves the strategy without use. */
static mirt_status mirt__weights_lost(mirt_strategy *s) {
    if (!s->lost[0]) {
        snprintf(s->lost, sizeof s->lost, "%s", mirt_last_error());
        mirt__log(s, MIRT_LOG_ERROR, "weights could not be copied: %s", s->lost);
    }
    return mirt_last_status();
}

/* A device's memory for a block of the host: that block itself where the device works in place; NULL with the error
   set. */
static char *mirt__device_block(const mirt_strategy *s, int device, char *host, size_t bytes) {
    return s->able.in_place && host ? host : (char *)s->backend->alloc(s->device[device].handle, bytes);
}

static void mirt__device_release(const mirt_strategy *s, int device, const char *host, char **block) {
    if (*block && *block != host) {
        s->backend->forget(s->device[device].handle, NULL);
        s->backend->release(s->device[device].handle, *block);
    }
    *block = NULL;
}

/* >>weights */

/* Every device has a copy of its own, but the first may have the host's. */
MIRT__LIB mirt_status mirt__weights_place(mirt_model *root) {
    mirt_strategy *s = root->strategy;
    for (int d = 0; d < s->num_devices; d++) {
        if (root->device_weight[d]) continue;
        if (d >= mirt__device_copies(s)) root->device_weight[d] = root->device_weight[0];
        else root->device_weight[d] = mirt__device_block(s, d, d ? NULL : root->weight, root->weight_bytes);
        if (!root->device_weight[d]) return mirt_last_status();
    }
    return MIRT_OK;
}

MIRT__LIB void mirt__device_weights_free(mirt_model *root) {
    const mirt_strategy *s = root->strategy;
    for (int d = 0; d < s->num_devices; d++) {
        if (d >= mirt__device_copies(s)) root->device_weight[d] = NULL;
        else mirt__device_release(s, d, root->weight, &root->device_weight[d]);
    }
    root->weights_newer = MIRT__NEWER_HOST;
}

MIRT__LIB mirt_status mirt__weights_to_devices(mirt_model *root) {
    mirt_strategy *s = root->strategy;
    if (root->weights_newer != MIRT__NEWER_HOST) return MIRT_OK;
    if (mirt__weights_place(root) != MIRT_OK) return mirt_last_status();
    for (int d = 0; d < mirt__device_copies(s); d++) {
        s->backend->copy_in(s->device[d].handle, root->device_weight[d], root->weight, root->weight_bytes, false);
    }
    for (int d = 0; d < mirt__device_copies(s); d++) {
        if (s->backend->wait(s->device[d].handle) != MIRT_OK) return mirt__weights_lost(s);
    }
    root->weights_newer = MIRT__NEWER_NOWHERE;
    return MIRT_OK;
}

MIRT__LIB void mirt__weights_to_host(mirt_model *root) {
    mirt_strategy *s = root->strategy;
    if (root->weights_newer != MIRT__NEWER_DEVICES || s->lost[0]) return;
    s->backend->copy_out(s->device[0].handle, root->weight, root->device_weight[0], root->weight_bytes);
    if (s->backend->wait(s->device[0].handle) == MIRT_OK) root->weights_newer = MIRT__NEWER_NOWHERE;
    else mirt__weights_lost(s);
}

MIRT__LIB mirt_status mirt__device_weight_get(mirt_model *model, int device, int variable, float *out) {
    int first;
    mirt_model *root = mirt__root(model, &first);
    mirt_strategy *s = root->strategy;
    const mirt__variable *v = &root->variable[first + variable];
    if (device >= mirt__device_copies(s)) device = 0; /* all read one copy */
    if (mirt__usable(s) != MIRT_OK || mirt__weights_to_devices(root) != MIRT_OK) return mirt_last_status();
    s->backend->copy_out(s->device[device].handle, out, root->device_weight[device] + v->offset,
                         (size_t)v->count * sizeof *out);
    return s->backend->wait(s->device[device].handle) == MIRT_OK ? MIRT_OK : mirt__weights_lost(s);
}

MIRT__LIB void mirt__weights_changed(mirt_model *model) { mirt__root(model, NULL)->weights_newer = MIRT__NEWER_HOST; }

/* >>slots */

MIRT__TRAINING_LIB void mirt__device_slots_free(mirt_model *model) {
    const mirt_strategy *s = model->strategy;
    for (int d = 0; d < s->num_devices; d++) {
        for (int i = 0; i < MIRT__MAX_SLOTS; i++) mirt__device_release(s, d, model->slot[i], &model->device_slot[d][i]);
    }
    model->slots_newer = MIRT__NEWER_HOST;
}

MIRT__TRAINING_LIB mirt_status mirt__slots_to_devices(mirt_model *model) {
    mirt_strategy *s = model->strategy;
    const size_t bytes = mirt__root(model, NULL)->trained_bytes;
    if (model->slots_newer != MIRT__NEWER_HOST) return MIRT_OK;
    for (int d = 0; d < s->num_devices; d++) {
        for (int i = 0; i < MIRT__MAX_SLOTS && model->slot[i]; i++) {
            if (!model->device_slot[d][i] &&
                !(model->device_slot[d][i] = mirt__device_block(s, d, model->slot[i], bytes)))
                return mirt_last_status();
            s->backend->copy_in(s->device[d].handle, model->device_slot[d][i], model->slot[i], bytes, false);
        }
        if (s->backend->wait(s->device[d].handle) != MIRT_OK) return mirt__weights_lost(s);
    }
    model->slots_newer = MIRT__NEWER_NOWHERE;
    return MIRT_OK;
}

MIRT__TRAINING_LIB mirt__range mirt__model_share(const mirt_model *model, int device) {
    const int64_t trained = (int64_t)(mirt__root(model, NULL)->trained_bytes / sizeof(mirt__real));
    const bool whole = mirt__optimizers_any(&model->config, mirt__optimizer_whole);
    return mirt__update_share(model->strategy, trained, device, model->piece, whole ? model->num_pieces : 0);
}

/* Devices that update a share have the state of that share alone. */
MIRT__TRAINING_LIB void mirt__slots_to_host(mirt_model *model) {
    mirt_strategy *s = model->strategy;
    if (model->slots_newer != MIRT__NEWER_DEVICES || s->lost[0]) return;
    for (int d = 0; d < (mirt__device_copies(s) > 1 && !s->able.shards ? 1 : s->num_devices); d++) {
        const mirt__range own = mirt__model_share(model, d);
        const size_t from = (size_t)own.begin * sizeof(mirt__real),
                     size = (size_t)(own.end - own.begin) * sizeof(mirt__real);
        for (int i = 0; i < MIRT__MAX_SLOTS && model->slot[i] && size; i++) {
            s->backend->copy_out(s->device[d].handle, model->slot[i] + from, model->device_slot[d][i] + from, size);
        }
        if (s->backend->wait(s->device[d].handle) != MIRT_OK) {
            mirt__weights_lost(s);
            return;
        }
    }
    model->slots_newer = MIRT__NEWER_NOWHERE;
}

MIRT__LIB void mirt__slots_changed(mirt_model *model) { model->slots_newer = MIRT__NEWER_HOST; }

MIRT__TRAINING_LIB size_t mirt__device_free(const mirt_model *model) {
    const mirt_strategy *s = model->strategy;
    const mirt_model *root = mirt__root(model, NULL);
    size_t least = SIZE_MAX, block = 0;
    mirt__layout_bytes(&s->layout, &block);
    for (int d = 0; d < s->num_devices; d++) {
        size_t bytes = s->backend->free_bytes(s->device[d].handle) + (s->block[d] ? block : 0);
        if (root->device_weight[d] && d < mirt__device_copies(s)) bytes += root->weight_bytes;
        for (int i = 0; i < MIRT__MAX_SLOTS; i++) bytes += model->device_slot[d][i] ? root->trained_bytes : 0;
        if (bytes < least) least = bytes;
    }
    return least;
}
