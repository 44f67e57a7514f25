/* Sheets of the images of a data set. */
#include "data.h"

/* The first `count` samples of a data set into `out`; how many there were, or -1. */
static int64_t mirt__grid_pull(mirt_dataset *dataset, int64_t count, char *out) {
    const size_t bytes = dataset->spec.field[0].bytes;
    mirt__batch batch;
    int64_t done = 0;
    if (mirt__dataset_begin(dataset, 0, 0) != MIRT_OK) return -1;
    while (done < count) {
        if (mirt__dataset_next(dataset, &batch) != MIRT_OK) return -1;
        if (batch.rows == 0) break;
        const int64_t rows = batch.rows < count - done ? batch.rows : count - done;
        memcpy(out + (size_t)done * bytes, batch.field[0], (size_t)rows * bytes);
        done += rows;
    }
    return done;
}

MIRT_API mirt_status mirt_save_grid(const char *path, mirt_dataset *dataset, int rows, int columns) {
    MIRT__ENTER;
    if (!path || !dataset) return mirt__fail_missing("mirt_save_grid", path ? "data set" : "path");
    const mirt__data_field *field = &dataset->spec.field[0];
    size_t bytes;
    if (rows < 1 || columns < 1 || rows > 1024 || columns > 1024) return mirt__fail(MIRT_E_INVALID, "mirt_save_grid: %d rows and %d columns; 1 to 1024 are possible", rows, columns);
    if (field->shape.rank != 3) return mirt__fail(MIRT_E_SHAPE, "mirt_save_grid takes images (height, width, channels)");
    if (dataset->busy) return mirt__fail(MIRT_E_STATE, "mirt_save_grid: mirt_fit is passing through the data set");
    if (!mirt__mul_size(field->bytes, (size_t)(rows * columns), &bytes)) return mirt__fail(MIRT_E_SHAPE, "mirt_save_grid: such images are too large");
    char *images = (char *)mirt__aligned_alloc(bytes);
    if (!images) return MIRT_E_NOMEM;
    mirt_array array = mirt_make_array(images, field->dtype, mirt_make_shape(mirt__grid_pull(dataset, rows * columns, images), field->shape.dim[0], field->shape.dim[1], field->shape.dim[2], 0, 0));
    mirt_status status = array.shape.dim[0] < 0 ? mirt_last_status() : MIRT_OK;
    if (array.shape.dim[0] == 0) status = mirt__fail(MIRT_E_INVALID, "mirt_save_grid: the data set has no samples");
    if (status == MIRT_OK) status = mirt_write_png(path, array, columns);
    mirt__aligned_free(images);
    return status;
}
