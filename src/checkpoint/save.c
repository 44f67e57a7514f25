/* Saves models and weights. */
#include "run_state.h"

static mirt_status mirt__save_tensors(mirt_model *model, bool slots, mirt__saving *s) {
    int blocks = 1 + (slots ? mirt__slots(&model->config) : 0);
    size_t most = (size_t)blocks * (size_t)model->num_variables +
                  (slots && model->run ? (size_t)mirt__run_most_tensors(model->run) : 0);
    s->tensor = (mirt__safetensor *)mirt__pool_alloc(&s->pool, most * sizeof *s->tensor + 1);
    if (!s->tensor) return mirt_last_status();
    for (int b = 0; b < blocks; b++) {
        for (int i = 0; i < model->num_variables; i++) {
            const mirt__variable *v = &model->variable[i];
            const char *name = b ? mirt__slot_name(&s->pool, model, b - 1, v) : v->name;
            if (!name) return mirt_last_status();
            if (!*name) continue;
            mirt__tensor_of(v, name, b ? mirt__slot_at(model, b - 1, i) : mirt__weight_at(model, i),
                            &s->tensor[s->count++]);
        }
    }
    return MIRT_OK;
}

static void mirt__save_pair(mirt__saving *s, const char *key, const char *value) {
    s->pair[2 * s->pairs] = key;
    s->pair[2 * s->pairs++ + 1] = value;
}

/* Where training is, and in a fit all that it needs to go on from there. */
static mirt_status mirt__save_training(mirt_model *model, bool whole, mirt__saving *s) {
    const mirt_model *root = mirt__root(model, NULL);
    mirt__text *out = &s->training;
    mirt__text_add(out, "{\"iterations\":%lld,\"epoch\":%lld", (long long)model->step, (long long)model->epoch);
    if (root->policy == MIRT__POLICY_MIXED_FLOAT16)
        mirt__text_add(out, ",\"scale_steps\":%lld,\"loss_scale\":%.0f", (long long)root->scale_steps,
                       root->loss_scale);
    if (model->swapped && whole) mirt__text_add(out, ",\"averages_swapped\":1");
    if (model->run && whole && mirt__run_write(model->run, s) != MIRT_OK) return mirt_last_status();
    if (model->run && !whole) mirt__text_add(out, ",\"saved\":%lld", (long long)mirt__run_saved(model->run));
    mirt__text_add(out, "}");
    if (out->failed) return mirt_last_status();
    mirt__save_pair(s, "training", out->data);
    return MIRT_OK;
}

static mirt_status mirt__save_whole(mirt_model *model, mirt__saving *s) {
    if (mirt__architecture_write(model, &s->architecture) != MIRT_OK) return mirt_last_status();
    mirt__compile_write(model, &s->compile);
    for (int i = 0; i < model->num_class_names; i++) {
        mirt__text_add(&s->classes, i ? "," : "[");
        mirt__json_write_string(&s->classes, model->class_names[i]);
    }
    mirt__text_add(&s->classes, "]");
    if (s->compile.failed || s->classes.failed) return mirt_last_status();
    mirt__save_pair(s, "format", "mirrortrain");
    mirt__save_pair(s, "version", "1");
    mirt__save_pair(s, "architecture", s->architecture.data);
    mirt__save_pair(s, "compile", s->compile.data);
    if (mirt__save_training(model, true, s) != MIRT_OK) return mirt_last_status();
    if (model->num_class_names) mirt__save_pair(s, "classes", s->classes.data);
    if (!model->run) return MIRT_OK;
    const char *environment = mirt_environment(model->strategy);
    if (!environment) return mirt_last_status();
    mirt__save_pair(s, "environment", environment);
    return MIRT_OK;
}

static mirt_status mirt__save_any(mirt_model *model, const char *path, bool whole, mirt__saving *s) {
    mirt__safetensors_content content;
    if (mirt__save_tensors(model, whole, s) != MIRT_OK) return mirt_last_status();
    if (whole && mirt__save_whole(model, s) != MIRT_OK) return mirt_last_status();
    if (!whole && model->run && mirt__save_training(model, false, s) != MIRT_OK) return mirt_last_status();
    memset(&content, 0, sizeof content);
    content.tensor = s->tensor;
    content.count = s->count;
    content.metadata = s->pair;
    content.metadata_count = s->pairs;
    return mirt__safetensors_write(path, &content);
}

MIRT_API mirt_status mirt_save_check(const char *path) {
    MIRT__ENTER;
    static const char convert[] = ", then convert it: tools/convert_weights.py";
    static const struct { const char *suffix, *next;
    } other[] = {{".keras", convert}, {".h5", convert}, {".hdf5", convert}, {".pt", convert}, {".pth", convert},
                 {".onnx", "; mirt_save_onnx writes ONNX"}, {".tf", ""}, {".pb", ""}, {".tflite", ""}};
    const size_t length = path ? strlen(path) : 0;
    if (!length) return mirt__fail(MIRT_E_INVALID, "mirt_save: no path");
    for (int i = 0; i < MIRT__COUNT(other); i++) {
        const size_t size = strlen(other[i].suffix), at = length > size ? length - size : 0;
        bool same = at > 0;
        for (size_t k = 0; same && k < size; k++)
            same = (path[at + k] | (path[at + k] >= 'A' && path[at + k] <= 'Z' ? 0x20 : 0)) == other[i].suffix[k];
        if (!same) continue;
        return mirt__fail(MIRT_E_INVALID, "%s: models are saved as .safetensors, not as %s; name the file so%s", path,
                          other[i].suffix, other[i].next);
    }
    return MIRT_OK;
}

MIRT_API mirt_status mirt_save(mirt_model *model, const char *path, mirt_save_flags flags) {
    MIRT__USE_MODEL(model, mirt_last_status());
    mirt__saving s;
    const bool whole = flags != MIRT_SAVE_WEIGHTS_ONLY;
    memset(&s, 0, sizeof s);
    if (!model || !path) return mirt__fail(MIRT_E_INVALID, "mirt_save: no model or no path");
    if (mirt_save_check(path) != MIRT_OK) return mirt_last_status();
    if (whole && mirt__need_compiled(model, __func__) != MIRT_OK) return mirt_last_status();
    if (model->graph.status != MIRT_OK) return mirt__fail(model->graph.status, "%s", model->graph.error);
    if (whole && model->is_view)
        return mirt__fail(MIRT_E_STATE, "mirt_save: a view of %s is saved as weights alone; save %s itself",
                          model->name, model->name);
    mirt_status status = mirt__model_materialize(model);
    if (status == MIRT_OK && mirt__writes_files(model->strategy)) status = mirt__save_any(model, path, whole, &s);
    mirt__text_free(&s.architecture);
    mirt__text_free(&s.compile);
    mirt__text_free(&s.training);
    mirt__text_free(&s.classes);
    mirt__pool_free(&s.pool);
    return status;
}

