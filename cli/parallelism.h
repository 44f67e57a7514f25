#ifndef MIRRORTRAIN_PARALLELISM_H
#define MIRRORTRAIN_PARALLELISM_H
/* mirrortrain bench --parallelism: what its files share. */
#include "cli.h"

/* --- bench.c --- */
/* A model and a batch for it in memory. */
typedef struct job {
    const options *o;
    int64_t batch, classes;
    mirt_strategy *strategy;
    mirt_model *model;
    uint8_t *pixels;
    int32_t *labels;
    float *out; /* predictions */
    mirt_data data;
    size_t out_size;
    double *times;
} job;
/* Creates all of it, for end_job to free in any case; `j` is filled before it returns. Returns an exit status, after
   complaining. */
int begin_job(job *j, const options *o, int64_t batch);
void end_job(job *j);
/* Trains or predicts on the batch once. */
mirt_status run_step(job *j);
/* Prints why a step failed; returns EXIT_FAILED. */
int complain_of_step(const job *j);

/* --- parallel_replay.c --- */
/* A part of a step, as one thread did it. */
typedef struct piece {
    int row;       /* of the schedule */
    int64_t tasks; /* of a parallel loop; 0: work between loops */
    int64_t at;    /* its seconds begin here: one for each task, or one */
} piece;
/* An operation, or what is done in a phase outside of operations. */
typedef struct schedule_row {
    char op[48], layer[80]; /* layer "": none */
    int phase;              /* mirt_phase, an internal one, or PHASE_BEFORE */
    bool is_op;
    double flops, bytes;
} schedule_row;
/* A step, in the order of its parts. */
typedef struct schedule {
    piece *piece;
    schedule_row *row;
    int64_t pieces, rows, times, room_pieces, room_rows;
} schedule;

/* What a step is predicted for. */
typedef struct machine {
    int cores;
    double barrier;   /* seconds that starting and ending a loop on several cores takes */
    double bandwidth; /* bytes per second of the memory of all sockets in use; 0: no limit */
    double stream;    /* of the core that was recorded; 0: not known */
} machine;
/* A row as predicted, or all of them together. */
typedef struct replayed {
    double seconds;   /* predicted */
    double work;      /* of all tasks and between them: on one core */
    double serial;    /* of `work`, what is not divided: outside of loops, and in loops of one task */
    double imbalance; /* seconds in which cores wait for the last task, divided by the number of cores */
    double barriers;
    double memory;    /* seconds that memory takes longer than all of the above */
    double moved;     /* bytes, as far as the core that was recorded can have read and written them */
    int64_t loops;    /* of more than one task */
    int64_t tasks;    /* of its longest loop, */
    double largest;   /* and the share of that loop's seconds that its largest task has */
    double longest;   /* seconds of that loop on one core */
} replayed;
/* Seconds until the last of `tasks` tasks has ended, when each core takes the next one as soon as it is free.
   `free_at`: room for a number per core. */
double seconds_of_loop(const double *seconds, int64_t tasks, int cores, double *free_at);
/* Replays the schedule. `rows`: one for each row of it. False: out of memory. */
bool replay(const schedule *s, const double *seconds, const machine *m, replayed *rows, replayed *all);
/* The speed-up that memory alone would allow, for the replayed rows of a step. */
double bandwidth_speedup(const replayed *all, double one_core, const machine *m);

/* --- parallel_record.c --- */
/* A step before the library says in which phase it is. */
enum { PHASE_BEFORE = -1 };
enum { MAX_RECORDINGS = 64 };
/* Recorded steps of one schedule. */
typedef struct recording {
    schedule plan;
    double *step[MAX_RECORDINGS]; /* seconds, as the schedule has places for them */
    int steps;
    double *quartile, *median;    /* of each place, the first the lower quartile; both add up to that of the steps */
    schedule now;                 /* of the step under way, */
    double *seconds;              /* and its times */
    int64_t room, first;          /* first: the piece where the row under way begins */
    double since;                 /* when the part under way began */
    int phase;
    bool failed;                  /* out of memory */
} recording;
/* Around a step. end_step: false when memory ran out. Steps before one that is divided otherwise are forgotten. */
void record_step(recording *r);
bool end_step(recording *r);
/* The callback for mirt_record_tasks; user: the recording. */
void record_event(const mirt_task_event *event, void *user);
/* Fills `quartile` and `median`; false: out of memory. */
bool sum_up(recording *r);
/* The index of the lower quartile of so many sorted numbers. */
int quartile_of(int count);
void free_recording(recording *r);

/* --- parallelism.c --- */
/* Returns an exit status. */
int run_parallelism(const options *o, int64_t batch);
/* Whether the flags about it are used with --parallelism alone; false after complaining. */
bool parallelism_fits(const options *o);

#endif
