#include "protobuf.h"
/* Writes protocol buffers. */

MIRT__LIB void mirt__pb_little(mirt__text *out, uint64_t value, int bytes) {
    unsigned char b[8];
    for (int i = 0; i < bytes; i++) b[i] = (unsigned char)(value >> (8 * i));
    mirt__text_add_bytes(out, b, (size_t)bytes);
}

static size_t mirt__pb_varint_bytes(uint64_t value, unsigned char out[10]) {
    size_t n = 0;
    for (; value > 127; value >>= 7) out[n++] = (unsigned char)(value | 128);
    out[n++] = (unsigned char)value;
    return n;
}

MIRT__LIB void mirt__pb_varint(mirt__text *out, uint64_t value) {
    unsigned char b[10];
    mirt__text_add_bytes(out, b, mirt__pb_varint_bytes(value, b));
}

MIRT__LIB void mirt__pb_int(mirt__text *out, unsigned field, int64_t value) {
    mirt__pb_varint(out, field << 3);
    mirt__pb_varint(out, (uint64_t)value);
}

MIRT__LIB void mirt__pb_double_bytes(mirt__text *out, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    mirt__pb_little(out, bits, 8);
}

MIRT__LIB void mirt__pb_double(mirt__text *out, unsigned field, double value) {
    mirt__pb_varint(out, field << 3 | 1);
    mirt__pb_double_bytes(out, value);
}

MIRT__LIB void mirt__pb_float(mirt__text *out, unsigned field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    mirt__pb_varint(out, field << 3 | 5);
    mirt__pb_little(out, bits, 4);
}

MIRT__LIB void mirt__pb_bytes(mirt__text *out, unsigned field, const void *data, size_t size) {
    mirt__pb_varint(out, field << 3 | 2);
    mirt__pb_varint(out, size);
    mirt__text_add_bytes(out, data, size);
}

MIRT__LIB void mirt__pb_string(mirt__text *out, unsigned field, const char *text) {
    mirt__pb_bytes(out, field, text, strlen(text));
}

MIRT__LIB size_t mirt__pb_open(mirt__text *out, unsigned field) {
    mirt__pb_varint(out, field << 3 | 2);
    return out->size;
}

MIRT__LIB void mirt__pb_close(mirt__text *out, size_t begin) {
    unsigned char b[10];
    if (out->failed) return;
    const size_t size = out->size - begin, n = mirt__pb_varint_bytes(size, b);
    mirt__text_add_bytes(out, b, n); /* space for the length */
    if (out->failed) return;
    memmove(out->data + begin + n, out->data + begin, size);
    memcpy(out->data + begin, b, n);
}
