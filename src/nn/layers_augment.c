#include "../images/images.h"
#include "layers.h"
/* Layers that augment or resize images. */

/* Resizes axis 1 or 2 of images with the weights of mirt_resize_image, as a matrix product, whose gradient exists. */
static mirt_tensor *mirt__resized_axis(mirt_tensor *x, const mirt_augmentation *d, int axis, int to) {
    static const int turned[2][4] = {{0, 3, 2, 1}, {0, 1, 3, 2}}; /* its own inverse */
    const int from = x ? (int)x->shape.dim[axis] : 0;
    if (!x || from == to) return x;
    if ((int64_t)from * to > 1 << 24) {
        mirt__fail(MIRT_E_SHAPE,
                   "%d pixels to %d: sizes this large only support bilinear or nearest, without antialias", from,
                   to);
        return NULL;
    }
    float *matrix = (float *)mirt__calloc((size_t)from, (size_t)to * sizeof *matrix);
    const bool made = matrix && mirt__pixmap_matrix(d->interpolation, d->antialias, from, to, matrix);
    mirt_tensor *weights =
        made ? mirt_constant_tensor(x, mirt_make_array(matrix, MIRT_FLOAT32, MIRT_SHAPE(from, to))) : NULL;
    mirt__free(matrix);
    return weights ? mirt_transpose(mirt_matmul(mirt_transpose(x, turned[axis - 1]), weights, false, false),
                                    turned[axis - 1])
                   : NULL;
}

/* Resizes with a filter that the warp does not support. */
static mirt_tensor *mirt__resized(mirt_tensor *x, const mirt_augmentation *desc) {
    mirt_augmentation d = *desc;
    mirt__transform t;
    int64_t begin[4] = {0, 0, 0, 0}, size[4] = {-1, 0, 0, -1};
    d.interpolation = MIRT_BILINEAR;
    if (!mirt__transform_of(&d, x->shape.dim[1], x->shape.dim[2], x->shape.dim[3], &t)) return NULL;
    size[1] = t.h;
    size[2] = t.w;
    if (mirt__transform_fits(&t)) mirt__transform_window(&t, &begin[1], &size[1]);
    if (size[1] != t.h || size[2] != t.w) x = mirt_slice(x, begin, size);
    return mirt__resized_axis(mirt__resized_axis(x, desc, 1, (int)t.oh), desc, 2, (int)t.ow);
}

/* Each channel from its extremes to the value range, unless they are the same number. */
static mirt_tensor *mirt__auto_contrasted(mirt_tensor *x, const mirt__transform *t) {
    const unsigned pixels = 1u << 1 | 1u << 2;
    mirt_tensor *const least = mirt_reduce_min(x, pixels, true), *const most = mirt_reduce_max(x, pixels, true);
    mirt_tensor *const span = mirt_subtract(most, least), *const differs = mirt_less(least, most);
    /* Of a channel with a single number the gradient is not that of 0 / 0. */
    mirt_tensor *const unit = mirt_divide(mirt_subtract(x, least), mirt_where(differs, span, mirt_scale(span, 0, 1)));
    return mirt_where(differs, mirt_scale(unit, t->range[1] - t->range[0], t->range[0]), x);
}

#define MIRT__AUGMENT_FIELD(name, kind) {#name, MIRT__FIELD_##kind, offsetof(mirt_augmentation, name), false}
#define MIRT__FILLING \
    MIRT__AUGMENT_FIELD(fill_mode, FILL), MIRT__AUGMENT_FIELD(interpolation, INTERPOLATION), \
        MIRT__AUGMENT_FIELD(fill_value, FLOAT)
static const mirt__field mirt__flip_fields[] = {MIRT__AUGMENT_FIELD(mode, FLIP)};
static const mirt__field mirt__rotation_fields[] = {MIRT__AUGMENT_FIELD(factor, FLOAT2), MIRT__FILLING};
static const mirt__field mirt__zoom_fields[] = {MIRT__AUGMENT_FIELD(height_factor, FLOAT2),
                                                MIRT__AUGMENT_FIELD(width_factor, FLOAT2), MIRT__FILLING};
static const mirt__field mirt__resizing_fields[] = {MIRT__AUGMENT_FIELD(height, INT), MIRT__AUGMENT_FIELD(width, INT),
                                                    MIRT__AUGMENT_FIELD(interpolation, INTERPOLATION),
                                                    MIRT__AUGMENT_FIELD(crop_to_aspect_ratio, BOOL),
                                                    MIRT__AUGMENT_FIELD(antialias, BOOL)};
static const mirt__field mirt__values_fields[] = {MIRT__AUGMENT_FIELD(factor, FLOAT2),
                                                  MIRT__AUGMENT_FIELD(value_range, FLOAT2)};
static const mirt__field mirt__shear_fields[] = {MIRT__AUGMENT_FIELD(x_factor, FLOAT2),
                                                 MIRT__AUGMENT_FIELD(y_factor, FLOAT2), MIRT__FILLING};
static const mirt__field mirt__erasing_fields[] = {
    MIRT__AUGMENT_FIELD(value_range, FLOAT2), MIRT__AUGMENT_FIELD(fill_mode, FILL),
    MIRT__AUGMENT_FIELD(factor, FLOAT2), MIRT__AUGMENT_FIELD(scale, FLOAT2), MIRT__AUGMENT_FIELD(fill_value, FLOAT),
    MIRT__AUGMENT_FIELD(interpolation, INTERPOLATION)};
static const mirt__field mirt__tile_fields[] = {
    MIRT__AUGMENT_FIELD(value_range, FLOAT2), MIRT__AUGMENT_FIELD(clip_limit, FLOAT),
    MIRT__AUGMENT_FIELD(tile_grid_size, INT2)};
static const mirt__field mirt__mix_fields[] = {
    MIRT__AUGMENT_FIELD(value_range, FLOAT2), MIRT__AUGMENT_FIELD(num_chains, INT),
    MIRT__AUGMENT_FIELD(chain_depth, INT), MIRT__AUGMENT_FIELD(factor, FLOAT2), MIRT__AUGMENT_FIELD(alpha, FLOAT),
    MIRT__FIELD(mirt_augmentation, "all_ops", NO, fewer_ops), MIRT__AUGMENT_FIELD(interpolation, INTERPOLATION)};
static const mirt__field mirt__level_fields[] = {
    MIRT__AUGMENT_FIELD(addition_factor, FLOAT2), MIRT__AUGMENT_FIELD(threshold_factor, FLOAT2),
    MIRT__AUGMENT_FIELD(value_range, FLOAT2), MIRT__AUGMENT_FIELD(bins, INT)};
static const mirt__field mirt__blur_fields[] = {
    MIRT__AUGMENT_FIELD(kernel_size, INT), MIRT__AUGMENT_FIELD(sigma, FLOAT2), MIRT__AUGMENT_FIELD(factor, FLOAT2),
    MIRT__AUGMENT_FIELD(value_range, FLOAT2), MIRT__AUGMENT_FIELD(num_ops, INT),
    MIRT__AUGMENT_FIELD(interpolation, INTERPOLATION)};
static const mirt__field mirt__jitter_fields[] = {
    MIRT__AUGMENT_FIELD(brightness_factor, FLOAT2), MIRT__AUGMENT_FIELD(contrast_factor, FLOAT2),
    MIRT__AUGMENT_FIELD(saturation_factor, FLOAT2), MIRT__AUGMENT_FIELD(hue_factor, FLOAT2),
    MIRT__AUGMENT_FIELD(value_range, FLOAT2)};
#undef MIRT__AUGMENT_FIELD
#undef MIRT__FILLING

/* By their kinds: layer, class, its fields in one of the lists above, from the first one on. */
#define MIRT__AUGMENTATIONS(X) \
    X(random_flip, "RandomFlip", flip, 0, 1) \
    X(random_rotation, "RandomRotation", rotation, 0, 4) \
    X(random_zoom, "RandomZoom", zoom, 0, 5) \
    X(random_translation, "RandomTranslation", zoom, 0, 5) \
    X(random_crop, "RandomCrop", resizing, 0, 2) \
    X(center_crop, "CenterCrop", resizing, 0, 2) \
    X(resizing, "Resizing", resizing, 0, 5) \
    X(random_contrast, "RandomContrast", values, 0, 2) \
    X(random_brightness, "RandomBrightness", values, 0, 2) \
    X(random_shear, "RandomShear", shear, 0, 5) \
    X(random_hue, "RandomHue", values, 0, 2) \
    X(random_saturation, "RandomSaturation", values, 0, 2) \
    X(random_erasing, "RandomErasing", erasing, 0, 5) \
    X(random_grayscale, "RandomGrayscale", values, 0, 1) \
    X(random_invert, "RandomInvert", values, 0, 2) \
    X(solarization, "Solarization", level, 0, 3) \
    X(random_posterization, "RandomPosterization", values, 0, 2) \
    X(random_color_degeneration, "RandomColorDegeneration", values, 0, 2) \
    X(auto_contrast, "AutoContrast", level, 2, 1) \
    X(equalization, "Equalization", level, 2, 2) \
    X(random_sharpness, "RandomSharpness", values, 0, 2) \
    X(random_gaussian_blur, "RandomGaussianBlur", blur, 0, 4) \
    X(random_color_jitter, "RandomColorJitter", jitter, 0, 5) \
    X(rand_augment, "RandAugment", blur, 2, 4) \
    X(random_perspective, "RandomPerspective", erasing, 2, 4) \
    X(aug_mix, "AugMix", mix, 0, 7) \
    X(clahe, "ContrastLimitedAdaptiveHistogramEqualization", tile, 0, 3) \
    X(random_elastic_transform, "RandomElasticTransform", erasing, 0, 6)

static mirt_tensor *mirt__augmentation_build(mirt__layer *layer, mirt_tensor *x);
#define MIRT__AUGMENT_CLASS(name, class_name, fields, first, count) \
    MIRT__TABLE mirt__layer_class mirt__##name##_layer = { \
        class_name, #name, 1, 1, &mirt__##fields##_fields[first], count, sizeof(mirt_augmentation), \
        mirt__augmentation_build, NULL, NULL}; \
    MIRT__LAYER_LISTED(name);
MIRT__AUGMENTATIONS(MIRT__AUGMENT_CLASS)
#undef MIRT__AUGMENT_CLASS
MIRT__STATIC_ASSERT(MIRT__NUMBER_OF_LAYER_random_elastic_transform - MIRT__NUMBER_OF_LAYER_random_flip ==
                        (int)MIRT__AUGMENTATION_COUNT - 1, "layers are in the order of kinds");

static const mirt__layer_class *mirt__augmentation_class(int kind) {
    return mirt__layer_class_at(MIRT__NUMBER_OF_LAYER_random_flip + kind);
}

/* Records the transforms of a layer. */
MIRT__TRAINING mirt_tensor *mirt__augmented(const mirt__layer *layer, mirt_tensor *x) {
    const mirt_augmentation *const d = (const mirt_augmentation *)layer->desc;
    const mirt_shape shape = x->shape;
    mirt__transform t;
    int made = 1;
    for (int i = 0; x && made > 0; i++) {
        made = mirt__transforms_next(d, i, mirt__hash(layer->name), shape.dim[1], shape.dim[2], shape.dim[3], &t);
        if (made > 0 && i == 0) x = mirt__augment_op(x, &t);
        else if (made > 0 && !mirt__augment_more(x, &t)) return NULL;
    }
    return made < 0 ? NULL : x;
}

static mirt_tensor *mirt__augmentation_build(mirt__layer *layer, mirt_tensor *x) {
    mirt_augmentation *d = (mirt_augmentation *)layer->desc;
    mirt__transform t;
    int of = 0;
    while (mirt__augmentation_class(of) != layer->cls) of++;
    const mirt_augmentation_kind kind = d->kind = (mirt_augmentation_kind)of;
    const bool filters = kind == MIRT_RESIZING && (unsigned)d->interpolation < MIRT__INTERPOLATION_COUNT &&
                         (d->antialias || (d->interpolation > MIRT_NEAREST && d->interpolation != MIRT_AREA));
    if (filters && mirt__layer_takes_images(x) && mirt__is_batched(&x->shape) && x->shape.dim[1] <= INT_MAX &&
        x->shape.dim[2] <= INT_MAX)
        return mirt__resized(x, d);
    if (!mirt__layer_takes_images(x) || !mirt__transform_of(d, x->shape.dim[1], x->shape.dim[2], x->shape.dim[3], &t))
        return NULL;
    if (!mirt__is_batched(&x->shape)) {
        mirt__fail(MIRT_E_SHAPE, "takes a batch");
        return NULL;
    }
    if (kind == MIRT_CLAHE) { /* files have no zeros here */
        d->tile_grid_size[0] = t.bins;
        d->tile_grid_size[1] = t.size;
    }
    if (kind == MIRT_AUTO_CONTRAST) return mirt__auto_contrasted(x, &t);
    if (kind == MIRT_CENTER_CROP || kind == MIRT_RESIZING) return mirt__fit_op(x, &t);
    /* Without training a random crop takes the middle; all others pass on, and are refused in calls as in training. */
    return MIRT__TRAINS ? mirt__augmented(layer, x) : mirt__augment_op(x, &t);
}

static mirt_tensor *mirt__augmentation_on(mirt_tensor *x, const mirt_augmentation *desc, int kind) {
    return mirt__layer_on(mirt__augmentation_class(kind), x, desc, desc ? desc->name : NULL);
}

#define MIRT__AUGMENT_FUNCTION(name, class_name, fields, first, count) \
    MIRT_API mirt_tensor *mirt_##name(mirt_tensor *x, const mirt_augmentation *desc) { \
        return mirt__augmentation_on(x, desc, MIRT__NUMBER_OF_LAYER_##name - MIRT__NUMBER_OF_LAYER_random_flip); \
    }
MIRT__AUGMENTATIONS(MIRT__AUGMENT_FUNCTION)
#undef MIRT__AUGMENT_FUNCTION
#undef MIRT__AUGMENTATIONS

MIRT_API mirt_tensor *mirt_augmentation_layer(mirt_tensor *x, const mirt_augmentation *desc) {
    if (!x) return NULL;
    if (desc && (int)desc->kind >= 0 && desc->kind < MIRT__AUGMENTATION_COUNT)
        return mirt__augmentation_on(x, desc, (int)desc->kind);
    mirt__fail(MIRT_E_INVALID, "mirt_augmentation_layer: no description, or an invalid kind");
    mirt__graph_poison(x->node->graph);
    return NULL;
}
