#ifndef MIRT__IMAGE_FILES_H
#define MIRT__IMAGE_FILES_H
/* Lists of image files with their labels, in the order of Keras. */

#include "data.h"

typedef struct mirt__image_list {
    mirt__pool pool; /* of paths and names */
    const char **path;
    int32_t *label; /* 0 without labels */
    int64_t count, capacity;
    const char **classes; /* in the pool; NULL without labels */
    int num_classes;
} mirt__image_list;

MIRT__LIB void mirt__image_list_free(mirt__image_list *list);
/* The path must live as long as the list: in its pool. NULL: out of memory. */
MIRT__LIB mirt_status mirt__image_list_add(mirt__image_list *list, const char *path, int32_t label);
MIRT__LIB mirt_status mirt__image_list_set_classes(mirt__image_list *list, const char *const *names, int count);
/* Into an empty list, which is freed on failure. Errors name the culprit. */
MIRT__LIB mirt_status mirt__image_list_directory(mirt__image_list *list, const char *directory, const mirt_image_directory_desc *desc);
MIRT__LIB mirt_status mirt__image_list_csv(mirt__image_list *list, const char *csv, const mirt_image_directory_desc *desc);
/* numpy's RandomState(seed).shuffle. */
MIRT__LIB void mirt__image_list_shuffle(mirt__image_list *list, uint32_t seed);
/* A copy of files [first, first + count) into an empty list, which is freed on failure. */
MIRT__LIB mirt_status mirt__image_list_part(const mirt__image_list *list, int64_t first, int64_t count, mirt__image_list *out);

#endif
