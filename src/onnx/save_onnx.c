#include "../base/file.h"
#include "onnx.h"
/* mirt_save_onnx. */

#define MIRT__ONNX_VERSION 8 /* of the format, that of opset 17 */
#define MIRT__ONNX_OPSET 17
#define MIRT__ONNX_LIMIT INT32_MAX /* bytes that a message may have */

enum { MIRT__GRAPH_NAME = 2, MIRT__GRAPH_INPUT = 11, MIRT__GRAPH_OUTPUT = 12 };
enum {
    MIRT__MODEL_VERSION = 1, MIRT__MODEL_PRODUCER = 2, MIRT__MODEL_GRAPH = 7, MIRT__MODEL_OPSET = 8,
    MIRT__MODEL_METADATA = 14
};

/* >>the graph */

/* What a custom op is made of, as its class says. */
static mirt_tensor *mirt__onnx_compose(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in) {
    const mirt__attrs_data *own = MIRT__OF(&node->a, data);
    const mirt_op_class *op = own->user_op;
    mirt_tensor *y = NULL;
    char got[96], wanted[96];
    if (!op->compose) return NULL;
    {
        MIRT__OUTSIDE;
        y = op->compose(in, node->num_in, own->data, op->user);
    }
    if (graph->status != MIRT_OK) return NULL;
    if (y && y->node->graph == graph && mirt__shape_equal(&y->shape, &node->out[0]->shape) && y->dtype == MIRT_FLOAT32)
        return y;
    mirt__fail(MIRT_E_CALLBACK, "mirt_save_onnx: compose of %s returned %s; it should be %s of float32", op->name,
               y ? mirt__shape_text(&y->shape, got) : "NULL", mirt__shape_text(&node->out[0]->shape, wanted));
    mirt__graph_poison(graph);
    return NULL;
}

static bool mirt__onnx_lower(mirt__onnx *x) {
    mirt_model *model = x->model;
    mirt_tensor *in[MIRT_MAX_INPUTS], *keep[MIRT_MAX_OUTPUTS + MIRT_MAX_INPUTS];
    mirt__copying c;
    mirt__mode mode;
    memset(&c, 0, sizeof c);
    memset(&mode, 0, sizeof mode);
    mirt__graph_init(&x->graph, NULL, mirt__ops());
    for (int i = 0; i < model->num_inputs; i++) {
        if (!(in[i] = mirt__input_op(&x->graph, i, model->input[i]->dtype, &model->input[i]->shape))) return false;
    }
    c.source = &model->graph;
    c.replaced = (const mirt_tensor *const *)model->input;
    c.replacement = in;
    c.num_replaced = model->num_inputs;
    c.mode = &mode;
    c.compose = mirt__onnx_compose;
    memcpy(x->output, model->output, sizeof x->output);
    if (!mirt__graph_copy(&x->graph, &c, x->output, model->num_outputs)) return false;
    memcpy(keep, x->output, (size_t)model->num_outputs * sizeof *keep);
    memcpy(keep + model->num_outputs, in, (size_t)model->num_inputs * sizeof *in); /* also those that nothing reads */
    mirt__graph_prune(&x->graph, keep, model->num_outputs + model->num_inputs);
    return true;
}

/* The layer that makes a tensor of the model, or NULL. */
static const char *mirt__onnx_layer_of(const mirt_model *model, const mirt_tensor *t) {
    for (int i = model->num_layers - 1; i >= 0; i--) {
        for (int k = 0; k < model->layer[i]->num_out; k++) {
            if (model->layer[i]->out[k] == t && k == 0) return model->layer[i]->name;
        }
    }
    return NULL;
}

/* Names of the model's inputs and outputs, no two alike. */
static const char *mirt__onnx_end_name(mirt__onnx *x, const mirt_tensor *t, const char *kind, int number) {
    const char *layer = mirt__onnx_layer_of(x->model, t);
    bool free = layer != NULL;
    for (int i = 0; i < x->model->num_inputs && free; i++) free = strcmp(kind, "input") == 0 || x->model->input[i] != t;
    for (int i = 0; i < number && free; i++) free = strcmp(kind, "output") != 0 || x->model->output[i] != t;
    return free ? mirt__pool_strdup(&x->graph.pool, layer) : mirt__pool_print(&x->graph.pool, "%s/%d", kind, number);
}

/* Numbers the tensors; finds those that one node alone reads. */
static bool mirt__onnx_number_tensors(mirt__onnx *x) {
    int count = 0;
    mirt__graph_count_uses(&x->graph, x->output, x->model->num_outputs);
    for (int i = 0; i < x->graph.count; i++) {
        for (int k = 0; k < x->graph.node[i]->num_out; k++) x->graph.node[i]->out[k]->pass.index = count++;
    }
    x->value = (mirt__onnx_value *)mirt__calloc((size_t)count + 1, sizeof *x->value);
    x->taken = (bool *)mirt__calloc((size_t)x->model->num_variables + 1, sizeof *x->taken);
    if (!x->value || !x->taken) return false;
    for (int i = 0; i < x->graph.count; i++) {
        const mirt__node *node = x->graph.node[i];
        for (int k = 0; k < node->num_in; k++)
            mirt__onnx_value_of(x, node->in[k])->reader = node->in[k]->uses == 1 ? node : NULL;
    }
    return true;
}

static bool mirt__onnx_write_node(mirt__onnx *x, const mirt__node *node) {
    switch (node->id) {
    case MIRT__OP_input: case MIRT__OP_variable: case MIRT__OP_constant: case MIRT__OP_norm_stats: return true;
    case MIRT__OP_conv2d: return mirt__onnx_conv(x, node);
    case MIRT__OP_conv2d_transpose: return mirt__onnx_conv_transpose(x, node);
    case MIRT__OP_matmul: return mirt__onnx_matmul(x, node);
    case MIRT__OP_max_pool2d: case MIRT__OP_average_pool2d: return mirt__onnx_pool(x, node);
    case MIRT__OP_normalize: return mirt__onnx_normalize(x, node);
    case MIRT__OP_unary: return mirt__onnx_unary(x, node);
    case MIRT__OP_binary: case MIRT__OP_bias_add: return mirt__onnx_binary(x, node);
    case MIRT__OP_logic: return mirt__onnx_logic(x, node);
    case MIRT__OP_softmax: case MIRT__OP_log_softmax: return mirt__onnx_softmax(x, node);
    case MIRT__OP_reduce: return mirt__onnx_reduce(x, node);
    case MIRT__OP_scan: return mirt__onnx_scan(x, node);
    case MIRT__OP_reshape: return mirt__onnx_reshape(x, node);
    case MIRT__OP_stop_gradient: return mirt__onnx_stop_gradient(x, node);
    case MIRT__OP_transpose: return mirt__onnx_transpose(x, node);
    case MIRT__OP_concat: return mirt__onnx_concat(x, node);
    case MIRT__OP_slice: return mirt__onnx_slice(x, node);
    case MIRT__OP_pad: return mirt__onnx_pad(x, node);
    case MIRT__OP_gather: return mirt__onnx_gather(x, node);
    case MIRT__OP_broadcast: return mirt__onnx_broadcast(x, node);
    case MIRT__OP_cast: return mirt__onnx_cast(x, node);
    case MIRT__OP_one_hot: return mirt__onnx_one_hot(x, node);
    case MIRT__OP_resize2d: return mirt__onnx_resize(x, node);
    default: return mirt__onnx_refuse(x, node);
    }
}

static bool mirt__onnx_write_nodes(mirt__onnx *x) {
    for (int i = 0; i < x->graph.count; i++) {
        const mirt__node *node = x->graph.node[i];
        if (mirt__onnx_value_of(x, node->out[0])->taken || mirt__onnx_leaf(node->out[0])) continue;
        x->node = node;
        if (!mirt__onnx_write_node(x, node)) return false;
    }
    x->node = NULL;
    return true;
}

static bool mirt__onnx_write_inputs(mirt__onnx *x) {
    for (int i = 0; i < x->graph.count; i++) {
        const mirt__node *node = x->graph.node[i];
        if (!mirt__is_input(node)) continue;
        const mirt_tensor *t = node->out[0], *of = x->model->input[node->a.index];
        const mirt__onnx_order order = mirt__onnx_end_order(x, t);
        const char *name = mirt__onnx_end_name(x, of, "input", node->a.index);
        if (!name) return false;
        mirt__onnx_value_of(x, t)->name[order] = name;
        mirt__onnx_write_end(x, MIRT__GRAPH_INPUT, name, t, order);
    }
    for (int i = 0; i < x->model->num_outputs; i++) {
        mirt__onnx_value *v = mirt__onnx_value_of(x, x->output[i]);
        const char *name = mirt__onnx_end_name(x, x->model->output[i], "output", i);
        if (!name) return false;
        if (!v->output) v->output = name;
    }
    return true;
}

/* Outputs that are inputs, weights, or one tensor under two names are copies. */
static bool mirt__onnx_write_outputs(mirt__onnx *x) {
    for (int i = 0; i < x->model->num_outputs; i++) {
        mirt_tensor *t = x->output[i];
        const mirt__onnx_order order = mirt__onnx_end_order(x, t);
        const char *name = mirt__onnx_end_name(x, x->model->output[i], "output", i);
        const char *have = name ? mirt__onnx_get(x, t, order) : NULL;
        if (!have) return false;
        if (strcmp(have, name) != 0) mirt__onnx_node(x, "Identity", name, have, NULL, NULL);
        mirt__onnx_write_end(x, MIRT__GRAPH_OUTPUT, name, t, order);
    }
    return true;
}

/* >>the file */

static void mirt__onnx_metadata(mirt__text *out, const char *key, const char *value) {
    const size_t begin = mirt__pb_open(out, MIRT__MODEL_METADATA);
    mirt__pb_string(out, 1, key);
    mirt__pb_string(out, 2, value);
    mirt__pb_close(out, begin);
}

static void mirt__onnx_class_names(mirt__onnx *x, mirt__text *out) {
    mirt__text names;
    memset(&names, 0, sizeof names);
    for (int i = 0; i < x->model->num_class_names; i++) {
        mirt__text_add(&names, i ? "," : "[");
        mirt__json_write_string(&names, x->model->class_names[i]);
    }
    mirt__text_add(&names, "]");
    if (names.failed) out->failed = true;
    else if (x->model->num_class_names) mirt__onnx_metadata(out, "class_names", names.data);
    mirt__text_free(&names);
}

/* All but the graph, and the graph's beginning. */
static void mirt__onnx_head(mirt__onnx *x, mirt__text *out) {
    mirt__pb_int(out, MIRT__MODEL_VERSION, MIRT__ONNX_VERSION);
    mirt__pb_string(out, MIRT__MODEL_PRODUCER, "mirrortrain");
    const size_t opset = mirt__pb_open(out, MIRT__MODEL_OPSET);
    mirt__pb_int(out, 2, MIRT__ONNX_OPSET);
    mirt__pb_close(out, opset);
    mirt__onnx_class_names(x, out);
    mirt__pb_string(&x->nodes, MIRT__GRAPH_NAME, x->model->name);
    mirt__pb_varint(out, MIRT__MODEL_GRAPH << 3 | 2);
    mirt__pb_varint(out, (uint64_t)x->nodes.size + x->initializers.size + x->ends.size);
}

static mirt_status mirt__onnx_store(mirt__onnx *x, const char *path) {
    mirt__file_writer writer;
    mirt__text head;
    const mirt__text *part[4] = {&head, &x->nodes, &x->initializers, &x->ends};
    uint64_t bytes = 0;
    memset(&head, 0, sizeof head);
    mirt__onnx_head(x, &head);
    mirt_status status = MIRT_OK;
    for (int i = 0; i < 4; i++) {
        if (part[i]->failed) status = mirt__fail(MIRT_E_NOMEM, "%s: no memory for the model's file", path);
        bytes += part[i]->size;
    }
    if (status == MIRT_OK && bytes > MIRT__ONNX_LIMIT)
        status = mirt__fail(MIRT_E_INVALID, "%s: the model takes %.2f GB; an ONNX file holds less than 2", path,
                            (double)bytes / 1e9);
    if (status == MIRT_OK) status = mirt__file_begin(&writer, path);
    if (status == MIRT_OK) {
        for (int i = 0; i < 4; i++) mirt__file_append(&writer, part[i]->data, part[i]->size);
        status = mirt__file_commit(&writer);
    }
    mirt__text_free(&head);
    return status;
}

static mirt_status mirt__onnx_write(mirt__onnx *x, const char *path) {
    const bool good = mirt__onnx_lower(x) && mirt__onnx_number_tensors(x) && mirt__onnx_write_inputs(x) &&
                      mirt__onnx_write_nodes(x) && mirt__onnx_write_outputs(x);
    return good ? mirt__onnx_store(x, path) : mirt_last_status();
}

MIRT_API mirt_status mirt_save_onnx(mirt_model *model, const char *path, const mirt_onnx_desc *desc) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt__onnx x;
    if (!model || !path || !path[0]) return mirt__fail(MIRT_E_INVALID, "mirt_save_onnx: no model or no path");
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (!model->num_outputs)
        return mirt__fail(MIRT_E_STATE, "mirt_save_onnx: %s has no outputs yet: mirt_model_output", model->name);
    if (mirt__model_materialize(model) != MIRT_OK) return mirt_last_status();
    if (!mirt__writes_files(model->strategy)) return MIRT_OK;
    memset(&x, 0, sizeof x);
    x.model = model;
    if (desc) x.desc = *desc;
    const mirt_status status = mirt__onnx_write(&x, path);
    mirt__text_free(&x.nodes);
    mirt__text_free(&x.initializers);
    mirt__text_free(&x.ends);
    mirt__free(x.value);
    mirt__free(x.taken);
    mirt__graph_free(&x.graph);
    return status;
}
