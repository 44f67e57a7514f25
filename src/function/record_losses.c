/* Records the losses and metrics of fit and evaluate. */
#include "../ops/ops.h"
#include "fit_program.h"

/* What is to be minimized, and what of it is told: a sum for each sample, a sum of numbers. */
typedef struct mirt__loss_total {
    mirt_tensor *samples, *numbers;
} mirt__loss_total;

/* A weight for every sample by its class number, or by its one-hot labels. */
static mirt_tensor *mirt__class_weight(mirt_function *f, const mirt__fit_body *body, mirt_tensor *labels) {
    int n = body->num_class_weights;
    mirt_shape shape = MIRT_SHAPE(1, n), rows = MIRT_SHAPE(1);
    mirt_tensor *table = mirt_function_constant(
        f, mirt_make_array(body->class_weights, MIRT_FLOAT32, MIRT_SHAPE(n)));
    shape.dim[0] = rows.dim[0] = MIRT_ROWS;
    bool one_hot = mirt__shape_count(&labels->shape) == n;
    if (!one_hot && mirt__shape_count(&labels->shape) != 1) {
        mirt__fail(MIRT_E_SHAPE, "class weights need class numbers or one-hot labels, "
                                 "not %lld values per sample",
                   (long long)mirt__shape_count(&labels->shape));
        return NULL;
    }
    if (!one_hot) labels = mirt_one_hot(mirt__reshape_op(mirt_cast(labels, MIRT_INT32), &rows), n);
    labels = mirt__reshape_op(mirt_cast(labels, MIRT_FLOAT32), &shape);
    return mirt_reduce_sum(mirt__binary_op(MIRT__MULTIPLY, labels, table), 2, false);
}

/* The loss of elements is the mean over a sample's positions (height and width, say); MIRT_SUM wants their sum. */
static mirt_tensor *mirt__sum_of_positions(const mirt_model *model, const mirt_tensor *output, mirt_tensor *loss) {
    const int64_t positions = mirt__positions(output);
    if (model->config.reduction != MIRT_SUM || positions < 2) return loss;
    return mirt__unary_op(MIRT__AFFINE, loss, (float)positions, 0);
}

/* The loss of each sample, weighted by sample and class. */
static mirt_tensor *mirt__weighted_loss(mirt_function *f, const mirt__fit_body *body, int number, mirt_tensor *output,
                                        mirt_tensor *labels) {
    const mirt__loss_class *cls = mirt__output_loss(f->model, number);
    int y = f->spec.num_x + mirt__label_number(f->model, number);
    mirt_tensor *loss = mirt__loss_record(f->model, number, output, labels);
    if (!loss) return NULL;
    if (!mirt__is_batched(&loss->shape)) {
        loss = mirt__sample_value(f->model, loss);
        if (!body->num_class_weights && !f->spec.has_weights) return loss;
        mirt__fail(MIRT_E_SHAPE,
                   "weights of samples or classes need a loss for each sample; %s is one number for all",
                   mirt__output_loss_name(f->model, number));
        return NULL;
    }
    if (cls && !cls->positions) loss = mirt__sum_of_positions(f->model, output, loss);
    loss = mirt__sample_value(f->model, loss);
    if (cls && cls->sparse && (cls->classes || body->num_class_weights))
        loss = mirt__class_numbers_use(f, y, cls->classes ? mirt__last_dim(output) : body->num_class_weights,
                                       &f->model->config.loss_options[number], loss);
    if (body->num_class_weights && cls && cls->classes && mirt__positions(output) != 1) {
        mirt__fail(MIRT_E_SHAPE, "class weights need one class for each sample; %s of %s has one for each position",
                   cls->name, mirt__output_name(f->model, number));
        return NULL;
    }
    if (body->num_class_weights) loss = mirt__binary_op(MIRT__MULTIPLY, loss, mirt__class_weight(f, body, labels));
    if (f->spec.has_weights) {
        mirt_tensor *weight = mirt__field_as(f, f->spec.num_x + f->spec.num_y, MIRT_FLOAT32);
        loss = mirt__binary_op(MIRT__MULTIPLY, loss, loss ? mirt__reshape_op(weight, &loss->shape) : NULL);
    }
    return loss;
}

static bool mirt__loss_total_add(mirt_function *f, const mirt__fit_body *body, mirt__loss_total *total,
                                 mirt_tensor *term) {
    if (!term) return false;
    if (mirt__is_batched(&term->shape)) {
        if (!(term = mirt__sample_value(f->model, term))) return false;
    }
    if (mirt__is_batched(&term->shape)) {
        total->samples = total->samples ? mirt__binary_op(MIRT__ADD, total->samples, term) : term;
        return total->samples != NULL;
    }
    if (body->kind == MIRT__TRAIN && mirt__minimize(f, term) != MIRT_OK) return false;
    mirt_shape number = mirt_make_shape(0, 0, 0, 0, 0, 0);
    mirt_tensor *value = mirt__reshape_op(mirt__term_value(f, term), &number);
    total->numbers = total->numbers ? mirt__binary_op(MIRT__ADD, total->numbers, value) : value;
    return total->numbers != NULL;
}

MIRT__LIB bool mirt__record_losses(mirt_function *f, mirt__fit_body *body, mirt_tensor **output) {
    const mirt_model *model = f->model;
    mirt_tensor *labels[MIRT_MAX_OUTPUTS], *own[MIRT_MAX_OUTPUTS];
    mirt__loss_total total = {NULL, NULL};
    for (int i = 0; i < model->num_outputs; i++) {
        own[i] = NULL;
        if (!mirt__output_has_loss(model, i)) continue;
        labels[i] = f->recording.field[f->spec.num_x + mirt__label_number(model, i)];
        if (!(own[i] = mirt__weighted_loss(f, body, i, output[i], labels[i]))) return false;
        float weight = model->config.loss_weights[i];
        mirt_tensor *term = weight != 0 && weight != 1 ? mirt__unary_op(MIRT__AFFINE, own[i], weight, 0) : own[i];
        if (!mirt__loss_total_add(f, body, &total, term)) return false;
    }
    for (int i = 0; i < f->step.program.graph.num_terms; i++) {
        if (!mirt__loss_total_add(f, body, &total, f->step.program.graph.term[i])) return false;
    }
    if (total.samples && body->kind == MIRT__TRAIN && mirt__minimize(f, total.samples) != MIRT_OK) return false;
    if (mirt__result_add(f, "loss", total.samples ? total.samples : total.numbers) != MIRT_OK) return false;
    for (int i = 0; i < model->num_outputs && mirt__num_labels(model) > 1; i++) {
        mirt_tensor *value = own[i] ? mirt__term_value(f, own[i]) : NULL;
        if (own[i] && (!value || mirt__result_add(f, model->loss_name[i], value) != MIRT_OK)) return false;
    }
    for (int i = 0; i < model->num_metrics; i++) {
        const mirt__metric_use *use = &model->metric[i];
        int same = 0;
        while (same < i && !mirt__metric_shares(&model->metric[same], use)) same++;
        mirt_tensor *value = mirt__metric_record(model, use, output[use->output], labels[use->output]);
        if (mirt__metric_indexes(use)) {
            const mirt_loss_options how = mirt__metric_loss_options(model, use);
            const int field = f->spec.num_x + mirt__label_number(model, use->output);
            value = mirt__class_numbers_use(f, field, use->n, &how, value);
        }
        if (!value) return false;
        body->metric_result[i] = same < i ? body->metric_result[same] : f->results.count;
        if (same == i && mirt__result_add(f, use->name, value) != MIRT_OK) return false;
    }
    body->terms_result = total.samples && total.numbers ? f->results.count : -1;
    return body->terms_result < 0 || mirt__result_add(f, "terms", total.numbers) == MIRT_OK;
}
