/* Where processes train together, the first one finds and reads the checkpoint for all. */
#include "run_state.h"

typedef struct mirt__resume_word {
    int64_t status, found, size;
    char reason[400], origin[400];
} mirt__resume_word;

/* Memory for the file, or an error that all have: messages of this size are under way afterwards. */
static mirt_status mirt__resume_room(mirt_strategy *s, size_t size, unsigned char **bytes) {
    const mirt__peers *p = s->peers;
    *bytes = p->rank ? (unsigned char *)mirt__aligned_alloc(size) : NULL;
    const char own = p->rank == 0 || *bytes, *good = (const char *)mirt__peers_tell(s, &own, 1);
    mirt_status status = good ? MIRT_OK : mirt_last_status();
    for (int i = 0; i < p->size && status == MIRT_OK; i++) {
        if (!good[i])
            status = mirt__fail(MIRT_E_NOMEM, "process %d (%s) has no memory for a checkpoint of %zu bytes", i,
                                p->engine->host(i), size);
    }
    if (status != MIRT_OK) {
        mirt__aligned_free(*bytes);
        *bytes = NULL;
    }
    return status;
}

/* The file takes the bytes. */
static mirt_status mirt__resume_parse(mirt__safetensors *file, unsigned char *bytes, size_t size, const char *origin) {
    const mirt_status status = mirt__safetensors_open_memory(file, bytes, size);
    if (status != MIRT_OK) return mirt__aligned_free(bytes), status;
    file->owned = bytes;
    file->origin = mirt__pool_strdup(&file->pool, origin);
    if (file->origin) return MIRT_OK;
    mirt__safetensors_close(file);
    return mirt_last_status();
}

MIRT__LIB mirt_status mirt__resume_together(mirt_strategy *s, mirt_status status, mirt__safetensors *file,
                                            bool *found) {
    const mirt__peers *p = s->peers;
    mirt__resume_word word;
    unsigned char *bytes = NULL;
    memset(&word, 0, sizeof word);
    if (p->rank == 0) {
        word.status = (int64_t)status;
        word.found = status == MIRT_OK && *found;
        if (status != MIRT_OK) snprintf(word.reason, sizeof word.reason, "%s", mirt_last_error());
        if (word.found) snprintf(word.origin, sizeof word.origin, "%s", file->origin);
        if (word.found) word.size = file->data - file->owned + (int64_t)file->data_size;
    }
    const mirt_status heard = mirt__peers_hear_first(s, &word, sizeof word);
    if (heard != MIRT_OK && status == MIRT_OK && p->rank == 0 && *found) mirt__safetensors_close(file);
    if (status != MIRT_OK || heard != MIRT_OK) return status != MIRT_OK ? status : heard;
    if (word.status != MIRT_OK)
        return mirt__fail(MIRT_E_WORKER, "process 0 (%s) cannot resume: %s", p->engine->host(0), word.reason);
    *found = word.found != 0;
    if (!*found) return MIRT_OK;
    status = mirt__resume_room(s, (size_t)word.size, &bytes);
    if (status == MIRT_OK) status = mirt__peers_hear_first(s, p->rank ? bytes : file->owned, (size_t)word.size);
    if (p->rank == 0 && status != MIRT_OK) mirt__safetensors_close(file);
    if (p->rank == 0) return status;
    if (status == MIRT_OK) return mirt__resume_parse(file, bytes, (size_t)word.size, word.origin);
    mirt__aligned_free(bytes);
    return status;
}
