"""The heat equation on a plane, divided into square tiles: the edges of the tiles are exchanged by
MPI_Ineighbor_alltoall while each rank computes the inside of its own.

The start is an eigenvector of the discrete operator, so the exact outcome is known.
"""

import sys

import numpy
from mpi4py import MPI

STEPS, FACTOR = int(sys.argv[1]), 0.2
world = MPI.COMM_WORLD
dims = MPI.Compute_dims(world.size, 2)
grid = world.Create_cart(dims, periods=[False, False], reorder=False)
# The plane has about as many points whatever the number of ranks.
side = int(720 / world.size**0.5)
rows, columns = dims[0] * side, dims[1] * side
row, column = (place * side for place in grid.coords)


def mode(first, points, count):
    """Values of the lowest mode that is zero at both ends, which lie outside the points."""
    return numpy.sin(numpy.pi * (numpy.arange(first, first + count) + 1) / (points + 1))


def update(out, u, at):
    """A step for a part of the tile; `at` are its rows and columns."""
    (top, bottom), (left, right) = at
    middle = u[top:bottom, left:right]
    around = u[top - 1 : bottom - 1, left:right] + u[top + 1 : bottom + 1, left:right]
    around += u[top:bottom, left - 1 : right - 1]
    around += u[top:bottom, left + 1 : right + 1]
    around -= 4 * middle
    around *= FACTOR
    numpy.add(middle, around, out=out[top:bottom, left:right])


def step(u, new, sent, received):
    sent[0], sent[1] = u[1, 1:-1], u[side, 1:-1]
    sent[2], sent[3] = u[1:-1, 1], u[1:-1, side]
    request = grid.Ineighbor_alltoall(sent, received)
    update(new, u, ((2, side), (2, side)))
    request.Wait()
    u[0, 1:-1], u[-1, 1:-1] = received[0], received[1]
    u[1:-1, 0], u[1:-1, -1] = received[2], received[3]
    for at in (1, 2), (side, side + 1):
        update(new, u, (at, (1, side + 1)))
        update(new, u, ((1, side + 1), at))


def main():
    u = numpy.zeros((side + 2, side + 2))
    u[1:-1, 1:-1] = numpy.outer(mode(row, rows, side), mode(column, columns, side))
    first, new = u.copy(), numpy.zeros_like(u)
    # Edges without a neighbour stay zero.
    sent, received = numpy.zeros((4, side)), numpy.zeros((4, side))
    world.Barrier()
    begun = MPI.Wtime()
    for _ in range(STEPS):
        step(u, new, sent, received)
        u, new = new, u
    world.Barrier()
    seconds = MPI.Wtime() - begun
    halves = (numpy.sin(numpy.pi / 2 / (points + 1)) ** 2 for points in (rows, columns))
    exact = (1 - 4 * FACTOR * sum(halves)) ** STEPS * first[1:-1, 1:-1]
    error = world.allreduce(float(numpy.abs(u[1:-1, 1:-1] - exact).max()), MPI.MAX)
    if error > 1e-11:
        raise SystemExit(f"the error is {error}")
    total = world.allreduce(float(u[1:-1, 1:-1].sum()))
    if world.rank == 0:
        print("seconds", seconds)
        print("result", total)


main()
