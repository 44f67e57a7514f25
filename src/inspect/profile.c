#include "../base/processor.h"
#include "../function/fit_program.h"
#include "timeline.h"
/* Where the time of a step goes, beside what the machine could do. */

/* >>ceilings */

/* Twelve chains of multiply-adds keep two units of four to five cycles' latency busy. */
#define MIRT__PEAK_CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define MIRT__PEAK_START(i) v##i = start;
#define MIRT__PEAK_NEXT(i) v##i = MIRT__PEAK_FMA(v##i, factor, start);
#define MIRT__PEAK_SUM(i) memcpy(timeline, &v##i, sizeof v##i), sum += timeline[0];
#define MIRT__PEAK_TEXT(vector, set) \
    vector v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, start = set(0.5f), factor = set(0.25f); \
    float timeline[16], sum = 0; \
    MIRT__PEAK_CHAINS(MIRT__PEAK_START) \
    for (int64_t i = 0; i < count; i++) { MIRT__PEAK_CHAINS(MIRT__PEAK_NEXT) } \
    MIRT__PEAK_CHAINS(MIRT__PEAK_SUM) \
    return sum;

#include "../kernels/optimize_begin.inc"
#if !defined(MIRRORTRAIN_NO_SIMD) && !defined(MIRT__REAL_DOUBLE) && defined(__x86_64__)
#define MIRT__PEAK_X86
#include <immintrin.h>
#define MIRT__PEAK_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
__attribute__((target("avx512f,fma"))) static float mirt__peak_avx512(int64_t count) {
    MIRT__PEAK_TEXT(__m512, _mm512_set1_ps)
}
#undef MIRT__PEAK_FMA
#define MIRT__PEAK_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
__attribute__((target("avx2,fma"))) static float mirt__peak_avx2(int64_t count) {
    MIRT__PEAK_TEXT(__m256, _mm256_set1_ps)
}
#undef MIRT__PEAK_FMA
/* Sums of two products each. */
#define MIRT__PEAK_FMA(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b))
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static float mirt__peak_bf16(int64_t count) {
    MIRT__PEAK_TEXT(__m512, _mm512_set1_ps)
}
#undef MIRT__PEAK_FMA
#elif !defined(MIRRORTRAIN_NO_SIMD) && !defined(MIRT__REAL_DOUBLE) && defined(__aarch64__)
#define MIRT__PEAK_NEON
#include <arm_neon.h>
#define MIRT__PEAK_FMA(a, b, c) vfmaq_f32(c, a, b)
static float mirt__peak_neon(int64_t count) { MIRT__PEAK_TEXT(float32x4_t, vdupq_n_f32) }
#undef MIRT__PEAK_FMA
#ifdef MIRT__NEON_BF16
__attribute__((target(MIRT__NEON_BF16))) MIRT__INLINE float32x4_t mirt__peak_dot(float32x4_t a, float32x4_t b,
                                                                                 float32x4_t sum) {
    __asm__("bfdot %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
}
#define MIRT__PEAK_FMA(a, b, c) mirt__peak_dot(a, b, c)
__attribute__((target(MIRT__NEON_BF16))) static float mirt__peak_bf16(int64_t count) {
    MIRT__PEAK_TEXT(float32x4_t, vdupq_n_f32)
}
#undef MIRT__PEAK_FMA
#endif
#endif
typedef float mirt__peak_four __attribute__((vector_size(16)));
#define MIRT__PEAK_FMA(a, b, c) ((a) * (b) + (c))
#define MIRT__PEAK_SET(x) {x, x, x, x}
static float mirt__peak_plain(int64_t count) { MIRT__PEAK_TEXT(mirt__peak_four, MIRT__PEAK_SET) }
#undef MIRT__PEAK_SET
#undef MIRT__PEAK_FMA
#include "../kernels/optimize_end.inc"

#undef MIRT__PEAK_CHAINS
#undef MIRT__PEAK_START
#undef MIRT__PEAK_NEXT
#undef MIRT__PEAK_SUM
#undef MIRT__PEAK_TEXT

typedef struct mirt__peak {
    const char *kernels; /* the table these instructions are of */
    float (*chains)(int64_t count);
    int timelines;
    float (*half)(int64_t count); /* with twice the timelines, of bfloat16; NULL: that is emulated */
} mirt__peak;

static const mirt__peak mirt__peaks[] = {
#ifdef MIRT__PEAK_X86
    {"avx512bf16", mirt__peak_avx512, 16, mirt__peak_bf16},
    {"avx512", mirt__peak_avx512, 16, NULL},
    {"avx2", mirt__peak_avx2, 8, NULL},
#endif
#ifdef MIRT__PEAK_NEON
#ifdef MIRT__NEON_BF16
    {"neonbf16", mirt__peak_neon, 4, mirt__peak_bf16},
#endif
    {"neon", mirt__peak_neon, 4, NULL},
#endif
    {"plain", mirt__peak_plain, 4, NULL}};
#undef MIRT__PEAK_X86
#undef MIRT__PEAK_NEON

enum { MIRT__PEAK_ROUNDS = 200000, MIRT__PEAK_TRIES = 60, MIRT__PEAK_PASSES = 15, MIRT__PEAK_FLOATS = 16 << 20 };

typedef struct mirt__peak_run {
    float (*chains)(int64_t count);
    volatile float sink;
} mirt__peak_run;

static void mirt__peak_member(void *arg, int member) {
    mirt__peak_run *run = (mirt__peak_run *)arg;
    float sum = run->chains(MIRT__PEAK_ROUNDS);
    if (member == 0) run->sink = sum;
}

/* Multiply-adds in registers, as FLOP/s of the device's threads: the best of several tries. */
static double mirt__peak_flops(const mirt_strategy *s, float (*chains)(int64_t count), int timelines) {
    mirt__team *team = s->device[0].team;
    mirt__peak_run run = {chains, 0};
    double best = 0;
    for (int i = 0; i < MIRT__PEAK_TRIES; i++) {
        double begin = mirt__now();
        mirt__team_run(team, mirt__peak_member, &run);
        double rate = 2.0 * 12 * timelines * (int)MIRT__PEAK_ROUNDS * mirt__team_size(team) / (mirt__now() - begin);
        if (rate > best) best = rate;
    }
    return best;
}

/* x += y on blocks larger than caches: bytes a second, two read and one written. 0 with the error set. */
static double mirt__peak_bytes(const mirt_strategy *s) {
    const size_t bytes = (size_t)MIRT__PEAK_FLOATS * sizeof(mirt__real);
    mirt__real *block = (mirt__real *)mirt__aligned_alloc(2 * bytes);
    mirt__where where;
    double best = 0;
    if (!block) return 0;
    memset(block, 0, 2 * bytes);
    memset(&where, 0, sizeof where);
    where.team = s->device[0].team;
    for (int i = 0; i < MIRT__PEAK_PASSES; i++) {
        double begin = mirt__now();
        s->kernels->accumulate(block, block + MIRT__PEAK_FLOATS, MIRT__PEAK_FLOATS, &where);
        double rate = 3.0 * (double)bytes / (mirt__now() - begin);
        if (rate > best) best = rate;
    }
    mirt__aligned_free(block);
    return best;
}

/* >>clocks */

static void mirt__clocks_free(mirt_function *f) {
    mirt__free(f->step.clocks);
    f->step.clocks = NULL;
}

MIRT__LIB mirt_status mirt__clocks_ready(mirt_function *f) {
    if (!f->model->profiled) mirt__clocks_free(f);
    if (!f->model->profiled || f->step.clocks) return MIRT_OK;
    mirt__clocks *clocks =
        (mirt__clocks *)mirt__calloc(1, sizeof *clocks + (size_t)f->step.program.graph.count * sizeof(double));
    if (!clocks) return mirt_last_status();
    clocks->node = (double *)(void *)(clocks + 1);
    f->step.clocks = clocks;
    return MIRT_OK;
}

static void mirt__profile_clear(mirt_model *model) {
    for (int i = 0; model->trainer && i < MIRT__PROGRAM_KINDS; i++) {
        if (model->trainer->function[i]) mirt__clocks_free(model->trainer->function[i]);
    }
    for (mirt_function *f = model->functions; f; f = f->next) mirt__clocks_free(f);
}

MIRT_API mirt_status mirt_profile_begin(mirt_model *model) {
    MIRT__USE_MODEL(model, mirt_last_status());
    if (!model) return mirt__fail_missing(__func__, "model");
    if (model->busy || model->strategy->running)
        return mirt__fail(MIRT_E_STATE, "mirt_profile_begin: %s is being trained or recorded", model->name);
    double bytes = mirt__peak_bytes(model->strategy);
    if (bytes <= 0) return mirt_last_status();
    mirt__profile_clear(model);
    model->peak_bytes = bytes;
    const mirt__peak *peak = mirt__peaks, *rest = peak + MIRT__COUNT(mirt__peaks) - 1; /* for what has no row */
    while (peak < rest && strcmp(peak->kernels, model->strategy->kernels->name) != 0) peak++;
    model->peak_flops = mirt__peak_flops(model->strategy, peak->chains, peak->timelines);
    model->peak_half =
        peak->half ? mirt__peak_flops(model->strategy, peak->half, 2 * peak->timelines) : model->peak_flops;
    mirt__measure(model->strategy);
    model->profiled = true;
    return MIRT_OK;
}

MIRT_API void mirt_profile_end(mirt_model *model) {
    MIRT__USE_MODEL(model, );
    if (!model || model->busy || model->strategy->running) return;
    mirt__profile_clear(model);
    model->profiled = false;
}

/* >>text */

/* An operation, or all of a kind, in one step. */
typedef struct mirt__profile_row {
    const mirt__node *node; /* NULL: not an operation */
    char name[48];
    int count;
    double seconds, flops, bytes;
    double least; /* seconds of the flops at their ceiling */
} mirt__profile_row;

static int mirt__profile_order(const void *a, const void *b) {
    double x = ((const mirt__profile_row *)a)->seconds, y = ((const mirt__profile_row *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* What it reads, and what lazy inputs are made of; a tensor without a place is never stored. */
static double mirt__bytes_read(const mirt__node *node, int64_t rows) {
    double bytes = 0;
    for (int k = 0; k < node->num_in; k++) {
        const mirt_tensor *t = node->in[k];
        if (t->lazy) bytes += mirt__bytes_read(t->node, rows);
        else if (t->space != MIRT__SPACE_NONE) bytes += (double)mirt__tensor_bytes(t, rows);
    }
    return bytes;
}

MIRT__LIB double mirt__node_bytes(const mirt__node *node, int64_t rows) {
    double bytes = mirt__bytes_read(node, rows);
    for (int k = 0; k < node->num_out; k++) {
        if (node->out[k]->space != MIRT__SPACE_NONE) bytes += (double)mirt__tensor_bytes(node->out[k], rows);
    }
    return bytes;
}

/* The first device's share of the update: each part of the gradient (a device with memory of its own has the sum),
 * weights and slots read, slots and every copy written. */
static double mirt__update_bytes(const mirt_function *f) {
    const mirt_strategy *s = f->model->strategy;
    mirt__exchange x;
    int64_t elements = 0;
    const mirt__range share = mirt__model_share(f->model, 0);
    mirt__step_plan(&f->step, 0, &x);
    for (int i = 0; i < f->step.num_ranges; i++) {
        const mirt__range own = mirt__overlap(&f->step.range[i], share.begin, share.end);
        if (own.end > own.begin) elements += own.end - own.begin;
    }
    return (double)elements * (double)sizeof(mirt__real) *
           ((s->able.shards ? x.parts : 1) + 1 + mirt__written_copies(s) +
            2 * mirt__slots(&f->model->config));
}

/* The kernel of a convolution, or its gradient; NULL for other nodes. */
static const mirt_tensor *mirt__profile_kernel(const mirt__node *node) {
    if (node->a.family != MIRT__FAMILY_window || !node->op->macs) return NULL;
    for (int k = node->num_in - 1; k >= -1; k--) {
        const mirt_tensor *t = k < 0 ? node->out[0] : node->in[k];
        if (t->shape.rank == 4 && !mirt__is_batched(&t->shape)) return t;
    }
    return NULL;
}

/* Convolutions of one size are a kind. */
static void mirt__profile_name(const mirt__node *node, char out[48]) {
    const mirt_tensor *kernel = mirt__profile_kernel(node);
    snprintf(out, 48, "%s", node->op->name);
    if (!kernel || strlen(out) > 24) return;
    mirt__line_add(out, 48, " %dx%d%s", (int)kernel->shape.dim[0], (int)kernel->shape.dim[1],
                   MIRT__OF(&node->a, window)->groups > 1 ? " grouped" : "");
}

/* One row an operation, then what is not one. Returns how many. */
static int mirt__profile_rows(const mirt_function *f, mirt__profile_row *row) {
    const mirt__clocks *c = f->step.clocks;
    const double steps = (double)c->steps, replays = (double)c->replays / steps;
    const int64_t rows = c->replays ? c->replayed / c->replays : 0;
    int count = 0;
    for (int i = 0; i < f->step.program.graph.count; i++) {
        const mirt__node *node = f->step.program.graph.node[i];
        if (!mirt__node_runs(node)) continue;
        mirt__profile_row *r = &row[count++];
        r->node = node;
        mirt__profile_name(node, r->name);
        r->count = 1;
        r->seconds = c->node[i] / steps;
        r->flops = node->op->macs ? 2 * node->op->macs(node, rows) * replays : 0;
        r->bytes = mirt__node_bytes(node, rows) * replays;
        r->least = r->flops / (node->a.half ? f->model->peak_half : f->model->peak_flops);
    }
    const char *const names[] = {mirt__optimizers_name(&f->model->config), "(waiting)"};
    const double seconds[] = {c->update, c->wait};
    for (int i = 0; f->step.has_gradients && i < MIRT__COUNT(names); i++) {
        mirt__profile_row *r = &row[count++];
        memset(r, 0, sizeof *r);
        snprintf(r->name, sizeof r->name, "%s", names[i]);
        r->count = 1;
        r->seconds = seconds[i] / steps;
        r->bytes = i == 0 ? mirt__update_bytes(f) : 0;
    }
    return count;
}

/* "(3, 3, 96, 1)/2 (rows, 56, 56, 96)": kernel and output, what the times of like operations depend on. */
static void mirt__profile_what(const mirt__node *node, char *out, size_t size) {
    char shape[96];
    int first = 0;
    while (first < node->num_out && node->out[first]->space == MIRT__SPACE_NONE) first++;
    const mirt_tensor *t = node->out[first < node->num_out ? first : 0], *kernel = mirt__profile_kernel(node);
    if (kernel && kernel != t)
        mirt__line_add(out, size, "%s/%d ", mirt__shape_text(&kernel->shape, shape),
                       MIRT__OF(&node->a, window)->strides[0]);
    if (t->dtype != MIRT_FLOAT32) mirt__line_add(out, size, "%s ", mirt__dtype_name(t->dtype));
    mirt__line_add(out, size, "%s", mirt__shape_text(&t->shape, shape));
}

static void mirt__profile_rates(const mirt_model *model, const mirt__profile_row *r, double step, mirt__text *out) {
    const double flops = r->seconds > 0 ? r->flops / r->seconds : 0, bytes = r->seconds > 0 ? r->bytes / r->seconds : 0;
    mirt__text_add(out, "%9.3f %6.1f%%", r->seconds * 1e3, step > 0 ? 100 * r->seconds / step : 0);
    if (r->flops > 0) mirt__text_add(out, " %9.1f %4.0f%%", flops * 1e-9, 100 * r->least / r->seconds);
    else mirt__text_add(out, " %9s %5s", "", "");
    if (r->bytes > 0) mirt__text_add(out, " %8.1f %4.0f%%", bytes * 1e-9, 100 * bytes / model->peak_bytes);
    else mirt__text_add(out, " %8s %5s", "", "");
}

/* All rows that show in per cent; with what lies between operations, the others are what is left of the step. */
static void mirt__profile_table(const mirt_model *model, const mirt__profile_row *row, int count, double step,
                                mirt__text *out) {
    mirt__profile_row rest;
    memset(&rest, 0, sizeof rest);
    rest.seconds = step;
    mirt__text_add(out, "%9s %7s %9s %5s %8s %5s\n", "ms", "", "GFLOP/s", "peak", "GB/s", "peak");
    for (int i = 0; i < count; i++) {
        char what[160] = "";
        if (row[i].seconds < 0.0005 * step) {
            rest.count += row[i].node ? row[i].count : 0;
            continue;
        }
        rest.seconds -= row[i].seconds;
        mirt__profile_rates(model, &row[i], step, out);
        if (row[i].count > 1) snprintf(what, sizeof what, "%d of them", row[i].count);
        else if (row[i].node) mirt__profile_what(row[i].node, what, sizeof what);
        const char *layer = row[i].count == 1 && row[i].node && row[i].node->name ? row[i].node->name : "";
        mirt__text_add(out, "  %-30s %-28s %s", mirt__shown(row[i].name).text, mirt__shown(layer).text, what);
        if (row[i].count == 1 && row[i].node) mirt__node_notes(row[i].node, out);
        mirt__text_add(out, "\n");
    }
    mirt__profile_rates(model, &rest, step, out);
    mirt__text_add(out, "  (the rest)");
    if (rest.count) mirt__text_add(out, ", with %d operation%s below 0.05 %%", rest.count, rest.count == 1 ? "" : "s");
    mirt__text_add(out, "\n");
}

/* Adds up the rows of a name, in the order of their times. Returns how many names there are. */
static int mirt__profile_kinds(mirt__profile_row *row, int count) {
    int kinds = 0;
    for (int i = 0; i < count; i++) {
        int k = 0;
        while (k < kinds && strcmp(row[k].name, row[i].name) != 0) k++;
        if (k == kinds) {
            row[kinds++] = row[i];
            continue;
        }
        row[k].count++;
        row[k].seconds += row[i].seconds;
        row[k].flops += row[i].flops;
        row[k].least += row[i].least;
        row[k].bytes += row[i].bytes;
    }
    qsort(row, (size_t)kinds, sizeof *row, mirt__profile_order);
    return kinds;
}

/* What the function's steps took, if there were any. False: out of memory. */
static bool mirt__profile_of(const mirt_model *model, const mirt_function *f, const char *name, mirt__text *out) {
    const mirt__clocks *c = f ? f->step.clocks : NULL;
    double flops = 0, bytes = 0;
    if (!c || !c->steps) return true;
    const double step = c->step / (double)c->steps;
    mirt__profile_row *row = (mirt__profile_row *)mirt__calloc((size_t)f->step.program.graph.count + 2, sizeof *row);
    if (!row) return false;
    int count = mirt__profile_rows(f, row);
    qsort(row, (size_t)count, sizeof *row, mirt__profile_order);
    for (int i = 0; i < count; i++) {
        flops += row[i].flops;
        bytes += row[i].bytes;
    }
    mirt__text_add(out,
                   "%s, %s: %lld step%s of %.4g sample%s, %.3f ms each: %.2f GFLOP and %.3f GB on the first device, "
                   "%.1f GFLOP/s and %.1f GB/s\n",
                   mirt__shown(model->name).text, name, (long long)c->steps, c->steps == 1 ? "" : "s",
                   (double)c->rows / (double)c->steps, c->rows == c->steps ? "" : "s", step * 1e3, flops * 1e-9,
                   bytes * 1e-9, flops / step * 1e-9, bytes / step * 1e-9);
    mirt__profile_table(model, row, count, step, out);
    mirt__text_add(out, "by kind:\n");
    mirt__profile_table(model, row, mirt__profile_kinds(row, count), step, out);
    mirt__free(row);
    return true;
}

MIRT_API const char *mirt_profile_text(mirt_model *model) {
    MIRT__USE_MODEL(model, NULL);
    static const char *const names[MIRT__PROGRAM_KINDS] = {"training", "testing", "predicting", "features"};
    if (!model) return mirt__fail_missing(__func__, "model"), (const char *)NULL;
    mirt__text *out = &model->profile_text;
    mirt__text_clear(out);
    mirt__text_add(out, "ceilings of %s, %d thread%s, %s: %.1f GFLOP/s, in bfloat16 %.1f, %.1f GB/s\n",
                   model->strategy->device[0].name, model->strategy->threads, model->strategy->threads == 1 ? "" : "s",
                   model->strategy->kernels->name, model->peak_flops * 1e-9, model->peak_half * 1e-9,
                   model->peak_bytes * 1e-9);
    if (mirt__wake_seconds() > 0)
        mirt__text_add(out, "waking threads takes %.1f us, so those that wait spin for %.1f us before they sleep\n",
                       mirt__wake_seconds() * 1e6, mirt__spin_seconds() * 1e6);
    const size_t head = out->size;
    for (int i = 0; model->trainer && i < MIRT__PROGRAM_KINDS; i++) {
        if (!mirt__profile_of(model, model->trainer->function[i], names[i], out)) return NULL;
    }
    for (const mirt_function *f = model->functions; f; f = f->next) {
        if (!mirt__profile_of(model, f, "a function", out)) return NULL;
    }
    if (out->size == head && !out->failed)
        return mirt__fail(MIRT_E_STATE, "mirt_profile_text: no step of %s has run since mirt_profile_begin",
                          model->name),
               (const char *)NULL;
    return out->failed ? NULL : out->data;
}
