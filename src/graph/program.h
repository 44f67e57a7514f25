#ifndef MIRT__PROGRAM_H
#define MIRT__PROGRAM_H
/* A graph made ready to replay: every tensor has a place, every node its kernel. Replay allocates
   nothing. One plan at the largest row count runs any smaller one.

   Nodes that need the other replicas (all_reduce) cut a program into segments. A device runs its
   replicas segment by segment; what is alive across a cut has a place for every replica. */
#include "../device/device.h"
#include "graph.h"

#define MIRT__MAX_IO 96

/* Memory of the caller that a program reads or writes. */
typedef struct mirt__port {
    size_t bytes; /* of one row when batched; 0: not used */
    bool batched;
} mirt__port;

typedef struct mirt__program {
    mirt__graph graph;
    int64_t max_rows;
    size_t arena;   /* bytes of the tensors of a step, by liveness */
    size_t replica; /* bytes of those alive across a cut, per replica */
    size_t scratch; /* bytes per thread */
    size_t shared;  /* bytes */
    mirt__port io[MIRT__MAX_IO];
    int *cut;       /* nodes between segments */
    int num_cuts;
    int first_gradient; /* the node where backward begins; -1: none */
    int mirrored;       /* the nodes from here on are those that mirroring appended */
} mirt__program;

/* The memory one replay works on. */
typedef struct mirt__bases {
    mirt__where where;
    const mirt__backend *backend; /* of the device */
    char *arena, *replica, *weight, *gradient, *state;
    char *io[MIRT__MAX_IO]; /* of the replica */
} mirt__bases;

MIRT__LIB void mirt__program_free(mirt__program *program);
/* Replays segment `segment` of program->num_cuts + 1; rows <= max_rows; rows 0 does nothing. */
MIRT__LIB void mirt__program_run(const mirt__program *program, int segment, const mirt__kernels *kernels,
                                 const mirt__step_info *run, const mirt__bases *bases, int64_t rows);
/* Whether a node has work of its own in a replay. */
MIRT__LIB bool mirt__node_runs(const mirt__node *node);
MIRT__LIB void *mirt__address(const mirt__bases *bases, const mirt_tensor *tensor);
/* What was fused into a node, and what it computes while reading: "  reads bn+relu6  +moments". */
MIRT__LIB void mirt__node_notes(const mirt__node *node, mirt__text *out);
/* One line a node. */
MIRT__LIB void mirt__program_text(const mirt__program *program, mirt__text *out);

#endif
