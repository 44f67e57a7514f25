#ifndef MIRT__PLAN_H
#define MIRT__PLAN_H
/* Places the tensors of a program in memory. */
#include "../graph/program.h"

/* What a program computes, and where it goes. */
typedef struct mirt__output {
    mirt_tensor *tensor;
    mirt__space space; /* MIRT__SPACE_IO, MIRT__SPACE_GRADIENT or MIRT__SPACE_STATE */
    size_t offset;     /* bytes, unless it is MIRT__SPACE_IO: */
    int port;
} mirt__output;

/* Whether the bytes of every tensor at `rows` rows can be counted with. */
MIRT__LIB bool mirt__plan_fits(const mirt__graph *graph, int64_t rows);
/* Places the tensors of program->graph, which fits at max_rows rows and is complete but for copies this adds.
   variable_offset: bytes of each variable in the weight block. */
MIRT__LIB bool mirt__plan(mirt__program *program, mirt__output *outputs, int num_outputs,
                          const size_t *variable_offset, int64_t max_rows);

#endif
