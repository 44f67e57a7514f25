#!/usr/bin/env python3
"""PyTorch on a GPU: answers a line of JSON on stdin (network, forward, dtype, batch, size, mode, seconds) with its images a second.
Modes: eager, graph (the whole step in a CUDA graph), compile (reduce-overhead, which has graphs of its own)."""
import argparse
import json
import statistics
import sys
import time

import torch


def network(name, forward):
    from torch import nn
    if name == "mnist":
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5408, 64), nn.ReLU(), nn.Linear(64, 10)), 1, 10
    import torchvision
    model = getattr(torchvision.models, name)(weights=None)
    if forward:
        model.classifier = nn.Identity()
    return model, 3, 1000


def step_of(args, device):
    """A function that does one step, and waits for nothing."""
    model, channels, classes = network(args["network"], args["forward"])
    cuda = device.startswith("cuda")
    model = model.to(device, memory_format=torch.channels_last)
    x = torch.randn(args["batch"], channels, args["size"], args["size"], device=device).contiguous(memory_format=torch.channels_last)
    half = torch.autocast("cuda" if cuda else "cpu", dtype=torch.bfloat16, enabled=args["dtype"] == "bf16", cache_enabled=args["mode"] != "graph")
    run = torch.compile(model, mode="reduce-overhead") if args["mode"] == "compile" else model
    if args["forward"]:
        model.eval()

        def step():
            with torch.no_grad(), half:
                run(x)
    else:
        y = torch.randint(0, classes, (args["batch"],), device=device)
        adam = torch.optim.Adam(model.parameters(), fused=True, capturable=cuda)
        loss_of = torch.nn.CrossEntropyLoss()

        def step():
            adam.zero_grad(set_to_none=True)
            with half:
                loss = loss_of(run(x), y)
            loss.backward()
            adam.step()
    if args["mode"] != "graph" or not cuda:
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def rate(step, batch, seconds, device):
    """Images a second of the median of groups of steps, each waited for."""
    def wait():
        if device.startswith("cuda"):
            torch.cuda.synchronize()
    for _ in range(5):
        step()
    wait()
    start = time.perf_counter()
    step()
    wait()
    group = max(1, min(50, int(0.1 / max(1e-6, time.perf_counter() - start))))
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        for _ in range(group):
            step()
        wait()
        times.append((time.perf_counter() - start) / group)
    return batch / statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    device = parser.parse_args().device
    if device.startswith("cuda"):
        if not torch.cuda.is_available():
            print(json.dumps({"error": "PyTorch sees no GPU"}), flush=True)
            return
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    print(json.dumps({"version": torch.__version__}), flush=True)
    for line in sys.stdin:
        args = json.loads(line)
        try:
            answer = {"images_per_second": float(rate(step_of(args, device), args["batch"], args["seconds"], device))}
        except Exception as error:  # the next setting may run
            answer = {"error": ("%s: %s" % (type(error).__name__, error)).splitlines()[0][:160]}
        print(json.dumps(answer), flush=True)
        torch._dynamo.reset()
        if device.startswith("cuda"):
            torch.cuda.empty_cache()


main()
