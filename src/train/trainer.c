#include "trainer.h"
#include "../graph/fuse.h"
#include "../ops/ops.h"

MIRT__LIB mirt_status mirt__need_compiled(const mirt_model *model, const char *caller) {
    if (!model) return mirt__fail_missing(caller, "model");
    if (!model->compiled) return mirt__fail(MIRT_E_STATE, "%s: %s is not compiled; call mirt_compile first", caller, model->name);
    return MIRT_OK;
}

MIRT__LIB mirt__real *mirt__gradient_at(const mirt_model *model, int device, int slot) {
    return (mirt__real *)(void *)(model->trainer->block[device] + (size_t)slot * model->weight_bytes);
}

/* >>programs */

static bool mirt__variable_trainable(const void *arg, int variable) { return ((const mirt_model *)arg)->variable[variable].trainable; }

/* The model's nodes in the program's graph, reading data of `dtype`. */
static mirt_tensor *mirt__program_forward(mirt__graph *graph, const mirt_model *model, mirt_dtype dtype, const mirt__mode *mode) {
    mirt_tensor *output = model->output[0];
    mirt_tensor *x = mirt__input_op(graph, MIRT__IO_X, dtype, &model->input[0]->shape);
    if (!x || !(x = mirt_cast(x, MIRT_FLOAT32))) return NULL;
    mirt__copying copying;
    const mirt_tensor *input = model->input[0];
    memset(&copying, 0, sizeof copying);
    copying.source = &model->graph;
    copying.replaced = &input;
    copying.replacement = &x;
    copying.num_replaced = 1;
    copying.mode = mode;
    return mirt__graph_copy(graph, &copying, &output, 1) ? output : NULL;
}

/* Where probabilities come straight from the loss's own activation (softmax, sigmoid), it is computed
   from what went into that, which loses no digits. Keras does the same. */
static mirt_tensor *mirt__loss_input(const mirt_model *model, mirt_tensor *output, bool *from_logits) {
    const mirt__node *node = output->node;
    mirt_activation_kind undo = mirt__loss_class_get(model->config.loss)->undo;
    mirt_activation_kind last = node->id == MIRT__OP_softmax ? MIRT_SOFTMAX : mirt__activation_of(node);
    *from_logits = model->config.from_logits;
    if (*from_logits || undo == MIRT_LINEAR || last != undo) return output;
    *from_logits = true;
    return node->in[0];
}

/* Loss and metrics of `output` against labels; keep[0] is the loss. */
static int mirt__program_results(mirt__graph *graph, const mirt_model *model, mirt_tensor *output, mirt_tensor **keep) {
    mirt_dtype dtype;
    int64_t per_sample;
    int count = 0, metrics = mirt__num_metrics(model);
    if (mirt__labels_wanted(model, &dtype, &per_sample) != MIRT_OK) return -1;
    mirt_shape shape = mirt_make_shape(1, per_sample, 0, 0, 0, 0);
    shape.dim[0] = MIRT_ROWS;
    if (dtype == MIRT_INT32) shape.rank = 1;
    mirt_tensor *labels = mirt__input_op(graph, MIRT__IO_LABELS, dtype, &shape);
    bool from_logits;
    mirt_tensor *x = mirt__loss_input(model, output, &from_logits);
    keep[count++] = mirt__loss_op(model->config.loss, from_logits, x, labels);
    for (int i = 0; i < metrics; i++) keep[count++] = mirt__metric_class_get(model->config.metrics[i])->record(model, output, labels);
    for (int i = 0; i < count; i++) {
        if (!keep[i]) return -1;
    }
    return count;
}

/* Records the gradients and appends them to outputs, one for every trainable variable reached. */
static int mirt__program_gradients(mirt__graph *graph, const mirt_model *model, mirt_tensor *loss, mirt__output *outputs, int count) {
    int forward = graph->count;
    mirt_tensor *weight = mirt__loss_weight_op(graph, MIRT__WEIGHT_SAMPLE);
    if (!mirt__gradients(graph, &loss, &weight, 1)) return -1;
    for (int i = 0; i < forward; i++) {
        mirt__node *node = graph->node[i];
        if (node->id != MIRT__OP_variable || !node->out[0]->grad) continue;
        outputs[count].tensor = node->out[0]->grad;
        outputs[count].space = MIRT__SPACE_GRADIENT;
        outputs[count++].offset = model->variable[node->a.index].offset;
    }
    return count;
}

static int mirt__program_record(mirt__program *program, const mirt_model *model, mirt__program_kind kind, mirt_dtype dtype,
                                mirt__output *outputs, mirt_tensor **keep) {
    mirt__graph *graph = &program->graph;
    mirt__mode mode;
    memset(&mode, 0, sizeof mode);
    mode.training = kind == MIRT__TRAIN;
    keep[0] = mirt__program_forward(graph, model, dtype, &mode);
    int count = keep[0] ? 1 : -1;
    if (count > 0 && kind != MIRT__PREDICT) count = mirt__program_results(graph, model, keep[0], keep);
    if (count < 0) return -1;
    mirt__graph_mark_gradients(graph, mirt__variable_trainable, model);
    mirt__fuse_forward(graph, keep, count);
    for (int i = 0; i < count; i++) {
        outputs[i].tensor = keep[i];
        outputs[i].space = MIRT__SPACE_IO;
        outputs[i].offset = kind == MIRT__PREDICT ? (size_t)MIRT__IO_OUTPUT : (size_t)(MIRT__IO_LOSS + i);
    }
    if (kind != MIRT__TRAIN) return count;
    count = mirt__program_gradients(graph, model, keep[0], outputs, count);
    for (int i = 0; i < count; i++) keep[i] = outputs[i].tensor;
    if (count > 0) mirt__fuse_backward(graph, keep, count);
    return count;
}

static mirt_status mirt__program_build(mirt__program *program, const mirt_model *model, mirt__program_kind kind, mirt_dtype dtype, int64_t max_rows) {
    size_t most = (size_t)model->num_variables + 1 + MIRT_MAX_METRICS;
    mirt__output *outputs = (mirt__output *)mirt__calloc(most, sizeof *outputs);
    mirt_tensor **keep = (mirt_tensor **)mirt__calloc(most, sizeof *keep);
    size_t *offset = (size_t *)mirt__calloc((size_t)model->num_variables + 1, sizeof *offset);
    mirt__graph_init(&program->graph, NULL);
    bool good = outputs && keep && offset;
    if (good) {
        for (int i = 0; i < model->num_variables; i++) offset[i] = model->variable[i].offset;
        int count = mirt__program_record(program, model, kind, dtype, outputs, keep);
        good = count >= 0 && mirt__plan(program, outputs, count, offset, max_rows);
    }
    mirt__free(outputs);
    mirt__free(keep);
    mirt__free(offset);
    return good ? MIRT_OK : mirt_last_status();
}

/* >>memory */

static bool mirt__layout_add(size_t *total, size_t bytes) { return mirt__add_size(*total, mirt__align_up(bytes), total); }

static mirt_status mirt__layout_compute(mirt__trainer *t, const mirt_model *model) {
    const mirt_strategy *s = model->strategy;
    mirt__layout *l = &t->layout;
    memset(l, 0, sizeof *l);
    if (t->needs.batch[MIRT__TRAIN]) l->gradients = (size_t)mirt__gradient_slots(s, s->num_replicas, false) * model->weight_bytes;
    int64_t rows = 0;
    size_t row = 0, scratch;
    for (int k = 0; k < MIRT__PROGRAM_KINDS; k++) {
        const mirt__program *p = &t->program[k];
        if (p->arena > l->arena) l->arena = p->arena;
        if (p->shared > l->shared) l->shared = p->shared;
        if (p->scratch > l->scratch_per_thread) l->scratch_per_thread = p->scratch;
        if (k != MIRT__PREDICT && t->needs.batch[k] > rows) rows = t->needs.batch[k];
        if (p->io_row[MIRT__IO_LABELS] > row) row = p->io_row[MIRT__IO_LABELS];
    }
    bool fits = mirt__mul_size(l->scratch_per_thread, (size_t)s->threads, &scratch) && mirt__layout_add(&l->total, l->gradients) &&
                mirt__layout_add(&l->total, l->arena) && mirt__layout_add(&l->total, l->shared) && mirt__layout_add(&l->total, scratch);
    row += (size_t)(1 + mirt__num_metrics(model)) * sizeof(mirt__real);
    fits = fits && mirt__mul_size(row, (size_t)rows, &l->host);
    return fits ? MIRT_OK : mirt__fail(MIRT_E_NOMEM, "a batch of this size needs more memory than can be addressed");
}

static mirt_status mirt__trainer_plan(mirt__trainer *t, const mirt_model *model, const mirt__needs *needs) {
    const mirt_strategy *s = model->strategy;
    t->needs = *needs;
    for (int k = 0; k < MIRT__PROGRAM_KINDS; k++) {
        int64_t shares = s->num_replicas;
        if (!needs->batch[k]) continue;
        int64_t rows = needs->batch[k] / shares + (needs->batch[k] % shares != 0);
        if (mirt__program_build(&t->program[k], model, (mirt__program_kind)k, needs->x_dtype, rows) != MIRT_OK) return mirt_last_status();
    }
    return mirt__layout_compute(t, model);
}

MIRT__LIB mirt__trainer *mirt__trainer_dry(mirt_model *model, const mirt__needs *needs) {
    mirt__trainer *t = (mirt__trainer *)mirt__calloc(1, sizeof *t);
    if (t && mirt__trainer_plan(t, model, needs) == MIRT_OK) return t;
    mirt__trainer_dry_free(t);
    return NULL;
}

MIRT__LIB void mirt__trainer_dry_free(mirt__trainer *t) {
    if (!t) return;
    for (int k = 0; k < MIRT__PROGRAM_KINDS; k++) mirt__program_free(&t->program[k]);
    for (int d = 0; d < MIRT__MAX_DEVICES; d++) mirt__aligned_free(t->block[d]);
    mirt__aligned_free(t->host);
    mirt__free(t);
}

static mirt_status mirt__trainer_allocate(mirt__trainer *t, const mirt_model *model) {
    for (int d = 0; d < model->strategy->num_devices; d++) {
        t->block[d] = (char *)mirt__aligned_alloc(t->layout.total);
        if (!t->block[d]) return mirt_last_status();
        memset(t->block[d], 0, t->layout.gradients);
    }
    t->host = (char *)mirt__aligned_alloc(t->layout.host);
    if (!t->host) return mirt_last_status();
    int64_t rows = t->needs.batch[MIRT__TRAIN] > t->needs.batch[MIRT__EVALUATE] ? t->needs.batch[MIRT__TRAIN] : t->needs.batch[MIRT__EVALUATE];
    mirt__real *at = (mirt__real *)(void *)t->host;
    for (int i = 0; i < 1 + mirt__num_metrics(model); i++, at += rows) t->result[i] = at;
    t->labels = (char *)at;
    return MIRT_OK;
}

static bool mirt__needs_met(const mirt__trainer *t, mirt__needs *needs) {
    bool met = t->needs.x_dtype == needs->x_dtype;
    for (int k = 0; k < MIRT__PROGRAM_KINDS; k++) {
        met = met && needs->batch[k] <= t->needs.batch[k];
        if (t->needs.batch[k] > needs->batch[k]) needs->batch[k] = t->needs.batch[k];
    }
    return met;
}

MIRT__LIB mirt_status mirt__trainer_prepare(mirt_model *model, const mirt__needs *needs) {
    mirt__needs all = *needs;
    mirt__trainer *old = model->trainer;
    if (old && mirt__needs_met(old, &all)) return MIRT_OK;
    mirt__trainer *t = mirt__trainer_dry(model, &all);
    if (!t) return mirt_last_status();
    if (mirt__trainer_allocate(t, model) != MIRT_OK) {
        mirt__trainer_dry_free(t);
        return mirt_last_status();
    }
    mirt__trainer_dry_free(old);
    model->trainer = t;
    return MIRT_OK;
}

MIRT__LIB void mirt__trainer_free(mirt_model *model) {
    mirt__trainer_dry_free(model->trainer);
    model->trainer = NULL;
}
