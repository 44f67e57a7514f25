/* Saves models and weights. */
#include "run_state.h"

static mirt_status mirt__save_tensors(mirt__pool *pool, mirt_model *model, bool slots,
                                      mirt__safetensors_content *content, mirt__safetensor **tensors) {
    int blocks = 1 + (slots ? mirt__optimizer_slots(&model->config.optimizer) : 0);
    size_t most = (size_t)blocks * (size_t)model->num_variables +
                  (slots && model->run ? (size_t)mirt__run_most_tensors(model->run) : 0);
    mirt__safetensor *tensor = (mirt__safetensor *)mirt__pool_alloc(pool, most * sizeof *tensor + 1);
    if (!tensor) return mirt_last_status();
    content->tensor = *tensors = tensor;
    for (int b = 0; b < blocks; b++) {
        for (int i = 0; i < model->num_variables; i++) {
            const mirt__variable *v = &model->variable[i];
            if (b && !mirt__is_trained(v)) continue;
            const char *name = b ? mirt__slot_name(pool, model, b - 1, v) : v->name;
            if (!name) return mirt_last_status();
            mirt__tensor_of(v, name, b ? mirt__slot_at(model, b - 1, i) : mirt__weight_at(model, i),
                            &tensor[content->count++]);
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
static mirt_status mirt__save_training(mirt_model *model, bool whole, mirt__pool *pool, mirt__safetensor *tensor,
                                       int *count, mirt__save_texts *m) {
    mirt__text_add(&m->training, "{\"iterations\":%lld,\"epoch\":%lld", (long long)model->step,
                   (long long)model->epoch);
    if (mirt__root(model, NULL)->scaled) {
        mirt__text_add(&m->training, ",\"scale_steps\":%lld,\"loss_scale\":%.0f",
                       (long long)mirt__root(model, NULL)->scale_steps, mirt__root(model, NULL)->loss_scale);
    }
    if (model->run && whole && mirt__run_write(model->run, pool, &m->training, tensor, count) != MIRT_OK)
        return mirt_last_status();
    if (model->run && !whole) mirt__text_add(&m->training, ",\"saved\":%lld", (long long)mirt__run_saved(model->run));
    mirt__text_add(&m->training, "}");
    if (m->training.failed) return mirt_last_status();
    mirt__save_pair(m, "training", m->training.data);
    return MIRT_OK;
}

static mirt_status mirt__save_whole(mirt_model *model, mirt__pool *pool, mirt__safetensor *tensor, int *count,
                                    mirt__save_texts *m) {
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
    if (!model->run) return MIRT_OK;
    const char *environment = mirt_environment(model->strategy);
    if (!environment) return mirt_last_status();
    mirt__save_pair(m, "environment", environment);
    return MIRT_OK;
}

static mirt_status mirt__save_any(mirt_model *model, const char *path, bool whole, mirt__pool *pool,
                                  mirt__save_texts *m) {
    mirt__safetensors_content content;
    mirt__safetensor *tensor = NULL;
    memset(&content, 0, sizeof content);
    if (mirt__save_tensors(pool, model, whole, &content, &tensor) != MIRT_OK) return mirt_last_status();
    mirt_status status = whole ? mirt__save_whole(model, pool, tensor, &content.count, m) : MIRT_OK;
    if (status == MIRT_OK && !whole && model->run)
        status = mirt__save_training(model, false, pool, tensor, &content.count, m);
    if (status != MIRT_OK) return status;
    content.metadata = m->pair;
    content.metadata_count = m->pairs;
    return mirt__safetensors_write(path, &content);
}

MIRT_API mirt_status mirt_save_check(const char *path) {
    MIRT__ENTER;
    static const struct { const char *suffix; bool converted;
    } other[] = {{".keras", true}, {".h5", true},  {".hdf5", true}, {".pt", true},     {".pth", true},
                 {".onnx", false}, {".tf", false}, {".pb", false},  {".tflite", false}};
    const size_t length = path ? strlen(path) : 0;
    if (!length) return mirt__fail(MIRT_E_INVALID, "mirt_save: no path");
    for (int i = 0; i < MIRT__COUNT(other); i++) {
        const size_t size = strlen(other[i].suffix), at = length > size ? length - size : 0;
        bool same = at > 0;
        for (size_t k = 0; same && k < size; k++)
            same = (path[at + k] | (path[at + k] >= 'A' && path[at + k] <= 'Z' ? 0x20 : 0)) == other[i].suffix[k];
        if (!same) continue;
        return mirt__fail(MIRT_E_INVALID, "%s: models are saved as .safetensors, not as %s; name the file so%s", path,
                          other[i].suffix, other[i].converted ? ", then convert it: tools/convert_weights.py" : "");
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
    if (whole && mirt__need_compiled(model, __func__) != MIRT_OK) return mirt_last_status();
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (whole && model->is_view)
        return mirt__fail(MIRT_E_STATE, "mirt_save: a view of %s is saved as weights alone; save %s itself",
                          model->name, model->name);
    mirt_status status = mirt__model_materialize(model);
    if (status == MIRT_OK) status = mirt__save_any(model, path, whole, &pool, &texts);
    mirt__text_free(&texts.architecture);
    mirt__text_free(&texts.compile);
    mirt__text_free(&texts.training);
    mirt__text_free(&texts.classes);
    mirt__pool_free(&pool);
    return status;
}

