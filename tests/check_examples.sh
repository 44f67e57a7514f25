#!/bin/sh
# Compiles each example by its own first line, with the compiler it names, and runs it in an empty directory. NAME_other.c
# belongs to NAME.c. With nvcc they are compiled by check_cuda.sh.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
mkdir "$tmp/run"

for file in examples/*.c examples/*.cpp; do
    name=$(basename "${file%.*}")
    main=${name%_other}
    units=$file compiler="cc -O2"
    case $file in *.cpp) compiler="c++ -O2 -std=c++17" ;; esac
    if [ -f "examples/${main}_other.c" ]; then units="examples/$main.c examples/${main}_other.c"; fi
    wanted="// $compiler $units -o $main -lm -lpthread"
    line=$(head -1 "$file")
    if [ "$line" != "$wanted" ]; then
        tap_not_ok "$file: the first line is not $wanted"
        continue
    fi
    lines=$(wc -l <"$file")
    tap_check "$file has 20 to 120 lines: $lines" test "$lines" -ge 20 -a "$lines" -le 120
    [ "$name" = "$main" ] || continue
    command=$(echo "${line#// }" | sed "s| -o $name | -o $tmp/$name |")
    tap_check "$file compiles by its first line" sh -c "$command"
    tap_check "$file runs" sh -c "cd '$tmp/run' && '$tmp/$name'"
    case $name in
    ai_or_not | cats_vs_dogs)
        mkdir -p "$tmp/void/train"
        tap_check "$file refuses a directory without pictures" sh -c "! '$tmp/$name' '$tmp/void' >/dev/null 2>&1"
        ;;
    esac
done
tap_done
