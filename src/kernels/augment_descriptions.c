/* Descriptions of random image transforms: checks, and the transforms that one consists of. */

#include "augment.h"

/* A range of factors, the description's field of that name: `least` and `most` it can have, what {f, 0} begins with
   unless -f is more, and the one of a description without. */
typedef struct mirt__transform_range {
    mirt_augmentation_kind kind;
    int axis;
    size_t field;
    float least, most, from, usual[2];
    char name[20];
} mirt__transform_range;

/* Contrast's {f, 0} is {f, f}, and grayscale has one chance. */
MIRT__TRAINING bool mirt__transform_factor(const mirt__transform_range *r, const float factor[2],
                                           mirt__transform *out) {
    const bool zooms = r->kind == MIRT_RANDOM_ZOOM, whole = r->kind == MIRT_RANDOM_POSTERIZATION;
    float low = factor[0], high = factor[1];
    for (int i = 0; i < 2; i++) {
        const bool lies = factor[i] >= r->least && factor[i] <= r->most && !(zooms && factor[i] == -1) &&
                          !(whole && factor[i] != floorf(factor[i]));
        if (lies || (i == 1 && factor[i] == 0)) continue;
        return mirt__fail(MIRT_E_INVALID, "%s %g; it must lie between %g%s and %g%s", r->name, (double)factor[i],
                          (double)r->least, zooms ? " (excluded)" : "", (double)r->most,
                          whole ? ", and be a whole number" : ""),
               false;
    }
    if (r->kind == MIRT_RANDOM_CONTRAST) {
        if (high == 0) high = low;
        low = -low;
    } else if (r->kind == MIRT_RANDOM_GRAYSCALE) {
        high = low;
    } else if (high == 0 && low > 0) {
        high = low;
        low = -low > r->from ? -low : r->from;
    } else if (low > high) {
        low = factor[1];
        high = factor[0];
    }
    if (zooms && low <= -1)
        return mirt__fail(MIRT_E_INVALID, "%g leaves nothing of the image when zooming in; it must be less than 1",
                          (double)factor[0]),
               false;
    out->low[r->axis] = low;
    out->high[r->axis] = high;
    return true;
}

MIRT__TRAINING bool mirt__transform_factors(const mirt_augmentation *d, mirt__transform *out) {
#define MIRT__RANGE(kind, axis, field, least, most, from, usual, until) \
    {MIRT_##kind, axis, offsetof(mirt_augmentation, field), least, most, from, {usual, until}, #field}
    static const mirt__transform_range ranges[] = {
        MIRT__RANGE(RANDOM_ROTATION, 0, factor, -1, 1, -1, 0, 0),
        MIRT__RANGE(RANDOM_ZOOM, 0, height_factor, -1, 1, -1, 0, 0),
        MIRT__RANGE(RANDOM_ZOOM, 1, width_factor, -1, 1, -1, 0, 0),
        MIRT__RANGE(RANDOM_TRANSLATION, 0, height_factor, -1, 1, -1, 0, 0),
        MIRT__RANGE(RANDOM_TRANSLATION, 1, width_factor, -1, 1, -1, 0, 0),
        MIRT__RANGE(RANDOM_CONTRAST, 0, factor, 0, 1, 0, 0, 0),
        MIRT__RANGE(RANDOM_BRIGHTNESS, 0, factor, -1, 1, -1, 0, 0),
        MIRT__RANGE(RANDOM_SHEAR, 0, y_factor, 0, 1, -1, 0, 0),
        MIRT__RANGE(RANDOM_SHEAR, 1, x_factor, 0, 1, -1, 0, 0),
        MIRT__RANGE(RANDOM_PERSPECTIVE, 0, factor, 0, 1, 0, 1, 0),
        MIRT__RANGE(RANDOM_PERSPECTIVE, 1, scale, 0, 1, 0, 1, 0),
        MIRT__RANGE(RANDOM_HUE, 0, factor, 0, 1, 0, 0, 0),
        MIRT__RANGE(RANDOM_SATURATION, 0, factor, 0, 1, 0, 0, 0),
        MIRT__RANGE(RANDOM_ERASING, 0, factor, 0, 1, 0, 1, 0),
        MIRT__RANGE(RANDOM_ERASING, 1, scale, 0, 1, 0, 0.02f, 0.33f),
        MIRT__RANGE(RANDOM_GRAYSCALE, 0, factor, 0, 1, 0, 0.5f, 0),
        MIRT__RANGE(RANDOM_INVERT, 0, factor, 0, 1, 0, 1, 0),
        MIRT__RANGE(SOLARIZATION, 0, addition_factor, 0, 1, 0, 0, 0),
        MIRT__RANGE(SOLARIZATION, 1, threshold_factor, 0, 1, 0, 0, 0),
        MIRT__RANGE(RANDOM_POSTERIZATION, 0, factor, 1, 8, 1, 0, 0),
        MIRT__RANGE(RANDOM_COLOR_DEGENERATION, 0, factor, 0, 1, 0, 0, 0),
        MIRT__RANGE(RANDOM_SHARPNESS, 0, factor, 0, 1, 0, 0, 0),
        MIRT__RANGE(RANDOM_GAUSSIAN_BLUR, 0, factor, 0, 1, 0, 1, 0),
        MIRT__RANGE(RANDOM_GAUSSIAN_BLUR, 1, sigma, 0, 100, 0, 1, 0),
        MIRT__RANGE(RANDOM_ELASTIC_TRANSFORM, 0, factor, 0, 1, 0, 1, 0),
        MIRT__RANGE(RANDOM_ELASTIC_TRANSFORM, 1, scale, 0, 1, 0, 1, 0),
    };
#undef MIRT__RANGE
    for (int i = 0; i < MIRT__COUNT(ranges); i++) {
        const float *const factor = (const float *)((const char *)d + ranges[i].field);
        const bool given = factor[0] != 0 || factor[1] != 0;
        if (ranges[i].kind != d->kind) continue;
        if (!mirt__transform_factor(&ranges[i], given ? factor : ranges[i].usual, out)) return false;
    }
    return true;
}

/* What only training reads. */
MIRT__TRAINING bool mirt__transform_draws(const mirt_augmentation *d, mirt__transform *out) {
    if ((int)d->mode < 0 || d->mode >= MIRT__FLIP_COUNT)
        return mirt__fail(MIRT_E_INVALID, "invalid flip mode (%d)", (int)d->mode), false;
    if ((int)d->fill_mode < 0 || d->fill_mode >= MIRT__FILL_COUNT || !isfinite(d->fill_value)) {
        return mirt__fail(MIRT_E_INVALID, "fill mode %d with %g: invalid mode, or the value is not finite",
                          (int)d->fill_mode, (double)d->fill_value),
               false;
    }
    if ((d->kind == MIRT_RANDOM_ERASING || d->kind == MIRT_RANDOM_PERSPECTIVE) && d->fill_mode != MIRT_FILL_REFLECT &&
        d->fill_mode != MIRT_FILL_CONSTANT) {
        return mirt__fail(MIRT_E_INVALID, "fill mode %d: %sMIRT_FILL_CONSTANT", (int)d->fill_mode,
                          d->kind == MIRT_RANDOM_ERASING ? "erasing fills with noise, or by "
                                                         : "a perspective supports only "),
               false;
    }
    if (d->kind == MIRT_EQUALIZATION) {
        out->bins = d->bins ? d->bins : MIRT__TRANSFORM_BINS;
        if (out->bins < 2 || out->bins > MIRT__TRANSFORM_BINS)
            return mirt__fail(MIRT_E_INVALID, "%d bins; 2 to %d are possible", d->bins, MIRT__TRANSFORM_BINS), false;
    }
    if (d->kind == MIRT_RANDOM_GAUSSIAN_BLUR) {
        out->size = d->kernel_size ? d->kernel_size : 3;
        if (out->size < 1 || out->size > MIRT__TRANSFORM_TAPS || out->size % 2 == 0 ||
            (out->size - 1) * out->c > MIRT__FILTER_BESIDE) {
            return mirt__fail(MIRT_E_INVALID, "kernel_size %d; it must be odd, at most %d, and (size - 1) * channels at"
                              " most %d", d->kernel_size, MIRT__TRANSFORM_TAPS, MIRT__FILTER_BESIDE),
                   false;
        }
    }
    if (d->kind == MIRT_RAND_AUGMENT && (d->num_ops < 0 || d->num_ops > 8))
        return mirt__fail(MIRT_E_INVALID, "num_ops %d; 1 to 8 are possible", d->num_ops), false;
    if (d->kind == MIRT_AUG_MIX) {
        out->bins = d->num_chains ? d->num_chains : 3;
        out->low[0] = d->alpha != 0 ? d->alpha : 1;
        if (out->bins < 1 || out->bins > MIRT__TRANSFORM_CHAINS || d->chain_depth < 0 ||
            d->chain_depth > MIRT__TRANSFORM_CHAINS || !(out->low[0] > 0) || !isfinite(out->low[0])) {
            return mirt__fail(MIRT_E_INVALID, "num_chains %d, chain_depth %d, alpha %g; 1 to %d of the first two are"
                              " possible, and an alpha above 0", d->num_chains, d->chain_depth, (double)d->alpha,
                              MIRT__TRANSFORM_CHAINS),
                   false;
        }
    }
    if (d->kind == MIRT_RANDOM_SHARPNESS && 2 * out->c > MIRT__FILTER_BESIDE)
        return mirt__fail(MIRT_E_SHAPE, "takes at most %d channels", MIRT__FILTER_BESIDE / 2), false;
    out->paired = d->kind == MIRT_RANDOM_ZOOM && d->width_factor[0] == 0 && d->width_factor[1] == 0;
    return mirt__transform_factors(d, out);
}

MIRT__LIB bool mirt__transform_of(const mirt_augmentation *d, int64_t h, int64_t w, int64_t c, mirt__transform *out) {
    memset(out, 0, sizeof *out);
    if ((int)d->kind < 0 || d->kind >= MIRT__AUGMENTATION_COUNT)
        return mirt__fail(MIRT_E_INVALID, "invalid augmentation (%d)", (int)d->kind), false;
    const int traits = mirt__transform_traits(d->kind);
    out->kind = d->kind;
    out->mode = d->mode;
    out->fill = d->kind == MIRT_RANDOM_PERSPECTIVE ? MIRT_FILL_CONSTANT : d->fill_mode;
    out->value = d->fill_value;
    out->nearest = d->interpolation == MIRT_NEAREST;
    out->h = out->oh = h;
    out->w = out->ow = w;
    out->c = c;
    /* the layer mirt_resizing handles other interpolations */
    if (d->interpolation != MIRT_BILINEAR && d->interpolation != MIRT_NEAREST) {
        return mirt__fail(MIRT_E_INVALID, "interpolation %d: augmentation supports MIRT_BILINEAR and MIRT_NEAREST",
                          (int)d->interpolation),
               false;
    }
    if (MIRT__TRAINS && !mirt__transform_draws(d, out)) return false;
    if (d->kind == MIRT_CLAHE) {
        out->bins = d->tile_grid_size[0] ? d->tile_grid_size[0] : 8;
        out->size = d->tile_grid_size[1] ? d->tile_grid_size[1] : 8;
        out->low[0] = d->clip_limit != 0 ? d->clip_limit : 4;
        if (out->bins < 1 || out->bins > 16 || out->size < 1 || out->size > 16 || !isfinite(d->clip_limit)) {
            return mirt__fail(MIRT_E_INVALID, "tile_grid_size %d x %d, clip_limit %g; 1 to 16 tiles are possible, and a"
                              " finite limit", out->bins, out->size, (double)d->clip_limit),
                   false;
        }
        if (out->bins > 2 * h || out->size > 2 * w)
            return mirt__fail(MIRT_E_SHAPE, "a grid of %d x %d tiles needs at least half as many rows and columns",
                              out->bins, out->size),
                   false;
    }
    if (traits & MIRT__SIZES) {
        out->oh = d->height;
        out->ow = d->width ? d->width : d->height;
        out->crop = d->kind != MIRT_RESIZING || d->crop_to_aspect_ratio;
        if (out->oh < 1 || out->ow < 1)
            return mirt__fail(MIRT_E_INVALID, "height %d and width %d must be positive", d->height, d->width), false;
    }
    if (traits & MIRT__RANGES) {
        const bool given = d->value_range[0] != 0 || d->value_range[1] != 0;
        out->range[0] = given ? d->value_range[0] : 0;
        out->range[1] = given ? d->value_range[1] : 255;
        if (!(out->range[0] < out->range[1]) || !isfinite(out->range[0]) || !isfinite(out->range[1])) {
            return mirt__fail(MIRT_E_INVALID,
                              "value_range is %g to %g; it must be finite and the first less than the second",
                              (double)out->range[0], (double)out->range[1]),
                   false;
        }
    }
    if (((traits & MIRT__MEASURES) || out->kind == MIRT_EQUALIZATION || out->kind == MIRT_CLAHE) &&
        c > MIRT__AUGMENT_CHANNELS)
        return mirt__fail(MIRT_E_SHAPE, "takes at most %d channels", MIRT__AUGMENT_CHANNELS), false;
    if ((traits & (MIRT__COLORS | MIRT__GRAYS)) && c != 3 && !((traits & MIRT__GRAYS) && c == 1))
        return mirt__fail(MIRT_E_SHAPE, "takes red, green and blue, not %lld channels", (long long)c), false;
    if (h > INT32_MAX / c / w || out->oh > INT32_MAX / c / out->ow)
        return mirt__fail(MIRT_E_SHAPE, "images of 2^31 elements or more"), false;
    return true;
}

/* The changes among which RandAugment and AugMix choose, in Keras's order. */
#define MIRT__CHOICES 11
#define MIRT__FEWER_CHOICES 7 /* of AugMix, the first ones */
static const mirt_augmentation_kind mirt__augmentation_choices[2][MIRT__CHOICES] = {
    {MIRT_RANDOM_SHEAR, MIRT_RANDOM_TRANSLATION, MIRT_RANDOM_ROTATION, MIRT_RANDOM_BRIGHTNESS,
     MIRT_RANDOM_COLOR_DEGENERATION, MIRT_RANDOM_CONTRAST, MIRT_RANDOM_SHARPNESS, MIRT_RANDOM_POSTERIZATION,
     MIRT_SOLARIZATION, MIRT_AUTO_CONTRAST, MIRT_EQUALIZATION},
    {MIRT_RANDOM_SHEAR, MIRT_RANDOM_TRANSLATION, MIRT_RANDOM_ROTATION, MIRT_RANDOM_POSTERIZATION, MIRT_SOLARIZATION,
     MIRT_AUTO_CONTRAST, MIRT_EQUALIZATION, MIRT_RANDOM_BRIGHTNESS, MIRT_RANDOM_COLOR_DEGENERATION,
     MIRT_RANDOM_CONTRAST, MIRT_RANDOM_SHARPNESS}};

/* Where number `i` of RandAugment's or AugMix's transforms stands: a change that images draw, one of `choices` for the
   same draw, or, with choice -1, AugMix's beginning and the ends of chains. */
typedef struct mirt__augmentation_place {
    int draw, choice, choices, ended;
    bool exists;
} mirt__augmentation_place;

MIRT__TRAINING mirt__augmentation_place mirt__augmentation_place_of(const mirt_augmentation *d, int i) {
    mirt__augmentation_place p = {i / MIRT__CHOICES, i % MIRT__CHOICES, MIRT__CHOICES, 0, false};
    if (d->kind == MIRT_AUG_MIX) {
        const int depth = d->chain_depth ? d->chain_depth : 3;
        const int most = d->fewer_ops ? MIRT__FEWER_CHOICES : MIRT__CHOICES, each = depth * most + 1,
                  at = (i + each - 1) % each;
        p.ended = (i + each - 1) / each; /* by the mark of its end, which is the last of the chain */
        p.draw = (p.ended - 1) * depth + at / most;
        p.choice = at < each - 1 ? at % most : -1;
        p.choices = most + 1; /* the last one is no change */
        p.exists = i == 0 || p.ended <= (d->num_chains ? d->num_chains : 3);
    } else {
        p.exists = p.draw < (d->num_ops ? d->num_ops : 2);
    }
    return p;
}

/* Number `i` of those that a description consists of; false: there are none left. */
MIRT__TRAINING bool mirt__augmentation_member(const mirt_augmentation *d, int i, mirt_augmentation *out) {
    static const struct {
        mirt_augmentation_kind kind;
        size_t field;
    } jitter[] = {{MIRT_RANDOM_BRIGHTNESS, offsetof(mirt_augmentation, brightness_factor)},
                  {MIRT_RANDOM_CONTRAST, offsetof(mirt_augmentation, contrast_factor)},
                  {MIRT_RANDOM_SATURATION, offsetof(mirt_augmentation, saturation_factor)},
                  {MIRT_RANDOM_HUE, offsetof(mirt_augmentation, hue_factor)}};
    *out = *d;
    if (d->kind == MIRT_RANDOM_COLOR_JITTER) {
        for (int k = 0; k < MIRT__COUNT(jitter); k++) {
            memcpy(out->factor, (const char *)d + jitter[k].field, sizeof out->factor);
            out->kind = jitter[k].kind;
            if ((out->factor[0] != 0 || out->factor[1] != 0) && i-- == 0) return true;
        }
        return false;
    }
    if (d->kind != MIRT_RAND_AUGMENT && d->kind != MIRT_AUG_MIX) return i == 0;
    const mirt__augmentation_place place = mirt__augmentation_place_of(d, i);
    if (place.choice < 0) return place.exists;
    if (out->factor[0] == 0 && out->factor[1] == 0) out->factor[1] = d->kind == MIRT_AUG_MIX ? 0.3f : 0.5f;
    if (out->factor[1] == 0) {
        out->factor[1] = out->factor[0];
        out->factor[0] = 0;
    }
    float *const alike[] = {out->height_factor, out->width_factor, out->x_factor, out->y_factor, out->addition_factor,
                            out->threshold_factor};
    for (int k = 0; k < MIRT__COUNT(alike); k++) memcpy(alike[k], out->factor, sizeof out->factor);
    out->kind = mirt__augmentation_choices[d->kind == MIRT_AUG_MIX][place.choice];
    out->fill_mode = MIRT_FILL_REFLECT;
    out->bins = 0;
    if (out->kind == MIRT_RANDOM_POSTERIZATION && out->factor[1] >= 0 && out->factor[1] <= 1) {
        const int bits = (int)(8 * out->factor[1]);
        out->factor[0] = (float)mirt__max(bits, 1);
        out->factor[1] = 0;
    }
    return place.exists;
}

MIRT__TRAINING_LIB int mirt__transforms_next(const mirt_augmentation *d, int i, uint64_t key, int64_t h, int64_t w,
                                             int64_t c, mirt__transform *out) {
    mirt_augmentation member;
    if (i == 0 && !mirt__transform_of(d, h, w, c, out)) return -1;
    if (!mirt__augmentation_member(d, i, &member)) return 0;
    if (!mirt__transform_of(&member, h, w, c, out)) return -1;
    out->key = key ^ (uint64_t)i * 0xD1B54A32D192ED03u;
    if (d->kind == MIRT_RAND_AUGMENT || d->kind == MIRT_AUG_MIX) {
        const mirt__augmentation_place place = mirt__augmentation_place_of(d, i);
        if (place.choice < 0) { /* all of these draw the same shares */
            out->key = key;
            out->size = place.ended;
            return 1;
        }
        out->choices = place.choices;
        out->choice = place.choice;
        out->chooser = key ^ (uint64_t)(place.draw + 1) * 0xA0761D6478BD642Fu;
    }
    return 1;
}
#undef MIRT__CHOICES
#undef MIRT__FEWER_CHOICES
