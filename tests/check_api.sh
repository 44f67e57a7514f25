#!/bin/sh
# Checks the comments of public functions. Each has a comment above it, or above the type before it, and a statement
# about threads: its own, or the "Threads:" of its section.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh

# Writes NAME COMMENTED THREADS for each declaration.
awk '
    FNR == 1 { threads = 0; above = 0 }
    /^\/\* >>/ { threads = 0; above = 0; next }
    /^MIRT_API / {
        name = $0
        sub(/\(.*/, "", name)
        sub(/.*[ *]/, "", name)
        own = above && comment ~ /[Tt]hread safe/
        print name, above, threads || own
        declaring = $0 !~ /;/
        next
    }
    /^#(ifn?def|endif)/ && !inside { next } # of a smaller build, between a comment and its functions
    declaring { declaring = $0 !~ /;/; next }
    /^typedef / && above { type = $0 !~ /;/; next }
    type { type = $0 !~ /^}/; next }
    /^\/\*/ { comment = ""; inside = 1 }
    inside {
        comment = comment $0
        if ($0 ~ /\*\//) {
            inside = 0
            above = $0 ~ /\*\/$/
            if (comment ~ /^\/\* Threads: /) threads = 1
        }
        next
    }
    { above = 0 }' src/mirrortrain_api.h src/api/*_api.h >"$tmp/functions"

awk '!$2 { print $1 }' "$tmp/functions" >"$tmp/bare"
awk '!$3 { print $1 }' "$tmp/functions" >"$tmp/unsaid"
count=$(wc -l <"$tmp/functions")
if [ -s "$tmp/bare" ] || [ "$count" -lt 90 ]; then
    tap_not_ok "each of $count public functions has a comment above it" "$tmp/bare"
else
    tap_ok "each of $count public functions has a comment above it"
fi
if [ -s "$tmp/unsaid" ]; then
    tap_not_ok "and it is said which threads may call it" "$tmp/unsaid"
else
    tap_ok "and it is said which threads may call it"
fi

headers=0 failed=0
for header in src/api/*_api.h; do
    headers=$((headers + 1))
    grep -qx "#include \"${header#src/}\"" src/mirrortrain_api.h || {
        failed=$((failed + 1))
        tap_not_ok "src/mirrortrain_api.h includes ${header#src/}"
    }
    # Twice: the guard must hold.
    printf '#include "%s"\n#include "%s"\n' "$header" "$header" >"$tmp/alone.c"
    for compiler in "${CC:-cc} -std=c11" "${CC:-cc} -std=c99" "c++ -x c++ -std=c++17"; do
        if ! has "${compiler%% *}"; then tap_skip "no ${compiler%% *}"; continue; fi
        if ! $compiler -Wall -Wextra -Wpedantic -Wshadow -Werror -I. -fsyntax-only "$tmp/alone.c" >"$tmp/out" 2>&1; then
            failed=$((failed + 1))
            tap_not_ok "$header compiles alone: $compiler" "$tmp/out"
        fi
    done
done
if [ "$failed" -eq 0 ] && [ "$headers" -ge 10 ]; then
    tap_ok "each of $headers headers compiles alone, in C11, C99 and C++17, and src/mirrortrain_api.h includes it"
else
    tap_not_ok "each of $headers headers compiles alone: $failed failures"
fi
tap_done
