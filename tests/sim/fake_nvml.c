/* Stands for NVIDIA's management library in tests: numbers that depend on the bus. MIRT_FAKE_NVML: what goes wrong. */
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
EXPORT int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2]);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]);
EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);

/* Numbers 1 to 15: buses 0000:01:00.0 and up, and the device's address. */
static char devices[16];
static int started;

static int fails(const char *what) {
    const char *wanted = getenv("MIRT_FAKE_NVML");
    return wanted && strcmp(wanted, what) == 0;
}

static unsigned number_of(const void *device) { return (unsigned)((const char *)device - devices); }

int nvmlInit_v2(void) {
    if (fails("init")) return 9; /* the driver is not loaded */
    started++;
    return 0;
}

int nvmlShutdown(void) {
    if (--started < 0) abort();
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
    const unsigned long number = strncmp(bus, "0000:", 5) == 0 ? strtoul(bus + 5, NULL, 16) : 0;
    if (fails("find") || number < 1 || number > 15) return 6; /* not found */
    *device = devices + number;
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned out[2]) {
    if (fails("rates")) return 3; /* not supported, as on a part of a GPU */
    out[0] = 40 + number_of(device);
    out[1] = 7;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]) {
    if (fails("memory")) return 3;
    out[0] = 80ull << 30;
    out[1] = (80ull << 30) - ((unsigned long long)number_of(device) << 30);
    out[2] = (unsigned long long)number_of(device) << 30;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    if (fails("power")) return 3;
    *milliwatts = 100500 + 1000 * number_of(device);
    return 0;
}
