/* Real NCCL between two processes on one GPU. Separate host identifiers make NCCL take them for two machines. The sum
   by chunks that travel there and back, as the fixed tree of two does it, has the bits of NCCL's own all-reduce. Ends
   after LIMIT seconds. */
#include <stdio.h>
#ifdef MIRRORTRAIN_NO_NCCL
int main(void) { return printf("1..0 # SKIP there is no NCCL\n") < 0; }
#else
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 1 << 20, HALF = COUNT / 2, LIMIT = 90 };

static __global__ void add(float *into, const float *from, int count) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) into[i] = __fadd_rn(into[i], from[i]);
}

static int rank;
static void check_cuda(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    printf("# process %d, %s: %s\n", rank, what, cudaGetErrorString(error));
    exit(1);
}
static void check_nccl(ncclResult_t result, const char *what) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    printf("# process %d, %s: %s (%s)\n", rank, what, ncclGetErrorString(result), ncclGetLastError(NULL));
    exit(1);
}
static void settle(ncclComm_t comm, const char *what) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) check_nccl(ncclCommGetAsyncError(comm, &state), what);
    check_nccl(state, what);
}

static int run(int id_to, int id_from) {
    ncclUniqueId id;
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    cudaStream_t stream;
    float *own, *other, *sum, *host = (float *)malloc(2 * COUNT * sizeof(float));
    alarm(LIMIT);
    setenv("NCCL_HOSTID", rank ? "second" : "first", 1);
    check_cuda(cudaSetDevice(0), "choosing the GPU");
    if (rank == 0) check_nccl(ncclGetUniqueId(&id), "making an identifier");
    if (rank == 0 ? write(id_to, &id, sizeof id) != (ssize_t)sizeof id
                  : read(id_from, &id, sizeof id) != (ssize_t)sizeof id)
        return 1;
    config.blocking = 0;
    config.maxCTAs = 2;
    check_nccl(ncclCommInitRankConfig(&comm, 2, id, rank, &config), "joining");
    settle(comm, "joining");
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    check_cuda(cudaMalloc((void **)&own, COUNT * sizeof(float)), "memory");
    check_cuda(cudaMalloc((void **)&other, COUNT * sizeof(float)), "memory");
    check_cuda(cudaMalloc((void **)&sum, COUNT * sizeof(float)), "memory");
    srand(5 + (unsigned)rank);
    for (int i = 0; i < COUNT; i++) host[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    check_cuda(cudaMemcpyAsync(own, host, COUNT * sizeof(float), cudaMemcpyHostToDevice, stream), "copying");

    check_nccl(ncclAllReduce(own, sum, COUNT, ncclFloat, ncclSum, comm, stream), "adding");
    settle(comm, "adding");
    /* The other's half of mine travels there, my half of the other's comes; added up, the sums of halves travel
       back. */
    float *mine = own + rank * HALF, *theirs = own + (1 - rank) * HALF;
    check_nccl(ncclGroupStart(), "beginning");
    check_nccl(ncclSend(theirs, HALF, ncclFloat, 1 - rank, comm, stream), "sending");
    check_nccl(ncclRecv(other, HALF, ncclFloat, 1 - rank, comm, stream), "receiving");
    check_nccl(ncclGroupEnd(), "exchanging");
    settle(comm, "exchanging");
    add<<<(HALF + 255) / 256, 256, 0, stream>>>(mine, other, HALF);
    check_nccl(ncclGroupStart(), "beginning");
    check_nccl(ncclSend(mine, HALF, ncclFloat, 1 - rank, comm, stream), "sending");
    check_nccl(ncclRecv(theirs, HALF, ncclFloat, 1 - rank, comm, stream), "receiving");
    check_nccl(ncclGroupEnd(), "gathering");
    settle(comm, "gathering");
    check_cuda(cudaMemcpyAsync(host, sum, COUNT * sizeof(float), cudaMemcpyDeviceToHost, stream), "copying");
    check_cuda(cudaMemcpyAsync(host + COUNT, own, COUNT * sizeof(float), cudaMemcpyDeviceToHost, stream), "copying");
    check_cuda(cudaStreamSynchronize(stream), "waiting");
    const int same = memcmp(host, host + COUNT, COUNT * sizeof(float)) == 0;
    if (!same) printf("# process %d: chunks and all-reduce differ\n", rank);
    (void)ncclCommAbort(comm);
    fflush(stdout);
    return !same;
}

int main(void) {
    int ends[2], status = 1, version = 0;
    if (pipe(ends) != 0) return 1;
    const pid_t child = fork(); /* before anything of CUDA's */
    if (child < 0) return 1;
    rank = child == 0;
    const int failed = run(ends[1], ends[0]);
    if (child == 0) _exit(failed);
    if (waitpid(child, &status, 0) != child) status = 1;
    (void)ncclGetVersion(&version);
    printf("%sok 1 - NCCL %d.%d.%d between two processes on one GPU: chunks there and back have the bits of its "
           "all-reduce\n1..1\n",
           failed || status ? "not " : "", version / 10000, version / 100 % 100, version % 100);
    return failed || status;
}
#endif
