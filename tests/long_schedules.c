/* A thousand random schedules of the devices' threads. */
#include "injected.h"
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "mirror_util.h"
#include "schedules.h"
#include "tap.h"

int main(void) {
    draw_images();
    check_schedules(1000);
    return done_testing();
}
