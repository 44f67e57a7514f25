#!/usr/bin/env python3
"""Writes images.h: image files, TensorFlow's pixels of them, and Keras's lists of files. Needs
Pillow, too."""
import io
import os
import tempfile

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras
import numpy as np
import tensorflow as tf
from keras.src.utils import dataset_utils, image_utils
from PIL import Image

from formula import words

HEAD = """#ifndef GOLDEN_IMAGES_H
#define GOLDEN_IMAGES_H
/* Made by make_images.py with TensorFlow %s, Keras %s; do not edit.
   Include after mirrortrain.h. */
#include "formula.h"

/* Files and their pixels in hexadecimal, as tf.io.decode_image has them, JPEGs by its default, INTEGER_FAST. */
typedef struct golden_file {
    const char *name;
    int height, width, channels;
    const char *file, *pixels;
} golden_file;

/* golden_picture, the bytes golden_word(9, i) >> 24 of [7, 5, 3], by tf.image.resize; crop: Keras's smart_resize, pad: resize_with_pad. */
typedef enum golden_fit { GOLDEN_RESIZE, GOLDEN_CROP, GOLDEN_PAD } golden_fit;
typedef struct golden_resize {
    mirt_interpolation interpolation;
    int antialias;
    golden_fit fit;
    int height, width;
    const float *pixels;
} golden_resize;

/* Files below a directory that ends in /data, as Keras lists them (without "data/") for these options, split at the last `validation`. */
typedef struct golden_list {
    int shuffle;
    unsigned seed;
    int labels, follow_links;
    const char *class_names;
    int validation, count;
    const char *const *path;
    const int *label;
} golden_list;
"""


def picture(height, width, channels, seed):
    """Smooth, with some noise: like a photograph to a JPEG."""
    small = words(seed, (height // 4 + 2) * (width // 4 + 2) * channels).reshape(
        height // 4 + 2, width // 4 + 2, channels
    ) >> np.uint32(24)
    large = tf.image.resize(small.astype(np.float32), (height, width), "bicubic").numpy()
    noise = (words(seed + 1, height * width * channels).reshape(height, width, channels) >> np.uint32(28)).astype(
        np.float32
    )
    return np.clip(large + noise - 8, 0, 255).astype(np.uint8)


def files():
    def made(image, kind, **options):
        out = io.BytesIO()
        image.save(out, kind, **options)
        return out.getvalue()

    rgb, odd = Image.fromarray(picture(16, 16, 3, 1)), Image.fromarray(picture(9, 19, 3, 3))
    gray, rgba = Image.fromarray(picture(9, 11, 1, 5)[..., 0]), Image.fromarray(picture(9, 11, 4, 7))
    cmyk, noisy = Image.fromarray(picture(9, 11, 4, 9), "CMYK"), Image.fromarray(
        (words(11, 9 * 11) >> np.uint32(16)).astype(np.uint16).reshape(9, 11)
    )
    ink, adobe = made(cmyk, "JPEG", quality=85, subsampling=2), b"\xff\xee\0\x0eAdobe"
    at = ink.index(adobe)
    exif = Image.Exif()
    exif[0x112] = 6
    small = odd.quantize(16)
    yield "jpeg, 4:2:0", 3, made(rgb, "JPEG", quality=85)
    yield "jpeg, 4:2:0 of an odd size", 3, made(odd, "JPEG", quality=85)
    yield "jpeg, 4:2:2 of an odd size", 3, made(odd, "JPEG", quality=85, subsampling=1)
    yield "jpeg, 4:4:4 with restarts", 3, made(odd, "JPEG", quality=85, subsampling=0, restart_marker_blocks=2)
    yield "jpeg, progressive", 3, made(odd, "JPEG", quality=85, progressive=True)
    yield "jpeg, gray", 3, made(gray, "JPEG", quality=85)
    yield "jpeg, colors as gray", 1, made(odd, "JPEG", quality=85)
    yield "jpeg, CMYK", 3, made(cmyk, "JPEG", quality=85)
    yield "jpeg, CMYK, 4:2:0", 3, ink
    yield "jpeg, CMYK not of Adobe", 3, ink[:at] + ink[at + 16 :]
    yield "jpeg, YCCK", 3, ink[: at + 15] + b"\2" + ink[at + 16 :]
    yield "jpeg, YCCK, 4:2:2", 3, made(cmyk, "JPEG", quality=85, subsampling=1).replace(
        adobe + b"\0\x64\0\0\0\0\0", adobe + b"\0\x64\0\0\0\0\2"
    )
    yield "jpeg, of an orientation in EXIF", 3, made(odd, "JPEG", quality=85, exif=exif)
    yield "png", 3, made(odd, "PNG")
    yield "png, colors as gray", 1, made(odd, "PNG")
    yield "png, gray", 3, made(gray, "PNG")
    yield "png, alpha dropped", 3, made(rgba, "PNG")
    yield "png, alpha kept", 4, made(rgba, "PNG")
    yield "png, alpha added", 4, made(odd, "PNG")
    yield "png, gray and alpha", 3, made(rgba.convert("LA"), "PNG")
    yield "png, a palette", 3, made(small, "PNG")
    yield "png, a palette with a transparent color", 3, made(small, "PNG", transparency=3)
    yield "png, black and white", 3, made(gray.convert("1"), "PNG")
    yield "png, 16 bits", 3, made(noisy, "PNG")
    yield "bmp", 3, made(odd, "BMP")
    yield "bmp, 32 bits", 3, made(rgba, "BMP")
    yield "gif", 3, made(small, "GIF")
    yield "gif, transparent", 3, made(small, "GIF", transparency=5, background=7)
    yield "gif, the first of three frames", 3, made(
        small, "GIF", save_all=True, append_images=[rgb.resize((19, 9)).quantize(8), small]
    )


def write_files(out):
    rows = []
    for name, channels, data in files():
        pixels = tf.io.decode_image(data, channels=channels, expand_animations=False).numpy()
        shape = ", ".join(map(str, pixels.shape))
        rows.append('    {"%s", %s,\n     %s,\n     %s},' % (name, shape, strings(data), strings(pixels.tobytes())))
    out.append("static const golden_file golden_files[] = {\n%s\n};\n" % "\n".join(rows))


def strings(data):
    text = data.hex()
    return "\n     ".join('"%s"' % text[i : i + 120] for i in range(0, len(text), 120))


def write_resizes(out):
    image = (words(9, 7 * 5 * 3) >> np.uint32(24)).astype(np.uint8).reshape(7, 5, 3)
    rows, methods = [], ["bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic"]

    def add(method, antialias, fit, height, width, pixels):
        pixels = np.asarray(pixels, np.float32).ravel()
        values = "\n    ".join(
            ", ".join("%.4ff" % v for v in pixels[i : i + 12]) + "," for i in range(0, len(pixels), 12)
        )
        out.append("static const float golden_resized_%d[] = {\n    %s};" % (len(rows), values))
        rows.append(
            "    {MIRT_%s, %d, %s, %d, %d, golden_resized_%d},"
            % (method.upper(), antialias, fit, height, width, len(rows))
        )

    for method in methods:
        for antialias in (False, True) if method not in ("nearest", "area") else (False,):
            for height, width in ((3, 4), (4, 9)):
                add(
                    method,
                    antialias,
                    "GOLDEN_RESIZE",
                    height,
                    width,
                    tf.image.resize(image, (height, width), method, antialias=antialias),
                )
    for height, width in ((4, 4), (3, 8), (9, 2)):
        from keras.src.backend import tensorflow as backend

        cropped = tf.function(
            lambda x: image_utils.smart_resize(x, (height, width), "bilinear", backend_module=backend),
            input_signature=[tf.TensorSpec((None, None, 3), tf.uint8)],
        )(image)
        add("bilinear", False, "GOLDEN_CROP", height, width, cropped)
        add("bilinear", False, "GOLDEN_PAD", height, width, tf.image.resize_with_pad(image, height, width))
    out.append("static const golden_resize golden_resizes[] = {\n%s\n};\n" % "\n".join(rows))


TREE = """a/i1.jpg a/i10.jpg a/i2.JPG a/.hidden.png a/notes.txt a/sub/z.png a/sub/a.bmp a/sub-b/q.gif a/x.jpg.bak b b/B.jpeg b/a.jpg
b/deep/er/y.PNG c|d e/f|g.jpg empty/ .dot/no.jpg Zz/ü.jpg Zz/z.jpg Zz/é.png loose.jpg""".split()


def make_tree(root):
    for name in TREE:
        path = os.path.join(root, name.replace("|", " "))
        if name.endswith("/") or "." not in os.path.basename(name):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").close()
    os.symlink("../b", os.path.join(root, "Zz", "link"))


def write_lists(out):
    rows = []
    quote = lambda s: '"%s"' % "".join(c if ord(c) < 128 else "".join("\\%03o" % b for b in c.encode()) for c in s)
    out.append("static const char *const golden_tree[] = {%s};" % ", ".join(quote(n.replace("|", " ")) for n in TREE))
    with tempfile.TemporaryDirectory() as base:
        root = os.path.join(base, "data")
        os.mkdir(root)
        make_tree(root)
        for shuffle, seed, labels, follow, names, split in (
            (False, 0, True, False, None, 0),
            (True, 0, True, False, None, 0),
            (True, 123, True, False, None, 0.3),
            (True, 4294967295, True, True, None, 0.2),
            (False, 0, True, True, ["b", "a"], 0),
            (False, 0, False, False, None, 0),
            (True, 5, False, False, None, 0.5),
        ):
            paths, found, classes = dataset_utils.index_directory(
                root,
                "inferred" if labels else None,
                (".bmp", ".gif", ".jpeg", ".jpg", ".png"),
                class_names=names,
                shuffle=shuffle,
                seed=seed,
                follow_links=follow,
                verbose=False,
            )
            n, i = int(split * len(paths)), len(rows)
            out.append(
                "static const char *const golden_paths_%d[] = {%s};"
                % (i, ", ".join(quote(os.path.relpath(p, root)) for p in paths))
            )
            out.append(
                "static const int golden_labels_%d[] = {%s};"
                % (i, ", ".join(str(int(v)) for v in found) if labels else "0")
            )
            rows.append(
                "    {%d, %du, %d, %d, %s, %d, %d, golden_paths_%d, golden_labels_%d},"
                % (shuffle, seed, labels, follow, '"%s"' % " ".join(names) if names else "NULL", n, len(paths), i, i)
            )
    out.append("static const golden_list golden_lists[] = {\n%s\n};\n" % "\n".join(rows))


def main():
    out = [HEAD % (tf.__version__, keras.__version__)]
    write_files(out)
    write_resizes(out)
    write_lists(out)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "images.h"), "w") as file:
        file.write("\n".join(out) + "\n#endif\n")


main()
