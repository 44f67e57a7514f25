#ifndef MIRT__CUDA_MULTIPLY_CUH
#define MIRT__CUDA_MULTIPLY_CUH
/* Matrix products whose left side is read from images: convolutions, input gradients, dense layers. A block computes a
   tile of the output, pixels by channels, and goes over k = (tap, channel) in ascending order. */

#include "tiles.cuh"

/* Columns of a thread in slabs, four side by side. */
template <int BN, int THREADS> struct mirt__cu_mm_finisher {
    static const int across = BN / 4, lanes = THREADS / across;
    mirt__cu_finish_columns<4> columns;
    mirt__cu_sums<4> sums;
    int x, lane, n; /* n: how many columns exist from its first one on; it is not cut off at 4, because ptxas 13.0 takes
                       min(n, 4) == 4 for n > 4 */
    int64_t column;

    __device__ void begin(const mirt__cu_multiply &p, int group, int first) {
        x = (int)threadIdx.x % across;
        lane = (int)threadIdx.x / across;
        n = p.n - first - 4 * x;
        column = (int64_t)group * p.n + first + 4 * x;
        mirt__cu_finish_columns_of<4>(p.e, column, n, columns);
        mirt__cu_sums_begin(sums);
    }
    /* The n columns of ROWS pixels at `at` in y, of which `value` has the sums: first all that is read is asked for.
       Those that are not `there` come last. SIMPLE: as of mirt__cu_finish_with. */
    template <int ROWS, bool SIMPLE, class AT>
    __device__ void finish(const mirt__cu_epilogue &e, const AT *at, const bool *there, int n, float (*value)[4]) {
        mirt__cu_finish_raw<4> raw[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (there[i]) mirt__cu_finish_fetch<4>(e, at[i], n, raw[i]);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float z[4] = {0, 0, 0, 0};
            if (!there[i]) continue;
            mirt__cu_finish_with<4, SIMPLE>(e, columns, raw[i], n, value[i], z);
            mirt__cu_sums_add<4>(e, columns, sums, value[i], z, i > 0);
            mirt__cu_finish_store<4>(e, at[i], n, value[i]);
        }
    }
    /* Finishes rows of a slab that lie at `places`. DTYPE: as of mirt__cu_ending_from. */
    template <int END, int DTYPE, class PLACES>
    __device__ void slab(const mirt__cu_epilogue &from, const float *values, int rows, const PLACES &places) {
        /* More rows at once would not fit in their registers. */
        const int batch = END == MIRT__CU_END_ANY ? 1 : THREADS == 128 || END == MIRT__CU_END_MOMENTS ? 4 : 2;
        const int all = END == MIRT__CU_END_ANY ? n : 4;
        if (n <= 0) return;
        const mirt__cu_epilogue e = mirt__cu_ending_from<END, DTYPE>(from, places.first + column);
#pragma unroll 1
        for (int r = lane; r < rows; r += lanes * batch) {
            float value[batch][4];
            typename PLACES::type at[batch];
            bool there[batch];
#pragma unroll
            for (int i = 0; i < batch; i++) {
                at[i] = places.at(r + i * lanes);
                there[i] = places.there(r + i * lanes, at[i]);
                mirt__cu_load_n<4>(values + (r + i * lanes) * (BN + 4) + 4 * x, value[i]);
            }
            finish<batch, END != MIRT__CU_END_ANY>(e, at, there, all, value);
        }
    }
    /* Leaves rows of a slab to mirt__cu_multiply_splits_kernel. */
    __device__ void leave(const mirt__cu_multiply &p, const float *values, int rows, const int64_t *out) const {
        float *to = p.partial + (int64_t)blockIdx.y * p.pixels * p.e.columns + column;
#pragma unroll 1
        for (int r = lane; r < rows; r += lanes) {
            float value[4];
            mirt__cu_load_n<4>(values + r * (BN + 4) + 4 * x, value);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (out[r] >= 0 && j < n) to[out[r] + j] = value[j];
            }
        }
    }
    __device__ void end(const mirt__cu_multiply &p, int group, int first, int64_t part, float *shared) {
        const int exist = p.n - first < BN ? p.n - first : BN;
        mirt__cu_sums_leave<4>(p.e, p.chunks, sums, x, lane, lanes, BN, exist, part, (int64_t)group * p.n + first,
                               group == 0 && first == 0, shared);
    }
};
/* Places in y of rows that mirt__cu_mm_rows_put has worked out. */
struct mirt__cu_mm_places {
    typedef int64_t type;
    static const int64_t first = 0;
    const int64_t *out;
    __device__ int64_t at(int row) const { return out[row]; }
    __device__ bool there(int, int64_t at) const { return at >= 0; }
};
static inline __host__ __device__ constexpr int mirt__cu_mm_dtype(int math) {
    return math == MIRT__CU_BY_FLOAT16 ? (int)MIRT__FLOAT16 : (int)MIRT__BFLOAT16;
}
/* Whether a fourth or more of two tiles of 128 columns would be empty: three of 64 cost less, although x is read once
   more. */
static bool mirt__cu_mm_fourth_empty(int columns) { return columns > 128 && columns <= 192; }
/* How a product ends, where kernels have code of their own for that. */
static mirt__cu_ending mirt__cu_multiply_ending(const mirt__cu_multiply &p, mirt__cu_math math) {
    return p.splits == 1 && (int)p.e.dtype == mirt__cu_mm_dtype(math) ? mirt__cu_ending_of(p.e) : MIRT__CU_END_ANY;
}
/* Whether x is multiplied as it is stored, by few enough taps. */
static bool mirt__cu_multiply_is_bare(const mirt__cu_multiply &p, int math) {
    return math >= MIRT__CU_BY_HALF && p.x.kind == MIRT__CU_READ_PLAIN && !p.x.affine &&
           p.down.kernel <= MIRT__CU_MM_TAPS && p.across.kernel <= MIRT__CU_MM_TAPS;
}
template <int BM, int BN, int MATH, int END>
static inline __device__ void mirt__cu_multiply_end(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                    const mirt__cu_mm_sums_of<BM, BN, MATH> &sums, float *slab,
                                                    const int64_t *out) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    mirt__cu_mm_finisher<BN, tile::threads> finisher;
#pragma unroll
    for (int i = 0; i < BM / tile::slab_rows; i++) {
        mirt__cu_mm_places places;
        places.out = out + i * tile::slab_rows;
        __syncthreads();
        sums.put(slab, i);
        __syncthreads();
        if (i == 0) finisher.begin(p, b.group, b.column);
        if (END == MIRT__CU_END_ANY && p.splits > 1) finisher.leave(p, slab, tile::slab_rows, places.out);
        else finisher.template slab<END, mirt__cu_mm_dtype(MATH)>(p.e, slab, tile::slab_rows, places);
    }
    if (p.splits == 1) finisher.end(p, b.group, b.column, b.part, slab);
}

/* What a reader makes of N numbers. */
template <int N>
static inline __device__ void mirt__cu_mm_quick(const mirt__cu_reader &r, const mirt__cu_columns<N> &c, float *x,
                                                float *z, const float *gate) {
    const mirt_activation_kind kind = r.norm.activation;
    const float most = kind == MIRT_RELU6 ? 6.0f : INFINITY;
    if (r.kind & MIRT__CU_READ_BACK) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            z[i] = __fsub_rn(z[i], c.mean[i]);
            const float u = __fadd_rn(__fmul_rn(z[i], c.factor[i]), c.offset[i]);
            if (kind == MIRT_SILU) {
                const float s = mirt__cu_sigmoid(u);
                x[i] *= s * fmaf(u, 1.0f - s, 1.0f);
            } else if (kind != MIRT_LINEAR) {
                x[i] = u > 0 && u < most ? x[i] : 0.0f;
            }
            x[i] = __fmul_rn(__fsub_rn(__fsub_rn(x[i], c.less[i]), __fmul_rn(z[i], c.part[i])), c.factor[i]);
        }
    } else if (r.kind & MIRT__CU_READ_NORM) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[i] = mirt__cu_normed(x[i], c.mean[i], c.factor[i], c.offset[i]);
            if (kind == MIRT_SILU) {
                x[i] = mirt__cu_silu(x[i]);
            } else if (kind != MIRT_LINEAR) {
                x[i] = x[i] < 0 ? 0.0f : x[i] > most ? most : x[i];
            }
        }
    } else if (r.affine) {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = fmaf(x[i], r.scale, r.offset);
    }
    if (r.kind & MIRT__CU_READ_GATE) {
        float by[N];
        mirt__cu_load_n<N>(gate, by);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = __fmul_rn(x[i], by[i]);
    }
}
/* A thread's share of a step's x, of floats, on its way through registers. */
template <int BM, int BN, int MATH> struct mirt__cu_mm_left {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    static const int pieces = tile::k / 4, step = tile::threads / pieces, count = BM / step;
    mirt__cu_mm_walk at;
    int piece, row, c;
    unsigned live;
    int64_t from[count];
    mirt__cu_bytes<16> x[count], z[count];

    __device__ void look(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *info) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const mirt__cu_mm_row r = mirt__cu_mm_row_get(info + row + i * step);
            from[i] = mirt__cu_mm_row_reads(p, b, r, at) ? r.at + mirt__cu_mm_tap_at(p, b, at) : -1;
        }
    }
    __device__ void begin(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *info) {
        piece = (int)threadIdx.x % pieces;
        row = (int)threadIdx.x / pieces;
        at.c = at.y = at.x = 0;
        mirt__cu_mm_walk_on(at, b.first_step * tile::k + piece * 4, p.k, b.across.taps);
        look(p, b, info);
    }
    /* Asks for what the next step reads. */
    __device__ void fetch(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const mirt__cu_mm_row *info) {
        const mirt__cu_mm_walk was = at;
        c = at.c;
        live = 0;
#pragma unroll
        for (int i = 0; i < count; i++) {
            if (from[i] < 0) continue;
            live |= 1u << i;
            x[i] = mirt__cu_load_bytes<16>(static_cast<const float *>(p.x.data) + from[i] + c);
            if (p.x.kind & MIRT__CU_READ_BACK)
                z[i] = mirt__cu_load_bytes<16>(static_cast<const float *>(p.x.z) + from[i] + c);
        }
        mirt__cu_mm_walk_on(at, tile::k, p.k, b.across.taps);
        if (at.y != was.y || at.x != was.x) look(p, b, info);
    }
    /* What it asked for, as it is read, into the tile. */
    __device__ void store(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const int *image, const float *shared,
                          char *to) {
        mirt__cu_columns<4> columns;
        if (live) mirt__cu_columns_get<MIRT__CU_READ_ANY, 4>(p.x, shared, p.k, c, columns);
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int line = row + i * step, at_line = mirt__cu_mm_float_a<MATH>(piece * 4, line);
            float value[4] = {0, 0, 0, 0}, other[4] = {0, 0, 0, 0};
            if (live >> i & 1) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    value[e] = __uint_as_float(x[i].word[e]);
                    other[e] = __uint_as_float(z[i].word[e]);
                }
                mirt__cu_mm_quick<4>(p.x, columns, value, other,
                                     p.x.gate + image[line] * p.x.channels + (int64_t)b.group * p.k + c);
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32_t *place = reinterpret_cast<uint32_t *>(to) + (piece * 4 + e) * tile::a_row + at_line;
                *place = MATH == MIRT__CU_BY_TF32 ? mirt__cu_to_tf32(value[e]) : __float_as_uint(value[e]);
            }
        }
    }
};
/* And of b. */
template <int BM, int BN, int MATH> struct mirt__cu_mm_right {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    static const int pieces = BN / 4, step = tile::threads / pieces, count = tile::k / step;
    mirt__cu_bytes<16> word[count];
    int piece, row;
    const float *from;
    bool inside;

    __device__ void begin(const mirt__cu_multiply &p, const mirt__cu_mm_block &b) {
        piece = (int)threadIdx.x % pieces;
        row = (int)threadIdx.x / pieces;
        inside = b.column + piece * 4 < p.n;
        from = static_cast<const float *>(p.b) + b.b_at + b.column + piece * 4;
    }
    __device__ void fetch(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, int s) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int k = s * tile::k + row + i * step;
            if (inside && k < b.depth) word[i] = mirt__cu_load_bytes<16>(from + k * p.b_row);
            else word[i].word[0] = word[i].word[1] = word[i].word[2] = word[i].word[3] = 0;
        }
    }
    __device__ void store(char *to) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            if (MATH == MIRT__CU_BY_TF32) {
#pragma unroll
                for (int e = 0; e < 4; e++) word[i].word[e] = mirt__cu_to_tf32(__uint_as_float(word[i].word[e]));
            }
            mirt__cu_store_bytes<16>(to + ((row + i * step) * tile::b_row + piece * 4) * 4, word[i]);
        }
    }
};
template <int BM, int BN, int MATH>
static inline __device__ void mirt__cu_mm_through_registers(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                            const mirt__cu_mm_row *rows, const int *image,
                                                            const float *columns, char *work,
                                                            mirt__cu_mm_sums_of<BM, BN, MATH> &sums) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    const int bytes = tile::a_bytes + tile::b_bytes;
    mirt__cu_mm_left<BM, BN, MATH> left;
    mirt__cu_mm_right<BM, BN, MATH> right;
    if (b.first_step >= b.steps) return;
    left.begin(p, b, rows);
    right.begin(p, b);
    left.fetch(p, b, rows);
    right.fetch(p, b, b.first_step);
    left.store(p, b, image, columns, work);
    right.store(work + tile::a_bytes);
    __syncthreads();
    for (int s = b.first_step; s < b.steps; s++) {
        char *now = work + (s - b.first_step) % 2 * bytes, *next = work + (s + 1 - b.first_step) % 2 * bytes;
        const bool more = s + 1 < b.steps;
        if (more) {
            left.fetch(p, b, rows);
            right.fetch(p, b, s + 1);
        }
        sums.add(now, now + tile::a_bytes);
        if (more) {
            left.store(p, b, image, columns, next);
            right.store(next + tile::a_bytes);
        }
        __syncthreads();
    }
}

/* A thread's share of copies of 16 bits to shared memory, of which each stage has a step of k. BARE: x is multiplied as
   it is stored; otherwise each thread makes what it copied there what its reader reads. */
template <int BM, int BN, int MATH, bool BARE> struct mirt__cu_mm_copies {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    typedef typename tile::H H;
    static const int step = tile::threads / 4, count = BM / step, b_step = tile::threads / (BN / 8),
                     b_count = tile::k / b_step, ahead = tile::stages - 1;
    typedef typename mirt__cu_mm_row_by<BARE>::type line;
    mirt__cu_mm_walk at;
    int piece, row, a_at, b_at, b_left; /* b_left: rows of b from the thread's first one on */
    const H *x[count], *right[b_count]; /* of which nothing is read where there is nothing */
    bool there[count], back;
    /* BARE: mirt__cu_mm_bits.reads; how far it is from the end of a tap to the next one's first channel, and how much
       farther to the next line's. */
    unsigned reads[count];
    int next_tap;
    int64_t next_line;
    /* For transforms: `there` of all stages, as bits, the newest in the lowest; the oldest stage's channel. */
    unsigned live;
    int c;

    /* What the thread reads by another tap. */
    __device__ void look(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const line *rows) {
        const int64_t off = mirt__cu_mm_tap_at(p, b, at) + at.c;
#pragma unroll
        for (int i = 0; i < count; i++) {
            const line r = mirt__cu_mm_row_get(rows + row + i * step);
            x[i] = static_cast<const H *>(p.x.data) + (r.at + off);
            if constexpr (BARE) reads[i] = r.reads;
            else there[i] = mirt__cu_mm_row_reads(p, b, r, at);
        }
        if constexpr (BARE) test();
    }
    /* Which rows read something by the tap. There is no line of taps MIRT__CU_MM_TAPS. */
    __device__ void test() {
        const unsigned tap = 1u << at.x | 1u << 16 << (at.y < MIRT__CU_MM_TAPS ? at.y : MIRT__CU_MM_TAPS);
#pragma unroll
        for (int i = 0; i < count; i++) there[i] = (reads[i] & tap) == tap;
    }
    /* The same as mirt__cu_mm_walk_on and `look`, but rows are only moved. */
    __device__ void move(const mirt__cu_multiply &p, const mirt__cu_mm_block &b) {
        int64_t by = 0;
        do {
            at.c -= p.k;
            by += next_tap;
            if (++at.x == b.across.taps) {
                at.x = 0;
                at.y++;
                by += next_line;
            }
        } while (at.c >= p.k);
#pragma unroll
        for (int i = 0; i < count; i++) x[i] += by;
        test();
    }
    __device__ void begin(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const line *rows) {
        const int first = b.first_step * tile::k, b_piece = (int)threadIdx.x % (BN / 8),
                  b_row = (int)threadIdx.x / (BN / 8);
        piece = (int)threadIdx.x % 4;
        row = (int)threadIdx.x / 4;
        a_at = mirt__cu_mm_half_a(row, piece); /* those of rows 8 apart lie alike */
        b_at = mirt__cu_mm_half_b<BN>(b_row, b_piece);
        b_left = b.column + b_piece * 8 < p.b_row ? b.depth - first - b_row : 0;
#pragma unroll
        for (int i = 0; i < b_count; i++)
            right[i] = static_cast<const H *>(p.b) + b.b_at + b.column + b_piece * 8 +
                       (int64_t)(first + b_row + i * b_step) * p.b_row;
        at.c = at.y = at.x = 0;
        mirt__cu_mm_walk_on(at, first + piece * 8, p.k, b.across.taps);
        c = at.c;
        live = 0;
        back = !BARE && (p.x.kind & MIRT__CU_READ_BACK) != 0;
        next_tap = b.across.tap_off * p.c - p.k;
        next_line = ((int64_t)b.down.tap_off * p.across.source - (int64_t)b.across.taps * b.across.tap_off) * p.c;
        look(p, b, rows);
    }
    /* Asks for the next step. */
    __device__ void ask(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const line *rows, char *to) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            char *place = to + a_at + i * step * 64;
            mirt__cu_cp_async16(place, x[i], there[i]);
            if (back)
                mirt__cu_cp_async16(place + tile::a_bytes + tile::b_bytes,
                                    static_cast<const H *>(p.x.z) + (x[i] - static_cast<const H *>(p.x.data)),
                                    there[i]);
            x[i] += tile::k;
            live |= (there[i] ? 1u : 0u) << i;
        }
#pragma unroll
        for (int i = 0; i < b_count; i++) {
            mirt__cu_cp_async16(to + tile::a_bytes + b_at + i * b_step * BN * 2, right[i], i * b_step < b_left);
            right[i] += tile::k * p.b_row;
        }
        b_left -= tile::k;
        at.c += tile::k;
        if (at.c < p.k) return;
        if constexpr (BARE) {
            move(p, b);
        } else {
            mirt__cu_mm_walk_on(at, 0, p.k, b.across.taps);
            look(p, b, rows);
        }
    }
    /* What came is as its reader reads it. */
    __device__ void make(const mirt__cu_multiply &p, const mirt__cu_mm_block &b, const int *image, const float *columns,
                         char *done) {
        const unsigned mine = live >> (ahead - 1) * count;
#pragma unroll 1
        for (int part = 0; part < 8; part += 4) {
            mirt__cu_columns<4> k;
            mirt__cu_columns_get<MIRT__CU_READ_ANY, 4>(p.x, columns, p.k, c + part, k);
#pragma unroll 1
            for (int i = 0; i < count; i++) {
                if (!(mine >> i & 1)) continue;
                const int line = row + i * step, at_byte = a_at + i * step * 64 + part * 2;
                H *place = reinterpret_cast<H *>(done + at_byte);
                float value[4], other[4] = {0, 0, 0, 0};
                mirt__cu_load_n<4>(place, value);
                if (back)
                    mirt__cu_load_n<4>(reinterpret_cast<const H *>(done + tile::a_bytes + tile::b_bytes + at_byte),
                                       other);
                mirt__cu_mm_quick<4>(p.x, k, value, other,
                                     p.x.gate + image[line] * p.x.channels + (int64_t)b.group * p.k + c + part);
                mirt__cu_store_n<4>(place, value);
            }
        }
        c += tile::k;
        while (c >= p.k) c -= p.k;
    }
};
/* Stages are copied while older ones are multiplied. */
template <int BM, int BN, int MATH, bool BARE>
static inline __device__ void mirt__cu_mm_through_copies(const mirt__cu_multiply &p, const mirt__cu_mm_block &b,
                                                         const typename mirt__cu_mm_row_by<BARE>::type *rows,
                                                         const int *image, const float *columns, char *work,
                                                         mirt__cu_mm_sums_of<BM, BN, MATH> &sums) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    typedef mirt__cu_mm_copies<BM, BN, MATH, BARE> mine;
    mine copies;
    if (b.first_step >= b.steps) return;
    copies.begin(p, b, rows);
    const int stage = tile::a_bytes + tile::b_bytes + (copies.back ? tile::a_bytes : 0),
              end = tile::stages * stage, steps = b.steps - b.first_step;
    /* The oldest stage is the one after the newest. */
#pragma unroll 1
    for (int s = -mine::ahead, newest = 0; s < steps; s++) {
        const int oldest = newest + stage == end ? 0 : newest + stage;
        if (s >= 0) {
            mirt__cu_cp_async_wait<tile::stages - 2>();
            if constexpr (!BARE) copies.make(p, b, image, columns, work + oldest);
            __syncthreads(); /* all of this stage is there, and nobody is at the one before any more */
        }
        copies.live <<= mine::count;
        if (s + mine::ahead < steps) copies.ask(p, b, rows, work + newest);
        mirt__cu_cp_async_commit();
        if (s >= 0) sums.add(work + oldest, work + oldest + tile::a_bytes);
        newest = oldest;
    }
    mirt__cu_cp_async_wait<0>();
}

/* BARE: x is read as it is stored, in 16 bits, and lines have few enough taps. END: of mirt__cu_ending. */
template <int BM, int BN, int MATH, bool BARE, int END>
static __global__ void __launch_bounds__((mirt__cu_mm_tile<BM, BN, MATH>::threads),
                                         (!BARE && BN == 128 ? 1 : mirt__cu_mm_tile<BM, BN, MATH>::resident))
    mirt__cu_multiply_kernel(mirt__cu_multiply p) {
    typedef mirt__cu_mm_tile<BM, BN, MATH> tile;
    MIRT_DYNAMIC_SHARED(char, work);
    const int bytes = mirt__cu_mm_work_bytes(tile::stages, tile::a_bytes, tile::b_bytes, tile::slab,
                                             tile::half && p.x.kind & MIRT__CU_READ_BACK);
    typedef typename mirt__cu_mm_row_by<BARE>::type row;
    row *rows = reinterpret_cast<row *>(work + bytes);
    int64_t *out = reinterpret_cast<int64_t *>(rows + BM);
    int *image = reinterpret_cast<int *>(out + BM);
    float *columns = reinterpret_cast<float *>(work + bytes + tile::info);
    const mirt__cu_mm_block b = mirt__cu_mm_block_of<BM, BN, tile::k>(p);
    if constexpr (BARE) {
        mirt__cu_mm_rows_put<BM, tile::threads>(p, b, rows, out);
    } else {
        mirt__cu_mm_rows_put<BM, tile::threads>(p, b, rows, out, image);
        mirt__cu_columns_put(p.x, (int64_t)b.group * p.k, p.k, p.k, columns, (int)threadIdx.x, tile::threads);
    }
    __syncthreads();

    mirt__cu_mm_sums_of<BM, BN, MATH> sums;
    sums.clear();
    if constexpr (tile::half) mirt__cu_mm_through_copies<BM, BN, MATH, BARE>(p, b, rows, image, columns, work, sums);
    else mirt__cu_mm_through_registers<BM, BN, MATH>(p, b, rows, image, columns, work, sums);
    mirt__cu_multiply_end<BM, BN, MATH, END>(p, b, sums, reinterpret_cast<float *>(work), out);
}

/* The sums of all parts of k in ascending order, finished: MIRT__CU_MM_SLAB pixels by 128 columns per block. */
static __global__ void __launch_bounds__(256) mirt__cu_multiply_splits_kernel(mirt__cu_multiply p) {
    MIRT_SHARED(float, shared, 8 * (3 * 128 + 1));
    mirt__cu_mm_finisher<128, 256> f;
    const int column = (int)(blockIdx.x % p.blocks_n) * 128;
    const int64_t chunk = blockIdx.x / p.blocks_n, first = chunk * MIRT__CU_MM_SLAB;
    const int splits = p.splits;
    f.begin(p, 0, column);
    for (int64_t pixel = first + f.lane; pixel < first + MIRT__CU_MM_SLAB && pixel < p.pixels && f.n > 0;
         pixel += f.lanes) {
        float value[1][4] = {{0, 0, 0, 0}};
        for (int s = 0; s < splits; s++) {
            const float *from = p.partial + (s * p.pixels + pixel) * p.e.columns + f.column;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (i < f.n) value[0][i] += from[i];
            }
        }
        const int64_t at = pixel * p.e.columns + f.column;
        const bool there = true;
        f.template finish<1, false>(p.e, &at, &there, f.n, value);
    }
    f.end(p, 0, column, chunk, shared);
}

#endif
