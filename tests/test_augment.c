/* Augmentation: every transform against Keras (golden/augment.h), several as one warp against their matrices' product, what is drawn and
   by what it is keyed, as layers and as stages, and what it says when it is misused. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/augment.h"
#include "mirror_util.h"

#include <unistd.h>

static char path[512];

static float *image_of(const mirt_shape *shape, unsigned seed) {
    int64_t count = mirt__shape_count(shape);
    float *x = (float *)malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = golden_uniform(seed, (uint32_t)i) / 2 + 0.5f;
    return x;
}

/* Reads a list for images of this shape. */
static int transforms_of(const mirt_augmentation *list, int count, const mirt_shape *shape, mirt__transform *out) {
    int64_t h = shape->dim[0], w = shape->dim[1];
    for (int i = 0; i < count; i++) {
        if (!mirt__transform_of(&list[i], h, w, shape->dim[2], &out[i])) return 0;
        out[i].key = (uint64_t)i + 1;
        h = out[i].oh;
        w = out[i].ow;
    }
    return count;
}

static void augment_once(const mirt__transform *t, int count, uint64_t row, mirt_dtype x_dtype, const void *x, mirt_dtype y_dtype, void *y) {
    mirt__augment a;
    memset(&a, 0, sizeof a);
    a.transform = t;
    a.count = count;
    a.seed = 5;
    a.row = row;
    a.x_dtype = x_dtype;
    a.y_dtype = y_dtype;
    a.x = x;
    a.y = y;
    a.room = mirt__aligned_alloc(mirt__augment_room(t, count, x_dtype, y_dtype) + 1);
    mirt__augment_image(&a);
    mirt__aligned_free(a.room);
}

/* Images of rows [row, row + rows), float32, by a table of kernels. */
static void augment_by(const mirt__kernels *kernels, const mirt__transform *t, int count, uint64_t row, int64_t rows, const float *x, float *y) {
    mirt__augment_rows a;
    mirt__where where;
    memset(&a, 0, sizeof a);
    memset(&where, 0, sizeof where);
    a.transform = t;
    a.count = count;
    a.seed = 5;
    a.first_row = row;
    a.rows = rows;
    a.x_dtype = MIRT_FLOAT32;
    a.x = x;
    a.y = y;
    where.scratch_per_thread = mirt__augment_room(t, count, MIRT_FLOAT32, MIRT_FLOAT32) + 1;
    where.scratch = mirt__aligned_alloc(where.scratch_per_thread);
    kernels->augment(&a, &where);
    mirt__aligned_free(where.scratch);
}

/* The greatest distance of norm and products, as of one number, and of the first numbers from the goldens. */
static double distance(const float *y, int64_t count, double norm, const double *product, const double *first) {
    const double root = sqrt((double)count);
    double sum = 0, worst = 0, square = 0;
    for (int64_t i = 0; i < count; i++) square += (double)y[i] * (double)y[i];
    worst = fabs(sqrt(square) - norm) / root;
    for (int k = 0; k < GOLDEN_PROJECTIONS; k++) {
        sum = 0;
        for (int64_t i = 0; i < count; i++) sum += (double)y[i] * (double)golden_uniform(1000 + (uint32_t)k, (uint32_t)i);
        if (fabs(sum - product[k]) / root > worst) worst = fabs(sum - product[k]) / root;
    }
    for (int k = 0; first && k < GOLDEN_FIRST && k < count; k++) {
        if (fabs((double)y[k] - first[k]) > worst) worst = fabs((double)y[k] - first[k]);
    }
    return worst;
}

static void test_goldens(void) {
    for (int i = 0; i < MIRT__COUNT(golden_augments); i++) {
        const golden_augment *g = &golden_augments[i];
        mirt__transform t[3];
        float *x = image_of(&g->shape, g->seed), *y = (float *)calloc((size_t)mirt__shape_count(&g->y_shape), sizeof *y);
        const int count = transforms_of(g->list, g->count, &g->shape, t);
        bool shaped = count && t[count - 1].oh == g->y_shape.dim[0] && t[count - 1].ow == g->y_shape.dim[1];
        int tables;
        const mirt__kernels *const *table = mirt__kernel_tables(&tables);
        double worst = shaped ? 0 : 1e9;
        for (int k = 0; k < tables && shaped; k++) {
            augment_by(table[k], t, count, 3, 1, x, y);
            worst = fmax(worst, distance(y, mirt__shape_count(&g->y_shape), g->norm, g->product, g->first));
        }
        ok(worst < 2e-5, "%s (%lld, %lld, %lld): %.1e from Keras", g->label, (long long)g->shape.dim[0], (long long)g->shape.dim[1], (long long)g->shape.dim[2], worst);
        free(x);
        free(y);
    }
}

static void test_contrast(void) {
    for (int i = 0; i < MIRT__COUNT(golden_contrasts); i++) {
        const golden_contrast *g = &golden_contrasts[i];
        mirt_augmentation d;
        mirt__transform t;
        memset(&d, 0, sizeof d);
        d.kind = MIRT_RANDOM_CONTRAST;
        d.value_range[0] = g->low;
        d.value_range[1] = g->high;
        const int count = transforms_of(&d, 1, &g->shape, &t);
        t.low[0] = t.high[0] = (float)(g->factor - 1);
        float *x = image_of(&g->shape, g->seed), *y = (float *)calloc((size_t)mirt__shape_count(&g->shape), sizeof *y);
        augment_once(&t, count, 0, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
        double worst = distance(y, mirt__shape_count(&g->shape), g->norm, g->product, NULL);
        ok(count && worst < 2e-6, "random_contrast by %g: %.1e from Keras", g->factor, worst);
        free(x);
        free(y);
    }
}

/* >>flips and crops: where each pixel goes */

static mirt__transform one(mirt_augmentation_kind kind, mirt_flip_mode mode, int height, int width, int64_t h, int64_t w, int64_t c) {
    mirt_augmentation d;
    mirt__transform t;
    memset(&d, 0, sizeof d);
    d.kind = kind;
    d.mode = mode;
    d.height = height;
    d.width = width;
    if (!mirt__transform_of(&d, h, w, c, &t)) memset(&t, 0, sizeof t);
    return t;
}

static void test_flips(void) {
    enum { H = 5, W = 7, C = 3 };
    const char *const names[] = {"horizontal_and_vertical", "horizontal", "vertical"};
    const mirt_shape shape = mirt_make_shape(H, W, C, 0, 0, 0);
    float *x = image_of(&shape, 1), y[H * W * C];
    unsigned char bytes[H * W * C], flipped[H * W * C];
    for (int i = 0; i < H * W * C; i++) bytes[i] = (unsigned char)(7 * i);
    for (int mode = 0; mode < MIRT__FLIP_COUNT; mode++) {
        mirt__transform t = one(MIRT_RANDOM_FLIP, (mirt_flip_mode)mode, 0, 0, H, W, C);
        int seen[4] = {0}, wrong = 0;
        for (uint64_t row = 0; row < 4000; row++) {
            int found = -1;
            augment_once(&t, 1, row, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
            augment_once(&t, 1, row, MIRT_UINT8, bytes, MIRT_UINT8, flipped);
            for (int way = 0; way < 4; way++) {
                bool same = true;
                for (int i = 0; i < H * W * C; i++) {
                    const int r = i / C / W, k = i / C % W, from = ((way & 2 ? H - 1 - r : r) * W + (way & 1 ? W - 1 - k : k)) * C + i % C;
                    same = same && y[i] == x[from] && flipped[i] == bytes[from];
                }
                if (same) found = way;
            }
            if (found < 0) wrong++;
            else seen[found]++;
        }
        const bool possible[4] = {true, mode != MIRT_FLIP_VERTICAL, mode != MIRT_FLIP_HORIZONTAL, mode == MIRT_FLIP_HORIZONTAL_AND_VERTICAL};
        bool fair = wrong == 0;
        for (int way = 0; way < 4; way++) {
            const double want = possible[way] ? (mode == 0 ? 1000 : 2000) : 0;
            fair = fair && fabs(seen[way] - want) <= 5 * sqrt(4000 * 0.25 * 0.75) * possible[way];
        }
        ok(fair, "RandomFlip %s: %d as it was, %d mirrored, %d upside down, %d both, %d something else", names[mode], seen[0], seen[1], seen[2], seen[3], wrong);
    }
    free(x);
}

static void test_crops(void) {
    enum { H = 6, W = 8, C = 2, OH = 4, OW = 5 };
    const mirt_shape shape = mirt_make_shape(H, W, C, 0, 0, 0);
    float *x = image_of(&shape, 2), y[OH * OW * C];
    mirt__transform t = one(MIRT_RANDOM_CROP, MIRT_FLIP_HORIZONTAL, OH, OW, H, W, C);
    int seen[H - OH + 1][W - OW + 1], wrong = 0, least = 100000, most = 0;
    memset(seen, 0, sizeof seen);
    for (uint64_t row = 0; row < 6000; row++) {
        bool any = false;
        augment_once(&t, 1, row, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
        for (int r = 0; r <= H - OH; r++) {
            for (int k = 0; k <= W - OW; k++) {
                bool same = true;
                for (int i = 0; i < OH * OW * C; i++) same = same && y[i] == x[((r + i / C / OW) * W + k + i / C % OW) * C + i % C];
                if (same) seen[r][k]++, any = true;
            }
        }
        wrong += !any;
    }
    for (int i = 0; i < (H - OH + 1) * (W - OW + 1); i++) {
        const int times = seen[i / (W - OW + 1)][i % (W - OW + 1)];
        least = times < least ? times : least;
        most = times > most ? times : most;
    }
    ok(wrong == 0 && least > 390 && most < 610, "RandomCrop: all %d places come equally often (%d to %d of 500)", (H - OH + 1) * (W - OW + 1), least, most);
    free(x);
}

/* >>what is drawn */

/* Mean and variance of n numbers that should be uniform between low and high. */
static void uniform_ok(const char *name, const double *v, int n, double low, double high) {
    double sum = 0, square = 0, least = v[0], most = v[0];
    for (int i = 0; i < n; i++) {
        sum += v[i];
        least = v[i] < least ? v[i] : least;
        most = v[i] > most ? v[i] : most;
    }
    for (int i = 0; i < n; i++) square += (v[i] - sum / n) * (v[i] - sum / n);
    const double span = high - low, mean = (low + high) / 2, deviation = span / sqrt(12.0 * n);
    ok(fabs(sum / n - mean) < 5 * deviation && fabs(square / n / (span * span / 12) - 1) < 5 / sqrt(n * 0.8) && least >= low - 1e-6 && most <= high + 1e-6 &&
           least < low + span / 100 && most > high - span / 100,
       "%s: %d draws from %.4f to %.4f, mean %.4f, for [%g, %g]", name, n, least, most, sum / n, low, high);
}

static void test_draws(void) {
    enum { N = 20000 };
    static double drawn[4][N];
    mirt_augmentation d;
    mirt__transform t;
    double unit[4], m[6];
    memset(&d, 0, sizeof d);
    d.kind = MIRT_RANDOM_ROTATION;
    d.factor[0] = 0.1f;
    bool good = mirt__transform_of(&d, 5, 9, 3, &t);
    for (int i = 0; i < N; i++) {
        mirt__transform_draw(&t, 3, (uint64_t)i, 0, unit);
        mirt__transform_matrix(&t, unit, m);
        drawn[0][i] = atan2(m[3], m[0]) / (2 * 3.14159265358979);
    }
    uniform_ok("RandomRotation 0.1, in turns", drawn[0], N, -0.1, 0.1);
    d.kind = MIRT_RANDOM_ZOOM;
    d.height_factor[0] = -0.3f;
    d.height_factor[1] = 0.2f;
    d.width_factor[1] = -0.5f;
    good = good && mirt__transform_of(&d, 5, 9, 3, &t);
    for (int i = 0; i < N; i++) {
        mirt__transform_draw(&t, 3, (uint64_t)i, 0, unit);
        mirt__transform_matrix(&t, unit, m);
        drawn[0][i] = m[4];
        drawn[1][i] = m[0];
    }
    uniform_ok("RandomZoom (-0.3, 0.2), of heights", drawn[0], N, 0.7, 1.2);
    uniform_ok("RandomZoom (-0.5, 0), of widths", drawn[1], N, 0.5, 1);
    double both = 0;
    for (int i = 0; i < N; i++) both += (drawn[0][i] - 0.95) / (0.5 / sqrt(12)) * (drawn[1][i] - 0.75) / (0.5 / sqrt(12)) / N;
    ok(fabs(both) < 5 / sqrt((double)N), "... heights and widths are independent (correlation %.4f)", both);
    d.width_factor[1] = 0;
    good = good && mirt__transform_of(&d, 5, 9, 3, &t);
    bool paired = true;
    for (int i = 0; i < 100; i++) {
        mirt__transform_draw(&t, 3, (uint64_t)i, 0, unit);
        mirt__transform_matrix(&t, unit, m);
        paired = paired && m[0] == m[4];
    }
    ok(paired, "RandomZoom without a width_factor keeps the aspect ratio");
    d.kind = MIRT_RANDOM_TRANSLATION;
    d.height_factor[0] = 0.2f;
    d.height_factor[1] = 0;
    d.width_factor[0] = 0.1f;
    d.width_factor[1] = 0.3f;
    good = good && mirt__transform_of(&d, 5, 9, 3, &t);
    for (int i = 0; i < N; i++) {
        mirt__transform_draw(&t, 3, 7, (uint64_t)i, unit);
        mirt__transform_matrix(&t, unit, m);
        drawn[0][i] = -m[5] / 5;
        drawn[1][i] = -m[2] / 9;
    }
    uniform_ok("RandomTranslation 0.2, of heights", drawn[0], N, -0.2, 0.2);
    uniform_ok("RandomTranslation (0.1, 0.3), of widths", drawn[1], N, 0.1, 0.3);
    d.kind = MIRT_RANDOM_CONTRAST;
    d.factor[0] = 0.4f;
    good = good && mirt__transform_of(&d, 1, 2, 1, &t);
    for (int i = 0; i < N; i++) {
        float x[2] = {100, 110}, y[2];
        augment_once(&t, 1, (uint64_t)i, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
        drawn[0][i] = (double)(y[1] - y[0]) / 10;
    }
    uniform_ok("RandomContrast 0.4", drawn[0], N, 0.6, 1.4);
    d.kind = MIRT_RANDOM_BRIGHTNESS;
    good = good && mirt__transform_of(&d, 1, 2, 1, &t);
    for (int i = 0; i < N; i++) {
        float x[2] = {127.5f, 127.5f}, y[2];
        augment_once(&t, 1, (uint64_t)i, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
        drawn[0][i] = (double)y[0] / 255 - 0.5;
    }
    uniform_ok("RandomBrightness 0.4", drawn[0], N, -0.4, 0.4);
    ok(good, "all of these are descriptions");
}

/* Places far outside, several images, values beyond the range: every table makes what the one for single images does, but for a few pixels at
   the border between two neighbours. */
static void test_tables(void) {
    enum { IMAGES_AT_ONCE = 5, H = 7, W = 9, NUMBERS = H * W * 3 };
    static const char *const lists[] = {"translation:1,translation:1,zoom:0.9", "rotation:0.5,zoom:0.9", "zoom:0.9,contrast:0.9,brightness:1", "brightness:1,contrast:1",
                                        "resizing:14:5,rotation:1"};
    static float x[IMAGES_AT_ONCE][NUMBERS], y[IMAGES_AT_ONCE * 2 * NUMBERS], want[2 * NUMBERS];
    const mirt_shape shape = mirt_make_shape(H, W, 3, 0, 0, 0);
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    for (int i = 0; i < IMAGES_AT_ONCE * NUMBERS; i++) (&x[0][0])[i] = golden_uniform(77, (uint32_t)i) * 127 + 127;
    for (int i = 0; i < MIRT__COUNT(lists) * tables; i++) {
        const mirt__kernels *k = table[i % tables];
        bool good = true;
        int away = 0;
        for (int way = 0; way < 2 * (int)MIRT__FILL_COUNT && good; way++) {
            mirt_augmentation list[4];
            mirt__transform t[4];
            int count = mirt_parse_augmentation(lists[i / tables], list, 4);
            for (int n = 0; n < count; n++) {
                list[n].fill_mode = (mirt_fill_mode)(way / 2);
                list[n].interpolation = way % 2 ? MIRT_NEAREST : MIRT_BILINEAR;
            }
            count = transforms_of(list, count, &shape, t);
            if (!(good = count > 0)) break;
            const int64_t numbers = t[count - 1].oh * t[count - 1].ow * 3;
            augment_by(k, t, count, 2, IMAGES_AT_ONCE, &x[0][0], y);
            for (int row = 0; row < IMAGES_AT_ONCE; row++) {
                augment_once(t, count, (uint64_t)row + 2, MIRT_FLOAT32, x[row], MIRT_FLOAT32, want);
                for (int64_t n = 0; n < numbers; n++) away += !(fabsf(y[row * numbers + n] - want[n]) < 2e-3f);
            }
        }
        ok(good && away <= 2 * (int)MIRT__FILL_COUNT * IMAGES_AT_ONCE * NUMBERS / 500, "%s: %s, filled and interpolated in all ways: %d numbers are not those of single images", k->name,
           lists[i / tables], away);
    }
}

/* Half a pixel beyond an edge is nearest to what is outside, as std::round has it: of an image of two by two nothing is left when its pixels
   move to twice their distance. And what repeats its edges is not one warp with what fills them in other ways: each is done on its own. */
/* {0.25} is both directions, {-0.25, 0} the range from -0.25 to 0. */
static void test_ranges(void) {
    static const struct { float factor[2], low, high; } cases[] = {
        {{0.25f, 0}, -0.25f, 0.25f}, {{-0.25f, 0}, -0.25f, 0}, {{0, 0.25f}, 0, 0.25f}, {{-0.25f, 0.5f}, -0.25f, 0.5f},
        {{0.5f, 0.25f}, 0.25f, 0.5f},
    };
    static const mirt_augmentation_kind kinds[] = {MIRT_RANDOM_ROTATION, MIRT_RANDOM_ZOOM, MIRT_RANDOM_TRANSLATION,
                                                   MIRT_RANDOM_BRIGHTNESS};
    int wrong = 0;
    for (int k = 0; k < MIRT__COUNT(kinds); k++) {
        for (int i = 0; i < MIRT__COUNT(cases); i++) {
            mirt_augmentation d;
            mirt__transform t;
            memset(&d, 0, sizeof d);
            d.kind = kinds[k];
            memcpy(d.factor, cases[i].factor, sizeof d.factor);
            memcpy(d.height_factor, cases[i].factor, sizeof d.factor);
            memcpy(d.width_factor, cases[i].factor, sizeof d.factor);
            const bool two = d.kind == MIRT_RANDOM_ZOOM || d.kind == MIRT_RANDOM_TRANSLATION;
            const bool made = mirt__transform_of(&d, 8, 8, 3, &t);
            for (int axis = 0; axis < 1 + two; axis++) {
                if (made && t.low[axis] == cases[i].low && t.high[axis] == cases[i].high) continue;
                wrong++;
                printf("# kind %d, {%g, %g}: %g to %g\n", (int)d.kind, (double)d.factor[0], (double)d.factor[1],
                       (double)t.low[axis], (double)t.high[axis]);
            }
        }
    }
    mirt_augmentation read;
    ok(wrong == 0, "ranges of factors: %d are wrong", wrong);
    ok(mirt_parse_augmentation("zoom:-0.25", &read, 1) == 1 && read.height_factor[0] == -0.25f &&
           read.height_factor[1] == 0,
       "as text, too");
}

static void test_edges(void) {
    enum { H = 7, W = 9, NUMBERS = H * W * 3 };
    static const char *const lists[] = {"resizing:14:5,rotation:1", "rotation:1,resizing:14:5"};
    static float x[NUMBERS], between[2 * NUMBERS], y[2 * NUMBERS], want[2 * NUMBERS];
    const mirt_shape shape = mirt_make_shape(H, W, 3, 0, 0, 0), small = mirt_make_shape(2, 2, 1, 0, 0, 0);
    int tables;
    const mirt__kernels *const *table = mirt__kernel_tables(&tables);
    for (int i = 0; i < NUMBERS; i++) x[i] = golden_uniform(78, (uint32_t)i) * 127 + 127;
    for (int k = 0; k < tables; k++) {
        mirt_augmentation list[2];
        mirt__transform t[2];
        int wrong = 0;
        memset(list, 0, sizeof list);
        list[0].kind = MIRT_RANDOM_ZOOM;
        list[0].height_factor[0] = list[0].height_factor[1] = 1;
        list[0].interpolation = MIRT_NEAREST;
        list[0].fill_mode = MIRT_FILL_CONSTANT;
        list[0].fill_value = 5;
        const int count = transforms_of(list, 1, &small, t);
        augment_by(table[k], t, count, 0, 1, x, y);
        for (int i = 0; i < 4; i++) wrong += y[i] != 5.0f;
        ok(count == 1 && wrong == 0, "%s: half a pixel beyond the edge is outside", table[k]->name);
        for (int way = 0; way < 4; way++) {
            int away = 0, both = mirt_parse_augmentation(lists[way / 2], list, 2);
            for (int n = 0; n < both; n++) list[n].fill_mode = way % 2 ? MIRT_FILL_WRAP : MIRT_FILL_CONSTANT;
            both = transforms_of(list, both, &shape, t);
            for (uint64_t row = 0; row < 5 && both == 2; row++) {
                augment_by(table[k], t, 2, row, 1, x, y);
                augment_once(t, 1, row, MIRT_FLOAT32, x, MIRT_FLOAT32, between);
                augment_once(t + 1, 1, row, MIRT_FLOAT32, between, MIRT_FLOAT32, want);
                for (int64_t n = 0; n < t[1].oh * t[1].ow * 3; n++) away += !(fabsf(y[n] - want[n]) < 2e-3f);
            }
            ok(both == 2 && away <= 2, "%s: %s, filled %s: one after the other, but for %d numbers", table[k]->name, lists[way / 2], way % 2 ? "by wrapping" : "with zero", away);
        }
    }
}

/* Bytes in, bytes out: what float32 gives, rounded. */
static void test_bytes(void) {
    const int64_t shapes[][3] = {{9, 140, 3}, {6, 5, 1}, {7, 4, 4}, {4, 6, 5}, {2, 2, 2}, {33, 31, 3}};
    for (int i = 0; i < MIRT__COUNT(shapes); i++) {
        mirt_augmentation list[4];
        mirt__transform t[4];
        const mirt_shape shape = mirt_make_shape(shapes[i][0], shapes[i][1], shapes[i][2], 0, 0, 0);
        const int64_t n = mirt__shape_count(&shape);
        const int most = mirt_parse_augmentation("rotation:0.2,zoom:0.3:constant,contrast:0.3,brightness:0.2", list, 4);
        unsigned char *x = (unsigned char *)malloc((size_t)n), *y = (unsigned char *)malloc((size_t)n);
        float *fx = (float *)malloc((size_t)n * 4), *fy = (float *)malloc((size_t)n * 4), *mixed = (float *)malloc((size_t)n * 4);
        for (int64_t k = 0; k < n; k++) fx[k] = x[k] = (unsigned char)(golden_word(5, (uint32_t)k) >> 24);
        double worst = 0, apart = 0;
        for (int count = 1; count <= most && transforms_of(list, most, &shape, t); count++) {
            augment_once(t, count, 1, MIRT_UINT8, x, MIRT_UINT8, y);
            augment_once(t, count, 1, MIRT_UINT8, x, MIRT_FLOAT32, mixed);
            augment_once(t, count, 1, MIRT_FLOAT32, fx, MIRT_FLOAT32, fy);
            for (int64_t k = 0; k < n; k++) {
                const float clipped = fy[k] < 0 ? 0 : fy[k] > 255 ? 255 : fy[k];
                worst = fmax(worst, fabs((double)y[k] - (double)clipped));
                apart = fmax(apart, fabs((double)mixed[k] - (double)fy[k]));
            }
        }
        ok(most == 4 && worst < 0.52 && apart == 0, "bytes (%d, %d, %d) stay bytes, rounded: at most %.3f off; bytes to float32 as float32", (int)shape.dim[0], (int)shape.dim[1],
           (int)shape.dim[2], worst);
        free(x);
        free(y);
        free(fx);
        free(fy);
        free(mixed);
    }
}

/* >>layers */

enum { ROWS = 11, SIDE_H = 10, SIDE_W = 12, PIXELS = SIDE_H * SIDE_W * 3 };
static unsigned char row_bytes[ROWS][PIXELS];
static float row_floats[ROWS][PIXELS];
static int32_t row_labels[ROWS];
static const char *const network = "flip,rotation:0.2,zoom:0.3,contrast:0.5,translation:0.1,crop:7:8,brightness:0.1";

static void draw_rows(void) {
    for (int i = 0; i < ROWS; i++) {
        row_labels[i] = i;
        for (int k = 0; k < PIXELS; k++) row_floats[i][k] = row_bytes[i][k] = (unsigned char)(golden_word(9, (uint32_t)(i * PIXELS + k)) >> 24);
    }
}

static mirt_dataset *rows_as(mirt_dtype dtype) {
    return mirt_arrays(mirt_make_array(dtype == MIRT_UINT8 ? (const void *)row_bytes : (const void *)row_floats, dtype, MIRT_SHAPE(ROWS, SIDE_H, SIDE_W, 3)),
                       mirt_make_array(row_labels, MIRT_INT32, MIRT_SHAPE(ROWS)));
}

/* Augmented as the text says, then one number an image, which is trained. */
static mirt_model *augmenting(mirt_strategy *s, const char *text) {
    mirt_augmentation list[8];
    mirt_model *m = mirt_model_create(s, "augmenting");
    mirt_dense_desc dense;
    const int count = mirt_parse_augmentation(text, list, 8);
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(SIDE_H, SIDE_W, 3));
    for (int i = 0; i < count; i++) x = mirt_augmentation_layer(x, &list[i]);
    memset(&dense, 0, sizeof dense);
    dense.units = 1;
    mirt_tensor *out[2] = {x, mirt_dense(mirt_flatten(mirt_rescale(x, 1.0f / 255, 0)), &dense)};
    mirt_model_outputs(m, out, 2);
    return m;
}

static bool record_augmented(mirt_function *f, void *user) {
    mirt_tensor *out[MIRT_MAX_OUTPUTS], *x = mirt_function_x(f, 0);
    return mirt_call_many((mirt_model *)user, &x, 1, MIRT_TRAINING_ON, out) && mirt_minimize(f, mirt_square(mirt_reduce_mean(out[1], 0, false))) == MIRT_OK &&
           mirt_function_result(f, "y", out[0]) == MIRT_OK;
}

/* What `steps` steps of batches of 5 make of the images, one after the other. */
static size_t augmented(int devices, int replicas, int threads, mirt_dtype dtype, const char *text, float *out, size_t capacity) {
    mirt_strategy *s = strategy_of(devices, replicas, threads);
    mirt_model *m = augmenting(s, text);
    mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_as(dtype), 5));
    mirt_compile_desc c;
    mirt_global_batch batch;
    size_t done = 0, part;
    memset(&c, 0, sizeof c);
    c.optimizer = mirt_sgd(0.1f, 0, false);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    mirt_function *f = mirt_compile(m, &c) == MIRT_OK ? mirt_function_create(m, data, record_augmented, m) : NULL;
    for (int step = 0; f && step < 4; step++) {
        if (mirt_dataset_next(data, &batch) != MIRT_OK) break;
        if (!batch.rows) continue;
        if (mirt_function_run(f, &batch) != MIRT_OK || mirt_gather_result(f, "y", out + done, capacity - done, &part) != MIRT_OK) break;
        done += part;
    }
    if (!done) printf("# %s\n", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
    return done;
}

static void test_layers(void) {
    enum { CAPACITY = 4 * 5 * PIXELS };
    static float first[CAPACITY], other[CAPACITY];
    const size_t count = augmented(1, 1, 1, MIRT_FLOAT32, network, first, CAPACITY);
    ok(count == ROWS * 7 * 8 * 3, "layers run in training (%zu numbers)", count);
    ok(augmented(1, 1, 2, MIRT_UINT8, network, other, CAPACITY) == count && memcmp(first, other, count * sizeof *first) == 0, "the same images come from bytes, on two threads");
    ok(augmented(1, 3, 1, MIRT_FLOAT32, network, other, CAPACITY) == count && memcmp(first, other, count * sizeof *first) == 0, "... on three replicas");
    ok(augmented(2, 4, 1, MIRT_UINT8, network, other, CAPACITY) == count && memcmp(first, other, count * sizeof *first) == 0, "... on four replicas on two devices");
    /* As the transforms do it, keyed by seed, layer, row and step. */
    static const char *const names[] = {"random_flip", "random_rotation", "random_zoom", "random_contrast", "random_translation", "random_crop", "random_brightness"};
    const mirt_shape shape = mirt_make_shape(SIDE_H, SIDE_W, 3, 0, 0, 0);
    mirt_augmentation list[8];
    mirt__transform t[8];
    const int transforms = transforms_of(list, mirt_parse_augmentation(network, list, 8), &shape, t);
    bool same = transforms == 7, distinct = true;
    for (int i = 0; i < transforms; i++) t[i].key = mirt__hash(names[i]) ^ mirt__hash("augment") ^ 11 ^ 5; /* 5: augment_once's seed */
    for (int row = 0; row < 5; row++) {
        float y[7 * 8 * 3];
        augment_once(t, transforms, (uint64_t)row, MIRT_FLOAT32, row_floats[row], MIRT_FLOAT32, y);
        same = same && memcmp(y, first + row * 7 * 8 * 3, sizeof y) == 0;
    }
    ok(same, "... and are what the transforms make, keyed by seed, layer and row");
    /* The images of one batch being one image, and those of two steps. */
    memcpy(other, row_floats, sizeof row_floats);
    for (int i = 1; i < ROWS; i++) memcpy(row_floats[i], row_floats[0], sizeof row_floats[0]);
    augmented(1, 2, 1, MIRT_FLOAT32, "rotation:0.3", first, CAPACITY);
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < i; k++) distinct = distinct && memcmp(first + i * PIXELS, first + k * PIXELS, PIXELS * sizeof *first) != 0;
    }
    memcpy(row_floats, other, sizeof row_floats);
    ok(distinct, "another angle for every row and step, on two replicas");
}

static void test_inference(void) {
    static float y[ROWS][PIXELS], z[ROWS][7 * 8 * 3];
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    mirt_model *m = mirt_model_create(s, "plain");
    mirt_augmentation list[8];
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(SIDE_H, SIDE_W, 3));
    const int count = mirt_parse_augmentation("flip,rotation:0.2,zoom:0.3,contrast:0.5,translation:0.1,brightness:0.1", list, 8);
    for (int i = 0; i < count; i++) x = mirt_augmentation_layer(x, &list[i]);
    mirt_model_output(m, x);
    const mirt_array data = mirt_make_array(row_floats, MIRT_FLOAT32, MIRT_SHAPE(ROWS, SIDE_H, SIDE_W, 3));
    mirt_model *cropped = mirt_model_create(s, "cropped"), *fitted = mirt_model_create(s, "fitted");
    mirt_augmentation crop;
    memset(&crop, 0, sizeof crop);
    crop.height = 7;
    crop.width = 8;
    mirt_model_output(cropped, mirt_random_crop(mirt_random_flip(mirt_input(cropped, MIRT_SHAPE(SIDE_H, SIDE_W, 3)), NULL), &crop));
    crop.crop_to_aspect_ratio = true;
    mirt_model_output(fitted, mirt_resizing(mirt_input(fitted, MIRT_SHAPE(SIDE_H, SIDE_W, 3)), &crop));
    ok(mirt_predict_arrays(m, data, &y[0][0], (size_t)ROWS * PIXELS) == MIRT_OK && memcmp(y, row_floats, sizeof y) == 0, "a model of random layers predicts its input, bit for bit (%s)", mirt_last_error());
    mirt_model *trained = augmenting(s, "flip,rotation:0.2,zoom:0.3,translation:0.1");
    c.optimizer = mirt_sgd(0.1f, 0, false);
    c.losses[1] = MIRT_MEAN_SQUARED_ERROR;
    c.loss_weights[1] = 1;
    const char *text = mirt_compile(trained, &c) == MIRT_OK ? mirt_graph_text(trained, 5) : NULL;
    int times = 0;
    for (const char *at = text; at && (at = strstr(at, " augment")) != NULL; at++) times++;
    printf("# %s\n", text ? text : mirt_last_error());
    ok(times == 1, "four layers that move pixels are one operation of a training step");
    bool same = mirt_predict_arrays(cropped, data, &z[0][0], (size_t)ROWS * 7 * 8 * 3) == MIRT_OK && mirt_predict_arrays(fitted, data, &y[0][0], (size_t)ROWS * 7 * 8 * 3) == MIRT_OK;
    ok(same && memcmp(z, y, sizeof z) == 0, "a random crop predicts with the largest part in the middle, resized as Resizing(crop_to_aspect_ratio) does (%s)", mirt_last_error());
    mirt_strategy_destroy(s);
}
/* Every layer is what it was when it has been saved and loaded. */
static void test_files(void) {
    enum { CAPACITY = ROWS * PIXELS };
    static float y[2][CAPACITY];
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = mirt_model_create(s, "saved");
    mirt_augmentation d;
    mirt_dense_desc dense;
    memset(&d, 0, sizeof d);
    memset(&dense, 0, sizeof dense);
    dense.units = 1;
    d.mode = MIRT_FLIP_VERTICAL;
    d.factor[1] = 0.25f;
    d.height_factor[0] = -0.2f;
    d.height_factor[1] = 0.1f;
    d.width_factor[1] = -0.4f;
    d.fill_mode = MIRT_FILL_CONSTANT;
    d.fill_value = 12.5f;
    d.interpolation = MIRT_NEAREST;
    d.value_range[0] = -3;
    d.value_range[1] = 300;
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(SIDE_H, SIDE_W, 3));
    for (int kind = 0; kind < MIRT__AUGMENTATION_COUNT; kind++) {
        d.kind = (mirt_augmentation_kind)kind;
        d.height = 14 - kind;
        d.width = 6;
        d.crop_to_aspect_ratio = kind == MIRT_RESIZING;
        x = mirt_augmentation_layer(x, &d);
    }
    mirt_tensor *out[2] = {x, mirt_dense(mirt_flatten(x), &dense)};
    mirt_model_outputs(m, out, 2);
    mirt_compile_desc c;
    memset(&c, 0, sizeof c);
    c.optimizer = mirt_sgd(0, 0, false);
    c.losses[1] = MIRT_MEAN_SQUARED_ERROR;
    c.loss_weights[1] = 1;
    mirt_status status = mirt_compile(m, &c);
    if (status == MIRT_OK) status = mirt_save(m, path, (mirt_save_flags)0);
    mirt_model *loaded = status == MIRT_OK ? mirt_load(s, path) : NULL;
    bool same = loaded != NULL;
    for (int k = 0; k < 2 && same; k++) {
        mirt_dataset *data = mirt_distribute(s, mirt_batch(rows_as(MIRT_FLOAT32), ROWS));
        mirt_global_batch batch;
        size_t written = 0;
        mirt_model *of = k ? loaded : m;
        mirt_function *f = mirt_function_create(of, data, record_augmented, of);
        same = f && mirt_dataset_next(data, &batch) == MIRT_OK && mirt_function_run(f, &batch) == MIRT_OK && mirt_gather_result(f, "y", y[k], CAPACITY, &written) == MIRT_OK && written > 0;
        mirt_dataset_destroy(data);
    }
    ok(same && memcmp(y[0], y[1], sizeof y[0]) == 0, "all layers are loaded as they were saved (%s)", mirt_last_error());
    mirt_strategy_destroy(s);
    unlink(path);
}

/* >>stages */

/* The images of an epoch by the index of the sample. */
static int64_t stage_epoch(mirt_dataset *dataset, uint64_t seed, int64_t epoch, unsigned char *out, size_t bytes) {
    mirt__batch batch;
    int64_t count = 0;
    if (!dataset || mirt__dataset_begin(dataset, seed, epoch) != MIRT_OK) return -1;
    while (mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows) {
        for (int64_t r = 0; r < batch.rows; r++, count++) memcpy(out + (size_t)batch.index[r] * bytes, (const char *)batch.field[0] + (size_t)r * bytes, bytes);
    }
    return count;
}

static void test_stages(void) {
    enum { BYTES = 7 * 8 * 3 };
    static unsigned char first[ROWS][BYTES], other[ROWS][BYTES];
    mirt_augmentation list[8];
    const int count = mirt_parse_augmentation("flip,rotation:0.1,zoom:0.3,crop:7:8,contrast:0.2", list, 8);
    const mirt_shape shape = mirt_make_shape(SIDE_H, SIDE_W, 3, 0, 0, 0);
    mirt__transform t[8];
    mirt_dataset *d = mirt_augment(rows_as(MIRT_UINT8), list, count);
    ok(stage_epoch(d, 3, 0, &first[0][0], BYTES) == ROWS && mirt__dataset_spec(d)->field[0].dtype == MIRT_UINT8 && mirt__dataset_spec(d)->field[0].bytes == BYTES,
       "images of a data set are augmented, and stay bytes (%s)", mirt_last_error());
    bool again = stage_epoch(d, 3, 0, &other[0][0], BYTES) == ROWS && memcmp(first, other, sizeof first) == 0;
    bool next = stage_epoch(d, 3, 1, &other[0][0], BYTES) == ROWS, seeded = true;
    for (int i = 0; i < ROWS; i++) next = next && memcmp(first[i], other[i], BYTES) != 0;
    seeded = stage_epoch(d, 4, 0, &other[0][0], BYTES) == ROWS && memcmp(first, other, sizeof first) != 0;
    ok(again && next && seeded, "the same in the same epoch, others in the next one, and with another seed");
    const int transforms = transforms_of(list, count, &shape, t);
    bool same = transforms == 5;
    for (int i = 0; i < ROWS; i++) {
        mirt__augment a;
        unsigned char y[BYTES];
        memset(&a, 0, sizeof a);
        for (int k = 0; k < transforms; k++) t[k].key = (mirt__hash("augment") ^ (uint64_t)k << 32) * 0x9E3779B97F4A7C15u;
        a.transform = t;
        a.count = count;
        a.seed = 3;
        a.row = (uint64_t)i;
        a.x_dtype = a.y_dtype = MIRT_UINT8;
        a.x = row_bytes[i];
        a.y = y;
        a.room = mirt__aligned_alloc(mirt__augment_room(t, transforms, MIRT_UINT8, MIRT_UINT8));
        mirt__augment_image(&a);
        mirt__aligned_free(a.room);
        same = same && memcmp(y, first[i], BYTES) == 0;
    }
    ok(same, "... keyed by seed, epoch and the sample's index");
    mirt_dataset_destroy(d);
    for (int workers = 1; workers <= 5; workers += 2) {
        d = mirt_augment(mirt_shuffle(rows_as(MIRT_UINT8), 100), list, count);
        d = mirt_batch(d, 4);
        bool asked = mirt_dataset_workers(d, workers) == MIRT_OK;
        ok(asked && stage_epoch(d, 3, 0, &other[0][0], BYTES) == ROWS && memcmp(first, other, sizeof first) == 0, "the same images behind a shuffle, in batches, by %d worker%s", workers, workers > 1 ? "s" : "");
        mirt_dataset_destroy(d);
    }
    d = mirt_augment(mirt_repeat(rows_as(MIRT_UINT8), 1), list, count);
    ok(stage_epoch(d, 3, 0, &other[0][0], BYTES) == ROWS && memcmp(first, other, sizeof first) == 0, "... and behind a stream");
    mirt_dataset_destroy(d);
    /* One image often: another augmentation each time, whichever stands first. */
    for (int k = 0; k < 2; k++) {
        static unsigned char seen[12][BYTES];
        mirt__batch batch;
        bool distinct = true;
        d = mirt_take(rows_as(MIRT_UINT8), 1);
        d = k ? mirt_repeat(mirt_augment(d, list, count), 12) : mirt_augment(mirt_repeat(d, 12), list, count);
        distinct = d && mirt__dataset_begin(d, 0, 0) == MIRT_OK;
        for (int i = 0; i < 12 && distinct; i++) {
            distinct = mirt__dataset_next(d, &batch) == MIRT_OK && batch.rows == 1;
            if (distinct) memcpy(seen[i], batch.field[0], BYTES);
            for (int j = 0; j < i; j++) distinct = distinct && memcmp(seen[i], seen[j], BYTES) != 0;
        }
        ok(distinct, "an image repeated %s augmentation is another one each time", k ? "behind" : "before");
        mirt_dataset_destroy(d);
    }
    /* A second stage of the same list draws other numbers: rotated twice by the same angle is rotated by twice the angle. */
    mirt_augmentation flip;
    memset(&flip, 0, sizeof flip);
    d = mirt_augment(mirt_augment(rows_as(MIRT_UINT8), &flip, 1), &flip, 1);
    static unsigned char twice[ROWS][PIXELS];
    ok(stage_epoch(d, 3, 0, &twice[0][0], PIXELS) == ROWS && memcmp(twice, row_bytes, sizeof twice) != 0, "two stages of one list draw different numbers");
    mirt_dataset_destroy(d);
}

/* >>text, misuse, statistics */

static void test_text(void) {
    mirt_augmentation l[8];
    ok(mirt_parse_augmentation("flip,rotation:0.1,zoom:0.1", l, 8) == 3 && l[0].kind == MIRT_RANDOM_FLIP && l[0].mode == MIRT_FLIP_HORIZONTAL_AND_VERTICAL &&
           l[1].kind == MIRT_RANDOM_ROTATION && l[1].factor[0] == 0.1f && l[1].factor[1] == 0 && l[2].kind == MIRT_RANDOM_ZOOM && l[2].height_factor[0] == 0.1f &&
           l[2].width_factor[0] == 0, "a list is read");
    ok(mirt_parse_augmentation("flip:horizontal,zoom:0.1:0.2:wrap,translation:0.25,crop:200:180,center_crop:9,resizing:224:nearest,contrast:0.2,brightness:0.5", l, 8) == 8 &&
           l[0].mode == MIRT_FLIP_HORIZONTAL && l[1].height_factor[0] == 0.1f && l[1].width_factor[0] == 0.2f && l[1].fill_mode == MIRT_FILL_WRAP && l[2].height_factor[0] == 0.25f &&
           l[2].width_factor[0] == 0.25f && l[3].height == 200 && l[3].width == 180 && l[4].kind == MIRT_CENTER_CROP && l[4].height == 9 && l[4].width == 0 &&
           l[5].interpolation == MIRT_NEAREST && l[5].height == 224 && l[6].factor[0] == 0.2f && l[7].kind == MIRT_RANDOM_BRIGHTNESS, "... with all that may stand there");
    static const char *const bad[] = {"", "flip,", ",flip", "flop", "rotation", "rotation:", "rotation:x", "rotation:2", "rotation:0.1:0.2", "zoom:-1", "zoom:0.1:0.2:0.3", "crop:0",
                                      "crop:1.5", "crop:9999999", "flip:0.1", "flip:sideways", "contrast:-0.5", "contrast:0.1:wrap", "rotation:nan", "rotation:0.1:horizontal",
                                      "flip,flip,flip,flip,flip,flip,flip,flip,flip", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (int i = 0; i < MIRT__COUNT(bad); i++) ok(mirt_parse_augmentation(bad[i], l, 8) == -1 && mirt_last_status() == MIRT_E_INVALID, "\"%s\": %s", bad[i], mirt_last_error());
}

static void test_misuse(void) {
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_augmentation d;
    mirt__transform t;
    memset(&d, 0, sizeof d);
    for (int i = 0; i < 12; i++) {
        mirt_augmentation bad = d;
        bad.kind = i < 2 ? MIRT_RANDOM_ROTATION : i < 4 ? MIRT_RANDOM_ZOOM : i < 6 ? MIRT_RANDOM_CONTRAST : i < 8 ? MIRT_RESIZING : i < 10 ? MIRT_RANDOM_BRIGHTNESS : MIRT_RANDOM_FLIP;
        bad.factor[0] = i == 0 ? 1.5f : i == 1 ? NAN : i == 4 ? -0.1f : i == 5 ? 1.01f : 0.1f;
        bad.height_factor[0] = i == 2 ? -1.0f : i == 3 ? 1.0f : 0;
        bad.height_factor[1] = 0;
        bad.height = i == 6 ? -4 : i == 7 ? 9 : 0;
        bad.interpolation = i == 7 ? MIRT_BICUBIC : MIRT_BILINEAR;
        bad.value_range[0] = i == 8 ? 5.0f : i == 9 ? INFINITY : 0;
        bad.value_range[1] = i == 8 ? 5.0f : 1.0f;
        if (i == 10) bad.mode = (mirt_flip_mode)3;
        if (i == 11) bad.fill_value = NAN;
        ok(!mirt__transform_of(&bad, 8, 8, 3, &t) && mirt_last_status() == MIRT_E_INVALID, "refused: %s", mirt_last_error());
    }
    mirt_model *m = mirt_model_create(s, "wrong");
    ok(!mirt_random_flip(mirt_input(m, MIRT_SHAPE(4, 5)), NULL) && strstr(mirt_last_error(), "random_flip"), "%s", mirt_last_error());
    mirt_model_destroy(m);
    m = mirt_model_create(s, "wrong");
    ok(!mirt_random_crop(mirt_input(m, MIRT_SHAPE(4, 5, 3)), NULL), "%s", mirt_last_error());
    mirt_model_destroy(m);
    m = mirt_model_create(s, "wrong");
    ok(!mirt_augmentation_layer(mirt_input(m, MIRT_SHAPE(4, 5, 3)), NULL), "%s", mirt_last_error());
    mirt_model_destroy(m);
    ok(!mirt_augment(mirt_batch(rows_as(MIRT_UINT8), 2), &d, 1), "%s", mirt_last_error());
    ok(!mirt_augment(rows_as(MIRT_UINT8), &d, 0), "%s", mirt_last_error());
    ok(!mirt_augment(mirt_arrays(mirt_make_array(row_floats, MIRT_FLOAT32, MIRT_SHAPE(4, 5)), mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(1))), &d, 1), "%s", mirt_last_error());
    ok(!mirt_augment(NULL, &d, 1), "no data set, no stage");
    /* A gradient that would have to go through. */
    mirt_compile_desc c;
    mirt_dense_desc dense;
    mirt_conv2d_desc conv;
    memset(&c, 0, sizeof c);
    memset(&dense, 0, sizeof dense);
    memset(&conv, 0, sizeof conv);
    dense.units = 1;
    conv.filters = 3;
    conv.kernel[0] = 3;
    c.optimizer = mirt_sgd(0.1f, 0, false);
    c.loss = MIRT_MEAN_SQUARED_ERROR;
    m = mirt_model_create(s, "behind");
    mirt_model_output(m, mirt_dense(mirt_flatten(mirt_random_flip(mirt_conv2d(mirt_input(m, MIRT_SHAPE(SIDE_H, SIDE_W, 3)), &conv), NULL)), &dense));
    static float targets[ROWS];
    mirt_dataset *data = mirt_batch(mirt_arrays(mirt_make_array(row_floats, MIRT_FLOAT32, MIRT_SHAPE(ROWS, SIDE_H, SIDE_W, 3)), mirt_make_array(targets, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 1))), 4);
    mirt_status status = mirt_compile(m, &c);
    if (status == MIRT_OK && !mirt_fit(m, data, NULL)) status = mirt_last_status();
    ok(status == MIRT_E_INVALID && strstr(mirt_last_error(), "augment"), "%s", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(s);
}

static void test_adapt(void) {
    mirt_normalization_desc d;
    double mean[3] = {0}, variance[3] = {0};
    const double n = ROWS * SIDE_H * SIDE_W;
    memset(&d, 0, sizeof d);
    for (int i = 0; i < ROWS * PIXELS; i++) mean[i % 3] += (double)row_floats[i / PIXELS][i % PIXELS] / n;
    for (int i = 0; i < ROWS * PIXELS; i++) variance[i % 3] += ((double)row_floats[i / PIXELS][i % PIXELS] - mean[i % 3]) * ((double)row_floats[i / PIXELS][i % PIXELS] - mean[i % 3]) / n;
    for (int k = 0; k < 3; k++) {
        mirt_dataset *data = k == 2 ? mirt_batch(mirt_shuffle(rows_as(MIRT_UINT8), 100), 4) : rows_as(k ? MIRT_UINT8 : MIRT_FLOAT32);
        double worst = mirt_adapt(&d, data) == MIRT_OK ? 0 : 1;
        for (int j = 0; j < 3; j++) worst = fmax(worst, fmax(fabs((double)d.mean[j] / mean[j] - 1), fabs((double)d.variance[j] / variance[j] - 1)));
        ok(worst < 1e-6, "mean and variance by channel, %s: %.1e off", k == 2 ? "of shuffled batches" : k ? "of bytes" : "of float32", worst);
        mirt_dataset_destroy(data);
    }
    mirt_dataset *data = mirt_repeat(rows_as(MIRT_UINT8), 0);
    ok(mirt_adapt(&d, data) == MIRT_E_INVALID, "%s", mirt_last_error());
    mirt_dataset_destroy(data);
    data = mirt_arrays(mirt_make_array(row_floats, MIRT_FLOAT32, MIRT_SHAPE(4, 5)), mirt_make_array(NULL, MIRT_UINT8, MIRT_SHAPE(1)));
    ok(mirt_adapt(&d, data) == MIRT_E_SHAPE, "%s", mirt_last_error());
    mirt_dataset_destroy(data);
}

/* >>PNG: read by the rules of the format */

static uint32_t png_crc(const unsigned char *at, size_t size) {
    uint32_t crc = 0xffffffffu;
    for (; size; size--) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

static uint32_t png_word(const unsigned char *at) { return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]; }

/* The pixels of a PNG of stored blocks, and its size; NULL when something is wrong with it. */
static unsigned char *png_read(uint32_t *width, uint32_t *height, int channels) {
    static const unsigned char colors[5] = {0, 0, 4, 2, 6};
    unsigned char *file = NULL, *at, *out = NULL;
    size_t size = 0, done = 0;
    uint32_t a = 1, b = 0;
    if (mirt__file_read(path, 1 << 28, &file, &size) != MIRT_OK || size < 57 || memcmp(file, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) != 0) return NULL;
    *width = png_word(file + 16);
    *height = png_word(file + 20);
    const size_t line = 1 + (size_t)*width * (size_t)channels, raw = line * *height;
    bool good = file[24] == 8 && file[25] == colors[channels] && !file[26] && !file[27] && !file[28] && png_word(file + 29) == png_crc(file + 12, 17) &&
                memcmp(file + 37, "IDAT", 4) == 0 && png_word(file + 33) + 57 == size && memcmp(file + size - 12, "\0\0\0\0IEND\xae\x42\x60\x82", 12) == 0 &&
                png_word(file + size - 16) == png_crc(file + 37, size - 12 - 4 - 37) && (file[41] * 256 + file[42]) % 31 == 0 && (file[41] & 15) == 8;
    unsigned char *data = (unsigned char *)malloc(raw);
    for (at = file + 43; good && done < raw;) {
        const unsigned length = at[1] | (unsigned)at[2] << 8;
        good = length == (~(at[3] | (unsigned)at[4] << 8) & 65535u) && done + length <= raw && (at[0] == 1) == (done + length == raw);
        if (good) memcpy(data + done, at + 5, length);
        at += 5 + length;
        done += length;
    }
    for (size_t i = 0; good && i < raw; i++) {
        a = (a + data[i]) % 65521;
        b = (b + a) % 65521;
    }
    good = good && png_word(at) == (b << 16 | a) && at + 4 == file + size - 16;
    for (uint32_t y = 0; good && y < *height; y++) {
        good = data[y * line] == 0;
        memmove(data + y * (line - 1), data + y * line + 1, line - 1);
    }
    if (good) out = data;
    else free(data);
    mirt__aligned_free(file);
    return out;
}

static void test_png(void) {
    uint32_t w, h;
    for (int c = 1; c <= 4; c++) {
        unsigned char *x = (unsigned char *)malloc((size_t)(150 * 160 * c)), *y = NULL;
        for (int i = 0; i < 150 * 160 * c; i++) x[i] = (unsigned char)(golden_word(3, (uint32_t)i) >> 24);
        const bool good = mirt_write_png(path, mirt_make_array(x, MIRT_UINT8, MIRT_SHAPE(150, 160, c)), 0) == MIRT_OK && (y = png_read(&w, &h, c)) != NULL;
        ok(good && w == 160 && h == 150 && memcmp(x, y, (size_t)(150 * 160 * c)) == 0, "a PNG of %d channel%s is the image (%s)", c, c > 1 ? "s" : "", mirt_last_error());
        free(x);
        free(y);
    }
    static float z[30];
    for (int i = 0; i < 30; i++) z[i] = (float)(10 * i) - 10.4f;
    unsigned char *y = mirt_write_png(path, mirt_make_array(z, MIRT_FLOAT32, MIRT_SHAPE(5, 2, 3, 1)), 3) == MIRT_OK ? png_read(&w, &h, 1) : NULL;
    ok(y && w == 3 * 3 + 8 && h == 2 * 2 + 4 && y[0] == 0 && y[1] == 0 && y[2] == 10 && y[3] == 255 && y[7] == 50 && y[17 * 6] == 170 && y[17 * 7] == 200 && y[17 * 6 + 14] == 255,
       "five images of float32 in three columns, clipped and rounded");
    free(y);
    mirt_augmentation list[3];
    const int count = mirt_parse_augmentation("flip,rotation:0.1,zoom:0.1", list, 3);
    mirt_dataset *d = mirt_repeat(mirt_augment(mirt_take(rows_as(MIRT_UINT8), 1), list, count), 12);
    y = mirt_save_grid(path, d, 3, 4) == MIRT_OK ? png_read(&w, &h, 3) : NULL;
    ok(y && w == 4 * SIDE_W + 12 && h == 3 * SIDE_H + 8, "a sheet of 3 x 4 images (%s)", mirt_last_error());
    free(y);
    mirt_dataset_destroy(d);
    d = mirt_batch(rows_as(MIRT_UINT8), 4);
    y = mirt_save_grid(path, d, 5, 3) == MIRT_OK ? png_read(&w, &h, 3) : NULL;
    ok(y && w == 3 * SIDE_W + 8 && h == 4 * SIDE_H + 12, "... of the %d there are", ROWS);
    free(y);
    mirt_dataset_destroy(d);
    ok(mirt_write_png(path, mirt_make_array(z, MIRT_FLOAT32, MIRT_SHAPE(5, 6)), 1) == MIRT_E_SHAPE, "%s", mirt_last_error());
    ok(mirt_write_png(path, mirt_make_array(z, MIRT_FLOAT32, MIRT_SHAPE(1, 6, 5)), 1) == MIRT_E_SHAPE, "%s", mirt_last_error());
    ok(mirt_write_png(path, mirt_make_array(z, MIRT_UINT8, MIRT_SHAPE(2000000000, 2000000000, 1)), 1) == MIRT_E_SHAPE, "%s", mirt_last_error());
    ok(mirt_write_png("/nowhere/at/all.png", mirt_make_array(z, MIRT_FLOAT32, MIRT_SHAPE(2, 3, 1)), 1) != MIRT_OK, "%s", mirt_last_error());
    unlink(path);
}

int main(void) {
    snprintf(path, sizeof path, "%s/mirt_augment_%ld", tap_tmpdir(), (long)getpid());
    test_goldens();
    test_contrast();
    test_flips();
    test_crops();
    test_draws();
    test_tables();
    test_ranges();
    test_edges();
    test_bytes();
    draw_rows();
    test_layers();
    test_inference();
    test_files();
    test_stages();
    test_text();
    test_misuse();
    test_adapt();
    test_png();
    return done_testing();
}
