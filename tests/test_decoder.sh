#!/bin/sh
# Builds without an image decoder: what make detects, and what programs say.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
cc=${CC:-cc}

# The compiler's include directories as links, without stb: flags for a compiler that does not find it.
hide_stb() {
    hidden=-nostdinc number=0
    for directory in $($cc -E -v -x c /dev/null 2>&1 | sed -n '/^#include </,/^End of/s/^ //p'); do
        number=$((number + 1))
        mkdir -p "$tmp/include/$number"
        ln -s "$directory"/* "$tmp/include/$number/"
        rm -f "$tmp/include/$number"/stb "$tmp/include/$number"/stb_image.h
        hidden="$hidden -isystem $tmp/include/$number"
    done
}
hide_stb

# make: a project of one object, with this Makefile.
mkdir -p "$tmp/project/tests/sim" "$tmp/project/tests/gpu" "$tmp/project/packaging" "$tmp/project/src" "$tmp/stb"
cp Makefile "$tmp/project/"
cp tests/sim/sim.mk "$tmp/project/tests/sim/"
cp tests/gpu/gpu.mk "$tmp/project/tests/gpu/"
cp packaging/install.mk "$tmp/project/packaging/"
: >"$tmp/project/src/FILES"
: >"$tmp/project/mirrortrain.h"
cat >"$tmp/project/mirrortrain.c" <<'C'
#if __has_include(<stb_image.h>)
int has_decoder;
#else
int has_none;
#endif
C
build() { make -s -C "$tmp/project" build/mirrortrain.o CC="$cc" CFLAGS="$hidden -I$tmp/stb" >"$tmp/made" 2>&1; }
object=$tmp/project/build/mirrortrain.o
contains() { nm "$object" | grep "$1"; }
stamp() { ls -l --time-style=full-iso "$object" 2>/dev/null || ls -l "$object"; }
# A check that shows what make said if it fails.
made() { # DESCRIPTION COMMAND...
    name=$1
    shift
    if "$@" >/dev/null 2>&1; then tap_ok "$name"; else tap_not_ok "$name" "$tmp/made"; fi
}
build
made "built without a decoder" contains has_none
made "make says so" grep 'apt-get install libstb-dev' "$tmp/made"
touch -t 200101010000 "$object" "$tmp/project/mirrortrain.c" "$tmp/project/mirrortrain.h" "$tmp/project/build/decoder"
before=$(stamp)
build
made "nothing is compiled again without a change" test "$(stamp)" = "$before"
echo 'int stbi_load(void);' >"$tmp/stb/stb_image.h"
build
made "a decoder that was added is compiled in" contains has_decoder
rm "$tmp/stb/stb_image.h"
build
made "one that was removed is not" contains has_none

# A program built by one line, and the program mirrortrain.
cat >"$tmp/reads.c" <<'C'
#define MIRRORTRAIN_IMPLEMENTATION
#include "mirrortrain.h"
#include <stdio.h>
int main(int argc, char **argv) {
    mirt_image image;
    if (argc < 2 || mirt_read_image(argv[1], MIRT_RGB, NULL, &image) != MIRT_OK) puts(mirt_last_error());
    if (!mirt_image_dataset_from_directory(".", NULL)) puts(mirt_last_error());
    return 0;
}
C
{
    printf 'BM:\000\000\000\000\000\000\000\066\000\000\000\050\000\000\000\001\000\000\000\001\000\000\000\001\000'
    printf '\030\000\000\000\000\000\004\000\000\000\000\000'
    printf '\000\000\000\000\000\000\000\000\000\000\000\000\000\000\001\002\003\000'
} >"$tmp/one.bmp"
if $cc -O0 $hidden -DMIRRORTRAIN_NO_SIMD -I. "$tmp/reads.c" -o "$tmp/reads" -lm -lpthread >"$tmp/out" 2>&1; then
    "$tmp/reads" "$tmp/one.bmp" >"$tmp/said"
    tap_check "reading an image and a directory names the header and the package" test \
        "$(grep -c 'compiled without .*decoder.*<stb/stb_image.h>.*apt-get install libstb-dev' "$tmp/said")" = 2
    sed 's/^/# /' "$tmp/said"
else
    tap_not_ok "a program compiles without stb" "$tmp/out"
fi
if $cc -std=c11 -O0 $hidden -DMIRRORTRAIN_NO_SIMD cli/*.c mirrortrain.c -o "$tmp/mirrortrain" -lm -lpthread -ldl \
    >"$tmp/out" 2>&1; then
    "$tmp/mirrortrain" verify "$tmp" >"$tmp/said" 2>&1
    tap_check "mirrortrain verify says it" grep -q 'compiled without .*decoder.*apt-get install libstb-dev' "$tmp/said"
    "$tmp/mirrortrain" doctor "$tmp" >"$tmp/said" 2>&1
    tap_check "mirrortrain doctor says it" grep -q '^warning *images .*apt-get install libstb-dev' "$tmp/said"
else
    tap_not_ok "the program compiles without stb" "$tmp/out"
fi
tap_done
