#ifndef MIRT__AUGMENT_API_H
#define MIRT__AUGMENT_API_H
/* Image augmentation, as layers and as stages of data sets. */

#include "data_api.h"
#include "images_api.h"
#include "models_api.h"

MIRT__BEGIN_C

/* >>augmentation (names and defaults as in keras.layers) ------------------------------------ */
/* Threads: as models and as datasets; functions without one: any thread at any time. */

typedef enum mirt_augmentation_kind {
    MIRT_RANDOM_FLIP = 0,
    MIRT_RANDOM_ROTATION,
    MIRT_RANDOM_ZOOM,
    MIRT_RANDOM_TRANSLATION,
    MIRT_RANDOM_CROP,
    MIRT_CENTER_CROP,
    MIRT_RESIZING,
    MIRT_RANDOM_CONTRAST,
    MIRT_RANDOM_BRIGHTNESS,
    MIRT_RANDOM_SHEAR,
    MIRT_RANDOM_HUE,
    MIRT_RANDOM_SATURATION,
    MIRT_RANDOM_ERASING,
    MIRT_RANDOM_GRAYSCALE,
    MIRT_RANDOM_INVERT,
    MIRT_SOLARIZATION,
    MIRT_RANDOM_POSTERIZATION,
    MIRT_RANDOM_COLOR_DEGENERATION,
    MIRT_AUTO_CONTRAST,
    MIRT_EQUALIZATION,
    MIRT_RANDOM_SHARPNESS,
    MIRT_RANDOM_GAUSSIAN_BLUR,
    MIRT_RANDOM_COLOR_JITTER,
    MIRT_RAND_AUGMENT,
    MIRT_RANDOM_PERSPECTIVE,
    MIRT_AUG_MIX,
    MIRT_CLAHE,
    MIRT_RANDOM_ELASTIC_TRANSFORM,
    MIRT__AUGMENTATION_COUNT
} mirt_augmentation_kind;
/* Where a pixel from outside of the image is taken from: (dcba|abcd|dcba), one value, (abcd|abcd|abcd),
   (aaaa|abcd|dddd). */
typedef enum mirt_fill_mode {
    MIRT_FILL_REFLECT = 0, MIRT_FILL_CONSTANT, MIRT_FILL_WRAP, MIRT_FILL_NEAREST, MIRT__FILL_COUNT
} mirt_fill_mode;
typedef enum mirt_flip_mode {
    MIRT_FLIP_HORIZONTAL_AND_VERTICAL = 0, MIRT_FLIP_HORIZONTAL, MIRT_FLIP_VERTICAL, MIRT__FLIP_COUNT
} mirt_flip_mode;

/* A transform of images, as a layer or in a data set; each kind reads what is said to be its own. A range is {lower,
   upper}; {f, 0} with f above 0 is {-f, f}, and {-f, 0} is the range from -f to 0. The range from 0 to f is {0, f}. */
typedef struct mirt_augmentation {
    mirt_augmentation_kind kind; /* layers of their own name need none */
    mirt_flip_mode mode;         /* of flips */
    float factor[2];             /* rotation: in turns, counter-clockwise, within [-1, 1]; brightness: of the value
                                    range, within [-1, 1]; contrast: {l, u}, within [0, 1], is 1 - l to 1 + u times the
                                    contrast, and {f, 0} is {f, f}; hue, saturation, color degeneration, erasing,
                                    inversion, sharpness, blur, RandAugment, AugMix, perspective, elastic transform:
                                    within [0, 1], and {f, 0} is {0, f};
                                    grayscale: its chance, {f, 0}; posterization: bits, {l, u} is l to u - 1, within
                                    [1, 8], {f, 0} is {1, f} */
    /* zoom, above -1 to 1: how much larger the part of the image that is shown becomes, so that more than 0 zooms out;
       no width_factor: it keeps the aspect ratio. Translation, within [-1, 1]: in heights and widths, down and to the
       right */
    float height_factor[2], width_factor[2];
    mirt_fill_mode fill_mode;    /* rotation, zoom, translation, shear, elastic transform; erasing: noise or
                                    MIRT_FILL_CONSTANT */
    mirt_interpolation interpolation; /* the first five, perspective and resizing: bilinear or nearest; the layer
                                         mirt_resizing any but area */
    float fill_value;            /* of MIRT_FILL_CONSTANT, and of perspective */
    int height, width;           /* of what crops and resizing make; {n, 0} is {n, n} */
    bool crop_to_aspect_ratio;   /* resizing: of the largest part in the middle that has the new shape */
    float value_range[2];        /* of pixels, all that change values but grayscale: results are clipped to it, but for
                                    those of inversion; default {0, 255} */
    const char *name;            /* of the layer */
    bool antialias;              /* of the layer mirt_resizing, as in mirt_resize_image */
    float x_factor[2], y_factor[2]; /* shear, within [0, 1]: pixels to the side per pixel down, and down per pixel to
                                       the side */
    float scale[2];              /* erasing, within [0, 1]: squares of the shares of height and width that the erased
                                    part has; default {0.02, 0.33}; perspective, {s, 0}: a corner moves by up to half
                                    of this share of the height and width; default 1; elastic transform, within
                                    [0, 1], {s, 0} is {0, s}: its strength; default {0, 1} */
    float addition_factor[2], threshold_factor[2]; /* solarization, within [0, 1]; {f, 0} is {0, f} */
    int bins;                    /* equalization, 2 to 256; default 256 */
    int kernel_size;             /* blur: pixels to a side, odd, at most 31; default 3 */
    float sigma[2];              /* blur: in pixels, within [0, 100], {s, 0} is {0, s}; default {0, 1} */
    float brightness_factor[2], contrast_factor[2], saturation_factor[2], hue_factor[2]; /* color jitter: `factor` of
                                    these four; {0, 0} leaves one out */
    int num_ops;                 /* RandAugment: changes one after the other; 1 to 8, default 2 */
    int num_chains, chain_depth; /* AugMix: chains, and changes one after the other in each; 1 to 5, default 3 */
    float alpha;                 /* AugMix: of the distributions of shares, above 0; default 1 */
    bool fewer_ops;              /* AugMix: the first seven changes only. Keras: all_ops=False */
    float clip_limit;            /* CLAHE: the most numbers a level may have, in means of all levels; below 0:
                                    unlimited; default 4 */
    int tile_grid_size[2];       /* CLAHE: tiles down and across, 1 to 16 each; default {8, 8} */
} mirt_augmentation;

/* Layers on (rows, height, width, channels). Random ones are active in training only, and leave nothing in programs
   that predict; what an image gets depends on (seed, step, layer, row in the global batch), as in mirt_dropout.
   Neighbors that move pixels are one affine warp: every pixel is interpolated once, and only what is outside of the
   first one's image is filled. They stand in front of what is trained: no gradient passes through them. Errors of
   these: MIRT_E_INVALID, MIRT_E_SHAPE. Keras: RandomFlip; here the two directions of HORIZONTAL_AND_VERTICAL are drawn
   each for itself. NULL desc: all defaults. */
MIRT_API mirt_tensor *mirt_random_flip(mirt_tensor *x, const mirt_augmentation *desc);
/* Around the center of the image. */
MIRT_API mirt_tensor *mirt_random_rotation(mirt_tensor *x, const mirt_augmentation *desc);
MIRT_API mirt_tensor *mirt_random_zoom(mirt_tensor *x, const mirt_augmentation *desc);
MIRT_API mirt_tensor *mirt_random_translation(mirt_tensor *x, const mirt_augmentation *desc);
/* A part of height x width pixels, another of each image. Images that are smaller, and all outside of training: the
   largest part in the middle that has this shape, resized. */
MIRT_API mirt_tensor *mirt_random_crop(mirt_tensor *x, const mirt_augmentation *desc);
/* (x - mean of the channel) * factor + mean. */
MIRT_API mirt_tensor *mirt_random_contrast(mirt_tensor *x, const mirt_augmentation *desc);
MIRT_API mirt_tensor *mirt_random_brightness(mirt_tensor *x, const mirt_augmentation *desc);
/* From the upper left corner; both directions have the same random sign. */
MIRT_API mirt_tensor *mirt_random_shear(mirt_tensor *x, const mirt_augmentation *desc);
/* With a chance that is drawn from `factor`, default {0, 1}, the corners move, except the upper left one; the upper
   right and the lower left one stay on their edges. Outside of the image is fill_value. An image of one row or column
   stays. Keras: RandomPerspective. */
MIRT_API mirt_tensor *mirt_random_perspective(mirt_tensor *x, const mirt_augmentation *desc);
/* Of red, green and blue: the hue turns by up to half the factor, either way. */
MIRT_API mirt_tensor *mirt_random_hue(mirt_tensor *x, const mirt_augmentation *desc);
/* The saturation times f / (1 - f): a factor of 0.5 changes nothing, 0 is gray. As in Keras the saturation itself is
   clipped to value_range; beyond 1, where {0, 255} lets it be, colors become negative, which bytes do not show. */
MIRT_API mirt_tensor *mirt_random_saturation(mirt_tensor *x, const mirt_augmentation *desc);
/* With a chance that is drawn from `factor` (default {0, 1}), a part of the image becomes normal noise times the upper
   value, or fill_value, clipped to value_range. */
MIRT_API mirt_tensor *mirt_random_erasing(mirt_tensor *x, const mirt_augmentation *desc);
/* With a chance of factor[0], default 0.5, the color of each pixel becomes 0.2989 red + 0.587 green + 0.114 blue. Also
   of one channel, which stays. */
MIRT_API mirt_tensor *mirt_random_grayscale(mirt_tensor *x, const mirt_augmentation *desc);
/* The upper value minus x, with a chance that is drawn from `factor`, default {0, 1}. */
MIRT_API mirt_tensor *mirt_random_invert(mirt_tensor *x, const mirt_augmentation *desc);
/* Of pixels from 0 to 255, to which a is added: what is not below t becomes 255 less it. a is drawn from
   addition_factor, t from threshold_factor, as in Keras from {l, u} between l and 255 u. */
MIRT_API mirt_tensor *mirt_solarization(mirt_tensor *x, const mirt_augmentation *desc);
/* Of the 8 bits of a pixel only the highest ones stay. */
MIRT_API mirt_tensor *mirt_random_posterization(mirt_tensor *x, const mirt_augmentation *desc);
/* x + f (gray - x), gray as above: 1 is gray. */
MIRT_API mirt_tensor *mirt_random_color_degeneration(mirt_tensor *x, const mirt_augmentation *desc);
/* The numbers of each channel are spread so that each range has as many; Keras does that for the numbers
   of all images of a batch together. */
MIRT_API mirt_tensor *mirt_equalization(mirt_tensor *x, const mirt_augmentation *desc);
/* x + (1 - 2 f) (s - x), s smoothed by 3 x 3 pixels: 0 is smoothed, 0.5 is x, 1 is sharper. Outside of the image is 0.
   At most 512 channels. */
MIRT_API mirt_tensor *mirt_random_sharpness(mirt_tensor *x, const mirt_augmentation *desc);
/* With a chance that is drawn from `factor`, default {0, 1}; height and width have each a sigma, in Keras those of the
   batch. Outside of the image is 0. */
MIRT_API mirt_tensor *mirt_random_gaussian_blur(mirt_tensor *x, const mirt_augmentation *desc);
/* Brightness, contrast, saturation and hue, one after the other. */
MIRT_API mirt_tensor *mirt_random_color_jitter(mirt_tensor *x, const mirt_augmentation *desc);
/* num_ops times one of shear, translation, rotation, brightness, color degeneration, contrast, sharpness,
   posterization, solarization, auto contrast and equalization, each by `factor` (default {0, 0.5}). Each image draws
   its own, in Keras the batch. */
MIRT_API mirt_tensor *mirt_rand_augment(mirt_tensor *x, const mirt_augmentation *desc);
/* A mean of the image and of num_chains changed ones, clipped to value_range; Dirichlet and beta distributions of
   `alpha` give the shares. Each change in a chain is none or one of shear, translation, rotation, posterization,
   solarization, auto contrast, equalization, brightness, color degeneration, contrast and sharpness, by `factor`
   (default {0, 0.3}). Each image draws its own, in Keras the batch. Keras: AugMix. */
MIRT_API mirt_tensor *mirt_aug_mix(mirt_tensor *x, const mirt_augmentation *desc);
/* Equalizes each of a grid of tiles, with a limit to how many numbers a level may have, and interpolates between tiles:
   contrast-limited adaptive histogram equalization. Always active, also when predicting; no gradient passes. At most 64
   channels. Keras: ContrastLimitedAdaptiveHistogramEqualization. */
MIRT_API mirt_tensor *mirt_clahe(mirt_tensor *x, const mirt_augmentation *desc);
/* With a chance that is drawn from `factor`, default {0, 1}, pixels are read from places that alpha * noise moves. The
   noise is normal, with a deviation of sigma = 0.05 * scale * shorter side, and blurred with the same sigma; alpha is
   0.1 * scale * longer side. Each image draws a scale, in Keras the batch. Moves across and down are independent, in
   Keras equal. Results are clipped to value_range. Keras: RandomElasticTransform. */
MIRT_API mirt_tensor *mirt_random_elastic_transform(mirt_tensor *x, const mirt_augmentation *desc);
/* These three are always active, and gradients pass. Each channel from its least and greatest number to value_range;
   one with a single number stays. At most 64 channels. */
MIRT_API mirt_tensor *mirt_auto_contrast(mirt_tensor *x, const mirt_augmentation *desc);
/* The part in the middle; of smaller images what mirt_random_crop
   takes. */
MIRT_API mirt_tensor *mirt_center_crop(mirt_tensor *x, const mirt_augmentation *desc);
/* Pixels lie at the centers of their squares. Keras: Resizing. */
MIRT_API mirt_tensor *mirt_resizing(mirt_tensor *x, const mirt_augmentation *desc);
/* The layer of desc->kind. */
MIRT_API mirt_tensor *mirt_augmentation_layer(mirt_tensor *x, const mirt_augmentation *desc);

#ifndef MIRRORTRAIN_NO_TRAIN
/* The same for the samples of a data set: x[0], (height, width, channels) of float32 or uint8, which stays uint8,
   rounded. What an image gets depends on (seed, epoch, index of the sample). Comes before mirt_batch, and
   after mirt_cache, or every epoch would see the same images. tf.data: map. */
MIRT_API mirt_dataset *mirt_augment(mirt_dataset *dataset, const mirt_augmentation *list, int count);
/* Reads "flip,rotation:0.1,zoom:0.1" into at most `most` entries of list; how many there are, or -1 with the error set.
   Names as the layers without "random_"; numbers after ':', two being height and width: flip:horizontal, rotation:0.1,
   zoom:0.1:0.2, translation:0.1:0.1, crop:200:180, center_crop:200, resizing:224, contrast:0.2, brightness:0.1; and
   constant, wrap, nearest: rotation:0.1:constant. Also shear:0.2:0.1 (x and y), hue:0.1, saturation:0.4:0.6 (a range),
   erasing or erasing:0.5:constant, invert:0.2 and gaussian_blur:0.5 (a chance of up to this, which each image draws;
   0.5:0.5 is a half), grayscale:0.2 (a chance), solarization:0.1:0.5 (addition, threshold), posterization:4,
   color_degeneration:0.5, auto_contrast, equalization, sharpness:0.2:0.8, color_jitter:0.2:0.2:0.2:0.1 (brightness,
   contrast, saturation, hue), rand_augment or rand_augment:0.3, perspective or perspective:0.4 (scale), aug_mix or
   aug_mix:0.3, clahe or clahe:2 (clip limit), elastic_transform or elastic_transform:0.5 (scale) with a fill mode. */
MIRT_API int mirt_parse_augmentation(const char *text, mirt_augmentation *list, int most);

/* Mean and variance of the channels of x[0], over an epoch, into desc: what mirt_normalization then takes off. The data
   set is begun, not consumed. MIRT_E_SHAPE: more than 4 channels. Keras: Normalization.adapt. */
MIRT_API mirt_status mirt_adapt(mirt_normalization_desc *desc, mirt_dataset *dataset);

/* Writes one image, (height, width, channels) of 1 to 4 channels, as a PNG; several, (n, height, width, channels),
   `columns` side by side, a few pixels apart. uint8, or float32 from 0 to 255, which is rounded. Errors: MIRT_E_SHAPE,
   MIRT_E_IO, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_write_png(const char *path, mirt_array images, int columns);
/* The same of the first rows * columns samples, or batches' samples, of a data set, which is begun, not consumed: 3, 4
   for twelve. Of one image twelve times, mirt_repeat before mirt_augment. */
MIRT_API mirt_status mirt_save_grid(const char *path, mirt_dataset *dataset, int rows, int columns);
#endif

MIRT__END_C

#endif /* MIRT__AUGMENT_API_H */
