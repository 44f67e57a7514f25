/* What the driver says about a GPU, by NVIDIA's management library (NVML). */
#include "cuda.cuh"

#include <dlfcn.h>

/* The functions used; their types are plain integers and pointers, and 0 is success. The library belongs to the driver:
   it is loaded when somebody asks for the first time, and nothing is known where it is missing. */
struct mirt__cu_nvml {
    void *library, *device;
    int (*init)(void);
    int (*shutdown)(void);
    int (*find)(const char *bus, void **device);
    int (*rates)(void *device, unsigned out[2]);             /* percent of time: kernels, memory */
    int (*memory)(void *device, unsigned long long out[3]); /* bytes: total, free, used */
    int (*power)(void *device, unsigned *milliwatts);
};

static bool mirt__cu_nvml_load(mirt__cu_nvml *n) {
    const struct {
        const char *name;
        void *function;
    } all[] = {{"nvmlInit_v2", &n->init},
               {"nvmlShutdown", &n->shutdown},
               {"nvmlDeviceGetHandleByPciBusId_v2", &n->find},
               {"nvmlDeviceGetUtilizationRates", &n->rates},
               {"nvmlDeviceGetMemoryInfo", &n->memory},
               {"nvmlDeviceGetPowerUsage", &n->power}};
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; n->library && i < sizeof all / sizeof all[0]; i++) {
        void *symbol = dlsym(n->library, all[i].name);
        memcpy(all[i].function, &symbol, sizeof symbol);
        if (!symbol) return false;
    }
    return n->library && n->init() == 0;
}

static void mirt__cu_nvml_close(mirt__cu *cu) {
    if (!cu->nvml) return;
    cu->nvml->shutdown();
    dlclose(cu->nvml->library);
    cu->host->free(cu->nvml);
    cu->nvml = NULL;
}

/* The numbers of devices are the program's in CUDA and the machine's in NVML; the bus is the same in both. */
static bool mirt__cu_nvml_open(mirt__cu *cu) {
    char bus[64];
    if (cu->nvml || cu->nvml_tried) return cu->nvml != NULL;
    cu->nvml_tried = true;
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, cu->index) != cudaSuccess) return (void)cudaGetLastError(), false;
    mirt__cu_nvml *n = static_cast<mirt__cu_nvml *>(cu->host->calloc(1, sizeof *n));
    if (!n) return false;
    if (!mirt__cu_nvml_load(n)) {
        if (n->library) dlclose(n->library);
        cu->host->free(n);
        return false;
    }
    cu->nvml = n;
    if (n->find(bus, &n->device) == 0) return true;
    mirt__cu_nvml_close(cu);
    return false;
}

static bool mirt__cu_gauge(mirt__handle *cu, mirt__gauges *out) {
    unsigned percent[2] = {0, 0}, milliwatts = 0;
    unsigned long long bytes[3] = {0, 0, 0};
    if (cu->lost || !mirt__cu_nvml_open(cu)) return false;
    const mirt__cu_nvml *n = cu->nvml;
    out->utilization = n->rates(n->device, percent) == 0 ? percent[0] / 100.0 : -1;
    const bool memory = n->memory(n->device, bytes) == 0;
    out->all_memory = memory ? static_cast<double>(bytes[0]) : -1;
    out->memory = memory ? static_cast<double>(bytes[2]) : -1;
    out->watts = n->power(n->device, &milliwatts) == 0 ? milliwatts / 1000.0 : -1;
    return true;
}
