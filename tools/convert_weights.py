#!/usr/bin/env python3
"""Weights from Keras, torchvision and timm for mirrortrain, and back to Keras.

  convert_weights.py mobilenet.weights.h5 mobilenet.safetensors
  convert_weights.py mobilenet_v2-7ebf99e0.pth mobilenet.safetensors
  convert_weights.py trained.safetensors trained.keras

Reads Keras's .weights.h5, .keras and .h5 (any network; needs h5py), PyTorch's .pth (needs torch) and .safetensors, those of
torchvision and timm too (MobileNetV2, ResNet50, EfficientNetV2). Writes .safetensors; .weights.h5, .keras and .h5 need keras.

From Keras come weights, for mirt_load_weights and fit --weights. PyTorch's networks pad images and count strides in another way
than Keras's of the same name, so what comes from there is a whole model, for mirt_load; timm's EfficientNetV2 named tf_ are
Keras's. To Keras go whole models, and the weights of the networks that Keras has too.
"""
import argparse
import json
import os
import sys

try:
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import save_file

    import keras_files
    import torch_networks
except ImportError as missing:
    sys.exit("convert_weights: %s; pip install numpy safetensors, and h5py, keras or torch for their files" % missing)

KERAS = (".weights.h5", ".keras", ".h5")
TORCH = (".pth", ".pt", ".bin")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", metavar="IN")
    parser.add_argument("output", metavar="OUT")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images that a model from PyTorch, or a network for Keras, takes")
    parser.add_argument("--raw", action="store_true", help="a model from PyTorch takes images as they are, not pixels from 0 to 255 which it prepares itself")
    parser.add_argument("--padding", choices=("symmetric", "same"), help="how PyTorch's network was trained to pad: timm's EfficientNetV2 named tf_ "
                        "same, which is the default for timm's; all others symmetric")
    return parser.parse_args()


def read_safetensors(path):
    """The arrays, and the architecture or None."""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        slots = {"adam/", "adamw/", "sgd/", "rmsprop/"} if "compile" in metadata else set()
        arrays = {name: file.get_tensor(name) for name in file.keys() if not name.startswith(tuple(slots))}
    return arrays, json.loads(metadata["architecture"]) if "architecture" in metadata else None


def read(args):
    """Arrays by mirrortrain's names, and the architecture or None."""
    if args.input.endswith(KERAS):
        return keras_files.read(args.input), None
    if args.input.endswith(TORCH):
        arrays = torch_networks.read(args.input)
    elif args.input.endswith(".safetensors"):
        arrays, architecture = read_safetensors(args.input)
        if any("/" in name for name in arrays):
            return arrays, architecture
    else:
        raise ValueError("%s: its name ends in none of %s .safetensors" % (args.input, " ".join(KERAS + TORCH)))
    return torch_networks.convert(arrays, args.size, args.raw, args.padding)


def write(args, arrays, architecture):
    if args.output.endswith(KERAS):
        return keras_files.write(args.output, arrays, architecture, args.size)
    if not args.output.endswith(".safetensors"):
        raise ValueError("%s: its name ends in none of .safetensors %s" % (args.output, " ".join(KERAS)))
    metadata = {"format": "mirrortrain", "version": "1"}
    if architecture:
        metadata.update(architecture=json.dumps(architecture), compile=json.dumps(torch_networks.COMPILE), training='{"iterations":0,"epoch":0}')
    save_file(arrays, args.output + ".tmp", metadata)
    os.replace(args.output + ".tmp", args.output)


def main():
    args = parse()
    try:
        arrays, architecture = read(args)
        write(args, arrays, architecture)
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        sys.exit("convert_weights: %s" % (error if str(error).startswith(args.input) else "%s: %s" % (args.input, error)))
    print("%s: %s, %d tensors, %d parameters" % (args.output, "a whole model" if architecture else "weights", len(arrays), sum(a.size for a in arrays.values())))


main()
