#!/bin/sh
# Gets a data set: fetch_data.sh mnist|cats-vs-dogs [DIRECTORY]; the directory is data/NAME unless given.
# It says where from and how large before it begins. MIRT_DATA_URL: another place that has the same files.
fail() {
    echo "fetch_data: $*" >&2
    exit 1
}

# URL FILE: whole or not at all.
get() {
    [ -e "$2" ] && return
    if command -v curl >/dev/null 2>&1; then curl -fsSL --retry 2 -o "$2.part" "$1"
    elif command -v wget >/dev/null 2>&1; then wget -qO "$2.part" "$1"
    else fail "neither curl nor wget is here"
    fi || { rm -f "$2.part"; fail "$1 cannot be had; is there a network?"; }
    mv "$2.part" "$2"
}

name=$1 directory=${2:-data/$1}
case $name in
mnist)
    url=${MIRT_DATA_URL:-https://storage.googleapis.com/cvdf-datasets/mnist}
    echo "MNIST, 70,000 digits in four files, 12 MB, from $url into $directory"
    mkdir -p "$directory" || exit 1
    for file in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte; do
        get "$url/$file.gz" "$directory/$file.gz"
    done
    ;;
cats-vs-dogs)
    url=${MIRT_DATA_URL:-https://download.microsoft.com/download/3/E/1/3E1C3F21-ECDB-4869-8368-6DEBA77B919F}
    echo "Cats and dogs, 25,000 photographs, 790 MB, from $url into $directory"
    command -v unzip >/dev/null 2>&1 || fail "unzip is not here"
    [ ! -e "$directory/cats" ] && [ ! -e "$directory/dogs" ] || fail "$directory has cats or dogs already"
    mkdir -p "$directory" || exit 1
    get "$url/kagglecatsanddogs_5340.zip" "$directory/photographs.zip"
    unzip -q "$directory/photographs.zip" 'PetImages/*' -d "$directory" ||
        fail "$directory/photographs.zip is damaged; remove it and try again"
    mv "$directory/PetImages/Cat" "$directory/cats" && mv "$directory/PetImages/Dog" "$directory/dogs" || exit 1
    rm -r "$directory/PetImages" "$directory/photographs.zip"
    echo "some of them are no images: mirrortrain verify $directory names them, fit --corrupt skip leaves them out"
    ;;
*)
    echo "usage: fetch_data.sh mnist|cats-vs-dogs [DIRECTORY]" >&2
    exit 2
    ;;
esac
echo "$name is in $directory"
