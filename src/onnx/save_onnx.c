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

/* What a custom op is made of, as its class says. The model keeps still meanwhile. */
static mirt_tensor *mirt__onnx_compose(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in) {
    const mirt__attrs_data *own = MIRT__OF(&node->a, data);
    const mirt_op_class *op = own->user_op;
    const mirt_shape *wanted = &node->out[0]->shape;
    mirt_tensor *y = NULL;
    char is[96], should[96];
    if (!op->compose) return NULL;
    mirt__hold(graph->root);
    {
        MIRT__OUTSIDE;
        y = op->compose(in, node->num_in, own->data, op->user);
    }
    mirt__let_go(graph->root);
    if (graph->status != MIRT_OK) return NULL;
    if (y && y->node->graph == graph && mirt__shape_equal(&y->shape, wanted) && y->dtype == MIRT_FLOAT32) return y;
    if (!y || y->node->graph != graph)
        mirt__fail(MIRT_E_CALLBACK, "mirt_save_onnx: compose of %s returned %s", op->name,
                   y ? "a tensor that it did not make of those that it got" : "NULL");
    else
        mirt__fail(MIRT_E_CALLBACK, "mirt_save_onnx: compose of %s returned %s of %s; it should be %s of float32",
                   op->name, mirt__dtype_name(y->dtype), mirt__shape_text(&y->shape, is),
                   mirt__shape_text(wanted, should));
    mirt__graph_poison(graph);
    return NULL;
}

/* Copies what the outputs depend on into an empty graph, whose tensors `in` and `out` then are. */
static bool mirt__onnx_copy(mirt__onnx *x, mirt__graph *to, mirt__copying *c, mirt_tensor **in, mirt_tensor **out) {
    const mirt_tensor *from[MIRT_MAX_INPUTS];
    mirt__graph_init(to, NULL, mirt__ops());
    to->root = mirt__root(x->model, NULL);
    to->hold = mirt__hold;
    to->let_go = mirt__let_go;
    for (int i = 0; i < x->model->num_inputs; i++) {
        from[i] = in[i];
        if (!(in[i] = mirt__input_op(to, i, in[i]->dtype, &in[i]->shape))) return false;
    }
    c->replaced = from;
    c->replacement = in;
    c->num_replaced = x->model->num_inputs;
    return mirt__graph_copy(to, c, out, x->model->num_outputs);
}

/* The model's graph as it predicts. Code of the user runs in a second copy, when the model's own graph is done with. */
static bool mirt__onnx_lower(mirt__onnx *x) {
    const mirt_model *model = x->model;
    mirt_tensor *keep[MIRT_MAX_OUTPUTS + MIRT_MAX_INPUTS];
    mirt__copying lowering, composing;
    mirt__mode mode;
    memset(&lowering, 0, sizeof lowering);
    memset(&composing, 0, sizeof composing);
    memset(&mode, 0, sizeof mode);
    lowering.source = &model->graph;
    lowering.mode = &mode;
    composing.source = &x->lowered;
    composing.compose = mirt__onnx_compose;
    memcpy(x->input, model->input, sizeof x->input);
    memcpy(x->output, model->output, sizeof x->output);
    if (!mirt__onnx_copy(x, &x->lowered, &lowering, x->input, x->output) ||
        !mirt__onnx_copy(x, &x->graph, &composing, x->input, x->output))
        return false;
    memcpy(keep, x->output, (size_t)model->num_outputs * sizeof *keep);
    memcpy(keep + model->num_outputs, x->input, (size_t)model->num_inputs * sizeof *keep); /* also those nobody reads */
    mirt__graph_prune(&x->graph, keep, model->num_outputs + model->num_inputs);
    return true;
}

/* >>names of inputs and outputs */

/* The layer whose output a tensor of the model is, or, as in views, that made it; or NULL. */
static const char *mirt__onnx_layer_of(const mirt_model *model, const mirt_tensor *t) {
    for (int i = model->num_layers - 1; i >= 0; i--) {
        if (model->layer[i]->out[0] == t) return model->layer[i]->name;
    }
    return t->node->name;
}

/* A layer's name, or the kind of end and its number, unless another end or a weight has it. */
static bool mirt__onnx_name_end(mirt__onnx *x, const char *layer, const char *kind, int number) {
    const char *name = layer ? mirt__pool_strdup(&x->graph.pool, layer) : NULL;
    if (!layer || (name && mirt__onnx_taken(x, name))) name = mirt__pool_print(&x->graph.pool, "%s/%d", kind, number);
    while (name && mirt__onnx_taken(x, name)) name = mirt__pool_print(&x->graph.pool, "%s/%s", kind, name);
    x->end[x->num_ends] = name;
    if (name) x->num_ends++;
    return name != NULL;
}

static bool mirt__onnx_name_ends(mirt__onnx *x) {
    const mirt_model *model = x->model, *owner = model->is_view ? model->owner : model;
    for (int i = 0; i < model->num_inputs; i++) {
        if (!mirt__onnx_name_end(x, mirt__onnx_layer_of(owner, owner->input[i]), "input", i)) return false;
    }
    for (int i = 0; i < model->num_outputs; i++) {
        if (!mirt__onnx_name_end(x, mirt__onnx_layer_of(model, model->output[i]), "output", i)) return false;
    }
    return true;
}

static const char *mirt__onnx_output_name(const mirt__onnx *x, int output) {
    return x->end[x->model->num_inputs + output];
}

/* >>nodes */

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

static void mirt__onnx_write_inputs(mirt__onnx *x) {
    for (int i = 0; i < x->model->num_inputs; i++) {
        const mirt__onnx_order order = mirt__onnx_end_order(x, x->input[i]);
        mirt__onnx_value_of(x, x->input[i])->name[order] = x->end[i];
        mirt__onnx_write_end(x, MIRT__GRAPH_INPUT, x->end[i], x->input[i], order);
    }
    for (int i = x->model->num_outputs - 1; i >= 0; i--)
        mirt__onnx_value_of(x, x->output[i])->output = mirt__onnx_output_name(x, i);
}

/* Outputs that are inputs, weights, or one tensor under two names are copies. */
static bool mirt__onnx_write_outputs(mirt__onnx *x) {
    for (int i = 0; i < x->model->num_outputs; i++) {
        mirt_tensor *t = x->output[i];
        const mirt__onnx_order order = mirt__onnx_end_order(x, t);
        const char *name = mirt__onnx_output_name(x, i), *have = mirt__onnx_get(x, t, order);
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
    if (!mirt__onnx_lower(x) || !mirt__onnx_number_tensors(x) || !mirt__onnx_name_ends(x)) return mirt_last_status();
    mirt__onnx_write_inputs(x);
    if (!mirt__onnx_write_nodes(x) || !mirt__onnx_write_outputs(x) || mirt__usable(x->model->strategy) != MIRT_OK)
        return mirt_last_status();
    return mirt__writes_files(x->model->strategy) ? mirt__onnx_store(x, path) : MIRT_OK;
}

MIRT_API mirt_status mirt_save_onnx(mirt_model *model, const char *path, const mirt_onnx_desc *desc) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt__onnx x;
    if (!model || !path || !path[0]) return mirt__fail(MIRT_E_INVALID, "mirt_save_onnx: no model or no path");
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (!model->num_outputs)
        return mirt__fail(MIRT_E_STATE, "mirt_save_onnx: %s has no outputs yet: mirt_model_output", model->name);
    if (mirt__model_materialize(model) != MIRT_OK) return mirt_last_status();
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
    mirt__graph_free(&x.lowered);
    return status;
}
