#include "model.h"
#include "../ops/ops.h"

static const char *const mirt__loss_names[MIRT__LOSS_COUNT] = {
    "none", "sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy", "mean_squared_error"};

MIRT__LIB const char *mirt__loss_name(mirt_loss loss) {
    return (int)loss >= 0 && loss < MIRT__LOSS_COUNT ? mirt__loss_names[loss] : NULL;
}

MIRT__LIB mirt_status mirt__labels_wanted(const mirt_model *model, mirt_dtype *dtype, int64_t *per_sample) {
    int64_t n = mirt__shape_count(&model->output->shape);
    char text[96];
    if (model->config.loss != MIRT_SPARSE_CATEGORICAL_CROSSENTROPY) {
        *dtype = MIRT_FLOAT32;
        *per_sample = n;
        return MIRT_OK;
    }
    if (model->output->shape.rank != 2 || mirt__last_dim(model->output) < 2) {
        return mirt__fail(MIRT_E_SHAPE, "sparse categorical crossentropy needs an output of (rows, classes), not %s",
                          mirt__shape_text(&model->output->shape, text));
    }
    *dtype = MIRT_INT32;
    *per_sample = 1;
    return MIRT_OK;
}

/* Keras's choice for "accuracy": by the shapes of labels and predictions. */
MIRT__LIB mirt__accuracy_kind mirt__accuracy_kind_of(const mirt_model *model) {
    if (model->config.loss == MIRT_SPARSE_CATEGORICAL_CROSSENTROPY) return MIRT__ACCURACY_SPARSE;
    return mirt__last_dim(model->output) == 1 ? MIRT__ACCURACY_BINARY : MIRT__ACCURACY_CATEGORICAL;
}

MIRT__LIB int mirt__num_metrics(const mirt_model *model) {
    int n = 0;
    while (n < MIRT_MAX_METRICS && model->config.metrics[n] != MIRT_METRIC_NONE) n++;
    return n;
}

MIRT__LIB const char *mirt__metric_name(mirt_metric metric) { return metric == MIRT_ACCURACY ? "accuracy" : NULL; }
