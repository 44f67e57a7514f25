#include "memory.h"
/* Reserves the devices' working memory. */

MIRT__LIB bool mirt__layout_bytes(const mirt__layout *l, size_t *bytes) {
    const size_t part[] = {l->gradients, l->arena, l->replica, l->shared, l->scratch, l->io};
    *bytes = 0;
    for (int i = 0; i < MIRT__COUNT(part); i++) {
        if (part[i] > SIZE_MAX / 2 || !mirt__add_size(*bytes, mirt__align_up(part[i]), bytes)) return false;
    }
    return true;
}

static void mirt__raise(size_t *bytes, size_t least) { *bytes = *bytes > least ? *bytes : least; }

static void mirt__block_free(const mirt_strategy *s, int device, char *block) {
    s->backend->forget(s->device[device].handle, NULL);
    s->backend->release(s->device[device].handle, block);
}

MIRT__LIB mirt_status mirt__memory_reserve(mirt_strategy *s, const mirt__layout *needs) {
    mirt__layout all = s->layout;
    size_t bytes;
    if (s->running)
        return mirt__fail(MIRT_E_STATE, "the code of an op cannot run or record models of its own strategy");
    char *block[MIRT__MAX_DEVICES];
    mirt__raise(&all.gradients, needs->gradients);
    mirt__raise(&all.arena, needs->arena);
    mirt__raise(&all.replica, needs->replica);
    mirt__raise(&all.shared, needs->shared);
    mirt__raise(&all.scratch, needs->scratch);
    mirt__raise(&all.io, needs->io);
    if (s->block[0] && memcmp(&all, &s->layout, sizeof all) == 0) return MIRT_OK;
    if (!mirt__layout_bytes(&all, &bytes))
        return mirt__fail(MIRT_E_NOMEM, "a batch of this size needs more memory than can be addressed");
    mirt__memory_free(s); /* there may not be room for both */
    for (int d = 0; d < s->num_devices; d++) {
        block[d] = (char *)s->backend->alloc(s->device[d].handle, bytes);
        if (block[d]) continue;
        while (d-- > 0) mirt__block_free(s, d, block[d]);
        return mirt_last_status();
    }
    memcpy(s->block, block, (size_t)s->num_devices * sizeof *block);
    s->layout = all;
    return MIRT_OK;
}

MIRT__LIB bool mirt__memory_save(mirt_strategy *s) {
    mirt__storage_costs *costs = &s->able.costs;
    if (mirt_last_status() != MIRT_E_NOMEM || costs->again <= 0) return false;
    costs->read = costs->again = 0;
    mirt__log(s, MIRT_LOG_WARNING, "%.300s: computes more tensors again in place of storing them", mirt_last_error());
    return true;
}

MIRT__LIB void mirt__memory_free(mirt_strategy *s) {
    for (int d = 0; d < s->num_devices; d++) {
        if (s->block[d]) mirt__block_free(s, d, s->block[d]);
    }
    memset(s->block, 0, sizeof s->block);
    memset(&s->layout, 0, sizeof s->layout);
    s->in_memory = s->prefetched = NULL;
}
