#!/usr/bin/env python3
"""Images per second of PyTorch's DistributedDataParallel (gloo) on cores, for processes of one thread.

    peer_ddp.py mnist|mobilenet_v2 PROCESSES GLOBAL_BATCH [STEPS]

Needs torch, and torchvision for mobilenet_v2. Prints the rate of the median step.
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


def network(name):
    if name == "mnist":
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5408, 64),
                             nn.ReLU(), nn.Linear(64, 10)), (1, 28, 28), 10
    import torchvision

    return torchvision.models.mobilenet_v2().to(memory_format=torch.channels_last), (3, 224, 224), 1000


def worker(rank, processes, name, batch, steps):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611")
    dist.init_process_group("gloo", rank=rank, world_size=processes)
    torch.manual_seed(0)
    model, shape, classes = network(name)
    x, y = torch.rand(batch // processes, *shape), torch.randint(0, classes, (batch // processes,))
    if name != "mnist":
        x = x.to(memory_format=torch.channels_last)
    model = nn.parallel.DistributedDataParallel(model)
    optimizer, loss_of = torch.optim.Adam(model.parameters(), fused=True), nn.CrossEntropyLoss()
    times = []
    for _ in range(steps + 3):
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()
        times.append(time.perf_counter() - began)
    if rank == 0:
        print("%s, %d processes of 1 thread, batch %d: %.1f images/s, torch %s" %
              (name, processes, batch, batch / statistics.median(times[3:]), torch.__version__))
    dist.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    count, rows = int(sys.argv[2]), int(sys.argv[3])
    most = int(sys.argv[4]) if len(sys.argv) > 4 else 20
    torch.multiprocessing.spawn(worker, args=(count, sys.argv[1], rows, most), nprocs=count)
