#!/usr/bin/env python3
"""Downloads the ImageNet weights of a Keras network as .safetensors for mirrortrain: fetch_weights.py resnet50

Needs keras, safetensors and a network; says where from and how large before it begins. What was fetched is kept."""
import argparse
import os
import sys
import urllib.error
import urllib.request

URL = "https://storage.googleapis.com/tensorflow/keras-applications"
# Keras's name, its file, and how that is marked when it has no top.
NETWORKS = {"mobilenet_v2": ("MobileNetV2",
                             "mobilenet_v2/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_{alpha}_{size}{top}.h5",
                             "_no_top"),
            "resnet50": ("ResNet50", "resnet/resnet50_weights_tf_dim_ordering_tf_kernels{top}.h5", "_notop"),
            "resnet101": ("ResNet101", "resnet/resnet101_weights_tf_dim_ordering_tf_kernels{top}.h5", "_notop"),
            "vgg16": ("VGG16", "vgg16/vgg16_weights_tf_dim_ordering_tf_kernels{top}.h5", "_notop")}
for variant in ("small", "large"):
    NETWORKS["mobilenet_v3_" + variant] = ("MobileNetV3" + variant.capitalize(),
                                          "mobilenet_v3/weights_mobilenet_v3_%s_224_{alpha}_float{top}.h5" % variant,
                                          "_no_top_v2")
for variant in ("b0", "b1", "b2", "b3", "s", "m", "l"):
    NETWORKS["efficientnet_v2_" + variant] = ("EfficientNetV2" + variant.upper(),
                                             "efficientnet_v2/efficientnetv2-%s{top}.h5" % variant, "_notop")


def parse():
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mirrortrain")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=NETWORKS, metavar="NAME", help=" ".join(NETWORKS))
    parser.add_argument("--alpha", default="1.0", choices=("0.35", "0.5", "0.75", "1.0", "1.3", "1.4"),
                        help="width of mobilenet_v2, and of mobilenet_v3 (0.75 or 1.0); default 1.0")
    parser.add_argument("--size", type=int, default=224, choices=(96, 128, 160, 192, 224),
                        help="image size that mobilenet_v2 was trained with; default 224")
    parser.add_argument("--top", action="store_true", help="with the layer of ImageNet's classes")
    parser.add_argument("--out", help="the file; default: into --cache, by its name")
    parser.add_argument("--cache", default=cache, help="directory; default %(default)s")
    parser.add_argument("--url", default=URL, help="another place that has Keras's files")
    return parser.parse_args()


def fetch(url, path):
    if os.path.exists(path):
        return
    with urllib.request.urlopen(url) as source:
        size = int(source.headers.get("Content-Length") or 0)
        print("%s, %.1f MB, into %s" % (url, size / 1e6, path), flush=True)
        with open(path + ".part", "wb") as file:
            while block := source.read(1 << 20):
                file.write(block)
            have = file.tell()
    if size and have != size:
        raise OSError("it ended after %d of %d bytes" % (have, size))
    os.replace(path + ".part", path)


def main():
    args = parse()
    keras_name, file, without = NETWORKS[args.name]
    file = file.format(alpha=args.alpha, size=args.size, top="" if args.top else without)
    url, path = "%s/%s" % (args.url, file), os.path.join(args.cache, os.path.basename(file))
    mobile = args.name.startswith("mobilenet")
    width = "_%s_%d" % (args.alpha, args.size) if mobile else ""
    out = args.out or os.path.join(
        args.cache, "%s%s_imagenet%s.safetensors" % (args.name, width, "" if args.top else "_notop"))
    try:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import keras
        from safetensors.numpy import save_file

        import keras_files
        os.makedirs(args.cache, exist_ok=True)
        fetch(url, path)
        options = {"alpha": float(args.alpha)} if mobile else {}
        model = getattr(keras.applications, keras_name)(weights=path, include_top=args.top, **options)
        save_file(keras_files.weights_of(model), out)
    except ImportError as error:
        sys.exit("fetch_weights: %s; pip install keras tensorflow-cpu safetensors h5py" % error)
    except urllib.error.URLError as error:
        sys.exit("fetch_weights: %s cannot be had: %s; is there a network?" % (url, error.reason))
    except (OSError, ValueError) as error:
        sys.exit("fetch_weights: %s: %s" % (path, error))
    print("%s: %s" % (out, args.name))


main()
