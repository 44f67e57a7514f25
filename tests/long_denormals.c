/* Trains MNIST for twelve epochs and finds no denormal numbers. The last epoch takes no longer than the first. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"
#include "denormals.h"

enum { EPOCHS = 12 };

typedef struct timed {
    double seconds[EPOCHS];
} timed;

static int note_epoch(const mirt_event *event, void *user) {
    ((timed *)user)->seconds[event->epoch] = event->seconds;
    return 0;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The least of these epochs, as another program may take a core in any of them. */
static double least_of(const double *seconds, int count) {
    double sorted[EPOCHS];
    memcpy(sorted, seconds, (size_t)count * sizeof *seconds);
    qsort(sorted, (size_t)count, sizeof *sorted, by_size);
    return sorted[0];
}

static void test_epochs(const char *directory, const char *devices, double allowed) {
    mirt_callback callback;
    mirt_fit_desc fit;
    timed t;
    memset(&callback, 0, sizeof callback);
    memset(&fit, 0, sizeof fit);
    memset(&t, 0, sizeof t);
    mirt_strategy *strategy = mirt_mirrored(devices);
    mirt_model *model = mirt_model_by_name(strategy, "mnist");
    mirt_compile_desc compile;
    memset(&compile, 0, sizeof compile);
    compile.optimizer = mirt_adam(1e-3f);
    compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    compile.from_logits = true;
    mirt_compile(model, &compile);
    mirt_dataset *data = mirt_batch(mirt_shuffle(mirt_mnist(directory, MIRT_TRAIN), 60000), 64);
    callback.epoch_end = note_epoch;
    callback.user = &t;
    fit.callbacks[0] = &callback;
    fit.epochs = EPOCHS;
    fit.no_progress = true;
    const mirt_history *history = mirt_fit(model, data, &fit);
    int64_t zeros = 0;
    ok(history != NULL, "twelve epochs on %s devices: %s", devices, mirt_last_error());
    ok(denormal_weights(model) == 0 && denormal_slots(model, &zeros) == 0, "no denormal weight or slot; %lld are zero",
       (long long)zeros);
    const double first = least_of(t.seconds, 3), last = least_of(t.seconds + EPOCHS - 3, 3);
    ok(last <= allowed * first, "the last epochs take %.2f of the first ones' time, at most %.2f (%.3f s and %.3f s)",
       last / first, allowed, last, first);
    mirt_dataset_destroy(data);
    mirt_strategy_destroy(strategy);
}

int main(void) {
    const char *directory = getenv("MIRT_MNIST_DIR");
    if (!directory) {
        skip("MIRT_MNIST_DIR names no directory with MNIST");
    } else {
        /* Epochs of one process differ by a few hundredths on a machine that does nothing else. */
        test_epochs(directory, "1", 1.05);
        test_epochs(directory, "2", 1.05);
    }
    return done_testing();
}
