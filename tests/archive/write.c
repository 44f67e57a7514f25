/* Writes the files of an archive into the current directory, with the library whose header is two directories above
   this file: how the files beside it were made. Prints what a reader has to find in them; the directory "whole" is of
   no further use. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../../mirrortrain.h"
#include "../archive.h"

#include <sys/stat.h>
#include <unistd.h>

static void show_state(const char *name, const mirt_callback *callback) {
    char text[1000];
    if (callback->save_state(text, sizeof text, callback->user) < sizeof text) printf("state.%s %s\n", name, text);
}

static archive_run *watched;

static int on_batch(const mirt_event *event, void *user) {
    (void)user;
    if (event->step + 1 != ARCHIVE_STEP) return 0;
    printf("run.weights %016llx\n", archive_digest(event->model));
    printf("run.loss %.17g\n", mirt_logs_value(event->logs, "loss"));
    show_state("early_stopping", watched->ready[0]);
    show_state("reduce_lr_on_plateau", watched->ready[1]);
    return 0;
}

static void show_outputs(mirt_model *m, const char *name) {
    float out[ARCHIVE_SHOWN * ARCHIVE_CLASSES];
    if (mirt_predict_arrays(m, archive_x(ARCHIVE_SHOWN), out, ARCHIVE_SHOWN * ARCHIVE_CLASSES) != MIRT_OK) return;
    printf("%s.outputs", name);
    for (int i = 0; i < ARCHIVE_SHOWN * ARCHIVE_CLASSES; i++) printf(" %.9g", (double)out[i]);
    printf("\n");
}

static void show_history(const mirt_history *h, const char *name) {
    printf("%s.history", name);
    for (int e = 0; h && e < h->epochs; e++)
        printf(" %.17g %.17g", mirt_logs_value(&h->epoch[e], "loss"), mirt_logs_value(&h->epoch[e], "accuracy"));
    printf("\n");
}

int main(void) {
    static const char *const names[ARCHIVE_CLASSES] = {"dense", "striped", "\xc3\xa9toil\xc3\xa9"};
    mirt_strategy *s = archive_strategy();
    mirt_fit_desc fit;
    mirt_callback watch;
    archive_run run;
    bool good;
    memset(&fit, 0, sizeof fit);
    memset(&watch, 0, sizeof watch);
    archive_draw();
    mirt_model *m = archive_model(s);
    fit.epochs = 2;
    fit.batch = ARCHIVE_BATCH;
    fit.no_progress = true;
    good = m && mirt_fit_arrays(m, archive_x(ARCHIVE_IMAGES), archive_y(ARCHIVE_IMAGES), &fit) &&
           mirt_set_model_class_names(m, names, ARCHIVE_CLASSES) == MIRT_OK &&
           mirt_save(m, "model.safetensors", MIRT_SAVE_ALL) == MIRT_OK &&
           mirt_save(m, "weights.safetensors", MIRT_SAVE_WEIGHTS_ONLY) == MIRT_OK;
    printf("model.weights %016llx\nmodel.step %d\n", archive_digest(m), (int)mirt_step(m));
    show_outputs(m, "model");
    watch.batch_end = on_batch;
    watched = &run;
    good = good && archive_fit(&run, s, &watch, NULL, ARCHIVE_STEP + 1) !=
                       NULL; /* a step is lost: logs go on beyond the checkpoint */
    archive_run_close(&run);
    mirt_strategy_destroy(s);
    s = archive_strategy();
    good = good && mkdir("whole", 0777) == 0 && chdir("whole") == 0;
    const mirt_history *h = good ? archive_fit(&run, s, NULL, NULL, 0) : NULL;
    good = h && chdir("..") == 0;
    show_history(h, "whole");
    archive_run_close(&run);
    mirt_strategy_destroy(s);
    s = archive_strategy();
    mirt_dataset *cached = archive_cache("cache.bin");
    m = archive_model(s);
    good = good && cached && mirt_fit(m, cached, &fit) != NULL;
    mirt_dataset_destroy(cached);
    mirt_strategy_destroy(s);
    if (!good) fprintf(stderr, "%s\n", mirt_last_error());
    return !good;
}
