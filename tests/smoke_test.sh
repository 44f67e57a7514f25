#!/bin/sh
# Every row of docs/validation-checklist.md: lines of examples/checklist.c, and C1 to C6 here.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
program=${MIRRORTRAIN:-$PWD/build/mirrortrain} checklist=${CHECKLIST:-$PWD/build/checklist}
rows=$(sed -n 's/^| \([A-Z][0-9]\) .*/\1/p' docs/validation-checklist.md)
cd "$tmp" || exit 2

"$checklist" >checks 2>&1 </dev/null
status=$?
done_here="C1 C2 C3 C4 C5 C6"
for row in $rows; do
    case " $done_here " in *" $row "*) continue ;; esac
    tap_check "$row: $(sed -n "s/^[a-zA-Z]* *$row  //p" checks)" grep -q "^ok *$row " checks
done
tap_check "all of them are in the document" sh -c \
    "! sed -n 's/^[okFAILED]* *\([BEFP][0-9]\)  .*/\1/p' checks | grep -qvxE '$(echo $rows | tr ' ' '|')'"
tap_check "exit status 0" test $status -eq 0
tap_check "the environment is there" grep -q '^{"mirrortrain": ".*}$' checks
tap_check "no file is left" test -z "$(find . -name '*.safetensors*')"

"$program" doctor . >doctor 2>&1
tap_check "C1: the doctor finds nothing that fails" sh -c "test $? -eq 0 && grep -q ', 0 failed$' doctor"
steps="fit --max-steps 3 --log-steps --batch 64"
"$program" $steps --devices 2 >one 2>err
"$program" $steps --devices 2 >two 2>err
tap_check "C2: twice the same losses" sh -c "grep ^step one >a; grep ^step two >b; test \$(wc -l <a) -eq 3 && cmp a b"
"$program" fit --epochs 1 --batch 128 --devices 2 --save model.safetensors >said 2>err
"$program" evaluate --load model.safetensors >again 2>err
of_fit=$(sed -n 's/^final:.* val_loss=\([^ ]*\) val_accuracy=\([^ ]*\) .*/loss=\1 accuracy=\2/p' said)
tap_check "C3: evaluate --load gives what fit ended with: $of_fit" grep -qx "evaluate: $of_fit" again
"$program" $steps --devices 1 --replicas 2 >one 2>err
tap_check "C4: the same losses on one device and on two" sh -c "grep ^step one >a; test \$(wc -l <a) -eq 3 && cmp a b"
"$program" fit --epoch 1 >said 2>err
tap_check "C5: a mistyped flag" sh -c "test $? -eq 2 && grep -q 'did you mean --epochs' err"
"$program" doctor no/such/directory >said 2>err
tap_check "C6: the doctor's FAILED" sh -c "test $? -eq 1 && grep -q '^FAILED *disk ' said"
tap_done
