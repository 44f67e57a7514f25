/* Data sets of photographs. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

static void test_drawn(void) {
    enum { SIDE = 40, COUNT = 30 };
    static unsigned char pixels[2][COUNT][SIDE * SIDE * 3];
    int dogs = 0, same = 0, equal = 0;
    for (int k = 0; k < 2; k++) {
        mirt_dataset *dataset = mirt_drawn_photos(k ? COUNT + 5 : COUNT, SIDE, SIDE, 3, MIRT_TRAIN), *other = mirt_drawn_photos(COUNT, SIDE, SIDE, 3, MIRT_TEST);
        mirt__batch batch, unlike;
        bool good = dataset && other && mirt__dataset_begin(dataset, (uint64_t)k, k) == MIRT_OK && mirt__dataset_begin(other, 0, 0) == MIRT_OK;
        for (int i = 0; good && i < COUNT && mirt__dataset_next(dataset, &batch) == MIRT_OK && batch.rows == 1; i++) {
            memcpy(pixels[k][i], batch.field[0], sizeof pixels[k][i]);
            dogs += *(const float *)batch.field[1] == 1;
            if (mirt__dataset_next(other, &unlike) == MIRT_OK && unlike.rows) same += memcmp(unlike.field[0], batch.field[0], sizeof pixels[k][i]) == 0;
        }
        if (k) {
            int count;
            const char *const *names = mirt_class_names(dataset, &count);
            ok(count == 2 && strcmp(names[0], "cats") == 0 && strcmp(names[1], "dogs") == 0, "drawn photographs have the classes cats and dogs");
        }
        mirt_dataset_destroy(dataset);
        mirt_dataset_destroy(other);
    }
    for (int i = 0; i < COUNT; i++) equal += memcmp(pixels[0][i], pixels[1][i], sizeof pixels[0][i]) == 0;
    ok(equal == COUNT, "the same pixels in every epoch and of any number");
    ok(same == 0, "none of training is in the test split");
    ok(dogs > COUNT / 2 && dogs < 2 * COUNT - COUNT / 2, "both classes: %d dogs of %d", dogs / 2, COUNT);
    ok(!mirt_drawn_photos(0, 8, 8, 0, MIRT_TRAIN) && !mirt_drawn_photos(1, 7, 8, 0, MIRT_TRAIN) && !mirt_drawn_photos(1, 8, 5000, 0, MIRT_TRAIN), "sizes are checked");
}

int main(void) {
    /* numpy.random.RandomState(7).shuffle(list(range(10))) */
    static const int expected[10] = {8, 5, 0, 2, 1, 9, 7, 3, 6, 4};
    mirt__image_list list;
    memset(&list, 0, sizeof list);
    for (int i = 0; i < 10; i++) mirt__image_list_add(&list, "x", i);
    mirt__image_list_shuffle(&list, 7);
    int wrong = 0;
    for (int i = 0; i < 10; i++) wrong += list.label[i] != expected[i];
    ok(wrong == 0, "files are shuffled as numpy does");
    mirt__image_list_free(&list);
    test_drawn();
    return done_testing();
}
