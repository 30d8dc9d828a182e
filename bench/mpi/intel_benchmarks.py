#!/usr/bin/env python3
"""Runs the Intel MPI Benchmarks without the preload library and with it, and compares their tables.

    bench/mpi/intel_benchmarks.py [--ranks 2,3,4] target/mpi/impi-rt

PREFIX has the programs IMB-NBC and IMB-MPI1, as the package impi-rt of Python. Only the tables are
compared, by their benchmarks, numbers of ranks and lengths, not the times in them; the programs of
the package do not check what they receive. A difference, a program that fails or prints no table
without the library, or a nonblocking collective of which no call ran on tradewind, makes the exit
status 1.
"""

import argparse
import re
import sys

from jobs import Host, add_arguments

NONBLOCKING = (
    "Ibarrier Ibcast Igather Igatherv Iscatter Iscatterv Iallgather Iallgatherv Ialltoall "
    "Ialltoallv Ireduce Iallreduce Ireduce_scatter"
).split()


def tables(outcome):
    """The rows of the tables without their times: benchmark, ranks, bytes."""
    rows, benchmark, ranks = [], None, None
    for line in outcome.ranks[0].splitlines():
        title = re.match(r"# Benchmarking (\S+)", line)
        processes = re.match(r"# #processes = (\d+)", line)
        row = re.match(r"\s+(\d+)\s+\d+\s+[\d.]+", line)
        if title:
            benchmark, ranks = title[1], None
            rows.append((benchmark,))
        elif processes:
            ranks = int(processes[1])
        elif row and benchmark:
            rows.append((benchmark, ranks, int(row[1])))
    return rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--ranks", default="2,3,4", help="numbers of ranks, with commas")
    parser.add_argument("--lengths", default="3:16", help="range of the lengths as powers of two")
    parser.add_argument("--repetitions", default="20", help="of each length")
    parser.add_argument("--only", default="", help="of the programs IMB-NBC and IMB-MPI1")
    arguments = parser.parse_args()
    host = Host(arguments)
    differs, has_run = False, False
    for program in ("IMB-NBC", "IMB-MPI1"):
        if arguments.only not in program:
            continue
        has_run = True
        words = [host.file(program), "-iter", arguments.repetitions, "-iter_policy", "off"]
        words += ["-msglog", arguments.lengths]
        for ranks in map(int, arguments.ranks.split(",")):
            plain, preloaded = (host.run(ranks, words, preloaded) for preloaded in (False, True))
            before, after = tables(plain), tables(preloaded)
            print(
                f"{program}, {ranks} ranks: status {plain.status} without, {preloaded.status} with; "
                f"{len(before)} and {len(after)} rows; "
                f"calls taken {preloaded.taken}, left {preloaded.left}",
                flush=True,
            )
            # A program that ends at its start is the same both times, and shows nothing.
            has_result = plain.status == 0 and before
            if not has_result:
                print("\n".join(plain.ranks[0].splitlines()[-20:]), plain.ranks[-1])
            if not has_result or plain.status != preloaded.status or before != after:
                differs = True
                print("\n".join(preloaded.ranks[0].splitlines()[-20:]), preloaded.ranks[-1])
            if program == "IMB-NBC":
                idle = [n for n in NONBLOCKING if preloaded.calls.get(f"MPI_{n}", (0, 0))[0] == 0]
                if idle:
                    differs = True
                    print(f"  no call ran on tradewind of {', '.join(idle)}")
    if not has_run:
        print(f"--only {arguments.only} is in the name of no program")
    sys.exit(0 if has_run and not differs else 1)


if __name__ == "__main__":
    main()
