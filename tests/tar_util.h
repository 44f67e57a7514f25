#ifndef TAR_UTIL_H
#define TAR_UTIL_H
/* Tar archives in memory, for tests and fuzz targets. Include after mirrortrain.h. */
#include <stdio.h>
#include <string.h>

#define TAR_MOST 65536

typedef struct tar_bytes {
    unsigned char data[TAR_MOST];
    size_t size;
} tar_bytes;

/* Gives a header the checksum it ought to have. */
__attribute__((unused)) static void tar_seal(unsigned char *header) {
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

/* A header for `size` bytes; its offset. `name` has at most 99 bytes. */
__attribute__((unused)) static size_t tar_header(tar_bytes *tar, const char *name, size_t size, char type) {
    const size_t at = tar->size;
    unsigned char *header = tar->data + at;
    if (at + 512 > TAR_MOST) return at;
    memset(header, 0, 512);
    memcpy(header, name, strlen(name));
    memcpy(header + 100, "0000644\0" "0000000\0" "0000000\0", 24);
    snprintf((char *)header + 124, 12, "%011o", (unsigned)size);
    memcpy(header + 136, "00000000000\0", 12);
    header[156] = (unsigned char)type;
    memcpy(header + 257, "ustar\0" "00", 8);
    tar_seal(header);
    tar->size += 512;
    return at;
}

/* A member; the offset of its header. */
__attribute__((unused)) static size_t tar_add(tar_bytes *tar, const char *name, const void *data, size_t size,
                                              char type) {
    const size_t at = tar_header(tar, name, size, type), whole = (size + 511) / 512 * 512;
    if (tar->size + whole > TAR_MOST) return at;
    memset(tar->data + tar->size, 0, whole);
    if (size) memcpy(tar->data + tar->size, data, size);
    tar->size += whole;
    return at;
}

__attribute__((unused)) static void tar_text(tar_bytes *tar, const char *name, const char *text) {
    tar_add(tar, name, text, strlen(text), '0');
}

/* A pax header with one record, for the next member. */
__attribute__((unused)) static void tar_pax(tar_bytes *tar, const char *key, const char *value) {
    char record[1024];
    const size_t rest = strlen(key) + strlen(value) + 3;
    size_t length = rest + 1;
    while (length != rest + (size_t)snprintf(NULL, 0, "%zu", length))
        length = rest + (size_t)snprintf(NULL, 0, "%zu", length);
    snprintf(record, sizeof record, "%zu %s=%s\n", length, key, value);
    tar_add(tar, "PaxHeaders/x", record, length, 'x');
}

/* The two empty blocks at the end. */
__attribute__((unused)) static void tar_end(tar_bytes *tar) {
    if (tar->size + 1024 > TAR_MOST) return;
    memset(tar->data + tar->size, 0, 1024);
    tar->size += 1024;
}

#endif
