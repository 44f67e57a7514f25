/* libFuzzer: the first byte chooses who reads the rest. 0: mirt_load_memory, and a model that loads is
   run; 1: an IDX file of images; 2: of labels. Start from `test_hostile --seeds DIRECTORY`. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include <unistd.h>

static mirt_strategy *fuzz_strategy(void) {
    static mirt_strategy *strategy;
    mirt_strategy_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.devices = "1";
    desc.threads = 1;
    desc.silent = true;
    if (!strategy) strategy = mirt_strategy_create(&desc);
    return strategy;
}

static void fuzz_model(const uint8_t *data, size_t size) {
    static const uint8_t zeros[4096];
    mirt_model *model = mirt_load_memory(fuzz_strategy(), data, size);
    mirt_memory memory;
    if (model && mirt_plan_memory(model, 2, &memory) == MIRT_OK && memory.total < (size_t)16 << 20) {
        mirt_shape shape = model->input[0]->shape;
        shape.dim[0] = 2;
        if (mirt__shape_count(&shape) <= (int64_t)sizeof zeros) {
            mirt_train_step(model, mirt_make_array(zeros, MIRT_UINT8, shape), mirt_make_array(zeros, MIRT_UINT8, MIRT_SHAPE(2)), NULL);
        }
        mirt_graph_text(model, 2);
    }
    mirt_model_destroy(model);
}

static void fuzz_idx(const uint8_t *data, size_t size, bool labels) {
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 7, 8};
    char path[2][64];
    for (int i = 0; i < 2; i++) {
        bool fuzzed = (i == 1) == labels;
        snprintf(path[i], sizeof path[i], "/tmp/mirt_fuzz_%ld_%d", (long)getpid(), i);
        FILE *file = fopen(path[i], "wb");
        if (!file) return;
        fwrite(fuzzed ? data : images, 1, fuzzed ? size : sizeof images, file);
        fclose(file);
    }
    mirt_dataset *dataset = mirt_idx(path[0], labels ? path[1] : NULL);
    mirt__batch batch;
    if (dataset && mirt__dataset_begin(dataset, 0, 0) == MIRT_OK) {
        for (int i = 0; i < 100 && mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows; i++) {
        }
    }
    mirt_dataset_destroy(dataset);
    unlink(path[0]);
    unlink(path[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (data[0] == 0) fuzz_model(data + 1, size - 1);
    if (data[0] == 1 || data[0] == 2) fuzz_idx(data + 1, size - 1, data[0] == 2);
    return 0;
}
