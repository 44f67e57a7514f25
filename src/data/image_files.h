#ifndef MIRT__IMAGE_FILES_H
#define MIRT__IMAGE_FILES_H
/* Lists of image files with their labels, in Keras's order. */

#include "../base/file.h"
#include "../images/images.h"
#include "data.h"

typedef struct mirt__image_file {
    const char *path;      /* of a member of a shard: SHARD/MEMBER, for messages */
    int32_t label;         /* 0 without labels */
    int32_t shard;         /* of a member: */
    uint64_t offset, size; /* its content in the shard */
} mirt__image_file;

typedef struct mirt__image_list {
    mirt__pool pool; /* memory of paths and names */
    mirt__image_file *file;
    int64_t count, capacity;
    const char **classes; /* in the pool; NULL without labels */
    int num_classes;
    const char **shards; /* likewise, the tar archives that the files are members of; NULL: files by themselves */
    int num_shards;
} mirt__image_list;

/* Whether a name ends in these lower-case characters, in any case. */
MIRT__LIB bool mirt__name_ends(const char *name, const char *lower);
/* Whether a name has the suffix of an image file. */
MIRT__LIB bool mirt__image_name(const char *name);
/* Room for one more in a list of `count`; false with the error set. */
MIRT__LIB bool mirt__list_room(void **list, int64_t count, int64_t *capacity, size_t size);
MIRT__LIB void mirt__image_list_free(mirt__image_list *list);
/* Adds a copy, with a copy of the path in the list's pool. */
MIRT__LIB mirt_status mirt__image_list_add(mirt__image_list *list, const mirt__image_file *file);
MIRT__LIB mirt_status mirt__image_list_set_classes(mirt__image_list *list, const char *const *names, int count);
MIRT__LIB mirt_status mirt__image_list_set_shards(mirt__image_list *list, const char *const *paths, int count);
/* What is to be read for file i. */
MIRT__LIB mirt__file_part mirt__image_list_part_of(const mirt__image_list *list, int64_t i);
/* Fill an empty list, which is freed on failure. Errors name the file. */
MIRT__LIB mirt_status mirt__image_list_directory(mirt__image_list *list, const char *directory,
                                                 const mirt_image_directory_desc *desc);
MIRT__LIB mirt_status mirt__image_list_csv(mirt__image_list *list, const char *csv,
                                           const mirt_image_directory_desc *desc);
/* Members of tar archives in WebDataset's layout: `shards` as in mirt_tar_dataset. */
MIRT__LIB mirt_status mirt__image_list_shards(mirt__image_list *list, const char *shards,
                                              const mirt_image_directory_desc *desc);
/* The sorted paths of the files in a directory that end in .tar, in the pool. */
MIRT__LIB mirt_status mirt__directory_shards(const char *directory, mirt__pool *pool, const char ***path,
                                             int64_t *count);
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
/* Copies files [first, first + count), members in the order of the shards, into an empty list, which is freed on
   failure. */
MIRT__LIB mirt_status mirt__image_list_part(const mirt__image_list *list, int64_t first, int64_t count,
                                            mirt__image_list *out);

/* The first stage of image files. */
typedef struct mirt__image_dataset {
    mirt_dataset base;
    mirt__image_list list;
    mirt_image_directory_desc desc; /* its pointers to names and labels are NULL */
    char **reason;                  /* [count] the reason that a file is corrupt, once known */
    int32_t *shard;                 /* base.shard */
} mirt__image_dataset;
/* The image stage at the start of the chain, or NULL if the chain starts with another stage. */
MIRT__LIB const mirt__image_dataset *mirt__images_of(const mirt_dataset *dataset);

/* Computes how a data set of this description places an image: which part of it fills which part of the output, at
   `offset` elements. */
MIRT__LIB void mirt__images_fit(const mirt_image_directory_desc *desc, const mirt_image *image, mirt__pixmap *resize,
                                size_t *offset);
/* The one way from a file to the pixels that a model sees. `images` with the thread's `work`, whose room is used; or
   both NULL: memory for this one image. */
MIRT__LIB mirt_status mirt__images_load(const mirt_image_directory_desc *desc, const mirt__file_part *file,
                                        mirt__image_dataset *images, mirt__work *work, void *out);
/* A copy of `given`, which may be NULL, with defaults; whether it makes sense. */
MIRT__LIB void mirt__images_defaults(const mirt_image_directory_desc *given, mirt_image_directory_desc *out);
MIRT__LIB mirt_status mirt__images_check(const char *caller, const mirt_image_directory_desc *desc);
MIRT__LIB mirt_status mirt__images_check_names(const char *caller, const mirt_image_directory_desc *desc);

#endif
