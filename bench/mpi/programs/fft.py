"""Fourier transforms of a cube that the ranks share in slabs. The transposition between the axes is
divided into pieces: while MPI_Ialltoall moves one, the ranks transform the next one and the last one.
"""

import sys

import numpy
from mpi4py import MPI

TRANSFORMS, SIDE, PIECES = int(sys.argv[1]), 64, 8
world = MPI.COMM_WORLD
ranks = world.size
part, depth = SIDE // ranks, SIDE // PIECES


def start(piece, sent, received):
    """Sends each rank its part of a piece along the second axis."""
    sent[:] = piece.reshape(part, ranks, part, depth).swapaxes(0, 1)
    return world.Ialltoall(sent, received)


def transposed(transform_before, transform_after, cube, out):
    """Transforms along the second axis, transposes the first two, and transforms along the new
    second axis, which is the former first."""
    sent = numpy.empty((PIECES, ranks, part, part, depth), complex)
    received = numpy.empty_like(sent)

    def finish(piece):
        whole = received[piece].reshape(SIDE, part, depth).swapaxes(0, 1)
        out[:, :, piece * depth : (piece + 1) * depth] = transform_after(whole, axis=1)

    request = None
    for piece in range(PIECES):
        planes = transform_before(cube[:, :, piece * depth : (piece + 1) * depth], axis=1)
        following = start(planes, sent[piece], received[piece])
        if request is not None:
            request.Wait()
            finish(piece - 1)
        request = following
    request.Wait()
    finish(PIECES - 1)
    return out


def main():
    values = numpy.random.default_rng(1).standard_normal((SIDE, SIDE, SIDE))
    mine = slice(world.rank * part, (world.rank + 1) * part)
    cube = values[mine].astype(complex)
    there, back = numpy.empty_like(cube), numpy.empty_like(cube)
    world.Barrier()
    begun = MPI.Wtime()
    for _ in range(TRANSFORMS):
        # Forward along the third axis, the second and the first; then the reverse.
        transposed(numpy.fft.fft, numpy.fft.fft, numpy.fft.fft(cube, axis=2), there)
        transposed(numpy.fft.ifft, numpy.fft.ifft, there, back)
        cube = numpy.fft.ifft(back, axis=2)
    world.Barrier()
    seconds = MPI.Wtime() - begun
    spectrum = numpy.fft.fftn(values).swapaxes(0, 1)[mine]
    error = abs(there - spectrum).max() / abs(spectrum).max() + abs(cube - values[mine]).max()
    error = world.allreduce(float(error), MPI.MAX)
    if error > 1e-10:
        raise SystemExit(f"the error is {error}")
    power = world.allreduce(float((abs(there) ** 2).sum()))
    if world.rank == 0:
        print("seconds", seconds)
        print("result", power)


main()
