"""Times collectives of one module of Python: of tradewind, or of mpi4py. Prints a line of JSON a row.

    tradewind run -n 2 -- python bench/python/module.py tradewind
    mpiexec -n 2 python bench/python/module.py mpi4py
"""

import sys
from time import perf_counter

import numpy as np
from timer import Timer, median

SIZES = (8, 1024, 65536, 1048576)

# Seconds of a row.
SECONDS = 0.15


class Tradewind:
    def __init__(self):
        import tradewind as tw

        world = tw.world()
        self.rank = world.rank
        self.barrier, self.ibarrier = world.barrier, world.ibarrier
        self.allreduce, self.iallreduce = world.allreduce, world.iallreduce
        self.largest = lambda value: float(world.allreduce(value, op=tw.MAX))
        self.wait = lambda request: request.wait()


class Mpi4py:
    def __init__(self):
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        self.rank = world.rank
        self.barrier, self.ibarrier = world.Barrier, world.Ibarrier
        self.allreduce, self.iallreduce = world.Allreduce, world.Iallreduce
        self.largest = lambda value: world.allreduce(value, MPI.MAX)
        self.wait = lambda request: request.Wait()


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
    timer = Timer(module.rank, module.barrier, module.largest, SECONDS)
    rows = [("barrier", 0, module.barrier, module.ibarrier)]
    for size in SIZES:
        own, total = np.ones(size // 8), np.zeros(size // 8)
        rows.append((
            "allreduce", size,
            lambda own=own, total=total: module.allreduce(own, total),
            lambda own=own, total=total: module.iallreduce(own, total),
        ))
    for name, size, call, start in rows:
        found = {"blocking": timer.batches(call)}
        found["start and wait"] = timer.batches(lambda: module.wait(start()))
        found["exposed"] = exposed(module, start, found["start and wait"])
        for form, seconds in found.items():
            timer.show(name, size, form, seconds)


main()
