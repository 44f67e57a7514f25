#!/usr/bin/env python3
"""Compares converted networks with Keras, torchvision and timm; prints TAP: check_convert.py PREDICT_FILE [NAME...]

All networks have random weights and statistics. Packages that are not installed are left out. NAMEs choose among the
networks of torchvision and timm."""
import contextlib
import fnmatch
import gc
import importlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile

from tap import done, ok

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
PROGRAM = os.path.abspath(sys.argv[1])
CONVERT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools", "convert_weights.py")
sys.path.insert(0, os.path.dirname(CONVERT))


def has(package):
    try:
        return importlib.import_module(package) is not None
    except ImportError as error:
        print("# left out: %s" % error)
        return False


# torchvision first: after tensorflow its copy of LLVM would end the process
if not has("numpy") or not has("safetensors") or not any([has("torchvision"), has("keras")]):
    print(
        "1..0 # SKIP make convert-test PEER_PYTHON=/path/to/python:/another with safetensors, and keras or torch,"
        " torchvision and timm"
    )
    sys.exit(0)
import numpy as np

random = np.random.default_rng(7)


def convert(source, target, *flags):
    run = subprocess.run([sys.executable, CONVERT, source, target, *map(str, flags)], capture_output=True, text=True)
    if run.returncode:
        print("# %s" % run.stderr.strip())
    return run.returncode == 0


def refuses(source, sentence, target="out.safetensors"):
    run = subprocess.run([sys.executable, CONVERT, source, target], capture_output=True, text=True)
    last = run.stderr.strip().split("\n")[-1]
    ok(run.returncode == 1 and last.startswith("convert_weights: " + source) and sentence in last, "refused: " + last)


def predict(path, images, *network):
    """mirrortrain's outputs; network: SAVED, or NETWORK ALPHA SIZE CLASSES SAVED, as predict_file takes them."""
    images.astype(np.float32).tofile("images.f32")
    run = subprocess.run([PROGRAM, path, "images.f32", "out.f32", *map(str, network)], capture_output=True, text=True)
    if run.returncode:
        print("# %s" % run.stderr.strip())
    return np.fromfile("out.f32", np.float32).reshape(len(images), -1)


def compare(name, have, true, limit):
    """Within `limit` of the largest number."""
    good = have.shape == true.shape and np.ptp(true) > 0
    far = np.abs(have - true).max() / np.abs(true).max() if good else np.inf
    ok(far <= limit, "%s: within %.1e of %.1e" % (name, far, limit))


# >> Keras

def check_keras():
    import keras
    A = keras.applications
    cases = [
        ("mobilenet_v2", A.MobileNetV2, 0.35, 96, 10),
        ("mobilenet_v2", A.MobileNetV2, 1.3, 64, 0),
        ("resnet50", A.ResNet50, 1, 64, 10),
        ("efficientnet_v2_b0", A.EfficientNetV2B0, 1, 64, 10),
        ("efficientnet_v2_s", A.EfficientNetV2S, 1, 64, 0),
        ("resnet101", A.ResNet101, 1, 64, 10),
        ("vgg16", A.VGG16, 1, 32, 10),
        ("vgg16", A.VGG16, 1, 64, 0),
        ("mobilenet_v3_small", A.MobileNetV3Small, 0.75, 64, 10),
        ("mobilenet_v3_large", A.MobileNetV3Large, 1, 96, 10),
        ("mobilenet_v3_large", A.MobileNetV3Large, 1.3, 64, 0),
    ]
    for name, build, alpha, size, classes in cases:
        keras.utils.set_random_seed(3)
        options = {"alpha": alpha} if name.startswith("mobilenet") else {}
        options.update(
            {"include_top": True, "classes": classes} if classes else {"include_top": False, "pooling": "avg"}
        )
        make = lambda: build(weights=None, input_shape=(size, size, 3), **options)
        model, text = make(), "%s %g" % (name, alpha)
        # Branches of EfficientNetV2 that add little: deep networks of random weights multiply rounding, by as much in
        # Keras.
        for v in model.weights:
            if len(v.shape) == 1 and "moving" not in v.name and not v.path.startswith("normalization"):
                v.assign(
                    random.uniform(0.5, 1.5, v.shape) * (0.2 if "project_bn" in v.path else 1)
                    if v.name == "gamma"
                    else random.normal(0, 0.1, v.shape)
                )
            if v.name.startswith("moving"):
                v.assign(
                    random.uniform(0.5, 1.5, v.shape) if v.name == "moving_variance" else random.normal(0, 0.1, v.shape)
                )
        images = (
            random.uniform(0, 255, (4, size, size, 3))
            if name.startswith(("eff", "mobilenet_v3"))
            else random.uniform(-1, 1, (4, size, size, 3))
        )
        true = model.predict(images, verbose=0)
        for suffix in (".weights.h5", ".keras", ".h5") if alpha == 0.35 else (".keras",):
            model.save_weights("in" + suffix) if suffix == ".weights.h5" else model.save("in" + suffix)
            good = convert("in" + suffix, "in.safetensors")
            if good:
                compare(
                    "%s from %s" % (text, suffix),
                    predict("in.safetensors", images, name, alpha, size, classes, "whole.safetensors"),
                    true,
                    1e-5,
                )
        (
            compare(
                "%s, its whole model as .keras" % text,
                keras.saving.load_model("back.keras").predict(images, verbose=0),
                true,
                1e-5,
            )
            if convert("whole.safetensors", "back.keras")
            else ok(False, text + ": not converted")
        )
        again = make()
        if convert("in.safetensors", "back.weights.h5", "--size", size):
            again.load_weights("back.weights.h5")
        compare("%s, its weights as .weights.h5" % text, again.predict(images, verbose=0), true, 0)
    keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3, name="c")]).save("small.keras")
    convert("small.keras", "small.safetensors")
    refuses("small.safetensors", "not the weights of MobileNetV2", "small.weights.h5")
    whole = open("small.keras", "rb").read()
    open("cut.keras", "wb").write(whole[:len(whole) // 2])
    refuses("cut.keras", "not a zip file")
    refuses("none.keras", "No such file")


# >> torchvision and timm

PATTERNS = (  # of timm's names
    *("efficientnetv2*", "tf_efficientnetv2*", "mobilenetv2*", "mobilenetv3*", "tf_mobilenetv3*"),
    *("resnet18*", "resnet34*", "resnet50*", "resnet101*", "vgg16*"),
)
TORCHVISION = ("efficientnet_v2*", "mobilenet_v[23]*", "resnet18", "resnet34", "resnet50", "resnet101", "vgg16*")
# What must be refused, and why. Every other network that is known here must be accepted.
REFUSED = {
    "resnet50_clip": "AttentionPool2d",
    "resnet50x*_clip": "AttentionPool2d",
    "resnet101_clip": "AttentionPool2d",
    "resnet50_gn": "GroupNorm",
    "resnet50_mlp": "flattens something other",
}
KNOWN = """
    efficientnetv2_l efficientnetv2_m efficientnetv2_rw_m efficientnetv2_rw_s efficientnetv2_rw_t efficientnetv2_s
    efficientnetv2_xl tf_efficientnetv2_b0 tf_efficientnetv2_b1 tf_efficientnetv2_b2 tf_efficientnetv2_b3
    tf_efficientnetv2_l tf_efficientnetv2_m tf_efficientnetv2_s tf_efficientnetv2_xl mobilenetv2_035 mobilenetv2_050
    mobilenetv2_075 mobilenetv2_100 mobilenetv2_110d mobilenetv2_120d mobilenetv2_140 resnet50 resnet50_clip
    resnet50_clip_gap resnet50_gn resnet50_mlp resnet50c resnet50d resnet50s resnet50t resnet50x4_clip
    resnet50x4_clip_gap resnet50x16_clip resnet50x16_clip_gap resnet50x64_clip resnet50x64_clip_gap
    resnet18 resnet18d resnet34 resnet34d resnet101 resnet101c resnet101d resnet101s resnet101_clip_gap vgg16 vgg16_bn
    mobilenetv3_large_075 mobilenetv3_large_100 mobilenetv3_large_150d mobilenetv3_rw mobilenetv3_small_050
    mobilenetv3_small_075 mobilenetv3_small_100 tf_mobilenetv3_large_075 tf_mobilenetv3_large_100
    tf_mobilenetv3_large_minimal_100 tf_mobilenetv3_small_075 tf_mobilenetv3_small_100
    tf_mobilenetv3_small_minimal_100""".split()
LIMIT = 1e-4  # of the raw outputs from float64
IMAGES = 4


def command(*args):
    """Runs convert_weights.py in this process, which already has torch: None, or the message with which it fails."""
    before, sys.argv = sys.argv, [CONVERT, *map(str, args)]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(CONVERT, run_name="__main__")
    except SystemExit as stop:
        return str(stop.code)
    finally:
        sys.argv = before
    return None


def says(name, message, *sentences):
    """Fails unless a conversion was refused with all of these sentences."""
    good = message is not None and message.startswith("convert_weights: ") and all(s in message for s in sentences)
    ok(good, "%s: refused: %s" % (name, message) if message else "%s: not refused" % name)


def make(package, name, classes=1000):
    import timm
    import torchvision

    return (
        timm.create_model(name, num_classes=classes)
        if package == "timm"
        else torchvision.models.get_model(name, num_classes=classes)
    )


def images_for(package, name, size):
    """Pixels, and the images that the network takes. The last image is the one with which the converter checks itself:
    far from the images that normalizations have statistics of, deep networks of random weights compute only noise."""
    import torch
    import torch_networks

    pixels = np.random.default_rng(1).uniform(0, 255, (IMAGES - 1, size, size, 3))
    pixels = np.concatenate([pixels, torch_networks.pixels_of(size).numpy().transpose(0, 2, 3, 1)]).astype(np.float32)
    mean, deviation = preparation(package, name)
    return pixels, torch.tensor(((pixels / 255.0 - mean) / deviation).transpose(0, 3, 1, 2))


def preparation(package, name):
    import timm
    import torchvision

    if package == "timm":
        config = timm.get_pretrained_cfg(name)
        return np.array(config.mean), np.array(config.std)
    images = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    return np.array(images.mean), np.array(images.std)


def randomize(model, x):
    """Random normalizations around the statistics of their inputs. They subtract only a part of the mean, and divide no
    channel by much less than the others: else each of them would amplify the small differences between random images,
    and rounding errors with them, and a deep network would compute nothing but noise."""
    import torch

    def settle(module, inputs):
        square = (inputs[0] ** 2).mean((0, 2, 3))
        part = inputs[0].mean((0, 2, 3)) * torch.rand_like(square) * 0.5
        module.running_mean.copy_(part + 0.1 * square.sqrt() * torch.randn_like(square))
        module.running_var.copy_((square + square.mean()) * (torch.rand_like(square) + 0.5))

    hooks = []
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.1)
                if re.search(
                    r"[.](bn3|conv3_1x1[.]bn|block[.]3[.]1|conv[.]3)$|^layer\d[.]\d+[.]bn2$", name
                ):  # ends a branch: deep networks of random weights multiply rounding, by as much in PyTorch
                    module.weight.mul_(0.2)
                hooks.append(module.register_forward_pre_hook(settle))
            elif isinstance(module, torch.nn.Linear):
                module.weight.normal_(0, module.in_features**-0.5)
        model.eval()(x.float())
    for hook in hooks:
        hook.remove()


def outputs(model, x):
    import torch

    with torch.no_grad():
        true = model.double().eval()(x).numpy()
    model.float()
    return true


def same_state(name, path, model, but=()):
    """Whether a file holds exactly the model's tensors."""
    import torch

    have = torch.load(path, weights_only=True) if path.endswith(".pth") else safetensors_of(path)
    true = {key: value for key, value in model.state_dict().items() if key not in but}
    different = sorted(set(have) ^ set(true)) + [
        k for k in true if k in have and not k.endswith("tracked") and not torch.equal(have[k], true[k])
    ]
    ok(
        not different,
        "%s: its tensors are as before%s" % (name, ", but " + " ".join(different[:3]) if different else ""),
    )


def safetensors_of(path):
    from safetensors.torch import load_file

    return load_file(path)


def save(path, state):
    import torch
    from safetensors.torch import save_file

    torch.save(state, path) if path.endswith(".pth") else save_file(state, path)


def check_outputs(title, have, true):
    far, largest = np.abs(have - true).max() if have.shape == true.shape else np.inf, np.abs(true).max()
    ok(far <= LIMIT and largest > 0.1, "%s: raw outputs up to %.3g are within %.1e of float64" % (title, largest, far))


def check_network(package, name, tag, size):
    """There and back."""
    import torch

    title = "%s %s at %d" % (package, tag, size)
    expected = next(
        (why for pattern, why in REFUSED.items() if package == "timm" and fnmatch.fnmatchcase(name, pattern)), None
    )
    torch.manual_seed(3)
    model = make(package, name)
    pixels, x = images_for(package, tag, size)
    randomize(model, x)
    save("in.safetensors", model.state_dict())
    flags = "--from", package, "--model", tag, "--size", size, "--logits"
    message = command("in.safetensors", "out.safetensors", *flags)
    if expected or (message and name not in KNOWN and package == "timm"):
        return says(title, message, "cannot be converted: ", expected or "not supported")
    if message:
        return ok(False, "%s: %s" % (title, message))
    true = outputs(model, x)
    check_outputs(title, predict("out.safetensors", pixels, "saved.safetensors"), true)
    message = command("saved.safetensors", "back.safetensors", "--to", package, "--model", tag)
    return (
        ok(False, "%s, back: %s" % (title, message))
        if message
        else same_state(title + ", back", "back.safetensors", model)
    )


def check_normalization():
    """Of weights of one name that were trained with images normalized in different ways."""
    for name, tags in (
        ("tf_efficientnetv2_b3", ("in1k", "in21k_ft_in1k")),
        ("resnet50d", ("a1_in1k", "ra4_e3600_r224_in1k")),
    ):
        save("in.safetensors", make("timm", name).state_dict())
        says(
            name,
            command("in.safetensors", "out.safetensors", "--from", "timm", "--model", name, "--size", 64),
            "normalized in different ways",
            name + "." + tags[0],
        )
        for tag in tags:
            message = command(
                "in.safetensors", "out.safetensors", "--from", "timm", "--model", name + "." + tag, "--size", 64
            )
            mean, deviation = preparation("timm", name + "." + tag)
            have = {} if message else layer_of("out.safetensors", "normalization")
            ok(
                have.get("mean", [])[:3] == list(mean) and np.allclose(have["variance"][:3], deviation**2),
                "%s.%s: its own mean and deviation" % (name, tag),
            )


def layer_of(path, name):
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return next(
            layer["config"] for layer in json.loads(file.metadata()["architecture"])["layers"] if layer["name"] == name
        )


def check_forms():
    """Checkpoints in other forms: .pth with a prefix, other classes, without a last layer, with timm's config.json."""
    import timm
    import torch

    for package, name, classes in (
        ("timm", "mobilenetv2_035", 7),
        ("torchvision", "mobilenet_v2", 7),
        ("timm", "resnet50", 0),
        ("torchvision", "resnet50", 0),
    ):
        torch.manual_seed(4)
        model = make(package, name, classes or 1000)
        if not classes:
            model.fc = torch.nn.Identity()
        tag, title = "resnet50.a1_in1k" if name == "resnet50" and package == "timm" else name, "%s %s of %d classes" % (
            package,
            name,
            classes,
        )
        pixels, x = images_for(package, tag, 64)
        randomize(model, x)
        save("in.pth", {"state_dict": {"module." + key: value for key, value in model.state_dict().items()}})
        message = command("in.pth", "out.safetensors", "--from", package, "--model", tag, "--size", 64, "--logits")
        check_outputs(
            title,
            predict("out.safetensors", pixels, "saved.safetensors") if not message else np.zeros(1),
            outputs(model, x),
        )
        message = message or command("saved.safetensors", "back.pth", "--to", package, "--model", name)
        same_state(title + ", back", "back.pth", model) if not message else ok(False, message)
    model = make("timm", "mobilenetv2_050")
    save("in.safetensors", model.state_dict())
    says(
        "no name",
        command("in.safetensors", "out.safetensors"),
        "does not say which network it belongs to",
        "--model NAME",
    )
    config = {
        "architecture": "mobilenetv2_050",
        "pretrained_cfg": dict(timm.get_pretrained_cfg("mobilenetv2_050").to_dict(), mean=[0.5, 0.25, 0.125]),
    }
    with open("config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    message = command("in.safetensors", "out.safetensors", "--size", 64)
    ok(
        not message and layer_of("out.safetensors", "normalization")["mean"][:3] == [0.5, 0.25, 0.125],
        "config.json names the network and its images: %s" % message,
    )
    os.remove("config.json")
    torch.manual_seed(5)
    pixels, x = images_for("timm", "mobilenetv2_050.lamb_in1k", 64)
    randomize(model, x)
    save("in.safetensors", model.state_dict())
    command("in.safetensors", "out.safetensors", "--from", "timm", "--model", "mobilenetv2_050", "--size", 64, "--raw")
    true = outputs(model, x)
    compare(
        "--raw",
        predict("out.safetensors", x.numpy().transpose(0, 2, 3, 1)),
        np.exp(true) / np.exp(true).sum(1, keepdims=True),
        LIMIT,
    )


def check_same(name, package, theirs, tag, size):
    """A network of mirrortrain that is one of PyTorch's too: weights from there, and back."""
    import torch

    torch.manual_seed(8)
    model, title = make(package, theirs, 10), "%s with %s's weights of %s" % (name, package, theirs)
    pixels, x = images_for(package, tag, size)
    randomize(model, x)
    save("in.safetensors", model.state_dict())
    message = command(
        "in.safetensors", "same.safetensors", "--from", package, "--model", tag, "--size", size, "--raw"
    )
    true = outputs(model, x)
    raw = x.numpy().transpose(0, 2, 3, 1)
    if name.startswith("mobilenet"):  # whose first layer maps 0 to 255 to -1 to 1
        raw = (raw + 1) * 127.5
    have = predict("same.safetensors", raw, name, 1, size, 10, "native.safetensors") if not message else np.zeros(1)
    compare(title, have, np.exp(true) / np.exp(true).sum(1, keepdims=True), LIMIT)
    message = message or command("native.safetensors", "back.pth", "--to", package, "--model", theirs)
    same_state(title + ", back", "back.pth", model) if not message else ok(False, message)


def check_native():
    """mirrortrain's own networks: EfficientNetV2 and MobileNetV3 pad as timm's tf_ ones do, ResNet18 and 34 and VGG16
    as torchvision's; MobileNetV2 and ResNet50 are no networks of PyTorch."""
    import torch

    for case in (
        ("resnet18", "torchvision", "resnet18", "resnet18", 64),
        ("resnet34", "timm", "resnet34", "resnet34.a1_in1k", 75),
        ("vgg16", "torchvision", "vgg16", "vgg16", 224),
        ("mobilenet_v3_large", "timm", "tf_mobilenetv3_large_100", "tf_mobilenetv3_large_100.in1k", 96),
        ("mobilenet_v3_small", "timm", "tf_mobilenetv3_small_100", "tf_mobilenetv3_small_100.in1k", 75),
    ):
        check_same(*case)

    torch.manual_seed(6)
    model = make("timm", "tf_efficientnetv2_b0", 10)
    pixels, x = images_for("timm", "tf_efficientnetv2_b0.in1k", 64)
    randomize(model, x)
    save("in.safetensors", model.state_dict())
    message = command(
        "in.safetensors", "weights.safetensors", "--from", "timm", "--model", "tf_efficientnetv2_b0.in1k", "--size", 64
    )
    true = outputs(model, x)
    scores = np.exp(true) / np.exp(true).sum(1, keepdims=True)
    have = (
        predict("weights.safetensors", pixels, "efficientnet_v2_b0", 1, 64, 10, "native.safetensors")
        if not message
        else np.zeros(1)
    )
    compare("efficientnet_v2_b0 with timm's weights", have, scores, LIMIT)
    message = message or command("native.safetensors", "back.pth", "--to", "timm", "--model", "tf_efficientnetv2_b0")
    same_state("efficientnet_v2_b0, to timm", "back.pth", model) if not message else ok(False, message)
    says(
        "another depth",
        command("native.safetensors", "no.pth", "--to", "timm", "--model", "tf_efficientnetv2_b1"),
        "this model is not timm's tf_efficientnetv2_b1: ",
    )
    says(
        "another width",
        command("native.safetensors", "no.pth", "--to", "timm", "--model", "tf_efficientnetv2_s"),
        "this model is not timm's tf_efficientnetv2_s: ",
    )
    says(
        "no network",
        command("native.safetensors", "no.pth", "--to", "timm", "--model", "densenet121"),
        "timm's densenet121 is not supported",
    )
    change = "weights.safetensors", "changed.safetensors"
    for title, kind, key, value, sentence in (
        ("epsilon", "BatchNormalization", "epsilon", 1e-5, "epsilon is 1e-05 here and 0.001 there"),
        ("activation", "Activation", "activation", "relu", "function is relu here and silu there"),
        ("dilation", "Conv2D", "dilation_rate", [2, 2], "dilation is (2, 2) here and (1, 1) there"),
    ):
        edit(*change, kind, key, value)
        says(
            "another " + title,
            command("changed.safetensors", "no.pth", "--to", "timm", "--model", "tf_efficientnetv2_b0"),
            sentence,
        )
    for name, alpha, target in (("mobilenet_v2", 1, "mobilenet_v2"), ("resnet50", 1, "resnet50")):
        random_weights("native_in.safetensors", target)
        predict("native_in.safetensors", pixels, name, alpha, 64, 1000, "native.safetensors")
        says(
            "mirrortrain's %s" % name,
            command("native.safetensors", "no.pth", "--to", "torchvision", "--model", target),
            "this model is not torchvision's",
            " here and ",
        )
    command(
        "in.safetensors", "whole.safetensors", "--from", "timm", "--model", "tf_efficientnetv2_b0.in1k", "--size", 64
    )
    weights_alone("whole.safetensors", "weights.safetensors")
    says(
        "weights alone",
        command("weights.safetensors", "no.pth", "--to", "timm", "--model", "tf_efficientnetv2_b0"),
        "holds only weights",
    )
    ok(
        not os.path.exists("no.pth") and not [f for f in os.listdir(".") if ".tmp" in f],
        "what is refused leaves no file",
    )


def edit(source, target, kind, key, value):
    """A copy of a whole model in which the first layer of that kind has another setting."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    with safe_open(source, framework="numpy") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
    architecture = json.loads(metadata["architecture"])
    next(layer for layer in architecture["layers"] if layer["class_name"] == kind)["config"][key] = value
    save_file(arrays, target, dict(metadata, architecture=json.dumps(architecture)))


def weights_alone(source, target):
    from safetensors.numpy import load_file, save_file

    save_file(load_file(source), target)


def random_weights(path, name):
    """Weights of torchvision's network where they fit mirrortrain's, and zeros where that has biases."""
    from safetensors.numpy import load_file, save_file

    save("in.pth", make("torchvision", name).state_dict())
    command("in.pth", path, "--from", "torchvision", "--model", name, "--size", 64)
    arrays = load_file(path)
    if name == "resnet50":
        arrays.update(
            {
                key[:-6] + "bias": np.zeros(value.shape[-1], np.float32)
                for key, value in arrays.items()
                if key.endswith("_conv/kernel")
            }
        )
    save_file(arrays, path)


def check_refusals():
    import torch
    import torchvision

    torch.save(torchvision.models.squeezenet1_1().state_dict(), "small.pth")
    refuses("small.pth", "does not say which network it belongs to")
    says(
        "another network",
        command("small.pth", "out.safetensors", "--from", "torchvision", "--model", "squeezenet1_1"),
        "torchvision's squeezenet1_1 is not supported",
    )
    says(
        "weights of another",
        command("small.pth", "out.safetensors", "--from", "torchvision", "--model", "resnet50"),
        "these are not weights of torchvision's resnet50: ",
    )
    says(
        "a name of nothing",
        command("small.pth", "out.safetensors", "--from", "timm", "--model", "resnet50_none"),
        "timm has no model resnet50_none",
    )
    says(
        "a tag of nothing",
        command("small.pth", "out.safetensors", "--from", "timm", "--model", "resnet50.none"),
        "timm",
    )
    state = torchvision.models.mobilenet_v2().state_dict()
    state["features.0.1.running_var"][3] = float("nan")
    torch.save(state, "nan.pth")
    says(
        "NaN",
        command("nan.pth", "out.safetensors", "--from", "torchvision", "--model", "mobilenet_v2", "--size", 64),
        "outputs are not finite",
    )
    with open("text.pth", "w", encoding="utf-8") as file:
        file.write("hello")
    says(
        "a text",
        command("text.pth", "out.safetensors", "--from", "timm", "--model", "resnet50"),
        "PyTorch cannot read it",
    )
    torch.save([1, 2], "list.pth")
    says(
        "a list",
        command("list.pth", "out.safetensors", "--from", "timm", "--model", "resnet50"),
        "not a dictionary of tensors",
    )


def check_torch(chosen):
    import timm
    import torchvision

    networks = [
        ("torchvision", name)
        for pattern in TORCHVISION
        for name in torchvision.models.list_models(module=torchvision.models, include=pattern)
    ]
    networks += [("timm", name) for pattern in PATTERNS for name in timm.list_models(pattern)]
    for package, name in networks:
        if chosen and name not in chosen:
            continue
        tag = (timm.list_models(name + ".*", pretrained=True) or [name])[0] if package == "timm" else name
        for size in (
            (96,)
            if "clip" in name or "mlp" in name
            else (224,)
            if name.startswith("vgg")
            else (76, 75) if name in ("resnet50d", "tf_efficientnetv2_b0", "efficientnetv2_rw_t") else (76,)
        ):
            check_network(package, name, tag, size)
            gc.collect()
    for check in () if chosen else (check_normalization, check_forms, check_native, check_refusals):
        check()


with tempfile.TemporaryDirectory() as directory:
    os.chdir(directory)
    if has("keras") and not sys.argv[2:]:
        check_keras()
    if has("torch") and has("torchvision") and has("timm"):
        check_torch(sys.argv[2:])
sys.exit(done())
