"""Message passing in which nonblocking collectives complete while the program computes.

    import numpy as np
    import tradewind as tw

    world = tw.world()
    total = world.iallreduce(np.ones(4) * world.rank)
    ...                                     # compute
    print(total.wait())

`tradewind run -n 4 -- python program.py` starts four ranks. `python -m tradewind` is the command
`tradewind`. `import tradewind.torch` adds a backend of torch.distributed.
"""

import atexit
import os

from tradewind import _objects
from tradewind._command import command
from tradewind._native import (
    IN_PLACE,
    Communicator,
    Memory,
    Neighbors,
    Op,
    Persistent,
    Request,
    Status,
    _forked,
    leave,
    local,
    local_nodes,
    world,
)
from tradewind.errors import (
    ArgumentError,
    ArrayError,
    Error,
    MismatchError,
    NodeUnreachableError,
    OutOfMemoryError,
    RankFailedError,
    TruncatedError,
    WaitTimeoutError,
)

__all__ = [
    "AND",
    "ANY",
    "ArgumentError",
    "ArrayError",
    "Communicator",
    "Error",
    "IN_PLACE",
    "MAX",
    "MIN",
    "Memory",
    "MismatchError",
    "Neighbors",
    "NodeUnreachableError",
    "OR",
    "Op",
    "OutOfMemoryError",
    "PRODUCT",
    "Persistent",
    "RankFailedError",
    "Request",
    "SUM",
    "Status",
    "TruncatedError",
    "WaitTimeoutError",
    "XOR",
    "command",
    "leave",
    "local",
    "local_nodes",
    "wait_all",
    "world",
]

SUM, PRODUCT, MIN, MAX = Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX
AND, OR, XOR = Op.AND, Op.OR, Op.XOR

# Any source, or any tag.
ANY = None


def wait_all(requests):
    """Waits for all requests, and returns their results in order."""
    return [request.wait() for request in requests]


for _method in _objects.METHODS:
    setattr(Communicator, _method.__name__, _method)

atexit.register(leave)
os.register_at_fork(after_in_child=_forked)
