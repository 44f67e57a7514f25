#include "config.h"
#include "../ops/ops.h"
#include "layers.h"

#define MIRT__MAX_ENTRIES 10000 /* a search for a name scans all of them */
#define MIRT__MAX_RECORDED 32768 /* operations of a file's model and its parts: nested calls multiply */

/* Attributes of the operations in a file. */
typedef struct mirt__file_attr {
    mirt__field field;
    size_t size;
    unsigned bit;
} mirt__file_attr;
#define MIRT__PLACE_plain(name) name
#define MIRT__PLACE_matmul(name) own.matmul.name
#define MIRT__PLACE_reduce(name) own.reduce.name
#define MIRT__PLACE_one_hot(name) own.one_hot.name
#define MIRT__PLACE_axis(name) own.axis.name
#define MIRT__PLACE_move(name) own.move.name
#define MIRT__FILE_ATTR(name, kind, family) \
    {{#name, MIRT__FIELD_##kind, offsetof(mirt__attrs, MIRT__PLACE_##family(name))}, \
     sizeof(((mirt__attrs *)NULL)->MIRT__PLACE_##family(name)), MIRT__SAVES_##name},
static const mirt__file_attr mirt__file_attrs[] = {MIRT__SAVED_ATTR_LIST(MIRT__FILE_ATTR)};
#undef MIRT__FILE_ATTR
#undef MIRT__PLACE_plain
#undef MIRT__PLACE_matmul
#undef MIRT__PLACE_reduce
#undef MIRT__PLACE_one_hot
#undef MIRT__PLACE_axis
#undef MIRT__PLACE_move

/* The op that is called `name` in files; MIRT__OP_COUNT if none is allowed. */
static mirt__op_id mirt__file_op(const char *name) {
    for (int id = 0; id < MIRT__OP_COUNT; id++) {
        const mirt__op *op = mirt__op_get((mirt__op_id)id);
        if (op->saved && strcmp(op->name, name) == 0) return (mirt__op_id)id;
    }
    return MIRT__OP_COUNT;
}

/* A variable created outside of layers. */
typedef struct mirt__variable_desc {
    mirt_shape shape;
    mirt_initializer initializer;
    bool trainable;
} mirt__variable_desc;
static const mirt__field mirt__variable_fields[] = {
    {"shape", MIRT__FIELD_DIMS, offsetof(mirt__variable_desc, shape)},
    {"initializer", MIRT__FIELD_INITIALIZER, offsetof(mirt__variable_desc, initializer)},
    {"trainable", MIRT__FIELD_BOOL, offsetof(mirt__variable_desc, trainable)}};

static const mirt__field mirt__part_field = {"training", MIRT__FIELD_TRAINING, 0}; /* values of mirt_training */

/* >>writing */

/* The name of operation number `index`, which contains '/', unlike names of layers. */
static const char *mirt__op_label(const mirt_model *model, int index, char out[64]) {
    snprintf(out, 64, "%s/%d", model->graph.node[index]->op->name, index);
    return out;
}

/* Writes a reference to the tensor `t`. A layer that returns its input names it, too. */
static bool mirt__write_tensor(const mirt_model *model, mirt__text *out, const mirt_tensor *t, int layers,
                               const char *reader) {
    const mirt__node *node = t->node;
    const char *name = NULL;
    char label[64];
    int slot = t->slot, index = node->out[0]->pass.index;
    for (int i = layers - 1; i >= 0 && !name; i--) {
        const mirt__layer *layer = model->layer[i];
        for (int k = 0; k < layer->num_out && !name; k++) {
            if (layer->out[k] == t) name = layer->name, slot = k;
        }
        if (!name && index >= layer->first_node && index < layer->first_node + layer->num_nodes) {
            mirt__fail(MIRT_E_STATE,
                       "%s reads a tensor from inside of %s; the architecture of such a model cannot be saved (its "
                       "weights can)",
                       reader, layer->name);
            return false;
        }
    }
    if (!name && mirt__is_variable(node)) name = model->variable[node->a.index].name;
    if (!name) name = mirt__op_label(model, index, label);
    if (slot) mirt__text_add(out, "[");
    mirt__json_write_string(out, name);
    if (slot) mirt__text_add(out, ",%d]", slot);
    return true;
}

/* Writes "input" or "inputs", or the like for another `key`. */
static bool mirt__write_tensors(const mirt_model *model, mirt__text *out, const char *key, mirt_tensor *const *t,
                                int count, int layers, const char *reader) {
    bool good = true;
    mirt__text_add(out, count == 1 ? ",\"%s\":" : ",\"%ss\":[", key);
    for (int i = 0; good && i < count; i++) {
        if (i) mirt__text_add(out, ",");
        good = mirt__write_tensor(model, out, t[i], layers, reader);
    }
    if (count != 1) mirt__text_add(out, "]");
    return good;
}

static void mirt__write_begin(mirt__text *out, const char *class_name, const char *name, bool first) {
    mirt__text_add(out, first ? "{" : ",{");
    mirt__write_name(out, "class_name", class_name, true);
    mirt__write_name(out, "name", name, false);
}

static void mirt__write_config(mirt__text *out, const mirt__field *fields, int count, const char *desc) {
    mirt__text_add(out, ",\"config\":{");
    for (int i = 0; i < count; i++) mirt__write_field(out, &fields[i], desc, i == 0);
    mirt__text_add(out, "}");
}

static bool mirt__write_model(mirt_model *model, mirt__text *out);

/* The layer before number `index` that calls the same model, or NULL. */
static const mirt__layer *mirt__first_call(const mirt_model *model, const mirt_model *part, int index) {
    mirt_training training;
    for (int i = 0; i < index; i++) {
        if (mirt__layer_part(model->layer[i], &training) == part) return model->layer[i];
    }
    return NULL;
}

/* Writes a model called as a layer: the whole model, or the name of the layer that contains it. */
static bool mirt__write_part(const mirt_model *model, mirt__text *out, int index) {
    mirt_training training;
    mirt_model *part = mirt__layer_part(model->layer[index], &training);
    if (!part) return true;
    const mirt__layer *first = mirt__first_call(model, part, index);
    mirt__write_field(out, &mirt__part_field, (const char *)&training, false);
    mirt__write_key(out, first ? "part" : "architecture", false);
    if (!first) return mirt__write_model(part, out);
    mirt__json_write_string(out, first->name);
    return true;
}

static bool mirt__write_layer(const mirt_model *model, mirt__text *out, int index, bool first) {
    const mirt__layer *layer = model->layer[index];
    mirt__write_begin(out, layer->cls->class_name, layer->name, first);
    if (layer->num_in && !mirt__write_tensors(model, out, "input", layer->in, layer->num_in, index, layer->name))
        return false;
    mirt__write_config(out, layer->cls->fields, layer->cls->num_fields, layer->desc);
    if (!mirt__write_part(model, out, index)) return false;
    mirt__text_add(out, "}");
    return true;
}

static void mirt__write_variable(const mirt__variable *v, mirt__text *out, bool first) {
    mirt__variable_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape = v->shape;
    desc.initializer = v->initializer;
    desc.trainable = v->trainable;
    mirt__write_begin(out, "Variable", v->name, first);
    mirt__write_config(out, mirt__variable_fields, MIRT__COUNT(mirt__variable_fields), (const char *)&desc);
    mirt__text_add(out, "}");
}

/* Writes bytes as hexadecimal digits, numbers as float32. */
static void mirt__write_data(mirt__text *out, const mirt__attrs *a) {
    const mirt__attrs_data *own = MIRT__OF(a, data);
    const size_t size = mirt__dtype_size(a->dtype);
    mirt__text_add(out, ",\"data\":\"");
    for (size_t i = 0; i < own->bytes / size; i++) {
        const unsigned char *at = (const unsigned char *)own->data + i * size;
        float number = a->dtype == MIRT_FLOAT32 ? (float)((const mirt__real *)own->data)[i] : 0;
        if (a->dtype == MIRT_FLOAT32) at = (const unsigned char *)&number;
        for (size_t k = 0; k < (a->dtype == MIRT_FLOAT32 ? sizeof number : size); k++)
            mirt__text_add(out, "%02x", at[k]);
    }
    mirt__text_add(out, "\"");
}

static bool mirt__write_operation(const mirt_model *model, mirt__text *out, int index, int layers, bool first) {
    const mirt__node *node = model->graph.node[index];
    const mirt__attrs none = mirt__attrs_of(node->id);
    char label[64];
    bool plain = true;
    mirt__op_label(model, index, label);
    if (mirt__is_variable(node)) {
        mirt__write_variable(&model->variable[node->a.index], out, first);
        return true;
    }
    if (!node->op->saved) {
        return mirt__fail(MIRT_E_STATE, "%s: this operation cannot be saved; the weights can", label), false;
    }
    mirt__write_begin(out, "Operation", label, first);
    mirt__write_name(out, "op", node->op->name, false);
    if (node->num_in && !mirt__write_tensors(model, out, "input", node->in, node->num_in, layers, label)) return false;
    mirt__text_add(out, ",\"attributes\":{");
    for (int i = 0; i < MIRT__COUNT(mirt__file_attrs); i++) {
        const mirt__file_attr *a = &mirt__file_attrs[i];
        if (!(node->op->saved_attrs & a->bit)) continue;
        if (memcmp((const char *)&node->a + a->field.offset, (const char *)&none + a->field.offset, a->size) == 0)
            continue;
        mirt__write_field(out, &a->field, (const char *)&node->a, plain);
        plain = false;
    }
    mirt__text_add(out, "}");
    if (node->op->saved_attrs & MIRT__SAVES_user_op) {
        mirt__write_name(out, "user_op", MIRT__OF(&node->a, data)->user_op->name, false);
    }
    if ((node->op->saved_attrs & MIRT__SAVES_data) && MIRT__OF(&node->a, data)->data) mirt__write_data(out, &node->a);
    mirt__text_add(out, "}");
    return true;
}

/* Writes layers, and the nodes before, between and after them. */
static bool mirt__write_entries(const mirt_model *model, mirt__text *out) {
    bool first = true;
    int node = 0;
    for (int i = 0; i <= model->num_layers; i++) {
        const mirt__layer *layer = i < model->num_layers ? model->layer[i] : NULL;
        for (; node < (layer ? layer->first_node : model->graph.count); node++, first = false) {
            if (!mirt__write_operation(model, out, node, i, first)) return false;
        }
        if (!layer) return true;
        if (!mirt__write_layer(model, out, i, first)) return false;
        node = layer->first_node + layer->num_nodes;
        first = false;
    }
    return true;
}

/* Writes terms of the loss that layers do not recreate. */
static bool mirt__write_terms(const mirt_model *model, mirt__text *out) {
    int term = 0, written = 0;
    for (int i = 0; i <= model->num_layers; i++) {
        const mirt__layer *layer = i < model->num_layers ? model->layer[i] : NULL;
        for (; term < (layer ? layer->first_term : model->graph.num_terms); term++, written++) {
            mirt__text_add(out, written ? "," : ",\"losses\":[");
            if (!mirt__write_tensor(model, out, model->graph.term[term], model->num_layers, "a term of the loss"))
                return false;
        }
        if (layer) term = layer->first_term + layer->num_terms;
    }
    if (written) mirt__text_add(out, "]");
    return true;
}

/* Writes the frozen weights, including those of parts. */
static void mirt__write_frozen(const mirt_model *model, mirt__text *out) {
    int written = 0;
    for (int i = 0; i < model->num_variables && !model->owner; i++) {
        if (!model->variable[i].frozen) continue;
        mirt__text_add(out, written++ ? "," : ",\"frozen\":[");
        mirt__json_write_string(out, model->variable[i].name);
    }
    if (written) mirt__text_add(out, "]");
}

static bool mirt__write_model(mirt_model *model, mirt__text *out) {
    for (int i = 0; i < model->graph.count; i++) model->graph.node[i]->out[0]->pass.index = i;
    mirt__text_add(out, "{");
    mirt__write_name(out, "name", model->name, true);
    mirt__text_add(out, ",\"layers\":[");
    if (!mirt__write_entries(model, out)) return false;
    mirt__text_add(out, "]");
    if (!mirt__write_tensors(model, out, "output", model->output, model->num_outputs, model->num_layers,
                             "the output") ||
        !mirt__write_terms(model, out))
        return false;
    mirt__write_frozen(model, out);
    if (model->half && !model->owner) mirt__text_add(out, ",\"dtype_policy\":\"%s\"", mirt__dtype_policy(model));
    mirt__text_add(out, "}");
    return true;
}

MIRT__LIB mirt_status mirt__architecture_write(mirt_model *model, mirt__text *out) {
    return mirt__write_model(model, out) && !out->failed ? MIRT_OK : mirt_last_status();
}

/* >>reading */

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
    return mirt__fail(MIRT_E_FORMAT, "its part is not a model called before it"), (mirt_model *)NULL;
}

static bool mirt__read_call(mirt__reading *r, const mirt__json *json, const char *name) {
    mirt_tensor *in[MIRT__MAX_IN];
    mirt_training training;
    bool made;
    int num_in = mirt__read_tensors(r, json, "input", in, MIRT__MAX_IN);
    if (num_in < 1) return mirt__fail(MIRT_E_FORMAT, "its input is not a layer before it"), false;
    if (mirt__read_field(json, &mirt__part_field, (char *)&training) != MIRT_OK) return false;
    mirt_model *part = mirt__read_part(r, json, &made);
    if (!part) return false;
    bool good = mirt__call_named(r->model, part, in, num_in, training, name);
    if (made) mirt_model_destroy(part); /* destroyed directly, or together with the model that it is now a part of */
    if (!good) return false;
    const mirt__layer *layer = r->model->layer[r->model->num_layers - 1];
    r->entry[r->count].part = part;
    return mirt__read_done(r, name, layer->out, layer->num_out);
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
    char *desc = config ? (char *)mirt__pool_alloc(&model->graph.pool, cls->desc_size) : NULL;
    if (!desc) return false;
    for (int i = 0; i < cls->num_fields; i++) {
        if (mirt__read_field(config, &cls->fields[i], desc) != MIRT_OK) return false;
    }
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
    if (!mirt__layer_add(model, cls, in, num_in, desc, name)) return false;
    const mirt__layer *layer = model->layer[model->num_layers - 1];
    return mirt__read_done(r, name, layer->out, layer->num_out);
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
    return mirt__fail(MIRT_E_FORMAT, "its data do not match its shape and dtype"), (mirt_tensor *)NULL;
}

static mirt_tensor *mirt__read_user_op(mirt__reading *r, const mirt__json *json, mirt_tensor *const *in, int num_in) {
    const mirt__json *name = mirt__json_get(json, "user_op", MIRT__JSON_STRING);
    const mirt_op_class *op = name ? mirt__op_class_by_name(r->model->strategy, name->string) : NULL;
    char label[MIRT__JSON_LABEL];
    if (!name) return NULL;
    if (!op)
        return mirt__fail(MIRT_E_FORMAT, "unknown op %s: register it with mirt_register_op",
                          mirt__json_label(name->string, label)),
               (mirt_tensor *)NULL;
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
        char *to = (char *)(saved & mirt__file_attrs[i].bit ? a : &unused);
        if (mirt__read_field(json, field, to) != MIRT_OK) return mirt_last_status();
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
    for (int i = 0; i < MIRT__COUNT(mirt__variable_fields); i++) {
        if (!config || mirt__read_field(config, &mirt__variable_fields[i], (char *)&desc) != MIRT_OK) return false;
    }
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
    const bool scaled = policy->type == MIRT__JSON_STRING && strcmp(policy->string, "mixed_float16") == 0;
    mirt__set_half(
        model, scaled || (policy->type == MIRT__JSON_STRING && strcmp(policy->string, "mixed_bfloat16") == 0), scaled);
    if (model->half || (policy->type == MIRT__JSON_STRING && strcmp(policy->string, "float32") == 0)) return MIRT_OK;
    return mirt__fail(MIRT_E_FORMAT, "the dtype policy %s is unknown to this version",
                      policy->type == MIRT__JSON_STRING ? mirt__json_label(policy->string, label) : "is no name, and");
}

#undef MIRT__MAX_RECORDED
#undef MIRT__MAX_ENTRIES
