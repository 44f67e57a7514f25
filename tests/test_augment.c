/* Tests augmentation: every transform against Keras (golden/augment.h). Also several transforms as one warp against the
   product of their matrices, random numbers and their keys. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "augment_util.h"
#include "golden/augment.h"

enum { MOST_TRANSFORMS = 1 + 5 * (5 * 11 + 1) };

static float *image_of(const mirt_shape *shape, unsigned seed) {
    int64_t count = mirt__shape_count(shape);
    float *x = (float *)malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = golden_uniform(seed, (uint32_t)i) / 2 + 0.5f;
    return x;
}

/* Images of rows [row, row + rows), float32, by a table of kernels. */
static void augment_by(const mirt__kernels *kernels, const mirt__transform *t, int count, uint64_t row, int64_t rows,
                       const float *x, float *y) {
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
        for (int64_t i = 0; i < count; i++)
            sum += (double)y[i] * (double)golden_uniform(1000 + (uint32_t)k, (uint32_t)i);
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
        mirt__transform t[MOST_TRANSFORMS];
        float *x = image_of(&g->shape, g->seed),
              *y = (float *)calloc((size_t)mirt__shape_count(&g->y_shape), sizeof *y);
        const int count = transforms_of(g->list, g->count, &g->shape, t);
        bool shaped = count && t[count - 1].oh == g->y_shape.dim[0] && t[count - 1].ow == g->y_shape.dim[1];
        int tables;
        const mirt__kernels *const *table = mirt__kernel_tables(&tables);
        double worst = shaped ? 0 : 1e9;
        for (int k = 0; k < tables && shaped; k++) {
            augment_by(table[k], t, count, 3, 1, x, y);
            worst = fmax(worst, distance(y, mirt__shape_count(&g->y_shape), g->norm, g->product, g->first));
        }
        ok(worst < 2e-5, "%s (%lld, %lld, %lld): %.1e from Keras", g->label, (long long)g->shape.dim[0],
           (long long)g->shape.dim[1], (long long)g->shape.dim[2], worst);
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

static mirt__transform one(mirt_augmentation_kind kind, mirt_flip_mode mode, int height, int width, int64_t h,
                           int64_t w, int64_t c) {
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
                    const int r = i / C / W, k = i / C % W,
                              from = ((way & 2 ? H - 1 - r : r) * W + (way & 1 ? W - 1 - k : k)) * C + i % C;
                    same = same && y[i] == x[from] && flipped[i] == bytes[from];
                }
                if (same) found = way;
            }
            if (found < 0) wrong++;
            else seen[found]++;
        }
        const bool possible[4] = {true, mode != MIRT_FLIP_VERTICAL, mode != MIRT_FLIP_HORIZONTAL,
                                  mode == MIRT_FLIP_HORIZONTAL_AND_VERTICAL};
        bool fair = wrong == 0;
        for (int way = 0; way < 4; way++) {
            const double want = possible[way] ? (mode == 0 ? 1000 : 2000) : 0;
            fair = fair && fabs(seen[way] - want) <= 5 * sqrt(4000 * 0.25 * 0.75) * possible[way];
        }
        ok(fair, "RandomFlip %s: %d as it was, %d mirrored, %d upside down, %d both, %d something else", names[mode],
           seen[0], seen[1], seen[2], seen[3], wrong);
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
                for (int i = 0; i < OH * OW * C; i++)
                    same = same && y[i] == x[((r + i / C / OW) * W + k + i / C % OW) * C + i % C];
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
    ok(wrong == 0 && least > 390 && most < 610, "RandomCrop: all %d places come equally often (%d to %d of 500)",
       (H - OH + 1) * (W - OW + 1), least, most);
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
    ok(fabs(sum / n - mean) < 5 * deviation && fabs(square / n / (span * span / 12) - 1) < 5 / sqrt(n * 0.8) &&
           least >= low - 1e-6 && most <= high + 1e-6 && least < low + span / 100 && most > high - span / 100,
       "%s: %d draws from %.4f to %.4f, mean %.4f, for [%g, %g]", name, n, least, most, sum / n, low, high);
}

static void test_draws(void) {
    enum { N = 20000 };
    static double drawn[4][N];
    mirt_augmentation d;
    mirt__transform t;
    double unit[4], m[9];
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
    for (int i = 0; i < N; i++)
        both += (drawn[0][i] - 0.95) / (0.5 / sqrt(12)) * (drawn[1][i] - 0.75) / (0.5 / sqrt(12)) / N;
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

/* Shear has one sign for both directions; hue turns either way; saturation as f / (1 - f). */
static void test_color_draws(void) {
    enum { N = 20000 };
    static double drawn[3][N];
    mirt_augmentation d;
    mirt__transform t;
    double unit[4], m[9];
    int apart = 0;
    memset(&d, 0, sizeof d);
    d.kind = MIRT_RANDOM_SHEAR;
    d.x_factor[0] = 0.4f;
    d.y_factor[0] = 0.1f;
    d.y_factor[1] = 0.3f;
    bool good = mirt__transform_of(&d, 5, 9, 3, &t);
    for (int i = 0; i < N; i++) {
        mirt__transform_draw(&t, 3, (uint64_t)i, 0, unit);
        mirt__transform_matrix(&t, unit, m);
        drawn[0][i] = m[1];
        drawn[1][i] = fabs(m[3]);
        drawn[2][i] = m[3] > 0;
        apart += m[0] != 1 || m[4] != 1 || m[2] != 0 || m[5] != 0;
    }
    uniform_ok("RandomShear x_factor 0.4", drawn[0], N, -0.4, 0.4);
    uniform_ok("RandomShear y_factor (0.1, 0.3), without its sign", drawn[1], N, 0.1, 0.3);
    double positive = 0;
    for (int i = 0; i < N; i++) positive += drawn[2][i];
    ok(apart == 0 && fabs(positive - N / 2) < 5 * sqrt(N) / 2, "... which is random (%g of %d)", positive, N);
    d.y_factor[0] = d.y_factor[1] = d.x_factor[1] = 0.5f;
    good = good && mirt__transform_of(&d, 5, 9, 3, &t);
    for (int i = 0; i < 100; i++) {
        mirt__transform_draw(&t, 3, (uint64_t)i, 0, unit);
        mirt__transform_matrix(&t, unit, m);
        apart += (m[1] > 0) != (m[3] > 0);
    }
    ok(apart == 0, "... and the same for both factors");
    d.kind = MIRT_RANDOM_HUE;
    d.factor[0] = 0.5f;
    good = good && mirt__transform_of(&d, 5, 9, 3, &t);
    for (int i = 0; i < N; i++) {
        mirt__transform_draw(&t, 3, (uint64_t)i, 0, unit);
        drawn[0][i] = mirt__transform_amount(&t, 0, unit);
    }
    uniform_ok("RandomHue 0.5, in turns", drawn[0], N, -0.25, 0.25);
    d.kind = MIRT_RANDOM_SATURATION;
    good = good && mirt__transform_of(&d, 5, 9, 3, &t);
    for (int i = 0; i < N; i++) {
        mirt__transform_draw(&t, 3, (uint64_t)i, 0, unit);
        const double amount = mirt__transform_amount(&t, 0, unit);
        drawn[0][i] = amount / (1 + amount);
    }
    uniform_ok("RandomSaturation 0.5, of f / (1 - f)", drawn[0], N, 0, 0.5);
    ok(good, "all of these are descriptions");
}

/* Where a matrix moves (x, y). */
static void moved(const double m[9], double x, double y, double out[2]) {
    const double by = m[6] * x + m[7] * y + m[8];
    out[0] = (m[0] * x + m[1] * y + m[2]) / by;
    out[1] = (m[3] * x + m[4] * y + m[5]) / by;
}

/* Corners are uniform, and read where the image has them. Pixels are those of a matrix in double precision, also of
   corners that make a dent, whose rows have two parts inside of the image. */
static void test_perspective(void) {
    enum { N = 20000, IMAGES = 300, H = 12, W = 17 };
    static double corner[4][N];
    static float x[H * W], y[H * W];
    static unsigned char bytes[H * W], out[H * W];
    mirt_augmentation d;
    mirt__transform t;
    double unit[4], m[9], at[2], off = 0, wrong = 0, rounded = 0;
    int applied = 0, dented = 0, compared = 0;
    memset(&d, 0, sizeof d);
    d.kind = MIRT_RANDOM_PERSPECTIVE;
    d.scale[0] = 0.8f;
    bool good = mirt__transform_of(&d, 5, 9, 3, &t);
    for (int i = 0; i < N; i++) {
        applied += mirt__transform_applies(&t, 3, (uint64_t)i, 0);
        mirt__transform_draw(&t, 3, (uint64_t)i, 0, unit);
        mirt__transform_matrix(&t, unit, m);
        for (int k = 0; k < 4; k++) corner[k][i] = 1 + (double)t.high[1] * (unit[k] - 0.5);
        const double ends[4][4] = {{0, 0, 0, 0}, {8 * corner[0][i], 0, 8, 0}, {0, 4 * corner[2][i], 0, 4},
                                   {8 * corner[1][i], 4 * corner[3][i], 8, 4}};
        for (int k = 0; k < 4; k++) {
            moved(m, ends[k][0], ends[k][1], at);
            off = fmax(off, fmax(fabs(at[0] - ends[k][2]), fabs(at[1] - ends[k][3])));
        }
    }
    for (int k = 0; k < 4; k++) uniform_ok("RandomPerspective 0.8, a corner", corner[k], N, 0.6, 1.4);
    ok(good && off < 1e-8, "... corners are read where the image has them (%.1e off)", off);
    ok(abs(applied - N / 2) < 5 * sqrt(N / 4), "... %d of %d images by a chance between 0 and 1", applied, N);
    d.factor[0] = d.factor[1] = d.scale[0] = 1;
    d.fill_value = 50;
    good = mirt__transform_of(&d, H, W, 1, &t);
    for (int i = 0; i < H * W; i++) x[i] = bytes[i] = (unsigned char)(golden_word(6, (uint32_t)i) >> 24);
    for (int row = 0; row < IMAGES; row++) {
        augment_once(&t, 1, (uint64_t)row, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
        augment_once(&t, 1, (uint64_t)row, MIRT_UINT8, bytes, MIRT_UINT8, out);
        mirt__transform_draw(&t, 5, (uint64_t)row, 0, unit);
        mirt__transform_matrix(&t, unit, m);
        dented += m[6] * (W - 1) + m[7] * (H - 1) + 1 < 0.05;
        for (int i = 0; i < H * W; i++) {
            double want = 0;
            moved(m, i % W, i / W, at);
            const double left = floor(at[0]), top = floor(at[1]);
            rounded = fmax(rounded, fabs((double)out[i] - (double)y[i]));
            /* Beside the line at which the quotient jumps, roundings move pixels by much. */
            if (fabs(m[6] * (i % W) + m[7] * (i / W) + 1) < 0.05) continue;
            for (int k = 0; k < 4; k++) {
                const double px = left + k % 2, py = top + k / 2;
                const bool inside = px >= 0 && px < W && py >= 0 && py < H;
                want += (1 - fabs(at[0] - px)) * (1 - fabs(at[1] - py)) * (inside ? (double)x[(int)(py * W + px)] : 50);
            }
            wrong = fmax(wrong, fabs(want - (double)y[i]));
            compared++;
        }
    }
    ok(good && dented > 0 && compared > IMAGES * H * W * 9 / 10 && wrong < 0.05 && rounded < 0.501,
       "pixels of %d images, %d of them dented, are those of a matrix in double precision (%.1e off), bytes as these",
       IMAGES, dented, wrong);
    good = mirt__transform_of(&d, 1, W, 1, &t);
    augment_once(&t, 1, 0, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
    ok(good && memcmp(x, y, W * sizeof *x) == 0, "an image of one row stays");
}

/* Gamma numbers have their mean and variance; every change of AugMix, and none, comes equally often; a chain and the
   image itself have half of all where there is one chain. */
static void test_aug_mix(void) {
    enum { N = 20000 };
    static const float alphas[] = {0.25f, 1, 3};
    mirt_augmentation d;
    mirt__transform t[MOST_TRANSFORMS];
    memset(&d, 0, sizeof d);
    d.kind = MIRT_AUG_MIX;
    for (int k = 0; k < MIRT__COUNT(alphas); k++) {
        const double alpha = (double)alphas[k];
        double sum = 0, square = 0, both = 0, share = 0;
        d.alpha = alphas[k];
        const bool good = mirt__transform_of(&d, 4, 4, 3, t);
        t->key = 8;
        t->size = 2;
        for (int i = 0; i < N; i++) {
            mirt__real shares[2];
            const double x = exp(mirt__transform_log_gamma(t, 3, (uint64_t)i, 0, 1)),
                         y = exp(mirt__transform_log_gamma(t, 3, (uint64_t)i, 0, 2));
            mirt__transform_shares(t, 3, (uint64_t)i, 0, shares);
            sum += x / N;
            square += (x - alpha) * (x - alpha) / N;
            both += (x - alpha) * (y - alpha) / alpha / N;
            share += (double)shares[0] / N;
        }
        ok(good && fabs(sum - alpha) < 5 * sqrt(alpha / N) &&
               fabs(square - alpha) < 5 * sqrt((2 * alpha * alpha + 6 * alpha) / N) && fabs(both) < 5 / sqrt(N) &&
               fabs(share - 1 / 3.0) < 5 * sqrt(2 / 9.0 / N),
           "gamma numbers of %g: mean %.4f, variance %.4f, correlation %.4f; a third of the shares: %.4f", alpha, sum,
           square, both, share);
    }
    const mirt_shape shape = mirt_make_shape(4, 4, 3, 0, 0, 0);
    for (int fewer = 0; fewer < 2; fewer++) {
        const int choices = fewer ? 7 : 11;
        int seen[12] = {0}, several = 0, wrong = 0;
        d.fewer_ops = fewer;
        const int count = transforms_of(&d, 1, &shape, t);
        for (int i = 0; i < N; i++) {
            int found = choices;
            for (int k = 0; k < choices && count; k++) {
                if (!mirt__transform_applies(&t[2 + choices * 3 + k], 5, (uint64_t)i, 0)) continue;
                several += found < choices;
                found = k;
            }
            seen[found]++;
        }
        for (int k = 0; k <= choices; k++) wrong += abs(seen[k] - N / (choices + 1)) > 5 * sqrt(N / (choices + 1.0));
        ok(count == 1 + 3 * (3 * choices + 1) && wrong == 0 && several == 0,
           "AugMix: each of %d changes, or none, comes equally often", choices);
    }
}

/* The middle pixel is moved by normal numbers that are independent, down and across, and those of its neighbor; chances
   and scales are drawn for each image. */
static void test_elastic(void) {
    enum { N = 20000, IMAGES = 40, SIDE = 19, MIDDLE = SIDE / 2 * (SIDE + 1), NUMBERS = SIDE * SIDE * 2 };
    static double scale[N], moved[3][N];
    static float x[NUMBERS], y[NUMBERS];
    static unsigned char bytes[NUMBERS], out[NUMBERS];
    mirt_augmentation d;
    mirt__transform t;
    double unit[4], square[3] = {0}, sum[3] = {0}, both = 0, beside = 0, rounded = 0;
    int applied = 0, changed = 0;
    memset(&d, 0, sizeof d);
    d.kind = MIRT_RANDOM_ELASTIC_TRANSFORM;
    bool good = mirt__transform_of(&d, 40, 60, 3, &t);
    for (int i = 0; i < N; i++) {
        applied += mirt__transform_applies(&t, 3, (uint64_t)i, 0);
        mirt__transform_draw(&t, 3, (uint64_t)i, 0, unit);
        const mirt__transform_elastic e = mirt__transform_elastic_of(&t, unit);
        scale[i] = sqrt((double)e.by / (0.05 * 40 * 0.1 * 60));
        changed += fabs(e.sigma - 2 * scale[i]) > 1e-6 || e.reach != 3 * (int)e.sigma;
    }
    uniform_ok("RandomElasticTransform: scale", scale, N, 0, 1);
    ok(changed == 0 && abs(applied - N / 2) < 5 * sqrt(N / 4),
       "... %d of %d images by a chance between 0 and 1", applied, N);
    d.factor[0] = d.factor[1] = d.scale[0] = d.scale[1] = 1;
    d.fill_mode = MIRT_FILL_NEAREST;
    good = good && mirt__transform_of(&d, SIDE, SIDE, 2, &t);
    for (int i = 0; i < NUMBERS; i++) x[i] = (float)(i % 2 ? i / 2 / SIDE : i / 2 % SIDE);
    for (int i = 0; i < N / 5; i++) {
        augment_once(&t, 1, (uint64_t)i, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
        moved[0][i] = (double)(y[2 * MIDDLE] - x[2 * MIDDLE]);
        moved[1][i] = (double)(y[2 * MIDDLE + 1] - x[2 * MIDDLE + 1]);
        moved[2][i] = (double)(y[2 * MIDDLE + 2] - x[2 * MIDDLE + 2]);
        for (int k = 0; k < 3; k++) {
            sum[k] += moved[k][i] / (N / 5);
            square[k] += moved[k][i] * moved[k][i] / (N / 5);
        }
        both += moved[0][i] * moved[1][i] / (N / 5);
        beside += moved[0][i] * moved[2][i] / (N / 5);
    }
    const double variance = 0.95 * 0.95 * 1.9 * 1.9, off = 5 / sqrt(N / 5);
    for (int k = 0; k < 3; k++) {
        ok(good && fabs(sum[k]) < off * sqrt(variance) && fabs(square[k] / variance - 1) < off * sqrt(2),
           "... pixels are moved %s by normal numbers: mean %.3f, variance %.3f of %.3f", k == 1 ? "down" : "across",
           sum[k], square[k], variance);
    }
    ok(fabs(both / variance) < off && fabs(beside / variance) < off,
       "... which are independent: correlation %.3f across and down, %.3f with a neighbor", both / variance,
       beside / variance);
    good = mirt__transform_of(&d, 33, 9, 2, &t);
    for (int i = 0; i < 33 * 9 * 2; i++) x[i] = bytes[i] = (unsigned char)(golden_word(6, (uint32_t)i) >> 24);
    for (int i = 0; i < IMAGES; i++) {
        augment_once(&t, 1, (uint64_t)i, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
        augment_once(&t, 1, (uint64_t)i, MIRT_UINT8, bytes, MIRT_UINT8, out);
        for (int k = 0; k < 33 * 9 * 2; k++) rounded = fmax(rounded, fabs((double)out[k] - (double)y[k]));
    }
    ok(good && rounded > 0.4 && rounded < 0.501, "... bytes are rounded: at most %.3f off", rounded);
    t.low[1] = t.high[1] = 0;
    augment_once(&t, 1, 0, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
    ok(memcmp(x, y, 33 * 9 * 2 * sizeof *x) == 0, "... and a scale of 0 changes nothing");
}

/* What RandAugment and AugMix do without a description is what Keras's defaults say. */
static void test_defaults_of_several(void) {
    const mirt_shape shape = mirt_make_shape(4, 4, 3, 0, 0, 0);
    mirt__transform t[2][MOST_TRANSFORMS];
    for (int mixes = 0; mixes < 2; mixes++) {
        mirt_augmentation d[2];
        int count[2];
        memset(d, 0, sizeof d);
        memset(t, 0, sizeof t);
        d[0].kind = d[1].kind = mixes ? MIRT_AUG_MIX : MIRT_RAND_AUGMENT;
        d[1].factor[1] = mixes ? 0.3f : 0.5f;
        d[1].num_ops = 2;
        d[1].num_chains = d[1].chain_depth = 3;
        d[1].alpha = 1;
        d[1].value_range[1] = 255;
        for (int i = 0; i < 2; i++) count[i] = transforms_of(&d[i], 1, &shape, t[i]);
        ok(count[0] > 0 && count[0] == count[1] && memcmp(t[0], t[1], sizeof t[0]) == 0, "%s: Keras's defaults",
           mixes ? "AugMix" : "RandAugment");
    }
}

/* How often, how large and where; the noise is normal and clipped. */
static void test_erasing_draws(void) {
    enum { N = 20000, H = 40, W = 60 };
    static double share[2][N], place[N], noise[H * W * 3];
    static float x[H * W * 3], y[H * W * 3];
    mirt_augmentation d;
    mirt__transform t;
    int erased = 0, outside = 0;
    memset(&d, 0, sizeof d);
    d.kind = MIRT_RANDOM_ERASING;
    d.scale[0] = 0.25f;
    d.scale[1] = 0.64f;
    bool good = mirt__transform_of(&d, 1000000, 1000, 1, &t);
    for (int i = 0; i < N; i++) {
        int64_t part[4];
        double unit[4];
        erased += mirt__transform_applies(&t, 3, (uint64_t)i, 0);
        mirt__transform_draw(&t, 3, (uint64_t)i, 0, unit);
        mirt__transform_part(&t, unit, part);
        const double high = (double)(part[1] - part[0]) / 1e6, wide = (double)(part[3] - part[2]) / 1e3;
        share[0][i] = high * high;
        share[1][i] = wide * wide;
        place[i] = (double)part[0] / 1e6 / (1 - high);
        outside += part[0] < 0 || part[1] > 1000000 || part[2] < 0 || part[3] > 1000;
    }
    uniform_ok("RandomErasing: squares of heights", share[0], N, 0.25, 0.64);
    ok(outside == 0, "... %d parts lie outside", outside);
    uniform_ok("... places", place, N, 0, 1);
    double both = 0;
    for (int i = 0; i < N; i++) both += (share[0][i] - 0.445) * (share[1][i] - 0.445) * 12 / 0.1521 / N;
    ok(fabs(both) < 5 / sqrt((double)N), "... and widths are independent (correlation %.4f)", both);
    ok(abs(erased - N / 2) < 5 * sqrt(N / 4), "... %d of %d images by a chance between 0 and 1", erased, N);
    d.factor[0] = d.factor[1] = 1;
    d.scale[0] = d.scale[1] = 1;
    d.value_range[0] = -100;
    d.value_range[1] = 2;
    good = good && mirt__transform_of(&d, H, W, 3, &t);
    augment_once(&t, 1, 1, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
    double mean = 0, square = 0;
    int clipped = 0;
    for (int i = 0; i < H * W * 3; i++) noise[i] = (double)y[i];
    for (int i = 0; i < H * W * 3; i++) clipped += noise[i] >= 2, mean += noise[i] / (H * W * 3);
    for (int i = 0; i < H * W * 3; i++) square += noise[i] < 0 ? noise[i] * noise[i] / (H * W * 3) : 0;
    /* Of a normal number clipped at its deviation, 15.9 % are there, and the mean is -0.0833 of it. */
    ok(abs(clipped - 1142) < 5 * 31 && fabs(mean + 0.1666) < 0.1 && fabs(square - 2) < 0.25,
       "the noise is normal: %d of %d clipped, mean %.3f, negative half's square %.3f", clipped, H * W * 3, mean,
       square);
    ok(good, "all of these are descriptions");
}

/* What is not a number stays none, and does not spread. */
static void test_not_numbers(void) {
    for (int kind = 0; kind < 2; kind++) {
        mirt_augmentation d;
        mirt__transform t;
        float x[12] = {1, 2, 3, NAN, 2, 3, 4, NAN, 6, 5, 6, NAN}, y[12];
        memset(&d, 0, sizeof d);
        d.kind = kind ? MIRT_RANDOM_SATURATION : MIRT_RANDOM_HUE;
        d.factor[0] = d.factor[1] = 0.4f;
        const bool made = mirt__transform_of(&d, 2, 2, 3, &t);
        augment_once(&t, 1, 0, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
        int wrong = 0;
        for (int i = 0; i < 12; i++) wrong += (i < 3) == (y[i] != y[i]);
        ok(made && wrong == 0, "random_%s: pixels that are not numbers stay none", kind ? "saturation" : "hue");
    }
}

/* Places far outside, several images, values beyond the range: every table makes what the one for single images does,
   but for a few pixels at the border between two neighbors. */
static void test_tables(void) {
    enum { IMAGES_AT_ONCE = 5, H = 7, W = 9, NUMBERS = H * W * 3 };
    static const char *const lists[] = {"translation:1,translation:1,zoom:0.9", "rotation:0.5,zoom:0.9",
                                        "zoom:0.9,contrast:0.9,brightness:1", "brightness:1,contrast:1",
                                        "resizing:14:5,rotation:1",            "shear:0.9:0.7,zoom:0.9",
                                        "hue:1,saturation:0.9,erasing",
                                        "erasing:1:1,grayscale,invert",
                                        "contrast:0.5,auto_contrast,solarization:0.3:0.8",
                                        "sharpness:1,gaussian_blur:1:1,zoom:0.3,sharpness:0.3",
                                        "color_jitter:0.5:0.5:0.7:0.3,gaussian_blur,rand_augment",
                                        "invert:1:1,equalization,color_degeneration:0.7,posterization:2:5",
                                        "perspective,rotation:0.2:constant,perspective",
                                        "hue:0.5,aug_mix,zoom:0.2",
                                        "clahe,rotation:0.3,clahe:20",
                                        "aug_mix:0.6,aug_mix",
                                        "elastic_transform,zoom:0.3,elastic_transform:0.5:1,hue:0.2",
                                        "rotation:0.5,erasing:1:constant,hue:0.5"};
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
            mirt__transform t[MOST_TRANSFORMS];
            int count = mirt_parse_augmentation(lists[i / tables], list, 4);
            for (int n = 0; n < count; n++) {
                if (list[n].kind != MIRT_RANDOM_ERASING && list[n].kind != MIRT_RANDOM_PERSPECTIVE)
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
        ok(good && away <= 2 * (int)MIRT__FILL_COUNT * IMAGES_AT_ONCE * NUMBERS / 500,
           "%s: %s, filled and interpolated in all ways: %d numbers are not those of single images", k->name,
           lists[i / tables], away);
    }
}

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

/* Half a pixel beyond an edge is nearest to what is outside, as std::round has it: of an image of two by two nothing is
   left when its pixels move to twice their distance. And what repeats its edges is not one warp with what fills them in
   other ways: each is done on its own. */
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
            ok(both == 2 && away <= 2, "%s: %s, filled %s: one after the other, but for %d numbers", table[k]->name,
               lists[way / 2], way % 2 ? "by wrapping" : "with zero", away);
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
        float *fx = (float *)malloc((size_t)n * 4), *fy = (float *)malloc((size_t)n * 4),
              *mixed = (float *)malloc((size_t)n * 4);
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
        ok(most == 4 && worst < 0.52 && apart == 0,
           "bytes (%d, %d, %d) stay bytes, rounded: at most %.3f off; bytes to float32 as float32", (int)shape.dim[0],
           (int)shape.dim[1], (int)shape.dim[2], worst);
        free(x);
        free(y);
        free(fx);
        free(fy);
        free(mixed);
    }
}

/* Jitter whose factors are all 0 consists of nothing, and passes images on. */
static void test_jitter_by_nothing(void) {
    unsigned char x[2 * 3 * 3], y[2] = {0, 1}, got[2 * 3 * 3];
    mirt_augmentation list;
    memset(&list, 0, sizeof list);
    list.kind = MIRT_RANDOM_COLOR_JITTER;
    for (int i = 0; i < (int)sizeof x; i++) x[i] = (unsigned char)(40 + i);
    mirt_dataset *dataset =
        mirt_augment(mirt_arrays(mirt_make_array(x, MIRT_UINT8, mirt_make_shape(2, 1, 3, 3, 0, 0)),
                                 mirt_make_array(y, MIRT_UINT8, mirt_make_shape(2, 0, 0, 0, 0, 0))), &list, 1);
    mirt_data sample;
    memset(got, 0, sizeof got);
    for (int i = 0; i < 2 && mirt_dataset_read(dataset, i, NULL, &sample) == MIRT_OK; i++) {
        memcpy(got + i * 9, sample.x[0].data, 9);
        mirt_data_free(&sample);
    }
    ok(dataset && memcmp(got, x, sizeof x) == 0, "jitter by nothing passes images on%s%s", dataset ? "" : ": ",
       dataset ? "" : mirt_last_error());
    mirt_dataset_destroy(dataset);
}

int main(void) {
    test_goldens();
    test_contrast();
    test_flips();
    test_crops();
    test_draws();
    test_color_draws();
    test_perspective();
    test_aug_mix();
    test_elastic();
    test_defaults_of_several();
    test_erasing_draws();
    test_not_numbers();
    test_tables();
    test_ranges();
    test_edges();
    test_jitter_by_nothing();
    test_bytes();
    return done_testing();
}
