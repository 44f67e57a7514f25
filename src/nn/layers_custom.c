#include "layers.h"
#include "../formats/json.h"
/* User-defined layers. The strategy stores a copy of each class when it is registered or first used, for reading
   files. */

static mirt_tensor *mirt__custom_build(mirt__layer *layer, mirt_tensor *x) {
    const mirt_layer_class *user = layer->cls->user;
    (void)x;
    mirt__hold(layer->model);
    mirt_tensor *y;
    {
        MIRT__OUTSIDE;
        y = user->build(layer, layer->in, layer->num_in, layer->desc, user->user);
    }
    mirt__let_go(layer->model);
    if (layer->model->graph.status != MIRT_OK) return NULL;
    if (!y) {
        mirt__fail(MIRT_E_INVALID, "the build function of %s returned no tensor", user->class_name);
        return NULL;
    }
    if (y->node->graph == &layer->model->graph) return y;
    mirt__fail(MIRT_E_INVALID, "the build function of %s returned a tensor of another model", user->class_name);
    return NULL;
}

/* By mirt_field_kind. */
static const struct { size_t size; mirt__field_kind kind; } mirt__custom_kinds[] = {
    {sizeof(int), MIRT__FIELD_SIGNED}, {sizeof(float), MIRT__FIELD_FLOAT}, {sizeof(bool), MIRT__FIELD_BOOL}};

static mirt_status mirt__custom_check(const mirt_layer_class *c) {
    char label[MIRT__JSON_LABEL];
    if (!c || !mirt__short_name(c->class_name))
        return mirt__fail(MIRT_E_INVALID, "a layer class needs a name of 1 to 100 bytes of UTF-8");
    mirt__json_label(c->class_name, label);
    if (mirt__layer_class_by_name(NULL, c->class_name))
        return mirt__fail(MIRT_E_INVALID, "the library already has a layer class %s", label);
    if (!c->build) return mirt__fail(MIRT_E_INVALID, "layer class %s has no build function", label);
    if (c->inputs < -1 || c->inputs > MIRT__MAX_IN)
        return mirt__fail(MIRT_E_INVALID, "layer class %s: %d inputs; at most %d are allowed", label, c->inputs,
                          MIRT__MAX_IN);
    if (c->num_fields < 0 || (c->num_fields && !c->fields))
        return mirt__fail(MIRT_E_INVALID, "layer class %s: %d fields without a table of them", label, c->num_fields);
    for (int i = 0; i < c->num_fields; i++) {
        const mirt_field *f = &c->fields[i];
        const bool known = (int)f->kind >= 0 && (int)f->kind < MIRT__COUNT(mirt__custom_kinds);
        const size_t size = known ? mirt__custom_kinds[f->kind].size : 0;
        if (f->name && size && f->offset % size == 0 && size <= c->config_size && f->offset <= c->config_size - size)
            continue;
        return mirt__fail(
            MIRT_E_INVALID,
            "layer class %s: field number %d has no name or kind, or lies outside of the %zu bytes of its config",
            label, i + 1, c->config_size);
    }
    return MIRT_OK;
}

static bool mirt__custom_same(const mirt__layer_class *cls, const mirt_layer_class *b) {
    const mirt_layer_class *a = cls->user;
    bool same = strcmp(a->class_name, b->class_name) == 0 && a->build == b->build && a->user == b->user &&
                a->inputs == b->inputs && a->config_size == b->config_size && a->num_fields == b->num_fields;
    for (int i = 0; same && i < a->num_fields; i++) {
        same = strcmp(cls->fields[i].name, b->fields[i].name) == 0 && cls->fields[i].offset == b->fields[i].offset &&
               cls->fields[i].kind == mirt__custom_kinds[b->fields[i].kind].kind;
    }
    return same;
}

/* Like Keras, converts "MyReLU2D" to "my_re_lu2d". */
static char *mirt__custom_base_name(mirt__pool *pool, const char *class_name) {
    char *out = (char *)mirt__pool_alloc(pool, 2 * strlen(class_name) + 8), *to = out;
    for (const char *c = class_name; out && *c; c++) {
        bool upper = *c >= 'A' && *c <= 'Z', lower = *c >= 'a' && *c <= 'z',
             before = c > class_name && c[-1] >= 'a' && c[-1] <= 'z';
        if (upper && to > out && (before || (c[1] >= 'a' && c[1] <= 'z'))) *to++ = '_';
        if (upper) *to++ = (char)(*c - 'A' + 'a');
        else if (lower || *c == '_' || (*c >= '0' && *c <= '9')) *to++ = *c;
    }
    if (out && to == out) memcpy(out, "layer", 6);
    return out;
}

static const mirt__layer_class *mirt__custom_copy(mirt_strategy *strategy, const mirt_layer_class *c) {
    mirt__pool *pool = &strategy->pool;
    mirt__layer_class *cls = (mirt__layer_class *)mirt__pool_alloc(pool, sizeof *cls);
    mirt_layer_class *user = (mirt_layer_class *)mirt__pool_alloc(pool, sizeof *user);
    mirt__field *fields = (mirt__field *)mirt__pool_alloc(pool, (size_t)c->num_fields * sizeof *fields);
    const char *name = mirt__pool_strdup(pool, c->class_name), *base = mirt__custom_base_name(pool, c->class_name);
    if (!cls || !user || !fields || !name || !base) return NULL;
    for (int i = 0; i < c->num_fields; i++) {
        if (!(fields[i].name = mirt__pool_strdup(pool, c->fields[i].name))) return NULL;
        fields[i].offset = c->fields[i].offset;
        fields[i].kind = mirt__custom_kinds[c->fields[i].kind].kind;
    }
    *user = *c;
    user->class_name = name;
    user->fields = NULL; /* cls has them */
    cls->class_name = name;
    cls->base_name = base;
    cls->min_in = c->inputs > 0 ? c->inputs : 1;
    cls->max_in = c->inputs < 0 ? MIRT__MAX_IN : cls->min_in;
    cls->fields = fields;
    cls->num_fields = c->num_fields;
    cls->desc_size = c->config_size;
    cls->build = mirt__custom_build;
    cls->user = user;
    cls->next = strategy->layer_classes;
    strategy->layer_classes = cls;
    return cls;
}

/* The strategy's copy of `c`, created if it does not exist. */
static const mirt__layer_class *mirt__custom_class(mirt_strategy *strategy, const mirt_layer_class *c) {
    if (mirt__custom_check(c) != MIRT_OK) return NULL;
    const mirt__layer_class *cls = mirt__layer_class_by_name(strategy, c->class_name);
    return cls && mirt__custom_same(cls, c) ? cls : mirt__custom_copy(strategy, c);
}

MIRT_API mirt_status mirt_register_layer(mirt_strategy *strategy, const mirt_layer_class *layer_class) {
    MIRT__USE(strategy, mirt_last_status());
    if (!strategy) return mirt__fail_missing("mirt_register_layer", "strategy");
    return mirt__custom_class(strategy, layer_class) ? MIRT_OK : mirt_last_status();
}

MIRT_API mirt_tensor *mirt_custom_layer(const mirt_layer_class *layer_class, mirt_tensor *const *in, int num_in,
                                        const void *config, const char *name) {
    MIRT__ENTER;
    mirt_tensor *first = NULL;
    for (int i = 0; in && i < num_in && !first; i++) first = in[i];
    if (!first) return NULL;
    mirt_model *model = first->node->graph->model;
    const mirt__layer_class *cls = model ? mirt__custom_class(model->strategy, layer_class) : NULL;
    if (cls && (config || !cls->desc_size)) return mirt__layer_add(model, cls, in, num_in, config, name);
    if (cls) mirt__fail(MIRT_E_INVALID, "%s needs its config", cls->base_name);
    else if (!model) mirt__fail(MIRT_E_INVALID, "layers belong to models; here only operations are possible");
    mirt__graph_poison(first->node->graph);
    return NULL;
}

static bool mirt__custom_building(mirt_layer *layer, const char *caller) {
    if (!layer) return false;
    if (layer->model->building == layer) return layer->model->graph.status == MIRT_OK;
    return mirt__fail(MIRT_E_STATE, "%s: call %s in the layer's build function", layer->name, caller), false;
}

MIRT_API mirt_tensor *mirt_layer_variable(mirt_layer *layer, const char *name, mirt_shape shape,
                                          mirt_initializer initializer, bool trainable) {
    if (!mirt__custom_building(layer, "mirt_layer_variable")) return NULL;
    mirt_model *model = layer->model;
    char label[MIRT__JSON_LABEL];
    mirt_tensor *variable = NULL;
    bool good = mirt__short_name(name) && !strchr(name, '/'),
         positive = shape.rank >= 0 && shape.rank <= MIRT_MAX_RANK;
    for (int i = 0; positive && i < shape.rank; i++) positive = shape.dim[i] > 0;
    for (int i = layer->first_variable; good && i < model->num_variables; i++) {
        good = strncmp(model->variable[i].name, layer->name, strlen(layer->name)) != 0 ||
               strcmp(model->variable[i].name + strlen(layer->name) + 1, name) != 0;
    }
    mirt__default_initializer(&initializer, mirt_glorot_uniform());
    if (!good)
        mirt__fail(MIRT_E_INVALID, "variable name \"%s\": it must be 1 to 100 bytes of UTF-8 without a '/', and unique",
                   mirt__json_label(name ? name : "", label));
    else if (!positive)
        mirt__fail(MIRT_E_SHAPE, "variable %s needs at most %d dimensions, each positive",
                   mirt__json_label(name, label), MIRT_MAX_RANK);
    else variable = mirt__variable_add(layer, name, &shape, &initializer, trainable);
    if (variable) return variable;
    if (model->graph.status == MIRT_OK && mirt_last_status() != MIRT_E_NOMEM) mirt__fail_at("%s", layer->name);
    return mirt__model_poison(model);
}

MIRT_API void mirt_layer_add_loss(mirt_layer *layer, mirt_tensor *term) {
    char text[96];
    if (!term || !mirt__custom_building(layer, "mirt_layer_add_loss")) return;
    bool number = term->shape.rank == 0 || (term->shape.rank == 1 && mirt__is_batched(&term->shape));
    if (number && term->dtype == MIRT_FLOAT32 && term->node->graph == &layer->model->graph) {
        mirt__term_add(layer->model, term);
        return;
    }
    mirt__fail(MIRT_E_SHAPE, "%s: a loss must be a float32 number, or one per sample, of this model, not %s",
               layer->name, mirt__shape_text(&term->shape, text));
    mirt__model_poison(layer->model);
}
