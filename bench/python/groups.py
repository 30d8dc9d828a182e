"""Times operations of torch.distributed with one backend, and a step of data-parallel training. Prints a
line of JSON a row. To be started as torchrun does.

    torchrun --nproc-per-node 2 bench/python/groups.py tradewind
"""

import json
import sys
from time import perf_counter

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BACKEND = sys.argv[1]
if BACKEND == "tradewind":
    import tradewind.torch  # noqa: F401

SIZES = (8, 1024, 32768, 1 << 20, 4 << 20)
SECONDS, BATCHES = 0.3, 5

# Width of six square layers, and the steps that are timed.
MODELS = ((64, 60), (256, 40), (1024, 8), (2896, 3))

torch.set_num_threads(1)
dist.init_process_group(BACKEND)


def largest(seconds):
    value = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value.item()


def median(values):
    return sorted(values)[len(values) // 2]


def batches(call, count=4):
    times = []
    while len(times) < BATCHES:
        dist.barrier()
        begun = perf_counter()
        for _ in range(count):
            call()
        taken = largest(perf_counter() - begun)
        if taken < SECONDS / BATCHES / 2:
            count *= 2
            continue
        times.append(taken / count)
    return median(times)


def show(what, size, seconds):
    if dist.get_rank() == 0:
        print(json.dumps({"what": what, "bytes": size, "form": "torch", "us": seconds * 1e6}), flush=True)


def training(width, steps):
    """Seconds of a step, and without communication."""
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(32, width)

    def step():
        optimizer.zero_grad()
        (model(inputs) ** 2).mean().backward()
        optimizer.step()

    def alone():
        with model.no_sync():
            step()

    times = {step: [], alone: []}
    for _ in range(BATCHES):
        for call, of_call in times.items():
            call()
            dist.barrier()
            begun = perf_counter()
            for _ in range(steps):
                call()
            of_call.append(largest(perf_counter() - begun) / steps)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return parameters, *map(median, times.values())


show("barrier", 0, batches(dist.barrier))
for size in SIZES:
    tensor = torch.ones(size // 4)
    show("all_reduce", size, batches(lambda tensor=tensor: (dist.all_reduce(tensor), tensor.fill_(1))))
for width, steps in MODELS:
    parameters, step, alone = training(width, steps)
    show("training step", 4 * parameters, step)
    show("training step, communication", 4 * parameters, step - alone)
dist.destroy_process_group()
