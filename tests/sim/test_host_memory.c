/* Tests tests/gpu/host_memory.c on machines that refuse to register memory. Each machine is this program once more, as
   what it does comes before main. */
#include "../gpu/host_memory.c"

#include "../tap.h"
#include <sys/wait.h>
#include <unistd.h>

enum { REGISTERS = 1, PAGEABLE = 2, MANAGED = 4, ELSEWHERE = 8 };
static int machine(void) {
    const char *given = getenv("MIRT_TEST_MACHINE");
    return given ? atoi(given) : REGISTERS;
}
static char managed[1] = {0};
static int registered;

/* A machine's runtime. */
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags) {
    (void)memory, (void)bytes, (void)flags;
    registered++;
    return machine() & (REGISTERS | ELSEWHERE) ? cudaSuccess : cudaErrorNotSupported;
}
cudaError_t cudaHostGetDevicePointer(void **there, void *memory, unsigned flags) {
    (void)flags;
    *there = machine() & ELSEWHERE ? managed : memory;
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error == cudaErrorNotSupported ? "not supported" : "?"; }
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    (void)device;
    *value = attribute == cudaDevAttrPageableMemoryAccess && machine() & PAGEABLE;
    return cudaSuccess;
}
cudaError_t cudaMallocManaged(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    if (!(machine() & MANAGED)) return cudaErrorMemoryAllocation;
    *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *memory == MAP_FAILED ? cudaErrorMemoryAllocation : cudaSuccess;
}

/* What a machine prints, and its exit status. */
static int run(int kind, char *said, size_t room) {
    char command[64];
    size_t got = 0;
    snprintf(command, sizeof command, "MIRT_TEST_MACHINE=%d exec /proc/%d/exe child", kind, (int)getpid());
    FILE *child = popen(command, "r");
    if (!child) return -1;
    got = fread(said, 1, room - 1, child);
    said[got] = 0;
    for (char *end = strchr(said, '\n'); end; end = strchr(said, '\n')) *end = ' ';
    const int status = pclose(child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int count, char **arguments) {
    static const struct {
        int kind, status;
        const char *text;
    } machines[] = {{REGISTERS, 0, "2 registered, memory is good"},
                    {PAGEABLE, 0, "cannot be registered: not supported; the device reads pageable memory"},
                    {MANAGED, 0, "cannot be registered: not supported; what is allocated is managed memory"},
                    {ELSEWHERE | MANAGED, 0, "another address there; what is allocated is managed memory"},
                    {0, 1, "Bail out! the host's memory cannot be the device's: not supported"}};
    char said[500];
    if (count > 1 && strcmp(arguments[1], "child") == 0) {
        mirt_sim_host_memory(1);
        char *memory = (char *)__wrap_malloc(100), *more = (char *)__wrap_realloc(memory, 5000);
        if (more) memset(more, 1, 5000);
        printf("%d registered, memory is %s\n", registered, inside(more) ? "good" : "elsewhere");
        __wrap_free(more);
        return !inside(more);
    }
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const int status = run(machines[i].kind, said, sizeof said);
        ok(status == machines[i].status && strstr(said, machines[i].text), "machine %d ends with %d: %s",
           machines[i].kind, status, said);
    }
    return done_testing();
}
