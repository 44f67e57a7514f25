#ifndef MIRT__INSPECTION_API_H
#define MIRT__INSPECTION_API_H
/* Summaries, plans and graphs of models. */

#include "compile_api.h"

MIRT__BEGIN_C

/* >>looking inside ------------------------------------------------------------------------ */
/* Threads: one at a time, that has the model's strategy. */

/* Bytes a model asks for to train (without a loss: to predict) on global batches of `batch` rows: what
   is planned is what is allocated. Data are taken to be of the dtype seen last, uint8 at first. */
typedef struct mirt_memory {
    size_t weights;     /* of a copy of all variables */
    size_t gradients;   /* per device */
    size_t activations; /* per device: tensors of the step, by liveness */
    size_t scratch;     /* per device: threads' scratch and partial sums; on GPUs the batch and the next one, and
                           results, too */
    size_t slots;       /* optimizer state, once for all devices that share memory */
    size_t host;        /* losses, metrics and new values of one global batch */
    size_t total;       /* devices * (weights + gradients + activations + scratch) + slots + host; central storage
                           has the weights once */
} mirt_memory;
#ifndef MIRRORTRAIN_NO_TRAIN
/* NULL is an error: MIRT_E_STATE before mirt_compile, MIRT_E_INVALID, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_plan_memory(mirt_model *model, int64_t batch, mirt_memory *out);

/* Multiply-accumulates of one such step on a batch; their doubles over a second are FLOP/s. Errors as
   mirt_plan_memory. */
MIRT_API mirt_status mirt_plan_macs(mirt_model *model, int64_t batch, double *out);

/* Measures the first device's ceilings (a fraction of a second, 128 MB), then clocks each operation of the model's
   steps there: training, testing, predicting, functions. A second call starts over. MIRT_E_NOMEM, MIRT_E_INVALID. */
MIRT_API mirt_status mirt_profile_begin(mirt_model *model);
/* Ends it. */
MIRT_API void mirt_profile_end(mirt_model *model);
/* What was clocked since it began, by operation and by kind of operation, the slowest first: milliseconds per step,
   work and bytes read and written, their rates and shares of the ceilings. Owned by the model, valid until the next
   call. NULL: MIRT_E_STATE when nothing was, MIRT_E_NOMEM. */
MIRT_API const char *mirt_profile_text(mirt_model *model);

/* Keras: Model.summary: layers, shapes, parameters, multiply-accumulates, memory per device for
   global batches of `batch`. Owned by the model, valid until the next call. NULL before mirt_compile
   (MIRT_E_STATE), MIRT_E_INVALID, MIRT_E_NOMEM. */
MIRT_API const char *mirt_summary(mirt_model *model, int64_t batch);
/* The training step as text, before and after mirroring. Owned by the model, valid until the
   next call. Errors as mirt_summary; MIRT_E_STATE without a loss too. */
MIRT_API const char *mirt_graph_text(mirt_model *model, int64_t batch);
/* The tensors of such a step, or without a loss of predicting, for the rows of one replica, one line each: the
   operation and the layer that compute it, whether it is stored, lazy (computed by its readers while they read) or
   computed twice (once more in the backward pass), its bytes, estimated microseconds to compute and store it, and to
   recompute it instead ("-": it must be stored). The choice is the cheaper one. Owned by the model, valid until the
   next call of this function or mirt_graph_text. Errors as mirt_summary. */
MIRT_API const char *mirt_graph_costs(mirt_model *model, int64_t batch);
#endif

MIRT__END_C

#endif /* MIRT__INSPECTION_API_H */
