#ifndef MIRT__AUGMENT_H
#define MIRT__AUGMENT_H
/* Random transforms of single images, shared by layers and stages of data sets. The random numbers of a transform
   depend on its key and on two numbers that identify the image; adjacent transforms that move pixels form one affine
   warp. All instruction sets share one version. */

#include "kernels.h"
#include "transform.h"

/* Checks a description for images (h, w, c); false with the error set. The key remains 0. */
MIRT__LIB bool mirt__transform_of(const mirt_augmentation *desc, int64_t h, int64_t w, int64_t c, mirt__transform *out);

/* The same of number `i` of the transforms that a description consists of, with its keys, which are made of `key`:
   1, or 0: there are no more, or -1 with the error set. */
MIRT__TRAINING_LIB int mirt__transforms_next(const mirt_augmentation *desc, int i, uint64_t key, int64_t h, int64_t w,
                                             int64_t c, mirt__transform *out);

#define MIRT__AUGMENT_CHANNELS 64 /* channels whose mean or extremes a transform may need */

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
/* Applies one transform, which moves no pixels, to the image so far; `kept`: room for AugMix's two images,
   or for CLAHE's levels. */
MIRT__LIB void mirt__augment_values(const mirt__augment *args, const mirt__transform *transform, mirt__real *x,
                                    mirt__real *kept);
/* The same of one that filters, to another image; `kept`: mirt__augment_elastic's room. */
#define MIRT__FILTER_BESIDE 1024 /* numbers that a kernel may have beside the middle of each of its rows */
MIRT__LIB void mirt__augment_filter(const mirt__augment *args, const mirt__transform *transform, const mirt__real *x,
                                    mirt__real *y, mirt__real *kept);
/* Normal numbers [begin, end) of the noise of a transform. */
MIRT__LIB void mirt__augment_noise(const mirt__augment *args, const mirt__transform *transform, int64_t begin,
                                   int64_t end, mirt__real *out);
/* to[i] += factor * from[i], which do not overlap. */
MIRT__LIB void mirt__augment_add(mirt__real *to, const mirt__real *from, mirt__real factor, int64_t count);
/* `room`: (2 h + 3) w numbers. */
MIRT__LIB void mirt__augment_elastic(const mirt__augment *args, const mirt__transform *transform,
                                     const double drawn[4], const mirt__real *x, mirt__real *y, mirt__real *room);
/* Divides the positions of `n` pixels of row oy from ox on by m[0] x + m[1] y + m[2]. */
MIRT__LIB void mirt__augment_divide(const float m[3], int64_t oy, int64_t ox, int64_t n, float *x, float *y);
/* AugMix's beginning, and the ends of its chains. */
MIRT__LIB void mirt__augment_mix(const mirt__augment *args, const mirt__transform *transform, mirt__real *x,
                                 mirt__real *kept);
/* `level`: MIRT__TRANSFORM_BINS numbers for each tile. */
MIRT__LIB void mirt__augment_clahe(const mirt__transform *transform, mirt__real *x, mirt__real *level);
/* For the tables of kernels. */
MIRT__LIB void mirt__augment_batch(const mirt__augment_rows *args, const mirt__where *where);
MIRT__LIB size_t mirt__augment_room(const mirt__transform *transform, int count, mirt_dtype x_dtype,
                                    mirt_dtype y_dtype);

#endif
