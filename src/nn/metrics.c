#include "model.h"
#include "../ops/ops.h"

/* Keras's choice for "accuracy": by the shapes of labels and predictions. */
static mirt__accuracy_kind mirt__accuracy_kind_of(const mirt_model *model) {
    if (mirt__loss_class_get(model->config.loss)->sparse) return MIRT__ACCURACY_SPARSE;
    return mirt__last_dim(model->output[0]) == 1 ? MIRT__ACCURACY_BINARY : MIRT__ACCURACY_CATEGORICAL;
}

static mirt_status mirt__accuracy_check(const mirt_model *model) {
    char text[96];
    if (model->output[0]->shape.rank == 2 || mirt__accuracy_kind_of(model) == MIRT__ACCURACY_BINARY) return MIRT_OK;
    return mirt__fail(MIRT_E_SHAPE, "accuracy needs an output of (rows, classes), not %s", mirt__shape_text(&model->output[0]->shape, text));
}

static mirt_tensor *mirt__accuracy_record(const mirt_model *model, mirt_tensor *output, mirt_tensor *labels) {
    return mirt__accuracy_op(mirt__accuracy_kind_of(model), output, labels);
}

static const mirt__metric_class mirt__metric_table[MIRT__METRIC_COUNT] = {
    {NULL, NULL, NULL, NULL},
    {"accuracy", "val_accuracy", mirt__accuracy_check, mirt__accuracy_record},
};

MIRT__LIB const mirt__metric_class *mirt__metric_class_get(mirt_metric metric) {
    return (int)metric > MIRT_METRIC_NONE && metric < MIRT__METRIC_COUNT ? &mirt__metric_table[metric] : NULL;
}

MIRT__LIB int mirt__num_metrics(const mirt_model *model) {
    int n = 0;
    while (n < MIRT_MAX_METRICS && model->config.metrics[n] != MIRT_METRIC_NONE) n++;
    return n;
}
