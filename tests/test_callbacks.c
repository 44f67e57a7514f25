/* Callbacks: who is told what and when, what failing ones do, and the ready-made ones. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

/* >>the order of calls */

typedef struct recorder {
    char text[256], fail, stop;
    int destroyed;
    double seen; /* val_loss at test_end */
} recorder;

static int record(recorder *r, char letter) {
    size_t length = strlen(r->text);
    if (length + 1 < sizeof r->text) r->text[length] = letter;
    if (letter == r->fail) {
        mirt__fail(MIRT_E_IO, "the disk is full");
        return MIRT_CALLBACK_FAILED;
    }
    return letter == r->stop;
}
static int on_train_begin(const mirt_event *e, void *user) {
    (void)e;
    return record((recorder *)user, 'T');
}
static int on_train_end(const mirt_event *e, void *user) {
    (void)e;
    mirt_fit(NULL, NULL, NULL); /* another error must not take the place of the first */
    return record((recorder *)user, 't');
}
static int on_epoch_begin(const mirt_event *e, void *user) {
    (void)e;
    return record((recorder *)user, 'E');
}
static int on_epoch_end(const mirt_event *e, void *user) {
    (void)e;
    return record((recorder *)user, 'e');
}
static int on_batch_end(const mirt_event *e, void *user) {
    (void)e;
    return record((recorder *)user, 'b');
}
static int on_test_begin(const mirt_event *e, void *user) {
    (void)e;
    return record((recorder *)user, 'V');
}
static int on_test_end(const mirt_event *e, void *user) {
    ((recorder *)user)->seen = mirt_logs_value(e->logs, "val_loss");
    return record((recorder *)user, 'v');
}
static void on_destroy(void *user) { ((recorder *)user)->destroyed++; }

static mirt_callback recording(recorder *r, char stop, char fail) {
    mirt_callback c;
    memset(r, 0, sizeof *r);
    memset(&c, 0, sizeof c);
    r->stop = stop;
    r->fail = fail;
    c.user = r;
    c.train_begin = on_train_begin;
    c.train_end = on_train_end;
    c.epoch_begin = on_epoch_begin;
    c.epoch_end = on_epoch_end;
    c.batch_end = on_batch_end;
    c.test_begin = on_test_begin;
    c.test_end = on_test_end;
    c.destroy = on_destroy;
    return c;
}

static mirt_history *fit_with(mirt_model *m, int epochs, const mirt_callback *a, const mirt_callback *b, bool validate) {
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    fit.epochs = epochs;
    fit.batch = 10;
    fit.no_progress = true;
    fit.callbacks[0] = a;
    fit.callbacks[1] = b;
    fit.validation = validate ? mirt_arrays(images_x(20, 10), images_y(20, 10)) : NULL;
    mirt_history *h = mirt_fit_arrays(m, images_x(0, 20), images_y(0, 20), &fit);
    mirt_dataset_destroy(fit.validation);
    return h;
}

static void check_order(void) {
    recorder r, second;
    mirt_callback c = recording(&r, 0, 0), d = recording(&second, 0, 0);
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    const mirt_history *h = fit_with(m, 2, &c, &d, true);
    ok(h && strcmp(r.text, "TEbbVveEbbVvet") == 0 && strcmp(second.text, r.text) == 0, "with validation: %s", r.text);
    ok(h && r.seen == mirt_history_last(h, "val_loss"), "test_end sees the values of validation");
    mirt_callback_destroy(&c);
    mirt_callback_destroy(NULL);
    ok(r.destroyed == 1 && second.destroyed == 0, "destroying calls the callback's own function");
    mirt_strategy_destroy(s);
}

static void check_failing(char at, const char *want, const char *want_second) {
    recorder r, second;
    mirt_callback c = recording(&r, 0, at), d = recording(&second, 0, 0);
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    const mirt_history *h = fit_with(m, 2, &c, &d, true);
    ok(!h && mirt_last_status() == MIRT_E_IO && strcmp(mirt_last_error(), "the disk is full") == 0, "one that fails at %c fails the fit: \"%s\"", at, mirt_last_error());
    ok(strcmp(r.text, want) == 0 && strcmp(second.text, want_second) == 0, "it is told %s, the one behind it %s", r.text, second.text);
    r.fail = 0;
    ok(fit_with(m, 1, &c, NULL, true) != NULL, "and the model can be trained again");
    mirt_strategy_destroy(s);
}

/* >>monitors */

static void check_names(void) {
    mirt_early_stopping_desc desc;
    mirt_strategy *s = strategy_of(1, 1, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0);
    memset(&desc, 0, sizeof desc);
    desc.monitor = "val_acuracy";
    mirt_callback *c = mirt_early_stopping(&desc);
    ok(c && !fit_with(m, 2, c, NULL, true) && strstr(mirt_last_error(), "\"val_acuracy\"") && strstr(mirt_last_error(), "\"val_accuracy\""),
       "an unknown log: \"%s\"", mirt_last_error());
    ok(mirt_step(m) == 0, "before anything is trained");
    mirt_callback_destroy(c);
    c = mirt_early_stopping(NULL);
    ok(c && !fit_with(m, 2, c, NULL, false) && strstr(mirt_last_error(), "\"val_loss\"") && strstr(mirt_last_error(), "\"loss\""),
       "validation that is not there: \"%s\"", mirt_last_error());
    mirt_callback_destroy(c);
    desc.patience = -1;
    ok(!mirt_early_stopping(&desc) && strstr(mirt_last_error(), "patience -1"), "bad numbers: \"%s\"", mirt_last_error());
    mirt_strategy_destroy(s);
}

int main(void) {
    draw_images();
    check_order();
    check_failing('T', "Tt", "");
    check_failing('E', "TEt", "TEt");
    check_failing('b', "TEbt", "TEbt");
    check_failing('V', "TEbbVt", "TEbbVt");
    check_failing('e', "TEbbVvet", "TEbbVvet");
    check_names();
    return done_testing();
}
