#ifndef GOLDEN_METRICS_H
#define GOLDEN_METRICS_H
/* Made by make_metrics.py with TensorFlow 2.21.0, Keras 3.15.1; do not edit. Include after mirrortrain.h. */
#include "formula.h"

/* METRIC_ROWS rows of n predictions p = golden_uniform(seed, i) / 2 + 0.5, in every eighth row all rounded down to quarters. Labels: of
   one output golden_word(seed + 1, row) >> 16 < 65536 p, or 1 - that where the word is a multiple of 4; of several classes, the class
   with the largest golden_uniform(seed + 1, i) + p, as a number or one-hot. */
enum { METRIC_ROWS = 211 };
typedef struct golden_metric {
    const char *name;
    int n, sparse, k;
    double threshold;
    int thresholds;
    const char *curve;
    unsigned seed;
    double value;
} golden_metric;

static const golden_metric golden_metrics[] = {
    {"binary_accuracy", 1, 0, 0, 0.5, 0, "ROC", 40, 0.71563983},
    {"binary_accuracy", 4, 0, 0, 0.25, 0, "ROC", 50, 0.457345963},
    {"categorical_accuracy", 5, 0, 0, 0, 0, "ROC", 60, 0.407582939},
    {"sparse_categorical_accuracy", 5, 1, 0, 0, 0, "ROC", 70, 0.331753552},
    {"top_k_categorical_accuracy", 9, 0, 0, 0, 0, "ROC", 80, 0.872037888},
    {"top_k_categorical_accuracy", 9, 0, 2, 0, 0, "ROC", 90, 0.521327019},
    {"sparse_top_k_categorical_accuracy", 9, 1, 3, 0, 0, "ROC", 100, 0.701421797},
    {"precision", 1, 0, 0, 0.5, 0, "ROC", 110, 0.632653058},
    {"precision", 5, 0, 0, 0.75, 0, "ROC", 120, 0.383620679},
    {"precision", 5, 1, 0, 0.75, 0, "ROC", 130, 0.295454532},
    {"recall", 1, 0, 0, 0.5, 0, "ROC", 140, 0.637168169},
    {"recall", 5, 1, 0, 0.25, 0, "ROC", 150, 0.914691925},
    {"f1_score", 1, 0, 0, 0.5, 0, "ROC", 160, 0.666666627},
    {"f1_score", 5, 0, 0, 0.5, 0, "ROC", 170, 0.411111087},
    {"auc", 1, 0, 0, 0, 0, "ROC", 180, 0.694369376},
    {"auc", 1, 0, 0, 0, 0, "PR", 190, 0.599111557},
    {"auc", 5, 0, 0, 0, 0, "ROC", 200, 0.705349684},
    {"auc", 5, 1, 0, 0, 0, "PR", 210, 0.303139061},
    {"auc", 1, 0, 0, 0, 11, "ROC", 220, 0.653079689},
    {"auc", 1, 0, 0, 0, 11, "PR", 230, 0.54268837},
    {"mean_absolute_error", 4, 0, 0, 0, 0, "ROC", 240, 0.433693826},
    {"mean_squared_error", 4, 0, 0, 0, 0, "ROC", 250, 0.262156874},
    {"binary_accuracy", 4, 0, 0, 0, 0, "ROC", 260, 0.278436005},
    {"precision", 5, 0, 0, 0, 0, "ROC", 270, 0.203721836},
};

#endif
