"""The pseudorandom inputs of the goldens; formula.h computes the same in C.

Murmur3's finalizer makes a 32-bit word from (seed, index); a word becomes a float32 by exact
arithmetic only, so that C and Python agree on every bit.
"""
import numpy as np


def words(seed, count):
    x = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    x ^= x >> np.uint32(16)
    return x


def uniform(seed, shape):
    """Multiples of 2^-23 in [-1, 1); scale by a power of two only."""
    x = words(seed, int(np.prod(shape))) >> np.uint32(8)
    return ((x.astype(np.int64) - (1 << 23)) / float(1 << 23)).astype(np.float32).reshape(shape)


def grid(seed, shape):
    """Quarters in [-2, 2): sums of their products are exact in float32, and maxima tie."""
    x = words(seed, int(np.prod(shape))) >> np.uint32(28)
    return ((x.astype(np.int64) - 8) / 4.0).astype(np.float32).reshape(shape)


def sparsemax(x, axis=-1):
    """Keras's lines but for the sum at the threshold: 3.15 adds up all cumulative sums above it, so that its values sum
    to 1 only where one number is left."""
    import tensorflow as tf

    ordered = tf.sort(x, direction="DESCENDING", axis=axis)
    rank = tf.cumsum(tf.ones_like(x), axis=axis)
    support = ordered - (tf.cumsum(ordered, axis=axis) - 1) / rank > 0
    count = tf.reduce_sum(tf.cast(support, x.dtype), axis=axis, keepdims=True)
    threshold = (tf.reduce_sum(tf.where(support, ordered, 0), axis=axis, keepdims=True) - 1) / count
    return tf.maximum(x - threshold, 0)


def c_array(kind, name, values, form="%.9g"):
    """One C array definition, wrapped at 120 columns."""
    lines, line = [], "   "
    for value in np.asarray(values).ravel():
        text = form % value
        if "float" in kind and "." not in text and "e" not in text:
            text += ".0"
        text = " " + text + ("f" if kind == "float" else "") + ","
        if len(line) + len(text) > 118:
            lines.append(line)
            line = "   "
        line += text
    lines.append(line.rstrip(","))
    return "static const %s %s[] = {\n%s\n};\n" % (kind, name, "\n".join(lines))
