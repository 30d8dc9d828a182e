"""Times of calls on all ranks of a job, as rows: a line of JSON each. A module of the programs beside it."""

import json
from statistics import median_high as median
from time import perf_counter

# Batches of a row. Their median counts.
BATCHES = 5


class Timer:
    """Times calls between barriers. `largest` returns the largest value of all ranks; a row takes `seconds`."""

    def __init__(self, rank, barrier, largest, seconds):
        self.rank, self.barrier, self.largest, self.seconds = rank, barrier, largest, seconds

    def batch(self, call, count):
        """Seconds of a call on the slowest rank: the mean of `count` calls back to back."""
        self.barrier()
        begun = perf_counter()
        for _ in range(count):
            call()
        return self.largest(perf_counter() - begun) / count

    def batches(self, call, count=4):
        """Seconds of a call: the median of batches that are long enough."""
        times = []
        while len(times) < BATCHES:
            time = self.batch(call, count)
            if time * count < self.seconds / BATCHES / 2:
                # The same on all ranks.
                count *= 2
                continue
            times.append(time)
        return median(times)

    def show(self, what, size, form, seconds):
        """Prints a row, on one rank."""
        if self.rank == 0:
            print(json.dumps({"what": what, "bytes": size, "form": form, "us": seconds * 1e6}), flush=True)


def rows(text):
    """The microseconds of the rows that a program has printed."""
    found = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    return {(row["what"], row["bytes"], row["form"]): row["us"] for row in found}
