#!/bin/sh
# The first hour on a GPU, rehearsed without one. Stubs crash, hang, are wrong, and lack libraries.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
root=$PWD

stub() { # FILE COMMANDS
    printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"
}
check() { # DESCRIPTION CONDITION...
    name=$1
    shift
    if "$@"; then tap_ok "$name"; else tap_not_ok "$name" "$tmp/said"; fi
}
well() { # ITEM STATUS
    grep -q "^.	$1	$2	" out/results.tsv
}

# A folder as make gpu-hour fills it.
mkdir -p "$tmp/tools" "$tmp/hour/sm_90" "$tmp/hour/sm_80" "$tmp/hour/lib" "$tmp/files/bench"
cp tests/gpu/hour "$tmp/hour/"
cp bench/peer_gpu.py "$tmp/files/bench/"
tar -czf "$tmp/hour/source.tar.gz" -C "$tmp/files" .
cd "$tmp/hour" || exit 2
good='echo "ok 1 - good"; echo "1..1"'
tests="test_gpu test_kernels test_ops test_depthwise test_storage test_conv_tiles nccl_pair selftest"
for test in $tests; do stub sm_90/$test "$good"; done
cat >"$tmp/program" <<'P'
case $1 in
devices) echo "gpu:0    Stub GPU, sm_90" ;;
doctor) echo "doctor: all is well" ;;
bench)
    rate=1000
    case "$* " in *" --feed "*) rate=900 ;; esac
    [ "${MIRT_CUDA_STORE-}" != none ] || rate=500
    case "$*" in *resnet50*) rate=$((rate * 7)) ;; esac
    echo "bench: model=stub images_per_second=$rate.00 ms_per_step=1.0 gflops=1.0 steps=5"
    ;;
esac
P
stub sm_90/mirrortrain "$(cat "$tmp/program")"
stub "$tmp/tools/nvidia-smi" 'case "$*" in *compute_cap*) echo 9.0 ;; *) echo "Stub GPU" ;; esac'
stub "$tmp/tools/nproc" 'echo 16'
stub "$tmp/tools/python3" 'case "$1" in
-c) echo /nowhere/torch ;;
*peer_gpu.py)
    read ask
    echo "{\"version\": \"stub\"}"
    case $ask in
    *efficientnet*) echo "{\"error\": \"out of memory\"}" ;;
    *) echo "{\"images_per_second\": 5000.5}" ;;
    esac
    ;;
esac'
cat >"$tmp/ncu" <<'P'
echo "==PROF== connected"
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","multiply_kernel(float)","gpu__time_duration.sum","usecond","30.0"'
echo '"0","multiply_kernel(float)","dram__bytes.sum","Mbyte","60.0"'
echo '"1","norm_apply(float)","gpu__time_duration.sum","nsecond","10,000"'
P
stub "$tmp/tools/ncu" "$(cat "$tmp/ncu")"
stub "$tmp/tools/compute-sanitizer" 'for last; do :; done; exec "$last"'
hour() { # STAGE LIMIT
    PATH="$tmp/tools:$PATH" HOUR_LIMIT=$2 ./hour "$1" >"$tmp/said" 2>&1
}
results() {
    "$python" "$root/tools/gpu_results.py" out "$@" >"$tmp/said" 2>&1
}
python=$(command -v python3)

for stage in a b c d; do
    hour $stage 500
    check "stage $stage ends: $(tail -n 1 "$tmp/said")" grep -q "^stage $stage: .* items are well" "$tmp/said"
done
check "training is compared with the CPU, at small and usual sizes" \
    test "$(grep -c '	training' out/results.tsv)" -eq 2
check "each network is measured resident and fed" \
    sh -c 'grep -q images_per_second=900 out/a.mobilenet_v2-fed.txt && grep -q =1000 out/a.mobilenet_v2.txt'
check "PyTorch that runs out of memory is a failure" well torch-efficientnet_v2_m-forward-compile failed
check "16 cores are measured as devices and as threads" \
    sh -c 'grep -q "cores-mnist-16	ok" out/results.tsv && grep -q "threads-resnet50-16	ok" out/results.tsv'
printf '# Performance\n' >page.md
results --document page.md
status=$?
check "the tables: resnet50 as it is, recomputed and fed" grep -q '^| resnet50 | 7000 | 3500 | 7000 |.* 6300 |' page.md
check "beside PyTorch's best" grep -q '^| resnet50 | 7000 | 5000 | 5000 | 5000 | 1.40 |' page.md
check "the kernels by their share of the time" grep -q '^| multiply_kernel | 1 | 0.030 | 75.0 % | 2.00 |' page.md
check "the cores beside PyTorch" grep -q '^| 16 | 1000 | 5000 |' page.md
check "what is not well is listed, and is the exit status" \
    sh -c 'grep -q "torch-efficientnet_v2_m-forward-compile | failed | .*out of memory" page.md && [ '$status' -eq 1 ]'
results --document page.md
check "a second time the page's tables are replaced" test "$(grep -c '^| 16 | ' page.md)" -eq 1

# Crashes, hangs and wrong results end nothing but themselves.
rm -rf out
stub sm_90/test_ops 'echo "ok 1 - good"; kill -SEGV $$'
stub sm_90/test_depthwise 'echo "not ok 1 - wrong by 3"; echo "1..1"; exit 1'
stub sm_90/selftest 'sleep 100'
sed -i 's/item selftest 60/item selftest 6/' hour
hour a 500
check "a crash" well test_ops-aligned failed
check "a wrong result" well test_depthwise-aligned failed
check "a hang ends by its own limit" well selftest 'longer than 6 s'
check "what comes after them runs" well nccl-pair ok
results
check "all three are listed, with what they said" sh -c "grep -q '| test_ops-aligned | failed |' '$tmp/said' &&
    grep -q '| test_depthwise-aligned | failed | not ok 1 - wrong by 3 |' '$tmp/said' &&
    grep -q '| selftest | longer than 6 s |' '$tmp/said'"

# The stage's own limit, and a stage that is killed.
rm -rf out
stub sm_90/doctor true
stub sm_90/test_gpu 'sleep 100'
began=$(date +%s)
hour a 12
took=$(($(date +%s) - began))
check "a stage ends by its limit ($took s of 12)" test $took -le 40
check "what there was no time for is told" well nccl-pair 'no time'
rm -rf out
PATH="$tmp/tools:$PATH" ./hour a >"$tmp/said" 2>&1 &
script=$!
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    grep -qs '	doctor	' out/results.tsv && break
    sleep 1
done
kill -KILL $script
check "a stage that is killed leaves what it had" well doctor ok
pkill -f "$tmp/hour/sm_90/test_gpu" 2>/dev/null

# Prebuilt programs that lack a library are built from the sources.
rm -rf out source
for test in $tests; do stub sm_90/$test "$good"; done
missing='echo "$0: error while loading shared libraries: libcublas.so.13" >&2; exit 127'
for program in $tests mirrortrain; do stub sm_90/$program "$missing"; done
stub "$tmp/tools/make" 'case $1 in --version) echo "make 4"; exit ;; esac
mkdir -p source/build/gpu; for p in '"$tests"' mirrortrain; do cp "'"$tmp"'/built" source/build/gpu/$p; done'
stub "$tmp/built" "$(cat "$tmp/program"); case \$0 in *test_* | *nccl* | *selftest) $good ;; esac"
hour a 500
check "without its libraries all is built anew" well rebuild ok
check "and what was built runs" well mobilenet_v2 ok
stub "$tmp/tools/make" 'echo "no nvcc"; exit 1'
rm -rf out source
hour a 500
check "where that fails, too, items fail and the stage ends" \
    sh -c "grep -q '^stage a: .* 1 of ' '$tmp/said' && grep -q 'mobilenet_v2	not found' out/results.tsv"
./hour x >"$tmp/said" 2>&1
check "a stage that there is not: how to use it" test $? -eq 2
tap_done
