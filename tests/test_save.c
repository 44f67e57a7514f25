/* Tests saving and loading: bit-identical under any strategy, also when training continues. Damaged and hostile files
   are tested in test_formats.c. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

static char path_a[300], path_b[300];

static mirt_history *fit_some(mirt_model *m, int epochs) {
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.epochs = epochs;
    fit.batch = 37;
    fit.no_progress = true;
    return mirt_fit_arrays(m, images_x(0, IMAGES), images_y(0, IMAGES), &fit);
}

static bool evaluates_as(mirt_model *m, const mirt_logs *want) {
    mirt_logs logs;
    return m && mirt_evaluate_arrays(m, images_x(0, 100), images_y(0, 100), &logs) == MIRT_OK &&
           logs.count == want->count && logs.value[0] == want->value[0] && logs.value[1] == want->value[1];
}

static void check_round_trip(mirt_optimizer optimizer, const char *name) {
    static const int other[][3] = {{1, 1, 1}, {3, 5, 1}, {2, 2, 2}};
    mirt_logs want;
    char on[MIRT__SHA256_HEX], through[MIRT__SHA256_HEX];
    mirt_strategy *s = strategy_of(2, 4, 1), *t = strategy_of(4, 4, 1);
    mirt_model *m = image_model(s, optimizer, 0.3f);
    bool good = fit_some(m, 2) && mirt_save(m, path_a, MIRT_SAVE_ALL) == MIRT_OK &&
                mirt_save(m, path_b, MIRT_SAVE_ALL) == MIRT_OK;
    ok(good && tap_same_file(path_a, path_b), "%s: the same model gives the same bytes", name);
    good = good && mirt_evaluate_arrays(m, images_x(0, 100), images_y(0, 100), &want) == MIRT_OK;
    for (int i = 0; i < MIRT__COUNT(other); i++) {
        mirt_strategy *u = strategy_of(other[i][0], other[i][1], other[i][2]);
        mirt_model *loaded = mirt_load(u, path_a);
        ok(good && evaluates_as(loaded, &want),
           "%s: loaded on %d devices, %d replicas, it evaluates to the same bits%s%s", name, other[i][0], other[i][1],
           loaded ? "" : ": ", loaded ? "" : mirt_last_error());
        ok(loaded && mirt_save(loaded, path_b, MIRT_SAVE_ALL) == MIRT_OK && tap_same_file(path_a, path_b),
           "%s: and saves to the same bytes", name);
        mirt_strategy_destroy(u);
    }
    mirt_model *loaded = mirt_load(t, path_a);
    good = good && loaded && mirt_step(loaded) == mirt_step(m) && fit_some(m, 2) && fit_some(loaded, 2);
    digest_weights(m, 0, on);
    if (loaded) digest_weights(loaded, 0, through);
    ok(good && strcmp(on, through) == 0,
       "%s: two more epochs after loading, on other devices, equal two more epochs without", name);
    ok(good && mirt_save(m, path_a, MIRT_SAVE_ALL) == MIRT_OK && mirt_save(loaded, path_b, MIRT_SAVE_ALL) == MIRT_OK &&
           tap_same_file(path_a, path_b),
       "%s: the optimizer's state too", name);
    mirt_strategy_destroy(s);
    mirt_strategy_destroy(t);
}

static void check_memory_and_weights(void) {
    mirt_logs want;
    size_t size, small_size;
    mirt_strategy *s = strategy_of(2, 2, 1), *t = strategy_of(3, 3, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.3f);
    bool good = fit_some(m, 1) && mirt_save(m, path_a, MIRT_SAVE_ALL) == MIRT_OK &&
                mirt_save(m, path_b, MIRT_SAVE_WEIGHTS_ONLY) == MIRT_OK &&
                mirt_evaluate_arrays(m, images_x(0, 100), images_y(0, 100), &want) == MIRT_OK;
    char *bytes = file_bytes(path_a, &size), *small_bytes = file_bytes(path_b, &small_size);
    mirt_model *loaded = bytes ? mirt_load_memory(t, bytes, size) : NULL;
    if (bytes) memset(bytes, 0x5a, size);
    ok(good && evaluates_as(loaded, &want), "loaded from memory that has gone since, it evaluates to the same bits");
    ok(good && small_bytes && 2 * small_size < size, "weights alone are %d bytes, with the optimizer's state %d",
       (int)small_size, (int)size);
    mirt_model *bare = image_model(t, mirt_sgd(0.1f, 0, false), 0.3f);
    ok(good && !evaluates_as(bare, &want) && mirt_load_weights(bare, path_b) == MIRT_OK && evaluates_as(bare, &want) &&
           copies_agree(bare),
       "weights alone go into a model that is there, on every device");
    ok(mirt_load_weights(bare, path_a) == MIRT_OK && evaluates_as(bare, &want),
       "weights come out of a whole model's file as well");
    ok(!mirt_load(t, path_b) && strstr(mirt_last_error(), "mirt_load_weights"), "weights alone are no model: \"%s\"",
       mirt_last_error());
    free(bytes);
    free(small_bytes);
    mirt_strategy_destroy(s);
    mirt_strategy_destroy(t);
}

static float later_rate(int64_t step, void *user) {
    (void)user;
    return step ? 0.125f : 0.5f;
}

static void check_schedule(void) {
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_optimizer o = mirt_sgd(7, 0, false);
    o.schedule = later_rate;
    mirt_model *m = image_model(s, o, 0);
    bool good = fit_some(m, 1) && mirt_save(m, path_a, MIRT_SAVE_ALL) == MIRT_OK;
    mirt_model *loaded = good ? mirt_load(s, path_a) : NULL;
    ok(loaded && mirt_get_learning_rate(loaded) == 0.125, "a schedule is saved as the rate in force");
    mirt_strategy_destroy(s);
}

/* A model whose second layer is another one. */
static mirt_model *other_net(mirt_strategy *s, int units, const char *name) {
    mirt_model *m = mirt_model_create(s, "other");
    mirt_dense_desc d;
    memset(&d, 0, sizeof d);
    d.units = units;
    d.name = name;
    mirt_model_output(m, mirt_dense(mirt_input(m, MIRT_SHAPE(7)), &d));
    return m;
}

static void check_mismatches(void) {
    char before[MIRT__SHA256_HEX], after[MIRT__SHA256_HEX], missing[310];
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = other_net(s, 4, "dense"), *wide = other_net(s, 5, "dense"), *named = other_net(s, 4, "head");
    ok(mirt_save(m, path_a, MIRT_SAVE_WEIGHTS_ONLY) == MIRT_OK, "weights can be saved before compile");
    digest_weights(wide, 0, before);
    ok(mirt_load_weights(wide, path_a) == MIRT_E_SHAPE && strstr(mirt_last_error(), "dense/kernel") &&
           strstr(mirt_last_error(), "(7, 4)") && strstr(mirt_last_error(), "(7, 5)"),
       "a tensor of another shape: \"%s\"", mirt_last_error());
    digest_weights(wide, 0, after);
    ok(strcmp(before, after) == 0, "and nothing is changed");
    ok(mirt_load_weights(named, path_a) == MIRT_E_NOT_FOUND && strstr(mirt_last_error(), "\"head/kernel\""),
       "a tensor that is missing: \"%s\"", mirt_last_error());
    snprintf(missing, sizeof missing, "%s.none", path_a);
    ok(mirt_load_weights(named, missing) != MIRT_OK && strstr(mirt_last_error(), missing),
       "a file that is missing: \"%s\"", mirt_last_error());
    ok(!mirt_load(s, missing) && strstr(mirt_last_error(), missing), "for a model as well");
    ok(mirt_save(m, path_a, MIRT_SAVE_ALL) == MIRT_E_STATE && strstr(mirt_last_error(), "mirt_compile"),
       "a model that is not compiled: \"%s\"", mirt_last_error());
    snprintf(missing, sizeof missing, "%s/no/such/place", work_directory());
    ok(mirt_save(m, missing, MIRT_SAVE_WEIGHTS_ONLY) == MIRT_E_IO || mirt_last_status() == MIRT_E_NOT_FOUND,
       "a place that is not there: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
}

/* What outputs are, as the file says it: by the activation they end in and by from_logits. */
static void check_scores(void) {
    static const struct {
        const char *name;
        int units;
        mirt_activation_kind activation;
        mirt_loss loss;
        bool from_logits, flatten;
        mirt_scores want;
    } cases[] = {
        {"a sigmoid", 1, MIRT_SIGMOID, MIRT_BINARY_CROSSENTROPY, false, false, MIRT_SCORES_PROBABILITIES},
        {"a softmax", 3, MIRT_SOFTMAX, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, false, false, MIRT_SCORES_PROBABILITIES},
        {"a sigmoid without a loss", 1, MIRT_SIGMOID, MIRT_LOSS_NONE, false, false, MIRT_SCORES_PROBABILITIES},
        {"a sigmoid, flattened, under another loss", 1, MIRT_SIGMOID, MIRT_MEAN_SQUARED_ERROR, false, true,
         MIRT_SCORES_PROBABILITIES},
        {"a sigmoid that from_logits denies", 1, MIRT_SIGMOID, MIRT_BINARY_CROSSENTROPY, true, false,
         MIRT_SCORES_PROBABILITIES},
        {"one logit", 1, MIRT_LINEAR, MIRT_BINARY_CROSSENTROPY, true, false, MIRT_SCORES_SIGMOID_LOGITS},
        {"a logit for each of several labels", 3, MIRT_LINEAR, MIRT_BINARY_CROSSENTROPY, true, false,
         MIRT_SCORES_SIGMOID_LOGITS},
        {"logits of classes", 3, MIRT_LINEAR, MIRT_CATEGORICAL_CROSSENTROPY, true, false, MIRT_SCORES_SOFTMAX_LOGITS},
        {"logits of classes, flattened", 3, MIRT_LINEAR, MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, true, true,
         MIRT_SCORES_SOFTMAX_LOGITS},
        {"a tanh from_logits", 1, MIRT_TANH, MIRT_BINARY_CROSSENTROPY, true, false, MIRT_SCORES_SIGMOID_LOGITS},
        {"one logit without a loss", 1, MIRT_LINEAR, MIRT_LOSS_NONE, true, false, MIRT_SCORES_SIGMOID_LOGITS},
        {"logits without a loss", 3, MIRT_LINEAR, MIRT_LOSS_NONE, true, false, MIRT_SCORES_SOFTMAX_LOGITS},
        {"what a cross-entropy takes for probabilities", 1, MIRT_HARD_SIGMOID, MIRT_BINARY_CROSSENTROPY, false, false,
         MIRT_SCORES_PROBABILITIES},
        {"a number", 1, MIRT_LINEAR, MIRT_MEAN_SQUARED_ERROR, false, false, MIRT_SCORES_OTHER},
        {"numbers without a loss", 3, MIRT_LINEAR, MIRT_LOSS_NONE, false, false, MIRT_SCORES_OTHER},
    };
    mirt_strategy *s = strategy_of(1, 1, 1);
    for (int i = 0; i < MIRT__COUNT(cases); i++) {
        mirt_compile_desc c;
        mirt_dense_desc d;
        memset(&c, 0, sizeof c);
        memset(&d, 0, sizeof d);
        c.loss = cases[i].loss;
        c.from_logits = cases[i].from_logits;
        d.units = cases[i].units;
        d.activation = cases[i].activation;
        mirt_model *m = mirt_model_create(s, NULL);
        mirt_tensor *y = mirt_dense(mirt_input(m, MIRT_SHAPE(4)), &d);
        mirt_model_output(m, cases[i].flatten ? mirt_flatten(mirt_reshape(y, MIRT_SHAPE(1, cases[i].units))) : y);
        bool good = mirt_compile(m, &c) == MIRT_OK && mirt_output_scores(m, 0) == cases[i].want &&
                    mirt_save(m, path_a, MIRT_SAVE_ALL) == MIRT_OK;
        mirt_model *loaded = good ? mirt_load(s, path_a) : NULL;
        ok(good && loaded && mirt_output_scores(loaded, 0) == cases[i].want &&
               mirt_output_loss(loaded, 0) == cases[i].loss,
           "%s: kind %d, also of the loaded model%s%s", cases[i].name, (int)mirt_output_scores(m, 0),
           loaded ? "" : ": ", loaded ? "" : mirt_last_error());
        if (cases[i].units == 1 && loaded) { /* class 1 begins at 0.5, of logits at 0 */
            const float zeros[4] = {0, 0, 0, 0}, bias = 0.3f, label = 1;
            mirt_data data;
            int64_t counts[4];
            memset(&data, 0, sizeof data);
            data.x[0] = mirt_make_array(zeros, MIRT_FLOAT32, MIRT_SHAPE(1, 4));
            data.y[0] = mirt_make_array(&label, MIRT_FLOAT32, MIRT_SHAPE(1, 1));
            mirt_dataset *dataset = mirt_arrays_of(&data);
            good = mirt_set_weight(loaded, "dense/bias", &bias, 1) == MIRT_OK &&
                   mirt_confusion_matrix(loaded, dataset, counts, 2) == MIRT_OK;
            const bool above = cases[i].activation == MIRT_SIGMOID || cases[i].activation == MIRT_HARD_SIGMOID ||
                               cases[i].want == MIRT_SCORES_SIGMOID_LOGITS;
            ok(good && counts[3] == above && counts[2] == !above, "a sum of 0.3 is class %d: %s", above,
               good ? "so it is counted" : mirt_last_error());
            mirt_dataset_destroy(dataset);
        }
        mirt_model_destroy(loaded);
        mirt_model_destroy(m);
    }
    ok(mirt_output_scores(NULL, 0) == MIRT_SCORES_OTHER, "no model has no scores");
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_images();
    snprintf(path_a, sizeof path_a, "%s/a.safetensors", work_directory());
    snprintf(path_b, sizeof path_b, "%s/b.safetensors", work_directory());
    check_round_trip(mirt_adam(1e-3f), "Adam");
    check_round_trip(mirt_sgd(0.05f, 0.9f, true), "Nesterov");
    check_round_trip(mirt_sgd(0.05f, 0, false), "SGD");
    check_memory_and_weights();
    check_schedule();
    check_mismatches();
    check_scores();
    unlink(path_a);
    unlink(path_b);
    ok(rmdir(work_directory()) == 0, "saving leaves nothing else");
    return done_testing();
}
