/* Runs a thousand epochs with checkpoints, logs and validation. Memory does not grow after the first ones. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "tap.h"

#include <unistd.h>

enum { EPOCHS = 1000, FIRST = 100 };

static long resident_kilobytes(void) {
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return -1;
    if (fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = -1;
    fclose(f);
    return resident < 0 ? -1 : resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static long first, most;

static int on_epoch(const mirt_event *event, void *user) {
    (void)user;
    long now = resident_kilobytes();
    if (event->epoch == FIRST) first = now;
    if (event->epoch > FIRST && now - first > most) most = now - first;
    return 0;
}

int main(void) {
    char checkpoint[300], log[300];
    mirt_model_checkpoint_desc c;
    mirt_json_logger_desc l;
    mirt_callback watch;
    mirt_fit_desc fit;
    draw_images();
    memset(&c, 0, sizeof c);
    memset(&l, 0, sizeof l);
    memset(&watch, 0, sizeof watch);
    memset(&fit, 0, sizeof fit);
    snprintf(checkpoint, sizeof checkpoint, "%.255s/ckpt", work_directory());
    snprintf(log, sizeof log, "%.255s/log", work_directory());
    c.path = checkpoint;
    l.path = log;
    watch.epoch_end = on_epoch;
    mirt_strategy *s = strategy_of(2, 2, 1);
    mirt_model *m = image_model(s, mirt_adam(1e-3f), 0.3f);
    mirt_dataset *train =
        mirt_prefetch(mirt_batch(mirt_shuffle(mirt_arrays(images_x(0, 40), images_y(0, 40)), 40), 16), MIRT_AUTOTUNE);
    fit.epochs = EPOCHS;
    fit.no_progress = true;
    fit.validation = mirt_batch(mirt_arrays(images_x(40, 20), images_y(40, 20)), 16);
    fit.callbacks[0] = mirt_model_checkpoint(&c);
    fit.callbacks[1] = mirt_json_logger(&l);
    fit.callbacks[2] = &watch;
    const mirt_history *h = mirt_fit(m, train, &fit);
    ok(h && h->epochs == EPOCHS, "%d epochs with a checkpoint and a line of the log after each%s%s", EPOCHS,
       h ? "" : ": ", h ? "" : mirt_last_error());
    if (first > 0) ok(most < 1024, "resident memory grows by %ld kB after epoch %d", most, FIRST);
    else skip("this system does not tell");
    mirt_callback_destroy((mirt_callback *)fit.callbacks[0]);
    mirt_callback_destroy((mirt_callback *)fit.callbacks[1]);
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(fit.validation);
    mirt_strategy_destroy(s);
    unlink(checkpoint);
    unlink(log);
    rmdir(work_directory());
    return done_testing();
}
