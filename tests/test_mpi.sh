#!/bin/sh
# Tests several processes that train one model: the program and the library under mpirun.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
source=$PWD
if ! has mpirun || ! has mpicc; then
    tap_skip "no mpirun or no mpicc: apt-get install openmpi-bin libopenmpi-dev"
    tap_done
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
rank='"${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"' # a process's, in the shell that starts it

# The engine is found next to the program, wherever that is.
mkdir "$tmp/bin" "$tmp/work" || exit 2
cp "${MIRRORTRAIN:-build/mirrortrain}" "$tmp/bin/mirrortrain" || exit 2
tap_check "make mpi builds the engine" tools/build_mpi.sh "$tmp/bin"
tap_check "a program with the library and MPI" mpicc -std=c11 -O1 tests/mpi_fit.c mirrortrain_mpi.c \
    build/mirrortrain.o -o "$tmp/bin/mpi_fit" -lm -lpthread
tap_check "a slow link is compiled" mpicc -std=c11 -Wall -Wextra -fsyntax-only bench/link.c
cd "$tmp/work" || exit 2
program=$tmp/bin/mirrortrain
fit=$tmp/bin/mpi_fit

# NUMBER COMMAND...: out.txt, err.txt; returns its status.
mpi() {
    number=$1
    shift
    timeout 60 mpirun -n "$number" "$@" >out.txt 2>err.txt </dev/null
}

# NUMBER FLAG...: the program trains with six replicas.
train() {
    number=$1
    shift
    if [ "$number" -eq 1 ]; then set -- "$program" fit "$@"; else set -- mpirun -n "$number" "$program" fit "$@"; fi
    timeout 60 "$@" --replicas 6 --threads 1 --batch 128 --log-steps >out.txt 2>err.txt </dev/null
}

says() { # DESCRIPTION FILE TEXT
    if grep -qF -- "$3" "$2"; then tap_ok "$1"; else tap_not_ok "$1" "$2"; fi
}
once() { # DESCRIPTION FILE TEXT: in one line
    if [ "$(grep -cF -- "$3" "$2")" -eq 1 ]; then tap_ok "$1"; else tap_not_ok "$1" "$2"; fi
}
same() { # DESCRIPTION FILE FILE: the same bytes, and any
    tap_check "$1" sh -c 'test -s "$1" && cmp "$1" "$2"' sh "$2" "$3"
}
files_of() { (cd "$1" && find . -type f | sed 's/tfevents.*/tfevents/' | sort); }

# >>the library

"$fit" alone 0 >alone.txt 2>&1
weights=$(grep -o ' 21 .*' alone.txt)
mpi 2 "$fit" two 0
tap_check "two processes have the weights and losses of one" test "$weights" -a \
    "$(grep -cF -- "$weights" out.txt)" -eq 2
tap_check "and the files" test "$(files_of alone)" = "$(files_of two)"
same "and the log" alone/log.csv two/log.csv
once "the log of one process is shown" err.txt "mirrortrain "

# A run of two processes that ended in the middle of an epoch is resumed in DIRECTORY; each process prints a line.
resumes() { # DESCRIPTION PROCESSES DIRECTORY
    tap_check "$1" test "$(grep -cF -- "$weights" out.txt)" -eq "$2" -a "$(wc -l <out.txt)" -eq "$2"
    same "and its log is that of an unbroken run" alone/log.csv "$3/log.csv"
}
mpi 2 "$fit" half 10
tap_check "an interrupted run keeps two checkpoints" test "$(echo $(ls half | grep step))" = \
    "step_08.safetensors step_10.safetensors"
for copy in three four one; do cp -r half $copy; done
mpi 3 "$fit" three 0 resume
resumes "three processes resume it" 3 three
says "from the newest checkpoint" err.txt "step_10.safetensors: step 10, epoch 2"
DEVICES=2 mpi 2 "$fit" four 0 resume
resumes "two processes of two devices resume it" 2 four
"$fit" one 0 resume >out.txt 2>err.txt
resumes "one process resumes it" 1 one
mpi 2 "$fit" back 10 backup
SHARES=3,2,1 mpi 3 "$fit" back 0 backup
resumes "BackupAndRestore, with uneven shares" 3 back
cp half/step_10.safetensors half/damaged
head -c 5000 half/damaged >half/step_10.safetensors
mpi 2 "$fit" half 0 resume
once "a damaged checkpoint is passed over, which one process says" err.txt "step_10.safetensors is damaged"
mkdir broken
mv half/damaged half/step_10.safetensors
head -c 5000 half/step_10.safetensors >broken/step_10.safetensors
mpi 2 "$fit" broken 0 resume
tap_check "with nothing but damaged ones no process resumes" test $? -ne 0 -a ! -s out.txt
says "and the others name process 0" err.txt "process 0 ("

# Each process has a directory of its own, as on hosts that share no files.
apart="cd host$rank && exec \"\$@\""
mkdir host0 host1
mpi 2 sh -c "$apart" sh "$fit" run 10
once "another process does not see the files, which is said once" err.txt "process 1 ("
tap_check "and writes none" test "$(files_of host1)" = "" -a -s host0/run/step_10.safetensors
mpi 2 sh -c "$apart" sh "$fit" run 0 resume
tap_check "it resumes nevertheless" test "$(grep -cF -- "$weights" out.txt)" -eq 2

# Process 0 cannot write its last checkpoint: the others have no batch left at which they would learn of it.
limited="[ $rank -gt 0 ] || ulimit -f 60; exec \"\$@\""
mpi 2 sh -c "trap '' XFSZ; $limited" sh "$fit" full 0
status=$?
tap_check "a write error of one process ends the fit in all" test $status -eq 1 -a ! -s out.txt
says "and the others say why" err.txt "has stopped: full/"

# The program of docs/many-machines.md.
sed -n '/^```c$/,/^```$/p' "$source/docs/many-machines.md" | sed '/^```/d' >document.c
tap_check "the program of the document is compiled" mpicc -std=c11 -O1 -I"$source" -DMIRRORTRAIN_IMPLEMENTED \
    document.c "$source/mirrortrain_mpi.c" "$source/build/mirrortrain.o" -o document -lm -lpthread
./document >alone.txt 2>/dev/null
mpi 2 ./document
same "and prints what it prints alone, once" alone.txt out.txt

# >>the program

train 1 --epochs 1 --run p1 --checkpoint-every 40 --report --tensorboard --save p1.safetensors
grep '^step' out.txt >steps.txt
grep -o '"matrix":.*' p1/log.jsonl >matrix.txt
tap_check "the program alone" test "$(wc -l <steps.txt)" -eq 94 -a -s matrix.txt
for n in 2 3; do
    train $n --epochs 1 --run p$n --checkpoint-every 40 --report --tensorboard --save p$n.safetensors
    grep '^step' out.txt >more.txt
    same "$n processes print the losses of one, once" steps.txt more.txt
    same "and save the same bytes" p1.safetensors p$n.safetensors
    tap_check "and the same files" test "$(files_of p1)" = "$(files_of p$n)"
    once "of which the log has one beginning" p$n/log.jsonl '{"event":"begin"'
    says "and says how many processes it was" p$n/log.jsonl "\"processes\":$n"
    says "and the whole confusion matrix" p$n/log.jsonl "$(cat matrix.txt)"
done
train 2 --epochs 1 --shares 3,1 --save shares.safetensors
same "--shares gives the same bits" p1.safetensors shares.safetensors
train 2 --epochs 1 --run p2
tap_check "the directory of an earlier run is refused" test $? -eq 1
once "which one process says" err.txt "belongs to an earlier run"
train 2 --epoch 1
tap_check "a wrong command line has status 2" test $? -eq 2
once "and is reported once" err.txt "mirrortrain: "
mpi 2 "$program" evaluate --load p1.safetensors --confusion p2.png
grep ^evaluate out.txt >two.txt
"$program" evaluate --load p1.safetensors --confusion p1.png >out.txt 2>/dev/null
grep ^evaluate out.txt >more.txt
same "evaluate prints what one process prints, once" more.txt two.txt
same "and writes the same picture" p1.png p2.png
cp p1.safetensors host0/model.safetensors
mpi 2 sh -c "$apart" sh "$program" evaluate --load model.safetensors
tap_check "a file that one process lacks ends all" test $? -ne 0 -a ! -s out.txt
says "which it says" err.txt "mirrortrain: process 1: model.safetensors: cannot open"
says "and the first one, too" err.txt "has stopped: model.safetensors: cannot open"
mpi 2 "$program" summary
once "summary runs in one process" out.txt 'Model: "mnist"'
mpi 2 "$program" bench --model mnist --steps 2
once "bench prints one line" out.txt "processes=2"

# DIRECTORY LINE SIGNAL WHO PROCESSES FLAG...: the program trains, and once its log has the line, mpirun or the process
# with this number receives the signal. mpirun turns a SIGINT into a SIGTERM for all. Returns mpirun's status.
strike() {
    directory=$1 line=$2 signal=$3 who=$4 number=$5
    shift 5
    # mpirun, which does not read while it ends processes, would block one that prints.
    writes="echo \$\$ >pid$rank; exec \"\$@\" >printed.$rank"
    rm -f pid*
    OMPI_MCA_odls_base_sigkill_timeout=${patience:-1} mpirun ${recovery:-} -n "$number" sh -c "$writes" sh "$program" \
        fit --threads 1 --run "$directory" "$@" >out.txt 2>err.txt </dev/null &
    launched=$!
    until grep -q "$line" "$directory/log.jsonl" 2>/dev/null || ! kill -0 $launched 2>/dev/null; do sleep 0.05; done
    if [ "$who" = mpirun ]; then kill "-$signal" $launched; else kill "-$signal" "$(cat "pid$who")"; fi
    wait $launched
}
train 1 --epochs 10 --save whole.safetensors
patience=3 epochs=1000 # of mpirun, before it terminates, and again before it kills
for who in mpirun 0 1; do
    strike "sig$who" '"step":9,' INT $who 2 --replicas 6 --batch 128 --log-steps --epochs $epochs
    tap_check "a signal to $who: status" test $? -ne 0
    patience='' epochs=10
    log=sig$who/log.jsonl
    once "the run has stopped once" "$log" '"status":"stopped"'
    stopped=$(sed -n 's/.*"status":"stopped","step":\([0-9]*\).*/\1/p' "$log")
    tap_check "with a checkpoint of the last step" test -s "sig$who/$(printf 'ckpt_%08d.safetensors' "${stopped:-0}")"
    says "and the command that resumes says how it was started" "$log" "mpirun -n 2 $program fit"
    # mpirun may drop messages while it ends processes.
    [ $who = mpirun ] || once "which one process says" err.txt "after step $stopped"
done
cp -r sig1 sig3
train 3 --epochs 10 --run sig3 --resume --save three.safetensors
same "three processes resume it to the same bytes" whole.safetensors three.safetensors
train 1 --epochs 10 --run sig1 --resume --save one.safetensors
same "one process does" whole.safetensors one.safetensors
train 2 --devices 2 --epochs 10 --run sig0 --resume --save four.safetensors
same "two processes of two devices do" whole.safetensors four.safetensors

# Engines.
MIRT_MPI_ENGINE=$tmp/none.so train 2 --epochs 1
tap_check "without the engine nothing is trained" test $? -ne 0 -a ! -s out.txt
once "which is said once, with the launcher" err.txt "none.so is missing: \`make mpi\` builds it"
cat >lonely.c <<'END'
#define MIRRORTRAIN_BACKEND
#include "mirrortrain.h"
static bool start(const mirt_launch *launch, double limit, int *rank, int *size, char *why) {
    *rank = 0;
    *size = 1;
    return launch->mpi && limit > 0 && why[0] == 0;
}
const mirt__engine *mirt__mpi_engine(void) {
    static mirt__engine engine;
    engine.version = MIRT__ENGINE_VERSION;
    engine.name = "lonely MPI";
    engine.start = start;
    return &engine;
}
END
"${CC:-cc}" -std=c11 -fPIC -shared -I"$source" lonely.c -o lonely.so
MIRT_MPI_ENGINE=$PWD/lonely.so train 2 --epochs 1
tap_check "an engine of another MPI trains nothing" test $? -ne 0 -a ! -s out.txt
says "and says what to start the program with" err.txt "lonely MPI, knows of 1: start it with the mpirun of the MPI"
MIRT_MPI_ENGINE=$tmp/none.so MIRT_WORKERS=1 train 2 --epochs 1 --max-steps 3
tap_check "MIRT_WORKERS=1: independent runs, without an engine" test "$(grep -c ^final out.txt)" -eq 2
MIRT_MPI_ENGINE=$tmp/none.so train 1 --epochs 1 --max-steps 3 --strategy multi-worker
tap_check "a process alone loads no engine" grep -q ^final out.txt
train 2 --epochs 1 --max-steps 3 --strategy mirrored
once "copies that are asked for are warned of" err.txt "each of which trains a model of its own"
# >>doctor

# CORES CHECK: two processes, the second of which has that many cores. At times one core of a virtual machine is half
# as fast again as the other; test_scaling_model has exact numbers.
compares() {
    mpi 1 env MIRT_CORES=2 "$program" doctor . : -n 1 env MIRT_CORES="$1" "$program" doctor .
    first=1 second=1
    grep -q '^ok *processes *2 of nearly equal speed' out.txt ||
        read -r first second <<EOF
$(sed -n 's/^warning *processes *2, of .*: add --shares \([0-9]*\),\([0-9]*\)$/\1 \2/p' out.txt)
EOF
    "$2"
}
similar() { [ "$first" -gt 0 ] && [ "$first" -lt $((3 * second)) ] && [ "$second" -lt $((3 * first)) ]; }
uneven() { [ "$first" -gt 0 ] && [ "$second" -gt $((3 * first)) ]; }
tap_check "doctor looks at two processes" compares 2 similar
tap_check "and proposes shares" compares 16 uneven
mpi 1 "$program" doctor . : -n 1 env MIRT_CORES=none "$program" doctor .
tap_check "a process that cannot train: status" test $? -eq 1
says "is named" out.txt "process 1 could not be measured"
says "and says why" err.txt "mirrortrain: process 1: the environment variable MIRT_CORES"

# >>photographs: each is read by one process

if ! has strace; then
    tap_skip "which photographs processes open: no strace"
elif "$program" doctor . | grep -q 'without an image decoder'; then
    tap_skip "which photographs processes open: compiled without an image decoder"
else
    python3 - <<'END'
import os, struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for folder, count in (("train", 40), ("validation", 16)):
    for i in range(count):
        place = "photos/%s/class%d" % (folder, i % 2)
        os.makedirs(place, exist_ok=True)
        row = b"\0" + bytes((i * 6 % 256, 128 * (i % 2), 90)) * 32
        with open("%s/%d.png" % (place, i), "wb") as f:
            f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)) +
                    chunk(b"IDAT", zlib.compress(row * 32)) + chunk(b"IEND", b""))
END
    mpi 2 sh -c "exec strace -f -qq -e trace=openat -o opened.$rank \"\$0\" \"\$@\"" "$program" fit --threads 1 \
        --data photos --model mobilenet_v2 --size 32 --batch 16 --epochs 1
    tap_check "two processes train on photographs" grep -q '^final' out.txt
    grep -h 'class.*\.png' opened.? | grep -o 'photos/[a-z]*/class.*png' | sort >opened
    tap_check "56 photographs are opened, $(wc -l <opened) times" test "$(sort -u opened | wc -l)" -eq 56 -a \
        "$(wc -l <opened)" -eq 56
    tap_check "half of them by each process" test "$(grep -c '\.png' opened.0)" -eq 28
fi

# >>local SGD

train 2 --epochs 2 --average-every 8 --save average.safetensors
tap_check "weights that are averaged now and then" grep -q 'val_accuracy=0\.9' out.txt
train 2 --epochs 2 --average-every 8 --save again.safetensors
same "are the same in another run" average.safetensors again.safetensors

# >>parameter servers

# NUMBER FLAG...: workers and servers.
serve() {
    number=$1
    shift
    timeout 100 mpirun --enable-recovery -n "$number" "$program" fit --strategy parameter-server --threads 1 \
        --batch 64 --timeout 4 "$@" >out.txt 2>err.txt </dev/null
}
if mpirun --version | grep -q "Open MPI"; then
    tap_check "two workers and two servers train" serve 4 --servers 2 --epochs 2 --run served --report
    tap_check "to an accuracy above 0.93" grep -q 'val_accuracy=0\.9[3-9]' out.txt
    says "the log has the staleness" err.txt "staleness of 752 updates: mean "
    tap_check "in log.jsonl, too" test "$(grep -c '"staleness":{"updates":376,' served/log.jsonl)" -eq 2
    says "and the report" served/report.html "<h3>Staleness of gradients</h3>"
    tap_check "other processes resume the run, bounded" serve 3 --epochs 3 --run served --resume --max-staleness 0
    tap_check "without staleness" grep -q '"staleness":{"updates":188,"mean":0,"max":0,"histogram":\[188\]}' \
        served/log.jsonl
    recovery=--enable-recovery
    strike killed '"epoch":0' KILL 1 3 --strategy parameter-server --batch 64 --timeout 4 --epochs 6
    tap_check "a killed worker does not end training" test $? -eq 0
    says "which is told" err.txt "is lost; its batches go to others"
    tap_check "and the other completes all batches" test \
        "$(grep -c '"event":"epoch".*"batch":188,"batches":188' killed/log.jsonl)" -eq 6
else
    tap_skip "parameter servers: a job that survives the loss of a process needs Open MPI's --enable-recovery"
fi
tap_done
