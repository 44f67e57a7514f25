#ifndef MIRT__SHAPES_H
#define MIRT__SHAPES_H
/* How the kernels cut their work: functions of shapes alone. */

#include "kernels.h"

#define MIRT__PANEL 64       /* columns of b handled at a time; a multiple of every vector length */
#define MIRT__BLOCK_K 512    /* steps of k between spills: a panel of b stays in L2 */
#define MIRT__BLOCK_RUNS 64  /* runs in one such block */
#define MIRT__TILE_ROWS 14   /* the most rows of c in registers */
#define MIRT__STRIP 65536    /* floats of input copied to scratch at a time, where that is enough */
#define MIRT__GRAD_COLUMNS 96 /* columns of a copied at a time for a weight gradient */
#define MIRT__WINDOWS 4096   /* floats of window blocks at a time in a pooled weight gradient */
#define MIRT__PANEL_FLOATS (MIRT__BLOCK_K * MIRT__PANEL + MIRT__TILE_ROWS * MIRT__PANEL)
#define MIRT__REDUCE_COLUMNS 64 /* outputs reduced side by side */

/* `length` steps of k that lie at a constant distance in a, starting `a` floats from a row's
   first element; their rows of b start `b` floats from b. */
typedef struct mirt__run {
    int64_t a, b, length;
} mirt__run;

/* Rows of a that are read into scratch at a time. */
MIRT__LIB int64_t mirt__gemm_strip_rows(int64_t m, int64_t k);

/* How a convolution's images are cut into blocks of rows, whose inputs fit a strip of scratch. */
typedef struct mirt__conv_blocks {
    int64_t forward_rows, forward_cols, forward_floats; /* rows of y, even; columns of x with padding; floats of x */
    int64_t grad_rows, grad_cols, grad_floats;          /* rows of dx; columns of dy with padding; floats of dy */
    int64_t run_count;                                  /* the most runs of k any product needs */
    int64_t window_rows, window_floats;                 /* pooled rows whose windows are laid out at a time */
} mirt__conv_blocks;
MIRT__LIB mirt__conv_blocks mirt__conv_block_sizes(const mirt__conv *shape);
/* Floats of one chunk's partial sums: the kernel's, then the bias's. */
MIRT__LIB int64_t mirt__conv_partial_floats(const mirt__conv *shape);

/* One filter for each channel, few taps: vectors of channels instead of products. */
#define MIRT__MAX_TAPS 64
MIRT__LIB bool mirt__is_depthwise(const mirt__conv *shape);
/* How that work is cut: units are blocks of rows of an image. Rings hold the rows of x and dy that are at work, between
   columns of zeros. */
typedef struct mirt__depth_cut {
    int64_t blocks, block_rows;                /* of an image: how many, rows of y of each */
    int64_t sum_pixels, sum_rows, sum_pieces;  /* column sums: at most so many pixels, rows of y, or pieces of a row of y */
    int64_t grad_pieces, grad_rows, grad_sums; /* of dx: likewise; chunks of a unit */
    int64_t x_rows, x_before, x_columns, dy_rows, dy_before, dy_columns;
    int64_t images, parts;                     /* dkernel: of a partial sum, whose units follow each other */
    int64_t scratch_floats, shared_floats;
} mirt__depth_cut;
MIRT__LIB mirt__depth_cut mirt__depth_cut_of(const mirt__conv *shape);

/* Where output o of `out` reads an axis of `in` (mirt__resize): between `low` and `high`, which are
   equal at the edges, `part` of the way up; for the nearest input, low, and part 0. */
typedef struct mirt__between {
    int64_t low, high;
    mirt__real part;
} mirt__between;
MIRT__LIB mirt__between mirt__resize_at(int64_t o, int64_t in, int64_t out, bool bilinear);
/* Rounds toward minus infinity. */
MIRT__LIB int64_t mirt__floor_div(int64_t a, int64_t b);

#endif
