/* Products of convolutions and dense layers (src/cuda/multiply.cuh, panel.cuh) against double arithmetic. Every size of
   tile, FMA, tf32, bfloat16 and float16 with and without tensor cores, k in parts, readers and epilogues. Tests of the
   whole table (sim_kernels.c) have small shapes only. */
static int least_blocks = 128; /* so many, and tiles are as large as may be */
#define MIRT__CU_MM_BLOCKS least_blocks
static int panel_depth = 192, panel_blocks = 1024; /* by depth 0 panel.cuh computes nothing */
#define MIRT__CU_PANEL_DEPTH panel_depth
#define MIRT__CU_PANEL_BLOCKS panel_blocks
#include "../../src/cuda/multiply.cuh"
#include "alone.h"
#include <set>
#include <string>
#include <utility>
#include <vector>

static std::vector<char> room;
static void *mirt__cu_room(mirt__cu *device, size_t bytes) {
    mirt__cu_try(device, cudaStreamSynchronize(device->stream), "wait");
    room.assign(bytes + 256, (char)0xFF);
    return reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(room.data()) + 255) & ~(uintptr_t)255);
}
/* There is nothing but these products here. */
static bool mirt__cu_blas_gemm(const mirt__gemm *, mirt__cu *) { return false; }
static bool mirt__cu_blas_conv(mirt__cu *, const mirt__conv *, bool, mirt_dtype, const mirt__reader *, const float *,
                               void *, mirt_dtype, const mirt__epilogue *) {
    return false;
}
static bool mirt__cu_depthwise_forward(const mirt__conv_forward *, mirt__cu *) { return false; }
static bool mirt__cu_depthwise_input_grad(const mirt__conv_input_grad *, mirt__cu *) { return false; }
static void mirt__cu_conv_weight_grad(const mirt__conv_weight_grad *, const mirt__where *) {}
#include "../../src/cuda/conv.cu"
#include "sim.h"
#include "tap.h"

static const mirt_dtype bf16 = (mirt_dtype)MIRT__BFLOAT16, f16 = (mirt_dtype)MIRT__FLOAT16;
static uint32_t state = 1;
static float any() { /* in [-1, 1) */
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * (1.0f / 8388608.0f) - 1.0f;
}
/* To the nearest number with 8 bits, or of float16 with 11 above the least exponent; half-way to the even one. Neither
   overflows here. */
static float rounded(float x, mirt_dtype dtype) {
    int exponent;
    if (dtype == MIRT_FLOAT32 || x == 0) return x;
    (void)frexp(x, &exponent);
    const int digits = dtype == bf16 ? 8 : exponent < -13 ? 24 + exponent : 11;
    return (float)ldexp(nearbyint(ldexp((double)x, digits - exponent)), exponent - digits);
}

struct Numbers {
    std::vector<float> words;
    mirt_dtype dtype;
    int64_t count;
    Numbers(int64_t n, mirt_dtype as, float least = -1, float most = 1) : words((size_t)n + 16), dtype(as), count(n) {
        for (int64_t i = 0; i < n; i++) {
            const float x = least + (any() + 1) * 0.5f * (most - least);
            if (as == MIRT_UINT8) static_cast<uint8_t *>(at())[i] = (uint8_t)(state >> 24);
            else mirt__cu_store(at(), as, i, x);
        }
    }
    void *at() { return words.data(); }
    float *floats() { return words.data(); }
    double operator[](int64_t i) const { return (double)mirt__cu_load(words.data(), dtype, i); }
};
struct Norm {
    Numbers mean, variance, gamma, beta;
    mirt__scaling s;
    Norm(int64_t n, mirt_activation_kind kind)
        : mean(n, MIRT_FLOAT32), variance(n, MIRT_FLOAT32, 0.5f, 2), gamma(n, MIRT_FLOAT32), beta(n, MIRT_FLOAT32) {
        s.mean = mean.floats();
        s.variance = variance.floats();
        s.gamma = gamma.floats();
        s.beta = beta.floats();
        s.epsilon = 1e-3f;
        s.activation = kind;
    }
    double inverse(int64_t j) const { return 1 / sqrt(variance[j] + 1e-3); }
    double of(double x, int64_t j) const { return (x - mean[j]) * gamma[j] * inverse(j) + beta[j]; }
    double active(double u) const {
        switch (s.activation) {
        case MIRT_RELU6: return u < 0 ? 0 : u > 6 ? 6 : u;
        case MIRT_SILU: return u / (1 + exp(-u));
        case MIRT_GELU: return u * 0.5 * erfc(-u / sqrt(2.0));
        default: return u;
        }
    }
    double slope(double u) const {
        const double p = 1 / (1 + exp(-u));
        return s.activation == MIRT_RELU6 ? u > 0 && u < 6 : s.activation == MIRT_SILU ? p * (1 + u * (1 - p)) : 1;
    }
};

static mirt__conv conv(int rows, int h, int w, int ci, int co, int kernel, int stride, int dilation, int groups,
                       int pad) {
    mirt__conv s;
    memset(&s, 0, sizeof s);
    s.rows = rows;
    s.h = h;
    s.w = w;
    s.ci = ci;
    s.co = co;
    s.kh = s.kw = kernel;
    s.stride_h = s.stride_w = stride;
    s.dilation_h = s.dilation_w = dilation;
    s.groups = groups;
    s.pad_top = s.pad_left = pad;
    s.oh = (h + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1;
    s.ow = (w + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1;
    return s;
}

enum Reads { PLAIN, BYTES, NORM, GATED, GATE, BACK };
enum Ends { NOTHING, FROZEN, MOMENTS, GRADIENT, MASK, BIASED_MOMENTS, RELU6_GRADIENT, MASKED_GRADIENT, ACTIVATED };

/* Returns the output as it is stored. */
static std::vector<float> check(const char *how, const mirt__conv &s, bool back, Reads reads, mirt_activation_kind kind,
                                Ends ends, mirt_dtype factors, mirt_dtype x_dtype, mirt_dtype y_dtype) {
    const bool half = factors != MIRT_FLOAT32, moments = ends == MOMENTS || ends == BIASED_MOMENTS,
               gradient = ends == GRADIENT || ends == RELU6_GRADIENT || ends == MASKED_GRADIENT,
               adds = ends == FROZEN || ends == GRADIENT || ends == MASKED_GRADIENT,
               masks = ends == MASK || ends == MASKED_GRADIENT, frozen = ends == FROZEN || ends == ACTIVATED;
    const int64_t nx = s.rows * s.h * s.w * s.ci, ny = s.rows * s.oh * s.ow * s.co, from = back ? ny : nx,
                  to = back ? nx : ny;
    const int64_t c = back ? s.co : s.ci, n = back ? s.ci : s.co, pixels = back ? s.oh * s.ow : s.h * s.w,
                  cig = s.ci / s.groups, cog = s.co / s.groups;
    Numbers x(from, reads == BYTES ? MIRT_UINT8 : x_dtype), z(from, x_dtype), k(s.kh * s.kw * cig * s.co, MIRT_FLOAT32),
        y(to, y_dtype), add(to, y_dtype), mask(to, y_dtype);
    Numbers slope_x(to, y_dtype), gate(s.rows * c, MIRT_FLOAT32), sum0(c, MIRT_FLOAT32), sum1(c, MIRT_FLOAT32),
        bias(n, MIRT_FLOAT32), out0(n, MIRT_FLOAT32), out1(n, MIRT_FLOAT32);
    Norm norm(c, kind), end(n, ends == RELU6_GRADIENT ? MIRT_RELU6 : ends == MASKED_GRADIENT ? MIRT_LINEAR : MIRT_SILU);
    mirt__norm_back through;
    mirt__reader r;
    mirt__epilogue e;
    memset(&through, 0, sizeof through);
    memset(&r, 0, sizeof r);
    memset(&e, 0, sizeof e);
    r.data = x.at();
    r.dtype = x.dtype;
    r.channels = c;
    r.affine = reads == BYTES;
    r.scale = 0.01f;
    r.offset = -0.5f;
    if (reads == NORM || reads == GATED) r.norm = &norm.s;
    if (reads == GATED || reads == GATE) {
        r.gate = gate.floats();
        r.gate_pixels = pixels;
    }
    if (reads == BACK) {
        through.norm = norm.s;
        through.z = z.at();
        through.sum[0] = sum0.floats();
        through.sum[1] = sum1.floats();
        through.count = 7;
        r.back = &through;
    }
    if (ends == FROZEN || ends == BIASED_MOMENTS) e.bias = bias.floats();
    if (frozen) {
        e.norm = &end.s;
        e.activation = MIRT_SILU;
    }
    if (adds) e.add = add.at();
    if (gradient) {
        e.slope = &end.s;
        e.slope_x = slope_x.at();
    }
    if (masks) {
        e.mask = mask.at();
        e.mask_activation = MIRT_RELU;
    }
    e.sums = moments ? MIRT__SUMS_MOMENTS : gradient ? MIRT__SUMS_GRADIENT : MIRT__SUMS_NONE;
    e.sum[0] = out0.floats();
    e.sum[1] = out1.floats();
    mirt__where where;
    memset(&where, 0, sizeof where);
    where.handle = &cu;
    where.float16 = factors == f16;
    if (back) {
        mirt__conv_input_grad g;
        memset(&g, 0, sizeof g);
        g.s = s;
        g.dy = r;
        g.kernel = k.floats();
        g.dx = y.at();
        g.dx_dtype = y_dtype;
        g.half = half;
        g.epilogue = e;
        mirt__cu_conv_input_grad(&g, &where);
    } else {
        mirt__conv_forward f;
        memset(&f, 0, sizeof f);
        f.s = s;
        f.x = r;
        f.kernel = k.floats();
        f.y = y.at();
        f.y_dtype = y_dtype;
        f.half = half;
        f.epilogue = e;
        mirt__cu_conv_forward(&f, &where);
    }
    mirt__cu_try(&cu, cudaStreamSynchronize(cu.stream), "wait");

    std::vector<double> read((size_t)from), want((size_t)to), size((size_t)to, 0.01), first((size_t)n),
        second((size_t)n), first_size((size_t)n);
    for (int64_t i = 0; i < from; i++) {
        const int64_t j = i % c;
        double v = reads == BYTES ? x[i] * (double)0.01f - 0.5 : x[i];
        if (reads == NORM || reads == GATED) v = norm.active(norm.of(v, j));
        if (reads == GATED || reads == GATE) v *= gate[i / c / pixels * c + j];
        if (reads == BACK) {
            v = v * norm.slope(norm.of(z[i], j)) - sum0[j] / 7 - (z[i] - norm.mean[j]) * sum1[j] / 7 * norm.inverse(j);
            v *= norm.gamma[j] * norm.inverse(j);
        }
        read[(size_t)i] = half ? (double)rounded((float)v, factors) : v;
    }
    for (int64_t o = 0; o < s.rows * s.oh * s.ow; o++) {
        for (int64_t t = 0; t < s.kh * s.kw; t++) {
            const int64_t down = o / s.ow % s.oh * s.stride_h - s.pad_top + t / s.kw * s.dilation_h,
                          across = o % s.ow * s.stride_w - s.pad_left + t % s.kw * s.dilation_w;
            if (down < 0 || down >= s.h || across < 0 || across >= s.w) continue;
            const int64_t pixel = ((o / (s.oh * s.ow) * s.h + down) * s.w + across) * s.ci;
            for (int64_t j = 0; j < s.co; j++) {
                for (int64_t i = 0; i < cig; i++) {
                    const float weight = k.floats()[(t * cig + i) * s.co + j];
                    const int64_t at_x = pixel + j / cog * cig + i, at_y = o * s.co + j;
                    const double product = read[(size_t)(back ? at_y : at_x)] * (double)rounded(weight, factors);
                    want[(size_t)(back ? at_x : at_y)] += product;
                    size[(size_t)(back ? at_x : at_y)] += fabs(product);
                }
            }
        }
    }
    double worst = 0, sums = 0;
    const double count = n > 0 ? (double)(to / n) : 0;
    for (int64_t i = 0; i < to; i++) {
        const int64_t j = i % n;
        double &v = want[(size_t)i], &large = size[(size_t)i];
        if (frozen) {
            v = ends == FROZEN ? end.of(v + bias[j], j) + add[i] : end.of(v, j);
            v /= 1 + exp(-v);
            large = (large + 2) * 2 * end.inverse(j) + 2;
        }
        if (ends == BIASED_MOMENTS) v += bias[j];
        if (gradient) v += adds ? add[i] : 0, large += 2;
        if (masks && mask[i] <= 0) v = 0;
        if (gradient) v *= end.slope(end.of(slope_x[i], j));
        const double off = fabs(y[i] - v) - (y_dtype == bf16  ? fabs(v) / 250
                                             : y_dtype == f16 ? fabs(v) / 2000 + 3e-8
                                                              : 0);
        worst = off / large <= worst ? worst : off / large; /* NaN is worst */
        first[(size_t)j] += moments ? v / count : v;
        if (gradient) second[(size_t)j] += v * (slope_x[i] - end.mean[j]) * end.inverse(j);
        first_size[(size_t)j] += (large + fabs(v)) / (moments ? count : 1);
    }
    for (int64_t i = 0; moments && i < to; i++) {
        const double away = want[(size_t)i] - first[(size_t)(i % n)];
        second[(size_t)(i % n)] += away * away / count;
    }
    for (int64_t j = 0; e.sums != MIRT__SUMS_NONE && j < n; j++) {
        const double large = first_size[(size_t)j] + 1e-3, a = fabs(out0[j] - first[(size_t)j]) / large,
                     b = fabs(out1[j] - second[(size_t)j]) / (large * (moments ? large + 1 : 4));
        sums = a <= sums ? sums : a;
        sums = b <= sums ? sums : b;
    }
    const double least = factors == f16 ? 1e-4
                         : half         ? 3e-5
                         : cu.tf32      ? 1.5e-3
                                        : 2e-6; /* a curve of double may be rounded to another neighbor of 16 bits */
    ok(worst < least && sums < least,
       "%s: %s of %dx%dx%dx%d to %d, %dx%d/%d in %d groups, reader %d, epilogue %d: off by %.1e, sums by %.1e", how,
       back ? "gradient" : "forward", (int)s.rows, (int)s.h, (int)s.w, (int)s.ci, (int)s.co, s.kh, s.kw, s.stride_h,
       s.groups, reads, ends, worst, sums);
    y.words.resize(((size_t)to * (y_dtype == MIRT_FLOAT32 ? 4 : 2) + 3) / 4);
    return y.words;
}

/* ---- Products that panel.cuh computes. */

static const void *panel_meant; /* the panel kernel that a product should be computed by */
static unsigned panel_launched; /* blocks of that kernel launched so far */
static void note_launch(const mirt_sim_launch *launch) {
    if (launch->function == panel_meant) panel_launched += launch->grid[0];
}
template <int BN, int MATH> static const void *panel_of(mirt__cu_ending end) {
    return reinterpret_cast<const void *>(mirt__cu_panel_ending<BN, MATH>(end));
}
struct Panel {
    int pixels, k, n;
    bool back;
    Ends ends;
    mirt_dtype factors, x, y;
};
/* The panel kernel that should compute the product. */
static const void *panel_for(const Panel &a, bool narrow) {
    const bool usual = a.y == a.factors && a.n % 4 == 0;
    const mirt__cu_ending end =
        !usual || a.ends == MASK                             ? MIRT__CU_END_ANY
        : a.ends == MOMENTS || a.ends == BIASED_MOMENTS ? MIRT__CU_END_MOMENTS
        : a.ends == NOTHING || a.ends == FROZEN         ? MIRT__CU_END_OUTPUT
        : a.ends == ACTIVATED                           ? MIRT__CU_END_NORMALIZED
                                                        : MIRT__CU_END_GRADIENT;
    if (a.factors == f16)
        return narrow ? panel_of<64, MIRT__CU_BY_FLOAT16>(end) : panel_of<128, MIRT__CU_BY_FLOAT16>(end);
    return narrow ? panel_of<64, MIRT__CU_BY_HALF>(end) : panel_of<128, MIRT__CU_BY_HALF>(end);
}
static std::vector<float> panel_computed(const char *how, const Panel &a) {
    const mirt__conv s = conv(1, 1, a.pixels, a.back ? a.n : a.k, a.back ? a.k : a.n, 1, 1, 1, 1, 0);
    return check(how, s, a.back, PLAIN, MIRT_LINEAR, a.ends, a.factors, a.x, a.y);
}
/* A product by a panel has the bits of the product by another kernel, of large tiles. */
static void check_panel(const Panel &a, std::set<std::pair<const void *, bool>> *reached) {
    const uint32_t seed = state;
    const bool narrow = a.n <= 64 || (a.n > 128 && a.n <= 192) ||
                        (a.pixels + 63) / 64 * ((a.n + 127) / 128) < least_blocks;
    const int down = (a.pixels + 63) / 64, across = (a.n + (narrow ? 63 : 127)) / (narrow ? 64 : 128),
              most = down * across / panel_blocks, tiles = most < 1 ? 1 : most > 8 ? 8 : most,
              blocks = (down + tiles - 1) / tiles * across;
    panel_meant = panel_for(a, narrow);
    panel_launched = 0;
    const std::vector<float> by_panel = panel_computed("panel", a);
    const unsigned launched = panel_launched, wanted = a.k <= panel_depth && cu.shared_most > 160 << 10 ? blocks : 0;
    const int depth = panel_depth;
    panel_depth = 0;
    least_blocks = 1;
    state = seed;
    const std::vector<float> by_other = panel_computed("no panel", a);
    panel_depth = depth;
    if (launched) reached->insert({panel_meant, tiles > 1});
    const bool same = by_panel.size() == by_other.size() &&
                      memcmp(by_panel.data(), by_other.data(), by_panel.size() * sizeof(float)) == 0;
    ok(same && launched == wanted && panel_launched == launched,
       "%d pixels, %d to %d channels: %u of %u blocks by panels, %d tiles each, bits %s those without panels", a.pixels,
       a.k, a.n, launched, wanted, tiles, same ? "equal" : "differ from");
}
/* Every panel kernel, with one tile per block and with several: depths, columns and rows at and beside the sizes of
   steps and tiles. Nine products in turn have all endings; those that panels or kernels of one ending cannot compute
   have an ending that another product of the nine has, too. */
static void check_panels(void) {
    static const int depths[] = {8, 16, 24, 40, 96, 144, 192, 12}, columns[2][6] = {{8, 24, 64, 144, 20, 192},
                                                                                    {72, 96, 200, 84, 128, 260}},
                     pixels[2][6] = {{1, 63, 64, 65, 127, 1000}, {127, 1000, 200, 129, 500, 320}};
    static const Ends ends[] = {MOMENTS,  RELU6_GRADIENT, NOTHING, BIASED_MOMENTS, MASKED_GRADIENT,
                                GRADIENT, MASK,           FROZEN,  ACTIVATED};
    std::set<std::pair<const void *, bool>> reached; /* kernels, with several tiles per block or with one */
    mirt_sim_watch(note_launch);
    for (int i = 0; i < 72; i++) {
        Panel a;
        const bool wide = i / 9 % 2, several = i / 18 % 2;
        a.ends = ends[i % 9];
        a.factors = i / 36 ? f16 : bf16;
        a.pixels = pixels[several][(i + i / 9) % 6];
        a.k = i % 9 == 3 ? 200 : depths[(i + i / 9) % 8]; /* 200: deeper than panels are */
        a.n = i % 9 == 4 ? (wide ? 82 : 18) : columns[wide][(i + i / 18) % 6];
        a.back = (i + i / 18) % 2;
        a.x = i % 7 ? a.factors : MIRT_FLOAT32;
        a.y = i % 9 == 7 ? MIRT_FLOAT32 : a.factors;
        least_blocks = wide ? 1 : 128;
        panel_blocks = !several ? 1024 : a.pixels == 1000 ? 5 : 1; /* 5: the last block has fewer tiles */
        cu.shared_most = i == 14 ? 99 << 10 : 227 << 10; /* 99 KiB: no room for enough panels */
        check_panel(a, &reached);
    }
    cu.shared_most = 227 << 10;
    mirt_sim_watch(NULL);
    ok(reached.size() == 40, "%d of 40 reached: each of 20 panel kernels with one tile per block, and with several",
       (int)reached.size());
}

/* Of numbers far from zero: the sums of moments lose nothing. */
static void check_far(const char *how, int side) {
    const mirt__conv s = conv(1, side, side, 4, 4, 1, 1, 1, 1, 0);
    const int64_t n = (int64_t)side * side * 4;
    Numbers x(n, MIRT_FLOAT32), k(16, MIRT_FLOAT32), y(n, MIRT_FLOAT32), mean(4, MIRT_FLOAT32),
        variance(4, MIRT_FLOAT32);
    mirt__where where;
    mirt__conv_forward f;
    memset(&where, 0, sizeof where);
    memset(&f, 0, sizeof f);
    for (int64_t i = 0; i < 16; i++) k.floats()[i] = i % 5 == 0;
    for (int64_t i = 0; i < n; i++) x.floats()[i] = 1e4f * (float)(i % 4 + 1) + 1.7f * x.floats()[i];
    where.handle = &cu;
    f.s = s;
    f.x.data = x.at();
    f.kernel = k.floats();
    f.y = y.at();
    f.epilogue.sums = MIRT__SUMS_MOMENTS;
    f.epilogue.sum[0] = mean.floats();
    f.epilogue.sum[1] = variance.floats();
    mirt__cu_conv_forward(&f, &where);
    mirt__cu_try(&cu, cudaStreamSynchronize(cu.stream), "wait");
    double worst = 0, off = 0;
    for (int64_t j = 0; j < 4; j++) {
        double m = 0, v = 0;
        for (int64_t i = j; i < n; i += 4) m += x[i] / (double)(n / 4);
        for (int64_t i = j; i < n; i += 4) v += (x[i] - m) * (x[i] - m) / (double)(n / 4);
        worst = fabs(variance[j] / v - 1) <= worst ? worst : fabs(variance[j] / v - 1);
        off = fabs(mean[j] / m - 1) <= off ? off : fabs(mean[j] / m - 1);
    }
    ok(worst < 1e-6 && off < 1.2e-7,
       "%s: moments of %d numbers at mean / deviation of 1e4: variance off by %.1e, mean by %.1e", how, side * side,
       worst, off);
}

/* What is normalized when it is read has the bits of what was normalized before it was stored. */
static void check_stored(const char *how, mirt_activation_kind kind) {
    const int c = 24;
    const mirt__conv s = conv(1, 13, 15, c, c, 1, 1, 1, 1, 0);
    const int64_t n = s.h * s.w * c;
    Numbers x(n, MIRT_FLOAT32, -9, 9), k(c * c, MIRT_FLOAT32), stored(n, MIRT_FLOAT32), read(n, MIRT_FLOAT32);
    Norm norm(c, kind);
    mirt__where where;
    mirt__conv_forward f;
    memset(&where, 0, sizeof where);
    memset(&f, 0, sizeof f);
    for (int i = 0; i < c * c; i++) k.floats()[i] = i % (c + 1) == 0;
    where.handle = &cu;
    f.s = s;
    f.x.data = x.at();
    f.x.channels = c;
    f.kernel = k.floats();
    f.y = stored.at();
    f.epilogue.norm = &norm.s;
    f.epilogue.activation = kind;
    mirt__cu_conv_forward(&f, &where);
    f.y = read.at();
    f.x.norm = &norm.s;
    memset(&f.epilogue, 0, sizeof f.epilogue);
    mirt__cu_conv_forward(&f, &where);
    mirt__cu_try(&cu, cudaStreamSynchronize(cu.stream), "wait");
    int64_t differ = 0;
    for (int64_t i = 0; i < n; i++) differ += stored.floats()[i] != read.floats()[i];
    ok(differ == 0, "%s: normalized when stored and when read: %d of %d differ", how, (int)differ, (int)n);
}

/* Rows with a bit for each tap, with fewer and with more taps than bits, in tiles of 32 to 128 columns. */
static void check_taps(const char *how, mirt_dtype t) {
    const uint32_t seed = state;
    check(how, conv(2, 9, 8, 24, 28, 3, 1, 1, 1, 1), false, PLAIN, MIRT_LINEAR, BIASED_MOMENTS, t, t, t);
    check(how, conv(2, 9, 10, 64, 48, 3, 2, 1, 2, 1), true, PLAIN, MIRT_LINEAR, MASKED_GRADIENT, t, t, t);
    check(how, conv(1, 11, 9, 8, 200, 5, 1, 2, 1, 4), false, PLAIN, MIRT_LINEAR, MOMENTS, t, t, t);
    for (int taps = 15; taps < 18; taps += 2)
        check(how, conv(1, 6, 7, 8, 12, taps, 1, 1, 1, taps / 2), true, PLAIN, MIRT_LINEAR, RELU6_GRADIENT, t, t, t);
    state = seed;
}

template <int BN> static void want_bare(std::set<const void *> *wanted, mirt_dtype t, mirt__cu_ending ending) {
    wanted->insert(reinterpret_cast<const void *>(t == f16
                                                      ? mirt__cu_multiply_bare<128, BN, MIRT__CU_BY_FLOAT16>(ending)
                                                      : mirt__cu_multiply_bare<128, BN, MIRT__CU_BY_HALF>(ending)));
}
static std::set<const void *> bare_missing; /* kernels not launched yet */
static void note_bare_launch(const mirt_sim_launch *launch) { bare_missing.erase(launch->function); }
/* Every ending in large tiles of 32, 64 and 128 columns, by the kernels for operands multiplied as they are stored. */
static void check_endings(const char *how, mirt_dtype t) {
    static const struct {
        Ends ends;
        mirt__cu_ending ending;
    } all[] = {{MASK, MIRT__CU_END_ANY},
               {MOMENTS, MIRT__CU_END_MOMENTS},
               {RELU6_GRADIENT, MIRT__CU_END_GRADIENT},
               {NOTHING, MIRT__CU_END_OUTPUT},
               {ACTIVATED, MIRT__CU_END_NORMALIZED}};
    const uint32_t seed = state;
    bare_missing.clear();
    for (const auto &each : all) {
        want_bare<32>(&bare_missing, t, each.ending);
        want_bare<64>(&bare_missing, t, each.ending);
        want_bare<128>(&bare_missing, t, each.ending);
    }
    const size_t kernels = bare_missing.size();
    mirt_sim_watch(note_bare_launch);
    for (const auto &each : all) {
        for (int n : {28, 48, 200})
            check(how, conv(1, 7, 6, 8, n, 3, 1, 1, 1, 1), false, PLAIN, MIRT_LINEAR, each.ends, t, t, t);
    }
    mirt_sim_watch(NULL);
    ok(kernels == 15 && bare_missing.empty(), "%s: %d of 15 kernels, one for each ending and size of tile, not reached",
       how, (int)bare_missing.size());
    state = seed;
}

/* Dense layers: a lies by rows, which may be longer than k, or by columns; b likewise. */
static void check_gemm(const char *how, int64_t m, int64_t n, int64_t k, int64_t more, bool a_turned, bool b_turned) {
    const int64_t a_row = a_turned ? 1 : k + more, a_col = a_turned ? m + more : 1;
    Numbers a((m + more) * (k + more), MIRT_FLOAT32), b(k * n, MIRT_FLOAT32), c(m * n, MIRT_FLOAT32),
        sum(n, MIRT_FLOAT32);
    mirt__where where;
    mirt__gemm g;
    memset(&where, 0, sizeof where);
    memset(&g, 0, sizeof g);
    where.handle = &cu;
    g.m = m;
    g.n = n;
    g.k = k;
    g.a.data = a.at();
    g.a_row = a_row;
    g.a_col = a_col;
    g.b = b.floats();
    g.b_row = b_turned ? 1 : n;
    g.b_col = b_turned ? k : 1;
    g.c = c.floats();
    if (!b_turned) g.column_sum = sum.floats();
    mirt__cu_gemm(&g, &where);
    mirt__cu_try(&cu, cudaStreamSynchronize(cu.stream), "wait");
    double worst = 0;
    for (int64_t j = 0; j < n; j++) {
        double column = 0;
        for (int64_t p = 0; p < k; p++) column += b[p * g.b_row + j * g.b_col];
        if (!b_turned && !(fabs(column - sum[j]) / (double)k <= worst)) worst = fabs(column - sum[j]) / (double)k;
        for (int64_t i = 0; i < m; i++) {
            double want = 0, size = 0.01;
            for (int64_t p = 0; p < k; p++) {
                const double product = a[i * a_row + p * a_col] * b[p * g.b_row + j * g.b_col];
                want += product;
                size += fabs(product);
            }
            if (!(fabs(c[i * n + j] - want) / size <= worst)) worst = fabs(c[i * n + j] - want) / size;
        }
    }
    ok(worst < (cu.tf32 ? 1.5e-3 : 1e-6), "%s: %d x %d x %d, rows %d longer%s%s: off by %.1e", how, (int)m, (int)n,
       (int)k, (int)more, a_turned ? ", a turned" : "", b_turned ? ", b turned" : "", worst);
}

/* The argument, if there is one, names the way that alone is tested. */
int main(int count, char **arguments) {
    const char *only = count > 1 ? arguments[1] : NULL;
    static const struct { const char *name; int capability; bool tf32; mirt_dtype factors;
    } ways[] = {{"float32", 90, false, MIRT_FLOAT32},
                {"tf32", 90, true, MIRT_FLOAT32},
                {"bfloat16", 90, false, bf16},
                {"bfloat16 without tensor cores", 75, false, bf16},
                {"float16", 90, false, f16},
                {"float16 of 7.5", 75, false, f16},
                {"float16 without tensor cores", 70, false, f16}};
    mirt_sim::host_memory() = true;
    cudaSetDevice(0);
    mirt__cu_try(&cu, cudaStreamCreateWithFlags(&cu.stream, cudaStreamNonBlocking), "stream");
    for (int i = 0; i < 2 * (int)(sizeof ways / sizeof *ways); i++) {
        const auto &way = ways[i / 2];
        if (only && strcmp(only, way.name) != 0) continue;
        const mirt_dtype t = way.factors;
        const std::string how = std::string(way.name) + (i % 2 ? ", large tiles" : "");
        const char *name = how.c_str();
        least_blocks = i % 2 ? 1 : 128;
        mirt_sim::options().capability = way.capability;
        cu.major = way.capability / 10;
        cu.minor = way.capability % 10;
        cu.tf32 = way.tf32;
        cu.shared_most = way.capability < 80 ? 64 << 10 : 227 << 10;
        check(name, conv(1, 13, 15, 24, 136, 1, 1, 1, 1, 0), false, NORM, MIRT_RELU6, MOMENTS, t, t, t);
        check(name, conv(2, 9, 8, 40, 72, 3, 1, 1, 1, 1), false, PLAIN, MIRT_LINEAR, FROZEN, t, t, t);
        check(name, conv(2, 9, 8, 40, 136, 3, 2, 1, 1, 1), true, BACK, MIRT_RELU6, GRADIENT, t, t, t);
        check(name, conv(2, 9, 11, 16, 32, 3, 2, 2, 2, 2), true, BACK, MIRT_SILU, MASK, t, t, t);
        check(name, conv(1, 12, 12, 136, 40, 1, 1, 1, 1, 0), false, GATED, MIRT_RELU6, NOTHING, t, t, t);
        check(name, conv(2, 6, 6, 520, 24, 1, 1, 1, 1, 0), false, NORM, MIRT_SILU, MOMENTS, t, t, t);
        check(name, conv(2, 6, 6, 72, 136, 3, 3, 1, 1, 1), true, PLAIN, MIRT_LINEAR, GRADIENT, t, t, t);
        check(name, conv(1, 12, 12, 3, 20, 3, 2, 1, 1, 0), false, BYTES, MIRT_LINEAR, FROZEN, t, t, t);
        check(name, conv(1, 7, 7, 16, 16, 3, 1, 1, 1, 1), false, NORM, MIRT_GELU, FROZEN, t, t, MIRT_FLOAT32);
        check(name, conv(1, 7, 7, 16, 18, 3, 1, 1, 2, 1), false, GATE, MIRT_LINEAR, MOMENTS, t, MIRT_FLOAT32,
              MIRT_FLOAT32);
        check(name, conv(3, 2, 2, 8, 8, 3, 4, 1, 1, 1), true, PLAIN, MIRT_LINEAR, NOTHING, t, t, t);
        check_taps(name, t);
        if (t != MIRT_FLOAT32 && way.capability == 90 && i % 2) check_endings(name, t);
        if (t == MIRT_FLOAT32 && !way.tf32) {
            check_stored(name, MIRT_LINEAR);
            check_stored(name, MIRT_RELU6);
        }
        check(name, conv(1, 4, 4, 2600, 8, 1, 1, 1, 1, 0), false, BACK, MIRT_RELU6, NOTHING, t, t, t);
    }
    mirt_sim::options().capability = 90;
    cu.major = 9;
    cu.minor = 0;
    cu.tf32 = false;
    cu.shared_most = 227 << 10;
    if (!only || strcmp(only, "panel") == 0) check_panels();
    if (only) return done_testing();
    for (int i = 0; i < 16; i++) {
        least_blocks = i & 4 ? 1 : 128;
        cu.tf32 = (i & 8) != 0;
        check_gemm(cu.tf32 ? "tf32" : "float32", 37, 70, 300, i % 3, (i & 1) != 0, (i & 2) != 0);
    }
    cu.tf32 = false;
    for (int i = 0; i < 4; i++) {
        least_blocks = i / 2 ? 1 : 1 << 20;
        check_far(i / 2 ? "float32, large tiles" : "float32", i % 2 ? 190 : 9);
    }
    return done_testing();
}
