#ifndef GOLDEN_METRICS_H
#define GOLDEN_METRICS_H
/* Made by make_metrics.py with TensorFlow 2.21.0, Keras 3.15.1; do not edit. Include after mirrortrain.h. */
#include "formula.h"

/* METRIC_ROWS rows of n predictions p = golden_uniform(seed, i) / 2 + 0.5, in every eighth row all rounded down to quarters. Labels: of
   one output golden_word(seed + 1, row) >> 16 < 65536 p, or 1 - that where the word is a multiple of 4; of several classes, the class
   with the largest golden_uniform(seed + 1, i) + p, as a number or one-hot. With positions the first 210 rows are those
   of 35 samples of (2, 3). Weights of samples are golden_uniform(seed + 2, sample) + 1.25. Options that are -1 are not
   given; by_class is average=None, or the IoU of each class. */
enum { METRIC_ROWS = 211 };
typedef struct golden_metric {
    const char *name;
    int n, sparse, k;
    double threshold;
    int thresholds;
    const char *curve;
    unsigned seed;
    double value;
    const char *average;
    int class_id, weighted, positions, ignore, classes;
    double by_class[9];
} golden_metric;

static const golden_metric golden_metrics[] = {
    {"binary_accuracy", 1, 0, 0, 0.5, 0, "ROC", 40, 0.71563983, "auto", -1, 0, 0, -1, 0, {0}},
    {"binary_accuracy", 4, 0, 0, 0.25, 0, "ROC", 50, 0.457345963, "auto", -1, 0, 0, -1, 0, {0}},
    {"categorical_accuracy", 5, 0, 0, 0, 0, "ROC", 60, 0.407582939, "auto", -1, 0, 0, -1, 0, {0}},
    {"sparse_categorical_accuracy", 5, 1, 0, 0, 0, "ROC", 70, 0.331753552, "auto", -1, 0, 0, -1, 0, {0}},
    {"top_k_categorical_accuracy", 9, 0, 0, 0, 0, "ROC", 80, 0.872037888, "auto", -1, 0, 0, -1, 0, {0}},
    {"top_k_categorical_accuracy", 9, 0, 2, 0, 0, "ROC", 90, 0.521327019, "auto", -1, 0, 0, -1, 0, {0}},
    {"sparse_top_k_categorical_accuracy", 9, 1, 3, 0, 0, "ROC", 100, 0.701421797, "auto", -1, 0, 0, -1, 0, {0}},
    {"precision", 1, 0, 0, 0.5, 0, "ROC", 110, 0.632653058, "auto", -1, 0, 0, -1, 0, {0}},
    {"precision", 5, 0, 0, 0.75, 0, "ROC", 120, 0.383620679, "auto", -1, 0, 0, -1, 0, {0}},
    {"precision", 5, 1, 0, 0.75, 0, "ROC", 130, 0.295454532, "auto", -1, 0, 0, -1, 0, {0}},
    {"recall", 1, 0, 0, 0.5, 0, "ROC", 140, 0.637168169, "auto", -1, 0, 0, -1, 0, {0}},
    {"recall", 5, 1, 0, 0.25, 0, "ROC", 150, 0.914691925, "auto", -1, 0, 0, -1, 0, {0}},
    {"f1_score", 1, 0, 0, 0.5, 0, "ROC", 160, 0.666666627, "auto", -1, 0, 0, -1, 0, {0}},
    {"f1_score", 5, 0, 0, 0.5, 0, "ROC", 170, 0.411111087, "auto", -1, 0, 0, -1, 0, {0}},
    {"auc", 1, 0, 0, 0, 0, "ROC", 180, 0.694369376, "auto", -1, 0, 0, -1, 0, {0}},
    {"auc", 1, 0, 0, 0, 0, "PR", 190, 0.599111557, "auto", -1, 0, 0, -1, 0, {0}},
    {"auc", 5, 0, 0, 0, 0, "ROC", 200, 0.705349684, "auto", -1, 0, 0, -1, 0, {0}},
    {"auc", 5, 1, 0, 0, 0, "PR", 210, 0.303139061, "auto", -1, 0, 0, -1, 0, {0}},
    {"auc", 1, 0, 0, 0, 11, "ROC", 220, 0.653079689, "auto", -1, 0, 0, -1, 0, {0}},
    {"auc", 1, 0, 0, 0, 11, "PR", 230, 0.54268837, "auto", -1, 0, 0, -1, 0, {0}},
    {"mean_absolute_error", 4, 0, 0, 0, 0, "ROC", 240, 0.433693826, "auto", -1, 0, 0, -1, 0, {0}},
    {"mean_squared_error", 4, 0, 0, 0, 0, "ROC", 250, 0.262156874, "auto", -1, 0, 0, -1, 0, {0}},
    {"binary_accuracy", 4, 0, 0, 0, 0, "ROC", 260, 0.278436005, "auto", -1, 0, 0, -1, 0, {0}},
    {"precision", 5, 0, 0, 0, 0, "ROC", 270, 0.203721836, "auto", -1, 0, 0, -1, 0, {0}},
    {"f1_score", 5, 0, 0, -1, 0, "ROC", 280, 0.38478744, "micro", -1, 0, 0, -1, 5, {0.373831719, 0.390804559, 0.382022411, 0.442105204, 0.318840533}},
    {"f1_score", 5, 0, 0, -1, 0, "ROC", 290, 0.366945535, "macro", -1, 0, 0, -1, 5, {0.359550536, 0.399999976, 0.266666591, 0.297872275, 0.510638237}},
    {"f1_score", 5, 0, 0, -1, 0, "ROC", 300, 0.361852765, "weighted", -1, 0, 0, -1, 5, {0.380952328, 0.390243858, 0.365853608, 0.40816322, 0.263736218}},
    {"f1_score", 4, 0, 0, 0.25, 0, "ROC", 310, 0.464677334, "macro", -1, 0, 0, -1, 4, {0.489795893, 0.446601957, 0.459999919, 0.462311506}},
    {"f1_score", 5, 1, 0, -1, 0, "ROC", 320, 0.409104109, "weighted", -1, 1, 0, -1, 5, {0.454907775, 0.290771842, 0.422658592, 0.438362718, 0.371977359}},
    {"precision", 5, 0, 0, -1, 0, "ROC", 330, 0.353222591, "macro", -1, 0, 0, -1, 5, {0.272727281, 0.346938789, 0.25999999, 0.309523821, 0.576923072}},
    {"recall", 5, 1, 0, -1, 0, "ROC", 340, 0.429263353, "macro", -1, 0, 0, -1, 5, {0.431818187, 0.5, 0.260869563, 0.4375, 0.516129017}},
    {"precision", 5, 0, 0, 0.5, 0, "ROC", 350, 0.231481478, "auto", 0, 0, 0, -1, 0, {0}},
    {"precision", 9, 0, 3, -1, 0, "ROC", 360, 0.233807266, "auto", -1, 0, 0, -1, 0, {0}},
    {"recall", 9, 1, 3, 0.75, 0, "ROC", 370, 0.454545468, "auto", 7, 0, 0, -1, 0, {0}},
    {"recall", 9, 0, 2, -1, 0, "ROC", 380, 0.458869338, "auto", -1, 1, 0, -1, 0, {0}},
    {"mean_io_u", 5, 1, 0, -1, 0, "ROC", 390, 0.23857531, "auto", -1, 0, 0, -1, 5, {0.216216192, 0.21874997, 0.190476164, 0.34374997, 0.223684177}},
    {"mean_io_u", 5, 1, 0, -1, 0, "ROC", 400, 0.200181574, "auto", -1, 0, 0, 2, 5, {0.328571409, 0.298507422, 0, 0.213114724, 0.160714269}},
    {"mean_io_u", 5, 1, 0, -1, 0, "ROC", 410, 0.200011164, "auto", -1, 1, 1, 0, 5, {0, 0.289536089, 0.256613314, 0.257424533, 0.196481615}},
    {"mean_io_u", 4, 0, 0, -1, 0, "ROC", 420, 0.301683903, "auto", -1, 0, 1, -1, 4, {0.31249997, 0.333333313, 0.289473653, 0.271428555}},
    {"mean_io_u", 1, 0, 0, -1, 0, "ROC", 430, 0.43570888, "auto", -1, 0, 1, -1, 2, {0.474358916, 0.397058755}},
    {"mean_io_u", 5, 1, 0, -1, 0, "ROC", 440, 0.148936152, "auto", 3, 0, 0, -1, 5, {0.178571418, 0.166666657, 0.192307666, 0.148936152, 0.192771047}},
    {"sparse_categorical_accuracy", 5, 1, 0, -1, 0, "ROC", 450, 0.400000006, "auto", -1, 0, 1, -1, 0, {0}},
    {"sparse_categorical_accuracy", 5, 1, 0, -1, 0, "ROC", 460, 0.353177816, "auto", -1, 1, 0, -1, 0, {0}},
    {"accuracy", 5, 1, 0, -1, 0, "ROC", 470, 0.371948361, "auto", -1, 1, 0, -1, 0, {0}},
    {"accuracy", 1, 0, 0, -1, 0, "ROC", 480, 0.691821933, "auto", -1, 1, 0, -1, 0, {0}},
    {"sparse_top_k_categorical_accuracy", 9, 1, 3, -1, 0, "ROC", 490, 0.711071432, "auto", -1, 1, 1, -1, 0, {0}},
    {"binary_accuracy", 4, 0, 0, 0.25, 0, "ROC", 500, 0.467313319, "auto", -1, 1, 0, -1, 0, {0}},
    {"auc", 1, 0, 0, -1, 0, "ROC", 510, 0.672558546, "auto", -1, 1, 0, -1, 0, {0}},
    {"mean_absolute_error", 4, 0, 0, -1, 0, "ROC", 520, 0.419784069, "auto", -1, 1, 1, -1, 0, {0}},
    {"root_mean_squared_error", 4, 0, 0, -1, 0, "ROC", 530, 0.502648175, "auto", -1, 0, 0, -1, 0, {0}},
    {"root_mean_squared_error", 4, 0, 0, -1, 0, "ROC", 540, 0.529897749, "auto", -1, 1, 0, -1, 0, {0}},
    {"r2_score", 4, 0, 0, -1, 0, "ROC", 550, -0.375197351, "auto", -1, 0, 0, -1, 0, {0}},
    {"r2_score", 4, 0, 0, -1, 0, "ROC", 560, -0.451184332, "auto", -1, 1, 0, -1, 0, {0}},
    {"cosine_similarity", 4, 0, 0, -1, 0, "ROC", 570, 0.54982245, "auto", -1, 0, 0, -1, 0, {0}},
    {"cosine_similarity", 4, 0, 0, -1, 0, "ROC", 580, 0.576725245, "auto", -1, 1, 1, -1, 0, {0}},
    {"true_positives", 5, 1, 0, -1, 0, "ROC", 590, 142, "auto", -1, 0, 0, -1, 0, {0}},
    {"false_positives", 1, 0, 0, 0.25, 0, "ROC", 600, 76.8720245, "auto", -1, 1, 0, -1, 0, {0}},
    {"true_negatives", 5, 0, 0, -1, 0, "ROC", 610, 583.559937, "auto", -1, 1, 0, -1, 0, {0}},
    {"false_negatives", 1, 0, 0, 0.75, 0, "ROC", 620, 65, "auto", -1, 0, 0, -1, 0, {0}},
    {"binary_crossentropy", 1, 0, 0, -1, 0, "ROC", 630, 0.873775482, "auto", -1, 0, 0, -1, 0, {0}},
    {"categorical_crossentropy", 5, 0, 0, -1, 0, "ROC", 640, 1.69478261, "auto", -1, 1, 0, -1, 0, {0}},
    {"sparse_categorical_crossentropy", 5, 1, 0, -1, 0, "ROC", 650, 1.68979442, "auto", -1, 0, 0, -1, 0, {0}},
    {"sparse_categorical_crossentropy", 5, 1, 0, -1, 0, "ROC", 660, 1.4818151, "auto", -1, 1, 1, -1, 0, {0}},
    {"accuracy", 5, 1, 0, -1, 0, "ROC", 670, 0.377364606, "auto", -1, 1, 1, -1, 0, {0}},
};

#endif
