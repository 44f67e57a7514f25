/* A model of a specification: built, filled with weights, trained and asked for its outputs. */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TENSORS 256

typedef struct named {
    const char *name;
    mirt_tensor *tensor;
} named;

typedef struct run {
    const spec *s;
    mirt_strategy *strategy;
    mirt_model *model;
    mirt_data data; /* all rows */
    int64_t rows, batch;
    int inputs, outputs, labels;
    const char *output_name[MIRT_MAX_OUTPUTS];
    size_t output_size[MIRT_MAX_OUTPUTS]; /* of one sample */
    double loss[64];
    int steps, most_steps;
} run;

static const char *const dtypes[] = {"float32", "int32", "uint8", NULL};
static const size_t dtype_sizes[] = {4, 4, 1};

mirt_strategy *make_strategy(const spec *s) {
    static const char *const kinds[] = {"mirrored", "one_device", "central_storage", NULL};
    static const char *const collectives[] = {"auto", "tree", "ring", "reduce_to_one_device", NULL};
    const item *it = next_item(s, "strategy", NULL);
    mirt_strategy_desc d;
    char devices[8];
    memset(&d, 0, sizeof d);
    d.replicas = get_int(it, "replicas", 1);
    d.kind = (mirt_strategy_kind)get_name(it, "kind", kinds, 0);
    d.collective = (mirt_collective)get_name(it, "collective", collectives, 0);
    const int wanted = d.kind == MIRT_ONE_DEVICE ? 1 : get_int(it, "devices", 1), cores = mirt_devices(NULL, 0);
    snprintf(devices, sizeof devices, "%d", wanted <= cores ? wanted : 1);
    d.devices = devices;
    d.threads = 1;
    d.silent = true;
    mirt_strategy *strategy = mirt_strategy_create(&d);
    need(strategy != NULL, "strategy");
    return strategy;
}

/* ---- recording */

static mirt_tensor *find(const named *list, int count, const char *name) {
    for (int i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) return list[i].tensor;
    }
    die("there is no tensor %s", name);
    return NULL;
}

static void record(run *r) {
    named list[MAX_TENSORS];
    int count = 0;
    for (const item *it = next_item(r->s, "input", NULL); it; it = next_item(r->s, "input", it)) {
        list[count].name = get_text(it, "name");
        list[count++].tensor = mirt_input(r->model, get_shape(it, "shape"));
    }
    for (const item *it = next_item(r->s, "layer", NULL); it; it = next_item(r->s, "layer", it)) {
        const char *names[8];
        char text[256];
        mirt_tensor *in[8];
        snprintf(text, sizeof text, "%s", get_text(it, "in"));
        const int num_in = split_names(text, names, 8);
        for (int i = 0; i < num_in; i++) in[i] = find(list, count, names[i]);
        if (count == MAX_TENSORS) die("too many layers");
        list[count].name = get_text(it, "name");
        list[count].tensor = record_layer(r->model, it, in, num_in);
        need(list[count].tensor != NULL, list[count].name);
        count++;
    }
    mirt_tensor *outputs[MIRT_MAX_OUTPUTS];
    for (const item *it = next_item(r->s, "output", NULL); it; it = next_item(r->s, "output", it)) {
        const mirt_shape shape = get_shape(it, "shape");
        r->output_name[r->outputs] = get_text(it, "layer");
        r->output_size[r->outputs] = (size_t)shape_count(&shape);
        outputs[r->outputs] = find(list, count, r->output_name[r->outputs]);
        r->outputs++;
    }
    mirt_model_outputs(r->model, outputs, r->outputs);
}

/* ---- compiling */

mirt_schedule make_schedule(const item *it) {
    const char *kind = get_text(it, "kind");
    const float initial = get_float(it, "initial", 0), rate = get_float(it, "rate", 0),
                alpha = get_float(it, "alpha", 0);
    const int64_t steps = get_int(it, "steps", 0);
    const bool staircase = get_bool(it, "staircase", false);
    if (strcmp(kind, "piecewise_constant") == 0) {
        double boundary[MIRT_MAX_BOUNDARIES], value[MIRT_MAX_BOUNDARIES + 1];
        int64_t at[MIRT_MAX_BOUNDARIES];
        float values[MIRT_MAX_BOUNDARIES + 1];
        const int count = get_list(it, "boundaries", boundary, MIRT_MAX_BOUNDARIES);
        if (get_list(it, "values", value, MIRT_MAX_BOUNDARIES + 1) != count + 1)
            die("a piecewise constant rate has one value more than boundaries");
        for (int i = 0; i <= count; i++) values[i] = (float)value[i];
        for (int i = 0; i < count; i++) at[i] = (int64_t)boundary[i];
        return mirt_piecewise_constant(at, values, count);
    }
    if (strcmp(kind, "exponential_decay") == 0) return mirt_exponential_decay(initial, steps, rate, staircase);
    if (strcmp(kind, "inverse_time_decay") == 0) return mirt_inverse_time_decay(initial, steps, rate, staircase);
    if (strcmp(kind, "polynomial_decay") == 0) {
        return mirt_polynomial_decay(initial, steps, get_float(it, "end", 0), get_float(it, "power", 1),
                                     get_bool(it, "cycle", false));
    }
    if (strcmp(kind, "cosine_restarts") == 0)
        return mirt_cosine_restarts(initial, steps, get_float(it, "t_mul", 2), get_float(it, "m_mul", 1), alpha);
    if (strcmp(kind, "cosine_decay") != 0) die("there is no schedule %s", kind);
    mirt_schedule s = mirt_cosine_decay(initial, steps, alpha);
    s.warmup_steps = get_int(it, "warmup_steps", 0);
    s.warmup_target = get_float(it, "warmup_target", 0);
    return s;
}

static mirt_optimizer make_optimizer(const spec *s) {
    const item *it = next_item(s, "optimizer", NULL), *schedule = next_item(s, "schedule", NULL);
    const char *kind = get_text(it, "kind");
    const float rate = get_float(it, "learning_rate", 0);
    mirt_optimizer o = strcmp(kind, "adam") == 0      ? mirt_adam(rate)
                       : strcmp(kind, "adamw") == 0   ? mirt_adamw(rate)
                       : strcmp(kind, "rmsprop") == 0 ? mirt_rmsprop(rate)
                       : strcmp(kind, "nadam") == 0   ? mirt_nadam(rate)
                       : strcmp(kind, "adagrad") == 0 ? mirt_adagrad(rate)
                       : strcmp(kind, "adamax") == 0  ? mirt_adamax(rate)
                       : strcmp(kind, "lion") == 0    ? mirt_lion(rate)
                       : strcmp(kind, "adadelta") == 0 ? mirt_adadelta(rate)
                       : strcmp(kind, "ftrl") == 0    ? mirt_ftrl(rate)
                       : strcmp(kind, "lamb") == 0    ? mirt_lamb(rate)
                       : strcmp(kind, "muon") == 0    ? mirt_muon(rate)
                       : strcmp(kind, "adafactor") == 0 ? mirt_adafactor(rate)
                                                      : mirt_sgd(rate, 0, false);
    o.beta_1 = get_float(it, "beta_1", o.beta_1);
    o.beta_2 = get_float(it, "beta_2", o.beta_2);
    o.epsilon = get_float(it, "epsilon", o.epsilon);
    o.amsgrad = get_bool(it, "amsgrad", false);
    o.initial_accumulator_value = get_float(it, "initial_accumulator_value", o.initial_accumulator_value);
    o.momentum = get_float(it, "momentum", o.momentum);
    o.nesterov = get_bool(it, "nesterov", o.nesterov);
    o.ns_steps = get_int(it, "ns_steps", o.ns_steps);
    o.rho = get_float(it, "rho", o.rho);
    o.clip_threshold = get_float(it, "clip_threshold", o.clip_threshold);
    o.epsilon_2 = get_float(it, "epsilon_2", o.epsilon_2);
    o.centered = get_bool(it, "centered", false);
    o.beta = get_float(it, "beta", o.beta);
    o.l1_regularization_strength = get_float(it, "l1_regularization_strength", 0);
    o.l2_regularization_strength = get_float(it, "l2_regularization_strength", 0);
    o.weight_decay = get_float(it, "weight_decay", o.weight_decay);
    o.exclude_from_weight_decay = get_text(it, "exclude_from_weight_decay");
    o.clipnorm = get_float(it, "clipnorm", 0);
    o.global_clipnorm = get_float(it, "global_clipnorm", 0);
    o.clipvalue = get_float(it, "clipvalue", 0);
    o.use_ema = get_bool(it, "use_ema", false);
    o.ema_momentum = get_float(it, "ema_momentum", 0);
    o.ema_overwrite_frequency = get_int(it, "ema_overwrite_frequency", 0);
    if (schedule) o.decay = make_schedule(schedule);
    return o;
}

static void compile(run *r) {
#define LOSS_NAME(loss, name, labels, activation) #name,
    static const char *const losses[] = {"none", MIRT_LOSS_LIST(LOSS_NAME) NULL};
    static const char *const reductions[] = {"sum_over_batch_size", "sum", NULL};
    static const char *const metrics[] = {"none",
                                          "accuracy",
                                          "binary_accuracy",
                                          "categorical_accuracy",
                                          "sparse_categorical_accuracy",
                                          "top_k_categorical_accuracy",
                                          "sparse_top_k_categorical_accuracy",
                                          "precision",
                                          "recall",
                                          "f1_score",
                                          "auc",
                                          "mae",
                                          "mse",
                                          "mean_io_u",
                                          "true_positives",
                                          "false_positives",
                                          "true_negatives",
                                          "false_negatives",
                                          "root_mean_squared_error",
                                          "r2_score",
                                          "cosine_similarity",
                                          "loss",
                                          "fbeta_score",
                                          "io_u",
                                          "binary_io_u",
                                          "one_hot_io_u",
                                          "one_hot_mean_io_u",
                                          "pearson_correlation",
                                          "concordance_correlation",
                                          "sensitivity_at_specificity",
                                          "specificity_at_sensitivity",
                                          "precision_at_recall",
                                          "recall_at_precision",
                                          NULL};
    static const char *const curves[] = {"ROC", "PR", NULL}, *const averages[] = {"auto", "micro", "macro", "weighted",
                                                                                  NULL};
    const item *it = next_item(r->s, "compile", NULL);
    mirt_compile_desc c;
    double weight[MIRT_MAX_OUTPUTS];
    int count = 0;
    memset(&c, 0, sizeof c);
    if (next_item(r->s, "optimizer", NULL)) c.optimizer = make_optimizer(r->s);
    c.from_logits = get_bool(it, "from_logits", false);
    c.reduction = (mirt_reduction)get_name(it, "reduction", reductions, 0);
    for (const item *out = next_item(r->s, "output", NULL); out; out = next_item(r->s, "output", out)) {
        mirt_loss_options *o = &c.loss_options[count];
        c.losses[count++] = (mirt_loss)get_name(out, "loss", losses, 0);
        o->label_smoothing = get_float(out, "label_smoothing", 0);
        o->q = get_float(out, "q", 0);
        o->gamma = get_float(out, "gamma", 0);
        o->margin = get_float(out, "margin", 0);
        o->keep_diagonal = !get_bool(out, "remove_diagonal", true);
        o->ignore_class = get_int(out, "ignore_class", 0);
        o->has_ignore_class = o->ignore_class != 0;
    }
    count = get_list(it, "loss_weights", weight, MIRT_MAX_OUTPUTS);
    for (int i = 0; i < count; i++) c.loss_weights[i] = (float)weight[i];
    count = 0;
    for (const item *m = next_item(r->s, "metric", NULL); m; m = next_item(r->s, "metric", m)) {
        mirt_metric_options *o = &c.metric_options[count];
        c.metrics[count++] = (mirt_metric)get_name(m, "kind", metrics, 0);
        o->k = get_int(m, "k", 0);
        o->threshold = get_float(m, "threshold", 0);
        o->num_thresholds = get_int(m, "num_thresholds", 0);
        o->curve = (mirt_curve)get_name(m, "curve", curves, 0);
        o->from_logits = get_bool(m, "from_logits", false);
        o->name = get_text(m, "name");
        o->average = (mirt_average)get_name(m, "average", averages, 0);
        o->weighted = get_bool(m, "weighted", false);
        o->output = get_text(m, "output");
        o->class_id = get_int(m, "class_id", 0);
        o->has_class_id = get_int(m, "class_id", -1) >= 0;
        o->ignore_class = get_int(m, "ignore_class", 0);
        o->has_ignore_class = get_int(m, "ignore_class", -1) >= 0;
        o->loss = (mirt_loss)get_name(m, "loss", losses, 0);
        o->beta = get_float(m, "beta", 0);
        o->at = get_float(m, "at", 0);
    }
    const item *frozen = next_item(r->s, "frozen", NULL);
    if (frozen) {
        const char *names[MAX_TENSORS];
        char text[1024];
        snprintf(text, sizeof text, "%s", get_text(frozen, "layers"));
        const int layers = split_names(text, names, MAX_TENSORS);
        for (int i = 0; i < layers; i++) need(mirt_set_trainable(r->model, names[i], false) == MIRT_OK, names[i]);
    }
    need(mirt_compile(r->model, &c) == MIRT_OK, "compile");
}

/* ---- data */

static mirt_array read_array(const run *r, const char *file, mirt_shape shape, int dtype) {
    memmove(shape.dim + 1, shape.dim, (size_t)shape.rank * sizeof *shape.dim);
    shape.dim[0] = r->rows;
    shape.rank++;
    return mirt_make_array(read_case(r->s, file, (size_t)shape_count(&shape) * dtype_sizes[dtype]), (mirt_dtype)dtype,
                           shape);
}

static void read_data(run *r) {
    const item *train = next_item(r->s, "train", NULL);
    r->rows = get_int(train, "rows", 0);
    r->batch = get_int(train, "batch", 0);
    for (const item *it = next_item(r->s, "input", NULL); it; it = next_item(r->s, "input", it)) {
        char file[32];
        snprintf(file, sizeof file, "x%d.bin", r->inputs);
        r->data.x[r->inputs++] = read_array(r, file, get_shape(it, "shape"), get_name(it, "dtype", dtypes, 0));
    }
    for (const item *it = next_item(r->s, "output", NULL); it; it = next_item(r->s, "output", it)) {
        const char *loss = get_text(it, "loss");
        const bool sparse = strncmp(loss, "sparse", 6) == 0 || strcmp(loss, "circle") == 0 ||
                            strcmp(loss, "categorical_generalized_cross_entropy") == 0;
        mirt_shape shape = get_shape(it, "shape");
        char file[32];
        if (sparse) shape.rank--;
        snprintf(file, sizeof file, "y%d.bin", r->labels);
        r->data.y[r->labels++] = read_array(r, file, shape, sparse ? MIRT_INT32 : MIRT_FLOAT32);
    }
    if (get_bool(train, "sample_weights", false)) {
        mirt_shape none;
        memset(&none, 0, sizeof none);
        r->data.weights = read_array(r, "weights.bin", none, MIRT_FLOAT32);
    }
}

/* Rows `first` to `first + count` of an array. */
static mirt_array part_of(const mirt_array *a, int64_t first, int64_t count) {
    mirt_array part = *a;
    if (!a->data) return part;
    const size_t row = (size_t)(shape_count(&a->shape) / a->shape.dim[0]) * dtype_sizes[a->dtype];
    part.data = (const char *)a->data + (size_t)first * row;
    part.shape.dim[0] = count;
    return part;
}

static mirt_data rows_of(const run *r, int64_t first, int64_t count) {
    mirt_data part;
    memset(&part, 0, sizeof part);
    for (int i = 0; i < r->inputs; i++) part.x[i] = part_of(&r->data.x[i], first, count);
    for (int i = 0; i < r->labels; i++) part.y[i] = part_of(&r->data.y[i], first, count);
    part.weights = part_of(&r->data.weights, first, count);
    return part;
}

/* ---- training */

static int keep_loss(const mirt_event *event, void *user) {
    run *r = (run *)user;
    if (r->steps < r->most_steps) r->loss[r->steps++] = mirt_logs_value(event->logs, "batch_loss");
    return 0;
}

static void train_by_fit(run *r, const item *train) {
    double weight[MAX_LIST];
    float class_weight[MAX_LIST];
    mirt_callback callback;
    mirt_fit_desc d;
    const int accumulate = get_int(train, "accumulate", 1);
    mirt_dataset *dataset = mirt_batch(mirt_arrays_of(&r->data), r->batch);
    memset(&callback, 0, sizeof callback);
    memset(&d, 0, sizeof d);
    if (accumulate > 1) dataset = mirt_accumulate(dataset, accumulate);
    need(dataset != NULL, "dataset");
    callback.user = r;
    callback.batch_end = keep_loss;
    d.callbacks[0] = &callback;
    d.epochs = r->most_steps;
    d.max_steps = r->most_steps;
    d.no_progress = true;
    d.num_class_weights = get_list(train, "class_weights", weight, MAX_LIST);
    for (int i = 0; i < d.num_class_weights; i++) class_weight[i] = (float)weight[i];
    if (d.num_class_weights) d.class_weights = class_weight;
    need(mirt_fit(r->model, dataset, &d) != NULL, "fit");
    mirt_dataset_destroy(dataset);
}

static void train_by_batch(run *r, bool ema) {
    for (int64_t first = 0; r->steps < r->most_steps; first = first + r->batch < r->rows ? first + r->batch : 0) {
        const int64_t count = first + r->batch < r->rows ? r->batch : r->rows - first;
        const mirt_data batch = rows_of(r, first, count);
        mirt_logs logs;
        need(mirt_train_on_batch(r->model, &batch, &logs) == MIRT_OK, "train_on_batch");
        r->loss[r->steps++] = mirt_logs_value(&logs, "loss");
    }
    if (ema) need(mirt_apply_averages(r->model) == MIRT_OK, "apply_averages");
}

/* ---- results */

static void write_outputs(run *r, const char *when) {
    float *out[MIRT_MAX_OUTPUTS];
    size_t capacity[MIRT_MAX_OUTPUTS];
    mirt_dataset *dataset = mirt_batch(mirt_arrays_of(&r->data), r->batch);
    need(dataset != NULL, "dataset");
    for (int i = 0; i < r->outputs; i++) {
        capacity[i] = r->output_size[i] * (size_t)r->rows;
        out[i] = (float *)need_memory(capacity[i] * sizeof(float));
    }
    need(mirt_predict_outputs(r->model, dataset, out, capacity) == MIRT_OK, "predict");
    for (int i = 0; i < r->outputs; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s/%s", when, r->output_name[i]);
        write_floats(name, out[i], capacity[i]);
        free(out[i]);
    }
    mirt_dataset_destroy(dataset);
}

static void write_weights(run *r) {
    for (int i = 0; i < mirt_num_weights(r->model); i++) {
        mirt_weight_info w;
        char name[256];
        need(mirt_weight(r->model, i, &w) == MIRT_OK, "weight");
        float *values = (float *)need_memory((size_t)w.count * sizeof *values);
        need(mirt_get_weight(r->model, w.name, 0, values, (size_t)w.count) == MIRT_OK, w.name);
        snprintf(name, sizeof name, "weight/%s", w.name);
        write_floats(name, values, (size_t)w.count);
        free(values);
    }
}

static void write_evaluation(run *r) {
    mirt_logs logs;
    mirt_dataset *dataset = mirt_batch(mirt_arrays_of(&r->data), r->batch);
    need(dataset != NULL, "dataset");
    need(mirt_evaluate(r->model, dataset, &logs) == MIRT_OK, "evaluate");
    for (int i = 0; i < logs.count; i++) {
        char name[256];
        snprintf(name, sizeof name, "evaluate/%s", logs.name[i]);
        write_result(name, &logs.value[i], 1);
    }
    mirt_dataset_destroy(dataset);
}

/* For ONNX Runtime: folded.onnx; and kept.onnx, whose channels come first and whose normalizations are kept. */
static void write_onnx(run *r) {
    for (int kept = 0; kept < 2; kept++) {
        char path[2048];
        mirt_onnx_desc d;
        memset(&d, 0, sizeof d);
        d.channels_first = d.keep_normalization = kept;
        snprintf(path, sizeof path, "%s/%s.onnx", r->s->dir, kept ? "kept" : "folded");
        if (mirt_save_onnx(r->model, path, &d) == MIRT_OK) continue;
        need(strstr(mirt_last_error(), "sparsemax cannot be written as ONNX") != NULL, "save_onnx");
    }
}

static void open_model(run *r, const spec *s) {
    memset(r, 0, sizeof *r);
    r->s = s;
    r->strategy = make_strategy(s);
    r->model = mirt_model_create(r->strategy, "drawn");
    need(r->model != NULL, "model");
    record(r);
    compile(r);
    read_data(r);
}

void run_model(const spec *s) {
    run r;
    char path[2048];
    open_model(&r, s);
    const item *train = next_item(s, "train", NULL);
    r.most_steps = get_int(train, "steps", 0);
    if (r.most_steps > (int)(sizeof r.loss / sizeof *r.loss)) die("too many steps");
    snprintf(path, sizeof path, "%s/weights.safetensors", s->dir);
    need(mirt_load_weights(r.model, path) == MIRT_OK, "weights");
    write_outputs(&r, "before");
    if (strcmp(get_text(train, "loop"), "fit") == 0)
        train_by_fit(&r, train);
    else
        train_by_batch(&r, get_bool(next_item(s, "optimizer", NULL), "use_ema", false));
    write_result("loss", r.loss, (size_t)r.steps);
    write_outputs(&r, "after");
    write_onnx(&r);
    write_evaluation(&r);
    write_weights(&r);
    mirt_strategy_destroy(r.strategy);
}

/* Predictions that are the inputs. */
void run_metrics(const spec *s) {
    run r;
    open_model(&r, s);
    write_evaluation(&r);
    mirt_strategy_destroy(r.strategy);
}
