#!/bin/sh
# Programs that use stb_image themselves beside mirrortrain, in one unit in every order, and in several units: both decode, each as it does
# without the other, whatever stb_image is configured with. STB_ALL=1 (make matrix): all configurations, compilers and languages.
# STB_FLAGS are for the compilers, such as -I to another stb_image.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
flags="-Wall -Wextra -Wpedantic -Wshadow -Werror -O0 -D_POSIX_C_SOURCE=200809L ${STB_FLAGS-}"
if ! printf '#include "tests/stb_user.h"\n#include STB_HEADER\n' | ${CC:-cc} ${STB_FLAGS-} -I. -fsyntax-only -x c - >"$tmp/found" 2>&1; then
    tap_skip "no stb_image.h"
    tap_done
fi

# The user's configurations, one a line.
cat >"$tmp/configurations" <<'C'
-DDEFAULTS
-DSTBI_ASSERT(x)=((void)0) -DSTBI_NO_STDIO -DSTBI_NO_SIMD -DSTBI_NO_THREAD_LOCALS -DUSER_ALLOCATES -DSTBI_MAX_DIMENSIONS=8 -DSTBI_ONLY_PNG
C
[ ! "${STB_ALL-}" ] || cat >>"$tmp/configurations" <<'C'
-DSTB_IMAGE_STATIC
-DSTBIDEF=static
-DSTBI_ONLY_PNG
-DSTBI_ONLY_JPEG
-DSTBI_NO_PNG
-DSTBI_NO_STDIO
-DSTBI_NO_SIMD
-DSTBI_NO_THREAD_LOCALS
-DSTBI_NO_FAILURE_STRINGS
-DSTBI_FAILURE_USERMSG
-DSTBI_MAX_DIMENSIONS=8
-DSTBI_NO_HDR -DSTBI_NO_LINEAR
-DUSER_ALLOCATES
C

compile() { # FLAGS and files
    $compiler $language $flags "$@"
}

# Links FILES and keeps what the program prints in PROGRAM.said.
link_and_run() { # PROGRAM FILE...
    program=$tmp/$1
    shift
    $compiler "$@" -o "$program" -lm -lpthread && "$program" >"$program.said"
}

# What the library's decoder needs of the library, and what it decodes where the program has no stb_image.
make_ours() {
    parts=
    for part in base/base base/entry base/text base/memory base/file base/machine base/timeline base/random base/crc base/sha256 base/team images/header; do
        part_object=$tmp/$(echo $part | tr / _).o
        compile $split -c src/$part.c -o "$part_object" || return 1
        parts="$parts $part_object"
    done
    compile $split -c src/images/decode.c -o "$tmp/decode.o" && compile $split -DOURS=1 -DUSER=0 -c tests/stb_unit.c -o "$tmp/ours.o" && link_and_run ours "$tmp/ours.o" $parts &&
        [ -s "$tmp/ours.said" ] && ! grep none "$tmp/ours.said"
}

# What the user's stb_image decodes in a unit of its own.
make_users() { # CONFIGURATION
    compile "$@" -DOURS=0 -DUSER=2 -DFIRST=1 -c tests/stb_unit.c -o "$tmp/users.o" &&
        link_and_run users "$tmp/users.o" "$tmp/decode.o" $parts && [ -s "$tmp/users.said" ]
}

same_said() {
    grep '^ours' "$tmp/both.said" | diff "$tmp/ours.said" - && grep '^user' "$tmp/both.said" | diff "$tmp/users.said" -
}

# Both in one unit: OURS, USER and FIRST are those of tests/stb_unit.c. What the user only declares is in a unit of its own.
both() { # OURS USER FIRST CONFIGURATION
    ours=$1 user=$2 first=$3 objects=$parts
    shift 3
    unit=$split
    [ "$ours" = 1 ] || unit= objects=
    compile $unit "$@" -DOURS=$ours -DUSER=$user -DFIRST=$first -c tests/stb_unit.c -o "$tmp/both.o" || return 1
    if [ "$user" = 1 ]; then
        compile "$@" -DSTB_IMAGE_IMPLEMENTATION -Itests -c "$tmp/other.c" -o "$tmp/other.o" || return 1
        objects="$objects $tmp/other.o"
    fi
    link_and_run both "$tmp/both.o" $objects && same_said
}

# Each in a unit of its own.
apart() { # CONFIGURATION
    compile "$@" -DOURS=3 -DUSER=2 -DFIRST=1 -c tests/stb_unit.c -o "$tmp/both.o" &&
        link_and_run both "$tmp/both.o" "$tmp/decode.o" $parts && same_said
}

# The macros of stb_image's and ours that a unit ends with are those of the user's own stb_image.
macros() { # FLAGS
    compile "$@" -E -dM tests/stb_unit.c | grep -E '^#define (stb|STB|mirt__stb|mirt__STB|FAST_BITS)' | sort
}
same_macros() { # USER FIRST CONFIGURATION
    user=$1 first=$2
    shift 2
    macros "$@" -DOURS=0 -DUSER=$user -DFIRST=1 >"$tmp/macros" && macros $split "$@" -DOURS=1 -DUSER=$user -DFIRST=$first | diff "$tmp/macros" -
}

no_names() { # OBJECT
    nm "$1" | awk '{ print $NF }' | grep -E 'stbi|STBI|first_row_filter|load_jpeg_image|resample_row_1' | grep -v mirt__ >"$tmp/names"
    cat "$tmp/names"
    [ ! -s "$tmp/names" ]
}

printf '#include "stb_user.h"\n#include STB_HEADER\n' >"$tmp/other.c"
split=-DMIRRORTRAIN_SPLIT_BUILD
if [ "${STB_ALL-}" ]; then compilers="gcc g++ clang clang++"; else compilers="${CC:-cc} c++"; fi
for compiler in $compilers; do
    case $compiler in *++) language="-x c++ -std=c++17" ;; *) language="-x c -std=c11" ;; esac
    if ! has "$compiler"; then
        tap_skip "no $compiler"
        continue
    fi
    tap_check "$compiler: the decoder of a program that does not use stb_image" make_ours
    tap_check "$compiler: it has no name of stb_image's" no_names "$tmp/ours.o"
    tap_check "$compiler: it leaves no macro of stb_image's" same_macros 0 0 -DDEFAULTS
    while read -r configuration; do
        case $configuration in
        *STATIC* | *=static*) users=2 ;; # the implementation is in the same unit
        *) users="1 2" ;;
        esac
        tap_check "$compiler: the user's own decoder with $configuration" make_users $configuration
        for user in $users; do
            case $user in 1) what=declarations ;; *) what=implementation ;; esac
            for first in 1 0; do
                case $first in 1) order="before mirrortrain" ;; *) order="behind mirrortrain" ;; esac
                tap_check "$compiler: $what $order, $configuration" both 1 $user $first $configuration
                tap_check "$compiler: macros of the $what $order, $configuration" same_macros $user $first $configuration
            done
        done
        tap_check "$compiler: in units of their own, $configuration" apart $configuration
    done <"$tmp/configurations"
    # The same with all of mirrortrain.h, which takes longer to compile.
    tap_check "$compiler: the user's own decoder again" make_users -DDEFAULTS
    if [ "${STB_ALL-}" ]; then
        for user in 1 2; do
            for first in 1 0; do tap_check "$compiler: mirrortrain.h, user $user, first $first" both 2 $user $first -DDEFAULTS; done
        done
    else
        tap_check "$compiler: all of mirrortrain.h before the implementation" both 2 2 0 -DDEFAULTS
    fi
done
tap_done
