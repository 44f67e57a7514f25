#!/bin/sh
# Builds the engines of the program for the MPIs that are installed.
#
#   tools/build_mpi.sh DIRECTORY
# DIRECTORY/mirrortrain-openmpi.so and DIRECTORY/mirrortrain-mpich.so go next to the program. CFLAGS: of the compiler.
# Exit status: 0 if there is one of them, 1 if it cannot be compiled, or no MPI is installed.
set -u
cd "$(dirname "$0")/.." || exit 1
out=$1
mkdir -p "$out" || exit 1

# WRAPPER: the MPI that it compiles for, openmpi, mpich or "".
kind_of() {
    macros=$(printf '#include <mpi.h>\n' | "$1" -E -dM -x c - 2>/dev/null)
    case $macros in
    *OPEN_MPI*) echo openmpi ;;
    *MPICH_VERSION*) echo mpich ;;
    esac
}

found=
for wrapper in mpicc.openmpi mpicc.mpich mpicc; do
    command -v "$wrapper" >/dev/null 2>&1 || continue
    kind=$(kind_of "$wrapper")
    case " $found " in *" $kind "*) continue ;; esac
    [ -n "$kind" ] || continue
    file=$out/mirrortrain-$kind.so
    echo "$wrapper: $file"
    "$wrapper" -std=c11 ${CFLAGS:--O2} -fPIC -shared mirrortrain_mpi.c -o "$file.$$" || exit 1
    mv "$file.$$" "$file"
    found="$found $kind"
done
[ -n "$found" ] && exit 0
echo "no MPI is installed: apt-get install openmpi-bin libopenmpi-dev" >&2
exit 1
