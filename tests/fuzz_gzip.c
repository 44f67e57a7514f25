/* Fuzzes gzip files. The first byte chooses whether checksum and length at the end are corrected, and whether the
   content is bytes or an IDX file; the rest is the file. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "fuzz_main.h"

enum { UNSEALED = 1, IMAGES = 2, LABELS = 4, MANY = 8 };

static uint32_t crc32_of(uint32_t crc, const uint8_t *p, size_t size) {
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

typedef struct unpacked {
    mirt_status status;
    uint64_t bytes;
    uint32_t crc;
    unsigned long long at; /* where the file is wrong */
    uint8_t first[2048];   /* bytes */
} unpacked;

/* Unpacks the file in pieces; `most`: bytes after which it is enough. */
static unpacked unpack(const char *path, size_t piece, uint64_t most) {
    static mirt__bytes bytes;
    static uint8_t out[4096];
    unpacked u;
    memset(&u, 0, sizeof u);
    size_t got = 1;
    u.status = mirt__file_open(path, &bytes.fd, &bytes.file_size);
    FUZZ_CHECK(u.status == MIRT_OK);
    mirt__bytes_rewind(&bytes);
    mirt__gunzip *z = mirt__gunzip_create(&bytes);
    u.status = z ? mirt__gunzip_begin(z) : MIRT_E_NOMEM;
    while (u.status == MIRT_OK && got && u.bytes < most) {
        u.status = mirt__gunzip_read(z, out, piece, &got);
        FUZZ_CHECK(got <= piece);
        u.crc = crc32_of(u.crc, out, got);
        for (size_t i = 0; i < got && u.bytes + i < sizeof u.first; i++) u.first[u.bytes + i] = out[i];
        u.bytes += got;
        if (u.status == MIRT_OK && got < piece) break;
    }
    const char *place = u.status == MIRT_OK ? NULL : strstr(mirt_last_error(), "at byte ");
    if (place) u.at = strtoull(place + 8, NULL, 10);
    mirt__gunzip_destroy(z);
    mirt__file_close(&bytes.fd);
    return u;
}

/* Gives the file the checksum and the length that its content has. Read byte by byte, the content is known up to its
   end even when the end is wrong. */
static void seal(const char *path, uint8_t *file, size_t size) {
    for (int part = 0; part < 2; part++) {
        const unpacked u = unpack(path, 1, 1 << 16);
        const char *why = mirt_last_error();
        if (u.status == MIRT_OK || u.at > size || u.at < 8) return;
        uint8_t *end = file + u.at;
        if (!strstr(why, "checksum") && !strstr(why, "length at the end")) return;
        for (int i = 0; i < 4; i++) {
            end[i - 8] = (uint8_t)(u.crc >> 8 * i);
            end[i - 4] = (uint8_t)(u.bytes >> 8 * i);
        }
        fuzz_put(path, file, size);
    }
}

static void read_idx(const char *path, bool packed, bool labels) {
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 7, 8};
    char other[512];
    mirt__batch batch;
    if (labels) fuzz_put(fuzz_path("images", other), images, sizeof images);
    mirt_dataset *dataset = labels ? mirt_idx(other, path) : mirt_idx(path, NULL);
    int64_t sum = 0, rows = 0;
    for (int pass = 0; dataset && pass < 2; pass++) {
        mirt_status status = mirt__dataset_begin(dataset, 0, pass);
        for (rows = sum = 0; status == MIRT_OK && rows < 300; rows++) {
            status = mirt__dataset_next(dataset, &batch);
            if (status != MIRT_OK || !batch.rows) break;
            sum += *(const uint8_t *)batch.field[0];
        }
        FUZZ_PLANT(packed && !labels && status == MIRT_OK && !batch.rows && rows > 1 && sum % 251 == 77);
    }
    mirt_dataset_destroy(dataset);
}

#ifdef FUZZER
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed);

/* Samples fill what there is of content after a header of four or two words. */
static size_t make_idx(uint8_t *content, size_t size, bool labels, unsigned int seed) {
    const size_t header = labels ? 8 : 16;
    if (size <= header) return size;
    const size_t count = 1 + seed % 5, wide = labels ? 1 : (size - header) / count;
    const size_t dim[] = {labels ? size - header : count, 1, wide};
    if (wide == 0) return size;
    memset(content, 0, header);
    content[2] = 8;
    content[3] = labels ? 1 : 3;
    for (size_t i = 0; i < header / 4 - 1; i++) {
        content[6 + 4 * i] = (uint8_t)(dim[i] >> 8);
        content[7 + 4 * i] = (uint8_t)dim[i];
    }
    return header + (labels ? dim[0] : count * wide);
}

/* One time in three the content changes instead of the packed bytes, and is stored without packing. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed) {
    static const uint8_t head[] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 1};
    static uint8_t content[sizeof((unpacked *)NULL)->first];
    char path[512];
    if (size < 2 || seed % 3 || most < sizeof content + 64) return LLVMFuzzerMutate(data, size, most);
    fuzz_put(fuzz_path("mutated.gz", path), data + 1, size - 1);
    const unpacked u = unpack(path, 1, sizeof content);
    size_t count = u.bytes < sizeof content ? (size_t)u.bytes : sizeof content;
    memcpy(content, u.first, count);
    count = LLVMFuzzerMutate(content, count, sizeof content);
    if (seed & 8 && data[0] & (IMAGES | LABELS)) count = make_idx(content, count, data[0] & LABELS, seed >> 8);
    memcpy(data + 1, head, sizeof head);
    uint8_t *to = data + 1 + sizeof head;
    for (int i = 0; i < 2; i++) {
        to[i] = (uint8_t)(count >> 8 * i);
        to[2 + i] = (uint8_t)~to[i];
    }
    memcpy(to + 4, content, count);
    memset(to + 4 + count, 0, 8); /* LLVMFuzzerTestOneInput seals it */
    return (size_t)(to + 4 + count + 8 - data);
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t file[1 << 16];
    char path[512];
    fuzz_input in = {data, data + size};
    const int flags = fuzz_byte(&in);
    size = (size_t)(in.end - in.at);
    if (size > sizeof file) return 0;
    fuzz_bytes(&in, file, size);
    fuzz_put(fuzz_path("file.gz", path), file, size);
    if (!(flags & UNSEALED)) seal(path, file, size);
    if (flags & (IMAGES | LABELS)) read_idx(path, size > 1 && file[0] == 0x1F && file[1] == 0x8B, flags & LABELS);
    else unpack(path, flags & MANY ? 4096 : 7, 1 << 20);
    return 0;
}
