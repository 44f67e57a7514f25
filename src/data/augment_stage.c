/* Random image transforms as a stage, transforms described by text, and statistics for normalization. */

#include "../kernels/augment.h"
#include "data.h"

#define MIRT__MAX_AUGMENTATIONS 32

typedef struct mirt__augment_dataset {
    mirt_dataset base; /* own: the list */
    int count;
    size_t room;
} mirt__augment_dataset;

static mirt_status mirt__augment_apply(mirt_dataset *dataset, const mirt__sample *in, mirt__work *work,
                                       void *const *out) {
    const mirt__augment_dataset *d = (const mirt__augment_dataset *)dataset;
    mirt__augment a;
    uint64_t pass;
    mirt__dataset_repeats(dataset->source, &pass);
    a.room = d->room ? mirt__work_room(work, dataset, d->room) : NULL;
    if (d->room && !a.room) return MIRT_E_NOMEM;
    for (int f = 1; f < dataset->spec.num_fields; f++) memcpy(out[f], in->field[f], dataset->spec.field[f].bytes);
    a.transform = (const mirt__transform *)dataset->own;
    a.count = d->count;
    a.seed = dataset->seed;
    a.row = (uint64_t)in->index;
    a.step = (uint64_t)dataset->epoch + (pass << 32);
    a.x_dtype = a.y_dtype = dataset->spec.field[0].dtype;
    a.x = in->field[0];
    a.y = out[0];
    if (a.count) mirt__augment_image(&a);
    else memcpy(a.y, a.x, dataset->spec.field[0].bytes); /* jitter by nothing */
    return MIRT_OK;
}

static mirt_status mirt__augment_set(mirt_dataset *dataset, const mirt_augmentation *list, int count) {
    mirt__augment_dataset *d = (mirt__augment_dataset *)dataset;
    mirt__data_field *x = &dataset->spec.field[0];
    mirt_shape *shape = &x->shape;
    uint64_t key = mirt__hash("augment");
    char text[96];
    for (const mirt_dataset *s = dataset->source; s; s = s->source) key += s->apply == mirt__augment_apply;
    if (shape->rank != 3 || (x->dtype != MIRT_UINT8 && x->dtype != MIRT_FLOAT32)) {
        return mirt__fail(MIRT_E_SHAPE,
                          "mirt_augment takes images (height, width, channels) of uint8 or float32, not %s of %s",
                          mirt__shape_text(shape, text), mirt__dtype_name(x->dtype));
    }
    mirt__transform *transform = NULL, checked;
    int total = 0;
    for (int pass = 0; pass < 2; pass++) { /* counts, and keeps */
        int64_t h = shape->dim[0], w = shape->dim[1];
        total = 0;
        for (int i = 0, made; i < count; i++) {
            const uint64_t of = (key ^ (uint64_t)i << 32) * 0x9E3779B97F4A7C15u;
            int k = 0;
            while ((made = mirt__transforms_next(&list[i], k++, of, h, w, shape->dim[2], &checked)) > 0) {
                if (transform) transform[total] = checked;
                total++;
            }
            if (made < 0) return mirt__fail_at("mirt_augment: number %d", i);
            h = checked.oh;
            w = checked.ow;
        }
        if (transform) {
            shape->dim[0] = h;
            shape->dim[1] = w;
        } else {
            dataset->own = transform = (mirt__transform *)mirt__calloc((size_t)mirt__max(total, 1), sizeof *transform);
            if (!transform) return MIRT_E_NOMEM;
        }
    }
    for (size_t k = 0; k < (size_t)total * sizeof *transform; k++)
        dataset->identity = mirt__identity_with(dataset->identity, ((const unsigned char *)transform)[k]);
    d->count = total;
    dataset->cost = "augmentation";
    d->room = mirt__augment_room(transform, total, x->dtype, x->dtype);
    dataset->shuffles++;
    return mirt__dataset_check_spec(dataset);
}

MIRT_API mirt_dataset *mirt_augment(mirt_dataset *dataset, const mirt_augmentation *list, int count) {
    MIRT__ENTER;
    if (!dataset) return NULL;
    mirt_status status =
        list && count >= 1 && count <= MIRT__MAX_AUGMENTATIONS
            ? mirt__dataset_add_each("mirt_augment", &dataset, sizeof(mirt__augment_dataset), mirt__augment_apply)
            : mirt__fail(MIRT_E_INVALID, "mirt_augment needs a list of 1 to %d augmentations", MIRT__MAX_AUGMENTATIONS);
    if (status == MIRT_OK) status = mirt__augment_set(dataset, list, count);
    return mirt__dataset_checked(status, &dataset);
}

/* >>text */

/* `field`: what the numbers after a name fill, in their order; 0: none. Without those that it needs a transform would
   do nothing. */
static const struct {
    const char *name;
    mirt_augmentation_kind kind;
    bool needs;
    size_t field[4];
} mirt__augment_names[] = {
#define MIRT__AT(field) offsetof(mirt_augmentation, field)
    {"flip", MIRT_RANDOM_FLIP, false, {0}},
    {"rotation", MIRT_RANDOM_ROTATION, true, {MIRT__AT(factor)}},
    {"zoom", MIRT_RANDOM_ZOOM, true, {MIRT__AT(height_factor), MIRT__AT(width_factor)}},
    {"translation", MIRT_RANDOM_TRANSLATION, true, {MIRT__AT(height_factor), MIRT__AT(width_factor)}},
    {"crop", MIRT_RANDOM_CROP, true, {MIRT__AT(height), MIRT__AT(width)}},
    {"center_crop", MIRT_CENTER_CROP, true, {MIRT__AT(height), MIRT__AT(width)}},
    {"resizing", MIRT_RESIZING, true, {MIRT__AT(height), MIRT__AT(width)}},
    {"contrast", MIRT_RANDOM_CONTRAST, true, {MIRT__AT(factor)}},
    {"brightness", MIRT_RANDOM_BRIGHTNESS, true, {MIRT__AT(factor)}},
    {"shear", MIRT_RANDOM_SHEAR, true, {MIRT__AT(x_factor), MIRT__AT(y_factor)}},
    {"hue", MIRT_RANDOM_HUE, true, {MIRT__AT(factor), MIRT__AT(factor[1])}},
    {"saturation", MIRT_RANDOM_SATURATION, true, {MIRT__AT(factor), MIRT__AT(factor[1])}},
    {"erasing", MIRT_RANDOM_ERASING, false, {MIRT__AT(factor), MIRT__AT(factor[1])}},
    {"grayscale", MIRT_RANDOM_GRAYSCALE, false, {MIRT__AT(factor)}},
    {"invert", MIRT_RANDOM_INVERT, false, {MIRT__AT(factor), MIRT__AT(factor[1])}},
    {"solarization", MIRT_SOLARIZATION, true, {MIRT__AT(addition_factor), MIRT__AT(threshold_factor)}},
    {"posterization", MIRT_RANDOM_POSTERIZATION, true, {MIRT__AT(factor), MIRT__AT(factor[1])}},
    {"color_degeneration", MIRT_RANDOM_COLOR_DEGENERATION, true, {MIRT__AT(factor), MIRT__AT(factor[1])}},
    {"auto_contrast", MIRT_AUTO_CONTRAST, false, {0}},
    {"equalization", MIRT_EQUALIZATION, false, {0}},
    {"sharpness", MIRT_RANDOM_SHARPNESS, true, {MIRT__AT(factor), MIRT__AT(factor[1])}},
    {"gaussian_blur", MIRT_RANDOM_GAUSSIAN_BLUR, false, {MIRT__AT(factor), MIRT__AT(factor[1])}},
    {"color_jitter", MIRT_RANDOM_COLOR_JITTER, true,
     {MIRT__AT(brightness_factor), MIRT__AT(contrast_factor), MIRT__AT(saturation_factor), MIRT__AT(hue_factor)}},
    {"rand_augment", MIRT_RAND_AUGMENT, false, {MIRT__AT(factor), MIRT__AT(factor[1])}},
    {"perspective", MIRT_RANDOM_PERSPECTIVE, false, {MIRT__AT(scale)}},
    {"clahe", MIRT_CLAHE, false, {MIRT__AT(clip_limit)}},
    {"elastic_transform", MIRT_RANDOM_ELASTIC_TRANSFORM, false, {MIRT__AT(scale), MIRT__AT(scale[1])}},
    {"aug_mix", MIRT_AUG_MIX, false, {MIRT__AT(factor), MIRT__AT(factor[1])}},
#undef MIRT__AT
};

/* The next word of *text, up to a ':', a ',' or the end, which is stored in `*ended`; false: it is too long. */
static bool mirt__augment_word(const char **text, char word[32], char *ended) {
    const size_t size = strcspn(*text, ":,");
    snprintf(word, 32, "%.*s", size < 32 ? (int)size : 31, *text);
    *ended = (*text)[size];
    *text += size + (*ended != 0);
    return size > 0 && size < 32;
}

/* Reads a word after name number `name`: the `numbers`-th number, or a mode. */
static bool mirt__augment_value(const char *word, int name, int numbers, mirt_augmentation *out) {
    static const char *const modes[] = {"both", "horizontal", "vertical"},
                      *const fills[] = {"reflect", "constant", "wrap", "nearest"};
    char *end;
    for (int i = 0; out->kind == MIRT_RANDOM_FLIP && i < MIRT__FLIP_COUNT; i++) {
        if (strcmp(word, modes[i]) == 0) return out->mode = (mirt_flip_mode)i, true;
    }
    for (int i = 0; (mirt__transform_traits(out->kind) & MIRT__FILLS) && i < MIRT__FILL_COUNT; i++) {
        if (strcmp(word, fills[i]) == 0) return out->fill_mode = (mirt_fill_mode)i, true;
    }
    if (out->kind == MIRT_RANDOM_ERASING && strcmp(word, fills[MIRT_FILL_CONSTANT]) == 0)
        return out->fill_mode = MIRT_FILL_CONSTANT, true;
    if (out->kind == MIRT_RESIZING && strcmp(word, "nearest") == 0) return out->interpolation = MIRT_NEAREST, true;
    const float value = strtof(word, &end);
    const size_t field = numbers < 4 ? mirt__augment_names[name].field[numbers] : 0;
    if (*end || !isfinite(value) || !field) return false;
    if (!(mirt__transform_traits(out->kind) & MIRT__SIZES)) {
        memcpy((char *)out + field, &value, sizeof value);
        return true;
    }
    if (!(value >= 1 && value <= 65536 && value == floorf(value))) return false;
    const int size = (int)value;
    memcpy((char *)out + field, &size, sizeof size);
    return true;
}

/* Reads one entry; *ended as above. */
static bool mirt__augment_entry(const char **text, mirt_augmentation *out, char *ended) {
    char name[32], word[32];
    const int most = MIRT__COUNT(mirt__augment_names);
    int i = 0, numbers = 0;
    mirt__transform checked;
    const bool named = mirt__augment_word(text, name, ended);
    mirt__suggestion guess = {name, NULL, ""};
    memset(out, 0, sizeof *out);
    while (named && i < most && strcmp(mirt__augment_names[i].name, name) != 0)
        mirt__guess(&guess, mirt__augment_names[i++].name);
    if (!named || i == most)
        return mirt__fail(MIRT_E_INVALID, "\"%s\" is not an augmentation%s", name, mirt__did_you_mean(&guess)), false;
    out->kind = mirt__augment_names[i].kind;
    const bool sizes = (mirt__transform_traits(out->kind) & MIRT__SIZES) != 0;
    const bool four = out->kind == MIRT_RANDOM_POSTERIZATION || out->kind == MIRT_CLAHE;
    const char *example = four ? "4" : sizes ? "224" : "0.1";
    while (*ended == ':') {
        if (!mirt__augment_word(text, word, ended) || !mirt__augment_value(word, i, numbers, out)) {
            if (out->kind == MIRT_RANDOM_FLIP) example = "horizontal or :vertical";
            else if (sizes) example = "224 or :224:160";
            else if (!mirt__augment_names[i].field[0]) example = "";
            return mirt__fail(MIRT_E_INVALID, "augmentation %s: invalid value \"%s\"; write %s%s%s", name, word, name,
                              *example ? ":" : "", example),
                   false;
        }
        numbers += (word[0] >= '0' && word[0] <= '9') || word[0] == '-' || word[0] == '+' || word[0] == '.';
    }
    if (!numbers && mirt__augment_names[i].needs) {
        return mirt__fail(MIRT_E_INVALID, "augmentation %s needs a value, such as %s:%s", name, name, example),
               false;
    }
    if (numbers == 1 && out->kind == MIRT_RANDOM_TRANSLATION) out->width_factor[0] = out->height_factor[0];
    int made = 1;
    for (int k = 0; made > 0; k++) made = mirt__transforms_next(out, k, 0, 8, 8, 3, &checked);
    return made == 0 || (mirt__fail_at("augmentation %s", name), false);
}

MIRT_API int mirt_parse_augmentation(const char *text, mirt_augmentation *list, int most) {
    MIRT__ENTER;
    char ended = ',';
    int count = 0;
    if (!text || !list) return mirt__fail_missing("mirt_parse_augmentation", text ? "list" : "text"), -1;
    while (ended == ',') {
        if (count == most) return mirt__fail(MIRT_E_INVALID, "more than %d augmentations", most), -1;
        if (!mirt__augment_entry(&text, &list[count++], &ended)) return -1;
    }
    return count;
}

/* >>normalization */

/* Sums and squares of the channels of one image, around `shift`. */
static void mirt__adapt_add(const mirt__data_field *field, const void *x, int64_t c, const double *shift, double *sum,
                            double *square) {
    const int64_t count = (int64_t)(field->bytes / mirt__dtype_size(field->dtype));
    for (int64_t i = 0; i < count; i++) {
        const int64_t j = i % c;
        const double v = field->dtype == MIRT_FLOAT32 ? (double)((const mirt__real *)x)[i]
                         : field->dtype == MIRT_INT32 ? (double)((const int32_t *)x)[i]
                                                      : (double)((const unsigned char *)x)[i];
        sum[j] += v - shift[j];
        square[j] += (v - shift[j]) * (v - shift[j]);
    }
}

MIRT_API mirt_status mirt_adapt(mirt_normalization_desc *desc, mirt_dataset *dataset) {
    MIRT__ENTER;
    double shift[MIRT_MAX_CHANNELS] = {0}, sum[MIRT_MAX_CHANNELS] = {0}, square[MIRT_MAX_CHANNELS] = {0}, count = 0;
    mirt__batch batch;
    char text[96];
    if (!desc || !dataset) return mirt__fail_missing("mirt_adapt", desc ? "data set" : "description");
    const mirt__data_field *field = &dataset->spec.field[0];
    const int64_t c = field->shape.rank ? field->shape.dim[field->shape.rank - 1] : 0, limit = dataset->spec.samples;
    if (c < 1 || c > MIRT_MAX_CHANNELS) {
        return mirt__fail(MIRT_E_SHAPE, "mirt_adapt takes samples of at most %d channels, not %s", MIRT_MAX_CHANNELS,
                          mirt__shape_text(&field->shape, text));
    }
    if (limit < 0)
        return mirt__fail(MIRT_E_INVALID, "mirt_adapt needs a data set that ends: use mirt_take before it");
    mirt_status status = mirt__dataset_idle("mirt_adapt", dataset);
    if (status != MIRT_OK) return status;
    dataset->busy = true;
    status = mirt__dataset_begin(dataset, 0, 0);
    for (bool more = status == MIRT_OK; more;) {
        status = mirt__dataset_next(dataset, &batch);
        more = status == MIRT_OK && batch.rows > 0;
        for (int64_t r = 0; more && r < batch.rows; r++) {
            const char *x = (const char *)batch.field[0] + (size_t)r * field->bytes;
            double none[MIRT_MAX_CHANNELS] = {0};
            if (count == 0) { /* subtracting the first sample's means avoids cancellation when values vary little */
                mirt__adapt_add(field, x, c, none, shift, sum);
                for (int64_t j = 0; j < c; j++) shift[j] /= (double)(mirt__shape_count(&field->shape) / c), sum[j] = 0;
            }
            mirt__adapt_add(field, x, c, shift, sum, square);
            count += (double)(mirt__shape_count(&field->shape) / c);
        }
    }
    dataset->busy = false;
    if (status != MIRT_OK) return status;
    if (count == 0) return mirt__fail(MIRT_E_INVALID, "mirt_adapt: the data set has no samples");
    for (int64_t j = 0; j < c; j++) {
        desc->mean[j] = (float)(shift[j] + sum[j] / count);
        desc->variance[j] = (float)fmax(square[j] / count - sum[j] / count * (sum[j] / count), 0);
    }
    return MIRT_OK;
}
