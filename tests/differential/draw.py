"""Draws the layers of a model from a seed. Every layer drawn lies on a path to an output."""

import random

from training import draw_training

MOST = 700  # elements of a sample's tensor: models stay small, so that many fit into ten minutes
ACTIVATIONS = [
    "linear",
    "relu",
    "sigmoid",
    "tanh",
    "softmax",
    "relu6",
    "leaky_relu",
    "elu",
    "gelu",
    "silu",
    "hard_sigmoid",
    "hard_swish",
    "softplus",
    "selu",
    "mish",
    "softsign",
    "exponential",
    "log_softmax",
    "gelu_approximate",
    "celu",
    "hard_shrink",
    "hard_tanh",
    "log_sigmoid",
    "soft_shrink",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "tanh_shrink",
    "sparsemax",
]
WIDTHS = [1, 2, 3, 4, 5, 6, 8, 9, 16, 17]  # around the width of a vector, too
MERGES = ["add", "multiply", "average", "maximum", "minimum", "subtract"]


def count(shape):
    n = 1
    for d in shape:
        n *= d
    return n


class Drawing:
    """A model that grows. `at`: the name and the shape (of one sample) of the tensor that the next layer takes."""

    def __init__(self, seed, variation):
        self.random = random.Random("%d %d" % (seed, variation))
        self.spec = {"seed": seed, "inputs": [], "layers": [], "outputs": []}
        self.at = None

    def chance(self, p):
        return self.random.random() < p

    def pick(self, values):
        return self.random.choice(list(values))

    def shape(self):
        return self.at[1]

    def add(self, kind, shape, inputs=None, **attributes):
        name = "n%d" % len(self.spec["layers"])
        layer = {"kind": kind, "name": name, "in": [self.at[0]] if inputs is None else inputs}
        layer.update(attributes)
        self.spec["layers"].append(layer)
        self.at = (name, tuple(shape))
        return self.at

    def regularized(self, *names):
        drawn = {}
        for name in names:
            if self.chance(0.12):
                drawn[name + "_regularizer"] = [self.pick([0.0, 0.003, 0.01]), self.pick([0.0, 0.005, 0.02])]
        return drawn

    def constrained(self, rank, *names):
        """Constraints of weights: kind, least and most norm, rate, axes."""
        drawn = {}
        for name in names:
            if self.chance(0.06):
                axes = [0] if rank == 1 else self.pick([[0], list(range(rank - 1)), [rank - 1]])
                drawn[name + "_constraint"] = [self.random.randint(1, 4), 0.3, 0.9, self.pick([1.0, 0.5])] + axes
        return drawn

    def activation(self, last):
        kind = self.pick(ACTIVATIONS)
        if kind == "exponential" and any(l.get("activation") == kind for l in self.spec["layers"]):
            return "mish"  # an exponential of one overflows
        return "tanh" if kind in ("softmax", "log_softmax", "sparsemax") and last < 2 else kind

    def with_bias(self, last, *kernels, rank=4):
        """The attributes that layers with a kernel have in common."""
        out = {"use_bias": not self.chance(0.25), "activation": self.activation(last) if self.chance(0.5) else "linear"}
        out.update(self.regularized(*kernels, *(["bias"] if out["use_bias"] else [])))
        if self.chance(0.08):
            out["activity_regularizer"] = [self.pick([0.0, 0.003]), self.pick([0.0, 0.005])]
        if "kernel" in kernels:
            out.update(self.constrained(rank, "kernel"))
        if out["use_bias"]:
            out.update(self.constrained(1, "bias"))
        return out

    def width(self, places=1):
        fitting = [w for w in WIDTHS if w * places <= MOST]
        return self.pick(fitting or [1])

    # ---- windows

    def window(self, square=False):
        """kernel, strides, dilation, padding and the size that a convolution makes; None where nothing fits."""
        h, w, _ = self.shape()
        padding = self.pick(["valid", "same"])
        kernel = [self.random.randint(1, 4), self.random.randint(1, 4)]
        strides, dilation = [1, 1], [1, 1]
        if self.chance(0.4):
            strides = (
                [self.random.randint(1, 3)] * 2 if square else [self.random.randint(1, 3), self.random.randint(1, 3)]
            )
        elif self.chance(0.25):
            dilation = (
                [self.random.randint(1, 3)] * 2 if square else [self.random.randint(1, 3), self.random.randint(1, 3)]
            )
        size = []
        for i, n in enumerate((h, w)):
            span = (kernel[i] - 1) * dilation[i] + 1
            if padding == "valid" and span > n:
                return None
            size.append(-(-n // strides[i]) if padding == "same" else (n - span) // strides[i] + 1)
        return {"kernel": kernel, "strides": strides, "dilation": dilation, "padding": padding}, size

    def conv2d(self):
        drawn = self.window()
        if drawn:
            window, size = drawn
            channels = self.shape()[2]
            groups = self.pick([g for g in (1, 2, 3, 4) if channels % g == 0]) if self.chance(0.2) else 1
            filters = groups * self.pick([1, 2, 3]) if groups > 1 else self.width(count(size))
            self.add(
                "conv2d",
                size + [filters],
                filters=filters,
                groups=groups,
                **window,
                **self.with_bias(filters, "kernel")
            )

    def conv2d_transpose(self):
        h, w, _ = self.shape()
        kernel, strides = [self.random.randint(1, 4), self.random.randint(1, 4)], [
            self.random.randint(1, 3),
            self.random.randint(1, 3),
        ]
        padding = self.pick(["valid", "same"])
        size = [n * s if padding == "same" else n * s + max(k - s, 0) for n, s, k in zip((h, w), strides, kernel)]
        extra = [self.random.randint(0, s - 1) for s in strides] if self.chance(0.4) else None
        if padding == "same" and extra and any(k % 2 + e == 0 for k, e in zip(kernel, extra)):
            extra = None
        if extra:
            size = [
                (n - 1) * s + (k % 2 if padding == "same" else k) + e
                for n, s, k, e in zip((h, w), strides, kernel, extra)
            ]
        if count(size) <= 150:
            filters = self.pick([f for f in WIDTHS if f * count(size) <= MOST])
            self.add(
                "conv2d_transpose",
                size + [filters],
                filters=filters,
                kernel=kernel,
                strides=strides,
                padding=padding,
                output_padding=[e or -1 for e in extra] if extra else None,
                **self.with_bias(filters, "kernel")
            )

    def depthwise_conv2d(self):
        drawn, multiplier = self.window(square=True), self.random.randint(1, 3)
        if drawn and count(drawn[1]) * self.shape()[2] * multiplier <= MOST:
            channels = self.shape()[2] * multiplier
            self.add(
                "depthwise_conv2d",
                drawn[1] + [channels],
                depth_multiplier=multiplier,
                **drawn[0],
                **self.with_bias(channels, "depthwise")
            )

    def separable_conv2d(self):
        drawn, multiplier = self.window(square=True), self.random.randint(1, 2)
        if drawn:
            filters = self.width(count(drawn[1]))
            self.add(
                "separable_conv2d",
                drawn[1] + [filters],
                filters=filters,
                depth_multiplier=multiplier,
                **drawn[0],
                **self.with_bias(filters, "depthwise", "pointwise")
            )

    def pool(self):
        h, w, channels = self.shape()
        size = [self.random.randint(1, min(3, h)), self.random.randint(1, min(3, w))]
        strides = [self.random.randint(1, 3), self.random.randint(1, 3)] if self.chance(0.5) else size
        padding = self.pick(["valid", "same"])
        to = [-(-n // s) if padding == "same" else (n - k) // s + 1 for n, k, s in zip((h, w), size, strides)]
        self.add(
            self.pick(["max_pool2d", "average_pool2d"]), to + [channels], size=size, strides=strides, padding=padding
        )

    def global_pool(self):
        keepdims = self.chance(0.4)
        channels = self.shape()[2]
        self.add(
            self.pick(["global_max_pool2d", "global_average_pool2d"]),
            [1, 1, channels] if keepdims else [channels],
            keepdims=keepdims,
        )

    def adaptive_pool(self):
        h, w, channels = self.shape()
        size = [self.random.randint(1, h), self.random.randint(1, w)]
        self.add("adaptive_average_pool2d", size + [channels], size=size)

    # ---- sizes

    def up_sampling2d(self):
        h, w, c = self.shape()
        size = [self.random.randint(1, 3), self.random.randint(1, 3)]
        if h * w * c * size[0] * size[1] <= MOST:
            self.add("up_sampling2d", [h * size[0], w * size[1], c], size=size, bilinear=self.chance(0.5))

    def zero_padding2d(self):
        h, w, c = self.shape()
        border = [self.random.randint(0, 2) for _ in range(4)]
        if (h + 4) * (w + 4) * c <= MOST:
            self.add("zero_padding2d", [h + border[0] + border[1], w + border[2] + border[3], c], border=border)

    def cropping2d(self):
        h, w, c = self.shape()
        top, left = self.random.randint(0, (h - 1) // 2), self.random.randint(0, (w - 1) // 2)
        bottom, right = self.random.randint(0, (h - 1) // 2), self.random.randint(0, (w - 1) // 2)
        self.add("cropping2d", [h - top - bottom, w - left - right, c], border=[top, bottom, left, right])

    def resizing(self):
        c = self.shape()[2]
        size = [self.random.randint(1, 9), self.random.randint(1, 9)]
        kind = self.pick(["bilinear", "bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"])
        if size[0] * size[1] * c <= MOST:
            self.add(
                "resizing",
                size + [c],
                size=size,
                interpolation=kind,
                crop_to_aspect_ratio=self.chance(0.3),
                antialias=kind != "nearest" and self.chance(0.3),
            )

    def center_crop(self):
        h, w, c = self.shape()
        size = [self.random.randint(1, h + 1), self.random.randint(1, w + 1)]
        self.add("center_crop", size + [c], size=size)

    def reshape(self):
        shape, n = self.shape(), count(self.shape())
        parts = [d for d in range(1, n + 1) if n % d == 0]
        a = self.pick(parts)
        b = self.pick([d for d in parts if (n // a) % d == 0])
        to = self.pick([[n], [a, n // a], [a, b, n // a // b]])
        target = list(to)
        if self.chance(0.3):
            target[self.random.randrange(len(to))] = -1
        if list(shape) != to:
            self.add("reshape", to, target=target)

    def permute(self):
        dims = list(range(1, len(self.shape()) + 1))
        self.random.shuffle(dims)
        self.add("permute", [self.shape()[d - 1] for d in dims], dims=dims)

    def flatten(self):
        self.add("flatten", [count(self.shape())])

    # ---- on any shape

    def dense(self):
        units = self.width(count(self.shape()[:-1]))
        self.add("dense", list(self.shape()[:-1]) + [units], units=units, **self.with_bias(units, "kernel", rank=2))

    def batch_norm(self):
        center, scale = not self.chance(0.2), not self.chance(0.2)
        axis = self.random.randint(1, len(self.shape())) if self.chance(0.2) else 0
        self.add(
            "batch_norm",
            self.shape(),
            momentum=self.pick([0.99, 0.9, 0.5, 0.0]),
            axis=axis,
            epsilon=self.pick([1e-3, 1e-2, 0.1]),
            center=center,
            scale=scale,
            synchronized=axis > 0 or self.chance(0.5),
            **self.regularized(*(["gamma"] if scale else []), *(["beta"] if center else []))
        )

    def layer_norm(self):
        center, scale = not self.chance(0.2), not self.chance(0.2)
        axes = self.random.randint(1, len(self.shape()))
        if count(self.shape()[-axes:]) > 2:  # of two numbers little but their order is left
            self.add(
                "layer_norm",
                self.shape(),
                axes=axes,
                epsilon=self.pick([1e-3, 1e-2, 0.1]),
                center=center,
                scale=scale,
                **self.regularized(*(["gamma"] if scale else []), *(["beta"] if center else []))
            )

    def other_layer_norm(self):
        axes = [i for i in range(1, len(self.shape()) + 1) if self.chance(0.5)]
        if axes and count([self.shape()[i - 1] for i in axes]) > 2:
            self.add("layer_norm", self.shape(), axes=0, axis=axes, epsilon=0.01, center=True, scale=True)

    def rms_norm(self):
        axes = list(range(self.random.randint(1, len(self.shape())), len(self.shape()) + 1))  # Keras fails at others
        if count([self.shape()[i - 1] for i in axes]) > 2:
            self.add("rms_norm", self.shape(), axis=axes, epsilon=self.pick([1e-6, 1e-2]))

    def group_norm(self):
        channels = self.shape()[-1]
        groups = self.pick([g for g in range(1, channels + 1) if channels % g == 0] + [-1])
        if count(self.shape()) // (channels if groups == -1 else groups) > 2:
            center, scale = not self.chance(0.2), not self.chance(0.2)
            self.add(
                "group_norm",
                self.shape(),
                groups=groups,
                epsilon=self.pick([1e-3, 1e-2, 0.1]),
                center=center,
                scale=scale,
                **self.regularized(*(["gamma"] if scale else []), *(["beta"] if center else []))
            )

    def unit_normalization(self):
        axis = self.random.randint(1, len(self.shape()))
        if self.shape()[axis - 1] > 1:
            self.add("unit_normalization", self.shape(), axis=axis)

    def softmax_axis(self):
        axis = self.random.randint(1, len(self.shape()))
        if self.shape()[axis - 1] > 1:
            self.add("softmax_axis", self.shape(), axis=axis)

    def quiet(self):
        """Layers that draw nothing at their settings."""
        images = ["spatial_dropout2d"] * (len(self.shape()) == 3)
        kind = self.pick(["gaussian_noise", "activity_regularization"] + images)
        self.add(kind, self.shape(), rate=0.0, l1=0.003, l2=0.005)

    def normalization(self):
        channels = self.shape()[-1]
        if channels <= 4:
            self.add(
                "normalization",
                self.shape(),
                mean=[round(self.random.uniform(-1, 1), 3) for _ in range(channels)],
                variance=[round(self.random.uniform(0.3, 2), 3) for _ in range(channels)],
            )

    def rescaling(self):
        self.add(
            "rescaling",
            self.shape(),
            scale=round(self.random.uniform(0.5, 2), 3),
            offset=round(self.random.uniform(-0.5, 0.5), 3),
        )

    def dropout(self):
        self.add("dropout", self.shape(), rate=0.0)

    def activate(self):
        kind = self.pick(
            ["activation", "activation", "relu", "leaky_relu", "elu", "prelu", "softmax", "threshold", "glu"]
        )
        last, shape = self.shape()[-1], self.shape()
        if kind == "activation":
            self.add(kind, shape, activation=self.activation(last))
        elif kind == "relu":
            self.add(
                kind,
                shape,
                max_value=self.pick([0.0, 1.5, 6.0]),
                negative_slope=self.pick([0.0, 0.25]),
                threshold=self.pick([0.0, 0.0, 0.5]),
            )
        elif kind == "leaky_relu":
            self.add(kind, shape, slope=self.pick([0.3, 0.1]))
        elif kind == "threshold":
            self.add(kind, shape, threshold=self.pick([0.0, 0.25]), value=self.pick([0.0, -0.5]))
        elif kind == "glu":
            if last % 2 == 0:
                self.add(kind, list(shape[:-1]) + [last // 2])
        elif kind == "elu":
            self.add(kind, shape, alpha=self.pick([1.0, 0.5]))
        elif kind == "prelu":
            axes = [i for i in range(1, len(shape) + 1) if self.chance(0.5)]
            self.add(kind, shape, shared_axes=axes or None, **self.regularized("alpha"))
        elif last > 1:
            self.add(kind, shape)

    # ---- patterns

    def fused(self):
        """What the library fuses: convolution, normalization, activation."""
        self.pick([self.conv2d, self.depthwise_conv2d])()
        self.batch_norm()
        self.activate()

    def residual(self):
        x = self.at
        for _ in range(self.random.randint(1, 2)):
            self.pick(
                [self.dense, self.activate, self.batch_norm, self.layer_norm]
                + ([self.same_conv] * 3 if len(x[1]) == 3 else [])
            )()
        self.join(x)

    def same_conv(self):
        filters = self.shape()[2]
        self.add(
            "conv2d",
            self.shape(),
            filters=filters,
            groups=1,
            kernel=[self.random.randint(1, 3), self.random.randint(1, 3)],
            strides=[1, 1],
            dilation=[1, 1],
            padding="same",
            **self.with_bias(filters, "kernel")
        )

    def excite(self):
        x = self.at
        if len(x[1]) == 3:
            self.add("global_average_pool2d", [1, 1, x[1][2]], keepdims=True)
            self.add(
                "conv2d",
                [1, 1, x[1][2]],
                filters=x[1][2],
                groups=1,
                kernel=[1, 1],
                strides=[1, 1],
                dilation=[1, 1],
                padding="same",
                use_bias=True,
                activation="sigmoid",
            )
            self.add("multiply", x[1], [x[0], self.at[0]])

    def dot(self, x):
        """The product with another tensor along axes of one size, if there are some."""
        a, b = x[1], self.shape()
        axes = [(i + 1, j + 1) for i in range(len(a)) for j in range(len(b)) if a[i] == b[j]]
        axes = [(i, j) for i, j in axes if count(a) * count(b) <= MOST * a[i - 1] ** 2 and len(a) + len(b) <= 7]
        if axes:
            i, j = self.pick(axes)
            rest = list(a[: i - 1] + a[i:] + b[: j - 1] + b[j:])
            self.add("dot", rest or [1], [x[0], self.at[0]], axes=[i, j], normalize=a[i - 1] > 1 and self.chance(0.5))
        return axes

    def join(self, x):
        """Merges the current tensor with another one."""
        a, b = x[1], self.shape()
        if self.chance(0.15) and self.dot(x):
            return
        if a == b and self.chance(0.8):
            names = [x[0], self.at[0]]
            self.random.shuffle(names)
            kind = self.pick(MERGES)
            self.add(kind, b, names + ([x[0]] if kind != "subtract" and self.chance(0.4) else []))
        elif len(a) == len(b) and a[:-1] == b[:-1] and (a[-1] + b[-1]) * count(a[:-1]) <= MOST:
            self.add("concatenate", a[:-1] + (a[-1] + b[-1],), [x[0], self.at[0]], axis=-1)
        elif len(a) == len(b) == 3 and a[1:] == b[1:]:
            self.add("concatenate", (a[0] + b[0],) + a[1:], [x[0], self.at[0]], axis=1)
        else:
            flat = self.at if len(b) == 1 else self.add("flatten", [count(b)])
            self.at = x
            other = self.at if len(a) == 1 else self.add("flatten", [count(a)])
            self.add("concatenate", [flat[1][0] + other[1][0]], [flat[0], other[0]], axis=-1)

    def step(self):
        anywhere = [
            self.batch_norm,
            self.layer_norm,
            self.normalization,
            self.rescaling,
            self.dropout,
            self.activate,
            self.activate,
            self.residual,
            self.reshape,
            self.group_norm,
            self.other_layer_norm,
            self.rms_norm,
            self.pick([self.unit_normalization, self.softmax_axis, self.quiet]),
        ]
        if len(self.shape()) == 3:
            self.pick(
                [self.conv2d] * 5
                + [self.fused] * 4
                + [self.conv2d_transpose, self.depthwise_conv2d, self.separable_conv2d] * 2
                + [self.pool] * 4
                + [
                    self.global_pool,
                    self.adaptive_pool,
                    self.up_sampling2d,
                    self.zero_padding2d,
                    self.cropping2d,
                    self.resizing,
                    self.center_crop,
                    self.permute,
                    self.flatten,
                    self.dense,
                    self.excite,
                    self.residual,
                ]
                + anywhere
            )()
        elif len(self.shape()) == 2:
            self.pick([self.dense] * 3 + [self.permute, self.flatten] + anywhere)()
        else:
            self.pick([self.dense] * 4 + anywhere)()

    # ---- the model

    def input(self, number):
        kind = self.pick(["image"] * 7 + ["vector", "vector", "sequence"])
        channels = self.pick([1, 2, 3, 3, 4, 5, 8])
        size = [self.pick([1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13]) for _ in range(2)]
        while count(size) * channels > MOST:
            size[self.random.randrange(2)] = 4
        shape = {"image": size + [channels], "vector": [self.pick(WIDTHS)], "sequence": [size[0], self.pick(WIDTHS)]}[
            kind
        ]
        pixels = kind == "image" and self.chance(0.25)
        name = "x%d" % number
        self.spec["inputs"].append({"name": name, "shape": shape, "dtype": "uint8" if pixels else "float32"})
        self.at = (name, tuple(shape))
        if pixels:
            self.add("rescaling", shape, scale=round(1 / 127.5, 6), offset=-1.0)

    def head(self, loss, from_logits):
        """Layers that make an output which the loss takes."""
        x, shaped = self.at, loss != "circle" and self.chance(0.3)
        if not shaped and len(self.shape()) > 1:
            (
                self.add("global_average_pool2d", [self.shape()[2]], keepdims=False)
                if len(self.shape()) == 3 and self.chance(0.5)
                else self.flatten()
            )
        several = "categorical" in loss or loss in ("kl_divergence", "circle")
        classes = self.pick([2, 3, 5, 7, 10] if several else [1, 2, 3])
        last = self.pick(["linear", "tanh", "linear"])
        if loss == "poisson":
            last = self.pick(["sigmoid", "softplus"])  # rates are positive
        if "crossentropy" in loss or loss == "kl_divergence":
            last = "sigmoid" if "binary" in loss else "softmax"
        if loss == "categorical_generalized_cross_entropy":
            last = "softmax"
        if from_logits and "crossentropy" in loss:
            last = "linear"
        options = {}
        if "crossentropy" in loss and not loss.startswith("sparse") and self.chance(0.2):
            options["label_smoothing"] = 0.125
        if loss.startswith("sparse") and self.chance(0.2):
            options["ignore_class"] = 1
        if loss == "categorical_generalized_cross_entropy":
            options["q"] = self.pick([0.5, 0.3, 0.9])
        if loss == "circle":
            last, classes = "linear", max(classes, 3)
            options.update(gamma=self.pick([2.0, 8.0]), margin=self.pick([0.4, 0.25]))
            options["remove_diagonal"] = self.chance(0.7)
        self.add("dense", list(self.shape()[:-1]) + [classes], units=classes, use_bias=True, activation=last)
        if loss == "circle":
            self.add("unit_normalization", self.shape(), axis=1)
        self.spec["outputs"].append({"layer": self.at[0], "loss": loss, "shape": list(self.shape()), **options})
        self.at = x


def draw(seed, variation=0):
    d = Drawing(seed, variation)
    for number in range(1 + (d.chance(0.15))):
        before = d.at
        d.input(number)
        for _ in range(d.random.randint(0, 2) if before else d.random.randint(1, 3)):
            d.step()
        if before:
            d.join(before)
    from_logits = d.chance(0.5)
    outputs = d.pick([1] * 7 + [2, 2, 3])
    for number in range(outputs):
        for _ in range(d.random.randint(1, 3)):
            d.step()
        loss = d.pick(
            ["sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy", "mean_squared_error"]
            * 2
            + ["huber", "log_cosh", "kl_divergence", "cosine_similarity"]
            + ["binary_focal_crossentropy", "categorical_focal_crossentropy"]
            + ["poisson", "categorical_generalized_cross_entropy", "circle"]
        )
        d.head(loss, from_logits)
    draw_training(d, from_logits)
    return d.spec
