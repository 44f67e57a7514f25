/* Data sets of photographs. */
#define _POSIX_C_SOURCE 200809L
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

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
    return done_testing();
}
