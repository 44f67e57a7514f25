/* Several devices exchange gradients: by NCCL, or each in the others' memory. */
#include "math.cuh"

#include <sched.h>
#include <stdio.h>

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

/* The devices of this process, `rank` of a device counts them; with those of other processes they are ranks of NCCL,
   numbered in the order of processes. */
struct mirt__cu_group {
    const mirt__host *host;
    int count, there; /* members, and those that have not left */
    int first, all;   /* the first member's number among all ranks, and how many they are */
    int per_host;     /* as mirt__joining has it */
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
    bool unheard; /* the library's messages failed, and it has said why */
#endif
};

static int mirt__cu_rank_of(const mirt__cu *cu) { return cu->group->first + cu->rank; }

/* >>failures */

/* The others shall not wait for this device. */
static void mirt__cu_group_break(mirt__cu *cu) {
    mirt__cu_group *group = cu->group;
    int whole = 0;
    if (!__atomic_compare_exchange_n(&group->broken, &whole, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
    group->broken_by = mirt__cu_rank_of(cu);
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
        mirt__cu_fail(cu, MIRT_E_DEVICE, "NCCL failed on rank %d: %s (%s); resume from the last checkpoint",
                      mirt__cu_rank_of(cu), ncclGetErrorString(state), ncclGetLastError(comm));
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
    mirt__cu_fail(cu, MIRT_E_DEVICE, "NCCL failed on rank %d, %s: %s (%s)", mirt__cu_rank_of(cu), what,
                  ncclGetErrorString(result), comm ? ncclGetLastError(comm) : "");
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
                          mirt__cu_rank_of(cu), cu->group->all, what, cu->limit);
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

/* Ranks first, first + step, ..., which add up something, each a chunk of it, and then have all of it. */
typedef struct mirt__cu_circle {
    int first, step, count;
} mirt__cu_circle;

/* What they add up: parts in memory of ranks of the circle, and the additions that make one of them. */
typedef struct mirt__cu_sum {
    mirt__cu_circle circle;
    int place; /* of this rank in the circle */
    int parts;
    int holder[MIRT__MAX_PARTS]; /* a part's place, */
    const mirt__real *part[MIRT__MAX_PARTS]; /* and its address, if this rank has it */
    mirt__addition add[MIRT__MAX_PARTS];
    float *sum;
} mirt__cu_sum;

/* Of `length` elements those that the rank at a place adds up. */
static int64_t mirt__cu_chunk(const mirt__cu_group *group, const mirt__cu_circle *circle, int64_t length, int place,
                              int64_t *first) {
    const int64_t lines = mirt__cu_ceil(length, 16);
    if (group->collective == MIRT_REDUCE_TO_ONE_DEVICE) {
        *first = place ? length : 0;
        return place ? 0 : length;
    }
    *first = lines * place / circle->count * 16;
    const int64_t end = lines * (place + 1) / circle->count * 16;
    return (end < length ? end : length) - *first;
}

/* Every part's chunk goes to the rank that adds it up; those of other ranks land in the inbox, one after the other. */
static void mirt__cu_tree_send(mirt__cu *cu, const mirt__cu_sum *s, int64_t at, int64_t length) {
    mirt__cu_group *group = cu->group;
    const mirt__cu_circle *c = &s->circle;
    ncclComm_t comm = group->comm[cu->rank];
    int64_t first, own = mirt__cu_chunk(group, c, length, s->place, &first);
    float *inbox = group->inbox[cu->rank];
    for (int p = 0; p < s->parts && cu->status == MIRT_OK; p++) {
        const int from = s->holder[p];
        for (int to = 0; from == s->place && to < c->count; to++) {
            const int64_t count = mirt__cu_chunk(group, c, length, to, &first);
            if (to != s->place && count > 0)
                mirt__cu_nccl(cu,
                              ncclSend(s->part[p] + at + first, (size_t)count, ncclFloat, c->first + to * c->step, comm,
                                       cu->exchanges),
                              "sending");
        }
        if (from == s->place || own <= 0) continue;
        mirt__cu_nccl(
            cu, ncclRecv(inbox, (size_t)own, ncclFloat, c->first + from * c->step, comm, cu->exchanges), "receiving");
        inbox += (own + 15) / 16 * 16;
    }
}

static void mirt__cu_tree_add(mirt__cu *cu, const mirt__cu_sum *s, int64_t at, int64_t length) {
    mirt__cu_group *group = cu->group;
    mirt__cu_parts parts;
    int64_t first, own = mirt__cu_chunk(group, &s->circle, length, s->place, &first);
    float *inbox = group->inbox[cu->rank];
    mirt__cu_parts_take(&parts, s->parts, s->part, s->add);
    for (int p = 0; p < s->parts; p++) {
        if (s->holder[p] == s->place) {
            parts.part[p] += at + first;
        } else {
            parts.part[p] = inbox;
            inbox += (own + 15) / 16 * 16;
        }
    }
    mirt__cu_sum_parts(cu, cu->exchanges, parts, s->sum + at + first, own);
}

/* Everybody's bytes [begin[i], begin[i + 1]) at base, i: a place in the circle. */
static void mirt__cu_spread(mirt__cu *cu, const mirt__cu_circle *c, int place, char *base, const size_t *begin) {
    ncclComm_t comm = cu->group->comm[cu->rank];
    const size_t own = begin[place + 1] - begin[place];
    for (int i = 0; i < c->count && cu->status == MIRT_OK; i++) {
        const size_t theirs = begin[i + 1] - begin[i];
        const int rank = c->first + i * c->step;
        if (i == place) continue;
        if (own) mirt__cu_nccl(cu, ncclSend(base + begin[place], own, ncclChar, rank, comm, cu->exchanges), "sending");
        if (theirs)
            mirt__cu_nccl(cu, ncclRecv(base + begin[i], theirs, ncclChar, rank, comm, cu->exchanges), "receiving");
    }
}
static void mirt__cu_tree_spread(mirt__cu *cu, const mirt__cu_sum *s, int64_t at, int64_t length) {
    size_t begin[MIRT__CU_MEMBERS + 1];
    int64_t first;
    for (int i = 0; i < s->circle.count; i++) {
        mirt__cu_chunk(cu->group, &s->circle, length, i, &first);
        begin[i] = (size_t)first * sizeof(float);
    }
    begin[s->circle.count] = (size_t)length * sizeof(float);
    mirt__cu_spread(cu, &s->circle, s->place, reinterpret_cast<char *>(s->sum + at), begin);
}

static mirt__cu_circle mirt__cu_everyone(const mirt__cu_group *group) {
    const mirt__cu_circle all = {0, 1, group->all};
    return all;
}

/* Of all ranks. */
static void mirt__cu_sum_of(const mirt__cu *cu, const mirt__reduction *args, mirt__cu_sum *s) {
    s->circle = mirt__cu_everyone(cu->group);
    s->place = mirt__cu_rank_of(cu);
    s->parts = args->parts;
    memcpy(s->holder, args->part_device, sizeof s->holder);
    memcpy(s->part, args->part, sizeof s->part);
    memcpy(s->add, args->add, sizeof s->add);
    s->sum = args->sum[args->device];
}

/* The same in two sums, first within hosts, and then of what ranks with the same place on their hosts have got: less
   goes between hosts. The additions are the same, and so are the bits. False: some host's parts do not become one
   before they are added to another's. */
static bool mirt__cu_sums_of_hosts(const mirt__cu *cu, const mirt__cu_sum *all, mirt__cu_sum *within,
                                   mirt__cu_sum *between) {
    const int size = cu->group->per_host;
    int left[MIRT__CU_MEMBERS], host_of[MIRT__MAX_PARTS], index[MIRT__MAX_PARTS], added = 0;
    bool met[MIRT__CU_MEMBERS]; /* its parts have been added to another host's, or those to its */
    if (size < 2 || size == cu->group->all) return false;
    const int hosts = cu->group->all / size, host = all->place / size;
    memset(left, 0, sizeof left);
    memset(met, 0, sizeof met);
    const mirt__cu_circle inner = {host * size, 1, size}, outer = {all->place % size, size, hosts};
    within->circle = inner;
    within->place = all->place % size;
    between->circle = outer;
    between->place = host;
    within->parts = between->parts = 0;
    within->sum = between->sum = all->sum;
    for (int p = 0; p < all->parts; p++) {
        host_of[p] = all->holder[p] / size;
        left[host_of[p]]++;
        if (host_of[p] != host) continue;
        index[p] = within->parts;
        within->holder[within->parts] = all->holder[p] % size;
        within->part[within->parts++] = all->part[p];
    }
    for (int i = 0; i + 1 < all->parts; i++) {
        const int into = all->add[i].into, from = all->add[i].from;
        if (host_of[into] != host_of[from]) {
            met[host_of[into]] = met[host_of[from]] = true;
            continue;
        }
        if (met[host_of[into]]) return false;
        left[host_of[into]]--;
        if (host_of[into] != host) continue;
        within->add[added].into = index[into];
        within->add[added++].from = index[from];
    }
    for (int h = 0; h < hosts; h++) {
        if (left[h] > 1) return false;
        if (left[h]) {
            left[h] = between->parts;
            between->holder[between->parts] = h;
            between->part[between->parts++] = all->sum;
        }
    }
    added = 0;
    for (int i = 0; i + 1 < all->parts; i++) {
        const int into = host_of[all->add[i].into], from = host_of[all->add[i].from];
        if (into == from) continue;
        between->add[added].into = left[into];
        between->add[added++].from = left[from];
    }
    return true;
}

/* Elements that the inbox has room for at a time; the same on all ranks. */
static int64_t mirt__cu_tree_length(const mirt__cu_group *group, int ranks, int parts) {
    const int64_t chunk = MIRT__CU_INBOX / parts / 16 * 16 - 16;
    return group->collective == MIRT_REDUCE_TO_ONE_DEVICE ? chunk : chunk * ranks;
}

/* Each rank of the circle gets the sum of its chunk, */
static bool mirt__cu_tree_gather(mirt__cu *cu, const mirt__cu_sum *s, int64_t at, int64_t length) {
    if (!mirt__cu_nccl_start(cu)) return false;
    mirt__cu_tree_send(cu, s, at, length);
    if (!mirt__cu_nccl_end(cu, "sending parts")) return false;
    mirt__cu_tree_add(cu, s, at, length);
    return true;
}

/* and then all chunks. */
static bool mirt__cu_tree_share(mirt__cu *cu, const mirt__cu_sum *s, int64_t at, int64_t length) {
    if (!mirt__cu_nccl_start(cu)) return false;
    mirt__cu_tree_spread(cu, s, at, length);
    return mirt__cu_nccl_end(cu, "spreading sums");
}

static void mirt__cu_tree(mirt__cu *cu, const mirt__reduction *args) {
    mirt__cu_sum all, within, between;
    mirt__cu_sum_of(cu, args, &all);
    const bool hosts = mirt__cu_sums_of_hosts(cu, &all, &within, &between);
    const mirt__cu_sum *first = hosts ? &within : &all;
    const int64_t most = mirt__cu_tree_length(cu->group, first->circle.count, args->parts);
    for (int64_t at = args->begin; at < args->end && cu->status == MIRT_OK; at += most) {
        const int64_t length = args->end - at < most ? args->end - at : most;
        int64_t begin, own = mirt__cu_chunk(cu->group, &first->circle, length, first->place, &begin);
        if (!mirt__cu_tree_gather(cu, first, at, length)) return;
        if (hosts && (!mirt__cu_tree_gather(cu, &between, at + begin, own) ||
                      !mirt__cu_tree_share(cu, &between, at + begin, own)))
            return;
        if (!mirt__cu_tree_share(cu, first, at, length)) return;
    }
}

/* The device's own sum, of the later parts to the earlier ones. */
static bool mirt__cu_own_sum(mirt__cu *cu, const mirt__reduction *args) {
    mirt__cu_parts own;
    const mirt__real *part[MIRT__MAX_PARTS];
    mirt__addition add[MIRT__MAX_PARTS];
    float *sum = args->sum[args->device] + args->begin;
    int parts = 0;
    for (int p = 0; p < args->parts; p++) {
        if (args->part_device[p] == mirt__cu_rank_of(cu)) part[parts++] = args->part[p] + args->begin;
    }
    for (int i = 0; i + 1 < parts; i++) {
        add[i].into = parts - 2 - i;
        add[i].from = parts - 1 - i;
    }
    mirt__cu_parts_take(&own, parts, part, add);
    if (parts > 1 || (parts && part[0] != sum))
        mirt__cu_sum_parts(cu, cu->exchanges, own, sum, args->end - args->begin);
    return parts || args->end <= args->begin || /* it had no rows */
           mirt__cu_try(cu, cudaMemsetAsync(sum, 0, (size_t)(args->end - args->begin) * sizeof *sum, cu->exchanges),
                        "clearing gradients");
}

/* NCCL's own order of additions; the first bucket is small, so that the rest goes beside something. */
static void mirt__cu_buckets(mirt__cu *cu, const mirt__reduction *args) {
    ncclComm_t comm = cu->group->comm[cu->rank];
    float *sum = args->sum[args->device];
    int64_t bucket = (int64_t)1 << 18;
    if (!mirt__cu_own_sum(cu, args)) return;
    for (int64_t at = args->begin; at < args->end && cu->status == MIRT_OK; at += bucket, bucket = (int64_t)25 << 18) {
        const int64_t count = args->end - at < bucket ? args->end - at : bucket;
        if (!mirt__cu_nccl_start(cu)) return;
        mirt__cu_nccl(cu,
                      ncclAllReduce(sum + at, sum + at, (size_t)count, ncclFloat, ncclSum, comm, cu->exchanges),
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
        const mirt__cu_circle all = mirt__cu_everyone(cu->group);
        mirt__cu_spread(cu, &all, mirt__cu_rank_of(cu), base[device], begin);
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
