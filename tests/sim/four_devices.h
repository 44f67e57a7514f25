#ifndef FOUR_DEVICES_H
#define FOUR_DEVICES_H
/* Training on four simulated devices. */

#include "../mirror_util.h"

/* Before the simulator looks. */
__attribute__((constructor(101))) static void ask_for_devices(void) { setenv("MIRT_SIM_DEVICES", "4", 0); }

/* Whether they are there; otherwise the test is over. */
TAP_UNUSED static bool four_devices(void) {
    if (mirt_devices(NULL, 0) - mirt__cpu_cores() >= 4) return true;
    skip("needs four simulated devices: MIRT_SIM_DEVICES=4");
    return false;
}

TAP_UNUSED static mirt_strategy *strategy_on(const char *devices, int replicas) {
    mirt_strategy_desc d;
    memset(&d, 0, sizeof d);
    d.devices = devices;
    d.replicas = replicas;
    d.seed = 11;
    d.silent = true;
    return mirt_strategy_create(&d);
}

#endif
