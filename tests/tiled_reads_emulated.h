#ifndef TILED_READS_EMULATED_H
#define TILED_READS_EMULATED_H
/* A kernel table that emulates tiled reads and epilogues in plain steps. What is read is computed into memory, the
   plain kernels convolve, and the epilogue runs as a loop of double arithmetic. */
#include "bfloat16.h"

static const mirt__kernels *emulated_base;

static double emulated_at(const void *data, mirt_dtype dtype, int64_t i) {
    if (dtype == MIRT_FLOAT32) return (double)((const float *)data)[i];
    if (dtype == MIRT_UINT8) return ((const uint8_t *)data)[i];
    if (dtype == MIRT_INT32) return ((const int32_t *)data)[i];
    return (double)half_to_float(((const uint16_t *)data)[i]);
}

static void emulated_put(void *data, mirt_dtype dtype, int64_t i, double value) {
    if (dtype == MIRT_FLOAT32) ((float *)data)[i] = (float)value;
    else ((uint16_t *)data)[i] = float_to_half((float)value);
}

static void emulated_round(float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] = half_to_float(float_to_half(x[i]));
}

static double emulated_inverse(const mirt__scaling *s, int64_t j) {
    return 1 / sqrt((double)s->variance[j] + (double)s->epsilon);
}

static double emulated_u(const mirt__scaling *s, double z, int64_t j) {
    double u = (z - (double)s->mean[j]) * emulated_inverse(s, j) * (s->gamma ? (double)s->gamma[j] : 1);
    return u + (s->beta ? (double)s->beta[j] : 0);
}

/* The number that a reader reads; channels are of the last axis. */
static double emulated_read(const mirt__reader *r, int64_t i) {
    const int64_t j = r->channels ? i % r->channels : 0;
    double x = emulated_at(r->data, r->dtype, i);
    if (r->affine) return x * (double)r->scale + (double)r->offset;
    if (r->norm) x = (double)mirt__ref_activate(r->norm->activation, (float)emulated_u(r->norm, x, j));
    if (r->gate) x *= (double)r->gate[i / r->channels / r->gate_pixels * r->channels + j];
    if (r->back) {
        const mirt__norm_back *b = r->back;
        const double z = emulated_at(b->z, r->dtype, i), inverse = emulated_inverse(&b->norm, j);
        if (b->norm.activation) x *= (double)mirt__ref_slope(b->norm.activation, (float)emulated_u(&b->norm, z, j));
        if (b->sum[0])
            x -= ((double)b->sum[0][j] + (z - (double)b->norm.mean[j]) * inverse * (double)b->sum[1][j]) / b->count;
        x *= inverse * (b->norm.gamma ? (double)b->norm.gamma[j] : 1);
    }
    return x;
}

static float *emulated_array(const mirt__reader *r, int64_t count, bool half, mirt__reader *plain) {
    float *out = (float *)malloc((size_t)count * sizeof *out);
    for (int64_t i = 0; i < count; i++) out[i] = (float)emulated_read(r, i);
    if (half) emulated_round(out, count);
    memset(plain, 0, sizeof *plain);
    plain->data = out;
    return out;
}

static float *emulated_kernel(const mirt__conv *s, const float *kernel, bool half) {
    const int64_t count = s->kh * s->kw * (s->ci / s->groups) * s->co;
    float *out = (float *)malloc((size_t)count * sizeof *out);
    memcpy(out, kernel, (size_t)count * sizeof *out);
    if (half) emulated_round(out, count);
    return out;
}

static void emulated_finish(const mirt__epilogue *e, const float *c, int64_t images, int64_t pixels, int64_t columns,
                            void *y, mirt_dtype dtype) {
    const int64_t image = pixels / (images > 0 ? images : 1);
    for (int64_t j = 0; j < columns; j++) {
        double a = 0, b = 0, shift = 0;
        for (int64_t p = 0; p < pixels; p++) {
            const int64_t i = p * columns + j;
            double v = (double)c[i];
            if (e->bias) v += (double)e->bias[j];
            if (e->norm) v = emulated_u(e->norm, v, j);
            if (e->add) v += emulated_at(e->add, dtype, i);
            if (e->activation) v = (double)mirt__ref_activate(e->activation, (float)v);
            if (e->mask_activation)
                v *= (double)mirt__ref_derivative(e->mask_activation, (float)emulated_at(e->mask, dtype, i));
            if (e->slope) {
                const double z = emulated_at(e->slope_x, dtype, i);
                if (e->slope->activation)
                    v *= (double)mirt__ref_slope(e->slope->activation, (float)emulated_u(e->slope, z, j));
                if (e->sums == MIRT__SUMS_GRADIENT)
                    b += v * (z - (double)e->slope->mean[j]) * emulated_inverse(e->slope, j);
            }
            if (p == 0) shift = e->sums == MIRT__SUMS_MOMENTS ? v : 0;
            a += v - shift;
            if (e->sums == MIRT__SUMS_MOMENTS) b += (v - shift) * (v - shift);
            emulated_put(y, dtype, i, v);
            if (e->sums != MIRT__SUMS_IMAGES || (p + 1) % image) continue;
            e->sum[0][p / image * columns + j] = (float)(a / (double)image);
            a = 0;
        }
        if (e->sums == MIRT__SUMS_IMAGES) continue;
        if (e->sums == MIRT__SUMS_MOMENTS) {
            a /= (double)pixels;
            b = b / (double)pixels - a * a;
            a += shift;
        }
        if (e->sums) e->sum[0][j] = (float)a;
        if (e->sums) e->sum[1][j] = (float)b;
    }
}

static void emulated_forward(const mirt__conv_forward *args, const mirt__where *where) {
    mirt__conv_forward f = *args;
    const mirt__conv *s = &args->s;
    const int64_t pixels = s->rows * s->oh * s->ow;
    float *x = emulated_array(&args->x, s->rows * s->h * s->w * s->ci, f.half, &f.x),
          *c = (float *)malloc((size_t)(pixels * s->co) * sizeof *c);
    float *kernel = emulated_kernel(s, f.kernel, f.half);
    memset(&f.epilogue, 0, sizeof f.epilogue);
    f.kernel = kernel;
    f.half = false;
    f.y = c;
    f.y_dtype = MIRT_FLOAT32;
    emulated_base->conv_forward(&f, where);
    emulated_finish(&args->epilogue, c, s->rows, pixels, s->co, args->y, args->y_dtype);
    free(kernel);
    free(c);
    free(x);
}

static void emulated_weight_grad(const mirt__conv_weight_grad *args, const mirt__where *where) {
    mirt__conv_weight_grad g = *args;
    const mirt__conv *s = &args->s;
    float *x = emulated_array(&args->x, s->rows * s->h * s->w * s->ci, g.half, &g.x),
          *dy = emulated_array(&args->dy, s->rows * s->oh * s->ow * s->co, g.half, &g.dy);
    g.half = false;
    emulated_base->conv_weight_grad(&g, where);
    free(dy);
    free(x);
}

static void emulated_input_grad(const mirt__conv_input_grad *args, const mirt__where *where) {
    mirt__conv_input_grad g = *args;
    const mirt__conv *s = &args->s;
    const int64_t pixels = s->rows * s->h * s->w;
    float *dy = emulated_array(&args->dy, s->rows * s->oh * s->ow * s->co, g.half, &g.dy),
          *c = (float *)malloc((size_t)(pixels * s->ci) * sizeof *c);
    if (args->x) {
        mirt__conv_weight_grad w;
        memset(&w, 0, sizeof w);
        w.s = args->s;
        w.x = *args->x;
        w.dy = args->dy;
        w.dkernel = args->dkernel;
        w.db = args->db;
        emulated_weight_grad(&w, where);
    }
    float *kernel = emulated_kernel(s, g.kernel, g.half);
    memset(&g.epilogue, 0, sizeof g.epilogue);
    g.kernel = kernel;
    g.half = false;
    g.x = NULL;
    g.dx = c;
    g.dx_dtype = MIRT_FLOAT32;
    emulated_base->conv_input_grad(&g, where);
    emulated_finish(&args->epilogue, c, s->rows, pixels, s->ci, args->dx, args->dx_dtype);
    free(kernel);
    free(c);
    free(dy);
}

/* Normalization of what is stored as bfloat16, by way of float32. */
static void emulated_norm(const mirt__norm *args, const mirt__where *where,
                          void (*kernel)(const mirt__norm *, const mirt__where *)) {
    mirt__norm s = *args;
    const int64_t count = s.rows * s.n;
    const void *from[3] = {s.x, s.dy, s.add};
    const mirt_dtype dtype[3] = {s.x_dtype, s.dy_dtype, s.add_dtype};
    float *read[4];
    for (int k = 0; k < 3; k++) {
        read[k] = from[k] ? (float *)malloc((size_t)count * sizeof(float)) : NULL;
        for (int64_t i = 0; from[k] && i < count; i++) read[k][i] = (float)emulated_at(from[k], dtype[k], i);
    }
    read[3] = (float *)malloc((size_t)count * sizeof(float));
    s.x = read[0];
    s.dy = read[1];
    s.add = read[2];
    if (s.y) s.y = read[3];
    s.x_dtype = s.dy_dtype = s.add_dtype = s.y_dtype = MIRT_FLOAT32;
    kernel(&s, where);
    for (int64_t i = 0; args->y && i < count; i++) emulated_put(args->y, args->y_dtype, i, (double)read[3][i]);
    for (int k = 0; k < 4; k++) free(read[k]);
}
static void emulated_norm_stats(const mirt__norm *args, const mirt__where *where) {
    emulated_norm(args, where, emulated_base->norm_stats);
}
static void emulated_normalize(const mirt__norm *args, const mirt__where *where) {
    emulated_norm(args, where, emulated_base->normalize);
}
static void emulated_norm_grad_sums(const mirt__norm *args, const mirt__where *where) {
    emulated_norm(args, where, emulated_base->norm_grad_sums);
}
static void emulated_norm_grad_input(const mirt__norm *args, const mirt__where *where) {
    emulated_norm(args, where, emulated_base->norm_grad_input);
}

/* The best table, with these in place of its own. */
static mirt__kernels emulated_table(const mirt__kernels *base) {
    mirt__kernels k = *base;
    emulated_base = base;
    k.tiled_reads = true;
    k.conv_forward = emulated_forward;
    k.conv_input_grad = emulated_input_grad;
    k.conv_weight_grad = emulated_weight_grad;
    k.norm_stats = emulated_norm_stats;
    k.normalize = emulated_normalize;
    k.norm_grad_sums = emulated_norm_grad_sums;
    k.norm_grad_input = emulated_norm_grad_input;
    return k;
}
#endif
