#!/bin/sh
# Installs the library below an empty prefix; a project outside of the tree uses it. By pkg-config and CMake, shared and
# static; uninstalling leaves nothing. The exported symbols are those of packaging/symbols.txt. QUICK: without compiling
# the library again in CMake.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
root=$PWD prefix=$tmp/prefix
project=$tmp/project
cp -r examples/cmake "$project"

quiet_make() { "${MAKE:-make}" --no-print-directory "$@"; }
# PROGRAM [LIBRARY PATH]: trains.
trains() { LD_LIBRARY_PATH=${2:-} "$1" 2>&1 | grep -q '^mirrortrain .*: loss [0-2]\.'; }
links_to() { ldd "$1" | grep -q libmirrortrain.so.0; }

tap_check "make install" quiet_make install PREFIX="$prefix"
find "$prefix" ! -type d | sed "s|$prefix/||" | grep -v 'bin/mirrortrain-' | sort >"$tmp/installed"
cat >"$tmp/wanted" <<'W'
bin/mirrortrain
include/mirrortrain.h
lib/cmake/mirrortrain/engines.cmake
lib/cmake/mirrortrain/mirrortrainConfig.cmake
lib/cmake/mirrortrain/mirrortrainConfigVersion.cmake
lib/libmirrortrain.a
lib/libmirrortrain.so
lib/libmirrortrain.so.0
lib/libmirrortrain.so.VERSION
lib/pkgconfig/mirrortrain.pc
share/doc/mirrortrain/LICENSE
share/man/man1/mirrortrain.1
share/mirrortrain/mirrortrain_cuda.cu
share/mirrortrain/mirrortrain_mpi.c
share/mirrortrain/mirrortrain_tcp.c
W
version=$(build/mirrortrain --version | sed 's/^mirrortrain //')
sed -i "s/VERSION$/$version/" "$tmp/wanted"
tap_check "installs what it should" diff "$tmp/wanted" "$tmp/installed"
tap_check "the program runs" "$prefix/bin/mirrortrain" --version
if has groff; then
    groff -man -Tutf8 -ww "$prefix/share/man/man1/mirrortrain.1" >"$tmp/page" 2>"$tmp/said"
    tap_check "the man page is one" test ! -s "$tmp/said" -a "$(grep -c '^ *mirrortrain [a-z].* - ' "$tmp/page")" -gt 10
else
    tap_skip "no groff for the man page"
fi

nm -D --defined-only "$prefix/lib/libmirrortrain.so" | awk '{ print $3 }' | sort >"$tmp/symbols"
tap_check "exports the symbols of packaging/symbols.txt (make symbols writes them)" \
    diff packaging/symbols.txt "$tmp/symbols"

# pkg-config.
if has pkg-config; then
    export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
    tap_check "pkg-config knows the version" test "$(pkg-config --modversion mirrortrain)" = "$version"
    tap_check "pkg-config, shared" "${CC:-cc}" "$project/digits.c" $(pkg-config --cflags --libs mirrortrain) \
        -o "$tmp/shared"
    tap_check "links to the library's major version" links_to "$tmp/shared"
    tap_check "trains" trains "$tmp/shared" "$prefix/lib"
    tap_check "pkg-config, static" "${CC:-cc}" "$project/digits.c" -static \
        $(pkg-config --static --cflags --libs mirrortrain) -o "$tmp/static"
    tap_check "trains alone" trains "$tmp/static"
    tap_check "pkg-config, C++" "${CXX:-c++}" -x c++ -std=c++20 "$project/digits.c" \
        $(pkg-config --cflags --libs mirrortrain) -o "$tmp/cpp"
else
    tap_skip "no pkg-config"
fi

# NAME FLAGS...: configures and builds the project.
cmake_builds() {
    build=$tmp/$1
    shift
    cmake -S "$project" -B "$build" "$@" && cmake --build "$build"
}
if has cmake; then
    tap_check "find_package, shared" cmake_builds found -DCMAKE_PREFIX_PATH="$prefix"
    tap_check "links to the library's major version" links_to "$tmp/found/digits"
    tap_check "trains" trains "$tmp/found/digits"
    tap_check "find_package, static" cmake_builds found_static -DCMAKE_PREFIX_PATH="$prefix" -Dmirrortrain_STATIC=ON
    tap_check "trains alone" trains "$tmp/found_static/digits"
    if links_to "$tmp/found_static/digits"; then tap_not_ok "is static"; else tap_ok "is static"; fi
    tap_check "with TCP" cmake_builds tcp -DCMAKE_PREFIX_PATH="$prefix" -DWITH_TCP=ON
    tap_check "trains" trains "$tmp/tcp/digits"
    if has mpicc; then
        tap_check "with MPI" cmake_builds mpi -DCMAKE_PREFIX_PATH="$prefix" -DWITH_MPI=ON
        tap_check "trains" trains "$tmp/mpi/digits"
    else
        tap_skip "no mpicc"
    fi
    sed 's/find_package(mirrortrain 0.1 /find_package(mirrortrain 7 /' examples/cmake/CMakeLists.txt \
        >"$project/CMakeLists.txt"
    if cmake_builds other -DCMAKE_PREFIX_PATH="$prefix" >"$tmp/said" 2>&1; then
        tap_not_ok "another version is refused"
    else
        tap_check "another version is refused" grep -q "$version" "$tmp/said"
    fi
    cp examples/cmake/CMakeLists.txt "$project/CMakeLists.txt"
else
    tap_skip "no cmake"
fi
if has cmake && [ -z "${QUICK:-}" ]; then
    tap_check "add_subdirectory" cmake_builds inside -DMIRRORTRAIN_DIR="$root"
    tap_check "trains" trains "$tmp/inside/digits"
    tap_check "add_subdirectory, shared" cmake_builds inside_shared -DMIRRORTRAIN_DIR="$root" -DBUILD_SHARED_LIBS=ON
    tap_check "trains" trains "$tmp/inside_shared/digits"
    if git rev-parse HEAD >/dev/null 2>&1; then
        git clone -q . "$tmp/clone"
        tap_check "FetchContent" cmake_builds fetched -DMIRRORTRAIN_URL="$tmp/clone" \
            -DMIRRORTRAIN_TAG="$(git rev-parse HEAD)"
        tap_check "trains" trains "$tmp/fetched/digits"
    else
        tap_skip "no git for FetchContent"
    fi
    own() { cmake -S . -B "$tmp/own" -DBUILD_SHARED_LIBS=ON -DCMAKE_INSTALL_PREFIX="$tmp/by_cmake" &&
        cmake --build "$tmp/own" && cmake --install "$tmp/own"; }
    tap_check "CMake installs, too" own
    (cd "$tmp/by_cmake" && find . ! -type d | sed 's|^\./||' | sort) >"$tmp/installed"
    grep -v 'libmirrortrain.a$' "$tmp/wanted" >"$tmp/shared_wanted"
    tap_check "the same files, but for the static library" diff "$tmp/shared_wanted" "$tmp/installed"
    tap_check "find_package of that" cmake_builds found_own -DCMAKE_PREFIX_PATH="$tmp/by_cmake"
    tap_check "trains" trains "$tmp/found_own/digits"
fi

tap_check "make uninstall" quiet_make uninstall PREFIX="$prefix"
find "$prefix" ! -type d >"$tmp/left"
find "$prefix" -type d -name '*mirrortrain*' >>"$tmp/left"
if [ -s "$tmp/left" ]; then tap_not_ok "nothing is left" "$tmp/left"; else tap_ok "nothing is left"; fi
tap_done
