#ifndef FAILING_MALLOC_H
#define FAILING_MALLOC_H
/* Memory of the library that counts its blocks, and fails once on request; to be included before mirrortrain.h. */
#include <stdlib.h>

static long allocations, live_blocks, fails; /* allocation number `fails` fails; one thread only */

static void *test_malloc(size_t size) {
    if (++allocations == fails) return NULL;
    void *block = malloc(size);
    live_blocks += block != NULL;
    return block;
}
static void test_free(void *block) {
    live_blocks--;
    free(block);
}

#define MIRRORTRAIN_MALLOC(size) test_malloc(size)
#define MIRRORTRAIN_FREE(pointer) test_free(pointer)
#endif
