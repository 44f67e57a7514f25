/* Reads headers of image files: refuses damaged ones and large images before they are decoded. */

#include "../base/digest.h"
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
    return mirt__fail(MIRT_E_FORMAT, "a truncated %s: its %zu bytes end within the header", format,
                      size);
}

/* Adds the Huffman tables of a segment to the set of known tables. Some decoders write oversized tables into memory for
   256 codes, or use tables that were never defined. */
static mirt_status mirt__jpeg_tables(const unsigned char *table, size_t size, unsigned *known) {
    while (size > 0) {
        size_t codes = 0;
        for (size_t i = 1; i < 17 && i < size; i++) codes += table[i];
        if (size < 17 || codes > 256 || size < 17 + codes || table[0] > 0x1F || table[0] % 16 > 3)
            return mirt__fail(MIRT_E_FORMAT, "damaged: a Huffman table with %d codes", (int)codes);
        *known |= 1u << (table[0] / 16 * 4 + table[0] % 16);
        table += 17 + codes;
        size -= 17 + codes;
    }
    return MIRT_OK;
}

/* Adds the quantization tables of a segment to the set of known tables; a damaged segment adds none. */
static void mirt__jpeg_quantizers(const unsigned char *table, size_t size, unsigned *known) {
    while (size > 0) {
        const size_t bytes = table[0] / 16 ? 129 : 65;
        if (size < bytes) return;
        *known |= 1u << table[0] % 16;
        table += bytes;
        size -= bytes;
    }
}

/* Whether all tables that a scan uses have been defined. */
static bool mirt__jpeg_scan_known(const unsigned char *scan, size_t length, bool progressive, unsigned known) {
    size_t count = length > 2 ? scan[4] : 0;
    if (length != 6 + 2 * count) return false;
    bool first = scan[5 + 2 * count] == 0, refines = scan[7 + 2 * count] / 16 != 0;
    for (size_t i = 0; i < count; i++) {
        unsigned tables = scan[6 + 2 * i], dc = tables / 16, ac = 4 + tables % 16;
        bool needs_dc = first && (!progressive || !refines), needs_ac = !first || !progressive;
        if (dc > 3 || ac > 7 || (needs_dc && !(known >> dc & 1)) || (needs_ac && !(known >> ac & 1))) return false;
    }
    return true;
}

/* Like libjpeg, refuses sampling ratios of 2 to 3, for which stb_image up to 2.27 reads beyond the end of rows. */
static bool mirt__jpeg_sampling_known(const unsigned char *frame) {
    int most[2] = {0, 0};
    for (int i = 0; i < 2 * frame[9]; i++) {
        const int samples = frame[11 + i / 2 * 3] >> (i % 2 ? 0 : 4) & 15;
        if (samples > most[i % 2]) most[i % 2] = samples;
    }
    for (int i = 0; i < 2 * frame[9]; i++) {
        const int samples = frame[11 + i / 2 * 3] >> (i % 2 ? 0 : 4) & 15;
        if (samples < 1 || samples > 4 || most[i % 2] % samples != 0) return false;
    }
    return true;
}

static mirt_status mirt__jpeg_frame(const unsigned char *frame, size_t length, mirt__image_header *out) {
    if (length != 8 + 3 * (size_t)frame[9] || !mirt__jpeg_sampling_known(frame))
        return mirt__fail(MIRT_E_FORMAT, "damaged: a JPEG whose %d components have inconsistent sampling factors",
                          frame[9]);
    out->height = mirt__image_big(frame + 5, 2);
    out->width = mirt__image_big(frame + 7, 2);
    out->channels = frame[9];
    uint64_t padded = (uint64_t)(out->width + 64) * (uint64_t)(out->height + 64) * frame[9];
    out->memory = padded * (frame[1] == 0xC2 ? 3 : 1) + 4 * (uint64_t)out->width * (uint64_t)out->height;
    return MIRT_OK;
}

/* Checks all segments, including those between scans. */
static mirt_status mirt__jpeg_header(const unsigned char *bytes, size_t size, mirt__image_header *out) {
    const int most_scans = 100; /* each scan may take a few bytes but process the whole image: so many only take time */
    int scans = 0;
    unsigned tables = 0, quantizers = 0, named = 0;
    bool progressive = false;
    for (size_t at = 2; at + 2 <= size;) {
        const unsigned char *next = (const unsigned char *)memchr(bytes + at, 0xFF, size - at - 1);
        if (!next) break;
        at = (size_t)(next - bytes);
        unsigned char marker = next[1];
        if (marker == 0xFF || marker == 0 || (marker >= 0xD0 && marker <= 0xD8) || marker == 1) {
            at += marker == 0xFF ? 1 : 2;
            continue;
        }
        if (marker == 0xD9 && out->channels && scans)
            return named & ~quantizers
                       ? mirt__fail(MIRT_E_FORMAT, "damaged: a JPEG without one of its quantization tables")
                       : MIRT_OK;
        if (marker == 0xD9) break;
        if (at + 4 > size) break;
        size_t length = mirt__image_big(next + 2, 2);
        mirt_status status = MIRT_OK;
        const bool tabled = marker == 0xC4 || marker == 0xDB,
                   frame = marker >= 0xC0 && marker <= 0xCF && !tabled && marker != 0xC8 && marker != 0xCC;
        if ((tabled || frame || marker == 0xDA) && at + 2 + length > size) break;
        if (tabled && length < 2) break;
        if (marker == 0xC4) {
            status = mirt__jpeg_tables(next + 4, length - 2, &tables);
        } else if (marker == 0xDB) {
            mirt__jpeg_quantizers(next + 4, length - 2, &quantizers);
        } else if (marker == 0xDA) {
            if (!mirt__jpeg_scan_known(next, length, progressive, tables))
                status = mirt__fail(MIRT_E_FORMAT, "damaged: a scan without its tables");
            else if (++scans > most_scans)
                status =
                    mirt__fail(MIRT_E_FORMAT, "a JPEG with more than %d scans, which would only take time", most_scans);
        } else if (frame) {
            if (at + 10 > size) break;
            progressive = marker == 0xC2;
            status = out->height ? mirt__fail(MIRT_E_FORMAT, "a JPEG with several frames")
                                 : mirt__jpeg_frame(next, length, out);
            for (int i = 0; status == MIRT_OK && i < next[9]; i++) named |= 1u << next[12 + 3 * i] % 16;
        }
        if (status != MIRT_OK) return status;
        at += 2 + length;
    }
    if (!scans) return mirt__image_short_header("JPEG", size);
    return mirt__fail(MIRT_E_FORMAT, "a truncated JPEG: its %zu bytes end before its pixels",
                      size);
}

/* Checks every chunk that stb_image would read, up to IEND. It stores lengths as int, continues in the middle of a
   chunk if one is negative, may read chunks beyond the end of the file, reports unknown ones through memory that all
   threads share, and ignores checksums. */
static mirt_status mirt__png_chunks(const unsigned char *bytes, size_t size) {
    static const char *const known[] = {"IHDR", "PLTE", "IDAT", "IEND"};
    if (size > INT32_MAX)
        return mirt__fail(MIRT_E_FORMAT, "a PNG of %zu bytes: at most %d can be decoded", size,
                          INT32_MAX);
    for (size_t at = 8, length; at + 12 <= size; at += 12 + length) {
        const unsigned char *type = bytes + at + 4;
        int k = 0;
        length = (size_t)mirt__image_big(bytes + at, 4);
        if (length > INT32_MAX)
            return mirt__fail(MIRT_E_FORMAT, "damaged: a PNG whose chunk at byte %zu claims %zu bytes",
                              at, length);
        while (k < MIRT__COUNT(known) && memcmp(type, known[k], 4) != 0) k++;
        if (k == MIRT__COUNT(known) && !(type[0] & 0x20))
            return mirt__fail(MIRT_E_FORMAT, "damaged: a PNG with an unknown chunk at byte %zu",
                              at);
        if (length > size - at - 12)
            return mirt__fail(MIRT_E_FORMAT, "truncated: its %zu bytes end in the chunk at byte %zu",
                              size, at);
        if (k < MIRT__COUNT(known) && mirt__crc32(0, type, length + 4) != mirt__image_big(type + 4 + length, 4))
            return mirt__fail(MIRT_E_FORMAT, "damaged: a PNG whose chunk %s at byte %zu has a wrong checksum",
                              known[k], at);
        if (k == 3) return MIRT_OK;
    }
    return mirt__fail(MIRT_E_FORMAT, "truncated: its %zu bytes end before its chunk IEND", size);
}

static mirt_status mirt__png_header(const unsigned char *bytes, size_t size, mirt__image_header *out) {
    static const unsigned char channels[7] = {1, 0, 3, 4, 2, 0, 4}; /* a palette may have alpha */
    out->width = mirt__image_big(bytes + 16, 4);
    out->height = mirt__image_big(bytes + 20, 4);
    if (memcmp(bytes + 12, "IHDR", 4) != 0 || bytes[25] > 6 || channels[bytes[25]] == 0 || bytes[24] > 16 ||
        out->width > INT32_MAX || out->height > INT32_MAX)
        return mirt__fail(MIRT_E_FORMAT, "damaged: a PNG with an invalid header");
    out->deep = bytes[24] == 16;
    uint64_t pixels = (uint64_t)out->width * (uint64_t)out->height, most = UINT64_MAX / 64;
    out->memory = pixels > most ? UINT64_MAX : pixels * channels[bytes[25]] * (out->deep ? 4 : 2) + 4 * pixels + size;
    return mirt__png_chunks(bytes, size);
}

static mirt_status mirt__bmp_header(const unsigned char *bytes, size_t size, mirt__image_header *out) {
    (void)size;
    const int each = mirt__image_little(bytes + 14, 4) == 12 ? 2 : 4; /* bytes of a side */
    out->width = (int32_t)mirt__image_little(bytes + 18, each);
    out->height = (int32_t)mirt__image_little(bytes + 18 + each, each);
    if (out->height < 0) out->height = -out->height; /* negative heights store rows from top to bottom */
    if (out->width < 0) return mirt__fail(MIRT_E_FORMAT, "damaged: a BMP of width %lld", (long long)out->width);
    out->memory = 8 * (uint64_t)out->width * (uint64_t)out->height;
    return MIRT_OK;
}

static mirt_status mirt__gif_header(const unsigned char *bytes, size_t size, mirt__image_header *out) {
    (void)size;
    out->width = mirt__image_little(bytes + 6, 2);
    out->height = mirt__image_little(bytes + 8, 2);
    out->memory = 13 * (uint64_t)out->width * (uint64_t)out->height;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__image_read_header(const unsigned char *bytes, size_t size, mirt__image_header *out) {
    static const struct {
        mirt__image_format format;
        const char *name, *signature;
        size_t length, least; /* bytes of the signature, of the header */
        mirt_status (*read)(const unsigned char *bytes, size_t size, mirt__image_header *out);
    } kinds[] = {{MIRT__FORMAT_JPEG, "JPEG", "\xFF\xD8\xFF", 3, 3, mirt__jpeg_header},
                 {MIRT__FORMAT_PNG, "PNG", "\x89PNG\r\n\x1A\n", 8, 33, mirt__png_header},
                 {MIRT__FORMAT_GIF, "GIF", "GIF87a", 6, 13, mirt__gif_header},
                 {MIRT__FORMAT_GIF, "GIF", "GIF89a", 6, 13, mirt__gif_header},
                 {MIRT__FORMAT_BMP, "BMP", "BM", 2, 30, mirt__bmp_header}};
    memset(out, 0, sizeof *out);
    mirt_status status = MIRT_OK;
    for (int i = 0; i < MIRT__COUNT(kinds); i++) {
        if (size < kinds[i].length || memcmp(bytes, kinds[i].signature, kinds[i].length) != 0) continue;
        out->format = kinds[i].format;
        if (size < kinds[i].least) return mirt__image_short_header(kinds[i].name, size);
        status = kinds[i].read(bytes, size, out);
    }
    if (status == MIRT_OK && out->format != MIRT__FORMAT_NONE && (out->width == 0 || out->height == 0))
        status = mirt__fail(MIRT_E_FORMAT, "%lld x %lld pixels: an empty image", (long long)out->width,
                            (long long)out->height);
    return status;
}

MIRT__LIB mirt_status mirt__image_check(const mirt__image_header *header, size_t size, const mirt_decode_desc *desc) {
    /* A large file compressed more than 64 to 1 is not a photograph. */
    const uint64_t harmless = (uint64_t)160 << 20, ratio = 64;
    int64_t side = desc->max_side ? desc->max_side : 16384;
    int64_t pixels = desc->max_pixels ? desc->max_pixels : (int64_t)1 << 26;
    if (header->width > side || header->height > side)
        return mirt__fail(MIRT_E_FORMAT, "%lld x %lld pixels: a side is longer than %lld (max_side)",
                          (long long)header->width, (long long)header->height, (long long)side);
    if (header->height && header->width > pixels / header->height)
        return mirt__fail(MIRT_E_FORMAT, "%lld x %lld pixels: more than %lld (max_pixels)", (long long)header->width,
                          (long long)header->height, (long long)pixels);
    if (header->memory > harmless && header->memory / ratio > size)
        return mirt__fail(
            MIRT_E_FORMAT,
            "%lld x %lld pixels in a file of %zu bytes: it would take %llu MiB to decode, more than %d times its size",
            (long long)header->width, (long long)header->height, size,
            (unsigned long long)(header->memory >> 20), (int)ratio);
    return MIRT_OK;
}
