"""Ranks that raise, die, are interrupted or come late. The argument names the case."""

import os
import signal
import sys

import numpy as np

import tradewind as tw


def died(world):
    """The others get the rank that was killed."""
    without(world, lambda: os.kill(os.getpid(), signal.SIGKILL))


def aborted(world):
    """The others get the rank that has ended the job."""
    without(world, lambda: world.abort(3))


def without(world, end):
    """Rank 1 ends; calls of the others that wait for it raise an error that names it."""
    if world.rank == 1:
        end()
    for call in (
        lambda: world.allreduce(np.ones(4)),
        lambda: world.recv(np.ones(4), 1),
        lambda: world.dup().irecv(np.ones(4), 1).wait(),
    ):
        try:
            call()
        except tw.RankFailedError as error:
            assert error.failed_rank == 1, error
        else:
            raise AssertionError("no error")


def interrupted(world):
    """A signal ends each kind of wait with KeyboardInterrupt, and the rank goes on."""
    if world.rank == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        group = world.create_from_group([0, 1], 1)
        receive = world.irecv(np.ones(1), 1, 4)
        waits = (receive.wait, lambda: world.probe(1, 4), lambda: group.allreduce(np.ones(4)))
        for wait in waits:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            try:
                wait()
            except KeyboardInterrupt:
                continue
            raise AssertionError("no interrupt")
        world.send(np.ones(1), 1, 4)
        receive.wait()
    elif world.rank == 1:
        world.create_from_group([0, 1], 1)
        world.recv(np.ones(1), 0, 4)
        world.send(np.ones(1), 0, 4)
    world.barrier()


def raised(_world):
    """With threads as ranks the first exception is raised, and not its consequence on the others."""

    def body(world):
        if world.rank == 1:
            raise ZeroDivisionError("on purpose")
        world.barrier()

    for run in (lambda: tw.local(3, body), lambda: tw.local_nodes([1, 2], body)):
        try:
            run()
        except ZeroDivisionError as error:
            assert str(error) == "on purpose"
        else:
            raise AssertionError("no exception")


if __name__ == "__main__":
    case = globals()[sys.argv[1]]
    case(None if case is raised else tw.world())
    print("all is right")
