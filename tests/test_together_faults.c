/* One of several processes fails, differs, stops or is silent: all end and know why. */
#include "together.h"

/* What is wrong with the process `rank`. */
typedef enum wrong {
    NOTHING, SEED, REPLICAS, LAYERS, WEIGHTS, INSTRUCTIONS, BFLOAT16, SAMPLES, BATCH, OPTIMIZER, EPOCHS, LABEL,
    VALIDATION_LABEL, CALLBACK, BARRIER, SLOW_CALLBACK, STOP, DRIFT, LEAVES, LEAVES_UNSEEN, FREEZES
} wrong;

typedef struct misfortune {
    const char *name;
    wrong what;
    int rank, processes;
    double limit;            /* seconds: the strategy's timeout */
    mirt_status own, others; /* of the process `rank`, unless it dies, and of the others, */
    const char *words;       /* whose message contains these */
} misfortune;

static const misfortune misfortunes[] = {
    {"another seed", SEED, 1, 2, 5, MIRT_E_WORKER, MIRT_E_WORKER,
     "seed is 0 in process 0 (host0) and 1 in process 1 (host1)"},
    {"other replicas", REPLICAS, 2, 3, 5, MIRT_E_WORKER, MIRT_E_WORKER, "replicas is 8"},
    {"another rate of dropout", LAYERS, 1, 2, 5, MIRT_E_WORKER, MIRT_E_WORKER, "differ in the model's layers"},
    {"other instructions for bfloat16", BFLOAT16, 1, 3, 5, MIRT_E_WORKER, MIRT_E_WORKER,
     "differ in the instructions for bfloat16"},
    {"fewer samples", SAMPLES, 2, 3, 5, MIRT_E_WORKER, MIRT_E_WORKER, "differ in the number of samples"},
    {"other weights", WEIGHTS, 1, 2, 5, MIRT_E_WORKER, MIRT_E_WORKER,
     "differ in the model's weights: process 0 (host0) and process 1 (host1)"},
    {"another batch size", BATCH, 1, 3, 5, MIRT_E_WORKER, MIRT_E_WORKER, "batch size"},
    {"another optimizer", OPTIMIZER, 0, 2, 5, MIRT_E_WORKER, MIRT_E_WORKER, "optimizer"},
    {"more epochs", EPOCHS, 1, 2, 5, MIRT_E_WORKER, MIRT_E_WORKER, "epochs"},
    {"a label that is no class", LABEL, 1, 3, 5, MIRT_E_INVALID, MIRT_E_WORKER,
     "process 1 (host1) has stopped: label 5"},
    {"a label of the validation that is no class", VALIDATION_LABEL, 1, 3, 5, MIRT_E_INVALID, MIRT_E_WORKER,
     "process 1 (host1) has stopped: label 5"},
    {"a callback that fails", CALLBACK, 2, 3, 5, MIRT_E_IO, MIRT_E_WORKER,
     "process 2 (host2) has stopped: the disk is full"},
    {"a barrier for one process alone", BARRIER, 1, 3, 5, MIRT_E_WORKER, MIRT_E_WORKER,
     "process 0 (host0) reads a batch of 29 samples, process 1 (host1) one of 0"},
    {"copies that drift apart", DRIFT, 1, 3, 5, MIRT_E_DRIFT, MIRT_E_DRIFT,
     "the weights of process 1 (host1) differ from those of process 0 (host0)"},
    {"a process that leaves", LEAVES, 1, 3, 5, MIRT_OK, MIRT_E_WORKER, "has lost process 1 (host1): "},
    {"a process that leaves unseen by the last", LEAVES_UNSEEN, 1, 3, 5, MIRT_OK, MIRT_E_WORKER,
     "has lost process 1 (host1): "},
    {"a process that is suspended", FREEZES, 1, 2, 0.5, MIRT_OK, MIRT_E_WORKER, "process 1 (host1) does not answer"},
    {"the third of four suspended", FREEZES, 2, 4, 0.5, MIRT_OK, MIRT_E_WORKER, "process 2 (host2) does not answer"},
};
/* Training succeeds nevertheless. */
static const misfortune harmless[] = {
    {"training", NOTHING, 0, 3, 5, MIRT_OK, MIRT_OK, ""},
    {"instructions for bfloat16 that nothing uses", INSTRUCTIONS, 1, 3, 5, MIRT_OK, MIRT_OK, ""},
    {"a request of one process to stop", STOP, 1, 3, 5, MIRT_OK, MIRT_OK, ""},
    {"a process that is slow for longer than the limit", SLOW_CALLBACK, 0, 3, 1, MIRT_OK, MIRT_OK, ""},
    {"the third of four that is slow", SLOW_CALLBACK, 2, 4, 1, MIRT_OK, MIRT_OK, ""},
};

typedef struct watcher {
    const misfortune *m;
    bool here, last; /* the last process */
} watcher;

static int at_batch_end(const mirt_event *event, void *user) {
    const watcher *w = (const watcher *)user;
    if (event->model->step != 4) return 0;
    if (w->m->what == LEAVES_UNSEEN && w->last) pipe_sleep(500000); /* until process 0 has ended because of it, too */
    if (!w->here) return 0;
    if (w->m->what == CALLBACK) return mirt__fail(MIRT_E_IO, "the disk is full"), MIRT_CALLBACK_FAILED;
    if (w->m->what == BARRIER && mirt_barrier(event->model->strategy, MIRT_OK) != MIRT_OK) return MIRT_CALLBACK_FAILED;
    if (w->m->what == SLOW_CALLBACK) pipe_sleep((uint32_t)(w->m->limit * 2e6));
    if (w->m->what == STOP) mirt_request_stop((mirt_model *)event->model);
    if (w->m->what == DRIFT) {
        float bias[6] = {1, 2, 3, 4, 5, 6};
        mirt_set_weight((mirt_model *)event->model, "first/bias", bias, 6);
    }
    if (w->m->what == LEAVES || w->m->what == LEAVES_UNSEEN) _exit(0);
    if (w->m->what == FREEZES) raise(SIGSTOP);
    return 0;
}

static void spoil(const misfortune *m, mirt_strategy_desc *d, scene *s) {
    if (m->what == SEED) d->seed++;
    if (m->what == REPLICAS) d->replicas++;
    if (m->what == LAYERS) s->dropout = 0.25f;
    if (m->what == BATCH) s->batch++;
    if (m->what == OPTIMIZER) s->clipped = true;
}

/* Kernels of the same results with the name of those that multiply in bfloat16, or of others. */
static void rename_kernels(mirt_strategy *strategy, bool half) {
    static mirt__kernels renamed;
    renamed = *strategy->kernels;
    renamed.name = half ? "avx512bf16" : "avx512";
    strategy->kernels = &renamed;
}

static mirt_status train(mirt_strategy *strategy, const misfortune *m, bool here, const scene *s, record *out) {
    const watcher w = {m, here, mirt_worker_index(strategy) == m->processes - 1};
    mirt_dataset *data = NULL, *validation = NULL;
    mirt_callback callback;
    mirt_fit_desc d;
    mirt_model *model = model_of(strategy, s);
    memset(&callback, 0, sizeof callback);
    memset(&d, 0, sizeof d);
    callback.batch_end = at_batch_end;
    callback.user = (void *)(uintptr_t)&w;
    d.epochs = m->what == EPOCHS && here ? 3 : 2;
    d.no_progress = true;
    d.callbacks[0] = &callback;
    if (m->what == LABEL && here) image_classes[120] = IMAGE_CLASSES;
    if (m->what == VALIDATION_LABEL && here) image_classes[203 + 40] = IMAGE_CLASSES;
    if (m->what == BFLOAT16 || m->what == INSTRUCTIONS) rename_kernels(strategy, here);
    if (m->what == BFLOAT16) mirt_set_dtype_policy(model, "mixed_bfloat16");
    if (!model || !data_of(s, &data, &validation)) return mirt_last_status();
    if (m->what == SAMPLES && here) data = mirt_take(data, 6);
    if (m->what == VALIDATION_LABEL) d.validation = validation;
    if (m->what == WEIGHTS && here) {
        const float bias[6] = {1, 2, 3, 4, 5, 6};
        if (mirt_set_weight(model, "first/bias", bias, 6) != MIRT_OK) return mirt_last_status();
    }
    const mirt_history *h = mirt_fit(model, data, &d);
    const mirt_status status = h ? MIRT_OK : mirt_last_status();
    snprintf(out->error, sizeof out->error, "%s", h ? "" : mirt_last_error());
    out->steps = h ? h->steps : 0;
    if (h) out->weights = hash_of_weights(model);
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(validation);
    return status;
}

static void take_part(const void *arg, int rank) {
    const misfortune *m = (const misfortune *)arg;
    record *out = &shared[rank];
    const double since = mirt__now();
    mirt_strategy_desc d = multi_worker_desc("1", m->limit);
    scene s;
    memset(&s, 0, sizeof s);
    s.replicas = 8;
    s.batch = 29;
    s.dropout = m->what == LAYERS ? 0.5f : 0;
    d.replicas = s.replicas;
    out->status = -1;
    if (rank == m->rank) spoil(m, &d, &s);
    mirt_strategy *strategy = mirt_strategy_create(&d);
    if (strategy) {
        out->status = (int)train(strategy, m, rank == m->rank, &s, out);
    } else {
        out->status = (int)mirt_last_status();
        snprintf(out->error, sizeof out->error, "%s", mirt_last_error());
    }
    out->loss = mirt__now() - since; /* seconds */
    mirt_strategy_destroy(strategy);
}

static bool run_misfortune(const misfortune *m, double limit) {
    clear_records();
    return run_processes(m->processes, limit, take_part, m);
}

/* Why the process of the misfortune has stopped, as another one tells it, or "". */
static const char *told(const misfortune *m) {
    const char *words = strstr(shared[m->rank == 0].error, "has stopped: ");
    return words ? words + strlen("has stopped: ") : "";
}

/* Every process but the one of the misfortune fails as *m says, soon after the limit of a process that is suspended. */
static void check_error(const misfortune *m) {
    const bool freezes = m->what == FREEZES, dies = freezes || m->what == LEAVES || m->what == LEAVES_UNSEEN;
    const double seconds = freezes ? m->limit + 3 : 3;
    const bool ended = run_misfortune(m, freezes ? 5 : 20);
    for (int p = 0; p < m->processes; p++) {
        const record *r = &shared[p];
        if (p == m->rank && dies) continue;
        const char *words = p == m->rank ? told(m) : m->words;
        ok(r->status == (int)(p == m->rank ? m->own : m->others) && strstr(r->error, words) &&
               (m->own == m->others || dies || told(m)[0]) && r->loss <= seconds,
           "%s: process %d ends after %.2f s%s%s", m->name, p, r->loss, r->error[0] ? ": " : "", r->error);
    }
    if (!freezes) ok(ended, "%s: no process is left", m->name);
}

/* All processes train for as many steps, to the same weights. */
static void check_fine(const misfortune *m) {
    const int64_t steps = m->what == STOP ? 5 : 14;
    bool good = run_misfortune(m, 20);
    for (int p = 0; p < m->processes; p++)
        good = good && shared[p].status == MIRT_OK && shared[p].weights == shared[0].weights &&
               shared[p].steps == steps;
    ok(good, "%s: %lld steps in all processes: %d %s", m->name, (long long)shared[0].steps, shared[0].status,
       shared[0].error);
}

int main(void) {
    if (!share_records()) return 1;
    draw_images();
    for (int i = 0; i < MIRT__COUNT(harmless); i++) check_fine(&harmless[i]);
    for (int i = 0; i < MIRT__COUNT(misfortunes); i++) check_error(&misfortunes[i]);
    return done_testing();
}
