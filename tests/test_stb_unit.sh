#!/bin/sh
# Tests programs that use both stb_image and mirrortrain. They are in one unit in every order, or in several units: both
# decode as without the other, with every configuration of stb_image. STB_COMPILERS (make matrix): these compilers;
# STB_ALL=1 (make test-long): all of them with all configurations. STB_FLAGS are for the compilers, such as -I for
# another stb_image.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
flags="-Wall -Wextra -Wpedantic -Wshadow -Werror -O0 -D_POSIX_C_SOURCE=200809L ${STB_FLAGS-}"
printf '#include "stb_user.h"\n#include STB_HEADER\n' >"$tmp/other.c"
if ! ${CC:-cc} ${STB_FLAGS-} -Itests -fsyntax-only "$tmp/other.c" 2>"$tmp/found"; then
    tap_skip "no stb_image.h"
    tap_done
fi

# The user's configurations, one per line.
cat >"$tmp/configurations" <<'C'
-DDEFAULTS
-DSTBI_ASSERT(x)=((void)0) -DSTBI_NO_STDIO -DSTBI_NO_SIMD -DSTBI_NO_THREAD_LOCALS -DUSER_ALLOCATES -DSTBI_ONLY_PNG
C
[ ! "${STB_ALL-}" ] || cat >>"$tmp/configurations" <<'C'
-DSTB_IMAGE_STATIC -Wno-unused-function
-DSTBIDEF=static -Wno-unused-function
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
    for part in base/base base/entry base/text base/allocate base/file base/machine base/cpus base/device_timeline \
        base/random base/crc base/sha256 base/team images/header images/decode; do
        part_object=$tmp/$(echo $part | tr / _).o
        compile $split -c src/$part.c -o "$part_object" || return 1
        parts="$parts $part_object"
    done
    compile $split -DOURS=3 -DUSER=0 -c tests/stb_unit.c -o "$tmp/ours.o" && link_and_run ours "$tmp/ours.o" $parts &&
        [ -s "$tmp/ours.said" ] && ! grep none "$tmp/ours.said"
}

# What the user's stb_image decodes in a unit of its own.
make_users() { # CONFIGURATION
    compile "$@" -DOURS=0 -DUSER=2 -DFIRST=1 -c tests/stb_unit.c -o "$tmp/users.o" &&
        link_and_run users "$tmp/users.o" $parts && [ -s "$tmp/users.said" ]
}

same_said() {
    grep '^ours' "$tmp/both.said" | diff "$tmp/ours.said" - && grep '^user' "$tmp/both.said" | diff "$tmp/users.said" -
}

# Both in one unit, by OURS, USER and FIRST of tests/stb_unit.c. What the user only declares has a unit of its own.
both() { # OURS USER FIRST CONFIGURATION
    ours=$1 user=$2 first=$3 objects=${parts% *}
    shift 3
    unit=$split
    [ "$ours" = 1 ] || unit=-DMIRRORTRAIN_NO_SIMD objects=
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
        link_and_run both "$tmp/both.o" $parts && same_said
}

# The macros of stb_image's and ours that a unit ends with are those of the user's own stb_image. GCC's -dM ignores
# _Pragma, so each macro that was ever defined is used at the end, between two @ because the output may break lines.
macros() { # FLAGS
    compile "$@" -E -dD tests/stb_unit.c |
        sed -nE 's/^#define ((stb|STB|mirt__stb|mirt__STB|FAST_BITS)[A-Za-z0-9_]*(\([^)]*\))?).*/\1/p' |
        awk -F '[(]' 'BEGIN { print "#include \"stb_unit.c\"" }
            { use = $0; if (NF == 2) { gsub(/[A-Za-z0-9_]+/, "x", $2); use = $1 "(" $2 } }
            { print "#ifdef " $1 "\n#line 1\n@macro\"" $1 "\"" use "@\n#endif" }' >"$tmp/macro_uses.c"
    compile "$@" -Itests -E "$tmp/macro_uses.c" | grep -v '^#' | tr -d '\n ' | tr @ '\n' | grep '^macro"' | sort -u
}
same_macros() { # USER FIRST CONFIGURATION
    user=$1 first=$2
    shift 2
    macros "$@" -DOURS=0 -DUSER=$user -DFIRST=1 >"$tmp/macros" &&
        macros $split "$@" -DOURS=1 -DUSER=$user -DFIRST=$first | diff "$tmp/macros" -
}

no_names() { # OBJECT
    nm "$1" | awk '{ print $NF }' | grep -v mirt__ | grep -E 'stbi|STBI|first_row_filter|resample_row_1' >"$tmp/names"
    cat "$tmp/names"
    [ ! -s "$tmp/names" ]
}

split=-DMIRRORTRAIN_SPLIT_BUILD
if [ "${STB_ALL-}" ]; then compilers="gcc g++ clang clang++"; else compilers=${STB_COMPILERS:-${CC:-cc}}; fi
for compiler in $compilers; do
    case $compiler in *++) language="-x c++ -std=c++17" ;; *) language="-x c -std=c11" ;; esac
    if ! has "$compiler"; then
        tap_skip "no $compiler"
        continue
    fi
    tap_check "$compiler: the decoder of a program that does not use stb_image" make_ours
    tap_check "$compiler: it has no name of stb_image's" no_names ${parts##* }
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
                case $first in 1) order="before mirrortrain" ;; *) order="after mirrortrain" ;; esac
                tap_check "$compiler: $what $order, $configuration" both 1 $user $first $configuration
                tap_check "$compiler: its macros, $what $order, $configuration" \
                    same_macros $user $first $configuration
            done
        done
        tap_check "$compiler: in units of their own, $configuration" apart $configuration
    done <"$tmp/configurations"
    tap_check "$compiler: the user's own decoder again" make_users -DDEFAULTS
    # The same with all of mirrortrain.h, which takes longer to compile.
    for order in "2 0" ${STB_ALL:+"2 1" "1 1" "1 0"}; do
        tap_check "$compiler: all of mirrortrain.h; user and first are $order" both 2 $order -DDEFAULTS
    done
done
tap_done
