"""Random numbers that the library draws for a row, in double precision."""

from statistics import NormalDist

import numpy as np


def fnv(name):
    h = 14695981039346656037
    for c in name.encode():
        h = ((h ^ c) * 1099511628211) % 2**64
    return h


def key_of(way, layer):
    """Of the only augmentation of a model, or of a stage, with a seed of 0."""
    return fnv(layer) ^ fnv("augment") if way == "layer" else fnv("augment") * 0x9E3779B97F4A7C15 % 2**64


def words(key, row, blocks):
    """[blocks, 4] random words of an image in the first step or epoch."""
    low = np.uint64(0xFFFFFFFF)
    c = [np.asarray(blocks, np.uint64)] + [np.full(len(blocks), v, np.uint64) for v in (row, 0, 0)]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        high = [p >> np.uint64(32) for p in (p0, p1)]
        c = [high[1] ^ c[1] ^ np.uint64(k[0]), p1 & low, high[0] ^ c[3] ^ np.uint64(k[1]), p0 & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, 1)


def normals(key, row, count, first=2):
    """The noise of an image, which begins with block `first`."""
    tail = NormalDist().inv_cdf
    drawn = words(key, row, range(first, first + (count + 3) // 4)).ravel()[:count]
    return np.array([tail(((int(w) >> 8 & 0x7FFFFF) + 0.5) / 2.0**24) * (1 if int(w) >> 31 else -1) for w in drawn])
