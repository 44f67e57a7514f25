/* Tests of single kernels give them the host's memory. A simulated device takes any but the stack; a real one takes
   what is registered: the program's data, and what malloc gives, which comes from one block here (linked with --wrap).
   Such memory is the device's under the same address. Where registering is refused, a device that reads pageable memory
   needs none; else the block is managed memory, and tests whose buffers are the program's data fail. */
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <pthread.h>

enum { HEAD = 64 };
static const size_t block_bytes = (size_t)1 << 30;
static char *block, *next;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *__real_malloc(size_t bytes);
void __real_free(void *memory);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t bytes);
void __wrap_free(void *memory);
void mirt_sim_host_memory(int on);
extern char __data_start[], _end[];

static int inside(const void *memory) {
    return block && (const char *)memory >= block && (const char *)memory < block + block_bytes;
}

/* Pieces by sizes of powers of two; those given back are lists. */
static void *free_list[48];
static int class_of(size_t bytes) {
    int k = 6;
    while (((size_t)1 << k) < bytes + HEAD) k++;
    return k;
}

void *__wrap_malloc(size_t bytes) {
    if (!block) return __real_malloc(bytes);
    const int k = class_of(bytes);
    pthread_mutex_lock(&lock);
    char *piece = (char *)free_list[k];
    if (piece) {
        memcpy(&free_list[k], piece + HEAD, sizeof(void *));
    } else if (next + ((size_t)2 << k) <= block + block_bytes) {
        piece = next;
        next += (size_t)1 << k;
    }
    pthread_mutex_unlock(&lock);
    if (!piece) return NULL;
    memcpy(piece, &bytes, sizeof bytes);
    return piece + HEAD;
}

void __wrap_free(void *memory) {
    size_t bytes;
    if (!inside(memory)) {
        __real_free(memory);
        return;
    }
    char *piece = (char *)memory - HEAD;
    memcpy(&bytes, piece, sizeof bytes);
    const int k = class_of(bytes);
    pthread_mutex_lock(&lock);
    memcpy(piece + HEAD, &free_list[k], sizeof(void *));
    free_list[k] = piece;
    pthread_mutex_unlock(&lock);
}

void *__wrap_calloc(size_t count, size_t size) {
    if (size && count > SIZE_MAX / size) return NULL;
    void *memory = __wrap_malloc(count * size + sizeof(void *));
    if (memory) memset(memory, 0, count * size);
    return memory;
}

void *__wrap_realloc(void *memory, size_t bytes) {
    size_t old;
    if (!memory) return __wrap_malloc(bytes);
    if (!inside(memory)) return __real_realloc(memory, bytes);
    memcpy(&old, (char *)memory - HEAD, sizeof old);
    void *larger = __wrap_malloc(bytes);
    if (!larger) return NULL;
    memcpy(larger, memory, old < bytes ? old : bytes);
    __wrap_free(memory);
    return larger;
}

/* The device's, at the same address. */
static const char *share(char *begin, size_t bytes) {
    void *there = NULL;
    cudaError_t error = cudaHostRegister(begin, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error == cudaSuccess) error = cudaHostGetDevicePointer(&there, begin, 0);
    (void)cudaGetLastError();
    if (error != cudaSuccess) return cudaGetErrorString(error);
    return there == begin ? NULL : "it has another address there";
}

static const char *share_data(void) {
    const uintptr_t page = 4096, begin = (uintptr_t)__data_start & ~(page - 1),
                    end = ((uintptr_t)_end + page - 1) & ~(page - 1);
    return share((char *)begin, end - begin);
}

/* Why the device cannot have the host's memory, and what is done instead; NULL: it has it. */
static const char *refused, *instead;

/* Before main, so that nothing of the tests is elsewhere. */
__attribute__((constructor)) static void make_block(void) {
    int pageable = 0;
    void *made = mmap(NULL, block_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return;
    refused = share_data();
    if (!refused) refused = share((char *)made, block_bytes);
    if (refused && cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, 0) == cudaSuccess && pageable) {
        instead = "the device reads pageable memory";
    } else if (refused) {
        munmap(made, block_bytes);
        if (cudaMallocManaged(&made, block_bytes, cudaMemAttachGlobal) != cudaSuccess) return;
        instead = "what is allocated is managed memory, the program's data are not the device's";
    }
    next = (char *)made;
    block = (char *)made;
}

/* What sim_kernels.c asks for before it opens the device: from here on memory is the device's, too. */
void mirt_sim_host_memory(int on) {
    (void)on;
    if (block && refused) printf("# the host's memory cannot be registered: %s; %s\n", refused, instead);
    if (block) return;
    printf("Bail out! the host's memory cannot be the device's: %s\n", refused ? refused : "there is too little");
    fflush(stdout);
    _Exit(1);
}
