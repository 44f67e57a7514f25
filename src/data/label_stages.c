/* A stage that makes one-hot rows of class numbers. */

#include "data.h"

static mirt_status mirt__one_hot_apply(mirt_dataset *dataset, const mirt__sample *in, mirt__work *work,
                                       void *const *out) {
    const mirt__data_spec *spec = &dataset->spec;
    const int y = spec->num_x;
    const mirt__real one = 1;
    const double label = mirt__element(in->field[y], dataset->source->spec.field[y].dtype, 0),
                 classes = (double)spec->field[y].shape.dim[0];
    (void)work;
    if (!(label >= 0 && label < classes && label == floor(label)))
        return mirt__fail(MIRT_E_INVALID, "mirt_one_hot_labels: label %g of sample %lld is not a class from 0 to %.0f",
                          label, (long long)in->index, classes - 1);
    for (int f = 0; f < spec->num_fields; f++)
        if (f != y) memcpy(out[f], in->field[f], spec->field[f].bytes);
    memset(out[y], 0, spec->field[y].bytes);
    memcpy((char *)out[y] + (size_t)label * sizeof one, &one, sizeof one);
    return MIRT_OK;
}

static mirt_status mirt__one_hot_check(const mirt_dataset *dataset, int64_t *classes) {
    static const char caller[] = "mirt_one_hot_labels";
    const mirt__data_spec *spec = &dataset->spec;
    const mirt__data_field *y = &spec->field[spec->num_x];
    char text[96];
    int named;
    mirt_class_names(dataset, &named);
    if (*classes == 0) *classes = named;
    if (spec->num_y == 0) return mirt__fail(MIRT_E_INVALID, "%s: the data set has no labels", caller);
    if (mirt__shape_count(&y->shape) != 1)
        return mirt__fail(MIRT_E_SHAPE, "%s: labels must be one number per sample, not %s", caller,
                          mirt__shape_text(&y->shape, text));
    if (*classes == 0) return mirt__fail(MIRT_E_INVALID, "%s: the data set does not name its classes", caller);
    return mirt__stage_count(caller, *classes, 1);
}

MIRT_API mirt_dataset *mirt_one_hot_labels(mirt_dataset *dataset, int64_t classes) {
    MIRT__ENTER;
    if (!dataset) return NULL;
    const mirt_dataset *source = dataset;
    mirt_status status = mirt__one_hot_check(source, &classes);
    if (status == MIRT_OK)
        status = mirt__dataset_add_each("mirt_one_hot_labels", &dataset, sizeof(mirt_dataset), mirt__one_hot_apply);
    if (status == MIRT_OK) {
        mirt__data_field *y = &dataset->spec.field[dataset->spec.num_x];
        y->dtype = MIRT_FLOAT32;
        y->shape = mirt_make_shape(classes, 0, 0, 0, 0, 0);
        dataset->varies = source->varies;
        dataset->identity = mirt__identity_with(dataset->identity, mirt__hash("one_hot") + (uint64_t)classes);
        status = mirt__dataset_check_spec(dataset);
    }
    return mirt__dataset_checked(status, &dataset);
}
