"""The heat equation on a ring of ranks: rows at the borders travel while the inner ones are computed.

    tradewind run -n 4 -- python examples/python/heat.py
"""

import numpy as np

import tradewind as tw

ROWS, COLUMNS, STEPS = 64, 128, 200

world = tw.world()
above, below = (world.rank - 1) % world.size, (world.rank + 1) % world.size

# A hot spot on rank 0. The first and the last row belong to the neighbours.
plate = np.zeros((ROWS + 2, COLUMNS))
if world.rank == 0:
    plate[ROWS // 2, COLUMNS // 2] = 1000.0

# The rows for the rank below and for the rank above, and the rows of the rank above and of the rank below.
# This order is right also where both neighbours are one rank.
border, halo = np.empty((2, COLUMNS)), np.empty((2, COLUMNS))
ring = world.neighbors([above, below], [below, above])
exchange = ring.neighbor_alltoall_init(border, halo)
heat = plate.sum()


def diffused(rows):
    """New values of all rows but the first and the last."""
    across = np.roll(rows, 1, axis=1) + np.roll(rows, -1, axis=1)
    return rows[1:-1] + 0.2 * (rows[:-2] + rows[2:] + across[1:-1] - 4 * rows[1:-1])


for step in range(STEPS):
    border[0], border[1] = plate[-2], plate[1]
    request = exchange.start()
    inner = diffused(plate[1:-1])  # while the borders travel
    request.wait()
    plate[0], plate[-1] = halo
    first, last = diffused(plate[:3]), diffused(plate[-3:])
    plate[1:-1] = np.concatenate([first, inner, last])

total = world.allreduce(plate[1:-1].sum())
assert np.isclose(total, world.allreduce(heat)), "heat is neither made nor lost"
warmest = world.allreduce(plate[1:-1].max(), op=tw.MAX)
if world.rank == 0:
    print(f"{world.size} ranks, {STEPS} steps: heat {total:.3f}, warmest cell {warmest:.3f}")
