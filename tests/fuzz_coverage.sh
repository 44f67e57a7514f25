#!/bin/sh
# Measures the coverage of parsers by the fuzz targets' corpora and these tests. It uses gcc and gcov: fuzz_coverage.sh
# TEST... Prints a line for each parser; fails if one is below 95 %. Lines that nothing reached are in
# build/cover/FILE.gcov.
cd "$(dirname "$0")/.." || exit 2
parsers="src/formats/json.c src/formats/safetensors.c src/nn/config.c src/nn/architecture.c
    src/checkpoint/resume.c src/checkpoint/run_state.c src/checkpoint/run_write.c
    src/checkpoint/readymade.c src/data/cache.c
    src/data/image_csv.c src/data/tar_shards.c src/formats/tar.c src/data/idx.c src/data/inflate.c
    src/images/header.c cli/report_log.c"
home=$(mktemp -d) || exit 2
trap 'rm -rf "$home"' EXIT
trap 'exit 1' HUP INT TERM
status=0
find build/cover -name '*.gcda' -delete
for test in "$@"; do
    MIRT_TEST_SMALL=1 TMPDIR=$home "build/cover/$test" >"$home/out" 2>&1 || {
        echo "$test failed; the figures are too low"
        grep '^not ok' "$home/out" | head -5
        status=1
    }
done
for name in model image resume cache csv gzip log tar; do
    mkdir "$home/$name"
    tar -xzf "tests/corpus/$name.tar.gz" -C "$home/$name" || exit 2
    case $name in
    model) build/cover/test_hostile --seeds "$home/$name" >/dev/null ;;
    image) build/cover/test_images --seeds "$home/$name" >/dev/null ;;
    resume | tar) TMPDIR=$home "build/cover/fuzz_$name" --seeds "$home/$name" ;;
    esac
    TMPDIR=$home "build/cover/fuzz_$name" "$home/$name"/* >"$home/out" 2>&1 || {
        echo "fuzz_$name failed"
        status=1
    }
done
for file in $parsers; do
    case $file in
    src/*) data=build/cover/parts/${file#src/} data=${data%.c}.gcda ;;
    *) data=$(ls build/cover/*"$(basename "$file" .c)".gcda 2>/dev/null | head -1) ;;
    esac
    lines=$(gcov -o "$(dirname "$data")" "$data" 2>/dev/null | sed -n "\|^File '$file'|{n;s/^Lines executed://p;}")
    [ ! -e "$(basename "$file").gcov" ] || mv "$(basename "$file").gcov" build/cover/
    rm -f ./*.gcov
    printf '%-28s %s\n' "$file" "${lines:-nothing}"
    [ "$(printf '%s' "${lines:-0}" | sed 's/%.*//; s/\..*//')" -ge 95 ] || status=1
done
exit $status
