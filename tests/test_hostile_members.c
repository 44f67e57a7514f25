/* Saved models with any value of their texts left out or replaced: refused or harmless. */
#define _POSIX_C_SOURCE 200809L
#include "failing_malloc.h"
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "gallery.h"
#include "tap.h"

#include <unistd.h>

enum { TEXTS = 4 };
static const char *const text_key[TEXTS] = {"architecture", "compile", "training", "classes"};
static const char *const substitutes[] = {
    "null", "true", "7", "-1", "2.5", "1e39", "99999999999", "\"x\"", "[]", "[[1,-1],[2,2.5]]", "[7,\"x\"]",
    "[7,7,7,7,7,7,7,7,7,7]", "{\"class_name\":\"x\"}", "{\"class_name\":7,\"config\":[]}"};

/* Members that a file may lack, so that older files and files with defaults can be loaded. */
static const char *const optional[] = {
    "kernel_regularizer", "bias_regularizer", "beta_regularizer", "gamma_regularizer", "alpha_regularizer",
    "depthwise_regularizer", "pointwise_regularizer", "noise_shape", "frozen", "losses", "schedule", "curve", "name",
    "custom_losses", "custom_metrics", "dtype_policy", "weight_decay", "exclude_from_weight_decay", "clipnorm",
    "global_clipnorm", "clipvalue", "ema_momentum", "ema_overwrite_frequency", "k", "threshold", "num_thresholds",
    "average", "output", "class_id", "num_classes", "ignore_class", "loss_options", "label_smoothing",
    "scale", "offset", "kind", "axis", "axes", "begin", "perm", "classes", "index", "dtype", NULL};
/* Members that may be null. */
static const char *const nullable[] = {
    "kernel_regularizer", "bias_regularizer", "beta_regularizer", "gamma_regularizer", "alpha_regularizer",
    "depthwise_regularizer", "pointwise_regularizer", "noise_shape", "custom_losses", NULL};
/* Members of several types: limits, which are numbers or the name of an infinity; one that nothing reads. */
static const char *const free_type[] = {"unary.attributes/.scale", "unary.attributes/.offset", "Functional.config",
                                        NULL};

static mirt_strategy *strategy;
static char path[512];

/* >>the models whose files are changed */

static mirt_model *save(mirt_model *model, const mirt_compile_desc *desc) {
    if (model && mirt_compile(model, desc) == MIRT_OK && mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK) return model;
    mirt_model_destroy(model);
    return NULL;
}

/* Layers with descriptions that the gallery's models lack, and names of classes. */
static mirt_model *described(void) {
    static const char *const classes[2] = {"cat", "d\xc3\xb6g"};
    mirt_augmentation list[8];
    mirt_dropout_desc dropout;
    mirt_normalization_desc normalization;
    mirt_dense_desc dense;
    memset(&dropout, 0, sizeof dropout);
    memset(&normalization, 0, sizeof normalization);
    memset(&dense, 0, sizeof dense);
    dropout.rate = 0.25f;
    dropout.noise_shape = MIRT_SHAPE(1, 1, 3);
    normalization.mean[0] = 3;
    dense.units = 2;
    dense.kernel_initializer = mirt_random_uniform(-1, 1);
    dense.bias_initializer = mirt_constant(0.5f);
    mirt_model *model = mirt_model_create(strategy, "described");
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(8, 8, 3));
    const char *const names = "flip,rotation:0.1,translation:0.1,contrast:0.2,crop:6,resizing:5";
    const int count = mirt_parse_augmentation(names, list, 8);
    for (int i = 0; i < count; i++) x = mirt_augmentation_layer(x, &list[i]);
    x = mirt_normalization(mirt_dropout_layer(mirt_rescale(x, 2, 1), &dropout), &normalization);
    mirt_model_output(model, mirt_dense(mirt_leaky_relu_layer(mirt_flatten(x), 0.5f), &dense));
    mirt_set_dtype_policy(model, "mixed_bfloat16");
    mirt_set_trainable(model, "dense/bias", false);
    mirt_set_model_class_names(model, classes, 2);
    return save(model, NULL);
}

static mirt_schedule schedule_of(int index) {
    static const int64_t boundaries[] = {10, 20};
    static const float values[] = {0.3f, 0.2f, 0.1f};
    switch (index) {
    case 0: return mirt_piecewise_constant(boundaries, values, 2);
    case 1: return mirt_exponential_decay(0.1f, 10, 0.5f, true);
    case 2: return mirt_polynomial_decay(0.1f, 10, 0.01f, 1, true);
    case 3: return mirt_inverse_time_decay(0.1f, 10, 0.5f, false);
    case 4: return mirt_cosine_decay(0.1f, 10, 0.5f);
    default: return mirt_cosine_restarts(0.1f, 10, 2, 1, 0);
    }
}
enum { SCHEDULES = 6 };

/* A small network with optimizer, schedule, losses and metrics number `index`. */
static mirt_model *compiled(int index) {
    const mirt_optimizer optimizers[] = {mirt_sgd(0.1f, 0.9f, true), mirt_adam(0.1f),    mirt_adamw(0.1f),
                                         mirt_rmsprop(0.1f),         mirt_nadam(0.1f),   mirt_adagrad(0.1f),
                                         mirt_adamax(0.1f),          mirt_lion(0.1f),    mirt_adadelta(0.1f),
                                         mirt_schedule_free_adamw(0.1f), mirt_ftrl(0.1f), mirt_lamb(0.1f),
                                         mirt_muon(0.1f), mirt_adafactor(0.1f)};
    mirt_compile_desc desc;
    mirt_tensor *out[2];
    memset(&desc, 0, sizeof desc);
    desc.optimizer = optimizers[index % MIRT__COUNT(optimizers)];
    desc.optimizer.decay = schedule_of(index);
    desc.optimizer.exclude_from_weight_decay = index % 4 == 2 ? "bias" : NULL;
    if (index % 2) desc.optimizer.clipnorm = 1;
    else desc.optimizer.clipvalue = 1;
    desc.optimizer.use_ema = index == 3;
    desc.optimizer.ema_momentum = index == 3 ? 0.9f : 0;
    desc.optimizer.ema_overwrite_frequency = index == 3 ? 5 : 0;
    if (index == 6) {
        desc.optimizers[0].weights = "dense";
        desc.optimizers[0].optimizer = optimizers[10];
        desc.optimizers[1].weights = "dense_1/bias";
        desc.optimizers[1].optimizer.decay = schedule_of(1);
    }
    desc.losses[0] = MIRT_BINARY_CROSSENTROPY;
    desc.losses[1] = MIRT_MEAN_SQUARED_ERROR;
    desc.loss_weights[1] = 0.5f;
    desc.loss_options[0].label_smoothing = 0.125f;
    desc.loss_options[0].from_logits = index == 1;
    desc.metrics[0] = MIRT_AUC;
    desc.metric_options[0].curve = MIRT_PR;
    desc.metric_options[0].num_thresholds = 50;
    desc.metrics[1] = MIRT_PRECISION;
    desc.metric_options[1].threshold = 0.25f;
    desc.metric_options[1].name = "exact";
    desc.metrics[2] = MIRT_F1_SCORE;
    desc.metric_options[2].average = MIRT_WEIGHTED;
    desc.metric_options[2].weighted = true;
    desc.metric_options[2].output = "activation";
    desc.metric_options[2].class_id = 1;
    desc.metrics[3] = MIRT_MEAN_IOU;
    desc.metric_options[3].num_classes = 2;
    desc.metric_options[3].ignore_class = -1;
    mirt_model *model = mirt_model_create(strategy, "compiled");
    mirt_tensor *x = mirt_input(model, MIRT_SHAPE(3));
    for (int i = 0; i < 2; i++) out[i] = gallery_dense(x, 2, 0);
    out[0] = mirt_activation(out[0], MIRT_SIGMOID);
    mirt_model_outputs(model, out, 2);
    return save(model, &desc);
}

static mirt_model *from_gallery(int index) {
    mirt_model *model = gallery_model(strategy, index);
    if (model && mirt_save(model, path, MIRT_SAVE_ALL) == MIRT_OK) return model;
    mirt_model_destroy(model);
    return NULL;
}

/* >>changed files */

static mirt__safetensors good;
static const char *text[TEXTS];

/* A file with the current texts. */
static unsigned char *build(size_t *size) {
    mirt__text out;
    size_t offset = 0;
    memset(&out, 0, sizeof out);
    mirt__text_add(&out, "LLLLLLLL{\"__metadata__\":{\"format\":\"mirrortrain\"");
    for (int i = 0; i < TEXTS; i++) {
        if (!text[i]) continue;
        mirt__text_add(&out, ",\"%s\":", text_key[i]);
        mirt__json_write_string(&out, text[i]);
    }
    mirt__text_add(&out, "}");
    for (int i = 0; i < good.count; i++) {
        const mirt__safetensor *t = &good.tensor[i];
        mirt__text_add(&out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, mirt__st_dtype_name(t->dtype));
        for (int d = 0; d < t->rank; d++) mirt__text_add(&out, "%s%lld", d ? "," : "", (long long)t->dim[d]);
        mirt__text_add(&out, "],\"data_offsets\":[%zu,%zu]}", offset, offset + t->size);
        offset += t->size;
    }
    mirt__text_add(&out, "}");
    for (int i = 0; i < 8; i++) out.data[i] = (char)((uint64_t)(out.size - 8) >> (8 * i) & 255u);
    for (int i = 0; i < good.count; i++) mirt__text_add_bytes(&out, good.tensor[i].data, good.tensor[i].size);
    unsigned char *copy = (unsigned char *)malloc(out.size);
    if (copy) memcpy(copy, out.data, out.size);
    *size = copy ? out.size : 0;
    mirt__text_free(&out);
    return copy;
}

/* Whether the file of the current texts loads; anything but that or a sentence about the file counts as harm. */
static bool loads(bool *harm) {
    const long before = live_blocks;
    size_t size;
    unsigned char *file = build(&size);
    mirt_model *model = mirt_load_memory(strategy, file, size);
    const mirt_status status = model ? MIRT_OK : mirt_last_status();
    *harm = !model && (status != MIRT_E_FORMAT && status != MIRT_E_SHAPE && status != MIRT_E_NOT_FOUND);
    *harm = *harm || (!model && (!mirt_last_error()[0] || strchr(mirt_last_error(), '\n')));
    mirt_model_destroy(model);
    free(file);
    *harm = *harm || live_blocks != before;
    return model != NULL;
}

static bool listed(const char *const *list, const char *key) {
    while (*list && strcmp(*list, key) != 0) list++;
    return *list != NULL;
}

static bool is_free(const char *where) {
    for (int i = 0; free_type[i]; i++) {
        const size_t length = strlen(where), end = strlen(free_type[i]);
        if (length >= end && strcmp(where + length - end, free_type[i]) == 0) return true;
    }
    return false;
}

/* The offset after the value that begins at `at`. */
static size_t value_end(const char *all, size_t at) {
    int depth = 0;
    bool quoted = false;
    for (;; at++) {
        if (quoted && all[at] == '\\') at++;
        else if (all[at] == '"') quoted = !quoted;
        else if (!quoted && (all[at] == '[' || all[at] == '{')) depth++;
        else if (!quoted && (all[at] == ']' || all[at] == '}') && --depth < 0) return at;
        else if (!quoted && all[at] == ',' && depth == 0) return at;
        if (!all[at] || (depth == 0 && !quoted && strchr("\"]}", all[at]))) return at + (all[at] != 0);
    }
}

static struct {
    const char *original; /* the text that is changed */
    int number;           /* which one */
    char seen[4096][160]; /* members that were changed already; other models have them too */
    int num_seen, changed, refused, wrong;
} run;

/* The text with [begin, end) replaced. */
static bool loads_with(size_t begin, size_t end, const char *value, bool *harm) {
    const size_t room = strlen(run.original) + strlen(value) + 1;
    char *changed = (char *)malloc(room);
    if (!changed) return false;
    snprintf(changed, room, "%.*s%s%s", (int)begin, run.original, value, run.original + end);
    text[run.number] = changed;
    const bool loaded = loads(harm);
    text[run.number] = run.original;
    free(changed);
    run.changed++;
    run.refused += !loaded;
    return loaded;
}

static void judge(bool right, const char *where, const char *how) {
    if (!right && run.wrong++ < 20) printf("# %s %s: %s\n", where, how, mirt_last_error());
}

/* Without the member that ends at `end`. */
static void leave_out(const mirt__json *value, size_t end, const char *where) {
    const char *all = run.original;
    size_t begin = value->offset;
    bool harm;
    while (all[begin - 1] != ':') begin--;
    begin -= strlen(value->key) + 3;
    if (all[begin - 1] == ',') begin--;
    else if (all[end] == ',') end++;
    const bool loaded = loads_with(begin, end, "", &harm);
    const bool may = value->type == MIRT__JSON_BOOL || listed(optional, value->key) || is_free(where);
    judge(!harm && (!loaded || may), where, "left out");
}

static void change(const mirt__json *value, const char *where) {
    const size_t end = value_end(run.original, value->offset);
    if (value->key) leave_out(value, end, where);
    for (int i = 0; i < MIRT__COUNT(substitutes); i++) {
        bool harm;
        mirt__pool pool;
        memset(&pool, 0, sizeof pool);
        const mirt__json *other = mirt__json_parse(&pool, substitutes[i], strlen(substitutes[i]));
        const bool null = other->type == MIRT__JSON_NULL && value->key && listed(nullable, value->key);
        const bool may = other->type == value->type || null || is_free(where);
        const bool loaded = loads_with(value->offset, end, substitutes[i], &harm);
        judge(!harm && (!loaded || may), where, substitutes[i]);
        mirt__pool_free(&pool);
    }
}

/* The value and all that it holds. Members of the same name in objects of the same class are changed once. */
static void walk(const mirt__json *value, const char *where) {
    char below[160];
    bool seen = false;
    for (int i = 0; i < run.num_seen; i++) seen = seen || strcmp(run.seen[i], where) == 0;
    if (!seen && run.num_seen < MIRT__COUNT(run.seen)) {
        snprintf(run.seen[run.num_seen++], sizeof run.seen[0], "%s", where);
        change(value, where);
    }
    const mirt__json *name = value->type == MIRT__JSON_OBJECT ? mirt__json_member(value, "class_name") : NULL;
    if (name && strcmp(name->string, "Operation") == 0) name = mirt__json_member(value, "op");
    for (size_t i = 0; i < value->count; i++) {
        const mirt__json *item = value->item[i];
        const char *kind = name ? name->string : "", *key = item->key ? item->key : "";
        if (snprintf(below, sizeof below, "%s/%s.%s", where, kind, key) >= (int)sizeof below) continue;
        walk(item, below);
    }
}

static void check_file(const char *name, mirt_model *model) {
    const bool saved = model && mirt__safetensors_open(&good, path) == MIRT_OK;
    if (!ok(saved, "%s: saved%s%s", name, saved ? "" : ": ", saved ? "" : mirt_last_error())) return;
    mirt_model_destroy(model);
    bool harm;
    run.changed = run.refused = run.wrong = 0;
    for (int i = 0; i < TEXTS; i++) text[i] = mirt__safetensors_metadata(&good, text_key[i]);
    ok(loads(&harm) && !harm, "%s: loads unchanged", name);
    for (run.number = 0; run.number < TEXTS; run.number++) {
        mirt__pool pool;
        memset(&pool, 0, sizeof pool);
        run.original = text[run.number];
        if (!run.original) continue; /* classes may have no names */
        walk(mirt__json_parse(&pool, run.original, strlen(run.original)), text_key[run.number]);
        mirt__pool_free(&pool);
    }
    ok(run.wrong == 0 && run.changed > 0, "%s: %d changes, %d refused, the others allowed", name, run.changed,
       run.refused);
    ok(loads(&harm) && !harm, "%s: still loads", name);
    mirt__safetensors_close(&good);
}

int main(void) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "1";
    desc.threads = 1;
    desc.silent = true;
    snprintf(path, sizeof path, "%s/mirt_hostile_members_%ld", tap_tmpdir(), (long)getpid());
    strategy = mirt_strategy_create(&desc);
    gallery_register(strategy);
    check_file("images", from_gallery(0));
    check_file("operations", from_gallery(1));
    check_file("nested models", from_gallery(2));
    check_file("described layers", described());
    for (int i = 0; i < 8; i++) check_file("compile settings", compiled(i));
    mirt_strategy_destroy(strategy);
    unlink(path);
    ok(live_blocks == 0, "%ld blocks are left", live_blocks);
    return done_testing();
}
