/* Tests tiled reads and epilogues of every table's primitives against plain double arithmetic. AVX2 and AVX-512
   are bit-identical; the activations' curves are tested over all floats. */
#include "../mirrortrain.h"
#include "../src/kernels/simd.c"
#include "tap.h"

#include "bfloat16.h"

typedef struct table {
    const char *name;
    const mirt__simd *simd;
    bool same; /* the same bits as the others */
} table;
static table tables[3];
static int table_count;

static void find_tables(void) {
    int count;
    const mirt__kernels *const *all = mirt__kernel_tables(&count);
    for (int i = 0; i < count; i++) {
        table t = {all[i]->name, NULL, true};
#if defined(__x86_64__) && !defined(MIRRORTRAIN_NO_SIMD)
        if (strcmp(t.name, "avx512") == 0) t.simd = &mirt__simd_avx512;
        if (strcmp(t.name, "avx2") == 0) t.simd = &mirt__simd_avx2;
#endif
#if defined(__aarch64__) && !defined(MIRRORTRAIN_NO_SIMD)
        if (strcmp(t.name, "neon") == 0) t.simd = &mirt__simd_neon;
#endif
        if (strcmp(t.name, "plain") == 0) {
            t.simd = &mirt__simd_plain;
#ifndef FP_FAST_FMAF
            t.same = false; /* without fused multiply-adds */
#endif
        }
        if (t.simd) tables[table_count++] = t;
    }
}

static mirt__random source_of_numbers;
static float number(void) { return mirt__random_unit(&source_of_numbers) * 4 - 2; }

/* An array of numbers of float32 or bfloat16, with a value beyond its end that nobody may use. */
typedef struct array {
    mirt_dtype dtype;
    int64_t count;
    void *data;
} array;
static float at(const array *a, int64_t i) {
    return a->dtype == MIRT__BFLOAT16 ? half_to_float(((uint16_t *)a->data)[i]) : ((float *)a->data)[i];
}
static void put(array *a, int64_t i, float x) {
    if (a->dtype == MIRT__BFLOAT16) ((uint16_t *)a->data)[i] = float_to_half(x);
    else ((float *)a->data)[i] = x;
}
/* Ends with its block, so that the address sanitizer sees an element too many. */
static array make(mirt_dtype dtype, int64_t count) {
    array a;
    a.dtype = dtype;
    a.count = count;
    a.data = malloc((size_t)count * mirt__dtype_size(dtype) + 1);
    for (int64_t i = 0; i < count; i++) put(&a, i, number());
    return a;
}
static float *floats(int64_t count, float low, float high) {
    float *p = (float *)malloc((size_t)count * sizeof(float) + 1);
    for (int64_t i = 0; i < count; i++) p[i] = low + (high - low) * mirt__random_unit(&source_of_numbers);
    return p;
}

/* ---- activations in double */

#define PI 3.14159265358979323846

static double activation(mirt_activation_kind kind, double x) {
    const double sigmoid = 1 / (1 + exp(-x));
    switch (kind) {
    case MIRT_RELU: return x > 0 ? x : 0;
    case MIRT_RELU6: return x > 6 ? 6 : x > 0 ? x : 0;
    case MIRT_SIGMOID: return sigmoid;
    case MIRT_TANH: return tanh(x);
    case MIRT_LEAKY_RELU: return x > 0 ? x : x * (double)0.2f;
    case MIRT_ELU: return x > 0 ? x : expm1(x);
    case MIRT_GELU: return x * erfc(-x / sqrt(2)) / 2;
    case MIRT_SILU: return x * sigmoid;
    case MIRT_HARD_SIGMOID: return x < -3 ? 0 : x > 3 ? 1 : (x + 3) / 6;
    case MIRT_HARD_SWISH: return x * activation(MIRT_HARD_SIGMOID, x);
    case MIRT_SOFTPLUS: return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case MIRT_SELU: return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * expm1(x));
    case MIRT_MISH: return x * tanh(log1p(exp(x)));
    case MIRT_SOFTSIGN: return x / (1 + fabs(x));
    case MIRT_EXPONENTIAL: return exp(x);
    case MIRT_GELU_APPROXIMATE: return x / (1 + exp(-2 * sqrt(2 / PI) * (x + 0.044715 * x * x * x)));
    default: return x;
    }
}
static double slope(mirt_activation_kind kind, double x) {
    const double sigmoid = 1 / (1 + exp(-x)), gate = tanh(log1p(exp(x)));
    const double bent = tanh(sqrt(2 / PI) * (x + 0.044715 * x * x * x));
    switch (kind) {
    case MIRT_RELU: return x > 0;
    case MIRT_RELU6: return x > 0 && x < 6;
    case MIRT_SIGMOID: return sigmoid * (1 - sigmoid);
    case MIRT_TANH: return 1 - tanh(x) * tanh(x);
    case MIRT_LEAKY_RELU: return x > 0 ? 1 : (double)0.2f;
    case MIRT_ELU: return x > 0 ? 1 : exp(x);
    case MIRT_GELU: return erfc(-x / sqrt(2)) / 2 + x * exp(-x * x / 2) / sqrt(2 * PI);
    case MIRT_SILU: return sigmoid * (1 + x * (1 - sigmoid));
    case MIRT_HARD_SIGMOID: return x > -3 && x < 3 ? 1.0 / 6 : 0;
    case MIRT_HARD_SWISH: return activation(MIRT_HARD_SIGMOID, x) + (x > -3 && x < 3 ? x / 6 : 0);
    case MIRT_SOFTPLUS: return sigmoid;
    case MIRT_SELU: return 1.0507009873554805 * (x > 0 ? 1 : 1.6732632423543772 * exp(x));
    case MIRT_MISH: return gate + x * (1 - gate * gate) * sigmoid;
    case MIRT_SOFTSIGN: return 1 / ((1 + fabs(x)) * (1 + fabs(x)));
    case MIRT_EXPONENTIAL: return exp(x);
    case MIRT_GELU_APPROXIMATE:
        return (1 + bent) / 2 + x * (1 - bent * bent) * sqrt(2 / PI) * (1 + 3 * 0.044715 * x * x) / 2;
    default: return 1;
    }
}
/* The derivative as a function of the output. */
static double mask_slope(mirt_activation_kind kind, double y) {
    switch (kind) {
    case MIRT_RELU: return y > 0;
    case MIRT_RELU6: return y > 0 && y < 6;
    case MIRT_SIGMOID: return y * (1 - y);
    case MIRT_TANH: return 1 - y * y;
    default: return 1;
    }
}
static const mirt_activation_kind kinds[] = {MIRT_LINEAR,  MIRT_RELU,         MIRT_RELU6,      MIRT_SILU,
                                             MIRT_SIGMOID, MIRT_TANH,         MIRT_LEAKY_RELU, MIRT_ELU,
                                             MIRT_GELU,    MIRT_HARD_SIGMOID, MIRT_HARD_SWISH, MIRT_SOFTPLUS,
                                             MIRT_SELU,    MIRT_MISH,         MIRT_SOFTSIGN,   MIRT_EXPONENTIAL,
                                             MIRT_GELU_APPROXIMATE};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- scalings */

typedef struct scaling {
    mirt__scaling s;
    float *mean, *variance, *gamma, *beta;
} scaling;
static scaling scaling_of(int64_t n, mirt_activation_kind kind, bool affine) {
    scaling s;
    s.mean = floats(n, -1, 1);
    s.variance = floats(n, 0.1f, 2);
    s.gamma = floats(n, -2, 2);
    s.beta = floats(n, -1, 1);
    s.s.mean = s.mean;
    s.s.variance = s.variance;
    s.s.gamma = affine ? s.gamma : NULL;
    s.s.beta = affine ? s.beta : NULL;
    s.s.epsilon = 1e-3f;
    s.s.activation = kind;
    return s;
}
static void scaling_free(scaling *s) {
    free(s->mean);
    free(s->variance);
    free(s->gamma);
    free(s->beta);
}
/* As float arithmetic has it, step by step: kinks must fall on the same side. */
static float scaled(const mirt__scaling *s, float x, int64_t j) {
    volatile float y = x - s->mean[j];
    volatile float factor = (s->gamma ? s->gamma[j] : 1.0f) * (1.0f / sqrtf(s->variance[j] + s->epsilon));
    y = y * factor;
    y = y + (s->beta ? s->beta[j] : 0.0f);
    return y;
}

/* ---- reads */

/* Compares what each table reads with `want`, the sum of numbers whose magnitudes add up to `size`. Whole pixels, one
   pixel, and a part of one. */
static void check_read(const mirt__reader *reader, const double *want, const double *size, int64_t count,
                       const char *what) {
    float *first = NULL;
    const int64_t c = reader->channels;
    float *columns = (float *)malloc(mirt__source_floats(reader) * sizeof(float) + 1);
    const mirt__source source = mirt__source_of(reader, columns);
    for (int t = 0; t < table_count; t++) {
        const int64_t ranges[][2] = {
            {0, count}, {c, c},        {count - c, c}, {c + c / 3, c - c / 3}, {2 * c + c / 2, c / 4},
            {3 * c, 0}, {2 * c, 5 * c}};
        double worst = 0;
        bool outside = false, same = true;
        float *all = (float *)malloc((size_t)count * sizeof(float));
        for (int r = 0; r < (int)(sizeof ranges / sizeof ranges[0]); r++) {
            const int64_t from = ranges[r][0], n = ranges[r][1];
            float *to = (float *)malloc((size_t)(n + 1) * sizeof(float));
            to[n] = 1234.5f;
            tables[t].simd->read(to, &source, from, n);
            for (int64_t i = 0; i < n; i++)
                worst = worse(worst, fabs((double)to[i] - want[from + i]) / (1 + size[from + i]));
            if (to[n] != 1234.5f) outside = true;
            if (r == 0) memcpy(all, to, (size_t)n * sizeof(float));
            else if (memcmp(all + from, to, (size_t)n * sizeof(float)) != 0) same = false;
            free(to);
        }
        if (worst > 2e-6 || outside || !same) {
            ok(false, "%s: %s, %lld channels: error %.2g%s%s", tables[t].name, what, (long long)c, worst,
               outside ? ", writes outside" : "", same ? "" : ", bits depend on the place");
        }
        if (!first) {
            first = all;
        } else {
            if (tables[t].same && memcmp(first, all, (size_t)count * sizeof(float)) != 0) {
                ok(false, "%s: %s, %lld channels: other bits than %s", tables[t].name, what, (long long)c,
                   tables[0].name);
            }
            free(all);
        }
    }
    free(first);
    free(columns);
}

static void test_reads(int64_t c, mirt_dtype dtype) {
    const int64_t pixels = 23, count = pixels * c;
    const int before = tap_failed;
    array x = make(dtype, count), dy = make(dtype, count);
    double *want = (double *)malloc((size_t)count * sizeof(double)),
           *size = (double *)malloc((size_t)count * sizeof(double));
    mirt__reader reader;
    for (int k = -1; k < KINDS; k++) { /* -1: no normalization */
        for (int gated = 0; gated < 2; gated++) {
            scaling s = scaling_of(c, k < 0 ? MIRT_LINEAR : kinds[k], (k & 1) != 0);
            const int64_t gate_pixels = 5;
            float *gate = floats((pixels + 4) / gate_pixels * c, 0, 1);
            memset(&reader, 0, sizeof reader);
            reader.data = x.data;
            reader.dtype = dtype;
            reader.channels = c;
            reader.norm = k < 0 ? NULL : &s.s;
            reader.gate = gated ? gate : NULL;
            reader.gate_pixels = gated ? gate_pixels : 0;
            for (int64_t i = 0; i < count; i++) {
                want[i] = k < 0 ? (double)at(&x, i) : activation(kinds[k], (double)scaled(&s.s, at(&x, i), i % c));
                if (gated) want[i] *= (double)gate[i / c / gate_pixels * c + i % c];
                size[i] = fabs(want[i]);
            }
            check_read(&reader, want, size, count, gated ? "gate" : "norm");
            free(gate);
            scaling_free(&s);
        }
    }
    for (int k = 0; k < KINDS; k++) {
        for (int constant = 0; constant < 2; constant++) {
            scaling s = scaling_of(c, kinds[k], (k & 1) != 0);
            float *sum[2] = {floats(c, -20, 20), floats(c, -20, 20)};
            mirt__norm_back back;
            memset(&back, 0, sizeof back);
            back.norm = s.s;
            back.z = x.data;
            back.count = 23;
            if (!constant) {
                back.sum[0] = sum[0];
                back.sum[1] = sum[1];
            }
            memset(&reader, 0, sizeof reader);
            reader.data = dy.data;
            reader.dtype = dtype;
            reader.channels = c;
            reader.back = &back;
            for (int64_t i = 0; i < count; i++) {
                const int64_t j = i % c;
                const double inverse = 1 / sqrt((double)s.variance[j] + (double)s.s.epsilon),
                             factor = (s.s.gamma ? (double)s.gamma[j] : 1) * inverse;
                const double g = (double)at(&dy, i) * slope(kinds[k], (double)scaled(&s.s, at(&x, i), j)),
                             less = constant ? 0 : (double)sum[0][j] / 23,
                             away = ((double)at(&x, i) - (double)s.mean[j]) * inverse,
                             part = constant ? 0 : away * (double)sum[1][j] / 23;
                want[i] = (g - less - part) * factor;
                size[i] = (fabs(g) + fabs(less) + fabs(part)) * fabs(factor);
            }
            check_read(&reader, want, size, count, "back");
            free(sum[0]);
            free(sum[1]);
            scaling_free(&s);
        }
    }
    ok(tap_failed == before, "%s, %lld channels: reads", mirt__dtype_name(dtype), (long long)c);
    free(want);
    free(size);
    free(x.data);
    free(dy.data);
}

/* ---- outputs */

enum { ROWS = 13, SPLIT = 5 }; /* rows come in two calls */

static void check_finish(int64_t c, mirt_dtype dtype, int variant, mirt_activation_kind kind, bool in_place,
                         bool stream) {
    const mirt__column_sums sums = (mirt__column_sums)(variant % 3);
    const bool bias = (variant / 3) & 1, norm = (variant / 6) & 1, add = (variant / 12) & 1, mask = (variant / 24) & 1,
               sloped = ((variant / 48) & 1) || sums == MIRT__SUMS_GRADIENT;
    const mirt_activation_kind mask_kind = (mirt_activation_kind)(variant % 4 == 3 ? (int)MIRT_RELU6 : variant % 4);
    const mirt_activation_kind slope_kind = sloped && !(variant / 48 & 1) ? MIRT_LINEAR : kinds[(variant + 1) % KINDS];
    const int64_t columns = stream ? c - c / 64 * 32 : c - c / 5; /* the last ones of the output's */
    const int64_t j0 = c - columns;
    scaling s = scaling_of(c, MIRT_LINEAR, true), u = scaling_of(c, slope_kind, true);
    float *b = floats(c, -1, 1), *raw = floats(ROWS * c, -2, 2);
    array adds = make(dtype, ROWS * c), masks = make(dtype, ROWS * c), z = make(dtype, ROWS * c);
    double *want = (double *)malloc(sizeof(double) * (size_t)(ROWS * c)), sum[2][256];
    mirt__epilogue e;
    memset(&e, 0, sizeof e);
    e.bias = bias ? b : NULL;
    e.norm = norm ? &s.s : NULL;
    e.add = add ? adds.data : NULL;
    e.activation = kind;
    e.mask = mask ? masks.data : NULL;
    e.mask_activation = mask_kind;
    e.slope = sloped ? &u.s : NULL;
    e.slope_x = sloped ? z.data : NULL;
    e.sums = sums;
    memset(sum, 0, sizeof sum);
    for (int64_t i = 0; i < ROWS * c; i++) {
        const int64_t j = i % c;
        volatile float x = raw[i];
        if (bias) x = x + b[j];
        if (norm) x = scaled(&s.s, x, j);
        if (add) x = x + at(&adds, i);
        want[i] = activation(kind, (double)x);
        if (mask) want[i] *= mask_slope(mask_kind, (double)at(&masks, i));
        if (sloped) want[i] *= slope(slope_kind, (double)scaled(&u.s, at(&z, i), j));
        sum[0][j] += want[i];
    }
    for (int64_t i = 0; i < ROWS * c; i++) {
        const int64_t j = i % c;
        const double d = want[i] - sum[0][j] / ROWS;
        if (sums == MIRT__SUMS_MOMENTS) sum[1][j] += d * d / ROWS;
        else
            sum[1][j] +=
                want[i] * ((double)at(&z, i) - (double)u.mean[j]) / sqrt((double)u.variance[j] + (double)u.s.epsilon);
    }
    uint8_t *first = NULL;
    float first_sum[2][256];
    const size_t bytes = (size_t)(ROWS * c) * mirt__dtype_size(dtype);
    for (int t = 0; t < table_count; t++) {
        float *from = (float *)malloc((size_t)(ROWS * c) * sizeof(float)),
              *part = (float *)malloc((size_t)(3 * c) * sizeof(float) + 1);
        float *room = (float *)malloc(mirt__finishing_floats(&e, c) * sizeof(float) + 1), got[2][256];
        array y = {dtype, ROWS * c, mirt__aligned_alloc(bytes + 64)};
        memcpy(from, raw, (size_t)(ROWS * c) * sizeof(float));
        if (in_place) memcpy(y.data, raw, bytes);
        for (int64_t i = 0; i < ROWS * c && !in_place; i++) put(&y, i, 7);
        mirt__finishing all = mirt__finishing_of(&e, c, y.data, dtype, room), f = mirt__finishing_at(&all, j0);
        f.sum = sums ? part + j0 : NULL;
        f.fresh = true;
        f.stream = stream;
        for (int r = 0; r < 2; r++) {
            float *rows[ROWS];
            int64_t place[ROWS];
            const int begin = r ? SPLIT : 0, n = r ? ROWS - SPLIT : SPLIT;
            for (int i = 0; i < n; i++) {
                place[i] = (begin + i) * c + j0;
                rows[i] = (in_place ? (float *)y.data : from) + place[i];
            }
            tables[t].simd->finish_rows(&f, rows, place, n, columns);
            f.fresh = false;
        }
        double worst = 0, worst_sum = 0;
        for (int64_t i = 0; i < ROWS * c; i++) {
            if (i % c >= j0) worst = worse(worst, fabs((double)at(&y, i) - want[i]) / (1 + fabs(want[i])));
            else if (at(&y, i) != (in_place ? raw[i] : 7)) worst = 99;
        }
        if (sums) {
            const mirt__chunk_sums chunk = {part, 1, 3 * c, c, 1, ROWS, ROWS, NULL};
            e.sum[0] = got[0];
            e.sum[1] = got[1];
            mirt__column_sums_finish(&e, &chunk, j0, c);
            for (int64_t j = j0; j < c; j++) {
                const double mean = sums == MIRT__SUMS_MOMENTS ? sum[0][j] / ROWS : sum[0][j];
                worst_sum = worse(worst_sum, fabs((double)got[0][j] - mean) / (10 + fabs(mean)));
                worst_sum = worse(worst_sum, fabs((double)got[1][j] - sum[1][j]) / (10 + fabs(sum[1][j])));
            }
        }
        /* exponentials enlarge errors, and a sum may then have a number that was rounded the other way */
        const bool half = dtype == MIRT__BFLOAT16, steep = kind == MIRT_EXPONENTIAL || slope_kind == MIRT_EXPONENTIAL;
        if (worst > (half ? 4e-3 : 4e-6) * (1 + steep) || worst_sum > (half && steep ? 4e-5 : 4e-6 * (1 + steep))) {
            ok(false, "%s: variant %d, kind %d, %lld channels: error %.2g, of sums %.2g", tables[t].name, variant,
               (int)kind, (long long)c, worst, worst_sum);
        }
        if (t == 0) {
            first = (uint8_t *)malloc(bytes);
            memcpy(first, y.data, bytes);
            memcpy(first_sum, got, sizeof got);
        } else if (tables[t].same &&
                   (memcmp(first, y.data, bytes) != 0 ||
                    (sums && (memcmp(first_sum[0] + j0, got[0] + j0, (size_t)columns * sizeof(float)) != 0 ||
                              memcmp(first_sum[1] + j0, got[1] + j0, (size_t)columns * sizeof(float)) != 0)))) {
            ok(false, "%s: variant %d, kind %d, %lld channels: other bits than %s", tables[t].name, variant, (int)kind,
               (long long)c, tables[0].name);
        }
        free(from);
        free(part);
        free(room);
        mirt__aligned_free(y.data);
    }
    free(first);
    free(b);
    free(raw);
    free(adds.data);
    free(masks.data);
    free(z.data);
    free(want);
    scaling_free(&s);
    scaling_free(&u);
}

static void test_finish(int64_t c, mirt_dtype dtype) {
    const int before = tap_failed;
    for (int variant = 0; variant < 96; variant++) {
        for (int k = 0; k < KINDS; k += 1 + (variant % 3 != 0)) {
            check_finish(c, dtype, variant, kinds[k], false, k % 2 == 0);
            if (dtype == MIRT_FLOAT32 && k < 3) check_finish(c, dtype, variant, kinds[k], true, false);
        }
    }
    ok(tap_failed == before, "%s, %lld channels: outputs", mirt__dtype_name(dtype), (long long)c);
}

/* ---- curves */

/* The curve of an activation alone: a normalization that leaves x as it is. */
static void curve(const mirt__simd *simd, mirt_activation_kind kind, const float *x, float *y, int64_t n) {
    const float zero = 0, one = 1;
    const mirt__scaling s = {&zero, &one, NULL, NULL, 0, kind};
    mirt__reader reader;
    float columns[5];
    memset(&reader, 0, sizeof reader);
    reader.data = x;
    reader.channels = 1;
    reader.norm = &s;
    const mirt__source source = mirt__source_of(&reader, columns);
    simd->read(y, &source, 0, n);
}

/* Far below zero the approximate gelu is the exponential of a large number, whose rounding counts. */
static double loose(mirt_activation_kind kind, float x) { return kind == MIRT_GELU_APPROXIMATE && x < -3 ? 20 : 1; }

static void test_curves(void) {
    enum { N = 40001 };
    float *x = (float *)malloc(N * sizeof(float)), *y = (float *)malloc(N * sizeof(float));
    static const float special[] = {INFINITY, -INFINITY, 100, -100, 88.7f, -87.3f, 1e30f, -1e30f,
                                    1e-30f,   -1e-30f,   0,   6,    -6,    3,      -3};
    for (int t = 0; t < table_count; t++) {
        for (int k = 0; k < KINDS; k++) {
            double worst = 0, near_zero = 0;
            for (int i = 0; i < N; i++) x[i] = (float)(i - N / 2) * 1e-3f;
            curve(tables[t].simd, kinds[k], x, y, N);
            for (int i = 0; i < N; i++) {
                const double want = activation(kinds[k], (double)x[i]);
                const bool far = (x[i] < -13 && kinds[k] == MIRT_GELU) || /* below the least normal numbers */
                                 (x[i] < -10 && kinds[k] == MIRT_GELU_APPROXIMATE);
                const double unit = (far ? 1 : fabs(want) + 1e-37) * loose(kinds[k], x[i]);
                worst = worse(worst, fabs((double)y[i] - want) / unit);
            }
            for (int i = 0; i < N; i++) x[i] = (float)(i - N / 2) * 1e-9f;
            curve(tables[t].simd, kinds[k], x, y, N);
            for (int i = 0; i < N; i++) {
                const double want = activation(kinds[k], (double)x[i]);
                near_zero = worse(near_zero, fabs((double)y[i] - want) / (fabs(want) + 1e-37));
            }
            ok(worst < (tables[t].same ? 1e-6 : 5e-6) && near_zero < 1e-6,
               "%s: activation %d, relative error %.2g, near zero %.2g", tables[t].name, (int)kinds[k], worst,
               near_zero);
            bool limits = true;
            curve(tables[t].simd, kinds[k], special, y, MIRT__COUNT(special));
            for (int i = 0; i < (int)MIRT__COUNT(special); i++) {
                const double want = (double)(float)activation(kinds[k], (double)special[i]); /* may be infinite */
                const double allowed = 1e-6 * loose(kinds[k], special[i]) * fabs(want) + 1e-36;
                if (want == want && !((double)y[i] == want || fabs((double)y[i] - want) <= allowed))
                    limits = false;
            }
            const uint32_t bits = 0x7FC12345u; /* not a number, and says more */
            memcpy(x, &bits, sizeof bits);
            curve(tables[t].simd, kinds[k], x, y, 1);
            ok(limits && y[0] != y[0], "%s: activation %d at and beyond the limits", tables[t].name, (int)kinds[k]);
        }
    }
    free(x);
    free(y);
}

/* Rounding to bfloat16, halfway cases and what is not a number. */
static void test_rounding(void) {
    static const uint32_t cases[] = {0x3F808000u, 0x3F818000u, 0x3F808001u, 0x3F807FFFu, 0x7F7FFFFFu,
                                     0x7F800000u, 0xFF800000u, 0x7F800001u, 0x7FC00000u, 0xFFFFFFFFu,
                                     0x80000001u, 0x00008000u, 0x0000FFFFu};
    enum { N = sizeof cases / sizeof cases[0] };
    float x[N];
    memcpy(x, cases, sizeof x);
    for (int t = 0; t < table_count; t++) {
        uint16_t y[N];
        float *row = x;
        const int64_t place = 0;
        mirt__epilogue e;
        memset(&e, 0, sizeof e);
        const mirt__finishing f = mirt__finishing_of(&e, N, y, MIRT__BFLOAT16, NULL);
        bool right = true;
        tables[t].simd->finish_rows(&f, &row, &place, 1, N);
        for (int i = 0; i < N; i++) right = right && y[i] == float_to_half(x[i]);
        ok(right, "%s: rounds to bfloat16", tables[t].name);
    }
}

/* A mean of numbers of bfloat16 is that of the same floats. */
static void test_reduce(void) {
    static const int64_t shapes[][4] = {{5, 3, 4, 7}, {6, 5, 5, 600}, {2, 40, 9, 1}, {1, 17, 31, 65}};
    int count;
    const mirt__kernels *const *all = mirt__kernel_tables(&count);
    for (int t = 0; t + 1 < count; t++) {
        bool same = true;
        for (int i = 0; i < (int)MIRT__COUNT(shapes); i++) {
            mirt__reduce r;
            mirt__where where;
            memset(&r, 0, sizeof r);
            memset(&where, 0, sizeof where);
            r.kind = i % 2 ? MIRT__REDUCE_MEAN : MIRT__REDUCE_SUM;
            r.rank = 4;
            r.axes = i == 3 ? 7 : 6;
            int64_t n = 1;
            for (int k = 0; k < 4; k++) n *= r.dim[k] = shapes[i][k];
            array half = make((mirt_dtype)MIRT__BFLOAT16, n), x = make(MIRT_FLOAT32, n);
            float *y[2] = {floats(n, 0, 1), floats(n, 0, 1)};
            for (int64_t k = 0; k < n; k++) put(&x, k, at(&half, k));
            where.scratch_per_thread = mirt__reduce_scratch(&r);
            where.scratch = mirt__aligned_alloc(where.scratch_per_thread);
            for (int k = 0; k < 2; k++) {
                r.x = k ? half.data : x.data;
                r.x_dtype = k ? half.dtype : x.dtype;
                r.y = y[k];
                all[t]->reduce(&r, &where);
            }
            same =
                same && memcmp(y[0], y[1], (size_t)(shapes[i][3] * (i == 3 ? 1 : shapes[i][0])) * sizeof(float)) == 0;
            mirt__aligned_free(where.scratch);
            free(half.data);
            free(x.data);
            free(y[0]);
            free(y[1]);
        }
        ok(same, "%s: sums and means of bfloat16", all[t]->name);
    }
}

int main(void) {
    static const int64_t channels[] = {1, 3, 4, 7, 16, 17, 24, 32, 33, 64, 96, 128, 100};
    const bool small = small_tier();
    source_of_numbers = mirt__random_stream(5, 0);
    find_tables();
    test_curves();
    test_rounding();
    test_reduce();
    for (int i = 0; i < (int)MIRT__COUNT(channels); i += small ? 3 : 1) {
        for (int half = 0; half < 2; half++) {
            test_reads(channels[i], half ? MIRT__BFLOAT16 : MIRT_FLOAT32);
            if (i % 2 == 1) test_finish(channels[i], half ? MIRT__BFLOAT16 : MIRT_FLOAT32);
        }
    }
    return done_testing();
}
