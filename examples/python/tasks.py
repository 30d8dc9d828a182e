"""Tasks of asyncio that await requests: a rank serves a queue of questions while a collective is under way.

    tradewind run -n 3 -- python examples/python/tasks.py
"""

import asyncio

import numpy as np

import tradewind as tw

world = tw.world()
QUESTION, ANSWER, COUNT = 1, 2, 10


async def serve(count):
    """Squares the numbers that arrive, and answers their senders."""
    number = np.zeros(1)
    for _ in range(count):
        status = await world.irecv(number, tag=QUESTION)
        await world.isend(number**2, status.source, ANSWER)


async def ask():
    """Sends numbers to rank 0, and checks its answers."""
    answer = np.zeros(1)
    for number in range(COUNT):
        await world.isend(np.array([float(number)]), 0, QUESTION)
        await world.irecv(answer, 0, ANSWER)
        assert answer[0] == number**2


async def main():
    sum_of_ranks = world.iallreduce(np.array([world.rank]))
    await (serve(COUNT * (world.size - 1)) if world.rank == 0 else ask())
    total = await sum_of_ranks
    if world.rank == 0:
        print(f"{world.size} ranks, all questions answered; the ranks sum up to {total[0]}")


asyncio.run(main())
