/* Memory for the history of a training run. */
#include "run_state.h"

MIRT__LIB mirt_status mirt__history_reserve(mirt__training_run *run, int need) {
    const int usual = 1024, epochs = run->desc->epochs > 0 ? run->desc->epochs : 1;
    mirt_model *model = run->model;
    const int used = model->history.epochs;
    if (need <= model->history_capacity) return MIRT_OK;
    int capacity = need < usual ? usual : need > INT_MAX / 2 ? INT_MAX : 2 * need;
    if (capacity > epochs) capacity = epochs < need ? need : epochs;
    if (!mirt__grow((void **)&model->history_logs, (size_t)used, (size_t)capacity, sizeof *model->history_logs))
        return mirt_last_status();
    /* memory is taken now, not by and by */
    memset(model->history_logs + used, 0, (size_t)(capacity - used) * sizeof *model->history_logs);
    model->history_capacity = capacity;
    model->history.epoch = model->history_logs;
    return MIRT_OK;
}
