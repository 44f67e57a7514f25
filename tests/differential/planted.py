"""Plants one small error at a time in a copy of a source file. Some case must fail that passes without the error."""

import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLAGS = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-DMIRRORTRAIN_SPLIT_BUILD", "-O1", "-w"]
MODELS = 150  # cases that are drawn
# What is compiled for a header that is planted in.
USERS = {
    "kernels/elementwise.h": [
        "kernels/activations.c",
        "kernels/common_elementwise.c",
        "kernels/reference_elementwise.c",
    ],
    "kernels/loss_elements.h": ["kernels/common_loss.c"],
    "kernels/transform.h": ["kernels/augment.c"],
}

# Family, part, file, what stands there once, what stands there instead, the error in words.
PLANTS = [
    (
        "convolution",
        "model",
        "ops/conv.c",
        "*pad_before = pad / 2;",
        "*pad_before = (pad + 1) / 2;",
        "the odd pixel of padding at the top and left",
    ),
    (
        "transposed convolution",
        "model",
        "ops/conv.c",
        "dx[0] = mirt__conv2d_op(dy[0], k, &a);\n    if (k->needs_grad) dx[1] = mirt__apply_two(",
        "dx[0] = mirt_scale(mirt__conv2d_op(dy[0], k, &a), 0.5f, 0);\n"
        "    if (k->needs_grad) dx[1] = mirt__apply_two(",
        "half of the input's gradient",
    ),
    (
        "depthwise convolution",
        "model",
        "nn/layers_conv.c",
        "&d->depthwise_regularizer, &d->depthwise_constraint);",
        "&d->bias_regularizer, &d->depthwise_constraint);",
        "the bias's regularizer for the kernel",
    ),
    (
        "maximum pooling",
        "model",
        "kernels/fast_pool.c",
        "const int64_t last = at / stride + 1, behind",
        "const int64_t last = at / stride, behind",
        "the gradient misses each pixel's last window",
    ),
    (
        "average pooling",
        "model",
        "kernels/common_pool.c",
        "const float count = (float)((w.ky1 - w.ky) * (w.kx1 - w.kx));",
        "const float count = (float)(p->kh * p->kw);",
        "padding counts in the mean",
    ),
    (
        "average pooling",
        "model",
        "kernels/common_pool.c",
        "dx[c] += dy[c] / count;",
        "dx[c] = dy[c] / count;",
        "overlapping windows do not add up in the gradient",
    ),
    (
        "global pooling",
        "model",
        "nn/layers_image.c",
        "return mirt__global_pool(MIRT__REDUCE_MAX, x, layer->desc);",
        "return mirt__global_pool(MIRT__REDUCE_MEAN, x, layer->desc);",
        "the mean instead of the maximum",
    ),
    (
        "up-sampling",
        "model",
        "kernels/common_resize.c",
        "y[j] = top + (bottom - top) * v.part;",
        "y[j] = top + (bottom - top) * u.part;",
        "one axis's fraction for both",
    ),
    (
        "cropping",
        "model",
        "nn/layers_image.c",
        "int64_t begin[4] = {0, d->border[0][0], d->border[1][0], 0}, size[4]",
        "int64_t begin[4] = {0, d->border[0][1], d->border[1][0], 0}, size[4]",
        "top and bottom exchanged",
    ),
    (
        "batch normalization",
        "model",
        "nn/layers_norm.c",
        "own->scaling.epsilon = d->epsilon;\n    own->momentum",
        "own->scaling.epsilon = 1e-5f;\n    own->momentum",
        "an epsilon of 1e-5",
    ),
    (
        "batch normalization",
        "model",
        "device/aggregate.c",
        "sum += (double)rows[r] * ((double)value[r][i] - first);",
        "sum += total / active * ((double)value[r][i] - first);",
        "moving statistics not weighted by rows",
    ),
    (
        "batch normalization",
        "model",
        "device/aggregate.c",
        "+ delta * delta * (n * more / all);",
        "+ 0 * delta;",
        "global variance without the distance of the means",
    ),
    (
        "batch normalization",
        "model",
        "ops/norm.c",
        "mirt__in_training(node, mode) && !mirt__norm_frozen(in[1], mode);",
        "mirt__in_training(node, mode);",
        "frozen layers use the batch's statistics",
    ),
    (
        "layer normalization",
        "model",
        "kernels/common_norm.c",
        "squares = squares / (double)n - sum * sum;",
        "squares = squares / (double)(n - 1) - sum * sum;",
        "variance over n - 1",
    ),
    (
        "rescaling, normalization",
        "model",
        "nn/layers_core.c",
        "matrix[(d->reverse ? n - 1 - i : i) * n + i] = (float)(1 / deviation);",
        "matrix[(d->reverse ? n - 1 - i : i) * n + i] = (float)(1 / d->variance[i]);",
        "the variance instead of its root",
    ),
    (
        "activations",
        "model",
        "kernels/elementwise.h",
        "ACT_LEAKY_RELU, LEAKY_RELU_GRAD, 0.2f)",
        "ACT_LEAKY_RELU, LEAKY_RELU_GRAD, 0.3f)",
        "a slope of 0.3",
    ),
    (
        "activations",
        "model",
        "kernels/elementwise.h",
        "X(8, TANH_GRAD, binary, NONE, a * (1 - b * b), LOOP(a * (1 - b * b)),",
        "X(8, TANH_GRAD, binary, NONE, a * (1 - b * b), LOOP(a * (1 - b)),",
        "the slope of tanh",
    ),
    (
        "activation layers",
        "model",
        "nn/layers_activation.c",
        "x, slope, -slope * threshold)",
        "x, slope, 0)",
        "ReLU's threshold not taken off below it",
    ),
    (
        "merging",
        "model",
        "nn/layers_merge.c",
        "1.0f / (float)layer->num_in, 0);",
        "1.0f / (float)(layer->num_in + 1), 0);",
        "Average divides by one more than there are",
    ),
    (
        "reshaping",
        "model",
        "nn/layers_core.c",
        "permutation[i + 1] = dims->dim[i] > 0 && dims->dim[i] <= dims->rank ? (int)dims->dim[i] : -1;",
        "permutation[dims->dim[i]] = i + 1;",
        "Permute the other way round",
    ),
    (
        "losses",
        "model",
        "kernels/loss_elements.h",
        "return scale * (2 * (x - t) / n);",
        "return scale * ((x - t) / n);",
        "half of the squared error's gradient",
    ),
    (
        "losses",
        "model",
        "kernels/loss_elements.h",
        "if (how->from_logits) return share * (1 / (1 + expf(-x)) - t);",
        "if (how->from_logits) return scale * (1 / (1 + expf(-x)) - t);",
        "binary cross-entropy's gradient is a sum over outputs",
    ),
    (
        "loss weights",
        "model",
        "function/record_losses.c",
        "mirt__unary_op(MIRT__AFFINE, own[i], weight, 0) : own[i];",
        "own[i] : own[i];",
        "weights of outputs are not used",
    ),
    (
        "class weights",
        "model",
        "function/record_losses.c",
        "if (body->num_class_weights) loss = mirt__binary_op(MIRT__MULTIPLY, loss,",
        "if (body->num_class_weights) loss = mirt__binary_op(MIRT__ADD, loss,",
        "weights of classes are added",
    ),
    (
        "sample weights",
        "model",
        "function/record_losses.c",
        "loss = mirt__binary_op(MIRT__MULTIPLY, loss, loss ?",
        "loss = mirt__binary_op(MIRT__MAXIMUM, loss, loss ?",
        "weights of samples are not multiplied",
    ),
    (
        "regularizers",
        "model",
        "nn/layers.c",
        "mirt__penalty(x, MIRT__ABS, r->l1)",
        "mirt__penalty(x, MIRT__ABS, r->l2)",
        "l2 in the place of l1",
    ),
    (
        "replicas",
        "model",
        "run/run.c",
        "MIRT_SUM ? 1.0 : 1.0 / (double)f->step.rows;",
        "MIRT_SUM ? 1.0 : 1.0 / (double)((f->step.rows + 1) / 2 * 2);",
        "the mean over an even number of rows",
    ),
    (
        "optimizers",
        "model",
        "nn/optimizers.c",
        "rate * (sqrt(mirt__bias_correction(o->beta_2, step)) / mirt__bias_correction(o->beta_1, step)));",
        "rate / mirt__bias_correction(o->beta_1, step));",
        "no bias correction of Adam's second moment",
    ),
    (
        "optimizers",
        "model",
        "nn/optimizers.c",
        "update->nesterov = o->nesterov;",
        "update->nesterov = false;",
        "no Nesterov momentum",
    ),
    (
        "optimizers",
        "model",
        "nn/optimizers.c",
        "update->new_1 = (float)(1 - mirt__as_written(o->rho));",
        "update->new_1 = 0.1f;",
        "RMSprop's rho is always 0.9",
    ),
    (
        "clipping",
        "model",
        "nn/optimizers.c",
        "norm <= (double)most ? 1.0f : (float)((double)most / norm);",
        "norm <= (double)most ? 1.0f : (float)((double)most / (norm + 1e-3));",
        "an epsilon in the clipped norm",
    ),
    (
        "weight decay",
        "model",
        "nn/optimizers.c",
        "u->decay = mirt__decays(o, v->name) ?",
        "u->decay = true ?",
        "exclude_from_weight_decay is passed over",
    ),
    (
        "weight averages",
        "model",
        "nn/optimizers.c",
        "(model->step + 1) % o->ema_overwrite_frequency == 0",
        "model->step % o->ema_overwrite_frequency == 0",
        "averages overwrite one step late",
    ),
    (
        "accumulation",
        "model",
        "data/accumulate.c",
        "(char *)out->field[f] + (size_t)out->rows * dataset->spec.field[f].bytes;",
        "(char *)out->field[f] + (size_t)(i ? part.rows : 0) * dataset->spec.field[f].bytes;",
        "the third batch takes the place of the second",
    ),
    (
        "metrics",
        "metrics",
        "nn/metrics_table.c",
        "(int)ceilf(p * (float)(buckets - 1));",
        "(int)floorf(p * (float)(buckets - 1)) + 1;",
        "AUC counts what equals a threshold as above it",
    ),
    (
        "metrics",
        "metrics",
        "nn/metrics_table.c",
        "f ? (1 + beta * beta) * of[0] : of[0],",
        "of[0],",
        "F1 is the share of hits",
    ),
    (
        "metrics",
        "metrics",
        "nn/metrics_table.c",
        "larger += x[j] > x[label];",
        "larger += x[j] >= x[label] && j != label;",
        "ties count against a label in the top k",
    ),
    (
        "schedules",
        "schedules",
        "nn/schedules.c",
        "step > (double)s->boundary[i]",
        "step >= (double)s->boundary[i]",
        "a boundary belongs to the next value",
    ),
    (
        "schedules",
        "schedules",
        "nn/schedules.c",
        "double done = (step - warm) / (double)s->steps;",
        "double done = step / (double)s->steps;",
        "warm-up counts as decay",
    ),
    (
        "resizing",
        "resize",
        "images/resample.c",
        "float at = ((float)i + 0.5f) * scale - 0.5f, whole",
        "float at = (float)i * scale, whole",
        "pixels shifted by a half",
    ),
    (
        "resizing",
        "resize",
        "images/resample.c",
        "resize->antialias && scale > 1 ? scale : 1;",
        "resize->antialias ? scale : 1;",
        "antialiasing narrows the filter of enlarged images",
    ),
    (
        "augmentation",
        "augment",
        "kernels/transform.h",
        "middle_x = (w - 1) / 2, middle_y = (h - 1) / 2;",
        "middle_x = w / 2, middle_y = h / 2;",
        "images turn around a corner of their middle",
    ),
    (
        "augmentation",
        "augment",
        "kernels/augment.c",
        "at = at < -once ? at + twice : -at - 1;",
        "at = at < -once ? at + twice : -at;",
        "reflection repeats no edge",
    ),
    (
        "augmentation",
        "augment",
        "kernels/augment_rare.c",
        "(mirt__real)oy + e.by * row[w + ox]",
        "(mirt__real)oy + e.by * row[ox]",
        "an elastic transform moves pixels along the diagonal",
    ),
    (
        "noise",
        "noise",
        "ops/dropout.c",
        "d.rate = sqrtf(d.rate / (1 - d.rate));",
        "d.rate = sqrtf(d.rate);",
        "Gaussian dropout keeps the deviation of what it would drop",
    ),
    (
        "directories",
        "directory",
        "data/image_dataset.c",
        "const int64_t validation = (int64_t)(split * (double)list->count),",
        "const int64_t validation = (int64_t)(split * (double)list->count + 0.5),",
        "the split is rounded",
    ),
    (
        "directories",
        "directory",
        "data/image_files.c",
        "for (int64_t i = list->count - 1; i > 0; i--) {\n        uint32_t most",
        "for (int64_t i = list->count - 1; i > 1; i--) {\n        uint32_t most",
        "the shuffle ends one early",
    ),
]


def compile_with(source, place, scratch, objects):
    """A runner with one source replaced; raises CalledProcessError."""
    built = os.path.join(scratch, "planted")
    cc, archive = os.environ.get("CC", "cc").split(), os.path.join(ROOT, "build/tests/parts.a")
    made = []
    for unit in USERS.get(source, [source]):
        made.append(os.path.join(scratch, os.path.basename(unit) + ".o"))
        subprocess.run(
            cc
            + FLAGS
            + ["-include", os.path.join(ROOT, "tests/hooks.h"), "-c", os.path.join(place, unit), "-o", made[-1]],
            check=True,
        )
    subprocess.run(cc + objects + made + [archive, "-o", built, "-lm", "-lpthread"], check=True)
    return built


def changed(entry, text):
    """The text of the entry's file with the error, or None where the table does not fit. Lines may break anywhere."""
    _, _, _, old, new, _ = entry
    found = list(re.finditer(r"\s+".join(map(re.escape, old.split())), text))
    if len(found) != 1 or found[0].group() == new:
        return None
    return text[: found[0].start()] + new + text[found[0].end() :]


def plant(entry, place, scratch, objects):
    """A runner with the error, or None where the table does not fit the source."""
    source = entry[2]
    path = os.path.join(place, source)
    with open(path) as f:
        text = f.read()
    wrong = changed(entry, text)
    if wrong is None:
        return None
    with open(path, "w") as f:
        f.write(wrong)
    try:
        return compile_with(source, place, scratch, objects)
    finally:
        with open(path, "w") as f:
            f.write(text)


def runner_objects(scratch):
    here, out = os.path.join(ROOT, "tests/differential"), []
    for name in sorted(os.listdir(here)):
        if name.endswith(".c"):
            out.append(os.path.join(scratch, name + ".runner.o"))
            subprocess.run(
                os.environ.get("CC", "cc").split()
                + FLAGS
                + ["-include", os.path.join(ROOT, "build/parts.h"), "-c", os.path.join(here, name), "-o", out[-1]],
                check=True,
            )
    return out


def draw_passing(options, draw_all, run, scratch):
    """The cases that pass without a planted error, by part."""
    passing, total = {}, 0
    for part, seed, _ in draw_all(options, scratch):
        try:
            case = part(seed, scratch)
        except Exception as error:
            print("%s of seed %d cannot be drawn: %s" % (part.part, seed, error))
            continue
        total += 1
        if not run(case, options.runner, scratch):
            passing.setdefault(part.part, []).append(case)
    print("%d of %d cases pass without an error" % (sum(map(len, passing.values())), total), flush=True)
    return passing


def find_all(options, draw_all, run, scratch):
    place = os.path.join(scratch, "src")
    subprocess.run(["cp", "-R", os.path.join(ROOT, "src"), place], check=True)
    objects = runner_objects(scratch)
    options.models = min(options.models, MODELS)
    passing = draw_passing(options, draw_all, run, scratch)
    found = missed = 0
    for entry in PLANTS:
        family, part, source, _, _, words = entry
        runner, by = plant(entry, place, scratch, objects), None
        tried = 0
        for case in passing.get(part, []) if runner else []:
            tried += 1
            complaints = run(case, runner, scratch)
            if complaints:
                by = "seed %d: %s" % (case.seed, complaints[0][:70])
                break
        found, missed = found + bool(by), missed + (not by)
        outcome = "found" if by else "NOT FOUND" if runner else "%s HAS CHANGED" % source
        print("%-24s %-58s %s" % (family, words, outcome + (" by case %d, %s" % (tried, by) if by else "")), flush=True)
    print("%d passed, %d failed" % (found, missed))
    return missed > 0
