"""Files as many as ImageNet's, and what peers do with them: peer_imagenet.py make|open|rate ...

make DIRECTORY FILES        tree/: FILES links to 32 JPEGs in 1000 classes; some/: copies of 2048 of them; shards/: these in 8 tar shards
open PEER DIRECTORY BATCH   opens DIRECTORY, reads a batch, begins another epoch; a line says how many seconds and MiB each took
rate PEER DIRECTORY BATCH   lines as those of pipeline.c

PEER: tensorflow, torch, webdataset. Images are resized to 224."""
import json
import os
import resource
import sys
import time

CLASSES, SOURCES, SOME, SHARDS, SIZE = 1000, 32, 2048, 8, 224


def make_photos(directory):
    """JPEGs of 25 to 500 KB, of about 500 x 375 pixels as ImageNet's are, up to three times as many."""
    import numpy as np
    from PIL import Image
    rng, paths = np.random.default_rng(1), []
    for i in range(SOURCES):
        scale = 1 + 2 * i / SOURCES
        height, width = int(375 * scale), int(500 * scale)
        coarse = Image.fromarray(rng.integers(0, 256, (height // 12, width // 12, 3), np.uint8)).resize((width, height), Image.BICUBIC)
        pixels = np.asarray(coarse, np.int16) + rng.integers(-12, 13, (height, width, 3), np.int16)
        paths.append(os.path.join(directory, "%02d.JPEG" % i))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(paths[-1], quality=60 + i // 2)
    return paths


def make(directory, files):
    import shutil
    import tarfile
    os.makedirs(os.path.join(directory, "photos"), exist_ok=True)
    photos = make_photos(os.path.join(directory, "photos"))
    for k in range(CLASSES):
        name = "n%08d" % (1440764 + 97 * k)
        os.makedirs(os.path.join(directory, "tree", name), exist_ok=True)
        for i in range(files * k // CLASSES, files * (k + 1) // CLASSES):
            path = os.path.join(directory, "tree", name, "%s_%d.JPEG" % (name, i * 7919 % files))
            if not os.path.exists(path):
                os.link(photos[i % SOURCES], path)
    os.makedirs(os.path.join(directory, "shards"), exist_ok=True)
    for shard in range(SHARDS):
        with tarfile.open(os.path.join(directory, "shards", "train-%06d.tar" % shard), "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(SOME * shard // SHARDS, SOME * (shard + 1) // SHARDS):
                label = i * 7 % 16
                copy, text = os.path.join(directory, "some", "%02d" % label, "%06d.jpg" % i), os.path.join(directory, "label.cls")
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                shutil.copyfile(photos[i % SOURCES], copy)
                with open(text, "w") as file:
                    file.write("%d" % label)
                tar.add(copy, "%06d.jpg" % i)
                tar.add(text, "%06d.cls" % i)
    os.remove(text)


def tensorflow(directory, batch):
    import keras
    import tensorflow as tf
    yield
    photos = keras.utils.image_dataset_from_directory(directory, image_size=(SIZE, SIZE), batch_size=batch, shuffle=True, seed=1, verbose=False)
    photos = photos.prefetch(tf.data.AUTOTUNE)
    yield
    while True:
        yield (int(x.shape[0]) for x, y in photos)


def loader_of(photos, batch, shuffle):
    import torch
    return torch.utils.data.DataLoader(photos, batch, shuffle=shuffle, num_workers=len(os.sched_getaffinity(0)), persistent_workers=True)


def transform():
    from torchvision import transforms as T
    return T.Compose([T.Resize((SIZE, SIZE)), T.ToTensor()])


def torch(directory, batch):
    import torchvision
    steps = transform()
    yield
    loader = loader_of(torchvision.datasets.ImageFolder(directory, steps), batch, True)
    yield
    while True:
        yield (len(x) for x, y in loader)


def webdataset(directory, batch):
    import webdataset
    steps = transform()
    yield
    shards = sorted(os.path.join(directory, name) for name in os.listdir(directory))
    photos = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000).decode("pil").to_tuple("jpg", "cls").map_tuple(steps, int)
    loader = loader_of(photos, batch, False)
    yield
    while True:
        yield (len(x) for x, y in loader)


def open_once(steps):
    next(steps)
    before, busy, times = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time(), [time.monotonic()]
    next(steps)
    times.append(time.monotonic())
    busy = time.process_time() - busy
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    for _ in range(2):
        next(iter(next(steps)))
        times.append(time.monotonic())
    opened, first, again = (b - a for a, b in zip(times, times[1:]))
    print(json.dumps({"open": opened, "cpu": busy, "mib": most / 1024, "first": first, "again": again}), flush=True)
    os._exit(0)  # without waiting for workers in the middle of an epoch


def answer(name, steps):
    next(steps)
    next(steps)
    sum(next(steps))
    print(json.dumps({"name": name}), flush=True)
    for line in sys.stdin:
        begun, images = time.monotonic(), 0
        while images == 0 or time.monotonic() - begun < float(line):
            images += sum(next(steps))
        print(json.dumps({"images_per_second": images / (time.monotonic() - begun)}), flush=True)


if __name__ == "__main__":
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]))
    else:
        start = {"tensorflow": tensorflow, "torch": torch, "webdataset": webdataset}[sys.argv[2]]
        running = start(sys.argv[3], int(sys.argv[4]))
        if sys.argv[1] == "open":
            open_once(running)
        else:
            answer({"tensorflow": "tf.data", "torch": "torchvision"}.get(sys.argv[2], sys.argv[2]), running)
