"""Generates logs like those of `mirrortrain fit --run DIR`, for tests of the report."""
import base64
import json
import math
import struct
import sys
import zlib


def png(pixels, height, width):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    lines = b"".join(b"\0" + bytes(pixels[y * width:(y + 1) * width]) for y in range(height))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )


def ring(kind):
    """A ring, more or less oval."""
    out = []
    for y in range(28):
        for x in range(28):
            d = math.hypot((x - 13.5) / (6 + kind % 4), (y - 13.5) / (10 - kind % 3))
            out.append(max(0, min(255, int(255 * (1.6 - 5 * abs(d - 1))))))
    return png(out, 28, 28)


def use(t, seconds, gpus):
    """What devices did; the last of several GPUs does less."""
    devices = []
    for d in range(gpus or 2):
        busy = (0.9 if not gpus or d < gpus - 1 else 0.5) + 0.03 * math.sin(t + d)
        devices.append(
            {"name": "%s:%d" % ("gpu" if gpus else "cpu", d), "busy": busy, "input": 0.06 + 0.02 * math.cos(t),
             "samples": 6000, "bytes": 187 << 20}
        )
        if gpus:
            devices[d].update(
                utilization=busy + 0.05, used_bytes=(9 << 30) + (d << 26), all_bytes=80 << 30, watts=310 * busy + 5 * d
            )
    return {"seconds": seconds, "images_per_second": 6600.5, "resident_bytes": 380 << 20, "peak_bytes": 412 << 20,
            "devices": devices}


def lines(epochs=6, per_epoch=94, names=None, model="mnist", ended=True, timing=True, predictions=True, gpus=0):
    names = names or [str(i) for i in range(10)]
    n = len(names)
    yield {
        "event": "begin",
        "time": 1795300000.25,
        "model": model,
        "parameters": 347146,
        "epochs": epochs,
        "batch": 128,
        "batches": per_epoch,
        "devices": 2,
        "replicas": 2,
        "threads": 1,
        "seed": 0,
        "optimizer": "adam",
        "learning_rate": 0.001,
        "loss": "sparse_categorical_crossentropy",
        "logs": {"loss": {"direction": "min"}, "accuracy": {"direction": "max", "share": True}},
        "environment": {
            "mirrortrain": "0.1.0",
            "compiler": "gcc 12.2.0",
            "language": "C17",
            "compiled_in": {"optimization": True, "threads": True, "stb_image": True, "cuda": False},
            "processor": "AMD EPYC 7763 64-Core Processor",
            "cores": 2,
            "instructions": "avx2 fma",
            "kernels": "avx2",
            "variables": {},
        },
    }
    for e in range(epochs):
        rate = 1e-3 if e < 3 else 1e-4
        for b in range(0, per_epoch, 2):
            t = e + (b + 1) / per_epoch
            yield {
                "event": "step",
                "step": e * per_epoch + b,
                "epoch": e,
                "batch": b,
                "batches": per_epoch,
                "batch_loss": 2.3 * math.exp(-1.7 * t) + 0.06 + 0.05 * math.sin(37 * t),
                "learning_rate": rate,
            }
        t = e + 1
        if gpus:
            middle = {"event": "use", "epoch": e, "batch": per_epoch // 2, "batches": per_epoch}
            yield dict(middle, use=use(t - 0.5, 0.9, gpus))
        yield {
            "event": "epoch",
            "epoch": e,
            "step": t * per_epoch,
            "batch": per_epoch,
            "batches": per_epoch,
            "loss": 1.4 * math.exp(-t) + 0.05,
            "accuracy": 1 - 0.4 * math.exp(-t) - 0.01,
            "learning_rate": rate,
            "val_loss": 1.1 * math.exp(-t) + 0.07 + 0.002 * t,
            "val_accuracy": 1 - 0.3 * math.exp(-t) - 0.015,
            "seconds": 1.83 + 0.01 * e,
            "input_seconds": 0.11,
            "use": use(t, 1.83, gpus),
        }
    if timing:
        phases = {
            "input wait": 0.61,
            "scatter": 0.05,
            "forward": 3.1,
            "backward": 5.2,
            "all-reduce, hidden": 0.2,
            "all-reduce, exposed": 0.9,
            "update": 0.4,
            "imbalance": 0.35,
            "callbacks": 0.02,
            "launch overhead": 0.17,
        }
        yield {
            "event": "timing",
            "steps": epochs * per_epoch,
            "peak_bytes": 412 << 20,
            "seconds": 11.0,
            "phases": phases,
            "devices": [
                {"name": "cpu:0", "busy": 0.91, "samples": 36096, "bytes": 187 << 20},
                {"name": "cpu:1", "busy": 0.86, "samples": 35904, "bytes": 171 << 20},
            ],
            "verdict": "balanced: 75 % of a step is computing; the all-reduce takes 8 % of it, the wait for input 6 %",
        }
    if predictions:
        matrix = [
            [980 - 3 * i if i == j else (i * 7 + j * 3) % 5 if (i + j) % 3 else 0 for j in range(n)] for i in range(n)
        ]
        yield {"event": "confusion", "classes": names, "matrix": matrix}
        yield {
            "event": "samples",
            "items": [
                {
                    "index": i,
                    "true": i % n,
                    "predicted": (i + 3) % n if i in (5, 9) else i % n,
                    "score": 0.99 - 0.03 * i,
                    "png": base64.b64encode(ring(i)).decode(),
                }
                for i in range(16)
            ],
        }
    if ended:
        yield {
            "event": "end",
            "status": "finished",
            "step": epochs * per_epoch,
            "seconds": 11.0,
            "input_seconds": 0.61,
            "images_per_second": 6545.4,
            "time": 1795300012.0,
        }


def write(path, **how):
    with open(path, "w") as f:
        for line in lines(**how):
            f.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    write(sys.argv[1])
