#!/bin/sh
# Compiles the header with every installed compiler and checks the object. There are no warnings, all public functions
# and nothing else are exported, and no writable globals exist but those listed. QUICK: without nvcc, and without
# vectors that the compiler makes for newer processors.
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
cat >"$tmp/static.c" <<'E'
#define MIRRORTRAIN_IMPLEMENTATION
#define MIRRORTRAIN_STATIC
#include "mirrortrain.h"
int main(void) { return mirt_version() ? 0 : 1; }
E

# Declares first, then implements, beside macros of other headers.
cat >"$tmp/macros.c" <<'E'
#ifndef __cplusplus
#include <complex.h>
#endif
#include "mirrortrain.h"
#define MIRRORTRAIN_IMPLEMENTATION
#include "mirrortrain.h"
#include "mirrortrain.h"
E

for cc in gcc clang; do
    case $cc in gcc) cxx=g++ ;; *) cxx=clang++ ;; esac
    compile "$cc: the program" $cc -std=c11 $warnings -fsyntax-only cli/*.c
    # Without position independence tables of pointers lie in read-only sections, as they should.
    compile "$cc as C11" $cc -std=c11 $warnings -O2 -fno-pie -I. -c mirrortrain.c -o "$tmp/$cc-c.o"
    compile "$cxx as C++17" $cxx -x c++ -std=c++17 $warnings -O1 -I. -c mirrortrain.c -o "$tmp/$cc-cxx.o"
    for switch in NO_SIMD NO_THREADS; do
        compile "$cc with MIRRORTRAIN_$switch" $cc -std=c11 $warnings -DMIRRORTRAIN_$switch -fsyntax-only -I. \
            mirrortrain.c
    done
    compile "$cc declares in C99" $cc -std=c99 $warnings -fsyntax-only -I. "$tmp/uses.c"
    for language in "$cc -std=c11" "$cxx -x c++ -std=c++17"; do
        compile "$language beside macros that programs define" $language $warnings -Wconversion -Wsign-conversion \
            -D_POSIX_C_SOURCE=200809L -Dnear= -Dfar= -Dsmall=char \
            '-Dmin(a,b)=((a)<(b)?(a):(b))' '-Dmax(a,b)=((a)>(b)?(a):(b))' -fsyntax-only -I. \
            "$tmp/macros.c" "$tmp/uses.c"
    done
    compile "$cc with MIRRORTRAIN_STATIC" $cc -std=c11 $warnings -DMIRRORTRAIN_NO_SIMD -O0 -I. "$tmp/static.c" \
        -o "$tmp/$cc-static" -lm -lpthread
    for language in c cxx; do
        case $language in
        c) compiler=$cc flags="-std=c11" ;;
        *) compiler=$cxx flags="-x c++ -std=c++17" ;;
        esac
        compile "$compiler: another unit that only declares" $compiler $flags $warnings -I. -c "$tmp/uses.c" -o \
            "$tmp/$cc-uses-$language.o"
        compile "$compiler: its main" $compiler $flags -c "$tmp/main.c" -o "$tmp/$cc-main-$language.o"
        compile "$compiler: both units link" $compiler "$tmp/$cc-main-$language.o" "$tmp/$cc-uses-$language.o" \
            "$tmp/$cc-$language.o" -no-pie \
            -o "$tmp/$cc-linked" -lm -lpthread
        compile "$compiler: and run" "$tmp/$cc-linked"
    done
done
compile "C++ calls what C compiled" g++ "$tmp/gcc-main-cxx.o" "$tmp/gcc-uses-cxx.o" "$tmp/gcc-c.o" -no-pie \
    -o "$tmp/mixed" -lm -lpthread

# Two private copies in one program: each has its own error text.
for unit in first second; do
    cat >"$tmp/$unit.c" <<E
#define MIRRORTRAIN_IMPLEMENTATION
#define MIRRORTRAIN_STATIC
#include "mirrortrain.h"
const char *${unit}_error(int fail);
const char *${unit}_error(int fail) {
    if (fail) mirt_strategy_destroy(mirt_mirrored("$unit"));
    return mirt_last_error();
}
E
done
cat >"$tmp/both.c" <<'E'
#include <string.h>
const char *first_error(int fail);
const char *second_error(int fail);
int main(void) {
    const int alone = strstr(first_error(1), "first") && !*second_error(0);
    return alone && strstr(second_error(1), "second") && strstr(first_error(0), "first") ? 0 : 1;
}
E
compile "two units with a private copy each" gcc -std=c11 $warnings -DMIRRORTRAIN_NO_SIMD -O0 -I. "$tmp/both.c" \
    "$tmp/first.c" "$tmp/second.c" -o "$tmp/both" -lm -lpthread
compile "and run" "$tmp/both"

# Without threads no library of threads is needed.
compile "a program without threads" gcc -O1 -DMIRRORTRAIN_NO_THREADS examples/embed.c examples/embed_other.c -o \
    "$tmp/alone" -lm
tap_check "and runs" sh -c "cd '$tmp' && ./alone"

# What an object asks for: hooks replace all of what they are for, and a build without threads needs none.
cat >"$tmp/hooks.c" <<'E'
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
void *my_malloc(size_t size);
void my_free(void *pointer);
int my_call(const char *path, int fd);
#define MIRRORTRAIN_MALLOC(size) my_malloc(size)
#define MIRRORTRAIN_FREE(pointer) my_free(pointer)
#define MIRRORTRAIN_OPEN(path, flags, mode) ((void)(flags), (void)(mode), my_call(path, 0))
#define MIRRORTRAIN_CLOSE(fd) my_call("", fd)
#define MIRRORTRAIN_STAT(path, info) ((info)->st_mode = 0, my_call(path, 0))
#define MIRRORTRAIN_FSTAT(fd, info) ((info)->st_mode = 0, (info)->st_size = 0, my_call("", fd))
#define MIRRORTRAIN_PREAD(fd, data, size, offset) ((void)(data), (void)(size), (void)(offset), my_call("", fd))
#define MIRRORTRAIN_PWRITE(fd, data, size, offset) ((void)(data), (void)(size), (void)(offset), my_call("", fd))
#define MIRRORTRAIN_FSYNC(fd) my_call("", fd)
#define MIRRORTRAIN_RENAME(from, to) ((void)(to), my_call(from, 0))
#define MIRRORTRAIN_UNLINK(path) my_call(path, 0)
#define MIRRORTRAIN_OPENDIR(path) (my_call(path, 0), (DIR *)0)
#define MIRRORTRAIN_MKDIR(path, mode) ((void)(mode), my_call(path, 0))
#define MIRRORTRAIN_FTRUNCATE(fd, size) ((void)(size), my_call("", fd))
#define MIRRORTRAIN_NO_THREADS
#define MIRRORTRAIN_IMPLEMENTATION
#include "mirrortrain.h"
E
compile "with hooks and without threads" gcc -std=c11 $warnings -DMIRRORTRAIN_NO_SIMD -O1 -I. -c "$tmp/hooks.c" -o \
    "$tmp/hooks.o"
nm -u "$tmp/hooks.o" | awk '{ print $2 }' >"$tmp/asked"
grep -E '^([mc]alloc|realloc|free|aligned_alloc|posix_memalign|strn?dup|asprintf|open_memstream|mmap|munmap)$' \
    "$tmp/asked" >"$tmp/unexpected"
grep -E '^(f?open|fdopen|openat|creat|close|p?read|p?write|lseek|[fl]?stat|access|fsync|f?truncate|rename|remove|unlink|mkdir|opendir)(64)?$' "$tmp/asked" >>"$tmp/unexpected"
grep -E '^(pthread_.*|thrd_.*|mtx_.*|cnd_.*|sem_.*|clone|fork|popen|system|sig.*|_?exit|abort|v?printf|puts)$' \
    "$tmp/asked" >>"$tmp/unexpected"
if [ ! -s "$tmp/unexpected" ] && grep -q my_malloc "$tmp/asked" && grep -q my_call "$tmp/asked"; then
    tap_ok "then the object asks for no other memory, no other file and no thread"
else
    tap_not_ok "then the object asks for no other memory, no other file and no thread" "$tmp/unexpected"
fi

if [ -z "$QUICK" ]; then
    compile "nvcc as .c" nvcc -Werror all-warnings -I. -c mirrortrain.c -o "$tmp/nvcc.o"
    compile "nvcc as .cu" nvcc -Werror all-warnings -x cu -I. -c mirrortrain.c -o "$tmp/nvcc-cu.o"
fi
compile "gcc for arm64" aarch64-linux-gnu-gcc -std=c11 $warnings -O0 -I. -c mirrortrain.c -o "$tmp/arm64.o"

# SSE code of the caller is up to 50 times slower after a function that leaves upper halves of registers in use.
if [ "$(uname -m)" = x86_64 ] && has objdump; then
    compile "gcc without optimization" gcc -std=c11 $warnings -O0 -I. -c mirrortrain.c -o "$tmp/gcc-o0.o"
    if [ -z "$QUICK" ]; then
        compile "gcc for processors with AVX2" gcc -std=c11 $warnings -O3 -march=haswell -I. -c mirrortrain.c -o \
            "$tmp/gcc-haswell.o"
    fi
    for object in gcc-c gcc-cxx clang-c clang-cxx gcc-o0 gcc-haswell nvcc nvcc-cu; do
        [ ! -e "$tmp/$object.o" ] || tap_check "$object.o leaves no upper halves of vector registers in use" \
            tests/check_vectors.py "$tmp/$object.o"
    done
    printf 'typedef float v __attribute__((vector_size(32)));\nvoid f(float *p) { *(v *)p += *(v *)(p + 8); }\n' \
        >"$tmp/dirty.c"
    gcc -O1 -mavx -mno-vzeroupper -c "$tmp/dirty.c" -o "$tmp/dirty.o"
    if tests/check_vectors.py "$tmp/dirty.o" >"$tmp/out" 2>&1; then tap_not_ok "a function that does is found" \
        "$tmp/out"; else tap_ok "a function that does is found"; fi
else
    tap_skip "upper halves of vector registers: not x86-64, or no objdump"
fi

nm "$tmp/gcc-c.o" >"$tmp/symbols"

awk '{ print $NF }' "$tmp/symbols" | grep -v '^mirt__' | grep -E 'stbi|STBI|first_row_filter|invalid_chunk' \
    >"$tmp/unexpected"
if [ -s "$tmp/unexpected" ]; then
    tap_not_ok "no symbol has a name of stb_image's" "$tmp/unexpected"
else
    tap_ok "no symbol has a name of stb_image's"
fi

awk 'NF == 3 && $2 ~ /^[A-Z]$/ && $3 !~ /^mirt_[a-z]/' "$tmp/symbols" >"$tmp/unexpected"
if [ -s "$tmp/unexpected" ]; then
    tap_not_ok "only mirt_ names are exported" "$tmp/unexpected"
else
    tap_ok "only mirt_ names are exported"
fi

# All functions that the API declares are there: a misspelt macro cannot make this test void.
sed -n 's/^MIRT_API .*[ *]\(mirt_[a-z0-9_]*\)(.*/\1/p' src/mirrortrain_api.h src/api/*_api.h | sort -u >"$tmp/declared"
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
