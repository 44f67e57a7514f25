"""One description of a network's computation, read from PyTorch's modules or from mirrortrain's layers.

A description is a list of nodes in the order of execution; the last one is the output. Nodes say what is computed, not
how it is written: a convolution includes the zero padding of the layer before it, and every activation is a separate
node. So the descriptions of two networks can be compared, and computed in float64."""

import operator

import numpy as np
import torch
import torch.fx
from torch import nn
from torch.nn import functional as F

ACTIVATIONS = {
    "ReLU": "relu",
    "ReLU6": "relu6",
    "SiLU": "silu",
    "Sigmoid": "sigmoid",
    "Hardswish": "hard_swish",
    "Hardsigmoid": "hard_sigmoid",
}
FUNCTIONS = {
    F.relu: "relu",
    F.relu6: "relu6",
    F.silu: "silu",
    F.sigmoid: "sigmoid",
    F.hardswish: "hard_swish",
    F.hardsigmoid: "hard_sigmoid",
    torch.sigmoid: "sigmoid",
    torch.relu: "relu",
}
METHODS = {"relu": "relu", "relu_": "relu", "sigmoid": "sigmoid", "sigmoid_": "sigmoid"}
COMPUTE = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "hard_swish": F.hardswish,
    "hard_sigmoid": F.hardsigmoid,
    "softmax": lambda x: torch.softmax(x, 1),
}
NOT_NEGATIVE = ("relu", "relu6", "sigmoid")
NONE = ((0, 0), (0, 0))
ROLES = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "kernel": "weight",
    "bias": "bias",
}


class Node:
    """kind: input, affine, conv, norm, dense, activation, max_pool, average_pool, global_pool, flatten, dropout, add,
    multiply, pad, or area: images of PyTorch that must have a size. name: of the module or layer. weights: arrays by
    Keras's names and in Keras's layouts. area: the size of the images that PyTorch's dense layer reads flattened."""

    def __init__(self, kind, name, inputs=(), weights=None, **config):
        self.kind, self.name, self.inputs, self.weights, self.config = kind, name, list(inputs), weights or {}, config
        self.area = None


def pads_of(padding, kernel, stride, dilation):
    """(before, after) of both axes; "same" where it depends on the size of the image."""
    if padding == "valid":
        return NONE
    reach = [d * (k - 1) for k, d in zip(kernel, dilation)]
    if any(r and s > 1 for r, s in zip(reach, stride)):
        return "same"
    return tuple((r // 2, r - r // 2) for r in reach)


def pair(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


# >> from PyTorch


def single(node):
    """Whether what a node makes are images of one pixel."""
    while node.kind in ("activation", "dropout") or node.kind == "conv" and node.weights["kernel"].shape[:2] == (1, 1):
        node = node.inputs[0]
    return node.kind == "global_pool"


class Tracer(torch.fx.Tracer):
    def is_leaf_module(self, module, path):
        own = list(module.parameters(recurse=False)) + list(module.buffers(recurse=False))
        return (
            bool(own)
            or type(module).__name__ in ("DropPath", "StochasticDepth", "ConvMlp")
            or super().is_leaf_module(module, path)
        )


def array(tensor):
    return np.ascontiguousarray(tensor.detach().numpy(), np.float32)


class Reading:
    """A PyTorch network's nodes while its graph is gone through."""

    def __init__(self, model):
        self.model, self.nodes = model, []
        try:
            self.graph = Tracer().trace(model)
        except Exception as error:  # whatever its code raises when it is given no numbers
            raise ValueError("its graph cannot be traced: %s" % str(error).split("\n")[0])

    def add(self, kind, name, inputs, weights=None, **config):
        self.nodes.append(Node(kind, name, inputs, weights, **config))
        return self.nodes[-1]

    def conv(self, x, module, path):
        same = type(module).__name__ == "Conv2dSame"
        if not same and type(module) is not nn.Conv2d:
            unsupported(path, module)
        if module.padding_mode != "zeros":
            raise ValueError("%s pads in the mode %s" % (path, module.padding_mode))
        geometry = module.kernel_size, module.stride, module.dilation
        if same or isinstance(module.padding, str):
            pads = pads_of("same" if same else module.padding, *geometry)
        else:
            pads = tuple((p, p) for p in module.padding)
        weights = {"kernel": array(module.weight).transpose(2, 3, 1, 0)}
        if module.bias is not None:
            weights["bias"] = array(module.bias)
        return self.add(
            "conv", path, [x], weights, stride=module.stride, dilation=module.dilation, groups=module.groups, pads=pads
        )

    def norm(self, x, module, path):
        if module.running_mean is None:
            raise ValueError("%s keeps no moving statistics" % path)
        weights = {
            "gamma": module.weight,
            "beta": module.bias,
            "moving_mean": module.running_mean,
            "moving_variance": module.running_var,
        }
        momentum = 0.1 if module.momentum is None else module.momentum
        x = self.add(
            "norm",
            path,
            [x],
            {k: array(v) for k, v in weights.items() if v is not None},
            epsilon=module.eps,
            momentum=1 - momentum,
        )
        for name in ("drop", "act") if type(module).__name__ == "BatchNormAct2d" else ():
            x = self.module(x, getattr(module, name), path + "." + name)
        return x

    def max_pool(self, x, module, path):
        size, stride, padding = pair(module.kernel_size), pair(module.stride), pair(module.padding)
        if pair(module.dilation) != (1, 1) or module.ceil_mode:
            raise ValueError("%s: dilation or ceil_mode of a MaxPool2d is not supported" % path)
        if (
            padding != (0, 0) and x.config.get("function") not in NOT_NEGATIVE
        ):  # its padding is minus infinity, ours is 0
            raise ValueError("%s pads numbers that can be negative, which is not supported for a MaxPool2d" % path)
        return self.add("max_pool", path, [x], size=size, stride=stride, pads=tuple((p, p) for p in padding))

    def average_pool(self, x, module, path):
        size, stride = pair(module.kernel_size), pair(module.stride)
        if (
            pair(module.padding) != (0, 0)
            or module.divisor_override
            or (module.ceil_mode and not size == stride == (2, 2))
        ):
            raise ValueError("%s: such padding of an AvgPool2d is not supported" % path)
        return self.add("average_pool", path, [x], size=size, stride=stride, pads="same" if module.ceil_mode else NONE)

    def flatten(self, x, path, start):
        if start == 1 and x.kind == "global_pool":
            x.config["keepdims"] = False
            return x
        if start == 1 and (x.kind == "area" or single(x)):
            return self.add("flatten", path, [x])
        raise ValueError("%s flattens something other than averages of whole images" % path)

    def dense(self, x, module, path):
        kernel, area = array(module.weight).T, None
        if x.kind == "flatten" and x.inputs[0].kind == "area":  # channels come first there, and last here
            area = x.inputs[0].config["size"]
            images = kernel.reshape(-1, *area, kernel.shape[1])
            kernel = np.ascontiguousarray(images.transpose(1, 2, 0, 3)).reshape(kernel.shape)
        weights = {"kernel": kernel}
        weights.update({"bias": array(module.bias)} if module.bias is not None else {})
        node = self.add("dense", path, [x], weights)
        node.area = area
        return node

    def head(self, x, module, path):
        """Of timm's VGG, which makes small images larger where the network was not made for them."""
        for name in ("fc1", "act1", "drop", "fc2", "act2"):
            x = self.module(x, getattr(module, name), path + "." + name)
        return x

    def module(self, x, module, path):
        kind = type(module).__name__
        if kind in ("Identity", "Flatten"):
            return self.flatten(x, path, module.start_dim) if kind == "Flatten" else x
        if isinstance(module, nn.Conv2d):
            return self.conv(x, module, path)
        if type(module) is nn.BatchNorm2d or kind == "BatchNormAct2d":
            return self.norm(x, module, path)
        if kind in ACTIVATIONS:
            return self.add("activation", path, [x], function=ACTIVATIONS[kind])
        if isinstance(module, nn.Linear) and kind == "Linear":  # timm has its own of that name
            return self.dense(x, module, path)
        if kind == "ConvMlp":
            return self.head(x, module, path)
        if kind == "MaxPool2d":
            return self.max_pool(x, module, path)
        if kind == "AvgPool2d":
            return self.average_pool(x, module, path)
        if kind == "AdaptiveAvgPool2d" and pair(module.output_size) == (1, 1):
            return self.add("global_pool", path, [x], keepdims=True)
        if kind == "AdaptiveAvgPool2d":
            return self.add("area", path, [x], size=pair(module.output_size))
        if kind == "Dropout":
            return self.add("dropout", path, [x], rate=module.p, whole=False)
        if kind == "DropPath" or kind == "StochasticDepth" and module.mode == "row":
            return self.add("dropout", path, [x], rate=module.p if kind != "DropPath" else module.drop_prob, whole=True)
        return unsupported(path, module)

    def function(self, call, args, kwargs, path):
        """A function or, by its name, a method."""
        if call in (operator.add, operator.iadd, torch.add, "add", "add_") and len(args) == 2 and not kwargs:
            return self.add("add", path, self.both(args, path))
        if call in (operator.mul, operator.imul, torch.mul, "mul", "mul_") and len(args) == 2 and not kwargs:
            return self.add("multiply", path, self.both(args, path))
        name = METHODS.get(call) if isinstance(call, str) else FUNCTIONS.get(call)
        if name:
            return self.add("activation", path, args[:1], function=name)
        if call in ("mean", torch.mean):
            axes, keep = kwargs.get("dim", args[1] if len(args) > 1 else None), kwargs.get(
                "keepdim", args[2] if len(args) > 2 else False
            )
            if axes is not None and set(pair(axes)) in ({2, 3}, {-1, -2}):
                return self.add("global_pool", path, args[:1], keepdims=bool(keep))
        if call is F.adaptive_avg_pool2d and pair(args[1]) == (1, 1):
            return self.add("global_pool", path, args[:1], keepdims=True)
        if call in ("flatten", torch.flatten):
            return self.flatten(args[0], path, args[1] if len(args) > 1 else kwargs.get("start_dim", 0))
        if call is F.dropout and not kwargs.get("training", True):
            return args[0]
        raise ValueError("%s calls %s, which is not supported" % (path, getattr(call, "__name__", call)))

    def both(self, args, path):
        if all(isinstance(a, Node) for a in args):
            return args
        raise ValueError("%s adds or multiplies a constant, which is not supported" % path)

    def all(self):
        made = {}
        for step in self.graph.nodes:
            args = torch.fx.node.map_arg(step.args, made.get)
            kwargs = torch.fx.node.map_arg(step.kwargs, made.get)
            path = next(reversed(step.meta.get("nn_module_stack") or {"": 0}), "") or step.name
            if step.op == "placeholder" and not self.nodes:
                made[step] = self.add("input", "input", [])
            elif step.op == "call_module" and len(args) == 1 and not kwargs:
                made[step] = self.module(args[0], self.model.get_submodule(step.target), step.target)
            elif step.op in ("call_function", "call_method"):
                made[step] = self.function(step.target, args, kwargs, path)
            elif step.op == "output" and isinstance(args[0], Node):
                return reachable(args[0])
            else:
                raise ValueError("%s is a %s, which is not supported" % (step.target, step.op))
        return None


def unsupported(path, module):
    raise ValueError("%s is of type %s, which is not supported" % (path, type(module).__name__))


def from_torch(model):
    """The nodes of a network in evaluation mode."""
    return Reading(model.eval()).all()


def reachable(output):
    """The nodes that `output` needs, in the order of execution."""
    order, seen, todo = [], set(), [(output, False)]
    while todo:
        node, ready = todo.pop()
        if ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            todo.append((node, True))
            todo += [(x, False) for x in reversed(node.inputs)]
    return order


# >> from mirrortrain


def affine(x, layer, channels):
    """Rescaling, or Normalization, whose variance of 0 counts as 1."""
    config = layer["config"]
    if layer["class_name"] == "Rescaling":
        scale, offset = np.full(channels, config["scale"], float), np.full(channels, config["offset"], float)
    else:
        scale = 1 / np.sqrt([v or 1 for v in config["variance"][:channels]])
        offset = -np.array(config["mean"][:channels]) * scale
    return Node("affine", layer["name"], [x], scale=scale, offset=offset, reverse=bool(config.get("reverse")))


def weights_of(layer, arrays, *names):
    found = {}
    for name in names:
        key = "%s/%s" % (layer["name"], name)
        if key not in arrays:
            raise ValueError("it has no array %s" % key)
        found[name] = arrays[key]
    return found


def convolution(x, layer, arrays):
    config, deep = layer["config"], layer["class_name"] == "DepthwiseConv2D"
    weights = weights_of(layer, arrays, "kernel", *["bias"] * config["use_bias"])
    groups = config.get("groups", 1)
    if deep:
        if config["depth_multiplier"] != 1:
            raise ValueError("layer %s has a depth multiplier" % layer["name"])
        weights["kernel"] = weights["kernel"].transpose(0, 1, 3, 2)
        groups = weights["kernel"].shape[3]
    x, pads = padding_of(x, config["padding"], weights["kernel"].shape[:2], config["strides"], config["dilation_rate"])
    return Node(
        "conv",
        layer["name"],
        [x],
        weights,
        stride=pair(config["strides"]),
        dilation=pair(config["dilation_rate"]),
        groups=groups,
        pads=pads,
    )


def padding_of(x, padding, size, stride, dilation=(1, 1)):
    pads = pads_of(padding, size, stride, dilation)
    if x.kind == "pad" and padding == "valid":
        return x.inputs[0], x.config["pads"]
    return x, pads


def pooling(x, layer):
    config, kind = layer["config"], "max_pool" if layer["class_name"] == "MaxPooling2D" else "average_pool"
    if kind == "max_pool":
        x, pads = padding_of(x, config["padding"], config["pool_size"], config["strides"])
    else:
        pads = pads_of(config["padding"], config["pool_size"], config["strides"], (1, 1))
    return Node(kind, layer["name"], [x], size=pair(config["pool_size"]), stride=pair(config["strides"]), pads=pads)


def from_layer(layer, x, arrays, channels):
    """The node of a layer; an activation inside it is left to the caller. x: what it reads."""
    kind, config, label = layer["class_name"], layer["config"], layer["name"]
    if kind in ("Rescaling", "Normalization"):
        if x[0].kind not in ("input", "affine"):
            raise ValueError("layer %s rescales something other than images, which is not supported" % label)
        return affine(x[0], layer, channels)
    if kind in ("Conv2D", "DepthwiseConv2D"):
        return convolution(x[0], layer, arrays)
    if kind == "BatchNormalization":
        names = ["gamma"] * config["scale"] + ["beta"] * config["center"] + ["moving_mean", "moving_variance"]
        return Node(
            "norm", label, x, weights_of(layer, arrays, *names), epsilon=config["epsilon"], momentum=config["momentum"]
        )
    if kind == "Dense":
        return Node("dense", label, x, weights_of(layer, arrays, "kernel", *["bias"] * config["use_bias"]))
    if kind == "ReLU" and config["max_value"] in (0, 6) and config["negative_slope"] == config["threshold"] == 0:
        return Node("activation", label, x, function="relu6" if config["max_value"] else "relu")
    if kind == "Activation":
        return x[0]
    if kind in ("MaxPooling2D", "AveragePooling2D"):
        return pooling(x[0], layer)
    if kind == "GlobalAveragePooling2D":
        return Node("global_pool", label, x, keepdims=config["keepdims"])
    if kind == "Flatten":
        return Node("flatten", label, x)
    if kind == "Reshape" and x[0].kind == "global_pool" and list(config["target_shape"][:-1]) == [1, 1]:
        return Node("global_pool", label, x[0].inputs, keepdims=True)
    if kind == "ZeroPadding2D":
        return Node("pad", label, x, pads=tuple(map(tuple, config["padding"])))
    if kind == "Dropout":
        return Node("dropout", label, x, rate=config["rate"], whole=bool(config.get("noise_shape")))
    if kind in ("Add", "Multiply") and len(x) == 2:
        return Node(kind.lower(), label, x)
    if kind.startswith("Random"):
        return x[0]  # changes images only in training
    raise ValueError("layer %s is a %s with settings that are not supported" % (label, kind))


def from_architecture(architecture, arrays):
    """The nodes of a whole model of mirrortrain."""
    made, output = {}, architecture.get("output")
    channels = 0
    for layer in architecture["layers"]:
        label = layer["name"]
        sources = [layer["input"]] if "input" in layer else layer.get("inputs", [])
        if not all(isinstance(s, str) and s in made for s in sources):
            raise ValueError("layer %s reads something that is not the output of a layer" % label)
        if layer["class_name"] == "InputLayer" and not made and len(layer["config"]["shape"]) == 3:
            channels = layer["config"]["shape"][2]
            made[label] = Node("input", label)
            continue
        if not sources:
            raise ValueError(
                "layer %s is a second input or an operation outside of layers, which is not supported" % label
            )
        node = from_layer(layer, [made[s] for s in sources], arrays, channels)
        function = layer["config"].get("activation", "linear")
        if function != "linear":
            if function not in COMPUTE:
                raise ValueError("layer %s has the activation %s, which is not supported" % (label, function))
            node = Node("activation", label, [node], function=function)
        made[label] = node
    if not isinstance(output, str) or output not in made:
        raise ValueError("it has several outputs")
    return reachable(made[output])


# >> numbers


def padded(x, node, size, value=0.0):
    """x with the zeros around it that the node adds, TensorFlow's for "same"."""
    pads, dilation = node.config["pads"], node.config.get("dilation", (1, 1))
    if pads == "same":
        pads = []
        for n, k, s, d in zip(x.shape[2:], size, node.config["stride"], dilation):
            total = max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
            pads.append((total // 2, total - total // 2))
    return F.pad(x, (*pads[1], *pads[0]), value=value)


def average(x, node):
    """Of the pixels in the image, those around it not counted."""
    size, stride = node.config["size"], node.config["stride"]
    total, count = (
        F.avg_pool2d(padded(y, node, size), size, stride, divisor_override=1) for y in (x, torch.ones_like(x))
    )
    return total / count


def compute_one(node, x):
    """A node's numbers, of which x are the inputs' (batch, channels, height, width)."""
    kind, config = node.kind, node.config
    w = {name: torch.tensor(value, dtype=torch.float64) for name, value in node.weights.items()}
    if kind == "affine":
        x = x[0].flip(1) if config["reverse"] else x[0]
        return x * torch.tensor(config["scale"])[:, None, None] + torch.tensor(config["offset"])[:, None, None]
    if kind == "conv":
        kernel = w["kernel"].permute(3, 2, 0, 1)
        return F.conv2d(
            padded(x[0], node, kernel.shape[2:]),
            kernel,
            w.get("bias"),
            config["stride"],
            0,
            config["dilation"],
            config["groups"],
        )
    if kind == "norm":
        scale = w.get("gamma", 1) / torch.sqrt(w["moving_variance"] + config["epsilon"])
        offset = w.get("beta", 0) - w["moving_mean"] * scale
        return x[0] * scale[:, None, None] + offset[:, None, None]
    if kind == "dense":
        return x[0] @ w["kernel"] + w.get("bias", 0)
    if kind == "activation":
        return COMPUTE[config["function"]](x[0])
    if kind == "max_pool":
        value = -np.inf if config["pads"] == "same" else 0.0
        return F.max_pool2d(padded(x[0], node, config["size"], value), config["size"], config["stride"])
    if kind == "average_pool":
        return average(x[0], node)
    if kind == "flatten":
        return x[0].permute(0, 2, 3, 1).flatten(1)
    if kind == "global_pool":
        return x[0].mean((2, 3), keepdim=config["keepdims"])
    if kind in ("add", "multiply"):
        return x[0] + x[1] if kind == "add" else x[0] * x[1]
    return padded(x[0], node, None) if kind == "pad" else x[0]  # dropout


def compute(nodes, images):
    """The output in float64; what no node needs any more is freed."""
    uses, values = {}, {}
    for node in nodes:
        for x in node.inputs:
            uses[id(x)] = uses.get(id(x), 0) + 1
    with torch.no_grad():
        for node in nodes:
            values[id(node)] = (
                images if node.kind == "input" else compute_one(node, [values[id(x)] for x in node.inputs])
            )
            for x in node.inputs:
                uses[id(x)] -= 1
                if not uses[id(x)]:
                    values.pop(id(x), None)
    return values[id(nodes[-1])]


# >> equality


def inert(node):
    """The first node at or above it that computes something in prediction, other than preparing images."""
    while node.kind in ("dropout", "affine", "flatten", "area"):
        node = node.inputs[0]
    return node


def difference(a, b):
    """Why nodes differ, or None. a is of mirrortrain, b of PyTorch."""
    where = "layer %s and %s" % (a.name, b.name)
    if {a.kind, b.kind} == {"conv", "dense"}:  # the same where the whole image, of one pixel or more, is the window
        kernels = [(node.weights["kernel"].size, node.weights["kernel"].shape[-1]) for node in (a, b)]
        if kernels[0] == kernels[1] and set(a.weights) == set(b.weights):
            return None
    if a.kind != b.kind:
        return "%s: it is %s here and %s there" % (where, a.kind, b.kind)
    for key, value in b.config.items():
        own = a.config[key]
        if key in ("momentum", "rate", "whole", "keepdims"):
            continue
        if key == "pads" and "same" in (own, value) and a.kind == "conv":
            continue  # depends on the size of the images, with which they are compared
        if own != value and not (isinstance(value, float) and np.float32(own) == np.float32(value)):
            return "%s: %s is %s here and %s there" % (where, key, own, value)
    shapes = [{key: value.shape for key, value in node.weights.items()} for node in (a, b)]
    if shapes[0] != shapes[1]:
        return "%s: the weights are %s here and %s there" % (where, *shapes)
    return None


def alike(a, b, depth=2):
    """Whether nodes and the nearest ones before them compute the same."""
    if difference(a, b):
        return False
    orders = (b.inputs, b.inputs[::-1])  # of the terms of a sum
    return not depth or any(
        all(alike(inert(x), inert(y), depth - 1) for x, y in zip(a.inputs, order)) for order in orders
    )


def last_of(ours):
    """The node that computes the output, or what softmax makes it of."""
    output = inert(ours[-1])
    if output.kind == "activation" and output.config["function"] == "softmax":
        output = inert(output.inputs[0])
    return output


def classes_of(ours):
    """How many classes mirrortrain's network has; 0 without its last layer."""
    output = last_of(ours)
    scores = output.kind == "dense" or output.kind == "conv" and single(output)
    return output.weights["kernel"].shape[-1] if scores else 0


def match(ours, theirs):
    """Pairs of nodes of two networks that compute the same; raises ValueError where they do not."""
    output = last_of(ours)
    pairs, todo = {}, [(output, inert(theirs[-1]))]
    while todo:
        a, b = todo.pop()
        if id(b) in pairs:
            if pairs[id(b)][0] is not a:
                raise ValueError("layer %s reads another layer than %s" % (a.name, b.name))
            continue
        why = difference(a, b)
        if why:
            raise ValueError(why)
        pairs[id(b)] = a, b
        x, y = [inert(n) for n in a.inputs], [inert(n) for n in b.inputs]
        if len(x) == 2 and not alike(x[0], y[0]) and alike(x[0], y[1]):
            y.reverse()  # terms of a sum come in any order
        todo += zip(x, y)
    return list(pairs.values())
