#include "model.h"
#include "../ops/ops.h"

static const mirt__loss_class mirt__loss_table[MIRT__LOSS_COUNT] = {
    {"none", false, false, MIRT_LINEAR},
    {"sparse_categorical_crossentropy", true, true, MIRT_SOFTMAX},
    {"categorical_crossentropy", true, false, MIRT_SOFTMAX},
    {"binary_crossentropy", false, false, MIRT_SIGMOID},
    {"mean_squared_error", false, false, MIRT_LINEAR},
};

MIRT__LIB const mirt__loss_class *mirt__loss_class_get(mirt_loss loss) {
    return (int)loss >= 0 && loss < MIRT__LOSS_COUNT ? &mirt__loss_table[loss] : NULL;
}

MIRT__LIB const char *mirt__loss_name(mirt_loss loss) {
    const mirt__loss_class *cls = mirt__loss_class_get(loss);
    return cls ? cls->name : NULL;
}

MIRT__LIB mirt_status mirt__labels_wanted(const mirt_model *model, mirt_dtype *dtype, int64_t *per_sample) {
    const mirt__loss_class *cls = mirt__loss_class_get(model->config.loss);
    char text[96];
    if (cls->classes && (model->output[0]->shape.rank != 2 || mirt__last_dim(model->output[0]) < 2)) {
        return mirt__fail(MIRT_E_SHAPE, "%s needs an output of (rows, classes), not %s", cls->name, mirt__shape_text(&model->output[0]->shape, text));
    }
    *dtype = cls->sparse ? MIRT_INT32 : MIRT_FLOAT32;
    *per_sample = cls->sparse ? 1 : mirt__shape_count(&model->output[0]->shape);
    return MIRT_OK;
}
