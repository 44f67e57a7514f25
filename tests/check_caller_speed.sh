#!/bin/sh
# Checks that calls into the library do not slow down the caller's SSE code.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh

try() { # DESCRIPTION COMPILER...
    name=$1
    shift
    if ! has "$1"; then
        tap_skip "$name: no $1"
    elif ! "$@" tests/caller_speed.c -o "$tmp/speed" -lm -lpthread >"$tmp/log" 2>&1; then
        tap_not_ok "$name: does not compile" "$tmp/log"
    elif "$tmp/speed" >"$tmp/log" 2>&1; then
        tap_ok "$name"
    else
        tap_not_ok "$name" "$tmp/log"
    fi
}

for level in -O0 -O2 -O3; do try "gcc $level" gcc -std=c11 $level; done
try "gcc -O3 for this processor" gcc -std=c11 -O3 -march=native
for level in -O0 -O2; do try "clang $level" clang -std=c11 $level; done
try "nvcc's host code" nvcc -x cu -O2
tap_done
