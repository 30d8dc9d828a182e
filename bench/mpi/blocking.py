#!/usr/bin/env python3
"""Compares the blocking collectives of an MPI library with themselves behind the preload library.

    bench/mpi/blocking.py PREFIX TABLE [--compiler MPICC] [-n RANKS] [--rounds R] LENGTH...

PREFIX is as for compare.py. TABLE is a file that `tradewind tune --mpi PREFIX --out TABLE` has
written, with the name mpi.json. The jobs run in turns; the ratios are medians of those of the turns.
Needs `cargo build --release -p tradewind-cli -p tradewind-mpi`.
"""

import math
import os
import statistics
from pathlib import Path

import turns


def run(arguments, program, preloads):
    options = []
    if arguments.ranks <= os.cpu_count():
        options = ["--bind-to" if turns.Host(arguments).family == "openmpi" else "-bind-to", "core"]
    decisions = str(arguments.table.absolute().with_name("decisions.json"))
    lines = turns.start(arguments, [program, *arguments.lengths], preloads, decisions, options)
    return {(words[0], int(words[1])): float(words[2]) for words in lines if len(words) == 3}


def main():
    parser = turns.parser(__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("lengths", nargs="+")
    arguments = parser.parse_intermixed_args()
    rounds = turns.rounds(arguments, "blocking", run)
    ratios = []
    print("| collective | bytes | library, µs | tradewind, µs | ratio |")
    print("|---|---|---|---|---|")
    for row in rounds[0][0]:
        library, tradewind = (statistics.median(sides[side][row] for sides in rounds) for side in (0, 1))
        ratios.append(statistics.median(after[row] / before[row] for before, after in rounds))
        print(f"| {row[0]} | {row[1]} | {library:.3g} | {tradewind:.3g} | {ratios[-1]:.2f} |")
    mean = math.exp(statistics.mean(map(math.log, ratios)))
    print(f"\nratio: geometric mean {mean:.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
