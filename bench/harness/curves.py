"""The figures of NBCBench between nodes: a part of results that `tradewind report` draws beside its own."""

import json
import statistics

from .places import Trouble

NAME = "nbcbench-mpi"
# Sizes with curves over the number of nodes, too.
OVER_NODES = (0, 8, 65536)
KINDS = {
    "exposed_us": "exposed time beside a computation",
    "alone_us": "start and wait without a computation",
    "processor_us": "processor time of all ranks, less that of the computation",
    "overlap": "overlap, 1 − exposed / alone",
}
BYTES = {"label": "bytes", "unit": "bytes", "scale": "logarithmic"}
NODES = {"label": "nodes", "unit": "", "scale": "linear"}
TIME = {"label": "time", "unit": "µs", "scale": "logarithmic"}
SHARE = {"label": "overlap", "unit": "%", "scale": "linear"}


def empty(described):
    """The part before anything is in it."""
    return {
        "name": NAME,
        "title": "Nonblocking collectives beside MPI libraries, between nodes",
        "about": "Nonblocking collectives of tradewind and of MPI libraries over TCP, in turns, with a rank on each node. Exposed is what "
        "a collective adds to a computation during which no rank calls the library. The ranks of `ranks` progress "
        "their collectives themselves, as the caller engine does on one node; those of `agent` leave them to the node services.",
        "source": "Schneider, Eckelmann, Hoefler, Rehm 2011, sections 4.2 and 4.3, figures 4 to 6",
        "complete": True,
        "setting": {"processor": described["processor"], "cores": str(described["cores"]), "kernel": described["kernel"]},
        "figures": [],
    }


def read(path, described):
    """The part in a directory, or an empty one."""
    try:
        part = json.loads(path.read_text())["content"]
    except FileNotFoundError:
        return empty(described)
    except (OSError, ValueError, KeyError) as error:
        raise Trouble(f"{path} cannot be read ({error}): name another directory with --curves.") from error
    if part["setting"] != empty(described)["setting"]:
        raise Trouble(f"{path} was measured on another machine: name another directory with --curves.")
    return part


def point(x, times):
    """A point with the spread of its rounds. Times are differences, so noise makes some negative: these count as zero."""
    times = sorted(max(time, 0.0) for time in times)
    quarters = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
    lower, middle, upper = quarters
    return {
        "x": x, "median": middle, "minimum": times[0], "lower_quartile": lower, "upper_quartile": upper, "maximum": times[-1],
        "repetitions": len(times),
    }


def overlaps(rows):
    """The overlap of each round, in percent."""
    found = {}
    for (operation, size, kind), times in rows.items():
        alone = rows.get((operation, size, "alone_us"), [])
        if kind == "exposed_us":
            shares = [100 * min(1 - time / whole, 1) for time, whole in zip(times, alone) if whole > 0]
            if shares:
                found[operation, size, "overlap"] = shares
    return found


def place(part, figure, title, axis, contender, found):
    """Puts a point into a curve of a figure, in the place of one with the same x."""
    known = next((known for known in part["figures"] if known["name"] == figure), None)
    if known is None:
        known = {"name": figure, "title": title, "x": axis, "y": SHARE if figure.startswith("overlap") else TIME, "series": []}
        part["figures"].append(known)
    series = next((series for series in known["series"] if series["name"] == contender), None)
    if series is None:
        series = {"name": contender, "role": "measured", "points": []}
        known["series"].append(series)
    series["points"] = sorted([*(one for one in series["points"] if one["x"] != found["x"]), found], key=lambda one: one["x"])


def add(part, nodes, values):
    """Adds what was measured with so many nodes: values by contender, then by (operation, bytes, kind)."""
    for contender, measured in values.items():
        rows = {**measured, **overlaps(measured)}
        for (operation, size, kind), times in rows.items():
            words, name = KINDS[kind], kind.removesuffix("_us")
            if size > 0:
                title = f"i{operation}, {nodes} nodes: {words}"
                place(part, f"{name}-{operation}-{nodes}-nodes", title, BYTES, contender, point(size, times))
            if size in OVER_NODES:
                title = f"i{operation}{f' of {size} bytes' if size else ''}: {words}"
                place(part, f"{name}-{operation}-{size}-bytes", title, NODES, contender, point(nodes, times))


def write(directory, nodes, values, described):
    """Adds what was measured to the part of a directory."""
    path = directory / f"{NAME}.json"
    directory.mkdir(parents=True, exist_ok=True)
    part = read(path, described)
    add(part, nodes, values)
    path.write_text(json.dumps({"format": "tradewind measurement", "version": 2, "content": part}, indent=1) + "\n")
