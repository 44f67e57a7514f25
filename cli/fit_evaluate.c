/* mirrortrain fit and mirrortrain evaluate. */
#include "posix.h"
#include "cli.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The sign of a NaN depends on the machine and has no meaning, so it is not printed. */
static double printable(double value) {
    return isnan(value) ? fabs(value) : value;
}

static double log_value(const mirt_logs *logs, const char *name) { return printable(mirt_logs_value(logs, name)); }

static int print_step(const mirt_event *event, void *user) {
    (void)user;
    printf("step %lld loss %.6f\n", (long long)mirt_step(event->model), log_value(event->logs, "batch_loss"));
    return 0;
}

/* Reports a mistyped directory before training rather than after it. */
static bool can_save(const char *path, int *status) {
    struct stat info;
    probe p;
    if (mirt_save_check(path) != MIRT_OK) {
        complain("--save %s", library_sentence());
        *status = EXIT_USAGE;
        return false;
    }
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        complain("--save %s: this is not a file", path);
        return false;
    }
    if (!try_to_write(path, 0, &p)) return true;
    complain("--save %s: cannot write a file there; check that its directory exists and is writable", path);
    return false;
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

/* The first flag that applies to photographs only, or NULL. */
static const char *flag_of_photos(const options *o) {
    return o->validation             ? "validation"
           : o->validation_split > 0 ? "validation-split"
           : o->weights              ? "weights"
           : o->freeze               ? "freeze"
           : o->head                 ? "head"
           : o->augment              ? "augment"
           : o->mix_up > 0           ? "mix-up"
           : o->cut_mix > 0          ? "cut-mix"
           : o->corrupt              ? "corrupt"
           : o->no_cache             ? "no-cache"
                                     : NULL;
}

/* False after complaining, with the exit status in *status. */
static bool open_digits_job(mirt_strategy *strategy, const options *o, training_job *j, int *status) {
    const char *flag = flag_of_photos(o);
    if (flag) {
        complain("--%s is for networks of photographs, such as --model mobilenet_v2, not for %s", flag, o->model);
        *status = EXIT_USAGE;
        return false;
    }
    if (!(j->model = open_model(strategy, o, status))) return false;
    if (!(j->training = open_training_data(o))) return false;
    return (j->test = open_test_data(o)) != NULL;
}

static void tell_of_time(mirt_model *model, const mirt_history *history, const options *o) {
    const char *where = history->steps && is_first() ? mirt_timing_text(model) : NULL,
               *operations = where && o->profile ? mirt_profile_text(model) : NULL;
    char *words = where ? without_calls(where, o->no_cache ? "leave out --no-cache" : NULL) : NULL;
    if (operations) fputs(operations, stderr);
    if (words) fputs(words, stderr);
    free(words);
}

/* The signal that ended training, or 0. Of several processes one may have caught it alone, which all have to know. */
static int interruption(const training_job *j, const mirt_history *history) {
    const int own = history->stopped ? caught_signal() : 0;
    if (!works_together()) return own;
    const bool others = mirt_barrier(j->strategy, own ? MIRT_E_STATE : MIRT_OK) != MIRT_OK;
    if (!own && others && !strstr(mirt_last_error(), " has stopped: ")) complain_of_library();
    return own ? own : others ? SIGTERM : 0;
}

/* Writes --save. False after complaining. */
static bool save_trained(const training_job *j, const options *o) {
    if (mirt_save(j->model, o->save, o->weights_only ? MIRT_SAVE_WEIGHTS_ONLY : MIRT_SAVE_ALL) == MIRT_OK)
        return tell("saved: %s", o->save), true;
    return complain_of_library(), false;
}

/* After a signal: reports the checkpoint and prints the command that resumes, or else writes --save. */
static int end_interrupted(const training_job *j, const options *o, int signal) {
    const int status = EXIT_SIGNAL + signal;
    char *words = o->run ? resume_command(o) : NULL;
    note("interrupted by %s after step %lld", name_of_signal(signal), (long long)mirt_step(j->model));
    if (words) {
        note("resume with: %s", words);
        if (is_first()) log_interruption(o, signal, words);
    } else if (o->save) {
        save_trained(j, o);
    } else {
        note("nothing was saved; --run DIR keeps checkpoints");
    }
    free(words);
    if (o->trace && mirt_trace_end(j->strategy) != MIRT_OK) complain_of_library();
    return status;
}

/* After training: saves, and writes the report, unless something fails before that. */
static int end_training(const training_job *j, const options *o, const mirt_history *history, bool *reported) {
    const int signal = interruption(j, history);
    if (signal) return end_interrupted(j, o, signal);
    if (o->trace && mirt_trace_end(j->strategy) != MIRT_OK) return complain_of_library();
    tell_of_corrupt(o);
    tell_of_time(j->model, history, o);

    if (o->save && !save_trained(j, o)) return EXIT_FAILED;
    if (o->report && (works_together() || !caught_signal()) && !log_predictions(o, j->model, o->run))
        return EXIT_FAILED;
    *reported = true;
    if (o->report && is_first() && !write_report(o->run, true)) return EXIT_FAILED;
    return EXIT_OK;
}

/* Trains, saves, prints the final line. */
static int train(const training_job *j, const options *o) {
    metric_list metrics;
    mirt_callback print;
    mirt_fit_desc desc;
    run_callbacks callbacks;
    memset(&print, 0, sizeof print);
    memset(&desc, 0, sizeof desc);
    print.batch_end = print_step;
    desc.epochs = (int)o->epochs;
    desc.validation = j->test;
    desc.max_steps = o->max_steps;
    desc.no_progress = o->log_steps;
    if (o->log_steps) desc.callbacks[0] = &print;
    const int64_t steps = mirt_dataset_batches(j->training), all = steps * o->epochs;
    if (!parse_metrics(o, &metrics) ||
        !plan_rates(&o->lr, j->model, steps, o->max_steps && o->max_steps < all ? o->max_steps : all, &desc))
        return EXIT_USAGE;
    if (o->profile && mirt_profile_begin(j->model) != MIRT_OK) return complain_of_library();
    if (o->trace && mirt_trace_begin(j->strategy, o->trace, 0) != MIRT_OK) return complain_of_library();
    if (!open_run(o, &desc, &callbacks)) return EXIT_FAILED;
    live_report *live = o->report && is_first() ? begin_live_report(o, &desc) : NULL;
    catch_signals(j->model);
    mirt_history *history = mirt_fit(j->model, j->training, &desc);
    const int failed = history                 ? EXIT_OK
                       : complain_of_resume(o) ? EXIT_FAILED
                       : is_for_digits(o)      ? complain_of_run(o)
                                               : complain_of_photos(o);
    end_live_report(live);
    close_run(&callbacks);
    bool reported = false;
    const int status = failed ? failed : end_training(j, o, history, &reported);
    if (!reported && o->report && is_first()) write_report(o->run, true); /* of the epochs so far */
    if (status != EXIT_OK) return status;
    if (metrics.count > 1 && history->epochs) {
        printf("metrics:");
        print_metrics(&metrics, &history->epoch[history->epochs - 1], "");
        print_metrics(&metrics, &history->epoch[history->epochs - 1], "val_");
        printf("\n");
    }
    printf("final: loss=%.6f accuracy=%.6f val_loss=%.6f val_accuracy=%.6f images_per_second=%.0f seconds=%.3f\n",
        last_value(history, "loss"), last_value(history, "accuracy"), last_value(history, "val_loss"),
        last_value(history, "val_accuracy"), history->images_per_second, history->seconds);
    return caught_signal() ? EXIT_SIGNAL + caught_signal() : EXIT_OK; /* everything has been written */
}

/* The directory and the files that the first process writes. False after complaining. */
static bool open_output(const options *o, int *lock, int *status) {
    *lock = -1;
    if ((o->weights_only && !o->save) || (o->swap_ema && !(o->ema > 0))) {
        complain(o->weights_only && !o->save ? "--weights-only needs --save FILE" : "--swap-ema needs --ema M");
        *status = EXIT_USAGE;
        return false;
    }
    return !is_first() || ((!o->save || can_save(o->save, status)) && begin_run(o, lock, status));
}

int run_fit(const options *given) {
    options own = *given;
    const options *o = &own;
    training_job j;
    int status = EXIT_FAILED, lock;
    memset(&j, 0, sizeof j);
    own.batch = batch_of(o);
    const bool writes = open_output(o, &lock, &status);
    if (!writes && !works_together()) return status; /* otherwise the others have to know */
    mirt_strategy *strategy = j.strategy = open_strategy(o, false, &status);
    bool open = strategy && writes && (is_for_digits(o) ? open_digits_job(strategy, o, &j, &status)
                                              : open_photo_job(strategy, o, &j, &status));
    if (open && o->init && mirt_load_weights(j.model, o->init) != MIRT_OK) {
        status = complain_of_library();
        open = false;
    }
    if (all_good(strategy, open)) status = train(&j, o);
    release_signals();
    mirt_dataset_destroy(j.test);
    mirt_dataset_destroy(j.training);
    mirt_strategy_destroy(strategy);
    end_run(o, lock);
    return status;
}

static bool takes_photos(const mirt_model *model) {
    mirt_shape x = mirt_tensor_shape(mirt_input_of(model, 0));
    return x.rank == 4 && x.dim[3] == 3;
}

int run_evaluate(const options *o) {
    if (!o->load) {
        complain("evaluate needs a model: --load FILE");
        return EXIT_USAGE;
    }
    int status = EXIT_FAILED;
    metric_list metrics;
    if (!parse_metrics(o, &metrics)) return EXIT_USAGE;
    mirt_dataset *dataset = NULL;
    mirt_strategy *strategy = open_strategy(o, true, &status);
    mirt_model *model = strategy ? mirt_load(strategy, o->load) : NULL;
    const bool logit = model && mirt_output_scores(model, 0) == MIRT_SCORES_SIGMOID_LOGITS &&
                       mirt_tensor_shape(mirt_output_of(model, 0)).dim[1] == 1;
    if (logit) { /* Keras's accuracy compares even a logit with 0.5; predict's classes begin at 0 */
        metrics.metric[0] = MIRT_BINARY_ACCURACY;
        metrics.options[0].name = "accuracy";
        metrics.options[0].from_logits = true;
    }
    if (model && !metrics_fit(&metrics, mirt_tensor_shape(mirt_output_of(model, 0)).dim[1])) {
        mirt_strategy_destroy(strategy);
        return EXIT_USAGE;
    }
    const bool one_hot = mirt_output_loss(model, 0) == MIRT_CATEGORICAL_CROSSENTROPY;
    if (one_hot) metrics_of_one_hot(&metrics);
    if (model && (logit || o->metrics) &&
        mirt_set_metrics(model, metrics.metric, metrics.options, metrics.count) != MIRT_OK) model = NULL;
    if (strategy && !model) complain_of_library();
    const bool photos = model && takes_photos(model);
    if (model) dataset = photos ? open_photo_test(model, o) : open_data(o, MIRT_TEST, true);
    if (dataset && one_hot) { /* as fit --mix-up has them */
        dataset = mirt_one_hot_labels(dataset, mirt_tensor_shape(mirt_output_of(model, 0)).dim[1]);
        if (!dataset) complain_of_library();
    }
    if (dataset) {
        dataset = mirt_prefetch(mirt_batch(dataset, o->batch ? o->batch : 64), MIRT_AUTOTUNE);
        if (!dataset) complain_of_library();
    }
    if (all_good(strategy, dataset != NULL)) {
        mirt_logs logs;
        if (mirt_evaluate(model, dataset, &logs) != MIRT_OK) {
            if (photos) complain_of_photos(o);
            else complain_of_run(o);
        } else {
            tell_of_corrupt(o);
            status = !(o->confusion || o->per_class) || show_classes(model, dataset, o) ? EXIT_OK : EXIT_FAILED;
            printf("evaluate: loss=%.6f accuracy=%.6f", log_value(&logs, "loss"), log_value(&logs, "accuracy"));
            print_metrics(&metrics, &logs, "");
            printf("\n");
        }
    }
    mirt_dataset_destroy(dataset);
    mirt_strategy_destroy(strategy);
    return status;
}
