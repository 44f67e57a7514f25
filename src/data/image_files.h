#ifndef MIRT__IMAGE_FILES_H
#define MIRT__IMAGE_FILES_H
/* Lists of image files with their labels, in Keras's order. */

#include "../images/images.h"
#include "data.h"

typedef struct mirt__image_list {
    mirt__pool pool; /* memory of paths and names */
    const char **path;
    int32_t *label; /* 0 without labels */
    int64_t count, capacity;
    const char **classes; /* in the pool; NULL without labels */
    int num_classes;
} mirt__image_list;

/* Whether a name has the suffix of an image file. */
MIRT__LIB bool mirt__image_name(const char *name);
/* Room for one more in a list of `count`; false with the error set. */
MIRT__LIB bool mirt__list_room(void **list, int64_t count, int64_t *capacity, size_t size);
MIRT__LIB void mirt__image_list_free(mirt__image_list *list);
/* The path must be in the list's pool, so that it lives as long as the list. NULL: out of memory. */
MIRT__LIB mirt_status mirt__image_list_add(mirt__image_list *list, const char *path, int32_t label);
MIRT__LIB mirt_status mirt__image_list_set_classes(mirt__image_list *list, const char *const *names, int count);
/* Fill an empty list, which is freed on failure. Errors name the file. */
MIRT__LIB mirt_status mirt__image_list_directory(mirt__image_list *list, const char *directory,
                                                 const mirt_image_directory_desc *desc);
MIRT__LIB mirt_status mirt__image_list_csv(mirt__image_list *list, const char *csv,
                                           const mirt_image_directory_desc *desc);
/* The parts of a directory that is already split: paths in the pool, both NULL if it is not split. */
typedef struct mirt__image_parts {
    mirt__pool pool;
    const char *training, *validation;
} mirt__image_parts;
/* Fills uninitialized parts, whose pool the caller frees in any case. MIRT_E_INVALID: split, but ambiguous which part
   is for validation; the error says what to do. Other errors as in mirt_image_dataset_from_directory. */
MIRT__LIB mirt_status mirt__image_parts_find(mirt__image_parts *parts, const char *directory,
                                             const mirt_image_directory_desc *desc);
/* numpy's RandomState(seed).shuffle. */
MIRT__LIB void mirt__image_list_shuffle(mirt__image_list *list, uint32_t seed);
/* Copies files [first, first + count) into an empty list, which is freed on failure. */
MIRT__LIB mirt_status mirt__image_list_part(const mirt__image_list *list, int64_t first, int64_t count,
                                            mirt__image_list *out);

/* The first stage of image files. */
typedef struct mirt__image_dataset {
    mirt_dataset base;
    mirt__image_list list;
    mirt_image_directory_desc desc; /* its pointers to names and labels are NULL */
    char **reason;                  /* [count] the reason that a file is corrupt, once known */
} mirt__image_dataset;
/* The image stage at the start of the chain, or NULL if the chain starts with another stage. */
MIRT__LIB const mirt__image_dataset *mirt__images_of(const mirt_dataset *dataset);

/* Computes how a data set of this description places an image: which part of it fills which part of the output, at
   `offset` elements. */
MIRT__LIB void mirt__images_fit(const mirt_image_directory_desc *desc, const mirt_image *image, mirt__pixmap *resize,
                                size_t *offset);
/* The one way from a file to the pixels that a model sees. `images` with the thread's `work`, whose room is used; or
   both NULL: memory for this one image. */
MIRT__LIB mirt_status mirt__images_load(const mirt_image_directory_desc *desc, const char *path,
                                        mirt__image_dataset *images, mirt__work *work, void *out);
/* A copy of `given`, which may be NULL, with defaults; whether it makes sense. */
MIRT__LIB void mirt__images_defaults(const mirt_image_directory_desc *given, mirt_image_directory_desc *out);
MIRT__LIB mirt_status mirt__images_check(const char *caller, const mirt_image_directory_desc *desc);
MIRT__LIB mirt_status mirt__images_check_names(const char *caller, const mirt_image_directory_desc *desc);

#endif
