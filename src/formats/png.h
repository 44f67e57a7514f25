#ifndef MIRT__PNG_H
#define MIRT__PNG_H
#include "../base/base.h"

/* The file mirt_write_png writes, in memory that mirt__aligned_free frees. MIRT_E_SHAPE, MIRT_E_NOMEM. */
MIRT__LIB mirt_status mirt__png_of(const mirt_array *images, int columns, unsigned char **out, size_t *size);

#endif
