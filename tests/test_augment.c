/* Augmentation: every transform against Keras (golden/augment.h), several as one warp against their matrices' product, what is drawn and
   by what it is keyed, as layers and as stages, and what it says when it is misused. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "golden/augment.h"
#include "tap.h"

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
        if (shaped) augment_once(t, count, 3, MIRT_FLOAT32, x, MIRT_FLOAT32, y);
        double worst = shaped ? distance(y, mirt__shape_count(&g->y_shape), g->norm, g->product, g->first) : 1e9;
        ok(worst < 2e-5, "%s (%lld, %lld, %lld): %.1e from Keras", g->label, (long long)g->shape.dim[0], (long long)g->shape.dim[1], (long long)g->shape.dim[2], worst);
        free(x);
        free(y);
    }
}

int main(void) {
    test_goldens();
    done_testing();
}
