#!/usr/bin/env python3
"""One network in one setting of TensorFlow or PyTorch, on this machine's CPU: a full training step with Adam on
a batch in memory, or a forward pass. Prints a JSON line when it is warm, then answers every line
"SECONDS" on stdin with the median rate of a window that long and the most memory it has had."""
import argparse
import json
import os
import statistics
import sys
import time

# Both peers free and fault in their large tensors at every step unless malloc keeps the pages. malloc reads
# this before main, hence the second start.
KEEP_PAGES = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}

# Keras's names.
NETWORKS = {"mobilenet_v2": "MobileNetV2", "resnet50": "ResNet50", "resnet18": None,
            "mobilenet_v3_large": "MobileNetV3Large", "efficientnet_v2_m": "EfficientNetV2M"}


def peak_mb():
    """Megabytes (10^6) of the process at its largest."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) * 1024 / 1e6
    except (OSError, StopIteration):
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def tensorflow_step(args, mode):
    """Keras's own network and optimizer inside one tf.function."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    if "bf16" in mode:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    if not NETWORKS[args.network]:
        sys.exit("Keras has no " + args.network)
    make = getattr(keras.applications, NETWORKS[args.network])
    shape = (args.size, args.size, 3)
    x = tf.random.normal((args.batch,) + shape)
    if args.forward:
        model = make(weights=None, include_top=False, pooling="avg", input_shape=shape)
        forward = tf.function(lambda x: model(x, training=False), jit_compile="jit" in mode)
        return tf.__version__, lambda: forward(x).numpy()

    model = make(weights=None, input_shape=shape, classifier_activation=None)
    y = tf.random.uniform((args.batch,), 0, 1000, tf.int32)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    adam = keras.optimizers.Adam()
    adam.build(model.trainable_variables)

    @tf.function(jit_compile="jit" in mode)
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, tf.cast(model(x, training=True), tf.float32))
        adam.apply(tape.gradient(loss, [v.value for v in model.trainable_variables]))
        return loss
    return tf.__version__, lambda: step(x, y).numpy()


def torch_network(args):
    """The network, and where it comes from."""
    if args.network == "efficientnet_v2_m":
        try:
            import timm
            return timm.create_model("tf_efficientnetv2_m", num_classes=0), "timm"
        except ImportError:
            import torch
            import torchvision
            model = torchvision.models.efficientnet_v2_m()
            model.classifier = torch.nn.Identity()
            return model, "torchvision"
    import torchvision
    return getattr(torchvision.models, args.network)(), "torchvision"


def torch_step(args, mode):
    """An eager or compiled step of torchvision's (or timm's) network, Adam fused."""
    import torch
    torch.set_num_threads(args.threads)
    model, origin = torch_network(args)
    version = "%s (%s)" % (torch.__version__.split("+")[0], origin)
    x = torch.randn(args.batch, 3, args.size, args.size)
    if "channels_last" in mode:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled="bf16" in mode)
    if args.forward:
        model.eval()
        forward = torch.compile(model) if "compile" in mode else model

        def run():
            with torch.no_grad(), autocast:
                return forward(x).float().sum().item()
        return version, run

    model.train()
    forward = torch.compile(model) if "compile" in mode else model
    y = torch.randint(0, 1000, (args.batch,))
    loss_of = torch.nn.CrossEntropyLoss()
    adam = torch.optim.Adam(model.parameters(), fused=True)

    def step():
        adam.zero_grad(set_to_none=True)
        with autocast:
            loss = loss_of(forward(x), y)
        loss.backward()
        adam.step()
        return loss.item()
    return version, step


def window(step, batch, seconds, least):
    """Images per second of the median step of a window."""
    times, begin = [], time.perf_counter()
    while len(times) < least or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return batch / statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=("tensorflow", "torch"), required=True)
    parser.add_argument("--network", choices=NETWORKS, required=True)
    parser.add_argument("--mode", default="", help="words: channels_last, bf16, compile, jit, pages")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--forward", action="store_true", help="a forward pass instead of a training step")
    parser.add_argument("--least", type=int, default=3, help="steps in a window, if it is short")
    args = parser.parse_args()
    mode = args.mode.split()
    if "pages" in mode and not KEEP_PAGES.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable] + sys.argv, {**os.environ, **KEEP_PAGES})

    version, step = (tensorflow_step if args.peer == "tensorflow" else torch_step)(args, mode)
    step()
    step()
    rate = window(step, args.batch, 0, args.least)
    print(json.dumps({"ready": True, "version": version, "images_per_second": rate, "peak_mb": peak_mb()}), flush=True)
    for line in sys.stdin:
        rate = window(step, args.batch, float(line), args.least)
        print(json.dumps({"images_per_second": rate, "peak_mb": peak_mb()}), flush=True)


main()
