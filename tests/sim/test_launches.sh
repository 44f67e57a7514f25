#!/bin/sh
# Records of launches are complete, and the same whether kernels are computed or not.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/tap.sh"
unset MIRT_SIM_SEED
cd "$tmp" || exit 2

# SKIP MODEL train|predict BATCH SIZE
record() {
    skip=$1
    shift
    MIRT_SIM_SKIP=$skip MIRT_SIM_MEMORY=140e9 "$root/build/sim/launches" "$@" 2>>"$tmp/errors"
}

record 0 mobilenet_v2 train 2 32 >computed
record 1 mobilenet_v2 train 2 32 >skipped
if [ "$(tail -1 computed)" = end ] && cmp -s computed skipped; then
    tap_ok "computed kernels and skipped ones are launched alike"
else
    diff computed skipped >"$tmp/errors"
    tap_not_ok "computed kernels and skipped ones are launched alike" "$tmp/errors"
fi
record 1 resnet50 train 256 >large
if [ "$(tail -1 large)" = end ] && [ "$(grep -c '^node.*IMAGE [a-z0-9]* 256 ' large)" -eq 105 ] &&
    grep -q '^product M ' large && grep -q '^kernel _ZL*[0-9]*mirt__cu_norm_apply.* GRID .* BLOCK .* SHARED ' large &&
    ! grep -q '^kernel ?' large; then
    tap_ok "a step of ResNet50 with 256 images: 53 convolutions, 52 gradients of images, products, names"
else
    tap_not_ok "a step of ResNet50 with 256 images" "$tmp/errors"
fi
record 1 efficientnet_v2_b0 predict 8 >predicted
python3 "$root/tools/occupancy.py" --library large predicted >table 2>&1
tap_check "a table of convolutions that reach cuBLAS" \
    grep '^| resnet50, train | [0-9]* of 30 of 53 | [0-9]* of 30 of 52 | [0-9]* of 30 of 53 |' table
if "$root/build/sim/launches" nothing train 1 >"$tmp/out" 2>&1; then tap_not_ok "an unknown network is an error"; else
    tap_ok "an unknown network is an error"
fi
sed 's/^/# /' table
tap_done
