#include "trainer.h"

/* >>batches */

static const char *mirt__sample_text(const mirt__batch *batch, int64_t row, char out[32]) {
    snprintf(out, 32, "sample %lld", (long long)(batch->index ? batch->index[row] : row));
    return out;
}

MIRT__LIB mirt_status mirt__check_data(const mirt_model *model, const mirt__data_spec *spec, bool labels) {
    mirt_shape want = model->input[0]->shape;
    mirt_dtype dtype;
    int64_t per_sample;
    char a[96], b[96];
    for (int i = 1; i < want.rank; i++) want.dim[i - 1] = want.dim[i];
    want.dim[--want.rank] = 0;
    if (!mirt__shape_equal(&want, &spec->field[0].shape)) {
        return mirt__fail(MIRT_E_SHAPE, "samples are %s, %s takes %s", mirt__shape_text(&spec->field[0].shape, a), model->name, mirt__shape_text(&want, b));
    }
    if (!labels) return MIRT_OK;
    if (!model->config.loss) return mirt__fail(MIRT_E_STATE, "%s is compiled without a loss", model->name);
    if (!spec->num_y) return mirt__fail(MIRT_E_INVALID, "the data set has no labels");
    if (mirt__labels_wanted(model, &dtype, &per_sample) != MIRT_OK) return mirt_last_status();
    const mirt__loss_class *cls = mirt__loss_class_get(model->config.loss);
    int64_t have = mirt__shape_count(&spec->field[spec->num_x].shape);
    if (have == per_sample) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "labels have %lld value%s a sample, %s of %s takes %lld%s", (long long)have, have == 1 ? "" : "s",
                      cls->name, model->name, (long long)per_sample,
                      cls->sparse ? " (the class number)" : cls->classes && have == 1 ? " (one-hot); sparse_categorical_crossentropy takes class numbers" : "");
}

static double mirt__label_at(const void *labels, mirt_dtype dtype, int64_t i) {
    if (dtype == MIRT_UINT8 || dtype == MIRT_BOOL) return ((const uint8_t *)labels)[i];
    if (dtype == MIRT_INT32) return ((const int32_t *)labels)[i];
    return (double)((const float *)labels)[i];
}

/* Class numbers, checked against the number of classes. */
static mirt_status mirt__take_classes(mirt_model *model, const mirt__data_spec *spec, const mirt__batch *batch) {
    int32_t *out = (int32_t *)(void *)model->trainer->labels;
    int64_t classes = model->output[0]->shape.dim[1];
    char text[32];
    for (int64_t i = 0; i < batch->rows; i++) {
        double label = mirt__label_at(batch->field[spec->num_x], spec->field[spec->num_x].dtype, i);
        if (!(label >= 0 && label < (double)classes)) {
            return mirt__fail(MIRT_E_INVALID, "label %g of %s is not one of the %lld classes 0 to %lld", label, mirt__sample_text(batch, i, text),
                              (long long)classes, (long long)classes - 1);
        }
        out[i] = (int32_t)label;
        if ((double)out[i] != label) return mirt__fail(MIRT_E_INVALID, "label %g of %s is not a whole number", label, mirt__sample_text(batch, i, text));
    }
    return MIRT_OK;
}

static mirt_status mirt__take_labels(mirt_model *model, const mirt__data_spec *spec, const mirt__batch *batch) {
    if (mirt__loss_class_get(model->config.loss)->sparse) return mirt__take_classes(model, spec, batch);
    mirt__real *out = (mirt__real *)(void *)model->trainer->labels;
    const mirt__data_field *field = &spec->field[spec->num_x];
    int64_t count = batch->rows * mirt__shape_count(&field->shape);
    for (int64_t i = 0; i < count; i++) out[i] = (mirt__real)mirt__label_at(batch->field[spec->num_x], field->dtype, i);
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__begin_batch(mirt_model *model, const mirt__data_spec *spec, const mirt__batch *batch, bool labels) {
    mirt__trainer *t = model->trainer;
    t->stage = MIRT__IDLE;
    if (labels && mirt__take_labels(model, spec, batch) != MIRT_OK) return mirt_last_status();
    t->x = (const char *)batch->field[0];
    t->rows = batch->rows;
    return MIRT_OK;
}

/* >>replay */

static void mirt__device_bases(const mirt_model *model, int device, mirt__bases *b) {
    const mirt__trainer *t = model->trainer;
    const mirt__layout *l = &t->layout;
    memset(b, 0, sizeof *b);
    b->team = model->strategy->device[device].team;
    b->weight = model->weight[device];
    b->gradient = t->block[device];
    b->arena = b->gradient + mirt__align_up(l->gradients);
    b->shared = b->arena + mirt__align_up(l->arena);
    b->scratch = b->shared + mirt__align_up(l->shared);
    b->scratch_per_thread = l->scratch_per_thread;
}

/* Replays `program` on rows [first, first + rows) of the batch under way. */
static void mirt__replay(const mirt_model *model, const mirt__program *program, mirt__bases *b, int64_t first, int64_t rows, bool training) {
    const mirt__trainer *t = model->trainer;
    mirt__step_info run;
    run.seed = model->strategy->seed;
    run.step = model->step;
    run.first_row = first;
    run.loss_scale = model->config.reduction == MIRT_SUM ? 1.0 : 1.0 / (double)t->rows;
    run.training = training;
    char *base[MIRT__MAX_IO];
    memset(base, 0, sizeof base);
    memcpy(&base[MIRT__IO_X], &t->x, sizeof t->x); /* read only: the program never writes an input */
    base[MIRT__IO_LABELS] = t->labels;
    base[MIRT__IO_OUTPUT] = t->output;
    for (int i = 0; i < 1 + MIRT_MAX_METRICS; i++) base[MIRT__IO_LOSS + i] = (char *)t->result[i];
    for (int i = 0; i < MIRT__MAX_IO; i++) b->io[i] = base[i] ? base[i] + (size_t)first * program->io_row[i] : NULL;
    mirt__program_run(program, model->strategy->kernels, &run, b, rows);
}

static mirt__where mirt__plain_where(const mirt_model *model, int device) {
    mirt__where where;
    memset(&where, 0, sizeof where);
    where.team = model->strategy->device[device].team;
    return where;
}

/* Forward and backward of the device's replicas; their gradients join a binary counter of buffers. */
static void mirt__device_gradients(void *arg, int device) {
    mirt_model *model = (mirt_model *)arg;
    const mirt_strategy *s = model->strategy;
    const mirt__device *own = &s->device[device];
    mirt__bases bases;
    mirt__tree_stack stack;
    mirt__where where = mirt__plain_where(model, device);
    stack.depth = 0;
    mirt__device_bases(model, device, &bases);
    for (int r = own->first_replica; r < own->first_replica + own->num_replicas; r++) {
        int64_t first, rows = mirt__share(model->trainer->rows, s->num_replicas, r, &first);
        if (rows == 0) break;
        bases.gradient = (char *)mirt__gradient_at(model, device, stack.depth);
        mirt__replay(model, &model->trainer->program[MIRT__TRAIN], &bases, first, rows, true);
        for (int merges = mirt__tree_push(&stack, r, 1), top = stack.depth - 1 + merges; merges > 0; merges--, top--) {
            s->kernels->accumulate(mirt__gradient_at(model, device, top - 1), mirt__gradient_at(model, device, top),
                                   (int64_t)(model->weight_bytes / sizeof(mirt__real)), &where);
        }
    }
}

MIRT__LIB void mirt__device_range(const mirt_model *model, int device, int64_t *begin, int64_t *end) {
    mirt__exchange_range(model->strategy, (int64_t)(model->weight_bytes / sizeof(mirt__real)), device, begin, end);
}

/* After an all-reduce the sum is every device's first buffer. */
MIRT__LIB void mirt__device_exchange(const mirt_model *model, int device, mirt__exchange *out) {
    const mirt_strategy *s = model->strategy;
    bool reduced = model->trainer->stage == MIRT__REDUCED;
    int64_t active = reduced ? 1 : model->trainer->rows < s->num_replicas ? model->trainer->rows : s->num_replicas;
    mirt__exchange_plan(s, s->num_replicas, (int)active, false, device, out);
}

/* Sums all parts of the device's share in the plan's order, updates, writes into every copy. */
static void mirt__device_update(void *arg, int device) {
    mirt_model *model = (mirt_model *)arg;
    mirt__exchange x;
    mirt__update u;
    mirt__where where = mirt__plain_where(model, device);
    mirt__device_exchange(model, device, &x);
    memset(&u, 0, sizeof u);
    mirt__device_range(model, device, &u.begin, &u.end);
    u.parts = x.parts;
    for (int i = 0; i < x.parts; i++) u.part[i] = mirt__gradient_at(model, x.device[i], x.slot[i]);
    for (int i = 0; i + 1 < x.parts; i++) {
        u.tree[i].into = x.add[i].into;
        u.tree[i].from = x.add[i].from;
    }
    u.copies = mirt__weight_copies(model->strategy);
    for (int d = 0; d < u.copies; d++) u.weight[d] = (mirt__real *)(void *)model->weight[d];
    mirt__optimizer_update(model, model->strategy->kernels, model->trainer->rate, &u)(&u, &where);
}

static void mirt__device_train(void *arg, int device) {
    mirt__device_gradients(arg, device);
    mirt__devices_barrier(((mirt_model *)arg)->strategy);
    mirt__device_update(arg, device);
}

/* The rate of the coming step; only a schedule can give a wrong one. */
static mirt_status mirt__take_rate(mirt_model *model) {
    double rate = model->trainer->rate = mirt_get_learning_rate(model);
    if (rate >= 0 && rate <= (double)FLT_MAX) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID, "the learning-rate schedule gave %g for step %lld; it must be a finite number and not negative", rate,
                      (long long)model->step);
}

MIRT__LIB mirt_status mirt__run_train(mirt_model *model) {
    if (mirt__take_rate(model) != MIRT_OK) return mirt_last_status();
    mirt__on_devices(model->strategy, mirt__device_train, model);
    model->step++;
    model->trainer->stage = MIRT__IDLE;
    return MIRT_OK;
}

typedef struct mirt__forward_job {
    mirt_model *model;
    mirt__program_kind kind;
} mirt__forward_job;

/* Rows do not depend on each other here, so devices share them without regard to replicas. */
static void mirt__device_forward(void *arg, int device) {
    const mirt__forward_job *job = (const mirt__forward_job *)arg;
    const mirt_model *model = job->model;
    mirt__bases bases;
    const mirt__program *program = &model->trainer->program[job->kind];
    int64_t first, rows = mirt__share(model->trainer->rows, model->strategy->num_devices, device, &first);
    mirt__device_bases(model, device, &bases);
    for (int64_t end = first + rows; first < end; first += rows) {
        rows = end - first < program->max_rows ? end - first : program->max_rows;
        mirt__replay(model, program, &bases, first, rows, false);
    }
}

MIRT__LIB void mirt__run_forward(mirt_model *model, mirt__program_kind kind) {
    mirt__forward_job job;
    job.model = model;
    job.kind = kind;
    mirt__on_devices(model->strategy, mirt__device_forward, &job);
}

/* >>results */

MIRT__LIB double mirt__add_results(const mirt_model *model, mirt__sums *sums) {
    const mirt__trainer *t = model->trainer;
    double own = 0;
    bool mean = model->config.reduction != MIRT_SUM;
    for (int64_t i = 0; i < t->rows; i++) {
        own += (double)t->result[0][i];
        if (mean) sums->loss += (double)t->result[0][i];
    }
    if (!mean) sums->loss += own * (double)t->rows; /* Keras weights a batch's loss by its size */
    for (int m = 0; m < mirt__num_metrics(model); m++) {
        for (int64_t i = 0; i < t->rows; i++) sums->metric[m] += (double)t->result[1 + m][i];
    }
    sums->count += t->rows;
    return mean ? own / (double)t->rows : own;
}

MIRT__LIB void mirt__logs_add(mirt_logs *logs, const char *name, double value) {
    if (logs->count == MIRT__COUNT(logs->name)) return;
    logs->name[logs->count] = name;
    logs->value[logs->count++] = value == value ? value : (double)NAN; /* of one sign, for those who print it */
}

MIRT__LIB void mirt__sums_to_logs(const mirt_model *model, const mirt__sums *sums, bool validation, mirt_logs *logs) {
    double count = sums->count ? (double)sums->count : 1;
    mirt__logs_add(logs, validation ? "val_loss" : "loss", sums->loss / count);
    for (int m = 0; m < mirt__num_metrics(model); m++) {
        const mirt__metric_class *metric = mirt__metric_class_get(model->config.metrics[m]);
        mirt__logs_add(logs, validation ? metric->val_name : metric->name, sums->metric[m] / count);
    }
}

/* >>the four stages */

static mirt_status mirt__spec_of_arrays(const mirt_array *x, const mirt_array *y, mirt__data_spec *spec, mirt__batch *batch) {
    memset(batch, 0, sizeof *batch);
    if (!x->data || x->shape.rank < 1 || x->shape.dim[0] < 1) return mirt__fail(MIRT_E_INVALID, "the batch has no samples");
    if (!y->data || y->shape.rank < 1) return mirt__fail(MIRT_E_INVALID, "the batch has no labels");
    mirt_data data;
    memset(&data, 0, sizeof data);
    data.x[0] = *x;
    data.y[0] = *y;
    if (mirt__arrays_spec(&data, spec, batch->field) != MIRT_OK) return mirt_last_status();
    spec->batch = batch->rows = spec->samples;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_scatter(mirt_model *model, mirt_array x, mirt_array y) {
    mirt__data_spec spec;
    mirt__batch batch;
    mirt__needs needs;
    memset(&needs, 0, sizeof needs);
    if (mirt__need_compiled(model, "mirt_scatter") != MIRT_OK || mirt__spec_of_arrays(&x, &y, &spec, &batch) != MIRT_OK ||
        mirt__check_data(model, &spec, true) != MIRT_OK) {
        return mirt_last_status();
    }
    needs.x_dtype = x.dtype;
    needs.batch[MIRT__TRAIN] = batch.rows;
    if (mirt__trainer_prepare(model, &needs) != MIRT_OK || mirt__begin_batch(model, &spec, &batch, true) != MIRT_OK) return mirt_last_status();
    model->trainer->stage = MIRT__SCATTERED;
    return MIRT_OK;
}

static mirt_status mirt__need_stage(const mirt_model *model, mirt__step_stage stage, const char *caller, const char *before) {
    if (!model) return mirt__fail_missing(caller, "model");
    if (model->trainer && model->trainer->stage == stage) return MIRT_OK;
    return mirt__fail(MIRT_E_STATE, "%s: call %s first", caller, before);
}

MIRT_API mirt_status mirt_grad(mirt_model *model, double *loss) {
    mirt__sums sums;
    memset(&sums, 0, sizeof sums);
    if (mirt__need_stage(model, MIRT__SCATTERED, "mirt_grad", "mirt_scatter") != MIRT_OK) return mirt_last_status();
    mirt__on_devices(model->strategy, mirt__device_gradients, model);
    double mean = mirt__add_results(model, &sums);
    if (loss) *loss = mean;
    model->trainer->stage = MIRT__GRADIENTS;
    return MIRT_OK;
}

/* The device's share: parts summed in place in the plan's order, then written to every device's
   first buffer. */
static void mirt__device_all_reduce(void *arg, int device) {
    mirt_model *model = (mirt_model *)arg;
    mirt__exchange x;
    mirt__where where = mirt__plain_where(model, device);
    int64_t begin, end;
    mirt__device_exchange(model, device, &x);
    mirt__device_range(model, device, &begin, &end);
    for (int i = 0; i + 1 < x.parts; i++) {
        int into = x.add[i].into, from = x.add[i].from;
        model->strategy->kernels->accumulate(mirt__gradient_at(model, x.device[into], x.slot[into]) + begin,
                                             mirt__gradient_at(model, x.device[from], x.slot[from]) + begin, end - begin, &where);
    }
    const mirt__real *sum = mirt__gradient_at(model, x.device[0], x.slot[0]) + begin;
    for (int d = 0; d < model->strategy->num_devices; d++) {
        mirt__real *to = mirt__gradient_at(model, d, 0) + begin;
        if (to != sum) memcpy(to, sum, (size_t)(end - begin) * sizeof *to);
    }
}

MIRT_API mirt_status mirt_all_reduce(mirt_model *model) {
    if (mirt__need_stage(model, MIRT__GRADIENTS, "mirt_all_reduce", "mirt_grad") != MIRT_OK) return mirt_last_status();
    mirt__on_devices(model->strategy, mirt__device_all_reduce, model);
    model->trainer->stage = MIRT__REDUCED;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_apply(mirt_model *model) {
    if (mirt__need_stage(model, MIRT__REDUCED, "mirt_apply", "mirt_all_reduce") != MIRT_OK) return mirt_last_status();
    if (mirt__take_rate(model) != MIRT_OK) return mirt_last_status();
    mirt__on_devices(model->strategy, mirt__device_update, model);
    model->step++;
    model->trainer->stage = MIRT__IDLE;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_train_step(mirt_model *model, mirt_array x, mirt_array y, double *loss) {
    mirt__sums sums;
    memset(&sums, 0, sizeof sums);
    if (mirt_scatter(model, x, y) != MIRT_OK) return mirt_last_status();
    if (mirt__run_train(model) != MIRT_OK) return mirt_last_status();
    double mean = mirt__add_results(model, &sums);
    if (loss) *loss = mean;
    return MIRT_OK;
}

MIRT_API int64_t mirt_replica_rows(const mirt_model *model, int replica, int64_t *first) {
    int64_t at = 0, rows = 0;
    if (model && model->trainer && replica >= 0 && replica < model->strategy->num_replicas) {
        rows = mirt__share(model->trainer->rows, model->strategy->num_replicas, replica, &at);
    }
    if (first) *first = at;
    return rows;
}

MIRT_API mirt_status mirt_get_gradient(mirt_model *model, const char *name, int device, float *out, size_t count) {
    const mirt_strategy *s = model ? model->strategy : NULL;
    if (!model || !model->trainer || (model->trainer->stage != MIRT__GRADIENTS && model->trainer->stage != MIRT__REDUCED)) {
        return mirt__fail(MIRT_E_STATE, "mirt_get_gradient: call mirt_grad first");
    }
    if (!name || !out) return mirt__fail(MIRT_E_INVALID, "mirt_get_gradient: no weight name or no place for the values");
    int index = mirt__variable_find(model, name);
    if (index < 0) return mirt_last_status();
    const mirt__variable *v = &model->variable[index];
    if (device < 0 || device >= s->num_devices) return mirt__fail(MIRT_E_DEVICE, "there is no device %d; the strategy has %d", device, s->num_devices);
    if ((int64_t)count != v->count) {
        return mirt__fail(MIRT_E_SHAPE, "%s has %lld elements, not %llu", name, (long long)v->count, (unsigned long long)count);
    }
    /* the device's parts, the later ones added to the earlier as the tree does */
    mirt__exchange x;
    mirt__device_exchange(model, device, &x);
    bool reduced = model->trainer->stage == MIRT__REDUCED, any = false;
    for (size_t i = 0; i < count; i++) out[i] = 0;
    for (int p = x.parts - 1; p >= 0; p--) {
        if (!reduced && x.device[p] != device) continue;
        const mirt__real *g = mirt__gradient_at(model, reduced ? device : x.device[p], x.slot[p]) + v->offset / sizeof(mirt__real);
        for (size_t i = 0; i < count; i++) out[i] = any ? (float)g[i] + out[i] : (float)g[i];
        any = true;
    }
    return MIRT_OK;
}
