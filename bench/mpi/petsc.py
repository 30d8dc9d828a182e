#!/usr/bin/env python3
"""Runs PETSc's pipelined solvers without the preload library and with it, and compares the solutions.

    apt-get install python3-petsc4py-real openmpi-bin
    export PETSC_DIR=$(echo /usr/lib/petscdir/petsc*/*-real)
    bench/mpi/petsc.py --family openmpi --python /usr/bin/python3 /usr

Each solver runs on the Laplacian of a square grid that PETSc distributes. It must end for the same
reason with the same norms. From four ranks on, MPI libraries add in different orders, and a pipelined
solver may then take a few iterations more or less, and its norms differ by the rounding. A larger
difference, a pipelined solver of which no call ran on tradewind, or that none of them runs at all,
makes the exit status 1.
"""

import argparse
import os
import sys
from pathlib import Path

from jobs import Host, add_arguments

# Solvers that overlap their reductions, and two that do not.
PIPELINED = "pipecg groppcg pipecr pipecg2 pipelcg pipebcgs pipegcr pipefgmres pgmres".split()
OTHERS = ["cg", "gmres"]

PROGRAM = Path(__file__).resolve().parent / "programs/solver.py"


def words(python, solver, *options):
    """The words of a rank. Debian installs petsc4py beside the PETSc that it is linked with, not on
    Python's path."""
    folder = os.environ.get("PETSC_DIR")
    paths = [folder and f"{folder}/lib/python3/dist-packages", os.environ.get("PYTHONPATH")]
    path = os.pathsep.join(filter(None, paths))
    return ["env", f"PYTHONPATH={path}", python, PROGRAM, "-ksp_type", solver, *options]


def solved(outcome):
    """Iterations, reason of the end, norms of the solution and of the residual."""
    for text in outcome.ranks:
        for line in text.splitlines():
            if line.startswith("solved "):
                return [float(word) for word in line.split()[1:]]
    return None


def are_close(one, other):
    if one is None or other is None:
        return one is other
    (iterations, reason, *norms), (others, other_reason, *other_norms) = one, other
    same = reason == other_reason and abs(iterations - others) <= 0.03 * iterations
    near = (abs(a - b) <= 1e-6 * max(abs(a), 1.0) for a, b in zip(norms, other_norms))
    return same and all(near)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--ranks", default="2,3,4", help="numbers of ranks, with commas")
    parser.add_argument("--python", default="python3", help="with the module petsc4py")
    arguments = parser.parse_args()
    host = Host(arguments)
    differs, has_run = False, False
    for ranks in map(int, arguments.ranks.split(",")):
        for solver in PIPELINED + OTHERS:
            command = words(arguments.python, solver)
            plain, preloaded = (host.run(ranks, command, preloaded) for preloaded in (False, True))
            before, after = solved(plain), solved(preloaded)
            same = plain.status == preloaded.status and are_close(before, after)
            idle = solver in PIPELINED and plain.status == 0 and preloaded.taken == 0
            differs |= not same or idle
            has_run |= preloaded.taken > 0
            print(
                f"{solver}, {ranks} ranks: {before} without, {after} with"
                f"{'' if same else ', DIFFERENT'}{', nothing taken' if idle else ''}; "
                f"status {plain.status} and {preloaded.status}, "
                f"calls taken {preloaded.taken}, left {preloaded.left}",
                flush=True,
            )
            if not same or after is None:
                print("\n".join(text[-600:] for text in preloaded.ranks))
    sys.exit(1 if differs or not has_run else 0)


if __name__ == "__main__":
    main()
