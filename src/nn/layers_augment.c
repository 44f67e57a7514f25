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

static mirt_tensor *mirt__augmented(mirt__layer *layer, mirt_tensor *x, mirt_augmentation_kind kind) {
    mirt_augmentation *d = (mirt_augmentation *)layer->desc;
    mirt__transform t;
    d->kind = kind;
    const bool filters = kind == MIRT_RESIZING && (d->antialias || (d->interpolation > MIRT_NEAREST &&
                                                                    d->interpolation < MIRT__INTERPOLATION_COUNT &&
                                                                    d->interpolation != MIRT_AREA));
    if (filters && mirt__layer_takes_images(x) && mirt__is_batched(&x->shape) && x->shape.dim[1] <= INT_MAX &&
        x->shape.dim[2] <= INT_MAX)
        return mirt__resized(x, d);
    if (!mirt__layer_takes_images(x) || !mirt__transform_of(d, x->shape.dim[1], x->shape.dim[2], x->shape.dim[3], &t))
        return NULL;
    if (!mirt__is_batched(&x->shape)) {
        mirt__fail(MIRT_E_SHAPE, "takes a batch");
        return NULL;
    }
    t.key = mirt__hash(layer->name);
    return kind == MIRT_CENTER_CROP || kind == MIRT_RESIZING ? mirt__fit_op(x, &t) : mirt__augment_op(x, &t);
}

#define MIRT__AUGMENT_FIELD(name, kind) {#name, MIRT__FIELD_##kind, offsetof(mirt_augmentation, name), false}
#define MIRT__FILLING \
    MIRT__AUGMENT_FIELD(fill_mode, FILL), MIRT__AUGMENT_FIELD(interpolation, INTERPOLATION), \
        MIRT__AUGMENT_FIELD(fill_value, FLOAT)
static const mirt__field mirt__flip_fields[] = {MIRT__AUGMENT_FIELD(mode, FLIP)};
static const mirt__field mirt__rotation_fields[] = {MIRT__AUGMENT_FIELD(factor, FLOAT2), MIRT__FILLING};
static const mirt__field mirt__zoom_fields[] = {MIRT__AUGMENT_FIELD(height_factor, FLOAT2),
                                                MIRT__AUGMENT_FIELD(width_factor, FLOAT2), MIRT__FILLING};
static const mirt__field mirt__crop_fields[] = {MIRT__AUGMENT_FIELD(height, INT), MIRT__AUGMENT_FIELD(width, INT)};
static const mirt__field mirt__resizing_fields[] = {MIRT__AUGMENT_FIELD(height, INT), MIRT__AUGMENT_FIELD(width, INT),
                                                    MIRT__AUGMENT_FIELD(interpolation, INTERPOLATION),
                                                    MIRT__AUGMENT_FIELD(crop_to_aspect_ratio, BOOL),
                                                    MIRT__AUGMENT_FIELD(antialias, BOOL)};
static const mirt__field mirt__values_fields[] = {MIRT__AUGMENT_FIELD(factor, FLOAT2),
                                                  MIRT__AUGMENT_FIELD(value_range, FLOAT2)};
static const mirt__field mirt__shear_fields[] = {MIRT__AUGMENT_FIELD(x_factor, FLOAT2),
                                                 MIRT__AUGMENT_FIELD(y_factor, FLOAT2), MIRT__FILLING};
static const mirt__field mirt__erasing_fields[] = {
    MIRT__AUGMENT_FIELD(factor, FLOAT2), MIRT__AUGMENT_FIELD(scale, FLOAT2), MIRT__AUGMENT_FIELD(fill_mode, FILL),
    MIRT__AUGMENT_FIELD(fill_value, FLOAT), MIRT__AUGMENT_FIELD(value_range, FLOAT2)};
#undef MIRT__AUGMENT_FIELD
#undef MIRT__FILLING

#define MIRT__AUGMENT_LAYER(layer_name, class_name, kind, fields) \
    static mirt_tensor *mirt__##layer_name##_build(mirt__layer *layer, mirt_tensor *x) { \
        return mirt__augmented(layer, x, kind); \
    } \
    MIRT__LAYER(layer_name, class_name, #layer_name, 1, 1, fields, mirt_augmentation); \
    MIRT__LAYER_FUNCTION(mirt_##layer_name, layer_name, mirt_augmentation, mirt__layer_on)
MIRT__AUGMENT_LAYER(random_flip, "RandomFlip", MIRT_RANDOM_FLIP, mirt__flip_fields)
MIRT__AUGMENT_LAYER(random_rotation, "RandomRotation", MIRT_RANDOM_ROTATION, mirt__rotation_fields)
MIRT__AUGMENT_LAYER(random_zoom, "RandomZoom", MIRT_RANDOM_ZOOM, mirt__zoom_fields)
MIRT__AUGMENT_LAYER(random_translation, "RandomTranslation", MIRT_RANDOM_TRANSLATION, mirt__zoom_fields)
MIRT__AUGMENT_LAYER(random_crop, "RandomCrop", MIRT_RANDOM_CROP, mirt__crop_fields)
MIRT__AUGMENT_LAYER(center_crop, "CenterCrop", MIRT_CENTER_CROP, mirt__crop_fields)
MIRT__AUGMENT_LAYER(resizing, "Resizing", MIRT_RESIZING, mirt__resizing_fields)
MIRT__AUGMENT_LAYER(random_contrast, "RandomContrast", MIRT_RANDOM_CONTRAST, mirt__values_fields)
MIRT__AUGMENT_LAYER(random_brightness, "RandomBrightness", MIRT_RANDOM_BRIGHTNESS, mirt__values_fields)
MIRT__AUGMENT_LAYER(random_shear, "RandomShear", MIRT_RANDOM_SHEAR, mirt__shear_fields)
MIRT__AUGMENT_LAYER(random_hue, "RandomHue", MIRT_RANDOM_HUE, mirt__values_fields)
MIRT__AUGMENT_LAYER(random_saturation, "RandomSaturation", MIRT_RANDOM_SATURATION, mirt__values_fields)
MIRT__AUGMENT_LAYER(random_erasing, "RandomErasing", MIRT_RANDOM_ERASING, mirt__erasing_fields)
#undef MIRT__AUGMENT_LAYER

MIRT_API mirt_tensor *mirt_augmentation_layer(mirt_tensor *x, const mirt_augmentation *desc) {
    static mirt_tensor *(*const layer[MIRT__AUGMENTATION_COUNT])(mirt_tensor *, const mirt_augmentation *) = {
        mirt_random_flip, mirt_random_rotation, mirt_random_zoom,     mirt_random_translation, mirt_random_crop,
        mirt_center_crop, mirt_resizing,        mirt_random_contrast, mirt_random_brightness,  mirt_random_shear,
        mirt_random_hue,  mirt_random_saturation, mirt_random_erasing};
    if (!x) return NULL;
    if (desc && (int)desc->kind >= 0 && desc->kind < MIRT__AUGMENTATION_COUNT) return layer[desc->kind](x, desc);
    mirt__fail(MIRT_E_INVALID, "mirt_augmentation_layer: no description, or an invalid kind");
    mirt__graph_poison(x->node->graph);
    return NULL;
}
