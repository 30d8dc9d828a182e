"""Jobs of an MPI library without and with the preload library, in turns."""

import argparse
import subprocess
import tempfile
from pathlib import Path

from both import Host, add_arguments

HERE = Path(__file__).resolve().parent


def parser(description):
    """The options of every comparison."""
    parser = argparse.ArgumentParser(description=description)
    add_arguments(parser)
    parser.add_argument("--compiler", type=Path)
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    return parser


def start(arguments, program, preloads, decisions, options=()):
    """Runs one job; the words of each line that its ranks print. `program` has its arguments with it."""
    variables = {"TRADEWIND_DECISIONS": decisions}
    outcome = Host(arguments).run(
        arguments.ranks, program, preloads, variables, options=options, reports=False
    )
    if outcome.status != 0:
        raise SystemExit("\n".join([f"status {outcome.status}", *outcome.ranks]))
    return [line.split() for text in outcome.ranks for line in text.splitlines()]


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
