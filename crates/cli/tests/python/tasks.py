"""Requests that tasks of asyncio await."""

import asyncio
import os

import numpy as np

import tradewind as tw


async def main(world):
    rank, size = world.rank, world.size
    total = await world.iallreduce(np.ones(3))
    assert list(total) == [size] * 3
    # Many at once, of both kinds, in another order than that of their starts.
    sums = [world.iallreduce(np.array([step])) for step in range(300)]
    receives = [world.irecv(np.zeros(1), rank, tag) for tag in range(100)]

    async def answer(tag):
        await asyncio.sleep(0)
        await world.isend(np.ones(1), rank, tag)

    found = await asyncio.gather(*receives, *map(answer, reversed(range(100))), *reversed(sums))
    assert [status.tag for status in found[:100]] == list(range(100))
    assert [int(total[0]) for total in found[200:]] == [size * step for step in reversed(range(300))]
    # A wait that is cancelled leaves the request as it is.
    receive = world.irecv(np.zeros(1), rank, 7)
    try:
        await asyncio.wait_for(wait(receive), 0.01)
    except asyncio.TimeoutError:
        pass
    world.send(np.ones(1), rank, 7)
    assert (await receive).tag == 7
    # An error is raised where it is awaited.
    if size > 1:
        if rank == 1:
            await world.ibarrier()
            os._exit(3)
        await world.ibarrier()
        try:
            await world.irecv(np.zeros(1), 1, 9)
        except tw.RankFailedError as error:
            assert error.failed_rank == 1
        else:
            raise AssertionError("no error")


async def wait(request):
    return await request


if __name__ == "__main__":
    asyncio.run(main(tw.world()))
    print("all is right")
