#!/usr/bin/env python3
"""Compares the blocking collectives of an MPI library with themselves behind the preload library.

    bench/mpi/blocking.py PREFIX TABLE [--compiler MPICC] [-n RANKS] [--rounds R] LENGTH...

PREFIX is as for compare.py. TABLE is a file that `tradewind tune --mpi PREFIX --out TABLE` has
written, with the name mpi.json. The jobs run in turns; the ratios are medians of those of the turns.
Needs `cargo build --release -p tradewind-cli -p tradewind-mpi`.
"""

import argparse
import math
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMAND = HERE.parent.parent / "target/release/tradewind"


def run(arguments, program, preloads):
    launcher = [str(arguments.prefix / "bin/mpiexec")]
    is_openmpi = (arguments.prefix / "bin/ompi_info").exists()
    if is_openmpi:
        launcher.append("--oversubscribe")
    if arguments.ranks <= os.cpu_count():
        launcher += ["--bind-to" if is_openmpi else "-bind-to", "core"]
    ranks = [str(COMMAND), "mpi", "--"] if preloads else []
    environment = dict(
        os.environ,
        LD_LIBRARY_PATH=str(arguments.prefix / "lib"),
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        TRADEWIND_DECISIONS=str(arguments.table.absolute().with_name("decisions.json")),
    )
    command = launcher + ["-n", str(arguments.ranks)] + ranks + [program] + arguments.lengths
    output = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=120
    ).stdout
    lines = [line.split() for line in output.splitlines()]
    return {(words[0], int(words[1])): float(words[2]) for words in lines if len(words) == 3}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prefix", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("lengths", nargs="+")
    parser.add_argument("--compiler", type=Path)
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_intermixed_args()
    compiler = arguments.compiler or arguments.prefix / "bin/mpicc"
    with tempfile.TemporaryDirectory() as directory:
        program = str(Path(directory) / "blocking")
        subprocess.run([compiler, "-w", "-O2", "-o", program, HERE / "blocking.c"], check=True)
        rounds = [
            (run(arguments, program, False), run(arguments, program, True))
            for _ in range(arguments.rounds)
        ]
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
