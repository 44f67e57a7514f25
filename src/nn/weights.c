#include "../ops/ops.h"
#include "model.h"
/* Weights: where variables lie, who owns them, reading and setting them.

   The weight block of a model holds its trainable variables first, so that gradients, optimizer and
   all-reduce work on the front of it, and the others behind them. A model that was called as a layer
   is a part of the model around it: its variables are the owner's, under longer names. */

/* >>layout */

MIRT__LIB bool mirt__is_trained(const mirt__variable *v) { return v->trainable && !v->frozen; }
MIRT__LIB bool mirt__is_frozen(const void *model, int variable) {
    return ((const mirt_model *)model)->variable[variable].frozen;
}

MIRT__LIB mirt_model *mirt__root(const mirt_model *model, int *first) {
    const mirt_model *root = model;
    int at = 0;
    if (first) *first = 0;
    for (const mirt_model *m = model; m->owner; m = m->owner) {
        at += m->owner_first;
        if (!m->owner->weight) continue;
        root = m->owner;
        if (first) *first = at;
    }
    return (mirt_model *)root;
}

static size_t mirt__variable_bytes(const mirt__variable *v) {
    return mirt__align_up((size_t)v->count * sizeof(mirt__real));
}

/* Whether the variables lie as their flags want it. */
MIRT__TRAINING bool mirt__variables_fit(const mirt_model *model) {
    for (int i = 0; i < model->num_variables; i++) {
        if (model->variable[i].freeze != model->variable[i].frozen) return false;
    }
    return true;
}

/* What was asked for takes effect, in the models that share the weights too. */
static void mirt__variables_freeze(mirt_model *model) {
    mirt__variables_trained(model); /* as it was until now */
    for (int i = 0; i < model->num_variables; i++) model->variable[i].frozen = model->variable[i].freeze;
    for (mirt_model *m = model->strategy->models; m; m = m->next) {
        if (m->owner == model) mirt__variables_freeze(m);
    }
}

static void mirt__variables_place(mirt_model *model) {
    size_t at = 0;
    mirt__variables_freeze(model);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < model->num_variables; i++) {
            mirt__variable *v = &model->variable[i];
            if (mirt__is_trained(v) != (pass == 0)) continue;
            v->offset = at;
            at += mirt__variable_bytes(v);
        }
        if (pass == 0) model->trained_bytes = at;
    }
    model->weight_bytes = at;
    model->layout++;
}

/* The first device's copy, where it works in place. NULL with the error set. */
static char *mirt__weights_allocate(const mirt_model *model) {
    const mirt_strategy *s = model->strategy;
    char *block = s->able.in_place ? (char *)s->backend->alloc(s->device[0].handle, model->weight_bytes)
                                   : (char *)mirt__aligned_alloc(model->weight_bytes);
    return block ? (char *)memset(block, 0, model->weight_bytes) : NULL;
}

MIRT__LIB void mirt__weights_free(mirt_model *model) {
    const mirt_strategy *s = model->strategy;
    mirt__device_weights_free(model);
    if (s->able.in_place) s->backend->release(s->device[0].handle, model->weight);
    else mirt__aligned_free(model->weight);
    model->weight = NULL;
}

MIRT__LIB void mirt__kept_free(mirt_model *model) {
    mirt__free(model->kept);
    model->kept = NULL;
    model->num_kept = 0;
}

MIRT__LIB mirt__real *mirt__weight_at(const mirt_model *model, int variable) {
    int first;
    mirt_model *root = mirt__root(model, &first);
    mirt__weights_to_host(root);
    return (mirt__real *)(void *)(root->weight + root->variable[first + variable].offset);
}

MIRT__LIB mirt__real *mirt__slot_at(const mirt_model *model, int slot, int variable) {
    int first;
    const mirt_model *root = mirt__root(model, &first);
    if (MIRT__TRAINS) mirt__slots_to_host((mirt_model *)model);
    return (mirt__real *)(void *)(model->slot[slot] + root->variable[first + variable].offset);
}

static void mirt__write_weight(const mirt_model *model, int variable, const mirt__real *values) {
    if (!mirt__is_trained(&model->variable[variable])) mirt__root(model, NULL)->edits++;
    memcpy(mirt__weight_at(model, variable), values, (size_t)model->variable[variable].count * sizeof *values);
    mirt__root(model, NULL)->weights_newer = MIRT__NEWER_HOST;
}

MIRT__LIB void mirt__variable_loaded(mirt_model *model, int variable) {
    for (;; model = model->owner) {
        model->variable[variable].loaded = true;
        if (!model->owner) return;
        variable += model->owner_first;
    }
}

MIRT__LIB void mirt__variables_trained(mirt_model *model) {
    for (int i = 0; i < model->num_variables && model->step > 0; i++) {
        if (mirt__is_trained(&model->variable[i])) mirt__variable_loaded(model, i);
    }
}

/* What `part` has kept, in `owner`, in which it begins at `first`. */
static void mirt__take_kept(mirt_model *owner, mirt_model *part, int first) {
    const mirt__real *at = part->kept;
    for (int i = 0; i < part->num_kept; at += part->variable[i++].count) mirt__write_weight(owner, first + i, at);
    mirt__kept_free(part);
}

/* Parts that have weights of their own hand them over to `owner`, in which `part` begins at `first`. */
static void mirt__take_parts(mirt_model *owner, mirt_model *part, int first) {
    mirt__take_kept(owner, part, first);
    if (part->weight) {
        mirt__weights_to_host(part);
        for (int i = 0; i < part->num_variables; i++)
            mirt__write_weight(owner, first + i,
                               (const mirt__real *)(const void *)(part->weight + part->variable[i].offset));
        mirt__weights_free(part);
    }
    for (mirt_model *m = part->strategy->models; m; m = m->next) {
        if (m->owner == part) mirt__take_parts(owner, m, first + m->owner_first);
    }
    mirt__compile_forget(part);
}

MIRT__LIB mirt_model *mirt__family_busy(mirt_model *model) {
    if (model->busy) return model;
    if (!model->strategy->held) return NULL;
    for (mirt_model *m = model->strategy->models; m; m = m->next) {
        mirt_model *busy = m->owner == model ? mirt__family_busy(m) : NULL;
        if (busy) return busy;
    }
    return NULL;
}

/* The weights of a model cannot be moved while it, or one that shares them, is being trained. */
static mirt_status mirt__check_movable(mirt_model *model) {
    const mirt_model *busy = mirt__family_busy(model);
    return busy ? mirt__fail(
                      MIRT_E_STATE,
                      "%s is being trained; the weights it shares with %s stay where they are until mirt_fit returns",
                      busy->name, model->name)
                : MIRT_OK;
}

typedef struct mirt__drawing {
    const mirt_model *model;
    int first;
} mirt__drawing;

static void mirt__draw_variable(void *arg, int64_t number, int member) {
    const mirt__drawing *d = (const mirt__drawing *)arg;
    const int variable = d->first + (int)number;
    (void)member;
    mirt__initialize(&d->model->variable[variable], d->model->strategy->seed, mirt__weight_at(d->model, variable));
}

static void mirt__draw_variables(mirt_model *model, int begin, int end) {
    mirt__team *team = model->strategy->device[0].team;
    mirt__drawing drawing = {model, begin};
    mirt__team_for(team ? team : model->strategy->leaders, end - begin, mirt__draw_variable, &drawing);
}

MIRT__LIB mirt_status mirt__model_allocate(mirt_model *asked, bool drawn) {
    mirt_model *model = asked;
    int first = 0, above = 0;
    if (mirt__usable(model->strategy) != MIRT_OK) return mirt_last_status();
    if (mirt__root(model, NULL)->weight) return MIRT_OK;
    for (mirt_model *m = asked; m; m = m->owner) {
        if (m->num_kept) model = m, first = above; /* the weights of its parts and views are among those it kept */
        above += m->owner_first;
    }
    if (mirt__check_movable(model) != MIRT_OK) return mirt_last_status();
    mirt__variables_place(model);
    if (!(model->weight = mirt__weights_allocate(model))) return mirt_last_status();
    if (drawn) mirt__draw_variables(model, 0, model->num_variables);
    else { /* those of the others that are made with them */
        mirt__draw_variables(model, 0, first);
        mirt__draw_variables(model, first + asked->num_variables, model->num_variables);
    }
    for (int i = 0; i < model->num_variables; i++) model->edits += !mirt__is_trained(&model->variable[i]);
    mirt__weights_changed(model);
    mirt__take_kept(model, model, 0);
    for (mirt_model *m = model->strategy->models; m; m = m->next) {
        if (m->owner == model) mirt__take_parts(model, m, m->owner_first);
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__model_materialize(mirt_model *model) { return mirt__model_allocate(model, true); }

/* The weights' values are kept, the blocks are not. Whatever knew their places starts anew. */
static mirt_status mirt__weights_keep(mirt_model *model) {
    size_t elements = 0;
    for (int i = 0; i < model->num_variables; i++) elements += (size_t)model->variable[i].count;
    if (!(model->kept = (mirt__real *)mirt__calloc(elements + 1, sizeof(mirt__real)))) return mirt_last_status();
    mirt__weights_to_host(model);
    mirt__real *at = model->kept;
    for (int i = 0; i < model->num_variables; at += model->variable[i++].count)
        memcpy(at, model->weight + model->variable[i].offset, (size_t)model->variable[i].count * sizeof *at);
    model->num_kept = model->num_variables;
    for (mirt_model *m = model->strategy->models; m; m = m->next) {
        if (mirt__root(m, NULL) == model) mirt__compile_forget(m);
    }
    mirt__weights_free(model);
    model->layout++;
    return mirt__usable(model->strategy);
}

/* A view or a part whose optimizer state would be lost with the weights' places; NULL: none. */
static const mirt_model *mirt__compiled_relative(const mirt_model *model) {
    for (const mirt_model *m = model->strategy->models; m; m = m->next)
        if (m->compiled && mirt__root(m, NULL) == model) return m;
    return NULL;
}

MIRT__LIB bool mirt__model_extend(mirt_model *model, const char *what) {
    const mirt_model *busy = mirt__family_busy(model), *compiled = mirt__compiled_relative(model);
    if (model->owner)
        mirt__fail(MIRT_E_STATE, "%s is a %s %s already; %s come before that", model->name,
                   model->is_view ? "view of" : "part of", model->owner->name, what);
    else if (compiled) /* it stays usable, so the model is not marked */
        mirt__fail(MIRT_E_STATE,
                   "%s is compiled: %s come before mirt_compile. To build on %s, call it in a new model: "
                   "mirt_call(%.64s, mirt_input(new_model, shape), MIRT_TRAINING_AUTO)",
                   compiled->name, what, compiled == model ? "it" : model->name, model->name);
    else if (!model->weight) return true;
    else if (busy)
        mirt__fail(MIRT_E_STATE, "%s is being trained or recorded; %s of %s have to wait until that call returns",
                   busy->name, what, model->name);
    else return mirt__weights_keep(model) == MIRT_OK || mirt__model_poison(model);
    return false;
}

/* The variables in a new order, their values kept. Whatever knew the old places starts anew. */
MIRT__TRAINING_LIB mirt_status mirt__model_arrange(mirt_model *model) {
    mirt_model *root = mirt__root(model, NULL);
    if (mirt__variables_fit(root)) return MIRT_OK;
    if (mirt__check_movable(root) != MIRT_OK) return mirt_last_status();
    mirt__weights_to_host(root);
    char *block = mirt__weights_allocate(root);
    if (!block) return mirt_last_status();
    size_t *old = (size_t *)mirt__calloc((size_t)root->num_variables + 1, sizeof *old);
    if (!old) {
        mirt__aligned_free(block);
        return mirt_last_status();
    }
    for (int i = 0; i < root->num_variables; i++) old[i] = root->variable[i].offset;
    mirt__variables_place(root);
    for (int i = 0; i < root->num_variables; i++) {
        const mirt__variable *v = &root->variable[i];
        memcpy(block + v->offset, root->weight + old[i], (size_t)v->count * sizeof(mirt__real));
    }
    mirt__weights_free(root);
    root->weight = block;
    mirt__free(old);
    for (mirt_model *m = root->strategy->models; m; m = m->next) {
        if (m != model && mirt__root(m, NULL) == root) mirt__compile_forget(m);
    }
    return MIRT_OK;
}

/* >>parts */

MIRT__LIB mirt__variable *mirt__variable_new(mirt_model *model, const mirt__variable *from, const char *prefix) {
    const size_t size = (prefix ? strlen(prefix) + 1 : 0) + strlen(from->name) + 1;
    char text[96];
    size_t bytes;
    if (from->count < 0 || !mirt__mul_size((size_t)from->count, sizeof(mirt__real), &bytes) ||
        !mirt__add_size(bytes, MIRT__ALIGN, &bytes) || !mirt__add_size(bytes, model->weight_bytes, &bytes)) {
        mirt__fail(MIRT_E_SHAPE, "a %s of %s has too many elements", from->name, mirt__shape_text(&from->shape, text));
        return NULL;
    }
    if (model->num_variables == model->variable_capacity) {
        int capacity = model->variable_capacity ? 2 * model->variable_capacity : 16;
        if (!mirt__grow((void **)&model->variable, (size_t)model->num_variables, (size_t)capacity,
                        sizeof *model->variable))
            return NULL;
        model->variable_capacity = capacity;
    }
    char *name = (char *)mirt__pool_alloc(&model->graph.pool, size);
    if (!name) return NULL;
    snprintf(name, size, "%s%s%s", prefix ? prefix : "", prefix ? "/" : "", from->name);
    mirt__variable *v = &model->variable[model->num_variables++];
    *v = *from;
    v->name = name;
    v->offset = model->weight_bytes;
    model->weight_bytes = mirt__align_up(v->offset + (size_t)v->count * sizeof(mirt__real));
    return v;
}

MIRT__LIB mirt_status mirt__adopt(mirt_model *owner, mirt_model *part, const char *prefix) {
    for (const mirt_model *m = owner; m; m = m->owner) {
        if (m == part) return mirt__fail(MIRT_E_INVALID, "cannot be a part of itself");
    }
    if (part->strategy != owner->strategy)
        return mirt__fail(MIRT_E_INVALID, "is of another strategy than %s", owner->name);
    if (part->is_view) {
        return mirt__fail(MIRT_E_STATE,
                          "a view shares the weights of the model that it looks into, and cannot be a part of another; "
                          "record that part as a model of its own");
    }
    if (part->owner == owner) return MIRT_OK;
    if (part->owner) {
        return mirt__fail(MIRT_E_STATE, "is a part of %s already; a model can be a part of one other only",
                          part->owner->name);
    }
    if (mirt__family_busy(part))
        return mirt__fail(MIRT_E_STATE, "is being trained; it can be a part of %s when mirt_fit has returned",
                          owner->name);
    int first = owner->num_variables;
    mirt__variables_trained(part);
    for (int i = 0; i < part->num_variables; i++) {
        if (mirt__variable_new(owner, &part->variable[i], prefix)) continue;
        owner->num_variables = first;
        return mirt_last_status();
    }
    part->owner = owner;
    part->owner_first = first;
    return MIRT_OK;
}

/* >>trainable flags */

MIRT__LIB void mirt__freeze(mirt_model *model, int variable, bool frozen) {
    model->variable[variable].freeze = frozen;
    for (mirt_model *m = model->strategy->models; m; m = m->next) {
        int at = variable - m->owner_first;
        if (m->owner == model && at >= 0 && at < m->num_variables) mirt__freeze(m, at, frozen);
    }
}

MIRT__LIB bool mirt__matches(const char *name, const char *prefix) {
    size_t size = prefix ? strlen(prefix) : 0;
    if (!size) return true;
    if (prefix[size - 1] == '*') return strncmp(name, prefix, size - 1) == 0;
    return strncmp(name, prefix, size) == 0 && (name[size] == 0 || name[size] == '/');
}

MIRT_API mirt_status mirt_set_trainable(mirt_model *model, const char *prefix, bool trainable) {
    MIRT__USE_MODEL(model, mirt_last_status());
    int found = 0;
    if (!model) return mirt__fail_missing("mirt_set_trainable", "model");
    if (model->busy)
        return mirt__fail(MIRT_E_STATE,
                          "%s is being trained or recorded; mirt_set_trainable has to wait until that call returns",
                          model->name);
    for (int i = 0; i < model->num_variables; i++) {
        if (!mirt__matches(model->variable[i].name, prefix)) continue;
        found++;
        mirt_model *top = model;
        int at = i;
        for (; top->owner; top = top->owner) at += top->owner_first;
        mirt__freeze(top, at, !trainable);
    }
    if (found || !prefix || !*prefix) return MIRT_OK;
    for (int i = 0; i < model->num_layers; i++) { /* a layer without weights has nothing to freeze */
        if (mirt__matches(model->layer[i]->name, prefix)) return MIRT_OK;
    }
    mirt__layer_find(model, prefix);
    return mirt_last_status();
}

static const char *const mirt__policy_names[MIRT__POLICY_COUNT] = {"float32", "store_bfloat16", "mixed_bfloat16",
                                                                   "mixed_float16"};

MIRT__LIB mirt__policy mirt__policy_named(const char *name) {
    int index = 0;
    while (index < MIRT__POLICY_COUNT && strcmp(name, mirt__policy_names[index]) != 0) index++;
    return (mirt__policy)index;
}

MIRT_API mirt_status mirt_set_dtype_policy(mirt_model *model, const char *policy) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model) return mirt__fail_missing("mirt_set_dtype_policy", "model");
    if (!policy) return mirt__fail(MIRT_E_INVALID, "mirt_set_dtype_policy: no policy");
    const mirt__policy index = mirt__policy_named(policy);
    if ((index == MIRT__POLICY_MIXED_FLOAT16 || strcmp(policy, "float16") == 0) && !model->strategy->able.float16) {
        return mirt__fail(
            MIRT_E_INVALID,
            "the policy %s is for GPUs, whose float16 needs a scaled loss; mixed_bfloat16 is as fast and needs none",
            policy);
    }
    if (index == MIRT__POLICY_COUNT) {
        const char *nearest = strncmp(policy, "bf", 2) == 0 ? mirt__policy_names[MIRT__POLICY_MIXED_BFLOAT16]
                              : strcmp(policy, "float16") == 0
                                  ? mirt__policy_names[MIRT__POLICY_MIXED_FLOAT16]
                                  : mirt__nearest(policy, mirt__policy_names, MIRT__POLICY_COUNT);
        if (!nearest)
            return mirt__fail(MIRT_E_NOT_FOUND,
                              "there is no dtype policy \"%s\"; there are \"float32\", \"mixed_bfloat16\", "
                              "\"store_bfloat16\" and, for GPUs, \"mixed_float16\"",
                              policy);
        return mirt__fail(MIRT_E_NOT_FOUND, "there is no dtype policy \"%s\"; did you mean \"%s\"?", policy, nearest);
    }
    model = mirt__root(model, NULL);
    if (mirt__family_busy(model))
        return mirt__fail(MIRT_E_STATE,
                          "%s is being trained or recorded; mirt_set_dtype_policy has to wait until that call returns",
                          model->name);
    mirt__set_policy(model, index);
    return MIRT_OK;
}

MIRT__LIB const char *mirt__policy_name(mirt__policy policy) { return mirt__policy_names[policy]; }

MIRT__LIB void mirt__set_policy(mirt_model *model, mirt__policy policy) {
    const mirt__kernels *k = model->strategy->kernels;
    if (policy == MIRT__POLICY_MIXED_FLOAT16 && !model->strategy->able.float16) policy = MIRT__POLICY_MIXED_BFLOAT16;
    if (policy && !k->tiled_reads)
        mirt__log(model->strategy, MIRT_LOG_WARNING, "the %s kernels know no bfloat16: %s is computed in float32",
                  k->name, model->name);
    else if (policy == MIRT__POLICY_MIXED_BFLOAT16 && !k->half)
        mirt__log(model->strategy, MIRT_LOG_WARNING,
                  "products of bfloat16 are emulated on this machine: %s needs less memory, not less time; "
                  "\"store_bfloat16\" is faster",
                  model->name);
    model->policy = policy;
    if (policy == MIRT__POLICY_MIXED_FLOAT16 && model->loss_scale == 0) model->loss_scale = MIRT__LOSS_SCALE;
}

MIRT__TRAINING_LIB void mirt__loss_scale_set(mirt_model *root, double scale, int64_t steps) {
    if (!(scale > 0 && scale <= DBL_MAX) || steps < 0 || steps >= 2000) return;
    root->loss_scale = scale;
    root->scale_steps = steps;
}

MIRT__TRAINING_LIB void mirt__loss_scale_step(mirt_model *root, bool overflow) {
    root->scale_steps = overflow ? 0 : root->scale_steps + 1;
    if (overflow) {
        root->loss_scale = root->loss_scale > 1 ? root->loss_scale / 2 : 1;
        mirt__log(root->strategy, MIRT_LOG_INFO,
                  "%s: gradients left the range of float16; the step changed nothing, and the loss's scale is %g now",
                  root->name, root->loss_scale);
    } else if (root->scale_steps == 2000) {
        root->scale_steps = 0;
        root->loss_scale *= 2;
    }
}

/* >>reading and setting */

MIRT_API mirt_tensor *mirt_variable(mirt_model *model, const char *name, mirt_shape shape, mirt_initializer initializer,
                                    bool trainable) {
    MIRT__USE_MODEL(model, NULL);
    mirt__variable like;
    char text[96];
    if (!model || model->graph.status != MIRT_OK) return NULL;
    memset(&like, 0, sizeof like);
    like.name = name;
    like.shape = shape;
    const bool shaped = shape.rank >= 0 && shape.rank <= MIRT_MAX_RANK;
    like.count = shaped ? mirt__shape_count(&shape) : 0;
    like.trainable = trainable;
    like.initializer = initializer;
    like.fan_in = like.fan_out = (double)like.count;
    if (like.initializer.kind == MIRT_INIT_DEFAULT) like.initializer = mirt_glorot_uniform();
    if (mirt__usable(model->strategy) != MIRT_OK || !mirt__model_extend(model, "weights of its own")) return NULL;
    bool taken = false;
    for (int i = 0; name && i < model->num_variables; i++) taken = taken || strcmp(model->variable[i].name, name) == 0;
    if (!name || !*name || taken)
        mirt__fail(MIRT_E_INVALID, "%s: a weight needs a name of its own%s%s", model->name, taken ? ", not " : "",
                   taken ? name : "");
    else if (strchr(name, '/') || !mirt__utf8_valid(name, strlen(name)))
        mirt__fail(MIRT_E_INVALID, "%s: a weight's name is UTF-8 without a '/'", model->name);
    else if (like.count < 1 || mirt__is_batched(&shape))
        mirt__fail(MIRT_E_SHAPE, "%s: %s cannot be its shape", name, shaped ? mirt__shape_text(&shape, text) : "that");
    else if (mirt__initializer_check(&like.initializer) == MIRT_OK && mirt__variable_new(model, &like, NULL)) {
        return mirt__variable_op(&model->graph, model->num_variables - 1, &shape);
    }
    return mirt__model_poison(model);
}

MIRT_API mirt_status mirt_add_loss(mirt_model *model, mirt_tensor *loss) {
    MIRT__USE_MODEL(model, mirt_last_status());
    char text[96];
    if (!model) return mirt__fail_missing("mirt_add_loss", "model");
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (!loss) return mirt__fail_missing("mirt_add_loss", "tensor");
    bool fits = loss->dtype == MIRT_FLOAT32 && (mirt__is_batched(&loss->shape) || mirt__shape_count(&loss->shape) == 1);
    if (model->compiled || model->owner)
        return mirt__fail(MIRT_E_STATE, "%s is %s; mirt_add_loss comes before that", model->name,
                          model->owner ? "a part of another model" : "compiled");
    if (loss->node->graph != &model->graph)
        mirt__fail(MIRT_E_INVALID, "%s: the loss is a tensor of another model", model->name);
    else if (!fits)
        mirt__fail(MIRT_E_SHAPE, "%s: a loss is a float32 value a sample or one number, not %s", model->name,
                   mirt__shape_text(&loss->shape, text));
    else if (mirt__term_add(model, loss)) return MIRT_OK;
    mirt__model_poison(model);
    return mirt_last_status();
}

MIRT_API int mirt_num_weights(const mirt_model *model) { return model ? model->num_variables : 0; }

MIRT_API mirt_status mirt_weight(const mirt_model *model, int index, mirt_weight_info *out) {
    if (!model || !out) return mirt__fail(MIRT_E_INVALID, "mirt_weight: no model or no place for the answer");
    if (index < 0 || index >= model->num_variables) {
        return mirt__fail(MIRT_E_NOT_FOUND, "mirt_weight: there is no weight %d; %s has %d", index, model->name,
                          model->num_variables);
    }
    const mirt__variable *v = &model->variable[index];
    out->name = v->name;
    out->shape = v->shape;
    out->count = v->count;
    out->trainable = v->trainable && !v->freeze;
    return MIRT_OK;
}

/* The index of the variable or layer `name`, or -1 with an error that names the nearest one. */
static int mirt__name_find(const mirt_model *model, const char *name, bool layers) {
    mirt__suggestion guess = {name, NULL, ""};
    int count = layers ? model->num_layers : model->num_variables;
    for (int i = 0; i < count; i++) {
        if (strcmp(layers ? model->layer[i]->name : model->variable[i].name, name) == 0) return i;
    }
    for (int i = 0; i < count; i++) mirt__guess(&guess, layers ? model->layer[i]->name : model->variable[i].name);
    mirt__fail(MIRT_E_NOT_FOUND, "%s has no %s \"%s\"%s", model->name, layers ? "layer" : "weight", name,
               mirt__did_you_mean(&guess));
    return -1;
}

MIRT__LIB int mirt__variable_find(const mirt_model *model, const char *name) {
    return mirt__name_find(model, name, false);
}
MIRT__LIB int mirt__layer_find(const mirt_model *model, const char *name) { return mirt__name_find(model, name, true); }

/* The index of a weight whose values can be read or set, or -1 with the error set. */
static int mirt__variable_checked(mirt_model *model, const char *name, int device, size_t count, const char *caller) {
    if (!model) return mirt__fail_missing(caller, "model"), -1;
    if (mirt__usable(model->strategy) != MIRT_OK) return -1;
    if (!name) return mirt__fail(MIRT_E_INVALID, "%s: no weight name", caller), -1;
    int index = mirt__variable_find(model, name);
    if (index < 0) return -1;
    if (device < 0 || device >= model->strategy->num_devices) {
        return mirt__fail(MIRT_E_DEVICE, "%s: there is no device %d; the strategy has %d", caller, device,
                          model->strategy->num_devices),
               -1;
    }
    if ((int64_t)count != model->variable[index].count) {
        return mirt__fail(MIRT_E_SHAPE, "%s has %lld elements, not %llu", name, (long long)model->variable[index].count,
                          (unsigned long long)count),
               -1;
    }
    return mirt__model_materialize(model) == MIRT_OK ? index : -1;
}

MIRT_API mirt_status mirt_get_weight(mirt_model *model, const char *name, int device, float *out, size_t count) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!out) return mirt__fail(MIRT_E_INVALID, "mirt_get_weight: no place for the values");
    int index = mirt__variable_checked(model, name, device, count, "mirt_get_weight");
    if (index < 0) return mirt_last_status();
    if (device > 0) return mirt__device_weight_get(model, device, index, out);
    const mirt__real *from = mirt__weight_at(model, index);
    for (size_t i = 0; i < count; i++) out[i] = (float)from[i];
    return mirt__usable(model->strategy);
}

MIRT_API mirt_status mirt_set_weight(mirt_model *model, const char *name, const float *values, size_t count) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!values) return mirt__fail(MIRT_E_INVALID, "mirt_set_weight: no values");
    int index = mirt__variable_checked(model, name, 0, count, "mirt_set_weight");
    if (index < 0) return mirt_last_status();
    mirt__real *to = mirt__weight_at(model, index);
    for (size_t i = 0; i < count; i++) to[i] = (mirt__real)values[i];
    mirt__write_weight(model, index, to);
    mirt__variable_loaded(model, index);
    return MIRT_OK;
}
