#include "../base/digest.h"
#include "../nn/model.h"
/* Checks that all copies of the weights are equal. */

/* Elements [at, at + count) of a device's copy come to `out`, once it has been waited for. */
static mirt_status mirt__drift_fetch(const mirt_model *root, int device, size_t at, size_t count, mirt__real *out) {
    const mirt_strategy *s = root->strategy;
    s->backend->copy_out(s->device[device].handle, out, root->device_weight[device] + at * sizeof *out,
                         count * sizeof *out);
    return s->backend->wait(s->device[device].handle);
}

typedef struct mirt__drift {
    const mirt_model *root;
    int status; /* atomic: of the first device that could not be read, */
    mirt__error error; /* and why */
} mirt__drift;

enum { MIRT__DRIFT_CHUNK = 4096 };

static void mirt__drift_hash(void *arg, int device) {
    mirt__drift *drift = (mirt__drift *)arg;
    const mirt_model *root = drift->root;
    mirt__real chunk[MIRT__DRIFT_CHUNK];
    uint64_t hash = 0;
    int none = MIRT_OK;
    for (int i = 0; i < root->num_variables; i++) {
        const size_t begin = root->variable[i].offset / sizeof *chunk, count = (size_t)root->variable[i].count;
        for (size_t at = 0, part; at < count; at += part) {
            part = count - at < (size_t)MIRT__DRIFT_CHUNK ? count - at : (size_t)MIRT__DRIFT_CHUNK;
            const mirt_status status = mirt__drift_fetch(root, device, begin + at, part, chunk);
            if (status != MIRT_OK && __atomic_compare_exchange_n(&drift->status, &none, (int)status, false,
                                                                 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
                mirt__error_get(&drift->error);
            if (status != MIRT_OK) return;
            hash = mirt__hash_bytes(hash, chunk, part * sizeof *chunk);
        }
    }
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

/* The first element in which two copies of a variable differ, with both values; -1: none, or with the error set. */
static int64_t mirt__drift_element(const mirt_model *root, int variable, int device, int right, mirt__real *have,
                                   mirt__real *want) {
    const size_t begin = root->variable[variable].offset / sizeof *have, count = (size_t)root->variable[variable].count;
    mirt__real *both = (mirt__real *)mirt__calloc(2 * count + 1, sizeof *both);
    int64_t found = -1;
    if (!both) return -1;
    if (mirt__drift_fetch(root, device, begin, count, both) == MIRT_OK &&
        mirt__drift_fetch(root, right, begin, count, both + count) == MIRT_OK) {
        for (size_t i = 0; i < count && found < 0; i++) {
            if (memcmp(&both[i], &both[count + i], sizeof *both) == 0) continue;
            found = (int64_t)i;
            *have = both[i];
            *want = both[count + i];
        }
    }
    mirt__free(both);
    return found;
}

static mirt_status mirt__drift_fail(const mirt_model *root, int device, int right) {
    const mirt__device *own = &root->strategy->device[device];
    char replicas[48];
    mirt__real have = 0, want = 0;
    int64_t at = -1;
    int i = -1;
    mirt__fail(MIRT_E_DRIFT, "the weights of device %s differ from those of %s", own->name,
               root->strategy->device[right].name);
    while (at < 0 && ++i < root->num_variables) at = mirt__drift_element(root, i, device, right, &have, &want);
    if (at < 0) return mirt_last_status();
    if (own->num_replicas == 1) snprintf(replicas, sizeof replicas, "replica %d", own->first_replica);
    else
        snprintf(replicas, sizeof replicas, "replicas %d to %d", own->first_replica,
                 own->first_replica + own->num_replicas - 1);
    return mirt__fail(MIRT_E_DRIFT,
                      "after step %lld the weights of device %s (%s) differ from those of %s, first in %s at element "
                      "%lld: %.9g and %.9g",
                      (long long)root->step, own->name, replicas, root->strategy->device[right].name,
                      root->variable[i].name, (long long)at, (double)have, (double)want);
}

/* Whether the copies of all processes are equal; those of each are. */
MIRT__TOGETHER_ONLY mirt_status mirt__drift_of_peers(const mirt_model *root) {
    mirt_strategy *s = root->strategy;
    const mirt__peers *p = MIRT__PEERS(s);
    const uint64_t *hash = (const uint64_t *)mirt__peers_tell(s, &s->copy_hash[0], sizeof *hash);
    if (!hash) return mirt_last_status();
    const int right = mirt__drift_majority(hash, p->size);
    for (int i = 0; i < p->size; i++) {
        if (hash[i] == hash[right]) continue;
        return mirt__fail(MIRT_E_DRIFT,
                          "after step %lld the weights of process %d (%s) differ from those of process %d (%s)",
                          (long long)root->step, i, p->engine->host(i), right, p->engine->host(right));
    }
    return MIRT_OK;
}

MIRT_API mirt_status mirt_check_drift(mirt_model *model) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model) return mirt__fail_missing(__func__, "model");
    mirt_strategy *s = model->strategy;
    const int copies = mirt__device_copies(s);
    mirt__drift drift;
    if (mirt__usable(s) != MIRT_OK) return mirt_last_status();
    if (s->running) return mirt__fail(MIRT_E_STATE, "mirt_check_drift: %s is in the middle of a step", model->name);
    memset(&drift, 0, sizeof drift);
    drift.root = mirt__root(model, NULL);
    if (!drift.root->weight || (copies < 2 && !MIRT__PEERS(s)) || drift.root->weights_newer == MIRT__NEWER_HOST)
        return MIRT_OK;
    mirt_status status = mirt__on_devices(s, mirt__drift_hash, &drift);
    if (status == MIRT_OK && drift.status != MIRT_OK) mirt__error_set(&drift.error), status = mirt_last_status();
    const int right = status == MIRT_OK ? mirt__drift_majority(s->copy_hash, copies) : 0;
    for (int d = 0; d < copies && status == MIRT_OK; d++) {
        if (s->copy_hash[d] != s->copy_hash[right]) status = mirt__drift_fail(drift.root, d, right);
    }
    if (MIRT__PEERS(s) && status == MIRT_OK) status = mirt__drift_of_peers(drift.root);
    return status;
}
