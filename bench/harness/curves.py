"""NBCBench between nodes over sizes and numbers of ranks, as a part that `tradewind report` draws."""

import json
import statistics

# Bytes, and iterations of the computation: some times what the collective takes alone.
SIZES = ((8, 200_000), (1024, 200_000), (16384, 400_000), (65536, 1_000_000), (262144, 3_000_000))
OPERATIONS = ("allreduce", "alltoall", "bcast", "neighbor")
# Rows of the program, as bench/c/overlap.c takes them.
ROWS = ["barrier:0:200000"] + [f"{operation}:{size}:{iterations}" for operation in OPERATIONS for size, iterations in SIZES]
# Sizes that are drawn over the number of ranks.
OVER_RANKS = (0, 8, 16384)
# A value of a line, and the figure's title.
FIGURES = {
    "alone_us": ("alone", "Time of the collective alone"),
    "exposed_us": ("exposed", "Time that the collective adds to a computation"),
    "processor_us": ("processor", "Processor time of all ranks beyond the computation"),
}


def collect(values, contender, ranks, lines):
    """Adds the lines of a contender's program: lists of values by (field, operation, bytes), ranks and contender."""
    for line in lines:
        for field in FIGURES:
            key = (field, line["op"], line.get("bytes") or 0)
            values.setdefault(key, {}).setdefault((contender, ranks), []).append(line[field][0])


def point(x, found):
    """A point of the part."""
    quartiles = statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else [found[0]] * 3
    return {
        "x": x, "median": statistics.median(found), "minimum": min(found), "lower_quartile": quartiles[0],
        "upper_quartile": quartiles[2], "maximum": max(found), "repetitions": len(found),
    }


def figure(name, title, x, curves):
    """A figure of the part with these curves: points by name."""
    time = {"label": "time", "unit": "µs", "scale": "logarithmic"}
    series = [{"name": curve, "role": "measured", "points": sorted(points, key=lambda one: one["x"])} for curve, points in curves.items()]
    return {"name": name, "title": title, "caption": "", "x": x, "y": time, "series": series}


def part(values, nodes, rounds):
    """The part, in the form of the files in a directory of results."""
    over_sizes, over_ranks = {}, {}
    for (field, operation, size), found in values.items():
        for (contender, ranks), times in found.items():
            if size:
                name = (f"{FIGURES[field][0]}-{operation}-{ranks}", f"{FIGURES[field][1]}: {operation}, {ranks} ranks")
                over_sizes.setdefault(name, {}).setdefault(contender, []).append(point(size, times))
            if size in OVER_RANKS:
                of = f"{operation} of {size} bytes" if size else operation
                name = (f"{FIGURES[field][0]}-{operation}-{size}-ranks", f"{FIGURES[field][1]}: {of}")
                over_ranks.setdefault(name, {}).setdefault(contender, []).append(point(ranks, times))
    size_axis = {"label": "size", "unit": "B", "scale": "logarithmic"}
    rank_axis = {"label": "number of ranks", "unit": "", "scale": "linear"}
    figures = [figure(*name, size_axis, curves) for name, curves in over_sizes.items()]
    figures += [figure(*name, rank_axis, curves) for name, curves in over_ranks.items()]
    about = (
        "Every rank starts a collective, computes without another call, and waits; what that takes more than the computation alone is "
        "the exposed time. The same program for all: MPI's nonblocking collectives over TCP, tradewind's in the node service (agent) "
        f"and in the ranks, on {nodes} nodes that are network namespaces. Medians of {rounds} rounds in turns."
    )
    content = {
        "name": "nbcbench", "title": "Overlap between nodes beside MPI libraries", "about": about, "complete": True,
        "source": "Schneider et al. 2011, figures 4–6; Hoefler, Lumsdaine and Rehm, SC 2007", "figures": figures,
    }
    return {"format": "tradewind measurement", "version": 2, "content": content}


def table(values):
    """Medians over the rounds, as lines of a table: rows of each number of ranks, the contenders side by side."""
    names = list(dict.fromkeys(contender for found in values.values() for contender, _ in found))
    ranks = sorted({ranks for found in values.values() for _, ranks in found})
    lines = ["", "| NBCBench, µs | ranks | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for (field, operation, size), found in values.items():
        for count in ranks:
            of = f"{operation}, {size} bytes" if size else operation
            cells = [f"{statistics.median(found[name, count]):.1f}" if (name, count) in found else "–" for name in names]
            lines.append(f"| {of}, {FIGURES[field][0]} | {count} | " + " | ".join(cells) + " |")
    return lines


def write(values, nodes, rounds, folder):
    """Writes the part into a directory of results for `tradewind report`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nbcbench.json"
    path.write_text(json.dumps(part(values, nodes, rounds), indent=1) + "\n")
    return path
