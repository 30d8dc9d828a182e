"""From the lines of all rounds to one outcome for each row: tradewind, the best peer, and the ratio between them.

On a virtual machine the two processors may share a cache now and not share it a few seconds later; everything then takes twice as
long. Each program is run between two measurements of the line from core to core, and a ratio is only taken
between two runs that saw the same floor.
"""

from dataclasses import dataclass
from statistics import fmean, median

from .configurations import FLOOR, TRADEWIND

# Floors are the same when they differ by no more than this factor; the two states of a machine differ by two or more.
SAME_FLOOR = 1.3


def steady(floor_ns):
    """Whether the floor before and the floor after are the same."""
    return max(floor_ns) <= SAME_FLOOR * min(floor_ns) or min(floor_ns) <= 0


def same_floor(one, other):
    """Whether both floors are steady, and the same."""
    less, more = sorted((fmean(one), fmean(other)))
    return steady(one) and steady(other) and (more <= SAME_FLOOR * less or less <= 0)


@dataclass
class Sample:
    """What one start of one program says about one row, in microseconds."""

    value: list  # median, tenth and ninetieth percentile
    at_s: float
    floor_ns: list  # before and after
    processor: float = None
    computation: float = None


@dataclass
class Figure:
    """Microseconds: the median over the samples of each one's median, tenth and ninetieth percentile."""

    configuration: str
    median: float
    p10: float
    p90: float
    samples: int
    processor: float = None
    computation: float = None


@dataclass
class Outcome:
    """One row of the table."""

    row: object
    ours: Figure = None
    best: Figure = None
    ratio: float = None
    least: float = None
    most: float = None
    ratios: tuple = ()
    matched: bool = True
    floor_us: float = None
    # Of the same collective, where there is such a program: its quickest way, and tradewind's time over it.
    floor: Figure = None
    over_floor: float = None
    # The same with a decision table.
    tuned: "Outcome" = None

    @property
    def reached(self):
        """True, False, or None where nothing is claimed or nothing was measured."""
        if self.row.reach is None or self.ours is None:
            return None
        if self.row.absolute:
            return self.ours.median <= self.row.reach
        return None if self.ratio is None else self.ratio <= self.row.reach


def samples(row, lines):
    """One sample for each line that holds the row's figure."""
    exposed = row.figure == "exposed_us"
    return [
        Sample(line[row.figure], line["at_s"], line["floor_ns"], line["processor_us"][0] if exposed else None,
               line["compute_us"][0] if exposed else None)
        for line in lines if row.figure in line
    ]


def figure(configuration, of):
    """The samples brought together."""
    parts = [median(sample.value[part] for sample in of) for part in range(3)]
    extra = [None if of[0].processor is None else median(getattr(sample, name) for sample in of)
             for name in ("processor", "computation")]
    return Figure(configuration, *parts, len(of), *extra)


def pairs(ours, theirs):
    """Each of tradewind's samples beside the peer's nearest in time under the same floor."""
    found = []
    for mine in ours:
        like = [other for other in theirs if same_floor(mine.floor_ns, other.floor_ns)]
        if like:
            found.append((mine, min(like, key=lambda other: abs(other.at_s - mine.at_s))))
    return found


def unmatched_pairs(ours, theirs):
    """Neighbours in time whatever the floor: what remains when the floor never was the same."""
    return [(mine, min(theirs, key=lambda other: abs(other.at_s - mine.at_s))) for mine in ours]


def compare(row, configuration, ours, theirs):
    """tradewind against one configuration of one peer."""
    together, matched = pairs(ours, theirs), True
    if 2 * len(together) < len(ours):
        together, matched = unmatched_pairs(ours, theirs), False
    # An exposed time of a peer below the noise yields no ratio.
    ratios = [mine.value[0] / other.value[0] for mine, other in together if other.value[0] > 0]
    result = Outcome(row, figure(TRADEWIND, [mine for mine, _ in together]),
                     figure(configuration, [other for _, other in together]), matched=matched, ratios=tuple(ratios))
    if ratios:
        result.ratio, result.least, result.most = median(ratios), min(ratios), max(ratios)
    return result


def floor_us(row, record, line_ns):
    """A line from core to core, and for large messages one copy: nothing that moves the data can be quicker for long."""
    if row.kind == "test" or row.op in ("rate", "solve"):
        return None
    rate = median(one["copy_64KiB" if row.bytes <= 65536 else "copy_1MiB"] for one in record.floors)
    return max(line_ns, 0) * 1e-3 + (row.bytes / rate * 1e-3 if row.bytes > 64 else 0)


def beside_peers(row, ours, peers):
    """tradewind's samples beside the best peer: the configuration beside which it looks worst; alone, the quickest."""
    if ours and peers:
        compared = [compare(row, name, ours, theirs) for name, theirs in peers.items()]
        # Where a floor was matched, that comparison counts; an unmatched one only when there is no other.
        matched = [one for one in compared if one.matched] or compared
        return max(matched, key=lambda one: (one.ratio is not None, one.ratio or 0))
    figures = [figure(name, theirs) for name, theirs in peers.items()]
    best = min(figures, key=lambda one: one.median, default=None)
    return Outcome(row, figure(TRADEWIND, ours) if ours else None, best)


def outcome(row, record):
    """The row's outcome."""
    lines = {}
    for line in record.lines:
        if (line["program"], line["op"], line["bytes"], line["ranks"]) == row.measured:
            lines.setdefault((line["library"], line["configuration"]), []).append(line)
    ours, tuned, peers, ways = [], [], {}, {}
    for (library, configuration), these in lines.items():
        found = samples(row, these)
        if library == FLOOR and found:
            ways[configuration] = found
        elif library != TRADEWIND and found:
            peers[configuration] = found
        elif library == TRADEWIND and (row.buffers == "alloc") == ("alloc" in configuration):
            if "tuned" in configuration:
                tuned = found
            else:
                ours = found
    result = beside_peers(row, ours, peers)
    if tuned:
        result.tuned = beside_peers(row, tuned, peers)
    if ours and ways:
        # The quickest way: the one beside which tradewind looks worst.
        beside = [compare(row, name, ours, theirs) for name, theirs in ways.items()]
        nearest = max(beside, key=lambda one: one.ratio or 0)
        result.floor, result.over_floor = nearest.best, nearest.ratio
    near = [fmean(sample.floor_ns) for sample in ours or [sample for of in peers.values() for sample in of]]
    result.floor_us = floor_us(row, record, median(near)) if near else None
    return result


def outcomes(rows, record):
    """All rows, in order."""
    return [outcome(row, record) for row in rows]
