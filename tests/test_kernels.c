/* Tests every kernel of every table against the reference and the numerical law. The law demands the same bits from
   AVX2 and AVX-512, from any team, and for a row in any place; nothing is written outside of outputs, and nothing
   uninitialized is read. The kernels and shapes are in kernel_cases.h. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "kernel_cases.h"
#include "lawful.h"
#include "tap.h"

enum { GUARD = 64, TEAMS = 3 };

static mirt__team *teams[TEAMS]; /* of 1 (none at all), 2 and 3 threads */
static bool aligned;

/* ---- buffers */

static size_t bytes_of(const buffer *b, int64_t count) { return (size_t)count * mirt__dtype_size(b->dtype); }

/* What stands before a buffer: it puts it off any alignment, or with MIRT_TEST_ALIGNED on one of 16 bytes. */
static size_t guard_of(const buffer *b) { return GUARD + (aligned ? 0 : mirt__dtype_size(b->dtype)); }

/* Memory for rows [first, first + count) of a buffer, or for all of it; what is
   read ends with its block, so that the address sanitizer sees a byte too many. */
static uint8_t *block_create(const buffer *b, size_t bytes) {
    size_t before = guard_of(b), after = b->role == IN ? 0 : GUARD;
    uint8_t *block = (uint8_t *)malloc(before + bytes + after);
    memset(block, 0xA5, before + bytes + after);
    if (b->role == OUT) memset(block + before, 0xFF, bytes);
    return block + before;
}

static bool block_intact(const buffer *b, const uint8_t *at, size_t bytes) {
    size_t before = guard_of(b);
    for (size_t i = 0; i < before; i++) {
        if ((at - before)[i] != 0xA5) return false;
    }
    for (size_t i = 0; b->role != IN && i < GUARD; i++) {
        if (at[bytes + i] != 0xA5) return false;
    }
    return true;
}

static void block_destroy(const buffer *b, uint8_t *at) { free(at - guard_of(b)); }

/* The outputs of one call. */
typedef struct result {
    uint8_t *out[MAX_BUFFERS];
    bool overrun;
} result;

static void result_free(const job *j, result *r) {
    for (int i = 0; i < j->buffers; i++) {
        if (r->out[i]) block_destroy(&j->buffer[i], r->out[i]);
    }
    memset(r, 0, sizeof *r);
}

/* Rows [first, first + count) of a buffer as a call sees them. */
static int64_t view_count(const job *j, const buffer *b, int64_t count) {
    return b->per_row && !j->ranged ? b->per_row * count : b->count;
}
static const uint8_t *view_at(const job *j, const buffer *b, int64_t first) {
    return (const uint8_t *)b->initial + (b->per_row && !j->ranged ? bytes_of(b, b->per_row * first) : 0);
}

/* One call on fresh copies of all buffers. Scratch is filled with NaN. */
static result call(job *j, const kernel_case *row, const mirt__kernels *table, mirt__team *team, int64_t first,
                   int64_t count, bool alias) {
    result r;
    uint8_t *block[MAX_BUFFERS];
    mirt__where where;
    const size_t scratch = j->scratch * (size_t)mirt__team_size(team);
    memset(&r, 0, sizeof r);
    for (int i = 0; i < j->buffers; i++) {
        const buffer *b = &j->buffer[i];
        size_t bytes = bytes_of(b, view_count(j, b, count));
        block[i] = block_create(b, bytes);
        if (b->role != OUT && bytes) memcpy(block[i], view_at(j, b, first), bytes);
        j->at[i] = block[i];
    }
    if (alias) {
        const buffer *b = &j->buffer[j->alias_in];
        memcpy(block[j->alias_out], block[j->alias_in], bytes_of(b, view_count(j, b, count)));
        j->at[j->alias_in] = j->at[j->alias_out];
    }
    where.team = team;
    where.scratch_per_thread = j->scratch;
    where.scratch = scratch ? mirt__aligned_alloc(scratch + GUARD) : NULL;
    where.shared = j->shared ? mirt__aligned_alloc(j->shared + GUARD) : NULL;
    if (where.scratch) memset(where.scratch, 0xFF, scratch + GUARD);
    if (where.shared) memset(where.shared, 0xFF, j->shared + GUARD);
    j->first = first;
    j->count = count;
    row->run(j, table, &where);
    for (int i = 0; i < GUARD; i++) {
        if (where.scratch && ((uint8_t *)where.scratch)[scratch + (size_t)i] != 0xFF) r.overrun = true;
        if (where.shared && ((uint8_t *)where.shared)[j->shared + (size_t)i] != 0xFF) r.overrun = true;
    }
    mirt__aligned_free(where.scratch);
    mirt__aligned_free(where.shared);
    for (int i = 0; i < j->buffers; i++) {
        const buffer *b = &j->buffer[i];
        size_t bytes = bytes_of(b, view_count(j, b, count));
        if (!block_intact(b, block[i], bytes)) r.overrun = true;
        if (b->role == IN && bytes && memcmp(block[i], view_at(j, b, first), bytes) != 0) r.overrun = true;
        if (b->role == IN) block_destroy(b, block[i]);
        else r.out[i] = block[i];
    }
    return r;
}

/* ---- comparisons */

/* Rows [first, first + count) of `whole` are the bits of `part`, which has only these; or they are near. */
static bool same_rows(const job *j, const result *whole, const result *part, int64_t first, int64_t count, bool bits) {
    for (int i = 0; i < j->buffers; i++) {
        const buffer *b = &j->buffer[i];
        if (b->role == IN) continue;
        size_t skip = b->per_row ? bytes_of(b, b->per_row * first) : 0, skip_part = j->ranged ? skip : 0;
        size_t bytes = bytes_of(b, b->per_row ? b->per_row * count : b->count);
        if (!bytes) continue;
        if (bits && memcmp(whole->out[i] + skip, part->out[i] + skip_part, bytes) != 0) return false;
        if (bits || b->unchecked) continue;
        const bool floats = b->dtype == MIRT_FLOAT32;
        if (!near_values(whole->out[i] + skip, part->out[i] + skip_part, floats ? bytes / sizeof(float) : bytes, floats,
                         b->roundings))
            return false;
    }
    return true;
}
static bool same_bits(const job *j, const result *whole, const result *part, int64_t first, int64_t count) {
    return same_rows(j, whole, part, first, count, true);
}

static double value_of(const buffer *b, const uint8_t *at, int64_t i) {
    if (b->dtype == MIRT_UINT8 || b->dtype == MIRT_BOOL) return at[i];
    if (b->dtype == MIRT_INT32) return ((const int32_t *)(const void *)at)[i];
    return (double)((const float *)(const void *)at)[i];
}

/* The largest error in roundings beyond what buffer i allows, and `more`; 0 when all is well. */
static double worst_excess(const job *j, const result *got, const result *expected, int i, double more) {
    const buffer *b = &j->buffer[i];
    /* Half of the numbers near zero: a variance is a half of what it is otherwise, and the shift by a first row costs
       up to twice as much. */
    const double allowed = (tiny_numbers ? 4 * b->roundings : b->roundings) + more;
    double largest = 1, worst = 0;
    if (b->role == IN || b->unchecked) return 0;
    for (int64_t e = 0; e < b->count; e++) {
        double y = fabs(value_of(b, expected->out[i], e));
        if (y < INFINITY && y > largest) largest = y;
    }
    for (int64_t e = 0; e < b->count; e++) {
        double x = value_of(b, got->out[i], e), y = value_of(b, expected->out[i], e);
        if (x == y || (x != x && y != y)) continue;
        double roundings = fabs(x - y) / (largest * FLT_EPSILON);
        if (!(roundings <= allowed) && !(roundings < worst)) worst = roundings;
    }
    return worst;
}

/* ---- the table */

typedef struct tally {
    int shapes;
    int wrong, teams, rows, alias, overrun;
} tally;

static void note(const kernel_case *row, int shape, const char *table, const char *what, double number) {
    printf("# %s, shape %d, %s: %s (%g)\n", row->name, shape, table, what, number);
}

/* The same rows alone, elsewhere in memory. */
static void check_rows(job *j, const kernel_case *row, int shape, const mirt__kernels *table, const result *whole,
                       tally *t) {
    int64_t n = j->rows;
    const int64_t part[][2] = {{0, 1}, {1, n - 1}, {n - 1, 1}, {n / 2, n - n / 2}, {0, n / 2}};
    for (int i = 0; i < j->buffers; i++) {
        if (j->buffer[i].role != IN && j->buffer[i].count && !j->buffer[i].per_row) return;
    }
    for (int p = 0; n > 1 && p < MIRT__COUNT(part); p++) {
        result r = call(j, row, table, teams[p % TEAMS], part[p][0], part[p][1], false);
        if (!same_rows(j, whole, &r, part[p][0], part[p][1], lawful(table))) {
            note(row, shape, table->name, "other bits for a part of the rows, part", p);
            t->rows++;
        }
        t->overrun += r.overrun;
        result_free(j, &r);
    }
}

static void check_table(job *j, const kernel_case *row, int shape, const mirt__kernels *table, const result *expected,
                        result *first, tally *t) {
    t->shapes++;
    *first = call(j, row, table, NULL, 0, j->rows, false);
    t->overrun += first->overrun;
    if (first->overrun) note(row, shape, table->name, "wrote outside its outputs", 0);
    for (int i = 0; i < j->buffers; i++) {
        double excess = worst_excess(j, first, expected, i, lawful(table) ? 0 : j->library);
        if (excess == 0) continue;
        note(row, shape, table->name, "not the reference's values; roundings", excess);
        t->wrong++;
    }
    for (int team = 1; team < TEAMS; team++) {
        result r = call(j, row, table, teams[team], 0, j->rows, false);
        if (!same_bits(j, first, &r, 0, j->rows)) {
            note(row, shape, table->name, "other bits from another team, threads", team + 1);
            t->teams++;
        }
        t->overrun += r.overrun;
        result_free(j, &r);
    }
    if (j->alias_in >= 0) {
        result r = call(j, row, table, teams[1], 0, j->rows, true);
        if (!same_bits(j, first, &r, 0, j->rows)) {
            note(row, shape, table->name, "other bits in place", 0);
            t->alias++;
        }
        result_free(j, &r);
    }
    check_rows(j, row, shape, table, first, t);
}

/* AVX2, AVX-512 and NEON must agree in every bit; plain C may lack a fused multiply-add. */
static bool is_simd(const mirt__kernels *k) {
    return strcmp(k->name, "plain") != 0 && strcmp(k->name, "reference") != 0 && lawful(k);
}

/* GPUs keep denormals: for these the reference does too. */
static result expected_of(job *j, const kernel_case *row, const mirt__kernels *reference, bool keeps_denormals) {
    if (!keeps_denormals) return call(j, row, reference, NULL, 0, j->rows, false);
    MIRT__OUTSIDE;
    return call(j, row, reference, NULL, 0, j->rows, false);
}

static void check_kernel(const kernel_case *row, const mirt__kernels *const *tables, int count) {
    tally tally_of[8];
    const bool small = small_tier();
    const char *numbers = tiny_numbers ? ", denormal numbers among the inputs" : "";
    int differ = 0, simd = 0;
    memset(tally_of, 0, sizeof tally_of);
    for (int t = 0; t < count; t++) simd += is_simd(tables[t]);
    for (int shape = 0; row->shapes[shape][0] != SHAPE_END; shape++) {
        job j;
        if (row->shapes[shape][0] == SHAPE_LARGE && (small || tiny_numbers)) break;
        if (row->shapes[shape][0] == SHAPE_LARGE) continue;
        result results[8];
        memset(&j, 0, sizeof j);
        memset(results, 0, sizeof results);
        j.s = row->shapes[shape];
        j.alias_in = j.alias_out = -1;
        j.random = mirt__random_stream(1, (uint64_t)shape);
        row->plan(&j);
        result expected[2];
        for (int k = 0; k < 2; k++) expected[k] = expected_of(&j, row, tables[count - 1], k == 1);
        for (int t = 0; t < count; t++)
            check_table(&j, row, shape, tables[t], &expected[!lawful(tables[t])], &results[t], &tally_of[t]);
        for (int t = 1; t < simd; t++) {
            if (same_bits(&j, &results[0], &results[t], 0, j.rows)) continue;
            note(row, shape, tables[t]->name, "other bits than the best table", 0);
            differ++;
        }
        for (int t = 0; t < count; t++) result_free(&j, &results[t]);
        for (int k = 0; k < 2; k++) result_free(&j, &expected[k]);
        for (int i = 0; i < j.buffers; i++) free(j.buffer[i].initial);
    }
    for (int t = 0; t < count; t++) {
        const char *name = tables[t]->name;
        const tally *n = &tally_of[t];
        ok(n->wrong == 0, "%s %s%s: the reference's values on %d shapes", row->name, name, numbers, n->shapes);
        ok(n->teams == 0 && n->rows == 0 && n->alias == 0,
           "%s %s%s: the same bits from any team, for any rows, in place", row->name, name, numbers);
        ok(n->overrun == 0, "%s %s%s: writes its outputs only", row->name, name, numbers);
    }
    if (simd > 1) ok(differ == 0, "%s%s: the same bits from all %d instruction sets", row->name, numbers, simd);
}

/* ---- the law itself, spelled out */

static void fill_units(float *x, int64_t count, uint64_t key) {
    mirt__random random = mirt__random_stream(2, key);
    for (int64_t i = 0; i < count; i++) x[i] = 2 * mirt__random_unit(&random) - 1;
}

/* An output of a product is one chain of fused multiply-adds in ascending k from zero. */
static void check_gemm_chain(const mirt__kernels *k) {
    enum { M = 7, N = 37, K = 1300 };
    static float a[M * K], b[K * N], c[M * N];
    mirt__gemm g;
    mirt__where where;
    int differ = 0;
    memset(&g, 0, sizeof g);
    memset(&where, 0, sizeof where);
    fill_units(a, M * K, 1);
    fill_units(b, K * N, 2);
    g.m = M;
    g.n = N;
    g.k = K;
    g.a.data = a;
    g.a_row = K;
    g.a_col = g.b_col = 1;
    g.b = b;
    g.b_row = N;
    g.c = c;
    where.scratch_per_thread = mirt__gemm_scratch(&g);
    where.scratch = mirt__aligned_alloc(where.scratch_per_thread);
    k->gemm(&g, &where);
    mirt__aligned_free(where.scratch);
    for (int i = 0; i < M * N; i++) {
        float sum = 0;
        for (int p = 0; p < K; p++) sum = fmaf(a[i / N * K + p], b[p * N + i % N], sum);
        differ += memcmp(&sum, &c[i], sizeof sum) != 0;
    }
    ok(differ == 0, "gemm %s: each output is one chain of FMAs in ascending k", k->name);
}

/* A weight gradient: chains over the rows of a chunk, and mirt__tree over the chunks. */
static void check_weight_grad_chain(const mirt__kernels *k) {
    enum {
        ROWS = 45, H = 6, W = 5, CI = 3, CO = 7, KH = 3, KW = 3, OH = H - KH + 1, OW = W - KW + 1, COUNT = KH * KW * CI
        * CO
    };
    static float x[ROWS * H * W * CI], dy[ROWS * OH * OW * CO], dk[COUNT], part[ROWS * COUNT];
    mirt__conv_weight_grad g;
    mirt__where where;
    memset(&g, 0, sizeof g);
    memset(&where, 0, sizeof where);
    fill_units(x, MIRT__COUNT(x), 3);
    fill_units(dy, MIRT__COUNT(dy), 4);
    memset(part, 0, sizeof part);
    g.s.rows = ROWS;
    g.s.h = H;
    g.s.w = W;
    g.s.ci = CI;
    g.s.co = CO;
    g.s.oh = OH;
    g.s.ow = OW;
    g.s.kh = KH;
    g.s.kw = KW;
    g.s.stride_h = g.s.stride_w = g.s.dilation_h = g.s.dilation_w = g.s.groups = 1;
    g.x.data = x;
    g.dy.data = dy;
    g.dkernel = dk;
    where.scratch_per_thread = mirt__conv_scratch(&g.s);
    where.scratch = mirt__aligned_alloc(where.scratch_per_thread);
    where.shared = mirt__aligned_alloc(mirt__conv_shared(&g.s) + 1);
    k->conv_weight_grad(&g, &where);
    mirt__aligned_free(where.scratch);
    mirt__aligned_free(where.shared);
    const mirt__conv_grad_view view = mirt__conv_grad_view_of(&g.s);
    for (int i = 0; i < COUNT; i++) {
        int o = i % CO, c = i / CO % CI, kx = i / CO / CI % KW, ky = i / CO / CI / KW;
        for (int p = 0; p < ROWS * OH * OW; p++) {
            int row = p / (OH * OW), oy = p / OW % OH, ox = p % OW;
            float *sum = &part[(row * OH + oy) / view.chunk * COUNT + i];
            *sum = fmaf(x[((row * H + oy + ky) * W + ox + kx) * CI + c], dy[p * CO + o], *sum);
        }
    }
    mirt__tree(part, view.chunks, COUNT, COUNT);
    ok(view.chunks > 1 && memcmp(dk, part, sizeof dk) == 0,
       "conv_weight_grad %s: chains over %d chunks of rows, summed by a tree", k->name, (int)view.chunks);
}

/* What functions with the most rows have room for is enough for fewer, though these may be cut into more chunks. */
static void check_room_for_fewer(void) {
    static const int shapes[][5] = {{28, 32, 192, 1, 1},    {14, 64, 384, 1, 1},   {56, 24, 144, 1, 1},
                                    {7, 160, 200, 1, 1},    {28, 96, 96, 96, 3},   {14, 576, 576, 576, 3},
                                    {7, 960, 960, 960, 3},  {32, 3, 32, 1, 3},     {28, 64, 64, 1, 3}};
    bool enough = true;
    for (int i = 0; i < MIRT__COUNT(shapes); i++) {
        mirt__conv s;
        size_t shared = 0, scratch = 0;
        memset(&s, 0, sizeof s);
        s.h = s.w = s.oh = s.ow = shapes[i][0];
        s.ci = shapes[i][1];
        s.co = shapes[i][2];
        s.groups = shapes[i][3];
        s.kh = s.kw = shapes[i][4];
        s.pad_top = s.pad_left = s.kh / 2;
        s.stride_h = s.stride_w = s.dilation_h = s.dilation_w = 1;
        for (s.rows = 1; s.rows <= 300; s.rows++) {
            const mirt__conv_grad_view grad = mirt__conv_grad_view_of(&s);
            size_t used = (size_t)(5 * (s.ci + s.co) + grad.chunks * grad.sum) * sizeof(float),
                   room = mirt__conv_shared(&s);
            if (mirt__is_depthwise(&s)) {
                used = (size_t)(mirt__depth_cut_of(&s).parts * mirt__conv_partial_floats(&s)) * sizeof(float);
            } else if (mirt__both_applies(&s)) {
                const mirt__both_view both = mirt__both_view_of(&s);
                used = both.sums + (size_t)(5 * s.ci + both.chunks * grad.sum) * sizeof(float);
                room = both.shared;
            }
            enough = enough && room >= used && room >= shared && mirt__conv_scratch(&s) >= scratch;
            shared = room;
            scratch = mirt__conv_scratch(&s);
        }
    }
    ok(enough, "room for 300 images is enough for 1 to 299");
}

/* Blocks that are divided among threads are not larger than before, and have all rows. */
static void check_shared_views(void) {
    static const int shapes[][4] = {{14, 576, 96, 1}, {28, 192, 32, 1}, {7, 64, 8, 3}, {56, 24, 144, 1},
                                    {1, 3136, 64, 1}, {1, 4200, 8, 1},  {9, 3, 5, 3},  {31, 16, 16, 3}};
    int wrong = 0;
    for (int i = 0; i < MIRT__COUNT(shapes) * 64; i++) {
        const int *shape = shapes[i / 64];
        mirt__conv s;
        memset(&s, 0, sizeof s);
        s.h = s.w = s.oh = s.ow = shape[0];
        s.ci = shape[1];
        s.co = shape[2];
        s.kh = s.kw = shape[3];
        s.pad_top = s.pad_left = s.kh / 2;
        s.groups = s.stride_h = s.stride_w = s.dilation_h = s.dilation_w = 1;
        for (s.rows = 0; s.rows <= 70; s.rows++) {
            const mirt__conv_view before = mirt__conv_view_of(&s, false);
            mirt__conv_view v = before;
            mirt__conv_view_share(&v, i % 64 + 1, i % 2 ? 4 : 6);
            wrong += v.lines > before.lines || v.input_tile > before.input_tile || v.blocks < before.blocks;
            if (before.images > 1 || before.blocks == 0) continue;
            wrong += v.parts * v.lines < v.target_h || (v.parts - 1) * v.lines >= v.target_h ||
                     v.blocks != v.s.rows * v.parts;
        }
    }
    ok(wrong == 0, "blocks for 1 to 64 threads: %d are wrong", wrong);
}

/* A reduction: chunks of MIRT__REDUCE_CHUNK in row-major order, and mirt__tree over the chunks. */
static void check_reduce_chunks(const mirt__kernels *k) {
    enum { N = 11 * MIRT__REDUCE_CHUNK + 7, CHUNKS = 12 };
    static float x[N];
    float part[CHUNKS], y;
    mirt__reduce r;
    mirt__where where;
    memset(&r, 0, sizeof r);
    memset(&where, 0, sizeof where);
    memset(part, 0, sizeof part);
    fill_units(x, N, 5);
    r.kind = MIRT__REDUCE_SUM;
    r.rank = 1;
    r.axes = 1;
    r.dim[0] = N;
    r.x = x;
    r.y = &y;
    where.scratch_per_thread = mirt__reduce_scratch(&r);
    where.scratch = mirt__aligned_alloc(where.scratch_per_thread);
    k->reduce(&r, &where);
    mirt__aligned_free(where.scratch);
    for (int i = 0; i < N; i++) part[i / MIRT__REDUCE_CHUNK] += x[i];
    mirt__tree(part, CHUNKS, 1, 1);
    ok(memcmp(part, &y, sizeof y) == 0, "reduce %s: chunks of %d, summed by a tree", k->name, MIRT__REDUCE_CHUNK);
}

enum { FUSED_ROWS = 3, FUSED_PIXELS = 301, FUSED_CHANNELS = 21, FUSED = FUSED_ROWS * FUSED_PIXELS * FUSED_CHANNELS };

/* Dense strides, but for dimensions that are repeated, by bits. */
static void fused_strides(const int64_t *dim, unsigned repeats, int64_t *stride) {
    for (int64_t i = 2, step = 1; i >= 0; i--) {
        stride[i] = repeats >> i & 1 ? 0 : step;
        if (!(repeats >> i & 1)) step *= dim[i];
    }
}

/* A product with an addend is the product, rounded, and then the sum; the result may replace the addend. */
static void check_product_sums(const mirt__kernels *k, unsigned b_repeats, unsigned c_repeats, bool replaces) {
    static float a[FUSED], b[FUSED], c[FUSED], want[FUSED], have[FUSED];
    mirt__binary args;
    mirt__where where;
    int64_t place = 0;
    memset(&args, 0, sizeof args);
    memset(&where, 0, sizeof where);
    where.team = teams[2];
    fill_units(a, FUSED, 6);
    fill_units(b, FUSED, 7);
    fill_units(c, FUSED, 8);
    args.kind = MIRT__MULTIPLY;
    args.rank = 3;
    args.dim[0] = FUSED_ROWS;
    args.dim[1] = FUSED_PIXELS;
    args.dim[2] = FUSED_CHANNELS;
    fused_strides(args.dim, 0, args.a_stride);
    fused_strides(args.dim, b_repeats, args.b_stride);
    fused_strides(args.dim, c_repeats, args.c_stride);
    args.a = a;
    args.b = b;
    args.y = want;
    k->binary(&args, &where);
    for (int64_t i = 0; i < FUSED; i++) {
        place = i / (FUSED_PIXELS * FUSED_CHANNELS) * args.c_stride[0] +
                i / FUSED_CHANNELS % FUSED_PIXELS * args.c_stride[1] + i % FUSED_CHANNELS * args.c_stride[2];
        want[i] += c[place];
    }
    args.c = c;
    args.y = replaces ? c : have;
    k->binary(&args, &where);
    ok(memcmp(args.y, want, sizeof want) == 0, "%s: products with an addend, repeated in %u and %u%s", k->name,
       b_repeats, c_repeats, replaces ? ", which they replace" : "");
}

/* Sums of products are those of the stored products, also of numbers that are bfloat16. */
static void check_product_reductions(const mirt__kernels *k, unsigned axes, bool half) {
    static float x[FUSED], by[FUSED], product[FUSED], want[FUSED], have[FUSED];
    static uint16_t short_x[FUSED], short_by[FUSED];
    mirt__reduce r;
    mirt__where where;
    memset(&r, 0, sizeof r);
    memset(&where, 0, sizeof where);
    memset(want, 0, sizeof want);
    memset(have, 0, sizeof have);
    fill_units(x, FUSED, 9);
    fill_units(by, FUSED, 10);
    for (int i = 0; half && i < FUSED; i++) { /* the upper halves */
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        short_x[i] = (uint16_t)(bits >> 16);
        bits &= 0xFFFF0000u;
        memcpy(&x[i], &bits, sizeof bits);
        memcpy(&bits, &by[i], sizeof bits);
        short_by[i] = (uint16_t)(bits >> 16);
        bits &= 0xFFFF0000u;
        memcpy(&by[i], &bits, sizeof bits);
    }
    for (int i = 0; i < FUSED; i++) product[i] = x[i] * by[i];
    r.kind = MIRT__REDUCE_MEAN;
    r.rank = 3;
    r.axes = axes;
    r.dim[0] = FUSED_ROWS;
    r.dim[1] = FUSED_PIXELS;
    r.dim[2] = FUSED_CHANNELS;
    r.x = product;
    r.y = want;
    where.team = teams[2];
    where.scratch_per_thread = mirt__reduce_scratch(&r);
    where.scratch = mirt__aligned_alloc(3 * where.scratch_per_thread);
    k->reduce(&r, &where);
    r.x = half ? (void *)short_x : (void *)x;
    r.by = half ? (void *)short_by : (void *)by;
    if (half) r.x_dtype = (mirt_dtype)MIRT__BFLOAT16;
    r.y = have;
    k->reduce(&r, &where);
    mirt__aligned_free(where.scratch);
    ok(memcmp(want, have, sizeof want) == 0, "%s: means of products%s over axes %u", k->name,
       half ? " of bfloat16" : "", axes);
}

static void check_fused_products(const mirt__kernels *k) {
    for (unsigned repeats = 0; repeats < 8; repeats++) {
        check_product_sums(k, repeats, 0, false);
        check_product_sums(k, repeats, 0, true);
        check_product_sums(k, 2, repeats, false);
        if (!repeats) continue;
        check_product_reductions(k, repeats, false);
        check_product_reductions(k, repeats, true);
    }
}

/* The tree as its definition says it. */
static float tree_of(const float *x, int lo, int hi) {
    int left = 1;
    if (hi - lo == 1) return x[lo];
    while (left * 2 < hi - lo) left *= 2;
    return tree_of(x, lo, lo + left) + tree_of(x, lo + left, hi);
}

static void check_tree(void) {
    int differ = 0;
    for (int n = 1; n <= 33; n++) {
        float x[33][3], column[33];
        fill_units(x[0], 99, (uint64_t)n);
        for (int i = 0; i < n; i++) column[i] = x[i][1];
        float expected = tree_of(column, 0, n);
        mirt__tree(x[0], n, 3, 2);
        differ += memcmp(&expected, &x[0][1], sizeof expected) != 0;
    }
    ok(differ == 0, "mirt__tree adds 1 to 33 parts in the order of its definition");
}

/* The vectors of Random123, the authors' own library. */
static void check_philox(void) {
    static const uint32_t known[3][10] = {{0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                          {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
                                           0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                          {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
                                           0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        mirt__philox(known[i], known[i] + 4, out);
        ok(memcmp(out, known[i] + 6, sizeof out) == 0, "Philox4x32-10, known answer %d", i);
    }
}

/* Whether the system says that the processor has AMX for bfloat16: then its vectors are slow at that. */
static bool has_amx(void) {
    static char line[8192];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !found && fgets(line, sizeof line, file)) found = strstr(line, " amx_bf16") != NULL;
    if (file) fclose(file);
    return found;
}

static void check_choice(const mirt__kernels *const *tables, int count) {
    const mirt__kernels *best = tables[strcmp(tables[0]->name, "avx512bf16") == 0 && has_amx() ? 1 : 0];
    ok(strcmp(tables[count - 1]->name, "reference") == 0, "the reference is the last of %d tables", count);
    for (int t = 0; t < count; t++) {
        setenv("MIRT_CPU", tables[t]->name, 1);
        ok(mirt__kernels_best() == tables[t], "MIRT_CPU=%s chooses it", tables[t]->name);
    }
    setenv("MIRT_CPU", "avx513", 1);
    ok(!mirt__kernels_best() && mirt_last_status() == MIRT_E_DEVICE && strstr(mirt_last_error(), "\"avx513\"") &&
           strstr(mirt_last_error(), tables[0]->name) && !mirt_mirrored("1") && mirt_last_status() == MIRT_E_DEVICE,
       "no strategy with kernels that are not there: %s", mirt_last_error());
    setenv("MIRT_CPU", "", 1);
    ok(mirt__kernels_best() == best, "an empty MIRT_CPU says nothing");
    unsetenv("MIRT_CPU");
    ok(mirt__kernels_best() == best, "without it %s is chosen", best->name);
}

/* Arguments are names of kernels, these alone. */
int main(int argc, char **argv) {
    MIRT__ENTER; /* kernels run with denormals flushed */
    int count;
    const mirt__kernels *const *tables = mirt__kernel_tables(&count);
    for (int i = 1; i < TEAMS; i++) teams[i] = mirt__team_create(i + 1, false);
    check_philox();
    check_tree();
    check_room_for_fewer();
    check_shared_views();
    if (lawful(tables[0])) check_choice(tables, count);
    aligned = getenv("MIRT_TEST_ALIGNED") != NULL;
    /* A row for every function of the table, four for the loss: each takes a pointer's room, as do the name and the
       flags. */
    ok(sizeof(mirt__kernels) == sizeof(void *) * (MIRT__COUNT(kernel_cases) - 1), "all %d kernels are here",
       MIRT__COUNT(kernel_cases) - 3);
    for (int i = 0; i < MIRT__COUNT(kernel_cases); i++) {
        bool wanted = argc < 2;
        for (int k = 1; k < argc; k++) wanted = wanted || strcmp(argv[k], kernel_cases[i].name) == 0;
        for (int tiny = 0; wanted && tiny < 2; tiny++) {
            tiny_numbers = tiny;
            check_kernel(&kernel_cases[i], tables, count);
        }
        tiny_numbers = false;
    }
    for (int t = 0; t + 1 < count; t++) {
        if (lawful(tables[t])) check_reduce_chunks(tables[t]);
        if (tables[t]->fused_products) check_fused_products(tables[t]);
        if (!is_simd(tables[t])) continue;
        check_gemm_chain(tables[t]);
        check_weight_grad_chain(tables[t]);
    }
    for (int i = 1; i < TEAMS; i++) mirt__team_destroy(teams[i]);
    return done_testing();
}
