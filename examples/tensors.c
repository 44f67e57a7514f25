// cc -O2 examples/tensors.c -o tensors -lm -lpthread
/* Tensors and gradients without layers or data. Computes a formula with its derivative, and fits a line by explicit
   gradient descent. TensorFlow: tf.GradientTape.

   A function is recorded once, by running its body, and replayed by mirt_function_run. Its results are declared by
   mirt_function_result; it changes variables of its model. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <math.h>
#include <stdio.h>

enum { POINTS = 5 };

/* y = x exp(-x^2) and dy/dx. The gradient of the sum of all y[i] with respect to x is every dy/dx[i]. */
static bool formula(mirt_function *f, void *user) {
    mirt_tensor *x = mirt_function_constant(f, mirt_make_array(user, MIRT_FLOAT32, MIRT_SHAPE(POINTS)));
    mirt_tensor *y = mirt_multiply(x, mirt_exp(mirt_negative(mirt_square(x))));
    mirt_tensor *slope;
    mirt_gradients(mirt_reduce_sum(y, 0, false), &x, 1, &slope);
    mirt_function_result(f, "y", y);
    mirt_function_result(f, "dy/dx", slope);
    return true; /* mirt_function_create returns any error from above */
}

/* One step of gradient descent: a and b of a x + b move against the gradient of the mean squared error. */
static bool descend(mirt_function *f, void *user) {
    const float (*points)[POINTS] = (const float (*)[POINTS])user;
    mirt_tensor *x = mirt_function_constant(f, mirt_make_array(points[0], MIRT_FLOAT32, MIRT_SHAPE(POINTS)));
    mirt_tensor *y = mirt_function_constant(f, mirt_make_array(points[1], MIRT_FLOAT32, MIRT_SHAPE(POINTS)));
    mirt_tensor *line[2] = {mirt_function_variable(f, "a"), mirt_function_variable(f, "b")}, *gradient[2];
    mirt_tensor *error = mirt_subtract(mirt_add(mirt_multiply(line[0], x), line[1]), y);
    mirt_tensor *loss = mirt_reduce_mean(mirt_square(error), 0, false);
    mirt_gradients(loss, line, 2, gradient);
    for (int i = 0; i < 2; i++)
        mirt_assign(f, line[i], mirt_subtract(line[i], mirt_scale(gradient[i], 0.2f, 0)), MIRT_AGGREGATE_FIRST);
    mirt_function_result(f, "loss", loss);
    return true;
}

int main(void) {
    float x[POINTS] = {-1, -0.5f, 0, 0.5f, 2}, y[POINTS], slope[POINTS], a, b;
    float points[2][POINTS] = {{0, 0.5f, 1, 1.5f, 2}, {1.1f, 1.9f, 3.1f, 3.9f, 5.0f}};
    mirt_strategy *strategy = mirt_strategy_create(&(mirt_strategy_desc){.silent = true});
    mirt_model *model = mirt_model_create(strategy, "line");
    mirt_variable(model, "a", MIRT_SHAPE(1), mirt_zeros(), false); /* not trainable: this program updates it, not an
                                                                      optimizer */
    mirt_variable(model, "b", MIRT_SHAPE(1), mirt_zeros(), false);

    mirt_function *derive = mirt_function_create(model, NULL, formula, x);
    mirt_function *step = mirt_function_create(model, NULL, descend, points);
    if (mirt_function_run(derive, NULL) != MIRT_OK || mirt_gather_result(derive, "y", y, POINTS, NULL) != MIRT_OK ||
        mirt_gather_result(derive, "dy/dx", slope, POINTS, NULL) != MIRT_OK) {
        fprintf(stderr, "%s\n", mirt_last_error());
        return 1;
    }
    double off = 0;
    for (int i = 0; i < POINTS; i++) {
        double t = x[i], e = exp(-t * t);
        printf("x %4.1f: y %8.5f, dy/dx %8.5f\n", t, y[i], slope[i]);
        off = fmax(off, fmax(fabs(y[i] - t * e), fabs(slope[i] - (1 - 2 * t * t) * e)));
    }
    printf("off by at most %.1g\n", off);

    double loss = 0;
    for (int i = 0; i < 200; i++) {
        if (mirt_function_run(step, NULL) != MIRT_OK ||
            mirt_reduce(step, "loss", MIRT_REDUCE_MEAN, &loss, 1) != MIRT_OK) {
            fprintf(stderr, "%s\n", mirt_last_error());
            return 1;
        }
        if (i % 50 == 0) printf("step %3d: loss %.5f\n", i, loss);
    }
    mirt_get_weight(model, "a", 0, &a, 1);
    mirt_get_weight(model, "b", 0, &b, 1);
    printf("y = %.4f x + %.4f, loss %.5f; least squares: y = 1.9600 x + 1.0400\n", a, b, loss);
    mirt_strategy_destroy(strategy);
    return off < 1e-6 && fabs(a - 1.96) < 1e-3 && fabs(b - 1.04) < 1e-3 ? 0 : 1;
}
