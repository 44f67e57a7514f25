/* libFuzzer: the first byte chooses who reads the rest. 0: mirt_load_memory, and a model that loads is run; 1: an
   IDX file of images; 2: of labels; 3: the architecture alone, as JSON, which is then compiled and run. Start from
   `test_hostile --seeds DIRECTORY`. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "fuzz_main.h"
#include "fuzz_words.h"
#include "gallery.h"
#include "tap.h"

#include <fcntl.h>
#include <unistd.h>

static mirt_strategy *fuzz_strategy(void) {
    static mirt_strategy *strategy;
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "1";
    desc.replicas = 2;
    desc.threads = 1;
    desc.silent = true;
    if (!strategy) {
        strategy = mirt_strategy_create(&desc);
        gallery_register(strategy);
    }
    return strategy;
}

/* Zeros for all inputs and labels of a batch of two. */
static bool fuzz_batch(const mirt_model *model, mirt_data *data) {
    static const uint8_t zeros[1 << 16];
    memset(data, 0, sizeof *data);
    for (int i = 0; i < model->num_inputs + model->num_outputs; i++) {
        const mirt_tensor *t = i < model->num_inputs ? model->input[i] : model->output[i - model->num_inputs];
        mirt_shape shape = t->shape;
        shape.dim[0] = 2;
        if (mirt__shape_count(&shape) * 4 > (int64_t)sizeof zeros) return false;
        if (i < model->num_inputs) data->x[i] = mirt_make_array(zeros, MIRT_UINT8, shape);
        else if (mirt__output_has_loss(model, i - model->num_inputs)) {
            int number = mirt__label_number(model, i - model->num_inputs);
            bool one = mirt__label_count(model, i - model->num_inputs) == 1;
            data->y[number] = mirt_make_array(zeros, one ? MIRT_UINT8 : MIRT_FLOAT32, one ? MIRT_SHAPE(2) : shape);
        }
    }
    return true;
}

static double fuzz_macs(const mirt_model *model) {
    double macs = 0;
    for (int i = 0; i < model->graph.count; i++) {
        const mirt__node *node = model->graph.node[i];
        if (node->op->macs) macs += node->op->macs(node, 2);
    }
    return macs;
}

/* Everything that can be done with a model, if it is small. */
static void fuzz_run(mirt_model *model) {
    mirt_memory memory;
    mirt_data data;
    mirt_logs logs;
    if (!model || mirt_plan_memory(model, 2, &memory) != MIRT_OK || memory.total > (size_t)1 << 20 ||
        fuzz_macs(model) > 2e5)
        return;
    mirt_summary(model, 2);
    mirt_graph_text(model, 2);
    mirt__text text;
    memset(&text, 0, sizeof text);
    mirt__architecture_write(model, &text);
    mirt__text_free(&text);
    if (!fuzz_batch(model, &data)) return;
    if (mirt_train_on_batch(model, &data, &logs) == MIRT_OK) mirt_train_on_batch(model, &data, &logs);
    mirt_test_on_batch(model, &data, &logs);
    float *out[MIRT_MAX_OUTPUTS];
    size_t capacity[MIRT_MAX_OUTPUTS];
    for (int i = 0; i < model->num_outputs; i++) {
        capacity[i] = 2 * (size_t)mirt__shape_count(&model->output[i]->shape);
        out[i] = (float *)malloc(capacity[i] * sizeof(float) + 1);
    }
    mirt_predict_on_batch(model, &data, out, capacity);
    for (int i = 0; i < model->num_outputs; i++) free(out[i]);
}

static void fuzz_model(const uint8_t *data, size_t size) {
    mirt_model *model = mirt_load_memory(fuzz_strategy(), data, size);
    fuzz_run(model);
    mirt_model_destroy(model);
}

static size_t fuzz_weights(const mirt_model *model) {
    int64_t count = 0;
    for (int i = 0; i < model->num_variables; i++) {
        if (model->variable[i].count > 1 << 20) return SIZE_MAX;
        count += model->variable[i].count;
    }
    return (size_t)count;
}

static void fuzz_architecture(const uint8_t *data, size_t size) {
    mirt__pool pool;
    mirt_compile_desc desc;
    memset(&pool, 0, sizeof pool);
    memset(&desc, 0, sizeof desc);
    mirt_model *model = mirt_model_create(fuzz_strategy(), NULL);
    const mirt__json *json = mirt__json_parse(&pool, (const char *)data, size);
    if (json && mirt__architecture_read(model, json) == MIRT_OK && fuzz_weights(model) < (1 << 20)) {
        desc.loss = MIRT_MEAN_SQUARED_ERROR;
        desc.metrics[0] =
            model->num_outputs == 1 && model->output[0]->shape.rank == 2 ? MIRT_ACCURACY : MIRT_METRIC_NONE;
        if (size % 2 == 0 && model->output[0]->shape.rank == 2) desc.losses[0] = MIRT_SPARSE_CATEGORICAL_CROSSENTROPY;
        if (mirt_compile(model, &desc) == MIRT_OK) {
            fuzz_run(model);
            for (int i = 0; i < model->num_outputs; i++) {
                const mirt_shape *shape = &model->output[i]->shape;
                FUZZ_PLANT(shape->rank == 2 && shape->dim[1] > 6);
            }
        }
    }
    mirt_model_destroy(model);
    mirt__pool_free(&pool);
}

/* The path of a file without a name that holds these bytes; it is made once, and filled again in every run. */
static const char *fuzz_file(int number, const uint8_t *data, size_t size) {
    static char path[2][32];
    static int fd[2];
    char name[512];
    if (!fd[number]) {
        snprintf(name, sizeof name, "%s/mirt_fuzz_%ld_%d", tap_tmpdir(), (long)getpid(), number);
        fd[number] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        unlink(name);
        snprintf(path[number], sizeof path[number], "/proc/self/fd/%d", fd[number]);
    }
    if (pwrite(fd[number], data, size, 0) != (ssize_t)size || ftruncate(fd[number], (off_t)size) != 0) return "no file";
    return path[number];
}

static void fuzz_idx(const uint8_t *data, size_t size, bool labels) {
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 7, 8};
    const char *path = labels ? fuzz_file(0, images, sizeof images) : fuzz_file(0, data, size);
    mirt_dataset *dataset = mirt_idx(path, labels ? fuzz_file(1, data, size) : NULL);
    mirt__batch batch;
    if (dataset && mirt__dataset_begin(dataset, 0, 0) == MIRT_OK) {
        for (int i = 0; i < 100 && mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows; i++) {
        }
    }
    mirt_dataset_destroy(dataset);
}

#ifdef FUZZER
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed) {
    static const char *const words[] = {"0",
                                        "-1",
                                        "1",
                                        "2",
                                        "3",
                                        "4",
                                        "5",
                                        "6",
                                        "7",
                                        "8",
                                        "31",
                                        "32",
                                        "0.5",
                                        "2147483647",
                                        "-2147483648",
                                        "1e38",
                                        "65536",
                                        "1099511627776",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "true",
                                        "false",
                                        "null",
                                        "[]",
                                        "{}",
                                        "\"inf\"",
                                        "\"nan\"",
                                        "\"float32\"",
                                        "\"int32\"",
                                        "\"uint8\"",
                                        "\"bool\"",
                                        "[3]",
                                        "[2,3]",
                                        "[-1,3]",
                                        "[0,1,0,0,0,0]",
                                        "\"same\"",
                                        "\"softmax\"",
                                        "\"kind\":1",
                                        "\"axes\":3",
                                        "\"axis\":-1"};
    fuzz_random = seed;
    if (size < 2 || data[0] != 3 || fuzz_below(8) == 0) return LLVMFuzzerMutate(data, size, most);
    return fuzz_exchange_words(data, 1, size, size, most, words, MIRT__COUNT(words));
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (data[0] == 0) fuzz_model(data + 1, size - 1);
    if (data[0] == 1 || data[0] == 2) fuzz_idx(data + 1, size - 1, data[0] == 2);
    if (data[0] == 3) fuzz_architecture(data + 1, size - 1);
    return 0;
}
