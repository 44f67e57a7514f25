/* What tests may set, in C++ and in C. */
#include "sim_internal.h"
#include <cstdlib>
#include <strings.h>

namespace mirt_sim {
static Options chosen = {0, 1, (size_t)2 << 30, 0, false, 0, 0, true, 90, 0, -1, -1, 20, true, false};

static const struct Setting {
    const char *name;
    void (*set)(double value);
} settings[] = {
    {"seed", [](double v) { chosen.seed = (uint64_t)v; }},
    {"devices", [](double v) { chosen.devices = v < MOST_DEVICES ? (int)v : MOST_DEVICES; }},
    {"memory", [](double v) { chosen.memory = (size_t)v; }},
    {"fail", [](double v) { chosen.fail_call = (long)v; }},
    {"no_peers", [](double v) { chosen.no_peers = v != 0; }},
    {"driver", [](double v) { chosen.driver = (int)v; }},
    {"nccl", [](double v) { chosen.nccl = (int)v; }},
    {"same_places", [](double v) { chosen.same_places = v != 0; }},
    {"capability", [](double v) { chosen.capability = (int)v; }},
    {"code", [](double v) { chosen.code = (int)v; }},
    {"never_joins", [](double v) { chosen.never_joins = (int)v; }},
    {"never_issues", [](double v) { chosen.never_issues = (int)v; }},
    {"patience", [](double v) { chosen.patience = v; }},
    {"stack", [](double v) { chosen.stack = v != 0; }},
    {"skip", [](double v) { chosen.skip = v != 0; }},
};

static bool read_environment() {
    for (const Setting &s : settings) {
        std::string name = std::string("MIRT_SIM_") + s.name;
        for (char &c : name)
            if (c >= 'a' && c <= 'z') c = (char)(c - 'a' + 'A');
        const char *value = getenv(name.c_str());
        if (value && *value) s.set(atof(value));
    }
    return true;
}

static void (*saw_launch)(const mirt_sim_launch *launch);
void report_launch(const mirt_sim_launch &launch) {
    if (saw_launch) saw_launch(&launch);
}

Options &options() {
    static bool ready = read_environment();
    (void)ready;
    return chosen;
}
} // namespace mirt_sim

using namespace mirt_sim;

void mirt_sim_set(const char *option, double value) {
    options();
    for (const Setting &s : settings)
        if (!strcasecmp(s.name, option)) return s.set(value);
    fatal("no option of the simulator: '%s'", option);
}
void mirt_sim_watch(void (*saw)(const mirt_sim_launch *launch)) { saw_launch = saw; }
void mirt_sim_lose_device(int device, int error) { lose_device(device, error); }
void mirt_sim_hang_device(int device, int on) { hang_device(device, on != 0); }
void mirt_sim_kill_rank(int rank, int silently) { kill_rank(rank, silently != 0); }
long mirt_sim_calls(void) { return calls(); }
void mirt_sim_reset_calls(void) { reset_calls(); }
const char *mirt_sim_failed_call(void) { return failed_call(); }
size_t mirt_sim_device_bytes(int device) { return device_bytes(device); }
size_t mirt_sim_device_peak(int device) { return device_peak(device); }
int mirt_sim_report_leaks(void) { return report_leaks(); }
