/* Copies samples of a data set into arrays of the caller. */
#include "data.h"

MIRT_API void mirt_array_free(mirt_array *array) {
    if (!array) return;
    mirt__aligned_free((void *)array->data);
    memset(array, 0, sizeof *array);
}

MIRT_API void mirt_data_free(mirt_data *data) {
    if (!data) return;
    for (int i = 0; i < MIRT_MAX_INPUTS; i++) mirt_array_free(&data->x[i]);
    for (int i = 0; i < MIRT_MAX_OUTPUTS; i++) mirt_array_free(&data->y[i]);
    mirt_array_free(&data->weights);
}

/* The array in mirt_data for field f of the spec. */
static mirt_array *mirt__read_array(const mirt__data_spec *spec, int f, mirt_data *data) {
    if (f < spec->num_x) return &data->x[f];
    return f < spec->num_x + spec->num_y ? &data->y[f - spec->num_x] : &data->weights;
}

/* Arrays with room for `rows` samples; their shapes still lack the first dimension's value. */
static mirt_status mirt__read_allocate(const char *caller, const mirt__data_spec *spec, int64_t rows, mirt_data *out) {
    char name[16];
    size_t bytes;
    for (int f = 0; f < spec->num_fields; f++) {
        const mirt__data_field *field = &spec->field[f];
        mirt_array *array = mirt__read_array(spec, f, out);
        if (field->shape.rank == MIRT_MAX_RANK)
            return mirt__fail(MIRT_E_SHAPE,
                              "%s: a sample of %s has %d dimensions; an array of samples would have more than %d",
                              caller, mirt__field_name(spec, f, name), field->shape.rank, MIRT_MAX_RANK);
        if ((uint64_t)rows > SIZE_MAX || !mirt__mul_size((size_t)rows, field->bytes, &bytes))
            return mirt__no_memory(SIZE_MAX), MIRT_E_NOMEM;
        if (!(array->data = mirt__aligned_alloc(bytes))) return MIRT_E_NOMEM;
        array->dtype = field->dtype;
        array->shape.rank = field->shape.rank + 1;
        for (int i = 0; i < field->shape.rank; i++) array->shape.dim[i + 1] = field->shape.dim[i];
    }
    return MIRT_OK;
}

/* Ends a read: sets the number of samples, or empties `out`. */
static mirt_status mirt__read_end(mirt_dataset *dataset, mirt_status status, int64_t rows, mirt_data *out) {
    dataset->busy = false;
    if (status != MIRT_OK) mirt_data_free(out);
    for (int f = 0; status == MIRT_OK && f < dataset->spec.num_fields; f++)
        mirt__read_array(&dataset->spec, f, out)->shape.dim[0] = rows;
    return status;
}

/* Copies the batch's first `rows` samples after the `done` samples in the arrays. */
static void mirt__read_copy(const mirt__data_spec *spec, const mirt__batch *batch, int64_t rows, int64_t done,
                            mirt_data *out) {
    for (int f = 0; f < spec->num_fields; f++) {
        char *to = (char *)mirt__read_array(spec, f, out)->data;
        const size_t bytes = spec->field[f].bytes;
        if (to) memcpy(to + (size_t)done * bytes, batch->field[f], (size_t)rows * bytes);
    }
}

MIRT__LIB mirt_status mirt__dataset_pull(mirt_dataset *dataset, int64_t count, mirt_data *out, int64_t *rows) {
    mirt__batch batch;
    *rows = 0;
    while (*rows < count) {
        mirt_status status = mirt__dataset_next(dataset, &batch);
        if (status != MIRT_OK || batch.rows == 0) return status;
        const int64_t left = count - *rows, taken = batch.rows < left ? batch.rows : left;
        mirt__read_copy(&dataset->spec, &batch, taken, *rows, out);
        *rows += taken;
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__dataset_idle(const char *caller, const mirt_dataset *dataset) {
    if (dataset->busy)
        return mirt__fail(MIRT_E_STATE, "%s: another call is reading this data set, such as mirt_fit", caller);
    if (!dataset->begun) return MIRT_OK;
    return mirt__fail(MIRT_E_STATE, "%s: mirt_dataset_next is in the middle of an epoch of this data set", caller);
}

static mirt_status mirt__read_check(const char *caller, const mirt_dataset *dataset, mirt_data *out) {
    if (out) memset(out, 0, sizeof *out);
    if (!dataset) return mirt__fail_missing(caller, "data set");
    if (!out) return mirt__fail(MIRT_E_INVALID, "%s: out is NULL", caller);
    return mirt__dataset_idle(caller, dataset);
}

MIRT_API mirt_status mirt_dataset_arrays(mirt_dataset *dataset, mirt_data *out) {
    MIRT__ENTER;
    static const char *const caller = "mirt_dataset_arrays";
    mirt__batch end;
    int64_t rows = 0;
    mirt_status status = mirt__read_check(caller, dataset, out);
    if (status != MIRT_OK) return status;
    const int64_t samples = dataset->spec.samples;
    if (samples < 0)
        return mirt__fail(MIRT_E_INVALID, "%s: the data set is endless or of unknown length; limit it with mirt_take",
                          caller);
    dataset->busy = true;
    status = mirt__read_allocate(caller, &dataset->spec, samples, out);
    if (status == MIRT_OK) status = mirt__dataset_begin(dataset, 0, 0);
    if (status == MIRT_OK) status = mirt__dataset_pull(dataset, samples, out, &rows);
    /* Reads past the last sample, because files verify their ends, such as checksums, only then. */
    if (status == MIRT_OK && rows == samples) status = mirt__dataset_next(dataset, &end);
    if (status == MIRT_OK && rows == 0) status = mirt__fail(MIRT_E_INVALID, "%s: the data set has no samples", caller);
    return mirt__read_end(dataset, status, rows, out);
}

/* Begins the pass at element `index`; *left: the number of elements to read and drop before it. */
static mirt_status mirt__read_begin(mirt_dataset *dataset, int64_t index, const mirt_read_desc *desc, int64_t *left) {
    mirt_status status = MIRT_OK;
    *left = index;
    if (mirt__dataset_keeps(dataset)) status = mirt__dataset_begin(dataset, desc->seed, 0);
    if (status == MIRT_OK && index > 0 && mirt__dataset_pass_over(dataset, index)) *left = 0;
    if (status == MIRT_OK) status = mirt__dataset_begin(dataset, desc->seed, desc->epoch);
    if (status != MIRT_OK || dataset->spec.batch || dataset->skips || !mirt__reachable(dataset)) return status;
    dataset->position = index;
    *left = 0;
    return MIRT_OK;
}

static mirt_status mirt__read_element(const char *caller, const char *element, mirt_dataset *dataset, int64_t index,
                                      const mirt_read_desc *desc, mirt_data *out, int64_t *rows) {
    mirt__batch batch;
    int64_t left;
    memset(&batch, 0, sizeof batch);
    batch.rows = 1;
    mirt_status status = mirt__read_begin(dataset, index, desc, &left);
    for (; status == MIRT_OK && batch.rows > 0 && left >= 0; left--) status = mirt__dataset_next(dataset, &batch);
    if (status != MIRT_OK) return status;
    if (batch.rows == 0)
        return mirt__fail(MIRT_E_INVALID, "%s: the data set ended before %s %lld", caller, element, (long long)index);
    *rows = batch.rows;
    status = mirt__read_allocate(caller, &dataset->spec, batch.rows, out);
    if (status == MIRT_OK) mirt__read_copy(&dataset->spec, &batch, batch.rows, 0, out);
    return status;
}

MIRT_API mirt_status mirt_dataset_read(mirt_dataset *dataset, int64_t index, const mirt_read_desc *desc,
                                       mirt_data *out) {
    MIRT__ENTER;
    static const char *const caller = "mirt_dataset_read";
    static const mirt_read_desc defaults = {0, 0};
    int64_t rows = 0;
    mirt_status status = mirt__read_check(caller, dataset, out);
    if (status != MIRT_OK) return status;
    if (!desc) desc = &defaults;
    const char *element = dataset->spec.batch ? "batch" : "sample";
    const int64_t have = dataset->spec.batch ? dataset->batches : dataset->spec.samples;
    if (index < 0 && have < 0)
        return mirt__fail(MIRT_E_INVALID, "%s: there is no %s %lld", caller, element, (long long)index);
    if (index < 0 || (have >= 0 && index >= have))
        return mirt__fail(MIRT_E_INVALID, "%s: there is no %s %lld; the data set has those from 0 to %lld", caller,
                          element, (long long)index, (long long)have - 1);
    if (desc->epoch < 0)
        return mirt__fail(MIRT_E_INVALID, "%s: epoch %lld is negative", caller, (long long)desc->epoch);
    dataset->busy = true;
    status = mirt__read_element(caller, element, dataset, index, desc, out, &rows);
    return mirt__read_end(dataset, status, rows, out);
}

/* >>one-hot labels */

MIRT_API mirt_status mirt_to_categorical(mirt_array labels, int64_t classes, mirt_array *out) {
    MIRT__ENTER;
    static const char *const caller = "mirt_to_categorical";
    char text[96];
    const double most = classes > 0 ? (double)classes : (double)INT32_MAX;
    double largest = 0;
    size_t bytes;
    if (out) memset(out, 0, sizeof *out);
    if (!labels.data || !out) return mirt__fail_missing(caller, labels.data ? "array to fill" : "labels");
    if (!mirt__dtype_known(labels.dtype))
        return mirt__fail(MIRT_E_INVALID, "%s: the labels have the unknown dtype %d", caller, (int)labels.dtype);
    const bool ranked = labels.shape.rank >= 1 && labels.shape.rank <= MIRT_MAX_RANK;
    const int64_t count = ranked ? mirt__shape_count(&labels.shape) : 0;
    if (count < 1 || count != labels.shape.dim[0])
        return mirt__fail(MIRT_E_SHAPE, "%s: labels must be one per sample, (n) or (n, 1), not %s", caller,
                          mirt__shape_text(&labels.shape, text));
    if (classes < 0) return mirt__fail(MIRT_E_INVALID, "%s: %lld classes", caller, (long long)classes);
    for (int64_t i = 0; i < count; i++) {
        const double label = mirt__element(labels.data, labels.dtype, i);
        if (!(label >= 0 && label < most && label == floor(label)))
            return mirt__fail(MIRT_E_INVALID, "%s: label %g of sample %lld is not a class from 0 to %.0f", caller,
                              label, (long long)i, most - 1);
        if (label > largest) largest = label;
    }
    if (classes == 0) classes = (int64_t)largest + 1;
    if (!mirt__mul_size((size_t)count, (size_t)classes, &bytes) || !mirt__mul_size(bytes, sizeof(mirt__real), &bytes))
        return mirt__no_memory(SIZE_MAX), MIRT_E_NOMEM;
    mirt__real *rows = (mirt__real *)mirt__aligned_alloc(bytes);
    if (!rows) return MIRT_E_NOMEM;
    memset(rows, 0, bytes);
    for (int64_t i = 0; i < count; i++) rows[i * classes + (int64_t)mirt__element(labels.data, labels.dtype, i)] = 1;
    *out = mirt_make_array(rows, MIRT_FLOAT32, mirt_make_shape(count, classes, 0, 0, 0, 0));
    return MIRT_OK;
}
