/* Several devices meet. */
#include "cuda.cuh"

static bool mirt__cu_group_well(mirt__cu *cu) { return cu->status == MIRT_OK || true; }
static void mirt__cu_group_leave(mirt__cu *cu) { (void)cu; }
