#ifndef MIRT__PROGRAM_H
#define MIRT__PROGRAM_H
/* A graph made ready to replay: every tensor has a place, every node its kernel. Replay allocates
   nothing. One plan at the largest row count runs any smaller one. */
#include "graph.h"

#define MIRT__MAX_IO (4 + MIRT_MAX_METRICS)

typedef struct mirt__program {
    mirt__graph graph;
    int64_t max_rows;
    size_t arena;   /* bytes of the tensors of a step, by liveness */
    size_t scratch; /* bytes per thread */
    size_t shared;  /* bytes */
    size_t io_row[MIRT__MAX_IO]; /* bytes of one row of each input and result; 0: not used */
} mirt__program;

/* The memory one replay works on. */
typedef struct mirt__bases {
    mirt__team *team;
    char *arena, *weight, *gradient, *scratch, *shared;
    size_t scratch_per_thread;
    char *io[MIRT__MAX_IO]; /* of the replica's first row */
} mirt__bases;

/* What a program computes. A result goes to an io slot, a gradient to the gradient block. */
typedef struct mirt__output {
    mirt_tensor *tensor;
    mirt__space space; /* MIRT__SPACE_IO or MIRT__SPACE_GRADIENT */
    size_t offset;     /* slot, or bytes */
} mirt__output;

/* Places the tensors of program->graph, which is complete but for copies this adds.
   variable_offset: bytes of each variable in the weight block. */
MIRT__LIB bool mirt__plan(mirt__program *program, mirt__output *outputs, int num_outputs,
                          const size_t *variable_offset, int64_t max_rows);
MIRT__LIB void mirt__program_free(mirt__program *program);
/* rows <= max_rows; rows 0 does nothing. */
MIRT__LIB void mirt__program_run(const mirt__program *program, const mirt__kernels *kernels, const mirt__step_info *run,
                                 const mirt__bases *bases, int64_t rows);
/* One line a node. */
MIRT__LIB void mirt__program_text(const mirt__program *program, mirt__text *out);

#endif
