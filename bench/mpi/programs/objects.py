"""Clusters of points by Lloyd's algorithm, with collectives of Python objects, which mpi4py pickles.

In each iteration the root broadcasts the centres, the ranks sum the points of each cluster by a reduction
of dictionaries, gather how many points have changed their cluster, and exchange samples of them.
"""

import sys

import numpy
from mpi4py import MPI

ITERATIONS, POINTS, CLUSTERS = int(sys.argv[1]), 24000, 12
world = MPI.COMM_WORLD


def merge(one, other):
    """The sums of both, by cluster: number of points, sum of coordinates, sum of squared distances."""
    merged = dict(one)
    for cluster, (count, total, squares) in other.items():
        before = merged.get(cluster, (0, 0.0, 0.0))
        merged[cluster] = (before[0] + count, before[1] + total, before[2] + squares)
    return merged


def assign(points, centres):
    """The nearest centre of each point, and the square of its distance."""
    products = -2 * points @ centres.T + (centres**2).sum(axis=1)
    nearest = products.argmin(axis=1)
    return nearest, products.min(axis=1) + (points**2).sum(axis=1)


def iterate(points, centres, clusters):
    """One iteration: centres, clusters of the points, and what has changed."""
    centres = world.bcast(centres if world.rank == 0 else None)
    nearest, squares = assign(points, centres)
    sums = {
        int(cluster): (
            int((nearest == cluster).sum()),
            points[nearest == cluster].sum(axis=0),
            float(squares[nearest == cluster].sum()),
        )
        for cluster in numpy.unique(nearest)
    }
    sums = world.allreduce(sums, op=merge)
    changed = numpy.flatnonzero(nearest != clusters)
    changes = world.gather(len(changed))
    samples = [points[changed[other :: world.size][:8]] for other in range(world.size)]
    received = sum(map(len, world.alltoall(samples)))
    centres = numpy.array(
        [sums[c][1] / sums[c][0] if c in sums else centres[c] for c in range(CLUSTERS)]
    )
    return centres, nearest, sums, (sum(changes or []), received)


def main():
    random = numpy.random.default_rng(world.rank)
    points = random.standard_normal((POINTS // world.size, 8))
    points[:, :2] += random.integers(0, 4, (len(points), 2))
    centres = points[:CLUSTERS]
    clusters = numpy.full(len(points), -1)
    inertias, changed, received = [], 0, 0
    world.Barrier()
    begun = MPI.Wtime()
    for _ in range(ITERATIONS):
        centres, clusters, sums, (changes, samples) = iterate(points, centres, clusters)
        inertias.append(sum(squares for _, _, squares in sums.values()))
        changed, received = changed + changes, received + samples
    world.Barrier()
    seconds = MPI.Wtime() - begun
    # Each centre is the mean of its points, and no iteration makes the sum of squares larger.
    everywhere = world.gather((points, clusters))
    if world.rank == 0:
        every, nearest = (numpy.concatenate(arrays) for arrays in zip(*everywhere))
        means = [every[nearest == cluster].mean(axis=0) for cluster in numpy.unique(nearest)]
        is_mean = numpy.allclose(centres[numpy.unique(nearest)], means)
        falls = all(b <= a * (1 + 1e-12) for a, b in zip(inertias, inertias[1:]))
        if not is_mean or not falls or sum(count for count, _, _ in sums.values()) != len(every):
            world.Abort(1)
        print("seconds", seconds)
        print("result", inertias[-1], changed)


main()
