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

/* NCCL's own all-reduce adds in its own order. */
static void check_nccl(void) {
    const layout one = {1, 1, NULL}, two = {2, 2, NULL};
    scene s = scenes[0];
    ok(run_layout(&s, &one) && shared[0].gpus, "one process with a GPU trains: %s", shared[0].error);
    const double loss = shared[0].loss;
    s.collective = MIRT_NCCL;
    ok(run_layout(&s, &two) && shared[0].status == MIRT_OK && shared[0].gpus &&
           shared[0].weights == shared[1].weights && fabs(shared[0].loss - loss) < 1e-5,
       "NCCL's all-reduce over 2 processes of 2 GPUs: a loss of %.7g, in one process %.7g: %s", shared[0].loss, loss,
       shared[0].error);
}

/* >>what fails */

static int leave(const mirt_event *event, void *user) {
    if (event->model->step == 2 && mirt_worker_index((mirt_strategy *)user) == 1) _exit(0);
    return 0;
}

static void lose_one(const void *arg, int rank) {
    record *out = &shared[rank];
    mirt_strategy_desc d = multi_worker_desc("1", 1);
    mirt_dataset *data = NULL, *validation = NULL;
    mirt_callback callback;
    mirt_fit_desc fit;
    (void)arg;
    memset(&callback, 0, sizeof callback);
    memset(&fit, 0, sizeof fit);
    d.replicas = 8;
    mirt_strategy *strategy = mirt_strategy_create(&d);
    mirt_model *model = strategy ? model_of(strategy, &scenes[0]) : NULL;
    callback.batch_end = leave;
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
}

static void check_loss(void) {
    clear_records();
    run_processes(3, 20, lose_one, NULL);
    for (int p = 0; p < 3; p += 2)
        ok(shared[p].status != MIRT_OK && strstr(shared[p].error, "process 1 (host1)"),
           "a process that leaves: process %d ends: %s", p, shared[p].error);
}

/* >>GPUs of one host */

typedef struct wish {
    const char *devices; /* of each process */
    int processes, average_every;
} wish;

static void create(const void *arg, int rank) {
    const wish *w = (const wish *)arg;
    mirt_strategy_desc d = multi_worker_desc(w->devices, 5);
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
    const wish w = {devices, processes, 0};
    clear_records();
    const bool good = run_processes(processes, 20, create, &w);
    ok(good && shared[rank].status == MIRT_OK && shared[rank].index == first &&
           shared[rank].workers == all,
       "%d processes of devices %s: process %d begins with gpu:%d, and all have %d GPUs: %s", processes,
       devices ? devices : "by default", rank, shared[rank].index, shared[rank].workers, shared[rank].error);
}

static void refused(const char *devices, int processes, int average_every, const char *words) {
    const wish w = {devices, processes, average_every};
    clear_records();
    run_processes(processes, 20, create, &w);
    ok(shared[0].status != MIRT_OK && strstr(shared[0].error, words), "%d processes of devices %s are refused: %s",
       processes, devices ? devices : "by default", shared[0].error);
}

static void check_one_host(void) {
    static const layout layouts[] = {{2, 2, NULL}, {3, 2, NULL}};
    pipe_one_host = true;
    check_scene(&scenes[1], layouts, 2);
    divided(NULL, 2, 1, 3, 6);
    divided(NULL, 4, 3, 4, 6);
    divided("2", 3, 2, 4, 6);
    divided("gpu:2", 1, 0, 2, 1);
    refused("2", 4, 0, "4 processes on this host share 6 GPUs");
    refused(NULL, 7, 0, "7 processes on this host share 6 GPUs");
    refused("1", 2, 5, "average_every is for cores");
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
    check_loss();
    check_one_host();
    remove_photos();
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) printf("# %s is left\n", folder);
    return done_testing();
}
