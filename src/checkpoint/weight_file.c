/* Weights and optimizer state as tensors of a file. */
#include "checkpoint.h"

MIRT__TRAINING_LIB const char *mirt__slot_name(mirt__pool *pool, const mirt_model *model, int slot,
                                               const mirt__variable *v) {
    const mirt__optimizer_class *cls =
        mirt__optimizer_class_get(mirt__optimizer_named(&model->config, v->name)->kind);
    const char *what = mirt__is_trained(v) ? mirt__slot_of(&model->config, v->name, slot) : NULL;
    char *name = what ? mirt__pool_print(pool, "%s/%s_%s", cls->name, v->name, what) : NULL;
    if (!what) return "";
    for (char *at = name ? name + strlen(cls->name) + 1 : NULL; at && *at; at++) {
        if (*at == '/') *at = '_';
    }
    return name;
}

MIRT__TRAINING_LIB void mirt__tensor_of(const mirt__variable *v, const char *name, const mirt__real *values,
                                        mirt__safetensor *out) {
    memset(out, 0, sizeof *out);
    out->name = name;
    out->dtype = MIRT__ST_F32;
    out->rank = v->shape.rank;
    for (int i = 0; i < v->shape.rank; i++) out->dim[i] = v->shape.dim[i];
    out->data = values;
}

MIRT__LIB bool mirt__load_fits(const mirt__safetensor *t, const mirt__variable *v) {
    bool same = t->dtype == MIRT__ST_F32 && t->rank == v->shape.rank;
    for (int i = 0; same && i < t->rank; i++) same = t->dim[i] == v->shape.dim[i];
    return same;
}

MIRT__LIB const mirt__safetensor *mirt__load_find(const mirt__safetensors *file, const char *name,
                                                  const mirt__variable *v) {
    const mirt__safetensor *t = mirt__safetensors_find(file, name);
    char want[96];
    if (!t)
        return mirt__fail(MIRT_E_NOT_FOUND, "%s: there is no tensor \"%s\"", file->origin, name),
               (const mirt__safetensor *)NULL;
    if (mirt__load_fits(t, v)) return t;
    mirt__fail(MIRT_E_SHAPE, "%s: %s is %s %s, the model needs F32 %s", file->origin, name,
               mirt__st_dtype_name(t->dtype), mirt__st_shape_text(t).text, mirt__shape_text(&v->shape, want));
    return NULL;
}

MIRT__LIB mirt_status mirt__load_take(const mirt__safetensors *file, const mirt__safetensor *t, mirt_model *model,
                                      int block, int variable) {
    if (!mirt__is_trained(&model->variable[variable])) mirt__root(model, NULL)->edits++;
    mirt__real *to = block ? mirt__slot_at(model, block - 1, variable) : mirt__weight_at(model, variable);
    const mirt_status status = mirt__safetensor_copy(file, t, to);
    if (block) mirt__slots_changed(model);
    else mirt__weights_changed(model), mirt__variable_loaded(model, variable);
    return status;
}

MIRT__LIB mirt_status mirt__load_blocks(const mirt__safetensors *file, mirt_model *model, int slots, bool take) {
    mirt__pool pool = {NULL};
    mirt_status status = MIRT_OK;
    const size_t variables = (size_t)model->num_variables, most = (size_t)(1 + slots) * variables;
    const mirt__safetensor **found = (const mirt__safetensor **)mirt__pool_alloc(&pool, (most + 1) * sizeof *found);
    if (!found) status = mirt_last_status();
    for (size_t k = 0; k < most && status == MIRT_OK; k++) {
        const int block = (int)(k / variables);
        const mirt__variable *v = &model->variable[k % variables];
        found[k] = NULL;
        const char *name = MIRT__TRAINS && block ? mirt__slot_name(&pool, model, block - 1, v) : v->name;
        if (name && !*name) continue;
        found[k] = name ? mirt__load_find(file, name, v) : NULL;
        if (!found[k]) status = mirt_last_status();
    }
    if (status == MIRT_OK && take) status = mirt__model_allocate(model, false);
    for (size_t k = 0; k < most && status == MIRT_OK && take; k++) {
        if (found[k]) status = mirt__load_take(file, found[k], model, (int)(k / variables), (int)(k % variables));
    }
    mirt__pool_free(&pool);
    return status;
}

MIRT__LIB mirt_status mirt__load_bad(const mirt__safetensors *file, const char *part) {
    mirt_status status = mirt_last_status();
    bool described = status == MIRT_E_INVALID || status == MIRT_E_SHAPE || status == MIRT_E_STATE;
    mirt__fail(described ? MIRT_E_FORMAT : status, "%s: %s: %s", file->origin, part, mirt_last_error());
    return mirt_last_status();
}
