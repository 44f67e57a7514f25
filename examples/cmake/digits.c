/* Trains on drawn digits, with the library as CMake or pkg-config finds it. */
#include <mirrortrain.h>
#include <stdio.h>

int main(void) {
    mirt_strategy *strategy = mirt_mirrored(NULL);
    mirt_model *model = mirt_model_by_name(strategy, "mnist");
    mirt_dataset *train = mirt_batch(mirt_shuffle(mirt_drawn_digits(2000, 0, MIRT_TRAIN), 2000), 64);
    const mirt_compile_desc how = {.optimizer = mirt_adam(1e-3f), .loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY,
                                   .from_logits = true, .metrics = {MIRT_ACCURACY}};
    const mirt_fit_desc fit = {.epochs = 1, .no_progress = true};
    mirt_compile(model, &how);
    mirt_history *history = mirt_fit(model, train, &fit);
    if (history) printf("mirrortrain %s: loss %.3f\n", mirt_version(), mirt_history_last(history, "loss"));
    else fprintf(stderr, "%s\n", mirt_last_error());
    mirt_dataset_destroy(train);
    mirt_strategy_destroy(strategy);
    return history ? 0 : 1;
}
