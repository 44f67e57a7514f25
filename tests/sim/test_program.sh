#!/bin/sh
# The program on simulated GPUs. Its commands see them, run on them, and use none after a fork.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/tap.sh"
program=$root/build/sim/mirrortrain
MIRT_SIM_DEVICES=2
export MIRT_SIM_DEVICES
unset MIRT_SIM_SEED
cd "$tmp" || exit 2

# DESCRIPTION PATTERN ARGUMENTS...: it ends well, and says so.
says() {
    name=$1 pattern=$2
    shift 2
    if "$program" "$@" >"$tmp/out" 2>&1 && grep -q "$pattern" "$tmp/out"; then
        tap_ok "$name"
    else
        tap_not_ok "$name" "$tmp/out"
    fi
}
says "devices lists them" '^gpu:1 .*sm_90' devices
says "doctor knows them, and their kernels" '^ok *kernels *cuda$' doctor
# How many tensors of a step are lazy, by what MIRT_CUDA_STORE says.
lazy() {
    MIRT_CUDA_STORE=$1 "$program" graph --devices gpu:0 --model mobilenet_v2 --size 32 --costs 2>"$tmp/out" |
        grep -c ' lazy '
}
none=$(lazy none) auto=$(lazy auto) all=$(lazy all)
if [ "$none" -gt "$auto" ] && [ "$auto" -gt 0 ] && [ "$all" -eq 0 ]; then
    tap_ok "graph --costs: $none lazy tensors, by costs $auto, and none if all are stored"
else
    tap_not_ok "graph --costs: $none lazy tensors, by costs $auto, $all if all are stored" "$tmp/out"
fi
says "bench keeps the batch on the device" 'images_per_second=.* devices=1 .* steps=2$' bench --devices gpu:0 --batch 4 \
    --steps 2
says "bench --feed sends it" 'feed=on$' bench --devices gpu:0,gpu:1 --batch 4 --steps 2 --feed
says "bench of several batches runs each in a child" 'batch=6 ' bench --devices gpu:0 --batch 4,6 --steps 2
MIRT_DEVICES=gpu
export MIRT_DEVICES
says "scaling measures each number in a child" '^ *2 ' scaling --device-counts 1,2 --batch 8 --seconds 1

# What the driver says of them comes into the log and the event files; without it, or where it says nothing, the rest.
# RUN WRONG: fits into the directory RUN, where WRONG does not work.
driven() {
    MIRT_FAKE_NVML=$2 LD_LIBRARY_PATH=$root/build/sim/nvml "$program" fit --devices gpu:0,gpu:1 --batch 32 --epochs 1 \
        --max-steps 4 --run "$1" --report --tensorboard >"$tmp/out" 2>&1
}
# DESCRIPTION RUN EXPRESSION: of the devices in the log.
logged() {
    if python3 - "$2/log.jsonl" "$3" <<'END' >>"$tmp/out" 2>&1
import json, sys
d = [line["use"]["devices"] for line in map(json.loads, open(sys.argv[1])) if "use" in line][-1]
print(d)
sys.exit(not eval(sys.argv[2]))
END
    then tap_ok "$1"; else tap_not_ok "$1" "$tmp/out"; fi
}
driven nvml none
logged "the log has utilization, memory and power of each device, by its bus" nvml '[(
    one["name"], one["utilization"], one["used_bytes"], one["all_bytes"], one["watts"]) for one in d] == [
    ("gpu:0", 0.41, 1 << 30, 80 << 30, 101.5), ("gpu:1", 0.42, 2 << 30, 80 << 30, 102.5)]'
tap_check "the event files, too" grep -q 'driver_watts/gpu:1' nvml/tensorboard/train/*
tap_check "and the report" grep -q '<h3>Power in watts</h3>' nvml/report.html
for wrong in init find; do
    driven "$wrong" "$wrong"
    logged "NVML fails to $wrong: the log has the rest" "$wrong" \
        'len(d) == 2 and all("busy" in one and "watts" not in one and "used_bytes" not in one for one in d)'
done
driven rates rates
logged "no utilization, as of parts of a GPU: the others" rates \
    'all("utilization" not in one and one["watts"] > 100 for one in d)'
driven power power
logged "no power: the others" power 'all("watts" not in one and one["utilization"] > 0.4 for one in d)'
driven memory memory
logged "no memory: the others" memory 'all("used_bytes" not in one and one["watts"] > 100 for one in d)'

# Processes without MPI divide the GPUs, and NCCL, whose id goes by TCP, joins them.
train() { MIRT_SIM_DEVICES=4 "$program" fit --replicas 4 --batch 32 --epochs 1 --max-steps 4 --save "$1.safetensors"; }
mkdir "$tmp/together"
train one >"$tmp/one.txt" 2>&1
for process in 0 1; do
    RANK=$process WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$((10000 + $$ % 9000)) \
        MIRT_SIM_TOGETHER=$tmp/together train two >"$tmp/two.$process" 2>&1 &
done
wait
tap_check "two processes of two GPUs train" grep -q 'process 0 of 2 on 1 host, with 2 GPUs' "$tmp/two.0"
tap_check "with the bits of one of four" sh -c 'test -s "$0" && cmp "$0" "$1"' one.safetensors two.safetensors
tap_done
