/* Writes images of a data set as one sheet. */
#include "data.h"

MIRT_API mirt_status mirt_save_grid(const char *path, mirt_dataset *dataset, int rows, int columns) {
    MIRT__ENTER;
    if (!path || !dataset) return mirt__fail_missing("mirt_save_grid", path ? "data set" : "path");
    const mirt__data_field *field = &dataset->spec.field[0];
    size_t bytes;
    mirt_data images;
    int64_t have = 0;
    mirt_status status = mirt__dataset_idle("mirt_save_grid", dataset);
    if (status != MIRT_OK) return status;
    if (rows < 1 || columns < 1 || rows > 1024 || columns > 1024)
        return mirt__fail(MIRT_E_INVALID, "mirt_save_grid: %d rows and %d columns; each must be 1 to 1024", rows,
                          columns);
    if (field->shape.rank != 3)
        return mirt__fail(MIRT_E_SHAPE, "mirt_save_grid takes images (height, width, channels)");
    if (!mirt__mul_size(field->bytes, (size_t)(rows * columns), &bytes))
        return mirt__fail(MIRT_E_SHAPE, "mirt_save_grid: the images are too large");
    memset(&images, 0, sizeof images);
    if (!(images.x[0].data = mirt__aligned_alloc(bytes))) return MIRT_E_NOMEM;
    dataset->busy = true;
    status = mirt__dataset_begin(dataset, 0, 0);
    if (status == MIRT_OK) status = mirt__dataset_pull(dataset, rows * columns, &images, &have);
    dataset->busy = false;
    if (status == MIRT_OK && have == 0)
        status = mirt__fail(MIRT_E_INVALID, "mirt_save_grid: the data set has no samples");
    images.x[0] =
        mirt_make_array(images.x[0].data, field->dtype,
                        mirt_make_shape(have, field->shape.dim[0], field->shape.dim[1], field->shape.dim[2], 0, 0));
    if (status == MIRT_OK) status = mirt_write_png(path, images.x[0], columns);
    mirt_data_free(&images);
    return status;
}
