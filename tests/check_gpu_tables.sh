#!/bin/sh
# Checks the GPU backend's occupancy, tensor instructions and use of cuBLAS, without a GPU.
#
#   tests/check_gpu_tables.sh ARCHITECTURE LOG OBJECT      as 90, and what nvcc -Xptxas -v printed and made
#
# No limit of an integer is one that ptxas 13.0 gets wrong (tools/sass.py). Kernels with more than 1 % of the modeled
# step of one of three networks have at least 12 warps per processor. Tensor instructions are a quarter of the loops of
# products, and 0.15 of those that transform what they multiply. Exceptions are in tests/gpu_exceptions.txt. Tables are
# written to build/cuda: limits_sm_90.txt, occupancy_sm_90.md, tensor_sm_90.md, library.md.
# With QUICK in the environment build/sim/launches is not made, but used if it is up to date.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
if [ $# -ne 3 ]; then
    echo "usage: tests/check_gpu_tables.sh ARCHITECTURE LOG OBJECT" >&2
    exit 2
fi
a=$1 log=$2 object=$3 tables=build/cuda
mkdir -p "$tables"

# NAME FILE COMMAND...: as tap_check, but what the command prints is kept.
keeps() {
    name=$1 file=$2
    shift 2
    "$@" >"$file" 2>&1
    status=$?
    if [ $status -eq 77 ]; then
        tap_skip "$(cat "$file")"
    elif [ $status -eq 0 ]; then
        tap_ok "$name"
    else
        grep ': too \(few\|little\|many\)$\|is not needed$\|^\(sass\|occupancy\): ' "$file" >"$tmp/out"
        tap_not_ok "$name" "$tmp/out"
    fi
}

# The products of 16 bits: with TF32 a tensor instruction does half as much.
keeps "sm_$a: the share of tensor instructions in loops of products" "$tables/tensor_sm_$a.md" python3 tools/sass.py \
    --object "$object" --log "$log" --kernels 'multiply_kernelI.*Li[23]ELb|panel_kernelI|copied_wgrad_kernelILb' \
    --architecture "$a" --plain 0.25 --transforms 0.15 --exceptions tests/gpu_exceptions.txt

keeps "sm_$a: no comparison of a limit is used" "$tables/limits_sm_$a.txt" python3 tools/sass.py --object "$object" \
    --log "$log" --limits

if [ -z "${QUICK-}" ]; then
    make --no-print-directory build/sim/launches >"$tmp/make" 2>&1 || rm -f build/sim/launches
fi
newer=$(find src mirrortrain.h tests/sim/launches.c -newer build/sim/launches 2>&1)
if [ -n "$newer" ]; then
    tap_skip "build/sim/launches is not up to date: launches are not recorded"
    [ ! -s "$tmp/make" ] || tail -5 "$tmp/make" | sed 's/^/# /'
    tap_done
fi
records=
for step in resnet50:train mobilenet_v2:train efficientnet_v2_m:train efficientnet_v2_m:predict; do
    record=$tables/${step%:*}_${step#*:}.sm_$a.launches
    tap_check "sm_$a: $step: a step of 256 images is recorded" sh -c "MIRT_SIM_CAPABILITY=$a MIRT_SIM_SKIP=1 \
        MIRT_SIM_MEMORY=140e9 build/sim/launches ${step%:*} ${step#*:} >$record && tail -1 $record | grep -q '^end$'"
    records="$records $record"
done
keeps "sm_$a: launches with more than 1 % of the modeled step have 12 warps per processor" \
    "$tables/occupancy_sm_$a.md" python3 tools/occupancy.py $records --log "$log" --architecture "$a" --least 12 \
    --share 0.01 --exceptions tests/gpu_exceptions.txt
grep ': [0-9]* warps, ' "$tables/occupancy_sm_$a.md" | sed 's/^/# /'
keeps "sm_$a: convolutions that reach cuBLAS" "$tables/library.md" python3 tools/occupancy.py $records --library
sed 's/^/# /' "$tables/library.md"
tap_done
