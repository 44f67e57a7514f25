/* MixUp and CutMix: stages that mix each sample with another one of the data set. */

#include "../kernels/augment.h"
#include "data.h"

typedef struct mirt__mix_dataset {
    mirt_dataset base;
    mirt__transform draws; /* its key, the range `low` to `high` of alpha, and the size of images */
    bool cuts;
    int64_t partners; /* samples to choose from */
} mirt__mix_dataset;

/* What one sample draws. */
typedef struct mirt__mixture {
    double share;      /* what remains of the sample */
    int64_t partner;   /* in the order of this epoch */
    int64_t part[4];   /* rows [part[0], part[1]) and columns [part[2], part[3]) become the partner's */
} mirt__mixture;

/* The same results everywhere, unlike those of a math library. */
#include "../kernels/optimize_begin.inc"

/* The logarithm of x > 0: m 2^e with m between sqrt(1/2) and sqrt(2), and the series of artanh. */
static double mirt__mix_log(double x) {
    int e;
    double m = frexp(x, &e), sum = 0;
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    const double s = (m - 1) / (m + 1), square = s * s;
    for (int k = 23; k > 0; k -= 2) sum = sum * square + 1.0 / k;
    return 2 * s * sum + e * 0.69314718055994531;
}

/* The exponential of x <= 0: 2^n with a Taylor series for the rest. */
static double mirt__mix_exp(double x) {
    if (x < -700) return 0;
    const double n = floor(x * 1.4426950408889634 + 0.5),
                 r = x - n * 0.693147180369123816490 - n * 1.90821492927058770002e-10;
    double sum = 1;
    for (int k = 14; k > 0; k--) sum = 1 + sum * r / k;
    return ldexp(sum, (int)n);
}

/* A Beta(alpha, alpha) number, alpha above 0 to 1, by Joehnk's method: one of two tries succeeds at least. */
static double mirt__mix_beta(const mirt__transform *t, double alpha, uint64_t seed, uint64_t row, uint64_t step) {
    const uint32_t tries = 64;
    for (uint32_t block = 1; block <= tries; block++) {
        uint32_t word[4];
        mirt__transform_words(t->key, seed, row, step, block, word);
        for (int i = 0; i < 4; i += 2) {
            const double x = mirt__mix_log(((double)word[i] + 0.5) / 4294967296.0) / alpha,
                         y = mirt__mix_log(((double)word[i + 1] + 0.5) / 4294967296.0) / alpha, most = x > y ? x : y,
                         a = mirt__mix_exp(x - most), b = mirt__mix_exp(y - most);
            if (most + mirt__mix_log(a + b) <= 0) return a / (a + b);
        }
    }
    return 0.5;
}

static void mirt__mix_draw(const mirt__mix_dataset *mix, uint64_t row, mirt__mixture *out) {
    const mirt__transform *t = &mix->draws;
    const uint64_t seed = mix->base.seed;
    uint64_t pass;
    uint32_t word[4];
    double drawn[4];
    mirt__dataset_repeats(mix->base.source, &pass);
    const uint64_t step = (uint64_t)mix->base.epoch + (pass << 32);
    mirt__transform_words(t->key, seed, row, step, 0, word);
    mirt__transform_units(word, drawn);
    out->partner = (int64_t)((uint64_t)word[0] * (uint64_t)mix->partners >> 32);
    const double alpha = mirt__transform_between(t, 0, drawn[1]) + (mix->cuts ? 1e-6 : 0);
    out->share = mirt__mix_beta(t, alpha > 1 ? 1 : alpha, seed, row, step);
    if (!mix->cuts) return;
    const double side = sqrt(1 - out->share);
    mirt__transform_side(side, drawn[3], t->h, out->part);
    mirt__transform_side(side, drawn[2], t->w, out->part + 2);
}

/* y = share * y + (1 - share) * x, bytes rounded. */
static void mirt__mix_blend(const mirt__data_field *field, double share, void *y, const void *x) {
    const mirt__real a = (mirt__real)share, b = (mirt__real)(1 - share);
    const int64_t count = mirt__shape_count(&field->shape);
    if (field->dtype == MIRT_UINT8) {
        unsigned char *const to = (unsigned char *)y;
        const unsigned char *const from = (const unsigned char *)x;
        for (int64_t i = 0; i < count; i++)
            to[i] = (unsigned char)(a * (mirt__real)to[i] + b * (mirt__real)from[i] + (mirt__real)0.5);
    } else {
        mirt__real *const to = (mirt__real *)y;
        const mirt__real *const from = (const mirt__real *)x;
        for (int64_t i = 0; i < count; i++) to[i] = a * to[i] + b * from[i];
    }
}

#include "../kernels/optimize_end.inc"

static void mirt__mix_cut(const mirt__data_field *field, const int64_t part[4], void *y, const void *x) {
    const size_t pixel = (size_t)field->shape.dim[2] * mirt__dtype_size(field->dtype);
    for (int64_t r = part[0]; r < part[1] && part[2] < part[3]; r++) {
        const size_t at = (size_t)(r * field->shape.dim[1] + part[2]) * pixel;
        memcpy((char *)y + at, (const char *)x + at, (size_t)(part[3] - part[2]) * pixel);
    }
}

static mirt_status mirt__mix_apply(mirt_dataset *dataset, const mirt__sample *in, mirt__work *work, void *const *out) {
    const mirt__mix_dataset *mix = (const mirt__mix_dataset *)dataset;
    const mirt__data_spec *spec = &dataset->spec;
    mirt__sample other;
    mirt__mixture drawn;
    mirt__mix_draw(mix, (uint64_t)in->index, &drawn);
    /* The partner is made in the memory where `in` may be. */
    for (int f = 0; f < spec->num_fields; f++) memcpy(out[f], in->field[f], spec->field[f].bytes);
    const mirt_status status = mirt__dataset_reach(dataset->source, drawn.partner, work, &other);
    if (status != MIRT_OK) return status == MIRT__SKIPPED ? MIRT_OK : status; /* nothing to mix it with */
    if (mix->cuts) mirt__mix_cut(&spec->field[0], drawn.part, out[0], other.field[0]);
    else mirt__mix_blend(&spec->field[0], drawn.share, out[0], other.field[0]);
    for (int f = spec->num_x; f < spec->num_x + spec->num_y; f++)
        mirt__mix_blend(&spec->field[f], drawn.share, out[f], other.field[f]);
    return MIRT_OK;
}

static mirt_status mirt__mix_check(const char *caller, const mirt_dataset *source, bool cuts) {
    const mirt__data_spec *spec = &source->spec;
    char text[96];
    if (spec->batch)
        return mirt__fail(MIRT_E_INVALID, "%s must come before mirt_batch: it takes one sample at a time", caller);
    if (!mirt__reachable(source) && !source->run)
        return mirt__fail(MIRT_E_INVALID, "%s needs samples in any order: put mirt_cache before it", caller);
    if (source->run && source->skips)
        return mirt__fail(MIRT_E_INVALID, "%s must come before mirt_repeat where samples may be skipped", caller);
    if ((spec->field[0].dtype != MIRT_FLOAT32 && spec->field[0].dtype != MIRT_UINT8) ||
        (cuts && spec->field[0].shape.rank != 3))
        return mirt__fail(MIRT_E_SHAPE, "%s takes %s of uint8 or float32, not %s of %s", caller,
                          cuts ? "images (height, width, channels)" : "inputs",
                          mirt__shape_text(&spec->field[0].shape, text), mirt__dtype_name(spec->field[0].dtype));
    if (spec->num_y == 0) return mirt__fail(MIRT_E_INVALID, "%s: the data set has no labels to mix", caller);
    for (int f = spec->num_x; f < spec->num_x + spec->num_y; f++) {
        if (spec->field[f].dtype != MIRT_FLOAT32)
            return mirt__fail(MIRT_E_INVALID, "%s mixes float32 labels, not %s: put mirt_one_hot_labels before it",
                              caller, mirt__dtype_name(spec->field[f].dtype));
    }
    return MIRT_OK;
}

static uint64_t mirt__mix_bits(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static mirt_dataset *mirt__mix(const char *caller, mirt_dataset *dataset, bool cuts, float low, float high) {
    if (!dataset) return NULL;
    const mirt_dataset *source = dataset;
    mirt_status status = mirt__mix_check(caller, source, cuts);
    if (status == MIRT_OK)
        status = mirt__dataset_add_each(caller, &dataset, sizeof(mirt__mix_dataset), mirt__mix_apply);
    if (status != MIRT_OK) return mirt__dataset_checked(status, &dataset);
    mirt__mix_dataset *mix = (mirt__mix_dataset *)dataset;
    uint64_t key = mirt__hash(caller);
    for (const mirt_dataset *s = source; s; s = s->source) key += s->apply == mirt__mix_apply;
    while (source->run) source = source->source; /* the samples of one pass */
    mix->partners = source->spec.samples;
    mix->cuts = cuts;
    mix->draws.key = key * 0x9E3779B97F4A7C15u;
    mix->draws.low[0] = low;
    mix->draws.high[0] = high;
    mix->draws.h = dataset->spec.field[0].shape.dim[0];
    mix->draws.w = dataset->spec.field[0].shape.dim[1];
    dataset->cost = cuts ? "cut_mix" : "mix_up";
    dataset->shuffles++;
    dataset->identity = mirt__identity_with(dataset->identity, key);
    dataset->identity = mirt__identity_with(dataset->identity, mirt__mix_bits(low) << 32 | mirt__mix_bits(high));
    return dataset;
}

MIRT_API mirt_dataset *mirt_mix_up(mirt_dataset *dataset, float alpha) {
    MIRT__ENTER;
    if (!(alpha >= 0 && alpha <= 1)) {
        mirt__fail(MIRT_E_INVALID, "mirt_mix_up(%g): alpha must lie between 0 and 1; 0 is 0.2", (double)alpha);
        return mirt__dataset_checked(MIRT_E_INVALID, &dataset);
    }
    if (!(alpha > 0)) alpha = 0.2f;
    return mirt__mix("mirt_mix_up", dataset, false, alpha, alpha);
}

MIRT_API mirt_dataset *mirt_cut_mix(mirt_dataset *dataset, float low, float high) {
    MIRT__ENTER;
    if (!(low >= 0 && low <= high && high <= 1)) {
        mirt__fail(MIRT_E_INVALID, "mirt_cut_mix(%g, %g): it takes a range within 0 and 1; 0, 0 is 0 to 1", (double)low,
                   (double)high);
        return mirt__dataset_checked(MIRT_E_INVALID, &dataset);
    }
    if (!(high > 0)) high = 1;
    return mirt__mix("mirt_cut_mix", dataset, true, low, high);
}
