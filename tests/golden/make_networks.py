#!/usr/bin/env python3
"""Writes networks.h: layers, variables and sizes of keras.applications' networks. Also results of float64 Keras for
small ones of each family. ResNet18 and 34, which Keras does not have, are torchvision's."""
import os
import re

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import torch
import torchvision  # before tensorflow: the other way around their copies of LLVM end the process

import keras
import numpy as np
import tensorflow as tf
from keras import applications as A

from formula import c_array, uniform, words

HEAD = """#ifndef GOLDEN_NETWORKS_H
#define GOLDEN_NETWORKS_H
/* Made by make_networks.py with TensorFlow %s, Keras %s, torchvision %s; do not edit. */
#include <stdint.h>

#include "formula.h"

/* A network: `layers` is the FNV-1a hash of one line per layer, `weights` that of one line "name [shape]" per weight; the
   lines are written by layer_line and weight_line of make_networks.py. Networks of torchvision have no layers. */
typedef struct golden_network {
    const char *name; /* for mirt_application */
    int size, classes, pooling, no_top;
    double alpha;
    const char *model;
    long long parameters, trained;
    int num_layers, num_weights;
    uint64_t layers, weights;
} golden_network;

/* A small one: weight number k is what golden_weight says, pixel i of golden_rows images golden_word(7, i) >> 24, labels
   number r is r %% classes. Logits of inference; then the loss of training, in float64. */
#define GOLDEN_NETWORK_ROWS 4
#define GOLDEN_NETWORK_CLASSES 6
#define GOLDEN_NETWORK_SIZE 64
typedef struct golden_forward {
    const char *name;
    double alpha, gain, loss;
    double logits[GOLDEN_NETWORK_ROWS * GOLDEN_NETWORK_CLASSES];
} golden_forward;

"""

EFFICIENT = {k: getattr(A, "EfficientNetV2" + k.upper()) for k in ("b0", "b1", "b2", "b3", "s", "m", "l")}
FAMILIES = {
    "mobilenet_v2": A.MobileNetV2,
    "resnet50": A.ResNet50,
    "resnet101": A.ResNet101,
    "vgg16": A.VGG16,
    "mobilenet_v3_small": A.MobileNetV3Small,
    "mobilenet_v3_large": A.MobileNetV3Large,
}
FAMILIES.update({"efficientnet_v2_" + k: f for k, f in EFFICIENT.items()})


def initializer(i):
    names = {"GlorotUniform": (1, "fan_avg", "uniform")}
    config = i.get_config()
    return "%.5g %s %s" % (names.get(type(i).__name__) or (config["scale"], config["mode"], config["distribution"]))


def layer_line(layer):
    """Class, name, shape of the output without rows, and what else is worth comparing."""
    kind = type(layer).__name__
    shape = layer.output[0].shape if isinstance(layer.output, list) else layer.output.shape
    text = "%s %s %s" % (kind, layer.name, ",".join(map(str, shape[1:])))
    if kind == "BatchNormalization":
        text += " %.6g %.6g" % (layer.momentum, layer.epsilon)
    if kind == "Rescaling":
        text += " %.6g %.6g" % (layer.scale, layer.offset)
    if kind == "Normalization":
        text += "".join(" %.6g %.6g" % pair for pair in zip(layer.input_mean, layer.input_variance))
    if kind == "Dropout":
        text += " %.5f %s" % (layer.rate, "elements" if layer.noise_shape is None else "rows")
    if kind in ("Conv2D", "Dense"):
        text += " " + initializer(layer.kernel_initializer) + " " + layer.activation.__name__
    if kind == "DepthwiseConv2D":
        text += " " + initializer(layer.depthwise_initializer) + " " + layer.activation.__name__
    if kind == "Activation":
        text += " " + layer.activation.__name__.replace("hard_silu", "hard_swish")
    if kind == "ReLU":
        text += " %g" % (layer.max_value or 0)
    # MobileNetV3's hard sigmoid is this layer between x + 3 and x / 6, which Keras does not list
    return re.sub("^ReLU (re_lu.*) 6$", r"Activation \1 hard_sigmoid", text)


def weight_line(layer, variable):
    return "%s/%s %s" % (layer.name, variable.name, ",".join(map(str, variable.shape)))


def fnv(lines):
    h = 0xCBF29CE484222325
    for byte in "".join(line + "\n" for line in lines).encode():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def pairs(model):
    return [(layer, v) for layer in model.layers for v in layer.weights if type(layer).__name__ != "Normalization"]


def structure(name, size=None, classes=1000, pooling=None, no_top=False, alpha=1.0):
    keras.utils.clear_session()
    options = dict(weights=None, include_top=not no_top, pooling=pooling)
    if size:
        options["input_shape"] = (size, size, 3)
    if not no_top:
        options["classes"] = classes
    if name.startswith("mobilenet"):
        options["alpha"] = alpha
    if name.startswith("mobilenet_v3"):  # which otherwise takes images of any size
        options["input_shape"] = (size or 224, size or 224, 3)
    model = FAMILIES[name](**options)
    layers = [layer for layer in model.layers if type(layer).__name__ != "InputLayer"]
    lines, weights = [layer_line(layer) for layer in layers], [weight_line(*p) for p in pairs(model)]
    if os.environ.get("GOLDEN_LINES") == name:
        print("\n".join(lines + weights))
    count = lambda vs: sum(int(np.prod(v.shape)) for v in vs)
    total, trained = count(v for _, v in pairs(model)), count(model.trainable_variables)
    print(model.name, size, alpha, no_top, total, trained, len(lines))
    return '    {"%s", %d, %d, %d, %d, %.9g, "%s", %d, %d, %d, %d, 0x%016xu, 0x%016xu},\n' % (
        name,
        size or 0,
        classes,
        ["avg", "max"].index(pooling) + 1 if pooling else 0,
        no_top,
        alpha,
        model.name,
        total,
        trained,
        len(lines),
        len(weights),
        fnv(lines),
        fnv(weights),
    )


def weight_value(k, name, shape, gain):
    """As golden_weight in test_models.c."""
    u = uniform(100 + k, shape).astype(np.float64)
    if name == "kernel":
        fan_in, scale = int(np.prod(shape[:-1])) if shape[-1] > 1 else int(np.prod(shape[:-2])), 1.0
        while scale * scale * fan_in > 6:
            scale /= 2
        return (u * scale * gain).astype(np.float32)
    return {"gamma": 1 + u / 4, "moving_variance": 1 + u / 2}.get(name, u / 4).astype(np.float32)


def forward(name, rows, classes, size, alpha, gain):
    keras.utils.clear_session()
    options = dict(weights=None, classes=classes, classifier_activation=None, input_shape=(size, size, 3))
    x = (words(7, rows * size * size * 3) >> np.uint32(24)).astype(np.float64).reshape(rows, size, size, 3)
    if name.startswith("mobilenet"):
        options["alpha"] = alpha
    if name == "mobilenet_v2":
        x = A.mobilenet_v2.preprocess_input(x)
    if name.startswith(("resnet", "vgg")):
        x = A.resnet50.preprocess_input(x)
    model = FAMILIES[name](**options)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    for k, (layer, v) in enumerate(pairs(model)):
        v.assign(weight_value(k, v.name, v.shape, gain))
    logits = np.asarray(model(x, training=False))
    return forward_line(name, alpha, gain, logits, np.asarray(model(x, training=True)))


def forward_line(name, alpha, gain, logits, trained):
    labels = np.arange(len(logits)) % logits.shape[1]
    loss = float(np.mean(keras.losses.sparse_categorical_crossentropy(labels, trained, from_logits=True)))
    print(name, "logits", np.abs(logits).max(), "spread over images", logits.std(0).max(), "loss", loss)
    values = ", ".join("%.12g" % v for v in logits.ravel())
    return '    {"%s", %.9g, %g, %.12g,\n     {%s}},\n' % (name, alpha, gain, loss, values)


# torchvision's names of weights, in its order, and ours.
TORCH = {"running_mean": "moving_mean", "running_var": "moving_variance"}
RESNET = r"(?:layer(\d)[.](\d)[.])?(?:(conv|bn)(\d)|downsample[.](\d)|fc)[.](\w+)$"


def torch_name(key):
    stage, block, kind, number, downsample, weight = re.match(RESNET, key).groups()
    if not number and not downsample:
        return "predictions/" + {"weight": "kernel"}.get(weight, weight)
    kind = kind or ("conv", "bn")[int(downsample)]
    weight = TORCH.get(weight) or ("kernel" if kind == "conv" else {"weight": "gamma", "bias": "beta"}[weight])
    place = "conv%d_block%d_%s_" % (int(stage) + 1, int(block) + 1, number or 0) if stage else "conv1_"
    return "%s%s/%s" % (place, kind, weight)


def torch_weights(model):
    """(name, tensor, its shape in Keras's order of axes) of all weights."""
    for key, tensor in model.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            axes = (2, 3, 1, 0) if tensor.ndim == 4 else range(tensor.ndim)[::-1]
            yield torch_name(key), tensor, tuple(tensor.shape[i] for i in axes)


def torch_structure(name):
    model = getattr(torchvision.models, name)()
    weights = ["%s %s" % (key, ",".join(map(str, shape))) for key, _, shape in torch_weights(model)]
    total = sum(tensor.numel() for _, tensor, _ in torch_weights(model))
    trained = sum(p.numel() for p in model.parameters())
    row = (name, name, total, trained, len(weights), fnv(weights))
    return '    {"%s", 0, 1000, 0, 0, 1, "%s", %d, %d, 0, %d, 0, 0x%016xu},\n' % row


def torch_forward(name, rows, classes, size, gain):
    model = getattr(torchvision.models, name)(num_classes=classes).double()
    for k, (key, tensor, shape) in enumerate(torch_weights(model)):
        value = weight_value(k, key.split("/")[1], shape, gain)
        axes = (3, 2, 0, 1) if value.ndim == 4 else range(value.ndim)[::-1]
        tensor.copy_(torch.tensor(value.transpose(*axes)))
    x = (words(7, rows * size * size * 3) >> np.uint32(24)).astype(np.float64).reshape(rows, size, size, 3)
    x = (x / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    x = torch.tensor(x.transpose(0, 3, 1, 2))
    with torch.no_grad():
        logits, trained = model.eval()(x).numpy(), model.train()(x).numpy()
    return forward_line(name, 1, gain, logits, trained)


text = [HEAD % (tf.__version__, keras.__version__, torchvision.__version__.split("+")[0])]
text.append("static const golden_network golden_networks[] = {\n")
for family in FAMILIES:
    text.append(structure(family))
    text.append(structure(family, no_top=True, size=75 if family.startswith("resnet") else 32))
text += [torch_structure(name) for name in ("resnet18", "resnet34")]
for alpha in (0.35, 0.5, 0.75, 1.3, 1.4, 0.1):
    text.append(structure("mobilenet_v2", alpha=alpha, size=97, classes=3))
    text.append(structure("mobilenet_v3_small", alpha=alpha, size=97, classes=3))
    text.append(structure("mobilenet_v3_large", alpha=alpha, size=75, classes=3))
for family in ("mobilenet_v3_small", "mobilenet_v3_large", "vgg16"):
    text.append(structure(family, no_top=True, size=45, pooling="avg"))
    text.append(structure(family, no_top=True, size=64, pooling="max"))
text.append(structure("mobilenet_v2", alpha=0.35, no_top=True, size=224, pooling="avg"))
text.append(structure("resnet50", no_top=True, size=33, pooling="max"))
text.append(structure("efficientnet_v2_b0", no_top=True, size=45, pooling="avg"))
text.append("};\n\n")

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
text.append("static const golden_forward golden_forwards[] = {\n")
for family, alpha, gain in (
    ("mobilenet_v2", 0.35, 1.25),
    ("resnet50", 1.0, 1),
    ("efficientnet_v2_b0", 1.0, 1.25),
    ("resnet101", 1.0, 1),
    ("vgg16", 1.0, 1),
    ("mobilenet_v3_small", 0.75, 1.4),
    ("mobilenet_v3_large", 1.0, 1.4),
):
    text.append(forward(family, 4, 6, 64, alpha, gain))
text += [torch_forward(name, 4, 6, 64, 1) for name in ("resnet18", "resnet34")]
text.append("};\n\n#endif\n")
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "networks.h"), "w") as f:
    f.write("".join(text))
