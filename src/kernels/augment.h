#ifndef MIRT__AUGMENT_H
#define MIRT__AUGMENT_H
/* Random transforms of single images, shared by layers and stages of data sets. The random numbers of a transform
   depend on its key and on two numbers that identify the image; adjacent transforms that move pixels form one affine
   warp. All instruction sets share one version. */

#include "kernels.h"
#include "transform.h"

/* Checks a description for images (h, w, c); false with the error set. The key remains 0. */
MIRT__LIB bool mirt__transform_of(const mirt_augmentation *desc, int64_t h, int64_t w, int64_t c, mirt__transform *out);

/* y[oy, ox] = x at the transformed position, like ImageProjectiveTransformV3: interpolated from four neighbors, or the
   nearest. Pixels are float32 (mirt__real) or uint8; y is uint8 only if x is, and then rounded to nearest. h * line is
   below 2^31. */
typedef struct mirt__warp {
    float m[6];
    int64_t h, w, c, oh, ow, line; /* line: elements from one row of x to the next */
    mirt_fill_mode fill;
    bool nearest;
    float value;
    mirt_dtype x_dtype, y_dtype;
    const void *x;
    void *y;
} mirt__warp;
MIRT__LIB void mirt__warp_image(const mirt__warp *args);

/* Applies all transforms to one image, from x to y. `room`: mirt__augment_room bytes. */
typedef struct mirt__augment {
    const mirt__transform *transform;
    int count;
    uint64_t seed, row, step;
    mirt_dtype x_dtype, y_dtype; /* float32 or uint8 */
    const void *x;
    void *y;
    void *room;
} mirt__augment;
MIRT__LIB void mirt__augment_image(const mirt__augment *args);
/* For the tables of kernels. */
MIRT__LIB void mirt__augment_batch(const mirt__augment_rows *args, const mirt__where *where);
MIRT__LIB size_t mirt__augment_room(const mirt__transform *transform, int count, mirt_dtype x_dtype,
                                    mirt_dtype y_dtype);

#endif
