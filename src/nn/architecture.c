#include "architecture.h"
/* Records the model that a file describes. */

#include "config.h"

#define MIRT__MAX_ENTRIES 10000 /* a search for a name scans all of them */
#define MIRT__MAX_RECORDED 32768 /* operations of a file's model and its parts: nested calls multiply */

/* The op that is called `name` in files; MIRT__OP_COUNT if none is allowed. */
static mirt__op_id mirt__file_op(const char *name) {
    for (int id = 0; id < MIRT__OP_COUNT; id++) {
        const mirt__op *op = mirt__op_get((mirt__op_id)id);
        if (op && op->saved && strcmp(op->name, name) == 0) return (mirt__op_id)id;
    }
    return MIRT__OP_COUNT;
}

/* The state of reading a model. */
typedef struct mirt__entry {
    const char *name; /* name in the file */
    mirt_tensor *const *out;
    int num_out;
    mirt_model *part; /* which was called there, or NULL */
} mirt__entry;
typedef struct mirt__reading {
    mirt_model *model;
    mirt__entry *entry;
    int count;
    int *recorded; /* operations so far, in this model and the enclosing ones */
} mirt__reading;

/* The tensor for a name or [name, number]; NULL without an error if it does not exist. */
static mirt_tensor *mirt__read_tensor(const mirt__reading *r, const mirt__json *json) {
    int64_t slot = 0;
    if (json->type == MIRT__JSON_ARRAY) {
        if (json->count != 2 || json->item[1]->type != MIRT__JSON_NUMBER || !json->item[1]->integral) return NULL;
        slot = json->item[1]->integer;
        json = json->item[0];
    }
    for (int i = r->count - 1; json->type == MIRT__JSON_STRING && i >= 0; i--) {
        if (strcmp(r->entry[i].name, json->string) == 0)
            return slot >= 0 && slot < r->entry[i].num_out ? r->entry[i].out[slot] : NULL;
    }
    return NULL;
}

/* Reads the members "input" or "inputs" of `json`, for key "input"; returns their number, or -1 without an error. */
static int mirt__read_tensors(const mirt__reading *r, const mirt__json *json, const char *key, mirt_tensor **out,
                              int capacity) {
    char plural[16];
    snprintf(plural, sizeof plural, "%ss", key);
    const mirt__json *one = mirt__json_member(json, key), *all = mirt__json_member(json, plural);
    if (one && all) return -1;
    if (one) return (out[0] = mirt__read_tensor(r, one)) ? 1 : -1;
    if (!all) return 0;
    if (all->type != MIRT__JSON_ARRAY || all->count > (size_t)capacity) return -1;
    for (size_t i = 0; i < all->count; i++) {
        if (!(out[i] = mirt__read_tensor(r, all->item[i]))) return -1;
    }
    return (int)all->count;
}

static bool mirt__read_done(mirt__reading *r, const char *name, mirt_tensor *const *out, int num_out) {
    mirt__entry *e = &r->entry[r->count++];
    e->name = name;
    e->out = out;
    e->num_out = num_out;
    return true;
}

/* The layer added last. */
static bool mirt__read_layer_done(mirt__reading *r, const char *name) {
    const mirt__layer *layer = r->model->layer[r->model->num_layers - 1];
    return mirt__read_done(r, name, layer->out, layer->num_out);
}

static mirt_status mirt__read_model(mirt_model *model, const mirt__json *architecture, int *recorded);

/* The model that a layer calls: its own, or that of an earlier layer; NULL with the error set. */
static mirt_model *mirt__read_part(const mirt__reading *r, const mirt__json *json, bool *made) {
    const mirt__json *own = mirt__json_member(json, "architecture"),
                     *other = mirt__json_get(json, own ? "name" : "part", MIRT__JSON_STRING);
    *made = own != NULL;
    if (!other) return NULL;
    if (own) {
        mirt_model *part = mirt_model_create(r->model->strategy, NULL);
        if (!part || mirt__read_model(part, own, r->recorded) == MIRT_OK) return part;
        mirt_model_destroy(part);
        return NULL;
    }
    for (int i = r->count - 1; i >= 0; i--) {
        if (strcmp(r->entry[i].name, other->string) == 0 && r->entry[i].part) return r->entry[i].part;
    }
    mirt__fail(MIRT_E_FORMAT, "its part is not a model called before it");
    return NULL;
}

static bool mirt__read_call(mirt__reading *r, const mirt__json *json, const char *name) {
    mirt_tensor *in[MIRT__MAX_IN];
    mirt_training training;
    bool made;
    int num_in = mirt__read_tensors(r, json, "input", in, MIRT__MAX_IN);
    if (num_in < 1) return mirt__fail(MIRT_E_FORMAT, "its input is not a layer before it"), false;
    if (mirt__read_field(json, &mirt__part_field, &training) != MIRT_OK) return false;
    mirt_model *part = mirt__read_part(r, json, &made);
    if (!part) return false;
    bool good = mirt__call_named(r->model, part, in, num_in, training, name);
    if (made) mirt_model_destroy(part); /* destroyed directly, or together with the model that it is now a part of */
    if (!good) return false;
    r->entry[r->count].part = part;
    return mirt__read_layer_done(r, name);
}

static bool mirt__read_layer(mirt__reading *r, const mirt__json *json, const char *class_name, const char *name) {
    mirt_model *model = r->model;
    const mirt__layer_class *cls = mirt__layer_class_by_name(model->strategy, class_name);
    const mirt__json *config = mirt__json_get(json, "config", MIRT__JSON_OBJECT);
    mirt_tensor *in[MIRT__MAX_IN];
    char other[MIRT__JSON_LABEL];
    if (!cls) {
        mirt__fail(MIRT_E_FORMAT, "unknown layer class %s: register it with mirt_register_layer",
                   mirt__json_label(class_name, other));
        return false;
    }
    void *desc = config ? mirt__pool_alloc(&model->graph.pool, cls->desc_size) : NULL;
    if (!desc || mirt__read_fields(config, cls->fields, cls->num_fields, desc) != MIRT_OK) return false;
    for (size_t k = 0; k < config->count; k++) {
        int known = 0;
        while (known < cls->num_fields && strcmp(cls->fields[known].name, config->item[k]->key) != 0) known++;
        if (known == cls->num_fields)
            return mirt__fail(MIRT_E_FORMAT, "\"%s\" is not a field of class %s",
                              mirt__json_label(config->item[k]->key, other), cls->class_name),
                   false;
    }
    int num_in = mirt__read_tensors(r, json, "input", in, MIRT__MAX_IN);
    if (cls->max_in == 0 && num_in != 0) return mirt__fail(MIRT_E_FORMAT, "an InputLayer has no input"), false;
    if (num_in < 0 || (num_in == 0 && cls->min_in > 0))
        return mirt__fail(MIRT_E_FORMAT, "its input is not a layer before it"), false;
    return mirt__layer_add(model, cls, in, num_in, desc, name) && mirt__read_layer_done(r, name);
}

static int mirt__hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* `count` bytes of the member "data", or NULL with the error set. */
static unsigned char *mirt__read_bytes(mirt__reading *r, const mirt__json *json, size_t count) {
    const mirt__json *data = mirt__json_get(json, "data", MIRT__JSON_STRING);
    if (!data) return NULL;
    bool good = strlen(data->string) / 2 == count && strlen(data->string) % 2 == 0;
    unsigned char *bytes = good ? (unsigned char *)mirt__pool_alloc(&r->model->graph.pool, count + 1) : NULL;
    if (good && !bytes) return NULL;
    for (size_t i = 0; good && i < count; i++) {
        int high = mirt__hex_digit(data->string[2 * i]), low = mirt__hex_digit(data->string[2 * i + 1]);
        good = high >= 0 && low >= 0;
        if (good) bytes[i] = (unsigned char)(16 * high + low);
    }
    return good ? bytes
                : (mirt__fail(MIRT_E_FORMAT, "its data do not match its shape and dtype"), (unsigned char *)NULL);
}

static mirt_tensor *mirt__read_constant(mirt__reading *r, const mirt__json *json, const mirt__attrs *a) {
    const size_t size = a->dtype == MIRT_FLOAT32 || a->dtype == MIRT_INT32 ? 4 : 1;
    int64_t count = mirt__shape_count(&a->shape);
    bool good = count > 0 && count <= INT_MAX && !mirt__is_batched(&a->shape);
    unsigned char *bytes = good ? mirt__read_bytes(r, json, (size_t)count * size) : NULL;
    if (good && !bytes) return NULL;
    for (int64_t i = 0; good && a->dtype == MIRT_BOOL && i < count; i++) good = bytes[i] <= 1;
    if (good) return mirt__constant_op(&r->model->graph, mirt_make_array(bytes, a->dtype, a->shape));
    mirt__fail(MIRT_E_FORMAT, "its data do not match its shape and dtype");
    return NULL;
}

static mirt_tensor *mirt__read_user_op(mirt__reading *r, const mirt__json *json, mirt_tensor *const *in, int num_in) {
    const mirt__json *name = mirt__json_get(json, "user_op", MIRT__JSON_STRING);
    const mirt_op_class *op = name ? mirt__op_class_by_name(r->model->strategy, name->string) : NULL;
    char label[MIRT__JSON_LABEL];
    if (!name) return NULL;
    if (!op) {
        mirt__fail(MIRT_E_FORMAT, "unknown op %s: register it with mirt_register_op",
                   mirt__json_label(name->string, label));
        return NULL;
    }
    unsigned char *config = op->config_size ? mirt__read_bytes(r, json, op->config_size) : NULL;
    return config || !op->config_size ? mirt__user_op(&r->model->graph, op, in, num_in, config) : NULL;
}

/* Reads the kind and the attributes that the op saves; those of other ops are only checked. `id`: MIRT__OP_COUNT for no
   op. */
static mirt_status mirt__read_attributes(const mirt__json *json, mirt__op_id id, mirt__attrs *a) {
    char label[MIRT__JSON_LABEL];
    size_t known = 0;
    const unsigned saved = id == MIRT__OP_COUNT ? 0 : mirt__op_get(id)->saved_attrs | MIRT__SAVES_kind;
    mirt__attrs unused;
    if (id != MIRT__OP_COUNT) *a = mirt__attrs_of(id);
    for (int i = 0; i < MIRT__COUNT(mirt__file_attrs); i++) {
        const mirt__field *field = &mirt__file_attrs[i].field;
        if (!mirt__json_member(json, field->name)) continue;
        memset(&unused, 0, sizeof unused);
        if (mirt__read_field(json, field, saved & mirt__file_attrs[i].bit ? a : &unused) != MIRT_OK)
            return mirt_last_status();
        known++;
    }
    for (size_t i = 0; known < json->count && i < json->count; i++) {
        bool found = false;
        for (int k = 0; k < MIRT__COUNT(mirt__file_attrs); k++)
            found = found || strcmp(mirt__file_attrs[k].field.name, json->item[i]->key) == 0;
        if (!found)
            return mirt__fail(MIRT_E_FORMAT, "attribute \"%s\" is unknown to this version",
                              mirt__json_label(json->item[i]->key, label));
    }
    return MIRT_OK;
}

static bool mirt__read_operation(mirt__reading *r, const mirt__json *json, const char *name) {
    const mirt__json *op = mirt__json_get(json, "op", MIRT__JSON_STRING),
                     *attributes = mirt__json_get(json, "attributes", MIRT__JSON_OBJECT);
    mirt_tensor *in[MIRT__MAX_IN], *out;
    char label[MIRT__JSON_LABEL];
    mirt__attrs a;
    if (!op || !attributes) return false;
    const mirt__op_id id = mirt__file_op(op->string);
    if (mirt__read_attributes(attributes, id, &a) != MIRT_OK) return false;
    if (id == MIRT__OP_COUNT) {
        mirt__json_label(op->string, label);
        return mirt__fail(MIRT_E_FORMAT, "operation %s is not allowed in files", label), false;
    }
    const mirt__op *row = mirt__op_get(id);
    if (!mirt__kind_label(id, a.kind)) {
        return mirt__fail(MIRT_E_FORMAT, "invalid kind of %s (%d)", row->name, a.kind), false;
    }
    const int num_in = mirt__read_tensors(r, json, "input", in, MIRT__MAX_IN);
    if (num_in < row->min_in || num_in > row->max_in || (row->fits && !row->fits(&a, in, num_in))) {
        return mirt__fail(MIRT_E_FORMAT, "its inputs do not fit it, or are not defined before it"), false;
    }
    out = row->saved_attrs & MIRT__SAVES_user_op ? mirt__read_user_op(r, json, in, num_in) :
          row->saved_attrs & MIRT__SAVES_data ? mirt__read_constant(r, json, &a) :
          mirt__record(&r->model->graph, id, &a, in, num_in);
    return out && mirt__read_done(r, name, out->node->out, out->node->num_out);
}

static bool mirt__read_variable(mirt__reading *r, const mirt__json *json, const char *name) {
    const mirt__json *config = mirt__json_get(json, "config", MIRT__JSON_OBJECT);
    mirt__variable_desc desc;
    memset(&desc, 0, sizeof desc);
    if (!config || mirt__read_fields(config, MIRT__FIELDS(mirt__variable_fields), &desc) != MIRT_OK) return false;
    mirt_tensor *v = mirt_variable(r->model, name, desc.shape, desc.initializer, desc.trainable);
    return v && mirt__read_done(r, name, v->node->out, 1);
}

static bool mirt__read_entry(mirt__reading *r, const mirt__json *json, size_t number) {
    char label[MIRT__JSON_LABEL];
    if (json->type != MIRT__JSON_OBJECT)
        return mirt__fail(MIRT_E_FORMAT, "layer number %zu is not an object", number), false;
    const mirt__json *class_name = mirt__json_get(json, "class_name", MIRT__JSON_STRING),
                     *name = mirt__json_get(json, "name", MIRT__JSON_STRING);
    if (!class_name || !name) return mirt__fail_at("layer number %zu", number), false;
    bool operation = strcmp(class_name->string, "Operation") == 0;
    bool good = operation ? mirt__read_operation(r, json, name->string) :
                strcmp(class_name->string, "Variable") == 0 ? mirt__read_variable(r, json, name->string) :
                strcmp(class_name->string, "Functional") == 0 ? mirt__read_call(r, json, name->string) :
                mirt__read_layer(r, json, class_name->string, name->string);
    if (!good && (operation || r->model->graph.status == MIRT_OK))
        mirt__fail_at("layer %s", mirt__json_label(name->string, label));
    return good;
}

static mirt_status mirt__read_frozen(mirt_model *model, const mirt__json *json) {
    const mirt__json *names = mirt__json_member(json, "frozen");
    if (names && names->type != MIRT__JSON_ARRAY)
        return mirt__fail(MIRT_E_FORMAT, "the frozen weights are not an array");
    if (names && names->count > (size_t)model->num_variables)
        return mirt__fail(MIRT_E_FORMAT, "more weights are frozen than the model has");
    for (size_t i = 0; names && i < names->count; i++) {
        const mirt__json *name = names->item[i];
        if (name->type != MIRT__JSON_STRING) return mirt__fail(MIRT_E_FORMAT, "a frozen weight is not a name");
        int at = 0;
        while (at < model->num_variables && strcmp(model->variable[at].name, name->string) != 0) at++;
        if (at == model->num_variables) { /* finding the most similar name is slow, and done only once */
            mirt__variable_find(model, name->string);
            return mirt__fail(MIRT_E_FORMAT, "%s", mirt_last_error());
        }
        mirt__freeze(model, at, true);
        model->variable[at].frozen = true; /* directly, since it has no slots in the file */
    }
    return MIRT_OK;
}

static mirt_status mirt__read_entries(mirt__reading *r, const mirt__json *json) {
    const mirt__json *layers = mirt__json_get(json, "layers", MIRT__JSON_ARRAY),
                     *losses = mirt__json_member(json, "losses");
    mirt_tensor *out[MIRT_MAX_OUTPUTS], *term;
    if (!layers) return mirt_last_status();
    if (layers->count > MIRT__MAX_ENTRIES)
        return mirt__fail(MIRT_E_FORMAT, "%zu layers; a model has at most %d layers and operations", layers->count,
                          MIRT__MAX_ENTRIES);
    if (!mirt__grow((void **)&r->entry, 0, layers->count + 1, sizeof *r->entry)) return mirt_last_status();
    for (size_t i = 0; i < layers->count; i++) {
        int before = r->model->graph.count;
        if (!mirt__read_entry(r, layers->item[i], i + 1)) return mirt_last_status();
        *r->recorded += r->model->graph.count - before;
        if (*r->recorded > MIRT__MAX_RECORDED)
            return mirt__fail(MIRT_E_FORMAT, "layer number %zu: more than %d operations, including those of parts",
                              i + 1, MIRT__MAX_RECORDED);
    }
    int count = mirt__read_tensors(r, json, "output", out, MIRT_MAX_OUTPUTS);
    if (count == 0) return mirt__fail(MIRT_E_FORMAT, "\"output\" is missing");
    if (count < 0) return mirt__fail(MIRT_E_FORMAT, "the output is not a layer");
    mirt_model_outputs(r->model, out, count);
    if (losses && losses->type != MIRT__JSON_ARRAY) return mirt__fail(MIRT_E_FORMAT, "the losses are not an array");
    for (size_t i = 0; losses && i < losses->count; i++) {
        if (!(term = mirt__read_tensor(r, losses->item[i])))
            return mirt__fail(MIRT_E_FORMAT, "a term of the loss is not the output of an operation");
        if (mirt_add_loss(r->model, term) != MIRT_OK) return mirt_last_status();
    }
    if (r->model->graph.status != MIRT_OK) return mirt__fail(r->model->graph.status, "%s", r->model->graph.error);
    return mirt__read_frozen(r->model, json);
}

static mirt_status mirt__read_model(mirt_model *model, const mirt__json *architecture, int *recorded) {
    mirt__reading r;
    memset(&r, 0, sizeof r);
    r.model = model;
    r.recorded = recorded;
    if (architecture->type != MIRT__JSON_OBJECT) return mirt__fail(MIRT_E_FORMAT, "the architecture is not an object");
    const mirt__json *name = mirt__json_get(architecture, "name", MIRT__JSON_STRING);
    if (!name || !(model->name = mirt__pool_strdup(&model->graph.pool, name->string))) return mirt_last_status();
    mirt_status status = mirt__read_entries(&r, architecture);
    mirt__free(r.entry);
    return status;
}

MIRT__LIB mirt_status mirt__architecture_read(mirt_model *model, const mirt__json *architecture) {
    int recorded = 0;
    if (mirt__read_model(model, architecture, &recorded) != MIRT_OK) return mirt_last_status();
    const mirt__json *policy = mirt__json_member(architecture, "dtype_policy");
    if (!policy) return MIRT_OK;
    char label[MIRT__JSON_LABEL];
    const bool named = policy->type == MIRT__JSON_STRING;
    const char *name = named ? policy->string : "";
    const mirt__policy found = mirt__policy_named(name);
    if (found == MIRT__POLICY_COUNT)
        return mirt__fail(MIRT_E_FORMAT, "the dtype policy %s is unknown to this version",
                          named ? mirt__json_label(name, label) : "is no name, and");
    mirt__set_policy(model, found);
    return MIRT_OK;
}

#undef MIRT__MAX_RECORDED
#undef MIRT__MAX_ENTRIES
