#ifndef MIRT__PNG_H
#define MIRT__PNG_H
#include "../base/base.h"
/* Writes PNG images. */

/* Makes the file of mirt_write_png in memory, to be freed by mirt__aligned_free. MIRT_E_SHAPE, MIRT_E_NOMEM. */
MIRT__LIB mirt_status mirt__png_of(const mirt_array *images, int columns, unsigned char **out, size_t *size);

#endif
