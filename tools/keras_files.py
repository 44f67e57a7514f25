"""Keras's files: weights out of them by layer/variable, and models into them."""
import io
import os
import re
import zipfile

import numpy as np

# In the order in which .weights.h5 numbers them.
VARIABLES = {
    "conv2d": ("kernel", "bias"), "conv2d_transpose": ("kernel", "bias"), "depthwise_conv2d": ("kernel", "bias"),
    "dense": ("kernel", "bias"),
    "separable_conv2d": ("depthwise_kernel", "pointwise_kernel", "bias"),
    "batch_normalization": ("gamma", "beta", "moving_mean", "moving_variance"),
    "layer_normalization": ("gamma", "beta"), "p_re_lu": ("alpha",),
}
STATE = ("normalization", "seed_generator", "random_", "dropout")  # what these keep is no weight of ours
EFFICIENT_BLOCKS = {21: "B0", 27: "B1", 28: "B2", 32: "B3", 40: "S", 57: "M", 79: "L"}

# >> reading


def read_group(group, path, arrays, prefix=""):
    """The layers of one model in a .weights.h5."""
    for key, layer in group.items():
        kind = re.sub(r"_\d+$", "", key)
        if "vars" not in layer or kind.startswith(STATE):
            continue
        name = layer["vars"].attrs.get("name")
        values = [layer["vars"][i][()] for i in sorted(layer["vars"], key=int)]
        if name is None and ("layers" in layer or values):
            raise ValueError("%s: it does not tell its layers' names, as older Keras did not; "
                             "load and save it with Keras 3.6 or newer" % path)
        if "layers" in layer:
            read_group(layer["layers"], path, arrays, prefix + name + "/")
        if not values:
            continue
        names = VARIABLES.get(kind, ())
        if len(names) - len(values) not in ((0,) if kind == "batch_normalization" else (0, 1)):
            raise ValueError("%s: layer %s has %d weights, and which they are this file does not tell; "
                             "save it as .h5" % (path, name, len(values)))
        arrays.update({"%s%s/%s" % (prefix, name, variable): value for variable, value in zip(names, values)})


def read_attribute(group, name):
    """Long lists are kept in pieces."""
    if name in group.attrs:
        return [text.decode() if isinstance(text, bytes) else text for text in group.attrs[name]]
    found, part = [], 0
    while name + str(part) in group.attrs:
        found += read_attribute(group, name + str(part))
        part += 1
    return found


def read_whole(root, arrays):
    """A .h5 of Keras 1 to 3."""
    root = root.get("model_weights", root)
    for outer in read_attribute(root, "layer_names"):
        names = read_attribute(root[outer], "weight_names")
        separable = any(name.split(":")[0].endswith("/pointwise_kernel") for name in names)
        for name in names:
            layer, variable = name.split(":")[0].split("/")[-2:]
            if variable in ("mean", "variance", "count") or "seed_generator" in name:
                continue
            if variable == "depthwise_kernel" and not separable:
                variable = "kernel"
            arrays["%s/%s" % (layer if layer == outer else outer + "/" + layer, variable)] = root[outer][name][()]


def read(path):
    import h5py
    arrays = {}
    source = path
    if path.endswith(".keras"):
        try:
            with zipfile.ZipFile(path) as archive:
                source = io.BytesIO(archive.read("model.weights.h5"))
        except zipfile.BadZipFile as error:
            raise ValueError("%s: %s" % (path, error))
    with h5py.File(source, "r") as file:
        if path.endswith((".keras", ".weights.h5")) and "layers" in file:
            read_group(file["layers"], path, arrays)
        else:
            read_whole(file, arrays)
    if not arrays:
        raise ValueError("%s: there are no weights in it" % path)
    return {name: np.ascontiguousarray(value, np.float32) for name, value in arrays.items()}


# >> models from what mirrortrain says of them


def bits(mask):
    return [i for i in range(1, 32) if mask >> i & 1]


def keras_config(layer):
    """Keras's config of a layer of ours."""
    config = {}
    for key, value in layer["config"].items():
        if key.endswith("_initializer") and value["class_name"] == "Default":
            continue
        if key.endswith("_regularizer") and value:
            value = {"class_name": "L1L2", "config": value["config"]}
        config[key] = value
    kind = layer["class_name"]
    if kind == "ReLU" and not config["max_value"]:
        config["max_value"] = None
    if kind == "Dropout" and config.get("noise_shape"):
        config["noise_shape"] = [None] + config["noise_shape"]
    if kind == "UpSampling2D":
        config["interpolation"] = "bilinear" if config.pop("bilinear") else "nearest"
    if kind == "PReLU":
        config["shared_axes"] = bits(config["shared_axes"]) or None
    if kind == "LayerNormalization":
        config["axis"] = bits(config.pop("axes")) or -1
    return dict(config, name=layer["name"])


def normalize(keras, x, layer):
    config, channels = layer["config"], x.shape[-1]
    if config.get("reverse"):
        x = keras.ops.flip(x, -1)
    variance = [v or 1 for v in config["variance"]]
    return keras.layers.Normalization(mean=config["mean"][:channels], variance=variance[:channels],
                                      name=layer["name"])(x)


def build(keras, architecture, name=None):
    """The functional model; mirrortrain's words are Keras's, with few exceptions."""
    tensors, inputs, parts = {}, [], {}

    def named(one):
        return tensors[one][0] if isinstance(one, str) else tensors[one[0]][one[1]]

    for layer in architecture["layers"]:
        kind, label = layer["class_name"], layer["name"]
        x = [named(one) for one in ([layer["input"]] if "input" in layer else layer.get("inputs", []))]
        x = x[0] if len(x) == 1 else x
        if kind in ("Operation", "Variable"):
            raise ValueError("%s is an operation outside of layers, which Keras's files do not hold" % label)
        if kind == "InputLayer":
            y = keras.Input(layer["config"]["shape"], name=label)
            inputs.append(y)
        elif kind == "Functional":
            if "architecture" in layer:
                parts[label] = build(keras, layer["architecture"], label)
            part = parts[label] = parts[layer.get("part", label)]
            training = {"auto": None, "on": True, "off": False}[layer["training"]]
            y = part(x) if training is None else part(x, training=training)
        elif kind == "Normalization":
            y = normalize(keras, x, layer)
        elif hasattr(keras.layers, kind):
            y = getattr(keras.layers, kind).from_config(keras_config(layer))(x)
        else:
            raise ValueError("%s is a %s, which Keras does not have" % (label, kind))
        tensors[label] = y if isinstance(y, (list, tuple)) else [y]
    last = [architecture["output"]] if "output" in architecture else architecture["outputs"]
    outputs = [named(one) for one in last]
    return keras.Model(inputs if len(inputs) > 1 else inputs[0], outputs if len(outputs) > 1 else outputs[0],
                       name=name or architecture["name"])


def application(keras, arrays, size):
    """The network of keras.applications that has these weights."""
    top = arrays.get("predictions/kernel", arrays.get("logits/kernel"))
    options = {"weights": None, "include_top": top is not None, "input_shape": (size, size, 3)}
    if top is not None:
        options["classes"] = top.shape[-1]
    else:
        options["pooling"] = "avg"
    if arrays.get("conv2_block1_1_conv/kernel", np.empty(0)).shape[:2] == (1, 1):  # 18 and 34 have 3x3 there
        name = "ResNet101" if "conv4_block7_1_conv/kernel" in arrays else "ResNet50"
        return getattr(keras.applications, name)(**options)
    if "block5_conv3/kernel" in arrays:
        return keras.applications.VGG16(**options)
    blocks = {name.split("_")[0] for name in arrays if re.match(r"block\d[a-z]+_", name)}
    if len(blocks) in EFFICIENT_BLOCKS:
        return getattr(keras.applications, "EfficientNetV2" + EFFICIENT_BLOCKS[len(blocks)])(**options)
    if "expanded_conv_10_expand/kernel" in arrays:
        name = "MobileNetV3Large" if "expanded_conv_14_expand/kernel" in arrays else "MobileNetV3Small"
        last = arrays["expanded_conv_10_project/kernel"].shape[-1] / (112 if name.endswith("Large") else 96)
        alpha = min((0.35, 0.5, 0.75, 1.0, 1.3, 1.4), key=lambda a: abs(a - last))
        return getattr(keras.applications, name)(alpha=alpha, **options)
    if "expanded_conv_depthwise/kernel" in arrays:
        for alpha in (1.0, 0.35, 0.5, 0.75, 1.3, 1.4):
            if all(arrays["block_%d_project/kernel" % n].shape[-1] == rounded(int(f * alpha))
                   for n, f in ((1, 24), (16, 320))):
                return keras.applications.MobileNetV2(alpha=alpha, **options)
    raise ValueError("these are not the weights of MobileNetV2 or V3, ResNet50 or 101, VGG16 or EfficientNetV2; "
                     "of other networks whole models are converted")


def rounded(filters):
    """As MobileNetV2 makes filters of a width."""
    nearest = max(8, (filters + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * filters else nearest


def variables_of(model, prefix=""):
    """(name, variable): what is a weight of mirrortrain's too."""
    for layer in model.layers:
        if hasattr(layer, "layers"):
            yield from variables_of(layer, prefix + layer.name + "/")
        elif not type(layer).__name__.startswith(("Normalization", "Random", "Dropout")):
            for variable in layer.weights:
                yield "%s%s/%s" % (prefix, layer.name, variable.name), variable


def weights_of(model):
    return {name: np.asarray(variable, np.float32) for name, variable in variables_of(model)}


def assign(model, arrays):
    used = set()
    for name, variable in variables_of(model):
        if name not in arrays:
            raise ValueError("there is no %s in it" % name)
        if tuple(variable.shape) != arrays[name].shape:
            raise ValueError("%s is %s, and Keras's %s" % (name, arrays[name].shape, tuple(variable.shape)))
        variable.assign(arrays[name])
        used.add(name)
    if used != set(arrays):
        raise ValueError("Keras's %s has no %s" % (model.name, ", ".join(sorted(set(arrays) - used)[:3])))


def write(path, arrays, architecture, size):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    model = build(keras, architecture) if architecture else application(keras, arrays, size)
    assign(model, arrays)
    if path.endswith(".weights.h5"):
        model.save_weights(path)
    else:
        model.save(path)
