#!/bin/sh
# Tests mirrortrain scaling: rows, errors, and child processes, also those of bench.
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
MIRT_CORES=100 refuses "cores of a large machine are no GPUs" 2 "share the 100 cores" --device-counts 1,32 --threads 4
tap_done
