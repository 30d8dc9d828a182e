#!/usr/bin/env python3
"""Runs HPCC without the preload library and with it, and compares what it has checked.

    apt-get install hpcc openmpi-bin
    bench/mpi/hpcc.py --family openmpi /usr

The problem is small: the residuals and the counts of errors are compared, not the rates. HPCC has
no nonblocking collectives, so all calls are left to the MPI library.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

from jobs import Host, add_arguments

EXAMPLE = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt")


def run(host, ranks, preloaded, size, program="/usr/bin/hpcc", **options):
    """Runs HPCC with a matrix of `size` rows. Returns the outcome and what it has checked: successes,
    numbers of failures and of errors. `options` are those of a job."""
    with tempfile.TemporaryDirectory() as directory:
        rows = 1 if ranks < 4 else 2
        text = EXAMPLE.read_text()
        for name, value in ("Ns", size), ("Ps", rows), ("Qs", ranks // rows):
            text = re.sub(rf"^[\d ]+(?=\s+{name}$)", f"{value:<13}", text, flags=re.M)
        Path(directory, "hpccinf.txt").write_text(text)
        outcome = host.run(ranks, [program], preloaded, None, directory, **options)
        output = Path(directory, "hpccoutf.txt")
        results = output.read_text() if output.exists() else ""
    checked = re.findall(r"^.*(?:Success|Failures?|[Ee]rrors?|PASSED|FAILED).*$", results, re.M)
    checked = [re.sub(r"[\d.]+e[-+]\d+|\d+\.\d+", "…", line) for line in checked]
    # The width of a column follows the times in it.
    checked = [" ".join(line.split()) for line in checked]
    # PTRANS prints a line of processor time only where the clock has advanced.
    return outcome, [line for line in checked if not line.startswith("CPU ")]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, with commas")
    parser.add_argument("--program", default="/usr/bin/hpcc")
    parser.add_argument("--size", default="500", help="rows of the matrix")
    arguments = parser.parse_args()
    host = Host(arguments)
    differs = False
    for ranks in map(int, arguments.ranks.split(",")):
        found = []
        for preloaded in (False, True):
            outcome, checks = run(host, ranks, preloaded, arguments.size, arguments.program)
            found.append((outcome.status, checks))
        (status, checks), (status_with, checks_with) = found
        same = status == status_with and checks == checks_with and "Success=1" in checks_with
        differs |= not same
        print(
            f"HPCC, {ranks} ranks: status {status} without, {status_with} with; "
            f"{len(checks)} checks, {'the same' if same else 'different'}; "
            f"calls taken {outcome.taken}, left {outcome.left}",
            flush=True,
        )
        if not same:
            print("\n".join(checks), "\n---\n", "\n".join(checks_with), outcome.ranks)
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main()
