#!/bin/sh
# Measures the cost of the header: compile time, program size and prediction time. The compile time is the best of
# three, in CPU seconds.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh

cat >"$tmp/declarations.c" <<'E'
#include "mirrortrain.h"
E

# COMMAND...: prints its user + system time in hundredths of a second, the least of three runs.
cpu_time() {
    best=
    for run in 1 2 3; do
        # `times` prints m's of this shell, then of its children; a subshell has no others.
        spent=$( ("$@" >/dev/null 2>&1 || exit 1; times) | awk '
            NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += t[1] * 6000 + t[2] * 100 } }
            END { if (NR < 2) print "failed"; else printf "%d\n", sum + 0.5 }')
        if [ "$spent" = failed ]; then echo failed; return; fi
        if [ -z "$best" ] || [ "$spent" -lt "$best" ]; then best=$spent; fi
    done
    echo "$best"
}

limit() { # DESCRIPTION LIMIT COMMAND...
    name=$1 most=$2
    shift 2
    if ! has "$1"; then tap_skip "$name: no $1"; return; fi
    spent=$(cpu_time "$@")
    if [ "$spent" = failed ]; then
        tap_not_ok "$name: does not compile"
    elif [ "$spent" -le "$most" ]; then
        tap_ok "$name: $spent of at most $most hundredths of a second"
    else
        tap_not_ok "$name: $spent hundredths of a second are more than $most"
    fi
}

limit "gcc -O2 of the whole header" 1200 gcc -O2 -I. -c mirrortrain.c -o "$tmp/object.o"
limit "declarations only" 10 gcc -O2 -I. -c "$tmp/declarations.c" -o "$tmp/object.o"

tap_check "a program that predicts compiles" gcc -O2 examples/embed.c examples/embed_other.c -o "$tmp/embed" -lm -lpthread
strip "$tmp/embed"
bytes=$(wc -c <"$tmp/embed")
tap_check "stripped it has at most 1500000 bytes: $bytes" test "$bytes" -le 1500000
(cd "$tmp" && ./embed >embed.log)
best=$(sed -n 's/.* sure), \([0-9]*\)\.[0-9]* us per call.*/\1/p' "$tmp/embed.log")
tap_check "one image takes at most 60 us: ${best:-nothing}" test "${best:-61}" -lt 60
tap_done
