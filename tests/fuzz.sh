#!/bin/sh
# Runs the fuzz targets named in FUZZ, one after the other.
#   fuzz.sh run SECONDS [RUNS]  fuzzes each for SECONDS (0: without end) or RUNS; what is found is in build/fuzz
#   fuzz.sh planted [SECONDS]   each has to find the fault planted in build/planted, beginning with its corpus
#   fuzz.sh merge               adds what was found to tests/corpus, as few files as reach the same
# The last line says how many runs there were.
cd "$(dirname "$0")/.." || exit 2
FUZZ=${FUZZ:-model image resume cache csv gzip log tar}
home=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")/mirt_fuzz.XXXXXX") || exit 2
trap 'rm -rf "$home"' EXIT
trap 'exit 1' HUP INT TERM
TMPDIR=$home
export TMPDIR

longest() {
    case $1 in
    model) echo 16384 ;;
    image) echo 1024 ;;
    tar) echo 8192 ;;
    *) echo 4096 ;;
    esac
}

# NAME: build/fuzz/NAME/seeds gets the corpus, and what programs write.
make_seeds() {
    at=build/fuzz/$1
    mkdir -p "$at/seeds" "$at/found" || exit 2
    [ ! -e "tests/corpus/$1.tar.gz" ] || tar -xzf "tests/corpus/$1.tar.gz" -C "$at/seeds" || exit 2
    case $1 in
    model) build/tests/test_hostile --seeds "$at/seeds" >/dev/null || exit 2 ;;
    image) build/tests/test_images --seeds "$at/seeds" >/dev/null || exit 2 ;;
    resume | tar) "build/tests/fuzz_$1" --seeds "$at/seeds" >/dev/null || exit 2 ;;
    esac
}

# PROGRAM FLAG...
fuzzer() {
    program=$1
    shift
    nice "$program" -close_fd_mask=3 -timeout="${FUZZ_TIMEOUT:-20}" -rss_limit_mb=2048 -malloc_limit_mb=300 \
        -detect_leaks=0 "$@"
}

run() {
    total=0 status=0 seconds=${1:-60} runs=${2:--1}
    for name in $FUZZ; do
        make_seeds "$name"
        fuzzer "build/fuzz/fuzz_$name" -max_total_time="$seconds" -runs="$runs" -max_len="$(longest "$name")" \
            -print_final_stats=1 -artifact_prefix="$at/" "$at/found" "$at/seeds" >"$at/log" 2>&1
        ended=$?
        done=$(sed -n 's/^stat::number_of_executed_units: *//p' "$at/log")
        echo "$name: ${done:-0} runs; $(grep -c . "$at/log") lines in $at/log"
        if [ $ended -ne 0 ]; then
            status=1
            tail -n 30 "$at/log"
        fi
        total=$((total + ${done:-0}))
    done
    echo "$total runs"
    exit $status
}

planted() {
    status=0 seconds=${1:-600}
    for name in $FUZZ; do
        make_seeds "$name"
        mkdir "$home/$name"
        log=$at/planted.log began=$(date +%s)
        program=build/planted/fuzz_$name most=$(longest "$name")
        if ! fuzzer "$program" -runs=0 -max_len="$most" "$at/seeds" >"$log" 2>&1; then
            echo "$name: the corpus itself meets the fault, which proves nothing; see $log"
            status=1
            continue
        fi
        fuzzer "$program" -max_total_time="$seconds" -max_len="$most" -artifact_prefix="$home/" \
            "$home/$name" "$at/seeds" >"$log" 2>&1
        ended=$?
        if [ $ended -ne 0 ] && grep -q 'deadly signal' "$log" && ! grep -q 'does not hold' "$log"; then
            echo "$name: found the planted fault after $(($(date +%s) - began)) s"
        else
            echo "$name: did not find the planted fault in $seconds s (exit status $ended); see $log"
            status=1
        fi
    done
    exit $status
}

merge() {
    mkdir -p tests/corpus || exit 2
    for name in $FUZZ; do
        make_seeds "$name"
        mkdir "$home/$name"
        fuzzer "build/fuzz/fuzz_$name" -merge=1 -max_len="${FUZZ_LONGEST:-$(longest "$name")}" \
            "$home/$name" "$at/seeds" "$at/found" >"$at/merge.log" 2>&1 || {
            tail -n 30 "$at/merge.log"
            exit 1
        }
        ls "$home/$name" >"$home/list"
        tar -C "$home/$name" --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 -T "$home/list" -cf - |
            gzip -9n >"tests/corpus/$name.tar.gz" || exit 2
        echo "$name: $(ls "$home/$name" | wc -l) files, $(wc -c <"tests/corpus/$name.tar.gz") bytes"
    done
}

what=$1
[ $# -gt 0 ] && shift
case $what in
run | planted | merge) "$what" "$@" ;;
*) echo "usage: tests/fuzz.sh run SECONDS [RUNS] | planted [SECONDS] | merge" >&2 && exit 2 ;;
esac
