#ifndef MIRT__COMPILE_API_H
#define MIRT__COMPILE_API_H
/* Compiling: the optimizer, loss and metrics of a model. */

#include "optimizers_api.h"

MIRT__BEGIN_C

/* >>training ------------------------------------------------------------------------------ */
/* Threads: all functions on a model are for the one thread at a time that has its strategy; a history is read
   by that thread. Functions without either among their arguments: any thread at any time. */

#define MIRT_MAX_OPTIMIZERS 16
/* Another optimizer for some weights: fine-tuning often wants a smaller learning rate in the backbone than in the head.
   Each optimizer has its own state, clipping (global_clipnorm: of its weights together), weight decay and learning
   rate; they count steps together, and use_ema is set in all or none. A rate that changes is a `decay`, not a
   `schedule`; mirt_set_learning_rate, mirt_set_schedule and what calls them (ReduceLROnPlateau, LearningRateScheduler,
   `learning_rate` of mirt_fit) are MIRT_E_STATE then. Not for parameter servers. Keras: MultiOptimizer, OptimizerMap */
typedef struct mirt_optimizer_map {
    const char *weights;      /* as in mirt_set_trainable, or a weight's whole name; copied by mirt_compile */
    mirt_optimizer optimizer; /* all zeros: mirt_adam(1e-3) */
} mirt_optimizer_map;

/* A model with several outputs takes as many labels, in their order, one for each output that has a loss;
   the loss is the sum of the outputs' losses times their weights. Names in logs then begin with the output's
   layer: "digit_loss", "digit_accuracy". */
typedef struct mirt_compile_desc {
    mirt_optimizer optimizer; /* all zeros: mirt_adam(1e-3) */
    mirt_loss loss;           /* of every output that has none of its own below */
    bool from_logits; /* outputs, all of them (of one: loss_options), are what a softmax or sigmoid would begin with.
                         For an output that ends in the loss's own softmax or sigmoid nothing changes, but there is a
                         warning */
    mirt_reduction reduction;
    mirt_metric metrics[MIRT_MAX_METRICS]; /* of every output with a loss, or of one (`output` of its options); ends at
                                              the first MIRT_METRIC_NONE */
    mirt_loss losses[MIRT_MAX_OUTPUTS];
    float loss_weights[MIRT_MAX_OUTPUTS];  /* 0: 1 */
    const mirt_custom_loss *custom_losses[MIRT_MAX_OUTPUTS];       /* copied */
    const mirt_custom_metric *custom_metrics[MIRT_MAX_METRICS];    /* of every output with a loss; copied; ends at the
                                                                      first NULL */
    mirt_metric_options metric_options[MIRT_MAX_METRICS];          /* of metrics[i] */
    mirt_loss_options loss_options[MIRT_MAX_OUTPUTS];              /* of each output's loss */
    mirt_metric_options custom_metric_options[MIRT_MAX_METRICS];   /* of custom_metrics[i] */
    /* The first that names a weight updates it, `optimizer` all that none names; one that is the first for no weight is
       an error. Ends at the first without `weights` */
    mirt_optimizer_map optimizers[MIRT_MAX_OPTIMIZERS];
} mirt_compile_desc;

#ifndef MIRRORTRAIN_NO_TRAIN
/* Checks the recorded model, creates its weights and fixes optimizer, loss and metrics; desc NULL: all
   defaults, which is enough to predict. A second call keeps the weights, and starts optimizer state
   and step count anew. Returns the first error of the model's recording, if any; MIRT_E_STATE,
   MIRT_E_SHAPE, MIRT_E_INVALID, MIRT_E_NOMEM. Warns where from_logits and an output's activation do not go together. */
MIRT_API mirt_status mirt_compile(mirt_model *model, const mirt_compile_desc *desc);
/* Gives a compiled model other metrics, at most MIRT_MAX_METRICS; `options` may be NULL. Optimizer and custom metrics
   stay. What Keras does with another compile. Errors as mirt_compile, after which the metrics are as they were;
   MIRT_E_STATE while it is being trained. */
MIRT_API mirt_status mirt_set_metrics(mirt_model *model, const mirt_metric *metrics, const mirt_metric_options *options,
                                      int count);
#endif

MIRT__END_C

#endif /* MIRT__COMPILE_API_H */
