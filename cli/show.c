/* mirrortrain devices, summary and graph: descriptions without training. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>

int run_devices(const options *o) {
    int count, cores;
    mirt_device_info *info = list_devices(&count, &cores);
    (void)o;
    if (!info) return EXIT_USAGE;
    for (int i = 0; i < count; i++) tell("%-8s %s", info[i].name, info[i].description);
    free(info);
    return EXIT_OK;
}

/* The last part of a summary. */
static int show_largest(mirt_model *model, int devices, uint64_t memory) {
    mirt_machine_info machine;
    const int64_t batch = mirt_largest_batch(model, memory);
    if (!batch && mirt_last_status() == MIRT_E_NOMEM) {
        tell("  largest     %s", mirt_last_error());
        return EXIT_OK;
    }
    if (!batch || mirt_machine(&machine) != MIRT_OK) return complain_of_library();
    const double bytes = memory ? (double)memory * devices : (double)machine.memory_available;
    printf("  largest     a global batch of %lld fits into %.2f GB%s\n", (long long)batch, bytes * 1e-9,
           memory ? "" : " of free memory");
    return EXIT_OK;
}

static int show(const options *o, const char *(*text_of)(mirt_model *model, int64_t batch)) {
    int status = EXIT_FAILED;
    mirt_strategy *strategy = open_strategy(o, true, &status);
    mirt_model *model = strategy ? open_model(strategy, o, &status) : NULL;
    if (model) {
        const char *text = text_of(model, batch_of(o));
        if (text) fputs(text, stdout);
        status = text ? EXIT_OK : complain_of_library();
        if (text && text_of == mirt_summary) status = show_largest(model, mirt_num_devices(strategy), o->memory);
    }
    mirt_strategy_destroy(strategy);
    return status;
}

int run_summary(const options *o) {
    return show(o, mirt_summary);
}

int run_graph(const options *o) {
    if (o->svg && o->costs) {
        complain("--svg and --costs exclude each other; give one of them");
        return EXIT_USAGE;
    }
    if (!o->svg) return show(o, o->costs ? mirt_graph_costs : mirt_graph_text);
    int status = EXIT_FAILED;
    mirt_strategy *strategy = open_strategy(o, true, &status);
    mirt_model *model = strategy ? open_model(strategy, o, &status) : NULL;
    if (model) status = write_graph_svg(model, batch_of(o), o->svg);
    mirt_strategy_destroy(strategy);
    return status;
}
