/* Reference: resizing of images. */

#include "reference.h"
#include "shapes.h"

/* The four inputs that output (oy, ox) reads: their offsets in an image, and their weights. */
static void mirt__ref_resize_corners(const mirt__resize *r, int64_t oy, int64_t ox, int64_t place[4],
                                     mirt__real weight[4]) {
    const mirt__between v = mirt__resize_at(oy, r->h, r->oh, r->bilinear),
                        u = mirt__resize_at(ox, r->w, r->ow, r->bilinear);
    for (int i = 0; i < 4; i++) {
        place[i] = (i & 2 ? v.high : v.low) * r->w + (i & 1 ? u.high : u.low);
        weight[i] = (i & 2 ? v.part : 1 - v.part) * (i & 1 ? u.part : 1 - u.part);
    }
}

MIRT__LIB void mirt__ref_resize(const mirt__resize *r) {
    int64_t place[4], at = 0;
    mirt__real weight[4];
    for (int64_t row = 0; row < r->rows; row++) {
        for (int64_t o = 0; o < r->oh * r->ow; o++) {
            mirt__ref_resize_corners(r, o / r->ow, o % r->ow, place, weight);
            for (int64_t c = 0; c < r->c; c++, at++) {
                mirt__real sum = 0;
                for (int i = 0; i < 4; i++) sum += weight[i] * r->x[(row * r->h * r->w + place[i]) * r->c + c];
                r->y[at] = sum;
            }
        }
    }
}

MIRT__LIB void mirt__ref_resize_grad(const mirt__resize *r) {
    int64_t place[4], at = 0;
    mirt__real weight[4];
    for (int64_t i = 0; i < r->rows * r->h * r->w * r->c; i++) r->y[i] = 0;
    for (int64_t row = 0; row < r->rows; row++) {
        for (int64_t o = 0; o < r->oh * r->ow; o++) {
            mirt__ref_resize_corners(r, o / r->ow, o % r->ow, place, weight);
            for (int64_t c = 0; c < r->c; c++, at++) {
                for (int i = 0; i < 4; i++) r->y[(row * r->h * r->w + place[i]) * r->c + c] += weight[i] * r->x[at];
            }
        }
    }
}
