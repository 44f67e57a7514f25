/* Processes that train together: the same bits as one process, whatever their number. */
#include "same_scenes.h"

int main(void) {
    static const layout all[] = {{3, 1, NULL}, {2, 2, "1,3"}, {2, 3, "1,1"}, {2, 1, NULL}, {5, 1, NULL}, {2, 2, NULL},
                                 {3, 2, NULL}, {4, 1, "3,1,2,2"}},
                        some[] = {{2, 1, NULL}, {3, 2, NULL}};
    if (!share_records()) return 1;
    draw_images();
    write_photos();
    for (int i = 0; i < SCENES; i++) {
        if (i < MAIN_SCENES) check_scene(&scenes[i], all, small_tier() ? 3 : (int)(sizeof all / sizeof *all));
        else check_scene(&scenes[i], some, 2);
    }
    pipe_one_host = true; /* busy cores of one host: gradients are summed after the backward pass */
    check_scene(&scenes[0], some, 2);
    remove_photos();
    return done_testing();
}
