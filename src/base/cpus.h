#ifndef MIRT__CPUS_H
#define MIRT__CPUS_H
/* The cores that this process may use, and the sockets that they belong to. */

#include "base.h"

enum { MIRT__MAX_CPUS = 4096, MIRT__AFFINITY = 8192 };

/* A set of cores. Each thread that a core executes at the same time (SMT) counts as a core, as Linux numbers them. */
struct mirt__cpus {
    uint64_t bits[MIRT__MAX_CPUS / 64];
};

/* Reads a list such as "0-3,8". Returns the number of cores; 0: the list is empty, malformed, or has numbers from
   MIRT__MAX_CPUS on. */
MIRT__LIB int mirt__cpus_read(mirt__cpus *out, const char *list);

/* What a process has of a machine. */
typedef struct mirt__cores {
    mirt__cpus usable; /* by its affinity mask, and online; empty: unknown */
    int count;         /* of them, but no more than `limit` rounded up */
    int fast;          /* of `count`, without the efficiency cores of a hybrid processor */
    double limit;      /* the time of so many cores: `count`, or the quota of its control groups */
} mirt__cores;
/* False (MIRT_E_DEVICE): the environment variable MIRT_CORES, which replaces the numbers, is invalid. */
MIRT__LIB bool mirt__cores_find(mirt__cores *out);
/* The `count` that the first call found, or MIRT_CORES; 0: as above. */
MIRT__LIB int mirt__cpu_cores(void);
/* The sockets, at most `most`, on which one device each has the most threads, with the usable cores of each in
   `socket`; *threads: of each device. Returns their number: 1 (`socket` is not set) if several devices would not have
   more threads than one; *why says why. */
MIRT__LIB int mirt__sockets_find(const mirt__cores *cores, mirt__cpus *socket, int most, int *threads,
                                 const char **why);

/* The affinity mask of the calling thread, as a list, in MIRT__AFFINITY bytes; "": unknown. */
MIRT__LIB void mirt__affinity(char *list, size_t size);
/* The control groups' quota in cores; 0: none. */
MIRT__LIB double mirt__core_quota(void);
/* Reads the beginning of a file below /sys or /proc as text; "": there is none. The environment variable MIRT_SYSFS
   names a directory that replaces /sys; its "proc" replaces /proc. */
MIRT__LIB void mirt__system_text(const char *path, char *text, size_t size);

/* The calling thread runs on `cpus` alone; nothing happens where the system does not support it. */
MIRT__LIB void mirt__pin(const mirt__cpus *cpus);
/* The same until mirt__pin_end; NULL: nothing happens. */
typedef struct mirt__pinned {
    mirt__cpus before;
    bool done;
} mirt__pinned;
MIRT__LIB void mirt__pin_begin(mirt__pinned *pinned, const mirt__cpus *cpus);
MIRT__LIB void mirt__pin_end(const mirt__pinned *pinned);

#endif
