#ifndef MIRT__CUDA_PANEL_CUH
#define MIRT__CUDA_PANEL_CUH
/* Products of single pixels of few channels, in 16 bits. A block has all of k of its columns of b in shared memory and
   goes over several tiles of rows: while one is finished, the next one's x is already on its way. */

#include "multiply.cuh"

#define MIRT__CU_PANEL_ROWS 64 /* of a tile */

template <int BN, int MATH> struct mirt__cu_panel {
    static const int rows = MIRT__CU_PANEL_ROWS;
    typedef mirt__cu_mm_tile<rows, BN, MATH> tile;
    static const unsigned ring = tile::stages * tile::a_bytes;
};
/* Bytes of shared memory: b, the stages of x, and what tiles are finished in. */
template <int BN, int MATH> static int mirt__cu_panel_bytes(int steps) {
    typedef mirt__cu_panel<BN, MATH> panel;
    return steps * panel::tile::b_bytes + (int)panel::ring + panel::tile::slab;
}

/* A thread's share of the copies of x, step by step and tile by tile. Rows and k that do not exist are zeros. */
template <int BN, int MATH> struct mirt__cu_panel_copies {
    typedef typename mirt__cu_panel<BN, MATH>::tile tile;
    static const int rows = mirt__cu_panel<BN, MATH>::rows, apart = tile::threads / 4, count = rows / apart;
    const typename tile::H *x; /* the thread's first piece of a tile's first row that it copies */
    int at, exist, left, k; /* exist: of k, from that piece on; left: of rows; k: of the next step, in all threads */

    __device__ void begin(const mirt__cu_multiply &p, int64_t first, int rows_left) {
        const int row = (int)threadIdx.x / 4, piece = (int)threadIdx.x % 4;
        x = static_cast<const typename tile::H *>(p.x.data) + (first + row) * p.c + piece * 8;
        at = mirt__cu_mm_half_a(row, piece); /* those of rows 8 apart lie alike */
        exist = p.k - piece * 8;
        left = rows_left - row;
        k = 0;
    }
    /* Asks for the next step. */
    __device__ void ask(const mirt__cu_multiply &p, char *stage) {
#pragma unroll
        for (int i = 0; i < count; i++)
            mirt__cu_cp_async16(stage + at + i * apart * 64, x + (k + i * apart * p.c),
                                k < exist && i * apart < left);
        mirt__cu_cp_async_commit();
        k += tile::k;
        if (k < p.k) return;
        k = 0;
        x += (int64_t)rows * p.c;
        left -= rows;
    }
};

/* Asks for all of k of a block's columns of b; the copies belong to the first stage's. */
template <int BN, int MATH>
static inline __device__ void mirt__cu_panel_ask(const mirt__cu_multiply &p, int column, int depth, char *panel) {
    typedef typename mirt__cu_panel<BN, MATH>::tile tile;
    const int piece = (int)threadIdx.x % (BN / 8);
    const bool inside = column + piece * 8 < p.b_row;
    const typename tile::H *b = static_cast<const typename tile::H *>(p.b) + column + piece * 8;
    for (int k = (int)threadIdx.x / (BN / 8); k < depth; k += tile::threads / (BN / 8))
        mirt__cu_cp_async16(panel + mirt__cu_mm_half_b<BN>(k, piece), b + k * p.b_row, inside && k < p.k);
}

/* Places in y of a tile's rows, which are pixels one after another. */
struct mirt__cu_panel_places {
    typedef int type;
    int64_t first;
    int columns, exist;
    __device__ int at(int row) const { return row * columns; }
    __device__ bool there(int row, int) const { return row < exist; }
};

/* `tiles`: of a block, at most. */
template <int BN, int MATH, int END>
static __global__ void __launch_bounds__((mirt__cu_panel<BN, MATH>::tile::threads),
                                         (mirt__cu_panel<BN, MATH>::tile::resident))
    mirt__cu_panel_kernel(mirt__cu_multiply p, int tiles) {
    typedef mirt__cu_panel<BN, MATH> panel;
    typedef typename panel::tile tile;
    MIRT_DYNAMIC_SHARED(char, stages);
    float *slab = reinterpret_cast<float *>(stages + panel::ring);
    char *b = stages + panel::ring + tile::slab;
    const int column = (int)(blockIdx.x % (unsigned)p.blocks_n) * BN, chunk = (int)(blockIdx.x / (unsigned)p.blocks_n),
              steps = (p.k + tile::k - 1) / tile::k, most = tiles * panel::rows;
    int64_t first = (int64_t)chunk * most;
    int left = p.pixels - first < most ? (int)(p.pixels - first) : most;

    mirt__cu_panel_copies<BN, MATH> copies;
    copies.begin(p, first, left);
    mirt__cu_panel_ask<BN, MATH>(p, column, steps * tile::k, b);
#pragma unroll
    for (int s = 0; s < tile::stages - 1; s++) copies.ask(p, stages + s * tile::a_bytes);
    mirt__cu_mm_finisher<BN, tile::threads> finisher;
    finisher.begin(p, 0, column);

    mirt__cu_mm_sums_of<panel::rows, BN, MATH> sums;
    unsigned oldest = 0;
#pragma unroll 1
    for (; left > 0; left -= panel::rows, first += panel::rows) {
        sums.clear();
#pragma unroll 1
        for (int s = 0; s < steps; s++) {
            mirt__cu_cp_async_wait<tile::stages - 2>();
            /* All of this stage is there, and nobody is at the one before or at the slab any more. */
            __syncthreads();
            copies.ask(p, stages + (oldest + (tile::stages - 1) * tile::a_bytes) % panel::ring);
            sums.add(stages + oldest, b + s * tile::b_bytes);
            oldest = (oldest + tile::a_bytes) % panel::ring;
        }
        sums.put(slab, 0);
        __syncthreads();
        mirt__cu_panel_places places;
        places.columns = (int)p.e.columns;
        places.first = first * places.columns;
        places.exist = left;
        finisher.template slab<END, mirt__cu_mm_dtype(MATH)>(p.e, slab, panel::rows, places);
    }
    mirt__cu_cp_async_wait<0>();
    finisher.end(p, 0, column, chunk, slab);
}

/* ---- Which products, and in which blocks. */

#ifndef MIRT__CU_PANEL_DEPTH
#define MIRT__CU_PANEL_DEPTH 192 /* of k: where there is more, steps are most of a tile; tests say another number */
#endif
#ifndef MIRT__CU_PANEL_BLOCKS
#define MIRT__CU_PANEL_BLOCKS 1024
#endif
#define MIRT__CU_PANEL_TILES 8

typedef struct mirt__cu_panel_plan {
    int columns, tiles; /* of a block */
} mirt__cu_panel_plan;

typedef void (*mirt__cu_panel_code)(mirt__cu_multiply, int);
template <int BN, int MATH> static mirt__cu_panel_code mirt__cu_panel_ending(mirt__cu_ending ending) {
#define MIRT__CU_PANEL(end) mirt__cu_panel_kernel<BN, MATH, end>
    return MIRT__CU_BY_ENDING(ending, MIRT__CU_PANEL);
#undef MIRT__CU_PANEL
}
template <int BN, int MATH>
static bool mirt__cu_panel_as(mirt__cu *cu, const mirt__cu_multiply &p, const mirt__cu_panel_plan &plan, bool launch) {
    typedef typename mirt__cu_panel<BN, MATH>::tile tile;
    const int bytes = mirt__cu_panel_bytes<BN, MATH>((p.k + tile::k - 1) / tile::k), reserved = 1 << 10;
    const mirt__cu_panel_code panel_kernel =
        mirt__cu_panel_ending<BN, MATH>(mirt__cu_multiply_ending(p, (mirt__cu_math)MATH));
    if (launch)
        MIRT_LAUNCH(cu, panel_kernel, (unsigned)p.blocks_m * (unsigned)p.blocks_n, tile::threads, bytes, p, plan.tiles);
    /* All that a processor is to hold; the driver takes some of its shared memory for each. */
    return (size_t)(tile::resident * (bytes + reserved)) <= cu->shared_most + reserved;
}
/* Launches the kernel; returns whether there is room for it. */
static bool mirt__cu_panel_launch(mirt__cu *cu, const mirt__cu_multiply &p, mirt__cu_math math,
                                  const mirt__cu_panel_plan &plan, bool launch) {
    if (math == MIRT__CU_BY_FLOAT16)
        return plan.columns == 64 ? mirt__cu_panel_as<64, MIRT__CU_BY_FLOAT16>(cu, p, plan, launch)
                                  : mirt__cu_panel_as<128, MIRT__CU_BY_FLOAT16>(cu, p, plan, launch);
    return plan.columns == 64 ? mirt__cu_panel_as<64, MIRT__CU_BY_HALF>(cu, p, plan, launch)
                              : mirt__cu_panel_as<128, MIRT__CU_BY_HALF>(cu, p, plan, launch);
}

/* Sets the blocks of a product that this kernel is for; false: another one. A function of shapes, and of whether there
   is room: never of how many processors there are. */
static bool mirt__cu_panel_plan_of(mirt__cu *cu, mirt__cu_multiply *p, mirt__cu_math math, mirt__cu_panel_plan *plan) {
    const int64_t down = mirt__cu_ceil(p->pixels, MIRT__CU_PANEL_ROWS);
    if (!mirt__cu_multiply_is_bare(*p, math) || !p->pixelwise || p->k < 1 || p->k > MIRT__CU_PANEL_DEPTH) return false;
    /* Fewer columns where more would be empty, but not so few that x, which is read again for all of them, is most of
       what is read; and where there are few tiles. */
    plan->columns = p->n <= 64 || mirt__cu_mm_fourth_empty(p->n) ||
                            down * mirt__cu_ceil(p->n, 128) < MIRT__CU_MM_BLOCKS
                        ? 64
                        : 128;
    p->blocks_n = (int)mirt__cu_ceil(p->n, plan->columns);
    /* The more tiles, the less is set up; 132 processors with two to four blocks each want a thousand blocks, lest many
       idle while the last ones end. */
    const int64_t tiles = down * p->blocks_n / MIRT__CU_PANEL_BLOCKS;
    plan->tiles = (int)(tiles < 1 ? 1 : tiles > MIRT__CU_PANEL_TILES ? MIRT__CU_PANEL_TILES : tiles);
    p->blocks_m = (int)mirt__cu_ceil(down, plan->tiles);
    p->splits = 1;
    return mirt__cu_panel_launch(cu, *p, math, *plan, false);
}

#endif
