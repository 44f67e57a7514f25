/* Devices are joined: by NCCL, over all processes, or each in the others' memory. */
#include "math.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

/* What the trial adds up: whole numbers, whose sums are exact in any order. */
static __global__ void __launch_bounds__(256) mirt__cu_trial_kernel(float *to, int64_t count, float factor) {
    MIRT__CU_PIECES(i, left, count, 1) to[i] = (float)(i % 1021) * factor;
}

/* One thread does the work of all devices for once. */
typedef struct mirt__cu_trial {
    mirt__cu_group *group;
    mirt__reduction exchange[MIRT__CU_MEMBERS];
    float *value[MIRT__CU_MEMBERS], *sum[MIRT__CU_MEMBERS];
    bool direct;
} mirt__cu_trial;

static bool mirt__cu_all_well(const mirt__cu_group *group, mirt__cu **culprit) {
    for (int d = 0; d < group->count; d++) {
        *culprit = group->member[d];
        if ((*culprit)->status != MIRT_OK) return false;
    }
    return true;
}

static bool mirt__cu_all_settled(const mirt__cu_group *group) {
    for (int d = 0; d < group->count; d++) {
        mirt__cu_enter(group->member[d]);
        if (!mirt__cu_settled(group->member[d], group->member[d]->exchanges, NULL)) return false;
    }
    return true;
}

#if MIRT__CU_NCCL
static bool mirt__cu_all_end(const mirt__cu_group *group, const char *what) {
    mirt__cu *culprit;
    const ncclResult_t ended = ncclGroupEnd();
    bool good = mirt__cu_all_well(group, &culprit) && mirt__cu_nccl(group->member[0], ended, what);
    for (int d = 0; d < group->count && good; d++) good = mirt__cu_nccl_settled(group->member[d], what);
    return good;
}

/* The first makes all connections that will be used: states are sent as chunks are. */
static bool mirt__cu_trial_piece(mirt__cu_trial *t, int64_t at, int64_t length, bool first) {
    mirt__cu_group *group = t->group;
    const bool whole = group->collective == MIRT_NCCL;
    for (int stage = 0; stage < (whole && !first ? 1 : 3); stage++) {
        if (whole && stage == 1) continue;
        if (stage != 1 && !mirt__cu_nccl_start(group->member[0])) return false;
        for (int d = 0; d < group->count; d++) {
            mirt__cu *cu = group->member[d];
            mirt__cu_sum sum;
            mirt__cu_sum_of(cu, &t->exchange[d], &sum);
            mirt__cu_enter(cu);
            if (whole && stage == 0) {
                mirt__cu_nccl(cu,
                              ncclAllReduce(t->value[d] + at, t->sum[d] + at, (size_t)length, ncclFloat, ncclSum,
                                            group->comm[d], cu->exchanges),
                              "adding");
            } else if (stage == 0) {
                mirt__cu_tree_send(cu, &sum, at, length);
            } else if (stage == 1) {
                mirt__cu_tree_add(cu, &sum, at, length);
            } else {
                mirt__cu_tree_spread(cu, &sum, at, length);
            }
        }
        if (stage != 1 && !mirt__cu_all_end(group, "trying it")) return false;
    }
    return true;
}

static bool mirt__cu_trial_nccl(mirt__cu_trial *t, bool first) {
    const int64_t most = mirt__cu_tree_length(t->group, t->group->all, t->group->all);
    for (int64_t at = 0; at < MIRT__CU_TRIAL; at += most) {
        if (!mirt__cu_trial_piece(t, at, MIRT__CU_TRIAL - at < most ? MIRT__CU_TRIAL - at : most, first)) return false;
    }
    return true;
}
#endif

static bool mirt__cu_trial_run(mirt__cu_trial *t, bool first) {
    (void)first;
#if MIRT__CU_NCCL
    if (!t->direct && !mirt__cu_trial_nccl(t, first)) return false;
#endif
    for (int d = 0; d < t->group->count && t->direct; d++) { /* each adds up what all have in their memory */
        mirt__cu *cu = t->group->member[d];
        mirt__cu_parts parts;
        mirt__cu_enter(cu);
        mirt__cu_parts_take(&parts, t->exchange[d].parts, t->exchange[d].part, t->exchange[d].add);
        mirt__cu_sum_parts(cu, cu->exchanges, parts, t->sum[d], MIRT__CU_TRIAL);
    }
    return mirt__cu_all_settled(t->group);
}

static bool mirt__cu_trial_check(mirt__cu_trial *t, int device) {
    mirt__cu *cu = t->group->member[device];
    enum { SAMPLE = 4096 };
    float *sample = static_cast<float *>(cu->host->calloc(SAMPLE, sizeof *sample));
    if (!sample) return mirt__cu_fail(cu, MIRT_E_NOMEM, "no memory for a trial");
    const int64_t all = (int64_t)t->group->all * (t->group->all + 1) / 2, from = MIRT__CU_TRIAL - SAMPLE;
    mirt__cu_download(cu, sample, t->sum[device] + from, SAMPLE * sizeof *sample);
    bool good = mirt__cu_settled(cu, cu->stream, NULL);
    mirt__cu_deliver_all(cu);
    for (int i = 0; good && i < SAMPLE; i++) {
        if (sample[i] == (float)((from + i) % 1021 * all)) continue;
        good = mirt__cu_fail(cu, MIRT_E_DEVICE, "sums over GPUs come out wrong%s",
                             t->direct ? ": reaching another GPU's memory does not work on this machine (the IOMMU may "
                                         "be in the way); build with NCCL"
                                       : "");
    }
    cu->host->free(sample);
    return good;
}

/* Sums a few megabytes, to see that it works, and how fast. Seconds, or below 0. */
static double mirt__cu_try_out(mirt__cu_trial *t) {
    mirt__cu_group *group = t->group;
    double best = -1;
    bool good = true;
    for (int d = 0; d < group->count && good; d++) {
        mirt__cu *cu = group->member[d];
        good = mirt__cu_enter(cu) &&
               mirt__cu_try(cu, cudaMalloc((void **)&t->value[d], 2 * MIRT__CU_TRIAL * sizeof(float)),
                            "taking memory for a trial");
        if (!good) break;
        t->sum[d] = t->value[d] + MIRT__CU_TRIAL;
        float *value = t->value[d];
        const float factor = (float)(mirt__cu_rank_of(cu) + 1);
        MIRT_LAUNCH_ON(cu, cu->exchanges, mirt__cu_trial_kernel, mirt__cu_blocks(MIRT__CU_TRIAL, 256), 256, 0, value,
                       MIRT__CU_TRIAL, factor);
    }
    good = good && mirt__cu_all_settled(group);
    for (int d = 0; d < group->count && good; d++) {
        mirt__reduction *x = &t->exchange[d];
        x->end = MIRT__CU_TRIAL;
        x->parts = group->all;
        x->device = d;
        x->sum[d] = t->sum[d];
        for (int p = 0; p < group->all; p++) {
            const int member = p - group->first;
            x->part_device[p] = p;
            x->part[p] = member >= 0 && member < group->count ? t->value[member] : NULL;
            x->add[p].into = 0;
            x->add[p].from = p + 1;
        }
    }
    for (int turn = 0; turn < 4 && good; turn++) {
        const double begin = group->host->now();
        good = mirt__cu_trial_run(t, turn == 0);
        const double took = group->host->now() - begin;
        if (turn > 0 && (best < 0 || took < best)) best = took;
    }
    for (int d = 0; d < group->count && good; d++) good = mirt__cu_trial_check(t, d);
    for (int d = 0; d < group->count && !good; d++) mirt__cu_group_abort(group, d);
    for (int d = 0; d < group->count; d++) {
        mirt__cu_enter(group->member[d]);
        if (t->value[d] && mirt__cu_frees(group->member[d])) (void)cudaFree(t->value[d]);
    }
    return good ? best : -1;
}

/* Each device shall reach the others' memory. */
static bool mirt__cu_reach(const mirt__cu_group *group, const char *why) {
    for (int a = 0; a < group->count; a++) {
        mirt__cu *cu = group->member[a];
        mirt__cu_enter(cu);
        for (int b = 0; b < group->count; b++) {
            const int other = group->member[b]->index;
            int can = 0;
            if (other == cu->index) continue;
            if (!mirt__cu_try(cu, cudaDeviceCanAccessPeer(&can, cu->index, other), "asking for another GPU's memory"))
                return false;
            if (!can)
                return mirt__cu_fail(cu, MIRT_E_DEVICE, "it cannot reach the memory of gpu:%d, and %s: %s", other, why,
                                     MIRT__CU_NCCL ? "use one of the two, or mirrored weights on different GPUs"
                                                   : "build with NCCL (nvcc ... -lnccl), or use one GPU");
            const cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
            if (error == cudaErrorPeerAccessAlreadyEnabled) (void)cudaGetLastError();
            else if (!mirt__cu_try(cu, error, "reaching another GPU's memory")) return false;
        }
    }
    return true;
}

#if MIRT__CU_NCCL
/* What to try when devices do not meet. Containers have little of what NCCL shares among its threads where GPUs do not
   reach each other. */
static void mirt__cu_advise(mirt__cu *cu) {
    struct statvfs s;
    const size_t used = strlen(cu->error), left = sizeof cu->error - used;
    const mirt__cu_group *group = cu->group;
    const bool one_host = group->all == group->count || group->per_host == group->all;
    const double wanted = 40.0 * (group->per_host ? group->per_host : group->count),
                 free_mb = statvfs("/dev/shm", &s) == 0 ? (double)s.f_bavail * (double)s.f_frsize / 1e6 : wanted;
    const int said = snprintf(cu->error + used, left, "; NCCL_DEBUG=INFO tells more; try %sNCCL_P2P_DISABLE=1",
                              one_host ? "NCCL_SOCKET_IFNAME=lo, or " : "");
    if (said < 0 || (size_t)said >= left || free_mb >= wanted) return;
    snprintf(cu->error + used + said, left - (size_t)said,
             "; /dev/shm has %.0f MB free, which may be too little (docker run --shm-size=1g)", free_mb);
}

/* Communicators that do not block can be aborted at any time. Of the versions of NCCL, 2.26 was seen to hang with
   such. */
static bool mirt__cu_join_nccl(mirt__cu_group *group, const mirt__joining *join, int *version) {
    mirt__cu *first = group->member[0];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    if (!mirt__cu_nccl(first, ncclGetVersion(version), "asking its version")) return false;
    if (*version / 10000 != NCCL_MAJOR || *version < NCCL_VERSION_CODE)
        return mirt__cu_fail(
            first, MIRT_E_DEVICE,
            "the program was built with nccl.h of NCCL %d.%d.%d, and runs with the library of %d.%d.%d: "
            "build and run with the same",
            NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, *version / 10000, *version / 100 % 100, *version % 100);
    config.blocking = *version / 100 == 226;
    if (group->collective == MIRT_NCCL) { /* the same sums in each run */
        setenv("NCCL_ALGO", "Ring", 0);
        setenv("NCCL_PROTO", "Simple", 0);
        setenv("NCCL_NVLS_ENABLE", "0", 0);
    }
    group->joining = true;
    if (group->first == 0 && !mirt__cu_nccl(first, ncclGetUniqueId(&id), "beginning")) return false;
    group->unheard = join->hear_first && !join->hear_first(join->user, &id, sizeof id);
    if (group->unheard) return false;
    if (!mirt__cu_nccl_start(first)) return false;
    bool good = true;
    for (int d = 0; d < group->count && good; d++) {
        good = mirt__cu_enter(group->member[d]) &&
               mirt__cu_nccl(group->member[d],
                             ncclCommInitRankConfig(&group->comm[d], group->all, id, group->first + d, &config),
                             "joining");
    }
    good = mirt__cu_all_end(group, "joining");
    for (int d = 0; d < group->count && good; d++) {
        mirt__cu *cu = group->member[d];
        good = mirt__cu_enter(cu) && mirt__cu_take_all(cu) && mirt__cu_load_late(cu) &&
               mirt__cu_try(cu, cudaMalloc((void **)&group->inbox[d], MIRT__CU_INBOX * sizeof(float)),
                            "taking memory for exchanges");
    }
    return good;
}
#endif

static bool mirt__cu_join_group(mirt__cu_group *group, mirt__joining *join) {
    mirt__cu_trial trial;
    mirt__cu *culprit;
    bool twice = false;
    memset(&trial, 0, sizeof trial);
    trial.group = group;
    for (int a = 0; a < group->count; a++) {
        for (int b = 0; b < a; b++) twice = twice || group->member[a]->index == group->member[b]->index;
    }
#if MIRT__CU_NCCL
    const char *why = twice          ? "a GPU is named twice"
                      : join->shares ? "the weights are in one place"
                                     : "MIRT_CUDA_NCCL is 0";
    trial.direct = twice || join->shares || mirt__cu_switched_off("MIRT_CUDA_NCCL");
#else
    const char *why = "the program is built without NCCL";
    trial.direct = true;
#endif
    join->able.direct = trial.direct;
    if (trial.direct && (join->collective == MIRT_NCCL || group->all > group->count))
        return mirt__cu_fail(group->member[0], MIRT_E_INVALID, "NCCL cannot join these devices: %s", why);
    for (int d = 0; d < group->count; d++) {
        mirt__cu *cu = group->member[d];
        if (!mirt__cu_enter(cu) || !mirt__cu_event(cu, &group->ready[d]) || !mirt__cu_event(cu, &group->done[d]))
            return false;
    }
    int version = 0;
#if MIRT__CU_NCCL
    if (!trial.direct && !mirt__cu_join_nccl(group, join, &version)) return false;
#endif
    if (trial.direct && !mirt__cu_reach(group, why)) return false;
    const double took = mirt__cu_try_out(&trial);
    if (took < 0 || !mirt__cu_all_well(group, &culprit)) return false;
    const double megabytes = (double)MIRT__CU_TRIAL * sizeof(float) / 1e6, speed = megabytes / 1e3 / took;
    if (trial.direct) {
        snprintf(join->how, 256, "each reads the others' memory, as %s; %.3g GB/s for sums of %.3g MB", why, speed,
                 megabytes);
    } else {
        snprintf(join->how, 256, "NCCL %d.%d.%d, %s; %.3g GB/s for sums of %.3g MB", version / 10000,
                 version / 100 % 100, version % 100,
                 join->collective == MIRT_NCCL ? "its all-reduce"
                                               : "chunks sent to all, added in the fixed order, sent back",
                 speed, megabytes);
    }
    return true;
}

/* An H200 moves 4.3 TB/s, of which kernels reach 0.8. To normalize 4096 elements of a tile takes 550 instructions of
   each of 4 warps; the GPU issues 6e11 in a second. The same on all GPUs, so that results do not depend on which it
   is. */
static void mirt__cu_storage_costs(mirt__storage_costs *costs) {
    const char *given = getenv("MIRT_CUDA_STORE");
    costs->pass = costs->read = 0.29e-3;
    costs->again = 4 * 550 / 4096.0 / 6e11 * 1e9;
    costs->columns = 128;
    if (given && strcmp(given, "none") == 0) costs->read = costs->again = 0;
    if (given && strcmp(given, "all") == 0) costs->again = 1;
}

static bool mirt__cu_join(mirt__joining *join) {
    mirt__cu *culprit = NULL;
    join->able.direct = join->all == join->count;
    for (int d = 0; d < join->count; d++) join->handle[d]->limit = join->limit;
    join->able.queues = join->able.float16 = true;
    mirt__cu_storage_costs(&join->able.costs);
    join->how[0] = 0;
    if (join->all < 2) return true;
    const mirt__host *host = join->handle[0]->host;
    if (join->all > MIRT__CU_MEMBERS)
        return host->fail(MIRT_E_INVALID, "%d devices; at most %d can meet", join->all, MIRT__CU_MEMBERS), false;
    mirt__cu_group *group = static_cast<mirt__cu_group *>(host->calloc(1, sizeof *group));
    if (!group) return false;
    group->host = host;
    group->count = group->there = join->count;
    group->first = join->first;
    group->all = join->all;
    group->per_host = join->per_host;
    group->collective = join->collective;
    for (int d = 0; d < join->count; d++) {
        group->member[d] = join->handle[d];
        join->handle[d]->group = group;
        join->handle[d]->rank = d;
    }
    if (mirt__cu_join_group(group, join)) return true;
    for (int d = 0; d < join->count; d++) mirt__cu_group_abort(group, d);
#if MIRT__CU_NCCL
    if (group->unheard) return false;
#endif
    if (mirt__cu_all_well(group, &culprit)) mirt__cu_fail(culprit, MIRT_E_DEVICE, "the devices could not be joined");
#if MIRT__CU_NCCL
    if (group->joining && culprit->status != MIRT_E_NOMEM) mirt__cu_advise(culprit);
#endif
    mirt__cu_tell(culprit);
    return false;
}
