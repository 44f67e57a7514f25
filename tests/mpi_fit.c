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
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kind = MIRT_MULTI_WORKER;
    desc.devices = getenv("DEVICES") ? getenv("DEVICES") : "1";
    desc.shares = getenv("SHARES");
    desc.threads = 1;
    desc.replicas = 6;
    return mirt_strategy_create(&desc);
}

static mirt_model *model_of(mirt_strategy *strategy) {
    mirt_conv2d_desc conv;
    mirt_dense_desc dense;
    mirt_compile_desc compile;
    memset(&conv, 0, sizeof conv);
    memset(&dense, 0, sizeof dense);
    memset(&compile, 0, sizeof compile);
    conv.filters = 8;
    conv.kernel[0] = 3;
    dense.units = 10;
    mirt_model *model = mirt_model_create(strategy, "fit");
    mirt_tensor *x = mirt_rescale(mirt_input(model, MIRT_SHAPE(28, 28, 1)), 1.0f / 255, 0);
    x = mirt_relu(mirt_batch_norm(mirt_conv2d(x, &conv), NULL));
    x = mirt_dropout(mirt_flatten(mirt_max_pool2d(x, NULL)), 0.3f);
    mirt_model_output(model, mirt_dense(x, &dense));
    compile.optimizer = mirt_adam(1e-3f);
    compile.loss = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
    compile.from_logits = true;
    return mirt_compile(model, &compile) == MIRT_OK ? model : NULL;
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
    mirt_model_checkpoint_desc checkpoint;
    mirt_backup_desc restore;
    mirt_csv_logger_desc csv;
    mirt_tensorboard_desc board;
    memset(&checkpoint, 0, sizeof checkpoint);
    memset(&restore, 0, sizeof restore);
    memset(&csv, 0, sizeof csv);
    memset(&board, 0, sizeof board);
    snprintf(path[0], sizeof path[0], "%s/step_{step:02d}.safetensors", directory);
    snprintf(path[1], sizeof path[1], "%s/backup", directory);
    snprintf(path[2], sizeof path[2], "%s/log.csv", directory);
    snprintf(path[3], sizeof path[3], "%s/board", directory);
    checkpoint.path = path[0];
    checkpoint.every_steps = 4;
    checkpoint.keep = 2;
    checkpoint.at_end = true;
    restore.directory = path[1];
    restore.every_steps = 3;
    restore.keep = true;
    csv.path = path[2];
    board.log_dir = path[3];
    callback[0] = backup ? mirt_backup_and_restore(&restore) : mirt_model_checkpoint(&checkpoint);
    callback[1] = mirt_csv_logger(&csv);
    callback[2] = mirt_tensorboard(&board);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    mirt_callback *callback[3];
    mirt_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    const char *how = argc > 3 ? argv[3] : "";
    mirt_strategy *strategy = strategy_of();
    mirt_model *model = strategy ? model_of(strategy) : NULL;
    mirt_dataset *train = mirt_batch(mirt_shuffle(mirt_drawn_digits(203, 1, MIRT_TRAIN), 300), 29),
                 *test = mirt_batch(mirt_drawn_digits(57, 1, MIRT_TEST), 16);
    if (!model || !train || !test) return fail("model and data");
    fit.epochs = 3;
    fit.validation = test;
    fit.max_steps = atoi(argv[2]);
    fit.no_progress = true;
    if (strcmp(how, "resume") == 0) fit.resume = argv[1];
    make_callbacks(callback, argv[1], strcmp(how, "backup") == 0);
    for (int i = 0; i < 3; i++) fit.callbacks[i] = callback[i];
    const mirt_history *history = mirt_fit(model, train, &fit);
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
