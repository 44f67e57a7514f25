#include "../formats/safetensors.h"
#include "../nn/config.h"
#include "fit.h"

/* >>names of classes */

MIRT_API mirt_status mirt_set_model_class_names(mirt_model *model, const char *const *names, int count) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model) return mirt__fail_missing("mirt_set_model_class_names", "model");
    for (int i = 0; names && i < count; i++) {
        if (names[i] && !mirt__utf8_valid(names[i], strlen(names[i]))) return mirt__fail(MIRT_E_INVALID, "%s: the name of class %d is not valid UTF-8", model->name, i);
    }
    char **copy = mirt__names_copy("mirt_set_model_class_names", names, count);
    if (!copy) return mirt_last_status();
    mirt__free(model->class_names);
    model->class_names = copy;
    model->num_class_names = count;
    return MIRT_OK;
}

MIRT_API const char *const *mirt_model_class_names(const mirt_model *model, int *count) {
    if (count) *count = model ? model->num_class_names : 0;
    return model ? (const char *const *)model->class_names : NULL;
}

/* >>saving */

static mirt_status mirt__save_tensors(mirt__pool *pool, mirt_model *model, bool slots, mirt__safetensors_content *content, mirt__safetensor **tensors) {
    int blocks = 1 + (slots ? mirt__optimizer_slots(&model->config.optimizer) : 0);
    size_t most = (size_t)blocks * (size_t)model->num_variables + (slots && model->fit ? (size_t)mirt__run_most_tensors(model->fit) : 0);
    mirt__safetensor *tensor = (mirt__safetensor *)mirt__pool_alloc(pool, most * sizeof *tensor + 1);
    if (!tensor) return mirt_last_status();
    content->tensor = *tensors = tensor;
    for (int b = 0; b < blocks; b++) {
        for (int i = 0; i < model->num_variables; i++) {
            const mirt__variable *v = &model->variable[i];
            if (b && !mirt__is_trained(v)) continue;
            const char *name = b ? mirt__slot_name(pool, model, b - 1, v) : v->name;
            if (!name) return mirt_last_status();
            mirt__tensor_of(v, name, b ? mirt__slot_at(model, b - 1, i) : mirt__weight_at(model, i), &tensor[content->count++]);
        }
    }
    return MIRT_OK;
}

/* The metadata of a file: pairs, and the texts they point into. */
typedef struct mirt__save_texts {
    const char *pair[16];
    int pairs;
    mirt__text architecture, compile, training, classes;
} mirt__save_texts;

static void mirt__save_pair(mirt__save_texts *m, const char *key, const char *value) {
    m->pair[2 * m->pairs] = key;
    m->pair[2 * m->pairs++ + 1] = value;
}

/* Where training is, and in a fit all that it needs to go on from there. */
static mirt_status mirt__save_training(mirt_model *model, bool whole, mirt__pool *pool, mirt__safetensor *tensor, int *count, mirt__save_texts *m) {
    mirt__text_add(&m->training, "{\"iterations\":%lld,\"epoch\":%lld", (long long)model->step, (long long)model->epoch);
    if (mirt__root(model, NULL)->scaled) {
        mirt__text_add(&m->training, ",\"scale_steps\":%lld,\"loss_scale\":%.0f", (long long)mirt__root(model, NULL)->scale_steps, mirt__root(model, NULL)->loss_scale);
    }
    if (model->fit && whole && mirt__run_write(model->fit, pool, &m->training, tensor, count) != MIRT_OK) return mirt_last_status();
    if (model->fit && !whole) mirt__text_add(&m->training, ",\"saved\":%lld", (long long)mirt__run_saved(model->fit));
    mirt__text_add(&m->training, "}");
    if (m->training.failed) return mirt_last_status();
    mirt__save_pair(m, "training", m->training.data);
    return MIRT_OK;
}

static mirt_status mirt__save_whole(mirt_model *model, mirt__pool *pool, mirt__safetensor *tensor, int *count, mirt__save_texts *m) {
    if (mirt__architecture_write(model, &m->architecture) != MIRT_OK) return mirt_last_status();
    mirt__compile_write(model, &m->compile);
    for (int i = 0; i < model->num_class_names; i++) {
        mirt__text_add(&m->classes, i ? "," : "[");
        mirt__json_write_string(&m->classes, model->class_names[i]);
    }
    mirt__text_add(&m->classes, "]");
    if (m->compile.failed || m->classes.failed) return mirt_last_status();
    mirt__save_pair(m, "format", "mirrortrain");
    mirt__save_pair(m, "version", "1");
    mirt__save_pair(m, "architecture", m->architecture.data);
    mirt__save_pair(m, "compile", m->compile.data);
    if (mirt__save_training(model, true, pool, tensor, count, m) != MIRT_OK) return mirt_last_status();
    if (model->num_class_names) mirt__save_pair(m, "classes", m->classes.data);
    if (!model->fit) return MIRT_OK;
    const char *environment = mirt_environment(model->strategy);
    if (!environment) return mirt_last_status();
    mirt__save_pair(m, "environment", environment);
    return MIRT_OK;
}

static mirt_status mirt__save_any(mirt_model *model, const char *path, bool whole, mirt__pool *pool, mirt__save_texts *m) {
    mirt__safetensors_content content;
    mirt__safetensor *tensor = NULL;
    memset(&content, 0, sizeof content);
    if (mirt__save_tensors(pool, model, whole, &content, &tensor) != MIRT_OK) return mirt_last_status();
    mirt_status status = whole ? mirt__save_whole(model, pool, tensor, &content.count, m) : MIRT_OK;
    if (status == MIRT_OK && !whole && model->fit) status = mirt__save_training(model, false, pool, tensor, &content.count, m);
    if (status != MIRT_OK) return status;
    content.metadata = m->pair;
    content.metadata_count = m->pairs;
    return mirt__safetensors_write(path, &content);
}

MIRT_API mirt_status mirt_save_check(const char *path) {
    MIRT__ENTER;
    static const struct { const char *suffix; bool converted; } other[] = {
        {".keras", true}, {".h5", true}, {".hdf5", true}, {".pt", true}, {".pth", true}, {".onnx", false}, {".tf", false}, {".pb", false},
        {".tflite", false}};
    const size_t length = path ? strlen(path) : 0;
    if (!length) return mirt__fail(MIRT_E_INVALID, "mirt_save: no path");
    for (int i = 0; i < MIRT__COUNT(other); i++) {
        const size_t size = strlen(other[i].suffix), at = length > size ? length - size : 0;
        bool same = at > 0;
        for (size_t k = 0; same && k < size; k++) same = (path[at + k] | (path[at + k] >= 'A' && path[at + k] <= 'Z' ? 0x20 : 0)) == other[i].suffix[k];
        if (!same) continue;
        return mirt__fail(MIRT_E_INVALID, "%s: models are saved as .safetensors, not as %s; name the file so%s", path, other[i].suffix,
                          other[i].converted ? ", then convert it: tools/convert_weights.py" : "");
    }
    return MIRT_OK;
}

MIRT_API mirt_status mirt_save(mirt_model *model, const char *path, mirt_save_flags flags) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt__pool pool;
    mirt__save_texts texts;
    bool whole = flags != MIRT_SAVE_WEIGHTS_ONLY;
    memset(&pool, 0, sizeof pool);
    memset(&texts, 0, sizeof texts);
    if (!model || !path) return mirt__fail(MIRT_E_INVALID, "mirt_save: no model or no path");
    if (mirt_save_check(path) != MIRT_OK) return mirt_last_status();
    if (whole && mirt__need_compiled(model, "mirt_save") != MIRT_OK) return mirt_last_status();
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (whole && model->is_view) return mirt__fail(MIRT_E_STATE, "mirt_save: a view of %s is saved as weights alone; save %s itself", model->name, model->name);
    mirt_status status = mirt__model_materialize(model);
    if (status == MIRT_OK) status = mirt__save_any(model, path, whole, &pool, &texts);
    mirt__text_free(&texts.architecture);
    mirt__text_free(&texts.compile);
    mirt__text_free(&texts.training);
    mirt__text_free(&texts.classes);
    mirt__pool_free(&pool);
    return status;
}

/* >>loading */

static const mirt__json *mirt__load_metadata(const mirt__safetensors *file, mirt__pool *pool, const char *key) {
    const char *text = mirt__safetensors_metadata(file, key);
    if (!text) {
        mirt__fail(MIRT_E_FORMAT, "%s holds no %s: it is not a whole saved model; mirt_load_weights reads weights alone", file->origin, key);
        return NULL;
    }
    const mirt__json *json = mirt__json_parse(pool, text, strlen(text));
    if (!json) mirt__fail_at("%s: %s", file->origin, key);
    return json;
}

static mirt_status mirt__load_training(mirt_model *model, const mirt__json *training) {
    const int64_t most = (int64_t)1 << 53; /* counts stay exact in double precision */
    int64_t step, epoch, steps = 0;
    if (training->type != MIRT__JSON_OBJECT) return mirt__fail(MIRT_E_FORMAT, "the training state is not an object");
    if (mirt__json_get_int(training, "iterations", 0, most, &step) != MIRT_OK ||
        mirt__json_get_int(training, "epoch", 0, most, &epoch) != MIRT_OK) {
        return mirt_last_status();
    }
    const mirt__json *scale = mirt__json_member(training, "loss_scale");
    if (scale && mirt__json_get_int(training, "scale_steps", 0, most, &steps) != MIRT_OK) return mirt_last_status();
    if (scale && scale->type == MIRT__JSON_NUMBER) mirt__loss_scale_set(mirt__root(model, NULL), scale->number, steps);
    model->step = step;
    model->epoch = epoch;
    return MIRT_OK;
}

static mirt_status mirt__load_classes(mirt_model *model, const mirt__safetensors *file, mirt__pool *pool) {
    if (!mirt__safetensors_metadata(file, "classes")) return MIRT_OK;
    const mirt__json *list = mirt__load_metadata(file, pool, "classes");
    const char **names = list && list->type == MIRT__JSON_ARRAY ? (const char **)mirt__pool_alloc(pool, (list->count + 1) * sizeof *names) : NULL;
    if (!list) return mirt_last_status();
    if (list->type != MIRT__JSON_ARRAY || !list->count || list->count > INT_MAX) return mirt__fail(MIRT_E_FORMAT, "%s: classes: is no list of names", file->origin);
    if (!names) return mirt_last_status();
    for (size_t i = 0; i < list->count; i++) {
        if (list->item[i]->type != MIRT__JSON_STRING) return mirt__fail(MIRT_E_FORMAT, "%s: classes: is no list of names", file->origin);
        names[i] = list->item[i]->string;
    }
    return mirt_set_model_class_names(model, names, (int)list->count);
}

/* Whatever is wrong with what a file describes is wrong with the file. */
static mirt_status mirt__load_bad(const mirt__safetensors *file, const char *part) {
    mirt_status status = mirt_last_status();
    bool described = status == MIRT_E_INVALID || status == MIRT_E_SHAPE || status == MIRT_E_STATE;
    mirt__fail(described ? MIRT_E_FORMAT : status, "%s: %s: %s", file->origin, part, mirt_last_error());
    return mirt_last_status();
}

static mirt_status mirt__load_into(mirt_model *model, const mirt__safetensors *file, mirt__pool *pool) {
    mirt_compile_desc config;
    const mirt__json *architecture = mirt__load_metadata(file, pool, "architecture"), *compile, *training;
    if (!architecture || !(compile = mirt__load_metadata(file, pool, "compile")) ||
        !(training = mirt__load_metadata(file, pool, "training"))) {
        return mirt_last_status();
    }
    if (mirt__architecture_read(model, architecture) != MIRT_OK) return mirt__load_bad(file, "architecture");
    if (mirt__compile_read(model->strategy, compile, &config) != MIRT_OK) return mirt__load_bad(file, "compile");
    model->config.optimizer = config.optimizer; /* names the slots to look for */
    if (mirt__optimizer_check(&config.optimizer) != MIRT_OK) return mirt__load_bad(file, "compile");
    int slots = mirt__optimizer_slots(&config.optimizer);
    if (mirt__load_blocks(file, model, slots, false) != MIRT_OK) return mirt_last_status();
    if (mirt_compile(model, &config) != MIRT_OK) return mirt__load_bad(file, "compile");
    if (mirt__load_blocks(file, model, slots, true) != MIRT_OK) return mirt_last_status();
    if (mirt__load_training(model, training) != MIRT_OK) return mirt__load_bad(file, "training");
    return mirt__load_classes(model, file, pool);
}

/* Closes `file`. */
static mirt_model *mirt__load_open(mirt_strategy *strategy, mirt__safetensors *file) {
    mirt__pool pool;
    memset(&pool, 0, sizeof pool);
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
    if (!strategy) return mirt__fail_missing("mirt_load", "strategy"), (mirt_model *)NULL;
    if (!path) return mirt__fail(MIRT_E_INVALID, "mirt_load: no path"), (mirt_model *)NULL;
    return mirt__safetensors_open(&file, path) == MIRT_OK ? mirt__load_open(strategy, &file) : NULL;
}

MIRT_API mirt_model *mirt_load_memory(mirt_strategy *strategy, const void *data, size_t size) {
    MIRT__USE(strategy, NULL);
    mirt__safetensors file;
    if (!strategy) return mirt__fail_missing("mirt_load_memory", "strategy"), (mirt_model *)NULL;
    if (!data) return mirt__fail(MIRT_E_INVALID, "mirt_load_memory: no data"), (mirt_model *)NULL;
    return mirt__safetensors_open_memory(&file, data, size) == MIRT_OK ? mirt__load_open(strategy, &file) : NULL;
}

MIRT_API mirt_status mirt_load_weights(mirt_model *model, const char *path) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt__safetensors file;
    if (!model || !path) return mirt__fail(MIRT_E_INVALID, "mirt_load_weights: no model or no path");
    if (mirt__model_materialize(model) != MIRT_OK || mirt__safetensors_open(&file, path) != MIRT_OK) return mirt_last_status();
    mirt_status status = mirt__load_blocks(&file, model, 0, false);
    if (status == MIRT_OK) status = mirt__load_blocks(&file, model, 0, true);
    mirt__safetensors_close(&file);
    return status;
}

/* >>loading a part */

/* The variable's name in the file, or NULL: it is none of those asked for, or (*ok false) memory ran out. */
static const char *mirt__load_name(mirt__pool *pool, const mirt__variable *v, const mirt_load_desc *desc, bool *ok) {
    const char *name = v->name;
    if (!mirt__matches(name, desc->prefix)) return NULL;
    const size_t cut = desc->prefix ? strlen(desc->prefix) : 0;
    if (cut && desc->prefix[cut - 1] != '*' && name[cut]) name += cut + 1;
    if (!desc->file_prefix || !*desc->file_prefix) return name;
    const size_t size = strlen(desc->file_prefix) + strlen(name) + 2;
    char *whole = (char *)mirt__pool_alloc(pool, size);
    *ok = whole != NULL;
    if (whole) snprintf(whole, size, "%s/%s", desc->file_prefix, name);
    return whole;
}

/* Tensors that are nobody's: not those of an optimizer or a run, which whole models have. */
static void mirt__load_extras(const mirt__safetensors *file, const bool *used, mirt__text *text, mirt_load_report *report) {
    char shape[MIRT__ST_SHAPE_TEXT], shown[MIRT__SHOWN];
    const bool whole = mirt__safetensors_metadata(file, "compile") != NULL;
    for (int i = 0; i < file->count; i++) {
        const mirt__safetensor *t = &file->tensor[i];
        bool slot = false;
        for (int k = 0; whole && k < (int)MIRT__OPTIMIZER_COUNT; k++) {
            const char *name = mirt__optimizer_class_get((mirt_optimizer_kind)k)->name;
            slot = slot || (strncmp(t->name, name, strlen(name)) == 0 && t->name[strlen(name)] == '/');
        }
        slot = slot || (whole && (strncmp(t->name, "run/", 4) == 0 || strncmp(t->name, "callbacks/", 10) == 0));
        if (used[i] || slot) continue;
        report->extra++;
        mirt__text_add(text, "extra: %s %s\n", mirt__shown(t->name, shown), mirt__st_shape_text(t, shape));
    }
}

static mirt_status mirt__load_some(mirt_model *model, const mirt__safetensors *file, mirt__pool *pool, const mirt_load_desc *desc, mirt_load_report *report) {
    mirt__text *text = &model->load_text;
    char have[MIRT__ST_SHAPE_TEXT], want[96], shown[MIRT__SHOWN];
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
            mirt__load_take(t, model, 0, i);
            report->loaded++;
        } else if (t) {
            report->mismatched++;
            mirt__text_add(text, "mismatched: %s is %s, in the file %s %s\n", mirt__shown(v->name, shown), mirt__shape_text(&v->shape, want), mirt__st_dtype_name(t->dtype), mirt__st_shape_text(t, have));
        } else {
            report->missing++;
            mirt__text_add(text, "missing: %s %s\n", mirt__shown(v->name, shown), mirt__shape_text(&v->shape, want));
        }
    }
    mirt__load_extras(file, used, text, report);
    report->text = text->data ? text->data : "";
    if (text->failed) return mirt_last_status();
    if (report->loaded) return MIRT_OK;
    if (!asked && desc->prefix && mirt__layer_find(model, desc->prefix) < 0) return mirt_last_status();
    return mirt__fail(MIRT_E_NOT_FOUND, "%s: none of its %d tensors fits one of the %d weights of %s by name and shape", file->origin, file->count, asked, model->name);
}

MIRT_API mirt_status mirt_load_weights_partial(mirt_model *model, const char *path, const mirt_load_desc *desc, mirt_load_report *report) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt__safetensors file;
    mirt__pool pool;
    mirt_load_desc all;
    mirt_load_report own;
    memset(&pool, 0, sizeof pool);
    memset(&all, 0, sizeof all);
    memset(&own, 0, sizeof own);
    if (report) *report = own;
    if (!model || !path) return mirt__fail(MIRT_E_INVALID, "mirt_load_weights_partial: no model or no path");
    mirt__text_clear(&model->load_text);
    if (mirt__model_materialize(model) != MIRT_OK || mirt__safetensors_open(&file, path) != MIRT_OK) return mirt_last_status();
    mirt_status status = mirt__load_some(model, &file, &pool, desc ? desc : &all, &own);
    if (report) *report = own;
    mirt__pool_free(&pool);
    mirt__safetensors_close(&file);
    return status;
}
