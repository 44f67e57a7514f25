#include "../base/digest.h"
#include "function.h"
/* Whether the copies of the weights are what they always should be: the same. */

static void mirt__drift_hash(void *arg, int device) {
    const mirt_model *root = (const mirt_model *)arg;
    uint64_t hash = 0;
    for (int i = 0; i < root->num_variables; i++)
        hash = mirt__hash_bytes(hash, root->weight[device] + root->variable[i].offset, (size_t)root->variable[i].count * sizeof(mirt__real));
    root->strategy->copy_hash[device] = hash;
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

static mirt_status mirt__drift_fail(const mirt_model *root, int device, int right) {
    const mirt__device *own = &root->strategy->device[device];
    char replicas[48];
    int i = 0;
    size_t bytes = 0, at = 0;
    for (; i < root->num_variables; i++) {
        bytes = (size_t)root->variable[i].count * sizeof(mirt__real);
        if (memcmp(root->weight[device] + root->variable[i].offset, root->weight[right] + root->variable[i].offset, bytes) != 0) break;
    }
    if (i == root->num_variables) return MIRT_OK;
    const char *have = root->weight[device] + root->variable[i].offset, *want = root->weight[right] + root->variable[i].offset;
    while (have[at] == want[at]) at++;
    at /= sizeof(mirt__real);
    if (own->num_replicas == 1) snprintf(replicas, sizeof replicas, "replica %d", own->first_replica);
    else snprintf(replicas, sizeof replicas, "replicas %d to %d", own->first_replica, own->first_replica + own->num_replicas - 1);
    return mirt__fail(MIRT_E_DRIFT, "after step %lld the weights of device %s (%s) differ from those of %s, first in %s at element %llu: %.9g and %.9g",
                      (long long)root->step, own->name, replicas, root->strategy->device[right].name, root->variable[i].name, (unsigned long long)at,
                      (double)((const mirt__real *)(const void *)have)[at], (double)((const mirt__real *)(const void *)want)[at]);
}

MIRT_API mirt_status mirt_check_drift(mirt_model *model) {
    if (!model) return mirt__fail_missing("mirt_check_drift", "model");
    mirt_strategy *s = model->strategy;
    const int copies = mirt__weight_copies(s);
    if (mirt__usable(s) != MIRT_OK) return MIRT_E_TIMEOUT;
    if (s->running) return mirt__fail(MIRT_E_STATE, "mirt_check_drift: %s is in the middle of a step", model->name);
    mirt_model *root = mirt__root(model, NULL);
    if (!root->weight[0] || copies < 2) return MIRT_OK;
    mirt_status status = mirt__on_devices(s, mirt__drift_hash, root);
    if (status != MIRT_OK) return status;
    const int right = mirt__drift_majority(s->copy_hash, copies);
    for (int d = 0; d < copies && status == MIRT_OK; d++) {
        if (s->copy_hash[d] != s->copy_hash[right]) status = mirt__drift_fail(root, d, right);
    }
    return status;
}
