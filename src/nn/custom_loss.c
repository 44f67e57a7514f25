#include "model.h"
/* User-defined losses and metrics by name, for files. */

struct mirt__custom_entry {
    mirt_custom_loss loss;     /* one of the two has a name */
    mirt_custom_metric metric;
    struct mirt__custom_entry *next;
};

MIRT__LIB const mirt_custom_loss *mirt__custom_loss_by_name(const mirt_strategy *strategy, const char *name) {
    for (const struct mirt__custom_entry *e = strategy->customs; e; e = e->next) {
        if (e->loss.name && strcmp(e->loss.name, name) == 0) return &e->loss;
    }
    return NULL;
}

MIRT__LIB const mirt_custom_metric *mirt__custom_metric_by_name(const mirt_strategy *strategy, const char *name) {
    for (const struct mirt__custom_entry *e = strategy->customs; e; e = e->next) {
        if (e->metric.name && strcmp(e->metric.name, name) == 0) return &e->metric;
    }
    return NULL;
}

static mirt_status mirt__custom_register(mirt_strategy *strategy, const mirt_custom_loss *loss, const mirt_custom_metric *metric, const char *caller) {
    const char *given = loss ? loss->name : metric ? metric->name : NULL;
    if (!strategy) return mirt__fail_missing(caller, "strategy");
    if (!mirt__custom_named(given) || !(loss ? loss->record != NULL : metric->record != NULL)) {
        return mirt__fail(MIRT_E_INVALID, "%s: it needs a name in UTF-8 and a function", caller);
    }
    struct mirt__custom_entry *e = (struct mirt__custom_entry *)mirt__pool_alloc(&strategy->pool, sizeof *e);
    const char *name = e ? mirt__pool_strdup(&strategy->pool, given) : NULL;
    if (!name) return mirt_last_status();
    if (loss) e->loss = *loss, e->loss.name = name;
    else e->metric = *metric, e->metric.name = name;
    e->next = strategy->customs;
    strategy->customs = e;
    return MIRT_OK;
}

MIRT_API mirt_status mirt_register_loss(mirt_strategy *strategy, const mirt_custom_loss *loss) {
    return mirt__custom_register(strategy, loss, NULL, "mirt_register_loss");
}

MIRT_API mirt_status mirt_register_metric(mirt_strategy *strategy, const mirt_custom_metric *metric) {
    return mirt__custom_register(strategy, NULL, metric, "mirt_register_metric");
}
