/* CUDA graphs: repeated work is captured once and then replayed. A graph is launched as a whole, or in a few pieces
   where other work stands between. The first time, the work just runs. The second time it is captured without running,
   so `end` asks for it once more. From then on the same code runs without its launches and only gathers the numbers
   that change. */
#include "cuda.cuh"

#define MIRT__CU_GRAPH_PIECES 64

typedef struct mirt__cu_graph {
    struct mirt__cu_graph *next;
    const void *owner;
    uint64_t key;
    bool seen, ready;
    bool eager; /* it cannot be a graph */
    int pieces, at;
    struct {
        cudaGraphExec_t exec; /* NULL: nothing */
        size_t numbers;       /* their end */
    } piece[MIRT__CU_GRAPH_PIECES];
} mirt__cu_graph;

struct mirt__cu_graphs {
    mirt__cu_graph *list, *now;
    mirt__cu_graph *again; /* was not done, and has to be enqueued once more */
    size_t uploaded;       /* of the numbers of now */
    bool off;
};

static void mirt__cu_graph_clear(const mirt__cu *cu, mirt__cu_graph *graph) {
    for (int i = 0; i < graph->pieces; i++) {
        if (graph->piece[i].exec && !cu->stuck) (void)cudaGraphExecDestroy(graph->piece[i].exec);
    }
    graph->pieces = 0;
    graph->ready = false;
}

static mirt__cu_graph *mirt__cu_graph_of(mirt__cu *cu, const void *owner, uint64_t key) {
    mirt__cu_graphs *graphs = cu->graphs;
    for (mirt__cu_graph *g = graphs->list; g; g = g->next) {
        if (g->owner == owner && g->key == key) return g;
    }
    mirt__cu_graph *made = static_cast<mirt__cu_graph *>(cu->host->calloc(1, sizeof *made));
    if (!made) return NULL;
    made->owner = owner;
    made->key = key;
    made->next = graphs->list;
    return graphs->list = made;
}

/* For good; what is left of this round does nothing. */
static void mirt__cu_graph_give_up(mirt__cu *cu, mirt__cu_graph *graph) {
    mirt__cu_graph_clear(cu, graph);
    graph->eager = true;
    cu->mode = MIRT__CU_REFRESH;
    (void)cudaGetLastError();
}

static void mirt__cu_capture(mirt__cu *cu, mirt__cu_graph *graph) {
    const cudaError_t error = cudaStreamBeginCapture(cu->stream, cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) cu->mode = MIRT__CU_CAPTURE;
    else mirt__cu_graph_give_up(cu, graph);
}

/* The stream captures no more, whatever becomes of what it captured. */
static cudaError_t mirt__cu_capture_end(mirt__cu *cu, cudaGraph_t *captured) {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    *captured = NULL;
    const cudaError_t error = cudaStreamEndCapture(cu->stream, captured);
    if (error == cudaSuccess) return error;
    (void)cudaGetLastError();
    *captured = NULL;
    if (cudaStreamIsCapturing(cu->stream, &state) == cudaSuccess && state != cudaStreamCaptureStatusNone)
        (void)cudaStreamEndCapture(cu->stream, captured);
    return error;
}

/* What was captured becomes a piece. */
static void mirt__cu_captured(mirt__cu *cu, mirt__cu_graph *graph) {
    cudaGraph_t captured = NULL;
    cudaGraphExec_t exec = NULL;
    size_t nodes = 0;
    cudaError_t error = mirt__cu_capture_end(cu, &captured);
    const bool full = graph->pieces == MIRT__CU_GRAPH_PIECES;
    if (error == cudaSuccess) error = cudaGraphGetNodes(captured, NULL, &nodes);
    if (error == cudaSuccess && nodes && !full && cu->status == MIRT_OK) {
#if CUDART_VERSION >= 12000
        error = cudaGraphInstantiate(&exec, captured, 0);
#else
        error = cudaGraphInstantiateWithFlags(&exec, captured, 0);
#endif
    }
    if (captured) (void)cudaGraphDestroy(captured);
    if (cu->status == MIRT_OK && error == cudaSuccess && !full) {
        graph->piece[graph->pieces].exec = exec;
        graph->piece[graph->pieces++].numbers = cu->numbers_used;
        return;
    }
    mirt__cu_graph_give_up(cu, graph);
    if (!cu->lost) cu->status = MIRT_OK; /* it comes again when all is done without a graph, if it does */
}

/* Launches the piece that was gone through. */
static void mirt__cu_graph_launch(mirt__cu *cu, mirt__cu_graph *graph) {
    if (cu->status != MIRT_OK) return;
    if (graph->at == graph->pieces || graph->piece[graph->at].numbers != cu->numbers_used) {
        mirt__cu_fail(cu, MIRT_E_STATE, "replayed work has %zu bytes of numbers up to its piece %d of %d",
                      cu->numbers_used, graph->at, graph->pieces);
        return;
    }
    const size_t from = cu->graphs->uploaded, bytes = cu->numbers_used - from;
    if (bytes) mirt__cu_upload(cu, cu->numbers + from, cu->numbers_host + from, bytes, false);
    cu->graphs->uploaded = cu->numbers_used;
    cudaGraphExec_t exec = graph->piece[graph->at++].exec;
    if (exec && cu->status == MIRT_OK) mirt__cu_try(cu, cudaGraphLaunch(exec, cu->stream), "launching a graph");
}

/* What is not part of a graph stands here: whether it is to be done; if so, it ends with mirt__cu_inside. */
static bool mirt__cu_outside(mirt__cu *cu) {
    mirt__cu_graph *graph = cu->graphs ? cu->graphs->now : NULL;
    mirt__cu_enter(cu);
    cu->inner = cu->mode;
    if (cu->mode == MIRT__CU_CAPTURE) {
        mirt__cu_captured(cu, graph);
        if (!graph->eager) mirt__cu_capture(cu, graph);
        return false;
    }
    if (cu->mode == MIRT__CU_REFRESH) {
        if (graph->eager) return false;
        mirt__cu_graph_launch(cu, graph);
        if (cu->status == MIRT_OK) cu->mode = MIRT__CU_RUN;
    }
    return mirt__cu_launches(cu);
}
static void mirt__cu_inside(mirt__cu *cu) { cu->mode = cu->inner; }

static void mirt__cu_begin(mirt__handle *cu, const void *owner, uint64_t key) {
    mirt__cu_enter(cu);
    if (cu->mode != MIRT__CU_RUN || cu->status != MIRT_OK) return;
    if (!cu->graphs) {
        cu->graphs = static_cast<mirt__cu_graphs *>(cu->host->calloc(1, sizeof *cu->graphs));
        if (!cu->graphs) return;
        cu->graphs->off = mirt__cu_switched_off("MIRT_CUDA_GRAPHS");
    }
    mirt__cu_graphs *graphs = cu->graphs;
    if (graphs->off) return;
    mirt__cu_graph *graph = graphs->now = mirt__cu_graph_of(cu, owner, key);
    if (graphs->again && graphs->again != graph)
        mirt__cu_fail(cu, MIRT_E_STATE, "work that was captured was not enqueued again");
    graphs->again = NULL;
    if (!graph || graph->eager || !graph->seen) return;
    cu->numbers_used = graphs->uploaded = 0;
    graph->at = 0;
    if (graph->ready) cu->mode = MIRT__CU_REFRESH;
    else mirt__cu_capture(cu, graph);
}

static bool mirt__cu_end(mirt__handle *cu) {
    mirt__cu_graph *graph = cu->graphs ? cu->graphs->now : NULL;
    mirt__cu_enter(cu);
    if (!graph || cu->mode == MIRT__CU_MEASURE) return true;
    if (cu->mode == MIRT__CU_CAPTURE) mirt__cu_captured(cu, graph);
    if (cu->mode == MIRT__CU_REFRESH && graph->ready) mirt__cu_graph_launch(cu, graph);
    const bool done = cu->mode == MIRT__CU_RUN || graph->ready || cu->status != MIRT_OK;
    graph->seen = true;
    graph->ready = graph->pieces > 0;
    cu->mode = MIRT__CU_RUN;
    cu->graphs->now = NULL;
    cu->graphs->again = done ? NULL : graph;
    return done;
}

/* All is to be done now: what waits in the middle cannot be a graph, and must not come here as one. */
static void mirt__cu_graphs_settle(mirt__cu *cu) {
    mirt__cu_graphs *graphs = cu->graphs;
    if (!graphs || cu->mode == MIRT__CU_MEASURE) return;
    if (cu->mode == MIRT__CU_CAPTURE) {
        cudaGraph_t captured = NULL;
        (void)mirt__cu_capture_end(cu, &captured);
        if (captured) (void)cudaGraphDestroy(captured);
        mirt__cu_graph_clear(cu, graphs->now);
    }
    if (cu->mode != MIRT__CU_RUN) mirt__cu_fail(cu, MIRT_E_STATE, "captured work was begun and not ended");
    else if (graphs->now) graphs->now->eager = true;
    if (graphs->again) mirt__cu_fail(cu, MIRT_E_STATE, "work that was captured was not enqueued again");
    cu->mode = MIRT__CU_RUN;
    graphs->now = graphs->again = NULL;
}

static void mirt__cu_graphs_drop(mirt__cu *cu, const void *owner) {
    for (mirt__cu_graph **at = &cu->graphs->list; *at;) {
        mirt__cu_graph *graph = *at;
        if (owner && graph->owner != owner) {
            at = &graph->next;
            continue;
        }
        *at = graph->next;
        mirt__cu_graph_clear(cu, graph);
        cu->host->free(graph);
    }
}

static void mirt__cu_forget(mirt__handle *cu, const void *owner) {
    mirt__cu_enter(cu);
    mirt__cu_graphs_settle(cu);
    if (!cu->lost) mirt__cu_settled(cu, cu->stream, NULL);
    (void)mirt__cu_frees(cu);
    if (cu->graphs) mirt__cu_graphs_drop(cu, owner);
    if (!cu->graphs || !cu->graphs->list) mirt__cu_constants_free(cu);
    (void)cudaGetLastError();
}

static void mirt__cu_graphs_free(mirt__cu *cu) {
    if (!cu->graphs) return;
    mirt__cu_graphs_settle(cu);
    mirt__cu_graphs_drop(cu, NULL);
    cu->host->free(cu->graphs);
    cu->graphs = NULL;
}
