/* Tests depthwise convolutions of every fast table against plain double arithmetic. Covers readers, every epilogue,
   both gradients alone and in one pass, float32 and bfloat16; the same bits from AVX2 and AVX-512 and from any team,
   and for an image in any place; the means of images. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#include "conv_calls.h"

static const shape shapes[] = {
    {2, 7, 9, 16, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 9, 8, 7, 7, 7, 3, 3, 2, 2, 1, 1, 0, 0, 1, 1},
    {3, 6, 6, 33, 33, 33, 3, 3, 2, 2, 1, 1, 1, 1, 0, 0}, {2, 8, 7, 24, 24, 24, 5, 5, 1, 1, 1, 1, 2, 2, 2, 2},
    {1, 11, 10, 17, 17, 17, 5, 5, 2, 2, 1, 1, 1, 2, 2, 2}, {2, 5, 6, 3, 3, 3, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0},
    {1, 6, 7, 40, 40, 40, 2, 4, 1, 2, 1, 1, 0, 1, 1, 1}, {1, 9, 9, 20, 20, 20, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2},
    {2, 10, 12, 8, 8, 8, 3, 2, 2, 3, 2, 1, 0, 0, 0, 0}, {1, 7, 7, 5, 5, 5, 1, 2, 3, 3, 1, 1, 0, 0, 0, 0},
    {17, 4, 5, 32, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {66, 3, 3, 4, 4, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
    {1, 40, 12, 19, 19, 19, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 33, 21, 16, 16, 16, 3, 3, 2, 2, 1, 1, 0, 0, 1, 1},
    {1, 2, 300, 6, 6, 6, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 4, 601, 3, 3, 3, 3, 3, 1, 2, 1, 1, 1, 1, 1, 1},
    {1, 12, 12, 2, 2, 2, 7, 7, 1, 1, 1, 1, 3, 3, 3, 3}, {1, 130, 17, 20, 20, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1},
    {2, 5, 6, 8, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1, 5, 6}, {0, 4, 4, 8, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1}};

/* The means of images: beside outputs that stay as they are, near those of the outputs, and the same bits from every
   table and team, and for an image alone. */
static void check_means(const shape *p, const setup *how) {
    int count;
    const mirt__kernels *const *tables = mirt__kernel_tables(&count);
    call c = call_of(p, how, false), one;
    const int64_t columns = c.s.co, pixels = c.s.oh * c.s.ow;
    array mean = array_of(MIRT_FLOAT32, c.s.rows * columns, false),
          first = array_of(MIRT_FLOAT32, c.s.rows * columns, false), alone = array_of(MIRT_FLOAT32, columns, false),
          y_of_one = alone, y;
    bool equal = true, placed = true;
    double error = 0;
    call_ready(&c);
    c.epilogue.sums = MIRT__SUMS_NONE;
    run(&c, tables[0], NULL, 0);
    y = copy_of(&c.out);
    c.epilogue.sums = MIRT__SUMS_IMAGES;
    for (int t = 0; t < count; t++) {
        bool comparable = strcmp(tables[t]->name, "reference") != 0;
#ifndef FP_FAST_FMAF
        comparable = comparable && strcmp(tables[t]->name, "plain") != 0;
#endif
        for (int team = 0; team < (lawful(tables[t]) ? TEAMS : 2) && comparable; team++) {
            memset(mean.data, 0xFF, (size_t)mean.count * sizeof(float));
            c.epilogue.sum[0] = (float *)(t + team ? mean.data : first.data);
            run(&c, tables[t], teams[team], 0);
            equal = equal && same_as_law(tables[t], &c.out, &y) && (t + team == 0 || same(&mean, &first)) &&
                    intact(t + team ? &mean : &first);
        }
    }
    for (int64_t image = 0; image < c.s.rows; image++) {
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0;
            double size = 0;
            for (int64_t i = 0; i < pixels; i++) {
                sum += at(&y, (image * pixels + i) * columns + j);
                size += fabs(at(&y, (image * pixels + i) * columns + j)) / (double)pixels;
            }
            error = worse(error, fabs(at(&first, image * columns + j) - sum / (double)pixels) / (1 + size / 4));
        }
        one = c;
        one.s.rows = 1;
        one.reader.data = (const char *)c.in.data + image * (c.in.count / c.s.rows) * (int64_t)size_of(c.in.dtype);
        one.epilogue.add = (const char *)c.add.data + image * pixels * columns * (int64_t)size_of(c.add.dtype);
        if (!how->add) one.epilogue.add = NULL;
        one.epilogue.sum[0] = (float *)alone.data;
        run(&one, tables[0], NULL, 0);
        y_of_one.data = (float *)first.data + image * columns;
        placed = placed && same_as_law(tables[0], &alone, &y_of_one);
    }
    ok(error < (how->half_out ? 2e-2 : 4e-6) && equal && placed, "means of %dx%dx%dx%d, %dx%d/%d, %s: off by %.1e%s%s",
       p->rows, p->h, p->w, p->ci, p->kh, p->kw, p->sh, how->name, error, equal ? "" : ", bits differ",
       placed ? "" : ", an image alone has others");
    free(y.block);
    free(mean.block);
    free(first.block);
    free(alone.block);
    call_free(&c);
}

int main(void) {
    int count;
    const shape placed = {3, 9, 7, 21, 21, 21, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1};
    depthwise = true;
    check_all(shapes, (int)(sizeof shapes / sizeof *shapes), &placed);
    for (int i = 1; i < TEAMS; i++) teams[i] = mirt__team_create(i + 1, false);
    const mirt__kernels *best = mirt__kernel_tables(&count)[0];
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
        for (int j = 8; j < (int)(sizeof setups / sizeof *setups); j++) {
            if (!setups[j].mask && !left_out(best, &shapes[i], i + j)) check_means(&shapes[i], &setups[j]);
        }
    }
    for (int i = 1; i < TEAMS; i++) mirt__team_destroy(teams[i]);
    return done_testing();
}
