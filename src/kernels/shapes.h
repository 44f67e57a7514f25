#ifndef MIRT__SHAPES_H
#define MIRT__SHAPES_H
/* How kernels divide their work: functions that depend only on shapes. */

#include "kernels.h"

#define MIRT__PANEL 64       /* columns of b handled at a time; a multiple of every vector length */
#define MIRT__BLOCK_K 512    /* steps of k between spills: a panel of b stays in L2 */
#define MIRT__BLOCK_RUNS 64  /* runs in one such block */
#define MIRT__TILE_ROWS 14   /* largest number of rows of c in registers */
#define MIRT__TILE_GROUP 42  /* rows of c finished at a time: whole tiles */
#define MIRT__PANEL_LINE 16  /* floats in a line of the cache */
#define MIRT__STREAM (2 << 20) /* outputs with at least this many floats bypass the caches */
#define MIRT__BLOCK_PIXELS 1008 /* pixels in a block of a convolution, at most */
#define MIRT__INPUT_TILE 65536    /* floats of input copied to scratch memory at a time, if that is enough */
#define MIRT__GRAD_CHANNELS 640 /* approximate floats of x or dy in a block of a weight gradient */
#define MIRT__GRAD_PIXELS 147   /* rows in such a block, at least */
#define MIRT__GRAD_COLUMNS 96 /* columns of a copied at a time for a weight gradient */
#define MIRT__WINDOWS 4096   /* floats of window blocks at a time in a pooled weight gradient */
#define MIRT__PANEL_FLOATS (MIRT__BLOCK_K * MIRT__PANEL + MIRT__TILE_ROWS * MIRT__PANEL)
#define MIRT__REDUCE_COLUMNS 64 /* adjacent outputs reduced together */
#define MIRT__REDUCE_WIDE 512   /* at most, if there are that many */

/* `length` steps of k at a constant distance in a, starting `a` floats from a row's first element; their rows of b
   start `b` floats from b. */
typedef struct mirt__run {
    int64_t a, b, length;
} mirt__run;

/* Rows of a that are read into scratch memory at a time. */
MIRT__LIB int64_t mirt__gemm_tile_rows(int64_t m, int64_t k);

/* Rows of n numbers that a normalization processes at a time, so that they stay in L1. */
#define MIRT__NORM_PIECE 2048
MIRT__LIB int64_t mirt__norm_piece(int64_t n);

/* How a convolution with pooling is divided: rows of y, even, whose inputs fit into scratch memory; floats of these
   inputs; pooled rows whose windows are stored at a time. */
typedef struct mirt__pool_blocks {
    int64_t rows, floats, window_rows, window_floats;
} mirt__pool_blocks;
MIRT__LIB mirt__pool_blocks mirt__pool_blocks_of(const mirt__conv *shape);
/* Floats of one chunk's partial sums: the kernel's, then the bias's. */
MIRT__LIB int64_t mirt__conv_partial_floats(const mirt__conv *shape);
/* How a convolution, or the gradient of its input, maps the pixels of a source to those of a target. A 1x1 convolution
   treats all images as one of width 1. */
typedef struct mirt__conv_view {
    mirt__conv s;
    int64_t h, w, c, target_h, target_w, target_c; /* of an image */
    int64_t k, n;                   /* of a tap of a group: channels of the source, of the target */
    int64_t lines, images;          /* rows of the target in a block; images in a block if it has all rows */
    int64_t parts, blocks;          /* blocks of an image, of all images */
    int64_t chunks;                 /* of column sums in a block */
    int64_t row_step, column_step;  /* between the source's pixels that are read */
    int64_t tile_rows, tile_columns, tile_left; /* of an image in a tile: most rows; columns; first column */
    int64_t input_tile;                  /* floats */
    int64_t sets;                   /* sets of taps that reach the same pixels of the target: one, or one per phase of
                                       the strides */
    int64_t sets_across, phase_y, phase_x; /* sets in a row; phase of the first one: not 0 if strides are longer than
                                              the image */
    int64_t runs;                   /* runs of k in all sets, at most */
} mirt__conv_view;
MIRT__LIB mirt__conv_view mirt__conv_view_of(const mirt__conv *shape, bool back);
/* Divides few blocks further, so that each thread has about as many; positions without neighbors into whole tiles. No
   block becomes larger. For convolutions forward without sums. */
MIRT__LIB void mirt__conv_view_share(mirt__conv_view *view, int64_t threads, int64_t tile_rows);
/* Offsets, in bytes, in the memory that the threads of a call share. */
typedef struct mirt__conv_places {
    size_t source, finishing, packed, sums, counts, runs, sets, taps, end;
} mirt__conv_places;
typedef struct mirt__conv_set {
    int64_t phase_y, phase_x;  /* of the strides */
    int64_t run, run_count, k; /* k: steps of all its runs */
    int64_t packed;            /* its panels, in floats */
} mirt__conv_set;
typedef struct mirt__conv_tap {
    int64_t tap, set, at; /* its first row in the panels of the set */
} mirt__conv_tap;
MIRT__LIB mirt__conv_places mirt__conv_places_of(const mirt__conv_view *view);
/* How a weight gradient is divided: chunks of rows of dy (of all images in sequence), whose sums are added by a tree;
   within a chunk blocks of channels of x by columns of dy, for which tiles of both are read. */
typedef struct mirt__conv_grad_view {
    mirt__conv_view v;
    int64_t rows, chunk, chunks, chunks_most; /* rows of dy, in a chunk; number of chunks, which does not grow with
                                                 fewer images */
    int64_t k, row;                   /* rows of dkernel; floats of one in a sum, with groups padded to whole vectors */
    int64_t sum;                      /* floats of a chunk's sums: dkernel's, then a row of db's */
    int64_t channels, columns;        /* in a block, at most, of a group */
    int64_t x_floats, dy_floats;      /* tiled_reads */
    int64_t runs;
} mirt__conv_grad_view;
MIRT__TRAINING_LIB mirt__conv_grad_view mirt__conv_grad_view_of(const mirt__conv *shape);
/* Both gradients of a 1x1 convolution in one pass, if that is faster: pixels in a block of the input gradient, number
   of such blocks per chunk of the weight gradient's sums, chunks; floats of a tile of dy. */
typedef struct mirt__both_view {
    int64_t lines, blocks, chunks, input_tile;
    size_t scratch, shared, sums;         /* bytes in all; offsets in `shared` of x's columns and the sums */
} mirt__both_view;
MIRT__LIB bool mirt__both_applies(const mirt__conv *shape);
MIRT__TRAINING_LIB mirt__both_view mirt__both_view_of(const mirt__conv *shape);
/* Pixels of the target in a chunk of column sums; a multiple of the tiles of every instruction set. */
#define MIRT__SUM_CHUNK 252

/* How F(2x2, 3x3) maps the pixels of a source to those of a target: blocks of rows of 2x2 tiles. */
#define MIRT__WINOGRAD_CHUNK 63 /* tiles in a chunk of column sums */
#define MIRT__WINOGRAD_STEPS 32 /* of k whose weights are transformed at a time */
typedef struct mirt__winograd_view {
    bool back;
    int64_t rows, h, w, c, target_h, target_w, target_c; /* images, and of one */
    int64_t before_h, before_w;           /* zeros before the source */
    int64_t down, across;                 /* tiles of an image */
    int64_t lines, images;                /* rows of tiles in a block; images in a block if it has all rows */
    int64_t parts, blocks, chunks;        /* blocks of an image, of all images; chunks of column sums in a block */
    int64_t tile_columns;
    int64_t source_plane, product_plane;  /* floats of one of the sixteen planes, at most; of products: a panel of
                                             columns */
    int64_t shared_floats;                /* for the input tile, then the products */
    size_t scratch;
    mirt__conv_places places;             /* without sets and taps */
} mirt__winograd_view;
MIRT__LIB bool mirt__winograd_applies(const mirt__conv *shape, bool back);
MIRT__LIB mirt__winograd_view mirt__winograd_view_of(const mirt__conv *shape, bool back);

/* One filter per channel and few taps: uses vectors of channels instead of matrix products. */
#define MIRT__MAX_TAPS 64
MIRT__LIB bool mirt__is_depthwise(const mirt__conv *shape);
/* How that work is divided: units are blocks of rows of an image. Ring buffers hold the current rows of x and dy,
   between columns of zeros. */
typedef struct mirt__depth_cut {
    int64_t blocks, block_rows;                /* units of an image: their number, rows of y in each */
    int64_t sum_pixels, sum_rows, sum_pieces;  /* column sums: at most this many pixels, rows of y, or pieces of a row
                                                  of y */
    int64_t grad_pieces, grad_rows, grad_sums; /* the same for dx; chunks of a unit */
    int64_t x_rows, x_before, x_columns, dy_rows, dy_before, dy_columns;
    int64_t images, parts;                     /* dkernel: consecutive units of a partial sum */
    int64_t scratch_floats, shared_floats;
} mirt__depth_cut;
MIRT__LIB mirt__depth_cut mirt__depth_cut_of(const mirt__conv *shape);

/* The position that output o of `out` reads on an axis of `in` (mirt__resize): between `low` and `high`, which are
   equal at the edges, at fraction `part`; for the nearest input low, and part 0. */
typedef struct mirt__between {
    int64_t low, high;
    mirt__real part;
} mirt__between;
MIRT__LIB mirt__between mirt__resize_at(int64_t o, int64_t in, int64_t out, bool bilinear);
/* Rounds toward minus infinity. */
MIRT__LIB int64_t mirt__floor_div(int64_t a, int64_t b);

#endif
