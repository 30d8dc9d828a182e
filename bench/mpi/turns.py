"""Jobs of an MPI library without and with the preload library, in turns."""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMAND = HERE.parent.parent / "target/release/tradewind"


def parser(description):
    """The options of every comparison."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--compiler", type=Path)
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--command",
        type=Path,
        default=COMMAND,
        help="the tradewind command (target/release/tradewind), such as that of an installed wheel",
    )
    return parser


def is_openmpi(arguments):
    return (arguments.prefix / "bin/ompi_info").exists()


def start(arguments, program, preloads, decisions, options=()):
    """Runs one job; the words of each line that it prints. `program` has its arguments with it."""
    launcher = [str(arguments.prefix / "bin/mpiexec"), *options]
    if is_openmpi(arguments):
        launcher.append("--oversubscribe")
    ranks = [str(arguments.command.absolute()), "mpi", "--"] if preloads else []
    environment = dict(
        os.environ,
        LD_LIBRARY_PATH=str(arguments.prefix / "lib"),
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        TRADEWIND_DECISIONS=decisions,
    )
    command = launcher + ["-n", str(arguments.ranks)] + ranks + program
    output = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=120
    ).stdout
    return [line.split() for line in output.splitlines()]


def rounds(arguments, name, run):
    """Compiles a program and calls `run` for it without and with the preload library, in turns."""
    compiler = arguments.compiler or arguments.prefix / "bin/mpicc"
    with tempfile.TemporaryDirectory() as directory:
        program = str(Path(directory) / name)
        subprocess.run([compiler, "-w", "-O2", "-o", program, HERE / f"{name}.c"], check=True)
        return [
            (run(arguments, program, False), run(arguments, program, True))
            for _ in range(arguments.rounds)
        ]
