/* Reads the members of tar archives: ustar, pax, GNU's long names. */

#include "tar.h"

MIRT__LIB mirt_status mirt__tar_open(mirt__tar *tar, const char *path) {
    memset(tar, 0, sizeof *tar);
    tar->path = path;
    tar->given_size = UINT64_MAX;
    return mirt__file_open(path, &tar->fd, &tar->file_size);
}

MIRT__LIB void mirt__tar_close(mirt__tar *tar) {
    mirt__file_close(&tar->fd);
    mirt__text_free(&tar->given);
    mirt__text_free(&tar->name);
}

static mirt_status mirt__tar_fail(const mirt__tar *tar, const char *what) {
    return mirt__fail(MIRT_E_FORMAT, "%s: %s at offset %llu", tar->path, what, (unsigned long long)tar->at);
}

MIRT__LIB const unsigned char *mirt__tar_bytes(mirt__tar *tar, uint64_t offset, size_t size) {
    const bool held = offset >= tar->window && offset - tar->window <= tar->held &&
                      size <= tar->held - (size_t)(offset - tar->window);
    if (!held) {
        const int64_t got = mirt__file_read_at(tar->fd, offset, tar->bytes, sizeof tar->bytes);
        if (got < 0) mirt__fail(MIRT_E_IO, "%s: cannot read: %s", tar->path, strerror(errno));
        tar->window = offset;
        tar->held = got < 0 ? 0 : (size_t)got;
        if (got >= 0 && tar->held < size) mirt__tar_fail(tar, "the archive is cut short");
        if (tar->held < size) return NULL;
    }
    return tar->bytes + (size_t)(offset - tar->window);
}

/* A number in octal digits, or, after a byte of 0x80, in base 256; false if it is neither or above INT64_MAX. */
static bool mirt__tar_number(const unsigned char *field, size_t size, uint64_t *out) {
    size_t i = 0;
    *out = 0;
    if (field[0] & 0x80) {
        if (field[0] != 0x80) return false;
        for (i = 1; i < size; i++) {
            if (*out >> 55) return false;
            *out = *out << 8 | field[i];
        }
        return true;
    }
    while (i < size && field[i] == ' ') i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++) *out = *out << 3 | (uint64_t)(field[i] - '0');
    while (i < size && (field[i] == ' ' || field[i] == 0)) i++;
    return i == size;
}

/* The sum of the header's bytes, its own eight counted as spaces; old programs added signed ones. */
static bool mirt__tar_sum_holds(const unsigned char *header) {
    const size_t begin = 148, end = 156;
    int64_t sum = 0, with_sign = 0;
    uint64_t stored;
    for (size_t i = 0; i < MIRT__TAR_BLOCK; i++) {
        const unsigned char byte = i >= begin && i < end ? ' ' : header[i];
        sum += byte;
        with_sign += byte < 128 ? byte : byte - 256;
    }
    return mirt__tar_number(header + begin, end - begin, &stored) &&
           (stored == (uint64_t)sum || (with_sign >= 0 && stored == (uint64_t)with_sign));
}

static bool mirt__tar_is_zero(const unsigned char *block) {
    for (size_t i = 0; i < MIRT__TAR_BLOCK; i++)
        if (block[i]) return false;
    return true;
}

static size_t mirt__tar_length(const unsigned char *field, size_t most) {
    size_t length = 0;
    while (length < most && field[length]) length++;
    return length;
}

/* The name in the header, unless one was given. */
static mirt_status mirt__tar_set_name(mirt__tar *tar, const unsigned char *header) {
    const unsigned char *prefix = header + 345;
    const size_t before = memcmp(header + 257, "ustar\0", 6) == 0 ? mirt__tar_length(prefix, 155) : 0;
    mirt__text_clear(&tar->name);
    if (tar->given.size) {
        mirt__text_add_bytes(&tar->name, tar->given.data, tar->given.size);
    } else {
        mirt__text_add_bytes(&tar->name, prefix, before);
        if (before) mirt__text_add_bytes(&tar->name, "/", 1);
        mirt__text_add_bytes(&tar->name, header, mirt__tar_length(header, 100));
    }
    return tar->name.failed ? MIRT_E_NOMEM : MIRT_OK;
}

/* >>headers about the next member */

/* Adds the bytes of a header's content to `out`. */
static mirt_status mirt__tar_copy(mirt__tar *tar, uint64_t offset, uint64_t size, mirt__text *out) {
    const uint64_t most = (uint64_t)1 << 20;
    if (size > most) return mirt__tar_fail(tar, "a header of more than 1 MiB");
    mirt__text_clear(out);
    for (uint64_t done = 0, chunk; done < size && !out->failed; done += chunk) {
        chunk = size - done < MIRT__TAR_BLOCK ? size - done : MIRT__TAR_BLOCK;
        const unsigned char *bytes = mirt__tar_bytes(tar, offset + done, (size_t)chunk);
        if (!bytes) return mirt_last_status();
        mirt__text_add_bytes(out, bytes, (size_t)chunk);
    }
    return out->failed ? MIRT_E_NOMEM : MIRT_OK;
}

/* Sets the name of the next member; a 0 ends it. */
static mirt_status mirt__tar_give_name(mirt__tar *tar, const char *name, size_t size) {
    mirt__text_clear(&tar->given);
    mirt__text_add_bytes(&tar->given, name, mirt__tar_length((const unsigned char *)name, size));
    return tar->given.failed ? MIRT_E_NOMEM : MIRT_OK;
}

/* "123" into *size. */
static mirt_status mirt__tar_give_size(mirt__tar *tar, const char *text, size_t length) {
    uint64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || value > INT64_MAX / 10 - 1)
            return mirt__tar_fail(tar, "the size in a pax header is not a number");
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    tar->given_size = value;
    return length ? MIRT_OK : mirt__tar_fail(tar, "the size in a pax header is not a number");
}

/* One record of a pax header, "KEY=VALUE" without its length. */
static mirt_status mirt__tar_record(mirt__tar *tar, const char *record, size_t size) {
    static const char path[] = "path=", length[] = "size=", sparse[] = "GNU.sparse.";
    const size_t five = sizeof path - 1;
    if (size >= five && memcmp(record, path, five) == 0)
        return mirt__tar_give_name(tar, record + five, size - five);
    if (size >= five && memcmp(record, length, five) == 0)
        return mirt__tar_give_size(tar, record + five, size - five);
    return size >= sizeof sparse - 1 && memcmp(record, sparse, sizeof sparse - 1) == 0
               ? mirt__tar_fail(tar, "a sparse file, which cannot be read in place,")
               : MIRT_OK;
}

/* A pax header: records "LENGTH KEY=VALUE\n", whose length counts all of it. */
static mirt_status mirt__tar_pax(mirt__tar *tar, const char *text, size_t size) {
    mirt_status status = MIRT_OK;
    for (size_t at = 0; at < size && text[at] && status == MIRT_OK;) {
        size_t length = 0, k = at;
        for (; k < size && text[k] >= '0' && text[k] <= '9' && length < size; k++)
            length = length * 10 + (size_t)(text[k] - '0');
        const size_t digits = k - at;
        if (k == size || text[k] != ' ' || length < digits + 2 || length > size - at ||
            text[at + length - 1] != '\n' || !memchr(text + k, '=', length - digits))
            return mirt__tar_fail(tar, "a damaged pax header");
        status = mirt__tar_record(tar, text + k + 1, length - digits - 2);
        at += length;
    }
    return status;
}

/* Reads a header that is about the next member. */
static mirt_status mirt__tar_about(mirt__tar *tar, char type, uint64_t offset, uint64_t size) {
    mirt__text text;
    memset(&text, 0, sizeof text);
    mirt_status status = mirt__tar_copy(tar, offset, size, &text);
    if (status == MIRT_OK && text.size)
        status = type == 'x' ? mirt__tar_pax(tar, text.data, text.size)
                             : mirt__tar_give_name(tar, text.data, text.size);
    mirt__text_free(&text);
    return status;
}

/* >>members */

/* What stands at tar->at: checks its header, and moves on. *type is 0 at the end. */
static mirt_status mirt__tar_header(mirt__tar *tar, char *type) {
    const unsigned char *header = mirt__tar_bytes(tar, tar->at, MIRT__TAR_BLOCK);
    *type = 0;
    if (!header) return mirt_last_status();
    if (mirt__tar_is_zero(header)) return MIRT_OK;
    if (!mirt__tar_sum_holds(header))
        return tar->at || header[0] != 0x1F || header[1] != 0x8B
                   ? mirt__tar_fail(tar, tar->at ? "a damaged header" : "no tar archive: no header")
                   : mirt__fail(MIRT_E_FORMAT, "%s: is compressed; unpack it with gunzip", tar->path);
    if (!mirt__tar_number(header + 124, 12, &tar->size)) return mirt__tar_fail(tar, "a size that is not a number");
    *type = header[156] ? (char)header[156] : '0';
    const bool about = *type == 'x' || *type == 'g' || *type == 'L' || *type == 'K';
    if (!about && tar->given_size != UINT64_MAX) tar->size = tar->given_size;
    if (*type >= '1' && *type <= '6') tar->size = 0; /* links, devices and directories have no content */
    if (!about && mirt__tar_set_name(tar, header) != MIRT_OK) return MIRT_E_NOMEM;
    tar->offset = tar->at + MIRT__TAR_BLOCK;
    if (tar->size > tar->file_size || tar->offset > tar->file_size - tar->size)
        return mirt__tar_fail(tar, "the archive ends inside the member");
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__tar_next(mirt__tar *tar, bool *got) {
    char type;
    for (*got = false; !*got;) {
        mirt_status status = mirt__tar_header(tar, &type);
        if (status != MIRT_OK || !type) return status;
        if (type == 'S') return mirt__tar_fail(tar, "a sparse file, which cannot be read in place,");
        const bool about = type == 'x' || type == 'L';
        if (about) status = mirt__tar_about(tar, type, tar->offset, tar->size);
        if (status != MIRT_OK) return status;
        tar->at = tar->offset + (tar->size + MIRT__TAR_BLOCK - 1) / MIRT__TAR_BLOCK * MIRT__TAR_BLOCK;
        if (about || type == 'g' || type == 'K') continue;
        mirt__text_clear(&tar->given);
        tar->given_size = UINT64_MAX;
        /* Before ustar a directory was a file whose name ends in a slash. */
        *got = (type == '0' || type == '7') && tar->name.size && tar->name.data[tar->name.size - 1] != '/';
    }
    return MIRT_OK;
}

#undef MIRT__TAR_BLOCK
#undef MIRT__TAR_WINDOW
