#!/bin/sh
# Tests the scripts in tools/ that download data. They use a directory instead of the network, and report missing data.
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
root=$PWD
cd "$tmp" || exit 2

# DESCRIPTION STATUS TEXT COMMAND...: exit status, and text on stdout or stderr.
says() {
    what=$1 wanted=$2 text=$3
    shift 3
    "$@" >said 2>&1 </dev/null
    status=$?
    if [ $status -eq "$wanted" ] && grep -qF -- "$text" said; then tap_ok "$what: $(tail -n 1 said)"; else tap_not_ok \
        "$what: status $status" said; fi
}

mkdir source
for file in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte; do echo "$file" \
    >"source/$file.gz"; done
MIRT_DATA_URL=file://$PWD/source
export MIRT_DATA_URL
if command -v curl >/dev/null 2>&1; then
    says "a file that is missing" 1 "t10k-labels-idx1-ubyte.gz cannot be had" "$root/tools/fetch_data.sh" mnist \
        "with space/mnist"
    echo labels >source/t10k-labels-idx1-ubyte.gz
    says "it continues with what is missing" 0 "12 MB, from file://" "$root/tools/fetch_data.sh" mnist \
        "with space/mnist"
    if cmp -s source/t10k-labels-idx1-ubyte.gz "with space/mnist/t10k-labels-idx1-ubyte.gz"; then tap_ok \
        "the files are there"; else tap_not_ok "the files are there" said; fi
    if command -v unzip >/dev/null 2>&1; then says "no photographs there" 1 "cannot be had" \
        "$root/tools/fetch_data.sh" cats-vs-dogs; fi
fi
says "a set that there is not" 2 "usage: fetch_data.sh mnist|cats-vs-dogs" "$root/tools/fetch_data.sh" cifar
if command -v python3 >/dev/null 2>&1; then
    says "weights that there are not" 2 "invalid choice: 'vgg'" python3 "$root/tools/fetch_weights.py" vgg
    says "weights without a network, or without keras" 1 "fetch_weights: " python3 "$root/tools/fetch_weights.py" \
        resnet50 --cache "$PWD" --url "file://$PWD"
fi
tap_done
