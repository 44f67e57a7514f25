#!/usr/bin/env python3
"""Converted weights predict what they did where they came from: check_convert.py build/tests/predict_file; prints TAP.

Networks of random weights; those of Keras, torchvision and timm, of which this interpreter has some."""
import importlib
import os
import subprocess
import sys
import tempfile

from tap import done, ok

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
PROGRAM = os.path.abspath(sys.argv[1])
CONVERT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools", "convert_weights.py")


def has(package):
    try:
        return importlib.import_module(package) is not None
    except ImportError as error:
        print("# left out: %s" % error)
        return False


if not has("numpy") or not has("safetensors") or not (has("keras") or has("torchvision")):
    print("1..0 # SKIP make convert-test PEER_PYTHON=/path/to/python:/another with safetensors, and keras or torch, torchvision and timm")
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
    """Ours; of a network's weights, which are saved whole then: NETWORK ALPHA SIZE CLASSES SAVED."""
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
    cases = [("mobilenet_v2", A.MobileNetV2, 0.35, 96, 10), ("mobilenet_v2", A.MobileNetV2, 1.3, 64, 0), ("resnet50", A.ResNet50, 1, 64, 10),
             ("efficientnet_v2_b0", A.EfficientNetV2B0, 1, 64, 10), ("efficientnet_v2_s", A.EfficientNetV2S, 1, 64, 0)]
    for name, build, alpha, size, classes in cases:
        keras.utils.set_random_seed(3)
        options = {"alpha": alpha} if name == "mobilenet_v2" else {}
        options.update({"include_top": True, "classes": classes} if classes else {"include_top": False, "pooling": "avg"})
        make = lambda: build(weights=None, input_shape=(size, size, 3), **options)
        model, text = make(), "%s %g" % (name, alpha)
        # Branches of EfficientNetV2 that add little: deep networks of random weights multiply rounding, by as much in Keras.
        for v in model.weights:
            if len(v.shape) == 1 and "moving" not in v.name and not v.path.startswith("normalization"):
                v.assign(random.uniform(0.5, 1.5, v.shape) * (0.2 if "project_bn" in v.path else 1) if v.name == "gamma" else random.normal(0, 0.1, v.shape))
            if v.name.startswith("moving"):
                v.assign(random.uniform(0.5, 1.5, v.shape) if v.name == "moving_variance" else random.normal(0, 0.1, v.shape))
        images = random.uniform(0, 255, (4, size, size, 3)) if name.startswith("eff") else random.uniform(-1, 1, (4, size, size, 3))
        true = model.predict(images, verbose=0)
        for suffix in (".weights.h5", ".keras", ".h5") if alpha == 0.35 else (".keras",):
            model.save_weights("in" + suffix) if suffix == ".weights.h5" else model.save("in" + suffix)
            good = convert("in" + suffix, "in.safetensors")
            if good:
                compare("%s from %s" % (text, suffix), predict("in.safetensors", images, name, alpha, size, classes, "whole.safetensors"), true, 1e-5)
        compare("%s, its whole model as .keras" % text, keras.saving.load_model("back.keras").predict(images, verbose=0), true, 1e-5) if convert(
            "whole.safetensors", "back.keras") else ok(False, text + ": not converted")
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

def check_torch():
    import timm
    import torch
    import torchvision
    from safetensors.torch import save_file
    imagenet = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    cases = [("torchvision mobilenet_v2", torchvision.models.mobilenet_v2, imagenet, ".pth"), ("torchvision resnet50", torchvision.models.resnet50, imagenet, ".pth"),
             ("torchvision efficientnet_v2_s", torchvision.models.efficientnet_v2_s, imagenet, ".pth")]
    for name, mean in (("mobilenetv2_100", imagenet), ("mobilenetv2_035", imagenet), ("resnet50", imagenet), ("tf_efficientnetv2_b0", imagenet), ("tf_efficientnetv2_s", (0.5, 0.5))):
        cases.append(("timm " + name, lambda name=name: timm.create_model(name), mean, ".safetensors"))
    for name, build, (mean, deviation), suffix in cases:
        torch.manual_seed(3)
        model = build()
        images = np.random.default_rng(1).uniform(0, 255, (4, 96, 96, 3)).astype(np.float32)
        x = torch.tensor(((images / 255 - mean) / deviation).transpose(0, 3, 1, 2), dtype=torch.float32)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, torch.nn.BatchNorm2d):
                    module.momentum = 1  # one step gives all normalizations the statistics of these images
                    module.weight.uniform_(0.5, 1.5)
                    module.bias.normal_(0, 0.1)
            model.train()(x)
            true = torch.softmax(model.eval()(x), 1).numpy()
        if suffix == ".pth":
            torch.save(model.state_dict(), "in.pth")
        else:
            save_file(model.state_dict(), "in.safetensors")
        if convert("in" + suffix, "out.safetensors", "--size", 96):
            compare(name, predict("out.safetensors", images), true, 1e-4)
        else:
            ok(False, name + ": not converted")
    torch.save(torchvision.models.resnet18().state_dict(), "small.pth")
    refuses("small.pth", "not the weights of MobileNetV2")
    open("text.pth", "w").write("hello")
    refuses("text.pth", "PyTorch cannot read it")


with tempfile.TemporaryDirectory() as directory:
    os.chdir(directory)
    if has("keras"):
        check_keras()
    if has("torchvision"):
        check_torch()
sys.exit(done())
