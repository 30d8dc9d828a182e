"""All operations of a process group of torch. To be started as torchrun does."""

import datetime
import os
import time

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp
from torch.nn.parallel import DistributedDataParallel

import tradewind.torch

torch.set_num_threads(1)
dist.init_process_group("tradewind")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
SUM = SIZE * (SIZE - 1) // 2


def equal(found, expected):
    expected = torch.as_tensor(expected).to(found.dtype)
    assert torch.equal(found, expected.expand_as(found)), f"{found} is not {expected}"


def reductions():
    numbers = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16)
    for dtype in (*numbers, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64):
        tensor = (torch.arange(10) + RANK).to(dtype)
        dist.all_reduce(tensor)
        equal(tensor, (torch.arange(10) * SIZE + SUM).to(dtype))
    for op, expected in ((ReduceOp.MAX, SIZE - 1), (ReduceOp.MIN, 0), (ReduceOp.AVG, SUM / SIZE)):
        tensor = torch.full((3,), float(RANK))
        dist.all_reduce(tensor, op=op)
        equal(tensor, expected)
    tensor = torch.full((3,), 7 * SIZE + RANK)
    dist.all_reduce(tensor, op=ReduceOp.AVG)
    equal(tensor, (7 * SIZE * SIZE + SUM) // SIZE)
    tensor = torch.full((3,), RANK + 1.0)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5))
    equal(tensor, (SUM + SIZE) / 2)
    for op, expected in ((ReduceOp.BOR, (1 << SIZE) - 1), (ReduceOp.BAND, 0 if SIZE > 1 else 1)):
        tensor = torch.tensor([1 << RANK])
        dist.all_reduce(tensor, op=op)
        equal(tensor, expected)
    flags = torch.tensor([True, RANK == 0])
    for op, expected in ((ReduceOp.SUM, [True, True]), (ReduceOp.MIN, [True, SIZE == 1])):
        tensor = flags.clone()
        dist.all_reduce(tensor, op=op)
        equal(tensor, expected)
    # Neither contiguous nor without a graph.
    tensor = torch.full((2, 3), float(RANK), requires_grad=True).t()
    with torch.no_grad():
        dist.all_reduce(tensor)
    equal(tensor, SUM)
    for root in range(SIZE):
        for dtype in (torch.float32, torch.bfloat16):
            tensor = torch.full((3,), RANK, dtype=dtype)
            dist.reduce(tensor, dst=root)
            equal(tensor, SUM if RANK == root else RANK)
    tensors = [torch.full((2,), float(RANK)), torch.full((3, 3), 2.0 * RANK)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    equal(tensors[0], SUM)
    equal(tensors[1], 2 * SUM)
    mixed = [torch.full((2,), RANK + 1), torch.full((2,), RANK + 0.5)]
    with dist._coalescing_manager():
        for tensor in mixed:
            dist.all_reduce(tensor)
    equal(mixed[0], SUM + SIZE)
    equal(mixed[1], SUM + SIZE / 2)


def gathers():
    tensor = torch.full((2, 3), float(RANK))
    dist.broadcast(tensor, src=SIZE - 1)
    equal(tensor, SIZE - 1)
    own = torch.full((2, 2), float(RANK))
    parts = [torch.zeros(2, 2) for _ in range(SIZE)]
    dist.all_gather(parts, own)
    for rank, part in enumerate(parts):
        equal(part, rank)
    lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(SIZE)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(RANK)), torch.full((3,), 10.0 + RANK)])
    for rank, (short, long) in enumerate(lists):
        equal(short, rank)
        equal(long, 10 + rank)
    steps = torch.arange(SIZE).repeat_interleave(2)
    whole = torch.zeros(2 * SIZE)
    dist.all_gather_into_tensor(whole, torch.full((2,), float(RANK)))
    equal(whole, steps)
    # From the place of the own block, and from that of another one.
    for place in (RANK, (RANK + 1) % SIZE):
        whole = torch.zeros(2 * SIZE)
        mine = whole[2 * place : 2 * place + 2]
        mine.fill_(RANK)
        dist.all_gather_into_tensor(whole, mine)
        equal(whole, steps)
    root = SIZE - 1
    parts = [torch.zeros(2) for _ in range(SIZE)] if RANK == root else None
    dist.gather(torch.full((2,), float(RANK)), parts, dst=root)
    for rank, part in enumerate(parts or []):
        equal(part, rank)


def scatters():
    root = SIZE - 1
    tensor = torch.zeros(2)
    dist.scatter(tensor, [torch.full((2,), float(to)) for to in range(SIZE)] if RANK == root else None, src=root)
    equal(tensor, RANK)
    dist.reduce_scatter(tensor, [torch.full((2,), float(to)) for to in range(SIZE)])
    equal(tensor, RANK * SIZE)
    whole = torch.arange(2.0 * SIZE)
    dist.reduce_scatter_tensor(tensor, whole)
    equal(tensor, [2 * RANK * SIZE, (2 * RANK + 1) * SIZE])
    dist.reduce_scatter_tensor(whole[2 * RANK : 2 * RANK + 2], whole)
    equal(whole[2 * RANK : 2 * RANK + 2], [2 * RANK * SIZE, (2 * RANK + 1) * SIZE])


def exchanges():
    tensor = torch.zeros(SIZE)
    dist.all_to_all_single(tensor, torch.arange(float(SIZE)) + 10 * RANK)
    equal(tensor, RANK + 10.0 * torch.arange(SIZE))
    counts = list(range(1, SIZE + 1))
    steps = torch.arange(SIZE).repeat_interleave(torch.tensor(counts)).float()
    tensor = torch.zeros(SIZE * (RANK + 1), 2)
    dist.all_to_all_single(tensor, torch.stack([steps, steps], 1), [RANK + 1] * SIZE, counts)
    equal(tensor, RANK)
    parts = [torch.zeros(RANK + 1) for _ in range(SIZE)]
    dist.all_to_all(parts, [torch.full((to + 1,), float(RANK)) for to in range(SIZE)])
    for rank, part in enumerate(parts):
        equal(part, rank)


def objects():
    gathered = [None] * SIZE
    dist.all_gather_object(gathered, {"rank": RANK})
    assert gathered == [{"rank": rank} for rank in range(SIZE)]
    values = [RANK, "text"]
    dist.broadcast_object_list(values, src=0)
    assert values == [0, "text"]


def messages():
    behind, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    send = dist.isend(torch.full((4,), float(RANK)), behind, tag=3)
    tensor = torch.zeros(4)
    assert dist.recv(tensor, before, tag=3) == before
    send.wait()
    equal(tensor, before)
    work = dist.irecv(tensor, tag=4)
    dist.send(torch.full((4,), 10.0 + RANK), behind, tag=4)
    work.wait()
    equal(tensor, 10 + before)
    both = [
        dist.P2POp(dist.isend, torch.full((2,), float(RANK)), behind),
        dist.P2POp(dist.irecv, received := torch.zeros(2), before),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    equal(received, before)


def groups():
    half = dist.new_group(list(range(0, SIZE, 2)))
    if RANK % 2 == 0:
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=half)
        equal(tensor, (SIZE + 1) // 2)
    again = dist.new_group(list(range(SIZE)))
    one, two = torch.ones(3), torch.ones(3)
    works = [dist.all_reduce(one, group=again, async_op=True), dist.all_reduce(two, async_op=True)]
    for work in works:
        work.wait()
    equal(one, SIZE)
    equal(two, SIZE)
    dist.destroy_process_group(again)


def futures():
    tensor = torch.ones(3)
    dist.all_reduce(tensor, async_op=True).get_future().wait()
    equal(tensor, SIZE)
    # A function of a future may wait for another operation.
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    other = torch.ones(2, dtype=torch.bfloat16)
    chained = future.then(lambda _: dist.all_reduce(other, async_op=True).get_future().wait()[0])
    equal(chained.wait(), SIZE)
    # A work that is dropped writes its result all the same.
    tensors = [torch.ones(3, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    end = time.monotonic() + 30
    while any(int(tensor[0]) != SIZE for tensor in tensors) and time.monotonic() < end:
        time.sleep(0.001)
    for tensor in tensors:
        equal(tensor, SIZE)


def training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU(), torch.nn.Linear(10, 1))
    wrapped = DistributedDataParallel(model)
    torch.manual_seed(RANK)
    wrapped(torch.randn(4, 10)).sum().backward()
    gradient = model[0].weight.grad.clone()
    dist.all_reduce(gradient)
    assert torch.allclose(gradient, model[0].weight.grad * SIZE)
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    whole = torch.nn.Linear(8, 8 * SIZE)
    torch.manual_seed(0)
    sharded = torch.nn.Linear(8, 8 * SIZE)
    fully_shard(sharded)
    sharded(torch.ones(2, 8) * (RANK + 1)).sum().backward()
    whole(torch.ones(2, 8) * (SUM + SIZE) / SIZE).sum().backward()
    assert torch.allclose(sharded.weight.grad.full_tensor(), whole.weight.grad)


def errors():
    for call in (
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), op=ReduceOp.AVG),
        lambda: dist.all_to_all_single(torch.zeros(SIZE + 1), torch.zeros(SIZE + 1)),
    ):
        try:
            call()
        except ValueError:
            continue
        raise AssertionError("no error")
    # The time of the group bounds waits, also those for futures.
    short = dist.new_group(list(range(SIZE)), timeout=datetime.timedelta(seconds=0.2))
    if RANK == 0 and SIZE > 1:
        for wait in (
            lambda: dist.barrier(group=short),
            lambda: dist.all_reduce(torch.ones(1), group=short, async_op=True).get_future().wait(),
        ):
            try:
                wait()
            except RuntimeError as error:
                assert "not complete after" in str(error), error
            else:
                raise AssertionError("no time-out")
    dist.barrier()


for part in (reductions, gathers, scatters, exchanges, objects, messages, groups, futures, training, errors):
    part()
dist.barrier()
dist.destroy_process_group()
# A job that is there serves the next group.
dist.init_process_group("tradewind")
again = torch.ones(2)
dist.all_reduce(again)
equal(again, SIZE)
if SIZE > 1 and RANK == SIZE - 1:
    os._exit(0)
if SIZE > 1:
    try:
        dist.all_reduce(again)
    except dist.DistBackendError as error:
        assert error.failed_rank == SIZE - 1, error
    else:
        raise AssertionError("no error")
print("all is right")
