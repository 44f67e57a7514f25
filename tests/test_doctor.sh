#!/bin/sh
# Tests mirrortrain doctor with and without faults, and the largest batch of summary.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
program=${MIRRORTRAIN:-$PWD/build/mirrortrain}
cc=${CC:-cc}
cd "$tmp" || exit 2

# DESCRIPTION STATUS PATTERN COMMAND...: exit status, and a line that stdout or stderr holds.
says() {
    what=$1 wanted=$2 pattern=$3
    shift 3
    "$@" >said 2>&1 </dev/null
    status=$?
    if [ $status -eq "$wanted" ] && grep -q -- "$pattern" said; then tap_ok \
        "$what: $(grep -- "$pattern" said | head -n 1)"; else tap_not_ok "$what: status $status" said; fi
}
doctor() { says "$1" "$2" "$3" "$program" doctor "$tmp"; }

doctor "a sound machine" 0 '^doctor: [0-9]* ok, [0-9]* warnings*, 0 failed$'
if grep -vqE '^(ok|warning|FAILED) +[a-z-]+ +[^ ]|^doctor: ' said; then tap_not_ok "each line has a verdict" said; \
    else tap_ok "each line has a verdict"; fi
for what in program system processor kernels gpu memory disk clock threads waiting all-reduce images variables; do
    tap_check "it looks at: $what" grep -qE "^(ok|warning) +$what " said
done
tap_check "it leaves no file" test -z "$(find . -name '.mirrortrain*')"
says "a directory that is not there" 1 '^FAILED *disk .*/no/such: cannot create a file there: No such' "$program" \
    doctor /no/such
says "a disk that is full" 1 '^FAILED *disk .*cannot write' sh -c "ulimit -f 64; '$program' doctor '$tmp'"
tap_check "what was begun there is gone" test -z "$(find . -name '.mirrortrain*')"
says "two directories" 2 'checks one directory, not 2' "$program" doctor a b
MIRT_CPU=plain doctor "slow kernels" 0 '^warning *kernels *plain, though .*unset MIRT_CPU$\|^ok *kernels *plain'
MIRT_CPU=plain doctor "a variable that changes what runs" 0 '^warning *variables .*"MIRT_CPU": "plain"'
MIRT_CORES=none doctor "cores that are not a number" 1 '^FAILED *devices .*MIRT_CORES'
MIRT_CORES=1 doctor "one core" 0 '^ok *all-reduce *one device'
if command -v taskset >/dev/null; then
    says "a process bound to one core" 0 '^ok *processor .*, 1 core$' taskset -c 0 "$program" doctor "$tmp"
fi
mkdir -p tree/fs/cgroup tree/devices/system/cpu
echo 0-63 >tree/devices/system/cpu/online
echo 150000 100000 >tree/fs/cgroup/cpu.max
MIRT_SYSFS=tree doctor "a container with a quota" 0 '^ok *processor .*, 2 cores: the container is limited .* of 1.5$'
tap_check "whose threads do not spin" grep -q '^ok *waiting *threads sleep at once' said
MIRT_SYSFS=tree MIRT_CORES=64 doctor "more cores than the quota" 0 '^warning *processor .*MIRT_CORES is 64, but .* 1.5 '
MIRT_CORES=3 doctor "three devices" 0 '^ok *all-reduce *1 MB summed over 3 devices .*bit-identical'

# A driver made of C.
cat >nvml.c <<'END'
#include <stdio.h>
#include <stdlib.h>
int nvmlInit_v2(void) { return getenv("NVML_FAILS") ? 18 : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { return snprintf(text, length, "999.1") < 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = getenv("NVML_NONE") ? 0 : 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) { *device = (void *)(size_t)(i + 1); return i == 1 ? 15 : 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned length) { return snprintf(text, length, "Abacus %d", (int)(size_t)device) < 0; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *m) { (void)device; m[0] = 80000000000; m[1] = 79000000000; m[2] = m[0] - m[1]; return 0; }
END
if [ "$(uname)" = Linux ] && $cc -shared -fPIC nvml.c -o libnvidia-ml.so.1 2>/dev/null; then
    LD_LIBRARY_PATH=$tmp
    export LD_LIBRARY_PATH
    doctor "a GPU" 0 '^ok *gpu *gpu:0 Abacus 1, 80.0 GB, 79.0 free, driver 999.1'
    tap_check "which this build has no code for" grep -q '^ok *gpu .*idle, .*this build has no GPU code' said
    tap_check "and one that does not answer" grep -q '^warning *gpu *gpu:1 does not respond' said
    NVML_FAILS=1 doctor "a driver that does not answer" 0 '^warning *gpu *NVIDIA.*(code 18)'
    NVML_NONE=1 doctor "no GPU in the container" 0 '^warning *gpu *driver 999.1, but no GPU'
    unset LD_LIBRARY_PATH
else
    tap_skip "GPUs: no shared libraries here"
fi

says "the largest batch of what is free" 0 'a global batch of [0-9]* fits into [0-9.]* GB of free memory$' "$program" \
    summary
says "the largest batch of a device's memory" 0 'a global batch of [0-9]* fits into 2.00 GB$' "$program" summary \
    --devices 2 --memory 1G
says "too little memory" 0 'not one sample fits' "$program" summary --memory 100K
says "no number of bytes" 2 'must be a number of bytes, such as 800M or 8G$' "$program" summary --memory 1Q
tap_done
