#include "timeline.h"
/* Records the tasks of steps, for predictions of what more threads would gain. */

MIRT__LIB void mirt__tasks_node(void *user, const mirt__call *call, int node) {
    const mirt__task_recorder *recorder = (const mirt__task_recorder *)user;
    mirt_task_event event;
    event.kind = MIRT_TASK_OP;
    event.index = node;
    event.time = mirt__now();
    event.op = call->node->op->name;
    event.layer = call->node->name;
    event.flops = call->node->op->macs ? 2 * call->node->op->macs(call->node, call->rows) : 0;
    event.bytes = mirt__node_bytes(call->node, call->rows);
    if (recorder->fn) recorder->fn(&event, recorder->user);
}

MIRT_API mirt_status mirt_record_tasks(mirt_strategy *s, mirt_task_fn fn, void *user) {
    MIRT__USE(s, mirt_last_status());
    if (!s) return mirt__fail_missing(__func__, "strategy");
    if (s->running) return mirt__fail(MIRT_E_STATE, "mirt_record_tasks: a step is under way");
    const mirt__task_recorder *told = fn ? &s->recorder : NULL;
    s->recorder.fn = fn;
    s->recorder.user = user;
    s->timeline[0].recorder = told;
    mirt__team_record(s->device[0].team, told);
    mirt__measure(s);
    return MIRT_OK;
}

static void mirt__tasks_nothing(void *arg, int member) { (void)arg, (void)member; }

MIRT_API mirt_status mirt_run_empty_loop(mirt_strategy *s) {
    MIRT__USE(s, mirt_last_status());
    if (!s) return mirt__fail_missing(__func__, "strategy");
    if (mirt__usable(s) != MIRT_OK) return mirt_last_status(); /* the team's threads may be in a job for good */
    if (s->running) return mirt__fail(MIRT_E_STATE, "mirt_run_empty_loop: a step is under way");
    mirt__team_run(s->device[0].team, mirt__tasks_nothing, NULL);
    return MIRT_OK;
}
