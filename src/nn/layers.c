#include "layers.h"
#include "../formats/json.h"
/* Adding layers and their variables to a model. */

/* Names are stored in files, and a search for a free name scans all layers. */
#define MIRT__NAME_BYTES 200
#define MIRT__MAX_LAYERS 10000

MIRT__LIB void mirt__default_initializer(mirt_initializer *i, mirt_initializer fallback) {
    if (i->kind == MIRT_INIT_DEFAULT) *i = fallback;
}

MIRT__LIB void mirt__default_pair(int pair[2], int fallback) {
    if (!pair[0]) pair[0] = fallback;
    if (!pair[1]) pair[1] = pair[0];
}

MIRT__LIB bool mirt__layer_takes_images(const mirt_tensor *x) {
    char text[96];
    if (x->shape.rank == 4) return true;
    return mirt__fail(MIRT_E_SHAPE, "takes (rows, height, width, channels), not %s", mirt__shape_text(&x->shape, text)),
           false;
}

MIRT__LIB int mirt__layer_axis(const mirt_tensor *x, int axis) {
    const int rank = x->shape.rank, at = axis < 0 ? axis + rank : axis;
    if (at >= 1 && at < rank) return at;
    return mirt__fail(MIRT_E_SHAPE, "axis is %d; it must name one of %d axes other than that of the rows", axis, rank),
           0;
}

MIRT__LIB mirt_tensor *mirt__axes_last(mirt_tensor *x, unsigned axes, bool back) {
    int order[MIRT_MAX_RANK], inverse[MIRT_MAX_RANK], count = 0;
    bool moves = false;
    if (!x) return NULL;
    for (unsigned last = 0; last < 2; last++) {
        for (int i = 0; i < x->shape.rank; i++) {
            if ((axes >> i & 1) != last) continue;
            moves = moves || i != count;
            inverse[i] = count;
            order[count++] = i;
        }
    }
    return moves ? mirt_transpose(x, back ? inverse : order) : x;
}

/* factor * sum of kind(x), of each row where there are some. */
MIRT__TRAINING mirt_tensor *mirt__penalty(mirt_tensor *x, mirt__unary_kind kind, float factor) {
    const unsigned all = ((1u << x->shape.rank) - 1) & ~(mirt__is_batched(&x->shape) ? 1u : 0u);
    x = mirt__unary_op(kind, x, 0, 0);
    if (all) x = mirt__reduce_op(MIRT__REDUCE_SUM, x, all, false);
    return mirt__unary_op(MIRT__AFFINE, x, factor, 0);
}

/* Adds l1 * sum |x| + l2 * sum x^2 to the loss. */
static bool mirt__regularize(mirt__layer *layer, mirt_tensor *x, const mirt_regularizer *r) {
    if (!x) return false;
    if (!(r->l1 >= 0 && r->l2 >= 0 && isfinite(r->l1) && isfinite(r->l2))) {
        return mirt__fail(MIRT_E_INVALID,
                          "the factors of a regularizer are %g and %g; they must be finite and not negative",
                          (double)r->l1, (double)r->l2),
               false;
    }
    if (!MIRT__TRAINS || (r->l1 == 0 && r->l2 == 0)) return true;
    mirt_tensor *l1 = r->l1 != 0 ? mirt__penalty(x, MIRT__ABS, r->l1) : NULL,
                *l2 = r->l2 != 0 ? mirt__penalty(x, MIRT__SQUARE, r->l2) : NULL;
    mirt_tensor *penalty = r->l1 == 0 ? l2 : r->l2 == 0 ? l1 : mirt__binary_op(MIRT__ADD, l1, l2);
    if (!penalty) return false;
    penalty->node->a.regularizer = true;
    return mirt__term_add(layer->model, penalty);
}

MIRT__LIB mirt_tensor *mirt__regularize_activity(mirt__layer *layer, mirt_tensor *y, const mirt_regularizer *r) {
    return mirt__regularize(layer, y, r) ? y : NULL;
}

static bool mirt__spectral_check(const mirt_constraint *c, const char *name, const mirt_shape *shape) {
    if (strcmp(name, "kernel") != 0)
        return mirt__fail(MIRT_E_INVALID, "a spectral norm is of a layer's kernel, not of its %s", name), false;
    if (c->power_iterations >= 1 && c->power_iterations <= 100 &&
        shape->dim[shape->rank - 1] <= MIRT__SPECTRAL_COLUMNS)
        return true;
    return mirt__fail(MIRT_E_INVALID, "a spectral norm takes 1 to 100 power iterations, not %d, and at most %d "
                                      "columns of a kernel, not %lld",
                      c->power_iterations, MIRT__SPECTRAL_COLUMNS, (long long)shape->dim[shape->rank - 1]),
           false;
}

/* Keras's defaults, and what can be done to a weight of this rank. */
static bool mirt__constraint_check(const mirt_constraint *c, const char *name, const mirt_shape *shape) {
    const bool norm = c->kind != MIRT_NON_NEG;
    const int rank = shape->rank;
    if (c->kind == MIRT_NO_CONSTRAINT) return true;
    if ((int)c->kind < 0 || c->kind >= MIRT__CONSTRAINT_COUNT)
        return mirt__fail(MIRT_E_INVALID, "invalid constraint (%d)", (int)c->kind), false;
    if (c->kind == MIRT_SPECTRAL_NORM) return mirt__spectral_check(c, name, shape);
    if (norm && (c->axis < 1 || c->axis >> rank))
        return mirt__fail(MIRT_E_INVALID, "axis of a constraint is %d; bits 0 to %d are axes of the weight", c->axis,
                          rank - 1),
               false;
    if (c->min_value >= 0 && c->max_value >= c->min_value && c->max_value <= FLT_MAX && c->rate >= 0 && c->rate <= 1)
        return true;
    return mirt__fail(MIRT_E_INVALID,
                      "a constraint of norms from %g to %g at rate %g: they must be finite, not negative and in this "
                      "order, and a rate at most 1",
                      (double)c->min_value, (double)c->max_value, (double)c->rate),
           false;
}

MIRT__LIB mirt_tensor *mirt__weight_add(mirt__layer *layer, const char *name, const mirt_shape *shape,
                                        mirt_initializer *initializer, mirt_initializer fallback,
                                        const mirt_regularizer *regularizer, const mirt_constraint *constraint) {
    mirt__default_initializer(initializer, fallback);
    if (!mirt__constraint_check(constraint, name, shape)) return NULL;
    mirt_tensor *w = mirt__variable_add(layer, name, shape, initializer, true);
    if (w) layer->model->variable[w->node->a.index].constraint = *constraint;
    if (w && constraint->kind == MIRT_SPECTRAL_NORM) { /* mirt__rule_constrain expects it next to the kernel */
        const mirt_shape one = MIRT_SHAPE(1, shape->dim[shape->rank - 1]);
        const mirt_initializer drawn = mirt_truncated_normal(0, 0.02f);
        if (!mirt__variable_add(layer, "vector_u", &one, &drawn, false)) return NULL;
    }
    return mirt__regularize(layer, w, regularizer) ? w : NULL;
}

MIRT__LIB mirt_tensor *mirt__bias_and_activation(mirt__layer *layer, mirt_tensor *x, const mirt__outcome *f) {
    mirt__default_initializer(f->initializer, mirt_zeros());
    if (x && !f->no_bias) {
        mirt_shape shape = MIRT_SHAPE(mirt__last_dim(x));
        x = mirt__bias_add_op(x, mirt__weight_add(layer, "bias", &shape, f->initializer, mirt_zeros(), f->regularizer,
                                                  f->constraint));
    }
    return mirt__regularize_activity(layer, mirt__activation_op(f->activation, x), f->activity);
}

static mirt_constraint mirt__constraint_of(mirt_constraint_kind kind, float least, float most, float rate, int axis) {
    mirt_constraint c;
    memset(&c, 0, sizeof c);
    c.kind = kind;
    c.min_value = least;
    c.max_value = most;
    c.rate = rate;
    c.axis = axis;
    return c;
}

MIRT_API mirt_constraint mirt_max_norm(float max_value, int axis) {
    return mirt__constraint_of(MIRT_MAX_NORM, 0, max_value, 1, axis);
}
MIRT_API mirt_constraint mirt_non_neg(void) { return mirt__constraint_of(MIRT_NON_NEG, 0, 0, 0, 0); }
MIRT_API mirt_constraint mirt_unit_norm(int axis) { return mirt__constraint_of(MIRT_UNIT_NORM, 1, 1, 1, axis); }
MIRT_API mirt_constraint mirt_min_max_norm(float min_value, float max_value, float rate, int axis) {
    return mirt__constraint_of(MIRT_MIN_MAX_NORM, min_value, max_value, rate, axis);
}
MIRT_API mirt_constraint mirt_spectral_norm(int power_iterations) {
    mirt_constraint c = mirt__constraint_of(MIRT_SPECTRAL_NORM, 0, 0, 0, 0);
    c.power_iterations = power_iterations;
    return c;
}

/* Searches the layers of the model, or those inside of the layer being built. */
static bool mirt__layer_name_taken(const mirt_model *model, const char *name) {
    const mirt__layer *parent = model->building;
    for (const mirt__layer *l = parent ? parent->children : NULL; l; l = l->sibling) {
        if (strcmp(l->name, name) == 0) return true;
    }
    for (int i = 0; !parent && i < model->num_layers; i++) {
        if (strcmp(model->layer[i]->name, name) == 0) return true;
    }
    return false;
}

static bool mirt__layer_name_check(const char *name) {
    char label[MIRT__JSON_LABEL];
    size_t size = strlen(name);
    if (size > 0 && size <= MIRT__NAME_BYTES && !strchr(name, '/') && mirt__utf8_valid(name, size)) return true;
    return mirt__fail(MIRT_E_INVALID, "layer name \"%s\": it must be 1 to %d bytes of UTF-8 without a '/'",
                      mirt__json_label(name, label), MIRT__NAME_BYTES),
           false;
}

/* `name`, or the first free one of "conv2d", "conv2d_1", ...; prefixed with "parent/" inside of a layer. */
static const char *mirt__layer_name(mirt_model *model, const char *base, const char *name) {
    const mirt__layer *parent = model->building;
    char full[2 * MIRT__NAME_BYTES + 16], label[MIRT__JSON_LABEL];
    if (name && !mirt__layer_name_check(name)) return NULL;
    int size = snprintf(full, sizeof full, "%s%s%s", parent ? parent->name : "", parent ? "/" : "", name ? name : base);
    for (int i = 1; !name && mirt__layer_name_taken(model, full); i++)
        snprintf(full + size, sizeof full - (size_t)size, "_%d", i);
    if (strlen(full) > MIRT__NAME_BYTES) {
        mirt__fail(MIRT_E_INVALID, "layer name \"%s\" is too long", mirt__json_label(full, label));
        return NULL;
    }
    if (name && mirt__layer_name_taken(model, full)) {
        mirt__fail(MIRT_E_INVALID, "there already is a layer \"%s\"", mirt__json_label(full, label));
        return NULL;
    }
    return mirt__pool_strdup(&model->graph.pool, full);
}

static mirt__layer *mirt__layer_new(mirt_model *model, const mirt__layer_class *cls, const void *desc,
                                    const char *name) {
    mirt__pool *pool = &model->graph.pool;
    if (model->num_layers == MIRT__MAX_LAYERS) {
        mirt__fail(MIRT_E_INVALID, "a model has at most %d layers", MIRT__MAX_LAYERS);
        return NULL;
    }
    const char *full = mirt__layer_name(model, cls->base_name, name ? name : model->next_name);
    model->next_name = NULL;
    mirt__layer *layer = full ? (mirt__layer *)mirt__pool_alloc(pool, sizeof *layer) : NULL;
    if (!layer || !(layer->desc = mirt__pool_alloc(pool, cls->desc_size))) return NULL;
    layer->cls = cls;
    layer->model = model;
    layer->name = full;
    layer->parent = model->building;
    layer->first_variable = model->num_variables;
    layer->first_node = model->graph.count;
    layer->first_term = model->graph.num_terms;
    if (desc) memcpy(layer->desc, desc, cls->desc_size);
    if (model->num_layers == model->layer_capacity) {
        int capacity = model->layer_capacity ? 2 * model->layer_capacity : 16;
        if (!mirt__grow((void **)&model->layer, (size_t)model->num_layers, (size_t)capacity, sizeof *model->layer))
            return NULL;
        model->layer_capacity = capacity;
    }
    return layer;
}

static bool mirt__layer_inputs(mirt__layer *layer, mirt_tensor *const *in, int num_in) {
    const mirt__layer_class *cls = layer->cls;
    if (num_in < cls->min_in || num_in > cls->max_in) {
        return mirt__fail(MIRT_E_INVALID, "takes %d%s tensors, not %d", cls->min_in,
                          cls->max_in > cls->min_in ? " or more" : "", num_in),
               false;
    }
    for (int i = 0; i < num_in; i++) {
        if (!in[i]) return mirt__fail(MIRT_E_INVALID, "tensor number %d of %d is NULL", i + 1, num_in), false;
        if (in[i]->node->graph != &layer->model->graph)
            return mirt__fail(MIRT_E_INVALID, "one of its tensors belongs to another model"), false;
        layer->in[i] = in[i];
    }
    layer->num_in = num_in;
    return true;
}

MIRT__LIB mirt_tensor *mirt__layer_add(mirt_model *model, const mirt__layer_class *cls, mirt_tensor *const *in,
                                       int num_in, const void *desc, const char *name) {
    MIRT__ENTER;
    if (num_in > 0 && !in) {
        mirt__fail(MIRT_E_INVALID, "%s: no tensors", cls->base_name);
        return NULL;
    }
    for (int i = 0; !model && i < num_in && i < MIRT__MAX_IN; i++) {
        if (!in[i]) continue;
        model = in[i]->node->graph->model;
        if (!model)
            return mirt__fail(MIRT_E_INVALID, "%s: layers belong to models; only operations are possible here",
                              cls->base_name),
                   mirt__graph_poison(in[i]->node->graph), (mirt_tensor *)NULL;
    }
    MIRT__CLAIM(mirt__strategy_of_model(model), cls->base_name, NULL);
    if (!model || model->graph.status != MIRT_OK || mirt__usable(model->strategy) != MIRT_OK) return NULL;
    if (!mirt__model_extend(model, "layers")) return NULL;
    mirt__layer *layer = mirt__layer_new(model, cls, desc, name);
    if (!layer) return mirt__model_poison(model);
    model->building = layer;
    model->graph.scope = layer->name;
    mirt_tensor *out = mirt__layer_inputs(layer, in, num_in) ? cls->build(layer, layer->in[0]) : NULL;
    model->building = layer->parent;
    model->graph.scope = layer->parent ? layer->parent->name : NULL;
    if (!out) {
        if (model->graph.status == MIRT_OK && mirt_last_status() != MIRT_E_NOMEM) mirt__fail_at("%s", layer->name);
        return mirt__model_poison(model);
    }
    layer->out[0] = out;
    if (!layer->num_out) layer->num_out = 1;
    layer->num_variables = model->num_variables - layer->first_variable;
    layer->num_nodes = model->graph.count - layer->first_node;
    layer->num_terms = model->graph.num_terms - layer->first_term;
    if (layer->parent) {
        layer->sibling = layer->parent->children;
        layer->parent->children = layer;
    } else {
        model->layer[model->num_layers++] = layer;
    }
    return out;
}

MIRT_API void mirt_next_name(mirt_model *model, const char *name) {
    MIRT__USE_MODEL(model, );
    if (!model) return;
    model->next_name = name ? mirt__pool_strdup(&model->graph.pool, name) : NULL;
    if (name && !model->next_name) mirt__model_poison(model);
}

MIRT__LIB mirt_tensor *mirt__variable_add(mirt__layer *layer, const char *name, const mirt_shape *shape,
                                          const mirt_initializer *initializer, bool trainable) {
    const int rank = shape->rank;
    mirt__variable like;
    double window = 1;
    if (mirt__initializer_check(initializer) != MIRT_OK) return NULL;
    memset(&like, 0, sizeof like);
    like.name = name;
    like.shape = *shape;
    like.count = mirt__shape_count(shape);
    like.trainable = trainable;
    like.initializer = *initializer;
    for (int i = 0; i < rank - 2; i++) window *= (double)shape->dim[i];
    like.fan_out = rank ? window * (double)shape->dim[rank - 1] : 1; /* Keras's compute_fans */
    like.fan_in = rank > 1 ? window * (double)shape->dim[rank - 2] : like.fan_out;
    if (!mirt__variable_new(layer->model, &like, layer->name)) return NULL;
    return mirt__variable_op(&layer->model->graph, layer->model->num_variables - 1, shape);
}

MIRT__LIB bool mirt__term_add(mirt_model *model, mirt_tensor *term) {
    return mirt__graph_term_add(&model->graph, term);
}

#undef MIRT__NAME_BYTES
#undef MIRT__MAX_LAYERS

#define MIRT__LAYER_ADDRESS(name) &mirt__##name##_layer,
static const mirt__layer_class *const mirt__layer_table[] = {MIRT__LAYER_LIST(MIRT__LAYER_ADDRESS)};
#undef MIRT__LAYER_ADDRESS

MIRT__LIB const mirt__layer_class *mirt__layer_class_at(int number) { return mirt__layer_table[number]; }

MIRT__LIB const mirt__layer_class *mirt__layer_class_by_name(const mirt_strategy *strategy, const char *class_name) {
    for (int i = 0; i < MIRT__COUNT(mirt__layer_table); i++) {
        if (strcmp(mirt__layer_table[i]->class_name, class_name) == 0) return mirt__layer_table[i];
    }
    const mirt__layer_class *cls = strategy ? strategy->layer_classes : NULL;
    while (cls && strcmp(cls->class_name, class_name) != 0) cls = cls->next;
    return cls;
}

MIRT__LIB mirt_tensor *mirt__layer_on(const mirt__layer_class *cls, mirt_tensor *x, const void *desc,
                                      const char *name) {
    return x ? mirt__layer_add(NULL, cls, &x, 1, desc, name) : NULL;
}

MIRT__LIB mirt_tensor *mirt__layer_needs_desc(const mirt__layer_class *cls, mirt_tensor *x, const void *desc,
                                              const char *name) {
    if (!x || desc) return mirt__layer_on(cls, x, desc, name);
    mirt__fail(MIRT_E_INVALID, "%s needs a description", cls->base_name);
    mirt__graph_poison(x->node->graph);
    return NULL;
}
