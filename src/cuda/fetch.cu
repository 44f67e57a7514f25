/* Copies from the device to the host, and waits for its work. */
#include "cuda.cuh"

/* What has come from the device goes where it is wanted. */
static void mirt__cu_deliver(const mirt__cu *cu, mirt__cu_fetched *fetched) {
    for (int i = 0; i < fetched->deliveries && cu->status == MIRT_OK; i++)
        memcpy(fetched->delivery[i].to, fetched->memory + fetched->delivery[i].from, fetched->delivery[i].bytes);
    fetched->deliveries = 0;
    fetched->used = 0;
}

/* The round before the mark first. After a failure nothing is delivered, then or later. */
static void mirt__cu_deliver_all(const mirt__cu *cu) {
    mirt__cu_staging *s = cu->staging;
    for (int i = 1; i >= 0; i--) mirt__cu_deliver(cu, &s->fetched[s->round ^ i]);
}

static void mirt__cu_download(mirt__cu *cu, void *to, const void *from, size_t bytes) {
    mirt__cu_fetched *f = &cu->staging->fetched[cu->staging->round];
    if (!mirt__cu_fetched_make(cu, f)) return;
    for (size_t done = 0; done < bytes;) {
        if (f->used == MIRT__CU_PINNED || f->deliveries == MIRT__CU_DELIVERIES) {
            if (!mirt__cu_settled(cu, cu->stream, NULL)) return;
            mirt__cu_deliver_all(cu);
        }
        const size_t left = MIRT__CU_PINNED - f->used, piece = bytes - done < left ? bytes - done : left;
        mirt__cu_delivery *d = &f->delivery[f->deliveries];
        d->to = static_cast<char *>(to) + done;
        d->from = f->used;
        d->bytes = piece;
        if (!mirt__cu_try(cu,
                          cudaMemcpyAsync(f->memory + d->from, static_cast<const char *>(from) + done, piece,
                                          cudaMemcpyDeviceToHost, cu->stream),
                          "copying from it"))
            return;
        f->deliveries++;
        f->used += (piece + 255) / 256 * 256;
        done += piece;
    }
}

static void mirt__cu_fetch(mirt__handle *cu, void *to, const void *from, size_t bytes) {
    if (!bytes || !mirt__cu_outside(cu)) return;
    mirt__cu_download(cu, to, from, bytes);
    mirt__cu_inside(cu);
}

static mirt_status mirt__cu_wait(mirt__handle *cu) {
    mirt__cu_staging *s = cu->staging;
    mirt__cu_enter(cu);
    mirt__cu_graphs_settle(cu);
    const bool done = !cu->lost && mirt__cu_settled(cu, cu->copies, NULL) &&
                      mirt__cu_settled(cu, cu->exchanges, NULL) && mirt__cu_settled(cu, cu->stream, NULL);
    mirt__cu_deliver_all(cu);
    s->marked = false;
    for (int i = 0; i < 2 && done; i++) {
        for (int k = 0; k < s->pool[i].count; k++) s->pool[i].block[k].busy = false;
        s->pool[i].used = 0;
    }
    if (cu->status == MIRT_OK) return MIRT_OK;
    mirt__cu_group_fail(cu);
    return mirt__cu_tell(cu);
}

static void mirt__cu_mark(mirt__handle *cu) {
    mirt__cu_staging *s = cu->staging;
    if (mirt__cu_enter(cu)) mirt__cu_try(cu, cudaEventRecord(s->mark, cu->stream), "marking a step");
    s->marked = true;
    s->round ^= 1;
}

/* Blocks of pinned memory that later copies still read stay busy: mirt__cu_pool_turn asks their events. */
static mirt_status mirt__cu_wait_mark(mirt__handle *cu) {
    mirt__cu_staging *s = cu->staging;
    mirt__cu_enter(cu);
    mirt__cu_graphs_settle(cu);
    if (s->marked && cu->status == MIRT_OK && mirt__cu_settled(cu, NULL, s->mark))
        mirt__cu_deliver(cu, &s->fetched[s->round ^ 1]);
    s->marked = false;
    if (cu->status == MIRT_OK) return MIRT_OK;
    mirt__cu_deliver_all(cu);
    mirt__cu_group_fail(cu);
    return mirt__cu_tell(cu);
}
