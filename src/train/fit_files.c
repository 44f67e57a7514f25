/* Whether processes that train together see the files of the first one. */
#include "../base/file.h"
#include "fit.h"

enum { MIRT__SEEN_PATH = 1024 };

/* A file beside those that callbacks write; false: there is none. */
static bool mirt__seen_begin(const mirt__fit *fit, mirt__file_writer *file) {
    for (int i = 0; i < fit->told; i++) {
        const mirt__readymade *ready = mirt__ready_of(fit->run.desc->callbacks[i]);
        if (ready && ready->file && mirt__file_begin(file, ready->file) == MIRT_OK) return true;
    }
    return false;
}

/* The first process that does not see the file; 0: all do. */
static int mirt__seen_by(mirt_strategy *s, const char *path) {
    const char own = mirt__file_exists(path), *seen = (const char *)mirt__peers_tell(s, &own, 1);
    int other = 0;
    for (int i = s->peers->size - 1; seen && i > 0; i--) other = seen[i] ? other : i;
    return other;
}

MIRT__LIB void mirt__fit_look_for_files(const mirt__fit *fit) {
    mirt_strategy *s = fit->run.model->strategy;
    const mirt__peers *p = s->peers;
    mirt__error error;
    mirt__file_writer file;
    char path[MIRT__SEEN_PATH] = "";
    mirt__error_get(&error);
    const bool begun = p->rank == 0 && mirt__seen_begin(fit, &file);
    if (begun && strlen(file.temporary) < sizeof path) memcpy(path, file.temporary, strlen(file.temporary) + 1);
    const bool looks = mirt__peers_hear_first(s, path, sizeof path) == MIRT_OK && path[0];
    const int other = looks ? mirt__seen_by(s, path) : 0;
    if (other)
        mirt__log(s, MIRT_LOG_INFO,
                  "process %d (%s) does not see the files that process 0 (%s) writes, which is fine: process 0 reads "
                  "checkpoints for all",
                  other, p->engine->host(other), p->engine->host(0));
    if (begun) mirt__file_abort(&file);
    mirt__error_set(&error);
}
