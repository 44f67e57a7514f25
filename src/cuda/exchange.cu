/* Several devices meet: by NCCL, or each in the others' memory. */
#include "math.cuh"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#if defined(__has_include) && !defined(MIRRORTRAIN_NO_NCCL)
#if __has_include(<nccl.h>)
#include <nccl.h>
#define MIRT__CU_NCCL 1
#endif
#endif
#ifndef MIRT__CU_NCCL
#define MIRT__CU_NCCL 0
#endif

#define MIRT__CU_MEMBERS 32
#ifdef MIRT_SIM
#define MIRT__CU_INBOX \
    ((int64_t)1 << 13) /* numbers of other devices that one has at a time: in reality those of most buckets */
#define MIRT__CU_TRIAL ((int64_t)1 << 12)
#else
#define MIRT__CU_INBOX ((int64_t)8 << 20)
#define MIRT__CU_TRIAL ((int64_t)1 << 22)
#endif

struct mirt__cu_group {
    const mirt__host *host;
    int count, there; /* members, and those that have not left */
    mirt_collective collective;
    mirt__cu *member[MIRT__CU_MEMBERS];
    float *inbox[MIRT__CU_MEMBERS];
    cudaEvent_t ready[MIRT__CU_MEMBERS], done[MIRT__CU_MEMBERS]; /* what an exchange reads; the exchange */
    bool under_way[MIRT__CU_MEMBERS];
    int broken;    /* 1: a member is writing the reason; 2: the group can no longer be used */
    int broken_by;
    char why[300];
#if MIRT__CU_NCCL
    ncclComm_t comm[MIRT__CU_MEMBERS];
    bool joining; /* what fails is NCCL's, or of the way that it found */
#endif
};

/* >>failures */

/* The others shall not wait for this device. */
static void mirt__cu_group_break(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    int whole = 0;
    if (!__atomic_compare_exchange_n(&group->broken, &whole, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
    group->broken_by = cu->rank;
    snprintf(group->why, sizeof group->why, "%.299s", cu->error);
    __atomic_store_n(&group->broken, 2, __ATOMIC_RELEASE);
}

/* What is under way of a rank ends, be it joining: even memory could not be freed before. By its own thread, or when it
   has none any more; another device may be the thread's afterwards. */
static void mirt__cu_group_abort(mirt__cu_group *group, int rank) {
#if MIRT__CU_NCCL
    ncclComm_t comm = __atomic_exchange_n(&group->comm[rank], static_cast<ncclComm_t>(NULL), __ATOMIC_ACQ_REL);
    if (comm) (void)ncclCommAbort(comm);
#else
    (void)group, (void)rank;
#endif
}

/* After a failure of a device. */
static void mirt__cu_group_fail(mirt__cu *cu) {
#if MIRT__CU_NCCL
    if (!cu->group || !cu->group->comm[cu->rank]) return;
    mirt__cu_group_break(cu);
    mirt__cu_group_abort(cu->group, cu->rank);
    mirt__cu_enter(cu);
    cu->lost = true;
#else
    (void)cu;
#endif
}

static bool mirt__cu_group_well(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    if (!group || cu->lost) return !cu->lost;
#if MIRT__CU_NCCL
    ncclResult_t state = ncclSuccess;
    ncclComm_t comm = group->comm[cu->rank];
    if (!comm) return true;
    if (ncclCommGetAsyncError(comm, &state) == ncclSuccess && state != ncclSuccess && state != ncclInProgress) {
        mirt__cu_fail(cu, MIRT_E_DEVICE, "NCCL failed on rank %d: %s (%s); resume from the last checkpoint", cu->rank,
                      ncclGetErrorString(state), ncclGetLastError(comm));
        mirt__cu_group_break(cu);
    } else if (__atomic_load_n(&group->broken, __ATOMIC_ACQUIRE) == 2) {
        mirt__cu_fail(cu, MIRT_E_DEVICE, "rank %d, which it waits for, failed: %.250s", group->broken_by, group->why);
    } else {
        return true;
    }
    cu->lost = true;
    mirt__cu_group_abort(group, cu->rank);
    mirt__cu_enter(cu);
    return false;
#else
    return true;
#endif
}

/* Freeing waits for the work of all: what waits for others in NCCL ends first, and none is freed of where one of them
   has no end. */
static bool mirt__cu_frees(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    bool stuck = false;
    for (int d = 0; group && d < group->count; d++) {
        if (group->member[d] && group->member[d]->lost) mirt__cu_group_abort(group, d);
    }
    mirt__cu_enter(cu);
    for (int d = 0; group && d < group->count; d++)
        stuck = (group->member[d] && !mirt__cu_idle(group->member[d])) || stuck;
    stuck = !mirt__cu_idle(cu) || stuck;
    for (int d = 0; group && stuck && d < group->count; d++) {
        if (group->member[d]) group->member[d]->stuck = true;
    }
    return !stuck;
}

static void mirt__cu_group_leave(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    if (!group) return (void)mirt__cu_frees(cu);
    if (cu->status != MIRT_OK) mirt__cu_group_break(cu);
    for (int d = 0; d < group->count; d++) {
        /* all is done: destroying would wait for the others, which may be closed by this thread later; or else freeing
           may wait for theirs */
        if (d == cu->rank || __atomic_load_n(&group->broken, __ATOMIC_ACQUIRE)) mirt__cu_group_abort(group, d);
    }
    mirt__cu_enter(cu);
    if (group->inbox[cu->rank] && mirt__cu_frees(cu)) (void)cudaFree(group->inbox[cu->rank]);
    if (group->ready[cu->rank]) (void)cudaEventDestroy(group->ready[cu->rank]);
    if (group->done[cu->rank]) (void)cudaEventDestroy(group->done[cu->rank]);
    (void)mirt__cu_frees(cu);
    group->member[cu->rank] = NULL;
    cu->group = NULL;
    if (__atomic_sub_fetch(&group->there, 1, __ATOMIC_ACQ_REL) == 0) group->host->free(group);
}

/* >>NCCL */

#if MIRT__CU_NCCL
/* Exchanges run beside the work, after what was enqueued before. */
static bool mirt__cu_exchange_begin(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    return mirt__cu_try(cu, cudaEventRecord(group->ready[cu->rank], cu->stream), "marking an exchange") &&
           mirt__cu_try(cu, cudaStreamWaitEvent(cu->exchanges, group->ready[cu->rank], 0), "waiting for an exchange");
}
static void mirt__cu_exchange_end(mirt__cu *cu) {
    if (cu->status == MIRT_OK)
        cu->group->under_way[cu->rank] = mirt__cu_try(cu, cudaEventRecord(cu->group->done[cu->rank], cu->exchanges),
                                                      "marking an exchange");
}

static bool mirt__cu_nccl(mirt__cu *cu, ncclResult_t result, const char *what) {
    ncclComm_t comm = cu->group->comm[cu->rank];
    if (result == ncclSuccess || result == ncclInProgress) return true;
    mirt__cu_fail(cu, MIRT_E_DEVICE, "NCCL failed on rank %d, %s: %s (%s)", cu->rank, what, ncclGetErrorString(result),
                  comm ? ncclGetLastError(comm) : "");
    cu->lost = true;
    mirt__cu_group_break(cu);
    return false;
}

/* Until what was asked of a communicator has been enqueued. NCCL does that in a thread of its own, unless
   NCCL_COMM_BLOCKING=1 lets calls block. */
static bool mirt__cu_nccl_settled(mirt__cu *cu, const char *what) {
    mirt__cu_patience wait = mirt__cu_begin(cu);
    for (;;) {
        ncclResult_t state = ncclSuccess;
        if (!mirt__cu_nccl(cu, ncclCommGetAsyncError(cu->group->comm[cu->rank], &state), what) ||
            !mirt__cu_nccl(cu, state, what))
            return false;
        if (state == ncclSuccess) return true;
        if (__atomic_load_n(&cu->group->broken, __ATOMIC_ACQUIRE) == 2) return mirt__cu_group_well(cu);
        const double passed = mirt__cu_passed(cu, &wait);
        if (cu->limit > 0 && passed > cu->limit) {
            mirt__cu_fail(cu, MIRT_E_TIMEOUT, "NCCL, rank %d of %d, %s: nothing came from the others in %.3g s",
                          cu->rank, cu->group->count, what, cu->limit);
            cu->lost = true;
            mirt__cu_group_break(cu);
            return false;
        }
        if (passed > MIRT__CU_SHORT) mirt__cu_nap();
        else sched_yield();
    }
}

static bool mirt__cu_nccl_start(mirt__cu *cu) { return mirt__cu_nccl(cu, ncclGroupStart(), "beginning"); }
static bool mirt__cu_nccl_end(mirt__cu *cu, const char *what) {
    const bool ended = mirt__cu_nccl(cu, ncclGroupEnd(), what);
    return ended && cu->status == MIRT_OK && mirt__cu_nccl_settled(cu, what);
}

/* Of `length` elements the part that a device adds up. */
static int64_t mirt__cu_chunk(const mirt__cu_group *group, int64_t length, int device, int64_t *first) {
    const int64_t lines = mirt__cu_ceil(length, 16);
    if (group->collective == MIRT_REDUCE_TO_ONE_DEVICE) {
        *first = device ? length : 0;
        return device ? 0 : length;
    }
    *first = lines * device / group->count * 16;
    const int64_t end = lines * (device + 1) / group->count * 16;
    return (end < length ? end : length) - *first;
}

/* Every part's chunk goes to the device that adds it up; those of other devices land in the inbox, one after the
   other. */
static void mirt__cu_tree_send(mirt__cu *cu, const mirt__reduction *args, int64_t at, int64_t length) {
    mirt__cu_group *group = cu->group;
    ncclComm_t comm = group->comm[cu->rank];
    int64_t first, own = mirt__cu_chunk(group, length, cu->rank, &first);
    float *inbox = group->inbox[cu->rank];
    for (int p = 0; p < args->parts && cu->status == MIRT_OK; p++) {
        const int from = args->part_device[p];
        for (int to = 0; from == cu->rank && to < group->count; to++) {
            const int64_t count = mirt__cu_chunk(group, length, to, &first);
            if (to != cu->rank && count > 0)
                mirt__cu_nccl(cu,
                              ncclSend(args->part[p] + at + first, (size_t)count, ncclFloat, to, comm, cu->exchanges),
                              "sending");
        }
        if (from == cu->rank || own <= 0) continue;
        mirt__cu_nccl(cu, ncclRecv(inbox, (size_t)own, ncclFloat, from, comm, cu->exchanges), "receiving");
        inbox += (own + 15) / 16 * 16;
    }
}

static void mirt__cu_tree_add(mirt__cu *cu, const mirt__reduction *args, int64_t at, int64_t length) {
    mirt__cu_group *group = cu->group;
    mirt__cu_parts parts;
    int64_t first, own = mirt__cu_chunk(group, length, cu->rank, &first);
    float *inbox = group->inbox[cu->rank];
    mirt__cu_parts_take(&parts, args->parts, args->part, args->add);
    for (int p = 0; p < args->parts; p++) {
        if (args->part_device[p] == cu->rank) {
            parts.part[p] += at + first;
        } else {
            parts.part[p] = inbox;
            inbox += (own + 15) / 16 * 16;
        }
    }
    mirt__cu_sum_parts(cu, cu->exchanges, parts, args->sum[args->device] + at + first, own);
}

/* Everybody's bytes [begin[d], begin[d + 1]) at base. */
static void mirt__cu_spread(mirt__cu *cu, char *base, const size_t *begin) {
    const mirt__cu_group *group = cu->group;
    ncclComm_t comm = group->comm[cu->rank];
    const size_t own = begin[cu->rank + 1] - begin[cu->rank];
    for (int d = 0; d < group->count && cu->status == MIRT_OK; d++) {
        const size_t theirs = begin[d + 1] - begin[d];
        if (d == cu->rank) continue;
        if (own) mirt__cu_nccl(cu, ncclSend(base + begin[cu->rank], own, ncclChar, d, comm, cu->exchanges), "sending");
        if (theirs) mirt__cu_nccl(cu, ncclRecv(base + begin[d], theirs, ncclChar, d, comm, cu->exchanges), "receiving");
    }
}
static void mirt__cu_tree_spread(mirt__cu *cu, const mirt__reduction *args, int64_t at, int64_t length) {
    size_t begin[MIRT__CU_MEMBERS + 1];
    int64_t first;
    for (int d = 0; d < cu->group->count; d++) {
        mirt__cu_chunk(cu->group, length, d, &first);
        begin[d] = (size_t)first * sizeof(float);
    }
    begin[cu->group->count] = (size_t)length * sizeof(float);
    mirt__cu_spread(cu, reinterpret_cast<char *>(args->sum[args->device] + at), begin);
}

/* Elements that the inbox has room for at a time; the same on all devices. */
static int64_t mirt__cu_tree_length(const mirt__cu_group *group, int parts) {
    const int64_t chunk = MIRT__CU_INBOX / parts / 16 * 16 - 16;
    return group->collective == MIRT_REDUCE_TO_ONE_DEVICE ? chunk : chunk * group->count;
}

static void mirt__cu_tree(mirt__cu *cu, const mirt__reduction *args) {
    const int64_t most = mirt__cu_tree_length(cu->group, args->parts);
    for (int64_t at = args->begin; at < args->end && cu->status == MIRT_OK; at += most) {
        const int64_t length = args->end - at < most ? args->end - at : most;
        if (!mirt__cu_nccl_start(cu)) return;
        mirt__cu_tree_send(cu, args, at, length);
        if (!mirt__cu_nccl_end(cu, "sending parts")) return;
        mirt__cu_tree_add(cu, args, at, length);
        if (!mirt__cu_nccl_start(cu)) return;
        mirt__cu_tree_spread(cu, args, at, length);
        if (!mirt__cu_nccl_end(cu, "spreading sums")) return;
    }
}

/* NCCL's own order of additions; the first bucket is small, so that the rest goes beside something. */
static void mirt__cu_buckets(mirt__cu *cu, const mirt__reduction *args) {
    ncclComm_t comm = cu->group->comm[cu->rank];
    const mirt__real *part = NULL;
    int64_t bucket = (int64_t)1 << 18;
    for (int p = 0; p < args->parts; p++) {
        if (args->part_device[p] == cu->rank) part = args->part[p];
    }
    if (!part && args->end > args->begin) { /* it had no rows */
        part = args->sum[args->device];
        if (!mirt__cu_try(cu,
                          cudaMemsetAsync(args->sum[args->device] + args->begin, 0,
                                          (size_t)(args->end - args->begin) * sizeof *part, cu->exchanges),
                          "clearing gradients"))
            return;
    }
    for (int64_t at = args->begin; at < args->end && cu->status == MIRT_OK; at += bucket, bucket = (int64_t)25 << 18) {
        const int64_t count = args->end - at < bucket ? args->end - at : bucket;
        if (!mirt__cu_nccl_start(cu)) return;
        mirt__cu_nccl(cu,
                      ncclAllReduce(part + at, args->sum[args->device] + at, (size_t)count, ncclFloat, ncclSum, comm,
                                    cu->exchanges),
                      "adding");
        mirt__cu_nccl_end(cu, "adding");
    }
}
#endif

/* Whether something that all devices do is to be done. If not since this one failed, the others shall not wait for
   it. */
static bool mirt__cu_meets(mirt__cu *cu) {
    const bool now = mirt__cu_outside(cu);
    if (cu->group && cu->status != MIRT_OK) mirt__cu_group_break(cu);
    return now;
}

#if MIRT__CU_NCCL
static void mirt__cu_exchange(mirt__cu *cu, const mirt__reduction *args) {
    if (!mirt__cu_meets(cu)) return;
    if (mirt__cu_group_well(cu) && mirt__cu_exchange_begin(cu)) {
        if (cu->group->collective == MIRT_NCCL) mirt__cu_buckets(cu, args);
        else mirt__cu_tree(cu, args);
        mirt__cu_exchange_end(cu);
    }
    mirt__cu_inside(cu);
}
#endif

/* What is enqueued next follows the exchanges. */
static void mirt__cu_exchange_join(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    if (!group->under_way[cu->rank] || cu->status != MIRT_OK) return;
    group->under_way[cu->rank] = false;
    mirt__cu_try(cu, cudaStreamWaitEvent(cu->stream, group->done[cu->rank], 0), "waiting for an exchange");
}

static void mirt__cu_exchanged(mirt__handle *cu) {
    if (!cu->group || !mirt__cu_meets(cu)) return;
    mirt__cu_exchange_join(cu);
    mirt__cu_inside(cu);
}

static void mirt__cu_gather_now(mirt__cu *cu, char *const *base, const size_t *begin, int devices) {
    const int device = cu->rank;
#if MIRT__CU_NCCL
    if (cu->group && cu->group->comm[cu->rank]) {
        if (!mirt__cu_group_well(cu) || !mirt__cu_exchange_begin(cu) || !mirt__cu_nccl_start(cu)) return;
        mirt__cu_spread(cu, base[device], begin);
        mirt__cu_nccl_end(cu, "gathering");
        mirt__cu_exchange_end(cu);
        mirt__cu_exchange_join(cu);
        return;
    }
#endif
    for (int d = 0; d < devices; d++) {
        const size_t bytes = begin[device + 1] - begin[device];
        if (d == device || base[d] == base[device] || !bytes) continue;
        mirt__cu_try(cu,
                     cudaMemcpyAsync(base[d] + begin[device], base[device] + begin[device], bytes, cudaMemcpyDefault,
                                     cu->stream),
                     "gathering");
    }
}

static void mirt__cu_gather(mirt__handle *cu, char *const *base, const size_t *begin, int devices) {
    if (!mirt__cu_meets(cu)) return;
    mirt__cu_gather_now(cu, base, begin, devices);
    mirt__cu_inside(cu);
}

/* >>joining */

/* What the trial adds up: whole numbers, whose sums are exact in any order. */
static __global__ void __launch_bounds__(256) mirt__cu_trial_kernel(float *to, int64_t count, float factor) {
    MIRT__CU_PIECES(i, left, count, 1) to[i] = (float)(i % 1021) * factor;
}

/* One thread does the work of all devices for once. `share` of each: the sums of what all have. */
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
            mirt__cu_enter(cu);
            if (whole && stage == 0) {
                mirt__cu_nccl(cu,
                              ncclAllReduce(t->value[d] + at, t->sum[d] + at, (size_t)length, ncclFloat, ncclSum,
                                            group->comm[d], cu->exchanges),
                              "adding");
            } else if (stage == 0) {
                mirt__cu_tree_send(cu, &t->exchange[d], at, length);
            } else if (stage == 1) {
                mirt__cu_tree_add(cu, &t->exchange[d], at, length);
            } else {
                mirt__cu_tree_spread(cu, &t->exchange[d], at, length);
            }
        }
        if (stage != 1 && !mirt__cu_all_end(group, "trying it")) return false;
    }
    return true;
}

static bool mirt__cu_trial_nccl(mirt__cu_trial *t, bool first) {
    const int64_t most = mirt__cu_tree_length(t->group, t->group->count);
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
    const int64_t all = (int64_t)t->group->count * (t->group->count + 1) / 2, from = MIRT__CU_TRIAL - SAMPLE;
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
        const float factor = (float)(d + 1);
        MIRT_LAUNCH_ON(cu, cu->exchanges, mirt__cu_trial_kernel, mirt__cu_blocks(MIRT__CU_TRIAL, 256), 256, 0, value,
                       MIRT__CU_TRIAL, factor);
    }
    good = good && mirt__cu_all_settled(group);
    for (int d = 0; d < group->count && good; d++) {
        mirt__reduction *x = &t->exchange[d];
        x->end = MIRT__CU_TRIAL;
        x->parts = group->count;
        x->device = d;
        x->sum[d] = t->sum[d];
        for (int p = 0; p < group->count; p++) {
            x->part_device[p] = p;
            x->part[p] = t->value[p];
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
    const double wanted = 40.0 * cu->group->count,
                 free_mb = statvfs("/dev/shm", &s) == 0 ? (double)s.f_bavail * (double)s.f_frsize / 1e6 : wanted;
    const int said = snprintf(cu->error + used, left,
                              "; NCCL_DEBUG=INFO tells more; try NCCL_SOCKET_IFNAME=lo, or NCCL_P2P_DISABLE=1");
    if (said < 0 || (size_t)said >= left || free_mb >= wanted) return;
    snprintf(cu->error + used + said, left - (size_t)said,
             "; /dev/shm has %.0f MB free, which may be too little (docker run --shm-size=1g)", free_mb);
}

/* Communicators that do not block can be given up at any time. Of the versions of NCCL, 2.26 was seen to hang with
   such. */
static bool mirt__cu_join_nccl(mirt__cu_group *group, int *version) {
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
    if (!mirt__cu_nccl(first, ncclGetUniqueId(&id), "beginning") || !mirt__cu_nccl_start(first)) return false;
    bool good = true;
    for (int d = 0; d < group->count && good; d++) {
        good = mirt__cu_enter(group->member[d]) &&
               mirt__cu_nccl(group->member[d], ncclCommInitRankConfig(&group->comm[d], group->count, id, d, &config),
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
    if (trial.direct && join->collective == MIRT_NCCL)
        return mirt__cu_fail(group->member[0], MIRT_E_INVALID, "NCCL cannot join these devices: %s", why);
    for (int d = 0; d < group->count; d++) {
        mirt__cu *cu = group->member[d];
        if (!mirt__cu_enter(cu) || !mirt__cu_event(cu, &group->ready[d]) || !mirt__cu_event(cu, &group->done[d]))
            return false;
    }
    int version = 0;
#if MIRT__CU_NCCL
    if (!trial.direct && !mirt__cu_join_nccl(group, &version)) return false;
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
    join->able.direct = true;
    for (int d = 0; d < join->count; d++) join->handle[d]->limit = join->limit;
    join->able.queues = join->able.float16 = true;
    mirt__cu_storage_costs(&join->able.costs);
    join->how[0] = 0;
    if (join->count < 2) return true;
    const mirt__host *host = join->handle[0]->host;
    if (join->count > MIRT__CU_MEMBERS)
        return host->fail(MIRT_E_INVALID, "%d devices; at most %d can meet", join->count, MIRT__CU_MEMBERS), false;
    mirt__cu_group *group = static_cast<mirt__cu_group *>(host->calloc(1, sizeof *group));
    if (!group) return false;
    group->host = host;
    group->count = group->there = join->count;
    group->collective = join->collective;
    for (int d = 0; d < join->count; d++) {
        group->member[d] = join->handle[d];
        join->handle[d]->group = group;
        join->handle[d]->rank = d;
    }
    if (mirt__cu_join_group(group, join)) return true;
    for (int d = 0; d < join->count; d++) mirt__cu_group_abort(group, d);
    if (mirt__cu_all_well(group, &culprit)) mirt__cu_fail(culprit, MIRT_E_DEVICE, "the devices could not be joined");
#if MIRT__CU_NCCL
    if (group->joining && culprit->status != MIRT_E_NOMEM) mirt__cu_advise(culprit);
#endif
    mirt__cu_tell(culprit);
    return false;
}
