/* The table of losses, and how they are recorded. */

#include "model.h"
#include "../ops/ops.h"

#define MIRT__LOSS_SPARSE true, true, true
#define MIRT__LOSS_CATEGORICAL true, true, false
#define MIRT__LOSS_GROUPS true, false, true
#define MIRT__LOSS_VALUES true, false, false
#define MIRT__LOSS_ELEMENTS false, false, false
#define MIRT__LOSS_ROW(loss, name, labels, activation) {#name, MIRT__LOSS_##labels, activation},
static const mirt__loss_class mirt__loss_table[] = {
    {"none", false, false, false, MIRT_LINEAR},
    MIRT_LOSS_LIST(MIRT__LOSS_ROW)
};
MIRT__STATIC_ASSERT(MIRT__COUNT(mirt__loss_table) == MIRT__LOSS_COUNT, "a row for each loss");
#undef MIRT__LOSS_SPARSE
#undef MIRT__LOSS_CATEGORICAL
#undef MIRT__LOSS_GROUPS
#undef MIRT__LOSS_VALUES
#undef MIRT__LOSS_ELEMENTS
#undef MIRT__LOSS_ROW

MIRT__LIB const mirt__loss_class *mirt__loss_class_get(mirt_loss loss) {
    return (int)loss >= 0 && loss < MIRT__LOSS_COUNT ? &mirt__loss_table[loss] : NULL;
}

static mirt_loss mirt__output_loss_kind(const mirt_model *model, int output) {
    return model->config.losses[output] ? model->config.losses[output] : model->config.loss;
}

MIRT__LIB const mirt__loss_class *mirt__output_loss(const mirt_model *model, int output) {
    return model->config.custom_losses[output] ? NULL : &mirt__loss_table[mirt__output_loss_kind(model, output)];
}

MIRT__LIB const char *mirt__output_loss_name(const mirt_model *model, int output) {
    const mirt_custom_loss *custom = model->config.custom_losses[output];
    return custom ? custom->name : mirt__output_loss(model, output)->name;
}

MIRT__LIB bool mirt__output_has_loss(const mirt_model *model, int output) {
    return model->config.custom_losses[output] || mirt__output_loss_kind(model, output);
}

MIRT__LIB int mirt__label_number(const mirt_model *model, int output) {
    int n = 0;
    for (int i = 0; i < output; i++) n += mirt__output_has_loss(model, i);
    return n;
}

MIRT__LIB int mirt__num_labels(const mirt_model *model) { return mirt__label_number(model, model->num_outputs); }

MIRT__LIB int64_t mirt__label_count(const mirt_model *model, int output) {
    const mirt__loss_class *cls = mirt__output_loss(model, output);
    const mirt_tensor *t = model->output[output];
    return !cls ? -1 : cls->sparse ? mirt__positions(t) : mirt__shape_count(&t->shape);
}

MIRT__LIB bool mirt__output_logits(const mirt_model *model, int output) {
    return model->config.from_logits || model->config.loss_options[output].from_logits;
}

/* X(kind of field, option): the fields of mirt_loss_options, by which files name them. */
#define MIRT__LOSS_OPTION_LIST(X) \
    X(BOOL, from_logits) X(FLOAT, label_smoothing) X(BOOL, has_ignore_class) X(SIGNED, ignore_class) X(FLOAT, delta) \
    X(FLOAT, alpha) X(FLOAT, gamma) X(BOOL, has_gamma) X(BOOL, apply_class_balancing) X(INT, axes) X(FLOAT, beta) \
    X(FLOAT, q) X(FLOAT, margin) X(BOOL, has_margin) X(BOOL, keep_diagonal)
#define MIRT__LOSS_OPTION_NUMBER(kind, option) MIRT__LOSS_OPTION_##option,
enum { MIRT__LOSS_OPTION_LIST(MIRT__LOSS_OPTION_NUMBER) MIRT__LOSS_OPTION_COUNT };
#undef MIRT__LOSS_OPTION_NUMBER

/* The options that a loss takes, as bits; any takes from_logits. */
static unsigned mirt__loss_takes(mirt_loss loss) {
#define MIRT__TAKES(option) (1u << MIRT__LOSS_OPTION_##option)
    const unsigned any = MIRT__TAKES(from_logits), smooth = any | MIRT__TAKES(label_smoothing),
                   scaled = any | MIRT__TAKES(gamma) | MIRT__TAKES(has_gamma),
                   focal = smooth | scaled | MIRT__TAKES(alpha);
    switch (loss) {
    case MIRT_SPARSE_CATEGORICAL_CROSSENTROPY:
        return smooth | MIRT__TAKES(has_ignore_class) | MIRT__TAKES(ignore_class);
    case MIRT_CATEGORICAL_CROSSENTROPY:
    case MIRT_BINARY_CROSSENTROPY: return smooth;
    case MIRT_BINARY_FOCAL_CROSSENTROPY: return focal | MIRT__TAKES(apply_class_balancing);
    case MIRT_CATEGORICAL_FOCAL_CROSSENTROPY: return focal;
    case MIRT_HUBER: return any | MIRT__TAKES(delta);
    case MIRT_DICE: return any | MIRT__TAKES(axes);
    case MIRT_TVERSKY: return any | MIRT__TAKES(axes) | MIRT__TAKES(alpha) | MIRT__TAKES(beta);
    case MIRT_CATEGORICAL_GENERALIZED_CROSS_ENTROPY: return any | MIRT__TAKES(q);
    case MIRT_CIRCLE:
        return scaled | MIRT__TAKES(margin) | MIRT__TAKES(has_margin) | MIRT__TAKES(keep_diagonal);
    default: return any;
    }
#undef MIRT__TAKES
}

MIRT__LIB int mirt__loss_fields(const mirt__field **fields) {
#define MIRT__OPTION(kind, option) MIRT__OPTIONAL_FIELD(mirt_loss_options, kind, option),
    static const mirt__field list[] = {MIRT__LOSS_OPTION_LIST(MIRT__OPTION)};
#undef MIRT__OPTION
    *fields = list;
    return MIRT__LOSS_OPTION_COUNT;
}

/* What the number of a field must be; NULL: it is. */
static const char *mirt__option_want(int field, float value) {
    if (field == MIRT__LOSS_OPTION_label_smoothing) return value >= 0 && value <= 1 ? NULL : "0 to 1";
    if (field == MIRT__LOSS_OPTION_q) return value >= 0 && value < 1 ? NULL : "between 0 and 1";
    if (field == MIRT__LOSS_OPTION_margin) return fabsf(value) <= FLT_MAX ? NULL : "finite";
    return value >= 0 && value <= FLT_MAX ? NULL : "finite and not negative";
}

MIRT__LIB mirt_status mirt__loss_options_check(const char *name, mirt_loss loss, const mirt_loss_options *o,
                                               int rank) {
    const unsigned takes = mirt__loss_takes(loss);
    const mirt__field *field;
    const int fields = mirt__loss_fields(&field);
    for (int i = 0; i < fields; i++) {
        if (mirt__fields_zero(&field[i], 1, o)) continue;
        const char *option = field[i].name + (strncmp(field[i].name, "has_", 4) == 0 ? 4 : 0);
        if (!(takes >> i & 1)) return mirt__fail(MIRT_E_INVALID, "%s has no option %s", name, option);
        if (field[i].kind != MIRT__FIELD_FLOAT) continue;
        const float value = *(const float *)(const void *)((const char *)o + field[i].offset);
        const char *want = mirt__option_want(i, value);
        if (want) return mirt__fail(MIRT_E_INVALID, "%s: %s is %g; it must be %s", name, option, (double)value, want);
    }
    if (o->ignore_class && !o->has_ignore_class)
        return mirt__fail(MIRT_E_INVALID, "%s: ignore_class is %d without has_ignore_class", name, o->ignore_class);
    if (o->axes >> rank)
        return mirt__fail(MIRT_E_INVALID, "%s: the output has %d axes, those of the sums are 0x%x", name, rank,
                          o->axes);
    return MIRT_OK;
}

static bool mirt__loss_shape_fits(mirt_loss loss, const mirt_tensor *output) {
    char text[96];
    if (loss != MIRT_CIRCLE || output->shape.rank == 2) return true;
    return mirt__fail(MIRT_E_SHAPE, "circle needs embeddings (rows, n), not %s: flatten the output",
                      mirt__shape_text(&output->shape, text)),
           false;
}

MIRT__LIB bool mirt__custom_named(const char *name) { return name && mirt__utf8_valid(name, strlen(name)); }

static mirt_status mirt__loss_check(mirt_model *model, int output) {
    const mirt_tensor *t = model->output[output];
    const mirt_custom_loss *custom = model->config.custom_losses[output];
    float weight = model->config.loss_weights[output];
    char text[96];
    if (!(weight >= 0 && weight <= FLT_MAX))
        return mirt__fail(MIRT_E_INVALID, "the loss weight of output %d is %g; it must be finite and not negative",
                          output, (double)weight);
    const mirt_loss_options *options = &model->config.loss_options[output];
    const mirt_loss kind = custom ? MIRT_LOSS_NONE : mirt__output_loss_kind(model, output);
    if (!custom && !mirt__loss_class_get(kind)) return mirt__fail(MIRT_E_INVALID, "invalid loss (%d)", (int)kind);
    if (mirt__loss_options_check(custom          ? "a custom loss"
                                 : kind          ? mirt__loss_table[kind].name
                                                 : "an output without a loss",
                                 kind, options, t->shape.rank) != MIRT_OK)
        return mirt__fail_at("output %d", output);
    if (custom) {
        model->config.custom_losses[output] = mirt__custom_loss_of(model->strategy, custom);
        return model->config.custom_losses[output] ? MIRT_OK : mirt__fail_at("output %d", output);
    }
    if (!mirt__loss_shape_fits(kind, t)) return mirt_last_status();
    const mirt__loss_class *cls = mirt__output_loss(model, output);
    if (!cls->classes || (t->shape.rank >= 2 && mirt__last_dim(t) >= 2)) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "%s needs an output of (rows, classes) or (rows, ..., classes); %s is %s",
                      cls->name, mirt__output_name(model, output), mirt__shape_text(&t->shape, text));
}

MIRT__LIB mirt_status mirt__losses_check(mirt_model *model) {
    if (!mirt__loss_class_get(model->config.loss))
        return mirt__fail(MIRT_E_INVALID, "invalid loss (%d)", (int)model->config.loss);
    for (int i = 0; i < model->num_outputs; i++) {
        if (mirt__loss_check(model, i) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

static mirt_activation_kind mirt__last_activation(const mirt__node *node) {
    return node->id == MIRT__OP_softmax ? MIRT_SOFTMAX : mirt__activation_of(node);
}

MIRT_API mirt_loss mirt_output_loss(const mirt_model *model, int output) {
    if (!model || !model->compiled || output < 0 || output >= model->num_outputs) return MIRT_LOSS_NONE;
    return model->config.custom_losses[output] ? MIRT_LOSS_NONE : mirt__output_loss_kind(model, output);
}

MIRT_API mirt_scores mirt_output_scores(const mirt_model *model, int output) {
    if (!model || output < 0 || output >= model->num_outputs) return MIRT_SCORES_OTHER;
    const mirt__node *node = model->output[output]->node;
    while (node->op->alias) node = node->in[0]->node; /* flattening keeps the numbers */
    const mirt_activation_kind activation = mirt__last_activation(node);
    if (activation == MIRT_SIGMOID || activation == MIRT_SOFTMAX) return MIRT_SCORES_PROBABILITIES;
    const mirt__loss_class *cls = model->compiled ? mirt__output_loss(model, output) : NULL;
    const bool entropy = cls && cls->undo != MIRT_LINEAR,
               logits = model->compiled && mirt__output_logits(model, output);
    if (!logits) return entropy ? MIRT_SCORES_PROBABILITIES : MIRT_SCORES_OTHER;
    const bool one = entropy ? cls->undo == MIRT_SIGMOID : mirt__last_dim(model->output[output]) == 1;
    return one ? MIRT_SCORES_SIGMOID_LOGITS : MIRT_SCORES_SOFTMAX_LOGITS;
}

/* Treating probabilities as logits, or a layer's plain sums as probabilities, trains badly without an error. */
MIRT__LIB void mirt__losses_warn(const mirt_model *model) {
    for (int i = 0; i < model->num_outputs; i++) {
        const mirt__loss_class *cls = mirt__output_loss(model, i);
        const mirt__node *node = model->output[i]->node;
        const char *name = node->name ? node->name : model->name,
                   *softmax = cls && cls->undo == MIRT_SIGMOID ? "sigmoid" : "softmax";
        if (!cls || cls->undo == MIRT_LINEAR) continue;
        if (mirt__output_logits(model, i) && mirt__last_activation(node) == cls->undo) {
            mirt__log(model->strategy, MIRT_LOG_WARNING,
                      "%s: from_logits is set, but %s ends in a %s: the loss uses the input of the %s; leave out one "
                      "of the two",
                      model->name, name, softmax, softmax);
        } else if (!mirt__output_logits(model, i) && node->op->weighted_sum) {
            mirt__log(model->strategy, MIRT_LOG_WARNING,
                      "%s: %s takes probabilities, but %s has no activation: give it MIRT_%s, or set from_logits",
                      model->name, cls->name, name, cls->undo == MIRT_SIGMOID ? "SIGMOID" : "SOFTMAX");
        }
    }
}

MIRT__LIB mirt_tensor *mirt__labels_form(bool sparse, mirt_tensor *labels, const mirt_tensor *output) {
    mirt_shape shape = output->shape;
    if (!labels) return NULL;
    if (sparse) shape.rank--;
    labels = mirt_cast(labels, sparse ? MIRT_INT32 : MIRT_FLOAT32);
    return labels && mirt__shape_count(&labels->shape) == mirt__shape_count(&shape) ? mirt__reshape_op(labels, &shape)
                                                                                    : labels;
}

/* If probabilities come directly from the loss's own activation (softmax, sigmoid), the loss is computed from the input
   of that activation, which is more accurate; also with from_logits, since the output is not logits. Keras does the
   same. */
static mirt_tensor *mirt__loss_input(const mirt__loss_class *cls, mirt_tensor *output, bool *from_logits) {
    const mirt__node *node = output->node;
    if (cls->undo == MIRT_LINEAR || mirt__last_activation(node) != cls->undo) return output;
    *from_logits = true;
    return node->in[0];
}

/* >>losses that consist of other operations, of outputs x and labels t */

static mirt_tensor *mirt__along_last(mirt__reduce_kind kind, mirt_tensor *x, bool keepdims) {
    return x && x->shape.rank > 1 ? mirt__reduce_op(kind, x, 1u << (x->shape.rank - 1), keepdims) : x;
}

/* The mean over a sample: one loop over all its elements, also where the last axis is short. */
static mirt_tensor *mirt__mean_of_sample(mirt_tensor *x) {
    return x && x->shape.rank > 1 ? mirt_reduce_mean(x, 0, false) : x;
}

static mirt_tensor *mirt__sum_of_last(mirt_tensor *x) { return mirt__along_last(MIRT__REDUCE_SUM, x, false); }

static mirt_tensor *mirt__not_below(mirt_tensor *x, float low) { return mirt_clip(x, low, FLT_MAX); }

/* Probabilities of 0 and 1 would have infinite logarithms. */
static mirt_tensor *mirt__log_of_clipped(mirt_tensor *p) { return mirt_log(mirt_clip(p, 1e-7f, 1 - 1e-7f)); }

/* p^exponent, whose derivative may be infinite at 0; there it is 0, which it is of denormals, too. */
static mirt_tensor *mirt__power_of_share(mirt_tensor *p, float exponent) {
    mirt_tensor *some = mirt_cast(mirt_less(mirt__scalar_op(p->node->graph, 0), p), MIRT_FLOAT32);
    return mirt_multiply(some, mirt_power(mirt__not_below(p, FLT_MIN), exponent));
}

/* Squared up to delta, straight beyond it. */
static mirt_tensor *mirt__huber(mirt_tensor *off, float delta) {
    mirt_tensor *inner = mirt_clip(off, -delta, delta);
    return mirt__mean_of_sample(mirt_multiply(inner, mirt_subtract(off, mirt_scale(inner, 0.5f, 0))));
}

/* max(1 - t x, 0) with labels of -1 and 1; 0 is -1, as Keras has it where all labels are 0 or 1. */
static mirt_tensor *mirt__hinge(mirt_tensor *x, mirt_tensor *t) {
    mirt_tensor *zero = mirt_cast(mirt_equal(t, mirt__scalar_op(t->node->graph, 0)), MIRT_FLOAT32);
    return mirt_relu(mirt_scale(mirt_multiply(mirt_subtract(t, zero), x), -1, 1));
}

/* By how much the largest output of another class is not at least 1 below `own`, the label's. */
static mirt_tensor *mirt__categorical_hinge(mirt_tensor *x, mirt_tensor *own) {
    mirt_tensor *other = mirt__along_last(MIRT__REDUCE_MAX, mirt_subtract(x, own), false);
    return mirt_relu(mirt_scale(mirt_subtract(other, mirt__sum_of_last(own)), 1, 1));
}

/* log(cosh(off)) in the form that cannot overflow. The gradient of that form, 1 - 2 sigmoid(-2 |off|), cancels where
   `off` is close to 0: instead a term that is 0 has the gradient tanh(off), which is refused where it would be
   differentiated again. */
static mirt_tensor *mirt__log_cosh(mirt_tensor *off) {
    mirt_tensor *fixed = mirt_stop_gradient(off), *size = mirt_abs(fixed);
    mirt_tensor *value = mirt_add(size, mirt_scale(mirt_softplus(mirt_scale(size, -2, 0)), 1, -0.69314718f));
    return mirt__mean_of_sample(mirt_add(value, mirt_multiply(mirt_tanh(off), mirt_subtract(off, fixed))));
}

/* t log(t / x), both between 1e-7 and 1. */
static mirt_tensor *mirt__kl_divergence(mirt_tensor *x, mirt_tensor *t) {
    t = mirt_clip(t, 1e-7f, 1);
    return mirt__sum_of_last(mirt_multiply(t, mirt_log(mirt_divide(t, mirt_clip(x, 1e-7f, 1)))));
}

/* 1 / the norm of what lies along the last axis, of which Keras takes at most 1e7. */
static mirt_tensor *mirt__inverse_norm(mirt_tensor *x) {
    return mirt_rsqrt(mirt__not_below(mirt__sum_of_last(mirt_square(x)), 1e-14f));
}

/* m^gamma times the binary crossentropy, where m is the probability of the wrong class; Keras takes it as it is, not
   clipped. p and q are the probabilities of 1 and 0. With apply_class_balancing class 1 weighs alpha and class 0 the
   rest. Lin et al. 2018. */
static mirt_tensor *mirt__binary_focal(const mirt_loss_options *how, mirt_tensor *x, mirt_tensor *t) {
    mirt_tensor *p = how->from_logits ? mirt_sigmoid(x) : x;
    mirt_tensor *q = how->from_logits ? mirt_sigmoid(mirt_negative(x)) : mirt_scale(x, -1, 1);
    t = mirt_scale(t, 1 - how->label_smoothing, how->label_smoothing / 2);
    mirt_tensor *rest = mirt_scale(t, -1, 1);
    mirt_tensor *entropy = how->from_logits ? mirt_subtract(mirt_softplus(x), mirt_multiply(x, t))
                                            : mirt_negative(mirt_add(mirt_multiply(t, mirt__log_of_clipped(p)),
                                                                     mirt_multiply(rest, mirt__log_of_clipped(q))));
    mirt_tensor *wrong = mirt_add(mirt_multiply(t, q), mirt_multiply(rest, p));
    if (how->apply_class_balancing)
        entropy = mirt_multiply(entropy, mirt_scale(t, 2 * how->alpha - 1, 1 - how->alpha));
    return mirt__mean_of_sample(mirt_multiply(entropy, mirt__power_of_share(wrong, how->gamma)));
}

/* The sum of -t * log p * alpha * (1 - p)^gamma over classes. */
static mirt_tensor *mirt__categorical_focal(const mirt_loss_options *how, mirt_tensor *x, mirt_tensor *t) {
    mirt_tensor *p = how->from_logits ? mirt_softmax(x) : mirt_divide(x, mirt__along_last(MIRT__REDUCE_SUM, x, true));
    p = mirt_clip(p, 1e-7f, 1 - 1e-7f);
    t = mirt_scale(t, 1 - how->label_smoothing, how->label_smoothing / (float)mirt__last_dim(x));
    mirt_tensor *weight = mirt_multiply(t, mirt_power(mirt_scale(p, -1, 1), how->gamma));
    return mirt_scale(mirt__sum_of_last(mirt_multiply(weight, mirt_log(p))), -how->alpha, 0);
}

/* 1 - factor * the sum of `part` / the sum of `whole`: a number for each place of the axes that are kept. Sums over
   rows are those of the global batch. */
static mirt_tensor *mirt__overlap_loss(unsigned axes, float factor, mirt_tensor *part, mirt_tensor *whole) {
    mirt_tensor *sum[2] = {part, whole};
    for (int i = 0; i < 2; i++) { /* by themselves: the gradient of an all-reduce is of one tensor */
        if (!sum[i]) return NULL;
        sum[i] = mirt__reduce_op(MIRT__REDUCE_SUM, sum[i], axes ? axes : (1u << sum[i]->shape.rank) - 1, false);
        if (axes && !(axes & 1u)) continue;
        if (!sum[i] || !mirt__all_reduce_op(&sum[i], 1, MIRT__ALL_REDUCE_SUM)) return NULL;
    }
    return mirt_scale(mirt_divide(sum[0], mirt_scale(sum[1], 1, 1e-7f)), -factor, 1);
}

/* Of hits t x, of missed labels t (1 - x), and of outputs without a label x (1 - t). */
static mirt_tensor *mirt__tversky(const mirt_loss_options *how, mirt_tensor *x, mirt_tensor *t) {
    const bool even = how->alpha == 0 && how->beta == 0;
    const float alpha = even ? 0.5f : how->alpha, beta = even ? 0.5f : how->beta;
    mirt_tensor *hits = mirt_multiply(t, x), *others = mirt_add(mirt_scale(t, alpha, 0), mirt_scale(x, beta, 0));
    return mirt__overlap_loss(how->axes, 1, hits, mirt_add(mirt_scale(hits, 1 - alpha - beta, 0), others));
}

/* (1 - p^q) / q of the label's probability p. Zhang & Sabuncu 2018. */
static mirt_tensor *mirt__generalized_crossentropy(const mirt_loss_options *how, mirt_tensor *x, mirt_tensor *t) {
    const float q = how->q != 0 ? how->q : 0.5f;
    mirt_tensor *p = mirt_multiply(how->from_logits ? mirt_softmax(x) : x, mirt_one_hot(t, mirt__last_dim(x)));
    return mirt_scale(mirt__power_of_share(mirt__sum_of_last(p), q), -1 / q, 1 / q);
}

static mirt_tensor *mirt__log_1p(mirt_tensor *x) { return mirt_log(mirt_scale(mirt__not_below(x, 1e-7f), 1, 1)); }

MIRT__LIB mirt_tensor *mirt__loss_of(mirt_loss loss, const mirt_loss_options *options, mirt_tensor *output,
                                     mirt_tensor *labels) {
    const mirt__loss_class *cls = &mirt__loss_table[loss];
    mirt_loss_options how = *options;
    mirt_tensor *t = mirt__labels_form(cls->sparse, labels, output);
    if (!t) return NULL;
    mirt_tensor *x = mirt__loss_input(cls, output, &how.from_logits);
    if (how.delta == 0) how.delta = 1;
    if (how.alpha == 0) how.alpha = 0.25f;
    if (how.gamma == 0 && !how.has_gamma) how.gamma = loss == MIRT_CIRCLE ? 80 : 2;
    if (how.margin == 0 && !how.has_margin) how.margin = 0.4f;
    if (!mirt__loss_shape_fits(loss, x) || !mirt__labels_fit(x, t, cls->positions)) {
        mirt__graph_poison(output->node->graph);
        return NULL;
    }
    switch (loss) {
    case MIRT_MEAN_ABSOLUTE_ERROR: return mirt__mean_of_sample(mirt_abs(mirt_subtract(x, t)));
    case MIRT_HUBER: return mirt__huber(mirt_subtract(x, t), how.delta);
    case MIRT_HINGE: return mirt__mean_of_sample(mirt__hinge(x, t));
    case MIRT_SQUARED_HINGE: return mirt__mean_of_sample(mirt_square(mirt__hinge(x, t)));
    case MIRT_LOG_COSH: return mirt__log_cosh(mirt_subtract(x, t));
    case MIRT_KL_DIVERGENCE: return mirt__kl_divergence(x, t);
    case MIRT_COSINE_SIMILARITY:
        return mirt_negative(mirt_multiply(mirt__sum_of_last(mirt_multiply(t, x)),
                                           mirt_multiply(mirt__inverse_norm(x), mirt__inverse_norm(t))));
    case MIRT_BINARY_FOCAL_CROSSENTROPY: return mirt__binary_focal(&how, x, t);
    case MIRT_CATEGORICAL_FOCAL_CROSSENTROPY: return mirt__categorical_focal(&how, x, t);
    case MIRT_DICE: return mirt__overlap_loss(how.axes, 2, mirt_multiply(t, x), mirt_add(t, x));
    case MIRT_TVERSKY: return mirt__tversky(options, x, t);
    case MIRT_CATEGORICAL_GENERALIZED_CROSS_ENTROPY: return mirt__generalized_crossentropy(&how, x, t);
    case MIRT_CATEGORICAL_HINGE: return mirt__categorical_hinge(x, mirt_multiply(t, x));
    case MIRT_POISSON:
        return mirt__mean_of_sample(mirt_subtract(x, mirt_multiply(t, mirt_log(mirt_scale(x, 1, 1e-7f)))));
    case MIRT_MEAN_ABSOLUTE_PERCENTAGE_ERROR:
        t = mirt_divide(mirt_abs(mirt_subtract(x, t)), mirt__not_below(mirt_abs(t), 1e-7f));
        return mirt_scale(mirt__mean_of_sample(t), 100, 0);
    case MIRT_MEAN_SQUARED_LOGARITHMIC_ERROR:
        return mirt__mean_of_sample(mirt_square(mirt_subtract(mirt__log_1p(x), mirt__log_1p(t))));
    case MIRT_CIRCLE: return mirt_softplus(mirt__sum_of_last(mirt__loss_op(loss, &how, x, t)));
    default: return mirt__loss_op(loss, &how, x, t);
    }
}

MIRT__LIB mirt_tensor *mirt__loss_counted(mirt_loss loss, mirt_reduction reduction, mirt_tensor *values) {
    if (loss != MIRT_CIRCLE || reduction == MIRT_SUM || !values) return values;
    mirt_tensor *counts = mirt_cast(mirt_less(mirt__scalar_op(values->node->graph, 0), values), MIRT_FLOAT32);
    mirt_tensor *share = mirt__reduce_op(MIRT__REDUCE_MEAN, counts, 1, false);
    return mirt_divide(values, mirt__not_below(mirt__all_reduce_op(&share, 1, MIRT__ALL_REDUCE_MEAN), FLT_MIN));
}

MIRT__LIB mirt_tensor *mirt__custom_result(const char *kind, const char *name, const mirt_tensor *output,
                                           mirt_tensor *value, bool fits, const char *want) {
    mirt__graph *graph = output->node->graph;
    char text[96];
    if (graph->status != MIRT_OK) {
        mirt__fail(graph->status, "the custom %s %s: %s", kind, name, graph->error);
        snprintf(graph->error, sizeof graph->error, "%s", mirt_last_error());
    } else if (!value) mirt__fail(MIRT_E_CALLBACK, "the custom %s %s returned nothing", kind, name);
    else if (value->node->graph != graph)
        mirt__fail(MIRT_E_CALLBACK, "the custom %s %s returned a tensor of another model or function", kind, name);
    else if (fits && value->dtype == MIRT_FLOAT32) return value;
    else
        mirt__fail(MIRT_E_CALLBACK, "the custom %s %s returned %s %s; it must be float32: %s", kind, name,
                   mirt__dtype_name(value->dtype), mirt__shape_text(&value->shape, text), want);
    mirt__graph_poison(graph);
    return NULL;
}

MIRT__LIB mirt_tensor *mirt__loss_record(const mirt_model *model, int number, mirt_tensor *output,
                                         mirt_tensor *labels) {
    const mirt_custom_loss *custom = model->config.custom_losses[number];
    mirt_loss_options how = model->config.loss_options[number];
    how.from_logits = mirt__output_logits(model, number);
    const mirt_loss kind = mirt__output_loss_kind(model, number);
    if (!custom)
        return mirt__loss_counted(kind, model->config.reduction, mirt__loss_of(kind, &how, output, labels));
    mirt_tensor *loss, *cast = mirt_cast(labels, MIRT_FLOAT32);
    {
        MIRT__OUTSIDE;
        loss = custom->record(cast, output, custom->user);
    }
    return mirt__custom_result("loss", custom->name, output, loss,
                               loss && (mirt__is_batched(&loss->shape) || mirt__shape_count(&loss->shape) == 1),
                               "one value per sample, or one number");
}
