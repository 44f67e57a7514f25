#!/bin/bash
# Processes end with the bits of one process. MPI: openmpi, mpich, or tcp, without mpirun; LAYOUTS: each
# PROCESSES:DEVICES[:SHARES].
source=$(cd "$(dirname "$0")/.." && pwd)
. "$source/tests/tap.sh"
kind=${MPI:-openmpi}
layouts=${LAYOUTS:-1:2 2:1 2:2 3:1 3:2 5:1 4:1:3,1,2,2 2:2:1,3}
engine=mirrortrain_mpi.c compiler=$(command -v "mpicc.$kind") mpirun=$(command -v "mpirun.$kind")
# -n NUMBER COMMAND...: as torchrun starts processes. Returns the status of one that failed.
start() {
    local number=$2 pids="" status=0
    shift 2
    for ((process = 0; process < number; process++)); do
        RANK=$process WORLD_SIZE=$number MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 10000)) "$@" &
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || status=$?; done
    return $status
}
if [ "$kind" = tcp ]; then
    engine="-DMIRRORTRAIN_TCP mirrortrain_tcp.c" compiler=${CC:-cc} mpirun=start
fi
if [ -z "$compiler" ] || [ -z "$mpirun" ]; then
    tap_skip "no $kind: apt-get install openmpi-bin libopenmpi-dev, or mpich libmpich-dev"
    tap_done
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_hwloc_base_binding_policy=none
program=$tmp/scenes
# shellcheck disable=SC2086
(cd "$source" && "$compiler" -std=c11 -O2 -w -I. -Itests tests/mpi_scenes.c $engine -o "$program" -lm -lpthread)
photos=$(TMPDIR=$tmp "$program" -)
"$program" "$photos" 1 "$tmp/alone"
mv "$tmp/alone.0.of.1" "$tmp/one"
sed -n 's/^ *{\.name.*\.replicas = \([0-9]*\),.*/\1/p' "$source/tests/scenes.h" >"$tmp/replicas"
scenes=$(wc -l <"$tmp/replicas")
tap_check "$kind: one process trains $scenes scenes" test "$scenes" -gt 0 -a "$(wc -l <"$tmp/one")" -eq "$scenes" \
    -a "$(grep -c 'status 0' "$tmp/one")" -eq "$scenes"
for layout in $layouts; do
    IFS=: read -r processes devices shares <<<"$layout"
    # shellcheck disable=SC2086
    "$mpirun" -n "$processes" timeout 300 "$program" "$photos" "$devices" "$tmp/got" $shares >"$tmp/err" 2>&1
    status=$?
    # All processes say the same of a scene. One with fewer replicas than there are devices is refused, and one with
    # fewer than make a whole replica of each share may be.
    each=${shares:-$processes}
    few=$(awk -v enough=$((devices * (${each//,/+}))) '$1 < enough' "$tmp/replicas" | wc -l)
    if [ -z "$shares" ]; then least=$few; else least=0; fi
    cat "$tmp"/got.* | sort | uniq -c | sed "s/^ *//" | sort >"$tmp/all"
    refusal="needs at least one replica\|leave none for device"
    refused=$(grep -c "^$processes .*\($refusal\)" "$tmp/all")
    grep -v "$refusal" "$tmp/all" >"$tmp/seen"
    sed "s/^/$processes /" "$tmp/one" | sort >"$tmp/want"
    layout="$processes processes of $devices, shares ${shares:-equal}"
    tap_check "$kind: $layout: $(wc -l <"$tmp/seen") scenes" \
        test "$status" -eq 0 -a -s "$tmp/seen" -a -z "$(comm -23 "$tmp/seen" "$tmp/want")"
    tap_check "$kind: $layout: $refused others have too few replicas" test "$refused" -ge "$least" \
        -a "$refused" -le "$few" -a $(($(wc -l <"$tmp/seen") + refused)) -eq "$scenes"
    tap_check "$kind: $processes processes knew of each other" \
        test "$(ls "$tmp"/got.*".of.$processes" | wc -l)" -eq "$processes"
    rm -f "$tmp"/got.*
done
tap_done
