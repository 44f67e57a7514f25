#include "layers.h"
/* Layers that augment images. */

static mirt_tensor *mirt__augmented(mirt__layer *layer, mirt_tensor *x, void *desc, mirt_augmentation_kind kind) {
    mirt_augmentation *d = (mirt_augmentation *)desc;
    mirt__transform t;
    d->kind = kind;
    if (!mirt__layer_takes_images(x) || !mirt__transform_of(d, x->shape.dim[1], x->shape.dim[2], x->shape.dim[3], &t)) return NULL;
    if (!mirt__is_batched(&x->shape)) return mirt__fail(MIRT_E_SHAPE, "takes a batch"), (mirt_tensor *)NULL;
    t.key = mirt__hash(layer->name);
    return kind == MIRT_CENTER_CROP || kind == MIRT_RESIZING ? mirt__fit_op(x, &t) : mirt__augment_op(x, &t);
}

#define MIRT__AUGMENT_FIELD(name, kind) MIRT__FIELD(mirt_augmentation, #name, kind, name)
#define MIRT__FILLING MIRT__AUGMENT_FIELD(fill_mode, FILL), MIRT__AUGMENT_FIELD(interpolation, INTERPOLATION), MIRT__AUGMENT_FIELD(fill_value, FLOAT)
static const mirt__field mirt__flip_fields[] = {MIRT__AUGMENT_FIELD(mode, FLIP)};
static const mirt__field mirt__rotation_fields[] = {MIRT__AUGMENT_FIELD(factor, FLOAT2), MIRT__FILLING};
static const mirt__field mirt__zoom_fields[] = {MIRT__AUGMENT_FIELD(height_factor, FLOAT2), MIRT__AUGMENT_FIELD(width_factor, FLOAT2), MIRT__FILLING};
static const mirt__field mirt__crop_fields[] = {MIRT__AUGMENT_FIELD(height, INT), MIRT__AUGMENT_FIELD(width, INT)};
static const mirt__field mirt__resizing_fields[] = {MIRT__AUGMENT_FIELD(height, INT), MIRT__AUGMENT_FIELD(width, INT), MIRT__AUGMENT_FIELD(interpolation, INTERPOLATION),
                                                    MIRT__AUGMENT_FIELD(crop_to_aspect_ratio, BOOL)};
static const mirt__field mirt__values_fields[] = {MIRT__AUGMENT_FIELD(factor, FLOAT2), MIRT__AUGMENT_FIELD(value_range, FLOAT2)};
#undef MIRT__AUGMENT_FIELD
#undef MIRT__FILLING

#define MIRT__AUGMENT_LAYER(layer_name, class_name, kind, fields) \
    static mirt_tensor *mirt__##layer_name##_build(mirt__layer *layer, mirt_tensor *x, void *desc) { return mirt__augmented(layer, x, desc, kind); } \
    MIRT__LAYER(layer_name, class_name, #layer_name, 1, 1, fields, mirt_augmentation); \
    MIRT_API mirt_tensor *mirt_##layer_name(mirt_tensor *x, const mirt_augmentation *desc) { return mirt__layer_on(&mirt__##layer_name##_layer, x, desc, desc ? desc->name : NULL); }
MIRT__AUGMENT_LAYER(random_flip, "RandomFlip", MIRT_RANDOM_FLIP, mirt__flip_fields)
MIRT__AUGMENT_LAYER(random_rotation, "RandomRotation", MIRT_RANDOM_ROTATION, mirt__rotation_fields)
MIRT__AUGMENT_LAYER(random_zoom, "RandomZoom", MIRT_RANDOM_ZOOM, mirt__zoom_fields)
MIRT__AUGMENT_LAYER(random_translation, "RandomTranslation", MIRT_RANDOM_TRANSLATION, mirt__zoom_fields)
MIRT__AUGMENT_LAYER(random_crop, "RandomCrop", MIRT_RANDOM_CROP, mirt__crop_fields)
MIRT__AUGMENT_LAYER(center_crop, "CenterCrop", MIRT_CENTER_CROP, mirt__crop_fields)
MIRT__AUGMENT_LAYER(resizing, "Resizing", MIRT_RESIZING, mirt__resizing_fields)
MIRT__AUGMENT_LAYER(random_contrast, "RandomContrast", MIRT_RANDOM_CONTRAST, mirt__values_fields)
MIRT__AUGMENT_LAYER(random_brightness, "RandomBrightness", MIRT_RANDOM_BRIGHTNESS, mirt__values_fields)
#undef MIRT__AUGMENT_LAYER

MIRT_API mirt_tensor *mirt_augmentation_layer(mirt_tensor *x, const mirt_augmentation *desc) {
    static mirt_tensor *(*const layer[MIRT__AUGMENTATION_COUNT])(mirt_tensor *, const mirt_augmentation *) = {
        mirt_random_flip, mirt_random_rotation, mirt_random_zoom, mirt_random_translation, mirt_random_crop, mirt_center_crop, mirt_resizing,
        mirt_random_contrast, mirt_random_brightness};
    if (!x) return NULL;
    if (desc && (int)desc->kind >= 0 && desc->kind < MIRT__AUGMENTATION_COUNT) return layer[desc->kind](x, desc);
    mirt__fail(MIRT_E_INVALID, "mirt_augmentation_layer: no description, or of a kind that there is not");
    mirt__graph_poison(x->node->graph);
    return NULL;
}
