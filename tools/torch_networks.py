"""Networks of torchvision and timm as whole models of mirrortrain, and back.

What a network computes is read from the modules that torchvision or timm creates, because a file of weights does not
say how a network pads, or which epsilon and activations it has. Every conversion is checked in float64 before anything
is written."""

import argparse
import json
import os
import pickle
import re

import numpy as np

COMPILE = {
    "optimizer": {"class_name": "sgd", "learning_rate": 0.01, "momentum": 0, "nesterov": False},
    "loss": "none",
    "from_logits": False,
    "reduction": "sum_over_batch_size",
    "metrics": [],
}
NO_BIAS = {"bias_initializer": {"class_name": "Zeros", "config": {}}, "bias_regularizer": None}
HE = {"class_name": "VarianceScaling", "config": {"scale": 2, "mode": "fan_out", "distribution": "untruncated_normal"}}
ONES, ZEROS = ({"class_name": name, "config": {}} for name in ("Ones", "Zeros"))
FAMILIES = {
    "torchvision": r"(efficientnet_v2_[sml]|mobilenet_v(2|3_small|3_large)|resnet(18|34|50|101)|vgg16(_bn)?)$",
    "timm": r"(tf_)?(efficientnetv2|mobilenetv[23])_|resnet(18|34|50|101)|vgg16",
}
PACKAGES = tuple(FAMILIES)

# >> files


def read(path):
    """The tensors of a checkpoint or .safetensors."""
    import torch

    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        state = load_file(path)
    else:
        try:
            with torch.serialization.safe_globals([argparse.Namespace]):  # timm's training script keeps its arguments
                state = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, KeyError, EOFError, pickle.UnpicklingError) as error:
            raise ValueError("%s: PyTorch cannot read it: %r" % (path, str(error).split("\n")[0]))
        for key in ("state_dict", "model"):
            state = state.get(key, state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ValueError("%s: it is not a dictionary of tensors, as state_dict() makes one" % path)
    return {re.sub("^module[.]", "", name): value for name, value in state.items()}


def write(path, model):
    import torch

    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    temporary = path + ".tmp%d" % os.getpid()
    try:
        if path.endswith(".safetensors"):
            from safetensors.torch import save_file

            save_file(state, temporary, {"format": "pt"})
        else:
            torch.save(state, temporary)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    return len(state), sum(p.numel() for p in model.parameters())


def settings_beside(path):
    """(timm's name, settings) from the config.json that the Hugging Face Hub keeps beside timm's weights, or None."""
    try:
        with open(os.path.join(os.path.dirname(path), "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError):
        return None
    images = config.get("pretrained_cfg") if isinstance(config, dict) else None
    if isinstance(images, dict) and {"mean", "std"} <= set(images) and isinstance(config.get("architecture"), str):
        return config["architecture"], config
    return None


# >> networks


def accepted(package, name):
    if not re.match(FAMILIES[package], name):
        raise ValueError(
            "%s's %s is not supported; MobileNetV2 and V3, ResNet18, 34, 50 and 101, VGG16 and EfficientNetV2 are"
            % (package, name)
        )


def create(package, name, classes, settings=None):
    """The network of torchvision or timm with so many classes; 0: without its last layer."""
    from torch import nn

    if package == "timm":
        import timm

        accepted(package, name)
        timm_settings(name)  # raises ValueError where there is no such network
        options = (settings or {}).get("model_args") or {}
        return timm.create_model(name, pretrained=False, num_classes=classes, **options).eval()
    import torchvision

    accepted(package, name)
    model = torchvision.models.get_model(name, weights=None, num_classes=classes or 1000).eval()
    if not classes:
        setattr(model, "fc" if name.startswith("resnet") else "classifier", nn.Identity())
    return model


def timm_settings(name):
    """What timm knows of a network's weights: their normalization and last layer; its first weights without a tag."""
    import timm

    if not timm.is_model(name):
        raise ValueError("timm has no model %s" % name)
    try:
        return timm.get_pretrained_cfg(name, allow_unregistered=True)
    except RuntimeError as error:
        raise ValueError("timm has no weights %s: %s" % (name, error))


def classes_in(state, package, name):
    """How many classes the last layer has; 0 without one."""
    tops = ["fc", "classifier.6", "classifier.3", "classifier.1"]  # the later one is the last layer
    if package == "timm":
        config = timm_settings(name)
        tops = [config.classifier] if config and isinstance(config.classifier, str) else ["fc", "classifier"]
    return next((state[top + ".weight"].shape[0] for top in tops if top + ".weight" in state), 0)


def normalization(package, name, settings):
    """Mean and standard deviation of the images, whose pixels are from 0 to 1, that the network was trained with."""
    known = {}
    if settings:
        known[tuple(settings["pretrained_cfg"]["mean"]), tuple(settings["pretrained_cfg"]["std"])] = name
    elif package == "timm":
        import timm

        tags = [name] if "." in name else timm.list_models(name + ".*", pretrained=True) or [name]
        for tag in tags:
            config = timm_settings(tag)
            known.setdefault((tuple(config.mean), tuple(config.std)), tag)
    else:
        import torchvision

        for weights in torchvision.models.get_model_weights(name):
            images = weights.transforms()
            known.setdefault((tuple(images.mean), tuple(images.std)), str(weights))
    if len(known) != 1:
        raise ValueError(
            "%s's %s has weights that were trained with images normalized in different ways; give the name "
            "with its tag: --model %s"
            % (package, name, " or ".join(known.values()))
        )
    mean, deviation = next(iter(known))
    if len(mean) != 3 or len(deviation) != 3:
        raise ValueError("it was not trained with images of three channels")
    return mean, deviation


# >> names of layers

# Keras's names for the layers with weights of a block, by their number and in the order of execution.
EFFICIENTNET = {
    2: ("project_conv", "project_bn"),
    4: ("expand_conv", "expand_bn", "project_conv", "project_bn"),
    8: ("expand_conv", "expand_bn", "dwconv2", "bn", "se_reduce", "se_expand", "project_conv", "project_bn"),
}
MOBILENET = {
    4: ("depthwise", "depthwise_BN", "project", "project_BN"),
    6: ("expand", "expand_BN", "depthwise", "depthwise_BN", "project", "project_BN"),
}
MOBILENET_V3 = ("expand", "expand_bn"), ("depthwise", "depthwise_bn"), ("project", "project_bn")
EXCITE = "squeeze_excite_conv", "squeeze_excite_conv_1"
BLOCK = r"blocks[.](\d+)[.](\d+)[.]|features[.](\d+)[.](\d+)[.]block[.]|features[.](\d+)[.](?:conv|block)[.]"
RESNET = r"layer(\d)[.](\d+)[.](?:(conv|bn)(\d)|downsample[.]\d+)$"


def family_of(nodes):
    """The family of a network, whose layers are named as Keras names them; "" if it is another one."""
    names = [node.name for node in nodes if node.weights]
    functions = {node.config.get("function") for node in nodes}
    if any(name.startswith("layer1.") for name in names):
        return "resnet"
    if "silu" in functions:
        return "efficientnet"
    if any(re.match(BLOCK, name) for name in names):
        return "mobilenet_v2" if "relu6" in functions else "mobilenet_v3"
    return "vgg" if any(name.startswith("features.") for name in names) else ""


# Of the stem and of what follows the blocks.
ENDS = {
    "efficientnet": (("stem_conv", "stem_bn"), ("top_conv", "top_bn", "predictions")),
    "mobilenet_v2": (("Conv1", "bn_Conv1"), ("Conv_1", "Conv_1_bn", "predictions")),
    "mobilenet_v3": (("conv", "conv_bn"), ("conv_1", "conv_1_bn", "conv_2", "logits")),
}


def names_of_v3(modules, biased):
    """Names of a block's layers in MobileNetV3; None if it is no such block."""
    excites = len(biased) == 2
    known = [name for pair in MOBILENET_V3[-(len(modules) - 2 * excites) // 2 :] for name in pair]
    known[-2:-2] = EXCITE * excites
    return known if len(known) == len(modules) else None


def names_in_blocks(nodes, family):
    """By modules' names, of MobileNets and EfficientNetV2."""
    blocks, names = {}, {}
    for node in nodes:
        found = re.match(BLOCK, node.name)
        blocks.setdefault(found[0] if found else "top" if blocks and list(blocks) != ["stem"] else "stem", []).append(
            node.name
        )
    stem, top = blocks.pop("stem", []), blocks.pop("top", [])
    if family == "mobilenet_v3" and blocks and len(blocks[list(blocks)[-1]]) == 2:  # timm's last block is no block
        top = blocks.popitem()[1] + top
    for modules, known in zip((stem, top), ENDS[family]):
        names.update(zip(modules, known))
    biased, first = {node.name for node in nodes if "bias" in node.weights}, None
    for number, (block, modules) in enumerate(blocks.items()):
        place = [int(group) for group in re.match(BLOCK, block).groups() if group]
        first = place[0] if first is None else first
        if family == "efficientnet":
            prefix = "block%d%c_" % (place[0] - first + 1, ord("a") + place[1])
            known = EFFICIENTNET.get(len(modules))
        elif family == "mobilenet_v2":
            prefix = "block_%d_" % number if number else "expanded_conv_"
            known = MOBILENET.get(len(modules))
        else:
            prefix = "expanded_conv_%d_" % number if number else "expanded_conv_"
            known = names_of_v3(modules, biased & set(modules))
        names.update({module: prefix + name for module, name in zip(modules, known or ())})
    return names


def names_in_vgg(nodes):
    """By modules' names; of a pooling layer its block's."""
    names, block, number, dense = {}, 1, 0, ["fc1", "fc2", "predictions"]
    for node in nodes:
        if node.kind == "max_pool":
            names[node.name] = "block%d" % block
            block, number = block + 1, 0
        elif node.name.startswith("features.") and node.kind in ("conv", "norm"):
            number += node.kind == "conv"
            names[node.name] = "block%d_conv%d%s" % (block, number, "_bn" * (node.kind == "norm"))
        elif node.weights and dense:
            names[node.name] = dense.pop(0)
    return names


def keras_names(nodes):
    """Keras's names for layers with weights, by modules' names; others are named as PyTorch names them."""
    weighted = [node for node in nodes if node.weights]
    names = {node.name: node.name.replace(".", "_") for node in weighted}
    family = family_of(nodes)
    if family != "resnet":
        names.update(names_in_vgg(nodes) if family == "vgg" else names_in_blocks(weighted, family) if family else {})
        return names
    for node in weighted:
        found = re.match(RESNET, node.name)
        if found:
            part = "%s_%s" % (found[4] or "0", "bn" if node.kind == "norm" else "conv")
            names[node.name] = "conv%d_block%d_%s" % (int(found[1]) + 1, int(found[2]) + 1, part)
        elif node.name in ("conv1", "bn1"):
            names[node.name] = "conv1_" + node.name.rstrip("1")
        elif node.kind == "dense" and node is nodes[-1]:
            names[node.name] = "predictions"
    return names


# >> layers


class Layers:
    """A model of mirrortrain being made of nodes. single: dense layers are convolutions of images of one pixel, as
    in Keras's MobileNetV3."""

    def __init__(self, name, size, single):
        self.name, self.layers, self.arrays, self.used, self.single = name, [], {}, set(), single
        self.x = "input_layer"
        self.layers.append({"class_name": "InputLayer", "name": self.x, "config": {"shape": [size, size, 3]}})

    def add(self, kind, name, inputs, weights=None, **config):
        """Names the layer as asked, or with a number where that name is taken."""
        unique, number = name, 1
        while unique in self.used:
            unique, number = "%s_%d" % (name, number), number + 1
        self.used.add(unique)
        layer = {"class_name": kind, "name": unique, "config": config}
        layer.update({"input": inputs[0]} if len(inputs) == 1 else {"inputs": list(inputs)})
        self.layers.append(layer)
        for variable, value in (weights or {}).items():
            self.arrays["%s/%s" % (unique, variable)] = np.ascontiguousarray(value, np.float32)
        self.x = unique
        return unique

    def padded(self, x, node, name, size):
        """(input, padding) of a convolution or pooling."""
        from torch_graph import NONE, pads_of

        pads, stride, dilation = node.config["pads"], node.config["stride"], node.config.get("dilation", (1, 1))
        for padding in ("valid", "same"):
            if pads == pads_of(padding, size, stride, dilation) and (node.kind == "conv" or pads in (NONE, "same")):
                return x, padding
        return self.add("ZeroPadding2D", name + "_pad", [x], padding=[list(p) for p in pads]), "valid"

    def conv(self, node, x, name):
        kernel = node.weights["kernel"]
        size, groups, filters = kernel.shape[:2], node.config["groups"], kernel.shape[3]
        x, padding = self.padded(x, node, name, size)
        config = dict(
            NO_BIAS,
            kernel_size=list(size),
            strides=list(node.config["stride"]),
            padding=padding,
            dilation_rate=list(node.config["dilation"]),
            activation="linear",
            use_bias="bias" in node.weights,
        )
        if groups == filters > 1 and kernel.shape[2] == 1:
            weights = dict(node.weights, kernel=kernel.transpose(0, 1, 3, 2))
            return self.add(
                "DepthwiseConv2D",
                name,
                [x],
                weights,
                **config,
                depth_multiplier=1,
                depthwise_initializer=HE,
                depthwise_regularizer=None
            )
        return self.add(
            "Conv2D",
            name,
            [x],
            node.weights,
            **config,
            filters=filters,
            groups=groups,
            kernel_initializer=HE,
            kernel_regularizer=None
        )

    def norm(self, node, x, name):
        return self.add(
            "BatchNormalization",
            name,
            [x],
            node.weights,
            momentum=node.config["momentum"],
            epsilon=node.config["epsilon"],
            center="beta" in node.weights,
            scale="gamma" in node.weights,
            beta_initializer=ZEROS,
            gamma_initializer=ONES,
            moving_mean_initializer=ZEROS,
            moving_variance_initializer=ONES,
            beta_regularizer=None,
            gamma_regularizer=None,
        )

    def activation(self, node, x, above):
        """Named after the normalization, convolution or sum before it."""
        function = node.config["function"]
        if x.endswith("_add"):
            name = x[:-3] + "out"
        elif function == "silu":
            name = re.sub("bn$", "activation", x) if x.endswith("bn") else x + "_activation"
        else:
            name = (
                re.sub("_(bn|BN)$", "", x.replace("bn_Conv1", "Conv1"))
                + "_"
                + ("relu" if function.startswith("relu") else function)
            )
        if function.startswith("relu"):
            return self.add("ReLU", name, [x], max_value=6 if function == "relu6" else 0, negative_slope=0, threshold=0)
        return self.add("Activation", name, [x], activation=function)

    def dense(self, node, x, name, activation):
        config = dict(NO_BIAS, use_bias="bias" in node.weights, kernel_initializer=HE, kernel_regularizer=None)
        units = node.weights["kernel"].shape[1]
        if not self.single:
            return self.add("Dense", name, [x], node.weights, units=units, activation=activation, **config)
        weights = dict(node.weights, kernel=node.weights["kernel"][None, None])
        plain = {"kernel_size": [1, 1], "strides": [1, 1], "padding": "same", "dilation_rate": [1, 1], "groups": 1}
        return self.add("Conv2D", name, [x], weights, filters=units, activation="linear", **plain, **config)

    def pool(self, node, x, name):
        kind = "MaxPooling2D" if node.kind == "max_pool" else "AveragePooling2D"
        name = name or ("pool1" if node.kind == "max_pool" else node.name.replace(".", "_"))
        x, padding = self.padded(x, node, name, node.config["size"])
        return self.add(
            kind,
            name + "_pool",
            [x],
            pool_size=list(node.config["size"]),
            strides=list(node.config["stride"]),
            padding=padding,
        )

    def block(self):
        """The prefix of the newest layer's block, or nothing."""
        found = re.match(r"(conv\d_block\d+_|block_\d+_|block\d[a-z]_|expanded_conv_(?:\d+_)?)", self.x)
        return found[0] if found else ""

    def node(self, node, inputs, names, logits, last):
        kind, name = node.kind, names.get(node.name)
        if kind == "conv":
            return self.conv(node, inputs[0], name)
        if kind == "norm":
            return self.norm(node, inputs[0], name)
        if kind == "dense":
            return self.dense(node, inputs[0], name, "softmax" if last and not logits else "linear")
        if kind == "flatten" and not self.single:
            return self.add("Flatten", "flatten", inputs)
        if kind in ("flatten", "area"):
            return inputs[0]
        if kind == "activation":
            return self.activation(node, inputs[0], node.inputs[0])
        if kind in ("max_pool", "average_pool"):
            return self.pool(node, inputs[0], name)
        if kind == "global_pool":
            name = self.block() + ("squeeze_excite_avg_pool" if self.single else "se_squeeze")
            name, keepdims = name if self.block() else "avg_pool", node.config["keepdims"] or self.single
            return self.add("GlobalAveragePooling2D", name, inputs, keepdims=keepdims)
        if kind == "dropout":
            whole = node.config["whole"]
            if not node.config["rate"]:
                return inputs[0]
            return self.add(
                "Dropout",
                self.block() + "drop" if whole else "top_dropout",
                inputs,
                rate=node.config["rate"],
                noise_shape=[1, 1, 1] if whole else None,
            )
        assert kind in ("add", "multiply"), kind
        name = "add" if kind == "add" else "squeeze_excite_mul" if self.single else "se_excite"
        return self.add(kind.capitalize(), self.block() + name, inputs)

    def end(self, node, logits):
        """What follows the last node."""
        if self.single:
            self.add("Flatten", "flatten", [self.x])
        if self.single and node.kind == "dense":
            self.add("Activation", "predictions", [self.x], activation="linear" if logits else "softmax")
        return self.x


def to_architecture(nodes, name, size, images, logits):
    """Arrays by mirrortrain's names, and the architecture. images: (mean, standard deviation) or None."""
    layers, names, made = Layers(name, size, family_of(nodes) == "mobilenet_v3"), keras_names(nodes), {}
    if images:
        layers.add("Rescaling", "rescaling", [layers.x], scale=1 / 255, offset=0)
        layers.add(
            "Normalization",
            "normalization",
            [layers.x],
            mean=[*images[0], 0],
            variance=[*(d * d for d in images[1]), 0],
            reverse=False,
        )
    made[id(nodes[0])] = layers.x
    for node in nodes[1:]:
        made[id(node)] = layers.node(node, [made[id(x)] for x in node.inputs], names, logits, node is nodes[-1])
    layers.x = made[id(nodes[-1])]
    return layers.arrays, {"name": name, "layers": layers.layers, "output": layers.end(nodes[-1], logits)}


# >> conversions

# Relative to the largest output, in float64: files hold epsilon in float32, and deep networks multiply its rounding.
LIMIT = 1e-4


def compare(nodes, model, pixels, images):
    """Raises ValueError unless mirrortrain's nodes give for pixels what the model gives for the images they make."""
    import torch
    from torch_graph import compute

    try:
        with torch.no_grad():
            ours, true = compute(nodes, pixels), model.double().eval()(images)
    except RuntimeError as error:
        raise ValueError(
            "it cannot take images of %d pixels squared: %s" % (pixels.shape[2], str(error).split("\n")[0])
        )
    model.float()
    if not torch.isfinite(true).all():
        raise ValueError("the network's outputs are not finite; nothing was written")
    if nodes[-1].config.get("function") == "softmax":
        true = torch.softmax(true, 1)
    far = float((ours - true).abs().max() / true.abs().max()) if ours.shape == true.shape else float("inf")
    if not far <= LIMIT:
        raise ValueError(
            "the check in float64 failed: outputs differ by %.1e of the largest; nothing was written" % far
        )


def normalized(pixels, images):
    import torch

    mean, deviation = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in images)
    return (pixels / 255 - mean) / deviation


def load(model, state, what):
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).split("\n")[1:]] or [str(error)]
        raise ValueError("these are not weights of %s: %s" % (what, lines[0][:200]))
    return model.float()


def pixels_of(size):
    import torch

    return torch.rand((1, 3, size, size), dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 255


def convert(path, package, name, size, raw, logits):
    """Arrays by Keras's names, and the architecture, from a file of torchvision's or timm's."""
    import torch_graph

    settings = None
    if not name and package != "torchvision":
        found = settings_beside(path)
        if found:
            package, (name, settings) = "timm", found
    if not name or not package:
        raise ValueError(
            "a state dictionary of PyTorch does not say which network it belongs to, nor its padding, epsilon and "
            "normalization; give --from torchvision or --from timm, and --model NAME"
        )
    accepted(package, name)
    what, state = "%s's %s" % (package, name), read(path)
    model = load(create(package, name, classes_in(state, package, name), settings), state, what)
    try:
        nodes = torch_graph.from_torch(model)
    except ValueError as error:
        raise ValueError("%s cannot be converted: %s" % (what, error))
    images = None if raw else normalization(package, name, settings)
    arrays, architecture = to_architecture(nodes, name.split(".")[0], size, images, logits)
    pixels, ours = pixels_of(size), torch_graph.from_architecture(architecture, arrays)
    for a, b in torch_graph.match(ours, nodes):
        pairs = [(a.weights[key].reshape(value.shape), value) for key, value in b.weights.items()]
        if any(not np.array_equal(own, value, equal_nan=True) for own, value in pairs):
            raise ValueError("the weights of layer %s are not those of %s; nothing was written" % (a.name, b.name))
    compare(ours, model, pixels, normalized(pixels, images) if images else pixels)
    return arrays, architecture


def images_of(nodes):
    """(mean, standard deviation) that the model's first layers apply to pixels divided by 255, or None."""
    scale, offset, found = np.ones(3), np.zeros(3), False
    for node in nodes:
        if node.kind == "affine":
            if node.config["reverse"]:
                raise ValueError(
                    "layer %s reverses the channels, which networks of torchvision and timm do not" % node.name
                )
            scale, offset, found = (
                scale * node.config["scale"],
                offset * node.config["scale"] + node.config["offset"],
                True,
            )
    return (-offset / (scale * 255), 1 / (scale * 255)) if found else None


def assign(model, pairs):
    """Weights of mirrortrain's nodes into PyTorch's modules."""
    import torch
    from torch_graph import ROLES

    with torch.no_grad():
        for ours, theirs in pairs:
            for role, value in ours.weights.items():
                value = value.reshape(theirs.weights[role].shape)
                if theirs.area and role == "kernel":
                    images = value.reshape(*theirs.area, -1, value.shape[1])
                    value = images.transpose(2, 0, 1, 3).reshape(value.shape)
                axes = (3, 2, 0, 1) if value.ndim == 4 else range(value.ndim)[::-1]
                getattr(model.get_submodule(theirs.name), ROLES[role]).copy_(
                    torch.tensor(np.ascontiguousarray(value.transpose(*axes)))
                )


def export(arrays, architecture, package, name):
    """The network of torchvision or timm with a whole model's weights, and how its images are normalized."""
    import torch_graph

    if not architecture:
        raise ValueError(
            "it holds only weights, which do not say how their network pads; save the whole model (mirt_save with "
            "MIRT_SAVE_ALL)"
        )
    what = "%s's %s" % (package, name)
    ours = torch_graph.from_architecture(architecture, arrays)
    model = create(package, name, torch_graph.classes_of(ours))
    try:
        theirs = torch_graph.from_torch(model)
        pairs = torch_graph.match(ours, theirs)
    except ValueError as error:
        raise ValueError("this model is not %s: %s" % (what, error))
    assign(model, pairs)
    images = images_of(ours)
    pixels = pixels_of(architecture["layers"][0]["config"]["shape"][0])
    compare(ours, model, pixels, normalized(pixels, images) if images else pixels)
    return model, images
