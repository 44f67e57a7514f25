#include "model.h"
/* Registers user-defined losses and metrics by name, for files. */

struct mirt__custom_entry {
    mirt_custom_loss loss;     /* exactly one of them has a name */
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

/* Appends an entry with a copy of the name; NULL with the error set. */
static struct mirt__custom_entry *mirt__custom_new(mirt_strategy *strategy, const char *name, const char **copy) {
    struct mirt__custom_entry *e = (struct mirt__custom_entry *)mirt__pool_alloc(&strategy->pool, sizeof *e);
    if (!e || !(*copy = mirt__pool_strdup(&strategy->pool, name))) return NULL;
    e->next = strategy->customs;
    strategy->customs = e;
    return e;
}

MIRT__LIB const mirt_custom_loss *mirt__custom_loss_of(mirt_strategy *strategy, const mirt_custom_loss *loss) {
    const char *name;
    if (!loss || !mirt__custom_named(loss->name) || !loss->record) {
        mirt__fail(MIRT_E_INVALID, "a custom loss needs a name in UTF-8 and a function");
        return NULL;
    }
    const mirt_custom_loss *known = mirt__custom_loss_by_name(strategy, loss->name);
    if (known && known->record == loss->record && known->user == loss->user) return known;
    struct mirt__custom_entry *e = mirt__custom_new(strategy, loss->name, &name);
    if (!e) return NULL;
    e->loss = *loss;
    e->loss.name = name;
    return &e->loss;
}

MIRT__LIB const mirt_custom_metric *mirt__custom_metric_of(mirt_strategy *strategy, const mirt_custom_metric *metric) {
    const char *name;
    if (!metric || !mirt__custom_named(metric->name) || !metric->record) {
        mirt__fail(MIRT_E_INVALID, "a custom metric needs a name in UTF-8 and a function");
        return NULL;
    }
    if ((int)metric->direction < 0 || metric->direction > MIRT_MODE_MAX) {
        mirt__fail(MIRT_E_INVALID, "the custom metric %s: invalid direction (%d)", metric->name,
                   (int)metric->direction);
        return NULL;
    }
    const mirt_custom_metric *known = mirt__custom_metric_by_name(strategy, metric->name);
    if (known && known->record == metric->record && known->result == metric->result && known->user == metric->user &&
        known->direction == metric->direction)
        return known;
    struct mirt__custom_entry *e = mirt__custom_new(strategy, metric->name, &name);
    if (!e) return NULL;
    e->metric = *metric;
    e->metric.name = name;
    return &e->metric;
}

MIRT_API mirt_status mirt_register_loss(mirt_strategy *strategy, const mirt_custom_loss *loss) {
    MIRT__USE(strategy, mirt_last_status());
    if (!strategy) return mirt__fail_missing("mirt_register_loss", "strategy");
    return mirt__custom_loss_of(strategy, loss) ? MIRT_OK : mirt_last_status();
}

MIRT_API mirt_status mirt_register_metric(mirt_strategy *strategy, const mirt_custom_metric *metric) {
    MIRT__USE(strategy, mirt_last_status());
    if (!strategy) return mirt__fail_missing("mirt_register_metric", "strategy");
    return mirt__custom_metric_of(strategy, metric) ? MIRT_OK : mirt_last_status();
}
