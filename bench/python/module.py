"""Times collectives of one module of Python: of tradewind, or of mpi4py. Prints a line of JSON a row.

    tradewind run -n 2 -- python bench/python/module.py tradewind
    mpiexec -n 2 python bench/python/module.py mpi4py
"""

import json
import sys
from time import perf_counter

import numpy as np

SIZES = (8, 1024, 65536, 1048576)

# Seconds of a row, and batches of which the median counts.
SECONDS, BATCHES = 0.15, 5


class Tradewind:
    def __init__(self):
        import tradewind as tw

        world = tw.world()
        self.rank = world.rank
        self.barrier, self.ibarrier = world.barrier, world.ibarrier
        self.allreduce, self.iallreduce = world.allreduce, world.iallreduce
        self.allgather = world.allgather
        self.largest = lambda value: float(world.allreduce(value, op=tw.MAX))
        self.wait = lambda request: request.wait()


class Mpi4py:
    def __init__(self):
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        self.rank = world.rank
        self.barrier, self.ibarrier = world.Barrier, world.Ibarrier
        self.allreduce, self.iallreduce = world.Allreduce, world.Iallreduce
        self.allgather = world.Allgather
        self.largest = lambda value: world.allreduce(value, MPI.MAX)
        self.wait = lambda request: request.Wait()


def median(values):
    return sorted(values)[len(values) // 2]


def blocking(module, call):
    """Seconds of a call, in batches of calls back to back."""
    count, batches = 4, []
    while len(batches) < BATCHES:
        module.barrier()
        begun = perf_counter()
        for _ in range(count):
            call()
        taken = module.largest(perf_counter() - begun)
        if taken < SECONDS / BATCHES / 2:
            # The same on all ranks.
            count *= 2
            continue
        batches.append(taken / count)
    return median(batches)


def exposed(module, start, alone):
    """Seconds in the start and the wait beside a computation of ten times the call alone."""
    computation, times = 10 * alone, []
    for _ in range(max(20, min(2000, int(SECONDS / (2 * computation))))):
        module.barrier()
        begun = perf_counter()
        request = start()
        started = perf_counter()
        end = started + computation
        while (computed := perf_counter()) < end:
            pass
        module.wait(request)
        times.append(started - begun + perf_counter() - computed)
    return module.largest(median(times))


def main():
    module = {"tradewind": Tradewind, "mpi4py": Mpi4py}[sys.argv[1]]()
    rows = [("barrier", 0, module.barrier, module.ibarrier)]
    for size in SIZES:
        own, total = np.ones(size // 8), np.zeros(size // 8)
        rows.append((
            "allreduce", size,
            lambda own=own, total=total: module.allreduce(own, total),
            lambda own=own, total=total: module.iallreduce(own, total),
        ))
    for name, size, call, start in rows:
        found = {"blocking": blocking(module, call)}
        found["start and wait"] = blocking(module, lambda: module.wait(start()))
        found["exposed"] = exposed(module, start, found["start and wait"])
        if module.rank == 0:
            for form, seconds in found.items():
                row = {"what": name, "bytes": size, "form": form, "us": seconds * 1e6}
                print(json.dumps(row), flush=True)


main()
