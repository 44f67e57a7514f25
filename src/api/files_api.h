#ifndef MIRT__FILES_API_H
#define MIRT__FILES_API_H
/* Weights and files of models. */

#include "compile_api.h"

MIRT__BEGIN_C

/* >>weights and files --------------------------------------------------------------------- */
/* Threads: one at a time, that has the model's strategy; two that save to one path: one of the two files, whole. */

typedef struct mirt_weight_info {
    const char *name; /* "conv2d/kernel"; owned by the model */
    mirt_shape shape;
    int64_t count;
    bool trainable;
} mirt_weight_info;

/* Weights in the order in which their layers were recorded, `index` counting from 0. */
MIRT_API int mirt_num_weights(const mirt_model *model);
MIRT_API mirt_status mirt_weight(const mirt_model *model, int index, mirt_weight_info *out);
/* Copies device `device`'s copy of a weight, or of its gradient after mirt_grad (that device's own
   sum) or mirt_all_reduce (the sum over all replicas), into `out`, which holds `count` floats.
   MIRT_E_NOT_FOUND with the nearest right name, MIRT_E_DEVICE, MIRT_E_SHAPE: another count,
   MIRT_E_STATE: no gradients now. Before mirt_compile, get and set create the initial weights, after
   which no layer can be added. */
MIRT_API mirt_status mirt_get_weight(mirt_model *model, const char *name, int device, float *out, size_t count);
#ifndef MIRRORTRAIN_NO_TRAIN
MIRT_API mirt_status mirt_get_gradient(mirt_model *model, const char *name, int device, float *out, size_t count);
#endif
/* Sets a weight on every device. */
MIRT_API mirt_status mirt_set_weight(mirt_model *model, const char *name, const float *values, size_t count);
/* Whether the weights of a layer (or a model called as one), by the name or the prefix of names, are trained: "conv2d"
   is that layer alone, "block1*" all whose names begin so, NULL all. Takes effect with the next mirt_compile; a frozen
   batch normalization then uses its moving statistics. Keras: layer.trainable. MIRT_E_NOT_FOUND. */
MIRT_API mirt_status mirt_set_trainable(mirt_model *model, const char *prefix, bool trainable);

/* "float32", as models begin, or "mixed_bfloat16": convolutions and products of matrices round what they multiply to
   bfloat16 and add up in float32; images between layers are stored as bfloat16, in half the memory. Weights, statistics
   of batches, losses, outputs, gradients of weights and optimizer state stay float32. A part and its model have one
   policy, the model's. It may be set before or after mirt_compile; training, evaluating and predicting have it from the
   next call on, functions already created keep theirs. Saved with the model. Warns where it is emulated.
   "store_bfloat16", for processors without instructions for bfloat16: images between layers are stored so, and what is
   computed is float32, with the same bits on all x86 processors.
   "mixed_float16", for GPUs without bfloat16: what is rounded and stored is float16, and the loss is scaled so that
   gradients keep to its range (Keras: LossScaleOptimizer): a step whose gradients leave it changes and counts nothing
   but halves the scale, 32768 at first, which doubles after 2000 that did not. Keras: dtype_policy,
   keras.mixed_precision. MIRT_E_NOT_FOUND with the nearest right name, MIRT_E_INVALID, MIRT_E_STATE. */
MIRT_API mirt_status mirt_set_dtype_policy(mirt_model *model, const char *policy);

/* What the numbers of an output are: probabilities; logits, which a sigmoid of each or a softmax over all turns into
   probabilities; or something else. */
typedef enum mirt_scores {
    MIRT_SCORES_OTHER = 0, MIRT_SCORES_PROBABILITIES, MIRT_SCORES_SIGMOID_LOGITS, MIRT_SCORES_SOFTMAX_LOGITS
} mirt_scores;
#ifndef MIRRORTRAIN_NO_TRAIN
/* Never guessed from values. A model that ends in a sigmoid or softmax gives probabilities. Otherwise a compiled model
   gives what its loss expects: logits with from_logits; without it, probabilities if the loss is a cross-entropy. All
   else is MIRT_SCORES_OTHER. Saved files hold both activations and from_logits, those of version 0.1 too. */
MIRT_API mirt_scores mirt_output_scores(const mirt_model *model, int output);
/* The loss of an output, which says what its labels have to be; MIRT_LOSS_NONE: custom, none, or not compiled. */
MIRT_API mirt_loss mirt_output_loss(const mirt_model *model, int output);
#endif

/* Names of the classes 0, 1, ... that a model tells apart: mirt_fit takes those of its data (mirt_class_names), if they
   are as many as its output has; they are saved and loaded with the model. UTF-8, copied. */
MIRT_API mirt_status mirt_set_model_class_names(mirt_model *model, const char *const *names, int count);
/* NULL and a count of 0 without names. Valid until names are set again, or mirt_fit sets them. */
MIRT_API const char *const *mirt_model_class_names(const mirt_model *model, int *count);

typedef enum mirt_save_flags { MIRT_SAVE_ALL = 0, MIRT_SAVE_WEIGHTS_ONLY = 1 } mirt_save_flags;
#ifndef MIRRORTRAIN_NO_TRAIN
/* One .safetensors file: weights under their Keras names, optimizer slots, architecture (layers, models inside of the
   model, operations outside of layers, constants among them), compile settings and names of classes as JSON in its
   metadata. The same model gives the same bytes. Replaces `path` atomically. Code is not saved: of a schedule the rate
   in force is, and ops, layers, losses and metrics of your own are by their names. MIRT_E_STATE: not compiled, or a
   view (both fine with MIRT_SAVE_WEIGHTS_ONLY); MIRT_E_INVALID: the name is that of another format (mirt_save_check);
   MIRT_E_IO. Of processes that train together (mirt_multi_worker) the first writes; the others return MIRT_OK. */
MIRT_API mirt_status mirt_save(mirt_model *model, const char *path, mirt_save_flags flags);
/* Whether mirt_save accepts the name, before anything is trained: MIRT_E_INVALID for those that end as files of
   another format do, such as .keras, .h5, .onnx and .pt, and the error names the converter if there is one. Any
   thread at any time. */
MIRT_API mirt_status mirt_save_check(const char *path);
#ifndef MIRRORTRAIN_NO_ONNX
/* How a model becomes an ONNX file; all zeros: as the model is, with normalization folded into the products before. */
typedef struct mirt_onnx_desc {
    bool channels_first;     /* images of rank 4 come in, and go out, as (rows, channels, height, width) */
    bool keep_normalization; /* batch normalization stays an op of its own, and weights stay as they are */
} mirt_onnx_desc;
/* Writes the model in the form in which it predicts, with the layers that prepare images and without dropout and
   augmentation, as an ONNX file of opset 17 whose number of rows is free. Inputs and outputs have the names of their
   layers, weights their own; names of classes are in the metadata "class_names", a JSON list. `desc` may be NULL. What
   is computed is float32, whatever the model's dtype policy. Replaces `path` atomically. Of processes that train
   together the first writes. MIRT_E_INVALID: an operation that ONNX does not have, or one of your own, with its layer's
   name; more than 2 GB. MIRT_E_STATE, MIRT_E_NOT_FOUND, MIRT_E_IO, MIRT_E_NOMEM, MIRT_E_CALLBACK. Keras: model.export,
   PyTorch: torch.onnx.export. */
MIRT_API mirt_status mirt_save_onnx(mirt_model *model, const char *path, const mirt_onnx_desc *desc);
#endif
#endif
/* Rebuilds a saved model under any strategy, which knows what of it is your own (mirt_register_op, ..._layer, ..._loss,
   ..._metric); ready to evaluate, predict and train on. The file is checked first, then read into the model's
   memory, and must not be written meanwhile (mirt_save replaces files). NULL: MIRT_E_NOT_FOUND, MIRT_E_IO,
   MIRT_E_FORMAT or MIRT_E_SHAPE with file and tensor, MIRT_E_NOMEM. */
MIRT_API mirt_model *mirt_load(mirt_strategy *strategy, const char *path);
/* `data` is borrowed during the call. */
MIRT_API mirt_model *mirt_load_memory(mirt_strategy *strategy, const void *data, size_t size);
/* Weights by name into an existing model; every weight of the model must be there, with its shape,
   otherwise nothing is changed. Errors as mirt_load. */
MIRT_API mirt_status mirt_load_weights(mirt_model *model, const char *path);

/* Which weights, and what they are called in the file; all zeros: all, by their own names. */
typedef struct mirt_load_desc {
    const char *prefix;      /* of a layer, or a model called as one: its weights alone, by names without it;
                                "block_1*": those whose names begin so, by their whole names */
    const char *file_prefix; /* what their names in the file begin with, before a '/' */
} mirt_load_desc;
typedef struct mirt_load_report {
    int loaded;       /* weights that came out of the file */
    int missing;      /* weights that it does not hold, */
    int mismatched;   /* and those that it holds in another shape or dtype: both are as they were before */
    int extra;        /* tensors of the file (optimizer state apart) that are no weight's */
    const char *text; /* a line for each of the last three, "missing: head/kernel (1280, 1)"; the model's, valid until
                         its next load */
} mirt_load_report;
/* Takes what fits by name and leaves the rest alone; `report` may be NULL, desc too. Keras:
   load_weights(skip_mismatch=True). Errors as mirt_load; MIRT_E_NOT_FOUND also where nothing fits at all. */
MIRT_API mirt_status mirt_load_weights_partial(mirt_model *model, const char *path, const mirt_load_desc *desc,
                                               mirt_load_report *report);

MIRT__END_C

#endif /* MIRT__FILES_API_H */
