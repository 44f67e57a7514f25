#!/bin/sh
# Tests mirrortrain scaling: rows, predictions, errors, mpirun, and child processes, also of bench.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
program=${MIRRORTRAIN:-build/mirrortrain}
export MIRT_CORES=2 # as on another machine

# Whether the program fails with status $2 and a sentence like $3.
refuses() {
    what=$1 status=$2 like=$3
    shift 3
    "$program" scaling "$@" >"$tmp/out" 2>&1
    if [ $? -eq "$status" ] && grep -q -- "$like" "$tmp/out"; then tap_ok "$what: $(tail -1 "$tmp/out")"; else \
        tap_not_ok "$what" "$tmp/out"; fi
}

if "$program" scaling --device-counts 1,2 --batch 16,32 --seconds 1 --price 3.6 >"$tmp/table" 2>"$tmp/err"; then
    tap_ok "two numbers of devices, two batches"
else
    tap_not_ok "two numbers of devices, two batches" "$tmp/err"
fi
# Each point runs in a process that was started anew, as GPU runtimes do not survive a fork: the loader writes a file
# for every one.
LD_DEBUG=files LD_DEBUG_OUTPUT="$tmp/loaded" \
    "$program" scaling --device-counts 1,2 --batch 16,32 --seconds 1 >/dev/null 2>&1
started=$(ls "$tmp" | grep -c '^loaded\.')
if [ "$started" -eq 0 ]; then tap_skip "a loader that does not say what it starts"
elif [ "$started" -eq 9 ]; then tap_ok "eight points, eight new programs"
else tap_not_ok "eight points, eight new programs and their parent, not $started"; fi
rm -f "$tmp"/loaded.*
LD_DEBUG=files LD_DEBUG_OUTPUT="$tmp/loaded" "$program" bench --batch 4,8 --steps 1 >"$tmp/bench" 2>&1
started=$(ls "$tmp" | grep -c '^loaded\.')
if [ "$started" -eq 0 ]; then tap_skip "a loader that does not say what it starts"
elif [ "$started" -eq 3 ] && [ "$(grep -c '^bench: model=mnist batch=[48] ' "$tmp/bench")" -eq 2 ]; then
    tap_ok "bench: two batches, two new programs"
else tap_not_ok "bench: two batches, two new programs and their parent, not $started" "$tmp/bench"; fi
# A signal for the program alone ends its child, too: the pipe has an end only when both are gone.
if [ -r "/proc/$$/task/$$/children" ]; then
    mkfifo "$tmp/fifo"
    "$program" bench --batch 4,8 --seconds 600 >"$tmp/fifo" 2>&1 &
    parent=$!
    {
        child=
        while [ -z "$child" ] && kill -0 $parent 2>/dev/null; do
            child=$(cat /proc/$parent/task/*/children 2>/dev/null)
        done
        kill -TERM $parent
        cat
    } <"$tmp/fifo" >"$tmp/out"
    wait $parent
    status=$?
    if [ "$status" -eq 143 ]; then tap_ok "SIGTERM ends parent and child"
    else tap_not_ok "SIGTERM: status $status" "$tmp/out"; fi
else
    tap_skip "no list of children in /proc"
fi
rows=$(grep -cE '^ +[12] +(8|16|32) +[0-9.]+ ' "$tmp/table")
if [ "$rows" -eq 8 ]; then tap_ok "eight points"; else tap_not_ok "eight points, not $rows" "$tmp/table"; fi
for title in "strong scaling" "weak scaling" "with and without prefetching" "sweet spot: a batch of" \
    "2 devices, batch 16: "; do
    if grep -q "$title" "$tmp/table"; then tap_ok "$title"; else tap_not_ok "$title" "$tmp/table"; fi
done
# Images per second times the step is the batch; 60000 images at that rate are the epoch; at 3.6 an hour it costs a
# thousandth per second. Each number may be half a unit of its last digit away, and a step on a fast machine has few
# digits.
awk '
# Whether a * b can be c, where a is da away at most and b db.
function wrong(a, da, b, db, c) { return (a - da) * (b - db) > 1.001 * c || (a + da) * (b + db) < 0.999 * c }
/^ +[12] +(8|16|32) / {
    epoch = 0
    for (i = 5; i < NF; i++) if ($(i + 1) == "s" && !epoch) { epoch = $i; cost = $(i + 2) }
    if (wrong($3, 0.05, $4, 0.005, 1000 * $2) || wrong($3, 0.05, epoch, 0.05, 60000)) print
    else if (cost < 0.001 * (epoch - 0.05) - 6e-5 || cost > 0.001 * (epoch + 0.05) + 6e-5) print
}' "$tmp/table" >"$tmp/wrong"
if [ -s "$tmp/wrong" ]; then tap_not_ok "rates, times and costs agree" "$tmp/wrong"; else tap_ok \
    "rates, times and costs agree"; fi
refuses "more devices than cores" 2 "4 threads would share the 2 cores of this machine, which" --device-counts 1,4
refuses "more threads than cores" 2 "use fewer --threads" --device-counts 1 --threads 3
refuses "counts that fall" 2 "the numbers must increase" --device-counts 2,1
refuses "a batch without an image for each device" 2 "fewer images than there are devices" --device-counts 2 --batch 1
refuses "no number" 2 "whole numbers" --device-counts two
refuses "a network that is not there" 2 "mobilenet_v2" --model mobilenet_v3 --device-counts 1 --batch 4
refuses "no devices to predict" 2 'predict is "0"; it must be a whole number from 1 to 1000000' --predict 0
refuses "a network that nobody knows" 2 'network is "wifi"; it must be 10G, 25G, 100G, ib, nvlink or a number' \
    --predict 4 --network wifi
refuses "a network without a prediction" 2 "network is for --predict N" --network 10G
refuses "a host without a prediction" 2 "devices-per-host is for --predict N" --devices-per-host 2
refuses "several batches to predict" 2 "predict takes one --batch" --predict 4 --batch 8,16
refuses "numbers of devices to predict" 2 "device-counts is for measured tables" --predict 4 --device-counts 1
MIRT_CORES=100 refuses "cores of a large machine are no GPUs" 2 "share the 100 cores" --device-counts 1,32 --threads 4

# --- predictions

# The number of rows of a prediction in $tmp/table, whether images/s times the step are the batch, and efficiencies fall
# from 100 %.
check_prediction() {
    awk '/^ devices    hosts/ { on = 1; next } !/^ +[0-9]+ +[0-9]+ +[0-9]+ / { on = 0 }
    on {
        rows++
        if (rows == 1 && $6 != 100 || rows > 1 && $6 > last) wrong++
        if ($4 * ($5 - 0.006) > 1001 * $3 || $4 * ($5 + 0.006) < 999 * $3) wrong++
        last = $6
    }
    END { exit !(rows == '"$2"' && !wrong) }' "$tmp/table"
    if [ $? -eq 0 ]; then tap_ok "$1"; else tap_not_ok "$1" "$tmp/table"; fi
}

"$program" scaling --predict 48 --network 25G:20us --batch 16 --seconds 1 >"$tmp/table" 2>&1
check_prediction "predictions for 1, 2, 4, ... 32, 48 devices" 7
for words in "a model's figures, not measured: mnist, 16 images" "^25 Gbit/s and 20 us a message between hosts$" \
    "+-15 points" "^ *2 VGG-16 .* 512 .* 68 % " "left out: by the model fitted to"; do
    if grep -q -- "$words" "$tmp/table"; then tap_ok "$words"; else tap_not_ok "$words" "$tmp/table"; fi
done
"$program" scaling --predict 4 --devices-per-host 2 --batch 16 --seconds 1 >"$tmp/table" 2>&1
check_prediction "two devices in a host" 3
if grep -q "Gbit/s between those of a host" "$tmp/table"; then tap_ok "whose exchange is measured"
else tap_not_ok "whose exchange is measured" "$tmp/table"; fi

# --- processes of mpirun

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
together() {
    timeout 200 mpirun --oversubscribe -n 3 "$program" scaling "$@" >"$tmp/table" 2>"$tmp/err"
}
if ! has mpirun || [ ! -f "$(dirname "$program")/mirrortrain-openmpi.so" ]; then
    tap_skip "no mpirun, or no engine for it (make mpi)"
    tap_done
fi
if together --batch 12 --seconds 1 --predict 8; then tap_ok "three processes"
else tap_not_ok "three processes" "$tmp/err"; fi
# Every number of processes twice: the same batch for all, and for each.
rows=$(awk '/^ +[123] +(12|24|36) .* x[0-9.]+ / { printf "%s:%s ", $1, $2 }' "$tmp/table")
if [ "$rows" = "1:12 2:12 3:12 1:12 2:24 3:36 " ]; then tap_ok "1, 2 and 3 processes, strong and weak"
else tap_not_ok "1, 2 and 3 processes, strong and weak, not $rows" "$tmp/table"; fi
awk '/^ +[123] +(12|24|36) .* x[0-9.]+ / {
    if ($3 * ($4 - 0.006) > 1001 * $2 || $3 * ($4 + 0.006) < 999 * $2) print
}' "$tmp/table" >"$tmp/wrong"
if [ -s "$tmp/wrong" ]; then tap_not_ok "their images/s times the step are the batch" "$tmp/wrong"
else tap_ok "their images/s times the step are the batch"; fi
if grep -q "^link between process 0 and 2: [0-9.]* Gbit/s" "$tmp/table"; then tap_ok "the link between them"
else tap_not_ok "the link between them" "$tmp/table"; fi
check_prediction "a prediction from them" 4
together --batch 12 --device-counts 1,4 --seconds 1
if [ $? -eq 2 ] && grep -q "mirrortrain: --device-counts 4: there are 3 processes" "$tmp/err"; then
    tap_ok "more processes than there are"
else tap_not_ok "more processes than there are" "$tmp/err"; fi
if [ "$(grep -c '^mirrortrain: ' "$tmp/err")" -eq 1 ]; then tap_ok "said once"
else tap_not_ok "said once" "$tmp/err"; fi
tap_done
