#!/bin/sh
# fit --run DIR: what it leaves, --resume, and what it says when something is wrong.
program=${MIRRORTRAIN:-$PWD/build/mirrortrain}
check=$PWD/tests/check_safetensors.py
. tests/tap.sh
cd "$tmp" || exit 2

fit() { # DIRECTORY FLAG...
    directory=$1
    shift
    "$program" fit --devices 2 --threads 1 --batch 64 --epochs 2 --log-steps --run "$directory" "$@" >out.txt 2>err.txt
}
losses() { grep '^step' out.txt; }
says() { # DESCRIPTION FILE WORDS...
    name=$1 file=$2
    shift 2
    if grep -q -- "$*" "$file"; then tap_ok "$name"; else tap_not_ok "$name" "$file"; fi
}

fit whole --max-steps 50 --checkpoint-every 20 --save whole.st && losses >whole.losses && grep ^final out.txt |
    cut -d' ' -f2-5 >whole.final
tap_check "checkpoints every 20 steps, and at the end" test "$(echo $(ls whole | grep ckpt))" = \
    "ckpt_00000020.safetensors ckpt_00000040.safetensors ckpt_00000050.safetensors"
tap_check "and a log" test -s whole/log.jsonl

fit parts --max-steps 33 --checkpoint-every 20 --resume && losses >parts.losses
says "without a checkpoint it begins anew and says so" err.txt "training begins anew"
fit parts --max-steps 50 --checkpoint-every 20 --resume --devices 1 --replicas 2 --save parts.st &&
    losses >>parts.losses
says "it resumes from step 33" err.txt "ckpt_00000033.safetensors: step 33"
tap_check "in two pieces, the second on one device: the same losses" cmp whole.losses parts.losses
tap_check "and the same model" cmp whole.st parts.st
rm parts.st
fit parts --max-steps 50 --checkpoint-every 20 --resume --save parts.st && losses >none.losses
tap_check "a finished run only writes --save" cmp whole.st parts.st
tap_check "and trains no step" test ! -s none.losses
grep ^final out.txt | cut -d' ' -f2-5 >parts.final
tap_check "and says what it came to" cmp whole.final parts.final

fit parts --max-steps 60 --resume --replicas 3 --devices 1
says "other replicas: both sides are named" err.txt "2 replicas, this one has 3 replicas"
says "and the flag" err.txt "going on needs the same: give --replicas 2, and at most as many devices$"
fit parts --max-steps 60 --resume --devices 1
says "one replica is no replicas" err.txt "2 replicas, this one has 1 replica: "
fit parts --max-steps 60 --resume --batch 32
says "another batch" err.txt "batches of 64 samples, this one has global batches of 32"
says "and the flag" err.txt "needs the same: give --batch 64$"
fit parts --max-steps 60 --resume --seed 3
says "another seed, and the flag" err.txt "needs the same: give --seed 0$"
fit parts --max-steps 60 --resume --accumulate 2
says "other steps, and the flag" err.txt "steps of 1 batch, this one has steps of 2 batches: .*: give --accumulate 1$"
fit parts --max-steps 52 --resume
tap_check "the same rate: not a word" test "$(grep -c 'learning rate' err.txt)" -eq 0
fit parts --max-steps 54 --resume --lr 0.25
says "another rate is told" err.txt "the learning rate is the optimizer's 0.25 from here on; it was 0.001$"
echo "an earlier run's" >parts/report.html
before=$(ls parts)
fit parts --max-steps 3
tap_check "without --resume a directory with checkpoints is refused" test $? -eq 1
says "and both ways out are named" err.txt \
    "ckpt_00000054.safetensors belongs to an earlier run: --resume continues that run, --overwrite removes it"
tap_check "and left as it is" test "$(ls parts)" = "$before"
fit parts --max-steps 3 --overwrite --resume
tap_check "--overwrite and --resume are a wrong command line" test $? -eq 2
tap_check "--overwrite begins anew" fit parts --max-steps 3 --overwrite
tap_check "and leaves nothing of the earlier run" test "$(echo $(ls parts | grep ckpt))" = "ckpt_00000003.safetensors" \
    -a ! -e parts/report.html
fit parts --max-steps 4 --resume
says "so that resuming continues the new one" err.txt "ckpt_00000003.safetensors: step 3"

"$program" fit --resume 2>err.txt
tap_check "--resume without --run is a wrong command line" test $? -eq 2
says "and says what it wants" err.txt "--run DIR"
echo >file
fit file --max-steps 3
says "a directory that is a file" err.txt "--run file: cannot create the directory"
"$program" fit --batch 64 --epochs 1000 --log-steps --run busy >busy.txt 2>busy.err &
at_work=$!
until test -s busy.txt || ! kill -0 $at_work 2>/dev/null; do sleep 0.1; done
fit busy --max-steps 3
tap_check "two runs in one directory: the second is refused" test $? -eq 1
says "and told who is at work there" err.txt "--run busy: another run, process $at_work,"
kill -9 $at_work
wait $at_work 2>/dev/null
# It may have left a checkpoint.
tap_check "one that was killed is at work no more" fit busy --max-steps 3 --overwrite
tap_check "and nothing of the lock is left" test ! -e busy/.lock
"$program" fit --threads 1 --batch 8 --max-steps 400 --log-steps --run closed <&- >&- 2>&-
tap_check "without standard streams: status 1, as nothing can be printed" test $? -eq 1
tap_check "and no file gets what would be printed" sh -c \
    "grep -q '\"end\"' closed/log.jsonl && ! grep -v '^{.*}\$' closed/log.jsonl"
if (trap '' XFSZ && ulimit -f 100) 2>/dev/null; then
    fit full --max-steps 12 --checkpoint-every 5
    (trap '' XFSZ && ulimit -f 100 && fit full --max-steps 30 --checkpoint-every 5 --resume)
    says "no room for a checkpoint: the file is named" err.txt "full/ckpt_00000015.safetensors"
    tap_check "nothing half written stays, and what was there" test "$(echo $(ls full | grep ckpt))" = \
        "ckpt_00000005.safetensors ckpt_00000010.safetensors ckpt_00000012.safetensors"
else
    tap_skip "no limit on files here"
fi
fit early --early-stopping 1 --lr 0.5
tap_check "--early-stopping" grep -q ^final out.txt

fit nan --max-steps 40 --lr 1e30 --on-nan stop
says "--on-nan stop names the step and the layer" err.txt \
    "loss of step 2 is not finite; the first number that is not is in replica 0, in what layer"
tap_check "and ends training there" test "$(echo nan/ckpt_*)" = "nan/ckpt_00000001.safetensors"
fit slow --max-steps 20 --timeout 1000
tap_check "--timeout" grep -q ^final out.txt

found=
for python in python3 ${PEER_PYTHON:-}; do
    if "$python" -c 'import numpy, safetensors' 2>/dev/null; then found=$python; fi
done
if [ "$found" ]; then tap_check "Python's safetensors reads a checkpoint" "$found" "$check" --expect-mnist \
    whole/ckpt_00000050.safetensors
else tap_skip "no Python with safetensors"; fi
tap_done
