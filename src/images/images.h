#ifndef MIRT__IMAGES_H
#define MIRT__IMAGES_H
/* Decoding and resizing of images. */

#include "../base/file.h"

#ifndef MIRRORTRAIN_NO_IMAGES
typedef enum mirt__image_format {
    MIRT__FORMAT_NONE = 0, MIRT__FORMAT_JPEG, MIRT__FORMAT_PNG, MIRT__FORMAT_BMP, MIRT__FORMAT_GIF
} mirt__image_format;

/* The contents of an image file's header. */
typedef struct mirt__image_header {
    mirt__image_format format;
    int64_t width, height;
    int channels; /* components of a JPEG */
    bool deep;    /* a PNG with 16 bits per channel */
    uint64_t memory; /* bytes that decoding needs at most */
} mirt__image_header;

/* Reads the header; MIRT_E_FORMAT. MIRT__FORMAT_NONE is not an error. */
MIRT__LIB mirt_status mirt__image_read_header(const unsigned char *bytes, size_t size, mirt__image_header *out);
/* Checks the header against the limits of `desc` and against decompression bombs. */
MIRT__LIB mirt_status mirt__image_check(const mirt__image_header *header, size_t size, const mirt_decode_desc *desc);

/* As mirt_read_image, for a part of a file. */
MIRT__LIB mirt_status mirt__image_read(const mirt__file_part *file, mirt_color_mode mode, const mirt_decode_desc *desc,
                                       mirt_image *out);
MIRT__LIB bool mirt__mode_known(mirt_color_mode mode);
MIRT__LIB int mirt__mode_channels(mirt_color_mode mode);
/* True, with the error set, if no decoder is available. */
MIRT__LIB bool mirt__decoder_missing(const mirt_decode_desc *desc);
/* Which decoders are compiled in. */
MIRT__LIB void mirt__decoders_here(bool *stb_image, bool *turbojpeg);
#endif /* MIRRORTRAIN_NO_IMAGES */

/* Source and target of resizing: rows of `stride` bytes, and of `out_stride` elements. */
typedef struct mirt__pixmap {
    const unsigned char *pixels;
    size_t stride, out_stride;
    int height, width, out_height, out_width, channels;
    mirt_interpolation interpolation;
    bool antialias;
    mirt_dtype dtype; /* dtype of the output: MIRT_FLOAT32 or MIRT_UINT8 */
} mirt__pixmap;
/* The whole image to this size, as floats without gaps. */
MIRT__LIB mirt__pixmap mirt__pixmap_of(const mirt_image *image, int height, int width, mirt_interpolation interpolation,
                                       bool antialias);
/* Bytes of scratch memory that it needs, aligned to MIRT__ALIGN; 0: too large. */
MIRT__LIB size_t mirt__pixmap_memory(const mirt__pixmap *resize);
/* Resizing along one axis as a matrix [in][out] to multiply rows of pixels with. False: out of memory. */
MIRT__LIB bool mirt__pixmap_matrix(mirt_interpolation interpolation, bool antialias, int in, int out, float *matrix);
MIRT__LIB void mirt__pixmap_run(const mirt__pixmap *resize, void *memory, void *out);

#endif
