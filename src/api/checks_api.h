#ifndef MIRT__CHECKS_API_H
#define MIRT__CHECKS_API_H
/* Checks of the machine and of a model. */

#include "models_api.h"

MIRT__BEGIN_C

/* >>checks -------------------------------------------------------------------------------- */
/* Threads: one at a time, that has the strategy. */

/* What this program, this machine and this strategy are, as one line of JSON: versions of library, compiler and C
   library, how the library was compiled and what is compiled in, the processor, its vector instructions and which
   kernels run, devices, replicas and threads, and those environment variables that change what runs. The same call in
   the same process gives the same text. Owned by the strategy, valid until the next call. NULL: MIRT_E_INVALID without
   a strategy, MIRT_E_NOMEM. */
MIRT_API const char *mirt_environment(mirt_strategy *strategy);

/* What this machine has for this process. Zero: unknown, or no such limit. */
typedef struct mirt_machine_info {
    int cores;                 /* as mirt_devices counts them: by the affinity mask and core_limit, rounded up */
    double core_limit;         /* the quota of its control groups, in cores: 1.5 is the time of one and a half */
    uint64_t memory_total;     /* bytes of the machine, */
    uint64_t memory_limit;     /* of the container, where that is less, */
    uint64_t memory_available; /* and of both what can be had now */
    double wake_seconds;       /* that waking threads takes, as measured when the first strategy started several with a
                                  core for each; 0: none has */
    double spin_seconds;       /* that threads therefore wait for each other before they sleep, if they have cores */
} mirt_machine_info;
/* Thread safe: any thread at any time. Reads what Linux says in /proc and /sys; elsewhere what sysconf says.
   MIRT_E_INVALID; MIRT_E_DEVICE as mirt_devices. */
MIRT_API mirt_status mirt_machine(mirt_machine_info *out);

#ifndef MIRRORTRAIN_NO_TRAIN
/* The largest global batch on which a training step (without a loss: predicting) takes no more than `bytes_per_device`
   times the devices, by mirt_plan_memory: one sample more takes more. 0: what mirt_machine says is available. Data
   sets' own memory is not in the plan. At most 2^30. Returns 0 on errors: MIRT_E_NOMEM when not one sample fits; and
   those of mirt_plan_memory. */
MIRT_API int64_t mirt_largest_batch(mirt_model *model, uint64_t bytes_per_device);

/* Whether all devices' copies of the weights are the same in every bit, by a 64-bit hash of each, at the speed of
   memory: MIRT_E_DRIFT names the device and its replicas (of two copies the second, otherwise one unlike most), the
   first weight that differs, and both values. Memory that failed, or code that wrote where it should not. mirt_fit asks
   by itself (mirt_fit_desc.check_drift_every). MIRT_E_STATE. */
MIRT_API mirt_status mirt_check_drift(mirt_model *model);
#endif

MIRT__END_C

#endif /* MIRT__CHECKS_API_H */
