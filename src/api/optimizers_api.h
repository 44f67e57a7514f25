#ifndef MIRT__OPTIMIZERS_API_H
#define MIRT__OPTIMIZERS_API_H
/* Optimizers, schedules, losses and metrics. */

#include "data_api.h"
#include "models_api.h"

MIRT__BEGIN_C

/* >>optimizers, losses, metrics ----------------------------------------------------------- */
/* Threads: what makes an optimizer, a schedule or a loss by value: any thread at any time; what takes a strategy or a
   model: the one thread at a time that has it. */

/* The learning rate for 0-based `step`; must depend on its arguments alone. */
typedef float (*mirt_schedule_fn)(int64_t step, void *user);

typedef enum mirt_schedule_kind {
    MIRT_SCHEDULE_NONE = 0,
    MIRT_PIECEWISE_CONSTANT,
    MIRT_EXPONENTIAL_DECAY,
    MIRT_POLYNOMIAL_DECAY,
    MIRT_INVERSE_TIME_DECAY,
    MIRT_COSINE_DECAY,
    MIRT_COSINE_RESTARTS,
    MIRT__SCHEDULE_COUNT
} mirt_schedule_kind;
#define MIRT_MAX_BOUNDARIES 16
/* A learning rate as a function of the step, by value: saved and loaded with the model. Those below make one; their
   formulas are those of keras.optimizers.schedules, and steps count from 0. */
typedef struct mirt_schedule {
    mirt_schedule_kind kind;
    float initial;          /* learning rate */
    int64_t steps;          /* decay_steps; of restarts: of the first period */
    float rate;             /* exponential, inverse time: decay_rate */
    bool staircase;         /* these two: steps / decay_steps rounded down */
    float end, power;       /* polynomial */
    bool cycle;             /* polynomial: begins anew with decay_steps as often as it takes */
    float alpha;            /* cosine: the least, as a share of the initial rate (or of warmup_target) */
    int64_t warmup_steps;   /* cosine, may be set: straight from `initial` to warmup_target before the decay begins, */
    float warmup_target;    /* which ends at warmup_steps + steps */
    float t_mul, m_mul;     /* restarts: of each period, times longer and times as high as the one before */
    int boundaries;         /* piecewise: values[i] up to and with boundary[i], the last one after all */
    int64_t boundary[MIRT_MAX_BOUNDARIES];
    float value[MIRT_MAX_BOUNDARIES + 1];
} mirt_schedule;

#ifndef MIRRORTRAIN_NO_TRAIN
/* PiecewiseConstantDecay: `count` boundaries and count + 1 values, copied. More than MIRT_MAX_BOUNDARIES, or NULL, are
   an error of mirt_compile. */
MIRT_API mirt_schedule mirt_piecewise_constant(const int64_t *boundaries, const float *values, int count);
/* ExponentialDecay: initial * rate^(step / steps). */
MIRT_API mirt_schedule mirt_exponential_decay(float initial, int64_t steps, float rate, bool staircase);
/* PolynomialDecay: (initial - end) * (1 - step / steps)^power + end; Keras's defaults: end 1e-4, power 1. */
MIRT_API mirt_schedule mirt_polynomial_decay(float initial, int64_t steps, float end, float power, bool cycle);
/* InverseTimeDecay: initial / (1 + rate * step / steps). */
MIRT_API mirt_schedule mirt_inverse_time_decay(float initial, int64_t steps, float rate, bool staircase);
/* CosineDecay, without warm-up: initial * ((1 - alpha) * (1 + cos(pi * step / steps)) / 2 + alpha). Loshchilov & Hutter
   2017. */
MIRT_API mirt_schedule mirt_cosine_decay(float initial, int64_t steps, float alpha);
/* CosineDecayRestarts; Keras's defaults: t_mul 2, m_mul 1, alpha 0. */
MIRT_API mirt_schedule mirt_cosine_restarts(float initial, int64_t first_steps, float t_mul, float m_mul, float alpha);
/* The learning rate at 0-based `step`, in double precision; NAN when there is none. */
MIRT_API double mirt_schedule_at(const mirt_schedule *schedule, int64_t step);
#endif

/* Ramp up, sustain, decay, by epochs: from `start` to `max` in ramp_epochs, `max` for sustain_epochs, then towards
   `min` by the factor `decay` an epoch. `max` is usually scaled by the replicas. */
typedef struct mirt_lr_ramp_desc {
    float start, max, min;
    int ramp_epochs, sustain_epochs;
    float decay;
} mirt_lr_ramp_desc;
#ifndef MIRRORTRAIN_NO_TRAIN
/* For mirt_fit_desc.learning_rate, with a mirt_lr_ramp_desc as learning_rate_user. */
MIRT_API float mirt_lr_ramp(int epoch, float learning_rate, void *desc);
/* `rate` times the replicas of `strategy`: linear scaling, as the global batch grows with them. Goyal et al. 2017.
   `rate` for NULL. */
MIRT_API float mirt_scale_learning_rate(const mirt_strategy *strategy, float rate);
#endif

/* All optimizers: the constant, Keras's name, and the kernel that updates the weights. The first one is the default. */
#define MIRT_OPTIMIZER_LIST(X) \
    X(MIRT_ADAM, adam, adam) \
    X(MIRT_SGD, sgd, sgd) \
    X(MIRT_ADAMW, adamw, adam) \
    X(MIRT_RMSPROP, rmsprop, rmsprop) \
    X(MIRT_NADAM, nadam, nadam) \
    X(MIRT_ADAGRAD, adagrad, adagrad) \
    X(MIRT_ADAMAX, adamax, adamax) \
    X(MIRT_LION, lion, lion) \
    X(MIRT_ADADELTA, adadelta, adadelta) \
    X(MIRT_SCHEDULE_FREE_ADAMW, schedule_free_adamw, schedule_free) \
    X(MIRT_FTRL, ftrl, ftrl) \
    X(MIRT_LAMB, lamb, adam) \
    X(MIRT_MUON, muon, sgd) \
    X(MIRT_ADAFACTOR, adafactor, sgd)
#define MIRT__OPTIMIZER_VALUE(kind, name, kernel) kind,
typedef enum mirt_optimizer_kind {
    MIRT_OPTIMIZER_LIST(MIRT__OPTIMIZER_VALUE) MIRT__OPTIMIZER_COUNT
} mirt_optimizer_kind;
#undef MIRT__OPTIMIZER_VALUE
/* Fields that are zero are not used, unless something else is said. Norms are those of the gradient of the mean loss
   over the global batch, summed over all replicas: the same on any number of devices. */
typedef struct mirt_optimizer {
    mirt_optimizer_kind kind;
    float learning_rate;           /* SGD: 0 is 0 */
    /* The comment of an optimizer's function names those that it uses. */
    float beta_1, beta_2, epsilon, momentum;
    bool nesterov;
    mirt_schedule_fn schedule;     /* overrides learning_rate when set; not saved */
    void *schedule_user;
    mirt_schedule decay;           /* the same, saved with the model: overrides both */
    bool amsgrad;                  /* Adam, AdamW: Reddi et al. 2018 */
    float rho;
    bool centered;                 /* RMSprop: divided by the standard deviation of gradients */
    float weight_decay;            /* decoupled: weight -= weight * weight_decay * rate before the update. Loshchilov &
                                      Hutter 2019 */
    /* Words separated by commas: "bias,gamma,beta". A weight whose own name (that after the last '/') contains one of
       them does not decay. Copied by mirt_compile. */
    const char *exclude_from_weight_decay;
    float clipnorm;                /* the gradient of each weight is scaled down to this norm, */
    float global_clipnorm;         /* or all of them together to this, */
    float clipvalue;               /* or its elements are cut off at this: one of the three */
    bool use_ema;                  /* keeps averages of the weights, which they become when mirt_fit ends:
                                      mirt_apply_averages */
    float ema_momentum;            /* default 0.99 */
    int64_t ema_overwrite_frequency; /* the weights become their averages after every so many steps, too */
    float initial_accumulator_value; /* Adagrad, Ftrl */
    /* options of one optimizer alone */
    int64_t warmup_steps;            /* ScheduleFreeAdamW: the first steps, over which the rate rises */
    float l1_regularization_strength, l2_regularization_strength, l2_shrinkage_regularization_strength, beta; /* Ftrl */
    /* Muon; its beta_1 and beta_2 are Keras's adam_beta_1 and adam_beta_2 */
    float adam_weight_decay;       /* of weights that AdamW updates, */
    float adam_lr_ratio;           /* and their rate, by the others' */
    float rms_rate;                /* times the root of a weight's longer side: what the rate is multiplied by; 0: 1 */
    int ns_steps;                  /* 0 to 100 */
    bool exclude_embeddings;       /* weights whose names contain "embedding", in any case, are AdamW's, */
    const char *exclude_layers;    /* and those whose names, with those of layers, contain one of these words, separated
                                      by commas; copied by mirt_compile. In Keras they are regular expressions */
    float muon_a, muon_b, muon_c;  /* Muon: a step of its iteration, of which it takes ns_steps; may be negative, */
    float beta_2_decay;            /* as may this. Adafactor: step^beta_2_decay of each mean of squares is new; */
    float epsilon_2;               /* the least root mean square that a weight counts as having; */
    float clip_threshold;          /* the largest one of a direction */
} mirt_optimizer;

#ifndef MIRRORTRAIN_NO_TRAIN
/* Keras Adam: beta_1 0.9, beta_2 0.999, epsilon 1e-7. Kingma & Ba 2015. */
MIRT_API mirt_optimizer mirt_adam(float learning_rate);
/* Keras AdamW: Adam with a weight decay of 0.004. */
MIRT_API mirt_optimizer mirt_adamw(float learning_rate);
/* Keras SGD. Plain when momentum is 0. */
MIRT_API mirt_optimizer mirt_sgd(float learning_rate, float momentum, bool nesterov);
/* Keras RMSprop: rho 0.9, no momentum, epsilon 1e-7; its usual rate is 1e-3. Hinton 2012. */
MIRT_API mirt_optimizer mirt_rmsprop(float learning_rate);
/* Keras Nadam, Adam with Nesterov momentum: beta_1 0.9, beta_2 0.999, epsilon 1e-7. Dozat 2016. */
MIRT_API mirt_optimizer mirt_nadam(float learning_rate);
/* Keras Adagrad: initial_accumulator_value 0.1, epsilon 1e-7. Duchi et al. 2011. */
MIRT_API mirt_optimizer mirt_adagrad(float learning_rate);
/* Keras Adamax: beta_1 0.9, beta_2 0.999, epsilon 1e-7. Kingma & Ba 2015. */
MIRT_API mirt_optimizer mirt_adamax(float learning_rate);
/* Keras Lion: beta_1 0.9 (not 0), beta_2 0.99; its rate is a third to a tenth of Adam's. Chen et al. 2023. */
MIRT_API mirt_optimizer mirt_lion(float learning_rate);
/* Keras Adadelta: rho 0.95, epsilon 1e-7; the rate of the paper is 1. Zeiler 2012. */
MIRT_API mirt_optimizer mirt_adadelta(float learning_rate);
/* Keras ScheduleFreeAdamW, which needs no schedule: beta_1 0.9 (not 0), beta_2 0.999, epsilon 1e-8, no warm-up; its
   usual rate is 0.0025. Defazio et al. 2024. */
MIRT_API mirt_optimizer mirt_schedule_free_adamw(float learning_rate);
/* Keras Ftrl: initial_accumulator_value 0.1, no regularization; learning_rate_power is -0.5. A step
   whose rate is 0 changes nothing; Keras's divides by it, and weights become NaN. McMahan et al. 2013. */
MIRT_API mirt_optimizer mirt_ftrl(float learning_rate);
/* Keras Lamb, for large batches: Adam's step of each weight, made as long as the weight's norm times the rate: beta_1
   0.9, beta_2 0.999, epsilon 1e-7. You et al. 2020. */
MIRT_API mirt_optimizer mirt_lamb(float learning_rate);
/* Keras Muon: momentum of matrices, whose singular values are made about 1 by five products each (Newton-Schulz); other
   weights, and embeddings, as by AdamW. beta_1 0.9, beta_2 0.999, epsilon 1e-7, weight_decay and adam_weight_decay
   0.004, momentum 0.95 with nesterov, ns_steps 5, rms_rate 0.2; exclude_layers should name the last layer. Jordan et
   al. 2024, Liu et al. 2025. */
MIRT_API mirt_optimizer mirt_muon(float learning_rate);
/* Keras Adafactor: gradients divided by the roots of means of their squares, of matrices (the last two axes) by the
   means of rows and columns alone, at a rate by the weight's root mean square, which falls at least as 1 / sqrt(step):
   beta_2_decay -0.8, epsilon (Keras: epsilon_1) 1e-30, epsilon_2 1e-3, clip_threshold 1. Keras's relative_step changes
   nothing there. Shazeer & Stern 2018. */
MIRT_API mirt_optimizer mirt_adafactor(float learning_rate);

/* With use_ema: replaces the weights by their averages, on every device. mirt_fit calls it at its end; custom loops
   call it themselves. Does nothing before the first step. Keras: finalize_variable_values. MIRT_E_STATE: compiled without
   use_ema. */
MIRT_API mirt_status mirt_apply_averages(mirt_model *model);
#endif

/* All losses: the constant, Keras's name, the kind of labels, and the activation that from_logits leaves to the loss
   (MIRT_LINEAR: none). SPARSE and CATEGORICAL want outputs (rows, classes), or for each position (rows, height, width,
   classes) and the like. Labels of SPARSE are class numbers, one for each sample or position: [height, width] or
   [height, width, 1] in a sample, of any dtype. Labels of CATEGORICAL are one number for each class. Labels of GROUPS
   are one int for each sample, equal within a group; the output is an embedding (rows, n). Labels of the others have
   the output's shape; the loss is the mean over positions of what it makes of the last axis (of ELEMENTS, the mean over
   all outputs of a sample at once).
   Circle compares embeddings of length 1, as mirt_unit_normalization makes them, with those of all other samples that
   the same replica has of the step's batch, as Keras does under MirroredStrategy: more replicas make fewer pairs. The
   loss of a sample without a pair in its group, or without one in another group, is 0. The mean is that over all
   samples of the global batch whose loss is not 0. Sun et al. 2020. */
#define MIRT_LOSS_LIST(X) \
    X(MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, sparse_categorical_crossentropy, SPARSE, MIRT_SOFTMAX) \
    X(MIRT_CATEGORICAL_CROSSENTROPY, categorical_crossentropy, CATEGORICAL, MIRT_SOFTMAX) \
    X(MIRT_BINARY_CROSSENTROPY, binary_crossentropy, ELEMENTS, MIRT_SIGMOID) \
    X(MIRT_MEAN_SQUARED_ERROR, mean_squared_error, ELEMENTS, MIRT_LINEAR) \
    X(MIRT_MEAN_ABSOLUTE_ERROR, mean_absolute_error, ELEMENTS, MIRT_LINEAR) \
    X(MIRT_HUBER, huber, ELEMENTS, MIRT_LINEAR) \
    X(MIRT_HINGE, hinge, ELEMENTS, MIRT_LINEAR) \
    X(MIRT_SQUARED_HINGE, squared_hinge, ELEMENTS, MIRT_LINEAR) \
    X(MIRT_LOG_COSH, log_cosh, ELEMENTS, MIRT_LINEAR) \
    X(MIRT_KL_DIVERGENCE, kl_divergence, VALUES, MIRT_LINEAR) \
    X(MIRT_COSINE_SIMILARITY, cosine_similarity, VALUES, MIRT_LINEAR) \
    X(MIRT_BINARY_FOCAL_CROSSENTROPY, binary_focal_crossentropy, ELEMENTS, MIRT_SIGMOID) \
    X(MIRT_CATEGORICAL_FOCAL_CROSSENTROPY, categorical_focal_crossentropy, CATEGORICAL, MIRT_SOFTMAX) \
    X(MIRT_DICE, dice, VALUES, MIRT_LINEAR) \
    X(MIRT_TVERSKY, tversky, VALUES, MIRT_LINEAR) \
    X(MIRT_CATEGORICAL_GENERALIZED_CROSS_ENTROPY, categorical_generalized_cross_entropy, SPARSE, MIRT_SOFTMAX) \
    X(MIRT_CATEGORICAL_HINGE, categorical_hinge, CATEGORICAL, MIRT_LINEAR) \
    X(MIRT_POISSON, poisson, ELEMENTS, MIRT_LINEAR) \
    X(MIRT_MEAN_ABSOLUTE_PERCENTAGE_ERROR, mean_absolute_percentage_error, ELEMENTS, MIRT_LINEAR) \
    X(MIRT_MEAN_SQUARED_LOGARITHMIC_ERROR, mean_squared_logarithmic_error, ELEMENTS, MIRT_LINEAR) \
    X(MIRT_CIRCLE, circle, GROUPS, MIRT_LINEAR)
#define MIRT__LOSS_VALUE(loss, name, labels, activation) loss,
typedef enum mirt_loss { MIRT_LOSS_NONE = 0, MIRT_LOSS_LIST(MIRT__LOSS_VALUE) MIRT__LOSS_COUNT } mirt_loss;
#undef MIRT__LOSS_VALUE
/* How a loss is computed; all zeros: as in Keras. What a loss does not take is an error. */
typedef struct mirt_loss_options {
    bool from_logits;      /* the output is what the loss's softmax or sigmoid would begin with */
    float label_smoothing; /* crossentropies, focal ones too: 0 to 1, the share of each label that is dealt to all
                              classes (binary: to 0 and 1) alike; of class numbers as in PyTorch */
    bool has_ignore_class; /* sparse crossentropy: positions with this label do not count; the mean is that over all */
    int ignore_class;      /* others of the global batch. 255 or -1, say, or a class */
    float delta;           /* huber: default 1 */
    float alpha, gamma;    /* focal: default 0.25 and 2; circle: gamma, the scale, is 80 */
    bool has_gamma;        /* gamma is as given, 0 too */
    bool apply_class_balancing; /* binary focal: alpha weighs class 1, and 1 - alpha class 0 */
    unsigned axes;         /* dice, tversky: a ratio of sums over these, as in mirt_reduce_sum: 0xe, of (rows, height,
                              width, 1), is a ratio for each sample; 0: one of the global batch, as in Keras */
    float beta;            /* tversky: the weight of outputs where the label is 0; `alpha` is that of labels where the
                              output is 0, as in Keras; both 0: 0.5 each */
    float q;               /* generalized crossentropy: between 0 and 1, default 0.5 */
    float margin;          /* circle: default 0.4 */
    bool has_margin;       /* margin is as given, 0 too */
    bool keep_diagonal;    /* circle: each sample is also a pair with itself; Keras: remove_diagonal=False */
} mirt_loss_options;
/* By default the loss is the mean over the global batch and over each sample's positions, such as height and width.
   MIRT_SUM adds up both; a loss over several batches then is, as in Keras, the mean of their sums, weighted by their
   sizes. */
typedef enum mirt_reduction { MIRT_SUM_OVER_BATCH_SIZE = 0, MIRT_SUM } mirt_reduction;
/* Each is computed from sums over all samples: the same on any number of replicas and for any batch size. Weights of
   samples and classes count if the options say `weighted`. Of outputs (rows, height, width, classes) each position
   counts, with labels (height, width) or of the output's shape. Names in logs are Keras's
   ("sparse_top_k_categorical_accuracy", "f1_score", "mean_io_u"). */
typedef enum mirt_metric {
    MIRT_METRIC_NONE = 0,
    MIRT_ACCURACY, /* binary, sparse categorical or categorical accuracy by loss and shape, as in Keras */
    MIRT_BINARY_ACCURACY, MIRT_CATEGORICAL_ACCURACY, MIRT_SPARSE_CATEGORICAL_ACCURACY,
    MIRT_TOP_K_CATEGORICAL_ACCURACY, MIRT_SPARSE_TOP_K_CATEGORICAL_ACCURACY,
    MIRT_PRECISION, MIRT_RECALL, MIRT_F1_SCORE, MIRT_AUC, /* over all outputs of all samples together; class numbers
                                                             count as one-hot labels */
    MIRT_MAE, MIRT_MSE,
    MIRT_MEAN_IOU, /* mean, over the classes that occur, of intersection over union: Keras's MeanIoU with
                      sparse_y_pred=False; labels may be one-hot. Labels that are no class do not count */
    MIRT_TRUE_POSITIVES, MIRT_FALSE_POSITIVES, MIRT_TRUE_NEGATIVES, MIRT_FALSE_NEGATIVES, /* as precision */
    MIRT_ROOT_MEAN_SQUARED_ERROR, MIRT_R2_SCORE,
    MIRT_METRIC_COSINE_SIMILARITY,
    MIRT_METRIC_LOSS, /* the value of a loss, `loss` of the options, by its name: Keras's BinaryCrossentropy, Hinge,
                         KLDivergence, Poisson and so on. Labels of the class that the output's own loss ignores
                         (ignore_class) do not count */
    MIRT_FBETA_SCORE,
    MIRT_IOU,        /* mean IoU of the classes of `class_id` or `target_classes` */
    MIRT_BINARY_IOU, /* of each output by itself: class 1 is what is not below the threshold */
    MIRT_ONE_HOT_IOU, MIRT_ONE_HOT_MEAN_IOU,
    /* of the outputs along the last axis with their labels; mean over positions */
    MIRT_PEARSON_CORRELATION, MIRT_CONCORDANCE_CORRELATION,
    /* the best value, at any of the thresholds of AUC, where the other one is at least `at` */
    MIRT_SENSITIVITY_AT_SPECIFICITY, MIRT_SPECIFICITY_AT_SENSITIVITY, MIRT_PRECISION_AT_RECALL,
    MIRT_RECALL_AT_PRECISION,
    MIRT__METRIC_COUNT
} mirt_metric;
#define MIRT_MAX_METRICS 16

/* Whether small or large values of a log are better: what custom metrics declare, and callbacks that watch a log can be
   told. Losses and mean errors are minimized, all other built-in metrics maximized. AUTO: not declared; of a callback,
   as the metric declares. */
typedef enum mirt_mode { MIRT_MODE_AUTO = 0, MIRT_MODE_MIN, MIRT_MODE_MAX } mirt_mode;

typedef enum mirt_curve { MIRT_ROC = 0, MIRT_PR } mirt_curve;
/* How precision, recall, F1 and F-beta make one number of several outputs. AUTO: all outputs are counted together at
   the threshold, 0.5. MICRO, MACRO and WEIGHTED (by the classes' labels) are Keras's F1Score(average=...): they count
   each class (mirt_metric_result) and, without `threshold` and `k`, take the largest output of a row for a 1, all
   others for 0. */
typedef enum mirt_average { MIRT_AVERAGE_AUTO = 0, MIRT_MICRO, MIRT_MACRO, MIRT_WEIGHTED } mirt_average;
/* How a metric is computed; all zeros: as Keras does. Of custom metrics `name`, `output` and `weighted` count. */
typedef struct mirt_metric_options {
    int k;              /* top k: default 5. Precision, recall, F1 and the counts of positives and negatives: only the
                           k largest outputs of a row can be 1, above the threshold if one is given (Keras: top_k) */
    float threshold;    /* binary accuracy, precision, recall, F1, counts of positives and negatives, IoU of one output:
                           what is above counts as 1, and for MIRT_BINARY_IOU what equals it; default 0.5 */
    int num_thresholds; /* AUC and the metrics "at" another one: default 200 */
    mirt_curve curve;   /* AUC: of true against false positives, or of precision against recall */
    bool from_logits;   /* outputs that mirt_compile's from_logits calls logits go through a sigmoid first (a softmax
                           where the loss undoes one), as threshold and AUC are of probabilities; without, they are
                           taken as they are */
    const char *name;   /* in logs; copied. Default: Keras's, with "_1", "_2" appended where it is taken */
    bool has_threshold; /* the threshold is as given, 0 too (of logits, say) */
    mirt_average average;  /* precision, recall, F1, F-beta */
    bool weighted;         /* by the samples' weights and, in training, those of classes (Keras: weighted_metrics) */
    const char *output;    /* only of the output that the layer of this name makes, as logs call it; copied. NULL: of
                              every output with a loss. Keras: metrics={"digit": [...]} */
    int class_id;          /* precision, recall, F1, F-beta, counts of positives and negatives, IoU, AUC, metrics "at"
                              another one: of this class alone */
    bool has_class_id;     /* class_id is as given, 0 too */
    int num_classes;       /* IoU; 0: the number of outputs of a position */
    int ignore_class;      /* IoU: positions of this label do not count */
    bool has_ignore_class; /* ignore_class is as given, 0 too */
    bool sparse_y_pred;    /* IoU: each output is the number of a class, of num_classes */
    mirt_loss loss;        /* MIRT_METRIC_LOSS, without its other options */
    float beta;            /* F-beta: what recall weighs against precision; default 1 */
    float at;              /* sensitivity at specificity and the like: 0 to 1 */
    unsigned target_classes; /* IoU: bit i: class i, of the first 31, is one of those whose mean it is; 0: all, or
                                class_id. Keras: target_class_ids */
} mirt_metric_options;

/* A custom loss: records operations on labels (as they are in the data, cast to float32) and an
   output; returns one value per sample (the library averages over the global batch), or several, (rows, ...), which are
   averaged too; MIRT_SUM sums all of them. */
typedef struct mirt_custom_loss {
    const char *name;
    mirt_tensor *(*record)(mirt_tensor *labels, mirt_tensor *output, void *user);
    void *user;
} mirt_custom_loss;
/* A custom metric: records a value for each sample, or several (rows, n). They are summed over all
   samples in double precision; `result` makes the metric of the `count` sums; NULL: their mean. */
typedef struct mirt_custom_metric {
    const char *name;
    mirt_tensor *(*record)(mirt_tensor *labels, mirt_tensor *output, void *user);
    double (*result)(const double *sums, int count, int64_t samples, void *user);
    void *user;
    /* AUTO: not declared. A callback that watches it then needs a `mode`, and reports name no best epoch. */
    mirt_mode direction;
} mirt_custom_metric;

#ifndef MIRRORTRAIN_NO_TRAIN
/* Makes them known to mirt_load, by name, as mirt_compile does too. Copied. MIRT_E_INVALID, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_register_loss(mirt_strategy *strategy, const mirt_custom_loss *loss);
MIRT_API mirt_status mirt_register_metric(mirt_strategy *strategy, const mirt_custom_metric *metric);

/* How often samples of class i were taken for class j, over one pass of a data set with labels: counts[i * classes +
   j]. `classes` is as many as the model's output has, or 2 where that is one number (above 0.5, or of logits
   (mirt_output_scores) above 0, is class 1). Needs no mirt_compile. Errors as mirt_predict. */
MIRT_API mirt_status mirt_confusion_matrix(mirt_model *model, mirt_dataset *dataset, int64_t *counts, int classes);
/* A picture of it, true classes down and predicted ones across, each cell as deep as its share of the row. `names`, of
   the classes (mirt_model_class_names), may be NULL. Up to 4096 classes. MIRT_E_INVALID (also for a negative count, or
   a row of more than 2^53 samples), MIRT_E_IO, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_save_confusion_png(const char *path, const int64_t *counts, int classes,
                                             const char *const *names);
#endif

MIRT__END_C

#endif /* MIRT__OPTIMIZERS_API_H */
