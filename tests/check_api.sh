#!/bin/sh
# Every public function has a comment above it, or above the type that stands before it; and a statement about threads: one of its
# own, or the "Threads:" of its section.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh

# Writes NAME COMMENTED THREADS for each declaration.
awk '
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
    { above = 0 }' src/mirrortrain_api.h src/api/*.inc >"$tmp/functions"

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
tap_done
