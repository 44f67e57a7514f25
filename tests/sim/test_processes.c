/* Processes with simulated GPUs train together to the bits of one GPU. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../../mirrortrain.h"
#include "../same_scenes.h"
#include "sim.h"

/* Before the simulator looks; the library takes GPUs where it would take cores. */
__attribute__((constructor(101))) static void ask_for_devices(void) {
    setenv("MIRT_SIM_DEVICES", "6", 0);
    setenv("MIRT_DEVICES", "gpu", 1);
}

/* NCCL's own all-reduce adds in its own order; devices of 13 replicas are left with several sums. */
static void check_nccl(void) {
    const layout one = {1, 1, NULL}, two = {2, 2, NULL};
    for (int i = 0; i < 2; i++) {
        scene s = scenes[i];
        ok(run_layout(&s, &one) && shared[0].gpus, "%s: one process with a GPU trains: %s", s.name, shared[0].error);
        const double loss = shared[0].loss;
        s.collective = MIRT_NCCL;
        const bool good = run_layout(&s, &two);
        ok(good && shared[0].status == MIRT_OK && shared[0].gpus && shared[0].weights == shared[1].weights &&
               fabs(shared[0].loss - loss) < 1e-5,
           "%s: NCCL's all-reduce over 2 processes of 2 GPUs: a loss of %.7g, in one process %.7g: %s", s.name,
           shared[0].loss, loss, shared[0].error);
    }
}

/* >>what fails */

enum { LIMIT = 3, ILLEGAL_ADDRESS = 700 /* cudaErrorIllegalAddress */ };

/* What becomes of process 1 in step 3. */
typedef struct fate {
    const char *name;
    bool leaves;
    const char *words; /* of the others */
} fate;
static const fate *the_fate;

static int meet_fate(const mirt_event *event, void *user) {
    if (event->model->step != 2 || mirt_worker_index((mirt_strategy *)user) != 1) return 0;
    if (the_fate->leaves) _exit(0);
    mirt_sim_lose_device(0, ILLEGAL_ADDRESS);
    return 0;
}

static void lose_one(const void *arg, int rank) {
    record *out = &shared[rank];
    mirt_strategy_desc d = multi_worker_desc("1", LIMIT);
    mirt_dataset *data = NULL, *validation = NULL;
    mirt_callback callback;
    mirt_fit_desc fit;
    const double since = mirt__now();
    the_fate = (const fate *)arg;
    memset(&callback, 0, sizeof callback);
    memset(&fit, 0, sizeof fit);
    d.replicas = 8;
    mirt_strategy *strategy = mirt_strategy_create(&d);
    mirt_model *model = strategy ? model_of(strategy, &scenes[0]) : NULL;
    callback.batch_end = meet_fate;
    callback.user = strategy;
    fit.callbacks[0] = &callback;
    fit.no_progress = true;
    fit.epochs = 3;
    out->status = model && data_of(&scenes[0], &data, &validation) && mirt_fit(model, data, &fit)
                      ? MIRT_OK
                      : (int)mirt_last_status();
    snprintf(out->error, sizeof out->error, "%s", mirt_last_error());
    mirt_dataset_destroy(data);
    mirt_dataset_destroy(validation);
    mirt_strategy_destroy(strategy);
    out->loss = mirt__now() - since; /* seconds */
}

static void check_fates(void) {
    static const fate fates[] = {
        {"a process that leaves", true, "has lost process 1 (host1): "},
        {"a process whose GPU fails", false, "process 1 (host1)"},
    };
    for (int i = 0; i < 2; i++) {
        clear_records();
        run_processes(3, 20, lose_one, &fates[i]);
        for (int p = 0; p < 3; p++) {
            const record *r = &shared[p];
            if (p == 1 && fates[i].leaves) continue;
            ok(r->status != MIRT_OK && strstr(r->error, p == 1 ? "gpu:0" : fates[i].words) && r->loss < LIMIT + 3,
               "%s: process %d ends after %.1f s: %s", fates[i].name, p, r->loss, r->error);
        }
    }
}

/* >>GPUs of one host */

typedef struct wish {
    const char *devices, *others; /* of process 0, and of the others */
    int processes, average_every;
    bool broken; /* the GPU of process 1 cannot be opened */
} wish;

static void create(const void *arg, int rank) {
    const wish *w = (const wish *)arg;
    mirt_strategy_desc d = multi_worker_desc(rank ? w->others : w->devices, 5);
    if (w->broken && rank == 1) mirt_sim_set("memory", 1000);
    d.average_every = w->average_every;
    mirt_strategy *strategy = mirt_strategy_create(&d);
    shared[rank].status = strategy ? MIRT_OK : (int)mirt_last_status();
    shared[rank].index = strategy ? strategy->device[0].index : -1;
    shared[rank].workers = strategy ? strategy->all_devices : 0;
    snprintf(shared[rank].error, sizeof shared[rank].error, "%s", mirt_last_error());
    mirt_strategy_destroy(strategy);
}

/* Process `rank` gets GPUs from number `first` on, and all get `all`. */
static void divided(const char *devices, int processes, int rank, int first, int all) {
    const wish w = {devices, devices, processes, 0, false};
    clear_records();
    const bool good = run_processes(processes, 20, create, &w);
    ok(good && shared[rank].status == MIRT_OK && shared[rank].index == first &&
           shared[rank].workers == all,
       "%d processes of devices %s: process %d begins with gpu:%d, and all have %d GPUs: %s", processes,
       devices ? devices : "by default", rank, shared[rank].index, shared[rank].workers, shared[rank].error);
}

static void refused(const wish *w, const char *words) {
    clear_records();
    run_processes(w->processes, 20, create, w);
    for (int p = 0; p < w->processes; p += w->processes - 1)
        ok(shared[p].status != MIRT_OK && (strstr(shared[p].error, words) || (w->broken && p == 1)),
           "process %d of %d, devices %s and %s: %s", p, w->processes, w->devices ? w->devices : "by default",
           w->others ? w->others : "by default", shared[p].error);
}

static void check_one_host(void) {
    static const layout layouts[] = {{2, 2, NULL}, {3, 2, NULL}};
    pipe_one_host = true;
    check_scene(&scenes[1], layouts, 2);
    divided(NULL, 2, 1, 3, 6);
    divided(NULL, 4, 3, 4, 6);
    divided("2", 3, 2, 4, 6);
    divided("gpu:2", 1, 0, 2, 1);
    const wish uneven = {"2", "1", 2, 0, false};
    clear_records();
    const bool good = run_processes(2, 20, create, &uneven);
    ok(good && shared[1].index == 2 && shared[1].workers == 3, "2 GPUs for process 0, then 1 for process 1: gpu:%d: %s",
       shared[1].index, shared[1].error);
    static const struct {
        wish w;
        const char *words;
    } bad[] = {{{"2", "2", 4, 0, false}, "4 processes on host0 share 6 GPUs"},
               {{NULL, NULL, 7, 0, false}, "7 processes on host0 share 6 GPUs"},
               {{"2", NULL, 2, 0, false}, "some ask for all GPUs and some for a number"},
               {{"1", "1", 2, 5, false}, "average_every is for cores"},
               {{"gpu:1", "gpu:0", 2, 0, true}, "process 1 (host0) cannot use its devices: "}};
    for (int i = 0; i < (int)(sizeof bad / sizeof *bad); i++) refused(&bad[i].w, bad[i].words);
    pipe_one_host = false;
}

int main(void) {
    static const layout all[] = {{2, 1, NULL}, {3, 1, NULL}, {4, 1, NULL}, {1, 3, NULL}, {2, 2, NULL}, {3, 2, NULL},
                                 {4, 1, "3,1,2,2"}, {2, 2, "4,2,1,1"}},
                        some[] = {{2, 1, NULL}, {2, 2, NULL}, {2, 2, "4,2,1,1"}};
    char folder[300], command[400];
    snprintf(folder, sizeof folder, "%s/mirt_ranks_%ld", tap_tmpdir(), (long)getpid());
    if (!share_records() || mkdir(folder, 0700) != 0) return 1;
    mirt_sim_together(folder);
    draw_images();
    write_photos();
    for (int i = 0; i < SCENES; i++) {
        if (i < MAIN_SCENES && !small_tier()) check_scene(&scenes[i], all, (int)(sizeof all / sizeof *all));
        else check_scene(&scenes[i], some, scenes[i].replicas < 8 ? 2 : 3); /* these shares take 8 replicas */
    }
    check_nccl();
    check_fates();
    check_one_host();
    remove_photos();
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) printf("# %s is left\n", folder);
    return done_testing();
}
