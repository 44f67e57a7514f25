/* What mirt_launched makes of the environment. */
#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"
#include "tap.h"

#define CLUSTER "\"cluster\": {\"ps\": [\"p:1\"], \"worker\": [\"w:2\", \"v:3\"], \"chief\": [\"[::1]:4\"]}"
#define TASK(type, index) "{" CLUSTER ", \"task\": {\"type\": \"" type "\", \"index\": " index "}}"
#define LONG "a-long-name-of-a-host-a-long-name-of-a-host-a-long-name-of-a-host-a-long-name-of-a-host-"

/* Assignments, and what comes of them. */
typedef struct launched {
    const char *set[6];
    const char *launcher; /* NULL: alone */
    int index, processes;
    const char *host; /* NULL: MPI */
    int port;
} launched;

static const launched good[] = {
    {{0}, NULL, 0, 1, "", 0},
    {{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=3"}, "Open MPI", 3, 4, NULL, 0},
    {{"PMI_SIZE=2", "PMI_RANK=1"}, "MPICH", 1, 2, NULL, 0},
    {{"OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0"}, NULL, 0, 1, "", 0},
    {{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=3", "MIRT_WORKERS=1"}, NULL, 0, 1, "", 0},
    {{"WORLD_SIZE=3", "RANK=2", "MASTER_ADDR=a", "MASTER_PORT=29500"}, "torchrun", 2, 3, "a", 29500},
    {{"WORLD_SIZE=3", "RANK=0", "MASTER_ADDR=[fe80::1]", "MASTER_PORT=1"}, "torchrun", 0, 3, "fe80::1", 1},
    {{"WORLD_SIZE=3", "RANK=0", "MASTER_ADDR=a", "MASTER_PORT=7", "TORCHELASTIC_USE_AGENT_STORE=True"},
     "torchrun", 0, 3, "a", 8},
    {{"WORLD_SIZE=3", "RANK=0", "MASTER_ADDR=a", "MASTER_PORT=7", "TORCHELASTIC_USE_AGENT_STORE=False"},
     "torchrun", 0, 3, "a", 7},
    {{"WORLD_SIZE=1"}, NULL, 0, 1, "", 0},
    {{"WORLD_SIZE=2", "RANK=1", "MASTER_ADDR=a", "MASTER_PORT=7", "TF_CONFIG=" TASK("ps", "0")},
     "torchrun", 1, 2, "a", 7},
    {{"WORLD_SIZE=2", "RANK=1", "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK=2"}, "Open MPI", 2, 3, NULL, 0},
    {{"TF_CONFIG=" TASK("chief", "0")}, "TF_CONFIG", 0, 4, "::1", 4},
    {{"TF_CONFIG=" TASK("worker", "1")}, "TF_CONFIG", 2, 4, "::1", 4},
    {{"TF_CONFIG=" TASK("ps", "0")}, "TF_CONFIG", 3, 4, "::1", 4},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"w:2\", \"v:3\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}"},
     "TF_CONFIG", 1, 2, "w", 2},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"w\"]}, \"task\": {\"type\": \"worker\", \"index\": 0}}"},
     NULL, 0, 1, "", 0},
    {{"TF_CONFIG={}"}, NULL, 0, 1, "", 0},
    {{"TF_CONFIG={\"environment\": \"cloud\", \"cluster\": {}}"}, NULL, 0, 1, "", 0},
    {{"TF_CONFIG={}", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_STEP_NODELIST=a", "SLURM_JOB_ID=3"},
     "Slurm", 1, 2, "a", 20051},
    {{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_STEP_NODELIST=node[003-007,9]x,other", "SLURM_JOB_ID=3",
      "SLURM_STEP_ID=2"}, "Slurm", 1, 2, "node003x", 20053},
    {{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_JOB_NODELIST=r[1-2]n[7,9]", "MASTER_PORT=5"},
     "Slurm", 1, 2, "r1n7", 5},
    {{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0", "SLURM_STEP_NODELIST=a,b", "MASTER_ADDR=c", "MASTER_PORT=6"},
     "Slurm", 0, 2, "c", 6},
    {{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_STEP_NODELIST=a", "PMIX_RANK=1"}, "Slurm", 1, 2, NULL, 0},
    {{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_STEP_NODELIST=a", "PMI_RANK=1"}, "Slurm", 1, 2, NULL, 0},
    {{"SLURM_NTASKS=2", "SLURM_PROCID=0"}, NULL, 0, 1, "", 0}, /* a script of sbatch itself */
};

static const struct {
    const char *set[6], *says;
} bad[] = {
    {{"WORLD_SIZE=2x"}, "WORLD_SIZE is \"2x\", not a number"},
    {{"WORLD_SIZE=3000000000"}, "WORLD_SIZE is \"3000000000\""},
    {{"OMPI_COMM_WORLD_SIZE=-2"}, "OMPI_COMM_WORLD_SIZE is \"-2\""},
    {{"WORLD_SIZE=2"}, "but RANK, the number of this one, is not set"},
    {{"WORLD_SIZE=2", "RANK=abc"}, "RANK is \"abc\", not a number from 0 to 1"},
    {{"WORLD_SIZE=2", "RANK=-1"}, "RANK is \"-1\""},
    {{"WORLD_SIZE=2", "RANK=2"}, "RANK is \"2\""},
    {{"WORLD_SIZE=2", "RANK=1"}, "MASTER_ADDR is not set"},
    {{"WORLD_SIZE=2", "RANK=1", "MASTER_ADDR=a"}, "MASTER_PORT is not set"},
    {{"WORLD_SIZE=2", "RANK=1", "MASTER_ADDR=a", "MASTER_PORT=70000"}, "MASTER_PORT is \"70000\""},
    {{"WORLD_SIZE=2", "RANK=1", "MASTER_ADDR=a", "MASTER_PORT=tcp://1.2.3.4:5"}, "MASTER_PORT is \"tcp://1.2.3.4:5\""},
    {{"WORLD_SIZE=2", "RANK=1", "MASTER_ADDR=a", "MASTER_PORT=65535", "TORCHELASTIC_USE_AGENT_STORE=True"},
     "the next port is needed"},
    {{"WORLD_SIZE=2", "RANK=1", "MASTER_ADDR=" LONG LONG LONG, "MASTER_PORT=1"}, "MASTER_ADDR has no name of a host"},
    {{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_STEP_NODELIST=,a"}, "SLURM_STEP_NODELIST has no name"},
    {{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1"}, "MASTER_ADDR is not set"},
    {{"SLURM_STEP_NUM_TASKS=2"}, "SLURM_PROCID, the number of this one, is not set"},
    {{"TF_CONFIG={"}, "TF_CONFIG: JSON at offset 1"},
    {{"TF_CONFIG={" CLUSTER "}"}, "\"task\" needs a \"type\" and an \"index\""},
    {{"TF_CONFIG=" TASK("worker", "2")}, "\"cluster\" has no worker 2"},
    {{"TF_CONFIG=" TASK("evaluator", "0")}, "\"cluster\" has no evaluator 0"},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"w\", \"v:3\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}"},
     "place is \"w\", not \"HOST:PORT\""},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\"w:70000\", \"v:3\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}"},
     "place is \"w:70000\""},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [7, \"v:3\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}"},
     "not \"HOST:PORT\""},
    {{"TF_CONFIG={\"cluster\": {\"worker\": [\":1\", \"v:3\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}"},
     "TF_CONFIG has no name of a host"},
};

static void set_all(const char *const set[6]) {
    static const char *const all[] = {
        "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "WORLD_SIZE", "RANK",
        "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE", "TF_CONFIG", "MIRT_WORKERS",
        "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
        "SLURM_JOB_ID", "SLURM_STEP_ID"};
    for (int i = 0; i < MIRT__COUNT(all); i++) unsetenv(all[i]);
    for (int i = 0; i < 6 && set[i]; i++) {
        char name[64];
        const size_t length = strcspn(set[i], "=");
        memcpy(name, set[i], length);
        name[length] = 0;
        setenv(name, set[i] + length + 1, 1);
    }
}

static bool same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

int main(void) {
    mirt_launch out;
    for (int i = 0; i < MIRT__COUNT(good); i++) {
        const launched *l = &good[i];
        set_all(l->set);
        const mirt_status status = mirt_launched(&out);
        ok(status == MIRT_OK && same_text(out.launcher, l->launcher) && out.index == l->index &&
               out.processes == l->processes && out.mpi == !l->host && !strcmp(out.host, l->host ? l->host : "") &&
               out.port == l->port,
           "%s: process %d of %d meets at \"%s\", port %d: %s", l->set[0] ? l->set[0] : "nothing", out.index,
           out.processes, out.host, out.port, status ? mirt_last_error() : "ok");
    }
    for (int i = 0; i < MIRT__COUNT(bad); i++) {
        set_all(bad[i].set);
        const mirt_status status = mirt_launched(&out);
        ok(status == MIRT_E_WORKER && strstr(mirt_last_error(), bad[i].says) && out.processes == 1 && !out.launcher,
           "%s: %s", bad[i].set[0], mirt_last_error());
    }
    set_all((const char *const[6]){0});
    ok(mirt_launched(NULL) == MIRT_E_INVALID, "nowhere to write to");
    return done_testing();
}
