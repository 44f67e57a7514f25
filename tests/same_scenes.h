#ifndef SAME_SCENES_H
#define SAME_SCENES_H
/* Whether scenes end the same in any number of processes. */
#include "together.h"

typedef struct trial {
    const scene *s;
    const layout *l;
} trial;

static void run_trial(const void *arg, int rank) {
    const trial *t = (const trial *)arg;
    run_scene(t->s, t->l, &shared[rank]);
}

static bool run_layout(const scene *s, const layout *l) {
    const trial t = {s, l};
    clear_records();
    return run_processes(l->processes, 30, run_trial, &t);
}

/* >>comparisons */

/* What is to be equal; processes have their own numbers. */
static bool same_record(const record *a, const record *b) {
    record own = *a, other = *b;
    own.workers = own.index = other.workers = other.index = 0;
    return memcmp(&own, &other, sizeof own) == 0;
}

/* A case in several layouts gives what one process gives. */
static void check_scene(const scene *s, const layout *list, int layouts) {
    const layout one = {1, 1, NULL};
    record reference;
    if (!ok(run_layout(s, &one) && shared[0].status == MIRT_OK && shared[0].weights && shared[0].steps > 0,
            "%s: one process trains: %s", s->name, shared[0].error))
        return;
    reference = shared[0];
    for (int i = 0; i < layouts; i++) {
        const layout *l = &list[i];
        if (l->processes * l->devices > s->replicas) continue;
        bool good = run_layout(s, l);
        int other = -1;
        for (int p = 0; p < l->processes; p++) {
            good = good && shared[p].workers == l->processes && shared[p].index == p;
            if (other < 0 && !same_record(&shared[p], &reference)) other = p;
        }
        ok(good && other < 0, "%s: %d processes of %d device%s%s%s give the same: weights, logs, predictions%s%s",
           s->name, l->processes, l->devices, l->devices == 1 ? "" : "s", l->shares ? ", shares " : "",
           l->shares ? l->shares : "", other >= 0 ? ": " : "", other >= 0 ? shared[other].error : "");
    }
}
#endif
