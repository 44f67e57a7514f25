/* mirrortrain export: a model as a file for other programs. */
#include "cli.h"

#include <string.h>

/* A saved model, or a network with the weights of --init. */
static mirt_model *model_to_export(mirt_strategy *strategy, const options *o, int *status) {
    if (o->load) {
        mirt_model *model = mirt_load(strategy, o->load);
        if (!model) *status = complain_of_library();
        return model;
    }
    mirt_model *model = open_model(strategy, o, status);
    if (!model) return NULL;
    if (o->init && mirt_load_weights(model, o->init) != MIRT_OK) return *status = complain_of_library(), NULL;
    if (!o->init) note("the weights are random: --init FILE gives the network others");
    return model;
}

/* A flag that says what a network is like, or NULL. */
static const char *flag_of_networks(const options *o) {
    return o->model != default_model ? "model" : o->init ? "init" : o->size ? "size" : o->classes ? "classes"
           : o->alpha > 0 ? "alpha" : o->no_top ? "no-top" : o->pooling ? "pooling" : NULL;
}

int run_export(const options *o) {
    int status = EXIT_FAILED;
    mirt_onnx_desc desc;
    if (!o->onnx) {
        complain("export needs a file to write: --onnx FILE");
        return EXIT_USAGE;
    }
    if (o->load && flag_of_networks(o)) {
        complain("--load and --%s exclude each other: the file is the whole model", flag_of_networks(o));
        return EXIT_USAGE;
    }
    if (o->load && strcmp(o->load, o->onnx) == 0) {
        complain("--onnx %s: would replace the model that it is made of", o->onnx);
        return EXIT_USAGE;
    }
    memset(&desc, 0, sizeof desc);
    desc.channels_first = o->channels_first;
    desc.keep_normalization = o->keep_normalization;
    mirt_strategy *strategy = open_strategy(o, true, &status);
    mirt_model *model = strategy ? model_to_export(strategy, o, &status) : NULL;
    if (model) status = mirt_save_onnx(model, o->onnx, &desc) == MIRT_OK ? EXIT_OK : complain_of_library();
    if (model && status == EXIT_OK) tell("onnx: %s", o->onnx);
    mirt_strategy_destroy(strategy);
    return status;
}
