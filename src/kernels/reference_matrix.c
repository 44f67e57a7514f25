/* Reference: matrix products and convolutions. */

#include "reference.h"

/* The value to store for `sum` at position `at` of the output, in column `column`. */
static mirt__real mirt__ref_finish(const mirt__epilogue *e, mirt__real sum, int64_t at, int64_t column) {
    if (e->bias) sum += e->bias[column];
    sum = mirt__ref_activate(e->activation, sum);
    if (e->mask) sum *= mirt__ref_derivative(e->mask_activation, ((const mirt__real *)e->mask)[at]);
    return sum;
}

static mirt__real mirt__ref_read(const mirt__reader *reader, int64_t at) {
    mirt__real x;
    if (reader->dtype == MIRT_UINT8) {
        x = (mirt__real)((const uint8_t *)reader->data)[at];
    } else if (reader->dtype == MIRT_INT32) {
        x = (mirt__real)((const int32_t *)reader->data)[at];
    } else {
        x = ((const mirt__real *)reader->data)[at];
    }
    return reader->affine ? mirt__fma(x, (mirt__real)reader->scale, (mirt__real)reader->offset) : x;
}

MIRT__LIB void mirt__ref_gemm(const mirt__gemm *g) {
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            double sum = 0;
            for (int64_t p = 0; p < g->k; p++) {
                double a = mirt__ref_read(&g->a, i * g->a_row + p * g->a_col);
                sum += a * g->b[p * g->b_row + j * g->b_col];
            }
            g->c[i * g->n + j] = mirt__ref_finish(&g->epilogue, (mirt__real)sum, i * g->n + j, j);
        }
    }
    if (!g->column_sum) return;
    for (int64_t j = 0; j < g->n; j++) {
        double sum = 0;
        for (int64_t p = 0; p < g->k; p++) sum += g->b[p * g->b_row + j * g->b_col];
        g->column_sum[j] = (mirt__real)sum;
    }
}

/* x[row, iy, ix, c], or zero in the padding around it. */
static double mirt__ref_pixel(const mirt__conv *s, const mirt__reader *x, int64_t row, int64_t iy, int64_t ix,
                              int64_t c) {
    if (iy < 0 || iy >= s->h || ix < 0 || ix >= s->w) return 0;
    return mirt__ref_read(x, ((row * s->h + iy) * s->w + ix) * s->ci + c);
}

/* y[row, oy, ox, o] before bias and activation. With groups, output channel o sees only the input
   channels of its own group. */
static mirt__real mirt__ref_conv_sum(const mirt__conv *s, const mirt__reader *x, const mirt__real *kernel, int64_t row,
                                     int64_t oy, int64_t ox, int64_t o) {
    int64_t channels = s->ci / s->groups, first = o / (s->co / s->groups) * channels;
    double sum = 0;
    for (int64_t ky = 0; ky < s->kh; ky++) {
        for (int64_t kx = 0; kx < s->kw; kx++) {
            int64_t iy = oy * s->stride_h + ky * s->dilation_h - s->pad_top;
            int64_t ix = ox * s->stride_w + kx * s->dilation_w - s->pad_left;
            for (int64_t c = 0; c < channels; c++) {
                sum += mirt__ref_pixel(s, x, row, iy, ix, first + c) *
                       kernel[((ky * s->kw + kx) * channels + c) * s->co + o];
            }
        }
    }
    return (mirt__real)sum;
}

MIRT__LIB void mirt__ref_conv_forward(const mirt__conv_forward *f) {
    const mirt__conv *s = &f->s;
    for (int64_t at = 0; at < s->rows * s->oh * s->ow * s->co; at++) {
        const int64_t pixel = at / s->co, line = pixel / s->ow;
        const mirt__real sum =
            mirt__ref_conv_sum(s, &f->x, f->kernel, line / s->oh, line % s->oh, pixel % s->ow, at % s->co);
        ((mirt__real *)f->y)[at] = mirt__ref_finish(&f->epilogue, sum, at, at % s->co);
    }
}

/* The output position whose tap `k` (of dilation `dilation`) read input position `in`, or -1. */
static int64_t mirt__ref_reader_of(int64_t in, int64_t k, int dilation, int stride, int64_t pad, int64_t out_size) {
    int64_t scaled = in + pad - k * dilation;
    if (scaled < 0 || scaled % stride != 0 || scaled / stride >= out_size) return -1;
    return scaled / stride;
}

/* The sum over all outputs that read x[row, iy, ix, c], each times the kernel value it used. */
static mirt__real mirt__ref_input_grad_sum(const mirt__conv_input_grad *g, int64_t row, int64_t iy, int64_t ix,
                                           int64_t c) {
    const mirt__conv *s = &g->s;
    int64_t channels = s->ci / s->groups, filters = s->co / s->groups, group = c / channels;
    double sum = 0;
    for (int64_t ky = 0; ky < s->kh; ky++) {
        int64_t oy = mirt__ref_reader_of(iy, ky, s->dilation_h, s->stride_h, s->pad_top, s->oh);
        for (int64_t kx = 0; oy >= 0 && kx < s->kw; kx++) {
            int64_t ox = mirt__ref_reader_of(ix, kx, s->dilation_w, s->stride_w, s->pad_left, s->ow);
            for (int64_t o = group * filters; ox >= 0 && o < (group + 1) * filters; o++) {
                double dy = ((const mirt__real *)g->dy.data)[((row * s->oh + oy) * s->ow + ox) * s->co + o];
                sum += dy * g->kernel[((ky * s->kw + kx) * channels + c % channels) * s->co + o];
            }
        }
    }
    return (mirt__real)sum;
}

MIRT__LIB void mirt__ref_conv_input_grad(const mirt__conv_input_grad *g) {
    const mirt__conv *s = &g->s;
    for (int64_t at = 0; at < s->rows * s->h * s->w * s->ci; at++) {
        const int64_t pixel = at / s->ci, line = pixel / s->w;
        const mirt__real sum = mirt__ref_input_grad_sum(g, line / s->h, line % s->h, pixel % s->w, at % s->ci);
        ((mirt__real *)g->dx)[at] = mirt__ref_finish(&g->epilogue, sum, at, at % s->ci);
    }
}

/* The sum over all outputs of channel o, each times the input that kernel[ky, kx, c, o] was multiplied with. */
static mirt__real mirt__ref_weight_grad_sum(const mirt__conv_weight_grad *g, int64_t ky, int64_t kx, int64_t c,
                                            int64_t o) {
    const mirt__conv *s = &g->s;
    int64_t first = o / (s->co / s->groups) * (s->ci / s->groups);
    double sum = 0;
    for (int64_t row = 0; row < s->rows; row++) {
        for (int64_t oy = 0; oy < s->oh; oy++) {
            for (int64_t ox = 0; ox < s->ow; ox++) {
                int64_t iy = oy * s->stride_h + ky * s->dilation_h - s->pad_top;
                int64_t ix = ox * s->stride_w + kx * s->dilation_w - s->pad_left;
                double dy = ((const mirt__real *)g->dy.data)[((row * s->oh + oy) * s->ow + ox) * s->co + o];
                sum += dy * mirt__ref_pixel(s, &g->x, row, iy, ix, first + c);
            }
        }
    }
    return (mirt__real)sum;
}

MIRT__LIB void mirt__ref_conv_weight_grad(const mirt__conv_weight_grad *g) {
    const mirt__conv *s = &g->s;
    int64_t at = 0;
    for (int64_t ky = 0; ky < s->kh; ky++) {
        for (int64_t kx = 0; kx < s->kw; kx++) {
            for (int64_t c = 0; c < s->ci / s->groups; c++) {
                for (int64_t o = 0; o < s->co; o++, at++) g->dkernel[at] = mirt__ref_weight_grad_sum(g, ky, kx, c, o);
            }
        }
    }
    for (int64_t o = 0; g->db && o < s->co; o++) {
        double sum = 0;
        for (int64_t i = 0; i < s->rows * s->oh * s->ow; i++) sum += ((const mirt__real *)g->dy.data)[i * s->co + o];
        g->db[o] = (mirt__real)sum;
    }
}

MIRT__LIB void mirt__ref_conv_pool(const mirt__conv_pool *p) {
    const mirt__conv *s = &p->s;
    int64_t at = 0;
    for (int64_t row = 0; row < s->rows; row++) {
        for (int64_t wy = 0; wy < s->oh / 2; wy++) {
            for (int64_t wx = 0; wx < s->ow / 2; wx++) {
                for (int64_t o = 0; o < s->co; o++, at++) {
                    mirt__real best = 0;
                    int best_place = 0;
                    for (int place = 0; place < 4; place++) {
                        int64_t oy = 2 * wy + place / 2, ox = 2 * wx + place % 2;
                        mirt__real y =
                            mirt__ref_conv_sum(s, &p->x, p->kernel, row, oy, ox, o) + (p->bias ? p->bias[o] : 0);
                        if (place == 0 || y > best) {
                            best = y;
                            best_place = place;
                        }
                    }
                    p->y[at] = mirt__ref_activate(MIRT_RELU, best);
                    if (p->which) p->which[at] = (uint8_t)(best > 0 ? best_place : 4);
                }
            }
        }
    }
}

/* Like mirt__ref_weight_grad_sum; of the four outputs in a window only the maximum has a gradient. */
static mirt__real mirt__ref_pool_weight_grad_sum(const mirt__conv_pool_weight_grad *g, int64_t ky, int64_t kx,
                                                 int64_t c, int64_t o) {
    const mirt__conv *s = &g->s;
    double sum = 0;
    for (int64_t row = 0; row < s->rows; row++) {
        for (int64_t wy = 0; wy < s->oh / 2; wy++) {
            for (int64_t wx = 0; wx < s->ow / 2; wx++) {
                int64_t window = ((row * (s->oh / 2) + wy) * (s->ow / 2) + wx) * s->co + o;
                int place = g->which[window];
                if (place == 4) continue;
                int64_t iy = 2 * wy + place / 2 + ky, ix = 2 * wx + place % 2 + kx;
                sum += (double)g->dy[window] * mirt__ref_pixel(s, &g->x, row, iy, ix, c);
            }
        }
    }
    return (mirt__real)sum;
}

MIRT__LIB void mirt__ref_conv_pool_weight_grad(const mirt__conv_pool_weight_grad *g) {
    const mirt__conv *s = &g->s;
    int64_t at = 0;
    for (int64_t ky = 0; ky < s->kh; ky++) {
        for (int64_t kx = 0; kx < s->kw; kx++) {
            for (int64_t c = 0; c < s->ci; c++) {
                for (int64_t o = 0; o < s->co; o++, at++)
                    g->dkernel[at] = mirt__ref_pool_weight_grad_sum(g, ky, kx, c, o);
            }
        }
    }
    for (int64_t o = 0; g->db && o < s->co; o++) {
        double sum = 0;
        for (int64_t i = 0; i < s->rows * (s->oh / 2) * (s->ow / 2); i++) {
            if (g->which[i * s->co + o] != 4) sum += g->dy[i * s->co + o];
        }
        g->db[o] = (mirt__real)sum;
    }
}
