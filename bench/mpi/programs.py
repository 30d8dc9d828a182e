#!/usr/bin/env python3
"""Times whole programs without the preload library and with it, in turns.

    bench/mpi/programs.py                           # half an hour
    bench/mpi/programs.py --only fft --rounds 3     # programs whose name contains this
    bench/mpi/programs.py --libraries openmpi --ranks 2

Six programs: PETSc's pipelined solver and HPCC, which Debian has, with Open MPI 4; and those of the folder
programs, with numpy and mpi4py: a Fourier transform of a cube, the heat equation with exchanges of
neighbours, particles with a sparse exchange, and clusters by collectives of objects. They run with the
packages mpich, openmpi and impi-rt of Python. What is missing is installed: packages of Python into
target/mpi, those of Debian if this is the superuser.

Each round runs every program once without the library and once with it, in alternating order. A first
run with the report counts the calls. The results of all runs are compared. Every run is a line of JSON in
the file of --out; the times are those of the jobs, from the start of the launcher to its end, and those
that the programs print for their main part. A run that fails or has another result makes the exit status 1.
Needs `cargo build --release -p tradewind-cli -p tradewind-mpi`.
"""

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import hpcc
import petsc
import third_parties
from jobs import COMMAND, WORK, Host, environment

HERE = Path(__file__).resolve().parent / "programs"
LIBRARIES = {"mpich": "mpich", "openmpi": "openmpi", "impi-rt": "impi"}

# The programs of this repository, with the length of their work: some seconds.
OWN = {
    "fft": ["fft.py", "50"],
    "stencil": ["stencil.py", "400"],
    "sparse": ["sparse.py", "150"],
    "objects": ["objects.py", "100"],
}


@dataclass
class Case:
    """A program with an MPI library and a number of ranks. `run` takes whether the library is
    preloaded and whether it reports, and returns the outcome, the results, and the seconds of the main
    part."""

    name: str
    library: str
    ranks: int
    run: object


def printed(outcome):
    """The numbers that a program prints as its results, and its seconds."""
    lines = [line.split() for text in outcome.ranks for line in text.splitlines()]
    of = lambda name: next((words[1:] for words in lines if words[:1] == [name]), None)
    seconds = of("seconds")
    results = of("result") or of("solved")
    return results and [float(word) for word in results], seconds and float(seconds[0])


def timed(host, ranks, words):
    def run(preloaded, reports):
        # A rank is one thread, also in numpy.
        variables = {"OPENBLAS_NUM_THREADS": "1"}
        outcome = host.run(ranks, words, preloaded, variables, is_timed=True, reports=reports)
        return (outcome, *printed(outcome))

    return run


def checked(host, ranks):
    def run(preloaded, reports):
        outcome, checks = hpcc.run(host, ranks, preloaded, "1000", is_timed=True, reports=reports)
        return outcome, checks, None

    return run


def host(arguments, prefix, family):
    return Host(
        argparse.Namespace(prefix=prefix, family=family, command=arguments.command, limit=60)
    )


def cases(arguments, wanted):
    """The cases whose program and library are there or can be installed."""
    for package in filter(arguments.libraries.__contains__, LIBRARIES):
        names = list(filter(wanted, OWN))
        prefix = WORK / f"tests-{package}"
        if names:
            environment(prefix, "numpy", "mpi4py", package)
        for name in names:
            for ranks in arguments.ranks:
                script, *words = OWN[name]
                words = [prefix / "bin/python", HERE / script, *words]
                yield Case(name, package, ranks, timed(host(arguments, prefix, LIBRARIES[package]), ranks, words))
    if "debian" not in arguments.libraries:
        return
    for name, provide in ("petsc", third_parties.petsc), ("hpcc", third_parties.hpcc):
        if not wanted(name):
            continue
        try:
            third_parties.provide_by_debian(provide)
        except third_parties.Missing as missing:
            print(f"missing: {missing}", flush=True)
            continue
        debian = host(arguments, Path("/usr"), "openmpi")
        for ranks in arguments.ranks:
            options = ["-side", "128", "-solves", "20"]
            words = petsc.words("/usr/bin/python3", "pipecg", *options)
            run = checked(debian, ranks) if name == "hpcc" else timed(debian, ranks, words)
            yield Case(name, "openmpi 4", ranks, run)


def are_close(results, others):
    if not results or not others or isinstance(results[0], str):
        return bool(results) and results == others
    return len(results) == len(others) and all(
        abs(one - other) <= 1e-6 * max(abs(one), 1) for one, other in zip(results, others)
    )


class Record:
    """The runs of all cases, and the first results of each."""

    def __init__(self, file):
        self.file = file
        self.results, self.calls, self.rounds = {}, {}, {}
        self.has_failed = False

    def run(self, number, case, preloaded, reports=False):
        """Runs a case and writes its line. Returns the seconds of the job and of the main part."""
        outcome, results, main = case.run(preloaded, reports)
        key = (case.name, case.library, case.ranks)
        expected = self.results.setdefault(key, results)
        is_right = outcome.status == 0 and are_close(results, expected)
        line = {
            "program": case.name,
            "library": case.library,
            "ranks": case.ranks,
            "round": number,
            "preloaded": preloaded,
            "seconds": outcome.seconds,
            "main": main,
            "status": outcome.status,
            "right": is_right,
            "results": results,
        }
        if reports:
            line["calls"] = outcome.calls
            self.calls[key] = (outcome.taken, outcome.left)
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()
        if not is_right:
            self.has_failed = True
            print(f"{key}, preloaded: {preloaded}: status {outcome.status}, results {results}")
            print("\n".join(text[-600:] for text in outcome.ranks), flush=True)
        return outcome.seconds, main

    def round(self, number, case):
        """Runs a case on both sides, in an order that alternates."""
        order = (False, True) if number % 2 == 0 else (True, False)
        times = {preloaded: self.run(number, case, preloaded) for preloaded in order}
        key = (case.name, case.library, case.ranks)
        self.rounds.setdefault(key, []).append((times[False], times[True]))

    def print_table(self):
        print("| program | library | ranks | seconds | ratio | main part, s | ratio | taken | left |")
        print("|---|---|---|---|---|---|---|---|---|")
        for key, rounds in self.rounds.items():
            cells = [*map(str, key)]
            for part in (0, 1):
                pairs = [(before[part], after[part]) for before, after in rounds]
                cells += compared(pairs)
            print("| " + " | ".join([*cells, *map(str, self.calls.get(key, ("", "")))]) + " |")


def compared(pairs):
    """Median times of both sides; median, least and largest ratio."""
    pairs = [pair for pair in pairs if None not in pair]
    if not pairs:
        return ["", ""]
    before, after = (statistics.median(times) for times in zip(*pairs))
    ratios = sorted(after / before for before, after in pairs)
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return [f"{before:.2f} → {after:.2f}", f"{statistics.median(ratios):.3f} ({spread})"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    split = lambda text: text.split(",")
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=numbers, default=[2, 4], help="numbers, with commas")
    every = [*LIBRARIES, "debian"]
    parser.add_argument("--libraries", type=split, default=every, help=f"of {','.join(every)}")
    parser.add_argument("--command", type=Path, default=COMMAND, help="the tradewind command")
    parser.add_argument("--out", type=Path, default=WORK / "programs.jsonl")
    arguments = parser.parse_args()
    chosen = list(cases(arguments, lambda name: arguments.only in name))
    if not chosen:
        sys.exit(f"there is no program whose name contains {arguments.only}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with open(arguments.out, "w") as file:
        record = Record(file)
        for case in chosen:
            # The first runs also read the files of Python into memory.
            record.run(-1, case, False)
            record.run(-1, case, True, reports=True)
        for number in range(arguments.rounds):
            for case in chosen:
                record.round(number, case)
    record.print_table()
    sys.exit(1 if record.has_failed else 0)


if __name__ == "__main__":
    main()
