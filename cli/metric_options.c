/* The flags --metrics, --confusion and --per-class of fit and evaluate. */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct metric_name {
    const char *name;
    mirt_metric metric;
    mirt_curve curve;
} metric_names[] = {
    {"precision", MIRT_PRECISION, MIRT_ROC}, {"recall", MIRT_RECALL, MIRT_ROC}, {"f1", MIRT_F1_SCORE, MIRT_ROC},
    {"auc", MIRT_AUC, MIRT_ROC}, {"pr_auc", MIRT_AUC, MIRT_PR},
};
enum { METRIC_NAMES = sizeof metric_names / sizeof metric_names[0] };

/* "top5" is 5; anything else 0. */
static int top_of(const char *word) {
    char *end;
    if (strncmp(word, "top", 3) != 0 || word[3] < '1' || word[3] > '9') return 0;
    long k = strtol(word + 3, &end, 10);
    return *end || k > 1000000 ? 0 : (int)k;
}

static bool parse_metric(const char *word, metric_list *list) {
    const char *names[METRIC_NAMES + 2];
    mirt_metric_options *o = &list->options[list->count];
    const int top = top_of(word);
    int i = 0;
    while (i < METRIC_NAMES && strcmp(metric_names[i].name, word) != 0) i++;
    snprintf(list->name[list->count], sizeof list->name[0], "%s", word);
    o->name = list->name[list->count];
    o->from_logits = true;
    o->k = top;
    o->curve = i < METRIC_NAMES ? metric_names[i].curve : MIRT_ROC;
    list->metric[list->count++] = top                ? MIRT_SPARSE_TOP_K_CATEGORICAL_ACCURACY
                                  : i < METRIC_NAMES ? metric_names[i].metric
                                                     : MIRT_ACCURACY;
    if (top || i < METRIC_NAMES) return true;
    for (i = 0; i < METRIC_NAMES; i++) names[i] = metric_names[i].name;
    names[METRIC_NAMES] = "top5";
    const char *like = nearest(word, names, METRIC_NAMES + 1);
    complain("--metrics: there is no \"%s\"%s%s%s; there are topK (top5), precision, recall, f1, auc, pr_auc", word,
             like ? "; did you mean " : "", like ? like : "", like ? "?" : "");
    return false;
}

bool parse_metrics(const options *o, metric_list *list) {
    memset(list, 0, sizeof *list);
    list->metric[list->count++] = MIRT_ACCURACY;
    for (const char *at = o->metrics; at && *at;) {
        char word[sizeof list->name[0]];
        const size_t length = strcspn(at, ",");
        if (list->count == MIRT_MAX_METRICS || length >= sizeof word) {
            complain("--metrics is \"%s\"; it must be up to %d names: top5,precision,recall", o->metrics,
                     MIRT_MAX_METRICS - 1);
            return false;
        }
        memcpy(word, at, length);
        word[length] = 0;
        if (!parse_metric(word, list)) return false;
        at += length + (at[length] == ',');
    }
    return true;
}

bool metrics_fit(const metric_list *list, int64_t outputs) {
    for (int i = 1; i < list->count; i++) {
        if (outputs > 1 || !list->options[i].k) continue;
        complain("--metrics %s: with two classes the network has a single output; %s needs at least three classes",
                 list->name[i], list->name[i]);
        return false;
    }
    return true;
}

void metrics_of_one_hot(metric_list *list) {
    for (int i = 0; i < list->count; i++)
        if (list->options[i].k) list->metric[i] = MIRT_TOP_K_CATEGORICAL_ACCURACY;
}

void print_metrics(const metric_list *list, const mirt_logs *logs, const char *before) {
    for (int i = 1; i < list->count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", before, list->name[i]);
        const double value = mirt_logs_value(logs, name);
        printf(" %s=%.6f", name, isnan(value) ? fabs(value) : value);
    }
}

static double share(int64_t part, int64_t whole) { return whole ? (double)part / (double)whole : 0; }

/* Precision, recall, F1 and number of images of each class, and their means. */
static void print_classes(const int64_t *counts, int classes, const char *const *names) {
    double mean[3] = {0, 0, 0};
    int64_t all = 0;
    tell("%-24s %9s %9s %9s %9s", "class", "precision", "recall", "f1", "images");
    for (int i = 0; i < classes; i++) {
        int64_t is = 0, said = 0;
        const int64_t hits = counts[(size_t)i * (size_t)classes + (size_t)i];
        char number[16];
        for (int j = 0; j < classes; j++) {
            is += counts[(size_t)i * (size_t)classes + (size_t)j];
            said += counts[(size_t)j * (size_t)classes + (size_t)i];
        }
        const double values[3] = {share(hits, said), share(hits, is), share(2 * hits, is + said)};
        snprintf(number, sizeof number, "%d", i);
        tell("%-24s %9.6f %9.6f %9.6f %9lld", names ? names[i] : number, values[0], values[1], values[2],
             (long long)is);
        for (int k = 0; k < 3; k++) mean[k] += values[k] / classes;
        all += is;
    }
    tell("%-24s %9.6f %9.6f %9.6f %9lld", "mean", mean[0], mean[1], mean[2], (long long)all);
}

bool show_classes(mirt_model *model, mirt_dataset *dataset, const options *o) {
    const mirt_shape y = mirt_tensor_shape(mirt_output_of(model, 0));
    const int classes = y.rank == 2 && y.dim[1] <= 4096 ? (int)(y.dim[1] > 1 ? y.dim[1] : 2) : 0;
    int named;
    const char *const *names = mirt_model_class_names(model, &named);
    if (!classes) {
        complain("%s needs a classifier of 2 to 4096 classes", o->confusion ? "--confusion" : "--per-class");
        return false;
    }
    int64_t *counts = (int64_t *)malloc((size_t)classes * (size_t)classes * sizeof *counts);
    if (!counts) {
        complain("out of memory for a matrix of %d classes", classes);
        return false;
    }
    if (named != classes) names = NULL;
    const bool writes = o->confusion && is_first();
    const bool good = mirt_confusion_matrix(model, dataset, counts, classes) == MIRT_OK &&
                      (!writes || mirt_save_confusion_png(o->confusion, counts, classes, names) == MIRT_OK);
    if (good && o->confusion) tell("confusion: %s", o->confusion);
    if (good && o->per_class) print_classes(counts, classes, names);
    if (!good) complain_of_library();
    free(counts);
    return good;
}
