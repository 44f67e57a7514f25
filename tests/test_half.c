/* The primitives of bfloat16 products against plain C. */
#include "../mirrortrain.h"
#include "../src/kernels/simd.c"
#include "tap.h"

#include "bfloat16.h"

/* To nearest, ties to even, by the definition: between the two neighbors of 8 significant bits. */
static float rounded(float x) {
    uint32_t bits;
    float below, above;
    if (x != x || x - x != 0.0f) return x;
    memcpy(&bits, &x, 4);
    const uint32_t low = bits & 0xffff0000u, high = low + 0x10000u;
    memcpy(&below, &low, 4);
    memcpy(&above, &high, 4);
    if (above - above != 0.0f) return fabs((double)x) < 3.3961775292304957e38 ? below : above;
    const double down = fabs((double)x - below), up = fabs((double)above - x);
    return down < up || (down == up && (low & 0x10000u) == 0) ? below : above;
}
static uint32_t state = 1;
static float number(void) {
    state = state * 1664525u + 1013904223u;
    return (float)(int32_t)state * (1.0f / 1073741824.0f);
}
static void fill(float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] = number();
}

static void check_round(const mirt__kernels *table, const mirt__simd *simd) {
    static const float special[] = {0.0f,          -0.0f,       1.0f,        1.00390625f, 1.01171875f, -1.00390625f,
                                    3.3895314e38f, 3.39e38f,    3.4e38f,     -3.4e38f,    INFINITY,    -INFINITY,
                                    1e-38f,        1.00390637f, 1.00390613f, 65535.0f};
    float x[77], y[77];
    int wrong = 0;
    for (int count = 1; count < 77; count++) {
        for (int i = 0; i < 77; i++)
            x[i] = y[i] = i % 3 == 0 ? special[(i / 3 + count) % MIRT__COUNT(special)] : number() * 1e3f;
        simd->round(y, count);
        for (int i = 0; i < 77; i++) wrong += y[i] != (i < count ? rounded(x[i]) : x[i]);
    }
    uint32_t nan[4] = {0x7fffffffu, 0xffffffffu, 0x7f800001u, 0xff800001u};
    memcpy(y, nan, sizeof nan);
    simd->round(y, 4);
    ok(wrong == 0 && y[0] != y[0] && y[1] != y[1] && y[2] != y[2] && y[3] != y[3], "%s rounds to nearest even",
       table->name);
}

static uint16_t half_of(const float *words, int64_t i) {
    uint16_t half;
    memcpy(&half, (const char *)words + 2 * i, 2);
    return half;
}
/* Panels of k x columns from rows, or from columns, of b. */
static void check_panels(const mirt__simd *simd) {
    static const int64_t ks[] = {1, 2, 3, 16, 31, 63, 64, 65, 130}, columns[] = {1, 15, 16, 17, 33, 63, 64};
    static float b[140 * 140], panel[70 * MIRT__PANEL];
    const mirt__words *words = simd->words;
    int wrong[2] = {0, 0};
    fill(b, MIRT__COUNT(b));
    for (int i = 0; i < MIRT__COUNT(ks); i++) {
        for (int j = 0; j < MIRT__COUNT(columns); j++) {
            const int64_t filled = mirt__parts(columns[j], simd->lanes) * simd->lanes;
            for (int t = 0; t < 2; t++) {
                memset(panel, 0xff, sizeof panel);
                (t ? words->transpose : words->copy_rows)(panel, b, 140, ks[i], columns[j]);
                for (int64_t p = 0; p < (ks[i] + 1) / 2 * 2; p++) {
                    for (int64_t c = 0; c < (t ? columns[j] : filled); c++) {
                        const float want =
                            p < ks[i] && c < columns[j] ? rounded(t ? b[c * 140 + p] : b[p * 140 + c]) : 0.0f;
                        wrong[t] += half_to_float(half_of(panel, (p / 2 * MIRT__PANEL + c) * 2 + p % 2)) != want;
                    }
                }
            }
        }
    }
    ok(wrong[0] == 0, "words of rows");
    ok(wrong[1] == 0, "words of columns");
}

/* Whether each number of a tile has the bits that it has in a tile of one row and one vector. */
static bool same_as_single(const mirt__simd *simd, const mirt__tile *tile, int rows, int vectors, const float *c,
                           float *alone) {
    for (int i = 0; i < rows; i++) {
        for (int v = 0; v < vectors; v++) {
            float *row = alone + i * 64;
            mirt__tile single = *tile;
            single.a = tile->a + i;
            single.c = &row;
            single.column = v * simd->lanes;
            single.b += v * simd->lanes;
            simd->words->tile[0][0](&single);
        }
    }
    return memcmp(c, alone, (size_t)rows * 64 * sizeof *c) == 0;
}
/* All heights and widths, two runs, from zero and on top of what is there. */
static void check_tiles(const mirt__simd *simd) {
    static float a[14 * 300], b[150 * 64], c[14 * 64], packed[14 * 150], panel[150 * MIRT__PANEL];
    const mirt__words *words = simd->words;
    double worst = 0.0;
    bool same = true;
    for (int kind = 0; kind < 3; kind++) {
        const int wide = simd->lanes << kind;
        for (int rows = 1; rows <= MIRT__TILE_ROWS && words->tile[kind][rows - 1]; rows++) {
            for (int fresh = 0; fresh < 2; fresh++) {
                fill(a, MIRT__COUNT(a));
                fill(b, MIRT__COUNT(b));
                fill(c, MIRT__COUNT(c));
                static float before[14 * 64], alone[14 * 64];
                memcpy(before, c, sizeof c);
                mirt__tile tile;
                memset(&tile, 0, sizeof tile);
                const mirt__run runs[2] = {{3, 0, 20}, {40, 0, 55}};
                mirt__reader reader;
                memset(&reader, 0, sizeof reader);
                reader.data = a;
                const mirt__source source = mirt__source_of(&reader, NULL);
                for (int i = 0; i < 14; i++) words->read_words(packed + i * 150, &source, i * 300, 300, 1);
                words->copy_rows(panel, b, 64, 150, 64);
                const float *a_rows[14];
                float *c_rows[14];
                for (int i = 0; i < rows; i++) {
                    a_rows[i] = packed + i * 150;
                    c_rows[i] = c + i * 64;
                }
                tile.a = a_rows;
                tile.c = c_rows;
                tile.runs = runs;
                tile.run_count = 2;
                tile.a_step = 1;
                tile.b = panel;
                tile.b_row = MIRT__PANEL;
                tile.fresh = fresh != 0;
                words->tile[kind][rows - 1](&tile);
                memcpy(alone, before, sizeof alone);
                same &= same_as_single(simd, &tile, rows, 1 << kind, c, alone);
                for (int i = 0; i < 14; i++) {
                    for (int j = 0; j < 64; j++) {
                        double sum = fresh && i < rows && j < wide ? 0.0 : before[i * 64 + j], size = 1.0;
                        for (int p = 0; i < rows && j < wide && p < 150; p++) {
                            const int at = p < 40 ? 6 + p : 80 + p - 40;
                            const double part = (double)rounded(a[i * 300 + at]) * rounded(b[p * 64 + j]);
                            sum += part;
                            size += fabs(part);
                        }
                        const double error = fabs(c[i * 64 + j] - sum) / size;
                        if (!(error <= worst)) worst = error;
                    }
                }
            }
        }
    }
    ok(worst < 1e-6, "tiles of words: %.1e", worst);
    ok(same, "a number has the same bits in all of them");
}

/* Every bit: one chain for each column, of both halves of each word. */
static void check_sums(const mirt__words *words) {
    static const int64_t columns[] = {1, 3, 4, 15, 16, 18, 33};
    static float x[2 * 40 * 64], b[40 * 64], sum[64];
    int wrong = 0;
    mirt__reader reader;
    memset(&reader, 0, sizeof reader);
    reader.data = x;
    const mirt__source source = mirt__source_of(&reader, NULL);
    fill(x, MIRT__COUNT(x));
    words->read_words(b, &source, 0, 128, 40);
    for (int i = 0; i < 2 * MIRT__COUNT(columns); i++) {
        const int64_t n = columns[i / 2];
        fill(sum, 64);
        float want[64];
        memcpy(want, sum, sizeof want);
        for (int64_t j = 0; j < n; j++) {
            if (i % 2) want[j] = 0.0f;
            for (int64_t p = 0; p < 80; p++) want[j] += rounded(x[p / 2 * 128 + 2 * j + p % 2]);
        }
        words->column_sum(sum, b, 64, 40, n, i % 2 != 0);
        wrong += memcmp(sum, want, sizeof sum) != 0;
    }
    ok(wrong == 0, "sums of words' columns");
}

static void check_reads(const mirt__words *words) {
    static const int64_t channels[] = {1, 2, 3, 5, 8, 11, 15, 16, 24, 31, 33, 96, 1023, 1024, 1026, 1500, 1501};
    static float x[40000], packed[20100];
    static uint16_t half[40000];
    int wrong[2] = {0, 0};
    fill(x, MIRT__COUNT(x));
    for (int i = 0; i < 40000; i++) half[i] = float_to_half(x[i]);
    for (int dtype = 0; dtype < 3; dtype++) {
        mirt__reader reader;
        memset(&reader, 0, sizeof reader);
        reader.data = dtype == 1 ? (const void *)half : (const void *)x;
        reader.dtype = dtype == 1 ? MIRT__BFLOAT16 : MIRT_FLOAT32;
        reader.affine = dtype == 2;
        reader.scale = 0.5f;
        reader.offset = 0.25f;
        const mirt__source source = mirt__source_of(&reader, NULL);
        for (int i = 0; i < MIRT__COUNT(channels); i++) {
            const int64_t n = channels[i], wide = (n + 1) / 2, pixels = n > 200 ? 7 : 43, first = 2 * n;
            memset(packed, 0xff, sizeof packed);
            words->read_words(packed, &source, first, n, pixels);
            for (int64_t p = 0; p < pixels; p++) {
                for (int64_t c = 0; c < 2 * wide; c++) {
                    const float from = c < n ? x[first + p * n + c] : 0.0f;
                    const float want = c < n ? rounded(dtype == 2 ? fmaf(from, 0.5f, 0.25f) : from) : 0.0f;
                    wrong[0] += half_to_float(half_of(packed, p * 2 * wide + c)) != want;
                }
            }
            wrong[0] += half_of(packed, pixels * 2 * wide) != 0xffff;
            for (int lonely = 0; lonely < 2; lonely++) {
                for (int part = 0; part < 2; part++) {
                    const int64_t skip = part ? n / 3 : 0, count = part ? n - n / 3 : n * pixels,
                                  each = part ? count : n, next = lonely ? -1 : 9 * n + skip;
                    memset(packed, 0xff, sizeof packed);
                    words->read_pairs(packed, &source, first + skip, next, n, each, count / each);
                    for (int64_t j = 0; j < 2 * count; j++) {
                        const float from = j % 2 == 0 ? x[first + skip + j / 2] : lonely ? 0.0f : x[next + j / 2];
                        const float want =
                            j % 2 && lonely ? 0.0f : rounded(dtype == 2 ? fmaf(from, 0.5f, 0.25f) : from);
                        wrong[1] += half_to_float(half_of(packed, j)) != want;
                    }
                    wrong[1] += half_of(packed, 2 * count) != 0xffff;
                }
            }
        }
    }
    ok(wrong[0] == 0, "words of neighboring channels");
    ok(wrong[1] == 0, "words of two pixels");
}

/* As the instructions round: those of x86 take what is smaller than the normal numbers for 0, those of arm64 only if
   the thread's control says so, which is not the case here. */
static float near(float x) {
#if defined(__x86_64__)
    if (fabsf(x) < 1.17549435e-38f) return 0.0f;
#endif
    return rounded(x);
}

/* Normalizations, gradients of them, and gates: as floats are read, which test_tiled_reads checks, then rounded. */
static void check_lazy_reads(const mirt__simd *simd) {
    static const int64_t channels[] = {2, 7, 8, 16, 24, 30, 32, 48, 96, 1030};
    static const mirt_activation_kind kinds[] = {MIRT_LINEAR, MIRT_RELU, MIRT_RELU6, MIRT_SILU};
    static uint16_t x[30000], z[30000];
    static float column[6][1030], floats[5 * 1030], want[12000], have[12000], gates[10 * 1030];
    int wrong[2] = {0, 0};
    for (int i = 0; i < 30000; i++) x[i] = float_to_half(10.0f * number());
    for (int i = 0; i < 30000; i++) z[i] = float_to_half(10.0f * number());
    for (int i = 0; i < 6; i++) fill(column[i], 1030);
    for (int i = 0; i < 1030; i++) column[1][i] *= column[1][i];
    fill(gates, MIRT__COUNT(gates));
    for (int i = 0; i < MIRT__COUNT(channels); i++) {
        for (int k = 0; k < 4 * 4; k++) {
            const int64_t n = channels[i], wide = (n + 1) / 2, pixels = 9, first = 2 * n;
            const mirt__scaling norm = {column[0], column[1], column[2], column[3], 1e-3f, kinds[k % 4]};
            const mirt__norm_back back = {norm, z, {k / 4 == 2 ? column[4] : NULL, column[5]}, 100.0};
            mirt__reader reader;
            memset(&reader, 0, sizeof reader);
            reader.data = x;
            reader.dtype = MIRT__BFLOAT16;
            reader.channels = n;
            reader.gate_pixels = 4;
            if (k / 4 == 0 || k / 4 == 3) reader.norm = &norm;
            else reader.back = &back;
            if (k / 4 == 3) reader.gate = gates;
            const mirt__source source = mirt__source_of(&reader, floats);
            simd->words->read_words(have, &source, first, n, pixels);
            simd->read(want, &source, first, pixels * n);
            for (int64_t p = 0; p < pixels; p++) {
                for (int64_t c = 0; c < 2 * wide; c++) {
                    wrong[0] +=
                        half_to_float(half_of(have, p * 2 * wide + c)) != (c < n ? near(want[p * n + c]) : 0.0f);
                }
            }
            for (int part = 0; part < 2; part++) {
                const int64_t skip = part ? n / 3 : 0, count = part ? n - n / 3 : n * 5, each = part ? count : n,
                              next = 10 * n + skip;
                simd->words->read_pairs(have, &source, first + skip, next, n, each, count / each);
                simd->read(want, &source, first + skip, count);
                simd->read(want + count, &source, next, count);
                for (int64_t j = 0; j < count; j++) {
                    wrong[1] += half_to_float(half_of(have, 2 * j)) != near(want[j]);
                    wrong[1] += half_to_float(half_of(have, 2 * j + 1)) != near(want[count + j]);
                }
                simd->words->read_pairs(have, &source, first + skip, -1, n, each, count / each);
                for (int64_t j = 0; j < 2 * count; j++) {
                    wrong[1] += half_to_float(half_of(have, j)) != (j % 2 ? 0.0f : near(want[j / 2]));
                }
            }
        }
    }
    /* Some channels of several pixels. */
    for (int lazy = 0; lazy < 2; lazy++) {
        const mirt__scaling norm = {column[0], column[1], column[2], column[3], 1e-3f, lazy ? MIRT_RELU : MIRT_SILU};
        mirt__reader reader;
        memset(&reader, 0, sizeof reader);
        reader.data = x;
        reader.dtype = MIRT__BFLOAT16;
        reader.channels = 50;
        for (int plain = 0; plain < 2; plain++) {
            reader.norm = plain ? NULL : &norm;
            const mirt__source source = mirt__source_of(&reader, floats);
            simd->words->read_pairs(have, &source, 107, 1007, 50, 33, 4);
            for (int p = 0; p < 8; p++) simd->read(want + p * 33, &source, (p < 4 ? 107 : 807) + p * 50, 33);
            for (int j = 0; j < 4 * 33; j++) {
                wrong[1] += half_to_float(half_of(have, 2 * j)) != near(want[j]);
                wrong[1] += half_to_float(half_of(have, 2 * j + 1)) != near(want[4 * 33 + j]);
            }
        }
    }
    ok(wrong[0] == 0, "words of neighboring channels of lazy tensors");
    ok(wrong[1] == 0, "words of two pixels of lazy tensors");
}

#if !defined(MIRRORTRAIN_NO_SIMD) && defined(__x86_64__)
/* As AVX-512 finishes them, which test_tiled_reads checks: every bit. */
static void check_finish(const mirt__simd *simd) {
    enum { ROWS = 21, WIDE = 130 };
    static const int64_t columns[] = {64, 32, 33, 16, 15, 1, 50};
    static const mirt_activation_kind kinds[] = {MIRT_LINEAR, MIRT_RELU, MIRT_RELU6, MIRT_SILU};
    static float c[2][ROWS * 64], column[6][WIDE], sum[2][3 * WIDE], floats[6 * WIDE];
    static uint16_t add[2 * ROWS * WIDE], mask[2 * ROWS * WIDE], z[2 * ROWS * WIDE];
    uint16_t *y[2];
    int wrong = 0;
    for (int i = 0; i < 2; i++) {
        y[i] = (uint16_t *)mirt__aligned_alloc(2 * ROWS * 192 * sizeof(uint16_t));
        if (!y[i]) return;
    }
    for (int i = 0; i < 6; i++) fill(column[i], WIDE);
    for (int i = 0; i < WIDE; i++) column[1][i] *= column[1][i];
    for (int i = 0; i < 2 * ROWS * WIDE; i++) add[i] = float_to_half(number());
    for (int i = 0; i < 2 * ROWS * WIDE; i++) z[i] = float_to_half(10.0f * number());
    for (int i = 0; i < 2 * ROWS * WIDE; i++) mask[i] = float_to_half(i % 3 ? 5.0f * number() : i % 2 ? 6.0f : 0.0f);
    for (int how = 0; how < 7 * 2 * 2 * 2 * 2 * 4 * 4; how++) {
        const int64_t n = columns[how % 7], wide = how / 7 % 2 ? 96 : WIDE;
        const bool gradient = how / 14 % 2 != 0, with = how / 28 % 2 != 0, stream = how / 56 % 2 != 0;
        const mirt__scaling slope = {column[0], column[1], column[2], column[3], 1e-3f, kinds[how / 112 % 4]};
        mirt__epilogue e;
        memset(&e, 0, sizeof e);
        e.sums = gradient ? MIRT__SUMS_GRADIENT : how / 448 ? MIRT__SUMS_NONE : MIRT__SUMS_MOMENTS;
        if (gradient) {
            e.slope = &slope;
            e.slope_x = z;
            if (with) e.add = add;
            if (how / 448) e.mask = mask;
            e.mask_activation = kinds[how / 448];
        } else if (how / 448) {
            if (with) e.add = add;
            e.activation = kinds[how / 448];
        } else if (with) {
            e.bias = column[4];
        }
        for (int k = 0; k < 2; k++) {
            memset(sum[k], 0xff, sizeof sum[k]);
            memset(y[k], 0xff, 2 * ROWS * 192 * sizeof(uint16_t));
        }
        for (int part = 0; part < 2; part++) { /* the second adds to the sums of the first */
            fill(c[0], ROWS * 64);
            memcpy(c[1], c[0], sizeof c[1]);
            for (int k = 0; k < 2; k++) {
                mirt__finishing f = mirt__finishing_of(&e, wide, y[k], MIRT__BFLOAT16, floats);
                float *rows[ROWS];
                int64_t at[ROWS];
                for (int r = 0; r < ROWS; r++) {
                    rows[r] = c[k] + r * 64;
                    at[r] = (part * ROWS + r) * wide;
                }
                f.sum = sum[k];
                f.fresh = part == 0;
                f.stream = stream;
                (k ? mirt__simd_avx512.finish_rows : simd->finish_rows)(&f, rows, at, ROWS, n);
            }
        }
        wrong +=
            memcmp(sum[0], sum[1], sizeof sum[0]) != 0 || memcmp(y[0], y[1], 2 * ROWS * 192 * sizeof(uint16_t)) != 0;
    }
    for (int i = 0; i < 2; i++) mirt__aligned_free(y[i]);
    ok(wrong == 0, "outputs of training are finished to the bits of AVX-512");
}
#endif

int main(void) {
    int count;
    const mirt__kernels *const *table = mirt__kernel_tables(&count);
    for (int i = 0; i < count; i++) {
        const mirt__simd *simd = NULL;
        if (table[i] == &mirt__kernels_plain) simd = &mirt__simd_plain;
#if !defined(MIRRORTRAIN_NO_SIMD) && defined(__x86_64__)
        if (table[i] == &mirt__kernels_avx2) simd = &mirt__simd_avx2;
        if (table[i] == &mirt__kernels_avx512) simd = &mirt__simd_avx512;
        if (table[i] == &mirt__kernels_avx512bf16) simd = &mirt__simd_avx512bf16;
#elif !defined(MIRRORTRAIN_NO_SIMD) && defined(__aarch64__)
        if (table[i] == &mirt__kernels_neon) simd = &mirt__simd_neon;
#ifdef MIRT__NEON_BF16
        if (table[i] == &mirt__kernels_neonbf16) simd = &mirt__simd_neonbf16;
#endif
#endif
        if (!simd) continue;
        check_round(table[i], simd);
        ok(table[i]->half == (simd->words != NULL), "%s has %sinstructions for bfloat16", table[i]->name,
           simd->words ? "" : "no ");
        if (!simd->words) continue;
        check_panels(simd);
        check_tiles(simd);
        check_sums(simd->words);
        check_reads(simd->words);
        check_lazy_reads(simd);
#if !defined(MIRRORTRAIN_NO_SIMD) && defined(__x86_64__)
        check_finish(simd);
#endif
    }
    return done_testing();
}
