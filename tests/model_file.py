"""Makes model files and bitmaps for tests of the program. The model is a dense layer on the pixels of an image."""
import json
import os
import random
import struct

SIDE = 8


def write_model(
    path,
    kernel,
    bias,
    classes=("cats", "dogs"),
    activation="linear",
    loss="binary_crossentropy",
    from_logits=True,
    names=("net", "flatten", "dense"),
    metrics=("accuracy",),
):
    """`bias` has one number a unit, `kernel` a row of as many for each of the SIDE * SIDE * 3 pixels; without
    checksums, which foreign files lack."""
    units = len(bias)
    zeros = {"class_name": "Zeros", "config": {}}
    layers = [
        {"class_name": "InputLayer", "name": "input_layer", "config": {"shape": [SIDE, SIDE, 3]}},
        {"class_name": "Flatten", "name": names[1], "input": "input_layer", "config": {}},
        {
            "class_name": "Dense",
            "name": names[2],
            "input": names[1],
            "config": {
                "units": units,
                "activation": activation,
                "use_bias": True,
                "kernel_initializer": zeros,
                "bias_initializer": zeros,
                "kernel_regularizer": None,
                "bias_regularizer": None,
            },
        },
    ]
    meta = {
        "format": "mirrortrain",
        "version": "1",
        "architecture": json.dumps({"name": names[0], "layers": layers, "output": names[2]}),
        "compile": json.dumps(
            {
                "optimizer": {"class_name": "sgd", "learning_rate": 0.1, "momentum": 0, "nesterov": False},
                "loss": loss,
                "from_logits": from_logits,
                "reduction": "sum_over_batch_size",
                "metrics": list(metrics),
            }
        ),
        "training": json.dumps({"iterations": 0, "epoch": 0}),
        "classes": json.dumps(list(classes)),
    }
    count = SIDE * SIDE * 3 * units
    header = {
        "__metadata__": meta,
        names[2] + "/kernel": {"dtype": "F32", "shape": [SIDE * SIDE * 3, units], "data_offsets": [0, 4 * count]},
        names[2] + "/bias": {"dtype": "F32", "shape": [units], "data_offsets": [4 * count, 4 * count + 4 * units]},
    }
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(
            struct.pack("<Q", len(text))
            + text
            + struct.pack("<%df" % count, *kernel)
            + struct.pack("<%df" % units, *bias)
        )


def flat_model(path, scores, **how):
    """Its outputs are `scores`, whatever the image."""
    write_model(path, [0.0] * (SIDE * SIDE * 3 * len(scores)), scores, **how)


def write_bitmap(path, width, height, seed):
    pixels = random.Random(seed)
    stride = (3 * width + 3) // 4 * 4
    directory = os.path.dirname(path)
    if directory:
        os.makedirs(directory, exist_ok=True)
    with open(path, "wb") as f:
        f.write(
            b"BM"
            + struct.pack(
                "<IHHIIIIHHIIIIII",
                54 + height * stride,
                0,
                0,
                54,
                40,
                width,
                height,
                1,
                24,
                0,
                height * stride,
                0,
                0,
                0,
                0,
            )
        )
        f.write(bytes(pixels.randrange(256) for _ in range(height * stride)))
