#include "ops.h"
/* Ops of the nodes that mirror/transform.c appends: all-reduce and update of a bucket. */

static bool mirt__bucket_shape(mirt__node *node) {
    (void)node;
    return true; /* they have no outputs: the device's table and the optimizer do the work */
}

MIRT__OP_ROW(all_reduce_bucket, mirt__bucket_shape, NULL, MIRT__IS(reduces))
MIRT__OP_ROW(update_bucket, mirt__bucket_shape, NULL, MIRT__IS(updates))

MIRT__LIB void mirt__bucket_op(mirt__graph *graph, mirt__op_id id, int bucket) {
    mirt__attrs a = mirt__attrs_of(id);
    a.index = bucket;
    mirt__record(graph, id, &a, NULL, 0);
}
