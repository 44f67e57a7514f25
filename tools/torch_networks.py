"""MobileNetV2, ResNet50 and EfficientNetV2 of torchvision and timm as models of mirrortrain: Keras's names and layouts, PyTorch's
padding, strides and epsilon."""
import pickle
import re

import numpy as np

COMPILE = {"optimizer": {"class_name": "sgd", "learning_rate": 0.01, "momentum": 0, "nesterov": False}, "loss": "none", "from_logits": False,
           "reduction": "sum_over_batch_size", "metrics": []}
NO_BIAS = {"bias_initializer": {"class_name": "Zeros", "config": {}}, "bias_regularizer": None}
HE = {"class_name": "VarianceScaling", "config": {"scale": 2, "mode": "fan_out", "distribution": "untruncated_normal"}}
ONES, ZEROS = ({"class_name": name, "config": {}} for name in ("Ones", "Zeros"))
IMAGENET = (1 / 255, 0, [0.485, 0.456, 0.406, 0], [0.229 ** 2, 0.224 ** 2, 0.225 ** 2, 0])
STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the stages of MobileNetV2 and EfficientNetV2


def read(path):
    """The arrays of a checkpoint."""
    import torch
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, KeyError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError("%s: PyTorch cannot read it: %s" % (path, str(error).split("\n")[0]))
    for key in ("state_dict", "model"):
        state = state.get(key, state)
    return {re.sub("^module[.]", "", name): value.float().numpy() for name, value in state.items()}


class Network:
    """A model being made of a checkpoint's modules, layer by layer; x is what the next one reads."""

    def __init__(self, state, name, size, raw, same, preprocessing=IMAGENET):
        self.state = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
        self.name, self.same, self.layers, self.arrays, self.x = name, same, [], {}, "input_layer"
        self.channels = 3  # of x
        self.layers.append({"class_name": "InputLayer", "name": self.x, "config": {"shape": [size, size, 3]}})
        if not raw:
            scale, offset, mean, variance = preprocessing
            self.add("Rescaling", "rescaling", scale=scale, offset=offset)
            if mean:
                self.add("Normalization", "normalization", mean=mean, variance=variance, reverse=False)

    def add(self, kind, name, inputs=None, **config):
        layer = {"class_name": kind, "name": name, "config": config}
        layer.update({"inputs": inputs} if inputs else {"input": self.x})
        self.layers.append(layer)
        self.x = name

    def has(self, module):
        return module + ".weight" in self.state

    def take(self, name, module, *pairs):
        for ours, theirs in pairs:
            if module + "." + theirs not in self.state:
                raise ValueError("there is no %s.%s in it" % (module, theirs))
            value = self.state.pop(module + "." + theirs)
            if value.ndim == 4:  # to HWIO, or for a depthwise one (h, w, channels, 1)
                value = value.transpose((2, 3, 0, 1) if value.shape[1] == 1 and ours == "depthwise" else (2, 3, 1, 0))
            if value.ndim == 2:
                value = value.T
            variable = "kernel" if ours == "depthwise" else ours
            self.arrays["%s/%s" % (name, variable)] = np.ascontiguousarray(value, np.float32)

    def conv(self, name, module, stride=1, activation="linear"):
        shape, bias = self.state[module + ".weight"].shape, module + ".bias" in self.state
        self.channels = shape[0]
        depthwise = shape[1] == 1 and shape[0] > 1 and shape[2] > 1
        padding = "same"
        if stride > 1 and shape[2] > 1 and not self.same:
            self.add("ZeroPadding2D", name + "_pad", padding=[[shape[2] // 2] * 2] * 2)
            padding = "valid"
        config = dict(NO_BIAS, kernel_size=list(shape[2:]), strides=[stride] * 2, padding=padding, dilation_rate=[1, 1], activation=activation, use_bias=bias)
        if depthwise:
            config.update(depth_multiplier=1, depthwise_initializer=HE, depthwise_regularizer=None)
        else:
            config.update(filters=shape[0], groups=1, kernel_initializer=HE, kernel_regularizer=None)
        self.add("DepthwiseConv2D" if depthwise else "Conv2D", name, **config)
        self.take(name, module, ("depthwise" if depthwise else "kernel", "weight"), *[("bias", "bias")] * bias)

    def norm(self, name, module, epsilon):
        self.add("BatchNormalization", name, momentum=0.9, epsilon=epsilon, center=True, scale=True, beta_initializer=ZEROS, gamma_initializer=ONES,
                 moving_mean_initializer=ZEROS, moving_variance_initializer=ONES, beta_regularizer=None, gamma_regularizer=None)
        self.take(name, module, ("gamma", "weight"), ("beta", "bias"), ("moving_mean", "running_mean"), ("moving_variance", "running_var"))

    def relu(self, name, most=0):
        self.add("ReLU", name, max_value=most, negative_slope=0, threshold=0)

    def activation(self, name, kind):
        self.add("Activation", name, activation=kind)

    def top(self, module, dropout):
        self.add("GlobalAveragePooling2D", "avg_pool", keepdims=False)
        if self.has(module):
            units = self.state[module + ".weight"].shape[0]
            if dropout:
                self.add("Dropout", "top_dropout", rate=dropout)
            self.add("Dense", "predictions", units=units, activation="softmax", use_bias=True, kernel_initializer=HE, kernel_regularizer=None, **NO_BIAS)
            self.take("predictions", module, ("kernel", "weight"), ("bias", "bias"))
        if self.state:
            raise ValueError("it has %s, which %s does not" % (", ".join(sorted(self.state)[:3]), self.name))
        return self.arrays, {"name": self.name, "layers": self.layers, "output": self.x}


def mobilenet_v2(state, size, raw, same, timm):
    net = Network(state, "mobilenet_v2", size, raw, same)
    blocks = [(s, i) for s, count in enumerate((1, 2, 3, 4, 3, 3, 1)) for i in range(count)]

    def step(conv, norm, prefix, part, modules, stride=1, relu=True):
        net.conv(prefix + conv, part + modules[0], stride)
        net.norm(prefix + norm, part + modules[1], 1e-5)
        if relu:
            net.relu(prefix + conv + "_relu", 6)

    step("Conv1", "bn_Conv1", "", "", ("conv_stem", "bn1") if timm else ("features.0.0", "features.0.1"), 2)
    for n, (s, i) in enumerate(blocks):
        before, channels, stride = net.x, net.channels, 1 if i else STRIDES[s]
        prefix = "block_%d_" % n if n else "expanded_conv_"
        part = "blocks.%d.%d." % (s, i) if timm else "features.%d.conv." % (n + 1)
        if n:
            modules = ("conv_pw", "bn1", "conv_dw", "bn2", "conv_pwl", "bn3") if timm else ("0.0", "0.1", "1.0", "1.1", "2", "3")
            step("expand", "expand_BN", prefix, part, modules)
        else:
            modules = ("", "") + (("conv_dw", "bn1", "conv_pw", "bn2") if timm else ("0.0", "0.1", "1", "2"))
        step("depthwise", "depthwise_BN", prefix, part, modules[2:], stride)
        step("project", "project_BN", prefix, part, modules[4:], relu=False)
        if stride == 1 and channels == net.channels:
            net.add("Add", prefix + "add", [before, net.x])
    step("Conv_1", "Conv_1_bn", "", "", ("conv_head", "bn2") if timm else ("features.18.0", "features.18.1"))
    return net.top("classifier" if timm else "classifier.1", 0.2)


def resnet50(state, size, raw, same, timm):
    net = Network(state, "resnet50", size, raw, same)

    def step(name, conv, norm, stride=1):
        net.conv(name + "_conv", conv, stride)
        net.norm(name + "_bn", norm, 1e-5)

    step("conv1", "conv1", "bn1", 2)
    net.relu("conv1_relu")
    net.add("ZeroPadding2D", "pool1_pad", padding=[[1, 1], [1, 1]])
    net.add("MaxPooling2D", "pool1_pool", pool_size=[3, 3], strides=[2, 2], padding="valid")
    for s, count in enumerate((3, 4, 6, 3)):
        for i in range(count):
            shortcut, stride = net.x, 2 if s and not i else 1
            part, prefix = "layer%d.%d." % (s + 1, i), "conv%d_block%d_" % (s + 2, i + 1)
            for k in (1, 2, 3):
                step(prefix + str(k), part + "conv%d" % k, part + "bn%d" % k, stride if k == 2 else 1)
                if k < 3:
                    net.relu(prefix + "%d_relu" % k)
            branch = net.x
            if i == 0:
                net.x = shortcut
                step(prefix + "0", part + "downsample.0", part + "downsample.1", stride)
                shortcut = net.x
            net.add("Add", prefix + "add", [shortcut, branch])
            net.relu(prefix + "out")
    return net.top("fc", 0)


# Modules of a block in EfficientNetV2 by its kind: convolutions and normalizations in turns, squeeze and excite between.
TIMM = {"single": ("conv", "bn1"), "fused": ("conv_exp", "bn1", "conv_pwl", "bn2"),
        "inverted": ("conv_pw", "bn1", "conv_dw", "bn2", "se.conv_reduce", "se.conv_expand", "conv_pwl", "bn3")}
TORCHVISION = {"single": ("0.0", "0.1"), "fused": ("0.0", "0.1", "1.0", "1.1"), "inverted": ("0.0", "0.1", "1.0", "1.1", "2.fc1", "2.fc2", "3.0", "3.1")}


def efficientnet_v2(state, size, raw, same, timm):
    pattern = re.compile(r"blocks\.(\d+)\.(\d+)\." if timm else r"features\.(\d+)\.(\d+)\.block\.")
    blocks = sorted({(int(m[1]), int(m[2]), m[0]) for m in map(pattern.match, state) if m})
    names, few = (TIMM if timm else TORCHVISION), len(blocks) in (21, 27, 28, 32)  # B0 to B3
    half = len(blocks) == 79 or (timm and not few)
    net = Network(state, "efficientnet_v2", size, raw, same, (1 / 127.5, -1, None, None) if half else IMAGENET)
    last = "features.%d." % (blocks[-1][0] + 1)

    def step(conv, norm, name, modules, stride=1):
        net.conv(conv, modules[0], stride)
        net.norm(norm, modules[1], 1e-3)
        if name:
            net.activation(name, "silu")

    step("stem_conv", "stem_bn", "stem_activation", ("conv_stem", "bn1") if timm else ("features.0.0", "features.0.1"), 2)
    for number, (stage, i, part) in enumerate(blocks):
        stage -= not timm
        prefix, before, channels, stride = "block%d%c_" % (stage + 1, ord("a") + i), net.x, net.channels, STRIDES[stage] if i == 0 else 1
        kind = next(kind for kind in ("inverted", "fused", "single") if net.has(part + names[kind][-4 if kind == "inverted" else -2]))
        modules = [part + module for module in names[kind]]
        if kind == "inverted":
            step(prefix + "expand_conv", prefix + "expand_bn", prefix + "expand_activation", modules)
            step(prefix + "dwconv2", prefix + "bn", prefix + "activation", modules[2:], stride)
            excite(net, prefix, modules[4:])
        elif kind == "fused":
            step(prefix + "expand_conv", prefix + "expand_bn", prefix + "expand_activation", modules, stride)
        step(prefix + "project_conv", prefix + "project_bn", prefix + "project_activation" if kind == "single" else None, modules[-2:],
             stride if kind == "single" else 1)
        if stride == 1 and channels == net.channels:
            if number:
                net.add("Dropout", prefix + "drop", rate=0.2 * number / len(blocks), noise_shape=[1, 1, 1])
            net.add("Add", prefix + "add", [net.x, before])
    step("top_conv", "top_bn", "top_activation", ("conv_head", "bn2") if timm else (last + "0", last + "1"))
    return net.top("classifier" if timm else "classifier.1", 0.2)


def excite(net, prefix, modules):
    before, channels = net.x, net.channels
    net.add("GlobalAveragePooling2D", prefix + "se_squeeze", keepdims=False)
    net.add("Reshape", prefix + "se_reshape", target_shape=[1, 1, channels])
    net.conv(prefix + "se_reduce", modules[0], activation="silu")
    net.conv(prefix + "se_expand", modules[1], activation="sigmoid")
    net.add("Multiply", prefix + "se_excite", [before, net.x])


def convert(state, size, raw, padding):
    """Arrays by Keras's names, and the architecture."""
    if "layer3.5.conv3.weight" in state and "layer3.6.conv3.weight" not in state:
        return resnet50(state, size, raw, padding == "same", False)
    if "features.18.0.weight" in state and "features.1.conv.0.0.weight" in state:
        return mobilenet_v2(state, size, raw, padding == "same", False)
    if "blocks.0.0.conv_dw.weight" in state and "blocks.1.0.bn3.weight" in state:
        return mobilenet_v2(state, size, raw, padding == "same", True)
    if "features.1.0.block.0.0.weight" in state:
        return efficientnet_v2(state, size, raw, padding == "same", False)
    if "conv_stem.weight" in state and "blocks.0.0.conv.weight" in state or "blocks.0.0.conv_exp.weight" in state:
        return efficientnet_v2(state, size, raw, padding != "symmetric", True)
    raise ValueError("these are not the weights of MobileNetV2, ResNet50 or EfficientNetV2 as torchvision or timm names them")
