#!/bin/sh
# Compiles and runs each example, and checks its output. The first line of an example is the command; it runs in an
# empty directory. NAME_other.c belongs to NAME.c. With nvcc they are compiled by check_cuda.sh. QUICK: three by their
# first lines; the others are linked with one object of the library, which most of the time goes to.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
mkdir "$tmp/run"
[ -z "${QUICK-}" ] || tap_check "the library, once for several examples" cc -O2 -c mirrortrain.c -o "$tmp/library.o"

# NAME PATTERN...: whether the run of the example printed a line for each pattern, in any order.
prints() {
    printed=$1
    shift
    for pattern; do
        tap_check "$printed prints: $pattern" grep -E -x -e "$pattern" "$tmp/$printed.out"
    done
}

# With one device an example says so, and how to get two; the argument that it names makes two.
says_replicas() { # NAME ARGUMENTS...
    name=$1
    shift
    if grep -q ": [0-9]* GPU" "$tmp/$name.out"; then tap_skip "$name runs on GPUs"; return; fi
    prints "$name" "(replicas|Number of devices): 1" \
        "One replica: all cores are one device\. DEVICES \"2\" makes two: \./$name .* 2"
    tap_check "$name with DEVICES 2 has 2 replicas" sh -c "cd '$tmp/run' && '$tmp/$name' \"\$@\" 2>&1 |
        grep -E -e '(replicas|Number of devices): 2$'" sh "$@"
}

# Twelve different versions of one picture in three rows of four: their mean colors are near each other.
check_sheet() {
    python3 - "$1" <<'E'
import struct, sys, zlib
data, at, packed = open(sys.argv[1], "rb").read(), 8, b""
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at:at + 8])
    if kind == b"IHDR": width, height = struct.unpack(">II", data[at + 8:at + 16])
    if kind == b"IDAT": packed += data[at + 8:at + 8 + size]
    at += 12 + size
rows, line = zlib.decompress(packed), 1 + 3 * width
side, gap = (width - 12) // 4, 4
assert (width, height) == (4 * side + 12, 3 * side + 8) and len(rows) == height * line, (width, height)
cells = []
for k in range(12):
    x, y = k % 4 * (side + gap), k // 4 * (side + gap)
    cells.append(b"".join(rows[(y + r) * line + 1 + 3 * x:(y + r) * line + 1 + 3 * (x + side)] for r in range(side)))
assert len(set(cells)) == 12, "%d different pictures" % len(set(cells))
means = [[sum(c[i::3]) / (side * side) for i in range(3)] for c in cells]
spread = max(max(m[i] for m in means) - min(m[i] for m in means) for i in range(3))
print("mean colors differ by up to %.1f" % spread)
sys.exit(spread > 40)
E
}

# Two classes of pictures, split into train/ and validation/ by hand: the examples take these parts, not two classes.
check_split() {
    for part in train validation; do
        mkdir -p "$tmp/split/$part/first" "$tmp/split/$part/second"
        for i in 1 2 3; do
            cp "$tmp/run/augmented.png" "$tmp/split/$part/first/$i.png"
            cp "$tmp/run/augmented.png" "$tmp/split/$part/second/$i.png"
        done
    done
    (cd "$tmp/run" && "$tmp/resnet50_directory" "$tmp/split" 1) >"$tmp/split.out" 2>&1
    if grep -q "no decoder" "$tmp/split.out"; then tap_skip "train/ and validation/: no decoder"; return; fi
    tap_check "resnet50_directory of a directory that is split finds the classes" \
        sh -c "cat '$tmp/split.out'; test \"\$(grep '^class' '$tmp/split.out')\" = 'class 0: first
class 1: second'"
    tap_check "and ends" grep -E "photographs per second; validation: loss" "$tmp/split.out"
}

for file in examples/*.c examples/*.cpp; do
    name=$(basename "${file%.*}")
    main=${name%_other}
    units=$file compiler="cc -O2"
    case $file in *.cpp) compiler="c++ -O2 -std=c++17" ;; esac
    if [ -f "examples/${main}_other.c" ]; then units="examples/$main.c examples/${main}_other.c"; fi
    wanted="// $compiler $units -o $main -lm -lpthread"
    line=$(head -1 "$file")
    if [ "$line" != "$wanted" ]; then
        tap_not_ok "$file: the first line is not $wanted"
        continue
    fi
    lines=$(wc -l <"$file")
    tap_check "$file has 20 to 120 lines: $lines" test "$lines" -ge 20 -a "$lines" -le 120
    [ "$name" = "$main" ] || continue
    command=$(echo "${line#// }" | sed "s| -o $name | -o $tmp/$name |") how="by its first line"
    case ${QUICK:+$name} in '' | mnist | embed | cpp_user) ;; *)
        command=$(echo "$command" | sed "s|$file|-DMIRRORTRAIN_IMPLEMENTED $file $tmp/library.o|")
        how="with the library's object"
        ;;
    esac
    tap_check "$file compiles $how" sh -c "$command"
    tap_check "$file runs" \
        sh -c "cd '$tmp/run' && '$tmp/$name' >'$tmp/$name.out' 2>&1 || { cat '$tmp/$name.out'; false; }"
    case $name in
    ai_or_not | cats_vs_dogs)
        mkdir -p "$tmp/void/train"
        tap_check "$file refuses a directory without pictures" sh -c "! '$tmp/$name' '$tmp/void' >/dev/null 2>&1"
        ;;
    esac
done

prints mnist "Learning rate for epoch 3 is 0\.001" "Learning rate for epoch 4 is 0\.0001" \
    "Learning rate for epoch 8 is 1e-05"
says_replicas mnist "" 2
prints mnist_mlp "6000 images for training, 1000 for testing" "evaluate: loss 0\..*, accuracy 0\.[89].*" \
    "predict: [89][0-9][0-9] of 1000 right" "Epoch 10/10"
tap_check "mnist_mlp's lines come as it goes: the first one before the library's" \
    sh -c "head -1 '$tmp/mnist_mlp.out' | grep '^no DIR'"
says_replicas mnist_mlp "" 2
prints segment "evaluate: accuracy 0\.9.*, mean intersection over union 0\.9.*" "saved: segments\.png"
prints ai_or_not "network: efficientnet_v2_b0" "augmented\.png: one picture, augmented twelve times" \
    "Epoch 10/10" "Trainable: 1281, not trainable: 5919312"
tap_check "its sheet has twelve versions of one picture" check_sheet "$tmp/run/augmented.png"
tap_check "and with weights its network is EfficientNetV2-M" \
    sh -c "cd '$tmp/run' && '$tmp/ai_or_not' '' no.safetensors 2>&1 | grep -x 'network: efficientnet_v2_m'"
says_replicas ai_or_not "" "" "" 2
prints cats_vs_dogs "replicas: 1, 96 images, 12 steps of 8 per epoch" \
    "replicas: 2, 96 images, 6 steps of 16 per epoch" "Epoch 1: learning rate 1e-05" \
    "Epoch 6: learning rate 5e-05" "Epoch 6: learning rate 0\.0001" \
    "Epoch 10: learning rate 2\.6384e-05" "12/12 .*val_accuracy: .*" "No DIR: the pictures are small drawings.*" \
    "No WEIGHTS: the network begins with random weights\..*"
says_replicas resnet50_directory "" 1 2
prints resnet50_directory "class 0: cats" "class 1: dogs"
check_split
prints custom_loop "all weights are equal, bit for bit"
tap_done
