/* Fuzzes lists of images. The first byte chooses what is asked of the list; the rest is the list. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "fuzz_main.h"
#include "fuzz_words.h"
#include "image_util.h"

enum { MODES = 3, NAMED = 4, IN_ORDER = 8, SPLIT = 16, READ = 32, MISSING = 64 };

static const char *list_path(void) {
    static char path[512];
    if (!path[0]) {
        unsigned char bmp[IMAGE_MOST];
        char image[512];
        const size_t size = image_write_bmp(bmp, 2, 2);
        fuzz_put(fuzz_path("a.bmp", image), bmp, size);
        fuzz_put(fuzz_path("b,c.bmp", image), bmp, size);
        fuzz_path("list.csv", path);
    }
    return path;
}

static void read_some(mirt_dataset *dataset) {
    mirt__batch batch;
    if (mirt__dataset_begin(dataset, 1, 0) != MIRT_OK) return;
    for (int i = 0; i < 20 && mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows; i++) {
    }
}

#ifdef FUZZER
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed) {
    static const char *const words[] = {"a.bmp", "b,c.bmp", "\"b,c.bmp\"", "path", "label", "\"", "\"\"", "\r", " ",
        "a", "b", "c", "0", "1", "2", "10", "cats", "\"x\"\"y\"", "\xEF\xBB\xBF"};
    fuzz_random = seed;
    if (size < 2 || fuzz_below(3) == 0) return LLVMFuzzerMutate(data, size, most);
    return fuzz_exchange_words(data, 1, size, size, most, words, MIRT__COUNT(words));
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"a", "b", "x\"y"};
    mirt_image_directory_desc desc;
    const char *path = list_path();
    if (size == 0) return 0;
    memset(&desc, 0, sizeof desc);
    desc.height = desc.width = 2;
    desc.batch_size = 2;
    desc.label_mode = (mirt_label_mode)(data[0] & MODES);
    desc.corrupt = MIRT_CORRUPT_ZERO;
    desc.no_shuffle = data[0] & IN_ORDER;
    if (data[0] & NAMED) desc.class_names = names;
    if (data[0] & NAMED) desc.num_class_names = MIRT__COUNT(names);
    if (data[0] & SPLIT) {
        desc.validation_split = 0.5;
        desc.subset = MIRT_SUBSET_VALIDATION;
        desc.has_seed = true;
    }
    if (data[0] & MISSING) unlink(path);
    else fuzz_put(path, data + 1, size - 1);
    mirt_dataset *dataset = mirt_image_dataset_from_csv(path, &desc);
    if (dataset) {
        int count = 0;
        const char *const *classes = mirt_class_names(dataset, &count);
        for (int i = 0; i < count; i++) {
            FUZZ_CHECK(classes[i] && (i == 0 || desc.class_names || strcmp(classes[i - 1], classes[i]) != 0));
            FUZZ_PLANT(count > 2 && strchr(classes[i], '"') && strchr(classes[i], ',') && strlen(classes[i]) > 4);
        }
        if (data[0] & READ) read_some(dataset);
    }
    mirt_dataset_destroy(dataset);
    return 0;
}
