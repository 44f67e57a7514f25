"""A peer's pipeline of photographs, or its training on them: peer_pipeline.py tensorflow|torch DIRECTORY SIZE BATCH KIND [WEIGHTS]

KIND: decode, augment; of tensorflow also train and frozen, MobileNetV2 0.35 with a new head by fit. Lines as those of pipeline.c;
train and frozen answer with an epoch's rate, and their first epoch is before the first line."""
import json
import os
import sys
import time

peer, directory, kind = sys.argv[1], sys.argv[2], sys.argv[5]
size, batch = int(sys.argv[3]), int(sys.argv[4])


def keras_photos(part, shuffle):
    import keras
    return keras.utils.image_dataset_from_directory(os.path.join(directory, part), image_size=(size, size), batch_size=batch, label_mode="binary",
                                                    shuffle=shuffle, seed=1 if shuffle else None, verbose=False)


def tensorflow_pipeline():
    import keras
    import tensorflow as tf
    photos = keras_photos("train", True)
    if kind == "augment":
        layers = keras.Sequential([keras.layers.RandomFlip("horizontal"), keras.layers.RandomRotation(0.1), keras.layers.RandomZoom(0.1)])
        photos = photos.map(lambda x, y: (layers(x, training=True), y), num_parallel_calls=tf.data.AUTOTUNE)
    photos = photos.prefetch(tf.data.AUTOTUNE)
    return lambda: sum(int(x.shape[0]) for x, y in photos)


def keras_training():
    """An epoch of fit, without validation."""
    import keras
    import numpy as np
    import tensorflow as tf
    from safetensors.numpy import load_file
    base = keras.applications.MobileNetV2(weights=None, alpha=0.35, include_top=False, pooling="avg", input_shape=(size, size, 3))
    weights = load_file(sys.argv[6])
    for layer in base.layers:
        for variable in layer.weights:
            variable.assign(weights["%s/%s" % (layer.name, variable.name)])
    base.trainable = kind == "train"
    x = inputs = keras.Input((size, size, 3))
    x = base(keras.layers.Rescaling(1 / 127.5, -1)(x))
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(x))
    model.compile(keras.optimizers.Adam(1e-4), "binary_crossentropy", metrics=["accuracy"])
    photos = keras_photos("train", True).prefetch(tf.data.AUTOTUNE)
    count = len(photos.file_paths) if hasattr(photos, "file_paths") else sum(len(y) for x, y in photos)
    return lambda: (model.fit(photos, epochs=1, verbose=0), count)[1]


def torch_pipeline():
    import torch
    import torchvision
    from torchvision import transforms as T
    steps = [T.Resize((size, size))]
    if kind == "augment":
        steps += [T.RandomHorizontalFlip(), T.RandomAffine(36, scale=(0.9, 1.1))]
    photos = torchvision.datasets.ImageFolder(os.path.join(directory, "train"), T.Compose(steps + [T.ToTensor()]))
    loader = torch.utils.data.DataLoader(photos, batch, shuffle=True, num_workers=len(os.sched_getaffinity(0)), persistent_workers=True)
    return lambda: sum(len(x) for x, y in loader)


os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
epoch = torch_pipeline() if peer == "torch" else keras_training() if kind in ("train", "frozen") else tensorflow_pipeline()
epoch()
print(json.dumps({"name": "torchvision" if peer == "torch" else "Keras" if kind in ("train", "frozen") else "tf.data"}), flush=True)
for line in sys.stdin:
    begun, images = time.monotonic(), 0
    while images == 0 or time.monotonic() - begun < float(line):
        images += epoch()
    print(json.dumps({"images_per_second": images / (time.monotonic() - begun)}), flush=True)
