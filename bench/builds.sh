#!/bin/sh
# Prints compile time, object size and program size for each build switch, as a Markdown table.
#
#     bench/builds.sh [RUNS]
#
# Compile time is the median user time of RUNS (3) compilations of mirrortrain.c by CC (gcc) at -O2; the switches take
# turns, so that a busy machine slows all of them down. Object: bytes of code and data, as `size` counts them. Program: a
# stripped program that loads a model and predicts, linked with --gc-sections.
cd "$(dirname "$0")/.." || exit 2
runs=${1:-3}
cc=${CC:-gcc}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/mirt_builds.XXXXXX") || exit 2
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# Names and flags; "-" is the whole library.
cat >"$tmp/builds" <<'B'
- -O2
MIRRORTRAIN_NO_CALLBACKS -O2 -DMIRRORTRAIN_NO_CALLBACKS
MIRRORTRAIN_NO_IMAGES -O2 -DMIRRORTRAIN_NO_IMAGES
MIRRORTRAIN_NO_MODELS -O2 -DMIRRORTRAIN_NO_MODELS
MIRRORTRAIN_NO_TRAIN -O2 -DMIRRORTRAIN_NO_TRAIN
NO_TRAIN,_IMAGES -O2 -DMIRRORTRAIN_NO_TRAIN -DMIRRORTRAIN_IMAGES
NO_TRAIN,_NO_MODELS -O2 -DMIRRORTRAIN_NO_TRAIN -DMIRRORTRAIN_NO_MODELS
MIRRORTRAIN_NO_SIMD -O2 -DMIRRORTRAIN_NO_SIMD
NO_SIMD,_NO_TRAIN -O2 -DMIRRORTRAIN_NO_SIMD -DMIRRORTRAIN_NO_TRAIN
-O0 -O0
MIRRORTRAIN_DEBUG,-O0 -O0 -DMIRRORTRAIN_DEBUG
B
cat >"$tmp/user.c" <<'U'
#include "mirrortrain.h"
int main(int argc, char **argv) {
    mirt_strategy *strategy = mirt_strategy_create(0);
    mirt_model *model = argc > 1 ? mirt_load(strategy, argv[1]) : 0;
    static float out[1000];
    static mirt_array x;
    return mirt_predict_arrays(model, x, out, 1000);
}
U

user_seconds() { # COMMAND...
    (
        "$@" >/dev/null 2>"$tmp/log" || { cat "$tmp/log" >&2; exit 1; }
        times
    ) | sed -n '2s/^\([0-9]*\)m\([0-9.]*\)s .*/\1 \2/p' | awk '{ print 60 * $1 + $2 }'
}

run=0
while [ "$run" -lt "$runs" ]; do
    number=0
    while read -r name flags; do
        number=$((number + 1))
        user_seconds "$cc" -std=c11 $flags -I. -c mirrortrain.c -o "$tmp/$number.o" >>"$tmp/$number.seconds"
    done <"$tmp/builds"
    run=$((run + 1))
done

echo "$("$cc" --version | sed -n 1p), $(uname -m)$(sed -n 's/^model name[^:]*:/,/p' /proc/cpuinfo 2>/dev/null | sed -n 1p), $(date +%Y-%m-%d)"
echo
echo '| build | compile, s | | object, bytes | | program, bytes |'
echo '|---|---|---|---|---|---|'
number=0
while read -r name flags; do
    number=$((number + 1))
    seconds=$(sort -n "$tmp/$number.seconds" | awk '{ s[NR] = $1 } END { print s[int((NR + 1) / 2)] }')
    object=$(size "$tmp/$number.o" | awk 'NR == 2 { print $4 }')
    "$cc" -std=c11 $flags -ffunction-sections -fdata-sections -I. "$tmp/user.c" mirrortrain.c -Wl,--gc-sections -s \
        -o "$tmp/program" -lm -lpthread 2>"$tmp/log" || { cat "$tmp/log" >&2; exit 1; }
    [ "$number" -eq 1 ] && first_seconds=$seconds first_object=$object
    echo "$name $seconds $first_seconds $object $first_object $(wc -c <"$tmp/program")"
done <"$tmp/builds" | awk '{
    name = $1
    gsub(/,/, ", ", name)
    if (name == "-") name = "all"
    printf "| %s | %.1f | %.2f | %d | %.2f | %d |\n", name, $2, $2 / $3, $4, $4 / $5, $6
}'
