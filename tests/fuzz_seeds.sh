#!/bin/sh
# What the fuzzers start from, under the sanitizers.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
for kind in model:test_hostile image:test_images; do
    seeds=$tmp/${kind%:*}
    mkdir "$seeds"
    tap_check "${kind#*:} writes seeds" "build/asan/${kind#*:}" --seeds "$seeds"
    for file in "$seeds"/*; do tap_check "${kind%:*}: ${file##*/}" "build/asan/fuzz_${kind%:*}" "$file"; done
done
tap_done
