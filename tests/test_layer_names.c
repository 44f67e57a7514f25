/* Names of custom layers and of layers within them; metrics of other labels. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

static mirt_strategy *strategy;

/* >>layers within layers */

typedef struct parts {
    const char *child;         /* the name of both dense layers within; NULL: the default */
    const char *variable, *again; /* names of weights; NULL: none */
    mirt_shape shape;
} parts;

static mirt_tensor *dense(mirt_tensor *x, int units, const char *name) {
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = units;
    d.name = name;
    return mirt_dense(x, &d);
}

static mirt_tensor *build(mirt_layer *layer, mirt_tensor *const *in, int num_in, const void *config, void *user) {
    const parts *p = (const parts *)user;
    (void)num_in, (void)config;
    if (p->variable) mirt_layer_variable(layer, p->variable, p->shape, mirt_ones(), true);
    if (p->again) mirt_layer_variable(layer, p->again, p->shape, mirt_ones(), true);
    return dense(dense(in[0], 3, p->child), 3, p->child);
}

/* The model with one such layer; `name` NULL: the default of the class. */
static mirt_model *model_with(const char *class_name, const char *name, const parts *p) {
    mirt_layer_class cls;
    memset(&cls, 0, sizeof cls);
    cls.class_name = class_name;
    cls.build = build;
    cls.user = (void *)(uintptr_t)p;
    mirt_model *m = mirt_model_create(strategy, "m");
    mirt_tensor *x = mirt_input(m, MIRT_SHAPE(2));
    mirt_model_output(m, mirt_custom_layer(&cls, &x, 1, NULL, name));
    return m;
}

static bool has_weight(const mirt_model *m, const char *name) {
    mirt_weight_info info;
    bool found = false;
    for (int i = 0; i < mirt_num_weights(m); i++)
        found = found || (mirt_weight(m, i, &info) == MIRT_OK && strcmp(info.name, name) == 0);
    return found;
}

static void check_default_names(void) {
    static const char *const names[][2] = {
        {"MyReLU2D", "my_re_lu2d"}, {"Mine", "mine"},        {"ABC", "abc"},         {"aB", "a_b"},
        {"A_B9", "a_b9"},           {"Z{z", "zz"},           {"[~]", "layer"},       {"9Lives", "9_lives"},
        {"XAxis", "x_axis"},        {"z{A@[`", "za"},
    };
    const parts none = {NULL, NULL, NULL, MIRT_SHAPE(1)};
    char weight[64];
    for (int i = 0; i < MIRT__COUNT(names); i++) {
        mirt_model *m = model_with(names[i][0], NULL, &none);
        snprintf(weight, sizeof weight, "%s/dense_1/kernel", names[i][1]);
       ok(has_weight(m, weight), "%s gives %s, with its second layer dense_1", names[i][0], names[i][1]);
        mirt_model_destroy(m);
    }
}

static void check_refused(const char *name, const parts *p, const char *says) {
    mirt_model *m = model_with("Mine", name, p);
    ok(mirt_compile(m, NULL) != MIRT_OK && strstr(mirt_last_error(), says), "refused: %s", mirt_last_error());
    mirt_model_destroy(m);
}

static void check_names(void) {
    char longest[201], most[102];
    memset(longest, 'n', sizeof longest - 1);
    longest[200] = 0;
    memset(most, 'v', sizeof most - 1);
    most[101] = 0;
    const parts plain = {NULL, NULL, NULL, MIRT_SHAPE(2)}, twins = {"twin", NULL, NULL, MIRT_SHAPE(2)},
                same = {NULL, "w", "w", MIRT_SHAPE(2)}, slash = {NULL, "a/b", NULL, MIRT_SHAPE(2)},
                empty = {NULL, "", NULL, MIRT_SHAPE(2)}, broken = {NULL, "w\xff", NULL, MIRT_SHAPE(2)},
                large = {NULL, most, NULL, MIRT_SHAPE(2)}, hollow = {NULL, "w", NULL, MIRT_SHAPE(2, -3)};
    parts ranks = {NULL, "w", NULL, MIRT_SHAPE(2)};
    check_refused(longest, &plain, "is too long");
    check_refused(NULL, &twins, "there already is a layer \"mine/twin\"");
    check_refused(NULL, &same, "variable name \"w\": it must be 1 to 100 bytes of UTF-8 without a '/', and unique");
    check_refused(NULL, &slash, "variable name \"a/b\"");
    check_refused(NULL, &empty, "variable name \"\"");
    check_refused(NULL, &broken, "variable name \"w?\"");
    check_refused(NULL, &large, "variable name \"vvv");
    check_refused(NULL, &hollow, "variable w needs at most 6 dimensions, each positive");
    ranks.shape.rank = -1;
    check_refused(NULL, &ranks, "variable w needs at most 6 dimensions");
    ranks.shape.rank = 7;
    check_refused(NULL, &ranks, "variable w needs at most 6 dimensions");
    most[100] = 0;
    const parts two = {NULL, most, "w", MIRT_SHAPE(2)};
    mirt_model *m = model_with("Mine", NULL, &two);
    ok(has_weight(m, "mine/w") && mirt_num_weights(m) == 6, "names of 100 bytes and of one are taken: %d weights",
       mirt_num_weights(m));
    mirt_model_destroy(m);
}

/* >>metrics */

enum { ROWS = 6, CLASSES = 3 };
static float features[ROWS][2] = {{1, 0}, {0, 1}, {1, 1}, {-1, 0}, {0, -1}, {2, 1}};
static int32_t classes[ROWS] = {0, 1, 2, 1, 0, 2};

static mirt_tensor *first_score(mirt_tensor *labels, mirt_tensor *output, void *user) {
    (void)labels, (void)user;
    return mirt_reduce_mean(mirt_square(output), 2, false);
}

/* Of logits, by a loss of the user's own or by class numbers. */
static mirt_status evaluate(bool own, int units, mirt_metric metric, bool from_logits, double *value) {
    const mirt_custom_loss loss = {"mine", first_score, NULL};
    mirt_compile_desc c;
    mirt_logs logs;
    memset(&c, 0, sizeof c);
    if (own) c.custom_losses[0] = &loss;
    else c.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    c.from_logits = true;
    c.metrics[0] = metric;
    c.metric_options[0].from_logits = from_logits;
    mirt_model *m = mirt_model_create(strategy, "m");
    mirt_model_output(m, dense(mirt_input(m, MIRT_SHAPE(2)), units, NULL));
    mirt_status status = mirt_compile(m, &c);
    if (status == MIRT_OK)
        status = mirt_evaluate_arrays(m, mirt_make_array(features, MIRT_FLOAT32, MIRT_SHAPE(ROWS, 2)),
                                      mirt_make_array(classes, MIRT_INT32, MIRT_SHAPE(ROWS)), &logs);
    *value = status == MIRT_OK ? logs.value[1] : NAN;
    mirt_model_destroy(m);
    return status;
}

static void check_metrics(void) {
    double plain = NAN, scored = NAN;
    ok(evaluate(true, CLASSES, MIRT_MAE, false, &plain) == MIRT_E_SHAPE &&
           strstr(mirt_last_error(), "compares 3 values per sample; the labels have 1"),
       "three outputs and one label: \"%s\"", mirt_last_error());
    ok(evaluate(true, CLASSES, MIRT_MSE, false, &plain) == MIRT_E_SHAPE &&
           strstr(mirt_last_error(), "compares 3 values per sample; the labels have 1"),
       "also of squares: \"%s\"", mirt_last_error());
    bool good = evaluate(true, 1, MIRT_MAE, false, &plain) == MIRT_OK;
    ok(good && isfinite(plain), "one output and one label: %g", plain);
    good = evaluate(false, CLASSES, MIRT_ACCURACY, false, &plain) == MIRT_OK &&
           evaluate(false, CLASSES, MIRT_ACCURACY, true, &scored) == MIRT_OK;
    ok(good && plain == scored, "the class of the largest logit is that of the largest probability: %g, %g", plain,
       scored);
}

int main(void) {
    strategy = strategy_of(1, 2, 1);
    check_default_names();
    check_names();
    check_metrics();
    mirt_strategy_destroy(strategy);
    return done_testing();
}
