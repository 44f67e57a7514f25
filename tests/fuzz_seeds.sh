#!/bin/sh
# Replays the fuzz targets' corpora and generated seeds under sanitizers. They are those of build/asan, or of
# build/FUZZ_BUILD.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
build=build/${FUZZ_BUILD:-asan}
TMPDIR=$tmp
export TMPDIR
replay() { # PROGRAM DIRECTORY: the last line is only printed when all files have been read
    "$1" "$2"/* >"$2.out" 2>&1 && tail -n 1 "$2.out" | grep -q '^1\.\.' && return
    tail -n 15 "$2.out"
    return 1
}

for name in model image resume cache csv gzip log tar; do
    seeds=$tmp/$name
    mkdir "$seeds"
    tap_check "$name: the corpus" tar -xzf "tests/corpus/$name.tar.gz" -C "$seeds"
    case $name in
    model) [ ! -x "$build/test_hostile" ] || tap_check "$name: seeds" "$build/test_hostile" --seeds "$seeds" ;;
    image) [ ! -x "$build/test_images" ] || tap_check "$name: seeds" "$build/test_images" --seeds "$seeds" ;;
    resume | tar) tap_check "$name: seeds" "$build/fuzz_$name" --seeds "$seeds" ;;
    esac
    tap_check "$name: $(ls "$seeds" | wc -l) files" replay "$build/fuzz_$name" "$seeds"
done
tap_done
