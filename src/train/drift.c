#include "../base/digest.h"
#include "function.h"
/* Whether the copies of the weights are what they always should be: the same. */

/* The copies, where the machine can read them. */
typedef struct mirt__drift {
    const mirt_model *root;
    char *copy[MIRT__MAX_DEVICES];
} mirt__drift;

static void mirt__drift_hash(void *arg, int device) {
    const mirt__drift *drift = (const mirt__drift *)arg;
    const mirt_model *root = drift->root;
    uint64_t hash = 0;
    for (int i = 0; i < root->num_variables; i++)
        hash = mirt__hash_bytes(hash, drift->copy[device] + root->variable[i].offset, (size_t)root->variable[i].count * sizeof(mirt__real));
    root->strategy->copy_hash[device] = hash;
}

/* Devices with memory of their own send theirs. */
static mirt_status mirt__drift_fetch(mirt__drift *drift) {
    const mirt_model *root = drift->root;
    const mirt_strategy *s = root->strategy;
    mirt_status status = MIRT_OK;
    for (int d = 0; d < s->num_devices && status == MIRT_OK; d++) {
        if (!(drift->copy[d] = (char *)mirt__aligned_alloc(root->weight_bytes))) return mirt_last_status();
        s->backend->fetch(s->device[d].remote, drift->copy[d], root->remote_weight[d], root->weight_bytes);
        status = s->backend->wait(s->device[d].remote);
    }
    return status;
}

/* The copy that most others are like; of two the first. */
static int mirt__drift_majority(const uint64_t *hash, int devices) {
    int best = 0, most = 0;
    for (int d = 0; d < devices; d++) {
        int like = 0;
        for (int other = 0; other < devices; other++) like += hash[other] == hash[d];
        if (like > most) {
            most = like;
            best = d;
        }
    }
    return best;
}

static mirt_status mirt__drift_fail(const mirt__drift *drift, int device, int right) {
    const mirt_model *root = drift->root;
    const mirt__device *own = &root->strategy->device[device];
    char replicas[48];
    int i = 0;
    size_t bytes = 0, at = 0;
    for (; i < root->num_variables; i++) {
        bytes = (size_t)root->variable[i].count * sizeof(mirt__real);
        if (memcmp(drift->copy[device] + root->variable[i].offset, drift->copy[right] + root->variable[i].offset, bytes) != 0) break;
    }
    if (i == root->num_variables) return MIRT_OK;
    const char *have = drift->copy[device] + root->variable[i].offset, *want = drift->copy[right] + root->variable[i].offset;
    while (have[at] == want[at]) at++;
    at /= sizeof(mirt__real);
    if (own->num_replicas == 1) snprintf(replicas, sizeof replicas, "replica %d", own->first_replica);
    else snprintf(replicas, sizeof replicas, "replicas %d to %d", own->first_replica, own->first_replica + own->num_replicas - 1);
    return mirt__fail(MIRT_E_DRIFT, "after step %lld the weights of device %s (%s) differ from those of %s, first in %s at element %llu: %.9g and %.9g",
                      (long long)root->step, own->name, replicas, root->strategy->device[right].name, root->variable[i].name, (unsigned long long)at,
                      (double)((const mirt__real *)(const void *)have)[at], (double)((const mirt__real *)(const void *)want)[at]);
}

static mirt_status mirt__drift_compare(mirt__drift *drift, int copies) {
    mirt_strategy *s = drift->root->strategy;
    mirt_status status = mirt__on_devices(s, mirt__drift_hash, drift);
    const int right = status == MIRT_OK ? mirt__drift_majority(s->copy_hash, copies) : 0;
    for (int d = 0; d < copies && status == MIRT_OK; d++) {
        if (s->copy_hash[d] != s->copy_hash[right]) status = mirt__drift_fail(drift, d, right);
    }
    return status;
}

MIRT_API mirt_status mirt_check_drift(mirt_model *model) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model) return mirt__fail_missing("mirt_check_drift", "model");
    mirt_strategy *s = model->strategy;
    const int copies = mirt__device_copies(s);
    mirt__drift drift;
    if (mirt__usable(s) != MIRT_OK) return mirt_last_status();
    if (s->running) return mirt__fail(MIRT_E_STATE, "mirt_check_drift: %s is in the middle of a step", model->name);
    mirt_model *root = mirt__root(model, NULL);
    if (!root->weight[0] || copies < 2 || (s->backend && root->weights_newer == MIRT__NEWER_HERE)) return MIRT_OK;
    memset(&drift, 0, sizeof drift);
    drift.root = root;
    if (!s->backend) {
        memcpy(drift.copy, root->weight, sizeof drift.copy);
        return mirt__drift_compare(&drift, copies);
    }
    mirt_status status = mirt__drift_fetch(&drift);
    if (status == MIRT_OK) status = mirt__drift_compare(&drift, copies);
    for (int d = 0; d < copies; d++) mirt__aligned_free(drift.copy[d]);
    return status;
}
