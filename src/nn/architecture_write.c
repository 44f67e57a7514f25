/* Describes a model for files. */
#include "architecture.h"
#include "config.h"

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

static void mirt__write_config(mirt__text *out, const mirt__field *fields, int count, const void *desc) {
    mirt__text_add(out, ",\"config\":{");
    mirt__write_fields(out, fields, count, desc, true);
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
    mirt__write_field(out, &mirt__part_field, &training, false);
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
    mirt__write_config(out, MIRT__FIELDS(mirt__variable_fields), &desc);
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
        mirt__write_field(out, &a->field, &node->a, plain);
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
    if (model->policy && !model->owner)
        mirt__text_add(out, ",\"dtype_policy\":\"%s\"", mirt__policy_name(model->policy));
    mirt__text_add(out, "}");
    return true;
}

MIRT__LIB mirt_status mirt__architecture_write(mirt_model *model, mirt__text *out) {
    return mirt__write_model(model, out) && !out->failed ? MIRT_OK : mirt_last_status();
}
