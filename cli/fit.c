/* mirrortrain fit and evaluate */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Some machines make NaNs with a sign; it means nothing, so it is not printed. */
static double printable(double value) {
    return isnan(value) ? fabs(value) : value;
}

static double log_value(const mirt_logs *logs, const char *name) { return printable(mirt_logs_value(logs, name)); }

static float scheduled_rate(int epoch, float rate, void *user) {
    const rates *lr = (const rates *)user;
    for (int i = 0; i < lr->count && lr->first[i] <= epoch; i++) rate = lr->rate[i];
    return rate;
}

static int print_step(const mirt_event *event, void *user) {
    (void)user;
    printf("step %lld loss %.6f\n", (long long)mirt_step(event->model), log_value(event->logs, "batch_loss"));
    return 0;
}

/* Better to hear of a mistyped directory before training than after it. */
static bool can_save(const char *path) {
    char probe[4096];
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        complain("--save %s: that is not a file", path);
        return false;
    }
    int length = snprintf(probe, sizeof probe, "%s.tmp", path);
    FILE *file = length > 0 && length < (int)sizeof probe ? fopen(probe, "ab") : NULL;
    if (!file) {
        complain("--save %s: no file can be written there; is its directory there and yours to write?", path);
        return false;
    }
    fclose(file);
    remove(probe);
    return true;
}

static mirt_dataset *open_training_data(const options *o) {
    mirt_dataset *dataset = open_data(o, MIRT_TRAIN, true);
    if (!dataset) return NULL;
    dataset = mirt_cache(dataset);
    if (!o->no_shuffle) dataset = mirt_shuffle(dataset, 10000);
    dataset = mirt_prefetch(mirt_accumulate(mirt_batch(dataset, o->batch), (int)o->accumulate), MIRT_AUTOTUNE);
    if (!dataset) complain_of_library();
    return dataset;
}

static mirt_dataset *open_test_data(const options *o) {
    mirt_dataset *dataset = open_data(o, MIRT_TEST, false);
    if (!dataset) return NULL;
    dataset = mirt_batch(mirt_cache(dataset), o->batch);
    if (!dataset) complain_of_library();
    return dataset;
}

static double last_value(const mirt_history *history, const char *name) {
    return printable(mirt_history_last(history, name));
}

/* The data are MNIST's; networks of other images are trained from programs. */
static bool fits_data(mirt_model *model, const options *o) {
    mirt_shape x = mirt_tensor_shape(mirt_input_of(model, 0));
    if (x.rank == 4 && x.dim[1] == 28 && x.dim[2] == 28 && x.dim[3] == 1) return true;
    complain("fit trains on MNIST's images, (28, 28, 1), and %s takes (%lld, %lld, %lld): docs/from-keras.md shows how a program trains it", o->model,
        (long long)x.dim[1], (long long)x.dim[2], (long long)x.dim[3]);
    return false;
}

/* Trains, saves, prints the last line. */
static int train(mirt_model *model, mirt_dataset *training, mirt_dataset *test, const options *o) {
    mirt_callback steps;
    mirt_fit_desc desc;
    memset(&steps, 0, sizeof steps);
    memset(&desc, 0, sizeof desc);
    steps.batch_end = print_step;
    desc.epochs = (int)o->epochs;
    desc.validation = test;
    desc.max_steps = o->max_steps;
    desc.no_progress = o->log_steps;
    if (o->log_steps) desc.callbacks[0] = &steps;
    if (o->lr.count > 1) {
        desc.learning_rate = scheduled_rate;
        desc.learning_rate_user = (void *)&o->lr;
    }
    mirt_history *history = mirt_fit(model, training, &desc);
    if (!history) return complain_of_run(o);

    if (o->save) {
        if (mirt_save(model, o->save, MIRT_SAVE_ALL) != MIRT_OK) return complain_of_library();
        printf("saved: %s\n", o->save);
    }
    printf("final: loss=%.6f accuracy=%.6f val_loss=%.6f val_accuracy=%.6f images_per_second=%.0f seconds=%.3f\n",
        last_value(history, "loss"), last_value(history, "accuracy"), last_value(history, "val_loss"),
        last_value(history, "val_accuracy"), history->images_per_second, history->seconds);
    return EXIT_OK;
}

int run_fit(const options *o) {
    if (o->save && !can_save(o->save)) return EXIT_FAILED;
    int status = EXIT_FAILED;
    mirt_dataset *training = NULL, *test = NULL;
    mirt_strategy *strategy = open_strategy(o, false, &status);
    mirt_model *model = strategy ? open_model(strategy, o, &status) : NULL;
    if (model && !fits_data(model, o)) {
        status = EXIT_USAGE;
    } else if (model && o->init && mirt_load_weights(model, o->init) != MIRT_OK) {
        complain_of_library();
    } else if (model) {
        training = open_training_data(o);
        test = training ? open_test_data(o) : NULL;
        if (test) status = train(model, training, test, o);
    }
    mirt_dataset_destroy(test);
    mirt_dataset_destroy(training);
    mirt_strategy_destroy(strategy);
    return status;
}

int run_evaluate(const options *o) {
    if (!o->load) {
        complain("evaluate wants a model: --load FILE");
        return EXIT_USAGE;
    }
    int status = EXIT_FAILED;
    mirt_dataset *dataset = NULL;
    mirt_strategy *strategy = open_strategy(o, true, &status);
    mirt_model *model = strategy ? mirt_load(strategy, o->load) : NULL;
    if (strategy && !model) complain_of_library();
    if (model && (dataset = open_data(o, MIRT_TEST, true)) != NULL) {
        mirt_logs logs;
        dataset = mirt_batch(dataset, o->batch);
        if (!dataset) {
            complain_of_library();
        } else if (mirt_evaluate(model, dataset, &logs) != MIRT_OK) {
            complain_of_run(o);
        } else {
            printf("evaluate: loss=%.6f accuracy=%.6f\n", log_value(&logs, "loss"), log_value(&logs, "accuracy"));
            status = EXIT_OK;
        }
    }
    mirt_dataset_destroy(dataset);
    mirt_strategy_destroy(strategy);
    return status;
}
