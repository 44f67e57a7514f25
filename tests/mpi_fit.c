/* A fit for test_mpi.sh, over as many processes as there are.

       mpi_fit DIR STEPS [resume|backup]
   Trains with shuffling, dropout, batch normalization and Adam, for STEPS steps (0: to the end), and writes checkpoints
   and logs to DIR. DEVICES and SHARES in the environment are the strategy's. Prints "PROCESS/PROCESSES STEP HASH LOSS
   VAL_LOSS", where the hash is of all weights. */
#include "../mirrortrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, mirt_last_error());
    return 1;
}

static mirt_strategy *strategy_of(void) {
    const char *devices = getenv("DEVICES");
    return mirt_strategy_create(&(mirt_strategy_desc){.kind = MIRT_MULTI_WORKER, .devices = devices ? devices : "1",
        .shares = getenv("SHARES"), .threads = 1, .replicas = 6});
}

static mirt_model *model_of(mirt_strategy *strategy) {
    mirt_model *model = mirt_model_create(strategy, "fit");
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0);
    x = mirt_conv2d(x, &(mirt_conv2d_desc){.filters = 8, .kernel = {3}});
    x = mirt_relu(mirt_batch_norm(x, NULL));
    x = mirt_dropout(mirt_flatten(mirt_max_pool2d(x, NULL)), 0.3f);
    mirt_model_output(model, mirt_dense(x, &(mirt_dense_desc){.units = 10}));
    const mirt_status status = mirt_compile(model, &(mirt_compile_desc){.optimizer = mirt_adam(1e-3f),
        .loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY, .from_logits = true});
    return status == MIRT_OK ? model : NULL;
}

static unsigned long long hash_of(mirt_model *model) {
    unsigned long long hash = 1469598103934665603u;
    for (int i = 0; i < mirt_num_weights(model); i++) {
        mirt_weight_info info;
        mirt_weight(model, i, &info);
        float *values = (float *)calloc((size_t)info.count, sizeof *values);
        if (mirt_get_weight(model, info.name, 0, values, (size_t)info.count) != MIRT_OK) hash = 0;
        const unsigned char *bytes = (const unsigned char *)values;
        for (size_t k = 0; k < (size_t)info.count * sizeof *values; k++) hash = (hash ^ bytes[k]) * 1099511628211u;
        free(values);
    }
    return hash;
}

static void make_callbacks(mirt_callback *callback[3], const char *directory, bool backup) {
    static char path[4][512];
    snprintf(path[0], sizeof path[0], "%s/step_{step:02d}.safetensors", directory);
    snprintf(path[1], sizeof path[1], "%s/backup", directory);
    snprintf(path[2], sizeof path[2], "%s/log.csv", directory);
    snprintf(path[3], sizeof path[3], "%s/board", directory);
    if (backup)
        callback[0] = mirt_backup_and_restore(&(mirt_backup_desc){.directory = path[1], .every_steps = 3,
            .keep = true});
    else
        callback[0] = mirt_model_checkpoint(&(mirt_model_checkpoint_desc){.path = path[0], .every_steps = 4, .keep = 2,
            .at_end = true});
    callback[1] = mirt_csv_logger(&(mirt_csv_logger_desc){.path = path[2]});
    callback[2] = mirt_tensorboard(&(mirt_tensorboard_desc){.log_dir = path[3]});
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    mirt_callback *callback[3];
    const char *how = argc > 3 ? argv[3] : "";
    mirt_strategy *strategy = strategy_of();
    mirt_model *model = strategy ? model_of(strategy) : NULL;
    mirt_dataset *train = mirt_batch(mirt_shuffle(mirt_drawn_digits(203, 1, MIRT_TRAIN), 300), 29),
                 *test = mirt_batch(mirt_drawn_digits(57, 1, MIRT_TEST), 16);
    if (!model || !train || !test) return fail("model and data");
    make_callbacks(callback, argv[1], strcmp(how, "backup") == 0);
    const mirt_history *history = mirt_fit(model, train, &(mirt_fit_desc){.epochs = 3, .validation = test,
        .max_steps = atoi(argv[2]), .no_progress = true, .resume = strcmp(how, "resume") == 0 ? argv[1] : NULL,
        .callbacks = {callback[0], callback[1], callback[2]}});
    if (!history) return fail("fit");
    printf("%d/%d %lld %016llx %.17g %.17g\n", mirt_worker_index(strategy), mirt_num_workers(strategy),
           (long long)mirt_step(model), hash_of(model), mirt_history_last(history, "loss"),
           mirt_history_last(history, "val_loss"));
    for (int i = 0; i < 3; i++) mirt_callback_destroy(callback[i]);
    mirt_dataset_destroy(train);
    mirt_dataset_destroy(test);
    mirt_strategy_destroy(strategy);
    return 0;
}
