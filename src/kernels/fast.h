#ifndef MIRT__FAST_H
#define MIRT__FAST_H
/* Declarations of the fast kernels. The loops over tiles, images and panels are written once, in fast_*.c, and use a
   few primitives that each instruction set implements (simd.c). */

#include "shapes.h"

/* One tile of c in registers: c[i][column + j] (+)= sum over the runs of a[i] times b[j]. */
typedef struct mirt__tile {
    const float *const *a;
    float *const *c;
    int64_t column;
    const mirt__run *runs; /* offsets in b are not used: rows of b are consecutive, b_row apart */
    int64_t run_count, a_step;
    const float *b;
    int64_t b_row;
    bool fresh; /* from zero, not from c */
    const char *ahead; /* prefetched, one cache line per step of k, two if there are four vectors */
    int64_t ahead_step;
} mirt__tile;
typedef void (*mirt__tile_fn)(const mirt__tile *tile);
#define MIRT__HALF_KIND 3 /* with two vectors, the upper half of the second one has no columns */

/* One row of pooling windows of a convolution, at most pool_vectors vectors of channels. */
typedef struct mirt__pool_row {
    const float *a; /* patch of the first window */
    int64_t pitch, ci, windows, k;
    const int32_t *offset; /* offset of each k in the patch */
    const float *b, *bias;
    int64_t b_row;
    float *y;
    uint8_t *which;
    int64_t co, columns; /* distance of windows; number of existing columns of these vectors */
} mirt__pool_row;

/* `rows` by `columns` windows of max pooling, whose positions are numbered `across` per row. For the maximum: one
   window; x begins at its position `first`. For the gradient: all windows that contain a pixel, which is at position
   `first` of the first one and at smaller positions of those below and to the right. Elements of x are row_step,
   column_step apart. */
typedef struct mirt__windows {
    bool half, wide; /* x and y are bfloat16; `which` is int32 */
    int64_t n, rows, columns, row_step, column_step, first, down, right;
    const void *x;
    void *y, *which;
} mirt__windows;

/* Memory that is needed soon, [at, end): computing loops prefetch it in small parts. */
typedef struct mirt__soon {
    const char *at[3], *end[3];
    int next;
} mirt__soon;

/* `count` adjacent positions, x_step apart in x and y_step in y, of `n` channels each: the input of every tap at the
   first position, and its weights. */
typedef struct mirt__taps_row {
    int taps;
    const float *x[MIRT__MAX_TAPS], *k[MIRT__MAX_TAPS];
    float *dk[MIRT__MAX_TAPS];
    float *y;
    int64_t count, n, x_step, y_step;
    mirt__soon *soon;
} mirt__taps_row;

/* Weight gradient of windows: block contains, for each window and k, the inputs of the window's four positions. */
typedef struct mirt__pool_windows {
    const float *block;
    int64_t windows, k, co;
    const float *dy;
    const uint8_t *which;
    float *dkernel, *db;
} mirt__pool_windows;

/* A normalization per column, computed once per call: (x - mean) * factor + offset. mean NULL: none. */
typedef struct mirt__norm_columns {
    const float *mean, *factor, *offset;
} mirt__norm_columns;
MIRT__INLINE void mirt__norm_columns_skip(mirt__norm_columns *columns, int64_t count) {
    if (!columns->mean) return;
    columns->mean += count;
    columns->factor += count;
    columns->offset += count;
}

/* The source of tiled reads. */
typedef struct mirt__source {
    mirt__reader from;
    mirt__norm_columns norm;       /* of its norm, or of back's slope */
    const float *less, *part; /* for back; NULL: constant statistics */
} mirt__source;

/* An epilogue on some rows and columns; pointers to columns begin with the first of these columns. */
typedef struct mirt__finishing {
    const mirt__epilogue *epilogue;
    void *y;                                               /* the whole output; add, mask and slope_x of the epilogue
                                                              likewise */
    mirt_dtype dtype;
    const float *bias; /* NULL: none */
    mirt__norm_columns norm, slope;
    float *sum;       /* moments: a row of shifts (initially the first finished row), of sums and of squares, both of
                         values minus the shift; gradient: a row of sums of dy and one of dy * (slope_x - mean) */
    int64_t sum_row;  /* floats between these rows */
    bool fresh;       /* `sum` has no values yet */
    bool stream;      /* y is too large for the caches, so the writer's task ends with a fence. Its rows have sum_row
                         columns */
} mirt__finishing;

/* The floats that a source's columns need, and the source of a reader, made in them; `floats` may be NULL if that is
   0. */
MIRT__LIB size_t mirt__source_floats(const mirt__reader *reader);
MIRT__LIB mirt__source mirt__source_of(const mirt__reader *reader, float *floats);
/* The same for all columns of an output y with an epilogue; the caller sets `sum` and its fields. */
MIRT__LIB size_t mirt__finishing_floats(const mirt__epilogue *epilogue, int64_t columns);
MIRT__LIB mirt__finishing mirt__finishing_of(const mirt__epilogue *epilogue, int64_t columns, void *y, mirt_dtype dtype,
                                             float *floats);
/* Whether the source consists of floats that can be read in place. */
MIRT__LIB bool mirt__reader_plain(const mirt__reader *reader);
/* Whether the epilogue does more than store floats. */
MIRT__LIB bool mirt__epilogue_works(const mirt__epilogue *epilogue, mirt_dtype dtype);
/* Bytes per chunk of column sums. */
MIRT__LIB int64_t mirt__sum_floats(const mirt__epilogue *epilogue, int64_t columns);
/* The same for the columns from column j on; `sum` is unchanged. */
MIRT__LIB mirt__finishing mirt__finishing_at(const mirt__finishing *all, int64_t j);

/* Combines the sums of chunks of rows, in ascending order, into the epilogue's: chunk i has `rows` rows, the last of
   each `period` chunks `last_rows`; its rows of sums are at part + i * chunk_floats, sum_row apart. Columns [begin,
   end). */
typedef struct mirt__chunk_sums {
    const float *part;
    int64_t chunks, chunk_floats, sum_row, period, rows, last_rows;
    const int32_t *counts; /* or NULL; the rows of each chunk, instead of the last three: 0 means no sums */
} mirt__chunk_sums;
MIRT__LIB void mirt__column_sums_finish(const mirt__epilogue *epilogue, const mirt__chunk_sums *sums, int64_t begin,
                                        int64_t end);
/* All columns, shared by the team. */
MIRT__LIB void mirt__column_sums_run(mirt__team *team, const mirt__epilogue *epilogue, const mirt__chunk_sums *sums,
                                     int64_t columns);
/* All columns of chunks of counts[i] rows each. */
MIRT__LIB void mirt__counted_sums_run(mirt__team *team, const mirt__epilogue *epilogue, const float *part,
                                      const int32_t *counts, int64_t chunks, int64_t columns);

/* Adds up `parts` partial sums of a weight gradient, mirt__conv_partial_floats each. db may be NULL. */
MIRT__TRAINING_LIB void mirt__partial_sums_run(mirt__team *team, const mirt__conv *s, float *part, int64_t parts,
                                               float *dkernel, float *db);

/* The primitives of products in words. A word has 4 bytes: two numbers rounded to bfloat16 (the first one in the low
   half) that are multiplied with those of another word and added up. Input tiles and panels are then arrays of words;
   the pointers have type float, but the words are never read as floats. */
typedef struct mirt__words {
    const mirt__tile_fn (*tile)[MIRT__TILE_ROWS]; /* as in mirt__simd; a, b and lengths of runs are in words */
    /* As in mirt__simd, but row p of `to` has the words of k = 2 p and 2 p + 1; 0 follows an odd k. */
    void (*copy_rows)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns);
    void (*transpose)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns);
    /* Whole pixels from element `at` on: (channels + 1) / 2 words of adjacent channels each. */
    void (*read_words)(float *to, const mirt__source *source, int64_t at, int64_t channels, int64_t pixels);
    /* `columns` words of each of some pixels: word j of pixel p has the elements at + p * channels + j and next + p *
       channels + j; `next` below 0: 0. */
    void (*read_pairs)(float *to, const mirt__source *source, int64_t at, int64_t next, int64_t channels,
                       int64_t columns, int64_t pixels);
    /* As in mirt__simd, for all numbers in b's words, ascending. */
    void (*column_sum)(float *sum, const float *b, int64_t b_row, int64_t k, int64_t columns, bool fresh);
} mirt__words;

typedef struct mirt__simd {
    int lanes, rows, vectors; /* tile: at most `rows` rows of `vectors` vectors */
    int pool_vectors;         /* vectors of channels in pool_row */
    const mirt__tile_fn (*tile)[MIRT__TILE_ROWS]; /* [log2 vectors, or MIRT__HALF_KIND][rows - 1]; NULL: use narrower
                                                     ones */
    /* to[p * MIRT__PANEL + j] = from[p * from_row + j] for p in [0, k), j in [0, columns), and zeros up to whole
       vectors */
    void (*copy_rows)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns);
    /* to[p * MIRT__PANEL + j] = from[j * from_row + p] for p in [0, k), j in [0, columns) */
    void (*transpose)(float *to, const float *from, int64_t from_row, int64_t k, int64_t columns);
    /* Elements [at, at + count) of the source, as floats; with norm, gate or back whole pixels, or part of one */
    void (*read)(float *to, const mirt__source *source, int64_t at, int64_t count);
    /* The epilogue on rows of c; mask[i] belongs to c[i]. */
    void (*finish)(const mirt__epilogue *epilogue, const float *bias, float *const *c, const float *const *mask,
                   int64_t rows, int64_t columns);
    /* The epilogue: row i of `columns` numbers c[i] becomes the elements of finishing->y from element at[i] on (c[i]
       may be in place), and is added to the sums. */
    void (*finish_rows)(const mirt__finishing *finishing, float *const *c, const int64_t *at, int64_t rows,
                        int64_t columns);
    /* sum[j] (+)= the chain over p of b[p * b_row + j] */
    void (*column_sum)(float *sum, const float *b, int64_t b_row, int64_t k, int64_t columns, bool fresh);
    void (*pool_row)(const mirt__pool_row *row);
    /* For each window and k the values at the window's four positions, adjacent to each other. */
    void (*lay_windows)(float *block, const float *x, int64_t pitch, int64_t ci, int64_t windows, int64_t k,
                        const int32_t *offset);
    void (*pool_windows)(const mirt__pool_windows *windows);
    /* y = the chain over the taps of x times k, in each channel */
    void (*taps_row)(const mirt__taps_row *row);
    /* dk = the chain starting from dk over the positions of x times y */
    void (*taps_row_grad)(const mirt__taps_row *row);
    /* y and which = the first maximum of x; y = the sum of x where `which` is the position. */
    void (*max_window)(const mirt__windows *windows);
    void (*max_back)(const mirt__windows *windows);
    /* F(2x2, 3x3), planes of sixteen products of a tile (fast_winograd.c). A row of tiles, two pixels apart: */
    void (*winograd_source)(float *to, int64_t plane, const float *from, int64_t pitch, int64_t pixel, int64_t tiles);
    /* k rows of a panel, from the nine of its taps */
    void (*winograd_taps)(float *to, int64_t plane, const float *from, int64_t from_plane, int64_t k, int64_t columns);
    /* Four rows of a panel per tile, its pixels, from planes with one row per tile */
    void (*winograd_target)(float *to, const float *from, int64_t plane, int64_t tiles, int64_t columns);
    void (*accumulate)(float *into, const float *from, int64_t count);
    /* Rounds each number to bfloat16. Without `words`, products in half are products of such floats. */
    void (*round)(float *x, int64_t count);
    /* y = activation(x), dx = dy times the derivative at x (`scale`: leaky relu's slope, elu's factor), and y =
       exp(x - less). An output may be an input. */
    void (*activate)(mirt_activation_kind kind, float scale, const float *x, float *y, int64_t count);
    void (*slope)(mirt_activation_kind kind, float scale, const float *dy, const float *x, float *dx, int64_t count);
    void (*exp)(const float *x, float less, float *y, int64_t count);
    /* mirt__philox for the counters {block .. block + MIRT__DRAWS - 1, counter[0 .. 2]}; the four words of a block are
       adjacent. */
    void (*draw)(uint32_t block, const uint32_t counter[3], uint64_t key, uint32_t *word);
    const mirt__words *words; /* NULL: no instructions for products of bfloat16 */
} mirt__simd;
#define MIRT__DRAWS 16

/* The kernels of MIRT__KERNEL_LIST. */
#define MIRT__DECLARE_COMMON(lib, name, arguments) \
    lib void mirt__common_##name(const mirt__##arguments *args, const mirt__where *where);
#define MIRT__DECLARE_FAST(lib, name, arguments) \
    lib void mirt__fast_##name(const mirt__simd *simd, const mirt__##arguments *args, const mirt__where *where);
#define MIRT__DECLARE_NORM(lib, name, arguments) \
    MIRT__DECLARE_FAST(lib, name, arguments) MIRT__DECLARE_FAST(lib, name##_by_row, arguments)
#define MIRT__DECLARE_KERNEL(name, arguments, fast, use) MIRT__DECLARE_##fast(MIRT__##use##_LIB, name, arguments)
MIRT__KERNEL_LIST(MIRT__DECLARE_KERNEL)
#undef MIRT__DECLARE_COMMON
#undef MIRT__DECLARE_FAST
#undef MIRT__DECLARE_NORM
#undef MIRT__DECLARE_KERNEL
/* Parts of them: convolutions if mirt__is_depthwise, either of two if mirt__winograd_applies, and both gradients, in
   one pass if mirt__both_applies. */
MIRT__LIB void mirt__fast_depthwise_forward(const mirt__simd *simd, const mirt__conv_forward *args,
                                            const mirt__where *where);
MIRT__LIB void mirt__fast_depthwise_input_grad(const mirt__simd *simd, const mirt__conv_input_grad *args,
                                               const mirt__where *where);
MIRT__LIB void mirt__fast_depthwise_weight_grad(const mirt__simd *simd, const mirt__conv_weight_grad *args,
                                                const mirt__where *where);
MIRT__LIB void mirt__fast_winograd(const mirt__simd *simd, const mirt__conv *s, bool back, const mirt__reader *x,
                                   const float *kernel, const mirt__epilogue *epilogue, void *y, mirt_dtype dtype,
                                   const mirt__where *where);
MIRT__LIB void mirt__fast_conv_both(const mirt__simd *simd, const mirt__conv_input_grad *args,
                                    const mirt__where *where);
MIRT__LIB void mirt__fast_accumulate(const mirt__simd *simd, float *into, const float *from, int64_t count,
                                     const mirt__where *where);
MIRT__LIB void mirt__fast_update(const mirt__where *where, const mirt__update *args,
                                 void (*range)(const mirt__update *args, int64_t begin, int64_t end));

/* The tables made by simd.c. In the single header they are defined before select.c. */
#ifdef MIRRORTRAIN_SPLIT_BUILD
extern const mirt__kernels mirt__kernels_avx512bf16, mirt__kernels_avx512, mirt__kernels_avx2,
    mirt__kernels_neonbf16, mirt__kernels_neon, mirt__kernels_plain;
#endif

/* Pixels of a source as floats (or words), with zeros around its images. */
typedef struct mirt__input_tile {
    const mirt__simd *simd;
    const mirt__words *words; /* NULL: floats, */
    bool round;               /* rounded to bfloat16 */
    int64_t pair, pixels;     /* words of pixels that are `pair` apart, up to `pixels`; 0: of adjacent channels */
    const mirt__source *source;
    int64_t h, w, c;                       /* of an image */
    int64_t first, channels;               /* that are read */
    int64_t left, columns;                 /* of a row of a tile: first column, number of columns; */
    int64_t column_step, row_step, pixel;  /* distance in the source, of rows too; floats (or words) of a pixel */
} mirt__input_tile;
/* Tiles with all channels and all rows and columns. */
MIRT__LIB mirt__input_tile mirt__input_tile_of(const mirt__simd *simd, const mirt__source *source, int64_t h, int64_t w,
                                     int64_t c, int64_t left, int64_t columns);
MIRT__LIB void mirt__input_tile_rows(const mirt__input_tile *input_tile, int64_t image, int64_t row, int64_t rows,
                                     float *to);
/* The number of parts into which the panels of a block are split, so that each thread has about `each` tasks. */
MIRT__LIB int64_t mirt__sweep_splits(const mirt__where *where, int64_t blocks, int64_t panels, int64_t each);

/* Memory that will be read soon, to be prefetched during multiplication. */
#define MIRT__AHEAD 6
typedef struct mirt__ahead {
    const char *at[MIRT__AHEAD]; /* this many bytes from here on have yet to be prefetched; a valid address even if that
                                    is 0 */
    int64_t left[MIRT__AHEAD];
} mirt__ahead;
MIRT__LIB void mirt__ahead_add(mirt__ahead *ahead, const void *data, mirt_dtype dtype, int64_t first, int64_t count);

/* The weight gradient that is computed along with an input gradient: the part of block `number`, whose tile of dy is at
   `input_tile`; and an estimate of the memory of x that it reads. */
typedef struct mirt__grad_job mirt__grad_job;
MIRT__LIB void mirt__conv_run_beside(const mirt__simd *simd, const mirt__conv_input_grad *args,
                                     const mirt__grad_job *beside, const mirt__where *where);
MIRT__LIB void mirt__grad_beside_run(const mirt__grad_job *job, int64_t number, float *input_tile, mirt__ahead *ahead);
MIRT__LIB void mirt__grad_beside_ahead(const mirt__grad_job *job, int64_t number, mirt__ahead *ahead);

/* A block of rows of c = a b, in panels of MIRT__PANEL columns; groups of tiles are finished while they are in the
   cache. */
typedef struct mirt__sweep {
    const mirt__simd *simd;
    const mirt__tile_fn (*tile)[MIRT__TILE_ROWS]; /* of floats or words */
    int64_t m, width, lines;               /* row i is position i % width of line i / width % lines of picture i / width
                                              / lines */
    const float *a;
    int64_t a_x, a_y, a_z, a_step;         /* distance of positions, lines, pictures, steps of k within a run */
    const mirt__run *runs;                 /* cut by mirt__sweep_run_add */
    int64_t run_count;
    const float *b;
    int64_t b_row, b_panel;                /* distance of rows, of panels */
    int64_t n, begin, end;                 /* columns of a group; panels, numbered through all groups */
    int64_t a_group;                       /* distance of groups in a */
    float *c;                              /* NULL: only `finishing` has the outputs */
    int64_t c_at, c_x, c_y, c_z;           /* in c, or in the outputs of `finishing` */
    bool fresh, padded;                    /* from zero; columns of c beyond the last may be written, up to whole
                                              vectors */
    const mirt__finishing *finishing;      /* or NULL, if padded; its pointers begin with column 0, its sums with the
                                              first chunk */
    bool finish;                           /* it does more than copy */
    int64_t sum_chunk;                     /* floats between the sums of chunks */
    float *spare;                          /* MIRT__TILE_GROUP * MIRT__PANEL floats, unless padded */
    mirt__ahead *ahead;
} mirt__sweep;
MIRT__LIB void mirt__sweep_run(const mirt__sweep *sweep);
/* Adds `length` steps of k, `step` apart in a, to the runs, which have *k; `a` as in mirt__run. */
MIRT__LIB void mirt__sweep_run_add(mirt__run *runs, int64_t *count, int64_t *k, int64_t a, int64_t length,
                                   int64_t step);

#endif
