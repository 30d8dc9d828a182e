#!/usr/bin/env python3
"""Compares the times of MPI libraries with themselves behind the preload library.

    bench/mpi/compare.py [--ranks 2,4] [--rounds 7,3] [--out ROWS] PREFIX...
    bench/mpi/compare.py --redraw ROWS

Each round runs every job without the preload library and with it, in turns, for each library and
number of ranks. The rows are those of rows.c (exposed, late, blocking, left), of the Intel MPI
Benchmarks where the directory of a library or its ABI has them (imb), and the time of a job that only
starts and ends (startup). The ratio of a row is the median of those of the rounds. A row is taken if
its collective runs on tradewind by the built-in rule, or by the table of --table; a job of its own
with a report says so.

Needs `cargo build --release -p tradewind-cli -p tradewind-mpi`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from jobs import PREFIX, Host, add_command

HERE = Path(__file__).resolve().parent
GROUPS = ("exposed", "late", "blocking", "left")
LENGTHS = (8, 1024, 16384, 65536, 1048576)
# With more ranks than cores a call may take milliseconds.
FEWER_LENGTHS = (8, 1024, 65536)
ABOVE = 1.05
COLLECTIVES = (
    "Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv Reduce "
    "Allreduce Reduce_scatter Reduce_scatter_block"
).split()


def numbers(text):
    return tuple(int(word) for word in text.split(","))


class Comparison:
    """The jobs of one library and number of ranks."""

    def __init__(self, arguments, prefix, ranks, directory):
        host = argparse.Namespace(
            prefix=prefix, family=None, command=arguments.command, limit=arguments.limit
        )
        self.host = Host(host)
        self.name = self.host.family
        self.ranks = ranks
        self.groups = arguments.groups.split(",")
        self.lengths = arguments.lengths or (LENGTHS if ranks == 2 else FEWER_LENGTHS)
        # Programs for Intel MPI, whose compilers its package lacks, are built by those of MPICH.
        builder = arguments.builder if self.name == "impi" else prefix
        self.rows = self.build(builder, "rows", directory)
        self.empty = self.build(builder, "empty", directory)
        self.benchmarks = next(
            (p / "bin" for p in arguments.prefixes if (p / "bin/IMB-NBC").exists()), None
        )
        self.decisions = ""
        if arguments.table:
            self.decisions = str(arguments.table.absolute().with_name("decisions.json"))

    def build(self, builder, name, directory):
        compiler = next(p for p in (builder / "bin/mpicc", builder / "bin/mpicc.mpich") if p.exists())
        program = Path(directory) / f"{name}-{self.name}"
        if not program.exists():
            subprocess.run([compiler, "-w", "-O2", "-o", program, HERE / f"{name}.c"], check=True)
        return program

    def job(self, words, preloaded, variables=None, is_timed=True):
        variables = {"TRADEWIND_DECISIONS": self.decisions, **(variables or {})}
        outcome = self.host.run(self.ranks, words, preloaded, variables, is_timed=is_timed)
        if outcome.status != 0:
            text = "\n".join("\n".join(rank.splitlines()[-20:]) for rank in outcome.ranks)
            sys.exit(f"{self.name}, {self.ranks} ranks: {words} has failed ({outcome.status})\n{text}")
        return outcome

    def times(self, preloaded):
        """The time of each row: group, name, bytes."""
        times = {}
        if "startup" in self.groups:
            times["startup", "empty job", 0] = 1e6 * self.job([self.empty], preloaded).seconds
        groups = [group for group in GROUPS if group in self.groups]
        if groups:
            outcome = self.job([self.rows, *groups, *map(str, self.lengths)], preloaded)
            for line in outcome.ranks[0].splitlines():
                words = line.split()
                if words and words[0] in GROUPS:
                    times[words[0], words[1], int(words[2])] = float(words[3])
        # The libraries of MPICH and Intel MPI have one ABI.
        if "imb" in self.groups and self.benchmarks and self.name != "openmpi":
            times.update(self.benchmark_times(preloaded))
        return times

    def benchmark_times(self, preloaded):
        times = {}
        for program in ("IMB-NBC", "IMB-MPI1"):
            with tempfile.NamedTemporaryFile("w", suffix=".lengths") as lengths:
                lengths.write("\n".join(map(str, self.lengths)))
                lengths.flush()
                words = [self.benchmarks / program, "-msglen", lengths.name, "-time", "0.01"]
                words += ["-iter", "100", "-npmin", str(self.ranks), "-mem", "0.2"]
                words += COLLECTIVES if program == "IMB-MPI1" else []
                outcome = self.job(words, preloaded)
            times.update(benchmark_rows(program, outcome.ranks[0]))
        return times

    def taken(self):
        """The rows whose collective runs on tradewind."""
        taken = set()
        for length in self.lengths:
            words = [self.rows, "once", str(length)]
            # An empty choice is none: the rule or the table decides.
            outcome = self.job(words, True, {"TRADEWIND_MPI_ONLY": ""}, is_timed=False)
            for name, (count, _) in outcome.calls.items():
                if count > 0:
                    taken.add((name.removeprefix("MPI_").lower(), length))
        return taken


def benchmark_rows(program, text):
    """The rows of IMB: the time beside a computation, or the mean time of a blocking call."""
    rows, benchmark = {}, None
    for line in text.splitlines():
        words = line.split()
        if line.startswith("# Benchmarking") and len(words) > 2:
            benchmark = words[2]
        elif benchmark and words and words[0].isdigit():
            # Bytes, not of barriers; repetitions; beside a computation, alone, computation, overlap, or
            # least, most, mean.
            columns = 4 if program == "IMB-NBC" else 3
            length = int(words[0]) if len(words) == columns + 2 else 0
            place = -4 if program == "IMB-NBC" else -1
            if len(words) in (columns + 1, columns + 2) and not benchmark.endswith("_pure"):
                rows["imb", benchmark, length] = float(words[place])
    return rows


def is_taken(row, taken):
    group, name, length = row
    if group in ("left", "startup"):
        return False
    # A barrier has no length: it runs in the jobs of all lengths.
    return any(name.lower() == known and length in (of, 0) for known, of in taken)


def measure(arguments, out):
    records = []
    with tempfile.TemporaryDirectory() as directory:
        comparisons = [
            (Comparison(arguments, prefix, ranks, directory), rounds)
            for ranks, rounds in zip(arguments.ranks, arguments.rounds)
            for prefix in arguments.prefixes
        ]
        taken = [comparison.taken() for comparison, _ in comparisons]
        for number in range(max(arguments.rounds)):
            for (comparison, rounds), of in zip(comparisons, taken):
                if number >= rounds:
                    continue
                sides = (False, True) if number % 2 == 0 else (True, False)
                times = {side: comparison.times(side) for side in sides}
                for row, before in times[False].items():
                    record = {
                        "library": comparison.name,
                        "ranks": comparison.ranks,
                        "round": number,
                        "group": row[0],
                        "row": row[1],
                        "bytes": row[2],
                        "taken": is_taken(row, of),
                        "library_us": before,
                        "preloaded_us": times[True].get(row),
                    }
                    records.append(record)
                    print(json.dumps(record), file=out, flush=True)
            print(f"round {number + 1} of {max(arguments.rounds)}", file=sys.stderr, flush=True)
    return records


def summary(rows):
    """Cells of the summary of some rows."""
    taken = [row[0] for row in rows if row[-1]]
    above = [row for row in rows if row[0] > ABOVE]
    of_taken = sum(row[-1] for row in above)
    ratios = f"{statistics.median(taken):.2f}, {max(taken):.2f}" if taken else ""
    return f"{len(taken)} of {len(rows)} | {ratios} | {of_taken}, {len(above) - of_taken}"


def draw(records, shows_all):
    rows = defaultdict(list)
    for record in records:
        if record["preloaded_us"] is not None:
            key = (record["library"], record["ranks"])
            rows[key, record["group"], record["row"], record["bytes"], record["taken"]].append(record)
    by_key = defaultdict(list)
    for (key, *row), of_row in rows.items():
        sides = [[record[side] for record in of_row] for side in ("library_us", "preloaded_us")]
        ratio = statistics.median(after / before for before, after in zip(*sides))
        by_key[key].append((ratio, *map(statistics.median, sides), *row))
    print(
        "| library | ranks | group | taken of all | median, worst ratio of those "
        "| above 1.05: taken, left |"
    )
    print("|---|---|---|---|---|---|")
    for (library, ranks), of_key in by_key.items():
        groups = sorted({row[3] for row in of_key})
        parts = [(group, [row for row in of_key if row[3] == group]) for group in groups]
        for group, of_group in [*parts, ("all", of_key)]:
            print(f"| {library} | {ranks} | {group} | {summary(of_group)} |")
    print("\n| library | ranks | group | row | bytes | taken | library → preloaded, µs (ratio) |")
    print("|---|---|---|---|---|---|---|")
    for (library, ranks), of_key in by_key.items():
        for ratio, before, after, group, name, length, taken in sorted(of_key, reverse=True):
            if shows_all or ratio > ABOVE:
                print(
                    f"| {library} | {ranks} | {group} | {name} | {length} | {'yes' if taken else ''} "
                    f"| {before:.4g} → {after:.4g} ({ratio:.2f}) |"
                )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("prefixes", type=Path, nargs="*", metavar="PREFIX", help=PREFIX)
    parser.add_argument("--ranks", type=numbers, default=(2, 4), help="numbers of ranks, with commas")
    parser.add_argument("--rounds", type=numbers, default=(7, 3), help="rounds of each number of ranks")
    parser.add_argument(
        "--groups", default="exposed,late,blocking,left,imb,startup", help="groups of rows"
    )
    parser.add_argument("--lengths", type=numbers, help="bytes of a block")
    parser.add_argument(
        "--table", type=Path, help="a file mpi.json of `tradewind tune --mpi`, instead of the rule"
    )
    parser.add_argument(
        "--builder",
        type=Path,
        default=Path("target/mpi/mpich"),
        help="directory of an MPICH whose compiler builds the programs for Intel MPI",
    )
    parser.add_argument("--out", type=Path, help="file of the rows, a line of JSON for each")
    parser.add_argument("--redraw", type=Path, help="such a file, of which the tables are drawn")
    parser.add_argument("--all", action="store_true", help="shows all rows, not only those above 1.05")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a job may take")
    add_command(parser)
    arguments = parser.parse_args()
    if arguments.redraw:
        with open(arguments.redraw) as lines:
            draw([json.loads(line) for line in lines], arguments.all)
        return
    if not arguments.prefixes or len(arguments.ranks) != len(arguments.rounds):
        parser.error("give a PREFIX, and as many numbers of rounds as numbers of ranks")
    begun = time.monotonic()
    with open(arguments.out or "/dev/null", "w") as out:
        records = measure(arguments, out)
    draw(records, arguments.all)
    print(f"\n{time.monotonic() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
