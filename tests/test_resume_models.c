/* Checkpoints of other models, optimizers and data: resuming is refused and says what differs. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

typedef enum variant {
    SAME,
    OTHER_UNITS,
    OTHER_NAME,
    ONE_MORE,
    OTHER_ACTIVATION,
    WITH_OPERATION,
    OTHER_OUTPUT,
    OTHER_LAST,
    FROZEN,
    OTHER_RATE,
    OTHER_OPTIMIZER,
    VARIANTS
} variant;

static mirt_model *model_of(mirt_strategy *s, variant v) {
    mirt_compile_desc c =
        image_compile(v == OTHER_OPTIMIZER ? mirt_sgd(0.01f, 0, false) : mirt_adam(v == OTHER_RATE ? 0.02f : 0.01f));
    mirt_model *m = mirt_model_create(s, "m");
    mirt_tensor *x = mirt_flatten(mirt_rescale(mirt_input(m, MIRT_SHAPE(IMAGE_H, IMAGE_W, 1)), 1.0f / 255, 0));
    x = named_dense(x, v == OTHER_NAME ? "concealed" : "hidden", v == OTHER_UNITS ? 9 : 8,
                    v == OTHER_ACTIVATION ? MIRT_TANH : MIRT_RELU);
    if (v == WITH_OPERATION) x = mirt_scale(x, 2, 0);
    if (v == ONE_MORE) x = named_dense(x, "more", 8, MIRT_RELU);
    x = named_dense(x, "last", IMAGE_CLASSES, v == OTHER_LAST ? MIRT_SOFTMAX : MIRT_LINEAR);
    mirt_model_output(m, v == OTHER_OUTPUT ? mirt_negative(x) : x);
    if (v == FROZEN) mirt_set_trainable(m, "hidden/bias", false);
    return mirt_compile(m, &c) == MIRT_OK ? m : NULL;
}

static mirt_history *fit(mirt_model *m, const char *resume, const char *save, int64_t batch) {
    mirt_backup_desc backup;
    mirt_fit_desc desc;
    memset(&backup, 0, sizeof backup);
    memset(&desc, 0, sizeof desc);
    backup.directory = save;
    backup.keep = true;
    mirt_callback *c = save ? mirt_backup_and_restore(&backup) : NULL;
    desc.epochs = resume ? 2 : 1;
    desc.batch = batch;
    desc.no_progress = true;
    desc.resume = resume;
    desc.callbacks[0] = c;
    mirt_history *h = mirt_fit_arrays(m, images_x(0, 40), images_y(0, 40), &desc);
    mirt_callback_destroy(c);
    return h;
}

int main(void) {
    static const char *const differs[VARIANTS] = {"",
                                                  "its layer 3, \"hidden\", is not",
                                                  "the layer \"concealed\"",
                                                  "its layer 4, \"last\", is not the layer \"more\"",
                                                  "its layer 3, \"hidden\", is not",
                                                  "is not the layer \"unary/8\"",
                                                  "that has 5 layers, m has 6",
                                                  "its layer 4, \"last\", is not",
                                                  "weights that are not trained",
                                                  "",
                                                  "the optimizer adam"};
    char command[400], file[400];
    mirt_strategy *s = strategy_of(1, 1, 1);
    draw_images();
    for (int then = 0; then < VARIANTS; then++) {
        char directory[300];
        snprintf(directory, sizeof directory, "%s/%d", work_directory(), then);
        mirt_model *m = model_of(s, (variant)then);
        ok(m && fit(m, NULL, directory, 10), "run %d: %s", then, m ? "" : mirt_last_error());
        mirt_model_destroy(m);
        for (int now = 0; now < VARIANTS; now++) {
            if (then != SAME && now != SAME) continue;
            m = model_of(s, (variant)now);
            const mirt_history *h = fit(m, directory, NULL, 10);
            const bool may = now == then || now + then == OTHER_RATE; /* the rate is the run's */
            ok(may ? h != NULL
                   : !h && mirt_last_status() == MIRT_E_STATE &&
                         strstr(mirt_last_error(), now > then ? differs[now] : ""),
               "run %d in model %d: %s", then, now, h ? "resumed" : mirt_last_error());
            mirt_model_destroy(m);
        }
    }
    mirt_model *m = model_of(s, SAME);
    snprintf(file, sizeof file, "%s/0", work_directory());
    ok(!fit(m, file, NULL, 8) && mirt_last_status() == MIRT_E_STATE, "another batch: %s", mirt_last_error());
    ok(fit(m, "/mirrortrain-test/none", NULL, 10) != NULL, "without a checkpoint a run begins: %s", mirt_last_error());
    char path[400];
    ok(mirt_latest_checkpoint(s, NULL, path, sizeof path) == MIRT_E_INVALID &&
           mirt_latest_checkpoint(s, file, NULL, 9) == MIRT_E_INVALID &&
           mirt_latest_checkpoint(s, file, path, 0) == MIRT_E_INVALID,
       "nothing to look for: %s", mirt_last_error());
    ok(mirt_latest_checkpoint(s, file, path, 4) == MIRT_E_SHAPE, "too little room: %s", mirt_last_error());
    strcat(file, "/");
    ok(mirt_latest_checkpoint(NULL, file, path, sizeof path) == MIRT_OK && !strstr(path, "//"), "the newest: %s", path);
    ok(mirt_load_weights(m, NULL) == MIRT_E_INVALID && mirt_save(m, NULL, MIRT_SAVE_ALL) == MIRT_E_INVALID &&
           !mirt_load(s, NULL) && !mirt_load_memory(s, NULL, 0),
       "no path: %s", mirt_last_error());
    ok(mirt_save(m, "weights.h5", MIRT_SAVE_ALL) == MIRT_E_INVALID, "Keras's files: %s", mirt_last_error());
    ok(mirt_set_model_class_names(m, (const char *const[]){"a", "\xff"}, 2) == MIRT_E_INVALID, "names: %s",
       mirt_last_error());
    int count = 7;
    ok(!mirt_model_class_names(NULL, &count) && count == 0 && !mirt_model_class_names(m, NULL), "no names");
    mirt_strategy_destroy(s);
    snprintf(command, sizeof command, "rm -rf '%s'", work_directory());
    ok(system(command) == 0, "cleaned up");
    return done_testing();
}
