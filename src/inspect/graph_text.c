#include "../passes/storage.h"
#include "../ops/ops.h"
#include "inspect.h"
/* The text of mirrortrain graph: the training step before and after mirroring. */

/* The name of a device, counted from this process's first one: of another process, its number among all. */
static void mirt__device_text(const mirt_strategy *s, int device, char name[32]) {
    if (device >= 0 && device < s->num_devices) snprintf(name, 32, "%.31s", s->device[device].name);
    else snprintf(name, 32, "device %d", s->first_device + device);
}

/* The split before the program. */
static void mirt__scatter_text(const mirt__step *step, int64_t batch, mirt__text *out) {
    const mirt_strategy *s = step->strategy;
    char name[32];
    for (int d = 0, r = 0; d < s->all_devices; d++) {
        int first;
        const int end = r + mirt__device_replicas(s, step->replicas, d - s->first_device, &first);
        mirt__device_text(s, d - s->first_device, name);
        for (; r < end; r++) {
            int64_t row;
            const int64_t rows = mirt__share(batch, step->replicas, r, &row);
            mirt__text_add(out, "  scatter    ");
            if (rows) mirt__text_add(out, "rows %lld to %lld", (long long)row, (long long)(row + rows - 1));
            else mirt__text_add(out, "no rows");
            mirt__text_add(out, " -> replica %d on %s\n", r, name);
        }
    }
}

static void mirt__all_reduce_text(const mirt__step *step, int64_t batch, const mirt__bucket *bucket, mirt__text *out) {
    const mirt_strategy *s = step->strategy;
    const char *why, *name = mirt__collective_name(s->collective, &why);
    const int active = batch < step->replicas ? (int)batch : step->replicas;
    mirt__exchange x;
    mirt__text_add(out, "%lld elements by %s\n", (long long)bucket->elements, name);
    mirt__exchange_plan(s, step->replicas, active, step->program.num_cuts > 0, 0, &x);
    const int adds = MIRT__HOST_PEERS(s) ? x.adds : x.parts - 1;
    for (int i = 0; i < adds; i++) {
        const int into = x.add[i].into, from = x.add[i].from;
        char to[32], with[32];
        mirt__device_text(s, x.device[into], to);
        mirt__device_text(s, x.device[from], with);
        mirt__text_add(out, "    add      %s buffer %d += %s buffer %d\n", to, x.slot[into], with, x.slot[from]);
    }
    if (MIRT__HOST_PEERS(s)) mirt__text_add(out, "    exchange what is left with the other processes\n");
    if (s->collective == MIRT_RING && x.parts > 1)
        mirt__text_add(out, "    these are the additions of %s; each other device begins with the one after it\n",
                       s->device[0].name);
}

static void mirt__update_text(const mirt_function *f, const mirt__bucket *bucket, mirt__text *out) {
    const mirt__step *step = &f->step;
    const mirt_strategy *s = step->strategy;
    const char *optimizer = mirt__optimizers_name(&f->model->config);
    const int copies = mirt__written_copies(s);
    const char *where = copies > 1                                ? "every device's copy"
                        : mirt__device_copies(s) < s->num_devices ? "the one copy"
                                                                  : "its weights";
    mirt__text_add(out, "%lld elements\n", (long long)bucket->elements);
    for (int d = 0; d < s->num_devices; d++) {
        mirt__range own = mirt__model_share(f->model, d);
        own = mirt__overlap(&own, bucket->begin, bucket->end);
        if (own.begin < own.end)
            mirt__text_add(out, "    on       %s: %s on elements %lld to %lld, written to %s\n", s->device[d].name,
                           optimizer, (long long)own.begin, (long long)own.end - 1, where);
    }
}

/* What mirroring puts around the program: the split, and the nodes that it appended. */
static void mirt__mirrored_text(const mirt_function *f, int64_t batch, mirt__text *out) {
    const mirt__step *step = &f->step;
    const int devices = step->strategy->all_devices;
    mirt__text_add(out, "\nafter mirroring over %d replica%s on %d device%s:\n", step->replicas,
                   step->replicas == 1 ? "" : "s", devices, devices == 1 ? "" : "s");
    mirt__scatter_text(step, batch, out);
    mirt__text_add(out, "  run        the program above, once per replica\n");
    for (int i = step->program.mirrored; i < step->program.graph.count; i++) {
        const mirt__node *node = step->program.graph.node[i];
        mirt__text_add(out, "  %-10s bucket %d, ", node->op->reduces ? "all_reduce" : "update", node->a.index);
        if (node->op->reduces) mirt__all_reduce_text(step, batch, &step->bucket[node->a.index], out);
        else mirt__update_text(f, &step->bucket[node->a.index], out);
    }
}

MIRT_API const char *mirt_graph_text(mirt_model *model, int64_t batch) {
    MIRT__USE_MODEL(model, NULL);
    if (mirt__need_compiled(model, __func__) != MIRT_OK) return NULL;
    if (!mirt__num_labels(model)) {
        mirt__fail(MIRT_E_STATE, "%s is compiled without a loss: it has no training step", model->name);
        return NULL;
    }
    mirt_function *f = mirt__inspect_plan(model, batch, __func__);
    if (!f) return NULL;
    mirt__text *out = &model->graph_text;
    mirt__text_clear(out);
    mirt__text_add(out, "training step of one replica, as recorded, differentiated and fused:\n");
    mirt__program_text(&f->step.program, out);
    mirt__mirrored_text(f, batch, out);
    mirt__function_free(f);
    return out->failed ? NULL : out->data;
}

MIRT_API const char *mirt_graph_costs(mirt_model *model, int64_t batch) {
    MIRT__USE_MODEL(model, NULL);
    mirt_function *f = mirt__inspect_plan(model, batch, __func__);
    if (!f) return NULL;
    mirt__text *out = &model->graph_text;
    mirt__text_clear(out);
    mirt__text_add(out, "tensors of %s of one replica, %lld rows:\n",
                   mirt__num_labels(model) ? "a training step" : "predicting", (long long)f->step.program.max_rows);
    mirt__storage_text(&f->step.program, &model->strategy->able.costs, out);
    mirt__function_free(f);
    return out->failed ? NULL : out->data;
}
