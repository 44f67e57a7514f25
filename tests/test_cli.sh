#!/bin/sh
# Tests the program: successful runs, and error messages for bad input.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
program=${MIRRORTRAIN:-$PWD/build/mirrortrain}
version=$(sed -n 's/^#define MIRT_VERSION_STRING "\(.*\)"/\1/p' mirrortrain.h)
cd "$tmp" || exit 2

# COMMAND LINE...: runs it; $status, out and err hold what came of it.
run() {
    "$program" "$@" >out 2>err </dev/null
    status=$?
}

# The last run: DESCRIPTION, exit status, text that stdout holds ("" for any).
gives() {
    if [ $status -ne "$2" ]; then
        tap_not_ok "$1: exit status $status, not $2" err
    elif [ -n "$3" ] && ! grep -qF -- "$3" out; then
        tap_not_ok "$1: prints \"$3\"" out
    else
        tap_ok "$1"
    fi
}

# The last run failed with status $2, and its last words are exactly "mirrortrain: $3"; a sentence
# that ends in ... may continue.
refuses() {
    last=$(tail -n 1 err)
    case $3 in
    *...) pattern="mirrortrain: ${3%...}" same=false; case $last in "$pattern"*) same=true ;; esac ;;
    *) if [ "$last" = "mirrortrain: $3" ]; then same=true; else same=false; fi ;;
    esac
    if [ $status -ne "$2" ]; then
        tap_not_ok "$1: exit status $status, not $2" err
    elif [ "$(grep -c '^mirrortrain: ' err)" -ne 1 ] || ! $same; then
        tap_not_ok "$1: says \"$3\"" err
    elif [ -s out ]; then
        tap_not_ok "$1: prints nothing" out
    else
        tap_ok "$1: $3"
    fi
}

is() { # DESCRIPTION FIRST SECOND: equal texts
    if [ "$2" = "$3" ]; then tap_ok "$1"; else echo "$2 | $3" >texts; tap_not_ok "$1" texts; fi
}

differ() { # DESCRIPTION FIRST SECOND
    if [ "$2" != "$3" ]; then tap_ok "$1"; else echo "both: $2" >texts; tap_not_ok "$1" texts; fi
}

# MNIST's four files in directory $1, 100 striped images of ten classes each.
make_data() {
    mkdir -p "$1"
    printf '\000\000\010\003\000\000\000\144\000\000\000\034\000\000\000\034' >"$1/train-images-idx3-ubyte"
    awk 'BEGIN { for (i = 0; i < 100; i++) for (p = 0; p < 784; p++) printf "%c", (p * (i % 10 + 1) % 23) + 64 }' \
        >>"$1/train-images-idx3-ubyte"
    printf '\000\000\010\001\000\000\000\144' >"$1/train-labels-idx1-ubyte"
    for i in 1 2 3 4 5 6 7 8 9 10; do printf '\000\001\002\003\004\005\006\007\010\011' \
        >>"$1/train-labels-idx1-ubyte"; done
    cp "$1/train-images-idx3-ubyte" "$1/t10k-images-idx3-ubyte"
    cp "$1/train-labels-idx1-ubyte" "$1/t10k-labels-idx1-ubyte"
}
# Writes bytes given as printf's octal at offset $2 of file $1.
patch_file() {
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
make_data good
make_data bad

final='^final: loss=[0-9.]* accuracy=[0-9.]* val_loss=[0-9.]* val_accuracy=[0-9.]* images_per_second=[0-9]* seconds=[0-9.]*$'
val_of() { sed -n 's/^final:.* val_loss=\([^ ]*\) val_accuracy=\([^ ]*\) .*/loss=\1 accuracy=\2/p' out; }
losses() { grep '^step ' out; }

# Help and version
run --version
is "--version" "$(cat out)" "mirrortrain $version"
run --help
gives "--help" 0 "usage: mirrortrain COMMAND [FLAGS]"
for command in devices fit evaluate predict verify augment summary graph bench; do
    is "--help names $command" "$(grep -c "^  $command " out)" 1
done
run bench --help
for flag in model batch devices threads replicas forward profile steps seconds parallelism cores bandwidth sockets \
    barrier check json; do
    is "bench --help names --$flag" "$(grep -c -- "^  --$flag " out)" 1
done
run fit --help
for flag in model data epochs batch replicas devices threads seed init no-shuffle max-steps log-steps optimizer \
    weight-decay clip-norm ema metrics lr save strategy collective accumulate winograd validation validation-split \
    weights freeze head augment mix-up cut-mix corrupt no-cache; do
    is "fit --help names --$flag" "$(grep -c -- "^  --$flag " out)" 1
done
cp out fit.help
titles="Model Data Training Devices Output "
is "fit --help has its flags in groups" "$(grep -oE '^(Model|Data|Training|Devices|Output)' out | tr '\n' ' ')" \
    "$titles"
is "and examples before them" "$(sed -n '3s/^  mirrortrain fit .*/example/p' out)" example
for command in doctor devices fit evaluate predict verify augment summary scaling report bench graph; do
    run $command --help
    is "$command --help: no line is longer than 100 columns" "$(awk 'length > 100' out)" ""
done
cp fit.help out
run help fit
is "help fit is fit --help" "$(cat out)" "$(cat fit.help)"
run
is "without a command: usage on stderr, status 2" "$status $(grep -c '^usage: ' err)" "2 1"

# Looking
run devices
gives "devices" 0 "cpu:0"
run summary --model mnist
gives "summary" 0 "347146"
run graph --replicas 3 --devices 2
gives "graph: all-reduce between gradients and optimizer" 0 "all_reduce bucket 0"
is "graph: rows of three replicas" "$(grep -c 'scatter .* -> replica' out)" 3
run graph --costs --batch 12 --replicas 3
gives "graph --costs: the rows of a replica" 0 "one replica, 4 rows"
is "graph --costs: a line for each tensor" "$(grep -cE '^  [a-z_0-9]+ .* (stored|lazy|twice) +[0-9]+ +[0-9.]+ +([0-9.]+|-)  [a-z0-9]+ \(' out)" \
    "$(($(wc -l <out) - 2))"
run graph --costs --svg a.svg
refuses "graph as a picture and as costs" 2 "--svg and --costs exclude each other; give one of them"

# Measuring
predicted="1 3 8 "
[ "$("$program" devices | grep -c '^cpu:')" -gt 1 ] && predicted="1 2 3 8 "
line='^bench: model=mnist batch=[0-9]* dtype=float32 images_per_second=[0-9.]* ms_per_step=[0-9.]* peak_mb=[0-9.]* gflops=[0-9.]* planned_mb=[0-9.]*'
mkdir -p tree/devices/system/cpu tree/devices/system/node/node0 tree/devices/system/node/node1
echo 0-3 >tree/devices/system/cpu/online
echo 0-1 >tree/devices/system/node/online
echo 0,2 >tree/devices/system/node/node0/cpulist
echo 1,3 >tree/devices/system/node/node1/cpulist
export MIRT_SYSFS=tree
run bench --batch 8 --steps 5 --devices auto
unset MIRT_SYSFS
gives "a device on each socket" 0 "mode=train size=28 devices=2 threads=2 steps=5"
run bench --batch 8,16 --steps 5 --devices 2 --threads 1
gives "bench" 0 "mode=train size=28 devices=2 threads=1 steps=5"
is "bench: a line for each batch" "$(grep -c "$line" out) $(sed 's/.* batch=\([0-9]*\) .*/\1/' out | tr '\n' ' ')" \
    "2 8 16 "
(trap '' CHLD; exec "$program" bench --batch 8,16 --steps 5 --threads 1) >out 2>err </dev/null
is "bench where SIGCHLD is ignored" "$? $(grep -c "$line" out)" "0 2"
run bench --forward --profile --batch 4 --steps 5
gives "bench --forward" 0 "mode=forward"
gives "bench --profile names the layers" 0 "dense_1"
gives "and the ceilings" 0 "ceilings of cpu:0"
is "predicting needs no optimizer" "$(grep -c adam out)" 0
export MIRT_CPU=plain
run bench --dtype bf16 --batch 4 --steps 5
gives "bench with kernels by name" 0 "dtype=bf16"
is "bfloat16 is said to be emulated" "$(grep -c 'products of bfloat16 are emulated' err)" 1
run fit --data good --dtype bf16 --epochs 1 --max-steps 1 --batch 8 --save half.safetensors
run evaluate --load half.safetensors --data good
is "of a loaded model too" "$(grep -c 'products of bfloat16 are emulated' err)" 1
run bench --dtype store-bf16 --batch 4 --steps 5
is "images alone are stored in bfloat16 without a warning" "$status $(grep -c ' dtype=store-bf16 ' out) $(wc -l <err)" \
    "0 1 0"
unset MIRT_CPU
run bench --model mobilenet_v2 --alpha 0.35 --size 32 --batch 2 --steps 5 --no-top --pooling none --forward
gives "bench of features" 0 "mode=forward size=32"
run bench --model mobilenet_v2 --alpha 0.35 --size 32 --classes 7 --batch 2 --steps 5
gives "bench of a network by name, width and size" 0 "model=mobilenet_v2 batch=2 dtype=float32"
run bench --model mobilenet_v2 --alpha 0.35 --size 32 --batch 2 --steps 5 --dtype bf16
gives "and in bfloat16" 0 "model=mobilenet_v2 batch=2 dtype=bf16"
run bench --model resnet50 --size 32 --batch 2 --steps 5 --winograd
gives "and with Winograd's convolutions" 0 "model=resnet50 batch=2 dtype=float32"
is "and says so" "$(grep -c ' winograd=on$' out)" 1
run bench --dtype bf16 --batch 2 --steps 1 --winograd
is "in bfloat16 they have no effect" "$status $(grep -c '^winograd: no effect' err) $(grep -c 'winograd=on' out)" \
    "0 1 0"
run bench --batch 16 --steps 2 --parallelism --cores 3,8 --bandwidth 50 --sockets 2 --barrier 2 --check
gives "bench --parallelism" 0 "parallelism: model=mnist batch=16 mode=train steps=2 barrier_us=2.00"
is "predictions for one core, those that are checked, and those asked for" \
    "$(sed -n '/^cores /,/^check/s/^ *\([0-9]*\) .*/\1/p' out | tr '\n' ' ')" "$predicted"
gives "the update is a row" 0 "(update)"
is "a bandwidth that is given needs no note" "$(grep -c '^note: the memory bandwidth' out)" 0
gives "and so are the layers" 0 "dense_1"
gives "it is checked on one core" 0 "check: 1 real core takes"
run bench --batch 4 --steps 2 --parallelism --cores 1024
gives "that of fewer cores is noted" 0 "note: the memory bandwidth is what the "
if has python3; then
run bench --batch 4 --steps 2 --parallelism --cores 4 --forward --json
is "bench --parallelism --json" "$status $(python3 -c '
import json, sys
t = json.load(open("out"))
p = t["predictions"][-1]
parts = p["serial"] + (p["work"] - p["serial"]) / 4 + p["imbalance"] + p["barriers"] + p["memory"]
print(t["label"], t["mode"], p["cores"], len(p["operations"]) > 5, abs(parts / p["seconds"] - 1) < 1e-6)')" \
    "0 predicted forward 4 True True"
run bench --batch 4 --steps 2 --parallelism --cores 1,2,3,4 --sockets 3 --bandwidth 10 --json
is "cores fill sockets one after another, the last number all of them" "$status $(python3 -c '
import json
print([round(p["bandwidth"] / 1e9) for p in json.load(open("out"))["predictions"]])')" "0 [10, 10, 20, 30]"
run bench --batch 4 --steps 2 --parallelism --cores 2,4 --sockets 2 --json
is "sockets multiply the bandwidth that is measured, too" "$status $(python3 -c '
import json
t = json.load(open("out"))
m = t["machine"]
print([round(p["bandwidth"] / m["bandwidth"], 3) for p in t["predictions"]], m["bandwidth"] >= m["core_bandwidth"])')" \
    "0 [1.0, 1.0, 2.0] True"
else
    tap_skip "no python3 to read JSON"
fi
run bench --cores 4
refuses "cores without parallelism" 2 \
    "--cores, --bandwidth, --sockets, --barrier, --check and --json need --parallelism"
run bench --parallelism --devices 2
refuses "parallelism of devices" 2 \
    "--parallelism excludes --devices, --replicas, --threads, --shares, --profile and --feed"
run bench --parallelism --cores 8,4
refuses "cores that do not increase" 2 "--cores: the numbers must increase"
run bench --parallelism --cores 2,4 --sockets 5
refuses "more sockets than cores" 2 \
    "--sockets is 5, but the largest of --cores is 4: lower --sockets, or raise --cores"
run bench --parallelism --steps 65
refuses "more steps than can be recorded" 2 "--parallelism records up to 64 steps: lower --steps"
run bench --parallelism --json --batch 4,8
refuses "JSON of several batch sizes" 2 "--json is for one batch size: give one --batch"
run bench --batch 4,2147483647,8 --steps 1
is "bench continues after a batch that is too large" \
    "$status $(grep -c '^bench: ' out) $(grep -c '^mirrortrain: out of memory for a batch of 2147483647 images' err)" \
    "1 2 1"
run summary --model mobilenet_v2 --alpha 0.35 --size 96 --no-top
gives "its summary" 0 "Total parameters: 410208"
run summary --model mobilenet_v2 --alpha 0.35 --size 96 --no-top --pooling none
gives "and without pooling" 0 "Total parameters: 410208"
is "photographs' batch is fit's" "$(grep -c 'batch of 32 on' out)" 1

# Training
run fit --data good --epochs 2 --batch 8 --replicas 3 --devices 2 --save a.safetensors
gives "fit" 0 "saved: a.safetensors"
is "fit: the last line" "$(tail -n 1 out | grep -c "$final")" 1
is "fit: nothing but the model is left behind" "$(ls a.safetensors*)" "a.safetensors"
is "fit: no note of drawn digits" "$(grep -c drawn err)" 0
wanted="evaluate: $(val_of)"
run evaluate --load a.safetensors --data good
is "evaluate gives what fit's validation gave" "$(cat out)" "$wanted"
run evaluate --load a.safetensors --data good --devices 2 --batch 7 --threads 2
is "under another strategy as well" "$(cat out)" "$wanted"

run fit --data good --batch 16 --max-steps 9 --log-steps --replicas 4 --devices 1 --save one.safetensors
losses >one
is "--max-steps 9 --log-steps: nine numbered lines" \
    "$(awk '/^step [0-9]+ loss [0-9]+\.[0-9][0-9][0-9][0-9][0-9][0-9]$/ && $2 == n + 1 { n++ } END { print n }' one)" 9
for policy in ignore go-on warn; do
    run fit --data good --batch 16 --max-steps 1 --on-nan $policy
    is "--on-nan $policy" "$status" 0
done
run fit --data good --batch 16 --max-steps 9 --log-steps --replicas 4 --devices 3 --threads 2 --save three.safetensors
losses >three
tap_check "three devices: the same losses as one" cmp one three
tap_check "and the same file" cmp one.safetensors three.safetensors
run fit --data good --batch 16 --max-steps 9 --log-steps --replicas 4 --seed 1
differ "another --seed: other losses" "$(losses)" "$(cat one)"
run fit --data good --batch 16 --max-steps 9 --log-steps --no-shuffle
differ "--no-shuffle: other losses" "$(losses)" "$(cat one)"
is "--no-shuffle takes the files' order" "$(losses | wc -l | tr -d ' ')" 9
run fit --data=good --batch=16 --max-steps=2 --log-steps --no-shuffle --init one.safetensors
first=$(losses | head -n 1)
second=$(losses | tail -n 1)
run fit --data good --batch 16 --max-steps 2 --log-steps --no-shuffle --init one.safetensors --seed 9
is "--init replaces what --seed draws; --flag=value works" "$(losses | head -n 1)" "$first"
run fit --data good --batch 16 --max-steps 2 --log-steps --no-shuffle --init one.safetensors --strategy \
    central-storage --collective ring --devices 2
is "--strategy and --collective change nothing in the first loss" "$(losses | head -n 1)" "$first"
run fit --data good --batch 8 --accumulate 2 --replicas 1 --max-steps 2 --log-steps --no-shuffle --init one.safetensors
is "two batches of 8 accumulated begin as one of 16" "$(losses | head -n 1)" "$first"
run fit --data good --batch 16 --max-steps 2 --log-steps --no-shuffle --init one.safetensors --optimizer sgd --lr 0.5
is "--optimizer changes nothing in the first loss" "$(losses | head -n 1)" "$first"
differ "but in the second" "$(losses | tail -n 1)" "$second"
run fit --data good --devices 5 --max-steps 1
gives "more devices than cores" 0 "final: "
run fit --data good --batch 50 --epochs 4 --log-steps --lr 0.002,3:0.0002
losses | head -n 6 >staircase.start
losses | tail -n 1 >staircase.end
run fit --data good --batch 50 --epochs 4 --log-steps --lr 0.002
losses | head -n 6 >constant.start
tap_check "--lr 0.002,3:0.0002: the first three epochs as with 0.002" cmp staircase.start constant.start
differ "and not the fourth" "$(losses | tail -n 1)" "$(cat staircase.end)"
run fit --data good --batch 50 --epochs 3 --lr 0.002 --save constant.safetensors
run fit --data good --batch 50 --epochs 3 --lr 0.002,3:0.0002 --save staircase.safetensors
tap_check "the fourth epoch is epoch 3" cmp staircase.safetensors constant.safetensors
run fit --data good --batch 50 --epochs 4 --lr cosine:0.002,warmup:2,alpha:0.1 --optimizer adamw --weight-decay 0.01 \
    --clip-norm 1 --ema 0.9 --metrics top3,precision,auc --save planned.safetensors
gives "a cosine, AdamW, clipping, averages and metrics" 0 "val_top3="
is "metrics come before the final line" \
    "$(grep -c '^metrics: top3=[0-9.]* precision=[0-9.]* auc=[0-9.]* val_top3=[0-9.]* val_precision=[0-9.]* val_auc=[0-9.]*$' out) $(tail -n 1 out | grep -c "$final")" "1 1"
is "what the model says of itself" "$(grep -c 'adamw.*global_clipnorm.*use_ema.*CosineDecay' planned.safetensors)" 1
run evaluate --data good --load planned.safetensors --metrics top1,pr_auc --confusion confusion.png
gives "evaluate --confusion" 0 "confusion: confusion.png"
is "the picture is a PNG" "$(dd if=confusion.png bs=1 skip=1 count=3 2>/dev/null)" PNG
is "evaluate --metrics" "$(grep -c '^evaluate: loss=[0-9.]* accuracy=\([0-9.]*\) top1=\1 pr_auc=[0-9.]*$' out)" 1
run evaluate --data good --load planned.safetensors --per-class --devices 2
gives "evaluate --per-class" 0 "evaluate: loss="
is "a line for each class and their mean" \
    "$(grep -c '^[0-9] *[01]\.[0-9]* *[01]\.[0-9]* *[01]\.[0-9]* *[0-9]*$' out) $(grep -c '^mean ' out)" "10 1"
for plan in exponential:0.01,rate:0.5,steps:2,staircase:1 polynomial:0.01,power:2 restarts:0.01,steps:2 \
    ramp:0.01,epochs:2; do
    run fit --data good --batch 50 --epochs 3 --lr $plan --optimizer rmsprop
    gives "--lr $plan" 0 "final: "
done

run fit --data good --batch 50 --max-steps 6 --log-steps --optimizer sgd --lr 1e30
is "a NaN loss is printed as nan, never -nan" "$(grep -c -e -nan out) $(grep -c 'loss nan' out | sed 's/[1-9]/some/')" \
    "0 some"
if has gzip; then
    cp -r good zipped
    gzip zipped/*
    run fit --data zipped --batch 16 --max-steps 9 --log-steps --replicas 4
    losses >zipped.losses
    tap_check "gzipped files: the same losses" cmp one zipped.losses
else
    tap_skip "no gzip"
fi

# Without --data
run fit --max-steps 2
gives "fit on drawn digits" 0 "final: "
is "says so in one line" "$(grep -c '^data: .* draws ' err)" 1
is "and shows how to fetch MNIST" "$(grep -c '^  curl .*mnist' err)" 1
mkdir data
cp -r good data/mnist
run fit --batch 16 --max-steps 9 --log-steps --replicas 4
losses >default.losses
tap_check "data/mnist is taken when it is there" cmp one default.losses
rm -r data

# Photographs: bitmaps of two classes, striped differently
bitmap() { # FILE PERIOD
    {
        printf 'BM\066\014\000\000\000\000\000\000\066\000\000\000\050\000\000\000\040\000\000\000\040\000\000\000\001\000\030\000'
        printf '\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000'
        LC_ALL=C awk -v period="$2" 'BEGIN { for (p = 0; p < 3072; p++) printf "%c", (p % period) * 30 % 90 + 32 }'
    } >"$1"
}
make_photos() { # DIRECTORY COUNT
    mkdir -p "$1/eins" "$1/zwei drei"
    for i in $(seq "$2"); do
        bitmap "$1/eins/$i.bmp" $((2 + i % 2))
        bitmap "$1/zwei drei/$i.bmp" $((6 + i % 3))
    done
}
make_shards() { # PART: shards/PART/a.tar and b.tar of the photographs in photos/PART, with 0 and 1 as labels
    mkdir -p "members/$1" "shards/$1"
    i=100
    for photo in "photos/$1"/*/*.bmp; do
        i=$((i + 1))
        cp "$photo" "members/$1/$i.bmp"
        case $photo in *eins*) echo 0 ;; *) echo 1 ;; esac >"members/$1/$i.cls"
    done
    (cd "members/$1" && tar -cf "../../shards/$1/a.tar" 10[1-4].* &&
        tar -cf "../../shards/$1/b.tar" $(ls | grep -v '10[1-4]'))
}
net="--model mobilenet_v2 --alpha 0.35 --size 32 --batch 4"
run fit $net --epochs 2 --max-steps 3 --freeze base
gives "fit on drawn photographs" 0 "final: "
is "says why evaluation lags" "$(grep -c 'running averages, with momentum 0.999 as in Keras' err)" 1
is "says so in one line" "$(grep -c '^data: .* draws ' err)" 1
is "and that features are kept" "$(grep -c 'computed once for each of' err)" 2
run augment --out drawn.png --size 16
gives "a sheet of drawn photographs" 0 "saved: drawn.png"
is "says so in one line" "$(grep -c '^data: .* draws ' err)" 1
run fit $net --epochs 1 --max-steps 1 --save drawn.safetensors
run evaluate --load drawn.safetensors
is "evaluate says so too" "$status $(grep -c '^data: .* draws ' err)" "0 1"
make_photos photos/train 6
make_photos photos/validation 3
run verify photos
case $(cat out err) in
*"no decoder"*) tap_skip "compiled without an image decoder" ;;
*)
    gives "verify" 0 "verify: images=18 corrupt=0"
    run augment photos --out sheet.png --augment flip,zoom:0.1 --seed 3
    gives "a sheet of photographs" 0 "saved: sheet.png"
    is "is a PNG" "$(head -c 4 sheet.png | tail -c 3)" PNG
    run augment photos --out beside.png --augment flip:horizontal --originals --size 16
    gives "a sheet with originals" 0 "saved: beside.png"
    is "of the same size" "$(wc -c <beside.png)" \
        "$(run augment photos --out same.png --augment flip:horizontal --size 16; wc -c <same.png)"
    run augment photos --out beside.png --augment crop:10 --originals --size 16
    refuses "originals of another size" 1 "samples are (10, 10, 3), the sheet with originals takes (16, 16, 3)"
    run fit $net --data photos --epochs 2 --head 8,dropout:0.2 --augment flip,rotation:0.1 --save photos.safetensors \
        --replicas 2
    gives "fit on photographs" 0 "saved: photos.safetensors"
    is "tells how many there are" \
        "$(grep -c 'Found 12 files belonging to 2 classes\|Found 6 files belonging to 2 classes' err)" 2
    wanted="evaluate: $(val_of)"
    run evaluate --load photos.safetensors --data photos
    is "evaluate gives what fit's validation gave" "$(cat out)" "$wanted"
    is "and says of which part" "$(grep -c '^evaluating photos/validation$' err)" 1
    run evaluate --load photos.safetensors --data photos/validation --batch 5 --devices 2
    is "also in other batches on other devices" "$(cat out)" "$wanted"
    run fit $net --data photos --epochs 1 --mix-up 0.3 --cut-mix 1 --save mixed.safetensors
    wanted="evaluate: $(val_of)"
    run evaluate --load mixed.safetensors --data photos
    is "evaluate after fit on mixed photographs" "$(cat out)" "$wanted"
    cp -r photos zoo
    for part in train validation; do cp -r "$(ls -d zoo/$part/* | head -1)" zoo/$part/zebra; done
    run fit $net --data zoo --epochs 1 --mix-up 0.3 --metrics top2 --save mixed.safetensors
    wanted="evaluate: $(val_of)"
    run evaluate --load mixed.safetensors --data zoo --metrics top2 --confusion mixed.png
    is "... of three classes" "$(sed -n "s/ top2=.*//p" out)" "$wanted"
    run fit $net --data photos --mix-up 1.5
    refuses "too much mixing" 2 "--mix-up is 1.5; it must be at most 1"
    run fit --mix-up 0.2
    refuses "digits are not mixed" 2 \
        "--mix-up is for networks of photographs, such as --model mobilenet_v2, not for mnist"
    run fit $net --data photos/train --epochs 1 --validation-split 0.4 --seed 5 --save held.safetensors
    wanted="evaluate: $(val_of)"
    run evaluate --load held.safetensors --data photos/train --validation-split 0.4 --seed 5
    is "evaluate on the share that fit held out" "$(cat out)" "$wanted"
    is "says so" \
        "$(grep -c '^evaluating the photographs of photos/train that fit holds out with --validation-split 0.4 and --seed 5$' err)" 1
    run evaluate --load held.safetensors --data photos/train
    is "evaluate on all says what that means" \
        "$status $(grep -c '^evaluating all 12 photographs of photos/train.* --validation-split 0.2' err)" "0 1"
    run evaluate --load held.safetensors --data photos --validation-split 0.4
    refuses "evaluate on a share of a directory that is split" 1 \
        "--validation-split: photos is already split into parts..."
    run fit --data photos/train
    refuses "photographs for the digits' network" 1 \
        "photos/train contains directories, like a data set of photographs; --model mnist, the default, takes the four files of MNIST: give --model mobilenet_v2..."
    run evaluate --load a.safetensors --data photos/train
    refuses "photographs for a model of digits" 1 \
        "photos/train contains directories, like a data set of photographs; a.safetensors takes the four files of MNIST"
    run fit $net --data photos --metrics top5
    refuses "top5 of two classes" 2 \
        "--metrics top5: with two classes the network has a single output; top5 needs at least three classes"
    run evaluate --load photos.safetensors --data photos --metrics top5
    refuses "top5 of two classes, evaluated" 2 "--metrics top5: with two classes..."
    mkdir -p wider/drei
    cp -r photos/validation/* wider/
    bitmap wider/drei/1.bmp 3
    run fit $net --data photos/train --validation wider --epochs 1
    refuses "classes that training lacks" 1 "--validation wider: photos/train has no class \"drei\""
    mkdir -p outer/other
    cp -r photos outer/inner
    bitmap outer/other/1.bmp 3
    run fit $net --data outer
    refuses "a class that is split itself" 1 \
        "outer/inner would be a class, but is split into train/ and validation/ itself: pass outer/inner..."
    run fit $net --data photos --freeze base --epochs 1
    is "--freeze without --weights names the flag" "$(grep -c '^--freeze without --weights: .*--weights FILE' err)" 1
    run predict --load photos.safetensors photos/train/eins/1.bmp "photos/train/zwei drei/1.bmp"
    is "predict names classes with probabilities" \
        "$(grep -cE '^photos/train/(eins|zwei drei)/1.bmp: (eins|zwei drei) [01]\.[0-9]{4}$' out)" 2
    if has tar; then
        make_shards train
        make_shards validation
        run fit $net --data photos --epochs 2 --no-shuffle
        wanted=$(val_of)
        run fit $net --data shards --epochs 2 --no-shuffle --save shards.safetensors
        is "shards of the same photographs in the same order give the same numbers" "$status $(val_of)" "0 $wanted"
        run fit $net --data shards/train --validation 'shards/validation/{a,b}.tar' --epochs 2 --no-shuffle
        is "and so they do by names" "$status $(val_of)" "0 $wanted"
        run evaluate --load shards.safetensors --data shards
        is "evaluate takes shards" "$(cat out)" "evaluate: $wanted"
        run fit $net --data shards/train --epochs 1 --validation-split 0.4 --seed 5 --save held.safetensors
        wanted="evaluate: $(val_of)"
        run evaluate --load held.safetensors --data shards/train --validation-split 0.4 --seed 5
        is "and the share of them that fit held out" "$(cat out)" "$wanted"
        run predict --load shards.safetensors shards/validation
        is "predict takes shards" "$(grep -cE '^shards/validation/[ab].tar/[0-9]+.bmp: [01] [01]\.[0-9]{4}$' out)" 6
        run verify shards/train
        gives "verify takes shards" 0 "verify: images=12 corrupt=0"
        run augment shards/train --out sheet.png
        gives "a sheet of photographs in shards" 0 "saved: sheet.png"
        run predict --load shards.safetensors no.tar
        refuses "a shard that is missing" 1 "no.tar: cannot open..."
    else
        tap_skip "no tar"
    fi
    run fit $net --data photos/train --validation photos/validation --epochs 1 --log-steps --seed 3
    losses >split.losses
    run fit $net --data photos --epochs 1 --log-steps --seed 3
    losses >below.losses
    tap_check "--validation, or train/ and validation/" cmp split.losses below.losses
    run fit $net --data photos --validation-split 0.25 --epochs 1
    refuses "a share of a directory that is split" 2 "--validation-split: photos is already split into parts..."
    run evaluate --load photos.safetensors --data photos/train --batch 5
    gives "evaluate on a part" 0 "evaluate: "
    mkdir -p tested/train tested/test
    cp -r photos/train/* tested/train/
    cp -r photos/validation/* tested/test/
    for command in "fit $net --data tested" "evaluate --load photos.safetensors --data tested"; do
        run $command
        refuses "no part for validation: ${command%% *}" 1 \
            "tested is split into train/ and test/, but has no validation/..."
    done
    mkdir -p photos/train/drei
    run fit $net --data photos --epochs 1
    refuses "parts with different classes" 1 \
        "photos/validation has no subdirectory for the class \"drei\", which photos/train has"
    rmdir photos/train/drei
    run predict --load photos.safetensors photos/train
    is "predict takes all images of a directory" "$status $(grep -c '^photos/train/' out)" \
        "0 $(find photos/train -type f | wc -l)"
    run fit $net --data photos/train --validation-split 0.25 --epochs 1
    is "--validation-split" "$(grep -c 'Using 9 files for training' err)" 1
    run fit $net --data photos/train --validation-split 0.0001
    refuses "the share is kept in double precision" 1 \
        "photos/train: a validation_split of 0.0001 of 12 files leaves none for validation: at least 10000 are needed"
    run fit $net --data photos --epochs 3 --freeze base --head dropout:0.5 --log-steps
    losses >kept.losses
    run fit $net --data photos --epochs 3 --freeze base --head dropout:0.5 --log-steps --no-cache --devices 2 \
        --replicas 2
    is "features kept on two devices" "$(grep -c 'computed once' err)" 2
    is "as many steps" "$(losses | wc -l)" "$(wc -l <kept.losses)"
    mkdir -p triple/a triple/b triple/c
    for i in 1 2 3; do bitmap triple/a/$i.bmp 2; bitmap triple/b/$i.bmp 5; bitmap triple/c/$i.bmp 9; done
    run fit $net --data triple --epochs 1 --save three.safetensors --dtype bf16
    gives "three classes" 0 "saved: three.safetensors"
    run predict --load three.safetensors triple/b/1.bmp
    is "and which" "$(grep -cE '^triple/b/1.bmp: [abc] [01]\.[0-9]{4}$' out)" 1
    echo "no image" >photos/train/eins/x.jpg
    run verify photos/train
    gives "verify finds what is no image" 1 "verify: images=13 corrupt=1"
    is "and names it" "$(grep -c '^photos/train/eins/x.jpg: ' out)" 1
    run fit $net --data photos --epochs 1
    refuses "fit names it too" 1 "photos/train/eins/x.jpg: ..."
    is "and what can be done" \
        "$(grep -c 'x.jpg: .*; --corrupt skip leaves it out, `mirrortrain verify photos` lists all damaged ones$' err)" 1
    run fit $net --data photos --epochs 2 --corrupt zero
    is "--corrupt zero" "$status $(grep -c '^corrupt: 1 photograph replaced by black images$' err)" "0 1"
    run fit $net --data photos --epochs 3 --corrupt skip --freeze base --log-steps
    losses >skipped.losses
    gives "--corrupt skip" 0 "final: "
    is "says how many were left out" "$(grep -c '^corrupt: 1 photograph left out$' err)" 1
    mkdir -p void/ein void/leer
    if ln -s "$PWD/photos/train/zwei drei" void/link 2>/dev/null; then
        cp photos/train/eins/1.bmp void/ein
        run fit $net --data void --epochs 1
        is "a class without a picture is named, links are followed" \
            "$status $(grep -c '^Found 7 files belonging to 3 classes' err) $(grep -c '^void: no image of the class "leer"$' err)" "0 1 1"
        run verify void
        gives "verify follows them too" 0 "verify: images=7 corrupt=0"
    else
        tap_skip "no links here"
    fi
    run predict --load photos.safetensors photos/train/eins/x.jpg photos/train/eins/1.bmp
    is "predict continues after a file that is not an image" "$status $(wc -l <out | tr -d ' ')" "1 1"
    run predict --load a.safetensors photos/train/eins/1.bmp
    is "photographs as digits" "$(grep -cE '^photos/train/eins/1.bmp: [0-9] [01]\.[0-9]{4}$' out)" 1
    run fit $net --data photos/train/eins
    refuses "no classes" 1 "photos/train/eins..."
    mkdir -p single/only
    cp photos/train/eins/1.bmp single/only/
    cp photos/train/eins/2.bmp single/only/
    run fit $net --data single --validation-split 0.5
    refuses "one class" 1 "single: photographs of 1 class; at least two classes are needed, each in its own directory"
    run fit $net --data photos --weights photos.safetensors
    refuses "weights of something else" 2 "photos.safetensors: there is no tensor \"Conv1/kernel\""
    ;;
esac

# A wrong command line: status 2
run predict --load photos.safetensors
refuses "nothing to predict" 2 "predict needs a model and images: mirrortrain predict --load FILE IMAGE..."
run verify
refuses "nothing to verify" 2 "verify needs one directory: mirrortrain verify DIR"
run augment photos
refuses "nowhere to write" 2 "augment needs the name of the file to write: --out sheet.png"
run augment photos more --out x.png
refuses "two directories" 2 "augment takes one directory, not 2: mirrortrain augment DIR --out sheet.png"
run augment photos --out x.jpg
refuses "a sheet that is no PNG" 2 "--out is \"x.jpg\"; the sheet is a PNG, so its name ends in .png"
run verify ""
refuses "an empty name" 2 "verify was given an empty name; it takes DIR"
run verify -- -missing
refuses "a name after --" 1 "-missing: cannot open the directory..."
kinds=" There are flip, rotation:0.1, zoom:0.1, translation:0.1, contrast:0.2, brightness:0.1, shear:0.1, hue:0.1"
kinds="$kinds, saturation:0.4:0.6, erasing:0.5, grayscale:0.2, invert:0.2"
run augment photos --out x.png --augment flop
refuses "unknown augmentation" 2 "\"flop\" is not an augmentation; did you mean \"flip\"?$kinds..."
run augment photos --out x.png --augment of_my_own
refuses "an augmentation like no other" 2 "\"of_my_own\" is not an augmentation.$kinds..."
run augment photos --out x.png --augment rotation:x
refuses "no rotation" 2 "augmentation rotation: invalid value \"x\"; write rotation:0.1"
run fit $net --augment zoom:1
refuses "too much zoom" 2 "augmentation zoom: 1 leaves nothing of the image when zooming in; it must be less than 1"
run fit $net --augment crop:24
refuses "crops of another size" 2 \
    "--augment crop:24 produces images of size 24: give --size 24, or end it with resizing:32"
run fit $net --validation photos
refuses "nothing to train on" 2 "--validation also needs --data DIR, the photographs to train on"
run fit $net --data photos --validation photos --validation-split 0.5
refuses "two ways to validate" 2 "--validation and --validation-split exclude each other..."
run fit $net --pooling none
refuses "no features" 2 "--pooling none does not work with a head, which needs one number per feature; use avg or max"
run fit $net --head "$(printf '8,%.0s' $(seq 128))"
refuses "a head without an end" 2 "--head has 256 characters; at most 255 are allowed"
run fit $net --no-top
refuses "fit has a head" 2 "--no-top is a flag of export, not of fit"
run fit --weights x
refuses "a flag of photographs" 2 \
    "--weights is for networks of photographs, such as --model mobilenet_v2, not for mnist"
run fit $net --classes 3
refuses "classes are the photographs'" 2 \
    "--classes does not apply to fit with photographs: the names of their directories are the classes"
for head in 12,dropot:0.1 0 -1 dropout: dropout:1 12x 99999999; do
    run fit $net --head $head
    refuses "--head $head" 2 \
        "--head is \"$head\"; it must list units of dense layers and dropout:RATE, such as 512,dropout:0.5, not ..."
done
run fit $net --freeze bass
refuses "no such layer" 2 "mobilenetv2_0.35_32 has no layer \"bass\"..."
for share in 0 1 20% abc; do
    run fit $net --data photos --validation-split $share
    refuses "--validation-split $share" 2 \
        "--validation-split is \"$share\"; it must be a share between 0 and 1, such as 0.2"
done
run fit $net --corrupt ignore
refuses "unknown policy" 2 "there is no corrupt \"ignore\"; choose one of fail|skip|zero"
run fitt
refuses "unknown command" 2 "there is no command fitt; did you mean fit?"
run xyzzy
refuses "unlike any command" 2 "there is no command xyzzy; \`mirrortrain --help\` lists them"
run fit --epoch 3
refuses "unknown flag" 2 "fit has no flag --epoch; did you mean --epochs?"
run fit --repilcas 3
refuses "swapped letters" 2 "fit has no flag --repilcas; did you mean --replicas?"
run fit --load x
refuses "another command's flag" 2 "--load is a flag of evaluate, not of fit"
run fit good
refuses "a word that is no flag" 2 "fit takes flags only, not \"good\"..."
run fit --epochs
refuses "no value" 2 "--epochs needs a value: --epochs N"
run fit --data --epochs 3
refuses "a flag for a value" 2 "--data needs a value: --data DIR"
for value in 3x 0 -1 1.5 "" 99999999999999999999; do
    run fit --epochs "$value"
    refuses "--epochs \"$value\"" 2 "--epochs is \"$value\"; it must be a whole number from 1 to 2147483647"
done
run fit --max-staleness -1
refuses "--max-staleness -1" 2 "--max-staleness is \"-1\"; it must be a whole number from 0 to 2147483647"
run fit --seed -1
refuses "--seed -1" 2 "--seed is \"-1\"; it must be a whole number from 0 to 2^64 - 1"
for value in 0 -1 1e-3x; do
    run fit --lr $value
    refuses "--lr $value" 2 "--lr is \"$value\"; it must be a number above 0, such as 0.001"
done
for value in nan inf cosine ramp; do
    run fit --lr $value
    refuses "--lr $value names the schedules" 2 \
        "--lr is \"$value\"; it must be a number above 0, such as 0.001, or one of cosine, exponential, polynomial, restarts, ramp with a number: cosine:0.001"
done
for value in 0.1, 0.1,0.2 0.1,0:0.2 0.1,3:0.2,3:0.1 0.1,3:0 0.1,-1:0.2 0.1,3.5:0.2 0.1,3: 3:0.1 ,3:0.1 "0.1, 3:0.2" \
    0.1,3:0.2x; do
    run fit --lr "$value"
    refuses "--lr $value" 2 "--lr is \"$value\"; it must be a rate, followed by EPOCH:RATE up to 15 times..."
done
run fit --threads 1025
refuses "--threads 1025" 2 "--threads is \"1025\"; it must be a whole number from 1 to 1024"
run fit --replicas 4097
refuses "--replicas 4097" 2 "--replicas is \"4097\"; it must be a whole number from 1 to 4096"
run fit --model mnits --data good
refuses "unknown model" 2 "there is no model \"mnits\"; did you mean \"mnist\"?"
run summary --model foo
refuses "unlike any model" 2 "there is no model \"foo\"; there are mobilenet_v2..."
for batch in 8,,16 8, ,8 0 8,-1 8:16 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17; do
    run bench --batch "$batch"
    refuses "bench --batch $batch" 2 \
        "--batch is \"$batch\"; it must be up to 16 whole numbers from 1 to 2147483647: 8,16,32"
done
run bench --model mnits --batch 1,2
refuses "bench of an unknown model" 2 "there is no model \"mnits\"; did you mean \"mnist\"?"
run bench --model mobilenet_v2 --size 31
refuses "images too small" 2 "mobilenet_v2: size is 31; it must be at least 32, since images are halved five times"
run bench --model mobilenet_v2 --size 8193
refuses "images too large" 2 "--size is \"8193\"; it must be a whole number from 1 to 8192"
run bench --model mobilenet_v2 --alpha 17
refuses "too wide" 2 "mobilenet_v2: alpha is 17; it must be above 0 and at most 16"
run bench --model mobilenet_v2 --alpha wide
refuses "no width" 2 "--alpha is \"wide\"; it must be a number above 0, such as 0.35"
run bench --model resnet50 --alpha 0.5
refuses "a network of one width" 2 "resnet50: alpha is 0.5, but this network has only one width"
run bench --model resnet --size 32
refuses "a name cut short" 2 "there is no model \"resnet\"; did you mean \"resnet18\"?"
run bench --pooling min --no-top
refuses "unknown pooling" 2 "there is no pooling \"min\"; choose one of avg|max|none"
run bench --dtype bf61
refuses "unknown dtype" 2 "there is no dtype \"bf61\"; choose one of float32|bf16|store-bf16|fp16"
run bench --model mobilenet_v2 --size 32 --classes 2147483647
refuses "too many classes" 1 "predictions: a tensor of shape (1280, 2147483647) has too many elements"
run bench --model mobilenet_v2 --size 32 --no-top --pooling none
refuses "features are not scores" 1 \
    "bench trains classifiers; mobilenet_v2 does not output class scores, so use --forward"
run bench --dtype bfloat16
refuses "a dtype's long name" 2 "there is no dtype \"bfloat16\"; choose one of float32|bf16|store-bf16|fp16"
run bench --model mobilenet_v2 --size 32 --pooling max
refuses "pooling of a network with its top" 2 "mobilenet_v2: pooling applies only to a network without its top"
for command in bench devices; do
    export MIRT_CPU=avx513
    run $command
    unset MIRT_CPU
    refuses "$command: kernels that no machine has" 2 \
        "the environment variable MIRT_CPU is \"avx513\"; this machine has ..."
    export MIRT_CORES=nonsense
    run $command
    unset MIRT_CORES
    refuses "$command: no number of cores" 2 \
        "the environment variable MIRT_CORES is \"nonsense\"; it must be a number of cores from 1 to 4096"
done
run bench --foward
refuses "bench, a flag misspelt" 2 "bench has no flag --foward; did you mean --forward?"
run bench --epochs 1
refuses "bench has no epochs" 2 "--epochs is a flag of fit, not of bench"
run summary --model resnet50 --batch 2147483647 --replicas 2
refuses "a batch no machine has memory for" 1 "a batch of 2147483647 samples needs more memory than any machine has"
run fit --data good --devices 2 --replicas 1
refuses "fewer replicas than devices" 2 "1 replica on 2 devices: every device needs at least one replica"
run fit --data good --devices 0
refuses "no devices" 2 "0 devices asked for; it must be between 1 and ..."
run fit --data good --devices cpu:9999
refuses "absent device" 2 "there is no device \"cpu:9999\"; this machine has cpu:0..."
run evaluate --load missing.safetensors --devices gpu:0
refuses "no GPU" 2 "there is no device \"gpu:0\"..."
run graph --devices cpu:0,cpu:0
refuses "a device twice" 2 "device cpu:0 is named twice..."
run fit --log-steps=yes
refuses "a switch with a value" 2 "--log-steps takes no value, but was given \"yes\""
run fit --collective rin
refuses "unknown collective" 2 "there is no collective \"rin\"; did you mean ring?"
run fit --data good --batch 16 --max-steps 2 --replicas 2 --strategy one-device --save weights.safetensors \
    --weights-only
gives "--strategy one-device" 0 "saved: weights.safetensors"
run evaluate --load weights.safetensors --data good
refuses "weights alone are no model" 1 "weights.safetensors holds no architecture..."
run fit --data good --batch 16 --max-steps 2 --replicas 2 --init weights.safetensors
gives "and are where --init begins" 0 "final: "
run fit --data good --weights-only
refuses "weights of nothing" 2 "--weights-only needs --save FILE"
val_loss() { tail -n 1 out | sed 's/.*val_loss=\([0-9.]*\).*/\1/'; }
run fit --data good --max-steps 6 --seed 1 --ema 0.5 --save averaged.safetensors
plain=$(val_loss)
run evaluate --data good --load averaged.safetensors
averaged=$(tail -n 1 out | sed 's/.*loss=\([0-9.]*\).*/\1/')
run fit --data good --max-steps 6 --seed 1 --ema 0.5 --swap-ema
is "--swap-ema validates the averages that training ends with" "$(val_loss)" "$averaged"
differ "and not the weights themselves" "$plain" "$averaged"
run fit --data good --max-steps 6 --seed 1 --label-smoothing 0.3
differ "--label-smoothing" "$(val_loss)" "$plain"
run fit --data good --swap-ema
refuses "averages of nothing" 2 "--swap-ema needs --ema M"
run fit --data good --label-smoothing 1.5
refuses "more than the whole label" 2 \
    "output 0: sparse_categorical_crossentropy: label_smoothing is 1.5; it must be 0 to 1"
run fit --data good --collective nccl
refuses "NCCL on cores" 2 "NCCL joins GPUs, and these devices are cores..."
run fit --data good --dtype fp16
refuses "float16 on cores" 2 "the policy mixed_float16 is for GPUs..."
run scaling --seconds 1 --device-counts 1 --data good
gives "scaling with the data of --data" 0 "an epoch is all of good, rotated and zoomed on the fly"
run fit --strategy horovod
refuses "unknown strategy" 2 \
    "there is no strategy \"horovod\"; choose one of mirrored|central-storage|one-device|multi-worker|parameter-server"
run fit --strategy parameter-server
refuses "a server without workers" 2 \
    "1 parameter server in 1 process: at least one has to be a worker: start more"
run fit --strategy parameter-server --run kept --checkpoint-every 30
refuses "checkpoints within epochs of parameter servers" 2 \
    "parameter servers write checkpoints after epochs: leave --checkpoint-every out"
tap_check "which leaves no directory" test ! -e kept
run fit --average-every 4
refuses "averages of a single process" 2 \
    "--average-every needs several processes, as of mpirun -n 2 mirrortrain fit ..."
run fit --average-every 4 --strategy mirrored
refuses "averages of another strategy" 2 \
    "--average-every needs --strategy multi-worker, the default of several processes"
run fit --servers 2
refuses "servers of another strategy" 2 "--servers and --max-staleness need --strategy parameter-server"
run fit --max-staleness 0
refuses "a bound of another strategy" 2 "--servers and --max-staleness need --strategy parameter-server"
run fit --lr cosine:0.1,power:2
refuses "--lr cosine:0.1,power:2" 2 \
    "--lr is \"cosine:0.1,power:2\"; after a comma, cosine takes NAME:NUMBER with one of these names: steps, alpha, warmup"
run fit --metrics top5,presision
refuses "--metrics presision" 2 \
    "--metrics: there is no \"presision\"; did you mean precision?; there are topK (top5), precision, recall, f1, auc, pr_auc"
run fit --optimizer adma
refuses "unknown optimizer" 2 "there is no optimizer \"adma\"; did you mean adam?"
run evaluate
refuses "evaluate without --load" 2 "evaluate needs a model: --load FILE"

# Bad input: status 1
run fit --data missing
refuses "missing directory" 1 "missing: found neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz..."
rm bad/t10k-labels-idx1-ubyte
run fit --data bad
refuses "missing file" 1 "bad: found neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte.gz..."
make_data bad
head -c 1000 good/train-images-idx3-ubyte >bad/train-images-idx3-ubyte
run fit --data bad
refuses "truncated images" 1 "bad/train-images-idx3-ubyte is truncated: expected 78416 bytes, got 1000"
if has gzip; then
    rm bad/train-images-idx3-ubyte
    gzip -c good/train-images-idx3-ubyte | head -c 300 >bad/train-images-idx3-ubyte.gz
    run fit --data bad
    refuses "truncated .gz" 1 "bad/train-images-idx3-ubyte.gz..."
    rm bad/train-images-idx3-ubyte.gz
else
    tap_skip "no gzip"
fi
make_data bad
patch_file bad/train-images-idx3-ubyte 0 '\000\000\010\004'
run fit --data bad
refuses "wrong magic" 1 "bad/train-images-idx3-ubyte at byte 0: expected the magic number 0x00000803..."
make_data bad
patch_file bad/train-labels-idx1-ubyte 20 '\013'
run fit --data bad
refuses "label out of range" 1 "bad: label 11 of sample 12 is not one of the 10 classes 0 to 9"
make_data bad
patch_file bad/t10k-labels-idx1-ubyte 20 '\013'
run evaluate --load a.safetensors --data bad
refuses "test label out of range" 1 "bad: label 11 of sample 12 is not one of the 10 classes 0 to 9"
make_data bad
patch_file bad/train-labels-idx1-ubyte 7 '\143'
run fit --data bad
refuses "fewer labels than the file holds" 1 "bad/train-labels-idx1-ubyte is too long: expected 107 bytes, got 108"
run evaluate --load missing.safetensors --data good
refuses "missing model" 1 "missing.safetensors: cannot open: No such file or directory"
echo hello >text.safetensors
run evaluate --load text.safetensors --data good
refuses "not a model" 1 "text.safetensors: 6 bytes are too few..."
head -c 100000 a.safetensors >cut.safetensors
run evaluate --load cut.safetensors --data good
refuses "truncated model" 1 "cut.safetensors: ..."
run fit --data good --init cut.safetensors
refuses "truncated initial weights" 1 "cut.safetensors: ..."
run fit $net --weights missing.safetensors
refuses "missing weights" 1 "missing.safetensors: cannot open: No such file or directory"
run fit --data good --save missing/model.safetensors
refuses "nowhere to save" 1 "--save missing/model.safetensors: cannot write a file there..."
run fit --data good --save good
refuses "saving over a directory" 1 "--save good: this is not a file"
cp a.safetensors before.safetensors
(ulimit -f 100 && exec "$program" fit --data good --epochs 1 --save large.safetensors) >out 2>err </dev/null
status=$?
: >out # the line of progress
refuses "a file beyond the limit" 1 "large.safetensors: cannot write: File too large"
is "nothing of it is left behind" "$(ls large.safetensors* 2>/dev/null)" ""
run fit --data bad --save a.safetensors
tap_check "a fit that fails leaves the old file alone" cmp a.safetensors before.safetensors
if [ -c /dev/full ]; then
    "$program" devices >/dev/full 2>err
    status=$?
    : >out
    refuses "stdout is full" 1 "stdout cannot be written"
else
    tap_skip "no /dev/full"
fi
for name in a.keras a.h5 a.weights.h5 a.hdf5 a.pt A.PTH a.onnx a.tf a.pb; do
    "$program" fit --max-steps 1 --save "$tmp/$name" >"$tmp/out" 2>&1
    status=$?
    converter=tools/convert_weights.py
    case $name in *.onnx | *.tf | *.pb) converter= ;; esac
    if [ $status -eq 2 ] && grep -q "saved as .safetensors.*$converter" "$tmp/out" &&
        ! grep -q final "$tmp/out" && [ ! -e "$tmp/$name" ]; then tap_ok "--save: $(tail -1 "$tmp/out")"
    else tap_not_ok "--save $name: status $status" "$tmp/out"; fi
done
tap_done
