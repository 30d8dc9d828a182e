#!/usr/bin/env python3
"""Compares the time of a job that only starts and ends, without and with the preload library.

    bench/mpi/startup.py PREFIX [--compiler MPICC] [-n RANKS] [--rounds R]

PREFIX is as for compare.py. The jobs run in turns; the times include the launcher's.
Needs `cargo build --release -p tradewind-cli -p tradewind-mpi`.
"""

import statistics
import time

import turns


def run(arguments, program, preloads):
    begun = time.monotonic()
    turns.start(arguments, [program], preloads, decisions="")
    return 1000 * (time.monotonic() - begun)


def main():
    arguments = turns.parser(__doc__).parse_args()
    rounds = turns.rounds(arguments, "empty", run)
    before, after = (statistics.median(times) for times in zip(*rounds))
    differences = sorted(after - before for before, after in rounds)
    more = statistics.median(differences)
    print("| ranks | library, ms | tradewind, ms | more, ms: median, least, most |")
    print("|---|---|---|---|")
    spread = f"{more:.0f}, {differences[0]:.0f}, {differences[-1]:.0f}"
    print(f"| {arguments.ranks} | {before:.0f} | {after:.0f} | {spread} |")


if __name__ == "__main__":
    main()
