"""From the lines of all rounds to one outcome for each row: tradewind, the best peer, and the ratio between them."""

from dataclasses import dataclass
from statistics import median

from .configurations import TRADEWIND


@dataclass
class Figure:
    """Microseconds: the median over the rounds of each round's median, tenth and ninetieth percentile."""

    configuration: str
    median: float
    p10: float
    p90: float
    rounds: dict  # round -> that round's median
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
    floor_us: float = None

    @property
    def reached(self):
        """True, False, or None where nothing is claimed or nothing was measured."""
        if self.row.reach is None or self.ours is None:
            return None
        if self.row.absolute:
            return self.ours.median <= self.row.reach
        return None if self.ratio is None else self.ratio <= self.row.reach


def figure(row, configuration, lines):
    """What one configuration's lines say about a row."""
    values = {line["round"]: line[row.figure] for line in lines if row.figure in line}
    if not values:
        return None
    exposed = row.figure == "exposed_us"
    return Figure(
        configuration,
        *(median(value[part] for value in values.values()) for part in range(3)),
        {number: value[0] for number, value in values.items()},
        median(line["processor_us"][0] for line in lines) if exposed else None,
        median(line["compute_us"][0] for line in lines) if exposed else None,
    )


def floor_us(row, floors):
    """A line from core to core, and for large messages one copy: nothing that moves the data can be quicker for long."""
    if row.kind == "test":
        return None
    rate = "copy_64KiB" if row.bytes <= 65536 else "copy_1MiB"
    return median(max(one["line_ns"], 0) * 1e-3 + (row.bytes / one[rate] * 1e-3 if row.bytes > 64 else 0) for one in floors)


def outcome(row, record):
    """The row's outcome. The best peer is the one configuration with the lowest median over all rounds."""
    lines = {}
    for line in record.lines:
        if (line["program"], line["op"], line["bytes"], line["ranks"]) == row.measured:
            lines.setdefault((line["library"], line["configuration"]), []).append(line)
    ours, peers = None, []
    for (library, configuration), these in lines.items():
        if library != TRADEWIND:
            peers.append(figure(row, configuration, these))
        elif (row.buffers == "alloc") == ("alloc" in configuration):
            ours = figure(row, configuration, these)
    best = min((one for one in peers if one), key=lambda one: one.median, default=None)
    result = Outcome(row, ours, best, floor_us=floor_us(row, record.floors))
    if ours and best:
        # A peer whose exposed time is lost in the noise gives no ratio.
        both = [number for number in ours.rounds if best.rounds.get(number, 0) > 0]
        ratios = [ours.rounds[number] / best.rounds[number] for number in both]
        if ratios:
            result.ratio, result.least, result.most = median(ratios), min(ratios), max(ratios)
    return result


def outcomes(rows, record):
    """All rows, in order."""
    return [outcome(row, record) for row in rows]
