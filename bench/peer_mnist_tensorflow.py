#!/usr/bin/env python3
"""Training rate of the MNIST convnet in TensorFlow on this machine's CPU, in its fastest settings.
Prints one JSON line a setting, and the two fastest again, longer, with "final": true."""
import json
import os
import subprocess
import sys

from peer_mnist import arguments, digits, measure, window

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import keras
import tensorflow as tf

parser = arguments(__doc__)
parser.add_argument("--mirrored", action="store_true", help="only fit under MirroredStrategy on two logical CPUs")
args = parser.parse_args()
tf.config.threading.set_intra_op_parallelism_threads(args.threads)
tf.config.threading.set_inter_op_parallelism_threads(args.threads)
x, y = digits(args.mnist)


def network():
    layers = keras.layers
    return keras.Sequential([
        keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)])


def loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def fit(batch, strategy=None, **options):
    """Keras' own loop over a cached, batched, prefetched data set."""
    with (strategy or tf.distribute.get_strategy()).scope():
        model = network()
        model.compile(loss=loss(), optimizer=keras.optimizers.Adam(), metrics=["accuracy"], **options)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True).cache()
    data = data.prefetch(tf.data.AUTOTUNE)
    steps = len(x) // batch

    def run(count):
        epochs = -(-count // steps)
        model.fit(data, epochs=epochs, verbose=0)
        return epochs * steps
    return run


def bare(batch, jit):
    """A loop inside one tf.function over tensors in memory: nothing but the training steps."""
    model, loss_of, adam = network(), loss(), keras.optimizers.Adam()
    adam.build(model.trainable_variables)
    images, labels, batches = tf.constant(x), tf.constant(y), len(x) // batch

    @tf.function(jit_compile=jit)
    def step(i):
        begin = (i % batches) * batch
        a = tf.ensure_shape(tf.slice(images, [begin, 0, 0, 0], [batch, 28, 28, 1]), (batch, 28, 28, 1))
        b = tf.ensure_shape(tf.slice(labels, [begin], [batch]), (batch,))
        with tf.GradientTape() as tape:
            value = loss_of(b, model(a, training=True))
        adam.apply(tape.gradient(value, [v.value for v in model.trainable_variables]))
        return value

    @tf.function
    def loop(count):
        value = tf.constant(0.0)
        for i in tf.range(count):
            value = step(i)
        return value

    def run(count):
        loop(tf.constant(count)).numpy()
        return count
    return run


def mirrored():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for batch in map(int, args.batch.split(",")):
        print(json.dumps([batch, "MirroredStrategy on 2 CPUs, fit", window(fit(batch, strategy), batch, args.trial)]))


if args.mirrored:
    mirrored()
else:
    command = [sys.executable, __file__, "--mirrored", "--batch", args.batch, "--trial", str(args.trial),
               "--threads", str(args.threads)] + (["--mnist", args.mnist] if args.mnist else [])
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    measure("tensorflow", tf.__version__, args, {
        "fit": fit,
        "fit, 50 steps per execution": lambda batch: fit(batch, steps_per_execution=50),
        "tf.function": lambda batch: bare(batch, False),
        "tf.function, jit": lambda batch: bare(batch, True),
    }, [json.loads(line) for line in lines if line.startswith("[")])
