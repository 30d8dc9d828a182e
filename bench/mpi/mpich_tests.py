#!/usr/bin/env python3
"""Runs MPICH's tests of MPI without the preload library and with it, and compares their outcomes.

    apt-get source --download-only mpich && tar --extract --file mpich_*.orig.tar.*
    bench/mpi/mpich_tests.py --sources mpich-4.0.2 target/mpi/mpich
    bench/mpi/mpich_tests.py --sources mpich-4.0.2 --directories f77/coll,f08/coll /usr

The tests in C are compiled so that every blocking collective in them is its nonblocking form and a
wait. Those in Fortran are compiled as they are.
A test that passes without the preload library and not with it makes the exit status 1, and so does a
run in which no call ran on tradewind, or in which no test of a directory passes without the library.
Tests that fail without it, or that do not compile, are listed, and what they do with it. With --only
each named test has to compile and to pass without it.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from jobs import WORK, Host, add_arguments

DIRECTORIES = ["coll", "comm", "attr", "threads/coll", "threads/comm", "errors/coll"]

# The facts that MPICH's tests take from a script of theirs.
CONFIGURATION = """
#define STDC_HEADERS 1
#define HAVE_STRING_H 1
#define HAVE_STDINT_H 1
#define HAVE_STDLIB_H 1
#define HAVE_STDARG_H 1
#define HAVE_UNISTD_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_RESOURCE_H 1
#define HAVE_PTHREAD_H 1
#define HAVE_LONG_LONG 1
#define HAVE_LONG_DOUBLE 1
#define HAVE_FLOAT__COMPLEX 1
#define HAVE_DOUBLE__COMPLEX 1
#define HAVE_LONG_DOUBLE__COMPLEX 1
#define HAVE__BOOL 1
#define HAVE_MPI_WIN_CREATE 1
#define THREAD_PACKAGE_NAME THREAD_PACKAGE_POSIX
"""

COLLECTIVES = (
    "Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv "
    "Alltoallw Reduce Allreduce Reduce_scatter Reduce_scatter_block Scan Exscan "
    "Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv "
    "Neighbor_alltoallw"
).split()

# A statement expression of GNU C: the code of the start, or that of the wait.
NONBLOCKING = """#define MPI_{0}(...)                                                \\
    ({{                                                                        \\
        MPI_Request of_this_call = MPI_REQUEST_NULL;                           \\
        int code = MPI_I{1}(__VA_ARGS__, &of_this_call);                       \\
        code ? code : MPI_Wait(&of_this_call, MPI_STATUS_IGNORE);              \\
    }})
"""


class Tests:
    """The tests of a source package, built for an MPI library."""

    def __init__(self, host, compiler, fortran, sources):
        self.host = host
        self.compiler, self.fortran = compiler, fortran
        self.sources = sources / "test/mpi"
        if not (self.sources / "coll").is_dir():
            raise SystemExit(f"there are no tests of MPICH in {sources}")
        self.built = WORK / "mpich-tests" / str(host.prefix).strip("/").replace("/", "-")
        self.built.mkdir(parents=True, exist_ok=True)
        (self.built / "mpitestconf.h").write_text(CONFIGURATION)
        # The header of the pools includes its configuration as ../dtpoolsconf.h.
        (self.built / "include").mkdir(exist_ok=True)
        (self.built / "dtpoolsconf.h").write_text("#define HAVE_STDLIB_H 1\n")
        macros = "".join(NONBLOCKING.format(name, name.lower()) for name in COLLECTIVES)
        (self.built / "nonblocking.h").write_text("#include <mpi.h>\n" + macros)
        self.common = {}

    def compile(self, compiler, to, words):
        sources = self.sources
        folders = [self.built, sources / "include", sources / "dtpools/include"]
        command = [compiler, "-w", "-O1", "-o", to, *(f"-I{folder}" for folder in folders), *words]
        done = subprocess.run(
            [str(word) for word in command], cwd=self.built, capture_output=True, text=True
        )
        return None if done.returncode == 0 else done.stderr

    def objects_of_c(self):
        """The files that all tests in C share."""
        if "c" not in self.common:
            utilities = [self.sources / "util" / f"{name}.c" for name in ("mtest", "mtest_common")]
            utilities += [self.sources / "util/dtypes.c", self.sources / "util/mtest_thread.c"]
            utilities += (self.sources / "dtpools/src").glob("*.c")
            objects = [self.built / f"{source.stem}.o" for source in utilities]
            for source, to in zip(utilities, objects):
                error = self.compile(self.compiler, to, ["-c", source, f"-I{self.built}/include"])
                if error:
                    raise SystemExit(f"{source} does not compile:\n{error}")
            self.common["c"] = objects
        return self.common["c"]

    def build(self, directory, name):
        """The program of a test, or why there is none."""
        folder = self.sources / directory
        to = self.built / f"{directory.replace('/', '-')}-{name}"
        names = [name, re.sub(r"^nb_?", "", name), name.removeprefix("i")]
        files = [
            folder / f"{name}{suffix}" for name in names for suffix in (".c", ".f", ".f90")
        ]
        source = next((file for file in files if file.exists()), None)
        if source is None:
            return None, "no source"
        if source.suffix == ".c":
            words = ["-include", self.built / "nonblocking.h", source, *self.objects_of_c()]
            error = self.compile(self.compiler, to, words + ["-lpthread", "-lm"])
        else:
            kind = directory.split("/")[0]
            helper = self.sources / "util" / f"mtest_{kind}{source.suffix}"
            words = ["-fallow-argument-mismatch", "-fallow-invalid-boz", helper, source]
            error = self.compile(self.fortran, to, words)
        return (to, None) if error is None else (None, "does not compile: " + error)

    def listed(self, directory, most):
        """The lines of a list of tests: name, ranks, arguments, variables."""
        lists = [self.sources / directory / name for name in ("testlist.in", "testlist")]
        path = next((path for path in lists if path.exists()), None)
        if path is None:
            raise SystemExit(f"{directory} has no list of tests")
        seen = set()
        for line in path.read_text().splitlines():
            # Those with much memory, or of faults of the library, are left out.
            if "@largetest@" in line or not line.strip() or line.startswith("#"):
                continue
            words = re.sub(r"@\w+@", "", line).split()
            name, ranks, options = words[0], min(int(words[1]), most), words[2:]
            arguments = [word[4:] for word in options if word.startswith("arg=")]
            variables = dict(word[4:].split("=", 1) for word in options if word.startswith("env="))
            if (name, ranks, *arguments) not in seen:
                seen.add((name, ranks, *arguments))
                yield name, ranks, arguments, variables


def classify(outcome):
    if not outcome.in_time:
        return "no end"
    passed = any("No Errors" in text for text in outcome.ranks)
    return "passes" if outcome.status == 0 and passed else "fails"


# A hang is worse than an error.
REGRESSIONS = (("passes", "fails"), ("passes", "no end"), ("fails", "no end"))


def compare(tests, directory, arguments):
    """Runs the tests of a directory; returns whether it shows a fault, the calls taken, and the names
    of the tests that were run."""
    counts, taken, left, names = Counter(), 0, 0, set()
    only = names_in(arguments.only)
    for name, ranks, words, variables in tests.listed(directory, arguments.most_ranks):
        if only and name not in only:
            continue
        names.add(name)
        program, error = tests.build(directory, name)
        if error:
            print(f"  {directory}/{name}: {error if arguments.verbose else error.splitlines()[0]}")
            counts["not built"] += 1
            continue
        plain, preloaded = (
            tests.host.run(ranks, [program, *words], preloaded, variables, tests.built)
            for preloaded in (False, True)
        )
        pair = classify(plain), classify(preloaded)
        counts[pair] += 1
        taken += preloaded.taken
        left += preloaded.left
        if arguments.verbose or pair != ("passes", "passes"):
            print(
                f"  {directory}/{' '.join([name, *words])}, {ranks} ranks: {pair[0]} without, "
                f"{pair[1]} with, {preloaded.taken} taken, {preloaded.left} left",
                flush=True,
            )
        if pair in REGRESSIONS:
            for text in preloaded.ranks:
                print("\n".join("    " + line for line in text.splitlines()[-8:]))
    rows = ", ".join(
        f"{count} {kind}" if kind == "not built" else f"{count} {kind[0]} without, {kind[1]} with"
        for kind, count in counts.items()
    )
    print(f"{directory}: {rows}; {taken} calls taken, {left} left", flush=True)
    is_worse = any(kind in REGRESSIONS for kind in counts)
    passing = sum(count for kind, count in counts.items() if kind[0] == "passes")
    # A test that fails without the library shows nothing about the library.
    shows_nothing = passing < sum(counts.values()) if only else passing == 0
    if shows_nothing:
        print(f"{directory}: {passing} of {sum(counts.values())} tests pass without the library")
    return is_worse or shows_nothing, taken, names


def names_in(text):
    """The names in a list with commas."""
    return set(filter(None, text.split(",")))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.set_defaults(limit=60)
    parser.add_argument("--sources", type=Path, required=True, help="unpacked sources of MPICH")
    parser.add_argument("--directories", default=",".join(DIRECTORIES), help="of test/mpi")
    parser.add_argument("--compiler", help="for C; mpicc of PREFIX")
    parser.add_argument("--only", default="", help="names of tests, with commas")
    parser.add_argument("--most-ranks", type=int, default=5, help="for tests that want more")
    parser.add_argument("--verbose", action="store_true", help="lists every test")
    arguments = parser.parse_args()
    host = Host(arguments)
    directories = arguments.directories.split(",")
    in_fortran = [bool(re.match("f77|f90|f08", directory)) for directory in directories]
    compiler = None if all(in_fortran) else arguments.compiler or host.file("mpicc")
    fortran = host.file("mpifort") if any(in_fortran) else None
    tests = Tests(host, compiler, fortran, arguments.sources.absolute())
    results = [compare(tests, directory, arguments) for directory in directories]
    unknown = names_in(arguments.only).difference(*(names for _, _, names in results))
    if unknown:
        print(f"there is no test {', '.join(sorted(unknown))} in {arguments.directories}")
    has_fault = unknown or any(fault for fault, _, _ in results)
    sys.exit(1 if has_fault or sum(taken for _, taken, _ in results) == 0 else 0)


if __name__ == "__main__":
    main()
