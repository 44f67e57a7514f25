#ifndef FAILING_MALLOC_H
#define FAILING_MALLOC_H
/* Memory of the library that counts its blocks, and fails once on request. */
#include <stdlib.h>

static long allocations, live_blocks, fails; /* allocation number `fails` fails; one thread only */

void *hook_malloc(size_t size) {
    if (++allocations == fails) return NULL;
    void *block = malloc(size);
    live_blocks += block != NULL;
    return block;
}
void hook_free(void *block) {
    live_blocks--;
    free(block);
}

#endif
