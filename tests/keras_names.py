"""Names of Keras's modules (tests/golden/keras_names.txt) that the library lacks."""

import os
import re

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "keras_names.txt")

# What networks for other data than images need, by module: it is counted, not listed.
OTHER_DATA = {
    "layers": {
        "one and three dimensions": r"\w+(1D|3D)(Transpose)?",
        "recurrent": r"\w*(RNN|LSTM|GRU)\w*|Bidirectional|TimeDistributed|Masking|RepeatVector",
        "attention": r"\w*Attention|EinsumDense",  # which is a dense layer of heads
        "text, categories and sound": r"\w*(Embedding|Lookup|Hash|Vectorization|Spectrogram|CategoryEncoding)\w*"
        r"|Discretization",
    },
    "augmentations": {"bounding boxes": "MaxNumBoundingBoxes"},
    "losses": {"text": "CTC"},
}
# Classes that C programs need no counterpart of: base classes, wrappers, and bridges to other frameworks.
PLUMBING = {
    "layers": r"Layer|Wrapper|InputSpec|TFSMLayer|JaxLayer|FlaxLayer|TorchModuleWrapper|Lambda",
    "losses": "Loss",
    "metrics": "Metric|MeanMetricWrapper|Mean|Sum",
    "optimizers": "Optimizer",
}
# Names of Keras whose counterpart has another name: a word of the API that has to exist.
ELSEWHERE = {
    "layers InputLayer": "mirt_input",
    "layers Identity": "MIRT_LINEAR",
    "layers Pipeline": "mirt_augment",
    "layers SpectralNormalization": "mirt_spectral_norm",
    "augmentations MixUp": "mirt_mix_up",
    "augmentations CutMix": "mirt_cut_mix",
    "augmentations ContrastLimitedAdaptiveHistogramEqualization": "mirt_clahe",
    "activations swish": "MIRT_SILU",
    "activations hard_silu": "MIRT_HARD_SWISH",
    "metrics LogCoshError": "MIRT_LOG_COSH",
    "activations threshold": "mirt_threshold",
    "optimizers LossScaleOptimizer": "mixed_float16",
    "optimizers MultiOptimizer": "mirt_optimizer_map",
    "optimizers OptimizerMap": "mirt_optimizer_map",
}


def key(name):
    return name.replace("_", "").lower()


def names():
    """{module: names}, in Keras's order."""
    found = {}
    with open(FILE, encoding="utf-8") as f:
        for line in f:
            if not line.startswith("#"):
                module, name = line.split()
                found.setdefault(module, []).append(name)
    return found


def missing(ours, api):
    """[(module, names that the library lacks, {kind of other data: how many})] for {module: names}; api: its text."""
    rows = []
    for module, theirs in names().items():
        have = {key(name) for name in ours[module]}
        if module == "metrics" and re.search(r"\bMIRT_METRIC_LOSS\b", api):
            have |= {key(name) for name in ours["losses"]}
        lack, other = [], {}
        for name in theirs:
            elsewhere = ELSEWHERE.get("%s %s" % (module, name))
            kinds = [k for k, words in OTHER_DATA.get(module, {}).items() if re.fullmatch(words, name)]
            if key(name) in have or re.fullmatch(PLUMBING.get(module, ""), name):
                continue
            if elsewhere and re.search(r"\b%s\b" % elsewhere, api):
                continue
            if kinds:
                other[kinds[0]] = other.get(kinds[0], 0) + 1
            else:
                lack.append(name)
        rows.append((module, lack, other))
    return rows
