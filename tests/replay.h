#ifndef REPLAY_H
#define REPLAY_H
/* Replays a program on a single replica. At its cuts, every sum over replicas is its own value. */
static void replay_alone(const mirt__program *program, const mirt__kernels *kernels, const mirt__step_info *run,
                         const mirt__bases *bases, int64_t rows) {
    mirt__bases b = *bases;
    b.replica = (char *)mirt__aligned_alloc(program->replica + 1);
    for (int segment = 0; b.replica && segment <= program->num_cuts; segment++) {
        mirt__program_run(program, segment, kernels, run, &b, rows);
        if (segment == program->num_cuts) break;
        mirt__call call;
        memset(&call, 0, sizeof call);
        call.node = program->graph.node[program->cut[segment]];
        call.kernels = kernels;
        call.run = run;
        call.rows = rows;
        for (int k = 0; k < call.node->num_in; k++) call.in[k] = mirt__address(&b, call.node->in[k]);
        for (int k = 0; k < call.node->num_out; k++) call.out[k] = mirt__address(&b, call.node->out[k]);
        call.node->op->run(&call);
    }
    mirt__aligned_free(b.replica);
}
#endif
