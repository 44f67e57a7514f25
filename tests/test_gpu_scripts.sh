#!/bin/sh
# The script of make gpu-test, rehearsed without a GPU. Stubs stand for the machine's tools and for the programs.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
root=$PWD

mkdir -p "$tmp/tree/tests/gpu" "$tmp/tree/docs" "$tmp/tree/build/gpu" "$tmp/tools"
cp tests/run "$tmp/tree/tests/" && cp tests/gpu/run_all "$tmp/tree/tests/gpu/" || exit 2
cd "$tmp/tree" || exit 2
stub() { # FILE COMMANDS
    printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"
}
stub "$tmp/tools/nvcc" 'exit 0'
stub "$tmp/tools/nvidia-smi" 'echo "Stub GPU, 1.0"'
stub "$tmp/tools/make" 'echo compiling; echo "-lnccl" >build/gpu/libraries'
good='echo "ok 1 - good"; echo "1..1"'
programs="test_kernels test_ops test_storage test_depthwise test_conv_tiles test_gpu nccl_pair selftest"
for program in $programs; do stub build/gpu/$program "$good"; done

# LIMIT: runs the script; what it says is in out, its seconds in took.
try() {
    rm -rf build/gpu/logs
    printf '# Performance\n\n<!-- gpu-test -->\n' >docs/performance.md
    began=$(date +%s)
    PATH="$tmp/tools:$PATH" GPU_LIMIT=$1 tests/gpu/run_all make $(printf 'build/gpu/%s ' $programs) >"$tmp/out" 2>&1
    status=$?
    took=$(($(date +%s) - began))
}
check() { # DESCRIPTION CONDITION...
    name=$1
    shift
    if "$@"; then tap_ok "$name"; else tap_not_ok "$name" "$tmp/out"; fi
}

try 300
check "all is well: 13 passed" test "$(tail -n 1 "$tmp/out")" = "13 passed, 0 failed"
check "and the exit status says so" test $status -eq 0
check "the page of figures has a line" grep -q 'Stub GPU.*13 passed, 0 failed' docs/performance.md
check "results are kept" grep -q '^training: 1 passed, 0 failed' build/gpu/logs/results

stub build/gpu/test_gpu 'echo "ok 1 - good"; kill -SEGV $$'
stub build/gpu/test_ops 'echo "not ok 1 - wrong"; echo "1..1"'
try 300
check "a program that crashes and one that is wrong: 3 failed" \
    test "$(tail -n 1 "$tmp/out")" = "11 passed, 3 failed"
check "and what comes after them runs" grep -q '^NCCL: 1 passed' build/gpu/logs/results
check "which the exit status says" test $status -eq 1

stub build/gpu/test_ops "$good"
stub build/gpu/test_gpu "$good"
stub build/gpu/nccl_pair 'echo "ok 1 - good"; sleep 100'
stub build/gpu/selftest 'sleep 100'
try 24
check "programs that hang end with the whole limit ($took s of 24)" test $took -le 40
check "what was found before is kept" grep -q '^training: 1 passed, 0 failed' build/gpu/logs/results
check "the hang is a failure" grep -q '^NCCL: 1 passed, 1 failed' build/gpu/logs/results
check "what there is no time for is named" grep -q 'skipped:.* selftest' build/gpu/logs/results

# Killed from outside: results so far are there.
stub build/gpu/nccl_pair 'sleep 100'
rm -rf build/gpu/logs
PATH="$tmp/tools:$PATH" GPU_LIMIT=300 tests/gpu/run_all make build/gpu/test_gpu >"$tmp/out" 2>&1 &
script=$!
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    grep -qs '^training:' build/gpu/logs/results && break
    sleep 1
done
kill -KILL $script
check "a killed script leaves its results" grep -q '^training: 1 passed, 0 failed' build/gpu/logs/results
pkill -f "$tmp/tree/build/gpu/nccl_pair" 2>/dev/null
pkill -f "build/gpu/nccl_pair" 2>/dev/null

# Without -arch nvcc compiles for an old GPU, and the driver once more at the start of the program.
cat "$root"/README.md "$root"/docs/*.md "$root"/src/manual.txt "$root"/examples/*.c "$root"/examples/*.cpp |
    tr '\n' ' ' |
    grep -oE 'nvcc (-[^ ]* )*[^ ]+\.(c|cu|cpp) ' >"$tmp/commands"
check "documented commands of nvcc name the GPU's architecture: $(grep -c . "$tmp/commands")" \
    sh -c "grep -q . '$tmp/commands' && ! grep -v -e -arch= '$tmp/commands'"

# Objects that were made elsewhere serve as they are, until the flags for the libraries change.
mkdir "$tmp/links" && cd "$tmp/links" || exit 2
for file in "$root"/*; do [ "$(basename "$file")" = build ] || ln -s "$file" .; done
stub "$tmp/tools/nvcc" 'for last; do :; done; case $last in */cuda.o) echo compiled >>"$NVCC_LOG"; : >"$last" ;; esac'
rm "$tmp/tools/make"
NVCC_LOG=$tmp/compiled
export NVCC_LOG
: >"$NVCC_LOG"
compile() { PATH="$tmp/tools:$PATH" make NVCC=nvcc build/gpu/cuda.o >"$tmp/out" 2>&1; }
compile && compile
check "an object is compiled once" test "$(grep -c compiled "$NVCC_LOG")" -eq 1
sleep 1
echo "other flags" >build/gpu/libraries
compile
check "and again for other flags" test "$(grep -c compiled "$NVCC_LOG")" -eq 2
tap_done
