/* Loads the settings of mirt_compile and the state of training. */
#include "checkpoint.h"

MIRT__LIB mirt_status mirt__load_swapped(const mirt__json *training, bool use_ema, bool *out) {
    int64_t swapped = 0;
    if (mirt__json_member(training, "averages_swapped") &&
        mirt__json_get_int(training, "averages_swapped", 0, 1, &swapped) != MIRT_OK)
        return mirt_last_status();
    *out = swapped != 0;
    if (!swapped || use_ema) return MIRT_OK;
    return mirt__fail(MIRT_E_FORMAT, "\"averages_swapped\" is 1, but the optimizer has no averages of the weights");
}

static mirt_status mirt__load_training(mirt_model *model, const mirt__json *training) {
    const int64_t most = (int64_t)1 << 53; /* counts stay exact in double precision */
    int64_t step, epoch, steps = 0;
    if (training->type != MIRT__JSON_OBJECT) return mirt__fail(MIRT_E_FORMAT, "the training state is not an object");
    if (mirt__json_get_int(training, "iterations", 0, most, &step) != MIRT_OK ||
        mirt__json_get_int(training, "epoch", 0, most, &epoch) != MIRT_OK) {
        return mirt_last_status();
    }
    bool swapped;
    if (mirt__load_swapped(training, model->config.optimizer.use_ema, &swapped) != MIRT_OK) return mirt_last_status();
    if (swapped) mirt__averages_keep(model); /* as after a fit */
    const mirt__json *scale = mirt__json_member(training, "loss_scale");
    if (scale && mirt__json_get_int(training, "scale_steps", 0, most, &steps) != MIRT_OK) return mirt_last_status();
    if (scale && scale->type == MIRT__JSON_NUMBER) mirt__loss_scale_set(mirt__root(model, NULL), scale->number, steps);
    model->step = step;
    model->epoch = epoch;
    return MIRT_OK;
}

MIRT__LIB mirt_status mirt__load_compiled(mirt_model *model, const mirt__safetensors *file, const mirt__json *compile,
                                          const mirt__json *training) {
    mirt_compile_desc config;
    if (mirt__compile_read(model->strategy, compile, &config) != MIRT_OK) return mirt__load_bad(file, "compile");
    model->config.optimizer = config.optimizer; /* names the slots to look for, */
    memcpy(model->config.optimizers, config.optimizers, sizeof config.optimizers); /* as do these */
    if (mirt__optimizers_check(model, &config) != MIRT_OK) return mirt__load_bad(file, "compile");
    int slots = mirt__slots(&config);
    if (mirt__load_blocks(file, model, slots, false) != MIRT_OK) return mirt_last_status();
    if (mirt__model_allocate(model, false) != MIRT_OK) return mirt_last_status();
    if (mirt_compile(model, &config) != MIRT_OK) return mirt__load_bad(file, "compile");
    if (mirt__load_blocks(file, model, slots, true) != MIRT_OK) return mirt_last_status();
    return mirt__load_training(model, training) == MIRT_OK ? MIRT_OK : mirt__load_bad(file, "training");
}
