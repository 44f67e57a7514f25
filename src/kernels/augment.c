/* CPU kernels of random image transforms. */

#include "augment.h"
#include "common.h"

#if defined(__SSE2__) && !defined(MIRRORTRAIN_NO_SIMD)
#include <emmintrin.h>
#define MIRT__WARP_SSE2
#endif

#ifndef MIRT__INDEPENDENT
#define MIRT__INDEPENDENT
#endif

/* >>one affine warp */

#include "optimize_begin.inc"

#define MIRT__WARP_PIECE 128 /* pixels at a time */

/* y[oy, ox] = x at the position that m gives, like ImageProjectiveTransformV3: interpolated from four neighbors, or the
   nearest. Pixels are float32 (mirt__real) or uint8; y is uint8 only if x is, and then rounded to nearest. h * line is
   below 2^31. */
typedef struct mirt__warp {
    float m[9];
    bool projects;                 /* positions are quotients */
    int64_t h, w, c, oh, ow, line; /* line: elements from one row of x to the next */
    mirt_fill_mode fill;
    bool nearest;
    float value;
    mirt_dtype x_dtype, y_dtype;
    const void *x;
    void *y;
} mirt__warp;

/* Like TensorFlow's MapCoordinate; positions up to half a pixel beyond the centers of edge pixels repeat these. */
static inline float mirt__warp_inside(mirt_fill_mode fill, float at, int64_t length) {
    const float last = (float)(length - 1), twice = (float)(2 * length), once = (float)length;
    if (last == 0 && fill != MIRT_FILL_CONSTANT) return 0;
    if (fill == MIRT_FILL_CONSTANT) return at < -2 ? -2 : at > once + 1 ? once + 1 : at;
    if (fill == MIRT_FILL_REFLECT && at < 0) {
        if (at <= -twice) at += twice * (float)(int64_t)(-at / twice);
        at = at < -once ? at + twice : -at - 1;
    } else if (fill == MIRT_FILL_REFLECT && at > last) {
        if (at >= twice) at -= twice * (float)(int64_t)(at / twice);
        if (at >= once) at = twice - at - 1;
    } else if (fill == MIRT_FILL_WRAP && at < 0) {
        at += once * (float)((int64_t)(-at / last) + 1);
    } else if (fill == MIRT_FILL_WRAP && at > last) {
        at -= once * (float)(int64_t)(at / last);
    }
    return at < 0 ? 0 : at > last ? last : at;
}

/* Channel j of a pixel of x, inside or outside of the image. */
static mirt__real mirt__warp_read(const mirt__warp *a, int64_t y, int64_t x, int64_t j) {
    if (y < 0 || y >= a->h || x < 0 || x >= a->w) return (mirt__real)a->value;
    const int64_t at = y * a->line + x * a->c + j;
    return a->x_dtype == MIRT_UINT8 ? (mirt__real)((const unsigned char *)a->x)[at] : ((const mirt__real *)a->x)[at];
}

static unsigned char mirt__warp_byte(mirt__real v) {
    return (unsigned char)(v < 0 ? 0 : v > 255 ? 255 : v + (mirt__real)0.5);
}

/* Rounds half away from zero, like std::round; positions left of the image stay there. */
static int64_t mirt__warp_nearest(float at) {
    return at <= -0.5f ? -1 : (int64_t)at + (at - (float)(int64_t)at >= 0.5f);
}

/* Pixel number `to` of y. */
static void mirt__warp_pixel(const mirt__warp *a, float x, float y, int64_t to) {
    const bool outside = !(x > -1 && y > -1 && x < (float)a->w && y < (float)a->h);
    const int64_t x0 = outside      ? -2
                       : a->nearest ? mirt__warp_nearest(x)
                                    : (int64_t)floorf(x),
                  y0 = outside      ? -2
                       : a->nearest ? mirt__warp_nearest(y)
                                    : (int64_t)floorf(y);
    const mirt__real fx = (mirt__real)(x - (float)x0), fy = (mirt__real)(y - (float)y0),
                     gx = (mirt__real)((float)x0 + 1 - x), gy = (mirt__real)((float)y0 + 1 - y);
    for (int64_t j = 0; j < a->c; j++) {
        mirt__real v = mirt__warp_read(a, y0, x0, j);
        if (!a->nearest && !outside) {
            v = gy * (gx * v + fx * mirt__warp_read(a, y0, x0 + 1, j)) +
                fy * (gx * mirt__warp_read(a, y0 + 1, x0, j) + fx * mirt__warp_read(a, y0 + 1, x0 + 1, j));
        }
        if (a->y_dtype == MIRT_UINT8) ((unsigned char *)a->y)[to * a->c + j] = mirt__warp_byte(v);
        else ((mirt__real *)a->y)[to * a->c + j] = v;
    }
}

typedef struct mirt__warp_piece {
    float x[MIRT__WARP_PIECE], y[MIRT__WARP_PIECE]; /* where the pixels are read */
    float fx[MIRT__WARP_PIECE], gx[MIRT__WARP_PIECE], fy[MIRT__WARP_PIECE], gy[MIRT__WARP_PIECE];
    int32_t at[MIRT__WARP_PIECE];                   /* the first of the four neighbors; -1: one is outside */
    int32_t both[MIRT__WARP_PIECE];                 /* gx and fx in 1 / 2^14 */
} mirt__warp_piece;

/* Whether pixel i is read from outside of the image. */
static inline bool mirt__warp_strays(const mirt__warp_piece *p, int64_t i, float last_x, float last_y) {
    return !(p->x[i] >= 0 && p->x[i] <= last_x && p->y[i] >= 0 && p->y[i] <= last_y);
}

static void mirt__warp_return(const mirt__warp *a, mirt__warp_piece *p, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        p->x[i] = mirt__warp_inside(a->fill, p->x[i], a->w);
        p->y[i] = mirt__warp_inside(a->fill, p->y[i], a->h);
    }
}

/* Computes where `n` pixels of row oy from ox on are read. Pixels inside of the image are adjacent, so the search for
   the others runs from both ends: they are outside of [*low, *high). A perspective may have two such parts, so that its
   caller looks at each pixel. */
static void mirt__warp_places(const mirt__warp *a, int64_t oy, int64_t ox, int64_t n, mirt__warp_piece *p,
                              int64_t *begin, int64_t *end) {
    const float last_x = (float)(a->w - 1), last_y = (float)(a->h - 1), m0 = a->m[0], m2 = a->m[2], m3 = a->m[3],
                m5 = a->m[5];
    const float x_y = a->m[1] * (float)oy, y_y = a->m[4] * (float)oy;
    int64_t low = 0, high = n;
    MIRT__INDEPENDENT
    for (int32_t i = 0; i < (int32_t)n; i++) {
        const float at = (float)((int32_t)ox + i);
        p->x[i] = m0 * at + x_y + m2;
        p->y[i] = m3 * at + y_y + m5;
    }
    if (a->projects) mirt__augment_divide(&a->m[6], oy, ox, n, p->x, p->y);
    if (a->projects) high = 0;
    while (low < high && mirt__warp_strays(p, low, last_x, last_y)) low++;
    while (high > low && mirt__warp_strays(p, high - 1, last_x, last_y)) high--;
    mirt__warp_return(a, p, 0, low);
    mirt__warp_return(a, p, high, n);
    *begin = a->fill == MIRT_FILL_CONSTANT ? low : 0;
    *end = a->fill == MIRT_FILL_CONSTANT ? high : n;
}

#ifndef MIRT__REAL_DOUBLE
/* The nearest, or the first of the four neighbors, of pixels [low, high), and their weights. The last pixel of a row is
   the second of two. Pixel numbers are below 2^24, which float32 represents exactly. */
static void mirt__warp_weights(const mirt__warp *a, int64_t low, int64_t high, int64_t n, mirt__warp_piece *p) {
    const float last_x = (float)(a->w - 2), last_y = (float)(a->h - 2), line = (float)a->line, c = (float)a->c;
    const int64_t nearest = a->nearest ? n : 0, between = n - nearest, bytes = a->y_dtype == MIRT_UINT8 ? between : 0;
    MIRT__INDEPENDENT
    for (int64_t i = 0; i < between; i++) {
        float x0 = (float)(int32_t)p->x[i], y0 = (float)(int32_t)p->y[i];
        x0 = x0 < last_x ? x0 : last_x;
        y0 = y0 < last_y ? y0 : last_y;
        p->fx[i] = p->x[i] - x0;
        p->gx[i] = x0 + 1 - p->x[i];
        p->fy[i] = p->y[i] - y0;
        p->gy[i] = y0 + 1 - p->y[i];
        p->at[i] = (int32_t)(y0 * line + x0 * c);
    }
    MIRT__INDEPENDENT
    for (int64_t i = 0; i < nearest; i++) {
        const float x0 = (float)(int32_t)p->x[i], y0 = (float)(int32_t)p->y[i];
        const float x = p->x[i] - x0 >= 0.5f ? x0 + 1 : x0, y = p->y[i] - y0 >= 0.5f ? y0 + 1 : y0;
        p->at[i] = (int32_t)(y * line + x * c);
    }
    for (int64_t i = 0; i < low; i++) p->at[i] = -1;
    for (int64_t i = high; i < n; i++) p->at[i] = -1;
    MIRT__INDEPENDENT
    for (int64_t i = 0; i < bytes; i++) {
        const int32_t part = (int32_t)(p->fx[i] * 16384 + 0.5f);
        p->both[i] = part * 65536 + 16384 - part;
        p->fy[i] *= 1.0f / 16384;
        p->gy[i] *= 1.0f / 16384;
    }
}

/* Pixels of up to four channels are vectors of four: surplus elements belong to the next pixel, which overwrites
   them. */
typedef float mirt__lanes __attribute__((vector_size(16)));

static inline mirt__lanes mirt__lanes_of(const float *at) {
    mirt__lanes v;
    memcpy(&v, at, sizeof v);
    return v;
}

static inline int32_t mirt__lanes_word(const unsigned char *at) {
    int32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

#ifdef MIRT__WARP_SSE2
static inline __m128i mirt__lanes_load(const unsigned char *at) { return _mm_cvtsi32_si128(mirt__lanes_word(at)); }

static inline mirt__lanes mirt__lanes_bytes(const unsigned char *at) {
    const __m128i zero = _mm_setzero_si128();
    return (mirt__lanes)_mm_cvtepi32_ps(_mm_unpacklo_epi16(_mm_unpacklo_epi8(mirt__lanes_load(at), zero), zero));
}

/* Between the pixels at `a` and `b`, times 2^14. */
static inline mirt__lanes mirt__lanes_mix(const unsigned char *a, const unsigned char *b, int32_t both) {
    const __m128i pairs =
        _mm_unpacklo_epi8(_mm_unpacklo_epi8(mirt__lanes_load(a), mirt__lanes_load(b)), _mm_setzero_si128());
    return (mirt__lanes)_mm_cvtepi32_ps(_mm_madd_epi16(pairs, _mm_set1_epi32(both)));
}

/* Four bytes, truncated. */
static inline int32_t mirt__lanes_cut(mirt__lanes v) {
    const __m128i whole = _mm_cvttps_epi32((__m128)v), half = _mm_packs_epi32(whole, whole);
    return _mm_cvtsi128_si32(_mm_packus_epi16(half, half));
}
#else
static inline mirt__lanes mirt__lanes_bytes(const unsigned char *at) {
    mirt__lanes v;
    for (int j = 0; j < 4; j++) v[j] = (float)at[j];
    return v;
}

static inline mirt__lanes mirt__lanes_mix(const unsigned char *a, const unsigned char *b, int32_t both) {
    mirt__lanes v;
    for (int j = 0; j < 4; j++) v[j] = (float)(a[j] * (both & 65535) + b[j] * (both >> 16));
    return v;
}

static inline int32_t mirt__lanes_cut(mirt__lanes v) {
    unsigned char byte[4];
    int32_t word;
    for (int j = 0; j < 4; j++) byte[j] = (unsigned char)(int)v[j];
    memcpy(&word, byte, sizeof word);
    return word;
}
#endif

/* `n` pixels that become numbers `to` and on of y: OUT is the vector, of type TO, from the pixel `at` and the one
   below. */
#define MIRT__WARP_ROW(name, TX, TY, TO, OUT) \
    static void mirt__warp_row_##name(const mirt__warp *a, const mirt__warp_piece *p, int64_t n, int64_t to, \
                                      uint32_t safe) { \
        const int64_t c = a->c, line = a->line; \
        const TX *const x = (const TX *)a->x; \
        TY *y = (TY *)a->y + to * c, *const last = y + n * c - 4; \
        (void)line; \
        for (int64_t i = 0; i < n; i++, y += c) { \
            if ((uint32_t)p->at[i] > safe) { \
                mirt__warp_pixel(a, p->x[i], p->y[i], to + i); \
                continue; \
            } \
            const TX *const at = x + p->at[i]; \
            const TO out = OUT; \
            if (y <= last) memcpy(y, &out, sizeof out); \
            else memcpy(y, &out, (size_t)c * sizeof *y); \
        } \
    }
#define MIRT__WARP_BETWEEN(read) \
    p->gy[i] * (p->gx[i] * read(at) + p->fx[i] * read(at + c)) + \
        p->fy[i] * (p->gx[i] * read(at + line) + p->fx[i] * read(at + line + c))
MIRT__WARP_ROW(float, float, float, mirt__lanes, MIRT__WARP_BETWEEN(mirt__lanes_of))
MIRT__WARP_ROW(mixed, unsigned char, float, mirt__lanes, MIRT__WARP_BETWEEN(mirt__lanes_bytes))
MIRT__WARP_ROW(bytes, unsigned char, unsigned char, int32_t,
               mirt__lanes_cut(p->gy[i] * mirt__lanes_mix(at, at + c, p->both[i]) +
                               p->fy[i] * mirt__lanes_mix(at + line, at + line + c, p->both[i]) + 0.5f))
MIRT__WARP_ROW(float_nearest, float, float, mirt__lanes, mirt__lanes_of(at))
MIRT__WARP_ROW(mixed_nearest, unsigned char, float, mirt__lanes, mirt__lanes_bytes(at))
MIRT__WARP_ROW(bytes_nearest, unsigned char, unsigned char, int32_t, mirt__lanes_word(at))
#undef MIRT__WARP_ROW
#undef MIRT__WARP_BETWEEN

static void mirt__warp_row(const mirt__warp *a, const mirt__warp_piece *p, int64_t n, int64_t to, uint32_t safe) {
    static void (*const row[2][3])(const mirt__warp *, const mirt__warp_piece *, int64_t, int64_t, uint32_t) = {
        {mirt__warp_row_float, mirt__warp_row_mixed, mirt__warp_row_bytes},
        {mirt__warp_row_float_nearest, mirt__warp_row_mixed_nearest, mirt__warp_row_bytes_nearest}};
    row[a->nearest][(a->x_dtype == MIRT_UINT8) + (a->y_dtype == MIRT_UINT8)](a, p, n, to, safe);
}
#endif

/* Reads an image in memory sequentially, which the hardware prefetches, unlike the order in which its pixels are
   used. */
static void mirt__warp_foresee(const mirt__warp *a) {
    const int64_t bytes =
        ((a->h - 1) * a->line + a->w * a->c) * (int64_t)(a->x_dtype == MIRT_UINT8 ? 1 : sizeof(mirt__real));
    const volatile char *const x = (const volatile char *)a->x;
    if (bytes > 1 << 20 || a->oh * a->ow < a->h * a->w / 4) return;
    for (int64_t i = 0; i < bytes; i += 64) (void)x[i];
}

static void mirt__warp_image(const mirt__warp *a) {
    mirt__warp_piece p;
    bool whole = true; /* every pixel is one of x */
    mirt__warp w = *a;
    int64_t low, high;
    for (int i = 0; i < 6; i++) whole = whole && a->m[i] == floorf(a->m[i]);
    w.nearest = a->nearest || (whole && !a->projects);
    mirt__warp_foresee(a);
#ifndef MIRT__REAL_DOUBLE
    /* The last position from which four channels of all four neighbors can be read. */
    const int64_t safe = (a->h - 1) * a->line + a->w * a->c - a->line - a->c - 4;
    const bool lanes = !a->projects && a->c <= 4 && a->h > 1 && a->w > 1 && safe >= 0 && safe < 1 << 24;
#endif
    for (int64_t oy = 0; oy < a->oh; oy++) {
        for (int64_t ox = 0; ox < a->ow; ox += MIRT__WARP_PIECE) {
            const int64_t n = mirt__min(a->ow - ox, MIRT__WARP_PIECE), to = oy * a->ow + ox;
            mirt__warp_places(a, oy, ox, n, &p, &low, &high);
#ifndef MIRT__REAL_DOUBLE
            if (lanes) {
                mirt__warp_weights(&w, low, high, n, &p);
                mirt__warp_row(&w, &p, n, to, (uint32_t)safe);
                continue;
            }
#endif
            for (int64_t i = 0; i < n; i++) mirt__warp_pixel(&w, p.x[i], p.y[i], to + i);
        }
    }
}

/* >>dtypes */

static void mirt__augment_to_real(const void *x, mirt_dtype dtype, mirt__real *y, int64_t count) {
    const unsigned char *const bytes = (const unsigned char *)x;
    if (dtype != MIRT_UINT8) {
        memcpy(y, x, (size_t)count * sizeof *y);
        return;
    }
    MIRT__INDEPENDENT
    for (int64_t i = 0; i < count; i++) y[i] = (mirt__real)bytes[i];
}

static void mirt__augment_to_bytes(const mirt__real *x, unsigned char *y, int64_t count) {
    MIRT__INDEPENDENT
    for (int64_t i = 0; i < count; i++) {
        const mirt__real v = (x[i] < 0 ? 0 : x[i] > 255 ? 255 : x[i]) + (mirt__real)0.5;
        y[i] = (unsigned char)(int32_t)v;
    }
}

#include "optimize_end.inc"

/* >>a list of transforms */

/* Bytes of the largest intermediate image, including the last one if several transforms produce it. */
static size_t mirt__augment_half(const mirt__transform *t, int count, mirt_dtype x_dtype, mirt_dtype y_dtype) {
    int64_t most = 0;
    const mirt__transform_pass first = mirt__transform_pass_of(t, count, 0);
    const bool direct = first.end == count && first.moves && (x_dtype == MIRT_UINT8 || y_dtype != MIRT_UINT8);
    for (int i = 0; i < count && !direct; i = mirt__transform_pass_of(t, count, i).end) {
        const mirt__transform *last = &t[mirt__transform_pass_of(t, count, i).end - 1];
        if (last->oh * last->ow * last->c > most) most = last->oh * last->ow * last->c;
    }
    return mirt__align_up((size_t)most * sizeof(mirt__real));
}

MIRT__LIB size_t mirt__augment_room(const mirt__transform *t, int count, mirt_dtype x_dtype, mirt_dtype y_dtype) {
    const size_t half = mirt__augment_half(t, count, x_dtype, y_dtype);
    size_t kept = 0;
    for (int i = 0; i < count; i++) {
        const int64_t tiles = t[i].kind == MIRT_CLAHE ? t[i].bins * t[i].size : 0,
                      numbers = t[i].kind == MIRT_RANDOM_ELASTIC_TRANSFORM ? (2 * t[i].h + 3) * t[i].w
                                                                           : tiles * MIRT__TRANSFORM_BINS;
        const size_t bytes = t[i].kind == MIRT_AUG_MIX ? 2 * half : (size_t)numbers * sizeof(mirt__real);
        if (bytes > kept) kept = bytes;
    }
    return 2 * half + kept;
}

/* Runs the pass of transforms [first, pass->end) from x to y, which is uint8 only if it is the last image. */
static void mirt__augment_warp(const mirt__augment *a, int first, const mirt__transform_pass *pass, const void *x,
                               mirt_dtype dtype, void *y) {
    const mirt__transform *const t = &a->transform[first], *const last = &a->transform[pass->end - 1];
    mirt__warp w;
    double m[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, next[9], drawn[4];
    int64_t begin[2] = {0, 0}, size[2];
    size[0] = t->h;
    size[1] = t->w;
    if (mirt__transform_fits(t)) mirt__transform_window(t, begin, size);
    for (int k = first; k < pass->end; k++) {
        if (!mirt__transform_applies(&a->transform[k], a->seed, a->row, a->step)) continue;
        mirt__transform_draw(&a->transform[k], a->seed, a->row, a->step, drawn);
        mirt__transform_matrix(&a->transform[k], drawn, next);
        mirt__transform_then(m, next);
    }
    for (int k = 0; k < 9; k++) w.m[k] = (float)m[k];
    w.projects = w.m[6] < 0 || w.m[6] > 0 || w.m[7] < 0 || w.m[7] > 0 || w.m[8] < 1 || w.m[8] > 1;
    w.h = size[0];
    w.w = size[1];
    w.c = t->c;
    w.line = t->w * t->c;
    w.oh = last->oh;
    w.ow = last->ow;
    w.fill = pass->fill;
    w.nearest = pass->nearest;
    w.value = pass->value;
    w.x_dtype = dtype;
    w.y_dtype = y == a->y ? a->y_dtype : MIRT_FLOAT32;
    w.x =
        (const char *)x + (size_t)(begin[0] * w.line + begin[1] * w.c) * (dtype == MIRT_UINT8 ? 1 : sizeof(mirt__real));
    w.y = y;
    mirt__warp_image(&w);
}

MIRT__LIB void mirt__augment_image(const mirt__augment *a) {
    const mirt__transform *const t = a->transform, *const last = &t[a->count - 1];
    const size_t half = mirt__augment_half(t, a->count, a->x_dtype, a->y_dtype);
    mirt__real *const kept = half ? (mirt__real *)((char *)a->room + 2 * half) : NULL;
    mirt__real *real = NULL; /* the image so far, once it is float32 */
    int turn = 0;
    for (int i = 0, end; i < a->count; i = end) {
        const mirt__transform_pass pass = mirt__transform_pass_of(t, a->count, i);
        bool final = a->y_dtype != MIRT_UINT8 || !half; /* no other image follows, and y has the dtype of the result */
        end = pass.end;
        for (int k = end; k < a->count; k++) final = final && !mirt__transform_remakes(&t[k]);
        if (!pass.moves && !real) {
            real = (mirt__real *)(final && !pass.remakes ? a->y : (char *)a->room + (size_t)(turn++ & 1) * half);
            mirt__augment_to_real(a->x, a->x_dtype, real, t[i].h * t[i].w * t[i].c);
        }
        if (pass.remakes) {
            void *y = final ? a->y : (char *)a->room + (size_t)(turn++ & 1) * half;
            if (pass.moves) mirt__augment_warp(a, i, &pass, real ? real : a->x, real ? MIRT_FLOAT32 : a->x_dtype, y);
            else mirt__augment_filter(a, &t[i], real, (mirt__real *)y, kept);
            real = (mirt__real *)y;
        }
        for (int k = i; k < end && !pass.remakes; k++)
            mirt__augment_values(a, &t[k], real, kept);
    }
    if (half && a->y_dtype == MIRT_UINT8)
        mirt__augment_to_bytes(real, (unsigned char *)a->y, last->oh * last->ow * last->c);
}

/* What predict-only programs can do: transforms that are always active. */
static void mirt__augment_always(const mirt__augment *a) {
    const mirt__transform *const t = a->transform;
    mirt__augment_to_real(a->x, a->x_dtype, (mirt__real *)a->y, t->h * t->w * t->c);
    for (int i = 0; i < a->count; i++) {
        const size_t half = mirt__augment_half(t, a->count, a->x_dtype, a->y_dtype);
        mirt__augment_clahe(&t[i], (mirt__real *)a->y, (mirt__real *)((char *)a->room + 2 * half));
    }
}

typedef struct mirt__augment_job {
    const mirt__augment_rows *args;
    const mirt__where *where;
} mirt__augment_job;

static void mirt__augment_task(void *arg, int64_t row, int member) {
    const mirt__augment_job *job = (const mirt__augment_job *)arg;
    const mirt__augment_rows *r = job->args;
    const mirt__transform *first = r->transform, *last = &r->transform[r->count - 1];
    mirt__augment a;
    a.transform = r->transform;
    a.count = r->count;
    a.seed = r->seed;
    a.row = r->first_row + (uint64_t)row;
    a.step = r->step;
    a.x_dtype = r->x_dtype;
    a.y_dtype = MIRT_FLOAT32;
    a.x = (const char *)r->x + (size_t)(row * first->h * first->w * first->c) * mirt__dtype_size(r->x_dtype);
    a.y = r->y + row * last->oh * last->ow * last->c;
    a.room = (char *)mirt__scratch(job->where, member);
    if (MIRT__TRAINS) mirt__augment_image(&a);
    else mirt__augment_always(&a);
}

MIRT__LIB void mirt__augment_batch(const mirt__augment_rows *args, const mirt__where *where) {
    mirt__augment_job job;
    job.args = args;
    job.where = where;
    mirt__team_for(where->team, args->rows, mirt__augment_task, &job);
}
