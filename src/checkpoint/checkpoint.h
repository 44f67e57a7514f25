#ifndef MIRT__CHECKPOINT_H
#define MIRT__CHECKPOINT_H
/* Weights and the state of training in files, and the newest of these. */
#include "../formats/safetensors.h"
#include "../nn/config.h"

/* --- weight_file.c --- */
/* "adam/conv2d_kernel_momentum", as Keras names it; "": the variable has no such slot. NULL: memory ran out. */
MIRT__LIB const char *mirt__slot_name(mirt__pool *pool, const mirt_model *model, int slot, const mirt__variable *v);
MIRT__LIB void mirt__tensor_of(const mirt__variable *v, const char *name, const mirt__real *values,
                               mirt__safetensor *out);
/* Whether the tensor has the variable's shape. */
MIRT__LIB bool mirt__load_fits(const mirt__safetensor *t, const mirt__variable *v);
/* Block 0 is the weights, on every device; the others are optimizer slots. It fails only where the file's tensors are
   still in it. */
MIRT__LIB mirt_status mirt__load_take(const mirt__safetensors *file, const mirt__safetensor *t, mirt_model *model,
                                      int block, int variable);
/* The tensor `name` with the variable's shape, or NULL with the error set. */
MIRT__LIB const mirt__safetensor *mirt__load_find(const mirt__safetensors *file, const char *name,
                                                  const mirt__variable *v);
/* Finds every tensor of the weights and of `slots` slots, and takes all of them over if `take` and all are there;
   otherwise nothing changes, except where mirt__load_take fails. */
MIRT__LIB mirt_status mirt__load_blocks(const mirt__safetensors *file, mirt_model *model, int slots, bool take);
/* Whatever is wrong with `part` of what a file describes is wrong with the file. */
MIRT__LIB mirt_status mirt__load_bad(const mirt__safetensors *file, const char *part);

/* --- load_training.c --- */
/* Whether the weights of a file are their averages, and the slot of these has the weights; `training` is its JSON. */
MIRT__LIB mirt_status mirt__load_swapped(const mirt__json *training, bool use_ema, bool *out);
/* Compiles a model that has just been recorded, and loads its weights and the state of training. */
MIRT__LIB mirt_status mirt__load_compiled(mirt_model *model, const mirt__safetensors *file, const mirt__json *compile,
                                          const mirt__json *training);

/* --- latest.c --- */
/* Opens a file that is whole: as mirt__safetensors_open, and MIRT_E_FORMAT for one without checksums, of which nothing
   tells that. */
MIRT__LIB mirt_status mirt__checkpoint_open(mirt__safetensors *file, const char *path);
/* When the newest of a directory was written, whole or not; 0: there is none that can be read. MIRT_E_NOMEM */
MIRT__LIB mirt_status mirt__checkpoint_newest(const char *directory, int64_t *saved);
/* Opens the newest valid checkpoint in a directory, and says which: *found false: there is none. `runs`: of those that
   a fit can go on from; where all of these were refused it fails, naming the newest. */
MIRT__LIB mirt_status mirt__checkpoint_latest(const mirt_strategy *strategy, const char *directory, bool runs,
                                              mirt__safetensors *file, bool *found);

#endif
