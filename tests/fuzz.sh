#!/bin/sh
# Fuzzes each kind of files for SECONDS (0: without end) or RUNS: fuzz.sh SECONDS [RUNS]. What is found is in build/fuzz; the last line says
# how many runs there were.
cd "$(dirname "$0")/.." || exit 2
total=0 status=0

# NAME SEEDS LONGEST: the fuzzer, the program that writes what it starts from, and the longest file.
fuzz() {
    at=build/fuzz/$1
    mkdir -p "$at/seeds" "$at/found" && "build/tests/$2" --seeds "$at/seeds" >/dev/null || exit 2
    "build/fuzz/fuzz_$1" -max_total_time="$seconds" -runs="$runs" -max_len="$3" -timeout="${FUZZ_TIMEOUT:-20}" -rss_limit_mb=2048 -malloc_limit_mb=300 \
        -detect_leaks=0 -print_final_stats=1 -artifact_prefix="$at/" "$at/found" "$at/seeds" >"$at/log" 2>&1
    ended=$?
    done=$(sed -n 's/^stat::number_of_executed_units: *//p' "$at/log")
    echo "$1: ${done:-0} runs; $(grep -c . "$at/log") lines in $at/log"
    if [ $ended -ne 0 ]; then
        status=1
        tail -n 30 "$at/log"
    fi
    total=$((total + ${done:-0}))
}

seconds=${1:-60} runs=${2:--1}
fuzz model test_hostile 16384
fuzz image test_images 1024
echo "$total runs"
exit $status
