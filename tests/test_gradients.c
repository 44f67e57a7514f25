/* Compares every op's gradient with central differences in double precision. The reference kernels are compiled
   with double for float. */
#define MIRT__REAL_DOUBLE
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "op_cases.h"
#include "tap.h"

static double weighted(const op_run *r) {
    const double *dy = (const double *)(const void *)(r->weight + r->offset[r->operands]);
    double sum = 0;
    for (int64_t i = 0; i < r->values; i++) sum += r->value[i] * dy[i];
    return sum;
}

/* The largest error relative to the gradient's largest element. */
static double worst_error(op_run *r, const mirt__kernels *reference) {
    double worst = 0, largest = 1e-30;
    double *analytic = (double *)malloc(r->weight_bytes);
    op_replay(r, reference, NULL);
    memcpy(analytic, r->gradient, r->weight_bytes);
    for (int v = 0; v < r->operands; v++) {
        double *w = (double *)(void *)(r->weight + r->offset[v]), *g = analytic + r->offset[v] / sizeof(double);
        for (int64_t i = 0; i < r->count[v]; i++) {
            const double keep = w[i], h = 1e-5;
            w[i] = keep + h;
            op_replay(r, reference, NULL);
            double up = weighted(r);
            w[i] = keep - h;
            op_replay(r, reference, NULL);
            double down = weighted(r);
            w[i] = keep;
            double error = fabs((up - down) / (2 * h) - g[i]);
            if (fabs(g[i]) > largest) largest = fabs(g[i]);
            worst = worse(worst, error);
        }
    }
    free(analytic);
    return worst / largest;
}

/* >>all trainable weights of a model and of its part */

enum { STEP_ROWS = 5, STEP_IN = 3, STEP_MOST = 8 };

typedef struct trainable_step {
    mirt_model *whole, *part;
    int count, part_count; /* of what mirt_trainable lists, as numbers of the whole's weights: */
    int variable[STEP_MOST], part_variable[STEP_MOST];
} trainable_step;

static bool record_trainable(mirt_function *f, void *user) {
    trainable_step *step = (trainable_step *)user;
    mirt_tensor *gradient[STEP_MOST], *const *part, *const *all;
    char name[16];
    mirt_tensor *out = mirt_call(step->whole, mirt_function_x(f, 0), MIRT_TRAINING_ON);
    mirt_tensor *loss =
        mirt_add(mirt_reduce_mean(mirt_square(out), 2, false), mirt_reduce_mean(mirt_tanh(out), 2, false));
    if (!(part = mirt_trainable(f, step->part, &step->part_count)) || !(all = mirt_trainable(f, NULL, &step->count)))
        return false;
    for (int i = 0; i < step->part_count; i++) step->part_variable[i] = part[i]->node->a.index;
    for (int i = 0; i < step->count; i++) step->variable[i] = all[i]->node->a.index;
    if (step->count > STEP_MOST || mirt_gradients(loss, all, step->count, gradient) != MIRT_OK) return false;
    for (int i = 0; i < step->count; i++) {
        snprintf(name, sizeof name, "%d", i);
        if (mirt_function_result(f, name, gradient[i]) != MIRT_OK) return false;
    }
    return mirt_function_result(f, "loss", loss) == MIRT_OK;
}

static double step_loss(mirt_function *f, const mirt_global_batch *batch) {
    double loss = NAN;
    return mirt_function_run(f, batch) == MIRT_OK && mirt_reduce(f, "loss", MIRT_REDUCE_MEAN, &loss, 1) == MIRT_OK
               ? loss
               : NAN;
}

/* The part: dense (frozen), batch_normalization, dense_1; then the whole's own dense. */
static bool make_trainable(mirt_strategy *s, trainable_step *step) {
    mirt_dense_desc dense;
    memset(&dense, 0, sizeof dense);
    dense.units = 2;
    dense.activation = MIRT_TANH;
    step->part = mirt_model_create(s, "part");
    mirt_tensor *x = mirt_dense(mirt_input(step->part, MIRT_SHAPE(STEP_IN)), &dense);
    mirt_model_output(step->part, mirt_dense(mirt_batch_norm(x, NULL), &dense));
    step->whole = mirt_model_create(s, "whole");
    x = mirt_call(step->part, mirt_input(step->whole, MIRT_SHAPE(STEP_IN)), MIRT_TRAINING_AUTO);
    dense.activation = MIRT_LINEAR;
    mirt_model_output(step->whole, mirt_dense(x, &dense));
    return mirt_set_trainable(step->whole, "part/dense", false) == MIRT_OK &&
           mirt_compile(step->whole, NULL) == MIRT_OK;
}

static bool lists_trainable(mirt_model *m, int first, int end, const int *variable, int count) {
    int at = 0;
    for (int i = first; i < end; i++) {
        mirt_weight_info info;
        if (mirt_weight(m, i, &info) != MIRT_OK || !info.trainable) continue;
        if (at >= count || variable[at++] != i) return false;
    }
    return at == count;
}

static void check_trainable(void) {
    static mirt__real data[STEP_ROWS][STEP_IN];
    trainable_step step;
    mirt_strategy_desc desc;
    mirt_array none;
    mirt_global_batch batch;
    double worst = 0, largest = 0, gradient[16];
    memset(&step, 0, sizeof step);
    memset(&desc, 0, sizeof desc);
    memset(&none, 0, sizeof none);
    desc.devices = "1";
    desc.silent = true;
    mirt_strategy *s = mirt_strategy_create(&desc);
    for (int i = 0; i < STEP_ROWS * STEP_IN; i++)
        data[i / STEP_IN][i % STEP_IN] = (mirt__real)(i * 7 % 11) / 8 - (mirt__real)0.5;
    bool good = make_trainable(s, &step);
    mirt_dataset *rows = mirt_arrays(mirt_make_array(data, MIRT_FLOAT32, MIRT_SHAPE(STEP_ROWS, STEP_IN)), none);
    rows = mirt_distribute(s, mirt_batch(rows, STEP_ROWS));
    mirt_function *f = good ? mirt_function_create(step.whole, rows, record_trainable, &step) : NULL;
    good = f && mirt_dataset_next(rows, &batch) == MIRT_OK;
    ok(good && step.count == 6 &&
           lists_trainable(step.whole, 0, mirt_num_weights(step.whole), step.variable, step.count),
       "mirt_trainable: %d weights in the order of mirt_weight, frozen ones and statistics left out%s%s", step.count,
       good ? "" : ": ", good ? "" : mirt_last_error());
    ok(good && step.part_count == 4 &&
           lists_trainable(step.whole, 0, mirt_num_weights(step.part), step.part_variable, step.part_count),
       "those of a part alone: %d", step.part_count);
    for (int i = 0; good && i < step.count; i++) {
        char name[16];
        const int64_t count = step.whole->variable[step.variable[i]].count;
        mirt__real *w = mirt__weight_at(step.whole, step.variable[i]);
        snprintf(name, sizeof name, "%d", i);
        for (int64_t k = 0; k < count; k++) {
            const double keep = w[k], h = 1e-5;
            w[k] = keep + h;
            const double up = step_loss(f, &batch);
            w[k] = keep - h;
            const double down = step_loss(f, &batch);
            w[k] = keep;
            good = good && step_loss(f, &batch) > 0 &&
                   mirt_reduce(f, name, MIRT_REDUCE_SUM, gradient, (size_t)count) == MIRT_OK;
            worst = worse(worst, fabs((up - down) / (2 * h) - gradient[k]));
            if (fabs(gradient[k]) > largest) largest = fabs(gradient[k]);
        }
    }
    ok(good && largest > 0.01 && worst < 1e-8,
       "their gradients by mirt_gradients against central differences: off by %.1e of %.2g%s%s", worst, largest,
       good ? "" : ": ", good ? "" : mirt_last_error());
    mirt_dataset_destroy(rows);
    mirt_strategy_destroy(s);
}

int main(void) {
    int tables;
    const mirt__kernels *reference = mirt__kernel_tables(&tables)[0];
    ok(tables == 1 && strcmp(reference->name, "reference") == 0, "double has the reference kernels alone");
    for (int c = 0; c < MIRT__COUNT(op_cases); c++) {
        for (int fuse = 0; fuse < 2; fuse++) {
            for (int64_t rows = 1; rows <= 4; rows += 3) {
                op_run r;
                if (!op_begin(&r, &op_cases[c], rows, 1, fuse != 0)) {
                    ok(0, "%s: %s", op_cases[c].name, mirt_last_error());
                    continue;
                }
                if (r.differentiable) {
                    double error = worst_error(&r, reference);
                    ok(error < 1e-6, "%s%s, %d rows: relative error %.1e", op_cases[c].name, fuse ? " fused" : "",
                       (int)rows, error);
                }
                op_end(&r);
                if (!op_cases[c].x_shape[0]) break;
            }
        }
    }
    check_trainable();
    return done_testing();
}
