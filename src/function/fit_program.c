/* Records the programs of fit, evaluate and predict. */
#include "fit_program.h"

MIRT__TRAINING_LIB mirt_status mirt__need_compiled(const mirt_model *model, const char *caller) {
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
    if (!model->num_inputs)
        return mirt__fail(MIRT_E_STATE, "%s: %s has no input: begin with mirt_input", caller, model->name);
    if (!model->num_outputs)
        return mirt__fail(MIRT_E_STATE, "%s: %s has no output: end with mirt_model_output", caller, model->name);
    return MIRT_OK;
}

/* >>data */

/* Of losses by position not just the number of labels has to fit, but for axes of 1. */
MIRT__TRAINING mirt_status mirt__check_positions(const mirt_model *model, const mirt_shape *labels, int output) {
    const mirt__loss_class *cls = mirt__output_loss(model, output);
    mirt_shape want = mirt__row_shape(&model->output[output]->shape), have = *labels;
    char a[96], b[96];
    if (cls->sparse) want.rank--;
    while (cls->sparse && have.rank > want.rank && have.dim[have.rank - 1] == 1) have.rank--;
    if (mirt__shape_equal(&want, &have)) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "labels are %s a sample, %s of %s takes %s", mirt__shape_text(labels, a), cls->name,
                      mirt__output_name(model, output), mirt__shape_text(&want, b));
}

MIRT__TRAINING mirt_status mirt__check_labels(const mirt_model *model, const mirt__data_spec *spec, int output) {
    const mirt__loss_class *cls = mirt__output_loss(model, output);
    const mirt_shape *labels = &spec->field[spec->num_x + mirt__label_number(model, output)].shape;
    const int64_t want = mirt__label_count(model, output), have = mirt__shape_count(labels);
    if (want >= 0 && cls->classes && model->output[output]->shape.rank > 2)
        return mirt__check_positions(model, labels, output);
    if (want < 0 || have == want) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "labels have %lld value%s a sample, %s of %s takes %lld%s", (long long)have,
                      have == 1 ? "" : "s", cls->name,
                      model->num_outputs == 1 ? model->name : mirt__output_name(model, output), (long long)want,
                      cls->sparse                 ? " (the class number)"
                      : cls->classes && have == 1 ? " (one-hot); sparse_categorical_crossentropy takes class numbers"
                                                  : "");
}

MIRT__LIB mirt_status mirt__check_data(const mirt_model *model, const mirt__data_spec *spec, bool labels) {
    char a[96], b[96];
    if (spec->num_x != model->num_inputs) {
        return mirt__fail(MIRT_E_SHAPE, "the data have %d input%s a sample, %s takes %d", spec->num_x,
                          spec->num_x == 1 ? "" : "s", model->name, model->num_inputs);
    }
    for (int i = 0; i < model->num_inputs; i++) {
        const mirt_shape want = mirt__row_shape(&model->input[i]->shape);
        if (mirt__shape_equal(&want, &spec->field[i].shape)) continue;
        mirt__fail(MIRT_E_SHAPE, "samples are %s, %s takes %s", mirt__shape_text(&spec->field[i].shape, a), model->name,
                   mirt__shape_text(&want, b));
        return model->num_inputs > 1 ? mirt__fail_at("input %d", i) : mirt_last_status();
    }
    if (!MIRT__TRAINS || !labels) return MIRT_OK;
    if (!mirt__num_labels(model)) return mirt__fail(MIRT_E_STATE, "%s is compiled without a loss", model->name);
    if (!spec->num_y) return mirt__fail(MIRT_E_INVALID, "the data set has no labels");
    if (spec->num_y != mirt__num_labels(model)) {
        return mirt__fail(MIRT_E_INVALID, "the data have %d label%s a sample, %s takes %d", spec->num_y,
                          spec->num_y == 1 ? "" : "s", model->name, mirt__num_labels(model));
    }
    for (int i = 0; i < model->num_outputs; i++) {
        if (mirt__output_has_loss(model, i) && mirt__check_labels(model, spec, i) != MIRT_OK) return mirt_last_status();
    }
    return MIRT_OK;
}

/* The outputs of the model called on the batch, or on features. */
static bool mirt__record_outputs(mirt_function *f, mirt_tensor **output) {
    mirt_tensor *x[MIRT_MAX_INPUTS];
    const mirt__stretch to = {f->model->output, f->model->num_outputs};
    if (MIRT__TRAINS && f->spec.features) {
        const mirt__stretch *from = &f->model->trainer->features;
        return mirt__call_stretch(&f->step.program.graph, f->model, from, f->recording.field, &to, output);
    }
    if (!f->model->num_inputs) return mirt__fail(MIRT_E_STATE, "%s has no input and no output", f->model->name), false;
    for (int i = 0; i < f->model->num_inputs; i++) x[i] = mirt__field_as(f, i, MIRT_FLOAT32);
    return mirt_call_many(f->model, x, f->model->num_inputs, MIRT_TRAINING_AUTO, output) != NULL;
}

static bool mirt__results_add(mirt_function *f, const char *name, mirt_tensor *const *tensor, int count) {
    for (int i = 0; i < count; i++) {
        if (mirt__result_add(f, name, tensor[i]) != MIRT_OK) return false;
    }
    return true;
}

static bool mirt__record_predict(mirt_function *f) {
    mirt_tensor *output[MIRT_MAX_OUTPUTS];
    return mirt__record_outputs(f, output) && mirt__results_add(f, "output", output, f->model->num_outputs);
}

MIRT__TRAINING bool mirt__record_features(mirt_function *f) {
    mirt_tensor *x[MIRT_MAX_INPUTS], *out[MIRT_MAX_INPUTS];
    const mirt__stretch *features = &f->model->trainer->features, from = {f->model->input, f->model->num_inputs};
    for (int i = 0; i < from.count; i++) {
        if (!(x[i] = mirt__field_as(f, i, MIRT_FLOAT32))) return false;
    }
    return mirt__call_stretch(&f->step.program.graph, f->model, &from, x, features, out) &&
           mirt__results_add(f, "features", out, features->count);
}

static bool mirt__record_fit(mirt_function *f, void *user) {
    mirt__fit_body *body = (mirt__fit_body *)user;
    mirt_tensor *output[MIRT_MAX_OUTPUTS];
    if (!MIRT__TRAINS || body->kind == MIRT__PREDICT) return mirt__record_predict(f);
    if (body->kind == MIRT__FEATURES) return mirt__record_features(f);
    return mirt__record_outputs(f, output) && mirt__record_losses(f, body, output);
}

MIRT__LIB mirt_function *mirt__trainer_record(mirt_model *model, const mirt__data_spec *spec, int64_t most,
                                              mirt__fit_body *body) {
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

MIRT__TRAINING_LIB mirt_function *mirt__trainer_dry(mirt_model *model, mirt__program_kind kind,
                                                    const mirt__data_spec *spec, int64_t most) {
    mirt__fit_body body;
    mirt__fit_body_set(&body, kind, NULL);
    return mirt__trainer_record(model, spec, most, &body);
}
