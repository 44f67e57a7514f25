/* Loads models and weights from files. */
#include "../data/data.h"
#include "checkpoint.h"

MIRT_API mirt_status mirt_set_model_class_names(mirt_model *model, const char *const *names, int count) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model) return mirt__fail_missing(__func__, "model");
    const int bad = names ? mirt__bad_name(names, count) : -1;
    if (bad >= 0) return mirt__fail(MIRT_E_INVALID, "%s: the name of class %d is not valid UTF-8", model->name, bad);
    return mirt__names_set("mirt_set_model_class_names", names, count, &model->class_names, &model->num_class_names);
}

MIRT_API const char *const *mirt_model_class_names(const mirt_model *model, int *count) {
    if (count) *count = model ? model->num_class_names : 0;
    return model ? (const char *const *)model->class_names : NULL;
}

static const mirt__json *mirt__load_metadata(const mirt__safetensors *file, mirt__pool *pool, const char *key) {
    const char *text = mirt__safetensors_metadata(file, key);
    if (!text) {
        mirt__fail(MIRT_E_FORMAT,
                   "%s holds no %s: it is not a whole saved model; mirt_load_weights reads weights alone", file->origin,
                   key);
        return NULL;
    }
    const mirt__json *json = mirt__json_parse(pool, text, strlen(text));
    if (!json) mirt__fail_at("%s: %s", file->origin, key);
    return json;
}

static mirt_status mirt__load_classes(mirt_model *model, const mirt__safetensors *file, mirt__pool *pool) {
    if (!mirt__safetensors_metadata(file, "classes")) return MIRT_OK;
    const mirt__json *list = mirt__load_metadata(file, pool, "classes");
    if (!list) return mirt_last_status();
    const char **names = (const char **)mirt__pool_alloc(pool, (list->count + 1) * sizeof *names);
    if (!names) return mirt_last_status();
    bool good = list->type == MIRT__JSON_ARRAY && list->count && list->count <= INT_MAX;
    for (size_t i = 0; good && i < list->count; i++) {
        good = list->item[i]->type == MIRT__JSON_STRING;
        names[i] = list->item[i]->string;
    }
    if (!good) return mirt__fail(MIRT_E_FORMAT, "%s: classes: is no list of names", file->origin);
    return mirt_set_model_class_names(model, names, (int)list->count);
}

static mirt_status mirt__load_into(mirt_model *model, const mirt__safetensors *file, mirt__pool *pool) {
    const mirt__json *architecture = mirt__load_metadata(file, pool, "architecture"), *compile, *training;
    if (!architecture || !(compile = mirt__load_metadata(file, pool, "compile")) ||
        !(training = mirt__load_metadata(file, pool, "training"))) {
        return mirt_last_status();
    }
    if (mirt__architecture_read(model, architecture) != MIRT_OK) return mirt__load_bad(file, "architecture");
    mirt_status status = MIRT__TRAINS ? mirt__load_compiled(model, file, compile, training)
                                      : mirt__load_blocks(file, model, 0, true);
    return status == MIRT_OK ? mirt__load_classes(model, file, pool) : status;
}

/* Closes `file`. */
static mirt_model *mirt__load_open(mirt_strategy *strategy, mirt__safetensors *file) {
    mirt__pool pool = {NULL};
    mirt_model *model = mirt_model_create(strategy, NULL);
    if (model && mirt__load_into(model, file, &pool) != MIRT_OK) {
        mirt_model_destroy(model);
        model = NULL;
    }
    mirt__pool_free(&pool);
    mirt__safetensors_close(file);
    return model;
}

MIRT_API mirt_model *mirt_load(mirt_strategy *strategy, const char *path) {
    MIRT__USE(strategy, NULL);
    mirt__safetensors file;
    if (!strategy) return mirt__fail_missing(__func__, "strategy"), (mirt_model *)NULL;
    if (!path) return mirt__fail(MIRT_E_INVALID, "mirt_load: no path"), (mirt_model *)NULL;
    return mirt__safetensors_open_streamed(&file, path) == MIRT_OK ? mirt__load_open(strategy, &file) : NULL;
}

MIRT_API mirt_model *mirt_load_memory(mirt_strategy *strategy, const void *data, size_t size) {
    MIRT__USE(strategy, NULL);
    mirt__safetensors file;
    if (!strategy) return mirt__fail_missing(__func__, "strategy"), (mirt_model *)NULL;
    if (!data) return mirt__fail(MIRT_E_INVALID, "mirt_load_memory: no data"), (mirt_model *)NULL;
    return mirt__safetensors_open_memory(&file, data, size) == MIRT_OK ? mirt__load_open(strategy, &file) : NULL;
}

MIRT_API mirt_status mirt_load_weights(mirt_model *model, const char *path) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt__safetensors file;
    if (!model || !path) return mirt__fail(MIRT_E_INVALID, "mirt_load_weights: no model or no path");
    if (mirt__usable(model->strategy) != MIRT_OK || mirt__safetensors_open(&file, path) != MIRT_OK)
        return mirt_last_status();
    mirt_status status = mirt__load_blocks(&file, model, 0, true);
    mirt__safetensors_close(&file);
    return status;
}

/* The variable's name in the file, or NULL: it is none of those asked for, or (*ok false) memory ran out. */
static const char *mirt__load_name(mirt__pool *pool, const mirt__variable *v, const mirt_load_desc *desc, bool *ok) {
    const char *name = v->name;
    if (!mirt__matches(name, desc->prefix)) return NULL;
    const size_t cut = desc->prefix ? strlen(desc->prefix) : 0;
    if (cut && desc->prefix[cut - 1] != '*' && name[cut]) name += cut + 1;
    if (!desc->file_prefix || !*desc->file_prefix) return name;
    const char *whole = mirt__pool_print(pool, "%s/%s", desc->file_prefix, name);
    *ok = whole != NULL;
    return whole;
}

/* Tensors that are nobody's: not those of an optimizer or a run, which whole models have. */
static void mirt__load_extras(const mirt__safetensors *file, const bool *used, mirt__text *text,
                              mirt_load_report *report) {
    const bool whole = mirt__safetensors_metadata(file, "compile") != NULL;
#define MIRT__OPTIMIZER_NAME(kind, name, kernel) #name,
    static const char *const optimizer[] = {MIRT_OPTIMIZER_LIST(MIRT__OPTIMIZER_NAME)};
#undef MIRT__OPTIMIZER_NAME
    for (int i = 0; i < file->count; i++) {
        const mirt__safetensor *t = &file->tensor[i];
        bool slot = false;
        for (int k = 0; whole && k < MIRT__COUNT(optimizer); k++) {
            const size_t size = strlen(optimizer[k]);
            slot = slot || (strncmp(t->name, optimizer[k], size) == 0 && t->name[size] == '/');
        }
        slot = slot || (whole && (strncmp(t->name, "run/", 4) == 0 || strncmp(t->name, "callbacks/", 10) == 0));
        if (used[i] || slot) continue;
        report->extra++;
        mirt__text_add(text, "extra: %s %s\n", mirt__shown(t->name).text, mirt__st_shape_text(t).text);
    }
}

static mirt_status mirt__load_some(mirt_model *model, const mirt__safetensors *file, mirt__pool *pool,
                                   const mirt_load_desc *desc, mirt_load_report *report) {
    mirt__text *text = &model->load_text;
    char want[96];
    int asked = 0;
    bool ok = true, *used = (bool *)mirt__pool_alloc(pool, (size_t)file->count + 1);
    if (!used) return mirt_last_status();
    memset(used, 0, (size_t)file->count);
    for (int i = 0; i < model->num_variables; i++) {
        const mirt__variable *v = &model->variable[i];
        const char *name = mirt__load_name(pool, v, desc, &ok);
        if (!ok) return mirt_last_status();
        if (!name) continue;
        asked++;
        const mirt__safetensor *t = mirt__safetensors_find(file, name);
        if (t) used[t - file->tensor] = true;
        if (t && mirt__load_fits(t, v)) {
            if (mirt__load_take(file, t, model, 0, i) != MIRT_OK) return mirt_last_status();
            report->loaded++;
        } else if (t) {
            report->mismatched++;
            mirt__text_add(text, "mismatched: %s is %s, in the file %s %s\n", mirt__shown(v->name).text,
                           mirt__shape_text(&v->shape, want), mirt__st_dtype_name(t->dtype),
                           mirt__st_shape_text(t).text);
        } else {
            report->missing++;
            mirt__text_add(text, "missing: %s %s\n", mirt__shown(v->name).text, mirt__shape_text(&v->shape, want));
        }
    }
    mirt__load_extras(file, used, text, report);
    report->text = text->data ? text->data : "";
    if (text->failed) return mirt_last_status();
    if (report->loaded) return MIRT_OK;
    if (!asked && desc->prefix && mirt__layer_find(model, desc->prefix) < 0) return mirt_last_status();
    return mirt__fail(MIRT_E_NOT_FOUND, "%s: none of its %d tensors fits one of the %d weights of %s by name and shape",
                      file->origin, file->count, asked, model->name);
}

MIRT_API mirt_status mirt_load_weights_partial(mirt_model *model, const char *path, const mirt_load_desc *desc,
                                               mirt_load_report *report) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt__safetensors file;
    mirt__pool pool = {NULL};
    mirt_load_desc all;
    mirt_load_report own;
    memset(&all, 0, sizeof all);
    memset(&own, 0, sizeof own);
    if (report) *report = own;
    if (!model || !path) return mirt__fail(MIRT_E_INVALID, "mirt_load_weights_partial: no model or no path");
    mirt__text_clear(&model->load_text);
    if (mirt__model_materialize(model) != MIRT_OK || mirt__safetensors_open(&file, path) != MIRT_OK)
        return mirt_last_status();
    mirt_status status = mirt__load_some(model, &file, &pool, desc ? desc : &all, &own);
    if (report) *report = own;
    mirt__pool_free(&pool);
    mirt__safetensors_close(&file);
    return status;
}
