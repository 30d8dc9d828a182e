"""Calls that are refused, with the exception and its text."""

import os
import sys

import numpy as np

import tradewind as tw


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        assert isinstance(error, tw.Error)
    else:
        raise AssertionError(f"{text!r} was not raised")


class OnDevice:
    """An array in the memory of a GPU."""

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self):
        raise AssertionError("it is not read")


class Exported:
    """An array that has DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self):
        return self.array.__dlpack__()


def run(world):
    rank, size = world.rank, world.size
    table, flat = np.zeros((4, 3)), np.zeros(12)
    array, argument = tw.ArrayError, tw.ArgumentError
    refused(array, "not contiguous", lambda: world.allreduce(table.T, out=np.zeros((3, 4))))
    refused(array, "not contiguous", lambda: world.bcast(table[:, 1]))
    refused(array, "not contiguous", lambda: world.allreduce(Exported(table.T), out=flat))
    refused(array, "read-only", lambda: world.allreduce(np.zeros(2), out=bytes(16)))
    refused(array, "elements of 2 bytes", lambda: world.allreduce(np.zeros(2, dtype="S2")))
    refused(array, "use OR or AND", lambda: world.allreduce(np.zeros(2, dtype=bool)))
    refused(array, "complex numbers have SUM and PRODUCT", lambda: world.allreduce(np.zeros(2, dtype="c8"), op=tw.MAX))
    refused(array, "integers or of bool", lambda: world.allreduce(flat, op=tw.XOR))
    refused(array, "the input has float64, the output float32", lambda: world.allreduce(flat, np.zeros(12, "f4")))
    refused(array, "overlap", lambda: world.allreduce(flat[:8], out=flat[4:]))
    whole = np.zeros(4 * size)
    refused(array, "overlap", lambda: world.allgather(whole[rank : rank + 1], out=whole))
    refused(array, "device 0 of kind 2", lambda: world.allreduce(OnDevice(), out=flat))
    refused(array, "elements of 8 bytes", lambda: world.allreduce(np.zeros(2, ">f8")))
    refused(argument, "the root is", lambda: world.bcast(flat, root=size))
    refused(argument, "the receiver of a message is", lambda: world.send(flat, size))
    refused(argument, "impossible", lambda: world.alltoallv(flat, [1] * size, [2**63] * size))
    if size > 1:
        odd = np.zeros(2 * size + 1)
        refused(argument, "not a multiple of the", lambda: world.alltoall(odd, odd.copy()))
    refused(argument, "no input", lambda: world.allreduce(None))
    refused(argument, "pass out=", lambda: world.allreduce(tw.IN_PLACE))
    refused(argument, "twice", lambda: world.create_from_group([rank, rank], 0))
    refused(argument, "impossible", lambda: world.ibarrier().wait(timeout=-1))
    refused(TimeoutError, "after 50ms", lambda: world.irecv(flat, 0, 1).wait(timeout=0.05))
    refused(TypeError, "object is no array", lambda: world.allreduce(object(), out=flat))
    objects = np.array([{"a": 1}, None], dtype=object)
    refused(array, "references to objects", lambda: world.allgather(objects))
    refused(array, "references to objects", lambda: world.bcast(np.zeros(2, dtype=[("one", "O"), ("two", "i4")])))
    named = np.zeros(2, dtype=[("Oh", "f8")])
    world.allgather(named)
    for count in (2**61 + 1, 2**63):
        refused(argument, "impossible", lambda: world.allgatherv(flat, [count] * size, out=np.zeros(12 * size)))
    # A refused call starts nothing.
    world.barrier()
    total = np.zeros(12)
    world.allreduce(Exported(flat + 1), out=total)
    assert list(total) == [size] * 12
    if size > 1:
        refused(tw.MismatchError, "allreduce", lambda: world.allreduce(flat[: rank + 1].copy()))


def forked(world):
    """A fork of a rank has no part in the job, and its end changes nothing there."""
    request = world.irecv(np.zeros(1), world.rank, 8)
    child = os.fork()
    if child == 0:
        refused(tw.Error, "fork of a rank", lambda: world.barrier())
        refused(tw.Error, "fork of a rank", lambda: tw.world())
        refused(tw.Error, "fork of a rank", lambda: request.wait())
        refused(tw.Error, "fork of a rank", lambda: request.test())
        refused(tw.Error, "fork of a rank", lambda: request.on_complete(print))
        del request, world
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    world.send(np.ones(1), world.rank, 8)
    request.wait()
    world.barrier()


if __name__ == "__main__":
    world = tw.world()
    forked(world)
    run(world)
    tw.leave()
    refused(tw.Error, "left the job", lambda: world.barrier())
    print("all is right")
