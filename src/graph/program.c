#include "program.h"
/* Replays programs: runs their nodes in order. */

MIRT__LIB void mirt__program_free(mirt__program *program) {
    mirt__graph_free(&program->graph);
    memset(program, 0, sizeof *program);
}

MIRT__LIB void *mirt__address(const mirt__bases *bases, const mirt_tensor *t) {
    switch (t->space) {
    case MIRT__SPACE_ARENA: return bases->arena + t->offset;
    case MIRT__SPACE_REPLICA: return bases->replica + t->offset;
    case MIRT__SPACE_STATE: return bases->state + t->offset;
    case MIRT__SPACE_WEIGHT: return bases->weight + t->offset;
    case MIRT__SPACE_GRADIENT: return bases->gradient + t->offset;
    case MIRT__SPACE_IO: return bases->io[t->port];
    default: return NULL;
    }
}

MIRT__LIB bool mirt__node_runs(const mirt__node *node) { return node->op->run && !node->out[0]->lazy; }

MIRT__LIB void mirt__program_run(const mirt__program *program, int segment, const mirt__kernels *kernels,
                                 const mirt__step_info *run, const mirt__bases *bases, int64_t rows) {
    mirt__call call;
    call.kernels = kernels;
    call.run = run;
    call.rows = rows;
    call.bases = bases;
    call.where = bases->where;
    int begin = MIRT__TRAINS && segment ? program->cut[segment - 1] + 1 : 0;
    int end = MIRT__TRAINS && segment < program->num_cuts ? program->cut[segment] : program->graph.count;
    mirt__device_timeline *timeline = run->timeline;
    const bool slices = MIRT__TRAINS && timeline && timeline->names, clocked = MIRT__TRAINS && (run->clock || slices);
    double last = clocked ? mirt__now() : 0;
    for (int i = begin; rows > 0 && i < end; i++) {
        const mirt__node *node = program->graph.node[i];
        if (!mirt__node_runs(node)) continue;
        if (MIRT__TRAINS && timeline && i == program->first_gradient) {
            mirt__timeline_mark(timeline, MIRT_PHASE_BACKWARD, run->replica, i);
            if (slices) last = mirt__now();
        }
        if (timeline) __atomic_store_n(&timeline->node, i, __ATOMIC_RELAXED);
        call.node = node;
        for (int k = 0; k < node->num_in; k++) call.in[k] = mirt__address(bases, node->in[k]);
        for (int k = 0; k < node->num_out; k++) call.out[k] = mirt__address(bases, node->out[k]);
        node->op->run(&call);
        if (MIRT__TRAINS && run->look) run->look(run->look_user, &call, i);
        if (!MIRT__TRAINS || !clocked) continue;
        bases->backend->wait(bases->where.handle);
        double now = mirt__now();
        if (run->clock) run->clock[i] += now - last;
        if (slices) mirt__timeline_slice(timeline, timeline->names[i], last, now, run->replica);
        last = now;
    }
}

/* What is computed while it is read. */
MIRT__TRAINING void mirt__lazy_text(const mirt_tensor *t, mirt__text *out) {
    if (!t->lazy) return;
    const mirt__node *node = t->node;
    mirt__text_add(out, "  reads %s", mirt__shown(node->name ? node->name : node->op->name).text);
    if (node->op->lazy == MIRT__LAZY_GATE) mirt__text_add(out, " gate");
    if (node->op->lazy == MIRT__LAZY_DY) mirt__text_add(out, "'");
    if (node->a.activation) mirt__text_add(out, "+%s", mirt__activation_get(node->a.activation)->name);
    if (node->op->lazy == MIRT__LAZY_GATE) mirt__lazy_text(node->in[0], out);
}

MIRT__TRAINING_LIB void mirt__node_notes(const mirt__node *node, mirt__text *out) {
    static const char *const sums[] = {"", "moments", "sums", "means"};
    const mirt__attrs_window *w = MIRT__IF_OF(&node->a, window);
    for (int k = 0; k < node->num_in && !node->out[0]->lazy; k++) mirt__lazy_text(node->in[k], out);
    if (node->a.affine) mirt__text_add(out, "  reads x*%g%+g", (double)node->a.scale, (double)node->a.offset);
    if (node->a.bias) mirt__text_add(out, "  +bias");
    if (w && w->norm) mirt__text_add(out, "  +normalize");
    if (node->a.residual) mirt__text_add(out, "  +add");
    if (node->id == MIRT__OP_reduce && node->num_in > 1) mirt__text_add(out, "  *product");
    if (node->a.activation) mirt__text_add(out, "  +%s", mirt__activation_get(node->a.activation)->name);
    if (node->a.mask_activation) mirt__text_add(out, "  *%s'", mirt__activation_get(node->a.mask_activation)->name);
    if (w && w->slope_activation) mirt__text_add(out, "  *%s'", mirt__activation_get(w->slope_activation)->name);
    if (w && w->sums) mirt__text_add(out, "  +%s", sums[w->sums]);
    if (w && w->both) mirt__text_add(out, "  +weight gradient");
}

MIRT__TRAINING void mirt__node_text(const mirt__node *node, mirt__text *out) {
    static const char *const space[] = {"-", "arena", "replica", "weight", "gradient", "state", "io"};
    char shape[96];
    mirt__text_add(out, "  %-24s %-14s", mirt__shown(node->op->name).text, mirt__shown(node->name).text);
    for (int k = 0; k < node->num_out; k++) {
        const mirt_tensor *t = node->out[k];
        if (t->space == MIRT__SPACE_NONE) continue;
        mirt__text_add(out, "%s%s %s", k ? ", " : " ", mirt__dtype_name(t->dtype), mirt__shape_text(&t->shape, shape));
        if (t->space == MIRT__SPACE_IO) mirt__text_add(out, " @io[%d]", t->port);
        else mirt__text_add(out, " @%s+%zu", space[t->space], t->offset);
    }
    if (node->out[0]->lazy) mirt__text_add(out, " never stored");
    if (node->repeats) mirt__text_add(out, " once more");
    mirt__node_notes(node, out);
    mirt__text_add(out, "\n");
}

MIRT__TRAINING_LIB void mirt__program_text(const mirt__program *program, mirt__text *out) {
    for (int i = 0; i < program->graph.count; i++) {
        if (program->graph.node[i]->op->run) mirt__node_text(program->graph.node[i], out);
    }
}
