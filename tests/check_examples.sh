#!/bin/sh
# Compiles each example by its own first line, with cc and where it exists with nvcc, and runs it.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh

for file in examples/*.c; do
    name=$(basename "$file" .c)
    wanted="// cc -O2 examples/$name.c -o $name -lm -lpthread"
    line=$(head -1 "$file")
    if [ "$line" != "$wanted" ]; then
        tap_not_ok "$file: the first line is not $wanted"
        continue
    fi
    command=$(echo "${line#// }" | sed "s| -o $name | -o $tmp/$name |")
    tap_check "$file compiles by its first line" sh -c "$command"
    tap_check "$file runs" "$tmp/$name"
    if has nvcc; then
        tap_check "$file compiles with nvcc in place of cc" sh -c "nvcc ${command#cc }"
    else
        tap_skip "$file: no nvcc"
    fi
    lines=$(wc -l <"$file")
    tap_check "$file has 20 to 120 lines: $lines" test "$lines" -ge 20 -a "$lines" -le 120
done
tap_done
