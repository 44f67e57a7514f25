/* Compares kernels on stored bfloat16 with the reference on the same numbers as floats. Batch normalization on
   float32, bfloat16 and on GPUs float16, and max pooling on bfloat16; bit-identical from any team and from AVX2
   and AVX-512. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include "bfloat16.h"
#include "float16.h"

enum { TEAMS = 3, MOST = 700 * 40 };
static mirt__team *teams[TEAMS];
static mirt__random numbers;
static float number(void) { return mirt__random_unit(&numbers) * 4 - 2; }

static mirt_dtype halves = (mirt_dtype)MIRT__BFLOAT16;
static uint16_t rounded(float real) { return (int)halves == MIRT__FLOAT16 ? float_to_f16(real) : float_to_half(real); }
static float widened(uint16_t half) { return (int)halves == MIRT__FLOAT16 ? f16_to_float(half) : half_to_float(half); }
/* half of what is between neighbors, as a part, and a little more */
static double step(void) { return (int)halves == MIRT__FLOAT16 ? 1.0 / 2000 : 1.0 / 250; }

/* The same numbers twice: as they are stored, and as floats. */
typedef struct pair {
    mirt_dtype dtype;
    uint16_t half[MOST];
    float real[MOST];
} pair;
static pair x, dy, add, y;
static void fill(pair *p, bool half) {
    p->dtype = half ? halves : MIRT_FLOAT32;
    for (int i = 0; i < MOST; i++) {
        p->real[i] = number();
        p->half[i] = rounded(p->real[i]);
        if (half) p->real[i] = widened(p->half[i]);
    }
}
static const void *stored(const pair *p) {
    return p->dtype == MIRT_FLOAT32 ? (const void *)p->real : (const void *)p->half;
}

static float column[6][64], out[2][64], want[2][64], made[MOST], first[MOST], first_out[2][64];

static void run(const mirt__kernels *k, const mirt__norm *s, mirt__team *team, int kernel) {
    mirt__where where;
    const size_t scratch = mirt__norm_scratch(s), shared = mirt__norm_shared(s);
    where.team = team;
    where.scratch_per_thread = scratch;
    where.scratch = malloc(scratch * (size_t)mirt__team_size(team) + 64);
    where.shared = malloc(shared + 64);
    memset(where.shared, 0xFF, shared);
    if (kernel == 0) k->normalize(s, &where);
    else if (kernel == 1) k->norm_grad_input(s, &where);
    else if (kernel == 2) k->norm_stats(s, &where);
    else k->norm_grad_sums(s, &where);
    free(where.scratch);
    free(where.shared);
}

static const char *const names[4] = {"normalize", "norm_grad_input", "norm_stats", "norm_grad_sums"};

static void check(const mirt__kernels *const *tables, int count, int kernel, int64_t rows, int64_t n, int dtypes,
                  mirt_activation_kind activation, bool adds) {
    mirt__norm s, plain;
    double error = 0;
    bool equal = true;
    fill(&x, dtypes & 1);
    fill(&dy, (dtypes & 2) != 0);
    fill(&add, (dtypes & 2) != 0);
    y.dtype = dtypes & 4 ? halves : MIRT_FLOAT32;
    memset(&s, 0, sizeof s);
    s.rows = rows;
    s.n = n;
    s.epsilon = 1e-3f;
    s.mean = column[0];
    s.variance = column[1];
    s.gamma = column[2];
    s.beta = column[3];
    s.activation = activation;
    s.count = 1.5 * (double)rows;
    for (int i = 0; i < 2; i++) {
        s.sum[i] = adds ? column[4 + i] : NULL;
        s.out[i] = out[i];
    }
    plain = s;
    s.x = stored(&x);
    s.dy = stored(&dy);
    s.x_dtype = x.dtype;
    s.dy_dtype = dy.dtype;
    s.add_dtype = add.dtype;
    s.y_dtype = y.dtype;
    s.y = y.dtype == MIRT_FLOAT32 ? (void *)y.real : (void *)y.half;
    plain.x = x.real;
    plain.dy = dy.real;
    plain.y = made;
    for (int i = 0; i < 2; i++) plain.out[i] = want[i];
    if (adds && kernel == 0) {
        s.add = stored(&add);
        plain.add = add.real;
    }
    run(tables[count - 1], &plain, NULL, kernel);
    for (int t = 0; t + 1 < count; t++) {
#ifndef FP_FAST_FMAF
        if (strcmp(tables[t]->name, "plain") == 0) continue;
#endif
        for (int team = 0; team < TEAMS; team++) {
            run(tables[t], &s, teams[team], kernel);
            for (int64_t i = 0; kernel < 2 && i < rows * n; i++) {
                const float got = y.dtype == MIRT_FLOAT32 ? y.real[i] : widened(y.half[i]);
                const double rounding = y.dtype == MIRT_FLOAT32 ? 0 : fabs((double)made[i]) * step(),
                             off = fabs((double)got - (double)made[i]) - rounding;
                if (t == 0 && team == 0) {
                    first[i] = got;
                    error = worse(error, off > 0 || off != off ? off / (1 + fabs((double)made[i])) : 0);
                }
                equal = equal && memcmp(&first[i], &got, sizeof got) == 0;
            }
            for (int i = 0; kernel >= 2 && i < 2; i++) {
                for (int64_t j = 0; t == 0 && team == 0 && j < n; j++)
                    error =
                        worse(error, fabs((double)out[i][j] - (double)want[i][j]) / (kernel == 2 ? 1 : (double)rows));
                if (t == 0 && team == 0) memcpy(first_out[i], out[i], sizeof out[i]);
                equal = equal && memcmp(first_out[i], out[i], (size_t)n * sizeof(float)) == 0;
            }
        }
    }
    ok(error < 1e-5 && equal, "%s: %s of %dx%d, dtypes %d, activation %d%s: off by %.1e%s", mirt__dtype_name(halves),
       names[kernel], (int)rows, (int)n, dtypes, (int)activation, adds ? ", with what there is to add" : "", error,
       equal ? "" : ", bits differ");
}

/* The maximum of numbers of 16 bits is one; a gradient is rounded once. */
static void check_pool(const mirt__kernels *const *tables, int count, int64_t n, int kernel, int stride, int pad) {
    static uint8_t which[2][MOST];
    static uint16_t pooled[MOST], back[MOST];
    mirt__where where;
    mirt__pool2d p;
    bool good = true;
    memset(&where, 0, sizeof where);
    memset(&p, 0, sizeof p);
    fill(&x, true);
    fill(&dy, true);
    p.rows = 2;
    p.h = p.w = 13;
    p.c = n;
    p.kh = p.kw = kernel;
    p.stride_h = p.stride_w = stride;
    p.pad_top = p.pad_left = pad;
    p.oh = p.ow = (13 + 2 * pad - kernel) / stride + 1;
    const int64_t pixels = p.rows * p.h * p.w * n, windows = p.rows * p.oh * p.ow * n;
    for (int t = 0; t + 1 < count; t++) {
        for (int team = 0; team < TEAMS; team++) {
            const mirt__kernels *const k[2] = {tables[count - 1], tables[t]};
            for (int half = 0; half < 2; half++) {
                where.team = half ? teams[team] : NULL;
                p.dtype = half ? halves : MIRT_FLOAT32;
                p.which = which[half];
                p.x = half ? (const void *)x.half : (const void *)x.real;
                p.y = half ? (void *)pooled : (void *)made;
                k[half]->max_pool(&p, &where);
                p.x = half ? (const void *)dy.half : (const void *)dy.real;
                p.y = half ? (void *)back : (void *)first;
                k[half]->max_pool_grad(&p, &where);
            }
            for (int64_t i = 0; i < windows; i++)
                good = good && widened(pooled[i]) == made[i] && which[0][i] == which[1][i];
            for (int64_t i = 0; i < pixels; i++)
                good = good && fabs((double)widened(back[i]) - (double)first[i]) <= fabs((double)first[i]) * step();
        }
    }
    ok(good, "max pooling of %s, %dx%d/%d, %d channels, and its gradient", mirt__dtype_name(halves), kernel, kernel,
       stride, (int)n);
}

static void check_all(const mirt__kernels *const *tables, int count) {
    static const int shapes[][2] = {{1, 1}, {7, 17}, {300, 33}, {700, 40}, {70, 64}};
    for (int i = 0; i < 5; i++) {
        for (int dtypes = 0; dtypes < 8; dtypes++) {
            for (int adds = 0; adds < 2; adds++) {
                const mirt_activation_kind kind = i == 1   ? MIRT_LINEAR
                                                  : i == 2 ? MIRT_SILU
                                                  : adds   ? MIRT_RELU
                                                           : MIRT_RELU6;
                for (int kernel = 0; kernel < (dtypes < 4 && !adds ? 4 : 2); kernel++)
                    check(tables, count, kernel, shapes[i][0], shapes[i][1], dtypes, kind, adds != 0);
            }
        }
    }
    for (int i = 1; i < 40; i += 9) check_pool(tables, count, i, i % 4 + 1, i % 3 + 1, i % 4 / 2);
    check_pool(tables, count, 64, 3, 2, 1);
}

int main(void) {
    int count;
    const mirt__kernels *const *tables = mirt__kernel_tables(&count);
    numbers = mirt__random_stream(3, 5);
    for (int i = 1; i < TEAMS; i++) teams[i] = mirt__team_create(i + 1, false);
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 64; j++) column[i][j] = i == 1 ? 0.3f + fabsf(number()) : number();
    }
    check_all(tables, count);
    halves = (mirt_dtype)MIRT__FLOAT16;
    if (strcmp(tables[0]->name, "cuda") == 0) check_all(tables, count);
    for (int i = 1; i < TEAMS; i++) mirt__team_destroy(teams[i]);
    return done_testing();
}
