#!/bin/sh
# Every compiler that is here takes the header without a warning, and the object holds what it
# should: all public functions, nothing else exported, no writable globals beyond those listed.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh

warnings="-Wall -Wextra -Wpedantic -Wshadow -Werror"

# DESCRIPTION COMPILER...: skipped when the compiler is not installed.
compile() {
    name=$1
    shift
    if has "$1"; then tap_check "$name" "$@"; else tap_skip "$name: no $1"; fi
}

cat >"$tmp/uses.c" <<'E'
#include "mirrortrain.h"
int mirt_other_unit(void);
int mirt_other_unit(void) {
    const mirt_shape shape = MIRT_SHAPE(28, 28, 1);
    return shape.rank == 3 && mirt_status_text(MIRT_OK) && mirt_version() ? 0 : 1;
}
E
cat >"$tmp/main.c" <<'E'
int mirt_other_unit(void);
int main(void) { return mirt_other_unit(); }
E
cat >"$tmp/twice.c" <<'E'
#define _POSIX_C_SOURCE 200809L
#include "mirrortrain.h"
#define MIRRORTRAIN_IMPLEMENTATION
#include "mirrortrain.h"
#include "mirrortrain.h"
E
cat >"$tmp/static.c" <<'E'
#define MIRRORTRAIN_IMPLEMENTATION
#define MIRRORTRAIN_STATIC
#include "mirrortrain.h"
int main(void) { return mirt_version() ? 0 : 1; }
E

for cc in gcc clang; do
    case $cc in gcc) cxx=g++ ;; *) cxx=clang++ ;; esac
    compile "$cc as C11" $cc -std=c11 $warnings -O2 -I. -c mirrortrain.c -o "$tmp/$cc-c.o"
    compile "$cxx as C++17" $cxx -x c++ -std=c++17 $warnings -O1 -I. -c mirrortrain.c -o "$tmp/$cc-cxx.o"
    compile "$cc with MIRRORTRAIN_NO_SIMD" $cc -std=c11 $warnings -DMIRRORTRAIN_NO_SIMD -O0 -I. -c mirrortrain.c -o "$tmp/x.o"
    compile "$cc with MIRRORTRAIN_NO_THREADS" $cc -std=c11 $warnings -DMIRRORTRAIN_NO_THREADS -O0 -I. -c mirrortrain.c -o "$tmp/x.o"
    compile "$cc declares, then implements, in one unit" $cc -std=c11 $warnings -O0 -I. -c "$tmp/twice.c" -o "$tmp/x.o"
    compile "$cc with MIRRORTRAIN_STATIC" $cc -std=c11 $warnings -O0 -I. "$tmp/static.c" -o "$tmp/$cc-static" -lm -lpthread
    for language in c cxx; do
        case $language in
        c) compiler=$cc flags="-std=c11" ;;
        *) compiler=$cxx flags="-x c++ -std=c++17" ;;
        esac
        compile "$compiler: another unit that only declares" $compiler $flags $warnings -I. -c "$tmp/uses.c" -o "$tmp/$cc-uses-$language.o"
        compile "$compiler: its main" $compiler $flags -c "$tmp/main.c" -o "$tmp/$cc-main-$language.o"
        compile "$compiler: both units link" $compiler "$tmp/$cc-main-$language.o" "$tmp/$cc-uses-$language.o" "$tmp/$cc-$language.o" \
            -o "$tmp/$cc-linked" -lm -lpthread
        compile "$compiler: and run" "$tmp/$cc-linked"
    done
done
compile "C++ calls what C compiled" g++ "$tmp/gcc-main-cxx.o" "$tmp/gcc-uses-cxx.o" "$tmp/gcc-c.o" -o "$tmp/mixed" -lm -lpthread

compile "nvcc as .c" nvcc -Werror all-warnings -I. -c mirrortrain.c -o "$tmp/nvcc.o"
compile "nvcc as .cu" nvcc -Werror all-warnings -x cu -I. -c mirrortrain.c -o "$tmp/nvcc-cu.o"
compile "gcc for arm64" aarch64-linux-gnu-gcc -std=c11 $warnings -O2 -I. -c mirrortrain.c -o "$tmp/arm64.o"

# Each file of src/ by itself, in its own room, and all of them linked.
if has gcc; then
    split=
    : >"$tmp/split.log"
    for file in $(grep '\.c$' src/FILES); do
        object=$tmp/$(echo "$file" | tr / _).o
        gcc -std=c11 $warnings -D_POSIX_C_SOURCE=200809L -DMIRRORTRAIN_SPLIT_BUILD -O0 -c "src/$file" -o "$object" 2>>"$tmp/split.log"
        split="$split $object"
    done
    if [ -s "$tmp/split.log" ]; then
        tap_not_ok "src/ compiles file by file" "$tmp/split.log"
    else
        tap_ok "src/ compiles file by file"
        tap_check "and links" gcc "$tmp/gcc-main-c.o" "$tmp/gcc-uses-c.o" $split -o "$tmp/split" -lm -lpthread
    fi
fi

# Without position independence tables of pointers lie in read-only sections, as they should.
compile "an object for nm" gcc -std=c11 -O2 -fno-pic -fno-pie -I. -c mirrortrain.c -o "$tmp/nm.o"
nm "$tmp/nm.o" >"$tmp/symbols"

awk 'NF == 3 && $2 ~ /^[A-Z]$/ && $3 !~ /^mirt_[a-z]/' "$tmp/symbols" >"$tmp/unexpected"
if [ -s "$tmp/unexpected" ]; then
    tap_not_ok "only mirt_ names are exported" "$tmp/unexpected"
else
    tap_ok "only mirt_ names are exported"
fi

# All functions that the API declares are there: a misspelt macro cannot make this test void.
sed -n 's/^MIRT_API .*[ *]\(mirt_[a-z0-9_]*\)(.*/\1/p' src/mirrortrain_api.h | sort -u >"$tmp/declared"
awk '$2 == "T" { print $3 }' "$tmp/symbols" | sort -u >"$tmp/defined"
comm -3 "$tmp/declared" "$tmp/defined" >"$tmp/difference"
if [ -s "$tmp/difference" ] || [ "$(wc -l <"$tmp/declared")" -lt 50 ]; then
    tap_not_ok "all functions of the API are defined (left: only declared, right: only defined)" "$tmp/difference"
else
    tap_ok "all $(wc -l <"$tmp/declared") functions of the API are defined, and no other"
fi

awk '$2 ~ /^[bBdDCgGsS]$/ { sub(/\.[0-9]+$/, "", $3); print $3 }' "$tmp/symbols" | sort -u >"$tmp/writable"
grep -v '^#' tests/writable_globals.txt | awk 'NF { print $1 }' | sort -u >"$tmp/allowed"
comm -23 "$tmp/writable" "$tmp/allowed" >"$tmp/difference"
if [ -s "$tmp/difference" ]; then
    tap_not_ok "no writable globals beyond tests/writable_globals.txt" "$tmp/difference"
else
    tap_ok "no writable globals beyond tests/writable_globals.txt"
fi
tap_done
