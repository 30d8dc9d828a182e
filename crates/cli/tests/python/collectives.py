"""Every method of the module, on ranks that are processes, or threads with the argument `local`."""

import sys
import threading

import numpy as np

import tradewind as tw


def equal(found, expected):
    np.testing.assert_array_equal(found, expected)


def reductions(world):
    rank, size = world.rank, world.size
    sum_of_ranks = size * (size - 1) // 2
    for kind in ("i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"):
        own = (np.arange(6).reshape(2, 3) + rank).astype(kind)
        total = world.allreduce(own)
        assert total.dtype == own.dtype and total.shape == (2, 3)
        equal(total, (np.arange(6).reshape(2, 3) * size + sum_of_ranks).astype(kind))
    own = np.arange(4.0) + rank
    equal(world.allreduce(own, op=tw.MAX), np.arange(4) + size - 1)
    equal(world.allreduce(own, op=tw.MIN), np.arange(4))
    equal(world.allreduce(np.full(2, 2), op=tw.PRODUCT), [2**size] * 2)
    equal(world.allreduce(np.array([1 << rank]), op=tw.OR), [(1 << size) - 1])
    equal(world.allreduce(np.array([1 << rank]), op=tw.XOR), [(1 << size) - 1])
    equal(world.allreduce(np.full(2, 1j), op=tw.PRODUCT), [1j**size] * 2)
    flags = np.array([True, rank == 0])
    equal(world.allreduce(flags, op=tw.AND), [True, size == 1])
    equal(world.allreduce(flags, op=tw.OR), [True, True])
    # Numbers without memory, and arrays without elements.
    assert world.allreduce(1.5) == 1.5 * size
    assert world.allreduce(np.int32(rank)).dtype == np.int32
    assert world.allreduce(np.zeros((3, 0))).shape == (3, 0)
    # In place, by either way to say so.
    for make in (lambda array: tw.IN_PLACE, lambda array: array):
        array = own.copy()
        assert world.allreduce(make(array), out=array) is array
        equal(array, np.arange(4) * size + sum_of_ranks)
    total = world.reduce(own, root=size - 1)
    assert (total is None) == (rank != size - 1)
    if total is not None:
        equal(total, np.arange(4) * size + sum_of_ranks)
    array = own.copy()
    world.reduce(tw.IN_PLACE if rank == 0 else array, out=array if rank == 0 else None)
    equal(array, np.arange(4) * size + sum_of_ranks if rank == 0 else own)
    equal(world.scan(np.array([1])), [rank + 1])
    equal(world.exscan(np.array([1])), [rank])
    equal(world.reduce_scatter_block(np.arange(3 * size)), size * np.arange(3 * rank, 3 * rank + 3))
    counts = [other + 1 for other in range(size)]
    begin = sum(counts[:rank])
    part = world.reduce_scatter(np.arange(sum(counts)), counts)
    equal(part, size * np.arange(begin, begin + rank + 1))


def blocks(world):
    rank, size = world.rank, world.size
    own = np.arange(6.0).reshape(2, 3) + rank
    everything = np.stack([np.arange(6.0).reshape(2, 3) + other for other in range(size)])
    equal(world.allgather(own), everything)
    # The own block in its place.
    whole = np.zeros_like(everything)
    whole[rank] = own
    equal(world.allgather(whole[rank], out=whole), everything)
    equal(world.allgather(tw.IN_PLACE, out=whole), everything)
    gathered = world.gather(own, root=size - 1)
    if rank == size - 1:
        equal(gathered, everything)
    array = np.ones(4) if rank == 0 else np.zeros(4)
    assert world.bcast(array) is array
    equal(array, np.ones(4))
    sent = np.arange(2 * size).reshape(size, 2) if rank == 0 else None
    equal(world.scatter(sent, out=np.zeros(2, dtype=int)), [2 * rank, 2 * rank + 1])
    equal(world.alltoall(np.arange(size) + 10 * rank), rank + 10 * np.arange(size))
    counts = [other + 1 for other in range(size)]
    steps = np.repeat(np.arange(size), counts)
    equal(world.allgatherv(np.full(rank + 1, rank), counts), steps)
    is_root = rank == size - 1
    gathered = world.gatherv(np.full(rank + 1, rank), counts if is_root else None, root=size - 1)
    if is_root:
        equal(gathered, steps)
    arguments = (gathered, counts) if is_root else (None, None)
    own = np.zeros(rank + 1, dtype=int)
    equal(world.scatterv(*arguments, out=own, root=size - 1), [rank] * (rank + 1))
    received = world.alltoallv(steps, counts, [rank + 1] * size)
    equal(received, [rank] * size * (rank + 1))
    # Elements that are never combined may be of any type.
    pairs = np.array([(rank, 0.5)], dtype=[("rank", "i4"), ("half", "f2")])
    assert list(world.allgather(pairs)["rank"][:, 0]) == list(range(size))
    # Objects that are no arrays of numpy.
    text = bytearray(b"tell" if rank == 0 else b"....")
    world.bcast(text)
    assert text == b"tell"


def neighbours(world):
    rank, size = world.rank, world.size
    before, behind = (rank - 1) % size, (rank + 1) % size
    ring = world.neighbors([before], [behind])
    assert (ring.sources, ring.destinations) == ([before], [behind])
    equal(ring.neighbor_allgather(np.array([rank])), [[before]])
    equal(ring.neighbor_alltoall(np.array([[rank, 1]])), [[before, 1]])
    sent = np.full(rank + 1, rank)
    equal(ring.neighbor_alltoallv(sent, [rank + 1], [before + 1]), [before] * (before + 1))
    equal(ring.neighbor_allgatherv(sent, [before + 1]), [before] * (before + 1))
    line = world.cartesian([size], [False])
    assert line.sources == [rank - 1 if rank else None, rank + 1 if rank + 1 < size else None]
    output = np.full((2, 1), 9)
    line.neighbor_allgather(np.array([rank]), output)
    equal(output[:, 0], [9 if source is None else source for source in line.sources])


def forms(world):
    rank, size = world.rank, world.size
    request = world.iallreduce(np.array([float(rank)]))
    equal(request.wait(), [size * (size - 1) / 2])
    assert request.done and request.test()
    equal(request.wait(), [size * (size - 1) / 2])
    request = world.ibarrier()
    while not request.test():
        pass
    assert request.wait() is None
    own, total = np.zeros(3), np.zeros(3)
    plan = world.allreduce_init(own, total)
    for step in range(1, 5):
        own += 1
        equal(plan.start().wait(), np.full(3, step * size))
    barrier = world.barrier_init()
    tw.wait_all([barrier.start()])
    copies = world.bcast_init(np.array([rank]), root=size - 1)
    equal(copies.start().wait(), [size - 1])
    blocks = world.alltoall_init(np.arange(size) + rank, out=np.zeros(size, dtype=int))
    equal(blocks.start().wait(), np.arange(size) + rank)
    plan = world.allgatherv_init(np.full(rank + 1, rank), [other + 1 for other in range(size)])
    equal(plan.start().wait(), np.repeat(np.arange(size), range(1, size + 1)))
    # Functions that are called at the end may wait for other requests.
    done = threading.Event()
    first, second = world.iallreduce(np.ones(1)), world.iallreduce(np.ones(2))

    def wait_for_second(_first):
        second.on_complete(lambda _second: done.set())
        assert done.wait(30)
        both.set()

    both = threading.Event()
    first.on_complete(wait_for_second)
    assert both.wait(30)
    late = threading.Event()
    never = world.irecv(np.zeros(1), rank, 77)
    never.on_complete(lambda request: late.set() if not request.done else None, timeout=0.05)
    assert late.wait(30)
    # Requests may be dropped, and so may the arrays.
    for _ in range(100):
        world.iallreduce(np.ones(1000))
    world.barrier()


def messages(world):
    rank, size = world.rank, world.size
    before, behind = (rank - 1) % size, (rank + 1) % size
    got = np.zeros(5, dtype=int)
    status = world.sendrecv(np.array([rank]), behind, got, before)
    assert (status.source, status.tag, status.bytes) == (before, 0, 8) and got[0] == before
    receive = world.irecv(got, source=tw.ANY, tag=5)
    send = world.isend(np.arange(5), behind, tag=5)
    assert receive.wait().tag == 5 and list(got) == [0, 1, 2, 3, 4]
    assert send.wait() is None
    send = world.isend(b"probe", behind, tag=6)
    assert world.probe(before).bytes == 5
    assert world.iprobe(before, 7) is None
    world.recv(bytearray(5), before)
    send.wait()
    # A message longer than any ring.
    long = np.full(1 << 20, rank)
    request = world.isend(long, behind)
    world.recv(other := np.zeros_like(long), before)
    request.wait()
    equal(other, np.full(1 << 20, before))
    world.barrier()


def objects(world):
    rank, size = world.rank, world.size
    before, behind = (rank - 1) % size, (rank + 1) % size
    values = [None, "text" * 5000, {"array": np.arange(100_000)}, [np.ones(3)] * 500, b""]
    for value in values:
        expected = value["array"] if isinstance(value, dict) else value
        if rank % 2 == 0 and size > 1:
            world.send_object(value, behind if behind != rank else 0, tag=3)
        if (rank % 2 == 1 or (rank == 0 and size % 2 == 1)) and size > 1:
            found, status = world.recv_object(before, 3)
            assert (status.source, status.tag) == (before, 3)
            found = found["array"] if isinstance(value, dict) else found
            np.testing.assert_equal(found, expected)
    assert world.allgather_object({"rank": rank}) == [{"rank": other} for other in range(size)]
    assert world.bcast_object([1, 2, rank] if rank == 0 else None) == [1, 2, 0]
    assert world.gather_object(rank, root=size - 1) == (list(range(size)) if rank == size - 1 else None)
    assert world.scatter_object([str(to) for to in range(size)] if rank == 0 else None) == str(rank)
    pairs = [(rank, to) for to in range(size)]
    assert world.alltoall_object(pairs) == [(other, rank) for other in range(size)]


def communicators(world):
    rank, size = world.rank, world.size
    half = world.split(rank % 2)
    assert (half.size, half.rank) == ((size + 1 - rank % 2) // 2, rank // 2)
    assert world.split(0 if rank == 0 else None) is not None or rank > 0
    assert world.dup().size == size
    here = world.split_by_node()
    assert here.nodes == 1 and here.size <= size
    if rank in (0, size - 1):
        ranks = sorted({0, size - 1}, reverse=True)
        group = world.create_from_group(ranks, 99)
        assert ranks[group.rank] == rank
        group.barrier()
    assert not world.progress(), "nothing is queued"


def run(world):
    for part in (reductions, blocks, neighbours, forms, messages, objects, communicators):
        part(world)
    world.barrier()
    return world.rank


if __name__ == "__main__":
    if "local" in sys.argv:
        for ranks in (1, 2, 3, 5):
            assert tw.local(ranks, run) == list(range(ranks))
        assert tw.local_nodes([2, 1], run) == [0, 1, 2]
    else:
        world = tw.world()
        assert world is tw.world()
        run(world)
    print("all is right")
