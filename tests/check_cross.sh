#!/bin/sh
# Compiles and links for other systems with zig, which has their headers. The header as C11 and C++17, a program, and
# the command-line program: without a warning. What this machine can run trains. MIRT_ZIG: the command, such as
# "python3 -m ziglang" (pip install ziglang). QUICK: one target, plain kernels, C alone.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh

zig=${MIRT_ZIG:-zig}
$zig version >/dev/null 2>&1 || zig="python3 -m ziglang"
if ! $zig version >/dev/null 2>&1; then
    tap_skip "no zig (pip install ziglang)"
    tap_done
fi
export ZIG_LOCAL_CACHE_DIR="$tmp/cache" ZIG_GLOBAL_CACHE_DIR="$tmp/cache"
warnings="-Wall -Wextra -Wpedantic -Wshadow -Werror -fno-sanitize=undefined" # which zig does without optimization

# What says that the program has engines, where no linker finds out.
engines="-DMIRRORTRAIN_MPI -DMIRRORTRAIN_TCP"

# TARGET: the program, from objects.
links_program() {
    target=$1 objects=
    for file in cli/*.c mirrortrain.c; do
        object=$tmp/$(basename "$file" .c).$target.o
        # shellcheck disable=SC2086
        $zig cc -target "$target" -std=c11 -O0 $warnings $engines -c "$file" -o "$object" || return 1
        objects="$objects $object"
    done
    # shellcheck disable=SC2086
    $zig cc -target "$target" $objects -o "$tmp/program.$target" -lm -lpthread
}

targets="x86_64-linux-musl aarch64-linux-musl x86_64-macos aarch64-macos x86_64-freebsd" how=-O1
if [ -n "${QUICK:-}" ]; then targets=aarch64-macos how="-O0 -DMIRRORTRAIN_NO_SIMD"; fi
for target in $targets; do
    tap_check "$target: C11" $zig cc -target "$target" -std=c11 $how $warnings -c mirrortrain.c -o "$tmp/library.o"
    [ -n "${QUICK:-}" ] || tap_check "$target: C++17" $zig c++ -target "$target" -x c++ -std=c++17 -O0 $warnings \
        -c mirrortrain.c -o "$tmp/cpp.o"
    tap_check "$target: a program" $zig cc -target "$target" -O1 -I. examples/cmake/digits.c "$tmp/library.o" \
        -o "$tmp/digits" -lm -lpthread
    case $target in
    "$(uname -m)"-linux-musl)
        "$tmp/digits" >"$tmp/said" 2>&1
        tap_check "$target: trains" grep -q '^mirrortrain .*: loss [0-2]\.' "$tmp/said"
        ;;
    esac
    [ -n "${QUICK:-}" ] || tap_check "$target: the command-line program" links_program "$target"
done
tap_done
