"""The rows of the table: what is measured, what it is called, and how far tradewind means to get."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from .places import Trouble

NONBLOCKING = ("barrier", "allreduce", "alltoall", "bcast", "neighbor")
OTHERS = (
    "reduce", "scatter", "gather", "allgather", "reducescatter", "scan", "exscan", "alltoallv", "allgatherv", "gatherv", "scatterv",
    "neighborgather",
)
SMALL = (8, 1024)
LARGE = (65536, 1048576)
ALL_SIZES = (8, 128, 1024, 8192, 65536, 262144, 1048576)
# With more ranks than cores.
CROWDED_SIZES = (8, 1024, 8192, 65536)
# Of the banded solve's grid: its row has these where others have bytes.
SOLVE_ROWS = 2048


@dataclass(frozen=True)
class Row:
    """One line of the table. `reach` is a ratio to the best peer, or microseconds where `absolute`."""

    kind: str
    op: str
    bytes: int
    ranks: int
    reach: float = None
    absolute: bool = False

    @property
    def name(self):
        """What --only matches and the results file is keyed by."""
        return f"{self.kind}/{self.op}/{self.bytes}/{self.ranks}"

    @property
    def program(self):
        """The program that measures it."""
        return {"blocking": "blocking", "test": "test_cost", "message": "messages", "threads": "threads", "solve": "banded_solve"}.get(self.kind, "overlap")

    @property
    def figure(self):
        """The field of that program's line that holds it."""
        kind = self.kind.removesuffix("-alloc")
        return {"blocking": "blocking_us", "test": "test_us", "alone": "alone_us", "exposed": "exposed_us", "solve": "communication_us"}.get(
            kind, "message_us"
        )

    @property
    def buffers(self):
        """Which buffers tradewind uses for it; the peers know one kind only."""
        return "alloc" if self.kind.endswith("-alloc") else "private"

    @property
    def measured(self):
        """What the row shares with the others that one line of output fills."""
        return (self.program, self.op, self.bytes, self.ranks)


def blocking():
    """Calls back to back: 0.6 of the best peer with a core for each rank, 0.5 where cores are short; never slower at other sizes."""
    short = (("barrier", 0), ("allreduce", 8), ("alltoall", 8), ("bcast", 8))
    for ranks in (2, 4, 8):
        for op, size in short:
            yield Row("blocking", op, size, ranks, 0.6 if ranks == 2 else 0.5)
    for op in NONBLOCKING[1:] + OTHERS:
        for size in ALL_SIZES:
            if (op, size) not in short:
                yield Row("blocking", op, size, 2, 1.0)
    for ranks in (4, 8):
        for op in NONBLOCKING[1:] + OTHERS:
            for size in CROWDED_SIZES:
                if (op, size) not in short:
                    yield Row("blocking", op, size, ranks, 0.8)


def nonblocking():
    """Alone and exposed, private buffers and segment-owned ones."""
    private = {"allreduce": 0.5, "alltoall": 0.75, "bcast": 0.75}
    for kind in ("alone", "exposed", "alone-alloc", "exposed-alloc"):
        for op in NONBLOCKING:
            for size in (0,) if op == "barrier" else SMALL + LARGE:
                reach = None
                if kind == "exposed":
                    reach = 0.3 if size in (0, *SMALL) else private.get(op)
                elif kind == "exposed-alloc" and size in LARGE and op in private:
                    reach = 0.25
                if op != "barrier" or not kind.endswith("-alloc"):
                    yield Row(kind, op, size, 2, reach)


def testing():
    """One test of a collective that cannot finish yet: ten nanoseconds."""
    yield Row("test", "barrier", 0, 2, 0.010, absolute=True)
    yield Row("test", "allreduce", 8, 2, 0.010, absolute=True)


def messages():
    """From one rank to the other, by the mechanism made for it: see bench/loops/src/messages.rs and threads.rs."""
    yield Row("message", "latency", 8, 2, 0.4)
    yield Row("message", "rate", 8, 2, 0.2)
    yield Row("threads", "threads", 8, 2, 0.5)
    for size in (4096, 65536, 1048576):
        yield Row("message", "large", size, 2, 0.8)
    # MPI's own messages on both sides: see bench/loops/src/point_to_point.rs.
    for size, reach in ((8, 1.0), (4096, 0.7), (65536, 0.5), (1048576, 0.5)):
        yield Row("message", "pingpong", size, 2, reach)
    # Unchanged bytes lie in the caches of both ranks, so the same sizes with bytes that are written for every message.
    for size, reach in ((4096, 0.7), (65536, 0.5), (1048576, 0.5)):
        yield Row("message", "written", size, 2, reach)
    yield Row("message", "stream", 8, 2, 0.67)
    yield Row("message", "posted", 8, 2, 0.3)
    yield Row("message", "posted", 1048576, 2, 0.6)
    yield Row("threads", "pairs", 8, 2, 0.5)
    yield Row("solve", "solve", SOLVE_ROWS, 2, 0.2)


def chosen(only):
    """The rows that a run measures, in the order of the table."""
    rows = [*blocking(), *nonblocking(), *testing(), *messages()]
    if not only:
        return rows
    kept = [row for row in rows if any(part in row.name or fnmatchcase(row.name, part) for part in only)]
    if not kept:
        raise Trouble(f"no row fits --only {' '.join(only)}: bench/peers --list prints their names.")
    return kept
