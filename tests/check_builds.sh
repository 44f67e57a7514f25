#!/bin/sh
# Builds without parts of the library, for debuggers and for shared libraries; refused targets. QUICK: each language
# with one compiler.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh

warnings="-Wall -Wextra -Wpedantic -Wshadow -Werror"
small="-DMIRRORTRAIN_NO_CALLBACKS -DMIRRORTRAIN_NO_IMAGES -DMIRRORTRAIN_NO_MODELS -DMIRRORTRAIN_NO_ONNX"
images="-DMIRRORTRAIN_NO_TRAIN -DMIRRORTRAIN_IMAGES"
echo '#include "mirrortrain.h"' >"$tmp/declarations.c"

# Functions that the header declares with FLAGS...
declared() {
    gcc "$@" -I. -E "$tmp/declarations.c" | sed -n 's/^extern .*[ *]\(mirt_[a-z0-9_]*\)(.*/\1/p' | sort -u
}

# Every declared function is defined, and no other: with a switch a call of an absent function does not compile.
same_functions() { # DESCRIPTION OBJECT FLAGS...
    name=$1 object=$2
    shift 2
    nm "$object" | awk '$2 == "T" { print $3 }' | sort -u >"$tmp/defined"
    declared "$@" | comm -3 - "$tmp/defined" >"$tmp/difference"
    if [ -s "$tmp/difference" ] || [ "$(wc -l <"$tmp/defined")" -lt 50 ]; then
        tap_not_ok "$name: it defines what it declares (left: only declared)" "$tmp/difference"
    else
        tap_ok "$name: it defines the $(wc -l <"$tmp/defined") functions that it declares"
    fi
}

# What must be absent with each switch.
cat >"$tmp/absent" <<'A'
MIRRORTRAIN_NO_CALLBACKS mirt_early_stopping mirt_tensorboard mirt_write_scalar
MIRRORTRAIN_NO_IMAGES mirt_decode_image mirt_image_dataset_from_directory mirt_drawn_photos
MIRRORTRAIN_NO_MODELS mirt_mobilenet_v2 mirt_model_by_name
MIRRORTRAIN_NO_ONNX mirt_save_onnx
MIRRORTRAIN_NO_TRAIN mirt_fit mirt_compile mirt_evaluate mirt_save mirt_function_create mirt_adam mirt_augment
MIRRORTRAIN_NO_TRAIN mirt_shuffle mirt_repeat mirt_accumulate mirt_load_image mirt_decode_image
MIRRORTRAIN_NO_TRAIN mirt_tensorboard mirt_summary mirt_profile_begin mirt_check_drift mirt_latest_checkpoint
A
while read -r switch functions; do
    declared -D"$switch" >"$tmp/declared"
    for function in $functions; do
        if grep -qx "$function" "$tmp/declared"; then
            tap_not_ok "$switch: $function is not declared"
        else
            tap_ok "$switch: $function is not declared"
        fi
    done
done <"$tmp/absent"

for compiler in "gcc -std=c11" "clang -std=c11" "g++ -x c++ -std=c++17" "clang++ -x c++ -std=c++17"; do
    if ! has "${compiler%% *}"; then tap_skip "no ${compiler%% *}"; continue; fi
    case ${QUICK:+$compiler} in clang\ * | g++\ *) continue ;; esac
    for switch in CALLBACKS IMAGES MODELS ONNX TRAIN; do
        tap_check "$compiler without $switch" $compiler $warnings -DMIRRORTRAIN_NO_$switch -fsyntax-only -I. \
            mirrortrain.c
    done
    tap_check "$compiler: predict only, without models" $compiler $warnings -DMIRRORTRAIN_NO_TRAIN $small \
        -fsyntax-only -I. mirrortrain.c
    tap_check "$compiler: predict only, with images" $compiler $warnings $images -fsyntax-only -I. mirrortrain.c
    tap_check "$compiler without all four" $compiler $warnings $small -fsyntax-only -I. mirrortrain.c
    tap_check "$compiler: MIRRORTRAIN_DEBUG" $compiler $warnings -DMIRRORTRAIN_DEBUG -fsyntax-only -I. mirrortrain.c
done
for cc in gcc clang; do
    has $cc || continue
    for flags in "" -DMIRRORTRAIN_SHARED -DMIRRORTRAIN_NO_TRAIN "$images" "$small"; do
        tap_check "$cc declares in C99 $flags" $cc -std=c99 $warnings $flags -fsyntax-only -I. "$tmp/declarations.c"
    done
done

# Real builds, without optimization; all of them run.
build() { # NAME FLAGS...
    name=$1
    shift
    tap_check "$name: it compiles" gcc -std=c11 $warnings -O0 "$@" tests/build_program.c -o "$tmp/$name" -lm -lpthread
}
run() { # NAME COMMAND FILE: what it prints
    "$tmp/$1" "$2" "$3" 2>"$tmp/log"
}
equal() { # DESCRIPTION ONE OTHER
    if [ -n "$2" ] && [ "$2" = "$3" ]; then tap_ok "$1"; return; fi
    echo "$2 and $3" >"$tmp/out"
    tap_not_ok "$1" "$tmp/out"
}
build full
full=$(run full train "$tmp/model.safetensors")
equal "the full build predicts with the loaded model as it did after training" "$full" \
    "$(run full predict "$tmp/model.safetensors")"
for switch in CALLBACKS IMAGES MODELS; do
    build "no_$switch" -DMIRRORTRAIN_NO_$switch
    equal "without $switch training gives the same bits" "$full" "$(run "no_$switch" train "$tmp/other.safetensors")"
done
build small $small
equal "without all three the predictions are bit-identical" "$full" "$(run small predict "$tmp/model.safetensors")"
build predict -DMIRRORTRAIN_NO_TRAIN
for flags in "" -DMIRRORTRAIN_NO_TRAIN; do
    if has clang; then
        tap_check "clang -O0 $flags: it links" clang -std=c11 -O0 -DMIRRORTRAIN_NO_SIMD $flags \
            tests/build_program.c -o "$tmp/clang" -lm -lpthread
        equal "clang -O0 $flags predicts the same bits" \
            "$(MIRT_CPU=plain run full predict "$tmp/model.safetensors")" \
            "$(run clang predict "$tmp/model.safetensors")"
    else
        tap_skip "clang -O0 $flags: no clang"
    fi
done
equal "without training the predictions are bit-identical" "$full" "$(run predict predict "$tmp/model.safetensors")"
equal "and so they are with plain kernels" "$(MIRT_CPU=plain run full predict "$tmp/model.safetensors")" \
    "$(MIRT_CPU=plain run predict predict "$tmp/model.safetensors")"
for layer in dropout augment statistics; do
    tap_check "$layer in a call as in training: predicts" "$tmp/full" call "$layer"
    if "$tmp/predict" call "$layer" 2>"$tmp/out" ||
        ! grep -q "compiled with MIRRORTRAIN_NO_TRAIN, which cannot .*$layer" "$tmp/out"; then
        tap_not_ok "$layer in a call as in training: refused without training" "$tmp/out"
    else
        tap_ok "$layer in a call as in training: refused without training"
    fi
done
plain=$(MIRT_CPU=plain run full train "$tmp/plain.safetensors")
build debug -DMIRRORTRAIN_DEBUG
equal "MIRRORTRAIN_DEBUG trains and predicts as MIRT_CPU=plain" "$plain" "$(run debug train "$tmp/debug.safetensors")"
if cmp "$tmp/plain.safetensors" "$tmp/debug.safetensors" >"$tmp/out" 2>&1; then
    tap_ok "and saves the same file"
else
    tap_not_ok "and saves the same file" "$tmp/out"
fi
tap_check "MIRRORTRAIN_DEBUG, preprocessed" gcc -DMIRRORTRAIN_DEBUG -O0 -I. -E mirrortrain.c -o "$tmp/debug.i"
grep 'pragma GCC optimize' "$tmp/debug.i" >"$tmp/out"
if [ ! -s "$tmp/out" ]; then
    tap_ok "MIRRORTRAIN_DEBUG has no pragma that optimizes"
else
    tap_not_ok "MIRRORTRAIN_DEBUG has no pragma that optimizes" "$tmp/out"
fi

# Options of gcc for parts of the library end with these: without optimization this function takes 24 bytes.
cat >"$tmp/after.c" <<'C'
#define MIRRORTRAIN_IMPLEMENTATION
#include "mirrortrain.h"
int twice(int x) { int y = x; y += x; return y; }
C
tap_check "code after the header: an object" gcc -std=c11 -O2 -DMIRRORTRAIN_NO_TRAIN -I. -c "$tmp/after.c" \
    -o "$tmp/after.o"
equal "code after the header is optimized as the program is" yes \
    "$(nm -S -t d "$tmp/after.o" | awk '$4 == "twice" { print ($2 + 0 <= 12 ? "yes" : "no: " $2 " bytes") }')"

# Predict only: nothing of training is in the object, and it is small.
tap_check "predict only: an object" gcc -std=c11 -O2 -DMIRRORTRAIN_NO_TRAIN -I. -c mirrortrain.c -o "$tmp/predict.o"
tap_check "predict only: beside the object of the whole library" \
    gcc -std=c11 -O2 -I. -c mirrortrain.c -o "$tmp/whole.o"
tap_check "predict only, with images: an object" gcc -std=c11 -O2 $images -I. -c mirrortrain.c -o "$tmp/images.o"
size "$tmp/predict.o" "$tmp/images.o" "$tmp/whole.o" | awk 'NR > 1 { print $4 }' >"$tmp/out"
# 0.45 and 0.50 with gcc 12; compilers differ a little.
if awk '{ bytes[NR] = $1 }
        END { exit !(NR == 3 && bytes[1] <= 0.47 * bytes[3] && bytes[2] <= 0.52 * bytes[3]) }' "$tmp/out"; then
    tap_ok "predict only: half of its bytes, and less without images"
else
    tap_not_ok "predict only: half of its bytes, and less without images" "$tmp/out"
fi
same_functions "predict only" "$tmp/predict.o" -DMIRRORTRAIN_NO_TRAIN
same_functions "predict only, with images" "$tmp/images.o" $images
nm -u "$tmp/predict.o" | grep mirt__ | grep -v mirt__cuda_backend >"$tmp/out"
training='gradients|node_gradient|optimizer|loss_|metric_|checkpoint|run_write|profile|fast_update'
# The gradient of a convolution's input is a transposed convolution as well.
nm "$tmp/predict.o" | grep -E " mirt__($training)|_(gradient|grad_run)\$" |
    grep -Ev 'stop_gradient$|mirt__conv2d_input_grad_run$' >>"$tmp/out"
if [ -s "$tmp/out" ]; then
    tap_not_ok "predict only: it has nothing of training" "$tmp/out"
else
    tap_ok "predict only: it has nothing of training"
fi
echo 'int main(void) { return mirt_fit(NULL, NULL, NULL) != NULL; }' | cat "$tmp/declarations.c" - >"$tmp/fit.c"
if gcc -std=c11 -Werror -DMIRRORTRAIN_NO_TRAIN -I. -fsyntax-only "$tmp/fit.c" >"$tmp/out" 2>&1 ||
    ! grep -q 'error: .*mirt_fit' "$tmp/out"; then
    tap_not_ok "predict only: a call of mirt_fit does not compile" "$tmp/out"
else
    tap_ok "predict only: a call of mirt_fit does not compile"
fi

tap_check "without all three: an object" gcc -std=c11 -O0 $small -I. -c mirrortrain.c -o "$tmp/small.o"
same_functions "without all three" "$tmp/small.o" $small

# A shared library exports the API alone, and a program uses it.
cat >"$tmp/user.c" <<'E2'
#include "mirrortrain.h"
int main(void) { return mirt_version() && mirt_status_text(MIRT_OK) ? 0 : 1; }
E2
tap_check "a shared library" gcc -std=c11 $warnings -O0 -fPIC -fvisibility=hidden -shared -DMIRRORTRAIN_SHARED \
    $small -I. \
    mirrortrain.c -o "$tmp/libmirrortrain.so" -lm -lpthread
nm -D --defined-only "$tmp/libmirrortrain.so" | awk '{ print $3 }' | sort -u >"$tmp/exported"
declared $small | comm -3 - "$tmp/exported" >"$tmp/difference"
if [ -s "$tmp/difference" ]; then
    tap_not_ok "exports the API and nothing else" "$tmp/difference"
else
    tap_ok "exports the API and nothing else"
fi
tap_check "a program links with it" gcc -std=c11 $warnings -DMIRRORTRAIN_SHARED $small -I. "$tmp/user.c" -L"$tmp" \
    -lmirrortrain \
    -Wl,-rpath,"$tmp" -o "$tmp/user"
tap_check "and runs" "$tmp/user"

# Each refused target gives one error, which says why.
refused() { # DESCRIPTION MESSAGE COMMAND...
    name=$1 message=$2
    shift 2
    if "$@" >"$tmp/out" 2>&1; then tap_not_ok "$name: it compiles" "$tmp/out"; return; fi
    if [ "$(grep -c 'error: ' "$tmp/out")" -eq 1 ] && grep 'error: ' "$tmp/out" | grep -q "$message"; then
        tap_ok "$name: one error, which says why"
    else
        tap_not_ok "$name: one error, which says why" "$tmp/out"
    fi
}
printf '#include <stdio.h>\n#define MIRRORTRAIN_IMPLEMENTATION\n#include "mirrortrain.h"\n' >"$tmp/late.c"
printf '#include "mirrortrain.h"\n#define MIRRORTRAIN_IMPLEMENTATION\n#include "mirrortrain.h"\n' \
    >"$tmp/declared_first.c"
for cc in gcc clang; do
    has $cc || continue
    refused "$cc -m32" "compile without -m32" $cc -m32 -fsyntax-only -I. mirrortrain.c
    refused "$cc, big-endian" "little-endian" $cc -U__BYTE_ORDER__ -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__ \
        -fsyntax-only -I. mirrortrain.c
    refused "$cc -std=c11 after a system header" "before any system header" $cc -std=c11 -fsyntax-only -I. "$tmp/late.c"
    refused "$cc -std=c11 after its own declarations" "before any system header" $cc -std=c11 -fsyntax-only -I. \
        "$tmp/declared_first.c"
    refused "$cc: MIRRORTRAIN_IMAGES without images" "define one of them" $cc -DMIRRORTRAIN_IMAGES \
        -DMIRRORTRAIN_NO_IMAGES -fsyntax-only -I. mirrortrain.c
    refused "MIRRORTRAIN_DEBUG with nvcc" "nvcc" $cc -D__NVCC__ -DMIRRORTRAIN_DEBUG -fsyntax-only -I. mirrortrain.c
done
tap_done
