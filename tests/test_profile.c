/* Tests the profile of a step. Its rows add up to a step, its work and bytes are those counted by hand, and clocks
   change no result. */
#include "../mirrortrain.h"
#include "../src/inspect/profile.c"
#include "mirror_util.h"
#include "tap.h"

enum { IN = 7, HIDDEN = 9, OUT = 4, ROWS = 24 };
static float pixels[ROWS][IN];
static int32_t labels[ROWS];

static mirt_array xs(void) { return mirt_make_array(pixels, MIRT_FLOAT32, MIRT_SHAPE(ROWS, IN)); }
static mirt_array ys(void) { return mirt_make_array(labels, MIRT_INT32, MIRT_SHAPE(ROWS)); }

static mirt_model *network(mirt_strategy *s, bool with_loss) {
    mirt_model *m = mirt_model_create(s, "two");
    mirt_dense_desc d;
    mirt_compile_desc c;
    memset(&d, 0, sizeof d);
    memset(&c, 0, sizeof c);
    d.units = HIDDEN;
    d.activation = MIRT_RELU;
    mirt_tensor *x = mirt_dense(mirt_input(m, MIRT_SHAPE(IN)), &d);
    d.units = OUT;
    d.activation = MIRT_LINEAR;
    mirt_model_output(m, mirt_dense(x, &d));
    c.loss = with_loss ? MIRT_SPARSE_CATEGORICAL_CROSSENTROPY : MIRT_LOSS_NONE;
    c.from_logits = true;
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

/* The numbers of the first table of `text`: how many rows, and the sums of milliseconds and per cent. */
static int table_sums(const char *text, double *ms, double *share, double *step) {
    int rows = 0;
    *ms = *share = *step = 0;
    const char *at = strstr(text, " samples, ");
    if (!at || sscanf(at, " samples, %lf ms", step) != 1) return 0;
    at = strchr(at, '\n');                 /* the head of the table */
    if (at) at = strchr(at + 1, '\n') + 1; /* its first row */
    for (double a, b; at && sscanf(at, "%lf %lf%%", &a, &b) == 2; rows++) {
        *ms += a;
        *share += b;
        at = strchr(at, '\n');
        if (at) at++;
    }
    return rows;
}

static void check_work(void) {
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *trained = network(s, true), *used = network(s, false);
    const double forward = ROWS * (IN * HIDDEN + HIDDEN * OUT);
    double macs = 0;
    bool good = mirt_plan_macs(used, ROWS, &macs) == MIRT_OK;
    ok(good && macs == forward, "predicting takes %g multiply-accumulates, got %g", forward, macs);
    good = mirt_plan_macs(trained, ROWS, &macs) == MIRT_OK;
    ok(good && macs == 2 * forward + ROWS * HIDDEN * OUT,
       "training takes as many for the weights' gradients and one more for the hidden layer's, got %g", macs);
    ok(mirt_plan_macs(trained, 0, &macs) == MIRT_E_INVALID && mirt_plan_macs(trained, 1, NULL) == MIRT_E_INVALID &&
           mirt_plan_macs(NULL, 1, &macs) != MIRT_OK,
       "an empty batch, no place for the answer, no model: \"%s\"", mirt_last_error());
    mirt_shape in = mirt_tensor_shape(mirt_input_of(trained, 0)), out = mirt_tensor_shape(mirt_output_of(trained, 0));
    ok(in.rank == 2 && in.dim[0] == MIRT_ROWS && in.dim[1] == IN && out.rank == 2 && out.dim[1] == OUT,
       "the model's input and output say their shapes");
    ok(!mirt_input_of(trained, 1) && !mirt_output_of(trained, 1) && !mirt_input_of(trained, -1) &&
           !mirt_output_of(NULL, 0),
       "and there are no others");

    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < IN; k++) pixels[i][k] = (float)((i * 5 + k * 3) % 11) / 11;
        labels[i] = i % OUT;
    }
    good = mirt_profile_begin(trained) == MIRT_OK && mirt_train_step(trained, xs(), ys(), NULL) == MIRT_OK;
    mirt_function *f = trained->trainer->function[MIRT__TRAIN];
    double bytes = 0;
    for (int i = 0; good && i < f->step.program.graph.count; i++) {
        const mirt__node *node = f->step.program.graph.node[i];
        if (node->op->run && node->name && strcmp(node->name, "dense") == 0 && node->a.activation == MIRT_RELU)
            bytes = mirt__node_bytes(node, ROWS);
    }
    ok(good && bytes == 4.0 * (ROWS * IN + IN * HIDDEN + HIDDEN + ROWS * HIDDEN),
       "the hidden layer reads its input, kernel and bias, and writes its output: %g bytes", bytes);
    ok(mirt__update_bytes(f) == 7.0 * (double)f->root->trained_bytes,
       "Adam reads four and writes three numbers per weight: %g bytes", mirt__update_bytes(f));
    mirt_strategy_destroy(s);
}

static void check_table(int devices, int replicas) {
    mirt_strategy *s = strategy_of(devices, replicas, 1);
    mirt_model *plain = image_model(s, mirt_adam(1e-3f), 0.3f), *clocked = image_model(s, mirt_adam(1e-3f), 0.3f);
    double ms = 0, share = 0, step = 0;
    ok(!mirt_profile_text(clocked) && mirt_last_status() == MIRT_E_STATE, "before it begins: \"%s\"",
       mirt_last_error());
    bool good = mirt_profile_begin(clocked) == MIRT_OK;
    ok(good && clocked->peak_flops > 1e8 && clocked->peak_bytes > 1e8, "ceilings: %.1f GFLOP/s, %.1f GB/s",
       clocked->peak_flops * 1e-9, clocked->peak_bytes * 1e-9);
    ok(!mirt_profile_text(clocked) && mirt_last_status() == MIRT_E_STATE, "before a step: \"%s\"", mirt_last_error());
    for (int i = 0; good && i < 3; i++) {
        double a = 0, b = 1;
        good = mirt_train_step(plain, images_x(0, 40), images_y(0, 40), &a) == MIRT_OK &&
               mirt_train_step(clocked, images_x(0, 40), images_y(0, 40), &b) == MIRT_OK && a == b;
    }
    ok(good, "clocks change no loss");
    const mirt__clocks *clocks = good ? clocked->trainer->function[MIRT__TRAIN]->step.clocks : NULL;
    ok(clocks && clocks->replays == 3 * replicas / devices && clocks->replayed == 3 * 40 / devices,
       "the first of %d devices ran %lld replicas of %lld samples in 3 steps", devices,
       clocks ? (long long)clocks->replays : 0, clocks ? (long long)clocks->replayed : 0);
    const char *text = mirt_profile_text(clocked);
    int rows = text ? table_sums(text, &ms, &share, &step) : 0;
    ok(text && strstr(text, "training: 3 steps of 40 samples") && strstr(text, "by kind:"),
       "it tells of 3 steps of 40 samples");
    ok(rows > 5 && fabs(ms - step) < 0.0006 * (rows + 1) && fabs(share - 100) < 0.06 * (rows + 1),
       "%d rows of %.3f ms and %.1f %% make a step of %.3f ms", rows, ms, share, step);
    ok(text && strstr(text, "adam") && strstr(text, "conv2d") && strstr(text, "dense"),
       "with the optimizer and the layers' names");
    good = mirt_evaluate_arrays(clocked, images_x(0, 30), images_y(0, 30), NULL) == MIRT_OK &&
           (text = mirt_profile_text(clocked)) != NULL;
    ok(good && strstr(text, "testing: ") && strstr(text, "training: "), "testing is clocked by itself");
    good = mirt_profile_begin(clocked) == MIRT_OK &&
           mirt_train_step(clocked, images_x(0, 8), images_y(0, 8), NULL) == MIRT_OK &&
           (text = mirt_profile_text(clocked)) != NULL;
    ok(good && strstr(text, "training: 1 step of 8 samples") && !strstr(text, "testing: "),
       "a second beginning forgets the first");
    mirt_profile_end(clocked);
    good = mirt_train_step(clocked, images_x(0, 8), images_y(0, 8), NULL) == MIRT_OK;
    ok(good && !mirt_profile_text(clocked) && !clocked->trainer->function[MIRT__TRAIN]->step.clocks,
       "and its end ends it");
    mirt_strategy_destroy(s);
}

/* Rows that would show no time are in the last one, which has what is left of the step. */
static void check_small_rows(void) {
    static const double seconds[] = {0.6, 0.3, 0.0006, 0.0004, 0.0001};
    mirt__profile_row row[MIRT__COUNT(seconds)];
    mirt__text text;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = network(s, true);
    memset(row, 0, sizeof row);
    memset(&text, 0, sizeof text);
    for (int i = 0; i < MIRT__COUNT(seconds); i++) {
        snprintf(row[i].name, sizeof row[i].name, "row %d", i);
        row[i].node = i ? m->graph.node[0] : NULL;
        row[i].count = i == 3 ? 5 : 1;
        row[i].seconds = seconds[i];
    }
    mirt__profile_table(m, row, MIRT__COUNT(seconds), 1, &text);
    const char *last = strrchr(text.data, '(');
    ok(strstr(text.data, "  600.000   60.0%") && strstr(text.data, "row 2") && !strstr(text.data, "row 3") &&
           !strstr(text.data, "row 4"),
       "what takes less than one part in two thousand has no row");
    ok(last && strcmp(last, "(the rest), with 6 operations below 0.05 %\n") == 0 &&
           strstr(text.data, "\n   99.400    9.9% "),
       "but is in the rest: %s", last);
    mirt__text_free(&text);
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_images();
    check_work();
    check_small_rows();
    check_table(1, 1);
    check_table(1, 3);
    check_table(2, 4);
    ok(mirt_profile_begin(NULL) != MIRT_OK && !mirt_profile_text(NULL), "without a model: \"%s\"", mirt_last_error());
    mirt_profile_end(NULL);
    return done_testing();
}
