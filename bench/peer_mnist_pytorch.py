#!/usr/bin/env python3
"""Training rate of the MNIST convnet in PyTorch on this machine's CPU, in its fastest settings.
Prints one JSON line a setting, and the two fastest again, longer, with "final": true."""
from peer_mnist import arguments, digits, measure

import torch
from torch import nn

args = arguments(__doc__).parse_args()
torch.set_num_threads(args.threads)
pixels, labels = digits(args.mnist)
pixels = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
labels = torch.from_numpy(labels)


def loop(batch, compiled=False, channels_last=False, threads=args.threads):
    """A plain loop over tensors in memory."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5408, 64),
                          nn.ReLU(), nn.Linear(64, 10)).to(memory_format=layout)
    x = pixels.to(memory_format=layout).split(batch)[:len(pixels) // batch]
    y = labels.split(batch)
    adam = torch.optim.Adam(model.parameters(), fused=True)
    loss_of = nn.CrossEntropyLoss()

    def forward(a, b):
        return loss_of(model(a), b)
    if compiled:
        forward = torch.compile(forward)

    def run(count):
        torch.set_num_threads(threads)
        for i in range(count):
            adam.zero_grad(set_to_none=True)
            loss = forward(x[i % len(x)], y[i % len(x)])
            loss.backward()
            adam.step()
        loss.item()
        return count
    return run


measure("pytorch", torch.__version__, args, {
    "eager": loop,
    "eager, channels_last": lambda batch: loop(batch, channels_last=True),
    "eager, 1 thread": lambda batch: loop(batch, threads=1),
    "compile": lambda batch: loop(batch, compiled=True),
    "compile, channels_last": lambda batch: loop(batch, compiled=True, channels_last=True),
})
