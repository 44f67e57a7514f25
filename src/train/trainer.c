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

typedef struct mirt__fit_body {
    mirt__program_kind kind;
    const float *class_weights;
    int num_class_weights;
    int terms_result, metric_result[MIRT__MAX_METRIC_USES];
} mirt__fit_body;

/* The outputs of the model called on the batch, or on features. */
static bool mirt__record_outputs(mirt_function *f, mirt_tensor **output) {
    mirt_tensor *x[MIRT_MAX_INPUTS];
    const mirt__stretch to = {f->model->output, f->model->num_outputs};
    if (f->spec.features) return mirt__call_stretch(&f->program.graph, f->model, &f->model->trainer->features, f->field, &to, output);
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
    if (!mirt__call_stretch(&f->program.graph, f->model, &from, x, features, out)) return false;
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
    for (int i = 0; i < f->program.graph.num_terms; i++) {
        if (!mirt__loss_total_add(f, body, &total, f->program.graph.term[i])) return false;
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

/* >>preparing */

static bool mirt__trainer_has(const mirt_model *model, mirt__program_kind kind, const mirt__data_spec *spec, int64_t most, const mirt__fit_body *body) {
    const mirt__trainer *t = model->trainer;
    const mirt_function *f = t ? t->function[kind] : NULL;
    if (!f || most > f->max_batch || f->layout != mirt__root(model, NULL)->layout || f->root != mirt__root(model, NULL) || f->half != f->root->half || f->scaled != f->root->scaled) return false;
    if (kind >= MIRT__PREDICT) return mirt__fields_same(&f->spec, spec, spec->num_x);
    bool weights = kind != MIRT__TRAIN || (t->num_class_weights == body->num_class_weights &&
                   (!body->num_class_weights || memcmp(t->class_weights, body->class_weights, (size_t)body->num_class_weights * sizeof(float)) == 0));
    return weights && mirt__spec_same(&f->spec, spec);
}

static mirt_function *mirt__trainer_record(mirt_model *model, const mirt__data_spec *spec, int64_t most, mirt__fit_body *body) {
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

static void mirt__fit_body_set(mirt__fit_body *body, mirt__program_kind kind, const mirt_fit_desc *fit) {
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

/* How many sums a metric keeps. */
static int mirt__sums_of(const mirt_function *f, int metric) {
    const int counted = mirt__metric_sums(&f->model->metric[metric]);
    return counted ? counted : (int)f->result[f->metric_result[metric]].count;
}

/* Sums for what the function's metrics leave. */
static mirt_status mirt__trainer_sums(mirt__trainer *t, const mirt_function *f, mirt__program_kind kind) {
    int count = 1;
    if (kind >= MIRT__PREDICT) return MIRT_OK;
    for (int i = 0; i < f->model->num_metrics; i++) count += mirt__sums_of(f, i);
    double *sums = (double *)mirt__calloc((size_t)count, sizeof *sums);
    if (!sums) return mirt_last_status();
    mirt__free(t->metric[kind]);
    t->metric[kind] = sums;
    return MIRT_OK;
}

/* The training function's class weights, to be recognized again. */
static mirt_status mirt__trainer_class_weights(mirt__trainer *t, const mirt__fit_body *body) {
    if (body->kind != MIRT__TRAIN) return MIRT_OK;
    float *copy = (float *)mirt__calloc((size_t)body->num_class_weights + 1, sizeof *copy);
    if (!copy) return mirt_last_status();
    if (body->num_class_weights) memcpy(copy, body->class_weights, (size_t)body->num_class_weights * sizeof *copy);
    mirt__free(t->class_weights);
    t->class_weights = copy;
    t->num_class_weights = body->num_class_weights;
    return MIRT_OK;
}

/* There is no memory for batches of `batch`: the error says which there is memory for. */
static void mirt__say_what_fits(mirt_model *model, const mirt__data_spec *spec, int64_t batch) {
    mirt__error error;
    mirt__error_get(&error);
    model->trainer->asked = spec;
    const int64_t fits = mirt_largest_batch(model, 0);
    model->trainer->asked = NULL;
    if (fits > 0) mirt__fail(MIRT_E_NOMEM, "%.300s; batches of %lld do not fit, of %lld would", error.text, (long long)batch, (long long)fits);
    else mirt__error_set(&error);
}

static void mirt__trainer_free(mirt_model *model) {
    mirt__trainer *t = model->trainer;
    if (model->strategy->timed == model) model->strategy->timed = NULL;
    for (int k = 0; k < MIRT__PROGRAM_KINDS; k++) mirt__function_free(t->function[k]);
    for (int k = 0; k < 2; k++) mirt__free(t->metric[k]);
    mirt__free(t->class_weights);
    mirt__free(t);
    model->trainer = NULL;
}

MIRT__LIB mirt__trainer *mirt__trainer_of(mirt_model *model) {
    if (model->trainer) return model->trainer;
    model->free_trainer = mirt__trainer_free;
    return model->trainer = (mirt__trainer *)mirt__calloc(1, sizeof *model->trainer);
}

MIRT__LIB mirt_function *mirt__trainer_prepare(mirt_model *model, mirt__program_kind kind, const mirt__data_spec *spec, int64_t most, const mirt_fit_desc *fit) {
    mirt__fit_body body;
    mirt__fit_body_set(&body, kind, fit);
    if (mirt__model_materialize(model) != MIRT_OK) return NULL; /* trainers of those that share new weights are freed */
    mirt__trainer *t = mirt__trainer_of(model);
    if (!t) return NULL;
    if (mirt__trainer_has(model, kind, spec, most, &body)) return t->function[kind];
    const mirt_function *old = t->function[kind];
    if (old && old->max_batch > most) most = old->max_batch;
    mirt_function *f = mirt__trainer_record(model, spec, most, &body);
    if (!f) return NULL;
    if (mirt__function_allocate(f) != MIRT_OK) {
        mirt__function_free(f);
        if (model->strategy->backend && mirt_last_status() == MIRT_E_NOMEM && kind == MIRT__TRAIN) mirt__say_what_fits(model, spec, most);
        return NULL;
    }
    f->terms_result = body.terms_result;
    memcpy(f->metric_result, body.metric_result, sizeof f->metric_result);
    mirt__function_free(t->function[kind]); /* its sums and class weights go too */
    t->function[kind] = NULL;
    if (mirt__trainer_sums(t, f, kind) != MIRT_OK || mirt__trainer_class_weights(t, &body) != MIRT_OK) {
        mirt__function_free(f);
        return NULL;
    }
    return t->function[kind] = f;
}

/* >>results */

MIRT__LIB void mirt__sums_start(mirt_model *model, mirt__program_kind kind, mirt__sums *sums) {
    const mirt_function *f = model->trainer->function[kind];
    memset(sums, 0, sizeof *sums);
    sums->kind = kind;
    sums->metric = model->trainer->metric[kind];
    for (int i = 0; i < model->num_metrics && kind < MIRT__PREDICT; i++) sums->num_metric += mirt__sums_of(f, i);
    memset(sums->metric, 0, (size_t)sums->num_metric * sizeof *sums->metric);
}

/* Adds a result's rows, column by column. */
static void mirt__add_rows(const mirt__result *r, int64_t rows, double *out) {
    const mirt__real *value = (const mirt__real *)(const void *)r->data;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < r->count; j++) out[j] += (double)value[i * r->count + j];
    }
}

/* What a metric counts in the batch, whose labels are still there. */
static void mirt__add_counts(const mirt_function *f, const mirt__metric_use *use, const mirt__result *r, double *out) {
    const int field = f->spec.num_x + mirt__label_number(f->model, use->output);
    mirt__counted c;
    c.rows = f->rows;
    c.n = r->count;
    c.x = (const mirt__real *)(const void *)r->data;
    c.labels = f->io[field];
    c.dtype = f->spec.field[field].dtype;
    c.sparse = mirt__shape_count(&f->spec.field[field].shape) != c.n;
    use->cls->count(use, &c, out);
}

/* Adds a loss to a sum over samples; returns the batch's own. What is one number for the batch (a sum over it, or terms
   of weights) counts once a sample, as in Keras. */
static double mirt__add_loss(const mirt_function *f, const mirt__result *r, double *sum) {
    const mirt__real *value = (const mirt__real *)(const void *)r->data;
    bool number = !r->batched || f->model->config.reduction == MIRT_SUM;
    int64_t n = r->batched ? f->rows : f->by_replicas ? mirt__active_replicas(f) : mirt__result_places(f);
    double own = 0;
    for (int64_t i = 0; i < n; i++) {
        own += (double)value[i];
        if (!number) *sum += (double)value[i];
    }
    if (number) *sum += own * (double)f->rows;
    return number ? own : own / (double)f->rows;
}

/* Results: the loss, the outputs' losses when there are several, the metrics, the terms. */
MIRT__LIB double mirt__add_results(const mirt_function *f, mirt__sums *sums) {
    const mirt_model *model = f->model;
    double loss = mirt__add_loss(f, &f->result[0], &sums->loss);
    if (f->terms_result >= 0) loss += mirt__add_loss(f, &f->result[f->terms_result], &sums->loss);
    int next = 1;
    for (int i = 0; i < model->num_outputs && mirt__num_labels(model) > 1; i++) {
        if (mirt__output_has_loss(model, i)) mirt__add_loss(f, &f->result[next++], &sums->output_loss[i]);
    }
    double *metric = sums->metric;
    for (int m = 0; m < model->num_metrics; m++) {
        const mirt__result *r = &f->result[f->metric_result[m]];
        if (mirt__metric_sums(&model->metric[m])) mirt__add_counts(f, &model->metric[m], r, metric);
        else mirt__add_rows(r, f->rows, metric);
        metric += mirt__sums_of(f, m);
    }
    sums->count += f->rows;
    return loss;
}

MIRT__LIB void mirt__logs_add(mirt_logs *logs, const char *name, double value) {
    if (logs->count == MIRT_MAX_LOGS) return;
    logs->name[logs->count] = name;
    logs->value[logs->count++] = value == value ? value : (double)NAN; /* of one sign, for those who print it */
}

MIRT__LIB void mirt__sums_to_logs(const mirt_model *model, const mirt__sums *sums, bool validation, mirt_logs *logs) {
    const mirt_function *f = model->trainer->function[sums->kind];
    double count = sums->count ? (double)sums->count : 1;
    const double *metric = sums->metric;
    mirt__logs_add(logs, validation ? "val_loss" : "loss", sums->loss / count);
    for (int i = 0; i < model->num_outputs && mirt__num_labels(model) > 1; i++) {
        if (!mirt__output_has_loss(model, i)) continue;
        mirt__logs_add(logs, validation ? model->val_loss_name[i] : model->loss_name[i], sums->output_loss[i] / count);
    }
    for (int m = 0; m < model->num_metrics; m++) {
        const mirt__metric_use *use = &model->metric[m];
        int own = mirt__sums_of(f, m);
        bool counted = mirt__metric_sums(use) > 0, custom = !use->cls && use->custom.result;
        mirt__hold((mirt_model *)model);
        double value = 0;
        for (int i = 0; i < own && !custom && !counted; i++) value += metric[i] / count / own;
        if (counted) value = use->cls->result(use, metric, sums->count);
        if (custom) {
            MIRT__OUTSIDE;
            value = use->custom.result(metric, own, sums->count, use->custom.user);
        }
        mirt__let_go((mirt_model *)model);
        mirt__logs_add(logs, validation ? use->val_name : use->name, value);
        metric += own;
    }
}

MIRT__LIB int mirt__log_names(const mirt_model *model, bool validation, const char *names[MIRT_MAX_LOGS]) {
    int count = 0;
    for (int v = 0; v < 1 + validation; v++) {
        names[count++] = v ? "val_loss" : "loss";
        for (int i = 0; i < model->num_outputs && mirt__num_labels(model) > 1 && count < MIRT_MAX_LOGS; i++) {
            if (mirt__output_has_loss(model, i)) names[count++] = v ? model->val_loss_name[i] : model->loss_name[i];
        }
        for (int m = 0; m < model->num_metrics && count < MIRT_MAX_LOGS; m++) names[count++] = v ? model->metric[m].val_name : model->metric[m].name;
        if (!v && count < MIRT_MAX_LOGS) names[count++] = "learning_rate";
    }
    return count;
}

MIRT__LIB mirt_status mirt__check_room(const mirt_function *f, int64_t rows, float *const *out, const size_t *capacity) {
    for (int i = 0; i < f->num_results; i++) {
        size_t each = (size_t)f->result[i].count;
        if (!out[i]) return mirt__fail(MIRT_E_INVALID, "no place for the predictions");
        if (capacity[i] / (each ? each : 1) >= (size_t)rows) continue;
        return mirt__fail(MIRT_E_SHAPE, "predictions of %lld samples need %llu floats, there is room for %llu", (long long)rows,
                          (unsigned long long)(each * (size_t)rows), (unsigned long long)capacity[i]);
    }
    return MIRT_OK;
}

MIRT__LIB void mirt__copy_predictions(const mirt_function *f, int64_t done, float *const *out) {
    for (int i = 0; i < f->num_results; i++) {
        const mirt__real *from = (const mirt__real *)(const void *)f->result[i].data;
        float *to = out[i] + done * f->result[i].count;
        for (int64_t k = 0; k < f->rows * f->result[i].count; k++) to[k] = (float)from[k];
    }
}
