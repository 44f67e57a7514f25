/* mirrortrain devices, summary, graph: looking without training. */
#include "cli.h"

#include <stdio.h>

#define MAX_DEVICES 64

int run_devices(const options *o) {
    mirt_device_info info[MAX_DEVICES];
    int count = mirt_devices(info, MAX_DEVICES);
    (void)o;
    if (count == 0) {
        complain_of_library();
        return EXIT_USAGE;
    }
    for (int i = 0; i < count && i < MAX_DEVICES; i++) printf("%-8s %s\n", info[i].name, info[i].description);
    return EXIT_OK;
}

static int show(const options *o, const char *(*text_of)(mirt_model *model, int64_t batch)) {
    int status = EXIT_FAILED;
    mirt_strategy *strategy = open_strategy(o, true, &status);
    mirt_model *model = strategy ? open_model(strategy, o, &status) : NULL;
    if (model) {
        const char *text = text_of(model, batch_of(o));
        if (text) {
            fputs(text, stdout);
            status = EXIT_OK;
        } else {
            complain_of_library();
        }
    }
    mirt_strategy_destroy(strategy);
    return status;
}

int run_summary(const options *o) {
    return show(o, mirt_summary);
}

int run_graph(const options *o) {
    return show(o, mirt_graph_text);
}
