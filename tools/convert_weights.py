#!/usr/bin/env python3
"""Convert weights from Keras, torchvision and timm for mirrortrain, and back.

  convert_weights.py mobilenet.weights.h5 mobilenet.safetensors
  convert_weights.py mobilenet_v2-7ebf99e0.pth mobilenet.safetensors --from torchvision --model mobilenet_v2
  convert_weights.py model.safetensors b3.safetensors --from timm --model tf_efficientnetv2_b3.in1k
  convert_weights.py trained.safetensors trained.keras
  convert_weights.py trained.safetensors trained.pth --to torchvision --model resnet50

Reads Keras's .weights.h5, .keras and .h5 (any network; needs h5py), and state dictionaries of torchvision and timm in
.pth or .safetensors (MobileNetV2 and V3, ResNet18, 34, 50 and 101, VGG16, EfficientNetV2; needs torch and the package).
Writes .safetensors; .weights.h5, .keras and .h5 need keras; .pth and .safetensors for torchvision and timm need torch
and the package.

From Keras come weights, for mirt_load_weights and fit --weights. From torchvision and timm come whole models, for
mirt_load: their networks pad images and place strides differently than Keras's networks of the same name. Padding,
epsilon, activations and the normalization of images are read from the package's model; a network that mirrortrain's
layers cannot express is refused. To Keras go whole models, and the weights of the networks that Keras has too. To
torchvision and timm go whole models that compute the same as the named network. Every conversion from and to
torchvision and timm is checked in float64 before the output is written.
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
    parser.add_argument(
        "--from", dest="source", choices=torch_networks.PACKAGES, help="the package whose state dictionary IN is"
    )
    parser.add_argument(
        "--to",
        dest="target",
        choices=torch_networks.PACKAGES,
        help="the package whose state dictionary OUT becomes (.pth or .safetensors)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="the package's name for the network, timm's with its tag: resnet50, tf_efficientnetv2_b3.in1k; "
        "not needed where timm's config.json is beside IN",
    )
    parser.add_argument(
        "--size",
        type=int,
        default=224,
        help="height and width of the images that a model from torchvision or timm, or a network for "
        "Keras, takes; default 224",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="a model from torchvision or timm takes images that are already normalized, not pixels " "from 0 to 255",
    )
    parser.add_argument("--logits", action="store_true", help="a model from torchvision or timm ends without softmax")
    args = parser.parse_args()
    if args.source and args.target:
        parser.error("--from and --to exclude each other: one side is mirrortrain's")
    if args.size < 32:
        parser.error("--size is %d; images are halved five times, so it must be at least 32" % args.size)
    return args


def read_safetensors(path):
    """The arrays, and the architecture or None."""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        slots = json.loads(metadata["compile"])["optimizer"]["class_name"] + "/" if "compile" in metadata else None
        arrays = {name: file.get_tensor(name) for name in file.keys() if not slots or not name.startswith(slots)}
    return arrays, json.loads(metadata["architecture"]) if "architecture" in metadata else None


def read(args):
    """Arrays by mirrortrain's names, and the architecture or None."""
    if args.input.endswith(KERAS):
        return keras_files.read(args.input), None
    if args.input.endswith(".safetensors"):
        arrays, architecture = read_safetensors(args.input)
        if any("/" in name for name in arrays):
            if args.source:
                raise ValueError("it is a file of mirrortrain or Keras, not of " + args.source)
            return arrays, architecture
    elif not args.input.endswith(TORCH):
        raise ValueError("%s: its name ends in none of %s .safetensors" % (args.input, " ".join(KERAS + TORCH)))
    if args.target:
        raise ValueError("--to %s converts whole models of mirrortrain, and this is a file of PyTorch" % args.target)
    return torch_networks.convert(args.input, args.source, args.model, args.size, args.raw, args.logits)


def write_torch(args, arrays, architecture):
    """Returns the numbers of tensors and parameters, and what the images must be."""
    if not args.output.endswith(TORCH + (".safetensors",)):
        raise ValueError("%s: its name ends in none of %s .safetensors" % (args.output, " ".join(TORCH)))
    name = args.model or (architecture or {}).get("name", "")
    if not name:
        raise ValueError("--to %s needs --model NAME" % args.target)
    model, images = torch_networks.export(arrays, architecture, args.target, name)
    tensors, parameters = torch_networks.write(args.output, model)
    print("%s: %s's %s, %d tensors, %d parameters" % (args.output, args.target, name, tensors, parameters))
    if images:
        mean, deviation = (" ".join("%.6g" % v for v in values) for values in images)
        print(
            "it takes images from 0 to 1, normalized with mean %s and standard deviation %s, and returns logits"
            % (mean, deviation)
        )
    else:
        print("it takes images prepared as for %s, and returns logits" % args.input)


def write(args, arrays, architecture):
    if args.target:
        return write_torch(args, arrays, architecture)
    if args.output.endswith(KERAS):
        keras_files.write(args.output, arrays, architecture, args.size)
    elif args.output.endswith(TORCH):
        raise ValueError("%s: for a file of PyTorch give --to torchvision or --to timm, and --model NAME" % args.output)
    elif not args.output.endswith(".safetensors"):
        raise ValueError("%s: its name ends in none of .safetensors %s" % (args.output, " ".join(KERAS + TORCH)))
    else:
        write_safetensors(args.output, arrays, architecture, args.logits)
    count = sum(a.size for a in arrays.values())
    return print(
        "%s: %s, %d tensors, %d parameters"
        % (args.output, "a whole model" if architecture else "weights", len(arrays), count)
    )


def write_safetensors(path, arrays, architecture, logits):
    metadata = {"format": "mirrortrain", "version": "1"}
    if architecture:
        metadata.update(
            architecture=json.dumps(architecture),
            compile=json.dumps(dict(torch_networks.COMPILE, from_logits=logits)),
            training='{"iterations":0,"epoch":0}',
        )
    temporary = "%s.tmp%d" % (path, os.getpid())
    try:
        save_file(arrays, temporary, metadata)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def main():
    args = parse()
    try:
        arrays, architecture = read(args)
        write(args, arrays, architecture)
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        sys.exit(
            "convert_weights: %s" % (error if str(error).startswith(args.input) else "%s: %s" % (args.input, error))
        )


main()
