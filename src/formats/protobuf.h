#ifndef MIRT__PROTOBUF_H
#define MIRT__PROTOBUF_H
/* Writes protocol buffers. A message is a list of fields; a field is its number and kind, followed by a varint, 4 or 8
   bytes, or a length and that many bytes. */

#include "../base/base.h"

/* Without a field: the bytes alone, lowest first. */
MIRT__LIB void mirt__pb_little(mirt__text *out, uint64_t value, int bytes);
MIRT__LIB void mirt__pb_double_bytes(mirt__text *out, double value);
MIRT__LIB void mirt__pb_varint(mirt__text *out, uint64_t value);

MIRT__LIB void mirt__pb_int(mirt__text *out, unsigned field, int64_t value);
MIRT__LIB void mirt__pb_float(mirt__text *out, unsigned field, float value);
MIRT__LIB void mirt__pb_double(mirt__text *out, unsigned field, double value);
MIRT__LIB void mirt__pb_bytes(mirt__text *out, unsigned field, const void *data, size_t size);
MIRT__LIB void mirt__pb_string(mirt__text *out, unsigned field, const char *text);
/* A nested message contains what is added until it is closed. Its length comes first, so the message is moved once that
   is known. */
MIRT__LIB size_t mirt__pb_open(mirt__text *out, unsigned field);
MIRT__LIB void mirt__pb_close(mirt__text *out, size_t begin);

#endif
