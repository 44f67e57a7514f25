#include "../passes/fuse.h"
#include "../passes/half.h"
#include "../passes/plan.h"
#include "../passes/tiled_reads.h"
#include "../ops/ops.h"
#include "function.h"
/* Records functions: fields, losses, gradients, results, and the plan of their step. */

/* >>fields and results */

static bool mirt__record_fields(mirt_function *f) {
    for (int i = 0; i < f->spec.num_fields; i++) {
        const mirt__data_field *field = &f->spec.field[i];
        mirt_shape shape = field->shape;
        if (shape.rank == MIRT_MAX_RANK)
            return mirt__fail(MIRT_E_SHAPE, "samples of %d axes are too many", shape.rank), false;
        for (int k = shape.rank; k > 0; k--) shape.dim[k] = shape.dim[k - 1];
        shape.dim[0] = MIRT_ROWS;
        shape.rank++;
        if (!(f->recording.field[i] = mirt__input_op(&f->step.program.graph, i, field->dtype, &shape))) return false;
    }
    return true;
}

MIRT__LIB mirt_tensor *mirt__field_as(mirt_function *f, int field, mirt_dtype dtype) {
    return mirt_cast(f->recording.field[field], dtype);
}

MIRT__LIB bool mirt__fields_same(const mirt__data_spec *a, const mirt__data_spec *b, int fields) {
    for (int i = 0; i < fields; i++) {
        if (a->field[i].dtype != b->field[i].dtype || !mirt__shape_equal(&a->field[i].shape, &b->field[i].shape))
            return false;
    }
    return a->accumulate == b->accumulate && a->features == b->features;
}

MIRT__TRAINING_LIB bool mirt__spec_same(const mirt__data_spec *a, const mirt__data_spec *b) {
    return a->num_x == b->num_x && a->num_fields == b->num_fields && a->has_weights == b->has_weights &&
           mirt__fields_same(a, b, a->num_fields);
}

/* Recording is over, or the tensor is not of this function: says so. */
MIRT__TRAINING_LIB mirt_status mirt__need_recording(const mirt_function *f, const mirt_tensor *t, const char *caller) {
    if (!f) return mirt__fail_missing(caller, "function");
    if (!f->recording.active)
        return mirt__fail(MIRT_E_STATE, "%s: the function is recorded already; it is called in its body", caller);
    if (!t) return mirt__fail_missing(caller, "tensor");
    if (t->node->graph == &f->step.program.graph) return MIRT_OK;
    return mirt__fail(MIRT_E_INVALID,
                      "%s: the tensor is of a model or of another function; mirt_call brings a model in", caller);
}

/* >>terms of the loss */

MIRT__TRAINING_LIB mirt_tensor *mirt__class_numbers_use(mirt_function *f, int field, int64_t classes,
                                                        const mirt_loss_options *how, mirt_tensor *value) {
    mirt__class_numbers *use = &f->classes[field];
    if (!value) return NULL;
    if (use->classes && (use->ignores != how->has_ignore_class || use->ignored != how->ignore_class)) {
        mirt__fail(MIRT_E_INVALID, "losses of the same labels have to ignore the same class");
        mirt__graph_poison(value->node->graph);
        return NULL;
    }
    if (!use->classes || classes < use->classes) use->classes = (int)classes;
    use->ignores = how->has_ignore_class;
    use->ignored = how->ignore_class;
    if (!use->ignores || f->model->config.reduction == MIRT_SUM) return value;
    return mirt__binary_op(MIRT__MULTIPLY, value, mirt__valid_weight_op(&f->step.program.graph, field));
}

MIRT__TRAINING mirt__extent mirt__node_extent(const mirt__node *node) {
    mirt__extent in[2] = {MIRT__EXTENT_NONE, MIRT__EXTENT_NONE}, most = MIRT__EXTENT_NONE;
    for (int k = 0; k < node->num_out; k++) {
        if (mirt__is_batched(&node->out[k]->shape)) return MIRT__EXTENT_OTHER;
    }
    for (int k = 0; k < node->num_in; k++) {
        mirt__extent own = node->in[k]->pass.extent;
        if (k < 2) in[k] = own;
        if (own > most) most = own;
    }
    if (node->num_in && most == MIRT__EXTENT_NONE) return MIRT__EXTENT_NONE;
    if (node->op->extent) return node->op->extent(node, in);
    return node->num_in ? MIRT__EXTENT_OTHER : MIRT__EXTENT_NONE;
}

MIRT__TRAINING mirt__extent mirt__number_extent(const mirt_tensor *t) {
    const mirt__graph *graph = t->node->graph;
    for (int i = 0; i < graph->count; i++) {
        mirt__extent extent = mirt__node_extent(graph->node[i]);
        for (int k = 0; k < graph->node[i]->num_out; k++) graph->node[i]->out[k]->pass.extent = extent;
    }
    return t->pass.extent;
}

/* What the term weighs. A mean over a replica's rows counts by the share of these rows, which makes it exact. */
MIRT__TRAINING mirt__weight_kind mirt__term_weight(const mirt_tensor *term) {
    static const mirt__weight_kind weight[] = {MIRT__WEIGHT_ONCE, MIRT__WEIGHT_ONE, MIRT__WEIGHT_SHARE};
    return mirt__is_batched(&term->shape) ? MIRT__WEIGHT_SAMPLE : weight[mirt__number_extent(term)];
}

MIRT__TRAINING void mirt__warn_of_mean(const mirt_function *f, const mirt_tensor *term) {
    if (term->node->a.regularizer || mirt__term_weight(term) != MIRT__WEIGHT_SHARE) return;
    mirt__log(f->model->strategy, MIRT_LOG_WARNING,
              "%s: a loss was handed in as a mean over a replica's rows; it is weighted by their number. Hand in one "
              "value a sample: the library divides by the global batch",
              f->model->name);
}

MIRT__TRAINING_LIB mirt_tensor *mirt__sample_value(const mirt_model *model, mirt_tensor *values) {
    const bool batched = values && mirt__is_batched(&values->shape);
    if (values && values->node->a.regularizer && model->config.reduction == MIRT_SUM) {
        if ((values = mirt__reduce_op(MIRT__REDUCE_MEAN, values, 1u, false)) != NULL)
            values->node->a.regularizer = true;
        return values;
    }
    if (!values || values->shape.rank < (batched ? 2 : 1) || (!batched && mirt__shape_count(&values->shape) == 1))
        return values;
    return model->config.reduction == MIRT_SUM ? mirt_reduce_sum(values, 0, false) : mirt_reduce_mean(values, 0, false);
}

/* One value per sample, or one number. */
MIRT__TRAINING mirt_tensor *mirt__term_shape(const mirt_model *model, mirt_tensor *term) {
    char text[96];
    bool batched = mirt__is_batched(&term->shape);
    if (term->dtype != MIRT_FLOAT32 || (!batched && mirt__shape_count(&term->shape) != 1)) {
        mirt__fail(MIRT_E_SHAPE, "a loss is %s %s; it is one float32 value a sample, or one number",
                   mirt__dtype_name(term->dtype), mirt__shape_text(&term->shape, text));
        mirt__graph_poison(term->node->graph);
        return NULL;
    }
    return batched ? mirt__sample_value(model, term) : term;
}

MIRT__TRAINING_LIB mirt_tensor *mirt__term_value(mirt_function *f, mirt_tensor *term) {
    if (!term || !(term = mirt__term_shape(f->model, term)) || mirt__is_batched(&term->shape)) return term;
    mirt_tensor *weight = mirt__loss_weight_op(&f->step.program.graph, mirt__term_weight(term));
    return mirt__binary_op(MIRT__MULTIPLY, term, mirt__reshape_op(weight, &term->shape));
}

#define MIRT__MAX_SUMMANDS 16

/* A sum of numbers that weigh differently is taken apart: the loss of rows plus that of weights. Returns how many
   there are; 0 with the error set. */
MIRT__TRAINING int mirt__term_summands(mirt_function *f, mirt_tensor *term, mirt_tensor **part) {
    int n = 1;
    if (!(part[0] = mirt__term_shape(f->model, term))) return 0;
    for (int i = 0; i < n;) {
        const mirt__node *node = part[i]->node;
        bool sum = node->id == MIRT__OP_binary && (node->a.kind == MIRT__ADD || node->a.kind == MIRT__SUBTRACT) &&
                   n < MIRT__MAX_SUMMANDS;
        if (!sum || mirt__is_batched(&part[i]->shape) ||
            mirt__number_extent(node->in[0]) == mirt__number_extent(node->in[1])) {
            mirt__warn_of_mean(f, part[i++]);
            continue;
        }
        part[i] = node->in[0];
        part[n] = node->a.kind == MIRT__ADD ? node->in[1] : mirt_negative(node->in[1]);
        if (!part[n++]) return 0;
    }
    return n;
}

MIRT__TRAINING_LIB mirt_status mirt__minimize(mirt_function *f, mirt_tensor *term) {
    mirt_tensor *part[MIRT__MAX_SUMMANDS];
    mirt__recording *r = &f->recording;
    int n = mirt__term_summands(f, term, part);
    for (int i = 0; i < n; i++) {
        if (!mirt__grow_list((void **)&r->minimized, r->num_minimized, &r->minimized_capacity, sizeof *r->minimized))
            return mirt_last_status();
        r->minimized[r->num_minimized++] = part[i];
    }
    return n ? MIRT_OK : mirt_last_status();
}

/* The gradient of each term's value: its weight. */
MIRT__TRAINING bool mirt__term_gradients(mirt_function *f, mirt_tensor *const *term, int count) {
    mirt__graph *graph = &f->step.program.graph;
    mirt_tensor **seed = (mirt_tensor **)mirt__pool_alloc(&graph->pool, (size_t)count * sizeof *seed + 1);
    if (!seed) return false;
    for (int i = 0; i < count; i++) {
        seed[i] = mirt__loss_weight_op(graph, mirt__term_weight(term[i]));
        /* Gradients that users see are not scaled. */
        if (seed[i]) MIRT__OF(&seed[i]->node->a, loss)->scaled = f->step.float16 && term == f->recording.minimized;
        if (seed[i] && !mirt__is_batched(&term[i]->shape)) seed[i] = mirt__reshape_op(seed[i], &term[i]->shape);
        if (!seed[i]) return false;
    }
    return mirt__gradients(graph, term, seed, count);
}

MIRT__TRAINING bool mirt__root_trained(const void *arg, int variable) {
    return mirt__is_trained(&((const mirt_model *)arg)->variable[variable]);
}

MIRT__TRAINING_LIB mirt_status mirt__apply_gradient(mirt_function *f, int variable, mirt_tensor *gradient) {
    mirt__recording *r = &f->recording;
    for (int i = 0; i < r->num_applied; i++) {
        if (r->applied[i].variable != variable) continue;
        return mirt__fail(MIRT_E_INVALID, "%s has a gradient already; a step takes one for each weight: add them",
                          f->root->variable[variable].name);
    }
    if (!mirt__grow_list((void **)&r->applied, r->num_applied, &r->applied_capacity, sizeof *r->applied))
        return mirt_last_status();
    r->applied[r->num_applied].variable = variable;
    r->applied[r->num_applied++].gradient = gradient;
    return MIRT_OK;
}

MIRT__TRAINING_LIB mirt_status mirt__record_gradients(mirt_function *f, mirt_tensor *loss, mirt_tensor *const *x,
                                                      int count) {
    mirt__graph *graph = &f->step.program.graph;
    mirt_tensor *part[MIRT__MAX_SUMMANDS];
    int n = mirt__term_summands(f, loss, part);
    if (!n) return mirt_last_status();
    mirt__graph_mark_gradients(graph, mirt__root_trained, f->root);
    for (int i = 0; i < count; i++) mirt__graph_need_gradient(graph, x[i]);
    return mirt__term_gradients(f, part, n) ? MIRT_OK : mirt_last_status();
}

#undef MIRT__MAX_SUMMANDS

/* >>what comes after recording */

/* Variables without a gradient are named once; none at all is an error. */
MIRT__TRAINING mirt_status mirt__check_reached(const mirt_function *f) {
    mirt__text text;
    int missing = 0, wanted = 0, first;
    memset(&text, 0, sizeof text);
    mirt__root(f->model, &first);
    for (int i = first; i < first + f->model->num_variables; i++) {
        bool reached = false;
        if (!mirt__is_trained(&f->root->variable[i])) continue;
        wanted++;
        for (int k = 0; k < f->recording.num_applied; k++) reached = reached || f->recording.applied[k].variable == i;
        if (reached) continue;
        if (missing++ < 4) mirt__text_add(&text, "%s%s", missing > 1 ? ", " : "", f->root->variable[i].name);
    }
    if (wanted && !f->recording.num_applied)
        mirt__fail(MIRT_E_INVALID, "%s: the loss depends on none of the %d trainable weights", f->model->name, wanted);
    else if (missing) {
        mirt__log(
            f->model->strategy, MIRT_LOG_WARNING,
            "gradients do not exist for %d of the %d trainable weights of %s (%s%s): the loss does not depend on them",
            missing, wanted, f->model->name, text.data ? text.data : "", missing > 4 ? ", ..." : "");
    }
    if (!wanted)
        mirt__log(f->model->strategy, MIRT_LOG_WARNING, "%s has no trainable weights: training it changes none",
                  f->model->name);
    mirt__text_free(&text);
    return wanted && !f->recording.num_applied ? mirt_last_status() : MIRT_OK;
}

MIRT__TRAINING mirt_status mirt__collect_gradients(mirt_function *f) {
    mirt__graph *graph = &f->step.program.graph;
    int forward = graph->count;
    if (!f->recording.num_minimized) return MIRT_OK;
    if (!mirt__term_gradients(f, f->recording.minimized, f->recording.num_minimized)) return mirt_last_status();
    for (int i = 0; i < forward; i++) {
        mirt__node *node = graph->node[i];
        if (!mirt__is_variable(node) || !node->out[0]->grad) continue;
        if (mirt__apply_gradient(f, node->a.index, node->out[0]->grad) != MIRT_OK) return mirt_last_status();
    }
    return mirt__check_reached(f);
}

/* Everything that is to survive: results, losses, new values, gradients. */
static int mirt__collect_kept(const mirt_function *f, mirt_tensor **keep) {
    const mirt__graph *graph = &f->step.program.graph;
    int n = 0;
    for (int i = 0; i < f->results.count; i++) keep[n++] = f->results.list[i].tensor;
    if (!MIRT__TRAINS) return n;
    for (int i = 0; i < graph->num_assignments; i++) keep[n++] = graph->assignment[i].value;
    for (int i = 0; i < f->recording.num_applied; i++) keep[n++] = f->recording.applied[i].gradient;
    return n;
}

MIRT__TRAINING mirt_status mirt__collect_states(mirt_function *f) {
    const mirt__graph *graph = &f->step.program.graph;
    if (!graph->num_assignments) return MIRT_OK;
    f->step.state = (mirt__aggregated *)mirt__calloc((size_t)graph->num_assignments, sizeof *f->step.state);
    if (!f->step.state) return mirt_last_status();
    for (int i = 0; i < graph->num_assignments; i++) {
        const mirt__assignment *a = &graph->assignment[i];
        mirt__aggregated *s = &f->step.state[f->step.num_states++];
        s->variable = a->variable;
        s->kind = a->aggregation;
        s->from = (int64_t)(f->step.state_bytes / sizeof(mirt__real));
        s->to = (int64_t)(f->root->variable[a->variable].offset / sizeof(mirt__real));
        s->count = f->root->variable[a->variable].count;
        if (a->momentum > 0) {
            s->kept = (float)a->momentum;
            s->taken = (float)(1 - a->momentum);
        }
        f->step.state_bytes += mirt__align_up(mirt__tensor_bytes(a->value, 1));
    }
    return MIRT_OK;
}

MIRT__TRAINING int mirt__by_begin(const void *a, const void *b) {
    const mirt__gradient_part *x = (const mirt__gradient_part *)a, *y = (const mirt__gradient_part *)b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Where the gradients that exist are in the weight block, in its order. */
MIRT__TRAINING mirt__gradient_part *mirt__gradient_parts(mirt_function *f) {
    const mirt__recording *r = &f->recording;
    mirt__gradient_part *part = (mirt__gradient_part *)mirt__pool_alloc(&f->step.program.graph.pool,
                                                                        ((size_t)r->num_applied + 1) * sizeof *part);
    for (int i = 0; part && i < r->num_applied; i++) {
        const mirt__variable *v = &f->root->variable[r->applied[i].variable];
        part[i].begin = (int64_t)(v->offset / sizeof(mirt__real));
        part[i].count = v->count;
    }
    if (part) qsort(part, (size_t)r->num_applied, sizeof *part, mirt__by_begin);
    return part;
}

/* What they cover of the weight block, neighbors joined. */
MIRT__TRAINING mirt_status mirt__collect_ranges(mirt__step *step, const mirt__gradient_part *part, int count) {
    const int64_t vector = MIRT__ALIGN / (int64_t)sizeof(mirt__real);
    if (!count) return MIRT_OK;
    step->range = (mirt__range *)mirt__calloc((size_t)count, sizeof *step->range);
    if (!step->range) return mirt_last_status();
    for (int i = 0; i < count; i++) {
        const int64_t end = part[i].begin + (part[i].count + vector - 1) / vector * vector;
        const bool next = step->num_ranges && step->range[step->num_ranges - 1].end == part[i].begin;
        if (!next) step->range[step->num_ranges++].begin = part[i].begin;
        step->range[step->num_ranges - 1].end = end;
    }
    return MIRT_OK;
}

static mirt_status mirt__plan_function(mirt_function *f, mirt__output *outputs, size_t *offset) {
    const mirt__graph *graph = &f->step.program.graph;
    int64_t rows = f->step.max_rows / f->step.replicas + (f->step.max_rows % f->step.replicas != 0);
    int n = 0;
    if (!mirt__plan_fits(graph, rows))
        return mirt__fail(MIRT_E_NOMEM, "a batch of %lld samples needs more memory than any machine has",
                          (long long)f->step.max_rows);
    for (int i = 0; i < f->root->num_variables; i++) offset[i] = f->root->variable[i].offset;
    for (int i = 0; i < f->results.count; i++) {
        outputs[n].tensor = f->results.list[i].tensor;
        outputs[n].space = MIRT__SPACE_IO;
        outputs[n++].port = MIRT__MAX_FIELDS + i;
    }
    for (int i = 0; MIRT__TRAINS && i < f->step.num_states; i++) {
        outputs[n].tensor = graph->assignment[i].value;
        outputs[n].space = MIRT__SPACE_STATE;
        outputs[n++].offset = (size_t)f->step.state[i].from * sizeof(mirt__real);
    }
    for (int i = 0; MIRT__TRAINS && i < f->recording.num_applied; i++) {
        outputs[n].tensor = f->recording.applied[i].gradient;
        outputs[n].space = MIRT__SPACE_GRADIENT;
        outputs[n++].offset = f->root->variable[f->recording.applied[i].variable].offset;
    }
    return mirt__plan(&f->step.program, outputs, n, offset, rows) ? MIRT_OK : mirt_last_status();
}

static mirt_status mirt__finish(mirt_function *f) {
    mirt__graph *graph = &f->step.program.graph;
    const mirt__recording *r = &f->recording;
    size_t most = (size_t)(f->results.count + graph->num_assignments + r->num_applied + r->num_minimized +
                           f->root->num_variables) +
                  1;
    mirt__pool *pool = &graph->pool;
    mirt_tensor **keep = (mirt_tensor **)mirt__pool_alloc(pool, most * sizeof *keep);
    mirt__output *outputs = (mirt__output *)mirt__pool_alloc(pool, most * sizeof *outputs);
    size_t *offset = (size_t *)mirt__pool_alloc(pool, most * sizeof *offset);
    if (!keep || !outputs || !offset) return mirt_last_status();
    const mirt__storage_costs *costs = &f->model->strategy->able.costs;
    mirt__storage_costs tiled_costs = *costs;
    if (MIRT__TRAINS) mirt__graph_mark_gradients(graph, mirt__root_trained, f->root);
    int kept = mirt__collect_kept(f, keep);
    for (int i = 0; i < r->num_minimized; i++) keep[kept + i] = r->minimized[i];
    mirt__fuse_forward(graph, keep, kept + r->num_minimized);
    if (MIRT__TRAINS && mirt__collect_gradients(f) != MIRT_OK) return mirt_last_status();
    kept = mirt__collect_kept(f, keep);
    if (MIRT__TRAINS) mirt__fuse_backward(graph, keep, kept);
    const bool tiled = f->model->strategy->kernels->tiled_reads;
    if (f->policy) tiled_costs.again *= 2; /* tensors will have half as many bytes as now */
    if (tiled) mirt__fuse_tiled(graph, &tiled_costs, keep, kept);
    if (MIRT__TRAINS) mirt__storage_twice(graph, costs, keep, kept);
    if (MIRT__TRAINS && r->num_applied)
        mirt__fuse_elements(graph, f->model->strategy->kernels->fused_products, keep, kept);
    if (graph->status != MIRT_OK) return graph->status;
    if (tiled) {
        const mirt__half_rule rule = {f->step.float16 ? (mirt_dtype)MIRT__FLOAT16 : (mirt_dtype)MIRT__BFLOAT16,
                                      f->policy != MIRT__POLICY_STORE_BFLOAT16,
                                      f->model->strategy->kernels->fused_elements};
        if (f->policy) mirt__fuse_half(graph, costs, &rule, keep, kept);
        if (graph->status != MIRT_OK) return graph->status;
        for (int i = 0; i < graph->count; i++) graph->node[i]->a.winograd = f->model->strategy->winograd;
    }
    f->step.num_results = f->results.count;
    if (!MIRT__TRAINS) return mirt__plan_function(f, outputs, offset);
    const mirt__gradient_part *part = mirt__gradient_parts(f);
    if (!part || mirt__collect_states(f) != MIRT_OK || mirt__collect_ranges(&f->step, part, r->num_applied) != MIRT_OK)
        return mirt_last_status();
    f->step.gradient_bytes = f->root->trained_bytes;
    f->step.has_gradients = r->num_applied > 0;
    return mirt__plan_function(f, outputs, offset) == MIRT_OK ? mirt__mirror(&f->step, part, r->num_applied)
                                                              : mirt_last_status();
}

/* >>making one */

static mirt_status mirt__function_record(mirt_function *f, mirt__body body, void *user) {
    if (!mirt__record_fields(f)) return mirt_last_status();
    f->recording.active = true;
    mirt__hold(f->model);
    bool good = body(f, user);
    mirt__let_go(f->model);
    f->recording.active = false;
    if (f->step.program.graph.status != MIRT_OK)
        return mirt__fail(f->step.program.graph.status, "%s", f->step.program.graph.error);
    if (!good) return mirt_last_status();
    if (mirt__finish(f) != MIRT_OK) return mirt_last_status();
    if (MIRT__TRAINS && (f->step.program.num_cuts || f->step.num_states))
        f->step.by_replicas = true; /* its results are not those of rows alone */
    return mirt__step_needs(&f->step);
}

static void mirt__step_set(mirt_function *f, const mirt__function_desc *desc, int replicas) {
    mirt__step *step = &f->step;
    step->strategy = f->model->strategy;
    step->owner = f;
    step->max_rows = desc->max_batch;
    step->replicas = replicas;
    step->by_replicas = desc->by_replicas;
    step->float16 = f->root->policy == MIRT__POLICY_MIXED_FLOAT16;
    step->sends_ahead = desc->sends_ahead && step->strategy->able.queues;
    step->num_fields = f->spec.num_fields;
    step->result_port = MIRT__MAX_FIELDS;
    step->io = f->io;
    step->weight = f->root->device_weight;
    step->slot = f->model->device_slot;
}

MIRT__LIB mirt_function *mirt__function_new(mirt_model *model, const mirt__function_desc *desc, mirt__body body,
                                            void *user) {
    const mirt_strategy *s = model->strategy;
    int batches = desc->spec->accumulate > 1 ? desc->spec->accumulate : 1;
    if (batches > MIRT__MAX_REPLICAS / s->num_replicas) {
        mirt__fail(MIRT_E_INVALID, "%d batches on %d replicas are too many for one step; at most %d parts work",
                   batches, s->num_replicas, MIRT__MAX_REPLICAS);
        return NULL;
    }
    if (model->busy > 3) {
        mirt__fail(MIRT_E_STATE, "%s is being recorded while it is being recorded", model->name);
        return NULL;
    }
    if (mirt__model_materialize(model) != MIRT_OK) return NULL;
    mirt_function *f = (mirt_function *)mirt__calloc(1, sizeof *f);
    if (!f) return NULL;
    f->model = model;
    f->root = mirt__root(model, NULL);
    f->layout = f->root->layout;
    f->spec = *desc->spec;
    mirt__step_set(f, desc, s->num_replicas * batches);
    f->policy = f->root->policy;
    f->recording.mode.training = desc->training;
    f->recording.mode.frozen = mirt__is_frozen;
    f->recording.mode.arg = f->root;
    mirt__model_graph_init(&f->step.program.graph, NULL);
    f->step.program.graph.function = f;
    f->step.program.graph.serial = ++model->strategy->graphs;
    f->step.program.graph.root = f->root;
    f->step.program.graph.mode = &f->recording.mode;
    if (mirt__check_parts(s, f->step.replicas) == MIRT_OK && mirt__function_record(f, body, user) == MIRT_OK) return f;
    mirt__function_free(f);
    return NULL;
}

MIRT__LIB void mirt__function_free(mirt_function *f) {
    if (!f) return;
    mirt__step_free(&f->step);
    mirt__free(f->recording.minimized);
    mirt__free(f->recording.applied);
    mirt__aligned_free(f->results.memory);
    mirt__free(f);
}
