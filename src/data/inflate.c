/* Unpacks gzip (RFC 1952, deflate: RFC 1951) as a stream and verifies checksum and length. Errors give the offset in
   the compressed file; the caller prefixes the file's name. */

#include "../base/digest.h"
#include "../base/file.h"
#include "data.h"

#define MIRT__WINDOW 32768
#define MIRT__FAST_BITS 10

MIRT__LIB void mirt__bytes_rewind(mirt__bytes *bytes) {
    bytes->end = 0;
    bytes->at = 0;
    bytes->size = 0;
}

MIRT__LIB mirt_status mirt__bytes_fill(mirt__bytes *bytes) {
    const int64_t got = mirt__file_read_at(bytes->fd, bytes->end, bytes->data, sizeof bytes->data);
    bytes->at = 0;
    bytes->size = got < 0 ? 0 : (size_t)got;
    if (got < 0)
        return mirt__fail(MIRT_E_IO, "cannot read at byte %llu: %s", (unsigned long long)bytes->end,
                          strerror(errno));
    bytes->end += bytes->size;
    return MIRT_OK;
}

/* A Huffman code: short words are decoded by table, long ones by counting, as canonical codes of one length are
   consecutive numbers. */
typedef struct mirt__huffman {
    uint16_t fast[1 << MIRT__FAST_BITS]; /* next bits -> symbol * 16 + length, or 0 */
    uint16_t count[16];                  /* number of words of each length */
    uint16_t symbol[288];                /* symbols in order of their words */
} mirt__huffman;

typedef enum mirt__gunzip_mode {
    MIRT__GUNZIP_BLOCK, MIRT__GUNZIP_STORED, MIRT__GUNZIP_CODES, MIRT__GUNZIP_TRAILER, MIRT__GUNZIP_END
} mirt__gunzip_mode;

struct mirt__gunzip {
    mirt__bytes *bytes;
    uint64_t bits; /* the next bit_count bits of the file, lowest first; higher bits are undefined */
    int bit_count;
    mirt__gunzip_mode mode;
    mirt_status status;   /* of the first failure: what is read after it is 0 */
    bool last;            /* the current block is the last */
    uint32_t stored_left; /* bytes of a stored block */
    int copy_left, copy_back;
    uint32_t crc;   /* of the windows before this one */
    uint64_t total; /* bytes unpacked */
    mirt__huffman lengths, distances;
    unsigned char window[MIRT__WINDOW]; /* byte i of the output is at i % MIRT__WINDOW */
};

MIRT__LIB mirt__gunzip *mirt__gunzip_create(mirt__bytes *bytes) {
    mirt__gunzip *z = (mirt__gunzip *)mirt__calloc(1, sizeof(mirt__gunzip));
    if (!z) return NULL;
    z->bytes = bytes;
    return z;
}

MIRT__LIB void mirt__gunzip_destroy(mirt__gunzip *z) {
    mirt__free(z);
}

/* Keeps the first failure. */
static void mirt__gunzip_fail(mirt__gunzip *z, const char *what) {
    uint64_t unread = z->bytes->size - z->bytes->at + (uint64_t)(z->bit_count / 8);
    if (z->status == MIRT_OK)
        z->status = mirt__fail(MIRT_E_FORMAT, "damaged gzip data at byte %llu: %s",
                               (unsigned long long)(z->bytes->end - unread), what);
}

/* Fills the bits up to 56 or more, or to the end of the file. */
static void mirt__gunzip_refill(mirt__gunzip *z) {
    mirt__bytes *bytes = z->bytes;
    if (bytes->size - bytes->at >= 8) {
        const unsigned char *p = bytes->data + bytes->at;
        uint64_t word = (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 |
                        (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
        int whole = (63 - z->bit_count) >> 3;
        z->bits |= word << z->bit_count;
        z->bit_count += whole * 8;
        bytes->at += (size_t)whole;
        return;
    }
    /* Byte by byte across the buffer's end, after clearing undefined bits. */
    z->bits &= ((uint64_t)1 << z->bit_count) - 1;
    while (z->bit_count <= 55 && z->status == MIRT_OK) {
        if (bytes->at == bytes->size) z->status = mirt__bytes_fill(bytes);
        if (bytes->size == 0) return;
        z->bits |= (uint64_t)bytes->data[bytes->at++] << z->bit_count;
        z->bit_count += 8;
    }
}

static void mirt__gunzip_drop(mirt__gunzip *z, int count) {
    z->bits >>= count;
    z->bit_count -= count;
}

/* The next `count` <= 32 bits. */
static uint32_t mirt__gunzip_take(mirt__gunzip *z, int count) {
    if (z->bit_count < count) mirt__gunzip_refill(z);
    if (z->bit_count < count) mirt__gunzip_fail(z, "the file ends too early");
    if (z->status != MIRT_OK) return 0;
    const uint32_t taken = (uint32_t)(z->bits & (((uint64_t)1 << count) - 1));
    mirt__gunzip_drop(z, count);
    return taken;
}

/* False if the lengths are not a code: too many words, or too few, except for the single word that RFC 1951 allows. */
static bool mirt__huffman_build(mirt__huffman *h, const unsigned char *length, int symbols) {
    uint16_t next[16], offset[16];
    memset(h, 0, sizeof *h);
    for (int s = 0; s < symbols; s++) h->count[length[s]]++;
    bool none = h->count[0] == symbols;
    h->count[0] = 0;
    int left = 1, longest = 0;
    uint16_t code = 0, before = 0;
    for (int l = 1; l <= 15; l++) {
        left = left * 2 - h->count[l];
        if (left < 0) return false;
        if (h->count[l]) longest = l;
        code = (uint16_t)((code + h->count[l - 1]) << 1);
        next[l] = code;
        offset[l] = before;
        before = (uint16_t)(before + h->count[l]);
    }
    if (left > 0 && !none && longest != 1) return false;
    for (int s = 0; s < symbols; s++) {
        int l = length[s];
        if (l == 0) continue;
        h->symbol[offset[l]++] = (uint16_t)s;
        unsigned word = next[l]++, reversed = 0;
        if (l > MIRT__FAST_BITS) continue;
        for (int bit = 0; bit < l; bit++) reversed |= (word >> bit & 1u) << (l - 1 - bit);
        for (unsigned i = reversed; i < 1u << MIRT__FAST_BITS; i += 1u << l) h->fast[i] = (uint16_t)(s << 4 | l);
    }
    return true;
}

/* The first symbol in `bits`, and its length; -1 if no word matches. */
static int mirt__huffman_find(const mirt__huffman *h, uint64_t bits, int *length) {
    unsigned entry = h->fast[bits & ((1u << MIRT__FAST_BITS) - 1)];
    if (entry) {
        *length = (int)(entry & 15);
        return (int)(entry >> 4);
    }
    int code = 0, first = 0, index = 0;
    for (int l = 1; l <= 15; l++) {
        code |= (int)(bits & 1);
        bits >>= 1;
        int count = h->count[l];
        if (code - count < first) {
            *length = l;
            return h->symbol[index + (code - first)];
        }
        index += count;
        first = (first + count) << 1;
        code <<= 1;
    }
    *length = 0;
    return -1;
}

static int mirt__gunzip_symbol(mirt__gunzip *z, const mirt__huffman *h) {
    int length;
    if (z->bit_count < 15) mirt__gunzip_refill(z);
    const int symbol = mirt__huffman_find(h, z->bits, &length);
    if (length > z->bit_count || (symbol < 0 && z->bit_count < 15)) mirt__gunzip_fail(z, "the file ends too early");
    else if (symbol < 0) mirt__gunzip_fail(z, "a code word that does not exist");
    if (z->status != MIRT_OK) return 0;
    mirt__gunzip_drop(z, length);
    return symbol;
}

static void mirt__gunzip_fixed_codes(mirt__gunzip *z) {
    unsigned char length[288];
    for (int i = 0; i < 288; i++) length[i] = (unsigned char)(i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8);
    mirt__huffman_build(&z->lengths, length, 288);
    memset(length, 5, 32);
    mirt__huffman_build(&z->distances, length, 32);
}

/* Reads `wanted` code lengths, which are compressed with the code in z->lengths. */
static void mirt__gunzip_code_lengths(mirt__gunzip *z, unsigned char *length, int wanted) {
    for (int n = 0; n < wanted && z->status == MIRT_OK;) {
        const int symbol = mirt__gunzip_symbol(z, &z->lengths);
        if (symbol < 16) {
            length[n++] = (unsigned char)symbol;
            continue;
        }
        const int repeat = (int)mirt__gunzip_take(z, symbol == 16 ? 2 : symbol == 17 ? 3 : 7) + (symbol == 18 ? 11 : 3);
        if (symbol == 16 && n == 0) mirt__gunzip_fail(z, "a repeated code length with none before it");
        if (repeat > wanted - n) mirt__gunzip_fail(z, "too many code lengths");
        if (z->status != MIRT_OK) return;
        memset(length + n, symbol == 16 ? length[n - 1] : 0, (size_t)repeat);
        n += repeat;
    }
}

static void mirt__gunzip_dynamic_codes(mirt__gunzip *z) {
    static const unsigned char order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    unsigned char length[286 + 30];
    const int literals = (int)mirt__gunzip_take(z, 5) + 257, distances = (int)mirt__gunzip_take(z, 5) + 1,
              codes = (int)mirt__gunzip_take(z, 4) + 4;
    if (literals > 286 || distances > 30) mirt__gunzip_fail(z, "too many code words");
    memset(length, 0, sizeof length);
    for (int i = 0; i < codes; i++) length[order[i]] = (unsigned char)mirt__gunzip_take(z, 3);
    if (!mirt__huffman_build(&z->lengths, length, 19)) mirt__gunzip_fail(z, "code lengths that make no code");
    if (z->status == MIRT_OK) mirt__gunzip_code_lengths(z, length, literals + distances);
    if (length[256] == 0) mirt__gunzip_fail(z, "a block without an end");
    if (z->status == MIRT_OK && (!mirt__huffman_build(&z->lengths, length, literals) ||
                                 !mirt__huffman_build(&z->distances, length + literals, distances)))
        mirt__gunzip_fail(z, "code lengths that make no code");
}

/* Stored blocks start at a byte boundary. */
static void mirt__gunzip_stored_header(mirt__gunzip *z) {
    mirt__gunzip_drop(z, z->bit_count & 7);
    z->stored_left = mirt__gunzip_take(z, 16);
    if ((z->stored_left ^ mirt__gunzip_take(z, 16)) != 0xFFFF)
        mirt__gunzip_fail(z, "a stored block whose two lengths differ");
}

static void mirt__gunzip_block(mirt__gunzip *z) {
    if (z->last) {
        z->mode = MIRT__GUNZIP_TRAILER;
        return;
    }
    const uint32_t head = mirt__gunzip_take(z, 3);
    if (z->status != MIRT_OK) return;
    z->last = head & 1;
    z->mode = head >> 1 ? MIRT__GUNZIP_CODES : MIRT__GUNZIP_STORED;
    switch (head >> 1) {
    case 0: mirt__gunzip_stored_header(z); break;
    case 1: mirt__gunzip_fixed_codes(z); break;
    case 2: mirt__gunzip_dynamic_codes(z); break;
    default: mirt__gunzip_fail(z, "an unknown kind of block");
    }
}

static size_t mirt__gunzip_stored(mirt__gunzip *z, unsigned char *out, size_t size) {
    size_t n = 0;
    while (n < size && z->stored_left > 0) {
        const unsigned char byte = (unsigned char)mirt__gunzip_take(z, 8);
        if (z->status != MIRT_OK) return n;
        out[n++] = byte;
        z->window[z->total++ % MIRT__WINDOW] = byte;
        z->stored_left--;
    }
    if (z->stored_left == 0) z->mode = MIRT__GUNZIP_BLOCK;
    return n;
}

/* Reads length and distance of a repetition, after its length symbol. */
static void mirt__gunzip_match(mirt__gunzip *z, int symbol) {
    static const uint16_t length_base[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                             31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const unsigned char length_bits[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                  2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t distance_base[30] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                               33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                               1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    if (symbol > 285) {
        mirt__gunzip_fail(z, "an unknown length");
        return;
    }
    z->copy_left = length_base[symbol - 257] + (int)mirt__gunzip_take(z, length_bits[symbol - 257]);
    symbol = mirt__gunzip_symbol(z, &z->distances);
    if (symbol > 29) mirt__gunzip_fail(z, "an unknown distance");
    if (symbol > 29 || z->status != MIRT_OK) return;
    z->copy_back = distance_base[symbol] + (int)mirt__gunzip_take(z, symbol < 4 ? 0 : symbol / 2 - 1);
    if ((uint64_t)z->copy_back > z->total) mirt__gunzip_fail(z, "a repetition that begins before the start");
}

static size_t mirt__gunzip_codes(mirt__gunzip *z, unsigned char *out, size_t size) {
    size_t n = 0;
    while (n < size) {
        uint64_t total = z->total;
        while (z->copy_left > 0 && n < size) {
            unsigned char byte = z->window[(total - (uint64_t)z->copy_back) % MIRT__WINDOW];
            z->window[total++ % MIRT__WINDOW] = byte;
            out[n++] = byte;
            z->copy_left--;
        }
        z->total = total;
        if (n == size) break;
        const int symbol = mirt__gunzip_symbol(z, &z->lengths);
        if (symbol > 256) mirt__gunzip_match(z, symbol);
        if (z->status != MIRT_OK) break;
        if (symbol < 256) {
            z->window[z->total++ % MIRT__WINDOW] = (unsigned char)symbol;
            out[n++] = (unsigned char)symbol;
        } else if (symbol == 256) {
            z->mode = MIRT__GUNZIP_BLOCK;
            break;
        }
    }
    return n;
}

static void mirt__gunzip_trailer(mirt__gunzip *z) {
    mirt__gunzip_drop(z, z->bit_count & 7);
    const uint32_t crc = mirt__gunzip_take(z, 32), size = mirt__gunzip_take(z, 32);
    if (crc != mirt__crc32(z->crc, z->window, (size_t)(z->total % MIRT__WINDOW)))
        mirt__gunzip_fail(z, "the checksum is wrong");
    if (size != (uint32_t)z->total) mirt__gunzip_fail(z, "the length at the end is wrong");
    mirt__gunzip_refill(z);
    if (z->bit_count > 0) mirt__gunzip_fail(z, "more data follow its end");
    z->mode = MIRT__GUNZIP_END;
}

MIRT__LIB mirt_status mirt__gunzip_read(mirt__gunzip *z, unsigned char *out, size_t size, size_t *got) {
    *got = 0;
    while (*got < size && z->mode != MIRT__GUNZIP_END && z->status == MIRT_OK) {
        const size_t left = size - *got, room = MIRT__WINDOW - (size_t)(z->total % MIRT__WINDOW),
                     most = left < room ? left : room;
        size_t made = 0;
        switch (z->mode) {
        case MIRT__GUNZIP_BLOCK: mirt__gunzip_block(z); break;
        case MIRT__GUNZIP_STORED: made = mirt__gunzip_stored(z, out + *got, most); break;
        case MIRT__GUNZIP_CODES: made = mirt__gunzip_codes(z, out + *got, most); break;
        default: mirt__gunzip_trailer(z);
        }
        *got += made;
        if (made == room) z->crc = mirt__crc32(z->crc, z->window, MIRT__WINDOW);
    }
    return z->status;
}

/* Skips `count` bytes, or up to and including a zero byte if count is negative. */
static void mirt__gunzip_skip(mirt__gunzip *z, int64_t count) {
    for (uint32_t byte = 1; (count < 0 ? byte != 0 : count > 0) && z->status == MIRT_OK; count -= count > 0)
        byte = mirt__gunzip_take(z, 8);
}

MIRT__LIB mirt_status mirt__gunzip_begin(mirt__gunzip *z) {
    const uint32_t header_check = 2, extra = 4, name = 8, comment = 16;
    z->bits = 0;
    z->bit_count = 0;
    z->mode = MIRT__GUNZIP_BLOCK;
    z->status = MIRT_OK;
    z->last = false;
    z->copy_left = 0;
    z->crc = 0;
    z->total = 0;
    if (mirt__gunzip_take(z, 24) != 0x088B1F)
        mirt__gunzip_fail(z, "not gzip, or compressed with a method other than deflate");
    const uint32_t flags = mirt__gunzip_take(z, 8);
    if (flags & 0xE0) mirt__gunzip_fail(z, "unknown flags");
    mirt__gunzip_skip(z, 6); /* time, extra flags, operating system */
    if (flags & extra) mirt__gunzip_skip(z, mirt__gunzip_take(z, 16));
    if (flags & name) mirt__gunzip_skip(z, -1);
    if (flags & comment) mirt__gunzip_skip(z, -1);
    if (flags & header_check) mirt__gunzip_skip(z, 2);
    return z->status;
}

#undef MIRT__WINDOW
#undef MIRT__FAST_BITS
