/* Records the tasks of steps, for parallel_replay.c. */
#include "parallelism.h"

#include <stdlib.h>
#include <string.h>

/* Room for one more element; false: out of memory. */
static bool grow(void **list, int64_t count, int64_t *room, size_t size) {
    if (count < *room) return true;
    const int64_t more = *room ? *room * 2 : 256;
    void *bigger = realloc(*list, (size_t)more * size);
    if (!bigger) return false;
    *list = bigger;
    *room = more;
    return true;
}

static void add_seconds(recording *r, double seconds) {
    void *list = r->seconds;
    if (!grow(&list, r->now.times, &r->room, sizeof *r->seconds)) {
        r->failed = true;
        return;
    }
    r->seconds = (double *)list;
    r->seconds[r->now.times++] = seconds > 0 ? seconds : 0;
}

static void add_piece(recording *r, int64_t tasks) {
    schedule *s = &r->now;
    void *list = s->piece;
    if (!grow(&list, s->pieces, &s->room_pieces, sizeof *s->piece)) {
        r->failed = true;
        return;
    }
    s->piece = (piece *)list;
    s->piece[s->pieces].row = -1; /* until it is known */
    s->piece[s->pieces].tasks = tasks;
    s->piece[s->pieces++].at = s->times;
}

/* What was done since the last event, in no loop. */
static void add_serial(recording *r, double until) {
    add_piece(r, 0);
    add_seconds(r, until - r->since);
}

/* NULL: out of memory. */
static schedule_row *add_row(recording *r) {
    schedule *s = &r->now;
    void *list = s->row;
    if (!grow(&list, s->rows, &s->room_rows, sizeof *s->row)) {
        r->failed = true;
        return NULL;
    }
    s->row = (schedule_row *)list;
    memset(&s->row[s->rows], 0, sizeof *s->row);
    return &s->row[s->rows++];
}

/* All pieces that have no row yet are in this one. */
static void close_row(recording *r, int64_t row) {
    for (; r->first < r->now.pieces && !r->failed; r->first++) r->now.piece[r->first].row = (int)row;
}

static int64_t find_phase(const recording *r, int phase) {
    for (int64_t i = 0; i < r->now.rows; i++) {
        if (!r->now.row[i].is_op && r->now.row[i].phase == phase) return i;
    }
    return -1;
}

static const char *phase_words(int phase) {
    return phase == PHASE_BEFORE          ? "checks and launch"
           : phase == MIRT_PHASE_LAUNCH ? "results and metrics" /* it ends the step */
                                          : mirt_phase_name((mirt_phase)phase);
}

/* What was done in the phase under way, in no operation. */
static void close_phase(recording *r) {
    int64_t at = find_phase(r, r->phase);
    if (at < 0) {
        schedule_row *row = add_row(r);
        if (!row) return;
        snprintf(row->op, sizeof row->op, "(%s)", phase_words(r->phase));
        row->phase = r->phase;
        at = r->now.rows - 1;
    }
    close_row(r, at);
}

static void close_op(recording *r, const mirt_task_event *event) {
    schedule_row *row = add_row(r);
    if (!row) return;
    snprintf(row->op, sizeof row->op, "%s", event->op);
    if (event->layer) snprintf(row->layer, sizeof row->layer, "%s", event->layer);
    row->is_op = true;
    row->phase = r->phase;
    row->flops = event->flops;
    row->bytes = event->bytes;
    close_row(r, r->now.rows - 1);
}

void record_event(const mirt_task_event *event, void *user) {
    recording *r = (recording *)user;
    if (r->failed) return;
    if (event->kind == MIRT_TASK_DONE || event->kind == MIRT_TASK_JOIN) {
        if (event->kind == MIRT_TASK_JOIN) r->now.piece[r->now.pieces - 1].tasks = 1; /* it has one time */
        add_seconds(r, event->time - r->since);
        r->since = event->time;
        return;
    }
    add_serial(r, event->time);
    if (event->kind == MIRT_TASK_LOOP && event->index > 0) add_piece(r, event->index);
    if (event->kind == MIRT_TASK_OP) close_op(r, event);
    if (event->kind == MIRT_TASK_PHASE) {
        close_phase(r);
        r->phase = (int)event->index;
    }
    r->since = seconds_now(); /* recording itself takes time */
}

void record_step(recording *r) {
    r->now.pieces = r->now.rows = r->now.times = r->first = 0;
    r->phase = PHASE_BEFORE;
    r->since = seconds_now();
}

static bool same_schedule(const schedule *a, const schedule *b) {
    if (a->pieces != b->pieces || a->rows != b->rows || a->times != b->times) return false;
    for (int64_t i = 0; i < a->pieces; i++) {
        if (a->piece[i].tasks != b->piece[i].tasks || a->piece[i].row != b->piece[i].row) return false;
    }
    return true;
}

static void forget_steps(recording *r) {
    while (r->steps > 0) free(r->step[--r->steps]);
}

bool end_step(recording *r) {
    if (!r->failed) add_serial(r, seconds_now());
    if (!r->failed) close_phase(r);
    if (r->failed || r->steps == MAX_RECORDINGS) return false;
    if (!same_schedule(&r->plan, &r->now)) {
        const schedule plan = r->plan;
        forget_steps(r);
        r->plan = r->now;
        r->now = plan; /* its memory is used again */
    }
    double *kept = (double *)malloc((size_t)r->plan.times * sizeof *kept);
    if (!kept) return false;
    memcpy(kept, r->seconds, (size_t)r->plan.times * sizeof *kept);
    r->step[r->steps++] = kept;
    return true;
}

/* Fills `totals` with the steps' seconds, in ascending order. */
static void add_up_steps(const recording *r, double *totals) {
    for (int k = 0; k < r->steps; k++) {
        totals[k] = 0;
        for (int64_t i = 0; i < r->plan.times; i++) totals[k] += r->step[k][i];
    }
    qsort(totals, (size_t)r->steps, sizeof *totals, by_size);
}

/* Lower quartiles of many tasks add up to less than a step takes, as tasks are slow in different steps. */
static void scale_to(double total, double *seconds, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += seconds[i];
    for (int64_t i = 0; i < count && sum > 0; i++) seconds[i] *= total / sum;
}

static double median_of(const double *sorted, int count) { return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2; }

int quartile_of(int count) { return count > 0 ? (count - 1) / 4 : 0; }

bool sum_up(recording *r) {
    double order[MAX_RECORDINGS];
    const size_t bytes = (size_t)r->plan.times * sizeof(double);
    r->quartile = (double *)malloc(bytes);
    r->median = (double *)malloc(bytes);
    if (!r->quartile || !r->median || !r->steps) return false;
    for (int64_t i = 0; i < r->plan.times; i++) {
        for (int k = 0; k < r->steps; k++) order[k] = r->step[k][i];
        qsort(order, (size_t)r->steps, sizeof *order, by_size);
        r->quartile[i] = order[quartile_of(r->steps)];
        r->median[i] = median_of(order, r->steps);
    }
    add_up_steps(r, order);
    scale_to(order[quartile_of(r->steps)], r->quartile, r->plan.times);
    scale_to(median_of(order, r->steps), r->median, r->plan.times);
    return true;
}

static void free_schedule(schedule *s) {
    free(s->piece);
    free(s->row);
}

void free_recording(recording *r) {
    forget_steps(r);
    free_schedule(&r->plan);
    free_schedule(&r->now);
    free(r->quartile);
    free(r->median);
    free(r->seconds);
    memset(r, 0, sizeof *r);
}
