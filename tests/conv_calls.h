#ifndef CONV_CALLS_H
#define CONV_CALLS_H
/* Calls of convolution kernels, and their results in plain double arithmetic. Covers shapes, readers and epilogues, and
   checks that every fast table and team, and an image in any place, gives the same bits. */
#include "bfloat16.h"
#include "lawful.h"

enum { TEAMS = 3, GUARD = 64 };
static mirt__team *teams[TEAMS]; /* of 1 (none at all), 2 and 3 threads */
static bool winograd;            /* what calls ask for; weight gradients, where it has no part, are left out */
static bool depthwise;           /* what all shapes are: both gradients are made in one pass, too; no gates, bytes,
                                    rounded products */
static bool both_at_once;        /* both gradients are made in one pass; the input gradient's bits are those that it has
                                    alone */

static mirt__random numbers;
static float number(void) { return mirt__random_unit(&numbers) * 4 - 2; }

/* Numbers of float32 or bfloat16 in a block that ends with them, between guards. */
typedef struct array {
    mirt_dtype dtype;
    int64_t count;
    uint8_t *block;
    void *data;
} array;
static size_t size_of(mirt_dtype dtype) { return dtype == MIRT_FLOAT32 ? 4 : dtype == MIRT_UINT8 ? 1 : 2; }
static array array_of(mirt_dtype dtype, int64_t count, bool filled) {
    array a = {dtype, count, NULL, NULL};
    const size_t bytes = (size_t)count * size_of(dtype);
    a.block = (uint8_t *)malloc(2 * GUARD + 4 + bytes);
    a.data = a.block + GUARD + (getenv("MIRT_TEST_ALIGNED") ? 0 : 4); /* otherwise off any alignment */
    memset(a.block, 0xA5, 2 * GUARD + 4 + bytes);
    for (int64_t i = 0; filled && i < count; i++) {
        if (dtype == MIRT_FLOAT32) ((float *)a.data)[i] = number();
        else if (dtype == MIRT_UINT8) ((uint8_t *)a.data)[i] = (uint8_t)(number() * 63 + 127);
        else ((uint16_t *)a.data)[i] = float_to_half(number());
    }
    return a;
}
static double at(const array *a, int64_t i) {
    return a->dtype == MIRT_FLOAT32 ? (double)((const float *)a->data)[i]
                                    : (double)half_to_float(((const uint16_t *)a->data)[i]);
}
static bool intact(const array *a) {
    const uint8_t *end = (const uint8_t *)a->data + (size_t)a->count * size_of(a->dtype);
    for (int i = 0; i < GUARD; i++) {
        if (((const uint8_t *)a->data)[i - GUARD] != 0xA5 || end[i] != 0xA5) return false;
    }
    return true;
}
static bool same(const array *a, const array *b) {
    return memcmp(a->data, b->data, (size_t)a->count * size_of(a->dtype)) == 0;
}
/* Made in another way: the same bits where the law binds, otherwise as near as other orders of addition, or one of
   bfloat16, leave them. */
static bool same_as_law(const mirt__kernels *k, const array *a, const array *b) {
    double most = 1;
    if (lawful(k) || same(a, b)) return same(a, b);
    for (int64_t i = 0; i < a->count; i++) most = fabs(at(a, i)) > most ? fabs(at(a, i)) : most;
    for (int64_t i = 0; i < a->count; i++) {
        if (!(fabs(at(a, i) - at(b, i)) <= (a->dtype == MIRT_FLOAT32 ? 1e-5 : 1.0 / 128) * most)) return false;
    }
    return true;
}

static double activate(mirt_activation_kind kind, double x) {
    switch (kind) {
    case MIRT_RELU: return x < 0 ? 0 : x;
    case MIRT_RELU6: return x < 0 ? 0 : x > 6 ? 6 : x;
    case MIRT_SILU: return x / (1 + exp(-x));
    default: return x;
    }
}
static double slope(mirt_activation_kind kind, double x) {
    const double s = 1 / (1 + exp(-x));
    switch (kind) {
    case MIRT_RELU: return x > 0;
    case MIRT_RELU6: return x > 0 && x < 6;
    case MIRT_SILU: return s * (1 + x * (1 - s));
    default: return 1;
    }
}

/* A normalization of n columns, none too narrow. */
typedef struct scaling {
    array mean, variance, gamma, beta;
    mirt__scaling s;
} scaling;
static scaling scaling_of(int64_t n, bool constants, mirt_activation_kind activation) {
    scaling s = {array_of(MIRT_FLOAT32, n, true),
                 array_of(MIRT_FLOAT32, n, true),
                 array_of(MIRT_FLOAT32, n, true),
                 array_of(MIRT_FLOAT32, n, true),
                 {NULL, NULL, NULL, NULL, 0, MIRT_LINEAR}};
    for (int64_t j = 0; j < n; j++) ((float *)s.variance.data)[j] = 0.25f + fabsf(number());
    s.s.mean = (const float *)s.mean.data;
    s.s.variance = (const float *)s.variance.data;
    s.s.gamma = constants ? NULL : (const float *)s.gamma.data;
    s.s.beta = constants ? NULL : (const float *)s.beta.data;
    s.s.epsilon = 1e-3f;
    s.s.activation = activation;
    return s;
}
static void scaling_free(scaling *s) {
    free(s->mean.block);
    free(s->variance.block);
    free(s->gamma.block);
    free(s->beta.block);
}
static double inverse(const mirt__scaling *s, int64_t j) {
    return 1 / sqrt((double)s->variance[j] + (double)s->epsilon);
}
static double scaled(const mirt__scaling *s, double x, int64_t j) {
    return (x - (double)s->mean[j]) * inverse(s, j) * (s->gamma ? (double)s->gamma[j] : 1) +
           (s->beta ? (double)s->beta[j] : 0);
}

/* rows, h, w, channels in and out, groups, kernel, strides, dilations, padding before and after */
typedef struct shape {
    int rows, h, w, ci, co, groups, kh, kw, sh, sw, dh, dw, top, left, bottom, right;
} shape;

/* What is asked of a call. */
typedef struct setup {
    const char *name;
    bool gate, bytes, products; /* x is gated, or bytes; products of numbers rounded to bfloat16 */
    bool half_in, half_out, norm, bias, scale, add, moments, mask, slope; /* norm: of x, back: of dy */
    mirt_activation_kind in, out;
} setup;
static const setup setups[] = {
    {"gate", true, false, false, false, false, false, true, false, false, true, false, false, MIRT_LINEAR, MIRT_RELU},
    {"norm and gate", true, false, false, false, false, true, false, false, false, true, false, true, MIRT_SILU,
     MIRT_RELU},
    {"bytes", false, true, false, false, false, false, true, false, true, false, false, false, MIRT_LINEAR,
     MIRT_LINEAR},
    {"rounded", false, false, true, false, false, false, true, false, false, false, false, false, MIRT_LINEAR,
     MIRT_RELU},
    {"rounded norm and sums", false, false, true, false, false, true, false, false, false, true, false, true,
     MIRT_RELU6, MIRT_RELU6},
    {"rounded bytes", false, true, true, false, true, false, false, false, false, true, false, false, MIRT_LINEAR,
     MIRT_LINEAR},
    {"rounded bfloat16", false, false, true, true, true, false, false, false, true, true, false, true, MIRT_LINEAR,
     MIRT_SILU},
    {"rounded bfloat16 norm", true, false, true, true, true, true, false, false, true, true, false, true, MIRT_RELU6,
     MIRT_RELU6},
    {"plain", false, false, false, false, false, false, false, false, false, false, false, false, MIRT_LINEAR,
     MIRT_LINEAR},
    {"norm and sums", false, false, false, false, false, true, false, false, false, true, false, true, MIRT_RELU6,
     MIRT_RELU6},
    {"silu and sums", false, false, false, false, false, true, false, false, true, true, false, true, MIRT_SILU,
     MIRT_SILU},
    {"linear norm, sums", false, false, false, false, false, true, false, false, false, true, true, true, MIRT_LINEAR,
     MIRT_LINEAR},
    {"bias and activation", false, false, false, false, false, false, true, false, false, false, true, false,
     MIRT_LINEAR, MIRT_RELU},
    {"inference", false, false, false, false, false, true, false, true, true, false, false, false, MIRT_RELU,
     MIRT_SILU},
    {"bfloat16", false, false, false, true, true, true, false, false, false, true, false, true, MIRT_RELU6, MIRT_RELU6},
    {"bfloat16 plain", false, false, false, true, true, false, true, true, true, false, true, false, MIRT_LINEAR,
     MIRT_RELU6},
    {"bfloat16 in", false, false, false, true, false, true, false, false, true, true, false, false, MIRT_SILU,
     MIRT_LINEAR},
    {"bfloat16 out", false, false, false, false, true, true, false, false, false, false, false, true, MIRT_RELU,
     MIRT_RELU},
    /* of training with stored operands: forward, and the gradients */
    {"moments", false, false, false, false, false, false, false, false, false, true, false, false, MIRT_LINEAR,
     MIRT_LINEAR},
    {"slope and sums", false, false, false, false, false, false, false, false, false, true, false, true, MIRT_LINEAR,
     MIRT_RELU6},
    {"bfloat16 moments", false, false, false, true, true, false, false, false, false, true, false, false, MIRT_LINEAR,
     MIRT_LINEAR},
    {"bfloat16 slope and sums", false, false, false, true, true, false, false, false, false, true, false, true,
     MIRT_LINEAR, MIRT_RELU}};

/* One call: its arrays, and what they should become. */
typedef struct call {
    mirt__conv s;
    const setup *how;
    bool back; /* both gradients, otherwise forward */
    array in, z, x, gate, bytes, kernel, bias, add, mask, slope_x, out, dkernel, db, sum[2], back_sum[2];
    scaling norm, back_norm, scale, slope;
    mirt__norm_back norm_back;
    mirt__reader reader, x_reader;
    mirt__epilogue epilogue;
    double *want, *size;
} call;

static mirt__reader reader_of(const array *data, int64_t channels) {
    mirt__reader r;
    memset(&r, 0, sizeof r);
    r.data = data->data;
    r.dtype = data->dtype;
    r.channels = channels;
    return r;
}

static call call_of(const shape *p, const setup *how, bool back) {
    call c;
    memset(&c, 0, sizeof c);
    mirt__conv *s = &c.s;
    s->rows = p->rows;
    s->h = p->h;
    s->w = p->w;
    s->ci = p->ci;
    s->co = p->co;
    s->kh = p->kh;
    s->kw = p->kw;
    s->stride_h = p->sh;
    s->stride_w = p->sw;
    s->dilation_h = p->dh;
    s->dilation_w = p->dw;
    s->groups = p->groups;
    s->pad_top = p->top;
    s->pad_left = p->left;
    s->oh = (p->h + p->top + p->bottom - (p->kh - 1) * p->dh - 1) / p->sh + 1;
    s->ow = (p->w + p->left + p->right - (p->kw - 1) * p->dw - 1) / p->sw + 1;
    c.how = how;
    c.back = back;
    const mirt_dtype in = how->half_in ? MIRT__BFLOAT16 : MIRT_FLOAT32,
                     out = how->half_out ? MIRT__BFLOAT16 : MIRT_FLOAT32;
    const int64_t of_x = s->rows * s->h * s->w * s->ci, of_y = s->rows * s->oh * s->ow * s->co,
                  outputs = back ? of_x : of_y;
    const int64_t n = back ? s->ci : s->co, n_in = back ? s->co : s->ci; /* of the output, and what is read */
    c.in = array_of(in, back ? of_y : of_x, true);
    c.z = array_of(in, of_y, true);
    c.x = array_of(in, of_x, true);
    c.kernel = array_of(MIRT_FLOAT32, s->kh * s->kw * (s->ci / s->groups) * s->co, true);
    c.gate = array_of(MIRT_FLOAT32, s->rows * s->ci, true);
    c.bytes = array_of(MIRT_UINT8, of_x, true);
    c.bias = array_of(MIRT_FLOAT32, n, true);
    c.add = array_of(out, outputs, true);
    c.mask = array_of(out, outputs, true);
    for (int64_t i = 0; i < outputs; i += 5) { /* an output may have overflowed */
        if (out == MIRT_FLOAT32) ((float *)c.mask.data)[i] = INFINITY;
        else ((uint16_t *)c.mask.data)[i] = float_to_half(INFINITY);
    }
    c.slope_x = array_of(out, outputs, true);
    c.out = array_of(out, outputs, false);
    c.dkernel = array_of(MIRT_FLOAT32, c.kernel.count, false);
    c.db = array_of(MIRT_FLOAT32, s->co, false);
    for (int i = 0; i < 2; i++) {
        c.sum[i] = array_of(MIRT_FLOAT32, n, false);
        c.back_sum[i] = array_of(MIRT_FLOAT32, n_in, true);
    }
    c.norm = scaling_of(s->ci, how->add, how->in);
    c.back_norm = scaling_of(n_in, false, how->in == MIRT_SILU ? MIRT_SILU : MIRT_LINEAR);
    c.scale = scaling_of(n, how->half_in, MIRT_LINEAR);
    c.slope = scaling_of(n, false, how->out);
    c.want = (double *)calloc((size_t)(outputs + 1), sizeof(double));
    c.size = (double *)calloc((size_t)(outputs + 1), sizeof(double));
    return c;
}

/* The structs point into the call, so they are filled where it lies. */
static void call_ready(call *c) {
    const setup *how = c->how;
    mirt__epilogue *e = &c->epilogue;
    c->reader = reader_of(&c->in, c->back ? c->s.co : c->s.ci);
    c->x_reader = reader_of(&c->x, c->s.ci);
    mirt__reader *x = c->back ? &c->x_reader : &c->reader;
    if (how->bytes) {
        x->data = c->bytes.data;
        x->dtype = MIRT_UINT8;
        x->affine = true;
        x->scale = 1.0f / 64;
        x->offset = -2;
    }
    if (how->gate) {
        x->gate = (const float *)c->gate.data;
        x->gate_pixels = c->s.h * c->s.w;
    }
    if (how->norm) x->norm = &c->norm.s;
    if (how->norm && c->back) {
        c->norm_back.norm = c->back_norm.s;
        c->norm_back.z = c->z.data;
        for (int i = 0; i < 2 && !how->add; i++) c->norm_back.sum[i] = (const float *)c->back_sum[i].data;
        c->norm_back.count = 7;
        c->reader.back = &c->norm_back;
    }
    if (how->add) e->add = c->add.data;
    if (how->mask) e->mask = c->mask.data;
    e->mask_activation = MIRT_RELU;
    for (int i = 0; i < 2; i++) e->sum[i] = (float *)c->sum[i].data;
    if (c->back) {
        if (how->slope) {
            e->slope = &c->slope.s;
            e->slope_x = c->slope_x.data;
            e->sums = how->moments ? MIRT__SUMS_GRADIENT : MIRT__SUMS_NONE;
        }
        return;
    }
    if (how->bias) e->bias = (const float *)c->bias.data;
    if (how->scale) e->norm = &c->scale.s;
    e->activation = how->out;
    e->sums = how->moments ? MIRT__SUMS_MOMENTS : MIRT__SUMS_NONE;
}

static void call_free(call *c) {
    array *all[] = {&c->in,   &c->z,      &c->x,      &c->gate,        &c->bytes,      &c->kernel,
                    &c->bias, &c->add,    &c->mask,   &c->slope_x,     &c->out,        &c->dkernel,
                    &c->db,   &c->sum[0], &c->sum[1], &c->back_sum[0], &c->back_sum[1]};
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++) free(all[i]->block);
    scaling_free(&c->norm);
    scaling_free(&c->back_norm);
    scaling_free(&c->scale);
    scaling_free(&c->slope);
    free(c->want);
    free(c->size);
}

static double read_x(const call *c, int64_t i) {
    const array *from = c->back ? &c->x : &c->in;
    const int64_t j = i % c->s.ci;
    double x = c->how->bytes ? ((const uint8_t *)c->bytes.data)[i] / 64.0 - 2 : at(from, i);
    if (c->how->norm) x = activate(c->how->in, scaled(&c->norm.s, x, j));
    return c->how->gate ? x * at(&c->gate, i / (c->s.h * c->s.w * c->s.ci) * c->s.ci + j) : x;
}
static double read_dy(const call *c, int64_t i) {
    const mirt__norm_back *b = c->reader.back;
    const int64_t j = i % c->s.co;
    double dy = at(&c->in, i);
    if (!b) return dy;
    const double z = at(&c->z, i);
    dy *= slope(b->norm.activation, scaled(&b->norm, z, j));
    if (b->sum[0]) {
        dy -= (double)b->sum[0][j] / b->count +
              (z - (double)b->norm.mean[j]) * inverse(&b->norm, j) * ((double)b->sum[1][j] / b->count);
    }
    return dy * inverse(&b->norm, j) * (b->norm.gamma ? (double)b->norm.gamma[j] : 1);
}

static double rounded(const call *c, double x) {
    return c->how->products ? (double)half_to_float(float_to_half((float)x)) : x;
}

/* Each output, tap and pair of channels within the image. */
static void work_out(const call *c, double *dkernel, double *dkernel_size, double *db, double *db_size) {
    const mirt__conv *s = &c->s;
    const int64_t cig = s->ci / s->groups, cog = s->co / s->groups;
    double *x = (double *)calloc((size_t)(c->x.count + 1), sizeof(double));
    for (int64_t i = 0; i < c->x.count; i++) x[i] = rounded(c, read_x(c, i));
    for (int64_t o = 0; o < s->rows * s->oh * s->ow; o++) {
        for (int64_t j = 0; j < s->co; j++) {
            const double dy = c->back ? rounded(c, read_dy(c, o * s->co + j)) : 0;
            db[j] += dy;
            db_size[j] += fabs(dy);
            for (int t = 0; t < s->kh * s->kw; t++) {
                const int64_t y = o / s->ow % s->oh * s->stride_h - s->pad_top + t / s->kw * s->dilation_h;
                const int64_t across = o % s->ow * s->stride_w - s->pad_left + t % s->kw * s->dilation_w;
                if (y < 0 || y >= s->h || across < 0 || across >= s->w) continue;
                const int64_t first = ((o / (s->oh * s->ow) * s->h + y) * s->w + across) * s->ci + j / cog * cig;
                for (int64_t g = 0; g < cig; g++) {
                    const int64_t i = first + g, at_kernel = (t * cig + g) * s->co + j,
                                  to = c->back ? i : o * s->co + j;
                    const double k = rounded(c, at(&c->kernel, at_kernel)), product = c->back ? dy * k : x[i] * k;
                    c->want[to] += product;
                    c->size[to] += fabs(product);
                    dkernel[at_kernel] += x[i] * dy;
                    dkernel_size[at_kernel] += fabs(x[i] * dy);
                }
            }
        }
    }
    free(x);
}

/* The epilogue, and the column sums it leaves, with their sizes. */
static void finish(const call *c, double *sum[2], double *sum_size[2]) {
    const mirt__epilogue *e = &c->epilogue;
    const int64_t n = c->back ? c->s.ci : c->s.co;
    const double rows = (double)c->out.count / (double)n;
    for (int64_t i = 0; i < c->out.count; i++) {
        const int64_t j = i % n;
        double y = c->want[i], factor = 1;
        c->size[i] += 0.01;
        if (e->bias) y += (double)e->bias[j];
        if (e->norm) {
            factor = inverse(e->norm, j) * (e->norm->gamma ? fabs((double)e->norm->gamma[j]) : 1);
            c->size[i] = (c->size[i] + 2) * factor + 2;
            y = scaled(e->norm, y, j);
        }
        if (e->add) y += at(&c->add, i);
        if (e->bias || e->add) c->size[i] += 4;
        y = activate(e->activation, y);
        if (e->mask && at(&c->mask, i) <= 0) y = 0;
        if (e->slope) y *= slope(e->slope->activation, scaled(e->slope, at(&c->slope_x, i), j));
        c->want[i] = y;
        const double hat = e->slope ? (at(&c->slope_x, i) - (double)e->slope->mean[j]) * inverse(e->slope, j) : 0;
        sum[0][j] += c->back ? y : y / rows;
        sum[1][j] += c->back ? y * hat : 0;
        sum_size[0][j] += (c->size[i] + fabs(y)) * (c->back ? 1 : 1 / rows);
        sum_size[1][j] += (c->size[i] + fabs(y)) * (c->back ? 4 : (c->size[i] + fabs(y)) / rows);
    }
    for (int64_t i = 0; !c->back && i < c->out.count; i++)
        sum[1][i % n] += (c->want[i] - sum[0][i % n]) * (c->want[i] - sum[0][i % n]) / rows;
}

/* A slope without a normalization to read: training with stored operands, where convolutions have no bias. */
static bool biased(const call *c) { return !c->how->slope || c->how->norm; }

/* Scratch of exactly the size that is asked for; what was left in it may not matter. `what` 0 makes all of backward (of
   depthwise ones and with both_at_once in one pass), 1 and 2 one gradient each. */
static void run(const call *c, const mirt__kernels *k, mirt__team *team, int what) {
    mirt__where where;
    const int size = mirt__team_size(team);
    const bool one_pass = (depthwise || both_at_once) && what == 0;
    size_t scratch = mirt__conv_scratch(&c->s), shared = mirt__conv_shared(&c->s);
    if (winograd) mirt__winograd_room(&c->s, &scratch, &shared);
    where.team = team;
    where.scratch_per_thread = scratch;
    where.scratch = malloc(scratch * (size_t)size + 64);
    where.shared = malloc(shared + 64);
    memset(where.scratch, 0xFF, scratch * (size_t)size);
    memset(where.shared, 0xFF, shared);
    if (!c->back) {
        mirt__conv_forward f;
        memset(&f, 0, sizeof f);
        f.s = c->s;
        f.x = c->reader;
        f.kernel = (const float *)c->kernel.data;
        f.y = c->out.data;
        f.y_dtype = c->out.dtype;
        f.half = c->how->products;
        f.winograd = winograd;
        f.epilogue = c->epilogue;
        k->conv_forward(&f, &where);
    }
    if (c->back && what != 2) {
        mirt__conv_input_grad g;
        memset(&g, 0, sizeof g);
        g.s = c->s;
        g.dy = c->reader;
        g.kernel = (const float *)c->kernel.data;
        g.dx = c->out.data;
        g.dx_dtype = c->out.dtype;
        g.half = c->how->products;
        g.winograd = winograd;
        g.epilogue = c->epilogue;
        if (one_pass) {
            g.x = &c->x_reader;
            g.dkernel = (float *)c->dkernel.data;
            g.db = biased(c) ? (float *)c->db.data : NULL;
        }
        k->conv_input_grad(&g, &where);
    }
    if (c->back && what != 1 && !winograd && !one_pass) {
        mirt__conv_weight_grad g;
        memset(&g, 0, sizeof g);
        g.s = c->s;
        g.x = c->x_reader;
        g.dy = c->reader;
        g.dkernel = (float *)c->dkernel.data;
        g.db = biased(c) ? (float *)c->db.data : NULL;
        g.half = c->how->products;
        k->conv_weight_grad(&g, &where);
    }
    free(where.scratch);
    free(where.shared);
}

static double error_of(const array *got, const double *want, const double *size) {
    double error = 0;
    for (int64_t i = 0; i < got->count; i++) {
        const double rounding = got->dtype == MIRT_FLOAT32 ? 0 : fabs(want[i]) / 250;
        const double off = fabs(at(got, i) - want[i]) - rounding;
        error = worse(error, off > 0 || off != off ? off / (size[i] + 1e-3) : 0);
    }
    return error;
}

static array copy_of(const array *a) {
    array b = array_of(a->dtype, a->count, false);
    memcpy(b.data, a->data, (size_t)a->count * size_of(a->dtype));
    return b;
}

/* The arrays that a call writes. */
enum { WRITTEN = 5 };
static void written(call *c, array *out[WRITTEN]) {
    out[0] = &c->out;
    out[1] = c->epilogue.sums != MIRT__SUMS_NONE ? &c->sum[0] : NULL;
    out[2] = c->epilogue.sums != MIRT__SUMS_NONE ? &c->sum[1] : NULL;
    out[3] = c->back && !winograd ? &c->dkernel : NULL;
    out[4] = c->back && !winograd && biased(c) ? &c->db : NULL;
}

/* Every table and team: the values of the first, which are compared with double arithmetic. */
static bool all_same(call *c, const mirt__kernels *const *tables, int count, bool *guarded) {
    array *out[WRITTEN], first[WRITTEN];
    bool good = true;
    written(c, out);
    run(c, tables[0], NULL, 0);
    for (int i = 0; i < WRITTEN; i++) {
        if (out[i]) first[i] = copy_of(out[i]);
    }
    for (int t = 0; t < count; t++) {
        bool comparable =
            strcmp(tables[t]->name, "reference") != 0 && (!c->how->products || tables[t]->half == tables[0]->half);
#ifndef FP_FAST_FMAF
        comparable = comparable && strcmp(tables[t]->name, "plain") != 0;
#endif
        for (int team = 0; team < (lawful(tables[t]) ? TEAMS : 2) && comparable; team++) {
            for (int what = 0; what < (c->back && depthwise ? 3 : c->back && both_at_once ? 2 : 1); what++) {
                for (int i = 0; i < WRITTEN; i++) {
                    if (out[i]) memset(out[i]->data, 0xFF, (size_t)out[i]->count * size_of(out[i]->dtype));
                }
                run(c, tables[t], teams[team], what);
                for (int i = 0; i < WRITTEN; i++) {
                    const bool made = what == 0 || (what == 1) == (i < 3);
                    if (!out[i] || !made) continue;
                    good = good && (what ? same_as_law(tables[t], out[i], &first[i]) : same(out[i], &first[i]));
                    *guarded = *guarded && intact(out[i]);
                }
            }
        }
    }
    for (int i = 0; i < WRITTEN; i++) {
        if (!out[i]) continue;
        memcpy(out[i]->data, first[i].data, (size_t)out[i]->count * size_of(out[i]->dtype));
        free(first[i].block);
    }
    return good;
}

static void check(const shape *p, const setup *how, bool back, const mirt__kernels *const *tables, int count) {
    call c = call_of(p, how, back);
    const size_t n = (size_t)(p->ci > p->co ? p->ci : p->co), taps = (size_t)c.kernel.count;
    double *room = (double *)calloc(2 * taps + 6 * n, sizeof(double));
    double *dkernel = room, *dkernel_size = room + taps, *db = room + 2 * taps, *db_size = db + n;
    double *sum[2] = {db + 2 * n, db + 3 * n}, *sum_size[2] = {db + 4 * n, db + 5 * n}, error = 0, sum_error = 0;
    bool guarded = true;
    call_ready(&c);
    const bool equal = all_same(&c, tables, count, &guarded);
    work_out(&c, dkernel, dkernel_size, db, db_size);
    finish(&c, sum, sum_size);
    error = worse(error, error_of(&c.out, c.want, c.size));
    if (back && !winograd) {
        error = worse(error, error_of(&c.dkernel, dkernel, dkernel_size));
        if (biased(&c)) error = worse(error, error_of(&c.db, db, db_size));
    }
    for (int i = 0; i < 2 && c.epilogue.sums != MIRT__SUMS_NONE && p->rows > 0; i++)
        sum_error = worse(sum_error, error_of(&c.sum[i], sum[i], sum_size[i]));
    const bool near = how->products && (how->norm || how->gate); /* what is rounded may have come out on either side */
    ok(error < (near ? 4e-3 : 1e-4) && sum_error < (how->products ? 1e-3 : 4e-6) && equal && guarded,
       "%s of %dx%dx%dx%d to %d, %dx%d/%d, %s: off by %.1e, sums by %.1e%s%s", back ? "gradients" : "forward", p->rows,
       p->h, p->w, p->ci, p->co, p->kh, p->kw, p->sh, how->name, error, sum_error, equal ? "" : ", bits differ",
       guarded ? "" : ", written elsewhere");
    free(room);
    call_free(&c);
}

/* An image's outputs do not depend on which images stand around it. */
static void check_places(const shape *p, const mirt__kernels *k) {
    enum { SUMS = 9 };
    for (int back = 0; back < 2; back++) {
        call c = call_of(p, &setups[SUMS], back != 0), one;
        bool good = true;
        call_ready(&c);
        c.epilogue.sums = MIRT__SUMS_NONE;
        run(&c, k, NULL, 1);
        for (int image = 0; image < p->rows; image++) {
            const int64_t in = c.in.count / p->rows, out = c.out.count / p->rows;
            array y = array_of(MIRT_FLOAT32, out, false), part = c.out;
            mirt__norm_back b = c.norm_back;
            one = c;
            one.s.rows = 1;
            one.reader.data = (const float *)c.in.data + image * in;
            b.z = (const float *)c.z.data + image * in;
            if (back) one.reader.back = &b;
            if (back) one.epilogue.slope_x = (const float *)c.slope_x.data + image * out;
            one.out = y;
            run(&one, k, NULL, 1);
            part.data = (float *)c.out.data + image * out;
            good = good && same_as_law(k, &y, &part);
            free(y.block);
        }
        ok(good, "%s of an image alone are the same", back ? "gradients" : "outputs");
        call_free(&c);
    }
}

/* With MIRT_TEST_SMALL a third of the cases is taken of large shapes, on simulated GPUs of all, another one with each
   seed. */
static bool left_out(const mirt__kernels *k, const shape *p, int number) {
    const char *seed = getenv("MIRT_SIM_SEED");
    const double products = (double)p->rows * p->h * p->w / p->sh / p->sw * p->kh * p->kw * p->ci / p->groups * p->co;
    if (!small_tier() || (lawful(k) && products < 1e5)) return false;
    return (!lawful(k) && products > 3e6) || number % 3 != (seed ? atoi(seed) % 3 : 0);
}

static void check_all(const shape *shapes, int shape_count, const shape *placed) {
    int count;
    const mirt__kernels *const *tables = mirt__kernel_tables(&count);
    numbers = mirt__random_stream(7, 11);
    for (int i = 1; i < TEAMS; i++) teams[i] = mirt__team_create(i + 1, false);
    for (int i = 0; i < shape_count; i++) {
        for (int j = 0; j < (int)(sizeof setups / sizeof *setups); j++) {
            if (left_out(tables[0], &shapes[i], i + j)) continue;
            if (depthwise && (setups[j].gate || setups[j].bytes || setups[j].products)) continue;
            for (int back = 0; back < 2; back++) {
                const mirt__random same = numbers;
                check(&shapes[i], &setups[j], back != 0, tables, count);
                if (!setups[j].products || !tables[0]->half || !lawful(tables[0])) continue;
                numbers = same; /* products that are emulated, too */
                check(&shapes[i], &setups[j], back != 0, tables + 1, count - 1);
            }
        }
    }
    check_places(placed, tables[0]);
    for (int i = 1; i < TEAMS; i++) mirt__team_destroy(teams[i]);
}

#endif
