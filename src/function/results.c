#include "function.h"
/* Results of functions, and the memory in which a step leaves them. */

MIRT__LIB mirt_status mirt__result_add(mirt_function *f, const char *name, mirt_tensor *tensor) {
    if (f->results.count == MIRT__MAX_RESULTS)
        return mirt__fail(MIRT_E_INVALID, "a function has at most %d results", MIRT__MAX_RESULTS);
    mirt__result *r = &f->results.list[f->results.count];
    if (!(r->name = mirt__pool_strdup(&f->step.program.graph.pool, name))) return mirt_last_status();
    r->tensor = tensor;
    r->dtype = tensor->dtype;
    r->shape = tensor->shape;
    r->batched = mirt__is_batched(&tensor->shape);
    r->count = mirt__shape_count(&tensor->shape);
    f->results.count++;
    return MIRT_OK;
}

/* Bytes of a result in memory. */
static size_t mirt__result_bytes(const mirt_function *f, const mirt__result *r) {
    const size_t places = r->batched ? (size_t)f->step.max_rows : (size_t)mirt__result_places(&f->step);
    return mirt__align_up(places * (size_t)r->count * mirt__dtype_size(r->dtype));
}

/* Bytes of the results of one step. */
static size_t mirt__results_bytes(const mirt_function *f) {
    size_t total = 0;
    for (int i = 0; i < f->results.count; i++) total += mirt__result_bytes(f, &f->results.list[i]);
    return total;
}

MIRT__LIB size_t mirt__function_host(const mirt_function *f) {
    size_t total = mirt__align_up((size_t)f->step.replicas * f->step.state_bytes);
    total += mirt__results_bytes(f) * (f->step.sends_ahead ? 2 : 1);
    for (int i = f->spec.num_x; i < f->spec.num_fields && f->step.sends_ahead; i++)
        total += mirt__align_up((size_t)f->step.max_rows * f->spec.field[i].bytes);
    return total;
}

MIRT__LIB void mirt__results_place(mirt_function *f) {
    char *at = f->results.memory + (f->step.turn ? mirt__results_bytes(f) : 0);
    for (int i = 0; i < f->results.count; i++) {
        f->results.list[i].data = f->step.result[i] = at;
        at += mirt__result_bytes(f, &f->results.list[i]);
    }
}

MIRT__LIB mirt_status mirt__function_allocate(mirt_function *f) {
    size_t total = mirt__function_host(f);
    f->step.result =
        (char **)mirt__pool_alloc(&f->step.program.graph.pool, ((size_t)f->results.count + 1) * sizeof *f->step.result);
    if (!f->step.result || !(f->results.memory = (char *)mirt__aligned_alloc(total))) return mirt_last_status();
    memset(f->results.memory, 0, total);
    mirt__results_place(f);
    f->step.states = f->results.memory + mirt__results_bytes(f) * (f->step.sends_ahead ? 2 : 1);
    f->results.labels = f->step.states + mirt__align_up((size_t)f->step.replicas * f->step.state_bytes);
    return mirt__weights_place(f->root) == MIRT_OK ? mirt__memory_reserve(f->model->strategy, &f->step.needs)
                                                   : mirt_last_status();
}
