#ifndef MIRT__IMAGES_API_H
#define MIRT__IMAGES_API_H
/* Decoding, resizing and data sets of images. */

#include "data_api.h"

MIRT__BEGIN_C

/* >>photographs --------------------------------------------------------------------------- */
/* Threads: any thread may decode, resize and verify at any time; data sets made here are as all others. */

/* Pixels in rows from the top, dense, of 1 to 4 bytes: gray, gray and alpha, RGB, RGBA. */
typedef struct mirt_image {
    unsigned char *pixels;
    int width, height, channels;
} mirt_image;
#ifndef MIRRORTRAIN_NO_IMAGES
/* Memory for an image; whatever *image held is forgotten. MIRT_E_INVALID, MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_image_create(mirt_image *image, int width, int height, int channels);
/* Frees the pixels, and empties *image; NULL and empty images are allowed. */
MIRT_API void mirt_image_free(mirt_image *image);

/* Keras: color_mode. Gray becomes RGB of three equal bytes, alpha is dropped, not blended, and 255 where it is
   missing. */
typedef enum mirt_color_mode { MIRT_RGB = 0, MIRT_GRAYSCALE, MIRT_RGBA } mirt_color_mode;

/* A decoder of the caller's: makes *out by mirt_image_create, and returns 0; MIRT_OTHER_DECODER leaves a file to the
   library's own; anything else is an error. Must be thread safe. */
typedef int (*mirt_decoder_fn)(const unsigned char *bytes, size_t size, mirt_image *out, void *user);
#define MIRT_OTHER_DECODER (-1)

/* Zero means default. Limits are checked before a file is decoded. */
typedef struct mirt_decode_desc {
    int max_side;           /* default 16384 */
    int64_t max_pixels;     /* default 1 << 26 */
    int64_t max_bytes;      /* of a file; default 1 << 26 */
    int least_height;       /* not 0: JPEGs may be decoded at 1/2, 1/4 or 1/8 of their size, the smallest not below
                               these two. */
    int least_width;        /* TurboJPEG then does less; stb_image does not: blocks of pixels are averaged */
    mirt_decoder_fn decoder;
    void *decoder_user;
} mirt_decode_desc;

/* Decodes a JPEG, PNG, BMP or GIF (the first frame), recognized by content, into *out. 16 bits become 8; orientation in
   EXIF is ignored. stb_image is used where <stb/stb_image.h> or <stb_image.h> is found and MIRRORTRAIN_NO_STB_IMAGE is
   not defined; for JPEGs TurboJPEG, if MIRRORTRAIN_TURBOJPEG is (link with -lturbojpeg). Both transform JPEGs as
   TensorFlow does (libjpeg's IFAST): TurboJPEG to the same pixels, stb_image to nine in ten of them, the others a level
   or two away. desc NULL: all defaults. MIRT_E_FORMAT: damaged, cut short, above a limit, or of another format;
   MIRT_E_NOT_FOUND: no decoder was built in; MIRT_E_CALLBACK, MIRT_E_INVALID, MIRT_E_NOMEM. Keras:
   tf.io.decode_image. */
MIRT_API mirt_status mirt_decode_image(const void *bytes, size_t size, mirt_color_mode mode,
                                       const mirt_decode_desc *desc, mirt_image *out);
/* The same for a file, which the error names. Also MIRT_E_IO; here MIRT_E_NOT_FOUND may mean the file. */
MIRT_API mirt_status mirt_read_image(const char *path, mirt_color_mode mode, const mirt_decode_desc *desc,
                                     mirt_image *out);
#endif /* MIRRORTRAIN_NO_IMAGES */

/* Keras: interpolation, in tf.image.resize's numbers. */
typedef enum mirt_interpolation {
    MIRT_BILINEAR = 0,
    MIRT_NEAREST,
    MIRT_BICUBIC,
    MIRT_AREA,
    MIRT_LANCZOS3,
    MIRT_LANCZOS5,
    MIRT_GAUSSIAN,
    MIRT_MITCHELLCUBIC,
    MIRT__INTERPOLATION_COUNT
} mirt_interpolation;
/* Resizes to [height, width, channels] floats, 0 to 255 (bicubic and Lanczos may overshoot). `antialias` widens the
   filter where the image shrinks (nearest and area know no difference). Keras: tf.image.resize. MIRT_E_INVALID,
   MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_resize_image(const mirt_image *image, int height, int width, mirt_interpolation interpolation,
                                       bool antialias, float *out);

#ifndef MIRRORTRAIN_NO_IMAGES
/* What labels are (Keras: label_mode): int32 [], float32 [1] of exactly two classes, float32 [classes], none. */
typedef enum mirt_label_mode {
    MIRT_LABELS_INT = 0, MIRT_LABELS_BINARY, MIRT_LABELS_CATEGORICAL, MIRT_LABELS_NONE
} mirt_label_mode;
typedef enum mirt_subset { MIRT_SUBSET_ALL = 0, MIRT_SUBSET_TRAINING, MIRT_SUBSET_VALIDATION } mirt_subset;
/* What becomes of a file that cannot be read or decoded: an error of the run, left out, or all zeros under its
   label. */
typedef enum mirt_corrupt { MIRT_CORRUPT_FAIL = 0, MIRT_CORRUPT_SKIP, MIRT_CORRUPT_ZERO } mirt_corrupt;
#define MIRT_NO_BATCH (-1)

/* Zero means default, which is Keras's, with its names for these. */
typedef struct mirt_image_directory_desc {
    int height, width;       /* image_size; default 256 each */
    mirt_color_mode color_mode;
    mirt_label_mode label_mode;
    const char *const *class_names; /* subdirectories, in the order of their labels; NULL: all, sorted */
    int num_class_names;
    const int32_t *labels;   /* one per file, for files in sorted order anywhere below the directory; NULL: by
                                subdirectories */
    int64_t num_labels;
    int64_t batch_size;      /* 0: 32. MIRT_NO_BATCH: samples, for stages that come before mirt_batch */
    bool no_shuffle;         /* files stay in sorted order; otherwise they are shuffled once by the seed, and again
                                every epoch */
    bool has_seed;
    uint32_t seed;           /* the files' order is that of Keras for the same seed */
    double validation_split; /* this share of the files, from the end of their order, is for validation; */
    mirt_subset subset;      /* needs a seed, unless no_shuffle. Keras's "both": mirt_image_datasets_from_directory */
    mirt_interpolation interpolation;
    bool antialias;          /* as in mirt_resize_image; Keras: never */
    bool crop_to_aspect_ratio, pad_to_aspect_ratio;
    bool follow_links;       /* to directories; circles are found */
    mirt_dtype dtype;        /* of pixels: MIRT_FLOAT32, or rounded to MIRT_UINT8, a quarter of the memory */
    mirt_corrupt corrupt;
    bool reduced_scale;      /* JPEGs much larger than asked for may be decoded at a part of their size */
    mirt_decode_desc decode; /* limits, decoder */
    mirt_log_fn log;         /* told what was found, of classes without an image, and each corrupt image once, with the
                                reason, from any thread; NULL: nobody */
    void *log_user;
} mirt_image_directory_desc;

#ifndef MIRRORTRAIN_NO_TRAIN
/* Images below a directory, [height, width, channels], with labels from its subdirectories, whose names become those of
   the classes: files that end in .bmp .gif .jpeg .jpg .png, in the order of Keras. With a batch size it is shuffled and
   batched. `desc` NULL: all defaults; it is copied. A directory that is already split (see below) is refused with
   MIRT_E_INVALID where its parts would become classes, unless class_names lists them; so is one with a subdirectory
   that is split into parts with subdirectories itself. Also MIRT_E_NOT_FOUND, MIRT_E_IO. Keras:
   image_dataset_from_directory. */
MIRT_API mirt_dataset *mirt_image_dataset_from_directory(const char *directory, const mirt_image_directory_desc *desc);
/* Training and validation data; the validation data keep their order. On failure both are NULL. A directory is already
   split if it has train/ and validation/ (or val/, valid/), and either no other subdirectory but test/, or
   subdirectories in both of these; links to directories count. Its two parts are then used as they are:
   validation_split does not apply, no seed is needed, and both must have the same classes; test/ is not read. Any other
   directory is split by validation_split. With `labels`, and with class_names that are all subdirectories of the
   directory itself, it does not count as split. Keras: subset="both". */
MIRT_API mirt_status mirt_image_datasets_from_directory(const char *directory, const mirt_image_directory_desc *desc,
                                                        mirt_dataset **training, mirt_dataset **validation);
/* The path of one part, MIRT_SUBSET_TRAINING or MIRT_SUBSET_VALIDATION, of a directory that is already split, into
   `path` of `size` bytes. Of `desc` only class_names matter; NULL: none. MIRT_E_NOT_FOUND: the directory does not exist
   or is not split; MIRT_E_INVALID: it is not certain which part is for validation, or `path` is too small; MIRT_E_IO,
   MIRT_E_NOMEM. */
MIRT_API mirt_status mirt_image_directory_part(const char *directory, const mirt_image_directory_desc *desc,
                                               mirt_subset part, char *path, size_t size);
/* Images named in a text file of lines "path,label", paths relative to it; a path with a comma stands in double quotes.
   A first line that begins with "path", or names no file and no image, is a header. Labels are class names, sorted; or
   with class_names, those. */
MIRT_API mirt_dataset *mirt_image_dataset_from_csv(const char *csv, const mirt_image_directory_desc *desc);
/* Images in tar archives, without unpacking them, in WebDataset's layout: members that follow each other and have one
   name up to the first dot after the last slash are a sample, whose image ends in .jpg .jpeg .png .bmp .gif and whose
   label in .cls, a class number in digits. `shards`: a file, "train-{000000..000099}.tar" or "{a,b}.tar", a directory
   (its files that end in .tar, sorted), or several of these with "::" between them. The classes are class_names, or "0"
   to the largest label. Opening reads all headers (ustar, pax, GNU); archives must not change afterwards.
   With a batch size samples are shuffled by mirt_shuffle with a buffer of 1000, and batched. A validation_split takes
   a random share of the samples by seed, both parts in the order of the shards, or with no_shuffle its end.
   mirt_dataset_file is SHARD/MEMBER. MIRT_E_FORMAT: a damaged archive, a sample without a label or with two;
   MIRT_E_NOT_FOUND, MIRT_E_IO. WebDataset: WebDataset(shards, shardshuffle=True).shuffle(1000). */
MIRT_API mirt_dataset *mirt_tar_dataset(const char *shards, const mirt_image_directory_desc *desc);
/* Training and validation data, split by validation_split: both subsets of mirt_tar_dataset, whose headers are read
   once. On failure both are NULL. */
MIRT_API mirt_status mirt_tar_datasets(const char *shards, const mirt_image_directory_desc *desc,
                                       mirt_dataset **training, mirt_dataset **validation);
#endif
/* Reads one file as a data set of this description does, so that a model sees the same pixels, bit for bit: [height,
   width, channels] of desc->dtype into `out`. `desc` NULL: all defaults. Errors as mirt_read_image. Keras: load_img,
   img_to_array. */
MIRT_API mirt_status mirt_load_image(const char *path, const mirt_image_directory_desc *desc, void *out);
#ifndef MIRRORTRAIN_NO_TRAIN
/* The file of the sample with this index in the first stage's data (Keras: file_paths), or NULL. */
MIRT_API const char *mirt_dataset_file(const mirt_dataset *dataset, int64_t index);
#endif

/* Told of one image that cannot be used, and why, in a sentence that names the file. */
typedef void (*mirt_corrupt_fn)(const char *path, const char *reason, void *user);
#ifndef MIRRORTRAIN_NO_TRAIN
/* How many images of the data set were found corrupt so far (under MIRT_CORRUPT_SKIP or _ZERO); fn, if not NULL, is
   told of each. */
MIRT_API int64_t mirt_corrupt_images(const mirt_dataset *dataset, mirt_corrupt_fn fn, void *user);
/* Decodes every image below a directory, links followed, calls fn for each that is corrupt, and counts; NULL: not
   wanted. Without images below it, or of a name that ends in .tar, those in shards (mirt_tar_dataset). `desc` as
   above, NULL: defaults. MIRT_OK whatever is found; else as mirt_image_dataset_from_directory. */
MIRT_API mirt_status mirt_verify_images(const char *directory, const mirt_decode_desc *desc, mirt_corrupt_fn fn,
                                        void *user, int64_t *images, int64_t *corrupt);
/* Drawn pictures of two kinds of animals, "cats" and "dogs", [height, width, 3] uint8, with labels as
   MIRT_LABELS_BINARY: to try programs without photographs; half of them dogs. The same (count, size, seed, split) gives
   the same pixels everywhere. */
MIRT_API mirt_dataset *mirt_drawn_photos(int64_t count, int height, int width, uint64_t seed, mirt_split split);
#endif
#endif /* MIRRORTRAIN_NO_IMAGES */

MIRT__END_C

#endif /* MIRT__IMAGES_API_H */
