#!/bin/sh
# Compiles the GPU backend and the examples with NVIDIA's compiler. mirrortrain_cuda.cu compiles without a warning for
# old and new GPUs, in limited time; hot kernels do not spill registers; every example compiles and links with one
# command, and the program trains on CPUs without a GPU. Of sm_80 and sm_90 tests/check_gpu_tables.sh writes tables.
# Skipped with a message without nvcc.
#
#   tests/check_cuda.sh [ARCHITECTURE...]     as 75 90; without any: 75, 80, 90 and the newest that nvcc knows
#
# With QUICK in the environment: 80 alone, once, by the one command of the first example, and another example.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh

if ! has nvcc; then
    tap_skip "no nvcc: the GPU backend is not compiled here"
    tap_done
fi

most=${CUDA_SECONDS-} # of processor time; without, it is told but not judged, as it depends on the machine
logs=build/cuda
mkdir -p "$logs"
architectures=$*
[ -z "${QUICK-}" ] || [ -n "$architectures" ] || architectures=80
if [ -z "$architectures" ]; then
    newest=$(nvcc --list-gpu-arch | sed -n 's/^compute_\([0-9]*\)$/\1/p' | sort -n | tail -1)
    architectures="75 80 90"
    [ "$newest" -le 90 ] || architectures="$architectures $newest"
fi

# Kernels whose speed stands or falls with registers: none of them may spill.
hot='multiply_kernel|panel_kernel|wgrad_kernel|depth_forward|depth_back|update_kernel|norm_sums|norm_apply|norm_back'

link="-lcublas -lnccl"
for a in $architectures; do
    log=$logs/sm_$a.log
    units="-std=c++17 -c mirrortrain_cuda.cu -o $tmp/sm_$a.o"
    [ -z "${QUICK-}" ] || units="--keep --keep-dir $tmp examples/mnist.c mirrortrain_cuda.cu $link -o $tmp/mnist"
    began=$(date +%s)
    if TIMEFORMAT=%U bash -c "time nvcc -arch=sm_$a -Werror all-warnings -Xptxas -v $units" >"$log" 2>&1; then
        [ -z "${QUICK-}" ] || mv "$tmp/mirrortrain_cuda.o" "$tmp/sm_$a.o"
        seconds=$(($(date +%s) - began))
        tap_ok "sm_$a: compiles without a warning"
        used=$(tail -1 "$log" | sed 's/\..*//')
        used=${used:-$seconds}
        if [ "$used" -lt "${most:-$((used + 1))}" ]; then
            tap_ok "sm_$a: in $used s of processor time, $seconds s"
        else
            tap_not_ok "sm_$a: in $used s of processor time, more than $most s"
        fi
        tap_check "sm_$a: hot kernels spill nothing" python3 tools/ptxas.py "$log" --hot "$hot"
        python3 tools/ptxas.py "$log" | sed 's/^/# /'
        case $a in
        80 | 90)
            if tests/check_gpu_tables.sh "$a" "$log" "$tmp/sm_$a.o" >"$tmp/tables" 2>&1; then
                tap_ok "sm_$a: warps, tensor instructions and cuBLAS, in $logs/*.md"
                grep -v '^ok [0-9]* -\|^1\.\.' "$tmp/tables" | sed 's/^#* */# /'
            else
                grep -v '^ok [0-9]* -\|^1\.\.' "$tmp/tables" >"$tmp/out"
                tap_not_ok "sm_$a: warps, tensor instructions and cuBLAS" "$tmp/out"
            fi
            ;;
        esac
    else
        tap_not_ok "sm_$a: compiles without a warning" "$log"
    fi
done

# One command each, as the README has it; the object of the backend is made once for all of them but the first.
[ -n "${QUICK-}" ] || nvcc -Werror all-warnings examples/mnist.c mirrortrain_cuda.cu $link -o "$tmp/mnist" >"$tmp/out" \
    2>&1
if [ -x "$tmp/mnist" ]; then tap_ok "examples/mnist.c compiles and links by one command"; else tap_not_ok \
    "examples/mnist.c compiles and links by one command" "$tmp/out"; fi
for a in $architectures; do
    [ ! -e "$tmp/sm_$a.o" ] || mv "$tmp/sm_$a.o" "$tmp/cuda.o"
done
for file in examples/*.c examples/*.cpp; do
    name=$(basename "${file%.*}")
    case $name in mnist | *_other) continue ;; esac
    [ -z "${QUICK-}" ] || [ "$name" = checklist ] || continue
    units=$file
    [ ! -f "examples/${name}_other.c" ] || units="$file examples/${name}_other.c"
    tap_check "$file compiles and links without a warning" nvcc -Werror all-warnings $units "$tmp/cuda.o" $link -o \
        "$tmp/$name"
done
if [ -e /dev/nvidia0 ]; then
    tap_skip "there is a GPU: training without one is another machine's test"
else
    tap_check "without a GPU the program trains on the CPUs" sh -c \
        "cd '$tmp' && LD_LIBRARY_PATH=\$(dirname \$(dirname \$(command -v nvcc)))/lib64:\$LD_LIBRARY_PATH ./checklist"
fi
tap_done
