/* Records the programs of fit, evaluate and predict. */
#include "../ops/ops.h"
#include "trainer.h"

MIRT__LIB mirt_status mirt__need_compiled(const mirt_model *model, const char *caller) {
    if (model && mirt__usable(model->strategy) != MIRT_OK) return mirt_last_status();
    if (!model) return mirt__fail_missing(caller, "model");
    if (model->compiled) return MIRT_OK;
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (model->failed != MIRT_OK) return mirt__fail(model->failed, "%s", model->failure);
    return mirt__fail(MIRT_E_STATE, "%s: %s is not compiled; call mirt_compile first", caller, model->name);
}

MIRT__LIB mirt_status mirt__need_recorded(const mirt_model *model, const char *caller) {
    if (model && mirt__usable(model->strategy) != MIRT_OK) return mirt_last_status();
    if (!model) return mirt__fail_missing(caller, "model");
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (!model->num_inputs) return mirt__fail(MIRT_E_STATE, "%s: %s has no input: begin with mirt_input", caller, model->name);
    if (!model->num_outputs) return mirt__fail(MIRT_E_STATE, "%s: %s has no output: end with mirt_model_output", caller, model->name);
    return MIRT_OK;
}

/* >>data */

static mirt_status mirt__check_labels(const mirt_model *model, const mirt__data_spec *spec, int output) {
    const mirt__loss_class *cls = mirt__output_loss(model, output);
    int64_t want = mirt__label_count(model, output), have = mirt__shape_count(&spec->field[spec->num_x + mirt__label_number(model, output)].shape);
    if (want < 0 || have == want) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "labels have %lld value%s a sample, %s of %s takes %lld%s", (long long)have, have == 1 ? "" : "s",
                      cls->name, model->num_outputs == 1 ? model->name : mirt__output_name(model, output), (long long)want,
                      cls->sparse ? " (the class number)" : cls->classes && have == 1 ? " (one-hot); sparse_categorical_crossentropy takes class numbers" : "");
}

MIRT__LIB mirt_status mirt__check_data(const mirt_model *model, const mirt__data_spec *spec, bool labels) {
    char a[96], b[96];
    if (spec->num_x != model->num_inputs) {
        return mirt__fail(MIRT_E_SHAPE, "the data have %d input%s a sample, %s takes %d", spec->num_x, spec->num_x == 1 ? "" : "s", model->name, model->num_inputs);
    }
    for (int i = 0; i < model->num_inputs; i++) {
        mirt_shape want = model->input[i]->shape;
        for (int k = 1; k < want.rank; k++) want.dim[k - 1] = want.dim[k];
        want.dim[--want.rank] = 0;
        if (mirt__shape_equal(&want, &spec->field[i].shape)) continue;
        mirt__fail(MIRT_E_SHAPE, "samples are %s, %s takes %s", mirt__shape_text(&spec->field[i].shape, a), model->name, mirt__shape_text(&want, b));
        return model->num_inputs > 1 ? mirt__fail_at("input %d", i) : mirt_last_status();
    }
    if (!labels) return MIRT_OK;
    if (!mirt__num_labels(model)) return mirt__fail(MIRT_E_STATE, "%s is compiled without a loss", model->name);
    if (!spec->num_y) return mirt__fail(MIRT_E_INVALID, "the data set has no labels");
    if (spec->num_y != mirt__num_labels(model)) {
        return mirt__fail(MIRT_E_INVALID, "the data have %d label%s a sample, %s takes %d", spec->num_y, spec->num_y == 1 ? "" : "s", model->name, mirt__num_labels(model));
    }
    for (int i = 0; i < model->num_outputs; i++) {
        if (mirt__output_has_loss(model, i) && mirt__check_labels(model, spec, i) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

/* The batch becomes the one under way, if its weights are numbers. */
MIRT__LIB mirt_status mirt__trainer_begin(mirt_function *f, const mirt__batch *batch) {
    int at = f->spec.num_x + f->spec.num_y;
    for (int64_t i = 0; f->spec.has_weights && i < batch->rows; i++) {
        double weight = (double)((const float *)batch->field[at])[i];
        if (isfinite(weight)) continue;
        return mirt__fail(MIRT_E_INVALID, "the weight of sample %lld is %g", (long long)(batch->index ? batch->index[i] : i), weight);
    }
    return mirt__function_begin(f, batch);
}

/* >>what fit records */

/* The outputs of the model called on the batch, or on features. */
static bool mirt__record_outputs(mirt_function *f, mirt_tensor **output) {
    mirt_tensor *x[MIRT_MAX_INPUTS];
    const mirt__stretch to = {f->model->output, f->model->num_outputs};
    if (f->spec.features) return mirt__call_stretch(&f->step.program.graph, f->model, &f->model->trainer->features, f->field, &to, output);
    if (!f->model->num_inputs) return mirt__fail(MIRT_E_STATE, "%s has no input and no output", f->model->name), false;
    for (int i = 0; i < f->model->num_inputs; i++) x[i] = mirt__field_as(f, i, MIRT_FLOAT32);
    return mirt_call_many(f->model, x, f->model->num_inputs, MIRT_TRAINING_AUTO, output) != NULL;
}

static bool mirt__record_predict(mirt_function *f) {
    mirt_tensor *output[MIRT_MAX_OUTPUTS];
    if (!mirt__record_outputs(f, output)) return false;
    for (int i = 0; i < f->model->num_outputs; i++) {
        if (mirt__result_add(f, "output", output[i]) != MIRT_OK) return false;
    }
    return true;
}

static bool mirt__record_features(mirt_function *f) {
    mirt_tensor *x[MIRT_MAX_INPUTS], *out[MIRT_MAX_INPUTS];
    const mirt__stretch *features = &f->model->trainer->features, from = {f->model->input, f->model->num_inputs};
    for (int i = 0; i < from.count; i++) {
        if (!(x[i] = mirt__field_as(f, i, MIRT_FLOAT32))) return false;
    }
    if (!mirt__call_stretch(&f->step.program.graph, f->model, &from, x, features, out)) return false;
    for (int i = 0; i < features->count; i++) {
        if (mirt__result_add(f, "features", out[i]) != MIRT_OK) return false;
    }
    return true;
}

/* A weight for every sample by its class number, or by its one-hot labels. */
static mirt_tensor *mirt__class_weight(mirt_function *f, const mirt__fit_body *body, mirt_tensor *labels) {
    int n = body->num_class_weights;
    mirt_shape shape = mirt_make_shape(1, n, 0, 0, 0, 0), rows = mirt_make_shape(1, 0, 0, 0, 0, 0);
    mirt_tensor *table = mirt_function_constant(f, mirt_make_array(body->class_weights, MIRT_FLOAT32, mirt_make_shape(n, 0, 0, 0, 0, 0)));
    shape.dim[0] = rows.dim[0] = MIRT_ROWS;
    bool one_hot = mirt__shape_count(&labels->shape) == n;
    if (!one_hot && mirt__shape_count(&labels->shape) != 1) {
        return mirt__fail(MIRT_E_SHAPE, "class weights need class numbers or one-hot labels, not %lld values a sample", (long long)mirt__shape_count(&labels->shape)), (mirt_tensor *)NULL;
    }
    if (!one_hot) labels = mirt_one_hot(mirt__reshape_op(mirt_cast(labels, MIRT_INT32), &rows), n);
    labels = mirt__reshape_op(mirt_cast(labels, MIRT_FLOAT32), &shape);
    return mirt_reduce_sum(mirt__binary_op(MIRT__MULTIPLY, labels, table), 2, false);
}

/* A built-in loss is the mean over a sample's positions (height and width, say); MIRT_SUM wants their sum. */
static mirt_tensor *mirt__sum_of_positions(const mirt_model *model, const mirt_tensor *output, mirt_tensor *loss) {
    const int64_t positions = mirt__shape_count(&output->shape) / mirt__last_dim(output);
    if (model->config.reduction != MIRT_SUM || output->shape.rank < 3 || positions < 2) return loss;
    return mirt__unary_op(MIRT__AFFINE, loss, (float)positions, 0);
}

/* The loss of each sample, weighted by sample and class. */
static mirt_tensor *mirt__weighted_loss(mirt_function *f, const mirt__fit_body *body, int number, mirt_tensor *output, mirt_tensor *labels) {
    const mirt__loss_class *cls = mirt__output_loss(f->model, number);
    int y = f->spec.num_x + mirt__label_number(f->model, number);
    if (cls && cls->sparse) f->classes[y] = (int)mirt__last_dim(output);
    mirt_tensor *loss = mirt__loss_record(f->model, number, output, labels);
    if (!loss) return NULL;
    if (!mirt__is_batched(&loss->shape)) {
        if (!body->num_class_weights && !f->spec.has_weights) return loss;
        return mirt__fail(MIRT_E_SHAPE, "weights of samples or classes need a loss for each sample; %s is one number for all", mirt__output_loss_name(f->model, number)), (mirt_tensor *)NULL;
    }
    loss = mirt__sample_value(f->model, cls ? mirt__sum_of_positions(f->model, output, loss) : loss);
    if (body->num_class_weights) loss = mirt__binary_op(MIRT__MULTIPLY, loss, mirt__class_weight(f, body, labels));
    if (f->spec.has_weights) {
        mirt_tensor *weight = mirt__field_as(f, f->spec.num_x + f->spec.num_y, MIRT_FLOAT32);
        loss = mirt__binary_op(MIRT__MULTIPLY, loss, loss ? mirt__reshape_op(weight, &loss->shape) : NULL);
    }
    return loss;
}

/* What is to be minimized, and what of it is told: a sum for each sample, a sum of numbers. */
typedef struct mirt__loss_total {
    mirt_tensor *samples, *numbers;
} mirt__loss_total;

static bool mirt__loss_total_add(mirt_function *f, const mirt__fit_body *body, mirt__loss_total *total, mirt_tensor *term) {
    if (!term) return false;
    if (mirt__is_batched(&term->shape)) {
        if (!(term = mirt__sample_value(f->model, term))) return false;
        total->samples = total->samples ? mirt__binary_op(MIRT__ADD, total->samples, term) : term;
        return total->samples != NULL;
    }
    if (body->kind == MIRT__TRAIN && mirt__minimize(f, term) != MIRT_OK) return false;
    mirt_shape number = mirt_make_shape(0, 0, 0, 0, 0, 0);
    mirt_tensor *value = mirt__reshape_op(mirt__term_value(f, term), &number);
    total->numbers = total->numbers ? mirt__binary_op(MIRT__ADD, total->numbers, value) : value;
    return total->numbers != NULL;
}

static bool mirt__record_losses(mirt_function *f, mirt__fit_body *body, mirt_tensor **output) {
    const mirt_model *model = f->model;
    mirt_tensor *labels[MIRT_MAX_OUTPUTS], *own[MIRT_MAX_OUTPUTS];
    mirt__loss_total total = {NULL, NULL};
    for (int i = 0; i < model->num_outputs; i++) {
        own[i] = NULL;
        if (!mirt__output_has_loss(model, i)) continue;
        labels[i] = f->field[f->spec.num_x + mirt__label_number(model, i)];
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
        if (!value) return false;
        body->metric_result[i] = same < i ? body->metric_result[same] : f->num_results;
        if (same == i && mirt__result_add(f, use->name, value) != MIRT_OK) return false;
    }
    body->terms_result = total.samples && total.numbers ? f->num_results : -1;
    return body->terms_result < 0 || mirt__result_add(f, "terms", total.numbers) == MIRT_OK;
}

static bool mirt__record_fit(mirt_function *f, void *user) {
    mirt__fit_body *body = (mirt__fit_body *)user;
    mirt_tensor *output[MIRT_MAX_OUTPUTS];
    if (body->kind == MIRT__PREDICT) return mirt__record_predict(f);
    if (body->kind == MIRT__FEATURES) return mirt__record_features(f);
    return mirt__record_outputs(f, output) && mirt__record_losses(f, body, output);
}

MIRT__LIB mirt_function *mirt__trainer_record(mirt_model *model, const mirt__data_spec *spec, int64_t most, mirt__fit_body *body) {
    mirt__function_desc desc;
    mirt__data_spec own = *spec;
    if (body->kind >= MIRT__PREDICT) { /* of inputs alone */
        own.num_y = 0;
        own.has_weights = false;
        own.num_fields = own.num_x;
    }
    desc.spec = &own;
    desc.max_batch = most;
    desc.by_replicas = desc.training = body->kind == MIRT__TRAIN;
    desc.sends_ahead = body->kind != MIRT__FEATURES;
    return mirt__function_new(model, &desc, mirt__record_fit, body);
}

MIRT__LIB void mirt__fit_body_set(mirt__fit_body *body, mirt__program_kind kind, const mirt_fit_desc *fit) {
    memset(body, 0, sizeof *body);
    body->kind = kind;
    body->terms_result = -1;
    if (kind != MIRT__TRAIN || !fit) return;
    body->class_weights = fit->class_weights;
    body->num_class_weights = fit->class_weights ? fit->num_class_weights : 0;
}

MIRT__LIB mirt_function *mirt__trainer_dry(mirt_model *model, mirt__program_kind kind, const mirt__data_spec *spec, int64_t most) {
    mirt__fit_body body;
    mirt__fit_body_set(&body, kind, NULL);
    return mirt__trainer_record(model, spec, most, &body);
}
