/* What image files say of themselves, read without any decoder: sizes are checked before one of them is trusted with the file. */

#include "images.h"

static uint32_t mirt__image_big(const unsigned char *p, int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | p[i];
    return value;
}

static uint32_t mirt__image_little(const unsigned char *p, int bytes) {
    uint32_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | p[i];
    return value;
}

static mirt_status mirt__image_short_header(const char *format, size_t size) {
    return mirt__fail(MIRT_E_FORMAT, "a %s cut short: its %llu bytes end within the header", format, (unsigned long long)size);
}

/* A scan may pass over the whole image for a few bytes: as many as this have no purpose but to take time. */
static mirt_status mirt__jpeg_count_scans(const unsigned char *bytes, size_t size, size_t at) {
    const int most = 100;
    int scans = 0;
    while (at + 1 < size) {
        const unsigned char *next = (const unsigned char *)memchr(bytes + at, 0xFF, size - at - 1);
        if (!next) break;
        scans += next[1] == 0xDA;
        at = (size_t)(next - bytes) + 1;
    }
    if (scans > most) return mirt__fail(MIRT_E_FORMAT, "a JPEG of %d scans: more than %d do nothing but take time", scans, most);
    return MIRT_OK;
}

static mirt_status mirt__jpeg_header(const unsigned char *bytes, size_t size, mirt__image_header *out) {
    for (size_t at = 2; at + 4 <= size;) {
        if (bytes[at] != 0xFF) {
            at++; /* decoders look for the next marker as well */
            continue;
        }
        unsigned char marker = bytes[at + 1];
        if (marker == 0xFF || marker == 0 || (marker >= 0xD0 && marker <= 0xD8) || marker == 1) {
            at += marker == 0xFF ? 1 : 2;
            continue;
        }
        if (marker == 0xD9 || marker == 0xDA) return mirt__fail(MIRT_E_FORMAT, "a JPEG without a frame before byte %llu", (unsigned long long)at);
        if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC) {
            if (at + 10 > size) break;
            out->height = mirt__image_big(bytes + at + 5, 2);
            out->width = mirt__image_big(bytes + at + 7, 2);
            uint64_t padded = (uint64_t)(out->width + 64) * (uint64_t)(out->height + 64) * bytes[at + 9];
            out->memory = padded * (marker == 0xC2 ? 3 : 1) + 4 * (uint64_t)out->width * (uint64_t)out->height;
            return mirt__jpeg_count_scans(bytes, size, at);
        }
        at += 2 + (size_t)mirt__image_big(bytes + at + 2, 2);
    }
    return mirt__image_short_header("JPEG", size);
}

static mirt_status mirt__png_header(const unsigned char *bytes, size_t size, mirt__image_header *out) {
    static const unsigned char channels[7] = {1, 0, 3, 4, 2, 0, 4}; /* a palette may have alpha */
    if (size < 33) return mirt__image_short_header("PNG", size);
    if (memcmp(bytes + 12, "IHDR", 4) != 0 || bytes[25] > 6 || channels[bytes[25]] == 0 || bytes[24] > 16)
        return mirt__fail(MIRT_E_FORMAT, "a PNG whose header is damaged");
    out->width = mirt__image_big(bytes + 16, 4);
    out->height = mirt__image_big(bytes + 20, 4);
    if (out->width > INT32_MAX || out->height > INT32_MAX) return mirt__fail(MIRT_E_FORMAT, "a PNG whose header is damaged");
    uint64_t pixels = (uint64_t)out->width * (uint64_t)out->height, most = UINT64_MAX / 64;
    out->memory = pixels > most ? UINT64_MAX : pixels * channels[bytes[25]] * (bytes[24] == 16 ? 4 : 2) + 4 * pixels + size;
    return MIRT_OK;
}

static mirt_status mirt__bmp_header(const unsigned char *bytes, size_t size, mirt__image_header *out) {
    if (size < 30) return mirt__image_short_header("BMP", size);
    bool old = mirt__image_little(bytes + 14, 4) == 12;
    out->width = old ? (int32_t)mirt__image_little(bytes + 18, 2) : (int32_t)mirt__image_little(bytes + 18, 4);
    out->height = old ? (int32_t)mirt__image_little(bytes + 20, 2) : (int32_t)mirt__image_little(bytes + 22, 4);
    if (out->height < 0) out->height = -out->height; /* from top to bottom */
    if (out->width < 0) return mirt__fail(MIRT_E_FORMAT, "a BMP of the width %lld", (long long)out->width);
    out->memory = 8 * (uint64_t)out->width * (uint64_t)out->height;
    return MIRT_OK;
}

static mirt_status mirt__gif_header(const unsigned char *bytes, size_t size, mirt__image_header *out) {
    if (size < 13) return mirt__image_short_header("GIF", size);
    out->width = mirt__image_little(bytes + 6, 2);
    out->height = mirt__image_little(bytes + 8, 2);
    out->memory = 13 * (uint64_t)out->width * (uint64_t)out->height;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__image_read_header(const unsigned char *bytes, size_t size, mirt__image_header *out) {
    memset(out, 0, sizeof *out);
    mirt_status status = MIRT_OK;
    if (size >= 3 && memcmp(bytes, "\xFF\xD8\xFF", 3) == 0) {
        out->format = MIRT__FORMAT_JPEG;
        status = mirt__jpeg_header(bytes, size, out);
    } else if (size >= 8 && memcmp(bytes, "\x89PNG\r\n\x1A\n", 8) == 0) {
        out->format = MIRT__FORMAT_PNG;
        status = mirt__png_header(bytes, size, out);
    } else if (size >= 6 && (memcmp(bytes, "GIF87a", 6) == 0 || memcmp(bytes, "GIF89a", 6) == 0)) {
        out->format = MIRT__FORMAT_GIF;
        status = mirt__gif_header(bytes, size, out);
    } else if (size >= 2 && memcmp(bytes, "BM", 2) == 0) {
        out->format = MIRT__FORMAT_BMP;
        status = mirt__bmp_header(bytes, size, out);
    }
    if (status == MIRT_OK && out->format != MIRT__FORMAT_NONE && (out->width == 0 || out->height == 0))
        status = mirt__fail(MIRT_E_FORMAT, "%lld x %lld pixels: there is nothing to see", (long long)out->width, (long long)out->height);
    return status;
}

MIRT__LIB mirt_status mirt__image_check(const mirt__image_header *header, size_t size, const mirt_decode_desc *desc) {
    /* What packs more than 64 to 1 into many bytes is no photograph. */
    const uint64_t harmless = (uint64_t)160 << 20, ratio = 64;
    int64_t side = desc->max_side ? desc->max_side : 16384;
    int64_t pixels = desc->max_pixels ? desc->max_pixels : (int64_t)1 << 26;
    if (header->width > side || header->height > side)
        return mirt__fail(MIRT_E_FORMAT, "%lld x %lld pixels: more than %lld a side (max_side)", (long long)header->width,
                          (long long)header->height, (long long)side);
    if (header->height && header->width > pixels / header->height)
        return mirt__fail(MIRT_E_FORMAT, "%lld x %lld pixels: more than %lld (max_pixels)", (long long)header->width,
                          (long long)header->height, (long long)pixels);
    if (header->memory > harmless && header->memory / ratio > size)
        return mirt__fail(MIRT_E_FORMAT, "%lld x %lld pixels in a file of %llu bytes: it would take %llu MiB to decode, more than %d times its size",
                          (long long)header->width, (long long)header->height, (unsigned long long)size,
                          (unsigned long long)(header->memory >> 20), (int)ratio);
    return MIRT_OK;
}
