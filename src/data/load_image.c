/* Loads one image as data sets of images do. */

#include "image_files.h"

MIRT__LIB void mirt__images_fit(const mirt_image_directory_desc *desc, const mirt_image *image, mirt__pixmap *resize,
                                size_t *offset) {
    int channels = image->channels, height = desc->height, width = desc->width, top = 0, left = 0;
    *resize = mirt__pixmap_of(image, height, width, desc->interpolation, desc->antialias);
    if (desc->crop_to_aspect_ratio) {
        /* Keras: smart_resize, in float32 */
        int rows = (int)((float)((int64_t)image->width * height) / (float)width),
            columns = (int)((float)((int64_t)image->height * width) / (float)height);
        resize->height = rows < 1 ? 1 : rows < image->height ? rows : image->height;
        resize->width = columns < 1 ? 1 : columns < image->width ? columns : image->width;
        resize->pixels += (size_t)((image->height - resize->height) / 2) * resize->stride +
                          (size_t)((image->width - resize->width) / 2) * (size_t)channels;
    } else if (desc->pad_to_aspect_ratio) {
        /* tf.image.resize_with_pad, in float32 */
        float down = (float)image->height / (float)height, across = (float)image->width / (float)width,
              ratio = down > across ? down : across;
        float rows = (float)image->height / ratio, columns = (float)image->width / ratio;
        top = (int)(((float)height - rows) / 2);
        left = (int)(((float)width - columns) / 2);
        height = rows < 1 ? 1 : rows < (float)height ? (int)rows : height;
        width = columns < 1 ? 1 : columns < (float)width ? (int)columns : width;
    }
    resize->out_height = height;
    resize->out_width = width;
    resize->dtype = desc->dtype;
    *offset = (size_t)top * resize->out_stride + (size_t)left * (size_t)channels;
}

/* Uses buffers of the thread's `work` for `images`; if both are NULL, allocates memory for this image. */
static mirt_status mirt__images_resize(const mirt_image_directory_desc *desc, const mirt_image *image,
                                       mirt__image_dataset *images, mirt__work *work, void *out) {
    mirt__pixmap resize;
    size_t offset;
    mirt__images_fit(desc, image, &resize, &offset);
    size_t bytes = mirt__pixmap_memory(&resize), size = mirt__dtype_size(desc->dtype);
    if (!bytes) return mirt__no_memory(SIZE_MAX), MIRT_E_NOMEM;
    void *memory = images ? mirt__work_room(work, &images->base, bytes) : mirt__aligned_alloc(bytes);
    if (!memory) return MIRT_E_NOMEM;
    if (resize.out_height < desc->height || resize.out_width < desc->width)
        memset(out, 0, (size_t)desc->height * (size_t)desc->width * (size_t)image->channels * size);
    mirt__pixmap_run(&resize, memory, (char *)out + offset * size);
    if (!images) mirt__aligned_free(memory);
    return MIRT_OK;
}

/* All files are turned into pixels for models by this function. */
MIRT__LIB mirt_status mirt__images_load(const mirt_image_directory_desc *desc, const mirt__file_part *file,
                                        mirt__image_dataset *images, mirt__work *work, void *out) {
    mirt_image image;
    mirt_status status = mirt__image_read(file, desc->color_mode, &desc->decode, &image);
    if (status != MIRT_OK) return status;
    status = mirt__images_resize(desc, &image, images, work, out);
    mirt_image_free(&image);
    return status;
}

MIRT__LIB mirt_status mirt__images_check_names(const char *caller, const mirt_image_directory_desc *desc) {
    if (desc->class_names && desc->num_class_names < 1)
        return mirt__fail(MIRT_E_INVALID, "%s: class_names needs num_class_names", caller);
    for (int i = 0; desc->class_names && i < desc->num_class_names; i++) {
        for (int k = 0; k < i || !desc->class_names[i]; k++) {
            if (!desc->class_names[i] || strcmp(desc->class_names[i], desc->class_names[k]) == 0)
                return mirt__fail(MIRT_E_INVALID, "%s: class %d has no name, or the name of another class", caller, i);
        }
    }
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__images_check(const char *caller, const mirt_image_directory_desc *desc) {
    const double split = desc->validation_split;
    const struct {
        const char *what;
        int value, most;
    } choices[] = {{"color mode", (int)desc->color_mode, MIRT_RGBA},
                   {"interpolation", (int)desc->interpolation, MIRT__INTERPOLATION_COUNT - 1},
                   {"label mode", (int)desc->label_mode, MIRT_LABELS_NONE},
                   {"policy for corrupt images", (int)desc->corrupt, MIRT_CORRUPT_ZERO},
                   {"subset", (int)desc->subset, MIRT_SUBSET_VALIDATION}};
    if (desc->height < 1 || desc->width < 1)
        return mirt__fail(MIRT_E_INVALID, "%s: images of %d x %d pixels: both must be positive", caller, desc->height,
                          desc->width);
    for (int i = 0; i < MIRT__COUNT(choices); i++) {
        if (choices[i].value < 0 || choices[i].value > choices[i].most)
            return mirt__fail(MIRT_E_INVALID, "%s: invalid %s (%d)", caller, choices[i].what, choices[i].value);
    }
    if (desc->dtype != MIRT_FLOAT32 && desc->dtype != MIRT_UINT8)
        return mirt__fail(MIRT_E_INVALID, "%s: pixels must be MIRT_FLOAT32 or MIRT_UINT8", caller);
    if (desc->batch_size < MIRT_NO_BATCH)
        return mirt__fail(MIRT_E_INVALID, "%s: invalid batch size (%lld)", caller, (long long)desc->batch_size);
    if (desc->crop_to_aspect_ratio && desc->pad_to_aspect_ratio)
        return mirt__fail(MIRT_E_INVALID, "%s: crop_to_aspect_ratio and pad_to_aspect_ratio exclude each other",
                          caller);
    if (mirt__images_check_names(caller, desc) != MIRT_OK) return MIRT_E_INVALID;
    if (desc->class_names && (desc->labels || desc->label_mode == MIRT_LABELS_NONE))
        return mirt__fail(MIRT_E_INVALID, "%s: class_names are for labels by subdirectories", caller);
    if (!(split >= 0 && split < 1))
        return mirt__fail(MIRT_E_INVALID, "%s: a validation_split of %g: it must be above 0 and below 1", caller,
                          split);
    if ((split > 0) != (desc->subset != MIRT_SUBSET_ALL))
        return mirt__fail(MIRT_E_INVALID, "%s: validation_split and subset must be set together", caller);
    if (split > 0 && !desc->no_shuffle && !desc->has_seed)
        return mirt__fail(MIRT_E_INVALID,
                          "%s: splitting shuffled files needs a seed, so that both subsets use the same order",
                          caller);
    return MIRT_OK;
}

MIRT__LIB void mirt__images_defaults(const mirt_image_directory_desc *given, mirt_image_directory_desc *desc) {
    if (given) *desc = *given;
    else memset(desc, 0, sizeof *desc);
    if (!desc->height) desc->height = 256;
    if (!desc->width) desc->width = 256;
    if (!desc->batch_size) desc->batch_size = 32;
    if (desc->reduced_scale && !desc->decode.least_height) {
        desc->decode.least_height = desc->height;
        desc->decode.least_width = desc->width;
    }
}

MIRT_API mirt_status mirt_load_image(const char *path, const mirt_image_directory_desc *given, void *out) {
    MIRT__ENTER;
    static const char caller[] = "mirt_load_image";
    mirt_image_directory_desc desc;
    if (!path || !out) return mirt__fail_missing(caller, path ? "image to fill" : "path");
    mirt__images_defaults(given, &desc);
    if (mirt__images_check(caller, &desc) != MIRT_OK) return mirt_last_status();
    const mirt__file_part whole = {path, path, 0, MIRT__WHOLE_FILE};
    return mirt__images_load(&desc, &whole, NULL, NULL, out);
}
