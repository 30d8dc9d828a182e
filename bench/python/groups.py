"""Times operations of torch.distributed with one backend, and a step of data-parallel training. Prints a
line of JSON a row. To be started as torchrun does.

    torchrun --nproc-per-node 2 bench/python/groups.py tradewind
"""

import sys

import torch
import torch.distributed as dist
from timer import BATCHES, Timer, median
from torch.nn.parallel import DistributedDataParallel

BACKEND = sys.argv[1]
if BACKEND == "tradewind":
    import tradewind.torch  # noqa: F401

SIZES = (8, 1024, 32768, 1 << 20, 4 << 20)

# Seconds of a row.
SECONDS = 0.3

# Width of six square layers, and the steps that are timed.
MODELS = ((64, 60), (256, 40), (1024, 8), (2896, 3))

torch.set_num_threads(1)
dist.init_process_group(BACKEND)


def largest(seconds):
    value = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value.item()


timer = Timer(dist.get_rank(), dist.barrier, largest, SECONDS)


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
            of_call.append(timer.batch(call, steps))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return parameters, *map(median, times.values())


timer.show("barrier", 0, "torch", timer.batches(dist.barrier))
for size in SIZES:
    tensor = torch.ones(size // 4)
    seconds = timer.batches(lambda tensor=tensor: (dist.all_reduce(tensor), tensor.fill_(1)))
    timer.show("all_reduce", size, "torch", seconds)
for width, steps in MODELS:
    parameters, step, alone = training(width, steps)
    timer.show("training step", 4 * parameters, "torch", step)
    timer.show("training step, communication", 4 * parameters, "torch", step - alone)
dist.destroy_process_group()
