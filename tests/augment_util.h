#ifndef AUGMENT_UTIL_H
#define AUGMENT_UTIL_H
/* Applies transforms to one image, and makes a data set of random images. Include after mirrortrain.h. */
#include "golden/formula.h"
#include "tap.h"

/* Reads a list for images of this shape, whose entries have the keys key(i), or i + 1. */
TAP_UNUSED static int transforms_by(const mirt_augmentation *list, int count, const mirt_shape *shape,
                                    mirt__transform *out, uint64_t (*key)(int)) {
    int64_t h = shape->dim[0], w = shape->dim[1];
    int total = 0;
    for (int i = 0; i < count; i++) {
        mirt__transform t;
        const uint64_t of = key ? key(i) : (uint64_t)i + 1;
        int made, k = 0;
        while ((made = mirt__transforms_next(&list[i], k++, of, h, w, shape->dim[2], &t)) > 0)
            out[total++] = t;
        if (made < 0) return 0;
        h = t.oh;
        w = t.ow;
    }
    return total;
}

TAP_UNUSED static int transforms_of(const mirt_augmentation *list, int count, const mirt_shape *shape,
                                    mirt__transform *out) {
    return transforms_by(list, count, shape, out, NULL);
}

TAP_UNUSED static void augment_once(const mirt__transform *t, int count, uint64_t row, mirt_dtype x_dtype,
                                    const void *x, mirt_dtype y_dtype, void *y) {
    mirt__augment a;
    memset(&a, 0, sizeof a);
    a.transform = t;
    a.count = count;
    a.seed = 5;
    a.row = row;
    a.x_dtype = x_dtype;
    a.y_dtype = y_dtype;
    a.x = x;
    a.y = y;
    a.room = mirt__aligned_alloc(mirt__augment_room(t, count, x_dtype, y_dtype) + 1);
    mirt__augment_image(&a);
    mirt__aligned_free(a.room);
}

enum { ROWS = 11, SIDE_H = 10, SIDE_W = 12, PIXELS = SIDE_H * SIDE_W * 3 };
static unsigned char row_bytes[ROWS][PIXELS];
static float row_floats[ROWS][PIXELS];
static int32_t row_labels[ROWS];

TAP_UNUSED static void draw_rows(void) {
    for (int i = 0; i < ROWS; i++) {
        row_labels[i] = i;
        for (int k = 0; k < PIXELS; k++)
            row_floats[i][k] = row_bytes[i][k] = (unsigned char)(golden_word(9, (uint32_t)(i * PIXELS + k)) >> 24);
    }
}

TAP_UNUSED static mirt_dataset *rows_as(mirt_dtype dtype) {
    return mirt_arrays(mirt_make_array(dtype == MIRT_UINT8 ? (const void *)row_bytes : (const void *)row_floats, dtype,
                                       MIRT_SHAPE(ROWS, SIDE_H, SIDE_W, 3)),
                       mirt_make_array(row_labels, MIRT_INT32, MIRT_SHAPE(ROWS)));
}

#endif
