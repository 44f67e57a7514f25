/* Predicts a step on several cores from the times of its tasks on one. */
#include "parallelism.h"

#include <stdlib.h>
#include <string.h>

/* A heap of the times at which cores are free: the first one takes a task of `busy` seconds. */
static void take_first(double *free_at, int cores, double busy) {
    const double end = free_at[0] + busy;
    int at = 0;
    for (int below; (below = 2 * at + 1) < cores; at = below) {
        if (below + 1 < cores && free_at[below + 1] < free_at[below]) below++;
        if (free_at[below] >= end) break;
        free_at[at] = free_at[below];
    }
    free_at[at] = end;
}

double seconds_of_loop(const double *seconds, int64_t tasks, int cores, double *free_at) {
    double last = 0;
    for (int i = 0; i < cores; i++) free_at[i] = 0;
    for (int64_t i = 0; i < tasks; i++) {
        const double end = free_at[0] + seconds[i];
        if (end > last) last = end;
        take_first(free_at, cores, seconds[i]);
    }
    return last;
}

static void replay_loop(const double *seconds, const piece *p, const machine *m, double *free_at, replayed *row) {
    double sum = 0, most = 0;
    for (int64_t i = 0; i < p->tasks; i++) {
        sum += seconds[i];
        if (seconds[i] > most) most = seconds[i];
    }
    row->work += sum;
    if (sum >= row->longest) {
        row->longest = sum;
        row->tasks = p->tasks;
        row->largest = sum > 0 ? most / sum : 0;
    }
    if (p->tasks == 1) {
        row->serial += sum;
        row->seconds += sum;
        return;
    }
    row->loops++;
    if (m->cores == 1) {
        row->seconds += sum;
        return;
    }
    const double end = seconds_of_loop(seconds, p->tasks, m->cores, free_at);
    row->imbalance += end - sum / m->cores;
    row->barriers += m->barrier;
    row->seconds += end + m->barrier;
}

/* A core that is faster than its memory has found the rest in caches. */
static double bytes_moved(const schedule_row *row, double seconds, double stream) {
    const double most = stream > 0 ? seconds * stream : row->bytes;
    return row->bytes < most ? row->bytes : most;
}

static void add_up(replayed *all, const replayed *row) {
    all->seconds += row->seconds;
    all->work += row->work;
    all->serial += row->serial;
    all->imbalance += row->imbalance;
    all->barriers += row->barriers;
    all->memory += row->memory;
    all->moved += row->moved;
    all->loops += row->loops;
}

bool replay(const schedule *s, const double *seconds, const machine *m, replayed *rows, replayed *all) {
    double *free_at = (double *)malloc((size_t)m->cores * sizeof *free_at);
    if (!free_at) return false;
    memset(rows, 0, (size_t)s->rows * sizeof *rows);
    memset(all, 0, sizeof *all);
    for (int64_t i = 0; i < s->pieces; i++) {
        const piece *p = &s->piece[i];
        replayed *row = &rows[p->row];
        if (p->tasks) {
            replay_loop(seconds + p->at, p, m, free_at, row);
            continue;
        }
        row->work += seconds[p->at];
        row->serial += seconds[p->at];
        row->seconds += seconds[p->at];
    }
    for (int64_t i = 0; i < s->rows; i++) {
        replayed *row = &rows[i];
        row->moved = bytes_moved(&s->row[i], row->work, m->stream);
        const double memory = m->bandwidth > 0 && m->cores > 1 ? row->moved / m->bandwidth : 0;
        if (memory > row->seconds) {
            row->memory = memory - row->seconds;
            row->seconds = memory;
        }
        add_up(all, row);
    }
    free(free_at);
    return true;
}

double bandwidth_speedup(const replayed *all, double one_core, const machine *m) {
    return m->bandwidth > 0 && all->moved > 0 ? one_core * m->bandwidth / all->moved : 0;
}
