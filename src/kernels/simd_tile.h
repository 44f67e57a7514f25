#ifndef MIRT__SIMD_TILE_H
#define MIRT__SIMD_TILE_H
/* Of what the tiles of an instruction set consist (simd_tile.inc). */

/* Accumulators are variables instead of an array, which gcc would keep in memory. Each tile is expanded with its own
   rows and vectors: MIRT__R3(V, X) is V(X, 0) V(X, 1) V(X, 2), and MIRT__V2(X, i) is X(i, 0) X(i, 1). */
#define MIRT__R1(V, X) V(X, 0)
#define MIRT__R2(V, X) MIRT__R1(V, X) V(X, 1)
#define MIRT__R3(V, X) MIRT__R2(V, X) V(X, 2)
#define MIRT__R4(V, X) MIRT__R3(V, X) V(X, 3)
#define MIRT__R5(V, X) MIRT__R4(V, X) V(X, 4)
#define MIRT__R6(V, X) MIRT__R5(V, X) V(X, 5)
#define MIRT__R7(V, X) MIRT__R6(V, X) V(X, 6)
#define MIRT__R8(V, X) MIRT__R7(V, X) V(X, 7)
#define MIRT__R9(V, X) MIRT__R8(V, X) V(X, 8)
#define MIRT__R10(V, X) MIRT__R9(V, X) V(X, 9)
#define MIRT__R11(V, X) MIRT__R10(V, X) V(X, 10)
#define MIRT__R12(V, X) MIRT__R11(V, X) V(X, 11)
#define MIRT__R13(V, X) MIRT__R12(V, X) V(X, 12)
#define MIRT__R14(V, X) MIRT__R13(V, X) V(X, 13)
#define MIRT__V1(X, i) X(i, 0)
#define MIRT__V2(X, i) X(i, 0) X(i, 1)
#define MIRT__V4(X, i) X(i, 0) X(i, 1) X(i, 2) X(i, 3)
#define MIRT__ROW_OF_A(X, i) const float *a##i = tile->a[i];
#define MIRT__ROW_OF_B(i, j) const MIRT__VEC b##j = MIRT__K(load)(b + j * MIRT__LANES);
#define MIRT__CLEAR(i, j) MIRT__VEC s##i##_##j = MIRT__K(zero)();
#define MIRT__RELOAD(i, j) s##i##_##j = MIRT__K(load)(tile->c[i] + column + j * MIRT__LANES);
#define MIRT__TILE_ADD(i, j) s##i##_##j = MIRT__PRODUCT(x, b##j, s##i##_##j);
#define MIRT__STEP(V, i) \
    { \
        const MIRT__VEC x = MIRT__K(set)(a##i[at]); \
        V(MIRT__TILE_ADD, i) \
    }
#define MIRT__HALF_STEP(V, i) \
    { \
        const MIRT__VEC x = MIRT__K(set)(a##i[at]); \
        MIRT__TILE_ADD(i, 0) \
        s##i##_1 = MIRT__HALF_PRODUCT(x, b1, s##i##_1); \
    }
#define MIRT__SPILL(i, j) MIRT__K(store)(to + j * MIRT__LANES, s##i##_##j);
/* Stores of vectors might change the tile itself, for all the compiler knows: a row's pointer is read once. */
#define MIRT__SPILL_ROW(V, i) \
    { \
        float *to = tile->c[i] + column; \
        V(MIRT__SPILL, i) \
    }
#define MIRT__HALF_SPILL(X, i) \
    MIRT__SPILL(i, 0) \
    MIRT__K(store)(to + MIRT__LANES, MIRT__HALF_WHOLE(s##i##_1));
/* step(vectors, i) and spill(X, i): of one row */
#define MIRT__TILE_OF(rows, vectors, V, each_step, spill) \
    static void MIRT__P(tile_##rows##_##vectors)(const mirt__tile *tile) { \
        MIRT__R##rows(MIRT__ROW_OF_A, ) \
        MIRT__R##rows(V, MIRT__CLEAR) \
        const int64_t column = tile->column; \
        if (!tile->fresh) { MIRT__R##rows(V, MIRT__RELOAD) } \
        const float *b = tile->b; \
        const char *ahead = tile->ahead; \
        const int64_t b_row = tile->b_row, a_step = tile->a_step, ahead_step = tile->ahead_step; \
        for (int64_t r = 0; r < tile->run_count; r++) { \
            int64_t at = tile->runs[r].a; \
            for (int64_t left = tile->runs[r].length; left > 0; left--) { \
                V(MIRT__ROW_OF_B, 0) \
                MIRT__R##rows(each_step, V) \
                __builtin_prefetch(ahead, 0, 2); \
                MIRT__MORE_AHEAD_##vectors \
                ahead += ahead_step; \
                at += a_step; \
                b += b_row; \
            } \
        } \
        MIRT__R##rows(MIRT__SPILL_ROW, spill) \
    }
#define MIRT__MORE_AHEAD_1
#define MIRT__MORE_AHEAD_2
#define MIRT__MORE_AHEAD_half
#define MIRT__MORE_AHEAD_4 __builtin_prefetch(ahead + ahead_step / 2, 0, 2);
#define MIRT__TILE_1(rows) MIRT__TILE_OF(rows, 1, MIRT__V1, MIRT__STEP, MIRT__V1)
#define MIRT__TILE_2(rows) MIRT__TILE_OF(rows, 2, MIRT__V2, MIRT__STEP, MIRT__V2)
#define MIRT__TILE_4(rows) MIRT__TILE_OF(rows, 4, MIRT__V4, MIRT__STEP, MIRT__V4)
#define MIRT__TILE_half(rows) MIRT__TILE_OF(rows, half, MIRT__V2, MIRT__HALF_STEP, MIRT__HALF_SPILL)

#endif
