/* Opens what several commands need: a strategy, a model, data. */
#include "posix.h"
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <limits.h>
#include <string.h>

#define DEFAULT_DATA "data/mnist"
#define DRAWN_TRAIN 12000
#define DRAWN_TEST 2000

/* The log function of commands that print a line or a text. */
static void log_warnings(mirt_log_level level, const char *message, void *user) {
    (void)user;
    if (level > MIRT_LOG_WARNING) return;
    if (is_first()) note("%s", message);
    else complain("%s", message);
}

mirt_strategy *open_strategy(const options *o, bool quiet, int *status) {
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = o->devices;
    if (chosen(o->strategy, "central-storage")) desc.kind = MIRT_CENTRAL_STORAGE;
    if (chosen(o->strategy, "one-device")) desc.kind = MIRT_ONE_DEVICE;
    if (works_together() || chosen(o->strategy, "multi-worker")) desc.kind = MIRT_MULTI_WORKER;
    if (chosen(o->strategy, "parameter-server")) desc.kind = MIRT_PARAMETER_SERVER;
    desc.average_every = (int)o->average_every;
    desc.servers = (int)o->servers;
    desc.has_max_staleness = o->max_staleness >= 0;
    if (desc.has_max_staleness) desc.max_staleness = (int)o->max_staleness;
    if (chosen(o->collective, "tree")) desc.collective = MIRT_TREE;
    if (chosen(o->collective, "ring")) desc.collective = MIRT_RING;
    if (chosen(o->collective, "one-device")) desc.collective = MIRT_REDUCE_TO_ONE_DEVICE;
    if (chosen(o->collective, "nccl")) desc.collective = MIRT_NCCL;
    desc.replicas = (int)o->replicas;
    desc.threads = (int)o->threads;
    desc.simulate_threads = o->simulate;
    desc.shares = o->shares;
    desc.seed = o->seed;
    desc.winograd = o->winograd;
    desc.timeout_seconds = (double)o->timeout;
    if (quiet) desc.log = log_warnings;
    mirt_strategy *strategy = mirt_strategy_create(&desc);
    if (!strategy) {
        mirt_status why = mirt_last_status();
        complain_of_library();
        *status = why == MIRT_E_DEVICE || why == MIRT_E_INVALID ? EXIT_USAGE : EXIT_FAILED;
    }
    if (strategy && works_together()) join_others();
    return strategy;
}

bool all_good(mirt_strategy *strategy, bool good) {
    if (!works_together() || !strategy) return good;
    if (mirt_barrier(strategy, good ? MIRT_OK : MIRT_E_STATE) == MIRT_OK) return true;
    if (good) complain_of_library();
    return false;
}

mirt_device_info *list_devices(int *count, int *cores) {
    *count = mirt_devices(NULL, 0);
    mirt_device_info *info = *count ? (mirt_device_info *)calloc((size_t)*count, sizeof *info) : NULL;
    if (!*count) complain_of_library();
    else if (!info) complain("out of memory");
    else mirt_devices(info, *count);
    *cores = 0;
    while (info && *cores < *count && info[*cores].cores) ++*cores;
    return info;
}

bool is_for_digits(const options *o) { return strcmp(o->model, "mnist") == 0; }

bool has_one_batch(const options *o, const char *name) {
    if (o->batch_list.count == 1) return true;
    complain("--batch: processes that work together measure one batch, not %d; run %s once for each",
             o->batch_list.count, name);
    return false;
}

int64_t batch_of(const options *o) { return o->batch ? o->batch : is_for_digits(o) ? 64 : 32; }

#define NAME(kind, name, kernel) #name,
static mirt_optimizer make_optimizer(const options *o) {
    static const char *const names[] = {MIRT_OPTIMIZER_LIST(NAME)};
    const bool sgd = chosen(o->optimizer, "sgd");
    const float rate = o->lr.count ? o->lr.rate[0] : sgd ? 1e-2f : 1e-3f;
    mirt_optimizer optimizer;
    memset(&optimizer, 0, sizeof optimizer); /* zero fields mean Keras's defaults */
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
        if (chosen(o->optimizer, names[i])) optimizer.kind = (mirt_optimizer_kind)i;
    }
    optimizer.learning_rate = rate;
    if (o->weight_decay > 0) optimizer.weight_decay = o->weight_decay;
    optimizer.global_clipnorm = o->clip_norm;
    optimizer.use_ema = o->ema > 0;
    optimizer.ema_momentum = o->ema;
    return optimizer;
}
#undef NAME

/* Prints the library's message; an unknown name is an error of the command line. */
mirt_model *complain_of_model(int *status) {
    mirt_status why = mirt_last_status();
    *status = why == MIRT_E_NOT_FOUND || why == MIRT_E_INVALID || why == MIRT_E_SHAPE ? EXIT_USAGE : EXIT_FAILED;
    complain_of_library();
    return NULL; /* the strategy frees the model */
}

static const struct {
    const char *name, *policy;
} dtypes[] = {
    {"float32", "float32"}, {"bf16", "mixed_bfloat16"}, {"store-bf16", "store_bfloat16"}, {"fp16", "mixed_float16"}};

static int dtype_of(const options *o) {
    int i = 0;
    while (i < (int)(sizeof dtypes / sizeof *dtypes) - 1 && !chosen(o->dtype, dtypes[i].name)) i++;
    return i;
}

const char *dtype_name(const options *o) { return dtypes[dtype_of(o)].name; }

bool rounds_products(const options *o) { return chosen(o->dtype, "bf16") || chosen(o->dtype, "fp16"); }

bool set_policy(mirt_model *model, const options *o) {
    return mirt_set_dtype_policy(model, dtypes[dtype_of(o)].policy) == MIRT_OK;
}

mirt_model *build_model(mirt_strategy *strategy, const options *o, int *status) {
    mirt_application_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.size = (int)o->size;
    desc.alpha = o->alpha;
    desc.classes = (int)o->classes;
    desc.no_top = o->no_top;
    desc.weights = o->weights;
    if (chosen(o->pooling ? o->pooling : o->no_top ? "avg" : "none", "avg")) desc.pooling = MIRT_POOLING_AVG;
    if (chosen(o->pooling, "max")) desc.pooling = MIRT_POOLING_MAX;
    desc.logits = true;
    desc.preprocessing = MIRT_PREPROCESSING_ON;
    mirt_model *model = mirt_application(strategy, o->model, &desc);
    if (model && set_policy(model, o)) return model;
    return complain_of_model(status);
}

mirt_model *compile_model(mirt_model *model, const options *o, bool logits, int *status) {
    mirt_compile_desc desc;
    metric_list list;
    memset(&desc, 0, sizeof desc);
    if (!parse_metrics(o, &list)) {
        *status = EXIT_USAGE;
        return NULL;
    }
    mirt_shape y = mirt_tensor_shape(mirt_output_of(model, 0));
    if (y.rank == 2) { /* features are not class scores */
        if (!metrics_fit(&list, y.dim[1])) {
            *status = EXIT_USAGE;
            return NULL;
        }
        desc.optimizer = make_optimizer(o);
        desc.loss = y.dim[1] == 1 ? MIRT_BINARY_CROSSENTROPY : MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
        if (mixes_photos(o) && y.dim[1] > 1) {
            desc.loss = MIRT_CATEGORICAL_CROSSENTROPY;
            metrics_of_one_hot(&list);
        }
        desc.from_logits = logits;
        desc.loss_options[0].label_smoothing = o->label_smoothing;
        memcpy(desc.metrics, list.metric, sizeof list.metric);
        memcpy(desc.metric_options, list.options, sizeof list.options);
    }
    return mirt_compile(model, &desc) == MIRT_OK ? model : complain_of_model(status);
}

mirt_model *open_model(mirt_strategy *strategy, const options *o, int *status) {
    mirt_model *model = build_model(strategy, o, status);
    return model ? compile_model(model, o, true, status) : NULL;
}

/* Whether one of MNIST's files exists; an empty directory does not count as data. */
static bool default_data_exists(void) {
    static const char *const files[] = {
        DEFAULT_DATA "/train-images-idx3-ubyte", DEFAULT_DATA "/train-images-idx3-ubyte.gz",
        DEFAULT_DATA "/t10k-images-idx3-ubyte", DEFAULT_DATA "/t10k-images-idx3-ubyte.gz",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (is_file(files[i])) return true;
    }
    return false;
}

/* NULL: the digits are drawn. */
static const char *data_directory(const options *o) {
    return o->data ? o->data : default_data_exists() ? DEFAULT_DATA : NULL;
}

int complain_of_run(const options *o) {
    mirt_status why = mirt_last_status();
    const char *directory = data_directory(o);
    if (!directory || (why != MIRT_E_INVALID && why != MIRT_E_SHAPE)) return complain_of_library();
    complain("%s: %s", directory, library_sentence());
    return EXIT_FAILED;
}

mirt_dataset *open_data(const options *o, mirt_split split, bool note) {
    mirt_dataset *dataset;
    const char *directory = data_directory(o);
    note = note && is_first();
    if (directory) {
        dataset = mirt_mnist(directory, split);
    } else {
        if (note) {
            fputs("data: no --data and no " DEFAULT_DATA ", so the program draws digits itself; to download MNIST:\n"
                  "  mkdir -p " DEFAULT_DATA " && cd " DEFAULT_DATA "\n"
                  "  curl -O \"https://storage.googleapis.com/cvdf-datasets/mnist/"
                  "{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz\"\n", stderr);
        }
        dataset = mirt_drawn_digits(split == MIRT_TRAIN ? DRAWN_TRAIN : DRAWN_TEST, 0, split);
    }
    if (dataset || !o->data || mirt_last_status() != MIRT_E_NOT_FOUND || !has_directories(directory)) {
        if (!dataset) complain_of_library();
    } else if (o->load) {
        complain("%s contains directories, like a data set of photographs; %s takes the four files of MNIST", directory,
                 o->load);
    } else {
        complain("%s contains directories, like a data set of photographs; --model mnist, the default, takes the four "
                 "files of MNIST: give "
                 "--model mobilenet_v2, or another network of photographs (fit --help)",
                 directory);
    }
    return dataset;
}
