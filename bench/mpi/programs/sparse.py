"""Particles that move between the ranks of a ring of domains. Only senders know who receives: the
exchange is that of Hoefler, Siebert and Lumsdaine, "Scalable communication protocols for dynamic sparse
data exchange" (2010), which ends by MPI_Ibarrier. Ranks sort what has arrived meanwhile.
"""

import sys

import numpy
from mpi4py import MPI

STEPS, PARTICLES = int(sys.argv[1]), 40000
world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size


class Domain:
    """The particles between rank and rank + 1, and how many of them each cell has."""

    def __init__(self):
        count = PARTICLES // ranks
        random = numpy.random.default_rng(rank)
        self.places = rank + random.random(count)
        self.speeds = random.normal(0, 0.02, count)
        self.numbers = numpy.arange(rank * count, (rank + 1) * count, dtype=float)

    def move(self):
        """Moves all particles; removes those that leave, as an array for each domain."""
        self.places = (self.places + self.speeds) % ranks
        domain = numpy.minimum(self.places.astype(int), ranks - 1)
        every = numpy.stack([self.places, self.speeds, self.numbers], axis=1)
        self.places, self.speeds, self.numbers = every[domain == rank].T.copy()
        gone = ((other, every[domain == other]) for other in range(ranks) if other != rank)
        return {other: particles for other, particles in gone if len(particles)}

    def add(self, particles):
        columns = particles.T
        self.places = numpy.concatenate([self.places, columns[0]])
        self.speeds = numpy.concatenate([self.speeds, columns[1]])
        self.numbers = numpy.concatenate([self.numbers, columns[2]])

    def count_cells(self):
        return numpy.bincount(((self.places - rank) * 64).astype(int).clip(0, 63), minlength=64)


def exchange(domain, leaving, tag):
    """Sends the particles that leave, and adds those that come."""
    sends = [world.Issend(particles, other, tag) for other, particles in leaving.items()]
    status, barrier, cells = MPI.Status(), None, None
    while True:
        if world.Iprobe(MPI.ANY_SOURCE, tag, status):
            particles = numpy.empty((status.Get_count(MPI.DOUBLE) // 3, 3))
            world.Recv(particles, status.source, tag)
            domain.add(particles)
        elif barrier is None and MPI.Request.Testall(sends):
            barrier = world.Ibarrier()
            # What has come so far is counted while the barrier is active.
            counted, cells = len(domain.places), domain.count_cells()
        elif barrier is not None and barrier.Test():
            break
    return cells if counted == len(domain.places) else domain.count_cells()


def main():
    domain = Domain()
    busiest = moved = 0
    world.Barrier()
    begun = MPI.Wtime()
    for step in range(STEPS):
        leaving = domain.move()
        moved += sum(map(len, leaving.values()))
        # Two tags in turns: a fast rank may send for the next exchange already.
        cells = exchange(domain, leaving, step % 2)
        busiest = max(busiest, int(cells.max()))
    world.Barrier()
    seconds = MPI.Wtime() - begun
    inside = bool(((domain.places >= rank) & (domain.places <= rank + 1)).all())
    numbers = world.gather(domain.numbers)
    moved, busiest = world.allreduce(moved), world.allreduce(busiest, MPI.MAX)
    is_right = world.allreduce(inside, MPI.LAND)
    if rank == 0:
        every = numpy.sort(numpy.concatenate(numbers))
        if not is_right or not (every == numpy.arange(PARTICLES // ranks * ranks)).all():
            world.Abort(1)
        print("seconds", seconds)
        print("result", moved, busiest)


main()
