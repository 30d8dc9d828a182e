"""Data-parallel training with torch: gradients are summed while the backward pass goes on.

    torchrun --nproc-per-node 2 examples/python/train.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tradewind.torch  # the backend "tradewind"

dist.init_process_group("tradewind")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

# Each rank has its own examples of the sum of all inputs.
inputs = torch.randn(256, 16, generator=torch.Generator().manual_seed(rank))
targets = inputs.sum(dim=1, keepdim=True)

for step in range(50):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()

# The models of all ranks are the same.
weights = torch.cat([parameter.detach().view(-1) for parameter in model.parameters()])
largest = weights.clone()
dist.all_reduce(largest, op=dist.ReduceOp.MAX)
assert torch.equal(largest, weights)
mean = loss.detach().clone()
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
if rank == 0:
    print(f"{size} ranks, loss {mean.item():.4f}")
dist.destroy_process_group()
