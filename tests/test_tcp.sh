#!/bin/sh
# Tests processes that train together without MPI, as torchrun, TF_CONFIG and Slurm start them.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
source=$PWD
program=$(realpath "${MIRRORTRAIN:-build/mirrortrain}")
port=$((20000 + $$ % 10000))
mkdir "$tmp/work" && cd "$tmp/work" || exit 2

# NUMBER COMMAND...: processes as torchrun starts them; out.K, err.K, status.K of each. A port of their own for each
# group, as some may not end well.
group() {
    number=$1
    shift
    port=$((port + 1))
    rm -f out.* err.* status.*
    for process in $(seq 0 $((number - 1))); do
        (
            export RANK="$process" WORLD_SIZE="$number" MASTER_ADDR=localhost MASTER_PORT=$port
            timeout 60 "$@" >"out.$process" 2>"err.$process" </dev/null
            echo $? >"status.$process"
        ) &
    done
    wait
}
# NUMBER FLAG...: the program trains with six replicas.
train() {
    number=$1
    shift
    group "$number" "$program" fit --replicas 6 --threads 1 --batch 128 --epochs 2 "$@"
}
says() { # DESCRIPTION FILE TEXT
    if grep -qF -- "$3" "$2"; then tap_ok "$1"; else tap_not_ok "$1" "$2"; fi
}
same() { # DESCRIPTION FILE FILE: the same bytes, and any
    tap_check "$1" sh -c 'test -s "$1" && cmp "$1" "$2"' sh "$2" "$3"
}
ended() { # DESCRIPTION STATUS...: of each process
    what=$1
    shift
    statuses=$(cat status.* | paste -s -d ' ' -)
    cat err.* >errors
    if [ "$statuses" = "$*" ]; then tap_ok "$what"; else tap_not_ok "$what: $statuses" errors; fi
}

# >>the program

"$program" fit --replicas 6 --threads 1 --batch 128 --epochs 2 --save one.safetensors >one.txt 2>/dev/null
for number in 2 3; do
    train $number --save "many$number.safetensors" --run run$number --log-steps
    ended "$number processes train" $(seq $number | sed 's/.*/0/')
    same "to the weights of one" one.safetensors many$number.safetensors
    tap_check "the first one prints results" sh -c 'grep -q ^final out.0 && ! test -s out.1'
done
tap_check "the log knows of them" grep -q '"processes":3' run3/log.jsonl
group 2 "$program" evaluate --load one.safetensors
"$program" evaluate --load one.safetensors 2>/dev/null | sed -n "s/^evaluate: *//p" >one.txt
tap_check "evaluate" test "$(sed -n "s/^evaluate: *//p" out.0)" = "$(cat one.txt)"
group 2 env MIRT_WORKERS=1 "$program" fit --threads 1 --epochs 1 --max-steps 3
tap_check "MIRT_WORKERS=1: independent runs" sh -c 'grep -q ^final out.0 && grep -q ^final out.1'
group 3 "$program" fit --threads 1 --epochs 2 --strategy parameter-server
ended "a parameter server" 0 0 0
group 2 "$program" scaling --batch 16
ended "scaling" 0 0
says "compares one and two processes" out.0 "        2       32 "
group 2 "$program" summary
tap_check "summary is the first one's" sh -c 'test -s out.0 && ! test -s out.1'

# SIGNAL WHO FLAG...: of three processes that train, one receives a signal in the second epoch.
strike() {
    signal=$1 who=$2
    shift 2
    rm -rf struck
    port=$((port + 1))
    for process in 0 1 2; do
        RANK=$process WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=$port "$program" fit --threads 1 --run struck \
            --timeout 3 --log-steps "$@" >out.$process 2>err.$process </dev/null &
        eval "process$process=\$!"
    done
    until grep -q '"event":"step".*"epoch":1,' struck/log.jsonl 2>/dev/null; do
        kill -0 "$process0" 2>/dev/null || break
        sleep 0.05
    done
    eval "struck=\$process$who"
    kill "-$signal" "$struck"
    for process in 0 1 2; do
        eval "waited=\$process$process"
        if [ "$signal" = STOP ] && [ $process = "$who" ]; then continue; fi
        wait "$waited" 2>/dev/null
        echo $? >status.$process
    done
    [ "$signal" != STOP ] || kill -KILL "$struck"
    wait 2>/dev/null
}
strike TERM 1 --epochs 5000
ended "a signal to one ends all" 143 143 143
says "after the same step" err.0 "interrupted by SIGTERM after step"
tap_check "with one checkpoint" test "$(grep -c '"status":"stopped"' struck/log.jsonl)" -eq 1
for who in 0 2; do
    strike KILL $who --epochs 5000
    tap_check "all end when process $who is killed" test "$(cat status.1)" -eq 1
    says "which is named" err.1 "has lost process $who ("
done
strike STOP 2 --epochs 5000
tap_check "all end when process 2 is stopped" test "$(cat status.0 status.1 | tr -d '\n')" = 11
says "which is named" err.0 "process 2 ("

strike KILL 1 --epochs 3 --strategy parameter-server
tap_check "a killed worker of parameter servers is done without" test "$(cat status.0 status.2 | tr -d '\n')" = 00

# Parameter servers. Batches that were handed out but not begun are left out of the epoch that is resumed.
strike TERM 0 --epochs 4 --batch 64 --strategy parameter-server
ended "the chief is interrupted" 143 0 0
group 4 "$program" fit --threads 1 --run struck --resume --timeout 3 --log-steps --epochs 4 --batch 64 \
    --strategy parameter-server
ended "other processes resume in the middle of an epoch" 0 0 0 0
sed -n 's/.*"event":"epoch","epoch":\([0-9]*\),"step":[0-9]*,"batch":\([0-9]*\).*/\1 \2/p' struck/log.jsonl >epochs
tap_check "all epochs are there, and their batches" \
    awk '$1 != NR - 1 || $2 > 188 || $2 < ($1 == 1 ? 140 : 188) { wrong = 1 } END { exit wrong || NR != 4 }' epochs

# >>launchers

# CONFIG...: processes with these values of TF_CONFIG.
tf_config() {
    rm -f out.* err.* status.*
    process=0
    for config in "$@"; do
        (
            TF_CONFIG=$config timeout 60 "$program" fit --threads 1 --replicas 6 --batch 128 --epochs 2 \
                --save config.safetensors >out.$process 2>err.$process </dev/null
            echo $? >status.$process
        ) &
        process=$((process + 1))
    done
    wait
}
port=$((port + 1))
cluster="\"cluster\": {\"worker\": [\"localhost:$((port + 1))\"], \"chief\": [\"localhost:$port\"]}"
tf_config "{$cluster, \"task\": {\"type\": \"chief\", \"index\": 0}}" \
    "{$cluster, \"task\": {\"type\": \"worker\", \"index\": 0}}"
ended "TF_CONFIG" 0 0
same "the same weights" one.safetensors config.safetensors
port=$((port + 1))
for process in 0 1; do
    SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$process SLURM_JOB_ID=$port SLURM_STEP_NODELIST="localhos[t-x],other" \
        timeout 60 "$program" fit --threads 1 --replicas 6 --batch 128 --epochs 2 --save slurm.safetensors \
        >out.$process 2>err.$process </dev/null &
done
wait
same "Slurm without MPI: the same weights" one.safetensors slurm.safetensors

# DESCRIPTION TEXT ASSIGNMENT...: what a process with these variables says.
refuses() {
    what=$1 text=$2
    shift 2
    env "$@" "$program" fit --epochs 1 --timeout 1 >out.txt 2>err.txt </dev/null
    status=$?
    if [ $status -eq 1 ] && [ ! -s out.txt ] && [ "$(grep -c '^mirrortrain: ' err.txt)" -eq 1 ]; then
        says "$what" err.txt "$text"
    else
        tap_not_ok "$what: status $status" err.txt
    fi
}
refuses "no number" "torchrun started 2 processes, but RANK, the number of this one, is not set" WORLD_SIZE=2
refuses "a number that cannot be" 'RANK is "2", not a number from 0 to 1' WORLD_SIZE=2 RANK=2
refuses "a first process that is not there" "localhost port 9 cannot be reached: Connection refused" \
    WORLD_SIZE=2 RANK=1 MASTER_ADDR=localhost MASTER_PORT=9
refuses "one that does not come" "process 1 of 2 has not reached port $port" WORLD_SIZE=2 RANK=0 \
    MASTER_ADDR=localhost MASTER_PORT=$port
refuses "the port after the one that torchrun listens to" "has not reached port $((port + 1))" WORLD_SIZE=2 RANK=0 \
    MASTER_ADDR=localhost MASTER_PORT=$port TORCHELASTIC_USE_AGENT_STORE=True
WORLD_SIZE=1 RANK=0 "$program" fit --epochs 1 --max-steps 1 >out.txt 2>err.txt
says "a world of one process is no group" out.txt "final: "

# >>a program with the library

cat >own.c <<'END'
#define MIRRORTRAIN_IMPLEMENTATION
#include "mirrortrain.h"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    mirt_launch launch;
    if (mirt_launched(&launch) != MIRT_OK) return puts(mirt_last_error()), 1;
    mirt_strategy *strategy = mirt_strategy_create(&(mirt_strategy_desc){.devices = "1", .kind = MIRT_MULTI_WORKER,
        .collective = getenv("NATIVE") ? MIRT_MPI_ALLREDUCE : MIRT_TREE});
    if (!strategy) return puts(mirt_last_error()), 1;
    printf("%s %d of %d: %d of %d\n", launch.launcher, launch.index, launch.processes, mirt_worker_index(strategy),
           mirt_num_workers(strategy));
    mirt_strategy_destroy(strategy);
    return 0;
}
END
"${CC:-cc}" -std=c11 -O0 -DMIRRORTRAIN_NO_SIMD -DMIRRORTRAIN_TCP -I"$source" -c own.c
for compiler in "${CC:-cc} -std=c11" "g++ -std=c++17 -x c++" "clang -std=c11"; do
    if ! has "${compiler%% *}"; then
        tap_skip "${compiler%% *} is not installed"
        continue
    fi
    tap_check "$compiler: mirrortrain_tcp.c" $compiler -O2 -Wall -Wextra -Wpedantic -Wshadow -Werror -c \
        "$source/mirrortrain_tcp.c" -o tcp.o
    "${CC:-cc}" own.o tcp.o -o own -lm -lpthread
    group 2 ./own
    says "two processes find each other" out.1 "torchrun 1 of 2: 1 of 2"
done
group 2 env NATIVE=1 ./own
says "MPI's all-reduce is refused" out.1 "MIRT_MPI_ALLREDUCE needs MPI, but the processes are connected by TCP"
address=$(hostname -I 2>/dev/null | cut -d ' ' -f 1)
if [ -n "$address" ]; then
    group 3 env MASTER_ADDR="$address" ./own
    says "processes meet at an address of the network" out.2 "torchrun 2 of 3: 2 of 3"
else
    tap_skip "an address of the network: hostname -I knows none"
fi
"${CC:-cc}" own.o -o alone -lm -lpthread
group 2 ./alone
says "a program without it refuses" out.0 \
    "torchrun started 2 processes, but this program is built without mirrortrain_tcp.c and would train 2 times"
tap_done
