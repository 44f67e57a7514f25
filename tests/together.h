#ifndef TOGETHER_H
#define TOGETHER_H
/* Processes joined by sockets that train together. */
#include "pipe_engine.h"

#include "scenes.h"

const mirt__engine *mirt__mpi_engine(void) { return &pipe_engine; }

static record *shared; /* [PIPE_MOST], of all processes */

TAP_UNUSED static bool share_records(void) {
    shared = (record *)pipe_shared(PIPE_MOST * sizeof *shared);
    return shared != NULL;
}

TAP_UNUSED static void clear_records(void) { memset(shared, 0, PIPE_MOST * sizeof *shared); }

/* Runs fn(arg, rank) in processes of its own; false: one of them did not end well within `limit` seconds. */
static bool run_processes(int processes, double limit, void (*fn)(const void *arg, int rank), const void *arg) {
    static const pipe_faults none = {1, 0, -1, 0, false, NULL};
    int status = 0;
    fflush(stdout);
    const pid_t first = fork();
    if (first == 0) {
        const int rank = pipe_group_fork(processes, &none);
        if (rank >= 0) fn(arg, rank);
        pipe_group_end();
        _exit(rank == 0 ? !pipe_group_wait(limit) : 0);
    }
    return first > 0 && waitpid(first, &status, 0) == first && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
#endif
