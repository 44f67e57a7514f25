#include "ops.h"
/* Random image transforms as an op. */

/* data: the transforms of images that follow each other, key: what their keys are mixed with. Outside of training they
   are left out, but for CLAHE and what crops make of the images' size. In training pixels are read as they are in the
   data. No gradient passes. */

static const mirt__transform *mirt__augment_list(const mirt__node *node) {
    return (const mirt__transform *)MIRT__OF(&node->a, data)->data;
}
static int mirt__augment_count(const mirt__node *node) {
    return (int)(MIRT__OF(&node->a, data)->bytes / sizeof(mirt__transform));
}

static bool mirt__augment_shape(mirt__node *node) {
    const mirt__transform *t = mirt__augment_list(node), *last = &t[mirt__augment_count(node) - 1];
    mirt_shape y = node->in[0]->shape;
    y.dim[1] = last->oh;
    y.dim[2] = last->ow;
    return mirt__declare(node, MIRT_FLOAT32, &y);
}

static void mirt__augment_run(const mirt__call *call) {
    const mirt__node *node = call->node;
    mirt__augment_rows a;
    a.transform = mirt__augment_list(node);
    a.count = mirt__augment_count(node);
    a.seed = call->run->seed ^ MIRT__OF(&node->a, data)->key;
    a.first_row = (uint64_t)call->run->first_row;
    a.step = (uint64_t)call->run->step;
    a.rows = call->rows;
    a.x_dtype = node->in[0]->dtype;
    a.x = call->in[0];
    a.y = mirt__out(call, 0);
    call->kernels->augment(&a, &call->where);
}

static void mirt__augment_workspace(const mirt__node *node, int64_t rows, mirt__workspace *out) {
    (void)rows;
    const int count = mirt__augment_count(node);
    out->scratch = mirt__augment_room(mirt__augment_list(node), count, node->in[0]->dtype, MIRT_FLOAT32);
}

MIRT__LIB mirt_tensor *mirt__fit_op(mirt_tensor *x, const mirt__transform *t) {
    int64_t begin[4] = {0, 0, 0, 0}, size[4] = {-1, 0, 0, -1};
    if (mirt__transform_fits(t) || t->kind == MIRT_RANDOM_CROP) {
        mirt__transform_window(t, &begin[1], &size[1]);
    } else {
        const bool crops = t->kind == MIRT_CENTER_CROP;
        begin[1] = crops ? (t->h - t->oh) / 2 : 0;
        begin[2] = crops ? (t->w - t->ow) / 2 : 0;
        size[1] = crops ? t->oh : t->h;
        size[2] = crops ? t->ow : t->w;
    }
    if (size[1] != t->h || size[2] != t->w) x = mirt_slice(x, begin, size);
    return size[1] == t->oh && size[2] == t->ow ? x : mirt__resize2d_op(x, (int)t->oh, (int)t->ow, !t->nearest);
}

static mirt_tensor *mirt__augment_lower(mirt__graph *graph, const mirt__node *node, mirt_tensor *const *in,
                                        const mirt__mode *mode) {
    const mirt__transform *t = mirt__augment_list(node);
    mirt_tensor *x = in[0];
    if (mirt__in_training(node, mode)) {
        if (!MIRT__TRAINS) return mirt__without_training("augment");
        if (x->node->id == MIRT__OP_cast && x->node->in[0]->dtype == MIRT_UINT8) x = x->node->in[0];
        return mirt__record(graph, MIRT__OP_augment, &node->a, &x, 1);
    }
    for (int i = 0; x && i < mirt__augment_count(node); i++) {
        mirt__attrs alone = node->a;
        if (t[i].kind == MIRT_RANDOM_CROP) x = mirt__fit_op(x, &t[i]);
        if (t[i].kind != MIRT_CLAHE) continue;
        MIRT__OF(&alone, data)->data = &t[i];
        MIRT__OF(&alone, data)->bytes = sizeof *t;
        MIRT__OF(&alone, data)->room = 0;
        x = mirt__record(graph, MIRT__OP_augment, &alone, &x, 1);
    }
    return x;
}

MIRT__OP_ROW(augment, mirt__augment_shape, mirt__augment_run,
    MIRT__SET(workspace, mirt__augment_workspace) MIRT__SET(lower, mirt__augment_lower)
    MIRT__IS(row_wise) MIRT__IS(keeps_range))

/* Appends a transform to a list. */
static bool mirt__augment_append(mirt__graph *graph, mirt__attrs_data *own, const mirt__transform *t) {
    const size_t bytes = own->room < sizeof *t ? 2 * own->bytes + sizeof *t : 0; /* of a larger place */
    char *list = bytes ? (char *)mirt__pool_alloc(&graph->pool, bytes) : (char *)(uintptr_t)own->data;
    if (!list) return false;
    if (bytes) {
        if (own->bytes) memcpy(list, own->data, own->bytes);
        own->data = list;
        own->room = bytes - own->bytes;
    }
    memcpy(list + own->bytes, t, sizeof *t);
    own->bytes += sizeof *t;
    own->room -= sizeof *t;
    return true;
}

MIRT__LIB mirt_tensor *mirt__augment_op(mirt_tensor *x, const mirt__transform *t) {
    mirt__graph *graph = x->node->graph;
    mirt__attrs a = mirt__attrs_of(MIRT__OP_augment);
    mirt__attrs_data *own = MIRT__OF(&a, data);
    mirt__attrs_data *first = x->node->id == MIRT__OP_augment ? MIRT__OF(&x->node->a, data) : NULL;
    own->key = mirt__hash("augment");
    /* What was copied from another model keeps the key it has there. */
    if (first && first->key == own->key && x->node->a.training == a.training) {
        *own = *first;
        first->room = 0; /* only one of the longer lists continues in its place */
        x = x->node->in[0];
    }
    return mirt__augment_append(graph, own, t) ? mirt__record(graph, MIRT__OP_augment, &a, &x, 1) : NULL;
}

MIRT__TRAINING_LIB bool mirt__augment_more(mirt_tensor *x, const mirt__transform *t) {
    return mirt__augment_append(x->node->graph, MIRT__OF(&x->node->a, data), t);
}
