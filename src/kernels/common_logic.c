/* Shared by the fast tables: comparisons, bools and choices. */

#include "common.h"

#include "optimize_drivers.inc" /* as fast, and compiled sooner */

#define MIRT__LOGIC_PIECE 256 /* elements of an operand that are gathered at a time */

/* Gathers `count` elements `step` apart (0: one repeated) in `piece`, or returns them in place. */
#define MIRT__GATHER(type, name) \
    static const type *mirt__common_gather_##name(const type *from, int64_t step, type *piece, int64_t count) { \
        if (step == 1) return from; \
        for (int64_t i = 0; i < count; i++) piece[i] = from[i * step]; \
        return piece; \
    }
MIRT__GATHER(float, f32)
MIRT__GATHER(int32_t, i32)
MIRT__GATHER(uint8_t, u8)
#undef MIRT__GATHER

#define MIRT__LOGIC_CASE(number, id, label, value) \
    case MIRT__##id: \
        for (int64_t i = 0; i < count; i++) { \
            const __typeof__(*pa) a = pa[i], b = pb[i]; \
            (void)b; \
            truth[i] = (uint8_t)(value); \
        } \
        break;
#define MIRT__LOGIC_CHOICE(number, id, label) \
    case MIRT__##id: \
        c = mirt__common_gather_u8((const uint8_t *)l->in[0] + place[0], walk->stride[0][last], conditions, count); \
        for (int64_t i = 0; i < count; i++) y[i] = c[i] ? pa[i] : pb[i]; \
        break;

/* At most a piece of elements in one line, the operands being of `type`. */
#define MIRT__LOGIC(type, name) \
    static void mirt__common_logic_##name(const mirt__common_walk *walk, const int64_t *place, int64_t at, \
                                          int64_t count) { \
        const mirt__logic *l = (const mirt__logic *)walk->args; \
        const int last = walk->rank - 1, first = l->kind == MIRT__WHERE; \
        type pieces[2][MIRT__LOGIC_PIECE], *y = (type *)l->y + at; \
        uint8_t conditions[MIRT__LOGIC_PIECE], *truth = (uint8_t *)l->y + at; \
        const type *pa = mirt__common_gather_##name((const type *)l->in[first] + place[first], \
                                                    walk->stride[first][last], pieces[0], count); \
        const type *pb = mirt__common_gather_##name((const type *)l->in[first + 1] + place[first + 1], \
                                                    walk->stride[first + 1][last], pieces[1], count); \
        const uint8_t *c = NULL; \
        switch (l->kind) { MIRT__LOGIC_LIST(MIRT__LOGIC_CASE, MIRT__LOGIC_CHOICE) } \
    }
MIRT__LOGIC(float, f32)
MIRT__LOGIC(int32_t, i32)
MIRT__LOGIC(uint8_t, u8)
#undef MIRT__LOGIC
#undef MIRT__LOGIC_CASE
#undef MIRT__LOGIC_CHOICE

static void mirt__common_logic_range(const void *args, int64_t begin, int64_t end, void *scratch) {
    const mirt__common_walk *walk = (const mirt__common_walk *)args;
    const mirt_dtype dtype = ((const mirt__logic *)walk->args)->dtype;
    (void)scratch;
    for (int64_t at = begin, count, place[3]; at < end; at += count) {
        count = mirt__common_walk_line(walk, at, mirt__min(end - at, MIRT__LOGIC_PIECE), place);
        if (dtype == MIRT_FLOAT32) mirt__common_logic_f32(walk, place, at, count);
        else if (dtype == MIRT_INT32) mirt__common_logic_i32(walk, place, at, count);
        else mirt__common_logic_u8(walk, place, at, count);
    }
}

#undef MIRT__LOGIC_PIECE

MIRT__LIB void mirt__common_logic(const mirt__logic *args, const mirt__where *where) {
    const int64_t *const stride[3] = {args->stride[0], args->stride[1], args->stride[2]};
    const mirt__common_walk walk =
        mirt__common_walk_of(args, args->rank, args->dim, args->kind == MIRT__WHERE ? 3 : 2, stride);
    mirt__common_range(where, walk.count, MIRT__GRAIN, mirt__common_logic_range, &walk);
}

#include "optimize_end.inc"
