#!/usr/bin/env python3
"""A peer that predicts one image in one setting, or converts a network into its file.

A JSON line says that its packages are imported; then every line "SECONDS" on stdin is answered with the median latency
of predictions for that long. Before the first, the network is made or loaded and predicts for the first time."""
import argparse
import json
import os
import statistics
import sys
import time

# Names in keras.applications, torchvision and timm.
NETWORKS = {"mobilenet_v2": ("MobileNetV2", "mobilenet_v2", None), "resnet50": ("ResNet50", "resnet50", None),
            "efficientnet_v2_b0": ("EfficientNetV2B0", None, "tf_efficientnetv2_b0"),
            "efficientnet_v2_m": ("EfficientNetV2M", "efficientnet_v2_m", "tf_efficientnetv2_m"), "mnist": (None, None, None)}
LEAST_CALLS = 5


def shape_of(args):
    """(height, width, channels)"""
    return (28, 28, 1) if args.network == "mnist" else (args.size, args.size, 3)


def keras_network(args):
    """Floats to logits: no preprocessing, no softmax."""
    import keras
    if args.network == "mnist":
        layers = keras.layers
        return keras.Sequential([layers.Input(shape_of(args)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
                                 layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)])
    more = {"include_preprocessing": False} if args.network.startswith("efficientnet") else {}
    make = getattr(keras.applications, NETWORKS[args.network][0])
    return make(weights=None, input_shape=shape_of(args), classifier_activation=None, **more)


def convert_to_litert(args):
    """The network as a flat buffer for one image."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import numpy
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
    model = keras_network(args)
    spec = tf.TensorSpec((1,) + shape_of(args))
    # Keras 3 keeps variables where the converter does not look for them: they are constants before it begins.
    function = convert_variables_to_constants_v2(tf.function(lambda x: model(x, training=False)).get_concrete_function(spec))
    data = tf.lite.TFLiteConverter.from_concrete_functions([function]).convert()
    x = numpy.random.default_rng(1).normal(size=spec.shape).astype("float32")
    wanted = model(x, training=False).numpy()
    interpreter = litert()[1](model_content=data)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    # Random weights make a deep network amplify every rounding, so only the size of its outputs can be compared.
    if not 0.5 <= got.std() / wanted.std() <= 2:
        sys.exit("the converted network differs from Keras's")
    with open(args.convert, "wb") as file:
        file.write(data)


def torch_network(args):
    import torch
    nn, (_, vision, timm_name) = torch.nn, NETWORKS[args.network]
    if args.network == "mnist":
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5408, 64), nn.ReLU(),
                             nn.Linear(64, 10)).eval()
    try:
        if timm_name:
            import timm
            return timm.create_model(timm_name, num_classes=1000).eval()
    except ImportError:
        if not vision:
            raise
    import torchvision
    return getattr(torchvision.models, vision)().eval()


def torch_image(args):
    import torch
    height, width, channels = shape_of(args)
    return torch.randn(1, channels, height, width)


def convert_to_onnx(args):
    """PyTorch's own export: the one by torch.export, or where its packages are missing the one by tracing."""
    import torch
    model, x = torch_network(args), torch_image(args)
    try:
        torch.onnx.export(model, (x,), args.convert, opset_version=18, dynamo=True, external_data=False)
    except ImportError:
        torch.onnx.export(model, (x,), args.convert, opset_version=17, dynamo=False)


def open_torch(args, mode):
    """Eager, compiled (with weights as constants and packed: "freezing") or as a frozen, traced graph."""
    import torch
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    if args.network != "mnist":
        for package in ("torchvision", "timm"):
            try:
                __import__(package)
            except ImportError:
                pass
    layout = torch.channels_last if "channels_last" in mode else torch.contiguous_format

    def load():
        model = torch_network(args)
        x = torch_image(args).to(memory_format=layout)

        def prepare():
            with torch.inference_mode("compile" not in mode), torch.no_grad():
                run = model.to(memory_format=layout)
                if "compile" in mode:
                    run = torch.compile(run, options={"freezing": True} if "freezing" in mode else None)
                if "trace" in mode:
                    run = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(run, x)))

            def call():
                with torch.inference_mode("compile" not in mode), torch.no_grad():
                    return run(x).numpy()
            return call
        return prepare
    return torch.__version__.split("+")[0], load


def litert():
    """The version, and the class of interpreters."""
    try:
        import importlib.metadata
        from ai_edge_litert.interpreter import Interpreter
        return importlib.metadata.version("ai-edge-litert"), Interpreter
    except ImportError:
        import tensorflow
        return tensorflow.__version__, tensorflow.lite.Interpreter


def open_litert(args, mode):
    """Interpreters use XNNPACK for floats unless told otherwise."""
    import numpy
    version, make = litert()
    x = numpy.random.default_rng(1).normal(size=(1,) + shape_of(args)).astype("float32")

    def load():
        interpreter = make(model_path=args.file, num_threads=args.threads)

        def prepare():
            interpreter.allocate_tensors()
            place, result = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]

            def call():
                interpreter.set_tensor(place, x)
                interpreter.invoke()
                return interpreter.get_tensor(result)
            return call
        return prepare
    return version, load


def open_onnxruntime(args, mode):
    """Sessions optimize the network and pack its weights when they are made."""
    import numpy
    import onnxruntime
    height, width, channels = shape_of(args)
    x = numpy.random.default_rng(1).normal(size=(1, channels, height, width)).astype("float32")

    def load():
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
        session = onnxruntime.InferenceSession(args.file, options, providers=["CPUExecutionProvider"])
        feed = {session.get_inputs()[0].name: x}
        return lambda: lambda: session.run(None, feed)[0]
    return onnxruntime.__version__, load


def window(call, seconds):
    """Milliseconds of the median call."""
    times, begin = [], time.perf_counter()
    while len(times) < LEAST_CALLS or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


OPEN = {"torch": open_torch, "litert": open_litert, "onnxruntime": open_onnxruntime}
CONVERT = {".tflite": convert_to_litert, ".onnx": convert_to_onnx}


def serve(args):
    version, load = OPEN[args.peer](args, args.mode.split())
    print(json.dumps({"started": True, "version": version}), flush=True)
    row = {}
    for line in sys.stdin:
        if not row:
            begin = time.perf_counter()
            prepare = load()
            loaded = time.perf_counter()
            call = prepare()
            call()
            row = {"load_ms": 1e3 * (loaded - begin), "first_ms": 1e3 * (time.perf_counter() - loaded)}
        ms = window(call, float(line))
        print(json.dumps({"ms": ms, "images_per_second": 1e3 / ms, **row}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=OPEN)
    parser.add_argument("--convert", metavar="FILE", help="write the network there: .tflite by TensorFlow, .onnx by PyTorch")
    parser.add_argument("--file", help="the network, for litert and onnxruntime")
    parser.add_argument("--network", choices=NETWORKS, required=True)
    parser.add_argument("--mode", default="", help="of torch, words: channels_last, compile, freezing, trace")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # What was compiled before must not make the first call shorter.
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    if args.convert:
        return CONVERT[os.path.splitext(args.convert)[1]](args)
    return serve(args)


main()
