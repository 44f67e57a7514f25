/* Shared by the fast tables: resizing of images. */

#include "common.h"

#include "optimize_begin.inc"

static void mirt__common_resize_line(const mirt__resize *r, int64_t row, int64_t oy, float *y) {
    const mirt__between v = mirt__resize_at(oy, r->h, r->oh, r->bilinear);
    const float *above = r->x + (row * r->h + v.low) * r->w * r->c, *below = r->x + (row * r->h + v.high) * r->w * r->c;
    for (int64_t ox = 0; ox < r->ow; ox++, y += r->c) {
        const mirt__between u = mirt__resize_at(ox, r->w, r->ow, r->bilinear);
        const float *a = above + u.low * r->c, *b = above + u.high * r->c, *c = below + u.low * r->c,
                    *d = below + u.high * r->c;
        if (!r->bilinear) {
            memcpy(y, a, (size_t)r->c * sizeof(float));
            continue;
        }
        MIRT__INDEPENDENT
        for (int64_t j = 0; j < r->c; j++) {
            const float top = a[j] + (b[j] - a[j]) * u.part, bottom = c[j] + (d[j] - c[j]) * u.part;
            y[j] = top + (bottom - top) * v.part;
        }
    }
}

static void mirt__common_resize_lines(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__resize *r = (const mirt__resize *)args;
    (void)scratch;
    for (int64_t i = begin; i < end; i++) mirt__common_resize_line(r, i / r->oh, i % r->oh, r->y + i * r->ow * r->c);
}

MIRT__LIB void mirt__common_resize(const mirt__resize *args, const mirt__where *where) {
    mirt__common_range(where, args->rows * args->oh, mirt__common_step(args->ow * args->c), mirt__common_resize_lines,
                       args);
}

/* Adds `part` of an output line to the input line `dx`; both input lines of a pixel may be the same. */
static void mirt__common_resize_back(const mirt__resize *r, const float *dy, float *dx, float part) {
    for (int64_t ox = 0; ox < r->ow; ox++, dy += r->c) {
        const mirt__between u = mirt__resize_at(ox, r->w, r->ow, r->bilinear);
        float *a = dx + u.low * r->c, *b = dx + u.high * r->c;
        const float left = part * (1 - u.part), right = part * u.part;
        MIRT__INDEPENDENT
        for (int64_t j = 0; j < r->c; j++) a[j] += left * dy[j];
        if (right == 0) continue;
        MIRT__INDEPENDENT
        for (int64_t j = 0; j < r->c; j++) b[j] += right * dy[j];
    }
}

static void mirt__common_resize_images(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__resize *r = (const mirt__resize *)args;
    const int64_t in_line = r->w * r->c, out_line = r->ow * r->c;
    (void)scratch;
    memset(r->y + begin * r->h * in_line, 0, (size_t)((end - begin) * r->h * in_line) * sizeof(float));
    for (int64_t i = begin * r->oh; i < end * r->oh; i++) {
        const mirt__between v = mirt__resize_at(i % r->oh, r->h, r->oh, r->bilinear);
        float *image = r->y + i / r->oh * r->h * in_line;
        mirt__common_resize_back(r, r->x + i * out_line, image + v.low * in_line, 1 - v.part);
        if (v.part != 0) mirt__common_resize_back(r, r->x + i * out_line, image + v.high * in_line, v.part);
    }
}

MIRT__LIB void mirt__common_resize_grad(const mirt__resize *args, const mirt__where *where) {
    mirt__common_range(where, args->rows, mirt__common_step(args->oh * args->ow * args->c), mirt__common_resize_images,
                       args);
}

#include "optimize_end.inc"
