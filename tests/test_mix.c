/* Tests MixUp and CutMix as stages of data sets. They are compared with Keras's layers that are given the same numbers
   (golden/augment.h); what is drawn, and the samples are the same whoever makes them. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/augment.h"
#include "label_stages_util.h"

/* >>goldens */

enum { MOST = 12 * 400 };

static mirt_dataset *mixed(const golden_mixture *g, mirt_dataset *d) {
    d = mirt_one_hot_labels(d, g->classes);
    return g->cuts ? mirt_cut_mix(d, g->range[0], g->range[1]) : mirt_mix_up(d, g->range[0]);
}

/* An epoch of images and labels, which may be uint8. */
static bool read_mixed(const golden_mixture *g, mirt_dtype dtype, float *x, float *y) {
    static float images[MOST];
    static unsigned char bytes[MOST];
    int32_t labels[16];
    const int64_t each = mirt__shape_count(&g->shape);
    mirt_array array = mirt_make_array(images, dtype, MIRT_SHAPE(g->samples, g->shape.dim[0], g->shape.dim[1],
                                                                 g->shape.dim[2]));
    mirt__batch b;
    int64_t row = 0;
    for (int i = 0; i < g->samples; i++) {
        labels[i] = i * 7 % g->classes;
        for (int k = 0; k < each; k++) {
            images[i * each + k] = golden_uniform(g->seed + (unsigned)i, (uint32_t)k) / 2 + 0.5f;
            bytes[i * each + k] = (unsigned char)(images[i * each + k] * 255);
        }
    }
    if (dtype == MIRT_UINT8) array.data = bytes;
    mirt_dataset *d = mixed(g, mirt_arrays(array, mirt_make_array(labels, MIRT_INT32, MIRT_SHAPE(g->samples))));
    bool good = d && d->spec.field[0].dtype == dtype &&
                mirt__dataset_begin(d, (uint64_t)g->run_seed, g->epoch) == MIRT_OK;
    while (good && mirt__dataset_next(d, &b) == MIRT_OK && b.rows && row < g->samples) {
        for (int64_t k = 0; k < each; k++) {
            x[row * each + k] = dtype == MIRT_UINT8 ? (float)((const unsigned char *)b.field[0])[k]
                                                    : ((const float *)b.field[0])[k];
        }
        memcpy(y + row++ * g->classes, b.field[1], (size_t)g->classes * sizeof *y);
    }
    mirt_dataset_destroy(d);
    return good && row == g->samples;
}

static void test_goldens(void) {
    static float x[MOST], bytes[MOST], y[64];
    for (int i = 0; i < MIRT__COUNT(golden_mixtures); i++) {
        const golden_mixture *g = &golden_mixtures[i];
        const int64_t count = g->samples * mirt__shape_count(&g->shape);
        const bool read = read_mixed(g, MIRT_FLOAT32, x, y);
        const double root = sqrt((double)count);
        double square = 0, worst = 0, labels = 0, apart = 0;
        for (int64_t k = 0; k < count; k++) square += (double)x[k] * (double)x[k];
        worst = fabs(sqrt(square) - g->norm) / root;
        for (int p = 0; p < GOLDEN_PROJECTIONS; p++) {
            double sum = 0;
            for (int64_t k = 0; k < count; k++)
                sum += (double)x[k] * (double)golden_uniform(1000 + (uint32_t)p, (uint32_t)k);
            worst = fmax(worst, fabs(sum - g->product[p]) / root);
        }
        for (int k = 0; k < g->samples * g->classes; k++) labels = fmax(labels, fabs((double)y[k] - g->label[k]));
        ok(read && worst < 1e-6 && labels < 1e-6, "%s of %g to %g: %.1e and %.1e (labels) from Keras (%s)",
           g->cuts ? "CutMix" : "MixUp", (double)g->range[0], (double)g->range[1], worst, labels, mirt_last_error());
        const bool again = read_mixed(g, MIRT_UINT8, bytes, y);
        for (int64_t k = 0; k < count; k++) apart = fmax(apart, fabs((double)bytes[k] - 255 * (double)x[k]));
        ok(again && apart < 1.51, "... bytes stay bytes (%.2f off)", apart);
    }
}

/* >>what is drawn */

/* Shares of own labels where the partner has another one. */
enum { N = 40000, SIDE = 20 };
static float drawn_label[N][2], drawn_x[N];

static int shares_of(mirt_dataset *d, int64_t number, double *share, double *apart) {
    mirt__batch b;
    int count = 0;
    *apart = 0;
    for (bool more = d && mirt__dataset_begin(d, 3, number) == MIRT_OK; more;) {
        more = mirt__dataset_next(d, &b) == MIRT_OK && b.rows > 0;
        for (int64_t r = 0; more && r < b.rows; r++) {
            const float *const y = (const float *)b.field[1] + 2 * r, own = y[b.index[r] % 2];
            *apart = fmax(*apart, fabs((double)y[0] + (double)y[1] - 1));
            *apart = fmax(*apart, fabs((double)((const float *)b.field[0])[r] - (double)y[1]));
            if (y[1 - b.index[r] % 2] > 0) share[count++] = (double)own;
        }
    }
    return count;
}

static void test_draws(void) {
    static const float alphas[] = {0.2f, 0.5f, 1, 0.1f};
    static double share[N], later[N];
    for (int i = 0; i < N; i++) drawn_label[i][i % 2] = 1, drawn_x[i] = (float)(i % 2);
    for (int a = 0; a < MIRT__COUNT(alphas); a++) {
        mirt_dataset *d = mirt_mix_up(mirt_arrays(mirt_make_array(drawn_x, MIRT_FLOAT32, MIRT_SHAPE(N)),
                                                  mirt_make_array(drawn_label, MIRT_FLOAT32, MIRT_SHAPE(N, 2))),
                                      alphas[a]);
        double apart, mean = 0, square = 0, fourth = 0;
        const int n = shares_of(d, 0, share, &apart);
        for (int i = 0; i < n; i++) mean += share[i] / n;
        for (int i = 0; i < n; i++) {
            const double away = (share[i] - 0.5) * (share[i] - 0.5);
            square += away / n;
            fourth += away * away / n;
        }
        /* Beta(a, a): variance 1 / (4 (2 a + 1)), fourth moment 3 / (16 (2 a + 1) (2 a + 3)) */
        const double of = 2 * (double)alphas[a] + 1, want = 1 / (4 * of), more = 3 / (16 * of * (of + 2));
        ok(n > N / 2 - 600 && apart < 1e-6 && fabs(mean - 0.5) < 5 * 0.5 / sqrt(n) &&
               fabs(square - want) < 0.004 && fabs(fourth - more) < 0.002,
           "MixUp %g: %d pairs, mean %.4f, variance %.4f for %.4f, fourth moment %.4f for %.4f", (double)alphas[a], n,
           mean, square, want, fourth, more);
        const int m = shares_of(d, 1, later, &apart);
        int same = 0;
        for (int i = 0; i < (n < m ? n : m); i++) same += share[i] > 0.01 && share[i] < 0.99 && share[i] == later[i];
        ok(m > 0 && same < 3, "... and others in the next epoch (%d the same)", same);
        mirt_dataset_destroy(d);
    }
}

/* A rectangle of the other image, as large as its label says. */
static void test_parts(void) {
    enum { IMAGES_OF = 300 };
    static unsigned char image[IMAGES_OF][SIDE][SIDE];
    static float label[IMAGES_OF][2];
    int wrong = 0, mixes = 0;
    mirt__batch b;
    for (int i = 0; i < IMAGES_OF; i++) {
        label[i][i % 2] = 1;
        memset(image[i], i % 2 ? 200 : 100, sizeof image[i]);
    }
    mirt_dataset *d = mirt_cut_mix(mirt_arrays(mirt_make_array(image, MIRT_UINT8, MIRT_SHAPE(IMAGES_OF, SIDE, SIDE, 1)),
                                               mirt_make_array(label, MIRT_FLOAT32, MIRT_SHAPE(IMAGES_OF, 2))),
                                   1, 1);
    mirt_status status = mirt__dataset_begin(d, 3, 0);
    for (int i = 0; i < IMAGES_OF && status == MIRT_OK; i++) {
        status = mirt__dataset_next(d, &b);
        const unsigned char *const x = (const unsigned char *)b.field[0];
        const double other_share = 1 - (double)((const float *)b.field[1])[i % 2], side = sqrt(other_share) * SIDE;
        int rows_of[SIDE] = {0}, columns = 0, high = 0, all = 0;
        if (other_share <= 0) continue;
        for (int y = 0; y < SIDE; y++) {
            for (int k = 0; k < SIDE; k++) rows_of[y] += x[y * SIDE + k] != (i % 2 ? 200 : 100);
            high += rows_of[y] > 0;
            all += rows_of[y];
            columns = rows_of[y] > columns ? rows_of[y] : columns;
        }
        wrong += all != high * columns || fabs(high - side) > 1 || fabs(columns - side) > 1;
        mixes++;
    }
    ok(status == MIRT_OK && wrong == 0 && mixes > 100, "CutMix: %d of %d parts are not as their labels say", wrong,
       mixes);
    mirt_dataset_destroy(d);
}

/* >>the same whoever makes it */

static mirt_dataset *mix_up(mirt_dataset *d) { return mirt_mix_up(mirt_one_hot_labels(d, CLASSES), 0.5f); }
static mirt_dataset *cut_mix(mirt_dataset *d) { return mirt_cut_mix(mirt_one_hot_labels(d, CLASSES), 0, 0); }
static mirt_dataset *both(mirt_dataset *d) { return mirt_cut_mix(mirt_mix_up(mix_up(d), 1), 0.5f, 1); }
static mirt_dataset *repeated(mirt_dataset *d) { return mix_up(mirt_repeat(d, 2)); }
static mirt_dataset *cached(mirt_dataset *d) { return mix_up(mirt_cache(d)); }

static int thin(const void *const *in, void *const *out, int64_t index, void *user) {
    (void)in;
    (void)user;
    ((float *)out[0])[0] += (float)index;
    return 0;
}
static mirt_dataset *mapped(mirt_dataset *d) {
    mirt_map_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.fn = thin;
    return mix_up(mirt_map(mirt_repeat(mirt_map(d, &desc), 2), &desc));
}

static void test_same(void) {
    same_however("MixUp", mix_up);
    same_however("CutMix", cut_mix);
    same_however("MixUp twice, CutMix", both);
    same_however("MixUp of a cache", cached);
    same_however("MixUp of what is repeated", repeated);
    same_however("MixUp of repeated maps", mapped);
    mirt_dataset *d = repeated(rows(true));
    epoch_of(d, 0, &first);
    int same = 0;
    for (int i = 0; i < ROWS && first.rows == 2 * ROWS; i++)
        same += memcmp(first.row[i], first.row[ROWS + i], ROW_BYTES) == 0;
    ok(first.rows == 2 * ROWS && same < ROWS / 2, "passes are mixed in their own ways (%d the same)", same);
    mirt_dataset_destroy(d);
}

/* >>misuse */

static mirt_dataset *plain(mirt_dtype dtype) {
    return mirt_arrays(mirt_make_array(row_x, dtype, MIRT_SHAPE(ROWS, 3)),
                       mirt_make_array(row_x, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 3)));
}

static int give(void *const *out, int64_t index, void *user) {
    (void)out;
    (void)user;
    return index < ROWS ? 0 : MIRT_END_OF_DATA;
}

static void test_misuse(void) {
    mirt_generator_desc stream;
    memset(&stream, 0, sizeof stream);
    stream.fn = give;
    stream.num_x = stream.num_y = 1;
    stream.x[0] = stream.y[0] = mirt_make_array(NULL, MIRT_FLOAT32, MIRT_SHAPE(2));
    refused(mirt_mix_up(rows(false), 0.2f), MIRT_E_INVALID, "mixes float32 labels, not int32: put mirt_one_hot_labels");
    refused(mirt_mix_up(plain(MIRT_FLOAT32), -0.5f), MIRT_E_INVALID, "mirt_mix_up(-0.5)");
    refused(mirt_mix_up(plain(MIRT_FLOAT32), NAN), MIRT_E_INVALID, "nan");
    refused(mirt_mix_up(plain(MIRT_FLOAT32), 1.5f), MIRT_E_INVALID, "1.5");
    refused(mirt_mix_up(plain(MIRT_INT32), 0.5f), MIRT_E_SHAPE, "not (3) of int32");
    refused(mirt_cut_mix(plain(MIRT_FLOAT32), 0, 1), MIRT_E_SHAPE, "takes images");
    refused(mirt_cut_mix(cut_mix(rows(false)), 0.5f, 0.25f), MIRT_E_INVALID, "range");
    refused(mirt_cut_mix(cut_mix(rows(false)), 0, NAN), MIRT_E_INVALID, "range");
    refused(mirt_mix_up(mirt_batch(plain(MIRT_FLOAT32), 2), 0), MIRT_E_INVALID, "before mirt_batch");
    refused(mirt_mix_up(mirt_dataset_from_generator(&stream), 0), MIRT_E_INVALID, "put mirt_cache before it");
    refused(mirt_mix_up(mirt_arrays(mirt_make_array(row_x, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 3)), (mirt_array){0}), 0),
            MIRT_E_INVALID, "no labels");
    ok(!mirt_mix_up(NULL, 0.2f) && !mirt_cut_mix(NULL, 0, 9), "no data set, no stage");
}

int main(void) {
    draw_rows();
    test_goldens();
    test_draws();
    test_parts();
    test_same();
    test_misuse();
    return done_testing();
}
