/* Moves between regular places, and rows by index. */
#include "cuda.cuh"
#include "math.cuh"

/* ---- move: operand 0 is x, operand 1 is y */

template <class T>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_move_kernel(const T *x, T *y, const mirt__cu_walk walk) {
    MIRT__CU_PIECES(at, left, walk.count, 1) {
        int64_t place[2];
        mirt__cu_walk_place<2>(walk, at, place);
        y[place[1]] = x[place[0]];
    }
}

/* A transposition: two dimensions, each of which lies side by side in one of x and y, are moved by tiles; `walk` goes
   over the others. */
#define MIRT__CU_TILE 32
typedef struct mirt__cu_turn {
    mirt__cu_walk walk;
    int64_t down, across;     /* of the dimension along which x, and along which y, lies side by side */
    int64_t from_step, to_step; /* x along `across`, y along `down` */
    mirt__cu_divisor tiles, tiles_across;
} mirt__cu_turn;

template <class T>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_turn_kernel(const T *x, T *y, const mirt__cu_turn turn) {
    MIRT_SHARED(T, tile, MIRT__CU_TILE * (MIRT__CU_TILE + 1));
    const int lane = (int)threadIdx.x % MIRT__CU_TILE, line = (int)threadIdx.x / MIRT__CU_TILE;
    const int lines = MIRT__CU_ELEMENT_BLOCK / MIRT__CU_TILE;
    for (int64_t at = blockIdx.x; at < turn.walk.count * turn.tiles.by; at += gridDim.x) {
        int64_t rest, column, place[2];
        mirt__cu_walk_place<2>(turn.walk, mirt__cu_divmod(at, turn.tiles, &rest), place);
        const int64_t down = mirt__cu_divmod(rest, turn.tiles_across, &column) * MIRT__CU_TILE,
                      across = column * MIRT__CU_TILE;
        for (int i = line; i < MIRT__CU_TILE; i += lines) {
            if (down + lane < turn.down && across + i < turn.across) {
                tile[i * (MIRT__CU_TILE + 1) + lane] = x[place[0] + (across + i) * turn.from_step + down + lane];
            }
        }
        __syncthreads();
        for (int i = line; i < MIRT__CU_TILE; i += lines) {
            if (across + lane < turn.across && down + i < turn.down) {
                y[place[1] + (down + i) * turn.to_step + across + lane] = tile[lane * (MIRT__CU_TILE + 1) + i];
            }
        }
        __syncthreads();
    }
}

/* Whether it is one, of dimensions long enough. */
static bool mirt__cu_turn_of(const mirt__cu_walk *w, mirt__cu_turn *turn) {
    const int last = w->rank - 1;
    int side = -1;
    for (int i = 0; i < last; i++) {
        if (w->stride[0][i] == 1) side = i;
    }
    if (side < 0 || w->stride[1][last] != 1 || w->dim[side].by < 8 || w->dim[last].by < 8) return false;
    turn->walk = *w;
    turn->down = w->dim[side].by;
    turn->across = w->dim[last].by;
    turn->from_step = w->stride[0][last];
    turn->to_step = w->stride[1][side];
    turn->walk.count /= turn->down * turn->across;
    turn->walk.rank = 0;
    for (int i = 0; i < last; i++) {
        const int to = turn->walk.rank;
        if (i == side) continue;
        turn->walk.dim[to] = w->dim[i];
        for (int k = 0; k < 2; k++) turn->walk.stride[k][to] = w->stride[k][i];
        turn->walk.rank++;
    }
    if (turn->walk.rank == 0) { /* a single one */
        turn->walk.rank = 1;
        turn->walk.dim[0] = mirt__cu_divisor_of(1);
    }
    const int64_t tiles_across = mirt__cu_ceil(turn->across, MIRT__CU_TILE);
    turn->tiles_across = mirt__cu_divisor_of(tiles_across);
    turn->tiles = mirt__cu_divisor_of(mirt__cu_ceil(turn->down, MIRT__CU_TILE) * tiles_across);
    return true;
}

template <class T> static void mirt__cu_move_as(mirt__cu *cu, const void *from, void *to, const mirt__cu_walk *walk) {
    const T *x = static_cast<const T *>(from);
    T *y = static_cast<T *>(to);
    if constexpr (sizeof(T) <= 4) {
        mirt__cu_turn turn;
        if (mirt__cu_turn_of(walk, &turn)) {
            const int64_t tiles = turn.walk.count * turn.tiles.by;
            MIRT_LAUNCH(cu, (mirt__cu_turn_kernel<T>), (unsigned)(tiles < 1 << 20 ? tiles : 1 << 20),
                        MIRT__CU_ELEMENT_BLOCK, 0, x, y, turn);
            return;
        }
    }
    MIRT__CU_LAUNCH_PIECES(cu, mirt__cu_move_kernel<T>, walk->count, x, y, *walk);
}

/* Makes elements of n neighbors each, where x and y allow it. */
static bool mirt__cu_move_widen(mirt__cu_walk *w, int64_t n, const void *x, const void *y, int64_t bytes) {
    const int last = w->rank - 1;
    bool can = w->dim[last].by % n == 0 && mirt__cu_aligned(x, bytes) && mirt__cu_aligned(y, bytes);
    for (int k = 0; k < 2; k++) {
        can = can && w->stride[k][last] == 1;
        for (int i = 0; i < last; i++) can = can && w->stride[k][i] % n == 0;
    }
    if (!can) return false;
    w->count /= n;
    w->dim[last] = mirt__cu_divisor_of(w->dim[last].by / n);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < last; i++) w->stride[k][i] /= n;
    }
    return true;
}

static void mirt__cu_move(const mirt__move *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const int64_t *const stride[2] = {args->from, args->to};
    mirt__cu_walk walk = mirt__cu_walk_of(args->rank, args->dim, 2, stride);
    int64_t size = mirt__cu_size(args->dtype);
    if (walk.count <= 0) return;
    for (int64_t bytes = 16; bytes > size; bytes /= 2) {
        if (mirt__cu_move_widen(&walk, bytes / size, args->x, args->y, bytes)) size = bytes;
    }
    switch (size) {
    case 1: mirt__cu_move_as<uint8_t>(cu, args->x, args->y, &walk); break;
    case 2: mirt__cu_move_as<uint16_t>(cu, args->x, args->y, &walk); break;
    case 4: mirt__cu_move_as<uint32_t>(cu, args->x, args->y, &walk); break;
    case 8: mirt__cu_move_as<uint2>(cu, args->x, args->y, &walk); break;
    default: mirt__cu_move_as<uint4>(cu, args->x, args->y, &walk); break;
    }
}

/* ---- one_hot, gather */

static inline __device__ int64_t mirt__cu_index(const void *indices, mirt_dtype dtype, int64_t at) {
    return dtype == MIRT_UINT8 ? (int64_t) static_cast<const uint8_t *>(indices)[at]
                               : (int64_t) static_cast<const int32_t *>(indices)[at];
}

template <int N> static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
mirt__cu_one_hot_kernel(const void *x, mirt_dtype dtype, float *y, int64_t count, const mirt__cu_divisor depth) {
    MIRT__CU_PIECES(at, left, count, N) {
        float v[N];
        int64_t column, row = mirt__cu_divmod(at, depth, &column), index = mirt__cu_index(x, dtype, row);
#pragma unroll
        for (int j = 0; j < N; j++) {
            v[j] = column == index ? 1.0f : 0.0f;
            if (j + 1 < N && ++column == depth.by && j + 1 < left) {
                column = 0;
                index = mirt__cu_index(x, dtype, ++row);
            }
        }
        mirt__cu_store_left<N>(y + at, left, v);
    }
}

static void mirt__cu_one_hot(const mirt__one_hot *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    const int64_t count = args->count * args->depth;
    if (count <= 0) return;
    const mirt__cu_divisor depth = mirt__cu_divisor_of(args->depth);
    const int n = mirt__cu_aligned(args->y, 16) ? 4 : 1;
    MIRT__CU_LAUNCH_PIECES(cu, (n == 4 ? mirt__cu_one_hot_kernel<4> : mirt__cu_one_hot_kernel<1>),
                           mirt__cu_ceil(count, n), args->x, args->dtype, args->y, count, depth);
}

struct mirt__cu_gather_args : mirt__gather {
    mirt__cu_divisor pieces; /* of a row: of N columns; of the gradient: of 32 * N */
};

/* N divides the width. */
template <int N>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK) mirt__cu_gather_kernel(const mirt__cu_gather_args g) {
    MIRT__CU_PIECES(at, left, g.count * g.pieces.by, 1) {
        float v[N] = {0};
        int64_t piece;
        const int64_t index = mirt__cu_index(g.indices, g.dtype, mirt__cu_divmod(at, g.pieces, &piece));
        if (index >= 0 && index < g.n) mirt__cu_load_n<N>(g.x + index * g.width + piece * N, v);
        mirt__cu_store_n<N>(g.y + at * N, v);
    }
}

/* A warp for each row of y and piece of its columns looks through all indices; so no sum is shared, and its order is
   theirs. */
template <int N>
static __global__ void __launch_bounds__(MIRT__CU_ELEMENT_BLOCK)
    mirt__cu_gather_grad_kernel(const mirt__cu_gather_args g) {
    const int lane = (int)threadIdx.x % 32, warps = MIRT__CU_ELEMENT_BLOCK / 32;
    for (int64_t at = (int64_t)blockIdx.x * warps + threadIdx.x / 32; at < g.n * g.pieces.by;
         at += (int64_t)gridDim.x * warps) {
        int64_t piece;
        const int64_t row = mirt__cu_divmod(at, g.pieces, &piece), column = (piece * 32 + lane) * N;
        float sum[N] = {0};
        for (int64_t i = 0; i < g.count; i += 32) {
            unsigned found = __ballot_sync(MIRT__CU_ALL,
                                           i + lane < g.count && mirt__cu_index(g.indices, g.dtype, i + lane) == row);
            for (; found; found &= found - 1) {
                float v[N];
                if (column >= g.width) continue;
                mirt__cu_load_n<N>(g.x + (i + __ffs((int)found) - 1) * g.width + column, v);
#pragma unroll
                for (int j = 0; j < N; j++) sum[j] += v[j];
            }
        }
        if (column < g.width) mirt__cu_store_n<N>(g.y + row * g.width + column, sum);
    }
}

static mirt__cu_gather_args mirt__cu_gather_of(const mirt__gather *args, int *n, int lanes) {
    *n = args->width % 4 == 0 && mirt__cu_aligned(args->x, 16) && mirt__cu_aligned(args->y, 16) ? 4 : 1;
    return {*args, mirt__cu_divisor_of(mirt__cu_ceil(args->width, *n * lanes))};
}

static void mirt__cu_gather(const mirt__gather *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    int n;
    const mirt__cu_gather_args g = mirt__cu_gather_of(args, &n, 1);
    if (g.count <= 0 || g.width <= 0) return;
    MIRT__CU_LAUNCH_PIECES(cu, (n == 4 ? mirt__cu_gather_kernel<4> : mirt__cu_gather_kernel<1>), g.count * g.pieces.by,
                           g);
}

static void mirt__cu_gather_grad(const mirt__gather *args, const mirt__where *where) {
    mirt__cu *cu = mirt__cu_of(where);
    int n;
    const mirt__cu_gather_args g = mirt__cu_gather_of(args, &n, 32);
    if (g.n <= 0 || g.width <= 0) return;
    MIRT_LAUNCH(cu, (n == 4 ? mirt__cu_gather_grad_kernel<4> : mirt__cu_gather_grad_kernel<1>),
                mirt__cu_blocks(g.n * g.pieces.by, MIRT__CU_ELEMENT_BLOCK / 32), MIRT__CU_ELEMENT_BLOCK, 0, g);
}
